//! The figures of one or more runs as comma-separated values (RFC 4180, lines ended by a line feed): a row for
//! each figure, in base units.

use std::fmt::Write as _;

use wb_model::text::is_unprintable;

use super::{Run, metrics::metrics};

/// The rows, below a header of column names.
#[must_use]
pub fn csv(runs: &[Run]) -> String {
    let mut out = String::from("run,of,metric,value,unit\n");
    for run in runs {
        let mut row = |of: &str, name: &str, value: &str, unit: &str| {
            let cells = [&run.name, of, name, value, unit].map(field);
            let _ = writeln!(out, "{}", cells.join(","));
        };
        row("", "verdict", crate::csv::verdict(run.report.verdict), "");
        for m in metrics(&run.report) {
            row(&m.of, &m.name, &m.value.to_string(), &m.unit);
        }
    }
    out
}

fn field(text: &str) -> String {
    let clean: String = text
        .chars()
        .map(|c| if is_unprintable(c) { '?' } else { c })
        .collect();
    match clean.contains([',', '"']) {
        true => format!("\"{}\"", clean.replace('"', "\"\"")),
        false => clean,
    }
}
