//! Laws for all files: a written file reads back the same, as a whole and in pieces. A truncated or damaged file gives
//! an exact error, and never a panic, an endless loop or high memory use.

use crate::reference::{self, File, Order, Packet, Piece};
use proptest::collection::vec;
use proptest::prelude::*;
use wb_pcapng::{
    Block, CaptureDecoder, CaptureInterface, CaptureReader, Custom, EnhancedPacket, Error, Event,
    FormatProblem, IntactPart, MAX_BLOCK, MAX_CAPTURED, MAX_METADATA, PacketOptions, PcapWriter,
    PcapngWriter, Precision, Record, Section, Statistics, epb_len, fuzz,
};

const LITTLE: Order = Order { big: false };

fn options(p: &Packet) -> PacketOptions<'_> {
    PacketOptions {
        flags: p.flags,
        drop_count: p.drop_count,
        packet_id: p.packet_id,
        queue: p.queue,
        comment: p.comment.as_deref(),
    }
}

fn enhanced(p: &Packet) -> EnhancedPacket<'_> {
    EnhancedPacket {
        interface: p.interface,
        ticks: p.ticks,
        original_len: p.original_len,
        captured: &p.captured,
        options: options(p),
    }
}

fn section(file: &File) -> Section<'_> {
    let [comment, hardware, os, application] = file.texts.each_ref().map(Option::as_deref);
    Section {
        hardware,
        os,
        application,
        comment,
    }
}

fn statistics(interface: u32, stamp_ns: u64, n: [Option<u64>; 7]) -> Statistics {
    Statistics {
        interface,
        stamp_ns,
        start_ns: n[0],
        end_ns: n[1],
        if_received: n[2],
        if_dropped: n[3],
        filter_accepted: n[4],
        os_dropped: n[5],
        delivered: n[6],
    }
}

/// Writes a file with the library, and checks the announced lengths.
fn written(file: &File) -> Vec<u8> {
    let mut out = Vec::new();
    let mut write = |len: usize, write: &dyn Fn(&mut Vec<u8>) -> bool| {
        let before = out.len();
        assert!(write(&mut out));
        assert_eq!(out.len() - before, len);
    };
    let header = section(file);
    write(header.block_len(), &|out| header.write(out));
    for interface in &file.interfaces {
        write(interface.block_len(), &|out| interface.write(out));
    }
    for piece in &file.pieces {
        match piece {
            Piece::Packet(p) => {
                let len = epb_len(p.captured.len(), &options(p));
                write(len, &|out| enhanced(p).write(out));
            }
            Piece::Statistics(interface, stamp, numbers) => {
                let block = statistics(*interface, *stamp, *numbers);
                write(block.block_len(), &|out| block.write(out));
            }
            Piece::Custom(enterprise, content) => {
                let block = Custom {
                    enterprise: *enterprise,
                    content,
                };
                write(block.block_len(), &|out| block.write(out));
            }
            Piece::Unknown(content) => {
                let block = LITTLE.block(
                    0x8000_0abc,
                    &[content.as_slice(), &[0; 3]].concat()[..content.len().next_multiple_of(4)],
                );
                write(block.len(), &|out| {
                    out.extend_from_slice(&block);
                    true
                });
            }
        }
    }
    out
}

/// Wall-clock time of a timestamp, computed with large integers.
fn stamp_ns(interface: &CaptureInterface, ticks: u64) -> u64 {
    let unit = interface.time_unit.tsresol();
    let power = u32::from(unit & 0x7f);
    let ns = match (unit & 0x80 != 0, 10u128.checked_pow(power)) {
        (true, _) => (u128::from(ticks) * 1_000_000_000) >> power,
        (false, Some(unit)) => u128::from(ticks) * 1_000_000_000 / unit,
        (false, None) => 0,
    };
    let ns = ns.min(u64::MAX.into()) as i128 + i128::from(interface.time_offset) * 1_000_000_000;
    ns.clamp(0, u64::MAX.into()) as u64
}

