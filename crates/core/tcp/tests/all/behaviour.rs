//! Single behaviours in the native style. Where a peer must misbehave, the test builds its frames.

use crate::common::*;
use proptest::prelude::*;
use wb_tcp::*;
use wb_wire::{Ethernet, Ipv4, checksum, tcp_flags::*};

/// Client with one open attempt, and its initial sequence number.
fn opened(config: Config) -> (Machine<Latencies>, Frames, u32) {
    let mut machine = Machine::new(config, Latencies::default()).unwrap();
    let mut out = Frames::new(usize::MAX);
    assert_eq!(machine.launch(0, 1, &mut out), 1);
    let syn = see(0, true, &out.take_frames()[0]);
    (machine, out, syn.seq)
}

fn seen(out: &mut Frames) -> Vec<Seen> {
    out.take_frames().iter().map(|f| see(0, true, f)).collect()
}

#[test]
fn a_closed_window_is_honoured_and_probed() {
    let (mut m, mut out, c) = opened(client_config(client(false), Transport::Tcp));
    m.receive(
        1000,
        &segment(true, 500, c + 1, SYN | ACK, 0, &[2, 4, 5, 0xac], &[]),
        &mut out,
    );
    let frames = seen(&mut out);
    assert_eq!(frames.len(), 1);
    assert_eq!((frames[0].flags, frames[0].len), (ACK, 0));
    m.poll(2 * SEC, &mut out);
    let probe = seen(&mut out);
    assert_eq!((probe.len(), probe[0].seq, probe[0].len), (1, c, 0));
    assert_eq!(m.counters().window_probes, 1);
    m.receive(
        2 * SEC,
        &segment(true, 501, c + 1, ACK, 60, &[], &[]),
        &mut out,
    );
    let frames = seen(&mut out);
    assert_eq!((frames.len(), frames[0].seq, frames[0].len), (1, c + 1, 60));
    m.receive(
        2 * SEC,
        &segment(true, 501, c + 61, ACK, 1000, &[], &[]),
        &mut out,
    );
    assert_eq!(seen(&mut out)[0].len, 25);
}

#[test]
fn the_peers_segment_size_is_honoured() {
    let mut shape = client(false);
    shape.request = Message::new(GET, 1000, Filler::Letter(b'a'));
    let (mut m, mut out, c) = opened(client_config(shape, Transport::Tcp));
    m.receive(
        0,
        &segment(true, 500, c + 1, SYN | ACK, 60_000, &[2, 4, 1, 0x2c], &[]),
        &mut out,
    );
    let lens: Vec<_> = seen(&mut out).iter().map(|f| f.len).collect();
    assert_eq!(lens, [300, 300, 300, 100]);
}

#[test]
fn three_duplicates_send_the_oldest_again() {
    let mut shape = client(false);
    shape.request = Message::new(GET, 10_000, Filler::Letter(b'a'));
    let (mut m, mut out, c) = opened(client_config(shape, Transport::Tcp));
    m.receive(
        0,
        &segment(true, 500, c + 1, SYN | ACK, 60_000, &[2, 4, 3, 0xe8], &[]),
        &mut out,
    );
    assert_eq!(seen(&mut out).len(), 10);
    for _ in 0..2 {
        m.receive(
            0,
            &segment(true, 501, c + 1, ACK, 60_000, &[], &[]),
            &mut out,
        );
        assert_eq!(seen(&mut out).len(), 0);
    }
    m.receive(
        0,
        &segment(true, 501, c + 1, ACK, 60_000, &[], &[]),
        &mut out,
    );
    let again = seen(&mut out);
    assert_eq!((again.len(), again[0].seq, again[0].len), (1, c + 1, 1000));
    // A partial acknowledgement: retransmit the next hole at once.
    m.receive(
        0,
        &segment(true, 501, c + 3001, ACK, 60_000, &[], &[]),
        &mut out,
    );
    let again = seen(&mut out);
    assert_eq!((again[0].seq, again[0].len), (c + 3001, 1000));
    assert_eq!((m.counters().fast_again, m.counters().data_again), (2, 2));
}

