//! Converts the measurements of socket tests into the report.

use wb_engine::{Ended, Outcome, Part, Stamping, Times};
use wb_engine::{criteria, lateness};
use wb_measure::Histogram;
use wb_model::{
    Lateness, Limiter, Plan, Totals,
    frames::Frames,
    report::Rates,
    socket::{SocketJobReport, SocketReport},
};

pub(super) fn settle(
    plan: &Plan,
    part: &mut Part<'_>,
    ended: &Ended,
    sockets: SocketReport,
) -> Outcome {
    let sum = frames(&sockets.jobs);
    let (totals, latency) = (sum.totals, sum.latency_ns);
    let judged = criteria::judge(plan, |job| match job {
        None => sum.clone(),
        Some(name) => {
            let one = sockets.jobs.iter().find(|j| j.name == name);
            frames(one.map(std::slice::from_ref).unwrap_or_default())
        }
    });
    let trial = lateness::Trial {
        judged: &judged,
        totals: &totals,
        intended: None,
        offered: totals.offered_frames.unwrap_or(0),
        short: None,
        rates_over_ns: Some(ended.elapsed_ns),
    };
    let lateness = lateness::consider(&trial, at_risk(ended.lateness, &totals, ended.elapsed_ns));
    let nothing =
        sockets
            .jobs
            .iter()
            .find(|job| is_empty(job))
            .map(|job| match sockets.jobs.len() {
                1 => "nothing arrived".to_owned(),
                _ => format!("{}: nothing arrived", job.name),
            });
    let warnings = sockets
        .jobs
        .iter()
        .flat_map(|job| {
            job.warnings
                .iter()
                .map(move |w| format!("{}: {w}", job.name))
        })
        .chain(trial.warning(&lateness.all))
        .collect();
    let jitters = sockets
        .jobs
        .iter()
        .filter_map(|j| j.datagrams?.jitter_rfc3550_ns);
    part.frames(&totals, &Rates::default());
    part.times(Times {
        latency,
        jitter_rfc3550_ns: jitters.reduce(f64::max),
        percentile_error: Histogram::RELATIVE_ERROR,
        ..Times::default()
    });
    part.report.socket = Some(sockets);
    Outcome {
        criteria: criteria::reports(judged),
        lateness,
        nothing,
        defect: (!totals.adds_up())
            .then(|| "the datagram counts do not add up; this is a bug in wirebench".to_owned()),
        limited_by: Limiter::Undetermined
            .because("socket tests measure both hosts and the path together")
            .into(),
        stamping: Stamping::by_calls(),
        warnings,
        ..Outcome::default()
    }
}

/// True if a test ran to its end and exchanged nothing.
fn is_empty(job: &SocketJobReport) -> bool {
    let result = &job.result;
    let received = result.throughput_bps + result.reverse_bps.unwrap_or(0.0);
    job.failure.is_none()
        && !job.iterations.is_empty()
        && received <= 0.0
        && result.transactions == 0
}

/// Adds the datagrams that were in flight while this process was stalled: datagrams that were sent at once after the
/// stall, or lost because a socket buffer was not emptied. Blocking calls cannot count them, so the number is estimated
/// from the mean rate.
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

/// Measurements of several tests together. Numbered datagrams count as frames, so criteria of loss apply to them.
fn frames(jobs: &[SocketJobReport]) -> Frames {
    let mut frames = Frames::default();
    for datagrams in jobs.iter().filter_map(|j| j.datagrams) {
        frames.totals = frames.totals.plus(&Totals {
            offered_frames: Some(datagrams.sent),
            received_frames: Some(datagrams.received),
            lost_frames: Some(datagrams.lost),
            duplicate_frames: Some(datagrams.duplicate),
            reordered_frames: Some(datagrams.reordered),
            foreign_frames: Some(datagrams.foreign),
            ..Totals::default()
        });
    }
    // Times and rates of different tests have no common distribution, and a failed test has no rates.
    if let [job] = jobs {
        frames.latency_ns = job.latency_ns;
        if job.failure.is_none() {
            frames.rates.received_l2_bps = Some(job.result.throughput_bps);
            frames.transactions_per_second = Some(job.result.transactions_per_second);
        }
    }
    frames
}
