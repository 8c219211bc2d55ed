//! Suites of tests: words, sentences and tables shared by all output forms.
//!
//! Texts and pages show the same tables, so each statement about a result is written once.

mod head;
pub mod live;
mod tables;
mod text;

pub(crate) use self::{
    head::facts,
    tables::{Part, log, log_with_reasons, mlr_loads, parts, trials_of, with_trials},
    text::{figures, section},
};

use wb_model::bench::{LbLimit, SuiteResult, SuiteTest, SuiteTrial, TrialOutcome, TrialPurpose};

use crate::figures::{UNKNOWN, group, significant};

/// Name of a test in its document, and the document.
pub(crate) const fn method(test: SuiteTest) -> (&'static str, &'static str) {
    match test {
        SuiteTest::Throughput => ("throughput", "RFC 2544 section 26.1"),
        SuiteTest::Ndr => ("non-drop and partial drop rates", "MLRsearch, RFC 9971"),
        SuiteTest::Latency => ("latency", "RFC 2544 section 26.2, RFC 8219, RFC 5481"),
        SuiteTest::Loss => ("frame loss rate", "RFC 2544 section 26.3"),
        SuiteTest::Mfr => ("maximum forwarding rate", "RFC 2889 section 5.6.1"),
        SuiteTest::Impact => ("impact", "RFC 5180"),
        SuiteTest::B2b => ("back-to-back frames", "RFC 9004"),
        SuiteTest::Recovery => ("system recovery", "RFC 2544 section 26.5"),
        SuiteTest::Reset => ("reset", "RFC 6201"),
        SuiteTest::Y1564 => ("service activation", "ITU-T Y.1564"),
    }
}

/// A frame size as the plan has it, with its unit: `64 B`, `imix`.
pub(crate) fn size(size: &str) -> String {
    match size.is_empty() || size.contains(|c: char| !c.is_ascii_digit()) {
        true => size.to_owned(),
        false => format!("{size} B"),
    }
}

/// Name of a result: `throughput 64 B`, `ndr 64 B pdr`, `throughput cps`, `throughput 64 B in bursts of 16`.
pub(crate) fn title(r: &SuiteResult) -> String {
    format!("{} {}", r.test.name(), subject(r))
}

/// Name of a result without the test.
pub(crate) fn subject(r: &SuiteResult) -> String {
    let mut parts = vec![match r.size.as_str() {
        "" => r.of.name().to_owned(),
        own => size(own),
    }];
    parts.extend(r.goal.clone());
    parts.extend(r.burst.as_ref().map(|burst| in_bursts(burst.frames)));
    parts.join(" ")
}

/// Spacing of the frames of a run, unless it is even.
pub(crate) fn in_bursts(frames: u32) -> String {
    format!("in bursts of {}", crate::figures::count(frames.into()))
}

/// A load without its unit, rounded down to a whole number. Values below 100 have three digits.
#[must_use]
pub fn figure(load: f64) -> String {
    match load.abs() {
        n if !n.is_finite() => UNKNOWN.to_owned(),
        n if n >= 100.0 || n.fract() == 0.0 => group(&format!("{:.0}", (load + 1e-6).floor())),
        _ => significant(load, 3),
    }
}

/// A load, or [`UNKNOWN`].
pub(crate) fn figure_or(load: Option<f64>) -> String {
    load.map_or_else(|| UNKNOWN.to_owned(), figure)
}

/// A load with its unit.
pub(crate) fn load(load: f64, unit: &str) -> String {
    format!("{} {unit}", figure(load)).trim_end().to_owned()
}

/// A share in per cent. A tiny difference between two numbers that are computed in different ways counts as none.
pub(crate) fn of_line(share: f64) -> String {
    match (share - 1.0).abs() < 1e-9 {
        true => "100 %".to_owned(),
        false => crate::figures::ratio(share),
    }
}

/// Returns true if the result is at line rate.
fn at_line_rate(r: &SuiteResult) -> bool {
    let of_line = r.limit.zip(r.theoretical_fps);
    r.unit == "fps" && of_line.is_some_and(|(limit, line)| limit >= line * (1.0 - 1e-9))
}

/// Limiting component of a result, in one or two words.
pub(crate) fn limited_by(r: &SuiteResult) -> &'static str {
    match r.limited_by {
        _ if r.not_measured.is_some() => "not measured",
        _ if r.tester_limit => "tester",
        _ if r.limit.is_none() && r.test == SuiteTest::Mfr => "nothing forwarded",
        _ if r.limit.is_none() => "none passed",
        _ if at_line_rate(r) => "line rate",
        None => "",
        Some(LbLimit::Device) => "device",
        Some(LbLimit::Tester) => "tester",
        Some(LbLimit::Plan) => "plan",
        Some(LbLimit::Time) => "time",
    }
}

/// Returns true if a test searches for a limit.
pub(crate) const fn searches(test: SuiteTest) -> bool {
    test.finds_limit()
}

/// Returns true if the tester, not the device, was the limit.
pub(crate) fn is_tester_limit(r: &SuiteResult) -> bool {
    r.tester_limit || r.limited_by == Some(LbLimit::Tester) && r.limit.is_some()
}

/// The most important statement: the tester was the limit, nothing was measured, the test was aborted, no load passed.
pub(crate) fn headline(r: &SuiteResult) -> Option<String> {
    let what = subject(r);
    let searches = searches(r.test);
    if let Some(why) = &r.not_measured {
        return Some(format!("{what}: not measured: {why}"));
    }
    let ceiling = r.tester_ceiling.map_or_else(String::new, |most| {
        format!("; the tester alone reaches {}", load(most, &r.unit))
    });
    let text = match r.limit {
        Some(limit) if searches && is_tester_limit(r) => {
            format!(
                "{what}: tester limit: at least {}{ceiling}",
                load(limit, &r.unit)
            )
        }
        None if searches && is_tester_limit(r) => {
            format!("{what}: tester limit: no load could be tested{ceiling}")
        }
        Some(limit) if searches && r.incomplete => {
            format!("{what}: stopped early: at least {}", load(limit, &r.unit))
        }
        _ if r.incomplete => format!("{what}: stopped early"),
        None if r.test == SuiteTest::Mfr => format!("{what}: nothing was forwarded"),
        None if searches => format!("{what}: no tested load passed"),
        _ => return None,
    };
    Some(text)
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

/// Unit of the loads of a trial: bursts are counted in frames.
pub(crate) fn trial_unit(r: &SuiteResult) -> &str {
    match r.test {
        SuiteTest::B2b => "frames",
        _ => &r.unit,
    }
}

/// Number of trials, and number of them that say nothing about the device.
pub(crate) fn void(trials: &[SuiteTrial]) -> usize {
    trials.iter().filter(|t| !t.outcome.is_valid()).count()
}
