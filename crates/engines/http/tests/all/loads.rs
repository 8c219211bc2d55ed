//! Number and times of requests.

use std::{
    collections::VecDeque,
    io::{Read as _, Write as _},
    net::{Shutdown, SocketAddr},
    sync::{Arc, Mutex, mpsc},
    time::Duration,
};

use wb_http::{HttpDestination, HttpThreadOutcome, Script, ScriptError};
use wb_model::{
    http::{Arrivals, HttpCall, HttpJob, HttpStage},
    units::Span,
};

use crate::kit::{
    HELLO, answers, asked, carry_out, carry_out_in_turn, carry_out_with, job, server, server_at,
    totals,
};

fn steady(rate: f64) -> Vec<HttpStage> {
    vec![HttpStage {
        from: rate,
        to: rate,
        time: None,
    }]
}

#[test]
fn the_request_is_what_wrk_sends_and_counts_are_exact() {
    let (address, heads) = answers(HELLO, Duration::ZERO);
    for (threads, connections, pipeline) in [(1, 1, 1), (3, 5, 1), (2, 4, 8)] {
        heads.lock().unwrap().clear();
        let job = HttpJob {
            url: "http://test:81/a?b=1#c".to_owned(),
            amount: Some(101),
            duration: None,
            threads,
            connections,
            pipeline,
            ..job()
        };
        let all = totals(&carry_out(&job, address));
        assert_eq!((all.sent, all.completed), (101, 101), "{all:?}");
        assert_eq!(u64::from(connections), all.open_connections);
        let heads = heads.lock().unwrap();
        assert_eq!(heads.len(), 101);
        assert!(
            heads
                .iter()
                .all(|h| h == "GET /a?b=1 HTTP/1.1\r\nHost: test:81\r\n\r\n")
        );
        assert_eq!(
            all.sent_bytes,
            heads.iter().map(|h| h.len() as u64).sum::<u64>()
        );
        assert_eq!(all.received_bytes, 101 * HELLO.len() as u64);
    }
}

#[test]
fn connections_are_replaced_after_their_requests() {
    let (address, heads) = answers(HELLO, Duration::ZERO);
    let job = HttpJob {
        amount: Some(30),
        duration: None,
        per_connection: 1,
        ..job()
    };
    let all = totals(&carry_out(&job, address));
    assert_eq!(
        (all.completed, all.closed_connections, all.failed.sum()),
        (30, 30, 0),
        "{all:?}"
    );
    assert!(
        heads
            .lock()
            .unwrap()
            .iter()
            .all(|h| h.contains("\r\nConnection: close\r\n"))
    );
    let job = HttpJob {
        per_connection: 7,
        pipeline: 3,
        ..job
    };
    let all = totals(&carry_out(&job, address));
    assert_eq!((all.completed, all.failed.sum()), (30, 0), "{all:?}");
    assert_eq!(
        (all.attempted_connections, all.closed_connections),
        (5, 4),
        "{all:?}"
    );
}

#[test]
fn whoever_ends_a_connection_first_the_server_sees_its_end_in_order() {
    let (sender, ends) = mpsc::channel();
    let address = server(move |mut stream, n| {
        let head = asked(&mut stream);
        let answer = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello";
        stream.write_all(answer).unwrap();
        // In some cases the client closes first.
        if n % 4 > 0 {
            stream.shutdown(Shutdown::Write).unwrap();
        }
        let end = stream.read(&mut [0]).map_err(|why| why.kind());
        sender.send((head.is_some(), end)).unwrap();
    });
    let job = HttpJob {
        amount: Some(400),
        connections: 3,
        duration: None,
        per_connection: 1,
        ..job()
    };
    let all = totals(&carry_out(&job, address));
    let made = (all.attempted_connections, all.closed_connections);
    assert_eq!((all.completed, made), (400, (400, 400)), "{all:?}");
    for _ in 0..400 {
        assert_eq!(ends.recv().unwrap(), (true, Ok(0)));
    }
}

