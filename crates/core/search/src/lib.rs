//! Searches for the highest load that a device carries: choose the next load, and decide when to stop.
//!
//! Loads are numbers; this crate does not know packets or devices. The caller measures by implementing [`Measurer`].
//!
//! | search | for | next load |
//! |---|---|---|
//! | [`binary`] | throughput (RFC 2544 section 26.1), with loss verification (ETSI GS NFV-TST 009 section 12.3) | the middle |
//! | [`integers`] | burst length (RFC 9004), addresses (RFC 2889 section 5.7) | the middle, in whole numbers |
//! | [`doubling`] | connections and requests, without a known upper limit | twice as much, then the middle |
//! | [`search`] | the limits of a load balancer | the load forwarded, or the geometric middle |
//! | [`mlr()`] | several loss ratios at once, judged by sums of trial time (RFC 9971) | the load forwarded, then doubling steps |
//! | [`loss_curve`] | frame loss rate (RFC 2544 section 26.3) | one step down |
//! | [`forwarding_curve`] | maximum forwarding rate (RFC 2889 section 5.6.1) | one step up |
//!
//! A trial has more than two outcomes, because the tester has limits too. A load that it cannot offer, or frames that
//! it cannot receive, say nothing about the device. A result is therefore either the limit of the device or a lower
//! bound of it: [`LimitCause`].
//!
//! ```
//! use wb_search::*;
//!
//! struct Device;
//! impl Measurer for Device {
//!     type Error = std::convert::Infallible;
//!     fn measure(&mut self, ask: &TrialRequest) -> Result<Option<Trial>, Self::Error> {
//!         let load = ask.load;
//!         Ok(Some(if load <= 700.0 { Trial::held(load) } else { Trial::broke(load, 650.0) }))
//!     }
//! }
//! let found = binary(&mut Device, &Binary::up_to(1000.0)).unwrap();
//! let best = found.best.unwrap();
//! assert!(best <= 700.0 && best + 1.0 >= 700.0);
//! assert_eq!((found.bound, found.confirmed), (LimitCause::Device, true));
//! ```

#![forbid(unsafe_code)]

mod bisect;
mod curve;
mod geometric_search;
mod mlr;

use std::time::Duration;

pub use bisect::{Binary, Doubling, Integers, binary, doubling, integers};
pub use curve::{Curve, ForwardingCurve, LossCurve, Point, forwarding_curve, loss_curve};
pub use geometric_search::search;
pub use mlr::{
    Class, Goal, GoalFound, GoalResult, LoadFound, Mlr, MlrFound, MlrTrial, Sums,
    conditional_throughput, mlr,
};

/// If a tester achieves less than this share of a load, the trial may have been an accident, so the next load is at
/// least this share.
const ACCIDENT: f64 = 0.25;

/// Runs trials for a search.
pub trait Measurer {
    /// Error that prevents further trials.
    type Error;

    /// Runs one trial. Returns None if there is no time for it; the search then ends with the results so far.
    ///
    /// The measurer must repeat invalid trials itself: [`LoadOutcome::Unoffered`] and [`LoadOutcome::Unread`] are taken as the
    /// limits of the tester.
    ///
    /// # Errors
    /// An error ends the complete search.
    fn measure(&mut self, ask: &TrialRequest) -> Result<Option<Trial>, Self::Error>;
}

/// Trial that a search requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TrialRequest {
    /// Load in the unit of the search: frames per second, frames of a burst, connections.
    pub load: f64,
    /// Duration of the trial. None: chosen by the measurer.
    pub duration: Option<Duration>,
    /// Purpose of the trial.
    pub purpose: Purpose,
}

/// Purpose of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Warms up the device; the result is discarded.
    WarmUp,
    /// Narrows the search; may be short.
    Search,
    /// Confirms the result.
    Confirm,
}

