//! A client and a server connected through memory, for instruction counts.
//!
//! - `exchange [CONNECTIONS]` opens this number of connections.
//! - `exchange REQUESTS udp` sends this number of datagrams, each with an answer, over 64 flows.
//! - `exchange REQUESTS held CONNECTIONS [plain]` sends requests over persistent connections in turn and measures their
//!   time. `plain` disables prefetching.
//!
//! ```text
//! cargo build --release -p wb-load --example exchange
//! valgrind --tool=callgrind --callgrind-out-file=/dev/null target/release/examples/exchange 20000
//! ```
//!
//! The difference of two runs, divided by the difference of their numbers, is the cost of one connection or request at
//! both ends. It includes the copy between them.

use std::time::Instant;

use wb_tcp::*;
use wb_wire::MacAddr;

/// A batch of frames in one block of memory.
struct Batch {
    frames: Box<[[u8; 2048]; 64]>,
    lens: [usize; 64],
    used: usize,
}

impl Batch {
    /// Passes all frames to a machine and collects its replies in `out`.
    #[inline(always)]
    fn take_to<O: Observer>(
        &mut self,
        machine: &mut Machine<O>,
        now: u64,
        out: &mut Self,
        look: bool,
    ) {
        if look && machine.is_worth_looking_ahead() {
            for i in 0..self.used {
                machine.look_ahead(&self.frames[i][..self.lens[i]], wb_port::prefetch);
            }
            machine.fetch_records(wb_port::prefetch);
        }
        for i in 0..self.used {
            machine.receive(now, &self.frames[i][..self.lens[i]], out);
        }
        self.used = 0;
        machine.poll(now, out);
    }
}

impl FrameSink for Batch {
    #[inline]
    fn lend(&mut self) -> Option<&mut [u8]> {
        self.frames.get_mut(self.used).map(|frame| &mut frame[..])
    }

    #[inline]
    fn commit(&mut self, len: usize) {
        self.lens[self.used] = len;
        self.used += 1;
    }
}

fn main() {
    let argument = |i| std::env::args().nth(i);
    let number = argument(1).and_then(|text| text.parse::<u64>().ok());
    let connections = number.unwrap_or(100_000);
    let udp = argument(2).is_some_and(|word| word == "udp");
    let held = argument(3).and_then(|text| text.parse::<u64>().ok());
    let looks_ahead = argument(4).is_none();
    let (a, b) = (MacAddr([2, 0, 0, 0, 0, 1]), MacAddr([2, 0, 0, 0, 0, 2]));
    let pool = |text: &str, n| Pool::range(text.parse().expect("an address"), n);
    let tuples = Tuples::new(
        pool("198.18.0.1", 100),
        (1024, 65535),
        pool("198.18.1.1", 1),
        (80, 80),
        TupleSequence::Sequential,
        Steering::All,
    );
    let client = Client {
        tuples: tuples.expect("not empty"),
        request: match udp {
            true => Message::new(&[], 18, Filler::Random(1)),
            false => Message::bytes(
                b"GET / HTTP/1.1\r\nHost: example\r\nUser-Agent: wirebench\r\nAccept: */*\r\n\r\n",
            ),
        },
        answer: Reading::Http,
        requests: (!udp && held.is_none()).then_some(1),
        interval: 0,
        pipeline: 1,
        close: Close::Fin,
        flood: false,
        paced: held.is_some(),
        destinations: None,
        alternate: None,
        numbers: udp,
    };
    let server = Server {
        addresses: pool("198.18.1.1", 1),
        ports: (80, 80),
        request: Reading::Http,
        answer: ServerAnswer::Message(match udp {
            true => Message::new(&[], 18, Filler::Random(2)),
            false if held.is_some() => {
                Message::bytes(b"HTTP/1.1 200 OK\r\nContent-Length: 14\r\n\r\nHello, world!\n")
            }
            false => Message::bytes(
                b"HTTP/1.1 200 OK\r\nContent-Length: 14\r\nConnection: close\r\n\r\nHello, world!\n",
            ),
        }),
        answers: held.is_none().then_some(1),
        proxy: false,
        clients: Pool::default(),
        returns_numbers: udp,
    };
    let transport = if udp { Transport::Udp } else { Transport::Tcp };
    let mut config = Config::new(Role::Client(client), transport, a);
    config.gateway = Some(b);
    let mut client = Machine::new(config, Latencies::default()).expect("sound");
    let config = Config::new(Role::Server(server), transport, b);
    let mut server = Machine::new(config, ()).expect("sound");

    let batch = || Batch {
        frames: Box::new([[0; 2048]; 64]),
        lens: [0; 64],
        used: 0,
    };
    let (mut there, mut back) = (batch(), batch());
    let mut now = 0;
    let opened = held.unwrap_or(connections);
    let all = held.map_or(connections, |held| held + connections);
    let done = |machine: &Machine<Latencies>| match udp || held.is_some() {
        true => machine.counters().responses,
        false => machine.counters().completed,
    };
    let mut begun = None;
    while done(&client) < all {
        let left = if udp { 64 } else { opened };
        let left = left - client.counters().attempted;
        client.launch(now, left.min(32) as u32, &mut there);
        if held.is_some() && left == 0 {
            begun.get_or_insert_with(Instant::now);
            client.ask(now, 32, &mut there);
        }
        while there.used + back.used > 0 && done(&client) < all {
            there.take_to(&mut server, now, &mut back, looks_ahead);
            back.take_to(&mut client, now, &mut there, looks_ahead);
        }
        now += 10_000;
    }
    if let Some(begun) = begun {
        let ns = begun.elapsed().as_nanos() as f64 / connections as f64;
        println!("{ns:.0} ns per request and its answer, both ends");
        return;
    }
    let (c, s) = (client.counters(), server.counters());
    assert!(c.is_balanced() && s.is_balanced() && (udp || s.completed == connections));
    println!(
        "{} connections, {} answers: client sent {} frames, received {}; server sent {}, received {}",
        c.completed, c.responses, c.tx_frames, c.rx_frames, s.tx_frames, s.rx_frames
    );
}
