//! Test suite for all drivers: checks the contract of the traits on two connected ports.
//!
//! The tests of a driver open two ports that are joined by a wire (a link in memory, a veth pair) and call [`check`].
//! The suite recognises its frames, so other traffic on the wire does no harm. But the wire must not lose or reorder
//! frames. The suite panics with a message at the first violation.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use crate::{QueuePair, RxFrame, RxQueue, Slot, TxCounters, TxQueue};

/// Limits of the suite for one wire.
#[derive(Clone, Debug)]
pub struct Options {
    /// Shortest frame to send, without FCS; at least [`Options::SHORTEST`].
    pub min_len: usize,
    /// Longest frame to send, without FCS, limited by the capacity of the port. For a real interface, its MTU + 14.
    pub max_len: usize,
    /// Frames that may be in flight without loss.
    pub window: usize,
    /// Frames to send in the long runs: several times the size of the driver's rings.
    pub frames: usize,
    /// Timeout of one `wait` of the receiver.
    pub wait: Duration,
    /// Number of consecutive timeouts after which a frame counts as lost.
    pub patience: usize,
    /// Destination address of the frames.
    pub destination: [u8; 6],
    /// Source address of the frames.
    pub source: [u8; 6],
}

impl Options {
    /// Shortest frame that the suite can recognise.
    pub const SHORTEST: usize = HEADER;
}

impl Default for Options {
    fn default() -> Self {
        Self {
            min_len: 60,
            max_len: 1514,
            window: 32,
            frames: 5000,
            wait: Duration::from_millis(1),
            patience: 2000,
            destination: [0x02, 0, 0, 0, 0, 0x02],
            source: [0x02, 0, 0, 0, 0, 0x01],
        }
    }
}

/// Runs the whole suite on two connected queue pairs, in both directions.
///
/// # Panics
/// If the contract of [`TxQueue`] or [`RxQueue`] is violated.
pub fn check<A: QueuePair, B: QueuePair>(a: &mut A, b: &mut B, options: &Options) {
    assert!(
        options.min_len >= Options::SHORTEST,
        "min_len is below {HEADER}"
    );
    assert!(options.window >= 8 && options.min_len <= options.max_len);
    check_one_way(a.tx(), b.rx(), options, 0);
    check_one_way(b.tx(), a.rx(), options, 1 << 24);
    both_ways(a, b, options);
}

/// Runs the suite from one sending half to one receiving half, for pairs that are open in one direction only. `first`
/// is the number of the first frame and must differ between calls on the same wire.
///
/// # Panics
/// See [`check`].
pub fn check_one_way<T: TxQueue, R: RxQueue>(
    tx: &mut T,
    rx: &mut R,
    options: &Options,
    first: u32,
) {
    let mut wire = Wire::new(tx, rx, options, first);
    wire.nothing_is_nothing();
    wire.every_length_arrives_whole();
    wire.order_is_kept_over_many_rings();
    wire.lending_again_starts_over();
    wire.fewer_may_be_submitted_than_lent();
    wire.receive_respects_its_limit();
    wire.withdrawn_frames_do_not_leave();
    wire.everything_may_be_lent();
    wire.slots_keep_their_content();
    wire.wait_tells_of_frames();
    wire.settle();
}

/// IEEE 802, local experimental EtherType 1.
const ETHERTYPE: [u8; 2] = [0x88, 0xb5];
const MARK: [u8; 8] = *b"wb-conf\x01";
/// Addresses, EtherType, mark, number, length.
const HEADER: usize = 14 + 8 + 4 + 4;

fn fill(bytes: &mut [u8], number: u32, options: &Options) {
    let len = bytes.len() as u32;
    bytes[..6].copy_from_slice(&options.destination);
    bytes[6..12].copy_from_slice(&options.source);
    bytes[12..14].copy_from_slice(&ETHERTYPE);
    bytes[14..22].copy_from_slice(&MARK);
    bytes[22..26].copy_from_slice(&number.to_be_bytes());
    bytes[26..30].copy_from_slice(&len.to_be_bytes());
    for (i, byte) in bytes[HEADER..].iter_mut().enumerate() {
        *byte = pattern(number, i);
    }
}

