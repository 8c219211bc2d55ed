//! Histograms in reports: all values at full resolution, so that reports can be merged exactly.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::histogram::{Histogram, SignedHistogram};

/// Slots for each power of two.
const PER_OCTAVE: u32 = 512;

/// A measured distribution with its owner and its name.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedHistogram {
    /// Owner: empty for the whole run, otherwise the name of a job.
    pub of: String,
    /// Name of the figure in the report: `latency_ns`.
    pub name: String,
    /// Its values. A distribution that is never negative has no values below 0.
    pub values: SignedHistogram,
}

/// Distribution with all values at full resolution.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EncodedHistogram {
    /// Owner: empty for the whole run, otherwise the name of a job.
    pub of: String,
    /// Name of the figure in the report: `latency_ns`.
    pub name: String,
    /// Slots for each power of two, 512. Values below 1024 have one slot each. From 2^k on, k at least 9, slot
    /// `512 (k - 8) + i` holds the values from `2^k + i 2^(k - 9)` up to those of the next slot.
    pub per_octave: u32,
    /// Values of 0 and more.
    #[serde(flatten)]
    pub values: EncodedValues,
    /// Absolute values of the values below 0, if there are any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub below: Option<EncodedValues>,
}

/// Values of one sign.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EncodedValues {
    /// Minimum, exact; 0 without values.
    pub min: u64,
    /// Maximum, exact; 0 without values.
    pub max: u64,
    /// Exact sum, as a decimal number.
    pub sum: String,
    /// Exact sum of the squares, as a decimal number.
    pub squares: String,
    /// Number of values that were reduced to the largest possible value, 2^42 - 1.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub clamped: u64,
    /// Non-empty slots in ascending order, two numbers each: difference from the previous slot (from 0 for the first),
    /// and number of values.
    pub slots: Vec<u64>,
}

const fn is_zero(n: &u64) -> bool {
    *n == 0
}

impl From<&NamedHistogram> for EncodedHistogram {
    fn from(named: &NamedHistogram) -> Self {
        let (below, above) = named.values.sides();
        Self {
            of: named.of.clone(),
            name: named.name.clone(),
            per_octave: PER_OCTAVE,
            values: above.into(),
            below: (below.count() > 0).then(|| below.into()),
        }
    }
}

impl From<&Histogram> for EncodedValues {
    fn from(histogram: &Histogram) -> Self {
        let (sum, squares) = histogram.sums();
        let mut previous = 0;
        let mut slots = Vec::new();
        for (slot, count) in histogram.counts() {
            slots.extend([(slot - previous) as u64, count]);
            previous = slot;
        }
        Self {
            min: histogram.min().unwrap_or(0),
            max: histogram.max().unwrap_or(0),
            sum: sum.to_string(),
            squares: squares.to_string(),
            clamped: histogram.clamped(),
            slots,
        }
    }
}

impl TryFrom<&EncodedHistogram> for NamedHistogram {
    type Error = String;

    fn try_from(encoded: &EncodedHistogram) -> Result<Self, String> {
        let decoded = || {
            if encoded.per_octave != PER_OCTAVE {
                return Err(format!(
                    "per_octave must be {PER_OCTAVE}, got {}",
                    encoded.per_octave
                ));
            }
            let below = encoded
                .below
                .as_ref()
                .map(Histogram::try_from)
                .transpose()?;
            let above = Histogram::try_from(&encoded.values)?;
            Ok(SignedHistogram::of_sides(below.unwrap_or_default(), above))
        };
        Ok(Self {
            of: encoded.of.clone(),
            name: encoded.name.clone(),
            values: decoded().map_err(|why| format!("histogram {}: {why}", encoded.name))?,
        })
    }
}

impl TryFrom<&EncodedValues> for Histogram {
    type Error = String;

