//! MLRsearch (RFC 9971): several goals searched for together, where a load is judged by the sum of trial time that met
//! or missed its loss ratio, so that a few unlucky trials do not decide.
//!
//! | file | holds |
//! |---|---|
//! | `goal` | what is searched for, and what trials at a load say of it |
//! | `conditional` | what a load that meets a goal carried |
//! | `table` | all trials, and the bounds they make |
//! | `candidate` | the next load for one target |
//! | here | whose turn it is, and the end |
//!
//! Pure: time is what trials and their overheads sum up to.

mod candidate;
mod conditional;
mod goal;
mod table;

use std::time::Duration;

use crate::{ACCIDENT, Ask, Measurer, Outcome, Purpose, Trial};
use candidate::{Outlook, Range};
pub use conditional::conditional_throughput;
pub use goal::{Class, Goal, MlrTrial, Sums};
use table::{Bounds, Table};

/// No trial is shorter, whatever a goal says: trial time has to go on for a search to end.
const SHORTEST_TRIAL: Duration = Duration::from_millis(1);
/// A load that the tester could not do once more is lowered by this share, and by twice as much each further time.
const TESTER_STEP: f64 = 0.005;

/// An MLRsearch (RFC 9971).
#[derive(Clone, Debug, PartialEq)]
pub struct Mlr {
    /// What is searched for, all at once.
    pub goals: Vec<Goal>,
    /// No load below it is tried; above 0.
    pub minimum: f64,
    /// No load above it is tried.
    pub maximum: f64,
    /// No trial is begun whose duration would take the sum of durations and overheads beyond this.
    pub time_limit: Duration,
    /// So long a trial at the maximum wakes the device first; it counts for time alone.
    pub warm_up: Option<Duration>,
    /// Whether targets with less trial time and wider brackets come before each goal: fewer trials, as most loads
    /// are dismissed after one.
    pub intermediate: bool,
    /// Length of the first trials of goals that do not say it; none: as long as their final trials.
    pub initial_duration: Option<Duration>,
}

impl Mlr {
    /// The goals `ndr` and `pdr` between two loads, in 20 minutes at most.
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

/// What an MLRsearch found.
#[derive(Clone, Debug, PartialEq)]
pub struct MlrFound {
    /// One for each goal, in the order of the plan.
    pub goals: Vec<GoalFound>,
    /// All loads with what was measured there, from the least upwards.
    pub loads: Vec<LoadFound>,
    /// Trials that count: without the one to warm up, and without those that the tester could not do.
    pub trials: u32,
    /// The sum of their durations.
    pub trial_time: Duration,
    /// All that counts for the time limit: every trial with its overhead.
    pub spent: Duration,
    /// The least that was beyond the tester: no load above it was tried after that.
    pub tester_limit: Option<f64>,
}

/// What was found for a goal.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GoalFound {
    /// The goal.
    pub goal: Goal,
    /// Relevant lower bound: the highest load below the upper bound where it is met.
    pub lower: Option<f64>,
    /// Relevant upper bound: the least load where it is not met.
    pub upper: Option<f64>,
    /// (upper - lower) / upper.
    pub width: Option<f64>,
    /// What the lower bound carried.
    pub conditional_throughput: Option<f64>,
    /// Whether the goal was reached.
    pub result: GoalResult,
    /// Trials made for its sake: each trial is made for one goal, and counts for all.
    pub trials: u32,
    /// The sum of their durations.
    pub trial_time: Duration,
}

/// How a goal ended. All but the first are irregular: the lower bound is no limit of the device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum GoalResult {
    /// The bounds are as near as asked.
    Regular,
    /// The maximum meets the goal.
    AtMaximum,
    /// The minimum does not meet the goal.
    AtMinimum,
    /// All up to this load, above which the tester cannot offer or receive, meets the goal, or can no more be told.
    TesterLimit(f64),
    /// Time ran out, or the measurer stopped, before the bounds were near.
    Unfinished,
}

impl GoalResult {
    /// Whether the device's limit was found.
    #[must_use]
    pub const fn is_regular(&self) -> bool {
        matches!(self, Self::Regular)
    }
}

