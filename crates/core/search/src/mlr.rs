//! MLRsearch (RFC 9971): searches for several goals at once. A load is judged by the total trial time that met or
//! missed the loss ratio of a goal, so that a few unlucky trials do not decide.
//!
//! | file | contents |
//! |---|---|
//! | `goal` | search goals, and the classification of loads by trials |
//! | `conditional` | conditional throughput of a load that meets a goal |
//! | `table` | all trials, and the bounds derived from them |
//! | `candidate` | next load for one target |
//! | this file | choice of the next target, and the end of the search |
//!
//! Does not read a clock: time is the sum of trial durations and overheads.

mod candidate;
mod conditional;
mod goal;
mod table;

use std::time::Duration;

use crate::{ACCIDENT, LoadOutcome, Measurer, Purpose, Trial, TrialRequest};
use candidate::{LoadRange, TargetState};
pub use conditional::conditional_throughput;
pub use goal::{Class, Goal, MlrTrial, Sums};
use table::{Bounds, TrialTable};

/// Minimum trial duration, regardless of the goals: without it a search might never end.
const SHORTEST_TRIAL: Duration = Duration::from_millis(1);
/// Share by which a load is reduced when the tester fails a second time; doubled each further time.
const TESTER_STEP: f64 = 0.005;

/// Parameters of an MLRsearch (RFC 9971).
#[derive(Clone, Debug, PartialEq)]
pub struct Mlr {
    /// Goals, searched for together.
    pub goals: Vec<Goal>,
    /// Minimum load, above 0.
    pub minimum: f64,
    /// Maximum load.
    pub maximum: f64,
    /// Time limit: a trial starts only if the sum of durations and overheads, including its duration, stays within it.
    pub time_limit: Duration,
    /// Duration of a warm-up trial at the maximum; the trial counts only toward the time limit.
    pub warm_up: Option<Duration>,
    /// Insert intermediate targets with less trial time before each goal. This saves trials, because most loads are
    /// rejected after one.
    pub intermediate: bool,
    /// Duration of the first trials of goals without an initial duration. None: their final duration.
    pub initial_duration: Option<Duration>,
}

impl Mlr {
    /// Creates a search for the goals `ndr` and `pdr` between two loads, with a time limit of 20 minutes.
    #[must_use]
    pub fn between(minimum: f64, maximum: f64) -> Self {
        Self {
            goals: vec![Goal::ndr(), Goal::pdr()],
            minimum,
            maximum,
            time_limit: Duration::from_secs(1200),
            warm_up: Some(Duration::from_secs(1)),
            intermediate: true,
            initial_duration: None,
        }
    }
}

/// Result of an MLRsearch.
#[derive(Clone, Debug, PartialEq)]
pub struct MlrFound {
    /// Results by goal, in the order of the plan.
    pub goals: Vec<GoalFound>,
    /// All loads with their trials, in ascending order.
    pub loads: Vec<LoadFound>,
    /// Number of trials, without the warm-up and without those that exceeded the tester's limit.
    pub trials: u32,
    /// Sum of their durations.
    pub trial_time: Duration,
    /// Time that counts toward the time limit: all trials with their overheads.
    pub spent: Duration,
    /// Limit of the tester; once found, no higher load is tried.
    pub tester_limit: Option<f64>,
}

/// Result for one goal.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GoalFound {
    /// The goal.
    pub goal: Goal,
    /// Relevant lower bound: the highest load below the upper bound at which the goal is met.
    pub lower: Option<f64>,
    /// Relevant upper bound: the lowest load at which the goal is not met.
    pub upper: Option<f64>,
    /// (upper - lower) / upper.
    pub width: Option<f64>,
    /// Conditional throughput of the lower bound.
    pub conditional_throughput: Option<f64>,
    /// Outcome for this goal.
    pub result: GoalResult,
    /// Number of trials for this goal. Each trial is attributed to one goal but used for all.
    pub trials: u32,
    /// Sum of their durations.
    pub trial_time: Duration,
}

/// Outcome for a goal. All but the first are irregular: the lower bound is not the limit of the device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum GoalResult {
    /// The bounds are within the width of the goal.
    Regular,
    /// The maximum meets the goal.
    AtMaximum,
    /// The minimum does not meet the goal.
    AtMinimum,
    /// The goal is met up to this load, or remains undecided; the tester cannot offer or receive more.
    TesterLimit(f64),
    /// Time ran out, or the measurer stopped, before the bounds were close enough.
    Unfinished,
}

impl GoalResult {
    /// Returns true if the limit of the device was found.
    #[must_use]
    pub const fn is_regular(&self) -> bool {
        matches!(self, Self::Regular)
    }
}

/// Results at one load.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadFound {
    /// Intended load.
    pub load: f64,
    /// Trials at this load, in the order of measurement.
    pub trials: Vec<MlrTrial>,
    /// Sums and class for each goal, in the order of the plan.
    pub goals: Vec<(Sums, Class)>,
}

