//! Figures that a report prints for one distribution.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A distribution in figures. All but `samples` are absent when there are none.
// `samples`, `min`, `mean`, `stddev` and `max` are exact. The percentiles are nearest rank, the value at
// index ceil(p / 100 * samples) of the ascending list, within `Histogram::RELATIVE_ERROR` of it; `p50` of an
// even number of samples is the mean of the two in the middle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Summary {
    /// How many values.
    pub samples: u64,
    /// Smallest, exact.
    pub min: Option<i64>,
    /// Arithmetic mean, exact.
    pub mean: Option<f64>,
    /// Standard deviation of the whole population.
    pub stddev: Option<f64>,
    /// Median.
    pub p50: Option<i64>,
    /// 90th percentile, nearest rank.
    pub p90: Option<i64>,
    /// 99th percentile, nearest rank.
    pub p99: Option<i64>,
    /// 99.9th percentile, nearest rank.
    pub p999: Option<i64>,
    /// 99.99th percentile, nearest rank.
    pub p9999: Option<i64>,
    /// Largest, exact.
    pub max: Option<i64>,
}

impl Summary {
    /// Copy of the distribution with every value reduced by `offset`.
    pub(crate) fn lowered_by(self, offset: i64) -> Summary {
        let lower = |value: Option<i64>| value.map(|v| v - offset);
        Summary {
            samples: self.samples,
            min: lower(self.min),
            mean: self.mean.map(|mean| mean - offset as f64),
            stddev: self.stddev,
            p50: lower(self.p50),
            p90: lower(self.p90),
            p99: lower(self.p99),
            p999: lower(self.p999),
            p9999: lower(self.p9999),
            max: lower(self.max),
        }
    }
}

/// Mean and standard deviation of `count` > 0 values from their exact sums.
///
/// The squares are shifted to the mean in integer arithmetic. Floating-point subtraction of large latencies with little
/// variation would leave only noise.
pub(crate) fn moments(count: u64, sum: i128, squares: u128) -> (f64, f64) {
    let n = i128::from(count);
    let (near, rest) = (sum.div_euclid(n), sum.rem_euclid(n));
    let around_near = squares as i128 - 2 * near * sum + n * near * near;
    let beside = rest as f64 / n as f64;
    let variance = around_near as f64 / n as f64 - beside * beside;
    (near as f64 + beside, variance.max(0.0).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_of_few_values() {
        let (mean, stddev) = moments(4, 2 + 4 + 4 + 6, 4 + 16 + 16 + 36);
        assert_eq!(mean, 4.0);
        assert!((stddev - 2f64.sqrt()).abs() < 1e-12);
        let (mean, stddev) = moments(4, 0, 10 * 10 + 10 * 10 + 5 * 5 + 5 * 5);
        assert_eq!(mean, 0.0);
        assert!((stddev - 62.5f64.sqrt()).abs() < 1e-12);
    }

    #[test]
    fn a_large_mean_does_not_swallow_a_small_deviation() {
        let values = [4_000_000_000_000i128, 4_000_000_000_001, 4_000_000_000_002];
        let squares = values.iter().map(|v| (v * v) as u128).sum();
        let (mean, stddev) = moments(3, values.iter().sum(), squares);
        assert_eq!(mean, 4_000_000_000_001.0);
        assert!((stddev - (2.0f64 / 3.0).sqrt()).abs() < 1e-9, "{stddev}");
    }
}
