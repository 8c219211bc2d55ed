//! The six limits of a load balancer, each found by a separate search.
//!
//! | metric | what is sent | what a trial must show |
//! |---|---|---|
//! | `oneway-pps`, `bps`, `elephant` | UDP at a rate, over a number of flows, to servers that only count | no loss |
//! | `twoway-pps` | UDP as above, to servers that send each datagram back | no loss in either direction |
//! | `cps` | TCP connections of one exchange of a byte | all completed |
//! | `cc` | connections opened and held | each answers once more after a rest |
//!
//! All traffic is open loop: sending does not depend on received frames. The `Tester` of suites makes the trials. This
//! module makes their plans and judges them: frames dropped at the tester's port, and frames that could not be sent, are
//! the tester's fault and not the device's.

mod client_addresses;
mod device;
mod judge;
mod plans;

use std::time::Duration;

use wb_model::{
    Charge, Plan, Report,
    bench::{
        BalancerLimit, Count, LbLimit, LbMetric, LbPlan, LbTest, Quantity, SuiteCase, SuitePlan,
        SuiteResult, SuiteSearch, SuiteTest, SuiteTimes, SuiteTrial, TrialOutcome,
    },
    load::LoadTransport,
};
use wb_search::{LimitCause, Search, SearchResult, search};

use self::client_addresses::ClientAddresses;
use super::{
    SuiteStop, TestCase,
    judge::JudgedTrial,
    shape::{TargetJob, TrialShape},
    tester::Tester,
    throughput::lowest_failed,
};
use crate::{Bench, BenchEnd, BenchRun, DeviceReading};

/// Default connection rate for `cc`, per second.
const OPEN_RATE: u64 = 20_000;
/// Default share of failed connections that `cps` tolerates.
const CPS_FAILED: f64 = 1e-5;
/// Maximum wait for a device to remove ended connections if no counter shows them.
const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// One search: a test at one frame size.
#[derive(Clone, Debug)]
struct LbSearch {
    test: LbTest,
    size: Option<u16>,
}

impl LbSearch {
    fn searches_of(plan: &LbPlan) -> Vec<Self> {
        let sizes = |test: &LbTest| match (test.metric, test.sizes.as_slice()) {
            (LbMetric::Cps | LbMetric::Cc, _) => vec![None],
            (LbMetric::Bps, []) => vec![Some(1500)],
            (LbMetric::Elephant, []) => vec![Some(64), Some(1500)],
            (_, []) => vec![Some(64)],
            (_, sizes) => sizes.iter().copied().map(Some).collect(),
        };
        let items = |test: LbTest| {
            sizes(&test).into_iter().map(move |size| Self {
                test: test.clone(),
                size,
            })
        };
        plan.tests().into_iter().flat_map(items).collect()
    }

    fn transport(&self) -> LoadTransport {
        match self.test.metric.is_of_connections() {
            true => self.test.transport.unwrap_or(LoadTransport::Tcp),
            false => LoadTransport::Udp,
        }
    }

    /// Weight in the distribution of time: connections must be opened one by one.
    const fn time_weight(&self) -> u64 {
        match self.test.metric {
            LbMetric::Cc => 3,
            _ => 1,
        }
    }

    /// Tolerated share of failures.
    fn goal(&self) -> f64 {
        let default = match self.test.metric {
            LbMetric::Cps => CPS_FAILED,
            _ => 0.0,
        };
        self.test.loss.map_or(default, |loss| loss.0)
    }

