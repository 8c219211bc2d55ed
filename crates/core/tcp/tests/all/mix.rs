//! Several requests of one client: order, matching answers, and each request counted once.

use std::collections::HashMap;

use crate::common::*;
use wb_tcp::*;
use wb_wire::tcp_flags::{ACK, SYN};

/// Requests by their outcome.
#[derive(Default)]
struct Told {
    asked: Vec<u16>,
    done: Vec<Exchange>,
    lost: Vec<(u16, Cause)>,
    lost_ns: Vec<u64>,
    malformed: Vec<Vec<u8>>,
    unasked: u32,
    /// Incomplete heads and bodies by place, and the complete ones without reused places.
    begun: HashMap<u16, [Vec<u8>; 2]>,
    shown: Vec<Option<[Vec<u8>; 2]>>,
}

impl Observer for Told {
    fn asked(&mut self, _: u64, text: u16, n: u16) {
        (0..n).for_each(|_| self.asked.push(text));
    }

    fn exchanged(&mut self, exchange: &Exchange) {
        self.done.push(*exchange);
        let shown = exchange.shown.map(|place| self.begun.remove(&place));
        self.shown
            .push(shown.map(|shown| shown.expect("it has begun")));
    }

    fn unanswered(&mut self, text: u16, ns: u64, cause: Cause) {
        self.lost.push((text, cause));
        self.lost_ns.push(ns);
    }

    fn head(&mut self, place: u16, first: bool, bytes: &[u8]) {
        if first {
            self.begun.insert(place, Default::default());
        }
        let [head, body] = self.begun.get_mut(&place).expect("it has begun");
        assert!(body.is_empty(), "the head comes first");
        head.extend_from_slice(bytes);
    }

    fn body(&mut self, place: u16, bytes: &[u8]) {
        let [_, body] = self.begun.get_mut(&place).expect("it has begun");
        body.extend_from_slice(bytes);
    }

    fn malformed(&mut self, bytes: &[u8]) {
        self.malformed.push(bytes.to_vec());
    }

    fn unasked(&mut self) {
        self.unasked += 1;
    }
}

fn ask(text: &str, weight: u32) -> WeightedRequest {
    WeightedRequest {
        message: Message::bytes(text.as_bytes()),
        weight,
        head: text.starts_with("HEAD"),
    }
}

fn asks() -> Vec<WeightedRequest> {
    let post = "POST /c HTTP/1.1\r\nHost: x\r\nContent-Length: 3000\r\n\r\n";
    let len = post.len() as u32 + 3000;
    vec![
        ask("GET /a HTTP/1.1\r\nHost: x\r\n\r\n", 2),
        ask("HEAD /b HTTP/1.1\r\nHost: x\r\n\r\n", 1),
        WeightedRequest {
            message: Message::new(post.as_bytes(), len, Filler::Random(7)),
            ..ask(post, 1)
        },
    ]
}

const HEAD: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n";

/// All pieces of the body differ from each other.
fn body() -> Vec<u8> {
    (0..5000_u32).map(|n| (n * n / 7) as u8).collect()
}

/// Exchanges frames in both directions, `times` times.
fn exchange(
    now: u64,
    times: u32,
    client: &mut Machine<Told>,
    server: &mut Machine,
    (there, back): &mut (Frames, Frames),
) {
    for _ in 0..times {
        for frame in there.take_frames() {
            server.receive(now, &frame, back);
        }
        for frame in back.take_frames() {
            client.receive(now, &frame, there);
        }
        client.poll(now, there);
        server.poll(now, back);
    }
}

