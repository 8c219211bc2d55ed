//! Outcome of UDP requests: each ends exactly once, with the right counter and the right time.

use crate::common::*;
use proptest::prelude::*;
use std::net::Ipv4Addr;
use wb_services::snmp::sys_up_time;
use wb_tcp::*;
use wb_wire::{AddrSet, Ethernet, Ipv4, checksum};

const BYTES: &[u8] = b"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

struct Ends {
    client: Config,
    server: Config,
}

/// Client that numbers its requests of `len` bytes, and a server that echoes them.
fn ends(len: usize, change: impl FnOnce(&mut Client)) -> Ends {
    let mut shape = client(false);
    shape.requests = None;
    shape.numbers = true;
    shape.request = Message::bytes(&BYTES[..len]);
    change(&mut shape);
    let mut there = server(false);
    there.answer = ServerAnswer::Echo;
    let mut client = client_config(shape, Transport::Udp);
    client.response_timeout = SEC;
    let server = server_config(there, Transport::Udp);
    Ends { client, server }
}

fn server_of(ends: &mut Ends) -> &mut Server {
    match &mut ends.server.role {
        Role::Server(server) => server,
        Role::Client(_) => unreachable!("it was made as a server"),
    }
}

fn world(ends: Ends, wire: Wire) -> World {
    World::new(ends.client, ends.server, wire)
}

fn wire(delay: u64) -> Wire {
    Wire {
        delay,
        ..Wire::default()
    }
}

#[test]
fn times_are_right_when_answers_take_longer_than_the_interval() {
    for (interval, pipeline, paced) in [
        (MS, 1, false),
        (MS, 4, false),
        (10 * MS, 3, false),
        (0, 4, false),
        (0, 1, true),
    ] {
        let mut w = world(
            ends(18, |c| {
                (c.interval, c.pipeline, c.paced) = (interval, pipeline, paced)
            }),
            wire(1_500_000),
        );
        w.launch(2);
        for _ in 0..100 {
            w.ask(3);
            w.run_until(w.now + MS);
        }
        w.client.finish();
        w.run_until(w.now + SEC);
        let (c, times) = (w.client.counters(), &w.client.observer().answer);
        assert!(c.requests >= 60, "{c:?}");
        assert_eq!(
            (c.responses, c.udp_lost, c.udp_by_order),
            (c.requests, 0, 0)
        );
        assert_eq!(times.count(), c.responses);
        assert_eq!((times.min(), times.max()), (Some(3 * MS), Some(3 * MS)));
        assert_eq!((c.completed, c.open), (2, 0));
    }
}

#[test]
fn what_the_wire_lost_is_lost_and_nothing_else() {
    for paced in [false, true] {
        let mut w = world(
            ends(18, |c| (c.interval, c.paced) = (MS, paced)),
            Wire {
                loss: 10,
                seed: 3,
                ..wire(1_500_000)
            },
        );
        w.launch(1);
        for _ in 0..5000 {
            w.ask(1);
            w.run_until(w.now + MS);
        }
        w.client.finish();
        w.run_until(w.now + 3 * SEC);
        let c = w.client.counters();
        assert!(w.lost > 50);
        assert_eq!((c.udp_lost, c.responses), (w.lost, c.requests - w.lost));
        assert_eq!((c.udp_late, c.udp_duplicates, c.udp_unasked), (0, 0, 0));
        assert_eq!(w.client.observer().answer.max(), Some(3 * MS));
    }
}

/// Datagram that answers a datagram of the client.
fn answer(request: &[u8], payload: &[u8]) -> Vec<u8> {
    let mut udp = vec![0, 80, request[34], request[35], 0, 0, 0, 0];
    let len = 8 + payload.len() as u16;
    udp[4..6].copy_from_slice(&len.to_be_bytes());
    udp.extend_from_slice(payload);
    let (c, s) = ("198.18.0.1".parse().unwrap(), "198.18.1.1".parse().unwrap());
    let sum = checksum::pseudo_v4(s, c, 17, len) + checksum::sum(&udp);
    udp[6..8].copy_from_slice(&checksum::finish(sum).to_be_bytes());
    let mut frame = Ethernet { dst: A, src: B }.emit(0x800).to_vec();
    frame.extend_from_slice(&Ipv4::new(s, c).emit(17, udp.len()));
    frame.extend_from_slice(&udp);
    frame
}

