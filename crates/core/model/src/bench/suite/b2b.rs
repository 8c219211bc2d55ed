//! Back-to-back frames: longest burst without loss (RFC 9004).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use wb_figures::{Field, Plot, Series, Tone, Unit, Value, derived, fields, text::count};

use super::{
    FPS,
    test::{TestDef, named},
};
use crate::{bench::SuiteResult, counted, units::Span};

pub(super) const TEST: TestDef = TestDef {
    needs_throughput: true,
    sends_bursts: true,
    values: |r, _| vec![r.bursts.as_ref().map(|bursts| bursts.average)],
    add_to: |r, _, section| {
        let told = r.bursts.as_ref().map(|b| {
            format!(
                "{} with a resolution of {}, bursts of up to {}",
                counted(b.lengths.len(), "search", "searches"),
                counted(count(b.resolution), "frame", "frames"),
                counted(count(b.longest), "frame", "frames"),
            )
        });
        section
            .figures(BURSTS, r)
            .plots(&PLOTS)
            .note(Tone::Plain, told)
    },
    ..named!("b2b", "back-to-back frames", "RFC 9004")
};

static PLOTS: [Plot; 1] = [Plot::new(
    "by-size",
    "Longest burst without loss by frame size",
    Series::Parameter(&["average", "min", "max"]),
)];

const FRAMES: Unit = Unit::Load("frames");

/// The form of RFC 9004 section 6.
static BURSTS: &[Field<SuiteResult>] = fields!(SuiteResult:
    derived!("average", "average", FRAMES, |r| of(r, |b| Some(b.average))).good().leads(),
    derived!("min", "min", FRAMES, |r| of(r, |b| Some(b.min as f64))),
    derived!("max", "max", FRAMES, |r| of(r, |b| Some(b.max as f64))),
    derived!("stddev", "stddev", FRAMES, |r| of(r, |b| Some(b.stddev))),
    derived!("corrected_ns", "corrected", Unit::Nanoseconds, |r| of(r, |b| Some(b.corrected_s? * 1e9))),
    derived!("implied_ns", "implied", Unit::Nanoseconds, |r| of(r, |b| Some(b.implied_s * 1e9))),
    derived!("buffer", "buffer", FRAMES, |r| of(r, |b| b.buffer_frames)),
    derived!("burst_fps", "burst rate", FPS, |r| of(r, |b| Some(b.burst_fps))),
    derived!("throughput_fps", "throughput", FPS, |r| of(r, |b| b.throughput_fps)),
);

fn of(r: &SuiteResult, value: fn(&BurstResult) -> Option<f64>) -> Value<'_> {
    r.bursts.as_ref().and_then(value).into()
}

/// Parameters of the test of back-to-back frames.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct BurstTest {
    /// Number of searches, 1 to 1000; the result is their mean (default 10; RFC 2544: 50).
    pub searches: u32,
    /// Longest burst, as its duration at the full rate, up to 30 s (default 2 s).
    pub longest: Span,
    /// Resolution in frames: the search ends when the longest burst without loss and the shortest burst with loss
    /// differ by at most this number (default 1).
    pub resolution: u64,
}

impl Default for BurstTest {
    fn default() -> Self {
        Self {
            searches: 10,
            longest: Span::from_secs(2),
            resolution: 1,
        }
    }
}

/// Back-to-back frames (RFC 9004).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BurstResult {
    /// Longest burst without loss of each search, in frames.
    pub lengths: Vec<u64>,
    /// Benchmark: mean of the lengths.
    pub average: f64,
    /// Minimum of the lengths.
    pub min: u64,
    /// Maximum of the lengths.
    pub max: u64,
    /// Standard deviation of the lengths.
    pub stddev: f64,
    /// Maximum difference between the longest burst that passed and the shortest that failed, in frames.
    pub resolution: u64,
    /// Longest burst that may be tried, in frames.
    pub longest: u64,
    /// Rate of the frames of a burst, in frames per second: line rate, or the rate that the tester reaches.
    pub burst_fps: f64,
    /// Throughput at this size, in frames per second.
    pub throughput_fps: Option<f64>,
    /// Implied buffer time in seconds: average ÷ rate.
    pub implied_s: f64,
    /// Corrected buffer time in seconds: implied × (1 − throughput ÷ rate) (RFC 9004 section 6.4).
    pub corrected_s: Option<f64>,
    /// Buffer size in frames: corrected × rate.
    pub buffer_frames: Option<f64>,
}
