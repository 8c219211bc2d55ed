//! Search goals, and the classification of a load by its trials.

use std::time::Duration;

/// Relative tolerance for comparing shares, because sums and products of decimal fractions are not exact.
const TOLERANCE: f64 = 1e-9;

/// Requirement for a load, and the trial time needed (RFC 9971: Search Goal).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Goal {
    /// Maximum loss ratio of a low-loss trial, 0 or more and below 1, not rounded. A trial with more loss is a
    /// high-loss trial.
    pub loss_ratio: f64,
    /// Share of the duration sum that may have high loss while the load still meets the goal, 0 or more and below 1.
    /// With 0.5 the majority decides.
    pub exceed_ratio: f64,
    /// Minimum duration of a full-length trial.
    pub final_duration: Duration,
    /// Trial duration and duration sum of the first intermediate target, limited to the final duration. None: the value
    /// of the search ([`crate::Mlr::initial_duration`]), or else the final duration.
    pub initial_duration: Option<Duration>,
    /// Trial time after which a load is decided, unless it is decided earlier.
    pub duration_sum: Duration,
    /// The goal is reached when the bounds differ by at most this share of the upper one; above 0, below 1.
    pub width: f64,
}

impl Goal {
    /// Width of the named goals, as in the tests of FD.io. The RFC leaves the value to the user.
    const WIDTH: f64 = 0.005;

    /// No loss in 60 seconds: RFC 2544.
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

    /// No loss in one of two trials of 60 seconds: ETSI GS NFV-TST 009, which repeats a lossy trial once.
    #[must_use]
    pub const fn tst009() -> Self {
        Self {
            exceed_ratio: 0.5,
            duration_sum: Duration::from_secs(120),
            ..Self::rfc2544()
        }
    }

    /// No loss in most of 21 trials of a second: the non-drop rate of the tests of FD.io.
    #[must_use]
    pub const fn ndr() -> Self {
        Self {
            exceed_ratio: 0.5,
            final_duration: Duration::from_secs(1),
            duration_sum: Duration::from_secs(21),
            ..Self::rfc2544()
        }
    }

    /// At most 0.5 % loss in most of 21 trials of a second: the partial drop rate of the tests of FD.io.
    #[must_use]
    pub const fn pdr() -> Self {
        Self {
            loss_ratio: 0.005,
            ..Self::ndr()
        }
    }

    /// Returns the goal with this name: `rfc2544`, `tst009`, `ndr` or `pdr`.
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

    /// Load one width above this one.
    pub(super) fn above(&self, load: f64) -> f64 {
        load / (1.0 - self.width.clamp(1e-9, 0.5))
    }

    /// Load one width below this one.
    pub(super) fn below(&self, load: f64) -> f64 {
        load * (1.0 - self.width.clamp(1e-9, 0.5))
    }

    /// Returns true if the gap between two loads is at most the width.
    pub(super) fn is_narrow(&self, lower: f64, upper: f64) -> bool {
        upper - lower <= upper * self.width * (1.0 + TOLERANCE)
    }

    /// Targets that lead to the goal: their trial time grows by a constant ratio, and the last one is the goal: 1, 4.58
    /// and 21 seconds.
    ///
    /// All targets have the width of the goal. Intermediate targets of four times and twice the width saved single
    /// trials but needed more loads next to the result: 920 trials instead of 861, summed over sixteen kinds of
    /// simulated devices (`bench/search`), 150 of each. More than three targets were not better.
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
    /// Duration without overhead.
    pub duration: Duration,
    /// Loss ratio, 0 to 1, not rounded.
    pub loss_ratio: f64,
}

/// Sums of the trial durations at one load, for one goal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// Full-length low-loss trials: Lf.
    pub full_low: Duration,
    /// Full-length high-loss trials: Hf.
    pub full_high: Duration,
    /// Short low-loss trials: Ls.
    pub short_low: Duration,
    /// Short high-loss trials: Hs.
    pub short_high: Duration,
}

/// Class of a load for a goal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// The goal is not met, regardless of further trials within the duration sum.
    Upper,
    /// The goal is met.
    Lower,
    /// Not enough trial time for a decision.
    Undecided,
}

impl Sums {
    /// Sums the durations of these trials.
    #[must_use]
    pub fn sum_trials(goal: &Goal, trials: &[MlrTrial]) -> Self {
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

    /// Class of the load (RFC 9971: Load Classification).
    ///
    /// Short trials cannot prove that a load meets the goal. High-loss short trials count as far as low-loss ones do
    /// not outweigh them.
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
