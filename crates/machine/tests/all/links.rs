//! Compares links, addresses, routes and neighbours in test namespaces with iproute2.

use std::net::{IpAddr, UdpSocket};

use crate::common::{Node, output, pair, privileged};
use wb_machine::link::{LinkKind, VethEnd, create_veth, link_by_name, links};
use wb_machine::{HostError, Netlink, in_namespace, sysctl};
use wb_testing::eventually;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[test]
fn a_wire_between_two_namespaces() {
    if !privileged() {
        return;
    }
    let (a, b) = pair(3);
    let a0 = link_by_name(&a.0, "a0").unwrap();
    let b0 = link_by_name(&b.0, "b0").unwrap();
    assert_eq!(
        (&a0.kind, a0.mac, a0.mtu),
        (&LinkKind::Veth, [2, 0, 0, 0, 0, 1], 1500)
    );
    assert_eq!((a0.num_tx_queues, a0.num_rx_queues), (3, 3));
    assert_eq!(
        (a0.peer_index, b0.peer_index),
        (Some(b0.index), Some(a0.index))
    );
    assert!(a0.peer_netnsid.is_some(), "the peer is elsewhere");
    assert_eq!(
        (a0.up, a0.carrier, a0.promiscuous, a0.xdp_attached),
        (false, false, false, None)
    );

    let names: Vec<String> = links(&a.0)
        .unwrap()
        .into_iter()
        .map(|link| link.name)
        .collect();
    assert_eq!(
        names,
        ["lo", "a0"],
        "neither end was left in a wrong namespace"
    );

    let (at_a, at_b) = (Netlink::open(&a.0).unwrap(), Netlink::open(&b.0).unwrap());
    at_a.set_up("a0").unwrap();
    assert!(!at_a.link("a0").unwrap().carrier, "the other end is down");
    at_b.set_up("b0").unwrap();
    assert!(at_a.link("a0").unwrap().carrier);
    at_a.set_mtu("a0", 3000).unwrap();
    at_a.set_down("a0").unwrap();
    at_a.set_mac("a0", [2, 0, 0, 0, 0, 9]).unwrap();
    let changed = at_a.link("a0").unwrap();
    assert_eq!((changed.up, changed.mtu, changed.mac[5]), (false, 3000, 9));

    let text = output(
        "ip",
        &["netns", "exec", a.name(), "ip", "link", "show", "a0"],
    );
    assert!(
        text.contains("mtu 3000") && text.contains("02:00:00:00:00:09"),
        "{text}"
    );

    at_a.delete_link("a0").unwrap();
    assert!(matches!(
        at_a.link("a0"),
        Err(HostError::UnknownInterface { .. })
    ));
    assert!(matches!(
        at_b.link("b0"),
        Err(HostError::UnknownInterface { .. })
    ));
}

#[test]
fn an_unknown_interface_is_told_with_what_there_is() {
    if !privileged() {
        return;
    }
    let (a, _b) = pair(1);
    let error = link_by_name(&a.0, "a1").unwrap_err().to_string();
    let expected = format!(
        "no interface a1 in namespace {}; did you mean a0?; there are: lo, a0",
        a.name()
    );
    assert_eq!(error, expected);
}

#[test]
fn a_taken_name_says_which() {
    if !privileged() {
        return;
    }
    let (a, b) = pair(1);
    let end = |namespace, name| VethEnd {
        namespace,
        name,
        mac: None,
        queues: 1,
        mtu: None,
    };
    let error = create_veth(&end(&a.0, "a1"), &end(&b.0, "b0"))
        .unwrap_err()
        .to_string();
    assert!(
        error.contains(&format!("interface b0 in namespace {}", b.name())),
        "{error}"
    );
    assert!(
        error.contains(&format!("`ip netns exec {} ip link delete b0`", b.name())),
        "{error}"
    );
    assert_eq!(links(&a.0).unwrap().len(), 2, "nothing was left behind");
}