#[test]
fn connections_to_addresses_of_both_families_are_all_made() {
    let addresses = ["127.0.0.1:0", "[::1]:0"].map(|address| {
        server_at(address, |mut stream, _| {
            if asked(&mut stream).is_some() {
                // The server closes first, so that the next connection could reuse the socket.
                let answer =
                    b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello";
                stream.write_all(answer).unwrap();
                stream.shutdown(Shutdown::Write).unwrap();
                let _ = stream.read(&mut [0]);
            }
        })
    });
    let job = HttpJob {
        amount: Some(300),
        connections: 3,
        duration: None,
        per_connection: 1,
        ..job()
    };
    let all = totals(&carry_out_in_turn(&job, addresses.to_vec()));
    let made = (all.attempted_connections, all.established_connections);
    assert_eq!((all.completed, made), (300, (300, 300)), "{all:?}");
}

#[test]
fn a_server_that_is_too_slow_shows_in_the_latency_from_when_due() {
    // 10 ms each over two connections: 200/s of the 400/s that are due. After T the queue is as old as T/2.
    let (address, _) = answers(HELLO, Duration::from_millis(10));
    let job = HttpJob {
        connections: 2,
        rate: steady(400.0),
        duration: Some(Span::from_secs(1)),
        ..job()
    };
    let outcomes = carry_out(&job, address);
    let all = totals(&outcomes);
    assert_eq!(all.sent + all.unsent, 400, "{all:?}");
    let (due, sent) = (&outcomes[0].latency, outcomes[0].service.as_ref().unwrap());
    let ms = |h: &wb_measure::Histogram, p: f64| h.percentile(p).unwrap() / 1_000_000;
    assert!((10..40).contains(&ms(sent, 50.0)), "{} ms", ms(sent, 50.0));
    assert!((200..400).contains(&ms(due, 50.0)), "{} ms", ms(due, 50.0));
    assert!(
        (400..700).contains(&ms(due, 100.0)),
        "{} ms",
        ms(due, 100.0)
    );
}

#[test]
fn a_rate_is_kept_and_given_up_where_that_is_asked_for() {
    let (address, heads) = answers(HELLO, Duration::ZERO);
    for arrivals in [Arrivals::Uniform, Arrivals::Poisson] {
        heads.lock().unwrap().clear();
        let job = HttpJob {
            connections: 8,
            threads: 2,
            rate: steady(500.0),
            duration: Some(Span::from_secs(1)),
            arrivals,
            ..job()
        };
        let all = totals(&carry_out(&job, address));
        match arrivals {
            Arrivals::Uniform => assert_eq!(all.sent + all.unsent, 500, "{all:?}"),
            Arrivals::Poisson => assert!((380..620).contains(&(all.sent + all.unsent)), "{all:?}"),
        }
        assert_eq!(all.sent, all.completed);
        assert_eq!(heads.lock().unwrap().len() as u64, all.sent);
    }
    let (slow, _) = answers(HELLO, Duration::from_millis(50));
    let job = HttpJob {
        rate: steady(100.0),
        duration: Some(Span::from_secs(1)),
        patience: Some(Span::from_millis(1)),
        ..job()
    };
    let outcomes = carry_out(&job, slow);
    let all = totals(&outcomes);
    assert_eq!(all.sent + all.unsent, 100);
    assert!((10..=21).contains(&all.sent), "{all:?}");
    assert!(outcomes[0].latency.max().unwrap() < 150_000_000);
}

#[test]
fn of_a_count_no_more_is_unsent_than_was_asked_for() {
    let (address, _) = answers(HELLO, Duration::from_millis(100));
    // When further requests are due, all connections are busy, or there is no server.
    let closed = "127.0.0.1:1".parse().unwrap();
    for (address, sent) in [(address, 5), (closed, 0)] {
        let job = HttpJob {
            connections: 5,
            rate: steady(500.0),
            duration: None,
            amount: Some(5),
            timeout: Span::from_millis(200),
            ..job()
        };
        let all = totals(&carry_out(&job, address));
        assert_eq!((all.sent, all.unsent), (sent, 5 - sent), "{all:?}");
    }
}

