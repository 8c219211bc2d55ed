//! Second, simple writer of both formats in both byte orders: an independent reference for the library's writer (little
//! endian) and readers (both), and the source of files for other tests.

use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;
use wb_pcapng::{CaptureInterface, TimeUnit};

/// Writes numbers in one byte order.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Order {
    pub(crate) big: bool,
}

impl Order {
    pub(crate) fn u16(self, n: u16) -> Vec<u8> {
        if self.big {
            n.to_be_bytes()
        } else {
            n.to_le_bytes()
        }
        .to_vec()
    }

    pub(crate) fn u32(self, n: u32) -> Vec<u8> {
        if self.big {
            n.to_be_bytes()
        } else {
            n.to_le_bytes()
        }
        .to_vec()
    }

    pub(crate) fn u64(self, n: u64) -> Vec<u8> {
        if self.big {
            n.to_be_bytes()
        } else {
            n.to_le_bytes()
        }
        .to_vec()
    }

    fn time(self, n: u64) -> Vec<u8> {
        [self.u32((n >> 32) as u32), self.u32(n as u32)].concat()
    }

    fn options(self, options: &[(u16, Option<Vec<u8>>)]) -> Vec<u8> {
        let mut out = Vec::new();
        for (code, value) in options {
            if let Some(value) = value {
                out.extend([self.u16(*code), self.u16(value.len() as u16)].concat());
                out.extend(padded(value));
            }
        }
        if !out.is_empty() {
            out.extend([0; 4]);
        }
        out
    }

    pub(crate) fn block(self, kind: u32, body: &[u8]) -> Vec<u8> {
        let len = self.u32(body.len() as u32 + 12);
        [self.u32(kind), len.clone(), body.to_vec(), len].concat()
    }
}

fn padded(bytes: &[u8]) -> Vec<u8> {
    let mut out = bytes.to_vec();
    while !out.len().is_multiple_of(4) {
        out.push(0);
    }
    out
}

fn bytes(text: &Option<String>) -> Option<Vec<u8>> {
    text.as_ref().map(|text| text.as_bytes().to_vec())
}

/// One block after the section header and the interfaces.
#[derive(Clone, Debug)]
pub(crate) enum Piece {
    Packet(Packet),
    /// Statistics of an interface: stamp, and the options 2 to 8.
    Statistics(u32, u64, [Option<u64>; 7]),
    Custom(u32, Vec<u8>),
    /// Block of an unknown type.
    Unknown(Vec<u8>),
}

#[derive(Clone, Debug)]
pub(crate) struct Packet {
    pub(crate) interface: u32,
    pub(crate) ticks: u64,
    pub(crate) original_len: u32,
    pub(crate) captured: Vec<u8>,
    pub(crate) comment: Option<String>,
    pub(crate) flags: Option<u32>,
    pub(crate) drop_count: Option<u64>,
    pub(crate) packet_id: Option<u64>,
    pub(crate) queue: Option<u32>,
}

#[derive(Clone, Debug)]
pub(crate) struct File {
    pub(crate) texts: [Option<String>; 4],
    pub(crate) interfaces: Vec<CaptureInterface>,
    pub(crate) pieces: Vec<Piece>,
}

/// Writes a section as a list of blocks.
pub(crate) fn pcapng(file: &File, order: Order) -> Vec<Vec<u8>> {
    let [comment, hardware, os, application] = &file.texts;
    let head = [
        order.u32(0x1a2b_3c4d),
        order.u16(1),
        order.u16(0),
        order.u64(u64::MAX),
    ]
    .concat();
    let texts = [
        (1, bytes(comment)),
        (2, bytes(hardware)),
        (3, bytes(os)),
        (4, bytes(application)),
    ];
    let mut blocks = vec![order.block(0x0a0d_0d0a, &[head, order.options(&texts)].concat())];
    for i in &file.interfaces {
        let head = [order.u16(i.link_type), order.u16(0), order.u32(i.snap_len)].concat();
        let filter = i.filter.as_ref().map(|f| [&[0], f.as_bytes()].concat());
        let options = [
            (2, bytes(&i.name)),
            (3, bytes(&i.description)),
            (6, i.mac.map(|mac| mac.to_vec())),
            (8, i.speed_bps.map(|n| order.u64(n))),
            (9, Some(vec![i.time_unit.tsresol()])),
            (11, filter),
            (12, bytes(&i.os)),
            (13, (i.fcs_len > 0).then(|| vec![i.fcs_len])),
            (
                14,
                (i.time_offset != 0).then(|| order.u64(i.time_offset as u64)),
            ),
        ];
        blocks.push(order.block(1, &[head, order.options(&options)].concat()));
    }
    blocks.extend(file.pieces.iter().map(|piece| block(piece, order)));
    blocks
}

