//! Metrics that each kind of run measures. A criterion on any other metric could never be met.

use crate::{
    bench::{Quantity, SuitePlan, SuiteResult},
    criteria::{Criterion, CriterionLimit, is_load, is_plain_figure, statistics},
    kinds::JobKind,
    load::LoadEnd,
    plan::{Plan, Procedure, Stream, TagKind},
    socket::{SocketJob, SocketProtocol},
    spelling::nearest,
    validate::Findings,
};

const NUMBERED: [&str; 4] = ["loss", "lost", "duplicates", "reordered"];

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// Names of the statistics of a distribution: `connect_p99`.
fn times(prefix: &str) -> impl Iterator<Item = String> {
    statistics().map(move |statistic| format!("{prefix}{statistic}"))
}

/// Metrics of the times without arrivals.
const OUTAGES: [&str; 2] = ["outages", "outage"];

/// Metrics of numbered frames that are received, with their times.
fn received() -> Vec<String> {
    let mut all = names(&[&NUMBERED[..], &["pps", "bps"]].concat());
    all.extend(times(""));
    all
}

impl Plan {
    /// Returns the name in messages of the jobs of a kind, and the metrics that they measure.
    fn measured_by(&self, kind: JobKind) -> (&'static str, Vec<String>) {
        match kind {
            JobKind::Capture => ("a capture", names(&["loss", "lost"])),
            JobKind::Load => {
                let name = match self.loads.iter().any(|l| l.end == LoadEnd::Client) {
                    true => "a load",
                    false => "a load server",
                };
                // The metrics depend on the requests and on the transport.
                let mut measured = names(&[
                    "failed",
                    "unsent",
                    "errors",
                    "loss",
                    "lost",
                    "duplicates",
                    "pps",
                    "bps",
                    "cps",
                    "rps",
                    "open",
                ]);
                measured.extend(["", "connect_", "http_"].into_iter().flat_map(times));
                measured.retain(|metric| crate::load::measures(&self.loads, metric));
                (name, measured)
            }
            JobKind::Http => {
                let mut measured =
                    names(&["failed", "unsent", "errors", "bps", "cps", "rps", "open"]);
                measured.extend(["", "connect_", "http_"].into_iter().flat_map(times));
                ("an HTTP load", measured)
            }
            JobKind::Socket if self.socket_server.is_some() => ("a server", Vec::new()),
            JobKind::Socket => ("a socket test of this kind", self.sockets_measure()),
            JobKind::Devices => self.devices_measure(),
            JobKind::Traffic => self.traffic_measures(),
            // The names of the counters are known once the probe has been read.
            JobKind::Probe => ("a probe", Vec::new()),
            JobKind::Bench if self.suite().is_some() => (
                "a suite with these tests",
                self.suite().map(suite_measures).unwrap_or_default(),
            ),
            JobKind::Bench => {
                let tests = self.lb().map(|lb| lb.tests()).unwrap_or_default();
                let limits = tests.iter().map(|test| test.metric.name().to_owned());
                ("a benchmark with these tests", limits.collect())
            }
        }
    }

    /// Returns the kinds of jobs that a criterion may apply to, each with its part of the plan.
    fn meant_by(&self, criterion: &Criterion) -> Result<Vec<(JobKind, Self)>, String> {
        if let Some(kind) = criterion.kind.filter(|kind| !self.has(*kind)) {
            return Err(format!("{criterion}: this plan has no {} job", kind.name()));
        }
        let kinds = self
            .kinds()
            .filter(|kind| criterion.kind.is_none_or(|k| k == *kind));
        let Some(job) = &criterion.job else {
            return Ok(kinds.map(|kind| (kind, self.clone())).collect());
        };
        let meant: Vec<_> = kinds
            .filter_map(|kind| Some((kind, self.one_job(kind, job)?)))
            .collect();
        if meant.is_empty() {
            let names: Vec<String> = self.kinds().flat_map(|k| self.job_names(k)).collect();
            let kinds = self.kinds().map(|kind| kind.name());
            let known: Vec<&str> = kinds.chain(names.iter().map(String::as_str)).collect();
            let there = match (
                nearest(job, known.iter().copied()).first(),
                names.is_empty(),
            ) {
                (Some(meant), _) => format!("did you mean {meant:?}?"),
                (None, true) => "criteria cannot name jobs of this plan".to_owned(),
                (None, false) => {
                    let quoted = names.iter().map(|name| format!("{name:?}"));
                    format!("known: {}", quoted.collect::<Vec<_>>().join(", "))
                }
            };
            return Err(format!("{criterion}: unknown job {job:?}; {there}"));
        }
        Ok(meant)
    }

