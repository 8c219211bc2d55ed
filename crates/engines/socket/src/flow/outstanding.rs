//! Requests in flight: their start times, and the request that an answer belongs to.
//!
//! Requests are numbered in the order in which they begin. An answer with a number settles that request only, so
//! answers may overtake each other. An answer without a number settles the oldest request. Each request is in exactly
//! one of three states:
//!
//! ```text
//!   begun = answered + given up + under way
//! ```

/// Entry of a settled request.
const SETTLED: u64 = u64::MAX;

/// The requests of one run.
#[derive(Debug)]
pub(super) struct OutstandingRequests {
    /// Start time of each request, indexed by its number modulo the length; [`SETTLED`] if it is not in flight.
    since: Box<[u64]>,
    /// The oldest request in flight, or the next one.
    oldest: u64,
    begun: u64,
    answered: u64,
    given_up: u64,
}

impl OutstandingRequests {
    /// Creates a table for numbers up to `span` apart, rounded up to a power of two.
    pub(super) fn new(span: u64) -> Self {
        let span = usize::try_from(span.max(1)).unwrap_or(1 << 20);
        Self {
            since: vec![SETTLED; span.next_power_of_two()].into(),
            oldest: 0,
            begun: 0,
            answered: 0,
            given_up: 0,
        }
    }

    /// Number of requests begun, which is the number of the next request.
    #[inline]
    pub(super) fn begun_requests(&self) -> u64 {
        self.begun
    }

    /// Number of requests given up.
    #[inline]
    pub(super) fn given_up(&self) -> u64 {
        self.given_up
    }

    /// Number of requests neither answered nor given up.
    #[inline]
    pub(super) fn under_way(&self) -> u64 {
        self.begun - self.answered - self.given_up
    }

    #[inline]
    fn entry_index(&self, number: u64) -> usize {
        // The length is a power of two.
        number as usize & (self.since.len() - 1)
    }

    /// Begins the next request. A request that still occupies its entry was overtaken by all later ones and is given
    /// up.
    #[inline]
    pub(super) fn begin_next(&mut self, since: u64) {
        if self.begun - self.oldest == self.since.len() as u64 {
            self.given_up += 1;
            let oldest = self.entry_index(self.oldest);
            self.since[oldest] = SETTLED;
            self.pass_settled();
        }
        let next = self.entry_index(self.begun);
        self.since[next] = since;
        self.begun += 1;
    }

    /// Settles the request with this number. Returns its start time, or `None` if it is not in flight.
    #[inline]
    pub(super) fn take_start(&mut self, number: u64) -> Option<u64> {
        if !(self.oldest..self.begun).contains(&number) {
            return None;
        }
        let at = self.entry_index(number);
        let since = std::mem::replace(&mut self.since[at], SETTLED);
        if since == SETTLED {
            return None;
        }
        self.answered += 1;
        if number == self.oldest {
            self.pass_settled();
        }
        Some(since)
    }

    /// Settles the oldest request, for an answer without a number.
    #[inline]
    pub(super) fn answer_oldest(&mut self) -> Option<u64> {
        self.take_start(self.oldest)
    }

    /// Start time of the oldest request in flight.
    #[inline]
    pub(super) fn oldest_start(&self) -> Option<u64> {
        (self.under_way() > 0).then(|| self.since[self.entry_index(self.oldest)])
    }

    /// Gives up all requests that began at `time` or before.
    pub(super) fn give_up_until(&mut self, time: u64) {
        while self.oldest_start().is_some_and(|since| since <= time) {
            self.given_up += 1;
            let oldest = self.entry_index(self.oldest);
            self.since[oldest] = SETTLED;
            self.pass_settled();
        }
    }

    #[inline]
    fn pass_settled(&mut self) {
        while self.oldest < self.begun && self.since[self.entry_index(self.oldest)] == SETTLED {
            self.oldest += 1;
        }
    }
}

#[cfg(test)]
mod tests;
