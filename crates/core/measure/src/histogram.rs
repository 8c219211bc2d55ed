//! Histogram of nanosecond values in fixed memory: recording takes a few instructions, merging is exact.
//!
//! Values below 1024 ns have one slot each. Above, every power of two is divided into 512 slots, so a slot is at most
//! 1/512 of its values wide, and its middle is at most 1/1024 (0.098 %) away from any of them. Reporting the edge of a
//! slot would need twice the slots for an error of 0.1 %. 17,408 slots reach to 2^42 ns (73 minutes) in 136 KiB. A run
//! touches only the few kilobytes around its latency; the other pages are never mapped.

use crate::summary::{Summary, moments};

/// Slots per power of two, as a power of two.
const PRECISION: u32 = 9;
const SLOTS: usize = slot_of(Histogram::MAX_VALUE) + 1;

const fn slot_of(value: u64) -> usize {
    slot_at(value, PRECISION)
}

const fn extent_of(slot: usize) -> (u64, u64) {
    extent_at(slot, PRECISION)
}

/// Slot of a value, given the slots per power of two as a power of two.
#[inline]
pub(crate) const fn slot_at(value: u64, precision: u32) -> usize {
    // Values with fewer bits than this have one slot each.
    let exact = 1 << (precision + 1);
    let shift = (value | (exact - 1)).ilog2() - precision;
    ((shift << precision) as u64 + (value >> shift)) as usize
}

/// Smallest value of a slot, and its width.
pub(crate) const fn extent_at(slot: usize, precision: u32) -> (u64, u64) {
    let shift = (slot >> precision).saturating_sub(1);
    (((slot - (shift << precision)) as u64) << shift, 1 << shift)
}

/// Distribution of values of 0 ns and more.
///
/// Count, sum, sum of squares, minimum and maximum are exact. Values above [`Histogram::MAX_VALUE`] are recorded as
/// that value and counted in [`Histogram::clamped`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram {
    count: u64,
    clamped: u64,
    sum: u128,
    squares: u128,
    min: u64,
    max: u64,
    slots: Box<[u64; SLOTS]>,
}

/// Non-empty slot of a [`Histogram`]: `count` values from `low` to `high`, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// Smallest value of the slot.
    pub low: u64,
    /// Largest value of the slot.
    pub high: u64,
    /// Number of values in the slot.
    pub count: u64,
}

impl Histogram {
    /// Largest value recorded exactly as it is: 2^42 - 1 ns, 73 minutes.
    pub const MAX_VALUE: u64 = (1 << 42) - 1;
    /// Maximum relative error of a percentile.
    pub const RELATIVE_ERROR: f64 = 1.0 / 1024.0;

    /// Creates an empty distribution.
    pub fn new() -> Histogram {
        Histogram {
            count: 0,
            clamped: 0,
            sum: 0,
            squares: 0,
            min: u64::MAX,
            max: 0,
            // Through a vector: the kernel maps its zeroed pages on first use.
            slots: vec![0; SLOTS].try_into().expect("as many as the type says"),
        }
    }

    /// Records one value.
    #[inline]
    pub fn record(&mut self, mut value: u64) {
        if value > Self::MAX_VALUE {
            self.clamped += 1;
            value = Self::MAX_VALUE;
        }
        self.count += 1;
        self.sum += u128::from(value);
        self.squares += u128::from(value) * u128::from(value);
        self.min = self.min.min(value);
        self.max = self.max.max(value);
        self.slots[slot_of(value)] += 1;
    }

    /// Number of slots: one per value below 1024, and 512 for each power of two above.
    pub const SLOTS: usize = SLOTS;

