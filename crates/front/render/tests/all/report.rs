//! The report to hand over: its contents for each kind of run, no network requests, and robustness against any
//! contents of a report.

use proptest::prelude::*;
use serde_json::{Value, json};
use wb_model::{
    Report, Verdict,
    bench::{BenchResult, ProbeReport, SuiteResult},
    fleet::{HostClock, HostReport, HostState},
    http::{HttpJobReport, HttpReport, HttpRequestReport, HttpThreadReport, HttpTlsReport},
    load::{LoadJobReport, LoadPhaseReport, LoadReport, LoadRouteReport, LoadWorkerReport},
    peer::PairClock,
    report::{
        CaptureReaderReport, CaptureReport, CriterionReport, JobReport, NicReport, WorkerReport,
    },
    socket::{DatagramReport, SocketInterval, SocketJobReport, SocketReport, SocketServerReport},
    timeline::{Column, Distribution, Recorder, Timeline},
};
use wb_render::{
    json, junit,
    report::{Run, csv, document, html, markdown, svg},
};

use crate::samples;

fn run(name: &str, report: Report) -> Run {
    Run {
        name: name.to_owned(),
        report,
    }
}

fn page(report: &Report) -> String {
    html(&document(&[run("", report.clone())]))
}

/// A course of `samples` samples. In each of them 100 frames are sent and one is lost.
fn course(samples: u64) -> Timeline {
    let mut timeline = Timeline {
        at_ns: (0..samples).map(|i| i * 100_000_000).collect(),
        ..Timeline::default()
    };
    let mut column = |of: &str, name: &str, each: u64| {
        timeline.columns.push(Column {
            of: of.to_owned(),
            name: name.to_owned(),
            unit: "frames".to_owned(),
            counter: true,
            values: (0..samples).map(|i| Some((i * each) as f64)).collect(),
        });
    };
    column("traffic", "offered_frames", 100);
    column("traffic", "received_frames", 99);
    column("traffic", "latency_samples", 99);
    column("traffic", "latency_sum_ns", 99 * 5_000);
    column("port a", "tx_packets", 100);
    column("port a", "tx_errors", 1);
    column("worker a 0", "busy_ns", 50_000_000);
    column("probe dut", "drops", 1);
    timeline
}

fn latencies() -> Distribution {
    Distribution::from_buckets(
        "",
        "latency_ns",
        (1..=1000).map(|i| (i * 1000, i * 1000, 1)),
    )
}

/// A report with contents in every part.
fn full() -> Report {
    let mut report = samples::lossy();
    report.timeline = course(20);
    report.distributions = vec![
        latencies(),
        Distribution::from_buckets("", "ipdv_ns", (-50..50).map(|i| (i * 10, i * 10, 3))),
    ];
    report.environment.tool = "wirebench 0.1.0".to_owned();
    report.environment.kernel = "Linux 6.1".to_owned();
    report.ports[0].nic = Some(NicReport {
        bus: "0000:03:00.0".to_owned(),
        pci_id: "8086:10fb".to_owned(),
        ..NicReport::default()
    });
    report.criteria.push(CriterionReport {
        criterion: "loss<=0.1%".to_owned(),
        measured: Some(0.002),
        held: false,
    });
    report.workers.push(WorkerReport::default());
    report.load = Some(LoadReport {
        jobs: vec![LoadJobReport {
            name: "clients".to_owned(),
            failures: [("timeout".to_owned(), 3)].into(),
            phases: vec![LoadPhaseReport::default()],
            routes: vec![LoadRouteReport::default()],
            workers: vec![LoadWorkerReport::default()],
            ..LoadJobReport::default()
        }],
    });
    let mut http = HttpJobReport {
        name: "web".to_owned(),
        statuses: [("200".to_owned(), 7)].into(),
        requests: vec![HttpRequestReport::default(); 2],
        threads: vec![HttpThreadReport::default()],
        tls: Some(HttpTlsReport::default()),
        ..HttpJobReport::default()
    };
    http.totals.failed.timeout = 4;
    report.http = Some(HttpReport {
        jobs: vec![http],
        ..HttpReport::default()
    });
    report.socket = Some(SocketReport {
        jobs: vec![
            SocketJobReport {
                name: "test 1".to_owned(),
                datagrams: Some(DatagramReport::default()),
                intervals: vec![SocketInterval::default(); 3],
                ..SocketJobReport::default()
            };
            2
        ],
        server: Some(SocketServerReport::default()),
    });
    report.capture = Some(CaptureReport {
        filter_accept_frames: 10,
        captured_frames: 9,
        kernel_drop_frames: 1,
        readers: vec![CaptureReaderReport::default()],
        ..CaptureReport::default()
    });
    report.probes = vec![ProbeReport {
        name: "dut".to_owned(),
        after: [("drops".to_owned(), 5)].into(),
        highest: [("entries".to_owned(), 9)].into(),
        ..ProbeReport::default()
    }];
    report.results = vec![limit("oneway-pps", 64), limit("cps", 0)];
    report
}

