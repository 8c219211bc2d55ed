//! Coarse histogram that a worker can pass on while it records.
//!
//! A [`Histogram`] belongs to the thread that records into it. An outline has 16 slots for each power of two instead of
//! 512, 5 KB in total. A worker can therefore summarise its histogram for another thread a few times per second: this
//! takes some microseconds each time, and nothing per recorded value.

use std::{
    fmt,
    sync::{
        Mutex, MutexGuard, PoisonError, TryLockError,
        atomic::{AtomicBool, Ordering},
    },
};

use crate::histogram::{Bucket, Histogram, extent_at, nearest_rank, slot_at};

/// Slots per power of two, as a power of two.
const PRECISION: u32 = 4;
const SLOTS: usize = slot_at(Histogram::MAX_VALUE, PRECISION) + 1;

/// Number of values per slot; a slot is at most 1/16 of its values wide.
#[derive(Clone, PartialEq, Eq)]
pub struct Outline(Box<[u64; SLOTS]>);

impl Outline {
    /// Maximum relative error of a percentile.
    pub const RELATIVE_ERROR: f64 = 1.0 / 32.0;
    /// Number of slots.
    pub const SLOTS: usize = SLOTS;

    /// Slot of a value. Values above [`Histogram::MAX_VALUE`] belong to the slot of that value.
    #[must_use]
    pub fn slot(value: u64) -> usize {
        slot_at(value.min(Histogram::MAX_VALUE), PRECISION)
    }

    /// Adds the values of a histogram.
    pub fn add(&mut self, histogram: &Histogram) {
        let (Some(min), Some(max)) = (histogram.min(), histogram.max()) else {
            return;
        };
        for slot in Self::slot(min)..=Self::slot(max) {
            let (low, width) = extent_at(slot, PRECISION);
            self.0[slot] += histogram.count_between(low, low + width - 1);
        }
    }

    /// Adds `count` values to a slot.
    ///
    /// # Panics
    /// Panics if the slot does not exist.
    pub fn add_to_slot(&mut self, slot: usize, count: u64) {
        self.0[slot] += count;
    }

    /// Adds the values of another outline.
    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.0.iter_mut().zip(other.0.iter()) {
            *mine += theirs;
        }
    }

    /// Slots with more values than in `earlier`, with the difference.
    pub fn since<'a>(&'a self, earlier: &'a Self) -> impl Iterator<Item = (usize, u64)> + 'a {
        let pairs = self.0.iter().zip(earlier.0.iter()).enumerate();
        pairs.filter_map(|(slot, (now, then))| {
            let more = now.saturating_sub(*then);
            (more > 0).then_some((slot, more))
        })
    }

    /// Number of values.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Percentile by nearest rank, within [`Outline::RELATIVE_ERROR`]. None if there are no values.
    #[must_use]
    pub fn percentile(&self, percent: f64) -> Option<u64> {
        let counts = self.0.iter().copied().enumerate();
        percentile(counts.filter(|(_, n)| *n > 0), percent)
    }

    /// Number of values per slot, from the first to the last non-empty slot.
    pub fn counts(&self) -> impl Iterator<Item = u64> + '_ {
        let last = self.0.iter().rposition(|n| *n > 0).map_or(0, |at| at + 1);
        self.0[..last].iter().copied().skip_while(|n| *n == 0)
    }

    /// Non-empty slots in ascending order.
    pub fn buckets(&self) -> impl Iterator<Item = Bucket> + '_ {
        let used = self.0.iter().enumerate().filter(|(_, count)| **count > 0);
        used.map(|(slot, &count)| {
            let (low, width) = extent_at(slot, PRECISION);
            Bucket {
                low,
                high: low + width - 1,
                count,
            }
        })
    }
}

/// [`Outline::percentile`] from slots in ascending order with their numbers of values.
pub fn percentile(slots: impl Iterator<Item = (usize, u64)> + Clone, percent: f64) -> Option<u64> {
    let count = slots.clone().map(|(_, n)| n).sum();
    let millionths = (percent.clamp(0.0, 100.0) * 1e4).round() as u64;
    let rank = nearest_rank(count, millionths);
    let mut passed = 0;
    for (slot, n) in slots {
        passed += n;
        if passed >= rank {
            let (low, width) = extent_at(slot, PRECISION);
            return Some(low + width / 2);
        }
    }
    None
}

