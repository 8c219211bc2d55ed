//! Distinguishes originals, duplicates and reordered frames by the sequence numbers of one flow.
//!
//! Does not know stamps or frames. A ring of bits covers the numbers up to the highest one seen; a set bit is a number
//! that has arrived:
//!
//! ```text
//!        next - window                 next - 1 = highest   next
//!   beyond |  1 1 0 1 1 1 1 0 1 1 1 1 1 1  |  in order, gap = sequence - next
//!               duplicate ^ if 1, reordered original if 0
//! ```
//!
//! RFC 4689: a frame is out of order when its sequence number is lower than one already received, and a duplicate when
//! its number was seen before within the tracking window.

/// Kind of arrival, derived from the sequence number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// Higher than every number before; the `gap` numbers in between are lost unless they arrive later.
    InOrder {
        /// Numbers skipped between the previous highest one and this one.
        gap: u64,
    },
    /// Original that arrives after a later one.
    Reordered,
    /// Number that has arrived before.
    Duplicate,
    /// Older than the window, so the kind is unknown. Counted as a duplicate, because a receiver must not claim an
    /// original that it cannot prove. The report mentions such frames.
    BeyondWindow,
}

/// Number of sequence numbers that a flow remembers up to the highest one: a power of two from [`WindowSize::MIN`] to
/// [`WindowSize::MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WindowSize(u32);

impl WindowSize {
    /// Smallest window: 1024 sequence numbers, 128 bytes.
    pub const MIN: WindowSize = WindowSize(1 << 10);
    /// Largest window: 1,048,576 sequence numbers, 128 KiB; 70 ms at 14.88 Mpps.
    pub const MAX: WindowSize = WindowSize(1 << 20);
    /// Memory limit for the windows of all flows of one worker, in bytes.
    pub const MEMORY: usize = 64 << 20;

    /// Creates a window of `sequences` numbers, if that is a power of two within the limits.
    pub fn new(sequences: u32) -> Option<WindowSize> {
        let allowed = Self::MIN.0..=Self::MAX.0;
        (sequences.is_power_of_two() && allowed.contains(&sequences)).then_some(Self(sequences))
    }

    /// Largest window with which `flows` flows stay within [`WindowSize::MEMORY`]. From 524,289 flows on it is
    /// [`WindowSize::MIN`], at 128 bytes per flow.
    pub fn for_flows(flows: usize) -> WindowSize {
        let share = (Self::MEMORY * 8) / flows.max(1);
        let power = share
            .max(1)
            .ilog2()
            .clamp(Self::MIN.0.ilog2(), Self::MAX.0.ilog2());
        WindowSize(1 << power)
    }

    /// Number of sequence numbers.
    pub fn get(self) -> u32 {
        self.0
    }

    /// Number of 64-bit words in the window.
    pub(crate) fn words(self) -> usize {
        self.0 as usize / 64
    }

    /// Half the window, or None for the smallest one.
    pub(crate) fn halved(self) -> Option<WindowSize> {
        (self > Self::MIN).then_some(Self(self.0 / 2))
    }
}

/// Tracks a single flow. [`Analyser`](crate::Analyser) tracks many flows in one block of memory by the same rules.
///
/// The numbers of a flow start at 0. The first arrival may have any number; lower ones are missing until they arrive.
#[derive(Clone, Debug)]
pub struct SequenceTracker {
    next: u64,
    words: Box<[u64]>,
    received: u64,
    duplicates: u64,
    reordered: u64,
    beyond_window: u64,
}

impl SequenceTracker {
    /// Creates a tracker that remembers `window` sequence numbers.
    pub fn new(window: WindowSize) -> SequenceTracker {
        SequenceTracker {
            next: 0,
            words: vec![0; window.words()].into_boxed_slice(),
            received: 0,
            duplicates: 0,
            reordered: 0,
            beyond_window: 0,
        }
    }

    /// Handles the next arrival, given the low 32 bits of its sequence number.
    pub fn observe(&mut self, wire: u32) -> Arrival {
        self.received += 1;
        let arrival = observe(&mut self.next, &mut self.words, wire);
        match arrival {
            Arrival::InOrder { .. } => {}
            Arrival::Reordered => self.reordered += 1,
            Arrival::Duplicate => self.duplicates += 1,
            Arrival::BeyondWindow => {
                self.duplicates += 1;
                self.beyond_window += 1;
            }
        }
        arrival
    }