/// Limit of a load balancer, read from the form that reports have in JSON.
fn limit(metric: &str, size: u16) -> SuiteResult {
    let trial = |asked: f64, outcome: &str, lost: u64| {
        json!({
            "purpose": "search", "asked": asked, "offered": asked, "outcome": outcome, "reason": "so", "seconds": 1.0,
            "ours": {
                "sent_frames": 1000, "received_frames": 1000 - lost, "lost_frames": lost, "lost_answer_frames": 0,
                "tester_dropped_frames": 0, "attempted": 10, "established": 10, "completed": 10, "failed": 0, "open": 0,
                "held": 0, "retransmitted": 0, "unsent": 0, "requests": 0, "responses": 0, "p99_ns": null, "busy": 0.5,
            },
            "device": {"rose": {}, "peak": {}, "beside": {}, "readings": 0, "failed_readings": 0},
        })
    };
    let form: BenchResult = serde_json::from_value(json!({
        "metric": metric, "transport": "udp", "size": (size > 0).then_some(size), "flows": 1000, "unit": "pps",
        "limit": 1000.0, "limited_by": "device", "confirmed": true, "l2_bps": 512_000.0, "beyond": 2000.0,
        "reuse_s": null, "trials": [trial(1000.0, "held", 0), trial(2000.0, "broke", 17)], "best_trial": 0,
    }))
    .unwrap();
    form.into()
}

