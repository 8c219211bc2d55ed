//! A client that records what it receives.

use wb_http2::{
    HeaderDecoder, Http2Connection, Http2Fault, Http2Step, ResponseSink,
    frame::{self, flag, kind},
};

/// Heads and bodies, by request.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) heads: Vec<(u32, Vec<u8>)>,
    pub(crate) bodies: Vec<(u32, Vec<u8>)>,
    pub(crate) steps: Vec<Http2Step<u32>>,
    pub(crate) fault: Option<Http2Fault>,
    pub(crate) said: Vec<u8>,
}

/// A request that stores its response.
#[derive(Debug, Default)]
pub(crate) struct Request {
    number: u32,
    head: Vec<u8>,
    body: Vec<u8>,
}

struct Keep;

impl ResponseSink<Request> for Keep {
    fn head<'a>(&mut self, of: &'a mut Request) -> Option<&'a mut Vec<u8>> {
        Some(&mut of.head)
    }

    fn body(&mut self, of: &mut Request, bytes: &[u8]) {
        of.body.extend_from_slice(bytes);
    }
}

/// First frame of a server.
pub(crate) fn greeting(settings: &[(u16, u32)]) -> Vec<u8> {
    let mut out = Vec::new();
    frame::settings(settings, &mut out);
    out
}

/// Reads a stream in pieces of this length, on a connection with `requests` requests in flight.
pub(crate) fn read(requests: u32, stream: &[u8], piece: usize) -> Seen {
    let (mut connection, mut decoder) = (Http2Connection::new(), HeaderDecoder::new());
    let mut seen = Seen::default();
    for mut bytes in stream.chunks(piece.max(1)) {
        loop {
            let step = connection.read(&mut decoder, &mut bytes, &mut seen.said, &mut Keep);
            let mut keep = |of: Request| {
                seen.heads.push((of.number, of.head));
                seen.bodies.push((of.number, of.body));
                of.number
            };
            let step = match step {
                Ok(Http2Step::More) => break,
                Ok(Http2Step::Ready) => {
                    for number in 0..requests.min(connection.free_streams() as u32) {
                        let request = Request {
                            number,
                            ..Request::default()
                        };
                        connection.open(request, number == 2, &[0x82], b"", &mut seen.said);
                    }
                    Http2Step::Ready
                }
                Ok(Http2Step::Ended { of, status }) => Http2Step::Ended {
                    of: keep(of),
                    status,
                },
                Ok(Http2Step::Failed { of, why }) => Http2Step::Failed { of: keep(of), why },
                Ok(Http2Step::GoingAway { code }) => Http2Step::GoingAway { code },
                Err(fault) => {
                    seen.fault = Some(fault);
                    return seen;
                }
            };
            seen.steps.push(step);
        }
    }
    for of in connection.drain() {
        seen.heads.push((of.number, of.head));
        seen.bodies.push((of.number, of.body));
    }
    seen
}

/// A complete response without a body.
pub(crate) fn answer(stream: u32, block: &[u8], out: &mut Vec<u8>) {
    let flags = flag::END_HEADERS | flag::END_STREAM;
    frame::write(kind::HEADERS, flags, stream, block, out);
}
