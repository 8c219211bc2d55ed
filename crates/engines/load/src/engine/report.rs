//! Converts the counters of load workers into the report.

use std::collections::BTreeMap;

use crate::{LoadOutcome, LoadSnapshot, LoadTotals, PhaseTotals};
use wb_figures::{Merge, text::time_ns};
use wb_measure::Histogram;
use wb_measure::NamedHistogram;
use wb_model::{
    Lateness, LatenessReport, Limit, Limiter, Totals, counted,
    criteria::Measured,
    lateness::{MISSED, WAS_LATE},
    load::{
        ConnectionTotals, LoadEnd, LoadJob, LoadJobReport, LoadPhaseReport, LoadRate, LoadReport,
        LoadRouteReport, LoadTransport, LoadWorkerReport, PORT_COUNTERS, figures::section,
    },
    report::Rates,
};
use wb_tcp::{Counters, IcmpNews, Latencies};

use super::run::{LoadWorkerSlot, Loads, connections, totals_of};
use wb_engine::{End, Ended, Outcome, Part, Stamping, Times};
use wb_engine::{
    criteria::{self, Offered, Shortfall},
    lateness,
    settle::{
        counted_connections, counted_frames, counted_requests, distributions_of_section,
        error_responses, share,
    },
};
use wb_open::signal_name;

/// Bytes of the FCS, which the counters do not include.
pub(super) const FCS: u64 = 4;
/// Time without the CPU that is longer than any scheduling turn, in ns.
const AWAY_NS: u64 = 100_000_000;
/// Share of busy time above which a worker is the limit.
const BUSY: f64 = 0.95;

/// Facts of one job that the report needs.
struct SettledJob {
    report: LoadJobReport,
    totals: LoadTotals,
}

/// Report of a job, without its workers, routes and link.
fn job_report(plan: &LoadJob, totals: &LoadTotals) -> LoadJobReport {
    let times = |of: fn(&Latencies) -> &Histogram| {
        let all = totals.latencies.as_deref().map(of);
        all.map(wb_measure::Times::from).unwrap_or_default()
    };
    let request_ns = times(|all| &all.answer);
    let request_due_ns = times(|all| &all.since_due);
    LoadJobReport {
        name: plan.name.clone(),
        port: plan.port.clone(),
        end: plan.end,
        transport: plan.transport,
        totals: connections(&totals.counters),
        frames: frames(totals),
        unsent_connections: totals.unsent_connections,
        unsent_requests: totals.unsent_requests,
        waited_requests: totals.waited_requests,
        no_tuple: totals.launch.no_tuple,
        failures: named(totals.failures_by_cause().into_iter()),
        counters: named(totals.counters.fields().chain(of_port(totals))),
        tuples: match plan.end {
            LoadEnd::Client => u64::try_from(plan.tuples()).unwrap_or(u64::MAX),
            LoadEnd::Server => 0,
        },
        connect_ns: times(|all| &all.connect),
        first_byte_ns: times(|all| &all.first_byte),
        since_sent_ns: request_ns.clone(),
        since_due_ns: match request_due_ns.samples {
            0 => request_ns.clone(),
            _ => request_due_ns.clone(),
        },
        request_ns,
        request_due_ns,
        latency_is_estimate: totals.counters.udp_by_order > 0,
        phases: totals.phases.iter().map(phase).collect(),
        ..LoadJobReport::default()
    }
}

/// Fills the report so far.
pub(super) fn fill(run: &Loads, part: &mut Part<'_>) {
    let jobs = run.plan.loads.iter().enumerate();
    let jobs = jobs.map(|(number, plan)| job_so_far(run, number, plan));
    let load = LoadReport {
        jobs: jobs.collect(),
    };
    part.frames(&load.totals(), &Rates::default());
    add(part, load);
}

/// Adds the jobs to the report. HTTP loads over ports have loads too.
fn add(part: &mut Part<'_>, mut load: LoadReport) {
    let all = part.report.load.get_or_insert_default();
    all.jobs.append(&mut load.jobs);
}

