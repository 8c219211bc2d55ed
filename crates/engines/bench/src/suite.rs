//! Test suites for a device: RFC 2544 and related standards, one module per test.
//!
//! | test | module | by |
//! |---|---|---|
//! | `throughput`, `ndr` | `throughput` | RFC 2544 section 26.1, ETSI GS NFV-TST 009, RFC 9971 |
//! | `latency` | `latency` | RFC 2544 section 26.2, RFC 8219 section 7, RFC 5481 |
//! | `loss` | `loss` | RFC 2544 section 26.3 |
//! | `mfr` | `forwarding` | RFC 2889 section 5.6.1 |
//! | `impact` | `impact` | RFC 5180 |
//! | `b2b` | `bursts` | RFC 9004 |
//! | `recovery` | `recovery` | RFC 2544 section 26.5 |
//! | `reset` | `reset` | RFC 6201 |
//! | `soak` | `soak` | one load for a long time |
//! | `y1564` | `services` | ITU-T Y.1564 |
//!
//! All of them request trials from `Tester`. A trial is the plan's own jobs with another load on one of them
//! (`shape`), and its result is a line of the trial log (`judge`). Trials without information about the device are
//! repeated, so a procedure sees either the device or the tester's limit.

mod availability;
mod bursts;
mod forwarding;
mod impact;
mod judge;
mod latency;
pub mod lb;
mod loss;
mod modifiers;
mod recovery;
mod reset;
mod services;
mod shape;
mod soak;
mod tester;
mod throughput;

use std::{collections::BTreeSet, time::Duration};

use wb_model::{
    Driver, JobKind, Locator, Plan,
    bench::{
        FamilyFrames, LbLimit, Load, Quantity, SuiteCase, SuitePlan, SuiteResult, SuiteTest,
        SuiteTrial, TrialOutcome, TrialPurpose,
    },
    units::{Rate, Rational, WIRE_OVERHEAD},
};

pub use self::services::{ServiceLoad, service_loads};
use self::{
    shape::{TargetJob, TrialAmount},
    tester::{RemainingWork, Tester},
};
use crate::{Bench, BenchEnd, BenchRun, dropped_by_tester};

/// Time for measuring the tester's own ceiling, in each of two trials.
const CEILING: Duration = Duration::from_millis(500);
/// Start load of a search without a known maximum, in connections or requests.
const UNKNOWN: f64 = 1_000.0;

/// Reason why no further trial is made.
#[derive(Debug)]
enum SuiteStop<E> {
    Interrupted,
    Failed(E),
    Broken(String),
    /// The tester was late repeatedly; the device remains unknown.
    Late(String),
}

impl<E> From<SuiteStop<E>> for BenchEnd<E> {
    fn from(stop: SuiteStop<E>) -> Self {
        match stop {
            SuiteStop::Interrupted => Self::Interrupted,
            SuiteStop::Failed(error) => Self::Failed(error),
            SuiteStop::Broken(text) | SuiteStop::Late(text) => Self::Broken(text),
        }
    }
}

/// Known properties of a frame size, from any test.
#[derive(Clone, Debug, Default)]
struct SizeFacts {
    /// Mean frame size with FCS.
    mean: Option<f64>,
    /// Capacity of the link.
    theoretical: Option<f64>,
    /// Measured ceiling of the tester.
    ceiling: Option<f64>,
    /// Largest load of a search.
    maximum: f64,
    /// The maximum is the tester's, not that of a link or the plan.
    maximum_is_ours: bool,
    /// The throughput.
    throughput: Option<f64>,
    /// The throughput was limited by the tester.
    tester_limit: bool,
}

/// Runs all tests of a plan's suite in turn.
pub fn run<B: Bench>(bench: &mut B, plan: &Plan) -> BenchRun<B::Error> {
    let mut run = BenchRun::default();
    let Some(suite) = plan.suite() else {
        return run;
    };
    let base = plan.trial();
    let Some(target) = TargetJob::of_plan(suite, &base) else {
        return run;
    };
    let cases = test_cases(suite, &base, target);
    let mut warnings = BTreeSet::new();
    let mut whole = RunningSuite {
        bench,
        suite,
        target,
        known: vec![SizeFacts::default(); cases.len()],
        cases: &cases,
        engine: None,
        spent: Vec::new(),
        warnings: &mut warnings,
        results: &mut run.results,
    };
    if let Err(stop) = whole.run_all() {
        run.end = stop.into();
    }
    run.warnings = warnings.into_iter().collect();
    run
}

