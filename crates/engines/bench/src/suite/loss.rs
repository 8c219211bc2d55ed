//! Frame loss rate (RFC 2544 section 26.3): 100 %, 90 %, 80 % and so on of the maximum, until two loads in succession
//! are loss-free.

use wb_model::bench::{LossRow, SuiteResult, TrialPurpose};
use wb_search::{LossCurve, loss_curve};

use super::{SizeFacts, SuiteStop, judge, tester::Tester};
use crate::{Bench, dropped_by_tester};

pub(super) fn measure_loss<B: Bench>(
    tester: &mut Tester<'_, B>,
    known: &SizeFacts,
    result: &mut SuiteResult,
) -> Result<(), SuiteStop<B::Error>> {
    if !known.maximum.is_finite() {
        result.not_measured = Some(
            "the loss curve starts at the maximum load, which is unknown; set --max".to_owned(),
        );
        return Ok(());
    }
    tester.left.trials = (1.0 / tester.suite.step.0).ceil() as u32;
    let curve = LossCurve {
        maximum: known.maximum,
        step: tester.suite.step.0,
    };
    tester.goal = 0.0;
    let found = loss_curve(tester, &curve);
    // The points of an interrupted curve are reported.
    let rows = tester
        .log
        .iter()
        .filter(|t| t.purpose == TrialPurpose::Search);
    for trial in rows {
        if trial.outcome.is_valid() && trial.nic_drops > 0 {
            result.notes.push(format!(
                "at {:.0} % {}: the device's loss is a lower bound",
                100.0 * trial.intended / known.maximum,
                dropped_by_tester(trial.nic_drops)
            ));
        }
        result.notes.extend(judge::tester_loss_note(trial));
        let row = LossRow {
            // Plans state loads in millionths of a frame per second.
            load_pct: (100.0 * trial.intended / known.maximum * 1e6).round() / 1e6,
            offered: trial.offered,
            loss_pct: trial.outcome.is_valid().then_some(100.0 * trial.loss_ratio),
            families: match trial.outcome.is_valid() {
                true => trial.families.clone(),
                false => Vec::new(),
            },
        };
        match result.curve.last_mut() {
            // If a load was repeated, the last result counts.
            Some(last) if last.load_pct == row.load_pct => *last = row,
            _ => result.curve.push(row),
        }
    }
    let found = found?;
    if !found.is_finished {
        result.incomplete = true;
        result
            .notes
            .push("time ran out before two successive loads were loss-free".to_owned());
    }
    result.confirmed = found.is_finished;
    Ok(())
}
