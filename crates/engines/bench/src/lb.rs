//! The six limits of a load balancer.
//!
//! | metric | what is sent | what a trial must show |
//! |---|---|---|
//! | `oneway-pps`, `bps`, `elephant` | UDP at a rate, over so many flows, to servers that only count | nothing lost |
//! | `twoway-pps` | the same, to servers that send each datagram back | nothing lost on either way |
//! | `cps` | TCP connections of one exchange of a byte | all completed |
//! | `cc` | connections opened and held | each answers once more after a rest |
//!
//! All traffic is open loop: what is sent does not depend on what comes back. A frame that came to our
//! port and found no room there is the tester's fault and not the device's; so is what could not be
//! sent. The search knows the difference, and the result says who was the limit. A trial that went wrong
//! while the tester was late, and by no more than that may have cost, is void and repeated; after a few of
//! them that load is the tester's limit, and the search goes on below it. Where nothing below has held, it ends without
//! a limit.

mod device;
mod judge;
mod plans;
mod search_run;
mod tuples;

use wb_model::{
    bench::{BenchLive, LbLimit, LbMetric, LbPlan, LbResult, LbTest},
    load::LoadTransport,
};
use wb_search::{Bound, Found, Purpose, Search, search};

use self::search_run::{SearchRun, Stop};
use crate::{Bench, BenchEnd};

pub use tuples::Tuples;

/// A whole benchmark, as far as it came.
#[derive(Debug)]
pub struct LbRun<E> {
    /// One for each test and frame size.
    pub results: Vec<LbResult>,
    /// What the reader must know.
    pub warnings: Vec<String>,
    /// How it ended.
    pub end: BenchEnd<E>,
}

/// One search: a test at one frame size.
#[derive(Clone, Debug)]
struct Item {
    test: LbTest,
    size: Option<u16>,
}

impl Item {
    fn of(plan: &LbPlan) -> Vec<Self> {
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

    /// Its search as it begins.
    fn live(&self) -> BenchLive {
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

    /// Its share of the time: connections have to be opened one by one.
    const fn weight(&self) -> u64 {
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

/// Runs all tests of a plan, one after the other.
pub fn run<B: Bench>(bench: &mut B, plan: &LbPlan) -> LbRun<B::Error> {
    let items = Item::of(plan);
    let mut run = LbRun {
        results: Vec::new(),
        warnings: Vec::new(),
        end: BenchEnd::Completed,
    };
    let mut tuples = Tuples::new(plan);
    let deadline = bench.now_ns().saturating_add(plan.times.budget.as_nanos());
    let mut weight: u64 = items.iter().map(Item::weight).sum();
    let mut found_cps = None;
    for item in &items {
        if bench.is_stopped() {
            run.end = BenchEnd::Interrupted;
            break;
        }
        bench.tell(item.live());
        let now = bench.now_ns();
        let part = deadline.saturating_sub(now) * item.weight() / weight.max(1);
        weight -= item.weight();
        let mut search_run = SearchRun::new(bench, plan, item, &mut tuples, now + part, found_cps);
        let found = search(&mut search_run, &item.search(plan));
        let late = match &found {
            Err(Stop::Late(reason)) => Some(reason.clone()),
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
            Err(Stop::Failed(error)) => {
                run.end = BenchEnd::Failed(error);
                break;
            }
            Err(Stop::Interrupted) => {
                run.end = BenchEnd::Interrupted;
                break;
            }
            Err(Stop::Broken(reason)) => {
                run.end = BenchEnd::Broken(reason);
                break;
            }
            Ok(_) | Err(Stop::Late(_)) => {}
        }
    }
    run
}

/// What kept a search from going higher, in the words of the report.
fn limited_by(found: &Found) -> LbLimit {
    match found.bound {
        Bound::Device => LbLimit::Device,
        Bound::Tester => LbLimit::Tester,
        Bound::Maximum => LbLimit::Plan,
        Bound::Unfinished => LbLimit::Time,
    }
}

const fn purpose(purpose: Purpose) -> wb_model::bench::LbPurpose {
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
            "{name}: {tuples:.0} combinations of addresses and ports come again after {reuse:.1} s, and the device remembers connections for {timeout}: some of the new ones met entries that were still there. Give {factor:.0} times as many in client.hosts, client.ports or device.ports",
        ));
    } else if came_round && result.metric == LbMetric::Cps {
        found.push(format!(
            "{name}: combinations of addresses and ports of one trial came again in a later one within {timeout}, the time the device remembers; more in client.hosts help",
        ));
    }
    let failed: u32 = result.trials.iter().map(|t| t.device.failed_readings).sum();
    if failed > 0 {
        let readings: u32 = result.trials.iter().map(|t| t.device.readings).sum();
        found.push(format!(
            "{name}: {failed} of {readings} readings of the device's counters failed; see probes"
        ));
    }
    found
}
