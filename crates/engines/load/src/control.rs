//! What the session tells running workers.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use wb_model::load::LoadRate;

/// Stands for `None` in a rate.
const ABSENT: u64 = u64::MAX;

/// The signals from the session to the workers of one load job.
///
/// The session sets `start_at_mono_ns` once all workers are there, and `stop` when they are to
/// drain (servers: when the clients have ended).
#[derive(Debug)]
pub struct LoadControl {
    /// When the run begins, monotonic. `u64::MAX`: not known yet; servers and neighbours are answered
    /// all the same.
    pub start_at_mono_ns: AtomicU64,
    /// Nothing more is opened; the drain begins.
    pub stop: AtomicBool,
    /// Servers: their clients were told to stop, and with that the duration of both ends is over.
    pub clients_stop: AtomicBool,
    /// No drain either: end at once.
    pub hurry: AtomicBool,
    /// Workers whose connections have all ended.
    at_rest: AtomicU32,
    /// Of `rate`; 0: as planned.
    version: AtomicU64,
    rate: [AtomicU64; 5],
}

impl LoadControl {
    /// Nothing started, nothing stopped, the rate as planned.
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

    /// Lets the workers go on with another rate, over all of them. `group` stays as planned. Held
    /// connections beyond a lower `cc` are closed; without rps, pps and bps requests follow the
    /// interval again.
    pub fn set_rate(&self, rate: &LoadRate) {
        let values = [rate.cps, rate.cc, rate.rps, rate.pps, rate.bps];
        for (slot, value) in self.rate.iter().zip(values) {
            slot.store(value.unwrap_or(ABSENT), Ordering::Relaxed);
        }
        // Release pairs with the Acquire in `changed_rate`. Whoever reads a mixture of two rates
        // sees a newer version afterwards and reads again.
        self.version.fetch_add(1, Ordering::Release);
    }

    /// A worker has nothing left to do of its own. To be said once by each.
    pub(crate) fn come_to_rest(&self) {
        self.at_rest.fetch_add(1, Ordering::AcqRel);
    }

    /// Whether so many workers have nothing left to do.
    pub(crate) fn are_at_rest(&self, workers: u32) -> bool {
        self.at_rest.load(Ordering::Acquire) >= workers
    }

    /// The rate, if it is newer than `seen`, which is brought up to date.
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
