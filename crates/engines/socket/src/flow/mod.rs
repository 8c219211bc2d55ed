//! The loops that move data, the same at both ends: one end sends a stream, the other receives it.
//!
//! A loop owns its socket and buffers, tests a flag before each call, and updates [`LoopCounters`] that other threads read.
//! It reads a clock only if operation times, a rate or pacing are requested. It neither allocates nor waits for a lock.
//!
//! Every loop is used in the same way: `new` takes a plan and allocates before a clock runs; `run` takes a socket and a
//! [`LoopContext`] and returns a [`LoopTally`]. The tally contains the work done and the reason for the end, including failures.

use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering, fence},
    },
    time::{Duration, Instant},
};

use rustix::io::Errno;

use self::burst_pace::BurstPacer;
use crate::Stopper;

mod buffers;
mod burst_pace;
pub(crate) mod clock;
mod datagrams;
mod memory;
mod messages;
mod orderly_end;
mod outstanding;
mod pipeline;
mod receive;
mod recorder;
mod request;
mod respond;
mod send;
mod sendfile;
mod tags;
mod uring;
mod zerocopy;

pub use buffers::{BufferPlan, BufferRing, default_width};
pub use burst_pace::BurstPace;
pub use datagrams::{
    DatagramReceivePlan, DatagramReceiver, DatagramSendPlan, DatagramSender, datagrams_per_second,
    end_datagrams,
};
pub use orderly_end::{drain, shut_down_and_drain};
pub use receive::{ReceivePlan, StreamReceiver};
pub use recorder::{TimeMeter, TimeRecorder};
pub use request::{RequestPlan, Requester};
pub use respond::{RespondPlan, Responder};
pub use send::{BufferSender, SendPlan};
pub use tags::TagReport;

/// Runtime context of a loop, in addition to its socket.
#[derive(Debug)]
pub struct LoopContext<'a> {
    /// Stops the loop.
    pub stop: &'a Stopper,
    /// Live counters of the loop.
    pub counters: &'a LoopCounters,
    /// Recorder of operation times, if they are wanted.
    pub recorder: Option<&'a mut TimeRecorder>,
}

impl LoopContext<'_> {
    /// Runs a loop and completes its tally with the reason for the end and the time spent in pauses.
    fn run_loop(
        &mut self,
        pace: Option<BurstPace>,
        body: impl FnOnce(&mut Self, &mut LoopTally, &mut BurstPacer) -> Result<(), LoopEnd>,
    ) -> LoopTally {
        let mut tally = LoopTally::default();
        let mut pacer = BurstPacer::begin(pace);
        tally.ended = match body(self, &mut tally, &mut pacer) {
            Ok(()) => LoopEnd::Limit,
            Err(ended) => ended,
        };
        tally.waited = pacer.time_waited();
        tally
    }

    /// Start time of an operation, if times are recorded. Fails if the loop was stopped.
    #[inline]
    fn begin_operation(&self) -> Result<Option<u64>, LoopEnd> {
        self.stop.check_stopped()?;
        Ok(self.recorder.as_ref().map(|_| clock::now_ns()))
    }

    /// Records the time of a completed operation.
    #[inline]
    fn record_operation(&mut self, began: Option<u64>) {
        if let (Some(began), Some(recorder)) = (began, self.recorder.as_deref_mut()) {
            recorder.record(clock::now_ns().saturating_sub(began));
        }
    }

    /// Counts a transaction with its bytes.
    #[inline]
    fn count_transaction(&mut self, tally: &mut LoopTally, bytes: u64, began: Option<u64>) {
        tally.transactions += 1;
        self.counters.add_all(2, bytes, 1);
        self.record_operation(began);
    }
}

/// Reason for the end of a loop.
#[derive(Debug, Default)]
pub enum LoopEnd {
    /// It was stopped.
    #[default]
    Stopped,
    /// Everything requested was done.
    Limit,
    /// The peer ended it: end of the stream, or an empty datagram.
    Eof,
    /// A system call failed.
    Failed(io::Error),
}

impl From<io::Error> for LoopEnd {
    fn from(error: io::Error) -> Self {
        Self::Failed(error)
    }
}

impl From<Errno> for LoopEnd {
    fn from(error: Errno) -> Self {
        Self::Failed(error.into())
    }
}

impl Stopper {
    /// Form of `is_stopped` for loops that end with `?`.
    #[inline]
    fn check_stopped(&self) -> Result<(), LoopEnd> {
        if self.is_stopped() {
            return Err(LoopEnd::Stopped);
        }
        Ok(())
    }
}

/// Results of a loop.
#[derive(Debug, Default)]
pub struct LoopTally {
    /// Reason for the end.
    pub ended: LoopEnd,
    /// Bytes accepted by the kernel.
    pub bytes_sent: u64,
    /// Bytes delivered by the kernel.
    pub bytes_received: u64,
    /// Successful sends; datagrams if sent in batches.
    pub send_calls: u64,
    /// Successful receives; datagrams if received in batches.
    pub receive_calls: u64,
    /// Datagrams refused for lack of buffer space (ENOBUFS, ENOMEM).
    pub failed_sends: u64,
    /// Requests answered by the peer, or answers sent.
    pub transactions: u64,
    /// Requests without an answer at the end: in flight, or due by the rate but not sent.
    pub unanswered: u64,
    /// Requests given up: after the timeout, or overtaken by thousands of others.
    pub given_up: u64,
    /// Datagram answers without a number to overlapping requests: assumed to be in order.
    pub unnumbered: u64,
    /// Datagrams of the schedule that were skipped because the sender was more than 100 ms late.
    pub unsent: u64,
    /// Zero-copy sends completed without a copy.
    pub zero_copy: u64,
    /// Zero-copy sends that the kernel copied nevertheless.
    pub copied: u64,
    /// Time spent in the pauses of paced sending.
    pub waited: Duration,
    /// Arrival time of the first datagram, for datagram receivers.
    pub began: Option<Instant>,
    /// Source of the first datagram.
    pub peer: Option<SocketAddr>,
}

