//! Waiting for conditions. A test that sleeps for a fixed time fails on a busy machine and wastes time on an idle one.

use std::{
    thread,
    time::{Duration, Instant},
};

/// Time between two looks.
const LOOK: Duration = Duration::from_millis(10);

/// Waits until the condition holds; panics after 30 s.
#[track_caller]
pub fn eventually(what: &str, holds: impl FnMut() -> bool) {
    eventually_within(Duration::from_secs(30), what, holds);
}

/// Waits until the condition holds; panics after `deadline`.
#[track_caller]
pub fn eventually_within(deadline: Duration, what: &str, mut holds: impl FnMut() -> bool) {
    let met = polled(deadline, || holds().then_some(()));
    assert!(met.is_some(), "{what}: not within {deadline:?}");
}

/// Looks until there is a value. Returns none after `deadline`.
pub fn polled<T>(deadline: Duration, look: impl FnMut() -> Option<T>) -> Option<T> {
    polled_every(LOOK, deadline, look)
}

/// Looks until there is a value, with this pause between two looks. Returns none after `deadline`.
pub(crate) fn polled_every<T>(
    pause: Duration,
    deadline: Duration,
    mut look: impl FnMut() -> Option<T>,
) -> Option<T> {
    let begun = Instant::now();
    loop {
        // Looks once more after the deadline, since this process may have been late itself.
        let late = begun.elapsed() >= deadline;
        let found = look();
        if found.is_some() || late {
            return found;
        }
        thread::sleep(pause);
    }
}

/// Waits for a fixed time: the length of a disturbance, such as a link that is down, or the pace of a peer. Never to
/// wait for something to happen.
pub fn disturb(time: Duration) {
    thread::sleep(time);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_is_looked_at_until_it_holds() {
        let mut looks = 0;
        eventually("the third look", || {
            looks += 1;
            looks == 3
        });
        assert_eq!(looks, 3);
    }

    #[test]
    fn what_never_comes_is_none_and_is_looked_for_at_least_once() {
        let mut looks = 0;
        let found = polled(Duration::ZERO, || {
            looks += 1;
            None::<u8>
        });
        assert_eq!((found, looks), (None, 1));
    }

    #[test]
    #[should_panic(expected = "a frame: not within")]
    fn a_condition_that_never_holds_is_named() {
        eventually_within(Duration::from_millis(1), "a frame", || false);
    }
}
