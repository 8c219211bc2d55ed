//! MPLS label stack entries, RFC 3032.

use zerocopy::byteorder::{BE, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Entry as on the wire.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct LabelView {
    /// Label (20 bits), traffic class (3), bottom of stack (1), time to live (8).
    pub word: U32<BE>,
}

view!(LabelView, 4);

impl LabelView {
    /// Bottom-of-stack bit of an entry.
    pub const BOTTOM: u32 = 0x100;
}

/// MPLS label. The bottom-of-stack bit follows from its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MplsLabel {
    /// Label, 20 bits.
    pub label: u32,
    /// Traffic class, 0 to 7.
    pub class: u8,
    /// Time to live.
    pub ttl: u8,
}

impl MplsLabel {
    /// Creates a label with class 0 and a time to live of 64.
    pub const fn new(label: u32) -> Self {
        Self {
            label,
            class: 0,
            ttl: 64,
        }
    }

    /// Decodes an entry; the bottom bit is dropped.
    pub const fn from_word(word: u32) -> Self {
        Self {
            label: word >> 12,
            class: (word >> 9) as u8 & 7,
            ttl: word as u8,
        }
    }

    /// Encodes the entry with the given bottom bit.
    pub fn emit(&self, bottom: bool) -> [u8; LabelView::LEN] {
        let word = (self.label & 0xf_ffff) << 12
            | u32::from(self.class & 7) << 9
            | u32::from(bottom) << 8
            | u32::from(self.ttl);
        LabelView { word: word.into() }.to_bytes()
    }

    /// Parses an entry into its label, the bottom bit and the bytes behind it.
    pub fn parse(bytes: &[u8]) -> Option<(Self, bool, &[u8])> {
        let (view, rest) = LabelView::split_from(bytes)?;
        let word = view.word.get();
        Some((Self::from_word(word), word & LabelView::BOTTOM != 0, rest))
    }
}
