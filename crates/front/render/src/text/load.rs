//! Connections: their fate, their rate, and response times.

use std::collections::BTreeMap;

use wb_model::{
    Report,
    load::{ConnectionTotals, LoadEnd, LoadJobReport, LoadPhaseReport, LoadTransport},
};

use super::times;
use crate::{
    figures::{count, rate_bps, rate_pps, ratio, share, significant},
    page::{Page, Tone},
    table::Table,
};

/// A shorter phase, in ns, would be shown as no time at all; without requests it is left out.
const MOMENT_NS: u64 = 1_000_000;

/// A part for each end of each load.
pub(super) fn section(page: &mut Page, report: &Report, verbose: bool) {
    let Some(load) = &report.load else { return };
    let beside = load.jobs.iter().any(|job| job.end == LoadEnd::Client);
    for job in &load.jobs {
        let what = match (job.end, job.transport) {
            (LoadEnd::Client, LoadTransport::Tcp) => "TCP client",
            (LoadEnd::Client, LoadTransport::Udp) => "UDP client",
            (LoadEnd::Server, LoadTransport::Tcp) => "TCP server",
            (LoadEnd::Server, LoadTransport::Udp) => "UDP server",
        };
        let port = report.plan.ports.iter().find(|p| p.name == job.port);
        let place = port.map_or_else(|| job.port.clone(), |p| p.locator.to_string());
        page.head(&format!("{}: {what} at {place}", job.name));
        connections(page, job);
        frames(page, job);
        phases(page, job, beside);
        times::distributions(
            page,
            &[
                ("connect", &job.connect_ns),
                ("first byte", &job.first_byte_ns),
                ("response", &job.request_ns),
                ("from due time", &job.request_due_ns),
            ],
        );
        clocks(page, job);
        workers(page, job);
        if verbose {
            page.gap();
            page.item(
                Tone::Plain,
                "  counters    ",
                Tone::Plain,
                &listed(&job.counters),
            );
        }
    }
}

/// Start and end of the measurement of response times.
fn clocks(page: &mut Page, job: &LoadJobReport) {
    if job.request_ns.samples == 0 {
        return;
    }
    let mut text = "response: since its request was sent".to_owned();
    if job.request_due_ns.samples > 0 {
        text.push_str("; from due time: since it was due");
    }
    page.line(Tone::Plain, &format!("  {text}"));
    if job.latency_is_estimate {
        page.line(
            Tone::Bad,
            "  estimate: unmatched responses; each was assigned to the oldest open request",
        );
    }
}

fn listed(counters: &BTreeMap<String, u64>) -> String {
    let all: Vec<String> = counters
        .iter()
        .map(|(name, n)| format!("{name} {}", count(*n)))
        .collect();
    all.join(", ")
}

/// The connections, a line for each fate, and the sum that they must make.
fn connections(page: &mut Page, job: &LoadJobReport) {
    let t = &job.totals;
    let client = job.end == LoadEnd::Client;
    let mut table = Table::new().left("").right("").left("");
    let mut tones = Vec::new();
    let mut line = |name: &str, n: u64, note: String, tone: Tone| {
        table.row([name.to_owned(), count(n), note]);
        tones.push(tone);
    };
    let of_attempted = |n: u64| {
        if n == 0 || t.attempted_connections == 0 {
            String::new()
        } else {
            share(n, t.attempted_connections)
        }
    };
    line(
        "attempted",
        t.attempted_connections,
        String::new(),
        Tone::Plain,
    );
    line(
        "established",
        t.established_connections,
        of_attempted(t.established_connections),
        Tone::Plain,
    );
    line(
        "completed",
        t.completed_connections,
        match job.counters.get("completed_cut") {
            None | Some(0) => of_attempted(t.completed_connections),
            Some(cut) => format!(
                "{}: {} of them closed before all their requests were sent",
                of_attempted(t.completed_connections),
                count(*cut)
            ),
        },
        Tone::Plain,
    );
    let causes = listed(&job.failures);
    let failed = of_attempted(t.failed_connections);
    let note = match causes.is_empty() {
        true => failed,
        false => format!("{failed}: {causes}"),
    };
    let tone = match t.failed_connections {
        0 => Tone::Plain,
        _ => Tone::Bad,
    };
    line("failed", t.failed_connections, note, tone);
    line("open", t.open_connections, String::new(), Tone::Plain);
    if job.unsent_connections > 0 {
        let note = match job.no_tuple {
            0 => "connections due but never opened: the tester was late".to_owned(),
            n => format!(
                "connections due but never opened; {} of them for lack of a free address and port",
                count(n)
            ),
        };
        line("unsent", job.unsent_connections, note, Tone::Bad);
    }
    let (asked, answered) = match client {
        true => ("sent", "received"),
        false => ("received", "sent"),
    };
    line("requests", t.requests, asked.to_owned(), Tone::Plain);
    if job.unsent_requests > 0 {
        line(
            "unsent",
            job.unsent_requests,
            "requests due but never sent: the tester was late".to_owned(),
            Tone::Bad,
        );
    }
    if job.waited_requests > 0 {
        line(
            "waited",
            job.waited_requests,
            "requests due but never sent: every connection was waiting for a response".to_owned(),
            Tone::Bad,
        );
    }
    let statuses = statuses(job);
    let (note, tone) = match statuses.is_empty() {
        true => (answered.to_owned(), Tone::Plain),
        false => (format!("{answered}: {statuses}"), Tone::Bad),
    };
    line("responses", t.responses, note, tone);
    if client && job.transport == LoadTransport::Udp {
        for (name, n, what) in [
            (
                "lost",
                t.lost_requests,
                "requests without a response in time",
            ),
            (
                "in flight",
                t.in_flight_requests,
                "requests still without a response",
            ),
            (
                "unawaited",
                t.unawaited_requests,
                "requests of a flood: no response is expected",
            ),
            (
                "late",
                t.late_responses,
                "responses to requests already counted as lost",
            ),
            (
                "duplicate",
                t.duplicate_responses,
                "further responses to answered requests",
            ),
        ] {
            if n > 0 {
                let tone = match name {
                    "unawaited" => Tone::Plain,
                    _ => Tone::Bad,
                };
                line(name, n, what.to_owned(), tone);
            }
        }
    }
    for (text, tone) in table.lines(2).iter().zip(tones) {
        page.line(tone, text);
    }
    let sum = sum(t);
    match t.adds_up() {
        true => {
            page.item(Tone::Plain, "  sum         ", Tone::Plain, &sum);
            if client && job.transport == LoadTransport::Udp {
                let tone = match t.requests_add_up() {
                    true => Tone::Plain,
                    false => Tone::Bad,
                };
                page.item(tone, "              ", tone, &requests_sum(t));
            }
        }
        false => page.item(
            Tone::Bad,
            "  sum         ",
            Tone::Bad,
            &format!("DOES NOT ADD UP: {sum}"),
        ),
    }
}