#[test]
fn the_kernels_own_words_are_passed_on() {
    if !privileged() {
        return;
    }
    let (a, _b) = pair(1);
    let netlink = Netlink::open(&a.0).unwrap();
    let error = netlink.set_mtu("a0", 70_000).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("(mtu greater than device maximum)"),
        "{error}"
    );
}

#[test]
fn a_bridge_joins_wires_and_is_silent() {
    if !privileged() {
        return;
    }
    let (a, b) = pair(1);
    let netlink = Netlink::open(&a.0).unwrap();
    netlink.create_bridge("br", [2, 0, 0, 0, 0, 7]).unwrap();
    netlink.add_bridge_port("br", "a0").unwrap();
    for name in ["br", "a0"] {
        netlink.set_up(name).unwrap();
    }
    Netlink::open(&b.0).unwrap().set_up("b0").unwrap();
    // The kernel reports the carrier of a bridge a moment later.
    eventually("the bridge has a carrier", || {
        netlink.link("br").unwrap().carrier
    });
    let bridge = netlink.link("br").unwrap();
    assert_eq!(
        (&bridge.kind, bridge.mac),
        (&LinkKind::Bridge, [2, 0, 0, 0, 0, 7])
    );
    let port = netlink.link("a0").unwrap();
    assert_eq!(port.master_index, Some(bridge.index));
    let text = output("ip", &["-n", a.name(), "-d", "link", "show", "br"]);
    for quiet in ["stp_state 0", "mcast_snooping 0", "mcast_querier 0"] {
        assert!(text.contains(quiet), "{quiet}: {text}");
    }
    let taken = netlink.create_bridge("br", [2, 0, 0, 0, 0, 8]);
    assert!(matches!(taken, Err(HostError::Exists { .. })), "{taken:?}");
    let none = netlink.add_bridge_port("lo", "a0").unwrap_err().to_string();
    assert!(none.starts_with("cannot set the bridge of a0"), "{none}");
}

#[test]
fn addresses_routes_and_neighbours() {
    if !privileged() {
        return;
    }
    let (a, b) = pair(1);
    let (at_a, at_b) = (Netlink::open(&a.0).unwrap(), Netlink::open(&b.0).unwrap());
    sysctl::silence_ipv6(&a.0, "a0").unwrap();
    at_a.set_up("a0").unwrap();
    at_b.set_up("b0").unwrap();

    for (address, length) in [("198.18.0.1", 24), ("2001:2::1", 64)] {
        at_a.add_address("a0", ip(address), length).unwrap();
        at_a.add_address("a0", ip(address), length)
            .expect("twice changes nothing");
    }
    let addresses = at_a.addresses("a0").unwrap();
    let texts: Vec<String> = addresses
        .iter()
        .map(|address| address.to_string())
        .collect();
    assert_eq!(
        texts,
        ["198.18.0.1/24", "2001:2::1/64"],
        "and no link-local one"
    );
    assert!(
        addresses
            .iter()
            .all(|address| !address.tentative && !address.link_local)
    );
    let text = output(
        "ip",
        &[
            "netns",
            "exec",
            a.name(),
            "ip",
            "-4",
            "address",
            "show",
            "a0",
        ],
    );
    assert!(text.contains("198.18.0.1/24 brd 198.18.0.255"), "{text}");

    let text = output(
        "ip",
        &[
            "netns",
            "exec",
            a.name(),
            "ip",
            "-6",
            "address",
            "show",
            "a0",
        ],
    );
    assert!(text.contains("2001:2::1/64 scope global nodad"), "{text}");

    assert!(at_a.way_out("a0").unwrap().is_none());
    assert_eq!(at_a.route_to(ip("203.0.113.1")).unwrap(), None);
    at_a.add_route(ip("0.0.0.0"), 0, Some(ip("198.18.0.2")), None)
        .unwrap();
    at_a.add_route(ip("198.19.0.0"), 16, Some(ip("198.18.0.3")), Some("a0"))
        .unwrap();
    at_a.add_route(ip("2001:2:1::"), 48, Some(ip("2001:2::2")), None)
        .unwrap();
    at_a.add_route(ip("198.51.100.0"), 24, None, Some("a0"))
        .unwrap();
    assert!(at_a.way_out("a0").unwrap().is_some());
    assert!(at_a.way_out("lo").unwrap().is_none());
    let routes = at_a.routes().unwrap();
    assert!(
        routes
            .iter()
            .any(|r| r.prefix_len == 16 && r.hops[0].1 == Some(ip("198.18.0.3")))
    );

    let index = at_a.link("a0").unwrap().index;
    for (destination, gateway, source) in [
        ("203.0.113.1", Some("198.18.0.2"), "198.18.0.1"),
        ("198.19.7.7", Some("198.18.0.3"), "198.18.0.1"),
        ("198.18.0.77", None, "198.18.0.1"),
        ("2001:2:1::9", Some("2001:2::2"), "2001:2::1"),
    ] {
        let route = at_a.route_to(ip(destination)).unwrap().unwrap();
        assert_eq!(route.interface, index);
        assert_eq!(
            (route.gateway, route.source),
            (gateway.map(ip), Some(ip(source))),
            "{destination}"
        );
    }
    let error = at_a
        .add_route(ip("198.19.0.0"), 24, Some(ip("192.0.2.1")), None)
        .unwrap_err();
    assert!(error.to_string().contains("invalid gateway"), "{error}");

    for address in ["198.18.0.2", "2001:2::2"] {
        at_a.add_neighbour("a0", ip(address), [2, 0, 0, 0, 0, 2])
            .unwrap();
    }
    let shown = output("ip", &["-n", a.name(), "neigh", "show", "dev", "a0"]);
    let ours = shown
        .lines()
        .filter(|line| line.contains("02:00:00:00:00:02 PERMANENT"));
    assert_eq!(ours.count(), 2, "{shown}");

    at_a.remove_address("a0", ip("2001:2::1"), 64).unwrap();
    assert_eq!(at_a.addresses("a0").unwrap().len(), 1);
}

