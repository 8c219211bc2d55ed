//! What a connection needs only while segments are lost or out of order.

use crate::conn::{NO_ASIDE, before};

const RANGES: usize = 4;

/// The recovery point of the sending half, and ranges that came ahead of their turn.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Aside {
    /// Where fast recovery, or sending again after a timeout, ends: RFC 6582 section 3.2, "recover".
    pub(crate) recover: u32,
    ranges: [(u32, u32); RANGES],
    len: u8,
    next_free: u16,
}

impl Aside {
    /// Keeps `start..end`, which begins after `expected`. False if there is no place left.
    pub(crate) fn keep(&mut self, expected: u32, mut start: u32, mut end: u32) -> bool {
        let mut kept = 0;
        let mut ranges = self.ranges;
        for &(from, to) in &self.ranges[..usize::from(self.len)] {
            if before(end, from) || before(to, start) {
                ranges[kept] = (from, to);
                kept += 1;
            } else {
                start = if before(from, start) { from } else { start };
                end = if before(end, to) { to } else { end };
            }
        }
        debug_assert!(before(expected, start), "a gap is before it");
        if kept == RANGES {
            return false;
        }
        ranges[kept] = (start, end);
        self.ranges = ranges;
        self.len = kept as u8 + 1;
        true
    }

    /// The end of a kept range that begins at or before `expected` and ends after it; takes it out.
    pub(crate) fn take(&mut self, expected: u32) -> Option<u32> {
        let mut found = None;
        let mut kept = 0;
        for i in 0..usize::from(self.len) {
            let (start, end) = self.ranges[i];
            if before(expected, start) {
                self.ranges[kept] = (start, end);
                kept += 1;
            } else if before(expected, end) {
                found =
                    Some(found.map_or(end, |other| if before(other, end) { end } else { other }));
            }
        }
        self.len = kept as u8;
        found
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// Side records by number; at most 65,534, the connections beyond do without.
#[derive(Debug)]
pub(crate) struct Asides {
    all: Vec<Aside>,
    free: u16,
}

impl Asides {
    pub(crate) fn new() -> Self {
        Self {
            all: Vec::new(),
            free: NO_ASIDE,
        }
    }

    /// The record of a connection whose number may be [`NO_ASIDE`]; a fresh one then, if there is any.
    pub(crate) fn of(&mut self, number: &mut u16) -> Option<&mut Aside> {
        if *number == NO_ASIDE {
            if self.free != NO_ASIDE {
                *number = self.free;
                self.free = self.all[usize::from(*number)].next_free;
                self.all[usize::from(*number)] = Aside::default();
            } else if self.all.len() < usize::from(NO_ASIDE) {
                *number = self.all.len() as u16;
                self.all.push(Aside::default());
            } else {
                return None;
            }
        }
        self.all.get_mut(usize::from(*number))
    }

    pub(crate) fn get(&mut self, number: u16) -> Option<&mut Aside> {
        self.all.get_mut(usize::from(number))
    }

    #[inline]
    pub(crate) fn give_back(&mut self, number: &mut u16) {
        if *number != NO_ASIDE {
            self.all[usize::from(*number)].next_free = self.free;
            self.free = std::mem::replace(number, NO_ASIDE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_merged_and_taken_in_turn() {
        let mut aside = Aside::default();
        assert!(aside.keep(0, 10, 20) && aside.keep(0, 30, 40) && aside.keep(0, 20, 30));
        assert_eq!(aside.len, 1);
        assert!(aside.keep(0, 50, 60) && aside.keep(0, 70, 80) && aside.keep(0, 90, 95));
        assert!(!aside.keep(0, 100, 110));
        assert!(aside.keep(0, 80, 90));
        assert_eq!(aside.take(9), None);
        assert_eq!(aside.take(10), Some(40));
        assert_eq!(aside.take(55), Some(60));
        assert_eq!(aside.take(200), None);
        assert!(aside.is_empty());
    }
}
