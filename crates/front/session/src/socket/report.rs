//! From what socket tests measured to the report.

use wb_measure::Histogram;
use wb_model::{Lateness, Plan, Summary, Totals, report::CriterionReport, socket::SocketReport};

use crate::{
    engine::{Ended, Settled, Stamping, Times},
    lateness,
    settle::judge,
};

pub(super) fn settle(plan: &Plan, ended: &Ended, sockets: SocketReport, late: Lateness) -> Settled {
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
        at_risk(late, &totals, ended.elapsed_ns),
    );
    let warnings = sockets
        .jobs
        .iter()
        .flat_map(|job| {
            job.warnings
                .iter()
                .map(move |w| format!("{}: {w}", job.name))
        })
        .collect();
    let jitters = sockets
        .jobs
        .iter()
        .filter_map(|j| j.datagrams?.jitter_rfc3550_ns);
    Settled {
        times: Times {
            latency,
            jitter_rfc3550_ns: jitters.reduce(f64::max),
            percentile_error: Histogram::RELATIVE_ERROR,
            ..Times::default()
        },
        criteria,
        lateness,
        defect: (!totals.adds_up())
            .then(|| "the datagrams do not add up; this is a defect of the program".to_owned()),
        totals,
        limited_by: "not determined: socket tests measure the path and both hosts together"
            .to_owned(),
        socket: Some(sockets),
        stamping: Stamping {
            same_clock: true,
            wall: false,
            error_ns: None,
            tx: "user, before a call".to_owned(),
            rx: "user, after a call".to_owned(),
        },
        warnings,
        ..Settled::default()
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
