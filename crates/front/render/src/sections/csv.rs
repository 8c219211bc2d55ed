//! A section as a record of CSV.

use wb_figures::{Section, Value};

/// Passes on the columns of a section with their values, which are plain numbers in base units.
pub(crate) fn record(section: &Section<'_>, mut put: impl FnMut(String, String)) {
    for figure in &section.figures {
        let name = figure.def.name;
        match &figure.value {
            Value::Unknown => put(name.to_owned(), String::new()),
            Value::Count(n) => put(name.to_owned(), n.to_string()),
            Value::Real(n) => put(name.to_owned(), n.to_string()),
            Value::Text(text) => put(name.to_owned(), text.to_string()),
            Value::Counts(all) => {
                let (prefix, labels) = figure.def.labels;
                for label in labels {
                    let n = all.get(*label).copied().unwrap_or(0);
                    put(format!("{prefix}_{label}"), n.to_string());
                }
            }
            Value::Times(times) => {
                put(format!("{name}_samples"), times.samples.to_string());
                for (statistic, value) in times.statistics() {
                    let text = value.map(|v| v.to_string()).unwrap_or_default();
                    put(format!("{name}_{statistic}"), text);
                }
            }
        }
    }
}
