//! Suites of tests in all forms.

use insta::assert_snapshot;
use proptest::prelude::*;
use wb_model::{
    Phase, Report, Snapshot, Verdict,
    bench::{
        BenchLive, BurstGap, LbLimit, LossRow, Modifier, ServiceStep, SuiteResult, TrialOutcome,
    },
    plan::Procedure,
};
use wb_render::{
    csv, junit, live, metrics,
    report::{Document, Plot, Run, document, html, markdown, svg},
    text::{self, Options},
};

use crate::samples::suite::{self as samples, throughput};

fn plain(report: &Report, verbose: bool) -> String {
    let options = Options {
        verbose,
        ..Options::default()
    };
    text::report(report, &options)
}

/// Returns the text from a heading on.
fn from<'a>(text: &'a str, heading: &str) -> &'a str {
    &text[text.find(heading).expect(heading)..]
}

#[test]
fn text_of_all_tests() {
    assert_snapshot!(plain(&samples::full(), false));
}

#[test]
fn text_of_connections_with_all_trials() {
    assert_snapshot!(plain(&samples::report(vec![samples::connections()]), true));
}

#[test]
fn all_trials_are_told_with_what_rose_meanwhile() {
    let r = throughput("64", 0.2, LbLimit::Device);
    assert_snapshot!(from(&plain(&samples::report(vec![r]), true), "trials of"));
}

/// The rate that a void trial offered is not a load of the curve.
#[test]
fn a_void_row_of_a_loss_curve_has_no_rate() {
    let mut curve = samples::loss("64", 0.2);
    curve.curve[1].offered = 1_234_567.0;
    let text = plain(&samples::report(vec![curve]), false);
    let rows = text
        .lines()
        .map(|l| l.split_whitespace().collect::<Vec<_>>());
    let is_void = |cells: &Vec<&str>| *cells == ["64", "90", "%", "-", "-"];
    assert_eq!(rows.filter(is_void).count(), 1, "{text}");
    assert!(text.contains("no valid trial at 90 %"), "{text}");
}

#[test]
fn texts_fit_eighty_columns() {
    for line in plain(&samples::full(), true).lines() {
        assert!(line.chars().count() <= 80, "{line}");
        assert_eq!(line, line.trim_end());
    }
}

/// Benchmark tables are complete, and notes of one size do not look like notes of all.
#[test]
fn nothing_of_a_benchmark_is_left_out() {
    let mut services = samples::services();
    let step = services.steps[0].clone();
    services.steps = (0..20)
        .map(|n| ServiceStep {
            step: format!("step {n}"),
            ..step.clone()
        })
        .collect();
    let text = plain(&samples::report(vec![services]), false);
    assert!(
        text.contains("step 19") && !text.contains("more; -v"),
        "{text}"
    );

    let curve = |size: &str| {
        let mut curve = samples::loss(size, 0.2);
        let row = curve.curve[0].clone();
        let load = |n: u32| f64::from(100 - n);
        let rows = (0..20).map(|n| LossRow {
            load_pct: load(n),
            ..row.clone()
        });
        curve.curve = rows.collect();
        curve
    };
    let text = plain(&samples::report(vec![curve("64"), curve("512")]), false);
    assert!(
        text.contains("   81 %") && !text.contains("more; -v"),
        "{text}"
    );

    let of = |size: &str| throughput(size, 0.2, LbLimit::Device);
    let mut noted = of("64");
    noted.notes = vec!["void".to_owned(); 3];
    let text = plain(&samples::report(vec![noted, of("512"), of("1518")]), false);
    assert!(text.contains("\n  64 B: void\n"), "{text}");
    // An explanation of all results that have one has no names.
    let mut none = of("1518");
    none.not_measured = Some("the MTU is 1400".to_owned());
    let text = plain(&samples::report(vec![of("64"), of("512"), none]), false);
    assert!(
        text.contains("\n  L1: with FCS, preamble and gap"),
        "{text}"
    );
    assert!(text.contains("! 1518 B: not measured: the MTU"), "{text}");
}

