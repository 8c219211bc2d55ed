//! Answers of a port to its neighbours, from the view of the neighbour.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use wb_wire::*;

const OURS: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const THEIRS: MacAddr = MacAddr([2, 0, 0, 0, 0, 9]);
const OUR_V4: Ipv4Addr = Ipv4Addr::new(198, 18, 1, 2);
const THEIR_V4: Ipv4Addr = Ipv4Addr::new(198, 18, 1, 1);
const OUR_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 2, 0, 0, 0, 0, 0x12, 0x3456);
const THEIR_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 2, 0, 0, 0, 0, 0, 1);

fn us() -> NeighbourResponder {
    NeighbourResponder::new(OURS, [OUR_V4.into(), OUR_V6.into()])
}

fn them() -> NeighbourResponder {
    NeighbourResponder::new(THEIRS, [THEIR_V4.into(), THEIR_V6.into()])
}

fn answer(responder: &NeighbourResponder, question: &[u8]) -> Option<Vec<u8>> {
    let mut out = vec![0xee; 2000];
    let len = responder.answer(question, &mut out)?;
    out.truncate(len);
    Some(out)
}

fn arp(vlans: &[Vlan], target: Ipv4Addr) -> Vec<u8> {
    let mut out = vec![0xee; 200];
    let len = arp_request(THEIRS, THEIR_V4, target, vlans, &mut out).unwrap();
    out.truncate(len);
    out
}

fn solicitation(vlans: &[Vlan], source: Ipv6Addr, target: Ipv6Addr) -> Vec<u8> {
    let mut out = vec![0xee; 200];
    let len = neighbour_solicitation(THEIRS, source, target, vlans, &mut out).unwrap();
    out.truncate(len);
    out
}

fn ping(network: NetworkHeader, payload: usize) -> Vec<u8> {
    let mut stack = Stack {
        fill: Fill::Counting,
        ..Stack::over(network)
    };
    stack.ethernet = Ethernet {
        dst: OURS,
        src: THEIRS,
    };
    stack.build(stack.min_len() + payload)
}

#[test]
fn arp_request_bytes() {
    let mut want = vec![0xff; 6];
    want.extend(THEIRS.0);
    want.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, 1]);
    want.extend(THEIRS.0);
    want.extend([198, 18, 1, 1, 0, 0, 0, 0, 0, 0, 198, 18, 1, 2]);
    want.resize(60, 0);
    assert_eq!(arp(&[], OUR_V4), want);
    assert_eq!(
        arp_request(THEIRS, THEIR_V4, OUR_V4, &[], &mut [0; 59]),
        None
    );
}

#[test]
fn arp_is_asked_answered_and_heard() {
    for vlans in [vec![], Vlan::stack(&[7]), Vlan::stack(&[100, 200])] {
        let question = arp(&vlans, OUR_V4);
        assert_eq!(question.len(), 60);
        assert_eq!(us().learn(&question), Some((THEIR_V4.into(), THEIRS)));
        let reply = answer(&us(), &question).unwrap();
        assert_eq!(reply.len(), 60);
        assert_eq!(reply[..6], THEIRS.0);
        let link = 12 + vlans.len() * 4;
        assert_eq!(
            reply[12..link + 2],
            question[12..link + 2],
            "the tags are kept"
        );
        assert_eq!(them().learn(&reply), Some((OUR_V4.into(), OURS)));
        assert_eq!(us().learn(&reply), None, "one's own voice teaches nothing");
        assert_eq!(answer(&them(), &reply), None, "an answer is no question");
    }
}

#[test]
fn arp_for_others_and_announcements_are_left_alone() {
    assert_eq!(answer(&us(), &arp(&[], Ipv4Addr::new(198, 18, 1, 3))), None);
    let mut announcement = vec![0; 60];
    arp_request(THEIRS, OUR_V4, OUR_V4, &[], &mut announcement).unwrap();
    assert_eq!(answer(&us(), &announcement), None);
    assert_eq!(
        us().learn(&announcement),
        Some((OUR_V4.into(), THEIRS)),
        "a conflict is worth knowing"
    );
}

#[test]
fn an_arp_probe_is_answered_but_teaches_nothing() {
    let mut probe = vec![0; 60];
    arp_request(THEIRS, Ipv4Addr::UNSPECIFIED, OUR_V4, &[], &mut probe).unwrap();
    assert!(answer(&us(), &probe).is_some());
    assert_eq!(us().learn(&probe), None);
}

