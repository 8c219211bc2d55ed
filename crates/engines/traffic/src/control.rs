//! What the session and its workers share: a few flags, and counters that one writes and one reads.

use std::sync::{
    Mutex, MutexGuard, PoisonError, TryLockError,
    atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
};

use crossbeam_utils::CachePadded;
use wb_measure::{FlowStats, ShownOutline};
use wb_port::Notify;

/// The signals between the session and the workers of a run.
///
/// The session sets `senders_running` and `start_at_mono_ns`, starts the workers, and waits until
/// `senders_running` is 0 (or sets `stop`); then it lets the drain pass and sets `end_wall_ns` and
/// `finish`.
#[derive(Debug)]
pub struct Control {
    /// When senders begin, monotonic. `u64::MAX`: not known yet.
    pub start_at_mono_ns: AtomicU64,
    /// Tags with an earlier stamp are of an earlier run: the start on the wall clock. 0: not known, or no clock is shared.
    pub since_wall_ns: AtomicU64,
    /// Senders let nothing more become due.
    pub stop: AtomicBool,
    /// Workers end, with what arrived by `end_wall_ns`.
    pub finish: AtomicBool,
    /// Frames stamped later than this count for nothing. Set it before `finish`; if it is still
    /// `u64::MAX` then, the first worker to see `finish` sets it to the time it sees it.
    pub end_wall_ns: AtomicU64,
    /// Senders that have not ended yet. Workers count it down.
    pub senders_running: AtomicUsize,
    /// Receivers whose port has nothing more to give: they came to the end of a file.
    pub receivers_exhausted: AtomicUsize,
    /// Frames stamped later than this are late. `u64::MAX` until the last sender has ended.
    pub drain_since_wall_ns: AtomicU64,
    /// The last departure of the senders that have ended.
    pub last_departure_wall_ns: AtomicU64,
    /// What is added to the monotonic clock for stamps where a port takes them by itself; 0 until the first worker of
    /// such a port has looked. One for all, so that it cancels out in latencies.
    pub wall_minus_mono: AtomicU64,
    /// Called when the last sender has ended, and when a receiver is exhausted.
    pub ended: Notify,
}

impl Control {
    /// Nothing started, nothing stopped, no senders.
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

    /// A sender has ended, and this was its last departure; 0 if that is not known.
    pub(crate) fn sender_ended(&self, last_departure_wall_ns: u64) {
        self.last_departure_wall_ns
            .fetch_max(last_departure_wall_ns, Ordering::AcqRel);
        // AcqRel: whoever counts down to 0 sees the departures of all that did before.
        let before = self
            .senders_running
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |n| {
                Some(n.saturating_sub(1))
            });
        if before.is_ok_and(|n| n <= 1) {
            let last = self.last_departure_wall_ns.load(Ordering::Acquire);
            let since = if last == 0 { u64::MAX } else { last };
            self.drain_since_wall_ns.store(since, Ordering::Release);
            self.ended.call();
        }
    }
}

impl Default for Control {
    fn default() -> Self {
        Self::new()
    }
}

/// Declares the counters once, for the shared form and the plain one.
macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counters of a worker, or of many added up, at an instant.
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
            /// Shows new values to the readers. For the one worker that owns the counters.
            #[inline]
            pub fn publish(&self, values: &CounterValues) {
                $(self.counters.$name.store(values.$name, Ordering::Relaxed);)*
            }

            /// The values that were published last. Each is exact; together they may be from two
            /// moments close by.
            #[must_use]
            pub fn read(&self) -> CounterValues {
                CounterValues { $($name: self.counters.$name.load(Ordering::Relaxed),)* }
            }
        }
    };
}

counters! {
    /// Frames the device took.
    offered_frames,
    /// Octets of these frames, with FCS.
    offered_octets,
    /// Frames given up so far because the sender was too late.
    unsent_frames,
    /// Frames the device dropped before the wire.
    refused_frames,
    /// Frames sent while the rate rose.
    ramp_frames,
    /// Arrivals of ours, duplicates too.
    received_frames,
    /// Octets of these frames, with FCS.
    received_octets,
    /// Duplicates among them.
    duplicate_frames,
    /// Originals that arrived after a later one.
    reordered_frames,
    /// Originals that arrived during the drain.
    late_frames,
    /// Frames that are not ours.
    foreign_frames,
    /// Originals with a latency.
    latency_samples,
    /// Sum of their latencies, modulo 2^64.
    latency_sum_ns,
    /// 1 while a sender waits for its link.
    link_down,
}

/// Where a worker shows what each of its lanes received of the first flows, whenever it shows its latencies.
#[derive(Debug, Default)]
pub struct ShownFlows(Mutex<Vec<FlowStats>>);

impl ShownFlows {
    /// No more flows than these are shown while a run goes on; the report has all.
    pub const MOST: u32 = 8;

    /// Shows these, unless somebody is reading at this very moment. Says whether it did.
    pub fn show(&self, flows: impl Iterator<Item = FlowStats>) -> bool {
        let mut place = match self.0.try_lock() {
            Ok(place) => place,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return false,
        };
        place.clear();
        place.extend(flows);
        true
    }

    /// What was shown last.
    pub fn read(&self) -> MutexGuard<'_, Vec<FlowStats>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A worker's counters for others to read, alone on their cache lines.
#[derive(Debug, Default)]
pub struct SharedCounters {
    counters: CachePadded<Slots>,
    /// Latencies so far, for who asks.
    pub latency: CachePadded<ShownOutline>,
    /// The first flows so far, shown when latencies are.
    pub flows: CachePadded<ShownFlows>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_sender_begins_the_drain() {
        let control = Control::new();
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
