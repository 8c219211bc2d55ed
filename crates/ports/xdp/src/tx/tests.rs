//! Tests the sender against a model of the kernel.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap, VecDeque};

use proptest::prelude::*;

use super::*;
use crate::options::tests::interface;
use crate::ring::testing::pair;
use crate::umem;

const FRAMES: u32 = 16;

#[derive(Clone, Copy, Debug)]
enum Verdict {
    Sent,
    Dropped,
    Busy,
}

/// Model of the kernel's `sendto` in copy mode, with private copies of both indices. It reads the producer index only
/// when its copy is used up. It publishes the consumer index only then and, depending on the kernel, after a call that
/// has sent or taken a frame.
struct Model {
    shows_what_it_dropped: bool,
    skips_and_goes_on: bool,
    ring: RingConsumer<Descriptor>,
    completions: RingProducer<u64>,
    budget: u32,
    cached: u32,
    unshown: u32,
    verdicts: VecDeque<Verdict>,
    /// Number in the frame at an address.
    numbers: HashMap<u64, u64>,
    sent: Vec<u64>,
    dropped: Vec<u64>,
}

impl Kernel for RefCell<Model> {
    fn kick(&self) -> Result<(), Errno> {
        self.borrow_mut().kick()
    }
}

impl Model {
    fn kick(&mut self) -> Result<(), Errno> {
        let ends = |model: &Self| {
            model.sent.len()
                + if model.shows_what_it_dropped {
                    model.dropped.len()
                } else {
                    0
                }
        };
        let before = ends(self);
        let result = self.work();
        if ends(self) > before {
            self.show();
        }
        result
    }

    fn work(&mut self) -> Result<(), Errno> {
        let mut left = self.budget;
        loop {
            if self.cached == 0 {
                self.show();
                self.cached = self.ring.available(u32::MAX);
            }
            if self.cached == 0 {
                return Ok(());
            }
            let descriptor = self.ring.peek(self.unshown).unwrap();
            if descriptor.options != 0 {
                self.take();
                if self.skips_and_goes_on {
                    continue;
                }
                return Ok(());
            }
            if left == 0 {
                return Err(Errno::AGAIN);
            }
            left -= 1;
            let verdict = self.verdicts.pop_front().unwrap_or(Verdict::Sent);
            if matches!(verdict, Verdict::Busy) {
                return Err(Errno::AGAIN);
            }
            self.take();
            self.completions.free_entries(1);
            assert!(self.completions.push(descriptor.address));
            self.completions.publish();
            let number = self.numbers[&descriptor.address];
            if matches!(verdict, Verdict::Dropped) {
                self.dropped.push(number);
                return Err(Errno::BUSY);
            }
            self.sent.push(number);
        }
    }

    fn take(&mut self) {
        self.cached -= 1;
        self.unshown += 1;
    }

    fn show(&mut self) {
        self.ring.release(self.unshown);
        self.unshown = 0;
    }
}

fn sender(verdicts: Vec<Verdict>, budget: u32, start: u32) -> OpenXdpTx<RefCell<Model>> {
    let (ring, kernel_ring) = pair(FRAMES, start);
    let (kernel_completions, completions) = pair(FRAMES, start);
    let (area, _) = umem::map(2048, FRAMES, 0).unwrap();
    let model = Model {
        shows_what_it_dropped: false,
        skips_and_goes_on: false,
        ring: kernel_ring,
        completions: kernel_completions,
        budget,
        cached: 0,
        unshown: 0,
        verdicts: verdicts.into(),
        numbers: HashMap::new(),
        sent: Vec::new(),
        dropped: Vec::new(),
    };
    let link = CarrierReader::new(&interface()).unwrap();
    OpenXdpTx::new(
        "test".into(),
        model.into(),
        link,
        (ring, completions),
        area,
        false,
    )
}

fn submit(sender: &mut OpenXdpTx<RefCell<Model>>, n: usize, next: &mut u64) {
    let n = sender.lend(n);
    let base = sender.area.whole().0;
    for i in 0..n {
        let slot = sender.slot(i);
        slot.bytes[..8].copy_from_slice(&next.to_ne_bytes());
        *slot.len = 60;
        let address = slot.bytes.as_ptr() as u64 - base;
        sender.kernel.borrow_mut().numbers.insert(address, *next);
        *next += 1;
    }
    sender.submit(n);
}

fn number(bytes: &[u8]) -> u64 {
    assert_eq!(bytes.len(), 60);
    u64::from_ne_bytes(*bytes.first_chunk().unwrap())
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Submit(usize),
    Flush,
    Withdraw,
    TakeRefused,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0usize..20).prop_map(Step::Submit),
        4 => Just(Step::Flush),
        1 => Just(Step::Withdraw),
        2 => Just(Step::TakeRefused),
    ];
    proptest::collection::vec(step, 0..60)
}

