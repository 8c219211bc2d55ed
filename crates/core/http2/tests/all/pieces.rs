//! The result does not depend on how the server's bytes are cut into pieces.

use proptest::prelude::*;
use wb_http2::frame::{self, kind, setting};

use crate::kit::{greeting, read};

/// Frames that a server might send, valid and invalid ones.
fn frame() -> impl Strategy<Value = Vec<u8>> {
    let stream = prop_oneof![4 => (0_u32..5).prop_map(|n| n * 2 + 1), 1 => 0_u32..20];
    let block = prop_oneof![
        Just(vec![0x88]),
        Just(vec![0x20, 0x8d, 0x0f, 0x0d, 0x01, b'3']),
        Just(vec![0x08, 0x03, b'1', b'0', b'3']),
        prop::collection::vec(any::<u8>(), 0..6),
    ];
    let payload = prop::collection::vec(0_u8..9, 0..12);
    let common = (stream, 0_u8..64, block, payload);
    (0_u8..12, common).prop_map(|(kind, (stream, flags, block, payload))| {
        let mut out = Vec::new();
        match kind {
            kind::HEADERS | kind::CONTINUATION => {
                // Mostly without padding and priority before the block.
                let flags = if payload.len() < 10 {
                    flags & 0x5 | 4
                } else {
                    flags
                };
                frame::write(kind, flags, stream, &block, &mut out);
            }
            kind::PING | kind::GOAWAY => {
                frame::write(kind, flags, 0, &[0, 0, 0, 5, 0, 0, 0, 1], &mut out)
            }
            kind::SETTINGS => frame::settings(&[(setting::INITIAL_WINDOW_SIZE, stream)], &mut out),
            kind::RST_STREAM => frame::write(kind, flags, stream, &[0, 0, 0, 7], &mut out),
            _ => frame::write(kind, flags & 0x9, stream, &payload, &mut out),
        }
        out
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn pieces_do_not_matter(frames in prop::collection::vec(frame(), 0..12), piece in 1_usize..40) {
        let mut stream = greeting(&[(setting::MAX_CONCURRENT_STREAMS, 4)]);
        stream.extend(frames.concat());
        let whole = read(10, &stream, usize::MAX);
        let cut = read(10, &stream, piece);
        prop_assert_eq!(&whole.steps, &cut.steps);
        prop_assert_eq!(whole.fault, cut.fault);
        prop_assert_eq!(&whole.said, &cut.said);
        prop_assert_eq!(&whole.heads, &cut.heads);
        prop_assert_eq!(&whole.bodies, &cut.bodies);
        // Each request ends at most once, and is either ended or still open.
        let mut numbers: Vec<u32> = whole.bodies.iter().map(|(number, _)| *number).collect();
        numbers.sort_unstable();
        let opened = if whole.steps.is_empty() { 0 } else { 4 };
        if whole.fault.is_none() {
            prop_assert_eq!(numbers, (0..opened).collect::<Vec<_>>());
        }
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200), piece in 1_usize..40) {
        let stream = [greeting(&[]), bytes].concat();
        prop_assert_eq!(read(3, &stream, usize::MAX).fault, read(3, &stream, piece).fault);
    }
}
