//! Activation of services (ITU-T Y.1564): each service step by step, then all of them together.

use std::time::Duration;

use wb_model::bench::{Service, ServiceStep, SuiteResult, SuiteTrial, TrialPurpose};

use super::{
    Stop, fps,
    shape::{self, Amount, Target},
    tester::Tester,
};
use crate::Bench;

/// Shares of CIR that are tried one after the other.
const SHARES: [f64; 4] = [0.25, 0.5, 0.75, 1.0];

/// One load of the configuration test of a service.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// What the report calls it.
    pub name: String,
    /// The load, in the unit of CIR and EIR.
    pub load: f64,
    /// What it must show.
    pub kind: StepKind,
}

/// What a step must show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepKind {
    /// All of it arrives within what the service promises.
    Committed,
    /// CIR at least arrives, and CIR + EIR at most.
    Excess,
    /// The same, with the tolerance of a policer.
    Policing,
}

/// The loads of the configuration test of a service with these rates.
#[must_use]
pub fn steps(cir: f64, eir: f64) -> Vec<Step> {
    let mut steps: Vec<Step> = SHARES
        .iter()
        .map(|share| Step {
            name: format!("CIR {:.0} %", share * 100.0),
            load: cir * share,
            kind: StepKind::Committed,
        })
        .collect();
    if eir > 0.0 {
        steps.push(Step {
            name: "CIR + EIR".to_owned(),
            load: cir + eir,
            kind: StepKind::Excess,
        });
    }
    let load = match eir {
        eir if eir >= 0.2 * cir => cir + 1.25 * eir,
        eir => 1.25 * cir + eir,
    };
    steps.push(Step {
        name: "policing".to_owned(),
        load,
        kind: StepKind::Policing,
    });
    steps
}

pub(super) fn measure<B: Bench>(
    tester: &mut Tester<'_, B>,
    result: &mut SuiteResult,
) -> Result<(), Stop<B::Error>> {
    let Target::Traffic(n) = tester.target else {
        return Ok(());
    };
    let suite = tester.suite;
    let mean = shape::mean_size(&tester.base.traffic[n], tester.size);
    tester.left.trials = 6 * u32::try_from(suite.services.len()).unwrap_or(u32::MAX);
    for service in &suite.services {
        let cir = fps(wb_model::bench::Load::Rate(service.cir), mean, None);
        let eir = service
            .eir
            .and_then(|eir| fps(wb_model::bench::Load::Rate(eir), mean, None));
        let Some(cir) = cir else {
            result.notes.push(format!(
                "{}: CIR is no rate of its own: 100mbps-l2",
                service.name
            ));
            continue;
        };
        let eir = eir.unwrap_or(0.0);
        let all = steps(cir, eir);
        for step in &all {
            tester.goal = match step.kind {
                StepKind::Committed => service.loss.0,
                StepKind::Excess | StepKind::Policing => 1.0,
            };
            let one = trial(tester, step.load, service.step.0)?;
            result
                .steps
                .push(judge(service, step, &one, cir, eir, mean));
        }
        // The performance of one service; several are measured together below.
        if suite.services.len() == 1 {
            tester.goal = service.loss.0;
            let one = trial(tester, cir, service.performance.0)?;
            let step = Step {
                name: "performance".to_owned(),
                load: cir,
                kind: StepKind::Committed,
            };
            result
                .steps
                .push(judge(service, &step, &one, cir, eir, mean));
        }
    }
    if suite.services.len() > 1 {
        together(tester, result, mean)?;
    }
    if tester.suite.sizes.len() > 1 {
        result
            .notes
            .push("of the sizes of this suite the first alone".to_owned());
    }
    result.confirmed = !result.steps.is_empty() && result.steps.iter().all(|step| step.passed);
    Ok(())
}

fn trial<B: Bench>(
    tester: &mut Tester<'_, B>,
    load: f64,
    time: Duration,
) -> Result<SuiteTrial, Stop<B::Error>> {
    let shape = tester.shape(Amount::Load(load), time, TrialPurpose::Measure);
    Ok(tester.trial(&shape, None)?.trial)
}

