//! Properties of all frames: parsing reverses encoding, patches equal a full computation, an independent parser agrees,
//! and no bytes cause a panic.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use etherparse::{NetSlice, SlicedPacket, TransportSlice};
use proptest::collection::vec;
use proptest::prelude::*;
use wb_wire::*;

fn mac() -> impl Strategy<Value = MacAddr> {
    any::<[u8; 6]>().prop_map(MacAddr)
}

fn vlan() -> impl Strategy<Value = Vlan> {
    (prop::sample::select(vec![0x8100, 0x88a8]), any::<u16>())
        .prop_map(|(tpid, tci)| Vlan::from_tci(tpid, tci))
}

fn label() -> impl Strategy<Value = MplsLabel> {
    any::<u32>().prop_map(MplsLabel::from_word)
}

fn ipv4() -> impl Strategy<Value = Ipv4> {
    (
        any::<u8>(),
        any::<u16>(),
        prop::sample::select(vec![0, 0x4000]),
        any::<u8>(),
        any::<Ipv4Addr>(),
        any::<Ipv4Addr>(),
    )
        .prop_map(|(tos, id, fragment, ttl, src, dst)| Ipv4 {
            tos,
            id,
            fragment,
            ttl,
            src,
            dst,
        })
}

fn ipv6() -> impl Strategy<Value = Ipv6> {
    (
        any::<u8>(),
        0u32..1 << 20,
        any::<u8>(),
        any::<Ipv6Addr>(),
        any::<Ipv6Addr>(),
    )
        .prop_map(|(class, flow_label, hop_limit, src, dst)| Ipv6 {
            class,
            flow_label,
            hop_limit,
            src,
            dst,
        })
}

fn udp() -> impl Strategy<Value = Udp> {
    (any::<u16>(), any::<u16>()).prop_map(|(sport, dport)| Udp::new(sport, dport))
}

fn tcp() -> impl Strategy<Value = Tcp> {
    (
        any::<u16>(),
        any::<u16>(),
        any::<u32>(),
        any::<u32>(),
        any::<u8>(),
        any::<u16>(),
    )
        .prop_map(
            |(sport, dport, sequence, acknowledgment, flags, window)| Tcp {
                sport,
                dport,
                sequence,
                acknowledgment,
                flags,
                window,
            },
        )
}

fn transport() -> impl Strategy<Value = TransportHeader> {
    prop_oneof![
        udp().prop_map(TransportHeader::Udp),
        tcp().prop_map(TransportHeader::Tcp),
        (any::<bool>(), any::<u16>(), any::<u16>()).prop_map(|(reply, identifier, sequence)| {
            TransportHeader::Echo(Echo {
                reply,
                identifier,
                sequence,
            })
        }),
        Just(TransportHeader::Raw(protocol::EXPERIMENTAL)),
    ]
}

fn network() -> impl Strategy<Value = NetworkHeader> {
    prop_oneof![
        4 => (ipv4(), transport()).prop_map(|(ip, transport)| NetworkHeader::Ipv4(ip, transport)),
        4 => (ipv6(), transport()).prop_map(|(ip, transport)| NetworkHeader::Ipv6(ip, transport)),
        1 => Just(NetworkHeader::None { ethertype: ethertype::EXPERIMENTAL }),
    ]
}

const EXTENSIONS: [Ipv6Extension; 4] = [
    Ipv6Extension::HopByHop,
    Ipv6Extension::Routing,
    Ipv6Extension::Fragment,
    Ipv6Extension::Destination,
];

fn stack() -> impl Strategy<Value = Stack> {
    (
        mac(),
        mac(),
        vec(vlan(), 0..3),
        vec(label(), 0..4),
        network(),
        prop::sample::subsequence(EXTENSIONS.to_vec(), 0..=EXTENSIONS.len()),
        any::<u64>(),
    )
        .prop_map(|(dst, src, vlans, mpls, network, extensions, seed)| Stack {
            extensions,
            ethernet: Ethernet { dst, src },
            vlans,
            mpls,
            network,
            fill: Fill::Random(seed),
        })
}

