//! wrk's arithmetic over counted values.

use std::cmp::Reverse;

use crate::extended::Extended;

/// Values and their frequencies: latencies in µs, or requests per second.
///
/// Mean, deviation and percentiles cover all values, including those added by [`Stats::correct_omission`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Ascending, each value once, each count above 0.
    counted: Vec<(u64, u64)>,
    /// Samples in `counted`, plus the samples that the correction added below its smallest value. The original counts
    /// the latter but ignores them otherwise.
    samples: u64,
}

impl Stats {
    /// Makes statistics from values and their frequencies, in any order.
    #[must_use]
    pub fn new(values: impl IntoIterator<Item = (u64, u64)>) -> Self {
        let counted = merge_equal(values.into_iter().filter(|&(_, n)| n > 0).collect());
        let samples = counted.iter().map(|&(_, n)| n).sum();
        Self { counted, samples }
    }

    /// wrk's correction for coordinated omission. A connection always has a request in flight, so it should receive
    /// a response every `elapsed_us` / (`responses` / `connections`). A sample of at least twice that interval stands
    /// for the requests that were not sent meanwhile, and they are added. Adds nothing for less than one response
    /// per connection.
    ///
    /// Needs a few words of memory for each added value.
    pub fn correct_omission(&mut self, elapsed_us: u64, responses: u64, connections: u64) {
        let each = responses.checked_div(connections).unwrap_or(0);
        let expected = elapsed_us.checked_div(each).unwrap_or(0);
        // The original loops endlessly for an interval of 0.
        if expected > 0 {
            self.add_missing(expected);
        }
    }

    /// Each sample v adds one at v − `expected`, v − 2 · `expected` and so on, as long as these stay above `expected`.
    fn add_missing(&mut self, expected: u64) {
        let min = self.min();
        // Samples that differ by a multiple of the interval add samples at the same values. They are handled together,
        // starting at the largest.
        let mut late: Vec<(u64, u64)> = (self.counted.iter().copied())
            .filter(|&(v, _)| v / 2 >= expected)
            .collect();
        late.sort_unstable_by_key(|&(v, _)| (v % expected, Reverse(v)));
        let mut added = Vec::new();
        for walk in late.chunk_by(|a, b| a.0 % expected == b.0 % expected) {
            let mut count = 0;
            for (nth, &(value, n)) in walk.iter().enumerate() {
                count += n;
                let last = walk.get(nth + 1).map_or(expected + 1, |next| next.0);
                let mut at = value;
                while at - expected >= last {
                    at -= expected;
                    self.samples += count;
                    if at >= min {
                        added.push((at, count));
                    }
                }
            }
        }
        added.append(&mut self.counted);
        self.counted = merge_equal(added);
    }

    /// The smallest value; 2^64 − 1 if there is none.
    #[must_use]
    pub fn min(&self) -> u64 {
        self.counted.first().map_or(u64::MAX, |&(v, _)| v)
    }

    /// The largest value; 0 if there is none.
    #[must_use]
    pub fn max(&self) -> u64 {
        self.counted.last().map_or(0, |&(v, _)| v)
    }

    /// Number of samples.
    #[must_use]
    pub fn samples(&self) -> u64 {
        self.samples
    }

    /// The mean; 0 if there are no samples.
    #[must_use]
    pub fn mean(&self) -> f64 {
        self.exact_mean().to_f64()
    }

    pub(crate) fn exact_mean(&self) -> Extended {
        let sum: u128 = (self.counted.iter())
            .map(|&(v, n)| u128::from(v) * u128::from(n))
            .sum();
        Extended::from(sum) / Extended::from(self.samples)
    }

    /// Sample standard deviation; 0 for fewer than two samples.
    #[must_use]
    pub fn stdev(&self) -> f64 {
        if self.samples < 2 {
            return 0.0;
        }
        let mean = self.mean();
        let squares: f64 = (self.counted.iter())
            .map(|&(v, n)| (v as f64 - mean).powi(2) * n as f64)
            .sum();
        (squares / (self.samples - 1) as f64).sqrt()
    }

