//! Frame builder: writes headers and payload into a lent buffer.
//!
//! A template contains all constant fields. The checksum is added up from sums of the parts, so the payload bytes are
//! not read for it.

use wb_wire::{
    Ethernet, Ipv4View, Ipv6View, MacAddr, TcpView, UdpView, checksum, ethertype, protocol,
};

use crate::addr::Addr;
use crate::config::{Config, Transport};
use crate::outstanding::NUMBER_LEN;
use crate::tunnel::{LONGEST_OUTER, Outer, Tunnel};

/// Destination of sent frames. The machine requests room before it changes any state, so a full sink loses nothing.
pub trait FrameSink {
    /// Returns a buffer for one frame, or None if there is no room. The buffer must fit the longest frame of the
    /// configuration ([`crate::Config::longest_frame`]). Calling this again without [`FrameSink::commit`] returns the
    /// same buffer.
    fn lend(&mut self) -> Option<&mut [u8]>;

    /// Sends the first `len` bytes of the lent buffer as one frame, without FCS.
    fn commit(&mut self, len: usize);
}

/// Frame sink in memory, for tests and simulations.
#[derive(Clone, Debug)]
pub struct Frames {
    /// Frames sent, oldest first.
    pub sent: Vec<Vec<u8>>,
    /// Maximum number of frames in `sent`.
    pub room: usize,
    lent: Box<[u8]>,
}

impl Frames {
    /// Creates an empty sink with room for `room` frames.
    pub fn new(room: usize) -> Self {
        Self {
            sent: Vec::new(),
            room,
            lent: vec![0; LONGEST_OUTER + LONGEST_HEADERS + crate::message::LONGEST_PAYLOAD].into(),
        }
    }

    /// Removes and returns all frames sent, oldest first.
    pub fn take_frames(&mut self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.sent)
    }
}

impl FrameSink for Frames {
    fn lend(&mut self) -> Option<&mut [u8]> {
        (self.sent.len() < self.room).then_some(&mut self.lent)
    }

    fn commit(&mut self, len: usize) {
        self.sent.push(self.lent[..len].to_vec());
    }
}

/// Length of the longest headers: Ethernet, VLAN, IPv6, TCP with the options of a SYN.
pub(crate) const LONGEST_HEADERS: usize = 14 + 4 + 40 + 32;

/// Addresses and ports of a frame.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Path {
    pub(crate) to: MacAddr,
    pub(crate) local: Addr,
    pub(crate) remote: Addr,
    pub(crate) local_port: u16,
    pub(crate) remote_port: u16,
}

/// Variable fields of a TCP header.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SegmentHeader {
    pub(crate) seq: u32,
    pub(crate) ack: u32,
    pub(crate) flags: u8,
    pub(crate) window: u16,
}

/// Headers up to the network layer for one address family and protocol.
#[derive(Clone, Debug)]
struct FrameTemplate {
    bytes: [u8; LONGEST_HEADERS],
    l3: usize,
    l4: usize,
    v6: bool,
    /// Sum of the IPv4 header without identification, length and addresses.
    ip_sum: u64,
}

impl FrameTemplate {
    fn new(mac: MacAddr, vlan: Option<u16>, tos: u8, ttl: u8, v6: bool, next: u8) -> Self {
        let kind = if v6 { ethertype::IPV6 } else { ethertype::IPV4 };
        let ethernet = Ethernet {
            dst: MacAddr::ZERO,
            src: mac,
        };
        let mut head = ethernet
            .emit(vlan.map_or(kind, |_| ethertype::VLAN))
            .to_vec();
        if let Some(tci) = vlan {
            head.extend_from_slice(&tci.to_be_bytes());
            head.extend_from_slice(&kind.to_be_bytes());
        }
        let l3 = head.len();
        if v6 {
            let header = Ipv6View {
                version_class_flow: (6 << 28 | u32::from(tos) << 20).into(),
                payload_len: 0.into(),
                next_header: next,
                hop_limit: ttl,
                src: [0; 16],
                dst: [0; 16],
            };
            head.extend_from_slice(&header.to_bytes());
        } else {
            let header = Ipv4View {
                version_ihl: 0x45,
                tos,
                total_len: 0.into(),
                id: 0.into(),
                // Flag "don't fragment".
                fragment: 0x4000.into(),
                ttl,
                protocol: next,
                checksum: 0.into(),
                src: [0; 4],
                dst: [0; 4],
            };
            head.extend_from_slice(&header.to_bytes());
        }
        let mut bytes = [0; LONGEST_HEADERS];
        bytes[..head.len()].copy_from_slice(&head);
        Self {
            ip_sum: checksum::sum(&head[l3..]),
            bytes,
            l3,
            l4: head.len(),
            v6,
        }
    }