/// Result of one trial.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trial {
    /// Outcome of the trial.
    pub outcome: LoadOutcome,
    /// Load actually offered.
    pub offered: f64,
    /// Load that was forwarded: the guess for the next load when this one was too high.
    pub through: f64,
    /// Loss ratio: lost / offered, 0 to 1, not rounded. Searches with a loss goal compare this ratio with the goal and
    /// ignore the difference between `Held` and `Broke`. A trial that broke for another reason has a loss ratio of 1.
    pub loss: f64,
    /// Time beyond the duration of the trial: setup, drain, settling, and invalid trials before it.
    pub overhead: Duration,
}

/// Outcome of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadOutcome {
    /// The device carried the load.
    Held,
    /// The device did not carry the load.
    Broke,
    /// The tester could not offer the complete load. If the device carried the part offered, `through` equals
    /// `offered`.
    Unoffered,
    /// The tester could not receive the load; the result says nothing about the device.
    Unread,
}

impl Trial {
    /// Creates the result of a device that carried `load`.
    #[must_use]
    pub const fn held(load: f64) -> Self {
        Self {
            outcome: LoadOutcome::Held,
            offered: load,
            through: load,
            loss: 0.0,
            overhead: Duration::ZERO,
        }
    }

    /// Creates the result of a device that forwarded only `through` of `load`.
    #[must_use]
    pub const fn broke(load: f64, through: f64) -> Self {
        Self {
            outcome: LoadOutcome::Broke,
            offered: load,
            through,
            loss: if load > 0.0 {
                (load - through) / load
            } else {
                1.0
            },
            overhead: Duration::ZERO,
        }
    }

    /// Returns true if the trial says something about the device.
    #[must_use]
    pub const fn is_valid(&self) -> bool {
        matches!(self.outcome, LoadOutcome::Held | LoadOutcome::Broke)
    }
}

/// Parameters of [`search`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Search {
    /// First load: the maximum, or a small one to grow from.
    pub first: f64,
    /// Maximum load.
    pub maximum: f64,
    /// Minimum load, above 0.
    pub minimum: f64,
    /// Growth factor of the load until the first failure, above 1.
    pub growth: f64,
    /// The search ends when the highest load that held and the lowest that did not differ by at most this share of the
    /// latter, 0 to 1.
    pub resolution: f64,
    /// Maximum number of trials, without those that confirm the result.
    pub most_trials: u32,
    /// Maximum number of trials to confirm a result; 0 for no confirmation.
    pub most_confirmations: u32,
}

impl Search {
    /// Creates a search from `maximum` downwards, with a resolution of 5 %.
    #[must_use]
    pub const fn up_to(maximum: f64) -> Self {
        Self {
            first: maximum,
            maximum,
            minimum: 1.0,
            growth: 4.0,
            resolution: 0.05,
            most_trials: 12,
            most_confirmations: 6,
        }
    }

    /// Creates a search from `first` upwards, with a resolution of 5 %.
    #[must_use]
    pub const fn from(first: f64) -> Self {
        Self {
            first,
            maximum: f64::INFINITY,
            ..Self::up_to(first)
        }
    }
}

/// Reason why the result is not higher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitCause {
    /// The device failed at a higher load, within the resolution.
    Device,
    /// The tester reached its limit: the limit of the device is at least the result.
    Tester,
    /// The search reached its maximum: the limit of the device is at least the result.
    Maximum,
    /// The search ended before it reached the resolution: trials or time ran out.
    Unfinished,
}

/// Result of a search.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SearchResult {
    /// Highest load that held, confirmed by a second trial if requested.
    pub best: Option<f64>,
    /// True if the load held in a trial of full length.
    pub confirmed: bool,
    /// Lowest load above `best` that did not hold.
    pub beyond: Option<f64>,
    /// Reason why the result is not higher.
    pub bound: LimitCause,
    /// Set if only the maximum failed and 99.98 % of it was tried, in case the clocks of tester and device differ by
    /// the Ethernet tolerance (100 ppm each). True if that load held; it is then the best.
    pub near_maximum: Option<bool>,
    /// Number of trials, including confirmations.
    pub trials: u32,
}
