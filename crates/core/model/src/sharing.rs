//! Jobs that share a port: checks that the received frames of each job can be distinguished.

use crate::{
    Driver,
    kinds::JobKind,
    load::{LoadEnd, LoadJob, LoadTransport},
    plan::{Plan, PortPlan, Proto, SendWay, Stream, TagKind, TrafficJob},
    units::{AddressRange, PortRange},
    validate::Findings,
};

/// Port of VXLAN (RFC 7348 section 5).
const VXLAN_PORT: u16 = 4789;
const ANY_PORT: PortRange = PortRange {
    first: 0,
    last: u16::MAX,
};

/// Common properties of the frames that a load receives.
#[derive(Clone, Debug, PartialEq)]
pub struct Incoming {
    /// VLAN id; `None` for untagged frames.
    pub vlan: Option<u16>,
    /// Transport of the outermost packet.
    pub transport: LoadTransport,
    /// Source ports.
    pub from_ports: PortRange,
    /// Destination ports.
    pub to_ports: PortRange,
    /// Source addresses; empty for any.
    pub from: Vec<AddressRange>,
    /// Destination addresses; empty for any.
    pub to: Vec<AddressRange>,
}

/// Fields required in addition to transport and ports to distinguish the frames of two jobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Mark {
    /// No further fields.
    #[default]
    None,
    /// Addresses.
    Addresses,
    /// Test tag of a stream.
    Tag,
}

impl Incoming {
    /// Returns the properties of the frames that a load receives.
    #[must_use]
    pub fn of(job: &LoadJob) -> Self {
        let plain = Self {
            vlan: job.vlan,
            transport: job.transport,
            from_ports: ANY_PORT,
            to_ports: job.server_ports,
            from: job.clients.clone(),
            to: job.servers.clone(),
        };
        match (&job.vxlan, job.end) {
            (Some(tunnel), _) => Self {
                transport: LoadTransport::Udp,
                to_ports: PortRange::single(VXLAN_PORT),
                from: Vec::new(),
                to: vec![tunnel.local],
                ..plain
            },
            (None, LoadEnd::Server) => plain,
            (None, LoadEnd::Client) => Self {
                from_ports: job.server_ports,
                to_ports: job.client_ports,
                from: match job.destinations.is_empty() {
                    true => job.servers.clone(),
                    // The destinations answer, or any device on the path to them.
                    false => Vec::new(),
                },
                to: job.clients.clone(),
                ..plain
            },
        }
    }

    /// Returns the properties of a stream with the transport of a load; fields that vary between frames may have any
    /// value.
    fn of_stream(stream: &Stream, transport: LoadTransport, vlan: Option<u16>) -> Self {
        let fixed = stream.vary.is_empty();
        let ports = |ports| if fixed { ports } else { ANY_PORT };
        let addresses = |range| if fixed { vec![range] } else { Vec::new() };
        Self {
            vlan,
            transport,
            from_ports: ports(stream.source_ports()),
            to_ports: ports(stream.destination_ports()),
            from: addresses(stream.source()),
            to: addresses(stream.destination()),
        }
    }

    /// Returns the fields that distinguish these frames from others; `None` if they cannot be distinguished.
    fn apart_from(&self, other: &Self) -> Option<Mark> {
        let apart = |a: PortRange, b: PortRange| a.last < b.first || b.last < a.first;
        if self.vlan != other.vlan
            || self.transport != other.transport
            || apart(self.from_ports, other.from_ports)
            || apart(self.to_ports, other.to_ports)
        {
            return Some(Mark::None);
        }
        let disjoint = disjoint(&self.from, &other.from) || disjoint(&self.to, &other.to);
        disjoint.then_some(Mark::Addresses)
    }
}

/// Returns true if the lists have no common address; an empty list contains all addresses.
fn disjoint(some: &[AddressRange], others: &[AddressRange]) -> bool {
    let apart = |a: &AddressRange, b: &AddressRange| a.last() < b.first() || b.last() < a.first();
    let known = !some.is_empty() && !others.is_empty();
    known && some.iter().all(|a| others.iter().all(|b| apart(a, b)))
}

impl LoadJob {
    /// Returns the fields that distinguish its frames from those of another load; `None` if they cannot be
    /// distinguished.
    fn apart_from_load(&self, other: &Self) -> Option<Mark> {
        Incoming::of(self).apart_from(&Incoming::of(other))
    }

