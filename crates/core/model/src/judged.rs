//! By what a run can be judged: a criterion that its kind does not measure would never hold.

use crate::{
    criteria::{
        Criterion,
        Metric::{
            self, Duplicates, Errors, Failed, Loss, Max, Mean, P50, P99, P999, Reordered, Unsent,
        },
    },
    kinds::JobKind,
    load::LoadEnd,
    plan::{Plan, Stream, TagKind},
    socket::{SocketJob, SocketProtocol},
    validate::Findings,
};

const TIMES: [Metric; 5] = [Mean, P50, P99, P999, Max];
const NUMBERED: [Metric; 3] = [Loss, Duplicates, Reordered];

impl Plan {
    /// What jobs of a kind are called, and what they measure.
    fn measured_by(&self, kind: JobKind) -> (&'static str, Vec<Metric>) {
        match kind {
            JobKind::Capture => ("a capture", vec![Loss]),
            JobKind::Load => {
                let name = match self.loads.iter().any(|l| l.end == LoadEnd::Client) {
                    true => "a load",
                    false => "a server of loads",
                };
                // It depends on what is asked, and over which transport.
                let mut measured = vec![Failed, Unsent, Errors, Loss, Duplicates];
                measured.extend(TIMES);
                measured.retain(|metric| crate::load::measures(&self.loads, *metric));
                (name, measured)
            }
            JobKind::Socket if self.socket_server.is_some() => ("a server", Vec::new()),
            JobKind::Socket => ("a socket test of this kind", self.sockets_measure()),
            JobKind::Devices => self.devices_measure(),
            JobKind::Traffic => self.traffic_measures(),
            JobKind::Probe => ("a probe", Vec::new()),
            JobKind::Bench => ("a benchmark", Vec::new()),
        }
    }

    /// The kind of jobs that a criterion judges, or what is wrong with it.
    pub(crate) fn judges(&self, criterion: &Criterion) -> Result<JobKind, String> {
        let kinds: Vec<JobKind> = match criterion.kind {
            Some(kind) if !self.has(kind) => {
                return Err(format!(
                    "{criterion}: there is no {} in this plan",
                    kind.name()
                ));
            }
            Some(kind) => vec![kind],
            None => self.kinds().collect(),
        };
        let measure = |kind: &&JobKind| self.measured_by(**kind).1.contains(&criterion.metric);
        let who: Vec<&JobKind> = kinds.iter().filter(measure).collect();
        match (&who[..], &kinds[..]) {
            ([one], _) => Ok(**one),
            ([], _) => Err(self.unmeasured(criterion, &kinds)),
            (several, _) => {
                let names = several.iter().map(|k| format!("{}.{criterion}", k.name()));
                let names: Vec<String> = names.collect();
                Err(format!(
                    "{criterion}: measured by jobs of several kinds; say which: {}",
                    names.join(" or ")
                ))
            }
        }
    }

    fn unmeasured(&self, criterion: &Criterion, kinds: &[JobKind]) -> String {
        let all = kinds.iter().map(|kind| {
            let (who, measured) = self.measured_by(*kind);
            let names: Vec<String> = measured.iter().map(ToString::to_string).collect();
            let what = match names.is_empty() {
                true => "it measures nothing that can be judged".to_owned(),
                false => format!("it measures {}", names.join(", ")),
            };
            format!("not measured by {who}; {what}")
        });
        format!("{criterion}: {}", all.collect::<Vec<_>>().join("; "))
    }

    pub(crate) fn check_criteria(&self, found: &mut Findings) {
        for criterion in &self.criteria {
            if let Err(what) = self.judges(criterion) {
                found.problem("criteria", what);
            }
        }
    }

    fn sockets_measure(&self) -> Vec<Metric> {
        let mut list = Vec::new();
        let datagrams =
            |j: &SocketJob| matches!(j.protocol, SocketProtocol::Udp | SocketProtocol::UdpLite);
        if self.sockets.iter().any(datagrams) {
            list.extend(NUMBERED);
        }
        // Times of different tests have no common distribution.
        if let [job] = self.sockets.as_slice()
            && (job.latency || job.test.counts_transactions())
        {
            list.extend(TIMES);
        }
        list
    }