#[test]
fn counters_count_what_is_sent() {
    if !privileged() {
        return;
    }
    let (a, b) = pair(1);
    let (at_a, at_b) = (Netlink::open(&a.0).unwrap(), Netlink::open(&b.0).unwrap());
    for (namespace, interface) in [(&a.0, "a0"), (&b.0, "b0")] {
        sysctl::disable_ipv6(namespace, interface).unwrap();
    }
    at_a.set_up("a0").unwrap();
    at_b.set_up("b0").unwrap();
    at_a.add_address("a0", ip("198.18.0.1"), 24).unwrap();
    at_a.add_neighbour("a0", ip("198.18.0.2"), [2, 0, 0, 0, 0, 2])
        .unwrap();
    let before = (at_a.counters("a0").unwrap(), at_b.counters("b0").unwrap());
    // The socket leaves the closure and still sends in the namespace in which it was created.
    let socket = in_namespace(&a.0, || UdpSocket::bind("198.18.0.1:0").unwrap()).unwrap();
    for _ in 0..7 {
        socket.send_to(&[0; 58], "198.18.0.2:9").unwrap();
    }
    let sent = at_a.counters("a0").unwrap().since(&before.0);
    let received = at_b.counters("b0").unwrap().since(&before.1);
    assert_eq!((sent.tx_packets, sent.tx_bytes), (7, 700));
    assert_eq!((received.rx_packets, received.rx_bytes), (7, 700));
}

#[test]
fn settings_belong_to_the_namespace() {
    if !privileged() {
        return;
    }
    let node = Node::new("sysctl");
    let here = wb_machine::Namespace::current().unwrap();
    let ours = sysctl::get(&here, "net.ipv4.ip_default_ttl").unwrap();
    sysctl::set(&node.0, "net.ipv4.ip_default_ttl", "17").unwrap();
    assert_eq!(
        sysctl::get(&node.0, "net.ipv4.ip_default_ttl").unwrap(),
        "17"
    );
    assert_eq!(sysctl::get(&here, "net.ipv4.ip_default_ttl").unwrap(), ours);
}