struct Asked {
    machine: Machine<Latencies>,
    out: Frames,
    requests: Vec<Vec<u8>>,
}

/// Client that has sent `n` requests at time 0.
fn asked(ends: Ends, n: u32) -> Asked {
    let mut machine = Machine::new(ends.client, Latencies::default()).unwrap();
    let mut out = Frames::new(usize::MAX);
    machine.launch(0, 1, &mut out);
    assert_eq!(machine.ask(0, n, &mut out), n);
    let requests = out.take_frames();
    Asked {
        machine,
        out,
        requests,
    }
}

impl Asked {
    fn answered(&mut self, now: u64, request: usize, payload: Option<&[u8]>) {
        let request = &self.requests[request];
        let frame = answer(request, payload.unwrap_or(&request[42..]));
        self.machine.receive(now, &frame, &mut self.out);
        assert!(self.machine.counters().requests_add_up());
    }
}

#[test]
fn late_answers_and_repeated_ones_have_counters_of_their_own() {
    let mut a = asked(ends(18, |c| c.paced = true), 4);
    a.answered(2 * MS, 1, None);
    a.answered(3 * MS, 1, None);
    a.machine.poll(SEC, &mut a.out);
    let c = *a.machine.counters();
    assert_eq!(
        (c.responses, c.udp_duplicates, c.udp_lost, c.udp_in_flight),
        (1, 1, 3, 0)
    );
    for _ in 0..2 {
        a.answered(SEC, 0, None);
    }
    a.answered(SEC, 2, None);
    let c = *a.machine.counters();
    assert_eq!(
        (c.udp_late, c.udp_duplicates, c.responses, c.udp_lost),
        (2, 2, 1, 3)
    );
    assert_eq!(a.machine.observer().answer.max(), Some(2 * MS));
    // A datagram with another question, or with none, is not an answer.
    a.machine.ask(SEC, 1, &mut a.out);
    let mut other = a.requests[0][42..].to_vec();
    other[11] ^= 1;
    a.answered(SEC, 0, Some(&other));
    a.answered(SEC, 0, Some(b"hello"));
    let c = *a.machine.counters();
    assert_eq!(
        (c.udp_unasked, c.udp_by_order, c.responses, c.udp_in_flight),
        (2, 0, 1, 1)
    );
}

/// Answer of an SNMP agent: the request turned into a response with a value.
fn agent(request: &[u8], status: u8) -> Vec<u8> {
    let mut response = request[42..].to_vec();
    response[13] = 0xa2;
    response[23] = status;
    // TimeTicks of one byte replaces the NULL, so all enclosing elements grow by one byte.
    let end = response.len();
    response.splice(end - 2..end, [0x43, 1, 7]);
    for at in [1, 14, 28, 30] {
        response[at] += 1;
    }
    response
}

