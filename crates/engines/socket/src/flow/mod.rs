//! The loops that move data, the same at both ends: a stream is sent here and taken there.
//!
//! A loop owns its socket and its buffers, tests a flag before each call, and counts into
//! [`Counters`], which others read while it runs. It reads a clock only where someone asked for the
//! time of operations, for a rate or for pacing, and neither allocates nor waits for a lock.
//!
//! Every loop is used in the same way: `new` takes a plan and allocates, before a clock runs; `run`
//! takes a socket and a [`Run`] and gives a [`Tally`], which says too why it ended. What was done
//! until then stands, whatever ended it.

use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use rustix::io::Errno;

use self::pace::Pacer;
use crate::Stopper;

mod buffers;
pub(crate) mod clock;
mod datagrams;
mod ending;
mod memory;
mod messages;
mod outstanding;
mod pace;
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

pub use buffers::{BufferPlan, Ring, default_width};
pub use datagrams::{
    DatagramReceivePlan, DatagramReceiver, DatagramSendPlan, DatagramSender, datagrams_per_second,
    end_datagrams,
};
pub use ending::{drain, finish};
pub use pace::Pace;
pub use receive::{ReceivePlan, Receiver};
pub use recorder::{Meter, Recorder};
pub use request::{RequestPlan, Requester};
pub use respond::{RespondPlan, Responder};
pub use send::{SendPlan, Sender};
pub use tags::TagReport;

/// What a loop runs with, beside its socket.
#[derive(Debug)]
pub struct Run<'a> {
    /// Ends it.
    pub stop: &'a Stopper,
    /// Where it counts.
    pub counters: &'a Counters,
    /// Where it writes the time of its operations, if someone asked for them.
    pub recorder: Option<&'a mut Recorder>,
}

impl Run<'_> {
    /// A loop with a tally of its own, in which it says too why it ended and how long it paused.
    fn tally(
        &mut self,
        pace: Option<Pace>,
        body: impl FnOnce(&mut Self, &mut Tally, &mut Pacer) -> Result<(), Ended>,
    ) -> Tally {
        let mut tally = Tally::default();
        let mut pacer = Pacer::begin(pace);
        tally.ended = match body(self, &mut tally, &mut pacer) {
            Ok(()) => Ended::Limit,
            Err(ended) => ended,
        };
        tally.waited = pacer.waited();
        tally
    }

    /// When an operation begins, if its time is wanted; unless the loop was told to end.
    #[inline]
    fn begin(&self) -> Result<Option<u64>, Ended> {
        self.stop.check()?;
        Ok(self.recorder.as_ref().map(|_| clock::now_ns()))
    }

    /// Takes the time of an operation that is over.
    #[inline]
    fn record(&mut self, began: Option<u64>) {
        if let (Some(began), Some(recorder)) = (began, self.recorder.as_deref_mut()) {
            recorder.record(clock::now_ns().saturating_sub(began));
        }
    }

    /// Counts a transaction of so many bytes.
    #[inline]
    fn transacted(&mut self, tally: &mut Tally, bytes: u64, began: Option<u64>) {
        tally.transactions += 1;
        self.counters.add(2, bytes);
        self.counters.add_transaction();
        self.record(began);
    }
}

/// Why a loop ended.
#[derive(Debug, Default)]
pub enum Ended {
    /// It was told to.
    #[default]
    Stopped,
    /// All was done that was asked for.
    Limit,
    /// The peer ended it: the end of a stream, or an empty datagram.
    Eof,
    /// The system refused a call.
    Failed(io::Error),
}

impl From<io::Error> for Ended {
    fn from(error: io::Error) -> Self {
        Self::Failed(error)
    }
}

impl From<Errno> for Ended {
    fn from(error: Errno) -> Self {
        Self::Failed(error.into())
    }
}

impl Stopper {
    /// For loops that end with `?`.
    #[inline]
    fn check(&self) -> Result<(), Ended> {
        if self.stopped() {
            return Err(Ended::Stopped);
        }
        Ok(())
    }
}

