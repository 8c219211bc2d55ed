//! Throughput: highest load without loss (RFC 2544 section 26.1).

use wb_figures::{Field, Plot, Section, Series, Show, Tone, Unit, derived, fact, fields};

use super::{
    FPS,
    ndr::{BOUNDS, MLR_LOAD},
    test::{TestDef, named},
};
use crate::{
    bench::{LbLimit, Quantity, SuiteResult, TrialOutcome},
    criteria::{Criterion, CriterionLimit},
    figures::TRIALS,
};

pub(super) const TEST: TestDef = TestDef {
    finds_limit: true,
    searches: true,
    takes_connections: true,
    metrics: |r| ["throughput"].into_iter().chain(r.of.metric()).collect(),
    values: limit_values,
    has_failed: none_passed,
    add_to: |r, plan, section| {
        let repeats = plan.map_or(0, |plan| plan.search.repeats);
        let verified = (repeats > 0).then(|| {
            let trials = u64::from(repeats) + 1;
            format!("loss verification: each load passed in at least one of {trials} trials")
        });
        let loads = r.mlr.iter().flat_map(|mlr| &mlr.loads);
        let section = section
            .figures(LIMIT, r)
            .table("Loads tried", MLR_LOAD, loads)
            .detail(true)
            .plots(&PLOTS);
        let section = match r.of {
            Quantity::Frames => section,
            _ => section.always("beyond"),
        };
        let layers = "L1: with FCS, preamble and gap; L2: with FCS";
        let layers = r.throughput_l1_bps.map(|_| layers.to_owned());
        let bounds = r.mlr.as_ref().map(|_| BOUNDS.to_owned());
        limit_notes(r, section)
            .note(Tone::Term, layers)
            .note(Tone::Term, bounds)
            .note(Tone::Term, verified)
    },
    ..named!("throughput", "throughput", "RFC 2544 section 26.1")
};

static PLOTS: [Plot; 1] = [Plot::new(
    "by-size",
    "Throughput by frame size",
    Series::Parameter(&["theoretical_fps", "limit", "tester_ceiling"]),
)];

/// The form of RFC 2544 section 26.1; rates of one direction.
static LIMIT: &[Field<SuiteResult>] = fields!(SuiteResult:
    derived!("theoretical_fps", "theoretical", FPS, |r| (&r.theoretical_fps).into()),
    derived!("limit", "throughput", FPS, |r| (&r.limit).into()).good().leads(),
    derived!("gap_ns", "gap", Unit::Nanoseconds, |r| r.burst_gap_ns().into()),
    derived!("of_line", "of line", Unit::Share, |r| r.of_line(r.limit).into()),
    derived!("l1_bps", "L1", Unit::Megabits, |r| (&r.throughput_l1_bps).into()),
    derived!("l2_bps", "L2", Unit::Megabits, |r| (&r.throughput_l2_bps).into()),
    derived!("beyond", "lowest failed", FPS, |r| (&r.beyond).into()).show(Show::Details),
    derived!("width", "width", Unit::Share, |r| r.mlr.as_ref().and_then(|mlr| mlr.relative_width).into()),
    derived!("conditional", "conditional", FPS, |r| r.mlr.as_ref().and_then(|mlr| mlr.conditional_throughput).into()),
    derived!("tester_ceiling", "tester ceiling", FPS, |r| (&r.tester_ceiling).into()),
    derived!("trials", "trials", TRIALS, |r| r.trials.into()),
    fact!("limited_by", "limited by", |r| r.limiter().into()),
);

/// Value of a limit for a criterion, in the unit of the criterion.
pub(super) fn limit_values(r: &SuiteResult, criterion: &Criterion) -> Vec<Option<f64>> {
    vec![match criterion.limit {
        CriterionLimit::L1(_) => r.throughput_l1_bps,
        CriterionLimit::L2(_) => r.throughput_l2_bps,
        CriterionLimit::Share(_) => r.throughput_fps.zip(r.theoretical_fps).map(|(a, b)| a / b),
        _ => r.limit,
    }]
}

/// Returns true if no load passed because of the device.
pub(super) fn none_passed(r: &SuiteResult) -> bool {
    let all_failed = || match &r.mlr {
        Some(mlr) => {
            let any = |time: fn(&super::MlrLoad) -> f64| mlr.loads.iter().any(|l| time(l) > 0.0);
            any(|l| l.high_full_s + l.high_short_s) && !any(|l| l.low_full_s + l.low_short_s)
        }
        None => {
            let any = |outcome| r.trial_log.iter().any(|t| t.outcome == outcome);
            any(TrialOutcome::Fail) && !any(TrialOutcome::Pass)
        }
    };
    r.limit.is_none() && (r.limited_by == Some(LbLimit::Device) || all_failed())
}

/// Adds the reasons why a limit may be higher than reported.
pub(super) fn limit_notes<'a>(r: &'a SuiteResult, section: Section<'a>) -> Section<'a> {
    let is_limit = r.limit.is_some();
    let told = |is_true: bool, text: &str| (is_limit && is_true).then(|| text.to_owned());
    let irregular = r.mlr.as_ref().and_then(|mlr| mlr.irregular.as_ref());
    section
        .note(
            Tone::Plain,
            told(!r.confirmed, "not confirmed by a full-length trial"),
        )
        .note(
            Tone::Plain,
            told(
                r.limiter() == "plan",
                "the limit may be higher: the plan ends at this load",
            ),
        )
        .note(
            Tone::Plain,
            told(
                r.limiter() == "time",
                "the limit may be higher: the time or the number of trials ran out",
            ),
        )
        .note(
            Tone::Plain,
            irregular.map(|why| format!("irregular: {why}")),
        )
}
