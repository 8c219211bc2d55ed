//! HTTP server: methods, versions, and "100 Continue".

use crate::common::*;
use wb_tcp::*;
use wb_wire::tcp_flags::*;

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
const KEEPS: &[u8] = b"HTTP/1.1 200 OK\r\nConnection: Keep-Alive\r\nContent-Length: 5\r\n\r\nhello";
const HEAD_LEN: usize = ANSWER.len() - 5;

/// Server with one answer, and the next sequence numbers of its client.
struct Peer {
    m: Machine,
    out: Frames,
    seq: u32,
    ack: u32,
    /// Bytes sent by the server; `closed` is true after its FIN.
    said: Vec<u8>,
    closed: bool,
}

impl Peer {
    fn new(answer: &[u8]) -> Self {
        let mut s = server(false);
        s.request = Reading::Http;
        s.answers = None;
        s.answer = ServerAnswer::Message(Message::bytes(answer));
        let mut m = Machine::new(server_config(s, Transport::Tcp), ()).unwrap();
        let mut out = Frames::new(usize::MAX);
        let syn = segment(false, 9, 0, SYN, 60_000, &[2, 4, 5, 0xb4, 1, 1, 4, 2], &[]);
        m.receive(0, &syn, &mut out);
        let ack = see(0, false, &out.take_frames()[0]).seq + 1;
        let (said, closed) = (Vec::new(), false);
        Self {
            m,
            out,
            seq: 10,
            ack,
            said,
            closed,
        }
    }

    /// Sends a segment, and acknowledges all answers.
    fn say(&mut self, bytes: &[u8]) -> &[u8] {
        let frame = segment(false, self.seq, self.ack, ACK, 60_000, &[], bytes);
        self.seq += bytes.len() as u32;
        self.m.receive(0, &frame, &mut self.out);
        let before = self.said.len();
        for frame in self.out.take_frames() {
            let seen = see(0, false, &frame);
            assert_eq!(seen.seq, self.ack);
            self.said
                .extend_from_slice(&frame[frame.len() - seen.len..]);
            self.closed |= seen.flags & FIN != 0;
            self.ack += seen.len as u32;
        }
        &self.said[before..]
    }
}

#[test]
fn head_gets_the_head() {
    let mut peer = Peer::new(ANSWER);
    assert_eq!(peer.say(b"HEAD / HTTP/1.1\r\n\r\n"), &ANSWER[..HEAD_LEN]);
    assert_eq!(peer.say(b"GET / HTTP/1.1\r\n\r\n"), ANSWER);
    let mixed = b"GET / HTTP/1.1\r\n\r\nHEAD / HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\n\r\n";
    let expected = [ANSWER, &ANSWER[..HEAD_LEN], ANSWER].concat();
    assert_eq!(peer.say(mixed), expected);
    assert!(!peer.closed);
    assert_eq!(
        (peer.m.counters().requests, peer.m.counters().responses),
        (5, 5)
    );
}

#[test]
fn what_is_not_one_message_is_sent_again_as_it_was() {
    let mut peer = Peer::new(ANSWER);
    let start = peer.ack;
    let mixed = b"HEAD / HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\n\r\nHEAD / HTTP/1.1\r\n\r\n";
    let said = peer.say(mixed).to_vec();
    // Ten bytes arrived; the retransmission contains the rest unchanged.
    let ack = segment(false, peer.seq, start + 10, ACK, 60_000, &[], &[]);
    peer.m.receive(0, &ack, &mut peer.out);
    peer.m.poll(2 * SEC, &mut peer.out);
    let again = peer.out.take_frames();
    let seen = see(0, false, &again[0]);
    assert_eq!(seen.seq, start + 10);
    assert_eq!(
        &again[0][again[0].len() - seen.len..],
        &said[10..10 + seen.len]
    );
    assert_eq!(seen.len, said.len() - 10);
}

#[test]
fn an_old_request_is_answered_and_the_connection_closed() {
    let mut peer = Peer::new(ANSWER);
    assert_eq!(peer.say(b"GET / HTTP/1.0\r\nHost: x\r\n\r\n"), ANSWER);
    assert!(peer.closed);
    // The request to keep the connection is granted only if the answer has the header.
    for (answer, closed) in [(ANSWER, true), (KEEPS, false)] {
        let mut peer = Peer::new(answer);
        peer.say(b"GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n");
        assert_eq!((&peer.said[..], peer.closed), (answer, closed));
    }
    let mut peer = Peer::new(ANSWER);
    peer.say(b"GET / HTTP/1.1\r\n\r\n");
    assert!(!peer.closed);
}

#[test]
fn leave_is_given_before_the_body_and_only_if_asked_for() {
    let mut peer = Peer::new(ANSWER);
    let head = b"POST / HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n";
    for _ in 0..3 {
        assert_eq!(peer.say(head), b"HTTP/1.1 100 Continue\r\n\r\n");
        assert_eq!(peer.say(b"abc"), ANSWER);
    }
    assert_eq!(
        peer.say(b"POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc"),
        ANSWER
    );
    assert_eq!(
        (peer.m.counters().requests, peer.m.counters().responses),
        (4, 4)
    );
}

#[test]
fn a_client_that_asks_for_heads_completes() {
    let mut c = client(false);
    c.request = Message::bytes(b"HEAD / HTTP/1.1\r\nHost: x\r\n\r\n");
    c.requests = Some(3);
    let mut s = server(false);
    s.request = Reading::Http;
    s.answers = None;
    s.answer = ServerAnswer::Message(reply(5000));
    let wire = Wire {
        delay: 1000,
        ..Wire::default()
    };
    let mut world = World::new(
        client_config(c, Transport::Tcp),
        server_config(s, Transport::Tcp),
        wire,
    );
    world.launch(2);
    world.run_until(SEC);
    let (c, s) = (world.client.counters(), world.server.counters());
    assert_eq!((c.completed, c.responses, s.completed), (2, 6, 2), "{c:?}");
    assert!(c.payload_rx < 6 * 200);
}
