//! Kinds of jobs that a plan may combine.

use crate::{
    load::LoadEnd,
    plan::{Plan, PortPlan},
    units::Span,
};

/// Declares the kinds: their names, and the order in which they fill the common part of a report.
macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident = $name:literal,)*) => {
        /// Kind of jobs: the jobs that one engine runs.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum JobKind {
            $($(#[$doc])* $kind,)*
        }

        impl JobKind {
            /// All kinds, in the order in which they fill the common part of a report.
            pub const ALL: [Self; [$($name),*].len()] = [$(Self::$kind),*];

            /// Name in criteria and messages.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$kind => $name,)*
                }
            }
        }
    };
}

kinds! {
    /// `[[traffic]]`.
    Traffic = "traffic",
    /// `[[device]]` and `[[watch]]`.
    Devices = "devices",
    /// `[[load]]`.
    Load = "load",
    /// `[[capture]]`.
    Capture = "capture",
    /// `[[http]]`.
    Http = "http",
    /// `[[socket]]` and `[socket_server]`.
    Socket = "socket",
    /// `[[probe]]`.
    Probe = "probe",
    /// `[procedure]`.
    Bench = "bench",
}

impl JobKind {
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
        part.keep(kind);
        let criteria = std::mem::take(&mut part.criteria).into_iter();
        part.criteria = criteria.filter(|c| self.judges(c) == Ok(kind)).collect();
        part
    }

    /// Removes the jobs of all other kinds.
    pub fn keep(&mut self, kind: JobKind) {
        for other in JobKind::ALL.into_iter().filter(|other| *other != kind) {
            self.retain(other, || false);
            match other {
                JobKind::Devices => self.watches.clear(),
                JobKind::Socket => self.socket_server = None,
                JobKind::Bench => self.procedure = None,
                _ => {}
            }
        }
    }

    /// Removes the jobs of a kind for which `keep`, called for each in turn, returns false. Jobs that have no name stay:
    /// watches, the server of socket tests and benchmarks.
    pub(crate) fn retain(&mut self, kind: JobKind, mut keep: impl FnMut() -> bool) {
        match kind {
            JobKind::Traffic => self.traffic.retain(|_| keep()),
            JobKind::Devices => self.devices.retain(|_| keep()),
            JobKind::Load => self.loads.retain(|_| keep()),
            JobKind::Capture => self.captures.retain(|_| keep()),
            JobKind::Http => self.http_jobs.retain(|_| keep()),
            JobKind::Socket => self.sockets.retain(|_| keep()),
            JobKind::Probe => self.probes.retain(|_| keep()),
            JobKind::Bench => {}
        }
    }

    /// Names of the jobs of a kind, as in the plan. Unnamed jobs have an empty name.
    pub(crate) fn names_mut(&mut self, kind: JobKind) -> Vec<&mut String> {
        match kind {
            JobKind::Traffic => self.traffic.iter_mut().map(|j| &mut j.name).collect(),
            JobKind::Devices => {
                let devices = self.devices.iter_mut();
                devices.map(|device| &mut device.settings.name).collect()
            }
            JobKind::Load => self.loads.iter_mut().map(|j| &mut j.name).collect(),
            JobKind::Capture => self.captures.iter_mut().map(|j| &mut j.name).collect(),
            JobKind::Http => self.http_jobs.iter_mut().map(|j| &mut j.name).collect(),
            JobKind::Socket => self.sockets.iter_mut().map(|j| &mut j.name).collect(),
            JobKind::Probe => self
                .probes
                .iter_mut()
                .map(|probe| &mut probe.name)
                .collect(),
            JobKind::Bench => Vec::new(),
        }
    }

    /// Names of the jobs of a kind, as in the plan. Unnamed jobs have an empty name.
    pub(crate) fn names(&self, kind: JobKind) -> Vec<&str> {
        match kind {
            JobKind::Traffic => self.traffic.iter().map(|j| &*j.name).collect(),
            JobKind::Devices => self.devices.iter().map(|d| &*d.settings.name).collect(),
            JobKind::Load => self.loads.iter().map(|j| &*j.name).collect(),
            JobKind::Capture => self.captures.iter().map(|j| &*j.name).collect(),
            JobKind::Http => self.http_jobs.iter().map(|j| &*j.name).collect(),
            JobKind::Socket => self.sockets.iter().map(|j| &*j.name).collect(),
            JobKind::Probe => self.probes.iter().map(|probe| &*probe.name).collect(),
            JobKind::Bench => Vec::new(),
        }
    }

    /// Sets the time that each job of a kind sends, receives or captures. Returns the number of jobs that have such a
    /// time.
    pub fn set_duration(&mut self, kind: JobKind, time: Span) -> usize {
        fn set<'a, T: Clone + 'a>(times: impl Iterator<Item = &'a mut T>, time: &T) -> usize {
            times.map(|own| *own = time.clone()).count()
        }
        let some = Some(time);
        match kind {
            JobKind::Traffic => set(self.traffic.iter_mut().map(|j| &mut j.duration), &some),
            JobKind::Devices => {
                let devices = self.devices.iter_mut().map(|d| &mut d.settings.duration_ns);
                set(devices, &time.as_nanos())
                    + set(self.watches.iter_mut().map(|j| &mut j.duration), &some)
            }
            JobKind::Load => set(self.loads.iter_mut().map(|j| &mut j.shape.duration), &time),
            JobKind::Capture => set(self.captures.iter_mut().map(|j| &mut j.duration), &some),
            JobKind::Http => set(self.http_jobs.iter_mut().map(|j| &mut j.duration), &some),
            JobKind::Socket => set(self.sockets.iter_mut().map(|j| &mut j.duration), &some),
            JobKind::Probe | JobKind::Bench => 0,
        }
    }

    /// Returns true if a job of the kind sends, in contrast to jobs that only receive or answer.
    #[must_use]
    pub fn sends(&self, kind: JobKind) -> bool {
        match kind {
            JobKind::Traffic => self.traffic.iter().any(|j| j.tx.is_some()),
            JobKind::Devices => !self.devices.is_empty(),
            JobKind::Load => self.loads.iter().any(|l| l.end == LoadEnd::Client),
            JobKind::Http => !self.http_jobs.is_empty(),
            JobKind::Socket => !self.sockets.is_empty(),
            JobKind::Bench => self.procedure.is_some(),
            JobKind::Capture | JobKind::Probe => false,
        }
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
        let works = JobKind::ALL.into_iter().any(|kind| self.sends(kind));
        let endless = |kind: JobKind| (!works || self.sends(kind)) && self.part_is_endless(kind);
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
