//! What cannot come to a good end is refused before it starts: one line, exit code 2.

use std::fs;

use serde_json::Value;

use crate::kit::run;

const TRIAL: &[&str] = &[
    "trial",
    "--tx",
    "memory:x",
    "--rx",
    "memory:x",
    "--duration",
    "100ms",
    "-q",
];

fn assert_refused(line: &[&str], parts: &[&str]) {
    let output = run(line);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{line:?}: {said}");
    assert_eq!(said.lines().count(), 1, "{line:?}: {said}");
    for part in parts {
        assert!(said.contains(part), "{line:?}: no {part:?} in {said}");
    }
}

#[test]
fn criteria_that_are_not_measured() {
    let load = [
        "load",
        "--client",
        "memory:x",
        "--server",
        "memory:x",
        "--cps",
        "10",
        "--criteria",
    ];
    assert_refused(
        &[&load[..], &["reordered<=0%"]].concat(),
        &["reordered<=0%", "not measured by a load", "failed"],
    );
    assert_refused(
        &["tx", "-i", "memory:x", "--count", "1", "--max-loss", "0"],
        &["loss<=0%", "a run that only sends", "unsent"],
    );
    assert_refused(
        &[TRIAL, &["--tag", "none", "--criteria", "p99<=1ms"]].concat(),
        &["p99<=1ms", "without tags"],
    );
}

#[test]
fn results_that_cannot_be_written() {
    let nowhere = "/no/such/folder/result.svg";
    let sweep = ["sweep", "-H", "127.0.0.1", "-p", "1", "--test", "tcp_rr"];
    for option in ["--plot", "--html"] {
        assert_refused(
            &[&sweep[..], &[option, nowhere]].concat(),
            &["cannot write", nowhere],
        );
    }
    assert_refused(
        &["pktgen", "run", "--report", nowhere, "/bin/true"],
        &["cannot write", nowhere],
    );
}

#[test]
fn options_that_would_do_nothing() {
    for option in [
        ["--size", "64"],
        ["--vlan", "7"],
        ["--tag", "none"],
        ["--dst", "198.18.0.1"],
    ] {
        assert_refused(
            &[TRIAL, &["--replay", "x.pcap"], &option].concat(),
            &["--replay", option[0]],
        );
    }
    assert_refused(
        &[
            "lab", "up", "impair", "--as", "never", "--delay", "1ms", "--jitter", "2ms",
        ],
        &["--jitter 2ms", "--delay 1ms"],
    );
}

#[test]
fn documents_have_a_schema() {
    for (line, schema) in [
        (&["doctor", "--json"][..], "wirebench.doctor/1"),
        (&["lab", "ls", "--json"], "wirebench.labs/1"),
    ] {
        let output = run(line);
        let document: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!(document["schema"], schema, "{line:?}");
    }
}

#[test]
fn a_file_that_was_only_tried_is_not_left_behind() {
    let folder = tempfile::tempdir().unwrap();
    let chart = folder.path().join("chart.svg");
    let path = chart.to_str().unwrap();
    // Nobody listens there, so there is a report of a failure and a chart of nothing, or none.
    run(&[
        "sweep",
        "-H",
        "127.0.0.1",
        "-p",
        "1",
        "--test",
        "tcp_rr",
        "--html",
        "/no/such/x",
        "--plot",
        path,
    ]);
    assert!(!fs::exists(&chart).unwrap());
}
