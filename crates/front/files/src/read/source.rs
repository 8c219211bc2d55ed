//! Capture file as a stream of blocks: opened, decompressed according to its first bytes, decoded.
//!
//! Independent of the use of the blocks. Memory use is bounded for any file contents.

use std::{
    fmt,
    fs::File,
    io::{self, BufRead, BufReader, Chain, Cursor, Read},
    path::Path,
};

use anyhow::{Context, Result, bail};
use lz4_flex::frame::FrameDecoder;
use wb_pcapng::{CaptureDecoder, CaptureInterface, Details, FileItem, FormatProblem};

/// Bytes per read.
const PIECE: usize = 256 << 10;

/// Compression of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Packing {
    Zstd,
    Lz4,
    Gzip,
}

impl Packing {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Zstd => "zstd",
            Self::Lz4 => "lz4",
            Self::Gzip => "gzip",
        }
    }

    /// Magic numbers: RFC 8878 section 3.1.1, the LZ4 frame format, RFC 1952 section 2.3.1.
    fn of(beginning: &[u8]) -> Option<Self> {
        match beginning {
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Some(Self::Zstd),
            [0x04, 0x22, 0x4d, 0x18, ..] => Some(Self::Lz4),
            [0x1f, 0x8b, ..] => Some(Self::Gzip),
            _ => None,
        }
    }
}

/// Reason why a file could not be read to its end.
#[derive(Debug)]
pub(super) enum Trouble {
    /// The blocks are invalid from here on, or end too early.
    Damaged(wb_pcapng::Error),
    /// The compressed data is damaged; holds the number of bytes in complete blocks.
    Unpacking(Packing, u64, io::Error),
    /// The system returned a read error.
    Reading(io::Error),
}

impl Trouble {
    /// Returns true if the file never was a capture file.
    pub(super) const fn is_foreign(&self) -> bool {
        matches!(
            self,
            Self::Damaged(wb_pcapng::Error {
                problem: FormatProblem::UnknownFormat(_),
                ..
            })
        )
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Damaged(error) if self.is_foreign() => error.problem.fmt(f),
            Self::Damaged(error) => write!(f, "byte {}: {}", error.offset, error.problem),
            Self::Unpacking(packing, whole, cause) => write!(
                f,
                "{}: damaged or truncated: {cause}; the first {whole} bytes of the content are complete records",
                packing.name()
            ),
            Self::Reading(cause) => write!(f, "cannot continue reading: {cause}"),
        }
    }
}

/// Capture file on disk or on standard input.
pub(super) struct Source {
    /// Name as given by the user; `-` is standard input.
    pub(super) name: String,
    pub(super) packing: Option<Packing>,
    bytes: Box<dyn Read>,
    decoder: CaptureDecoder,
    ended: bool,
}