#[test]
fn junit_has_the_words_of_the_text_report() {
    let mut none = limit("cps", 0);
    (none.limit, none.limited_by) = (None, Some(wb_model::bench::LbLimit::Device));
    let report = Report {
        results: vec![limit("cps", 0), none],
        ..Report::default()
    };
    let text = junit::report(&report);
    for words in [
        "<testsuite name=\"cps\"",
        "<failure message=\"cps: no tested load passed\"/>",
        "limit cps  limited by  lowest failed cps",
        "cps         1,000  device",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
}

fn titles(report: &Report) -> Vec<String> {
    let document = document(&[run("", report.clone())]);
    document.plots().map(|plot| plot.title.clone()).collect()
}

#[test]
fn every_part_of_a_run_has_its_place() {
    let report = full();
    let page = page(&report);
    for heading in [
        "Summary",
        "Criteria",
        "Frames",
        "Limits of a load balancer (bench lb)",
        "Connections",
        "HTTP",
        "Socket tests",
        "Capture",
        "Distributions of times",
        "Device probes",
        "Ports",
        "Workers",
        "Environment",
        "Plan",
    ] {
        assert!(page.contains(&format!("\">{heading}</h2>")), "{heading}");
    }
    // The verdict is read first.
    assert!(page.find("FAIL").unwrap() < page.find("<h2").unwrap());
    let titles = titles(&report);
    for title in [
        "Frames per second",
        "In flight or lost",
        "Latency per interval: mean, and percentiles within 3 %",
        "Percentiles",
        "Histogram: latency",
        "Delay variation between consecutive frames (IPDV)",
        "Packets counted by the interfaces",
        "Drops and errors of the interfaces",
        "Busy share of each worker",
        "Probe dut: counters",
        "oneway-pps 64 B: search by trial",
        "oneway-pps 64 B: lost frames by load",
        "Comparison of the tests",
    ] {
        assert!(titles.iter().any(|t| t == title), "{title}: {titles:?}");
    }
    for text in [
        "0000:03:00.0",
        "8086:10fb",
        "Linux 6.1",
        "1,000",
        "loss&lt;=0.1%",
        "timeout",
    ] {
        assert!(page.contains(text), "{text}");
    }
}

/// The plots show the counts: the rates, added up, are the frames.
#[test]
fn rates_add_up_to_the_counts() {
    let mut report = samples::lossy();
    let mut recorder = Recorder::new(1_000_000);
    let (mut sent, mut now) = (0, 0);
    for i in 0..5_000_u64 {
        now += 1_000_000 + i % 7 * 10_000;
        sent += i % 13;
        if recorder.is_due(now) {
            recorder
                .row(now)
                .counter("traffic", "offered_frames", "frames", sent);
        }
    }
    report.timeline = recorder.finish();
    let document = document(&[run("", report.clone())]);
    let plot = document.plots().find(|p| p.name == "traffic-rate").unwrap();
    let seconds = |i: usize| plot.xs[i] - plot.xs[i - 1];
    let rates = &plot.series[0].values;
    let frames: f64 = (1..rates.len())
        .map(|i| rates[i].unwrap() * seconds(i))
        .sum();
    let ends = &report.timeline.columns[0].values;
    let counted = ends.last().unwrap().unwrap() - ends[0].unwrap();
    assert!((frames - counted).abs() < 1e-3, "{frames} {counted}");
}

/// The last moment may be just behind the previous one; a rate of that time has no meaning.
#[test]
fn a_blink_has_no_rate() {
    let mut report = samples::lossy();
    report.timeline = course(20);
    let last = *report.timeline.at_ns.last().unwrap();
    report.timeline.at_ns.push(last + 1_000_000);
    for column in &mut report.timeline.columns {
        let value = column.values.last().copied().flatten().unwrap();
        column.values.push(Some(value + 100.0));
    }
    let document = document(&[run("", report)]);
    let plot = document.plots().find(|p| p.name == "traffic-rate").unwrap();
    let most = plot.extent().1;
    assert!((most - 1000.0).abs() < 1e-6, "{most}");
}

/// There is no gap if one moment came late and the next in time.
#[test]
fn moments_close_together_leave_no_gap() {
    let mut report = samples::lossy();
    report.timeline = course(20);
    report.timeline.at_ns[9] = report.timeline.at_ns[10] - 1_000_000;
    let document = document(&[run("", report)]);
    let plot = document.plots().find(|p| p.name == "traffic-rate").unwrap();
    let rates = &plot.series[0].values;
    assert_eq!(rates.iter().position(Option::is_none), Some(0));
    assert_eq!(
        rates.iter().rposition(Option::is_none),
        Some(0),
        "{rates:?}"
    );
    // 100 frames in 199 ms, and 200 in 101 ms, of which 1 ms has no separate rate.
    let near = |i: usize, rate: f64| {
        let is = rates[i].unwrap();
        assert!((is - rate).abs() < 0.1, "{i}: {is} {rate}");
    };
    near(9, 100.0 / 0.199);
    near(10, 200.0 / 0.101);
    near(11, 200.0 / 0.101);
    near(12, 1000.0);
}

#[test]
fn percentiles_are_those_of_the_distribution() {
    let mut report = samples::lossy();
    report.distributions = vec![latencies()];
    let document = document(&[run("", report)]);
    let plot = document.plots().find(|p| p.name == "percentiles").unwrap();
    // 1, 2, … 1000 us: the share p took at most p ms.
    for (x, y) in plot.xs.iter().zip(&plot.series[0].values) {
        let Some(y) = y else { continue };
        let share = 1.0 - 10f64.powf(-x);
        let expected = (share * 1e-3).max(1e-6);
        assert!((y / expected - 1.0).abs() < 0.07, "{share}: {y} {expected}");
    }
    assert!(plot.series[0].values.iter().flatten().count() > 50);
    let bars = document
        .plots()
        .find(|p| p.name == "histogram-latency")
        .unwrap();
    let sum: f64 = bars.series[0].values.iter().flatten().sum();
    assert!((sum - 100.0).abs() < 1e-6, "{sum}");
}

/// The last of n samples stands at n - 1/2: an outlier is visible.
#[test]
fn the_last_sample_is_in_the_percentiles() {
    let mut report = samples::lossy();
    let buckets = (1..100).map(|i| (i * 1000, i * 1000, 1));
    let far = [(5_000_000, 5_000_000, 1)];
    report.distributions = vec![Distribution::from_buckets(
        "",
        "latency_ns",
        buckets.chain(far),
    )];
    let document = document(&[run("", report)]);
    let plot = document.plots().find(|p| p.name == "percentiles").unwrap();
    let (_, highest) = plot.extent();
    assert!((highest / 5e-3 - 1.0).abs() < 0.07, "{highest}");
}

#[test]
fn figures_of_which_nothing_is_known_are_left_out() {
    let page = page(&full());
    let tests = &page[page.find(">Socket tests</h2>").unwrap()..];
    let table = &tests[..tests.find("</table>").unwrap()];
    assert!(table.contains(">throughput<"), "{table}");
    for unknown in ["reverse", "transactions/s", "local CPU"] {
        assert!(!table.contains(unknown), "{unknown}: {table}");
    }
}

/// Trials at nearly the same load make no curve, and its axis has no distinct marks.
#[test]
fn one_load_is_no_curve() {
    let mut report = full();
    let mut near = report.results[0].clone();
    near.trial_log[1].offered = near.trial_log[0].offered + 1.0;
    report.results = vec![near];
    let titles = titles(&report);
    assert!(titles.iter().any(|t| t.ends_with("search by trial")));
    assert!(!titles.iter().any(|t| t.ends_with("by load")), "{titles:?}");
}

#[test]
fn the_summary_says_what_was_asked_for() {
    let report = full();
    let page = page(&report);
    let summary = &page[page.find(">Summary</h2>").unwrap()..];
    let summary = &summary[..summary.find("</table>").unwrap()];
    assert!(summary.contains(">plan<"), "{summary}");
    let rate = report.plan.traffic[0].streams[0].rate.to_string();
    assert!(
        summary.contains(&format!("rate {rate}")),
        "{rate}: {summary}"
    );
}

/// Paper is white regardless of the system and the button, and finished pictures follow the page.
#[test]
fn colours_are_those_of_the_page() {
    let page = page(&full());
    let styles = page.split("<style>").skip(1);
    let styles: Vec<&str> = styles.filter_map(|s| s.split("</style>").next()).collect();
    let own = styles.iter().find(|s| s.contains("--paper")).unwrap();
    // Each dark paper is inside a rule for screens only.
    for (at, _) in own.match_indices("--paper:#15191e") {
        let media = own[..at].rfind("@media").unwrap();
        assert!(
            own[media..].starts_with("@media screen"),
            "{}",
            &own[media..at]
        );
    }
    let plots = document(&[run("", full())]);
    let picture = svg(plots.plots().next().unwrap());
    let inks = picture
        .split(['"', ' '])
        .filter(|word| word.starts_with("wb-"));
    let mut inks: Vec<&str> = inks.collect();
    inks.sort_unstable();
    inks.dedup();
    assert!(inks.len() > 4, "{inks:?}");
    for ink in inks {
        assert!(own.contains(&format!("figure .{ink}{{")), "{ink}");
    }
}

/// Reports of versions before the timeline have fewer parts, and are read all the same.
#[test]
fn an_older_report_has_what_it_tells() {
    let mut old = serde_json::to_value(samples::lossy()).unwrap();
    for key in ["environment", "timeline", "distributions"] {
        old.as_object_mut().unwrap().remove(key);
    }
    for port in old["ports"].as_array_mut().unwrap() {
        port.as_object_mut().unwrap().remove("nic");
    }
    let report: Report = serde_json::from_value(old).unwrap();
    assert_eq!(titles(&report), ["Percentiles"]);
    assert!(page(&report).contains("FAIL"));
}

#[test]
fn a_run_without_a_frame_has_no_plots() {
    let report = Report {
        timeline: Timeline {
            at_ns: vec![0],
            columns: vec![Column::default()],
            ..Timeline::default()
        },
        distributions: vec![Distribution::default()],
        ..Report::default()
    };
    assert_eq!(titles(&report), Vec::<String>::new());
    assert!(page(&report).contains("INCOMPLETE"));
}

/// References that a browser would fetch.
fn fetched(page: &str) -> Vec<&str> {
    // uPlot names itself in its first line.
    let page = page.split_once("/*! https://github.com/leeoniya/uPlot (v1.6.32) */");
    let (before, after) = page.expect("uPlot is in it");
    let marks = [
        "http:", "https:", "src=", "url(", "@import", "fetch(", "XMLHttp", "import(", "<link",
        "<img", "<iframe",
    ];
    let mut found = Vec::new();
    for part in [before, after] {
        found.extend(marks.iter().filter(|mark| part.contains(**mark)));
        found.extend(part.match_indices("href=").filter_map(|(at, _)| {
            let target = &part[at + 5..];
            (!target.starts_with("\"#s")).then_some(&target[..20])
        }));
    }
    found
}

#[test]
fn a_page_asks_nobody_for_anything() {
    let page = page(&full());
    assert_eq!(fetched(&page), Vec::<&str>::new());
    assert!(page.contains("default-src 'none'"));
    assert!(page.contains("Copyright (c) 2022 Leon Sorokin"));
}

const HOSTILE: &str =
    "</script><script>alert(1)</script>\"'><img src=x onerror=alert(2)><!--\u{2028}`|\u{1b}[2J";

#[test]
fn names_stay_text() {
    let mut report = full();
    report.plan.traffic[0].name = HOSTILE.to_owned();
    report.kind = HOSTILE.to_owned();
    report.reason = HOSTILE.to_owned();
    report.warnings = vec![HOSTILE.to_owned()];
    report.environment.host = HOSTILE.to_owned();
    report.probes[0].name = HOSTILE.to_owned();
    for column in &mut report.timeline.columns {
        if column.of.starts_with("probe") {
            column.of = format!("probe {HOSTILE}");
            column.name = HOSTILE.to_owned();
        }
    }
    let one = page(&report);
    // The data, uPlot, the plots and the script of the page.
    assert_eq!(one.matches("</script").count(), 4);
    assert_eq!(one.matches("<script").count(), 4);
    assert!(!one.contains("<img") && !one.contains("alert(1)</"));
    assert_eq!(fetched(&one.replace("src=x", "")), Vec::<&str>::new());
    let data = one.split_once("id=\"wb-data\">").unwrap().1;
    let data: Value = serde_json::from_str(data.split_once("</script>").unwrap().0).unwrap();
    let names = data["plots"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|p| p["series"].as_array().unwrap());
    assert!(
        names
            .map(|s| s["name"].as_str().unwrap())
            .filter_map(|name| name.strip_prefix(HOSTILE))
            .any(|rest| rest.is_empty() || rest.starts_with(", median "))
    );
    let two = html(&document(&[
        run(HOSTILE, report.clone()),
        run("b", report.clone()),
    ]));
    assert_eq!(two.matches("</script").count(), 4);
    let text = markdown(&document(&[run("", report.clone())]));
    let outside = text.split("```").next().unwrap();
    assert!(
        !outside.contains('<') && !text.contains('\u{1b}'),
        "{outside}"
    );
    for plot in document(&[run("", report)]).plots() {
        assert!(!svg(plot).contains("<script") && !svg(plot).contains("<img"));
    }
}

#[test]
fn runs_of_different_plans_are_not_judged() {
    let (before, mut after) = (full(), full());
    after.jobs[0].totals.lost_frames = Some(0);
    let job = &mut after.plan.traffic[0];
    job.duration = Some("9s".parse().unwrap());
    job.streams[0].rate = "150kpps".parse().unwrap();
    // Another port or seed is the same experiment.
    after.plan.ports[1].locator = "eth7".parse().unwrap();
    after.plan.seed = 77;
    let text = markdown(&document(&[run("before", before), run("after", after)]));
    assert!(
        text.contains("traffic.duration (5s, 9s), traffic.stream.rate (100kpps, 150kpps)"),
        "{text}"
    );
    assert!(text.contains("-1,000 frames"), "{text}");
    assert!(
        !text.contains("**better: ") && !text.contains("**worse: "),
        "{text}"
    );
}

/// An invalid run says nothing about the device, so its figures are neither better nor worse.
#[test]
fn invalid_runs_are_not_judged() {
    for (verdict, is_judged) in [
        (Verdict::Fail, true),
        (Verdict::Invalid, false),
        (Verdict::Incomplete, false),
    ] {
        let (before, mut after) = (full(), full());
        after.jobs[0].totals.lost_frames = Some(0);
        after.verdict = verdict;
        let text = markdown(&document(&[run("before", before), run("after", after)]));
        assert_eq!(text.contains("**better: "), is_judged, "{text}");
        let why = "invalid or ended early: after";
        assert_eq!(text.contains(why), !is_judged, "{text}");
    }
}

#[test]
fn differences_are_marked() {
    let (before, mut after) = (full(), full());
    after.jobs[0].totals.lost_frames = Some(0);
    after.latency_ns.p99 = before.latency_ns.p99.map(|ns| 2 * ns);
    let rates = &mut after.jobs[0].rates;
    rates.offered_pps = rates.offered_pps.map(|pps| pps * 1.001);
    after.environment.kernel = "Linux 6.2".to_owned();
    after.verdict = Verdict::Pass;
    let runs = [run("before", before), run("after", after)];
    let text = markdown(&document(&runs));
    let row = |of: &str, name: &str| {
        let begin = format!("| {of} | {name} |");
        text.lines()
            .find(|line| line.starts_with(&begin))
            .unwrap_or_else(|| panic!("{begin}: {text}"))
    };
    assert!(
        row("traffic", "lost").contains("**better: -1,000 frames (-100.0 %)**"),
        "{}",
        row("traffic", "lost")
    );
    assert!(
        row("traffic", "latency p99").contains("**worse: +"),
        "{}",
        row("traffic", "latency p99")
    );
    assert!(!row("traffic", "offered rate").contains("**"));
    assert!(row("traffic", "received").ends_with("| same |"));
    assert!(text.contains("before: **FAIL**") && text.contains("after: **PASS**"));
    assert!(text.contains("**Linux 6.2**"));
    let document = document(&runs);
    let rates = document.plots().find(|p| p.name == "traffic-rate").unwrap();
    let names: Vec<&str> = rates.series.iter().map(|s| s.name.as_str()).collect();
    assert_eq!(
        names,
        [
            "before: offered",
            "before: received",
            "after: offered",
            "after: received"
        ]
    );
    let table = csv(&runs);
    assert!(table.starts_with("run,of,metric,value,unit\nbefore,,verdict,fail,\n"));
    assert!(table.contains("\nafter,traffic,lost_frames,0,frames\n"));
}

#[test]
fn runs_of_different_kinds_are_told_apart() {
    let other = Report {
        kind: "capture".to_owned(),
        capture: full().capture,
        ..Report::default()
    };
    let text = markdown(&document(&[run("a", samples::lossy()), run("b", other)]));
    assert!(text.contains("of different kinds"), "{text}");
}

#[test]
fn a_long_run_makes_a_page_of_reasonable_size() {
    let mut report = full();
    report.timeline = course(100_000);
    let page = page(&report);
    assert!(page.len() < 20_000_000, "{}", page.len());
}

#[test]
fn a_picture_has_its_axes() {
    let document = document(&[run("", full())]);
    for plot in document.plots() {
        let picture = svg(plot);
        assert!(
            picture.starts_with("<svg ") && picture.contains("polyline"),
            "{}",
            plot.name
        );
        for text in plot.series.iter().map(|s| s.name.as_str()) {
            let text: String = text.chars().take(20).collect();
            assert!(picture.contains(&text), "{}: {text}", plot.name);
        }
        assert!(
            !picture.contains("NaN") && !picture.contains("inf"),
            "{}",
            plot.name
        );
    }
    insta::assert_snapshot!(svg(document.plots().next().unwrap()));
}

#[test]
fn lists_of_figures_have_a_line_each() {
    let text = json::report(&full());
    let again: Report = serde_json::from_str(&text).unwrap();
    assert_eq!(again.timeline, full().timeline);
    assert_eq!(again.distributions, full().distributions);
    let values = text
        .lines()
        .find(|l| l.trim_start().starts_with("\"values\""))
        .unwrap();
    assert!(values.ends_with("1900.0]"), "{values}");
    assert!(text.contains("\"warnings\": ["));
}

/// Every value in a document, except for further entries of a list, by its path.
fn leaves(value: &Value, path: &str, out: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (key, inner) in fields {
                leaves(
                    inner,
                    &format!("{path}/{}", key.replace('~', "~0").replace('/', "~1")),
                    out,
                );
            }
        }
        Value::Array(items) => {
            out.push(path.to_owned());
            for (i, inner) in items.iter().enumerate().take(4) {
                leaves(inner, &format!("{path}/{i}"), out);
            }
        }
        _ => out.push(path.to_owned()),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]
    #[test]
    fn whatever_a_report_holds_is_shown(changes in prop::collection::vec((any::<prop::sample::Index>(), 0_u8..10), 1..30)) {
        let mut document_of = serde_json::to_value(full()).unwrap();
        let mut paths = Vec::new();
        leaves(&document_of, "", &mut paths);
        for (which, how) in changes {
            let Some(place) = document_of.pointer_mut(which.get::<String>(&paths)) else { continue };
            let before = place.clone();
            *place = match (&before, how) {
                (Value::Number(_), 0) => json!(u64::MAX),
                (Value::Number(_), 1) => json!(0),
                (Value::Number(_), 2) => json!(i64::MAX),
                (Value::Number(_), 3) => json!(1e308),
                (Value::Number(_), 4) => json!(-1e308),
                (Value::Number(_), 5) => json!(i64::MIN),
                (Value::Number(_), 6) => json!(1e-320),
                (Value::String(_), _) => json!(HOSTILE),
                (Value::Bool(b), _) => json!(!b),
                (Value::Array(items), 0..5) => json!(items[..items.len() / 2]),
                (Value::Array(items), _) => Value::Array(items.iter().rev().cloned().collect()),
                (Value::Null, _) => json!(u64::from(how) << 60),
                (other, _) => other.clone(),
            };
            // The reader refuses invalid reports.
            if serde_json::from_value::<Report>(document_of.clone()).is_err() {
                *document_of.pointer_mut(which.get::<String>(&paths)).unwrap() = before;
            }
        }
        let report: Report = serde_json::from_value(document_of).unwrap();
        for runs in [vec![run("", report.clone())], vec![run("a", full()), run(HOSTILE, report)]] {
            let document = document(&runs);
            let page = html(&document);
            prop_assert_eq!(page.matches("</script").count(), 4);
            prop_assert!(!page.contains("<img"));
            let data = page.split_once("id=\"wb-data\">").unwrap().1;
            let data = data.split_once("</script>").unwrap().0;
            prop_assert!(serde_json::from_str::<Value>(data).is_ok());
            prop_assert!(!markdown(&document).is_empty() && !csv(&runs).is_empty());
            for plot in document.plots() {
                let picture = svg(plot);
                prop_assert!(!picture.contains("NaN") && !picture.contains("\"inf"), "{:?}: {}", plot, picture.lines().find(|l| l.contains("NaN") || l.contains("\"inf")).unwrap_or_default());
            }
        }
    }
}

