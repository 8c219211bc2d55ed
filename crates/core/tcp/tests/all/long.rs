//! Effects that appear only after a long time: unlimited window growth, sequence number wrap, closed windows, floods.

use crate::common::*;
use wb_tcp::*;
use wb_wire::tcp_flags::*;

/// Client and server that continuously exchange an answer of this length.
fn keepalive(answer: u32, wire: Wire) -> World {
    let mut c = client(false);
    c.requests = None;
    let mut s = server(false);
    s.request = Reading::Http;
    s.answers = None;
    s.answer = ServerAnswer::Message(reply(answer));
    World::new(
        client_config(c, Transport::Tcp),
        server_config(s, Transport::Tcp),
        wire,
    )
}

#[test]
fn a_hundred_thousand_exchanges_over_one_connection_do_not_stall() {
    let wire = Wire {
        delay: 10_000,
        ..Wire::default()
    };
    let mut world = keepalive(2000, wire);
    world.launch(1);
    let exchanges = 110_000;
    while world.client.counters().responses < exchanges {
        let before = world.client.counters().responses;
        world.run_until(world.now + 100 * MS);
        let after = world.client.counters().responses;
        assert!(after > before + 1000, "{before} to {after}");
    }
    let (c, s) = (world.client.counters(), world.server.counters());
    assert_eq!((c.attempted, c.failed()), (1, 0));
    assert_eq!(c.data_again + s.data_again + c.syn_again, 0);
    assert_eq!(
        s.payload_tx - c.payload_rx,
        (s.responses - c.responses) * 2000
    );
}

#[test]
fn a_window_that_is_not_used_does_not_grow() {
    // Two segments at a time, many times, then everything that the window allows.
    let mut s = server(false);
    s.request = Reading::Fixed(10);
    s.answers = None;
    s.answer = ServerAnswer::Message(Message::new(&[], 2000, Filler::Letter(b'a')));
    let mut m = Machine::new(server_config(s, Transport::Tcp), ()).unwrap();
    let mut out = Frames::new(usize::MAX);
    let mut feed = |m: &mut Machine, seq, ack, flags, options: &[u8], payload: &[u8]| {
        let frame = segment(false, seq, ack, flags, 60_000, options, payload);
        m.receive(0, &frame, &mut out);
        out.take_frames()
            .iter()
            .map(|f| see(0, false, f))
            .collect::<Vec<_>>()
    };
    let first = feed(&mut m, 9, 0, SYN, &[2, 4, 3, 0xe8], &[])[0].seq + 1;
    let (mut seq, mut ack) = (10, first);
    for _ in 0..1000 {
        assert_eq!(feed(&mut m, seq, ack, ACK, &[], &[b'x'; 10]).len(), 2);
        (seq, ack) = (seq + 10, ack + 2000);
    }
    // Forty segments are requested at once; the initial window is unchanged.
    let all = feed(&mut m, seq, ack, ACK, &[], &[b'x'; 200]);
    assert_eq!(all.len(), 10);
}

#[test]
fn sequence_numbers_wrap_at_either_end() {
    for from_client in [true, false] {
        // Initial sequence numbers at time 0, used to start just before the wrap.
        let slow = Wire {
            delay: MS,
            ..Wire::default()
        };
        let mut world = keepalive(60_000, slow);
        world.trace = true;
        world.launch(1);
        world.run_until(2 * MS);
        let at_zero = world
            .frames
            .iter()
            .find(|f| f.from_client == from_client)
            .unwrap();
        // The server's number is a millisecond later.
        let at_zero = at_zero.seq.wrapping_sub((at_zero.ns >> 12) as u32);
        let start = u64::from(0xffff_fc00u32.wrapping_sub(at_zero)) << 12;
        for seed in 0..4 {
            let wire = Wire {
                seed,
                delay: 100_000,
                jitter: 50_000,
                loss: 10,
                duplicates: 10,
                ..Wire::default()
            };
            let mut world = keepalive(60_000, wire);
            world.trace = true;
            world.now = start;
            world.client.poll(start, &mut Frames::new(0));
            world.server.poll(start, &mut Frames::new(0));
            world.launch(1);
            world.run_until(start + 5 * SEC);
            let (c, s) = (world.client.counters(), world.server.counters());
            let syn = world.frames.iter().find(|f| f.from_client == from_client);
            assert!(syn.unwrap().seq > 0xffff_e000, "{:?}", syn.unwrap());
            assert!(c.responses >= 100, "seed {seed}: {c:?}");
            assert_eq!((c.failed(), s.failed()), (0, 0), "seed {seed}");
        }
    }
}

