//! Latency distribution as wrk2 prints it, from an HdrHistogram of 1 µs to 24 h with three digits.

use std::fmt::Write as _;

use crate::{
    Stats,
    text::{align_cell, time_text},
};

/// Slots of the first bucket: one for each µs. Each later bucket has half as many slots of twice the previous width.
const SLOTS: u64 = 2048;
/// Number of buckets up to 24 h.
const BUCKETS: u32 = 27;
/// Rows from 0 to one half, from there to three quarters, and so on.
const TICKS: f64 = 5.0;

/// Kind of latency shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LatencyKind {
    /// Measured from the time when a request was due.
    Recorded,
    /// Measured from the time when a request was sent.
    Uncorrected,
}

/// Text of `-L`, or the additional text of `-U`, for latencies in µs.
#[must_use]
pub fn spectrum(which: LatencyKind, latency: &Stats) -> String {
    let slots = histogram_slots(latency);
    let total = latency.samples();
    let (begin, title) = match which {
        LatencyKind::Recorded => ("", "Recorded Latency"),
        LatencyKind::Uncorrected => (
            "\n",
            "Uncorrected Latency (measured without taking delayed starts into account)",
        ),
    };
    let mut text = format!("{begin}  Latency Distribution (HdrHistogram - {title})\n");
    // Writing to a String cannot fail.
    for percent in [50.0, 75.0, 90.0, 99.0, 99.9, 99.99, 99.999, 100.0] {
        let value = percentile(&slots, total, percent);
        let _ = writeln!(
            text,
            "{percent:>7.3}%{}",
            align_cell(&time_text(value.into()), 10)
        );
    }
    let _ = writeln!(text, "\n  Detailed Percentile spectrum:");
    let [value, percent, count, inverse] =
        ["Value", "Percentile", "TotalCount", "1/(1-Percentile)"];
    let _ = writeln!(
        text,
        "{value:>12} {percent:>12} {count:>12} {inverse:>12}\n"
    );
    for (value, quantile, count) in spectrum_rows(&slots, total) {
        let (value, inverse) = (value as f64 / 1000.0, 1.0 / (1.0 - quantile));
        let _ = writeln!(
            text,
            "{value:>12.3} {quantile:>12.6} {count:>12} {inverse:>12.2}"
        );
    }
    let [mean, deviation] = mean_and_deviation(&slots, total).map(|us| match us.is_nan() {
        true => "-nan".to_owned(),
        false => format!("{:.3}", us / 1000.0),
    });
    let max = slots.last().map_or(0, |slot| slot.lowest) as f64 / 1000.0;
    let _ = writeln!(
        text,
        "#[Mean    = {mean:>12}, StdDeviation   = {deviation:>12}]"
    );
    let _ = writeln!(
        text,
        "#[Max     = {max:>12.3}, Total count    = {total:>12}]"
    );
    let _ = writeln!(
        text,
        "#[Buckets = {BUCKETS:>12}, SubBuckets     = {SLOTS:>12}]"
    );
    let _ = writeln!(text, "{:-<58}", "");
    text
}

/// Range of values that the histogram counts together.
#[derive(Clone, Copy, Debug)]
struct HistogramSlot {
    lowest: u64,
    width: u64,
    count: u64,
}

impl HistogramSlot {
    fn of_value(value: u64, count: u64) -> Self {
        let bucket = (value | (SLOTS - 1)).ilog2() - (SLOTS - 1).ilog2();
        Self {
            lowest: value >> bucket << bucket,
            width: 1 << bucket,
            count,
        }
    }

    fn highest(&self) -> u64 {
        self.lowest + (self.width - 1)
    }

    fn middle(&self) -> f64 {
        (self.lowest + self.width / 2) as f64
    }
}

/// Slots with samples, ascending.
fn histogram_slots(latency: &Stats) -> Vec<HistogramSlot> {
    let mut slots: Vec<HistogramSlot> = Vec::new();
    for (value, count) in (0..latency.distinct_values()).filter_map(|i| latency.value_at(i)) {
        let slot = HistogramSlot::of_value(value, count);
        match slots.last_mut() {
            Some(last) if last.lowest == slot.lowest => last.count += count,
            _ => slots.push(slot),
        }
    }
    slots
}

fn percentile(slots: &[HistogramSlot], total: u64, percent: f64) -> u64 {
    let rank = (percent / 100.0 * total as f64 + 0.5) as u64;
    let mut seen = 0;
    (slots.iter())
        .find(|slot| {
            seen += slot.count;
            seen >= rank.max(1)
        })
        .map_or(0, HistogramSlot::highest)
}

/// Value, quantile, and number of samples up to the value.
fn spectrum_rows(slots: &[HistogramSlot], total: u64) -> Vec<(u64, f64, u64)> {
    let mut rows = Vec::new();
    let (mut seen, mut value) = (0, 0);
    // In percent, since rounded quantiles would select other samples.
    let mut next = 0.0;
    for slot in slots {
        seen += slot.count;
        value = slot.highest();
        while next <= 100.0 * seen as f64 / total as f64 {
            rows.push((value, next / 100.0, seen));
            let halvings = ((100.0 / (100.0 - next)).ln() / 2f64.ln()).trunc();
            next += 100.0 / (TICKS * (halvings + 1.0).exp2());
            // The last row covers all samples.
            if seen == total {
                break;
            }
        }
    }
    rows.push((value, 1.0, seen));
    rows
}

