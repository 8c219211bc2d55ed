//! Neighbour responder of a test port: answers ARP, neighbour discovery and ping.
//!
//! Works on single frames, without state or clock. The owner of the port decides when and how often to send requests,
//! and how long an answer is valid. Frames of a stream with ICMP echo look like pings, so check for the test tag first.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;

use crate::icmp::IcmpVersion;
use crate::{
    Arp, ArpOperation, ArpView, Ethernet, EthernetView, IcmpView, Ipv4, Ipv4View, Ipv6, Ipv6View,
    MIN_LEN, MacAddr, Neighbour, Vlan, VlanView, checksum, ethertype, multicast_mac, protocol,
    solicited_node,
};

/// Set of IP addresses: single ones, ranges and prefixes of both versions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AddrSet {
    v4: Vec<(u32, u32)>,
    v6: Vec<(u128, u128)>,
}

impl AddrSet {
    /// Adds one address.
    pub fn insert(&mut self, address: IpAddr) {
        match address {
            IpAddr::V4(address) => self.insert_v4(address..=address),
            IpAddr::V6(address) => self.insert_v6(address..=address),
        }
    }

    /// Adds all addresses between two ends, given in any order.
    pub fn insert_v4(&mut self, range: RangeInclusive<Ipv4Addr>) {
        merge(&mut self.v4, range.start().to_bits(), range.end().to_bits());
    }

    /// Adds all addresses between two ends, given in any order.
    pub fn insert_v6(&mut self, range: RangeInclusive<Ipv6Addr>) {
        merge(&mut self.v6, range.start().to_bits(), range.end().to_bits());
    }

    /// Adds every address of a prefix; a length above 32 or 128 means the single address.
    pub fn insert_prefix(&mut self, address: IpAddr, len: u8) {
        match address {
            IpAddr::V4(address) => {
                let host = u32::MAX.checked_shr(len.into()).unwrap_or(0);
                merge(
                    &mut self.v4,
                    address.to_bits() & !host,
                    address.to_bits() | host,
                );
            }
            IpAddr::V6(address) => {
                let host = u128::MAX.checked_shr(len.into()).unwrap_or(0);
                merge(
                    &mut self.v6,
                    address.to_bits() & !host,
                    address.to_bits() | host,
                );
            }
        }
    }

    /// Returns true if the address is in the set.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.range_of(address).is_some()
    }

    /// Returns the first and last address of the range that contains an address.
    pub fn range_of(&self, address: IpAddr) -> Option<(IpAddr, IpAddr)> {
        match address {
            IpAddr::V4(address) => {
                let (a, b) = covering(&self.v4, address.to_bits())?;
                Some((Ipv4Addr::from(a).into(), Ipv4Addr::from(b).into()))
            }
            IpAddr::V6(address) => {
                let (a, b) = covering(&self.v6, address.to_bits())?;
                Some((Ipv6Addr::from(a).into(), Ipv6Addr::from(b).into()))
            }
        }
    }

    /// Returns true if the set is empty.
    pub fn is_empty(&self) -> bool {
        self.v4.is_empty() && self.v6.is_empty()
    }

    /// First and last address of each range, in order, IPv4 first.
    pub fn ranges(&self) -> impl Iterator<Item = (IpAddr, IpAddr)> + '_ {
        let v4 = self
            .v4
            .iter()
            .map(|&(a, b)| (Ipv4Addr::from(a).into(), Ipv4Addr::from(b).into()));
        let v6 = self
            .v6
            .iter()
            .map(|&(a, b)| (Ipv6Addr::from(a).into(), Ipv6Addr::from(b).into()));
        v4.chain(v6)
    }
}

impl Extend<IpAddr> for AddrSet {
    fn extend<I: IntoIterator<Item = IpAddr>>(&mut self, addresses: I) {
        addresses
            .into_iter()
            .for_each(|address| self.insert(address));
    }
}

impl FromIterator<IpAddr> for AddrSet {
    fn from_iter<I: IntoIterator<Item = IpAddr>>(addresses: I) -> Self {
        let mut set = Self::default();
        set.extend(addresses);
        set
    }
}

