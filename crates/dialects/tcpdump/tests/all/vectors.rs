//! Comparison of the printed lines with tcpdump 4.99.
//!
//! `tests/vectors/NAME.pcap` contains packets, `NAME.txt` tcpdump's lines for each set
//! of options. The test always compares the texts. If tcpdump is installed, it also runs tcpdump for these and
//! many generated packets. `WB_BLESS=1` rewrites the texts from tcpdump's output.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use wb_tcpdump::print::{
    CapturedPacket, DumpForm, LinkType, PacketPrinter, Precision, PrintOptions, TimeForm,
};

/// One packet: timestamp, original length, captured bytes.
type Record = (u64, u32, Vec<u8>);

/// Sets of options: as arguments of tcpdump, and as values of this crate.
fn option_sets() -> Vec<(&'static str, PrintOptions)> {
    let base = PrintOptions {
        time: TimeForm::None,
        ..PrintOptions::default()
    };
    let verbose = |verbose| PrintOptions { verbose, ..base };
    vec![
        ("", PrintOptions::default()),
        ("-t", base),
        (
            "-tt -e",
            PrintOptions {
                time: TimeForm::Unix,
                link_header: true,
                ..base
            },
        ),
        (
            "-t -e -q",
            PrintOptions {
                link_header: true,
                quiet: true,
                ..base
            },
        ),
        (
            "-t -q -#",
            PrintOptions {
                quiet: true,
                number: true,
                ..base
            },
        ),
        ("-t -v", verbose(1)),
        (
            "-t -v -e",
            PrintOptions {
                link_header: true,
                ..verbose(1)
            },
        ),
        ("-t -vv", verbose(2)),
        (
            "-t -vv -q",
            PrintOptions {
                quiet: true,
                ..verbose(2)
            },
        ),
        (
            "-t -vvv -e -S",
            PrintOptions {
                link_header: true,
                absolute_sequence: true,
                ..verbose(3)
            },
        ),
        (
            "-t -v -K",
            PrintOptions {
                unverified: true,
                ..verbose(1)
            },
        ),
        (
            "-t -S",
            PrintOptions {
                absolute_sequence: true,
                ..base
            },
        ),
        (
            "-t -x",
            PrintOptions {
                dump: DumpForm::Hex { link: false },
                ..base
            },
        ),
        (
            "-t -xx -e",
            PrintOptions {
                dump: DumpForm::Hex { link: true },
                link_header: true,
                ..base
            },
        ),
        (
            "-t -X",
            PrintOptions {
                dump: DumpForm::HexAndText { link: false },
                ..base
            },
        ),
        (
            "-t -XX -v",
            PrintOptions {
                dump: DumpForm::HexAndText { link: true },
                ..verbose(1)
            },
        ),
        (
            "-t -A",
            PrintOptions {
                dump: DumpForm::Text { link: false },
                ..base
            },
        ),
        (
            "-t -AA",
            PrintOptions {
                dump: DumpForm::Text { link: true },
                ..base
            },
        ),
        (
            "-ttt",
            PrintOptions {
                time: TimeForm::SincePrevious,
                ..base
            },
        ),
        (
            "-tttt --nano",
            PrintOptions {
                time: TimeForm::DateTime,
                precision: Precision::Nano,
                ..base
            },
        ),
        (
            "-ttttt -#",
            PrintOptions {
                time: TimeForm::SinceFirst,
                number: true,
                ..base
            },
        ),
    ]
}

fn vectors() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors")
}

/// Records of a little-endian pcap file in microseconds or nanoseconds.
fn read(file: &[u8]) -> (LinkType, Vec<Record>) {
    let word = |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().expect("four bytes"));
    let unit = if word(0) == 0xa1b2_3c4d { 1 } else { 1000 };
    let mut records = Vec::new();
    let mut at = 24;
    while at < file.len() {
        let stamp = u64::from(word(at)) * 1_000_000_000 + u64::from(word(at + 4)) * unit;
        let end = at + 16 + word(at + 8) as usize;
        records.push((stamp, word(at + 12), file[at + 16..end].to_vec()));
        at = end;
    }
    (
        LinkType::from_number(word(20) as u16).expect("a link type of ours"),
        records,
    )
}

/// A little-endian pcap file in nanoseconds.
fn capture(link: u16, records: &[Record]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut put = |words: &[u32]| out.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    put(&[0xa1b2_3c4d, 0x0004_0002, 0, 0, 262_144, u32::from(link)]);
    for (stamp, len, bytes) in records {
        let (seconds, ns) = (stamp / 1_000_000_000, stamp % 1_000_000_000);
        let head = [seconds as u32, ns as u32, bytes.len() as u32, *len];
        out.extend(head.iter().flat_map(|word| word.to_le_bytes()));
        out.extend(bytes);
    }
    out
}

fn ours(link: LinkType, records: &[Record], options: PrintOptions) -> String {
    let mut printer = PacketPrinter::new(options);
    let mut out = String::new();
    for (stamp_ns, original_len, bytes) in records {
        let packet = CapturedPacket {
            stamp_ns: *stamp_ns,
            interface: None,
            direction: None,
            original_len: *original_len,
            bytes,
            link,
        };
        printer.line(&mut out, &packet);
    }
    out
}

