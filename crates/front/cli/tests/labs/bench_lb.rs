//! The six limits of the lab `balancer`, with trials far too short to mean anything.

use serde_json::Value;

use crate::kit::{Lab, privileged, run};

#[test]
fn six_limits_with_the_devices_counters_beside() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("balancer", &[]);
    let output = run(&[
        "bench",
        "lb",
        "--lab",
        &lab.name,
        "--trial",
        "200ms",
        "--confirm",
        "200ms",
        "--budget",
        "1ms",
        "--max",
        "2k",
        "--json",
        "--quiet",
    ]);
    let error = String::from_utf8_lossy(&output.stderr);
    // The result on a busy machine is not checked.
    assert!(matches!(output.status.code(), Some(0 | 1 | 3)), "{error}");
    let report: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {error}"));
    let results = report["results"].as_array().unwrap();
    let metrics: Vec<&str> = results
        .iter()
        .map(|r| r["metric"].as_str().unwrap())
        .collect();
    assert_eq!(
        metrics,
        [
            "oneway-pps",
            "twoway-pps",
            "bps",
            "cps",
            "cc",
            "elephant",
            "elephant"
        ]
    );
    for result in results {
        let trials = result["trials"].as_array().unwrap();
        assert!(!trials.is_empty(), "{result}");
        trials.iter().for_each(assert_adds_up);
        let device = &trials[0]["device"];
        assert_eq!(device["failed_readings"], 0, "{}", report["probes"]);
        assert!(
            device["beside"]["packets in"]["device"].as_u64().unwrap() > 0,
            "{device}"
        );
    }
    // Connections are counted one by one on both sides.
    let cps = &results[3]["trials"][0];
    let pair = &cps["device"]["beside"]["connections"];
    assert!(cps["ours"]["attempted"].as_u64().unwrap() > 0);
    assert!(
        pair["device"].as_u64() >= cps["ours"]["established"].as_u64(),
        "{cps}"
    );
    let cc = &results[4]["trials"][0];
    assert!(
        cc["device"]["beside"]["entries"]["device"]
            .as_u64()
            .is_some(),
        "{cc}"
    );
    let failures: u64 = report["probes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|p| p["failures"].as_u64().unwrap())
        .sum();
    assert_eq!(failures, 0);
}

/// Frames and connections have one place each.
fn assert_adds_up(trial: &Value) {
    let ours = |key: &str| trial["ours"][key].as_u64().unwrap();
    assert!(ours("sent_frames") > 0);
    assert_eq!(
        ours("sent_frames"),
        ours("received_frames")
            + ours("lost_frames")
            + ours("lost_answer_frames")
            + ours("tester_dropped_frames"),
        "{trial}"
    );
    assert_eq!(
        ours("attempted"),
        ours("completed") + ours("failed") + ours("open"),
        "{trial}"
    );
}

#[test]
fn a_plan_is_printed_and_read_again() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("balancer", &[]);
    let first = run(&["bench", "lb", "--lab", &lab.name, "--print-plan"]);
    assert!(first.status.success());
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("lb.toml");
    std::fs::write(&file, &first.stdout).unwrap();
    let second = run(&["bench", "lb", file.to_str().unwrap(), "--print-plan"]);
    assert_eq!(first.stdout, second.stdout);

    let text = String::from_utf8(first.stdout).unwrap();
    std::fs::write(&file, text.replace("wb-", "wb-none-")).unwrap();
    let missing = run(&["bench", "lb", file.to_str().unwrap()]);
    assert_eq!(missing.status.code(), Some(2));
}
