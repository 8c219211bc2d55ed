//! State shared by the engine and its workers: flags, and counters with one writer each.

use std::sync::{
    Mutex, MutexGuard, OnceLock, PoisonError, TryLockError,
    atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering},
};

use crossbeam_utils::CachePadded;
use wb_measure::{FlowStats, ShownOutline};
use wb_model::units::Rational;
use wb_port::Notify;

use crate::SenderOutcome;

/// Signals between the engine and the workers of a run.
///
/// The engine sets `senders_running` and `start_at_mono_ns`, starts the workers, and waits until `senders_running` is
/// 0 (or sets `stop`). After the drain it sets `end_wall_ns` and `finish`.
#[derive(Debug)]
pub struct TrafficControl {
    /// Start of the senders, monotonic. `u64::MAX` means not known yet.
    pub start_at_mono_ns: AtomicU64,
    /// Start on the wall clock: tags with an earlier timestamp belong to an earlier run. 0 if unknown or if no clock is
    /// shared.
    pub since_wall_ns: AtomicU64,
    /// Senders schedule no further frames.
    pub stop: AtomicBool,
    /// Workers end, with everything that arrived by `end_wall_ns`.
    pub finish: AtomicBool,
    /// Frames with a later timestamp are ignored. Set it before `finish`. If it is still `u64::MAX` then, the first
    /// worker that sees `finish` sets it to its current time.
    pub end_wall_ns: AtomicU64,
    /// Senders that have not ended yet, those on other hosts included. Workers decrement it.
    pub senders_running: AtomicUsize,
    /// Receivers that have reached the end of a capture file.
    pub receivers_exhausted: AtomicUsize,
    /// Frames with a later timestamp are late. `u64::MAX` until the last sender has ended.
    pub drain_since_wall_ns: AtomicU64,
    /// Last departure of the senders that have ended.
    pub last_departure_wall_ns: AtomicU64,
    /// Offset from the monotonic clock to timestamps, for ports that timestamp frames themselves; 0 until the first
    /// worker of such a port has measured it. Shared by all workers, so that its error cancels out in latencies.
    pub wall_minus_mono: AtomicU64,
    /// Called when a sender has ended, and when a receiver is exhausted.
    pub ended: Notify,
}

impl TrafficControl {
    /// Initial state: nothing started or stopped, no senders.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            start_at_mono_ns: AtomicU64::new(u64::MAX),
            since_wall_ns: AtomicU64::new(0),
            stop: AtomicBool::new(false),
            finish: AtomicBool::new(false),
            end_wall_ns: AtomicU64::new(u64::MAX),
            senders_running: AtomicUsize::new(0),
            receivers_exhausted: AtomicUsize::new(0),
            drain_since_wall_ns: AtomicU64::new(u64::MAX),
            last_departure_wall_ns: AtomicU64::new(0),
            wall_minus_mono: AtomicU64::new(0),
            ended: Notify::new(),
        }
    }

    /// Records the end of a sender and its last departure, 0 if unknown.
    pub(crate) fn sender_ended(&self, last_departure_wall_ns: u64) {
        self.last_departure_wall_ns
            .fetch_max(last_departure_wall_ns, Ordering::AcqRel);
        // AcqRel: the worker that counts down to 0 sees the departures of all earlier ones.
        let before = self
            .senders_running
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |n| {
                Some(n.saturating_sub(1))
            });
        if before.is_ok_and(|n| n <= 1) {
            let last = self.last_departure_wall_ns.load(Ordering::Acquire);
            let since = if last == 0 { u64::MAX } else { last };
            self.drain_since_wall_ns.store(since, Ordering::Release);
        }
        self.ended.call();
    }
}

impl Default for TrafficControl {
    fn default() -> Self {
        Self::new()
    }
}