#[test]
fn solicitation_is_asked_answered_and_heard() {
    for vlans in [vec![], Vlan::stack(&[7])] {
        let question = solicitation(&vlans, THEIR_V6, OUR_V6);
        assert_eq!(question[..6], [0x33, 0x33, 0xff, 0x12, 0x34, 0x56]);
        assert_eq!(question.len(), 86 + vlans.len() * 4);
        assert_eq!(us().learn(&question), Some((THEIR_V6.into(), THEIRS)));
        let reply = answer(&us(), &question).unwrap();
        assert_eq!(reply[..6], THEIRS.0);
        assert_eq!(them().learn(&reply), Some((OUR_V6.into(), OURS)));
        let flags = reply[14 + vlans.len() * 4 + 44];
        assert_eq!(flags, 0x60, "solicited, override, not a router");
    }
}

#[test]
fn an_address_test_is_answered_to_all_nodes() {
    let question = solicitation(&[], Ipv6Addr::UNSPECIFIED, OUR_V6);
    assert_eq!(question.len(), 78, "no link-layer address in it");
    let reply = answer(&us(), &question).unwrap();
    assert_eq!(reply[..6], [0x33, 0x33, 0, 0, 0, 1]);
    assert_eq!(
        reply[38..54],
        Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1).octets()
    );
    assert_eq!(reply[58], 0x20, "override only");
}

#[test]
fn forged_solicitations_are_dropped() {
    let good = solicitation(&[], THEIR_V6, OUR_V6);
    let damaged = |at: usize, byte: u8| {
        let mut frame = good.clone();
        frame[at] = byte;
        frame
    };
    assert!(answer(&us(), &good).is_some());
    assert_eq!(
        answer(&us(), &damaged(21, 254)),
        None,
        "came through a router"
    );
    assert_eq!(
        answer(&us(), &damaged(56, good[56] ^ 1)),
        None,
        "wrong checksum"
    );
    assert_eq!(
        answer(&us(), &damaged(79, 0)),
        None,
        "option of length zero"
    );
    assert_eq!(
        answer(&us(), &solicitation(&[], THEIR_V6, THEIR_V6)),
        None,
        "not ours"
    );
}

#[test]
fn pings_come_back() {
    let echo = TransportHeader::Echo(Echo::request(0x77, 3));
    for payload in [0, 5, 56, 1400] {
        let question = ping(
            NetworkHeader::Ipv4(
                Ipv4 {
                    ttl: 3,
                    id: 9,
                    ..Ipv4::new(THEIR_V4, OUR_V4)
                },
                echo,
            ),
            payload,
        );
        let reply = answer(&us(), &question).unwrap();
        assert_eq!(reply.len(), question.len().max(60));
        let (ethernet, _, packet) = Ethernet::parse(&reply).unwrap();
        assert_eq!(
            ethernet,
            Ethernet {
                dst: THEIRS,
                src: OURS
            }
        );
        assert!(checksum::is_right(0, &packet[..20]));
        let (ip, next, message) = Ipv4::parse(packet).unwrap();
        assert_eq!((ip.src, ip.dst, ip.ttl, next), (OUR_V4, THEIR_V4, 64, 1));
        assert!(checksum::is_right(0, message));
        let (seen, data) = Echo::parse(IcmpVersion::V4, message).unwrap();
        assert_eq!(
            (seen, data),
            (
                Echo {
                    reply: true,
                    identifier: 0x77,
                    sequence: 3
                },
                &question[42..]
            )
        );

        let question = ping(
            NetworkHeader::Ipv6(Ipv6::new(THEIR_V6, OUR_V6), echo),
            payload,
        );
        let reply = answer(&us(), &question).unwrap();
        let (ip, next, message) = Ipv6::parse(&reply[14..]).unwrap();
        assert_eq!((ip.src, ip.dst, next), (OUR_V6, THEIR_V6, 58));
        assert!(checksum::is_right(
            checksum::pseudo_v6(ip.src, ip.dst, 58, message.len() as u32),
            message
        ));
        let (seen, data) = Echo::parse(IcmpVersion::V6, message).unwrap();
        assert_eq!((seen.reply, data), (true, &question[62..]));
    }
}

