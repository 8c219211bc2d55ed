//! Socket tests: a table of several tests, all details of one.

use wb_model::{
    Report,
    socket::{
        SocketEndReport, SocketFigures, SocketIntervalStream, SocketJob, SocketJobReport,
        SocketServerReport, SocketTest, TcpSample,
    },
};

use super::times;
use crate::{
    figures::{UNKNOWN, count, count_or, rate_bps, significant, time_ns},
    page::{Page, Tone},
    table::Table,
};

/// Maximum number of streams that are listed by default.
const STREAMS: usize = 16;

pub(super) fn section(page: &mut Page, report: &Report, verbose: bool) {
    let Some(socket) = &report.socket else { return };
    if let Some(server) = &socket.server {
        page.head("server");
        served(page, server);
    }
    if socket.jobs.len() > 1 {
        page.head("tests");
        if let Some(job) = socket.jobs.iter().find(|j| !j.server.is_empty()) {
            let by = match job.link.is_empty() {
                true => String::new(),
                false => format!(" over {}", job.link),
            };
            page.line(
                Tone::Plain,
                &format!("  from {} to {}{by}", job.client, job.server),
            );
        }
        for line in sweep(&socket.jobs, &report.plan.sockets).lines(2) {
            page.line(Tone::Plain, &line);
        }
    }
    for (job, plan) in socket.jobs.iter().zip(&report.plan.sockets) {
        if socket.jobs.len() > 1 && !verbose && job.failure.is_none() {
            continue;
        }
        // Without an answer, no address is known.
        let server = match job.server.as_str() {
            "" => &plan.control.server,
            met => met,
        };
        page.head(&format!("{}: {} {server}", job.name, what(job)));
        test(page, job, plan, verbose);
    }
}

/// Description of the test in words.
#[must_use]
pub fn what(job: &SocketJobReport) -> String {
    let protocol = format!("{:?}", job.protocol).to_uppercase();
    let test = match job.test {
        SocketTest::Send => "stream to",
        SocketTest::Receive => "stream from",
        SocketTest::Both => "streams to and from",
        SocketTest::Rr => "request/response with",
        SocketTest::Crr => "connect/request/response with",
        SocketTest::Cc => "connections to",
        SocketTest::Mss => "segment size to",
        SocketTest::ServerCpu => "CPU use of",
    };
    format!("{protocol} {test}")
}

/// The result in the unit of the test.
#[must_use]
pub fn result(test: SocketTest, figures: &SocketFigures) -> String {
    match test.counts_transactions() {
        true => format!("{} /s", significant(figures.transactions_per_second, 6)),
        false => match figures.reverse_bps {
            Some(back) => format!("{} + {}", rate_bps(figures.throughput_bps), rate_bps(back)),
            None => rate_bps(figures.throughput_bps),
        },
    }
}

/// A row for each test, with the varying parameters first; columns without any known value are left
/// out.
#[must_use]
pub fn sweep(jobs: &[SocketJobReport], plans: &[SocketJob]) -> Table {
    let names: Vec<&String> = jobs
        .first()
        .map(|job| job.point.iter().map(|(name, _)| name).collect())
        .unwrap_or_default();
    let varies = |name: &str| names.iter().any(|n| *n == name);
    let mut table = Table::new();
    if names.is_empty() {
        table = table.left("test");
    }
    for name in &names {
        table = table.right(name.as_str());
    }
    for title in FIXED {
        if !varies(title) {
            table = table.right(title);
        }
    }
    table = table
        .right("result")
        .right("+/- %")
        .right("runs")
        .right("lost")
        .right("retransmits")
        .right("local CPU %")
        .right("remote CPU %")
        .right("p50")
        .right("p99")
        .left("");
    for (job, plan) in jobs.iter().zip(plans) {
        let mut row = Vec::new();
        if names.is_empty() {
            row.push(job.name.clone());
        }
        row.extend(job.point.iter().map(|(_, value)| value.clone()));
        for title in FIXED {
            if !varies(title) {
                row.push(fixed(title, job, plan));
            }
        }
        let runs = u64::try_from(job.iterations.len()).unwrap_or(u64::MAX);
        let cpu = |cpu: Option<wb_model::socket::CpuUse>| {
            cpu.map_or_else(String::new, |c| format!("{:.1}", c.total))
        };
        let time = |ns: Option<i64>| ns.map_or_else(String::new, |ns| time_ns(ns as f64));
        row.extend([
            match job.failure.is_some() && job.iterations.is_empty() {
                true => UNKNOWN.to_owned(),
                false => result(job.test, &job.result),
            },
            job.confidence
                .map_or_else(String::new, |c| match c.reached {
                    true => significant(c.result / 2.0, 2),
                    false => format!("{} (target missed)", significant(c.result / 2.0, 2)),
                }),
            count(runs),
            lost(job).map_or_else(String::new, |(lost, sent)| share(lost, sent)),
            job.retransmissions().map_or_else(String::new, count),
            cpu(job.result.local_cpu),
            cpu(job.result.remote_cpu),
            time(job.latency_ns.p50),
            time(job.latency_ns.p99),
            job.failure
                .as_ref()
                .map_or_else(String::new, |f| f.what.clone()),
        ]);
        table.row(row);
    }
    table.without_blank_columns()
}

