//! Frames in bursts (RFC 2544 section 21): the load determines how often a burst begins, so the highest loss-free load
//! gives the smallest gap between two bursts.

use std::time::Duration;

use wb_model::{
    Lateness,
    bench::{BurstGap, SuiteResult},
};

use super::super::{
    SizeFacts,
    shape::{TrialAmount, TrialShape},
    throughput,
};

const NS: f64 = 1e9;
/// A tester that offers this share of the line sends bursts at its rate.
const AS_FAST: f64 = 0.999;
/// Minimum number of bursts of a trial.
const LEAST: u64 = 4;
/// Relative tolerance for rounding errors of a period that is a whole number of nanoseconds.
const HAIR: f64 = 1e-15;

/// Time between the starts of bursts, ns, rounded up to whole nanoseconds so that the load is never exceeded.
pub(in super::super) fn period_ns(load: f64, frames: u32) -> u64 {
    let exact = f64::from(frames) * NS / load.max(f64::MIN_POSITIVE);
    ((exact * (1.0 - HAIR)).ceil() as u64).max(1)
}

/// The load that results from bursts of this size; without bursts the load itself.
pub(in super::super) fn even_or(load: f64, burst: Option<u32>) -> f64 {
    match burst {
        Some(frames) if load > 0.0 => f64::from(frames) * NS / period_ns(load, frames) as f64,
        _ => load,
    }
}

/// Duration of a trial, extended to whole periods, and to several of them: a single burst shows no gap.
pub(in super::super) fn whole_periods(
    duration: Duration,
    load: f64,
    burst: Option<u32>,
) -> Duration {
    let Some(frames) = burst else {
        return duration;
    };
    let period = period_ns(load, frames);
    let asked = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
    Duration::from_nanos(period.saturating_mul(asked.div_ceil(period).max(LEAST)))
}

/// Returns true if stalls of the tester may have caused all loss: stalls of a period or longer, and at most the frames
/// of the delayed bursts. Senders do not count the frames of a burst as catch-up, because they leave at once anyway.
pub(in super::super) fn may_have_joined(
    shape: &TrialShape,
    lateness: &Lateness,
    lost: u64,
) -> bool {
    let (Some(frames), TrialAmount::Load(load)) = (shape.burst, shape.amount) else {
        return false;
    };
    let period = period_ns(load, frames);
    let moved = lateness.stalled_ns / period + lateness.stalls;
    lateness.largest_gap_ns >= period && lost <= moved.saturating_mul(frames.into())
}

/// Result for bursts of this size, before their gap is known.
pub(in super::super) fn empty_gap(frames: u32, known: &SizeFacts) -> BurstGap {
    BurstGap {
        frames,
        burst_fps: match (known.theoretical, known.ceiling) {
            // A measurement of half a second counts whole frames, and clocks differ.
            (Some(line), Some(own)) if own < line * AS_FAST => Some(own),
            (Some(line), _) => Some(line),
            (None, own) => own,
        },
        ..BurstGap::default()
    }
}

/// Computes the gap from the load found.
pub(in super::super) fn conclude_gap(result: &mut SuiteResult) {
    let Some(burst) = &result.burst else {
        return;
    };
    let frames = burst.frames;
    let exact = |load: Option<f64>| load.map(|load| even_or(load, Some(frames)));
    let (limit, beyond) = (exact(result.limit), exact(result.beyond));
    let period = limit.map(|limit| period_ns(limit, frames) as f64);
    let lasts = burst.burst_fps.map(|fps| f64::from(frames) / fps * NS);
    // The tester's measured ceiling is not exact to the nanosecond.
    let gap = period.zip(lasts).map(|(all, own)| (all - own).max(0.0));
    if let (Some(ns), None) = (period, lasts) {
        result.notes.push(format!(
            "bursts start every {:.3} us; the gap between them is unknown because the rate within a burst is unknown",
            ns / 1e3
        ));
    }
    result.burst = Some(BurstGap {
        period_us: period.map(|ns| ns / 1e3),
        gap_us: gap.map(|ns| ns / 1e3),
        ..burst.clone()
    });
    throughput::set_limit(result, limit);
    result.beyond = beyond;
}