    /// All arrivals, including duplicates.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// Arrivals with a number that arrived before or is beyond the window.
    pub fn duplicates(&self) -> u64 {
        self.duplicates
    }

    /// Originals that arrived after a later one.
    pub fn reordered(&self) -> u64 {
        self.reordered
    }

    /// Arrivals older than the window; included in [`SequenceTracker::duplicates`].
    pub fn beyond_window(&self) -> u64 {
        self.beyond_window
    }

    /// Number of distinct sequence numbers received.
    pub fn unique(&self) -> u64 {
        self.received - self.duplicates
    }

    /// Numbers below the highest one that have not arrived.
    pub fn missing(&self) -> u64 {
        self.next - self.unique()
    }

    /// Highest number received, extended to 64 bits.
    pub fn highest(&self) -> Option<u64> {
        self.next.checked_sub(1)
    }
}

/// Records one arrival in a window of `words` (a power of two) with highest number `next - 1`.
#[inline]
pub(crate) fn observe(next: &mut u64, words: &mut [u64], wire: u32) -> Arrival {
    let sequence = unwrap(*next, wire);
    if sequence < *next {
        return observe_older(*next - sequence, words, sequence);
    }
    let gap = sequence - *next;
    if gap != 0 {
        forget(words, *next, gap);
    }
    let word = (sequence >> 6) as usize & (words.len() - 1);
    words[word] |= 1 << (sequence & 63);
    *next = sequence + 1;
    Arrival::InOrder { gap }
}

/// Extends `wire` to the 64-bit number nearest to `next`. Numbers start at 0, so a result below 0 becomes a leap
/// forward. Any other distance of 2^31 or more counts as backward: a gap of 2^31 frames or more (144 s of loss at 14.88
/// Mpps) looks like frames beyond the window.
#[inline]
pub(crate) fn unwrap(next: u64, wire: u32) -> u64 {
    let ahead = wire.wrapping_sub(next as u32) as i32;
    next.checked_add_signed(i64::from(ahead))
        .unwrap_or(u64::from(wire))
}

#[cold]
fn observe_older(age: u64, words: &mut [u64], sequence: u64) -> Arrival {
    if age > words.len() as u64 * 64 {
        return Arrival::BeyondWindow;
    }
    let word = &mut words[(sequence >> 6) as usize & (words.len() - 1)];
    let bit = 1 << (sequence & 63);
    if *word & bit != 0 {
        return Arrival::Duplicate;
    }
    *word |= bit;
    Arrival::Reordered
}

/// Clears the bits of `count` numbers starting at `from`: they still belong to numbers one window earlier.
#[cold]
fn forget(words: &mut [u64], from: u64, count: u64) {
    if count >= words.len() as u64 * 64 {
        words.fill(0);
        return;
    }
    let mask = words.len() - 1;
    let end = from + count;
    let mut at = from;
    while at < end {
        let first = at & 63;
        let bits = (64 - first).min(end - at);
        words[(at >> 6) as usize & mask] &= !((u64::MAX >> (64 - bits)) << first);
        at += bits;
    }
}

/// Word at `place` in a window of half the length of `words`, with the part that fits this window.
pub(crate) fn halved_word(words: &[u64], next: u64, place: usize) -> u64 {
    let (len, half) = (words.len() as u64, words.len() as u64 / 2);
    let at = |block: u64| words[(block & (len - 1)) as usize];
    let Some(newest) = next.checked_sub(1).map(|highest| highest >> 6) else {
        return 0;
    };
    let back = newest.wrapping_sub(place as u64) & (half - 1);
    let Some(block) = newest.checked_sub(back) else {
        return 0;
    };
    if block != newest || next & 63 == 0 {
        return at(block);
    }
    // The newest word is shared: above `next` it holds the oldest numbers of the window.
    let recent = (1u64 << (next & 63)) - 1;
    let oldest = newest.checked_sub(half).map_or(0, at);
    (at(newest) & recent) | (oldest & !recent)
}

#[cfg(test)]
mod tests {
    use super::*;

