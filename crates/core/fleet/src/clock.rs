//! Clocks of hosts against each other, from exchanges of four stamps.
//!
//! An exchange gives the offset within half of its round trip, whatever the two directions take. The exchange with the
//! shortest round trip of a group of [`EXCHANGES`] gives one [`Estimate`], and a line through the last
//! [`ESTIMATES`] estimates gives the offset at any time, the drift, and the maximum error ([`ClockLine`]).
//!
//! The host that receives a direction compares its clock with the host that sends it ([`SenderLine`]). If they cannot
//! reach each other, both are compared with the clock of the controller over the broker ([`pair_clock`]).

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};
use wb_model::peer::PairClock;

use crate::{MS, SECOND};

/// Number of exchanges for one estimate.
pub const EXCHANGES: usize = 32;
/// Number of estimates of a line.
pub const ESTIMATES: usize = 30;
/// Longest time between two estimates, in ns.
pub const ESTIMATE_NS: u64 = SECOND;
/// Shortest time between two estimates, in ns.
const SHORTEST_NS: u64 = 20 * MS;
/// Time for which a pair of clocks is used after it was computed by the controller: until the next lease arrives.
const PAIR_NS: u64 = SECOND;
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
    }

    /// Time from the last estimate to the next one, in ns: a fraction of the time that the estimates cover, so that the
    /// error grows little until then.
    #[must_use]
    pub fn wait_ns(&self) -> u64 {
        let (first, last) = (self.recent.front(), self.recent.back());
        let span = first
            .zip(last)
            .map_or(0, |(first, last)| last.at_ns.saturating_sub(first.at_ns));
        (span / 8).clamp(SHORTEST_NS, ESTIMATE_NS)
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

    /// Drift of the far clock against the near clock in parts per billion; 0 while no line is known.
    #[must_use]
    pub fn drift_ppb(&self) -> i64 {
        self.fit().map_or(0, |fit| (fit.slope * 1e9).round() as i64)
    }

    /// Offset at a time of the near clock, in ns since 1970, not before the oldest of the recent estimates. `None`
    /// without an estimate. The true offset is within the error if the drift is constant and at most 100 ppm.
    #[must_use]
    pub fn offset_at(&self, at_ns: u64) -> Option<Offset> {
        let last = self.recent.back()?;
        let after = signed(at_ns, last.at_ns);
        let error = last.bound_ns as f64 + after.abs() * MAX_DRIFT_PPB / 1e9;
        let by_last = Offset {
            offset_ns: last.offset_ns,
            error_ns: (error + ROUNDING_NS).ceil() as u64,
        };
        let Some(fit) = self.fit() else {
            return Some(by_last);
        };
        let bound = self.recent.iter().map(|e| e.bound_ns).max().unwrap_or(0) as f64;
        // At each estimate the line is wrong by at most bound + residual. Outside of the estimates, the error of a line
        // grows by at most twice that per span.
        let beyond = after.max(-(fit.span + after)).max(0.0);
        let growth = 1.0 + 2.0 * beyond / fit.span;
        let offset = last.offset_ns as f64 + fit.at_last + fit.slope * after;
        let by_line = Offset {
            offset_ns: offset.round() as i64,
            error_ns: ((bound + fit.residual) * growth + ROUNDING_NS).ceil() as u64,
        };
        Some(match by_line.error_ns <= by_last.error_ns {
            true => by_line,
            false => by_last,
        })
    }

    /// Offset that is used from a time of the near clock on for `valid_ns`, in which the error holds.
    #[must_use]
    pub fn offset_for(&self, at_ns: u64, valid_ns: u64) -> Option<Offset> {
        let begin = self.offset_at(at_ns)?;
        let end = self.offset_at(at_ns.saturating_add(valid_ns))?;
        let change = end.offset_ns.saturating_sub(begin.offset_ns);
        Some(Offset {
            offset_ns: begin.offset_ns.saturating_add(change / 2),
            error_ns: begin
                .error_ns
                .max(end.error_ns)
                .saturating_add(change.unsigned_abs().div_ceil(2)),
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

/// Clock of a sending host against the clock of a receiving host, from exchanges between the two.
#[derive(Clone, Debug, Default)]
pub struct SenderLine {
    from: String,
    to: String,
    line: ClockLine,
    /// Offset that is used since the last call of [`SenderLine::pair`], in ns.
    used_ns: Option<i64>,
}

impl SenderLine {
    /// Creates the line of the sender `from` at the receiver `to`.
    #[must_use]
    pub fn new(from: impl Into<String>, to: impl Into<String>) -> Self {
        Self {
            from: from.into(),
            to: to.into(),
            line: ClockLine::default(),
            used_ns: None,
        }
    }

    /// Adds the exchanges of one estimate. Returns false if none of them is valid.
    pub fn add(&mut self, exchanges: &[Exchange]) -> bool {
        let estimate = Estimate::best(exchanges);
        if let Some(estimate) = estimate {
            self.line.add(estimate, exchanges.len());
        }
        estimate.is_some()
    }

    /// Time from the last estimate to the next one, in ns.
    #[must_use]
    pub fn wait_ns(&self) -> u64 {
        self.line.wait_ns()
    }

    /// Clocks of both hosts at `at_ns` of the receiver's clock, for the time until the next call, in about `next_ns`. The
    /// error also holds for the time since the last call, however long that is ago. `None` without an estimate.
    pub fn pair(&mut self, at_ns: u64, next_ns: u64) -> Option<PairClock> {
        let now = self.line.offset_at(at_ns)?;
        let until_now = self.used_ns.map_or(0, |used| {
            let change = now.offset_ns.saturating_sub(used);
            now.error_ns.saturating_add(change.unsigned_abs())
        });
        let next = self.line.offset_for(at_ns, next_ns)?;
        self.used_ns = Some(next.offset_ns);
        Some(PairClock {
            from: self.from.clone(),
            to: self.to.clone(),
            method: "udp".to_owned(),
            // The line has the sender's clock minus the receiver's clock.
            offset_start_ns: self.line.first()?.offset_ns.saturating_neg(),
            offset_end_ns: next.offset_ns.saturating_neg(),
            drift_ppb: self.line.drift_ppb().saturating_neg(),
            error_ns: next.error_ns.max(until_now),
            exchanges: self.line.exchanges(),
            ..PairClock::default()
        })
    }
}

/// Two hosts with one clock.
#[must_use]
pub fn same_clock(from: &str, to: &str) -> PairClock {
    PairClock {
        from: from.to_owned(),
        to: to.to_owned(),
        method: "same".to_owned(),
        ..PairClock::default()
    }
}

/// Compares the clocks of the hosts of a direction, each by its line against the controller, for the time after `at_ns`
/// of the controller's clock. `None` without estimates.
#[must_use]
pub fn pair_clock(
    from: (&str, &ClockLine),
    to: (&str, &ClockLine),
    at_ns: u64,
) -> Option<PairClock> {
    let first = from.1.first()?.to(to.1.first()?);
    // Without an exchange, both hosts are known to have the clock of the controller.
    if from.1.exchanges() == 0 && to.1.exchanges() == 0 {
        return Some(same_clock(from.0, to.0));
    }
    let (near, far) = (
        from.1.offset_for(at_ns, PAIR_NS)?,
        to.1.offset_for(at_ns, PAIR_NS)?,
    );
    Some(PairClock {
        from: from.0.to_owned(),
        to: to.0.to_owned(),
        method: "broker".to_owned(),
        offset_start_ns: first.offset_ns,
        offset_end_ns: far.offset_ns.saturating_sub(near.offset_ns),
        drift_ppb: to.1.drift_ppb().saturating_sub(from.1.drift_ppb()),
        error_ns: near.error_ns.saturating_add(far.error_ns),
        exchanges: from.1.exchanges().saturating_add(to.1.exchanges()),
        ..PairClock::default()
    })
}
