//! Searches for the highest load that a device carries: which load is tried next, and when it is
//! enough.
//!
//! Knows loads as numbers, nothing of packets or devices: whoever measures implements [`Measurer`].
//!
//! | search | for | next load |
//! |---|---|---|
//! | [`binary`] | throughput (RFC 2544 section 26.1), with loss verification (ETSI GS NFV-TST 009 section 12.3) | the middle |
//! | [`integers`] | burst length (RFC 9004), addresses (RFC 2889 section 5.7) | the middle, in whole numbers |
//! | [`doubling`] | connections and requests, whose upper limit nobody knows | twice as much, then the middle |
//! | [`search`] | the limits of a load balancer | what came through the last, else the geometric middle |
//! | [`mlr()`] | several loss ratios at once, judged by sums of trial time (RFC 9971) | what came through, then steps twice as far each |
//! | [`loss_curve`] | frame loss rate (RFC 2544 section 26.3) | one step less |
//! | [`forwarding_curve`] | maximum forwarding rate (RFC 2889 section 5.6.1) | one step more |
//!
//! A trial has more than two outcomes, because a tester has limits too: a load it cannot offer, or whose
//! frames it cannot receive, says nothing of the device. So what a search finds is either the device's
//! limit or "at least so much": [`Bound`].
//!
//! ```
//! use wb_search::*;
//!
//! struct Device;
//! impl Measurer for Device {
//!     type Error = std::convert::Infallible;
//!     fn measure(&mut self, ask: &Ask) -> Result<Option<Trial>, Self::Error> {
//!         let load = ask.load;
//!         Ok(Some(if load <= 700.0 { Trial::held(load) } else { Trial::broke(load, 650.0) }))
//!     }
//! }
//! let found = binary(&mut Device, &Binary::up_to(1000.0)).unwrap();
//! let best = found.best.unwrap();
//! assert!(best <= 700.0 && best + 1.0 >= 700.0);
//! assert_eq!((found.bound, found.confirmed), (Bound::Device, true));
//! ```

#![forbid(unsafe_code)]

mod bisect;
mod curve;
mod ladder;
mod mlr;

use std::time::Duration;

pub use bisect::{Binary, Doubling, Integers, binary, doubling, integers};
pub use curve::{Curve, ForwardingCurve, LossCurve, Point, forwarding_curve, loss_curve};
pub use ladder::search;
pub use mlr::{
    Class, Goal, GoalFound, GoalResult, LoadFound, Mlr, MlrFound, MlrTrial, Sums,
    conditional_throughput, mlr,
};

/// What a tester did in one trial may have been an accident where it is less than this share of the load: the next load
/// is no less than that.
const ACCIDENT: f64 = 0.25;

/// Measures one load.
pub trait Measurer {
    /// Why no trial could be made at all.
    type Error;

    /// One trial. Nothing when there is no time for it: then the search ends with what it has.
    ///
    /// Invalid trials are the measurer's to repeat: what it tells as [`Outcome::Unoffered`] or
    /// [`Outcome::Unread`] counts as what the tester can do.
    ///
    /// # Errors
    /// What ends the whole search.
    fn measure(&mut self, ask: &Ask) -> Result<Option<Trial>, Self::Error>;
}

/// What a search wants measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ask {
    /// The load, in the unit of the search: frames per second, frames of a burst, connections.
    pub load: f64,
    /// For how long; none: as long as the measurer's trials are.
    pub duration: Option<Duration>,
    /// What for.
    pub purpose: Purpose,
}

/// What a trial is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// To wake the device; what it shows is thrown away.
    WarmUp,
    /// To find the way; may be short.
    Search,
    /// To prove the result.
    Confirm,
}

/// What one trial showed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trial {
    /// How it came out.
    pub outcome: Outcome,
    /// The load that was really offered.
    pub offered: f64,
    /// What came through: the guess for the next load when this one was too much.
    pub through: f64,
    /// Loss ratio: lost / offered, 0 to 1, not rounded. Searches with a loss goal compare it with the goal
    /// and do not ask whether the trial is told as held or broke; what broke for another reason than loss
    /// has a loss ratio of 1.
    pub loss: f64,
    /// What the trial took beyond its duration: setting up, draining, settling, and invalid trials before it.
    pub overhead: Duration,
}

/// How a trial came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The device carried it.
    Held,
    /// The device did not.
    Broke,
    /// The tester could not offer all of it. If the device carried what was offered, all of it came through.
    Unoffered,
    /// The tester could not receive it; nothing is known of the device.
    Unread,
}

impl Trial {
    /// The device carried `load`.
    #[must_use]
    pub const fn held(load: f64) -> Self {
        Self {
            outcome: Outcome::Held,
            offered: load,
            through: load,
            loss: 0.0,
            overhead: Duration::ZERO,
        }
    }

    /// The device let only `through` pass of `load`.
    #[must_use]
    pub const fn broke(load: f64, through: f64) -> Self {
        Self {
            outcome: Outcome::Broke,
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

    /// Whether the trial says something of the device.
    #[must_use]
    pub const fn is_valid(&self) -> bool {
        matches!(self.outcome, Outcome::Held | Outcome::Broke)
    }
}

/// How a search begins and when it ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Search {
    /// The first load: the maximum, or a small one to grow from.
    pub first: f64,
    /// No load above it is tried.
    pub maximum: f64,
    /// No load below it is tried; above 0.
    pub minimum: f64,
    /// By how much a load grows while nothing gives way; above 1.
    pub growth: f64,
    /// It ends when the best load and the least that did not hold differ by this share of the latter; 0
    /// to 1.
    pub resolution: f64,
    /// Trials at most, without the one that confirms the result.
    pub most_trials: u32,
    /// Trials to confirm a result at most; 0: none is confirmed.
    pub most_confirmations: u32,
}

impl Search {
    /// From `maximum` downwards, to within 5 %.
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

    /// From `first` upwards, to within 5 %.
    #[must_use]
    pub const fn from(first: f64) -> Self {
        Self {
            first,
            maximum: f64::INFINITY,
            ..Self::up_to(first)
        }
    }
}

/// What kept the result from being higher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// The device gave way at a load above it, no further than the resolution.
    Device,
    /// The tester could do no more: the device's limit is at least this.
    Tester,
    /// The search was not to go higher: the device's limit is at least this.
    Maximum,
    /// The search ended before it came to the resolution: trials or time ran out.
    Unfinished,
}

/// What a search found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Found {
    /// The highest load that held and, where that was asked for, held again.
    pub best: Option<f64>,
    /// Whether it held in a trial of full length.
    pub confirmed: bool,
    /// The least load above it that did not hold.
    pub beyond: Option<f64>,
    /// What kept it from being higher.
    pub bound: Bound,
    /// The maximum alone failed, so 99.98 % of it was tried as well, in case the clocks of tester and device
    /// differ by what Ethernet allows (100 ppm each): whether that held. Then it is the best.
    pub near_maximum: Option<bool>,
    /// Trials made, those to confirm included.
    pub trials: u32,
}
