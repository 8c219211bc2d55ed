//! Runs without any traffic: never a pass, never 0 % of nothing; frames without a deadline are sent, if later.

use std::{fs, time::Duration};

use rustix::process::Signal;
use serde_json::Value;

use crate::kit::{Lab, Running, assert_adds_up, privileged, run, total};

const PATIENCE: Duration = Duration::from_secs(60);

/// Runs a command, and stops it for a while as soon as its workers exist: before the first frame is due,
/// if the machine is fast enough.
fn stalled(arguments: &str, stall: Duration) -> (Option<i32>, Value) {
    let words: Vec<&str> = arguments.split_whitespace().collect();
    let running = Running::start(&words);
    let tasks = format!("/proc/{}/task", running.0.id());
    let working = || {
        let tasks = fs::read_dir(&tasks).into_iter().flatten().flatten();
        tasks
            .filter_map(|t| fs::read_to_string(t.path().join("comm")).ok())
            .any(|name| name.starts_with("wb-tx"))
    };
    while !working() {
        std::thread::sleep(Duration::from_micros(200));
    }
    running.signal(Signal::STOP);
    std::thread::sleep(stall);
    running.signal(Signal::CONT);
    let output = running.finish(PATIENCE);
    let report: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&output.stderr)));
    assert_adds_up(&report);
    (output.status.code(), report)
}

#[test]
fn a_trial_that_sent_nothing_passes_nothing() {
    let line =
        "trial --tx memory:x --rx memory:x --json -q --rate 1kpps --duration 100ms --catch-up 0s";
    for criterion in ["", " --max-loss 0"] {
        // A late stop lets frames out; some stop is early enough.
        let silent = (0..20).find_map(|_| {
            let (code, report) = stalled(&format!("{line}{criterion}"), Duration::from_millis(400));
            (total(&report, "offered") == 0).then_some((code, report))
        });
        let (code, report) = silent.expect("a stop before the first frame");
        assert_eq!(code, Some(3), "{}", report["reason"]);
        assert_eq!(report["verdict"], "invalid");
        for judged in report["criteria"].as_array().unwrap() {
            assert!(judged["measured"].is_null(), "{judged}");
            assert_eq!(judged["held"], false, "{judged}");
        }
    }
}

#[test]
fn a_receiver_to_which_nothing_came_passes_nothing() {
    let line = "rx -i memory:x --duration 200ms --criteria lost<=0 --json -q";
    let output = run(&line.split(' ').collect::<Vec<_>>());
    let report: Value = serde_json::from_slice(&output.stdout).expect("a report");
    assert_eq!(output.status.code(), Some(3), "{}", report["reason"]);
    assert_eq!(report["verdict"], "invalid");
    assert_eq!(report["reason"], "nothing arrived");
}

#[test]
fn a_load_that_opened_nothing_passes_nothing() {
    // Without commands that could change the rate, a rate of 0 is refused.
    let folder = tempfile::tempdir().expect("a folder");
    let control = folder.path().join("control").display().to_string();
    let output = run(&[
        "load",
        "--client",
        "memory:x",
        "--server",
        "memory:x",
        "--cps",
        "0",
        "--control",
        &control,
        "--duration",
        "300ms",
        "--json",
        "-q",
        "--criteria",
        "failed<=0%",
    ]);
    let report: Value = serde_json::from_slice(&output.stdout).expect("a report");
    assert_eq!(output.status.code(), Some(3), "{}", report["reason"]);
    assert_eq!(report["verdict"], "invalid");
    assert!(report["criteria"][0]["measured"].is_null());
    assert_eq!(report["criteria"][0]["held"], false);
}

#[test]
fn a_count_is_sent_after_a_stall_too() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    for driver in ["packet", "xdp"] {
        let line = format!(
            "tx -i {driver}:{} --count 157 --rate 5kpps --json -q",
            lab.a0()
        );
        let (code, report) = stalled(&line, Duration::from_millis(1200));
        assert_eq!(code, Some(0), "{}", report["reason"]);
        assert_eq!(total(&report, "offered"), 157, "{}", report["totals"]);
        assert_eq!(total(&report, "unsent"), 0);
    }
}

/// A flow that runs until the end has received some answer, so it is completed.
#[test]
fn datagrams_that_are_lost_have_failed() {
    if !privileged() {
        return;
    }
    let lab = Lab::alone("impair", &["--all", "--both", "--loss", "90%"]);
    let (a, b) = (lab.a0(), lab.b0());
    let ends = ["load", "--client", &a, "--server", &b, "--json", "-q"];
    let line = "--udp --cc 10 --pps 2k --duration 1s --response-timeout 200ms";
    let line: Vec<&str> = line.split(' ').collect();
    let output = run(&[&ends, &line[..], &["--criteria", "failed<=10%"]].concat());
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        output.status.code(),
        Some(1),
        "{}",
        report["load"]["jobs"][0]
    );
    assert_eq!(report["verdict"], "fail", "{}", report["reason"]);
    assert!(
        report["criteria"][0]["measured"].as_f64() > Some(0.9),
        "{report}"
    );
}

/// Answers to a flood are not awaited, so none of them is missing, and none is unexpected.
#[test]
fn a_flood_is_not_judged_by_its_answers() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    let (a, b) = (lab.a0(), lab.b0());
    for transport in ["", "--udp"] {
        let line = ["load", "--client", &a, "--server", &b, "--flood", "--json"];
        let line = [
            &line[..],
            // Long enough for a first connection on a busy machine.
            &["-q", "--cps", "500", "--duration", "4s", "--ramp", "0s"],
            &["--allow-unsent"],
        ]
        .concat();
        let line: Vec<&str> = match transport {
            "--udp" => [&line[..], &["--udp"]].concat(),
            _ => line,
        };
        let output = run(&line);
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", report["reason"]);
        for warning in report["warnings"].as_array().unwrap() {
            let warning = warning.as_str().unwrap();
            assert!(!warning.contains("no connection"), "{warning}");
        }
        let judged = run(&[&line[..], &["--criteria", "failed<=0%"]].concat());
        assert_eq!(judged.status.code(), Some(2), "{transport}");
    }
}