/// Search state of one goal.
struct GoalSearch {
    goal: Goal,
    /// Intermediate targets, followed by the goal.
    targets: Vec<Goal>,
    /// Index of the current target.
    at: usize,
    /// Start of the walk for this target, once it has begun.
    anchor: Option<f64>,
    /// Bounds of the previous target.
    before: Option<Bounds>,
    trials: u32,
    trial_time: Duration,
}

impl GoalSearch {
    fn new(goal: Goal, mlr: &Mlr) -> Self {
        Self {
            goal,
            targets: goal.targets(mlr.intermediate, mlr.initial_duration),
            at: 0,
            anchor: None,
            before: None,
            trials: 0,
            trial_time: Duration::ZERO,
        }
    }

    fn target(&self) -> &Goal {
        &self.targets[self.at]
    }

    /// State of the search for the current target.
    fn target_state(&self, table: &TrialTable, range: LoadRange) -> TargetState<'_> {
        TargetState {
            target: self.target(),
            range,
            known: table.bounds(self.target()),
            before: self.before,
            is_coarse: self.at + 1 < self.targets.len(),
        }
    }

    /// Skips targets that are reached. Returns the next load with the anchor of its walk, or None when the goal is
    /// reached.
    fn next(&mut self, table: &TrialTable, range: LoadRange) -> Option<(f64, Option<f64>)> {
        while self.target_state(table, range).is_reached() {
            if self.at + 1 == self.targets.len() {
                return None;
            }
            self.before = Some(table.bounds(self.target()));
            self.anchor = None;
            self.at += 1;
        }
        let outlook = self.target_state(table, range);
        // Measure the maximum first: the share of it that is forwarded gives the first guess.
        let is_first = table.0.iter().all(|tried| tried.load == range.maximum);
        if is_first && outlook.known == Bounds::default() {
            return Some((range.maximum, None));
        }
        let anchor = self.anchor.unwrap_or_else(|| outlook.anchor(table));
        let Bounds { lower, upper } = outlook.known;
        let is_between = |load: &f64| {
            lower.is_none_or(|lower| lower < *load) && upper.is_none_or(|upper| *load < upper)
        };
        let load = outlook.next(anchor, table);
        // If the width is below the precision of the numbers, there is no load left to try.
        let load = Some(table.snapped(load))
            .filter(is_between)
            .or(Some(load).filter(is_between))?;
        Some((load, Some(anchor)))
    }
}

/// Search in progress.
struct MlrDriver<'a, M> {
    measurer: &'a mut M,
    mlr: &'a Mlr,
    table: TrialTable,
    spent: Duration,
    tester_limit: Option<f64>,
    /// Number of loads that exceeded the tester's limit.
    refusals: i32,
}

