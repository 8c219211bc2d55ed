//! Compression of the output. A file is a single frame, because some readers ignore a second one (gzip: one member per
//! piece, which every reader supports). Each piece ends at a block boundary, so it can be unpacked even if the rest is
//! lost.

use std::io::{self, Write};

use flate2::write::GzEncoder;
use lz4_flex::block::{compress_into, get_maximum_output_size};
use wb_model::capture::Compression;
use zstd::stream::raw::{Encoder, InBuffer, Operation, OutBuffer};

/// RFC 8878 section 3.1.1.2.3: Block_Maximum_Size.
const ZSTD_BLOCK: usize = 128 << 10;
/// The largest block of the LZ4 frame format.
const LZ4_BLOCK: usize = 4 << 20;
const ZSTD_LEVEL: i32 = 1;
/// RFC 8878 section 3.1.1.2: an empty raw block that is the last one. Frames have no checksum, so a frame can end after
/// any of its blocks.
const ZSTD_END: [u8; 3] = [1, 0, 0];
/// Magic number, version 1 with independent blocks of up to 4 MiB, and the checksum of these two bytes.
const LZ4_BEGIN: [u8; 7] = [0x04, 0x22, 0x4d, 0x18, 0x60, 0x70, 0x73];
const LZ4_END: [u8; 4] = [0; 4];
/// Flag of an uncompressed LZ4 block.
const LZ4_STORED: u32 = 1 << 31;

/// Compresses one file as a frame, in reusable memory.
pub(crate) struct Compressor {
    kind: CompressorKind,
    out: Vec<u8>,
}

enum CompressorKind {
    Zstd {
        encoder: Encoder<'static>,
        /// Stored blocks were added without the encoder, so its next output is a separate frame.
        stored: bool,
    },
    Lz4 {
        begun: bool,
    },
    Gzip,
}

impl Compressor {
    /// Returns `None` without compression.
    pub(crate) fn new(kind: Compression) -> io::Result<Option<Self>> {
        let kind = match kind {
            Compression::None => return Ok(None),
            Compression::Zstd => CompressorKind::Zstd {
                encoder: Encoder::new(ZSTD_LEVEL)?,
                stored: false,
            },
            Compression::Lz4 => CompressorKind::Lz4 { begun: false },
            Compression::Gzip => CompressorKind::Gzip,
        };
        let out = Vec::new();
        Ok(Some(Self { kind, out }))
    }

    /// Compresses these bytes as a continuation of everything so far.
    pub(crate) fn compress_piece(&mut self, bytes: &[u8]) -> io::Result<&[u8]> {
        let out = &mut self.out;
        out.clear();
        match &mut self.kind {
            CompressorKind::Zstd { encoder, stored } => {
                if std::mem::take(stored) {
                    out.extend_from_slice(&ZSTD_END);
                    encoder.reinit()?;
                }
                zstd_blocks(encoder, bytes, out)?;
            }
            CompressorKind::Lz4 { begun } => {
                begin_lz4(begun, out);
                bytes
                    .chunks(LZ4_BLOCK)
                    .try_for_each(|b| lz4_block(b, out))?;
            }
            CompressorKind::Gzip => gzip_member(bytes, flate2::Compression::fast(), out)?,
        }
        Ok(out)
    }

    /// Stores these bytes uncompressed: if there is no time to compress, or if the compressor has seen data that is not
    /// in the file. A piece must precede it.
    pub(crate) fn store_piece(&mut self, bytes: &[u8]) -> &[u8] {
        let out = &mut self.out;
        out.clear();
        match &mut self.kind {
            CompressorKind::Zstd { stored, .. } => {
                *stored = true;
                for block in bytes.chunks(ZSTD_BLOCK) {
                    let header = (block.len() as u32) << 3;
                    out.extend_from_slice(&header.to_le_bytes()[..3]);
                    out.extend_from_slice(block);
                }
            }
            CompressorKind::Lz4 { begun } => {
                begin_lz4(begun, out);
                for block in bytes.chunks(LZ4_BLOCK) {
                    let header = block.len() as u32 | LZ4_STORED;
                    out.extend_from_slice(&header.to_le_bytes());
                    out.extend_from_slice(block);
                }
            }
            CompressorKind::Gzip => {
                // Writing to memory does not fail.
                let _ = gzip_member(bytes, flate2::Compression::none(), out);
            }
        }
        out
    }

    /// Bytes that end the file.
    pub(crate) const fn file_end(&self) -> &'static [u8] {
        match self.kind {
            CompressorKind::Zstd { .. } => &ZSTD_END,
            CompressorKind::Lz4 { .. } => &LZ4_END,
            CompressorKind::Gzip => &[],
        }
    }
}

