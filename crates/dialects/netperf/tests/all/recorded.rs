//! Recorded runs of netperf 2.7: the figures are read from the recorded output, and
//! a report with these figures must give the same output.

#[path = "recorded/command.rs"]
mod command;
#[path = "recorded/figures.rs"]
mod figures;

use std::net::IpAddr;

use figures::{bps, buffers, refine_elapsed, set, total};
use wb_model::socket::{
    ConfidenceReport, CpuUse, SocketJob, SocketJobReport, SocketLive, SocketTest,
};
use wb_netperf::{
    ConnectionEnds, FigureSelection, OutputForm, OutputOptions, TestKind, banner, interim,
    program_exit,
};

/// A recorded run.
struct Case {
    command: String,
    output: Vec<String>,
}

fn cases(text: &str) -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    for line in text.lines() {
        if let Some(command) = line.strip_prefix("$ ") {
            cases.push(Case {
                command: command.to_owned(),
                output: Vec::new(),
            });
        } else {
            let output = line
                .strip_prefix('|')
                .and_then(|line| line.strip_suffix('|'))
                .unwrap_or_else(|| panic!("not a line of output: {line}"));
            cases
                .last_mut()
                .expect("a command")
                .output
                .push(output.to_owned());
        }
    }
    cases
}

#[test]
fn every_recorded_run_prints_the_same() {
    check(include_str!("recorded/client.txt"), 400);
}

#[test]
fn recorded_corners_print_the_same() {
    check(include_str!("recorded/corners.txt"), 30);
}

fn check(text: &str, least: usize) {
    let cases = cases(text);
    assert!(cases.len() >= least, "{} runs", cases.len());
    let wrong: Vec<String> = cases.iter().filter_map(again).collect();
    let shown: Vec<&str> = wrong.iter().take(5).map(String::as_str).collect();
    assert!(
        wrong.is_empty(),
        "{} differ:\n{}",
        wrong.len(),
        shown.join("\n")
    );
}

/// Prints a run again; returns the difference, if any.
fn again(case: &Case) -> Option<String> {
    let (mut show, mut job) = match command::read(&case.command) {
        Ok(read) => read,
        Err(refusal) => return Some(format!("{} is refused: {refusal}", case.command)),
    };
    let mut report = SocketJobReport {
        test: job.test,
        protocol: job.protocol,
        ..SocketJobReport::default()
    };
    let mut expected = case.output.as_slice();
    let mut printed = String::new();
    if show.headers
        && expected
            .first()
            .is_some_and(|line| line.contains(" TEST from "))
    {
        let server = expected[0]
            .split_once(" to ")
            .and_then(|(_, rest)| rest.split_once(' '))
            .map(|(name, _)| name.to_owned())
            .expect("a name");
        let ipv6 = expected[0].ends_with("AF_INET6") || expected[0].contains("AF_INET6 :");
        let address: IpAddr = if ipv6 { "2001:db8:99::1" } else { "127.0.0.1" }
            .parse()
            .expect("an address");
        report.server_name = server.clone();
        report.data_server = server.parse().unwrap_or(address).to_string();
        printed += &banner(&show, &job, &ConnectionEnds::after_test(&show, &report));
        if printed.trim_end_matches('\n') != expected[0] {
            return Some(format!("{}\n{}\n{printed}", case.command, expected[0]));
        }
        expected = &expected[1..];
    }
    if show.demo {
        match intervals(&show, &job, expected) {
            Ok(rest) => expected = rest,
            Err(differs) => return Some(format!("{}\n{differs}", case.command)),
        }
    }
    if let Some(level) = &job.confidence {
        report.iterations.resize(3, Default::default());
        report.confidence = Some(ConfidenceReport {
            level: level.level,
            width: level.width,
            reached: !expected.first().is_some_and(|line| line.starts_with("!!!")),
            ..ConfidenceReport::default()
        });
    }
    if show.form == OutputForm::Classic {
        classic(&show, &job, &mut report, expected);
    } else {
        selected(&mut show, &mut job, &mut report, expected);
    }
    let selection = FigureSelection::of_command(&show, &job).expect("names that are known");
    let now = program_exit(&show, &job, &selection, &report).stdout;
    let then: String = expected.iter().map(|line| format!("{line}\n")).collect();
    (now != then).then(|| format!("$ {}\nrecorded:\n{then}printed:\n{now}", case.command))
}