    /// Creates a distribution from values recorded elsewhere by the same rules: slot counts (read from the slot of
    /// `min` to that of `max` only), sums, extremes (`min` above `max` means no values), and number of clamped values.
    #[must_use]
    pub fn recorded(
        slot: impl Fn(usize) -> u64,
        (sum, squares): (u128, u128),
        (min, max): (u64, u64),
        clamped: u64,
    ) -> Histogram {
        let mut histogram = Histogram::new();
        if min > max {
            return histogram;
        }
        let max = max.min(Self::MAX_VALUE);
        for at in slot_of(min.min(max))..=slot_of(max) {
            histogram.slots[at] = slot(at);
            histogram.count += histogram.slots[at];
        }
        Histogram {
            clamped,
            sum,
            squares,
            min,
            max,
            ..histogram
        }
    }

    /// Adds all values of `other`.
    pub fn merge(&mut self, other: &Histogram) {
        // A distribution that was read back may have any counts.
        self.count = self.count.saturating_add(other.count);
        self.clamped = self.clamped.saturating_add(other.clamped);
        self.sum = self.sum.saturating_add(other.sum);
        self.squares = self.squares.saturating_add(other.squares);
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
        let used = other.used();
        for (mine, theirs) in self.slots[used.clone()].iter_mut().zip(&other.slots[used]) {
            *mine = mine.saturating_add(*theirs);
        }
    }

    /// Copy with every value reduced by `offset`; values below it become 0. A percentile is then within
    /// [`Histogram::RELATIVE_ERROR`] of the value before, not of the reduced value.
    #[must_use]
    pub fn lowered_by(&self, offset: u64) -> Histogram {
        let mut lowered = Histogram::new();
        let (mut sum, mut squares) = (0, 0);
        let mut record = |value: u64, count: u64| {
            lowered.slots[slot_of(value)] += count;
            sum += u128::from(value) * u128::from(count);
            squares += u128::from(value) * u128::from(value) * u128::from(count);
        };
        let [least, most] = [self.min, self.max].map(|value| value.saturating_sub(offset));
        for bucket in self.buckets() {
            let middle = bucket.low + (bucket.high - bucket.low) / 2;
            let value = middle.clamp(self.min, self.max).saturating_sub(offset);
            let mut count = bucket.count;
            // The smallest and the largest value are known, and are in the first and the last slot.
            for (is_here, known) in [
                (bucket.low <= self.min, least),
                (bucket.high >= self.max, most),
            ] {
                if is_here && count > 0 {
                    record(known, 1);
                    count -= 1;
                }
            }
            record(value.clamp(least, most), count);
        }
        if self.min >= offset {
            // All values are reduced alike, so the sums stay exact.
            let (count, offset) = (u128::from(self.count), u128::from(offset));
            sum = self.sum - count * offset;
            squares = self.squares + count * offset * offset - 2 * offset * self.sum;
        }
        if self.count > 0 {
            (lowered.min, lowered.max) = (least, most);
        }
        Histogram {
            count: self.count,
            clamped: self.clamped,
            sum,
            squares,
            ..lowered
        }
    }

    /// Number of values recorded.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Slot of a value.
    pub(crate) fn slot(value: u64) -> usize {
        slot_of(value.min(Self::MAX_VALUE))
    }

    /// Non-empty slots in ascending order with their numbers of values.
    pub(crate) fn counts(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        let counts = self.used().map(|slot| (slot, self.slots[slot]));
        counts.filter(|(_, count)| *count > 0)
    }

    /// Exact sums of the values and of their squares.
    pub(crate) fn sums(&self) -> (u128, u128) {
        (self.sum, self.squares)
    }

    /// Number of values above [`Histogram::MAX_VALUE`].
    pub fn clamped(&self) -> u64 {
        self.clamped
    }

    /// Exact sum of the values.
    pub fn sum(&self) -> u128 {
        self.sum
    }

    /// Smallest value.
    pub fn min(&self) -> Option<u64> {
        (self.count > 0).then_some(self.min)
    }

    /// Largest value.
    pub fn max(&self) -> Option<u64> {
        (self.count > 0).then_some(self.max)
    }

