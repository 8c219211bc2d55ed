//! Values derived from a stream's options: family, header lengths, flows, minimum size.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use wb_wire::{Ipv6Extension, MplsLabel, Vlan};

use crate::{
    plan::{Extension, Proto, Stream, TagKind},
    units::{AddressRange, FrameSize, PortRange, Rate, Rational, SizeModel},
};

/// Default source: RFC 2544 C.2.2, the tester on the first input network.
pub const DEFAULT_SRC4: Ipv4Addr = Ipv4Addr::new(198, 18, 1, 2);
/// Default destination: RFC 2544 C.2.2, the tester on the first output network.
pub const DEFAULT_DST4: Ipv4Addr = Ipv4Addr::new(198, 19, 1, 2);
/// Default IPv6 source in the block of RFC 5180 (2001:2::/48).
pub const DEFAULT_SRC6: Ipv6Addr = Ipv6Addr::new(0x2001, 2, 0, 1, 0, 0, 0, 2);
/// Default IPv6 destination in the block of RFC 5180.
pub const DEFAULT_DST6: Ipv6Addr = Ipv6Addr::new(0x2001, 2, 0, 0x8001, 0, 0, 0, 2);
/// Default source port: RFC 2544 C.2.6.4.
pub const DEFAULT_SPORT: u16 = 49_184;
/// Default destination port: echo, RFC 2544 C.2.6.4.
pub const DEFAULT_DPORT: u16 = 7;
/// Maximum number of flows of one stream.
pub const MAX_FLOWS: u32 = 1 << 24;
/// One more than the largest flow number in a test tag. This and all larger numbers are not flow numbers.
pub const PAST_LAST_FLOW: u32 = u32::MAX - 1;
/// Maximum number of flows derived from ranges, if their number is not given.
pub const MAX_IMPLIED_FLOWS: u32 = 65_536;
/// Length of the program's tag, in bytes.
pub const TAG_LEN: u32 = 18;
/// Length of the Linux packet generator's header, in bytes.
pub const PKTGEN_TAG_LEN: u32 = 16;

impl Stream {
    /// VLAN tags of the frames, outermost first.
    #[must_use]
    pub fn vlan_tags(&self) -> Vec<Vlan> {
        let ids: Vec<u16> = self.vlan.iter().map(|vlan| vlan.id).collect();
        let mut tags = Vlan::stack(&ids);
        for (tag, planned) in tags.iter_mut().zip(&self.vlan) {
            tag.priority = planned.priority;
        }
        tags
    }

    /// MPLS labels of the frames, outermost first.
    #[must_use]
    pub fn mpls_labels(&self) -> Vec<MplsLabel> {
        self.mpls.iter().copied().map(MplsLabel::new).collect()
    }

    /// IPv6 extension headers of the frames.
    #[must_use]
    pub fn extension_headers(&self) -> Vec<Ipv6Extension> {
        let header = |extension: &Extension| match extension {
            Extension::HopByHop => Ipv6Extension::HopByHop,
            Extension::Routing => Ipv6Extension::Routing,
            Extension::Fragment => Ipv6Extension::Fragment,
            Extension::Destination => Ipv6Extension::Destination,
        };
        self.ext.iter().map(header).collect()
    }

    /// Returns true if the packets are IPv6.
    #[must_use]
    pub fn is_ipv6(&self) -> bool {
        match (&self.src, &self.dst) {
            (Some(a), _) | (None, Some(a)) => a.is_ipv6(),
            (None, None) => self.ipv6,
        }
    }

    /// Source addresses; the default if not given.
    #[must_use]
    pub fn source(&self) -> AddressRange {
        self.src.unwrap_or(AddressRange::single(if self.is_ipv6() {
            IpAddr::V6(DEFAULT_SRC6)
        } else {
            IpAddr::V4(DEFAULT_SRC4)
        }))
    }

    /// Destination addresses; the default if not given.
    #[must_use]
    pub fn destination(&self) -> AddressRange {
        self.dst.unwrap_or(AddressRange::single(if self.is_ipv6() {
            IpAddr::V6(DEFAULT_DST6)
        } else {
            IpAddr::V4(DEFAULT_DST4)
        }))
    }