/// The first lines show what failed and what is only a lower bound.
#[test]
fn a_summary_hides_no_failure() {
    let text = plain(&samples::full(), false);
    let (head, _) = text.split_once("limited by").unwrap();
    let head = head.split_whitespace().collect::<Vec<_>>().join(" ");
    for said in [
        "128 B at least 4,222,972 fps",
        "1024 B at least 598,659 fps",
        "1280 B none passed",
        "1518 B not measured",
        "latency p99 at the highest load: 64 B",
        "recovery average: 64 B 6.00 ms",
        "reset by loss: 64 B 1.23 s",
        "y1564 passed: 512 B 3 steps",
    ] {
        assert!(head.contains(said), "{said}: {head}");
    }
}

/// A device that passed 9,999,999 of 10,000,000 has not passed all; a tester limit is not a device limit.
#[test]
fn nothing_is_rounded_to_more_than_it_is() {
    let text = plain(&samples::full(), false);
    let row = |size: &str| {
        let table = from(&text, "theoretical");
        let table = &table[..table.find("not confirmed").unwrap()];
        let rows = table
            .lines()
            .filter(|l| l.split_whitespace().next() == Some(size));
        rows.collect::<Vec<_>>().join(" ")
    };
    assert!(row("256").contains("99.99999 %"), "{}", row("256"));
    assert!(row("512").contains(" 100 %") && row("512").ends_with("line rate"));
    let words: Vec<String> = row("512").split_whitespace().map(Into::into).collect();
    assert_eq!(words[1], words[2], "throughput is what the line carries");
    assert!(row("128").ends_with("tester"));
    assert!(text.contains("! 128 B: tester limit: at least 4,222,972 fps"));
    let curve = from(&text, "\nframe loss rate (");
    assert!(curve.contains(" 0.000001 %"), "{curve}");
}

/// A tester limit is the headline, whatever other statements there are.
#[test]
fn a_tester_that_was_the_limit_is_the_headline() {
    let mut r = throughput("64", 0.2, LbLimit::Time);
    r.tester_limit = true;
    let text = plain(&samples::report(vec![r.clone()]), false);
    let row = text.lines().find(|l| l.ends_with("6  tester"));
    assert!(row.is_some(), "{text}");
    assert!(
        text.contains("! tester limit: at least 2,976,190 fps"),
        "{text}"
    );
    (r.limit, r.throughput_fps) = (None, None);
    let text = plain(&samples::report(vec![r.clone()]), false);
    assert!(text.contains("! tester limit: no load"), "{text}");
    let xml = junit::report(&samples::report(vec![r]));
    assert!(xml.contains("<error message=\"64 B: tester limit"), "{xml}");
}

#[test]
fn both_directions_are_said() {
    let mut r = throughput("64", 0.2, LbLimit::Device);
    r.directions = 2;
    let text = plain(&samples::report(vec![r]), false);
    assert!(text.contains("rates are per direction"), "{text}");
    assert!(text.contains("in both directions at once"), "{text}");
}