    /// Samples within one standard deviation of the mean, in percent; `None` without samples.
    pub(crate) fn within_stdev(&self) -> Option<Extended> {
        let (mean, stdev) = (self.mean(), self.stdev());
        let within: u64 = (self.counted.iter())
            .filter(|&&(v, _)| (mean - stdev..=mean + stdev).contains(&(v as f64)))
            .map(|&(_, n)| n)
            .sum();
        let share = Extended::from(within) / self.samples.into();
        (self.samples > 0).then(|| share * Extended::from(100u64))
    }

    /// Smallest value that `percent` of the samples do not exceed, by wrk's rank. That rank is one higher than usual if
    /// the usual one is a whole number. 0 if the rank exceeds the number of samples, as for 100.
    #[must_use]
    pub fn percentile(&self, percent: f64) -> u64 {
        let rank = match percent {
            0.0..=f64::MAX => {
                let part = Extended::from_f64(percent) / Extended::from(100u64);
                let rank = part * Extended::from(self.samples) + Extended::from_f64(0.5);
                rank.to_f64().round()
            }
            _ => (percent / 100.0 * self.samples as f64 + 0.5).round(),
        };
        // Below 0 the conversion in the original wraps around.
        if !rank.is_finite() || rank < 0.0 {
            return 0;
        }
        let mut total = 0;
        (self.counted.iter())
            .find(|&&(_, n)| {
                total += n;
                total as f64 >= rank
            })
            .map_or(0, |&(v, _)| v)
    }

    /// Number of distinct values.
    #[must_use]
    pub fn distinct_values(&self) -> usize {
        self.counted.len()
    }

    /// Value at a 0-based position in ascending order, and its frequency.
    #[must_use]
    pub fn value_at(&self, index: usize) -> Option<(u64, u64)> {
        self.counted.get(index).copied()
    }
}

