//! Errors in a capture file, and their offsets.

use crate::{MAX_BLOCK, MAX_METADATA};

/// Error in a capture file, with the offset of the faulty block or record.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("capture file, byte {offset}: {problem}")]
pub struct Error {
    /// Offset in bytes from the start of the file. Everything before is intact.
    pub offset: u64,
    /// Kind of error.
    pub problem: FormatProblem,
}

/// Kinds of errors.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormatProblem {
    /// The first four bytes belong to no known format.
    #[error("not a pcap or pcapng file: it begins with {0:02x?}")]
    UnknownFormat(Vec<u8>),
    /// The file ends inside its header.
    #[error("truncated file header")]
    TruncatedHeader,
    /// The file ends inside a record or block.
    #[error("truncated: {what} needs {needed} bytes, {present} present")]
    Truncated {
        /// Name of the truncated part.
        what: &'static str,
        /// Its length in bytes.
        needed: u64,
        /// Bytes left in the file.
        present: u64,
    },
    /// A frame larger than any capture program writes.
    #[error("damaged file: frame of {len} bytes (at most {most} are possible)")]
    TooLarge {
        /// Length according to the file, in bytes.
        len: u32,
        /// Limit of the link type, in bytes.
        most: usize,
    },
    /// A block's length is not a multiple of four, is too small for the block or above [`MAX_BLOCK`], or differs from
    /// the length at its end.
    #[error(
        "damaged file: block of type {kind:#x} with invalid length {len} (a multiple of 4 up to {MAX_BLOCK} that \
         fits the content, the same at both ends)"
    )]
    BlockLength {
        /// Type of the block.
        kind: u32,
        /// Length according to the file.
        len: u32,
    },
    /// A section without a valid byte order.
    #[error("section header with invalid byte-order magic {0:02x?} (1a2b3c4d or 4d3c2b1a)")]
    ByteOrder([u8; 4]),
    /// A format version that is too new.
    #[error("unsupported file format version {major}; version {known} is supported")]
    Version {
        /// Major version of the file.
        major: u16,
        /// Supported version.
        known: u16,
    },
    /// A packet of an interface that is not described in its section.
    #[error("packet of interface {id}; interfaces that the section describes: {known}")]
    UnknownInterface {
        /// Interface number in the packet.
        id: u32,
        /// Number of interfaces described so far.
        known: u32,
    },
    /// Too many interfaces, or too long texts about them.
    #[error(
        "damaged or hostile file: the descriptions of {0} interfaces exceed {MAX_METADATA} bytes of memory"
    )]
    TooMuchMetadata(usize),
}

/// Counts of anomalies that do not prevent further reading.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Warnings {
    /// Frames with an original length below the captured length.
    pub captured_over_original: u64,
    /// Timestamps with a fraction of a second or more.
    pub odd_stamps: u64,
    /// Blocks with options of the wrong length, text that is not UTF-8, or statistics of an unknown interface. The
    /// invalid parts are skipped.
    pub odd_blocks: u64,
}

impl Warnings {
    /// Returns one line for each kind of anomaly found.
    pub fn lines(&self) -> impl Iterator<Item = String> {
        [
            (
                "frames with a captured length above their original length",
                self.captured_over_original,
            ),
            (
                "timestamps with an invalid fraction (one second or more)",
                self.odd_stamps,
            ),
            (
                "blocks with invalid options, which were skipped",
                self.odd_blocks,
            ),
        ]
        .into_iter()
        .filter(|(_, count)| *count > 0)
        .map(|(what, count)| format!("{what}: {count}"))
    }
}
