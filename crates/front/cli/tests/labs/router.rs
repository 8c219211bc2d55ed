//! Trials through the kernel's router.

use crate::kit::{Lab, privileged, total};

#[test]
fn both_families_are_forwarded() {
    if !privileged("both_families_are_forwarded") {
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

#[test]
#[allow(clippy::cast_precision_loss)]
fn a_limit_passes_what_it_should() {
    if !privileged("a_limit_passes_what_it_should") {
        return;
    }
    let lab = Lab::up("router", &["--limit", "100mbit"]);
    let report = lab.trial(&["--size", "512", "--rate", "50kpps", "--duration", "3s"]);
    let limit = &lab.status()["limit"];
    let (rate, burst) = (
        limit["rate_bps"].as_f64().unwrap(),
        limit["burst_bytes"].as_f64().unwrap(),
    );
    let time = report["rates"]["rx_time_ns"].as_f64().unwrap() / 1e9;
    let expected = (rate * time + burst * 8.0) / 8.0 / 508.0;
    let received = total(&report, "received") as f64;
    assert!(
        (received / expected - 1.0).abs() < 0.01,
        "{received} of {expected} in {time} s"
    );
    assert!(total(&report, "lost") > 0);
}
