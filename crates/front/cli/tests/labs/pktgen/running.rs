//! Operations during a run.

use super::{Folder, PATIENCE, counted, sent, text};
use crate::kit::{Lab, eventually, privileged};

#[test]
fn stop_ends_a_run_that_somebody_else_started() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    let folder = Folder::mount(&lab.node("a"), &[]);
    folder.device("a0", &["count 9000000", "delay 100000"]);
    // A device that sleeps for longer than any user would wait.
    folder.device_on(1, "a0@slow", &["count 0", "delay 2000000000"]);
    let writer = folder.starter();
    folder.await_packets("a0", 10);
    let threads = folder.read("kpktgend_0");
    assert!(
        threads.starts_with("Running: a0 \nStopped: \n"),
        "{threads}"
    );
    let first = folder.number("a0", "pkts-sofar: ");
    eventually("the counters grow", || {
        folder.number("a0", "pkts-sofar: ") > first
    });
    let stopped = folder
        .shell("echo stop > $P/pgctrl && echo stopped")
        .finish(PATIENCE);
    assert_eq!(
        text(&stopped.stdout),
        "stopped\n",
        "{}",
        text(&stopped.stderr)
    );
    assert_eq!(text(&writer.finish(PATIENCE).stdout), "returned\n");
    assert!(sent(&folder.result("a0")).packets > first);
    assert!(sent(&folder.result("a0@slow")).packets < 100);
    let threads = folder.read("kpktgend_0");
    assert!(
        threads.starts_with("Running: \nStopped: a0 \n"),
        "{threads}"
    );
    // No count was set for the endless device.
    let report: serde_json::Value = serde_json::from_str(&folder.read("result.json")).unwrap();
    assert_eq!(report["reason"], "ended early by stop: a0");
    assert_eq!(report["limited_by"], "stop: ended the run early");
}

#[test]
fn a_second_start_begins_anew_and_both_return() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    let (a, b) = (lab.node("a"), lab.node("b"));
    let folder = Folder::mount(&a, &[]);
    folder.device("a0", &["count 200", "delay 5000000"]);
    let before = counted(&b, "b0", "rx");
    let first = folder.starter();
    folder.await_packets("a0", 20);
    let second = folder.starter();
    for writer in [first, second] {
        assert_eq!(text(&writer.finish(PATIENCE).stdout), "returned\n");
    }
    assert_eq!(sent(&folder.result("a0")).packets, 200);
    let arrived = counted(&b, "b0", "rx") - before;
    assert!(arrived > 220, "{arrived}");
}

#[test]
fn devices_that_are_removed_stop_and_start_returns() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    let (a, b) = (lab.node("a"), lab.node("b"));
    let folder = Folder::mount(&a, &[]);
    for (file, command) in [("pgctrl", "reset"), ("kpktgend_0", "rem_device_all")] {
        folder.device("a0", &["count 0", "delay 200000"]);
        let writer = folder.starter();
        folder.await_packets("a0", 5);
        folder.set(file, command);
        assert_eq!(
            text(&writer.finish(PATIENCE).stdout),
            "returned\n",
            "{command}"
        );
        let arrived = counted(&b, "b0", "rx");
        assert!(!folder.path("a0").exists(), "{command}");
        folder.start();
        assert_eq!(
            counted(&b, "b0", "rx"),
            arrived,
            "{command}: nothing is sent any more"
        );
    }
}

#[test]
fn settings_take_effect_on_the_next_packet() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    let folder = Folder::mount(&lab.node("a"), &[]);
    folder.device("a0", &["count 0", "pkt_size 60", "delay 500000"]);
    let writer = folder.starter();
    folder.await_packets("a0", 5);
    folder.set("a0", "pkt_size 100");
    assert_eq!(folder.result("a0"), "OK: pkt_size=100");
    let before = folder.number("a0", "pkts-sofar: ");
    eventually("it goes on", || {
        folder.number("a0", "pkts-sofar: ") > before + 2
    });
    assert_eq!(
        folder.result("a0"),
        "OK: pkt_size=100",
        "until the run ends"
    );
    folder.set("a0", "count 1");
    assert_eq!(text(&writer.finish(PATIENCE).stdout), "returned\n");
    let report = sent(&folder.result("a0"));
    assert!(report.packets > before && report.size == 100);

    // Without the change it would take 28 hours.
    folder.set("a0", "count 100");
    folder.set("a0", "delay 1000000000000");
    folder.set("a0", "delay 1000000000");
    let writer = folder.starter();
    folder.await_packets("a0", 0);
    folder.set("a0", "delay 1000");
    assert_eq!(text(&writer.finish(PATIENCE).stdout), "returned\n");
    assert_eq!(sent(&folder.result("a0")).packets, 100);
}

#[test]
fn children_of_the_writer_do_not_end_the_run() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    let folder = Folder::mount(&lab.node("a"), &[]);
    folder.device("a0", &["count 300", "delay 2000000"]);
    let writer = folder.shell("sleep 0.1 & sleep 0.2 & echo start > $P/pgctrl; echo code $?");
    assert_eq!(text(&writer.finish(PATIENCE).stdout), "code 0\n");
    assert_eq!(sent(&folder.result("a0")).packets, 300);
}

#[test]
fn a_link_that_goes_down_ends_the_run() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    let (a, b) = (lab.node("a"), lab.node("b"));
    let folder = Folder::mount(&a, &[]);
    folder.device("a0", &["count 0", "delay 500000"]);
    let writer = folder.starter();
    folder.await_packets("a0", 5);
    super::ip(&b, &["link", "set", "b0", "down"]);
    assert_eq!(text(&writer.finish(PATIENCE).stdout), "returned\n");
    assert!(sent(&folder.result("a0")).packets > 5);
}