fn pattern(number: u32, i: usize) -> u8 {
    (number as usize)
        .wrapping_mul(31)
        .wrapping_add(i.wrapping_mul(7)) as u8
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// Checks a frame of the suite and returns its number; `None` for other frames.
fn number_of(bytes: &[u8]) -> Option<u32> {
    if !is_ours(bytes) {
        return None;
    }
    let (number, len) = (word(bytes, 22), word(bytes, 26) as usize);
    assert_eq!(bytes.len(), len, "frame {number}: length after the journey");
    for (i, byte) in bytes[HEADER..].iter().enumerate() {
        assert_eq!(
            *byte,
            pattern(number, i),
            "frame {number}: byte {} of {len}",
            HEADER + i
        );
    }
    Some(number)
}

struct Wire<'a, T, R> {
    tx: &'a mut T,
    rx: &'a mut R,
    options: &'a Options,
    max_len: usize,
    /// Number of the next frame written.
    next: u32,
    /// Numbers of the frames expected at the other end: submitted and not withdrawn.
    expected: VecDeque<u32>,
    before: TxCounters,
    submitted: u64,
    withdrawn: u64,
    refused: u64,
    shown: u64,
    shown_before: u64,
}

impl<'a, T: TxQueue, R: RxQueue> Wire<'a, T, R> {
    fn new(tx: &'a mut T, rx: &'a mut R, options: &'a Options, first: u32) -> Self {
        let max_len = options.max_len.min(tx.frame_capacity());
        assert!(
            max_len >= options.min_len,
            "frame_capacity() is {}, below the shortest frame",
            tx.frame_capacity()
        );
        assert!(tx.batch_hint() > 0, "batch_hint() is 0");
        let before = tx.counters();
        let shown_before = rx.counters().received_frames;
        Self {
            before,
            shown_before,
            tx,
            rx,
            options,
            max_len,
            next: first,
            expected: VecDeque::new(),
            submitted: 0,
            withdrawn: 0,
            refused: 0,
            shown: 0,
        }
    }

    /// Lends `n` frames, with retries.
    fn lend(&mut self, n: usize) {
        for _ in 0..self.options.patience {
            let lent = self.tx.lend(n);
            assert!(lent <= n, "lend({n}) lent {lent}");
            if lent == n {
                return;
            }
            self.flush();
            self.receive(n);
            self.rest();
        }
        panic!("lend({n}) does not lend {n} frames though all were flushed");
    }

    /// Writes the `i`-th lent frame and returns its number.
    fn write(&mut self, i: usize, len: usize) -> u32 {
        let number = self.next;
        self.next += 1;
        let capacity = self.tx.frame_capacity();
        let slot = self.tx.slot(i);
        assert!(
            slot.bytes.len() >= capacity,
            "slot {i} has {} bytes, frame_capacity() is {capacity}",
            slot.bytes.len()
        );
        fill(&mut slot.bytes[..len], number, self.options);
        *slot.len = len as u32;
        *slot.cookie = 0;
        number
    }

    fn submit(&mut self, numbers: &[u32]) {
        self.tx.submit(numbers.len());
        self.submitted += numbers.len() as u64;
        self.expected.extend(numbers);
        self.balance();
    }

    fn flush(&mut self) {
        if let Err(error) = self.tx.flush() {
            panic!("flush: {error}");
        }
        let mut handed = 0;
        self.tx.take_refused(|_| handed += 1);
        self.refused += handed;
        assert_eq!(
            handed, 0,
            "the wire must lose nothing, but {handed} frames were refused"
        );
        self.balance();
    }

    /// Checks that `submitted = sent + refused + withdrawn + in_flight`.
    fn balance(&self) {
        let now = self.tx.counters();
        let since = |field: fn(&TxCounters) -> u64| field(&now) - field(&self.before);
        let submitted = since(|c| c.submitted_frames);
        let sent = since(|c| c.sent_frames);
        let refused = since(|c| c.refused_frames);
        let withdrawn = since(|c| c.withdrawn_frames);
        let in_flight = self.tx.in_flight() as u64;
        assert_eq!(submitted, self.submitted, "submitted_frames");
        assert_eq!(refused, self.refused, "refused_frames");
        assert_eq!(withdrawn, self.withdrawn, "withdrawn_frames");
        assert_eq!(
            submitted,
            sent + refused + withdrawn + in_flight,
            "submitted = sent {sent} + refused {refused} + withdrawn {withdrawn} + in flight {in_flight}"
        );
    }

