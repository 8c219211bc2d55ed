//! Numbers in the byte order of the file's writer, and the buffers that blocks are appended to.

/// The byte order of a file or section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    Little,
    Big,
}

impl Order {
    /// The number that `bytes` begin with.
    pub(crate) fn u16(self, bytes: &[u8]) -> Option<u16> {
        let bytes = *bytes.first_chunk()?;
        Some(match self {
            Self::Little => u16::from_le_bytes(bytes),
            Self::Big => u16::from_be_bytes(bytes),
        })
    }

    /// The number that `bytes` begin with.
    pub(crate) fn u32(self, bytes: &[u8]) -> Option<u32> {
        let bytes = *bytes.first_chunk()?;
        Some(match self {
            Self::Little => u32::from_le_bytes(bytes),
            Self::Big => u32::from_be_bytes(bytes),
        })
    }

    /// The number that `bytes` begin with.
    pub(crate) fn u64(self, bytes: &[u8]) -> Option<u64> {
        let bytes = *bytes.first_chunk()?;
        Some(match self {
            Self::Little => u64::from_le_bytes(bytes),
            Self::Big => u64::from_be_bytes(bytes),
        })
    }

    /// A time as blocks have it: the upper half stands first in either byte order.
    pub(crate) fn time(self, bytes: &[u8]) -> Option<u64> {
        let (high, low) = (self.u32(bytes)?, self.u32(bytes.get(4..)?)?);
        Some(u64::from(high) << 32 | u64::from(low))
    }
}

/// The next multiple of four.
pub(crate) const fn align4(len: usize) -> usize {
    len.next_multiple_of(4)
}

/// Where blocks and records are appended: a growing `Vec<u8>`, or a [`Fixed`] slice.
pub trait Sink {
    /// Sees to room for so many bytes more. False if there is none; then nothing is to be put.
    fn make_room(&mut self, len: usize) -> bool;

    /// Appends `bytes`, for which there is room.
    fn put(&mut self, bytes: &[u8]);
}

impl Sink for Vec<u8> {
    fn make_room(&mut self, len: usize) -> bool {
        self.reserve(len);
        true
    }

    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

/// A slice that is filled from its start and never grows.
///
/// What does not fit is left out whole: the writers then return false.
#[derive(Debug)]
pub struct Fixed<'a> {
    slice: &'a mut [u8],
    len: usize,
}

impl<'a> Fixed<'a> {
    /// An empty buffer in this memory.
    pub fn new(slice: &'a mut [u8]) -> Self {
        Self { slice, len: 0 }
    }

    /// Bytes that are filled.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether nothing is filled.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes that still fit.
    pub fn room(&self) -> usize {
        self.slice.len() - self.len
    }

    /// What is filled.
    pub fn filled(&self) -> &[u8] {
        &self.slice[..self.len]
    }
}

impl Sink for Fixed<'_> {
    fn make_room(&mut self, len: usize) -> bool {
        len <= self.room()
    }

    /// # Panics
    /// If there is no room.
    fn put(&mut self, bytes: &[u8]) {
        self.slice[self.len..][..bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }
}

/// Counts what would be written.
#[derive(Debug, Default)]
pub(crate) struct Measure(pub(crate) usize);

impl Sink for Measure {
    fn make_room(&mut self, _: usize) -> bool {
        true
    }

    fn put(&mut self, bytes: &[u8]) {
        self.0 += bytes.len();
    }
}