fn tcpdump_is_there() -> bool {
    let version = Command::new("tcpdump").arg("--version").output();
    let there = version.is_ok_and(|out| {
        String::from_utf8_lossy(&[out.stdout, out.stderr].concat()).contains("version 4.99")
    });
    if !there {
        wb_testing::skipped("no tcpdump 4.99 here to ask");
    }
    there
}

fn theirs(file: &Path, arguments: &str) -> String {
    let out = Command::new("tcpdump")
        .env("TZ", "UTC")
        .args(["-n", "-r"])
        .arg(file)
        .args(arguments.split_whitespace())
        .output()
        .expect("tcpdump runs");
    // An unprivileged user may lack permission; then only the reason is printed.
    assert!(
        out.status.success(),
        "{}",
        String::from_utf8_lossy(&out.stderr)
    );
    String::from_utf8(out.stdout).expect("tcpdump prints ASCII")
}

/// First lines that differ, with the preceding lines.
fn difference(expected: &str, got: &str) -> String {
    let expected: Vec<_> = expected.lines().collect();
    let got: Vec<_> = got.lines().collect();
    let (mut out, mut e, mut g, mut shown) = (String::new(), 0, 0, 0);
    while (e < expected.len() || g < got.len()) && shown < 10 {
        if expected.get(e) == got.get(g) {
            (e, g) = (e + 1, g + 1);
            continue;
        }
        // Continue where both agree again for two lines.
        let agree = |e: usize, g: usize| {
            expected.get(e).is_some_and(|line| got.get(g) == Some(line))
                && expected.get(e + 1) == got.get(g + 1)
        };
        let (skip_e, skip_g) = (1..40)
            .find_map(|n| {
                (0..=n)
                    .map(|m| (m, n - m))
                    .find(|&(m, k)| agree(e + m, g + k))
            })
            .unwrap_or((expected.len() - e, got.len() - g));
        for line in expected.iter().skip(e).take(skip_e.min(6)) {
            let _ = writeln!(out, "  tcpdump {line:?}");
        }
        for line in got.iter().skip(g).take(skip_g.min(6)) {
            let _ = writeln!(out, "  we      {line:?}");
        }
        let _ = writeln!(out);
        (e, g, shown) = (e + skip_e, g + skip_g, shown + 1);
    }
    out
}

fn texts(file: &str) -> Vec<(String, String)> {
    file.split("\n===== ")
        .flat_map(|part| part.strip_prefix("===== ").unwrap_or(part).split_once('\n'))
        .map(|(arguments, text)| (arguments.to_string(), format!("{text}\n")))
        .collect()
}

fn check(name: &str) {
    check_sets(name, &option_sets());
}

