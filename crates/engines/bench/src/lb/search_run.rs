//! The trials of one search.

use std::time::Duration;

use wb_model::bench::{
    BenchLive, EndedTrial, LbLimit, LbMetric, LbOurs, LbOutcome, LbPlan, LbResult, LbTrial,
};
use wb_search::{LoadOutcome, Measurer, Purpose, SearchResult, Trial, TrialRequest};

use super::{ClientAddresses, LbSearch, device, judge, lb_purpose, limited_by, plans};
use crate::{Bench, CutReason};

/// Time to open ports and find neighbours, for the first estimate of a trial's time.
const SET_UP: Duration = Duration::from_millis(800);
/// Default connection rate for `cc`, per second.
const OPEN_RATE: u64 = 20_000;

/// Maximum number of attempts for a trial that is void because the tester was late.
const LATE_TRIALS: usize = 6;
/// Maximum number of attempts after a load at which the tester was always late: that load is then a limit, not a
/// coincidence.
const LATE_TRIALS_AFTER: usize = 2;

/// Reason for a search without a result.
pub(super) enum SearchStop<E> {
    Interrupted,
    /// The tester was late repeatedly; the device remains unknown.
    Late(String),
    Failed(E),
    Broken(String),
}

/// Measures loads of one metric and keeps the results.
pub(super) struct SearchRun<'a, B: Bench> {
    bench: &'a mut B,
    plan: &'a LbPlan,
    item: &'a LbSearch,
    tuples: &'a mut ClientAddresses,
    deadline: u64,
    open_rate: u64,
    /// Connections tracked by the device before the first trial, if reported.
    entries: Option<u64>,
    trials: Vec<LbTrial>,
    /// At some load, the tester was late in every attempt.
    always_late: bool,
}

impl<'a, B: Bench> SearchRun<'a, B> {
    pub(super) fn new(
        bench: &'a mut B,
        plan: &'a LbPlan,
        item: &'a LbSearch,
        tuples: &'a mut ClientAddresses,
        deadline: u64,
        found_cps: Option<f64>,
    ) -> Self {
        let told = item.test.open_rate.map(|c| c.0);
        let found = found_cps.map(|cps| (cps as u64).max(100));
        let entries = (item.test.metric == LbMetric::Cc)
            .then(|| device::tracked_connections(plan, &bench.read()))
            .flatten();
        Self {
            bench,
            plan,
            item,
            tuples,
            deadline,
            open_rate: told.or(found).unwrap_or(OPEN_RATE),
            entries,
            trials: Vec::new(),
            always_late: false,
        }
    }

    /// Handles a load at which the tester was late in every attempt. If the device passed a lower load, this is the
    /// tester's limit, and the search continues below it; otherwise the search ends without a result.
    fn handle_always_late(
        &mut self,
        judged: judge::LbJudged,
    ) -> Result<judge::LbJudged, SearchStop<B::Error>> {
        self.always_late = true;
        let mut trials = self.trials.iter();
        match trials.any(|t| t.outcome == LbOutcome::Held) {
            true => Ok(judged),
            false => Err(SearchStop::Late(judged.reason)),
        }
    }

    fn trial_shape(&self, load: f64, purpose: Purpose) -> plans::LbTrialShape {
        plans::LbTrialShape::new(self.plan, self.item, load, purpose, self.open_rate)
    }

    fn estimate_time(&self, load: f64, purpose: Purpose) -> u64 {
        let time = SET_UP + self.trial_shape(load, purpose).whole_duration();
        u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
    }

    /// Returns true if a trial and the final confirmation fit into the remaining time. The first trial is always made.
    fn has_time(&mut self, load: f64) -> bool {
        let needed = self
            .estimate_time(load, Purpose::Search)
            .saturating_add(self.estimate_time(load, Purpose::Confirm));
        self.trials.is_empty() || self.bench.now_ns().saturating_add(needed) <= self.deadline
    }