    fn search(&self, plan: &LbPlan) -> Search {
        let test = &self.test;
        let number = |count: Option<Count>| count.map(|c| c.0 as f64);
        let start = match test.metric {
            LbMetric::Cps => 1_000.0,
            LbMetric::Cc => 16_000.0,
            _ => 20_000.0,
        };
        let start = number(test.start).unwrap_or(start);
        let tuples = plan.tuples().min(1 << 50) as f64;
        let maximum = number(test.max);
        let (first, maximum) = match (test.metric, maximum) {
            (LbMetric::Cc, max) => (start, max.unwrap_or(tuples).min(tuples)),
            (_, Some(max)) => (number(test.start).unwrap_or(max), max),
            (_, None) => (start, f64::INFINITY),
        };
        Search {
            first: first.min(maximum),
            maximum,
            resolution: test.resolution.0,
            most_trials: test.trials,
            // Connections are opened one by one, so twice as many take twice as long.
            growth: if test.metric == LbMetric::Cc {
                2.0
            } else {
                4.0
            },
            ..Search::up_to(first)
        }
    }

    /// Times and tolerated failures of its trials, in the terms of a suite.
    fn suite(&self, plan: &LbPlan) -> SuitePlan {
        let times = &plan.times;
        SuitePlan {
            of: self.test.metric.quantity(),
            search: SuiteSearch {
                loss: wb_model::bench::Share(self.goal()),
                ..SuiteSearch::default()
            },
            times: SuiteTimes {
                trial: times.confirm,
                search: Some(times.trial),
                ramp: times.ramp,
                drain: times.drain,
                settle: Default::default(),
                warm_up: false,
            },
            ..SuitePlan::default()
        }
    }

    /// A load in the unit of the limit.
    fn in_unit(&self, load: f64) -> f64 {
        match self.test.metric {
            LbMetric::TwowayPps => 2.0 * load,
            LbMetric::Bps => load * f64::from(self.size.unwrap_or(0)) * 8.0,
            _ => load,
        }
    }
}

/// Makes the plans of a search's trials, and judges them.
pub(super) struct LbTrials<'a> {
    plan: &'a LbPlan,
    item: &'a LbSearch,
    addresses: &'a mut ClientAddresses,
    /// Connections opened per second for `cc`.
    open_rate: u64,
    /// Connections tracked by the device before the first trial, if reported.
    entries: Option<u64>,
}

impl LbTrials<'_> {
    pub(super) const fn metric(&self) -> LbMetric {
        self.item.test.metric
    }

    /// Waits until the device has removed state that would disturb the next trial.
    pub(super) fn wait<B: Bench>(&self, bench: &mut B, last: &SuiteTrial) {
        let timeout = self.plan.device.state_timeout.0;
        let before = match self.metric() {
            LbMetric::Cps if !self.addresses.is_narrow() => return,
            LbMetric::Cps => None,
            LbMetric::Cc => self.entries,
            _ => return,
        };
        let Some(before) = before else {
            bench.wait_for(timeout.min(LONGEST_WAIT));
            return;
        };
        let held = last.balancer.as_ref().map_or(0, |own| own.ours.held);
        let look = Duration::from_millis(250);
        // Expired entries are not always removed at once.
        let patience = (timeout * 3).clamp(Duration::from_secs(3), Duration::from_secs(20));
        let mut waited = Duration::ZERO;
        while waited < patience && !bench.is_stopped() {
            let now = device::tracked_connections(self.plan, &bench.read()).unwrap_or(before);
            if now <= before + held / 50 {
                break;
            }
            bench.wait_for(look);
            waited += look;
        }
    }

    /// Fits the times of a trial to its load.
    pub(super) fn fit(&self, shape: TrialShape) -> TrialShape {
        plans::fit(self, shape)
    }

    pub(super) fn trial_plan(&mut self, shape: &TrialShape, now_ns: u64) -> Plan {
        let connections = plans::max_connections(self, shape);
        let metric = self.metric();
        let clients = self.addresses.next(metric, connections, now_ns);
        plans::trial_plan(self, shape, clients)
    }

    pub(super) fn judge(
        &self,
        report: &Report,
        readings: &[DeviceReading],
        shape: &TrialShape,
    ) -> JudgedTrial {
        judge::judge_trial(self, report, readings, shape)
    }

    /// Returns the result that the lateness of the tester may have caused.
    pub(super) fn charge(&self, shape: &TrialShape, trial: &SuiteTrial) -> Option<Charge> {
        judge::charge(self, shape, trial)
    }
}