#[test]
fn responses_of_snmp_belong_to_the_question_with_their_request_id() {
    let question = sys_up_time(b"public");
    let id_at = question.id_at;
    let mut a = asked(
        ends(18, |c| {
            c.paced = true;
            c.request = Message::bytes(&question.bytes);
            c.answer = Reading::Snmp { id_at };
        }),
        4,
    );
    let ids: std::collections::BTreeSet<&[u8]> =
        a.requests.iter().map(|frame| &frame[59..63]).collect();
    assert_eq!(ids.len(), 4);
    for frame in &a.requests {
        // Four bytes are the shortest encoding, and the checksum covers them.
        assert!((0x40..0x80).contains(&frame[59]), "{frame:x?}");
        let (c, s) = ("198.18.0.1".parse().unwrap(), "198.18.1.1".parse().unwrap());
        let udp = &frame[34..];
        let sum = checksum::pseudo_v4(c, s, 17, udp.len() as u16) + checksum::sum(udp);
        assert_eq!(checksum::finish(sum), 0);
    }
    let response = |a: &Asked, n: usize, status| agent(&a.requests[n], status);
    // Out of order; one with an error; one duplicate.
    for (n, status) in [(2, 0), (0, 5), (2, 0)] {
        let payload = response(&a, n, status);
        a.answered(MS, n, Some(&payload));
    }
    let c = *a.machine.counters();
    assert_eq!(
        (
            c.responses,
            c.snmp_errors,
            c.udp_duplicates,
            c.udp_in_flight
        ),
        (2, 1, 1, 2)
    );
    // Another request id, the request itself, and other data are not answers.
    let mut other = response(&a, 1, 0);
    other[19] ^= 1;
    let echo = a.requests[1][42..].to_vec();
    for payload in [&other, &echo, &b"hello".to_vec()] {
        a.answered(MS, 1, Some(payload));
    }
    let c = *a.machine.counters();
    assert_eq!((c.udp_unasked, c.udp_by_order, c.responses), (3, 0, 2));
    a.machine.poll(SEC, &mut a.out);
    let payload = response(&a, 1, 0);
    a.answered(SEC, 1, Some(&payload));
    let c = *a.machine.counters();
    assert_eq!((c.udp_lost, c.udp_late, c.responses), (2, 1, 2));
}

#[test]
fn two_texts_take_turns() {
    let mut a = asked(
        ends(18, |c| {
            (c.paced, c.flood, c.numbers) = (true, true, false);
            c.request = Message::bytes(b"one");
            c.alternate = Some(Message::bytes(b"two"));
        }),
        3,
    );
    a.machine.ask(SEC, 2, &mut a.out);
    let sent = a.requests.iter().cloned().chain(a.out.take_frames());
    let texts: Vec<Vec<u8>> = sent.map(|frame| frame[42..45].to_vec()).collect();
    assert_eq!(texts, [b"one", b"two", b"one", b"two", b"one"]);
    assert_eq!(a.machine.counters().unawaited, 5);
}

#[test]
fn where_no_number_comes_back_the_order_decides() {
    let mut a = asked(ends(1, |c| c.paced = true), 3);
    for (i, now) in [(2, MS), (1, 3 * MS)] {
        a.answered(now, i, None);
    }
    let c = *a.machine.counters();
    assert_eq!((c.responses, c.udp_by_order, c.udp_in_flight), (2, 2, 1));
    let times = &a.machine.observer().answer;
    assert_eq!((times.min(), times.max()), (Some(MS), Some(3 * MS)));
    a.answered(3 * MS, 0, None);
    a.answered(3 * MS, 0, None);
    assert_eq!(a.machine.counters().udp_unasked, 1);
}

#[test]
fn our_server_returns_numbers_in_other_answers_too() {
    for (answer_len, returns, by_order) in [
        (40, true, false),
        (12, true, false),
        (11, true, true),
        (40, false, true),
    ] {
        let mut ends = ends(18, |c| c.interval = MS);
        let there = server_of(&mut ends);
        there.answer = ServerAnswer::Message(Message::bytes(&BYTES[..answer_len]));
        there.returns_numbers = returns;
        let mut w = world(ends, wire(1_500_000));
        w.launch(1);
        w.run_until(100 * MS);
        let c = w.client.counters();
        assert!(c.responses > 90);
        assert_eq!(c.udp_by_order, if by_order { c.responses } else { 0 });
        assert_eq!(c.payload_rx, c.responses * answer_len as u64);
        assert_eq!(c.rx_bad_checksum + w.server.counters().rx_bad_checksum, 0);
    }
}

