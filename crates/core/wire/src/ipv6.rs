//! IPv6 header, RFC 8200, and the multicast addresses of neighbour discovery.

use std::net::Ipv6Addr;

use zerocopy::byteorder::{BE, U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::MacAddr;

/// Header as on the wire.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Ipv6View {
    /// Version (4 bits), traffic class (8), flow label (20).
    pub version_class_flow: U32<BE>,
    /// Length of the payload in bytes.
    pub payload_len: U16<BE>,
    /// Protocol of the payload, or type of the next extension header.
    pub next_header: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// Source address.
    pub src: [u8; 16],
    /// Destination address.
    pub dst: [u8; 16],
}

view!(Ipv6View, 40);

/// Fields of an IPv6 header that the sender chooses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv6 {
    /// Differentiated services and congestion notification.
    pub class: u8,
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// Hop limit.
    pub hop_limit: u8,
    /// Source address.
    pub src: Ipv6Addr,
    /// Destination address.
    pub dst: Ipv6Addr,
}

impl Ipv6 {
    /// Creates a header with hop limit 64 and all other fields 0.
    pub const fn new(src: Ipv6Addr, dst: Ipv6Addr) -> Self {
        Self {
            class: 0,
            flow_label: 0,
            hop_limit: 64,
            src,
            dst,
        }
    }

    /// Encodes the header for `payload_len` bytes of `next_header`.
    pub fn emit(&self, next_header: u8, payload_len: usize) -> [u8; Ipv6View::LEN] {
        Ipv6View {
            version_class_flow: (6 << 28
                | u32::from(self.class) << 20
                | (self.flow_label & 0xf_ffff))
                .into(),
            payload_len: u16::try_from(payload_len).unwrap_or(u16::MAX).into(),
            next_header,
            hop_limit: self.hop_limit,
            src: self.src.octets(),
            dst: self.dst.octets(),
        }
        .to_bytes()
    }

    /// Parses the header into its value, the next header and the payload without padding. None if the length or the
    /// version is wrong. Extension headers remain in the payload.
    pub fn parse(bytes: &[u8]) -> Option<(Self, u8, &[u8])> {
        let (view, rest) = Ipv6View::split_from(bytes)?;
        let word = view.version_class_flow.get();
        if word >> 28 != 6 {
            return None;
        }
        let payload = rest.get(..usize::from(view.payload_len.get()))?;
        let ip = Self {
            class: (word >> 20) as u8,
            flow_label: word & 0xf_ffff,
            hop_limit: view.hop_limit,
            src: view.src.into(),
            dst: view.dst.into(),
        };
        Some((ip, view.next_header, payload))
    }
}

/// Solicited-node multicast address of `address`: RFC 4291 section 2.7.1.
pub fn solicited_node(address: Ipv6Addr) -> Ipv6Addr {
    let [.., a, b, c] = address.octets();
    Ipv6Addr::from([0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, a, b, c])
}

/// Ethernet address of an IPv6 multicast group: RFC 2464 section 7.
pub fn multicast_mac(group: Ipv6Addr) -> MacAddr {
    let [.., a, b, c, d] = group.octets();
    MacAddr([0x33, 0x33, a, b, c, d])
}