/// Runs all tests of a plan in turn.
pub fn run<B: Bench>(bench: &mut B, plan: &LbPlan) -> BenchRun<B::Error> {
    let items = LbSearch::searches_of(plan);
    let mut run = BenchRun::default();
    let mut addresses = ClientAddresses::new(plan);
    let deadline = bench.now_ns().saturating_add(plan.times.budget.as_nanos());
    let mut weight: u64 = items.iter().map(LbSearch::time_weight).sum();
    let mut found_cps = None;
    for item in &items {
        if bench.is_stopped() {
            run.end = BenchEnd::Interrupted;
            break;
        }
        let now = bench.now_ns();
        let part = deadline.saturating_sub(now) * item.time_weight() / weight.max(1);
        weight -= item.time_weight();
        let told = item.test.open_rate.map(|rate| rate.0);
        let trials = LbTrials {
            plan,
            item,
            addresses: &mut addresses,
            open_rate: told.or(found_cps).unwrap_or(OPEN_RATE).max(1),
            entries: (item.test.metric == LbMetric::Cc)
                .then(|| device::tracked_connections(plan, &bench.read()))
                .flatten(),
        };
        let (result, end) = find(bench, trials, now.saturating_add(part));
        if item.test.metric == LbMetric::Cps {
            let found = result.limit.map(|cps| (cps as u64).max(100));
            found_cps = found.or(found_cps);
        }
        let warnings = warnings(plan, &result, addresses.came_round());
        run.warnings.extend(warnings);
        run.results.push(result);
        if let Some(end) = end {
            run.end = end;
            break;
        }
    }
    run
}

/// Searches one limit. Returns the reason if the benchmark ends here.
fn find<B: Bench>(
    bench: &mut B,
    trials: LbTrials<'_>,
    deadline: u64,
) -> (SuiteResult, Option<BenchEnd<B::Error>>) {
    let (plan, item) = (trials.plan, trials.item);
    let size = item.size.map(|size| size.to_string());
    let case = TestCase {
        own: SuiteCase {
            name: size.unwrap_or_default(),
            size: None,
            ipv6_share: None,
        },
        base: plans::ports(plan),
    };
    let suite = item.suite(plan);
    let target = TargetJob::Load(plans::CLIENT);
    let mut tester = Tester::new(bench, &case.base, &suite, target, &case, SuiteTest::Lb);
    tester.deadline = deadline;
    tester.lb = Some(trials);
    tester.report_start();
    let found = search(&mut tester, &item.search(plan));
    let mut result = conclude(plan, item, &found, &tester.log);
    tester.add_log(&mut result);
    let end = match found {
        Ok(_) | Err(SuiteStop::Late(_)) => None,
        Err(stop) => Some(stop.into()),
    };
    result.incomplete = end.is_some();
    (result, end)
}

