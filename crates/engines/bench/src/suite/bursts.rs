//! Back-to-back frames (RFC 9004): the longest burst without loss, and the buffer size that follows from it.

use wb_model::bench::{BurstResult, SuiteResult, TrialPurpose};
use wb_search::{Integers, LimitCause, integers};

use super::{SizeFacts, SuiteStop, shape::TrialAmount, tester::Tester};
use crate::Bench;

/// Frames of a first burst, which shows the tester's rate within bursts.
const FIRST: u64 = 10_000;
/// The next search extends up to this multiple of the longest burst so far.
const WIDER: u64 = 4;

pub(super) fn measure_bursts<B: Bench>(
    tester: &mut Tester<'_, B>,
    known: &SizeFacts,
    result: &mut SuiteResult,
) -> Result<(), SuiteStop<B::Error>> {
    if known.tester_limit {
        result.not_measured = Some(
            "the tester limited the throughput, so the device may forward bursts at the tester's full rate"
                .to_owned(),
        );
        return Ok(());
    }
    let Some(throughput) = known.throughput else {
        result.not_measured = Some("the throughput at this size is unknown".to_owned());
        return Ok(());
    };
    let test = &tester.suite.b2b;
    tester.goal = 1.0;
    let shape = tester.trial_shape(
        TrialAmount::Burst(FIRST),
        Default::default(),
        TrialPurpose::WarmUp,
    );
    let rate = tester.run_trial(&shape, None)?.trial.offered;
    tester.goal = 0.0;
    // A smaller difference is within the rounding of a burst to nanoseconds.
    if rate <= throughput * 1.000_1 {
        result.not_measured = Some(format!(
            "the tester's rate within bursts, {rate:.0} frames per second, does not exceed the throughput"
        ));
        return Ok(());
    }
    let longest = ((rate * test.longest.0.as_secs_f64()) as u64).max(2);
    let mut lengths = Vec::new();
    let mut high = longest;
    let steps = (longest as f64).log2().ceil() as u32;
    tester.left.trials = steps.saturating_mul(test.searches);
    for _ in 0..test.searches {
        let all = Integers {
            low: 0,
            high,
            resolution: test.resolution,
            repeats: tester.suite.search.repeats,
        };
        let found = integers(tester, &all);
        if let Ok(found) = &found {
            if let (LimitCause::Tester, Some(frames)) = (found.bound, found.beyond) {
                let note = format!(
                    "one search found no limit of the device: the tester could not send a burst of {frames:.0} frames"
                );
                if !result.notes.contains(&note) {
                    result.notes.push(note);
                }
                continue;
            }
            let length = found.best.map_or(0, |best| best as u64);
            // Shorter than the longest burst possible.
            if found.beyond.is_none() && high < longest {
                high = longest;
                continue;
            }
            lengths.push(length);
            high = length.saturating_mul(WIDER).clamp(2, longest);
        }
        if !lengths.is_empty() {
            let bursts = burst_summary(&lengths, longest, test.resolution, rate, throughput);
            let spread = (bursts.max - bursts.min) as f64 / bursts.average.max(1.0);
            result.spread = (lengths.len() > 1).then_some(spread);
            result.bursts = Some(bursts);
        }
        found?;
    }
    result.confirmed = !lengths.is_empty();
    if lengths.iter().any(|length| length + 1 >= longest) {
        result.confirmed = false;
        result.notes.push(format!(
            "the longest burst tried, {longest} frames, passed: the result is a lower bound (RFC 9004 section 5.4)"
        ));
    }
    Ok(())
}

/// Statistics of the searches, and the times of RFC 9004 section 6.4.
fn burst_summary(
    lengths: &[u64],
    longest: u64,
    resolution: u64,
    rate: f64,
    throughput: f64,
) -> BurstResult {
    let n = lengths.len() as f64;
    let average = lengths.iter().map(|l| *l as f64).sum::<f64>() / n;
    let variance = lengths
        .iter()
        .map(|l| (*l as f64 - average).powi(2))
        .sum::<f64>()
        / n;
    let implied = average / rate;
    let corrected = implied * (1.0 - throughput / rate);
    BurstResult {
        lengths: lengths.to_vec(),
        average,
        min: lengths.iter().copied().min().unwrap_or(0),
        max: lengths.iter().copied().max().unwrap_or(0),
        stddev: variance.sqrt(),
        resolution,
        longest,
        burst_fps: rate,
        throughput_fps: Some(throughput),
        implied_s: implied,
        corrected_s: Some(corrected),
        buffer_frames: Some(corrected * rate),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Specification vector 16.5.
    #[test]
    fn buffer_times() {
        let found = burst_summary(&[3048], 65_536, 1, 1e10 / 672.0, 1e7);
        assert!((found.implied_s * 1e6 - 204.8256).abs() < 1e-4, "{found:?}");
        let corrected = found.corrected_s.unwrap();
        assert!((corrected * 1e6 - 67.1828).abs() < 1e-4, "{found:?}");
        assert!(
            (found.buffer_frames.unwrap() - 999.74).abs() < 0.01,
            "{found:?}"
        );
        // At the rate that is really achieved.
        let at = corrected * found.burst_fps / 8e6;
        assert!((at * 1e6 - 124.968).abs() < 1e-3, "{at}");
    }

    #[test]
    fn statistics() {
        let found = burst_summary(&[10, 14], 100, 1, 1000.0, 500.0);
        assert_eq!(
            (found.average, found.min, found.max, found.stddev),
            (12.0, 10, 14, 2.0)
        );
    }
}
