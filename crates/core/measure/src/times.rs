//! A distribution in a report: its statistics and, if available, all its values.

use std::{borrow::Cow, ops::Deref, sync::Arc};

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};

use crate::{Histogram, Summary};

/// A distribution. It is serialised as its [`Summary`], without its histogram.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(from = "Summary", into = "Summary")]
pub struct Times {
    summary: Summary,
    histogram: Option<Arc<Histogram>>,
}

impl Times {
    /// All values, if available.
    pub fn histogram(&self) -> Option<&Histogram> {
        self.histogram.as_deref()
    }

    /// The statistics.
    pub const fn summary(&self) -> &Summary {
        &self.summary
    }

    /// Adds all values to statistics that were read from a report. Does nothing if the number of values differs.
    pub fn attach(&mut self, values: &Histogram) {
        if values.count() == self.samples {
            *self = Self::from(values);
        }
    }

    /// Statistics of two distributions together, as [`Times::merge`] without histograms.
    #[must_use]
    pub fn statistics_of(one: Summary, other: Summary) -> Summary {
        let mut both = Self::from(one);
        both.merge(&Self::from(other));
        both.summary
    }

    /// Adds another distribution. The result is exact if both histograms are available. Otherwise, only the number of
    /// samples, minimum, mean and maximum are known.
    pub fn merge(&mut self, other: &Self) {
        if other.samples == 0 {
            return;
        }
        if self.samples == 0 {
            *self = other.clone();
            return;
        }
        if let (Some(own), Some(other)) = (&mut self.histogram, &other.histogram) {
            let own = Arc::make_mut(own);
            own.merge(other);
            self.summary = own.summary();
            return;
        }
        let (own, other) = (self.summary, other.summary);
        let samples = own.samples.saturating_add(other.samples);
        let weighted = |s: Summary| s.mean.map(|mean| mean * s.samples as f64 / samples as f64);
        *self = Self::from(Summary {
            samples,
            min: own.min.min(other.min),
            mean: weighted(own).zip(weighted(other)).map(|(a, b)| a + b),
            max: own.max.max(other.max),
            ..Summary::default()
        });
    }
}

impl Deref for Times {
    type Target = Summary;

    fn deref(&self) -> &Summary {
        &self.summary
    }
}

impl PartialEq for Times {
    fn eq(&self, other: &Self) -> bool {
        self.summary == other.summary
    }
}

impl From<Summary> for Times {
    fn from(summary: Summary) -> Self {
        Self {
            summary,
            histogram: None,
        }
    }
}

impl From<Times> for Summary {
    fn from(times: Times) -> Self {
        times.summary
    }
}

impl From<&Histogram> for Times {
    fn from(histogram: &Histogram) -> Self {
        Self {
            summary: histogram.summary(),
            histogram: (histogram.count() > 0).then(|| Arc::new(histogram.clone())),
        }
    }
}

impl JsonSchema for Times {
    fn schema_name() -> Cow<'static, str> {
        Summary::schema_name()
    }

    fn schema_id() -> Cow<'static, str> {
        Summary::schema_id()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        Summary::json_schema(generator)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn times(values: &[u64]) -> Times {
        let mut histogram = Histogram::new();
        values.iter().for_each(|v| histogram.record(*v));
        Times::from(&histogram)
    }

    proptest! {
        #[test]
        fn merged_halves_equal_the_whole(
            a in prop::collection::vec(0u64..10_000_000, 0..50),
            b in prop::collection::vec(0u64..10_000_000, 0..50),
        ) {
            let mut merged = times(&a);
            merged.merge(&times(&b));
            let whole = times(&[a, b].concat());
            prop_assert_eq!(merged.summary(), whole.summary());
            prop_assert_eq!(merged.histogram(), whole.histogram());
        }
    }

    #[test]
    fn without_histograms_percentiles_are_unknown() {
        let mut merged = Times::from(*times(&[1, 3]).summary());
        merged.merge(&times(&[8, 8]));
        let s = merged.summary();
        assert_eq!(
            (s.samples, s.min, s.mean, s.max),
            (4, Some(1), Some(5.0), Some(8))
        );
        assert_eq!((s.p50, s.stddev), (None, None));
        assert!(merged.histogram().is_none());
    }

    #[test]
    fn it_is_written_as_its_summary() {
        let own = times(&[1, 2, 3]);
        let text = serde_json::to_string(&own).unwrap();
        assert_eq!(text, serde_json::to_string(own.summary()).unwrap());
        assert_eq!(serde_json::from_str::<Times>(&text).unwrap(), own);
    }
}
