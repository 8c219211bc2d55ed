//! A stream reads the same however it is cut into pieces.

use proptest::prelude::*;
use wb_http1::{Interim, MessageEnd, Reader};

use crate::stream::{Outcome, Seen, bytes, cut, read};

/// A response and its expected contents.
#[derive(Clone, Debug)]
struct Response {
    to_head: bool,
    text: Vec<u8>,
    status: u16,
    close: bool,
    head: Vec<u8>,
    body: Vec<u8>,
}

#[derive(Clone, Debug)]
enum Framing {
    Length,
    /// The body in chunks of that many bytes, with an extension and trailers.
    Chunks(usize, &'static str, &'static str),
}

fn response() -> impl Strategy<Value = Response> {
    let framing = prop_oneof![
        Just(Framing::Length),
        (
            1usize..40,
            prop::sample::select(vec!["", ";x=y", "; a=\"b;c\"", " "]),
            prop::sample::select(vec!["", "T: v\r\n", "Content-Length: 9\r\nX: y\r\n"]),
        )
            .prop_map(|(len, extension, trailer)| Framing::Chunks(len, extension, trailer)),
    ];
    let status = prop::sample::select(vec![200u16, 201, 204, 206, 302, 304, 404, 500, 503, 599]);
    let line = prop::sample::select(vec![
        "Server: x",
        "Contents: 5",
        "Content-Lengthy: 5",
        "Connect: close",
        "T:",
        "Date: a\tb: c, d",
        "Transfer-Encodings: chunked",
        "X-Content-Length: 7",
        "conn: x",
        ": y",
        "no colon",
        "Expect: 100-continue",
    ]);
    let connection = prop::sample::select(vec![
        ("", false, false),
        ("Connection: close", true, false),
        ("CONNECTION:close", true, false),
        ("connection: upgrade , Close ,x", true, false),
        ("Connection: Keep-Alive", false, true),
        (
            "Connection: not-close, keep-alives, closed, k, c",
            false,
            false,
        ),
    ]);
    (
        (any::<bool>(), any::<bool>(), any::<bool>()),
        status,
        connection,
        prop::collection::vec(line, 0..4),
        framing,
        prop::collection::vec(any::<u8>(), 0..100),
    )
        .prop_map(
            |((to_head, old, lf), status, connection, lines, framing, body)| {
                let eol = if lf { "\n" } else { "\r\n" };
                let mut head = format!("HTTP/1.{} {status} Some reason{eol}", u8::from(!old));
                for line in lines {
                    head += &format!("{line}{eol}");
                }
                if !connection.0.is_empty() {
                    head += &format!("{}{eol}", connection.0);
                }
                let mut framed = Vec::new();
                match framing {
                    Framing::Length => {
                        head += &format!("content-LENGTH:  {} {eol}", body.len());
                        framed.extend_from_slice(&body);
                    }
                    Framing::Chunks(len, extension, trailer) => {
                        head += &format!("Transfer-Encoding: gzip, Chunked{eol}");
                        for chunk in body.chunks(len) {
                            framed.extend_from_slice(
                                format!("{:X}{extension}{eol}", chunk.len()).as_bytes(),
                            );
                            framed.extend_from_slice(chunk);
                            framed.extend_from_slice(eol.as_bytes());
                        }
                        framed.extend_from_slice(
                            format!("000{extension}{eol}{trailer}{eol}").as_bytes(),
                        );
                    }
                }
                head += eol;
                let has_body = !to_head && !matches!(status, 204 | 304);
                let mut text = head.clone().into_bytes();
                if has_body {
                    text.extend_from_slice(&framed);
                }
                Response {
                    to_head,
                    text,
                    status,
                    close: connection.1 || old && !connection.2,
                    head: head.into_bytes(),
                    body: if has_body { body } else { Vec::new() },
                }
            },
        )
}

const INTERIM: [&str; 3] = [
    "HTTP/1.1 100 Continue\r\n\r\n",
    "HTTP/1.1 103 Early Hints\r\nLink: a\r\nContent-Length: 5\r\n\r\n",
    "HTTP/1.1 102\n\n",
];