#[test]
fn an_answer_to_a_flow_that_has_ended_is_late() {
    let mut ends = ends(18, |c| c.requests = Some(1));
    ends.client.response_timeout = 2 * MS;
    let mut w = world(
        ends,
        Wire {
            duplicates: 1000,
            ..wire(2 * MS)
        },
    );
    w.launch(1);
    w.run_until(SEC);
    let c = w.client.counters();
    assert_eq!(
        (c.failed_response_timeout, c.udp_lost, c.responses),
        (1, 1, 0)
    );
    assert_eq!((c.udp_late, c.udp_duplicates, c.drop_datagram), (1, 3, 0));
}

#[test]
fn too_many_without_an_answer_are_given_up_and_said_so() {
    let mut ends = ends(18, |c| c.paced = true);
    (ends.client.most_outstanding, ends.client.expected) = (8, 1);
    let mut a = asked(ends, 20);
    let c = *a.machine.counters();
    assert_eq!(
        (c.requests, c.udp_lost, c.udp_given_up, c.udp_in_flight),
        (20, 12, 12, 8)
    );
    for i in 0..20 {
        a.answered(MS, i, None);
    }
    let c = *a.machine.counters();
    assert_eq!((c.responses, c.udp_late, c.udp_unasked), (8, 12, 0));
}

#[test]
fn periods_missed_while_the_caller_was_away_are_unsent() {
    for (numbers, pipeline) in [(true, 1), (false, 3)] {
        let mut ends = ends(18, |c| {
            (c.interval, c.pipeline, c.numbers) = (MS, pipeline, numbers)
        });
        ends.client.catch_up = 100 * MS;
        let mut w = world(ends, wire(0));
        w.launch(2);
        w.run_until(100 * MS);
        w.now += SEC;
        w.run_until(2 * SEC);
        // Also at the end of the run.
        w.client.finish_as_of(3 * SEC, 0);
        w.now = 4 * SEC;
        w.run_until(5 * SEC);
        let (c, all) = (w.client.counters(), u64::from(pipeline) * 2);
        assert_eq!(c.requests + c.requests_unsent, 3001 * all, "{c:?}");
        // About 1,000 of 1,101 in the first period, 999 in the second.
        assert!((1890..1905).contains(&(c.requests_unsent / all)), "{c:?}");
        assert!(w.client.observer().since_due.max() >= Some(99 * MS));
    }
}

#[test]
fn periods_that_tcp_missed_are_unsent_and_those_of_a_slow_server_are_not() {
    let mut shape = client(false);
    (shape.requests, shape.interval) = (None, 10 * MS);
    let mut there = server(false);
    (there.answers, there.request) = (None, Reading::Http);
    let config = |delay| {
        let client = client_config(shape.clone(), Transport::Tcp);
        World::new(
            client,
            server_config(there.clone(), Transport::Tcp),
            wire(delay),
        )
    };
    let mut w = config(MS);
    w.launch(1);
    w.run_until(105 * MS);
    w.now += SEC;
    w.run_until(2 * SEC);
    let c = w.client.counters();
    assert!((98..=100).contains(&c.requests_unsent), "{c:?}");
    assert!((99..=101).contains(&c.requests), "{c:?}");
    // An answer takes 50 ms.
    let mut w = config(25 * MS);
    w.launch(1);
    w.run_until(2 * SEC);
    let c = w.client.counters();
    assert_eq!(c.requests_unsent, 0);
    assert!(c.requests_waited > 100, "{c:?}");
}

/// Each period of a connection either has its request or counts as waited, for slow and for missing answers.
#[test]
fn every_period_is_asked_or_has_waited() {
    for (delay, sink, patience) in [
        (MS, false, SEC),
        (8 * MS, false, SEC),
        (16 * MS, false, SEC),
        (27 * MS, false, SEC),
        (MS, true, 10 * SEC),
        (MS, true, 105 * MS),
    ] {
        let mut shape = client(false);
        (shape.requests, shape.interval) = (None, 10 * MS);
        let mut there = server(false);
        (there.answers, there.request) = (None, Reading::Http);
        if sink {
            there.answer = ServerAnswer::Sink;
        }
        let mut config = client_config(shape, Transport::Tcp);
        config.response_timeout = patience;
        let mut w = World::new(config, server_config(there, Transport::Tcp), wire(delay));
        w.launch(100);
        w.run_until(2 * SEC);
        w.client.finish_as_of(w.now, u64::MAX);
        w.run_until(2 * SEC + 80 * MS);
        let c = w.client.counters();
        let asked = (2 * SEC).min(if sink { patience } else { u64::MAX }) - 2 * delay;
        let periods = 100 * asked.div_ceil(10 * MS);
        let all = c.requests + c.requests_waited;
        assert!(periods.abs_diff(all) <= 100, "{periods}, {all}: {c:?}");
    }
}

