//! What the accounts of several engines have in common.

use wb_measure::Measurement;
use wb_model::{
    Summary, Totals,
    criteria::{Criterion, Limit, Metric},
    report::CriterionReport,
};

use crate::engine::Times;

/// The times that an analyser measured.
pub(crate) fn times_of(all: &Measurement) -> Times {
    Times {
        latency: all.latency.summary(),
        jitter: all.jitter().summary(),
        jitter_rfc3550_ns: all.smoothed_jitter().map(|j| j.max_ns),
        ipdv: all.ipdv.summary(),
        pdv: all.pdv(),
        inter_arrival: all.inter_arrival.summary(),
        inter_departure: None,
        percentile_error: wb_measure::Histogram::RELATIVE_ERROR,
    }
}

#[allow(clippy::cast_precision_loss)]
pub(crate) fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        0.0
    } else {
        part as f64 / whole as f64
    }
}

pub(crate) fn judge(criterion: &Criterion, totals: &Totals, latency: &Summary) -> CriterionReport {
    // A share of nothing is no measurement.
    let ratio = |part: Option<u64>, whole: Option<u64>| match (part, whole) {
        (Some(part), Some(whole)) if whole > 0 => Some(share(part, whole)),
        _ => None,
    };
    // Where only one end is ours, what must have been sent follows from what came and the gaps.
    let offered = totals.offered_frames.or_else(|| {
        let originals = totals.received_frames? - totals.duplicate_frames?;
        Some(originals + totals.lost_frames?)
    });
    #[allow(clippy::cast_precision_loss)]
    let time = |v: Option<i64>| v.map(|v| v as f64);
    let measured = match criterion.metric {
        Metric::Loss => ratio(totals.lost_frames, offered),
        Metric::Unsent => ratio(totals.unsent_frames, totals.intended_frames),
        Metric::Duplicates => ratio(totals.duplicate_frames, offered),
        Metric::Reordered => ratio(totals.reordered_frames, offered),
        Metric::Failed => totals
            .connections
            .and_then(|c| ratio(Some(c.failed_connections), Some(c.attempted_connections))),
        // Only loads have them; they judge by themselves.
        Metric::Errors => None,
        Metric::Mean => latency.mean,
        Metric::P50 => time(latency.p50),
        Metric::P99 => time(latency.p99),
        Metric::P999 => time(latency.p999),
        Metric::Max => time(latency.max),
    };
    #[allow(clippy::cast_precision_loss)]
    let limit = match criterion.limit {
        Limit::Share(s) => s.as_f64(),
        Limit::Time(t) => t.as_nanos() as f64,
    };
    CriterionReport {
        criterion: criterion.to_string(),
        measured,
        held: measured.is_some_and(|m| m <= limit),
    }
}

pub(crate) fn measurement_warnings(m: &Measurement, warnings: &mut Vec<String>) {
    let c = m.counters;
    let mut warn = |n: u64, text: &str| {
        if n > 0 {
            warnings.push(format!("{n} {text}"));
        }
    };
    warn(
        c.beyond_window_frames,
        "frames came so late that they could not be told from duplicates; they count as duplicates, and loss may be overstated by as many",
    );
    warn(
        c.clock_error_frames,
        "frames carry a send time after their arrival; they give no latency (are the clocks of both ends the same?)",
    );
    warn(
        c.untracked_frames,
        "frames belong to flows for which the flow table had no room; they are counted and not followed",
    );
    warn(
        m.split_flows() as u64,
        "flows were spread over several receive queues or workers; duplicates and reordering between these go unseen",
    );
    warn(
        m.latency.clamped(),
        "latencies were longer than 73 minutes and are counted as that",
    );
}

/// A run that was to send and did not is no measurement of the device.
pub(crate) fn nothing_sent(totals: &Totals) -> Option<String> {
    (totals.offered_frames == Some(0)).then(|| "nothing was sent".to_owned())
}

pub(crate) fn signal_name(n: i32) -> String {
    match n {
        1 => "SIGHUP".to_owned(),
        2 => "SIGINT".to_owned(),
        14 => "SIGALRM".to_owned(),
        15 => "SIGTERM".to_owned(),
        n => format!("signal {n}"),
    }
}
