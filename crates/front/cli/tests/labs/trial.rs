//! Trials over a wire: every frame is accounted for, with every driver and every kind of frame.

use serde_json::Value;

use crate::kit::{Lab, privileged, total};

fn assert_lossless(report: &Value, offered: u64) {
    assert_eq!(total(report, "offered"), offered, "{}", report["totals"]);
    assert_eq!(total(report, "lost"), 0, "{}", report["totals"]);
    assert_eq!(total(report, "unsent"), 0);
    assert_eq!(total(report, "duplicate"), 0);
    assert_eq!(report["latency_ns"]["samples"].as_u64(), Some(offered));
    assert!(report["latency_ns"]["min"].as_i64().unwrap() >= 0);
}

#[test]
fn a_fixed_rate_is_kept_without_loss() {
    if !privileged() {
        return;
    }
    let lab = Lab::alone("pair", &[]);
    let report = lab.trial(&["--size", "64", "--rate", "50kpps", "--duration", "2s"]);
    assert_lossless(&report, 100_000);
    let port = &report["ports"][1];
    assert!(
        port["timestamp_source"]
            .as_str()
            .unwrap()
            .starts_with("kernel"),
        "{port}"
    );
}

#[test]
fn every_pair_of_drivers_agrees() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    for tx in ["packet", "xdp"] {
        for rx in ["packet", "xdp"] {
            let (a, b) = (format!("{tx}:{}", lab.a0()), format!("{rx}:{}", lab.b0()));
            let report = lab.trial_with(
                &a,
                &b,
                &["--size", "64", "--rate", "20kpps", "--duration", "1s"],
                0,
            );
            assert_lossless(&report, 20_000);
            // Address resolution before the run is not foreign traffic.
            assert_eq!(total(&report, "foreign"), 0, "{}", report["totals"]);
            assert_eq!(report["ports"][0]["driver"], tx);
            assert_eq!(report["ports"][1]["driver"], rx);
        }
    }
}

#[test]
fn every_kind_of_frame_comes_through() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    let kinds: [&[&str]; 12] = [
        &["--size", "84", "-6"],
        &["--size", "68", "--vlan", "10"],
        &["--size", "72", "--vlan", "10,20"],
        &["--size", "76", "--proto", "tcp"],
        &["--size", "96", "--proto", "tcp", "-6"],
        &["--proto", "icmp"],
        &["--proto", "icmp", "-6"],
        &["--proto", "arp"],
        &["--proto", "raw", "--payload", "deadbeef"],
        &["--mpls", "100,200"],
        &["--size", "64-1518"],
        &["--size", "imix"],
    ];
    for kind in kinds {
        for driver in ["packet", "xdp"] {
            let b = format!("{driver}:{}", lab.b0());
            let mut options = vec!["--rate", "5kpps", "--duration", "400ms"];
            options.extend(kind);
            let report = lab.trial_with(&lab.a0(), &b, &options, 0);
            assert_eq!(total(&report, "offered"), 2_000, "{kind:?} {driver}");
            assert_eq!(
                total(&report, "lost"),
                0,
                "{kind:?} {driver}: {}",
                report["totals"]
            );
            assert_eq!(total(&report, "duplicate"), 0, "{kind:?} {driver}");
        }
    }
}

#[test]
fn sixty_five_thousand_flows_are_followed_one_by_one() {
    if !privileged() {
        return;
    }
    let lab = Lab::alone("pair", &[]);
    let report = lab.trial(&["--flows", "65536", "--rate", "60kpps", "--count", "131072"]);
    assert_lossless(&report, 131_072);
    let flows = report["flows"].as_array().unwrap();
    assert_eq!(
        flows.len() as u64 + report["flows_omitted"].as_u64().unwrap(),
        65_536
    );
    assert!(flows.iter().all(|f| f["totals"]["offered_frames"] == 2));
}

