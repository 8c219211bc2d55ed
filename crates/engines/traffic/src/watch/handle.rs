//! State shared by a watcher and its readers.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use wb_measure::{Counters, Summary};
use wb_pktgen_device::{CpuStatistics, JitterRule, Mode};

use crate::SharedCounters;

/// Settings of a watcher.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WatchSettings {
    /// Measurement mode.
    pub mode: Mode,
    /// Definition of jitter.
    pub rule: JitterRule,
    /// Measure latencies. The original module does so only while one of its devices sends.
    pub takes_latency: bool,
    /// Evaluate sequence numbers and distributions too; never done in mode `counter`. Packets without a number, and
    /// those received without this setting, are only counted as `untagged_frames`.
    pub sequences: bool,
    /// Number of times the counters were cleared; a watcher clears its counters when this changes.
    pub clears: u64,
}

/// Results that the original module does not provide.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct WatchExtras {
    /// Loss (`missing_frames`), duplicates and reordering by sequence number.
    pub counters: Counters,
    /// True if these counters are meaningful: no clones or bursts were seen. Also false while the last packet is a
    /// repetition, because only the next one separates a duplicate from a clone.
    pub sequence_is_plain: bool,
    /// Latencies of packets that carry a time, without repetitions.
    pub latency_ns: Summary,
    /// Times between packets.
    pub inter_arrival_ns: Summary,
}

/// Controls a running watcher and shows its results. The watcher checks it once per batch, and every 10 ms while
/// nothing arrives.
#[derive(Debug, Default)]
pub struct WatchHandle {
    stop: AtomicBool,
    ended: AtomicBool,
    generation: AtomicU64,
    /// The generation of the settings in force, and the one with all frames published.
    obeyed: AtomicU64,
    drained: AtomicU64,
    foreign: AtomicU64,
    /// Start of the run, wall clock.
    since_wall_ns: AtomicU64,
    settings: Mutex<WatchSettings>,
    shown: Mutex<(CpuStatistics, WatchExtras)>,
    counters: Arc<SharedCounters>,
}

impl WatchHandle {
    /// Creates a handle for a watcher that has not begun.
    #[must_use]
    pub fn new(settings: WatchSettings) -> Self {
        Self {
            settings: Mutex::new(settings),
            ..Self::default()
        }
    }

    /// Makes packets sent before this wall time foreign, because they belong to an earlier run. Mode `counter` reads no
    /// time.
    pub fn ignore_before(&self, wall_ns: u64) {
        self.since_wall_ns.store(wall_ns, Ordering::Relaxed);
    }

    /// Ends the watcher. Frames that arrived until it sees this still count.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Release);
    }

    /// Changes the settings from the next batch on.
    pub fn set(&self, settings: WatchSettings) {
        *lock(&self.settings) = settings;
        // Release: a thread that sees the new number also sees the settings.
        self.generation.fetch_add(1, Ordering::Release);
    }

    /// The last settings given.
    #[must_use]
    pub fn settings(&self) -> WatchSettings {
        *lock(&self.settings)
    }

    /// Results so far. While packets arrive they are at most some milliseconds old, and the distributions of `WatchExtras` a
    /// tenth of a second. During pauses and after the end they are exact.
    #[must_use]
    pub fn results(&self) -> (CpuStatistics, WatchExtras) {
        *lock(&self.shown)
    }

    /// Requests results that include everything that has arrived until now. Returns the number to pass to
    /// [`WatchHandle::is_settled`].
    pub fn request_results(&self) -> u64 {
        self.generation.fetch_add(1, Ordering::Release) + 1
    }

    /// Returns true if settings made before that request are in force. With `drained`, also requires that everything
    /// that had arrived by then is published; this never happens while packets arrive without a pause.
    #[must_use]
    pub fn is_settled(&self, question: u64, drained: bool) -> bool {
        let reached = if drained { &self.drained } else { &self.obeyed };
        self.has_ended() || reached.load(Ordering::Acquire) >= question
    }

    /// Foreign frames since the watcher began.
    #[must_use]
    pub fn foreign_frames(&self) -> u64 {
        self.foreign.load(Ordering::Relaxed)
    }

    /// Returns true if the watcher has ended.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// The watcher's counters, for snapshots. They are never cleared.
    #[must_use]
    pub fn counters(&self) -> &Arc<SharedCounters> {
        &self.counters
    }

    #[inline]
    pub(super) fn since_wall_ns(&self) -> u64 {
        self.since_wall_ns.load(Ordering::Relaxed)
    }

    #[inline]
    pub(super) fn wants_stop(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    #[inline]
    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    pub(super) fn mark_obeyed(&self, generation: u64) {
        self.obeyed.store(generation, Ordering::Release);
    }

    pub(super) fn mark_drained(&self, generation: u64) {
        self.drained.store(generation, Ordering::Release);
    }

    /// Publishes results. Unless `lasting`, skips this if a reader holds the lock. Returns true if published.
    pub(super) fn publish(
        &self,
        row: &CpuStatistics,
        extra: &WatchExtras,
        foreign: u64,
        lasting: bool,
    ) -> bool {
        self.foreign.store(foreign, Ordering::Relaxed);
        let mut shown = if lasting {
            lock(&self.shown)
        } else {
            match self.shown.try_lock() {
                Ok(shown) => shown,
                Err(_) => return false,
            }
        };
        *shown = (*row, *extra);
        true
    }

    pub(super) fn mark_ended(&self) {
        self.ended.store(true, Ordering::Release);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