fn job_so_far(run: &Loads, number: usize, plan: &LoadJob) -> LoadJobReport {
    let slots = run.slots.iter().filter(|slot| slot.job == number);
    let workers: Vec<(&LoadWorkerSlot, LoadSnapshot)> =
        slots.map(|slot| (slot, slot.read())).collect();
    let sum = LoadSnapshot::sum(workers.iter().map(|(_, seen)| seen));
    let workers = workers.iter().map(|(slot, seen)| LoadWorkerReport {
        queue: slot.queue,
        cpu: slot.cpu,
        totals: connections(&seen.counters),
        tx_frames: seen.tx.sent_frames,
        rx_frames: seen.counters.rx_of_load().0,
        busy: share(seen.busy_ns, seen.at_ns),
        busy_ns: seen.busy_ns,
        longest_turn_ns: seen.longest_turn_ns,
        ..LoadWorkerReport::default()
    });
    LoadJobReport {
        connect_ns: sum.connect.summary().into(),
        first_byte_ns: sum.first_byte.summary().into(),
        request_ns: sum.request.summary().into(),
        workers: workers.collect(),
        ..job_report(plan, &LoadTotals::so_far(&sum))
    }
}

fn settle_job(run: &Loads, ended: &Ended, job: usize) -> SettledJob {
    let plan = &run.plan.loads[job];
    let totals = totals_of(&run.slots, job);
    let outcomes = || {
        let slots = run.slots.iter().filter(|s| s.job == job);
        slots.filter_map(|s| Some((s, s.outcome.as_ref()?)))
    };
    let links = || outcomes().map(|(_, outcome)| outcome);
    let workers = outcomes().map(|(slot, o)| LoadWorkerReport {
        queue: slot.queue,
        cpu: slot.cpu,
        totals: connections(&o.counters),
        tx_frames: o.tx.sent_frames,
        rx_frames: o.counters.rx_of_load().0,
        busy: share(o.busy_ns, o.ns),
        busy_ns: o.busy_ns,
        longest_turn_ns: o.longest_turn_ns,
        lateness: o.lateness,
    });
    // A port that only receives sees no errors, but its interface still counts.
    let mut ports = run.ports.iter();
    let port = ports.find(|port| port.plan.name == plan.port);
    let carrier_downs = port.map(|port| ended.grew(port, "carrier_downs"));
    let report = LoadJobReport {
        routes: routes(plan, links()),
        workers: workers.collect(),
        link_downs: links()
            .map(|o| o.link_downs)
            .max()
            .max(carrier_downs)
            .unwrap_or(0),
        link_down_ns: links().map(|o| o.link_down_ns).max().unwrap_or(0),
        ..job_report(plan, &totals)
    };
    SettledJob { report, totals }
}

/// Returns the answers by route, with answers without a route at the end.
fn routes<'a>(
    plan: &LoadJob,
    outcomes: impl Iterator<Item = &'a LoadOutcome> + Clone,
) -> Vec<LoadRouteReport> {
    let named = plan.routes.iter().map(|r| (r.path.as_str(), r.status));
    let none = (!plan.routes.is_empty()).then_some(("404", 404));
    let all = named.chain(none).enumerate();
    all.map(|(number, (path, status))| LoadRouteReport {
        path: path.to_owned(),
        status,
        answers: outcomes
            .clone()
            .filter_map(|outcome| outcome.routes.get(number))
            .sum(),
    })
    .collect()
}

/// Values of [`PORT_COUNTERS`].
fn of_port(totals: &LoadTotals) -> impl Iterator<Item = (&'static str, u64)> {
    let others = &totals.responder;
    let values = [
        totals.rx.received_frames,
        totals.tx.submitted_frames,
        others.arp_rx,
        others.arp_tx,
        others.icmp_rx,
        others.icmp_tx,
        others.other_rx,
    ];
    PORT_COUNTERS.into_iter().zip(values)
}

