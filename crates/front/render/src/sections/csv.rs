//! A section as a record of CSV.

use wb_figures::{Kind, Section, Value};
use wb_model::Summary;

/// Passes on the columns of a section with their values, which are plain numbers in base units.
pub(crate) fn record(section: &Section<'_>, mut put: impl FnMut(String, String)) {
    for (name, value) in section.parameters.iter() {
        put(name.replace(' ', "_"), value.clone());
    }
    for figure in &section.figures {
        let name = figure.def.name;
        match &figure.value {
            Value::Unknown if figure.def.kind == Kind::Distribution => {
                times(name, None, &mut put);
            }
            Value::Unknown => put(name.to_owned(), String::new()),
            Value::Count(n) => put(name.to_owned(), n.to_string()),
            Value::Real(n) => put(name.to_owned(), n.to_string()),
            Value::Text(text) => put(name.to_owned(), text.to_string()),
            Value::Counts(all) => {
                let (prefix, labels) = &figure.def.labels;
                for label in *labels {
                    let n = all.iter().find(|(name, _)| name == label);
                    let n = n.map_or(0, |(_, n)| *n);
                    put(format!("{prefix}_{label}"), n.to_string());
                }
            }
            Value::Times(summary, _) => times(name, Some(summary), &mut put),
        }
    }
}

fn times(name: &str, times: Option<&Summary>, put: &mut impl FnMut(String, String)) {
    let samples = times.map(|times| times.samples.to_string());
    put(format!("{name}_samples"), samples.unwrap_or_default());
    for (statistic, value) in times.copied().unwrap_or_default().statistics() {
        let text = value.map(|v| v.to_string()).unwrap_or_default();
        put(format!("{name}_{statistic}"), text);
    }
}
