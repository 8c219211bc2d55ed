//! Exchange between a run and the hosts at the other ends of its directions: sent counts, and offsets of clocks.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicI64, Ordering},
    },
};

use wb_model::peer::{PairClock, Sent};
use wb_open::Alarm;

/// Smallest bias of latencies between two clocks, in ns: estimates of offsets may move by this much during a run.
const LEAST_BIAS_NS: u64 = 10_000;

/// Connection of a run to the other hosts of its plan. Clones share one connection.
///
/// The run passes the counts of each direction that it has sent to the function given to [`PeerLink::new`]. Counts of
/// other hosts come in by [`PeerLink::receive`], also before the run has started.
#[derive(Clone, Default)]
pub struct PeerLink(Arc<Inner>);

#[derive(Default)]
struct Inner {
    send: Option<Box<dyn Fn(Sent) + Send + Sync>>,
    received: Mutex<Received>,
    clocks: Mutex<BTreeMap<String, Arc<PeerClock>>>,
}

#[derive(Default)]
struct Received {
    news: Vec<PeerNews>,
    alarm: Weak<Alarm>,
}

/// News about a sender on another host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerNews {
    /// The sender has ended with these counts.
    Sent(Sent),
    /// The counts will never arrive.
    Lost {
        /// The direction, as in [`Sent::direction`].
        direction: u32,
        /// Reason, such as `host h1 lost at 6.0 s`.
        why: String,
    },
}

impl PeerLink {
    /// A connection that passes the counts of this host's directions to `send`. The controlling thread of the run calls
    /// it, so it must not block.
    #[must_use]
    pub fn new(send: impl Fn(Sent) + Send + Sync + 'static) -> Self {
        Self(Arc::new(Inner {
            send: Some(Box::new(send)),
            ..Inner::default()
        }))
    }

    /// Passes the counts of a direction, which another host has sent, to the run. Later counts of the same direction are
    /// ignored.
    pub fn receive(&self, sent: Sent) {
        self.push(PeerNews::Sent(sent));
    }

    /// Ends the wait for the counts of a direction, because its sender is lost. The reason goes into the report.
    pub fn report_lost(&self, direction: u32, why: String) {
        self.push(PeerNews::Lost { direction, why });
    }

    fn push(&self, news: PeerNews) {
        let mut received = lock(&self.0.received);
        received.news.push(news);
        if let Some(alarm) = received.alarm.upgrade() {
            alarm.bell.ring();
        }
    }

    /// Clock of another host.
    #[must_use]
    pub fn clock(&self, host: &str) -> Arc<PeerClock> {
        let mut clocks = lock(&self.0.clocks);
        Arc::clone(clocks.entry(host.to_owned()).or_default())
    }

    /// Rings the bell of this alarm when counts arrive.
    pub fn wake(&self, alarm: &Arc<Alarm>) {
        lock(&self.0.received).alarm = Arc::downgrade(alarm);
    }

    /// Takes the news that have arrived.
    #[must_use]
    pub fn take(&self) -> Vec<PeerNews> {
        std::mem::take(&mut lock(&self.0.received).news)
    }

    /// Passes counts on to the host that receives the direction.
    pub fn send(&self, sent: Sent) {
        if let Some(send) = &self.0.send {
            send(sent);
        }
    }
}

impl fmt::Debug for PeerLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PeerLink")
    }
}

/// Offset of this host's clock from the clock of another host. Added to a stamp of the other host, it gives the time on
/// this host's clock.
#[derive(Debug, Default)]
pub struct PeerClock {
    offset_ns: AtomicI64,
    pair: Mutex<Option<PairClock>>,
}

impl PeerClock {
    /// Sets the current estimate: `offset_end_ns` is the offset.
    pub fn set(&self, pair: PairClock) {
        self.offset_ns.store(pair.offset_end_ns, Ordering::Relaxed);
        *lock(&self.pair) = Some(pair);
    }

    /// Current offset in ns; 0 before the first estimate.
    #[must_use]
    pub fn offset_ns(&self) -> i64 {
        self.offset_ns.load(Ordering::Relaxed)
    }

    /// Current estimate, if there is one.
    #[must_use]
    pub fn pair(&self) -> Option<PairClock> {
        lock(&self.pair).clone()
    }

    /// Time on this host's clock, in ns since 1970, of a time on the clock of the other host.
    #[must_use]
    pub fn local(&self, wall_ns: u64) -> u64 {
        wall_ns.saturating_add_signed(self.offset_ns())
    }

    /// Amount in ns by which latencies are raised while they are measured, so that the error of the offset makes none of
    /// them negative: twice the error of the current estimate, at least 10 us.
    #[must_use]
    pub fn bias_ns(&self) -> u64 {
        let error_ns = self.pair().map_or(0, |pair| pair.error_ns);
        error_ns.saturating_mul(2).clamp(LEAST_BIAS_NS, 1 << 40)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn counts_that_arrive_wake_the_run() {
        let link = PeerLink::default();
        let sent = |direction| Sent {
            direction,
            ..Sent::default()
        };
        // Before the run has started.
        link.receive(sent(1));
        let alarm = Arc::new(Alarm::default());
        link.wake(&alarm);
        let other = link.clone();
        let thread = std::thread::spawn(move || other.receive(sent(2)));
        let began = Instant::now();
        alarm.bell.wait(&[], Duration::from_secs(60));
        assert!(began.elapsed() < Duration::from_secs(60));
        thread.join().unwrap();
        assert_eq!(
            link.take(),
            [1, 2].map(|number| PeerNews::Sent(sent(number)))
        );
        assert_eq!(link.take(), []);
    }

    #[test]
    fn an_offset_moves_stamps_to_this_clock() {
        let link = PeerLink::default();
        let clock = link.clock("h1");
        assert_eq!((clock.local(1000), clock.bias_ns()), (1000, 10_000));
        link.clock("h1").set(PairClock {
            offset_end_ns: -300,
            error_ns: 7_000,
            ..PairClock::default()
        });
        assert_eq!((clock.local(1000), clock.bias_ns()), (700, 14_000));
        assert_eq!(clock.local(100), 0);
        assert_eq!(link.clock("h2").pair(), None);
    }
}