    /// Writes the headers up to the network layer and returns the sum of the addresses.
    #[inline(always)]
    fn start(&self, out: &mut [u8], path: &Path, id: u16, len: usize) -> u64 {
        // Copies the full template for both families: a copy of constant length takes few instructions, and the surplus
        // is overwritten.
        out[..LONGEST_HEADERS].copy_from_slice(&self.bytes);
        out[..6].copy_from_slice(&path.to.0);
        let addresses = path.local.sum(self.v6) + path.remote.sum(self.v6);
        if self.v6 {
            let (header, _) =
                Ipv6View::split_from_mut(&mut out[self.l3..]).expect("room for all headers");
            header.payload_len = (len as u16).into();
            header.src = path.local.to_bits().to_be_bytes();
            header.dst = path.remote.to_bits().to_be_bytes();
        } else {
            let (header, _) =
                Ipv4View::split_from_mut(&mut out[self.l3..]).expect("room for all headers");
            let total = (Ipv4View::LEN + len) as u16;
            header.total_len = total.into();
            header.id = id.into();
            header.src = path.local.v4_bits().to_be_bytes();
            header.dst = path.remote.v4_bits().to_be_bytes();
            let sum = self.ip_sum + u64::from(total) + u64::from(id) + addresses;
            header.checksum = checksum::finish(sum).into();
        }
        addresses
    }
}

/// Builder for the frames of one machine.
#[derive(Clone, Debug)]
pub(crate) struct Builder {
    v4: FrameTemplate,
    v6: FrameTemplate,
    outer: Option<Box<Outer>>,
    protocol: u8,
    id: u16,
}

/// Prebuilt datagram that is sent repeatedly: only its identification and its request number change.
#[derive(Clone, Debug, Default)]
pub(crate) struct Repeated {
    bytes: Vec<u8>,
    /// Offset of the IPv4 header and its sum without the identification; None for IPv6.
    v4: Option<(usize, u64)>,
    /// Offset of the datagram. `sum` includes the pseudo header but not the request number.
    l4: usize,
    sum: u64,
}

impl Builder {
    /// The builder of a machine with these settings.
    pub(crate) fn of(config: &Config) -> Self {
        Self::new(
            config.mac,
            config.vlan,
            config.tunnel,
            config.tos,
            config.ttl,
            config.transport == Transport::Tcp,
        )
    }

    pub(crate) fn new(
        mac: MacAddr,
        vlan: Option<u16>,
        tunnel: Option<Tunnel>,
        tos: u8,
        ttl: u8,
        is_tcp: bool,
    ) -> Self {
        let protocol = if is_tcp { protocol::TCP } else { protocol::UDP };
        let (src, tag) = match tunnel {
            Some(tunnel) => (tunnel.src_mac, None),
            None => (mac, vlan),
        };
        Self {
            v4: FrameTemplate::new(src, tag, tos, ttl, false, protocol),
            v6: FrameTemplate::new(src, tag, tos, ttl, true, protocol),
            outer: tunnel.map(|tunnel| Box::new(Outer::new(tunnel, mac, vlan, tos, ttl))),
            protocol,
            id: 0,
        }
    }

    /// Tunnel, if any; also decapsulates received frames.
    #[inline]
    pub(crate) fn outer(&self) -> Option<&Outer> {
        self.outer.as_deref()
    }