    /// Percentile by nearest rank, within [`Histogram::RELATIVE_ERROR`]. `percent` is from 0 to 100 and is rounded to
    /// four decimals.
    pub fn percentile(&self, percent: f64) -> Option<u64> {
        let millionths = (percent.clamp(0.0, 100.0) * 1e4).round() as u64;
        self.value_at_rank(nearest_rank(self.count, millionths))
    }

    /// Value at a rank counted from 1 (the smallest), within [`Histogram::RELATIVE_ERROR`]. The first and the last
    /// value are exact.
    pub fn value_at_rank(&self, rank: u64) -> Option<u64> {
        if rank == 0 || rank > self.count {
            return None;
        }
        if rank == 1 {
            return Some(self.min);
        }
        if rank == self.count {
            return Some(self.max);
        }
        let mut passed = 0;
        for slot in self.used() {
            passed += self.slots[slot];
            if passed >= rank {
                let (low, width) = extent_of(slot);
                return Some((low + width / 2).clamp(self.min, self.max));
            }
        }
        None
    }

    /// Non-empty slots in ascending order, for plots and cumulative curves.
    pub fn buckets(&self) -> impl Iterator<Item = Bucket> + '_ {
        self.used()
            .filter(|&slot| self.slots[slot] != 0)
            .map(|slot| {
                let (low, width) = extent_of(slot);
                Bucket {
                    low,
                    high: low + width - 1,
                    count: self.slots[slot],
                }
            })
    }

    /// Number of values from the slot of `low` to the slot of `high`.
    pub(crate) fn count_between(&self, low: u64, high: u64) -> u64 {
        self.slots[slot_of(low)..=slot_of(high)].iter().sum()
    }

    /// Figures for a report.
    pub fn summary(&self) -> Summary {
        summary_of(self.count, self.sum as i128, self.squares, |rank| {
            self.value_at_rank(rank).map(|value| value as i64)
        })
    }

    /// Slots between the extremes; all others are empty.
    fn used(&self) -> std::ops::Range<usize> {
        if self.count == 0 {
            return 0..0;
        }
        slot_of(self.min)..slot_of(self.max) + 1
    }
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram::new()
    }
}

/// Distribution of signed values in two [`Histogram`]s: the error of a percentile is relative to its distance from 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SignedHistogram {
    /// Absolute values of the values below 0.
    below: Histogram,
    above: Histogram,
}

impl SignedHistogram {
    /// Creates an empty distribution.
    pub fn new() -> SignedHistogram {
        SignedHistogram::default()
    }

    /// Creates a distribution from the absolute values below 0 and the values from 0 on.
    pub fn of_sides(below: Histogram, above: Histogram) -> SignedHistogram {
        SignedHistogram { below, above }
    }

    /// Absolute values of the values below 0, and values from 0 on.
    pub(crate) fn sides(&self) -> (&Histogram, &Histogram) {
        (&self.below, &self.above)
    }

    /// Records one value.
    #[inline]
    pub fn record(&mut self, value: i64) {
        let side = if value < 0 {
            &mut self.below
        } else {
            &mut self.above
        };
        side.record(value.unsigned_abs());
    }

    /// Adds all values of `other`.
    pub fn merge(&mut self, other: &SignedHistogram) {
        self.below.merge(&other.below);
        self.above.merge(&other.above);
    }

    /// Number of values recorded.
    pub fn count(&self) -> u64 {
        self.below.count + self.above.count
    }

