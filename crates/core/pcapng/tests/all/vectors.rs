//! Capture files as literal bytes.

use wb_pcapng::{
    Block, CaptureDecoder, CaptureInterface, CaptureReader, CaptureSummary, EnhancedPacket, Event,
    Fixed, Format, FormatProblem, LINK_ETHERNET, PacketOptions, PcapWriter, PcapngWriter,
    Precision, Record, Section, Statistics, TimeUnit, epb_len,
};

const Q: &str = "020000000002 020000000001 0800 4500002e 00000000 4011 6623 0a4d0001 0a4d0002 0009 0009 001a 0000 5742
    00000000000000000000000000000000";

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text
        .replace('Q', Q)
        .bytes()
        .filter(u8::is_ascii_hexdigit)
        .collect();
    digits
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

fn read(file: &[u8]) -> Vec<Record<'_>> {
    CaptureReader::new(file)
        .unwrap()
        .map(Result::unwrap)
        .collect()
}

/// Returns the number of records before the first error, and the error.
fn failure(file: &[u8]) -> (usize, u64, FormatProblem) {
    let mut records = 0;
    let mut reader = match CaptureReader::new(file) {
        Ok(reader) => reader,
        Err(error) => return (0, error.offset, error.problem),
    };
    loop {
        match reader.next() {
            Some(Ok(_)) => records += 1,
            Some(Err(error)) => {
                assert!(reader.next().is_none(), "an error is the end");
                return (records, error.offset, error.problem);
            }
            None => panic!("read without an error"),
        }
    }
}

fn micros() -> Vec<u8> {
    hex(
        "d4c3b2a1 02000400 00000000 00000000 00000400 01000000 | 00f15365 40e20100 3c000000 3c000000 | Q",
    )
}

/// Section header, interface, two packets, statistics.
fn blocks() -> Vec<Vec<u8>> {
    [
        "0a0d0d0a 1c000000 4d3c2b1a 01000000 ffffffff ffffffff 1c000000",
        "01000000 28000000 01000000 00000400 02000300 77626200 09000100 09000000 00000000 28000000",
        "06000000 5c000000 00000000 fe9c9717 15cd853d 3c000000 3c000000 | Q | 5c000000",
        "06000000 40000000 00000000 fe9c9717 fdd0853d 05000000 3c000000 02000000 00000000 02000400 01000000 04000800
         07000000 00000000 00000000 40000000",
        "05000000 70000000 00000000 fe9c9717 e5d4853d 02000800 fe9c9717 2dc9853d 03000800 fe9c9717 e5d4853d 04000800 09000000
         00000000 05000800 00000000 00000000 06000800 09000000 00000000 07000800 07000000 00000000 08000800 02000000 00000000
         00000000 70000000",
    ]
    .map(hex)
    .to_vec()
}

#[test]
fn pcap_in_microseconds() {
    let file = micros();
    assert_eq!(file.len(), 100);
    let want = Record {
        stamp_ns: 1_700_000_000_123_456_000,
        stamped: true,
        captured: &hex("Q"),
        original_len: 60,
        interface: 0,
        link_type: LINK_ETHERNET,
        options: PacketOptions::NONE,
    };
    assert_eq!(read(&file), [want]);
    let reader = CaptureReader::new(&file).unwrap();
    assert_eq!(reader.format(), Format::Pcap);
    assert_eq!(reader.interfaces()[0].snap_len, 262_144);
}

#[test]
fn pcap_in_nanoseconds_with_a_cut_frame() {
    let file = hex(
        "4d3cb2a1 02000400 00000000 00000000 60000000 01000000 | 00f15365 15cd5b07 3c000000 ea050000 | Q",
    );
    let records = read(&file);
    assert_eq!(
        (
            records[0].stamp_ns,
            records[0].captured.len(),
            records[0].original_len
        ),
        (1_700_000_000_123_456_789, 60, 1514)
    );
}

