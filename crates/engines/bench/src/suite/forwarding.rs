//! Maximum forwarding rate (RFC 2889 section 5.6.1): the load rises step by step from the throughput to the maximum.
//! The result is the highest rate of forwarded frames, regardless of loss.
//!
//! A device need not forward most at the highest load, and its forwarding rate may have several maxima.

use wb_model::{
    bench::{LbLimit, MfrResult, MfrRow, SuiteResult, SuiteTrial, TrialOutcome, TrialPurpose},
    units::WIRE_OVERHEAD,
};
use wb_search::{Curve, ForwardingCurve, LoadOutcome, Point, Trial, forwarding_curve};

use super::{SizeFacts, SuiteStop, judge, tester::Tester};
use crate::{Bench, dropped_by_tester};

pub(super) fn measure_forwarding<B: Bench>(
    tester: &mut Tester<'_, B>,
    known: &SizeFacts,
    result: &mut SuiteResult,
) -> Result<(), SuiteStop<B::Error>> {
    if !known.maximum.is_finite() {
        result.not_measured = Some("the maximum load is unknown; set --max".to_owned());
        return Ok(());
    }
    let step = tester.suite.step.0;
    let curve = ForwardingCurve {
        // A device without a loss-free load still forwards frames.
        minimum: known.throughput.unwrap_or(known.maximum * step),
        maximum: known.maximum,
        step,
    };
    let steps = (known.maximum - curve.minimum) / (known.maximum * step);
    tester.left.trials = steps.max(0.0).ceil() as u32 + 1;
    tester.goal = 0.0;
    let found = forwarding_curve(tester, &curve);
    // The loads completed before an interruption are reported.
    let rows = last_of_each_load(&tester.log);
    fill_result(result, known, &rows);
    let found = found?;
    result.confirmed = found.is_finished && result.limit.is_some();
    if !found.is_finished {
        result.incomplete = true;
        result.limited_by = Some(LbLimit::Time);
        result
            .notes
            .push("time ran out before the maximum load was offered".to_owned());
    }
    Ok(())
}

/// Final result of each load after all repetitions, in the order in which they were tried.
fn last_of_each_load(log: &[SuiteTrial]) -> Vec<&SuiteTrial> {
    let mut rows: Vec<&SuiteTrial> = Vec::new();
    for trial in log.iter().filter(|t| t.purpose == TrialPurpose::Search) {
        match rows.last_mut() {
            Some(last) if last.intended == trial.intended => *last = trial,
            _ => rows.push(trial),
        }
    }
    rows
}

/// Returns true if a trial shows the forwarding rate. If the load was not fully offered, the rate is that of the
/// offered load.
const fn is_known(trial: &SuiteTrial) -> bool {
    trial.outcome.is_valid() || matches!(trial.outcome, TrialOutcome::NotOffered)
}

fn fill_result(result: &mut SuiteResult, known: &SizeFacts, rows: &[&SuiteTrial]) {
    for trial in rows.iter().filter(|t| is_known(t) && t.nic_drops > 0) {
        result.notes.push(format!(
            "at {:.0} fps {}: the forwarding rate is a lower bound",
            trial.offered,
            dropped_by_tester(trial.nic_drops)
        ));
    }
    let shares = rows
        .iter()
        .filter_map(|trial| judge::tester_loss_note(trial));
    result.notes.extend(shares);
    let points = rows.iter().map(|trial| Point {
        load: trial.offered,
        trial: Trial {
            outcome: match is_known(trial) {
                true => LoadOutcome::Held,
                false => LoadOutcome::Unread,
            },
            through: trial.forwarded,
            ..Trial::held(trial.offered)
        },
    });
    let curve = Curve {
        points: points.collect(),
        is_finished: true,
    };
    let Some(best) = curve.maximum_forwarding_rate() else {
        result.limited_by = Some(LbLimit::Tester);
        result.tester_limit = !rows.is_empty();
        return;
    };
    let rate = best.trial.through;
    let most = rows.iter().max_by(|a, b| a.offered.total_cmp(&b.offered));
    let most = most.filter(|trial| is_known(trial));
    let bits = |extra: f64| Some(rate * (result.mean_size? + extra) * 8.0);
    result.mfr = Some(MfrResult {
        rate_fps: rate,
        load_fps: best.load,
        rate_l1_bps: bits(f64::from(WIRE_OVERHEAD)),
        rate_l2_bps: bits(0.0),
        frmol_fps: most.map(|trial| trial.forwarded),
        max_offered_fps: most.map(|trial| trial.offered),
        rows: rows.iter().map(|trial| mfr_row(trial, known)).collect(),
    });
    result.limit = (rate > 0.0).then_some(rate);
    let gave_way = rows.iter().any(|t| is_known(t) && t.lost_by_device() > 0);
    let not_offered = rows.last().is_some_and(|t| !t.outcome.is_valid());
    result.limited_by = Some(match gave_way {
        true => LbLimit::Device,
        // Everything offered was forwarded, so the device may forward more.
        false if not_offered || known.maximum_is_ours => LbLimit::Tester,
        false => LbLimit::Plan,
    });
    result.tester_limit = result.limited_by == Some(LbLimit::Tester);
}

fn mfr_row(trial: &SuiteTrial, known: &SizeFacts) -> MfrRow {
    MfrRow {
        // Plans state loads in millionths of a frame per second.
        load_pct: (100.0 * trial.intended / known.maximum * 1e6).round() / 1e6,
        offered_fps: trial.offered,
        forwarded_fps: is_known(trial).then_some(trial.forwarded),
    }
}
