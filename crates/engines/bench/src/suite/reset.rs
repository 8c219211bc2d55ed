//! Reset (RFC 6201): time without forwarding after a reset of the device, by lost frames and by the timestamps of the
//! frames before and after.

use std::time::Duration;

use wb_model::{
    bench::{ResetResult, Share, SuiteResult, TrialOutcome, TrialPurpose},
    counted,
};

use super::{SizeFacts, SuiteStop, shape::TrialAmount, tester::Tester};
use crate::{Bench, Trigger, dropped_by_tester};

/// Default load: a share of the largest.
const LOAD: Share = Share(0.1);
/// Maximum share of the throughput.
const CARRIED: f64 = 0.5;
/// Default wait for the device.
const PATIENCE: Duration = Duration::from_secs(30);
/// The device is silent at the end if no frame arrived for this number of frame intervals.
const INTERVALS: f64 = 10.0;
/// Time with traffic before the reset.
const BEFORE: Duration = Duration::from_secs(2);

pub(super) fn measure_reset<B: Bench>(
    tester: &mut Tester<'_, B>,
    known: &SizeFacts,
    result: &mut SuiteResult,
) -> Result<(), SuiteStop<B::Error>> {
    let test = &tester.suite.reset;
    let Some(command) = &test.trigger else {
        result.not_measured =
            Some("needs a command that resets the device: --trigger COMMAND".to_owned());
        return Ok(());
    };
    let most = known
        .ceiling
        .map_or(known.maximum, |ceiling| ceiling.min(known.maximum));
    if !most.is_finite() {
        result.not_measured = Some("the maximum load is unknown; set --max".to_owned());
        return Ok(());
    }
    let share = if test.load.0 > 0.0 { test.load } else { LOAD };
    let patience = match test.patience.0 {
        Duration::ZERO => PATIENCE,
        told => told,
    };
    // At most the loss-free load, with margin: all loss should be due to the reset.
    let carried = known.throughput.map_or(f64::INFINITY, |t| t * CARRIED);
    let load = (most * share.0).min(carried);
    tester.goal = 1.0;
    let shape = tester.trial_shape(
        TrialAmount::Load(load),
        BEFORE + patience,
        TrialPurpose::Measure,
    );
    let trigger = Trigger {
        after: shape.ramp + BEFORE,
        command: command.clone(),
    };
    let judged = tester.run_trial(&shape, Some(&trigger))?;
    let trial = judged.trial;
    if judged.misfired || trial.outcome == TrialOutcome::Late {
        // Any outage seen meanwhile was not, or not only, caused by the reset.
        result.not_measured = Some(trial.reason);
        return Ok(());
    }
    let lost = judged.most_lost.saturating_sub(trial.nic_drops);
    let silence = trial.longest_silence_ns.map(|ns| ns as f64 / 1e9);
    // The silence at the end was longer than any caused by a reset.
    let at_end = judged.silent_end_s;
    let not_again = (at_end > silence.unwrap_or(0.0).max(INTERVALS / load)).then_some(at_end);
    let returned = not_again.is_none();
    // Frames that the tester's own link could not send were not lost by the device.
    let by_loss = (trial.unsent == 0 && trial.tx > 0).then(|| lost as f64 / load);
    result.reset = Some(ResetResult {
        kind: test.kind.clone(),
        trigger: command.clone(),
        offered_fps: load,
        lost,
        by_loss_s: by_loss.filter(|_| returned),
        by_stamps_s: silence.filter(|_| returned),
        not_again_s: not_again,
    });
    result.confirmed = trial.rx > 0 && returned;
    if trial.unsent > 0 {
        result.notes.push(format!(
            "{} because the reset took the tester's link down: only the timestamps show the length of the outage",
            counted(trial.unsent, "frame was not sent", "frames were not sent")
        ));
    }
    if trial.nic_drops > 0 {
        result.notes.push(format!(
            "{} (not counted)",
            dropped_by_tester(trial.nic_drops)
        ));
    }
    if lost == 0 && trial.unsent == 0 && silence.is_some_and(|silence| silence < INTERVALS / load) {
        result.notes.push(
            "no frame was lost and no gap was long: the device continued to forward, or the command reset nothing"
                .to_owned(),
        );
    }
    if trial.lateness.stalls > 0 && lost > 0 {
        result.notes.push(format!(
            "the tester was late ({}): this can explain some of the lost frames",
            trial.lateness.account()
        ));
    }
    Ok(())
}
