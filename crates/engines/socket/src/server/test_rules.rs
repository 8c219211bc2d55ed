//! Rules that end a test from outside its loop: by the clock, or because no more data arrives.

use std::time::{Duration, Instant};

use wb_netperf_wire::{Features, PADDING_SECONDS};

use super::{
    prepare::ResponseFacts,
    requested_test::{DataExchange, RequestedTest},
    state::ServerState,
};
use crate::{agreement::StreamLength, flow::LoopCounters};

/// Extra time before a timed test is ended by the server.
const PADDING: Duration = Duration::from_secs(PADDING_SECONDS as u64);
/// Extra time for clients that send an end message.
const PADDING_OF_OURS: Duration = Duration::from_secs(60);
/// A timed test of connections is over once no connection arrives for this time.
const NO_MORE_CONNECTIONS: Duration = Duration::from_secs(1);
/// A test with a byte limit is over once no data arrives for this time after the limit. Usually the client ends it
/// earlier.
const NO_MORE_DATA: Duration = Duration::from_millis(500);
/// Interval between checks of tests with an end that shows only in the counters.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// A client that makes its first connection later than this after the response waited on purpose.
const WAITED: Duration = Duration::from_millis(500);

/// Last observed change of the counters.
pub(super) struct CounterMovement {
    pub last: u64,
    pub at: Instant,
}

/// The rules of one test.
pub(super) struct TestRules {
    length: StreamLength,
    pub padding: Duration,
    /// The clock starts with the first connection or datagram, not with the response.
    pub from_first: bool,
    /// An arriving connection or datagram can start the clock.
    has_first: bool,
    pub omit: Duration,
    /// A timed test of connections without an end message.
    ends_without_connections: bool,
    /// Byte limit of a received stream.
    amount: Option<u64>,
}

impl TestRules {
    pub(super) fn for_test(facts: &ResponseFacts) -> Self {
        let RequestedTest {
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
            DataExchange::Send => Duration::ZERO,
            _ if tells_end => PADDING_OF_OURS,
            _ => PADDING,
        };
        // The server sends datagrams at once: nothing arrives that could start the clock.
        let has_first = protocol.connects() || work != DataExchange::Send;
        Self {
            length,
            padding,
            has_first,
            from_first: has_first
                && (!padding.is_zero() || features.contains(Features::CLOCK_FROM_FIRST)),
            omit: facts.granted.map_or(Duration::ZERO, |granted| {
                Duration::from_millis(granted.omit_ms.into())
            }),
            ends_without_connections: matches!(work, DataExchange::Connections { .. })
                && !tells_end,
            amount: match work {
                DataExchange::Receive { .. } => length.unit_limit(),
                _ => None,
            },
        }
    }

    /// Start of the test's clock, if it has started.
    pub(super) fn start(&self, first: Option<Instant>, began: Instant) -> Option<Instant> {
        if !self.has_first {
            return Some(began);
        }
        // A client that waits before it begins still gets its full time.
        first.map(|first| {
            if self.from_first || first > began + WAITED {
                first
            } else {
                began
            }
        })
    }

    /// End of the test's time.
    fn test_deadline(
        &self,
        start: Option<Instant>,
        began: Instant,
        state: &ServerState,
    ) -> Option<Instant> {
        let StreamLength::Time(time) = self.length else {
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
        self.test_deadline(start, began, state)
            .is_some_and(|deadline| now >= deadline)
    }

    pub(super) fn is_quiet(
        &self,
        start: Option<Instant>,
        movement: &CounterMovement,
        counters: &LoopCounters,
        now: Instant,
    ) -> bool {
        let quiet = now.saturating_duration_since(movement.at);
        match (start, self.length) {
            (Some(start), StreamLength::Time(time)) if self.ends_without_connections => {
                now >= start + time && quiet >= NO_MORE_CONNECTIONS
            }
            _ => {
                self.amount.is_some_and(|amount| counters.bytes() >= amount)
                    && quiet >= NO_MORE_DATA
            }
        }
    }

    /// Time of the next check without other events.
    pub(super) fn next_check(
        &self,
        start: Option<Instant>,
        began: Instant,
        has_omitted: bool,
        now: Instant,
        state: &ServerState,
    ) -> Option<Instant> {
        let omit = start.filter(|_| !has_omitted && !self.omit.is_zero());
        let look = match (start, self.length) {
            (Some(start), StreamLength::Time(time)) if self.ends_without_connections => {
                Some((now + POLL_INTERVAL).max(start + time.saturating_sub(NO_MORE_CONNECTIONS)))
            }
            _ => self.amount.map(|_| now + POLL_INTERVAL),
        };
        [
            self.test_deadline(start, began, state),
            omit.map(|start| start + self.omit),
            look,
        ]
        .into_iter()
        .flatten()
        .min()
    }
}

impl CounterMovement {
    pub(super) fn update(&mut self, counters: &LoopCounters, now: Instant) {
        let moved = counters.bytes() + counters.calls() + counters.transactions();
        if moved != self.last {
            (self.last, self.at) = (moved, now);
        }
    }
}