/// Both ends, connected by a path that loses, duplicates and reorders.
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
    s.answer = ServerAnswer::Message(Message::bytes(&[HEAD, &body()].concat()));
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
        for frame in bad(there.take_frames()) {
            server.receive(now, &frame, &mut back);
        }
        for frame in bad(back.take_frames()) {
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
    for (pipeline, loss, shown) in [
        (1, 0, true),
        (4, 0, false),
        (1, 2, false),
        (4, 2, true),
        (8, 5, true),
    ] {
        let show = |config: &mut Config| config.shows_answers = shown;
        let (client, server) = joined(show, Some(200), pipeline, loss);
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
        for (exchange, answer) in told.done.iter().zip(&told.shown) {
            let body = || [body(), Vec::new()][usize::from(exchange.text == 1)].clone();
            let wanted = shown.then(|| [HEAD.to_vec(), body()]);
            assert!(*answer == wanted, "{pipeline} {loss} {exchange:?}");
        }
        // Answers to HEAD have no body; the other bodies are complete.
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

/// Per connection: the due times of requests, and separate times for pipelined requests.
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
    let mut path = (Frames::new(100), Frames::new(100));
    client.launch(0, 1, &mut path.0);
    exchange(MS, 4, &mut client, &mut server, &mut path);
    let late = [6 * SEC, 2 * MS, 5];
    assert_eq!(client.ask_each(10 * SEC, &late, &mut path.0), 3);
    assert_eq!(
        client.ask_each(10 * SEC, &late, &mut path.0),
        0,
        "nobody rests"
    );
    let mut waiting = Vec::new();
    client.waiting_requests(|text, sent| waiting.push((text, sent)));
    assert_eq!(waiting, [(0, 10 * SEC); 3]);
    exchange(10 * SEC + 7, 4, &mut client, &mut server, &mut path);
    let told: Vec<(u64, u64)> = client
        .observer()
        .done
        .iter()
        .map(|e| (e.ns, e.since_due))
        .collect();
    assert_eq!(told.len(), 3);
    for ((ns, since_due), late) in told.into_iter().zip(late) {
        assert_eq!(ns, 7);
        // Long times are stored in steps of 1,024 ns.
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
    s.answer = ServerAnswer::Message(Message::bytes(
        b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
    ));
    let mut client = Machine::new(config, Told::default()).unwrap();
    let mut server = Machine::new(server_config(s, Transport::Tcp), ()).unwrap();
    let mut path = (Frames::new(1000), Frames::new(1000));
    client.launch(0, 3, &mut path.0);
    for now in 0..200 {
        exchange(now, 1, &mut client, &mut server, &mut path);
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

/// Client with one connection; the test plays the server.
struct Alone {
    client: Machine<Told>,
    out: Frames,
    seq: u32,
    ack: u32,
}

const REQUEST: &str = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";

impl Alone {
    fn new(pipeline: u16, requests: Option<u16>, paced: bool) -> Self {
        Self::with(pipeline, requests, paced, |_| ())
    }

    fn with(
        pipeline: u16,
        requests: Option<u16>,
        paced: bool,
        change: impl FnOnce(&mut Config),
    ) -> Self {
        let mut c = client(false);
        (c.requests, c.pipeline, c.paced) = (requests, pipeline, paced);
        let mut config = client_config(c, Transport::Tcp);
        config.asks = vec![ask(REQUEST, 1)];
        config.response_timeout = 200 * MS;
        change(&mut config);
        let mut client = Machine::new(config, Told::default()).unwrap();
        let mut out = Frames::new(100);
        client.launch(0, 1, &mut out);
        let first = see(0, true, &out.take_frames()[0]).seq;
        let options = [2, 4, 5, 0xb4, 1, 3, 3, 7, 1, 1, 4, 2];
        let syn = segment(true, 999, first + 1, SYN | ACK, 60_000, &options, &[]);
        client.receive(0, &syn, &mut out);
        Self {
            client,
            out,
            seq: 1000,
            ack: first + 1,
        }
    }

    /// Number of requests sent; the next segment acknowledges them.
    fn asked(&mut self) -> usize {
        let frames = self.out.take_frames();
        let sent: usize = frames.iter().map(|frame| see(0, true, frame).len).sum();
        self.ack += sent as u32;
        assert_eq!(sent % REQUEST.len(), 0);
        sent / REQUEST.len()
    }

    /// Sends bytes to the client and returns the number of requests that it sends in turn.
    fn say(&mut self, now: u64, bytes: &[u8]) -> usize {
        let frame = segment(true, self.seq, self.ack, ACK, 60_000, &[], bytes);
        self.seq += bytes.len() as u32;
        self.client.receive(now, &frame, &mut self.out);
        self.client.poll(now, &mut self.out);
        self.asked()
    }
}

#[test]
fn an_answer_makes_room_for_a_request() {
    let mut one = Alone::new(3, Some(9), false);
    assert_eq!(one.asked(), 3);
    assert_eq!(one.say(MS, OK), 1);
    assert_eq!(one.say(2 * MS, &OK[..20]), 0);
    let more = [&OK[20..], OK, &OK[..30]].concat();
    assert_eq!(one.say(3 * MS, &more), 2);
    assert_eq!(one.say(4 * MS, &OK[30..]), 1);
    // Each pipelined request has a separate time, and so has the first byte of each answer.
    let times = |one: &Alone| {
        one.client
            .observer()
            .done
            .iter()
            .map(|e| e.ns)
            .collect::<Vec<_>>()
    };
    assert_eq!(times(&one), [MS, 3 * MS, 3 * MS, 3 * MS]);
    // Two of the nine requests are left, then none.
    assert_eq!(one.say(5 * MS, &OK.repeat(3)), 2);
    assert_eq!(times(&one)[4..], [2 * MS, 2 * MS, MS]);
    assert_eq!(one.say(6 * MS, &OK.repeat(2)), 0);
    let c = one.client.counters();
    assert_eq!((c.requests, c.responses, c.requests_lost), (9, 9, 0));
    assert_eq!(one.client.observer().asked.len(), 9);
}

#[test]
fn an_answer_that_came_before_its_request_breaks_the_connection() {
    // In the same segment as the previous answer: no request has been sent that it could answer.
    let mut one = Alone::new(1, None, false);
    assert_eq!(one.asked(), 1);
    assert_eq!(one.say(MS, &OK.repeat(2)), 0);
    let told = one.client.observer();
    assert_eq!((told.done.len(), told.lost.len(), told.unasked), (1, 0, 1));
    let c = one.client.counters();
    assert_eq!((c.requests, c.responses, c.requests_lost), (1, 1, 0));
    // In a separate segment: the peer has acknowledged nothing of the request.
    let mut one = Alone::new(1, None, false);
    assert_eq!(one.asked(), 1);
    assert_eq!(one.say(MS, OK), 1);
    one.ack -= REQUEST.len() as u32;
    one.say(2 * MS, OK);
    let told = one.client.observer();
    assert_eq!((told.done.len(), told.lost.len(), told.unasked), (1, 1, 1));
    // A body where none is allowed.
    let mut one = Alone::new(1, None, false);
    assert_eq!(one.asked(), 1);
    one.say(MS, b"HTTP/1.1 204 No Content\r\n\r\nhi");
    let told = one.client.observer();
    assert_eq!((told.done.len(), told.lost.len(), told.unasked), (1, 0, 1));
}

#[test]
fn the_oldest_request_has_the_timeout() {
    let mut one = Alone::new(3, None, false);
    assert_eq!(one.asked(), 3);
    assert_eq!(one.say(150 * MS, OK), 1);
    one.client.poll(199 * MS, &mut one.out);
    assert_eq!(one.client.counters().failed_response_timeout, 0);
    let mut waiting = Vec::new();
    one.client.waiting_requests(|_, sent| waiting.push(sent));
    assert_eq!(waiting, [0, 0, 150 * MS]);
    one.client.poll(202 * MS, &mut one.out);
    assert_eq!(one.client.counters().failed_response_timeout, 1);
    let lost = &one.client.observer().lost_ns;
    assert_eq!(lost[..], [202 * MS, 202 * MS, 52 * MS]);

    // An answer in time restarts the timeout for the next request.
    let mut one = Alone::new(2, None, false);
    one.asked();
    assert_eq!(one.say(100 * MS, OK), 1);
    assert_eq!(one.say(190 * MS, OK), 1);
    one.client.poll(250 * MS, &mut one.out);
    assert_eq!(one.client.counters().open, 1);
    one.client.poll(302 * MS, &mut one.out);
    assert_eq!(one.client.observer().lost_ns, [202 * MS, 112 * MS]);
}

/// A caller that stalls between stamping a request and sending it must not fail the request.
#[test]
fn a_request_of_a_stalled_turn_has_its_whole_timeout() {
    let mut one = Alone::new(1, None, false);
    one.asked();
    one.client.was_away(0, 500 * MS);
    for at in [500, 501, 699] {
        one.client.poll(at * MS, &mut one.out);
        assert_eq!(one.client.counters().open, 1, "after {at} ms");
    }
    one.client.poll(702 * MS, &mut one.out);
    assert_eq!(one.client.observer().lost, [(0, Cause::Response)]);

    // A request of an earlier turn has left.
    let mut one = Alone::new(1, None, false);
    one.asked();
    one.client.was_away(1, 500 * MS);
    one.client.poll(500 * MS, &mut one.out);
    assert_eq!(one.client.observer().lost, [(0, Cause::Response)]);
}

#[test]
fn the_first_byte_has_a_timeout_of_its_own() {
    let with = |pipeline, requests| {
        Alone::with(pipeline, requests, false, |config| {
            config.first_byte_timeout = 50 * MS;
        })
    };
    let mut one = with(1, None);
    one.asked();
    one.client.poll(49 * MS, &mut one.out);
    assert_eq!(one.client.counters().open, 1);
    one.client.poll(52 * MS, &mut one.out);
    assert_eq!(one.client.observer().lost, [(0, Cause::FirstByte)]);
    assert_eq!(one.client.counters().failed_response_timeout, 1);

    // An answer that has started has the longer timeout, counted from the request.
    let mut one = with(1, None);
    one.asked();
    one.say(40 * MS, &OK[..9]);
    one.client.poll(52 * MS, &mut one.out);
    one.client.poll(199 * MS, &mut one.out);
    assert_eq!(one.client.counters().open, 1);
    one.client.poll(202 * MS, &mut one.out);
    assert_eq!(one.client.observer().lost, [(0, Cause::Response)]);

    // Behind a slow answer: the next one has had no first byte for as long.
    let mut one = with(2, Some(2));
    one.asked();
    one.say(40 * MS, &OK[..9]);
    one.client.poll(60 * MS, &mut one.out);
    one.say(150 * MS, &OK[9..]);
    one.client.poll(152 * MS, &mut one.out);
    assert_eq!(one.client.observer().done.len(), 1);
    assert_eq!(one.client.observer().lost, [(0, Cause::FirstByte)]);
}

#[test]
fn a_round_trip_is_timed_from_when_its_request_went_out() {
    let mut one = Alone::with(2, None, false, |config| {
        config.response_timeout = SEC;
        config.retransmission.after = MS;
    });
    one.asked();
    // The older request waits for 150 ms; the data in flight is acknowledged after 1 ms.
    one.say(MS, &[]);
    assert_eq!(one.say(100 * MS, OK), 1);
    one.say(101 * MS, &[]);
    assert_eq!(one.say(150 * MS, OK), 1);
    one.say(151 * MS, &[]);
    assert_eq!(one.say(152 * MS, OK), 1);
    one.client.poll(170 * MS, &mut one.out);
    assert_eq!(one.asked(), 1, "it is sent again a few round trips later");
}

#[test]
fn what_is_due_goes_out_while_answers_are_awaited() {
    let mut one = Alone::new(3, None, true);
    assert_eq!(one.asked(), 0);
    let ask = |one: &mut Alone, now, late: &[u64]| {
        let n = one.client.ask_each(now, late, &mut one.out);
        assert_eq!(one.asked(), n);
        n
    };
    assert_eq!(ask(&mut one, 0, &[0]), 1);
    assert_eq!(ask(&mut one, MS, &[5, 0]), 2);
    assert_eq!(ask(&mut one, 2 * MS, &[0]), 0, "there is no room");
    assert_eq!(one.say(3 * MS, &[OK, &OK[..9]].concat()), 0);
    // In the middle of an answer.
    assert_eq!(ask(&mut one, 4 * MS, &[7, 7]), 1);
    assert_eq!(ask(&mut one, 4 * MS, &[7]), 0);
    assert_eq!(one.say(5 * MS, &[&OK[9..], OK, OK].concat()), 0);
    let done = &one.client.observer().done;
    let told: Vec<_> = done.iter().map(|e| (e.ns, e.since_due - e.ns)).collect();
    assert_eq!(told, [(3 * MS, 0), (4 * MS, 5), (4 * MS, 0), (MS, 7)]);
    assert_eq!(ask(&mut one, 6 * MS, &[0, 0, 0, 0]), 3);
    assert_eq!(one.client.counters().failed(), 0);
}

#[test]
fn what_is_no_answer_and_what_nobody_asked_for_is_told() {
    let mut one = Alone::new(1, None, false);
    one.asked();
    one.say(MS, b"SSH-2.0-x\r\n");
    assert_eq!(one.client.observer().malformed, [b"SSH-2.0-x\r\n"]);
    assert_eq!(one.client.observer().lost, [(0, Cause::Malformed)]);

    let mut one = Alone::new(1, None, true);
    one.client.ask_each(0, &[0], &mut one.out);
    one.asked();
    one.say(MS, &[OK, b"x"].concat());
    let (c, told) = (one.client.counters(), one.client.observer());
    assert_eq!(
        (c.responses, c.failed_malformed, c.requests_lost),
        (1, 1, 0)
    );
    // All bytes that arrived count, also those that end a connection.
    assert_eq!(c.payload_rx, OK.len() as u64 + 1);
    assert_eq!((told.unasked, told.malformed.len()), (1, 0));
}

/// Memory of a million idle connections.
#[test]
fn an_idle_connection_takes_no_more_than_128_bytes() {
    const N: u32 = 200_000;
    let mut c = client(false);
    c.tuples = Tuples::new(
        addresses("198.18.0.1", 10),
        (1024, 65535),
        addresses("198.18.1.1", 1),
        (80, 80),
        TupleSequence::Sequential,
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
    let mut path = (Frames::new(1000), Frames::new(1000));
    for now in 0..u64::from(N / 500) {
        client.launch(now, 500, &mut path.0);
        exchange(now, 2, &mut client, &mut server, &mut path);
        assert_eq!(client.ask_each(now, &[0], &mut path.0), 1);
        exchange(now, 3, &mut client, &mut server, &mut path);
    }
    assert_eq!(client.counters().open, u64::from(N));
    assert_eq!(client.counters().responses, u64::from(N / 500));
    for bytes in [client.memory(), server.memory()] {
        let each = bytes as f64 / f64::from(N);
        assert!(each <= 128.0, "{each}");
    }
}
