//! The logs of all trials of a suite.

use wb_model::{
    Report,
    bench::{SuiteResult, SuiteTrial, TrialOutcome},
};

use super::{load, of_line, outcome, purpose};
use crate::{
    figures::{UNKNOWN, count, ratio, time_ns},
    report::{Cell, Mark, Table},
};

/// Returns true if two results are of one test at one size, with the same spacing of frames.
fn is_of_same(a: &SuiteResult, b: &SuiteResult) -> bool {
    (a.test, &a.size, &a.burst) == (b.test, &b.size, &b.burst)
}

/// Results with trials, each log once: goals that were searched together share a log.
pub(crate) fn with_trials(report: &Report) -> Vec<&SuiteResult> {
    let mut own: Vec<&SuiteResult> = Vec::new();
    for r in report.results.iter().filter(|r| !r.trial_log.is_empty()) {
        let same = |other: &&SuiteResult| is_of_same(other, r) && other.trial_log == r.trial_log;
        if !own.iter().any(same) {
            own.push(r);
        }
    }
    own
}

/// Name of the owner of the trials of a result: goals that were searched together are listed under the test.
pub(crate) fn trials_of(report: &Report, r: &SuiteResult) -> String {
    let mut same = report
        .results
        .iter()
        .filter(|other| is_of_same(other, r) && other.trial_log == r.trial_log);
    match (same.next(), same.next()) {
        (_, Some(_)) => SuiteResult {
            goal: None,
            trial_log: Vec::new(),
            ..r.clone()
        }
        .title(),
        _ => r.title(),
    }
}

/// Log of the trials, with all counters.
pub(crate) fn log(r: &SuiteResult) -> Table {
    let head = [
        ">trial",
        "purpose",
        ">intended",
        ">of max",
        ">offered",
        ">time",
        ">sent",
        ">received",
        ">lost",
        ">loss",
        ">p99",
        "outcome",
    ];
    let mut table = Table::new("", &head);
    for t in &r.trial_log {
        let received = count(t.rx).into();
        let p99 = Cell::from(
            t.latency_ns
                .p99
                .map_or_else(|| UNKNOWN.to_owned(), |ns| time_ns(ns as f64)),
        );
        let outcome = Cell::marked(outcome(t.outcome), mark(t));
        let [lost, loss] = lost(t);
        let row = asked(r, t).into_iter();
        table.row(row.chain([received, lost, loss, p99, outcome]));
    }
    table.known()
}

/// Log of the trials, with reasons, and with as many counters as a page has room for.
pub(crate) fn log_with_reasons(caption: &str, r: &SuiteResult) -> Table {
    let head = [
        ">trial",
        "purpose",
        ">intended",
        ">of max",
        ">offered",
        ">time",
        ">sent",
        ">lost",
        ">loss",
        "outcome",
        "reason",
    ];
    let mut table = Table::new(caption, &head);
    for t in &r.trial_log {
        // The reason gives the rest.
        let word = if t.outcome.is_valid() {
            outcome(t.outcome)
        } else {
            "void"
        };
        let outcome = Cell::marked(word, mark(t));
        let [lost, loss] = lost(t);
        let row = asked(r, t).into_iter();
        table.row(row.chain([lost, loss, outcome, t.reason.clone().into()]));
    }
    table.known()
}

fn mark(t: &SuiteTrial) -> Mark {
    match t.outcome {
        TrialOutcome::Pass => Mark::Good,
        TrialOutcome::Fail => Mark::Bad,
        _ => Mark::Plain,
    }
}

fn lost(t: &SuiteTrial) -> [Cell; 2] {
    let mark = if t.lost > 0 { Mark::Bad } else { Mark::Plain };
    [
        Cell::marked(count(t.lost), mark),
        ratio(t.loss_ratio).into(),
    ]
}

fn seconds(s: f64) -> String {
    match s == 0.0 {
        true => "0 s".to_owned(),
        false => time_ns(s * 1e9),
    }
}

/// First columns of both logs.
fn asked(r: &SuiteResult, t: &SuiteTrial) -> [Cell; 7] {
    let share = t.intended_pct.map(|pct| of_line(pct / 100.0));
    [
        t.trial.to_string().into(),
        match t.step.as_str() {
            "" => purpose(t.purpose).into(),
            step => step.into(),
        },
        load(t.intended, r.trial_unit()).into(),
        share.unwrap_or_else(|| UNKNOWN.to_owned()).into(),
        wb_figures::text::load(t.offered).into(),
        seconds(t.duration_s).into(),
        count(t.tx).into(),
    ]
}