#[test]
fn pcap_big_endian() {
    let file = hex(
        "a1b2c3d4 00020004 00000000 00000000 00040000 00000001 | 6553f100 0001e240 0000003c 0000003c | Q",
    );
    assert_eq!(read(&file), read(&micros()));
}

#[test]
fn pcap_link_type_with_fcs() {
    let mut file = micros();
    file[23] = 0x24;
    let reader = CaptureReader::new(&file).unwrap();
    assert_eq!(
        (
            reader.interfaces()[0].link_type,
            reader.interfaces()[0].fcs_len
        ),
        (1, 4)
    );
}

#[test]
fn pcapng() {
    let file = blocks().concat();
    assert_eq!(file.len(), 336);
    let records = read(&file);
    assert_eq!(records.len(), 2);
    assert_eq!(
        (records[0].stamp_ns, records[0].captured),
        (1_700_000_000_123_456_789, &hex("Q")[..])
    );
    assert_eq!(
        (
            records[1].stamp_ns,
            records[1].captured,
            records[1].original_len
        ),
        (1_700_000_000_123_457_789, &hex("0200000000")[..], 60)
    );

    let mut reader = CaptureReader::new(&file).unwrap();
    assert!(reader.interfaces().is_empty(), "not yet described");
    reader.by_ref().for_each(drop);
    let interface = &reader.interfaces()[0];
    assert_eq!(
        (interface.name.as_deref(), interface.time_unit),
        (Some("wbb"), TimeUnit::NANOSECONDS)
    );
    assert_eq!((reader.format(), reader.offset()), (Format::Pcapng, 336));
}