fn block(piece: &Piece, order: Order) -> Vec<u8> {
    match piece {
        Piece::Packet(p) => {
            let head = [
                order.u32(p.interface),
                order.time(p.ticks),
                order.u32(p.captured.len() as u32),
                order.u32(p.original_len),
            ];
            let options = [
                (1, bytes(&p.comment)),
                (2, p.flags.map(|n| order.u32(n))),
                (4, p.drop_count.map(|n| order.u64(n))),
                (5, p.packet_id.map(|n| order.u64(n))),
                (6, p.queue.map(|n| order.u32(n))),
            ];
            let body = [head.concat(), padded(&p.captured), order.options(&options)];
            order.block(6, &body.concat())
        }
        Piece::Statistics(interface, stamp, numbers) => {
            let option = |(i, n): (usize, &Option<u64>)| {
                let value = n.map(|n| if i < 2 { order.time(n) } else { order.u64(n) });
                (i as u16 + 2, value)
            };
            let options: Vec<_> = numbers.iter().enumerate().map(option).collect();
            let body = [
                order.u32(*interface),
                order.time(*stamp),
                order.options(&options),
            ];
            order.block(5, &body.concat())
        }
        Piece::Custom(enterprise, content) => {
            order.block(0xbad, &[order.u32(*enterprise), padded(content)].concat())
        }
        Piece::Unknown(content) => order.block(0x8000_0abc, &padded(content)),
    }
}

/// Writes a pcap file as a list of its header and records.
pub(crate) fn pcap(packets: &[Packet], link_type: u16, nano: bool, order: Order) -> Vec<Vec<u8>> {
    let magic = if nano { 0xa1b2_3c4d } else { 0xa1b2_c3d4 };
    let mut blocks = vec![
        [
            order.u32(magic),
            order.u16(2),
            order.u16(4),
            vec![0; 8],
            order.u32(262_144),
            order.u32(link_type.into()),
        ]
        .concat(),
    ];
    for p in packets {
        let unit = if nano { 1 } else { 1000 };
        blocks.push(
            [
                order.u32((p.ticks / 1_000_000_000) as u32),
                order.u32((p.ticks % 1_000_000_000) as u32 / unit),
                order.u32(p.captured.len() as u32),
                order.u32(p.original_len),
                p.captured.clone(),
            ]
            .concat(),
        );
    }
    blocks
}

fn words() -> impl Strategy<Value = Option<String>> {
    of("[a-zé/ ]{0,9}")
}

pub(crate) fn order() -> impl Strategy<Value = Order> {
    any::<bool>().prop_map(|big| Order { big })
}

fn interface() -> impl Strategy<Value = CaptureInterface> {
    let texts = (words(), words(), words(), words());
    let numbers = (
        any::<u16>(),
        any::<u32>(),
        any::<u8>(),
        any::<u8>(),
        any::<i64>(),
    );
    (texts, numbers, of(any::<[u8; 6]>()), of(any::<u64>())).prop_map(
        |(
            (name, description, filter, os),
            (link_type, snap_len, unit, fcs_len, offset),
            mac,
            speed_bps,
        )| {
            CaptureInterface {
                link_type,
                snap_len,
                name,
                description,
                mac,
                speed_bps,
                filter,
                os,
                fcs_len,
                time_unit: TimeUnit::from_tsresol(unit),
                // Half of them have none, as nearly all real files.
                time_offset: if offset % 2 == 0 { 0 } else { offset },
            }
        },
    )
}

pub(crate) fn packet(interfaces: u32) -> impl Strategy<Value = Packet> {
    let head = (
        0..interfaces,
        any::<u64>(),
        any::<u32>(),
        vec(any::<u8>(), 0..80),
    );
    let options = (
        words(),
        of(any::<u32>()),
        of(any::<u64>()),
        of(any::<u64>()),
        of(any::<u32>()),
    );
    (head, options).prop_map(
        |(
            (interface, ticks, original_len, captured),
            (comment, flags, drop_count, packet_id, queue),
        )| Packet {
            interface,
            ticks,
            original_len,
            captured,
            comment,
            flags,
            drop_count,
            packet_id,
            queue,
        },
    )
}

fn piece(interfaces: u32) -> impl Strategy<Value = Piece> {
    prop_oneof![
        4 => packet(interfaces).prop_map(Piece::Packet),
        1 => (0..interfaces, any::<u64>(), any::<[Option<u64>; 7]>())
            .prop_map(|(interface, stamp, numbers)| Piece::Statistics(interface, stamp, numbers)),
        1 => (any::<u32>(), vec(any::<u8>(), 0..20)).prop_map(|(pen, content)| Piece::Custom(pen, content)),
        1 => vec(any::<u8>(), 0..20).prop_map(Piece::Unknown),
    ]
}

pub(crate) fn file() -> impl Strategy<Value = File> {
    (vec(interface(), 1..4), [words(), words(), words(), words()]).prop_flat_map(
        |(interfaces, texts)| {
            let known = interfaces.len() as u32;
            vec(piece(known), 0..10).prop_map(move |pieces| File {
                texts: texts.clone(),
                interfaces: interfaces.clone(),
                pieces,
            })
        },
    )
}
