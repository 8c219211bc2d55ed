//! Frame as a list of layers, which can be built at a given length.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::checksum::{self, pseudo_v4, pseudo_v6};
use crate::icmp::IcmpVersion;
use crate::{
    Arp, ArpView, Echo, Ethernet, EthernetView, IcmpView, Ipv4, Ipv4View, Ipv6, Ipv6Extension,
    Ipv6View, LabelView, MplsLabel, SplitMix64, Tcp, TcpView, Udp, UdpView, Vlan, VlanView,
    ethertype, protocol,
};

/// Layers of a frame. [`build`](Self::build) fills in all derived fields: types, lengths, checksums, the bottom of the
/// label stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stack {
    /// Ethernet addresses.
    pub ethernet: Ethernet,
    /// VLAN tags, outer first.
    pub vlans: Vec<Vlan>,
    /// MPLS labels, outer first.
    pub mpls: Vec<MplsLabel>,
    /// Network layer, or its replacement.
    pub network: NetworkHeader,
    /// Extension headers between IPv6 and its payload, in this order; ignored without IPv6.
    pub extensions: Vec<Ipv6Extension>,
    /// Payload behind the last header.
    pub fill: Fill,
}

/// Layer behind Ethernet, VLAN tags and labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetworkHeader {
    /// Payload with this ethertype (which labels leave no room for).
    None {
        /// Type field.
        ethertype: u16,
    },
    /// ARP message.
    Arp(Arp),
    /// IPv4 and its payload.
    Ipv4(Ipv4, TransportHeader),
    /// IPv6 and its payload.
    Ipv6(Ipv6, TransportHeader),
}

/// Layer behind IP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransportHeader {
    /// UDP datagram.
    Udp(Udp),
    /// TCP segment without a connection.
    Tcp(Tcp),
    /// ICMP or ICMPv6 echo, depending on the version of IP.
    Echo(Echo),
    /// Payload with this protocol number.
    Raw(u8),
}

/// Payload bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Fill {
    /// All zeros.
    #[default]
    Zero,
    /// This byte, repeated.
    Byte(u8),
    /// 00 01 02 … ff 00 …: RFC 2544 appendix C.
    Counting,
    /// Pseudo-random bytes from a seed.
    Random(u64),
    /// These bytes, repeated; zeros if empty.
    Repeat(Vec<u8>),
}

/// Offsets of the headers of a built frame, from its first byte.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StackLayout {
    /// Ethernet header: 0.
    pub eth: usize,
    /// Control information of each VLAN tag, outer first.
    pub vlans: Vec<usize>,
    /// Each label, outer first.
    pub mpls: Vec<usize>,
    /// ARP message.
    pub arp: Option<usize>,
    /// IP header.
    pub ip: Option<usize>,
    /// Protocol number of the IP payload: in the IP header or in the last extension header.
    pub protocol: Option<usize>,
    /// UDP, TCP or ICMP header.
    pub l4: Option<usize>,
    /// First byte behind the last header: position of the test tag.
    pub payload: usize,
    /// End of the IP packet, or of a frame without IP. Only frames with more than 65,535 bytes of IP have padding.
    pub end: usize,
    /// IPv4 checksum field.
    pub ip_checksum: Option<usize>,
    /// Layer-4 checksum field, if in use.
    pub l4_checksum: Option<usize>,
}

impl StackLayout {
    /// Sum of the pseudo header covered by the layer-4 checksum of this frame; None without layer 4.
    pub fn pseudo(&self, frame: &[u8]) -> Option<u64> {
        let (ip, l4) = (self.ip?, self.l4?);
        let len = self.end.checked_sub(l4)?;
        match frame.get(ip)? >> 4 {
            4 => {
                let (view, _) = Ipv4View::split_from(&frame[ip..])?;
                let covered = view.protocol != protocol::ICMP;
                Some(if covered {
                    pseudo_v4(view.src.into(), view.dst.into(), view.protocol, len as u16)
                } else {
                    0
                })
            }
            _ => {
                let (view, _) = Ipv6View::split_from(&frame[ip..])?;
                Some(pseudo_v6(
                    view.src.into(),
                    view.dst.into(),
                    self.protocol(frame)?,
                    len as u32,
                ))
            }
        }
    }