    /// Non-empty slots in ascending order: smallest value, largest value, count.
    pub fn buckets(&self) -> impl Iterator<Item = (i64, i64, u64)> + '_ {
        let mut below: Vec<Bucket> = self.below.buckets().collect();
        below.reverse();
        let below = below.into_iter();
        let below = below.map(|b| (-(b.high as i64), -(b.low as i64), b.count));
        let above = self.above.buckets();
        below.chain(above.map(|b| (b.low as i64, b.high as i64, b.count)))
    }

    /// Number of values with an absolute value above [`Histogram::MAX_VALUE`].
    pub fn clamped(&self) -> u64 {
        self.below.clamped + self.above.clamped
    }

    /// Distribution of the absolute values.
    pub fn magnitudes(&self) -> Histogram {
        let mut magnitudes = self.above.clone();
        magnitudes.merge(&self.below);
        magnitudes
    }

    /// Value at a rank counted from 1 (the smallest), within [`Histogram::RELATIVE_ERROR`].
    pub fn value_at_rank(&self, rank: u64) -> Option<i64> {
        match rank.checked_sub(self.below.count) {
            None | Some(0) => {
                let amount = self
                    .below
                    .value_at_rank((self.below.count + 1).checked_sub(rank)?);
                amount.map(|amount| -(amount as i64))
            }
            Some(rank) => self.above.value_at_rank(rank).map(|amount| amount as i64),
        }
    }

    /// Figures for a report.
    pub fn summary(&self) -> Summary {
        let sum = self.above.sum as i128 - self.below.sum as i128;
        let squares = self.above.squares + self.below.squares;
        summary_of(self.count(), sum, squares, |rank| self.value_at_rank(rank))
    }
}

/// Nearest rank (from 1) of a percentile given in millionths.
pub(crate) fn nearest_rank(count: u64, millionths: u64) -> u64 {
    let rank = (u128::from(count) * u128::from(millionths)).div_ceil(1_000_000);
    (rank as u64).max(1)
}

