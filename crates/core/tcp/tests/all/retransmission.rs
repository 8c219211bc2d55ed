//! Retransmissions: which data, when, how often, and their effect on the congestion window. The tests build the peer's
//! segments.

use crate::common::*;
use wb_tcp::*;
use wb_wire::{checksum, tcp_flags::*};

const MSS: u32 = 1000;
/// Period of the message pattern, which makes each byte depend on its offset.
const PERIOD: u32 = 251;

fn message(len: u32) -> Message {
    let pattern: Vec<u8> = (0..PERIOD).map(|i| i as u8).collect();
    Message::repeated(&pattern, len)
}

/// Client in the middle of its request.
struct Sender {
    m: Machine,
    out: Frames,
    /// Sequence number of the first byte of the request.
    first: u32,
    now: u64,
}

/// Segment of the client's request: offset in the request, length, flags.
type Piece = (u32, usize, u8);

impl Sender {
    /// Client with a request of `len` bytes on a connection that was just established, and its first flight.
    fn new(len: u32, change: impl FnOnce(&mut Config)) -> (Self, Vec<Piece>) {
        let mut shape = client(false);
        shape.request = message(len);
        shape.answer = Reading::Fixed(10);
        let mut config = client_config(shape, Transport::Tcp);
        config.retransmission = Retransmission {
            after: 100 * MS,
            tries: 3,
            backoff: true,
        };
        config.response_timeout = 1000 * SEC;
        change(&mut config);
        let mut m = Machine::new(config, ()).unwrap();
        let mut out = Frames::new(usize::MAX);
        assert_eq!(m.launch(0, 1, &mut out), 1);
        let first = see(0, true, &out.take_frames()[0]).seq + 1;
        let mut sender = Self {
            m,
            out,
            first,
            now: 0,
        };
        let options = [2, 4, (MSS >> 8) as u8, MSS as u8];
        sender.feed(500, sender.first, SYN | ACK, &options);
        let flight = sender.pieces();
        (sender, flight)
    }

    fn feed(&mut self, seq: u32, ack: u32, flags: u8, options: &[u8]) {
        let frame = segment(true, seq, ack, flags, 60_000, options, &[]);
        self.m.receive(self.now, &frame, &mut self.out);
    }

    /// Acknowledges everything before this offset.
    fn ack(&mut self, at: u32) -> Vec<Piece> {
        self.feed(501, self.first.wrapping_add(at), ACK, &[]);
        self.pieces()
    }

    /// Segments sent since the last call; checks that their bytes match their offsets.
    fn pieces(&mut self) -> Vec<Piece> {
        let mut all = Vec::new();
        for frame in self.out.take_frames() {
            let seen = see(self.now, true, &frame);
            let at = seen.seq.wrapping_sub(self.first);
            let payload = &frame[frame.len() - seen.len..];
            for (i, byte) in payload.iter().enumerate() {
                assert_eq!(u32::from(*byte), (at + i as u32) % PERIOD, "at {at} + {i}");
            }
            assert!(checksum::is_right(0, &frame[14..34]));
            all.push((at, seen.len, seen.flags));
        }
        all
    }

    /// Waits for the next segments, and returns the waiting time in ns.
    fn wait(&mut self) -> (u64, Vec<Piece>) {
        let from = self.now;
        while self.out.sent.is_empty() && self.m.counters().open > 0 {
            // Times are rounded to ticks of 1,024 ns.
            self.now = self.m.next_due().expect("a timer").max(self.now + 1);
            self.m.poll(self.now, &mut self.out);
        }
        (self.now - from, self.pieces())
    }
}

fn near(ns: u64, ms: u64) -> bool {
    ns.abs_diff(ms * MS) < 10_000
}

const fn data(at: u32) -> Piece {
    (at, MSS as usize, ACK)
}

#[test]
fn after_a_timeout_exactly_what_was_not_acknowledged_is_sent_again() {
    let (mut s, flight) = Sender::new(5500, |_| ());
    let last = (5000, 500, ACK | PSH);
    assert_eq!(
        flight,
        [
            data(0),
            data(1000),
            data(2000),
            data(3000),
            data(4000),
            last
        ]
    );
    // The first segment and part of the second one arrived.
    assert_eq!(s.ack(1300), []);
    let (ns, again) = s.wait();
    assert!(near(ns, 100), "{ns}");
    // One segment at first: RFC 5681 section 3.1. It starts at the acknowledged byte.
    assert_eq!(again, [data(1300)]);
    // Two segments for one acknowledged, as in slow start.
    assert_eq!(s.ack(2300), [data(2300), data(3300)]);
    assert_eq!(s.m.counters().data_again, 3);
    // The server had the rest: none of it is sent a third time.
    assert_eq!(s.ack(5500), []);
    assert_eq!(s.m.counters().payload_tx, 5500 + 3000);
    s.now += 10 * SEC;
    s.m.poll(s.now, &mut s.out);
    assert_eq!(s.pieces(), []);
}

