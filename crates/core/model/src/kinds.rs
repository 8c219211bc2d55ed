//! The kinds of jobs that a plan may mix, and which of them may share a port.

use crate::{
    load::{LoadEnd, LoadJob, LoadTransport},
    plan::{Plan, PortPlan, Proto, Stream, TagKind},
    units::PortRange,
    validate::Findings,
};

/// A kind of jobs: those that one engine carries out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum JobKind {
    /// `[[traffic]]`.
    Traffic,
    /// `[[device]]` and `[[watch]]`.
    Devices,
    /// `[[load]]`.
    Load,
    /// `[[capture]]`.
    Capture,
    /// `[[socket]]` and `[socket_server]`.
    Socket,
    /// `[[probe]]`.
    Probe,
    /// `[procedure]`.
    Bench,
}

impl JobKind {
    /// All, in the order in which they fill the common part of a report.
    pub const ALL: [Self; 7] = [
        Self::Traffic,
        Self::Devices,
        Self::Load,
        Self::Capture,
        Self::Socket,
        Self::Probe,
        Self::Bench,
    ];

    /// As criteria and messages call it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Traffic => "traffic",
            Self::Devices => "devices",
            Self::Load => "load",
            Self::Capture => "capture",
            Self::Socket => "socket",
            Self::Probe => "probe",
            Self::Bench => "bench",
        }
    }
}

impl Plan {
    /// Whether it has jobs of a kind.
    #[must_use]
    pub const fn has(&self, kind: JobKind) -> bool {
        match kind {
            JobKind::Traffic => !self.traffic.is_empty(),
            JobKind::Devices => !(self.devices.is_empty() && self.watches.is_empty()),
            JobKind::Load => !self.loads.is_empty(),
            JobKind::Capture => !self.captures.is_empty(),
            JobKind::Socket => !self.sockets.is_empty() || self.socket_server.is_some(),
            JobKind::Probe => !self.probes.is_empty(),
            JobKind::Bench => self.procedure.is_some(),
        }
    }

    /// The kinds of its jobs.
    pub fn kinds(&self) -> impl Iterator<Item = JobKind> {
        JobKind::ALL.into_iter().filter(|kind| self.has(*kind))
    }

    /// The same plan with the jobs of one kind, and the criteria that judge them.
    #[must_use]
    pub fn part(&self, kind: JobKind) -> Self {
        let mut part = self.clone();
        let own = |other| kind == other;
        if !own(JobKind::Traffic) {
            part.traffic.clear();
        }
        if !own(JobKind::Devices) {
            part.devices.clear();
            part.watches.clear();
        }
        if !own(JobKind::Load) {
            part.loads.clear();
        }
        if !own(JobKind::Capture) {
            part.captures.clear();
        }
        if !own(JobKind::Socket) {
            part.sockets.clear();
            part.socket_server = None;
        }
        if !own(JobKind::Probe) {
            part.probes.clear();
        }
        if !own(JobKind::Bench) {
            part.procedure = None;
        }
        let criteria = std::mem::take(&mut part.criteria).into_iter();
        part.criteria = criteria.filter(|c| self.judges(c) == Ok(kind)).collect();
        part
    }

    /// The kinds whose jobs use a port.
    pub fn users<'a>(&'a self, port: &'a PortPlan) -> impl Iterator<Item = JobKind> + 'a {
        let is = move |name: &str| name == port.name;
        let uses = move |kind: &JobKind| match kind {
            JobKind::Traffic => self
                .traffic
                .iter()
                .any(|j| [&j.tx, &j.rx].into_iter().flatten().any(|p| is(p))),
            JobKind::Devices => {
                self.devices.iter().any(|d| is(&d.port)) || self.watches.iter().any(|w| is(&w.port))
            }
            JobKind::Load => self.loads.iter().any(|l| is(&l.port)),
            JobKind::Capture => self.captures.iter().any(|c| c.ports.iter().any(|p| is(p))),
            JobKind::Socket | JobKind::Probe | JobKind::Bench => false,
        };
        JobKind::ALL.into_iter().filter(uses)
    }