/// Adds a range; `ranges` stay sorted and without overlap.
fn merge<T: Ord + Copy>(ranges: &mut Vec<(T, T)>, a: T, b: T) {
    let (mut low, mut high) = (a.min(b), a.max(b));
    let first = ranges.partition_point(|range| range.1 < low);
    let last = ranges.partition_point(|range| range.0 <= high);
    for range in &ranges[first..last] {
        low = low.min(range.0);
        high = high.max(range.1);
    }
    ranges.splice(first..last, [(low, high)]);
}

fn covering<T: Ord + Copy>(ranges: &[(T, T)], address: T) -> Option<(T, T)> {
    let at = ranges.partition_point(|range| range.1 < address);
    ranges.get(at).copied().filter(|range| range.0 <= address)
}

/// Addresses for which a port answers, all with one Ethernet address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NeighbourResponder {
    /// Ethernet address of the port.
    pub mac: MacAddr,
    /// IP addresses of the port.
    pub addresses: AddrSet,
}

impl NeighbourResponder {
    /// Creates a responder that answers for `addresses` with `mac`.
    pub fn new(mac: MacAddr, addresses: impl IntoIterator<Item = IpAddr>) -> Self {
        Self {
            mac,
            addresses: addresses.into_iter().collect(),
        }
    }

    /// Writes the answer to an ARP request, neighbour solicitation or echo request for one of the addresses, and
    /// returns its length. VLAN tags in the frame are kept; the caller must restore a tag that the device stripped.
    /// Returns None if there is nothing to answer, or `out` is too short.
    pub fn answer(&self, frame: &[u8], out: &mut [u8]) -> Option<usize> {
        let (ethernet, _, _) = Ethernet::parse(frame)?;
        let for_us = ethernet.dst == self.mac || ethernet.dst.is_multicast();
        if !for_us || !ethernet.src.is_unicast() || ethernet.src == self.mac {
            return None;
        }
        let (kind, at) = behind_vlans(frame)?;
        let mut reply = Reply {
            responder: self,
            link: &frame[..at],
            to: ethernet.src,
            out,
        };
        match kind {
            ethertype::ARP => reply.arp(&frame[at..]),
            ethertype::IPV4 => reply.ipv4(&frame[at..]),
            ethertype::IPV6 => reply.ipv6(&frame[at..]),
            _ => None,
        }
    }

    /// Learns the addresses of another station from its frame: ARP of any kind (RFC 826 learns from requests, too),
    /// neighbour advertisements and solicitations with a link-layer address.
    pub fn learn(&self, frame: &[u8]) -> Option<(IpAddr, MacAddr)> {
        let (kind, at) = behind_vlans(frame)?;
        let packet = &frame[at..];
        let (address, mac) = match kind {
            ethertype::ARP => {
                let (arp, _) = Arp::parse(packet)?;
                (IpAddr::V4(arp.sender_ip), arp.sender_mac)
            }
            ethertype::IPV6 => match neighbour_message(packet)? {
                (_, Neighbour::Advertisement { target, link, .. }) => (target.into(), link?),
                (ip, Neighbour::Solicitation { source, .. }) => (ip.src.into(), source?),
            },
            _ => return None,
        };
        let real = mac.is_unicast()
            && mac != self.mac
            && !address.is_unspecified()
            && !address.is_multicast();
        real.then_some((address, mac))
    }
}

/// Writes an ARP broadcast request for `target_ip`, padded to 60 bytes, and returns its length. With `src_ip` =
/// `target_ip` it announces the address. None if `out` is too short.
pub fn arp_request(
    src_mac: MacAddr,
    src_ip: Ipv4Addr,
    target_ip: Ipv4Addr,
    vlans: &[Vlan],
    out: &mut [u8],
) -> Option<usize> {
    let at = link_header(
        Ethernet {
            dst: MacAddr::BROADCAST,
            src: src_mac,
        },
        vlans,
        ethertype::ARP,
        out,
    )?;
    let arp = Arp {
        operation: ArpOperation::Request,
        sender_mac: src_mac,
        sender_ip: src_ip,
        target_mac: MacAddr::ZERO,
        target_ip,
    };
    write_bytes(out, at, &arp.emit())?;
    pad(out, at + ArpView::LEN)
}

