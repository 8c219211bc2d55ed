//! Socket tests: a table of several tests.

use wb_model::{
    Report,
    socket::{SocketFigures, SocketJob, SocketJobReport, SocketTest},
};

use crate::{
    figures::{UNKNOWN, count, rate_bps, significant, time_ns},
    page::{Page, Tone},
    sections,
    table::Table,
};

/// A table of several tests, and the sections of tests: of all with `details` or if there is one, else of those that
/// failed.
pub(super) fn section(page: &mut Page, report: &Report, details: bool) {
    let Some(socket) = &report.socket else { return };
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
    let sections = sections::of_kind(report, "socket");
    for (job, section) in socket.jobs.iter().zip(&sections) {
        if details || socket.jobs.len() == 1 || job.failure.is_some() {
            sections::text::section(page, section, details);
        }
    }
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