proptest! {
    #[test]
    fn emit_then_parse(
        dst in mac(), src in mac(), kind: u16, vlan in vlan(), label in label(), bottom: bool,
        ip4 in ipv4(), ip6 in ipv6(), udp in udp(), tcp in tcp(), identifier: u16, reply: bool,
        payload in vec(any::<u8>(), 0..40),
    ) {
        let behind = |header: &[u8]| [header, &payload].concat();

        let ethernet = Ethernet { dst, src };
        assert_eq!(Ethernet::parse(&behind(&ethernet.emit(kind))), Some((ethernet, kind, &payload[..])));
        assert_eq!(Vlan::parse(vlan.tpid, &behind(&vlan.emit(kind))), Some((vlan, kind, &payload[..])));
        assert_eq!(MplsLabel::parse(&behind(&label.emit(bottom))), Some((label, bottom, &payload[..])));
        assert_eq!(Udp::parse(&behind(&udp.emit(payload.len(), 1))), Some((udp, &payload[..])));
        assert_eq!(Tcp::parse(&behind(&tcp.emit(1))), Some((tcp, &[][..], &payload[..])));

        // Padding behind the packet is not payload.
        let padded = [&behind(&ip4.emit(99, payload.len()))[..], &[0; 9]].concat();
        assert_eq!(Ipv4::parse(&padded), Some((ip4, 99, &payload[..])));
        let padded = [&behind(&ip6.emit(99, payload.len()))[..], &[0; 9]].concat();
        assert_eq!(Ipv6::parse(&padded), Some((ip6, 99, &payload[..])));

        let echo = Echo { reply, identifier, sequence: kind };
        for version in [IcmpVersion::V4, IcmpVersion::V6] {
            assert_eq!(Echo::parse(version, &behind(&echo.emit(version, 1))), Some((echo, &payload[..])));
        }
        let operation = if reply { ArpOperation::Reply } else { ArpOperation::Request };
        let arp = Arp { operation, sender_mac: src, sender_ip: ip4.src, target_mac: dst, target_ip: ip4.dst };
        assert_eq!(Arp::parse(&behind(&arp.emit())), Some((arp, &payload[..])));
    }

    #[test]
    fn neighbour_messages_survive(target: Ipv6Addr, mac in mac(), known: bool, flags: [bool; 3], ip in ipv6()) {
        prop_assume!(!target.is_multicast());
        let mac = known.then_some(mac);
        let [router, solicited, overrides] = flags;
        for message in [
            Neighbour::Solicitation { target, source: mac },
            Neighbour::Advertisement { target, link: mac, router, solicited, overrides },
        ] {
            let mut bytes = [0xee; Neighbour::MAX_LEN];
            let len = message.emit(ip.src, ip.dst, &mut bytes).unwrap();
            prop_assert_eq!(Neighbour::parse(&bytes[..len]), Some(message));
            let pseudo = checksum::pseudo_v6(ip.src, ip.dst, protocol::ICMPV6, len as u32);
            prop_assert!(checksum::is_right(pseudo, &bytes[..len]));
            prop_assert_eq!(message.emit(ip.src, ip.dst, &mut bytes[..len - 1]), None);
        }
    }

    #[test]
    fn an_independent_parser_agrees(mut stack in stack(), extra in 0usize..200) {
        // etherparse stops at MPLS.
        stack.mpls.clear();
        let (frame, layout) = stack.build_with_layout(stack.min_len() + extra);
        let sliced = SlicedPacket::from_ethernet(&frame).unwrap();
        let link_tags: Vec<u16> = sliced.vlan_ids().iter().map(|id| id.value()).collect();
        prop_assert_eq!(link_tags, stack.vlans.iter().map(|vlan| vlan.id).collect::<Vec<_>>());

        let l4 = layout.l4.unwrap_or(layout.payload);
        match (&stack.network, &sliced.net) {
            (NetworkHeader::Ipv4(ip, _), Some(NetSlice::Ipv4(seen))) => {
                let header = seen.header().to_header();
                prop_assert_eq!(header.calc_header_checksum(), header.header_checksum);
                prop_assert_eq!((header.source, header.destination), (ip.src.octets(), ip.dst.octets()));
                prop_assert_eq!(seen.payload().payload, &frame[l4..]);
                match &sliced.transport {
                    Some(TransportSlice::Udp(udp)) => {
                        let right = udp.to_header().calc_checksum_ipv4(&header, udp.payload()).unwrap();
                        prop_assert_eq!(udp.checksum(), right);
                    }
                    Some(TransportSlice::Tcp(tcp)) => {
                        let right = tcp.to_header().calc_checksum_ipv4(&header, tcp.payload()).unwrap();
                        prop_assert_eq!(tcp.checksum(), right);
                    }
                    Some(TransportSlice::Icmpv4(icmp)) => {
                        prop_assert_eq!(icmp.checksum(), icmp.header().icmp_type.calc_checksum(icmp.payload()));
                    }
                    _ => prop_assert_eq!(layout.l4, None),
                }
            }
            (NetworkHeader::Ipv6(ip, _), Some(NetSlice::Ipv6(seen))) => {
                let header = seen.header().to_header();
                prop_assert_eq!((header.source, header.destination), (ip.src.octets(), ip.dst.octets()));
                prop_assert_eq!(header.flow_label.value(), ip.flow_label);
                prop_assert_eq!(seen.payload().payload, &frame[l4..]);
                match &sliced.transport {
                    Some(TransportSlice::Udp(udp)) => {
                        let right = udp.to_header().calc_checksum_ipv6(&header, udp.payload()).unwrap();
                        prop_assert_eq!(udp.checksum(), right);
                    }
                    Some(TransportSlice::Tcp(tcp)) => {
                        let right = tcp.to_header().calc_checksum_ipv6(&header, tcp.payload()).unwrap();
                        prop_assert_eq!(tcp.checksum(), right);
                    }
                    Some(TransportSlice::Icmpv6(icmp)) => {
                        prop_assert!(icmp.is_checksum_valid(header.source, header.destination));
                    }
                    _ => prop_assert_eq!(layout.l4, None),
                }
            }
            (NetworkHeader::None { .. }, None) => {}
            other => prop_assert!(false, "{other:?}"),
        }
    }

    #[test]
    fn the_tag_is_found(stack in stack(), extra in 0usize..100, flow: u32, sequence: u32, time_ns: u64) {
        let (mut frame, layout) = stack.build_with_layout(stack.min_len() + Tag::LEN + extra);
        let end = layout.payload + Tag::LEN;
        let tag = Tag { flow, sequence, time_ns };
        tag.write(frame[layout.payload..].first_chunk_mut().unwrap());
        prop_assert_eq!(find_tag(&frame), Some((layout.payload, TagFormat::Native)));
        prop_assert!(is_tag_at(&frame, layout.payload));
        prop_assert_eq!(find_tag(&frame[..end - 1]), None);
    }

    #[test]
    fn no_bytes_make_a_parser_panic(bytes in vec(any::<u8>(), 0..120)) {
        parse_all(&bytes);
    }

    /// Built frames with a few bytes changed and the end cut: these get further than random bytes.
    #[test]
    fn no_damaged_frame_makes_a_parser_panic(
        stack in stack(), damage in vec((any::<prop::sample::Index>(), any::<u8>()), 0..6), cut: prop::sample::Index,
    ) {
        let mut frame = stack.build(stack.min_len() + 40);
        for (at, byte) in damage {
            let at = at.index(frame.len());
            frame[at] = byte;
        }
        frame.truncate(cut.index(frame.len() + 1));
        parse_all(&frame);
    }
}