/// All services at their CIR at the same time, as one load that is the sum of them: what is promised to the least
/// demanding of them must hold of all.
fn together<B: Bench>(
    tester: &mut Tester<'_, B>,
    result: &mut SuiteResult,
    mean: f64,
) -> Result<(), Stop<B::Error>> {
    let services = &tester.suite.services;
    let rate = |service: &Service| fps(wb_model::bench::Load::Rate(service.cir), mean, None);
    let sum: f64 = services.iter().filter_map(rate).sum();
    let longest = services.iter().map(|s| s.performance.0).max();
    tester.goal = services.iter().map(|s| s.loss.0).fold(0.0, f64::max);
    let one = trial(tester, sum, longest.unwrap_or_default())?;
    for service in &tester.suite.services {
        let step = Step {
            name: "performance, all services together".to_owned(),
            load: sum,
            kind: StepKind::Committed,
        };
        result
            .steps
            .push(judge(service, &step, &one, sum, 0.0, mean));
    }
    Ok(())
}

/// Whether a step shows what the service promises.
fn judge(
    service: &Service,
    step: &Step,
    trial: &SuiteTrial,
    cir: f64,
    eir: f64,
    mean: f64,
) -> ServiceStep {
    let bits = mean * 8.0;
    let delay = trial.latency_ns;
    let variation = delay.max.zip(delay.min).map(|(max, min)| max - min);
    // Whole frames at both ends of a step.
    let spare = 2.0 / trial.duration_s.max(1e-3);
    let promised = cir * (1.0 - service.loss.0);
    // What our own ports dropped the service had carried.
    let dropped = trial.nic_drops as f64 / trial.duration_s.max(1e-3);
    let is_short = step.kind != StepKind::Committed && trial.forwarded + spare < promised;
    let not_read = is_short && trial.forwarded + dropped + spare >= promised;
    let mut told = ServiceStep {
        service: service.name.clone(),
        step: step.name.clone(),
        offered_bps: trial.offered * bits,
        received_bps: trial.forwarded * bits,
        loss_ratio: trial.loss_ratio,
        delay_ns: delay.mean,
        delay_max_ns: delay.max,
        variation_ns: variation,
        passed: false,
        void: not_read || !trial.outcome.is_valid(),
        reason: String::new(),
    };
    let most = match step.kind {
        StepKind::Policing => (cir + eir) * (1.0 + service.tolerance.0),
        _ => cir + eir,
    };
    let later = |limit: Option<wb_model::units::Span>, ns: Option<i64>| {
        let limit = limit?;
        let ns = ns.filter(|ns| u64::try_from(*ns).unwrap_or(0) > limit.as_nanos())?;
        Some((ns, limit))
    };
    let wrong = match step.kind {
        _ if not_read => Some(format!(
            "void: {} frames came to our ports and found no room there",
            trial.nic_drops
        )),
        _ if told.void => Some(format!("void: {}", trial.reason)),
        StepKind::Committed if trial.loss_ratio > service.loss.0 => {
            let lost = trial.lost_by_device();
            Some(format!("{lost} of {} frames lost", trial.tx))
        }
        StepKind::Committed => later(service.delay, delay.max)
            .map(|(ns, limit)| format!("a delay of {ns} ns, {limit} is promised"))
            .or_else(|| {
                later(service.variation, variation)
                    .map(|(ns, limit)| format!("the delay varies by {ns} ns, {limit} is promised"))
            }),
        StepKind::Excess | StepKind::Policing if is_short => Some(format!(
            "{:.0} bit/s arrived, CIR is {:.0}",
            told.received_bps,
            cir * bits
        )),
        StepKind::Excess | StepKind::Policing if trial.forwarded > most + spare => Some(format!(
            "{:.0} bit/s arrived, no more than {:.0} may",
            told.received_bps,
            most * bits
        )),
        StepKind::Excess | StepKind::Policing => None,
    };
    told.passed = wrong.is_none();
    told.reason = wrong.unwrap_or_else(|| "as promised".to_owned());
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Specification vector 16.13.
    #[test]
    fn loads_of_the_configuration_test() {
        let loads = |cir, eir| steps(cir, eir).iter().map(|s| s.load).collect::<Vec<_>>();
        assert_eq!(loads(100.0, 50.0), [25.0, 50.0, 75.0, 100.0, 150.0, 162.5]);
        assert_eq!(loads(100.0, 10.0), [25.0, 50.0, 75.0, 100.0, 110.0, 135.0]);
        assert_eq!(loads(100.0, 0.0), [25.0, 50.0, 75.0, 100.0, 125.0]);
    }
}