#[test]
fn the_end_of_the_stream_is_sent_again_with_its_place() {
    let (mut s, _) = Sender::new(300, |_| ());
    // Answered and acknowledged; the client's FIN is lost.
    let answer = segment(
        true,
        501,
        s.first.wrapping_add(300),
        ACK,
        60_000,
        &[],
        &[b'x'; 10],
    );
    s.m.receive(s.now, &answer, &mut s.out);
    assert_eq!(s.pieces(), [(300, 0, FIN | ACK)]);
    let (ns, again) = s.wait();
    assert!(near(ns, 100), "{ns}");
    assert_eq!(again, [(300, 0, FIN | ACK)]);
    assert_eq!((s.m.counters().fin_tx, s.m.counters().fin_again), (2, 1));
    assert_eq!(s.m.counters().data_again, 0);
}

#[test]
fn the_time_doubles_and_the_tries_are_counted() {
    let (mut s, _) = Sender::new(500, |_| ());
    let all = [(0, 500, ACK | PSH)];
    for ms in [100, 200, 400] {
        let (ns, again) = s.wait();
        assert!(near(ns, ms), "{ns} instead of {ms} ms");
        assert_eq!(again, all);
    }
    // The next timeout ends the connection with RST.
    let (ns, end) = s.wait();
    assert!(near(ns, 800), "{ns}");
    assert_eq!(end, [(500, 0, RST | ACK)]);
    let c = s.m.counters();
    assert_eq!((c.data_again, c.failed_response_timeout, c.open), (3, 1, 0));
}

#[test]
fn progress_begins_the_doubling_and_the_tries_anew() {
    let (mut s, _) = Sender::new(3000, |_| ());
    assert!(near(s.wait().0, 100));
    assert!(near(s.wait().0, 200));
    // New data is acknowledged: the timeout is back at its first value.
    assert_eq!(s.ack(1000).len(), 2);
    for ms in [100, 200, 400] {
        let (ns, again) = s.wait();
        assert!(near(ns, ms), "{ns} instead of {ms} ms");
        assert_eq!(again, [data(1000)]);
    }
    assert_eq!(s.wait().1[0].2, RST | ACK);
}

#[test]
fn without_backoff_the_time_stays() {
    let (mut s, _) = Sender::new(500, |config| config.retransmission.backoff = false);
    for _ in 0..3 {
        assert!(near(s.wait().0, 100));
    }
    assert_eq!(s.wait().1, [(500, 0, RST | ACK)]);
}

#[test]
fn a_syn_is_sent_again_with_its_number() {
    let mut config = client_config(client(false), Transport::Tcp);
    config.retransmission = Retransmission {
        after: 100 * MS,
        tries: 2,
        backoff: true,
    };
    let mut m = Machine::new(config, ()).unwrap();
    let mut out = Frames::new(usize::MAX);
    m.launch(0, 1, &mut out);
    let mut seen = Vec::new();
    let mut now = 0;
    while m.counters().open > 0 {
        seen.extend(out.take_frames().iter().map(|f| see(now, true, f)));
        now = m.next_due().unwrap().max(now + 1);
        m.poll(now, &mut out);
    }
    assert_eq!(out.sent.len(), 0, "nobody is told of an open that failed");
    let times: Vec<_> = seen.iter().map(|f| f.ns / MS).collect();
    assert_eq!(times, [0, 100, 300]);
    assert!(near(now, 700), "{now}");
    assert!(seen.iter().all(|f| f.flags == SYN && f.seq == seen[0].seq));
    let c = m.counters();
    assert_eq!((c.syn_again, c.failed_connect_timeout), (2, 1));
}

