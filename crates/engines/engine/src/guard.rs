//! Decides if a source of frames may send to an address out of an interface. No other module makes this decision.
//!
//! Without the plan's consent (`i_own_this_network`), frames carry only addresses that belong to no network
//! ([`wb_model::reach`]), and leave only by interfaces that do not lead to the rest of the world
//! ([`wb_machine::Netlink::way_out`]). Unknown properties count as forbidden. Memory and files are no interfaces, so
//! they need no check. Sockets of the kernel follow its routes: HTTP loads may go to any server, but not to benchmark
//! and documentation addresses by the default route, because no such address is behind it.

use std::{
    net::{IpAddr, SocketAddr},
    ops::Range,
};

use wb_machine::{HostError, Namespace, Netlink};

use wb_model::{
    Plan, PlanError, PlanProblem, PortPlan, Proto, Stream,
    device::{DeviceConfig, Interface},
    load::{ALL_RIP_ROUTERS, LoadJob, LoadMessage},
    reach::{OUTSIDE, Reach, free_ranges, is_for_tests, is_free, is_free_range},
    units::AddressRange,
    vary::{Field, Pattern, Vary},
};
use wb_open::{StartError, Wire};
use wb_pktgen_device::Walker;
use wb_wire::{
    AddrSet, Arp, ArpOperation, MacAddr, NetworkHeader, Stack, TransportHeader, Udp, ethertype,
};

/// Refusal text for frames that cannot be judged.
const UNCLEAR: &str = "modified bytes may form any address; use --i-own-this-network (i_own_this_network = true) if you own the network";

