//! Additional traffic, and the arrival pattern of test frames (RFC 2544 sections 11 and 21), one module each.

pub(super) mod bursts;
pub(super) mod management;
pub(super) mod routing;

use std::time::Duration;

use wb_model::load::LoadJob;

/// Maximum drain time of a load.
const LONGEST_DRAIN: Duration = Duration::from_secs(60);

/// Returns true if a modifier added the load, which then evaluates it.
pub(super) fn put_by_us(load: &LoadJob) -> bool {
    management::is_ours(load) || routing::is_ours(load)
}
