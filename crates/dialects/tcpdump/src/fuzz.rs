//! Entry point for fuzzers: arbitrary bytes for the printer.

use crate::print::{
    CapturedPacket, DumpForm, LinkType, PacketDirection, PacketPrinter, Precision, PrintOptions,
    TimeForm,
};

/// Sets of options that together cover every branch.
pub(crate) fn option_sets() -> impl Iterator<Item = PrintOptions> {
    (0..24u8).map(|n| PrintOptions {
        time: [
            TimeForm::TimeOfDay,
            TimeForm::None,
            TimeForm::Unix,
            TimeForm::SincePrevious,
            TimeForm::DateTime,
            TimeForm::SinceFirst,
        ][usize::from(n % 6)],
        precision: if n % 5 == 0 {
            Precision::Nano
        } else {
            Precision::Micro
        },
        link_header: n % 2 == 0,
        quiet: n % 7 == 3,
        verbose: n / 2 % 4,
        dump: match n / 3 % 4 {
            0 => DumpForm::None,
            1 => DumpForm::Hex { link: n % 2 == 0 },
            2 => DumpForm::HexAndText { link: n % 2 == 1 },
            _ => DumpForm::Text { link: n % 2 == 0 },
        },
        number: n % 3 == 0,
        absolute_sequence: n % 4 == 1,
        unverified: n % 5 == 4,
    })
}

/// Prints the packets in `bytes` with many sets of options. Two bytes precede each packet: the
/// first chooses the link type and the length of the cut, the second is the length of the packet.
///
/// # Panics
/// If a line has no line end, which is the defect to find.
pub fn exercise(bytes: &[u8]) {
    for options in option_sets() {
        let mut printer = PacketPrinter::new(options).in_zone(|ns| (ns % 100_000) as i32 - 50_000);
        let mut rest = bytes;
        while let [choice, len, tail @ ..] = rest {
            let (bytes, next) = tail.split_at(tail.len().min(usize::from(*len)));
            rest = next;
            let links = [
                LinkType::Ethernet,
                LinkType::RawIp,
                LinkType::Sll,
                LinkType::Sll2,
            ];
            let packet = CapturedPacket {
                stamp_ns: u64::from(*choice) << (*len % 56),
                interface: (choice & 4 != 0).then_some("eth0"),
                direction: (choice & 8 != 0).then_some(PacketDirection::Out),
                original_len: bytes.len() as u32 + u32::from(choice >> 4) * 97,
                bytes,
                link: links[usize::from(choice % 4)],
            };
            let mut out = String::new();
            printer.line(&mut out, &packet);
            assert!(out.ends_with('\n'));
        }
    }
}