#[test]
fn a_peer_that_wants_nothing_for_long_uses_up_no_tries() {
    let mut s = server(false);
    s.request = Reading::Fixed(10);
    s.answers = None;
    s.answer = ServerAnswer::Message(Message::new(&[], 1000, Filler::Letter(b'a')));
    let mut config = server_config(s, Transport::Tcp);
    config.retransmission.after = 100 * MS;
    config.retransmission.tries = 3;
    config.idle_timeout = 1000 * SEC;
    let mut m = Machine::new(config, ()).unwrap();
    let mut out = Frames::new(usize::MAX);
    m.receive(
        0,
        &segment(false, 9, 0, SYN, 60_000, &[2, 4, 3, 0xe8], &[]),
        &mut out,
    );
    let first = see(0, false, &out.take_frames()[0]).seq + 1;
    let asks = segment(false, 10, first, ACK, 0, &[], &[b'x'; 10]);
    m.receive(0, &asks, &mut out);
    let mut now = 0;
    let mut step = |m: &mut Machine, out: &mut Frames| {
        now = m.next_due().unwrap().max(now + 1);
        m.poll(now, out);
        (now, out.take_frames().len())
    };
    // Each probe is answered, and the window stays closed.
    let mut probes = 0;
    while probes < 10 {
        let (now, sent) = step(&mut m, &mut out);
        probes += sent;
        if sent > 0 {
            m.receive(now, &segment(false, 20, first, ACK, 0, &[], &[]), &mut out);
            assert_eq!(out.take_frames().len(), 0);
        }
    }
    // The window opens; the following data is lost and is retransmitted the usual number of times.
    let (now, _) = step(&mut m, &mut out);
    m.receive(
        now,
        &segment(false, 20, first, ACK, 60_000, &[], &[]),
        &mut out,
    );
    assert_eq!(see(now, false, &out.take_frames()[0]).len, 1000);
    let mut again = 0;
    while m.counters().open > 0 {
        again += step(&mut m, &mut out).1;
    }
    // Three retransmissions and the final RST.
    assert_eq!((again, m.counters().data_again), (4, 3));
}

#[test]
fn half_open_connections_are_bounded() {
    let mut config = server_config(server(false), Transport::Tcp);
    config.most_half_open = 100;
    let mut m = Machine::new(config, ()).unwrap();
    let mut out = Frames::new(usize::MAX);
    let mut shape = client(false);
    shape.flood = true;
    let mut flood = Machine::new(client_config(shape, Transport::Tcp), ()).unwrap();
    let mut there = Frames::new(usize::MAX);
    flood.launch(0, 1000, &mut there);
    for frame in there.take_frames() {
        m.receive(0, &frame, &mut out);
    }
    let c = *m.counters();
    assert_eq!((c.attempted, c.open, c.drop_half_open), (100, 100, 900));
    assert_eq!(out.take_frames().len(), 100);
    // Failed and established connections make room.
    while m.counters().open > 0 {
        m.poll(m.next_due().unwrap().max(1), &mut out);
    }
    flood.launch(0, 1, &mut there);
    m.receive(100 * SEC, &there.take_frames()[0], &mut out);
    assert_eq!(m.counters().attempted, 101);
    let wire = Wire {
        delay: 100_000,
        ..Wire::default()
    };
    let mut world = keepalive(99, wire);
    let mut config = world.server.config().clone();
    config.most_half_open = 1;
    world.server = Machine::new(config, ()).unwrap();
    for _ in 0..50 {
        world.launch(1);
        world.run_until(world.now + MS);
    }
    let s = world.server.counters();
    assert_eq!((s.established, s.drop_half_open), (50, 0));
}

#[test]
fn a_flood_of_so_many_syns_ends_well() {
    for (interval, paced) in [(100 * MS, false), (0, true)] {
        let mut shape = client(false);
        shape.flood = true;
        shape.requests = Some(5);
        (shape.interval, shape.paced) = (interval, paced);
        let mut world = World::new(
            client_config(shape, Transport::Tcp),
            server_config(server(false), Transport::Tcp),
            Wire::default(),
        );
        world.server_is_there = false;
        world.launch(3);
        for _ in 0..20 {
            world.ask(1);
        }
        world.run_until(20 * SEC);
        let c = world.client.counters();
        assert_eq!((c.completed, c.failed(), c.syn_tx), (3, 0, 15), "{c:?}");
    }
}

#[test]
fn a_flood_without_end_ends_well_with_the_run() {
    let mut shape = client(false);
    shape.flood = true;
    shape.requests = None;
    shape.interval = SEC;
    for dperf in [false, true] {
        let mut config = client_config(shape.clone(), Transport::Tcp);
        if dperf {
            config = config.dperf(2 * SEC);
        }
        let mut world = World::new(
            config,
            server_config(server(false), Transport::Tcp),
            Wire::default(),
        );
        world.server_is_there = false;
        world.launch(10);
        world.run_until(3500 * MS);
        world.client.finish();
        world.run_until(10 * SEC);
        let c = world.client.counters();
        assert_eq!((c.completed, c.failed(), c.open), (10, 0, 0), "{c:?}");
    }
}