    /// Returns the kind of jobs that a criterion applies to, or an error.
    pub(crate) fn judges(&self, criterion: &Criterion) -> Result<JobKind, String> {
        let meant = self.meant_by(criterion)?;
        let metric = &criterion.metric;
        let measures = |(kind, plan): &&(JobKind, Self)| match criterion.kind {
            Some(JobKind::Probe) => true,
            _ => {
                let declared = || plan.measured_by(*kind).1.contains(metric);
                let plain = || is_plain_figure(*kind, metric) && plan.has_figure(*kind, metric);
                plan.has_unit(criterion) && declared() || plain()
            }
        };
        let who: Vec<JobKind> = meant
            .iter()
            .filter(measures)
            .map(|(kind, _)| *kind)
            .collect();
        match who[..] {
            [one] => Ok(one),
            [] => Err(unmeasured(criterion, &meant)),
            _ => {
                let names = who.iter().map(|k| format!("{}.{criterion}", k.name()));
                let names: Vec<String> = names.collect();
                Err(format!(
                    "{criterion}: jobs of several kinds measure this metric; use {}",
                    names.join(" or ")
                ))
            }
        }
    }

    /// Returns true if results are in the unit of the limit: bit rates and shares of the line rate exist for frames only.
    fn has_unit(&self, criterion: &Criterion) -> bool {
        let is_of_frames = self
            .suite()
            .is_some_and(|suite| suite.of == Quantity::Frames);
        let is_number = matches!(criterion.limit, CriterionLimit::Number(_));
        is_number || is_of_frames || !is_load(&criterion.metric)
    }

    /// Returns true if the jobs of a kind measure a figure of frames; figures of other things are always measured.
    fn has_figure(&self, kind: JobKind, name: &str) -> bool {
        let begins = |words: &[&str]| words.iter().any(|word| name.starts_with(word));
        if !crate::frames::is_figure(name) {
            return kind != JobKind::Socket;
        }
        let (sends, receives, numbered) = match kind {
            JobKind::Traffic => {
                let streams = || self.traffic.iter().flat_map(|j| &j.streams);
                let sends = self.traffic.iter().any(|j| j.tx.is_some());
                let receives = self.traffic.iter().any(|j| j.rx.is_some());
                (sends, receives, !sends || streams().any(is_tagged))
            }
            JobKind::Devices => (!self.devices.is_empty(), !self.watches.is_empty(), true),
            JobKind::Load => (true, true, false),
            _ => return false,
        };
        let is_trial = kind != JobKind::Load;
        if begins(&["offered_", "refused_"]) {
            return sends;
        }
        if begins(&["intended_frames", "unsent_"]) {
            return sends && is_trial;
        }
        if begins(&["lost_"]) {
            return receives && is_trial;
        }
        if begins(&["duplicate_", "reordered_"]) {
            return receives && numbered;
        }
        let is_stream = kind == JobKind::Traffic && receives;
        match name {
            "late_frames" => is_stream && sends && numbered,
            "head_frames" => is_stream && !sends,
            _ => begins(&["received_", "foreign_", "rx_dropped_"]) && receives,
        }
    }

    pub(crate) fn check_criteria(&self, found: &mut Findings) {
        for criterion in &self.criteria {
            if let Err(what) = self.judges(criterion) {
                found.problem("criteria", what);
            }
        }
    }

    /// Names of the jobs of a kind that a criterion can select; unnamed jobs have a number.
    #[must_use]
    pub fn job_names(&self, kind: JobKind) -> Vec<String> {
        let word = |number: usize| match kind {
            JobKind::Traffic => "job",
            JobKind::Socket => "test",
            JobKind::Load => self.loads[number].end.name(),
            _ => kind.name(),
        };
        match kind {
            JobKind::Bench => {
                let cases = self.suite().map(SuitePlan::cases).unwrap_or_default();
                let names = cases.into_iter().map(|case| case.name);
                names.filter(|name| !name.is_empty()).collect()
            }
            JobKind::Devices | JobKind::Probe => Vec::new(),
            // A single capture has only the name of its kind.
            JobKind::Capture if self.captures.len() == 1 => Vec::new(),
            _ => {
                let names = self.names(kind).into_iter().enumerate();
                let name = |(number, name): (usize, &str)| match name {
                    "" => format!("{} {}", word(number), number + 1),
                    name => name.to_owned(),
                };
                names.map(name).collect()
            }
        }
    }

    /// Names the jobs that have no name, as criteria and reports call them. Jobs of traffic stay without a name.
    pub fn name_jobs(&mut self) {
        for kind in JobKind::ALL
            .into_iter()
            .filter(|kind| *kind != JobKind::Traffic)
        {
            let names = self.job_names(kind);
            for (own, name) in self.names_mut(kind).into_iter().zip(names) {
                *own = name;
            }
        }
    }

