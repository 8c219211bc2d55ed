//! Requests on demand, and reduction of the number of connections.

use crate::common::*;
use proptest::prelude::*;
use wb_tcp::*;
use wb_wire::tcp_flags::*;

/// Client that sends requests on demand, and a server that keeps connections open.
fn world(transport: Transport, change: impl FnOnce(&mut Client)) -> World {
    let mut shape = client(false);
    shape.requests = None;
    shape.paced = true;
    change(&mut shape);
    let mut there = server(false);
    there.answers = None;
    there.request = Reading::Http;
    if transport == Transport::Udp {
        there.answer = ServerAnswer::Echo;
    }
    let mut config = client_config(shape, transport);
    config.response_timeout = SEC;
    let mut world = World::new(
        config,
        server_config(there, transport),
        Wire {
            delay: MS,
            ..Wire::default()
        },
    );
    world.trace = true;
    world
}

fn requests(world: &World) -> Vec<&Seen> {
    world
        .frames
        .iter()
        .filter(|f| f.from_client && f.len > 0)
        .collect()
}

#[test]
fn requests_go_round_and_no_other_is_sent() {
    let mut w = world(Transport::Tcp, |_| ());
    assert_eq!(w.ask(1), 0);
    w.launch(3);
    w.run_until(10 * MS);
    // All connections are open and idle; no request was sent.
    let c = w.client.counters();
    assert_eq!((c.established, c.requests), (3, 0));
    assert_eq!((w.ask(2), w.ask(2)), (2, 1));
    assert_eq!(w.ask(1), 0);
    w.run_until(20 * MS);
    assert_eq!(w.ask(4), 3);
    w.run_until(10 * SEC);
    assert_eq!(
        (w.client.counters().requests, w.client.counters().responses),
        (6, 6)
    );
    assert_eq!(w.server.counters().requests, 6);
    assert_eq!(w.client.counters().open, 3);
    // Three connections, twice in the same order.
    let seqs: Vec<_> = requests(&w).iter().map(|f| f.seq).collect();
    for i in 0..3 {
        assert_eq!(seqs[i + 3], seqs[i] + GET.len() as u32);
    }
    // Received data is acknowledged once, although no request carries the acknowledgement.
    let bare = w
        .frames
        .iter()
        .filter(|f| f.from_client && f.len == 0 && f.flags == ACK);
    assert_eq!(bare.count(), 3 + 3);
    assert_eq!(
        w.client.counters().data_again + w.server.counters().data_again,
        0
    );
}

#[test]
fn a_connection_ends_after_its_requests_and_several_go_back_to_back() {
    let mut w = world(Transport::Tcp, |client| {
        client.requests = Some(5);
        client.pipeline = 2;
        client.request = Message::bytes(b"GET / HTTP/1.1\r\n\r\n");
    });
    w.launch(1);
    w.run_until(10 * MS);
    for expected in [2, 2, 1, 0] {
        assert_eq!(w.ask(10), expected);
        w.run_until(w.now + 10 * MS);
    }
    let c = w.client.counters();
    assert_eq!((c.completed, c.requests, c.open), (1, 5, 0));
}

#[test]
fn what_is_told_during_the_end_is_not_asked() {
    let mut w = world(Transport::Tcp, |_| ());
    w.launch(2);
    w.run_until(MS / 2);
    // Handshakes are incomplete.
    w.client.finish();
    assert_eq!(w.ask(2), 0);
    w.run_until(SEC);
    let c = w.client.counters();
    assert_eq!((c.completed, c.open, c.requests), (2, 0, 0));
}

#[test]
fn one_flow_is_one_datagram_after_the_other() {
    for v6 in [false, true] {
        let mut shape = client(v6);
        shape.requests = None;
        shape.paced = true;
        shape.request = Message::bytes(b"eighteen bytes....");
        let mut there = server(v6);
        there.answer = ServerAnswer::Echo;
        let mut world = World::new(
            client_config(shape, Transport::Udp),
            server_config(there, Transport::Udp),
            Wire::default(),
        );
        world.launch(1);
        assert_eq!(world.client.counters().udp_tx, 0);
        assert_eq!((world.ask(1), world.ask(1000), world.ask(2)), (1, 1000, 2));
        world.run_until(MS);
        // The server verifies checksums, and so does the client.
        let (c, s) = (world.client.counters(), world.server.counters());
        assert_eq!(
            (c.udp_tx, s.requests, c.responses),
            (1003, 1003, 1003),
            "{c:?}"
        );
        assert_eq!((s.payload_rx, c.payload_tx), (18 * 1003, 18 * 1003));
        assert_eq!((c.tx_frames, c.tx_octets), (s.rx_frames, s.rx_octets));
        assert_eq!(c.rx_malformed + s.rx_malformed, 0);
    }
}