    fn devices_measure(&self) -> (&'static str, Vec<Metric>) {
        match (self.devices.is_empty(), self.watches.is_empty()) {
            (false, true) => ("a run that only sends", vec![Unsent]),
            (true, _) => ("a run that only receives", [&NUMBERED[..], &TIMES].concat()),
            (false, false) => (
                "a run of devices",
                [&[Unsent][..], &NUMBERED, &TIMES].concat(),
            ),
        }
    }

    fn traffic_measures(&self) -> (&'static str, Vec<Metric>) {
        let sends = self.traffic.iter().any(|j| j.tx.is_some());
        let receives = self.traffic.iter().any(|j| j.rx.is_some());
        let tagged = |s: &Stream| s.replay.is_none() && s.tag != TagKind::None;
        let mut streams = self.traffic.iter().flat_map(|j| &j.streams);
        match (sends, receives) {
            (true, false) => ("a run that only sends", vec![Unsent]),
            (false, _) => ("a run that only receives", [&NUMBERED[..], &TIMES].concat()),
            (true, true) if !streams.any(tagged) => ("a trial without tags", vec![Unsent, Loss]),
            (true, true) => ("a trial", [&[Unsent][..], &NUMBERED, &TIMES].concat()),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{
        PortPlan, TrafficJob,
        capture::CaptureJob,
        load::LoadJob,
        plan::{Plan, Stream, TagKind},
        socket::SocketJob,
    };

    fn plan(plan: Plan, criterion: &str) -> Plan {
        Plan {
            ports: vec![PortPlan::new("p", "memory:x".parse().unwrap())],
            criteria: vec![criterion.parse().unwrap()],
            ..plan
        }
    }

    fn traffic(tx: bool, rx: bool, tag: TagKind) -> Plan {
        Plan {
            traffic: vec![TrafficJob {
                tx: tx.then(|| "p".to_owned()),
                rx: rx.then(|| "p".to_owned()),
                streams: vec![Stream {
                    tag,
                    ..Stream::default()
                }],
                ..TrafficJob::default()
            }],
            ..Plan::default()
        }
    }

    #[test]
    fn what_is_not_measured_is_refused() {
        let capture = || Plan {
            captures: vec![CaptureJob::default()],
            ..Plan::default()
        };
        let load = || Plan {
            loads: vec![LoadJob::default()],
            ..Plan::default()
        };
        let socket = || Plan {
            sockets: vec![SocketJob::default()],
            ..Plan::default()
        };
        let own = TagKind::Wirebench;
        for (kind, run, measured, not) in [
            (
                "capture",
                capture(),
                &["loss<=1%"][..],
                &["p99<=1ms", "failed<=0%"][..],
            ),
            (
                "load",
                load(),
                &["failed<=0%", "p99<=1ms"],
                &["reordered<=0%"],
            ),
            ("socket", socket(), &[], &["loss<=0%", "p99<=1ms"]),
            (
                "tx",
                traffic(true, false, own),
                &["unsent<=0%"],
                &["loss<=0%", "max<=1ms"],
            ),
            (
                "rx",
                traffic(false, true, own),
                &["loss<=0%", "p50<=1ms"],
                &["unsent<=0%"],
            ),
            (
                "trial",
                traffic(true, true, own),
                &["loss<=0%", "reordered<=0%", "mean<=1ms", "unsent<=0%"],
                &["failed<=0%"],
            ),
            (
                "untagged",
                traffic(true, true, TagKind::None),
                &["loss<=0%", "unsent<=0%"],
                &["p99<=1ms", "duplicates<=0%"],
            ),
        ] {
            let refused = |criterion: &str| match plan(run.clone(), criterion).validate() {
                Ok(_) => false,
                Err(error) => error.0.iter().any(|p| p.place == "criteria"),
            };
            for criterion in measured {
                assert!(!refused(criterion), "{kind}: {criterion}");
            }
            for criterion in not {
                assert!(refused(criterion), "{kind}: {criterion}");
            }
        }
    }
}
