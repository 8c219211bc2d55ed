//! Files with unusual headers, times, sections and ends: one line each.

use wb_pcapng::{CaptureReader, FormatProblem};

/// Time of the first frame, in s.
const T: u64 = 1_700_000_000;
/// Time of the first frame, in ns.
const T_NS: u64 = T * 1_000_000_000;

/// Builds a frame of `len` bytes.
fn frame(len: usize) -> Vec<u8> {
    (0..len).map(|at| at as u8).collect()
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// Builds a pcap file in microseconds with this snap length.
fn pcap(snap: u32, records: &[Vec<u8>]) -> Vec<u8> {
    let header = words(&[0xa1b2_c3d4, 0x0004_0002, 0, 0, snap, 1]);
    [header, records.concat()].concat()
}

/// Builds a record of `held` bytes of a frame of `len` bytes.
fn record(s: u32, us: u32, held: usize, len: u32) -> Vec<u8> {
    [words(&[s, us, held as u32, len]), frame(held)].concat()
}

fn block(kind: u32, body: &[u8]) -> Vec<u8> {
    let len = 12 + body.len() as u32;
    [&words(&[kind, len]), body, &words(&[len])].concat()
}

fn padded(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// Builds a section of version 1.`minor` that is `len` bytes long; -1 means unknown.
fn section(minor: u32, len: i64) -> Vec<u8> {
    let head = words(&[0x1a2b_3c4d, minor << 16 | 1]);
    block(0x0a0d_0d0a, &[head, len.to_le_bytes().to_vec()].concat())
}

/// Builds an interface with these options.
fn interface(link: u32, snap: u32, options: &[(u16, &[u8])]) -> Vec<u8> {
    let mut body = words(&[link, snap]);
    for (code, value) in options {
        body.extend(code.to_le_bytes());
        body.extend((value.len() as u16).to_le_bytes());
        body.extend(padded(value));
    }
    body.extend(words(&[0]));
    block(1, &body)
}

fn ethernet() -> Vec<u8> {
    interface(1, 262_144, &[])
}

/// Builds a packet of `held` bytes of a frame of `len` bytes.
fn packet(interface: u32, ticks: u64, held: usize, len: u32) -> Vec<u8> {
    let (high, low) = ((ticks >> 32) as u32, ticks as u32);
    let head = words(&[interface, high, low, held as u32, len]);
    block(6, &[head, padded(&frame(held))].concat())
}

/// Builds a section in big-endian byte order with a packet of 4 bytes.
fn big_endian(us: u64) -> Vec<u8> {
    let block = |kind: u32, body: &[u32]| {
        let len = 12 + 4 * body.len() as u32;
        let all = [&[kind, len], body, &[len]].concat();
        all.iter()
            .flat_map(|w| w.to_be_bytes())
            .collect::<Vec<u8>>()
    };
    let unknown = u32::MAX;
    [
        block(0x0a0d_0d0a, &[0x1a2b_3c4d, 0x0001_0000, unknown, unknown]),
        block(1, &[1 << 16, 262_144]),
        block(6, &[0, (us >> 32) as u32, us as u32, 4, 4, 0x0001_0203]),
    ]
    .concat()
}

/// Builds an old packet block. The number of drops before it is 65535 if unknown.
fn old_packet(us: u64, held: usize, drops: u32) -> Vec<u8> {
    let (high, low) = ((us >> 32) as u32, us as u32);
    let head = words(&[drops << 16, high, low, held as u32, held as u32]);
    block(2, &[head, padded(&frame(held))].concat())
}

fn simple_packet(held: usize, len: u32) -> Vec<u8> {
    block(3, &[words(&[len]), padded(&frame(held))].concat())
}

/// Frames as (time in ns, bytes held, length).
type Frames = Vec<(u64, usize, u32)>;

/// Offset and kind of the first damage.
type Damage = Option<(u64, FormatProblem)>;

/// Reads the frames of a file up to its end or its first damage.
fn read(file: &[u8]) -> (Frames, Damage) {
    let mut frames = Frames::new();
    let reader = match CaptureReader::new(file) {
        Ok(reader) => reader,
        Err(error) => return (frames, Some((error.offset, error.problem))),
    };
    for record in reader {
        match record {
            Ok(r) => {
                assert_eq!(r.captured, frame(r.captured.len()));
                frames.push((r.stamp_ns, r.captured.len(), r.original_len));
            }
            Err(error) => return (frames, Some((error.offset, error.problem))),
        }
    }
    (frames, None)
}

#[test]
fn whole_files_are_read_to_their_end() {
    let s = T as u32;
    let us = T * 1_000_000;
    let pcapng = |blocks: &[Vec<u8>]| [section(0, -1), blocks.concat()].concat();
    // Two frames a quarter of a second apart, the first an eighth after the full second, in units of 2^-bits s.
    let binary = |bits: u32| {
        let first = (T << bits) + (1 << bits) / 8;
        let unit = [0x80 | bits as u8];
        pcapng(&[
            interface(1, u32::MAX, &[(9, &unit)]),
            packet(0, first, 60, 60),
            packet(0, first + (1 << bits) / 4, 61, 61),
        ])
    };
    let decimal = |digits: u32| {
        let unit = 10_u64.pow(digits);
        let first = T * unit + unit / 8;
        pcapng(&[
            interface(1, 262_144, &[(9, &[digits as u8])]),
            packet(0, first, 60, 60),
            packet(0, first + unit / 4, 61, 61),
        ])
    };
    let eighths = vec![(T_NS + 125_000_000, 60, 60), (T_NS + 375_000_000, 61, 61)];
    let two = vec![(T_NS, 60, 60), (T_NS + 1000, 61, 61)];
    let two_packets = || [packet(0, us, 60, 60), packet(0, us + 1, 61, 61)].concat();
    let one_section = || [ethernet(), packet(0, us, 60, 60)].concat();
    let last_second = u64::from(u32::MAX) * 1_000_000_000;
    let many: Vec<(&str, Vec<u8>, Frames)> = vec![
        // The snap length of the file is a hint.
        (
            "no snap length",
            pcap(0, &[record(s, 0, 60, 60)]),
            vec![(T_NS, 60, 60)],
        ),
        (
            "largest snap length",
            pcap(u32::MAX, &[record(s, 0, 60, 60)]),
            vec![(T_NS, 60, 60)],
        ),
        (
            "frames above the snap length",
            pcap(40, &[record(s, 0, 60, 60)]),
            vec![(T_NS, 60, 60)],
        ),
        (
            "a frame of segments",
            pcap(
                65_535,
                &[record(s, 0, 69_034, 69_034), record(s, 1, 60, 60)],
            ),
            vec![(T_NS, 69_034, 69_034), (T_NS + 1000, 60, 60)],
        ),
        // Contradictory lengths are passed on.
        (
            "held more than there was",
            pcap(262_144, &[record(s, 0, 62, 10), record(s, 1, 61, 61)]),
            vec![(T_NS, 62, 10), (T_NS + 1000, 61, 61)],
        ),
        (
            "lengths of zero",
            pcap(
                262_144,
                &[
                    record(s, 0, 62, 0),
                    record(s, 0, 0, 0),
                    record(s, 0, 0, 100),
                ],
            ),
            vec![(T_NS, 62, 0), (T_NS, 0, 0), (T_NS, 0, 100)],
        ),
        (
            "held 48 bytes of 1",
            pcapng(&[ethernet(), packet(0, us, 48, 1), packet(0, us + 1, 61, 61)]),
            vec![(T_NS, 48, 1), (T_NS + 1000, 61, 61)],
        ),
        // Times.
        ("2^-20 s", binary(20), eighths.clone()),
        ("2^-24 s", binary(24), eighths.clone()),
        ("2^-30 s", binary(30), eighths.clone()),
        ("2^-32 s", binary(32), eighths.clone()),
        ("1 s", decimal(0), vec![(T_NS, 60, 60), (T_NS, 61, 61)]),
        ("10^-3 s", decimal(3), eighths.clone()),
        ("10^-6 s", decimal(6), eighths.clone()),
        ("10^-9 s", decimal(9), eighths.clone()),
        ("10^-10 s", decimal(10), eighths),
        (
            "an hour behind",
            pcapng(&[
                interface(1, 262_144, &[(9, &[6]), (14, &(-3600_i64).to_le_bytes())]),
                packet(0, us, 60, 60),
            ]),
            vec![(T_NS - 3_600_000_000_000, 60, 60)],
        ),
        (
            "seconds are not negative",
            pcap(262_144, &[record(u32::MAX, 0, 60, 60)]),
            vec![(last_second, 60, 60)],
        ),
        (
            "more than a second of microseconds",
            pcap(262_144, &[record(s, 999_999_999, 60, 60)]),
            vec![(T_NS + 999_999_999_000, 60, 60)],
        ),
        // Interfaces and sections.
        (
            "two snap lengths",
            pcapng(&[
                interface(1, u32::MAX, &[]),
                ethernet(),
                packet(0, us, 60, 60),
                packet(1, us + 1, 61, 61),
            ]),
            two.clone(),
        ),
        (
            "two link types",
            pcapng(&[
                ethernet(),
                interface(101, 262_144, &[]),
                packet(0, us, 60, 60),
                packet(1, us + 1, 61, 61),
            ]),
            two.clone(),
        ),
        (
            "an interface behind packets",
            pcapng(&[
                one_section(),
                interface(113, 262_144, &[]),
                packet(1, us + 1, 61, 61),
            ]),
            two.clone(),
        ),
        (
            "sections of both byte orders",
            [pcapng(&[one_section()]), big_endian(us + 1)].concat(),
            vec![(T_NS, 60, 60), (T_NS + 1000, 4, 4)],
        ),
        (
            "a section with its length",
            [
                section(0, one_section().len() as i64),
                one_section(),
                pcapng(&[one_section()]),
            ]
            .concat(),
            vec![(T_NS, 60, 60), (T_NS, 60, 60)],
        ),
        (
            "minor version 2",
            [section(2, -1), ethernet(), two_packets()].concat(),
            two.clone(),
        ),
        ("a section and nothing in it", section(0, -1), vec![]),
        // Blocks.
        (
            "unknown blocks",
            pcapng(&[
                ethernet(),
                block(0x8000_0001, b"abcdefgh"),
                packet(0, us, 60, 60),
                block(10, b"\x54\x4c\x53\x4b\x04\0\0\0abcd"),
                block(9, b"jrnl"),
                block(4, &[0; 4]),
                packet(0, us + 1, 61, 61),
            ]),
            two.clone(),
        ),
        (
            "simple packets",
            pcapng(&[
                interface(1, 60, &[]),
                simple_packet(60, 100),
                simple_packet(60, 110),
            ]),
            vec![(0, 60, 100), (0, 60, 110)],
        ),
        (
            "old packets",
            pcapng(&[
                ethernet(),
                old_packet(us, 60, 0xffff),
                old_packet(us + 1, 61, 3),
            ]),
            two.clone(),
        ),
        (
            "statistics of an unknown interface",
            pcapng(&[
                ethernet(),
                packet(0, us, 60, 60),
                block(5, &words(&[9, (us >> 32) as u32, us as u32])),
                packet(0, us + 1, 61, 61),
            ]),
            two,
        ),
    ];
    for (name, file, frames) in many {
        assert_eq!(read(&file), (frames, None), "{name}");
    }
}

#[test]
fn damaged_files_are_read_to_the_damage() {
    let s = T as u32;
    let us = T * 1_000_000;
    let start = || [section(0, -1), ethernet()].concat();
    let (header, block_len) = (start().len() as u64, packet(0, us, 60, 60).len() as u64);
    let whole = || pcap(262_144, &[record(s, 0, 60, 60)]);
    let then = |bytes: &[u8]| [&whole(), bytes].concat();
    let unequal_ends = {
        let mut block = packet(0, us, 60, 60);
        let end = block.len() - 4;
        block[end..].fill(0);
        block
    };
    let unpadded = {
        let len = 12 + 20 + 61;
        let head = words(&[6, len, 0, (us >> 32) as u32, us as u32, 61, 61]);
        [head, frame(61), words(&[len])].concat()
    };
    let version_2 = block(0x0a0d_0d0a, &words(&[0x1a2b_3c4d, 2, u32::MAX, u32::MAX]));
    let too_large = |len| FormatProblem::TooLarge { len, most: 262_144 };
    let wrong_length = |kind, len| FormatProblem::BlockLength { kind, len };
    let unknown = |id, known| FormatProblem::UnknownInterface { id, known };
    let at = |offset: u64, problem| Some((offset, problem));
    let (one, second) = (vec![(T_NS, 60, 60)], 24 + 16 + 60);
    let many: Vec<(&str, Vec<u8>, Frames, Damage)> = vec![
        (
            "text",
            b"this is not a capture file\n".to_vec(),
            vec![],
            at(0, FormatProblem::UnknownFormat(b"this".to_vec())),
        ),
        (
            "a page",
            b"<html><body>404</body></html>\n".to_vec(),
            vec![],
            at(0, FormatProblem::UnknownFormat(b"<htm".to_vec())),
        ),
        ("a header alone", pcap(262_144, &[]), vec![], None),
        (
            "garbage behind a record",
            then(&[0xaa; 200]),
            one.clone(),
            at(second, too_large(0xaaaa_aaaa)),
        ),
        (
            "a negative length",
            pcap(262_144, &[words(&[1, 2, 0xffff_ff00, 100]), frame(100)]),
            vec![],
            at(24, too_large(0xffff_ff00)),
        ),
        // The magic number and the version are read as a time, and the words behind them as lengths of zero.
        (
            "a file behind a file",
            then(&whole()),
            vec![
                one[0],
                (0xa1b2_c3d4 * 1_000_000_000 + 0x0004_0002 * 1000, 0, 0),
            ],
            at(second + 16, too_large(s)),
        ),
        (
            "a packet of an unknown interface",
            [start(), packet(0, us, 60, 60), packet(82, us, 60, 60)].concat(),
            one.clone(),
            at(header + block_len, unknown(82, 1)),
        ),
        (
            "a packet before any interface",
            [section(0, -1), simple_packet(60, 60)].concat(),
            vec![],
            at(28, unknown(0, 0)),
        ),
        (
            "unequal lengths at both ends",
            [start(), packet(0, us, 60, 60), unequal_ends].concat(),
            one.clone(),
            at(header + block_len, wrong_length(6, block_len as u32)),
        ),
        (
            "a block without padding",
            [start(), unpadded].concat(),
            vec![],
            at(header, wrong_length(6, 93)),
        ),
        (
            "major version 2",
            [version_2, ethernet()].concat(),
            vec![],
            at(0, FormatProblem::Version { major: 2, known: 1 }),
        ),
        (
            "zeros behind the blocks",
            [start(), packet(0, us, 60, 60), vec![0; 4096]].concat(),
            one,
            at(header + block_len, wrong_length(0, 0)),
        ),
    ];
    for (name, file, frames, problem) in many {
        assert_eq!(read(&file), (frames, problem), "{name}");
    }
    // A page of zeros behind a pcap file reads as empty frames in 1970.
    let (frames, problem) = read(&then(&[0; 4096]));
    assert_eq!((frames.len(), problem), (1 + 4096 / 16, None));
}
