//! The machine's clocks, in the form the engine needs.

use wb_model::report::ClockReport;
use wb_port::clock::WorkerClock;

/// CLOCK_MONOTONIC for pacing, CLOCK_REALTIME for timestamps.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl WorkerClock for SystemClock {
    #[inline]
    fn monotonic_ns(&self) -> u64 {
        wb_machine::clock::monotonic_ns()
    }

    #[inline]
    fn wall_ns(&self) -> u64 {
        wb_machine::clock::wall_ns()
    }

    fn sleep_until(&self, monotonic_ns: u64) {
        let time = rustix::time::Timespec {
            tv_sec: i64::try_from(monotonic_ns / 1_000_000_000).unwrap_or(i64::MAX),
            tv_nsec: (monotonic_ns % 1_000_000_000) as _,
        };
        // A signal may end the sleep early. The caller reads the clock again in any case.
        let _ = rustix::thread::clock_nanosleep_absolute(rustix::thread::ClockId::Monotonic, &time);
    }
}

/// Largest difference between start times of the clocks used for timestamps, in ns.
const CLOCKS_DIFFER_NS: u64 = 1_000_000;

/// Wall time of a start on the monotonic clock; no frame of the run is stamped earlier.
pub fn wall_of_start(start_ns: u64) -> u64 {
    // In this order: an interruption between the two makes the result earlier.
    let wall_ns = wb_machine::clock::wall_ns();
    let left_ns = start_ns.saturating_sub(wb_machine::clock::monotonic_ns());
    (wall_ns + left_ns).saturating_sub(CLOCKS_DIFFER_NS)
}

/// Clock section of every report, without the timestamp fields, which the engines fill in.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
pub fn clock_report(step_ns: i64) -> ClockReport {
    ClockReport {
        source: wb_machine::clock::clocksource().unwrap_or_else(|| "unknown".to_owned()),
        resolution_ns: wb_machine::clock::resolution_ns(),
        // Nanoseconds: small and never negative.
        read_cost_ns: wb_machine::clock::read_cost_ns().round() as u64,
        step_ns,
        ..ClockReport::default()
    }
}

/// RFC 3339 text of a wall clock time, in UTC, to the millisecond.
#[must_use]
pub fn rfc3339(wall_ns: u64) -> String {
    let stamp = jiff::Timestamp::from_nanosecond(wall_ns.into()).unwrap_or_default();
    stamp.strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string()
}

/// Rate per second over an interval. Returns `None` for the short interval between two files or before an end, because
/// the rate would mean nothing.
#[allow(clippy::cast_precision_loss)]
pub fn rate(counted: u64, interval_ns: u64) -> Option<f64> {
    const SHORTEST_NS: u64 = 1_000_000;
    (interval_ns >= SHORTEST_NS).then(|| counted as f64 * 1e9 / interval_ns as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates() {
        assert_eq!(rfc3339(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(
            rfc3339(1_700_000_000_123_000_000),
            "2023-11-14T22:13:20.123Z"
        );
        assert_eq!(
            rfc3339(1_709_164_800_000_000_000),
            "2024-02-29T00:00:00.000Z"
        );
        assert_eq!(
            rfc3339(4_107_542_399_999_000_000),
            "2100-02-28T23:59:59.999Z"
        );
    }
}
