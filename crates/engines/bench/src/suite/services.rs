//! Activation of services (ITU-T Y.1564): each service step by step, then all of them together.
//!
//! A service is a traffic job of the plan. In the first stage the others are silent. In the second stage all send at
//! their CIR, and each is counted and evaluated separately against its guarantees. Delays of services that share a port
//! are those of their flows.

use std::{borrow::Cow, time::Duration};

use wb_model::{
    Plan, TrafficJob, Verdict,
    bench::{
        Load, Service, ServiceResult, ServiceStep, SuitePlan, SuiteResult, TestSize, TrialPurpose,
    },
    units::WIRE_OVERHEAD,
};

use super::{
    SuiteStop, frames_per_second,
    judge::{JudgedTrial, StreamPart},
    shape::{self, TargetJob, TrialAmount},
    tester::Tester,
};
use crate::{Bench, dropped_by_tester};

/// Shares of CIR, tried in order.
const SHARES: [f64; 4] = [0.25, 0.5, 0.75, 1.0];

/// One load of the configuration test of a service.
#[derive(Clone, Debug, PartialEq)]
pub struct ServiceLoad {
    /// Name in the report.
    pub name: String,
    /// The load, in the unit of CIR and EIR.
    pub load: f64,
    /// Criterion of the step.
    pub kind: StepCriterion,
}

/// Criterion of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepCriterion {
    /// All frames arrive within the guarantees of the service.
    Committed,
    /// At least CIR and at most CIR + EIR arrives.
    Excess,
    /// As [`StepCriterion::Excess`], with the tolerance of a policer.
    Policing,
    /// As [`StepCriterion::Committed`], with the guaranteed availability.
    Performance,
}

/// The loads of the configuration test of a service with these rates.
#[must_use]
pub fn service_loads(cir: f64, eir: f64) -> Vec<ServiceLoad> {
    let mut steps: Vec<ServiceLoad> = SHARES
        .iter()
        .map(|share| ServiceLoad {
            name: format!("CIR {:.0} %", share * 100.0),
            load: cir * share,
            kind: StepCriterion::Committed,
        })
        .collect();
    if eir > 0.0 {
        steps.push(ServiceLoad {
            name: "CIR + EIR".to_owned(),
            load: cir + eir,
            kind: StepCriterion::Excess,
        });
    }
    let load = match eir {
        eir if eir >= 0.2 * cir => cir + 1.25 * eir,
        eir => 1.25 * cir + eir,
    };
    steps.push(ServiceLoad {
        name: "policing".to_owned(),
        load,
        kind: StepCriterion::Policing,
    });
    steps
}

/// Parameters of a service in the terms of trials.
struct ServiceOffer<'s> {
    service: &'s Service,
    /// Index of its traffic job in the plan.
    job: usize,
    /// Mean frame size with FCS.
    mean: f64,
    /// Frames per second in each direction.
    cir: f64,
    eir: f64,
}

pub(super) fn measure_services<B: Bench>(
    tester: &mut Tester<'_, B>,
    result: &mut SuiteResult,
) -> Result<(), SuiteStop<B::Error>> {
    let suite = tester.suite;
    let base = tester.base.clone().into_owned();
    let mut offers = Vec::new();
    for service in &suite.services {
        match service_offer(suite, &base, tester.size, service) {
            Some(offer) => offers.push(offer),
            None => result.notes.push(format!(
                "{}: the CIR must be a fixed rate such as 100mbps-l2",
                service.name
            )),
        }
    }
    let trials = offers
        .iter()
        .map(|o| service_loads(o.cir, o.eir).len())
        .sum::<usize>()
        + 1;
    tester.left.trials = u32::try_from(trials).unwrap_or(u32::MAX);
    let line = result.theoretical_fps.zip(result.mean_size);
    // With frames of another size the line carries another number of them.
    let line = line.map(|(fps, mean)| fps * (mean + f64::from(WIRE_OVERHEAD)));
    let made = test_services(tester, result, &base, &offers, line);
    result.services = offers
        .iter()
        .map(|o| service_verdict(o.service, &result.steps))
        .collect();
    if suite.sizes.len() > 1 {
        result
            .notes
            .push("only the first frame size is tested".to_owned());
    }
    result.confirmed = made.is_ok()
        && !result.services.is_empty()
        && result.services.iter().all(|s| s.verdict == Verdict::Pass);
    made
}