#[test]
fn bursts_have_their_gap() {
    let even = throughput("64", 0.5, LbLimit::Device);
    let mut burst = even.clone();
    burst.burst = Some(BurstGap {
        frames: 1024,
        burst_fps: even.theoretical_fps,
        period_us: Some(137.62),
        gap_us: Some(68.81),
    });
    let mut too_long = burst.clone();
    (too_long.limit, too_long.throughput_fps) = (None, None);
    too_long.burst = Some(BurstGap {
        frames: 4096,
        ..BurstGap::default()
    });
    let report = samples::report(vec![even, burst, too_long]);
    let text = plain(&report, true);
    let lines: Vec<Vec<&str>> = text
        .lines()
        .map(|l| l.split_whitespace().collect())
        .collect();
    for expected in [
        [
            "size",
            "burst",
            "theoretical",
            "fps",
            "throughput",
            "fps",
            "gap",
        ]
        .as_slice(),
        &["64", "1024", "14,880,952", "7,440,476", "68.8", "us"],
    ] {
        let is_there = lines.iter().any(|line| line.starts_with(expected));
        assert!(is_there, "{expected:?}: {text}");
    }
    assert!(
        text.contains("! 64 B in bursts of 4,096: no tested load passed"),
        "{text}"
    );
    assert!(
        text.contains("trials of throughput 64 B in bursts of 1,024"),
        "{text}"
    );
    // The ceiling is that of the tester without the device, in a column of its table.
    let (table, _) = text.split_once("trials of").unwrap();
    assert_eq!(table.matches("tester ceiling fps").count(), 1, "{text}");
    assert!(table.contains("6,000,000"), "{text}");
    for line in text.lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
    let page = html(&page(report.clone()));
    assert!(page.contains("throughput burst 1024"), "{page}");
    let rows = csv::report(&report);
    assert!(
        rows.lines().next().unwrap().ends_with(",burst,gap_us"),
        "{rows}"
    );
    assert!(
        rows.lines().any(|row| row.ends_with(",1024,68.81")),
        "{rows}"
    );
}

fn line(bench: BenchLive, width: usize) -> String {
    let snapshot = Snapshot {
        bench: Some(bench),
        missing_frames: Some(12),
        ..Snapshot::at(12_300_000_000, 1_000_000_000, Phase::Running)
    };
    live::line(&snapshot, width, false)
}

#[test]
fn live_lines_of_a_suite() {
    let begins = BenchLive {
        trial: 0,
        ..samples::live()
    };
    let mut lines = vec![line(begins, 100)];
    for width in [120, 100, 80, 60, 30] {
        lines.push(line(samples::live(), width));
        assert!(lines.last().unwrap().chars().count() <= width);
    }
    lines.push(line(
        BenchLive {
            low: None,
            left_ns: None,
            ..samples::live()
        },
        100,
    ));
    for outcome in [
        TrialOutcome::Pass,
        TrialOutcome::Fail,
        TrialOutcome::NotOffered,
        TrialOutcome::NotRead,
        TrialOutcome::Late,
        TrialOutcome::Cut,
    ] {
        lines.push(line(samples::ended(outcome), 100));
    }
    assert_snapshot!(lines.join("\n"));
}

const COLUMNS: &str = "test,trial,size,intended_fps,intended_pct,offered_fps,duration_s,tx,rx,lost,loss_ratio,dup,ooo,foreign,lat_min_ns,lat_p50,lat_p99,lat_p999,lat_max,nic_drops,verdict,";

#[test]
fn csv_is_the_trial_log() {
    let full = samples::full();
    let text = csv::report(&full);
    assert!(text.starts_with(COLUMNS), "{text}");
    let trials: usize = full.results.iter().map(|r| r.trial_log.len().max(1)).sum();
    assert_eq!(text.lines().count(), trials + 1);
    assert!(text.contains("throughput,3,64,"));
    assert!(text.contains(",not-offered,search,"));
    assert!(text.contains("the MTU of port b is 1400"));
    let empty = csv::report(&samples::report(Vec::new()));
    assert!(empty.starts_with(COLUMNS) && empty.lines().count() == 1);
}

