//! HTTP loads: requests and responses, each request counted once.

use wb_model::{
    Report,
    http::{HttpFailures, HttpJobReport, HttpTotals},
};

use super::times;
use crate::{
    figures::{count, rate_bps, share, significant},
    page::{Page, Tone},
    table::Table,
};

pub(super) fn section(page: &mut Page, report: &Report, verbose: bool) {
    let Some(http) = &report.http else { return };
    for job in &http.jobs {
        page.head(&format!("{}: {}", job.name, job.url));
        one(page, job, verbose);
    }
}

/// Permitted and actual number of streams of a connection.
fn streams(asked: u32, most: u32) -> String {
    let s = if asked == 1 { "" } else { "s" };
    let mut text = format!("up to {asked} concurrent stream{s} per connection");
    if most < asked {
        text += &format!(", at most {most} in use");
    }
    text
}

/// Name of the times of a class of statuses.
fn of_class(class: &str) -> &'static str {
    match class.as_bytes().first() {
        Some(b'2') => "of 2xx",
        Some(b'3') => "of 3xx",
        Some(b'4') => "of 4xx",
        Some(b'5') => "of 5xx",
        _ => "of 1xx",
    }
}

/// Causes that occurred, in words.
fn causes(failures: &HttpFailures) -> String {
    let all = failures.by_cause();
    let all = all.iter().filter(|(_, n)| *n > 0);
    let all: Vec<String> = all
        .map(|(cause, n)| format!("{} {cause}", count(*n)))
        .collect();
    all.join(", ")
}

fn one(page: &mut Page, job: &HttpJobReport, verbose: bool) {
    let t = &job.totals;
    let seconds = job.duration_ns as f64 / 1e9;
    let mut say = |tone: Tone, name: &str, text: String| {
        page.item(Tone::Plain, &format!("  {name:<13}"), tone, &text);
    };
    say(
        Tone::Plain,
        "result",
        format!(
            "{} requests/s, {} connections/s, {} received, over {} s",
            significant(job.requests_per_second, 6),
            significant(job.connections_per_second, 4),
            rate_bps(job.received_bps),
            significant(seconds, 4)
        ),
    );
    requests(&mut say, t);
    connections(&mut say, t);
    say(
        Tone::Plain,
        "bytes",
        format!(
            "{} sent, {} received ({} in bodies)",
            count(t.sent_bytes),
            count(t.received_bytes),
            count(t.body_bytes)
        ),
    );
    let statuses: Vec<String> = job
        .statuses
        .iter()
        .map(|(status, n)| format!("{status}: {}", count(*n)))
        .collect();
    let tone = match t.error_responses {
        0 => Tone::Plain,
        _ => Tone::Bad,
    };
    if !statuses.is_empty() {
        say(tone, "statuses", statuses.join(", "));
    }
    if let Some(tls) = &job.tls {
        let agreed: Vec<String> = tls
            .agreed
            .iter()
            .map(|(name, n)| format!("{name} ({})", count(*n)))
            .collect();
        say(
            Tone::Plain,
            "TLS",
            format!(
                "{} full handshakes, {} resumed{}{}",
                count(tls.full_handshakes),
                count(tls.resumed_handshakes),
                if agreed.is_empty() { "" } else { "; " },
                agreed.join(", ")
            ),
        );
    }
    if let Some(http2) = &job.http2 {
        let mut text = streams(http2.streams, http2.most_streams);
        if let Some(allowed) = http2.allowed_streams {
            text += &format!("; the server allows {}", count(allowed.into()));
        }
        for (what, codes) in [("stream reset", &http2.resets), ("GOAWAY", &http2.goaways)] {
            for (code, n) in codes {
                text += &format!("; {what} with {code}: {}", count(*n));
            }
        }
        if http2.cancelled > 0 {
            text += &format!("; cancelled: {}", count(http2.cancelled));
        }
        say(Tone::Plain, "HTTP/2", text);
    }
    if let Some(http3) = &job.http3 {
        let mut text = streams(http3.streams, http3.most_streams);
        for (what, codes) in [
            ("stream reset", &http3.resets),
            ("connection closed", &http3.closes),
        ] {
            for (code, n) in codes {
                text += &format!("; {what} with {code}: {}", count(*n));
            }
        }
        for (what, n) in [
            ("waits for a free stream", http3.stream_waits),
            ("GOAWAY", http3.goaways),
            ("cancelled", http3.cancelled),
        ] {
            if n > 0 {
                text += &format!("; {what}: {}", count(n));
            }
        }
        say(Tone::Plain, "HTTP/3", text);
        let text = format!(
            "{} datagrams sent, {} received; {} of {} packets lost",
            count(http3.sent_datagrams),
            count(http3.received_datagrams),
            count(http3.lost_packets),
            count(http3.sent_packets)
        );
        say(Tone::Plain, "QUIC", text);
    }
    for digest in &job.digests {
        say(Tone::Plain, "body", digest.clone());
    }
    let handshake = job.tls.as_ref().map(|t| t.handshake_ns).unwrap_or_default();
    let service = job.service_ns.unwrap_or_default();
    let latency = match job.service_ns {
        Some(_) => "from due time",
        None => "latency",
    };
    let mut all = vec![(latency, &job.latency_ns)];
    if job.classes.len() > 1 {
        let classes = job.classes.iter();
        all.extend(classes.map(|(class, times)| (of_class(class), times)));
    }
    all.extend([
        ("from send time", &service),
        ("first byte", &job.first_byte_ns),
        ("connect", &job.connect_ns),
        ("TLS", &handshake),
    ]);
    times::distributions(page, &all);
    if job.requests.len() > 1 {
        page.gap();
        let mut table = Table::new()
            .left("request")
            .right("sent")
            .right("completed")
            .right("failed")
            .right("p50")
            .right("p99")
            .right("max");
        for r in &job.requests {
            let time = |ns: Option<i64>| {
                ns.map_or_else(String::new, |ns| crate::figures::time_ns(ns as f64))
            };
            table.row([
                r.name.clone(),
                count(r.sent),
                count(r.completed),
                count(r.failed),
                time(r.latency_ns.p50),
                time(r.latency_ns.p99),
                time(r.latency_ns.max),
            ]);
        }
        page.table(&table, 2, 1);
    }
    if verbose {
        threads(page, job);
    }
}

