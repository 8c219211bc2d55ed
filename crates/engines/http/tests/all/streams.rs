//! HTTP/2 against minimal servers: each request ends exactly once, with the right cause.

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use wb_http::HttpThreadOutcome;
use wb_http2::{
    encode,
    frame::{self, FrameHeader, HEAD_LEN, code, flag, kind, setting},
};
use wb_model::{
    http::{HttpCall, HttpCheck, HttpFailures, HttpJob, HttpStage, HttpTotals, HttpVersion},
    units::Span,
};

use crate::kit::{carry_out, job, server, totals};

/// A job of HTTP/2.
fn streams(streams: u32) -> HttpJob {
    HttpJob {
        version: HttpVersion::V2,
        streams,
        ..job()
    }
}

/// A job of 20 requests: it ends when all have an outcome, however busy the machine is.
fn twenty(streams_at_once: u32) -> HttpJob {
    HttpJob {
        amount: Some(20),
        duration: None,
        ..streams(streams_at_once)
    }
}

/// A server's end of a connection.
struct End(TcpStream);

impl End {
    /// Reads the preface, and sends its settings.
    fn greet(mut stream: TcpStream, settings: &[(u16, u32)]) -> Option<Self> {
        let mut preface = vec![0; frame::PREFACE.len()];
        stream.read_exact(&mut preface).ok()?;
        assert_eq!(preface, frame::PREFACE);
        let mut end = Self(stream);
        let mut out = Vec::new();
        frame::settings(settings, &mut out);
        end.say(&out)?;
        Some(end)
    }

    fn say(&mut self, bytes: &[u8]) -> Option<()> {
        self.0.write_all(bytes).ok()
    }