/// Keeps the counters that are not 0.
fn named(all: impl Iterator<Item = (&'static str, u64)>) -> BTreeMap<String, u64> {
    all.filter(|(_, n)| *n > 0)
        .map(|(name, n)| (name.to_owned(), n))
        .collect()
}

/// Frames of the load. The counters include frames that the device refused, because TCP detects their loss. These
/// totals exclude such frames.
fn frames(totals: &LoadTotals) -> Totals {
    let (received, octets) = totals.counters.rx_of_load();
    Totals {
        offered_frames: Some(totals.tx.sent_frames),
        offered_octets: Some(totals.tx.sent_octets + FCS * totals.tx.sent_frames),
        received_frames: Some(received),
        received_octets: Some(octets + FCS * received),
        foreign_frames: Some(totals.counters.rx_foreign),
        rx_dropped_frames: Some(totals.rx.dropped_frames),
        refused_frames: Some(totals.tx.refused_frames),
        ..Totals::default()
    }
}

fn phase(p: &PhaseTotals) -> LoadPhaseReport {
    let c = &p.counters;
    let (rx_frames, rx_octets) = c.rx_of_load();
    let bits = |octets: u64, frames: u64| 8.0 * p.per_second(octets + FCS * frames);
    LoadPhaseReport {
        phase: p.phase.name().to_owned(),
        from_ns: p.from_ns,
        to_ns: p.to_ns,
        totals: connections(c),
        unsent_connections: p.launch.unsent + p.launch.no_tuple,
        cps: p.per_second(c.attempted),
        established_cps: p.per_second(c.established),
        rps: p.per_second(c.requests),
        responses_rps: p.per_second(c.responses),
        tx_pps: p.per_second(c.tx_frames),
        rx_pps: p.per_second(rx_frames),
        tx_bps: bits(c.tx_octets, c.tx_frames),
        rx_bps: bits(rx_octets, rx_frames),
    }
}

/// Settles the account of all loads.
pub(super) fn settle(run: &Loads, part: &mut Part<'_>, ended: &Ended) -> Outcome {
    let settled: Vec<SettledJob> = (0..run.plan.loads.len())
        .map(|job| settle_job(run, ended, job))
        .collect();
    let shown = match settled.iter().any(|s| s.report.end == LoadEnd::Client) {
        true => LoadEnd::Client,
        false => LoadEnd::Server,
    };
    let of_shown = || settled.iter().filter(|s| s.report.end == shown);
    let all = together(of_shown());
    let (totals, latency) = (all.totals(), *all.request_ns);
    let connections = totals.connections.unwrap_or_default();
    let judged = criteria::judge(&run.plan, |job| match job {
        None => together(of_shown()),
        Some(name) => together(settled.iter().filter(|s| s.report.name == name)),
    });
    let unsent: u64 = of_shown()
        .map(|s| s.report.unsent_connections + s.report.unsent_requests + s.report.waited_requests)
        .sum();
    let offered = connections.attempted_connections + connections.requests;
    let reports: Vec<&LoadJobReport> = of_shown().map(|s| &s.report).collect();
    let short = Shortfall::of(&run.plan, reports.iter().flat_map(|job| loads_of(job)))
        .filter(|_| ended.end == End::Completed && !run.has_stop_command());
    let trial = lateness::Trial {
        judged: &judged,
        totals: &totals,
        intended: Some(offered + unsent),
        offered,
        short: short.as_ref(),
        rates_over_ns: Some(ended.elapsed_ns),
    };
    let lateness = lateness::consider(&trial, lateness_of(&settled));
    let mut warnings = warnings(&settled, &run.plan.loads);
    warnings.extend(trial.warning(&lateness.all));
    warnings.extend(error_responses(
        connections.error_responses,
        connections.responses,
    ));
    let limited_by = limited_by(run, ended, &settled, shown, &lateness);
    let rx = times_end(&settled).to_owned();
    let reports = settled.iter().map(|s| s.report.clone());
    let load = LoadReport {
        jobs: reports.collect(),
    };
    part.frames(&totals, &load.rates());
    part.times(Times {
        latency,
        percentile_error: Histogram::RELATIVE_ERROR,
        ..Times::default()
    });
    run.ports
        .iter()
        .for_each(|port| part.port(ended.port(port)));
    let outcome = Outcome {
        distributions: distributions(&settled, shown),
        not_offered: short.map(|short| short.because(&limited_by.to_string())),
        limited_by: limited_by.into(),
        defect: defect(&totals, &settled),
        nothing: nothing_done(&settled, &run.plan.loads, shown),
        stopped: run
            .has_stop_command()
            .then(|| "ended early by stop (--control)".to_owned()),
        criteria: criteria::reports(judged),
        lateness,
        warnings,
        stamping: Stamping {
            same_clock: true,
            wall: false,
            error_ns: None,
            tx: "user, when the request is handed over".to_owned(),
            rx,
        },
        ..Outcome::default()
    };
    add(part, load);
    outcome
}

/// Name of the moment at which response times end, for reports.
fn times_end(settled: &[SettledJob]) -> &'static str {
    match settled.iter().any(|s| s.totals.unstamped) {
        true => "user, when the response is read",
        false => "kernel, when the response arrived",
    }
}

