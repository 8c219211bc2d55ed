//! What can be wrong with a capture file, and where.

use crate::{MAX_BLOCK, MAX_METADATA};

/// A capture file that cannot be read on, and the offset of the block or record that is at fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("capture file, byte {offset}: {problem}")]
pub struct Error {
    /// Bytes from the start of the file. All before it is whole.
    pub offset: u64,
    /// What is wrong.
    pub problem: Problem,
}

/// What is wrong at an offset.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// The first four bytes belong to no format known here.
    #[error("neither pcap nor pcapng: the file begins with {0:02x?}")]
    UnknownFormat(Vec<u8>),
    /// The file ends inside its header.
    #[error("truncated file header")]
    TruncatedHeader,
    /// The file ends inside a record or block.
    #[error("truncated: {what} needs {needed} bytes, {present} present")]
    Truncated {
        /// What was cut.
        what: &'static str,
        /// Bytes it should have.
        needed: u64,
        /// Bytes the file has from there.
        present: u64,
    },
    /// A frame larger than any capture program writes.
    #[error("a frame of {len} bytes; at most {most} are possible, so the file is damaged here")]
    TooLarge {
        /// The length it claims, in bytes.
        len: u32,
        /// The limit of its link type, in bytes.
        most: usize,
    },
    /// A block's length is no multiple of four, too small for the block, above [`MAX_BLOCK`], or differs
    /// at its end.
    #[error(
        "block of type {kind:#x} with wrong length {len}; a multiple of 4 that fits what the block holds, \
         the same at both ends and at most {MAX_BLOCK}, is allowed, so the file is damaged here"
    )]
    BlockLength {
        /// The block's type.
        kind: u32,
        /// The length it gives.
        len: u32,
    },
    /// A section that does not say its byte order.
    #[error("section header with byte-order magic {0:02x?}; 1a2b3c4d is allowed, in either order")]
    ByteOrder([u8; 4]),
    /// A format newer than the one known here.
    #[error("file format version {major}; {known} is known")]
    Version {
        /// The file's major version.
        major: u16,
        /// Ours.
        known: u16,
    },
    /// A packet of an interface that the section did not describe.
    #[error("packet of interface {id}, but its section describes {known}")]
    UnknownInterface {
        /// The number in the packet.
        id: u32,
        /// Interfaces described so far.
        known: u32,
    },
    /// More interfaces, or longer texts about them, than any capture has.
    #[error(
        "{0} interfaces described so far; all descriptions may take {MAX_METADATA} bytes of memory, \
         so the file is damaged or hostile"
    )]
    TooMuchMetadata(usize),
}

/// Oddities that are no reason to stop reading.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Warnings {
    /// Frames that claim to have been shorter than what was captured of them.
    pub captured_over_original: u64,
    /// Stamps whose fraction is a second or more.
    pub odd_stamps: u64,
    /// Blocks with options of the wrong length, text that is not UTF-8, or statistics of an unknown
    /// interface: what makes no sense was passed over.
    pub odd_blocks: u64,
}

impl Warnings {
    /// One line for each kind that was met; nothing if all was well.
    pub fn lines(&self) -> impl Iterator<Item = String> {
        [
            (
                "frames of which more was captured than they had",
                self.captured_over_original,
            ),
            (
                "stamps with a fraction of one second or more",
                self.odd_stamps,
            ),
            (
                "blocks with options that make no sense, which were passed over",
                self.odd_blocks,
            ),
        ]
        .into_iter()
        .filter(|(_, count)| *count > 0)
        .map(|(what, count)| format!("{what}: {count}"))
    }
}
