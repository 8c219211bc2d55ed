//! Streams that the server opens: RFC 9114 section 6.2, RFC 9204 section 4.

use wb_http3::{
    Http3Connection, Http3Fault,
    frame::{self, code, kind, setting, stream},
};

fn settings(all: &[(u64, u64)]) -> Vec<u8> {
    let mut out = vec![stream::CONTROL as u8];
    frame::settings(all, &mut out);
    out
}

fn and(mut before: Vec<u8>, kind: u64, payload: &[u8]) -> Vec<u8> {
    frame::write(kind, payload, &mut before);
    before
}

/// Reads a stream in pieces of this length on a connection with three requests. Also returns whether the server goes
/// away.
fn read(bytes: &[u8], piece: usize) -> Result<(Http3Connection<u32>, bool), Http3Fault> {
    let mut connection = Http3Connection::new();
    for of in 0..3 {
        connection.open(of, false);
    }
    let mut away = false;
    for piece in bytes.chunks(piece.max(1)) {
        away |= connection.read_uni(5, piece)?;
    }
    Ok((connection, away))
}

#[test]
fn goaway_says_which_requests_are_not_looked_at() {
    let all = [
        (setting::QPACK_MAX_TABLE_CAPACITY, 4096),
        (setting::QPACK_BLOCKED_STREAMS, 16),
        (0x1f * 7 + 0x21, 9),
    ];
    for (id, left) in [(0_u8, 0), (4, 1), (8, 2), (12, 3), (60, 3)] {
        let stream = and(and(settings(&all), 0x21, b"grease"), kind::GOAWAY, &[id]);
        for piece in 1..=stream.len() {
            let (mut connection, away) = read(&stream, piece).unwrap();
            assert!(away && connection.is_over());
            let mut lost = Vec::new();
            while let Some((number, of)) = connection.unprocessed() {
                assert_eq!(number, u64::from(of));
                lost.push(of);
            }
            assert_eq!((lost.len(), connection.open_streams()), (3 - left, left));
        }
    }
    let (connection, away) = read(&settings(&all), 2).unwrap();
    assert!(!away && !connection.is_over());
}

#[test]
fn what_breaks_the_protocol_ends_the_connection() {
    let fine = settings(&[]);
    let long = vec![0; 4097];
    let typed = |kind: u64, rest: &[u8]| [&[kind as u8][..], rest].concat();
    for (stream, wanted) in [
        (
            and(typed(0, b""), kind::GOAWAY, &[0]),
            code::MISSING_SETTINGS,
        ),
        (and(typed(0, b""), 0x21, b"grease"), code::MISSING_SETTINGS),
        (
            and(fine.clone(), kind::SETTINGS, b""),
            code::FRAME_UNEXPECTED,
        ),
        (and(fine.clone(), kind::DATA, b""), code::FRAME_UNEXPECTED),
        (
            and(fine.clone(), kind::HEADERS, b""),
            code::FRAME_UNEXPECTED,
        ),
        (
            and(fine.clone(), kind::PUSH_PROMISE, b""),
            code::FRAME_UNEXPECTED,
        ),
        (
            and(fine.clone(), kind::MAX_PUSH_ID, &[1]),
            code::FRAME_UNEXPECTED,
        ),
        (and(fine.clone(), 0x6, b"12345678"), code::FRAME_UNEXPECTED),
        (and(fine.clone(), kind::CANCEL_PUSH, &[0]), code::ID_ERROR),
        (and(fine.clone(), kind::GOAWAY, &[2]), code::ID_ERROR),
        (
            and(and(fine.clone(), kind::GOAWAY, &[4]), kind::GOAWAY, &[8]),
            code::ID_ERROR,
        ),
        (and(fine.clone(), kind::GOAWAY, &[]), code::FRAME_ERROR),
        (and(fine.clone(), kind::GOAWAY, &[0, 0]), code::FRAME_ERROR),
        (and(fine.clone(), kind::GOAWAY, &long), code::EXCESSIVE_LOAD),
        (
            and(typed(0, b""), kind::SETTINGS, &long),
            code::EXCESSIVE_LOAD,
        ),
        (and(typed(0, b""), kind::SETTINGS, &[1]), code::FRAME_ERROR),
        (settings(&[(0x2, 1)]), code::SETTINGS_ERROR),
        (settings(&[(0x5, 1)]), code::SETTINGS_ERROR),
        (settings(&[(6, 1), (7, 1), (6, 1)]), code::SETTINGS_ERROR),
        (typed(stream::PUSH, &[0]), code::ID_ERROR),
        // RFC 9204 appendix B.2: a table of 220 bytes, but ours is empty.
        (
            typed(stream::ENCODER, &[0x3f, 0xbd, 0x01]),
            code::ENCODER_STREAM_ERROR,
        ),
        (
            typed(stream::ENCODER, &[0x20, 0x02]),
            code::ENCODER_STREAM_ERROR,
        ),
    ] {
        for piece in [1, 2, usize::MAX] {
            match read(&stream, piece) {
                Err(fault) => assert_eq!(fault.code, wanted, "{fault:?}"),
                Ok(_) => panic!("{wanted:x}: {stream:?}"),
            }
        }
    }
}

#[test]
fn each_is_there_once_and_stays() {
    for kind in [stream::CONTROL, stream::ENCODER, stream::DECODER] {
        let mut connection = Http3Connection::<u32>::new();
        assert_eq!(connection.read_uni(0, &[kind as u8]), Ok(false));
        let twice = connection.read_uni(1, &[kind as u8]).unwrap_err();
        assert_eq!(twice.code, code::STREAM_CREATION_ERROR);
        let ended = connection.end_uni(0).unwrap_err();
        assert_eq!(ended.code, code::CLOSED_CRITICAL_STREAM);
    }
    // Streams of other types are ignored. A stream without a complete type may end too.
    let mut connection = Http3Connection::<u32>::new();
    assert_eq!(connection.read_uni(0, b"\x40\x54whatever"), Ok(false));
    assert_eq!(connection.end_uni(0), Ok(()));
    assert_eq!(connection.read_uni(1, b"\x40"), Ok(false));
    assert_eq!(connection.end_uni(1), Ok(()));
    assert_eq!(connection.end_uni(9), Ok(()));
    // Acknowledgements of an unused table, and confirmations that it stays empty.
    assert_eq!(connection.read_uni(2, b"\x03\x44"), Ok(false));
    assert_eq!(connection.read_uni(3, b"\x02\x20\x20"), Ok(false));
}