    /// Receives once and checks that the suite's frames are the expected ones, and that they match the frames shown by
    /// a look-ahead. Returns how many of them arrived.
    fn receive(&mut self, max: usize) -> usize {
        let (mut shown, mut ours) = (0, 0);
        let (mut seen, mut ahead) = (0, VecDeque::new());
        self.rx.look_ahead(max, |bytes| {
            seen += 1;
            ahead.extend(number_of(bytes));
        });
        assert!(seen <= max, "look_ahead({max}) showed {seen} frames");
        // Frames are in order only within each lane.
        let in_order = self.rx.lanes() == 1;
        let expected = &mut self.expected;
        let result = self.rx.receive(max, |frame| {
            shown += 1;
            let Some(number) = recognise(frame) else {
                return;
            };
            if in_order && let Some(first) = ahead.pop_front() {
                assert_eq!(number, first, "another frame than the look ahead showed");
            }
            match expected.pop_front() {
                Some(first) => assert_eq!(number, first, "frame out of order"),
                None => panic!("frame {number} came, but none is on the way"),
            }
            ours += 1;
        });
        let told = result.unwrap_or_else(|error| panic!("receive: {error}"));
        assert_eq!(
            told, shown,
            "receive({max}) returned {told} but showed {shown} frames"
        );
        assert!(shown <= max, "receive({max}) showed {shown} frames");
        assert!(
            !in_order || ahead.is_empty(),
            "a look ahead showed more than came"
        );
        self.shown += shown as u64;
        ours
    }

    fn rest(&mut self) {
        if let Err(error) = self.rx.wait(self.options.wait) {
            panic!("wait: {error}");
        }
    }

    /// Receives until at most `left` frames are in flight.
    fn arrive(&mut self, left: usize) {
        let mut idle = 0;
        while self.expected.len() > left {
            self.flush();
            if self.receive(64) > 0 {
                idle = 0;
                continue;
            }
            idle += 1;
            assert!(
                idle < self.options.patience,
                "{} frames did not arrive, the first is {}; {} in flight",
                self.expected.len(),
                self.expected[0],
                self.tx.in_flight()
            );
            self.rest();
        }
    }

    /// Waits until all frames have arrived and are known to be sent.
    fn settle(&mut self) {
        self.arrive(0);
        for _ in 0..self.options.patience {
            self.flush();
            if self.tx.in_flight() == 0 {
                let counters = self.rx.counters().received_frames - self.shown_before;
                assert_eq!(counters, self.shown, "received_frames");
                return;
            }
            self.rest();
        }
        panic!(
            "{} frames stay in flight though they have arrived",
            self.tx.in_flight()
        );
    }

    fn send(&mut self, lens: &[usize]) {
        self.lend(lens.len());
        let mut numbers = Vec::with_capacity(lens.len());
        for (i, len) in lens.iter().enumerate() {
            numbers.push(self.write(i, *len));
        }
        self.submit(&numbers);
        self.flush();
    }

    fn nothing_is_nothing(&mut self) {
        for _ in 0..3 {
            assert_eq!(self.tx.lend(0), 0, "lend(0)");
            self.tx.submit(0);
            self.flush();
            assert_eq!(self.tx.in_flight(), 0, "in flight after submit(0)");
            self.tx
                .withdraw(|_| panic!("withdraw hands out a frame that was never submitted"));
            self.balance();
            assert_eq!(self.receive(0), 0);
            assert_eq!(self.receive(64), 0);
        }
        if let Err(error) = self.rx.wait(Duration::ZERO) {
            panic!("wait(0): {error}");
        }
    }

