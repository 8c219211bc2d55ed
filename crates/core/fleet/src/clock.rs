//! Clocks of hosts against the clock of the controller, from exchanges of four stamps.
//!
//! An exchange gives the offset within half of its round trip, whatever the two directions take. The exchange with the
//! shortest round trip of a group of [`EXCHANGES`] gives one [`Estimate`], and a line through the last
//! [`ESTIMATES`] estimates gives the offset at any time, the drift, and the maximum error ([`ClockLine`]).

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};
use wb_model::peer::PairClock;

use crate::SECOND;

/// Number of exchanges for one estimate.
pub const EXCHANGES: usize = 32;
/// Number of estimates of a line.
pub const ESTIMATES: usize = 30;
/// Time between two estimates, in ns.
pub const ESTIMATE_NS: u64 = SECOND;
/// Number of estimates from which on a line is used; before, the last estimate counts.
const FEWEST: usize = 5;
/// Maximum drift between the clocks of two machines in ppb, assumed while no line is known.
const MAX_DRIFT_PPB: f64 = 100_000.0;
/// Rounding of stamps and of the arithmetic, in ns.
const ROUNDING_NS: f64 = 2.0;

/// Stamps of one exchange, by the wall clocks of both ends, in ns since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exchange {
    /// The request leaves the near end.
    pub sent_ns: u64,
    /// The request arrives at the far end.
    pub far_received_ns: u64,
    /// The reply leaves the far end.
    pub far_sent_ns: u64,
    /// The reply arrives at the near end.
    pub received_ns: u64,
}

impl Exchange {
    /// Time that request and reply took together, in ns. `None` if the stamps are out of order.
    #[must_use]
    pub fn round_trip_ns(&self) -> Option<u64> {
        let whole = self.received_ns.checked_sub(self.sent_ns)?;
        let far = self.far_sent_ns.checked_sub(self.far_received_ns)?;
        whole.checked_sub(far)
    }

    /// Far clock minus near clock in ns, if both directions took the same time.
    #[must_use]
    pub fn offset_ns(&self) -> i64 {
        let there = i128::from(self.far_received_ns) - i128::from(self.sent_ns);
        let back = i128::from(self.far_sent_ns) - i128::from(self.received_ns);
        i64::try_from((there + back) / 2).unwrap_or(i64::MAX)
    }
}

/// Offset of a far clock at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Estimate {
    /// Moment by the near clock, in ns since 1970.
    pub at_ns: u64,
    /// Far clock minus near clock, in ns.
    pub offset_ns: i64,
    /// Maximum error of the offset in ns: half of the round trip, rounded up.
    pub bound_ns: u64,
}

impl Estimate {
    /// Returns the estimate of the exchange with the shortest round trip. `None` without a valid exchange.
    #[must_use]
    pub fn best(exchanges: &[Exchange]) -> Option<Self> {
        let valid = exchanges
            .iter()
            .filter_map(|exchange| Some((exchange.round_trip_ns()?, exchange)));
        let (round_trip, best) = valid.min_by_key(|(round_trip, _)| *round_trip)?;
        Some(Self {
            at_ns: best.sent_ns + (best.received_ns - best.sent_ns) / 2,
            offset_ns: best.offset_ns(),
            bound_ns: round_trip.div_ceil(2) + 1,
        })
    }

    /// Estimate of the far clock of `other` against the far clock of this estimate.
    #[must_use]
    pub const fn to(&self, other: &Self) -> Self {
        Self {
            at_ns: other.at_ns,
            offset_ns: other.offset_ns.saturating_sub(self.offset_ns),
            bound_ns: self.bound_ns.saturating_add(other.bound_ns),
        }
    }
}

/// Offset of a far clock over time.
#[derive(Clone, Debug, Default)]
pub struct ClockLine {
    recent: VecDeque<Estimate>,
    first: Option<Estimate>,
    exchanges: u64,
    /// Largest error that was reported so far, in ns.
    worst_ns: u64,
}

/// Offset at a moment, with its maximum error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offset {
    /// Far clock minus near clock, in ns.
    pub offset_ns: i64,
    /// Maximum error in ns.
    pub error_ns: u64,
}

/// Line through estimates, relative to the last of them.
struct Fit {
    /// Offset at the last estimate, relative to its offset, in ns.
    at_last: f64,
    /// Increase of the offset per ns.
    slope: f64,
    /// Largest distance of an estimate from the line, in ns.
    residual: f64,
    /// Time from the first to the last estimate in ns.
    span: f64,
}

impl ClockLine {
    /// Adds an estimate made of this number of exchanges. Estimates come in order of time; an older one is ignored.
    pub fn add(&mut self, estimate: Estimate, exchanges: usize) {
        if self
            .recent
            .back()
            .is_some_and(|last| estimate.at_ns <= last.at_ns)
        {
            return;
        }
        self.exchanges += exchanges as u64;
        self.first.get_or_insert(estimate);
        if self.recent.len() == ESTIMATES {
            self.recent.pop_front();
        }
        self.recent.push_back(estimate);
        if let Some(offset) = self.offset_at(estimate.at_ns) {
            self.worst_ns = self.worst_ns.max(offset.error_ns);
        }
    }

