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
            !has_job => place, "of = {:?} needs a job{named}: a {what}", self.of.name();
            self.tests.is_empty() => place, "tests is empty; give at least one test";
            !of_frames && !self.sizes.is_empty() => place, "sizes need of = \"frames\"";
            !of_frames && !self.ipv6_shares.is_empty() => place, "ipv6_shares need of = \"frames\"";
            !of_frames && !self.modifiers.is_empty() => place, "modifiers need of = \"frames\"";
        }
        for (n, test) in self.tests.iter().enumerate() {
            rules! { found:
                self.tests[..n].contains(test) => place, "duplicate test {}", test.name();
                !of_frames && !test.def().takes_connections =>
                    place, "test {} needs of = \"frames\"; use throughput, ndr or loss for {}", test.name(), self.of.name();
                test.def().has_services && self.services.is_empty() =>
                    place, "test y1564 needs [[procedure.suite.service]]";
            }
        }
        let mixes = !self.ipv6_shares.is_empty();
        rules! { found:
            mixes && self.tests.contains(&SuiteTest::B2b) =>
                place, "ipv6_shares and test b2b exclude each other (RFC 5180 has no such test); remove one";
            mixes && self.tests.contains(&SuiteTest::Y1564) =>
                place, "ipv6_shares and test y1564 exclude each other (services define their frames); remove one";
            self.tests == [SuiteTest::Y1564] && self.sizes.len() > 1 =>
                place, "test y1564 runs at one size, got {}; use a mix: imix, or weights", self.sizes.len();
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
        self.tests
            .iter()
            .for_each(|test| (test.def().check)(self, found));
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
                of_frames && service.job.is_some() && !is_way => &place, "job {name:?} is not a [[traffic]] job with tx and rx";
                crossing.is_some() =>
                    &place, "shares a port with service {:?}, so both need the same tx, rx and bidir", crossing.map_or("", |s| &s.name);
                self.services[..n].iter().any(|s| s.name == service.name) =>
                    &place, "duplicate name {:?}", service.name;
                service.performance < SHORTEST => &place, "performance must be at least {SHORTEST}, got {}", service.performance;
                service.availability.is_some() && service.performance < LEAST_AVAILABILITY =>
                    &place, "availability needs a performance of at least {LEAST_AVAILABILITY}, got {}", service.performance;
                matches!(service.cir, Rate::Max | Rate::Percent(_)) => &place, "cir must be an absolute rate, such as 100mbps, got {}", service.cir;
                matches!(service.eir, Some(Rate::Max | Rate::Percent(_))) =>
                    &place, "eir must be an absolute rate, such as 50mbps, got {}", service.eir.unwrap_or(Rate::Max);
                service.loss.0 >= 1.0 => &place, "loss must be less than 1, got {}", service.loss;
                service.step < SHORTEST => &place, "step must be at least {SHORTEST}, got {}", service.step;
            }
        }
    }

    fn check_job(&self, job: &TrafficJob, found: &mut Findings) {
        let place = "procedure.suite";
        check_streams(job, found);
        let of = |ipv6: bool| job.streams.iter().any(|stream| stream.is_ipv6() == ipv6);
        for (n, share) in self.ipv6_shares.iter().enumerate() {
            rules! { found:
                self.ipv6_shares[..n].contains(share) => place, "ipv6_shares: duplicate share {share}";
                n == 0 && !(of(false) && of(true)) =>
                    place, "ipv6_shares needs a job with IPv4 streams and IPv6 streams";
            }
        }
        for (n, size) in self.sizes.iter().enumerate() {
            rules! { found:
                self.sizes[..n].iter().any(|s| s.model == size.model) => place, "duplicate size {size}";
                size.model.largest() > FrameSize::MAX => place, "size {size} is too large; at most {} is allowed", FrameSize::MAX;
            }
        }
    }

    fn check_modifiers(&self, plan: &Plan, found: &mut Findings) {
        let place = "procedure.suite";
        for (n, modifier) in self.modifiers.iter().enumerate() {
            rules! { found:
                self.modifiers[..n].contains(modifier) => place, "duplicate modifier {}", modifier.name();
            }
        }
        rules! { found:
            !self.modifiers.is_empty() && self.tests.contains(&SuiteTest::Y1564) =>
                place, "modifiers and test y1564 exclude each other (modifiers belong to RFC 2544); remove one";
        }
        let bursts = self.has(Modifier::Bursts);
        let streams = self.traffic(plan).map_or(1, |job| job.streams.len());
        rules! { found:
            bursts && !self.tests.iter().any(|test| test.finds_limit()) =>
                place, "modifier bursts needs test throughput or ndr";
            bursts && self.has(Modifier::Broadcast) =>
                place, "modifiers bursts and broadcast exclude each other; use separate runs";
            bursts && streams > 1 =>
                place, "modifier bursts needs a job with one stream, got {streams}; use ranges or flows in one stream";
            !self.ipv6_shares.is_empty() && (bursts || self.has(Modifier::Filters)) =>
                place, "ipv6_shares and modifiers bursts or filters exclude each other (they need one stream); remove one";
            bursts && self.burst_lengths.is_empty() => place, "burst_lengths is empty; give at least one length";
        }
        let stream = self.traffic(plan).and_then(|job| job.streams.first());
        let tags = stream.map_or(0, |stream| stream.vlan.len());
        if let Some(load) = self.management_load(plan) {
            let (from, to) = (load.clients[0].first(), load.servers[0].first());
            rules! { found:
                from.is_ipv4() != to.is_ipv4() =>
                    place, "modifier management: {from} and {to} have different IP versions";
                from == to =>
                    place, "modifier management: {to} is the source of the queries; give an address of the device";
            }
        }
        for modifier in [Modifier::Management, Modifier::Routing] {
            rules! { found:
                self.has(modifier) && tags > 1 =>
                    place, "modifier {}: frames have at most one VLAN tag, the stream has {tags}", modifier.name();
                self.has(modifier) && plan.loads.iter().any(|load| load.name == modifier.name()) =>
                    place, "modifier {} adds a load of this name; rename the load of the plan", modifier.name();
            }
        }
        rules! { found:
            !FILTER_CONDITIONS.contains(&self.filter_conditions) =>
                place, "filter_conditions must be 1 or 25 (RFC 2544 section 11.4), got {}", self.filter_conditions;
            self.has(Modifier::Filters) && streams > 1 =>
                place, "modifier filters needs a job with one stream, got {streams}; use ranges in one stream";
            self.has(Modifier::Routing) && stream.is_some_and(crate::Stream::is_ipv6) =>
                place, "modifier routing (RIPv2) needs an IPv4 stream";
        }
        for (n, length) in self.burst_lengths.iter().enumerate() {
            rules! { found:
                !(2..=LARGEST_BURST).contains(length) =>
                    place, "burst_lengths must be between 2 and {LARGEST_BURST}, got {length}";
                self.burst_lengths[..n].contains(length) => place, "burst_lengths: duplicate length {length}";
            }
        }
    }

    fn check_loads(&self, found: &mut Findings) {
        let place = "procedure.suite";
        let search = &self.search;
        for (name, load) in [("max", self.max), ("min", self.min)] {
            let is_rate = matches!(load, Some(Load::Rate(_)));
            rules! { found:
                is_rate && self.of != Quantity::Frames => place, "{name} must be a number of {}, such as 20k", self.of.unit();
                load == Some(Load::Rate(Rate::Max)) || load == Some(Load::Number(0)) =>
                    place, "{name} must be a load above 0, such as 100kpps, 40% or 20k";
            }
        }
        if let (Some(min), Some(max)) = (self.min, self.max)
            && min.exceeds(max)
        {
            found.problem(place, format!("min must be at most max ({max}), got {min}"));
        }
        for (name, share) in [
            ("precision", search.precision),
            ("resolution", search.resolution),
        ] {
            rules! { found:
                share.is_some_and(|s| !(0.0001..=0.5).contains(&s.0)) =>
                    place, "search.{name} must be between 0.01% and 50%, got {}", share.unwrap_or_default();
            }
        }
        rules! { found:
            search.precision.is_some() && search.resolution.is_some() =>
                place, "search.precision and search.resolution exclude each other";
            search.loss.0 >= 1.0 => place, "search.loss must be less than 1, got {}", search.loss;
            search.repeats > 100 => place, "search.repeats must be at most 100, got {}", search.repeats;
            search.repeats > 0 && search.method == Method::Mlr =>
                place, "search.repeats needs method binary; mlr weighs all trials at a load";
            !(0.001..=0.1).contains(&self.step.0) =>
                place, "step must be between 0.1% and 10% (RFC 2544 section 26.3), got {}", self.step;
        }
        let goals = self.goals();
        for (n, goal) in goals.iter().enumerate() {
            let at = format!("{place}, goal {}", n + 1);
            let is_share = |share: Share| (0.0..1.0).contains(&share.0);
            rules! { found:
                goal.name.is_empty() => &at, "missing name";
                goals[..n].iter().any(|g| g.name == goal.name) => &at, "duplicate name {:?}", goal.name;
                !is_share(goal.loss) || !is_share(goal.exceed) => &at, "loss and exceed must be less than 1";
                !(0.0001..=0.5).contains(&goal.width.0) => &at, "width must be between 0.01% and 50%, got {}", goal.width;
                goal.final_duration < SHORTEST => &at, "final_duration must be at least {SHORTEST}, got {}", goal.final_duration;
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
            rules! { found: time < SHORTEST => place, "{name} must be at least {SHORTEST}, got {time}"; }
        }
        let latency = &self.latency;
        let drain = self.times.drain;
        rules! { found:
            drain > Span::from_secs(60) => place, "times.drain must be at most 1m, got {drain}";
            latency.after >= latency.duration =>
                place, "latency.after must be less than latency.duration: got {} of {}", latency.after, latency.duration;
            !(1..=1000).contains(&latency.repetitions) =>
                place, "latency.repetitions must be between 1 and 1000, got {}", latency.repetitions;
            latency.loads.is_empty() => place, "latency.loads is empty; give at least one share";
            latency.loads.iter().any(|l| l.0 <= 0.0) => place, "latency.loads must be above 0";
            self.impact.loads.is_empty() => place, "impact.loads is empty; give at least one share";
            self.impact.loads.iter().any(|l| l.0 <= 0.0) => place, "impact.loads must be above 0";
            !(1..=1000).contains(&self.b2b.searches) =>
                place, "b2b.searches must be between 1 and 1000, got {}", self.b2b.searches;
            self.reset.trigger.as_ref().is_some_and(|command| command.trim().is_empty()) =>
                place, "reset.trigger is empty; give a command that resets the device";
            self.reset.patience != Span::default() && self.reset.patience < SHORTEST =>
                place, "reset.patience must be at least {SHORTEST}, got {}", self.reset.patience;
            self.b2b.resolution == 0 => place, "b2b.resolution must be at least 1, got 0";
            self.b2b.longest > LONGEST_BURST || self.b2b.longest == Span::default() =>
                place, "b2b.longest must be above 0 and at most {LONGEST_BURST}, got {}", self.b2b.longest;
            !(1..=1000).contains(&self.recovery.repetitions) =>
                place, "recovery.repetitions must be between 1 and 1000, got {}", self.recovery.repetitions;
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
                "procedure.suite", "device: {name:?} has control characters; remove them";
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
        job.streams.is_empty() => place, "the traffic job has no streams";
        replays => place, "replay streams cannot be benchmarked (their sizes and times are fixed); use generated streams";
        !replays && !numbered => place, "frames without a test tag cannot be identified; remove tag = \"none\"";
    }
}

#[cfg(test)]
mod tests {
    use crate::text::plan_from_toml;

    /// Returns the problems of a plan with these keys of its suite.
    fn refused(keys: &str) -> String {
        let text = format!(
            "[[port]]\nname = \"tx\"\nlocator = \"eth8\"\n[[port]]\nname = \"rx\"\nlocator = \"eth9\"\n\
             [[traffic]]\ntx = \"tx\"\nrx = \"rx\"\n[[traffic.stream]]\n[procedure.suite]\n{keys}"
        );
        let refused = plan_from_toml("plan", &text).unwrap().validate().err();
        refused.map_or_else(String::new, |error| error.to_string())
    }

    #[test]
    fn the_lowest_load_is_at_most_the_highest() {
        let is_refused = |loads: &str| refused(loads).contains("min must be at most max");
        assert!(is_refused("min = \"10kpps\"\nmax = \"1kpps\""));
        assert!(is_refused("min = \"10k\"\nmax = \"9999pps\""));
        assert!(is_refused("min = \"50%\"\nmax = \"40%\""));
        assert!(!is_refused("min = \"1kpps\"\nmax = \"1kpps\""));
        // The frame size decides.
        assert!(!is_refused("min = \"10mbps\"\nmax = \"1kpps\""));
        assert!(!is_refused("min = \"10kpps\""));
    }

    #[test]
    fn the_drain_is_that_of_a_trial_at_most() {
        let said = |drain: &str| refused(&format!("times = {{ drain = {drain:?} }}"));
        assert!(!said("1m").contains("times.drain"));
        assert!(said("61s").contains("times.drain must be at most 1m, got 61s"));
    }
}
