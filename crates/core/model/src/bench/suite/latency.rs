//! Delay and its variation (RFC 2544 section 26.2, RFC 8219, RFC 5481).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use wb_figures::{Field, Plot, Series, Show, Tone, Unit, counter, derived, fields};

use super::{
    FPS, Share,
    test::{TestDef, named},
};
use crate::{
    bench::SuiteResult, criteria::statistics, figures::FRAMES, report::Summary, units::Span,
};

pub(super) const TEST: TestDef = TestDef {
    needs_throughput: true,
    metrics: |_| statistics().collect(),
    values: |r, criterion| {
        let rows = r.latency.iter();
        rows.map(|row| row.latency_ns.statistic(&criterion.metric))
            .collect()
    },
    add_to: |r, _, section| {
        let mut section = section
            .figures(HIGHEST, r)
            .table("Delay", DELAY, &r.latency)
            .keys(1)
            .table("Variation", VARIATION, &r.latency)
            .keys(1)
            .plots(&PLOTS);
        let mut told: Vec<String> = Vec::new();
        for row in r.latency.iter().filter(|row| !row.definition.is_empty()) {
            let text = format!("{}, timestamps: {}", row.definition, row.stamp_source);
            if !told.contains(&text) {
                told.push(text);
            }
        }
        for text in told {
            section = section.note(Tone::Term, Some(text));
        }
        let terms = "load: share of the throughput; typical and worst case (RFC 8219): median over all streams of p50 \
                     and of p99.9";
        section.note(
            Tone::Term,
            (!r.latency.is_empty()).then(|| terms.to_owned()),
        )
    },
    ..named!(
        "latency",
        "latency",
        "RFC 2544 section 26.2, RFC 8219, RFC 5481"
    )
};

static PLOTS: [Plot; 1] = [Plot::new(
    "by-load",
    "Delay by load",
    Series::Columns("Delay", "load", &[]),
)];

static HIGHEST: &[Field<SuiteResult>] = fields!(SuiteResult:
    derived!("highest_p99_ns", "p99 at the highest load", Unit::Nanoseconds, |r| {
        let rows = r.latency.iter();
        let highest = rows.max_by(|a, b| a.load.total_cmp(&b.load));
        highest.and_then(|row| row.latency_ns.statistic("p99")).into()
    }).leads().show(Show::Never),
);

static DELAY: &[Field<LatencyRow>] = fields!(LatencyRow:
    derived!("load", "load", Unit::Share, |row| row.load.into()),
    derived!("offered", "offered", FPS, |row| row.offered.into()),
    derived!("streams", "streams", Unit::Count("streams"), |row| row.repetitions.into()),
    derived!("frames", "frames", FRAMES, |row| row.latency_ns.samples.into()),
    counter!(lost, "lost", FRAMES).bad(),
    Field::<S>::distribution("latency_ns", "delay", |row| (&row.latency_ns).into()).leads(),
    derived!("p50_spread", "p50 spread", Unit::Share, |row| (&row.p50_spread).into()).show(Show::Never),
    derived!("p99_spread", "p99 spread", Unit::Share, |row| (&row.p99_spread).into()).show(Show::Never),
);

static VARIATION: &[Field<LatencyRow>] = fields!(LatencyRow:
    derived!("load", "load", Unit::Share, |row| row.load.into()),
    derived!("typical_ns", "typical", Unit::Nanoseconds, |row| (&row.typical_ns).into()).bad(),
    derived!("worst_ns", "worst case", Unit::Nanoseconds, |row| (&row.worst_ns).into()).bad(),
    derived!("pdv_p999_ns", "PDV p99.9", Unit::Nanoseconds, |row| (&row.pdv_ns).into()).bad(),
    derived!("ipdv_min_ns", "IPDV min", Unit::Nanoseconds, |row| row.ipdv_ns.statistic("min").into()),
    derived!("ipdv_p50_ns", "IPDV p50", Unit::Nanoseconds, |row| row.ipdv_ns.statistic("p50").into()),
    derived!("ipdv_max_ns", "IPDV max", Unit::Nanoseconds, |row| row.ipdv_ns.statistic("max").into()),
);

/// Parameters of the latency test.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LatencyTest {
    /// Duration of a stream, at least 100 ms (default 20 s; RFC 2544: 120 s).
    pub duration: Span,
    /// Start of the measurement within the stream, less than `duration` (default 10 s; RFC 2544: 60 s). Earlier frames
    /// are not measured.
    pub after: Span,
    /// Number of streams, 1 to 1000 (default 3; RFC 2544: 20).
    pub repetitions: u32,
    /// Loads of delay measurements as shares of the throughput, each above 0 (default 10, 50, 90 and 100 %).
    pub loads: Vec<Share>,
}

impl Default for LatencyTest {
    fn default() -> Self {
        Self {
            duration: Span::from_secs(20),
            after: Span::from_secs(10),
            repetitions: 3,
            loads: vec![Share(0.1), Share(0.5), Share(0.9), Share(1.0)],
        }
    }
}

/// Delay at one load.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LatencyRow {
    /// Load as a share of the throughput.
    pub load: f64,
    /// Load in the unit of the test.
    pub offered: f64,
    /// Definition of the delay: store-and-forward, with timestamps at both ends.
    pub definition: String,
    /// Source of the timestamps.
    pub stamp_source: String,
    /// Number of measured streams.
    pub repetitions: u32,
    /// Typical latency of RFC 8219, in ns: median over the streams of their median.
    pub typical_ns: Option<f64>,
    /// Worst-case latency of RFC 8219, in ns: median over the streams of their 99.9th percentile.
    pub worst_ns: Option<f64>,
    /// Delays of the stream with the median of all medians.
    pub latency_ns: Summary,
    /// Spread of the streams' medians: (largest − smallest) ÷ mean; absent for one stream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p50_spread: Option<f64>,
    /// Spread of the streams' 99th percentiles; absent for one stream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99_spread: Option<f64>,
    /// Median over the streams of the 99.9th percentile of D(i) − smallest D, in ns (RFC 5481, RFC 8219).
    pub pdv_ns: Option<f64>,
    /// Delay variation D(i) − D(i−1) of the stream in `latency_ns` (RFC 3393).
    pub ipdv_ns: Summary,
    /// Frames lost at this load, in all streams.
    pub lost: u64,
}
