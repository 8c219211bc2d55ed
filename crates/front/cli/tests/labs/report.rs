//! The report to hand over, as shown by a browser, and made from any valid or invalid report.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    kit::{run, wirebench},
    turns::Turn,
};

/// Checks the page of a run, and makes all other forms from its JSON.
pub(crate) fn holds(report: &Value, page: &Path) {
    let text = fs::read_to_string(page).expect("the page was written");
    let reason = report["reason"].as_str().unwrap();
    for part in ["</html>", "<b>PASS</b>", ">Environment</h2>", ">Plan</h2>"] {
        assert!(text.contains(part), "{part}: {reason}");
    }
    for key in ["tool", "host", "kernel", "cpu"] {
        let known = report["environment"][key].as_str().unwrap();
        assert!(!known.is_empty(), "{key}: {report}");
    }
    let folder = TempDir::new().unwrap();
    let file = |name: &str| folder.path().join(name).display().to_string();
    fs::write(file("a.json"), report.to_string()).unwrap();
    let made = |words: &[&str]| {
        let output = run(&[&["report"], words].concat());
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(0), "{words:?}: {error}");
        String::from_utf8(output.stdout).unwrap()
    };
    made(&[
        &file("a.json"),
        "-o",
        &file("again.html"),
        "--plots",
        &file("plots"),
    ]);
    let headings = |text: &str| text.matches("<h2").count();
    let again = fs::read_to_string(file("again.html")).unwrap();
    assert_eq!(headings(&again), headings(&text));
    // The trials of a benchmark are separate runs; its plots show these.
    let has_course = report["timeline"]["at_ns"]
        .as_array()
        .is_some_and(|at| at.len() > 2);
    let plots = fs::read_dir(file("plots")).unwrap().count();
    assert_eq!(again.matches("<figure>").count(), plots);
    assert!(plots > 0 || !has_course, "{}", report["timeline"]);
    percentiles_lie_within(report);
    made(&[&file("a.json"), &file("a.json"), "-o", &file("both.html")]);
    made(&[&file("a.json"), "-o", &file("a.csv")]);
    assert!(made(&[&file("a.json"), "--markdown"]).contains("**PASS**"));
}

/// Percentiles of intervals are those of the times that the run measured, to 3 %.
fn percentiles_lie_within(report: &Value) {
    let columns = report["timeline"]["columns"].as_array();
    let columns = columns.map_or(&[][..], Vec::as_slice);
    let values = |of: &str, name: &str| -> Option<Vec<f64>> {
        let column = columns.iter().find(|c| c["of"] == of && c["name"] == name);
        let values = column?["values"].as_array().unwrap().iter();
        Some(values.filter_map(Value::as_f64).collect())
    };
    let kinds = [
        ("traffic", "latency"),
        ("load", "request"),
        ("http", "latency"),
    ];
    let mut measured = kinds.iter().filter(|(of, name)| {
        let samples = values(of, &format!("{name}_samples"));
        samples.is_some_and(|s| s.last() > Some(&0.0))
    });
    // If there are several, the latency of the report covers only one of them.
    let (Some((of, name)), None) = (measured.next(), measured.next()) else {
        return;
    };
    let latency = |key: &str| report["latency_ns"][key].as_f64().unwrap();
    let (least, most) = (
        latency("min") * 31.0 / 32.0 - 1.0,
        latency("max") * 33.0 / 32.0 + 1.0,
    );
    for percentile in ["p50", "p99", "p999"] {
        let known = values(of, &format!("{name}_{percentile}_ns")).unwrap_or_default();
        assert!(!known.is_empty(), "{of} {name} {percentile}: {report}");
        for ns in known {
            assert!(
                (least..=most).contains(&ns),
                "{of} {percentile} {ns}: {report}"
            );
        }
    }
}