/// Lost and sent datagrams of a stream; none for other tests. Without sequence numbers a
/// duplicate makes up for a lost datagram.
fn lost(job: &SocketJobReport) -> Option<(u64, u64)> {
    if let Some(d) = &job.datagrams {
        return Some((d.lost, d.sent));
    }
    let (sender, receiver) = match job.test {
        SocketTest::Send => (&job.local, &job.remote),
        SocketTest::Receive => (&job.remote, &job.local),
        _ => return None,
    };
    let (sent, got) = (sender.bytes_sent, receiver.bytes_received);
    (job.protocol.is_datagram() && sent > 0).then(|| (sent.saturating_sub(got), sent))
}

/// A part of a whole in percent. A value above zero is never shown as zero.
fn share(part: u64, whole: u64) -> String {
    if whole == 0 {
        return UNKNOWN.to_owned();
    }
    match part {
        0 => "0 %".to_owned(),
        part => format!("{} %", significant(part as f64 / whole as f64 * 100.0, 3)),
    }
}

/// Columns of every row, unless they already stand there as varying parameters.
const FIXED: [&str; 5] = [
    "local buffer",
    "remote buffer",
    "message",
    "time",
    "streams",
];

fn fixed(title: &str, job: &SocketJobReport, plan: &SocketJob) -> String {
    let bytes = |n: Option<u32>| n.map_or_else(String::new, |n| count(n.into()));
    let up = job.test != SocketTest::Receive;
    match title {
        "local buffer" if up => bytes(job.local.send_buffer[1]),
        "local buffer" => bytes(job.local.receive_buffer[1]),
        "remote buffer" if up => bytes(job.remote.receive_buffer[1]),
        "remote buffer" => bytes(job.remote.send_buffer[1]),
        "message" if job.test.counts_transactions() => {
            format!("{}/{}", plan.request_size, plan.response_size)
        }
        "message" if up => bytes(job.local.send_size),
        "message" => bytes(job.remote.send_size),
        "time" => format!("{} s", significant(job.result.elapsed_s, 4)),
        _ => count(plan.streams.into()),
    }
}

fn test(page: &mut Page, job: &SocketJobReport, plan: &SocketJob, verbose: bool) {
    if let Some(failure) = &job.failure {
        let told = match job.iterations.is_empty() {
            true => failure.what.clone(),
            false => format!("{}; the results before the failure follow", failure.what),
        };
        page.item(Tone::Bad, "  failed      ", Tone::Bad, &told);
        if job.iterations.is_empty() && job.local.bytes_sent + job.local.bytes_received == 0 {
            return;
        }
    }
    let mut say = |name: &str, text: String| {
        page.item(Tone::Plain, &format!("  {name:<12}"), Tone::Plain, &text);
    };
    if job.test == SocketTest::Mss {
        let bytes = job
            .segment_bytes
            .map_or_else(|| UNKNOWN.to_owned(), |n| count(n.into()));
        say("segment", format!("{bytes} bytes"));
        return;
    }
    say("result", result(job.test, &job.result));
    if job.protocol.is_datagram() && job.result.sent_bps > 0.0 {
        say("sent", rate_bps(job.result.sent_bps));
    }
    say(
        "time",
        format!(
            "{} s, {}",
            significant(job.result.elapsed_s, 5),
            match job.iterations.len() {
                1 => "1 run".to_owned(),
                n => format!("mean of {n} runs"),
            }
        ),
    );
    if let Some(c) = &job.confidence {
        let reached = match c.reached {
            true => "reached",
            false => "NOT reached",
        };
        say(
            "confidence",
            format!(
                "+/- {} % at {} % confidence; target +/- {} %: {reached}",
                significant(c.result / 2.0, 3),
                c.level,
                significant(c.width / 2.0, 3)
            ),
        );
    }
    if job.test.counts_transactions() {
        say(
            "count",
            format!("{} transactions", count(job.result.transactions)),
        );
    }
    if plan.streams > 1
        && let Some(fairness) = job.fairness
    {
        say(
            "streams",
            format!("{}, fairness {}", plan.streams, significant(fairness, 4)),
        );
    }
    if let Some(bps) = job.load_bps {
        say("load", rate_bps(bps));
    }
    let mut ends = Table::new()
        .left("")
        .right("sent")
        .right("received")
        .right("sends")
        .right("receives")
        .right("SO_SNDBUF")
        .right("SO_RCVBUF")
        .right("retransmits")
        .right("CPU %")
        .left("congestion");
    for (name, end, cpu) in [
        ("local", &job.local, job.result.local_cpu),
        ("remote", &job.remote, job.result.remote_cpu),
    ] {
        ends.row(end_row(name, end, cpu.map(|c| c.total)));
    }
    page.gap();
    for line in ends.without_blank_columns().lines(2) {
        page.line(Tone::Plain, &line);
    }
    omitted(page, job);
    if let Some(d) = &job.datagrams {
        page.gap();
        let jitter = match d.jitter_rfc3550_ns {
            Some(ns) => format!(", jitter {}", time_ns(ns)),
            None => String::new(),
        };
        let tone = if d.lost > 0 { Tone::Bad } else { Tone::Plain };
        page.line(
            tone,
            &format!(
                "  datagrams   {} sent, {} received, {} lost ({}), {} duplicate, {} reordered, {} foreign{jitter}",
                count(d.sent),
                count(d.received),
                count(d.lost),
                share(d.lost, d.sent),
                count(d.duplicate),
                count(d.reordered),
                count(d.foreign)
            ),
        );
    }
    let idle = job.idle_latency_ns.unwrap_or_default();
    let one_way = job.datagrams.map(|d| d.one_way_ns).unwrap_or_default();
    let loaded = match job.idle_latency_ns.is_some() {
        true => "under load",
        false => "operation",
    };
    let all = [
        ("idle", &idle),
        (loaded, &job.latency_ns),
        ("one way", &one_way),
    ];
    times::distributions(
        page,
        &all.into_iter()
            .filter(|(_, s)| s.samples > 0)
            .collect::<Vec<_>>(),
    );
    tcp(page, job.local.tcp.as_ref());
    if job.streams.len() > 1 {
        streams(page, job, verbose);
    }
    intervals(page, job);
}