impl LoopTally {
    /// The error, if one ended the loop.
    #[must_use]
    pub fn failure(&self) -> Option<&io::Error> {
        match &self.ended {
            LoopEnd::Failed(error) => Some(error),
            _ => None,
        }
    }

    /// Adds a later tally; the reason for the end is that of the later one.
    pub fn add(&mut self, later: Self) {
        self.ended = later.ended;
        self.bytes_sent += later.bytes_sent;
        self.bytes_received += later.bytes_received;
        self.send_calls += later.send_calls;
        self.receive_calls += later.receive_calls;
        self.failed_sends += later.failed_sends;
        self.transactions += later.transactions;
        self.unanswered += later.unanswered;
        self.given_up += later.given_up;
        self.unnumbered += later.unnumbered;
        self.unsent += later.unsent;
        self.zero_copy += later.zero_copy;
        self.copied += later.copied;
        self.waited += later.waited;
        self.began = self.began.or(later.began);
        self.peer = later.peer.or(self.peer);
    }
}

/// Live counters of a loop: written by its thread, read by any. Aligned to avoid false sharing.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct LoopCounters {
    /// Odd while the loop's thread changes bytes, calls and transactions.
    version: AtomicU64,
    bytes: AtomicU64,
    calls: AtomicU64,
    transactions: AtomicU64,
    numbered: AtomicU64,
    missing: AtomicU64,
    /// Bits of an `f64`.
    jitter: AtomicU64,
}

/// Results from the sequence numbers in datagrams so far.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SequenceResults {
    /// Datagrams with our number, without duplicates.
    pub came: u64,
    /// Numbers below the highest that have not arrived.
    pub missing: u64,
    /// RFC 3550 jitter, ns; `None` before the second datagram.
    pub jitter_ns: Option<f64>,
}

/// Counters of one loop, shared with observers.
pub type SharedLoopCounters = Arc<LoopCounters>;

impl LoopCounters {
    /// Bytes moved; for transactions, requests and responses.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Successful calls; datagrams if sent or received in batches.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// Completed transactions.
    #[must_use]
    pub fn transactions(&self) -> u64 {
        self.transactions.load(Ordering::Relaxed)
    }

    /// Bytes, calls and transactions of one instant.
    #[must_use]
    pub fn totals(&self) -> (u64, u64, u64) {
        loop {
            let before = self.version.load(Ordering::Acquire);
            let totals = (self.bytes(), self.calls(), self.transactions());
            fence(Ordering::Acquire);
            if before.is_multiple_of(2) && before == self.version.load(Ordering::Relaxed) {
                return totals;
            }
            // The loop's thread may have been preempted.
            std::thread::yield_now();
        }
    }

    /// Adds calls and their bytes. Only the loop's thread may call it, because it is not an atomic read-modify-write.
    #[inline]
    pub fn add(&self, calls: u64, bytes: u64) {
        self.add_all(calls, bytes, 0);
    }

    /// Like [`Self::add`], and adds completed transactions in the same step.
    #[inline]
    pub fn add_all(&self, calls: u64, bytes: u64, transactions: u64) {
        let more = |counter: &AtomicU64, more: u64| {
            counter.store(counter.load(Ordering::Relaxed) + more, Ordering::Relaxed);
        };
        more(&self.version, 1);
        fence(Ordering::Release);
        more(&self.bytes, bytes);
        more(&self.calls, calls);
        more(&self.transactions, transactions);
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version + 1, Ordering::Release);
    }

    /// Results from the numbers in datagrams; `None` before the first numbered datagram.
    #[must_use]
    pub fn sequence_results(&self) -> Option<SequenceResults> {
        let came = self.numbered.load(Ordering::Acquire);
        let jitter_ns = (came > 1).then(|| f64::from_bits(self.jitter.load(Ordering::Relaxed)));
        (came > 0).then(|| SequenceResults {
            came,
            missing: self.missing.load(Ordering::Relaxed),
            jitter_ns,
        })
    }

    /// Publishes new results. Only the loop's thread may call it.
    #[inline]
    pub fn set_numbers(&self, numbers: SequenceResults) {
        self.missing.store(numbers.missing, Ordering::Relaxed);
        let jitter = numbers.jitter_ns.unwrap_or(0.0);
        self.jitter.store(jitter.to_bits(), Ordering::Relaxed);
        self.numbered.store(numbers.came, Ordering::Release);
    }

    /// Counts a transaction. Only the loop's thread may call it.
    #[inline]
    pub fn add_transaction(&self) {
        self.add_all(0, 0, 1);
    }
}

#[cfg(test)]
mod tests {
    use super::LoopCounters;

    #[test]
    fn totals_are_those_of_one_instant() {
        const TRANSACTIONS: u64 = 200_000;
        let counters = LoopCounters::default();
        std::thread::scope(|scope| {
            scope.spawn(|| (0..TRANSACTIONS).for_each(|_| counters.add_all(2, 3, 1)));
            loop {
                let (bytes, calls, transactions) = counters.totals();
                assert_eq!((bytes, calls), (3 * transactions, 2 * transactions));
                if transactions == TRANSACTIONS {
                    break;
                }
            }
        });
    }
}
