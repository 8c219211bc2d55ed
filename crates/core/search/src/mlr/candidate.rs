//! Next load for one target.
//!
//! The search walks from an **anchor**, which is probably close to the limit: the load forwarded in a failed trial, or
//! the lower bound of the previous target. The steps grow but do not pass the middle of the known bounds. A good anchor
//! costs two loads; a bad one costs a few more, most of which are decided quickly.

use super::table::{Bounds, TrialTable};
use crate::{Goal, bisect::SLOWEST_CLOCK};

/// Allowed loads.
#[derive(Clone, Copy, Debug)]
pub(super) struct LoadRange {
    pub(super) minimum: f64,
    pub(super) maximum: f64,
}

impl LoadRange {
    /// Part of the maximum that a device with the slowest allowed clock can forward.
    fn slowest(&self) -> f64 {
        self.maximum * SLOWEST_CLOCK
    }
}

/// Input for the choice of the next load.
#[derive(Clone, Copy, Debug)]
pub(super) struct TargetState<'a> {
    pub(super) target: &'a Goal,
    pub(super) range: LoadRange,
    /// Relevant bounds of the target.
    pub(super) known: Bounds,
    /// Bounds of the previous target.
    pub(super) before: Option<Bounds>,
    /// Further targets follow this one.
    pub(super) is_coarse: bool,
}

impl TargetState<'_> {
    /// Returns true if the bounds are close enough or the limit is out of range.
    pub(super) fn is_reached(&self) -> bool {
        match (self.known.lower, self.known.upper) {
            (Some(lower), _) if lower >= self.range.maximum => true,
            (_, Some(upper)) if upper <= self.range.minimum => true,
            (Some(lower), Some(upper)) => self.target.is_narrow(lower, upper),
            _ => false,
        }
    }

    /// Probable bounds of the target.
    fn likely(&self, table: &TrialTable) -> Bounds {
        self.before.unwrap_or_else(|| table.likely(self.target))
    }

    /// Start of a walk: the lower bound of the previous target, or else the load that a failed trial forwarded. It is
    /// not outside the bounds, and at least half a width away from them.
    pub(super) fn anchor(&self, table: &TrialTable) -> f64 {
        let anchor = match self.before {
            Some(before) => before.lower.or(before.upper).unwrap_or(self.range.maximum),
            None => self.guess(table),
        };
        let half = |load: f64| load.midpoint(self.target.above(load));
        match (self.known.lower, self.known.upper) {
            (Some(lower), _) if anchor <= half(lower) => lower,
            (_, Some(upper)) if half(anchor) >= upper && anchor != self.range.slowest() => upper,
            _ => table.snapped(anchor),
        }
    }

    /// Load that loses as much as the target allows, assuming that the lowest failing load loses only the excess.
    fn guess(&self, table: &TrialTable) -> f64 {
        let Bounds { lower, upper } = self.likely(table);
        let Some(upper) = upper else {
            return lower.unwrap_or(self.range.maximum);
        };
        let loss = table.get(upper).map_or(0.0, |tried| tried.mean_loss());
        let through = upper * (1.0 - loss) / (1.0 - self.target.loss_ratio);
        // The maximum loses no more than the clock tolerance explains: a load one width lower would hide how close it
        // is.
        if upper == self.range.maximum && through >= self.range.slowest() {
            return self.range.slowest().max(lower.unwrap_or(0.0));
        }
        // Start half a width lower, so that the limit is in the middle of the first step. At the guess itself a device
        // with a slightly varying capacity loses in every other trial, and such a load takes up to twice as many
        // trials. The search without intermediate targets starts at the guess, like the authors of the RFC.
        let anchor = match self.is_coarse {
            true => through.midpoint(self.target.below(through)),
            false => through,
        };
        anchor.min(upper).max(lower.unwrap_or(0.0))
    }

    /// Next load of a walk from the anchor, between the bounds if possible.
    pub(super) fn next(&self, anchor: f64, table: &TrialTable) -> f64 {
        let (lower, upper) = (self.known.lower, self.known.upper);
        let next = match (lower, upper) {
            (Some(lower), _) if lower >= anchor => self.up(lower, anchor, table),
            (_, Some(upper)) if upper <= anchor => self.down(upper, anchor, table),
            _ => anchor,
        };
        next.clamp(self.range.minimum, self.range.maximum)
    }

    /// Next load above a lower bound.
    fn up(&self, lower: f64, anchor: f64, table: &TrialTable) -> f64 {
        let step = lower * self.stride(lower / anchor);
        let likely = self.likely(table).upper.filter(|upper| *upper > lower);
        let known = self.known.upper.into_iter();
        match known.chain(likely).reduce(f64::min) {
            None => step,
            Some(upper) if self.target.is_narrow(lower, upper) => upper,
            Some(upper) => step.min(self.split(lower, upper)),
        }
    }

    /// Next load below an upper bound.
    fn down(&self, upper: f64, anchor: f64, table: &TrialTable) -> f64 {
        let step = upper / self.stride(anchor / upper);
        let likely = self.likely(table).lower.filter(|lower| *lower < upper);
        let known = self.known.lower.into_iter();
        match known.chain(likely).reduce(f64::max) {
            None => step,
            Some(lower) if self.target.is_narrow(lower, upper) => lower,
            Some(lower) => step.max(self.split(lower, upper)),
        }
    }

    /// Ratio of the next step at distance `far` (a ratio) from the anchor. The first target, with few trials and a
    /// guessed anchor, uses steps of 1, 2, 4, 8 widths; later ones use 1, 1, 2, 4.
    fn stride(&self, far: f64) -> f64 {
        match self.before {
            None => self.target.above(far),
            Some(_) => self.target.above(1.0).max(far),
        }
    }

    /// Splits an interval so that the lower part is 1, 2, 4 and so on widths, close to the half. Such a part can be
    /// halved exactly, and a gap of three widths takes two loads only if necessary.
    fn split(&self, lower: f64, upper: f64) -> f64 {
        let width = self.target.above(1.0).ln();
        let widths = (upper / lower).ln() / width;
        let part = (widths / 2.0).log2().round().max(0.0).exp2();
        lower * (part * width).exp()
    }
}
