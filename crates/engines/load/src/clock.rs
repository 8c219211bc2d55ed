//! Time for the engine.

/// The clock of a worker.
pub trait Clock {
    /// `CLOCK_MONOTONIC` in nanoseconds: paces, and times connections.
    fn monotonic_ns(&self) -> u64;
}

impl<C: Clock> Clock for &C {
    fn monotonic_ns(&self) -> u64 {
        (**self).monotonic_ns()
    }
}

/// A clock that a test turns.
impl Clock for wb_port::clock::VirtualClock {
    fn monotonic_ns(&self) -> u64 {
        self.now_ns()
    }
}
