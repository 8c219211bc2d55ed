//! Suites of tests: the head of their reports, and the logs of their trials. Results are sections like those of jobs.

mod head;
pub mod live;
mod log;
mod text;

pub(crate) use self::{
    head::facts,
    log::{log, log_with_reasons, trials_of, with_trials},
    text::{figures, section},
};

use wb_model::bench::{SuiteTrial, TrialOutcome, TrialPurpose};

/// A load with its unit.
pub(crate) fn load(load: f64, unit: &str) -> String {
    let text = wb_figures::text::load(load);
    format!("{text} {unit}").trim_end().to_owned()
}

/// A share in per cent. A tiny difference between two numbers that are computed in different ways counts as none.
pub(crate) fn of_line(share: f64) -> String {
    match (share - 1.0).abs() < 1e-9 {
        true => "100 %".to_owned(),
        false => crate::figures::ratio(share),
    }
}

/// Result of a trial, in one or two words.
pub(crate) const fn outcome(outcome: TrialOutcome) -> &'static str {
    match outcome {
        TrialOutcome::Pass => "pass",
        TrialOutcome::Fail => "fail",
        TrialOutcome::Measured => "measured",
        TrialOutcome::NotOffered => "void: not offered",
        TrialOutcome::NotRead => "void: not read",
        TrialOutcome::Late => "void: late",
        TrialOutcome::Cut => "void: interrupted",
    }
}

/// Purpose of a trial.
#[must_use]
pub const fn purpose(purpose: TrialPurpose) -> &'static str {
    match purpose {
        TrialPurpose::Ceiling => "ceiling",
        TrialPurpose::WarmUp => "warm-up",
        TrialPurpose::Search => "search",
        TrialPurpose::Confirm => "confirm",
        TrialPurpose::Measure => "measure",
    }
}

/// Number of trials, and number of them that say nothing about the device.
pub(crate) fn void(trials: &[SuiteTrial]) -> usize {
    trials.iter().filter(|t| !t.outcome.is_valid()).count()
}