#[test]
fn after_a_timeout_the_window_grows_slowly_to_half_and_then_by_one() {
    // Ten segments in flight: the threshold becomes five.
    let (mut s, flight) = Sender::new(100_000, |_| ());
    assert_eq!(flight.len(), 10);
    assert_eq!(s.wait().1, [data(0)]);
    let mut in_flight = 1;
    let mut acked = 0;
    let mut sizes = Vec::new();
    // Acknowledges one segment at a time and records the number in flight after each.
    for _ in 0..24 {
        acked += MSS;
        in_flight += s.ack(acked).len();
        in_flight -= 1;
        sizes.push(in_flight);
    }
    // Up to the threshold one more with each acknowledgement, then one more per window.
    assert_eq!(sizes[..4], [2, 3, 4, 5]);
    assert!(sizes[4..].is_sorted(), "{sizes:?}");
    let steps = sizes[4..].windows(2).filter(|w| w[1] > w[0]).count();
    assert!((2..=4).contains(&steps), "{sizes:?}");
    assert!(sizes[23] <= 10, "{sizes:?}");
}

#[test]
fn the_third_duplicate_halves_the_window_and_recovery_ends() {
    let (mut s, flight) = Sender::new(100_000, |_| ());
    assert_eq!(flight.len(), 10);
    assert_eq!((s.ack(0), s.ack(0)), (vec![], vec![]));
    // Third duplicate: only the oldest segment is retransmitted. The window is half of ten plus three.
    assert_eq!(s.ack(0), [data(0)]);
    assert_eq!(s.m.counters().duplicate_acks, 3);
    // Each further duplicate shows that a segment has left the network: from the tenth in flight on, new data may be
    // sent.
    assert_eq!((s.ack(0), s.ack(0)), (vec![], vec![]));
    assert_eq!(s.ack(0), [data(10_000)]);
    assert_eq!(s.ack(0), [data(11_000)]);
    // Partial acknowledgement (RFC 6582 section 3.2): the next hole comes before new data.
    let partial = s.ack(3000);
    assert_eq!(partial[0], data(3000));
    assert!(
        partial[1..].iter().all(|piece| piece.0 >= 12_000),
        "{partial:?}"
    );
    // All data sent before the loss is acknowledged: recovery ends with the threshold of five.
    let highest = 12_000 + 1000 * (partial.len() as u32 - 1);
    let after = s.ack(10_000);
    let in_flight = (highest - 10_000) / MSS + after.len() as u32;
    assert_eq!(in_flight, 5, "{after:?}");
    assert!(after.iter().all(|piece| piece.0 >= highest));
    let c = s.m.counters();
    assert_eq!((c.fast_again, c.data_again), (2, 2));
    // Later duplicates start a new count.
    assert_eq!((s.ack(10_000), s.ack(10_000)), (vec![], vec![]));
    assert_eq!(s.ack(10_000)[0], data(10_000));
    assert_eq!(s.m.counters().fast_again, 3);
}

#[test]
fn what_is_no_duplicate_does_not_count_as_one() {
    let (mut s, _) = Sender::new(100_000, |_| ());
    for window in [50_000, 40_000, 30_000, 20_000, 10_000] {
        // A changed window is not a duplicate: RFC 5681 section 2.
        let frame = segment(true, 501, s.first, ACK, window, &[], &[]);
        s.m.receive(0, &frame, &mut s.out);
    }
    assert_eq!(s.pieces(), []);
    assert_eq!(
        (s.m.counters().duplicate_acks, s.m.counters().fast_again),
        (0, 0)
    );
}

#[test]
fn a_timeout_within_recovery_ends_it() {
    let (mut s, _) = Sender::new(100_000, |_| ());
    for _ in 0..3 {
        s.ack(0);
    }
    assert_eq!(s.wait().1, [data(0)]);
    // Slow start from one segment, no recovery: two segments for one, and no hole is guessed.
    assert_eq!(s.ack(1000), [data(1000), data(2000)]);
    assert_eq!(s.m.counters().fast_again, 1);
}

