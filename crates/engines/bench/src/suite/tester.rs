//! Runs the trials of one test at one size: repeats void ones, waits for links, and keeps the log.

use std::{borrow::Cow, collections::BTreeSet, time::Duration};

use wb_model::{
    Plan, PortPlan,
    bench::{
        BenchLive, SuitePlan, SuiteResult, SuiteTest, SuiteTrial, TestSize, TrialOutcome,
        TrialPurpose,
    },
};
use wb_search::{LoadOutcome, Measurer, Purpose, Trial, TrialRequest};

use super::{
    SuiteStop, TestCase,
    judge::{self, JudgedTrial, StreamPart},
    lb::LbTrials,
    modifiers::{bursts, routing},
    shape::{self, TargetJob, TrialAmount, TrialShape},
};
use crate::{Bench, CutReason, Trigger};

/// Maximum number of attempts for a trial that is void because the tester was late.
const LATE_TRIALS: u32 = 6;
/// Maximum number of attempts after a load at which the tester was always late: that load is then a limit, not a
/// coincidence.
const LATE_TRIALS_AFTER: u32 = 2;
/// A short failed trial is doubted if another one forwarded more, by at least this multiple of the precision.
const SHORT_DOUBTS: f64 = 4.0;
/// Maximum number of attempts to offer a load.
const UNOFFERED_TRIALS: u32 = 2;
/// Share of its ceiling that a tester offers of a larger load, unless it was disturbed.
const NEAR_CEILING: f64 = 0.9;
/// Time that a link may be down before the benchmark ends.
const LINK_PATIENCE: Duration = Duration::from_secs(60);
/// Interval between link checks.
const LOOK: Duration = Duration::from_millis(250);
/// Time after a link has come up, for neighbour discovery and bridge learning.
const AFTER_LINK: Duration = Duration::from_secs(1);
/// Maximum number of attempts to prepare a trial after an earlier one succeeded: links and neighbours come back.
const PREPARED_AGAIN: u32 = 10;
/// Initial estimate of a trial's overhead.
const OVERHEAD: Duration = Duration::from_millis(700);

/// The trials of one test at one size.
pub(super) struct Tester<'a, B: Bench> {
    pub(super) bench: &'a mut B,
    pub(super) base: Cow<'a, Plan>,
    pub(super) suite: &'a SuitePlan,
    pub(super) target: TargetJob,
    /// Name of the size in the report.
    name: String,
    pub(super) size: Option<&'a TestSize>,
    pub(super) test: SuiteTest,
    /// The frames of a load arrive in bursts of this size.
    pub(super) burst: Option<u32>,
    /// The current step of a service, as named in the log.
    pub(super) step: String,
    pub(super) log: Vec<SuiteTrial>,
    pub(super) warnings: BTreeSet<String>,
    /// The largest load, for shares of it.
    pub(super) maximum: Option<f64>,
    /// Tolerated loss ratio of a passed load.
    pub(super) goal: f64,
    /// Number of repetitions of a failed load.
    pub(super) repeats: u32,
    /// Repeat a failed load once if the device forwarded more in another trial of the same length, by more than this
    /// share: one of the results was a coincidence. For short trials, which are less accurate, a multiple of this share
    /// is required.
    pub(super) doubts: Option<f64>,
    /// The search ends at this time.
    pub(super) deadline: u64,
    /// Sources of the receive timestamps in the last trial.
    pub(super) stamps: String,
    /// Loads of jobs that are evaluated separately: those of [`TargetJob::Services`].
    pub(super) parts: Vec<StreamPart>,
    /// The last trial, even if it was interrupted.
    pub(super) last: Option<JudgedTrial>,
    /// The highest load that passed and the lowest one that failed.
    low: Option<f64>,
    high: Option<f64>,
    /// Highest forwarded rate in units of the load: in short trials, and in those of full length.
    carried: [f64; 2],
    /// Number of loads repeated because of doubts.
    pub(super) doubted: u32,
    /// At some load, the tester was late in every attempt.
    always_late: bool,
    /// Largest load that the tester can offer, once it is known.
    pub(super) ceiling: Option<f64>,
    /// Overhead of a trial.
    overhead: Duration,
    /// Time for the rest, reported with each trial.
    pub(super) left: RemainingWork,
    /// Plans and judgement of trials of a load balancer.
    pub(super) lb: Option<LbTrials<'a>>,
}