/// Variant of the tests, and its base plan.
struct TestCase {
    own: SuiteCase,
    base: Plan,
}

fn test_cases(suite: &SuitePlan, base: &Plan, target: TargetJob) -> Vec<TestCase> {
    let case = |own: SuiteCase| {
        let mut base = base.clone();
        if let (TargetJob::Traffic(n), Some(share)) = (target, own.ipv6_share) {
            base.traffic[n] = shape::with_ipv6_share(&base.traffic[n], share.0);
        }
        TestCase { own, base }
    };
    suite.cases().into_iter().map(case).collect()
}

/// A running suite.
struct RunningSuite<'a, B: Bench> {
    bench: &'a mut B,
    suite: &'a SuitePlan,
    target: TargetJob,
    cases: &'a [TestCase],
    /// Known properties of each case.
    known: Vec<SizeFacts>,
    /// Rate of the engine between two memory ports, frames per second.
    engine: Option<f64>,
    /// Time of each test at each size so far.
    spent: Vec<Duration>,
    warnings: &'a mut BTreeSet<String>,
    results: &'a mut Vec<SuiteResult>,
}

impl<'a, B: Bench> RunningSuite<'a, B> {
    fn run_all(&mut self) -> Result<(), SuiteStop<B::Error>> {
        let runs = self.all_combinations();
        for (done, (test, n, burst)) in runs.iter().enumerate() {
            if self.bench.is_stopped() {
                return Err(SuiteStop::Interrupted);
            }
            let began = self.bench.now_ns();
            self.at_size(*test, *n, *burst, runs.len() - done - 1)?;
            let took = self.bench.now_ns().saturating_sub(began);
            self.spent.push(Duration::from_nanos(took));
        }
        Ok(())
    }

    /// All combinations of test, size and burst.
    fn all_combinations(&self) -> Vec<(SuiteTest, usize, Option<u32>)> {
        let mut runs = Vec::new();
        for test in &self.suite.tests {
            // Services have separate rates, and their sizes are those of their streams.
            let sizes = match test.def().has_services {
                true => 1,
                false => self.known.len(),
            };
            for n in 0..sizes {
                let bursts = self.suite.bursts_of(*test).into_iter();
                runs.extend(bursts.map(|burst| (*test, n, burst)));
            }
        }
        runs
    }

    /// Typical time of a test at one size, from those completed.
    fn typical_time(&self) -> Duration {
        let made = u32::try_from(self.spent.len()).unwrap_or(u32::MAX);
        match made {
            0 => {
                let times = &self.suite.times;
                let one =
                    times.ramp.0 + times.drain.0 + times.settle.0 + self.suite.search_time().0;
                one * 10 + times.trial.0
            }
            made => self.spent.iter().sum::<Duration>() / made,
        }
    }

    /// Runs one test at one size, after the throughput if it is needed and unknown.
    fn at_size(
        &mut self,
        test: SuiteTest,
        n: usize,
        burst: Option<u32>,
        rest: usize,
    ) -> Result<(), SuiteStop<B::Error>> {
        self.find_ceiling(n)?;
        let needs = test.needs_throughput() && self.known[n].throughput.is_none();
        let has_own = self.suite.tests.contains(&SuiteTest::Throughput);
        if needs && !has_own {
            self.run_test(SuiteTest::Throughput, n, None, rest + 1)?;
        }
        self.run_test(test, n, burst, rest)
    }