#[test]
fn identifications_count_on() {
    let mut shape = client(false);
    shape.requests = None;
    shape.paced = true;
    shape.flood = true;
    let mut m = Machine::new(client_config(shape, Transport::Udp), ()).unwrap();
    let mut out = Frames::new(usize::MAX);
    m.launch(0, 1, &mut out);
    m.ask(0, 40, &mut out);
    let frames = out.take_frames();
    let ids: Vec<_> = frames
        .iter()
        .map(|f| u16::from_be_bytes([f[18], f[19]]))
        .collect();
    assert_eq!(ids.len(), 40);
    assert!(ids.windows(2).all(|w| w[1] == w[0] + 1), "{ids:?}");
    assert!(
        frames
            .iter()
            .all(|f| wb_wire::checksum::is_right(0, &f[14..34]))
    );
    // No answer is awaited: the flow ends at once.
    m.finish();
    m.poll(1, &mut out);
    assert_eq!((m.counters().completed, m.counters().udp_lost), (1, 0));
}

#[test]
fn no_more_is_said_to_be_asked_than_there_was_room_for() {
    for flows in [1, 3] {
        let mut shape = client(false);
        shape.requests = None;
        shape.paced = true;
        let mut m = Machine::new(client_config(shape, Transport::Udp), ()).unwrap();
        let mut out = Frames::new(5);
        m.launch(0, flows, &mut out);
        assert_eq!((m.ask(0, 9, &mut out), m.ask(0, 9, &mut out)), (5, 0));
        out.take_frames();
        m.poll(0, &mut out);
        assert_eq!((m.counters().udp_tx, out.sent.len()), (5, 0));
        assert_eq!(m.ask(0, 4, &mut out), 4);
    }
}

#[test]
fn lost_datagrams_of_a_busy_flow_are_counted() {
    let mut w = world(Transport::Udp, |_| ());
    w.wire.loss = 100;
    w.wire.seed = 5;
    w.launch(4);
    // Requests come continuously, far more often than the timeout.
    for _ in 0..5000 {
        assert_eq!(w.ask(1), 1);
        w.run_until(w.now + MS);
    }
    w.run_until(w.now + 3 * SEC);
    let c = w.client.counters();
    assert_eq!(c.requests, 5000);
    assert_eq!(c.responses + c.udp_lost, 5000, "{c:?}");
    assert!((500..1500).contains(&c.udp_lost), "{}", c.udp_lost);
    assert_eq!(c.udp_unasked, 0);
}

#[test]
fn syns_of_a_flood_go_round() {
    let mut w = world(Transport::Tcp, |client| client.flood = true);
    w.server_is_there = false;
    w.launch(2);
    assert_eq!(w.ask(4), 4);
    w.run_until(10 * SEC);
    let syns: Vec<_> = w.frames.iter().map(|f| (f.flags, f.seq)).collect();
    assert_eq!(syns.len(), 6);
    for i in 2..6 {
        assert_eq!(syns[i], (SYN, syns[i - 2].1 + 1));
    }
}

#[test]
fn packets_of_a_flood_take_destinations_in_turn() {
    for (requests, paced) in [(Some(1), false), (None, true)] {
        let mut shape = client(false);
        (shape.requests, shape.paced, shape.flood) = (requests, paced, true);
        shape.destinations = Some(DestinationPool {
            pool: addresses("198.19.0.0", 5),
            first: 1,
            step: 2,
        });
        let mut m = Machine::new(client_config(shape, Transport::Udp), ()).unwrap();
        let mut out = Frames::new(usize::MAX);
        m.launch(0, if paced { 1 } else { 7 }, &mut out);
        if paced {
            assert_eq!(m.ask(0, 7, &mut out), 7);
        }
        let last: Vec<_> = out.take_frames().iter().map(|f| (f[31], f[33])).collect();
        assert_eq!(last, [1, 3, 0, 2, 4, 1, 3].map(|n| (19, n)));
    }
}

