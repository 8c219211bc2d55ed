//! Suites as text.

use wb_model::Report;

use super::{facts, log, purpose, trials_of, with_trials};
use crate::{
    figures::count,
    page::{Page, Tone},
    sections::{self, text},
};

/// The results alone, as text.
pub(crate) fn figures(report: &Report) -> String {
    let mut page = Page::new(false, 80);
    for results in sections::suites(report) {
        text::together(&mut page, &results, false);
    }
    page.finish()
}

/// The head, then test by test; trials only with `verbose`.
pub(crate) fn section(page: &mut Page, report: &Report, verbose: bool) {
    let facts = facts(report);
    if !facts.is_empty() {
        page.head("benchmark");
    }
    for (name, text) in &facts {
        page.item(Tone::Plain, &format!("  {name:<11} "), Tone::Plain, text);
    }
    for results in sections::suites(report) {
        text::together(page, &results, verbose);
    }
    if !verbose {
        return;
    }
    for r in with_trials(report) {
        page.head(&format!("trials of {}", trials_of(report, r)));
        text::table(page, &log(r), 1);
        for t in &r.trial_log {
            let label = format!("  {:>3} {}: ", t.trial, purpose(t.purpose));
            page.item(Tone::Plain, &label, Tone::Plain, &t.reason);
            for warning in t.warnings.iter().chain(&t.beside) {
                page.item(Tone::Doubt, "      ", Tone::Plain, warning);
            }
            let rose = t.rose.iter().filter(|(_, n)| **n > 0);
            let rose: Vec<String> = rose
                .map(|(name, n)| format!("{name} +{}", count(*n)))
                .collect();
            if !rose.is_empty() {
                page.item(Tone::Plain, "      ", Tone::Plain, &rose.join(", "));
            }
        }
    }
}
