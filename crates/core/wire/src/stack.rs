//! A frame as a list of layers, and the bytes it makes at a given length.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::checksum::{self, pseudo_v4, pseudo_v6};
use crate::icmp::IcmpVersion;
use crate::{
    Arp, ArpView, Echo, Ethernet, EthernetView, Extension, IcmpView, Ipv4, Ipv4View, Ipv6,
    Ipv6View, Label, LabelView, SplitMix64, Tcp, TcpView, Udp, UdpView, Vlan, VlanView, ethertype,
    protocol,
};

/// The layers of a frame. All that follows from others (types, lengths, checksums, the bottom of the
/// label stack) is filled in by [`build`](Self::build).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stack {
    /// The addresses.
    pub ethernet: Ethernet,
    /// VLAN tags, outer first.
    pub vlans: Vec<Vlan>,
    /// MPLS labels, outer first.
    pub mpls: Vec<Label>,
    /// What comes next.
    pub network: Network,
    /// Extension headers between IPv6 and what it carries, in their order; without IPv6 there are none.
    pub extensions: Vec<Extension>,
    /// The bytes behind the last header.
    pub fill: Fill,
}

/// What is behind Ethernet, VLAN tags and labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network {
    /// Payload directly, under this ethertype (which labels leave no room for).
    None {
        /// The type field.
        ethertype: u16,
    },
    /// An ARP message.
    Arp(Arp),
    /// IPv4 and what it carries.
    Ipv4(Ipv4, Transport),
    /// IPv6 and what it carries.
    Ipv6(Ipv6, Transport),
}

/// What IP carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// A datagram.
    Udp(Udp),
    /// A segment without a connection.
    Tcp(Tcp),
    /// An ICMP or ICMPv6 echo, after the version of IP.
    Echo(Echo),
    /// Payload directly, under this protocol number.
    Raw(u8),
}

/// Payload bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Fill {
    /// All zeros.
    #[default]
    Zero,
    /// All this byte.
    Byte(u8),
    /// 00 01 02 … ff 00 …: RFC 2544 appendix C.
    Counting,
    /// The same noise for the same seed.
    Random(u64),
    /// These bytes again and again; none are zeros.
    Repeat(Vec<u8>),
}

/// Where the headers of a built frame begin: offsets from its first byte.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// The Ethernet header: 0.
    pub eth: usize,
    /// Control information of each VLAN tag, outer first.
    pub vlans: Vec<usize>,
    /// Each label, outer first.
    pub mpls: Vec<usize>,
    /// The ARP message.
    pub arp: Option<usize>,
    /// The IP header.
    pub ip: Option<usize>,
    /// The byte that says what IP carries: of the IP header, or of the last extension header.
    pub protocol: Option<usize>,
    /// The UDP, TCP or ICMP header.
    pub l4: Option<usize>,
    /// The first byte behind the last header: the place of the test tag.
    pub payload: usize,
    /// The end of the IP packet, or of the frame without one; padding only beyond 65,535 bytes of IP.
    pub end: usize,
    /// The checksum field of IPv4.
    pub ip_checksum: Option<usize>,
    /// The checksum field of the layer-4 header, where one is in use.
    pub l4_checksum: Option<usize>,
}

impl Layout {
    /// The sum of the pseudo header that the layer-4 checksum of this frame covers; None without layer 4.
    pub fn pseudo(&self, frame: &[u8]) -> Option<u64> {
        let (ip, l4) = (self.ip?, self.l4?);
        let len = self.end.checked_sub(l4)?;
        match frame.get(ip)? >> 4 {
            4 => {
                let (view, _) = Ipv4View::of(&frame[ip..])?;
                let covered = view.protocol != protocol::ICMP;
                Some(if covered {
                    pseudo_v4(view.src.into(), view.dst.into(), view.protocol, len as u16)
                } else {
                    0
                })
            }
            _ => {
                let (view, _) = Ipv6View::of(&frame[ip..])?;
                Some(pseudo_v6(
                    view.src.into(),
                    view.dst.into(),
                    self.protocol(frame)?,
                    len as u32,
                ))
            }
        }
    }

    /// The IP protocol number of what IP carries in the frame, behind all extension headers.
    pub fn protocol(&self, frame: &[u8]) -> Option<u8> {
        frame.get(self.protocol?).copied()
    }

    /// Computes the layer-4 checksum anew and writes it; does nothing where none is in use.
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
    /// UDP over IPv4 with zero Ethernet addresses, no tags and a zero payload.
    pub fn udp4(
        src: impl Into<Ipv4Addr>,
        dst: impl Into<Ipv4Addr>,
        sport: u16,
        dport: u16,
    ) -> Self {
        Self::over(Network::Ipv4(
            Ipv4::new(src.into(), dst.into()),
            Transport::Udp(Udp::new(sport, dport)),
        ))
    }