    fn every_length_arrives_whole(&mut self) {
        let octets_before = self.tx.counters().sent_octets;
        let mut octets = 0;
        let lens: Vec<usize> = (self.options.min_len..=self.max_len)
            .filter(|len| {
                // All short lengths, all lengths near a power of two, the last lengths, and a sample of the rest.
                let near = len.next_power_of_two() - len <= 2 || len - (1 << len.ilog2()) <= 2;
                *len < 132 || near || *len + 4 > self.max_len || len % 13 == 0
            })
            .collect();
        for some in lens.chunks(8) {
            self.send(some);
            octets += some.iter().sum::<usize>() as u64;
            self.arrive(0);
        }
        self.settle();
        assert_eq!(
            self.tx.counters().sent_octets - octets_before,
            octets,
            "sent_octets"
        );
    }

    fn order_is_kept_over_many_rings(&mut self) {
        let mut sent = 0;
        while sent < self.options.frames {
            let n = 1 + (sent * 7) % self.options.window.min(23);
            let lens: Vec<usize> = (sent..sent + n)
                .map(|i| {
                    let spread = (self.max_len - self.options.min_len).min(200);
                    self.options.min_len + (i * 37) % (spread + 1)
                })
                .collect();
            self.send(&lens);
            sent += n;
            self.arrive(self.options.window - 23.min(self.options.window));
        }
        self.settle();
    }

    fn lending_again_starts_over(&mut self) {
        let len = self.options.min_len;
        self.lend(5);
        for i in 0..5 {
            self.write(i, len);
        }
        self.lend(5);
        let numbers: Vec<u32> = (0..2).map(|i| self.write(i, len)).collect();
        self.lend(3);
        for (i, number) in numbers.iter().enumerate() {
            let slot = self.tx.slot(i);
            assert_eq!(*slot.len as usize, len, "the same frames are lent again");
            assert_eq!(number_of(&slot.bytes[..len]), Some(*number), "lent again");
        }
        self.submit(&numbers);
        self.settle();
    }

    fn fewer_may_be_submitted_than_lent(&mut self) {
        for submitted in [0, 1, 3, 7] {
            self.lend(8);
            let numbers: Vec<u32> = (0..8)
                .map(|i| self.write(i, self.options.min_len))
                .collect();
            self.submit(&numbers[..submitted]);
        }
        // Also covers two submissions with one flush.
        self.settle();
    }

    fn receive_respects_its_limit(&mut self) {
        let lens = [self.options.min_len; 8];
        self.send(&lens);
        self.rest();
        assert_eq!(self.receive(0), 0);
        let mut idle = 0;
        while !self.expected.is_empty() {
            if self.receive(3) == 0 {
                idle += 1;
                assert!(
                    idle < self.options.patience,
                    "frames do not arrive by receive(3)"
                );
                self.flush();
                self.rest();
            }
        }
        self.settle();
    }

    fn withdrawn_frames_do_not_leave(&mut self) {
        let len = self.options.min_len;
        self.lend(4);
        let numbers: Vec<u32> = (0..4).map(|i| self.write(i, len)).collect();
        self.submit(&numbers);
        assert_eq!(
            self.tx.in_flight(),
            4,
            "in flight after submit(4) without flush"
        );
        let mut back = Vec::new();
        self.tx.withdraw(|bytes| match number_of(bytes) {
            Some(number) => back.push(number),
            None => panic!("withdraw hands out a frame that was never submitted"),
        });
        self.withdrawn += back.len() as u64;
        self.balance();
        let kept = numbers.len() - back.len();
        assert_eq!(
            back,
            numbers[kept..],
            "withdrawn are the last ones, in order"
        );
        self.expected.truncate(self.expected.len() - back.len());
        self.settle();
        self.send(&[len; 3]);
        self.settle();
    }

    /// A sender may request more frames than exist, gets all of them, and gets them again after use.
    fn everything_may_be_lent(&mut self) {
        for _ in 0..2 {
            let lent = self.tx.lend(usize::MAX);
            assert!(
                lent > 0,
                "lend(usize::MAX) lends nothing though nothing is in flight"
            );
            let last = self.write(lent - 1, self.options.min_len);
            let slot = self.tx.slot(lent - 1);
            assert_eq!(number_of(&slot.bytes[..*slot.len as usize]), Some(last));
            self.submit(&[]);
        }
        self.settle();
    }