    fn frame(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Option<()> {
        let mut out = Vec::new();
        frame::write(kind, flags, stream, payload, &mut out);
        self.say(&out)
    }

    /// The next frame.
    fn hear(&mut self) -> Option<(FrameHeader, Vec<u8>)> {
        let mut head = [0; HEAD_LEN];
        self.0.read_exact(&mut head).ok()?;
        let head = FrameHeader::read(&head);
        let mut payload = vec![0; head.len];
        self.0.read_exact(&mut payload).ok()?;
        Some((head, payload))
    }

    /// The next frame of this type.
    fn next(&mut self, kind: u8) -> Option<(FrameHeader, Vec<u8>)> {
        loop {
            let heard = self.hear()?;
            if heard.0.kind == kind {
                return Some(heard);
            }
        }
    }

    /// The stream of the next request.
    fn asked(&mut self) -> Option<u32> {
        Some(self.next(kind::HEADERS)?.0.stream)
    }

    /// Sends status 200 and five bytes.
    fn answer(&mut self, stream: u32) -> Option<()> {
        let mut out = Vec::new();
        frame::write(kind::HEADERS, flag::END_HEADERS, stream, &head(), &mut out);
        frame::write(kind::DATA, flag::END_STREAM, stream, b"hello", &mut out);
        self.say(&out)
    }
}

/// A head with status 200 for five bytes.
fn head() -> Vec<u8> {
    let mut block = Vec::new();
    encode::field(":status", "200", &mut block);
    encode::field("content-length", "5", &mut block);
    encode::field("x-a", "one", &mut block);
    block
}

/// A server with this reaction to each request.
fn each(answer: impl Fn(&mut End, u32) -> Option<()> + Send + Sync + 'static) -> SocketAddr {
    allowing(&[], answer)
}

fn allowing(
    settings: &'static [(u16, u32)],
    answer: impl Fn(&mut End, u32) -> Option<()> + Send + Sync + 'static,
) -> SocketAddr {
    server(move |stream, _| {
        let Some(mut end) = End::greet(stream, settings) else {
            return;
        };
        while let Some(asked) = end.asked() {
            if answer(&mut end, asked).is_none() {
                return;
            }
        }
    })
}

fn only(all: &HttpTotals, of: fn(&HttpFailures) -> u64) {
    assert!(of(&all.failed) > 0, "{all:?}");
    assert_eq!(all.failed.sum(), of(&all.failed), "{all:?}");
}

fn said(outcomes: &[HttpThreadOutcome]) -> &str {
    outcomes[0].first_failure.as_deref().unwrap_or_default()
}

#[test]
fn all_is_answered_over_many_streams() {
    for (n, connections) in [(1, 1), (7, 3), (1000, 2)] {
        let job = HttpJob {
            amount: Some(3000),
            duration: None,
            connections,
            timeout: Span::from_secs(5),
            ..streams(n)
        };
        let outcomes = carry_out(&job, each(End::answer));
        let all = totals(&outcomes);
        assert_eq!((all.completed, all.sent), (3000, 3000), "{all:?}");
        assert_eq!(all.body_bytes, 15_000);
        assert_eq!(
            (all.established_connections, all.open_connections),
            (u64::from(connections), u64::from(connections)),
            "{all:?}"
        );
        assert!(outcomes[0].http2.most_streams <= n);
        assert!(n < 1000 || outcomes[0].http2.most_streams == n);
        assert_eq!(outcomes[0].statuses[&200], 3000);
    }
}

#[test]
fn no_more_streams_than_the_server_allows() {
    let most = Arc::new(AtomicU64::new(0));
    let seen = Arc::clone(&most);
    let address = server(move |stream, _| {
        let settings = [(setting::MAX_CONCURRENT_STREAMS, 3)];
        let Some(mut end) = End::greet(stream, &settings) else {
            return;
        };
        let wait = Some(Duration::from_millis(20));
        let mut open = Vec::new();
        loop {
            end.0.set_read_timeout(wait).unwrap();
            match end.asked() {
                Some(stream) => open.push(stream),
                // No new requests: all permitted ones are in flight.
                None if open.is_empty() => return,
                None => {
                    seen.fetch_max(open.len() as u64, Ordering::Relaxed);
                    // The latest first.
                    while let Some(stream) = open.pop() {
                        if end.answer(stream).is_none() {
                            return;
                        }
                    }
                }
            }
        }
    });
    let outcomes = carry_out(&streams(10), address);
    let all = totals(&outcomes);
    assert_eq!(most.load(Ordering::Relaxed), 3);
    assert!(all.completed > 6 && all.failed.sum() == 0, "{all:?}");
    let http2 = &outcomes[0].http2;
    assert_eq!((http2.allowed_streams, http2.most_streams), (Some(3), 3));
}

#[test]
fn answers_of_every_form_are_whole() {
    type Say = fn(&mut End, u32) -> Option<()>;
    let forms: [(&str, Say); 7] = [
        ("a block in three frames", |end, stream| {
            let block = head();
            end.frame(kind::HEADERS, 0, stream, &block[..3])?;
            end.frame(kind::CONTINUATION, 0, stream, &block[3..4])?;
            end.frame(kind::CONTINUATION, flag::END_HEADERS, stream, &block[4..])?;
            end.frame(kind::DATA, flag::END_STREAM, stream, b"hello")
        }),
        ("padding and priority", |end, stream| {
            let payload = [&[3, 0, 0, 0, 0, 9][..], &head(), &[0; 3]].concat();
            let flags = flag::END_HEADERS | flag::PADDED | flag::PRIORITY;
            end.frame(kind::HEADERS, flags, stream, &payload)?;
            let flags = flag::PADDED | flag::END_STREAM;
            end.frame(kind::DATA, flags, stream, b"\x04hello\0\0\0\0")
        }),
        (
            "an interim head, empty frames and trailers",
            |end, stream| {
                let mut block = Vec::new();
                encode::field(":status", "103", &mut block);
                end.frame(kind::HEADERS, flag::END_HEADERS, stream, &block)?;
                end.frame(kind::HEADERS, flag::END_HEADERS, stream, &head())?;
                end.frame(kind::DATA, 0, stream, b"")?;
                end.frame(kind::DATA, 0, stream, b"hello")?;
                block.clear();
                encode::field("x-sum", "1", &mut block);
                let flags = flag::END_HEADERS | flag::END_STREAM;
                end.frame(kind::HEADERS, flags, stream, &block)
            },
        ),
        ("byte by byte", |end, stream| {
            let mut out = Vec::new();
            frame::write(kind::HEADERS, flag::END_HEADERS, stream, &head(), &mut out);
            frame::write(kind::DATA, flag::END_STREAM, stream, b"hello", &mut out);
            end.0.set_nodelay(true).ok()?;
            out.iter().try_for_each(|byte| end.say(&[*byte]))
        }),
        (
            "frames that nobody knows, and others beside",
            |end, stream| {
                end.frame(0x99, 0xff, stream, b"what")?;
                end.frame(kind::PRIORITY, 0, stream, &[0; 5])?;
                end.frame(kind::PING, 0, 0, b"12345678")?;
                end.frame(kind::SETTINGS, 0, 0, &[0, 99, 1, 2, 3, 4])?;
                end.frame(kind::WINDOW_UPDATE, 0, 0, &9_u32.to_be_bytes())?;
                let (_, echo) = end.next(kind::PING)?;
                assert_eq!(echo, b"12345678");
                end.answer(stream)
            },
        ),
        ("a table that has no room", |end, stream| {
            // Its size is 0, and a field is inserted, which has no effect.
            let mut block = vec![0x20];
            block.extend(head());
            block.extend_from_slice(b"\x40\x01b\x01c");
            end.frame(kind::HEADERS, flag::END_HEADERS, stream, &block)?;
            end.frame(kind::DATA, flag::END_STREAM, stream, b"hello")
        }),
        ("strings in fewer bits", |end, stream| {
            let mut block = Vec::new();
            encode::name(":status", &mut block);
            encode::short_string(b"200", &mut block);
            end.frame(kind::HEADERS, flag::END_HEADERS, stream, &block)?;
            end.frame(kind::DATA, flag::END_STREAM, stream, b"hello")
        }),
    ];
    for (name, say) in forms {
        let outcomes = carry_out(&twenty(1), each(say));
        let all = totals(&outcomes);
        assert!(all.completed == 20, "{name}: {all:?} {}", said(&outcomes));
        assert_eq!(all.failed.sum(), 0, "{name}: {all:?} {}", said(&outcomes));
        assert_eq!(all.body_bytes, all.completed * 5, "{name}");
        assert_eq!(all.broken_connections, 0, "{name}: {all:?}");
    }
}

#[test]
fn what_breaks_the_protocol_ends_the_connection_under_malformed() {
    type Say = fn(&mut End, u32) -> Option<()>;
    let ways: [(&str, u32, Say); 16] = [
        (
            "longer than the allowed maximum",
            code::FRAME_SIZE_ERROR,
            |end, _| end.say(b"SSH-2.0-OpenSSH\r\n"),
        ),
        (
            "SETTINGS length is not a multiple",
            code::FRAME_SIZE_ERROR,
            |end, _| end.frame(kind::SETTINGS, 0, 0, &[0; 5]),
        ),
        ("PING length is not 8", code::FRAME_SIZE_ERROR, |end, _| {
            end.frame(kind::PING, 0, 0, &[0; 7])
        }),
        (
            "RST_STREAM length is not 4",
            code::FRAME_SIZE_ERROR,
            |end, stream| end.frame(kind::RST_STREAM, 0, stream, &[0; 3]),
        ),
        (
            "WINDOW_UPDATE length is not 4",
            code::FRAME_SIZE_ERROR,
            |end, _| end.frame(kind::WINDOW_UPDATE, 0, 0, &[0; 5]),
        ),
        ("GOAWAY shorter than 8", code::FRAME_SIZE_ERROR, |end, _| {
            end.frame(kind::GOAWAY, 0, 0, &[0; 7])
        }),
        ("increment 0", code::PROTOCOL_ERROR, |end, _| {
            end.frame(kind::WINDOW_UPDATE, 0, 0, &[0; 4])
        }),
        ("above 2147483647", code::FLOW_CONTROL_ERROR, |end, _| {
            end.frame(kind::WINDOW_UPDATE, 0, 0, &u32::MAX.to_be_bytes())
        }),
        ("push is disabled", code::PROTOCOL_ERROR, |end, stream| {
            let payload = [&[0, 0, 0, 2][..], &head()].concat();
            end.frame(kind::PUSH_PROMISE, flag::END_HEADERS, stream, &payload)
        }),
        (
            "without its CONTINUATION",
            code::PROTOCOL_ERROR,
            |end, stream| {
                end.frame(kind::HEADERS, 0, stream, &head())?;
                end.frame(kind::PING, 0, 0, &[0; 8])
            },
        ),
        (
            "CONTINUATION without HEADERS",
            code::PROTOCOL_ERROR,
            |end, stream| end.frame(kind::CONTINUATION, flag::END_HEADERS, stream, &head()),
        ),
        (
            "longer than its frame",
            code::PROTOCOL_ERROR,
            |end, stream| {
                end.frame(kind::HEADERS, flag::END_HEADERS, stream, &head())?;
                end.frame(kind::DATA, flag::PADDED, stream, &[3, 0, 0])
            },
        ),
        ("on an idle stream", code::PROTOCOL_ERROR, |end, stream| {
            end.answer(stream + 1000)
        }),
        ("on a closed stream", code::STREAM_CLOSED, |end, stream| {
            end.answer(stream)?;
            end.frame(kind::DATA, 0, stream, b"more")
        }),
        (
            "empty dynamic table",
            code::COMPRESSION_ERROR,
            |end, stream| end.frame(kind::HEADERS, flag::END_HEADERS, stream, &[0xbe]),
        ),
        (
            "longer than 64 KiB",
            code::ENHANCE_YOUR_CALM,
            |end, stream| {
                end.frame(kind::HEADERS, 0, stream, &[0x88; 16_000])?;
                (0..5).try_for_each(|_| end.frame(kind::CONTINUATION, 0, stream, &[0x88; 16_000]))
            },
        ),
    ];
    for (what, code, say) in ways {
        let told = Arc::new(Mutex::new(None));
        let heard = Arc::clone(&told);
        let address = each(move |end, stream| {
            let done = say(end, stream);
            if let Some((_, payload)) = done.and_then(|()| end.next(kind::GOAWAY)) {
                *heard.lock().unwrap() = payload.get(4..8).map(<[u8]>::to_vec);
            }
            None
        });
        let outcomes = carry_out(&streams(1), address);
        let all = totals(&outcomes);
        only(&all, |f| f.malformed);
        assert_eq!(
            all.broken_connections, all.failed.malformed,
            "{what}: {all:?}"
        );
        assert!(
            said(&outcomes).contains(what),
            "{what}: {}",
            said(&outcomes)
        );
        let told = told.lock().unwrap().clone();
        assert_eq!(told, Some(code.to_be_bytes().to_vec()), "{what}");
    }
}

#[test]
fn what_is_wrong_with_one_answer_is_its_own() {
    type Say = fn(&mut End, u32) -> Option<()>;
    fn block(fields: &[(&str, &str)]) -> Vec<u8> {
        let mut block = Vec::new();
        for (name, value) in fields {
            encode::field(name, value, &mut block);
        }
        block
    }
    let ways: [(&str, Say); 12] = [
        ("missing :status", |end, stream| {
            end.frame(kind::HEADERS, 5, stream, &block(&[("x-a", "b")]))
        }),
        ("100 to 599", |end, stream| {
            end.frame(kind::HEADERS, 5, stream, &block(&[(":status", "999")]))
        }),
        ("pseudo-header", |end, stream| {
            let fields = [("x-a", "b"), (":status", "200")];
            end.frame(kind::HEADERS, 5, stream, &block(&fields))
        }),
        ("invalid header name", |end, stream| {
            let fields = [(":status", "200"), ("X-A", "b")];
            end.frame(kind::HEADERS, 5, stream, &block(&fields))
        }),
        ("HTTP/1.1 only", |end, stream| {
            let fields = [(":status", "200"), ("connection", "close")];
            end.frame(kind::HEADERS, 5, stream, &block(&fields))
        }),
        ("CR, LF", |end, stream| {
            let fields = [(":status", "200"), ("x-a", "b\r\nc: d")];
            end.frame(kind::HEADERS, 5, stream, &block(&fields))
        }),
        ("repeated Content-Length", |end, stream| {
            let fields = [
                (":status", "200"),
                ("content-length", "5"),
                ("content-length", "6"),
            ];
            end.frame(kind::HEADERS, 5, stream, &block(&fields))
        }),
        ("interim", |end, stream| {
            end.frame(kind::HEADERS, 5, stream, &block(&[(":status", "103")]))
        }),
        ("status 101", |end, stream| {
            end.frame(kind::HEADERS, 4, stream, &block(&[(":status", "101")]))
        }),
        ("shorter", |end, stream| {
            end.frame(kind::HEADERS, 4, stream, &head())?;
            end.frame(kind::DATA, 1, stream, b"hell")
        }),
        ("longer", |end, stream| {
            end.frame(kind::HEADERS, 4, stream, &head())?;
            end.frame(kind::DATA, 1, stream, b"hello!")
        }),
        ("DATA before HEADERS", |end, stream| {
            end.frame(kind::DATA, 1, stream, b"hello")
        }),
    ];
    for (what, say) in ways {
        let outcomes = carry_out(&twenty(3), each(say));
        let all = totals(&outcomes);
        only(&all, |f| f.malformed);
        assert!(all.failed.malformed == 20, "{what}: {all:?}");
        assert_eq!(all.attempted_connections, 1, "{what}: {all:?}");
        assert!(
            said(&outcomes).contains(what),
            "{what}: {}",
            said(&outcomes)
        );
    }
}

/// A server of connections that process two requests, and send GOAWAY at the third.
fn two_each() -> SocketAddr {
    server(|stream, _| {
        let Some(mut end) = End::greet(stream, &[]) else {
            return;
        };
        for _ in 0..2 {
            if end.asked().is_none() {
                return;
            }
        }
        let mut payload = 3_u32.to_be_bytes().to_vec();
        payload.extend_from_slice(&code::ENHANCE_YOUR_CALM.to_be_bytes());
        end.frame(kind::GOAWAY, 0, 0, &payload);
        end.answer(1);
        end.answer(3);
        // It waits for the end by the client.
        while end.hear().is_some() {}
    })
}

#[test]
fn what_a_server_that_goes_away_has_not_processed_is_asked_again() {
    for connections in [1, 3] {
        let job = HttpJob {
            amount: Some(60),
            duration: None,
            connections,
            timeout: Span::from_secs(5),
            ..streams(5)
        };
        let outcomes = carry_out(&job, two_each());
        let all = totals(&outcomes);
        assert_eq!((all.sent, all.completed), (60, 60), "{all:?}");
        assert!(all.retried > 0, "{all:?}");
        assert_eq!(all.broken_connections, 0, "{all:?}");
        assert!(all.established_connections >= 30, "{all:?}");
        assert!(outcomes[0].http2.goaways["ENHANCE_YOUR_CALM"] >= 29);
    }
}

#[test]
fn a_request_that_is_asked_again_has_waited_since_it_was_due() {
    let job = HttpJob {
        rate: vec![HttpStage {
            from: 1000.0,
            to: 1000.0,
            time: None,
        }],
        amount: Some(5),
        duration: None,
        timeout: Span::from_secs(5),
        ..streams(5)
    };
    // The first connection ends at once without processing any request; the next one answers after a while.
    let address = server(|stream, number| {
        let Some(mut end) = End::greet(stream, &[]) else {
            return;
        };
        if number == 0 {
            for _ in 0..5 {
                end.asked();
            }
            wb_testing::disturb(Duration::from_millis(50));
            end.frame(kind::GOAWAY, 0, 0, &[0; 8]);
            while end.hear().is_some() {}
            return;
        }
        while let Some(asked) = end.asked() {
            end.answer(asked);
        }
    });
    let outcomes = carry_out(&job, address);
    let all = totals(&outcomes);
    assert_eq!((all.completed, all.retried), (5, 5), "{all:?}");
    let least = outcomes[0].latency.min().unwrap();
    assert!(least >= 50_000_000, "{least}");
}

#[test]
fn a_stream_that_is_refused_is_counted_by_its_code_and_asked_again() {
    // One of eight, in an order unrelated to that of the requests.
    let address = each(
        |end, stream| match stream.wrapping_mul(2_654_435_761) >> 29 {
            0 => end.frame(
                kind::RST_STREAM,
                0,
                stream,
                &code::REFUSED_STREAM.to_be_bytes(),
            ),
            _ => end.answer(stream),
        },
    );
    let outcomes = carry_out(&streams(4), address);
    let all = totals(&outcomes);
    assert_eq!(all.failed.sum(), 0, "{all:?}");
    assert!(all.completed > 10, "{all:?}");
    assert_eq!((all.attempted_connections, all.broken_connections), (1, 0));
    let resets = &outcomes[0].http2.resets;
    assert_eq!(resets["REFUSED_STREAM"], all.retried);
    assert_eq!(resets.len(), 1);
}

#[test]
fn a_server_that_refuses_a_request_always_fails_it() {
    let address = each(|end, stream| {
        end.frame(
            kind::RST_STREAM,
            0,
            stream,
            &code::REFUSED_STREAM.to_be_bytes(),
        )
    });
    let job = HttpJob {
        amount: Some(2),
        duration: None,
        ..streams(1)
    };
    let outcomes = carry_out(&job, address);
    let all = totals(&outcomes);
    assert_eq!((all.sent, all.failed.stream_reset), (2, 2), "{all:?}");
    assert_eq!(outcomes[0].http2.resets["REFUSED_STREAM"], 2 + all.retried);
}

#[test]
fn a_stream_that_is_reset_is_counted_by_its_code_and_the_rest_goes_on() {
    let address = each(|end, stream| match stream % 4 {
        1 => end.answer(stream),
        _ => end.frame(kind::RST_STREAM, 0, stream, &2_u32.to_be_bytes()),
    });
    let outcomes = carry_out(&streams(4), address);
    let all = totals(&outcomes);
    only(&all, |f| f.stream_reset);
    assert!(
        all.completed.abs_diff(all.failed.stream_reset) <= 1,
        "{all:?}"
    );
    assert_eq!((all.attempted_connections, all.broken_connections), (1, 0));
    let resets = &outcomes[0].http2.resets;
    assert_eq!(resets["INTERNAL_ERROR"], all.failed.stream_reset);
    assert_eq!(resets.len(), 1);
}

#[test]
fn bodies_of_the_warm_up_are_not_counted() {
    let job = HttpJob {
        warm_up: Span::from_millis(150),
        ..streams(4)
    };
    let outcomes = carry_out(&job, each(End::answer));
    let all = totals(&outcomes);
    assert!(all.warm_up > 0 && all.completed > 0, "{all:?}");
    assert_eq!(all.body_bytes, 5 * all.completed, "{all:?}");
}

#[test]
fn a_request_that_takes_too_long_is_cancelled_and_its_connection_kept() {
    // The first of each four is never answered, except by a late frame that must not matter.
    let cancelled = Arc::new(AtomicU64::new(0));
    let seen = Arc::clone(&cancelled);
    let address = server(move |stream, _| {
        let Some(mut end) = End::greet(stream, &[]) else {
            return;
        };
        while let Some((head, payload)) = end.hear() {
            let done = match head.kind {
                kind::HEADERS if head.stream % 8 == 1 => Some(()),
                kind::HEADERS => {
                    wb_testing::disturb(Duration::from_millis(1));
                    end.answer(head.stream)
                }
                kind::RST_STREAM => {
                    assert_eq!(payload, code::CANCEL.to_be_bytes());
                    seen.fetch_add(1, Ordering::Relaxed);
                    end.answer(head.stream)
                }
                kind::PING => end.frame(kind::PING, flag::ACK, 0, &payload),
                _ => Some(()),
            };
            if done.is_none() {
                return;
            }
        }
    });
    let job = HttpJob {
        duration: Some(Span::from_millis(900)),
        timeout: Span::from_millis(200),
        ..streams(4)
    };
    let outcomes = carry_out(&job, address);
    let all = totals(&outcomes);
    only(&all, |f| f.timeout);
    assert!(all.failed.timeout >= 12 && all.completed > 8, "{all:?}");
    assert_eq!(
        (all.attempted_connections, all.open_connections),
        (1, 1),
        "{all:?}"
    );
    assert_eq!(outcomes[0].http2.cancelled, all.failed.timeout);
    assert!(cancelled.load(Ordering::Relaxed) > 0);
}

#[test]
fn a_server_that_says_nothing_any_more_is_given_up() {
    let address = each(|_, _| Some(()));
    let job = HttpJob {
        duration: Some(Span::from_millis(900)),
        timeout: Span::from_millis(200),
        ..streams(2)
    };
    let all = totals(&carry_out(&job, address));
    only(&all, |f| f.timeout);
    // 200 ms for the requests, and 200 ms for the ping.
    assert!(all.broken_connections >= 1, "{all:?}");
    assert_eq!(
        all.attempted_connections,
        all.broken_connections + all.open_connections
    );
}

#[test]
fn a_window_that_never_opens_is_a_timeout_and_one_that_opens_lets_all_through() {
    const SHUT: &[(u16, u32)] = &[(setting::INITIAL_WINDOW_SIZE, 0)];
    let body = |n: usize| HttpJob {
        requests: vec![HttpCall {
            method: "POST".to_owned(),
            body: "b".repeat(n),
            ..HttpCall::default()
        }],
        timeout: Span::from_millis(200),
        ..streams(3)
    };
    let all = totals(&carry_out(&body(10), allowing(SHUT, |_, _| Some(()))));
    only(&all, |f| f.timeout);
    assert_eq!(all.completed, 0);

    // Windows of one stream and of the connection, increased in small steps.
    let lengths = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&lengths);
    let address = server(move |stream, _| {
        let Some(mut end) = End::greet(stream, SHUT) else {
            return;
        };
        let mut got = std::collections::BTreeMap::new();
        while let Some((head, payload)) = end.hear() {
            let more = match head.kind {
                kind::HEADERS => {
                    got.insert(head.stream, 0);
                    true
                }
                kind::DATA => {
                    let length = got.get_mut(&head.stream).unwrap();
                    *length += payload.len();
                    if head.flags & flag::END_STREAM != 0 {
                        seen.lock().unwrap().push(*length);
                        if end.answer(head.stream).is_none() {
                            return;
                        }
                    }
                    head.flags & flag::END_STREAM == 0
                }
                _ => false,
            };
            let credit = 30_000_u32.to_be_bytes();
            if more
                && end
                    .frame(kind::WINDOW_UPDATE, 0, head.stream, &credit)
                    .is_none()
                || !payload.is_empty()
                    && head.kind == kind::DATA
                    && end
                        .frame(
                            kind::WINDOW_UPDATE,
                            0,
                            0,
                            &(payload.len() as u32).to_be_bytes(),
                        )
                        .is_none()
            {
                return;
            }
        }
    });
    let job = HttpJob {
        amount: Some(20),
        duration: None,
        timeout: Span::from_secs(5),
        ..body(100_000)
    };
    let all = totals(&carry_out(&job, address));
    assert_eq!((all.completed, all.failed.sum()), (20, 0), "{all:?}");
    assert_eq!(*lengths.lock().unwrap(), vec![100_000; 20]);
}