#[test]
fn an_answer_that_comes_before_its_request_is_no_answer_to_it() {
    // Two answers in one segment; dperf accepts them.
    for (style, expected) in [(Behaviour::Native, (1, 1)), (Behaviour::Dperf, (1, 0))] {
        let mut shape = client(false);
        shape.answer = Reading::Fixed(5);
        shape.requests = Some(2);
        shape.interval = 1_000_000;
        let config = Config {
            style,
            ..client_config(shape, Transport::Tcp)
        };
        let (mut m, mut out, c) = opened(config);
        m.receive(
            0,
            &segment(true, 500, c + 1, SYN | ACK, 60_000, &[], &[]),
            &mut out,
        );
        let sent: u32 = seen(&mut out).iter().map(|f| f.len as u32).sum();
        m.receive(
            0,
            &segment(true, 501, c + 1 + sent, ACK, 60_000, &[], b"hellohello"),
            &mut out,
        );
        let counters = m.counters();
        assert_eq!(
            (counters.responses, counters.failed_malformed),
            expected,
            "{style:?}"
        );
    }
}

#[test]
fn a_reset_must_be_in_sequence() {
    let (mut m, mut out, c) = opened(client_config(client(false), Transport::Tcp));
    m.receive(
        0,
        &segment(true, 500, c + 1, SYN | ACK, 60_000, &[], &[]),
        &mut out,
    );
    out.take_frames();
    m.receive(
        0,
        &segment(true, 400, c + 1, RST | ACK, 0, &[], &[]),
        &mut out,
    );
    assert_eq!((seen(&mut out).len(), m.counters().open), (0, 1));
    m.receive(
        0,
        &segment(true, 600, c + 1, RST | ACK, 0, &[], &[]),
        &mut out,
    );
    let challenge = seen(&mut out);
    assert_eq!(
        (challenge.len(), challenge[0].flags, challenge[0].ack),
        (1, ACK, 501)
    );
    m.receive(
        0,
        &segment(true, 501, c + 1, RST | ACK, 0, &[], &[]),
        &mut out,
    );
    assert_eq!((m.counters().failed_reset, m.counters().open), (1, 0));
}

#[test]
fn a_wrong_syn_ack_is_reset_and_a_refusal_counted() {
    let (mut m, mut out, c) = opened(client_config(client(false), Transport::Tcp));
    m.receive(
        0,
        &segment(true, 500, c + 7, SYN | ACK, 60_000, &[], &[]),
        &mut out,
    );
    let reset = seen(&mut out);
    assert_eq!((reset[0].flags, reset[0].seq), (RST, c + 7));
    m.receive(
        0,
        &segment(true, 0, c + 1, RST | ACK, 0, &[], &[]),
        &mut out,
    );
    assert_eq!(m.counters().failed_refused, 1);
}