    /// Writes an encapsulated frame; `write` writes the inner frame.
    #[inline(never)]
    fn tunnelled(
        &mut self,
        out: &mut [u8],
        path: &Path,
        write: impl FnOnce(&mut Self, &mut [u8], &Path) -> usize,
    ) -> usize {
        let Some(mut outer) = self.outer.take() else {
            return 0;
        };
        let inner = Path {
            to: outer.tunnel.dst_mac,
            ..*path
        };
        let len = write(self, &mut out[outer.len..], &inner);
        outer.wrap(out, path, len);
        let len = outer.len + len;
        self.outer = Some(outer);
        len
    }

    /// Prepares a datagram that was just written for [`Builder::again`]. Not for use with a tunnel.
    pub(crate) fn remember(&self, frame: &[u8], path: &Path) -> Repeated {
        debug_assert!(self.outer.is_none());
        let mut bytes = frame.to_vec();
        let v4 = path.local.is_v4().then(|| {
            let l3 = self.v4.l3;
            bytes[l3 + 4..l3 + 6].fill(0);
            bytes[l3 + 10..l3 + 12].fill(0);
            (l3, checksum::sum(&bytes[l3..l3 + Ipv4View::LEN]))
        });
        let l4 = if path.local.is_v4() {
            self.v4.l4
        } else {
            self.v6.l4
        };
        let len = bytes.len() - l4;
        let mut plain = bytes[l4..].to_vec();
        plain[6..8].fill(0);
        if let Some(number) = plain.get_mut(UdpView::LEN..UdpView::LEN + NUMBER_LEN) {
            number.fill(0);
        }
        let v6 = !path.local.is_v4();
        let pseudo = path.local.sum(v6) + path.remote.sum(v6) + u64::from(self.protocol);
        let sum = pseudo + len as u64 + checksum::sum(&plain);
        Repeated { bytes, v4, l4, sum }
    }

    /// Writes a prebuilt datagram with the next identification and, if given, a request number at the start of the
    /// payload. Returns the length.
    #[inline]
    pub(crate) fn again(
        &mut self,
        repeated: &Repeated,
        number: Option<&[u8; NUMBER_LEN]>,
        out: &mut [u8],
    ) -> usize {
        let len = repeated.bytes.len();
        out[..len].copy_from_slice(&repeated.bytes);
        if let Some(number) = number {
            let at = repeated.l4 + UdpView::LEN;
            out[at..at + NUMBER_LEN].copy_from_slice(number);
            let check = checksum::finish(repeated.sum + checksum::sum(number));
            let at = repeated.l4 + 6;
            out[at..at + 2].copy_from_slice(&checksum::udp(check).to_be_bytes());
        }
        if let Some((l3, sum)) = repeated.v4 {
            let check = checksum::finish(sum + u64::from(self.id));
            out[l3 + 4..l3 + 6].copy_from_slice(&self.id.to_be_bytes());
            out[l3 + 10..l3 + 12].copy_from_slice(&check.to_be_bytes());
        }
        self.id = self.id.wrapping_add(1);
        len
    }

    /// Writes a TCP segment and returns its length. `payload` must fill the slice that it gets and return its sum.
    #[inline]
    pub(crate) fn tcp(
        &mut self,
        out: &mut [u8],
        path: &Path,
        header: &SegmentHeader,
        options: &[u8],
        payload_len: usize,
        payload: impl FnOnce(&mut [u8]) -> u64,
    ) -> usize {
        if self.outer.is_some() {
            return self.tunnelled(out, path, |builder, out, path| {
                builder.plain_tcp(out, path, header, options, payload_len, payload)
            });
        }
        self.plain_tcp(out, path, header, options, payload_len, payload)
    }

