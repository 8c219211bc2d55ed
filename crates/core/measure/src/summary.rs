//! The figures a report prints of one distribution.

/// Samples, extremes, moments and percentiles of one measured quantity, as the report blocks
/// (`latency_ns`, `jitter_ns`, `ipdv_ns`, `pdv_ns`, `inter_arrival_ns`) hold them.
///
/// Without samples every value is `None`. `samples`, `min`, `mean`, `stddev` and `max` are exact.
/// The percentiles are nearest rank, the value at index ceil(p / 100 * samples) of the ascending
/// list, within [`Histogram::RELATIVE_ERROR`](crate::Histogram::RELATIVE_ERROR) of it; `p50` of an
/// even number of samples is the mean of the two in the middle.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Summary {
    /// How many values were recorded.
    pub samples: u64,
    /// The smallest value.
    pub min: Option<i64>,
    /// The arithmetic mean.
    pub mean: Option<f64>,
    /// The standard deviation of the samples themselves (divided by n, not n - 1).
    pub stddev: Option<f64>,
    /// The median.
    pub p50: Option<i64>,
    /// 90 % of the values are not above it.
    pub p90: Option<i64>,
    /// 99 % of the values are not above it.
    pub p99: Option<i64>,
    /// 99.9 % of the values are not above it.
    pub p999: Option<i64>,
    /// The largest value.
    pub max: Option<i64>,
}

impl Summary {
    /// The same distribution with every value `offset` smaller.
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
            max: lower(self.max),
        }
    }
}

/// Mean and standard deviation of `count` > 0 values from their exact sums.
///
/// The squares are moved next to the mean before they leave integer arithmetic; subtracted as
/// floating-point numbers, large latencies with little variation would cancel to noise.
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
