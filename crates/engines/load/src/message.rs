//! Builds requests and answers as bytes.

use wb_model::load::{HttpRequest, LoadAnswer, LoadMessage, LoadRoute};
use wb_tcp::{Filler, Message, Route, ServerAnswer};

/// Inputs for messages in addition to the plan.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MessageInputs<'a> {
    /// Contents of the file that the plan names, read by the engine.
    pub(crate) file: Option<&'a [u8]>,
    /// Host header if the plan has none.
    pub(crate) host: &'a str,
    /// Seed of random letters.
    pub(crate) seed: u64,
    /// Use the texts of dperf.
    pub(crate) like_dperf: bool,
    /// Largest segment.
    pub(crate) mss: u16,
    /// The server closes after an answer.
    pub(crate) closes: bool,
    /// Fill HTTP messages with random letters.
    pub(crate) random: bool,
}

impl MessageInputs<'_> {
    /// A client's message; `None` if the plan names a file and its contents are missing.
    pub(crate) fn request_message(&self, message: &LoadMessage) -> Option<Message> {
        Some(match message {
            LoadMessage::Bytes(len) => self.filler_message(*len, Filler::Letter(b'a')),
            LoadMessage::Random(len) => self.filler_message(*len, Filler::Random(self.seed)),
            LoadMessage::File(_) => Message::bytes(self.file?),
            LoadMessage::Http(request) => self.http_request(request),
            LoadMessage::Rip(first) => Message::bytes(&wb_services::rip::update(*first == 2)),
            LoadMessage::Snmp(community) => {
                Message::bytes(&wb_services::snmp::sys_up_time(community.as_bytes()).bytes)
            }
        })
    }

    /// A server's answer; `None` as for requests.
    pub(crate) fn server_answer(&self, answer: &LoadAnswer) -> Option<ServerAnswer> {
        Some(ServerAnswer::Message(match answer {
            LoadAnswer::Bytes(len) => self.filler_message(*len, Filler::Letter(b'a')),
            LoadAnswer::Random(len) => self.filler_message(*len, Filler::Random(self.seed)),
            LoadAnswer::File(_) => Message::bytes(self.file?),
            LoadAnswer::Http(body) if self.like_dperf => self.dperf_response(*body),
            LoadAnswer::Http(body) => {
                let close = if self.closes {
                    "Connection: close\r\n"
                } else {
                    ""
                };
                let head = format!(
                    "HTTP/1.1 200 OK\r\nServer: wirebench\r\nContent-Type: text/plain\r\n\
                     Content-Length: {body}\r\n{close}\r\n"
                );
                self.with_body(&head, *body)
            }
            LoadAnswer::Echo => return Some(ServerAnswer::Echo),
            LoadAnswer::Sink => return Some(ServerAnswer::Sink),
        }))
    }

    /// The answer of a route.
    pub(crate) fn route_answer(&self, route: &LoadRoute) -> Route {
        let (status, size) = (route.status, route.size);
        let length = match status {
            204 => String::new(),
            _ => format!("Content-Length: {size}\r\n"),
        };
        let close = if route.close || self.closes {
            "Connection: close\r\n"
        } else {
            ""
        };
        let head = format!(
            "HTTP/1.1 {status} {}\r\nServer: wirebench\r\nContent-Type: text/plain\r\n{length}{close}\r\n",
            reason_phrase(status)
        );
        Route {
            path: route.path.clone(),
            answer: self.with_body(&head, size),
            status,
            delay: route.delay.as_nanos(),
            close: route.close,
        }
    }

    /// dperf's fillers end with a line feed if they have more than one byte.
    fn filler_message(&self, len: u32, filler: Filler) -> Message {
        if !self.like_dperf || !(2..=u32::from(u16::MAX)).contains(&len) {
            return Message::new(&[], len, filler);
        }
        let mut bytes = vec![b'a'; len as usize];
        if let Filler::Random(seed) = filler {
            randomize(&mut bytes, seed);
        }
        bytes[len as usize - 1] = b'\n';
        Message::bytes(&bytes)
    }

    fn filler(&self) -> Filler {
        if self.random {
            Filler::Random(self.seed)
        } else {
            Filler::Letter(b'a')
        }
    }

    /// Filler bytes.
    fn filler_bytes(&self, len: usize) -> Vec<u8> {
        let mut bytes = vec![b'a'; len];
        if self.random {
            randomize(&mut bytes, self.seed);
        }
        bytes
    }

    fn with_body(&self, head: &str, body: u32) -> Message {
        let len = u32::try_from(head.len()).unwrap_or(u32::MAX);
        Message::new(head.as_bytes(), len.saturating_add(body), self.filler())
    }

    fn http_request(&self, request: &HttpRequest) -> Message {
        let mut request = request.clone();
        if request.host.is_empty() {
            self.host.clone_into(&mut request.host);
        }
        let size = request.size as usize;
        if request.method == "GET" {
            let missing =
                size.saturating_sub(self.request_head(&request).len() + request.body as usize);
            let letters = self.filler_bytes(missing);
            request
                .path
                .extend(letters.iter().map(|letter| char::from(*letter)));
        } else {
            // The head contains the length of the body: one more digit there means one byte less in the body.
            while self.request_head(&request).len() + (request.body as usize) < size {
                let missing = size - self.request_head(&request).len() - request.body as usize;
                let before = request.body;
                request.body += missing as u32;
                if self.request_head(&request).len() + request.body as usize > size {
                    request.body = before + (missing as u32 - 1).max(1);
                    break;
                }
            }
        }
        self.with_body(&self.request_head(&request), request.body)
    }

    fn request_head(&self, request: &HttpRequest) -> String {
        let HttpRequest {
            method,
            path,
            host,
            body,
            ..
        } = request;
        let has_body = *body > 0 || method == "POST" || method == "PUT";
        match (self.like_dperf, has_body) {
            (true, false) => format!(
                "{method} {path} HTTP/1.1\r\nUser-Agent: dperf\r\nHost: {host}\r\nAccept: */*\r\n\
                 Pad: aaaaaaaaaaaaaaa\r\n\r\n"
            ),
            (true, true) => format!(
                "{method} {path} HTTP/1.1\r\nContent-Length:{body:4}\r\nUser-Agent: dperf\r\n\
                 Host: {host}\r\nAccept: */*\r\n\r\n"
            ),
            (false, _) => {
                let length = if has_body {
                    format!("Content-Length: {body}\r\n")
                } else {
                    String::new()
                };
                format!(
                    "{method} {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: wirebench\r\n\
                     Accept: */*\r\n{length}\r\n"
                )
            }
        }
    }

    /// A head of 85 bytes and a body that ends with a line feed. A response longer than a segment consists of whole
    /// segments, each with the same bytes.
    fn dperf_response(&self, body: u32) -> Message {
        const HEAD: u32 = 85;
        let head = |body: u32| {
            format!(
                "HTTP/1.1 200 OK\r\nContent-Length:{body:11}\r\nServer: dperf\r\n\
                 Connection:keep-alive\r\n\r\n"
            )
        };
        let (len, mss) = (HEAD.saturating_add(body), u32::from(self.mss).max(HEAD));
        if len > mss {
            let whole = len.div_ceil(mss).saturating_mul(mss);
            let mut segment = head(whole - HEAD).into_bytes();
            segment.extend(self.filler_bytes(mss as usize - segment.len()));
            return Message::repeated(&segment, whole);
        }
        let mut bytes = head(body).into_bytes();
        bytes.extend(self.filler_bytes(body as usize));
        if body > 0 {
            bytes[len as usize - 1] = b'\n';
        }
        Message::bytes(&bytes)
    }
}