/// The timeline of a run ends with its totals.
#[test]
fn the_course_of_a_run_ends_with_its_totals() {
    let trial =
        "trial --tx memory:x --rx memory:x --rate 5kpps --duration 1s --catch-up 10s --json -q";
    let words: Vec<&str> = trial.split_whitespace().collect();
    let output = run(&words);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let columns = report["timeline"]["columns"].as_array().unwrap();
    for name in [
        "offered_frames",
        "received_frames",
        "offered_octets",
        "unsent_frames",
    ] {
        let column = columns.iter().find(|c| c["name"] == name).expect(name);
        let last = column["values"].as_array().unwrap().last().unwrap();
        assert_eq!(last.as_f64(), report["totals"][name].as_f64(), "{name}");
    }
    percentiles_lie_within(&report);
    let moments = report["timeline"]["at_ns"].as_array().unwrap().len();
    assert!((8..=30).contains(&moments), "{moments}");
    let latency = &report["distributions"][0];
    assert_eq!(latency["name"], "latency_ns");
    let counts = latency["buckets"].as_array().unwrap().iter();
    let sum: u64 = counts.map(|b| b[2].as_u64().unwrap()).sum();
    assert_eq!(sum, report["latency_ns"]["samples"].as_u64().unwrap());
}

/// The timeline of each of the first flows does, too, if there are several.
#[test]
fn the_first_flows_are_told_while_a_run_goes_on() {
    for (flows, shown) in [(1, 0), (10, 8)] {
        let trial = format!(
            "trial --tx memory:x --rx memory:x --rate 2kpps --flows {flows} --duration 500ms --catch-up 10s --json -q"
        );
        let output = run(&trial.split(' ').collect::<Vec<_>>());
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let columns = report["timeline"]["columns"].as_array().unwrap();
        let told: Vec<&Value> = columns
            .iter()
            .filter(|c| c["of"].as_str().unwrap().starts_with("flow "))
            .filter(|c| c["name"] == "received_frames")
            .collect();
        assert_eq!(told.len(), shown, "{report}");
        for (flow, column) in told.into_iter().enumerate() {
            assert_eq!(column["of"], format!("flow {flow}"));
            let of_report = &report["flows"][flow];
            assert_eq!(of_report["flow"], flow);
            let last = column["values"].as_array().unwrap().last().unwrap();
            let received = &of_report["totals"]["received_frames"];
            assert_eq!(last.as_f64(), received.as_f64(), "{report}");
        }
    }
}

fn chromium() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let mut places = std::env::split_paths(&path).flat_map(|p| names.map(|name| p.join(name)));
    let found = places.find(|place| place.is_file());
    if found.is_none() {
        wb_skip::skipped("no chromium, to show a page");
    }
    found
}

/// Content of the page after its scripts have run, and the time that they took.
fn shown(chromium: &Path, page: &Path, folder: &Path) -> (String, Duration) {
    let began = Instant::now();
    let output = Command::new(chromium)
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--dump-dom",
            "--window-size=1200,900",
        ])
        .arg(format!(
            "--user-data-dir={}",
            folder.join("profile").display()
        ))
        .arg(format!("file://{}", page.display()))
        .stdin(Stdio::null())
        .output()
        .expect("chromium runs");
    (
        String::from_utf8_lossy(&output.stdout).into_owned(),
        began.elapsed(),
    )
}

/// Each plot is drawn, by scripts that the page allows, even with 100,000 moments.
#[test]
fn a_browser_draws_every_plot() {
    let Some(chromium) = chromium() else { return };
    let _turn = Turn::beside_others();
    let folder = TempDir::new().unwrap();
    let file = |name: &str| folder.path().join(name);
    let trial = "trial --tx memory:x --rx memory:x --rate 5kpps --duration 500ms --catch-up 10s --json -q --report";
    let output = wirebench()
        .args(trial.split_whitespace())
        .arg(file("page.html"))
        .output()
        .unwrap();
    let mut report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let drawn = |page: &str| {
        let (dom, took) = shown(&chromium, &file(page), folder.path());
        let plots = dom.matches("<figure>").count();
        assert!(plots > 3, "{plots}");
        assert!(
            dom.contains(&format!("data-drawn=\"{plots}\"")),
            "{page}: not drawn"
        );
        assert_eq!(dom.matches("<canvas").count(), plots);
        took
    };
    drawn("page.html");
    let moments = 100_000_u64;
    report["timeline"]["at_ns"] = (0..moments).map(|i| i * 100_000_000).collect();
    for column in report["timeline"]["columns"].as_array_mut().unwrap() {
        column["values"] = (0..moments).map(|i| json!(i * 100 + i % 7)).collect();
    }
    fs::write(file("long.json"), report.to_string()).unwrap();
    let long = file("long.json").display().to_string();
    let page = file("long.html").display().to_string();
    assert_eq!(run(&["report", &long, "-o", &page]).status.code(), Some(0));
    let empty = file("empty.html");
    fs::write(&empty, "<p>").unwrap();
    let (_, start) = shown(&chromium, &empty, folder.path());
    let took = drawn("long.html").saturating_sub(start);
    // Delays by other processes on a busy machine are not the page's.
    assert!(took < Duration::from_secs(20), "{took:?}");
}

