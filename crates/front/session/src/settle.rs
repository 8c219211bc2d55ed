//! Common parts of the accounts of several engines.

use wb_figures::{Section, Value};
use wb_measure::{Histogram, Measurement};
use wb_model::{Totals, timeline::Distribution};

use crate::engine::Times;

/// Makes a distribution of times for the report; `None` if nothing was measured.
pub(crate) fn distribution(of: &str, name: &str, times: &Histogram) -> Option<Distribution> {
    let buckets = times
        .buckets()
        .map(|b| (signed(b.low), signed(b.high), b.count));
    (times.count() > 0).then(|| Distribution::from_buckets(of, name, buckets))
}

/// Distributions of a section, as parts of `of`.
pub(crate) fn distributions_of_section(section: &Section<'_>, of: &str) -> Vec<Distribution> {
    let all = section.times();
    all.filter_map(|(f, _)| match f.value {
        Value::Times(_, Some(histogram)) => distribution(of, f.def.name, histogram),
        _ => None,
    })
    .collect()
}

fn signed(amount: u64) -> i64 {
    i64::try_from(amount).unwrap_or(i64::MAX)
}

/// Distributions of the times that an analyser measured.
pub(crate) fn distributions_of(of: &str, all: &Measurement) -> Vec<Distribution> {
    let ipdv = (all.ipdv.count() > 0)
        .then(|| Distribution::from_buckets(of, "ipdv_ns", all.ipdv.buckets()));
    let latency = distribution(of, "latency_ns", &all.latency);
    let inter_arrival = distribution(of, "inter_arrival_ns", &all.inter_arrival);
    [latency, ipdv, inter_arrival]
        .into_iter()
        .flatten()
        .collect()
}

/// Times that an analyser measured.
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

pub(crate) fn measurement_warnings(m: &Measurement, warnings: &mut Vec<String>) {
    let c = m.counters;
    let mut warn = |n: u64, text: &str| {
        if n > 0 {
            warnings.push(format!("{n} {text}"));
        }
    };
    warn(
        c.beyond_window_frames,
        "frames arrived too late to be distinguished from duplicates; they count as duplicates, and loss may be overstated by as many",
    );
    warn(
        c.clock_error_frames,
        "frames arrived before their send time and have no latency (are the clocks of both ends synchronised?)",
    );
    warn(
        c.untracked_frames,
        "frames belong to flows that did not fit into the flow table; they are counted but not tracked",
    );
    warn(
        m.split_flows() as u64,
        "flows were spread over several receive queues or workers; duplicates and reordering between them are not detected",
    );
    warn(
        m.latency.clamped(),
        "latencies exceeded 73 minutes and are recorded as 73 minutes",
    );
}

/// Returns why a run that was meant to send is no measurement: nothing was sent.
pub(crate) fn nothing_sent(totals: &Totals) -> Option<String> {
    (totals.offered_frames == Some(0)).then(|| "nothing was sent".to_owned())
}

/// Returns why a run that receives is no measurement: nothing arrived. Foreign frames count if the run only receives.
pub(crate) fn nothing_arrived(totals: &Totals) -> Option<String> {
    let received = totals.received_frames?;
    match totals.offered_frames {
        None => (received + totals.foreign_frames.unwrap_or(0) == 0)
            .then(|| "nothing arrived".to_owned()),
        Some(sent) => (received == 0 && sent > 0)
            .then(|| format!("nothing arrived: {sent} frames were sent, 0 received")),
    }
}

/// Returns a warning about error responses.
pub(crate) fn error_responses(errors: u64, all: u64) -> Option<String> {
    (errors > 0).then(|| {
        format!("{errors} of {all} responses have a 4xx or 5xx status (criterion: errors<=0)")
    })
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
