//! Published state of a running worker: written once per tick by the worker, read by any thread.

use std::sync::{Mutex, PoisonError, TryLockError};

use crossbeam_utils::CachePadded;
use wb_measure::{ShownOutline, Summary};
use wb_model::http::HttpTotals;
use wb_model::load::LoadStage;
use wb_port::{RxCounters, TxCounters};
use wb_tcp::Counters;

use crate::launch_schedule::LaunchCounters;
use crate::neighbour_responder::ResponderCounters;

/// Times of one kind so far, in ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LiveTimes {
    /// Number of samples.
    pub count: u64,
    /// Sum of the samples.
    pub sum: u128,
}

impl LiveTimes {
    #[inline]
    pub(crate) fn record(&mut self, ns: u64) {
        self.count += 1;
        self.sum += u128::from(ns);
    }

    fn merge(&mut self, other: &Self) {
        self.count += other.count;
        self.sum += other.sum;
    }

    /// Mean of the samples since an earlier time, in ns; `None` if there are none.
    #[must_use]
    #[allow(clippy::cast_precision_loss)]
    pub fn mean_since(&self, earlier: &Self) -> Option<f64> {
        let samples = self.count.saturating_sub(earlier.count);
        let sum = self.sum.saturating_sub(earlier.sum);
        (samples > 0).then(|| sum as f64 / samples as f64)
    }

    /// Number and mean of the samples.
    #[must_use]
    pub fn summary(&self) -> Summary {
        Summary {
            samples: self.count,
            mean: self.mean_since(&Self::default()),
            ..Summary::default()
        }
    }
}

/// State of one worker, or sum over workers, at an instant. All numbers of one worker are of the same instant, so
/// invariants between them hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoadSnapshot {
    /// Earliest phase of any worker.
    pub phase: LoadStage,
    /// Latest time since the start, in ns.
    pub at_ns: u64,
    /// Counters of the machine.
    pub counters: Counters,
    /// ARP, ICMP and the like.
    pub responder: ResponderCounters,
    /// Launches.
    pub launch: LaunchCounters,
    /// Rate-controlled requests.
    pub asks: LaunchCounters,
    /// Counters of the transmit half of the queue pair.
    pub tx: TxCounters,
    /// Counters of the receive half.
    pub rx: RxCounters,
    /// Current share of the rate, in millionths; the mean over workers.
    pub share: u64,
    /// From SYN to SYN-ACK.
    pub connect: LiveTimes,
    /// From request to first byte.
    pub first_byte: LiveTimes,
    /// From request to last byte.
    pub request: LiveTimes,
    /// Requests and connections of an HTTP job so far. `request` then starts at their due time.
    pub http: HttpTotals,
    /// Time in busy turns, in ns.
    pub busy_ns: u64,
    /// Longest time between two turns, in ns.
    pub longest_turn_ns: u64,
}

impl LoadSnapshot {
    /// Sum over workers.
    #[must_use]
    pub fn sum<'a>(workers: impl IntoIterator<Item = &'a Self>) -> Self {
        let mut sum = Self::default();
        let mut n = 0;
        for worker in workers {
            sum.phase = if n == 0 {
                worker.phase
            } else {
                sum.phase.min(worker.phase)
            };
            n += 1;
            sum.at_ns = sum.at_ns.max(worker.at_ns);
            sum.counters.merge(&worker.counters);
            sum.responder += worker.responder;
            sum.launch += worker.launch;
            sum.asks += worker.asks;
            sum.tx += worker.tx;
            add_rx(&mut sum.rx, &worker.rx);
            sum.share += worker.share;
            sum.connect.merge(&worker.connect);
            sum.first_byte.merge(&worker.first_byte);
            sum.request.merge(&worker.request);
            sum.http += worker.http;
            sum.busy_ns += worker.busy_ns;
            sum.longest_turn_ns = sum.longest_turn_ns.max(worker.longest_turn_ns);
        }
        sum.share /= n.max(1);
        sum
    }
}

pub(crate) fn add_rx(sum: &mut RxCounters, other: &RxCounters) {
    sum.received_frames += other.received_frames;
    sum.dropped_frames += other.dropped_frames;
    sum.passed_frames = match (sum.passed_frames, other.passed_frames) {
        (Some(a), Some(b)) => Some(a + b),
        (a, b) => a.or(b),
    };
    sum.freezes += other.freezes;
}

/// Published state of one worker, on separate cache lines.
///
/// It contains a lock, but the worker never waits for it: it tries once per tick, and publishes a turn later if a
/// reader holds the lock. Therefore all numbers read belong together.
#[derive(Debug, Default)]
pub struct LoadSlot {
    snapshot: CachePadded<Mutex<LoadSnapshot>>,
    /// Times from SYN to SYN-ACK so far, published on request.
    pub connect: ShownOutline,
    /// Times as in [`LoadSnapshot::request`] so far, published on request. For an HTTP job without the warm-up.
    pub request: ShownOutline,
}

impl LoadSlot {
    /// Publishes a snapshot unless a reader holds the lock. Returns true if published.
    pub(crate) fn try_publish(&self, snapshot: &LoadSnapshot) -> bool {
        let mut place = match self.snapshot.try_lock() {
            Ok(place) => place,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return false,
        };
        *place = *snapshot;
        true
    }

    /// Last published snapshot.
    #[must_use]
    pub fn read(&self) -> LoadSnapshot {
        *self.snapshot.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_shown_last_is_read_as_often_as_asked() {
        let slot = LoadSlot::default();
        let mut snapshot = LoadSnapshot::default();
        for ns in [900, 20] {
            snapshot.request.record(ns);
            assert!(slot.try_publish(&snapshot));
        }
        assert_eq!(slot.read().request, LiveTimes { count: 2, sum: 920 });
        assert_eq!(slot.read(), snapshot);
    }

    #[test]
    fn workers_are_added_up() {
        let one = LoadSnapshot {
            phase: LoadStage::Steady,
            share: 500_000,
            ..LoadSnapshot::default()
        };
        let two = LoadSnapshot {
            phase: LoadStage::Ramp,
            share: 1_000_000,
            ..LoadSnapshot::default()
        };
        let sum = LoadSnapshot::sum([&one, &two]);
        assert_eq!((sum.phase, sum.share), (LoadStage::Ramp, 750_000));
    }
}
