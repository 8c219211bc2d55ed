//! Figures that several kinds of jobs share.

use wb_figures::{Field, Show, Unit, counter, fields};

use crate::report::Totals;

/// Unit of frames.
pub const FRAMES: Unit = Unit::Count("frames");
/// Unit of connections.
pub const CONNECTIONS: Unit = Unit::Count("connections");
/// Unit of requests.
pub const REQUESTS: Unit = Unit::Count("requests");
/// Unit of events.
pub const TIMES: Unit = Unit::Count("times");
/// Frames per second.
pub const PPS: Unit = Unit::PerSecond("frames");
/// Connections per second.
pub const CPS: Unit = Unit::PerSecond("connections");
/// Requests per second.
pub const RPS: Unit = Unit::PerSecond("requests");

const OCTETS: Unit = Unit::Count("octets");

/// Frame counts of a job.
pub static FRAME_TOTALS: &[Field<Totals>] = fields!(Totals:
    counter!(intended_frames, "intended", FRAMES),
    counter!(offered_frames, "offered", FRAMES),
    counter!(unsent_frames, "unsent", FRAMES).bad(),
    counter!(received_frames, "received", FRAMES),
    counter!(lost_frames, "lost", FRAMES).share_of("offered_frames").bad(),
    counter!(duplicate_frames, "duplicate", FRAMES),
    counter!(reordered_frames, "reordered", FRAMES),
    counter!(late_frames, "late", FRAMES).show(Show::IfAny),
    counter!(foreign_frames, "foreign", FRAMES).show(Show::IfAny),
    counter!(unplanned_frames, "foreign, with a test tag", FRAMES).show(Show::IfAny),
    counter!(rx_dropped_frames, "dropped by the tester", FRAMES).bad().show(Show::IfAny),
    counter!(offered_octets, "octets offered", OCTETS).show(Show::Never),
    counter!(received_octets, "octets received", OCTETS).show(Show::Never),
    counter!(ramp_frames, "sent during the ramp-up", FRAMES).show(Show::IfAny),
    counter!(refused_frames, "refused by the device", FRAMES).show(Show::IfAny),
    counter!(other_run_frames, "foreign, from another run", FRAMES).show(Show::IfAny),
    counter!(head_frames, "before the first received frame", FRAMES).show(Show::IfAny),
);

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
