//! A clock for tests.

use wb_port::clock::{VirtualClock as Stamps, WorkerClock};

/// Clock that a test advances, or that every reading of the monotonic time advances. Clones show the same time.
#[derive(Clone, Debug)]
pub struct VirtualClock {
    wall: Stamps,
    tick_ns: u64,
}

impl VirtualClock {
    /// Wall time at monotonic 0: in 2023.
    pub const EPOCH_NS: u64 = 1_700_000_000_000_000_000;

    /// Clock at monotonic 0 that advances by `tick_ns` with every reading.
    #[must_use]
    pub fn ticking(tick_ns: u64) -> Self {
        Self {
            wall: Stamps::new(Self::EPOCH_NS),
            tick_ns,
        }
    }

    /// This clock in the form of a memory port.
    #[must_use]
    pub fn stamps(&self) -> wb_port::clock::Clock {
        self.wall.clone().into()
    }

    /// Advances the clock.
    pub fn advance(&self, by_ns: u64) {
        self.wall.advance(by_ns);
    }
}

impl WorkerClock for VirtualClock {
    #[inline]
    fn monotonic_ns(&self) -> u64 {
        self.wall.advance(self.tick_ns) - Self::EPOCH_NS
    }

    #[inline]
    fn wall_ns(&self) -> u64 {
        self.wall.now_ns()
    }

    fn sleep_until(&self, monotonic_ns: u64) {
        let to = Self::EPOCH_NS + monotonic_ns;
        if self.wall.now_ns() < to {
            self.wall.set(to);
        }
    }
}