    /// UDP over IPv6 with zero Ethernet addresses, no tags and a zero payload.
    pub fn udp6(
        src: impl Into<Ipv6Addr>,
        dst: impl Into<Ipv6Addr>,
        sport: u16,
        dport: u16,
    ) -> Self {
        Self::over(Network::Ipv6(
            Ipv6::new(src.into(), dst.into()),
            Transport::Udp(Udp::new(sport, dport)),
        ))
    }

    /// This network layer with zero Ethernet addresses, no tags and a zero payload.
    pub fn over(network: Network) -> Self {
        Self {
            ethernet: Ethernet::default(),
            vlans: Vec::new(),
            mpls: Vec::new(),
            network,
            extensions: Vec::new(),
            fill: Fill::Zero,
        }
    }

    /// Bytes of all headers: the shortest frame that [`build`](Self::build) makes. The 60 bytes that
    /// Ethernet wants are not part of this.
    pub fn min_len(&self) -> usize {
        self.layout(0).payload
    }

    /// Where the headers of a frame of `len` bytes begin.
    pub fn layout(&self, len: usize) -> Layout {
        let mut layout = Layout::default();
        let mut at = EthernetView::LEN;
        let mut advance = |len| {
            let start = at;
            at += len;
            start
        };
        layout.vlans = self.vlans.iter().map(|_| advance(VlanView::LEN)).collect();
        layout.mpls = self.mpls.iter().map(|_| advance(LabelView::LEN)).collect();
        let transport = match &self.network {
            Network::None { .. } => None,
            Network::Arp(_) => {
                layout.arp = Some(advance(ArpView::LEN));
                None
            }
            Network::Ipv4(_, transport) => {
                let ip = advance(Ipv4View::LEN);
                layout.ip = Some(ip);
                layout.protocol = Some(ip + 9);
                layout.ip_checksum = Some(ip + 10);
                Some(transport)
            }
            Network::Ipv6(_, transport) => {
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
            Some(Transport::Udp(udp)) => {
                let l4 = advance(UdpView::LEN);
                layout.l4 = Some(l4);
                layout.l4_checksum = udp.checksum.then_some(l4 + 6);
            }
            Some(Transport::Tcp(_)) => {
                let l4 = advance(TcpView::LEN);
                layout.l4 = Some(l4);
                layout.l4_checksum = Some(l4 + 16);
            }
            Some(Transport::Echo(_)) => {
                let l4 = advance(IcmpView::LEN);
                layout.l4 = Some(l4);
                layout.l4_checksum = Some(l4 + 2);
            }
            Some(Transport::Raw(_)) | None => {}
        }
        layout.payload = at;
        layout.end = match (layout.ip, &self.network) {
            (Some(ip), Network::Ipv4(..)) => len.min(ip + 0xffff),
            (Some(ip), _) => len.min(ip + Ipv6View::LEN + 0xffff),
            (None, _) => len,
        }
        .max(at);
        layout
    }

    /// The frame of `len` bytes (without FCS), all lengths and checksums filled in. Headers that need
    /// more than `len` make it longer: [`min_len`](Self::min_len) bytes.
    pub fn build(&self, len: usize) -> Vec<u8> {
        self.build_with_layout(len).0
    }

    /// Like [`build`](Self::build), with the layout of the frame.
    pub fn build_with_layout(&self, len: usize) -> (Vec<u8>, Layout) {
        let layout = self.layout(len);
        let len = len.max(layout.payload);
        let mut frame = Vec::with_capacity(len);

        let network_type = match &self.network {
            _ if !self.mpls.is_empty() => ethertype::MPLS,
            Network::None { ethertype } => *ethertype,
            Network::Arp(_) => ethertype::ARP,
            Network::Ipv4(..) => ethertype::IPV4,
            Network::Ipv6(..) => ethertype::IPV6,
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
            Network::None { .. } => {}
            Network::Arp(arp) => frame.extend(arp.emit()),
            Network::Ipv4(ip, transport) => {
                frame.extend(ip.emit(
                    transport.protocol(IcmpVersion::V4),
                    layout.end - frame.len() - Ipv4View::LEN,
                ));
                transport.emit(IcmpVersion::V4, layout.end - layout.payload, &mut frame);
            }
            Network::Ipv6(ip, transport) => {
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

impl Transport {
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
        stack.mpls = vec![Label::new(16), Label::new(17)];
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
        let tcp = Network::Ipv4(
            Ipv4::new(Ipv4Addr::LOCALHOST, Ipv4Addr::LOCALHOST),
            Transport::Tcp(Tcp::new(1, 2)),
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
