//! Control signals of a running capture.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use wb_port::Notify;

/// Controls a running capture. Readers check it once per batch and at least every 10 ms, the writer at least every 100
/// ms.
#[derive(Debug, Default)]
pub struct CaptureControl {
    stop: AtomicBool,
    hurry: AtomicBool,
    output_failed: AtomicBool,
    limit_reached: AtomicBool,
    flushes: AtomicU64,
    rotations: AtomicU64,
    readers_due_ns: AtomicU64,
    /// Called when the capture ends without a request: at its limit, or because its output failed.
    pub ended: Notify,
}

impl CaptureControl {
    /// Initial state without requests.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Notes the monotonic time from which on the readers should read. A reader that begins later was late.
    pub fn expect_readers_at(&self, monotonic_ns: u64) {
        self.readers_due_ns.store(monotonic_ns, Ordering::Release);
    }

    /// Returns the time from which on the readers should read, if it was set.
    pub(crate) fn readers_due_ns(&self) -> Option<u64> {
        let due_ns = self.readers_due_ns.load(Ordering::Acquire);
        (due_ns > 0).then_some(due_ns)
    }

    /// Stops the intake, and ends the capture when everything already received was read and written.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Release);
    }

    /// Returns true if the capture was stopped: by the caller, the limit or a failed output.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// Stops without waiting: frames in the rings stay unread, and data that a pipe does not accept at once stays
    /// unwritten. A write to a disk is still waited for.
    pub fn stop_at_once(&self) {
        self.hurry.store(true, Ordering::Release);
        self.stop();
    }

    /// Returns true if [`stop_at_once`](Self::stop_at_once) was called.
    #[must_use]
    pub fn is_hurried(&self) -> bool {
        self.hurry.load(Ordering::Acquire)
    }

    /// Writes all read frames to the file now.
    pub fn request_flush(&self) {
        self.flushes.fetch_add(1, Ordering::Relaxed);
    }

    /// Begins the next file, if the current one has a frame.
    pub fn request_rotation(&self) {
        self.rotations.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns true if the output failed, which stopped the capture.
    #[must_use]
    pub fn output_failed(&self) -> bool {
        self.output_failed.load(Ordering::Acquire)
    }

    /// Returns true if the limit was reached, which stopped the capture.
    #[must_use]
    pub fn limit_reached(&self) -> bool {
        self.limit_reached.load(Ordering::Acquire)
    }

    pub(crate) fn fail_output(&self) {
        self.output_failed.store(true, Ordering::Release);
        self.stop();
        self.ended.call();
    }

    pub(crate) fn reach_limit(&self) {
        self.limit_reached.store(true, Ordering::Release);
        self.stop();
        self.ended.call();
    }

    pub(crate) fn flush_count(&self) -> u64 {
        self.flushes.load(Ordering::Relaxed)
    }

    pub(crate) fn rotation_count(&self) -> u64 {
        self.rotations.load(Ordering::Relaxed)
    }
}
