//! Makes the report of a run from the accounts of its engines.

use std::collections::BTreeMap;

use wb_model::{
    JobKind, LatenessReport, LimitedBy, REPORT_SCHEMA, Report, Verdict,
    report::{ClockReport, CriterionReport, PortReport},
    timeline::{Distribution, Timeline},
};

use crate::{
    clock::{clock_report, rfc3339},
    engine::{Ended, Settled},
    environment::environment,
    run::Prepared,
    verdict::{self, Evidence},
};

/// Makes the report. Single values come from the first engine that has them. Sections, jobs and workers of all engines
/// are joined.
pub(crate) fn report(
    run: Prepared,
    started_wall_ns: u64,
    timeline: Timeline,
    ended: &Ended,
    engines: Vec<(JobKind, Settled)>,
) -> Report {
    let limited_by = limited_by(&engines);
    let ports = ports(&engines, &run.neighbours);
    let captures = engines
        .iter()
        .filter(|(kind, _)| *kind == JobKind::Capture)
        .count();
    let only_captures = captures == engines.len();
    let all: Vec<Settled> = engines.into_iter().map(|(_, settled)| settled).collect();
    let endless = run.plan.is_endless();
    let criteria = in_order(&run, &all);
    let lateness = lateness(&all);
    let (verdict, reason) = judge(ended, &criteria, &all, endless);
    let clock = clock(ended, &all);
    let mut warnings = run.warnings;
    warnings.extend(stepped(ended, &all));
    let mut rest = all.into_iter();
    let mut sum = rest.next().unwrap_or_default();
    let mut sections = Vec::from_iter(sum.capture.take());
    warnings.append(&mut sum.warnings);
    for mut other in rest {
        sum.totals.connections = sum.totals.connections.or(other.totals.connections);
        sum.jobs.append(&mut other.jobs);
        sum.flows.append(&mut other.flows);
        sum.flows_omitted += other.flows_omitted;
        sum.first_flow = sum.first_flow.or(other.first_flow);
        sum.workers.append(&mut other.workers);
        sections.extend(other.capture);
        if only_captures {
            sum.totals = sum.totals.plus(&other.totals);
            sum.rates.received_pps = plus(sum.rates.received_pps, other.rates.received_pps);
            sum.rates.received_l2_bps =
                plus(sum.rates.received_l2_bps, other.rates.received_l2_bps);
        }
        match (&mut sum.load, other.load) {
            // HTTP loads over ports have loads too.
            (Some(load), Some(mut other)) => load.jobs.append(&mut other.jobs),
            (load, other) => *load = load.take().or(other),
        }
        sum.http = sum.http.or(other.http);
        sum.socket = sum.socket.or(other.socket);
        sum.probes.append(&mut other.probes);
        sum.results.append(&mut other.results);
        sum.distributions.append(&mut other.distributions);
        warnings.append(&mut other.warnings);
    }
    let (capture, captures) = match captures {
        0 | 1 => (sections.pop(), BTreeMap::new()),
        _ => {
            let names = run.plan.captures.iter().map(|job| job.name.clone());
            (None, names.zip(sections).collect())
        }
    };
    Report {
        schema: REPORT_SCHEMA.to_owned(),
        kind: run.plan.kind.clone(),
        verdict,
        reason,
        limited_by,
        started: rfc3339(started_wall_ns),
        elapsed_ns: ended.elapsed_ns,
        plan: run.plan,
        first_flow: sum.first_flow,
        totals: sum.totals,
        rates: sum.rates,
        latency_ns: sum.times.latency,
        jitter_ns: sum.times.jitter,
        jitter_rfc3550_ns: sum.times.jitter_rfc3550_ns,
        ipdv_ns: sum.times.ipdv,
        pdv_ns: sum.times.pdv,
        inter_arrival_ns: sum.times.inter_arrival,
        inter_departure_ns: sum.times.inter_departure,
        percentile_error: sum.times.percentile_error,
        outages: sum.outages,
        jobs: sum.jobs,
        flows: sum.flows,
        flows_omitted: sum.flows_omitted,
        workers: sum.workers,
        ports,
        criteria,
        capture,
        captures,
        load: sum.load,
        http: sum.http,
        socket: sum.socket,
        probes: sum.probes,
        results: sum.results,
        lateness,
        clock,
        environment: environment(),
        timeline,
        distributions: sum.distributions.iter().map(Distribution::of).collect(),
        histograms: match run.histograms {
            true => sum.distributions.iter().map(Into::into).collect(),
            false => Vec::new(),
        },
        warnings,
        merged: Vec::new(),
    }
}

fn plus(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    a.zip(b).map(|(a, b)| a + b).or(a).or(b)
}

/// Returns each port once, as the first engine opened it. If a port has several users, the list of users shows each
/// one.
fn ports(
    engines: &[(JobKind, Settled)],
    neighbours: &BTreeMap<String, BTreeMap<String, String>>,
) -> Vec<PortReport> {
    let mut ports: Vec<PortReport> = Vec::new();
    let all = engines.iter();
    for (kind, port) in all.flat_map(|(kind, s)| s.ports.iter().map(move |port| (kind, port))) {
        let mut users = port.users.clone();
        for user in &mut users {
            user.jobs = kind.called(&user.jobs);
        }
        match ports.iter_mut().find(|known| known.name == port.name) {
            Some(known) => known.users.append(&mut users),
            None => ports.push(PortReport {
                neighbours: neighbours.get(&port.name).cloned().unwrap_or_default(),
                users,
                ..port.clone()
            }),
        }
    }
    for port in ports.iter_mut().filter(|port| port.users.len() == 1) {
        port.users.clear();
    }
    ports
}