    /// Protocol number of the IP payload in the frame, behind all extension headers.
    pub fn protocol(&self, frame: &[u8]) -> Option<u8> {
        frame.get(self.protocol?).copied()
    }

    /// Recomputes and writes the layer-4 checksum, if in use.
    pub fn write_l4_checksum(&self, frame: &mut [u8]) {
        let (Some(l4), Some(at)) = (self.l4, self.l4_checksum) else {
            return;
        };
        let Some(pseudo) = self.pseudo(frame) else {
            return;
        };
        frame[at..at + 2].fill(0);
        let mut sum = checksum::finish(pseudo + checksum::sum(&frame[l4..self.end]));
        if self.protocol(frame) == Some(protocol::UDP) {
            sum = checksum::udp(sum);
        }
        frame[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    }
}

impl Stack {
    /// Creates UDP over IPv4 with zero Ethernet addresses, no tags and a zero payload.
    pub fn udp4(
        src: impl Into<Ipv4Addr>,
        dst: impl Into<Ipv4Addr>,
        sport: u16,
        dport: u16,
    ) -> Self {
        Self::over(NetworkHeader::Ipv4(
            Ipv4::new(src.into(), dst.into()),
            TransportHeader::Udp(Udp::new(sport, dport)),
        ))
    }

    /// Creates UDP over IPv6 with zero Ethernet addresses, no tags and a zero payload.
    pub fn udp6(
        src: impl Into<Ipv6Addr>,
        dst: impl Into<Ipv6Addr>,
        sport: u16,
        dport: u16,
    ) -> Self {
        Self::over(NetworkHeader::Ipv6(
            Ipv6::new(src.into(), dst.into()),
            TransportHeader::Udp(Udp::new(sport, dport)),
        ))
    }

    /// Creates a frame with this network layer, zero Ethernet addresses, no tags and a zero payload.
    pub fn over(network: NetworkHeader) -> Self {
        Self {
            ethernet: Ethernet::default(),
            vlans: Vec::new(),
            mpls: Vec::new(),
            network,
            extensions: Vec::new(),
            fill: Fill::Zero,
        }
    }

    /// Length of all headers in bytes: the shortest frame that [`build`](Self::build) makes. The Ethernet minimum of 60
    /// bytes is not applied.
    pub fn min_len(&self) -> usize {
        self.layout(0).payload
    }

    /// Offsets of the headers in a frame of `len` bytes.
    pub fn layout(&self, len: usize) -> StackLayout {
        let mut layout = StackLayout::default();
        let mut at = EthernetView::LEN;
        let mut advance = |len| {
            let start = at;
            at += len;
            start
        };
        layout.vlans = self.vlans.iter().map(|_| advance(VlanView::LEN)).collect();
        layout.mpls = self.mpls.iter().map(|_| advance(LabelView::LEN)).collect();
        let transport = match &self.network {
            NetworkHeader::None { .. } => None,
            NetworkHeader::Arp(_) => {
                layout.arp = Some(advance(ArpView::LEN));
                None
            }
            NetworkHeader::Ipv4(_, transport) => {
                let ip = advance(Ipv4View::LEN);
                layout.ip = Some(ip);
                layout.protocol = Some(ip + 9);
                layout.ip_checksum = Some(ip + 10);
                Some(transport)
            }
            NetworkHeader::Ipv6(_, transport) => {
                let ip = advance(Ipv6View::LEN);
                layout.ip = Some(ip);
                layout.protocol = Some(ip + 6);
                for extension in &self.extensions {
                    layout.protocol = Some(advance(extension.octets()));
                }
                Some(transport)
            }
        };
        match transport {
            Some(TransportHeader::Udp(udp)) => {
                let l4 = advance(UdpView::LEN);
                layout.l4 = Some(l4);
                layout.l4_checksum = udp.checksum.then_some(l4 + 6);
            }
            Some(TransportHeader::Tcp(_)) => {
                let l4 = advance(TcpView::LEN);
                layout.l4 = Some(l4);
                layout.l4_checksum = Some(l4 + 16);
            }
            Some(TransportHeader::Echo(_)) => {
                let l4 = advance(IcmpView::LEN);
                layout.l4 = Some(l4);
                layout.l4_checksum = Some(l4 + 2);
            }
            Some(TransportHeader::Raw(_)) | None => {}
        }
        layout.payload = at;
        layout.end = match (layout.ip, &self.network) {
            (Some(ip), NetworkHeader::Ipv4(..)) => len.min(ip + 0xffff),
            (Some(ip), _) => len.min(ip + Ipv6View::LEN + 0xffff),
            (None, _) => len,
        }
        .max(at);
        layout
    }