    /// Waits until the device has removed state that would disturb the next trial.
    fn wait_for_device(&mut self) {
        let timeout = self.plan.device.state_timeout.0;
        if self.trials.is_empty() {
            return;
        }
        if self.item.test.metric == LbMetric::Cps {
            if self.tuples.is_narrow() {
                self.bench.wait_for(timeout.min(Duration::from_secs(10)));
            }
            return;
        }
        if self.item.test.metric != LbMetric::Cc {
            return;
        }
        let Some(before) = self.entries else {
            self.bench.wait_for(timeout.min(Duration::from_secs(10)));
            return;
        };
        let held = self.trials.last().map_or(0, |t| t.ours.held);
        let look = Duration::from_millis(250);
        // Expired entries are not always removed at once.
        let patience = (timeout * 3).clamp(Duration::from_secs(3), Duration::from_secs(20));
        let mut waited = Duration::ZERO;
        while waited < patience && !self.bench.is_stopped() {
            let now = device::tracked_connections(self.plan, &self.bench.read()).unwrap_or(before);
            if now <= before + held / 50 {
                break;
            }
            self.bench.wait_for(look);
            waited += look;
        }
    }

    fn one_trial(
        &mut self,
        load: f64,
        why: Purpose,
    ) -> Result<judge::LbJudged, SearchStop<B::Error>> {
        self.wait_for_device();
        let shape = self.trial_shape(load, why);
        let now = self.bench.now_ns();
        let ends = self
            .tuples
            .next_addresses(self.item.test.metric, &shape, now);
        let plan = plans::trial_plan(self.plan, self.item, &shape, ends);
        let live = BenchLive {
            trial: u32::try_from(self.trials.len()).unwrap_or(u32::MAX) + 1,
            load: Some(load),
            unit: self.item.test.metric.unit().to_owned(),
            ..self.item.live_at_start()
        };
        self.bench.report_progress(live.clone());
        let ran = self.bench.run(plan, None).map_err(SearchStop::Failed)?;
        let ours = judge::tester_counts(&ran.report);
        let seen = device::device_counts(self.plan, &ours, self.item.test.metric, &ran.readings);
        let mut judged =
            judge::judge_trial(self.plan, self.item, &shape, &ran.report, &ours, &seen);
        if let Some(cut) = &ran.cut {
            judged.outcome = LbOutcome::Cut;
            judged.reason = match cut {
                CutReason::Signal => "stopped early by a signal".to_owned(),
                CutReason::Fault(fault) => format!("stopped early by an error: {fault}"),
            };
        }
        let trial = LbTrial {
            purpose: lb_purpose(why),
            asked: load,
            offered: judged.offered,
            outcome: judged.outcome,
            reason: judged.reason.clone(),
            seconds: judged.seconds,
            ours: LbOurs { ..ours },
            device: seen,
            lateness: ran.report.lateness.all,
            warnings: ran.report.warnings,
        };
        self.bench.report_progress(BenchLive {
            ended: Some(EndedTrial::Lb(Box::new(trial.clone()))),
            ..live
        });
        self.trials.push(trial);
        match ran.cut {
            None => Ok(judged),
            Some(CutReason::Signal) => Err(SearchStop::Interrupted),
            Some(CutReason::Fault(fault)) => Err(SearchStop::Broken(fault)),
        }
    }

    /// Returns why the smallest load tried says nothing about the device, if none of its trials was valid.
    fn void_at_least_load(&self) -> Option<String> {
        let least = self.trials.iter().map(|t| t.asked).reduce(f64::min)?;
        let at_least_load = || self.trials.iter().filter(|t| t.asked <= least);
        let is_valid = |t: &LbTrial| matches!(t.outcome, LbOutcome::Held | LbOutcome::Broke);
        let all_void = !at_least_load().any(is_valid);
        at_least_load()
            .next_back()
            .filter(|_| all_void)
            .map(|t| t.reason.clone())
    }