    /// Source ports; the default if not given. With many flows and no given range, 1024 to 65535.
    #[must_use]
    pub fn source_ports(&self) -> PortRange {
        let alone = self.src.is_none_or(|r| r.count() == 1)
            && self.dst.is_none_or(|r| r.count() == 1)
            && self.dport.is_none_or(|r| r.count() == 1);
        self.sport
            .unwrap_or(if alone && self.flows.unwrap_or(1) > 1 {
                PortRange {
                    first: 1024,
                    last: u16::MAX,
                }
            } else {
                PortRange::single(DEFAULT_SPORT)
            })
    }

    /// Destination ports; the default if not given. If source ports alone do not provide enough flows, several
    /// destination ports are used.
    #[must_use]
    pub fn destination_ports(&self) -> PortRange {
        let implied = PortRange::single(DEFAULT_DPORT);
        if let Some(range) = self.dport {
            return range;
        }
        let others = self
            .source()
            .count()
            .saturating_mul(self.destination().count())
            * u128::from(self.source_ports().count());
        let wanted = u128::from(self.flows.unwrap_or(1));
        if self.sport.is_none() && wanted > others {
            let more = wanted
                .div_ceil(others.max(1))
                .min(u128::from(u16::MAX - DEFAULT_DPORT));
            return PortRange {
                first: DEFAULT_DPORT,
                last: DEFAULT_DPORT - 1 + u16::try_from(more).unwrap_or(u16::MAX),
            };
        }
        implied
    }

    /// Number of distinct 5-tuples (or address pairs) in the ranges; saturates.
    #[must_use]
    pub fn tuples(&self) -> u128 {
        if self.replay.is_some() || self.proto == Proto::Raw {
            return 1;
        }
        let addresses = self
            .source()
            .count()
            .saturating_mul(self.destination().count());
        match self.proto {
            Proto::Udp | Proto::Tcp | Proto::Icmp => addresses
                .saturating_mul(u128::from(self.source_ports().count()))
                .saturating_mul(u128::from(self.destination_ports().count())),
            Proto::Arp | Proto::Raw => addresses,
        }
    }

    /// Number of flows of this stream.
    #[must_use]
    pub fn flow_count(&self) -> u32 {
        self.flows.unwrap_or_else(|| {
            u32::try_from(self.tuples().min(u128::from(MAX_IMPLIED_FLOWS)))
                .unwrap_or(MAX_IMPLIED_FLOWS)
        })
    }

    /// Length of the headers before the tag, in bytes: Ethernet, VLAN tags, labels, IP, extension headers, layer 4.
    #[must_use]
    pub fn header_len(&self) -> u32 {
        let below =
            14 + 4 * u32::try_from(self.vlan.len() + self.mpls.len()).unwrap_or(u32::MAX / 8);
        let extensions: u32 = self.ext.iter().map(|e| e.octets()).sum();
        let ip = if self.is_ipv6() { 40 + extensions } else { 20 };
        below
            + match self.proto {
                Proto::Udp | Proto::Icmp => ip + 8,
                Proto::Tcp => ip + 20,
                Proto::Arp => 28,
                Proto::Raw => self.given_headers(),
            }
    }

    /// Length of the given header bytes.
    fn given_headers(&self) -> u32 {
        let bytes = self.headers.as_ref().map_or(0, |bytes| bytes.0.len());
        u32::try_from(bytes).unwrap_or(u32::MAX / 8)
    }

    /// Length of the tag, in bytes.
    #[must_use]
    pub const fn tag_len(&self) -> u32 {
        match self.tag {
            TagKind::Wirebench => TAG_LEN,
            TagKind::Pktgen => PKTGEN_TAG_LEN,
            TagKind::None => 0,
        }
    }

    /// Smallest frame size (with FCS) that fits headers and tag.
    #[must_use]
    pub fn smallest_size(&self) -> FrameSize {
        let needed = self.header_len() + self.tag_len() + FrameSize::FCS;
        FrameSize::new(needed.max(FrameSize::MIN.get())).unwrap_or(FrameSize::MAX)
    }