/// Some of the jobs as one.
fn together<'a>(jobs: impl Iterator<Item = &'a SettledJob>) -> LoadJobReport {
    let mut all = LoadJobReport::default();
    jobs.for_each(|s| all.merge(&s.report));
    all
}

/// Distributions of times: of all jobs of the shown end together and, if there are several, of each; of each job of the
/// other end.
fn distributions(settled: &[SettledJob], shown: LoadEnd) -> Vec<NamedHistogram> {
    let of_shown = || settled.iter().filter(|s| s.report.end == shown);
    let several = of_shown().count() > 1;
    let mut list = distributions_of_section(&section(&together(of_shown())), "");
    for SettledJob { report, .. } in settled.iter().filter(|s| several || s.report.end != shown) {
        list.extend(distributions_of_section(&section(report), &report.name));
    }
    list
}

/// Lateness of all workers of both ends.
fn lateness_of(settled: &[SettledJob]) -> Lateness {
    let workers = settled.iter().flat_map(|s| &s.report.workers);
    workers.fold(Lateness::default(), |sum, w| sum.plus(&w.lateness))
}

fn defect(totals: &Totals, settled: &[SettledJob]) -> Option<String> {
    let adds_up = |s: &SettledJob| section(&s.report).wrong().next().is_none();
    let wrong = !totals.adds_up() || !settled.iter().all(adds_up);
    wrong.then(|| {
        "the connection or request counts do not add up; this is a bug in wirebench".to_owned()
    })
}

/// Connections and requests that a job should have begun, and those that it began.
fn loads_of(job: &LoadJobReport) -> [Offered<'_>; 2] {
    let of = |offered: u64, missing: u64| Offered {
        job: &job.name,
        intended: offered + missing,
        offered,
    };
    let totals = &job.totals;
    [
        of(totals.attempted_connections, job.unsent_connections),
        of(totals.requests, job.unsent_requests + job.waited_requests),
    ]
}

/// Returns why the load measured nothing: no connection was established, or no request completed. A flood waits for no
/// answers.
fn nothing_done(settled: &[SettledJob], plans: &[LoadJob], shown: LoadEnd) -> Option<String> {
    let jobs: Vec<(&LoadJobReport, bool)> = settled
        .iter()
        .zip(plans)
        .map(|(s, plan)| (&s.report, plan.flood))
        .filter(|(job, _)| job.end == shown)
        .collect();
    let because = |&(job, floods): &(&LoadJobReport, bool)| {
        let t = &job.totals;
        let why = match (shown, t.attempted_connections) {
            (LoadEnd::Server, 0) => "no connection was received".to_owned(),
            (LoadEnd::Server, _) => return None,
            (LoadEnd::Client, 0) => "no connection was attempted".to_owned(),
            _ if floods => return None,
            (LoadEnd::Client, n) if t.established_connections == 0 => {
                let attempted = counted(n, "was", "were");
                format!("no connection was established: {attempted} attempted")
            }
            _ if t.requests == 0 && t.completed_connections == 0 && t.failed_connections > 0 => {
                format!(
                    "no connection completed: {} of {} failed",
                    t.failed_connections, t.attempted_connections
                )
            }
            _ if t.requests > 0 && t.responses == 0 => {
                let sent = counted(t.requests, "was", "were");
                format!("no request completed: {sent} sent")
            }
            _ => return None,
        };
        Some(match jobs.len() {
            1 => why,
            _ => format!("{}: {why}", job.name),
        })
    };
    jobs.iter().find_map(because)
}

/// Returns the limiting factor of the load.
fn limited_by(
    run: &Loads,
    ended: &Ended,
    settled: &[SettledJob],
    shown: LoadEnd,
    lateness: &LatenessReport,
) -> Limit {
    let ended_by = |who: String| Limiter::Ended(who).because("ended the run");
    match &ended.end {
        End::Signal(n) => return ended_by(signal_name(*n)),
        End::Fault(text) => return Limiter::Fault.because(text),
        End::Completed => {}
    }
    if run.has_stop_command() {
        return ended_by("stop (--control)".to_owned());
    }
    limit_of_completed(
        settled,
        &run.plan.loads,
        run.last_answer_ns(),
        shown,
        lateness,
    )
}

