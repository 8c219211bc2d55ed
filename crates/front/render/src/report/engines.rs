//! Sections of the engines other than streams: loads, HTTP, sockets, captures, benchmarks, probes.

use wb_model::{
    Report,
    bench::{LbMetric, LbOutcome, LbResult, LbTrial},
    socket::{SocketInterval, SocketJobReport, SocketTest},
};

use super::{
    document::{Block, Cell, Mark, Section, Table},
    over_time::{self, Course},
    plot::{Form, Plot, Scale, Series, X, Y},
    times,
};
use crate::{
    figures::{UNKNOWN, count, count_or, rate_bps, ratio, share, significant, time_ns},
    lb, text,
};

fn rate(per_second: f64) -> String {
    if per_second.abs() < 1e15 && per_second.abs() >= 100.0 {
        crate::figures::group(&format!("{per_second:.0}"))
    } else {
        significant(per_second, 3)
    }
}

fn bad_if_any(n: u64) -> Cell {
    Cell::marked(count(n), if n > 0 { Mark::Bad } else { Mark::Plain })
}

pub(super) fn sockets(report: &Report, course: Option<&Course<'_>>) -> Section {
    let mut section = Section::new("Socket tests");
    let Some(socket) = &report.socket else {
        return section;
    };
    let mut tests = Table::new(
        "",
        &[
            "test",
            "type",
            "server",
            ">throughput",
            ">reverse",
            ">transactions per second",
            ">retransmits",
            ">local CPU",
            ">remote CPU",
            ">time",
        ],
    );
    let mut datagrams = Table::new(
        "Datagrams",
        &[
            "test",
            ">sent",
            ">received",
            ">lost",
            ">lost share",
            ">duplicate",
            ">reordered",
            ">jitter (RFC 3550)",
        ],
    );
    let mut rows = Vec::new();
    for job in &socket.jobs {
        let r = &job.result;
        let moves = is_stream(job);
        let known = |text: Option<String>| text.unwrap_or_else(|| UNKNOWN.to_owned());
        tests.row([
            job.name.clone(),
            text::socket::what(job),
            job.server.clone(),
            known(moves.then(|| rate_bps(r.throughput_bps))),
            known(r.reverse_bps.map(rate_bps)),
            known((!moves).then(|| rate(r.transactions_per_second))),
            count_or(retransmissions(job)),
            known(r.local_cpu.map(|c| format!("{:.1} %", c.total))),
            known(r.remote_cpu.map(|c| format!("{:.1} %", c.total))),
            format!("{:.2} s", r.elapsed_s),
        ]);
        if let Some(d) = &job.datagrams {
            datagrams.row([
                job.name.clone().into(),
                count(d.sent).into(),
                count(d.received).into(),
                bad_if_any(d.lost),
                share(d.lost, d.sent).into(),
                count(d.duplicate).into(),
                count(d.reordered).into(),
                Cell::from(known(d.jitter_rfc3550_ns.map(time_ns))),
            ]);
            rows.push((format!("{}: one way", job.name), &d.one_way_ns));
        }
        rows.push((format!("{}: operation", job.name), &job.latency_ns));
        rows.extend(
            job.idle_latency_ns
                .as_ref()
                .map(|s| (format!("{}: operation on the idle path", job.name), s)),
        );
        if let Some(failure) = &job.failure {
            section
                .blocks
                .push(Block::Warning(format!("{}: {}", job.name, failure.what)));
        }
    }
    if let Some(job) = socket.jobs.first().filter(|job| !job.server.is_empty()) {
        let link = match job.link.as_str() {
            "" => "link unknown".to_owned(),
            link if link.contains("bit/s") => format!("over {link}"),
            link => format!("over {link} (speed unknown)"),
        };
        section.text(format!("From {} to {}, {link}.", job.client, job.server));
    }
    section.table(tests.known());
    section.table(datagrams);
    section.table(times::table("Times", rows));
    let with_intervals = |job: &&SocketJobReport| job.intervals.len() > 1;
    for job in socket.jobs.iter().filter(with_intervals) {
        intervals(&mut section, job);
    }
    if let Some(course) = course.filter(|_| !socket.jobs.iter().any(|job| with_intervals(&job))) {
        over_time::sockets(&mut section, course);
    }
    section.plot(compared(&socket.jobs));
    if let Some(server) = &socket.server {
        let text = serde_json::to_string_pretty(server).unwrap_or_default();
        section
            .blocks
            .push(Block::Code("server counters".to_owned(), text));
    }
    section
}

