//! Delay and its variation: RFC 2544 section 26.2 by the method of RFC 8219 section 7, at shares of the throughput.
//!
//! Every frame carries a timestamp, so one stream gives the whole distribution; frames of the first part of a stream
//! are sent and not measured. Typical latency is the median over the streams of their medians, worst-case latency that
//! of their 99.9th percentiles.

use wb_model::bench::{LatencyRow, SuiteResult, SuiteTrial, TrialPurpose};

use super::{SizeFacts, SuiteStop, shape::TrialAmount, tester::Tester};
use crate::Bench;

/// Definition of the measured delay: for a store-and-forward device, with timestamps taken when a frame is submitted
/// and when it has arrived.
const DEFINITION: &str = "transmit timestamp to receive timestamp of the whole frame";

pub(super) fn measure_latency<B: Bench>(
    tester: &mut Tester<'_, B>,
    known: &SizeFacts,
    result: &mut SuiteResult,
) -> Result<(), SuiteStop<B::Error>> {
    let Some(throughput) = known.throughput else {
        result.not_measured = Some("the throughput at this size is unknown".to_owned());
        return Ok(());
    };
    let test = &tester.suite.latency;
    let loads = u32::try_from(test.loads.len()).unwrap_or(u32::MAX);
    tester.left.trials = test.repetitions.saturating_mul(loads);
    tester.goal = 1.0;
    for share in &test.loads {
        let load = throughput * share.0;
        let measured = test.duration.0 - test.after.0;
        let mut streams = Vec::new();
        let mut stopped = None;
        for _ in 0..test.repetitions {
            let mut shape =
                tester.trial_shape(TrialAmount::Load(load), measured, TrialPurpose::Measure);
            if !test.after.0.is_zero() {
                shape.before = Some((load, test.after.0));
            }
            match tester.run_trial(&shape, None) {
                Ok(judged) if judged.trial.outcome.is_valid() => streams.push(judged.trial),
                Ok(judged) => {
                    let reason = judged.trial.reason;
                    let note = format!("{:.0} % of the throughput: {reason}", share.0 * 100.0);
                    result.notes.push(note);
                }
                Err(stop) => {
                    stopped = Some(stop);
                    break;
                }
            }
        }
        let away = streams.iter().map(|t| t.lateness.largest_gap_ns).max();
        let away = away.filter(|_| streams.iter().any(|t| t.lateness.stalls > 0));
        if let Some(ns) = away {
            result.notes.push(format!(
                "{:.0} % of the throughput: the tester stalled for up to {:.1} ms; delays of that length may be its own",
                share.0 * 100.0,
                ns as f64 / 1e6
            ));
        }
        if !streams.is_empty() {
            let row = latency_row(share.0, &streams, &tester.stamps);
            result.latency.push(row);
        }
        if let Some(stop) = stopped {
            return Err(stop);
        }
    }
    result.confirmed = !result.latency.is_empty();
    if result.latency.is_empty() {
        result.not_measured = Some("no stream was valid".to_owned());
    }
    Ok(())
}

/// The median; for an even number of values the mean of the two in the middle.
pub(super) fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        n if n % 2 == 1 => Some(values[middle]),
        _ => Some(f64::midpoint(values[middle - 1], values[middle])),
    }
}

/// (largest − smallest) ÷ mean, of two streams or more.
fn stream_spread(streams: &[SuiteTrial], value: fn(&SuiteTrial) -> Option<i64>) -> Option<f64> {
    let values: Vec<f64> = streams
        .iter()
        .filter_map(value)
        .map(|ns| ns as f64)
        .collect();
    let mean = values.iter().sum::<f64>() / values.len().max(1) as f64;
    let of = |f: fn(f64, f64) -> f64| values.iter().copied().reduce(f).unwrap_or(0.0);
    (values.len() > 1 && mean > 0.0).then(|| (of(f64::max) - of(f64::min)) / mean)
}

fn latency_row(share: f64, streams: &[SuiteTrial], stamps: &str) -> LatencyRow {
    let of = |value: fn(&SuiteTrial) -> Option<i64>| {
        median(
            streams
                .iter()
                .filter_map(value)
                .map(|ns| ns as f64)
                .collect(),
        )
    };
    let typical = of(|t| t.latency_ns.p50);
    // The row shows the stream with the median nearest to the overall one.
    let far = |t: &SuiteTrial| {
        let own = t.latency_ns.p50.map_or(f64::INFINITY, |ns| ns as f64);
        (own - typical.unwrap_or(0.0)).abs()
    };
    let shown = streams.iter().min_by(|a, b| far(a).total_cmp(&far(b)));
    LatencyRow {
        load: share,
        offered: streams.iter().map(|t| t.offered).sum::<f64>() / streams.len().max(1) as f64,
        definition: DEFINITION.to_owned(),
        stamp_source: stamps.to_owned(),
        repetitions: u32::try_from(streams.len()).unwrap_or(u32::MAX),
        typical_ns: typical,
        worst_ns: of(|t| t.latency_ns.p999),
        latency_ns: shown.map(|t| t.latency_ns).unwrap_or_default(),
        p50_spread: stream_spread(streams, |t| t.latency_ns.p50),
        p99_spread: stream_spread(streams, |t| t.latency_ns.p99),
        pdv_ns: of(|t| t.pdv_ns.p999),
        ipdv_ns: shown.map(|t| t.ipdv_ns).unwrap_or_default(),
        lost: streams.iter().map(|t| t.lost).sum(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert_eq!(median(vec![]), None);
        assert_eq!(median(vec![3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![4.0, 1.0, 3.0, 2.0]), Some(2.5));
    }
}
