//! Complete frames compared with literal bytes: those of the kernel's pktgen and of RFC 2544 appendix C.

use std::net::{Ipv4Addr, Ipv6Addr};

use wb_wire::{
    Ethernet, Fill, Ipv4, Ipv6, MacAddr, MplsLabel, NetworkHeader, PktgenTag, PktgenTime, Stack,
    TagFormat, TransportHeader, Udp, Vlan, find_tag,
};

const TAG_1: PktgenTag = PktgenTag {
    sequence: 1,
    time: [0, 0],
};
const A: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const B: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(|b| !b.is_ascii_whitespace()).collect();
    digits
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

fn stack(network: NetworkHeader) -> Stack {
    let ethernet = Ethernet {
        dst: MacAddr([2, 0, 0, 0, 0, 2]),
        src: MacAddr([2, 0, 0, 0, 0, 1]),
    };
    Stack {
        ethernet,
        ..Stack::over(network)
    }
}

/// Frame as sent by pktgen: time to live 32, both ports 9, no checksum.
fn pktgen4(src: Ipv4Addr, dst: Ipv4Addr) -> Stack {
    stack(NetworkHeader::Ipv4(
        Ipv4 {
            ttl: 32,
            ..Ipv4::new(src, dst)
        },
        TransportHeader::Udp(Udp {
            sport: 9,
            dport: 9,
            checksum: false,
        }),
    ))
}

fn with_tag(stack: &Stack, len: usize, tag: PktgenTag) -> Vec<u8> {
    let (mut frame, layout) = stack.build_with_layout(len);
    tag.write(frame[layout.payload..].first_chunk_mut().unwrap());
    layout.write_l4_checksum(&mut frame);
    assert_eq!(find_tag(&frame), Some((layout.payload, TagFormat::Pktgen)));
    assert_eq!(PktgenTag::read(&frame[layout.payload..]), Some(tag));
    frame
}

#[test]
fn pktgen_plain() {
    let mut stack = pktgen4(Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(198, 18, 0, 42));
    let first = hex(
        "02000000000202000000000108004500002e0000000020111282c0000201c612002a00090009001a0000be9be9550000000100000000000000000000",
    );
    assert_eq!(with_tag(&stack, 60, TAG_1), first);
    let NetworkHeader::Ipv4(ip, _) = &mut stack.network else {
        unreachable!()
    };
    ip.id = 1;
    let second = hex(
        "02000000000202000000000108004500002e0001000020111281c0000201c612002a00090009001a0000be9be9550000000200000000000000000000",
    );
    assert_eq!(
        with_tag(
            &stack,
            60,
            PktgenTag {
                sequence: 2,
                ..TAG_1
            }
        ),
        second
    );
}

#[test]
fn pktgen_with_checksum() {
    let ip = Ipv4 {
        ttl: 32,
        ..Ipv4::new(A, Ipv4Addr::new(198, 18, 0, 42))
    };
    let stack = stack(NetworkHeader::Ipv4(
        ip,
        TransportHeader::Udp(Udp::new(1000, 2000)),
    ));
    let frame = hex(
        "02000000000202000000000108004500002e000000002011ca820a000001c612002a03e807d0001a7bd2be9be9550000000100000000000000000000",
    );
    assert_eq!(with_tag(&stack, 60, TAG_1), frame);
}

#[test]
fn pktgen_vlan_and_qinq() {
    let inner = Vlan {
        priority: 3,
        ..Vlan::customer(77)
    };
    let outer = Vlan {
        priority: 5,
        drop_eligible: true,
        ..Vlan::customer(22)
    };
    let vlan = Stack {
        vlans: vec![inner],
        ..pktgen4(A, B)
    };
    let frame = hex(
        "0200000000020200000000018100604d08004500002e00000000201186bd0a0000010a00000200090009001a0000be9be9550000000100000000000000000000",
    );
    assert_eq!(with_tag(&vlan, 64, TAG_1), frame);
    let qinq = Stack {
        vlans: vec![outer, inner],
        ..vlan
    };
    let frame = hex(
        "0200000000020200000000018100b0168100604d08004500002e00000000201186bd0a0000010a00000200090009001a0000be9be9550000000100000000000000000000",
    );
    assert_eq!(with_tag(&qinq, 68, TAG_1), frame);
}

#[test]
fn pktgen_mpls() {
    let ip = Ipv4 {
        ttl: 32,
        tos: 0x28,
        ..Ipv4::new(A, B)
    };
    let mut stack = stack(NetworkHeader::Ipv4(
        ip,
        TransportHeader::Udp(Udp {
            sport: 9,
            dport: 9,
            checksum: false,
        }),
    ));
    stack.mpls = [0x0001_000a, 0x0002_000a, 0x0000_000a]
        .map(MplsLabel::from_word)
        .to_vec();
    let frame = hex(
        "02000000000202000000000188470001000a0002000a0000010a4528002e00000000201186950a0000010a00000200090009001a0000be9be9550000000100000000000000000000",
    );
    assert_eq!(with_tag(&stack, 72, TAG_1), frame);
}

