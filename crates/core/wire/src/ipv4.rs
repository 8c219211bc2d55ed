//! IPv4 header, RFC 791.

use std::net::Ipv4Addr;

use zerocopy::byteorder::{BE, U16};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::checksum;

/// Values of the protocol field of IPv4 and the next header field of IPv6: IANA protocol numbers.
pub mod protocol {
    /// ICMP for IPv4.
    pub const ICMP: u8 = 1;
    /// TCP.
    pub const TCP: u8 = 6;
    /// UDP.
    pub const UDP: u8 = 17;
    /// ICMP for IPv6.
    pub const ICMPV6: u8 = 58;
    /// RFC 3692 experimental: for payload without a protocol.
    pub const EXPERIMENTAL: u8 = 253;
}

/// Header without options as on the wire.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Ipv4View {
    /// Version (4 bits), header length in words of four bytes (4).
    pub version_ihl: u8,
    /// Differentiated services and congestion notification.
    pub tos: u8,
    /// Length of header and payload in bytes.
    pub total_len: U16<BE>,
    /// Identification.
    pub id: U16<BE>,
    /// Flags (3 bits), fragment offset in words of eight bytes (13).
    pub fragment: U16<BE>,
    /// Time to live.
    pub ttl: u8,
    /// Protocol of the payload.
    pub protocol: u8,
    /// Checksum over the header.
    pub checksum: U16<BE>,
    /// Source address.
    pub src: [u8; 4],
    /// Destination address.
    pub dst: [u8; 4],
}

view!(Ipv4View, 20);

impl Ipv4View {
    /// Length of the header with its options in bytes; below 20 if malformed.
    pub const fn header_len(&self) -> usize {
        (self.version_ihl & 0xf) as usize * 4
    }

    /// Returns true if this packet is a fragment.
    pub fn is_fragment(&self) -> bool {
        self.fragment.get() & 0x3fff != 0
    }
}

/// Fields of an IPv4 header without options that the sender chooses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv4 {
    /// Differentiated services and congestion notification.
    pub tos: u8,
    /// Identification.
    pub id: u16,
    /// Flags and fragment offset as on the wire: 0x4000 is don't fragment.
    pub fragment: u16,
    /// Time to live.
    pub ttl: u8,
    /// Source address.
    pub src: Ipv4Addr,
    /// Destination address.
    pub dst: Ipv4Addr,
}

impl Ipv4 {
    /// Creates a header with time to live 64 and all other fields 0.
    pub const fn new(src: Ipv4Addr, dst: Ipv4Addr) -> Self {
        Self {
            tos: 0,
            id: 0,
            fragment: 0,
            ttl: 64,
            src,
            dst,
        }
    }

    /// Encodes the header for `payload_len` bytes of `protocol`, with its checksum.
    pub fn emit(&self, protocol: u8, payload_len: usize) -> [u8; Ipv4View::LEN] {
        let total_len = u16::try_from(Ipv4View::LEN + payload_len).unwrap_or(u16::MAX);
        let mut view = Ipv4View {
            version_ihl: 0x45,
            tos: self.tos,
            total_len: total_len.into(),
            id: self.id.into(),
            fragment: self.fragment.into(),
            ttl: self.ttl,
            protocol,
            checksum: 0.into(),
            src: self.src.octets(),
            dst: self.dst.octets(),
        };
        view.checksum = checksum::finish(checksum::sum(view.as_bytes())).into();
        view.to_bytes()
    }

    /// Parses the header into its value, the protocol and the payload without padding; options are skipped. None if a
    /// length or the version is wrong. The checksum is not verified.
    pub fn parse(bytes: &[u8]) -> Option<(Self, u8, &[u8])> {
        let (view, _) = Ipv4View::split_from(bytes)?;
        if view.version_ihl >> 4 != 4 || view.header_len() < Ipv4View::LEN {
            return None;
        }
        let payload = bytes.get(view.header_len()..usize::from(view.total_len.get()))?;
        let ip = Self {
            tos: view.tos,
            id: view.id.get(),
            fragment: view.fragment.get(),
            ttl: view.ttl,
            src: view.src.into(),
            dst: view.dst.into(),
        };
        Some((ip, view.protocol, payload))
    }
}