/// Declares the counters once, for the shared and the plain form.
macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counters of one worker, or sums over workers, at an instant.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct CounterValues { $($(#[$doc])* pub $name: u64,)* }

        impl std::ops::AddAssign for CounterValues {
            fn add_assign(&mut self, other: Self) {
                $(self.$name = self.$name.wrapping_add(other.$name);)*
            }
        }

        #[derive(Debug, Default)]
        struct Slots { $($name: AtomicU64,)* }

        impl SharedCounters {
            /// Publishes new values. Only the worker that owns the counters may call it.
            #[inline]
            pub fn publish(&self, values: &CounterValues) {
                $(self.counters.$name.store(values.$name, Ordering::Relaxed);)*
            }

            /// Last published values. Each one is exact; together they may come from two successive updates.
            #[must_use]
            pub fn read(&self) -> CounterValues {
                CounterValues { $($name: self.counters.$name.load(Ordering::Relaxed),)* }
            }
        }
    };
}

counters! {
    /// Frames accepted by the device.
    offered_frames,
    /// Octets of these frames, with FCS.
    offered_octets,
    /// Frames given up so far because the sender was too late.
    unsent_frames,
    /// Frames dropped by the device before the wire.
    refused_frames,
    /// Frames sent during the ramp-up.
    ramp_frames,
    /// Received test frames, including duplicates.
    received_frames,
    /// Octets of these frames, with FCS.
    received_octets,
    /// Duplicates among them.
    duplicate_frames,
    /// Originals that arrived after a later one.
    reordered_frames,
    /// Originals that arrived during the drain.
    late_frames,
    /// Outages of flows.
    outages,
    /// Frames that do not belong to the test.
    foreign_frames,
    /// Originals with a latency.
    latency_samples,
    /// Sum of their latencies, modulo 2^64.
    latency_sum_ns,
    /// 1 while a sender waits for its link.
    link_down,
}

/// Receive statistics of the first flows, per lane, published by a worker together with its latencies.
#[derive(Debug, Default)]
pub struct ShownFlows {
    wanted: AtomicU32,
    flows: Mutex<Vec<FlowStats>>,
}

impl ShownFlows {
    /// Number of flows that are recorded over time during a run.
    pub const RECORDED: u32 = 8;
    /// Maximum number of flows published during a run; the report contains all.
    pub const MOST: u32 = 8192;

    /// Sets the number of flows to publish, of which there are at least [`ShownFlows::RECORDED`].
    pub fn want(&self, flows: u32) {
        self.wanted.store(flows, Ordering::Relaxed);
    }

    /// Number of flows to publish.
    #[must_use]
    pub fn wanted(&self) -> u32 {
        let wanted = self.wanted.load(Ordering::Relaxed);
        wanted.clamp(Self::RECORDED, Self::MOST)
    }

    /// Publishes the flows unless a reader holds the lock. Returns true if published.
    pub fn try_publish(&self, flows: impl Iterator<Item = FlowStats>) -> bool {
        let mut place = match self.flows.try_lock() {
            Ok(place) => place,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return false,
        };
        place.clear();
        place.extend(flows);
        true
    }

    /// Last published flows.
    pub fn read(&self) -> MutexGuard<'_, Vec<FlowStats>> {
        self.flows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Offered frames and octets of each stream of a worker, published together with its latencies.
#[derive(Debug, Default)]
pub struct ShownStreams(Mutex<Vec<(u64, u64)>>);

impl ShownStreams {
    /// Publishes the counts unless a reader holds the lock. Returns true if published.
    pub fn try_publish(&self, streams: impl Iterator<Item = (u64, u64)>) -> bool {
        let mut place = match self.0.try_lock() {
            Ok(place) => place,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return false,
        };
        place.clear();
        place.extend(streams);
        true
    }

    /// Last published counts.
    pub fn read(&self) -> MutexGuard<'_, Vec<(u64, u64)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Results of a sender that has ended, while its worker continues to receive.
#[derive(Debug, Default)]
pub struct EndedSender {
    wanted: AtomicBool,
    outcome: OnceLock<SenderOutcome>,
}

impl EndedSender {
    /// Asks for the results. Call it before the worker starts.
    pub fn want(&self) {
        self.wanted.store(true, Ordering::Relaxed);
    }

    /// Publishes the results if they are wanted.
    pub(crate) fn publish(&self, outcome: &SenderOutcome) {
        if self.wanted.load(Ordering::Relaxed) {
            let _ = self.outcome.set(outcome.clone());
        }
    }

    /// The results, if they were asked for and the sender has ended.
    #[must_use]
    pub fn get(&self) -> Option<&SenderOutcome> {
        self.outcome.get()
    }
}

/// Pace of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamPace {
    /// No frames.
    Off,
    /// The pace before the pause.
    On,
    /// Evenly, with this number of frames per second over all workers. Only for streams that were even before.
    Even(Rational),
    /// No frames, and none later.
    End,
}

/// Change of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamOrder {
    /// Index of the stream in the specification of the sender.
    pub stream: usize,
    /// Time of the change, monotonic.
    pub at_mono_ns: u64,
    /// Pace from then on.
    pub pace: StreamPace,
}

/// Orders for the sender of one worker. The sender reads one word per turn, and the orders only if the word has changed.
#[derive(Debug, Default)]
pub struct StreamOrders {
    given: AtomicUsize,
    orders: Mutex<Vec<StreamOrder>>,
}

impl StreamOrders {
    /// Gives an order.
    pub fn give(&self, order: StreamOrder) {
        let mut orders = self.orders.lock().unwrap_or_else(PoisonError::into_inner);
        orders.push(order);
        self.given.store(orders.len(), Ordering::Release);
    }

    /// Number of orders so far.
    #[inline]
    pub(crate) fn given(&self) -> usize {
        self.given.load(Ordering::Relaxed)
    }

    /// Orders after the first `followed`; none while an order is being given.
    #[cold]
    pub(crate) fn since(&self, followed: usize) -> Vec<StreamOrder> {
        let orders = self.orders.try_lock();
        orders.map_or_else(|_| Vec::new(), |orders| orders[followed..].to_vec())
    }
}

/// A worker's counters for other threads, on separate cache lines.
#[derive(Debug, Default)]
pub struct SharedCounters {
    counters: CachePadded<Slots>,
    /// Latencies so far, published on request.
    pub latency: CachePadded<ShownOutline>,
    /// The first flows so far, published together with latencies.
    pub flows: CachePadded<ShownFlows>,
    /// The streams so far, published together with latencies.
    pub streams: CachePadded<ShownStreams>,
    /// Results of the sender, once it has ended.
    pub ended_sender: EndedSender,
    /// Orders for the sender of the worker.
    pub orders: CachePadded<StreamOrders>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_sender_begins_the_drain() {
        let control = TrafficControl::new();
        control.senders_running.store(2, Ordering::Relaxed);
        control.sender_ended(70);
        assert_eq!(
            control.drain_since_wall_ns.load(Ordering::Relaxed),
            u64::MAX
        );
        control.sender_ended(50);
        assert_eq!(control.drain_since_wall_ns.load(Ordering::Relaxed), 70);
        assert_eq!(control.senders_running.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn what_is_published_is_read() {
        let shared = SharedCounters::default();
        let values = CounterValues {
            offered_frames: 3,
            latency_sum_ns: 9,
            ..CounterValues::default()
        };
        shared.publish(&values);
        let mut sum = shared.read();
        sum += values;
        assert_eq!((sum.offered_frames, sum.latency_sum_ns), (6, 18));
    }
}