/// Returns the limit of a load that ran to its end.
fn limit_of_completed(
    settled: &[SettledJob],
    plans: &[LoadJob],
    last_answer_ns: u64,
    shown: LoadEnd,
    lateness: &LatenessReport,
) -> Limit {
    let of_shown = || settled.iter().filter(|s| s.report.end == shown);
    let unsent: u64 = of_shown().map(|s| s.report.unsent_connections).sum();
    let unasked: u64 = of_shown().map(|s| s.report.unsent_requests).sum();
    let busiest = of_shown()
        .flat_map(|s| s.report.workers.iter().map(|w| w.busy))
        .fold(0.0, f64::max);
    if of_shown().any(|s| s.report.no_tuple > 0) {
        return Limiter::Plan.because(
            "all combinations of addresses and ports were in use; add addresses or ports",
        );
    }
    if let Some(why) = nothing_done(settled, plans, shown) {
        let is_zero = |job: &LoadJob| {
            let LoadRate {
                cps,
                cc,
                rps,
                pps,
                bps,
                ..
            } = job.rate;
            [cps, cc, rps, pps, bps].contains(&Some(0))
        };
        return match plans.iter().any(is_zero) && shown == LoadEnd::Client {
            true => Limiter::Plan.because("the requested rate is 0"),
            false => Limiter::FarEnd.because(why),
        };
    }
    if let Some(reason) = &lateness.may_have_caused {
        return Limiter::Tester.because(reason.replacen(WAS_LATE, "late", 1));
    }
    if unsent + unasked > 0 && lateness.all.missed_departures > (unsent + unasked) / 2 {
        return Limiter::Tester.because(format!(
            "stalled for {} in total; {} and {} due but not sent",
            time_ns(lateness.all.stalled_ns as f64),
            counted_connections(unsent),
            counted_requests(unasked)
        ));
    }
    if unsent + unasked > 0 || busiest > BUSY {
        return Limiter::Tester.because(format!(
            "busiest worker {:.0} % busy; {} and {} due but not sent",
            busiest * 100.0,
            counted_connections(unsent),
            counted_requests(unasked)
        ));
    }
    let waited: u64 = of_shown().map(|s| s.report.waited_requests).sum();
    if waited > 0 && lateness.all.missed_departures > waited / 2 {
        return Limiter::Tester.because(format!(
            "stalled for {} in total; {} due while all connections waited for responses, which the tester may have read late",
            time_ns(lateness.all.stalled_ns as f64),
            counted_requests(waited)
        ));
    }
    if waited > 0 {
        return Limiter::FarEnd.because(format!(
            "{} due while all connections waited for responses",
            counted_requests(waited)
        ));
    }
    if let Some(why) = of_shown().find_map(|s| stands_still(&s.report, last_answer_ns)) {
        return Limiter::Path.because(why);
    }
    let flooded = plans.iter().any(|plan| plan.flood);
    let sum = of_shown().fold(ConnectionTotals::default(), |sum, s| {
        sum.plus(&s.report.totals)
    });
    if let Some(why) = unanswered(&sum).filter(|_| shown == LoadEnd::Client && !flooded) {
        return Limiter::FarEnd.because(why);
    }
    Limiter::Plan.because("requested load")
}

/// Returns what the device or the far end left undone, if that is more than 2 % of the load.
#[allow(clippy::cast_precision_loss)]
fn unanswered(sum: &ConnectionTotals) -> Option<String> {
    let is_much = |part: u64, whole: u64| part as f64 > whole as f64 * MISSED;
    let (requests, attempted) = (sum.requests, sum.attempted_connections);
    let missing = requests.saturating_sub(sum.responses + sum.unawaited_requests);
    let (failed, open) = (sum.failed_connections, sum.open_connections);
    if is_much(missing, requests) {
        Some(format!(
            "{missing} of {requests} requests without a response"
        ))
    } else if is_much(failed + open, attempted) {
        Some(format!(
            "{} attempted, {failed} failed, {open} open at the end",
            counted_connections(attempted)
        ))
    } else {
        None
    }
}

/// Shortest time without an answer that is reported, ns.
const STILL_NS: u64 = 1_000_000_000;

/// Returns why a client stopped making progress: answers are missing, and none has arrived for the last second or more
/// of its duration.
fn stands_still(job: &LoadJobReport, last_answer_ns: u64) -> Option<String> {
    let t = &job.totals;
    let missing = t
        .requests
        .saturating_sub(t.responses + t.unawaited_requests);
    let end_ns = job.phases.iter().find(|p| p.phase == "steady")?.to_ns;
    let still = end_ns.saturating_sub(last_answer_ns) >= STILL_NS;
    (job.end == LoadEnd::Client && missing > 0 && still).then(|| {
        format!(
            "no progress after {:.1} s: {} without a response",
            last_answer_ns as f64 / 1e9,
            counted_requests(missing)
        )
    })
}

