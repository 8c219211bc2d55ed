//! The highest load that passes: throughput by bisection or MLRsearch, and the goals of `ndr`.

use wb_model::bench::{
    GoalPlan, LbLimit, Method, MlrLoad, MlrResult, Quantity, SuiteResult, SuiteTest, SuiteTrial,
    TrialOutcome,
};
use wb_search::{
    Binary, Class, Goal, GoalFound, GoalResult, LimitCause, Mlr, MlrFound, Search, SearchResult,
    binary, mlr, search,
};

use super::{SizeFacts, SuiteStop, first, search_minimum, tester::Tester};
use crate::Bench;

/// Default precision: the final difference between a passed and a failed load, as a share of the latter.
const PRECISION: f64 = 0.005;
/// A device that fails at less than this multiple of a load has its limit there.
const NEAR: f64 = 1.1;
/// Maximum number of trials of a search, without those that confirm it.
const MOST_TRIALS: u32 = 60;
/// Maximum number of loads tried for confirming a result.
const MOST_CONFIRMATIONS: u32 = 10;
/// Lower limit of MLRsearch (RFC 9971's reference implementation).
const MLR_LEAST: f64 = 1_000.0;

/// Sets the limit of a result, in all its units.
pub(super) fn set_limit(result: &mut SuiteResult, limit: Option<f64>) {
    result.limit = limit;
    if result.of != Quantity::Frames {
        return;
    }
    let bits = |extra: f64| Some(limit? * (result.mean_size? + extra) * 8.0);
    result.throughput_fps = limit;
    result.throughput_l2_bps = bits(0.0);
    result.throughput_l1_bps = bits(20.0);
}

fn limited_by(bound: LimitCause, known: &SizeFacts) -> LbLimit {
    match bound {
        LimitCause::Device => LbLimit::Device,
        LimitCause::Tester => LbLimit::Tester,
        // The device forwarded the tester's full ceiling.
        LimitCause::Maximum if known.maximum_is_ours => LbLimit::Tester,
        LimitCause::Maximum => LbLimit::Plan,
        LimitCause::Unfinished => LbLimit::Time,
    }
}

fn set_tester_limit(result: &mut SuiteResult, known: &SizeFacts) {
    result.tester_limit = result.limited_by == Some(LbLimit::Tester);
    if result.limited_by == Some(LbLimit::Plan)
        && known.theoretical.is_some_and(|t| t <= known.maximum)
    {
        result
            .notes
            .push("the device forwards at line rate".to_owned());
    }
}

/// Measures the throughput.
pub(super) fn find<B: Bench>(
    tester: &mut Tester<'_, B>,
    known: &SizeFacts,
    result: &mut SuiteResult,
) -> Result<(), SuiteStop<B::Error>> {
    let suite = tester.suite;
    if suite.search.method == Method::Mlr {
        let goal = GoalPlan {
            name: "throughput".to_owned(),
            loss: suite.search.loss,
            final_duration: suite.times.trial,
            duration_sum: suite.times.trial,
            exceed: wb_model::bench::Share(0.0),
            width: suite
                .search
                .precision
                .unwrap_or(wb_model::bench::Share(PRECISION)),
        };
        let found = search_goals(tester, known, &[goal])?;
        if let Some(goal) = found.goals.first() {
            fill_result(result, known, goal, 0, &found);
        }
        result.goal = None;
        return Ok(());
    }
    warm_up(tester, known)?;
    let found = match suite.search.resolution {
        Some(share) if known.maximum.is_finite() => {
            tester.left.trials = (1.0 / share.0).log2().ceil() as u32 + 1;
            let all = Binary {
                minimum: search_minimum(known, suite),
                resolution: known.maximum * share.0,
                loss_goal: suite.search.loss.0,
                repeats: suite.search.repeats,
                search_duration: suite.times.search.map(|time| time.0),
                final_duration: Some(suite.times.trial.0),
                most_confirmations: MOST_CONFIRMATIONS,
                most_trials: MOST_TRIALS.saturating_mul(1 + suite.search.repeats),
                ..Binary::up_to(known.maximum)
            };
            binary(tester, &all)?
        }
        _ => {
            tester.repeats = suite.search.repeats;
            let precision = suite.search.precision.map_or(PRECISION, |p| p.0);
            tester.doubts = Some(precision);
            tester.left.trials = (1.0 / precision).log2().ceil() as u32;
            let all = Search {
                first: first(known, suite),
                maximum: known.maximum,
                minimum: search_minimum(known, suite),
                resolution: precision,
                most_trials: MOST_TRIALS,
                most_confirmations: MOST_CONFIRMATIONS,
                ..Search::up_to(known.maximum)
            };
            search(tester, &all)?
        }
    };
    conclude_search(result, known, &found, &tester.log);
    if tester.doubted > 0 {
        let loads = match tester.doubted {
            1 => "a load".to_owned(),
            n => format!("{n} loads"),
        };
        result.notes.push(format!(
            "{loads} failed although another trial of the same length forwarded more, and had a second try"
        ));
    }
    Ok(())
}

