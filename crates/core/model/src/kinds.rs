//! Kinds of jobs that a plan may combine.

use crate::{
    load::LoadEnd,
    plan::{Plan, PortPlan},
};

/// Kind of jobs: the jobs that one engine runs.
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
    /// `[[http]]`.
    Http,
    /// `[[socket]]` and `[socket_server]`.
    Socket,
    /// `[[probe]]`.
    Probe,
    /// `[procedure]`.
    Bench,
}

impl JobKind {
    /// All kinds, in the order in which they fill the common part of a report.
    pub const ALL: [Self; 8] = [
        Self::Traffic,
        Self::Devices,
        Self::Load,
        Self::Capture,
        Self::Http,
        Self::Socket,
        Self::Probe,
        Self::Bench,
    ];

    /// Name in criteria and messages.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Traffic => "traffic",
            Self::Devices => "devices",
            Self::Load => "load",
            Self::Capture => "capture",
            Self::Http => "http",
            Self::Socket => "socket",
            Self::Probe => "probe",
            Self::Bench => "bench",
        }
    }

    /// Returns the name in messages of all its jobs, or of the job with this name: `capture`, `capture far`; `capture
    /// 2` for an unnamed job.
    #[must_use]
    pub fn called(self, job: &str) -> String {
        match job.starts_with(self.name()) {
            true => job.to_owned(),
            false => format!("{} {job}", self.name()).trim_end().to_owned(),
        }
    }
}

impl Plan {
    /// Returns true if the plan has jobs of a kind. A benchmark is one job: the jobs of its trials do not count.
    #[must_use]
    pub const fn has(&self, kind: JobKind) -> bool {
        if self.procedure.is_some() {
            return matches!(kind, JobKind::Bench);
        }
        match kind {
            JobKind::Traffic => !self.traffic.is_empty(),
            JobKind::Devices => !(self.devices.is_empty() && self.watches.is_empty()),
            JobKind::Load => !self.loads.is_empty(),
            JobKind::Capture => !self.captures.is_empty(),
            JobKind::Http => !self.http_jobs.is_empty(),
            JobKind::Socket => !self.sockets.is_empty() || self.socket_server.is_some(),
            JobKind::Probe => !self.probes.is_empty(),
            JobKind::Bench => self.procedure.is_some(),
        }
    }

    /// Kinds of the plan's jobs.
    pub fn kinds(&self) -> impl Iterator<Item = JobKind> {
        JobKind::ALL.into_iter().filter(|kind| self.has(*kind))
    }

    /// Returns the plan with the jobs of one kind only, and their criteria.
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
        if !own(JobKind::Http) {
            part.http_jobs.clear();
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

    /// Kinds of the jobs that use a port.
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
            JobKind::Http => {
                let ports = self.http_jobs.iter().filter_map(|job| job.port.as_deref());
                ports.into_iter().any(is)
            }
            JobKind::Socket | JobKind::Probe | JobKind::Bench => false,
        };
        JobKind::ALL.into_iter().filter(uses)
    }

    /// Returns true if no job of the plan ends without a signal. Jobs that only receive run until the other jobs have
    /// ended.
    #[must_use]
    pub fn is_endless(&self) -> bool {
        let sends = self.traffic.iter().any(|j| j.tx.is_some());
        let works = sends
            || !self.devices.is_empty()
            || !self.sockets.is_empty()
            || !self.http_jobs.is_empty()
            || self.procedure.is_some()
            || self.loads.iter().any(|l| l.end == LoadEnd::Client);
        let endless = |kind: JobKind| {
            let listens = match kind {
                JobKind::Traffic => !sends,
                JobKind::Devices => self.devices.is_empty(),
                JobKind::Load => !self.loads.iter().any(|l| l.end == LoadEnd::Client),
                JobKind::Capture | JobKind::Probe => true,
                JobKind::Socket => self.sockets.is_empty(),
                JobKind::Http | JobKind::Bench => false,
            };
            !(works && listens) && self.part_is_endless(kind)
        };
        self.kinds().any(endless)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LoadJob, Stream, TagKind, capture::CaptureJob, load::LoadRate, plan::TrafficJob};

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
        for one in [
            "client 1.p99<=1ms",
            "load.client 1.cps>=1",
            "connect_p99<=1ms",
        ] {
            assert_eq!(judged(one), "");
        }
        assert!(judged("server 2.http_p99<=1ms").contains("not measured by a load server"));
        assert!(judged("web.loss<=0").contains("\"client 1\", \"server 2\""));
        assert!(judged("probe.drops<=0").contains("has no probe job"));
        assert!(judged("cc>=1").contains("not measured by a trial"));
        assert!(judged("capture.p99<=1ms").contains("not measured by a capture"));
        assert!(judged("socket.loss<=0").contains("has no socket job"));
        let mut plan = mix(TagKind::Wirebench);
        plan.criteria = vec!["capture.loss<=0".parse().unwrap()];
        assert_eq!(plan.part(JobKind::Capture).criteria, plan.criteria);
        assert!(plan.part(JobKind::Traffic).criteria.is_empty());
    }
}
