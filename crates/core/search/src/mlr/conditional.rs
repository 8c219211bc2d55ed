//! Conditional throughput: the load that a device carried at a load that meets a goal.

use crate::{Goal, MlrTrial};

/// Conditional throughput of a load for a goal (RFC 9971): the load minus the share lost in the worst trial that
/// counts.
///
/// The full trials are taken from the lowest loss upwards until they fill the share of the duration sum that must meet
/// the goal. The result is 0 if they do not fill it, as if the rest were lost. At a lower bound the loss is therefore
/// within the goal.
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
    // Same tolerance as for the classes.
    let mut remaining = needed * (1.0 - 1e-9);
    for (loss, duration) in losses {
        remaining -= duration;
        if remaining <= 0.0 {
            return load * (1.0 - loss);
        }
    }
    0.0
}