fn sum(t: &ConnectionTotals) -> String {
    format!(
        "attempted {} = completed {} + failed {} + open {}",
        count(t.attempted_connections),
        count(t.completed_connections),
        count(t.failed_connections),
        count(t.open_connections)
    )
}

fn requests_sum(t: &ConnectionTotals) -> String {
    let mut text = format!(
        "requests {} = responses {} + lost {} + in flight {}",
        count(t.requests),
        count(t.responses),
        count(t.lost_requests),
        count(t.in_flight_requests)
    );
    if t.unawaited_requests > 0 {
        text.push_str(&format!(" + unawaited {}", count(t.unawaited_requests)));
    }
    text
}

/// HTTP answers by status, if some are not successful.
fn statuses(job: &LoadJobReport) -> String {
    let of = |name: &str| job.counters.get(name).copied().unwrap_or(0);
    let all = [
        ("1xx", of("status_1xx")),
        ("2xx", of("status_2xx")),
        ("3xx", of("status_3xx")),
        ("4xx", of("status_4xx")),
        ("5xx", of("status_5xx")),
        ("other", of("status_other")),
    ];
    if all.iter().all(|(name, n)| *n == 0 || *name == "2xx") {
        return String::new();
    }
    let seen: Vec<String> = all
        .iter()
        .filter(|(_, n)| *n > 0)
        .map(|(name, n)| format!("status {name} {}", count(*n)))
        .collect();
    seen.join(", ")
}

fn frames(page: &mut Page, job: &LoadJobReport) {
    let f = &job.frames;
    let known = |n: Option<u64>| n.unwrap_or(0);
    let mut text = format!(
        "sent {}, received {}",
        count(known(f.offered_frames)),
        count(known(f.received_frames))
    );
    for (n, what) in [
        (f.foreign_frames, "unexpected"),
        (f.refused_frames, "refused by the device"),
        (f.rx_dropped_frames, "dropped by the tester"),
    ] {
        if known(n) > 0 {
            text.push_str(&format!(", {} {what}", count(known(n))));
        }
    }
    page.item(Tone::Plain, "  frames      ", Tone::Plain, &text);
}

/// `beside`: the phases of a server are those of its clients in the same run.
fn phases(page: &mut Page, job: &LoadJobReport, beside: bool) {
    let mut table = Table::new()
        .left("phase")
        .right("from s")
        .right("to s")
        .right("new/s")
        .right("requests/s")
        .right("open at end")
        .right("failed")
        .right("tx")
        .right("rx")
        .right("tx L2")
        .right("rx L2");
    let seconds = |ns: u64| format!("{}.{:03}", ns / 1_000_000_000, ns / 1_000_000 % 1000);
    let happened = |p: &&LoadPhaseReport| p.to_ns - p.from_ns >= MOMENT_NS || p.totals.requests > 0;
    for p in job.phases.iter().filter(happened) {
        table.row([
            p.phase.clone(),
            seconds(p.from_ns),
            seconds(p.to_ns),
            per_second(p.cps),
            per_second(p.rps),
            count(p.totals.open_connections),
            count(p.totals.failed_connections),
            rate_pps(p.tx_pps),
            rate_pps(p.rx_pps),
            rate_bps(p.tx_bps),
            rate_bps(p.rx_bps),
        ]);
    }
    if !table.is_empty() {
        page.gap();
        page.table(&table, 2, 1);
        if !beside {
            page.line(
                Tone::Plain,
                "  steady: from the first to the last client frame",
            );
        }
    }
}

/// Rate per second: a whole number, with decimal places if it is small.
fn per_second(n: f64) -> String {
    if n >= 100.0 {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        return count(n.round() as u64);
    }
    significant(n, 3)
}

fn workers(page: &mut Page, job: &LoadJobReport) {
    let mut table = Table::new()
        .right("worker")
        .right("CPU")
        .right("attempted")
        .right("requests")
        .right("tx frames")
        .right("rx frames")
        .right("busy")
        .right("longest turn");
    for w in &job.workers {
        #[allow(clippy::cast_precision_loss)]
        table.row([
            w.queue.to_string(),
            w.cpu.map(|cpu| cpu.to_string()).unwrap_or_default(),
            count(w.totals.attempted_connections),
            count(w.totals.requests),
            count(w.tx_frames),
            count(w.rx_frames),
            ratio(w.busy),
            crate::figures::time_ns(w.longest_turn_ns as f64),
        ]);
    }
    if !table.is_empty() {
        page.gap();
        page.table(&table.without_blank_columns(), 2, 1);
    }
}