fn conclude<E>(
    plan: &LbPlan,
    item: &LbSearch,
    found: &Result<SearchResult, SuiteStop<E>>,
    log: &[SuiteTrial],
) -> SuiteResult {
    let metric = item.test.metric;
    let late = match found {
        Err(SuiteStop::Late(reason)) => Some(reason.clone()),
        _ => None,
    };
    let found = found.as_ref().ok();
    // In an interrupted search, the highest passed load is a lower bound for the device.
    let passed = || {
        let passed = log.iter().filter(|t| t.outcome == TrialOutcome::Pass);
        passed.map(|t| t.intended).reduce(f64::max)
    };
    let best = match found {
        Some(found) => found.best,
        None if late.is_some() => None,
        None => passed(),
    };
    let best_trial = best.and_then(|best| {
        let shows = |t: &SuiteTrial| match t.outcome {
            TrialOutcome::Pass => t.offered >= best * 0.97 && t.intended <= best * 1.001,
            TrialOutcome::NotOffered => t.offered >= best * 0.97,
            _ => false,
        };
        // The last one confirmed the result.
        log.iter().rposition(shows)
    });
    let load = best_trial.map(|n| log[n].offered);
    // A search that was stopped proves no limit of the tester.
    let is_over = found.is_some() && load.is_none();
    let late = late.or_else(|| void_at_least_load(log).filter(|_| is_over));
    let both_ways = match metric {
        LbMetric::TwowayPps => 2.0,
        _ => 1.0,
    };
    let limited_by = match (&late, found) {
        (Some(_), _) => LbLimit::Tester,
        (None, None) => LbLimit::Time,
        (None, Some(found)) => match found.bound {
            LimitCause::Device => LbLimit::Device,
            LimitCause::Tester => LbLimit::Tester,
            LimitCause::Maximum => LbLimit::Plan,
            LimitCause::Unfinished => LbLimit::Time,
        },
    };
    let is_of_frames = metric.quantity() == Quantity::Frames;
    let l2_bps = load
        .zip(item.size)
        .map(|(pps, size)| pps * f64::from(size) * 8.0 * both_ways);
    let cps = load.filter(|cps| metric == LbMetric::Cps && *cps > 0.0);
    let limit = BalancerLimit {
        flows: is_of_frames.then(|| plans::concurrent_flows(plan, item)),
        l2_bps,
        reuse_s: cps.map(|cps| plan.tuples() as f64 / cps),
        best_trial,
        late,
        ..BalancerLimit::new(metric, item.transport())
    };
    SuiteResult {
        limit: load.map(|load| item.in_unit(load)),
        limited_by: Some(limited_by),
        tester_limit: limited_by == LbLimit::Tester,
        confirmed: found.is_some_and(|found| found.confirmed),
        beyond: found
            .and_then(|found| lowest_failed(found, log))
            .map(|load| item.in_unit(load)),
        loss_goal: Some(item.goal()),
        ..SuiteResult::of_balancer(limit, item.size)
    }
}

/// Returns why the smallest load tried says nothing about the device, if none of its trials was valid.
fn void_at_least_load(log: &[SuiteTrial]) -> Option<String> {
    let least = log.iter().map(|t| t.intended).reduce(f64::min)?;
    let at_least_load = || log.iter().filter(|t| t.intended <= least);
    let all_void = !at_least_load().any(|t| t.outcome.is_valid());
    let last = at_least_load().next_back().filter(|_| all_void);
    last.map(|t| t.reason.clone())
}

fn warnings(plan: &LbPlan, result: &SuiteResult, came_round: bool) -> Vec<String> {
    let mut found = Vec::new();
    let name = result.name();
    let own = result.balancer.as_deref();
    let timeout = plan.device.state_timeout;
    let seconds = timeout.0.as_secs_f64();
    let reuse_s = own.and_then(|own| own.reuse_s);
    if let (Some(reuse), Some(cps)) = (reuse_s.filter(|reuse| *reuse < seconds), result.limit) {
        let tuples = plan.tuples() as f64;
        let factor = (cps * seconds / tuples).ceil().max(2.0);
        found.push(format!(
            "{name}: the {tuples:.0} combinations of addresses and ports repeat after {reuse:.1} s, within the device's connection timeout of {timeout}: some new connections met old entries; use {factor:.0} times as many client.hosts, client.ports or device.ports",
        ));
    } else if came_round && own.is_some_and(|own| own.metric == LbMetric::Cps) {
        found.push(format!(
            "{name}: combinations of addresses and ports of an earlier trial repeated within {timeout}, the device's connection timeout; use more client.hosts",
        ));
    }
    let devices = || {
        let trials = result.trial_log.iter();
        trials
            .filter_map(|t| t.balancer.as_ref())
            .map(|own| &own.device)
    };
    let failed: u32 = devices().map(|device| device.failed_readings).sum();
    if failed > 0 {
        let readings: u32 = devices().map(|device| device.readings).sum();
        found.push(format!(
            "{name}: {failed} of {readings} reads of the device's counters failed; see probes"
        ));
    }
    found
}
