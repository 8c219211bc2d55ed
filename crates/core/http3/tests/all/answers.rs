//! Request streams: RFC 9114 section 4.1.

use proptest::prelude::*;
use wb_http3::{
    Http3Connection, Http3Fault, Http3Step, QpackDecoder, ResponseSink, StreamFailure,
    frame::{self, code, kind},
    qpack, request,
};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Request {
    head: Vec<u8>,
    body: Vec<u8>,
}

struct Keep;

impl ResponseSink<Request> for Keep {
    fn head<'a>(&mut self, of: &'a mut Request) -> Option<&'a mut Vec<u8>> {
        of.head.clear();
        Some(&mut of.head)
    }

    fn body(&mut self, of: &mut Request, bytes: &[u8]) {
        of.body.extend_from_slice(bytes);
    }
}

/// Reads a stream in pieces of this length.
fn read(stream: &[u8], head: bool, piece: usize) -> Result<Option<Http3Step<Request>>, Http3Fault> {
    let (mut connection, mut decoder) = (Http3Connection::new(), QpackDecoder::new());
    connection.open(Request::default(), head);
    for bytes in stream.chunks(piece.max(1)) {
        let step = connection.read(0, &mut decoder, bytes, &mut Keep)?;
        if step.is_some() {
            assert_eq!(connection.open_streams(), 0);
            return Ok(step);
        }
    }
    connection.end(0)
}

fn head(fields: &[(&str, &str)]) -> Vec<u8> {
    let (mut block, mut out) = (Vec::new(), Vec::new());
    qpack::begin(&mut block);
    for (name, value) in fields {
        qpack::field(name, value, &mut block);
    }
    frame::write(kind::HEADERS, &block, &mut out);
    out
}

fn body(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    frame::write(kind::DATA, bytes, &mut out);
    out
}

fn other(kind: u64, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    frame::write(kind, payload, &mut out);
    out
}

const OK: [(&str, &str); 2] = [(":status", "200"), ("content-length", "5")];

#[test]
fn answers_of_every_form_are_whole_in_pieces_of_every_size() {
    let unknown = other(0x4f3, b"what nobody knows");
    let forms = [
        [head(&OK), body(b"hello")].concat(),
        [head(&OK), body(b"he"), body(b""), body(b"llo")].concat(),
        [
            unknown.clone(),
            head(&OK),
            unknown.clone(),
            body(b"hello"),
            unknown,
        ]
        .concat(),
        [
            head(&[(":status", "103"), ("link", "x")]),
            head(&OK),
            body(b"hello"),
        ]
        .concat(),
        [
            head(&OK),
            body(b"hello"),
            head(&[("x-sum", "1")]),
            other(0x21, b""),
        ]
        .concat(),
        [head(&[(":status", "200")]), body(b"hello")].concat(),
    ];
    for stream in forms {
        for piece in 1..=stream.len() {
            let Ok(Some(Http3Step::Ended { of, status: 200 })) = read(&stream, false, piece) else {
                panic!("{piece} of {stream:?}");
            };
            assert_eq!(of.body, b"hello");
            let text = String::from_utf8(of.head).unwrap();
            assert!(text.starts_with("HTTP/3 200\r\n"), "{text}");
            assert!(text.ends_with("\r\n\r\n"), "{text}");
        }
    }
}

#[test]
fn an_answer_to_head_and_those_without_body_may_name_its_length() {
    let ended =
        |stream: &[u8], head| matches!(read(stream, head, 3), Ok(Some(Http3Step::Ended { .. })));
    assert!(ended(&head(&OK), true));
    assert!(!ended(&head(&OK), false));
    assert!(ended(
        &head(&[(":status", "304"), ("content-length", "5")]),
        false
    ));
}

#[test]
fn what_is_wrong_with_one_answer_is_its_own() {
    for (stream, wanted) in [
        (Vec::new(), "stream ended before HEADERS"),
        (head(&[(":status", "103")]), "stream ended before HEADERS"),
        ([head(&OK), body(b"hell")].concat(), "shorter"),
        ([head(&OK), body(b"hello!")].concat(), "longer"),
        ([head(&OK), body(b"hello"), body(b"!")].concat(), "longer"),
        (head(&[("a", "b")]), "missing :status"),
        (head(&[(":status", "101")]), "status 101"),
        (head(&[(":status", "2000")]), "not a number"),
        (
            head(&[(":status", "200"), ("X", "b")]),
            "invalid header name",
        ),
        (
            head(&[(":status", "200"), ("connection", "close")]),
            "HTTP/1.1 only",
        ),
        (
            [head(&OK), head(&[(":status", "200")])].concat(),
            "pseudo-header",
        ),
    ] {
        for piece in [1, 2, 7, 1000] {
            match read(&stream, false, piece) {
                Ok(Some(Http3Step::Failed {
                    why: StreamFailure::Malformed(what),
                    ..
                })) => {
                    assert!(what.contains(wanted), "{what}, not {wanted}");
                }
                result => panic!("{wanted}: {result:?}"),
            }
        }
    }
}