#[test]
fn junit_tells_what_held_failed_and_was_not_measured() {
    let text = junit::report(&samples::full());
    let document = roxmltree::Document::parse(&text).unwrap();
    let case = |class: &str, name: &str| {
        let own = |n: &roxmltree::Node| {
            n.attribute("classname") == Some(&format!("wirebench.rfc2544.{class}"))
                && n.attribute("name") == Some(name)
        };
        let found = document.descendants().find(own);
        found.unwrap_or_else(|| panic!("{class} {name}: {text}"))
    };
    let came = |class: &str, name: &str| {
        let child = case(class, name).children().find(|n| n.is_element());
        let child = child.unwrap();
        let why = child.attribute("message").unwrap_or_default().to_owned();
        (child.tag_name().name().to_owned(), why)
    };
    assert_eq!(came("throughput", "64 B").0, "system-out");
    assert_eq!(came("throughput", "128 B").0, "system-out");
    assert_eq!(came("throughput", "1024 B").0, "error");
    assert_eq!(came("throughput", "1280 B").0, "failure");
    let skipped = ("skipped".to_owned(), "the MTU of port b is 1400".to_owned());
    assert_eq!(came("throughput", "1518 B"), skipped);
    assert_eq!(came("ndr", "64 B pdr").0, "system-out");
    assert_eq!(came("y1564", "voice policing").0, "failure");
    let failed = ("failure".to_owned(), "measured 999999.5".to_owned());
    assert_eq!(came("criteria", "pps>=1000000"), failed);
    // The verdict repeats the criteria, so it is counted once.
    assert_eq!(came("run", "rfc2544").0, "system-out");
    let out = case("throughput", "64 B");
    assert!(
        out.children()
            .any(|n| n.text().unwrap_or("").contains("2,976,190"))
    );
    let root = document.root_element();
    let number = |node: roxmltree::Node, name: &str| -> usize {
        node.attribute(name).unwrap().parse().unwrap()
    };
    for (attribute, element) in [
        ("tests", "testcase"),
        ("failures", "failure"),
        ("errors", "error"),
        ("skipped", "skipped"),
    ] {
        let there = document.descendants().filter(|n| n.has_tag_name(element));
        assert_eq!(number(root, attribute), there.count(), "{attribute}");
        let suites = root.children().filter(|n| n.has_tag_name("testsuite"));
        let sum: usize = suites.map(|suite| number(suite, attribute)).sum();
        assert_eq!(number(root, attribute), sum, "{attribute}");
    }
}

/// The result of each case in the document matches its verdict.
#[test]
fn junit_tells_failures_and_what_is_void_of_tests_without_a_limit() {
    let mut report = samples::full();
    let alone = |report: &mut Report, result: SuiteResult| {
        report.results = vec![result];
        let text = junit::report(report);
        let document = roxmltree::Document::parse(&text).unwrap();
        let case = document.descendants().find(|n| n.has_tag_name("testcase"));
        let came = case
            .unwrap()
            .children()
            .find(|n| n.has_attribute("message"));
        came.map(|n| {
            (
                n.tag_name().name().to_owned(),
                n.attribute("message").unwrap().to_owned(),
            )
        })
    };
    let told = |element: &str, why: &str| Some((element.to_owned(), why.to_owned()));
    let mut reset = samples::reset();
    assert_eq!(alone(&mut report, reset.clone()), None);
    reset.reset.as_mut().unwrap().not_again_s = Some(30.0);
    assert_eq!(
        alone(&mut report, reset),
        told("failure", "64 B: the device did not resume forwarding")
    );
    let late = "64 B: the device had not recovered at the end of at least one repetition";
    assert_eq!(
        alone(&mut report, samples::recovery()),
        told("failure", late)
    );
    let missing = "64 B: some trials are void";
    assert_eq!(
        alone(&mut report, samples::impact()),
        told("error", missing)
    );
    let mut impact = samples::impact();
    for row in &mut impact.impact {
        (row.lost, row.loss_pct) = (Some(row.tx), Some(100.0));
    }
    assert_eq!(
        alone(&mut report, impact),
        told("failure", "64 B: nothing was forwarded")
    );
    // A void step does not break a promise.
    let mut services = samples::services();
    services.steps.truncate(1);
    let step = &mut services.steps[0];
    (step.passed, step.void, step.reason) = (false, true, "void: late".to_owned());
    assert_eq!(alone(&mut report, services), told("error", "void: late"));
}