    pub(super) fn conclude(self, found: Option<&SearchResult>, late: Option<String>) -> LbResult {
        let item = self.item;
        let metric = item.test.metric;
        let per_load = |load: f64| in_unit(metric, item.size, load);
        // In an interrupted search, the highest passed load is a lower bound for the device.
        let held = || {
            let held = self.trials.iter().filter(|t| t.outcome == LbOutcome::Held);
            held.map(|t| t.asked).reduce(f64::max)
        };
        let best = match found {
            Some(found) => found.best,
            None if late.is_some() => None,
            None => held(),
        };
        let best = best.and_then(|best| {
            let shows = |t: &LbTrial| {
                matches!(t.outcome, LbOutcome::Held | LbOutcome::Unoffered)
                    && t.offered >= best * 0.97
                    && (t.asked <= best * 1.001 || t.outcome == LbOutcome::Unoffered)
            };
            // The last one confirmed the result.
            self.trials.iter().rposition(shows)
        });
        let load = best.map(|n| self.trials[n].offered);
        let late = late.or_else(|| self.void_at_least_load().filter(|_| load.is_none()));
        let both_ways = if metric == LbMetric::TwowayPps {
            2.0
        } else {
            1.0
        };
        LbResult {
            metric,
            transport: item.transport(),
            size: item.size,
            flows: (!metric.is_of_connections()).then(|| plans::concurrent_flows(self.plan, item)),
            unit: metric.unit().to_owned(),
            limit: load.map(per_load),
            limited_by: match late {
                Some(_) => LbLimit::Tester,
                None => found.map_or(LbLimit::Time, limited_by),
            },
            confirmed: found.is_some_and(|f| f.confirmed),
            l2_bps: load
                .zip(item.size)
                .map(|(pps, size)| pps * f64::from(size) * 8.0 * both_ways),
            beyond: found.and_then(|f| f.beyond).map(per_load),
            reuse_s: load
                .filter(|cps| metric == LbMetric::Cps && *cps > 0.0)
                .map(|cps| self.plan.tuples() as f64 / cps),
            trials: self.trials,
            best_trial: best,
            late,
        }
    }
}

fn in_unit(metric: LbMetric, size: Option<u16>, load: f64) -> f64 {
    match metric {
        LbMetric::TwowayPps => 2.0 * load,
        LbMetric::Bps => load * f64::from(size.unwrap_or(0)) * 8.0,
        _ => load,
    }
}

impl<B: Bench> Measurer for SearchRun<'_, B> {
    type Error = SearchStop<B::Error>;

    fn measure(&mut self, ask: &TrialRequest) -> Result<Option<Trial>, Self::Error> {
        let TrialRequest {
            load, purpose: why, ..
        } = *ask;
        if self.bench.is_stopped() {
            return Err(SearchStop::Interrupted);
        }
        if why == Purpose::Search && !self.has_time(load) {
            return Ok(None);
        }
        let load = load.round().max(1.0);
        let mut judged = self.one_trial(load, why)?;
        let mut trials = 1;
        let most_late = match self.always_late {
            true => LATE_TRIALS_AFTER,
            false => LATE_TRIALS,
        };
        loop {
            let again = match judged.outcome {
                LbOutcome::Late if trials >= most_late => {
                    judged = self.handle_always_late(judged)?;
                    break;
                }
                LbOutcome::Cut if trials == LATE_TRIALS => {
                    return Err(SearchStop::Broken(judged.reason));
                }
                LbOutcome::Late | LbOutcome::Cut => true,
                // Once may be an accident of the tester, twice is its limit.
                LbOutcome::Unoffered => trials == 1,
                _ => false,
            };
            if !again {
                break;
            }
            if self.bench.is_stopped() {
                return Err(SearchStop::Interrupted);
            }
            if !self.has_time(load) {
                match judged.outcome {
                    LbOutcome::Late => {
                        judged = self.handle_always_late(judged)?;
                        break;
                    }
                    LbOutcome::Cut => return Err(SearchStop::Broken(judged.reason)),
                    _ => break,
                }
            }
            judged = self.one_trial(load, why)?;
            trials += 1;
        }
        Ok(Some(Trial {
            outcome: match judged.outcome {
                LbOutcome::Held => LoadOutcome::Held,
                LbOutcome::Broke => LoadOutcome::Broke,
                LbOutcome::Unoffered => LoadOutcome::Unoffered,
                LbOutcome::Unread | LbOutcome::Late | LbOutcome::Cut => LoadOutcome::Unread,
            },
            offered: judged.offered,
            through: judged.through,
            // The evaluation decides about the loss.
            loss: if judged.outcome == LbOutcome::Held {
                0.0
            } else {
                1.0
            },
            overhead: Duration::ZERO,
        }))
    }
}