#[test]
fn nothing_is_lost_before_all_was_read_that_had_come() {
    let mut a = asked(ends(18, |c| c.paced = true), 2);
    a.machine.poll_heard(5 * SEC, SEC - 1, &mut a.out);
    assert_eq!(a.machine.counters().udp_lost, 0);
    a.answered(5 * SEC, 0, None);
    a.machine.poll_heard(5 * SEC, 5 * SEC, &mut a.out);
    let c = a.machine.counters();
    assert_eq!((c.responses, c.udp_lost), (1, 1));
}

#[test]
fn a_flow_that_was_never_answered_has_failed() {
    let mut w = world(ends(18, |c| c.interval = 10 * MS), wire(0));
    w.server_is_there = false;
    w.launch(3);
    w.run_until(2 * SEC);
    w.client.finish();
    w.run_until(4 * SEC);
    let c = w.client.counters();
    assert_eq!((c.completed, c.failed_response_timeout), (0, 3));
    assert_eq!(c.udp_lost, c.requests);
}

#[test]
fn wrong_checksums_are_counted_and_not_answered() {
    let mut a = asked(ends(18, |c| c.paced = true), 1);
    let good = answer(&a.requests[0], &a.requests[0][42..]);
    for (at, known, is_taken) in [
        (24, Checksum::Unknown, false), // IPv4
        (24, Checksum::Right, false),
        (24, Checksum::Left, false),
        (45, Checksum::Unknown, false), // the payload
    ] {
        let mut bad = good.clone();
        bad[at] ^= 1;
        let before = *a.machine.counters();
        a.machine.receive_known(1, &bad, known, &mut a.out);
        let c = a.machine.counters().since(&before);
        assert_eq!(
            (c.rx_bad_checksum, c.responses, c.rx_malformed),
            (1, 0, 0),
            "{at} {is_taken}"
        );
    }
    // Checksum left to hardware: the field contains the sum of the pseudo header. The kernel reports this or may not
    // report it.
    let mut left = good.clone();
    let (c, s) = ("198.18.0.1".parse().unwrap(), "198.18.1.1".parse().unwrap());
    let pseudo = checksum::fold(checksum::pseudo_v4(s, c, 17, 26));
    left[40..42].copy_from_slice(&pseudo.to_be_bytes());
    for (says, may_be, bad) in [
        (Checksum::Left, false, 0),
        (Checksum::Unknown, true, 0),
        (Checksum::Unknown, false, 1),
    ] {
        let mut ends = ends(18, |c| c.paced = true);
        ends.client.checksums_may_be_left = may_be;
        let mut a = asked(ends, 1);
        a.machine.receive_known(1, &left, says, &mut a.out);
        let c = a.machine.counters();
        assert_eq!((c.rx_bad_checksum, c.responses), (bad, 1 - bad));
    }
    // IPv4 allows datagrams without a checksum: RFC 768.
    let mut none = good;
    none[40..42].fill(0);
    a.machine.receive(1, &none, &mut a.out);
    assert_eq!(a.machine.counters().responses, 1);
}

#[test]
fn a_server_answers_its_clients_only() {
    for (clients, n) in [("198.18.0.2", 0), ("198.18.0.1", 3)] {
        let mut ends = ends(18, |c| c.requests = Some(1));
        server_of(&mut ends).clients = addresses(clients, 1);
        let mut w = world(ends, wire(0));
        w.launch(3);
        w.run_until(w.now + MS);
        let s = w.server.counters();
        assert_eq!((s.requests, s.rx_foreign), (n, 3 - n));
        assert_eq!(s.rx_foreign_octets, (3 - n) * 60);
    }
}

