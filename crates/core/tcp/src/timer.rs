//! Timer wheel with constant-time operations: six levels, with lists linked through the records.
//!
//! A tick is 1,024 ns. A record that is postponed stays in place and is checked again at its old time, so postponing
//! costs one store. Only a record that gets an earlier time is moved.

/// Shift from nanoseconds to ticks.
pub(crate) const TICK_SHIFT: u32 = 10;

const LEVELS: usize = 6;
const SLOTS: usize = 64;
/// No record.
pub(crate) const NONE: u32 = u32::MAX;
/// Marks a `prev` that is a slot or, if the slot is out of range, a record in no list.
const HEAD: u32 = 0x8000_0000;
/// `prev` of a record that is in no list.
pub(crate) const UNLINKED: u32 = HEAD | 0xffff;
/// Limit in ticks (18 minutes); later times are checked again then.
const FARTHEST: u64 = 1 << 30;

/// Neighbours of a record in its list, and its time.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct TimerLink {
    pub(crate) next: u32,
    pub(crate) prev: u32,
    /// Low 32 bits of the tick at which the record is due.
    pub(crate) due: u32,
}

impl TimerLink {
    pub(crate) const IDLE: Self = Self {
        next: NONE,
        prev: UNLINKED,
        due: 0,
    };

    #[inline]
    pub(crate) fn is_linked(&self) -> bool {
        self.prev != UNLINKED
    }
}

/// Collection of records with one link each.
pub(crate) trait TimerLinks {
    fn link(&mut self, record: u32) -> &mut TimerLink;
}

#[derive(Debug)]
pub(crate) struct Wheel {
    heads: [u32; LEVELS * SLOTS],
    used: [u64; LEVELS],
    /// Next tick to process.
    tick: u64,
}

/// First tick that starts at or after a time.
#[inline]
pub(crate) fn tick_at(ns: u64) -> u64 {
    (ns >> TICK_SHIFT) + u64::from(ns & ((1 << TICK_SHIFT) - 1) != 0)
}

impl Wheel {
    pub(crate) fn new(now_ns: u64) -> Self {
        Self {
            heads: [NONE; LEVELS * SLOTS],
            used: [0; LEVELS],
            tick: now_ns >> TICK_SHIFT,
        }
    }

    /// Sets the time of a record, whether it is in a list or not.
    #[inline]
    pub(crate) fn set(&mut self, links: &mut impl TimerLinks, record: u32, due_ns: u64) {
        let due = tick_at(due_ns).clamp(self.tick, self.tick + FARTHEST);
        let link = links.link(record);
        if link.is_linked() {
            let later = due as u32;
            if (later.wrapping_sub(link.due) as i32) >= 0 {
                link.due = later;
                return;
            }
            self.unlink(links, record);
        }
        links.link(record).due = due as u32;
        self.insert(links, record, due);
    }

    #[inline]
    fn insert(&mut self, links: &mut impl TimerLinks, record: u32, due: u64) {
        // The highest bit that differs between the due time and now determines the level.
        let level = ((due ^ self.tick) | 1).ilog2() as usize / 6;
        let level = level.min(LEVELS - 1);
        let slot = (due >> (6 * level)) as usize % SLOTS;
        let at = level * SLOTS + slot;
        let next = self.heads[at];
        let link = links.link(record);
        link.next = next;
        link.prev = HEAD | at as u32;
        if next != NONE {
            links.link(next).prev = record;
        }
        self.heads[at] = record;
        self.used[level] |= 1 << slot;
    }

    /// Removes a record from its list, if any.
    #[inline]
    pub(crate) fn unlink(&mut self, links: &mut impl TimerLinks, record: u32) {
        let TimerLink { next, prev, .. } = *links.link(record);
        if prev == UNLINKED {
            return;
        }
        links.link(record).prev = UNLINKED;
        if next != NONE {
            links.link(next).prev = prev;
        }
        if prev & HEAD == 0 {
            links.link(prev).next = next;
        } else {
            let at = (prev & !HEAD) as usize;
            self.heads[at] = next;
            if next == NONE {
                self.used[at / SLOTS] &= !(1 << (at % SLOTS));
            }
        }
    }