/// Reason phrase of a status: RFC 9110 section 15.
fn reason_phrase(status: u16) -> &'static str {
    match status {
        200 => "OK",
        201 => "Created",
        202 => "Accepted",
        204 => "No Content",
        206 => "Partial Content",
        301 => "Moved Permanently",
        302 => "Found",
        304 => "Not Modified",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        429 => "Too Many Requests",
        500 => "Internal Server Error",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        _ => "Other",
    }
}

/// Fills with letters a to z from a seed.
fn randomize(bytes: &mut [u8], seed: u64) {
    let mut state = seed;
    for byte in bytes {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        *byte = b'a' + ((state >> 33) % 26) as u8;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn making(like_dperf: bool) -> MessageInputs<'static> {
        MessageInputs {
            file: None,
            host: "dperf",
            seed: 1,
            like_dperf,
            mss: 1460,
            closes: true,
            random: false,
        }
    }

    fn len(answer: Option<ServerAnswer>) -> u32 {
        match answer {
            Some(ServerAnswer::Message(message)) => message.len(),
            _ => 0,
        }
    }

    #[test]
    fn dperf_lengths() {
        let making = making(true);
        let http = |method: &str, body| {
            let request = HttpRequest {
                method: method.into(),
                body,
                ..HttpRequest::default()
            };
            making
                .request_message(&LoadMessage::Http(request))
                .unwrap()
                .len()
        };
        assert_eq!(
            (http("GET", 0), http("POST", 0), http("POST", 65)),
            (85, 85, 150)
        );
        for (method, size) in [("GET", 300), ("POST", 86), ("POST", 1400)] {
            let request = HttpRequest {
                method: method.into(),
                size,
                ..HttpRequest::default()
            };
            let message = making.request_message(&LoadMessage::Http(request)).unwrap();
            assert_eq!(message.len(), size, "{method}");
        }
        assert_eq!(len(making.server_answer(&LoadAnswer::Http(14))), 99);
        assert_eq!(
            len(making.server_answer(&LoadAnswer::Http(1460 - 85))),
            1460
        );
        assert_eq!(
            len(making.server_answer(&LoadAnswer::Http(10_000 - 85))),
            7 * 1460
        );
        assert_eq!(
            making
                .request_message(&LoadMessage::Bytes(20))
                .unwrap()
                .len(),
            20
        );
    }

    #[test]
    fn a_file_is_needed_where_one_is_named() {
        let mut making = making(false);
        let named = LoadMessage::File("x".into());
        assert!(making.request_message(&named).is_none());
        making.file = Some(b"abc");
        assert_eq!(making.request_message(&named).unwrap().len(), 3);
    }
}