/// Returns true if a trial has its full length.
const fn is_full(purpose: TrialPurpose) -> bool {
    matches!(purpose, TrialPurpose::Confirm)
}

/// Remaining work, for the estimate of the time left.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RemainingWork {
    /// Trials of this test.
    pub(super) trials: u32,
    /// Time of everything after this test.
    pub(super) after: Duration,
}

impl<'a, B: Bench> Tester<'a, B> {
    pub(super) fn new(
        bench: &'a mut B,
        base: &'a Plan,
        suite: &'a SuitePlan,
        target: TargetJob,
        case: &'a TestCase,
        test: SuiteTest,
    ) -> Self {
        Self {
            bench,
            base: Cow::Borrowed(base),
            suite,
            target,
            name: case.own.name.clone(),
            size: case.own.size.as_ref(),
            test,
            burst: None,
            step: String::new(),
            log: Vec::new(),
            warnings: BTreeSet::new(),
            maximum: None,
            goal: suite.search.loss.0,
            repeats: 0,
            doubts: None,
            deadline: u64::MAX,
            stamps: String::new(),
            parts: Vec::new(),
            last: None,
            low: None,
            high: None,
            carried: [0.0; 2],
            doubted: 0,
            always_late: false,
            ceiling: None,
            overhead: OVERHEAD,
            left: RemainingWork::default(),
            lb: None,
        }
    }

    /// A trial of this length, with the plan's ramp and drain.
    pub(super) fn trial_shape(
        &self,
        amount: TrialAmount,
        duration: Duration,
        purpose: TrialPurpose,
    ) -> TrialShape {
        let times = &self.suite.times;
        let shape = TrialShape {
            amount,
            duration,
            ramp: match amount {
                TrialAmount::Load(_) => times.ramp.0,
                TrialAmount::Most | TrialAmount::Burst(_) => Duration::ZERO,
            },
            drain: times.drain.0,
            before: None,
            burst: self.burst,
            purpose,
        };
        match &self.lb {
            Some(lb) => lb.fit(shape),
            None => shape,
        }
    }

    /// Reports the start of this test.
    pub(super) fn report_start(&mut self) {
        let live = self.live_state();
        self.bench.report_progress(live);
    }

    fn live_state(&self) -> BenchLive {
        BenchLive {
            test: Some(self.test).filter(|_| self.lb.is_none()),
            metric: self.lb.as_ref().map(LbTrials::metric),
            size: Some(self.name.clone()).filter(|name| !name.is_empty()),
            burst: self.burst,
            step: Some(self.step.clone()).filter(|step| !step.is_empty()),
            unit: match &self.lb {
                Some(lb) => lb.metric().load_unit(),
                None => self.test.trial_unit(self.suite.of),
            }
            .to_owned(),
            low: self.low,
            high: self.high,
            ..BenchLive::default()
        }
    }

    /// Returns true if the flows of its job have different rates: then a sequence number does not determine the time at
    /// which a frame was sent.
    pub(super) fn has_unequal_flows(&self) -> bool {
        let TargetJob::Traffic(n) = self.target else {
            return false;
        };
        shape::has_unequal_flows(&self.base.traffic[n])
    }

    fn left_ns(&self, whole: Duration) -> u64 {
        let one = whole + self.overhead + self.suite.times.settle.0;
        let left = one * self.left.trials.max(1) + self.left.after;
        u64::try_from(left.as_nanos()).unwrap_or(u64::MAX)
    }

    fn port_plans(&self) -> Vec<PortPlan> {
        self.base.ports.clone()
    }

    /// Waits until the links of the tester's ports are up.
    fn await_links(&mut self) -> Result<(), SuiteStop<B::Error>> {
        let ports = self.port_plans();
        let mut waited = Duration::ZERO;
        while !self.bench.links_are_up(&ports) {
            if self.bench.is_stopped() {
                return Err(SuiteStop::Interrupted);
            }
            if waited >= LINK_PATIENCE {
                let names: Vec<String> = ports.iter().map(|p| p.locator.to_string()).collect();
                return Err(SuiteStop::Broken(format!(
                    "{}: a link has been down for {} s",
                    names.join(" and "),
                    LINK_PATIENCE.as_secs()
                )));
            }
            self.bench.wait_for(LOOK);
            waited += LOOK;
        }
        if waited > Duration::ZERO {
            self.bench.wait_for(AFTER_LINK);
        }
        Ok(())
    }