proptest! {
    #[test]
    fn responses_are_told_apart_wherever_they_are_cut(
        responses in prop::collection::vec((response(), 0usize..4, 1usize..3), 1..6),
        places in prop::collection::vec(any::<usize>(), 0..20),
    ) {
        let (mut stream, mut wanted, mut heads) = (Vec::new(), Vec::new(), Vec::new());
        let mut interim = 0;
        for (response, before, times) in &responses {
            // Repeated, so that the reader recognises the head the second time.
            for _ in 0..*times {
                for one in &INTERIM[..*before] {
                    stream.extend_from_slice(one.as_bytes());
                    interim += 1;
                }
                stream.extend_from_slice(&response.text);
                heads.push(response.to_head);
                wanted.push((response.clone(), stream.len()));
            }
        }
        for pieces in [cut(&stream, &places), vec![&stream[..]], bytes(&stream)] {
            let mut reader = Reader::responses(Interim::Skipped);
            let out = read(&mut reader, &heads, &pieces);
            prop_assert!(!out.bad && !out.within && out.leave.is_empty());
            prop_assert_eq!(out.interim, interim);
            prop_assert_eq!(out.messages.len(), wanted.len());
            for (seen, (wanted, at)) in out.messages.iter().zip(&wanted) {
                prop_assert_eq!(seen.status, wanted.status);
                prop_assert_eq!(seen.end.close, wanted.close);
                prop_assert_eq!(seen.end.head_only, wanted.to_head);
                prop_assert_eq!(&seen.head, &wanted.head);
                prop_assert_eq!(&seen.body, &wanted.body);
                prop_assert_eq!(seen.at, *at);
            }
        }
    }

    #[test]
    fn any_bytes_read_the_same_in_any_pieces(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        words in prop::collection::vec(prop::sample::select(vec![
            "HTTP/1.1 200 OK\r\n", "HTTP/1.0 404\n", "HTTP/1.1 101 S\r\n", "GET / HTTP/1.1\r\n", "HEAD / HTTP/1.0\r\n",
            "Content-Length: 3\r\n", "Content-Length: 03\r\n", "Transfer-Encoding: chunked\r\n", "Connection: close\r\n",
            "Expect: 100-continue\r\n", "\r\n", "\n", "\r", "3\r\n", "abc", "0\r\n", ";", ":", " ", "\0", "HTTP/1.1 100 C\r\n\r\n",
        ]), 0..20),
        places in prop::collection::vec(any::<usize>(), 0..8),
        heads in prop::collection::vec(any::<bool>(), 8),
        kind in 0u8..4,
    ) {
        let mut stream = words.concat().into_bytes();
        stream.extend_from_slice(&bytes);
        let fresh = || match kind {
            0 => Reader::requests(),
            1 => Reader::responses(Interim::Skipped),
            2 => Reader::responses(Interim::Messages),
            _ => Reader::responses(Interim::Skipped).to_head(),
        };
        let whole = read(&mut fresh(), &heads, &[&stream]);
        prop_assert_eq!(&read(&mut fresh(), &heads, &cut(&stream, &places)), &whole);
        prop_assert_eq!(&read(&mut fresh(), &heads, &crate::stream::bytes(&stream)), &whole);
        // The remembered head of another stream must not matter.
        let mut used = fresh();
        read(&mut used, &heads, &cut(&stream, &places));
        prop_assert_eq!(&read(&mut used, &heads, &[&stream]), &whole);
    }
}

/// Status, close flag and end position of each message.
fn brief(out: &Outcome) -> Vec<(u16, bool, usize)> {
    assert!(!out.bad);
    let brief = |seen: &Seen| (seen.status, seen.end.close, seen.at);
    out.messages.iter().map(brief).collect()
}

fn responses(interim: Interim, heads: &[bool], stream: &[u8]) -> Outcome {
    let whole = read(&mut Reader::responses(interim), heads, &[stream]);
    let pieces = bytes(stream);
    assert_eq!(read(&mut Reader::responses(interim), heads, &pieces), whole);
    whole
}

fn requests(stream: &[u8]) -> Outcome {
    let whole = read(&mut Reader::requests(), &[], &[stream]);
    assert_eq!(read(&mut Reader::requests(), &[], &bytes(stream)), whole);
    whole
}

#[test]
fn interim_responses_are_passed_over_or_count() {
    let stream = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nContent-Length: 3\r\n\r\n\
        HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 100 Continue\r\n\r\n";
    let out = responses(Interim::Skipped, &[], stream);
    assert_eq!(brief(&out), [(200, false, 106)]);
    assert_eq!(out.messages[0].head, &stream[66..104]);
    assert_eq!((out.interim, out.within), (3, false));
    let out = responses(Interim::Messages, &[], stream);
    let all = [
        (100, false, 25),
        (103, false, 66),
        (200, false, 106),
        (100, false, 131),
    ];
    assert_eq!(brief(&out), all);
    assert_eq!(out.interim, 0);
}

#[test]
fn what_answers_head_has_no_body_message_by_message() {
    let stream = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello\
        HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n\
        HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello\
        HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    let out = responses(Interim::Skipped, &[false, true, false, true], stream);
    let len = stream.len();
    let wanted = [
        (200, false, 43),
        (200, false, 81),
        (200, false, 124),
        (200, false, len),
    ];
    assert_eq!(brief(&out), wanted);
    let mut all = Reader::responses(Interim::Skipped).to_head();
    assert_eq!(
        brief(&read(&mut all, &[], &[&stream[43..81], &stream[43..81]])).len(),
        2
    );
}