    /// Returns the fields that distinguish its frames from those of a stream; `None` if they cannot be distinguished.
    fn apart_from_stream(&self, stream: &Stream) -> Option<Mark> {
        let own = Incoming::of(self);
        let same = match own.transport {
            LoadTransport::Udp => stream.proto == Proto::Udp,
            LoadTransport::Tcp => stream.proto == Proto::Tcp,
        };
        if !same {
            return Some(Mark::None);
        }
        // A device may change the VLAN tags of frames.
        let theirs = Incoming::of_stream(stream, own.transport, own.vlan);
        let tagged = stream.is_tagged() && own.transport == LoadTransport::Udp;
        own.apart_from(&theirs).or(tagged.then_some(Mark::Tag))
    }
}

impl Stream {
    /// Returns true if the frames of the stream carry a test tag.
    #[must_use]
    pub fn is_tagged(&self) -> bool {
        self.tag != TagKind::None && self.replay.is_none()
    }

    /// Returns true if transport, ports and addresses alone identify the frames of the stream.
    fn is_plain(&self) -> bool {
        matches!(self.proto, Proto::Udp | Proto::Tcp)
            && self.replay.is_none()
            && self.vlan.is_empty()
            && self.mpls.is_empty()
            && self.ext.is_empty()
            && self.vary.is_empty()
    }
}

impl Plan {
    /// Returns the loads at a port.
    pub fn loads_at<'a>(&'a self, port: &'a str) -> impl Iterator<Item = &'a LoadJob> {
        self.loads.iter().filter(move |load| load.port == port)
    }

    /// Number of users of a port, each with dedicated sockets.
    #[must_use]
    pub fn parties(&self, port: &PortPlan) -> usize {
        let own = |kind: &JobKind| matches!(kind, JobKind::Load | JobKind::Capture);
        let others = self.users(port).filter(|kind| !own(kind));
        let captures = self
            .captures
            .iter()
            .filter(|c| c.ports.contains(&port.name));
        others.count() + self.loads_at(&port.name).count() + captures.count()
    }

