//! The wrong machine: interfaces that belong to a bridge, carry others, or lead to the internet. Receiving
//! takes nothing from the host, and nothing is sent there without consent.

use serde_json::Value;

use crate::kit::{Lab, privileged, run, system};

/// Runs `ip` in a node. Says whether it worked: not every kernel has every kind of interface.
fn ip(node: &str, arguments: &str) -> bool {
    let mut all = vec!["-n", node];
    all.extend(arguments.split(' '));
    let output = system("ip", &all);
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        eprintln!("ip {arguments}: {}", said.trim());
    }
    output.status.success()
}

/// Runs all these commands; prints a message if the kernel does not support them.
fn set_up(node: &str, commands: &[&str]) -> bool {
    let done = commands.iter().all(|command| ip(node, command));
    if !done {
        wb_testing::skipped(format_args!("not here: ip {}", commands.join("; ip ")));
    }
    done
}

/// Reverts all changes of a case to an interface.
fn clean(node: &str, interface: &str) {
    let vlan = format!("{interface}.5");
    for made in ["br0", "bond0", "team0", "vrf0", "mv0", "iv0", &vlan] {
        system("ip", &["-n", node, "link", "delete", made]);
    }
    for command in [
        format!("link set {interface} nomaster"),
        format!("addr flush dev {interface}"),
        format!("route flush dev {interface}"),
        format!("-6 route flush dev {interface}"),
        "route flush table 100".to_owned(),
        "nexthop flush".to_owned(),
        format!("link set {interface} up"),
    ] {
        let words: Vec<&str> = command.split(' ').collect();
        system("ip", &[&["-n", node], &words[..]].concat());
    }
}

/// The driver that a receiver on this port gets, and why.
fn driver_of(port: &str) -> (String, String) {
    let output = run(&["rx", "-i", port, "--duration", "50ms", "-q", "--json"]);
    let said = String::from_utf8_lossy(&output.stderr);
    let report: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {said}"));
    let word = |key: &str| report["ports"][0][key].as_str().unwrap().to_owned();
    (word("driver"), word("chosen_because"))
}

fn doctor(port: &str) -> String {
    String::from_utf8(run(&["doctor", port]).stdout).unwrap()
}

/// Receiving takes nothing from what stands on an interface.
fn assert_receiving_is_harmless(lab: &Lab) {
    let (node, port) = (lab.node("b"), lab.b0());
    for (what, commands, word) in [
        (
            "a port of a bridge",
            &["link add br0 type bridge", "link set b0 master br0"][..],
            "br0",
        ),
        (
            "a slave of a bond",
            &[
                "link add bond0 type bond",
                "link set b0 down",
                "link set b0 master bond0",
                "link set bond0 up",
            ],
            "bond0",
        ),
        (
            "a port of a team",
            &[
                "link add team0 type team",
                "link set b0 down",
                "link set b0 master team0",
                "link set b0 up",
            ],
            "team0",
        ),
        (
            "a member of a VRF",
            &["link add vrf0 type vrf table 7", "link set b0 master vrf0"],
            "vrf0",
        ),
        (
            "the parent of a VLAN",
            &["link add link b0 name b0.5 type vlan id 5"],
            "b0.5",
        ),
        (
            "the parent of a MACVLAN",
            &["link add link b0 name mv0 type macvlan"],
            "mv0",
        ),
        (
            "the parent of an IPVLAN",
            &["link add link b0 name iv0 type ipvlan"],
            "iv0",
        ),
        (
            "unnumbered, with a route",
            &["route add 10.9.0.0/16 dev b0"],
            "10.9.0.0",
        ),
    ] {
        clean(&node, "b0");
        assert!(
            doctor(&port).contains("the host does not use"),
            "{}",
            doctor(&port)
        );
        if !set_up(&node, commands) {
            continue;
        }
        let (driver, why) = driver_of(&port);
        assert_eq!(driver, "packet", "{what}: {why}");
        assert!(why.contains(word), "{what}: {why}");
        let text = doctor(&port).replace(char::is_whitespace, " ");
        assert!(
            text.contains(word) && !text.contains("does not use"),
            "{what}: {text}"
        );
    }
    clean(&node, "b0");
}

