//! Figures that several kinds of jobs share.

use wb_figures::Unit;

/// Unit of frames.
pub const FRAMES: Unit = Unit::Count("frames");
/// Unit of connections.
pub const CONNECTIONS: Unit = Unit::Count("connections");
/// Unit of requests.
pub const REQUESTS: Unit = Unit::Count("requests");
/// Unit of trials.
pub const TRIALS: Unit = Unit::Count("trials");
/// Unit of events.
pub const TIMES: Unit = Unit::Count("times");
/// Frames per second.
pub const PPS: Unit = Unit::PerSecond("frames");
/// Connections per second.
pub const CPS: Unit = Unit::PerSecond("connections");
/// Requests per second.
pub const RPS: Unit = Unit::PerSecond("requests");

/// Share of `part` in `whole`. A share of zero is not a measurement.
#[must_use]
#[allow(clippy::cast_precision_loss)]
pub fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

/// Sum of counts; a report of unknown origin may hold any numbers.
#[must_use]
pub fn sum<const N: usize>(parts: [u64; N]) -> u64 {
    parts.into_iter().fold(0, u64::saturating_add)
}