#[cfg(test)]
mod tests {
    use wb_model::bench::{Quantity, SuiteTest};

    use super::*;

    #[test]
    fn a_load_in_bursts_is_never_more_than_was_asked_for() {
        let line = 1e10 / 672.0;
        // 16 frames in 1,075.2 ns.
        assert_eq!(period_ns(line, 16), 1_076);
        for frames in [16, 64, 256, 1024] {
            for load in [1.0, 999.7, 8_123_456.0, line] {
                let own = even_or(load, Some(frames));
                assert!(
                    own <= load * (1.0 + 2.0 * HAIR) && own > load * 0.999,
                    "{own} for {load}"
                );
                // A converted load does not change when converted again.
                assert_eq!(even_or(own, Some(frames)), own);
            }
        }
        assert_eq!(even_or(line, None), line);
    }

    #[test]
    fn a_trial_has_whole_bursts_and_not_just_one() {
        let second = Duration::from_secs(1);
        assert_eq!(whole_periods(second, 1e3, None), second);
        assert_eq!(
            whole_periods(second, 1e3, Some(16)),
            Duration::from_millis(1_008)
        );
        assert_eq!(whole_periods(second, 1e3, Some(1000)), 4 * second);
    }

    #[test]
    fn a_stall_of_a_period_may_have_cost_the_bursts_that_it_moved() {
        let shape = TrialShape {
            amount: TrialAmount::Load(1_000.0),
            duration: Duration::from_secs(1),
            ramp: Duration::ZERO,
            drain: Duration::ZERO,
            before: None,
            burst: Some(16),
            purpose: wb_model::bench::TrialPurpose::Search,
        };
        let late = |ms: u64| Lateness {
            largest_gap_ns: ms * 1_000_000,
            stalls: 1,
            stalled_ns: ms * 1_000_000,
            ..Lateness::default()
        };
        // Bursts every 16 ms.
        assert!(!may_have_joined(&shape, &late(15), 1));
        assert!(may_have_joined(&shape, &late(33), 48));
        assert!(!may_have_joined(&shape, &late(33), 49));
        let even = TrialShape {
            burst: None,
            ..shape
        };
        assert!(!may_have_joined(&even, &late(33), 1));
    }

    #[test]
    fn the_gap_is_what_the_burst_leaves_of_its_period() {
        let mut result = SuiteResult::new(SuiteTest::Throughput, Quantity::Frames);
        result.mean_size = Some(64.0);
        result.burst = Some(BurstGap {
            frames: 64,
            burst_fps: Some(1e7),
            ..BurstGap::default()
        });
        conclude_gap(&mut result);
        assert_eq!(result.burst.as_ref().unwrap().gap_us, None);
        result.limit = Some(4e6);
        conclude_gap(&mut result);
        // 64 frames every 16 us, of which they take 6.4.
        let burst = result.burst.as_ref().unwrap();
        assert_eq!(burst.period_us, Some(16.0));
        assert!((burst.gap_us.unwrap() - 9.6).abs() < 1e-9, "{burst:?}");
        assert_eq!(result.throughput_fps, Some(4e6));
        assert_eq!(result.notes, [""; 0]);
        // An unknown rate within bursts is reported.
        let mut unknown = result.clone();
        unknown.burst.as_mut().unwrap().burst_fps = None;
        conclude_gap(&mut unknown);
        assert_eq!(unknown.burst.as_ref().unwrap().gap_us, None);
        assert!(unknown.notes[0].starts_with("bursts start every 16.000 us"));
        // A tester that is slightly faster than its measured ceiling.
        result.limit = Some(1.01e7);
        conclude_gap(&mut result);
        assert_eq!(result.burst.unwrap().gap_us, Some(0.0));
    }
}
