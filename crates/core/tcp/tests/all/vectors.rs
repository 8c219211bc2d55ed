//! Exact packet sequences and counters of dperf, in its style.

use crate::common::*;
use wb_tcp::*;

const R: u64 = 2 * SEC;

fn dperf_client(shape: impl FnOnce(&mut Client), transport: Transport) -> Config {
    let mut c = client(false);
    shape(&mut c);
    client_config(c, transport).dperf(R)
}

fn dperf_server(shape: impl FnOnce(&mut Server), transport: Transport, keepalive: u64) -> Config {
    let mut s = server(false);
    shape(&mut s);
    let mut config = server_config(s, transport).dperf(R);
    config.idle_timeout += keepalive;
    config
}

fn world(client: Config, server: Config) -> World {
    let mut world = World::new(client, server, Wire::default());
    world.trace = true;
    world
}

fn tcp(shape: impl FnOnce(&mut Client), server: impl FnOnce(&mut Server)) -> World {
    world(
        dperf_client(shape, Transport::Tcp),
        dperf_server(server, Transport::Tcp, 0),
    )
}

fn flags(text: &str) -> u8 {
    text.chars()
        .map(|c| match c {
            'F' => 1,
            'S' => 2,
            'R' => 4,
            'P' => 8,
            'A' => 16,
            _ => panic!(),
        })
        .sum()
}

/// One line per frame: ms, direction, flags, seq, ack, len; numbers relative to the initial ones of the client (C) and
/// the server (S).
fn told(world: &World) -> Vec<String> {
    let frames = &world.frames;
    let c = frames[0].seq;
    let s = frames
        .iter()
        .find(|f| !f.from_client && f.flags & 2 != 0)
        .map_or(0, |f| f.seq);
    frames
        .iter()
        .map(|f| {
            let names: String = "FSRPA"
                .chars()
                .zip(0..)
                .filter(|(_, bit)| f.flags >> bit & 1 == 1)
                .map(|(n, _)| n)
                .collect();
            let (mine, theirs) = if f.from_client { (c, s) } else { (s, c) };
            let seq = f.seq.wrapping_sub(mine);
            let ack = if f.flags & 16 == 0 {
                0
            } else {
                f.ack.wrapping_sub(theirs)
            };
            format!(
                "{} {} {names} {seq} {ack} {}",
                f.ns / MS,
                if f.from_client { '>' } else { '<' },
                f.len
            )
        })
        .collect()
}

fn check(world: &World, expected: &str) {
    let expected: Vec<String> = expected
        .lines()
        .map(str::trim)
        .filter(|l| !l.is_empty())
        .map(|line| {
            let words: Vec<_> = line.split(' ').collect();
            let bits = flags(words[2]);
            let names: String = "FSRPA"
                .chars()
                .zip(0..)
                .filter(|(_, bit)| bits >> bit & 1 == 1)
                .map(|(n, _)| n)
                .collect();
            format!("{} {} {names} {}", words[0], words[1], words[3..].join(" "))
        })
        .collect();
    assert_eq!(told(world), expected);
}

const P1: &str = "
    0 > S 0 0 0
    0 < SA 0 1 0
    0 > PA 1 1 85
    0 < FPA 1 86 99
    0 > FA 86 101 0
    0 < A 101 87 0";

#[test]
fn p1_short_connection_and_its_bytes() {
    assert_eq!(GET.len(), 85);
    for reading in [Reading::Segment, Reading::Http] {
        let mut world = tcp(|c| c.answer = reading, |_| {});
        world.launch(1);
        world.run_until(SEC);
        check(&world, P1);
        for frame in &world.frames {
            assert_eq!(frame.window, 58_400);
            let options: &[u8] = if frame.flags & 2 != 0 {
                &[2, 4, 5, 0xb4, 1, 3, 3, 13]
            } else {
                &[]
            };
            assert_eq!(frame.options, options);
        }
        let (c, s) = (world.client.counters(), world.server.counters());
        assert_eq!((c.tx_octets, c.rx_octets), (255, 269));
        assert_eq!((c.completed, s.completed), (1, 1));
    }
}

