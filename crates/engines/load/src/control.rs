//! Signals from the engine to running workers.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use wb_model::load::LoadRate;

/// Represents `None` in a rate.
const ABSENT: u64 = u64::MAX;

/// Signals from the engine to the workers of one load job.
///
/// The engine sets `start_at_mono_ns` once all workers are ready, and `stop` when they must drain (servers: when the
/// clients have ended).
#[derive(Debug)]
pub struct LoadControl {
    /// Start of the run, monotonic. `u64::MAX` means not known yet; servers and neighbour requests are served before
    /// the start too.
    pub start_at_mono_ns: AtomicU64,
    /// No more connections are opened; the drain begins.
    pub stop: AtomicBool,
    /// Servers: their clients were stopped, which ends the duration at both ends.
    pub clients_stop: AtomicBool,
    /// Skip the drain and end at once.
    pub hurry: AtomicBool,
    /// Number of workers without remaining connections.
    at_rest: AtomicU32,
    /// Version of `rate`; 0 means as planned.
    version: AtomicU64,
    rate: [AtomicU64; 5],
}

impl LoadControl {
    /// Initial state: nothing started or stopped, the rate as planned.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            start_at_mono_ns: AtomicU64::new(u64::MAX),
            stop: AtomicBool::new(false),
            clients_stop: AtomicBool::new(false),
            hurry: AtomicBool::new(false),
            at_rest: AtomicU32::new(0),
            version: AtomicU64::new(0),
            rate: [const { AtomicU64::new(ABSENT) }; 5],
        }
    }

    /// Sets another total rate for all workers. `group` stays as planned. Held connections beyond a lower `cc` are
    /// closed. Without rps, pps and bps, requests follow the interval again.
    pub fn set_rate(&self, rate: &LoadRate) {
        let values = [rate.cps, rate.cc, rate.rps, rate.pps, rate.bps];
        for (slot, value) in self.rate.iter().zip(values) {
            slot.store(value.unwrap_or(ABSENT), Ordering::Relaxed);
        }
        // Release pairs with the Acquire in `changed_rate`. A worker that reads a mixture of two rates sees a newer
        // version afterwards and reads again.
        self.version.fetch_add(1, Ordering::Release);
    }

    /// Records that a worker has no connections left. Each worker calls it once.
    pub(crate) fn count_idle_worker(&self) {
        self.at_rest.fetch_add(1, Ordering::AcqRel);
    }

    /// Returns true if this number of workers have no connections left.
    pub(crate) fn are_idle(&self, workers: u32) -> bool {
        self.at_rest.load(Ordering::Acquire) >= workers
    }

    /// The rate, if it is newer than `seen`, which is updated.
    #[inline]
    pub(crate) fn changed_rate(&self, seen: &mut u64) -> Option<LoadRate> {
        let version = self.version.load(Ordering::Acquire);
        if version == *seen {
            return None;
        }
        *seen = version;
        let [cps, cc, rps, pps, bps] = [0, 1, 2, 3, 4]
            .map(|i: usize| Some(self.rate[i].load(Ordering::Relaxed)).filter(|n| *n != ABSENT));
        Some(LoadRate {
            cps,
            cc,
            rps,
            pps,
            bps,
            group: 0,
        })
    }
}

impl Default for LoadControl {
    fn default() -> Self {
        Self::new()
    }
}
