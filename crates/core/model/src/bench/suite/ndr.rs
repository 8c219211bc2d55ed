//! Highest loads that meet goals, searched together (MLRsearch, RFC 9971).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use wb_figures::{Field, Plot, Series, Tone, Unit, derived, fact, fields, gauge};

use super::{
    FPS, Share,
    test::{TestDef, named},
    throughput::{limit_notes, limit_values, none_passed},
};
use crate::{bench::SuiteResult, figures::TRIALS, units::Span};

pub(super) const TEST: TestDef = TestDef {
    finds_limit: true,
    searches: true,
    takes_connections: true,
    // A goal without loss is NDR, regardless of its name.
    metrics: |r| {
        let own = match r.loss_goal.is_some_and(|loss| loss > 0.0) {
            true => "pdr",
            false => "ndr",
        };
        [own].into_iter().chain(r.of.metric()).collect()
    },
    values: limit_values,
    has_failed: none_passed,
    add_to: |r, _, section| {
        let loads = r.mlr.iter().flat_map(|mlr| &mlr.loads);
        let section = section
            .figures(FIGURES, r)
            .table("Loads tried", MLR_LOAD, loads)
            .detail(true)
            .plots(&PLOTS);
        limit_notes(r, section).note(Tone::Term, r.mlr.as_ref().map(|_| BOUNDS.to_owned()))
    },
    ..named!(
        "ndr",
        "non-drop and partial drop rates",
        "MLRsearch, RFC 9971"
    )
};

static PLOTS: [Plot; 1] = [Plot::new(
    "by-size",
    "Lower bounds by frame size",
    Series::Parameter(&["limit", "tester_ceiling"]),
)];

/// Explanation of the results of MLRsearch.
pub(super) const BOUNDS: &str =
    "lower bound: the largest load that met the goal; conditional: forwarding rate at that load";

static FIGURES: &[Field<SuiteResult>] = fields!(SuiteResult:
    derived!("limit", "lower bound", FPS, |r| (&r.limit).into()).good().leads(),
    derived!("beyond", "upper bound", FPS, |r| (&r.beyond).into()),
    derived!("width", "width", Unit::Share, |r| r.mlr.as_ref().and_then(|mlr| mlr.relative_width).into()),
    derived!("conditional", "conditional", FPS, |r| r.mlr.as_ref().and_then(|mlr| mlr.conditional_throughput).into()).good(),
    derived!("gap_ns", "gap", Unit::Nanoseconds, |r| r.burst_gap_ns().into()),
    derived!("l2_bps", "L2", Unit::Megabits, |r| (&r.throughput_l2_bps).into()),
    derived!("tester_ceiling", "tester ceiling", FPS, |r| (&r.tester_ceiling).into()),
    derived!("trials", "trials", TRIALS, |r| r.trials.into()),
    derived!("trial_seconds", "time", Unit::Seconds, |r| r.trial_seconds.into()),
    fact!("limited_by", "limited by", |r| r.limiter().into()),
);

pub(super) static MLR_LOAD: &[Field<MlrLoad>] = fields!(MlrLoad:
    gauge!(load, "load", FPS),
    derived!("trials", "trials", TRIALS, |l| l.trials.into()),
    gauge!(low_full_s, "low, full", Unit::Seconds),
    gauge!(high_full_s, "high, full", Unit::Seconds),
    gauge!(low_short_s, "low, short", Unit::Seconds),
    gauge!(high_short_s, "high, short", Unit::Seconds),
    fact!("class", "bound", |l| (&l.class).into()),
);

/// Goal of MLRsearch (RFC 9971 section 4.6).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GoalPlan {
    /// Name in the report.
    pub name: String,
    /// Duration of a full-length trial, at least 100 ms.
    pub final_duration: Span,
    /// Total duration of trials at one load after which the load is classified at the latest.
    pub duration_sum: Span,
    /// Share of lost frames up to which a trial is a low-loss trial, below 1.
    pub loss: Share,
    /// Share of the total duration in which trials may exceed the loss, below 1.
    pub exceed: Share,
    /// Maximum difference of the bounds, as a share of the upper bound, 0.01 % to 50 %.
    pub width: Share,
}

impl GoalPlan {
    /// Returns the goal with this name: `ndr`, `pdr` (FD.io), `rfc2544`, `tst009`.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let goal = |last: u64, sum: u64, loss: f64, exceed: f64| Self {
            name: name.to_owned(),
            final_duration: Span::from_secs(last),
            duration_sum: Span::from_secs(sum),
            loss: Share(loss),
            exceed: Share(exceed),
            width: Share(0.005),
        };
        match name {
            "ndr" => Some(goal(1, 21, 0.0, 0.5)),
            "pdr" => Some(goal(1, 21, 0.005, 0.5)),
            "rfc2544" => Some(goal(60, 60, 0.0, 0.0)),
            "tst009" => Some(goal(60, 120, 0.0, 0.5)),
            _ => None,
        }
    }
}

/// Result of MLRsearch for one goal (RFC 9971).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MlrResult {
    /// Largest load that is a lower bound: `limit`.
    pub relevant_lower_bound: Option<f64>,
    /// Smallest load that is an upper bound: `beyond`.
    pub relevant_upper_bound: Option<f64>,
    /// Relative width of the bounds: (upper − lower) ÷ upper.
    pub relative_width: Option<f64>,
    /// Conditional throughput of the lower bound.
    pub conditional_throughput: Option<f64>,
    /// Reason why the result is irregular: no upper or no lower bound was found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub irregular: Option<String>,
    /// All loads, the lowest first.
    #[serde(default)]
    pub loads: Vec<MlrLoad>,
}

/// MLRsearch statistics of one load for one goal, with total durations in seconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MlrLoad {
    /// Load.
    pub load: f64,
    /// Number of trials at the load.
    pub trials: u32,
    /// Total duration of full-length trials that met the loss ratio.
    pub low_full_s: f64,
    /// Total duration of full-length trials that exceeded the loss ratio.
    pub high_full_s: f64,
    /// Total duration of short trials that met the loss ratio.
    pub low_short_s: f64,
    /// Total duration of short trials that exceeded the loss ratio.
    pub high_short_s: f64,
    /// Classification: `lower`, `upper` or `undecided`.
    pub class: String,
}