/// A source of frames on a wire.
pub enum Source<'a> {
    /// A stream as it leaves the port, and the recording that the stream replays.
    Stream {
        /// Place of the stream in the plan.
        place: String,
        /// The stream.
        stream: &'a Stream,
        /// Frames of the recording that it replays.
        recording: Option<Vec<&'a [u8]>>,
    },
    /// One end of connections.
    Load(&'a LoadJob),
    /// A packet device.
    Device(&'a DeviceConfig, &'a Interface),
    /// Neighbour traffic of a port.
    Neighbours(&'a PortPlan),
}

/// Checks that connections to an address need no zone. A link-local address is ambiguous without its interface, and the
/// system would return EINVAL.
///
/// # Errors
/// Returns a text that names the missing interface.
pub fn needs_no_zone(server: &SocketAddr) -> Result<(), String> {
    match server {
        SocketAddr::V6(v6) if v6.ip().is_unicast_link_local() && v6.scope_id() == 0 => {
            Err(format!(
                "{0} is a link-local address and needs an interface: [{0}%INTERFACE]",
                v6.ip()
            ))
        }
        _ => Ok(()),
    }
}

/// Refuses servers with benchmark or documentation addresses that only the default route leads to: the requests would
/// leave for the Internet.
///
/// # Errors
/// Returns the first such address, with advice.
pub fn admit_servers(servers: impl IntoIterator<Item = IpAddr>) -> Result<(), String> {
    let mut tests = servers.into_iter().filter(|a| is_for_tests(*a)).peekable();
    if tests.peek().is_none() {
        return Ok(());
    }
    let netlink = Namespace::current().and_then(|here| Netlink::open(&here));
    // Consent does not help if descriptors run out.
    let consent = |e: &HostError| match e.is_out_of_descriptors() {
        true => "",
        false => CONSENT,
    };
    let netlink = netlink.map_err(|e| format!("cannot read the routes ({e}){}", consent(&e)))?;
    for address in tests {
        match netlink.leaves_by_default(address) {
            Ok(false) => {}
            Ok(true) => {
                return Err(format!(
                    "{address} is a benchmark or documentation address, but the default route would carry the requests; \
                     run inside a lab (wirebench lab exec NODE COMMAND){CONSENT}"
                ));
            }
            Err(e) => {
                let consent = consent(&e);
                return Err(format!("cannot read the route to {address} ({e}){consent}"));
            }
        }
    }
    Ok(())
}

/// Problems for all addresses in the frames of a stream that frames may go to only with consent.
#[must_use]
pub fn addresses_that_need_consent(stream: &Stream) -> Vec<PlanProblem> {
    let source = Source::Stream {
        place: "stream".to_owned(),
        stream,
        recording: None,
    };
    source.address_problems()
}

/// Advice for sending in spite of the refusal.
const CONSENT: &str =
    ", or use --i-own-this-network (i_own_this_network = true) if this is intended";

/// The plan's consent, checked for every source of frames.
#[derive(Clone, Copy, Debug)]
pub struct Guard {
    consent: bool,
}

impl Guard {
    /// Checks that HTTP requests may go to these servers over sockets of the kernel.
    pub fn servers(self, servers: &[SocketAddr]) -> Result<(), String> {
        match self.consent {
            true => Ok(()),
            false => admit_servers(servers.iter().map(SocketAddr::ip)),
        }
    }

    /// The consent of a plan.
    #[must_use]
    pub fn of(plan: &Plan) -> Self {
        Self {
            consent: plan.i_own_this_network,
        }
    }

    /// Checks that these sources may send out of this interface.
    pub fn admit(
        self,
        port: &PortPlan,
        wire: &Wire,
        sources: &[Source<'_>],
    ) -> Result<(), StartError> {
        self.addresses(sources)?;
        self.outlet(port, wire)
    }

    /// Checks that the sources may send to the addresses in their frames. The error names all forbidden addresses.
    pub fn addresses(self, sources: &[Source<'_>]) -> Result<(), StartError> {
        if self.consent {
            return Ok(());
        }
        let problems: Vec<PlanProblem> =
            sources.iter().flat_map(Source::address_problems).collect();
        match problems.is_empty() {
            true => Ok(()),
            false => Err(PlanError(problems).into()),
        }
    }

    /// Checks that frames may leave by this interface at all.
    pub fn outlet(self, port: &PortPlan, wire: &Wire) -> Result<(), StartError> {
        if self.consent {
            return Ok(());
        }
        let what = match wire.netlink.way_out(&wire.interface.name) {
            Ok(None) => return Ok(()),
            Ok(Some(way)) => way.to_string(),
            Err(error) if error.is_out_of_descriptors() => {
                return Err(StartError::host(&port.locator, error));
            }
            Err(error) => {
                format!("cannot determine if the default route leaves by this interface ({error})")
            }
        };
        Err(StartError::stream(
            port.locator.to_string(),
            format!(
                "{what}; the test would reach the network behind it; use --i-own-this-network if this is intended"
            ),
        ))
    }

    /// Checks that a walker may continue from the position at which earlier runs left it.
    pub fn walker(self, walker: &Walker) -> Result<(), StartError> {
        let at = walker.progress();
        let current: [IpAddr; 4] = [
            std::net::Ipv4Addr::from(at.saddr).into(),
            std::net::Ipv4Addr::from(at.daddr).into(),
            at.saddr6.into(),
            at.daddr6.into(),
        ];
        match current.into_iter().find(|a| !is_free(*a)) {
            Some(address) if !self.consent => Err(StartError::stream(
                walker.config().name.clone(),
                format!("{address} {OUTSIDE}"),
            )),
            _ => Ok(()),
        }
    }

    /// Addresses that get answers; `None` answers every sender.
    pub fn answered(self) -> Option<AddrSet> {
        (!self.consent).then(|| {
            let mut set = AddrSet::default();
            for (base, bits) in free_ranges() {
                set.insert_prefix(base, bits);
            }
            set
        })
    }

    /// Returns true if an answer of the neighbour responder may leave. Neighbour messages stay on the link.
    pub fn may_answer(self, frame: &[u8]) -> bool {
        self.consent
            || is_neighbours_talk(frame)
            || wb_wire::addresses(frame, &[])
                .is_ok_and(|found| found.into_iter().all(may_stand_in_frames))
    }
}

/// Returns true for ARP and the neighbour messages of ICMPv6 (RFC 4861).
fn is_neighbours_talk(frame: &[u8]) -> bool {
    let Some((_, mut kind, mut rest)) = wb_wire::Ethernet::parse(frame) else {
        return false;
    };
    while wb_wire::Vlan::is_tpid(kind) {
        let Some((_, inner, after)) = wb_wire::Vlan::parse(kind, rest) else {
            return false;
        };
        (kind, rest) = (inner, after);
    }
    kind == ethertype::ARP
        || kind == ethertype::IPV6
            && rest.get(6) == Some(&wb_wire::protocol::ICMPV6)
            && matches!(rest.get(40), Some(133..=136))
}

/// Returns true for an address that no router forwards: the free addresses, multicast on the link and the limited
/// broadcast.
fn may_stand_in_frames(address: IpAddr) -> bool {
    is_free(address)
        || match address {
            IpAddr::V4(a) => a.is_broadcast() || a.octets()[..3] == [224, 0, 0],
            IpAddr::V6(a) => a.segments()[0] == 0xff02,
        }
}

impl Source<'_> {
    /// Problems for all addresses in the source's frames that frames may not go to.
    fn address_problems(&self) -> Vec<PlanProblem> {
        match self {
            Source::Stream {
                place,
                stream,
                recording,
            } => {
                let own = stream.reach();
                let mut found = outside(place, &own);
                found.extend(match recording {
                    Some(recording) => strange_recording(place, stream, recording),
                    None => strange_bytes(place, stream, &own),
                });
                found
            }
            Source::Load(job) => {
                let mut reach = job.reach();
                // Routers do not forward routing updates.
                let is_rip = matches!(job.request, LoadMessage::Rip(_));
                reach.retain(|(_, range)| {
                    !(is_rip && *range == AddressRange::single(ALL_RIP_ROUTERS.into()))
                });
                outside(&format!("load {}", job.name), &reach)
            }
            Source::Device(settings, interface) => {
                outside(&settings.name, &settings.reach(interface))
            }
            Source::Neighbours(port) => outside(&port.title(), &port.reach()),
        }
    }
}

fn outside(place: &str, reach: &[Reach]) -> Vec<PlanProblem> {
    let strange = reach.iter().filter(|(_, range)| !is_free_range(range));
    strange
        .map(|(key, range)| PlanProblem {
            place: format!("{place}, {key}"),
            what: format!("{range} {OUTSIDE}"),
        })
        .collect()
}

fn strange_recording(place: &str, stream: &Stream, recording: &[&[u8]]) -> Option<PlanProblem> {
    let file = stream.replay.as_deref().unwrap_or_default();
    let strange = |(number, frame): (usize, &&[u8])| {
        let what = match wb_wire::addresses(frame, &[]) {
            Ok(found) => {
                let address = found.into_iter().find(|a| !may_stand_in_frames(*a))?;
                format!("{address} in frame {number} {OUTSIDE}")
            }
            Err(_) => {
                format!(
                    "frame {number} is nested too deeply to check; use --i-own-this-network (i_own_this_network = true) if you own the network"
                )
            }
        };
        Some(PlanProblem {
            place: format!("{place}, replay {file}"),
            what,
        })
    };
    (1..).zip(recording).find_map(strange)
}

/// Checks the bytes of a built frame outside the named fields: a payload that is a packet, and modifiers that write
/// anywhere.
fn strange_bytes(place: &str, stream: &Stream, own: &[Reach]) -> Option<PlanProblem> {
    let (frame, changing) = first_frame(stream);
    let what = match wb_wire::address_fields(&frame, &changing) {
        Ok(found) => {
            let named = |a: IpAddr| own.iter().any(|(_, range)| range.contains(a));
            let mut found = found
                .iter()
                .filter_map(|field| varied(stream, &frame, field));
            let range = found.find(|range| match range.first() == range.last() {
                true => !named(range.first()) && !may_stand_in_frames(range.first()),
                false => !is_free_range(range),
            })?;
            format!("{range} {OUTSIDE}")
        }
        Err(_) => UNCLEAR.to_owned(),
    };
    let at = stream
        .vary
        .iter()
        .find(|v| matches!(v.field, Field::At { .. }));
    Some(PlanProblem {
        place: match at {
            Some(vary) => format!("{place}, vary {}", vary.field),
            None => format!("{place}, payload"),
        },
        what,
    })
}

/// Smallest range that contains all values of an address field of a stream's frames, with modified bytes. For modifiers
/// that change some bits, or reach beyond the field, the range has all values of these bits.
fn varied(stream: &Stream, frame: &[u8], field: &Range<usize>) -> Option<AddressRange> {
    let (mut low, mut high) = (frame[field.clone()].to_vec(), frame[field.clone()].to_vec());
    for vary in &stream.vary {
        let Field::At { offset, width } = vary.field else {
            continue;
        };
        let (offset, width) = (usize::from(offset), usize::from(width));
        let is_inside = field.start <= offset && offset + width <= field.end;
        if vary.mask.is_some() || !is_inside {
            for (at, bits) in changing_bits(vary).filter(|(at, _)| field.contains(at)) {
                low[at - field.start] &= !bits;
                high[at - field.start] |= bits;
            }
            continue;
        }
        let all = u128::MAX >> (128 - 8 * width);
        let (first, last) = match &vary.pattern {
            Pattern::List(list) => (
                list.iter().copied().min().unwrap_or(0),
                list.iter().copied().max().unwrap_or(all),
            ),
            Pattern::Increment(r) | Pattern::Decrement(r) | Pattern::Random(r) => (r.first, r.last),
        };
        let at = offset - field.start;
        low[at..at + width].copy_from_slice(&first.to_be_bytes()[16 - width..]);
        high[at..at + width].copy_from_slice(&last.to_be_bytes()[16 - width..]);
    }
    AddressRange::between(wb_wire::address_in(&low)?, wb_wire::address_in(&high)?)
}

/// Bytes that a modifier by offset writes, each with the bits that it changes.
fn changing_bits(vary: &Vary) -> impl Iterator<Item = (usize, u8)> {
    let (offset, width) = match vary.field {
        Field::At { offset, width } => (usize::from(offset), usize::from(width)),
        _ => (0, 0),
    };
    let mask = vary.mask.unwrap_or(u128::MAX).to_be_bytes();
    let bits = mask.into_iter().skip(mask.len() - width);
    (offset..).zip(bits)
}

/// Returns a stream's frame of the largest size, and its bits that change other than through the named fields.
fn first_frame(stream: &Stream) -> (Vec<u8>, Vec<u8>) {
    let ends = (stream.source().first(), stream.destination().first());
    let dport = stream.destination_ports().first;
    let transport = match stream.proto {
        Proto::Tcp => TransportHeader::Tcp(wb_wire::Tcp::new(0, dport)),
        Proto::Icmp => TransportHeader::Echo(wb_wire::Echo::request(0, 0)),
        _ => TransportHeader::Udp(Udp::new(0, dport)),
    };
    let network = match (stream.proto, ends) {
        (Proto::Arp, (IpAddr::V4(sender_ip), IpAddr::V4(target_ip))) => NetworkHeader::Arp(Arp {
            operation: ArpOperation::Request,
            sender_mac: MacAddr::ZERO,
            sender_ip,
            target_mac: MacAddr::ZERO,
            target_ip,
        }),
        (Proto::Udp | Proto::Tcp | Proto::Icmp, (IpAddr::V4(src), IpAddr::V4(dst))) => {
            NetworkHeader::Ipv4(wb_wire::Ipv4::new(src, dst), transport)
        }
        (Proto::Udp | Proto::Tcp | Proto::Icmp, (IpAddr::V6(src), IpAddr::V6(dst))) => {
            NetworkHeader::Ipv6(wb_wire::Ipv6::new(src, dst), transport)
        }
        _ => NetworkHeader::None {
            ethertype: stream.ethertype.unwrap_or(ethertype::EXPERIMENTAL),
        },
    };
    let stack = Stack {
        vlans: stream.vlan_tags(),
        mpls: stream.mpls_labels(),
        extensions: stream.extension_headers(),
        ..Stack::over(network)
    };
    let given = stream.headers.as_ref().map_or(&[][..], |bytes| &bytes.0);
    let len = stream.sizes().largest().len_without_fcs();
    let (mut frame, layout) = stack.build_with_layout(len.max(stack.min_len() + given.len()));
    let headers = layout.payload + given.len();
    frame[layout.payload..headers].copy_from_slice(given);
    let tag = headers..headers + stream.tag_len() as usize;
    if let (Some(pattern), Some(rest)) = (&stream.payload, frame.get_mut(tag.end..)) {
        let bytes = rest.iter_mut().zip(pattern.0.iter().cycle());
        bytes.for_each(|(to, from)| *to = *from);
    }
    let mut changing = vec![0; frame.len()];
    for (at, bits) in stream.vary.iter().flat_map(changing_bits) {
        if let Some(own) = changing.get_mut(at) {
            *own |= bits;
        }
    }
    if let Some(own) = changing.get_mut(tag) {
        own.fill(0xff);
    }
    (frame, changing)
}

#[cfg(test)]
mod tests {
    use wb_model::device::Defaults;

    use wb_model::TagKind;

    use super::*;

    fn refused(source: &Source<'_>) -> bool {
        let one = std::slice::from_ref(source);
        let guard = Guard { consent: true };
        assert!(guard.addresses(one).is_ok());
        Guard { consent: false }.addresses(one).is_err()
    }

    fn stream_is_refused(stream: &Stream) -> bool {
        refused(&Source::Stream {
            place: "stream".to_owned(),
            stream,
            recording: None,
        })
    }

    fn changed(change: impl FnOnce(&mut Stream)) -> Stream {
        let mut stream = Stream::default();
        change(&mut stream);
        stream
    }

    #[test]
    fn streams_are_judged_by_both_ends_and_by_what_is_written_over_them() {
        assert!(!stream_is_refused(&Stream::default()));
        for (key, value) in [("src", "8.8.8.8"), ("dst", "198.18.0.1-198.51.100.1")] {
            let range = Some(value.parse().unwrap());
            let stream = changed(|s| match key {
                "src" => s.src = range,
                _ => s.dst = range,
            });
            assert!(stream_is_refused(&stream), "{key}");
            assert!(stream_is_refused(&stream.reversed()), "{key}");
            assert!(
                stream_is_refused(&Stream {
                    proto: Proto::Arp,
                    ..stream
                }),
                "{key}"
            );
        }
        for (vary, expected) in [
            ("src=list:198.18.0.1,8.8.8.8", true),
            ("u8@33=random:0-255", false),
            ("u32@30=list:3323002882,134744072", true),
            ("u16@33=random:0-255", false),
            ("u16@25=random:0-255", true),
            ("u32@26=random:0-255,mask=0xff", false),
            ("u32@26=random:0-255,mask=0x80ff", false),
            ("u32@26=random:0-255,mask=0x01000000", true),
            ("u8@26=random:0-255", true),
            ("u16@12=random:0-65535", true),
            ("u32@27=random:0-255", true),
            ("u32@34=random:0-255", false),
            ("u8@23=random:0-255", false),
        ] {
            let stream = changed(|s| s.vary = vec![vary.parse().unwrap()]);
            assert_eq!(stream_is_refused(&stream), expected, "{vary}");
        }
    }

    #[test]
    fn raw_frames_are_judged_by_their_bytes() {
        let ip = Stack::udp4([198, 18, 0, 1], [8, 8, 8, 8], 1, 7).build(60);
        let hex: String = ip[14..].iter().map(|b| format!("{b:02x}")).collect();
        let raw = |ethertype, tag| {
            changed(|s| {
                s.proto = Proto::Raw;
                s.payload = Some(hex.parse().unwrap());
                (s.ethertype, s.tag) = (ethertype, tag);
            })
        };
        assert!(stream_is_refused(&raw(Some(0x0800), TagKind::None)));
        // The bytes of a tag cannot be known in advance.
        assert!(stream_is_refused(&raw(Some(0x0800), TagKind::Wirebench)));
        assert!(!stream_is_refused(&raw(None, TagKind::None)));
        // A packet within a packet.
        let tunnel = changed(|s| {
            s.dport = Some("4789".parse().unwrap());
            s.payload = Some(
                format!("0800000000000100{}0800{hex}", "02".repeat(12))
                    .parse()
                    .unwrap(),
            );
            s.size = Some("128".parse().unwrap());
            s.tag = TagKind::None;
        });
        assert!(stream_is_refused(&tunnel));
    }

    #[test]
    fn bits_beside_a_version_may_vary() {
        let free = std::net::Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1);
        let ip = Stack::udp6(free, free, 1, 7).build(80);
        let refused = |vary: &str| {
            let hex: String = ip[14..62].iter().map(|b| format!("{b:02x}")).collect();
            stream_is_refused(&changed(|s| {
                (s.proto, s.ethertype) = (Proto::Raw, Some(ethertype::IPV6));
                s.headers = Some(hex.parse().unwrap());
                s.size = Some("128".parse().unwrap());
                s.vary = vec![vary.parse().unwrap()];
            }))
        };
        // Flow label, traffic class, version.
        assert!(!refused("u32@14=inc:0-99,mask=0xfffff"));
        assert!(!refused("u16@14=inc:0-4080,step=16,mask=0xff0"));
        assert!(refused("u16@14=inc:0-4080,step=16"));
        assert!(refused("u8@14=list:64,mask=0xf0"));
    }

    #[test]
    fn recordings_are_judged_frame_by_frame() {
        let good = Stack::udp4([198, 18, 0, 1], [224, 0, 0, 251], 1, 7).build(60);
        let bad = Stack::udp4([8, 8, 8, 8], [198, 18, 0, 1], 1, 7).build(60);
        for (frames, expected) in [(vec![&good[..]], false), (vec![&good, &bad], true)] {
            let stream = changed(|s| s.replay = Some("f.pcap".to_owned()));
            let source = Source::Stream {
                place: "stream".to_owned(),
                stream: &stream,
                recording: Some(frames),
            };
            assert_eq!(refused(&source), expected);
        }
    }

    #[test]
    fn every_address_of_a_load_counts() {
        let range = |text: &str| vec![text.parse().unwrap()];
        let good = LoadJob {
            clients: range("198.18.0.2"),
            servers: range("198.19.0.2"),
            ..LoadJob::default()
        };
        assert!(!refused(&Source::Load(&good)));
        for job in [
            LoadJob {
                clients: range("8.8.8.8"),
                ..good.clone()
            },
            LoadJob {
                servers: range("10.0.0.1-192.168.0.1"),
                ..good.clone()
            },
            LoadJob {
                destinations: vec![wb_model::load::Destinations {
                    addresses: "198.18.0.0-198.20.0.0".parse().unwrap(),
                    step: 1,
                }],
                ..good.clone()
            },
            LoadJob {
                vxlan: Some(wb_model::load::Vxlan {
                    vni: 1,
                    src_mac: "02:00:00:00:00:01".parse().unwrap(),
                    dst_mac: "02:00:00:00:00:02".parse().unwrap(),
                    local: "198.18.0.1".parse().unwrap(),
                    remote: "8.8.8.8".parse().unwrap(),
                }),
                ..good.clone()
            },
        ] {
            assert!(refused(&Source::Load(&job)), "{job:?}");
        }
        let mut port = PortPlan::new("a", "eth0".parse().unwrap());
        assert!(!refused(&Source::Neighbours(&port)));
        port.gateway = Some("8.8.8.8".parse().unwrap());
        assert!(refused(&Source::Neighbours(&port)));
    }

    #[test]
    fn devices_are_judged_by_all_they_may_walk_through() {
        let interface = Interface::default();
        let device = |change: &dyn Fn(&mut DeviceConfig)| {
            let mut config = DeviceConfig::new("eth0", &Defaults::default());
            change(&mut config);
            refused(&Source::Device(&config, &interface))
        };
        assert!(!device(&|_| {}));
        assert!(!device(
            &|c| (c.dst_min, c.dst_max) = ("198.18.0.1".into(), "198.19.0.1".into())
        ));
        assert!(device(
            &|c| (c.dst_min, c.dst_max) = ("10.0.0.1".into(), "192.168.0.1".into())
        ));
        // A change during a run continues from the upper end, even if that is below the lower end.
        assert!(device(
            &|c| (c.src_min, c.src_max) = ("10.0.0.1".into(), "8.8.8.8".into())
        ));
        assert!(device(&|c| c.dst_min = "notanip".into()));
        assert!(device(&|c| c.dst6 = "2600::1".parse().unwrap()));
        assert!(!device(&|c| {
            c.dst6_min = "fd00::1".parse().unwrap();
            c.dst6_max = "fd00::ff".parse().unwrap();
        }));
        assert!(device(&|c| {
            c.dst6_min = "fd00::1".parse().unwrap();
            c.dst6_max = "ffff::ff".parse().unwrap();
        }));
    }

    #[test]
    fn answers_go_to_free_addresses_and_to_neighbours() {
        let guard = Guard { consent: false };
        let strange = Stack::udp4([198, 18, 0, 1], [8, 8, 8, 8], 1, 7).build(60);
        assert!(!guard.may_answer(&strange));
        assert!(Guard { consent: true }.may_answer(&strange));
        let arp = first_frame(&changed(|s| {
            s.proto = Proto::Arp;
            s.dst = Some("8.8.8.8".parse().unwrap());
        }));
        assert!(guard.may_answer(&arp.0));
        let set = guard.answered().unwrap();
        assert!(
            set.contains("198.18.0.1".parse().unwrap())
                && !set.contains("8.8.8.8".parse().unwrap())
        );
        assert!(Guard { consent: true }.answered().is_none());
    }
}