    #[inline(always)]
    fn plain_tcp(
        &mut self,
        out: &mut [u8],
        path: &Path,
        header: &SegmentHeader,
        options: &[u8],
        payload_len: usize,
        payload: impl FnOnce(&mut [u8]) -> u64,
    ) -> usize {
        let template = if path.local.is_v4() {
            &self.v4
        } else {
            &self.v6
        };
        let header_len = TcpView::LEN + options.len();
        let l4_len = header_len + payload_len;
        let addresses = template.start(out, path, self.id, l4_len);
        self.id = self.id.wrapping_add(1);
        let len = template.l4 + l4_len;
        let l4 = &mut out[template.l4..len];
        let (head, data) = l4.split_at_mut(header_len);
        let mut sum = addresses
            + u64::from(self.protocol)
            + l4_len as u64
            + u64::from(path.local_port)
            + u64::from(path.remote_port)
            + u64::from(header.seq)
            + u64::from(header.ack)
            + (u64::from(header_len as u16) << 10 | u64::from(header.flags))
            + u64::from(header.window);
        if !options.is_empty() {
            head[TcpView::LEN..].copy_from_slice(options);
            sum += checksum::partial(options);
        }
        if payload_len > 0 {
            sum += payload(data);
        }
        let view = TcpView {
            sport: path.local_port.into(),
            dport: path.remote_port.into(),
            sequence: header.seq.into(),
            acknowledgment: header.ack.into(),
            data_offset: (header_len as u8) << 2,
            flags: header.flags,
            window: header.window.into(),
            checksum: checksum::finish(sum).into(),
            urgent: 0.into(),
        };
        head[..TcpView::LEN].copy_from_slice(&view.to_bytes());
        len
    }

    /// Writes a UDP datagram and returns its length. `payload` must fill the slice that it gets and return its sum.
    #[inline]
    pub(crate) fn udp(
        &mut self,
        out: &mut [u8],
        path: &Path,
        payload_len: usize,
        payload: impl FnOnce(&mut [u8]) -> u64,
    ) -> usize {
        if self.outer.is_some() {
            return self.tunnelled(out, path, |builder, out, path| {
                builder.plain_udp(out, path, payload_len, payload)
            });
        }
        self.plain_udp(out, path, payload_len, payload)
    }

    #[inline(always)]
    fn plain_udp(
        &mut self,
        out: &mut [u8],
        path: &Path,
        payload_len: usize,
        payload: impl FnOnce(&mut [u8]) -> u64,
    ) -> usize {
        let template = if path.local.is_v4() {
            &self.v4
        } else {
            &self.v6
        };
        let l4_len = UdpView::LEN + payload_len;
        let addresses = template.start(out, path, self.id, l4_len);
        self.id = self.id.wrapping_add(1);
        let len = template.l4 + l4_len;
        let l4 = &mut out[template.l4..len];
        let (head, data) = l4.split_at_mut(UdpView::LEN);
        // The length counts twice: in the pseudo header and in the UDP header.
        let sum = addresses
            + u64::from(self.protocol)
            + 2 * l4_len as u64
            + u64::from(path.local_port)
            + u64::from(path.remote_port)
            + payload(data);
        let view = UdpView {
            sport: path.local_port.into(),
            dport: path.remote_port.into(),
            len: (l4_len as u16).into(),
            checksum: checksum::udp(checksum::finish(sum)).into(),
        };
        head.copy_from_slice(&view.to_bytes());
        len
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Filler, Message};
    use crate::parse::{Check, parse};
    use proptest::prelude::*;
    use std::net::{IpAddr, Ipv4Addr};