/// Mean and standard deviation; NaN without samples.
fn mean_and_deviation(slots: &[HistogramSlot], total: u64) -> [f64; 2] {
    let total = total as f64;
    let sum: f64 = slots
        .iter()
        .map(|slot| slot.middle() * slot.count as f64)
        .sum();
    let mean = sum / total;
    let squares: f64 = (slots.iter())
        .map(|slot| (slot.middle() - mean).powi(2) * slot.count as f64)
        .sum();
    [mean, (squares / total).sqrt()]
}

#[cfg(test)]
mod tests {
    use hdrhistogram::Histogram;
    use proptest::prelude::*;

    use super::*;

    const DAY: u64 = 86_400_000_000;

    proptest! {
        /// With a prime number of samples, no quantile of a row equals that of a sample, so rounding cannot decide.
        #[test]
        fn rows_are_those_of_a_histogram(
            values in prop::collection::vec((0u64..40).prop_flat_map(|bits| 0..1u64 << bits), 1..200),
            copies in 1u64..50,
        ) {
            let primes = [7, 101, 1009, 10_007];
            let least = values.len() as u64 * copies;
            let samples = *primes.iter().find(|&&prime| prime > least).unwrap_or(&10_007);
            let mut pairs: Vec<(u64, u64)> =
                values.iter().map(|&v| (v.min(DAY), copies)).collect();
            pairs[0].1 += samples - least.min(samples);
            prop_assume!(pairs.iter().map(|p| p.1).sum::<u64>() == samples);
            let mut judge = Histogram::<u64>::new_with_bounds(1, DAY, 3).unwrap();
            for &(value, n) in &pairs {
                judge.record_n(value, n).unwrap();
            }
            let latency = Stats::new(pairs);
            let slots = histogram_slots(&latency);

            let rows = spectrum_rows(&slots, samples);
            let (mut seen, mut expected) = (0, 0);
            for (step, row) in judge.iter_quantiles(5).zip(&rows) {
                expected += 1;
                seen += step.count_since_last_iteration();
                prop_assert_eq!((step.value_iterated_to(), seen), (row.0, row.2));
                prop_assert!((step.quantile_iterated_to() - row.1).abs() < 1e-12);
            }
            prop_assert_eq!((expected, judge.iter_quantiles(5).count()), (rows.len(), rows.len()));

            let [mean, deviation] = mean_and_deviation(&slots, samples);
            prop_assert!((mean - judge.mean()).abs() <= mean * 1e-9);
            prop_assert!((deviation - judge.stdev()).abs() <= deviation * 1e-6 + 1e-9);
            for percent in [50.0, 75.0, 90.0, 99.0, 99.9, 100.0] {
                let ours = percentile(&slots, samples, percent);
                // wrk2 rounds the rank; other implementations use the next rank.
                let rank = (percent / 100.0 * samples as f64 + 0.5) as u64;
                let quantile = (rank.max(1) as f64 - 0.5) / samples as f64;
                prop_assert_eq!(ours, judge.value_at_quantile(quantile));
            }
        }
    }

    #[test]
    fn the_whole_text() {
        let latency = Stats::new([(1000, 6), (2047, 1), (2049, 1), (3001, 1), (1_000_000, 1)]);
        let expected = "  Latency Distribution (HdrHistogram - Recorded Latency)
 50.000%    1.00ms
 75.000%    2.05ms
 90.000%    3.00ms
 99.000%    1.00s 
 99.900%    1.00s 
 99.990%    1.00s 
 99.999%    1.00s 
100.000%    1.00s 

  Detailed Percentile spectrum:
       Value   Percentile   TotalCount 1/(1-Percentile)

       1.000     0.000000            6         1.00
       1.000     0.100000            6         1.11
       1.000     0.200000            6         1.25
       1.000     0.300000            6         1.43
       1.000     0.400000            6         1.67
       1.000     0.500000            6         2.00
       1.000     0.550000            6         2.22
       1.000     0.600000            6         2.50
       2.047     0.650000            7         2.86
       2.047     0.700000            7         3.33
       2.049     0.750000            8         4.00
       2.049     0.775000            8         4.44
       2.049     0.800000            8         5.00
       3.001     0.825000            9         5.71
       3.001     0.850000            9         6.67
       3.001     0.875000            9         8.00
       3.001     0.887500            9         8.89
       3.001     0.900000            9        10.00
    1000.447     0.912500           10        11.43
    1000.447     1.000000           10          inf
#[Mean    =      101.329, StdDeviation   =      299.622]
#[Max     =      999.936, Total count    =           10]
#[Buckets =           27, SubBuckets     =         2048]
----------------------------------------------------------
";
        assert_eq!(spectrum(LatencyKind::Recorded, &latency), expected);
        let more = spectrum(LatencyKind::Uncorrected, &latency);
        let title = "\n  Latency Distribution (HdrHistogram - Uncorrected Latency (measured without taking delayed \
            starts into account))\n";
        assert_eq!(
            more.strip_prefix(title),
            expected.split_once('\n').map(|(_, rest)| rest)
        );
    }

    #[test]
    fn nothing_was_seen() {
        let text = spectrum(LatencyKind::Recorded, &Stats::default());
        for line in [
            "100.000%    0.00us",
            "       0.000     1.000000            0          inf",
            "#[Mean    =         -nan, StdDeviation   =         -nan]",
            "#[Max     =        0.000, Total count    =            0]",
        ] {
            assert!(text.lines().any(|l| l == line), "{text}");
        }
    }
}