    /// Latest estimate.
    #[must_use]
    pub fn last(&self) -> Option<&Estimate> {
        self.recent.back()
    }

    /// First estimate.
    #[must_use]
    pub const fn first(&self) -> Option<&Estimate> {
        self.first.as_ref()
    }

    /// Number of exchanges so far.
    #[must_use]
    pub const fn exchanges(&self) -> u64 {
        self.exchanges
    }

    /// Largest error of any moment so far, in ns.
    #[must_use]
    pub const fn worst_error_ns(&self) -> u64 {
        self.worst_ns
    }

    /// Drift of the far clock against the near clock in parts per billion; 0 while no line is known.
    #[must_use]
    pub fn drift_ppb(&self) -> i64 {
        self.fit().map_or(0, |fit| (fit.slope * 1e9).round() as i64)
    }

    /// Offset at a time of the near clock, in ns since 1970, not before the oldest of the recent estimates. `None`
    /// without an estimate. The true offset is within the error if the drift is constant, and at most 100 ppm while
    /// there are fewer than five estimates.
    #[must_use]
    pub fn offset_at(&self, at_ns: u64) -> Option<Offset> {
        let last = self.recent.back()?;
        let after = signed(at_ns, last.at_ns);
        let Some(fit) = self.fit() else {
            let error = last.bound_ns as f64 + after.abs() * MAX_DRIFT_PPB / 1e9;
            return Some(Offset {
                offset_ns: last.offset_ns,
                error_ns: (error + ROUNDING_NS).ceil() as u64,
            });
        };
        let bound = self.recent.iter().map(|e| e.bound_ns).max().unwrap_or(0) as f64;
        // At each estimate the line is wrong by at most bound + residual. Outside of the estimates, the error of a line
        // grows by at most twice that per span.
        let beyond = after.max(-(fit.span + after)).max(0.0);
        let growth = 1.0 + 2.0 * beyond / fit.span;
        let offset = last.offset_ns as f64 + fit.at_last + fit.slope * after;
        Some(Offset {
            offset_ns: offset.round() as i64,
            error_ns: ((bound + fit.residual) * growth + ROUNDING_NS).ceil() as u64,
        })
    }

    /// Least-squares line; `None` with fewer than five estimates.
    fn fit(&self) -> Option<Fit> {
        let (first, last) = (self.recent.front()?, self.recent.back()?);
        if self.recent.len() < FEWEST {
            return None;
        }
        let point = |e: &Estimate| {
            let offset = i128::from(e.offset_ns) - i128::from(last.offset_ns);
            (signed(e.at_ns, last.at_ns), offset as f64)
        };
        let count = self.recent.len() as f64;
        let (mut mean_x, mut mean_y) = (0.0, 0.0);
        for (x, y) in self.recent.iter().map(point) {
            mean_x += x / count;
            mean_y += y / count;
        }
        let (mut xy, mut xx) = (0.0, 0.0);
        for (x, y) in self.recent.iter().map(point) {
            xy += (x - mean_x) * (y - mean_y);
            xx += (x - mean_x) * (x - mean_x);
        }
        let slope = xy / xx;
        let at_last = mean_y - slope * mean_x;
        let distance = |(x, y): (f64, f64)| (y - at_last - slope * x).abs();
        Some(Fit {
            at_last,
            slope,
            residual: self
                .recent
                .iter()
                .map(point)
                .map(distance)
                .fold(0.0, f64::max),
            span: signed(last.at_ns, first.at_ns),
        })
    }
}

/// Difference of two times in ns.
fn signed(at_ns: u64, than_ns: u64) -> f64 {
    (i128::from(at_ns) - i128::from(than_ns)) as f64
}

/// Compares the clocks of the hosts of a direction, each by its line against the controller. `None` without estimates.
#[must_use]
pub fn pair_clock(from: (&str, &ClockLine), to: (&str, &ClockLine)) -> Option<PairClock> {
    let (first, last) = (from.1.first()?.to(to.1.first()?), from.1.last()?);
    // Without an exchange, both hosts are known to have the clock of the controller.
    if from.1.exchanges() == 0 && to.1.exchanges() == 0 {
        return Some(PairClock {
            from: from.0.to_owned(),
            to: to.0.to_owned(),
            method: "same".to_owned(),
            ..PairClock::default()
        });
    }
    let at_ns = last.at_ns.max(to.1.last()?.at_ns);
    let (near, far) = (from.1.offset_at(at_ns)?, to.1.offset_at(at_ns)?);
    let worst = from
        .1
        .worst_error_ns()
        .saturating_add(to.1.worst_error_ns());
    Some(PairClock {
        from: from.0.to_owned(),
        to: to.0.to_owned(),
        method: "exchange".to_owned(),
        offset_start_ns: first.offset_ns,
        offset_end_ns: far.offset_ns.saturating_sub(near.offset_ns),
        drift_ppb: to.1.drift_ppb().saturating_sub(from.1.drift_ppb()),
        error_ns: worst.max(near.error_ns.saturating_add(far.error_ns)),
        exchanges: from.1.exchanges().saturating_add(to.1.exchanges()),
    })
}
