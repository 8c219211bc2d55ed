//! Benchmarks of load balancers, and the comparison of socket tests.

use wb_model::{
    Report,
    bench::{LbMetric, LbOutcome, LbResult, LbTrial},
    socket::SocketJobReport,
};

use super::{
    document::{Cell, Mark, Section, Table},
    plot::{Form, Plot, Scale, Series, X, Y},
};
use crate::{
    figures::{count, rate_bps, ratio, significant, time_ns},
    lb,
};

/// Plot that compares several tests.
pub(super) fn compared(jobs: &[SocketJobReport]) -> Option<Plot> {
    let moves = jobs.first()?.test.is_stream();
    if jobs.len() < 2 || jobs.iter().any(|job| job.test.is_stream() != moves) {
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
        (None, _) => "none passed".to_owned(),
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
