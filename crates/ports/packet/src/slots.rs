//! States of a frame to send: lent, submitted, and then sent, refused or withdrawn.
//!
//! Buffers form a ring, oldest submitted frame first. The socket is an argument of [`Slots::flush`].

use std::io;

use rustix::io::Errno;
use wb_port::{Slot, TxCounters};

use crate::arena::Arena;

/// Result of a flush without an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flushed {
    /// No frames are left to offer.
    All,
    /// The device took some frames and is now full.
    Part,
    /// The device took none.
    Stuck,
}

pub(crate) struct Slots {
    arena: Arena,
    lens: Box<[u32]>,
    cookies: Box<[u64]>,
    /// Position of the oldest frame in flight.
    head: usize,
    in_flight: usize,
    lent: usize,
    refused: RefusedCopies,
    refuse_dropped: bool,
    counters: TxCounters,
}

/// Copies of refused frames, kept until the caller collects them.
#[derive(Default)]
struct RefusedCopies {
    bytes: Vec<u8>,
    lens: Vec<usize>,
}

impl Slots {
    pub(crate) fn new(count: usize, capacity: usize) -> io::Result<Self> {
        let arena = Arena::new(count, capacity)?;
        let count = arena.count();
        Ok(Self {
            arena,
            lens: vec![0; count].into(),
            cookies: vec![0; count].into(),
            head: 0,
            in_flight: 0,
            lent: 0,
            refused: RefusedCopies::default(),
            refuse_dropped: false,
            counters: TxCounters::default(),
        })
    }

    /// Makes frames without room (`ENOBUFS`) refused instead of kept.
    pub(crate) fn refuse_dropped(mut self) -> Self {
        self.refuse_dropped = true;
        self
    }

    /// Maximum number of frames per system call. Within a batch the kernel keeps an error for the next call, and the
    /// error would count for the first frame of that call. So if each dropped frame counts, each frame has a call.
    pub(crate) fn most_per_call(&self) -> usize {
        match self.refuse_dropped {
            true => 1,
            false => usize::MAX,
        }
    }

    pub(crate) fn capacity(&self) -> usize {
        self.arena.capacity()
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight
    }

    pub(crate) fn counters(&self) -> TxCounters {
        self.counters
    }

    pub(crate) fn lend(&mut self, n: usize) -> usize {
        // Restart at 0, so that a sender with no frames in flight reuses the few slots that are in the cache. Not while
        // frames are lent, because these must stay the same.
        if self.in_flight == 0 && self.lent == 0 {
            self.head = 0;
        }
        self.lent = n.min(self.arena.count() - self.in_flight);
        self.lent
    }