    fn run_test(
        &mut self,
        test: SuiteTest,
        n: usize,
        burst: Option<u32>,
        rest: usize,
    ) -> Result<(), SuiteStop<B::Error>> {
        let mut result = self.empty_result(test, n);
        result.burst = burst.map(|frames| modifiers::bursts::empty_gap(frames, &self.known[n]));
        let after = self.typical_time() * u32::try_from(rest).unwrap_or(u32::MAX);
        let case = &self.cases[n];
        let mut tester = Tester::new(self.bench, &case.base, self.suite, self.target, case, test);
        tester.left = RemainingWork { trials: 1, after };
        tester.burst = burst;
        let known = &mut self.known[n];
        tester.maximum = (known.maximum.is_finite()).then_some(known.maximum);
        tester.ceiling = known.ceiling;
        let budget = u64::try_from(self.suite.search.budget.0.as_nanos()).unwrap_or(u64::MAX);
        tester.deadline = tester.bench.now_ns().saturating_add(budget);
        tester.report_start();
        let mut more = Vec::new();
        let made = match test {
            SuiteTest::Throughput => throughput::find(&mut tester, known, &mut result),
            SuiteTest::Ndr => throughput::measure_goals(&mut tester, known, &mut result, &mut more),
            SuiteTest::Latency => latency::measure_latency(&mut tester, known, &mut result),
            SuiteTest::Loss => loss::measure_loss(&mut tester, known, &mut result),
            SuiteTest::Mfr => forwarding::measure_forwarding(&mut tester, known, &mut result),
            SuiteTest::Impact => impact::measure_impact(&mut tester, known, &mut result),
            SuiteTest::B2b => bursts::measure_bursts(&mut tester, known, &mut result),
            SuiteTest::Recovery => recovery::measure_recovery(&mut tester, known, &mut result),
            SuiteTest::Reset => reset::measure_reset(&mut tester, known, &mut result),
            SuiteTest::Soak => soak::measure_soak(&mut tester, known, &mut result),
            SuiteTest::Y1564 => services::measure_services(&mut tester, &mut result),
            // Plans of suites cannot name it.
            SuiteTest::Lb => Ok(()),
        };
        if let Err(stop) = &made {
            result.incomplete = true;
            broken_off(&tester, &mut result, stop);
        }
        for result in std::iter::once(&mut result).chain(&mut more) {
            result.families = family_frames(result, &tester.log);
        }
        tester.add_log(&mut result);
        std::iter::once(&mut result)
            .chain(&mut more)
            .for_each(modifiers::bursts::conclude_gap);
        modifiers::routing::conclude_updates(&mut result);
        let device = self.suite.managed(&case.base);
        let dumb = modifiers::management::conclude_queries(&mut result, device);
        tester.warnings.extend(dumb);
        self.warnings.append(&mut tester.warnings);
        if test == SuiteTest::Throughput && burst.is_none() {
            known.throughput = result.limit;
            known.tester_limit = result.tester_limit;
        }
        self.results.push(result);
        self.results.append(&mut more);
        made
    }

    fn empty_result(&self, test: SuiteTest, n: usize) -> SuiteResult {
        let known = &self.known[n];
        let of = self.suite.of;
        let frames = of == Quantity::Frames;
        let mut result = SuiteResult::new(test, of);
        let case = &self.cases[n];
        result.size.clone_from(&case.own.name);
        result.filter = self.suite.filters(&case.base);
        result.ipv6_share = case.own.ipv6_share.map(|share| share.0);
        result.mean_size = known.mean;
        result.directions = match self.target {
            TargetJob::Traffic(job) => shape::direction_count(&case.base.traffic[job]) as u32,
            _ => 1,
        };
        result.theoretical_fps = known.theoretical;
        result.tester_ceiling = known.ceiling;
        result.tester_ceiling_fps = known.ceiling.filter(|_| frames);
        result.maximum = known.maximum.is_finite().then_some(known.maximum);
        result.loss_goal = Some(self.suite.search.loss.0);
        result
    }

