//! Makes the report of a run: each engine fills its part, and the accounts of all engines give the verdict.

use std::collections::BTreeMap;

use wb_engine::{
    Ended, Outcome,
    clock::clock_report,
    verdict::{self, Evidence},
};
use wb_model::{
    JobKind, LatenessReport, LimitedBy, Plan, Report, Totals, Verdict,
    report::{ClockReport, CriterionReport},
    timeline::Distribution,
};

use crate::environment::environment;

/// Facts about a run from before its start.
pub(crate) struct Known {
    /// The plan with resolved addresses.
    pub(crate) plan: Plan,
    /// Hardware addresses of the neighbours that answered, by port.
    pub(crate) neighbours: BTreeMap<String, BTreeMap<String, String>>,
    pub(crate) warnings: Vec<String>,
    /// True if the report has all distributions at full resolution.
    pub(crate) histograms: bool,
}

/// Completes a report that the engines have filled.
pub(crate) fn complete(
    report: &mut Report,
    run: Known,
    ended: &Ended,
    outcomes: Vec<(JobKind, Outcome)>,
) {
    for port in &mut report.ports {
        let neighbours = run.neighbours.get(&port.name);
        port.neighbours = neighbours.cloned().unwrap_or_default();
    }
    report.criteria = in_order(&run.plan, &outcomes);
    (report.verdict, report.reason) = judge(ended, report, &outcomes, run.plan.is_endless());
    report.limited_by = limited_by(&outcomes);
    report.lateness = lateness(&outcomes);
    report.clock = clock(ended, &outcomes);
    report.environment = environment();
    report.warnings = run.warnings;
    report.warnings.extend(stepped(ended, &outcomes));
    for (_, mut outcome) in outcomes {
        report.warnings.append(&mut outcome.warnings);
        let all = &outcome.distributions;
        report
            .distributions
            .extend(all.iter().map(Distribution::of));
        if run.histograms {
            report.histograms.extend(all.iter().map(Into::into));
        }
    }
    report.plan = run.plan;
}

/// Returns the criteria in the plan's order. The engine that measures a criterion has judged it.
fn in_order(plan: &Plan, all: &[(JobKind, Outcome)]) -> Vec<CriterionReport> {
    let judged = |text: &str| {
        let reports = all.iter().flat_map(|(_, o)| &o.criteria);
        // If several captures judged the criterion, a failed result counts first, then a measured one.
        let reports: Vec<_> = reports.filter(|c| c.criterion == text).collect();
        let failed = reports.iter().find(|c| !c.held);
        let measured = || reports.iter().find(|c| c.measured.is_some());
        failed
            .or_else(measured)
            .or(reports.first())
            .map(|c| (*c).clone())
    };
    let criteria = plan.criteria.iter();
    criteria.filter_map(|c| judged(&c.to_string())).collect()
}

/// Returns the lateness of all workers. What an engine may have caused is decided by the lateness of that engine alone.
fn lateness(all: &[(JobKind, Outcome)]) -> LatenessReport {
    let sum = all.iter().map(|(_, o)| o.late());
    LatenessReport {
        all: sum.fold(Default::default(), |sum, late| {
            wb_model::Lateness::plus(&sum, late)
        }),
        may_have_caused: excuse(all, |o| o.lateness.may_have_caused.as_ref()),
    }
}

/// Returns why the figures say nothing about the device, unless an engine that was in time found a fault too.
fn excuse(all: &[(JobKind, Outcome)], of: fn(&Outcome) -> Option<&String>) -> Option<String> {
    let blames = |o: &Outcome| o.criteria.iter().any(|c| !c.held);
    let found = |o: &Outcome| o.excuse().is_none() && blames(o);
    if all.iter().any(|(_, o)| found(o)) {
        return None;
    }
    all.iter().find_map(|(_, o)| of(o)).cloned()
}