    /// Names of the trial's jobs of a kind, with which a suite selects the job whose load it changes.
    pub(crate) fn job_names_of_trial(&self, kind: JobKind) -> Vec<String> {
        self.trial().job_names(kind)
    }

    /// Returns the plan with only the jobs of a kind that have this name; `None` if there are none.
    fn one_job(&self, kind: JobKind, name: &str) -> Option<Self> {
        let names = self.job_names(kind);
        if !names.iter().any(|n| n == name) {
            return None;
        }
        let mut plan = self.clone();
        let mut keep = names.iter().map(|n| n == name);
        plan.retain(kind, || keep.next() == Some(true));
        if kind == JobKind::Bench
            && let Some(Procedure::Suite(suite)) = &mut plan.procedure
        {
            let case = suite.cases().into_iter().find(|case| case.name == name)?;
            suite.sizes = case.size.into_iter().collect();
            suite.ipv6_shares = case.ipv6_share.into_iter().collect();
        }
        Some(plan)
    }

    fn sockets_measure(&self) -> Vec<String> {
        let mut list = Vec::new();
        let datagrams =
            |j: &SocketJob| matches!(j.protocol, SocketProtocol::Udp | SocketProtocol::UdpLite);
        if self.sockets.iter().any(datagrams) {
            list.extend(names(&NUMBERED));
        }
        // Times and rates of different tests have no common distribution.
        if let [job] = self.sockets.as_slice() {
            list.extend(names(match job.test.counts_transactions() {
                true => &["tps"],
                false => &["bps"],
            }));
            if job.latency {
                list.extend(times(""));
            }
        }
        list
    }

    fn devices_measure(&self) -> (&'static str, Vec<String>) {
        measures_frames(
            !self.devices.is_empty(),
            !self.watches.is_empty(),
            "a run with devices",
        )
    }

    fn traffic_measures(&self) -> (&'static str, Vec<String>) {
        let sends = self.traffic.iter().any(|j| j.tx.is_some());
        let receives = self.traffic.iter().any(|j| j.rx.is_some());
        let mut streams = self.traffic.iter().flat_map(|j| &j.streams);
        if sends && receives && !streams.any(is_tagged) {
            let measured = names(&["unsent", "loss", "lost", "pps", "bps"]);
            return ("a trial without tags", measured);
        }
        let (name, mut measured) = measures_frames(sends, receives, "a trial");
        if receives {
            measured.extend(names(&OUTAGES));
        }
        (name, measured)
    }
}

fn is_tagged(stream: &Stream) -> bool {
    stream.replay.is_none() && stream.tag != TagKind::None
}

fn measures_frames(sends: bool, receives: bool, both: &'static str) -> (&'static str, Vec<String>) {
    match (sends, receives) {
        (true, false) => ("a run that only sends", names(&["unsent", "pps", "bps"])),
        (false, _) => ("a run that only receives", received()),
        (true, true) => (both, [names(&["unsent"]), received()].concat()),
    }
}

/// Metrics of the tests of a suite, each at each size.
fn suite_measures(suite: &SuitePlan) -> Vec<String> {
    let mut list: Vec<String> = Vec::new();
    for test in &suite.tests {
        for loss in suite.loss_goals(*test) {
            let result = SuiteResult {
                loss_goal: Some(loss),
                ..SuiteResult::new(*test, suite.of)
            };
            for metric in result.metrics() {
                if !list.iter().any(|own| own == metric) {
                    list.push(metric.to_owned());
                }
            }
        }
    }
    list
}

fn unmeasured(criterion: &Criterion, meant: &[(JobKind, Plan)]) -> String {
    let all = meant.iter().map(|(kind, plan)| {
        let (who, mut names) = plan.measured_by(*kind);
        if let (JobKind::Socket, [_, _, ..]) = (kind, &plan.sockets[..]) {
            let mut one = criterion.clone();
            (one.kind, one.job) = (None, plan.job_names(*kind).into_iter().next());
            return format!(
                "several socket tests have no common rate or time; name one test: {one}"
            );
        }
        names.dedup();
        let what = match names.is_empty() {
            true if *kind == JobKind::Probe => "use probe.COUNTER".to_owned(),
            true => "it has no metrics for criteria".to_owned(),
            false => format!("use one of {}", names.join(", ")),
        };
        let is_time =
            *kind == JobKind::Socket && matches!(criterion.limit, CriterionLimit::Time(_));
        let hint = match is_time {
            true => "; times need --latency",
            false => "",
        };
        format!("not measured by {who}; {what}{hint}")
    });
    format!("{criterion}: {}", all.collect::<Vec<_>>().join("; "))
}