/// Returns all items of a file that is read in pieces of these sizes, in turn.
fn decode<T>(
    file: &[u8],
    sizes: &[usize],
    mut each: impl FnMut(wb_pcapng::FileItem<'_>) -> T,
) -> (Vec<T>, IntactPart, Option<Error>) {
    let (mut decoder, mut items, mut at) = (CaptureDecoder::new(), Vec::new(), 0);
    let mut sizes = sizes.iter().cycle();
    loop {
        let size = (*sizes.next().unwrap()).min(file.len() - at);
        if size == 0 {
            decoder.finish();
        }
        decoder.push(&file[at..at + size]);
        at += size;
        loop {
            match decoder.next_item() {
                Ok(Some(item)) => items.push(each(item)),
                Ok(None) => break,
                Err(error) => return (items, decoder.whole(), Some(error)),
            }
        }
        if size == 0 {
            return (items, decoder.whole(), None);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn pcapng_is_written_as_the_reference_writes_it(file in reference::file()) {
        prop_assert_eq!(written(&file), reference::pcapng(&file, LITTLE).concat());
    }

    #[test]
    fn pcapng_is_read_as_it_was_meant(file in reference::file(), order in reference::order()) {
        let blocks = reference::pcapng(&file, order);
        let bytes = blocks.concat();
        let mut reader = CaptureReader::new(&bytes).unwrap();
        for (i, block) in blocks.iter().enumerate() {
            let item = reader.next_item().unwrap().unwrap();
            prop_assert_eq!(item.bytes, &block[..]);
            let interfaces = item.interfaces;
            match (item.event, i.checked_sub(1 + file.interfaces.len()).map(|i| &file.pieces[i])) {
                (Event::Header(header), None) => {
                    prop_assert_eq!(header.big_endian, order.big);
                    prop_assert_eq!(header.section, section(&file));
                }
                (Event::Interface(index), None) => {
                    prop_assert_eq!(interfaces.len(), i);
                    prop_assert_eq!(&interfaces[index as usize], &file.interfaces[i - 1]);
                }
                (Event::Record(record), Some(Piece::Packet(p))) => {
                    let interface = &file.interfaces[p.interface as usize];
                    let want = Record {
                        stamp_ns: stamp_ns(interface, p.ticks),
                        stamped: true,
                        captured: &p.captured,
                        original_len: p.original_len,
                        interface: p.interface,
                        link_type: interface.link_type,
                        options: options(p),
                    };
                    prop_assert_eq!(record, want);
                }
                (Event::Statistics(found), Some(Piece::Statistics(interface, stamp, numbers))) => {
                    let clock = |ticks| stamp_ns(&file.interfaces[*interface as usize], ticks);
                    let mut numbers = *numbers;
                    numbers[0] = numbers[0].map(clock);
                    numbers[1] = numbers[1].map(clock);
                    prop_assert_eq!(found, statistics(*interface, clock(*stamp), numbers));
                }
                (Event::Custom(custom), Some(Piece::Custom(enterprise, content))) => {
                    prop_assert_eq!(custom.enterprise, *enterprise);
                    prop_assert_eq!(&custom.content[..content.len()], &content[..]);
                    prop_assert!(custom.content[content.len()..].iter().all(|byte| *byte == 0));
                }
                (Event::Other { kind: 0x8000_0abc }, Some(Piece::Unknown(_))) => {}
                other => prop_assert!(false, "{:?}", other),
            }
        }
        prop_assert_eq!(reader.next_item(), Ok(None));
        prop_assert_eq!(reader.warnings().odd_blocks, 0);
    }

    #[test]
    fn pcap_is_written_and_read(packets in vec(reference::packet(1), 0..8), link_type: u16, nano: bool, order in reference::order()) {
        let bytes = reference::pcap(&packets, link_type, nano, order).concat();
        let precision = if nano { Precision::Nano } else { Precision::Micro };
        let mut ours = Vec::new();
        let mut writer = PcapWriter::with(link_type, 0, precision, &mut ours);
        let mut records = CaptureReader::new(&bytes).unwrap();
        for p in &packets {
            let before = ours.len();
            writer.record(p.ticks, p.original_len, &p.captured, &mut ours);
            prop_assert_eq!(ours.len() - before, PcapWriter::record_len(p.captured.len()));
            // Seconds have 32 bits.
            let wrapped = p.ticks % ((1u64 << 32) * 1_000_000_000);
            let want = Record {
                stamp_ns: if nano { wrapped } else { wrapped / 1000 * 1000 },
                stamped: true,
                captured: &p.captured,
                original_len: p.original_len,
                interface: 0,
                link_type,
                options: PacketOptions::NONE,
            };
            prop_assert_eq!(records.next(), Some(Ok(want)));
        }
        prop_assert!(records.next().is_none());
        if !order.big {
            prop_assert_eq!(ours, bytes);
        }
    }

    #[test]
    fn sections_follow_each_other_in_any_byte_order(files in vec((reference::file(), reference::order()), 1..4)) {
        let bytes: Vec<u8> = files.iter().flat_map(|(file, order)| reference::pcapng(file, *order).concat()).collect();
        let mut want = Vec::new();
        let mut base = 0;
        for (file, _) in &files {
            want.extend(file.pieces.iter().filter_map(|piece| match piece {
                Piece::Packet(p) => Some((base + p.interface, p.captured.clone())),
                _ => None,
            }));
            base += file.interfaces.len() as u32;
        }
        let seen = CaptureReader::new(&bytes).unwrap().map(|record| record.map(|r| (r.interface, r.captured.to_vec())));
        prop_assert_eq!(seen.collect::<Result<Vec<_>, _>>().unwrap(), want);
    }

    #[test]
    fn pieces_of_any_size_give_the_same_as_the_whole(
        file in reference::file(), order in reference::order(), sizes in vec(1usize..90, 1..5), cut in 0usize..40, nano: bool,
    ) {
        let packets: Vec<Packet> = file.pieces.iter().filter_map(|piece| match piece {
            Piece::Packet(p) => Some(p.clone()),
            _ => None,
        }).collect();
        for mut bytes in [reference::pcapng(&file, order).concat(), reference::pcap(&packets, 1, nano, order).concat()] {
            bytes.truncate(bytes.len() - cut.min(bytes.len()));
            let mut reader = CaptureReader::new(&bytes);
            let (_, whole, error) = decode(&bytes, &sizes, |item| {
                assert_eq!(reader.as_mut().unwrap().next_item().unwrap(), Some(item));
            });
            match reader {
                Ok(mut reader) => {
                    prop_assert_eq!(reader.next_item().err(), error);
                    prop_assert_eq!(reader.whole(), whole);
                }
                Err(wrong) => prop_assert_eq!(Some(wrong), error),
            }
        }
    }

    #[test]
    fn damage_is_no_panic(
        file in reference::file(), order in reference::order(), damage in vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let mut bytes = reference::pcapng(&file, order).concat();
        for (at, byte) in &damage {
            let at = at.index(bytes.len());
            bytes[at] = *byte;
        }
        fuzz::exercise(&bytes);
    }

    #[test]
    fn noise_is_no_panic(bytes in vec(any::<u8>(), 0..200), start in 0usize..5) {
        let start: &[u8] = [&b""[..], b"\xd4\xc3\xb2\xa1\x02\0", b"\xa1\xb2\x3c\x4d\0\x02", b"\x0a\x0d\x0d\x0a", b"\x0a\x0d\x0d\x0a\x1c\0\0\0\x4d\x3c\x2b\x1a\x01\0\0\0"][start];
        fuzz::exercise(&[start, &bytes].concat());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn a_file_cut_anywhere_says_what_is_whole(
        file in reference::file(), packets in vec(reference::packet(1), 0..6), order in reference::order(), nano: bool,
    ) {
        let is_packet = |i: usize| {
            i.checked_sub(1 + file.interfaces.len()).is_some_and(|i| matches!(file.pieces[i], Piece::Packet(_)))
        };
        let pcapng = reference::pcapng(&file, order);
        let records: Vec<bool> = (0..pcapng.len()).map(is_packet).collect();
        let pcap = reference::pcap(&packets, 1, nano, order);
        let pcap_records: Vec<bool> = (0..pcap.len()).map(|i| i > 0).collect();
        for (blocks, records) in [(pcapng, records), (pcap, pcap_records)] {
            let bytes = blocks.concat();
            let mut whole = IntactPart::default();
            let mut next_end = blocks[0].len();
            for len in 0..=bytes.len() {
                if len == next_end {
                    whole.records += u64::from(records[whole.blocks as usize]);
                    whole.blocks += 1;
                    whole.offset = len as u64;
                    next_end += blocks.get(whole.blocks as usize).map_or(0, Vec::len);
                }
                let (_, found, error) = decode(&bytes[..len], &[usize::MAX], |_| ());
                prop_assert_eq!(found, whole, "cut to {}", len);
                let Some(error) = error else {
                    prop_assert!(len > 0 && len as u64 == whole.offset, "cut to {}", len);
                    continue;
                };
                prop_assert_eq!(error.offset, whole.offset);
                match error.problem {
                    FormatProblem::TruncatedHeader => prop_assert_eq!(whole.blocks, 0),
                    FormatProblem::Truncated { needed, present, .. } => {
                        prop_assert!(whole.blocks > 0 && present < needed);
                    }
                    other => prop_assert!(false, "{:?}", other),
                }
            }
        }
    }
}

#[test]
fn frames_of_some_link_types_may_be_longer() {
    const USBPCAP: u16 = 249;
    let frame = vec![7; MAX_CAPTURED + 1];
    let mut pcap = Vec::new();
    PcapWriter::new(USBPCAP, &mut pcap).record(5, frame.len() as u32, &frame, &mut pcap);
    assert_eq!(pcap.len(), 24 + PcapWriter::record_len(frame.len()));
    let mut pcapng = Vec::new();
    let mut writer = PcapngWriter::new("wirebench", &mut pcapng);
    let interface = writer.interface("x", USBPCAP, &mut pcapng);
    let before = pcapng.len();
    writer.record(interface, 5, frame.len() as u32, &frame, &mut pcapng);
    assert_eq!(
        pcapng.len() - before,
        epb_len(frame.len(), &PacketOptions::NONE)
    );
    for file in [pcap, pcapng] {
        let record = CaptureReader::new(&file).unwrap().next().unwrap().unwrap();
        assert_eq!(
            (record.captured.len(), record.original_len as usize),
            (MAX_CAPTURED + 1, MAX_CAPTURED + 1)
        );
    }
    let mut ethernet = Vec::new();
    PcapWriter::new(1, &mut ethernet).record(5, frame.len() as u32, &frame, &mut ethernet);
    let error = CaptureReader::new(&ethernet)
        .unwrap()
        .next()
        .unwrap()
        .unwrap_err();
    assert!(
        matches!(error.problem, FormatProblem::TooLarge { .. }),
        "{error}"
    );
    for (link_type, most) in [
        (1, 262_144),
        (231, 128 << 20),
        (249, 1 << 20),
        (279, 8 << 20),
    ] {
        assert_eq!(wb_pcapng::max_captured(link_type), most);
    }
}

#[test]
fn texts_too_long_for_an_option_are_cut_to_what_can_be_read() {
    let long = "x".repeat(70_000);
    let mut file = Vec::new();
    let section = Section {
        comment: Some(&long),
        ..Section::default()
    };
    let mut writer = PcapngWriter::section(&section, &mut file);
    let interface = CaptureInterface {
        name: Some(long.clone()),
        filter: Some(long.clone()),
        ..CaptureInterface::new(1)
    };
    writer.describe(&interface, &mut file);
    let mut reader = CaptureReader::new(&file).unwrap();
    assert!(reader.next().is_none());
    let read = &reader.interfaces()[0];
    assert_eq!(read.name.as_ref().map(String::len), Some(65_535));
    assert_eq!(read.filter.as_ref().map(String::len), Some(65_534));
    fuzz::exercise(&file);
}

/// Feeds `piece` after `start` until the reader refuses, or for `total` bytes. Returns the peak memory.
fn feed(start: &[u8], piece: &[u8], total: usize) -> (usize, Option<FormatProblem>) {
    let mut decoder = CaptureDecoder::new();
    decoder.push(start);
    let (mut given, mut most) = (0, 0);
    while given < total {
        decoder.push(piece);
        given += piece.len();
        loop {
            match decoder.next_item() {
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(error) => return (most, Some(error.problem)),
            }
        }
        most = most.max(decoder.memory());
    }
    (most, None)
}

#[test]
fn long_and_hostile_files_take_bounded_memory() {
    let mut start = Vec::new();
    let mut writer = PcapngWriter::new("", &mut start);
    writer.interface("x", 1, &mut start);

    let mut frame = Vec::new();
    writer.record(0, 1, 1514, &[0; 1514], &mut frame);
    let pieces = frame.repeat(50);
    let (most, problem) = feed(
        &start,
        &pieces[..pieces.len() - frame.len() / 2],
        50 * pieces.len(),
    );
    assert!(
        matches!(problem, Some(FormatProblem::BlockLength { .. })),
        "the halves do not fit: {problem:?}"
    );
    assert!(most < 4 * pieces.len(), "{most}");
    let (most, problem) = feed(&start, &pieces, 400 * pieces.len());
    assert_eq!(problem, None);
    assert!(most < 3 * pieces.len(), "{most}");

    let mut interface = Vec::new();
    writer.interface(&"y".repeat(1000), 1, &mut interface);
    let (most, problem) = feed(&start, &interface.repeat(10), 64 << 20);
    assert!(
        matches!(problem, Some(FormatProblem::TooMuchMetadata(_))),
        "{problem:?}"
    );
    assert!(most <= MAX_METADATA + 64 * interface.len(), "{most}");

    // A block of the maximum size is kept until it is complete; a larger one is refused at its start.
    let head = |len: usize| {
        [
            &0x8000_0000u32.to_le_bytes()[..],
            &(len as u32).to_le_bytes(),
        ]
        .concat()
    };
    let (most, problem) = feed(
        &[&start[..], &head(MAX_BLOCK)].concat(),
        &[7; 65_536],
        MAX_BLOCK - 65_536,
    );
    assert_eq!(problem, None);
    assert!(
        most > MAX_BLOCK / 2 && most <= 2 * (MAX_BLOCK + 65_536),
        "{most}"
    );
    let (most, problem) = feed(
        &[&start[..], &head(MAX_BLOCK + 4)].concat(),
        &[7; 65_536],
        MAX_BLOCK,
    );
    assert!(matches!(problem, Some(FormatProblem::BlockLength { .. })));
    assert_eq!(most, 0);
}

#[test]
fn pieces_can_be_read_straight_into_the_decoder() {
    let mut file = Vec::new();
    let mut writer = PcapWriter::new(1, &mut file);
    for n in 0..100u8 {
        writer.record(n.into(), 60, &vec![n; n.into()], &mut file);
    }
    let (mut decoder, mut rest, mut seen) = (CaptureDecoder::new(), &file[..], 0);
    while !rest.is_empty() {
        let len = rest.len().min(37);
        let space = decoder.space(37);
        assert!(space.len() >= 37);
        space[..len].copy_from_slice(&rest[..len]);
        decoder.filled(len);
        rest = &rest[len..];
        while let Some(item) = decoder.next_item().unwrap() {
            if let Event::Record(record) = item.event {
                assert_eq!(record.captured, vec![seen; seen.into()]);
                seen += 1;
            }
        }
    }
    assert_eq!((seen, decoder.pending()), (100, 0));
}

#[test]
fn nothing_is_kept_after_an_error() {
    let mut decoder = CaptureDecoder::new();
    decoder.push(b"GIF89a");
    let error = decoder.next_item().unwrap_err();
    for _ in 0..1000 {
        decoder.push(&[0; 1000]);
        assert_eq!(decoder.next_item(), Err(error.clone()));
    }
    assert!(decoder.memory() < 10_000, "{}", decoder.memory());
}