/// Returns why the run measured nothing. A capture needs frames if one of its ports sent some in this run, or if a
/// criterion has nothing to measure without them.
fn nothing(report: &Report, all: &[(JobKind, Outcome)]) -> Option<String> {
    let blank = report.criteria.iter().any(|c| c.measured.is_none());
    let counts = |kind: JobKind| kind != JobKind::Capture || blank;
    let counted = all.iter().filter(|(kind, _)| counts(*kind));
    let own = counted.filter_map(|(_, o)| o.nothing.clone()).next();
    own.or_else(|| {
        let captures = report.capture.iter().chain(report.captures.values());
        let empty = captures
            .filter(|c| c.filter.is_empty() && c.readers.iter().all(|r| r.read_frames == 0));
        let mut ports = empty.flat_map(|c| &c.readers).map(|reader| &reader.port);
        let port = ports.find(|port| has_sent(report, port))?;
        Some(format!(
            "the capture received no frames, although {port} sent some"
        ))
    })
}

/// Returns true if the run sent frames from this port.
fn has_sent(report: &Report, port: &str) -> bool {
    let sent = |totals: &Totals| totals.offered_frames.is_some_and(|n| n > 0);
    let mut jobs = report.jobs.iter();
    let mut loads = report.load.iter().flat_map(|load| &load.jobs);
    jobs.any(|job| job.tx.as_deref() == Some(port) && sent(&job.totals))
        || loads.any(|job| job.port == port && sent(&job.frames))
}

fn judge(
    ended: &Ended,
    report: &Report,
    all: &[(JobKind, Outcome)],
    endless: bool,
) -> (Verdict, String) {
    let first = |of: fn(&Outcome) -> &Option<String>| all.iter().find_map(|(_, o)| of(o).clone());
    let evidence = Evidence {
        incomplete: report.jobs.iter().find_map(|job| job.incomplete.clone()),
        defect: first(|o| &o.defect),
        broken: first(|o| &o.broken),
        excuse: excuse(all, Outcome::excuse),
        nothing: nothing(report, all),
        not_offered: first(|o| &o.not_offered),
        endless,
        has_goals: all.iter().any(|(_, o)| o.has_goals),
        stopped: first(|o| &o.stopped),
        found: match all {
            [(_, only)] => only.found.clone(),
            _ => None,
        },
    };
    verdict::verdict(&ended.end, &report.criteria, evidence)
}

/// Returns a warning about the consequences of a step of the wall clock, if there was one.
fn stepped(ended: &Ended, all: &[(JobKind, Outcome)]) -> Option<String> {
    let depends = match all.iter().any(|(_, o)| o.stamping.wall) {
        true => "times between timestamps may be wrong by as much",
        false => "no result depends on it",
    };
    let step = ended.clock_step_ns;
    (step.unsigned_abs() > 1_000)
        .then(|| format!("the wall clock was stepped by {step} ns during the run; {depends}"))
}

/// Limiting factor of each engine, with the name of the engine if there are several.
fn limited_by(engines: &[(JobKind, Outcome)]) -> LimitedBy {
    if let [(_, only)] = engines {
        return only.limited_by.clone();
    }
    LimitedBy::engines(engines.iter().map(|(kind, outcome)| {
        let job = outcome.job.as_deref().unwrap_or_default();
        (*kind, job, &outcome.limited_by)
    }))
}

fn clock(ended: &Ended, all: &[(JobKind, Outcome)]) -> ClockReport {
    let stampings = || all.iter().map(|(_, o)| &o.stamping);
    let mut rx: Vec<&str> = Vec::new();
    for place in stampings().flat_map(|s| s.rx.split(", ")) {
        if !place.is_empty() && !rx.contains(&place) {
            rx.push(place);
        }
    }
    let tx = stampings().map(|s| &s.tx).find(|t| !t.is_empty());
    let clock = clock_report(ended.clock_step_ns);
    let error = stampings().filter_map(|s| s.error_ns).max();
    ClockReport {
        same_clock: stampings().any(|s| s.same_clock),
        error_ns: error.map(|ns| ns + clock.resolution_ns + clock.read_cost_ns),
        tx_stamp: tx.cloned().unwrap_or_default(),
        rx_stamp: rx.join(", "),
        ..clock
    }
}
