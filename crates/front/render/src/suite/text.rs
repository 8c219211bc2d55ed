//! Suites as text.

use wb_model::Report;

use super::{facts, log, mlr_loads, parts, purpose, trials_of, with_trials};
use crate::{
    figures::count,
    page::{Page, Tone},
    report,
    table::Table,
};

/// Converts the table of a page to a table of text columns.
fn plain(table: &report::Table) -> Table {
    let mut plain = table
        .head
        .iter()
        .fold(Table::new(), |plain, (name, side)| match side {
            report::Side::Left => plain.left(name),
            report::Side::Right => plain.right(name),
        });
    for row in &table.rows {
        plain.row(row.iter().map(|cell| cell.text.as_str()));
    }
    plain
}

/// Results, test by test.
fn results(page: &mut Page, report: &Report) {
    for part in parts(report) {
        page.head(&part.title);
        for headline in &part.headlines {
            page.item(Tone::Doubt, "  ! ", Tone::Doubt, headline);
        }
        for (i, (keys, table)) in part.tables.iter().enumerate() {
            if i > 0 {
                page.gap();
            }
            page.table(&plain(table), 2, *keys);
        }
        for note in &part.notes {
            page.item(Tone::Plain, "  ", Tone::Plain, note);
        }
    }
}

/// The results alone, as text.
pub(crate) fn figures(report: &Report) -> String {
    let mut page = Page::new(false, 80);
    results(&mut page, report);
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
    results(page, report);
    if !verbose {
        return;
    }
    for table in report.suite_results().filter_map(mlr_loads) {
        page.head(&table.caption);
        page.table(&plain(&table), 2, 1);
    }
    for r in with_trials(report) {
        page.head(&format!("trials of {}", trials_of(report, r)));
        page.table(&plain(&log(r)), 2, 1);
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
