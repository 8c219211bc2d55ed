//! Where the drivers of this crate take the time from: a function of the caller or a clock that a
//! test turns. They read no clock by themselves.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::StampSource;

/// A clock handed to a driver. All readings are wall nanoseconds (`CLOCK_REALTIME`).
#[derive(Clone, Debug)]
pub enum Clock {
    /// Real time, read with this function.
    Real(fn() -> u64),
    /// Time that the test turns.
    Virtual(VirtualClock),
}

impl Clock {
    /// The time.
    #[inline]
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        match self {
            Self::Real(read) => read(),
            Self::Virtual(clock) => clock.now_ns(),
        }
    }

    /// What stamps of this clock are called.
    #[must_use]
    pub fn stamp_source(&self) -> StampSource {
        match self {
            Self::Real(_) => StampSource::UserSpace,
            Self::Virtual(_) => StampSource::Virtual,
        }
    }

    /// Whether waiting makes time pass.
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

/// A clock that stands still until it is turned. Clones show the same time.
#[derive(Clone, Debug, Default)]
pub struct VirtualClock(Arc<AtomicU64>);

impl VirtualClock {
    /// A clock that shows `start_ns`.
    #[must_use]
    pub fn new(start_ns: u64) -> Self {
        Self(Arc::new(AtomicU64::new(start_ns)))
    }

    /// The time.
    #[inline]
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        // Acquire pairs with the AcqRel in `advance` and the Release in `set`: who sees the new time sees what was done
        // before it was set.
        self.0.load(Ordering::Acquire)
    }

    /// Turns the clock forward and returns the new time.
    pub fn advance(&self, by_ns: u64) -> u64 {
        self.0.fetch_add(by_ns, Ordering::AcqRel) + by_ns
    }

    /// Sets the clock.
    pub fn set(&self, to_ns: u64) {
        self.0.store(to_ns, Ordering::Release);
    }
}

/// The clocks of a worker.
pub trait WorkerClock {
    /// `CLOCK_MONOTONIC` in nanoseconds: paces, and times what goes on.
    fn monotonic_ns(&self) -> u64;

    /// `CLOCK_REALTIME` in nanoseconds: stamps frames.
    fn wall_ns(&self) -> u64;

    /// Waits until the monotonic clock shows `monotonic_ns`. May return early.
    fn sleep_until(&self, monotonic_ns: u64) {
        while self.monotonic_ns() < monotonic_ns {
            std::thread::yield_now();
        }
    }

    /// Lets others run for a moment: the device is full.
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

/// A clock that a test turns; both clocks show the same.
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
