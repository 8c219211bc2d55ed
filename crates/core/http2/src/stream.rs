//! Requests in flight, in the order of their streams.

use std::collections::VecDeque;

use crate::frame::LARGEST;

/// A request in flight.
#[derive(Debug)]
pub(crate) struct OpenRequest<T> {
    pub(crate) of: T,
    /// True if no response to it has a body.
    pub(crate) head: bool,
    /// Status of the response; 0 until its head has arrived.
    pub(crate) status: u16,
    /// Bytes of the body still expected.
    pub(crate) left: Option<u64>,
    /// Window relative to the initial window of all streams.
    pub(crate) window: i64,
    /// Bytes received since the window was last renewed.
    pub(crate) received: u32,
    /// True if a part of its body waits for a window.
    pub(crate) waits: bool,
}

/// Streams from the oldest to the youngest open one, by position; an ended stream leaves a gap.
#[derive(Debug)]
pub(crate) struct Streams<T> {
    all: VecDeque<Option<OpenRequest<T>>>,
    /// Number of the first stream.
    base: u32,
    open: usize,
}

/// State of a stream number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamState {
    Open,
    Ended,
    /// Not used yet, or not a client's number.
    Never,
}

impl<T> Streams<T> {
    pub(crate) const fn new() -> Self {
        Self {
            all: VecDeque::new(),
            base: 1,
            open: 0,
        }
    }

    pub(crate) const fn open(&self) -> usize {
        self.open
    }

    /// Number of the next stream, unless all are used.
    pub(crate) fn next(&self) -> Option<u32> {
        let next = u64::from(self.base) + 2 * self.all.len() as u64;
        (next <= u64::from(LARGEST)).then_some(next as u32)
    }

    pub(crate) fn push(&mut self, stream: OpenRequest<T>) {
        self.all.push_back(Some(stream));
        self.open += 1;
    }

    fn place(&self, number: u32) -> Option<usize> {
        let from = number.checked_sub(self.base)?;
        (number % 2 == 1).then_some(from as usize / 2)
    }

    pub(crate) fn known(&self, number: u32) -> StreamState {
        match self.place(number).map(|place| self.all.get(place)) {
            Some(Some(Some(_))) => StreamState::Open,
            Some(None) => StreamState::Never,
            None if number.is_multiple_of(2) => StreamState::Never,
            _ => StreamState::Ended,
        }
    }

    #[inline]
    pub(crate) fn get(&mut self, number: u32) -> Option<&mut OpenRequest<T>> {
        let place = self.place(number)?;
        self.all.get_mut(place)?.as_mut()
    }

    pub(crate) fn remove(&mut self, number: u32) -> Option<OpenRequest<T>> {
        let place = self.place(number)?;
        let stream = self.all.get_mut(place)?.take()?;
        self.open -= 1;
        while let Some(None) = self.all.front() {
            self.all.pop_front();
            self.base = self.base.saturating_add(2);
        }
        Some(stream)
    }

    /// Returns the number of the oldest open stream if `is` returns true for it; with `any`, the first stream for which
    /// it does.
    pub(crate) fn find(&self, any: bool, is: impl Fn(&T) -> bool) -> Option<u32> {
        let most = if any { self.all.len() } else { 1 };
        let mut all = self.all.iter().take(most);
        let found = all.position(|stream| stream.as_ref().is_some_and(|s| is(&s.of)))?;
        Some(self.base + 2 * found as u32)
    }

    /// Returns the youngest open stream, if its number is above `number`.
    pub(crate) fn youngest_above(&self, number: u32) -> Option<u32> {
        let back = self.all.iter().rposition(Option::is_some)?;
        let youngest = self.base + 2 * back as u32;
        (youngest > number).then_some(youngest)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &OpenRequest<T>> {
        self.all.iter().flatten()
    }

    pub(crate) fn drain(&mut self) -> impl Iterator<Item = T> {
        self.base = self.base.saturating_add(2 * self.all.len() as u32);
        self.open = 0;
        self.all.drain(..).flatten().map(|stream| stream.of)
    }
}