fn service_offer<'s>(
    suite: &SuitePlan,
    base: &Plan,
    size: Option<&TestSize>,
    service: &'s Service,
) -> Option<ServiceOffer<'s>> {
    let job = suite.service_index(base, service)?;
    let mean = shape::mean_size(&base.traffic[job], size);
    let rate = |rate| frames_per_second(Load::Rate(rate), mean, None);
    Some(ServiceOffer {
        service,
        job,
        mean,
        cir: rate(service.cir)?,
        eir: service.eir.and_then(rate).unwrap_or(0.0),
    })
}

/// Tests each service alone, step by step, and then all together. `line`: bytes per second with preamble and gap.
fn test_services<B: Bench>(
    tester: &mut Tester<'_, B>,
    result: &mut SuiteResult,
    base: &Plan,
    offers: &[ServiceOffer<'_>],
    line: Option<f64>,
) -> Result<(), SuiteStop<B::Error>> {
    for offer in offers {
        tester.base = Cow::Owned(base.clone());
        isolate_job(tester, offer.job);
        let most = line.map(|line| line / (offer.mean + f64::from(WIRE_OVERHEAD)));
        for mut step in service_loads(offer.cir, offer.eir) {
            if let Some(most) = most.filter(|most| step.load > *most) {
                step.load = most;
                let what = format!("{} {}", offer.service.name, step.name);
                result
                    .notes
                    .push(format!("{what}: load reduced to line rate"));
            }
            tester.goal = match step.kind {
                StepCriterion::Committed | StepCriterion::Performance => offer.service.loss.0,
                StepCriterion::Excess | StepCriterion::Policing => 1.0,
            };
            let time = offer.service.step.0;
            tester.step = format!("{} {}", offer.service.name, step.name);
            let (judged, stop) = run_trial(tester, step.load, time);
            let told = judged.map(|judged| judge_step(offer, &step, &judged));
            result.steps.extend(told);
            stop.map_or(Ok(()), Err)?;
        }
    }
    test_together(tester, result, base, offers)
}

/// Makes a traffic job the target and removes those of other services; jobs without a service continue.
pub(super) fn isolate_job<B: Bench>(tester: &mut Tester<'_, B>, job: usize) {
    let mut plan = tester.base.clone().into_owned();
    let beside = other_jobs(tester.suite, &plan, job);
    plan.traffic = vec![plan.traffic[job].clone()];
    plan.traffic.extend(beside);
    tester.base = Cow::Owned(plan);
    tester.target = TargetJob::Traffic(0);
}

/// Jobs other than this one and those of services.
fn other_jobs(suite: &SuitePlan, base: &Plan, own: usize) -> Vec<TrafficJob> {
    let services = suite.services.iter();
    let taken: Vec<_> = services.map(|s| suite.service_index(base, s)).collect();
    let jobs = base.traffic.iter().enumerate();
    let free = jobs.filter(|(n, _)| *n != own && !taken.contains(&Some(*n)));
    free.map(|(_, job)| job.clone()).collect()
}

/// The performance test: all services at their CIR at the same time, each evaluated against its own guarantees.
fn test_together<B: Bench>(
    tester: &mut Tester<'_, B>,
    result: &mut SuiteResult,
    base: &Plan,
    offers: &[ServiceOffer<'_>],
) -> Result<(), SuiteStop<B::Error>> {
    let Some(longest) = offers.iter().map(|o| o.service.performance.0).max() else {
        return Ok(());
    };
    let (jobs, parts) = share_ways(base, offers, tester.size);
    let mut plan = base.clone();
    let count = jobs.len();
    plan.traffic = jobs;
    plan.traffic
        .extend(other_jobs(tester.suite, base, usize::MAX));
    tester.base = Cow::Owned(plan);
    tester.target = TargetJob::Services(count);
    tester.parts = parts;
    let name = match offers.len() {
        1 => "performance",
        _ => "performance, all services together",
    };
    tester.step = match offers {
        [one] => format!("{} {name}", one.service.name),
        _ => name.to_owned(),
    };
    let sum = offers.iter().map(|offer| offer.cir).sum();
    let (judged, stop) = run_trial(tester, sum, longest);
    let parts = judged.map_or_else(Vec::new, |judged| judged.parts);
    for (offer, part) in offers.iter().zip(&parts) {
        let step = ServiceLoad {
            name: name.to_owned(),
            load: offer.cir,
            kind: StepCriterion::Performance,
        };
        result.steps.push(judge_step(offer, &step, part));
    }
    stop.map_or(Ok(()), Err)
}

/// Jobs that send the frames of all services at their CIR. A port sends for one job, so services with the same path are
/// streams of one job.
fn share_ways(
    base: &Plan,
    offers: &[ServiceOffer<'_>],
    size: Option<&TestSize>,
) -> (Vec<TrafficJob>, Vec<StreamPart>) {
    let mut jobs: Vec<TrafficJob> = Vec::new();
    let parts = offers.iter().map(|offer| {
        let mut own = shape::job_at_load(
            &base.traffic[offer.job],
            TrialAmount::Load(offer.cir),
            None,
            size,
        );
        let name = &offer.service.name;
        let count = own.streams.len();
        for (n, stream) in own.streams.iter_mut().enumerate() {
            stream.name = match count {
                1 => name.clone(),
                _ => format!("{name} {}", n + 1),
            };
        }
        let way = |job: &TrafficJob| (job.tx.clone(), job.rx.clone(), job.bidir);
        let place = jobs.iter().position(|job| way(job) == way(&own));
        let (job, first) = match place {
            Some(place) => (place, jobs[place].streams.len()),
            None => (jobs.len(), 0),
        };
        match place {
            Some(place) => jobs[place].streams.append(&mut own.streams),
            None => jobs.push(own),
        }
        StreamPart {
            name: name.clone(),
            job,
            streams: first..first + count,
            load: offer.cir,
            goal: offer.service.loss.0,
        }
    });
    let parts = parts.collect();
    (jobs, parts)
}

/// Runs a trial. Returns its complete or partial result, and the reason if no other trial can be made.
pub(super) fn run_trial<B: Bench>(
    tester: &mut Tester<'_, B>,
    load: f64,
    time: Duration,
) -> (Option<JudgedTrial>, Option<SuiteStop<B::Error>>) {
    let shape = tester.trial_shape(TrialAmount::Load(load), time, TrialPurpose::Measure);
    tester.last = None;
    match tester.run_trial(&shape, None) {
        Ok(judged) => (Some(judged), None),
        Err(stop) => (tester.last.take(), Some(stop)),
    }
}

/// Verdict on a service from its steps.
fn service_verdict(service: &Service, steps: &[ServiceStep]) -> ServiceResult {
    let own = || steps.iter().filter(|step| step.service == service.name);
    let named = |step: &ServiceStep| format!("{}: {}", step.step, step.reason);
    let is_whole = own().any(|step| step.step.starts_with("performance"));
    let failed = own().find(|step| !step.passed && !step.void);
    let void = own().find(|step| step.void);
    let (verdict, reason) = match (failed, void) {
        (Some(step), _) => (Verdict::Fail, named(step)),
        (None, Some(step)) if is_whole => (Verdict::Invalid, named(step)),
        (None, None) if is_whole => (Verdict::Pass, "as promised".to_owned()),
        (None, _) => (
            Verdict::Incomplete,
            "stopped before all steps were completed".to_owned(),
        ),
    };
    let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    ServiceResult {
        service: service.name.clone(),
        verdict,
        steps: count(own().count()),
        passed: count(own().filter(|step| step.passed).count()),
        reason,
    }
}

/// Evaluates a step against the guarantees of the service.
fn judge_step(offer: &ServiceOffer<'_>, step: &ServiceLoad, judged: &JudgedTrial) -> ServiceStep {
    let &ServiceOffer {
        service, cir, eir, ..
    } = offer;
    let trial = &judged.trial;
    let bits = offer.mean * 8.0;
    let delay = trial.latency_ns;
    let variation = delay.max.zip(delay.min).map(|(max, min)| max - min);
    // Rounding to whole frames at both ends of a step.
    let spare = 2.0 / trial.duration_s.max(1e-3);
    let promised = cir * (1.0 - service.loss.0);
    // Frames dropped by the tester's ports were delivered by the service.
    let dropped = trial.nic_drops as f64 / trial.duration_s.max(1e-3);
    let is_policed = matches!(step.kind, StepCriterion::Excess | StepCriterion::Policing);
    let is_short = is_policed && trial.forwarded + spare < promised;
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
        duration_s: trial.duration_s,
        availability: judged
            .availability
            .filter(|_| step.kind == StepCriterion::Performance),
        passed: false,
        void: not_read || !trial.outcome.is_valid(),
        reason: String::new(),
    };
    let is_unknown = step.kind == StepCriterion::Performance
        && service.availability.is_some()
        && told.availability.is_none();
    let has_limit = service.delay.is_some() || service.variation.is_some();
    let is_late_unknown = has_limit && trial.rx > 0 && delay.max.is_none();
    told.void |= is_unknown || is_late_unknown;
    let most = match step.kind {
        StepCriterion::Policing => (cir + eir) * (1.0 + service.tolerance.0),
        _ => cir + eir,
    };
    let later = |limit: Option<wb_model::units::Span>, ns: Option<i64>| {
        let limit = limit?;
        let ns = ns.filter(|ns| u64::try_from(*ns).unwrap_or(0) > limit.as_nanos())?;
        Some((ns, limit))
    };
    let wrong = match step.kind {
        _ if not_read => Some(format!("void: {}", dropped_by_tester(trial.nic_drops))),
        _ if !trial.outcome.is_valid() => Some(format!("void: {}", trial.reason)),
        _ if is_late_unknown => Some("void: the delay is unknown".to_owned()),
        _ if is_unknown => Some("void: the availability is unknown".to_owned()),
        StepCriterion::Committed | StepCriterion::Performance
            if trial.loss_ratio > service.loss.0 =>
        {
            let lost = trial.lost_by_device();
            Some(format!("{lost} of {} frames lost", trial.tx))
        }
        StepCriterion::Committed | StepCriterion::Performance => later(service.delay, delay.max)
            .map(|(ns, limit)| format!("delay {ns} ns, promised {limit}"))
            .or_else(|| {
                later(service.variation, variation)
                    .map(|(ns, limit)| format!("delay variation {ns} ns, promised {limit}"))
            })
            .or_else(|| {
                let least = service.availability?.0;
                let own = told.availability.filter(|own| *own < least)?;
                let [own, least] = [own, least].map(|share| share * 100.0);
                Some(format!(
                    "available for {own:.3} % of the time, promised {least} %"
                ))
            }),
        StepCriterion::Excess | StepCriterion::Policing if is_short => Some(format!(
            "received {:.0} bit/s, below the CIR of {:.0}",
            told.received_bps,
            cir * bits
        )),
        StepCriterion::Excess | StepCriterion::Policing if trial.forwarded > most + spare => {
            Some(format!(
                "received {:.0} bit/s, above the permitted {:.0}",
                told.received_bps,
                most * bits
            ))
        }
        StepCriterion::Excess | StepCriterion::Policing => None,
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
        let loads = |cir, eir| {
            service_loads(cir, eir)
                .iter()
                .map(|s| s.load)
                .collect::<Vec<_>>()
        };
        assert_eq!(loads(100.0, 50.0), [25.0, 50.0, 75.0, 100.0, 150.0, 162.5]);
        assert_eq!(loads(100.0, 10.0), [25.0, 50.0, 75.0, 100.0, 110.0, 135.0]);
        assert_eq!(loads(100.0, 0.0), [25.0, 50.0, 75.0, 100.0, 125.0]);
    }
}