#[test]
fn a_body_and_a_head_are_read_out_of_order() {
    let (mut m, mut out, c) = opened(client_config(client(false), Transport::Tcp));
    m.receive(
        0,
        &segment(true, 500, c + 1, SYN | ACK, 60_000, &[], &[]),
        &mut out,
    );
    out.take_frames();
    let mut text = vec![0; 1000];
    let message = b"HTTP/1.1 200 OK\r\nContent-Length: 962\r\n\r\n";
    text[..message.len()].copy_from_slice(message);
    let text = &text[..message.len() + 962 - 3];
    let ack = c + 1 + 85;
    m.receive(
        0,
        &segment(true, 501 + 20, ack, ACK, 60_000, &[], &text[20..100]),
        &mut out,
    );
    assert_eq!((m.counters().drop_ahead, m.counters().out_of_order), (0, 1));
    assert_eq!(seen(&mut out)[0].ack, 501);
    m.receive(
        0,
        &segment(true, 501, ack, ACK, 60_000, &[], &text[..100]),
        &mut out,
    );
    m.receive(
        0,
        &segment(true, 501 + 300, ack, ACK, 60_000, &[], &text[300..]),
        &mut out,
    );
    assert_eq!(m.counters().out_of_order, 2);
    m.receive(
        0,
        &segment(true, 501 + 100, ack, ACK, 60_000, &[], &text[100..300]),
        &mut out,
    );
    assert_eq!(seen(&mut out).last().unwrap().ack, 501 + text.len() as u32);
    m.receive(
        0,
        &segment(true, 501 + text.len() as u32, ack, ACK, 60_000, &[], b"end"),
        &mut out,
    );
    assert_eq!((m.counters().responses, m.counters().payload_rx), (1, 1002));
    assert_eq!(seen(&mut out)[0].flags, FIN | ACK);
}

#[test]
fn a_full_sink_loses_nothing() {
    let mut c = client(false);
    c.requests = Some(3);
    let mut s = server(false);
    s.answers = None;
    s.answer = ServerAnswer::Message(reply(20_000));
    let mut client = Machine::new(client_config(c, Transport::Tcp), ()).unwrap();
    let mut server = Machine::new(server_config(s, Transport::Tcp), ()).unwrap();
    let (mut there, mut back) = (Frames::new(2), Frames::new(2));
    let mut now = 0;
    let mut launched = 0;
    for _ in 0..100_000 {
        now += 1000;
        launched += client.launch(now, 20 - launched, &mut there);
        for frame in there.take_frames() {
            server.receive(now, &frame, &mut back);
        }
        for frame in back.take_frames() {
            client.receive(now, &frame, &mut there);
        }
        client.poll(now, &mut there);
        server.poll(now, &mut back);
    }
    let (c, s) = (client.counters(), server.counters());
    assert_eq!(
        (launched, c.completed, s.completed, c.responses),
        (20, 20, 20, 60),
        "{c:?}"
    );
    assert_eq!(
        c.data_again + s.data_again + c.drop_no_room + s.drop_no_room,
        0
    );
}

#[test]
fn finish_closes_what_pauses_and_abort_the_rest() {
    let mut c = client(false);
    c.requests = None;
    c.interval = SEC;
    let mut s = server(false);
    s.answers = None;
    let mut world = World::new(
        client_config(c, Transport::Tcp),
        server_config(s, Transport::Tcp),
        Wire::default(),
    );
    world.launch(1000);
    world.run_until(3 * SEC + SEC / 2);
    assert_eq!(
        (
            world.client.counters().open,
            world.client.counters().responses
        ),
        (1000, 4000)
    );
    world.client.finish();
    world.run_until(3 * SEC + SEC / 2 + MS);
    assert_eq!(
        (
            world.client.counters().completed,
            world.server.counters().completed
        ),
        (1000, 1000)
    );
    assert!(world.client.is_idle());
    assert_eq!(world.launch(1), 0);

    let (mut m, mut out, _) = opened(client_config(client(false), Transport::Tcp));
    m.abort(5, &mut out);
    assert_eq!(
        (m.counters().failed_aborted, m.counters().open, m.held()),
        (1, 0, 0)
    );
}

#[test]
fn peers_of_open_connections_are_told_of_the_end() {
    let mut c = client(false);
    c.requests = None;
    c.interval = SEC;
    let mut s = server(false);
    s.answers = None;
    let wire = Wire {
        delay: MS,
        ..Wire::default()
    };
    let mut world = World::new(
        client_config(c, Transport::Tcp),
        server_config(s, Transport::Tcp),
        wire,
    );
    world.launch(100);
    world.run_until(SEC / 2);
    // Room for thirty frames at a time.
    let mut out = Frames::new(30);
    let mut told = 0;
    while !world.client.reset_open_connections(&mut out) {
        for frame in out.take_frames() {
            assert_eq!(see(0, true, &frame).flags, RST | ACK);
            world.server.receive(SEC, &frame, &mut Frames::new(9));
            told += 1;
        }
    }
    for frame in out.take_frames() {
        world.server.receive(SEC, &frame, &mut Frames::new(9));
        told += 1;
    }
    let (c, s) = (world.client.counters(), world.server.counters());
    assert_eq!((told, c.rst_tx, c.open, c.completed), (100, 100, 100, 0));
    assert_eq!((s.open, s.rst_rx), (0, 100));
}

