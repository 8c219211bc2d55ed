//! From what socket tests measured to the report.

use wb_measure::Histogram;
use wb_model::{
    Lateness, Plan, REPORT_SCHEMA, Report, Summary, Totals, Verdict,
    report::{ClockReport, CriterionReport, Rates},
    socket::SocketReport,
};

use super::Times;
use crate::{
    End,
    account::judge,
    clock::{clock_report, rfc3339},
    lateness,
    verdict::{self, Circumstances},
};

pub(super) fn report(
    plan: &Plan,
    times: &Times,
    end: &End,
    sockets: SocketReport,
    late: Lateness,
) -> Report {
    let totals = totals(&sockets);
    let latency = match sockets.jobs.as_slice() {
        [job] => job.latency_ns,
        // Times of different tests have no common distribution.
        _ => Summary::default(),
    };
    let criteria: Vec<CriterionReport> = plan
        .criteria
        .iter()
        .map(|c| judge(c, &totals, &latency))
        .collect();
    let lateness = lateness::consider(
        &lateness::Trial {
            criteria: &plan.criteria,
            reports: &criteria,
            totals: &totals,
            intended: None,
            offered: totals.offered_frames.unwrap_or(0),
        },
        at_risk(late, &totals, times.elapsed_ns()),
    );
    let doubt = lateness.may_have_caused.clone();
    let (verdict, reason) = verdict(plan, end, &criteria, &totals, doubt);
    let warnings = sockets
        .jobs
        .iter()
        .flat_map(|job| {
            job.warnings
                .iter()
                .map(move |w| format!("{}: {w}", job.name))
        })
        .collect();
    Report {
        schema: REPORT_SCHEMA.to_owned(),
        kind: plan.kind.clone(),
        verdict,
        reason,
        limited_by: "not determined: socket tests measure the path and both hosts together"
            .to_owned(),
        started: rfc3339(times.started_wall_ns),
        elapsed_ns: times.elapsed_ns(),
        plan: plan.clone(),
        totals,
        rates: Rates::default(),
        latency_ns: latency,
        jitter_ns: Summary::default(),
        jitter_rfc3550_ns: sockets
            .jobs
            .iter()
            .filter_map(|j| j.datagrams?.jitter_rfc3550_ns)
            .reduce(f64::max),
        ipdv_ns: Summary::default(),
        pdv_ns: Summary::default(),
        inter_arrival_ns: Summary::default(),
        inter_departure_ns: None,
        percentile_error: Histogram::RELATIVE_ERROR,
        jobs: Vec::new(),
        flows: Vec::new(),
        flows_omitted: 0,
        workers: Vec::new(),
        ports: Vec::new(),
        criteria,
        capture: None,
        load: None,
        socket: Some(sockets),
        lateness,
        clock: ClockReport {
            same_clock: true,
            tx_stamp: "user, before a call".to_owned(),
            rx_stamp: "user, after a call".to_owned(),
            ..clock_report(times.step())
        },
        warnings,
    }
}

/// With the datagrams that were under way while this process was away: sent at once after it, or lost
/// because nobody emptied the buffer of a socket. Calls that wait cannot tell, so the mean rate does.
#[allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss
)]
fn at_risk(late: Lateness, totals: &Totals, elapsed_ns: u64) -> Lateness {
    let sent = totals.offered_frames.unwrap_or(0) as f64;
    let share = late.stalled_ns as f64 / elapsed_ns.max(1) as f64;
    Lateness {
        late_departures: (sent * share.min(1.0)).ceil() as u64,
        ..late
    }
}

/// Datagrams by their numbers, as frames: so criteria of loss hold for them.
fn totals(sockets: &SocketReport) -> Totals {
    let mut sum = Totals::default();
    for datagrams in sockets.jobs.iter().filter_map(|j| j.datagrams) {
        sum = sum.plus(&Totals {
            offered_frames: Some(datagrams.sent),
            received_frames: Some(datagrams.received),
            lost_frames: Some(datagrams.lost),
            duplicate_frames: Some(datagrams.duplicate),
            reordered_frames: Some(datagrams.reordered),
            foreign_frames: Some(datagrams.foreign),
            ..Totals::default()
        });
    }
    sum
}

fn verdict(
    plan: &Plan,
    end: &End,
    criteria: &[CriterionReport],
    totals: &Totals,
    doubt: Option<String>,
) -> (Verdict, String) {
    let defect = (!totals.adds_up())
        .then(|| "the datagrams do not add up; this is a defect of the program".to_owned());
    verdict::verdict(
        end,
        criteria,
        Circumstances {
            invalid: defect.or(doubt),
            endless: plan.is_endless(),
            stopped: None,
        },
    )
}
