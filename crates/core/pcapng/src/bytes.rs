//! Integers in the byte order of the file, and the buffers to which blocks are appended.

/// Byte order of a file or section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ByteOrder {
    Little,
    Big,
}

impl ByteOrder {
    /// Reads an integer at the start of `bytes`.
    pub(crate) fn u16(self, bytes: &[u8]) -> Option<u16> {
        let bytes = *bytes.first_chunk()?;
        Some(match self {
            Self::Little => u16::from_le_bytes(bytes),
            Self::Big => u16::from_be_bytes(bytes),
        })
    }

    /// Reads an integer at the start of `bytes`.
    pub(crate) fn u32(self, bytes: &[u8]) -> Option<u32> {
        let bytes = *bytes.first_chunk()?;
        Some(match self {
            Self::Little => u32::from_le_bytes(bytes),
            Self::Big => u32::from_be_bytes(bytes),
        })
    }

    /// Reads an integer at the start of `bytes`.
    pub(crate) fn u64(self, bytes: &[u8]) -> Option<u64> {
        let bytes = *bytes.first_chunk()?;
        Some(match self {
            Self::Little => u64::from_le_bytes(bytes),
            Self::Big => u64::from_be_bytes(bytes),
        })
    }

    /// Reads a timestamp of a block: the upper half comes first in either byte order.
    pub(crate) fn time(self, bytes: &[u8]) -> Option<u64> {
        let (high, low) = (self.u32(bytes)?, self.u32(bytes.get(4..)?)?);
        Some(u64::from(high) << 32 | u64::from(low))
    }
}

/// Rounds up to a multiple of four.
pub(crate) const fn align4(len: usize) -> usize {
    len.next_multiple_of(4)
}

/// Destination of blocks and records: a growing `Vec<u8>`, or a [`Fixed`] slice.
pub trait ByteSink {
    /// Makes room for `len` more bytes. Returns false if there is none; nothing may be appended then.
    fn make_room(&mut self, len: usize) -> bool;

    /// Appends `bytes`, for which there is room.
    fn append(&mut self, bytes: &[u8]);
}

impl ByteSink for Vec<u8> {
    fn make_room(&mut self, len: usize) -> bool {
        self.reserve(len);
        true
    }

    fn append(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

/// Slice that is filled from its start and never grows.
///
/// A block that does not fit is left out completely, and the writer returns false.
#[derive(Debug)]
pub struct Fixed<'a> {
    slice: &'a mut [u8],
    len: usize,
}

impl<'a> Fixed<'a> {
    /// Creates an empty buffer in this memory.
    pub fn new(slice: &'a mut [u8]) -> Self {
        Self { slice, len: 0 }
    }

    /// Number of bytes filled.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if the buffer is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Number of bytes that still fit.
    pub fn room(&self) -> usize {
        self.slice.len() - self.len
    }

    /// Returns the filled part.
    pub fn filled(&self) -> &[u8] {
        &self.slice[..self.len]
    }
}

impl ByteSink for Fixed<'_> {
    fn make_room(&mut self, len: usize) -> bool {
        len <= self.room()
    }

    /// # Panics
    /// There is no room.
    fn append(&mut self, bytes: &[u8]) {
        self.slice[self.len..][..bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }
}

/// Sink that only counts bytes.
#[derive(Debug, Default)]
pub(crate) struct Measure(pub(crate) usize);

impl ByteSink for Measure {
    fn make_room(&mut self, _: usize) -> bool {
        true
    }

    fn append(&mut self, bytes: &[u8]) {
        self.0 += bytes.len();
    }
}
