//! Two machines and a wire in virtual time.
#![allow(unreachable_pub)]

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use wb_tcp::*;
use wb_wire::{Ethernet, Ipv4, MacAddr, Tcp, TcpView, UdpView, checksum, ethertype, protocol};

pub const MS: u64 = 1_000_000;
pub const SEC: u64 = 1000 * MS;
pub const A: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
pub const B: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);

pub const GET: &[u8] = b"GET / HTTP/1.1\r\nUser-Agent: dperf\r\nHost: dperf\r\nAccept: */*\r\nPad: aaaaaaaaaaaaaaa\r\n\r\n";

pub fn addresses(first: &str, count: u32) -> Pool {
    Pool::range(first.parse().unwrap(), count)
}

pub fn reply(len: u32) -> Message {
    let body = |head: usize| len as usize - head;
    let head = |n: usize| {
        format!(
            "HTTP/1.1 200 OK\r\nContent-Length:{n:11}\r\nServer: dperf\r\nConnection: keep-alive\r\n\r\n"
        )
    };
    let head_len = head(0).len();
    Message::new(head(body(head_len)).as_bytes(), len, Filler::Letter(b'a'))
}

pub fn client(v6: bool) -> Client {
    let (from, to) = if v6 {
        ("2001:2::1", "2001:2::1:1")
    } else {
        ("198.18.0.1", "198.18.1.1")
    };
    Client {
        tuples: Tuples::new(
            addresses(from, 2),
            (1024, 65535),
            addresses(to, 1),
            (80, 80),
            TupleSequence::Sequential,
            Steering::All,
        )
        .unwrap(),
        request: Message::bytes(GET),
        answer: Reading::Http,
        requests: Some(1),
        interval: 0,
        pipeline: 1,
        close: Close::Fin,
        flood: false,
        paced: false,
        numbers: false,
        destinations: None,
        alternate: None,
    }
}

pub fn server(v6: bool) -> Server {
    Server {
        addresses: addresses(if v6 { "2001:2::1:1" } else { "198.18.1.1" }, 1),
        clients: Pool::default(),
        ports: (80, 80),
        request: Reading::Segment,
        answer: ServerAnswer::Message(reply(99)),
        answers: Some(1),
        proxy: false,
        returns_numbers: false,
    }
}

pub fn client_config(client: Client, transport: Transport) -> Config {
    let mut config = Config::new(Role::Client(client), transport, A);
    config.gateway = Some(B);
    config
}

pub fn server_config(server: Server, transport: Transport) -> Config {
    let mut config = Config::new(Role::Server(server), transport, B);
    config.key = 2;
    config
}

/// Impairments of the wire, from a seed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wire {
    pub seed: u64,
    pub delay: u64,
    pub jitter: u64,
    /// Per thousand frames.
    pub loss: u64,
    pub duplicates: u64,
    /// Frames per thousand that are overtaken by later ones; `late_by` is their delay in ns.
    pub late: u64,
    pub late_by: u64,
}

impl Wire {
    fn next(&mut self) -> u64 {
        self.seed = self
            .seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        self.seed >> 33
    }

    fn chance(&mut self, thousandths: u64) -> bool {
        self.next() % 1000 < thousandths
    }
}

/// Frame as recorded in a test vector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    pub ns: u64,
    pub from_client: bool,
    pub flags: u8,
    pub seq: u32,
    pub ack: u32,
    pub len: usize,
    pub window: u16,
    pub options: Vec<u8>,
}

/// Arrival time, serial number, and true if the client sent it.
type Flying = Reverse<(u64, u64, bool, Vec<u8>)>;

pub struct World {
    pub client: Machine<Latencies>,
    pub server: Machine,
    pub now: u64,
    pub wire: Wire,
    pub frames: Vec<Seen>,
    pub trace: bool,
    /// All frames sent, including lost ones, if `keep` is true.
    pub kept: Vec<(bool, Vec<u8>)>,
    pub keep: bool,
    out: [Frames; 2],
    flying: BinaryHeap<Flying>,
    serial: u64,
    pub server_is_there: bool,
    /// Machines look ahead at all frames of one time before they receive them; `fetched` counts the prefetches.
    pub looks_ahead: bool,
    pub fetched: u64,
    /// Frames that the wire lost; `doubled` counts the duplicates.
    pub lost: u64,
    pub doubled: u64,
}

impl World {
    pub fn new(client: Config, server: Config, wire: Wire) -> Self {
        Self {
            client: Machine::new(client, Latencies::default()).unwrap(),
            server: Machine::new(server, ()).unwrap(),
            now: 0,
            wire,
            frames: Vec::new(),
            trace: false,
            kept: Vec::new(),
            keep: false,
            out: [Frames::new(usize::MAX), Frames::new(usize::MAX)],
            flying: BinaryHeap::new(),
            serial: 0,
            server_is_there: true,
            looks_ahead: false,
            fetched: 0,
            lost: 0,
            doubled: 0,
        }
    }

    pub fn launch(&mut self, n: u32) -> u32 {
        let n = self.client.launch(self.now, n, &mut self.out[0]);
        self.collect();
        n
    }

    pub fn ask(&mut self, n: u32) -> u32 {
        let n = self.client.ask(self.now, n, &mut self.out[0]);
        self.collect();
        n
    }

