//! Searches for the highest load that a device carries: which load is tried next, and when it is
//! enough.
//!
//! Knows loads as numbers, nothing of packets, time or devices: whoever measures implements
//! [`Measurer`]. Two ways to begin: from a maximum downwards, as RFC 2544 section 26.1 does, or from a
//! small load that grows until something gives way. Both end in halving the logarithm of what is
//! between the best load that held and the least that did not, and in a longer trial of the best one
//! (loss verification, RFC 2544 section 24: at least one trial of full length).
//!
//! A trial has three outcomes, because a tester has limits too: a load it cannot offer, or whose
//! frames it cannot receive, says nothing of the device. So what a search finds is either the device's
//! limit or "at least so much": [`Bound`].
//!
//! ```
//! use wb_search::*;
//!
//! struct Device;
//! impl Measurer for Device {
//!     type Error = std::convert::Infallible;
//!     fn measure(&mut self, load: f64, _: Purpose) -> Result<Option<Trial>, Self::Error> {
//!         Ok(Some(if load <= 700.0 { Trial::held(load) } else { Trial::broke(load, 650.0) }))
//!     }
//! }
//! let found = search(&mut Device, &Search::up_to(1000.0)).unwrap();
//! let best = found.best.unwrap();
//! assert!(best <= 700.0 && best * 1.05 >= 700.0);
//! assert_eq!((found.bound, found.confirmed), (Bound::Device, true));
//! ```

#![forbid(unsafe_code)]

mod ladder;

pub use ladder::search;

/// Measures one load.
pub trait Measurer {
    /// Why no trial could be made at all.
    type Error;

    /// One trial at `load`. Nothing when there is no time for it: then the search ends with what it
    /// has.
    ///
    /// # Errors
    /// What ends the whole search.
    fn measure(&mut self, load: f64, purpose: Purpose) -> Result<Option<Trial>, Self::Error>;
}

/// What a trial is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
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
}

/// How a trial came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The device carried it.
    Held,
    /// The device did not.
    Broke,
    /// The tester could not offer all of it; the device carried what was offered.
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
        }
    }

    /// The device let only `through` pass of `load`.
    #[must_use]
    pub const fn broke(load: f64, through: f64) -> Self {
        Self {
            outcome: Outcome::Broke,
            offered: load,
            through,
        }
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
    /// Whether it held again in a trial to confirm it.
    pub confirmed: bool,
    /// The least load above it that did not hold.
    pub beyond: Option<f64>,
    /// What kept it from being higher.
    pub bound: Bound,
    /// Trials made, those to confirm included.
    pub trials: u32,
}