    fn trial_plan(&mut self, shape: &TrialShape, number: u32) -> Plan {
        if let Some(lb) = &mut self.lb {
            return lb.trial_plan(shape, self.bench.now_ns());
        }
        let mut plan = shape::trial_plan(&self.base, self.suite, self.target, self.size, shape);
        routing::take_turns(&mut plan, number);
        plan
    }

    /// Makes one run and evaluates it.
    fn run(
        &mut self,
        shape: &TrialShape,
        trigger: Option<&Trigger>,
    ) -> Result<JudgedTrial, SuiteStop<B::Error>> {
        if !self.log.is_empty() {
            self.bench.wait_for(self.suite.times.settle.0);
        }
        if let (Some(lb), Some(last)) = (&self.lb, self.log.last()) {
            lb.wait(self.bench, last);
        }
        if self.bench.is_stopped() {
            return Err(SuiteStop::Interrupted);
        }
        // If a port of the first trial has no link, preparing the trial says what to do.
        if self.lb.is_none() || !self.log.is_empty() {
            self.await_links()?;
        }
        let number = u32::try_from(self.log.len()).unwrap_or(u32::MAX) + 1;
        let live = BenchLive {
            trial: number,
            purpose: Some(shape.purpose),
            load: match shape.amount {
                TrialAmount::Load(load) => Some(load),
                TrialAmount::Burst(frames) => Some(frames as f64),
                TrialAmount::Most => None,
            },
            left_ns: match self.lb {
                Some(_) => None,
                None => Some(self.left_ns(shape.whole_duration())),
            },
            ..self.live_state()
        };
        self.bench.report_progress(live.clone());
        let plan = self.trial_plan(shape, number);
        let mut began = self.bench.now_ns();
        let mut again = 0;
        let ran = loop {
            match self.bench.run(plan.clone(), trigger) {
                Ok(ran) => break ran,
                Err(error) if self.log.is_empty() || again == PREPARED_AGAIN => {
                    return Err(SuiteStop::Failed(error));
                }
                Err(_) => {
                    again += 1;
                    self.bench.wait_for(AFTER_LINK);
                    if self.bench.is_stopped() {
                        return Err(SuiteStop::Interrupted);
                    }
                    self.await_links()?;
                    began = self.bench.now_ns();
                }
            }
        };
        let took = Duration::from_nanos(self.bench.now_ns().saturating_sub(began));
        self.overhead = took.saturating_sub(shape.whole_duration());
        let mut judged = judge::judge_trial(
            &ran,
            self.suite.of,
            self.target,
            shape,
            self.goal,
            &self.parts,
            self.lb.as_ref(),
        );
        if let Some(misfire) = &ran.misfire {
            judged.misfired = true;
            let trial = &mut judged.trial;
            (trial.outcome, trial.reason) = (TrialOutcome::Cut, format!("trigger: {misfire}"));
        }
        let trial = &mut judged.trial;
        if self.tells_loss() {
            judge::void_if_tester_late(trial);
        }
        trial.trial = number;
        trial.size.clone_from(&self.name);
        trial.step.clone_from(&self.step);
        trial.intended_pct = match shape.amount {
            TrialAmount::Load(load) => self.maximum.map(|maximum| 100.0 * load / maximum),
            _ => None,
        };
        self.warnings.extend(trial.warnings.iter().cloned());
        self.stamps.clone_from(&judged.stamps);
        self.note_bounds(&judged);
        self.left.trials = self.left.trials.saturating_sub(1);
        let mut told = judged.trial.clone();
        if told.outcome.is_valid() && !self.has_goal(shape.purpose) {
            told.outcome = TrialOutcome::Measured;
        }
        self.bench.report_progress(BenchLive {
            ended: Some(Box::new(told.clone())),
            low: self.low,
            high: self.high,
            ..live
        });
        self.log.push(told);
        self.last = Some(judged.clone());
        match ran.cut {
            None => Ok(judged),
            Some(CutReason::Signal) => Err(SuiteStop::Interrupted),
            // A port that has disappeared is looked up once more.
            Some(CutReason::Fault(_)) if judged.link_down.is_some() => Ok(judged),
            Some(CutReason::Fault(fault)) => Err(SuiteStop::Broken(fault)),
        }
    }

