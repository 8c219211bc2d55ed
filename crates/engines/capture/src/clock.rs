//! Time for the engine.

/// The two clocks of a capture. It only reads them; frames come with stamps of their own.
pub trait Clock {
    /// `CLOCK_MONOTONIC` in nanoseconds: when a buffer is old, how long a write took.
    fn monotonic_ns(&self) -> u64;

    /// `CLOCK_REALTIME` in nanoseconds: the stamps of statistics in a file.
    fn wall_ns(&self) -> u64;
}

impl<C: Clock> Clock for &C {
    fn monotonic_ns(&self) -> u64 {
        (**self).monotonic_ns()
    }

    fn wall_ns(&self) -> u64 {
        (**self).wall_ns()
    }
}
