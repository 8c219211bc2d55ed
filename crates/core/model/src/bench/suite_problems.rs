//! Checks of a test suite, as far as they need only the plan.

use super::{
    FILTER_CONDITIONS, Load, Method, Modifier, Quantity, Service, Share, SuitePlan, SuiteTest,
};
use crate::{
    load::LoadEnd,
    plan::{Plan, TrafficJob},
    units::{FrameSize, Rate, Span},
    validate::{Findings, PlanError, PlanWarnings, rules},
};

/// Minimum trial time: start and end effects dominate shorter trials.
const SHORTEST: Span = Span::from_millis(100);
/// Minimum time for availability: a service becomes unavailable after ten seconds (ITU-T Y.1563).
const LEAST_AVAILABILITY: Span = Span::from_secs(10);
/// Maximum burst length of modifier `bursts`, in frames.
const LARGEST_BURST: u32 = 1 << 20;
/// Maximum burst duration: longer bursts are no valid result (RFC 9004 section 5.4).
const LONGEST_BURST: Span = Span::from_secs(30);

impl SuitePlan {
    /// Returns the traffic job of a plan whose load changes, if it is a load of frames.
    #[must_use]
    pub fn traffic<'a>(&self, plan: &'a Plan) -> Option<&'a TrafficJob> {
        self.traffic_index(plan).map(|n| &plan.traffic[n])
    }

    /// Returns the index of that traffic job.
    #[must_use]
    pub fn traffic_index(&self, plan: &Plan) -> Option<usize> {
        let named = plan.job_names_of_trial(crate::JobKind::Traffic);
        plan.traffic.iter().enumerate().position(|(n, job)| {
            let sends = job.tx.is_some() && job.rx.is_some();
            sends && self.job.as_ref().is_none_or(|name| *name == named[n])
        })
    }

    /// Returns the index of the traffic job with the frames of a service.
    #[must_use]
    pub fn service_index(&self, plan: &Plan, service: &Service) -> Option<usize> {
        let Some(name) = &service.job else {
            return self.traffic_index(plan);
        };
        let named = plan.job_names_of_trial(crate::JobKind::Traffic);
        named.iter().position(|own| own == name)
    }

    /// Returns the index of the load that changes, if it is a load of connections or requests.
    #[must_use]
    pub fn load_index(&self, plan: &Plan) -> Option<usize> {
        let named = plan.job_names_of_trial(crate::JobKind::Load);
        plan.loads.iter().enumerate().position(|(n, load)| {
            load.end == LoadEnd::Client && self.job.as_ref().is_none_or(|name| *name == named[n])
        })
    }

    /// Returns the index of the HTTP load that changes.
    #[must_use]
    pub fn http_index(&self, plan: &Plan) -> Option<usize> {
        let named = plan.job_names_of_trial(crate::JobKind::Http);
        (0..plan.http_jobs.len()).find(|n| self.job.as_ref().is_none_or(|name| *name == named[*n]))
    }

    fn check(&self, plan: &Plan, found: &mut Findings) {
        let place = "procedure.suite";
        let of_frames = self.of == Quantity::Frames;
        let has_job = match self.of {
            Quantity::Frames => self.traffic_index(plan).is_some(),
            Quantity::Cps | Quantity::Cc => self.load_index(plan).is_some(),
            Quantity::Rps => self.load_index(plan).is_some() || self.http_index(plan).is_some(),
        };
        let what = match self.of {
            Quantity::Frames => "[[traffic]] with tx and rx",
            Quantity::Cps | Quantity::Cc => "[[load]] that is a client",
            Quantity::Rps => "[[load]] that is a client, or [[http]]",
        };
        let named = self
            .job
            .as_ref()
            .map_or_else(String::new, |name| format!(" named {name:?}"));
        rules! { found:
            !has_job => place, "of = {:?} needs a job{named}: {what}", self.of.name();
            self.tests.is_empty() => place, "it has no tests; one at least";
            !of_frames && !self.sizes.is_empty() => place, "sizes are for frames";
            !of_frames && !self.ipv6_shares.is_empty() => place, "ipv6_shares are for frames";
            !of_frames && !self.modifiers.is_empty() => place, "modifiers are for frames";
        }
        for (n, test) in self.tests.iter().enumerate() {
            rules! { found:
                self.tests[..n].contains(test) => place, "test {} is named twice", test.name();
                !of_frames && !matches!(test, SuiteTest::Throughput | SuiteTest::Ndr | SuiteTest::Loss) =>
                    place, "test {} is for frames; throughput, ndr and loss are for {}", test.name(), self.of.name();
                *test == SuiteTest::Y1564 && self.services.is_empty() =>
                    place, "test y1564 needs [[procedure.suite.service]]";
            }
        }
        let mixes = !self.ipv6_shares.is_empty();
        rules! { found:
            mixes && self.tests.contains(&SuiteTest::B2b) =>
                place, "ipv6_shares: bursts have none, and RFC 5180 asks for no test b2b; take it out";
            mixes && self.tests.contains(&SuiteTest::Y1564) =>
                place, "ipv6_shares: services have frames of their own; take out test y1564";
            self.tests == [SuiteTest::Y1564] && self.sizes.len() > 1 =>
                place, "test y1564 is made at one size, not {}; several as one mix: imix, or weights", self.sizes.len();
        }
        if let Some(job) = self.traffic(plan).filter(|_| of_frames) {
            self.check_job(job, found);
        }
        for service in self
            .services
            .iter()
            .filter(|s| of_frames && s.job.is_some())
        {
            let own = self
                .service_index(plan, service)
                .filter(|n| Some(*n) != self.traffic_index(plan));
            if let Some(n) = own {
                check_streams(&plan.traffic[n], found);
            }
        }
        self.check_modifiers(plan, found);
        self.check_loads(found);
        self.check_times(found);
        for (n, service) in self.services.iter().enumerate() {
            let place = format!("{place}, service {}", n + 1);
            let job = self.service_index(plan, service).map(|n| &plan.traffic[n]);
            let is_shared = |other: &Service| {
                let other = self.service_index(plan, other).map(|n| &plan.traffic[n]);
                job.zip(other).is_some_and(|(a, b)| {
                    let ports = |job: &TrafficJob| [job.tx.clone(), job.rx.clone()];
                    let met = ports(a).iter().any(|port| ports(b).contains(port));
                    met && (ports(a), a.bidir) != (ports(b), b.bidir)
                })
            };
            let crossing = self.services[..n].iter().find(|other| is_shared(other));
            let is_way = job.is_some_and(|job| job.tx.is_some() && job.rx.is_some());
            let name = service.job.clone().unwrap_or_default();
            rules! { found:
                of_frames && service.job.is_some() && !is_way => &place, "job {name:?}; the name of a [[traffic]] with tx and rx";
                crossing.is_some() =>
                    &place, "it shares a port with service {:?}, so both need the same tx, rx and bidir", crossing.map_or("", |s| &s.name);
                self.services[..n].iter().any(|s| s.name == service.name) =>
                    &place, "two services are named {:?}", service.name;
                service.performance < SHORTEST => &place, "performance is {}; at least {SHORTEST}", service.performance;
                service.availability.is_some() && service.performance < LEAST_AVAILABILITY =>
                    &place, "availability of a performance test of {}; of {LEAST_AVAILABILITY} at least", service.performance;
                matches!(service.cir, Rate::Max | Rate::Percent(_)) => &place, "cir is {}; a rate of its own: 100mbps", service.cir;
                matches!(service.eir, Some(Rate::Max | Rate::Percent(_))) =>
                    &place, "eir is {}; a rate of its own: 50mbps", service.eir.unwrap_or(Rate::Max);
                service.loss.0 >= 1.0 => &place, "loss is {}; less than 1", service.loss;
                service.step < SHORTEST => &place, "step is {}; at least {SHORTEST}", service.step;
            }
        }
    }

    fn check_job(&self, job: &TrafficJob, found: &mut Findings) {
        let place = "procedure.suite";
        check_streams(job, found);
        let of = |ipv6: bool| job.streams.iter().any(|stream| stream.is_ipv6() == ipv6);
        for (n, share) in self.ipv6_shares.iter().enumerate() {
            rules! { found:
                self.ipv6_shares[..n].contains(share) => place, "ipv6_shares: {share} is named twice";
                n == 0 && !(of(false) && of(true)) =>
                    place, "ipv6_shares: its job needs streams of IPv4 and of IPv6";
            }
        }
        for (n, size) in self.sizes.iter().enumerate() {
            rules! { found:
                self.sizes[..n].iter().any(|s| s.model == size.model) => place, "size {size} is named twice";
                size.model.largest() > FrameSize::MAX => place, "size {size}; at most {}", FrameSize::MAX;
            }
        }
    }

    fn check_modifiers(&self, plan: &Plan, found: &mut Findings) {
        let place = "procedure.suite";
        for (n, modifier) in self.modifiers.iter().enumerate() {
            rules! { found:
                self.modifiers[..n].contains(modifier) => place, "modifier {} is named twice", modifier.name();
            }
        }
        rules! { found:
            !self.modifiers.is_empty() && self.tests.contains(&SuiteTest::Y1564) =>
                place, "modifiers are of the tests of RFC 2544, and y1564 has none; take out one of them";
        }
        let bursts = self.has(Modifier::Bursts);
        let streams = self.traffic(plan).map_or(1, |job| job.streams.len());
        rules! { found:
            bursts && !self.tests.iter().any(|test| test.finds_limit()) =>
                place, "modifier bursts is for tests throughput and ndr; one of them at least";
            bursts && self.has(Modifier::Broadcast) =>
                place, "modifiers bursts and broadcast; each is a run of its own";
            bursts && streams > 1 =>
                place, "modifier bursts; its job has {streams} streams, and a burst is one: give it ranges or flows";
            !self.ipv6_shares.is_empty() && (bursts || self.has(Modifier::Filters)) =>
                place, "modifiers bursts and filters are for one stream, and ipv6_shares makes two; take out one of them";
            bursts && self.burst_lengths.is_empty() => place, "burst_lengths is empty; one at least";
        }
        let stream = self.traffic(plan).and_then(|job| job.streams.first());
        let tags = stream.map_or(0, |stream| stream.vlan.len());
        if let Some(load) = self.management_load(plan) {
            let (from, to) = (load.clients[0].first(), load.servers[0].first());
            rules! { found:
                from.is_ipv4() != to.is_ipv4() =>
                    place, "modifier management; from {from} nobody asks {to}: both are of one version of IP";
                from == to =>
                    place, "modifier management; {to} is whom the queries are from, and no address of the device";
            }
        }
        for modifier in [Modifier::Management, Modifier::Routing] {
            rules! { found:
                self.has(modifier) && tags > 1 =>
                    place, "modifier {}; its stream has {tags} VLAN tags, and its frames have one VLAN tag at most", modifier.name();
                self.has(modifier) && plan.loads.iter().any(|load| load.name == modifier.name()) =>
                    place, "modifier {} has a load of that name; call that of the plan otherwise", modifier.name();
            }
        }
        rules! { found:
            !FILTER_CONDITIONS.contains(&self.filter_conditions) =>
                place, "filter_conditions is {}; 1 or 25 (RFC 2544 section 11.4)", self.filter_conditions;
            self.has(Modifier::Filters) && streams > 1 =>
                place, "modifier filters; its job has {streams} streams, and one condition permits one: give it ranges";
            self.has(Modifier::Routing) && stream.is_some_and(crate::Stream::is_ipv6) =>
                place, "modifier routing; RIPv2 is of IPv4, and its stream is of IPv6";
        }
        for (n, length) in self.burst_lengths.iter().enumerate() {
            rules! { found:
                !(2..=LARGEST_BURST).contains(length) =>
                    place, "burst_lengths: {length}; 2 to {LARGEST_BURST}";
                self.burst_lengths[..n].contains(length) => place, "burst_lengths: {length} is named twice";
            }
        }
    }

    fn check_loads(&self, found: &mut Findings) {
        let place = "procedure.suite";
        let search = &self.search;
        for (name, load) in [("max", self.max), ("min", self.min)] {
            let is_rate = matches!(load, Some(Load::Rate(_)));
            rules! { found:
                is_rate && self.of != Quantity::Frames => place, "{name} is a number of {}: 20k", self.of.unit();
                load == Some(Load::Rate(Rate::Max)) || load == Some(Load::Number(0)) =>
                    place, "{name} is a load: 100kpps, 40%, 20k";
            }
        }
        for (name, share) in [
            ("precision", search.precision),
            ("resolution", search.resolution),
        ] {
            rules! { found:
                share.is_some_and(|s| !(0.0001..=0.5).contains(&s.0)) =>
                    place, "search.{name} is {}; 0.01% to 50%", share.unwrap_or_default();
            }
        }
        rules! { found:
            search.precision.is_some() && search.resolution.is_some() =>
                place, "search.precision and search.resolution; one of them";
            search.loss.0 >= 1.0 => place, "search.loss is {}; less than 1", search.loss;
            search.repeats > 100 => place, "search.repeats is {}; up to 100", search.repeats;
            search.repeats > 0 && search.method == Method::Mlr =>
                place, "search.repeats is for method binary; mlr weighs all trials at a load";
            !(0.001..=0.1).contains(&self.step.0) =>
                place, "step is {}; 0.1% to 10% (RFC 2544 section 26.3)", self.step;
        }
        let goals = self.goals();
        for (n, goal) in goals.iter().enumerate() {
            let at = format!("{place}, goal {}", n + 1);
            let is_share = |share: Share| (0.0..1.0).contains(&share.0);
            rules! { found:
                goal.name.is_empty() => &at, "it needs a name";
                goals[..n].iter().any(|g| g.name == goal.name) => &at, "two goals are named {:?}", goal.name;
                !is_share(goal.loss) || !is_share(goal.exceed) => &at, "loss and exceed are less than 1";
                !(0.0001..=0.5).contains(&goal.width.0) => &at, "width is {}; 0.01% to 50%", goal.width;
                goal.final_duration < SHORTEST => &at, "final_duration is {}; at least {SHORTEST}", goal.final_duration;
            }
        }
    }

    fn check_times(&self, found: &mut Findings) {
        let place = "procedure.suite";
        for (name, time) in [
            ("times.trial", self.times.trial),
            ("times.search", self.search_time()),
            ("latency.duration", self.latency.duration),
            ("recovery.overload", self.recovery.overload),
            ("recovery.half", self.recovery.half),
        ] {
            rules! { found: time < SHORTEST => place, "{name} is {time}; at least {SHORTEST}"; }
        }
        let latency = &self.latency;
        rules! { found:
            latency.after >= latency.duration =>
                place, "latency.after is {}; less than latency.duration, {}", latency.after, latency.duration;
            !(1..=1000).contains(&latency.repetitions) =>
                place, "latency.repetitions is {}; 1 to 1000", latency.repetitions;
            latency.loads.is_empty() => place, "latency.loads is empty; one share at least";
            latency.loads.iter().any(|l| l.0 <= 0.0) => place, "latency.loads; each above 0";
            self.impact.loads.is_empty() => place, "impact.loads is empty; one share at least";
            self.impact.loads.iter().any(|l| l.0 <= 0.0) => place, "impact.loads; each above 0";
            !(1..=1000).contains(&self.b2b.searches) =>
                place, "b2b.searches is {}; 1 to 1000", self.b2b.searches;
            self.reset.trigger.as_ref().is_some_and(|command| command.trim().is_empty()) =>
                place, "reset.trigger is empty; a command that resets the device";
            self.reset.patience != Span::default() && self.reset.patience < SHORTEST =>
                place, "reset.patience is {}; at least {SHORTEST}", self.reset.patience;
            self.b2b.resolution == 0 => place, "b2b.resolution is 0; at least 1";
            self.b2b.longest > LONGEST_BURST || self.b2b.longest == Span::default() =>
                place, "b2b.longest is {}; up to {LONGEST_BURST}", self.b2b.longest;
            !(1..=1000).contains(&self.recovery.repetitions) =>
                place, "recovery.repetitions is {}; 1 to 1000", self.recovery.repetitions;
        }
    }
}

