//! Converts the measurements of HTTP load threads into the report.

use std::collections::{BTreeMap, BTreeSet};

use crate::HttpThreadOutcome;
use wb_figures::{Merge, text::time_ns};
use wb_measure::Histogram;
use wb_model::{
    Lateness, Limit, Limiter, Plan, Summary, Totals, counted,
    http::{
        ExactTimes, Http2Report, Http3Report, HttpJob, HttpJobReport, HttpReport,
        HttpRequestReport, HttpThreadReport, HttpTlsReport, HttpTotals, HttpVersion,
        figures::section,
    },
    lateness::{MISSED, WAS_LATE},
};

use super::sum;
use wb_engine::{End, Ended, Outcome, Part, Stamping, Times};
use wb_engine::{
    criteria::{self, Offered, Shortfall},
    lateness,
    settle::{
        counted_connections, counted_requests, distributions_of_section, error_responses, share,
    },
};
use wb_open::signal_name;

/// Share of its CPU from which on a thread counts as saturated.
const BUSY: f64 = 0.95;

/// Transport of the connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Via {
    /// Sockets of the kernel.
    Sockets,
    /// The tester's own TCP.
    Port,
}

/// Facts about a job that are known before it runs.
pub struct HttpJobFacts {
    /// Addresses of the servers.
    pub addresses: Vec<String>,
    /// Names of the job's requests.
    pub names: Vec<String>,
    /// Connections of each thread.
    pub connections: Vec<u32>,
    /// Transport of the connections.
    pub via: Via,
}

/// Report of a job so far.
pub fn so_far(plan: &HttpJob, totals: HttpTotals, latency: Summary) -> HttpJobReport {
    HttpJobReport {
        name: plan.name.clone(),
        url: plan.url.clone(),
        totals,
        latency_ns: latency.into(),
        ..HttpJobReport::default()
    }
}

/// Fills the report, and settles the account of the jobs.
pub fn settle(
    plan: &Plan,
    jobs: &[HttpJobFacts],
    outcomes: Vec<Vec<HttpThreadOutcome>>,
    part: &mut Part<'_>,
    ended: &Ended,
) -> Outcome {
    let settled: Vec<HttpJobReport> = plan
        .http_jobs
        .iter()
        .zip(jobs)
        .zip(&outcomes)
        .map(|((plan, job), threads)| settle_job(plan, job, threads, ended))
        .collect();
    let judged = criteria::judge(plan, |job| {
        let jobs = settled.iter();
        together(jobs.filter(|t| job.is_none_or(|name| t.name == name)))
    });
    let late = outcomes.iter().flatten().map(|o| o.lateness);
    let late = late.fold(Lateness::default(), |a, b| a.plus(&b));
    let all = sum(settled.iter().map(|t| t.totals));
    let offered = settled.iter().map(|t| Offered {
        job: &t.name,
        intended: t.totals.sent + t.totals.unsent,
        offered: t.totals.sent,
    });
    let short = Shortfall::of(plan, offered).filter(|_| ended.end == End::Completed);
    let trial = lateness::Trial {
        judged: &judged,
        totals: &Totals::default(),
        intended: Some(all.sent + all.unsent),
        offered: all.sent,
        short: short.as_ref(),
        rates_over_ns: Some(ended.elapsed_ns),
    };
    let lateness = lateness::consider(&trial, late);
    let defect = settled.iter().any(|t| section(t).wrong().next().is_some());
    let total = together(settled.iter());
    let via = jobs.first().map_or(Via::Sockets, |job| job.via);
    let (limited_by, mut warnings) = limits(plan, &settled, &outcomes, via, &late);
    let limited_by = match &lateness.may_have_caused {
        _ if let End::Signal(n) = ended.end
            && all.sent + all.unsent == 0 =>
        {
            let by = Limiter::Ended(signal_name(n));
            by.because("ended the run before any request was due")
        }
        // A rate that the tester did not keep is not a limit.
        Some(why) if matches!(limited_by.by, Limiter::Rate | Limiter::Answers) => {
            Limiter::Tester.because(why.replacen(WAS_LATE, "late", 1))
        }
        _ => limited_by,
    };
    warnings.extend(error_responses(all.error_responses, all.completed));
    settled.iter().for_each(|one| warn_of(one, &mut warnings));
    let mut distributions = distributions_of_section(&section(&total), "");
    for one in settled.iter().filter(|_| settled.len() > 1) {
        distributions.extend(distributions_of_section(&section(one), &one.name));
    }
    part.times(Times {
        latency: *total.latency_ns,
        percentile_error: Histogram::RELATIVE_ERROR,
        ..Times::default()
    });
    let nothing = settled.iter().find_map(|one| nothing(one, settled.len()));
    part.report.http = Some(HttpReport {
        jobs: settled,
        ..HttpReport::default()
    });
    Outcome {
        distributions,
        not_offered: short.map(|short| short.because(&limited_by.to_string())),
        criteria: criteria::reports(judged),
        lateness,
        defect: defect
            .then(|| "the request counts do not add up; this is a bug in wirebench".to_owned()),
        nothing,
        limited_by: limited_by.into(),
        stamping: Stamping::by_calls(),
        warnings,
        ..Outcome::default()
    }
}

