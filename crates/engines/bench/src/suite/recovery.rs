//! System recovery (RFC 2544 section 26.5): the time after an overload in which the device still loses frames.
//!
//! The overload is a separate stream directly before one at half its rate. Sequence numbers show the loss in the
//! latter: its frame k was sent k ÷ rate after the reduction.

use wb_model::bench::{RecoveryResult, SuiteResult, TrialPurpose};

use super::{SizeFacts, SuiteStop, latency::median, shape::TrialAmount, tester::Tester};
use crate::{Bench, dropped_by_tester};

/// The overload, as a share of the throughput (RFC 2544 section 26.5).
const OVERLOAD: f64 = 1.1;

pub(super) fn measure_recovery<B: Bench>(
    tester: &mut Tester<'_, B>,
    known: &SizeFacts,
    result: &mut SuiteResult,
) -> Result<(), SuiteStop<B::Error>> {
    let Some(throughput) = known.throughput else {
        result.not_measured = Some("the throughput at this size is unknown".to_owned());
        return Ok(());
    };
    let most = known
        .ceiling
        .map_or(known.maximum, |ceiling| ceiling.min(known.maximum));
    let overload = (throughput * OVERLOAD).min(most);
    if overload <= throughput * 1.000_1 {
        result.not_measured = Some(
            "not applicable: the throughput equals the highest rate that can be sent, so the device cannot be overloaded".to_owned(),
        );
        return Ok(());
    }
    if known.tester_limit {
        result.not_measured = Some(
            "the tester limited the throughput, so the load that overloads the device is unknown"
                .to_owned(),
        );
        return Ok(());
    }
    let test = &tester.suite.recovery;
    let half = overload / 2.0;
    let mut recovery = RecoveryResult {
        overload_fps: overload,
        half_fps: half,
        ..RecoveryResult::default()
    };
    tester.left.trials = test.repetitions;
    if tester.has_unequal_flows() {
        result.notes.push(
            "the flows have different rates: the times are those of a flow of the mean rate"
                .to_owned(),
        );
    }
    // Loss due to a late tester is not caused by the overload.
    tester.goal = 0.0;
    for _ in 0..test.repetitions {
        let mut shape =
            tester.trial_shape(TrialAmount::Load(half), test.half.0, TrialPurpose::Measure);
        shape.before = Some((overload, test.overload.0));
        let judged = tester.run_trial(&shape, None);
        if let Ok(judged) = &judged {
            let drops = judged.trial.nic_drops;
            if drops > 0 && judged.trial.lost > 0 {
                result.notes.push(format!(
                    "one repetition is void: {}, possibly including the last lost frame",
                    dropped_by_tester(drops)
                ));
            } else if judged.trial.outcome.is_valid() {
                let last = match judged.trial.lost {
                    0 => Some(0.0),
                    _ => judged.last_skipped.map(|sequence| sequence as f64 / half),
                };
                // After the last lost frame of the phase, no frame shows the loss.
                let whole = test.half.0.as_secs_f64();
                let end = whole - 1.0 / half;
                let came_to_end = judged.silent_end_s <= whole * 0.01 + 2.0 / half;
                let recovered = |last: &f64| *last < end * 0.99 && came_to_end;
                let last = last.filter(recovered);
                let late = judged.trial.lateness;
                if last.is_some_and(|last| last > 0.0) && late.late_departures > 0 {
                    // Catch-up frames left later than their numbers show.
                    result.notes.push(format!(
                        "the tester stalled for up to {:.1} ms: {:.4} s may be too short by that",
                        late.largest_gap_ns as f64 / 1e6,
                        last.unwrap_or_default()
                    ));
                }
                recovery.seconds.push(last);
            } else {
                result.notes.push(judged.trial.reason.clone());
            }
            summarise_recovery(&mut recovery);
            result.recovery = Some(recovery.clone());
        }
        judged?;
    }
    result.spread = recovery_spread(&recovery);
    result.confirmed = recovery.seconds.iter().any(Option::is_some);
    if recovery.seconds.is_empty() {
        result.not_measured = Some("no repetition was valid".to_owned());
    } else if recovery.seconds.iter().any(Option::is_none) {
        result
            .notes
            .push("in at least one repetition the device had not recovered at the end".to_owned());
    }
    Ok(())
}

fn summarise_recovery(recovery: &mut RecoveryResult) {
    let known: Vec<f64> = recovery.seconds.iter().flatten().copied().collect();
    let n = known.len() as f64;
    recovery.average_s = (n > 0.0).then(|| known.iter().sum::<f64>() / n);
    recovery.min_s = known.iter().copied().reduce(f64::min);
    recovery.max_s = known.iter().copied().reduce(f64::max);
}

fn recovery_spread(recovery: &RecoveryResult) -> Option<f64> {
    let middle = median(recovery.seconds.iter().flatten().copied().collect())?;
    let (min, max) = (recovery.min_s?, recovery.max_s?);
    (recovery.seconds.len() > 1 && middle > 0.0).then(|| (max - min) / middle)
}