impl Plan {
    /// Checks a plan with a suite: first the ports and jobs of a trial, then the suite.
    pub(crate) fn validate_suite(&self, suite: &SuitePlan) -> Result<PlanWarnings, PlanError> {
        let mut found = Findings::default();
        let trial = self.trial();
        let warnings = match trial.validate() {
            Ok(warnings) => warnings,
            Err(PlanError(problems)) => {
                found.problems.extend(problems);
                PlanWarnings::new()
            }
        };
        suite.check(&trial, &mut found);
        let name = &suite.device.name;
        rules! { found:
            [name, &suite.device.version, &suite.device.configuration]
                .into_iter()
                .any(|text| text.contains(char::is_control)) =>
                "procedure.suite", "device: {name:?}: no control characters";
        }
        if found.problems.is_empty() && !suite.modifiers.is_empty() {
            // Checks conflicts with the jobs of modifiers.
            if let Err(PlanError(problems)) = suite.with_modifiers(&trial).validate() {
                found.within("procedure.suite, modifiers", problems);
            }
        }
        self.check_criteria(&mut found);
        match found.problems.is_empty() {
            true => Ok(warnings),
            false => Err(PlanError(found.problems)),
        }
    }
}

/// Checks that the frames of a job can be identified and counted.
fn check_streams(job: &TrafficJob, found: &mut Findings) {
    let place = "procedure.suite";
    let replays = job.streams.iter().any(|s| s.replay.is_some());
    let numbered = job.streams.iter().all(|s| s.tag_len() > 0);
    rules! { found:
        job.streams.is_empty() => place, "its job has no streams";
        replays => place, "a replay has the sizes and times of its file; take streams that are made";
        !replays && !numbered => place, "frames without a tag cannot be told from others; take out tag = \"none\"";
    }
}
