//! Impact: effects on frames at a few small loads, and the device's counters meanwhile.
//!
//! RFC 5180 proposes this test for hop-by-hop options: every router on the path must process them, usually in a slow
//! path. The throughput of such frames means little; loss-free forwarding means more.

use std::time::Duration;

use wb_model::bench::{ImpactRow, Share, SuiteResult};

use super::{
    SizeFacts, SuiteStop,
    judge::{self, JudgedTrial},
    services,
    tester::Tester,
};
use crate::{Bench, dropped_by_tester};

pub(super) fn measure_impact<B: Bench>(
    tester: &mut Tester<'_, B>,
    known: &SizeFacts,
    result: &mut SuiteResult,
) -> Result<(), SuiteStop<B::Error>> {
    if !known.maximum.is_finite() {
        result.not_measured = Some("the maximum load is unknown; set --max".to_owned());
        return Ok(());
    }
    let suite = tester.suite;
    tester.left.trials = u32::try_from(suite.impact.loads.len()).unwrap_or(u32::MAX);
    // Loss due to a late tester is not attributed to the device.
    tester.goal = 0.0;
    for share in &suite.impact.loads {
        let load = known.maximum * share.0;
        measure_load(tester, *share, load, suite.times.trial.0, result)?;
    }
    result.confirmed = result.impact.iter().all(|row| row.lost.is_some());
    Ok(())
}

/// Measures loss and delay at one load, and at an interruption its part until then.
pub(super) fn measure_load<B: Bench>(
    tester: &mut Tester<'_, B>,
    share: Share,
    load: f64,
    duration: Duration,
    result: &mut SuiteResult,
) -> Result<(), SuiteStop<B::Error>> {
    let (judged, stop) = services::run_trial(tester, load, duration);
    let Some(JudgedTrial { trial, .. }) = judged else {
        return stop.map_or(Ok(()), Err);
    };
    let is_valid = trial.outcome.is_valid();
    if is_valid && trial.nic_drops > 0 {
        result.notes.push(format!(
            "at {:.0} fps {}: the device's loss is a lower bound",
            trial.offered,
            dropped_by_tester(trial.nic_drops)
        ));
    }
    result.notes.extend(judge::tester_loss_note(&trial));
    result.impact.push(ImpactRow {
        load_pct: share.0 * 100.0,
        offered_fps: trial.offered,
        tx: trial.tx,
        lost: is_valid.then(|| trial.lost_by_device()),
        loss_pct: is_valid.then_some(100.0 * trial.loss_ratio),
        latency_ns: trial.latency_ns,
        rose: trial.rose,
        void: match is_valid {
            true => String::new(),
            false => trial.reason,
        },
    });
    stop.map_or(Ok(()), Err)
}
