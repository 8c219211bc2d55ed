//! Trials through the kernel's router.

use crate::kit::{Lab, privileged, total};

#[test]
fn both_families_are_forwarded() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("router", &[]);
    for family in [&["--size", "64"][..], &["--size", "84", "-6"]] {
        let mut options = vec!["--rate", "10kpps", "--duration", "1s"];
        options.extend(family);
        let report = lab.trial(&options);
        assert_eq!(total(&report, "offered"), 10_000);
        assert_eq!(
            total(&report, "lost"),
            0,
            "{family:?}: {} {}",
            report["totals"],
            report["warnings"]
        );
    }
}

/// Frames received, as a share of what a token bucket passes in the time they took.
#[allow(clippy::cast_precision_loss)]
fn share_of_limit(lab: &Lab) -> f64 {
    let report = lab.trial(&["--size", "512", "--rate", "50kpps", "--duration", "3s"]);
    let limit = &lab.status()["limit"];
    let (rate, burst) = (
        limit["rate_bps"].as_f64().unwrap(),
        limit["burst_bytes"].as_f64().unwrap(),
    );
    let time = report["rates"]["rx_time_ns"].as_f64().unwrap() / 1e9;
    assert!(total(&report, "lost") > 0);
    total(&report, "received") as f64 / ((rate * time + burst * 8.0) / 8.0 / 508.0)
}

#[test]
fn a_limit_passes_what_it_should() {
    if !privileged() {
        return;
    }
    let lab = Lab::alone("router", &["--limit", "100mbit"]);
    // The limit is never exceeded. The share is lower on a busy machine: a full bucket saves nothing for later.
    let mut shares = Vec::new();
    while shares.len() < 4 {
        let share = share_of_limit(&lab);
        assert!(share < 1.01, "{share}");
        if share > 0.97 {
            return;
        }
        shares.push(share);
    }
    panic!("{shares:?}");
}
