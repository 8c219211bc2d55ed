//! HTTP/3 against minimal servers: each request ends exactly once, with the right cause.

use std::{
    net::{SocketAddr, UdpSocket},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use quinn_proto::{ConnectionError, Dir, StreamId};
use wb_http::HttpThreadOutcome;
use wb_http3::frame::{self, code, kind};
use wb_model::{
    http::{HttpCall, HttpCheck, HttpFailures, HttpJob, HttpStage, HttpTotals, HttpVersion},
    units::Span,
};

use crate::{
    kit::{carry_out, job, totals},
    quic::{End, RULES, Rules, What, head, serve},
};

/// A job of HTTP/3.
fn streams(streams: u32) -> HttpJob {
    HttpJob {
        url: "https://test/".to_owned(),
        version: HttpVersion::V3,
        streams,
        ..job()
    }
}

/// A job long enough for a request on a busy machine.
fn lasting() -> HttpJob {
    HttpJob {
        duration: Some(Span::from_secs(1)),
        timeout: Span::from_secs(1),
        ..streams(1)
    }
}

/// A server with this reaction to each request.
fn each(mut answer: impl FnMut(&mut End<'_>, StreamId) + Send + 'static) -> SocketAddr {
    serve(RULES, move |end, what| {
        if let What::Asked(id, _) = what {
            answer(end, id);
        }
        true
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
            amount: Some(2000),
            duration: None,
            connections,
            timeout: Span::from_secs(10),
            ..streams(n)
        };
        let outcomes = carry_out(&job, each(|end, id| end.answer(id)));
        let all = totals(&outcomes);
        assert_eq!((all.completed, all.sent), (2000, 2000), "{all:?}");
        assert_eq!(all.body_bytes, 10_000);
        assert_eq!(
            (all.established_connections, all.open_connections),
            (u64::from(connections), u64::from(connections)),
            "{all:?}"
        );
        let most = outcomes[0].http3.most_streams;
        assert!(most <= n && (n < 1000 || most > 100), "{most}");
        assert_eq!(outcomes[0].statuses[&200], 2000);
        assert_eq!(outcomes[0].handshakes, (u64::from(connections), 0));
        assert_eq!(outcomes[0].connect.count(), u64::from(connections));
    }
}

#[test]
fn no_more_streams_than_the_server_allows() {
    let address = serve(
        Rules {
            streams: 3,
            ..RULES
        },
        |end, what| {
            if let What::Asked(id, _) = what {
                end.answer(id);
            }
            true
        },
    );
    let outcomes = carry_out(&streams(10), address);
    let all = totals(&outcomes);
    assert!(all.completed > 6 && all.failed.sum() == 0, "{all:?}");
    let http3 = &outcomes[0].http3;
    assert_eq!(http3.most_streams, 3);
    assert!(http3.stream_waits > 1, "{http3:?}");
}

#[test]
fn answers_of_every_form_are_whole_and_checked() {
    type Say = fn(&mut End<'_>, StreamId);
    let forms: [Say; 4] = [
        |end, id| end.answer(id),
        // An interim head, unknown frames, and trailers.
        |end, id| {
            let mut out = head(&[(":status", "103")]);
            frame::write(0x21, b"what", &mut out);
            out.extend(head(&[(":status", "200"), ("x-a", "one")]));
            frame::write(kind::DATA, b"hel", &mut out);
            frame::write(kind::DATA, b"lo", &mut out);
            out.extend(head(&[("x-sum", "1")]));
            end.say(id, &out);
            end.finish(id);
        },
        // Server streams of an unknown type, one of them without data.
        |end, id| {
            let other = end.quic.streams().open(Dir::Uni);
            let silent = end.quic.streams().open(Dir::Uni);
            if let (Some(other), Some(silent)) = (other, silent) {
                end.say(other, b"\x40\x54whatever");
                end.finish(other);
                end.finish(silent);
            }
            end.answer(id);
        },
        // Datagrams that are not QUIC, or of no connection.
        |end, id| {
            let to = end.quic.remote_address();
            let vary = id.index() as u8;
            for len in [0, 1, 20, 1200] {
                for first in [0x00, 0x40, 0xc0, 0xff] {
                    let mut datagram = vec![vary; len];
                    datagram
                        .iter_mut()
                        .take(1)
                        .for_each(|b| *b = first | vary & 0xf);
                    let _ = end.socket.send_to(&datagram, to);
                }
            }
            end.answer(id);
        },
    ];
    for (number, say) in forms.into_iter().enumerate() {
        let job = HttpJob {
            check: HttpCheck {
                status: vec![200],
                body: Some("hello".to_owned()),
                header: Some("x-a: one".to_owned()),
            },
            digest: true,
            ..streams(2)
        };
        let outcomes = carry_out(&job, each(say));
        let all = totals(&outcomes);
        assert!(all.completed > 1, "{number}: {all:?} {}", said(&outcomes));
        assert_eq!(all.failed.sum(), 0, "{number}: {all:?} {}", said(&outcomes));
        assert_eq!(all.body_bytes, all.completed * 5, "{number}");
        assert_eq!(all.broken_connections, 0, "{number}: {all:?}");
        assert_eq!(outcomes[0].digests.len(), 1);
    }
}

#[test]
fn what_breaks_the_protocol_ends_the_connection_under_malformed() {
    type Say = fn(&mut End<'_>, StreamId);
    let ways: [(&str, u64, Say); 6] = [
        ("DATA comes before", code::FRAME_UNEXPECTED, |end, id| {
            end.say(id, b"\0\x05hello");
        }),
        ("inside a frame", code::FRAME_ERROR, |end, id| {
            end.say(id, b"\x01\x05\0");
            end.finish(id);
        }),
        (
            "empty dynamic table",
            code::DECOMPRESSION_FAILED,
            |end, id| {
                end.say(id, b"\x01\x03\x02\0\x80");
            },
        ),
        (
            "closed a critical stream",
            code::CLOSED_CRITICAL_STREAM,
            |end, _| {
                let control = end.control;
                end.finish(control);
            },
        ),
        ("twice", code::FRAME_UNEXPECTED, |end, _| {
            let control = end.control;
            end.say(control, b"\x04\0");
        }),
        ("push is disabled", code::ID_ERROR, |end, _| {
            let push = end.quic.streams().open(Dir::Uni).unwrap();
            end.say(push, b"\x01\0");
        }),
    ];
    for (what, wanted, say) in ways {
        let told = Arc::new(Mutex::new(None));
        let heard = Arc::clone(&told);
        let address = serve(RULES, move |end, happened| {
            match happened {
                What::Asked(id, _) => say(end, id),
                What::Over(ConnectionError::ApplicationClosed(close)) => {
                    heard
                        .lock()
                        .unwrap()
                        .get_or_insert(close.error_code.into_inner());
                }
                _ => {}
            }
            true
        });
        let outcomes = carry_out(&lasting(), address);
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
        assert_eq!(*told.lock().unwrap(), Some(wanted), "{what}");
    }
}

#[test]
fn what_is_wrong_with_one_answer_is_its_own() {
    type Say = fn(&mut End<'_>, StreamId);
    type Of = fn(&HttpFailures) -> u64;
    let ways: [(&str, Of, Say); 4] = [
        (
            "missing :status",
            |f| f.malformed,
            |end, id| {
                end.say(id, &head(&[("a", "b")]));
            },
        ),
        (
            "shorter",
            |f| f.malformed,
            |end, id| {
                end.say(id, &head(&[(":status", "200"), ("content-length", "9")]));
                end.finish(id);
            },
        ),
        ("", |f| f.stream_reset, |end, id| end.reset(id, 0x102)),
        (
            "status is 500",
            |f| f.check,
            |end, id| {
                end.say(id, &head(&[(":status", "500")]));
                end.finish(id);
            },
        ),
    ];
    for (what, cause, say) in ways {
        let address = each(move |end, id| match id.index() % 2 {
            0 => say(end, id),
            _ => end.answer(id),
        });
        let job = HttpJob {
            check: HttpCheck {
                status: vec![200],
                ..HttpCheck::default()
            },
            ..streams(4)
        };
        let outcomes = carry_out(&job, address);
        let all = totals(&outcomes);
        only(&all, cause);
        assert!(all.completed > 1, "{what}: {all:?}");
        assert_eq!(
            (all.established_connections, all.broken_connections),
            (1, 0),
            "{what}"
        );
        assert!(
            said(&outcomes).contains(what),
            "{what}: {}",
            said(&outcomes)
        );
        let reset = outcomes[0].http3.resets.get("H3_INTERNAL_ERROR");
        assert_eq!(reset.copied().unwrap_or(0), all.failed.stream_reset);
    }
}

#[test]
fn after_goaway_the_connection_is_replaced_and_nothing_counts_twice() {
    let looked_at = Arc::new(AtomicU64::new(0));
    let seen = Arc::clone(&looked_at);
    let address = each(move |end, id| {
        // Ten of each connection.
        if id.index() == 9 {
            let control = end.control;
            let mut out = Vec::new();
            frame::write(kind::GOAWAY, &[40], &mut out);
            end.say(control, &out);
        }
        if id.index() < 10 {
            seen.fetch_add(1, Ordering::Relaxed);
            end.answer(id);
        }
    });
    let job = HttpJob {
        amount: Some(200),
        duration: None,
        timeout: Span::from_secs(5),
        ..streams(4)
    };
    let outcomes = carry_out(&job, address);
    let all = totals(&outcomes);
    assert_eq!(all.completed, looked_at.load(Ordering::Relaxed), "{all:?}");
    assert_eq!((all.sent, all.completed), (200, 200), "{all:?}");
    assert!(all.retried > 0, "{all:?}");
    assert_eq!(all.broken_connections, 0, "{all:?}");
    assert_eq!(all.closed_connections, outcomes[0].http3.goaways, "{all:?}");
    assert!(all.closed_connections >= all.completed / 10 - 1, "{all:?}");
}

#[test]
fn what_a_server_rejects_is_asked_again() {
    // One of eight, in an order unrelated to that of the requests.
    let address = each(
        |end, id| match (id.index() as u32).wrapping_mul(2_654_435_761) >> 29 {
            0 => end.reset(id, 0x10b),
            _ => end.answer(id),
        },
    );
    let job = HttpJob {
        amount: Some(100),
        duration: None,
        timeout: Span::from_secs(5),
        ..streams(4)
    };
    let outcomes = carry_out(&job, address);
    let all = totals(&outcomes);
    assert_eq!((all.sent, all.completed), (100, 100), "{all:?}");
    assert_eq!(
        outcomes[0].http3.resets["H3_REQUEST_REJECTED"], all.retried,
        "{all:?}"
    );
}

#[test]
fn what_takes_too_long_is_cancelled_and_its_connection_goes_on() {
    let (unanswered, cancelled) = (
        Arc::new(Mutex::new(Vec::new())),
        Arc::new(Mutex::new(Vec::new())),
    );
    let (left, heard) = (Arc::clone(&unanswered), Arc::clone(&cancelled));
    let address = serve(RULES, move |end, what| {
        match what {
            What::Asked(id, _) if id.index() % 10 == 3 => left.lock().unwrap().push(id),
            What::Asked(id, _) => end.answer(id),
            What::Cancelled(id, why) => heard.lock().unwrap().push((id, why)),
            _ => {}
        }
        true
    });
    // Counted requests, so that a slow machine takes longer with the same result.
    let job = HttpJob {
        amount: Some(40),
        duration: None,
        timeout: Span::from_millis(500),
        ..streams(2)
    };
    let outcomes = carry_out(&job, address);
    let all = totals(&outcomes);
    only(&all, |f| f.timeout);
    assert_eq!(all.completed + all.failed.timeout, 40, "{all:?}");
    assert!(all.completed > 0, "{all:?}");
    assert_eq!(all.established_connections, 1, "{all:?}");
    assert_eq!(outcomes[0].http3.cancelled, all.failed.timeout);
    let (unanswered, cancelled) = (unanswered.lock().unwrap(), cancelled.lock().unwrap());
    assert_eq!(unanswered.len(), 4);
    let known = cancelled
        .iter()
        .all(|(_, why)| *why == code::REQUEST_CANCELLED);
    assert!(known, "{cancelled:?}");
    // The server may end before it receives the last two. An answer that came too late is cancelled as well.
    let is_cancelled = |id: &&StreamId| cancelled.iter().any(|(one, _)| one == *id);
    assert!(
        unanswered.iter().filter(is_cancelled).count() >= 2,
        "{cancelled:?}"
    );
    assert!(
        cancelled.len() as u64 <= all.failed.timeout,
        "{cancelled:?}"
    );
}

#[test]
fn a_server_that_falls_silent_is_given_up() {
    let address = serve(RULES, |end, what| {
        if let What::Asked(id, _) = what {
            end.answer(id);
            return id.index() < 5;
        }
        true
    });
    let job = HttpJob {
        duration: Some(Span::from_millis(1200)),
        timeout: Span::from_millis(200),
        ..streams(3)
    };
    let all = totals(&carry_out(&job, address));
    only(&all, |f| f.timeout);
    assert!(all.completed >= 2, "{all:?}");
    assert_eq!(
        (all.broken_connections, all.open_connections),
        (1, 0),
        "{all:?}"
    );
    assert!(all.refused_connections.timeout > 0, "{all:?}");
}

#[test]
fn phases_have_timeouts_of_their_own() {
    // No server answers the handshake.
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap();
    let mut wanted = HttpJob {
        timeout: Span::from_millis(100),
        ..streams(1)
    };
    let all = totals(&carry_out(&wanted, address));
    assert!(all.refused_connections.timeout > 0, "{all:?}");
    assert_eq!(
        all.refused_connections.sum(),
        all.refused_connections.timeout
    );
    wanted.connect_timeout = Some(Span::from_millis(50));
    wanted.timeout = Span::from_secs(2);
    let all = totals(&carry_out(&wanted, address));
    assert!(all.refused_connections.connect_timeout > 1, "{all:?}");
    assert_eq!(
        all.refused_connections.sum(),
        all.refused_connections.connect_timeout
    );

    // Every third has no answer, every other third half of one.
    let address = each(|end, id| match id.index() % 3 {
        0 => end.answer(id),
        1 => {}
        _ => end.say(id, &head(&[(":status", "200")])),
    });
    let wanted = HttpJob {
        duration: Some(Span::from_millis(900)),
        connect_timeout: Some(Span::from_secs(2)),
        first_byte_timeout: Some(Span::from_millis(60)),
        timeout: Span::from_millis(300),
        ..streams(6)
    };
    let all = totals(&carry_out(&wanted, address));
    let failed = all.failed;
    assert!(
        failed.first_byte_timeout > 1 && failed.timeout > 1,
        "{all:?}"
    );
    assert_eq!(
        failed.sum(),
        failed.first_byte_timeout + failed.timeout,
        "{all:?}"
    );
    assert_eq!(
        (all.established_connections, all.open_connections),
        (1, 1),
        "{all:?}"
    );
}

#[test]
fn no_connection_is_made_and_the_cause_is_told() {
    let other = Rules {
        protocol: b"h3-29",
        ..RULES
    };
    let outcomes = carry_out(&streams(1), serve(other, |_, _| true));
    let all = totals(&outcomes);
    assert!(all.refused_connections.tls > 0, "{all:?}");
    assert_eq!(all.refused_connections.sum(), all.refused_connections.tls);
    assert!(said(&outcomes).contains("ALPN"), "{}", said(&outcomes));
    assert!(outcomes[0].http3.closes["TLS alert 120"] > 0);

    // A server that supports only a future version: RFC 8999 section 6.
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    std::thread::spawn(move || {
        let mut bytes = [0; 2000];
        while let Ok((_, from)) = socket.recv_from(&mut bytes) {
            let to = usize::from(bytes[5]);
            let destination = bytes[6..6 + to].to_vec();
            let at = 6 + to;
            let from_id = bytes[at + 1..at + 1 + usize::from(bytes[at])].to_vec();
            let mut out = vec![0x80, 0, 0, 0, 0, from_id.len() as u8];
            out.extend_from_slice(&from_id);
            out.push(to as u8);
            out.extend_from_slice(&destination);
            out.extend_from_slice(&[0x1a, 0x2a, 0x3a, 0x4a, 0x6b, 0x33, 0x43, 0xcf]);
            socket.send_to(&out, from).unwrap();
        }
    });
    let outcomes = carry_out(&streams(1), address);
    let all = totals(&outcomes);
    assert!(all.refused_connections.version > 0, "{all:?}");
    assert_eq!(
        all.refused_connections.sum(),
        all.refused_connections.version
    );
    assert!(
        said(&outcomes).contains("QUIC version 1"),
        "{}",
        said(&outcomes)
    );

    // No server is listening.
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    drop(socket);
    let all = totals(&carry_out(&streams(1), address));
    assert!(all.refused_connections.refused > 0, "{all:?}");
}

#[test]
fn a_server_may_end_an_idle_connection_and_only_that() {
    // By silence.
    let rules = Rules {
        idle_ms: 60,
        ..RULES
    };
    let address = serve(rules, |end, what| {
        if let What::Asked(id, _) = what {
            end.answer(id);
        }
        true
    });
    // One request at the beginning, and none that could be lost because the server's idle timeout has just expired.
    let slow = HttpJob {
        rate: vec![HttpStage {
            from: 1.0,
            to: 1.0,
            time: None,
        }],
        duration: Some(Span::from_millis(900)),
        timeout: Span::from_secs(2),
        ..streams(1)
    };
    let all = totals(&carry_out(&slow, address));
    assert_eq!(
        (all.failed.sum(), all.broken_connections),
        (0, 0),
        "{all:?}"
    );
    assert!(all.completed == 1 && all.closed_connections > 1, "{all:?}");
    // Silence in the middle of a request.
    let all = totals(&carry_out(
        &HttpJob {
            timeout: Span::from_secs(2),
            ..streams(1)
        },
        serve(rules, |_, _| true),
    ));
    assert!(all.failed.idle_timeout > 0, "{all:?}");
    // A request sent at that moment gets a reset for an unknown connection.
    let silent = all.failed.idle_timeout + all.failed.reset;
    assert_eq!(
        (all.broken_connections, all.failed.sum()),
        (silent, silent),
        "{all:?}"
    );

    // With and without a reason.
    for (why, name) in [
        (code::NO_ERROR, "H3_NO_ERROR"),
        (0x102, "H3_INTERNAL_ERROR"),
    ] {
        let address = each(move |end, id| match id.index() {
            0..3 => end.answer(id),
            _ => end.close(why),
        });
        let outcomes = carry_out(&streams(1), address);
        let all = totals(&outcomes);
        only(&all, |f| f.closed);
        assert_eq!(all.broken_connections, all.failed.closed, "{all:?}");
        assert!(outcomes[0].http3.closes[name] > 0);
        assert_eq!(said(&outcomes).contains(name), why != code::NO_ERROR);
    }
}

#[test]
fn bodies_wait_for_windows_and_end_where_the_server_has_enough() {
    let body = "b".repeat(50_000);
    let post = HttpJob {
        requests: vec![HttpCall {
            method: "POST".into(),
            body,
            ..HttpCall::default()
        }],
        timeout: Span::from_secs(2),
        amount: Some(40),
        duration: None,
        ..streams(3)
    };
    let rules = Rules {
        window: 2000,
        ..RULES
    };
    let came = Arc::new(AtomicU64::new(0));
    let seen = Arc::clone(&came);
    let address = serve(rules, move |end, what| {
        if let What::Asked(id, bytes) = what {
            seen.fetch_add(bytes as u64, Ordering::Relaxed);
            end.answer(id);
        }
        true
    });
    let all = totals(&carry_out(&post, address));
    assert_eq!((all.completed, all.failed.sum()), (40, 0), "{all:?}");
    assert!(came.load(Ordering::Relaxed) > 40 * 50_000);
    // The client's settings do not belong to a request.
    let greeting = all.sent_bytes - came.load(Ordering::Relaxed);
    assert!((1..20).contains(&greeting), "{all:?}");

    // It answers before it has received everything, and stops the request.
    let address = serve(rules, |end, what| {
        if let What::Begun(id) = what {
            let no_error = code::NO_ERROR.try_into().unwrap();
            let _ = end.quic.recv_stream(id).stop(no_error);
            end.answer(id);
        }
        true
    });
    let all = totals(&carry_out(&post, address));
    assert_eq!((all.completed, all.failed.sum()), (40, 0), "{all:?}");
    assert_eq!(
        (all.established_connections, all.broken_connections),
        (1, 0),
        "{all:?}"
    );
}

#[test]
fn a_schedule_is_kept_and_sessions_are_taken_up() {
    let wanted = HttpJob {
        rate: vec![HttpStage {
            from: 200.0,
            to: 200.0,
            time: None,
        }],
        per_connection: 1,
        connections: 4,
        duration: Some(Span::from_millis(500)),
        timeout: Span::from_secs(2),
        ..streams(2)
    };
    let outcomes = carry_out(&wanted, each(|end, id| end.answer(id)));
    let all = totals(&outcomes);
    assert_eq!(all.sent + all.unsent, 100, "{all:?}");
    assert_eq!(all.completed, all.sent, "{all:?}");
    assert!(all.sent > 20, "{all:?}");
    assert_eq!(all.closed_connections, all.completed, "{all:?}");
    let (full, resumed) = outcomes[0].handshakes;
    assert_eq!(full + resumed, all.established_connections);
    assert!(resumed > 10 && full >= 1, "{full} {resumed}");
    let without = HttpJob {
        tls: wb_model::http::HttpTls {
            resume: false,
            ..Default::default()
        },
        ..wanted
    };
    let outcomes = carry_out(&without, each(|end, id| end.answer(id)));
    assert_eq!(outcomes[0].handshakes.1, 0);
    assert!(outcomes[0].handshakes.0 > 10);
}
