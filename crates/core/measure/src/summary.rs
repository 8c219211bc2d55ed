//! Statistics of one distribution in a report.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Declares [`Summary`] with its percentiles.
macro_rules! summary {
    ($($(#[$doc:meta])* $name:ident = $millionths:literal, $label:literal;)*) => {
        /// Statistics of a distribution. All but `samples` are absent if there are no samples.
        // `samples`, `min`, `mean`, `stddev` and `max` are exact. The percentiles are nearest rank, the value at
        // index ceil(p / 100 * samples) of the ascending list, within `Histogram::RELATIVE_ERROR` of it; `p50` of an
        // even number of samples is the mean of the two in the middle.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
        pub struct Summary {
            /// Number of values.
            pub samples: u64,
            /// Minimum, exact.
            pub min: Option<i64>,
            /// Arithmetic mean, exact.
            pub mean: Option<f64>,
            /// Standard deviation of the whole population.
            pub stddev: Option<f64>,
            $($(#[$doc])* pub $name: Option<i64>,)*
            /// Maximum, exact.
            pub max: Option<i64>,
        }

        impl Summary {
            /// Percentiles: name in reports, label for people, and percentile in millionths.
            pub const PERCENTILES: &[(&str, &str, u64)] = &[$((stringify!($name), $label, $millionths)),*];

            /// Returns all statistics by their names in reports, in order.
            pub fn statistics(&self) -> impl Iterator<Item = (&'static str, Option<f64>)> {
                let whole = |value: Option<i64>| value.map(|v| v as f64);
                [
                    ("min", whole(self.min)),
                    ("mean", self.mean),
                    ("stddev", self.stddev),
                    $((stringify!($name), whole(self.$name)),)*
                    ("max", whole(self.max)),
                ]
                .into_iter()
            }

            /// Copy with the percentiles that `at` returns for millionths.
            pub(crate) fn with_percentiles(self, at: impl Fn(u64) -> Option<i64>) -> Self {
                Self { $($name: at($millionths),)* ..self }
            }

            /// Copy of the distribution with every value reduced by `offset`.
            #[must_use]
            pub fn lowered_by(self, offset: i64) -> Self {
                let lower = |value: Option<i64>| value.map(|v| v - offset);
                Self {
                    min: lower(self.min),
                    mean: self.mean.map(|mean| mean - offset as f64),
                    $($name: lower(self.$name),)*
                    max: lower(self.max),
                    ..self
                }
            }
        }
    };
}

summary! {
    /// Median.
    p50 = 500_000, "p50";
    /// 90th percentile, nearest rank.
    p90 = 900_000, "p90";
    /// 95th percentile, nearest rank.
    p95 = 950_000, "p95";
    /// 99th percentile, nearest rank.
    p99 = 990_000, "p99";
    /// 99.9th percentile, nearest rank.
    p999 = 999_000, "p99.9";
    /// 99.99th percentile, nearest rank.
    p9999 = 999_900, "p99.99";
    /// 99.999th percentile, nearest rank.
    p99999 = 999_990, "p99.999";
}

impl Summary {
    /// Returns a statistic by its name in reports: `mean`, `p99`. `None` if it does not exist or has no value.
    #[must_use]
    pub fn statistic(&self, name: &str) -> Option<f64> {
        let (_, value) = self.statistics().find(|(own, _)| *own == name)?;
        value
    }

    /// Label of a statistic for people: `p99.9` for `p999`.
    #[must_use]
    pub fn label(name: &'static str) -> &'static str {
        let known = Self::PERCENTILES.iter().find(|(own, ..)| *own == name);
        known.map_or(name, |(_, label, _)| label)
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