    /// Whether nothing in it ends by itself, so that a signal is its normal end. What only listens goes on
    /// until the rest has ended.
    #[must_use]
    pub fn is_endless(&self) -> bool {
        let sends = self.traffic.iter().any(|j| j.tx.is_some());
        let works = sends
            || !self.devices.is_empty()
            || !self.sockets.is_empty()
            || self.procedure.is_some()
            || self.loads.iter().any(|l| l.end == LoadEnd::Client);
        let endless = |kind: JobKind| {
            let listens = match kind {
                JobKind::Traffic => !sends,
                JobKind::Devices => self.devices.is_empty(),
                JobKind::Load => !self.loads.iter().any(|l| l.end == LoadEnd::Client),
                JobKind::Capture | JobKind::Probe => true,
                JobKind::Socket => self.sockets.is_empty(),
                JobKind::Bench => false,
            };
            !(works && listens) && self.part_is_endless(kind)
        };
        self.kinds().any(endless)
    }

    /// Jobs of several kinds at one port: whether what comes in by it can be told apart.
    pub(crate) fn check_sharing(&self, found: &mut Findings) {
        for port in &self.ports {
            let users: Vec<JobKind> = self.users(port).collect();
            let [first, second, ..] = users[..] else {
                continue;
            };
            let place = format!("port {}", port.name);
            if !port.locator.is_interface() {
                let what = format!(
                    "it is used by {} and {}; a memory or file port has one user",
                    first.name(),
                    second.name()
                );
                found.problem(&place, what);
            }
            if port.locator.driver == Some(crate::Driver::Xdp) {
                let what = format!(
                    "it is used by {} and {}, and the xdp driver hands frames to one only; leave the driver open, or take packet:",
                    first.name(),
                    second.name()
                );
                found.problem(&place, what);
            }
            let others = users
                .iter()
                .find(|k| !matches!(k, JobKind::Devices | JobKind::Capture));
            if let (true, Some(other)) = (users.contains(&JobKind::Devices), others) {
                let what = format!(
                    "it is used by devices and {}, which both set its workers; take a port for each",
                    other.name()
                );
                found.problem(&place, what);
            }
            if users.contains(&JobKind::Traffic) && users.contains(&JobKind::Load) {
                self.check_traffic_beside_load(port, found);
            }
        }
    }

    /// Streams beside a load: frames without a tag could be of either.
    fn check_traffic_beside_load(&self, port: &PortPlan, found: &mut Findings) {
        let load = self.loads.iter().find(|l| l.port == port.name);
        let name = load.map_or("", |l| l.name.as_str());
        for (number, job) in self.traffic.iter().enumerate() {
            let receives = |p: &Option<String>| p.as_deref() == Some(port.name.as_str());
            let here = receives(&job.rx) || (job.bidir && receives(&job.tx));
            if here && load.is_some_and(|load| job.streams.iter().any(|s| load.takes(s))) {
                let what = format!(
                    "frames of traffic job {} ({:?}) may have the ports of load {name:?}; take other ports, or a port for each",
                    number + 1,
                    job.name
                );
                found.problem(format!("port {}", port.name), what);
            }
            let untagged = job
                .streams
                .iter()
                .any(|s| s.tag == TagKind::None || s.replay.is_some());
            if here && untagged {
                let what = format!(
                    "frames of traffic job {} ({:?}) have no tag and cannot be told from those of load {name:?}; tag them, or take a port for each",
                    number + 1,
                    job.name
                );
                found.problem(format!("port {}", port.name), what);
            }
        }
    }
}