#[test]
fn what_was_cut_short_is_told() {
    let mut c = client(false);
    c.requests = Some(3);
    c.interval = SEC;
    let mut s = server(false);
    s.answers = None;
    let wire = Wire {
        delay: MS,
        ..Wire::default()
    };
    for (end, cut) in [(SEC / 2, 7), (SEC + SEC / 2, 7), (3 * SEC, 0)] {
        let mut world = World::new(
            client_config(c.clone(), Transport::Tcp),
            server_config(s.clone(), Transport::Tcp),
            wire,
        );
        world.launch(7);
        world.run_until(end);
        world.client.finish();
        world.run_until(end + SEC);
        let c = world.client.counters();
        assert_eq!((c.completed, c.completed_cut), (7, cut), "{end}");
        assert_eq!(world.server.counters().completed_cut, 0);
    }
}

#[test]
fn an_end_that_takes_its_time_closes_a_few_at_a_time() {
    let mut c = client(false);
    c.requests = None;
    c.interval = SEC;
    let mut s = server(false);
    s.answers = None;
    let mut world = World::new(
        client_config(c, Transport::Tcp),
        server_config(s, Transport::Tcp),
        Wire {
            delay: MS,
            ..Wire::default()
        },
    );
    world.launch(5000);
    world.run_until(SEC / 2);
    assert_eq!(world.client.counters().open, 5000);
    let begin = world.now;
    world.client.finish_by(begin + SEC);
    let mut most = 0;
    while !world.client.is_idle() {
        world.run_until(world.now + MS / 50);
        let counters = world.client.counters();
        most = most.max(counters.fin_tx - counters.completed);
        assert!(world.now < begin + SEC, "{counters:?}");
    }
    // The limit plus one sweep.
    assert!((1..512 + 256).contains(&most), "{most}");

    // Without answers the client does not wait beyond the deadline.
    let (mut m, mut out, _) = opened(client_config(client(false), Transport::Tcp));
    m.finish_by(SEC);
    assert!(m.next_due().is_none_or(|due| due <= SEC));
    m.poll(2 * SEC, &mut out);
}

#[test]
fn a_tuple_used_again_goes_on_after_its_last_number() {
    let mut shape = client(false);
    shape.tuples = Tuples::new(
        addresses("198.18.0.1", 1),
        (1024, 1024),
        addresses("198.18.1.1", 1),
        (80, 80),
        TupleSequence::Sequential,
        Steering::All,
    )
    .unwrap();
    shape.request = Message::new(GET, 100_000, Filler::Letter(b'a'));
    let mut s = server(false);
    s.request = Reading::Fixed(100_000);
    let mut world = World::new(
        client_config(shape, Transport::Tcp),
        server_config(s, Transport::Tcp),
        Wire::default(),
    );
    world.trace = true;
    for _ in 0..20 {
        assert_eq!(world.launch(1), 1);
        assert_eq!(world.launch(1), 0);
        world.run_until(world.now + 10_000);
    }
    assert_eq!(
        (
            world.client.counters().completed,
            world.client.counters().tuples_busy
        ),
        (20, 20)
    );
    for from_client in [true, false] {
        let mut last: Option<u32> = None;
        for f in world.frames.iter().filter(|f| f.from_client == from_client) {
            let end = f
                .seq
                .wrapping_add(f.len as u32 + u32::from(f.flags & FIN != 0));
            if f.flags & SYN != 0 {
                assert!(last.is_none_or(|last| f.seq.wrapping_sub(last) as i32 > 0));
            }
            last = Some(end);
        }
    }
}