    /// Builds a frame of `len` bytes (without FCS), with all lengths and checksums. If the headers need more than
    /// `len`, the frame has [`min_len`](Self::min_len) bytes.
    pub fn build(&self, len: usize) -> Vec<u8> {
        self.build_with_layout(len).0
    }

    /// Like [`build`](Self::build), with the layout of the frame.
    pub fn build_with_layout(&self, len: usize) -> (Vec<u8>, StackLayout) {
        let layout = self.layout(len);
        let len = len.max(layout.payload);
        let mut frame = Vec::with_capacity(len);

        let network_type = match &self.network {
            _ if !self.mpls.is_empty() => ethertype::MPLS,
            NetworkHeader::None { ethertype } => *ethertype,
            NetworkHeader::Arp(_) => ethertype::ARP,
            NetworkHeader::Ipv4(..) => ethertype::IPV4,
            NetworkHeader::Ipv6(..) => ethertype::IPV6,
        };
        let mut types = self
            .vlans
            .iter()
            .map(|vlan| vlan.tpid)
            .chain([network_type]);
        let mut next_type = || types.next().unwrap_or(network_type);
        frame.extend(self.ethernet.emit(next_type()));
        for vlan in &self.vlans {
            frame.extend(vlan.emit(next_type()));
        }
        for (i, label) in self.mpls.iter().enumerate() {
            frame.extend(label.emit(i + 1 == self.mpls.len()));
        }
        match &self.network {
            NetworkHeader::None { .. } => {}
            NetworkHeader::Arp(arp) => frame.extend(arp.emit()),
            NetworkHeader::Ipv4(ip, transport) => {
                frame.extend(ip.emit(
                    transport.protocol(IcmpVersion::V4),
                    layout.end - frame.len() - Ipv4View::LEN,
                ));
                transport.emit(IcmpVersion::V4, layout.end - layout.payload, &mut frame);
            }
            NetworkHeader::Ipv6(ip, transport) => {
                let carried = transport.protocol(IcmpVersion::V6);
                let numbers = self.extensions.iter().map(|e| e.number());
                let mut next = numbers.chain([carried]);
                frame.extend(ip.emit(
                    next.next().unwrap_or(carried),
                    layout.end - frame.len() - Ipv6View::LEN,
                ));
                for extension in &self.extensions {
                    extension.emit(next.next().unwrap_or(carried), &mut frame);
                }
                transport.emit(IcmpVersion::V6, layout.end - layout.payload, &mut frame);
            }
        }
        debug_assert_eq!(frame.len(), layout.payload, "layout and emission agree");
        frame.resize(len, 0);
        self.fill.write(&mut frame[layout.payload..layout.end]);
        layout.write_l4_checksum(&mut frame);
        (frame, layout)
    }
}

impl TransportHeader {
    fn protocol(&self, version: IcmpVersion) -> u8 {
        match self {
            Self::Udp(_) => protocol::UDP,
            Self::Tcp(_) => protocol::TCP,
            Self::Echo(_) => version.protocol(),
            Self::Raw(protocol) => *protocol,
        }
    }

