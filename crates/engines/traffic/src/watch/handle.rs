//! What a watcher and its readers share.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use wb_measure::{Counters, Summary};
use wb_pktgen_device::{JitterRule, Mode, Row};

use crate::SharedCounters;

/// What a watcher measures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WatchSettings {
    /// What is measured.
    pub mode: Mode,
    /// What jitter is the change of.
    pub rule: JitterRule,
    /// Whether latencies are taken. The original does so only while a device of its own sends.
    pub takes_latency: bool,
    /// Whether sequence numbers and distributions are looked at too; in mode `counter` they never are.
    /// Packets without a number or of those times are only counted, as `untagged_frames`.
    pub sequences: bool,
    /// How often the counters were cleared; a watcher that sees it change clears its own.
    pub clears: u64,
}

/// What the original does not have.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Extra {
    /// Loss (`missing_frames`), duplicates, reordering by sequence number.
    pub counters: Counters,
    /// Whether that account means anything: no clones or bursts were seen. False also while the last
    /// packet is a repetition, for only the next one tells a duplicate from a clone.
    pub sequence_is_plain: bool,
    /// Latencies of packets that carry a time, without their repetitions.
    pub latency_ns: Summary,
    /// Times between packets.
    pub inter_arrival_ns: Summary,
}

/// Steers a running watcher and shows what it saw. The watcher looks at it once per batch, and every
/// 10 ms while nothing comes.
#[derive(Debug, Default)]
pub struct WatchHandle {
    stop: AtomicBool,
    ended: AtomicBool,
    generation: AtomicU64,
    /// The generation whose settings are in force, and whose frames are all shown.
    obeyed: AtomicU64,
    drained: AtomicU64,
    foreign: AtomicU64,
    /// When the run began, by the wall clock.
    since_wall_ns: AtomicU64,
    settings: Mutex<WatchSettings>,
    shown: Mutex<(Row, Extra)>,
    counters: Arc<SharedCounters>,
}

impl WatchHandle {
    /// For a watcher that has not begun.
    #[must_use]
    pub fn new(settings: WatchSettings) -> Self {
        Self {
            settings: Mutex::new(settings),
            ..Self::default()
        }
    }

    /// Makes packets foreign that were sent before this wall time: they are of an earlier run. Mode `counter` reads no
    /// time.
    pub fn since(&self, wall_ns: u64) {
        self.since_wall_ns.store(wall_ns, Ordering::Relaxed);
    }

    /// Ends the watcher with what arrived until it sees this.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Release);
    }

    /// Changes what is measured, from the next batch on.
    pub fn set(&self, settings: WatchSettings) {
        *lock(&self.settings) = settings;
        // Release: whoever sees the new number finds the settings.
        self.generation.fetch_add(1, Ordering::Release);
    }

    /// The settings given last.
    #[must_use]
    pub fn settings(&self) -> WatchSettings {
        *lock(&self.settings)
    }

    /// What was counted. While packets come it is some milliseconds old at most, and the distributions of
    /// the extra a tenth of a second; when they pause, and once the watcher has ended, it is exact.
    #[must_use]
    pub fn row(&self) -> (Row, Extra) {
        *lock(&self.shown)
    }

    /// Asks for an account of everything that has arrived until now; says what [`WatchHandle::is_settled`]
    /// is to be asked for.
    pub fn ask(&self) -> u64 {
        self.generation.fetch_add(1, Ordering::Release) + 1
    }

    /// Whether what was set before that question is in force, and, with `drained`, everything shown that
    /// had arrived by then. While packets come without a pause that never is.
    #[must_use]
    pub fn is_settled(&self, question: u64, drained: bool) -> bool {
        let reached = if drained { &self.drained } else { &self.obeyed };
        self.ended() || reached.load(Ordering::Acquire) >= question
    }

    /// Frames that do not count, since the watcher began.
    #[must_use]
    pub fn foreign(&self) -> u64 {
        self.foreign.load(Ordering::Relaxed)
    }

    /// Whether the watcher has ended.
    #[must_use]
    pub fn ended(&self) -> bool {
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

    pub(super) fn obey(&self, generation: u64) {
        self.obeyed.store(generation, Ordering::Release);
    }

    pub(super) fn drain(&self, generation: u64) {
        self.drained.store(generation, Ordering::Release);
    }

    /// Shows what was counted. Unless `lasting`, not if somebody is just looking; says whether it did.
    pub(super) fn show(&self, row: &Row, extra: &Extra, foreign: u64, lasting: bool) -> bool {
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

    pub(super) fn end(&self) {
        self.ended.store(true, Ordering::Release);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
