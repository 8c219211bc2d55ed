//! Times of readings.

use std::time::{Duration, Instant};

/// Readings at a fixed interval.
pub(crate) struct Schedule {
    due: Instant,
    interval: Duration,
}

impl Schedule {
    /// Creates a schedule that begins now.
    pub(crate) fn new(interval: Duration) -> Self {
        Self {
            due: Instant::now(),
            interval,
        }
    }

    /// Sets the first reading to one interval from now.
    pub(crate) fn begin(&mut self) {
        self.due = Instant::now();
    }

    /// Waits until the next reading is due. Returns false, without waiting any longer, once `is_stopped` returns true.
    pub(crate) fn wait(&mut self, is_stopped: &dyn Fn() -> bool) -> bool {
        // Polling costs more than readings that are a second apart.
        const LOOK: Duration = Duration::from_millis(100);
        self.advance();
        while !is_stopped() {
            let left = self.due.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return true;
            }
            std::thread::sleep(left.min(LOOK));
        }
        false
    }

    /// Sets the time of the next reading. After a delay longer than an interval, the missed readings are skipped.
    fn advance(&mut self) {
        let now = Instant::now();
        self.due += self.interval;
        while self.due <= now {
            self.due += self.interval;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reading_that_is_late_is_left_out() {
        let interval = Duration::from_millis(100);
        let mut schedule = Schedule::new(interval);
        schedule.due -= Duration::from_millis(350);
        schedule.advance();
        assert!(schedule.due > Instant::now());
        assert!(schedule.due <= Instant::now() + interval);
    }
}