    /// Returns true if a trial asked for more than the tester can offer, and the tester offered about what it can.
    fn is_beyond_ceiling(&self, trial: &SuiteTrial) -> bool {
        self.ceiling.is_some_and(|ceiling| {
            trial.intended > ceiling && trial.offered >= ceiling * NEAR_CEILING
        })
    }

    /// Returns true if another trial contradicts the failure at this load.
    fn is_doubtful(&self, load: f64, purpose: TrialPurpose) -> bool {
        let times = if is_full(purpose) { 1.0 } else { SHORT_DOUBTS };
        let carried = self.carried[usize::from(is_full(purpose))];
        self.doubts
            .is_some_and(|share| load < carried * (1.0 - times * share))
    }

    /// Returns true if a trial has a tolerated loss, so that it passes or fails.
    fn has_goal(&self, purpose: TrialPurpose) -> bool {
        let of_trial = !matches!(purpose, TrialPurpose::Ceiling | TrialPurpose::WarmUp);
        let of_test = !matches!(self.test, SuiteTest::Recovery | SuiteTest::Reset);
        of_trial && of_test && !self.tells_loss()
    }

    /// Returns true if the loss or the forwarded rate itself is the result.
    const fn tells_loss(&self) -> bool {
        self.test.def().tells_loss
    }

    fn note_bounds(&mut self, judged: &JudgedTrial) {
        let trial = &judged.trial;
        if !matches!(trial.purpose, TrialPurpose::Search | TrialPurpose::Confirm) {
            return;
        }
        let load = trial.intended;
        // After a large overload, frames queued before its end are a large part of the forwarded ones.
        let is_overload = judged.through < trial.offered / 2.0;
        // The device carried what it forwarded, even if the load was not fully offered.
        let counts = matches!(
            trial.outcome,
            TrialOutcome::Pass | TrialOutcome::Fail | TrialOutcome::NotOffered
        );
        if counts && !is_overload {
            let carried = &mut self.carried[usize::from(is_full(trial.purpose))];
            *carried = carried.max(judged.through);
        }
        match trial.outcome {
            TrialOutcome::Pass => {
                self.low = Some(self.low.map_or(load, |low| low.max(load)));
                self.high = self.high.filter(|high| *high > load);
            }
            TrialOutcome::Fail => {
                self.high = Some(self.high.map_or(load, |high| high.min(load)));
                self.low = self.low.filter(|low| *low < load);
            }
            _ => {}
        }
    }

    /// Runs a trial until it is valid, or all attempts are used up. Its outcome shows a result of the device or the
    /// tester's limit.
    pub(super) fn run_trial(
        &mut self,
        shape: &TrialShape,
        trigger: Option<&Trigger>,
    ) -> Result<JudgedTrial, SuiteStop<B::Error>> {
        let most_late = match self.always_late {
            true => LATE_TRIALS_AFTER,
            false => LATE_TRIALS,
        };
        let (mut late, mut unoffered, mut cut) = (0, 0, 0);
        loop {
            let judged = self.run(shape, trigger)?;
            let again = match judged.trial.outcome {
                TrialOutcome::Pass | TrialOutcome::Fail | TrialOutcome::Measured => false,
                TrialOutcome::Late => {
                    late += 1;
                    self.always_late |= late == most_late;
                    late < most_late
                }
                TrialOutcome::NotOffered if self.is_beyond_ceiling(&judged.trial) => false,
                // Balancers: a receiver that is too slow is a permanent limit unless it was late.
                TrialOutcome::NotRead if self.lb.is_some() => false,
                // Once may be an accident of the tester, twice is its limit.
                TrialOutcome::NotOffered | TrialOutcome::NotRead => {
                    unoffered += 1;
                    unoffered < UNOFFERED_TRIALS
                }
                // A trigger that takes the link down will do so again.
                TrialOutcome::Cut if trigger.is_some() => false,
                TrialOutcome::Cut => {
                    cut += 1;
                    if cut == LATE_TRIALS {
                        return Err(SuiteStop::Broken(judged.trial.reason));
                    }
                    true
                }
            };
            let is_cut = judged.trial.outcome == TrialOutcome::Cut;
            let is_late = self.lb.is_some() && !self.has_time(shape);
            match (again, is_late) {
                (true, false) => {}
                (true, true) if is_cut => return Err(SuiteStop::Broken(judged.trial.reason)),
                _ => return Ok(judged),
            }
        }
    }

