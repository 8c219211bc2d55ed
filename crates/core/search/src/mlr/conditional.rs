//! What a load that meets a goal really carried.

use crate::{Goal, MlrTrial};

/// Conditional throughput of a load for a goal (RFC 9971: Conditional Throughput): the load without the share that
/// was lost in the worst trial that counts.
///
/// The full trials are gone through from the least loss upwards, until the share of the duration sum that has to
/// meet the goal is used up; where they are too few for that, all is taken as lost and it is 0. At a lower bound
/// the loss is thus no more than the goal allows.
#[must_use]
pub fn conditional_throughput(load: f64, goal: &Goal, trials: &[MlrTrial]) -> f64 {
    let full = trials
        .iter()
        .filter(|trial| trial.duration >= goal.final_duration);
    let mut losses: Vec<_> = full
        .map(|trial| (trial.loss_ratio, trial.duration.as_secs_f64()))
        .collect();
    losses.sort_by(|a, b| a.0.total_cmp(&b.0));
    let sum: f64 = losses.iter().map(|(_, duration)| duration).sum();
    let needed = (1.0 - goal.exceed_ratio) * sum.max(goal.duration_sum.as_secs_f64());
    // As in the classes: a hair beside is not beside.
    let mut remaining = needed * (1.0 - 1e-9);
    for (loss, duration) in losses {
        remaining -= duration;
        if remaining <= 0.0 {
            return load * (1.0 - loss);
        }
    }
    0.0
}
