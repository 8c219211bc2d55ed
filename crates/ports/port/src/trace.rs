//! A queue pair that remembers the last frames it sent and received, for tests and for looking
//! what really happens. The frames themselves pass unchanged.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use crate::clock::Clock;
use crate::{PortError, QueuePair, RxCounters, RxFrame, RxQueue, Slot, TxCounters, TxQueue};

/// How much is remembered, of each direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceOptions {
    /// Frames; older ones are forgotten.
    pub frames: usize,
    /// Bytes of each frame.
    pub bytes: usize,
}

impl Default for TraceOptions {
    fn default() -> Self {
        Self {
            frames: 1000,
            bytes: 64,
        }
    }
}

/// Which way a frame went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// It was submitted.
    Sent,
    /// It was received.
    Received,
}

/// A remembered frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Which way it went.
    pub direction: Direction,
    /// When it was submitted, or the stamp it was received with.
    pub stamp_ns: u64,
    /// Length on the wire without FCS.
    pub len: u32,
    /// Its first bytes.
    pub bytes: Vec<u8>,
}

/// `1700000000.000000500 tx 60 B 020000000002…`
impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let way = match self.direction {
            Direction::Sent => "tx",
            Direction::Received => "rx",
        };
        let (s, ns) = (self.stamp_ns / 1_000_000_000, self.stamp_ns % 1_000_000_000);
        write!(f, "{s}.{ns:09} {way} {} B ", self.len)?;
        for byte in &self.bytes {
            write!(f, "{byte:02x}")?;
        }
        if self.bytes.len() < self.len as usize {
            f.write_str("…")?;
        }
        Ok(())
    }
}

/// The frames of one direction that are remembered.
#[derive(Debug)]
pub struct Log {
    options: TraceOptions,
    records: VecDeque<Record>,
    forgotten: u64,
}

impl Log {
    fn new(options: TraceOptions) -> Self {
        Self {
            options,
            records: VecDeque::with_capacity(options.frames.min(4096)),
            forgotten: 0,
        }
    }

    fn push(&mut self, direction: Direction, stamp_ns: u64, len: u32, frame: &[u8]) {
        let mut bytes = Vec::new();
        if self.records.len() >= self.options.frames {
            self.forgotten += 1;
            let Some(oldest) = self.records.pop_front() else {
                return;
            };
            bytes = oldest.bytes;
            bytes.clear();
        }
        bytes.extend_from_slice(&frame[..frame.len().min(self.options.bytes)]);
        self.records.push_back(Record {
            direction,
            stamp_ns,
            len,
            bytes,
        });
    }

    /// What is remembered, oldest first.
    pub fn records(&self) -> impl ExactSizeIterator<Item = &Record> {
        self.records.iter()
    }

    /// Frames that were remembered no longer, for want of room.
    #[must_use]
    pub fn forgotten(&self) -> u64 {
        self.forgotten
    }
}

/// A queue pair that remembers its frames.
///
/// The two halves of the wrapped pair must be separable values, so it is made of them:
/// `Trace::new(tx, rx, …)`; pairs of this crate come apart by `into_halves`.
#[derive(Debug)]
pub struct Trace<T, R> {
    tx: TraceTx<T>,
    rx: TraceRx<R>,
}

impl<T: TxQueue + Send, R: RxQueue + Send> Trace<T, R> {
    /// Wraps the halves of a pair; frames sent are stamped with this clock.
    pub fn new(tx: T, rx: R, options: TraceOptions, clock: Clock) -> Self {
        let tx = TraceTx {
            inner: tx,
            log: Log::new(options),
            clock,
        };
        let rx = TraceRx {
            inner: rx,
            log: Log::new(options),
        };
        Self { tx, rx }
    }

    /// The halves that were wrapped.
    pub fn into_halves(self) -> (T, R) {
        (self.tx.inner, self.rx.inner)
    }

    /// Frames submitted.
    pub fn sent(&self) -> &Log {
        &self.tx.log
    }

    /// Frames received.
    pub fn received(&self) -> &Log {
        &self.rx.log
    }
}

impl<T: TxQueue + Send, R: RxQueue + Send> QueuePair for Trace<T, R> {
    type Tx = TraceTx<T>;
    type Rx = TraceRx<R>;

    fn split(&mut self) -> (&mut TraceTx<T>, &mut TraceRx<R>) {
        (&mut self.tx, &mut self.rx)
    }
}

/// The sending half.
#[derive(Debug)]
pub struct TraceTx<T> {
    inner: T,
    log: Log,
    clock: Clock,
}

impl<T: TxQueue> TxQueue for TraceTx<T> {
    fn frame_capacity(&self) -> usize {
        self.inner.frame_capacity()
    }

    fn batch_hint(&self) -> usize {
        self.inner.batch_hint()
    }

    fn lend(&mut self, n: usize) -> usize {
        self.inner.lend(n)
    }

    fn slot(&mut self, i: usize) -> Slot<'_> {
        self.inner.slot(i)
    }

    fn submit(&mut self, n: usize) {
        let now_ns = self.clock.now_ns();
        for i in 0..n {
            let slot = self.inner.slot(i);
            let frame = &slot.bytes[..*slot.len as usize];
            self.log.push(Direction::Sent, now_ns, *slot.len, frame);
        }
        self.inner.submit(n);
    }

    fn flush(&mut self) -> Result<(), PortError> {
        self.inner.flush()
    }

    fn in_flight(&self) -> usize {
        self.inner.in_flight()
    }

    fn take_refused<F: FnMut(&[u8])>(&mut self, each: F) {
        self.inner.take_refused(each);
    }

    fn withdraw<F: FnMut(&[u8])>(&mut self, each: F) {
        self.inner.withdraw(each);
    }

    fn counters(&self) -> TxCounters {
        self.inner.counters()
    }
}

/// The receiving half.
#[derive(Debug)]
pub struct TraceRx<R> {
    inner: R,
    log: Log,
}

impl<R: RxQueue> RxQueue for TraceRx<R> {
    fn receive<F: FnMut(&RxFrame<'_>)>(
        &mut self,
        max: usize,
        mut on_frame: F,
    ) -> Result<usize, PortError> {
        let log = &mut self.log;
        self.inner.receive(max, |frame| {
            let len = frame.original_len;
            log.push(Direction::Received, frame.stamp_ns, len, frame.bytes);
            on_frame(frame);
        })
    }

    fn wait(&mut self, timeout: Duration) -> Result<bool, PortError> {
        self.inner.wait(timeout)
    }

    fn longest_hold(&self) -> Duration {
        self.inner.longest_hold()
    }

    fn counters(&mut self) -> RxCounters {
        self.inner.counters()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_bounded_and_readable() {
        let options = TraceOptions {
            frames: 2,
            bytes: 3,
        };
        let mut log = Log::new(options);
        for n in 1..=3u8 {
            log.push(Direction::Sent, 1_000_000_000 + u64::from(n), 4, &[n; 4]);
        }
        let lines: Vec<String> = log.records().map(ToString::to_string).collect();
        assert_eq!(
            lines,
            ["1.000000002 tx 4 B 020202…", "1.000000003 tx 4 B 030303…"]
        );
        assert_eq!(log.forgotten(), 1);
        let mut none = Log::new(TraceOptions {
            frames: 0,
            bytes: 3,
        });
        none.push(Direction::Received, 0, 4, &[0; 4]);
        assert_eq!((none.records().len(), none.forgotten()), (0, 1));
    }
}