    proptest! {
        /// Parsing a built frame returns its input, with checksums verified.
        #[test]
        fn built_frames_parse(
            v6: bool, tcp: bool, vlan in prop::option::of(1u16..4095),
            local: u128, remote: u128, ports: u32, seq: u32, ack: u32, flags: u8, window: u16,
            with_options: bool, at in 0u32..500, len in 0u32..500, tunnelled: bool,
        ) {
            let address = |bits: u128| if v6 {
                Addr::from(IpAddr::from((bits | 1 << 127).to_be_bytes()))
            } else {
                Addr::v4(bits as u32)
            };
            let path = Path {
                to: MacAddr([2, 0, 0, 0, 0, 9]), local: address(local), remote: address(remote),
                local_port: (ports >> 16) as u16, remote_port: ports as u16,
            };
            let message = Message::new(b"some odd head", 1000, Filler::Random(3));
            let tunnel = Tunnel {
                vni: 0x12_3456, src_mac: MacAddr([6; 6]), dst_mac: MacAddr([8; 6]),
                local: Ipv4Addr::new(192, 0, 2, 1), remote: Ipv4Addr::new(192, 0, 2, 2),
            };
            let tunnel = tunnelled.then_some(tunnel);
            let mut builder = Builder::new(MacAddr([2, 0, 0, 0, 0, 1]), vlan, tunnel, 8, 64, tcp);
            let mut out = vec![0xaa; 2000];
            let options: &[u8] = if with_options && tcp { &[2, 4, 5, 0xb4, 1, 3, 3, 13] } else { &[] };
            let length = if tcp {
                let header = SegmentHeader { seq, ack, flags, window };
                builder.tcp(&mut out, &path, &header, options, len as usize, |p| message.write(at, p))
            } else {
                builder.udp(&mut out, &path, len as usize, |p| message.write(at, p))
            };
            if !tcp && !tunnelled {
                // A repeated datagram differs only in its identification.
                let repeated = builder.remember(&out[..length], &path);
                let mut again = vec![0xbb; 2000];
                prop_assert_eq!(builder.again(&repeated, None, &mut again), length);
                prop_assert!(parse(&again[..length], vlan, Check::All).is_ok());
                if len as usize >= NUMBER_LEN {
                    let mut other = vec![0xcc; 2000];
                    builder.again(&repeated, Some(b"twelve bytes"), &mut other);
                    let packet = parse(&other[..length], vlan, Check::All).expect("sound");
                    prop_assert_eq!(&packet.payload[..12], b"twelve bytes");
                    prop_assert_eq!(&other[length - len as usize + 12..length], &out[length - len as usize + 12..length]);
                }
                let (from, to) = if v6 { (0, 0) } else { (builder.v4.l3 + 4, builder.v4.l3 + 12) };
                prop_assert_eq!(&again[..from], &out[..from]);
                prop_assert_eq!(&again[to..length], &out[to..length]);
                prop_assert!(v6 || again[from..from + 2] == [0, 1]);
            }
            let mut frame = &out[..length];
            if let Some(tunnel) = tunnel {
                prop_assert_eq!(&frame[..12], &[2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 1]);
                let outside = parse(frame, vlan, Check::All).expect("sound");
                prop_assert_eq!(outside.src, Addr::v4(tunnel.local.to_bits()));
                prop_assert_eq!(outside.dst, Addr::v4(tunnel.remote.to_bits()));
                prop_assert!(outside.ports >> 30 == 3 && outside.ports & 0xffff == 4789);
                let theirs = Tunnel { local: tunnel.remote, remote: tunnel.local, ..tunnel };
                let there = |tunnel| Outer::new(tunnel, MacAddr([1; 6]), vlan, 0, 64);
                let other = there(Tunnel { vni: 9, ..theirs });
                prop_assert!(other.open(frame, vlan, Check::All).is_err());
                frame = there(theirs).open(frame, vlan, Check::All).expect("sound").0;
                prop_assert_eq!(&frame[..12], &[[8u8; 6], [6; 6]].concat());
            }
            let inner_vlan = if tunnelled { None } else { vlan };
            let packet = parse(frame, inner_vlan, Check::All).expect("sound");
            prop_assert_eq!((packet.src, packet.dst), (path.local, path.remote));
            prop_assert_eq!(packet.ports, ports);
            prop_assert_eq!(packet.tos, 8);
            prop_assert_eq!(packet.options, options);
            if tcp {
                prop_assert_eq!((packet.seq, packet.ack, packet.flags, packet.window), (seq, ack, flags, window));
            }
            let mut expected = vec![0; len as usize];
            message.write(at, &mut expected);
            prop_assert_eq!(packet.payload, &expected[..]);
        }
    }
}