#[test]
fn status_101_is_final_and_the_last() {
    let stream = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nContent-Length: 9\r\n\r\n";
    for interim in [Interim::Skipped, Interim::Messages] {
        let out = responses(interim, &[], stream);
        assert_eq!(brief(&out), [(101, true, stream.len())]);
    }
}

#[test]
fn a_body_may_end_with_the_stream() {
    let stream = b"HTTP/1.1 203 OK\r\nServer: x\r\n\r\nabc";
    let out = responses(Interim::Skipped, &[], stream);
    assert_eq!((out.end, out.within), (Some(203), true));
    assert_eq!(out.rest, (stream[..30].to_vec(), b"abc".to_vec()));
    // Within a body of known length, the end of the stream is not a proper end.
    for cut_off in [
        &b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell"[..],
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n",
        b"HTTP/1.1 200 OK\r\n",
        b"H",
    ] {
        let out = responses(Interim::Skipped, &[], cut_off);
        assert_eq!((out.end, out.within, out.bad), (None, true, false));
    }
}

#[test]
fn requests_end_with_their_head_or_body() {
    let stream = b"GET / HTTP/1.1\r\nHost: a\r\n\r\nPOST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc\
        \r\nGET / HTTP/1.1\r\n\r\nPUT / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n";
    let out = requests(stream);
    let ends: Vec<_> = brief(&out).iter().map(|seen| seen.2).collect();
    assert_eq!(ends, [27, 68, 88, stream.len()]);
    assert_eq!(out.messages[3].body, b"ab");
    assert_eq!(out.messages[1].head, &stream[27..65]);
}

#[test]
fn versions_and_methods_of_requests_count() {
    let stream = b"GET / HTTP/1.0\r\n\r\nGET /1.0 HTTP/1.1\r\n\r\n\
        GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\nHEAD / HTTP/1.1\r\n\r\n\
        HEAL / HTTP/1.1\r\nConnection: k, close\r\n\r\nHEAD / HTTP/1.0\r\n\r\nHEA\r\n\r\n";
    let end = |close, keep_if_granted, head_only| MessageEnd {
        close,
        keep_if_granted,
        head_only,
    };
    let ends: Vec<_> = requests(stream)
        .messages
        .iter()
        .map(|seen| seen.end)
        .collect();
    let wanted = [
        end(true, false, false),
        end(false, false, false),
        end(false, true, false),
        end(false, false, true),
        end(true, false, false),
        end(true, false, true),
        end(false, false, false),
    ];
    assert_eq!(ends, wanted);
}

#[test]
fn leave_is_asked_for_once_a_request() {
    let one = b"POST / HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\nab";
    let out = requests(&[&one[..], one, one].concat());
    assert_eq!((out.messages.len(), out.leave), (3, vec![60, 122, 184]));
    // Without a body there is no reason to wait, and HTTP/1.0 has no expectations.
    for none in [
        &b"GET / HTTP/1.1\r\nExpect: 100-continue\r\n\r\n"[..],
        b"POST / HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\na",
        b"POST / HTTP/1.1\r\nExpect: 100-continued\r\nContent-Length: 1\r\n\r\na",
    ] {
        let out = requests(none);
        assert_eq!((out.messages.len(), out.leave.len()), (1, 0));
        assert_eq!(out.messages[0].status, 0);
    }
    // An expectation in a response is ignored.
    let answer = b"HTTP/1.1 200 OK\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\na";
    assert!(responses(Interim::Skipped, &[], answer).leave.is_empty());
}

#[test]
fn heads_may_be_of_any_length() {
    let long = format!("X: {}\r\n", "y".repeat(70 << 10));
    let many = "Some-Name: some value\r\n".repeat(5000);
    for lines in [&long, &many] {
        let text = format!("HTTP/1.1 200 OK\r\n{lines}Content-Length: 1\r\n\r\na");
        let out = responses(Interim::Skipped, &[], &text.repeat(2).into_bytes());
        assert_eq!(
            brief(&out),
            [(200, false, text.len()), (200, false, 2 * text.len())]
        );
        assert_eq!(out.messages[1].head.len(), text.len() - 1);
    }
    let name = format!(
        "HTTP/1.1 200 OK\r\n{}: 5\r\nContent-Length: 0\r\n\r\n",
        "c".repeat(70 << 10)
    );
    assert_eq!(
        brief(&responses(Interim::Skipped, &[], name.as_bytes())).len(),
        1
    );
}
