//! Clocks: readings, offset, resolution and cost.

use std::sync::atomic::{AtomicI64, Ordering};

use rustix::time::{ClockId, Timespec, clock_getres, clock_gettime};

/// Offset that tests add to the wall clock of this process, in ns.
static TEST_OFFSET_NS: AtomicI64 = AtomicI64::new(0);

/// Offset of CLOCK_REALTIME from CLOCK_MONOTONIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockOffset {
    /// Wall minus monotonic, in nanoseconds.
    pub ns: i64,
    /// Maximum error in both directions, in ns: half the duration of the three readings.
    pub error_ns: u64,
}

impl ClockOffset {
    /// Converts a monotonic time to wall-clock time.
    pub fn wall_of(&self, monotonic_ns: u64) -> u64 {
        monotonic_ns.saturating_add_signed(self.ns)
    }

    /// Converts a wall-clock time to monotonic time.
    pub fn monotonic_of(&self, wall_ns: u64) -> u64 {
        wall_ns.saturating_add_signed(-self.ns)
    }
}

/// CLOCK_MONOTONIC in nanoseconds, for pacing and durations.
#[inline]
pub fn monotonic_ns() -> u64 {
    nanoseconds(clock_gettime(ClockId::Monotonic))
}

/// CLOCK_REALTIME in nanoseconds, for timestamps of frames.
#[inline]
pub fn wall_ns() -> u64 {
    nanoseconds(clock_gettime(ClockId::Realtime)).wrapping_add_signed(test_offset_ns())
}

/// Offset that tests add to the wall clock of this process, in ns; 0 outside of tests. Arrival times of the kernel do not
/// have it.
#[inline]
pub fn test_offset_ns() -> i64 {
    TEST_OFFSET_NS.load(Ordering::Relaxed)
}

/// Gives this process another wall clock, so that processes of one host can test hosts with different clocks.
pub fn set_test_offset_ns(ns: i64) {
    TEST_OFFSET_NS.store(ns, Ordering::Relaxed);
}

/// Current offset of the two clocks. The wall clock is steered, so a long run must repeat the call.
pub fn wall_minus_monotonic() -> ClockOffset {
    // An interrupt between the readings spoils a sample; the tightest of five is good.
    const SAMPLES: usize = 5;
    (0..SAMPLES)
        .map(|_| offset(monotonic_ns(), wall_ns(), monotonic_ns()))
        .min_by_key(|sample| sample.error_ns)
        .expect("there are samples")
}

/// Step size of CLOCK_MONOTONIC in ns, measured. `clock_getres` returns 1 for every clock that counts nanoseconds,
/// although the underlying counter may advance by 10 or 40 at a time.
pub fn resolution_ns() -> u64 {
    const READINGS: usize = 2_000;
    let mut differences = Vec::with_capacity(READINGS);
    let mut last = monotonic_ns();
    for n in 0..READINGS {
        // Vary the interval, because back-to-back readings may all have the same distance.
        for spin in 0..n % 64 {
            std::hint::black_box(spin);
        }
        let now = monotonic_ns();
        differences.push(now - last);
        last = now;
    }
    step(differences).unwrap_or_else(|| nanoseconds(clock_getres(ClockId::Monotonic)))
}

/// Step size of a clock with these differences between readings: the smallest distance between two values. Values that
/// differ by 1 count as one, because nanoseconds are rounded. `None` if there is only one value.
fn step(mut differences: Vec<u64>) -> Option<u64> {
    differences.sort_unstable();
    differences.dedup();
    let mut firsts: Vec<u64> = Vec::new();
    for values in differences.chunk_by(|a, b| b - a == 1) {
        if values.len() > 2 {
            return Some(1);
        }
        firsts.extend(values.first());
    }
    firsts.windows(2).map(|pair| pair[1] - pair[0]).min()
}

/// Clock source of the kernel: `tsc`, `kvm-clock`, `hpet`.
pub fn clocksource() -> Option<String> {
    let path = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    std::fs::read_to_string(path)
        .ok()
        .map(|text| text.trim().to_owned())
}

/// Cost of one reading of the wall clock, in nanoseconds.
pub fn read_cost_ns() -> f64 {
    const READS: u32 = 1_000;
    // Take the best of a few rounds, because the others were interrupted.
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
    // Both clocks count up from zero.
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
    fn steps_are_those_of_the_counter() {
        // A counter of 100 MHz, with differences of 20, 21, 30 and 31 ns.
        assert_eq!(step(vec![20, 21, 20, 30, 31, 20, 1_280]), Some(10));
        // A counter of 24 MHz, slower than the readings.
        assert_eq!(step(vec![0, 0, 42, 0, 41, 83]), Some(41));
        // A counter that shows every nanosecond.
        assert_eq!(step(vec![23, 20, 21, 22, 45, 20]), Some(1));
        assert_eq!(step(vec![20, 20]), None);
        assert_eq!(step(vec![]), None);
    }

    #[test]
    fn clocks_run_and_agree() {
        let (a, b) = (monotonic_ns(), monotonic_ns());
        assert!(a <= b);
        // 2020-01-01
        assert!(wall_ns() > 1_577_836_800_000_000_000);
        let offset = wall_minus_monotonic();
        assert!(offset.wall_of(monotonic_ns()).abs_diff(wall_ns()) < 1_000_000_000);
        assert!(
            (1..1_000_000).contains(&resolution_ns()),
            "{}",
            resolution_ns()
        );
        assert!(read_cost_ns() > 0.0);
    }
}