/// Warns of the first failure of a job, of streams that its server did not allow, and of ports that this host lacked.
fn warn_of(one: &HttpJobReport, warnings: &mut Vec<String>) {
    let name = &one.name;
    if let Some(what) = &one.first_failure {
        warnings.push(format!("{name}: {what}"));
    }
    if let Some(http2) = &one.http2
        && let Some(allowed) = http2.allowed_streams.filter(|n| *n < http2.streams)
    {
        warnings.push(format!(
            "{name}: the server allows {} per connection, {} requested",
            counted(allowed, "concurrent stream", "concurrent streams"),
            http2.streams
        ));
    }
    if let Some(http3) = &one.http3
        && http3.stream_waits > 0
        && http3.most_streams < http3.streams
    {
        warnings.push(format!(
            "{name}: the server allowed at most {} per connection, {} requested",
            counted(
                http3.most_streams,
                "concurrent stream",
                "concurrent streams"
            ),
            http3.streams
        ));
    }
    if one.totals.refused_connections.exhausted > 0 {
        warnings.push(format!(
            "{name}: {} failed for lack of a local port, address or descriptor (see net.ipv4.ip_local_port_range, sources)",
            counted_connections(one.totals.refused_connections.exhausted)
        ));
    }
}

/// Returns why a job measured nothing: no connection was established, or no request completed.
fn nothing(job: &HttpJobReport, jobs: usize) -> Option<String> {
    let all = &job.totals;
    let listed = |causes: &[(&str, u64)]| -> String {
        let causes = causes.iter().filter(|(_, n)| *n > 0);
        let causes: Vec<String> = causes.map(|(cause, n)| format!("{n} {cause}")).collect();
        causes.join(", ")
    };
    let why = if all.completed > 0 {
        return None;
    } else if all.sent + all.warm_up == 0 {
        let causes = listed(&all.refused_connections.by_cause());
        match causes.is_empty() {
            true => "no request was sent".to_owned(),
            false => format!(
                "no request was sent ({}: {causes})",
                counted_connections(all.attempted_connections)
            ),
        }
    } else {
        let unanswered = [("unanswered at the end", all.in_flight)];
        let causes = listed(&[&all.failed.by_cause()[..], &unanswered].concat());
        match causes.is_empty() {
            true => "no request completed".to_owned(),
            false => format!("no request completed ({} sent: {causes})", all.sent),
        }
    };
    Some(match jobs {
        1 => why,
        _ => format!("{}: {why}", job.name),
    })
}

