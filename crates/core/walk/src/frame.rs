//! The bytes of one packet from its field values.

use std::net::{Ipv4Addr, Ipv6Addr};

use wb_wire::{MacAddr, PktgenTag, checksum, ethertype, protocol};

/// The bit of an MPLS word that says: no label follows (RFC 3032 section 2.1).
pub(crate) const BOTTOM_OF_STACK: u32 = 0x100;

/// Addresses of the network header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Network {
    V4 {
        src: u32,
        dst: u32,
        tos: u8,
        id: u16,
    },
    V6 {
        src: Ipv6Addr,
        dst: Ipv6Addr,
        class: u8,
    },
}

/// Everything that differs between packets.
#[derive(Debug)]
pub(crate) struct Fields<'a> {
    pub(crate) dst_mac: MacAddr,
    pub(crate) src_mac: MacAddr,
    /// Tag control information of the outer tag.
    pub(crate) svlan: Option<u16>,
    /// Tag control information of the inner tag.
    pub(crate) vlan: Option<u16>,
    pub(crate) labels: &'a [u32],
    pub(crate) network: Network,
    pub(crate) sport: u16,
    pub(crate) dport: u16,
    pub(crate) tag: PktgenTag,
    pub(crate) udp_checksum: bool,
    /// Length of the whole frame; large enough for the headers and the tag.
    pub(crate) len: usize,
}

impl Fields<'_> {
    /// Writes the frame into `out`, whose content is replaced.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        out.clear();
        out.extend(self.dst_mac.0);
        out.extend(self.src_mac.0);
        let inner = match self.network {
            Network::V4 { .. } => ethertype::IPV4,
            Network::V6 { .. } => ethertype::IPV6,
        };
        let word = |out: &mut Vec<u8>, value: u16| out.extend(value.to_be_bytes());
        let tags = [self.svlan, self.vlan];
        // Outer and inner tag have the same type, 0x8100.
        for tci in tags.into_iter().flatten() {
            word(out, ethertype::VLAN);
            word(out, tci);
        }
        word(
            out,
            if self.labels.is_empty() {
                inner
            } else {
                ethertype::MPLS
            },
        );
        for (index, label) in self.labels.iter().enumerate() {
            let bottom = index + 1 == self.labels.len();
            let s = if bottom { BOTTOM_OF_STACK } else { 0 };
            out.extend((label & !BOTTOM_OF_STACK | s).to_be_bytes());
        }
        let ip = match self.network {
            Network::V4 { .. } => 20,
            Network::V6 { .. } => 40,
        };
        let datagram = self.len.saturating_sub(out.len() + ip).max(24);
        let pseudo = self.network_header(out, datagram);
        let udp = out.len();
        word(out, self.sport);
        word(out, self.dport);
        word(out, datagram as u16);
        word(out, 0);
        let mut tag = [0; PktgenTag::LEN];
        self.tag.write(&mut tag);
        out.extend(tag);
        out.resize(udp + datagram, 0);
        if self.udp_checksum {
            let sum = checksum::udp(checksum::finish(pseudo + checksum::sum(&out[udp..])));
            out[udp + 6..udp + 8].copy_from_slice(&sum.to_be_bytes());
        }
    }

    /// Writes the IP header and gives the sum of the pseudo header.
    fn network_header(&self, out: &mut Vec<u8>, datagram: usize) -> u64 {
        match self.network {
            Network::V4 { src, dst, tos, id } => {
                let start = out.len();
                out.extend([0x45, tos]);
                out.extend(((20 + datagram) as u16).to_be_bytes());
                out.extend(id.to_be_bytes());
                out.extend([0, 0, TTL, protocol::UDP, 0, 0]);
                out.extend(src.to_be_bytes());
                out.extend(dst.to_be_bytes());
                let sum = checksum::finish(checksum::sum(&out[start..]));
                out[start + 10..start + 12].copy_from_slice(&sum.to_be_bytes());
                let (src, dst) = (Ipv4Addr::from(src), Ipv4Addr::from(dst));
                checksum::pseudo_v4(src, dst, protocol::UDP, datagram as u16)
            }
            Network::V6 { src, dst, class } => {
                out.extend((6 << 28 | u32::from(class) << 20).to_be_bytes());
                out.extend((datagram as u16).to_be_bytes());
                out.extend([protocol::UDP, TTL]);
                out.extend(src.octets());
                out.extend(dst.octets());
                checksum::pseudo_v6(src, dst, protocol::UDP, datagram as u32)
            }
        }
    }
}

/// pktgen.c: time to live and hop limit.
const TTL: u8 = 32;
