//! The bytes of sent frames, checked by an independent parser.

use std::{collections::BTreeSet, net::Ipv6Addr};

use crate::common::{Lab, count};
use etherparse::{NetSlice, SlicedPacket, TransportSlice};
use wb_model::{
    Proto, Stream, TagKind,
    plan::{HexBytes, VlanSpec},
};
use wb_traffic::{RampUp, SenderSpec, StreamSpec};
use wb_wire::{PktgenTag, Tag, checksum, find_tag};

fn frames(stream: Stream, n: u64) -> Vec<Vec<u8>> {
    let (frames, outcome) = Lab::new(|_| ()).send(&count(stream, n));
    assert_eq!(
        (frames.len() as u64, outcome.streams[0].offered_frames),
        (n, n)
    );
    frames
}

/// Panics unless all checksums and lengths of a frame are right.
fn judge(frame: &[u8]) {
    let packet = SlicedPacket::from_ethernet(frame).unwrap();
    let net = packet.net.as_ref().expect("an IP header");
    if let NetSlice::Ipv4(ip) = net {
        let header = ip.header().to_header();
        assert_eq!(
            header.header_checksum,
            header.calc_header_checksum(),
            "{frame:02x?}"
        );
    }
    match (packet.transport.as_ref().expect("a layer-4 header"), net) {
        (TransportSlice::Udp(udp), NetSlice::Ipv4(ip)) => {
            let right = udp
                .to_header()
                .calc_checksum_ipv4(&ip.header().to_header(), udp.payload())
                .unwrap();
            assert_ne!(udp.checksum(), 0);
            assert_eq!(udp.checksum(), right);
        }
        (TransportSlice::Udp(udp), NetSlice::Ipv6(ip)) => {
            let right = udp
                .to_header()
                .calc_checksum_ipv6(&ip.header().to_header(), udp.payload())
                .unwrap();
            assert_eq!(udp.checksum(), right);
        }
        (TransportSlice::Tcp(tcp), NetSlice::Ipv4(ip)) => {
            let right = tcp
                .calc_checksum_ipv4(ip.header().source(), ip.header().destination())
                .unwrap();
            assert_eq!(tcp.checksum(), right);
        }
        (TransportSlice::Tcp(tcp), NetSlice::Ipv6(ip)) => {
            let right = tcp
                .calc_checksum_ipv6(ip.header().source(), ip.header().destination())
                .unwrap();
            assert_eq!(tcp.checksum(), right);
        }
        (TransportSlice::Icmpv4(icmp), NetSlice::Ipv4(_)) => {
            // The parser checks only messages of types that it knows.
            assert!(wb_wire::checksum::is_right(0, icmp.slice()));
        }
        (TransportSlice::Icmpv6(icmp), NetSlice::Ipv6(ip)) => {
            assert!(icmp.is_checksum_valid(ip.header().source(), ip.header().destination()));
        }
        other => panic!("{other:?}"),
    }
}

const PROTOS: [Proto; 3] = [Proto::Udp, Proto::Tcp, Proto::Icmp];