    fn collect(&mut self) {
        for (from_client, side) in [(true, 0), (false, 1)] {
            for frame in self.out[side].take_frames() {
                if self.trace {
                    self.frames.push(see(self.now, from_client, &frame));
                }
                if self.keep {
                    self.kept.push((from_client, frame.clone()));
                }
                let copies = 1 + u32::from(self.wire.chance(self.wire.duplicates));
                self.doubled += u64::from(copies - 1);
                for _ in 0..copies {
                    if self.wire.chance(self.wire.loss) {
                        self.lost += 1;
                        continue;
                    }
                    let jitter = if self.wire.jitter > 0 {
                        self.wire.next() % self.wire.jitter
                    } else {
                        0
                    };
                    let mut at = self.now + self.wire.delay + jitter;
                    if self.wire.late > 0 && self.wire.chance(self.wire.late) {
                        at += self.wire.late_by;
                    }
                    self.serial += 1;
                    self.flying
                        .push(Reverse((at, self.serial, from_client, frame.clone())));
                }
            }
        }
    }

    fn look_ahead(&mut self) {
        let fetched = std::cell::Cell::new(0);
        let fetch = |address: *const u8| {
            assert!(!address.is_null());
            fetched.set(fetched.get() + 1);
        };
        for Reverse((at, _, from_client, frame)) in &self.flying {
            match (*at <= self.now, from_client) {
                (true, false) => self.client.look_ahead(frame, fetch),
                (true, true) => self.server.look_ahead(frame, fetch),
                _ => {}
            }
        }
        self.client.fetch_records(fetch);
        self.server.fetch_records(fetch);
        self.fetched += fetched.get();
    }

    /// Runs until `end`, inclusive.
    pub fn run_until(&mut self, end: u64) {
        let mut turns = 0;
        loop {
            turns += 1;
            assert!(
                turns < 2_000_000,
                "they talk for ever: {:?}",
                self.client.counters()
            );
            let mut next = self.flying.peek().map(|Reverse((at, ..))| *at);
            for due in [self.client.next_due(), self.server.next_due()]
                .into_iter()
                .flatten()
            {
                let due = due.max(self.now);
                next = Some(next.map_or(due, |n: u64| n.min(due)));
            }
            let Some(next) = next.filter(|next| *next <= end) else {
                break;
            };
            let before = (self.now, self.flying.len());
            self.now = self.now.max(next);
            if self.looks_ahead {
                self.look_ahead();
            }
            while let Some(Reverse((at, ..))) = self.flying.peek() {
                if *at > self.now {
                    break;
                }
                let Reverse((_, _, from_client, frame)) = self.flying.pop().unwrap();
                if !from_client {
                    self.client.receive(self.now, &frame, &mut self.out[0]);
                } else if self.server_is_there {
                    self.server.receive(self.now, &frame, &mut self.out[1]);
                }
            }
            self.client.poll(self.now, &mut self.out[0]);
            self.server.poll(self.now, &mut self.out[1]);
            self.collect();
            assert!(
                self.client.counters().is_balanced(),
                "{:?}",
                self.client.counters()
            );
            assert!(
                self.server.counters().is_balanced(),
                "{:?}",
                self.server.counters()
            );
            let is_udp = self.client.config().transport == Transport::Udp;
            assert!(
                !is_udp || self.client.counters().requests_add_up(),
                "{:?}",
                self.client.counters()
            );
            if before == (self.now, self.flying.len()) && self.flying.is_empty() {
                // Times are rounded to ticks: a timer may be announced up to one tick early.
                self.now += 1;
            }
        }
        self.now = end;
    }
}

pub fn see(ns: u64, from_client: bool, frame: &[u8]) -> Seen {
    let (_, kind, rest) = Ethernet::parse(frame).unwrap();
    assert_eq!(kind, 0x800, "vectors are IPv4");
    let (_, next, body) = Ipv4::parse(rest).unwrap();
    if next == protocol::UDP {
        return Seen {
            ns,
            from_client,
            flags: 0,
            seq: 0,
            ack: 0,
            len: body.len() - UdpView::LEN,
            window: 0,
            options: vec![],
        };
    }
    let (view, _) = TcpView::split_from(body).unwrap();
    Seen {
        ns,
        from_client,
        flags: view.flags,
        seq: view.sequence.get(),
        ack: view.acknowledgment.get(),
        len: body.len() - view.header_len(),
        window: view.window.get(),
        options: body[20..view.header_len()].to_vec(),
    }
}

/// Segment from the other end of the first connection that a client opens.
pub fn segment(
    to_client: bool,
    seq: u32,
    ack: u32,
    flags: u8,
    window: u16,
    options: &[u8],
    payload: &[u8],
) -> Vec<u8> {
    let (c, s) = ("198.18.0.1".parse().unwrap(), "198.18.1.1".parse().unwrap());
    let (src, dst, sport, dport) = if to_client {
        (s, c, 80, 1024)
    } else {
        (c, s, 1024, 80)
    };
    let tcp = Tcp {
        sport,
        dport,
        sequence: seq,
        acknowledgment: ack,
        flags,
        window,
    };
    let mut body = tcp.emit(0).to_vec();
    body.extend_from_slice(options);
    body[12] = (body.len() as u8) << 2;
    body.extend_from_slice(payload);
    let sum =
        checksum::pseudo_v4(src, dst, protocol::TCP, body.len() as u16) + checksum::sum(&body);
    body[16..18].copy_from_slice(&checksum::finish(sum).to_be_bytes());
    let ethernet = if to_client {
        Ethernet { dst: A, src: B }
    } else {
        Ethernet { dst: B, src: A }
    };
    let mut frame = ethernet.emit(ethertype::IPV4).to_vec();
    frame.extend_from_slice(&Ipv4::new(src, dst).emit(protocol::TCP, body.len()));
    frame.extend_from_slice(&body);
    assert!(TcpView::LEN <= body.len());
    frame
}
