//! Frame loss rate (RFC 2544 section 26.3).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use wb_figures::{Field, Plot, Series, Tone, Unit, derived, fields};

use super::{
    FPS, FamilyFrames,
    section::percent,
    test::{TestDef, named},
};
use crate::bench::SuiteResult;

pub(super) const TEST: TestDef = TestDef {
    takes_connections: true,
    values: |r, _| losses(r),
    has_failed: |r| is_all_lost(&losses(r)),
    is_void: |r| losses(r).iter().all(Option::is_none),
    add_to: |r, _, section| {
        let void = r.curve.iter().filter(|row| row.loss_pct.is_none());
        let void: Vec<String> = void.map(|row| percent(row.load_pct)).collect();
        let void = (!void.is_empty()).then(|| format!("no valid trial at {}", void.join(", ")));
        section
            .figures(LARGEST, r)
            .table(CURVE, ROW, &r.curve)
            .keys(1)
            .across("load", "loss")
            .plots(&PLOTS)
            .note(Tone::Plain, void)
    },
    tells_loss: true,
    ..named!("loss", "frame loss rate", "RFC 2544 section 26.3")
};

static PLOTS: [Plot; 1] = [Plot::new(
    "by-load",
    "Frame loss by load",
    Series::Jobs(CURVE, "load", "loss"),
)];

/// Caption of the curve.
const CURVE: &str = "Loss by load";

static LARGEST: &[Field<SuiteResult>] = fields!(SuiteResult:
    derived!("maximum", "load 100 %", FPS, |r| r.maximum.or(r.curve.first().map(|row| row.offered)).into()),
    derived!("largest_loss", "largest loss", Unit::Share, |r| largest(&losses(r)).into()).bad().leads(),
);

static ROW: &[Field<LossRow>] = fields!(LossRow:
    derived!("load", "load", Unit::Share, |row| (row.load_pct / 100.0).into()),
    // The rate that a void trial offered is not the load of the row.
    derived!("offered", "offered", FPS, |row| row.loss_pct.map(|_| row.offered).into()),
    derived!("loss", "loss", Unit::Share, |row| row.loss_pct.map(|pct| pct / 100.0).into()).bad(),
);

/// Loss at each load as a share of 1.
fn losses(r: &SuiteResult) -> Vec<Option<f64>> {
    r.curve
        .iter()
        .map(|row| Some(row.loss_pct? / 100.0))
        .collect()
}

/// The largest known loss.
pub(super) fn largest(losses: &[Option<f64>]) -> Option<f64> {
    losses.iter().copied().flatten().reduce(f64::max)
}

/// Returns true if everything was lost at all known loads.
pub(super) fn is_all_lost(losses: &[Option<f64>]) -> bool {
    let known: Vec<f64> = losses.iter().copied().flatten().collect();
    !known.is_empty() && known.iter().all(|loss| *loss >= 1.0)
}

/// Loss at one load.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LossRow {
    /// Load as a percentage of the maximum.
    pub load_pct: f64,
    /// Load in the unit of the test.
    pub offered: f64,
    /// Loss in per cent: lost ÷ sent; absent if the trial is void.
    pub loss_pct: Option<f64>,
    /// Mix of IPv4 and IPv6: results of the frames of each version.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub families: Vec<FamilyFrames>,
}