#[test]
fn a_flood_without_content_ends_the_connection() {
    let address = each(|end, _| {
        let mut out = Vec::new();
        for _ in 0..1000 {
            frame::settings(&[], &mut out);
        }
        // It never reads what it receives.
        loop {
            end.say(&out)?;
        }
    });
    let job = HttpJob {
        timeout: Span::from_secs(5),
        ..streams(1)
    };
    let outcomes = carry_out(&job, address);
    let all = totals(&outcomes);
    only(&all, |f| f.malformed);
    assert!(said(&outcomes).contains("flood"), "{}", said(&outcomes));
}

#[test]
fn who_speaks_no_http2_is_told_before_a_request_is_sent() {
    let address = server(|mut stream, _| {
        let mut some = [0; 100];
        let _ = stream.read(&mut some);
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
    });
    let outcomes = carry_out(&streams(1), address);
    let all = totals(&outcomes);
    assert_eq!((all.sent, all.established_connections), (0, 0), "{all:?}");
    let refused = all.refused_connections;
    assert!(
        refused.malformed > 0 && refused.sum() == refused.malformed,
        "{all:?}"
    );
    assert!(
        said(&outcomes).contains("did not start with an HTTP/2 preface"),
        "{}",
        said(&outcomes)
    );
}

#[test]
fn a_connection_is_replaced_after_its_share_and_closed_in_order() {
    let address = each(End::answer);
    let job = HttpJob {
        amount: Some(100),
        duration: None,
        per_connection: 8,
        ..streams(3)
    };
    let all = totals(&carry_out(&job, address));
    assert_eq!((all.completed, all.failed.sum()), (100, 0), "{all:?}");
    assert_eq!(all.attempted_connections, 13, "{all:?}");
    assert_eq!(
        (all.closed_connections, all.broken_connections),
        (12, 0),
        "{all:?}"
    );
}

