//! What holds for all files: what is written is read again, and damage is an error, never a panic or a loop.

use proptest::collection::vec;
use proptest::prelude::*;
use wb_pcapng::{MAX_CAPTURED, PcapWriter, PcapngWriter, Reader};

type Packet = (u8, u64, Vec<u8>, u32);

fn packet() -> impl Strategy<Value = Packet> {
    (
        any::<u8>(),
        any::<u64>(),
        vec(any::<u8>(), 0..80),
        any::<u32>(),
    )
}

fn pcap(packets: &[Packet], link_type: u16) -> Vec<u8> {
    let mut file = Vec::new();
    let mut writer = PcapWriter::new(link_type, &mut file);
    for (_, stamp, bytes, original) in packets {
        writer.record(*stamp, *original, bytes, &mut file);
    }
    file
}

fn pcapng(packets: &[Packet], interfaces: &[(String, u16)]) -> Vec<u8> {
    let mut file = Vec::new();
    let mut writer = PcapngWriter::new("wirebench", &mut file);
    for (name, link_type) in interfaces {
        writer.interface(name, *link_type, &mut file);
    }
    for (interface, stamp, bytes, original) in packets {
        writer.record(
            u32::from(*interface) % interfaces.len() as u32,
            *stamp,
            *original,
            bytes,
            &mut file,
        );
    }
    file
}

/// Reads all of a file that may be anything. Every record takes at least 16 bytes, so there are few.
fn read_all(file: &[u8]) {
    let Ok(reader) = Reader::new(file) else {
        return;
    };
    let mut last = 0;
    let mut reader = reader;
    while let Some(record) = reader.next() {
        if let Err(error) = record {
            assert!(error.offset <= file.len() as u64);
            assert!(reader.next().is_none());
            return;
        }
        assert!(reader.offset() >= last + 16, "moves on");
        last = reader.offset();
    }
    assert_eq!(reader.offset(), file.len() as u64);
}

proptest! {
    #[test]
    fn pcap_written_is_read(packets in vec(packet(), 0..8), link_type: u16) {
        let file = pcap(&packets, link_type);
        let mut records = Reader::new(&file).unwrap();
        for (_, stamp, bytes, original) in &packets {
            let record = records.next().unwrap().unwrap();
            // Seconds have 32 bits.
            prop_assert_eq!(record.stamp_ns, stamp % ((1u64 << 32) * 1_000_000_000));
            prop_assert_eq!((record.captured, record.original_len, record.link_type), (&bytes[..], *original, link_type));
        }
        prop_assert!(records.next().is_none());
    }

    #[test]
    fn pcapng_written_is_read(packets in vec(packet(), 0..8), interfaces in vec(("[a-zé/]{0,9}", any::<u16>()), 1..4)) {
        let file = pcapng(&packets, &interfaces);
        prop_assert_eq!(file.len() % 4, 0);
        let mut records = Reader::new(&file).unwrap();
        for (interface, stamp, bytes, original) in &packets {
            let record = records.next().unwrap().unwrap();
            let interface = usize::from(*interface) % interfaces.len();
            prop_assert_eq!((record.interface, record.link_type), (interface as u32, interfaces[interface].1));
            prop_assert_eq!((record.stamp_ns, record.captured, record.original_len), (*stamp, &bytes[..], *original));
        }
        prop_assert!(records.next().is_none());
        let names: Vec<_> = records.interfaces().iter().map(|i| i.name.clone().unwrap_or_default()).collect();
        prop_assert_eq!(names, interfaces.iter().map(|i| i.0.clone()).collect::<Vec<_>>());
    }

    #[test]
    fn two_sections_are_read_as_one_file(first in vec(packet(), 0..4), second in vec(packet(), 0..4)) {
        let interfaces = [("a".to_owned(), 1), ("b".to_owned(), 1)];
        let file = [pcapng(&first, &interfaces), pcapng(&second, &interfaces)].concat();
        let seen: Vec<u32> = Reader::new(&file).unwrap().map(|record| record.unwrap().interface).collect();
        let want = first.iter().map(|p| u32::from(p.0) % 2).chain(second.iter().map(|p| 2 + u32::from(p.0) % 2));
        prop_assert_eq!(seen, want.collect::<Vec<_>>());
    }

    #[test]
    fn a_cut_file_keeps_its_whole_records(packets in vec(packet(), 1..6), cut: prop::sample::Index) {
        for file in [pcap(&packets, 1), pcapng(&packets, &[("x".to_owned(), 1)])] {
            let len = cut.index(file.len());
            read_all(&file[..len]);
            if let Ok(records) = Reader::new(&file[..len]) {
                for (record, packet) in records.map_while(Result::ok).zip(&packets) {
                    prop_assert_eq!(record.captured, &packet.2[..]);
                }
            }
        }
    }

    #[test]
    fn damage_is_no_panic(packets in vec(packet(), 0..6), damage in vec((any::<prop::sample::Index>(), any::<u8>()), 1..8)) {
        for mut file in [pcap(&packets, 1), pcapng(&packets, &[("x".to_owned(), 1), ("y".to_owned(), 1)])] {
            for (at, byte) in &damage {
                let at = at.index(file.len());
                file[at] = *byte;
            }
            read_all(&file);
        }
    }

    #[test]
    fn noise_is_no_panic(bytes in vec(any::<u8>(), 0..200), start in 0usize..5) {
        let start: &[u8] = [&b""[..], b"\xd4\xc3\xb2\xa1\x02\0", b"\xa1\xb2\x3c\x4d\0\x02", b"\x0a\x0d\x0d\x0a", b"\x0a\x0d\x0d\x0a\x1c\0\0\0\x4d\x3c\x2b\x1a\x01\0\0\0"][start];
        read_all(&[start, &bytes].concat());
    }
}

#[test]
fn oversized_frames_are_cut_to_what_can_be_read() {
    let packets = [(0, 5, vec![7; MAX_CAPTURED + 1], MAX_CAPTURED as u32 + 1)];
    for file in [pcap(&packets, 1), pcapng(&packets, &[("x".to_owned(), 1)])] {
        let record = Reader::new(&file).unwrap().next().unwrap().unwrap();
        assert_eq!(
            (record.captured.len(), record.original_len as usize),
            (MAX_CAPTURED, MAX_CAPTURED + 1)
        );
    }
}
