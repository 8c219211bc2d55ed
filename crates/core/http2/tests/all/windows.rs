//! Flow control in both directions.

use proptest::prelude::*;
use wb_http2::{
    FailureReason, HeaderDecoder, Http2Connection, Http2Step, ResponseSink,
    frame::{self, FrameHeader, HEAD_LEN, LONGEST_PAYLOAD, flag, kind, setting},
};

use crate::kit::greeting;

struct Nothing;

impl ResponseSink<()> for Nothing {}

/// Splits bytes into frames.
fn frames(mut bytes: &[u8]) -> Vec<(FrameHeader, Vec<u8>)> {
    let mut all = Vec::new();
    while let Some((head, rest)) = bytes.split_first_chunk::<HEAD_LEN>() {
        let head = FrameHeader::read(head);
        let (payload, rest) = rest.split_at(head.len);
        all.push((head, payload.to_vec()));
        bytes = rest;
    }
    all
}

fn open(settings: &[(u16, u32)]) -> (Http2Connection<()>, HeaderDecoder) {
    let (mut connection, mut decoder) = (Http2Connection::new(), HeaderDecoder::new());
    let first = greeting(settings);
    let step = connection.read(&mut decoder, &mut &first[..], &mut Vec::new(), &mut Nothing);
    assert_eq!(step, Ok(Http2Step::Ready));
    (connection, decoder)
}

#[test]
fn a_long_head_goes_on_in_frames_of_its_own() {
    let (mut connection, _) = open(&[]);
    let block: Vec<u8> = (0..40_000).map(|n| n as u8).collect();
    let mut out = Vec::new();
    connection.open((), false, &block, b"", &mut out);
    let frames = frames(&out);
    let form: Vec<_> = frames.iter().map(|(h, _)| (h.kind, h.flags)).collect();
    assert_eq!(
        form,
        [
            (kind::HEADERS, flag::END_STREAM),
            (kind::CONTINUATION, 0),
            (kind::CONTINUATION, flag::END_HEADERS)
        ]
    );
    let all: Vec<u8> = frames
        .into_iter()
        .flat_map(|(_, payload)| payload)
        .collect();
    assert_eq!(all, block);
}

#[test]
fn trailers_are_not_taken_for_the_head_that_they_equal() {
    let (mut connection, mut decoder) = open(&[]);
    let mut out = Vec::new();
    connection.open((), false, &[0x82], b"", &mut out);
    let mut came = Vec::new();
    frame::write(kind::HEADERS, flag::END_HEADERS, 1, &[0x88], &mut came);
    let flags = flag::END_HEADERS | flag::END_STREAM;
    frame::write(kind::HEADERS, flags, 1, &[0x88], &mut came);
    let step = connection.read(&mut decoder, &mut &came[..], &mut out, &mut Nothing);
    let why = FailureReason::Malformed("misplaced pseudo-header");
    assert_eq!(step, Ok(Http2Step::Failed { of: (), why }));
}

#[test]
fn a_server_is_allowed_more_before_it_has_to_wait() {
    let (mut connection, mut decoder) = open(&[]);
    let mut out = Vec::new();
    connection.open((), false, &[0x82], b"", &mut out);
    out.clear();
    let mut came = Vec::new();
    frame::write(kind::HEADERS, flag::END_HEADERS, 1, &[0x88], &mut came);
    let mut received = 0_u64;
    let mut allowed = [u64::from(u32::MAX >> 1); 2];
    let mut data = Vec::new();
    frame::write(kind::DATA, 0, 1, &[0; LONGEST_PAYLOAD], &mut data);
    while received < 5 << 30 {
        came.extend_from_slice(&data);
        let step = connection.read(&mut decoder, &mut &came[..], &mut out, &mut Nothing);
        assert_eq!(step, Ok(Http2Step::More));
        came.clear();
        received += LONGEST_PAYLOAD as u64;
        for (head, payload) in frames(&out) {
            assert_eq!(head.kind, kind::WINDOW_UPDATE);
            let more = u32::from_be_bytes(payload.try_into().unwrap());
            let window = &mut allowed[head.stream as usize];
            *window += u64::from(more);
            assert!(*window - received <= u64::from(u32::MAX >> 1));
        }
        out.clear();
        assert!(allowed.iter().all(|n| *n > received + (1 << 29)));
    }
}

proptest! {
    /// Bodies arrive complete, and never exceed the windows.
    #[test]
    fn windows_hold(
        bodies in prop::collection::vec(1_usize..60_000, 1..5),
        first in 0_u32..100_000,
        later in 0_u32..100_000,
        credits in prop::collection::vec((0_u32..6, 1_u32..40_000), 0..40),
    ) {
        let (mut connection, mut decoder) = open(&[(setting::INITIAL_WINDOW_SIZE, first)]);
        let mut out = Vec::new();
        for body in &bodies {
            connection.open((), false, &[0x82], &vec![7; *body], &mut out);
        }
        let n = bodies.len() as u32;
        let mut windows = vec![65_535_i64];
        windows.extend(vec![i64::from(first); bodies.len()]);
        let mut got = vec![0; bodies.len()];
        let mut ended = 0;
        let mut came = vec![Vec::new()];
        for (at, (stream, more)) in credits.into_iter().enumerate() {
            let mut frame = Vec::new();
            if at == 5 {
                frame = greeting(&[(setting::INITIAL_WINDOW_SIZE, later)]);
            } else if stream <= n {
                let number = if stream == 0 { 0 } else { stream * 2 - 1 };
                frame::write(kind::WINDOW_UPDATE, 0, number, &more.to_be_bytes(), &mut frame);
            }
            came.push(frame);
        }
        // Finally the windows allow everything.
        for stream in 0..=n {
            let number = if stream == 0 { 0 } else { stream * 2 - 1 };
            let mut frame = Vec::new();
            frame::write(kind::WINDOW_UPDATE, 0, number, &1_000_000_u32.to_be_bytes(), &mut frame);
            came.push(frame);
        }
        for bytes in came {
            for (head, payload) in frames(&bytes) {
                match head.kind {
                    kind::WINDOW_UPDATE => {
                        let more = u32::from_be_bytes(payload.try_into().unwrap());
                        windows[head.stream.div_ceil(2) as usize] += i64::from(more);
                    }
                    _ => windows[1..].iter_mut().for_each(|w| *w += i64::from(later) - i64::from(first)),
                }
            }
            let step = connection.read(&mut decoder, &mut &bytes[..], &mut out, &mut Nothing);
            prop_assert_eq!(step, Ok(Http2Step::More));
            for (head, payload) in frames(&out) {
                if head.kind != kind::DATA {
                    continue;
                }
                let stream = head.stream.div_ceil(2) as usize;
                for at in [0, stream] {
                    windows[at] -= payload.len() as i64;
                    prop_assert!(windows[at] >= 0);
                }
                got[stream - 1] += payload.len();
                ended += u32::from(head.flags & flag::END_STREAM != 0);
                prop_assert!(payload.iter().all(|b| *b == 7));
            }
            out.clear();
        }
        prop_assert_eq!(got, bodies);
        prop_assert_eq!(ended, n);
    }
}
