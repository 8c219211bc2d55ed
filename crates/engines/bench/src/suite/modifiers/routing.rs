//! Routing updates (RFC 2544 section 11.3): one as the first frame of the trial, then at the rate of the protocol, by a
//! separate load in addition to the test frames.

use wb_model::{
    Plan, Report,
    bench::{ROUTING, SuitePlan, SuiteResult},
    counted,
    load::{LoadJob, LoadMessage},
    units::Span,
};

use super::{super::shape::TrialShape, add_load, own_load};

/// Adds the updates to a trial. A burst is over before a table has changed.
pub(in super::super) fn add_updates(
    plan: &mut Plan,
    base: &Plan,
    suite: &SuitePlan,
    shape: &TrialShape,
) {
    add_load(plan, shape, || {
        let mut load = suite.routing_load(base)?;
        load.shape.duration = Span(shape.lead_time() + shape.duration);
        Some(load)
    });
}

/// Starts a trial with the other table than the previous trial, which may have had only one update.
pub(in super::super) fn take_turns(plan: &mut Plan, trial: u32) {
    for load in plan.loads.iter_mut().filter(|load| is_ours(load)) {
        load.request = LoadMessage::Rip(if trial % 2 == 1 { 1 } else { 2 });
    }
}

/// Returns true if this modifier added the load.
pub(in super::super) fn is_ours(load: &LoadJob) -> bool {
    load.name == ROUTING && matches!(load.request, LoadMessage::Rip(_))
}

/// Number of updates in a trial.
pub(in super::super) fn read(report: &Report) -> Option<u64> {
    own_load(report, is_ours).map(|job| job.totals.requests)
}

/// Sums the updates of all trials of a result.
pub(in super::super) fn conclude_updates(result: &mut SuiteResult) {
    let updates = result
        .trial_log
        .iter()
        .filter_map(|trial| trial.routing_updates);
    let Some(all) = updates.reduce(|all, one| all + one) else {
        return;
    };
    result.routing_updates = Some(all);
    let trials = result.trial_log.iter();
    let without = trials
        .filter(|trial| trial.routing_updates == Some(0))
        .count();
    let updates = counted(all, "RIPv2 update", "RIPv2 updates");
    result.notes.push(match without {
        0 => format!("{updates} sent; each trial started with one"),
        n => format!("{updates} sent; trials without any: {n}"),
    });
}
