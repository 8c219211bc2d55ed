//! State shared by a device and its observers.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use wb_model::device::DeviceConfig;
use wb_pktgen_device::{DeviceProgress, Walker};
use wb_port::offload::Halt;

use super::DeviceOutcome;
use crate::SharedCounters;

/// End state of a device, available before the other devices of its run have ended.
#[derive(Clone, Debug)]
pub struct DeviceEnd {
    /// Walk state at the end.
    pub walker: Walker,
    /// CLOCK_MONOTONIC of the end.
    pub stopped_ns: u64,
    /// Time in which nothing was due or the port was full.
    pub idle_ns: u64,
    /// Error that ended it early, as text.
    pub fault: Option<String>,
}

/// Controls a running device and shows its progress. The device checks it once per turn without blocking; a turn takes
/// at most about 10 ms.
#[derive(Debug, Default)]
pub struct DeviceHandle {
    stop: AtomicBool,
    ended: AtomicBool,
    generation: AtomicU64,
    wanted: Mutex<Option<DeviceConfig>>,
    refusal: Mutex<Option<String>>,
    progress: Mutex<DeviceProgress>,
    end: Mutex<Option<DeviceEnd>>,
    outcome: Mutex<Option<DeviceOutcome>>,
    counters: Arc<SharedCounters>,
    halt: TurnInterrupter,
    gate: SettingsGate,
}

/// Returns the reason if settings must be refused.
type SettingsCheck = dyn Fn(&DeviceConfig) -> Result<(), String> + Send + Sync;

/// Optional check of settings that arrive while the device runs.
#[derive(Default)]
struct SettingsGate(Option<Box<SettingsCheck>>);

/// Interrupts a turn of a port that sends autonomously.
#[derive(Default)]
struct TurnInterrupter(Mutex<Option<Arc<dyn Halt>>>);

impl std::fmt::Debug for TurnInterrupter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Brake")
    }
}

impl std::fmt::Debug for SettingsGate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.is_some() { "Gate" } else { "open" })
    }
}

impl DeviceHandle {
    /// Creates a handle for a device that has not begun.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a handle that checks later settings first; refused settings are not applied.
    #[must_use]
    pub fn guarded(
        judge: impl Fn(&DeviceConfig) -> Result<(), String> + Send + Sync + 'static,
    ) -> Self {
        Self {
            gate: SettingsGate(Some(Box::new(judge))),
            ..Self::default()
        }
    }

    /// Stops the device: it sends nothing more and ends soon.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        if let Some(halt) = &*lock(&self.halt.0) {
            halt.halt();
        }
    }

    /// Registers the object that interrupts a running turn.
    pub(super) fn stop_by(&self, halt: &Arc<dyn Halt>) {
        let mut brake = lock(&self.halt.0);
        if self.wants_stop() {
            halt.halt();
        }
        *brake = Some(Arc::clone(halt));
    }

    /// Sets new settings, effective from the next packet. A later call overrides settings that the device has not yet
    /// read.
    pub fn reconfigure(&self, config: DeviceConfig) {
        if let Some(Err(why)) = self.gate.0.as_ref().map(|judge| judge(&config)) {
            return self.record_refusal(Some(why));
        }
        *lock(&self.wanted) = Some(config);
        // Release: a thread that sees the new number also sees the settings.
        self.generation.fetch_add(1, Ordering::Release);
    }

    /// Reason why the last settings were refused; returned once.
    pub fn take_refusal(&self) -> Option<String> {
        lock(&self.refusal).take()
    }

    /// Progress of the device: a few milliseconds old while it sends, exact after its end. While it runs, frames in
    /// flight count as sent.
    #[must_use]
    pub fn progress(&self) -> DeviceProgress {
        lock(&self.progress).clone()
    }

    /// Returns true if the device has ended.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// Takes the end state; `None` while the device runs, and after the first successful call.
    pub fn take_end(&self) -> Option<DeviceEnd> {
        lock(&self.end).take()
    }

    /// Keeps the outcome of the device for its observers.
    pub fn keep_outcome(&self, outcome: DeviceOutcome) {
        *lock(&self.outcome) = Some(outcome);
    }

    /// Takes the outcome after the run; `None` if the worker of the device died, and after the first successful call.
    pub fn take_outcome(&self) -> Option<DeviceOutcome> {
        lock(&self.outcome).take()
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

    pub(super) fn record_refusal(&self, why: Option<String>) {
        *lock(&self.refusal) = why;
    }

    /// Publishes the progress unless a reader holds the lock.
    pub(super) fn try_show(&self, progress: &DeviceProgress) {
        if let Ok(mut shown) = self.progress.try_lock() {
            shown.clone_from(progress);
        }
    }

    pub(super) fn publish(&self, progress: &DeviceProgress) {
        lock(&self.progress).clone_from(progress);
    }

    pub(super) fn show_end(&self, end: DeviceEnd) {
        *lock(&self.end) = Some(end);
    }

    pub(super) fn mark_ended(&self) {
        self.ended.store(true, Ordering::Release);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