#[allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss
)]
fn limits(
    plan: &Plan,
    settled: &[HttpJobReport],
    outcomes: &[Vec<HttpThreadOutcome>],
    via: Via,
    late: &Lateness,
) -> (Limit, Vec<String>) {
    let mut warnings = Vec::new();
    let mut busy = false;
    for (one, threads) in settled.iter().zip(outcomes) {
        let wall: u64 = threads.iter().map(|o| o.wall_ns).sum();
        let cpu: u64 = threads.iter().map(|o| o.cpu_ns).sum();
        let used = share(cpu, wall);
        if used > BUSY {
            busy = true;
            let (who, more) = match via {
                Via::Sockets => ("threads", "threads"),
                Via::Port => ("workers", "workers at its port"),
            };
            warnings.push(format!(
                "{}: the tester may be the bottleneck ({who} {:.0} % busy); add {more}",
                one.name,
                used.min(1.0) * 100.0
            ));
        }
    }
    let all = sum(settled.iter().map(|t| t.totals));
    let unsent = settled.iter().any(|t| {
        let totals = &t.totals;
        share(totals.unsent, totals.sent + totals.unsent) > MISSED
    });
    let open = plan.http_jobs.iter().all(|job| !job.rate.is_empty());
    let reached = settled.iter().any(|t| {
        let totals = &t.totals;
        totals.established_connections > 0 || totals.attempted_connections == 0
    });
    // If the rate was kept, missing addresses, ports and descriptors did not limit it.
    let exhausted = all.refused_connections.exhausted > 0 && (unsent || !reached || !open);
    let unrouted: u64 = outcomes.iter().flatten().map(|o| o.unrouted).sum();
    let unrouted = unrouted > all.refused_connections.sum() / 2 && (unsent || !reached || !open);
    // Requests that fell due while the tester was stalled.
    let wall: u64 = outcomes.iter().flatten().map(|o| o.wall_ns).sum();
    let away: u64 = outcomes
        .iter()
        .flatten()
        .map(|o| o.lateness.stalled_ns)
        .sum();
    let away = share(away, wall).min(1.0);
    let fell_due = (away * (all.sent + all.unsent) as f64) as u64;
    let ours = late.missed_departures.max(fell_due);
    if open && late.stalls > 0 && away >= 0.01 {
        warnings.push(format!(
            "tester stalls: {} total, longest {}; about {} sent late, with the delay in the latency",
            time_ns(late.stalled_ns as f64),
            time_ns(late.largest_gap_ns as f64),
            counted_requests(fell_due)
        ));
    }
    let is_slowed = !open && late.stalls > 0 && away > MISSED;
    if is_slowed {
        warnings.push(format!(
            "tester stalls: {} total, longest {}; the measured rates are lower because of them",
            time_ns(late.stalled_ns as f64),
            time_ns(late.largest_gap_ns as f64)
        ));
    }
    let limit = match (busy, unsent, open) {
        _ if exhausted => {
            Limiter::Tester.because("no local port, address or descriptor was left for connections")
        }
        _ if unrouted => {
            Limiter::Tester.because("no route to the server, or its link failed")
        }
        _ if reached && all.completed == 0 && all.sent > 0 => {
            Limiter::Server.because("no request completed")
        }
        (_, true, _) if ours > all.unsent / 2 => {
            Limiter::Tester.because(format!(
                "stalled for {} in total; {} due but not sent",
                time_ns(late.stalled_ns as f64),
                counted_requests(all.unsent)
            ))
        }
        (true, ..) => Limiter::PerhapsTester.because("threads busy all the time"),
        _ if !reached => Limiter::Server.because("no connection could be established"),
        (_, true, true) if all.refused_connections.sum() > 0 => Limiter::Server.because(
            "some connections failed, and requests were due while all others were busy",
        ),
        (_, true, true) => Limiter::Connections.because(
            "requests were due while all connections were busy; add connections, or the server is slower than the rate",
        ),
        (_, true, false) => Limiter::Server.because("no further connection could be established"),
        (_, _, true) => Limiter::Rate.because(""),
        _ if is_slowed => Limiter::Tester.because(format!(
            "stalled for {:.0} % of the time",
            away * 100.0
        )),
        _ => Limiter::Answers.because("closed loop, each connection waits for its response"),
    };
    (limit, warnings)
}

