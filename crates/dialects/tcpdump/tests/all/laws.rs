//! Properties that hold for all packets and options.

use proptest::prelude::*;
use wb_tcpdump::print::{CapturedPacket, LinkType, PacketPrinter, PrintOptions, TimeForm};
use wb_wire::Stack;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// The printer does not panic for any bytes and options.
    #[test]
    fn any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        wb_tcpdump::fuzz::exercise(&bytes);
    }

    /// The printer does not panic for almost valid frames, which reach deeper code than random bytes.
    #[test]
    fn nearly_right_frames(
        which in 0..5usize,
        cut in 0..200usize,
        changes in proptest::collection::vec((0..200usize, any::<u8>()), 0..6),
        choice in any::<u8>(),
    ) {
        let kinds = ["links", "ipv4", "ipv6", "raw", "cooked"];
        let file = std::fs::read(
            std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
                .join(format!("tests/vectors/{}.pcap", kinds[which])),
        ).unwrap();
        let mut fuzzed = Vec::new();
        let mut at = 24;
        while at < file.len() {
            let len = u32::from_le_bytes(file[at + 8..at + 12].try_into().unwrap()) as usize;
            let mut bytes = file[at + 16..at + 16 + len].to_vec();
            for &(place, value) in &changes {
                if let Some(byte) = bytes.get_mut(place) {
                    *byte = value;
                }
            }
            bytes.truncate(255.min(len.saturating_sub(cut % (len + 1)).max(1)));
            let link = [0, 0, 0, 1, 2][which];
            fuzzed.extend([choice & !3 | link, bytes.len() as u8]);
            fuzzed.extend(&bytes);
            at += 16 + len;
        }
        wb_tcpdump::fuzz::exercise(&fuzzed);
    }
}

fn line(bytes: &[u8], options: PrintOptions) -> String {
    let mut out = String::new();
    PacketPrinter::new(options).line(&mut out, &CapturedPacket::new(0, bytes, LinkType::Ethernet));
    out
}

/// Without `-v` and dumps there is one line of limited length.
#[test]
fn deep_nesting_ends() {
    let mut frame = vec![0; 14];
    frame[12..14].copy_from_slice(&[0x86, 0xdd]);
    for left in (0..600u16).rev() {
        let mut header = [0; 40];
        header[0] = 0x60;
        header[4..6].copy_from_slice(&(left * 40).to_be_bytes());
        header[6] = 41;
        frame.extend(header);
    }
    let text = line(
        &frame,
        PrintOptions {
            time: TimeForm::None,
            ..PrintOptions::default()
        },
    );
    assert!(text.ends_with("[nested deeper than 32]\n"), "{text}");
}

/// Ports with payloads that tcpdump dissects are printed like other ports.
#[test]
fn known_ports_are_generic() {
    let frame = Stack::udp4([10, 0, 0, 1], [10, 0, 0, 2], 53, 53).build(60);
    let text = line(
        &frame,
        PrintOptions {
            time: TimeForm::None,
            ..PrintOptions::default()
        },
    );
    assert_eq!(text, "IP 10.0.0.1.53 > 10.0.0.2.53: UDP, length 18\n");
}

/// Interface and direction come first, in columns, as in tcpdump with `-i any`.
#[test]
fn interfaces_in_columns() {
    let frame = Stack::udp4([10, 0, 0, 1], [10, 0, 0, 2], 9, 9).build(60);
    let packet = CapturedPacket {
        interface: Some("lo"),
        direction: Some(wb_tcpdump::print::PacketDirection::Out),
        ..CapturedPacket::new(0, &frame, LinkType::Ethernet)
    };
    let mut text = String::new();
    let options = PrintOptions {
        time: TimeForm::None,
        ..PrintOptions::default()
    };
    PacketPrinter::new(options).line(&mut text, &packet);
    assert_eq!(
        text,
        "lo    Out IP 10.0.0.1.9 > 10.0.0.2.9: UDP, length 18\n"
    );
}