/// What a loop did.
#[derive(Debug, Default)]
pub struct Tally {
    /// Why it ended.
    pub ended: Ended,
    /// Bytes that the kernel took.
    pub bytes_sent: u64,
    /// Bytes that the kernel gave.
    pub bytes_received: u64,
    /// Successful sends; datagrams where they go in batches.
    pub send_calls: u64,
    /// Successful receives; datagrams where they come in batches.
    pub receive_calls: u64,
    /// Datagrams refused for want of room (ENOBUFS, ENOMEM).
    pub failed_sends: u64,
    /// Requests that were answered, or answers that were given.
    pub transactions: u64,
    /// Requests without an answer at the end: under way, or due by the rate and not sent.
    pub unanswered: u64,
    /// Requests given up: after the timeout, or overtaken by thousands of others.
    pub given_up: u64,
    /// Answers by datagram without a number, of requests that overlap: they were taken in order.
    pub unnumbered: u64,
    /// Datagrams of a rate that were skipped, because the sender was late by more than 100 ms.
    pub unsent: u64,
    /// Zero-copy sends completed without a copy.
    pub zero_copy: u64,
    /// Zero-copy sends that the kernel copied all the same.
    pub copied: u64,
    /// Time in the pauses of paced sending.
    pub waited: Duration,
    /// When the first datagram came, of those who wait for datagrams.
    pub began: Option<Instant>,
    /// Where it came from.
    pub peer: Option<SocketAddr>,
}

impl Tally {
    /// What went wrong, if that ended it.
    #[must_use]
    pub fn failure(&self) -> Option<&io::Error> {
        match &self.ended {
            Ended::Failed(error) => Some(error),
            _ => None,
        }
    }

    /// Adds what was done after this; why it ended is the later's.
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

/// What a loop has done so far: written by its thread, read by any. On cache lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Counters {
    bytes: AtomicU64,
    calls: AtomicU64,
    transactions: AtomicU64,
    numbered: AtomicU64,
    missing: AtomicU64,
    /// Bits of an `f64`.
    jitter: AtomicU64,
}

/// What the numbers in datagrams have told so far.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Numbers {
    /// Datagrams with our number that came, without duplicates.
    pub came: u64,
    /// Numbers below the highest that have not come.
    pub missing: u64,
    /// RFC 3550 jitter, ns; `None` before the second datagram.
    pub jitter_ns: Option<f64>,
}

/// One loop's counters, for those who look on.
pub type SharedCounters = Arc<Counters>;

impl Counters {
    /// Bytes moved; of transactions, requests and responses.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Successful calls; datagrams where they go in batches.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// Transactions done.
    #[must_use]
    pub fn transactions(&self) -> u64 {
        self.transactions.load(Ordering::Relaxed)
    }

    /// Counts calls and their bytes. Only the loop's thread calls it: no read-modify-write.
    #[inline]
    pub fn add(&self, calls: u64, bytes: u64) {
        let now = self.bytes.load(Ordering::Relaxed);
        self.bytes.store(now + bytes, Ordering::Relaxed);
        let now = self.calls.load(Ordering::Relaxed);
        self.calls.store(now + calls, Ordering::Relaxed);
    }

    /// What the numbers in datagrams have told; `None` before the first that has one.
    #[must_use]
    pub fn numbers(&self) -> Option<Numbers> {
        let came = self.numbered.load(Ordering::Acquire);
        let jitter_ns = (came > 1).then(|| f64::from_bits(self.jitter.load(Ordering::Relaxed)));
        (came > 0).then(|| Numbers {
            came,
            missing: self.missing.load(Ordering::Relaxed),
            jitter_ns,
        })
    }

    /// Says what they have told. Only the loop's thread calls it.
    #[inline]
    pub fn set_numbers(&self, numbers: Numbers) {
        self.missing.store(numbers.missing, Ordering::Relaxed);
        let jitter = numbers.jitter_ns.unwrap_or(0.0);
        self.jitter.store(jitter.to_bits(), Ordering::Relaxed);
        self.numbered.store(numbers.came, Ordering::Release);
    }

    /// Counts a transaction. Only the loop's thread calls it.
    #[inline]
    pub fn add_transaction(&self) {
        let now = self.transactions.load(Ordering::Relaxed);
        self.transactions.store(now + 1, Ordering::Relaxed);
    }
}