#[test]
fn checksums_are_right_whatever_changes() {
    // Offsets after the tag of the longest headers, and across the boundary of address and port.
    let common = [
        "",
        "dst-mac=inc:02:00:00:00:00:00-02:00:00:00:00:ff",
        "src-mac=random:00:00:00:00:00:00-00:ff:ff:ff:ff:ff",
        "tos=random:0-255",
        "ttl=dec:1-255",
        "sport=inc:0-65535,step=4099",
        "dport=random:0-65535",
        "dport=list:1,2,65535",
        "sport=inc:0-65535,mask=0x0ff0",
        "vlan=inc:1-4095,step=77",
        "u8@97=inc:0-255",
        "u16@98=random:0-65535",
        "u32@99=random:0-4294967295",
    ];
    let v4 = [
        "id=inc:0-65535",
        "src=random:10.0.0.0/8",
        "dst=inc:198.18.0.1-198.19.255.254,step=65793",
        "src=inc:10.0.0.0/8,mask=0xff00",
        "u16@37=random:0-65535,mask=0xff0",
    ];
    let v6 = [
        "flow-label=random:0-1048575",
        "src=random:2001:2::/48",
        "dst=inc:2001:2::1-2001:2::ffff,step=257",
        "dst=random:2001:2::/32,mask=0xffff0000000000000000",
        "u16@57=random:0-65535,mask=0xff0",
    ];
    let tcp = [
        "tcp-seq=random:0-4294967295",
        "tcp-ack=inc:0-4294967295,step=1000003",
        "tcp-flags=inc:0-255",
    ];
    for proto in PROTOS {
        for ipv6 in [false, true] {
            let mut all: Vec<Vec<&str>> = common.iter().map(|v| vec![*v]).collect();
            all.extend((if ipv6 { v6 } else { v4 }).iter().map(|v| vec![*v]));
            if proto == Proto::Tcp {
                all.extend(tcp.iter().map(|v| vec![*v]));
            }
            // Two on one field, and all at once.
            all.push(vec!["sport=inc:0-65535", "sport=random:0-65535,mask=0xff"]);
            all.push(all.iter().flatten().copied().collect());
            for texts in all {
                let stream = Stream {
                    proto,
                    ipv6,
                    size: Some("120-125".parse().unwrap()),
                    vlan: vec![VlanSpec { id: 5, priority: 3 }],
                    payload: Some(HexBytes(vec![0xde, 0xad, 0xbe])),
                    vary: texts
                        .iter()
                        .filter(|t| !t.is_empty())
                        .map(|t| t.parse().unwrap())
                        .collect(),
                    flows: Some(3),
                    ..Stream::default()
                };
                for frame in frames(stream.clone(), 30) {
                    judge(&frame);
                    let (at, _) =
                        find_tag(&frame).unwrap_or_else(|| panic!("{texts:?}: {frame:02x?}"));
                    assert_eq!(at, stream.header_len() as usize);
                }
            }
        }
    }
}

#[test]
fn modifiers_write_their_values() {
    let word = |frame: &[u8], at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
    let stream = Stream {
        vary: vec![
            "sport=inc:1000-1002".parse().unwrap(),
            "dport=dec:5-6".parse().unwrap(),
            "ttl=list:7,9".parse().unwrap(),
            "u16@60=inc:0-9,mask=0xf".parse().unwrap(),
        ],
        size: Some("100".parse().unwrap()),
        payload: Some(HexBytes(vec![0xab, 0xcd])),
        ..Stream::default()
    };
    let frames = frames(stream, 4);
    let of = |at| frames.iter().map(|f| word(f, at)).collect::<Vec<_>>();
    assert_eq!(
        (of(34), of(36)),
        (vec![1000, 1001, 1002, 1000], vec![6, 5, 6, 5])
    );
    assert_eq!(
        frames.iter().map(|f| f[22]).collect::<Vec<_>>(),
        [7, 9, 7, 9]
    );
    assert_eq!(of(60), [0xabc0, 0xabc1, 0xabc2, 0xabc3]);
    assert_eq!(of(62), [0xabcd; 4]);
}

#[test]
fn every_flow_has_its_own_tuple_and_its_own_numbers() {
    for (ipv6, proto) in [
        (false, Proto::Udp),
        (true, Proto::Tcp),
        (false, Proto::Icmp),
        (true, Proto::Udp),
    ] {
        let stream = Stream {
            proto,
            src: Some(
                if ipv6 {
                    "2001:2::1-2001:2::3"
                } else {
                    "198.18.0.1-198.18.0.3"
                }
                .parse()
                .unwrap(),
            ),
            sport: Some("100-104".parse().unwrap()),
            dport: Some("7-8".parse().unwrap()),
            ..Stream::default()
        };
        assert_eq!(stream.flow_count(), 30);
        let (l4, address) = if ipv6 { (54, 22..54) } else { (34, 26..34) };
        let mut tuples = BTreeSet::new();
        for (i, frame) in frames(stream, 75).iter().enumerate() {
            judge(frame);
            let ports = if proto == Proto::Icmp {
                l4 + 4..l4 + 8
            } else {
                l4..l4 + 4
            };
            tuples.insert((frame[address.clone()].to_vec(), frame[ports].to_vec()));
            let tag = Tag::read(&frame[find_tag(frame).unwrap().0..]).unwrap();
            assert_eq!((tag.flow as usize, tag.sequence as usize), (i % 30, i / 30));
        }
        assert_eq!(tuples.len(), 30);
    }
}