#[test]
fn a_client_may_be_paced_from_now_on_and_again_not() {
    for transport in [Transport::Tcp, Transport::Udp] {
        let mut w = world(transport, |client| {
            client.paced = false;
            client.interval = 10 * MS;
        });
        w.launch(10);
        w.run_until(95 * MS);
        let before = w.client.counters().requests;
        assert!((90..=100).contains(&before), "{before}");
        w.client.set_paced(w.now, true);
        w.run_until(200 * MS);
        assert_eq!(w.client.counters().requests, before, "{transport:?}");
        assert_eq!(
            (w.ask(7), w.ask(7)),
            (7, if transport == Transport::Udp { 7 } else { 3 })
        );
        w.run_until(300 * MS);
        let told = w.client.counters().requests;
        w.client.set_paced(w.now, false);
        w.run_until(w.now + 100 * MS);
        let after = w.client.counters().requests - told;
        assert!((90..=120).contains(&after), "{transport:?} {after}");
        assert_eq!(w.client.counters().open, 10);
    }
}

#[test]
fn connections_beyond_a_number_are_closed_and_completed() {
    for (transport, paced, interval) in [
        (Transport::Tcp, true, 0),
        (Transport::Tcp, false, 5 * MS),
        (Transport::Tcp, false, 0),
        (Transport::Udp, true, 0),
        (Transport::Udp, false, 5 * MS),
        (Transport::Udp, false, 0),
    ] {
        let mut w = world(transport, |client| {
            (client.paced, client.interval) = (paced, interval);
        });
        w.launch(100);
        w.run_until(20 * MS);
        w.ask(50);
        for _ in 0..200 {
            w.client.close_down_to(w.now, 30);
            w.run_until(w.now + MS);
        }
        let c = w.client.counters();
        let what = (transport, paced, interval);
        assert_eq!((c.open, c.completed, c.failed()), (30, 70, 0), "{what:?}");
        // The remaining connections continue.
        let before = c.responses;
        w.ask(30);
        w.run_until(w.now + 20 * MS);
        assert!(w.client.counters().responses >= before + 30, "{what:?}");
        w.client.close_down_to(w.now, 30);
        assert_eq!(w.client.counters().open, 30, "{what:?}");
        w.client.finish();
        w.run_until(w.now + 2 * SEC);
        assert_eq!(
            (w.client.counters().open, w.client.counters().failed()),
            (0, 0),
            "{what:?}"
        );
    }
}

#[derive(Clone, Debug)]
enum Step {
    Launch(u32),
    Ask(u32),
    Wait(u64),
    Most(u64),
    Paced(bool),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        (0u32..5).prop_map(Step::Launch),
        (0u32..20).prop_map(Step::Ask),
        (0u64..20 * MS).prop_map(Step::Wait),
        (0u64..10).prop_map(Step::Most),
        any::<bool>().prop_map(Step::Paced),
    ];
    prop::collection::vec(step, 0..60)
}

proptest! {
    /// Any calls in any order over a bad wire: the counters add up, and the run ends.
    #[test]
    fn any_order_is_accounted_for(
        steps in steps(), udp: bool, flood: bool, requests in prop::option::of(1u16..6),
        pipeline in 1u16..4, interval in 0u64..3, loss in 0u64..200, seed: u64,
    ) {
        let transport = if udp { Transport::Udp } else { Transport::Tcp };
        let mut w = world(transport, |client| {
            client.requests = requests;
            client.pipeline = pipeline;
            client.flood = flood;
            client.interval = interval * 5 * MS;
        });
        (w.wire.loss, w.wire.seed, w.wire.duplicates) = (loss, seed, loss / 4);
        for step in steps {
            match step {
                Step::Launch(n) => { w.launch(n); }
                Step::Ask(n) => { prop_assert!(w.ask(n) <= n); }
                Step::Wait(ns) => w.run_until(w.now + ns),
                Step::Most(n) => w.client.close_down_to(w.now, n),
                Step::Paced(paced) => w.client.set_paced(w.now, paced),
            }
            prop_assert!(w.client.counters().is_balanced());
        }
        w.client.finish();
        w.run_until(w.now + 200 * SEC);
        let c = w.client.counters();
        prop_assert_eq!(c.open, 0, "{:?}", c);
        prop_assert_eq!(w.client.held(), 0);
    }
}