#[test]
fn a_schedule_spreads_over_streams_and_counts_what_waits() {
    let rate = |n: f64| {
        vec![HttpStage {
            from: n,
            to: n,
            time: None,
        }]
    };
    // A response takes 10 ms or more. All requests may be in flight, whatever holds up the server.
    let slow = || {
        server(|stream, _| {
            let Some(mut end) = End::greet(stream, &[]) else {
                return;
            };
            while let Some(asked) = end.asked() {
                let Ok(copy) = end.0.try_clone() else { return };
                std::thread::spawn(move || {
                    wb_testing::disturb(Duration::from_millis(10));
                    End(copy).answer(asked)
                });
            }
        })
    };
    let job = HttpJob {
        rate: rate(500.0),
        duration: Some(Span::from_millis(600)),
        timeout: Span::from_secs(5),
        ..streams(300)
    };
    let outcomes = carry_out(&job, slow());
    let all = totals(&outcomes);
    assert_eq!(
        (all.sent + all.unsent, all.failed.sum()),
        (300, 0),
        "{all:?}"
    );
    assert_eq!(all.unsent, 0, "{all:?}");
    let one = HttpJob { streams: 1, ..job };
    let outcomes = carry_out(&one, slow());
    let all = totals(&outcomes);
    assert_eq!(
        (all.sent + all.unsent, all.failed.sum()),
        (300, 0),
        "{all:?}"
    );
    assert!(all.unsent > 150, "{all:?}");
    let (latency, service) = (&outcomes[0].latency, outcomes[0].service.as_ref().unwrap());
    assert!(latency.summary().p99 > service.summary().p99.map(|ns| ns * 3));
}