#[test]
fn a_warm_up_is_made_and_not_counted() {
    let (address, heads) = answers(HELLO, Duration::from_millis(1));
    let job = HttpJob {
        warm_up: Span::from_millis(200),
        duration: Some(Span::from_millis(400)),
        ..job()
    };
    let outcomes = carry_out(&job, address);
    let all = totals(&outcomes);
    assert!(all.warm_up > 10 && all.completed > 10, "{all:?}");
    assert_eq!(heads.lock().unwrap().len() as u64, all.warm_up + all.sent);
    assert_eq!(outcomes[0].duration_ns, 200_000_000);
    let request = heads.lock().unwrap()[0].len() as u64;
    assert_eq!(all.sent_bytes, all.sent * request, "{all:?}");
    assert_eq!(all.received_bytes, all.completed * HELLO.len() as u64);
    assert_eq!(all.body_bytes, 5 * all.completed);
    let in_time = outcomes[0].in_time;
    assert_eq!(in_time.established_connections, 0, "{in_time:?}");
    assert_eq!((all.attempted_connections, all.warm_up_connections), (0, 1));
    assert_eq!((all.open_connections, outcomes[0].connect.count()), (1, 0));
}

#[test]
fn a_large_body_that_is_sent_beyond_the_warm_up_counts_by_its_request() {
    // The server reads each body slowly, so that one is under way when the warm-up ends.
    let address = server(|mut stream, _| {
        let mut piece = vec![0; 100_000];
        while asked(&mut stream).is_some() {
            for _ in 0..100 {
                if stream.read_exact(&mut piece).is_err() {
                    return;
                }
                wb_testing::disturb(Duration::from_micros(200));
            }
            if stream.write_all(HELLO).is_err() {
                return;
            }
        }
    });
    let job = HttpJob {
        warm_up: Span::from_millis(100),
        duration: Some(Span::from_millis(400)),
        timeout: Span::from_secs(5),
        requests: vec![HttpCall {
            method: "POST".to_owned(),
            body: "x".repeat(10_000_000),
            ..HttpCall::default()
        }],
        ..job()
    };
    let all = totals(&carry_out(&job, address));
    assert_eq!(all.completed, all.sent, "{all:?}");
    let each =
        10_000_000 + "POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 10000000\r\n\r\n".len();
    assert_eq!(all.sent_bytes, all.sent * each as u64, "{all:?}");
}

#[test]
fn an_answer_before_the_end_of_the_request_counts() {
    // The server refuses the body unread, so the kernel resets the connection: RFC 9112 section 9.6.
    let address = server(|mut stream, _| {
        asked(&mut stream);
        let answer =
            b"HTTP/1.1 413 Too Large\r\nConnection: close\r\nContent-Length: 4\r\n\r\nlong";
        stream.write_all(answer).unwrap();
    });
    let job = HttpJob {
        connections: 2,
        amount: Some(100),
        duration: None,
        requests: vec![HttpCall {
            method: "POST".to_owned(),
            body: "x".repeat(2_000_000),
            ..HttpCall::default()
        }],
        ..job()
    };
    let outcomes = carry_out(&job, address);
    let all = totals(&outcomes);
    assert_eq!((all.completed, all.error_responses), (100, 100), "{all:?}");
}

#[test]
fn a_count_at_a_rate_takes_as_many_gaps_as_requests() {
    let (address, _) = answers(HELLO, Duration::ZERO);
    for threads in [1, 2] {
        let job = HttpJob {
            rate: steady(100.0),
            amount: Some(3),
            duration: None,
            threads,
            connections: 50,
            ..job()
        };
        let outcomes = carry_out(&job, address);
        let all = totals(&outcomes);
        assert_eq!(all.completed, 3);
        let most = outcomes.iter().map(|o| o.duration_ns).max().unwrap();
        assert!(most >= 30_000_000, "{most}");
        assert!(all.attempted_connections <= 3, "{all:?}");
    }
}