#[test]
fn udp_losses_are_counted() {
    let mut c = client(false);
    c.requests = Some(50);
    c.interval = 10 * MS;
    let mut s = server(false);
    s.answer = ServerAnswer::Echo;
    let mut world = World::new(
        client_config(c, Transport::Udp),
        server_config(s, Transport::Udp),
        Wire {
            seed: 9,
            loss: 100,
            ..Wire::default()
        },
    );
    world.launch(20);
    world.run_until(60 * SEC);
    let (c, s) = (world.client.counters(), world.server.counters());
    assert_eq!(
        (c.requests, c.responses + c.udp_lost, c.open),
        (1000, 1000, 0),
        "{c:?}"
    );
    assert!(c.udp_lost > 100 && s.responses >= c.responses);
    assert_eq!(c.payload_rx, c.responses * 85);
}

#[test]
fn a_proxy_header_and_toa_are_read() {
    #[derive(Debug, Default)]
    struct Sources(Vec<(std::net::IpAddr, u16)>);
    impl Observer for Sources {
        fn source(&mut self, address: Addr, port: u16) {
            self.0.push((address.into(), port));
        }
    }
    let mut s = server(false);
    s.proxy = true;
    s.request = Reading::Http;
    let mut m = Machine::new(server_config(s, Transport::Tcp), Sources::default()).unwrap();
    let mut out = Frames::new(usize::MAX);
    m.receive(
        0,
        &segment(
            false,
            9,
            0,
            SYN,
            60_000,
            &[2, 4, 5, 0xb4, 254, 8, 0, 7, 192, 0, 2, 1],
            &[],
        ),
        &mut out,
    );
    let answer = seen(&mut out)[0].clone();
    assert_eq!(answer.options, [2, 4, 5, 0xb4], "no scale was offered");
    let head = b"PROXY TCP4 192.0.2.7 198.51.100.1 56324 443\r\n";
    m.receive(
        0,
        &segment(false, 10, answer.seq + 1, ACK, 60_000, &[], head),
        &mut out,
    );
    assert_eq!(m.counters().requests, 0);
    m.receive(
        0,
        &segment(false, 10 + 45, answer.seq + 1, ACK, 60_000, &[], GET),
        &mut out,
    );
    assert_eq!(
        (
            m.counters().requests,
            m.counters().proxy_seen,
            m.counters().toa_seen
        ),
        (1, 1, 1)
    );
    let sources: Vec<_> = m
        .observer()
        .0
        .iter()
        .map(|(a, p)| format!("{a} {p}"))
        .collect();
    assert_eq!(sources, ["192.0.2.1 7", "192.0.2.7 56324"]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]
    /// Any segments in any order cause no panic, and the counters stay consistent.
    #[test]
    fn wild_segments_do_no_harm(
        to_client: bool, dperf: bool,
        segments in prop::collection::vec((0u32..400, 0u32..400, any::<u8>(), prop_oneof![Just(0u16), Just(100), any::<u16>()], prop::collection::vec(any::<u8>(), 0..3), 0usize..300, 0u64..3 * SEC), 0..60),
    ) {
        let mut c = client(false);
        c.requests = Some(3);
        c.tuples = Tuples::new(addresses("198.18.0.1", 1), (1024, 1024), addresses("198.18.1.1", 1), (80, 80), TupleSequence::Sequential, Steering::All).unwrap();
        let mut config = if to_client { client_config(c, Transport::Tcp) } else {
            let mut s = server(false);
            s.answers = None;
            s.request = Reading::Http;
            s.answer = ServerAnswer::Message(reply(5000));
            server_config(s, Transport::Tcp)
        };
        if dperf { config = config.dperf(2 * SEC); }
        let mut m = Machine::new(config, ()).unwrap();
        let mut out = Frames::new(usize::MAX);
        let mut now = 0;
        m.launch(0, 1, &mut out);
        let text = [GET, b"HTTP/1.1 200 OK\r\nContent-Length: 200\r\n\r\n", &[b'x'; 300]];
        for (seq, ack, flags, window, options, len, wait) in segments {
            // Numbers close to the current ones, so that most are accepted.
            let base = out.take_frames().last().map(|f| see(0, true, f));
            let (base_ack, base_seq) = base.map_or((0, 0), |f| (f.seq, f.ack));
            let text = text[usize::from(window) % 3];
            let mut options = options;
            options.resize(options.len().div_ceil(4) * 4, 1);
            let frame = segment(to_client, base_seq.wrapping_add(seq % 7), base_ack.wrapping_add(ack % 90), flags, window, &options, &text[..len.min(text.len())]);
            m.receive(now, &frame, &mut out);
            now += wait;
            m.poll(now, &mut out);
            m.launch(now, 1, &mut out);
            prop_assert!(m.counters().is_balanced());
        }
        m.abort(now, &mut out);
        prop_assert_eq!(m.held(), 0);
    }
}

