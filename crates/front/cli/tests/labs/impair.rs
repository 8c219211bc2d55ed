//! What is measured through the impairing device is what the device did.

use serde_json::Value;

use crate::kit::{Lab, eventually, privileged, total};

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
