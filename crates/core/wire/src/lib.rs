//! Frame formats: header views and values, checksums, the test tag, neighbour answers.
//!
//! Does no I/O: bytes and time are arguments. Does not know ports, clocks or plans. Lengths are those in memory,
//! without the 4-byte FCS.
//!
//! Each header has one file with two types. A *view* ([`Ipv4View`]) is the layout on the wire, read or patched in
//! place. A *value* ([`Ipv4`]) contains the fields that a sender chooses. Fields that depend on the rest of the frame
//! (lengths, protocol numbers, checksums) are arguments of `emit` and results of `parse`. `parse` checks all lengths
//! and accepts any bytes without panic.
//!
//! ```
//! use wb_wire::{Stack, find_tag, Tag};
//!
//! let stack = Stack::udp4([198, 18, 1, 2], [198, 19, 1, 2], 49184, 7);
//! let (mut frame, layout) = stack.build_with_layout(60);
//! Tag { flow: 3, sequence: 0, time_ns: 0 }.write(frame[layout.payload..].first_chunk_mut().unwrap());
//! assert_eq!(find_tag(&frame).unwrap().0, layout.payload);
//! ```

#![forbid(unsafe_code)]

/// Implements the conversions of a wire layout: `LEN`, `split_from`, `split_from_mut`, `to_bytes`.
macro_rules! view {
    ($name:ident, $len:literal) => {
        impl $name {
            /// Length on the wire in bytes.
            pub const LEN: usize = $len;

            /// Returns the fixed part of the header and all bytes behind it; no field is checked.
            pub fn split_from(bytes: &[u8]) -> Option<(&Self, &[u8])> {
                zerocopy::FromBytes::ref_from_prefix(bytes).ok()
            }

            /// Like [`Self::split_from`], for patching fields in place.
            pub fn split_from_mut(bytes: &mut [u8]) -> Option<(&mut Self, &mut [u8])> {
                zerocopy::FromBytes::mut_from_prefix(bytes).ok()
            }

            /// Encodes the header.
            pub fn to_bytes(self) -> [u8; $len] {
                zerocopy::transmute!(self)
            }
        }
    };
}

mod addresses;
mod arp;
pub mod checksum;
mod derived;
mod ethernet;
mod extension;
mod headers;
mod icmp;
mod ipv4;
mod ipv6;
mod mac;
mod mpls;
mod neighbour;
mod random;
mod stack;
mod tag;
mod tcp;
mod udp;
mod vlan;

pub use addresses::{Unclear, address_fields, address_in, addresses};
pub use arp::{Arp, ArpOperation, ArpView};
pub use derived::{ChecksumField, derive};
pub use ethernet::{Ethernet, EthernetView, ethertype};
pub use extension::Ipv6Extension;
pub use headers::{find_tag, headers_end};
pub use icmp::{Echo, IcmpVersion, IcmpView, Neighbour, NeighbourView};
pub use ipv4::{Ipv4, Ipv4View, protocol};
pub use ipv6::{Ipv6, Ipv6View, multicast_mac, solicited_node};
pub use mac::{MacAddr, ParseMacError};
pub use mpls::{LabelView, MplsLabel};
pub use neighbour::{AddrSet, NeighbourResponder, arp_request, neighbour_solicitation};
pub use random::SplitMix64;
pub use stack::{Fill, NetworkHeader, Stack, StackLayout, TransportHeader};
pub use tag::{PktgenTag, PktgenTime, Tag, TagFormat, is_tag_at, tag_at};
pub use tcp::{Tcp, TcpView, tcp_flags};
pub use udp::{Udp, UdpView};
pub use vlan::{Vlan, VlanView};

/// Minimum length of an Ethernet frame without FCS: IEEE 802.3 minFrameSize 64.
pub const MIN_LEN: usize = 60;
