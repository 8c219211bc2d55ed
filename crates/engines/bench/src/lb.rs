//! The six limits of a load balancer.
//!
//! | metric | what is sent | what a trial must show |
//! |---|---|---|
//! | `oneway-pps`, `bps`, `elephant` | UDP at a rate, over a number of flows, to servers that only count | no loss |
//! | `twoway-pps` | UDP as above, to servers that send each datagram back | no loss in either direction |
//! | `cps` | TCP connections of one exchange of a byte | all completed |
//! | `cc` | connections opened and held | each answers once more after a rest |
//!
//! All traffic is open loop: sending does not depend on received frames. Frames dropped at the tester's port, and
//! frames that could not be sent, are the tester's fault and not the device's. The search separates the two, and the
//! result states the limiting side. A trial that failed while the tester was late, by no more than the lateness may
//! have cost, is void and repeated. After a few void trials that load counts as the tester's limit, and the search
//! continues below it. If no lower load has passed, it ends without a limit.

mod client_addresses;
mod device;
mod judge;
mod plans;
mod search_run;

use wb_model::{
    bench::{BenchLive, LbLimit, LbMetric, LbPlan, LbResult, LbTest},
    load::LoadTransport,
};
use wb_search::{LimitCause, Purpose, Search, SearchResult, search};

use self::search_run::{SearchRun, SearchStop};
use crate::{Bench, BenchEnd};

pub use client_addresses::ClientAddresses;

/// A complete or partial benchmark.
#[derive(Debug)]
pub struct LbRun<E> {
    /// One for each test and frame size.
    pub results: Vec<LbResult>,
    /// Warnings for the reader.
    pub warnings: Vec<String>,
    /// Reason for the end of the benchmark.
    pub end: BenchEnd<E>,
}

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

    /// Live state at the start of the search.
    fn live_at_start(&self) -> BenchLive {
        BenchLive {
            metric: Some(self.test.metric),
            size: self.size.map(|size| size.to_string()),
            ..BenchLive::default()
        }
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

    fn search(&self, plan: &LbPlan) -> Search {
        let test = &self.test;
        let number = |count: Option<wb_model::bench::Count>| count.map(|c| c.0 as f64);
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
}

/// Runs all tests of a plan in turn.
pub fn run<B: Bench>(bench: &mut B, plan: &LbPlan) -> LbRun<B::Error> {
    let items = LbSearch::searches_of(plan);
    let mut run = LbRun {
        results: Vec::new(),
        warnings: Vec::new(),
        end: BenchEnd::Completed,
    };
    let mut tuples = ClientAddresses::new(plan);
    let deadline = bench.now_ns().saturating_add(plan.times.budget.as_nanos());
    let mut weight: u64 = items.iter().map(LbSearch::time_weight).sum();
    let mut found_cps = None;
    for item in &items {
        if bench.is_stopped() {
            run.end = BenchEnd::Interrupted;
            break;
        }
        bench.report_progress(item.live_at_start());
        let now = bench.now_ns();
        let part = deadline.saturating_sub(now) * item.time_weight() / weight.max(1);
        weight -= item.time_weight();
        let mut search_run = SearchRun::new(bench, plan, item, &mut tuples, now + part, found_cps);
        let found = search(&mut search_run, &item.search(plan));
        let late = match &found {
            Err(SearchStop::Late(reason)) => Some(reason.clone()),
            _ => None,
        };
        let result = search_run.conclude(found.as_ref().ok(), late);
        if item.test.metric == LbMetric::Cps {
            found_cps = result.limit.or(found_cps);
        }
        run.warnings
            .extend(warnings(plan, &result, tuples.came_round()));
        run.results.push(result);
        match found {
            Err(SearchStop::Failed(error)) => {
                run.end = BenchEnd::Failed(error);
                break;
            }
            Err(SearchStop::Interrupted) => {
                run.end = BenchEnd::Interrupted;
                break;
            }
            Err(SearchStop::Broken(reason)) => {
                run.end = BenchEnd::Broken(reason);
                break;
            }
            Ok(_) | Err(SearchStop::Late(_)) => {}
        }
    }
    run
}

/// Limit of a search in the terms of the report.
fn limited_by(found: &SearchResult) -> LbLimit {
    match found.bound {
        LimitCause::Device => LbLimit::Device,
        LimitCause::Tester => LbLimit::Tester,
        LimitCause::Maximum => LbLimit::Plan,
        LimitCause::Unfinished => LbLimit::Time,
    }
}

const fn lb_purpose(purpose: Purpose) -> wb_model::bench::LbPurpose {
    match purpose {
        Purpose::WarmUp | Purpose::Search => wb_model::bench::LbPurpose::Search,
        Purpose::Confirm => wb_model::bench::LbPurpose::Confirm,
    }
}

fn warnings(plan: &LbPlan, result: &LbResult, came_round: bool) -> Vec<String> {
    let mut found = Vec::new();
    let name = result.metric.name();
    let timeout = plan.device.state_timeout;
    let seconds = timeout.0.as_secs_f64();
    if let (Some(reuse), Some(cps)) = (
        result.reuse_s.filter(|reuse| *reuse < seconds),
        result.limit,
    ) {
        let tuples = plan.tuples() as f64;
        let factor = (cps * seconds / tuples).ceil().max(2.0);
        found.push(format!(
            "{name}: the {tuples:.0} combinations of addresses and ports repeat after {reuse:.1} s, within the device's connection timeout of {timeout}: some new connections met old entries; use {factor:.0} times as many client.hosts, client.ports or device.ports",
        ));
    } else if came_round && result.metric == LbMetric::Cps {
        found.push(format!(
            "{name}: combinations of addresses and ports of an earlier trial repeated within {timeout}, the device's connection timeout; use more client.hosts",
        ));
    }
    let failed: u32 = result.trials.iter().map(|t| t.device.failed_readings).sum();
    if failed > 0 {
        let readings: u32 = result.trials.iter().map(|t| t.device.readings).sum();
        found.push(format!(
            "{name}: {failed} of {readings} reads of the device's counters failed; see probes"
        ));
    }
    found
}
