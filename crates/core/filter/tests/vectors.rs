//! Known programs with known verdicts, and laws that hold for any program.

use proptest::prelude::*;
use wb_filter::{Ancillary, Instruction, ParseError, Problem, Program, fuzz};

/// `src host 172.16.32.25` on Ethernet, as `tcpdump -ddd` prints it.
const SRC_HOST: &str = "10
40 0 0 12
21 0 2 2048
32 0 0 26
21 4 5 2886737945
21 1 0 2054
21 0 3 32821
32 0 0 28
21 0 1 2886737945
6 0 0 262144
6 0 0 0
";

/// UDP 10.77.0.1:9 -> 10.77.0.2:9 with 18 bytes of payload, 60 bytes.
fn udp() -> Vec<u8> {
    let mut frame = vec![
        2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, 0x45, 0, 0, 0x2e, 0, 0, 0, 0, 0x40, 0x11, 0x66,
        0x23, 10, 77, 0, 1, 10, 77, 0, 2, 0, 9, 0, 9, 0, 0x1a, 0, 0, 0x57, 0x42,
    ];
    frame.resize(60, 0);
    frame
}

fn verdict(program: &Program, frame: &[u8]) -> u32 {
    program.accepts(frame, frame.len() as u32, &Ancillary::default())
}

#[test]
fn by_source_address() {
    let program = Program::parse_decimal(SRC_HOST).unwrap();
    assert_eq!(program.instructions().len(), 10);
    assert_eq!(program.decimal(), SRC_HOST);

    let mut frame = udp();
    assert_eq!(verdict(&program, &frame), 0);
    frame[26..30].copy_from_slice(&[172, 16, 32, 25]);
    assert_eq!(verdict(&program, &frame), 262_144);
    assert_eq!(verdict(&program, &frame[..29]), 0, "the address is cut");

    for ethertype in [0x0806_u16, 0x8035] {
        let mut arp = udp();
        arp[12..14].copy_from_slice(&ethertype.to_be_bytes());
        assert_eq!(verdict(&program, &arp), 0);
        arp[28..32].copy_from_slice(&[172, 16, 32, 25]);
        assert_eq!(verdict(&program, &arp), 262_144);
    }
}

#[test]
fn the_listings_are_those_of_tcpdump() {
    let program = Program::parse_decimal(SRC_HOST).unwrap();
    let listing = program.listing();
    let lines: Vec<_> = listing.lines().collect();
    assert_eq!(lines[0], "(000) ldh      [12]");
    assert_eq!(lines[1], "(001) jeq      #0x800           jt 2\tjf 4");
    assert_eq!(lines[3], "(003) jeq      #0xac102019      jt 8\tjf 9");
    assert_eq!(lines[8], "(008) ret      #262144");
    let c = program.c_array();
    assert_eq!(c.lines().next(), Some("{ 0x28, 0, 0, 0x0000000c },"));
    assert_eq!(c.lines().nth(1), Some("{ 0x15, 0, 2, 0x00000800 },"));
}

#[test]
fn text_that_is_no_program_says_where() {
    let error = |text: &str| Program::parse_decimal(text).unwrap_err();
    assert_eq!(
        error("x").to_string(),
        "filter program, line 1: \"x\" is not a number of instructions"
    );
    assert_eq!(
        error("1\n6 0 0").to_string(),
        "filter program, line 2: \"6 0 0\" is not four numbers: code, jt, jf, k"
    );
    assert_eq!(
        error("2\n6 0 0 0"),
        ParseError::Count {
            announced: 2,
            present: 1
        }
    );
    assert!(
        matches!(error("0"), ParseError::Invalid(invalid) if invalid.problem == Problem::Empty)
    );
    assert!(matches!(error(""), ParseError::Line { line: 1, .. }));
    assert!(Program::parse_decimal("1,6 0 0 96").is_ok());
}

#[test]
fn lengths_are_limited() {
    let frame = udp();
    assert_eq!(verdict(&Program::accept_all(96), &frame), 96);
    assert_eq!(verdict(&Program::reject_all(), &frame), 0);
    let all = Program::accept_all(262_144);
    assert_eq!(verdict(&all.limited(96).unwrap(), &frame), 96);
    assert_eq!(
        verdict(&Program::accept_all(64).limited(96).unwrap(), &frame),
        64
    );
    assert_eq!(verdict(&all.limited(0).unwrap(), &frame), 0);
    assert_eq!(verdict(&Program::accept_all(64).keeping(96), &frame), 96);
    assert_eq!(verdict(&Program::reject_all().keeping(96), &frame), 0);

    // `ret A`, with A from the bytes at 14 (0x4500), 16 (0x2e) and 18 (0).
    let computed = |offset| {
        let list = vec![
            Instruction::new(0x28, 0, 0, offset),
            Instruction::new(0x16, 0, 0, 0),
        ];
        Program::new(list).unwrap().limited(96).unwrap()
    };
    assert_eq!(verdict(&computed(14), &frame), 96);
    assert_eq!(verdict(&computed(16), &frame), 0x2e);
    assert_eq!(verdict(&computed(18), &frame), 0);
}

