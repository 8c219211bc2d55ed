//! Properties that depend on the interface: ways to send, and the maximum length of a frame.

use serde_json::Value;

use super::{Folder, counted, ip, sent};
use crate::kit::{Lab, privileged, system};

/// Frames that went through the queueing discipline of an interface.
fn queued(node: &str, interface: &str) -> u64 {
    let output = system(
        "ip",
        &[
            "netns", "exec", node, "tc", "-s", "-j", "qdisc", "show", "dev", interface,
        ],
    );
    let list: Value = serde_json::from_slice(&output.stdout).expect("JSON of tc");
    list[0]["packets"].as_u64().expect("packets")
}

#[test]
fn each_way_of_sending_goes_its_way() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    let (a, b) = (lab.node("a"), lab.node("b"));
    let output = system(
        "ip",
        &[
            "netns", "exec", &a, "tc", "qdisc", "add", "dev", "a0", "root", "pfifo", "limit",
            "1000",
        ],
    );
    assert!(output.status.success(), "{}", super::text(&output.stderr));
    let folder = Folder::mount(&a, &[]);
    folder.device("a0", &["count 500", "dst 198.18.0.42", "pkt_size 60"]);
    for (mode, by_queue, to_peer, to_itself) in [
        ("start_xmit", 0, 500, 0),
        ("queue_xmit", 500, 500, 0),
        ("netif_receive", 0, 0, 500),
    ] {
        folder.set("a0", &format!("xmit_mode {mode}"));
        let before = [
            queued(&a, "a0"),
            counted(&b, "b0", "rx"),
            counted(&a, "a0", "rx"),
        ];
        folder.start();
        let report = sent(&folder.result("a0"));
        assert_eq!((report.packets, report.errors), (500, 0), "{mode}");
        let after = [
            queued(&a, "a0"),
            counted(&b, "b0", "rx"),
            counted(&a, "a0", "rx"),
        ];
        let grown: Vec<u64> = after.iter().zip(before).map(|(a, b)| a - b).collect();
        assert_eq!(grown, [by_queue, to_peer, to_itself], "{mode}");
    }
}

#[test]
fn what_has_no_receive_side_says_so() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    let node = lab.node("a");
    ip(&node, &["link", "add", "bridge0", "type", "bridge"]);
    ip(&node, &["link", "set", "bridge0", "up"]);
    let folder = Folder::mount(&node, &[]);
    folder.device("bridge0", &["count 10", "xmit_mode netif_receive"]);
    folder.device("a0", &["count 10"]);
    folder.start();
    assert_eq!(
        sent(&folder.result("a0")).packets,
        10,
        "others are not held up"
    );
    let result = folder.result("bridge0");
    assert!(
        result.starts_with("ERROR: ") && result.contains("receive path"),
        "{result}"
    );
    assert_eq!(result.lines().count(), 1, "{result}");
    assert_eq!(folder.number("bridge0", "pkts-sofar: "), 0);
}

#[test]
fn frames_that_are_too_long_do_not_leave() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    let (a, b) = (lab.node("a"), lab.node("b"));
    let folder = Folder::mount(&a, &[]);
    folder.device("a0", &["count 10", "dst 198.18.0.42", "pkt_size 1515"]);
    folder.device_on(
        1,
        "a0@ok",
        &["count 10", "dst 198.18.0.42", "pkt_size 1514"],
    );
    let before = counted(&b, "b0", "rx");
    folder.start();
    assert_eq!(folder.result("a0"), "ERROR: packet size 1515 exceeds 1514");
    assert_eq!(folder.number("a0", "pkts-sofar: "), 0);
    assert_eq!(
        sent(&folder.result("a0@ok")).packets,
        10,
        "others are not held up"
    );
    assert_eq!(counted(&b, "b0", "rx") - before, 10);
    folder.set("a0", "pkt_size 1518");
    folder.set("a0", "vlan_id 5");
    folder.start();
    assert_eq!(
        sent(&folder.result("a0")).packets,
        10,
        "a VLAN tag does not count"
    );
    ip(&a, &["link", "set", "a0", "mtu", "1000"]);
    folder.start();
    assert_eq!(folder.result("a0"), "ERROR: packet size 1518 exceeds 1018");
}