#[test]
fn the_default_style_sends_the_same_short_connection() {
    let mut world = World::new(
        client_config(client(false), Transport::Tcp),
        server_config(server(false), Transport::Tcp),
        Wire::default(),
    );
    world.trace = true;
    world.launch(1);
    world.run_until(SEC);
    check(&world, P1);
}

#[test]
fn counters_of_ten_p1() {
    let mut world = tcp(|_| {}, |_| {});
    world.launch(10);
    world.run_until(SEC);
    let c = world.client.counters();
    assert_eq!(
        (c.tcp_rx, c.tcp_tx, c.syn_rx, c.syn_tx, c.fin_rx, c.fin_tx),
        (30, 30, 10, 10, 10, 10)
    );
    assert_eq!(
        (c.attempted, c.completed, c.requests, c.status_2xx),
        (10, 10, 10, 10)
    );
    assert_eq!((c.rst_rx, c.rst_tx, c.tcp_dropped()), (0, 0, 0));
    let s = world.server.counters();
    assert_eq!(
        (s.tcp_rx, s.tcp_tx, s.attempted, s.completed),
        (30, 30, 10, 10)
    );
}

#[test]
fn p2_one_byte_each() {
    let mut world = tcp(
        |c| {
            c.request = Message::bytes(b"a");
            c.answer = Reading::Segment;
        },
        |s| s.answer = ServerAnswer::Message(Message::bytes(b"a")),
    );
    world.launch(1);
    world.run_until(SEC);
    check(
        &world,
        "
        0 > S 0 0 0
        0 < SA 0 1 0
        0 > PA 1 1 1
        0 < FPA 1 2 1
        0 > FA 2 3 0
        0 < A 3 3 0",
    );
}

fn keepalive(interval: u64, requests: u16) -> World {
    world(
        dperf_client(
            |c| {
                c.interval = interval;
                c.requests = Some(requests);
            },
            Transport::Tcp,
        ),
        dperf_server(|s| s.answers = None, Transport::Tcp, interval),
    )
}

#[test]
fn p3_keepalive() {
    let mut world = keepalive(100 * MS, 4);
    world.launch(1);
    world.run_until(SEC);
    check(
        &world,
        "
        0 > S 0 0 0
        0 < SA 0 1 0
        0 > PA 1 1 85
        0 < PA 1 86 99
        100 > PA 86 100 85
        100 < PA 100 171 99
        200 > PA 171 199 85
        200 < PA 199 256 99
        300 > PA 256 298 85
        300 < PA 298 341 99
        300 > FA 341 397 0
        300 < FA 397 342 0
        300 > A 342 398 0",
    );
}

#[test]
fn p4_long_interval_is_acknowledged() {
    let mut world = keepalive(3 * SEC, 3);
    world.launch(1);
    world.run_until(20 * SEC);
    check(
        &world,
        "
        0 > S 0 0 0
        0 < SA 0 1 0
        0 > PA 1 1 85
        0 < PA 1 86 99
        0 > A 86 100 0
        3000 > PA 86 100 85
        3000 < PA 100 171 99
        3000 > A 171 199 0
        6000 > PA 171 199 85
        6000 < PA 199 256 99
        6000 > FA 256 298 0
        6000 < FA 298 257 0
        6000 > A 257 299 0",
    );
}

#[test]
fn p5_without_acknowledgement_the_server_repeats() {
    let mut world = keepalive(3 * SEC, 3);
    let mut config = world.client.config().clone();
    config.ack_delay = u64::MAX;
    world.client = Machine::new(config, Latencies::default()).unwrap();
    world.launch(1);
    world.run_until(20 * SEC);
    let lines = told(&world);
    assert_eq!(lines[3], "0 < PA 1 86 99");
    assert_eq!(lines[4], "2200 < PA 1 86 99");
    assert_eq!(world.server.counters().data_again, 2);
    assert_eq!(world.client.counters().completed, 1);
}

