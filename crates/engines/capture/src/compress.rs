//! Compression of what goes to a file: each piece one frame that stands by itself.

use std::io::{self, Write};

use lz4_flex::frame::{BlockMode, BlockSize, FrameEncoder, FrameInfo};
use wb_model::capture::Compression;
use zstd::bulk;

/// RFC 8878 section 3.1.1.2.3: Block_Maximum_Size.
const ZSTD_BLOCK: usize = 128 << 10;
/// The largest block of the LZ4 frame format.
const LZ4_BLOCK: usize = 4 << 20;
const ZSTD_LEVEL: i32 = 1;

/// Makes frames, in memory that is used again.
pub(crate) enum Compressor {
    Zstd(bulk::Compressor<'static>, Vec<u8>),
    Lz4(Vec<u8>),
}

impl Compressor {
    /// None without compression.
    pub(crate) fn new(kind: Compression) -> io::Result<Option<Self>> {
        Ok(match kind {
            Compression::None => None,
            Compression::Zstd => {
                let mut compressor = bulk::Compressor::new(ZSTD_LEVEL)?;
                compressor.include_checksum(true)?;
                Some(Self::Zstd(compressor, Vec::new()))
            }
            Compression::Lz4 => Some(Self::Lz4(Vec::new())),
        })
    }

    /// A frame of these bytes.
    pub(crate) fn frame(&mut self, bytes: &[u8]) -> io::Result<&[u8]> {
        match self {
            Self::Zstd(compressor, out) => {
                out.clear();
                out.reserve(zstd::zstd_safe::compress_bound(bytes.len()));
                compressor.compress_to_buffer(bytes, out)?;
                Ok(out)
            }
            Self::Lz4(out) => {
                out.clear();
                let info = FrameInfo::new()
                    .block_size(BlockSize::Max4MB)
                    .block_mode(BlockMode::Independent)
                    .content_checksum(true);
                let mut encoder = FrameEncoder::with_frame_info(info, &mut *out);
                encoder.write_all(bytes)?;
                encoder.finish().map_err(io::Error::other)?;
                Ok(out)
            }
        }
    }

    /// A frame that holds these bytes as they are: for when there is no time to compress.
    pub(crate) fn stored(&mut self, bytes: &[u8]) -> &[u8] {
        match self {
            Self::Zstd(_, out) => {
                out.clear();
                // RFC 8878 section 3.1.1.1: one segment, a content size of four bytes, no checksum.
                out.extend_from_slice(&[0x28, 0xb5, 0x2f, 0xfd, 0xa0]);
                out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
                let mut blocks = bytes.chunks(ZSTD_BLOCK).peekable();
                while let Some(block) = blocks.next() {
                    let last = u32::from(blocks.peek().is_none());
                    let header = last | (block.len() as u32) << 3;
                    out.extend_from_slice(&header.to_le_bytes()[..3]);
                    out.extend_from_slice(block);
                }
                out
            }
            Self::Lz4(out) => {
                out.clear();
                // Version 1, independent blocks of up to 4 MiB, and the checksum of these two bytes.
                out.extend_from_slice(&[0x04, 0x22, 0x4d, 0x18, 0x60, 0x70, 0x73]);
                for block in bytes.chunks(LZ4_BLOCK) {
                    let header = block.len() as u32 | 1 << 31;
                    out.extend_from_slice(&header.to_le_bytes());
                    out.extend_from_slice(block);
                }
                out.extend_from_slice(&[0; 4]);
                out
            }
        }
    }
}

impl std::fmt::Debug for Compressor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Zstd(..) => "Zstd",
            Self::Lz4(_) => "Lz4",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    fn decode(kind: Compression, file: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        match kind {
            Compression::Zstd => zstd::stream::copy_decode(file, &mut out).unwrap(),
            _ => {
                let mut decoder = lz4_flex::frame::FrameDecoder::new(file);
                // It stops at the end of a frame; more calls go on.
                while decoder.read_to_end(&mut out).unwrap() > 0 {}
            }
        }
        out
    }

    #[test]
    fn frames_follow_each_other() {
        let text = b"a frame like the one before, ".repeat(20_000);
        for kind in [Compression::Zstd, Compression::Lz4] {
            let mut compressor = Compressor::new(kind).unwrap().unwrap();
            let mut file = compressor.frame(&text).unwrap().to_vec();
            assert!(file.len() * 20 < text.len(), "{kind:?}: {}", file.len());
            file.extend_from_slice(compressor.stored(&text));
            file.extend_from_slice(compressor.frame(&text[..1]).unwrap());
            let got = decode(kind, &file);
            assert_eq!(got.len(), 2 * text.len() + 1, "{kind:?}");
            assert!(got == [&text[..], &text, &text[..1]].concat());
        }
        assert!(Compressor::new(Compression::None).unwrap().is_none());
    }
}
