//! Events of a run for any number of readers.
//!
//! The newest events are kept with numbers that count up from 1, so a reader that lost its connection continues where
//! it was. A reader that is too slow loses the oldest events and learns of it; the run never waits for a reader.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};

/// Number of events that are kept.
const KEPT: usize = 600;

/// Event with its number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NumberedEvent {
    /// Number, counting up from 1.
    pub id: u64,
    /// Name: `state`, `snapshot`, `message` or `report`.
    pub name: &'static str,
    /// JSON text in one line.
    pub data: Arc<str>,
}

/// Events that a reader has not seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// The events, the oldest first.
    pub events: Vec<NumberedEvent>,
    /// True if older events were lost.
    pub missed: bool,
    /// True if no events follow these.
    pub over: bool,
}

/// Events of a run.
#[derive(Debug, Default)]
pub struct Feed(Mutex<Ring>);

#[derive(Debug, Default)]
struct Ring {
    events: VecDeque<NumberedEvent>,
    last: u64,
    over: bool,
    /// Readers that have seen everything.
    asleep: Vec<Waker>,
}

impl Feed {
    fn lock(&self) -> MutexGuard<'_, Ring> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an event. `data` is JSON text in one line. Returns the number of the event.
    pub fn push(&self, name: &'static str, data: &str) -> u64 {
        let mut ring = self.lock();
        ring.last += 1;
        let event = NumberedEvent {
            id: ring.last,
            name,
            data: data.into(),
        };
        if ring.events.len() == KEPT {
            ring.events.pop_front();
        }
        ring.events.push_back(event);
        ring.wake();
        ring.last
    }

    /// Ends the feed: no events follow.
    pub fn close(&self) {
        let mut ring = self.lock();
        ring.over = true;
        ring.wake();
    }

    /// Number of the last event; 0 if there is none yet.
    #[must_use]
    pub fn last(&self) -> u64 {
        self.lock().last
    }

    /// The events after the one with this number.
    #[must_use]
    pub fn after(&self, id: u64) -> Batch {
        self.lock().after(id)
    }

    /// The events after the one with this number, as soon as there is one or the feed has ended.
    pub fn poll_after(&self, id: u64, context: &mut Context<'_>) -> Poll<Batch> {
        let mut ring = self.lock();
        let batch = ring.after(id);
        if batch.events.is_empty() && !batch.over {
            ring.asleep.retain(|w| !w.will_wake(context.waker()));
            ring.asleep.push(context.waker().clone());
            return Poll::Pending;
        }
        Poll::Ready(batch)
    }
}

impl Ring {
    fn wake(&mut self) {
        self.asleep.drain(..).for_each(Waker::wake);
    }

    fn after(&self, id: u64) -> Batch {
        let first = self.events.front().map_or(self.last + 1, |event| event.id);
        let seen = id.saturating_add(1).saturating_sub(first);
        let seen = usize::try_from(seen).unwrap_or(usize::MAX);
        Batch {
            events: self.events.iter().skip(seen).cloned().collect(),
            missed: id.saturating_add(1) < first,
            over: self.over,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_continue_where_they_were() {
        let feed = Feed::default();
        for n in 1..=3 {
            assert_eq!(feed.push("snapshot", &n.to_string()), n);
        }
        let ids = |batch: &Batch| batch.events.iter().map(|e| e.id).collect::<Vec<_>>();
        assert_eq!(ids(&feed.after(0)), [1, 2, 3]);
        assert_eq!(ids(&feed.after(2)), [3]);
        let nothing = feed.after(3);
        assert!(nothing.events.is_empty() && !nothing.missed && !nothing.over);
        // A number that was never given is of an earlier server.
        assert!(feed.after(u64::MAX).events.is_empty());
        feed.close();
        assert!(feed.after(3).over);
    }

    #[test]
    fn a_slow_reader_loses_the_oldest_events_and_learns_of_it() {
        let feed = Feed::default();
        let pushed = KEPT as u64 + 10;
        for _ in 0..pushed {
            feed.push("snapshot", "{}");
        }
        let batch = feed.after(0);
        assert!(batch.missed);
        assert_eq!(batch.events.len(), KEPT);
        assert_eq!(
            (batch.events[0].id, pushed),
            (11, batch.events[KEPT - 1].id)
        );
        assert!(!feed.after(10).missed && feed.after(9).missed);
    }

    #[test]
    fn a_sleeping_reader_is_woken() {
        use std::sync::atomic::{AtomicU32, Ordering};

        struct Count(AtomicU32);
        impl std::task::Wake for Count {
            fn wake(self: Arc<Self>) {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }
        let count = Arc::new(Count(AtomicU32::new(0)));
        let waker = Waker::from(Arc::clone(&count));
        let mut context = Context::from_waker(&waker);
        let feed = Feed::default();
        assert!(feed.poll_after(0, &mut context).is_pending());
        assert!(feed.poll_after(0, &mut context).is_pending());
        feed.push("state", "{}");
        assert_eq!(
            count.0.load(Ordering::Relaxed),
            1,
            "once, however often it asked"
        );
        assert!(feed.poll_after(0, &mut context).is_ready());
        assert!(feed.poll_after(1, &mut context).is_pending());
        feed.close();
        assert_eq!(count.0.load(Ordering::Relaxed), 2);
    }
}