fn warnings(settled: &[SettledJob], plans: &[LoadJob]) -> Vec<String> {
    let mut warnings = Vec::new();
    for (s, plan) in settled.iter().zip(plans) {
        let (job, counters) = (&s.report, &s.totals.counters);
        let mut say = |text: String| warnings.push(format!("{}: {text}", job.name));
        if job.link_downs > 0 {
            let times = match job.link_downs {
                1 => "once".to_owned(),
                n => format!("{n} times"),
            };
            let long = match job.link_down_ns / 1_000_000 {
                0 => String::new(),
                ms => format!(", for {ms} ms in total"),
            };
            say(format!("the link went down {times} during the run{long}"));
        }
        if let Some(ns) = away(job) {
            say(format!(
                "a worker stalled for {}: the tester had too little CPU time",
                time_ns(ns as f64)
            ));
        }
        if s.totals.rx.dropped_frames > 0 {
            say(format!(
                "{} dropped because rings were full: the tester was too slow",
                counted(
                    s.totals.rx.dropped_frames,
                    "received frame was",
                    "received frames were"
                )
            ));
        }
        if counters.rx_malformed > 0 {
            say(format!(
                "{} truncated or malformed",
                counted(counters.rx_malformed, "packet was", "packets were")
            ));
        }
        if counters.rx_bad_checksum > 0 {
            say(format!(
                "{} ignored for a wrong IP, TCP or UDP checksum: the device or the path corrupts packets",
                counted(counters.rx_bad_checksum, "packet", "packets")
            ));
        }
        let late: u64 = job.workers.iter().map(|w| w.lateness.late_reads).sum();
        if s.totals.unstamped && late > 0 && plan.end == LoadEnd::Client {
            say(format!(
                "{} read late, without kernel timestamps: response times include the delay",
                counted_frames(late)
            ));
        }
        icmp(&s.totals.icmp, plan).into_iter().for_each(&mut say);
        udp_doubts(counters).into_iter().for_each(&mut say);
        // Replies to a flood belong to no known connection.
        if !plan.flood {
            unknown(counters).into_iter().for_each(say);
        }
    }
    warnings
}

/// Warnings about ICMP errors that routers and hosts sent about our packets.
fn icmp(news: &IcmpNews, plan: &LoadJob) -> Vec<String> {
    let mut warnings = Vec::new();
    for ((version, code), n) in &news.unreachable {
        let name = match version {
            4 => "ICMP",
            _ => "ICMPv6",
        };
        warnings.push(format!(
            "{}: destination unreachable, code {code} ({})",
            counted(n, &format!("{name} message"), &format!("{name} messages")),
            unreachable(*version, *code)
        ));
    }
    if news.too_big > 0 {
        let what = match plan.transport {
            LoadTransport::Tcp => "the segment size was reduced",
            LoadTransport::Udp => "larger datagrams are lost; use smaller messages",
        };
        warnings.push(format!(
            "the path MTU is {} bytes, as reported by {}: {what}",
            news.least_mtu,
            counted(news.too_big, "ICMP message", "ICMP messages")
        ));
    }
    warnings
}

/// Meaning of a code of "destination unreachable": RFC 792, RFC 1122 section 3.2.2.1, RFC 1812 section
/// 5.2.7.1, RFC 4443 section 3.1.
fn unreachable(version: u8, code: u8) -> &'static str {
    match (version, code) {
        (4, 0) => "network unreachable",
        (4, 1) | (6, 3) => "host unreachable",
        (4, 2) => "protocol unreachable",
        (4, 3) | (6, 4) => "port unreachable",
        (4, 9 | 10 | 13) | (6, 1) => "administratively prohibited",
        (6, 0) => "no route",
        _ => "other",
    }
}

/// Warnings about answers that do not identify their requests, and about requests for which the client waited less long
/// than the plan asked.
fn udp_doubts(c: &Counters) -> Vec<String> {
    let mut doubts = Vec::new();
    if c.udp_by_order > 0 {
        doubts.push(format!(
            "{} of {} without the number of the request, matched to the oldest request; latencies and counts of lost and late responses are estimates",
            c.udp_by_order,
            counted(c.responses, "response", "responses")
        ));
    }
    if c.udp_given_up > 0 {
        doubts.push(format!(
            "{} counted as lost before the timeout, because too many were in flight",
            counted(c.udp_given_up, "request was", "requests were")
        ));
    }
    doubts
}

