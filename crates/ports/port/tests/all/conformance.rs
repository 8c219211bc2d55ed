//! The conformance suite finds contract violations: each test breaks a correct port in one way.

use std::time::Duration;

use wb_port::clock::VirtualClock;
use wb_port::conformance::{Options, check_one_way};
use wb_port::memory::{self, LinkOptions, MemoryRx, MemoryTx};
use wb_port::{PortError, RxCounters, RxFrame, RxQueue, Slot, TxCounters, TxQueue};

#[derive(Clone, Copy, PartialEq)]
enum Fault {
    None,
    LendsFresh,
    SubmitsAll,
    SendsAtSubmit,
    KeepsWithdrawn,
    LosesCount,
    RefusesSilently,
    ShortSlots,
    ForgetsContent,
    LosesOne,
    SwapsBytes,
    TwiceShown,
    IgnoresMax,
    LiesAboutCount,
    NeverWaits,
    CountsNothing,
}

struct Tx(MemoryTx, Fault, u64);
struct Rx(MemoryRx, Fault, u64);

impl TxQueue for Tx {
    fn frame_capacity(&self) -> usize {
        self.0.frame_capacity() + usize::from(self.1 == Fault::ShortSlots)
    }

    fn batch_hint(&self) -> usize {
        self.0.batch_hint()
    }

    fn lend(&mut self, n: usize) -> usize {
        let lent = self.0.lend(n);
        for i in 0..lent {
            let slot = self.0.slot(i);
            match self.1 {
                Fault::LendsFresh => slot.bytes.fill(0),
                Fault::ForgetsContent if *slot.cookie != 0 => slot.bytes[50] ^= 1,
                _ => {}
            }
        }
        self.2 = lent as u64;
        lent
    }

    fn slot(&mut self, i: usize) -> Slot<'_> {
        self.0.slot(i)
    }

    fn submit(&mut self, n: usize) {
        let all = self.1 == Fault::SubmitsAll && n > 0;
        self.0.submit(if all { self.2 as usize } else { n });
        if self.1 == Fault::SendsAtSubmit {
            self.0.flush().unwrap();
        }
    }

    fn flush(&mut self) -> Result<(), PortError> {
        if self.1 == Fault::RefusesSilently && self.0.counters().submitted_frames > 500 {
            self.0.withdraw(|_| ());
        }
        self.0.flush()
    }

    fn in_flight(&self) -> usize {
        self.0.in_flight()
    }

    fn take_refused<F: FnMut(&[u8])>(&mut self, each: F) {
        self.0.take_refused(each);
    }

    fn withdraw<F: FnMut(&[u8])>(&mut self, mut each: F) {
        if self.1 == Fault::KeepsWithdrawn && self.0.in_flight() > 0 {
            self.0.flush().unwrap();
            each(&[0; 60]);
            return;
        }
        self.0.withdraw(each);
    }

    fn counters(&self) -> TxCounters {
        let mut counters = self.0.counters();
        if self.1 == Fault::LosesCount && counters.sent_frames > 100 {
            counters.sent_frames -= 1;
        }
        counters
    }
}

impl RxQueue for Rx {
    fn receive<F: FnMut(&RxFrame<'_>)>(
        &mut self,
        max: usize,
        mut on_frame: F,
    ) -> Result<usize, PortError> {
        let (fault, seen) = (self.1, &mut self.2);
        let asked = if fault == Fault::IgnoresMax { 64 } else { max };
        let mut skipped = 0;
        let n = self.0.receive(asked, |frame| {
            *seen += 1;
            match (fault, *seen) {
                (Fault::LosesOne, 700) => skipped += 1,
                (Fault::TwiceShown, 700) => {
                    on_frame(frame);
                    on_frame(frame);
                }
                (Fault::SwapsBytes, 700) => {
                    let mut bytes = frame.bytes.to_vec();
                    bytes.swap(40, 41);
                    on_frame(&RxFrame {
                        bytes: &bytes,
                        ..*frame
                    });
                }
                _ => on_frame(frame),
            }
        })?;
        Ok(n - skipped + usize::from(fault == Fault::LiesAboutCount && n > 0))
    }

    fn wait(&mut self, timeout: Duration) -> Result<bool, PortError> {
        let ready = self.0.wait(timeout)?;
        Ok(ready && self.1 != Fault::NeverWaits)
    }

    fn counters(&mut self) -> RxCounters {
        match self.1 {
            Fault::CountsNothing => RxCounters::default(),
            _ => self.0.counters(),
        }
    }
}

fn try_with(fault: Fault) {
    let options = LinkOptions {
        depth: 64,
        ..LinkOptions::new("test", VirtualClock::new(0).into())
    };
    let (mut a, mut b) = memory::link(&options).unwrap();
    let (tx, _) = a.queues.remove(0).into_halves();
    let (_, rx) = b.queues.remove(0).into_halves();
    let few = Options {
        frames: 1000,
        patience: 50,
        ..Options::default()
    };
    check_one_way(&mut Tx(tx, fault, 0), &mut Rx(rx, fault, 0), &few, 0);
}

#[test]
fn the_wrapper_itself_conforms() {
    try_with(Fault::None);
}

macro_rules! found {
    ($($name:ident: $fault:ident, $message:literal;)*) => {$(
        #[test]
        #[should_panic(expected = $message)]
        fn $name() {
            try_with(Fault::$fault);
        }
    )*};
}

found! {
    frames_lent_anew_are_found: LendsFresh, "lent again";
    submitting_too_much_is_found: SubmitsAll, "submitted_frames";
    sending_without_flush_is_found: SendsAtSubmit, "in flight after submit(4) without flush";
    withdrawn_frames_that_left_are_found: KeepsWithdrawn, "never submitted";
    counters_that_do_not_add_up_are_found: LosesCount, "submitted = sent";
    frames_dropped_silently_are_found: RefusesSilently, "withdrawn_frames";
    short_slots_are_found: ShortSlots, "frame_capacity() is";
    content_lost_under_a_cookie_is_found: ForgetsContent, "byte 50";
    a_lost_frame_is_found: LosesOne, "out of order";
    a_changed_frame_is_found: SwapsBytes, "byte 40";
    a_frame_shown_twice_is_found: TwiceShown, "out of order";
    more_than_asked_is_found: IgnoresMax, "receive(0) showed";
    a_wrong_number_is_found: LiesAboutCount, "returned";
    a_wait_that_sleeps_on_is_found: NeverWaits, "wait() does not tell";
    missing_counters_are_found: CountsNothing, "received_frames";
}