#[derive(Debug, Default)]
struct Sources(Vec<String>);
impl Observer for Sources {
    fn source(&mut self, address: Addr, port: u16) {
        self.0
            .push(format!("{} {port}", std::net::IpAddr::from(address)));
    }
}

/// Server with one connection that was just opened, and its initial sequence number.
fn accepted(mut shape: Server) -> (Machine<Sources>, Frames, u32) {
    shape.request = Reading::Http;
    let config = server_config(shape, Transport::Tcp);
    let mut m = Machine::new(config, Sources::default()).unwrap();
    let mut out = Frames::new(usize::MAX);
    let syn = segment(false, 9, 0, SYN, 60_000, &[2, 4, 5, 0xb4], &[]);
    m.receive(0, &syn, &mut out);
    let first = seen(&mut out)[0].seq + 1;
    (m, out, first)
}

#[test]
fn a_proxy_header_may_come_in_pieces() {
    let line = b"PROXY TCP4 192.0.2.7 198.51.100.1 56324 443\r\n".to_vec();
    let mut block = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c".to_vec();
    block.extend_from_slice(&[192, 0, 2, 7, 198, 51, 100, 1, 0xdc, 4, 1, 0xbb]);
    for head in [line, block] {
        for size in [1, 5, 13, head.len() + 3] {
            let mut shape = server(false);
            shape.proxy = true;
            shape.answers = None;
            let (mut m, mut out, first) = accepted(shape);
            let stream = [&head[..], GET, GET].concat();
            for (i, piece) in stream.chunks(size).enumerate() {
                let seq = 10 + (i * size) as u32;
                let frame = segment(false, seq, first, ACK, 60_000, &[], piece);
                m.receive(0, &frame, &mut out);
                m.poll(0, &mut out);
            }
            let c = m.counters();
            assert_eq!((c.proxy_seen, c.requests, c.failed()), (1, 2, 0), "{size}");
            assert_eq!(m.observer().0, ["192.0.2.7 56324"]);
        }
    }
    // Data that only starts like a PROXY header is a request.
    let mut shape = server(false);
    shape.proxy = true;
    let (mut m, mut out, first) = accepted(shape);
    for (seq, piece) in [(10, &b"P"[..]), (11, b"UT / HTTP/1.1\r\n\r\n")] {
        let frame = segment(false, seq, first, ACK, 60_000, &[], piece);
        m.receive(0, &frame, &mut out);
    }
    assert_eq!((m.counters().requests, m.counters().proxy_seen), (1, 0));
    // A stream that ends within a PROXY header.
    let mut shape = server(false);
    shape.proxy = true;
    let (mut m, mut out, first) = accepted(shape);
    let frame = segment(false, 10, first, ACK | FIN, 60_000, &[], b"PROXY TCP");
    m.receive(0, &frame, &mut out);
    assert_eq!((m.counters().failed_short, m.counters().open), (1, 0));
}