    fn emit(&self, version: IcmpVersion, payload_len: usize, frame: &mut Vec<u8>) {
        match self {
            Self::Udp(udp) => frame.extend(udp.emit(payload_len, 0)),
            Self::Tcp(tcp) => frame.extend(tcp.emit(0)),
            Self::Echo(echo) => frame.extend(echo.emit(version, 0)),
            Self::Raw(_) => {}
        }
    }
}

impl Fill {
    /// Overwrites `payload`.
    pub fn write(&self, payload: &mut [u8]) {
        match self {
            Self::Zero => payload.fill(0),
            Self::Byte(byte) => payload.fill(*byte),
            Self::Counting => payload
                .iter_mut()
                .zip(0..)
                .for_each(|(byte, i): (_, usize)| *byte = i as u8),
            Self::Random(seed) => {
                let mut state = SplitMix64(*seed);
                for chunk in payload.chunks_mut(8) {
                    chunk.copy_from_slice(&state.next().to_le_bytes()[..chunk.len()]);
                }
            }
            Self::Repeat(pattern) if pattern.is_empty() => payload.fill(0),
            Self::Repeat(pattern) => payload
                .iter_mut()
                .zip(pattern.iter().cycle())
                .for_each(|(byte, p)| *byte = *p),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_of_a_full_stack() {
        let mut stack = Stack::udp6(Ipv6Addr::LOCALHOST, Ipv6Addr::LOCALHOST, 1, 2);
        stack.vlans = Vlan::stack(&[10, 20]);
        stack.mpls = vec![MplsLabel::new(16), MplsLabel::new(17)];
        let layout = stack.layout(100);
        assert_eq!(
            (layout.eth, &layout.vlans[..], &layout.mpls[..]),
            (0, &[14, 18][..], &[22, 26][..])
        );
        assert_eq!(
            (layout.ip, layout.l4, layout.payload, layout.end),
            (Some(30), Some(70), 78, 100)
        );
        assert_eq!((layout.ip_checksum, layout.l4_checksum), (None, Some(76)));
        assert_eq!(stack.min_len(), 78);
        assert_eq!(stack.build(10).len(), 78);
    }

    #[test]
    fn the_tag_fits_where_the_sizes_say() {
        let udp4 = Stack::udp4(Ipv4Addr::LOCALHOST, Ipv4Addr::LOCALHOST, 1, 2);
        let with = |vlans: &[u16], network| Stack {
            vlans: Vlan::stack(vlans),
            network,
            ..udp4.clone()
        };
        let tcp = NetworkHeader::Ipv4(
            Ipv4::new(Ipv4Addr::LOCALHOST, Ipv4Addr::LOCALHOST),
            TransportHeader::Tcp(Tcp::new(1, 2)),
        );
        let smallest = |stack: Stack| stack.min_len() + crate::Tag::LEN + 4;
        assert_eq!(smallest(udp4.clone()), 64);
        assert_eq!(smallest(with(&[1], udp4.network)), 68);
        assert_eq!(smallest(with(&[1, 2], udp4.network)), 72);
        assert_eq!(
            smallest(Stack::udp6(Ipv6Addr::LOCALHOST, Ipv6Addr::LOCALHOST, 1, 2)),
            84
        );
        assert_eq!(smallest(with(&[], tcp)), 76);
    }

    #[test]
    fn beyond_64_kib_is_padding() {
        let stack = Stack {
            fill: Fill::Byte(7),
            ..Stack::udp4(Ipv4Addr::LOCALHOST, Ipv4Addr::LOCALHOST, 1, 2)
        };
        let (frame, layout) = stack.build_with_layout(70_000);
        assert_eq!((frame.len(), layout.end), (70_000, 14 + 65_535));
        assert_eq!(frame[16..18], [0xff, 0xff]);
        assert_eq!(frame[38..40], (65_515u16).to_be_bytes());
        assert_eq!(frame[layout.end..], vec![0; frame.len() - layout.end]);
    }

    #[test]
    fn fills() {
        let filled = |fill: Fill| {
            let mut bytes = [9; 20];
            fill.write(&mut bytes);
            bytes
        };
        assert_eq!(filled(Fill::Zero), [0; 20]);
        assert_eq!(filled(Fill::Counting)[17..], [17, 18, 19]);
        assert_eq!(
            filled(Fill::Repeat(vec![1, 2, 3]))[..7],
            [1, 2, 3, 1, 2, 3, 1]
        );
        assert_eq!(filled(Fill::Repeat(vec![])), [0; 20]);
        assert_eq!(filled(Fill::Random(1)), filled(Fill::Random(1)));
        assert_ne!(filled(Fill::Random(1)), filled(Fill::Random(2)));
    }
}