fn retransmissions(job: &SocketJobReport) -> Option<u64> {
    let (here, there) = (job.local.retransmissions, job.remote.retransmissions);
    match job.test {
        SocketTest::Receive => there,
        SocketTest::Both => here.zip(there).map(|(a, b)| a.saturating_add(b)),
        _ => here,
    }
}

fn is_stream(job: &SocketJobReport) -> bool {
    matches!(
        job.test,
        SocketTest::Send | SocketTest::Receive | SocketTest::Both
    )
}

/// Intervals of one test.
fn intervals(section: &mut Section, job: &SocketJobReport) {
    let xs: Vec<f64> = job.intervals.iter().map(|i| i.to_s).collect();
    let of =
        |value: &dyn Fn(&SocketInterval) -> Option<f64>| job.intervals.iter().map(value).collect();
    let id = |what: &str| format!("socket-{}-{what}", job.name);
    let title = |what: &str| format!("{}: {what}", job.name);
    let mut plot = |what: &str, heading: &str, y: Y, series: Vec<Series>| {
        section.plot(Plot::new(
            &id(what),
            &title(heading),
            X::time(),
            y,
            xs.clone(),
            series,
        ));
    };
    if is_stream(job) {
        let mut series = vec![Series::line("total", of(&|i| Some(i.throughput_bps)))];
        if job.test == SocketTest::Both {
            series.push(Series::line("to the server", of(&|i| i.up_bps)));
            series.push(Series::line("from the server", of(&|i| i.down_bps)));
        }
        plot(
            "throughput",
            "throughput",
            Y::new("throughput", "bit/s"),
            series,
        );
    } else {
        let series = vec![Series::line(
            "transactions",
            of(&|i| Some(i.transactions_per_second)),
        )];
        plot("transactions", "transactions", Y::new("rate", "/s"), series);
    }
    let time = |ns: Option<i64>| ns.map(|ns| ns as f64 / 1e9);
    plot(
        "times",
        "operation time",
        Y::new("time", "s").log(),
        vec![
            Series::line("p50", of(&|i| time(i.latency_ns.p50))),
            Series::line("p99", of(&|i| time(i.latency_ns.p99))),
            Series::line("max", of(&|i| time(i.latency_ns.max))),
        ],
    );
    let tcp = |value: fn(&wb_model::socket::TcpSample) -> f64| of(&|i| i.tcp.first().map(value));
    plot(
        "rtt",
        "TCP round-trip time, first stream",
        Y::new("time", "s"),
        vec![
            Series::line("smoothed", tcp(|t| f64::from(t.rtt_us) / 1e6)),
            Series::line("min", tcp(|t| f64::from(t.min_rtt_us) / 1e6)),
        ],
    );
    plot(
        "window",
        "congestion window, first stream",
        Y::new("segments", ""),
        vec![
            Series::line("window", tcp(|t| f64::from(t.cwnd))),
            Series::line("retransmits so far", tcp(|t| f64::from(t.retransmissions))),
        ],
    );
}

/// Plot that compares several tests.
fn compared(jobs: &[SocketJobReport]) -> Option<Plot> {
    let moves = jobs.first().map(is_stream)?;
    if jobs.len() < 2 || jobs.iter().any(|job| is_stream(job) != moves) {
        return None;
    }
    let names = jobs.iter().map(|job| job.name.clone()).collect();
    let xs = (0..jobs.len()).map(|i| i as f64).collect();
    let value = |job: &SocketJobReport| match moves {
        true => job.result.throughput_bps,
        false => job.result.transactions_per_second,
    };
    let values = jobs.iter().map(|job| Some(value(job))).collect();
    let (label, unit) = match moves {
        true => ("throughput", "bit/s"),
        false => ("transactions", "/s"),
    };
    let series = vec![Series::line(label, values).as_form(Form::Marks)];
    let x = X::scaled("test", Scale::Names(names));
    Plot::new(
        "socket-tests",
        "Comparison of the tests",
        x,
        Y::new(label, unit),
        xs,
        series,
    )
}