    /// Sizes of the sent frames: the default if not given, and small entries of a mix or range raised to
    /// [`Stream::smallest_size`].
    #[must_use]
    pub fn sizes(&self) -> SizeModel {
        let least = self.smallest_size();
        match &self.size {
            None => SizeModel::Fixed(least),
            Some(SizeModel::Mix(list)) => SizeModel::Mix(
                list.iter()
                    .map(|(size, weight)| ((*size).max(least), *weight))
                    .collect(),
            ),
            Some(other) => other.clone(),
        }
    }

    /// Frames per second over all workers; `None` at `max`, or with recorded timing. For a replay, only if its rate is
    /// a frame rate: see [`Stream::frames_per_second_of`].
    #[must_use]
    pub fn frames_per_second(&self, line: Option<u64>) -> Option<Rational> {
        if self.replay.is_some()
            && matches!(self.rate, Rate::L1(_) | Rate::L2(_) | Rate::Percent(_))
        {
            return None;
        }
        self.frames_per_second_of(self.sizes().mean(), line)
    }

    /// Returns the frames per second for frames of this mean size in bytes, with FCS.
    #[must_use]
    pub fn frames_per_second_of(&self, mean_size: Rational, line: Option<u64>) -> Option<Rational> {
        if let (Some(burst), Some(gap)) = (self.burst, self.gap) {
            return Rational::new(
                u128::from(burst) * 1_000_000_000,
                u128::from(gap.as_nanos()),
            );
        }
        if self.speed.is_some() {
            return None;
        }
        self.rate.frames_per_second(mean_size, line)
    }

    /// Time from the first to the last frame of a burst in ns, if the burst has a rate.
    pub(crate) fn burst_ns(&self) -> Option<u128> {
        let (Some(burst), Rate::Pps(rate)) = (self.burst, self.rate) else {
            return None;
        };
        let unit = 1_000_000_000 * u128::from(rate.denominator());
        let frames = u128::from(burst.saturating_sub(1));
        (frames * unit).checked_div(u128::from(rate.numerator()))
    }

    /// Returns the stream of the reverse direction, with addresses, ports and hardware addresses exchanged. Hardware
    /// addresses are resolved again.
    #[must_use]
    pub fn reversed(&self) -> Self {
        Self {
            src: Some(self.destination()),
            dst: Some(self.source()),
            sport: Some(self.destination_ports()),
            dport: Some(self.source_ports()),
            flows: Some(self.flow_count()),
            src_mac: self.dst_mac,
            dst_mac: self.src_mac,
            ..self.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn smallest_sizes_of_the_vocabulary() {
        let size = |f: fn(&mut Stream)| {
            let mut s = Stream::default();
            f(&mut s);
            s.smallest_size().get()
        };
        let tag = |id| crate::plan::VlanSpec { id, priority: 0 };
        assert_eq!(size(|_| {}), 64);
        assert_eq!(size(|s| s.ipv6 = true), 84);
        assert_eq!(size(|s| s.proto = Proto::Tcp), 76);
        let chain = |s: &mut Stream| {
            s.ipv6 = true;
            s.ext = vec![
                crate::plan::Extension::Routing,
                crate::plan::Extension::Fragment,
                crate::plan::Extension::Destination,
            ];
        };
        assert_eq!(size(chain), 124);
        assert_eq!(size(|s| s.proto = Proto::Arp), 64);
        let mut s = Stream {
            vlan: vec![tag(10)],
            ..Stream::default()
        };
        assert_eq!(s.smallest_size().get(), 68);
        s.vlan.push(tag(20));
        assert_eq!(s.smallest_size().get(), 72);
    }

    #[test]
    fn many_flows_find_room() {
        for flows in [1, 2, 64_512, 65_536, 1_000_000, MAX_FLOWS] {
            let s = Stream {
                flows: Some(flows),
                ..Stream::default()
            };
            assert!(s.tuples() >= u128::from(flows), "{flows}: {}", s.tuples());
            assert_eq!(s.flow_count(), flows);
        }
        let s = Stream {
            sport: Some("1000-1999".parse().unwrap()),
            ..Stream::default()
        };
        assert_eq!(s.flow_count(), 1000);
    }
}
