//! Scheduling of tests on the machine: tests that count run concurrently, tests that judge times run alone.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Labs at a time. Most of what they do is to wait.
const SIDE_BY_SIDE: usize = 4;

static TURNS: Turns = Turns {
    now: Mutex::new(Now {
        running: 0,
        waiting: 0,
    }),
    changed: Condvar::new(),
};

struct Turns {
    now: Mutex<Now>,
    changed: Condvar,
}

struct Now {
    /// Places that are taken; one that is alone takes all.
    running: usize,
    /// Number of tests that wait for a shared place. They go first, so that a test that needs the machine alone waits
    /// only once for the machine to be idle.
    waiting: usize,
}

impl Turns {
    fn lock(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(
        &self,
        now: MutexGuard<'a, Now>,
        stay: impl FnMut(&mut Now) -> bool,
    ) -> MutexGuard<'a, Now> {
        let waited = self.changed.wait_while(now, stay);
        waited.unwrap_or_else(PoisonError::into_inner)
    }
}

/// The right to use the machine, until it is dropped.
pub(crate) struct Turn(usize);

impl Turn {
    /// Waits for a shared place.
    pub(crate) fn beside_others() -> Self {
        let mut now = TURNS.lock();
        now.waiting += 1;
        now = TURNS.wait(now, |now| now.running >= SIDE_BY_SIDE);
        now.waiting -= 1;
        now.running += 1;
        Self(1)
    }

    /// Uses the turn of a caller that keeps it.
    pub(crate) fn within(_other: &Self) -> Self {
        Self(0)
    }

    /// Waits until no other test runs.
    pub(crate) fn alone() -> Self {
        let now = TURNS.lock();
        let mut now = TURNS.wait(now, |now| now.running > 0 || now.waiting > 0);
        now.running = SIDE_BY_SIDE;
        Self(SIDE_BY_SIDE)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        TURNS.lock().running -= self.0;
        TURNS.changed.notify_all();
    }
}
