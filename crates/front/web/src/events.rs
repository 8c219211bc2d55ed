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

/// Interval of comments that keep a connection alive.
const ALIVE: Duration = Duration::from_secs(15);

/// Stream of the events of a run, from one of them on.
pub(crate) struct EventStream {
    /// Source of further events; none for a run that has ended.
    run: Option<Arc<Run>>,
    /// Number of the last event that was sent or is waiting.
    last: u64,
    waiting: VecDeque<Event>,
}

impl EventStream {
    /// The events of a current run after the one with this number.
    pub(crate) fn of_current(run: Arc<Run>, last: u64) -> Self {
        Self {
            run: Some(run),
            last,
            waiting: VecDeque::new(),
        }
    }

    /// These events, then the end.
    pub(crate) fn of_ended(events: Vec<NumberedEvent>, last: u64) -> Self {
        let events = events.into_iter().filter(|event| event.id > last);
        Self {
            run: None,
            last,
            waiting: events.map(|event| written(&event)).collect(),
        }
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