#[cfg(test)]
mod tests {
    use crate::{
        JobKind, PortPlan, TrafficJob,
        bench::{Quantity, SuitePlan, SuiteTest},
        capture::CaptureJob,
        load::LoadJob,
        plan::{Plan, Procedure, Stream, TagKind},
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
    fn a_suite_is_judged_by_what_its_tests_measure() {
        let suite = |tests: &[SuiteTest], of: Quantity| Plan {
            procedure: Some(Procedure::Suite(Box::new(SuitePlan {
                tests: tests.to_vec(),
                of,
                sizes: ["64", "imix"].iter().map(|s| s.parse().unwrap()).collect(),
                ..SuitePlan::default()
            }))),
            ..Plan::default()
        };
        let judged = |plan: &Plan, criterion: &str| plan.judges(&criterion.parse().unwrap());
        for (tests, measured, not) in [
            (
                &[SuiteTest::Throughput][..],
                &[
                    "throughput>=1k",
                    "64.throughput>=40mbps-l2",
                    "bench.imix.throughput>=90%",
                ][..],
                &[
                    "ndr>=1",
                    "loss<=0",
                    "p99<=1ms",
                    "cps>=1",
                    "1518.throughput>=1",
                ][..],
            ),
            (
                &[SuiteTest::Ndr, SuiteTest::Loss],
                &["ndr>=1mbps", "pdr>=1", "loss<=1%"],
                &["throughput>=1", "lost<=1"],
            ),
            (
                &[SuiteTest::Latency, SuiteTest::B2b, SuiteTest::Mfr],
                &["p99<=1ms", "64.max<=1ms", "b2b>=1", "mfr>=1mbps"],
                &["recovery<=1s", "connect_p99<=1ms"],
            ),
            (
                &[SuiteTest::Impact],
                &["loss<=1%", "p99<=1ms"],
                &["throughput>=1", "mfr>=1"],
            ),
            (
                &[SuiteTest::Recovery, SuiteTest::Reset, SuiteTest::Y1564],
                &["recovery<=1s", "reset<=1s"],
                &["b2b>=1", "loss<=0"],
            ),
        ] {
            let plan = suite(tests, Quantity::Frames);
            for criterion in measured {
                assert_eq!(judged(&plan, criterion), Ok(JobKind::Bench), "{criterion}");
            }
            for criterion in not {
                assert!(judged(&plan, criterion).is_err(), "{tests:?} {criterion}");
            }
        }
        let of = |of: Quantity, criterion: &str| judged(&suite(&[SuiteTest::Ndr], of), criterion);
        assert!(of(Quantity::Cps, "cps>=1").is_ok() && of(Quantity::Cps, "ndr>=1").is_ok());
        assert!(of(Quantity::Cc, "cc>=1").is_ok() && of(Quantity::Rps, "rps>=1").is_ok());
        assert!(of(Quantity::Cps, "cc>=1").is_err() && of(Quantity::Cps, "ndr>=1mbps").is_err());
        let said = of(Quantity::Frames, "throughput>=1").unwrap_err();
        assert!(said.ends_with("use one of ndr, pdr"), "{said}");
    }

    #[test]
    fn rates_of_different_tests_have_no_sum() {
        let plan = plan(
            Plan {
                sockets: vec![SocketJob::default(), SocketJob::default()],
                ..Plan::default()
            },
            "socket.bps>=1m",
        );
        let said = plan.judges(&plan.criteria[0]).unwrap_err();
        assert!(
            said.contains("have no common rate or time; name one test: test 1.bps>=1000000"),
            "{said}"
        );
        assert!(plan.judges(&"test 1.bps>=1m".parse().unwrap()).is_ok());
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
                &["failed<=0%", "p99<=1ms", "offered_frames>=1", "no_tuple<=0"],
                &["reordered<=0%", "late_frames<=0", "lost_frames<=0"],
            ),
            ("socket", socket(), &[], &["loss<=0%", "p99<=1ms"]),
            (
                "tx",
                traffic(true, false, own),
                &["unsent<=0%", "unsent_frames<=0"],
                &["loss<=0%", "max<=1ms", "received_frames>=1"],
            ),
            (
                "rx",
                traffic(false, true, own),
                &["loss<=0%", "p50<=1ms", "head_frames<=0"],
                &["unsent<=0%", "offered_frames>=1", "late_frames<=0"],
            ),
            (
                "trial",
                traffic(true, true, own),
                &[
                    "loss<=0%",
                    "reordered<=0%",
                    "mean<=1ms",
                    "unsent<=0%",
                    "late_frames<=0",
                ],
                &["failed<=0%", "head_frames<=0", "largest_catch_up_frames<=9"],
            ),
            (
                "untagged",
                traffic(true, true, TagKind::None),
                &["loss<=0%", "unsent<=0%", "lost_frames<=0"],
                &["p99<=1ms", "duplicates<=0%", "duplicate_frames<=0"],
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