/// A first trial wakes the device; its results are discarded.
fn warm_up<B: Bench>(
    tester: &mut Tester<'_, B>,
    known: &SizeFacts,
) -> Result<(), SuiteStop<B::Error>> {
    // The ceiling measurement has woken it.
    if !tester.suite.times.warm_up || known.ceiling.is_some() || !known.maximum.is_finite() {
        return Ok(());
    }
    let ask = wb_search::TrialRequest {
        load: known.maximum,
        duration: Some(tester.suite.search_time().0),
        purpose: wb_search::Purpose::WarmUp,
    };
    wb_search::Measurer::measure(tester, &ask).map(|_| ())
}

/// Lowest load above the limit at which the device failed, not the tester.
pub(super) fn lowest_failed(found: &SearchResult, log: &[SuiteTrial]) -> Option<f64> {
    if found.bound == LimitCause::Device {
        return found.beyond;
    }
    let best = found.best.unwrap_or(0.0);
    let failed = log.iter().filter(|t| t.outcome == TrialOutcome::Fail);
    let above = failed.map(|t| t.intended).filter(|load| *load > best);
    above.reduce(f64::min)
}

fn conclude_search(
    result: &mut SuiteResult,
    known: &SizeFacts,
    found: &SearchResult,
    log: &[SuiteTrial],
) {
    set_limit(result, found.best);
    result.beyond = lowest_failed(found, log);
    result.confirmed = found.confirmed;
    result.limited_by = Some(limited_by(found.bound, known));
    // If the device fails at a slightly higher load, this is its limit, although less precise than requested.
    if let (LimitCause::Tester, Some(limit)) = (found.bound, found.best)
        && let Some(load) = result.beyond.filter(|load| *load <= limit * NEAR)
    {
        result.limited_by = Some(LbLimit::Device);
        result.notes.push(format!(
            "between {limit:.0} and {load:.0} {}, where the device fails, no trial was valid",
            result.unit
        ));
    }
    if let Some(held) = found.near_maximum {
        let how = if held { "passed" } else { "failed" };
        result.notes.push(format!(
            "only the maximum failed; 99.98 % of it (tolerance of Ethernet clocks) {how}"
        ));
    }
    set_tester_limit(result, known);
}

/// All goals of `ndr`, one result each: the first is `result`, the others are appended to `more`.
pub(super) fn measure_goals<B: Bench>(
    tester: &mut Tester<'_, B>,
    known: &SizeFacts,
    result: &mut SuiteResult,
    more: &mut Vec<SuiteResult>,
) -> Result<(), SuiteStop<B::Error>> {
    let plans = tester.suite.goals();
    result.goal = plans.first().map(|goal| goal.name.clone());
    result.loss_goal = plans.first().map(|goal| goal.loss.0);
    let found = search_goals(tester, known, &plans)?;
    for (n, (plan, goal)) in plans.iter().zip(&found.goals).enumerate() {
        let mut own = SuiteResult {
            goal: Some(plan.name.clone()),
            loss_goal: Some(plan.loss.0),
            ..result.clone()
        };
        own.notes.clear();
        fill_result(&mut own, known, goal, n, &found);
        own.trials = goal.trials;
        own.trial_seconds = goal.trial_time.as_secs_f64();
        match n {
            0 => *result = own,
            _ => {
                own.notes
                    .push("its trials are in the log of the first goal".to_owned());
                more.push(own);
            }
        }
    }
    Ok(())
}

