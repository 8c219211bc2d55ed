//! The next load for one target.
//!
//! The search walks from an **anchor**, the load it holds likeliest: what came through a load that was too much, or where
//! the target before came out. Each step goes twice as far as the one before, and never beyond the middle of what
//! is known to lie between the bounds. So a good anchor costs two loads, and a bad one a few that are soon
//! decided.

use super::table::{Bounds, Table};
use crate::Goal;

/// Loads that may be tried.
#[derive(Clone, Copy, Debug)]
pub(super) struct Range {
    pub(super) minimum: f64,
    pub(super) maximum: f64,
}

/// What the next load for a target depends on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outlook<'a> {
    pub(super) target: &'a Goal,
    /// The first step goes so far: width of the last target, as a target that comes out narrower than it has to is one
    /// step ahead.
    pub(super) step: f64,
    pub(super) range: Range,
    /// Relevant bounds of the target.
    pub(super) known: Bounds,
    /// Where the bounds may come out.
    pub(super) likely: Bounds,
}

impl Outlook<'_> {
    /// There is nothing left to find: the bounds are as near as asked, or the limit is out of range.
    pub(super) fn is_reached(&self) -> bool {
        match (self.known.lower, self.known.upper) {
            (Some(lower), _) if lower >= self.range.maximum => true,
            (_, Some(upper)) if upper <= self.range.minimum => true,
            (Some(lower), Some(upper)) => self.target.is_narrow(lower, upper),
            _ => false,
        }
    }

    /// Where a walk begins: what would be left of a load that lost too much, without less than is likely to hold.
    pub(super) fn guess(&self, table: &Table) -> f64 {
        let likely = self.likely;
        let Some(upper) = likely.upper else {
            return likely.lower.unwrap_or(self.range.maximum);
        };
        let loss = table.get(upper).map_or(0.0, |tried| tried.mean_loss());
        let through = upper * (1.0 - loss) / (1.0 - self.target.loss_ratio);
        through.clamp(likely.lower.unwrap_or(0.0).min(upper), upper)
    }

    /// Where a walk begins that was to begin at `load`: not outside the bounds, nor less than a step from them.
    pub(super) fn anchor(&self, load: f64) -> f64 {
        let is_step = |lower: f64, upper: f64| lower < upper * (1.0 - self.step) * (1.0 - 1e-9);
        match (self.known.lower, self.known.upper) {
            (Some(lower), _) if !is_step(lower, load) => lower,
            (_, Some(upper)) if !is_step(load, upper) => upper,
            _ => load,
        }
    }

    /// The next load of a walk from the anchor: between the bounds, unless there is nothing.
    pub(super) fn next(&self, anchor: f64) -> f64 {
        let (lower, upper) = (self.known.lower, self.known.upper);
        let below = |load| self.range.minimum.max(load * (1.0 - self.step));
        let next = match (lower, upper) {
            (Some(lower), _) if lower >= anchor => self.up(lower, lower / anchor),
            (_, Some(upper)) if upper <= anchor => self.down(upper, upper / anchor),
            _ => anchor,
        };
        let next = next.clamp(self.range.minimum, self.range.maximum);
        // At the ends a load that is not worth a step is not worth a trial.
        if upper.is_none() && next > below(self.range.maximum) {
            self.range.maximum
        } else if lower.is_none() && below(next) <= self.range.minimum {
            self.range.minimum
        } else {
            next
        }
    }

    /// From a lower bound, after a walk of `far` times the anchor.
    fn up(&self, lower: f64, far: f64) -> f64 {
        let step = lower * far / (1.0 - self.step);
        let likely = self.likely.upper.filter(|upper| *upper > lower);
        match [self.known.upper, likely]
            .into_iter()
            .flatten()
            .reduce(f64::min)
        {
            None => step,
            Some(upper) if self.target.is_narrow(lower, upper) => upper,
            Some(upper) => step.min(self.split(lower, upper)),
        }
    }

    /// From an upper bound, after a walk of `far` times the anchor.
    fn down(&self, upper: f64, far: f64) -> f64 {
        let step = upper * far * (1.0 - self.step);
        let likely = self.likely.lower.filter(|lower| *lower < upper);
        match [self.known.lower, likely]
            .into_iter()
            .flatten()
            .reduce(f64::max)
        {
            None => step,
            Some(lower) if self.target.is_narrow(lower, upper) => lower,
            Some(lower) => step.max(self.split(lower, upper)),
        }
    }

    /// A load between two, so that the part below is 1, 2, 4 and so on widths and near to the half: such a part is split
    /// without a rest, and a gap of three takes two loads only if it has to.
    fn split(&self, lower: f64, upper: f64) -> f64 {
        let width = (1.0 - self.target.width).recip().ln();
        let widths = (upper / lower).ln() / width;
        let part = (widths / 2.0).log2().round().max(0.0).exp2();
        lower * (part * width).exp()
    }
}
