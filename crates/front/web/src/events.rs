//! Events of a run as server-sent events.

use std::{
    collections::VecDeque,
    convert::Infallible,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use axum::response::sse::{Event, KeepAlive, Sse};
use futures_core::Stream;
use serde_json::json;
use wb_runs::{NumberedEvent, Run};

use crate::access::Ticket;

/// Interval of comments that keep a connection alive.
const ALIVE: Duration = Duration::from_secs(15);

/// Number of stored events that are read in one turn.
const TURN: usize = 256;

/// Stream of the events of a run, from one of them on.
pub(crate) struct EventStream {
    /// Source of further events of a current run.
    run: Option<Arc<Run>>,
    /// Source of the events of a run that has ended.
    stored: Option<Box<dyn Iterator<Item = NumberedEvent> + Send>>,
    /// Number of the last event that was sent or is waiting.
    last: u64,
    waiting: VecDeque<Event>,
    /// The client's permission, which may end.
    ticket: Ticket,
}

impl EventStream {
    /// The events of a current run after the one with this number.
    pub(crate) fn of_current(run: Arc<Run>, last: u64, ticket: Ticket) -> Self {
        // A number that was never given is of another run.
        let last = last.min(run.feed.last());
        Self {
            run: Some(run),
            stored: None,
            last,
            waiting: VecDeque::new(),
            ticket,
        }
    }

    /// These events after the one with this number, then the end.
    pub(crate) fn of_ended(
        events: impl Iterator<Item = NumberedEvent> + Send + 'static,
        last: u64,
        ticket: Ticket,
    ) -> Self {
        Self {
            run: None,
            stored: Some(Box::new(events)),
            last,
            waiting: VecDeque::new(),
            ticket,
        }
    }

    /// Reads the next stored events. Returns false if there are no more.
    fn read(&mut self) -> bool {
        let Some(stored) = &mut self.stored else {
            return false;
        };
        for _ in 0..TURN {
            let Some(event) = stored.next() else {
                self.stored = None;
                return false;
            };
            if event.id > self.last {
                self.waiting.push_back(written(&event));
                return true;
            }
        }
        true
    }

    /// The answer to a request for events.
    pub(crate) fn answer(self) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
        Sse::new(self).keep_alive(KeepAlive::new().interval(ALIVE))
    }
}

fn written(event: &NumberedEvent) -> Event {
    Event::default()
        .id(event.id.to_string())
        .event(event.name)
        .data(&*event.data)
}

impl Stream for EventStream {
    type Item = Result<Event, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if !self.ticket.is_valid() {
            return Poll::Ready(None);
        }
        if self.waiting.is_empty() && self.read() && self.waiting.is_empty() {
            // Other clients have their turn.
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        if self.waiting.is_empty()
            && let Some(run) = self.run.clone()
        {
            let Poll::Ready(batch) = run.feed.poll_after(self.last, context) else {
                return Poll::Pending;
            };
            if batch.missed {
                let first = batch.events.first().map_or(self.last, |event| event.id);
                let lost = json!({ "after": self.last, "before": first });
                self.waiting
                    .push_back(Event::default().event("resync").data(lost.to_string()));
            }
            self.waiting.extend(batch.events.iter().map(written));
            if let Some(event) = batch.events.last() {
                self.last = event.id;
            }
            if batch.over {
                self.run = None;
            }
        }
        Poll::Ready(self.waiting.pop_front().map(Ok))
    }
}