/// Requests that a script makes, one by one; the script can stop at a number of remaining requests.
struct Scripted {
    texts: VecDeque<Vec<u8>>,
    stops_after: Option<usize>,
}

impl Script for Scripted {
    fn address(&self) -> Option<SocketAddr> {
        None
    }

    fn fixed(&self) -> Option<&[u8]> {
        None
    }

    fn request(&mut self, out: &mut Vec<u8>) -> Result<(), ScriptError> {
        out.extend(self.texts.pop_front().unwrap_or_default());
        Ok(())
    }

    fn delays(&self) -> bool {
        false
    }

    fn delay_ms(&mut self) -> Result<u64, ScriptError> {
        Ok(0)
    }

    fn wants_responses(&self) -> bool {
        false
    }

    fn response(&mut self, _: u16, _: &[u8], _: &[u8]) -> Result<(), ScriptError> {
        Ok(())
    }

    fn stopped(&self) -> bool {
        self.stops_after
            .is_some_and(|left| self.texts.len() <= left)
    }
}

fn scripted(
    job: &HttpJob,
    address: SocketAddr,
    texts: &[Vec<u8>],
    stops_after: Option<usize>,
) -> HttpThreadOutcome {
    let job = HttpJob {
        as_wrk: true,
        ..job.clone()
    };
    let script = |_| {
        let script: Box<dyn Script> = Box::new(Scripted {
            texts: texts.iter().cloned().collect(),
            stops_after,
        });
        Some(script)
    };
    let mut outcomes = carry_out_with(&job, HttpDestination::Addresses(vec![address]), script);
    outcomes.remove(0)
}

#[test]
fn a_body_whose_answer_came_first_is_sent_to_its_end() {
    const BODY: usize = 20_000_000;
    let seen = Arc::new(Mutex::new(Vec::new()));
    let tell = Arc::clone(&seen);
    let address = server(move |mut stream, _| {
        let mut body = vec![0; BODY];
        while let Some(head) = asked(&mut stream) {
            tell.lock().unwrap().push(head);
            // The body exceeds the buffers of both ends.
            if stream.write_all(HELLO).is_err() || stream.read_exact(&mut body).is_err() {
                return;
            }
        }
    });
    let text = format!("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: {BODY}\r\n\r\n");
    let one = [text.as_bytes(), &vec![b'x'; BODY]].concat();
    let mut texts = vec![one; 4];
    texts.push(b"GET /last HTTP/1.1\r\nHost: x\r\n\r\n".to_vec());
    let job = HttpJob {
        duration: Some(Span::from_secs(2)),
        ..job()
    };
    scripted(&job, address, &texts, None);
    let seen = seen.lock().unwrap();
    assert!(seen.len() >= 2, "{}", seen.len());
    for head in seen.iter() {
        assert!(head == &text || head.starts_with("GET /last"), "{head:.80}");
    }
}

#[test]
fn a_script_with_nothing_more_to_say_lets_its_connection_rest() {
    let (address, heads) = answers(HELLO, Duration::ZERO);
    let texts = vec![b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(); 3];
    let outcome = scripted(&job(), address, &texts, None);
    assert_eq!(heads.lock().unwrap().len(), 3);
    let exact = outcome.exact.as_ref().unwrap();
    assert_eq!((exact.responses, exact.errors), (3, [0; 3]));
    assert_eq!(outcome.duration_ns, 300_000_000);
}

#[test]
fn a_thread_that_its_script_stops_rests_until_the_end() {
    let (address, heads) = answers(HELLO, Duration::ZERO);
    let texts = vec![b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(); 10];
    let outcome = scripted(&job(), address, &texts, Some(4));
    assert!(heads.lock().unwrap().len() >= 6);
    assert_eq!(outcome.duration_ns, 300_000_000);
    assert!(outcome.wall_ns >= 300_000_000);
}