#[test]
fn each_address_is_asked_whether_it_may_be_answered() {
    let mut ends = ends(18, |c| c.paced = true);
    let mut set = AddrSet::default();
    let ip = |last: u8| Ipv4Addr::new(198, 18, 0, last);
    set.insert_v4(ip(1)..=ip(3));
    set.insert_v4(ip(7)..=ip(7));
    ends.server.answered = Some(set);
    let mut server = Machine::new(ends.server.clone(), ()).unwrap();
    let mut request = asked(ends, 1).requests.remove(0);
    let mut out = Frames::new(usize::MAX);
    for (last, answers) in [
        (1, 1),
        (3, 1),
        (4, 0),
        (7, 1),
        (8, 0),
        (2, 1),
        (0, 0),
        (7, 1),
    ] {
        request[29] = last;
        request[24..26].fill(0);
        let sum = checksum::finish(checksum::sum(&request[14..34]));
        request[24..26].copy_from_slice(&sum.to_be_bytes());
        request[40..42].fill(0);
        server.receive(0, &request, &mut out);
        assert_eq!(out.take_frames().len(), answers, "{last}");
    }
    assert_eq!(server.counters().drop_datagram, 3);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// Each request ends exactly once, for any behaviour of the wire and any end time.
    #[test]
    fn every_request_ends_once(
        len in prop::sample::select(vec![0usize, 1, 11, 12, 18, 48]),
        interval in prop::sample::select(vec![0, MS, 7 * MS]), pipeline in 1u16..5,
        requests in prop::option::of(1u16..30), paced: bool,
        delay in MS / 2..10 * MS, jitter in 0u64..10 * MS, loss in 0u64..300, duplicates in 0u64..300,
        patience in 1u64..30, most in 1u32..64, seed: u64,
        answer in prop::option::of(0usize..40), steps in prop::collection::vec((0u32..3, 0u32..9, 0u64..9 * MS), 1..12),
        how in 0u8..3,
    ) {
        let mut ends = ends(len, |c| {
            (c.interval, c.pipeline, c.requests, c.paced) = (interval, pipeline, requests, paced);
        });
        ends.client.response_timeout = patience * MS;
        (ends.client.most_outstanding, ends.client.expected) = (most, 1);
        if let Some(len) = answer {
            let there = server_of(&mut ends);
            there.answer = ServerAnswer::Message(Message::bytes(&BYTES[..len]));
            there.returns_numbers = true;
        }
        let mut w = world(ends, Wire { seed, delay, jitter, loss, duplicates, ..Wire::default() });
        for (launch, ask, wait) in steps {
            w.launch(launch);
            w.ask(ask);
            prop_assert!(w.client.counters().requests_add_up());
            w.run_until(w.now + wait);
        }
        match how {
            0 => w.client.abort(w.now, &mut Frames::new(9)),
            1 => w.client.close_down_to(w.now, 0),
            _ => w.client.finish(),
        }
        prop_assert!(w.client.counters().requests_add_up(), "{:?}", w.client.counters());
        if how > 0 {
            w.client.finish();
            w.run_until(w.now + 2 * SEC);
        }
        let c = w.client.counters();
        prop_assert!(c.requests_add_up() && c.is_balanced(), "{c:?}");
        prop_assert_eq!((c.open, c.udp_in_flight, w.client.held()), (0, 0, 0), "{:?}", c);
        prop_assert_eq!(c.udp_rx, c.responses + c.udp_late + c.udp_duplicates + c.udp_unasked + c.drop_datagram);
        if how > 0 && len >= 12 && answer.is_none_or(|len| len >= 12) && most >= 32 {
            prop_assert_eq!(c.udp_by_order, 0);
        }
    }
}