impl<M: Measurer> MlrDriver<'_, M> {
    fn range(&self) -> LoadRange {
        let maximum = self.mlr.maximum;
        LoadRange {
            minimum: self.mlr.minimum.min(maximum),
            maximum: self
                .tester_limit
                .map_or(maximum, |limit| limit.min(maximum)),
        }
    }

    /// Runs one trial. Returns None if there is no time for it.
    fn measure(
        &mut self,
        load: f64,
        duration: Duration,
        purpose: Purpose,
    ) -> Result<Option<Trial>, M::Error> {
        let duration = duration.max(SHORTEST_TRIAL);
        if self.spent.saturating_add(duration) > self.mlr.time_limit {
            return Ok(None);
        }
        let ask = TrialRequest {
            load,
            duration: Some(duration),
            purpose,
        };
        let trial = self.measurer.measure(&ask)?;
        if let Some(trial) = trial {
            self.spent = self
                .spent
                .saturating_add(duration)
                .saturating_add(trial.overhead);
        }
        Ok(trial)
    }

    /// Lowers the limit after a load that the tester could not offer or receive. The first time the limit is what the
    /// tester achieved, unless that looks like an accident; later it is reduced further.
    fn lower_limit(&mut self, load: f64, did: f64) {
        if did > 0.0 && did < load * ACCIDENT {
            self.tester_limit = Some(load * ACCIDENT);
            return;
        }
        let step = TESTER_STEP * 2_f64.powi((self.refusals - 1).clamp(0, 7));
        let less = if self.refusals == 0 {
            load
        } else {
            load * (1.0 - step)
        };
        let limit = if did > 0.0 && did < load {
            did.min(less)
        } else {
            less.min(load * (1.0 - TESTER_STEP))
        };
        self.refusals += 1;
        self.tester_limit = Some(limit);
    }

    /// Runs trials for the most urgent target until no goal needs another or the time is up. Returns true if all goals
    /// are finished.
    fn pursue(&mut self, pursuits: &mut [GoalSearch]) -> Result<bool, M::Error> {
        loop {
            let range = self.range();
            if range.maximum < range.minimum {
                return Ok(true);
            }
            let mut chosen: Option<(usize, f64, Option<f64>)> = None;
            for n in 0..pursuits.len() {
                let Some((load, anchor)) = pursuits[n].next(&self.table, range) else {
                    continue;
                };
                let is_first = chosen.is_none_or(|(other, ..)| {
                    let (a, b) = (pursuits[n].target(), pursuits[other].target());
                    // Quick decisions come first, then the stricter goal: a load that meets it also meets the others.
                    (a.duration_sum, a.loss_ratio, a.exceed_ratio)
                        < (b.duration_sum, b.loss_ratio, b.exceed_ratio)
                });
                if is_first {
                    chosen = Some((n, load, anchor));
                }
            }
            let Some((n, load, anchor)) = chosen else {
                return Ok(true);
            };
            let pursuit = &mut pursuits[n];
            let duration = pursuit.target().final_duration.max(SHORTEST_TRIAL);
            let Some(trial) = self.measure(load, duration, Purpose::Search)? else {
                return Ok(false);
            };
            match trial.outcome {
                LoadOutcome::Unoffered => self.lower_limit(load, trial.offered),
                LoadOutcome::Unread => self.lower_limit(load, trial.through),
                LoadOutcome::Held | LoadOutcome::Broke => {
                    pursuit.anchor = anchor;
                    pursuit.trials += 1;
                    pursuit.trial_time += duration;
                    let loss_ratio = trial.loss;
                    self.table.add(
                        load,
                        MlrTrial {
                            duration,
                            loss_ratio,
                        },
                    );
                }
            }
        }
    }

    fn goal_found(&self, pursuit: &GoalSearch, is_finished: bool) -> GoalFound {
        let goal = pursuit.goal;
        let Bounds { lower, upper } = self.table.bounds(&goal);
        let Mlr {
            minimum, maximum, ..
        } = *self.mlr;
        let result = match (lower, upper, self.tester_limit) {
            (Some(lower), Some(upper), _) if goal.is_narrow(lower, upper) => GoalResult::Regular,
            (_, Some(upper), _) if upper <= minimum => GoalResult::AtMinimum,
            (Some(lower), ..) if lower >= maximum => GoalResult::AtMaximum,
            (lower, _, Some(limit)) if is_finished || lower.is_some_and(|lower| lower >= limit) => {
                GoalResult::TesterLimit(limit)
            }
            _ => GoalResult::Unfinished,
        };
        GoalFound {
            goal,
            lower,
            upper,
            width: lower
                .zip(upper)
                .map(|(lower, upper)| (upper - lower) / upper),
            conditional_throughput: lower.and_then(|lower| {
                let tried = self.table.get(lower)?;
                Some(conditional_throughput(lower, &goal, &tried.trials))
            }),
            result,
            trials: pursuit.trials,
            trial_time: pursuit.trial_time,
        }
    }
}

/// Finds the highest load that meets each goal.
///
/// Trials at a load continue until it is an upper or a lower bound for their target. The maximum comes first; the load
/// that it forwards is the guess for the limit. From there the steps double until the limit is between two loads that
/// are close enough.
///
/// A load that the tester cannot offer or receive says nothing about the device. It caps the search: goals that are not
/// reached below end with [`GoalResult::TesterLimit`]. When the measurer has no more trials, or the time is up, every
/// goal keeps the bounds known by then.
///
/// # Errors
///
/// Returns the error of the measurer.
pub fn mlr<M: Measurer>(measurer: &mut M, mlr: &Mlr) -> Result<MlrFound, M::Error> {
    let mut driver = MlrDriver {
        measurer,
        mlr,
        table: TrialTable::default(),
        spent: Duration::ZERO,
        tester_limit: None,
        refusals: 0,
    };
    let mut pursuits: Vec<_> = mlr
        .goals
        .iter()
        .map(|goal| GoalSearch::new(*goal, mlr))
        .collect();
    let is_awake = match mlr.warm_up {
        Some(duration) => driver
            .measure(mlr.maximum, duration, Purpose::WarmUp)?
            .is_some(),
        None => true,
    };
    let is_finished = is_awake && driver.pursue(&mut pursuits)?;
    let goals: Vec<_> = pursuits
        .iter()
        .map(|pursuit| driver.goal_found(pursuit, is_finished))
        .collect();
    let loads = driver.table.0.iter().map(|tried| LoadFound {
        load: tried.load,
        trials: tried.trials.clone(),
        goals: mlr
            .goals
            .iter()
            .map(|goal| (Sums::sum_trials(goal, &tried.trials), tried.class(goal)))
            .collect(),
    });
    Ok(MlrFound {
        trials: goals.iter().map(|found| found.trials).sum(),
        trial_time: goals.iter().map(|found| found.trial_time).sum(),
        loads: loads.collect(),
        goals,
        spent: driver.spent,
        tester_limit: driver.tester_limit,
    })
}