#[test]
fn the_counted_part_owes_nothing_to_the_warm_up() {
    // A server at half of the rate: requests that were due in the warm-up and found no connection are never sent.
    let (address, _) = answers(HELLO, Duration::from_millis(10));
    let job = HttpJob {
        connections: 2,
        rate: steady(400.0),
        warm_up: Span::from_millis(600),
        duration: Some(Span::from_secs(1)),
        ..job()
    };
    let outcomes = carry_out(&job, address);
    let all = totals(&outcomes);
    assert!((40..=90).contains(&all.completed), "{all:?}");
    assert_eq!(all.sent + all.unsent, 160, "{all:?}");
    let most = outcomes[0].latency.max().unwrap();
    assert!(most < 450_000_000, "{most}");
    // A server that stalls until the warm-up is over, and then keeps the rate.
    let begin = std::time::Instant::now();
    let address = server(move |mut stream, _| {
        while asked(&mut stream).is_some() {
            let left = Duration::from_millis(700).saturating_sub(begin.elapsed());
            wb_testing::disturb(left);
            if stream.write_all(HELLO).is_err() {
                return;
            }
        }
    });
    let outcomes = carry_out(&job, address);
    let all = totals(&outcomes);
    assert_eq!(all.sent + all.unsent, 160, "{all:?}");
    assert!(all.completed > 120, "{all:?}");
}

#[test]
fn bodies_that_differ_have_different_digests() {
    let address = server(|mut stream, n| {
        while asked(&mut stream).is_some() {
            let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n{}", n % 2);
            if stream.write_all(answer.as_bytes()).is_err() {
                return;
            }
        }
    });
    for (connections, digests) in [(1, 1), (2, 2)] {
        let job = HttpJob {
            digest: true,
            connections,
            ..job()
        };
        let outcomes = carry_out(&job, address);
        // The number of a connection alternates; the first alone has one body.
        assert!(
            outcomes[0].digests.len() <= digests,
            "{:?}",
            outcomes[0].digests
        );
        if connections == 2 {
            assert_eq!(outcomes[0].digests.len(), 2);
        }
    }
}

#[test]
fn as_wrk_counts_what_wrk_counts() {
    // Interim responses count, slow answers are timeouts without a time, and bodies that end with the connection are
    // errors too.
    let (address, _) = answers(
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n",
        Duration::ZERO,
    );
    let wrk = HttpJob {
        as_wrk: true,
        connections: 3,
        threads: 2,
        ..job()
    };
    let outcomes = carry_out(&wrk, address);
    let exact = outcomes[0].exact.as_ref().unwrap();
    assert!(
        exact.responses > 10 && exact.responses.abs_diff(2 * exact.status_errors) <= 1,
        "{}",
        exact.responses
    );
    assert_eq!(
        totals(&outcomes).attempted_connections,
        2,
        "the remainder is left out"
    );

    // An unrequested answer counts, without a time, and the next request does not wait for further ones.
    let (twice, heads) = answers(
        b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
        Duration::ZERO,
    );
    let outcomes = carry_out(
        &HttpJob {
            as_wrk: true,
            ..job()
        },
        twice,
    );
    let exact = outcomes[0].exact.as_ref().unwrap();
    let times: u64 = exact.times.sorted_counts().iter().map(|(_, n)| n).sum();
    assert_eq!((exact.responses, exact.errors), (2 * times, [0; 3]));
    assert!(heads.lock().unwrap().len() as u64 - times <= 1);

    let (slow, _) = answers(HELLO, Duration::from_millis(60));
    let job = HttpJob {
        as_wrk: true,
        timeout: Span::from_millis(50),
        ..job()
    };
    let outcomes = carry_out(&job, slow);
    let exact = outcomes[0].exact.as_ref().unwrap();
    assert!(exact.responses >= 3 && exact.timeouts == exact.responses);
    assert_eq!(exact.times.sorted_counts().len(), 0);

    let ends = server(|mut stream, _| {
        if asked(&mut stream).is_some() {
            let _ = stream.write_all(b"HTTP/1.0 200 OK\r\n\r\nhello");
        }
    });
    let outcomes = carry_out(&job, ends);
    let exact = outcomes[0].exact.as_ref().unwrap();
    assert!(exact.responses > 2);
    assert_eq!(exact.errors, [0, exact.responses, 0]);
}