#[test]
fn a_piece_of_a_proxy_header_does_not_count_as_body() {
    let mut shape = server(false);
    shape.proxy = true;
    shape.request = Reading::Fixed(85);
    let mut m = Machine::new(server_config(shape, Transport::Tcp), Sources::default()).unwrap();
    let mut out = Frames::new(usize::MAX);
    m.receive(0, &segment(false, 9, 0, SYN, 60_000, &[], &[]), &mut out);
    let first = seen(&mut out)[0].seq + 1;
    // The second piece overtakes the first one: it is stored and read in order.
    let line = b"PROXY TCP4 192.0.2.7 198.51.100.1 56324 443\r\n";
    m.receive(
        0,
        &segment(false, 15, first, ACK, 60_000, &[], &line[5..]),
        &mut out,
    );
    assert_eq!((m.counters().out_of_order, m.counters().drop_ahead), (1, 0));
    let frame = segment(false, 10, first, ACK, 60_000, &[], &line[..5]);
    m.receive(0, &frame, &mut out);
    assert_eq!((m.counters().proxy_seen, m.counters().requests), (1, 0));
}

#[test]
fn an_address_is_told_by_later_segments_too() {
    let (mut m, mut out, first) = accepted(server(false));
    let toa = [254, 8, 0x1f, 0x90, 192, 0, 2, 1];
    m.receive(
        0,
        &segment(false, 10, first, ACK, 60_000, &toa, GET),
        &mut out,
    );
    assert_eq!((m.counters().toa_seen, m.counters().requests), (1, 1));
    assert_eq!(m.observer().0, ["192.0.2.1 8080"]);
}

#[test]
fn datagrams_tell_addresses_in_both_forms() {
    let mut shape = server(false);
    shape.answer = ServerAnswer::Echo;
    let config = server_config(shape, Transport::Udp);
    let mut m = Machine::new(config, Sources::default()).unwrap();
    let mut out = Frames::new(usize::MAX);
    let uoa = [31, 8, 0x1f, 0x90, 192, 0, 2, 1];
    let frame = |in_options: bool, payload: &[u8]| {
        let (c, s) = ("198.18.0.1".parse().unwrap(), "198.18.1.1".parse().unwrap());
        let len = 8 + payload.len() as u16;
        let mut udp = [1024u16, 80, len, 0].map(u16::to_be_bytes).concat();
        udp.extend_from_slice(payload);
        let sum = checksum::pseudo_v4(c, s, 17, len) + checksum::sum(&udp);
        udp[6..8].copy_from_slice(&checksum::finish(sum).to_be_bytes());
        let (next, rest) = if in_options {
            (17, [&uoa[..], &udp].concat())
        } else {
            (248, [&[0x10, 17, 0, 12][..], &uoa, &udp].concat())
        };
        let mut ip = Ipv4::new(c, s).emit(next, rest.len()).to_vec();
        if in_options {
            ip[0] = 0x47;
            ip[10..12].fill(0);
            let sum = checksum::sum(&ip) + checksum::sum(&uoa);
            ip[10..12].copy_from_slice(&checksum::finish(sum).to_be_bytes());
        }
        let ethernet = Ethernet { dst: B, src: A }.emit(0x800).to_vec();
        [ethernet, ip, rest].concat()
    };
    for (i, in_options) in [true, false].into_iter().enumerate() {
        m.receive(0, &frame(in_options, b"hello"), &mut out);
        // A datagram that only carries the address gets no answer.
        m.receive(0, &frame(in_options, b""), &mut out);
        let c = m.counters();
        assert_eq!(
            (c.uoa_seen, c.requests),
            (2 * (i as u64 + 1), i as u64 + 1),
            "{c:?}"
        );
        let answers = out.take_frames();
        assert_eq!((answers.len(), &answers[0][42..]), (1, &b"hello"[..]));
    }
    assert_eq!(m.observer().0, ["192.0.2.1 8080"; 4]);
    assert_eq!(m.counters().rx_malformed + m.counters().rx_foreign, 0);
}