#[test]
fn p6_a_response_of_seven_segments() {
    let mut world = tcp(
        |_| {},
        |s| {
            let mut segment = vec![0; 1460];
            let head = b"HTTP/1.1 200 OK\r\nContent-Length:     10135\r\nServer: dperf\r\nConnection: keep-alive\r\n\r\n";
            assert_eq!(head.len(), 85);
            segment[..85].copy_from_slice(head);
            s.answer = ServerAnswer::Message(Message::repeated(&segment, 7 * 1460));
        },
    );
    world.launch(1);
    world.run_until(SEC);
    check(
        &world,
        "
        0 > S 0 0 0
        0 < SA 0 1 0
        0 > PA 1 1 85
        0 < PA 1 86 1460
        0 > A 86 1461 0
        0 < A 1461 86 1460
        0 < A 2921 86 1460
        0 < A 4381 86 1460
        0 > A 86 5841 0
        0 < A 5841 86 1460
        0 < A 7301 86 1460
        0 < A 8761 86 1460
        0 > FA 86 10221 0
        0 < FA 10221 87 0
        0 > A 87 10222 0",
    );
}

#[test]
fn p7_fast_close() {
    let mut world = tcp(|c| c.close = Close::Reset, |_| {});
    world.launch(1);
    world.run_until(SEC);
    check(
        &world,
        "
        0 > S 0 0 0
        0 < SA 0 1 0
        0 > PA 1 1 85
        0 < FPA 1 86 99
        0 > RA 86 101 0",
    );
    assert_eq!(
        (
            world.client.counters().completed,
            world.server.counters().completed
        ),
        (1, 1)
    );
}

fn udp(shape: impl FnOnce(&mut Client)) -> World {
    world(
        dperf_client(
            |c| {
                c.request = Message::bytes(&[b'a'; 20]);
                shape(c);
            },
            Transport::Udp,
        ),
        dperf_server(
            |s| s.answer = ServerAnswer::Message(Message::bytes(&[b'a'; 10])),
            Transport::Udp,
            0,
        ),
    )
}

#[test]
fn p8_udp() {
    let mut world = udp(|_| {});
    world.launch(10);
    world.run_until(5 * SEC);
    let lens: Vec<_> = world.frames.iter().map(|f| f.len).collect();
    assert_eq!(lens.iter().sum::<usize>(), 300);
    let c = world.client.counters();
    assert_eq!(
        (c.udp_rx, c.udp_tx, c.attempted, c.completed, c.udp_lost),
        (10, 10, 10, 10, 0)
    );
    assert_eq!(world.client.observer().answer.count(), 10);
}

#[test]
fn p9_udp_keepalive() {
    let mut world = udp(|c| {
        c.interval = 500 * MS;
        c.requests = None;
    });
    world.launch(1);
    world.run_until(9 * SEC - 1);
    let c = world.client.counters();
    assert_eq!(
        (c.udp_tx, c.udp_rx, c.attempted, c.completed, c.open),
        (18, 18, 1, 0, 1)
    );
    let times: Vec<_> = world
        .frames
        .iter()
        .filter(|f| f.from_client)
        .map(|f| f.ns / MS)
        .collect();
    assert_eq!(times, (0..18).map(|i| i * 500).collect::<Vec<_>>());
}

#[test]
fn p10_udp_flood_in_bursts() {
    let mut world = udp(|c| {
        c.interval = 500 * MS;
        c.requests = None;
        c.pipeline = 3;
        c.flood = true;
    });
    world.server_is_there = false;
    world.launch(1);
    world.run_until(2 * SEC - 1);
    let times: Vec<_> = world.frames.iter().map(|f| f.ns / MS).collect();
    assert_eq!(
        times,
        [0, 0, 0, 500, 500, 500, 1000, 1000, 1000, 1500, 1500, 1500]
    );
    assert_eq!(world.client.counters().udp_lost, 0);
}

#[test]
fn p11_syn_flood_of_a_live_server() {
    let mut world = tcp(|c| c.flood = true, |_| {});
    world.launch(10);
    world.run_until(5 * SEC);
    let lines = told(&world);
    assert_eq!(lines[0], "0 > S 0 0 0");
    assert_eq!(world.frames.iter().filter(|f| f.from_client).count(), 10);
    world.run_until(16 * SEC);
    let c = world.client.counters();
    assert_eq!(
        (c.syn_tx, c.attempted, c.completed, c.failed()),
        (10, 10, 10, 0)
    );
    // Every SYN-ACK is sent at 0, 2.2, 4.4 and 6.6 s.
    assert_eq!((c.syn_rx, c.tcp_dropped(), c.rst_tx), (40, 40, 0));
    let times: Vec<_> = world
        .frames
        .iter()
        .filter(|f| !f.from_client && f.seq == world.frames[10].seq)
        .map(|f| f.ns / MS)
        .collect();
    assert_eq!(times, [0, 2200, 4400, 6600]);
}

