//! Builds the bytes of one packet from its field values.

use std::net::{Ipv4Addr, Ipv6Addr};

use wb_wire::{MacAddr, PktgenTag, checksum, ethertype, protocol};

/// Bottom-of-stack bit of an MPLS label stack entry (RFC 3032 section 2.1).
pub(crate) const BOTTOM_OF_STACK: u32 = 0x100;

/// Addresses of the network header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NetworkFields {
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

/// All values that differ between packets.
#[derive(Debug)]
pub(crate) struct Fields<'a> {
    pub(crate) dst_mac: MacAddr,
    pub(crate) src_mac: MacAddr,
    /// Tag control information of the outer tag.
    pub(crate) svlan: Option<u16>,
    /// Tag control information of the inner tag.
    pub(crate) vlan: Option<u16>,
    pub(crate) labels: &'a [u32],
    pub(crate) network: NetworkFields,
    pub(crate) sport: u16,
    pub(crate) dport: u16,
    pub(crate) tag: PktgenTag,
    pub(crate) udp_checksum: bool,
    /// Length of the whole frame; at least headers and tag.
    pub(crate) len: usize,
}

/// Offsets of the headers in a frame, and the constant part of the checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrameLayout {
    /// Offset of the network header.
    pub(crate) ip: usize,
    /// Offset of the UDP header.
    pub(crate) udp: usize,
    /// Sum of the constant IPv4 header fields: all except length, identification and addresses.
    header_sum: u64,
}