#[test]
fn junit_tells_all_conditions_of_a_filter() {
    let mut report = samples::full();
    let Some(Procedure::Suite(suite)) = &mut report.plan.procedure else {
        panic!("no suite");
    };
    suite.modifiers = vec![Modifier::Filters];
    suite.filter_conditions = 25;
    let text = junit::report(&report);
    let document = roxmltree::Document::parse(&text).unwrap();
    let own = document
        .descendants()
        .find(|n| n.attribute("name") == Some("filter"));
    let told = own.unwrap().attribute("value").unwrap();
    assert_eq!(told.split("; ").count(), 26, "{told}");
    assert!(told.ends_with("; deny the rest"), "{told}");
}

#[test]
fn junit_of_a_run_that_is_no_benchmark() {
    for (verdict, element) in [
        (Verdict::Pass, None),
        (Verdict::Invalid, Some("error")),
        (Verdict::Incomplete, Some("error")),
        (Verdict::Fail, Some("failure")),
    ] {
        let mut report = crate::samples::lossy();
        report.criteria.clear();
        report.verdict = verdict;
        let text = junit::report(&report);
        let document = roxmltree::Document::parse(&text).unwrap();
        let trouble = document
            .descendants()
            .find(|n| n.attribute("message").is_some());
        assert_eq!(trouble.map(|n| n.tag_name().name()), element);
    }
}

#[test]
fn junit_gives_the_reason_of_an_invalid_run() {
    let mut report = crate::samples::lossy();
    report.verdict = Verdict::Invalid;
    report.reason = "the tester was late".to_owned();
    let text = junit::report(&report);
    assert!(
        text.contains("; the run is invalid: the tester was late\""),
        "{text}"
    );
}

/// A result with arbitrary words and numbers.
fn any_result() -> impl Strategy<Value = SuiteResult> {
    let number = || proptest::option::of(any::<f64>());
    let words = "\\PC*|[<>&\"'\u{0}-\u{20}\u{fffe}]{0,9}";
    (
        0..14_usize,
        words,
        words,
        words,
        number(),
        number(),
        any::<u64>(),
    )
        .prop_map(|(which, size, goal, reason, limit, other, count)| {
            let all = samples::full();
            let results: Vec<SuiteResult> = all.results.clone();
            let mut r = results[which % results.len()].clone();
            r.size = size;
            r.goal = (!goal.is_empty()).then_some(goal.clone());
            r.not_measured = (count % 5 == 0).then_some(reason.clone());
            r.incomplete = count % 3 == 0;
            r.notes = vec![reason.clone()];
            (r.limit, r.theoretical_fps, r.beyond) = (limit, other, other);
            for t in &mut r.trial_log {
                t.reason = reason.clone();
                t.intended = limit.unwrap_or(f64::NAN);
                t.intended_pct = other;
                (t.lost, t.loss_ratio) = (count, limit.unwrap_or(0.5));
            }
            for row in &mut r.latency {
                (row.load, row.lost) = (limit.unwrap_or(0.0), count);
                row.definition = reason.clone();
            }
            for row in &mut r.curve {
                (row.load_pct, row.loss_pct) = (other.unwrap_or(7.0), limit);
            }
            for step in &mut r.steps {
                (step.service, step.step) = (goal.clone(), reason.clone());
            }
            r
        })
}

/// Fields of one line of CSV (RFC 4180).
fn rows(text: &str) -> Vec<usize> {
    let (mut rows, mut fields, mut quoted) = (Vec::new(), 1, false);
    for c in text.chars() {
        match c {
            '"' => quoted = !quoted,
            ',' if !quoted => fields += 1,
            '\n' if !quoted => {
                rows.push(fields);
                fields = 1;
            }
            _ => {}
        }
    }
    rows
}

