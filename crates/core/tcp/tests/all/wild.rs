//! Client and server over a wire that loses, duplicates and reorders: every connection ends, every request is answered
//! or counted as failed, and both ends count the same.

use crate::common::*;
use proptest::prelude::*;
use wb_tcp::*;

#[derive(Clone, Debug)]
struct Case {
    wire: Wire,
    v6: bool,
    vlan: Option<u16>,
    reply: u32,
    request: u32,
    requests: u16,
    pipeline: u16,
    interval: u64,
    reset: bool,
    keep: bool,
    http: bool,
    connections: u32,
    time_wait: u8,
    mss: (u16, u16),
}

fn cases() -> impl Strategy<Value = Case> {
    let wire = (
        any::<u64>(),
        0u64..2 * MS,
        0u64..2 * MS,
        prop_oneof![Just(0u64), 1u64..200],
        prop_oneof![Just(0u64), 1u64..200],
    )
        .prop_map(|(seed, delay, jitter, loss, duplicates)| Wire {
            seed,
            delay,
            jitter,
            loss,
            duplicates,
            late: 0,
            late_by: 0,
        });
    (
        (wire, any::<bool>(), prop::option::of(1u16..4095)),
        (
            prop_oneof![100u32..200, 100u32..60_000],
            prop_oneof![86u32..90, 86u32..9000],
        ),
        (
            1u16..5,
            1u16..4,
            prop_oneof![Just(0u64), Just(3 * MS), Just(500 * MS)],
        ),
        (
            any::<bool>(),
            any::<bool>(),
            any::<bool>(),
            1u32..20,
            0u8..3,
        ),
        (64u16..1460, 64u16..1460),
    )
        .prop_map(
            |(
                (wire, v6, vlan),
                (reply, request),
                (requests, pipeline, interval),
                (reset, keep, http, connections, time_wait),
                mss,
            )| Case {
                wire,
                v6,
                vlan,
                reply,
                request,
                requests,
                pipeline,
                interval,
                reset,
                keep,
                http,
                connections,
                time_wait,
                mss,
            },
        )
}

fn play(case: &Case) -> World {
    play_looking(case, false)
}

fn play_looking(case: &Case, looks_ahead: bool) -> World {
    let mut c = client(case.v6);
    let request = format!(
        "POST / HTTP/1.1\r\nContent-Length: {:5}\r\n\r\n",
        case.request - 41
    );
    assert_eq!(request.len(), 41 + 1);
    c.request = Message::new(request.as_bytes(), case.request + 1, Filler::Random(1));
    c.requests = Some(case.requests);
    c.pipeline = case.pipeline;
    c.interval = case.interval;
    if case.reset {
        c.close = Close::Reset;
    }
    let mut s = server(case.v6);
    s.answers = if case.keep { None } else { Some(1) };
    s.answer = ServerAnswer::Message(reply(case.reply));
    if case.http {
        s.request = Reading::Http;
    } else {
        s.request = Reading::Fixed(case.request + 1);
        c.answer = Reading::Fixed(case.reply);
    }
    let mut c = client_config(c, Transport::Tcp);
    let mut s = server_config(s, Transport::Tcp);
    for config in [&mut c, &mut s] {
        config.vlan = case.vlan;
        config.retransmission.after = 200 * MS;
        config.time_wait =
            [TimeWait::Skip, TimeWait::Hold(2 * SEC), TimeWait::Reset][usize::from(case.time_wait)];
    }
    (c.mss, s.mss) = case.mss;
    let mut world = World::new(c, s, case.wire);
    (world.looks_ahead, world.keep) = (looks_ahead, true);
    assert_eq!(world.launch(case.connections), case.connections);
    world.run_until(300 * SEC);
    world
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]
    #[test]
    fn every_connection_ends_and_is_accounted_for(case in cases()) {
        let world = play(&case);
        let (c, s) = (*world.client.counters(), *world.server.counters());
        prop_assert_eq!(c.open, 0, "{:?}", c);
        prop_assert_eq!(s.open, 0, "{:?}", s);
        prop_assert_eq!(c.attempted, u64::from(case.connections));
        prop_assert_eq!(world.client.held() + world.server.held(), 0);
        prop_assert_eq!(c.rx_malformed + s.rx_malformed, 0);
        prop_assert_eq!(world.client.observer().answer.count(), c.responses);
        prop_assert_eq!(c.failed_malformed + s.failed_malformed, 0);
        if case.wire.loss == 0 && case.keep {
            prop_assert_eq!(c.completed, c.attempted, "{:?} {:?}", c, s);
            prop_assert_eq!(c.responses, u64::from(case.connections) * u64::from(case.requests), "{:?}", c);
            prop_assert_eq!(s.requests, c.requests);
            prop_assert_eq!(s.responses, c.responses);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 50, ..ProptestConfig::default() })]
    #[test]
    fn looking_ahead_changes_nothing(case in cases()) {
        let (without, with) = (play(&case), play_looking(&case, true));
        prop_assert_eq!(without.client.counters(), with.client.counters());
        prop_assert_eq!(without.server.counters(), with.server.counters());
        prop_assert!(without.kept == with.kept, "other frames");
        // One index entry for each frame, and both ends of a record for each frame of a connection.
        let frames = with.client.counters().tcp_rx + with.server.counters().tcp_rx;
        prop_assert!(with.fetched > frames && with.fetched <= 3 * frames, "{} of {}", with.fetched, frames);
    }
}

#[test]
fn a_clean_wire_needs_no_retransmission() {
    for v6 in [false, true] {
        let world = play(&Case {
            wire: Wire {
                delay: MS,
                ..Wire::default()
            },
            v6,
            vlan: Some(7),
            reply: 200_000,
            request: 5000,
            requests: 3,
            pipeline: 1,
            interval: 0,
            reset: false,
            keep: true,
            http: true,
            connections: 50,
            time_wait: 0,
            mss: (1400, 1460),
        });
        let (c, s) = (world.client.counters(), world.server.counters());
        assert_eq!((c.completed, s.completed), (50, 50), "{c:?}");
        assert_eq!(
            c.data_again + s.data_again + c.fast_again + s.fast_again + c.syn_again,
            0
        );
        assert_eq!(c.tcp_dropped() + s.tcp_dropped(), 0, "{c:?} {s:?}");
        assert_eq!(c.payload_rx, 150 * 200_000);
        assert_eq!(c.tx_frames, s.rx_frames);
    }
}
