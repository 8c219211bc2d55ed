//! Plans: what a command prints runs, and the examples run.

use crate::kit::{Lab, assert_adds_up, privileged, run, total, wirebench};

#[test]
fn a_printed_plan_runs_the_same() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    let (a, b) = (lab.a0(), lab.b0());
    let arguments = [
        "trial",
        "--tx",
        &a,
        "--rx",
        &b,
        "--rate",
        "5kpps",
        "--duration",
        "500ms",
        "--size",
        "imix",
        "--vary",
        "sport=random:1024-65535",
        "--vlan",
        "5:3",
        "--seed",
        "9",
        "--max-loss",
        "0",
        "--print-plan",
    ];
    let printed = run(&arguments);
    assert!(
        printed.status.success(),
        "{}",
        String::from_utf8_lossy(&printed.stderr)
    );
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), &printed.stdout).unwrap();
    let path = file.path().to_str().unwrap();
    let again = run(&["run", path, "--print-plan"]);
    assert_eq!(
        printed.stdout, again.stdout,
        "a plan that is read and printed again stays the same"
    );
    let output = run(&["run", path, "--json", "-q"]);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_adds_up(&report);
    assert_eq!(total(&report, "offered"), 2_500);
    assert_eq!(report["kind"], "trial");
}

#[test]
fn the_examples_run() {
    if !privileged() {
        return;
    }
    // One example has criteria, but no peer that depends on its timing.
    let lab = Lab::up("pair", &["--links", "2"]);
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../examples");
    let mut ran = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|e| e != "toml") {
            continue;
        }
        let text = std::fs::read_to_string(&path)
            .unwrap()
            .replace("wb-pair-", &format!("wb-{}-", lab.name));
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        let run = || {
            let output = wirebench()
                .arg("run")
                .arg(file.path())
                .args(["--json", "-q"])
                .output()
                .unwrap();
            let error = String::from_utf8_lossy(&output.stderr).into_owned();
            let report: serde_json::Value = serde_json::from_slice(&output.stdout)
                .unwrap_or_else(|e| panic!("{}: {e}: {error}", path.display()));
            (output.status, error, report)
        };
        let (mut status, mut error, mut report) = run();
        // On a busy machine a run may offer too little and says so; it then says nothing about the example.
        for _ in 0..3 {
            let reason = report["reason"].as_str().unwrap_or_default();
            if !reason.contains("the tester was late") {
                break;
            }
            (status, error, report) = run();
        }
        assert!(
            status.success(),
            "{}: {error} {}",
            path.display(),
            report["reason"]
        );
        assert_adds_up(&report);
        assert_eq!(
            total(&report, "lost"),
            0,
            "{}: {}",
            path.display(),
            report["totals"]
        );
        ran += 1;
    }
    assert!(ran >= 5, "only {ran} examples");
}

#[test]
fn a_recording_is_replayed() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("frames.pcap");
    let file = file.to_str().unwrap();
    let made = run(&[
        "tx",
        "-i",
        &format!("file:{file}"),
        "--count",
        "300",
        "--rate",
        "1kpps",
        "-q",
        "--json",
    ]);
    assert!(
        made.status.success(),
        "{}",
        String::from_utf8_lossy(&made.stderr)
    );
    let report = lab.trial(&["--replay", file, "--speed", "2", "--count", "300"]);
    assert_eq!(total(&report, "offered"), 300);
    let report: serde_json::Value =
        serde_json::from_slice(&run(&["rx", "-i", &format!("file:{file}"), "--json", "-q"]).stdout)
            .unwrap();
    assert_eq!(total(&report, "received"), 300);
    assert_eq!(total(&report, "lost"), 0);
}

#[test]
fn a_plans_rate_and_duration_can_be_given_anew() {
    let example = |name: &str| format!("{}/../../../examples/{name}", env!("CARGO_MANIFEST_DIR"));
    let mixed = example("mixed-streams.toml");
    let changed = [
        "run",
        &mixed,
        "--rate",
        "5kpps",
        "--duration",
        "2s",
        "--print-plan",
    ];
    let output = run(&changed);
    let plan = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    // Three streams have a rate, the bursts of the fourth stay as they are.
    assert_eq!(plan.matches("rate = \"5kpps\"\n").count(), 3, "{plan}");
    assert!(plan.contains("rate = \"max\"\nburst = 16\n"), "{plan}");
    let times: Vec<&str> = plan
        .lines()
        .filter(|l| l.starts_with("duration = "))
        .collect();
    assert!(
        !times.is_empty() && times.iter().all(|t| *t == "duration = \"2s\""),
        "{plan}"
    );
    // A plan without streams has no rate to change.
    let devices = example("pktgen-devices.toml");
    let output = run(&["run", &devices, "--rate", "5kpps", "--print-plan"]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(error.contains("--rate"), "{error}");
}
