//! Several requests of one client: which goes when, what its answer is, and that each is counted once.

use crate::common::*;
use wb_tcp::*;

/// Each request as it ended.
#[derive(Default)]
struct Told {
    asked: Vec<u16>,
    done: Vec<Exchange>,
    lost: Vec<(u16, Cause)>,
}

impl Observer for Told {
    fn asked(&mut self, _: u64, text: u16, n: u16) {
        (0..n).for_each(|_| self.asked.push(text));
    }

    fn exchanged(&mut self, exchange: &Exchange) {
        self.done.push(*exchange);
    }

    fn unanswered(&mut self, text: u16, _: u64, cause: Cause) {
        self.lost.push((text, cause));
    }
}

fn ask(text: &str, weight: u32) -> Ask {
    Ask {
        message: Message::bytes(text.as_bytes()),
        weight,
        head: text.starts_with("HEAD"),
    }
}

fn asks() -> Vec<Ask> {
    let post = "POST /c HTTP/1.1\r\nHost: x\r\nContent-Length: 3000\r\n\r\n";
    let len = post.len() as u32 + 3000;
    vec![
        ask("GET /a HTTP/1.1\r\nHost: x\r\n\r\n", 2),
        ask("HEAD /b HTTP/1.1\r\nHost: x\r\n\r\n", 1),
        Ask {
            message: Message::new(post.as_bytes(), len, Filler::Random(7)),
            ..ask(post, 1)
        },
    ]
}

/// Both ends, joined by a path that loses, repeats and reorders.
fn joined(
    config: impl FnOnce(&mut Config),
    requests: Option<u16>,
    pipeline: u16,
    loss: u64,
) -> (Machine<Told>, Machine) {
    let mut c = client(false);
    (c.requests, c.pipeline) = (requests, pipeline);
    let mut config_c = client_config(c, Transport::Tcp);
    config_c.asks = asks();
    config(&mut config_c);
    let mut s = server(false);
    (s.request, s.answers) = (Reading::Http, None);
    s.answer = Answer::Message(Message::new(
        b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n",
        41 + 5000,
        Filler::Letter(b'x'),
    ));
    let mut client = Machine::new(config_c, Told::default()).unwrap();
    let mut server = Machine::new(server_config(s, Transport::Tcp), ()).unwrap();
    let (mut there, mut back) = (Frames::new(usize::MAX), Frames::new(usize::MAX));
    client.launch(0, 5, &mut there);
    let mut random = 1u64;
    let mut bad = |frames: Vec<Vec<u8>>| {
        let mut out: Vec<Vec<u8>> = Vec::new();
        for frame in frames {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(99);
            match (random >> 33) % 100 {
                n if n < loss => {}
                n if n < 2 * loss => out.extend([frame.clone(), frame]),
                n if n < 4 * loss && !out.is_empty() => out.insert(out.len() - 1, frame),
                _ => out.push(frame),
            }
        }
        out
    };
    for step in 0..200_000u64 {
        let now = step * MS / 4;
        for frame in bad(there.take()) {
            server.receive(now, &frame, &mut back);
        }
        for frame in bad(back.take()) {
            client.receive(now, &frame, &mut there);
        }
        client.poll(now, &mut there);
        server.poll(now, &mut back);
        if client.is_idle() {
            break;
        }
    }
    (client, server)
}

#[test]
fn each_request_has_its_answer_whatever_the_path_does() {
    for (pipeline, loss) in [(1, 0), (4, 0), (1, 2), (4, 2), (8, 5)] {
        let (client, server) = joined(|_| (), Some(200), pipeline, loss);
        let (c, s) = (client.counters(), server.counters());
        let told = client.observer();
        assert_eq!(
            (c.requests, c.responses, c.requests_lost),
            (1000, 1000, 0),
            "{pipeline} {loss}"
        );
        assert_eq!((s.requests, c.status_2xx), (1000, 1000));
        let count = |text| told.done.iter().filter(|e| e.text == text).count();
        assert_eq!(
            [count(0), count(1), count(2)],
            [500, 250, 250],
            "{pipeline} {loss}"
        );
        // Answers to HEAD have none; those to others have theirs, byte by byte.
        assert_eq!(c.body_rx, 750 * 5000, "{pipeline} {loss}");
        assert!(told.lost.is_empty() && c.is_balanced());
        assert_eq!(c.completed, 5);
    }
}

#[test]
fn no_more_are_sent_than_were_to_be() {
    for pipeline in [1, 3] {
        let (client, server) = joined(|config| config.most_requests = 17, None, pipeline, 0);
        assert_eq!(client.left(), 0);
        assert_eq!(
            (client.counters().requests, server.counters().requests),
            (17, 17)
        );
        assert_eq!(client.observer().done.len(), 17);
        assert!(client.is_idle() && client.counters().completed == 5);
    }
}