/// Compares the interim lines by their shape; returns the remaining lines.
fn intervals<'a>(
    show: &OutputOptions,
    job: &SocketJob,
    lines: &'a [String],
) -> Result<&'a [String], String> {
    let live = |value: f64, seconds: f64, ended: f64| SocketLive {
        units: match show.unit {
            None if job.test.counts_transactions() => value * seconds,
            _ => bps(value, show.unit) / 8.0 * seconds,
        } as u64,
        transactions: job.test.counts_transactions(),
        interval_s: seconds,
        ended_s: ended,
        ..SocketLive::default()
    };
    let of = |text: &str| -> f64 { text.parse().expect("a number") };
    let mut lines = lines;
    let mut number = 0;
    while let Some(first) = lines.first() {
        let (used, live) = match show.form {
            OutputForm::Classic | OutputForm::Human if first.starts_with("Interim result:") => {
                let words: Vec<&str> = first.split_whitespace().collect();
                (1, live(of(words[2]), of(words[5]), of(words[9])))
            }
            OutputForm::Csv if first.contains("/s,") && first.matches(',').count() == 3 => {
                let words: Vec<&str> = first.split(',').collect();
                (1, live(of(words[0].trim()), of(words[2]), of(words[3])))
            }
            OutputForm::KeyValue if first.starts_with("NETPERF_INTERIM_RESULT") => {
                let values: Vec<&str> = lines
                    .iter()
                    .take(4)
                    .filter_map(|line| line.split_once('=').map(|(_, value)| value))
                    .collect();
                (4, live(of(values[0]), of(values[2]), of(values[3])))
            }
            _ => break,
        };
        let then: String = lines[..used]
            .iter()
            .map(|line| format!("{line}\n"))
            .collect();
        let now = interim(show, job, &live, number);
        // The rate alone is inexact, because the units in an interval are integers.
        let near = shape(&now) == shape(&then);
        if !near {
            return Err(format!("recorded:\n{then}printed:\n{now}"));
        }
        number += 1;
        lines = &lines[used..];
    }
    if number == 0 {
        return Err("no interim lines were found".to_owned());
    }
    Ok(lines)
}

/// A text with the digits of its first number masked.
fn shape(text: &str) -> String {
    let mut done = false;
    let mut inside = false;
    let mut bracket = false;
    text.chars()
        .map(|c| {
            bracket = (bracket || c == '[') && c != ']';
            let digit = (c.is_ascii_digit() || c == '.') && !bracket;
            done |= inside && !digit;
            inside = digit;
            if digit && !done && c != '.' { '#' } else { c }
        })
        .collect()
}