fn gzip_member(bytes: &[u8], level: flate2::Compression, out: &mut Vec<u8>) -> io::Result<()> {
    let mut encoder = GzEncoder::new(out, level);
    encoder.write_all(bytes)?;
    encoder.finish()?;
    Ok(())
}

fn zstd_blocks(encoder: &mut Encoder<'_>, bytes: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
    out.reserve(zstd::zstd_safe::compress_bound(bytes.len()) + ZSTD_END.len());
    let mut input = InBuffer::around(bytes);
    while input.pos() < bytes.len() {
        out.reserve(ZSTD_BLOCK);
        let end = out.len();
        encoder.run(&mut input, &mut OutBuffer::around_pos(out, end))?;
    }
    loop {
        out.reserve(ZSTD_BLOCK);
        let end = out.len();
        if encoder.flush(&mut OutBuffer::around_pos(out, end))? == 0 {
            return Ok(());
        }
    }
}

fn begin_lz4(begun: &mut bool, out: &mut Vec<u8>) {
    if !std::mem::replace(begun, true) {
        out.extend_from_slice(&LZ4_BEGIN);
    }
}

fn lz4_block(block: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
    let at = out.len();
    out.resize(at + 4 + get_maximum_output_size(block.len()), 0);
    let len = compress_into(block, &mut out[at + 4..]).map_err(io::Error::other)?;
    let header = if len < block.len() {
        len as u32
    } else {
        out[at + 4..at + 4 + block.len()].copy_from_slice(block);
        block.len() as u32 | LZ4_STORED
    };
    out[at..at + 4].copy_from_slice(&header.to_le_bytes());
    out.truncate(at + 4 + (header & !LZ4_STORED) as usize);
    Ok(())
}

impl std::fmt::Debug for Compressor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self.kind {
            CompressorKind::Zstd { .. } => "Zstd",
            CompressorKind::Lz4 { .. } => "Lz4",
            CompressorKind::Gzip => "Gzip",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    const KINDS: [Compression; 2] = [Compression::Zstd, Compression::Lz4];

    /// The decoded content of the first frame, as far as possible, and the bytes after it.
    fn decode(kind: Compression, file: &[u8]) -> (Vec<u8>, usize) {
        let (mut rest, mut out) = (file, Vec::new());
        let _ = match kind {
            Compression::Zstd => {
                let mut decoder = zstd::stream::Decoder::with_buffer(&mut rest)
                    .unwrap()
                    .single_frame();
                decoder.read_to_end(&mut out)
            }
            _ => lz4_flex::frame::FrameDecoder::new(&mut rest).read_to_end(&mut out),
        };
        (out, rest.len())
    }

    fn noise(len: usize) -> Vec<u8> {
        let mut state = 1_u32;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        };
        (0..len).map(|_| next()).collect()
    }

    #[test]
    fn pieces_are_one_frame_and_each_is_whole_by_itself() {
        let text = b"a frame like the one before, ".repeat(200_000);
        let noise = noise(5 << 20);
        for kind in KINDS {
            let mut compressor = Compressor::new(kind).unwrap().unwrap();
            let (mut file, mut all) = (Vec::new(), Vec::new());
            for piece in [&text[..], &text[..1], &noise, &[], &text[..70_000]] {
                file.extend_from_slice(compressor.compress_piece(piece).unwrap());
                all.extend_from_slice(piece);
                assert!(decode(kind, &file).0 == all, "{kind:?}");
            }
            assert!(file.len() < noise.len() + text.len() / 20, "{kind:?}");
            file.extend_from_slice(compressor.file_end());
            assert!(decode(kind, &file) == (all, 0), "{kind:?}");
        }
        assert!(Compressor::new(Compression::None).unwrap().is_none());
    }

    #[test]
    fn what_is_stored_belongs_to_the_frame_too() {
        let text = b"a frame like the one before, ".repeat(20_000);
        for kind in KINDS {
            let mut compressor = Compressor::new(kind).unwrap().unwrap();
            let mut file = compressor.compress_piece(&text).unwrap().to_vec();
            file.extend_from_slice(compressor.store_piece(&text[..300_000]));
            file.extend_from_slice(compressor.store_piece(&text[..1]));
            let ended = [&file[..], compressor.file_end()].concat();
            let all = [&text[..], &text[..300_000], &text[..1]].concat();
            assert!(decode(kind, &ended) == (all, 0), "{kind:?}");
            // Later data may begin another frame.
            file.extend_from_slice(compressor.compress_piece(&text).unwrap());
            file.extend_from_slice(compressor.file_end());
            let (_, behind) = decode(kind, &file);
            if behind > 0 {
                assert_eq!(kind, Compression::Zstd);
                assert!(decode(kind, &file[file.len() - behind..]) == (text.clone(), 0));
            }
        }
    }
}
