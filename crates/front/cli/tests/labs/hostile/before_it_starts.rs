//! A run that cannot succeed is refused before it starts: one line, exit code 2.

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
        &["--jitter", "at most the delay (1ms), got 2ms"],
    );
}

/// One option sets both ends of a load, and all rows of a sweep.
#[test]
fn what_is_wrong_is_said_once() {
    let ends = [
        "load", "--client", "memory:x", "--server", "memory:x", "--cps", "1",
    ];
    for option in [
        ["--vlan", "5000"],
        ["--window", "0"],
        ["--retransmit", "0s"],
        ["--client-ports", "0"],
        ["--server-ports", "0"],
    ] {
        assert_refused(&[&ends[..], &option].concat(), &["load 1 and 2, "]);
    }
    let sweep = ["sweep", "-H", "127.0.0.1", "--message", "1,2,3"];
    for option in [["--streams", "0"], ["--duration", "0s"]] {
        assert_refused(&[&sweep[..], &option].concat(), &["socket 1 to 3, "]);
    }
    // No command prints a line twice, whatever the problem.
    let nowhere = "/no/such/file";
    for line in [
        &["run", nowhere][..],
        &["load", nowhere],
        &[
            "load", "--client", "nosuch0", "--server", "nosuch0", "--cps", "1",
        ],
        &["load", "--client", "memory:x", "--server", "memory:x"],
        &[
            "load",
            "--client",
            "memory:x",
            "--server",
            "memory:x",
            "--cps",
            "1",
            "--answer",
            "file:/no/such",
        ],
        &["trial", "--tx", "nosuch0", "--rx", "nosuch0"],
        &["tx", "-i", "nosuch0", "--vlan", "5000"],
        &["rx", "-i", "nosuch0"],
        &["capture", "-i", "nosuch0", "-w", nowhere],
        &["read", nowhere],
        &[
            "sweep",
            "-H",
            "127.0.0.1",
            "--test",
            "tcp_rr",
            "--message",
            "1,2",
        ],
        &["netserver", "-D", "-p", "99999"],
        &["bench", "lb", nowhere],
        &["pktgen", "run", nowhere],
        &["pktgen", "watch", "-i", "nosuch0"],
        &["lab", "up", "nosuch"],
        &["doctor", "nosuch0"],
    ] {
        let output = run(line);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            matches!(output.status.code(), Some(1 | 2)),
            "{line:?}: {said}"
        );
        let mut lines: Vec<&str> = said.lines().collect();
        let all = lines.len();
        assert!(all > 0, "{line:?} says nothing");
        lines.sort_unstable();
        lines.dedup();
        assert_eq!(lines.len(), all, "{line:?}: {said}");
    }
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
    // No server listens there, so there is a report of a failure and an empty chart, or none.
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
