//! All trials of a search, by load.

use crate::{Class, Goal, MlrTrial, Sums};

/// Trials at one load.
#[derive(Clone, Debug)]
pub(super) struct Tried {
    pub(super) load: f64,
    pub(super) trials: Vec<MlrTrial>,
}

impl Tried {
    pub(super) fn class(&self, goal: &Goal) -> Class {
        Sums::sum_trials(goal, &self.trials).class(goal)
    }

    /// Loss ratio over all trials.
    pub(super) fn mean_loss(&self) -> f64 {
        let (mut lost, mut total) = (0.0, 0.0);
        for trial in &self.trials {
            let seconds = trial.duration.as_secs_f64();
            lost += trial.loss_ratio * seconds;
            total += seconds;
        }
        lost / total
    }
}

/// Bounds of a limit, as far as known.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Bounds {
    /// Highest load below `upper` at which the goal is met.
    pub(super) lower: Option<f64>,
    /// Lowest load at which the goal is not met.
    pub(super) upper: Option<f64>,
}

/// Loads in ascending order.
#[derive(Clone, Debug, Default)]
pub(super) struct TrialTable(pub(super) Vec<Tried>);

impl TrialTable {
    pub(super) fn add(&mut self, load: f64, trial: MlrTrial) {
        let place = self.0.partition_point(|tried| tried.load < load);
        match self.0.get_mut(place).filter(|tried| tried.load == load) {
            Some(tried) => tried.trials.push(trial),
            None => self.0.insert(
                place,
                Tried {
                    load,
                    trials: vec![trial],
                },
            ),
        }
    }

    pub(super) fn get(&self, load: f64) -> Option<&Tried> {
        self.0.iter().find(|tried| tried.load == load)
    }

    /// Returns the load that was tried and equals this one except for rounding, or the load itself.
    pub(super) fn snapped(&self, load: f64) -> f64 {
        let same = |tried: &&Tried| (tried.load - load).abs() <= load * 1e-9;
        self.0.iter().find(same).map_or(load, |tried| tried.load)
    }

    fn bounded(&self, class: impl Fn(&Tried) -> Class) -> Bounds {
        let mut bounds = Bounds::default();
        for tried in &self.0 {
            match class(tried) {
                Class::Lower => bounds.lower = Some(tried.load),
                Class::Upper => {
                    bounds.upper = Some(tried.load);
                    break;
                }
                Class::Undecided => {}
            }
        }
        bounds
    }

    /// Relevant bounds of a goal.
    pub(super) fn bounds(&self, goal: &Goal) -> Bounds {
        self.bounded(|tried| tried.class(goal))
    }

    /// Probable bounds, assuming that undecided loads keep their mean loss.
    pub(super) fn likely(&self, goal: &Goal) -> Bounds {
        self.bounded(|tried| {
            if tried.mean_loss() <= goal.loss_ratio {
                Class::Lower
            } else {
                Class::Upper
            }
        })
    }
}
