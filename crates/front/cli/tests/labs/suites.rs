//! The impact of loss on the lab `router` of known capacity, while the tester is stopped again and again.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    time::Duration,
};

use rustix::process::Signal;
use serde_json::Value;
use wb_testing::{disturb, eventually_within};

use crate::kit::{Lab, Running, privileged, wirebench};

/// Maximum duration of the benchmark on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);
/// Rate limit of the router, in bit/s without FCS.
const LIMIT: f64 = 20e6;
const SIZE: f64 = 512.0;

fn number(value: &Value) -> f64 {
    value
        .as_f64()
        .unwrap_or_else(|| panic!("{value} is no number"))
}

/// Each trial's frames are accounted for.
fn assert_trials_add_up(result: &Value) {
    let trials = result["trial_log"].as_array().unwrap();
    assert!(!trials.is_empty(), "{result}");
    for trial in trials {
        let count = |key: &str| trial[key].as_u64().unwrap();
        assert_eq!(
            count("rx") - count("dup") + count("lost"),
            count("tx"),
            "{trial}"
        );
    }
}

/// Frames per second that the router's bucket allows in a trial of `seconds` seconds.
fn allowed(seconds: f64) -> (f64, f64) {
    let octets = SIZE - 4.0;
    let steady = LIMIT / 8.0 / octets;
    // Bucket and queue may be full before, and let that much more through.
    let burst = (LIMIT / 8.0 * 0.012).max(2.0 * 15_220.0) / octets;
    (steady, steady + burst / seconds)
}

fn said(dir: &Path) -> PathBuf {
    dir.join("said")
}

/// A test of the impact that has begun.
fn begun(lab: &Lab, dir: &Path) -> Running {
    let said = said(dir);
    let running = wirebench()
        .args(["bench", "rfc2544", "--tests", "impact", "--fast"])
        .args(["--tx", &lab.a0(), "--rx", &lab.b0(), "--isolated"])
        .args([
            "--sizes",
            "512",
            "--max",
            "40kpps",
            "--no-ceiling",
            "--json",
        ])
        .stdout(File::create(dir.join("report.json")).unwrap())
        .stderr(File::create(&said).unwrap())
        .spawn()
        .map(Running)
        .unwrap();
    eventually_within(PATIENCE, "it begins", || {
        fs::read_to_string(&said).unwrap().contains("impact")
    });
    running
}

/// A stop of the tester never adds to a loss that is the result.
#[test]
fn a_loss_is_the_devices_though_the_tester_was_stopped() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("router", &["--limit", "20mbit"]);
    let dir = tempfile::tempdir().unwrap();
    let mut running = begun(&lab, dir.path());
    while running.0.try_wait().unwrap().is_none() {
        disturb(Duration::from_millis(920));
        running.signal(Signal::STOP);
        disturb(Duration::from_millis(80));
        running.signal(Signal::CONT);
    }
    running.finish(PATIENCE);
    let text = fs::read_to_string(dir.path().join("report.json")).unwrap();
    let report: Value = serde_json::from_str(&text)
        .unwrap_or_else(|e| panic!("{e}: {}", fs::read_to_string(said(dir.path())).unwrap()));
    let result = &report["results"][0];
    assert_trials_add_up(result);
    let trials = result["trial_log"].as_array().unwrap();
    assert!(
        trials.iter().any(|trial| trial["outcome"] == "late"),
        "{result}"
    );
    for row in result["impact"].as_array().unwrap() {
        let Some(lost) = row["loss_pct"].as_f64() else {
            continue;
        };
        let offered = number(&row["offered_fps"]);
        let (least, most) = allowed(1.0);
        let loss = |carried: f64| 100.0 * (1.0 - carried / offered).max(0.0);
        // A trial in which up to 2 % of the time was missing is one.
        let truth = loss(most) - 0.1..=loss(least * 0.96) + 0.1;
        assert!(truth.contains(&lost), "{truth:?}: {result}");
    }
}
