//! Requests under way: which they are, since when, and which of them an answer is for.
//!
//! Requests are numbered in the order in which they begin. An answer that says its number settles
//! that request and no other, so answers may overtake each other; one without a number settles the
//! oldest. Whatever comes or does not come, each request is in one of three places:
//!
//! ```text
//!   begun = answered + given up + under way
//! ```

/// A place of a request that is settled.
const SETTLED: u64 = u64::MAX;

/// The requests of one run.
#[derive(Debug)]
pub(super) struct Outstanding {
    /// Since when each request runs, by its number modulo their length; [`SETTLED`] if it does not.
    since: Box<[u64]>,
    /// The oldest that is under way, or the next.
    oldest: u64,
    begun: u64,
    answered: u64,
    given_up: u64,
}

impl Outstanding {
    /// Room for numbers that are up to `span` apart, at least; rounded up to a power of two.
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

    /// Requests begun: the number of the next.
    #[inline]
    pub(super) fn begun(&self) -> u64 {
        self.begun
    }

    /// Requests given up.
    #[inline]
    pub(super) fn given_up(&self) -> u64 {
        self.given_up
    }

    /// Requests that are neither answered nor given up.
    #[inline]
    pub(super) fn under_way(&self) -> u64 {
        self.begun - self.answered - self.given_up
    }

    #[inline]
    fn at(&self, number: u64) -> usize {
        // The length is a power of two.
        number as usize & (self.since.len() - 1)
    }

    /// Begins the next request. One that is as much older as there are places has been overtaken by
    /// all that came after it: it is given up.
    #[inline]
    pub(super) fn begin(&mut self, since: u64) {
        if self.begun - self.oldest == self.since.len() as u64 {
            self.given_up += 1;
            let oldest = self.at(self.oldest);
            self.since[oldest] = SETTLED;
            self.pass_settled();
        }
        let next = self.at(self.begun);
        self.since[next] = since;
        self.begun += 1;
    }

    /// An answer to the request of this number came; since when that ran. `None` if it is not under
    /// way: answered or given up before.
    #[inline]
    pub(super) fn answer(&mut self, number: u64) -> Option<u64> {
        if !(self.oldest..self.begun).contains(&number) {
            return None;
        }
        let at = self.at(number);
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

    /// An answer came that does not say to what: it is taken for that of the oldest.
    #[inline]
    pub(super) fn answer_oldest(&mut self) -> Option<u64> {
        self.answer(self.oldest)
    }

    /// Since when the oldest that is under way runs.
    #[inline]
    pub(super) fn oldest(&self) -> Option<u64> {
        (self.under_way() > 0).then(|| self.since[self.at(self.oldest)])
    }

    /// Gives up what has been under way since then or before.
    pub(super) fn give_up_until(&mut self, time: u64) {
        while self.oldest().is_some_and(|since| since <= time) {
            self.given_up += 1;
            let oldest = self.at(self.oldest);
            self.since[oldest] = SETTLED;
            self.pass_settled();
        }
    }

    #[inline]
    fn pass_settled(&mut self) {
        while self.oldest < self.begun && self.since[self.at(self.oldest)] == SETTLED {
            self.oldest += 1;
        }
    }
}

#[cfg(test)]
mod tests;