/// Reads a classic table.
fn classic(show: &OutputOptions, job: &SocketJob, report: &mut SocketJobReport, lines: &[String]) {
    let mut lines = lines;
    if lines.first().is_some_and(|line| line.starts_with("!!!")) {
        let widths = lines[4..7].iter().map(|line| numbers(line)[0]);
        let widths: Vec<f64> = widths.collect();
        let known = report
            .confidence
            .as_mut()
            .expect("confidence was asked for");
        (known.result, known.local_cpu, known.remote_cpu) = (widths[0], widths[1], widths[2]);
        lines = &lines[8..];
    }
    let cpu = show.local_cpu || show.remote_cpu;
    if show.verbosity == 0 && show.kind != TestKind::TcpMss {
        let value = numbers(&lines[0])[0];
        if cpu {
            report.result.local_service_demand = Some(value);
            report.result.remote_service_demand = Some(value);
            set_cpu(show, report, 0.0, 0.0);
        } else {
            rate(show, job, report, value);
            report.result.sent_bps = report.result.throughput_bps;
        }
        return;
    }
    let rows: Vec<Vec<f64>> = lines
        .iter()
        .filter(|line| line.trim_start().starts_with(|c: char| c.is_ascii_digit()))
        .map(|line| numbers(line))
        .collect();
    let mut rows = rows.iter();
    let mut next = || rows.next().cloned().expect("a row");
    let table = matches!(show.verbosity, 1 | 2);
    match show.kind {
        TestKind::TcpMss => {
            let row = numbers(lines.last().expect("a number"));
            report.segment_bytes = Some(row[0] as u32);
        }
        TestKind::UdpStream => {
            if !table {
                return;
            }
            let (one, two) = (next(), next());
            report.local.send_buffer[1] = Some(one[0] as u32);
            report.local.send_size = Some(one[1] as u32);
            report.result.elapsed_s = one[2];
            report.local.send_calls = one[3] as u64;
            report.local.failed_sends = one[4] as u64;
            report.result.sent_bps = bps(one[5], show.unit);
            report.remote.receive_buffer[1] = Some(two[0] as u32);
            report.remote.receive_calls = two[2] as u64;
            report.result.throughput_bps = bps(two[3], show.unit);
            if cpu {
                set_cpu(show, report, one[6], two[4]);
                demands(report, one[7], two[5]);
            }
        }
        TestKind::TcpStream | TestKind::TcpMaerts | TestKind::TcpSendfile => {
            let down = job.test == SocketTest::Receive;
            if table {
                let row = next();
                let (receive, send) = (Some(row[0] as u32), Some(row[1] as u32));
                // With CPU use, the original swaps the sizes of the ends for TCP_MAERTS.
                if down && !cpu {
                    report.local.receive_buffer[1] = receive;
                    report.remote.send_buffer[1] = send;
                } else {
                    report.remote.receive_buffer[1] = receive;
                    report.local.send_buffer[1] = send;
                }
                let sender = if down {
                    &mut report.remote
                } else {
                    &mut report.local
                };
                sender.send_size = Some(row[2] as u32);
                report.result.elapsed_s = row[3];
                rate(show, job, report, row[4]);
                if cpu {
                    set_cpu(show, report, row[5], row[6]);
                    demands(report, row[7], row[8]);
                }
            }
            if show.verbosity > 1 {
                let row = next();
                let first = total(row[5], row[6]);
                let second = total(row[7], row[8]);
                let (local, remote) = (&mut report.local, &mut report.remote);
                if down {
                    (local.bytes_received, local.receive_calls) = (row[4] as u64, row[6] as u64);
                    (remote.bytes_sent, remote.send_calls) = (second, row[8] as u64);
                } else {
                    (local.bytes_sent, local.send_calls) = (first, row[6] as u64);
                    (remote.bytes_received, remote.receive_calls) = (second, row[8] as u64);
                }
                report.segment_bytes = Some(next()[0] as u32);
            }
        }
        _ => {
            if table {
                let (one, two) = (next(), next());
                buffers(&mut report.local, one[0], one[1]);
                buffers(&mut report.remote, two[0], two[1]);
                report.result.elapsed_s = one[4];
                rate(show, job, report, one[5]);
                if cpu {
                    set_cpu(show, report, one[6], one[7]);
                    demands(report, one[8], one[9]);
                }
            }
            if show.verbosity > 1 && show.kind == TestKind::TcpRr {
                report.result.transactions_per_second = next()[5];
            }
        }
    }
}

fn numbers(line: &str) -> Vec<f64> {
    line.split(|c: char| c.is_whitespace() || c == '%')
        .filter_map(|word| word.parse().ok())
        .collect()
}

fn rate(show: &OutputOptions, job: &SocketJob, report: &mut SocketJobReport, value: f64) {
    let transactions = match show.unit {
        None | Some('x') => job.test.counts_transactions(),
        Some(_) => show.kind == TestKind::TcpCc,
    };
    if transactions {
        report.result.transactions_per_second = value;
    } else {
        report.result.throughput_bps = bps(value, show.unit);
        if job.test.counts_transactions() && report.result.transactions_per_second == 0.0 {
            // The recorded demand is per KiB. With one KiB per transaction it equals the demand of
            // our figures.
            report.result.transactions_per_second = report.result.throughput_bps / 8.0 / 1024.0;
        }
    }
}

fn demands(report: &mut SocketJobReport, local: f64, remote: f64) {
    report.result.local_service_demand = (local >= 0.0).then_some(local);
    report.result.remote_service_demand = (remote >= 0.0).then_some(remote);
}

