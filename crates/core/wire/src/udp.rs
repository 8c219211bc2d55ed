//! The UDP header, RFC 768.

use zerocopy::byteorder::{BE, U16};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The header as it lies on the wire.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct UdpView {
    /// Source port.
    pub sport: U16<BE>,
    /// Destination port.
    pub dport: U16<BE>,
    /// Bytes of header and payload.
    pub len: U16<BE>,
    /// 0 is no checksum.
    pub checksum: U16<BE>,
}

view!(UdpView, 8);

/// What a sender chooses of a UDP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Udp {
    /// Source port.
    pub sport: u16,
    /// Destination port.
    pub dport: u16,
    /// Whether the checksum is used. IPv6 receivers discard datagrams without (RFC 8200 section 8.1).
    pub checksum: bool,
}

impl Udp {
    /// With a checksum.
    pub const fn new(sport: u16, dport: u16) -> Self {
        Self {
            sport,
            dport,
            checksum: true,
        }
    }

    /// The header in front of `payload_len` bytes, with this checksum.
    pub fn emit(&self, payload_len: usize, checksum: u16) -> [u8; UdpView::LEN] {
        UdpView {
            sport: self.sport.into(),
            dport: self.dport.into(),
            len: u16::try_from(UdpView::LEN + payload_len)
                .unwrap_or(u16::MAX)
                .into(),
            checksum: checksum.into(),
        }
        .to_bytes()
    }

    /// The header and its payload. None if a length is wrong. The checksum is not verified.
    pub fn parse(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (view, _) = UdpView::of(bytes)?;
        let payload = bytes.get(UdpView::LEN..usize::from(view.len.get()))?;
        Some((
            Self {
                sport: view.sport.get(),
                dport: view.dport.get(),
                checksum: view.checksum.get() != 0,
            },
            payload,
        ))
    }
}
