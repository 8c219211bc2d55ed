//! Arbitrary bytes from an HTTP/3 server on its streams: no panics, the result does not depend on the pieces, and each
//! request ends at most once.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wb_http3::{Http3Connection, QpackDecoder, Http3Fault, ResponseSink, Http3Step};

#[derive(Debug, Default, PartialEq)]
struct Request {
    number: u64,
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
    steps: Vec<Http3Step<Request>>,
    left: Vec<Request>,
    fault: Option<Http3Fault>,
}

/// Requests 0 to 2, each on a separate stream, and three streams of the server.
fn read(streams: &[&[u8]; 6], piece: usize) -> Seen {
    let (mut connection, mut decoder, mut seen) =
        (Http3Connection::new(), QpackDecoder::new(), Seen::default());
    for number in 0..3 {
        let of = Request {
            number,
            ..Request::default()
        };
        connection.open(of, number == 2);
    }
    seen.fault = say(
        streams,
        piece,
        &mut connection,
        &mut decoder,
        &mut seen.steps,
    )
    .err();
    seen.left.extend(connection.drain());
    let mut numbers: Vec<u64> = seen.left.iter().map(|of| of.number).collect();
    numbers.extend(seen.steps.iter().map(|step| match step {
        Http3Step::Ended { of, .. } | Http3Step::Failed { of, .. } => of.number,
    }));
    numbers.sort_unstable();
    assert!(numbers.len() <= 3 && numbers.windows(2).all(|two| two[0] < two[1]));
    seen
}

fn say(
    streams: &[&[u8]; 6],
    piece: usize,
    connection: &mut Http3Connection<Request>,
    decoder: &mut QpackDecoder,
    steps: &mut Vec<Http3Step<Request>>,
) -> Result<(), Http3Fault> {
    let [requests @ .., a, b, c] = streams;
    for (number, stream) in (0..).zip([a, b, c]) {
        for piece in stream.chunks(piece) {
            connection.read_uni(number, piece)?;
        }
        while let Some((_, of)) = connection.unprocessed() {
            // Not reported as a step, but the request has ended all the same.
            drop(of);
        }
    }
    for (number, stream) in (0..).zip(requests) {
        for piece in stream.chunks(piece) {
            steps.extend(connection.read(number, decoder, piece, &mut Keep)?);
        }
        steps.extend(connection.end(number)?);
    }
    connection.end_uni(0)
}

fuzz_target!(|bytes: &[u8]| {
    let Some((&[piece, lengths @ ..], mut rest)) = bytes.split_first_chunk::<6>() else {
        return;
    };
    let mut streams: [&[u8]; 6] = [b""; 6];
    for (stream, len) in streams.iter_mut().zip(lengths) {
        (*stream, rest) = rest.split_at(rest.len().min(len.into()));
    }
    streams[5] = rest;
    let whole = read(&streams, usize::MAX);
    assert_eq!(read(&streams, usize::from(piece).max(1)), whole);
});