#[allow(clippy::cast_precision_loss)]
fn settle_job(
    plan: &HttpJob,
    job: &HttpJobFacts,
    threads: &[HttpThreadOutcome],
    ended: &Ended,
) -> HttpJobReport {
    let merged = |of: fn(&HttpThreadOutcome) -> &Histogram| {
        let mut all = Histogram::new();
        threads.iter().for_each(|o| all.merge(of(o)));
        wb_measure::Times::from(&all)
    };
    let totals = sum(threads.iter().map(|o| o.totals));
    let in_time = sum(threads.iter().map(|o| o.in_time));
    let duration_ns = threads.iter().map(|o| o.duration_ns).max().unwrap_or(0);
    let seconds = duration_ns as f64 / 1e9;
    let rate = |n: u64| match duration_ns {
        0 => 0.0,
        _ => n as f64 / seconds,
    };
    let service = (!plan.rate.is_empty()).then(|| {
        let mut all = Histogram::new();
        let each = threads.iter().filter_map(|o| o.service.as_ref());
        each.for_each(|h| all.merge(h));
        wb_measure::Times::from(&all)
    });
    let mut statuses = BTreeMap::new();
    for (status, n) in threads.iter().flat_map(|o| &o.statuses) {
        *statuses.entry(status.to_string()).or_insert(0) += n;
    }
    let mut classes: BTreeMap<u8, Histogram> = BTreeMap::new();
    for (class, times) in threads.iter().flat_map(|o| &o.classes) {
        classes.entry(*class).or_default().merge(times);
    }
    let latency = merged(|o| &o.latency);
    let handshakes = threads
        .iter()
        .fold((0, 0), |a, o| (a.0 + o.handshakes.0, a.1 + o.handshakes.1));
    let tls = plan.url.starts_with("https").then(|| {
        let mut agreed = BTreeMap::new();
        for (name, n) in threads.iter().flat_map(|o| &o.agreed) {
            *agreed.entry(name.clone()).or_insert(0) += n;
        }
        HttpTlsReport {
            agreed,
            full_handshakes: handshakes.0,
            resumed_handshakes: handshakes.1,
            handshake_ns: merged(|o| &o.handshake),
        }
    });
    let names: Vec<&str> = job.names.iter().map(String::as_str).collect();
    let requests = match names[..] {
        [name] => vec![HttpRequestReport {
            name: name.to_owned(),
            sent: totals.sent,
            completed: totals.completed,
            failed: totals.failed.sum(),
            latency_ns: latency.clone(),
        }],
        _ => requests(&names, threads),
    };
    let digests: BTreeSet<_> = threads.iter().flat_map(|o| &o.digests).collect();
    let hex = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
    HttpJobReport {
        name: plan.name.clone(),
        url: plan.url.clone(),
        addresses: job.addresses.clone(),
        duration_ns,
        requests_per_second: rate(in_time.completed),
        connections_per_second: rate(in_time.established_connections),
        received_bps: rate(in_time.received_bytes) * 8.0,
        steady_open_connections: in_time.established_connections + in_time.warm_up_connections
            - in_time.closed_connections
            - in_time.broken_connections,
        since_due_ns: latency.clone(),
        since_sent_ns: service.clone().unwrap_or_else(|| latency.clone()),
        latency_ns: latency.clone(),
        service_ns: service,
        first_byte_ns: merged(|o| &o.first_byte),
        connect_ns: merged(|o| &o.connect),
        tls,
        http2: (plan.version == HttpVersion::V2).then(|| http2(threads)),
        http3: (plan.version == HttpVersion::V3).then(|| http3(threads)),
        statuses,
        classes: classes
            .iter()
            .map(|(class, times)| (format!("{class}xx"), times.into()))
            .collect(),
        requests,
        threads: job
            .connections
            .iter()
            .zip(threads)
            .map(|(connections, thread)| thread_report(*connections, thread))
            .collect(),
        first_failure: threads.iter().find_map(|o| o.first_failure.clone()),
        digests: digests
            .iter()
            .map(|(call, digest)| {
                format!("{} sha256:{}", names.get(*call).unwrap_or(&""), hex(digest))
            })
            .collect(),
        exact: exact(threads, ended),
        totals,
    }
}