    /// Returns true if there is time for one more trial of this length. The first is always made.
    fn has_time(&mut self, shape: &TrialShape) -> bool {
        let mut needed = shape.whole_duration() + self.overhead;
        // The limits of a load balancer share one time budget, so a search leaves enough for its confirmation.
        if self.lb.is_some() && shape.purpose == TrialPurpose::Search {
            let last = self.suite.times.trial.0;
            let last = self.trial_shape(shape.amount, last, TrialPurpose::Confirm);
            needed += last.whole_duration() + self.overhead;
        }
        let needed = u64::try_from(needed.as_nanos()).unwrap_or(u64::MAX);
        self.log.is_empty() || self.bench.now_ns().saturating_add(needed) <= self.deadline
    }

    /// Returns true if a load has passed.
    fn has_passed(&self) -> bool {
        self.log.iter().any(|t| t.outcome == TrialOutcome::Pass)
    }

    /// Adds the log to a result.
    pub(super) fn add_log(&mut self, result: &mut SuiteResult) {
        let counts = |t: &&SuiteTrial| t.purpose != TrialPurpose::Ceiling;
        // With several goals, each counts the trials made for it.
        if result.goal.is_none() || result.mlr.is_none() {
            let made = self.log.iter().filter(counts);
            result.trials = u32::try_from(made.count()).unwrap_or(u32::MAX);
            result.trial_seconds = self.log.iter().map(|t| t.duration_s).sum();
        }
        result.trial_log = std::mem::take(&mut self.log);
    }
}

impl<B: Bench> Measurer for Tester<'_, B> {
    type Error = SuiteStop<B::Error>;

    fn measure(&mut self, ask: &TrialRequest) -> Result<Option<Trial>, Self::Error> {
        if self.bench.is_stopped() {
            return Err(SuiteStop::Interrupted);
        }
        let purpose = match ask.purpose {
            Purpose::WarmUp => TrialPurpose::WarmUp,
            Purpose::Search => TrialPurpose::Search,
            Purpose::Confirm => TrialPurpose::Confirm,
        };
        let duration = ask.duration.unwrap_or(match ask.purpose {
            Purpose::WarmUp | Purpose::Search => self.suite.search_time().0,
            Purpose::Confirm => self.suite.times.trial.0,
        });
        let amount = match self.test.def().sends_bursts {
            true => TrialAmount::Burst(ask.load as u64),
            false => TrialAmount::Load(bursts::even_or(ask.load, self.burst)),
        };
        let duration = match amount {
            TrialAmount::Load(load) => bursts::whole_periods(duration, load, self.burst),
            _ => duration,
        };
        let shape = self.trial_shape(amount, duration, purpose);
        if purpose == TrialPurpose::Search && !self.has_time(&shape) {
            return Ok(None);
        }
        let began = self.bench.now_ns();
        let is_doubtful = self.is_doubtful(ask.load, purpose);
        let mut judged = self.run_trial(&shape, None)?;
        let mut repeats = match purpose {
            TrialPurpose::WarmUp => 0,
            _ => self.repeats,
        };
        if is_doubtful && repeats == 0 && judged.trial.outcome == TrialOutcome::Fail {
            self.doubted += 1;
            repeats = 1;
        }
        while judged.trial.outcome == TrialOutcome::Fail && repeats > 0 {
            repeats -= 1;
            judged = self.run_trial(&shape, None)?;
        }
        let took = Duration::from_nanos(self.bench.now_ns().saturating_sub(began));
        let trial = &judged.trial;
        // If the device passed a lower load, this is the tester's limit; otherwise nothing is known.
        if self.lb.is_some() && trial.outcome == TrialOutcome::Late && !self.has_passed() {
            return Err(SuiteStop::Late(judged.trial.reason));
        }
        Ok(Some(Trial {
            outcome: match trial.outcome {
                TrialOutcome::Pass | TrialOutcome::Measured => LoadOutcome::Held,
                TrialOutcome::Fail => LoadOutcome::Broke,
                TrialOutcome::NotOffered => LoadOutcome::Unoffered,
                TrialOutcome::NotRead | TrialOutcome::Late | TrialOutcome::Cut => {
                    LoadOutcome::Unread
                }
            },
            offered: trial.offered,
            through: judged.through,
            loss: trial.loss_ratio,
            overhead: took.saturating_sub(duration),
        }))
    }
}