#[test]
fn hosts_of_a_fleet_and_their_clocks_are_listed() {
    let clock = PairClock {
        from: "a".to_owned(),
        to: "b".to_owned(),
        method: "udp".to_owned(),
        error_ns: 4_900,
        ..PairClock::default()
    };
    let host = |host: &str| HostReport {
        host: host.to_owned(),
        version: "1.2.3".to_owned(),
        ..HostReport::default()
    };
    let mut report = Report {
        hosts: ["a", "b"].map(host).into(),
        ..Report::default()
    };
    (report.hosts[1].state, report.hosts[1].since_ns) = (HostState::CutOff, Some(6_000_000_000));
    report.hosts[1].why = "no message for 3 s".to_owned();
    report.hosts[0].clock = Some(HostClock {
        method: "ptp".to_owned(),
        error_ns: 27,
        ..HostClock::default()
    });
    report.jobs = vec![JobReport {
        clock: Some(clock),
        round_trip_mean_ns: Some(350_000.0),
        ..JobReport::default()
    }];
    let text = wb_render::text::report(&report, &wb_render::text::Options::default());
    let pages = [text, page(&report), markdown(&document(&[run("", report)]))];
    for page in pages {
        for part in [
            "1.2.3",
            "complete",
            "cut off",
            "6.00 s",
            "no message for 3 s",
            "latency between a and b: clock error at most 4.90 us (udp)",
            "ptp, at most 27 ns",
            "round trip, mean",
            "there and back, without the offset of the clocks",
        ] {
            assert!(page.contains(part), "{part}: {page}");
        }
    }
}