/// Results of a thread with this number of connections.
fn thread_report(connections: u32, thread: &HttpThreadOutcome) -> HttpThreadReport {
    HttpThreadReport {
        connections,
        totals: thread.totals,
        cpu_ns: thread.cpu_ns,
        lateness: thread.lateness,
    }
}

/// Results of each of several requests.
fn requests(names: &[&str], threads: &[HttpThreadOutcome]) -> Vec<HttpRequestReport> {
    let each = names.iter().enumerate().map(|(i, name)| {
        let of_threads = || threads.iter().filter_map(|o| o.calls.get(i));
        let mut times = Histogram::new();
        of_threads().for_each(|c| times.merge(&c.latency));
        HttpRequestReport {
            name: (*name).to_owned(),
            sent: of_threads().map(|c| c.sent).sum(),
            completed: of_threads().map(|c| c.completed).sum(),
            failed: of_threads().map(|c| c.failed).sum(),
            latency_ns: (&times).into(),
        }
    });
    each.collect()
}

/// Sums the HTTP/2 counters of all threads.
fn http2(threads: &[HttpThreadOutcome]) -> Http2Report {
    let mut all = Http2Report::default();
    for one in threads.iter().map(|o| &o.http2) {
        all.streams = one.streams;
        all.allowed_streams = match (all.allowed_streams, one.allowed_streams) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        all.most_streams = all.most_streams.max(one.most_streams);
        all.cancelled += one.cancelled;
        for (sum, codes) in [
            (&mut all.resets, &one.resets),
            (&mut all.goaways, &one.goaways),
        ] {
            for (code, n) in codes {
                *sum.entry(code.clone()).or_insert(0) += n;
            }
        }
    }
    all
}

/// Sums the HTTP/3 counters of all threads.
fn http3(threads: &[HttpThreadOutcome]) -> Http3Report {
    let mut all = Http3Report::default();
    for one in threads.iter().map(|o| &o.http3) {
        all.streams = one.streams;
        all.most_streams = all.most_streams.max(one.most_streams);
        all.stream_waits += one.stream_waits;
        all.goaways += one.goaways;
        all.cancelled += one.cancelled;
        all.sent_packets += one.sent_packets;
        all.lost_packets += one.lost_packets;
        all.sent_datagrams += one.sent_datagrams;
        all.received_datagrams += one.received_datagrams;
        for (sum, codes) in [
            (&mut all.resets, &one.resets),
            (&mut all.closes, &one.closes),
        ] {
            for (code, n) in codes {
                *sum.entry(code.clone()).or_insert(0) += n;
            }
        }
    }
    all
}

/// Sums the values that each thread counted in the manner of wrk.
fn exact(threads: &[HttpThreadOutcome], ended: &Ended) -> Option<ExactTimes> {
    let parts: Vec<_> = threads.iter().filter_map(|o| o.exact.as_deref()).collect();
    // One place holds the times of all threads.
    let latency_us = parts.first()?.times.sorted_counts();
    let mut rates: BTreeMap<u64, u64> = BTreeMap::new();
    for rate in parts.iter().flat_map(|p| &p.rates) {
        *rates.entry(*rate).or_insert(0) += 1;
    }
    let add = |of: fn(&crate::WrkCounts) -> u64| parts.iter().map(|p| of(p)).sum();
    Some(ExactTimes {
        latency_us,
        rates: rates.into_iter().collect(),
        timeouts: add(|p| p.timeouts),
        errors: [
            add(|p| p.errors[0]),
            add(|p| p.errors[1]),
            add(|p| p.errors[2]),
        ],
        responses: add(|p| p.responses),
        status_errors: add(|p| p.status_errors),
        bytes: add(|p| p.bytes),
        elapsed_us: ended.elapsed_ns / 1000,
    })
}

/// Some of the jobs as one.
fn together<'a>(jobs: impl Iterator<Item = &'a HttpJobReport>) -> HttpJobReport {
    let mut all = HttpJobReport::default();
    jobs.for_each(|job| all.merge(job));
    all
}
