//! UDP header, RFC 768.

use zerocopy::byteorder::{BE, U16};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Header as on the wire.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct UdpView {
    /// Source port.
    pub sport: U16<BE>,
    /// Destination port.
    pub dport: U16<BE>,
    /// Length of header and payload in bytes.
    pub len: U16<BE>,
    /// Checksum; 0 if unused.
    pub checksum: U16<BE>,
}

view!(UdpView, 8);

/// Fields of a UDP header that the sender chooses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Udp {
    /// Source port.
    pub sport: u16,
    /// Destination port.
    pub dport: u16,
    /// True if the checksum is used. IPv6 receivers discard datagrams without a checksum (RFC 8200 section 8.1).
    pub checksum: bool,
}

impl Udp {
    /// Creates a header with a checksum.
    pub const fn new(sport: u16, dport: u16) -> Self {
        Self {
            sport,
            dport,
            checksum: true,
        }
    }

    /// Encodes the header for `payload_len` bytes, with this checksum.
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

    /// Parses the header and returns its payload. None if a length is wrong. The checksum is not verified.
    pub fn parse(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (view, _) = UdpView::split_from(bytes)?;
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
