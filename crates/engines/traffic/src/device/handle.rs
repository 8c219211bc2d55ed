//! What a device and its watchers share.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use wb_model::device::DeviceConfig;
use wb_pktgen_device::{Progress, Walker};
use wb_port::offload::Halt;

use crate::SharedCounters;

/// How a device ended, known before the others of its run have.
#[derive(Clone, Debug)]
pub struct DeviceEnd {
    /// The walk at its end.
    pub walker: Walker,
    /// CLOCK_MONOTONIC of the end.
    pub stopped_ns: u64,
    /// Time in which nothing was due or the port was full.
    pub idle_ns: u64,
    /// What ended it before its time, in words.
    pub fault: Option<String>,
}

/// Steers a running device and shows where it stands. The device looks at it once per turn, without
/// waiting for anybody; a turn is at most some 10 ms away.
#[derive(Debug, Default)]
pub struct DeviceHandle {
    stop: AtomicBool,
    ended: AtomicBool,
    generation: AtomicU64,
    wanted: Mutex<Option<DeviceConfig>>,
    refusal: Mutex<Option<String>>,
    progress: Mutex<Progress>,
    end: Mutex<Option<DeviceEnd>>,
    counters: Arc<SharedCounters>,
    halt: Brake,
    gate: Gate,
}

/// Says why settings may not be taken over.
type Judge = dyn Fn(&DeviceConfig) -> Result<(), String> + Send + Sync;

/// Who judges settings that come while the device runs; nobody: all are taken.
#[derive(Default)]
struct Gate(Option<Box<Judge>>);

/// Ends a turn of the port that sends by itself.
#[derive(Default)]
struct Brake(Mutex<Option<Arc<dyn Halt>>>);

impl std::fmt::Debug for Brake {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Brake")
    }
}

impl std::fmt::Debug for Gate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.is_some() { "Gate" } else { "open" })
    }
}

impl DeviceHandle {
    /// For a device that has not begun.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// For a device whose later settings are judged first; those that are refused are not taken over.
    #[must_use]
    pub fn guarded(
        judge: impl Fn(&DeviceConfig) -> Result<(), String> + Send + Sync + 'static,
    ) -> Self {
        Self {
            gate: Gate(Some(Box::new(judge))),
            ..Self::default()
        }
    }

    /// Lets the device send nothing more and end soon.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        if let Some(halt) = &*lock(&self.halt.0) {
            halt.halt();
        }
    }

    /// What ends a turn of the device in the middle.
    pub(super) fn stop_by(&self, halt: &Arc<dyn Halt>) {
        let mut brake = lock(&self.halt.0);
        if self.wants_stop() {
            halt.halt();
        }
        *brake = Some(Arc::clone(halt));
    }

    /// Gives the device other settings, from its next packet on. A later call overrides an earlier one
    /// that the device has not seen yet.
    pub fn reconfigure(&self, config: DeviceConfig) {
        if let Some(Err(why)) = self.gate.0.as_ref().map(|judge| judge(&config)) {
            return self.refuse(Some(why));
        }
        *lock(&self.wanted) = Some(config);
        // Release: whoever sees the new number finds the settings.
        self.generation.fetch_add(1, Ordering::Release);
    }

    /// Why the settings given last were not taken over, once.
    pub fn take_refusal(&self) -> Option<String> {
        lock(&self.refusal).take()
    }

    /// Where the device stands, not older than some milliseconds while it sends, and exact once it has
    /// ended. While it runs, frames in flight count as sent.
    #[must_use]
    pub fn progress(&self) -> Progress {
        lock(&self.progress).clone()
    }

    /// Whether the device has ended.
    #[must_use]
    pub fn ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// How the device ended; `None` while it runs, and from the second call on.
    pub fn take_end(&self) -> Option<DeviceEnd> {
        lock(&self.end).take()
    }

    /// The device's counters, for snapshots.
    #[must_use]
    pub fn counters(&self) -> &Arc<SharedCounters> {
        &self.counters
    }

    #[inline]
    pub(super) fn wants_stop(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    #[inline]
    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    pub(super) fn take_wanted(&self) -> Option<DeviceConfig> {
        lock(&self.wanted).take()
    }

    pub(super) fn refuse(&self, why: Option<String>) {
        *lock(&self.refusal) = why;
    }

    /// Shows the progress, unless somebody is just looking.
    pub(super) fn try_show(&self, progress: &Progress) {
        if let Ok(mut shown) = self.progress.try_lock() {
            shown.clone_from(progress);
        }
    }

    pub(super) fn show(&self, progress: &Progress) {
        lock(&self.progress).clone_from(progress);
    }

    pub(super) fn show_end(&self, end: DeviceEnd) {
        *lock(&self.end) = Some(end);
    }

    pub(super) fn end(&self) {
        self.ended.store(true, Ordering::Release);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
