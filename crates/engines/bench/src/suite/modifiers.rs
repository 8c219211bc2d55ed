//! What else is there beside the frames of a test, or how they come (RFC 2544 sections 11 and 21), one module each.

pub(super) mod bursts;
pub(super) mod management;
pub(super) mod routing;

use std::time::Duration;

use wb_model::load::LoadJob;

/// As long as loads have one.
const LONGEST_DRAIN: Duration = Duration::from_secs(60);

/// Whether a load is beside the test for a modifier's sake: what becomes of it is told by it.
pub(super) fn put_by_us(load: &LoadJob) -> bool {
    management::is_ours(load) || routing::is_ours(load)
}