impl Fields<'_> {
    /// Writes the frame into `out`, replacing its content.
    pub(crate) fn write(&self, out: &mut Vec<u8>) -> FrameLayout {
        out.clear();
        out.extend(self.dst_mac.0);
        out.extend(self.src_mac.0);
        let inner = match self.network {
            NetworkFields::V4 { .. } => ethertype::IPV4,
            NetworkFields::V6 { .. } => ethertype::IPV6,
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
            NetworkFields::V4 { .. } => 20,
            NetworkFields::V6 { .. } => 40,
        };
        let datagram = self.len.saturating_sub(out.len() + ip).max(24);
        let start = out.len();
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
        FrameLayout {
            ip: start,
            udp,
            header_sum: match self.network {
                NetworkFields::V4 { tos, .. } => checksum::sum(&[0x45, tos, TTL, protocol::UDP]),
                NetworkFields::V6 { .. } => 0,
            },
        }
    }

    /// Turns the frame that was written with `layout` into this one. Tags, labels, type of service and the use of a
    /// checksum must be the same; all other fields may differ. At full speed this saves about 260 instructions per
    /// frame compared with [`write`](Self::write) (`examples/device_path.rs` of the traffic engine): it lays out no
    /// headers, and does not sum the fill, which is all zeros.
    pub(crate) fn patch(&self, layout: &FrameLayout, out: &mut Vec<u8>) {
        let &FrameLayout {
            ip,
            udp,
            header_sum,
        } = layout;
        let len = self.len.max(udp + 8 + PktgenTag::LEN);
        if out.len() != len {
            out.resize(len, 0);
        }
        let (link, packet) = out.split_at_mut(ip);
        let (network, datagram) = packet.split_at_mut(udp - ip);
        let datagram_len = datagram.len() as u16;
        if let Some(macs) = link.first_chunk_mut::<12>() {
            macs[..6].copy_from_slice(&self.dst_mac.0);
            macs[6..].copy_from_slice(&self.src_mac.0);
        }
        let addresses = match self.network {
            NetworkFields::V4 { src, dst, id, .. } => {
                let Some(header) = network.first_chunk_mut::<20>() else {
                    return;
                };
                let len = datagram_len.wrapping_add(20);
                let addresses = words(src) + words(dst);
                let sum = header_sum + u64::from(len) + u64::from(id) + addresses;
                header[2..4].copy_from_slice(&len.to_be_bytes());
                header[4..6].copy_from_slice(&id.to_be_bytes());
                header[10..12].copy_from_slice(&checksum::finish(sum).to_be_bytes());
                header[12..16].copy_from_slice(&src.to_be_bytes());
                header[16..20].copy_from_slice(&dst.to_be_bytes());
                addresses
            }
            NetworkFields::V6 { src, dst, .. } => {
                let Some(header) = network.first_chunk_mut::<40>() else {
                    return;
                };
                header[4..6].copy_from_slice(&datagram_len.to_be_bytes());
                header[8..24].copy_from_slice(&src.octets());
                header[24..40].copy_from_slice(&dst.octets());
                if self.udp_checksum {
                    checksum::sum(&header[8..40])
                } else {
                    0
                }
            }
        };
        let Some(udp) = datagram.first_chunk_mut::<{ 8 + PktgenTag::LEN }>() else {
            return;
        };
        udp[..2].copy_from_slice(&self.sport.to_be_bytes());
        udp[2..4].copy_from_slice(&self.dport.to_be_bytes());
        udp[4..6].copy_from_slice(&datagram_len.to_be_bytes());
        udp[12..16].copy_from_slice(&self.tag.sequence.to_be_bytes());
        udp[16..20].copy_from_slice(&self.tag.time[0].to_be_bytes());
        udp[20..24].copy_from_slice(&self.tag.time[1].to_be_bytes());
        if self.udp_checksum {
            let tag = words(PktgenTag::MAGIC)
                + words(self.tag.sequence)
                + words(self.tag.time[0])
                + words(self.tag.time[1]);
            let sum = addresses
                + u64::from(protocol::UDP)
                + 2 * u64::from(datagram_len)
                + u64::from(self.sport)
                + u64::from(self.dport)
                + tag;
            let sum = checksum::udp(checksum::finish(sum));
            udp[6..8].copy_from_slice(&sum.to_be_bytes());
        }
    }

    /// Writes the IP header and returns the sum of the pseudo header.
    fn network_header(&self, out: &mut Vec<u8>, datagram: usize) -> u64 {
        match self.network {
            NetworkFields::V4 { src, dst, tos, id } => {
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
            NetworkFields::V6 { src, dst, class } => {
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

/// Returns the sum of the two 16-bit words.
const fn words(value: u32) -> u64 {
    (value >> 16) as u64 + (value & 0xffff) as u64
}

/// pktgen.c: time to live, and hop limit.
const TTL: u8 = 32;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn fields(labels: &[u32], tags: (Option<u16>, Option<u16>)) -> Fields<'_> {
        Fields {
            dst_mac: MacAddr([2; 6]),
            src_mac: MacAddr([4; 6]),
            svlan: tags.0,
            vlan: tags.1,
            labels,
            network: NetworkFields::V4 {
                src: 0x0a00_0001,
                dst: 0x0a00_0002,
                tos: 0x28,
                id: 0,
            },
            sport: 9,
            dport: 9,
            tag: PktgenTag {
                sequence: 1,
                time: [0, 0],
            },
            udp_checksum: false,
            len: 60,
        }
    }

    proptest! {
        #[test]
        fn patched_is_as_written(
            (labels, vlan, is_v6) in
                (prop::collection::vec(any::<u32>(), 0..4), any::<Option<u16>>(), any::<bool>()),
            udp_checksum: bool,
            packets in prop::collection::vec(
                (any::<[u8; 12]>(), any::<[u32; 8]>(), any::<u16>(), any::<[u16; 2]>(), 0..200usize),
                1..5,
            ),
        ) {
            let mut layout = None;
            let mut patched = Vec::new();
            for (macs, words, id, ports, more) in packets {
                let mut fields = fields(&labels, (None, vlan));
                fields.dst_mac.0.copy_from_slice(&macs[..6]);
                fields.src_mac.0.copy_from_slice(&macs[6..]);
                let wide = |i: usize| {
                    Ipv6Addr::from_bits(u128::from(words[i]) << 64 | u128::from(words[i + 1]))
                };
                fields.network = if is_v6 {
                    NetworkFields::V6 { src: wide(0), dst: wide(2), class: 0xb8 }
                } else {
                    NetworkFields::V4 { src: words[0], dst: words[2], tos: 7, id }
                };
                (fields.sport, fields.dport) = (ports[0], ports[1]);
                fields.tag = PktgenTag { sequence: words[4], time: [words[5], words[6]] };
                fields.udp_checksum = udp_checksum;
                fields.len = 42 + more;
                let mut written = Vec::new();
                let new = fields.write(&mut written);
                match &layout {
                    None => {
                        patched.clone_from(&written);
                        layout = Some(new);
                    }
                    Some(layout) => fields.patch(layout, &mut patched),
                }
                prop_assert_eq!(&patched, &written);
            }
        }
    }
}