fn verdicts() -> impl Strategy<Value = Vec<Verdict>> {
    let verdict = prop_oneof![
        6 => Just(Verdict::Sent),
        2 => Just(Verdict::Dropped),
        2 => Just(Verdict::Busy),
    ];
    proptest::collection::vec(verdict, 0..200)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Each frame ends in exactly one way, and is counted correctly, whatever the device does.
    #[test]
    fn every_frame_ends_once(
        steps in steps(),
        verdicts in verdicts(),
        budget in 1u32..12,
        start in prop_oneof![Just(0), Just(u32::MAX - 9)],
        shows_what_it_dropped: bool,
        skips_and_goes_on: bool,
    ) {
        let mut sender = sender(verdicts, budget, start);
        sender.kernel.get_mut().shows_what_it_dropped = shows_what_it_dropped;
        sender.kernel.get_mut().skips_and_goes_on = skips_and_goes_on;
        let mut next = 0;
        let mut refused = Vec::new();
        let mut withdrawn = Vec::new();
        for step in steps {
            match step {
                Step::Submit(n) => submit(&mut sender, n, &mut next),
                Step::Flush => sender.flush_copy().unwrap(),
                Step::Withdraw => sender.withdraw(|bytes| withdrawn.push(number(bytes))),
                Step::TakeRefused => sender.take_refused(|bytes| refused.push(number(bytes))),
            }
            let counters = sender.counters;
            prop_assert_eq!(
                counters.submitted_frames,
                counters.sent_frames
                    + counters.refused_frames
                    + counters.withdrawn_frames
                    + sender.in_flight as u64
            );
            let model = sender.kernel.borrow();
            prop_assert_eq!(counters.sent_frames, model.sent.len() as u64);
            prop_assert_eq!(counters.sent_octets, 60 * model.sent.len() as u64);
            prop_assert_eq!(counters.refused_frames, model.dropped.len() as u64);
            prop_assert_eq!(counters.withdrawn_frames, withdrawn.len() as u64);
        }
        // The remaining frames are sent once the device accepts all frames.
        sender.kernel.borrow_mut().verdicts.clear();
        sender.flush_copy().unwrap();
        sender.take_refused(|bytes| refused.push(number(bytes)));
        prop_assert_eq!(sender.in_flight, 0);
        sender.lend(FRAMES as usize);
        prop_assert_eq!(sender.free.len() + sender.lent.len(), FRAMES as usize);
        let model = sender.kernel.borrow();
        // Uncollected refused frames may have been lost, but are never mixed up with others.
        prop_assert!(refused.iter().all(|number| model.dropped.contains(number)));
        let mut ends = BTreeSet::new();
        for &number in model.sent.iter().chain(&model.dropped).chain(&withdrawn) {
            prop_assert!(ends.insert(number), "frame {} ended twice", number);
        }
        prop_assert_eq!(ends.len() as u64, next);
        prop_assert!(model.sent.is_sorted());
    }
}

#[test]
fn lending_again_starts_over_with_the_same_frames() {
    let mut sender = sender(vec![], 32, 0);
    let mut next = 0;
    submit(&mut sender, 5, &mut next);
    sender.flush_copy().unwrap();
    let places = |sender: &mut OpenXdpTx<_>, n: usize| -> Vec<_> {
        assert_eq!(sender.lend(n), n);
        (0..n).map(|i| sender.slot(i).bytes.as_ptr()).collect()
    };
    let first = places(&mut sender, 8);
    let second = places(&mut sender, 12);
    assert_eq!(first[..], second[..8]);
    let third = places(&mut sender, 3);
    assert_eq!(third[..], first[..3]);
}

#[test]
fn frames_keep_content_and_cookie() {
    let mut sender = sender(vec![], 32, 0);
    let mut known = 0;
    for round in 0..50u64 {
        let n = sender.lend(6);
        assert_eq!(n, 6);
        for i in 0..n {
            let slot = sender.slot(i);
            if *slot.cookie == 0 {
                *slot.cookie = 1000 + round * 10 + i as u64;
                slot.bytes[100..108].copy_from_slice(&slot.cookie.to_ne_bytes());
            } else {
                assert_eq!(slot.bytes[100..108], slot.cookie.to_ne_bytes());
                known += 1;
            }
            *slot.len = 60;
            let address = slot.bytes.as_ptr() as u64 - sender.area.whole().0;
            sender.kernel.borrow_mut().numbers.insert(address, 0);
        }
        sender.submit(n);
        sender.flush_copy().unwrap();
    }
    assert!(known >= 50 * 6 - FRAMES as usize);
}

#[test]
fn a_sender_that_never_asks_for_refused_frames_goes_on() {
    let mut sender = sender(vec![Verdict::Dropped; 100], 32, 0);
    let mut next = 0;
    while next < 100 {
        let before = next;
        submit(&mut sender, 5, &mut next);
        assert!(next > before, "nothing was lent");
        sender.flush_copy().unwrap();
    }
    assert_eq!(sender.counters.refused_frames, 100);
}

#[test]
#[should_panic(expected = "frame of 0 bytes")]
fn a_frame_without_a_length_is_a_fault_of_the_caller() {
    let mut sender = sender(vec![], 32, 0);
    sender.lend(1);
    sender.submit(1);
}