proptest! {
    #[test]
    fn no_result_breaks_a_form(results in proptest::collection::vec(any_result(), 0..4), verbose: bool) {
        let mut report = samples::report(results);
        report.reason = report.results.iter().filter_map(|r| r.goal.clone()).collect();
        for line in plain(&report, verbose).lines() {
            prop_assert!(!line.contains(char::is_control), "{line:?}");
        }
        let xml = junit::report(&report);
        let document = roxmltree::Document::parse(&xml);
        prop_assert!(document.is_ok(), "{:?}: {}", document.err(), xml);
        let page = html(&page(report.clone()));
        prop_assert_eq!(page.matches("<script").count(), 4);
        let fields = rows(&csv::report(&report));
        prop_assert!(fields.iter().all(|n| *n == fields[0]), "{fields:?}");
    }

    #[test]
    fn no_live_line_is_too_long(load in proptest::option::of(any::<f64>()), left: u64, size: String, width in 1..200_usize) {
        let bench = BenchLive { load, low: load, left_ns: Some(left), size: Some(size), ..samples::live() };
        prop_assert!(line(bench, width).chars().count() <= width);
    }
}

#[test]
fn results_come_back_from_json() {
    let report = samples::full();
    let text = wb_render::json::report(&report);
    let back: Report = serde_json::from_str(&text).unwrap();
    assert!(back.results.iter().all(|r| r.balancer.is_none()));
    assert_eq!(plain(&back, true), plain(&report, true));
}

fn page(report: Report) -> Document {
    let name = String::new();
    document(&[Run { name, report }])
}

fn plot<'a>(document: &'a Document, name: &str) -> &'a Plot {
    let names: Vec<&str> = document.plots().map(|p| p.name.as_str()).collect();
    let mut plots = document.plots();
    plots
        .find(|p| p.name == name)
        .unwrap_or_else(|| panic!("{name}: {names:?}"))
}

#[test]
fn pages_have_a_section_for_each_test() {
    let document = page(samples::full());
    let titles: Vec<&str> = document.sections.iter().map(|s| s.title.as_str()).collect();
    for title in [
        "Benchmark",
        "Throughput (RFC 2544 section 26.1)",
        "Non-drop and partial drop rates (MLRsearch, RFC 9971)",
        "Latency (RFC 2544 section 26.2, RFC 8219, RFC 5481)",
        "Frame loss rate (RFC 2544 section 26.3)",
        "Back-to-back frames (RFC 9004)",
        "System recovery (RFC 2544 section 26.5)",
        "Reset (RFC 6201)",
        "Service activation (ITU-T Y.1564)",
        "Trials",
    ] {
        assert!(titles.contains(&title), "{title}: {titles:?}");
    }
    for name in [
        "throughput-by-size",
        "ndr-by-size",
        "search-throughput-64-B",
        "search-ndr-64-B",
        "latency-64-B-by-load",
        "loss-by-load",
        "b2b-by-size",
        "recovery-by-repetition",
        "y1564-512-B-by-step",
    ] {
        assert!(svg(plot(&document, name)).starts_with("<svg"), "{name}");
    }
    let texts = [html(&document), markdown(&document)];
    for text in texts {
        assert!(text.contains("128 B: tester limit: at least 4,222,972 fps"));
        assert!(text.contains("9,999.9") && text.contains("99.99999 %"));
    }
}

/// A lost frame is visible at once.
#[test]
fn what_was_lost_is_marked() {
    let mut latency = samples::latency();
    latency.latency[2].lost = 1;
    let page = html(&page(samples::report(vec![latency])));
    assert_eq!(page.matches("<td class=\"n bad\">1</td>").count(), 1);
}

/// RFC 2544 section 26.1: theoretical and measured; section 26.3: both axes complete.
#[test]
fn plots_are_those_of_rfc_2544() {
    let document = page(samples::full());
    let by_size = plot(&document, "throughput-by-size");
    let names: Vec<&str> = by_size.series.iter().map(|s| s.name.as_str()).collect();
    assert_eq!(names[..2], ["theoretical", "throughput"]);
    let (line, most) = (&by_size.series[0].values, &by_size.series[1].values);
    assert_eq!(
        (line.len(), line[6]),
        (8, None),
        "what was not measured is a gap"
    );
    assert!((line[0].unwrap() - samples::line(64.0)).abs() < 1e-6);
    assert!((most[0].unwrap() - samples::line(64.0) * 0.2).abs() < 1e-6);
    assert_eq!(most[5], None, "no load held");
    for report in [
        samples::full(),
        samples::report(vec![samples::loss("512", 0.99)]),
    ] {
        let document = page(report);
        let loss = plot(&document, "loss-by-load");
        assert_eq!((loss.xs[0], loss.xs[loss.xs.len() - 1]), (0.0, 100.0));
        assert_eq!(loss.extent(), (0.0, 100.0));
    }
    let void = &plot(&document, "search-throughput-64-B").series[3];
    assert_eq!(
        (void.name.as_str(), void.values[2].is_some()),
        ("void", true)
    );
    assert_eq!(void.values.iter().flatten().count(), 1);
}