impl Default for Outline {
    fn default() -> Self {
        Self(vec![0; SLOTS].try_into().expect("as many as the type says"))
    }
}

impl fmt::Debug for Outline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.buckets()).finish()
    }
}

/// Shared place for the outline of one worker, published on request.
///
/// The worker never waits. It publishes an outline when it checks and finds a request, or at its next check if another
/// thread is reading the previous one.
#[derive(Debug, Default)]
pub struct ShownOutline {
    wanted: AtomicBool,
    outline: Mutex<Outline>,
}

impl ShownOutline {
    /// Requests a new outline.
    pub fn ask(&self) {
        self.wanted.store(true, Ordering::Relaxed);
    }

    /// Returns true if a request is pending.
    #[inline]
    #[must_use]
    pub fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::Relaxed)
    }

    /// Publishes an outline filled by `fill`. Returns false, and does nothing, if another thread is reading.
    pub fn show(&self, fill: impl FnOnce(&mut Outline)) -> bool {
        let mut place = match self.outline.try_lock() {
            Ok(place) => place,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return false,
        };
        self.wanted.store(false, Ordering::Relaxed);
        place.0.fill(0);
        fill(&mut place);
        true
    }

    /// Outline published last.
    pub fn read(&self) -> MutexGuard<'_, Outline> {
        self.outline.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(values: &[u64]) -> (Histogram, Outline) {
        let mut histogram = Histogram::new();
        values.iter().for_each(|v| histogram.record(*v));
        let mut outline = Outline::default();
        outline.add(&histogram);
        (histogram, outline)
    }

    #[test]
    fn it_is_empty_of_nothing() {
        let (_, outline) = of(&[]);
        assert_eq!((outline.count(), outline.percentile(50.0)), (0, None));
        assert!(outline.buckets().next().is_none());
    }

    #[test]
    fn it_is_small() {
        assert!(size_of::<[u64; SLOTS]>() <= 5_120, "{SLOTS}");
    }

    #[test]
    fn one_is_shown_when_it_was_asked_for() {
        let shown = ShownOutline::default();
        assert!(!shown.is_wanted());
        shown.ask();
        assert!(shown.is_wanted());
        {
            let _reader = shown.read();
            assert!(!shown.show(|_| panic!("somebody reads")));
            assert!(shown.is_wanted());
        }
        for _ in 0..2 {
            assert!(shown.show(|outline| outline.merge(&of(&[7, 7]).1)));
            assert_eq!(shown.read().count(), 2);
            assert!(!shown.is_wanted());
        }
    }

    proptest! {
        #[test]
        fn it_holds_every_value_near_where_it_was(
            values in prop::collection::vec(prop_oneof![0..2048u64, 0..1u64 << 43], 1..60),
            percent in 0.0..100.0f64,
        ) {
            let (histogram, outline) = of(&values);
            prop_assert_eq!(outline.count(), values.len() as u64);
            let held: u64 = outline.buckets().map(|b| b.count).sum();
            prop_assert_eq!(held, values.len() as u64);
            prop_assert_eq!(outline.counts().sum::<u64>(), held);
            prop_assert!(outline.counts().next() > Some(0) && outline.counts().last() > Some(0));
            let mut sorted = values.clone();
            sorted.iter_mut().for_each(|v| *v = (*v).min(Histogram::MAX_VALUE));
            sorted.sort_unstable();
            let rank = nearest_rank(histogram.count(), (percent * 1e4).round() as u64);
            let exact = sorted[rank as usize - 1] as f64;
            let told = outline.percentile(percent).unwrap() as f64;
            prop_assert!((told - exact).abs() <= exact * Outline::RELATIVE_ERROR + 0.5, "{told} {exact}");
        }

        #[test]
        fn what_came_since_is_the_rest(
            before in prop::collection::vec(0..1u64 << 30, 0..40),
            after in prop::collection::vec(0..1u64 << 30, 0..40),
        ) {
            let (_, first) = of(&before);
            let (_, all) = of(&[before.clone(), after.clone()].concat());
            let mut rest = Outline::default();
            for (slot, n) in all.since(&first) {
                rest.add_to_slot(slot, n);
            }
            prop_assert_eq!(&rest, &of(&after).1);
            rest.merge(&first);
            prop_assert_eq!(rest, all);
        }
    }
}