#[test]
fn sizes_share_slots_without_leaving_traces() {
    let stream = Stream {
        size: Some("imix".parse().unwrap()),
        payload: Some(HexBytes(vec![1, 2, 3])),
        ..Stream::default()
    };
    let sent = frames(stream, 5000);
    for frame in &sent {
        judge(frame);
        let payload = &frame[60..];
        assert!(
            payload
                .iter()
                .zip([1, 2, 3].iter().cycle())
                .all(|(a, b)| a == b)
        );
    }
    let octets: usize = sent.iter().take(12 * 400).map(|f| f.len() + 4).sum();
    assert_eq!(octets, 400 * (7 * 64 + 4 * 570 + 1518));
}

#[test]
fn senders_that_follow_each_other_do_not_mix_up_slots() {
    let mut lab = Lab::new(|options| options.depth = 64);
    for size in ["300", "100", "300"] {
        for (fill, tag) in [(0x11, TagKind::Wirebench), (0x22, TagKind::None)] {
            let stream = Stream {
                size: Some(size.parse().unwrap()),
                payload: Some(HexBytes(vec![fill])),
                tag,
                ..Stream::default()
            };
            for frame in lab.send(&count(stream, 500)).0 {
                judge(&frame);
                assert!(frame[60..].iter().all(|b| *b == fill));
            }
        }
    }
}

#[test]
fn pktgen_headers_are_numbered_over_all_workers() {
    let mut numbers = Vec::new();
    for worker in 0..3 {
        let stream = Stream {
            tag: TagKind::Pktgen,
            flows: Some(5),
            ..Stream::default()
        };
        let spec = SenderSpec {
            worker,
            workers: 3,
            ..count(stream, 20)
        };
        for frame in Lab::new(|_| ()).send(&spec).0 {
            judge(&frame);
            numbers.push(PktgenTag::read(&frame[42..]).unwrap().sequence);
        }
    }
    numbers.sort_unstable();
    assert_eq!(numbers, (1..=20).collect::<Vec<u32>>());
}

#[test]
fn arp_and_raw_frames_carry_the_tag_too() {
    let arp = frames(
        Stream {
            proto: Proto::Arp,
            dst: Some("198.19.0.1-198.19.0.4".parse().unwrap()),
            ..Stream::default()
        },
        6,
    );
    let targets: Vec<u8> = arp.iter().map(|f| f[41]).collect();
    assert_eq!(targets, [1, 2, 3, 4, 1, 2]);
    let raw = frames(
        Stream {
            proto: Proto::Raw,
            mpls: vec![100, 200],
            vary: vec!["mpls2=inc:16-17".parse().unwrap()],
            ..Stream::default()
        },
        3,
    );
    for (frame, at) in arp
        .iter()
        .map(|f| (f, 42))
        .chain(raw.iter().map(|f| (f, 22)))
    {
        assert!(Tag::read(&frame[at..]).is_some(), "{frame:02x?}");
    }
    assert_eq!(raw[1][18..22], [0, 1, 0x11, 64]);
    let bare = frames(
        Stream {
            tag: TagKind::None,
            ..Stream::default()
        },
        2,
    );
    assert_eq!((find_tag(&bare[0]), &bare[0]), (None, &bare[1]));
}

