//! When a test ends, beside what its loop sees: by the clock, or because nothing comes any more.

use std::time::{Duration, Instant};

use wb_omni::{Features, PADDING_SECONDS};

use super::{
    ask::{Ask, Work},
    prepare::Facts,
    state::ServerState,
};
use crate::{agreement::Length, flow::Counters};

/// How much longer than asked we wait for the end of a timed test.
const PADDING: Duration = Duration::from_secs(PADDING_SECONDS as u64);
/// The same towards clients that say when their test is over.
const PADDING_OF_OURS: Duration = Duration::from_secs(60);
/// Connections that come no more for so long after the time of a test say that it is over.
const NO_MORE_CONNECTIONS: Duration = Duration::from_secs(1);
/// The same for data after the amount of a test came. Usually the client ends it.
const NO_MORE_DATA: Duration = Duration::from_millis(500);
/// How often a test is looked at whose end shows in its counters only.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// A client whose first connection comes so much later than our response waited on purpose.
const WAITED: Duration = Duration::from_millis(500);

/// When counters moved last, as far as one looked.
pub(super) struct Movement {
    pub last: u64,
    pub at: Instant,
}

/// The rules for one test.
pub(super) struct Rules {
    length: Length,
    pub padding: Duration,
    /// The clock starts with the first connection or datagram, not with the response.
    pub from_first: bool,
    /// Something comes that could start the clock.
    has_first: bool,
    pub omit: Duration,
    /// A timed test of connections, whose client does not say when it is over.
    ends_without_connections: bool,
    /// The amount of a stream that comes.
    amount: Option<u64>,
}

impl Rules {
    pub(super) fn of(facts: &Facts) -> Self {
        let Ask {
            work,
            length,
            protocol,
            ..
        } = facts.ask;
        let features = facts
            .granted
            .map_or(Features::NONE, |granted| granted.features);
        let tells_end = features.contains(Features::EXPLICIT_END);
        let padding = match work {
            Work::Send => Duration::ZERO,
            _ if tells_end => PADDING_OF_OURS,
            _ => PADDING,
        };
        // Datagrams of ours go at once: nothing comes that could start the clock.
        let has_first = protocol.connects() || work != Work::Send;
        Self {
            length,
            padding,
            has_first,
            from_first: has_first
                && (!padding.is_zero() || features.contains(Features::CLOCK_FROM_FIRST)),
            omit: facts.granted.map_or(Duration::ZERO, |granted| {
                Duration::from_millis(granted.omit_ms.into())
            }),
            ends_without_connections: matches!(work, Work::Connections { .. }) && !tells_end,
            amount: match work {
                Work::Receive { .. } => length.amount(),
                _ => None,
            },
        }
    }

    /// When its clock started, if it did.
    pub(super) fn start(&self, first: Option<Instant>, began: Instant) -> Option<Instant> {
        if !self.has_first {
            return Some(began);
        }
        // A client that was told to wait before it begins gets its time all the same.
        first.map(|first| {
            if self.from_first || first > began + WAITED {
                first
            } else {
                began
            }
        })
    }

    /// When its time is over.
    fn deadline(
        &self,
        start: Option<Instant>,
        began: Instant,
        state: &ServerState,
    ) -> Option<Instant> {
        let Length::Time(time) = self.length else {
            return None;
        };
        let whole = time + self.omit + self.padding;
        Some(match start {
            Some(start) => start + whole,
            // A client may wait before it begins, but not forever.
            None => began + whole.max(Duration::from_nanos(state.job.idle.as_nanos())),
        })
    }

    pub(super) fn is_time(
        &self,
        start: Option<Instant>,
        began: Instant,
        now: Instant,
        state: &ServerState,
    ) -> bool {
        self.deadline(start, began, state)
            .is_some_and(|deadline| now >= deadline)
    }

    pub(super) fn is_quiet(
        &self,
        start: Option<Instant>,
        movement: &Movement,
        counters: &Counters,
        now: Instant,
    ) -> bool {
        let quiet = now.saturating_duration_since(movement.at);
        match (start, self.length) {
            (Some(start), Length::Time(time)) if self.ends_without_connections => {
                now >= start + time && quiet >= NO_MORE_CONNECTIONS
            }
            _ => {
                self.amount.is_some_and(|amount| counters.bytes() >= amount)
                    && quiet >= NO_MORE_DATA
            }
        }
    }

    /// When to look again, if nothing happens before.
    pub(super) fn wake(
        &self,
        start: Option<Instant>,
        began: Instant,
        has_omitted: bool,
        now: Instant,
        state: &ServerState,
    ) -> Option<Instant> {
        let omit = start.filter(|_| !has_omitted && !self.omit.is_zero());
        let look = match (start, self.length) {
            (Some(start), Length::Time(time)) if self.ends_without_connections => {
                Some((now + POLL_INTERVAL).max(start + time.saturating_sub(NO_MORE_CONNECTIONS)))
            }
            _ => self.amount.map(|_| now + POLL_INTERVAL),
        };
        [
            self.deadline(start, began, state),
            omit.map(|start| start + self.omit),
            look,
        ]
        .into_iter()
        .flatten()
        .min()
    }
}

impl Movement {
    pub(super) fn look(&mut self, counters: &Counters, now: Instant) {
        let moved = counters.bytes() + counters.calls() + counters.transactions();
        if moved != self.last {
            (self.last, self.at) = (moved, now);
        }
    }
}
