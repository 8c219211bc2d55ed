//! The clocks: what they say, how they differ, what a look at them costs.

use rustix::time::{ClockId, Timespec, clock_getres, clock_gettime};

/// How far CLOCK_REALTIME is ahead of CLOCK_MONOTONIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockOffset {
    /// Wall minus monotonic, in nanoseconds.
    pub ns: i64,
    /// The most it can be wrong by, either way: half the time the three readings took.
    pub error_ns: u64,
}

impl ClockOffset {
    /// The wall time that belongs to a monotonic one.
    pub fn wall_of(&self, monotonic_ns: u64) -> u64 {
        monotonic_ns.saturating_add_signed(self.ns)
    }

    /// The monotonic time that belongs to a wall time.
    pub fn monotonic_of(&self, wall_ns: u64) -> u64 {
        wall_ns.saturating_add_signed(-self.ns)
    }
}

/// CLOCK_MONOTONIC in nanoseconds: for pacing and durations.
#[inline]
pub fn monotonic_ns() -> u64 {
    nanoseconds(clock_gettime(ClockId::Monotonic))
}

/// CLOCK_REALTIME in nanoseconds: for the stamps of frames.
#[inline]
pub fn wall_ns() -> u64 {
    nanoseconds(clock_gettime(ClockId::Realtime))
}

/// How the two clocks differ now. The wall clock is steered, so a long run asks again.
pub fn wall_minus_monotonic() -> ClockOffset {
    // An interrupt between the readings spoils one sample; of five the tightest is good.
    const SAMPLES: usize = 5;
    (0..SAMPLES)
        .map(|_| offset(monotonic_ns(), wall_ns(), monotonic_ns()))
        .min_by_key(|sample| sample.error_ns)
        .expect("there are samples")
}

/// The step of CLOCK_MONOTONIC in nanoseconds; 1 with high resolution timers.
pub fn resolution_ns() -> u64 {
    nanoseconds(clock_getres(ClockId::Monotonic))
}

/// The device the kernel reads time from: `tsc`, `kvm-clock`, `hpet`.
pub fn clocksource() -> Option<String> {
    let path = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    std::fs::read_to_string(path)
        .ok()
        .map(|text| text.trim().to_owned())
}

/// What one reading of the wall clock costs, in nanoseconds.
pub fn read_cost_ns() -> f64 {
    const READS: u32 = 1_000;
    // The best of a few rounds: the others were interrupted.
    (0..5)
        .map(|_| {
            let start = monotonic_ns();
            for _ in 0..READS {
                std::hint::black_box(wall_ns());
            }
            (monotonic_ns() - start) as f64 / f64::from(READS)
        })
        .fold(f64::INFINITY, f64::min)
}

fn offset(before: u64, wall: u64, after: u64) -> ClockOffset {
    let half = after.saturating_sub(before) / 2;
    ClockOffset {
        ns: wall.wrapping_sub(before + half) as i64,
        error_ns: half + 1,
    }
}

#[inline]
fn nanoseconds(time: Timespec) -> u64 {
    // Both clocks count from zero upwards.
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets() {
        assert_eq!(
            offset(100, 1_000, 110),
            ClockOffset {
                ns: 895,
                error_ns: 6
            }
        );
        assert_eq!(offset(1_000, 100, 1_000).ns, -900);
        let ahead = ClockOffset {
            ns: 900,
            error_ns: 1,
        };
        assert_eq!(
            (ahead.wall_of(100), ahead.monotonic_of(1_000)),
            (1_000, 100)
        );
    }

    #[test]
    fn clocks_run_and_agree() {
        let (a, b) = (monotonic_ns(), monotonic_ns());
        assert!(a <= b);
        // 2020-01-01
        assert!(wall_ns() > 1_577_836_800_000_000_000);
        let offset = wall_minus_monotonic();
        assert!(offset.wall_of(monotonic_ns()).abs_diff(wall_ns()) < 1_000_000_000);
        assert!(resolution_ns() >= 1);
        assert!(read_cost_ns() > 0.0);
    }
}