#[test]
fn pktgen_ipv6() {
    let ip = Ipv6 {
        class: 0xb8,
        hop_limit: 32,
        ..Ipv6::new(
            "2001:db8::1".parse().unwrap(),
            "2001:db8::2".parse().unwrap(),
        )
    };
    let frame = hex(
        "02000000000202000000000186dd6b800000001a112020010db800000000000000000000000120010db800000000000000000000000200090009001afc40be9be9550000000100000000000000000000",
    );
    assert_eq!(
        with_tag(
            &stack(NetworkHeader::Ipv6(
                ip,
                TransportHeader::Udp(Udp::new(9, 9))
            )),
            80,
            TAG_1
        ),
        frame
    );

    let ip = Ipv6 {
        class: 0,
        dst: "fd00::1".parse::<Ipv6Addr>().unwrap(),
        ..ip
    };
    let no_checksum = TransportHeader::Udp(Udp {
        sport: 9,
        dport: 9,
        checksum: false,
    });
    let frame = hex(
        "02000000000202000000000186dd600000000018112020010db8000000000000000000000001fd0000000000000000000000000000010009000900180000be9be955000000010000000000000000",
    );
    assert_eq!(
        with_tag(&stack(NetworkHeader::Ipv6(ip, no_checksum)), 78, TAG_1),
        frame
    );
}

#[test]
fn pktgen_smallest() {
    let frame = hex(
        "02000000000202000000000108004500002c00000000201186bf0a0000010a0000020009000900180000be9be955000000010000000000000000",
    );
    assert_eq!(with_tag(&pktgen4(A, B), 58, TAG_1), frame);
}

#[test]
fn pktgen_times() {
    let now = 1_700_000_000_123_456_000;
    let kernel = PktgenTag::at(1, now);
    let frame = hex(
        "02000000000202000000000108004500002e00000000201186bd0a0000010a00000200090009001a0000be9be955000000016553f1000001e2400000",
    );
    assert_eq!(with_tag(&pktgen4(A, B), 60, kernel), frame);
    assert_eq!(kernel.guess_time(now + 5), PktgenTime::Wall(now));

    let osta = hex(
        "02000000000202000000000108004500002e00000000201186bd0a0000010a00000200090009001a0000be9be9550000000100007048860ddf790000",
    );
    let tag = PktgenTag::read(&osta[42..]).unwrap();
    assert_eq!(
        tag.guess_time(now),
        PktgenTime::Monotonic(123_456_789_012_345)
    );
}

#[test]
fn a_udp_sum_of_zero_goes_out_as_ones() {
    let ip = Ipv4 {
        ttl: 32,
        id: 0x43b3,
        ..Ipv4::new(A, B)
    };
    let stack = stack(NetworkHeader::Ipv4(
        ip,
        TransportHeader::Udp(Udp::new(9, 9)),
    ));
    let tag = PktgenTag {
        sequence: 17332,
        ..TAG_1
    };
    let want = hex(
        "02000000000202000000000108004500002e43b300002011430a0a0000010a00000200090009001affffbe9be955000043b400000000000000000000",
    );
    assert_eq!(with_tag(&stack, 60, tag), want);
}

#[test]
fn rfc_2544_test_frame() {
    let frame_of = |size: usize, dst: [u8; 4]| {
        let ip = Ipv4 {
            ttl: 10,
            ..Ipv4::new([198, 18, 1, 2].into(), dst.into())
        };
        let udp = Udp {
            sport: 0xc020,
            dport: 7,
            checksum: false,
        };
        Stack {
            fill: Fill::Counting,
            ..stack(NetworkHeader::Ipv4(ip, TransportHeader::Udp(udp)))
        }
        .build(size - 4)
    };
    let want = hex("02 00 00 00 00 02 02 00 00 00 00 01 08 00
         45 00 00 2e 00 00 00 00 0a 11 22 96 c6 12 01 02 c6 13 01 02
         c0 20 00 07 00 1a 00 00
         00 01 02 03 04 05 06 07 08 09 0a 0b 0c 0d 0e 0f 10 11");
    assert_eq!(frame_of(64, [198, 19, 1, 2]), want);
    assert_eq!(frame_of(64, [198, 19, 65, 2])[24..26], [0xe2, 0x95]);
    for (size, total, udp) in [
        (64, 0x2e, 0x1a),
        (128, 0x6e, 0x5a),
        (256, 0xee, 0xda),
        (512, 0x1ee, 0x1da),
        (768, 0x2ee, 0x2da),
        (1024, 0x3ee, 0x3da),
        (1280, 0x4ee, 0x4da),
        (1518, 0x5dc, 0x5c8u16),
    ] {
        let frame = frame_of(size, [198, 19, 1, 2]);
        assert_eq!(frame.len(), size - 4);
        assert_eq!(frame[16..18], u16::to_be_bytes(total));
        assert_eq!(frame[38..40], udp.to_be_bytes());
        assert_eq!(frame[size - 5], (size - 47) as u8);
    }
}