impl LoadJob {
    /// Whether frames of a stream may look like those that come in for the load: by what they carry, and
    /// by the port that names the server.
    fn takes(&self, stream: &Stream) -> bool {
        let same = match (self.transport, self.vxlan.is_some()) {
            (_, true) | (LoadTransport::Udp, _) => stream.proto == Proto::Udp,
            (LoadTransport::Tcp, _) => stream.proto == Proto::Tcp,
        };
        let own = match self.vxlan.is_some() {
            true => PortRange::single(4789),
            false => self.server_ports,
        };
        let of_stream = match self.end {
            LoadEnd::Client => stream.source_ports(),
            LoadEnd::Server => stream.destination_ports(),
        };
        let apart = of_stream.last < own.first || own.last < of_stream.first;
        same && (!apart || !stream.vary.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{capture::CaptureJob, load::LoadRate, plan::TrafficJob};

    fn mix(tag: TagKind) -> Plan {
        let port = |name: &str| PortPlan::new(name, format!("n/{name}").parse().unwrap());
        let load = |end, port: &str| LoadJob {
            end,
            port: port.to_owned(),
            clients: vec!["198.18.1.2".parse().unwrap()],
            servers: vec!["198.19.1.2".parse().unwrap()],
            rate: LoadRate {
                cps: Some(10),
                ..LoadRate::default()
            },
            ..LoadJob::default()
        };
        Plan {
            ports: vec![port("a"), port("b")],
            traffic: vec![TrafficJob {
                tx: Some("a".to_owned()),
                rx: Some("b".to_owned()),
                streams: vec![Stream {
                    tag,
                    ..Stream::default()
                }],
                ..TrafficJob::default()
            }],
            loads: vec![load(LoadEnd::Client, "a"), load(LoadEnd::Server, "b")],
            captures: vec![CaptureJob {
                ports: vec!["b".to_owned()],
                ..CaptureJob::default()
            }],
            ..Plan::default()
        }
    }

    fn problems(plan: &Plan) -> String {
        let error = plan.validate().err();
        error.map(|e| e.to_string()).unwrap_or_default()
    }

    #[test]
    fn kinds_mix_where_their_frames_can_be_told_apart() {
        let mut plan = mix(TagKind::Wirebench);
        assert_eq!(problems(&plan), "");
        assert!(problems(&mix(TagKind::None)).contains("have no tag"));
        let mut like = plan.clone();
        like.traffic[0].streams[0].proto = Proto::Tcp;
        assert_eq!(problems(&like), "");
        like.traffic[0].streams[0].dport = Some(PortRange::single(80));
        assert!(problems(&like).contains("may have the ports of load"));
        plan.ports[1].locator = "xdp:n/b".parse().unwrap();
        assert!(problems(&plan).contains("used by traffic and load"));
    }

    #[test]
    fn what_listens_ends_with_the_rest() {
        let mut plan = mix(TagKind::Wirebench);
        plan.loads.clear();
        assert!(!plan.is_endless(), "its capture ends with the traffic");
        assert!(plan.part(JobKind::Capture).is_endless());
        plan.traffic.clear();
        assert!(plan.is_endless());
    }

    #[test]
    fn a_criterion_judges_one_kind() {
        let judged = |criterion: &str| {
            let plan = Plan {
                criteria: vec![criterion.parse().unwrap()],
                ..mix(TagKind::Wirebench)
            };
            problems(&plan)
        };
        assert!(judged("loss<=0").contains("traffic.loss"));
        assert!(judged("p99<=1ms").contains("load.p99"));
        for one in [
            "traffic.loss<=0",
            "capture.loss<=0",
            "load.p99<=1ms",
            "reordered<=0",
        ] {
            assert_eq!(judged(one), "");
        }
        assert!(judged("capture.p99<=1ms").contains("not measured by a capture"));
        assert!(judged("socket.loss<=0").contains("no socket"));
        let mut plan = mix(TagKind::Wirebench);
        plan.criteria = vec!["capture.loss<=0".parse().unwrap()];
        assert_eq!(plan.part(JobKind::Capture).criteria, plan.criteria);
        assert!(plan.part(JobKind::Traffic).criteria.is_empty());
    }
}