    /// Streams that arrive at a port, with the number of their job.
    fn streams_into<'a>(
        &'a self,
        port: &'a str,
    ) -> impl Iterator<Item = (usize, &'a TrafficJob, Stream)> {
        let is = move |end: &Option<String>| end.as_deref() == Some(port);
        let jobs = self.traffic.iter().enumerate();
        jobs.flat_map(move |(number, job)| {
            let there = job.streams.iter().filter(move |_| is(&job.rx)).cloned();
            let back = job.streams.iter().filter(move |_| job.bidir && is(&job.tx));
            let streams = there.chain(back.map(Stream::reversed));
            streams.map(move |stream| (number, job, stream))
        })
    }

    /// Fields, in addition to transport and ports, that the filter of a load must check to exclude frames of the other
    /// jobs at its port: addresses, and test tags.
    #[must_use]
    pub fn marks(&self, load: &LoadJob) -> (bool, bool) {
        let loads = self.loads_at(&load.port);
        let others = loads.filter(|other| !std::ptr::eq(*other, load));
        let of_loads = others.filter_map(|other| load.apart_from_load(other));
        let streams = self.streams_into(&load.port);
        let of_streams = streams.filter_map(|(_, _, stream)| load.apart_from_stream(&stream));
        let marks: Vec<Mark> = of_loads.chain(of_streams).collect();
        (marks.contains(&Mark::Addresses), marks.contains(&Mark::Tag))
    }

    /// Properties of untagged streams that share a port with a load; empty if all streams are tagged.
    #[must_use]
    pub fn untagged_into(&self, port: &str) -> Vec<Incoming> {
        let streams: Vec<Stream> = self.streams_into(port).map(|(_, _, s)| s).collect();
        if streams.iter().all(Stream::is_tagged) {
            return Vec::new();
        }
        let transport = |stream: &Stream| match stream.proto {
            Proto::Tcp => LoadTransport::Tcp,
            _ => LoadTransport::Udp,
        };
        let streams = streams.iter();
        streams
            .map(|stream| Incoming::of_stream(stream, transport(stream), None))
            .collect()
    }

    /// Returns true if a load may receive its frames at a shared port by XDP and leave all other frames to the other
    /// users. Not possible if a user observes all received frames.
    #[must_use]
    pub fn leaves_the_rest(&self, port: &PortPlan) -> bool {
        self.loads_at(&port.name).next().is_some()
            && self.onlooker(port).is_none()
            // An interface has one XDP program, and the program of the live driver passes all other frames on.
            && port.locator.driver != Some(Driver::Live)
    }

    /// Returns the user of a port that observes all received frames.
    fn onlooker(&self, port: &PortPlan) -> Option<&'static str> {
        let captures = self.users(port).any(|kind| kind == JobKind::Capture);
        let watches = self.watches.iter().any(|w| w.port == port.name);
        match (captures, watches) {
            (true, _) => Some("a capture"),
            (false, true) => Some("a watch"),
            (false, false) => None,
        }
    }

    /// Returns true if the live driver can serve these users of a port. Loads that share the port with streams use
    /// sockets, which receive the frames that the driver does not account for.
    fn is_for_live(&self, port: &PortPlan, users: &[JobKind]) -> bool {
        let is = |end: &Option<String>| end.as_ref() == Some(&port.name);
        let jobs = self.traffic.iter().filter(|job| is(&job.tx) || is(&job.rx));
        match users {
            [JobKind::Devices | JobKind::Traffic] => true,
            [JobKind::Traffic, JobKind::Load] | [JobKind::Load, JobKind::Traffic] => {
                jobs.count() == 1
            }
            _ => false,
        }
    }

    /// Checks that the received frames of each job at a shared port can be distinguished.
    pub(crate) fn check_sharing(&self, found: &mut Findings) {
        for port in &self.ports {
            let users: Vec<JobKind> = self.users(port).collect();
            if port.locator.driver == Some(Driver::Live) && !self.is_for_live(port, &users) {
                let what = "the live driver supports one traffic job (with or without loads) or devices; remove live:, or use xdp: or packet:";
                found.problem(port.title(), what);
            }
            if self.parties(port) < 2 {
                continue;
            }
            let place = port.title();
            let two = match users[..] {
                [first, second, ..] => format!("{} and {}", first.name(), second.name()),
                [only] => format!("several {} jobs", only.name()),
                [] => continue,
            };
            if !port.locator.is_interface() {
                let what = format!("{two} use this port; a memory or file port supports one job");
                found.problem(&place, what);
            }
            if port.locator.driver == Some(Driver::Xdp) && !self.leaves_the_rest(port) {
                let what = match self.onlooker(port) {
                    Some(who) => format!(
                        "{two} use this port, and {who} does not get the frames that the xdp driver receives; remove xdp:, or use packet:"
                    ),
                    None => format!(
                        "{two} use this port, and the xdp driver supports one; remove xdp:, or use packet:"
                    ),
                };
                found.problem(&place, what);
            }
            let devices = users.contains(&JobKind::Devices);
            if devices && port.way == SendWay::Receive {
                let what = format!(
                    "{two} use this port, and its devices send into the receive side (way = \"receive\"); use a port for each"
                );
                found.problem(&place, what);
            }
            self.check_loads_apart(port, found);
            self.check_watch_apart(port, found);
        }
    }

    /// Reports loads whose frames cannot be distinguished from those of other jobs.
    fn check_loads_apart(&self, port: &PortPlan, found: &mut Findings) {
        let place = port.title();
        let loads: Vec<(String, &LoadJob)> = self.numbered_loads(&port.name).collect();
        for (i, (name, load)) in loads.iter().enumerate() {
            for (other_name, other) in &loads[..i] {
                if load.apart_from_load(other).is_none() {
                    let what = format!(
                        "frames of {other_name} and {name} cannot be distinguished; use different server ports, addresses, VLANs or transports, or a port for each"
                    );
                    found.problem(&place, what);
                }
            }
        }
        let mut refused = std::collections::BTreeSet::new();
        for (number, job, stream) in self.streams_into(&port.name) {
            for (name, load) in &loads {
                let what = if load.apart_from_stream(&stream).is_none() {
                    "can have the same TCP or UDP ports as frames of"
                } else if !stream.is_tagged() && !stream.is_plain() {
                    "have no tag and cannot be distinguished from frames of"
                } else {
                    continue;
                };
                let advice = match stream.is_tagged() {
                    true => "use other TCP or UDP ports",
                    false => "tag them, use other TCP or UDP ports",
                };
                let what = format!(
                    "frames of traffic job {} ({:?}) {what} {name}; {advice}, or a [[port]] for each",
                    number + 1,
                    job.name
                );
                if refused.insert(what.clone()) {
                    found.problem(&place, what);
                }
            }
        }
    }

    /// Checks that a watch counts only packets of its devices: it counts all packets with the packet generator's
    /// header.
    fn check_watch_apart(&self, port: &PortPlan, found: &mut Findings) {
        if !self.watches.iter().any(|watch| watch.port == port.name) {
            return;
        }
        let mut streams = self.streams_into(&port.name);
        let like = streams.find(|(_, _, s)| s.tag == TagKind::Pktgen && s.is_tagged());
        if let Some((number, job, _)) = like {
            let what = format!(
                "frames of traffic job {} ({:?}) have the same header as the packets that the watch counts; use tag = \"wirebench\", or a [[port]] for each",
                number + 1,
                job.name
            );
            found.problem(port.title(), what);
        }
    }

    /// Returns the loads of a port with their names in messages.
    fn numbered_loads<'a>(
        &'a self,
        port: &'a str,
    ) -> impl Iterator<Item = (String, &'a LoadJob)> + 'a {
        let loads = self.loads.iter().enumerate();
        let here = loads.filter(move |(_, load)| load.port == port);
        here.map(|(number, load)| match load.name.as_str() {
            "" => (format!("load {}", number + 1), load),
            name => (format!("load {name:?}"), load),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{capture::CaptureJob, load::LoadRate, units::Span};

    fn load(end: LoadEnd, port: &str) -> LoadJob {
        LoadJob {
            end,
            port: port.to_owned(),
            clients: vec!["198.18.1.2".parse().unwrap()],
            servers: vec!["198.19.1.2".parse().unwrap()],
            rate: LoadRate {
                cps: Some(10),
                ..LoadRate::default()
            },
            ..LoadJob::default()
        }
    }

    #[test]
    fn a_port_is_called_port_once() {
        let title = |name: &str| PortPlan::new(name, "memory:x".parse().unwrap()).title();
        assert_eq!(
            (title("a"), title("port 2")),
            ("port a".into(), "port 2".into())
        );
    }

    fn mix(stream: Stream) -> Plan {
        let port = |name: &str| PortPlan::new(name, format!("n/{name}").parse().unwrap());
        Plan {
            ports: vec![port("a"), port("b")],
            traffic: vec![TrafficJob {
                tx: Some("a".to_owned()),
                rx: Some("b".to_owned()),
                duration: Some(Span::from_secs(1)),
                streams: vec![stream],
                ..TrafficJob::default()
            }],
            loads: vec![load(LoadEnd::Client, "a"), load(LoadEnd::Server, "b")],
            ..Plan::default()
        }
    }

    fn problems(plan: &Plan) -> String {
        let mut found = Findings::default();
        plan.check_sharing(&mut found);
        let problems = found.problems.iter().map(ToString::to_string);
        problems.collect::<Vec<_>>().join("\n")
    }

    fn stream(change: fn(&mut Stream)) -> Stream {
        let mut stream = Stream::default();
        change(&mut stream);
        stream
    }

    #[test]
    fn streams_beside_a_load_are_told_apart_or_refused() {
        let refused = |change: fn(&mut Stream)| problems(&mix(stream(change)));
        for apart in [
            |_: &mut Stream| {},
            |s: &mut Stream| s.tag = TagKind::None,
            |s: &mut Stream| s.proto = Proto::Tcp,
            |s: &mut Stream| {
                s.proto = Proto::Icmp;
                s.dport = Some(PortRange::single(80));
            },
            |s: &mut Stream| {
                s.proto = Proto::Tcp;
                s.dport = Some(PortRange::single(80));
                s.dst = Some("198.19.1.3".parse().unwrap());
            },
        ] {
            assert_eq!(refused(apart), "");
        }
        let same = refused(|s| {
            s.proto = Proto::Tcp;
            s.dport = Some(PortRange::single(80));
        });
        assert!(
            same.contains("traffic job 1")
                && same.contains("can have the same TCP or UDP ports as frames of load 2"),
            "{same}"
        );
        // Ports that vary may become the ports of the load.
        let changing = refused(|s| {
            s.proto = Proto::Tcp;
            s.vary = vec!["dport=inc:1-100".parse().unwrap()];
        });
        assert!(changing.contains("ports as frames of load 2"), "{changing}");
        for unlike in [
            |s: &mut Stream| s.proto = Proto::Icmp,
            |s: &mut Stream| s.vary = vec!["dport=inc:1-100".parse().unwrap()],
            |s: &mut Stream| s.vlan = vec!["5".parse().unwrap()],
            |s: &mut Stream| s.mpls = vec![16],
            |s: &mut Stream| (s.ipv6, s.ext) = (true, vec![crate::plan::Extension::Fragment]),
            |s: &mut Stream| s.replay = Some("x.pcap".to_owned()),
        ] {
            let mut stream = stream(unlike);
            stream.tag = TagKind::None;
            let untagged = problems(&mix(stream));
            assert!(untagged.contains("have no tag"), "{untagged}");
        }
    }

    #[test]
    fn what_comes_back_shares_the_other_port() {
        let like_answers = stream(|s| {
            s.proto = Proto::Tcp;
            s.dport = Some(PortRange::single(80));
        });
        let mut plan = mix(like_answers);
        plan.loads.remove(1);
        assert_eq!(problems(&plan), "");
        plan.traffic[0].bidir = true;
        let back = problems(&plan);
        assert!(back.contains("port a") && back.contains("load 1"), "{back}");
    }

    #[test]
    fn what_comes_in_without_a_tag_is_known() {
        let mut plan = mix(Stream::default());
        assert_eq!(plan.untagged_into("b"), []);
        plan.traffic[0].streams[0].tag = TagKind::None;
        assert_eq!(plan.untagged_into("a"), []);
        let known = plan.untagged_into("b");
        assert_eq!(known.len(), 1);
        assert_eq!(known[0].to_ports, PortRange::single(7));
        assert_eq!(known[0].transport, LoadTransport::Udp);
    }

    #[test]
    fn what_comes_in_for_a_load_is_what_is_around_it() {
        let mut client = load(LoadEnd::Client, "a");
        let plain = Incoming::of(&client);
        assert_eq!(plain.from, client.servers);
        assert_eq!(plain.from_ports, client.server_ports);
        // Any device on the path to a destination may answer.
        client.destinations = vec![crate::load::Destinations {
            addresses: "198.19.0.0-198.19.255.255".parse().unwrap(),
            step: 1,
        }];
        assert_eq!(Incoming::of(&client).from, []);
        for end in [LoadEnd::Client, LoadEnd::Server] {
            let mut job = load(end, "a");
            job.vxlan = Some(crate::load::Vxlan {
                vni: 5,
                src_mac: "02:00:00:00:00:01".parse().unwrap(),
                dst_mac: "02:00:00:00:00:02".parse().unwrap(),
                local: "198.18.9.1".parse().unwrap(),
                remote: "198.18.9.2".parse().unwrap(),
            });
            let outside = Incoming::of(&job);
            assert_eq!(outside.transport, LoadTransport::Udp);
            assert_eq!(outside.to_ports, PortRange::single(4789));
            assert_eq!(outside.to, ["198.18.9.1".parse().unwrap()]);
            assert_eq!(outside.from, []);
        }
    }

    #[test]
    fn parties_and_places_that_cannot_be_shared() {
        let mut plan = mix(Stream::default());
        let capture = CaptureJob {
            ports: vec!["b".to_owned()],
            ..CaptureJob::default()
        };
        plan.captures = vec![capture.clone(), capture];
        // The stream, the load and two captures.
        assert_eq!(plan.parties(&plan.ports[1]), 4);
        assert_eq!(plan.parties(&plan.ports[0]), 2);

        let mut memory = mix(Stream::default());
        memory.ports[1].locator = "memory:b".parse().unwrap();
        assert!(problems(&memory).contains("supports one job"), "{memory:?}");

        let mut inwards = mix(Stream::default());
        inwards.devices.push(crate::device::DeviceJob {
            port: "a".to_owned(),
            ..crate::device::DeviceJob::default()
        });
        assert_eq!(problems(&inwards), "");
        inwards.ports[0].way = SendWay::Receive;
        let refused = problems(&inwards);
        assert!(refused.contains("send into the receive side"), "{refused}");
    }

    #[test]
    fn datagrams_at_the_ports_of_a_load_are_told_by_their_tag() {
        let like = |tag| {
            let mut plan = mix(Stream {
                tag,
                dport: Some(PortRange::single(80)),
                ..Stream::default()
            });
            for job in &mut plan.loads {
                job.transport = LoadTransport::Udp;
            }
            plan
        };
        let plan = like(TagKind::Wirebench);
        assert_eq!(problems(&plan), "");
        assert_eq!(plan.marks(&plan.loads[0]), (false, false));
        assert_eq!(plan.marks(&plan.loads[1]), (false, true));
        let refused = problems(&like(TagKind::None));
        assert!(refused.contains("tag them"), "{refused}");
    }

    #[test]
    fn two_loads_at_a_port_are_told_apart_or_refused() {
        let with = |change: fn(&mut LoadJob)| {
            let mut plan = mix(Stream::default());
            plan.traffic.clear();
            let mut second = plan.loads[1].clone();
            second.name = "second".to_owned();
            change(&mut second);
            plan.loads.push(second);
            plan
        };
        for (change, addresses) in [
            (
                (|l| l.server_ports = PortRange::single(81)) as fn(&mut LoadJob),
                false,
            ),
            (|l| l.transport = LoadTransport::Udp, false),
            (|l| l.vlan = Some(7), false),
            (|l| l.servers = vec!["198.19.1.3".parse().unwrap()], true),
        ] {
            let plan = with(change);
            assert_eq!(problems(&plan), "");
            assert_eq!(plan.marks(&plan.loads[1]), (addresses, false));
        }
        let same = problems(&with(|_| {}));
        assert!(same.contains("load 2 and load \"second\""), "{same}");
        // Two clients receive answers from different ports.
        let mut clients = with(|l| l.server_ports = PortRange::single(81));
        for job in &mut clients.loads {
            job.end = LoadEnd::Client;
        }
        clients.loads[0].port = "b".to_owned();
        clients.loads.remove(1);
        assert_eq!(problems(&clients), "");
        // A client and a server: the ports of responses to the client differ from the ports of requests to the server.
        let other = with(|l| l.end = LoadEnd::Client);
        assert_eq!(problems(&other), "");
        let same = problems(&with(|l| {
            l.end = LoadEnd::Client;
            l.client_ports.first = 80;
            l.servers = vec!["198.18.1.2".parse().unwrap()];
            l.clients = vec!["198.19.1.2".parse().unwrap()];
        }));
        assert!(same.contains("cannot be distinguished"), "{same}");
    }

    #[test]
    fn a_watch_and_a_stream_with_the_same_header_are_refused() {
        let mut plan = mix(Stream::default());
        plan.watches.push(crate::device::WatchJob {
            port: "b".to_owned(),
            ..crate::device::WatchJob::default()
        });
        assert_eq!(problems(&plan), "");
        plan.traffic[0].streams[0].tag = TagKind::Pktgen;
        assert!(problems(&plan).contains("the watch counts"));
    }

    #[test]
    fn xdp_serves_a_load_where_nobody_looks_at_all() {
        let mut plan = mix(Stream::default());
        plan.ports[1].locator = "xdp:n/b".parse().unwrap();
        assert_eq!(problems(&plan), "");
        plan.captures.push(CaptureJob {
            ports: vec!["b".to_owned()],
            ..CaptureJob::default()
        });
        let refused = problems(&plan);
        assert!(
            refused.contains("a capture does not get the frames"),
            "{refused}"
        );
        plan.captures.clear();
        plan.watches.push(crate::device::WatchJob {
            port: "b".to_owned(),
            ..crate::device::WatchJob::default()
        });
        let refused = problems(&plan);
        assert!(
            refused.contains("a watch does not get the frames"),
            "{refused}"
        );
        plan.loads.clear();
        plan.traffic[0].tx = None;
        assert!(problems(&plan).contains("traffic and devices"), "{plan:?}");
    }
}
