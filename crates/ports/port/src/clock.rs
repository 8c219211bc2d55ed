//! Time sources of the drivers of this crate: a function of the caller, or a virtual clock of a test. The drivers never
//! read a system clock directly.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::StampSource;

/// Time source of a driver. All readings are wall-clock nanoseconds (`CLOCK_REALTIME`).
#[derive(Clone, Debug)]
pub enum Clock {
    /// Real time, read with this function.
    Real(fn() -> u64),
    /// Time that a test controls.
    Virtual(VirtualClock),
}

impl Clock {
    /// Current time in ns.
    #[inline]
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        match self {
            Self::Real(read) => read(),
            Self::Virtual(clock) => clock.now_ns(),
        }
    }

    /// Source that timestamps of this clock report.
    #[must_use]
    pub fn stamp_source(&self) -> StampSource {
        match self {
            Self::Real(_) => StampSource::UserSpace,
            Self::Virtual(_) => StampSource::Virtual,
        }
    }

    /// Returns true if time passes while a caller waits.
    #[must_use]
    pub fn is_real(&self) -> bool {
        matches!(self, Self::Real(_))
    }
}

impl From<VirtualClock> for Clock {
    fn from(clock: VirtualClock) -> Self {
        Self::Virtual(clock)
    }
}

/// Clock that changes only on request. Clones share the time.
#[derive(Clone, Debug, Default)]
pub struct VirtualClock(Arc<AtomicU64>);

impl VirtualClock {
    /// Creates a clock that shows `start_ns`.
    #[must_use]
    pub fn new(start_ns: u64) -> Self {
        Self(Arc::new(AtomicU64::new(start_ns)))
    }

    /// Current time in ns.
    #[inline]
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        // Acquire pairs with the AcqRel in `advance` and the Release in `set`: a reader of the new time also sees
        // everything done before the change.
        self.0.load(Ordering::Acquire)
    }

    /// Advances the clock by `by_ns` and returns the new time.
    pub fn advance(&self, by_ns: u64) -> u64 {
        self.0.fetch_add(by_ns, Ordering::AcqRel) + by_ns
    }

    /// Sets the clock.
    pub fn set(&self, to_ns: u64) {
        self.0.store(to_ns, Ordering::Release);
    }
}

/// Clocks of a worker.
pub trait WorkerClock {
    /// `CLOCK_MONOTONIC` in nanoseconds, for pacing and durations.
    fn monotonic_ns(&self) -> u64;

    /// `CLOCK_REALTIME` in nanoseconds, for timestamps in frames.
    fn wall_ns(&self) -> u64;

    /// Waits until the monotonic clock shows `monotonic_ns`. May return early.
    fn sleep_until(&self, monotonic_ns: u64) {
        while self.monotonic_ns() < monotonic_ns {
            std::thread::yield_now();
        }
    }

    /// Yields the CPU for a moment because the device is full.
    fn pause(&self) {
        std::thread::yield_now();
    }
}

impl<C: WorkerClock> WorkerClock for &C {
    fn monotonic_ns(&self) -> u64 {
        (**self).monotonic_ns()
    }

    fn wall_ns(&self) -> u64 {
        (**self).wall_ns()
    }

    fn sleep_until(&self, monotonic_ns: u64) {
        (**self).sleep_until(monotonic_ns);
    }

    fn pause(&self) {
        (**self).pause();
    }
}

/// Both clocks show the same time.
impl WorkerClock for VirtualClock {
    fn monotonic_ns(&self) -> u64 {
        self.now_ns()
    }

    fn wall_ns(&self) -> u64 {
        self.now_ns()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clones_show_the_same_time() {
        let clock = VirtualClock::new(5);
        let seen = Clock::from(clock.clone());
        assert_eq!(clock.advance(7), 12);
        assert_eq!(seen.now_ns(), 12);
        clock.set(3);
        assert_eq!(seen.now_ns(), 3);
        assert_eq!(seen.stamp_source(), StampSource::Virtual);
        assert_eq!(Clock::Real(|| 9).now_ns(), 9);
    }
}