    /// Measures the tester's ceiling at a size, which limits the loads of searches.
    fn find_ceiling(&mut self, n: usize) -> Result<(), SuiteStop<B::Error>> {
        if self.known[n].maximum > 0.0 {
            return Ok(());
        }
        let TargetJob::Traffic(job) = self.target else {
            self.known[n].maximum = match self.suite.max {
                Some(Load::Number(number)) => number as f64,
                _ => f64::INFINITY,
            };
            return Ok(());
        };
        let case = &self.cases[n];
        let mean = shape::mean_size(&case.base.traffic[job], case.own.size.as_ref());
        self.known[n].mean = Some(mean);
        let own = self
            .suite
            .max
            .and_then(|max| frames_per_second(max, mean, None));
        let has_line = matches!(self.suite.max, Some(Load::Rate(Rate::Percent(_))));
        if !self.suite.ceiling && own.is_some() && !has_line {
            self.known[n].maximum = own.unwrap_or_default();
            return Ok(());
        }
        let test = self
            .suite
            .tests
            .first()
            .copied()
            .unwrap_or(SuiteTest::Throughput);
        let mut tester = Tester::new(self.bench, &case.base, self.suite, self.target, case, test);
        if self.suite.tests == [SuiteTest::Y1564] {
            // Jobs of other services have no load before they are configured.
            services::isolate_job(&mut tester, job);
        }
        // Loss beyond the device's capacity does not matter here.
        tester.goal = 1.0;
        let shape = tester.trial_shape(TrialAmount::Most, CEILING, TrialPurpose::Ceiling);
        // A disturbance of one trial may be absent in the other.
        let mut judged = tester.run_trial(&shape, None)?;
        let second = tester.run_trial(&shape, None)?;
        if second.trial.offered > judged.trial.offered {
            judged = second;
        }
        self.warnings.append(&mut tester.warnings);
        let line = judged.line_bps;
        if self.engine.is_none() {
            self.engine = Some(self.engine_alone(case).unwrap_or(0.0));
        }
        let known = &mut self.known[n];
        known.ceiling = (judged.trial.tx > 0).then_some(judged.trial.offered);
        known.theoretical = line.map(|bps| bps as f64 / ((mean + f64::from(WIRE_OVERHEAD)) * 8.0));
        let own = self
            .suite
            .max
            .and_then(|max| frames_per_second(max, mean, line));
        let limits = [own, known.theoretical];
        let limit = limits.into_iter().flatten().reduce(f64::min);
        known.maximum_is_ours = limit.is_none();
        known.maximum = limit.or(known.ceiling).unwrap_or(f64::INFINITY);
        if judged.trial.outcome == TrialOutcome::NotRead {
            self.warnings.insert(format!(
                "{} at the tester's highest rate",
                dropped_by_tester(judged.trial.nic_drops)
            ));
        }
        Ok(())
    }

    /// Rate of the engine between two ports in memory: an upper bound for any port.
    fn engine_alone(&mut self, case: &TestCase) -> Option<f64> {
        let TargetJob::Traffic(n) = self.target else {
            return None;
        };
        let mut base = case.base.clone();
        base.keep(JobKind::Traffic);
        base.traffic = vec![base.traffic[n].clone()];
        let job = &base.traffic[0];
        let names = [job.tx.clone(), job.rx.clone()];
        base.ports
            .retain(|port| names.iter().flatten().any(|name| *name == port.name));
        for port in &mut base.ports {
            port.locator = Locator {
                host: None,
                driver: Some(Driver::Memory),
                node: None,
                name: "wb-engine".to_owned(),
            };
            port.gateway = None;
        }
        let tester = Tester::new(
            self.bench,
            &base,
            self.suite,
            TargetJob::Traffic(0),
            case,
            SuiteTest::Throughput,
        );
        let shape = tester.trial_shape(TrialAmount::Most, CEILING, TrialPurpose::Ceiling);
        let plan = shape::trial_plan(
            &base,
            self.suite,
            TargetJob::Traffic(0),
            case.own.size.as_ref(),
            &shape,
        );
        // This is only a figure for comparison: without it the suite continues.
        let ran = tester.bench.run(plan, None).ok()?;
        let judged = judge::judge_trial(
            &ran,
            self.suite.of,
            TargetJob::Traffic(0),
            &shape,
            1.0,
            &[],
            None,
        );
        let found = (judged.trial.tx > 0).then_some(judged.trial.offered)?;
        self.warnings.insert(format!(
            "engine ceiling between two ports in memory: {found:.0} frames per second"
        ));
        Some(found)
    }
}

