//! Capture files given byte by byte.

use wb_pcapng::{Format, LINK_ETHERNET, Problem, Reader, Record, TimeUnit};

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
    Reader::new(file).unwrap().map(Result::unwrap).collect()
}

/// What stops the reader, and the records before.
fn failure(file: &[u8]) -> (usize, u64, Problem) {
    let mut records = 0;
    let mut reader = match Reader::new(file) {
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
        captured: &hex("Q"),
        original_len: 60,
        interface: 0,
        link_type: LINK_ETHERNET,
    };
    assert_eq!(read(&file), [want]);
    let reader = Reader::new(&file).unwrap();
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
    let reader = Reader::new(&file).unwrap();
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

    let mut reader = Reader::new(&file).unwrap();
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
    // A second section, big endian: an unknown block, an interface without options (microseconds, snap
    // length 8), one in 2^-10 s an hour ahead, a packet of each, an old packet, a simple one.
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
            Problem::Truncated {
                what: "record",
                needed: 60,
                present: 50
            }
        )
    );
    assert_eq!(
        Reader::new(&file[..90])
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
            Problem::Truncated {
                what: "record header",
                needed: 16,
                present: 6
            }
        )
    );
    for len in 0..24 {
        assert_eq!(
            failure(&file[..len]),
            (0, 0, Problem::TruncatedHeader),
            "{len}"
        );
    }
    let file = blocks().concat();
    for len in 0..28 {
        assert_eq!(
            failure(&file[..len]),
            (0, 0, Problem::TruncatedHeader),
            "{len}"
        );
    }
    assert_eq!(
        failure(&file[..200]),
        (
            1,
            160,
            Problem::Truncated {
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
            (0, 0, Problem::UnknownFormat(b"GIF8".to_vec())),
        ),
        (
            changed(micros(), 4, &[3]),
            (0, 0, Problem::Version { major: 3, known: 2 }),
        ),
        (
            changed(micros(), 32, &word(262_145)),
            (0, 24, Problem::TooLarge(262_145)),
        ),
        (
            changed(pcapng.clone(), 8, &[0]),
            (0, 0, Problem::ByteOrder([0, 0x3c, 0x2b, 0x1a])),
        ),
        (
            changed(pcapng.clone(), 12, &[2]),
            (0, 0, Problem::Version { major: 2, known: 1 }),
        ),
        (
            changed(pcapng.clone(), 72, &word(0)),
            (0, 68, Problem::BlockLength { kind: 6, len: 0 }),
        ),
        (
            changed(pcapng.clone(), 72, &word(93)),
            (0, 68, Problem::BlockLength { kind: 6, len: 93 }),
        ),
        (
            changed(pcapng.clone(), 72, &word(u32::MAX - 3)),
            (
                0,
                68,
                Problem::BlockLength {
                    kind: 6,
                    len: u32::MAX - 3,
                },
            ),
        ),
        (
            changed(pcapng.clone(), 156, &word(96)),
            (0, 68, Problem::BlockLength { kind: 6, len: 92 }),
        ),
        (
            changed(pcapng.clone(), 76, &word(1)),
            (0, 68, Problem::UnknownInterface { id: 1, known: 1 }),
        ),
        (
            changed(pcapng.clone(), 88, &word(61)),
            (0, 68, Problem::BlockLength { kind: 6, len: 92 }),
        ),
        (
            changed(pcapng.clone(), 88, &word(1 << 30)),
            (0, 68, Problem::TooLarge(1 << 30)),
        ),
        // The name of the interface reaches beyond its block.
        (
            changed(pcapng.clone(), 46, &[99]),
            (0, 28, Problem::BlockLength { kind: 1, len: 40 }),
        ),
        // A section header that is too short for its version.
        (
            hex("0a0d0d0a 10000000 4d3c2b1a 10000000"),
            (
                0,
                0,
                Problem::BlockLength {
                    kind: 0x0a0d_0d0a,
                    len: 16,
                },
            ),
        ),
    ] {
        assert_eq!(failure(&file), want);
    }
}