/// Returns the longest time, in ns, that a worker had no CPU, if it is long enough to be reported.
fn away(job: &LoadJobReport) -> Option<u64> {
    let began = job
        .phases
        .iter()
        .filter(|p| p.phase == "ready" && job.end == LoadEnd::Client)
        .map(|p| p.to_ns);
    let turns = job.workers.iter().map(|w| w.longest_turn_ns);
    began.chain(turns).max().filter(|ns| *ns > AWAY_NS)
}

fn unknown(c: &Counters) -> Option<String> {
    let strange = c.drop_unknown + c.drop_datagram;
    (strange > c.attempted / 100 && strange > 10).then(|| {
        format!(
            "{strange} packets belonged to no connection: late or duplicate packets of closed connections"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    /// A client with 5,000 requests in 10 s, of which `missing` have no answer.
    fn client(missing: u64) -> LoadJobReport {
        LoadJobReport {
            name: "client 1".to_owned(),
            end: LoadEnd::Client,
            transport: LoadTransport::Udp,
            totals: ConnectionTotals {
                attempted_connections: 10,
                established_connections: 10,
                completed_connections: 10,
                requests: 5000,
                responses: 5000 - missing,
                ..ConnectionTotals::default()
            },
            phases: vec![LoadPhaseReport {
                phase: "steady".to_owned(),
                to_ns: 10 * S,
                ..LoadPhaseReport::default()
            }],
            ..LoadJobReport::default()
        }
    }

    /// Returns the limit of a load with this time of its last answer and this lateness of the tester.
    fn limit(report: LoadJobReport, last_answer_ns: u64, late: Lateness) -> Limit {
        let settled = [SettledJob {
            report,
            totals: LoadTotals::default(),
        }];
        let plans = [LoadJob::default()];
        let late = LatenessReport {
            all: late,
            may_have_caused: None,
        };
        limit_of_completed(&settled, &plans, last_answer_ns, LoadEnd::Client, &late)
    }

    #[test]
    fn a_pipeline_that_stands_still_is_limited_by_the_path_since_its_last_answer() {
        let of = |missing, last| limit(client(missing), last, Lateness::default());
        let still = of(100, 4 * S);
        assert_eq!(still.by, Limiter::Path);
        assert_eq!(
            still.why,
            "no progress after 4.0 s: 100 requests without a response"
        );
        // All requests were answered, or answers arrived until the end.
        for moving in [of(0, 4 * S), of(100, 9 * S + 1)] {
            assert_eq!(moving.by, Limiter::Plan, "{}", moving.why);
        }
    }

    #[test]
    fn what_the_far_end_left_undone_is_no_limit_of_the_plan() {
        let of = |report| limit(report, 10 * S, Lateness::default());
        let found = of(client(2_870));
        assert_eq!(found.by, Limiter::FarEnd);
        assert_eq!(found.why, "2870 of 5000 requests without a response");
        let mut unfinished = client(0);
        unfinished.totals.completed_connections = 7;
        unfinished.totals.failed_connections = 1;
        unfinished.totals.open_connections = 2;
        let found = of(unfinished);
        assert_eq!(found.by, Limiter::FarEnd);
        assert_eq!(
            found.why,
            "10 connections attempted, 1 failed, 2 open at the end"
        );
    }

    #[test]
    fn stalls_limit_a_load_only_if_something_was_not_sent() {
        let late = || Lateness {
            stalls: 4,
            stalled_ns: 1_093_000_000,
            largest_gap_ns: 800_000_000,
            late_departures: 900,
            missed_departures: 7,
            ..Lateness::default()
        };
        assert_eq!(limit(client(0), 10 * S, late()).by, Limiter::Plan);
        for (unsent_connections, unsent_requests) in [(7, 0), (0, 7)] {
            let unsent = LoadJobReport {
                unsent_connections,
                unsent_requests,
                ..client(0)
            };
            let found = limit(unsent, 10 * S, late());
            assert_eq!(found.by, Limiter::Tester);
            assert!(found.why.contains("stalled for 1.09 s"), "{}", found.why);
        }
    }
}