#[test]
fn many_streams_keep_their_own_rates() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    let report = lab.trial(&[
        "--duration",
        "1s",
        "--stream",
        "rate=10kpps",
        "--stream",
        "rate=3kpps size=1518",
        "--stream",
        "rate=777pps vlan=7",
    ]);
    let offered: Vec<u64> = report["jobs"][0]["streams"]
        .as_array()
        .unwrap()
        .iter()
        .map(|s| s["totals"]["offered_frames"].as_u64().unwrap())
        .collect();
    assert_eq!(offered, [10_000, 3_000, 777]);
    assert_eq!(total(&report, "lost"), 0);
}

#[test]
fn several_workers_and_queues_share_the_work() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &["--queues", "2"]);
    let options = [
        "--rate",
        "20kpps",
        "--duration",
        "1s",
        "--workers",
        "2",
        "--rx-workers",
        "2",
        "--flows",
        "16",
    ];
    for driver in ["packet", "xdp"] {
        let (a, b) = (
            format!("{driver}:{}", lab.a0()),
            format!("{driver}:{}", lab.b0()),
        );
        let report = lab.trial_with(&a, &b, &options, 0);
        assert_lossless(&report, 20_000);
        let workers = report["workers"].as_array().unwrap();
        assert_eq!(workers.len(), 4, "{driver}");
        let sent: Vec<u64> = workers
            .iter()
            .filter_map(|w| w["totals"]["offered_frames"].as_u64())
            .collect();
        assert_eq!(sent, [10_000, 10_000], "{driver}");
    }
}

#[test]
fn both_ways_at_once() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    let report = lab.trial(&["--rate", "10kpps", "--duration", "1s", "--bidir"]);
    assert_eq!(total(&report, "offered"), 20_000);
    assert_eq!(total(&report, "lost"), 0, "{}", report["totals"]);
    assert_eq!(report["jobs"].as_array().unwrap().len(), 2);
}

#[test]
fn a_ramp_is_sent_and_not_counted() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    let report = lab.trial(&["--rate", "10kpps", "--ramp", "1s", "--duration", "1s"]);
    assert_lossless(&report, 10_000);
    // Half the area of a rectangle, less what a stalled sender did not make up for.
    let ramp = total(&report, "ramp");
    assert!((3_000..=5_050).contains(&ramp), "{}", report["totals"]);
}

#[test]
fn bursts_with_gaps() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    let report = lab.trial(&[
        "--burst",
        "32",
        "--gap",
        "10ms",
        "--duration",
        "1s",
        "--departures",
    ]);
    assert_lossless(&report, 3_200);
    assert!(report["inter_departure_ns"]["samples"].as_u64().unwrap() >= 3_000);
}

#[test]
fn frames_without_a_tag_are_counted() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    let report = lab.trial(&["--tag", "none", "--rate", "5kpps", "--duration", "1s"]);
    assert_eq!(total(&report, "offered"), 5_000);
    assert_eq!(total(&report, "lost"), 0, "{}", report["totals"]);
    let report = lab.trial(&["--tag", "pktgen", "--rate", "5kpps", "--duration", "1s"]);
    assert_eq!(total(&report, "offered"), 5_000);
    assert_eq!(total(&report, "lost"), 0, "{}", report["totals"]);
    assert_eq!(report["latency_ns"]["samples"], 5_000);
}

#[test]
fn criteria_decide_the_exit_code() {
    if !privileged() {
        return;
    }
    // A stall in which 20 frames are due can explain the loss: 100 ms.
    let lab = Lab::alone("impair", &["--loss-every", "10"]);
    let trial = |more: &[&str], code| {
        let options = ["--rate", "200pps", "--duration", "1s"];
        lab.trial_with(&lab.a0(), &lab.b0(), &[&options, more].concat(), code)
    };
    let report = trial(&["--max-loss", "1%"], 1);
    assert_eq!(report["verdict"], "fail");
    assert_eq!(total(&report, "lost"), 20);
    let report = trial(&["--max-loss", "10%", "--criteria", "p50<=1s"], 0);
    assert_eq!(report["verdict"], "pass");
}