#[test]
fn pcapng_sections_orders_and_odd_blocks() {
    let mut file = blocks().concat();
    // A second section, big endian: an unknown block, an interface without options (microseconds, snap length 8), one
    // in 2^-10 s with an offset of an hour, a packet of each, an old packet, a simple packet.
    file.extend(hex("
        0a0d0d0a 0000001c 1a2b3c4d 00010000 ffffffff ffffffff 0000001c
        80000abc 00000010 deadbeef 00000010
        00000001 00000014 00650000 00000008 00000014
        00000001 0000002c 00010000 00000000 00090001 8a000000 000e0008 00000000 00000e10 00000000 0000002c
        00000006 00000028 00000000 00000000 00000007 00000005 00000006 a1a2a3a4 a5000000 00000028
        00000006 00000020 00000001 00000000 00000200 00000000 00000040 00000020
        00000002 00000024 00010005 00000000 00000400 00000001 00000001 bb000000 00000024
        00000003 00000018 0000000a 0102030405060708 00000018
    "));
    let records = read(&file);
    let drops = records.iter().map(|r| r.options.drop_count);
    assert_eq!(
        drops.collect::<Vec<_>>(),
        [None, Some(7), None, None, Some(5), None]
    );
    let stamped = records.iter().map(|r| r.stamped);
    assert_eq!(
        stamped.collect::<Vec<_>>(),
        [true, true, true, true, true, false]
    );
    let tail: Vec<_> = records[2..]
        .iter()
        .map(|r| {
            (
                r.interface,
                r.link_type,
                r.stamp_ns,
                r.captured.to_vec(),
                r.original_len,
            )
        })
        .collect();
    assert_eq!(
        tail,
        [
            (1, 101, 7_000, vec![0xa1, 0xa2, 0xa3, 0xa4, 0xa5], 6),
            (2, 1, 3_600_500_000_000, vec![], 64),
            (2, 1, 3_601_000_000_000, vec![0xbb], 1),
            (1, 101, 0, vec![1, 2, 3, 4, 5, 6, 7, 8], 10),
        ]
    );
}

#[test]
fn truncated_files() {
    let file = micros();
    assert_eq!(
        failure(&file[..90]),
        (
            0,
            24,
            FormatProblem::Truncated {
                what: "record",
                needed: 60,
                present: 50
            }
        )
    );
    assert_eq!(
        CaptureReader::new(&file[..90])
            .unwrap()
            .next()
            .unwrap()
            .unwrap_err()
            .to_string(),
        "capture file, byte 24: truncated: record needs 60 bytes, 50 present"
    );
    assert_eq!(
        failure(&file[..30]),
        (
            0,
            24,
            FormatProblem::Truncated {
                what: "record header",
                needed: 16,
                present: 6
            }
        )
    );
    for len in 0..24 {
        assert_eq!(
            failure(&file[..len]),
            (0, 0, FormatProblem::TruncatedHeader),
            "{len}"
        );
    }
    let file = blocks().concat();
    for len in 0..28 {
        assert_eq!(
            failure(&file[..len]),
            (0, 0, FormatProblem::TruncatedHeader),
            "{len}"
        );
    }
    assert_eq!(
        failure(&file[..200]),
        (
            1,
            160,
            FormatProblem::Truncated {
                what: "block",
                needed: 64,
                present: 40
            }
        )
    );
}

#[test]
fn damaged_files() {
    let changed = |mut file: Vec<u8>, at: usize, bytes: &[u8]| {
        file[at..at + bytes.len()].copy_from_slice(bytes);
        file
    };
    let pcapng = blocks().concat();
    let word = u32::to_le_bytes;
    for (file, want) in [
        (
            b"GIF89a".to_vec(),
            (0, 0, FormatProblem::UnknownFormat(b"GIF8".to_vec())),
        ),
        (
            changed(micros(), 4, &[3]),
            (0, 0, FormatProblem::Version { major: 3, known: 2 }),
        ),
        (
            changed(micros(), 32, &word(262_145)),
            (
                0,
                24,
                FormatProblem::TooLarge {
                    len: 262_145,
                    most: 262_144,
                },
            ),
        ),
        (
            changed(pcapng.clone(), 8, &[0]),
            (0, 0, FormatProblem::ByteOrder([0, 0x3c, 0x2b, 0x1a])),
        ),
        (
            changed(pcapng.clone(), 12, &[2]),
            (0, 0, FormatProblem::Version { major: 2, known: 1 }),
        ),
        (
            changed(pcapng.clone(), 72, &word(0)),
            (0, 68, FormatProblem::BlockLength { kind: 6, len: 0 }),
        ),
        (
            changed(pcapng.clone(), 72, &word(93)),
            (0, 68, FormatProblem::BlockLength { kind: 6, len: 93 }),
        ),
        (
            changed(pcapng.clone(), 72, &word(u32::MAX - 3)),
            (
                0,
                68,
                FormatProblem::BlockLength {
                    kind: 6,
                    len: u32::MAX - 3,
                },
            ),
        ),
        (
            changed(pcapng.clone(), 156, &word(96)),
            (0, 68, FormatProblem::BlockLength { kind: 6, len: 92 }),
        ),
        (
            changed(pcapng.clone(), 76, &word(1)),
            (0, 68, FormatProblem::UnknownInterface { id: 1, known: 1 }),
        ),
        (
            changed(pcapng.clone(), 88, &word(61)),
            (0, 68, FormatProblem::BlockLength { kind: 6, len: 92 }),
        ),
        (
            changed(pcapng.clone(), 88, &word(1 << 30)),
            (
                0,
                68,
                FormatProblem::TooLarge {
                    len: 1 << 30,
                    most: 262_144,
                },
            ),
        ),
        // The name of the interface exceeds its block.
        (
            changed(pcapng.clone(), 46, &[99]),
            (0, 28, FormatProblem::BlockLength { kind: 1, len: 40 }),
        ),
        // A section header that is too short for its version.
        (
            hex("0a0d0d0a 10000000 4d3c2b1a 10000000"),
            (
                0,
                0,
                FormatProblem::BlockLength {
                    kind: 0x0a0d_0d0a,
                    len: 16,
                },
            ),
        ),
    ] {
        assert_eq!(failure(&file), want);
    }
}

const STAMP: u64 = 1_700_000_000_123_456_789;

#[test]
fn pcap_is_written_byte_by_byte() {
    let mut file = Vec::new();
    let mut writer = PcapWriter::with(LINK_ETHERNET, 0, Precision::Micro, &mut file);
    assert!(writer.record(STAMP, 60, &hex("Q"), &mut file));
    assert_eq!(file, micros());
    assert_eq!(
        file.len(),
        PcapWriter::FILE_HEADER_LEN + PcapWriter::record_len(60)
    );

    let mut file = Vec::new();
    let mut writer = PcapWriter::with(LINK_ETHERNET, 96, Precision::Nano, &mut file);
    writer.record(STAMP, 1514, &hex("Q"), &mut file);
    let want = "4d3cb2a1 02000400 00000000 00000000 60000000 01000000 | 00f15365 15cd5b07 3c000000 ea050000 | Q";
    assert_eq!(file, hex(want));
}

fn statistics() -> Statistics {
    Statistics {
        interface: 0,
        stamp_ns: STAMP + 2000,
        start_ns: Some(STAMP - 1000),
        end_ns: Some(STAMP + 2000),
        if_received: Some(9),
        if_dropped: Some(0),
        filter_accepted: Some(9),
        os_dropped: Some(7),
        delivered: Some(2),
    }
}

/// Writes the blocks of [`blocks`] and returns the lengths that the writers announced.
fn write_blocks(out: &mut impl wb_pcapng::ByteSink) -> [usize; 5] {
    let section = Section::default();
    let interface = CaptureInterface {
        name: Some("wbb".to_owned()),
        ..CaptureInterface::new(LINK_ETHERNET)
    };
    let q = hex("Q");
    let second = EnhancedPacket {
        interface: 0,
        ticks: STAMP + 1000,
        original_len: 60,
        captured: &q[..5],
        options: PacketOptions {
            flags: Some(1),
            drop_count: Some(7),
            ..PacketOptions::NONE
        },
    };
    let mut writer = PcapngWriter::section(&section, out);
    assert_eq!(writer.describe(&interface, out), 0);
    assert!(writer.record(0, STAMP, 60, &q, out));
    assert!(writer.packet(&second, out));
    assert!(writer.statistics(&statistics(), out));
    [
        section.block_len(),
        interface.block_len(),
        epb_len(60, &PacketOptions::NONE),
        epb_len(5, &second.options),
        statistics().block_len(),
    ]
}

#[test]
fn pcapng_is_written_byte_by_byte() {
    let blocks = blocks().concat();
    let mut file = Vec::new();
    let lens = write_blocks(&mut file);
    assert_eq!(lens, [28, 40, 92, 64, 112]);
    assert_eq!(file, blocks);

    let mut memory = [0xff; 340];
    let mut fixed = Fixed::new(&mut memory);
    write_blocks(&mut fixed);
    assert_eq!(
        (fixed.filled(), fixed.len(), fixed.room()),
        (&blocks[..], 336, 4)
    );
}

#[test]
fn what_does_not_fit_a_fixed_buffer_is_left_out_whole() {
    let q = hex("Q");
    for room in [0, 75, 76, 77] {
        let mut memory = vec![0xff; 24 + room];
        let mut fixed = Fixed::new(&mut memory);
        let mut writer = PcapWriter::new(LINK_ETHERNET, &mut fixed);
        assert_eq!(
            writer.record(STAMP, 60, &q, &mut fixed),
            room >= 76,
            "{room}"
        );
        assert_eq!(fixed.len(), if room >= 76 { 100 } else { 24 });
    }
    for room in [0, 91, 92, 93] {
        let mut memory = vec![0xff; 28 + 32 + room];
        let mut fixed = Fixed::new(&mut memory);
        let mut writer = PcapngWriter::new("", &mut fixed);
        writer.interface("", LINK_ETHERNET, &mut fixed);
        let fits = room >= 92;
        assert_eq!(writer.record(0, STAMP, 60, &q, &mut fixed), fits, "{room}");
        assert_eq!(fixed.len(), 60 + if fits { 92 } else { 0 });
        let statistics = Statistics::default();
        assert_eq!(writer.statistics(&statistics, &mut fixed), room == 91);
    }
}

#[test]
fn options_of_packets_and_statistics_are_read() {
    let file = blocks().concat();
    let mut reader = CaptureReader::new(&file).unwrap();
    let mut found = Vec::new();
    while let Some(item) = reader.next_item().unwrap() {
        assert_eq!(
            item.bytes,
            &file[item.offset as usize..][..item.bytes.len()]
        );
        found.push((item.offset, item.bytes.len()));
        match item.event {
            Event::Header(header) => {
                assert_eq!((header.format, header.big_endian), (Format::Pcapng, false));
            }
            Event::Interface(index) => {
                assert_eq!(item.interfaces[index as usize].snap_len, 262_144)
            }
            Event::Record(record) if item.offset == 68 => {
                assert_eq!(record.options, PacketOptions::NONE);
            }
            Event::Record(record) => {
                let want = PacketOptions {
                    flags: Some(1),
                    drop_count: Some(7),
                    ..PacketOptions::NONE
                };
                assert_eq!(record.options, want);
            }
            Event::Statistics(found) => {
                assert_eq!(found, statistics());
                assert_eq!(found.adds_up(), Some(true));
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(found, [(0, 28), (28, 40), (68, 92), (160, 64), (224, 112)]);
}

#[test]
fn a_summary_shows_what_was_captured_and_lost() {
    let (summary, error) = CaptureSummary::from_bytes(&blocks().concat());
    assert_eq!(error, None);
    assert_eq!(
        (summary.format, summary.sections),
        (Some(Format::Pcapng), 1)
    );
    assert_eq!((summary.file_bytes, summary.statistics_blocks), (336, 1));
    let total = summary.total;
    assert_eq!(
        (total.packets, total.captured_bytes, total.original_bytes),
        (2, 65, 120)
    );
    assert_eq!((total.cut_packets, total.out_of_order), (1, 0));
    assert_eq!(
        (total.first_ns, total.duration_ns()),
        (Some(STAMP), Some(1000))
    );
    assert_eq!(total.noted_drops, Some(7));
    assert_eq!(summary.interfaces[0].counts, total);
    assert_eq!(summary.interfaces[0].statistics, Some(statistics()));
    let sums = [
        summary.sum(|s| s.filter_accepted),
        summary.sum(|s| s.delivered),
        summary.sum(|s| s.os_dropped),
    ];
    assert_eq!(sums, [Some(9), Some(2), Some(7)], "F = W + K");
}

#[test]
fn a_summary_counts_frames_out_of_order_on_each_interface() {
    let mut file = Vec::new();
    let mut writer = PcapngWriter::new("test", &mut file);
    for name in ["a", "b"] {
        writer.interface(name, LINK_ETHERNET, &mut file);
    }
    for (interface, stamp) in [(0, 10), (1, 5), (0, 20), (0, 15), (0, 20), (1, 6)] {
        writer.record(interface, stamp, 60, &[0; 60], &mut file);
    }
    let (summary, _) = CaptureSummary::from_bytes(&file);
    assert_eq!(summary.total.out_of_order, 3);
    let each = summary
        .interfaces
        .iter()
        .map(|i| (i.counts.packets, i.counts.out_of_order));
    assert_eq!(each.collect::<Vec<_>>(), [(4, 1), (2, 0)]);
    assert_eq!(
        (summary.total.first_ns, summary.total.last_ns),
        (Some(5), Some(20))
    );
    assert_eq!(summary.sum(|s| s.delivered), None, "not said is not zero");
}

#[test]
fn truncation_says_what_a_repair_keeps() {
    let file = micros();
    let end = |bytes: &[u8]| {
        let mut decoder = CaptureDecoder::new();
        decoder.push(bytes);
        while decoder.next_item().unwrap().is_some() {}
        decoder.finish();
        let error = decoder.next_item().unwrap_err();
        assert_eq!(decoder.next_item().unwrap_err(), error, "stays");
        (
            error.problem.to_string(),
            decoder.whole().records,
            decoder.whole().offset,
        )
    };
    assert_eq!(
        end(&file[..90]),
        (
            "truncated: record needs 60 bytes, 50 present".to_owned(),
            0,
            24
        )
    );
    assert_eq!(end(&file[..20]), ("truncated file header".to_owned(), 0, 0));
    assert_eq!(end(&[]), ("truncated file header".to_owned(), 0, 0));
    assert_eq!(
        end(&blocks().concat()[..200]),
        (
            "truncated: block needs 64 bytes, 40 present".to_owned(),
            1,
            160
        )
    );
}

#[test]
fn oddities_are_warnings() {
    let mut file = micros();
    file[36..40].copy_from_slice(&59u32.to_le_bytes());
    file[28..32].copy_from_slice(&1_000_000u32.to_le_bytes());
    let mut reader = CaptureReader::new(&file).unwrap();
    let record = reader.next().unwrap().unwrap();
    assert_eq!((record.captured.len(), record.original_len), (60, 59));
    assert_eq!(record.stamp_ns, 1_700_000_001_000_000_000);
    let warnings = reader.warnings();
    assert_eq!(
        warnings.lines().collect::<Vec<_>>(),
        [
            "frames with a captured length above their original length: 1",
            "timestamps with an invalid fraction (one second or more): 1"
        ]
    );

    // The drop count of the second packet has a length of two bytes; the flags before it are kept.
    let mut file = blocks().concat();
    file[206] = 2;
    let mut reader = CaptureReader::new(&file).unwrap();
    let options = reader.by_ref().last().unwrap().unwrap().options;
    assert_eq!((options.flags, options.drop_count), (Some(1), None));
    assert_eq!(reader.warnings().odd_blocks, 1);
    assert_eq!(
        CaptureReader::new(&blocks().concat())
            .unwrap()
            .warnings()
            .lines()
            .count(),
        0
    );
}

#[test]
fn blocks_that_make_little_sense_are_passed_over() {
    let mut file = Vec::new();
    let mut writer = PcapngWriter::new("w\u{1f980}", &mut file);
    // The last byte of a four-byte character is missing.
    let at = file.windows(4).position(|w| w == "\u{1f980}".as_bytes());
    file[at.unwrap() + 3] = b'x';
    writer.interface("x", LINK_ETHERNET, &mut file);
    let foreign = Statistics {
        interface: 1,
        ..statistics()
    };
    foreign.write(&mut file);
    writer.record(0, 5, 60, &[0; 60], &mut file);

    let mut reader = CaptureReader::new(&file).unwrap();
    let Event::Header(header) = reader.next_item().unwrap().unwrap().event else {
        panic!("no header");
    };
    assert_eq!(header.section.application, Some("w"));
    reader.next_item().unwrap();
    let item = reader.next_item().unwrap().unwrap();
    assert_eq!(item.event, Event::Other { kind: 5 });
    assert_eq!(reader.next().unwrap().unwrap().stamp_ns, 5);
    assert_eq!(reader.warnings().odd_blocks, 2);
}

#[test]
fn an_old_packet_block_may_not_know_its_drops() {
    let mut file = blocks()[..2].concat();
    file.extend(hex(
        "02000000 24000000 0000ffff 00000000 07000000 01000000 01000000 bb000000 24000000",
    ));
    assert_eq!(read(&file)[0].options.drop_count, None);
}

#[test]
fn the_first_of_two_equal_options_stands() {
    let mut file = blocks()[..2].concat();
    file.extend(hex(
        "06000000 34000000 00000000 00000000 07000000 00000000 01000000 02000400 01000000 02000400 02000000 00000000 34000000",
    ));
    assert_eq!(read(&file)[0].options.flags, Some(1));
}

/// Builds a pcap file with the first 20, 30, ... bytes of five frames of 1500 bytes.
fn dialect(
    magic: u32,
    version: (u16, u16),
    big: bool,
    extra: usize,
    original_first: bool,
) -> Vec<u8> {
    let word = |n: u32| {
        if big {
            n.to_be_bytes()
        } else {
            n.to_le_bytes()
        }
    };
    let half = |n: u16| {
        if big {
            n.to_be_bytes()
        } else {
            n.to_le_bytes()
        }
    };
    let mut file = word(magic).to_vec();
    file.extend(half(version.0));
    file.extend(half(version.1));
    for n in [0, 0, 262_144, 1] {
        file.extend(word(n));
    }
    if magic >> 16 == 0x1c00 {
        file.extend(word(0));
    }
    for n in 0..5 {
        let captured = 20 + 10 * n;
        let mut lengths = [captured, 1500];
        if original_first {
            lengths.reverse();
        }
        for n in [1_700_000_000 + n, 100_000 + n, lengths[0], lengths[1]] {
            file.extend(word(n));
        }
        file.extend((0..extra).map(|at| at as u8));
        file.extend(vec![0x40 + n as u8; captured as usize]);
    }
    file
}

#[test]
fn dialects_of_pcap_are_read() {
    let (plain, patched) = (0xa1b2_c3d4, 0xa1b2_cd34);
    for (name, magic, version, big, extra, original_first) in [
        ("plain", plain, (2, 4), false, 0, false),
        ("Kuznetsov", patched, (2, 4), false, 8, false),
        ("Kuznetsov, big endian", patched, (2, 4), true, 8, false),
        ("SuSE 6.3", patched, (2, 4), false, 12, false),
        ("Red Hat 6.1", plain, (2, 4), false, 8, false),
        ("Nokia", plain, (2, 4), false, 4, false),
        ("Ixia hardware", 0x1c00_01ac, (2, 4), false, 0, false),
        ("Ixia software", 0x1c00_01ab, (2, 4), true, 0, false),
        ("2.2", plain, (2, 2), false, 0, true),
        ("2.3", plain, (2, 3), false, 0, false),
        ("2.3 as 2.2", plain, (2, 3), true, 0, true),
        ("DG/UX", plain, (543, 0), true, 0, true),
    ] {
        let file = dialect(magic, version, big, extra, original_first);
        let records = read(&file);
        let found: Vec<_> = records
            .iter()
            .map(|r| (r.stamp_ns, r.captured.to_vec(), r.original_len))
            .collect();
        let expected: Vec<_> = (0..5)
            .map(|n: u64| {
                let stamp_ns = 1_700_000_000_100_000_000 + n * 1_000_001_000;
                (stamp_ns, vec![0x40 + n as u8; 20 + 10 * n as usize], 1500)
            })
            .collect();
        assert_eq!(found, expected, "{name}");
        // The first piece is enough to infer the layout.
        let mut decoder = CaptureDecoder::with_any_layout();
        let mut frames = 0;
        for piece in [&file[..200.min(file.len())], &file[200.min(file.len())..]] {
            decoder.push(piece);
            while let Some(item) = decoder.next_item().unwrap() {
                frames += u32::from(matches!(item.event, Event::Record(_)));
            }
        }
        assert_eq!((frames, decoder.pending()), (5, 0), "{name}");
    }
}

#[test]
fn a_damaged_file_keeps_its_layout() {
    let mut file = dialect(0xa1b2_c3d4, (2, 4), false, 0, false);
    // The second record has too large a length.
    file[24 + 36 + 8..][..4].copy_from_slice(&[0xff; 4]);
    let (records, offset, problem) = failure(&file);
    assert_eq!((records, offset), (1, 60));
    assert!(matches!(problem, FormatProblem::TooLarge { .. }));
    let archaic = dialect(0xa1b2_c3d4, (1, 2), false, 0, false);
    assert!(matches!(
        failure(&archaic).2,
        FormatProblem::Version { major: 1, .. }
    ));
}