pub(super) fn probes(report: &Report) -> Section {
    let mut section = Section::new("Device probes");
    let mut probes = Table::new(
        "Probes",
        &["probe", "command", ">readings", ">failed", "last failure"],
    );
    let mut counters = Table::new(
        "Counters",
        &["probe", "counter", ">before", ">after", ">rise"],
    );
    let mut levels = Table::new("Values", &["probe", "value", ">highest"]);
    for p in &report.probes {
        probes.row([
            p.name.clone().into(),
            p.command.clone().into(),
            count(p.readings).into(),
            bad_if_any(p.failures),
            Cell::from(p.last_failure.clone().unwrap_or_default()),
        ]);
        for (name, after) in &p.after {
            let before = p.before.get(name).copied().unwrap_or(0);
            let rise = after
                .checked_sub(before)
                .map_or_else(|| "reset".to_owned(), count);
            if *after != before {
                counters.row([
                    p.name.clone(),
                    name.clone(),
                    count(before),
                    count(*after),
                    rise,
                ]);
            }
        }
        for (name, highest) in &p.highest {
            levels.row([p.name.clone(), name.clone(), count(*highest)]);
        }
    }
    section.table(probes);
    section.table(counters);
    section.table(levels);
    section
}

pub(super) fn bench(report: &Report) -> Section {
    let mut section = Section::new("Limits");
    let mut limits = Table::new(
        "",
        &[
            "metric",
            ">flows",
            ">limit",
            ">layer 2",
            "limited by",
            ">lowest failed load",
            ">trials",
            "confirmed",
        ],
    );
    let in_unit = |r: &LbResult, load: Option<f64>| match (load, r.metric) {
        (None, _) => "none held".to_owned(),
        (Some(load), LbMetric::Bps) => rate_bps(load),
        (Some(load), metric) => lb::load(metric, load),
    };
    for r in report.lb_results() {
        limits.row([
            lb::title(r.metric, r.size),
            r.flows.map_or_else(String::new, count),
            in_unit(r, r.limit),
            r.l2_bps.map_or_else(String::new, rate_bps),
            match &r.late {
                Some(late) => format!("tester: {late}"),
                None => lb::limited_by(r.limited_by).to_owned(),
            },
            r.beyond
                .map_or_else(String::new, |load| in_unit(r, Some(load))),
            r.trials.len().to_string(),
            if r.confirmed { "yes" } else { "no" }.to_owned(),
        ]);
    }
    section.table(limits.known());
    section.plot(by_size(report));
    for r in report.lb_results() {
        let title = lb::title(r.metric, r.size);
        let id = title.replace(' ', "-");
        section.plot(search(&id, &title, r));
        section.plot(loss(&id, &title, r));
    }
    let mut trials = Table::new(
        "Trials",
        &[
            "metric",
            ">trial",
            ">intended",
            ">offered",
            "outcome",
            "reason",
            ">seconds",
            ">lost",
            ">failed",
            ">p99",
            ">busy",
        ],
    );
    for r in report.lb_results() {
        for (i, t) in r.trials.iter().enumerate() {
            let mark = match t.outcome {
                LbOutcome::Held => Mark::Good,
                LbOutcome::Broke => Mark::Bad,
                _ => Mark::Plain,
            };
            trials.row([
                lb::title(r.metric, r.size).into(),
                (i + 1).to_string().into(),
                lb::load(r.metric, t.asked).into(),
                lb::load(r.metric, t.offered).into(),
                Cell::marked(lb::outcome(t.outcome), mark),
                t.reason.clone().into(),
                significant(t.seconds, 3).into(),
                count(lost(t)).into(),
                count(t.ours.failed).into(),
                t.ours
                    .p99_ns
                    .map_or_else(String::new, |ns| time_ns(ns as f64))
                    .into(),
                Cell::from(ratio(t.ours.busy)),
            ]);
        }
    }
    section.table(trials.known());
    section
}

fn lost(t: &LbTrial) -> u64 {
    t.ours.lost_frames.saturating_add(t.ours.lost_answer_frames)
}