#[test]
fn a_damaged_ping_comes_back_damaged() {
    let mut question = ping(
        NetworkHeader::Ipv4(
            Ipv4::new(THEIR_V4, OUR_V4),
            TransportHeader::Echo(Echo::request(1, 1)),
        ),
        56,
    );
    question[50] ^= 1;
    let reply = answer(&us(), &question).unwrap();
    assert!(!checksum::is_right(0, &reply[34..]));
}

#[test]
fn what_is_not_for_us_stays_unanswered() {
    let echo = TransportHeader::Echo(Echo::request(1, 1));
    let reply = TransportHeader::Echo(Echo {
        reply: true,
        identifier: 1,
        sequence: 1,
    });
    let v4 = Ipv4::new(THEIR_V4, OUR_V4);
    let good = ping(NetworkHeader::Ipv4(v4, echo), 56);
    assert!(answer(&us(), &good).is_some());
    for (network, why) in [
        (NetworkHeader::Ipv4(v4, reply), "a reply"),
        (
            NetworkHeader::Ipv4(
                Ipv4 {
                    dst: Ipv4Addr::BROADCAST,
                    ..v4
                },
                echo,
            ),
            "broadcast",
        ),
        (
            NetworkHeader::Ipv4(
                Ipv4 {
                    src: Ipv4Addr::UNSPECIFIED,
                    ..v4
                },
                echo,
            ),
            "from nowhere",
        ),
        (
            NetworkHeader::Ipv4(
                Ipv4 {
                    fragment: 0x2000,
                    ..v4
                },
                echo,
            ),
            "a fragment",
        ),
        (
            NetworkHeader::Ipv4(v4, TransportHeader::Udp(Udp::new(8, 0))),
            "no ping at all",
        ),
        (
            NetworkHeader::Ipv6(Ipv6::new(THEIR_V6, THEIR_V6), echo),
            "another address",
        ),
        (
            NetworkHeader::None {
                ethertype: ethertype::EXPERIMENTAL,
            },
            "no IP",
        ),
    ] {
        assert_eq!(answer(&us(), &ping(network, 56)), None, "{why}");
    }
    let mut other_mac = good.clone();
    other_mac[5] = 0x55;
    assert_eq!(answer(&us(), &other_mac), None);
    let mut bad_header = good.clone();
    bad_header[22] ^= 1;
    assert_eq!(answer(&us(), &bad_header), None);
    assert_eq!(
        us().answer(&good, &mut [0; 97]),
        None,
        "no room for 98 bytes"
    );
}

#[test]
fn address_sets() {
    let v4 = |last| IpAddr::V4(Ipv4Addr::new(10, 0, 0, last));
    let mut set = AddrSet::default();
    assert!(set.is_empty() && !set.contains(v4(1)));
    set.insert_v4(Ipv4Addr::new(10, 0, 0, 20)..=Ipv4Addr::new(10, 0, 0, 30));
    set.insert(v4(5));
    set.insert_v4(Ipv4Addr::new(10, 0, 0, 40)..=Ipv4Addr::new(10, 0, 0, 35));
    let members: Vec<u8> = (0..=255).filter(|&n| set.contains(v4(n))).collect();
    assert_eq!(
        members,
        [5].into_iter()
            .chain(20..=30)
            .chain(35..=40)
            .collect::<Vec<_>>()
    );

    set.insert_v4(Ipv4Addr::new(10, 0, 0, 25)..=Ipv4Addr::new(10, 0, 0, 36));
    assert_eq!(
        set.ranges().collect::<Vec<_>>(),
        [(v4(5), v4(5)), (v4(20), v4(40))]
    );

    set.insert_prefix("2001:2::5".parse().unwrap(), 48);
    assert!(set.contains("2001:2:0:ffff::1".parse().unwrap()));
    assert!(!set.contains("2001:2:1::".parse().unwrap()));
    set.insert_prefix("192.0.2.7".parse().unwrap(), 32);
    assert!(
        set.contains("192.0.2.7".parse().unwrap()) && !set.contains("192.0.2.6".parse().unwrap())
    );
    set.insert_prefix("0.0.0.0".parse().unwrap(), 0);
    assert!(set.contains("255.255.255.255".parse().unwrap()));
}
