//! Additional traffic, and the arrival pattern of test frames (RFC 2544 sections 11 and 21), one module each.

pub(super) mod bursts;
pub(super) mod management;
pub(super) mod routing;

use std::time::Duration;

use wb_model::{
    Plan, Report,
    load::{LoadJob, LoadJobReport},
    units::Span,
};

use super::shape::{TrialAmount, TrialShape};

/// Maximum drain time of a load.
const LONGEST_DRAIN: Duration = Duration::from_secs(60);

/// Adds a load to a trial. A burst is too short for one.
fn add_load(plan: &mut Plan, shape: &TrialShape, load: impl FnOnce() -> Option<LoadJob>) {
    if matches!(shape.amount, TrialAmount::Burst(_)) {
        return;
    }
    let Some(mut load) = load() else {
        return;
    };
    load.shape.drain = Span(shape.drain.min(LONGEST_DRAIN));
    plan.loads.push(load);
}

/// Report of the load that a modifier added.
fn own_load(report: &Report, is_ours: fn(&LoadJob) -> bool) -> Option<&LoadJobReport> {
    let load = report.plan.loads.iter().find(|load| is_ours(load))?;
    let mut jobs = report.load.as_ref()?.jobs.iter();
    jobs.find(|job| job.name == load.name)
}

/// Returns true if a modifier added the load, which then evaluates it.
pub(super) fn put_by_us(load: &LoadJob) -> bool {
    management::is_ours(load) || routing::is_ours(load)
}
