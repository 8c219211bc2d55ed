//! Arbitrary bytes from an HTTP/2 server: no panics, the result does not depend on the pieces, each request ends at
//! most once, and the output to the server consists of complete frames.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wb_http2::{
    Http2Connection, HeaderDecoder, Http2Fault, ResponseSink, Http2Step,
    frame::{self, HEAD_LEN, FrameHeader},
};

#[derive(Debug, Default, PartialEq)]
struct Request {
    number: usize,
    head: Vec<u8>,
    body: Vec<u8>,
}

struct Keep;

impl ResponseSink<Request> for Keep {
    fn head<'a>(&mut self, of: &'a mut Request) -> Option<&'a mut Vec<u8>> {
        of.number.is_multiple_of(2).then_some(&mut of.head)
    }

    fn body(&mut self, of: &mut Request, bytes: &[u8]) {
        of.body.extend_from_slice(bytes);
    }
}

#[derive(Debug, Default, PartialEq)]
struct Seen {
    steps: Vec<Http2Step<Request>>,
    left: Vec<Request>,
    said: Vec<u8>,
    fault: Option<Http2Fault>,
}

fn read(stream: &[u8], requests: usize, body: &[u8], piece: usize) -> Seen {
    let (mut connection, mut decoder) = (Http2Connection::new(), HeaderDecoder::new());
    let (mut seen, mut number) = (Seen::default(), 0);
    for mut bytes in stream.chunks(piece.max(1)) {
        loop {
            match connection.read(&mut decoder, &mut bytes, &mut seen.said, &mut Keep) {
                Ok(Http2Step::More) => break,
                Ok(step) => seen.steps.push(step),
                Err(fault) => {
                    seen.fault = Some(fault);
                    return seen;
                }
            }
            // Each request that ends makes room for another.
            while connection.free_streams() > 0 && connection.open_streams() < requests {
                let of = Request {
                    number,
                    ..Request::default()
                };
                connection.open(of, number % 3 == 2, &[0x82], body, &mut seen.said);
                number += 1;
            }
        }
    }
    seen.left.extend(connection.drain());
    let mut numbers: Vec<usize> = seen.left.iter().map(|of| of.number).collect();
    numbers.extend(seen.steps.iter().filter_map(|step| match step {
        Http2Step::Ended { of, .. } | Http2Step::Failed { of, .. } => Some(of.number),
        _ => None,
    }));
    numbers.sort_unstable();
    assert!(numbers.into_iter().eq(0..number));
    seen
}

fuzz_target!(|bytes: &[u8]| {
    let Some((&[requests, body_len, piece], stream)) = bytes.split_first_chunk::<3>() else {
        return;
    };
    let mut came = Vec::new();
    frame::settings(&[], &mut came);
    came.extend_from_slice(stream);
    let requests = usize::from(requests % 8);
    let body = vec![7; usize::from(body_len) * 512];
    let whole = read(&came, requests, &body, came.len());
    assert_eq!(read(&came, requests, &body, piece.into()), whole);
    let mut said = &whole.said[..];
    while !said.is_empty() {
        let (head, rest) = said.split_first_chunk::<HEAD_LEN>().expect("a whole head");
        said = &rest[FrameHeader::read(head).len..];
    }
});