fn parse_all(bytes: &[u8]) {
    let _ = Ethernet::parse(bytes);
    let _ = Vlan::parse(0x8100, bytes);
    let _ = MplsLabel::parse(bytes);
    let _ = Arp::parse(bytes);
    let _ = Ipv4::parse(bytes);
    let _ = Ipv6::parse(bytes);
    let _ = Udp::parse(bytes);
    let _ = Tcp::parse(bytes);
    let _ = Echo::parse(IcmpVersion::V4, bytes);
    let _ = Echo::parse(IcmpVersion::V6, bytes);
    let _ = Neighbour::parse(bytes);
    let _ = Tag::read(bytes);
    let _ = PktgenTag::read(bytes).map(|tag| tag.guess_time(u64::MAX));
    let _ = checksum::sum(bytes);
    if let Some((at, kind)) = find_tag(bytes) {
        assert!(at + kind.len() <= bytes.len());
    }
    if let Some(end) = headers_end(bytes) {
        assert!(end <= bytes.len());
    }
    let mut responder = NeighbourResponder::default();
    responder
        .addresses
        .insert_prefix(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
    responder
        .addresses
        .insert_prefix(IpAddr::V6(Ipv6Addr::UNSPECIFIED), 0);
    if let Some(first) = bytes.first_chunk() {
        responder.mac = MacAddr(*first);
    }
    let _ = responder.learn(bytes);
    for room in [0, 20, 60, 200] {
        let mut out = vec![0; room];
        if let Some(len) = responder.answer(bytes, &mut out) {
            assert!((MIN_LEN..=room).contains(&len));
        }
    }
}