    const IN_ORDER: Arrival = Arrival::InOrder { gap: 0 };

    #[test]
    fn window_shrinks_with_the_number_of_flows() {
        for (flows, window) in [
            (0, 1 << 20),
            (1, 1 << 20),
            (512, 1 << 20),
            (513, 1 << 19),
            (10_000, 1 << 15),
            (524_288, 1 << 10),
            (5_000_000, 1 << 10),
        ] {
            let size = WindowSize::for_flows(flows);
            assert_eq!(size.get(), window, "{flows} flows");
            assert!(size == WindowSize::MIN || flows * size.words() * 8 <= WindowSize::MEMORY);
        }
        assert_eq!(WindowSize::new(1000), None);
        assert_eq!(WindowSize::new(512), None);
        assert_eq!(WindowSize::new(1 << 21), None);
        assert_eq!(WindowSize::new(4096).map(WindowSize::get), Some(4096));
    }

    #[test]
    fn first_arrival_may_be_any_number() {
        for first in [0, 1, 77, 1 << 31, u32::MAX] {
            let mut tracker = SequenceTracker::new(WindowSize::MIN);
            assert_eq!(
                tracker.observe(first),
                Arrival::InOrder {
                    gap: u64::from(first)
                }
            );
            assert_eq!(tracker.highest(), Some(u64::from(first)));
            assert_eq!(tracker.missing(), u64::from(first));
        }
    }

    #[test]
    fn numbers_go_on_past_the_wire_width_and_late_frames_find_back() {
        let mut tracker = SequenceTracker::new(WindowSize::MIN);
        tracker.observe(u32::MAX - 3);
        assert_eq!(tracker.observe(u32::MAX - 1), Arrival::InOrder { gap: 1 });
        assert_eq!(tracker.observe(1), Arrival::InOrder { gap: 2 });
        assert_eq!(tracker.highest(), Some((1 << 32) + 1));
        assert_eq!(tracker.observe(u32::MAX), Arrival::Reordered);
        assert_eq!(tracker.observe(u32::MAX), Arrival::Duplicate);
        assert_eq!(tracker.observe(0), Arrival::Reordered);
        assert_eq!(tracker.observe(u32::MAX - 2), Arrival::Reordered);
        assert_eq!(tracker.observe(u32::MAX - 3), Arrival::Duplicate);
        assert_eq!(tracker.observe(2), IN_ORDER);
        assert_eq!(
            (tracker.received(), tracker.unique(), tracker.reordered()),
            (9, 7, 3)
        );
    }

    #[test]
    fn every_wrap_is_counted() {
        let mut tracker = SequenceTracker::new(WindowSize::MIN);
        for step in 0..20u64 {
            tracker.observe((step << 30) as u32);
        }
        assert_eq!(tracker.highest(), Some(19 << 30));
    }

    #[test]
    fn edge_of_the_window() {
        let mut tracker = SequenceTracker::new(WindowSize::MIN);
        tracker.observe(2000);
        assert_eq!(tracker.observe(2000 - 1023), Arrival::Reordered);
        assert_eq!(tracker.observe(2000 - 1023), Arrival::Duplicate);
        assert_eq!(tracker.observe(2000 - 1024), Arrival::BeyondWindow);
        assert_eq!((tracker.duplicates(), tracker.beyond_window()), (2, 1));
    }

    #[test]
    fn leaps_clear_what_they_skip() {
        for leap in [1, 2, 3, 63, 64, 65, 127, 1000, 1023, 1024, 1025, 5000] {
            let mut tracker = SequenceTracker::new(WindowSize::MIN);
            for sequence in 0..3000 {
                assert_eq!(tracker.observe(sequence), IN_ORDER);
            }
            let landed = 2999 + leap;
            tracker.observe(landed);
            for sequence in 3000.max(landed.saturating_sub(1023))..landed {
                assert_eq!(
                    tracker.observe(sequence),
                    Arrival::Reordered,
                    "{sequence} after {leap}"
                );
            }
            for sequence in landed.saturating_sub(1023)..=landed {
                assert_eq!(
                    tracker.observe(sequence),
                    Arrival::Duplicate,
                    "{sequence} after {leap}"
                );
            }
        }
    }
}
