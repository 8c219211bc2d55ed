//! Management (RFC 2544 section 11.2): an SNMP query to the device as the first frame of every second, by a separate
//! load in addition to the test frames. The results of the queries are reported and never make a trial void.

use std::net::IpAddr;

use wb_model::{
    Plan, Report,
    bench::{MANAGEMENT, Queries, SuitePlan, SuiteResult},
    counted,
    load::{LoadJob, LoadMessage},
    units::Span,
};

use super::{super::shape::TrialShape, add_load, own_load};

/// Adds the queries to a trial. A burst has no seconds.
pub(in super::super) fn add_queries(
    plan: &mut Plan,
    base: &Plan,
    suite: &SuitePlan,
    shape: &TrialShape,
) {
    add_load(plan, shape, || {
        let mut load = suite.management_load(base)?;
        // Seconds are those of the trial: they begin with the first frame that counts.
        let lead = Span(shape.lead_time());
        (load.shape.wait, load.shape.ramp) = (lead, lead);
        load.shape.duration = Span(shape.duration);
        Some(load)
    });
}

/// Returns true if this modifier added the load.
pub(in super::super) fn is_ours(load: &LoadJob) -> bool {
    load.name == MANAGEMENT && matches!(load.request, LoadMessage::Snmp(_))
}

/// Results of a trial's queries.
pub(in super::super) fn read(report: &Report) -> Option<Queries> {
    let job = own_load(report, is_ours)?;
    let errors = job.counters.get("snmp_errors").copied().unwrap_or(0);
    let totals = &job.totals;
    Some(Queries {
        sent: totals.requests,
        answered: totals.responses.saturating_sub(errors),
        errors,
        unanswered: totals.requests.saturating_sub(totals.responses),
    })
}

/// Sums the queries of all trials of a result and reports them. Returns a warning if none was answered.
pub(in super::super) fn conclude_queries(
    result: &mut SuiteResult,
    device: Option<IpAddr>,
) -> Option<String> {
    let queries = result.trial_log.iter().filter_map(|trial| trial.management);
    let all = queries.reduce(|mut all, one| {
        all += one;
        all
    })?;
    result.management = Some(all);
    let to = device.map_or_else(String::new, |device| format!(" to {device}"));
    let Queries {
        sent,
        answered,
        errors,
        unanswered,
    } = all;
    let queries = counted(sent, "SNMP query", "SNMP queries");
    let not_sent = format!("no SNMP query{to} could be sent");
    let silent = "no agent is listening, or the community is wrong";
    let (note, warning) = match all {
        _ if sent == 0 => (not_sent.clone(), Some(not_sent)),
        // A warning is printed once for all tests, so it has no count.
        _ if answered + errors == 0 => (
            format!("{queries}{to}: none answered: {silent}"),
            Some(format!(
                "none of the SNMP queries{to} was answered: {silent}"
            )),
        ),
        _ if answered == sent => (format!("{queries}{to}: all answered"), None),
        _ => (
            format!(
                "{queries}{to}: {answered} answered, {errors} answered with an error, {unanswered} unanswered"
            ),
            None,
        ),
    };
    result.notes.push(note);
    warning
}