/// Runs `list` with A and X set and returns A.
fn compute(a: u32, x: u32, code: u16, k: u32) -> u32 {
    let list = vec![
        Instruction::new(0x00, 0, 0, a),
        Instruction::new(0x01, 0, 0, x),
        Instruction::new(code, 0, 0, k),
        Instruction::new(0x16, 0, 0, 0),
    ];
    verdict(&Program::new(list).unwrap(), &[])
}

#[test]
fn arithmetic_wraps_and_does_not_divide_by_zero() {
    assert_eq!(compute(u32::MAX, 0, 0x04, 2), 1);
    assert_eq!(compute(0, 0, 0x14, 1), u32::MAX);
    assert_eq!(compute(0x8000_0001, 0, 0x24, 2), 2);
    assert_eq!(compute(7, 2, 0x3c, 0), 3);
    assert_eq!(compute(7, 0, 0x3c, 0), 0);
    assert_eq!(compute(7, 4, 0x9c, 0), 3);
    assert_eq!(compute(7, 0, 0x9c, 0), 0);
    assert_eq!(compute(0b1100, 0b1010, 0xac, 0), 0b0110);
    assert_eq!(compute(1, 0, 0x84, 0), u32::MAX);
    assert_eq!(compute(3, 31, 0x6c, 0), 0x8000_0000);
    assert_eq!(compute(3, 32, 0x6c, 0), 0);
    assert_eq!(compute(3, 33, 0x7c, 0), 0);
}

#[test]
fn loads_end_at_the_last_byte() {
    let packet = [1, 2, 3, 4, 5];
    let load = |code, k| {
        let list = vec![
            Instruction::new(0x01, 0, 0, 1),
            Instruction::new(code, 0, 0, k),
            Instruction::new(0x16, 0, 0, 0),
        ];
        verdict(&Program::new(list).unwrap(), &packet)
    };
    assert_eq!((load(0x20, 1), load(0x20, 2)), (0x0203_0405, 0));
    assert_eq!((load(0x28, 3), load(0x28, 4)), (0x0405, 0));
    assert_eq!((load(0x30, 4), load(0x30, 5)), (5, 0));
    assert_eq!((load(0x40, 0), load(0x40, 1)), (0x0203_0405, 0));
    assert_eq!((load(0x48, 2), load(0x48, 3)), (0x0405, 0));
    assert_eq!((load(0x50, 3), load(0x50, 4)), (5, 0));
    assert_eq!(load(0x50, u32::MAX), 0);
}

#[test]
fn what_the_kernel_knows_is_taken_from_beside() {
    let ask = |place: u32, ancillary: &Ancillary| {
        let list = vec![
            Instruction::new(0x20, 0, 0, 0xffff_f000 + place),
            Instruction::new(0x16, 0, 0, 0),
        ];
        Program::new(list).unwrap().accepts(&[], 0, ancillary)
    };
    let ancillary = Ancillary {
        vlan_present: true,
        vlan_tci: 0xa123,
        vlan_proto: 0x88a8,
        protocol: 0x0800,
        pkttype: 4,
        ifindex: 70_000,
        queue: 3,
        ..Ancillary::default()
    };
    let answers = [48, 44, 60, 0, 4, 8, 24].map(|place| ask(place, &ancillary));
    assert_eq!(answers, [1, 0xa123, 0x88a8, 0x0800, 4, 70_000, 3]);
    // Only the kernel has random numbers and payload offsets.
    assert_eq!((ask(56, &ancillary), ask(52, &ancillary)), (0, 0));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]
    #[test]
    fn any_bytes_are_borne(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        fuzz::exercise(&bytes);
    }
}

#[test]
fn random_programs_are_mostly_programs() {
    let mut seed = 1_u64;
    let mut random = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 33) as u8
    };
    let made = (0..1000)
        .filter(|_| {
            let seed: Vec<u8> = (0..80).map(|_| random()).collect();
            fuzz::program(&seed).is_some()
        })
        .count();
    assert!(made > 900, "{made} of 1000");
}