/// Writes a neighbour solicitation for `target` to its multicast group, and returns its length. With `src_ip`
/// unspecified it only tests whether the address is in use. None if `out` is too short.
pub fn neighbour_solicitation(
    src_mac: MacAddr,
    src_ip: Ipv6Addr,
    target: Ipv6Addr,
    vlans: &[Vlan],
    out: &mut [u8],
) -> Option<usize> {
    let group = solicited_node(target);
    let at = link_header(
        Ethernet {
            dst: multicast_mac(group),
            src: src_mac,
        },
        vlans,
        ethertype::IPV6,
        out,
    )?;
    let source = (!src_ip.is_unspecified()).then_some(src_mac);
    write_neighbour(
        out,
        at,
        src_ip,
        group,
        Neighbour::Solicitation { target, source },
    )
}

/// Reply under construction: receiver, link header of the request, and buffer.
struct Reply<'a> {
    responder: &'a NeighbourResponder,
    link: &'a [u8],
    to: MacAddr,
    out: &'a mut [u8],
}

impl Reply<'_> {
    fn arp(&mut self, packet: &[u8]) -> Option<usize> {
        let (arp, _) = Arp::parse(packet)?;
        // A gratuitous ARP request is an announcement and gets no answer.
        let asks = arp.operation == ArpOperation::Request && arp.sender_ip != arp.target_ip;
        if !asks || !self.responder.addresses.contains(arp.target_ip.into()) {
            return None;
        }
        let at = self.link_header()?;
        let answer = Arp {
            operation: ArpOperation::Reply,
            sender_mac: self.responder.mac,
            sender_ip: arp.target_ip,
            target_mac: arp.sender_mac,
            target_ip: arp.sender_ip,
        };
        write_bytes(self.out, at, &answer.emit())?;
        pad(self.out, at + ArpView::LEN)
    }

    fn ipv4(&mut self, packet: &[u8]) -> Option<usize> {
        let (view, _) = Ipv4View::split_from(packet)?;
        let (ip, next, message) = Ipv4::parse(packet)?;
        let intact = checksum::is_right(0, &packet[..view.header_len()]);
        let answerable = !view.is_fragment()
            && !ip.src.is_unspecified()
            && !ip.src.is_multicast()
            && !ip.src.is_broadcast();
        if next != protocol::ICMP
            || !intact
            || !answerable
            || !self.responder.addresses.contains(ip.dst.into())
        {
            return None;
        }
        let at = self.link_header()?;
        let answer = Ipv4 {
            src: ip.dst,
            dst: ip.src,
            ttl: 64,
            fragment: 0,
            ..ip
        };
        write_bytes(self.out, at, &answer.emit(protocol::ICMP, message.len()))?;
        self.echo(IcmpVersion::V4, at + Ipv4View::LEN, message)
    }

    fn ipv6(&mut self, packet: &[u8]) -> Option<usize> {
        if let Some((ip, Neighbour::Solicitation { target, source })) = neighbour_message(packet) {
            return self.solicitation(ip, target, source);
        }
        let (ip, next, message) = Ipv6::parse(packet)?;
        let answerable = !ip.src.is_unspecified() && !ip.src.is_multicast();
        if next != protocol::ICMPV6
            || !answerable
            || !self.responder.addresses.contains(ip.dst.into())
        {
            return None;
        }
        let at = self.link_header()?;
        let answer = Ipv6 {
            src: ip.dst,
            dst: ip.src,
            hop_limit: 64,
            flow_label: 0,
            ..ip
        };
        write_bytes(self.out, at, &answer.emit(protocol::ICMPV6, message.len()))?;
        self.echo(IcmpVersion::V6, at + Ipv6View::LEN, message)
    }

    /// Turns the request into a reply in place. The checksum is updated, not recomputed, so that a request damaged in
    /// transit returns as damaged.
    fn echo(&mut self, version: IcmpVersion, at: usize, message: &[u8]) -> Option<usize> {
        let (view, _) = IcmpView::split_from(message)?;
        if (view.kind, view.code) != (version.echo_request(), 0) {
            return None;
        }
        write_bytes(self.out, at, message)?;
        let (reply, _) = IcmpView::split_from_mut(self.out.get_mut(at..)?)?;
        reply.kind = version.echo_reply();
        let word = |kind| u16::from(kind) << 8;
        reply.checksum =
            checksum::update16(view.checksum.get(), word(view.kind), word(reply.kind)).into();
        pad(self.out, at + message.len())
    }

    fn solicitation(
        &mut self,
        asker: Ipv6,
        target: Ipv6Addr,
        source: Option<MacAddr>,
    ) -> Option<usize> {
        if !self.responder.addresses.contains(target.into()) || asker.src.is_multicast() {
            return None;
        }
        // RFC 4861 section 7.2.4: a node that tests an address has none yet, so the answer goes to all nodes.
        let solicited = !asker.src.is_unspecified();
        let all_nodes = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
        let to = if solicited { asker.src } else { all_nodes };
        self.to = if solicited {
            source.filter(|mac| mac.is_unicast()).unwrap_or(self.to)
        } else {
            multicast_mac(all_nodes)
        };
        let at = self.link_header()?;
        let answer = Neighbour::Advertisement {
            target,
            link: Some(self.responder.mac),
            router: false,
            solicited,
            overrides: true,
        };
        write_neighbour(self.out, at, target, to, answer)
    }

    /// Writes the tags and type of the request, with the addresses of the answer.
    fn link_header(&mut self) -> Option<usize> {
        write_bytes(self.out, 0, self.link)?;
        write_bytes(self.out, 0, &self.to.0)?;
        write_bytes(self.out, 6, &self.responder.mac.0)?;
        Some(self.link.len())
    }
}

