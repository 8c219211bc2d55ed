//! Start time of the next operation: bursts at intervals, or a fixed rate.

use std::time::Duration;

use wb_model::socket::SocketSide;

use super::{
    LoopEnd,
    clock::{duration_ns, now_ns, sleep_until},
};
use crate::Stopper;

/// Lateness that a sender makes up for; older operations are skipped and counted as unsent.
const CATCH_UP_NS: u64 = 100_000_000;

/// Bursts of operations with a pause after each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BurstPace {
    /// Operations per burst; at least 1.
    pub burst: u32,
    /// Interval between the starts of bursts.
    pub interval: Duration,
}

impl BurstPace {
    /// The pace requested for one end.
    #[must_use]
    pub fn of_side(side: &SocketSide) -> Option<Self> {
        let interval = Duration::from_nanos(side.burst_interval.as_nanos());
        (side.burst > 0 && !interval.is_zero()).then_some(Self {
            burst: side.burst,
            interval,
        })
    }
}

/// Pacing state of one run.
#[derive(Debug)]
pub(super) struct BurstPacer {
    burst: u64,
    interval: u64,
    left: u64,
    due: u64,
    waited: u64,
}

impl BurstPacer {
    /// Starts the first burst now. Without a pace the burst never ends.
    pub(super) fn begin(pace: Option<BurstPace>) -> Self {
        let burst = pace.map_or(u64::MAX, |pace| pace.burst.max(1).into());
        Self {
            burst,
            interval: pace.map_or(0, |pace| duration_ns(pace.interval)),
            left: burst,
            due: pace.map_or(0, |_| now_ns()),
            waited: 0,
        }
    }

    /// Waits if this operation was the last of its burst. A late burst starts at once; the delay is not made up for.
    #[inline]
    pub(super) fn after_operation(&mut self, stop: &Stopper) -> Result<(), LoopEnd> {
        self.left -= 1;
        if self.left > 0 {
            Ok(())
        } else {
            self.wait(stop)
        }
    }

    #[cold]
    fn wait(&mut self, stop: &Stopper) -> Result<(), LoopEnd> {
        self.left = self.burst;
        let now = now_ns();
        self.due = (self.due + self.interval).max(now);
        if self.due == now {
            return Ok(());
        }
        let goes_on = sleep_until(self.due, stop);
        self.waited += now_ns() - now;
        if goes_on {
            Ok(())
        } else {
            Err(LoopEnd::Stopped)
        }
    }

    /// Time spent waiting.
    pub(super) fn time_waited(&self) -> Duration {
        Duration::from_nanos(self.waited)
    }
}

/// An absolute schedule: operation *k* is due at `start + k / rate`.
#[derive(Debug)]
pub(super) struct OperationSchedule {
    start: u64,
    period: f64,
    /// Operations in the whole time; later ones are never due.
    count: u64,
}

impl OperationSchedule {
    /// Starts a schedule of `rate` operations per second now. The end of `time` is excluded: R·T operations are due.
    pub(super) fn begin(rate: f64, time: Option<Duration>) -> Self {
        Self {
            start: now_ns(),
            period: 1e9 / rate,
            count: time.map_or(u64::MAX, |time| operations_due(rate, time)),
        }
    }

    /// Due time of operation `k`, ns of CLOCK_MONOTONIC.
    #[inline]
    pub(super) fn due_time(&self, k: u64) -> u64 {
        if k >= self.count {
            return u64::MAX;
        }
        // 53 bits of nanoseconds are a hundred days.
        self.start + (k as f64 * self.period) as u64
    }

    /// Number of operations due by `now`.
    pub(super) fn due_by(&self, now: u64) -> u64 {
        ((now.saturating_sub(self.start) as f64 / self.period) as u64 + 1).min(self.count)
    }

    /// The operation to continue with: `k`, or a later one if `k` is too late.
    pub(super) fn skip_to(&self, k: u64, now: u64) -> u64 {
        if now.saturating_sub(self.due_time(k)) <= CATCH_UP_NS {
            return k;
        }
        self.due_by(now).saturating_sub(1).max(k)
    }
}

/// Operations at `rate` per second that are due before the end of `time`.
fn operations_due(rate: f64, time: Duration) -> u64 {
    let all = rate * time.as_secs_f64();
    // A product that is an integer except for rounding counts as an integer.
    let whole = all.round();
    match (all - whole).abs() < 1e-6 {
        true => whole as u64,
        false => all.ceil() as u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_schedule_is_not_part_of_it() {
        for (rate, ms, count) in [
            (2.0, 1000, 2),
            (64.0, 1000, 64),
            (500.0, 500, 250),
            (3.0, 500, 2),
            (0.3, 1000, 1),
            (1e6 / 3.0, 3000, 1_000_000),
        ] {
            let schedule = OperationSchedule {
                start: 1000,
                ..OperationSchedule::begin(rate, Some(Duration::from_millis(ms)))
            };
            assert!(
                schedule.due_time(count - 1) < 1000 + ms * 1_000_000,
                "{rate}"
            );
            assert_eq!(schedule.due_time(count), u64::MAX, "{rate}");
            assert_eq!(schedule.due_by(u64::MAX / 2), count);
        }
    }

    #[test]
    fn a_schedule_is_absolute() {
        let schedule = OperationSchedule {
            start: 1000,
            period: 1e9 / 3.0,
            count: u64::MAX,
        };
        assert_eq!(schedule.due_time(0), 1000);
        assert_eq!(schedule.due_time(3), 1_000_001_000);
        assert_eq!(schedule.due_time(3_000_000), 1_000_000_000_001_000);
        assert_eq!(schedule.due_by(1000), 1);
        assert_eq!(schedule.due_by(333_333_000), 1);
        assert_eq!(schedule.due_by(333_335_000), 2);
        assert_eq!(schedule.skip_to(1, 400_000_000), 1);
        assert_eq!(schedule.skip_to(1, 1_400_000_000), 4);
        assert_eq!(schedule.skip_to(9, 1_400_000_000), 9);
    }

    #[test]
    fn a_burst_goes_without_a_pause() {
        let stop = Stopper::new();
        let mut pacer = BurstPacer::begin(Some(BurstPace {
            burst: 3,
            interval: Duration::from_secs(3600),
        }));
        for _ in 0..2 {
            assert!(pacer.after_operation(&stop).is_ok());
        }
        assert_eq!(pacer.time_waited(), Duration::ZERO);
        // The third would wait for an hour.
        stop.stop();
        assert!(pacer.after_operation(&stop).is_err());
        let mut pacer = BurstPacer::begin(Some(BurstPace {
            burst: 1,
            interval: Duration::from_nanos(1),
        }));
        let due = pacer.due;
        assert!(pacer.after_operation(&Stopper::new()).is_ok());
        assert!(pacer.due > due);
    }
}
