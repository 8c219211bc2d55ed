//! Text, documents, CSV and comparisons of sections. Nothing here knows a kind of job.

pub(crate) mod csv;
pub(crate) mod document;
pub(crate) mod plots;
pub(crate) mod tables;
pub(crate) mod text;

use wb_figures::{Better, Def, Figure, Kind, Section, Show, Unit, Value};
use wb_model::{Report, bench};

use crate::figures::{count, share};

/// Results of the tests of a suite, test by test.
pub(crate) fn suites(report: &Report) -> Vec<Vec<Section<'_>>> {
    let mut tests: Vec<Vec<Section<'_>>> = Vec::new();
    for section in bench::sections(report) {
        match tests.last_mut().filter(|own| own[0].kind == section.kind) {
            Some(own) => own.push(section),
            None => tests.push(vec![section]),
        }
    }
    tests
}

/// Sections of all jobs of one kind.
pub(crate) fn of_kind<'a>(report: &'a Report, kind: &str) -> Vec<Section<'a>> {
    let mut all = report.sections();
    all.retain(|section| section.kind == kind);
    all
}

/// Kinds of the jobs of a report that are not among `known`.
pub(crate) fn other_kinds(report: &Report, known: &[&str]) -> Vec<&'static str> {
    let sections = report.sections_of_jobs().into_iter();
    let mut kinds: Vec<&str> = sections.map(|section| section.kind).collect();
    kinds.dedup();
    kinds.retain(|kind| !known.contains(kind));
    kinds
}

/// A value for people; blank if it is unknown.
pub(crate) fn shown(unit: Unit, value: &Value<'_>) -> String {
    match value {
        Value::Unknown | Value::Times(..) => String::new(),
        Value::Count(n) => unit.whole(*n),
        Value::Real(n) => unit.text(*n),
        Value::Text(text) => text.to_string(),
        Value::Counts(all) => {
            let known = all.iter().filter(|(_, n)| *n > 0);
            let known = known.map(|(name, n)| format!("{name}: {}", count(*n)));
            known.collect::<Vec<_>>().join(", ")
        }
    }
}

/// Text next to a value: its share and its remark.
fn beside(section: &Section<'_>, figure: &Figure<'_>) -> String {
    let whole = section.figure(figure.def.share_of).map(|f| &f.value);
    let share = match (&figure.value, whole) {
        (Value::Count(n), Some(Value::Count(all))) if *n > 0 && *all > 0 => share(*n, *all),
        _ => String::new(),
    };
    match (share.is_empty(), figure.note.is_empty()) {
        (false, false) => format!("{share}: {}", figure.note),
        _ => share + &figure.note,
    }
}

/// Returns true if the value should be 0 and is not. A time is never 0.
pub(crate) fn is_bad(def: &Def, value: &Value<'_>) -> bool {
    let is_time = matches!(def.unit, Unit::Nanoseconds | Unit::Seconds);
    def.better == Better::Lower && !is_time && value.is_any()
}

/// Returns true for a column of words, which is aligned left.
fn is_text(def: &Def) -> bool {
    def.kind == Kind::Fact
}

/// Returns true if a column of a table is shown.
fn is_column(def: &Def, details: bool) -> bool {
    match def.show {
        Show::Always | Show::IfAny => true,
        Show::Details => details,
        Show::Never => false,
    }
}
