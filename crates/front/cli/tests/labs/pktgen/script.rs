//! A script of one's own, run as it is.

use super::{
    DST_MAC, Folder, counted, masked, mounts_on_proc, number_after, processes, run_script, script,
    sent, text,
};
use crate::kit::{Lab, privileged, system};

#[test]
fn a_script_finds_the_files_of_the_kernel_and_leaves_nothing() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    let (a, b) = (lab.node("a"), lab.node("b"));
    let receiver = Folder::mount(&b);
    receiver.set("pgrx", "rx b0");
    receiver.set("pgrx", "statistics counter");
    let (mounts, before) = (mounts_on_proc(), counted(&b, "b0", "rx"));
    let of_the_kernel = std::path::Path::new("/proc/net/pktgen").exists();

    let output = run_script(&a, &[&script("simple.sh"), "a0", DST_MAC, "2345", "7"]);
    assert_eq!(output.status.code(), Some(7), "{}", text(&output.stderr));
    assert_eq!(
        text(&output.stderr).replace(&script("simple.sh"), "simple.sh"),
        "simple.sh: line 18: echo: write error: No such device\n\
         simple.sh: line 21: echo: write error: Device or resource busy\n\
         simple.sh: line 23: echo: write error: Invalid argument\n\
         simple.sh: line 25: echo: write error: Invalid argument\n"
    );
    let found = text(&output.stdout);
    let (shown, report) = found.split_once("Report\n").expect("a report");
    super::assert_expected("simple.txt", &masked(shown));
    assert_eq!(sent(report.trim_end().trim_start_matches("Result: ")), 2345);

    assert_eq!(counted(&b, "b0", "rx") - before, 2345);
    let received = receiver.read("pgrx");
    assert_eq!(number_after(&received, "Packets Rx: "), 2345, "{received}");
    assert_eq!(
        number_after(&received, "Bytes Rx: "),
        2345 * 60,
        "{received}"
    );
    assert_eq!(mounts_on_proc(), mounts);
    assert_eq!(
        std::path::Path::new("/proc/net/pktgen").exists(),
        of_the_kernel
    );
    assert_eq!(processes(&a), "");
}

/// Virtual devices send and count as those of cards do.
#[test]
fn a_script_sends_by_virtual_devices() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    let node = lab.node("a");
    // The kernel sends nothing by these devices.
    let silent = "net.ipv6.conf.default.disable_ipv6=1";
    let set = system("ip", &["netns", "exec", &node, "sysctl", "-qw", silent]);
    assert!(set.status.success(), "{set:?}");
    let devices = [
        "dum0 type dummy",
        "br0 type bridge mcast_snooping 0",
        "a0.5 link a0 type vlan id 5",
        "mv0 link a0 type macvlan",
    ];
    let send = "set -e; P=/proc/net/pktgen
        echo add_device $1 > $P/kpktgend_0
        for s in 'count 1000' 'clone_skb 0' 'pkt_size 60' 'dst 198.18.0.9' \"dst_mac $2\"; do echo \"$s\" > $P/$1; done
        echo start > $P/pgctrl; grep Result $P/$1";
    for device in devices {
        let (name, rest) = device.split_once(' ').unwrap();
        let (below, kind) = match rest.split_once(" type ") {
            Some((link, kind)) => (link, kind),
            None => ("", rest.strip_prefix("type ").unwrap()),
        };
        let line = format!("-n {node} link add {below} name {name} type {kind}");
        let made = system("ip", &line.split_whitespace().collect::<Vec<_>>());
        if text(&made.stderr).contains("Unknown device type") {
            wb_testing::skipped(format_args!("this kernel has no {kind} devices"));
            continue;
        }
        assert!(made.status.success(), "{device}: {made:?}");
        let up = system("ip", &["-n", &node, "link", "set", name, "up"]);
        assert!(up.status.success(), "{device}: {up:?}");
        let before = counted(&node, name, "tx");
        let output = run_script(&node, &["-c", send, "send", name, DST_MAC]);
        let (said, error) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success(), "{device}: {said}{error}");
        assert!(said.starts_with("Result: OK"), "{device}: {said}{error}");
        assert_eq!(
            counted(&node, name, "tx") - before,
            1000,
            "{device}: {said}{error}"
        );
    }
}