/// Connection by connection: when requests were due, and that those behind one another have their own times.
#[test]
fn requests_behind_one_another_have_their_own_due_times() {
    let mut c = client(false);
    (c.requests, c.pipeline, c.paced) = (None, 3, true);
    let mut config = client_config(c, Transport::Tcp);
    config.asks = vec![ask("GET / HTTP/1.1\r\nHost: x\r\n\r\n", 1)];
    let mut s = server(false);
    (s.request, s.answers) = (Reading::Http, None);
    let mut client = Machine::new(config, Told::default()).unwrap();
    let mut server = Machine::new(server_config(s, Transport::Tcp), ()).unwrap();
    let (mut there, mut back) = (Frames::new(100), Frames::new(100));
    client.launch(0, 1, &mut there);
    let exchange = |client: &mut Machine<Told>,
                    server: &mut Machine,
                    now,
                    there: &mut Frames,
                    back: &mut Frames| {
        for _ in 0..4 {
            there.take().iter().for_each(|f| {
                server.receive(now, f, back);
            });
            back.take().iter().for_each(|f| {
                client.receive(now, f, there);
            });
            client.poll(now, there);
            server.poll(now, back);
        }
    };
    exchange(&mut client, &mut server, MS, &mut there, &mut back);
    let late = [6 * SEC, 2 * MS, 5];
    assert_eq!(client.ask_each(10 * SEC, &late, &mut there), 3);
    assert_eq!(
        client.ask_each(10 * SEC, &late, &mut there),
        0,
        "nobody rests"
    );
    let mut waiting = Vec::new();
    client.waiting_requests(|text, sent| waiting.push((text, sent)));
    assert_eq!(waiting, [(0, 10 * SEC); 3]);
    exchange(
        &mut client,
        &mut server,
        10 * SEC + 7,
        &mut there,
        &mut back,
    );
    let told: Vec<(u64, u64)> = client
        .observer()
        .done
        .iter()
        .map(|e| (e.ns, e.since_due))
        .collect();
    assert_eq!(told.len(), 3);
    for ((ns, since_due), late) in told.into_iter().zip(late) {
        assert_eq!(ns, 7);
        // Long times are kept in steps of 1,024 ns.
        assert!(
            since_due <= 7 + late && since_due + 1024 > 7 + late,
            "{since_due} {late}"
        );
    }
}

#[test]
fn requests_of_a_connection_that_ends_are_lost_with_it() {
    let mut c = client(false);
    (c.requests, c.pipeline) = (None, 4);
    let mut config = client_config(c, Transport::Tcp);
    config.asks = asks();
    let mut s = server(false);
    (s.request, s.answers) = (Reading::Http, Some(2));
    s.answer = Answer::Message(Message::bytes(
        b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
    ));
    let mut client = Machine::new(config, Told::default()).unwrap();
    let mut server = Machine::new(server_config(s, Transport::Tcp), ()).unwrap();
    let (mut there, mut back) = (Frames::new(1000), Frames::new(1000));
    client.launch(0, 3, &mut there);
    for now in 0..200 {
        there.take().iter().for_each(|f| {
            server.receive(now, f, &mut back);
        });
        back.take().iter().for_each(|f| {
            client.receive(now, f, &mut there);
        });
        client.poll(now, &mut there);
        server.poll(now, &mut back);
    }
    let c = client.counters();
    assert_eq!((c.requests, c.responses, c.requests_lost), (12, 6, 6));
    assert_eq!(c.failed_short, 3);
    let told = client.observer();
    assert_eq!(told.done.len(), 6);
    assert!(told.lost.len() == 6 && told.lost.iter().all(|(_, cause)| *cause == Cause::Short));
    let mut ended: Vec<u16> = told.done.iter().map(|e| e.text).collect();
    ended.extend(told.lost.iter().map(|(text, _)| text));
    let mut asked = told.asked.clone();
    ended.sort_unstable();
    asked.sort_unstable();
    assert_eq!(ended, asked);
}

/// What a million of idle connections take.
#[test]
fn an_idle_connection_takes_no_more_than_128_bytes() {
    const N: u32 = 200_000;
    let mut c = client(false);
    c.tuples = Tuples::new(
        addresses("198.18.0.1", 10),
        (1024, 65535),
        addresses("198.18.1.1", 1),
        (80, 80),
        Order::Sequential,
        Steering::All,
    )
    .unwrap();
    (c.requests, c.paced) = (None, true);
    let mut config = client_config(c, Transport::Tcp);
    config.asks = asks();
    config.expected = N;
    let mut s = server(false);
    (s.request, s.answers) = (Reading::Http, None);
    let mut client = Machine::new(config, Told::default()).unwrap();
    let mut config = server_config(s, Transport::Tcp);
    config.expected = N;
    let mut server = Machine::new(config, ()).unwrap();
    let (mut there, mut back) = (Frames::new(1000), Frames::new(1000));
    let mut now = 0;
    for _ in 0..N / 500 {
        client.launch(now, 500, &mut there);
        for _ in 0..2 {
            now += 1000;
            there.take().iter().for_each(|f| {
                server.receive(now, f, &mut back);
            });
            back.take().iter().for_each(|f| {
                client.receive(now, f, &mut there);
            });
            client.poll(now, &mut there);
            server.poll(now, &mut back);
        }
        assert_eq!(client.ask_each(now, &[0], &mut there), 1);
        for _ in 0..3 {
            there.take().iter().for_each(|f| {
                server.receive(now, f, &mut back);
            });
            back.take().iter().for_each(|f| {
                client.receive(now, f, &mut there);
            });
            client.poll(now, &mut there);
            server.poll(now, &mut back);
        }
    }
    assert_eq!(client.counters().open, u64::from(N));
    assert_eq!(client.counters().responses, u64::from(N / 500));
    for bytes in [client.memory(), server.memory()] {
        let each = bytes as f64 / f64::from(N);
        assert!(each <= 128.0, "{each}");
    }
}