    /// Removes and returns a record that is due; None if no record is due by `now_ns`.
    pub(crate) fn expire(&mut self, links: &mut impl TimerLinks, now_ns: u64) -> Option<u32> {
        let now = now_ns >> TICK_SHIFT;
        loop {
            let Some((level, start)) = self.earliest() else {
                // Without this, the first timer after a long pause would count from the start of the pause.
                self.tick = self.tick.max(now);
                return None;
            };
            if start > now {
                self.tick = self.tick.max(now);
                return None;
            }
            // No timer is in between: slots of higher levels are expanded before the time passes them.
            self.tick = self.tick.max(start);
            let slot = (start >> (6 * level)) as usize % SLOTS;
            let record = self.heads[level * SLOTS + slot];
            self.unlink(links, record);
            let due = links.link(record).due;
            let due = self
                .tick
                .wrapping_add_signed(i64::from(due.wrapping_sub(self.tick as u32) as i32));
            if due <= now {
                return Some(record);
            }
            self.insert(links, record, due.max(self.tick));
        }
    }

    /// Level and start, in ticks, of the first slot in use.
    #[inline]
    fn earliest(&self) -> Option<(usize, u64)> {
        let mut best: Option<(usize, u64)> = None;
        for (level, &used) in self.used.iter().enumerate() {
            if used == 0 {
                continue;
            }
            let shift = 6 * level as u32;
            let here = (self.tick >> shift) as u32 % SLOTS as u32;
            let ahead = used.rotate_right(here).trailing_zeros();
            let start = ((self.tick >> shift) + u64::from(ahead)) << shift;
            let start = start.max(self.tick);
            // If two slots start at the same time, expand the higher level first.
            if best.is_none_or(|(_, other)| start <= other) {
                best = Some((level, start));
            }
        }
        best
    }

    /// Time in ns by which [`Wheel::expire`] must be called; never too late.
    #[inline]
    pub(crate) fn next_due_ns(&self) -> Option<u64> {
        self.earliest().map(|(_, start)| start << TICK_SHIFT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    impl TimerLinks for Vec<TimerLink> {
        fn link(&mut self, record: u32) -> &mut TimerLink {
            &mut self[record as usize]
        }
    }

    #[derive(Clone, Debug)]
    enum Step {
        Set(u32, u64),
        Unlink(u32),
        Advance(u64),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let span = prop_oneof![0u64..5000, 0u64..10_000_000, 0u64..4_000_000_000_000];
        prop::collection::vec(
            prop_oneof![
                4 => (0u32..20, span.clone()).prop_map(|(r, t)| Step::Set(r, t)),
                1 => (0u32..20).prop_map(Step::Unlink),
                3 => span.prop_map(Step::Advance),
            ],
            1..120,
        )
    }

    #[test]
    fn a_pause_without_timers_does_not_count() {
        const HOUR: u64 = 3_600_000_000_000;
        let mut links = vec![TimerLink::IDLE; 1];
        let mut wheel = Wheel::new(0);
        assert_eq!(wheel.expire(&mut links, HOUR), None);
        wheel.set(&mut links, 0, HOUR + 1_000_000);
        assert_eq!(wheel.expire(&mut links, HOUR + 900_000), None);
        assert!(wheel.next_due_ns().is_some_and(|due| due > HOUR));
        assert_eq!(wheel.expire(&mut links, HOUR + 1_002_000), Some(0));
    }

    proptest! {
        /// The wheel agrees with a sorted map: no timer fires early, late or never.
        #[test]
        fn fires_as_a_sorted_list_does(start in 0u64..u64::MAX / 4, steps in steps()) {
            let mut links = vec![TimerLink::IDLE; 20];
            let mut wheel = Wheel::new(start);
            let mut now = start;
            let mut model = BTreeMap::new();
            for step in steps {
                match step {
                    Step::Set(record, after) => {
                        wheel.set(&mut links, record, now + after);
                        let tick = tick_at(now + after).clamp(wheel.tick, wheel.tick + FARTHEST);
                        model.insert(record, tick);
                    }
                    Step::Unlink(record) => {
                        wheel.unlink(&mut links, record);
                        model.remove(&record);
                    }
                    Step::Advance(by) => {
                        now += by;
                        if let Some(due) = wheel.next_due_ns() {
                            let first = model.values().min().expect("the wheel has one");
                            prop_assert!(due <= first << TICK_SHIFT);
                        } else {
                            prop_assert!(model.is_empty());
                        }
                        let mut fired = Vec::new();
                        while let Some(record) = wheel.expire(&mut links, now) {
                            fired.push(record);
                        }
                        let mut expected: Vec<_> = model.iter()
                            .filter(|(_, due)| **due <= now >> TICK_SHIFT)
                            .map(|(record, _)| *record).collect();
                        model.retain(|_, due| *due > now >> TICK_SHIFT);
                        fired.sort_unstable();
                        expected.sort_unstable();
                        prop_assert_eq!(fired, expected);
                    }
                }
            }
        }
    }
}
