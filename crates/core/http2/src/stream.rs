//! Requests under way, in the order of their streams.

use std::collections::VecDeque;

use crate::frame::LARGEST;

/// A request under way.
#[derive(Debug)]
pub(crate) struct Stream<T> {
    pub(crate) of: T,
    /// No answer to it has a body.
    pub(crate) head: bool,
    /// Of its answer; 0 until its head has come.
    pub(crate) status: u16,
    /// Bytes that its body has still to have.
    pub(crate) left: Option<u64>,
    /// What the server allows it beyond what it allows each at first.
    pub(crate) window: i64,
    /// Bytes received since the server was last allowed more.
    pub(crate) received: u32,
    /// A part of its body waits for a window.
    pub(crate) waits: bool,
}

/// Streams from the oldest that is open to the youngest, each with its place; what has ended leaves a gap.
#[derive(Debug)]
pub(crate) struct Streams<T> {
    all: VecDeque<Option<Stream<T>>>,
    /// Number of the first.
    base: u32,
    open: usize,
}

/// Where a number belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Known {
    Open,
    Ended,
    /// Not begun, or none that a client could begin.
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

    /// The number that the next gets, while there are any.
    pub(crate) fn next(&self) -> Option<u32> {
        let next = u64::from(self.base) + 2 * self.all.len() as u64;
        (next <= u64::from(LARGEST)).then_some(next as u32)
    }

    pub(crate) fn push(&mut self, stream: Stream<T>) {
        self.all.push_back(Some(stream));
        self.open += 1;
    }

    fn place(&self, number: u32) -> Option<usize> {
        let from = number.checked_sub(self.base)?;
        (number % 2 == 1).then_some(from as usize / 2)
    }

    pub(crate) fn known(&self, number: u32) -> Known {
        match self.place(number).map(|place| self.all.get(place)) {
            Some(Some(Some(_))) => Known::Open,
            Some(None) => Known::Never,
            None if number.is_multiple_of(2) => Known::Never,
            _ => Known::Ended,
        }
    }

    #[inline]
    pub(crate) fn get(&mut self, number: u32) -> Option<&mut Stream<T>> {
        let place = self.place(number)?;
        self.all.get_mut(place)?.as_mut()
    }

    pub(crate) fn take(&mut self, number: u32) -> Option<Stream<T>> {
        let place = self.place(number)?;
        let stream = self.all.get_mut(place)?.take()?;
        self.open -= 1;
        while let Some(None) = self.all.front() {
            self.all.pop_front();
            self.base = self.base.saturating_add(2);
        }
        Some(stream)
    }

    /// The number of the oldest that is open, if this is true of it; or, of any, of the first that it is true of.
    pub(crate) fn find(&self, any: bool, is: impl Fn(&T) -> bool) -> Option<u32> {
        let most = if any { self.all.len() } else { 1 };
        let mut all = self.all.iter().take(most);
        let found = all.position(|stream| stream.as_ref().is_some_and(|s| is(&s.of)))?;
        Some(self.base + 2 * found as u32)
    }

    /// The youngest that is open, if its number is above this.
    pub(crate) fn youngest_above(&self, number: u32) -> Option<u32> {
        let back = self.all.iter().rposition(Option::is_some)?;
        let youngest = self.base + 2 * back as u32;
        (youngest > number).then_some(youngest)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Stream<T>> {
        self.all.iter().flatten()
    }

    pub(crate) fn drain(&mut self) -> impl Iterator<Item = T> {
        self.base = self.base.saturating_add(2 * self.all.len() as u32);
        self.open = 0;
        self.all.drain(..).flatten().map(|stream| stream.of)
    }
}
