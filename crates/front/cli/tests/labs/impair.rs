//! Measurements through the impairing device match its behaviour.

use serde_json::Value;

use crate::kit::{Lab, eventually, privileged, total, wirebench};

/// The device's counters from a to b once it is at rest.
fn truth(lab: &Lab) -> Value {
    let mut last = Value::Null;
    eventually("the device comes to rest", || {
        let now = lab.status()["device"]["a_to_b"].clone();
        let rest = now.is_object() && now == last && now["inside"] == 0;
        last = now;
        std::thread::sleep(std::time::Duration::from_millis(80));
        rest
    });
    last
}

#[test]
fn loss_duplicates_and_reordering_are_exact() {
    if !privileged() {
        return;
    }
    let lab = Lab::alone(
        "impair",
        &[
            "--delay",
            "300us",
            "--loss",
            "1%",
            "--duplicate",
            "0.5%",
            "--reorder",
            "2%",
        ],
    );
    let report = lab.trial(&["--rate", "50kpps", "--duration", "2s"]);
    let did = truth(&lab);
    let counted = |key: &str| did[key].as_u64().unwrap();
    assert_eq!(total(&report, "offered"), counted("arrived"));
    assert_eq!(total(&report, "lost"), counted("lost"), "{did}");
    assert_eq!(total(&report, "duplicate"), counted("duplicated"));
    assert_eq!(total(&report, "reordered"), counted("reordered"));
    assert_eq!(total(&report, "received"), counted("left"));
    assert!(
        counted("lost") > 500 && counted("duplicated") > 200 && counted("reordered") > 1_000,
        "{did}"
    );
    // Hardly less than was asked (departures may be made together); how much more depends on how
    // busy this machine is.
    assert!(
        report["latency_ns"]["min"].as_i64().unwrap() >= 290_000,
        "{}",
        report["latency_ns"]
    );
}

/// Frames that a device delayed until the next run belong to the run that sent them.
#[test]
fn frames_of_an_earlier_run_are_foreign() {
    if !privileged() {
        return;
    }
    let lab = Lab::alone("impair", &["--delay", "3s"]);
    // Distinguished by their flows or, with the same numbers, by the time.
    let same: &[&str] = &["--first-flow", "7"];
    for (driver, first) in [
        ("live", &[][..]),
        ("live", same),
        ("xdp", &[]),
        ("packet", same),
    ] {
        let (a, b) = (
            format!("{driver}:{}", lab.a0()),
            format!("{driver}:{}", lab.b0()),
        );
        let run = |more: &[&str]| {
            let output = wirebench()
                .args(["trial", "--tx", &a, "--rx", &b, "--rate", "100pps"])
                .args(["--drain", "1ms", "--json", "-q"])
                .args(first)
                .args(more)
                .output()
                .expect("runs");
            serde_json::from_slice::<Value>(&output.stdout)
                .unwrap_or_else(|e| panic!("{driver}: {e}: {output:?}"))
        };
        let early = run(&["--count", "50"]);
        assert_eq!(total(&early, "received"), 0, "{driver}");
        let late = run(&["--duration", "5s"]);
        let totals = &late["totals"];
        assert_eq!(total(&late, "other_run"), 50, "{driver} {first:?} {totals}");
        assert_eq!(total(&late, "foreign"), 50, "{driver} {first:?}");
        assert!(
            total(&late, "received") < 300,
            "{driver} {first:?} {totals}"
        );
        let warnings = late["warnings"].to_string();
        let said = "50 frames had a tag of another run";
        assert!(warnings.contains(said), "{driver} {warnings}");
        // Frames that are still under way would be of an earlier run to the next.
        truth(&lab);
    }
}

#[test]
fn the_way_back_is_left_alone() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("impair", &["--loss-every", "5"]);
    let report = lab.trial_with(
        &lab.b0(),
        &lab.a0(),
        &["--rate", "5kpps", "--duration", "1s"],
        0,
    );
    assert_eq!(total(&report, "lost"), 0, "{}", report["totals"]);
    let report = lab.trial(&["--rate", "5kpps", "--duration", "1s"]);
    assert_eq!(total(&report, "lost"), 1_000, "{}", report["totals"]);
}

#[test]
fn frames_that_the_kernel_drops_behind_the_receiver_are_no_drops_of_its_interface() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("impair", &["--loss", "5%"]);
    // The kernel knows no protocol for these and counts each that it got, after the receiver got it.
    for headers in [["--vlan", "5,6"], ["--proto", "raw"]] {
        let mut options = vec!["--size", "128", "--rate", "1kpps", "--duration", "500ms"];
        options.extend(headers);
        let (tx, rx) = (lab.a0(), lab.b0());
        let (tx, rx) = (format!("packet:{tx}"), format!("packet:{rx}"));
        let report = lab.trial_with(&tx, &rx, &options, 0);
        let lost = total(&report, "lost");
        assert!(lost > 0 && total(&report, "received") == 500 - lost);
        let limit = report["limited_by"].as_str().unwrap();
        // On a busy machine the tester may be the cause.
        let causes = ["the device or the path", "the tester: stalls can explain"];
        let expected = causes.iter().any(|cause| limit.starts_with(cause));
        assert!(expected, "{limit}");
        let explained = limit.split(' ').find_map(|word| word.parse::<u64>().ok());
        assert!(explained.is_none_or(|n| n <= lost), "{limit}");
        let counters = &report["ports"][1]["counters"];
        assert!(
            report["ports"][1]["interface_drops"].is_null(),
            "{counters}"
        );
        assert!(
            !report["warnings"]
                .to_string()
                .contains("the interface dropped")
        );
    }
}