#[test]
fn a_server_sends_its_answer_again_and_then_the_rest() {
    let mut shape = server(false);
    shape.answer = ServerAnswer::Message(message(4200));
    let mut config = server_config(shape, Transport::Tcp);
    config.retransmission.after = 100 * MS;
    config.initial_window = 2;
    let mut m = Machine::new(config, ()).unwrap();
    let mut out = Frames::new(usize::MAX);
    let options = [2, 4, (MSS >> 8) as u8, MSS as u8];
    m.receive(
        0,
        &segment(false, 9, 0, SYN, 60_000, &options, &[]),
        &mut out,
    );
    let first = see(0, false, &out.take_frames()[0]).seq + 1;
    let mut say = |m: &mut Machine, at: u32, payload: &[u8], seq| {
        let frame = segment(false, seq, first + at, ACK, 60_000, &[], payload);
        m.receive(0, &frame, &mut out);
        let all: Vec<_> = out.take_frames().iter().map(|f| see(0, false, f)).collect();
        all.iter()
            .map(|f| (f.seq - first, f.len, f.flags))
            .collect::<Vec<_>>()
    };
    assert_eq!(say(&mut m, 0, GET, 10), [data(0), data(1000)]);
    let mut again = Frames::new(usize::MAX);
    m.poll(101 * MS, &mut again);
    let again = see(0, false, &again.take_frames()[0]);
    assert_eq!((again.seq, again.len, again.flags), (first, 1000, ACK));
    let after = 10 + GET.len() as u32;
    assert_eq!(say(&mut m, 2000, &[], after), [data(2000), data(3000)]);
    // The last piece carries FIN, because this server closes after an answer.
    assert_eq!(
        say(&mut m, 4000, &[], after),
        [(4000, 200, FIN | PSH | ACK)]
    );
}

#[test]
fn duplicates_after_a_timeout_are_its_own() {
    let (mut s, _) = Sender::new(100_000, |_| ());
    assert_eq!(s.wait().1, [data(0)]);
    for _ in 0..4 {
        assert_eq!(s.ack(0), []);
    }
    assert_eq!(
        (s.m.counters().duplicate_acks, s.m.counters().fast_again),
        (4, 0)
    );
}

#[test]
fn a_second_timeout_remembers_all_that_was_sent() {
    let (mut s, _) = Sender::new(100_000, |_| ());
    assert_eq!(s.wait().1, [data(0)]);
    // One that was sent before, one that was not.
    assert_eq!(s.ack(9000), [data(9000), data(10_000)]);
    assert_eq!(s.wait().1, [data(9000)]);
    assert_eq!(s.ack(10_000), [data(10_000), data(11_000)]);
    assert_eq!(s.m.counters().data_again, 4);
    // Consecutive timeouts keep this state.
    s.wait();
    s.wait();
    assert_eq!(s.ack(12_000).len(), 2);
    assert_eq!(s.m.counters().drop_ack, 0);
}

#[test]
fn no_more_is_sent_again_than_was_sent() {
    let (mut s, _) = Sender::new(5500, |_| ());
    let narrow = |s: &mut Sender, at: u32| {
        let frame = segment(true, 501, s.first + at, ACK, 60, &[], &[]);
        s.m.receive(s.now, &frame, &mut s.out);
        s.pieces()
    };
    // Only the last piece is unacknowledged, then the window is narrow.
    let (mut t, flight) = Sender::new(20_000, |config| config.initial_window = 1);
    assert_eq!(flight, [data(0)]);
    assert_eq!(narrow(&mut t, 1000), [(1000, 60, ACK)]);
    for _ in 0..2 {
        assert_eq!(narrow(&mut t, 1000), []);
    }
    assert_eq!(narrow(&mut t, 1000), [(1000, 60, ACK)]);
    assert_eq!(narrow(&mut s, 5500), []);
}

#[test]
fn a_fin_that_went_with_data_goes_with_it_again() {
    let mut shape = server(false);
    shape.answer = ServerAnswer::Message(message(900));
    let mut m = Machine::new(server_config(shape, Transport::Tcp), ()).unwrap();
    let mut out = Frames::new(usize::MAX);
    let options = [2, 4, (MSS >> 8) as u8, MSS as u8];
    m.receive(
        0,
        &segment(false, 9, 0, SYN, 60_000, &options, &[]),
        &mut out,
    );
    let first = see(0, false, &out.take_frames()[0]).seq + 1;
    m.receive(
        0,
        &segment(false, 10, first, ACK, 60_000, &[], GET),
        &mut out,
    );
    let sent = out.take_frames();
    let after = 10 + GET.len() as u32;
    for _ in 0..3 {
        m.receive(
            0,
            &segment(false, after, first, ACK, 60_000, &[], &[]),
            &mut out,
        );
    }
    let again = out.take_frames();
    assert_eq!((sent.len(), again.len()), (1, 1));
    let (sent, again) = (see(0, false, &sent[0]), see(0, false, &again[0]));
    assert_eq!((again.seq, again.len), (sent.seq, 900));
    assert_eq!((sent.flags & FIN, again.flags & FIN), (FIN, FIN));
}