/// Returns the criteria in the plan's order. The engine that measures a criterion has judged it.
fn in_order(run: &Prepared, all: &[Settled]) -> Vec<CriterionReport> {
    let judged = |text: &str| {
        let reports = all.iter().flat_map(|s| &s.criteria);
        // If several captures judged the criterion, a failed result counts first, then a measured one.
        let reports: Vec<_> = reports.filter(|c| c.criterion == text).collect();
        let failed = reports.iter().find(|c| !c.held);
        let measured = || reports.iter().find(|c| c.measured.is_some());
        failed
            .or_else(measured)
            .or(reports.first())
            .map(|c| (*c).clone())
    };
    let criteria = run.plan.criteria.iter();
    criteria.filter_map(|c| judged(&c.to_string())).collect()
}

/// Returns the lateness of all workers. What an engine may have caused is decided by the lateness of that engine alone.
fn lateness(all: &[Settled]) -> LatenessReport {
    let sum = all.iter().map(|s| s.late());
    LatenessReport {
        all: sum.fold(Default::default(), |sum, late| {
            wb_model::Lateness::plus(&sum, late)
        }),
        may_have_caused: excuse(all, |s| s.lateness.may_have_caused.as_ref()),
    }
}

/// Returns why the figures say nothing about the device, unless an engine that was in time found a fault too.
fn excuse(all: &[Settled], of: fn(&Settled) -> Option<&String>) -> Option<String> {
    let blames = |s: &Settled| s.criteria.iter().any(|c| !c.held);
    let found = |s: &&Settled| s.excuse().is_none() && blames(s);
    if all.iter().any(|s| found(&s)) {
        return None;
    }
    all.iter().find_map(of).cloned()
}

/// Returns why the run measured nothing. A capture needs frames if one of its ports sent some in this run, or if a
/// criterion has nothing to measure without them.
fn nothing(criteria: &[CriterionReport], all: &[Settled]) -> Option<String> {
    let blank = criteria.iter().any(|c| c.measured.is_none());
    let counts = |s: &&Settled| s.capture.is_none() || blank;
    let own = all.iter().filter(counts).find_map(|s| s.nothing.clone());
    own.or_else(|| {
        let unseen = |s: &&Settled| {
            let capture = s.capture.as_ref()?;
            let empty = s.totals.received_frames == Some(0) && capture.filter.is_empty();
            let mut ports = s.ports.iter().filter(|_| empty);
            let port = ports.find(|port| all.iter().any(|other| other.sent_from(&port.name)))?;
            Some(format!(
                "the capture received no frames, although {} sent some",
                port.name
            ))
        };
        all.iter().find_map(|s| unseen(&s))
    })
}

fn judge(
    ended: &Ended,
    criteria: &[CriterionReport],
    all: &[Settled],
    endless: bool,
) -> (Verdict, String) {
    let first =
        |of: fn(&Settled) -> &Option<String>| all.iter().find_map(|settled| of(settled).clone());
    let evidence = Evidence {
        defect: first(|s| &s.defect),
        broken: first(|s| &s.broken),
        excuse: excuse(all, Settled::excuse),
        nothing: nothing(criteria, all),
        not_offered: first(|s| &s.not_offered),
        endless,
        has_goals: all.iter().any(|s| s.has_goals),
        stopped: first(|s| &s.stopped),
        found: match all {
            [only] => only.found.clone(),
            _ => None,
        },
    };
    verdict::verdict(&ended.end, criteria, evidence)
}

/// Returns a warning about the consequences of a step of the wall clock, if there was one.
fn stepped(ended: &Ended, all: &[Settled]) -> Option<String> {
    let depends = match all.iter().any(|s| s.stamping.wall) {
        true => "times between timestamps may be wrong by as much",
        false => "no result depends on it",
    };
    let step = ended.clock_step_ns;
    (step.unsigned_abs() > 1_000)
        .then(|| format!("the wall clock was stepped by {step} ns during the run; {depends}"))
}

/// Limiting factor of each engine, with the name of the engine if there are several.
fn limited_by(engines: &[(JobKind, Settled)]) -> LimitedBy {
    if let [(_, only)] = engines {
        return only.limited_by.clone();
    }
    LimitedBy::engines(engines.iter().map(|(kind, settled)| {
        let job = settled.job.as_deref().unwrap_or_default();
        (*kind, job, &settled.limited_by)
    }))
}

fn clock(ended: &Ended, all: &[Settled]) -> ClockReport {
    let mut rx: Vec<&str> = Vec::new();
    for place in all.iter().flat_map(|s| s.stamping.rx.split(", ")) {
        if !place.is_empty() && !rx.contains(&place) {
            rx.push(place);
        }
    }
    let tx = all.iter().map(|s| &s.stamping.tx).find(|t| !t.is_empty());
    let clock = clock_report(ended.clock_step_ns);
    let error = all.iter().filter_map(|s| s.stamping.error_ns).max();
    ClockReport {
        same_clock: all.iter().any(|s| s.stamping.same_clock),
        error_ns: error.map(|ns| ns + clock.resolution_ns + clock.read_cost_ns),
        tx_stamp: tx.cloned().unwrap_or_default(),
        rx_stamp: rx.join(", "),
        ..clock
    }
}
