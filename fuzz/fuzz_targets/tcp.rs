//! Arbitrary frames for open connections: the machine must not panic and must account for everything.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wb_tcp::{
    ServerAnswer, Client, Close, Config, Frames, Machine, Message, TupleSequence, Pool, Reading, Role, Server,
    Steering, Transport, Tuples,
};
use wb_wire::{MacAddr, checksum};

const A: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const B: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);

fn client(transport: Transport, paced: bool) -> Machine {
    let pool = |text: &str| Pool::range(text.parse().expect("an address"), 1);
    let (from, to) = (pool("198.18.0.1"), pool("198.18.0.2"));
    let tuples = Tuples::new(from, (1024, 1027), to, (80, 80), TupleSequence::Sequential, Steering::All);
    let client = Client {
        tuples: tuples.expect("not empty"),
        request: Message::bytes(b"GET / HTTP/1.1\r\n\r\n"),
        answer: Reading::Http,
        requests: Some(3),
        interval: 1_000_000,
        pipeline: 2,
        close: Close::Fin,
        flood: false,
        paced,
        numbers: paced,
        destinations: None,
        alternate: None,
    };
    let mut config = Config::new(Role::Client(client), transport, A);
    config.gateway = Some(B);
    Machine::new(config, ()).expect("sound")
}

fn server(transport: Transport) -> Machine {
    let server = Server {
        addresses: Pool::range("198.18.0.2".parse().expect("an address"), 1),
        clients: Pool::default(),
        ports: (80, 80),
        request: Reading::Http,
        answer: ServerAnswer::Message(Message::bytes(&[b'x'; 5000])),
        answers: Some(4),
        proxy: true,
        returns_numbers: true,
    };
    Machine::new(Config::new(Role::Server(server), transport, B), ()).expect("sound")
}

// In each step, two bytes select the action on the next frame in flight, then up to 20 bytes overwrite
// the frame at a selected offset. A third of the frames are unchanged, so that connections make progress.
fuzz_target!(|bytes: &[u8]| {
    let Some((&kind, mut bytes)) = bytes.split_first() else {
        return;
    };
    let transport = if kind & 1 == 0 { Transport::Tcp } else { Transport::Udp };
    let (mut client, mut server) = (client(transport, kind & 2 != 0), server(transport));
    let (mut there, mut back) = (Frames::new(64), Frames::new(64));
    let mut now = 0;
    client.launch(now, 3, &mut there);
    while let Some((&[what, place, len], rest)) = bytes.split_first_chunk::<3>() {
        let (patch, rest) = rest.split_at(rest.len().min(usize::from(len % 20)));
        bytes = rest;
        now += 1 << (what % 32);
        let side = if what & 32 == 0 { &mut there } else { &mut back };
        if !side.sent.is_empty() {
            let mut frame = side.sent.remove(0);
            let at = usize::from(place) % frame.len();
            let n = patch.len().min(frame.len() - at);
            if what % 3 != 0 {
                frame[at..at + n].copy_from_slice(&patch[..n]);
            }
            if what & 32 == 0 {
                server.receive(now, &frame, &mut back);
            } else {
                client.receive(now, &frame, &mut there);
            }
        }
        if what & 64 != 0 {
            client.poll(now, &mut there);
            server.poll(now, &mut back);
        }
        if what & 128 != 0 {
            client.launch(now, 1, &mut there);
            client.ask(now, 2, &mut there);
        }
        if what % 31 == 0 {
            client.close_down_to(now, u64::from(len % 4));
        }
        assert!(client.counters().is_balanced() && server.counters().is_balanced());
    }
    client.abort(now, &mut there);
    server.abort(now, &mut back);
    assert_eq!(client.held() + server.held(), 0);
    for frame in there.sent.iter().chain(&back.sent) {
        assert!(checksum::is_right(0, &frame[14..34]));
    }
});