fn end_row(name: &str, end: &SocketEndReport, cpu: Option<f64>) -> Vec<String> {
    let nonzero = |n: u64| if n == 0 { String::new() } else { count(n) };
    let bytes = |n: Option<u32>| n.map_or_else(String::new, |n| count(n.into()));
    vec![
        name.to_owned(),
        nonzero(end.bytes_sent),
        nonzero(end.bytes_received),
        nonzero(end.send_calls),
        nonzero(end.receive_calls),
        bytes(end.send_buffer[1]),
        bytes(end.receive_buffer[1]),
        end.retransmissions.map_or_else(String::new, count),
        cpu.map_or_else(String::new, |c| format!("{c:.1}")),
        end.congestion.clone(),
    ]
}

fn tcp(page: &mut Page, sample: Option<&TcpSample>) {
    let Some(t) = sample else { return };
    page.item(
        Tone::Plain,
        "  TCP         ",
        Tone::Plain,
        &format!(
            "RTT {} us (min {}), window {} segments of {} bytes, pacing rate {}, delivery rate {}; limited by the receiver for {} ms, by the send buffer for {} ms",
            count(t.rtt_us.into()),
            count(t.min_rtt_us.into()),
            count(t.cwnd.into()),
            count(t.mss.into()),
            match t.pacing_bps {
                // ~0 in bytes, which overflows in bits: no limit.
                u64::MAX => "unlimited".to_owned(),
                bps => rate_bps(bps as f64),
            },
            rate_bps(t.delivery_bps as f64),
            count(t.receiver_limited_us / 1000),
            count(t.buffer_limited_us / 1000),
        ),
    );
}

fn streams(page: &mut Page, job: &SocketJobReport, verbose: bool) {
    let shown = match verbose {
        true => job.streams.len(),
        false => STREAMS.min(job.streams.len()),
    };
    let mut table = Table::new()
        .left("stream")
        .right("rate")
        .right("sent")
        .right("received")
        .right("lost")
        .right("jitter")
        .right("retransmits")
        .right("RTT")
        .right("window")
        .right("p50")
        .right("p99");
    for stream in &job.streams[..shown] {
        let time = |ns: Option<i64>| ns.map_or_else(String::new, |ns| time_ns(ns as f64));
        let bytes = |n: Option<u64>| n.map_or_else(String::new, count);
        // Streams that load the path carry bytes, whatever is measured in addition.
        let load = stream.name.starts_with("load ");
        let rate = match job.test.counts_transactions() && !load {
            true => format!("{} /s", significant(stream.transactions_per_second, 6)),
            false => rate_bps(stream.throughput_bps),
        };
        table.row([
            stream.name.clone(),
            rate,
            bytes(match stream.bytes_sent {
                0 => stream.remote_bytes_sent,
                sent => Some(sent),
            }),
            bytes(match stream.bytes_received {
                0 => stream.remote_bytes_received,
                received => Some(received),
            }),
            stream
                .datagrams
                .map_or_else(String::new, |d| share(d.lost, d.sent)),
            stream
                .datagrams
                .and_then(|d| d.jitter_rfc3550_ns)
                .map_or_else(String::new, time_ns),
            count_or(stream.retransmissions),
            stream
                .tcp
                .map_or_else(String::new, |t| time_ns(f64::from(t.rtt_us) * 1e3)),
            stream
                .tcp
                .map_or_else(String::new, |t| count(t.cwnd.into())),
            time(stream.latency_ns.p50),
            time(stream.latency_ns.p99),
        ]);
    }
    page.gap();
    for line in table.without_blank_columns().lines(2) {
        page.line(Tone::Plain, &line);
    }
    if shown < job.streams.len() {
        page.line(
            Tone::Plain,
            &format!("  ... and {} more; -v lists all", job.streams.len() - shown),
        );
    }
}