/// A load in frames per second; `None` if it is a share of an unknown line rate.
fn frames_per_second(load: Load, mean: f64, line: Option<u64>) -> Option<f64> {
    match load {
        Load::Number(number) => Some(number as f64),
        Load::Rate(rate) => {
            let mean = Rational::new((mean * 1e6) as u128, 1_000_000)?;
            rate.frames_per_second(mean, line).map(Rational::as_f64)
        }
    }
}

/// Results of each IP version in the trial that decided.
fn family_frames(result: &SuiteResult, log: &[SuiteTrial]) -> Vec<FamilyFrames> {
    let test = result.test.def();
    let decides = |trial: &&SuiteTrial| match (test.searches, test.finds_limit) {
        (true, _) => trial.outcome == TrialOutcome::Pass && Some(trial.intended) == result.limit,
        (false, true) => Some(trial.forwarded) == result.limit,
        (false, false) => false,
    };
    let trial = log.iter().rev().find(decides);
    trial.map_or_else(Vec::new, |trial| trial.families.clone())
}

/// Result of an interrupted test: loads that passed remain valid.
fn broken_off<B: Bench>(
    tester: &Tester<'_, B>,
    result: &mut SuiteResult,
    stop: &SuiteStop<B::Error>,
) {
    let why = match stop {
        SuiteStop::Interrupted => "stopped early",
        SuiteStop::Failed(_) | SuiteStop::Broken(_) | SuiteStop::Late(_) => "stopped by an error",
    };
    if result.limit.is_none() && result.test.def().searches {
        let that = |outcome: TrialOutcome| {
            let trials = tester.log.iter().filter(move |t| t.outcome == outcome);
            let of_search =
                |t: &&SuiteTrial| matches!(t.purpose, TrialPurpose::Search | TrialPurpose::Confirm);
            trials.filter(of_search).map(|t| t.intended)
        };
        // A load that passed once and failed on confirmation is not a limit.
        let failed = that(TrialOutcome::Fail).reduce(f64::min);
        let held = that(TrialOutcome::Pass).filter(|load| failed.is_none_or(|least| *load < least));
        let best = held.reduce(f64::max);
        result.beyond = failed;
        throughput::set_limit(result, best);
        result.limited_by = Some(LbLimit::Time);
    }
    let knows = result.limit.is_some()
        || !result.latency.is_empty()
        || !result.curve.is_empty()
        || result.mfr.is_some()
        || !result.impact.is_empty()
        || !result.steps.is_empty()
        || result.bursts.is_some()
        || result.recovery.is_some();
    match knows {
        true => result.notes.push(format!("{why}: the result is partial")),
        false => result.not_measured = Some(format!("{why} before the first result")),
    }
}

/// Start load of a search without a known maximum.
fn first(known: &SizeFacts, suite: &SuitePlan) -> f64 {
    match known.maximum.is_finite() {
        true => known.maximum,
        false => search_minimum(known, suite).max(UNKNOWN),
    }
}

/// Lower limit of the search, in the unit of the load, at most its upper limit. A share of an unknown line rate is no
/// limit.
fn search_minimum(known: &SizeFacts, suite: &SuitePlan) -> f64 {
    let least = suite.min.and_then(|min| match min {
        Load::Rate(Rate::Percent(share)) => Some(known.theoretical? * share.as_f64() / 100.0),
        load => frames_per_second(load, known.mean.unwrap_or_default(), None),
    });
    least.unwrap_or(1.0).min(known.maximum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_load_of_a_search_is_that_of_the_plan() {
        let known = SizeFacts {
            mean: Some(64.0),
            theoretical: Some(1_000_000.0),
            maximum: 2e6,
            ..SizeFacts::default()
        };
        let least = |min: Option<&str>| {
            let suite = SuitePlan {
                min: min.map(|min| min.parse().unwrap()),
                ..SuitePlan::default()
            };
            search_minimum(&known, &suite)
        };
        assert_eq!(least(None), 1.0);
        assert_eq!(least(Some("2kpps")), 2e3);
        assert_eq!(least(Some("300")), 300.0);
        // 84 bytes with preamble and gap are 672 bits.
        assert_eq!(least(Some("672mbps")), 1e6);
        assert_eq!(least(Some("25%")), 250e3);
        // Only the frame size shows that it is above the highest load.
        assert_eq!(least(Some("10gbps")), 2e6);
    }
}