impl Source {
    /// Opens a file and reads its first bytes.
    ///
    /// # Errors
    /// If the file cannot be opened or read at all.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let name = path.display().to_string();
        let mut raw: Box<dyn Read> = if name == "-" {
            Box::new(io::stdin().lock())
        } else {
            let file = File::open(path).with_context(|| format!("cannot open {name}"))?;
            if file.metadata().is_ok_and(|found| found.is_dir()) {
                bail!("{name}: expected a capture file, got a directory");
            }
            Box::new(file)
        };
        let mut beginning = Vec::with_capacity(4);
        (&mut raw)
            .take(4)
            .read_to_end(&mut beginning)
            .with_context(|| format!("cannot read {name}"))?;
        let packing = Packing::of(&beginning);
        let raw = Cursor::new(beginning).chain(raw);
        let bytes = unpacked(packing, raw).with_context(|| format!("cannot decompress {name}"))?;
        Ok(Self {
            name,
            packing,
            bytes,
            decoder: CaptureDecoder::with_any_layout(),
            ended: false,
        })
    }

    /// Passes the next block to `visit`; returns none at the end. Must not be called again after an error.
    pub(super) fn step<T>(
        &mut self,
        visit: impl FnOnce(&FileItem<'_>) -> T,
    ) -> Result<Option<T>, Trouble> {
        loop {
            match self.decoder.next_item() {
                Ok(Some(item)) => return Ok(Some(visit(&item))),
                Ok(None) if self.ended => return Ok(None),
                Ok(None) => self.fill()?,
                Err(error) => return Err(Trouble::Damaged(error)),
            }
        }
    }

    fn fill(&mut self) -> Result<(), Trouble> {
        let len = loop {
            match self.bytes.read(self.decoder.space(PIECE)) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(len) => break len,
                Err(error) => {
                    let whole = self.whole_bytes();
                    return Err(match self.packing {
                        Some(packing) => Trouble::Unpacking(packing, whole, error),
                        None => Trouble::Reading(error),
                    });
                }
            }
        };
        if len == 0 {
            self.ended = true;
            self.decoder.finish();
        } else {
            self.decoder.filled(len);
        }
        Ok(())
    }

    /// Returns the interfaces so far.
    pub(super) fn interfaces(&self) -> &[CaptureInterface] {
        self.decoder.interfaces()
    }

    /// Returns true for an uncompressed file that libpcap reads in the same way.
    pub(super) fn is_for_libpcap(&self) -> bool {
        self.packing.is_none()
            && Path::new(&self.name).is_file()
            && self.decoder.is_known_to_libpcap()
    }

    /// Returns the bytes up to the end of the last complete block.
    pub(super) fn whole_bytes(&self) -> u64 {
        self.decoder.whole().offset
    }

    /// Returns the number of complete frames so far.
    pub(super) fn whole_records(&self) -> u64 {
        self.decoder.whole().records
    }

    /// Returns the kinds of information so far in addition to frames.
    pub(super) fn details(&self) -> Details {
        self.decoder.details()
    }

    /// Returns the oddities so far, one line each.
    pub(super) fn oddities(&self) -> Vec<String> {
        self.decoder.warnings().lines().collect()
    }
}

type Raw = Chain<Cursor<Vec<u8>>, Box<dyn Read>>;

fn unpacked(packing: Option<Packing>, raw: Raw) -> io::Result<Box<dyn Read>> {
    Ok(match packing {
        None => Box::new(raw),
        Some(Packing::Zstd) => Box::new(zstd::Decoder::new(raw)?),
        Some(Packing::Lz4) => Box::new(Lz4Frames {
            frame: Some(FrameDecoder::new(BufReader::with_capacity(PIECE, raw))),
        }),
        Some(Packing::Gzip) => Box::new(flate2::read::MultiGzDecoder::new(raw)),
    })
}

/// Decoder of consecutive LZ4 frames; the library's decoder ends with the first frame.
struct Lz4Frames<R: Read> {
    frame: Option<FrameDecoder<R>>,
}

impl<R: BufRead> Read for Lz4Frames<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        loop {
            let Some(frame) = &mut self.frame else {
                return Ok(0);
            };
            let len = frame.read(buf)?;
            if len > 0 || buf.is_empty() {
                return Ok(len);
            }
            let Some(ended) = self.frame.take() else {
                return Ok(0);
            };
            let mut rest = ended.into_inner();
            if !rest.fill_buf()?.is_empty() {
                self.frame = Some(FrameDecoder::new(rest));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn packings_are_told_by_their_first_bytes() {
        assert_eq!(Packing::of(&[0x28, 0xb5, 0x2f, 0xfd]), Some(Packing::Zstd));
        assert_eq!(Packing::of(&[0x04, 0x22, 0x4d, 0x18]), Some(Packing::Lz4));
        assert_eq!(Packing::of(&[0x1f, 0x8b]), Some(Packing::Gzip));
        assert_eq!(Packing::of(&[0xd4, 0xc3, 0xb2, 0xa1]), None);
        assert_eq!(Packing::of(&[]), None);
    }

    #[test]
    fn lz4_frames_follow_one_another() {
        let mut packed = Vec::new();
        for text in ["one ", "", "two"] {
            let mut encoder = lz4_flex::frame::FrameEncoder::new(packed);
            encoder.write_all(text.as_bytes()).unwrap();
            packed = encoder.finish().unwrap();
        }
        let mut text = String::new();
        let frame = Some(FrameDecoder::new(&packed[..]));
        Lz4Frames { frame }.read_to_string(&mut text).unwrap();
        assert_eq!(text, "one two");
        packed.truncate(packed.len() - 6);
        let frame = Some(FrameDecoder::new(&packed[..]));
        let cut = Lz4Frames { frame }.read_to_string(&mut text);
        assert!(cut.is_err(), "a cut frame is no end");
    }
}
