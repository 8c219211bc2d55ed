//! Benchmarks: the procedures of `wb_bench` on real ports, with the device's own counters.
//!
//! Each trial is a load of its own ([`crate::load`]). The device is read before it, at an interval
//! while it runs, from a thread of its own, and after it. A reading that fails is counted and ends
//! nothing.

use std::{
    collections::BTreeSet,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use wb_bench::{
    Bench, Cut, Event, Ran, Reading,
    lb::{self, LbEnd},
};
use wb_host::clock::{monotonic_ns, wall_ns};
use wb_model::{
    Plan, PlanError, Verdict,
    bench::{LB_REPORT_SCHEMA, LbLimit, LbPlan, LbReport, LbResult},
};

use crate::{End, Environment, Extras, StartError, View, prepare, probes::Watched, rfc3339};

/// How often a pause looks for signals.
const LOOK: Duration = Duration::from_millis(20);

/// A benchmark that is over.
#[derive(Debug)]
pub struct LbFinished {
    /// What was found.
    pub report: LbReport,
    /// How it ended.
    pub end: End,
}

impl LbFinished {
    /// 0: every test found a limit. 1: one found none. 3: the tester was the limit of all. 4: a fault.
    /// 128 + n after signal n.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match (&self.end, self.report.verdict) {
            (End::Signal(n), _) => u8::try_from(128 + n).unwrap_or(130),
            (End::Fault(_), _) => 4,
            (_, Verdict::Pass | Verdict::Incomplete) => 0,
            (_, Verdict::Fail) => 1,
            (_, Verdict::Invalid) => 3,
        }
    }
}

fn read_all(probes: &[Watched]) -> Reading {
    let mut reading = Reading::default();
    for probe in probes {
        match probe.read() {
            Some(sample) => {
                reading.counters.extend(sample.counters);
                reading.gauges.extend(sample.gauges);
            }
            None => reading.failed += 1,
        }
    }
    reading
}

/// Trials on real ports.
struct Ports<'a> {
    environment: &'a Environment,
    probes: Vec<Watched>,
    every: Duration,
    warnings: BTreeSet<String>,
    observe: &'a mut dyn FnMut(&Event<'_>),
}

/// Reads the device at an interval until `over`.
fn follow(probes: &[Watched], every: Duration, over: &AtomicBool) -> Vec<Reading> {
    let mut readings = Vec::new();
    let mut next = Instant::now() + every;
    while !over.load(Ordering::Acquire) {
        if Instant::now() >= next {
            readings.push(read_all(probes));
            next = Instant::now() + every;
        }
        std::thread::sleep(LOOK);
    }
    readings
}

impl Bench for Ports<'_> {
    type Error = StartError;

    fn run(&mut self, plan: Plan) -> Result<Ran, StartError> {
        let prepared = prepare(plan, self.environment, Extras::default())?;
        self.warnings.extend(prepared.warnings().iter().cloned());
        let mut readings = vec![read_all(&self.probes)];
        let over = AtomicBool::new(false);
        let (probes, every) = (&self.probes, self.every);
        let finished = std::thread::scope(|scope| {
            let follower =
                (!probes.is_empty()).then(|| scope.spawn(|| follow(probes, every, &over)));
            let finished = prepared.run(&mut |_: &View| {});
            over.store(true, Ordering::Release);
            if let Some(Ok(during)) = follower.map(std::thread::ScopedJoinHandle::join) {
                readings.extend(during);
            }
            finished
        })?;
        readings.push(read_all(&self.probes));
        Ok(Ran {
            report: finished.report,
            readings,
            cut: match finished.end {
                End::Completed => None,
                End::Signal(_) => Some(Cut::Signal),
                End::Fault(text) => Some(Cut::Fault(text)),
            },
        })
    }

    fn read(&mut self) -> Reading {
        read_all(&self.probes)
    }

    fn pause(&mut self, time: Duration) {
        let end = Instant::now() + time;
        while Instant::now() < end && !self.is_stopped() {
            std::thread::sleep(LOOK.min(end.saturating_duration_since(Instant::now())));
        }
    }

    fn now_ns(&mut self) -> u64 {
        monotonic_ns()
    }

    fn is_stopped(&mut self) -> bool {
        self.environment.signals.received().is_some()
    }

    fn tell(&mut self, event: &Event<'_>) {
        (self.observe)(event);
    }
}

/// Finds the limits of a load balancer.
///
/// # Errors
/// When nothing could be started: a plan that is wrong, a port that is not there, a missing privilege.
/// What breaks later is in [`LbFinished::end`].
pub fn run_lb(
    plan: &LbPlan,
    environment: &Environment,
    observe: &mut dyn FnMut(&Event<'_>),
) -> Result<LbFinished, StartError> {
    let problems = plan.problems();
    if !problems.is_empty() {
        return Err(PlanError(problems).into());
    }
    let (begin, started) = (monotonic_ns(), rfc3339(wall_ns()));
    let mut ports = Ports {
        environment,
        probes: Watched::open(&plan.device.probes, "device.probe")?,
        every: plan.device.every.0,
        warnings: BTreeSet::new(),
        observe,
    };
    let run = lb::run(&mut ports, plan);
    let end = match run.end {
        LbEnd::Completed => End::Completed,
        LbEnd::Interrupted => End::Signal(environment.signals.received().unwrap_or(2)),
        // What was measured before is worth telling.
        LbEnd::Failed(error) if run.results.iter().all(|r| r.trials.is_empty()) => {
            return Err(error);
        }
        LbEnd::Failed(error) => End::Fault(error.to_string()),
        LbEnd::Broken(text) => End::Fault(text),
    };
    let (verdict, reason) = verdict(plan, &run.results, &end);
    let report = LbReport {
        schema: LB_REPORT_SCHEMA.to_owned(),
        kind: "bench lb".to_owned(),
        verdict,
        reason,
        started,
        elapsed_ns: monotonic_ns().saturating_sub(begin),
        plan: plan.clone(),
        results: run.results,
        probes: ports.probes.iter().map(Watched::report).collect(),
        warnings: ports.warnings.into_iter().chain(run.warnings).collect(),
    };
    Ok(LbFinished { report, end })
}

fn verdict(plan: &LbPlan, results: &[LbResult], end: &End) -> (Verdict, String) {
    let without: Vec<&str> = results
        .iter()
        .filter(|r| r.limit.is_none())
        .map(|r| r.metric.name())
        .collect();
    let late: Vec<&str> = results
        .iter()
        .filter(|r| r.late.is_some())
        .map(|r| r.metric.name())
        .collect();
    let of_device = results
        .iter()
        .filter(|r| r.limited_by == LbLimit::Device)
        .count();
    let device = &plan.device.name;
    match end {
        End::Fault(text) => (Verdict::Invalid, format!("ended by a fault: {text}")),
        End::Signal(_) => (
            Verdict::Incomplete,
            "ended early; this is what was measured until then".to_owned(),
        ),
        End::Completed if !late.is_empty() && late.len() == without.len() => (
            Verdict::Invalid,
            format!(
                "the tester was late, again and again; nothing is known of {device}: {}",
                late.join(", ")
            ),
        ),
        End::Completed if !without.is_empty() => (
            Verdict::Fail,
            format!("no load held: {}", without.join(", ")),
        ),
        End::Completed if results.iter().all(|r| r.limited_by == LbLimit::Tester) => (
            Verdict::Invalid,
            format!("the tester was the limit of all; {device} carries at least this"),
        ),
        End::Completed => (
            Verdict::Pass,
            format!(
                "{of_device} of {} limits are those of {device}, the others at least so high",
                results.len()
            ),
        ),
    }
}
