//! A distribution as reports have it.

use wb_measure::Histogram;
use wb_model::Summary;

/// The figures of a histogram.
pub(crate) fn summary(histogram: &Histogram) -> Summary {
    let figures = histogram.summary();
    Summary {
        samples: figures.samples,
        min: figures.min,
        mean: figures.mean,
        stddev: figures.stddev,
        p50: figures.p50,
        p90: figures.p90,
        p99: figures.p99,
        p999: figures.p999,
        max: figures.max,
    }
}