fn search_goals<B: Bench>(
    tester: &mut Tester<'_, B>,
    known: &SizeFacts,
    plans: &[GoalPlan],
) -> Result<MlrFound, SuiteStop<B::Error>> {
    let suite = tester.suite;
    let goals: Vec<Goal> = plans.iter().map(search_goal).collect();
    let longest = goals.iter().map(|g| g.duration_sum).max();
    let one = suite
        .search_time()
        .0
        .max(std::time::Duration::from_millis(100));
    let each = longest.unwrap_or_default().as_secs_f64() / one.as_secs_f64();
    tester.left.trials = (each.ceil() as u32)
        .saturating_add(4)
        .saturating_mul(plans.len() as u32);
    let maximum = match known.maximum.is_finite() {
        true => known.maximum,
        // Unknown, so use the highest load that a trial can have.
        false => 1e7,
    };
    let least = match suite.of {
        Quantity::Frames => MLR_LEAST.min(maximum / 10.0),
        _ => 1.0,
    };
    let all = Mlr {
        goals,
        minimum: search_minimum(known, suite).max(least),
        maximum,
        time_limit: suite.search.budget.0,
        warm_up: (suite.times.warm_up && known.ceiling.is_none()).then_some(one),
        intermediate: true,
        initial_duration: suite.times.search.map(|time| time.0),
    };
    mlr(tester, &all)
}

fn search_goal(plan: &GoalPlan) -> Goal {
    Goal {
        loss_ratio: plan.loss.0,
        exceed_ratio: plan.exceed.0,
        final_duration: plan.final_duration.0,
        initial_duration: None,
        duration_sum: plan.duration_sum.0,
        width: plan.width.0,
    }
}

fn fill_result(
    result: &mut SuiteResult,
    known: &SizeFacts,
    goal: &GoalFound,
    n: usize,
    found: &MlrFound,
) {
    set_limit(result, goal.lower);
    result.beyond = goal.upper;
    // A lower bound met the goal in trials of full length, even if there is no upper bound.
    result.confirmed = goal.lower.is_some();
    let unit = &result.unit;
    let (limited_by, irregular) = match goal.result {
        GoalResult::Regular => (LbLimit::Device, None),
        GoalResult::AtMaximum if known.maximum_is_ours => (
            LbLimit::Tester,
            Some("the highest load that the tester can offer meets the goal".to_owned()),
        ),
        GoalResult::AtMaximum => (
            LbLimit::Plan,
            Some("the maximum load meets the goal".to_owned()),
        ),
        GoalResult::AtMinimum => (
            LbLimit::Device,
            Some("the minimum load does not meet the goal".to_owned()),
        ),
        GoalResult::TesterLimit(limit) => (
            LbLimit::Tester,
            Some(format!("the tester could offer at most {limit:.0} {unit}")),
        ),
        GoalResult::Unfinished => (
            LbLimit::Time,
            Some("time ran out before the bounds converged".to_owned()),
        ),
    };
    result.limited_by = Some(limited_by);
    let load = |load: &wb_search::LoadFound| {
        let (sums, class) = load.goals.get(n)?;
        Some(MlrLoad {
            load: load.load,
            trials: u32::try_from(load.trials.len()).unwrap_or(u32::MAX),
            low_full_s: sums.full_low.as_secs_f64(),
            high_full_s: sums.full_high.as_secs_f64(),
            low_short_s: sums.short_low.as_secs_f64(),
            high_short_s: sums.short_high.as_secs_f64(),
            class: match class {
                Class::Lower => "lower",
                Class::Upper => "upper",
                Class::Undecided => "undecided",
            }
            .to_owned(),
        })
    };
    result.mlr = Some(MlrResult {
        relevant_lower_bound: goal.lower,
        relevant_upper_bound: goal.upper,
        relative_width: goal.width,
        conditional_throughput: goal.conditional_throughput,
        irregular,
        loads: found.loads.iter().filter_map(load).collect(),
    });
    if result.test == SuiteTest::Ndr || result.limited_by == Some(LbLimit::Tester) {
        set_tester_limit(result, known);
    }
}