#[test]
fn an_answer_that_comes_with_the_end_is_the_last() {
    let mut shape = client(false);
    shape.requests = None;
    let (mut m, mut out, c) = opened(client_config(shape, Transport::Tcp));
    let open = segment(true, 500, c + 1, SYN | ACK, 60_000, &[], &[]);
    m.receive(0, &open, &mut out);
    out.take_frames();
    let text = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    let ack = c + 1 + GET.len() as u32;
    m.receive(
        0,
        &segment(true, 501, ack, ACK | FIN, 60_000, &[], text),
        &mut out,
    );
    let sent = seen(&mut out);
    // No further request, and both FINs have the right numbers.
    assert_eq!(
        (sent.len(), sent[0].flags, sent[0].seq),
        (1, FIN | ACK, ack)
    );
    assert_eq!(sent[0].ack, 501 + text.len() as u32 + 1);
    m.receive(
        0,
        &segment(true, sent[0].ack, ack + 1, ACK, 60_000, &[], &[]),
        &mut out,
    );
    assert_eq!((m.counters().completed, m.counters().requests), (1, 1));
}

/// A kernel with an earlier connection in TIME_WAIT answers like this.
#[test]
fn a_syn_that_meets_an_earlier_connection_goes_again_at_once() {
    let (mut m, mut out, c) = opened(client_config(client(false), Transport::Tcp));
    let old = segment(true, 500, c.wrapping_add(5_000), ACK, 60_000, &[], &[]);
    m.receive(MS, &old, &mut out);
    let said = seen(&mut out);
    assert_eq!(said.len(), 2, "{said:?}");
    assert_eq!((said[0].flags, said[0].seq), (RST, c.wrapping_add(5_000)));
    assert_eq!((said[1].flags, said[1].seq), (SYN, c));
    // If the peer answers every SYN like this, only the timer sends the next one.
    m.receive(2 * MS, &old, &mut out);
    let said = seen(&mut out);
    assert_eq!((said.len(), said[0].flags), (1, RST), "{said:?}");
    m.receive(
        3 * MS,
        &segment(true, 700, c + 1, SYN | ACK, 60_000, &[], &[]),
        &mut out,
    );
    let counters = m.counters();
    assert_eq!(
        (counters.established, counters.syn_again, counters.open),
        (1, 1, 1)
    );
    assert!(counters.is_balanced(), "{counters:?}");
}

/// The time between arrival and reading of a frame is not part of measured times.
#[test]
fn the_time_that_a_frame_lay_unread_is_in_no_time() {
    let mut client = Machine::new(
        client_config(client(false), Transport::Tcp),
        Latencies::default(),
    )
    .unwrap();
    let mut server = Machine::new(server_config(server(false), Transport::Tcp), ()).unwrap();
    let (mut near, mut far) = (Frames::new(usize::MAX), Frames::new(usize::MAX));
    assert_eq!(client.launch(0, 1, &mut near), 1);
    // Each answer arrives after 2 ms and is read 3 ms later.
    for now in [5 * MS, 10 * MS] {
        for frame in near.take_frames() {
            server.receive(now, &frame, &mut far);
        }
        client.set_unread(3 * MS);
        for frame in far.take_frames() {
            client.receive(now, &frame, &mut near);
        }
    }
    let times = client.observer();
    assert_eq!(times.connect.max(), Some(2 * MS));
    assert_eq!(times.first_byte.max(), Some(2 * MS));
    assert_eq!(times.answer.max(), Some(2 * MS));
}