#[test]
fn sets_variables_checks_and_digests_are_as_with_http1() {
    let blocks = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&blocks);
    let address = server(move |stream, _| {
        let Some(mut end) = End::greet(stream, &[]) else {
            return;
        };
        while let Some((head, block)) = end.next(kind::HEADERS) {
            seen.lock().unwrap().push(block);
            if end.answer(head.stream).is_none() {
                return;
            }
        }
    });
    let call = |method: &str, weight| HttpCall {
        method: method.to_owned(),
        path: "/x".to_owned(),
        headers: vec!["X-Long: a  ".to_owned(), "Host: other".to_owned()],
        weight,
        ..HttpCall::default()
    };
    let job = HttpJob {
        requests: vec![call("GET", 3), call("DELETE", 1)],
        amount: Some(40),
        duration: None,
        digest: true,
        check: HttpCheck {
            status: vec![200],
            body: Some("ell".to_owned()),
            header: Some("X-A: one".to_owned()),
        },
        ..streams(4)
    };
    let outcomes = carry_out(&job, address);
    let all = totals(&outcomes);
    assert_eq!(
        (all.completed, all.failed.sum()),
        (40, 0),
        "{all:?} {}",
        said(&outcomes)
    );
    assert_eq!(outcomes[0].calls[0].completed, 30);
    assert_eq!(outcomes[0].digests.len(), 2);
    let wanted = [
        &b"\x82\x86\x01\x05other\x04\x02/x\x00\x06x-long\x01a"[..],
        b"\x02\x06DELETE\x86\x01\x05other\x04\x02/x\x00\x06x-long\x01a",
    ];
    for block in blocks.lock().unwrap().iter() {
        assert!(wanted.contains(&&block[..]), "{block:?}");
    }

    let wrong = HttpJob {
        check: HttpCheck {
            header: Some("X-A: two".to_owned()),
            ..HttpCheck::default()
        },
        ..job
    };
    let outcomes = carry_out(&wrong, each(End::answer));
    let all = totals(&outcomes);
    assert_eq!((all.completed, all.failed.check), (0, 40), "{all:?}");
    assert!(
        said(&outcomes).contains("x-a is \"one\""),
        "{}",
        said(&outcomes)
    );

    // Fields of an interim head do not belong to the answer.
    let interim = each(|end, stream| {
        let mut block = Vec::new();
        encode::field(":status", "103", &mut block);
        encode::field("x-b", "early", &mut block);
        end.frame(kind::HEADERS, flag::END_HEADERS, stream, &block)?;
        end.answer(stream)
    });
    let early = HttpJob {
        check: HttpCheck {
            header: Some("X-B".to_owned()),
            ..HttpCheck::default()
        },
        ..wrong
    };
    let all = totals(&carry_out(&early, interim));
    assert_eq!((all.completed, all.failed.check), (0, 40), "{all:?}");
}

#[test]
fn the_first_byte_has_a_timeout_of_its_own() {
    // Every third has no answer, every other third the head of one.
    let address = each(|end, stream| match stream / 2 % 3 {
        0 => end.answer(stream),
        1 => Some(()),
        _ => end.frame(kind::HEADERS, flag::END_HEADERS, stream, &head()),
    });
    let wanted = HttpJob {
        duration: Some(Span::from_millis(900)),
        first_byte_timeout: Some(Span::from_millis(60)),
        timeout: Span::from_millis(300),
        ..streams(6)
    };
    let outcomes = carry_out(&wanted, address);
    let (all, failed) = (totals(&outcomes), totals(&outcomes).failed);
    assert!(
        failed.first_byte_timeout > 1 && failed.timeout > 1,
        "{all:?}"
    );
    assert_eq!(
        failed.sum(),
        failed.first_byte_timeout + failed.timeout,
        "{all:?}"
    );
    // It answers no ping, so the rest ended with the connection.
    assert!(
        outcomes[0].http2.cancelled >= failed.first_byte_timeout,
        "{all:?}"
    );
}