/// What was measured at one load.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadFound {
    /// The intended load.
    pub load: f64,
    /// Its trials, in the order they were made.
    pub trials: Vec<MlrTrial>,
    /// Sums and class, one for each goal, in the order of the plan.
    pub goals: Vec<(Sums, Class)>,
}

/// A goal on its way.
struct Pursuit {
    goal: Goal,
    /// What leads to it, and it at the end.
    targets: Vec<Goal>,
    /// Which of them is next.
    at: usize,
    /// Where the walk to this target began, once it did.
    anchor: Option<f64>,
    /// Bounds of the target before.
    before: Option<Bounds>,
    trials: u32,
    trial_time: Duration,
}

impl Pursuit {
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

    /// What is known for the current target.
    fn outlook(&self, table: &Table, range: Range) -> Outlook<'_> {
        Outlook {
            target: self.target(),
            range,
            known: table.bounds(self.target()),
            before: self.before,
            is_coarse: self.at + 1 < self.targets.len(),
        }
    }

    /// Passes the targets that are reached, and gives the next load with the anchor of the walk to it; nothing when
    /// the goal is reached.
    fn next(&mut self, table: &Table, range: Range) -> Option<(f64, Option<f64>)> {
        while self.outlook(table, range).is_reached() {
            if self.at + 1 == self.targets.len() {
                return None;
            }
            self.before = Some(table.bounds(self.target()));
            self.anchor = None;
            self.at += 1;
        }
        let outlook = self.outlook(table, range);
        // What comes through the maximum is the first guess, so that is to be sure.
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
        // Where a width is less than what numbers can tell apart, nothing is left to try.
        let load = Some(table.snapped(load))
            .filter(is_between)
            .or(Some(load).filter(is_between))?;
        Some((load, Some(anchor)))
    }
}

/// A search on its way.
struct Driver<'a, M> {
    measurer: &'a mut M,
    mlr: &'a Mlr,
    table: Table,
    spent: Duration,
    tester_limit: Option<f64>,
    /// Loads the tester could not do.
    refusals: i32,
}

impl<M: Measurer> Driver<'_, M> {
    fn range(&self) -> Range {
        let maximum = self.mlr.maximum;
        Range {
            minimum: self.mlr.minimum.min(maximum),
            maximum: self
                .tester_limit
                .map_or(maximum, |limit| limit.min(maximum)),
        }
    }

    /// One trial; nothing when there is no time for it.
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
        let ask = Ask {
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

    /// The tester could not do this load. What it did is the limit the first time, unless it was an accident; when that was
    /// too much, too, something less is.
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

    /// Trial after trial for whoever is next, until no goal wants another or time runs out. Tells whether it is all
    /// done.
    fn pursue(&mut self, pursuits: &mut [Pursuit]) -> Result<bool, M::Error> {
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
                    // What is soon decided first. Then the stricter goal: where it is met, so is the other.
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
                Outcome::Unoffered => self.lower_limit(load, trial.offered),
                Outcome::Unread => self.lower_limit(load, trial.through),
                Outcome::Held | Outcome::Broke => {
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

    fn goal_found(&self, pursuit: &Pursuit, is_finished: bool) -> GoalFound {
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

/// Finds, for each goal, the highest load that meets it.
///
/// Trials go on at a load until it is an upper or a lower bound for the target they are made for. The maximum comes
/// first; what comes through it is the guess for the limit, and from there the loads are stepped through, each step
/// twice as far as the one before, until the limit is between two that are near enough.
///
/// What the tester cannot offer or receive is no word on the device. It caps the search: all goals that are not
/// reached below end with [`GoalResult::TesterLimit`]. When the measurer has no more trials, or the time is up,
/// every goal has the bounds that are known by then.
///
/// # Errors What the measurer ends with.
pub fn mlr<M: Measurer>(measurer: &mut M, mlr: &Mlr) -> Result<MlrFound, M::Error> {
    let mut driver = Driver {
        measurer,
        mlr,
        table: Table::default(),
        spent: Duration::ZERO,
        tester_limit: None,
        refusals: 0,
    };
    let mut pursuits: Vec<_> = mlr
        .goals
        .iter()
        .map(|goal| Pursuit::new(*goal, mlr))
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
            .map(|goal| (Sums::of(goal, &tried.trials), tried.class(goal)))
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