#[test]
fn an_interface_that_is_down_or_gone_is_refused() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    let node = lab.node("a");
    super::add_loop(&node);
    let folder = Folder::mount(&node, &[]);
    ip(&node, &["link", "set", "w0", "down"]);
    for (device, errno) in [("w0", 100), ("nosuch", 19), ("w1@tag", 0), ("w1@tag", 16)] {
        let done = folder.write("kpktgend_0", format!("add_device {device}").as_bytes());
        let number = done.map_or_else(|e| e.raw_os_error().unwrap_or(-1), |_| 0);
        assert_eq!(number, errno, "{device}");
    }
    assert_eq!(
        folder.result("kpktgend_0"),
        "ERROR: can not add device w1@tag"
    );
    folder.device("a0", &["count 10"]);
    ip(&node, &["link", "del", "w0"]);
    folder.start();
    assert_eq!(sent(&folder.result("a0")).packets, 10, "the others run");
    assert!(!folder.path("w1@tag").exists(), "gone with its interface");
}

#[test]
fn a_device_without_a_link_stops_and_the_others_run() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    let node = lab.node("a");
    super::add_loop(&node);
    let folder = Folder::mount(&node, &[]);
    folder.device("w0", &["count 10"]);
    folder.device("a0", &["count 10"]);
    for end in ["w1", "w0"] {
        ip(&node, &["link", "set", end, "down"]);
        folder.start();
        let stopped = sent(&folder.result("w0"));
        assert_eq!((stopped.packets, stopped.errors), (0, 0), "{end}");
        assert_eq!(sent(&folder.result("a0")).packets, 10, "{end}");
    }
    ip(&node, &["link", "set", "w0", "up"]);
    ip(&node, &["link", "set", "w1", "up"]);
    folder.start();
    assert_eq!(sent(&folder.result("w0")).packets, 10);
}

#[test]
fn files_follow_their_interfaces() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    let node = lab.node("a");
    super::add_loop(&node);
    let folder = Folder::mount(&node, &[]);
    folder.device("w0@tag", &["count 10"]);
    ip(&node, &["link", "set", "w0", "down"]);
    ip(&node, &["link", "set", "w0", "name", "y0"]);
    ip(&node, &["link", "set", "y0", "up"]);
    let device = folder.read("y0");
    assert!(device.contains("  ifname: w0@tag\n"), "{device}");
    assert!(!folder.path("w0@tag").exists());
    folder.start();
    assert_eq!(sent(&folder.result("y0")).packets, 10);
    folder.set("y0", "count 0");
    folder.set("y0", "delay 100000");
    let writer = folder.starter();
    folder.await_packets("y0", 5);
    ip(&node, &["link", "del", "y0"]);
    let output = writer.finish(super::PATIENCE);
    assert_eq!(super::text(&output.stdout), "returned\n");
    assert!(!folder.path("y0").exists());
    let thread = folder.read("kpktgend_0");
    assert!(thread.starts_with("Running: \nStopped: \n"), "{thread}");
}

#[test]
fn a_driver_that_passes_the_discipline_is_refused_where_it_is_to_be_used() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    let folder = Folder::mount(&lab.node("a"), &["--driver", "xdp"]);
    folder.device(
        "a0",
        &["count 100", "dst 198.18.0.42", "xmit_mode queue_xmit"],
    );
    folder.start();
    let result = folder.result("a0");
    assert!(result.contains("queueing discipline"), "{result}");
    folder.set("a0", "xmit_mode start_xmit");
    folder.start();
    assert_eq!(sent(&folder.result("a0")).packets, 100);
}