fn requests(say: &mut impl FnMut(Tone, &str, String), t: &HttpTotals) {
    say(
        Tone::Plain,
        "requests",
        format!(
            "{} sent = {} completed + {} failed + {} in flight",
            count(t.sent),
            count(t.completed),
            count(t.failed.sum()),
            count(t.in_flight)
        ),
    );
    if t.retried > 0 {
        let text = format!(
            "{} requests on another connection: the server had not processed them",
            count(t.retried)
        );
        say(Tone::Plain, "retried", text);
    }
    if t.failed.sum() > 0 {
        let of = share(t.failed.sum(), t.sent);
        say(
            Tone::Bad,
            "failed",
            format!("{}; {of} of the sent requests", causes(&t.failed)),
        );
    }
    if t.unsent > 0 {
        let of = share(t.unsent, t.sent + t.unsent);
        say(
            Tone::Bad,
            "unsent",
            format!(
                "{} were due but never sent, {of} of all: no connection was free in time",
                count(t.unsent)
            ),
        );
    }
    if t.warm_up > 0 {
        say(
            Tone::Plain,
            "warm-up",
            format!("{} requests, not counted", count(t.warm_up)),
        );
    }
}

fn connections(say: &mut impl FnMut(Tone, &str, String), t: &HttpTotals) {
    let refused = t.refused_connections.sum();
    let mut attempted = format!(
        "{} attempted = {} established + {} failed + {} connecting",
        count(t.attempted_connections),
        count(t.established_connections),
        count(refused),
        count(t.connecting)
    );
    if refused > 0 {
        attempted.push_str(&format!(" ({})", causes(&t.refused_connections)));
    }
    let tone = match refused {
        0 => Tone::Plain,
        _ => Tone::Bad,
    };
    say(tone, "connections", attempted);
    say(
        Tone::Plain,
        "",
        format!(
            "{} established = {} closed + {} broken + {} open",
            count(t.established_connections),
            count(t.closed_connections),
            count(t.broken_connections),
            count(t.open_connections)
        ),
    );
}

fn threads(page: &mut Page, job: &HttpJobReport) {
    page.gap();
    let mut table = Table::new()
        .right("thread")
        .right("connections")
        .right("sent")
        .right("completed")
        .right("failed")
        .right("CPU %")
        .right("CPU/request");
    for (i, t) in job.threads.iter().enumerate() {
        let busy = t.cpu_ns as f64 / job.duration_ns.max(1) as f64 * 100.0;
        let each = t.cpu_ns as f64 / t.totals.completed.max(1) as f64;
        table.row([
            count(i as u64),
            count(t.connections.into()),
            count(t.totals.sent),
            count(t.totals.completed),
            count(t.totals.failed.sum()),
            significant(busy, 3),
            crate::figures::time_ns(each),
        ]);
    }
    page.table(&table, 2, 1);
}
