//! Maximum forwarding rate (RFC 2889 section 5.6.1).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use wb_figures::{Field, Plot, Series, Tone, Unit, Value, derived, fact, fields};

use super::{
    FPS,
    test::{TestDef, named},
    throughput::limit_notes,
};
use crate::{bench::SuiteResult, criteria::CriterionLimit, figures::TRIALS};

pub(super) const TEST: TestDef = TestDef {
    finds_limit: true,
    needs_throughput: true,
    values: |r, criterion| {
        let Some(mfr) = &r.mfr else {
            return vec![None];
        };
        vec![match criterion.limit {
            CriterionLimit::L1(_) => mfr.rate_l1_bps,
            CriterionLimit::L2(_) => mfr.rate_l2_bps,
            CriterionLimit::Share(_) => r.limit.zip(r.theoretical_fps).map(|(a, b)| a / b),
            _ => r.limit,
        }]
    },
    has_failed: |r| r.mfr.as_ref().is_some_and(|mfr| mfr.rate_fps <= 0.0),
    add_to: |r, _, section| {
        let terms = "MFR: highest forwarding rate, regardless of loss; FRMOL: the rate at the maximum offered load";
        let section = section
            .figures(RATES, r)
            .table(CURVE, ROW, r.mfr.iter().flat_map(|mfr| &mfr.rows))
            .plots(&PLOTS)
            .note(Tone::Term, Some(terms.to_owned()));
        limit_notes(r, section)
    },
    tells_loss: true,
    ..named!("mfr", "maximum forwarding rate", "RFC 2889 section 5.6.1")
};

static PLOTS: [Plot; 1] = [Plot::new(
    "by-load",
    "Forwarding rate by load",
    Series::Jobs(CURVE, "load", "forwarded"),
)];

/// Caption of the rates.
const CURVE: &str = "Forwarding rate by load";

static RATES: &[Field<SuiteResult>] = fields!(SuiteResult:
    derived!("theoretical_fps", "theoretical", FPS, |r| (&r.theoretical_fps).into()),
    derived!("limit", "MFR", FPS, |r| of(r, |mfr| Some(mfr.rate_fps))).good().leads(),
    derived!("at_fps", "at load", FPS, |r| of(r, |mfr| Some(mfr.load_fps))),
    derived!("of_line", "of line", Unit::Share, |r| r.of_line(r.mfr.as_ref().map(|mfr| mfr.rate_fps)).into()),
    derived!("l1_bps", "L1", Unit::Megabits, |r| of(r, |mfr| mfr.rate_l1_bps)),
    derived!("l2_bps", "L2", Unit::Megabits, |r| of(r, |mfr| mfr.rate_l2_bps)),
    derived!("frmol_fps", "FRMOL", FPS, |r| of(r, |mfr| mfr.frmol_fps)).good(),
    derived!("max_offered_fps", "at load", FPS, |r| of(r, |mfr| mfr.max_offered_fps)),
    derived!("trials", "trials", TRIALS, |r| r.trials.into()),
    fact!("limited_by", "limited by", |r| r.limiter().into()),
);

static ROW: &[Field<MfrRow>] = fields!(MfrRow:
    derived!("load", "load", Unit::Share, |row| (row.load_pct / 100.0).into()),
    derived!("offered", "offered", FPS, |row| row.offered_fps.into()),
    derived!("forwarded", "forwarded", FPS, |row| (&row.forwarded_fps).into()).good(),
);

fn of(r: &SuiteResult, value: fn(&MfrResult) -> Option<f64>) -> Value<'_> {
    r.mfr.as_ref().and_then(value).into()
}

/// Forwarding rates above the throughput (RFC 2889 section 5.6.1, RFC 2285 section 3.6). Rates and loads are per
/// direction.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MfrResult {
    /// Maximum forwarding rate (MFR), in frames per second.
    pub rate_fps: f64,
    /// Lowest load with the maximum forwarding rate, in frames per second.
    pub load_fps: f64,
    /// Maximum forwarding rate in bits per second with FCS, preamble and gap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_l1_bps: Option<f64>,
    /// Maximum forwarding rate in bits per second with FCS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_l2_bps: Option<f64>,
    /// Forwarding rate at the maximum offered load (FRMOL), in frames per second; absent if that trial is void.
    pub frmol_fps: Option<f64>,
    /// Maximum offered load (MOL), in frames per second.
    pub max_offered_fps: Option<f64>,
    /// All loads, the lowest first.
    pub rows: Vec<MfrRow>,
}

/// Forwarding rate at one load.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MfrRow {
    /// Load as a percentage of the maximum.
    pub load_pct: f64,
    /// Offered load as measured, in frames per second.
    pub offered_fps: f64,
    /// Forwarding rate in frames per second; absent if the trial is void.
    pub forwarded_fps: Option<f64>,
}