#[test]
fn what_breaks_the_protocol_ends_the_connection() {
    let long = vec![0; 65_537];
    for (stream, wanted) in [
        (body(b"hello"), code::FRAME_UNEXPECTED),
        (
            [head(&[(":status", "103")]), body(b"x")].concat(),
            code::FRAME_UNEXPECTED,
        ),
        (
            [head(&OK), head(&[("a", "b")]), body(b"hello")].concat(),
            code::FRAME_UNEXPECTED,
        ),
        (
            [head(&OK), head(&[("a", "b")]), head(&[("a", "b")])].concat(),
            code::FRAME_UNEXPECTED,
        ),
        (other(kind::SETTINGS, b""), code::FRAME_UNEXPECTED),
        (other(kind::GOAWAY, b"\0"), code::FRAME_UNEXPECTED),
        (other(kind::MAX_PUSH_ID, b"\0"), code::FRAME_UNEXPECTED),
        (other(0x2, b""), code::FRAME_UNEXPECTED),
        (other(0x8, b""), code::FRAME_UNEXPECTED),
        (other(kind::PUSH_PROMISE, b"\0"), code::ID_ERROR),
        (other(kind::HEADERS, &long), code::EXCESSIVE_LOAD),
        (other(kind::HEADERS, b""), code::DECOMPRESSION_FAILED),
        (
            other(kind::HEADERS, &[2, 0, 0x80]),
            code::DECOMPRESSION_FAILED,
        ),
        (
            other(kind::HEADERS, &[0, 0, 0x80]),
            code::DECOMPRESSION_FAILED,
        ),
        (vec![1], code::FRAME_ERROR),
        ([head(&OK), vec![0, 5, b'h']].concat(), code::FRAME_ERROR),
    ] {
        for piece in [1, 3, usize::MAX] {
            match read(&stream, false, piece) {
                Err(fault) => assert_eq!(fault.code, wanted, "{fault:?}"),
                result => panic!("{wanted:x}: {result:?}"),
            }
        }
    }
}

#[test]
fn requests_keep_their_numbers_whichever_ends_first() {
    let (mut connection, mut decoder) = (Http3Connection::new(), QpackDecoder::new());
    for _ in 0..4 {
        connection.open(Request::default(), false);
    }
    let answer = [head(&OK), body(b"hello")].concat();
    for number in [2, 0, 3] {
        assert_eq!(
            connection.read(number, &mut decoder, &answer, &mut Keep),
            Ok(None)
        );
        assert!(matches!(
            connection.end(number),
            Ok(Some(Http3Step::Ended { .. }))
        ));
        // The request has ended, and later bytes are ignored.
        assert_eq!(
            connection.read(number, &mut decoder, b"\x04\0", &mut Keep),
            Ok(None)
        );
        assert_eq!(connection.end(number), Ok(None));
    }
    assert_eq!(
        (connection.open_streams(), connection.requests().count()),
        (1, 1)
    );
    assert_eq!(connection.find(true, |_| true), Some(1));
    connection.open(Request::default(), false);
    assert_eq!(connection.find(false, |of| of.head == b"x"), None);
    assert!(connection.remove_request(4).is_some());
    assert_eq!(connection.drain().count(), 1);
    assert_eq!(connection.open_streams(), 0);
}

#[test]
fn a_request_is_a_head_and_the_beginning_of_its_body() {
    let mut out = Vec::new();
    request(b"abc", 0, &mut out);
    assert_eq!(out, b"\x01\x03abc");
    out.clear();
    request(b"abc", 300, &mut out);
    assert_eq!(out, b"\x01\x03abc\0\x41\x2c");
}

proptest! {
    #[test]
    fn numbers_are_read_as_written(n in 0..=frame::LARGEST, shift in 0..62_u32) {
        let n = n >> shift;
        let mut out = Vec::new();
        frame::number(n, &mut out);
        prop_assert_eq!(frame::take_integer(&mut &out[..out.len() - 1]), None);
        out.push(7);
        let mut rest = &out[..];
        prop_assert_eq!(frame::take_integer(&mut rest), Some(n));
        prop_assert_eq!(rest, &[7]);
    }

    #[test]
    fn pieces_do_not_matter(
        frames in prop::collection::vec((0..6_u8, prop::collection::vec(any::<u8>(), 0..20)), 0..6),
        cut in 0..200_usize,
        piece in 1..50_usize,
        is_head in any::<bool>(),
    ) {
        let mut stream = Vec::new();
        for (kind, payload) in &frames {
            match kind {
                0 => stream.extend(head(&OK)),
                1 => stream.extend(head(&[(":status", "103")])),
                2 => stream.extend(body(payload)),
                3 => stream.extend(other(0x21, payload)),
                4 => stream.extend(head(&[("x", "y")])),
                _ => stream.extend_from_slice(payload),
            }
        }
        stream.truncate(cut);
        prop_assert_eq!(read(&stream, is_head, piece), read(&stream, is_head, usize::MAX));
    }
}