/// Sorts values and adds up the frequencies of equal ones.
fn merge_equal(mut values: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    values.sort_unstable();
    values.dedup_by(|later, kept| {
        let same = later.0 == kept.0;
        if same {
            kept.1 += later.1;
        }
        same
    });
    values
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Algorithm of the original on an array: for each value in ascending order, each missing sample.
    fn one_by_one(values: &[(u64, u64)], expected: u64) -> (Vec<(u64, u64)>, u64) {
        let before = Stats::new(values.iter().copied());
        let (min, max) = (before.min(), before.max());
        let mut array = [0u64; 600];
        for &(v, n) in values {
            array[v as usize] += n;
        }
        for v in (expected * 2)..=max {
            let mut at = v - expected;
            while at > expected {
                array[at as usize] += array[v as usize];
                at -= expected;
            }
        }
        let samples = array.iter().sum();
        let counted = (array.iter().enumerate())
            .map(|(v, &n)| (v as u64, n))
            .filter(|&(v, n)| n > 0 && v >= min)
            .collect();
        (counted, samples)
    }

    proptest! {
        #[test]
        fn what_is_missing_is_added_as_one_by_one(
            values in prop::collection::vec((0u64..600, 0u64..4), 0..40),
            expected in 1u64..300,
        ) {
            let mut stats = Stats::new(values.iter().copied());
            let (counted, samples) = one_by_one(&values, expected);
            stats.add_missing(expected);
            prop_assert_eq!((stats.counted.clone(), stats.samples()), (counted, samples));
            let all: u64 = stats.counted.iter().map(|&(_, n)| n).sum();
            prop_assert!(all <= samples);
        }

        #[test]
        fn percentiles_rise_and_are_samples(
            values in prop::collection::vec((0u64..600, 1u64..4), 1..40),
            percents in prop::collection::vec(0.0f64..99.0, 2),
        ) {
            let stats = Stats::new(values);
            let [low, high] = [percents[0].min(percents[1]), percents[0].max(percents[1])];
            let [a, b] = [low, high].map(|p| stats.percentile(p));
            prop_assert!(a <= b);
            prop_assert!((0..stats.distinct_values()).any(|i| stats.value_at(i).unwrap().0 == a));
            prop_assert_eq!(stats.percentile(0.0), stats.min());
            prop_assert_eq!(stats.percentile(100.0), 0);
        }
    }

    #[test]
    fn two_samples() {
        let stats = Stats::new([(2, 1), (1, 1)]);
        assert_eq!((stats.percentile(50.0), stats.percentile(100.0)), (2, 0));
        assert_eq!(
            (stats.mean(), stats.within_stdev()),
            (1.5, Some(100u64.into()))
        );
        assert_eq!(stats.stdev(), 0.5f64.sqrt());
        assert_eq!((stats.distinct_values(), stats.samples()), (2, 2));
        assert_eq!(
            [0, 1, 2].map(|i| stats.value_at(i)),
            [Some((1, 1)), Some((2, 1)), None]
        );
    }

    #[test]
    fn a_stall_is_filled_with_what_could_not_be_sent() {
        let mut stats = Stats::new([(5000, 99), (45_000, 1)]);
        stats.correct_omission(1_000_000, 100, 1);
        let added = [
            (5000, 99),
            (15_000, 1),
            (25_000, 1),
            (35_000, 1),
            (45_000, 1),
        ];
        assert_eq!(stats.counted, added);
        assert_eq!((stats.samples(), stats.percentile(99.0)), (103, 35_000));
        assert_eq!(format!("{:.1}", stats.mean()), "5970.9");
    }

    #[test]
    fn nothing_is_added_at_the_interval_itself() {
        let mut stats = Stats::new([(10, 1), (30, 1)]);
        stats.add_missing(10);
        assert_eq!(stats.counted, [(10, 1), (20, 1), (30, 1)]);
        assert_eq!(stats.samples(), 3);
    }

    #[test]
    fn added_samples_below_the_smallest_are_only_counted() {
        let mut stats = Stats::new([(45_000, 1)]);
        stats.add_missing(10_000);
        assert_eq!((stats.samples(), stats.distinct_values()), (4, 1));
        assert_eq!(stats.mean(), 11_250.0);
        assert_eq!(
            (stats.percentile(20.0), stats.percentile(25.0)),
            (45_000, 0)
        );
        assert_eq!(stats.within_stdev(), Some(Extended::from(0u64)));
    }

    #[test]
    fn without_one_response_for_each_connection_nothing_is_added() {
        let whole = Stats::new([(5000, 9), (900_000, 1)]);
        for (elapsed, responses, connections) in [(1_000_000, 9, 10), (1_000_000, 0, 0), (9, 10, 1)]
        {
            let mut stats = whole.clone();
            stats.correct_omission(elapsed, responses, connections);
            assert_eq!(stats, whole);
        }
    }

    #[test]
    fn nothing_was_seen() {
        let mut stats = Stats::new([(7, 0)]);
        stats.correct_omission(1_000_000, 10, 1);
        assert_eq!(
            (stats.min(), stats.max(), stats.samples()),
            (u64::MAX, 0, 0)
        );
        assert_eq!(
            (stats.mean(), stats.stdev(), stats.within_stdev()),
            (0.0, 0.0, None)
        );
        assert_eq!((stats.percentile(50.0), stats.value_at(0)), (0, None));
    }

    #[test]
    fn a_percentile_that_is_none() {
        let stats = Stats::new([(3, 10)]);
        for percent in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -20.0, 1e300] {
            assert_eq!(stats.percentile(percent), 0, "{percent}");
        }
        // Rounded to rank 0, which the first value already satisfies.
        assert_eq!(stats.percentile(-1.0), 3);
    }
}
