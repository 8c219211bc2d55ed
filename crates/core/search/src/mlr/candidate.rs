//! The next load for one target.
//!
//! The search walks from an **anchor**, which is likely near the limit: what came through a load that was too much,
//! or the lower bound of the target before. Its steps grow, and none goes beyond the middle of what is known to lie
//! between the bounds. So a good anchor costs two loads, and a bad one a few more, most of which are soon decided.

use super::table::{Bounds, Table};
use crate::{Goal, bisect::SLOWEST_CLOCK};

/// Loads that may be tried.
#[derive(Clone, Copy, Debug)]
pub(super) struct Range {
    pub(super) minimum: f64,
    pub(super) maximum: f64,
}

impl Range {
    /// What a device whose clock is the slowest makes of the maximum.
    fn slowest(&self) -> f64 {
        self.maximum * SLOWEST_CLOCK
    }
}

/// What the next load for a target depends on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outlook<'a> {
    pub(super) target: &'a Goal,
    pub(super) range: Range,
    /// Relevant bounds of the target.
    pub(super) known: Bounds,
    /// Bounds of the target before.
    pub(super) before: Option<Bounds>,
    /// Other targets come after this one.
    pub(super) is_coarse: bool,
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

    /// Where the bounds may come out.
    fn likely(&self, table: &Table) -> Bounds {
        self.before.unwrap_or_else(|| table.likely(self.target))
    }

    /// Where a walk begins: at the lower bound of the target before; else at what would be left of a load that lost
    /// too much. Not outside the bounds, nor less than half a width from them.
    pub(super) fn anchor(&self, table: &Table) -> f64 {
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

    /// The load that loses as much as the target allows, if the least one that lost more loses only what is above
    /// it.
    fn guess(&self, table: &Table) -> f64 {
        let Bounds { lower, upper } = self.likely(table);
        let Some(upper) = upper else {
            return lower.unwrap_or(self.range.maximum);
        };
        let loss = table.get(upper).map_or(0.0, |tried| tried.mean_loss());
        let through = upper * (1.0 - loss) / (1.0 - self.target.loss_ratio);
        // A maximum that loses no more than clocks may differ by: a width less would hide how near it is.
        if upper == self.range.maximum && through >= self.range.slowest() {
            return self.range.slowest().max(lower.unwrap_or(0.0));
        }
        // Half a width lower, so that the limit comes to lie in the middle of the first step: at the guess itself a
        // device whose capacity varies by a hair loses in every other trial, and such a load takes up to twice as
        // many. The plain search, each load to the end, begins at the guess, as the authors of the RFC do.
        let anchor = match self.is_coarse {
            true => through.midpoint(self.target.below(through)),
            false => through,
        };
        anchor.min(upper).max(lower.unwrap_or(0.0))
    }

    /// The next load of a walk from the anchor: between the bounds, unless there is nothing.
    pub(super) fn next(&self, anchor: f64, table: &Table) -> f64 {
        let (lower, upper) = (self.known.lower, self.known.upper);
        let next = match (lower, upper) {
            (Some(lower), _) if lower >= anchor => self.up(lower, anchor, table),
            (_, Some(upper)) if upper <= anchor => self.down(upper, anchor, table),
            _ => anchor,
        };
        next.clamp(self.range.minimum, self.range.maximum)
    }

    /// The next load above a lower bound.
    fn up(&self, lower: f64, anchor: f64, table: &Table) -> f64 {
        let step = lower * self.stride(lower / anchor);
        let likely = self.likely(table).upper.filter(|upper| *upper > lower);
        let known = self.known.upper.into_iter();
        match known.chain(likely).reduce(f64::min) {
            None => step,
            Some(upper) if self.target.is_narrow(lower, upper) => upper,
            Some(upper) => step.min(self.split(lower, upper)),
        }
    }

    /// The next load below an upper bound.
    fn down(&self, upper: f64, anchor: f64, table: &Table) -> f64 {
        let step = upper / self.stride(anchor / upper);
        let likely = self.likely(table).lower.filter(|lower| *lower < upper);
        let known = self.known.lower.into_iter();
        match known.chain(likely).reduce(f64::max) {
            None => step,
            Some(lower) if self.target.is_narrow(lower, upper) => lower,
            Some(lower) => step.max(self.split(lower, upper)),
        }
    }

    /// The next step, as a ratio, of a walk that is so far from its anchor: of 1, 2, 4, 8 widths in the first
    /// target, whose trials are few and whose anchor is a guess, else of 1, 1, 2, 4.
    fn stride(&self, far: f64) -> f64 {
        match self.before {
            None => self.target.above(far),
            Some(_) => self.target.above(1.0).max(far),
        }
    }

    /// A load between two, so that the part below is 1, 2, 4 and so on widths and near to the half: such a part is
    /// split without a rest, and a gap of three takes two loads only if it has to.
    fn split(&self, lower: f64, upper: f64) -> f64 {
        let width = self.target.above(1.0).ln();
        let widths = (upper / lower).ln() / width;
        let part = (widths / 2.0).log2().round().max(0.0).exp2();
        lower * (part * width).exp()
    }
}
