//! Ethernet II header.

use zerocopy::byteorder::{BE, U16};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::MacAddr;

/// Values of the type field: IEEE 802 numbers.
pub mod ethertype {
    /// Internet protocol version 4.
    pub const IPV4: u16 = 0x0800;
    /// Address resolution.
    pub const ARP: u16 = 0x0806;
    /// IEEE 802.1Q customer tag.
    pub const VLAN: u16 = 0x8100;
    /// IEEE 802.1ad service tag.
    pub const QINQ: u16 = 0x88a8;
    /// Service tag that some devices used before 802.1ad.
    pub const OLD_QINQ: u16 = 0x9100;
    /// Internet protocol version 6.
    pub const IPV6: u16 = 0x86dd;
    /// MPLS with a downstream-assigned label.
    pub const MPLS: u16 = 0x8847;
    /// MPLS with an upstream-assigned label.
    pub const MPLS_MULTICAST: u16 = 0x8848;
    /// IEEE Std 802 local experimental type 1: for payload without a protocol.
    pub const EXPERIMENTAL: u16 = 0x88b5;
}

/// Header as on the wire.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct EthernetView {
    /// Destination address.
    pub dst: [u8; 6],
    /// Source address.
    pub src: [u8; 6],
    /// Type of the payload.
    pub ethertype: U16<BE>,
}

view!(EthernetView, 14);

/// Fields of an Ethernet header that the sender chooses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ethernet {
    /// Destination address.
    pub dst: MacAddr,
    /// Source address.
    pub src: MacAddr,
}

impl Ethernet {
    /// Encodes the header for a payload of type `ethertype`.
    pub fn emit(&self, ethertype: u16) -> [u8; EthernetView::LEN] {
        EthernetView {
            dst: self.dst.0,
            src: self.src.0,
            ethertype: ethertype.into(),
        }
        .to_bytes()
    }

    /// Parses the header into its value, the ethertype and the bytes behind it.
    pub fn parse(bytes: &[u8]) -> Option<(Self, u16, &[u8])> {
        let (view, rest) = EthernetView::split_from(bytes)?;
        Some((
            Self {
                dst: MacAddr(view.dst),
                src: MacAddr(view.src),
            },
            view.ethertype.get(),
            rest,
        ))
    }
}