fn summary_of(
    count: u64,
    sum: i128,
    squares: u128,
    value_at_rank: impl Fn(u64) -> Option<i64>,
) -> Summary {
    if count == 0 {
        return Summary::default();
    }
    let (mean, stddev) = moments(count, sum, squares);
    let at = |millionths| value_at_rank(nearest_rank(count, millionths));
    let median = match (at(500_000), value_at_rank(count / 2 + 1)) {
        (Some(low), Some(high)) => Some(low.midpoint(high)),
        _ => None,
    };
    let summary = Summary {
        samples: count,
        min: value_at_rank(1),
        mean: Some(mean),
        stddev: Some(stddev),
        max: value_at_rank(count),
        ..Summary::default()
    };
    Summary {
        p50: median,
        ..summary.with_percentiles(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_recorded_is_the_same_distribution() {
        for values in [&[][..], &[0], &[5, 5, 1023, 1024, 99_999, u64::MAX]] {
            let mut ours = Histogram::new();
            values.iter().for_each(|v| ours.record(*v));
            let theirs = Histogram::recorded(
                |slot| ours.slots[slot],
                (ours.sum, ours.squares),
                (ours.min, ours.max),
                ours.clamped,
            );
            assert_eq!(theirs, ours);
        }
    }

    #[test]
    fn lowered_values_keep_their_distribution() {
        let mut raised = Histogram::new();
        let mut plain = Histogram::new();
        for value in [40, 900, 12_345, 12_346, 700_000, 90_000_000] {
            raised.record(value + 10_000);
            plain.record(value);
        }
        let lowered = raised.lowered_by(10_000);
        let (a, b) = (lowered.summary(), plain.summary());
        assert_eq!(
            (a.samples, a.min, a.mean, a.stddev, a.max),
            (b.samples, b.min, b.mean, b.stddev, b.max)
        );
        for rank in 1..=6 {
            let (a, b) = (lowered.value_at_rank(rank), plain.value_at_rank(rank));
            let (a, b) = (a.unwrap() as f64, b.unwrap() as f64);
            let error = 2.0 * Histogram::RELATIVE_ERROR * (b + 10_000.0);
            assert!((a - b).abs() <= error, "{a} {b}");
        }
        assert_eq!(raised.lowered_by(0).summary(), raised.summary());
        assert_eq!(Histogram::new().lowered_by(5), Histogram::new());
        // It can be written and read.
        let values = crate::EncodedValues::from(&raised.lowered_by(10_000));
        assert_eq!(Histogram::try_from(&values).as_ref(), Ok(&lowered));
        // Values below the offset become 0.
        let lowered = plain.lowered_by(1_000);
        assert_eq!((lowered.min(), lowered.count()), (Some(0), 6));
        assert_eq!(lowered.value_at_rank(2), Some(0));
        assert_eq!(lowered.buckets().map(|b| b.count).sum::<u64>(), 6);
    }

    #[test]
    fn slots_follow_each_other_without_holes() {
        let mut expected_low = 0;
        for slot in 0..SLOTS {
            let (low, width) = extent_of(slot);
            assert_eq!(low, expected_low, "slot {slot}");
            assert_eq!((slot_of(low), slot_of(low + width - 1)), (slot, slot));
            assert!((width / 2) as f64 <= low as f64 * Histogram::RELATIVE_ERROR || width == 1);
            expected_low = low + width;
        }
        assert_eq!(expected_low, Histogram::MAX_VALUE + 1);
    }

    #[test]
    fn empty_has_no_values() {
        assert_eq!(Histogram::new().summary(), Summary::default());
        assert_eq!(SignedHistogram::new().summary(), Summary::default());
        assert_eq!(Histogram::new().percentile(50.0), None);
        assert_eq!(Histogram::new().buckets().count(), 0);
    }

    #[test]
    fn one_value_is_everything() {
        let mut histogram = Histogram::new();
        histogram.record(1_234_567);
        let summary = histogram.summary();
        assert_eq!(summary.samples, 1);
        for value in [
            summary.min,
            summary.p50,
            summary.p90,
            summary.p99,
            summary.p999,
            summary.p9999,
            summary.max,
        ] {
            assert_eq!(value, Some(1_234_567));
        }
        assert_eq!(
            (summary.mean, summary.stddev),
            (Some(1_234_567.0), Some(0.0))
        );
    }

    #[test]
    fn extremes_are_exact_within_a_slot() {
        let mut histogram = Histogram::new();
        for value in [1_000_001, 1_000_002, 1_000_003] {
            histogram.record(value);
        }
        let summary = histogram.summary();
        assert_eq!(
            (summary.min, summary.max),
            (Some(1_000_001), Some(1_000_003))
        );
    }

    #[test]
    fn too_large_values_are_clamped_and_counted() {
        let mut histogram = Histogram::new();
        histogram.record(u64::MAX);
        histogram.record(Histogram::MAX_VALUE);
        histogram.record(0);
        assert_eq!((histogram.count(), histogram.clamped()), (3, 1));
        assert_eq!(histogram.max(), Some(Histogram::MAX_VALUE));
        assert_eq!(histogram.min(), Some(0));
        let mut signed = SignedHistogram::new();
        signed.record(i64::MIN);
        assert_eq!(signed.summary().min, Some(-(Histogram::MAX_VALUE as i64)));
        assert_eq!(signed.clamped(), 1);
    }

    #[test]
    fn signed_ranks_run_through_zero() {
        let mut histogram = SignedHistogram::new();
        for value in [-7, 3, 0, -2, 900, -800] {
            histogram.record(value);
        }
        let ascending: Vec<_> = (0..=7).map(|rank| histogram.value_at_rank(rank)).collect();
        let expected = [-800, -7, -2, 0, 3, 900].map(Some);
        assert_eq!(ascending[1..7], expected);
        assert_eq!((ascending[0], ascending[7]), (None, None));
        assert_eq!(histogram.summary().p50, Some(-1));
    }

    #[test]
    fn percentile_takes_the_nearest_rank() {
        let mut histogram = Histogram::new();
        (1..=1000).for_each(|value| histogram.record(value));
        for (percent, value) in [(0.0, 1), (0.1, 1), (0.11, 2), (99.9, 999), (99.91, 1000)] {
            assert_eq!(histogram.percentile(percent), Some(value), "{percent} %");
        }
        assert_eq!(histogram.percentile(100.0), Some(1000));
    }
}
