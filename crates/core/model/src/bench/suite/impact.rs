//! Loss and delay at shares of the maximum (RFC 5180).

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use wb_figures::{Field, Section, Tone, Unit, counter, derived, fields};

use super::{
    FPS, Share,
    loss::{is_all_lost, largest},
    section::percent,
    test::{TestDef, named},
};
use crate::{
    bench::SuiteResult,
    criteria::{Criterion, statistics},
    figures::FRAMES,
    report::Summary,
};

pub(super) const TEST: TestDef = TestDef {
    metrics: |_| std::iter::once("loss").chain(statistics()).collect(),
    values,
    has_failed: |r| is_all_lost(&losses(r)),
    is_void: |r| r.impact.iter().all(|row| row.lost.is_none()),
    add_to: |r, _, section| {
        let terms = "these trials do not measure throughput";
        loss_and_delay(r, section.figures(LARGEST, r)).note(Tone::Term, Some(terms.to_owned()))
    },
    tells_loss: true,
    ..named!("impact", "impact", "RFC 5180")
};

/// Values of loss or of a statistic of the delay, one for each load.
pub(super) fn values(r: &SuiteResult, criterion: &Criterion) -> Vec<Option<f64>> {
    match criterion.metric.as_str() {
        "loss" => losses(r),
        statistic => {
            let of = |row: &ImpactRow| row.delay()?.statistic(statistic);
            r.impact.iter().map(of).collect()
        }
    }
}

/// Adds loss and delay by load, with the counters that rose.
pub(super) fn loss_and_delay<'a>(r: &'a SuiteResult, section: Section<'a>) -> Section<'a> {
    let mut section = section
        .table("Loss and delay by load", ROW, &r.impact)
        .keys(1);
    for row in &r.impact {
        let at = percent(row.load_pct);
        let void = (!row.void.is_empty()).then(|| format!("at {at}: void: {}", row.void));
        section = section.note(Tone::Plain, void);
        let rose = row.rose.iter().filter(|(_, n)| **n > 0);
        let rose: Vec<String> = rose
            .map(|(name, n)| format!("{name} {}", wb_figures::text::count(*n)))
            .collect();
        let rose =
            (!rose.is_empty()).then(|| format!("at {at}: counters rose: {}", rose.join(", ")));
        section = section.note(Tone::Plain, rose);
    }
    section
}

static LARGEST: &[Field<SuiteResult>] = fields!(SuiteResult:
    derived!("maximum", "load 100 %", FPS, |r| (&r.maximum).into()),
    derived!("largest_loss", "largest loss", Unit::Share, |r| largest(&losses(r)).into()).neutral().leads(),
);

static ROW: &[Field<ImpactRow>] = fields!(ImpactRow:
    derived!("load", "load", Unit::Share, |row| (row.load_pct / 100.0).into()),
    derived!("offered", "offered", FPS, |row| row.offered_fps.into()),
    counter!(tx, "sent", FRAMES),
    derived!("lost", "lost", FRAMES, |row| (&row.lost).into()).bad(),
    derived!("loss", "loss", Unit::Share, |row| row.loss().into()).bad().leads(),
    Field::<S>::distribution("latency_ns", "delay", |row| row.delay().into()).leads(),
);

/// Loss at each load as a share of 1.
pub(super) fn losses(r: &SuiteResult) -> Vec<Option<f64>> {
    r.impact.iter().map(ImpactRow::loss).collect()
}

impl ImpactRow {
    fn loss(&self) -> Option<f64> {
        Some(self.loss_pct? / 100.0)
    }

    /// Delay of the device: if the loss is unknown, so is the delay.
    fn delay(&self) -> Option<&Summary> {
        self.lost.map(|_| &self.latency_ns)
    }
}

/// Parameters of the impact test.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ImpactTest {
    /// Loads as shares of the maximum, each above 0 (default 1, 10 and 50 %, as in RFC 5180).
    pub loads: Vec<Share>,
}

impl Default for ImpactTest {
    fn default() -> Self {
        Self {
            loads: vec![Share(0.01), Share(0.1), Share(0.5)],
        }
    }
}

/// Loss and delay of frames at one load, without a limit.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ImpactRow {
    /// Load as a percentage of the maximum; of test `soak` as a percentage of the throughput.
    pub load_pct: f64,
    /// Load in each direction, in frames per second.
    pub offered_fps: f64,
    /// Frames sent in both directions.
    pub tx: u64,
    /// Frames lost; absent if the trial is void.
    pub lost: Option<u64>,
    /// Loss in per cent: lost ÷ sent, without frames dropped by the tester's ports.
    pub loss_pct: Option<f64>,
    /// Delay in ns; with two directions, of the direction with the longer delay.
    pub latency_ns: Summary,
    /// Increase of counters of the device and of the tester's ports.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub rose: BTreeMap<String, u64>,
    /// Reason why the trial is void; empty if it is valid.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub void: String,
}
