//! What is searched for, and what the trials at one load say of it.

use std::time::Duration;

/// Sums and products of decimal fractions land a hair beside what they mean: shares are compared with this relative
/// tolerance.
const TOLERANCE: f64 = 1e-9;

/// What a load has to meet, and for how long (RFC 9971: Search Goal).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Goal {
    /// A trial with no more loss than this is low, with more it is high; 0 up to 1, not rounded.
    pub loss_ratio: f64,
    /// The share of the duration sum that may be high at a load which still meets the goal; 0 up to, but
    /// without 1. With 0.5 the majority decides.
    pub exceed_ratio: f64,
    /// Trials of at least this length are full ones.
    pub final_duration: Duration,
    /// The trials of the first intermediate target take so long, though no longer than the final duration, and their
    /// sum is that. None: what the whole search has ([`crate::Mlr::initial_duration`]), else the final duration.
    pub initial_duration: Option<Duration>,
    /// So much trial time decides about a load, unless it is decided earlier.
    pub duration_sum: Duration,
    /// The goal is reached when the bounds differ by no more than this share of the upper one; above 0, below 1.
    pub width: f64,
}

impl Goal {
    /// Width of the named goals: that of FD.io's tests. The RFC leaves it to the user.
    const WIDTH: f64 = 0.005;

    /// No loss in any 60 seconds: RFC 2544.
    #[must_use]
    pub const fn rfc2544() -> Self {
        Self {
            loss_ratio: 0.0,
            exceed_ratio: 0.0,
            final_duration: Duration::from_secs(60),
            initial_duration: None,
            duration_sum: Duration::from_secs(60),
            width: Self::WIDTH,
        }
    }

    /// No loss in one of two trials of 60 seconds: ETSI GS NFV-TST 009, whose loss verification repeats a
    /// trial once.
    #[must_use]
    pub const fn tst009() -> Self {
        Self {
            exceed_ratio: 0.5,
            duration_sum: Duration::from_secs(120),
            ..Self::rfc2544()
        }
    }

    /// No loss in most of 21 trials of a second: the non-drop rate of FD.io's tests.
    #[must_use]
    pub const fn ndr() -> Self {
        Self {
            exceed_ratio: 0.5,
            final_duration: Duration::from_secs(1),
            duration_sum: Duration::from_secs(21),
            ..Self::rfc2544()
        }
    }

    /// Half a percent of loss at most in most of 21 trials of a second: the partial drop rate of FD.io's tests.
    #[must_use]
    pub const fn pdr() -> Self {
        Self {
            loss_ratio: 0.005,
            ..Self::ndr()
        }
    }

    /// The goal of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "rfc2544" => Self::rfc2544(),
            "tst009" => Self::tst009(),
            "ndr" => Self::ndr(),
            "pdr" => Self::pdr(),
            _ => return None,
        })
    }

    /// The load that is a width above this one.
    pub(super) fn above(&self, load: f64) -> f64 {
        load / (1.0 - self.width.clamp(1e-9, 0.5))
    }

    /// The load that is a width below this one.
    pub(super) fn below(&self, load: f64) -> f64 {
        load * (1.0 - self.width.clamp(1e-9, 0.5))
    }

    /// Whether the gap between two loads is no more than the width.
    pub(super) fn is_narrow(&self, lower: f64, upper: f64) -> bool {
        upper - lower <= upper * self.width * (1.0 + TOLERANCE)
    }

    /// What leads to the goal: targets that take more and more trial time, in equal ratios, the last of which is
    /// the goal: 1, 4.58 and 21 seconds.
    ///
    /// All are as narrow as the goal. Where those before it were four times and twice as wide, single trials were
    /// saved, but then loads beside the result took many: 920 trials instead of 861, summed up over sixteen kinds
    /// of simulated devices (`bench/search`), 150 of each. More targets than three were no better.
    pub(super) fn targets(&self, intermediate: bool, initial: Option<Duration>) -> Vec<Self> {
        let first = self
            .initial_duration
            .or(initial)
            .map_or(self.final_duration, |initial| {
                initial.min(self.final_duration)
            });
        let growth = self.duration_sum.as_secs_f64() / first.as_secs_f64();
        let mut targets = vec![*self];
        if intermediate && growth.is_finite() && growth > 1.0 {
            let sums = [first, first.mul_f64(growth.sqrt())];
            let target = |duration_sum: Duration| Self {
                final_duration: self.final_duration.min(duration_sum),
                duration_sum,
                ..*self
            };
            targets.splice(..0, sums.map(target));
        }
        targets
    }
}

/// One trial at a load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MlrTrial {
    /// How long it took, overhead not included.
    pub duration: Duration,
    /// Its loss ratio: 0 to 1, not rounded.
    pub loss_ratio: f64,
}

/// Sums of the durations of all trials at one load, as one goal sees them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// Full trials within the loss ratio: Lf.
    pub full_low: Duration,
    /// Full trials with more: Hf.
    pub full_high: Duration,
    /// Short trials within the loss ratio: Ls.
    pub short_low: Duration,
    /// Short trials with more: Hs.
    pub short_high: Duration,
}

/// What is known of a load for a goal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// The goal is not met there, whatever further trials show within the duration sum.
    Upper,
    /// It is met.
    Lower,
    /// Trial time is too short to tell.
    Undecided,
}

impl Sums {
    /// The sums of these trials.
    #[must_use]
    pub fn of(goal: &Goal, trials: &[MlrTrial]) -> Self {
        let mut sums = Self::default();
        for trial in trials {
            let is_full = trial.duration >= goal.final_duration;
            let is_low = trial.loss_ratio <= goal.loss_ratio;
            *match (is_full, is_low) {
                (true, true) => &mut sums.full_low,
                (true, false) => &mut sums.full_high,
                (false, true) => &mut sums.short_low,
                (false, false) => &mut sums.short_high,
            } += trial.duration;
        }
        sums
    }

    /// What they say of the load (RFC 9971: Load Classification).
    ///
    /// Short trials cannot prove that a load holds. Their misses count, as far as their hits do not excuse them.
    #[must_use]
    pub fn class(&self, goal: &Goal) -> Class {
        let exceed = goal.exceed_ratio;
        let full_low = self.full_low.as_secs_f64();
        let excused = exceed / (1.0 - exceed) * self.short_low.as_secs_f64();
        let excess = (self.short_high.as_secs_f64() - excused).max(0.0);
        let high = self.full_high.as_secs_f64() + excess;
        let total = (full_low + high).max(goal.duration_sum.as_secs_f64());
        let allowed = exceed * total + TOLERANCE * total;
        if high > allowed {
            Class::Upper
        } else if total - full_low <= allowed {
            Class::Lower
        } else {
            Class::Undecided
        }
    }
}