/// Ethernet type behind all VLAN tags, and the offset of its payload within the frame.
fn behind_vlans(frame: &[u8]) -> Option<(u16, usize)> {
    let (_, mut kind, mut rest) = Ethernet::parse(frame)?;
    while Vlan::is_tpid(kind) {
        (_, kind, rest) = Vlan::parse(kind, rest)?;
    }
    Some((kind, frame.len() - rest.len()))
}

/// Parses a neighbour message with its IP header, if it passes RFC 4861 section 7.1.
fn neighbour_message(packet: &[u8]) -> Option<(Ipv6, Neighbour)> {
    let (ip, next, message) = Ipv6::parse(packet)?;
    if next != protocol::ICMPV6 || ip.hop_limit != 255 {
        return None;
    }
    let neighbour = Neighbour::parse(message)?;
    let pseudo = checksum::pseudo_v6(ip.src, ip.dst, next, message.len() as u32);
    checksum::is_right(pseudo, message).then_some((ip, neighbour))
}

fn link_header(ethernet: Ethernet, vlans: &[Vlan], kind: u16, out: &mut [u8]) -> Option<usize> {
    let mut next = vlans.iter().map(|vlan| vlan.tpid).chain([kind]);
    write_bytes(out, 0, &ethernet.emit(next.next()?))?;
    let mut at = EthernetView::LEN;
    for (vlan, next) in vlans.iter().zip(next) {
        write_bytes(out, at, &vlan.emit(next))?;
        at += VlanView::LEN;
    }
    Some(at)
}

fn write_neighbour(
    out: &mut [u8],
    at: usize,
    src: Ipv6Addr,
    dst: Ipv6Addr,
    message: Neighbour,
) -> Option<usize> {
    let body = at + Ipv6View::LEN;
    let len = message.emit(src, dst, out.get_mut(body..)?)?;
    let ip = Ipv6 {
        hop_limit: 255,
        ..Ipv6::new(src, dst)
    };
    write_bytes(out, at, &ip.emit(protocol::ICMPV6, len))?;
    pad(out, body + len)
}

fn write_bytes(out: &mut [u8], at: usize, bytes: &[u8]) -> Option<()> {
    out.get_mut(at..)?
        .get_mut(..bytes.len())?
        .copy_from_slice(bytes);
    Some(())
}

/// Pads with zeros to the minimum frame length; returns the length of the frame.
fn pad(out: &mut [u8], len: usize) -> Option<usize> {
    let padded = len.max(MIN_LEN);
    out.get_mut(len..padded)?.fill(0);
    Some(padded)
}
