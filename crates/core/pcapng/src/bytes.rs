//! Numbers in the byte order of the file's writer.

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
    pub(crate) fn i64(self, bytes: &[u8]) -> Option<i64> {
        let bytes = *bytes.first_chunk()?;
        Some(match self {
            Self::Little => i64::from_le_bytes(bytes),
            Self::Big => i64::from_be_bytes(bytes),
        })
    }
}

/// The next multiple of four.
pub(crate) const fn align4(len: usize) -> usize {
    (len + 3) & !3
}