    pub(crate) fn slot(&mut self, i: usize) -> Slot<'_> {
        assert!(i < self.lent, "slot {i} of {} lent", self.lent);
        let at = self.position(self.in_flight + i);
        Slot {
            bytes: self.arena.buffer(at),
            len: &mut self.lens[at],
            cookie: &mut self.cookies[at],
        }
    }

    pub(crate) fn submit(&mut self, n: usize) {
        assert!(n <= self.lent, "{n} frames submitted of {} lent", self.lent);
        for i in 0..n {
            let at = self.position(self.in_flight + i);
            self.arena.set_len(at, self.lens[at] as usize);
        }
        self.in_flight += n;
        self.lent = 0;
        self.counters.submitted_frames += n as u64;
    }

    /// Offers the frames in flight to `offer`. Its arguments are the first frame and the number of consecutive frames
    /// in memory; it returns the number of frames it took.
    ///
    /// # Errors
    /// All errors that concern neither a single frame nor a full device.
    pub(crate) fn flush(
        &mut self,
        mut offer: impl FnMut(&mut Arena, usize, usize) -> Result<usize, Errno>,
    ) -> Result<Flushed, Errno> {
        let mut flushed = Flushed::Stuck;
        while self.in_flight > 0 && self.refused.lens.len() < self.arena.count() {
            let n = self.in_flight.min(self.arena.count() - self.head);
            self.counters.kicks += 1;
            match offer(&mut self.arena, self.head, n) {
                // The cause of a short count is lost; the next call returns it again.
                Ok(took @ 1..) => {
                    self.sent(took.min(n));
                    flushed = Flushed::Part;
                }
                // EINVAL: shorter than an Ethernet header.
                Err(Errno::MSGSIZE | Errno::INVAL) => self.refuse_first(),
                Err(Errno::NOBUFS) if self.refuse_dropped => self.refuse_first(),
                Err(Errno::INTR) => {}
                Ok(0) | Err(Errno::AGAIN | Errno::NOBUFS | Errno::NOMEM) => {
                    self.counters.full_events += 1;
                    return Ok(flushed);
                }
                Err(other) => return Err(other),
            }
        }
        Ok(Flushed::All)
    }

    pub(crate) fn take_refused(&mut self, mut each: impl FnMut(&[u8])) {
        let mut rest = &self.refused.bytes[..];
        for &len in &self.refused.lens {
            let (frame, after) = rest.split_at(len);
            each(frame);
            rest = after;
        }
        self.refused.bytes.clear();
        self.refused.lens.clear();
    }

    pub(crate) fn withdraw(&mut self, mut each: impl FnMut(&[u8])) {
        while self.in_flight > 0 {
            each(self.arena.frame(self.head));
            self.advance(1);
            self.counters.withdrawn_frames += 1;
        }
    }

    fn sent(&mut self, n: usize) {
        self.counters.sent_frames += n as u64;
        self.counters.sent_octets += self.arena.octets(self.head, n);
        self.advance(n);
    }

    fn refuse_first(&mut self) {
        let frame = self.arena.frame(self.head);
        self.refused.bytes.extend_from_slice(frame);
        self.refused.lens.push(frame.len());
        self.counters.refused_frames += 1;
        self.advance(1);
    }

    fn advance(&mut self, n: usize) {
        self.head = self.position(n);
        self.in_flight -= n;
    }

    /// Index of the slot `n` places after the oldest frame in flight; `n` is at most the number of slots.
    fn position(&self, n: usize) -> usize {
        let at = self.head + n;
        if at >= self.arena.count() {
            at - self.arena.count()
        } else {
            at
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn append(slots: &mut Slots, values: &[u8]) -> usize {
        let n = slots.lend(values.len());
        for (i, value) in values[..n].iter().enumerate() {
            let slot = slots.slot(i);
            slot.bytes[..20].fill(*value);
            *slot.len = 20;
            *slot.cookie = u64::from(*value);
        }
        slots.submit(n);
        n
    }

    fn frames(arena: &mut Arena, first: usize, n: usize) -> Vec<u8> {
        (first..first + n).map(|i| arena.frame(i)[0]).collect()
    }

    #[test]
    fn a_short_count_keeps_the_rest_in_order() {
        let mut slots = Slots::new(4, 64).unwrap();
        let mut seen = Vec::new();
        assert_eq!(append(&mut slots, &[1, 2, 3, 4, 5]), 4);
        assert_eq!(slots.lend(1), 0);
        let mut answers = [Ok(2), Err(Errno::NOBUFS)].into_iter();
        let flushed = slots.flush(|arena, first, n| {
            let answer = answers.next().unwrap();
            seen.extend(frames(arena, first, n.min(answer.unwrap_or(0))));
            answer
        });
        assert_eq!(flushed, Ok(Flushed::Part));
        assert_eq!((slots.in_flight(), slots.counters().full_events), (2, 1));
        assert_eq!(append(&mut slots, &[6, 7]), 2);
        // The ring wraps, so the four frames take two calls.
        let flushed = slots.flush(|arena, first, n| {
            seen.extend(frames(arena, first, n));
            Ok(n)
        });
        assert_eq!(flushed, Ok(Flushed::All));
        assert_eq!(seen, [1, 2, 3, 4, 6, 7]);
        assert_eq!(slots.counters().kicks, 4);
        assert_eq!(slots.counters().sent_octets, 6 * 20);
    }

    #[test]
    fn content_and_cookie_stay_and_lent_frames_do_not_move() {
        let mut slots = Slots::new(4, 64).unwrap();
        append(&mut slots, &[1, 2]);
        assert_eq!(slots.lend(1), 1);
        *slots.slot(0).cookie = 99;
        slots.flush(|_, _, n| Ok(n)).unwrap();
        assert_eq!(slots.lend(1), 1);
        assert_eq!(*slots.slot(0).cookie, 99);
        slots.submit(0);
        assert_eq!(slots.lend(2), 2);
        for (i, value) in [1u8, 2].into_iter().enumerate() {
            let slot = slots.slot(i);
            assert_eq!(
                (slot.bytes[19], *slot.len, *slot.cookie),
                (value, 20, value.into())
            );
        }
    }

    #[test]
    fn a_dropped_frame_is_refused_where_that_is_asked_for() {
        let mut slots = Slots::new(4, 64).unwrap().refuse_dropped();
        append(&mut slots, &[1, 2, 3, 4]);
        let mut answers = [Ok(1), Err(Errno::NOBUFS), Ok(1), Err(Errno::AGAIN)].into_iter();
        let flushed = slots.flush(|_, _, _| answers.next().unwrap());
        assert_eq!(flushed, Ok(Flushed::Part));
        let mut seen = Vec::new();
        slots.take_refused(|frame| seen.push(frame[0]));
        assert_eq!((seen, slots.in_flight()), (vec![2], 1));
        assert_eq!(slots.counters().refused_frames, 1);
        assert_eq!(slots.counters().full_events, 1);
    }

    #[test]
    fn a_sender_that_takes_back_no_refused_frames_is_stopped() {
        let mut slots = Slots::new(2, 64).unwrap();
        for round in 0..2 {
            assert_eq!(append(&mut slots, &[round, round]), 2);
            slots.flush(|_, _, _| Err(Errno::MSGSIZE)).unwrap();
        }
        assert_eq!((slots.counters().refused_frames, slots.in_flight()), (2, 2));
        let mut seen = Vec::new();
        slots.take_refused(|frame| seen.push(frame[0]));
        assert_eq!(seen, [0, 0]);
        slots.flush(|_, _, n| Ok(n)).unwrap();
        assert_eq!(slots.counters().sent_frames, 2);
    }

    #[test]
    #[should_panic(expected = "frame of 65 bytes in a slot of 64")]
    fn a_frame_longer_than_its_slot_is_not_sent() {
        let mut slots = Slots::new(2, 64).unwrap();
        slots.lend(1);
        *slots.slot(0).len = 65;
        slots.submit(1);
    }

    #[derive(Clone, Debug)]
    enum Step {
        Put(usize),
        Flush(Vec<Result<usize, Errno>>),
        Withdraw,
        TakeRefused,
    }

    fn step() -> impl Strategy<Value = Step> {
        let answer = prop_oneof![
            4 => (1usize..9).prop_map(Ok),
            1 => Just(Err(Errno::MSGSIZE)),
            1 => Just(Err(Errno::INTR)),
            1 => Just(Err(Errno::NOBUFS)),
            1 => Just(Err(Errno::NETDOWN)),
        ];
        prop_oneof![
            4 => (0usize..9).prop_map(Step::Put),
            4 => prop::collection::vec(answer, 0..6).prop_map(Step::Flush),
            1 => Just(Step::Withdraw),
            1 => Just(Step::TakeRefused),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]

        /// Every frame ends in exactly one state, and each state gets its frames in order.
        #[test]
        fn every_frame_is_accounted_for(steps in prop::collection::vec(step(), 1..60)) {
            let mut slots = Slots::new(7, 64).unwrap();
            let mut next = 0u64;
            let (mut sent, mut refused, mut withdrawn) = (vec![], vec![], vec![]);
            let number = |frame: &[u8]| u64::from_be_bytes(frame[..8].try_into().unwrap());
            for step in steps {
                match step {
                    Step::Put(n) => {
                        let n = slots.lend(n);
                        for i in 0..n {
                            let slot = slots.slot(i);
                            slot.bytes[..8].copy_from_slice(&next.to_be_bytes());
                            *slot.len = 8;
                            next += 1;
                        }
                        slots.submit(n);
                    }
                    Step::Flush(answers) => {
                        let mut answers = answers.into_iter();
                        let _ = slots.flush(|arena, first, n| {
                            let took = answers.next().unwrap_or(Err(Errno::AGAIN))?.min(n);
                            sent.extend((first..first + took).map(|i| number(arena.frame(i))));
                            Ok(took)
                        });
                    }
                    Step::Withdraw => slots.withdraw(|frame| withdrawn.push(number(frame))),
                    Step::TakeRefused => slots.take_refused(|frame| refused.push(number(frame))),
                }
                let c = slots.counters();
                prop_assert_eq!(c.submitted_frames, next);
                prop_assert_eq!(
                    c.submitted_frames,
                    c.sent_frames + c.refused_frames + c.withdrawn_frames + slots.in_flight() as u64
                );
                prop_assert_eq!(c.sent_octets, 8 * c.sent_frames);
            }
            slots.withdraw(|frame| withdrawn.push(number(frame)));
            slots.take_refused(|frame| refused.push(number(frame)));
            for place in [&sent, &refused, &withdrawn] {
                prop_assert!(place.is_sorted());
            }
            let mut all = [sent, refused, withdrawn].concat();
            all.sort_unstable();
            prop_assert_eq!(all, (0..next).collect::<Vec<_>>());
        }
    }
}