#[test]
fn p12_syn_flood_with_keepalive() {
    let mut world = tcp(
        |c| {
            c.flood = true;
            c.interval = SEC;
            c.requests = None;
        },
        |_| {},
    );
    world.server_is_there = false;
    world.launch(1);
    world.run_until(9 * SEC - 1);
    let expected: String = (0..9)
        .map(|i| format!("{} > S {i} 0 0\n", i * 1000))
        .collect();
    check(&world, &expected);
    let c = world.client.counters();
    assert_eq!((c.syn_tx, c.syn_again, c.attempted), (9, 0, 1));
}

#[test]
fn p13_flood_meets_a_live_server() {
    let mut world = world(
        dperf_client(
            |c| {
                c.flood = true;
                c.interval = 100 * MS;
                c.requests = None;
            },
            Transport::Tcp,
        ),
        dperf_server(|s| s.answers = None, Transport::Tcp, 100 * MS),
    );
    world.launch(1);
    world.run_until(301 * MS);
    check(
        &world,
        "
        0 > S 0 0 0
        0 < SA 0 1 0
        0 > PA 1 1 85
        0 < PA 1 86 99
        100 > PA 86 100 85
        100 < PA 100 171 99
        200 > PA 171 199 85
        200 < PA 199 256 99
        300 > PA 256 298 85
        300 < PA 298 341 99",
    );
}

#[test]
fn p14_no_answer() {
    let mut world = tcp(|_| {}, |_| {});
    world.server_is_there = false;
    world.launch(1);
    world.run_until(9 * SEC);
    check(
        &world,
        "
        0 > S 0 0 0
        2000 > S 0 0 0
        4000 > S 0 0 0
        6000 > S 0 0 0",
    );
    let c = world.client.counters();
    assert_eq!(
        (c.failed_connect_timeout, c.completed, c.open, c.syn_again),
        (1, 0, 0, 3)
    );
}

#[test]
fn p15_unconfigured_port() {
    let mut world = tcp(|_| {}, |s| s.ports = (81, 81));
    world.launch(1);
    world.run_until(SEC);
    let reset = &world.frames[1];
    assert_eq!(
        (reset.flags, reset.seq, reset.ack, reset.window),
        (flags("RA"), 0, world.frames[0].seq.wrapping_add(1), 0)
    );
    assert_eq!(world.client.counters().failed_refused, 1);
}

#[test]
fn p16_post() {
    let mut world = tcp(
        |c| c.request = Message::new(GET, 150, Filler::Letter(b'a')),
        |_| {},
    );
    world.launch(1);
    world.run_until(SEC);
    assert_eq!(
        told(&world)[2..4],
        ["0 > PA 1 1 150".to_owned(), "0 < FPA 1 151 99".to_owned()].map(|l| sorted(&l))
    );
}

fn sorted(line: &str) -> String {
    let words: Vec<_> = line.split(' ').collect();
    let bits = flags(words[2]);
    let names: String = "FSRPA"
        .chars()
        .zip(0..)
        .filter(|(_, bit)| bits >> bit & 1 == 1)
        .map(|(n, _)| n)
        .collect();
    format!("{} {} {names} {}", words[0], words[1], words[3..].join(" "))
}

#[test]
fn p17_a_client_that_closes_after_one_segment() {
    let mut world = tcp(
        |c| c.answer = Reading::Segment,
        |s| s.answer = ServerAnswer::Message(Message::repeated(&[b'a'; 1460], 3 * 1460)),
    );
    world.launch(1);
    world.run_until(SEC);
    check(
        &world,
        "
        0 > S 0 0 0
        0 < SA 0 1 0
        0 > PA 1 1 85
        0 < PA 1 86 1460
        0 > FA 86 1461 0
        0 < FA 1461 87 0
        0 > A 87 1462 0",
    );
}
