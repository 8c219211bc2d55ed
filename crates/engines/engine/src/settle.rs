//! Common parts of the accounts of several engines.

use crate::Times;
use wb_figures::{Section, Value, text::count};
use wb_measure::{Histogram, Measurement, NamedHistogram, SignedHistogram};
use wb_model::{Totals, counted};

/// A distribution of times, unless it is empty.
pub fn distribution(of: &str, name: &str, times: &Histogram) -> Option<NamedHistogram> {
    let values = SignedHistogram::of_sides(Histogram::new(), times.clone());
    (times.count() > 0).then(|| named(of, name, values))
}

fn named(of: &str, name: &str, values: SignedHistogram) -> NamedHistogram {
    NamedHistogram {
        of: of.to_owned(),
        name: name.to_owned(),
        values,
    }
}

/// Distributions of a section, as parts of `of`.
pub fn distributions_of_section(section: &Section<'_>, of: &str) -> Vec<NamedHistogram> {
    let all = section.times();
    all.filter_map(|(f, _)| match f.value {
        Value::Times(_, Some(histogram)) => distribution(of, f.def.name, histogram),
        _ => None,
    })
    .collect()
}

/// Distributions of the times that an analyser measured.
pub fn distributions_of(of: &str, all: &Measurement) -> Vec<NamedHistogram> {
    let ipdv = (all.ipdv.count() > 0).then(|| named(of, "ipdv_ns", all.ipdv.clone()));
    let latency = distribution(of, "latency_ns", &all.latency);
    let jitter = distribution(of, "jitter_ns", &all.jitter());
    let inter_arrival = distribution(of, "inter_arrival_ns", &all.inter_arrival);
    [latency, jitter, ipdv, inter_arrival]
        .into_iter()
        .flatten()
        .collect()
}

/// Times that an analyser measured.
pub fn times_of(all: &Measurement) -> Times {
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

/// Share of a part; 0 of nothing.
#[allow(clippy::cast_precision_loss)]
#[must_use]
pub fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        0.0
    } else {
        part as f64 / whole as f64
    }
}

/// Returns a number of frames with its noun.
pub fn counted_frames(n: u64) -> String {
    counted(count(n), "frame", "frames")
}

/// Returns a number of connections with its noun.
pub fn counted_connections(n: u64) -> String {
    counted(count(n), "connection", "connections")
}

/// Returns a number of requests with its noun.
pub fn counted_requests(n: u64) -> String {
    counted(count(n), "request", "requests")
}

/// Adds warnings about what an analyser could not measure.
pub fn measurement_warnings(m: &Measurement, warnings: &mut Vec<String>) {
    let c = m.counters;
    let found = [
        (
            c.beyond_window_frames,
            ("frame", "frames"),
            "arrived too late to be distinguished from duplicates: counted as duplicates, and loss may be overstated by as many",
        ),
        (
            c.clock_error_frames,
            ("frame", "frames"),
            "arrived before the send time, without a latency (are the clocks of both ends synchronised?)",
        ),
        (
            c.untracked_frames,
            ("frame", "frames"),
            "of flows that did not fit into the flow table: counted but not tracked",
        ),
        (
            m.split_flows() as u64,
            ("flow was", "flows were"),
            "spread over several receive queues or workers; duplicates and reordering between the queues are not detected",
        ),
        (
            m.latency.clamped(),
            ("latency", "latencies"),
            "above 73 minutes, recorded as 73 minutes",
        ),
    ];
    for (n, (one, many), what) in found {
        if n > 0 {
            warnings.push(format!("{} {what}", counted(n, one, many)));
        }
    }
}

/// Returns the reason for lost frames that stalls of the tester can explain.
pub fn stalls_explain(lost: u64) -> String {
    let lost = counted(lost, "lost frame", "lost frames");
    format!("stalls can explain {lost}")
}

/// Returns why a run that was meant to send is no measurement: nothing was sent.
pub fn nothing_sent(totals: &Totals) -> Option<String> {
    (totals.offered_frames == Some(0)).then(|| "nothing was sent".to_owned())
}

/// Returns why a run that receives is no measurement: nothing arrived. Foreign frames count if the run only receives.
pub fn nothing_arrived(totals: &Totals) -> Option<String> {
    let received = totals.received_frames?;
    match totals.offered_frames {
        None => (received + totals.foreign_frames.unwrap_or(0) == 0)
            .then(|| "nothing arrived".to_owned()),
        Some(sent) => (received == 0 && sent > 0).then(|| {
            let sent = counted(sent, "frame was", "frames were");
            format!("nothing arrived: {sent} sent, 0 received")
        }),
    }
}

/// Returns a warning about error responses.
pub fn error_responses(errors: u64, all: u64) -> Option<String> {
    (errors > 0).then(|| {
        let have = if errors == 1 { "has" } else { "have" };
        format!(
            "{errors} of {} {have} a 4xx or 5xx status (criterion: errors<=0)",
            counted(all, "response", "responses")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_singular() {
        let totals = |sent| Totals {
            offered_frames: Some(sent),
            received_frames: Some(0),
            ..Totals::default()
        };
        for (sent, text) in [
            (1, "nothing arrived: 1 frame was sent, 0 received"),
            (50, "nothing arrived: 50 frames were sent, 0 received"),
        ] {
            assert_eq!(nothing_arrived(&totals(sent)).as_deref(), Some(text));
        }
        for (errors, all, begin) in [
            (1, 1, "1 of 1 response has a "),
            (1, 20, "1 of 20 responses has a "),
            (20, 20, "20 of 20 responses have a "),
        ] {
            let text = error_responses(errors, all).unwrap();
            assert!(text.starts_with(begin), "{text}");
        }
        assert_eq!(stalls_explain(1), "stalls can explain 1 lost frame");
    }
}
