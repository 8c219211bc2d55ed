//! Suites of tests: the requested tests, a section for each test, and all trials.

use wb_model::{
    Report,
    bench::{Quantity, SuiteResult, TrialOutcome, TrialPurpose},
};

use super::{
    content::facts,
    document::Section,
    plot::{Form, Plot, Scale, Series, X, Y},
};
use crate::{
    sections::{self, plots},
    suite,
};

pub(super) fn sections(report: &Report) -> Vec<Section> {
    let suites = sections::suites(report);
    if suites.is_empty() {
        return Vec::new();
    }
    let mut head = Section::new("Benchmark");
    head.table(facts("", suite::facts(report)));
    let mut list = vec![head];
    let results = suites.iter();
    list.extend(results.map(|results| sections::document::section(results, None)));
    let mut trials = Section::new("Trials");
    for r in suite::with_trials(report) {
        let title = suite::trials_of(report, r);
        if r.test.def().searches {
            trials.plot(search(&title, r));
            trials.plot(loss(&title, r));
        }
        trials.table(suite::log_with_reasons(&title, r));
    }
    list.push(trials);
    list
}

/// The tried loads, in order.
fn search(title: &str, r: &SuiteResult) -> Option<Plot> {
    let trials = &r.trial_log;
    if trials.len() < 2 {
        return None;
    }
    let that = |is: fn(TrialOutcome) -> bool| -> Vec<Option<f64>> {
        let own = trials.iter();
        own.map(|t| is(t.outcome).then_some(t.intended)).collect()
    };
    let asked = trials.iter().map(|t| Some(t.intended)).collect();
    let series = vec![
        Series::line("intended", asked).as_form(Form::Dashes),
        Series::line("fail", that(|o| o == TrialOutcome::Fail)).as_form(Form::Marks),
        Series::line("pass", that(|o| o == TrialOutcome::Pass)).as_form(Form::Marks),
        Series::line("void", that(|o| !o.is_valid())).as_form(Form::Marks),
        Series::line("measured", that(|o| o == TrialOutcome::Measured)).as_form(Form::Marks),
    ];
    let axis = Y::new("load", r.trial_unit());
    Plot::new(
        &plots::file_name(&format!("search-{title}")),
        &format!("{title}: search by trial"),
        X::scaled("trial", Scale::Counts),
        plots::readable(axis, &series),
        (1..=trials.len()).map(|i| i as f64).collect(),
        series,
    )
}

/// Loss by load, in trials that were evaluated. One load is no curve, however often it was tried.
fn loss(title: &str, r: &SuiteResult) -> Option<Plot> {
    let is_own = |purpose| matches!(purpose, TrialPurpose::Search | TrialPurpose::Confirm);
    let trials = r.trial_log.iter();
    let trials = trials.filter(|t| is_own(t.purpose) && t.outcome.is_valid());
    let mut points: Vec<(f64, f64)> = trials.map(|t| (t.offered, 100.0 * t.loss_ratio)).collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (low, high) = (points.first()?.0, points.last()?.0);
    let is_curve = high - low >= 0.01 * high && points.iter().any(|(_, loss)| *loss > 0.0);
    let what = match r.of {
        Quantity::Frames => "lost frames",
        Quantity::Cps | Quantity::Cc => "failed connections",
        Quantity::Rps => "unanswered requests",
    };
    let (xs, values) = points.into_iter().map(|(x, loss)| (x, Some(loss))).unzip();
    Plot::new(
        &plots::file_name(&format!("loss-{title}")),
        &format!("{title}: {what} by load"),
        X::linear("offered load", r.trial_unit()),
        Y::new(what, "%"),
        xs,
        vec![Series::line(what, values).as_form(Form::Marks)],
    )
    .filter(|_| is_curve)
}