#[test]
fn what_is_no_report_is_refused_in_one_line() {
    let folder = TempDir::new().unwrap();
    let file = |name: &str| folder.path().join(name).display().to_string();
    let good = run(&[
        "trial", "--tx", "memory:x", "--rx", "memory:x", "--count", "10", "--rate", "1kpps",
        "--json", "-q",
    ]);
    fs::write(file("good.json"), &good.stdout).unwrap();
    let report: Value = serde_json::from_slice(&good.stdout).unwrap();
    let with = |pointer: &str, value: Value| {
        let mut report = report.clone();
        *report.pointer_mut(pointer).unwrap() = value;
        report.to_string()
    };
    let half = String::from_utf8_lossy(&good.stdout[..good.stdout.len() / 2]).into_owned();
    for (name, text, said) in [
        ("empty", String::new(), ": empty; create a report"),
        (
            "half",
            half,
            "not a JSON report (create one with --json): EOF",
        ),
        (
            "text",
            "hello".to_owned(),
            "not a JSON report (create one with --json)",
        ),
        ("list", "[1]".to_owned(), "not a report (schema"),
        (
            "schema",
            with("/schema", json!("wirebench.report/2")),
            "expected schema \"wirebench.report/1\", got \"wirebench.report/2\"",
        ),
        (
            "kind",
            with("/verdict", json!("maybe")),
            "unknown variant `maybe`",
        ),
        (
            "number",
            with("/elapsed_ns", json!(-1)),
            "invalid value: integer `-1`",
        ),
        (
            "nan",
            with("/percentile_error", json!(null)),
            "invalid type: null",
        ),
    ] {
        fs::write(file(name), text).unwrap();
        let output = run(&["report", &file(name), "-o", &file("out.html")]);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{name}: {error}");
        assert!(
            error.contains(said) && error.contains(&file(name)),
            "{name}: {error}"
        );
        assert_eq!(error.lines().count(), 1, "{name}: {error}");
        assert!(!Path::new(&file("out.html")).exists(), "{name}");
    }
    for (words, said) in [
        (vec![file("missing.json")], "cannot read"),
        (
            vec![file("good.json"), "-o".into(), file("a.pdf")],
            "expected a name that ends in .html, .md or .csv",
        ),
        (
            vec![file("good.json"), "-o".into(), file("no/a.html")],
            "cannot write",
        ),
        (
            vec!["-".into(), "-".into(), "-o".into(), file("a.html")],
            "can be given only once",
        ),
    ] {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let output = run(&[&["report"], &words[..]].concat());
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{words:?}: {error}");
        assert!(
            error.contains(said) && error.lines().count() == 1,
            "{words:?}: {error}"
        );
    }
    // A page that could not be written at the end is refused before the start.
    let output = run(&[
        "tx",
        "-i",
        "memory:x",
        "--count",
        "1",
        "--report",
        &file("no/a.html"),
    ]);
    assert_eq!(output.status.code(), Some(2));
    // The run itself is not written over.
    fs::write(file("run.html"), &good.stdout).unwrap();
    let output = run(&["report", &file("run.html"), "-o", &file("run.html")]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(fs::read(file("run.html")).unwrap(), good.stdout);
}