/// Compares the lines of a vector for these sets of options.
fn check_sets(name: &str, sets: &[(&str, PrintOptions)]) {
    let path = vectors().join(format!("{name}.pcap"));
    let (link, records) = read(&std::fs::read(&path).expect("the packets"));
    let kept = vectors().join(format!("{name}.txt"));
    let asked: Vec<_> = if tcpdump_is_there() {
        sets.iter()
            .map(|(args, _)| (args.to_string(), theirs(&path, args)))
            .collect()
    } else {
        Vec::new()
    };
    if std::env::var_os("WB_BLESS").is_some() && !asked.is_empty() {
        let text: String = asked
            .iter()
            .map(|(args, text)| format!("===== {args}\n{text}"))
            .collect();
        std::fs::write(&kept, text).expect("write the texts");
    }
    let kept = texts(&std::fs::read_to_string(kept).expect("the texts"));
    let mut wrong = String::new();
    assert_eq!(kept.len(), sets.len());
    for ((arguments, options), (kept_arguments, kept_text)) in sets.iter().zip(&kept) {
        assert_eq!(arguments, kept_arguments);
        let got = ours(link, &records, *options);
        if got.trim_end() != kept_text.trim_end() {
            let _ = writeln!(
                wrong,
                "{name} [{arguments}]\n{}",
                difference(kept_text, &got)
            );
        }
    }
    for ((arguments, text), (_, kept_text)) in asked.iter().zip(&kept) {
        if text.trim_end() != kept_text.trim_end() {
            let _ = writeln!(
                wrong,
                "{name} [{arguments}] kept and asked:\n{}",
                difference(text, kept_text)
            );
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn links() {
    check("links");
}

#[test]
fn ipv4() {
    check("ipv4");
}

#[test]
fn ipv6() {
    check("ipv6");
}

#[test]
fn ipv6_options() {
    check("ipv6_options");
}

#[test]
fn fragments() {
    check("fragments");
}

/// Messages whose details are not printed are the same as in tcpdump without `-v`.
#[test]
fn brief_messages() {
    let sets = option_sets().into_iter();
    let sets: Vec<_> = sets.filter(|(_, options)| options.verbose == 0).collect();
    check_sets("brief", &sets);
}

#[test]
fn raw() {
    check("raw");
}

#[test]
fn cooked() {
    check("cooked");
}

/// Every packet of the vectors, cut at many places, prints the same as in tcpdump.
#[test]
fn cut_packets() {
    if !tcpdump_is_there() {
        return;
    }
    let dir = tempfile::tempdir().expect("a folder");
    let mut wrong = String::new();
    for name in ["links", "ipv4", "ipv6", "ipv6_options", "raw", "cooked"] {
        let file = std::fs::read(vectors().join(format!("{name}.pcap"))).expect("the packets");
        let number = u16::from_le_bytes([file[20], file[21]]);
        let (link, records) = read(&file);
        let cut: Vec<Record> = records
            .iter()
            .flat_map(|(stamp, len, bytes)| {
                // For cut IPv4 options, tcpdump's -v output is different.
                let options = if name == "ipv4" && bytes.len() > 14 && bytes[12..14] == [8, 0] {
                    34..14 + usize::from(bytes[14] & 0xf) * 4
                } else {
                    0..0
                };
                (1..bytes.len())
                    .filter(move |at| !options.contains(at))
                    .map(move |at| (*stamp, *len, bytes[..at].to_vec()))
            })
            .collect();
        let path = dir.path().join(name);
        std::fs::write(&path, capture(number, &cut)).expect("write the packets");
        for (arguments, options) in option_sets().into_iter().filter(|(args, _)| {
            matches!(
                *args,
                "-t" | "-t -v" | "-t -vv" | "-tt -e" | "-t -vvv -e -S"
            )
        }) {
            let (expected, got) = (theirs(&path, arguments), ours(link, &cut, options));
            if expected != got {
                let _ = writeln!(
                    wrong,
                    "{name} [{arguments}]\n{}",
                    difference(&expected, &got)
                );
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

/// Frames built by wirebench and by another library, in many sizes.
#[test]
fn built_frames() {
    use etherparse::PacketBuilder;
    use wb_wire::{Stack, Vlan};

    if !tcpdump_is_there() {
        return;
    }
    let mut frames: Vec<Vec<u8>> = Vec::new();
    for n in 0..60u16 {
        let (sport, dport) = (20_000 + n % 7, 20_100 + n % 3);
        let payload = vec![n as u8; usize::from(n * 13 % 97)];
        let len = 60 + usize::from(n) * 7;
        let mut v4 = Stack::udp4([198, 18, 0, n as u8], [198, 19, 0, 1], sport, dport);
        frames.push(v4.build(len));
        v4.vlans = Vlan::stack(&[n, 4095 - n][..usize::from(n % 3)]);
        frames.push(v4.build(len + 8));
        let (from, to) = (
            [0x20, 1, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1],
            [0xfd; 16],
        );
        frames.push(Stack::udp6(from, to, sport, dport).build(len + 20));
        let mut put = |build: &dyn Fn(&mut Vec<u8>)| {
            let mut frame = Vec::new();
            build(&mut frame);
            frames.push(frame);
        };
        let sequence = u32::from(n).wrapping_mul(0x0765_4321);
        put(&|frame| {
            PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2])
                .ipv4(
                    [10, 0, 0, 1 + (n % 2) as u8],
                    [10, 0, 0, 2 - (n % 2) as u8],
                    64,
                )
                .tcp(sport, sport, sequence, 1000 + n)
                .ack(sequence ^ 0xffff)
                .psh()
                .write(frame, &payload)
                .expect("a frame");
        });
        put(&|frame| {
            PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2])
                .ipv6(from, to, n as u8)
                .tcp(dport, sport, sequence, n)
                .syn()
                .write(frame, &payload)
                .expect("a frame");
        });
        put(&|frame| {
            PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2])
                .ipv4([10, 0, 0, 1], [10, 0, 0, 2], n as u8)
                .icmpv4_echo_request(n, n / 2)
                .write(frame, &payload)
                .expect("a frame");
        });
        put(&|frame| {
            PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2])
                .ipv6(from, to, 255)
                .icmpv6_echo_reply(n, 7)
                .write(frame, &payload)
                .expect("a frame");
        });
    }
    let records: Vec<Record> = frames
        .into_iter()
        .zip(1u64..)
        .map(|(frame, n)| (n * 1_234_567_891, frame.len() as u32, frame))
        .collect();
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("built.pcap");
    std::fs::write(&path, capture(1, &records)).expect("write the packets");
    for (arguments, options) in option_sets() {
        let expected = theirs(&path, arguments);
        let got = ours(LinkType::Ethernet, &records, options);
        assert!(
            expected == got,
            "[{arguments}]\n{}",
            difference(&expected, &got)
        );
    }
}

/// Line of a frame as it appears in the documentation.
#[test]
fn documented_line() {
    let (link, records) = read(&std::fs::read(vectors().join("links.pcap")).expect("the packets"));
    let options = PrintOptions {
        time: TimeForm::Unix,
        link_header: true,
        ..PrintOptions::default()
    };
    assert_eq!(
        ours(link, &records[..1], options),
        "1700000000.123456 02:00:00:00:00:01 > 02:00:00:00:00:02, ethertype IPv4 (0x0800), \
         length 60: 10.77.0.1.9 > 10.77.0.2.9: UDP, length 18\n"
    );
}