fn intervals(page: &mut Page, job: &SocketJobReport) {
    if job.intervals.is_empty() {
        return;
    }
    let mut table = Table::new()
        .right("from")
        .right("to")
        .right("rate")
        .right("up")
        .right("down")
        .right("lost")
        .right("jitter")
        .right("retransmits")
        .right("RTT")
        .right("window")
        .right("p50")
        .right("p99");
    let mut before = 0_u64;
    for i in &job.intervals {
        let rate = match job.test.counts_transactions() {
            true => format!("{} /s", significant(i.transactions_per_second, 6)),
            false => rate_bps(i.throughput_bps),
        };
        let first = i.tcp.first();
        let sum: u64 = i.tcp.iter().map(|t| u64::from(t.retransmissions)).sum();
        let again = match i.tcp.is_empty() {
            true => String::new(),
            false => count(sum.saturating_sub(before)),
        };
        before = before.max(sum);
        let time = |ns: Option<i64>| ns.map_or_else(String::new, |ns| time_ns(ns as f64));
        table.row([
            format!("{:.3} s", i.from_s),
            format!("{:.3} s", i.to_s),
            rate,
            // In a test of one direction they add nothing.
            i.up_bps
                .filter(|_| i.down_bps.is_some())
                .map_or_else(String::new, rate_bps),
            i.down_bps
                .filter(|_| i.up_bps.is_some())
                .map_or_else(String::new, rate_bps),
            lost_then(&i.streams),
            i.streams
                .iter()
                .filter_map(|stream| stream.jitter_rfc3550_ns)
                .reduce(f64::max)
                .map_or_else(String::new, time_ns),
            again,
            first.map_or_else(String::new, |t| time_ns(f64::from(t.rtt_us) * 1e3)),
            first.map_or_else(String::new, |t| count(t.cwnd.into())),
            time(i.latency_ns.p50),
            time(i.latency_ns.p99),
        ]);
    }
    page.gap();
    for line in table.without_blank_columns().lines(2) {
        page.line(Tone::Plain, &line);
    }
}

/// Lost datagrams of the streams that report them. Late datagrams can outnumber missing ones.
fn lost_then(streams: &[SocketIntervalStream]) -> String {
    let told = streams.iter().filter_map(|stream| stream.lost);
    let sum = told.reduce(|a, b| a + b);
    sum.map_or_else(String::new, |n| {
        let sign = if n < 0 { "-" } else { "" };
        format!("{sign}{}", count(n.unsigned_abs()))
    })
}

/// Data moved during `omit`, which the rates leave out.
fn omitted(page: &mut Page, job: &SocketJobReport) {
    let told = [("local", job.local.omitted), ("remote", job.remote.omitted)];
    let told: Vec<String> = told
        .into_iter()
        .filter_map(|(name, end)| Some(format!("{name} {} bytes", count(end?.bytes))))
        .collect();
    if !told.is_empty() {
        let what = format!(
            "{}; included in the byte counts, not in the rates",
            told.join(", ")
        );
        page.item(Tone::Plain, "  omitted     ", Tone::Plain, &what);
    }
}

fn served(page: &mut Page, server: &SocketServerReport) {
    let mut table = Table::new().left("").right("");
    for (name, n) in [
        ("clients", server.clients),
        ("rejected", server.turned_away),
        ("unexpected peers", server.strangers),
        ("closed by the server", server.given_up),
        ("unauthorised", server.unauthorised),
        ("tests", server.tests),
        ("completed", server.completed),
        ("failed", server.failed),
        ("bytes received", server.bytes_received),
        ("bytes sent", server.bytes_sent),
    ] {
        table.row([name.to_owned(), count(n)]);
    }
    for line in table.lines(2) {
        page.line(Tone::Plain, &line);
    }
}