    /// A cookie other than 0 guarantees the content.
    fn slots_keep_their_content(&mut self) {
        let len = self.options.min_len;
        let mut known: HashMap<u64, u32> = HashMap::new();
        let mut sent = 0;
        while sent < self.options.frames {
            let n = self.options.window.min(16);
            self.lend(n);
            let mut numbers = Vec::with_capacity(n);
            for i in 0..n {
                let Slot {
                    bytes,
                    len: slot_len,
                    cookie,
                } = self.tx.slot(i);
                if *cookie != 0 {
                    let found = number_of(&bytes[..len]);
                    let wrote = known.get(cookie).copied();
                    assert!(
                        wrote.is_some(),
                        "a slot has the cookie {cookie}, which nobody set"
                    );
                    assert_eq!(found, wrote, "the content of a slot with cookie {cookie}");
                    // Patch the frame, as a sender with a template does.
                    known.remove(cookie);
                }
                let number = self.next;
                self.next += 1;
                fill(&mut bytes[..len], number, self.options);
                *slot_len = len as u32;
                *cookie = 1000 + u64::from(number);
                known.insert(*cookie, number);
                numbers.push(number);
            }
            self.submit(&numbers);
            sent += n;
            self.arrive(self.options.window - n);
        }
        self.settle();
    }

    fn wait_tells_of_frames(&mut self) {
        self.send(&[self.options.min_len]);
        let told = (0..self.options.patience).any(|_| {
            self.flush();
            match self.rx.wait(self.options.wait) {
                Err(error) => panic!("wait: {error}"),
                Ok(told) => told,
            }
        });
        assert!(told, "wait() does not tell of a waiting frame");
        self.settle();
    }
}

fn recognise(frame: &RxFrame<'_>) -> Option<u32> {
    if frame.vlan.is_some() || (frame.original_len as usize) != frame.bytes.len() {
        assert!(
            !is_ours(frame.bytes),
            "a frame of ours was cut or has a tag that it was not sent with"
        );
        return None;
    }
    number_of(frame.bytes)
}

fn is_ours(bytes: &[u8]) -> bool {
    bytes.len() >= HEADER && bytes[12..14] == ETHERTYPE && bytes[14..22] == MARK
}

/// One worker answers each frame in the callback of `receive`, with a frame lent before.
fn both_ways<A: QueuePair, B: QueuePair>(a: &mut A, b: &mut B, options: &Options) {
    const FRAMES: u32 = 100;
    let first = 2 << 24;
    let mut answered = 0;
    let mut idle = 0;
    let mut sent = 0;
    while answered < FRAMES {
        if sent < FRAMES && sent - answered < 4 && a.tx().lend(1) == 1 {
            let slot = a.tx().slot(0);
            fill(&mut slot.bytes[..options.min_len], first + sent, options);
            *slot.len = options.min_len as u32;
            *slot.cookie = 0;
            a.tx().submit(1);
            sent += 1;
        }
        expect("flush", a.tx().flush());

        let (tx, rx) = b.split();
        let lent = tx.lend(4);
        let mut used = 0;
        expect(
            "receive",
            rx.receive(lent, |frame| {
                let Some(number) = recognise(frame) else {
                    return;
                };
                let slot = tx.slot(used);
                fill(&mut slot.bytes[..options.min_len], number + FRAMES, options);
                *slot.len = options.min_len as u32;
                *slot.cookie = 0;
                used += 1;
            }),
        );
        tx.submit(used);
        expect("flush", tx.flush());

        let before = answered;
        expect(
            "receive",
            a.rx().receive(64, |frame| {
                if let Some(number) = recognise(frame) {
                    assert_eq!(number, first + FRAMES + answered, "answers in order");
                    answered += 1;
                }
            }),
        );
        idle = if answered > before { 0 } else { idle + 1 };
        assert!(
            idle < options.patience,
            "{} of {sent} frames were not answered",
            sent - answered
        );
        if idle > 2 {
            expect("wait", a.rx().wait(options.wait));
        }
    }
}

fn expect<V>(what: &str, result: Result<V, crate::PortError>) {
    if let Err(error) = result {
        panic!("{what}: {error}");
    }
}