/// Sending out of an interface that leads to other machines needs consent.
fn assert_sending_needs_consent(lab: &Lab) {
    let bridge = [
        "link add br0 type bridge",
        "link set a0 master br0",
        "link set br0 up",
        "addr add 198.18.9.1/24 dev br0",
    ];
    let own = "addr add 198.18.9.1/24 dev a0";
    let with = |before: &[&'static str], after: &[&'static str]| [before, after].concat();
    let (node, port) = (lab.node("a"), lab.a0());
    // The interfaces of a pair have no IPv6 address: otherwise its nodes would send frames unasked.
    let ipv6 = ["netns", "exec", &node, "sysctl", "-qw"];
    let on = ["net.ipv6.conf.a0.disable_ipv6=0"];
    assert!(system("ip", &[&ipv6[..], &on].concat()).status.success());
    for (what, commands) in [
        (
            "the default route",
            with(&[own], &["route add default via 198.18.9.2"]),
        ),
        (
            "of IPv6",
            vec![
                "-6 addr add 2001:2::1/64 dev a0 nodad",
                "-6 route add default via 2001:2::2 dev a0",
            ],
        ),
        (
            "on its bridge",
            with(&bridge, &["route add default via 198.18.9.2"]),
        ),
        (
            "in another table",
            with(&[own], &["route add default via 198.18.9.2 table 100"]),
        ),
        (
            "on its bridge in another table",
            with(
                &bridge,
                &["route add default via 198.18.9.2 dev br0 table 100"],
            ),
        ),
        (
            "in two halves",
            with(
                &[own],
                &[
                    "route add 0.0.0.0/1 via 198.18.9.2",
                    "route add 128.0.0.0/1 via 198.18.9.2",
                ],
            ),
        ),
        (
            "by a numbered next hop",
            with(
                &[own],
                &[
                    "nexthop add id 7 via 198.18.9.2 dev a0",
                    "route add default nhid 7",
                ],
            ),
        ),
        (
            "of a MACVLAN on it",
            vec![
                "link add link a0 name mv0 type macvlan",
                "link set mv0 up",
                "addr add 198.18.9.1/24 dev mv0",
                "route add default via 198.18.9.2",
            ],
        ),
        (
            "of a VLAN on it",
            vec![
                "link add link a0 name a0.5 type vlan id 5",
                "link set a0.5 up",
                "addr add 198.18.9.1/24 dev a0.5",
                "route add default via 198.18.9.2",
            ],
        ),
        (
            "of its bond",
            vec![
                "link add bond0 type bond",
                "link set a0 down",
                "link set a0 master bond0",
                "link set bond0 up",
                "addr add 198.18.9.1/24 dev bond0",
                "route add default via 198.18.9.2",
            ],
        ),
        (
            "of its VRF",
            vec![
                "link add vrf0 type vrf table 7",
                "link set vrf0 up",
                "link set a0 master vrf0",
                own,
                "route add default via 198.18.9.2 table 7",
            ],
        ),
    ] {
        clean(&node, "a0");
        let send = [
            "tx",
            "-i",
            &port,
            "--dst-mac",
            "02:00:00:00:00:02",
            "--count",
            "1",
            "-q",
        ];
        assert!(run(&send).status.success(), "{what}: before");
        if !set_up(&node, &commands) {
            continue;
        }
        let output = run(&send);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{what}: {said}");
        assert!(
            said.contains("route") && said.contains("--i-own-this-network"),
            "{what}: {said}"
        );
        let mac = [
            "--gateway-mac",
            "02:00:00:00:00:02",
            "--cps",
            "10",
            "--duration",
            "100ms",
        ];
        let load = run(&[&["load", "--client", &port], &mac[..]].concat());
        assert_eq!(load.status.code(), Some(2), "{what}: load");
        let text = doctor(&port).replace(char::is_whitespace, " ");
        assert!(text.contains("--i-own-this-network"), "{what}: {text}");
        let consent = run(&[&send[..], &["--i-own-this-network"]].concat());
        assert!(
            consent.status.success(),
            "{what}: {}",
            String::from_utf8_lossy(&consent.stderr)
        );
    }
}

#[test]
fn what_others_stand_on_or_go_out_of_is_left_to_them() {
    if !privileged() {
        return;
    }
    let lab = Lab::up("pair", &[]);
    assert_receiving_is_harmless(&lab);
    assert_sending_needs_consent(&lab);
}