/// The checksum covers the payload of IP, regardless of extension headers (RFC 8200 section 8.1).
#[test]
fn extension_headers_stand_before_what_ip_carries() {
    use wb_model::Extension::{Destination, Fragment, HopByHop, Routing};
    for (ext, numbers) in [
        (vec![HopByHop], vec![0]),
        (vec![Routing], vec![43]),
        (vec![Routing, Fragment, Destination], vec![43, 44, 60]),
    ] {
        let stream = Stream {
            ipv6: true,
            ext,
            vary: vec!["dst=inc:2001:2::1-2001:2::9".parse().unwrap()],
            ..Stream::default()
        };
        for frame in frames(stream, 3) {
            let (mut next, mut at) = (frame[20], 54);
            let mut seen = Vec::new();
            while next != 17 {
                seen.push(next);
                let len = if next == 44 {
                    8
                } else {
                    8 + 8 * usize::from(frame[at + 1])
                };
                (next, at) = (frame[at], at + len);
            }
            assert_eq!(seen, numbers);
            assert_eq!(find_tag(&frame).unwrap().0, at + 8, "{frame:02x?}");
            assert_eq!(
                usize::from(frame[18]) << 8 | usize::from(frame[19]),
                frame.len() - 54
            );
            let [src, dst] = [22, 38].map(|at| {
                let bytes: [u8; 16] = *frame[at..].first_chunk().unwrap();
                Ipv6Addr::from(bytes)
            });
            let pseudo = checksum::pseudo_v6(src, dst, 17, (frame.len() - at) as u32);
            assert!(checksum::is_right(pseudo, &frame[at..]), "{frame:02x?}");
        }
    }
}

#[test]
fn a_modifier_may_spoil_a_checksum_on_purpose() {
    let stream = Stream {
        vary: vec!["u16@40=inc:5-5".parse().unwrap()],
        ..Stream::default()
    };
    assert!(frames(stream, 3).iter().all(|f| f[40..42] == [0, 5]));
}

#[test]
fn the_same_seed_gives_the_same_frames() {
    let spec = |seed, ramp_ns| SenderSpec {
        seed,
        lead: RampUp::without_hold(ramp_ns),
        streams: vec![StreamSpec {
            stream: Stream {
                size: Some("imix".parse().unwrap()),
                vary: vec![
                    "src=random:10.0.0.0/8".parse().unwrap(),
                    "tos=random:0-255".parse().unwrap(),
                ],
                flows: Some(7),
                ..Stream::default()
            },
            flows: 7,
            pps: Some(wb_model::units::Rational::whole(1_000_000)),
            ..StreamSpec::default()
        }],
        count: Some(500),
        ..SenderSpec::default()
    };
    let stripped = |seed, ramp_ns| {
        let (frames, _) = Lab::new(|_| ()).send(&spec(seed, ramp_ns));
        let unstamped = |mut frame: Vec<u8>| {
            // The time and the checksum that covers it.
            let ramp = Tag::read(&frame[42..]).unwrap().flow == wb_traffic::RAMP_FLOW;
            frame[52..60].fill(0);
            frame[40..42].fill(0);
            (!ramp).then_some(frame)
        };
        frames.into_iter().filter_map(unstamped).collect::<Vec<_>>()
    };
    let one = stripped(1, 0);
    assert_eq!(one.len(), 500);
    assert_eq!(one, stripped(1, 0));
    assert_eq!(one, stripped(1, 1_000_000));
    assert_ne!(one, stripped(2, 0));
}

#[test]
fn a_udp_checksum_is_never_zero() {
    // All values of a word: one of them makes the sum 0, which would mean "no checksum".
    let stream = Stream {
        tag: TagKind::None,
        vary: vec!["u16@50=inc:0-65535".parse().unwrap()],
        ..Stream::default()
    };
    let sent = frames(stream, 65_536);
    sent.iter().for_each(|frame| judge(frame));
    let full = sent.iter().filter(|f| f[40..42] == [0xff, 0xff]).count();
    assert_eq!(full, 1);
}