#[test]
fn runs_are_compared_by_size() {
    let run = |name: &str, share: f64| Run {
        name: name.to_owned(),
        report: samples::report(vec![
            throughput("64", share, LbLimit::Device),
            throughput("1518", 1.0, LbLimit::Plan),
        ]),
    };
    let runs = [run("before", 0.2), run("after", 0.15)];
    let text = markdown(&document(&runs));
    let row = |of: &str| {
        let mut rows = text
            .lines()
            .filter(|l| l.contains(of) && l.contains("throughput |"));
        rows.next().unwrap_or_else(|| panic!("{of}: {text}"))
    };
    let slower = row("throughput 64 B");
    assert!(slower.contains("worse: -744,048 fps (-25.0 %)"), "{slower}");
    assert!(row("throughput 1518 B").contains("same"));
    // The capacity of the tester is neither a merit nor a fault of a device.
    let mut of_tester = runs.clone();
    let slower = throughput("64", 0.15, LbLimit::Tester);
    of_tester[1].report = samples::report(vec![slower]);
    let text = markdown(&document(&of_tester));
    assert!(
        text.contains("-744,048 fps") && !text.contains("worse: -744"),
        "{text}"
    );
    let figures = wb_render::report::csv(&runs);
    assert!(
        figures.contains("before,throughput 64 B,limit,2976190."),
        "{figures}"
    );
    let all = wb_render::report::csv(&[Run {
        name: "all".to_owned(),
        report: samples::full(),
    }]);
    for figure in [
        "all,ndr 64 B pdr,conditional,",
        "all,latency 64 B,typical_ns at 10 %,6400,ns",
        "all,loss 512 B,loss at 100 %,0.25,share",
        "all,b2b 64 B,average,26000,frames",
        "all,recovery 64 B,max_ns,12000000,ns",
        "all,reset 64 B,by_loss_ns,1234000000,ns",
        "all,y1564 512 B,received_bps at voice policing,110000000,bit/s",
    ] {
        assert!(all.contains(figure), "{figure}: {all}");
    }
}

#[test]
fn metrics_tell_what_is_tried_and_found() {
    let snapshot = Snapshot {
        bench: Some(samples::live()),
        ..Snapshot::at(1, 1, Phase::Running)
    };
    let mut seen = metrics::Seen {
        snapshot: Some(snapshot),
        ..metrics::Seen::default()
    };
    let text = metrics::text("1", &seen);
    for line in [
        "wirebench_bench_trial{size=\"64\",test=\"throughput\"} 7",
        "wirebench_bench_load{size=\"64\",test=\"throughput\",unit=\"fps\"} 1050000",
        "wirebench_bench_low{size=\"64\",test=\"throughput\",unit=\"fps\"} 1000000",
        "wirebench_bench_high{size=\"64\",test=\"throughput\",unit=\"fps\"} 1100000",
        "wirebench_bench_left_seconds{size=\"64\",test=\"throughput\"} 95",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    seen.report = Some(samples::full());
    let text = metrics::text("1", &seen);
    assert!(!text.contains("bench_load{"), "{text}");
    for line in [
        "wirebench_bench_limit{test=\"throughput\",unit=\"fps\",size=\"128\"} 4222972.",
        "wirebench_bench_limit{test=\"ndr\",unit=\"fps\",size=\"64\",goal=\"pdr\"} 8400000",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
}