fn bytes_of(hex: &str) -> Vec<u8> {
    let pairs = hex.as_bytes().chunks(2);
    let byte = |pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    pairs.map(byte).collect()
}

/// Protocols that are only named, and frames whose content is printed as bytes.
#[test]
fn shortened_lines() {
    const ETHERNET: &str = "020000000002020000000001";
    let plain = PrintOptions {
        time: TimeForm::None,
        ..PrintOptions::default()
    };
    let verbose = PrintOptions {
        verbose: 2,
        ..plain
    };
    let with_link = PrintOptions {
        link_header: true,
        ..plain
    };
    let v4 = |protocol: &str, payload: &str| {
        let total = 20 + payload.len() / 2;
        format!("08004500{total:04x}0001000040{protocol}00000a4d00010a4d0002{payload}")
    };
    let v6 = |next: &str, payload: &str| {
        let (len, address) = (payload.len() / 2, "20010db80000000000000000000000");
        format!("86dd60000000{len:04x}{next}ff{address}01{address}02{payload}")
    };
    let spanning_tree = "0026424203000000000000";
    let mac = "02:00:00:00:00:01 > 02:00:00:00:00:02";
    for (frame, options, expected) in [
        (spanning_tree.to_owned(), plain, "STP, length 6".to_owned()),
        (
            spanning_tree.to_owned(),
            verbose,
            "STP, length 6".to_owned(),
        ),
        (
            format!("81000005{spanning_tree}"),
            with_link,
            format!(
                "{mac}, ethertype 802.1Q (0x8100), length 27: vlan 5, p 0, 802.3, length 9: STP, length 6"
            ),
        ),
        (
            "0004f0f003ff".to_owned(),
            plain,
            format!(
                "{mac}, 802.3, length 4: \n\t0x0000:  f0f0 03ff                                ...."
            ),
        ),
        (
            v4("33", "1104000000000001000000026161616161616161616161"),
            plain,
            "IP 10.77.0.1 > 10.77.0.2:  ip-proto-51 23".to_owned(),
        ),
        (
            v4("2f", "3081880b0000000700000009"),
            plain,
            "IP 10.77.0.1 > 10.77.0.2: GREv1, length 12".to_owned(),
        ),
        (
            v4("2f", "400008000000000045000014"),
            plain,
            "IP 10.77.0.1 > 10.77.0.2: GREv0, off 0x0, length 12: gre-proto-0x800".to_owned(),
        ),
        (
            v4("02", "11c80000e00000050a7d00010a000001"),
            plain,
            "IP 10.77.0.1 > 10.77.0.2: igmp query v3 [gaddr 224.0.0.5]".to_owned(),
        ),
        (
            v6("3a", "82001e5003e80000000000000000000000000000000000000"),
            plain,
            "IP6 2001:db8::1 > 2001:db8::2: ICMP6, multicast listener query, length 24".to_owned(),
        ),
    ] {
        let text = line(&bytes_of(&format!("{ETHERNET}{frame}")), options);
        assert_eq!(text, format!("{expected}\n"), "{frame}");
    }
}

/// LLDP gives one line.
#[test]
fn lldp() {
    let mut frame = vec![2; 34];
    frame[12..14].copy_from_slice(&[0x88, 0xcc]);
    let options = PrintOptions {
        time: TimeForm::None,
        ..PrintOptions::default()
    };
    assert_eq!(line(&frame, options), "LLDP, length 20\n");
}

/// A reset that is cut off in its header, found by a fuzzer.
#[test]
fn a_reset_without_its_text_is_printed() {
    const FOUND: &str = "2169690000696947066969696969696969696969696969696969696969696969690000\
        000000000113690e0000000000000069696901f9e700c878d6030000001a00ff";
    let byte = |at: usize| u8::from_str_radix(&FOUND[at..at + 2], 16).unwrap();
    let bytes: Vec<u8> = (0..FOUND.len()).step_by(2).map(byte).collect();
    wb_tcpdump::fuzz::exercise(&bytes);
}
