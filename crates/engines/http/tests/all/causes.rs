//! Faulty servers: each request ends exactly once, with the right cause, and no test hangs.

use std::{io::Write as _, net::TcpListener, time::Duration};

use rustix::net::sockopt::set_socket_linger;
use wb_http::{HttpDestination, HttpThreadOutcome};
use wb_model::{
    http::{HttpCall, HttpCheck, HttpFailures, HttpJob, HttpVersion},
    units::Span,
};

use crate::kit::{
    HELLO, answers, asked, carry_out, carry_out_with, job, server, totals, until_closed,
};

/// A server that sends these parts on each connection and then closes it.
fn once(parts: &[&[u8]]) -> std::net::SocketAddr {
    let parts: Vec<Vec<u8>> = parts.iter().map(|part| part.to_vec()).collect();
    server(move |mut stream, _| {
        if asked(&mut stream).is_some() {
            for part in &parts {
                if stream.write_all(part).is_err() {
                    return;
                }
                wb_testing::disturb(Duration::from_millis(5));
            }
        }
    })
}

fn failed(outcomes: &[HttpThreadOutcome]) -> HttpFailures {
    totals(outcomes).failed
}

#[test]
fn an_answer_that_ends_too_soon_is_closed() {
    for parts in [
        &[&b""[..]][..],
        &[b"HTTP/1.1 20"],
        &[b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nhello"],
        &[b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel"],
        &[b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"],
        &[b"HTTP/1.1 100 Continue\r\n\r\n"],
    ] {
        let outcomes = carry_out(&patient(), once(parts));
        let (all, why) = (totals(&outcomes), failed(&outcomes));
        assert!(why.closed > 0, "{parts:?}: {all:?}");
        assert_eq!(why.sum(), why.closed, "{parts:?}: {all:?}");
        assert_eq!(
            (all.completed, all.broken_connections),
            (0, why.closed),
            "{parts:?}"
        );
    }
}

/// A job that waits longer for a response than a busy machine holds up the server.
fn patient() -> HttpJob {
    HttpJob {
        duration: Some(Span::from_secs(1)),
        timeout: Span::from_secs(5),
        ..job()
    }
}

#[test]
fn what_is_no_http_is_malformed_and_told() {
    for parts in [
        &[&b"SSH-2.0-x\r\n"[..]][..],
        &[b"HTTP/1.1 999 OK\r\n\r\n"],
        &[b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n"],
        &[b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nz\r\n"],
        &[b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab"],
    ] {
        let outcomes = carry_out(&patient(), once(parts));
        let why = failed(&outcomes);
        assert!(
            why.malformed > 0 && why.sum() == why.malformed,
            "{parts:?}: {why:?}"
        );
        assert!(
            outcomes[0]
                .first_failure
                .as_ref()
                .unwrap()
                .contains("not an HTTP response")
        );
    }
}

#[test]
fn answers_in_pieces_of_every_kind_are_whole() {
    for (parts, body) in [
        (
            &[
                &b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhel"[..],
                b"lo",
            ][..],
            5,
        ),
        (&[b"HTTP/1.0 200 OK\r\n\r\nhello"], 5),
        (
            &[
                b"HTTP/1.1 200 OK\r\nConnection: close\r\nTransfer-Enc",
                b"oding: chunked\r\n\r\n5\r",
                b"\nhello\r\n0",
                b"\r\nA: b\r\n\r\n",
            ],
            5,
        ),
        (
            &[b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 204 None\r\nConnection: close\r\n\r\n"],
            0,
        ),
        (
            &[b"HTTP/1.1 304 Same\r\nConnection: close\r\nContent-Length: 7\r\n\r\n"],
            0,
        ),
    ] {
        let outcomes = carry_out(&patient(), once(parts));
        let all = totals(&outcomes);
        assert!(all.completed > 3, "{parts:?}: {all:?}");
        assert_eq!(all.failed.sum(), 0, "{parts:?}: {all:?}");
        assert_eq!(all.body_bytes, all.completed * body, "{parts:?}");
        assert_eq!(all.broken_connections, 0, "{parts:?}: {all:?}");
    }
}

#[test]
fn silence_is_a_timeout_and_the_connection_is_replaced() {
    let address = server(|mut stream, _| while asked(&mut stream).is_some() {});
    let job = HttpJob {
        timeout: Span::from_millis(200),
        ..job()
    };
    let outcomes = carry_out(&job, address);
    let all = totals(&outcomes);
    assert_eq!((all.completed, all.in_flight), (0, 0), "{all:?}");
    // 200 ms each within 300 ms, and one in flight after it.
    assert_eq!(
        (all.sent, all.failed.timeout, all.attempted_connections),
        (2, 2, 2),
        "{all:?}"
    );
}

#[test]
fn a_reset_and_a_closed_port_are_told_apart() {
    let address = server(|mut stream, _| {
        let _ = asked(&mut stream);
        // Closing it then resets it.
        set_socket_linger(&stream, Some(Duration::ZERO)).unwrap();
    });
    let outcomes = carry_out(&job(), address);
    let all = totals(&outcomes);
    assert!(
        all.failed.reset > 0 && all.failed.sum() == all.failed.reset,
        "{all:?}"
    );

    let nobody = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let outcomes = carry_out(&job(), nobody);
    let all = totals(&outcomes);
    assert_eq!((all.sent, all.established_connections), (0, 0));
    let refused = all.refused_connections;
    assert!(
        refused.refused > 1 && refused.sum() == refused.refused,
        "{all:?}"
    );
    let said = outcomes[0].first_failure.as_deref().unwrap();
    assert!(said.contains("Connection refused"), "{said}");
    // It waits longer each time: 1, 2, 4, ... ms.
    assert!(all.attempted_connections < 12, "{all:?}");
}

#[test]
fn a_socket_that_does_not_exist_is_named() {
    let server = HttpDestination::Unix("/no/such/socket".to_owned());
    let outcomes = carry_out_with(&job(), server, |_| None);
    let refused = totals(&outcomes).refused_connections;
    assert!(
        refused.no_socket > 0 && refused.sum() == refused.no_socket,
        "{refused:?}"
    );
}

#[test]
fn nobody_who_speaks_tls_is_told_as_such() {
    let (address, _) = answers(
        b"HTTP/1.1 400 Bad\r\nContent-Length: 0\r\n\r\n",
        Duration::ZERO,
    );
    let job = HttpJob {
        url: "https://localhost/".to_owned(),
        timeout: Span::from_millis(200),
        ..job()
    };
    let outcomes = carry_out(&job, address);
    let all = totals(&outcomes);
    let refused = all.refused_connections;
    assert_eq!(all.established_connections, 0);
    assert!(
        refused.sum() > 0 && refused.sum() == refused.tls + refused.timeout,
        "{all:?}"
    );
}

#[test]
fn what_nobody_asked_for_breaks_the_connection_only() {
    let twice: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\naHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nb";
    let (address, _) = answers(twice, Duration::ZERO);
    let job = HttpJob {
        amount: Some(5),
        duration: None,
        ..job()
    };
    let outcomes = carry_out(&job, address);
    let all = totals(&outcomes);
    // Data received before a request was sent is not an answer to it.
    assert_eq!((all.sent, all.completed), (5, 5), "{all:?}");
    assert_eq!(all.broken_connections, 5, "{all:?}");
}

#[test]
fn an_idle_connection_that_the_server_closes_is_no_failure() {
    let address = server(|mut stream, _| {
        for _ in 0..3 {
            if asked(&mut stream).is_none() || stream.write_all(HELLO).is_err() {
                return;
            }
        }
    });
    let job = HttpJob {
        rate: vec![wb_model::http::HttpStage {
            from: 100.0,
            to: 100.0,
            time: None,
        }],
        ..job()
    };
    let outcomes = carry_out(&job, address);
    let all = totals(&outcomes);
    assert_eq!(all.failed.sum(), 0, "{all:?}");
    assert_eq!(
        (all.sent + all.unsent, all.broken_connections),
        (30, 0),
        "{all:?}"
    );
    assert!(all.closed_connections >= 9, "{all:?}");
}

#[test]
fn an_answer_that_is_not_what_it_must_be_has_failed() {
    let (address, _) = answers(HELLO, Duration::ZERO);
    for (check, wrong) in [
        (
            HttpCheck {
                status: vec![201],
                ..HttpCheck::default()
            },
            Some("status is 200"),
        ),
        (
            HttpCheck {
                body: Some("bye".to_owned()),
                ..HttpCheck::default()
            },
            Some("\"hello\""),
        ),
        (
            HttpCheck {
                header: Some("X-A".to_owned()),
                ..HttpCheck::default()
            },
            Some("missing header x-a"),
        ),
        (
            HttpCheck {
                status: vec![200],
                body: Some("ell".to_owned()),
                header: Some("content-length: 5".to_owned()),
            },
            None,
        ),
    ] {
        let job = HttpJob {
            check,
            amount: Some(20),
            duration: None,
            ..job()
        };
        let outcomes = carry_out(&job, address);
        let all = totals(&outcomes);
        match wrong {
            None => assert_eq!((all.completed, all.failed.sum()), (20, 0)),
            Some(text) => {
                assert_eq!(
                    (all.completed, all.failed.check, all.failed.sum()),
                    (0, 20, 20)
                );
                assert!(outcomes[0].first_failure.as_ref().unwrap().contains(text));
            }
        }
    }
}

#[test]
fn requests_of_one_connection_may_mix_get_and_head() {
    // The header describes the body, and HEAD omits the body.
    let address = server(|mut stream, _| {
        while let Some(head) = asked(&mut stream) {
            let body = !head.starts_with("HEAD");
            let answer = if body {
                HELLO
            } else {
                &HELLO[..HELLO.len() - 5]
            };
            if stream.write_all(answer).is_err() {
                return;
            }
        }
    });
    let call = |method: &str| HttpCall {
        method: method.to_owned(),
        ..HttpCall::default()
    };
    for pipeline in [1, 4] {
        let job = HttpJob {
            requests: vec![call("GET"), call("HEAD")],
            amount: Some(100),
            duration: None,
            pipeline,
            ..job()
        };
        let outcomes = carry_out(&job, address);
        let all = totals(&outcomes);
        assert_eq!((all.completed, all.failed.sum()), (100, 0), "{all:?}");
        assert_eq!(all.body_bytes, 250);
        assert_eq!(
            outcomes[0]
                .calls
                .iter()
                .map(|c| c.completed)
                .collect::<Vec<_>>(),
            [50, 50]
        );
    }
}

/// Only the count can end it.
#[test]
fn a_count_of_requests_ends_without_a_server_to_ask() {
    let bound = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = bound.local_addr().unwrap();
    drop(bound);
    let job = HttpJob {
        amount: Some(10),
        duration: None,
        timeout: Span::from_nanos(100_000_000),
        ..job()
    };
    let outcomes = carry_out(&job, address);
    let all = totals(&outcomes);
    assert_eq!((all.sent, all.unsent), (0, 10), "{all:?}");
    assert!(all.refused_connections.refused > 0, "{all:?}");
    assert!(all.adds_up(), "{all:?}");
}

#[test]
fn answers_from_400_on_are_errors_and_completed() {
    for (status, is_error) in [
        (204_u16, 0),
        (399, 0),
        (400, 1),
        (404, 1),
        (500, 1),
        (599, 1),
    ] {
        let text = format!("HTTP/1.1 {status} X\r\nContent-Length: 0\r\n\r\n");
        let (address, _) = answers(text.leak().as_bytes(), Duration::ZERO);
        let job = HttpJob {
            amount: Some(5),
            duration: None,
            ..job()
        };
        let outcomes = carry_out(&job, address);
        let all = totals(&outcomes);
        assert_eq!(
            (all.completed, all.failed.sum()),
            (5, 0),
            "{status}: {all:?}"
        );
        assert_eq!(outcomes[0].classes[&((status / 100) as u8)].count(), 5);
        assert_eq!(all.error_responses, 5 * is_error, "{status}: {all:?}");
    }
}

#[test]
fn phases_have_timeouts_of_their_own() {
    let wanted = HttpJob {
        duration: Some(Span::from_millis(600)),
        connect_timeout: Some(Span::from_millis(70)),
        first_byte_timeout: Some(Span::from_millis(50)),
        timeout: Span::from_millis(300),
        ..job()
    };
    // A silent server, in place of an answer, the rest of one, or a handshake.
    let stall = |begin: &'static [u8]| {
        server(move |mut stream, _| {
            if asked(&mut stream).is_some() {
                let _ = stream.write_all(begin);
                until_closed(&mut stream);
            }
        })
    };
    let all = totals(&carry_out(&wanted, stall(b"")));
    assert!(all.failed.first_byte_timeout > 2, "{all:?}");
    assert_eq!(all.failed.sum(), all.failed.first_byte_timeout, "{all:?}");
    assert_eq!(all.broken_connections, all.failed.sum(), "{all:?}");
    let all = totals(&carry_out(&wanted, stall(b"HTTP/1.1 200 OK\r\n")));
    assert!(all.failed.timeout > 0, "{all:?}");
    assert_eq!(all.failed.sum(), all.failed.timeout, "{all:?}");
    let encrypted = HttpJob {
        url: "https://test/".to_owned(),
        ..wanted.clone()
    };
    let silent = || server(|mut stream, _| until_closed(&mut stream));
    let all = totals(&carry_out(&encrypted, silent()));
    let refused = all.refused_connections;
    assert!(refused.connect_timeout > 2, "{all:?}");
    assert_eq!(refused.sum(), refused.connect_timeout, "{all:?}");
    // HTTP/2 waits for the server's settings.
    let http2 = HttpJob {
        version: HttpVersion::V2,
        ..wanted
    };
    let refused = totals(&carry_out(&http2, silent())).refused_connections;
    assert!(refused.connect_timeout > 2, "{refused:?}");
    assert_eq!(refused.sum(), refused.connect_timeout);
}