    fn try_from(encoded: &EncodedValues) -> Result<Self, String> {
        let number = |name: &str, text: &str| -> Result<u128, String> {
            text.parse()
                .map_err(|_| format!("{name} must be a whole number, got {text:?}"))
        };
        let sums = (
            number("sum", &encoded.sum)?,
            number("squares", &encoded.squares)?,
        );
        let mut pairs = encoded.slots.chunks_exact(2);
        let mut counts: Vec<(usize, u64)> = Vec::with_capacity(pairs.len());
        let (mut slot, mut all) = (0_u64, 0_u64);
        for pair in &mut pairs {
            let is_first = counts.is_empty();
            slot = slot.saturating_add(pair[0]);
            all = all
                .checked_add(pair[1])
                .ok_or("slots count too many values")?;
            if slot >= Self::SLOTS as u64 || pair[1] == 0 || (pair[0] == 0 && !is_first) {
                return Err(format!(
                    "slots must be ascending pairs of a slot below {} and a count above 0",
                    Self::SLOTS
                ));
            }
            counts.push((slot as usize, pair[1]));
        }
        if !pairs.remainder().is_empty() {
            return Err("slots must have an even number of entries".to_owned());
        }
        let (Some(first), Some(last)) = (counts.first(), counts.last()) else {
            return Ok(Self::new());
        };
        let extremes = (encoded.min, encoded.max);
        if (Self::slot(encoded.min), Self::slot(encoded.max)) != (first.0, last.0)
            || encoded.min > encoded.max
            || encoded.max > Self::MAX_VALUE
        {
            return Err("min and max must lie in the first and the last slot".to_owned());
        }
        let count = |slot: usize| {
            let place = counts.binary_search_by_key(&slot, |(own, _)| *own);
            place.map_or(0, |at| counts[at].1)
        };
        Ok(Self::recorded(count, sums, extremes, encoded.clamped))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn named(values: &[i64]) -> NamedHistogram {
        let mut all = SignedHistogram::new();
        values.iter().for_each(|value| all.record(*value));
        NamedHistogram {
            of: "web".to_owned(),
            name: "latency_ns".to_owned(),
            values: all,
        }
    }

    #[test]
    fn the_form_is_the_documented_one() {
        let encoded = EncodedHistogram::from(&named(&[3, 3, 1023, 1024, 1025, -7]));
        let json = serde_json::to_value(&encoded).unwrap();
        let expected = serde_json::json!({
            "of": "web", "name": "latency_ns", "per_octave": 512,
            "min": 3, "max": 1025, "sum": "3078", "squares": "3145748",
            "slots": [3, 2, 1020, 1, 1, 2],
            "below": {"min": 7, "max": 7, "sum": "7", "squares": "49", "slots": [7, 1]},
        });
        assert_eq!(json, expected);
    }

    #[test]
    fn what_is_wrong_is_refused() {
        let good = EncodedHistogram::from(&named(&[3, 70_000]));
        type Change = fn(&mut EncodedHistogram);
        let changes: [(Change, &str); 8] = [
            (|h| h.per_octave = 16, "per_octave must be 512, got 16"),
            (
                |h| h.values.sum = "-1".to_owned(),
                "sum must be a whole number",
            ),
            (
                |h| h.values.squares = String::new(),
                "squares must be a whole number",
            ),
            (
                |h| {
                    h.values.slots.pop();
                },
                "even number of entries",
            ),
            (|h| h.values.slots[1] = 0, "ascending pairs"),
            (|h| h.values.slots[2] = u64::MAX, "ascending pairs"),
            (|h| h.values.slots[3] = u64::MAX, "too many values"),
            (|h| h.values.min = 4, "first and the last slot"),
        ];
        for (change, why) in changes {
            let mut bad = good.clone();
            change(&mut bad);
            let said = NamedHistogram::try_from(&bad).unwrap_err();
            assert!(said.contains(why), "{said}");
            assert!(said.starts_with("histogram latency_ns: "), "{said}");
        }
    }

    proptest! {
        #[test]
        fn nothing_is_lost(values in proptest::collection::vec(any::<i64>(), 0..200)) {
            let own = named(&values);
            let text = serde_json::to_string(&EncodedHistogram::from(&own)).unwrap();
            let read: EncodedHistogram = serde_json::from_str(&text).unwrap();
            prop_assert_eq!(NamedHistogram::try_from(&read), Ok(own));
        }

        /// The percentiles of two merged halves are those of the whole.
        #[test]
        fn halves_merge_to_the_whole(values in proptest::collection::vec(0..5_000_000_i64, 2..300), at in 0..300_usize) {
            let (first, second) = values.split_at(at % values.len());
            let decoded = |part: &[i64]| {
                let encoded = EncodedHistogram::from(&named(part));
                NamedHistogram::try_from(&encoded).unwrap().values
            };
            let mut merged = decoded(first);
            merged.merge(&decoded(second));
            prop_assert_eq!(merged.summary(), named(&values).values.summary());
        }

        #[test]
        fn foreign_numbers_break_nothing(
            numbers in proptest::collection::vec(any::<u64>(), 0..20),
            min: u64,
            max: u64,
            sum: u128,
            squares: u128,
        ) {
            let values = EncodedValues {
                min,
                max,
                sum: sum.to_string(),
                squares: squares.to_string(),
                clamped: 0,
                slots: numbers,
            };
            let _ = Histogram::try_from(&values).map(|histogram| histogram.count());
        }
    }
}