fn set_cpu(show: &OutputOptions, report: &mut SocketJobReport, local: f64, remote: f64) {
    let of = |total: f64| CpuUse {
        total,
        ..CpuUse::default()
    };
    report.result.local_cpu = show.local_cpu.then(|| of(local));
    report.result.remote_cpu = show.remote_cpu.then(|| of(remote));
}

/// Reads selected figures.
fn selected(
    show: &mut OutputOptions,
    job: &mut SocketJob,
    report: &mut SocketJobReport,
    lines: &[String],
) {
    let pairs = match show.form {
        OutputForm::KeyValue => lines
            .iter()
            .filter_map(|line| line.split_once('='))
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect(),
        _ => named(show, job, lines),
    };
    if show.local_cpu {
        report.result.local_cpu = Some(CpuUse::default());
    }
    if show.remote_cpu {
        report.result.remote_cpu = Some(CpuUse::default());
    }
    let mut rates = Vec::new();
    // The most precise rate must be set last.
    let (late, early): (Vec<_>, Vec<_>) = pairs
        .into_iter()
        .partition(|(name, _)| name == "TRANSACTION_RATE");
    for (name, value) in early.iter().chain(&late) {
        set(show, job, report, name, value);
        if name.ends_with("_THROUGHPUT") {
            rates.push((name.clone(), value.parse().expect("a rate")));
        }
    }
    if show.unit.is_none() {
        refine_elapsed(report, &rates);
    } else if let Some((_, rate)) = rates.first() {
        // These runs select a rate without its bytes.
        let unit = show.unit.filter(|unit| *unit != 'x');
        report.result.elapsed_s = 1000.0;
        report.local.bytes_sent = (bps(*rate, unit) / 8.0 * 1000.0).round() as u64;
    }
}

/// Assigns names to a recording in the form of values, in the order in which they would be printed.
fn named(show: &OutputOptions, job: &SocketJob, lines: &[String]) -> Vec<(String, String)> {
    let keys = OutputOptions {
        form: OutputForm::KeyValue,
        brand: show.brand.clone(),
        ..show.clone()
    };
    let selection = FigureSelection::of_command(&keys, job).expect("names");
    let text = program_exit(&keys, job, &selection, &SocketJobReport::default()).stdout;
    let list = show
        .selection
        .as_deref()
        .filter(|text| text.contains([',', ';']) && show.form == OutputForm::Csv);
    let names: Vec<String> = match list {
        // Each name has a field, with or without a value.
        Some(list) => list
            .split([',', ';'])
            .filter(|name| !name.is_empty())
            .map(str::to_owned)
            .collect(),
        None => text
            .lines()
            .filter_map(|line| line.split_once('='))
            .map(|(name, _)| name.to_owned())
            .filter(|name| name != "OUTPUT_NONE" || show.form == OutputForm::Csv)
            .collect(),
    };
    let values: Vec<String> = if show.form == OutputForm::Csv {
        let line = lines.last().cloned().unwrap_or_default();
        let (line, command) = match line.split_once("\"netperf") {
            Some((line, _)) => (line.to_owned(), true),
            None => (line, false),
        };
        let mut values: Vec<String> = line.split(',').map(|one| one.trim().to_owned()).collect();
        if command {
            values.pop();
        }
        // A name without a value has no key either.
        let titles = lines.first().map_or("", String::as_str);
        let brand = titles.split(',').position(|title| title == "Result Tag");
        if let (Some(at), None, None) = (brand, &show.brand, list) {
            values.remove(at);
        }
        values
    } else {
        human_values(show, job, lines)
    };
    names.into_iter().zip(values).collect()
}

fn human_values(show: &OutputOptions, job: &SocketJob, lines: &[String]) -> Vec<String> {
    let udp = job.protocol == wb_model::socket::SocketProtocol::Udp;
    let mut values = Vec::new();
    let step = if show.headers { 6 } else { 2 };
    let mut at = step - 2;
    while let Some(line) = lines.get(at) {
        let line = line.split_once('"').map_or(line.as_str(), |(line, _)| line);
        values.extend(line.split_whitespace().map(str::to_owned));
        at += step;
    }
    if udp && show.selection.as_deref() == Some("all") {
        // No congestion control: two columns of blanks.
        values.extend([String::new(), String::new()]);
    }
    values
}