/// Throughput by size, with the capacity of the link (RFC 2544, 26.1) if its speed is known.
fn by_size(report: &Report) -> Option<Plot> {
    let of_size = report
        .lb_results()
        .filter(|r| r.size.is_some() && r.l2_bps.is_some());
    let mut of_size: Vec<&LbResult> = of_size.collect();
    of_size.sort_by_key(|r| r.size);
    let mut names: Vec<String> = Vec::new();
    for r in &of_size {
        let name = format!("{} B", r.size.unwrap_or(0));
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let sizes: Vec<f64> = names
        .iter()
        .filter_map(|n| n.trim_end_matches(" B").parse().ok())
        .collect();
    let mut metrics: Vec<LbMetric> = Vec::new();
    for r in &of_size {
        if !metrics.contains(&r.metric) {
            metrics.push(r.metric);
        }
    }
    let mut series: Vec<Series> = metrics
        .iter()
        .map(|metric| {
            let at = |size: &f64| {
                let mut own = of_size.iter().filter(|r| r.metric == *metric);
                own.find(|r| r.size.map(f64::from) == Some(*size))?.l2_bps
            };
            Series::line(metric.name(), sizes.iter().map(at).collect()).as_form(Form::Marks)
        })
        .collect();
    let speeds = report
        .ports
        .iter()
        .filter(|p| !p.speed_nominal)
        .filter_map(|p| p.speed_bps);
    let slowest = speeds.min();
    if let Some(speed) = slowest {
        let most = |size: &f64| Some(speed as f64 * size / (size + 20.0));
        series.push(
            Series::line(
                "line rate (theoretical maximum)",
                sizes.iter().map(most).collect(),
            )
            // A line through one point is invisible.
            .as_form(match sizes.len() {
                1 => Form::Marks,
                _ => Form::Dashes,
            }),
        );
    }
    let xs = (0..names.len()).map(|i| i as f64).collect();
    let x = X::scaled("frame size with FCS", Scale::Names(names));
    let plot = Plot::new(
        "throughput-by-size",
        "Throughput by frame size",
        x,
        Y::new("layer 2, with FCS", "bit/s"),
        xs,
        series,
    )?;
    Some(plot.note(match slowest {
        Some(_) => "Theoretical maximum: frames of that size at the line rate of the slowest link, with 20 bytes of \
                    preamble and gap per frame."
            .to_owned(),
        None => "No line-rate reference: the ports have no physical link speed (see `wirebench report --link-speed`)."
            .to_owned(),
    }))
}

/// Name of a load on an axis, and its unit.
fn load_axis(metric: LbMetric) -> (&'static str, &'static str) {
    match metric {
        LbMetric::Cps => ("load", "cps"),
        LbMetric::Cc => ("load", "connections"),
        _ => ("load in one direction", "pps"),
    }
}

/// The tried loads, in order.
fn search(id: &str, title: &str, r: &LbResult) -> Option<Plot> {
    if r.trials.len() < 2 {
        return None;
    }
    let xs: Vec<f64> = (1..=r.trials.len()).map(|i| i as f64).collect();
    let that = |is: fn(LbOutcome) -> bool| -> Vec<Option<f64>> {
        r.trials
            .iter()
            .map(|t| is(t.outcome).then_some(t.asked))
            .collect()
    };
    let (label, unit) = load_axis(r.metric);
    let asked = r.trials.iter().map(|t| Some(t.asked)).collect();
    let series = vec![
        Series::line("intended", asked).as_form(Form::Dashes),
        Series::line("held", that(|o| o == LbOutcome::Held)).as_form(Form::Marks),
        Series::line("failed", that(|o| o == LbOutcome::Broke)).as_form(Form::Marks),
        Series::line(
            "void",
            that(|o| !matches!(o, LbOutcome::Held | LbOutcome::Broke)),
        )
        .as_form(Form::Marks),
    ];
    let heading = format!("{title}: search by trial");
    Plot::new(
        &format!("search-{id}"),
        &heading,
        X::scaled("trial", Scale::Counts),
        Y::new(label, unit),
        xs,
        series,
    )
}

/// Loss by load.
fn loss(id: &str, title: &str, r: &LbResult) -> Option<Plot> {
    let of_frames = !matches!(r.metric, LbMetric::Cps | LbMetric::Cc);
    let share = |t: &LbTrial| match of_frames {
        true => {
            (t.ours.sent_frames > 0).then(|| 100.0 * lost(t) as f64 / t.ours.sent_frames as f64)
        }
        false => {
            (t.ours.attempted > 0).then(|| 100.0 * t.ours.failed as f64 / t.ours.attempted as f64)
        }
    };
    // Frames that a tester did not send in time say nothing about the device at that load.
    let of_device = |t: &&LbTrial| matches!(t.outcome, LbOutcome::Held | LbOutcome::Broke);
    let trials = r.trials.iter().filter(of_device);
    let mut points: Vec<(f64, Option<f64>)> = trials.map(|t| (t.offered, share(t))).collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (xs, values): (Vec<f64>, Vec<Option<f64>>) = points.into_iter().unzip();
    let what = match of_frames {
        true => "lost frames",
        false => "failed connections",
    };
    let (label, unit) = load_axis(r.metric);
    // One load is no curve, however often it was tried.
    let (low, high) = (*xs.first()?, *xs.last()?);
    if high - low < 0.01 * high {
        return None;
    }
    let series = vec![Series::line(what, values).as_form(Form::Marks)];
    let heading = format!("{title}: {what} by load");
    Plot::new(
        &format!("loss-{id}"),
        &heading,
        X::linear(&format!("offered {label}"), unit),
        Y::new(what, "%"),
        xs,
        series,
    )
}
