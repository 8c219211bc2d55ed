//! Comparison of runs: the first run is the baseline of the others.

use std::collections::BTreeMap;

use serde_json::Value;
use wb_figures::Better;
use wb_model::Verdict;

use super::{
    Run, content,
    document::{Block, Cell, Document, Mark, Section, Table},
    metrics::{Metric, metrics},
    plot::Plot,
};

/// Keys of plans that do not change the measurement, and the ports, because reports compare devices.
const NOT_COMPARED: [&str; 8] = [
    "schema",
    "kind",
    "seed",
    "interval",
    "criteria",
    "i_own_this_network",
    "allow_unsent",
    "port",
];

/// Maximum number of listed differences between plans.
const MOST_LISTED: usize = 12;

/// Maximum number of changes that are listed first.
const MOST_CHANGES: usize = 10;

/// Smaller relative differences are not marked, because they are not significant.
const MARKED: f64 = 0.01;

pub(super) fn document(runs: &[Run]) -> Document {
    let mut document = Document {
        title: match runs.len() {
            0 => "wirebench: no runs".to_owned(),
            n => format!("wirebench: {n} runs compared"),
        },
        verdicts: runs
            .iter()
            .map(|run| content::outcome(&run.name, &run.report))
            .collect(),
        ..Document::default()
    };
    document.section(about(runs));
    document.section(figures(runs));
    document.section(plots(runs));
    document.section(environments(runs));
    let mut section = Section::new("Warnings");
    for run in runs {
        let warnings = run.report.warnings.iter();
        section
            .blocks
            .extend(warnings.map(|w| Block::Warning(format!("{}: {w}", run.name))));
    }
    document.section(section);
    let mut section = Section::new("Plans");
    for run in runs {
        if let Some(text) = wb_model::text::written_as_toml(&run.report.plan) {
            section
                .blocks
                .push(Block::Code(format!("plan of {}", run.name), text));
        }
    }
    document.section(section);
    document
}

/// Collects all values of a plan by their keys; jobs of one kind are numbered only if there are several.
fn leaves(value: &Value, at: &str, found: &mut BTreeMap<String, String>) {
    match value {
        Value::Object(fields) => {
            for (key, below) in fields {
                let dot = if at.is_empty() { "" } else { "." };
                if !(at.is_empty() && NOT_COMPARED.contains(&key.as_str())) {
                    leaves(below, &format!("{at}{dot}{key}"), found);
                }
            }
        }
        Value::Array(items) if items.iter().any(Value::is_object) => {
            for (number, item) in items.iter().enumerate() {
                let place = match items.len() {
                    1 => at.to_owned(),
                    _ => format!("{at} {}", number + 1),
                };
                leaves(item, &place, found);
            }
        }
        Value::String(text) => {
            found.insert(at.to_owned(), text.clone());
        }
        other => {
            found.insert(at.to_owned(), other.to_string());
        }
    }
}

/// Lists what differs between the plans: `traffic.stream.rate (100kpps, 150kpps)`. Empty if they measure the same.
fn differing(runs: &[Run]) -> Vec<String> {
    let plans: Vec<BTreeMap<String, String>> = runs
        .iter()
        .map(|run| {
            let mut found = BTreeMap::new();
            let plan = serde_json::to_value(&run.report.plan).unwrap_or_default();
            leaves(&plan, "", &mut found);
            found
        })
        .collect();
    let mut keys: Vec<&String> = plans.iter().flat_map(BTreeMap::keys).collect();
    keys.sort();
    keys.dedup();
    let values = keys.into_iter().filter_map(|key| {
        let values: Vec<&str> = plans
            .iter()
            .map(|plan| plan.get(key).map_or("-", String::as_str))
            .collect();
        let differ = values.windows(2).any(|pair| pair[0] != pair[1]);
        differ.then(|| format!("{key} ({})", values.join(", ")))
    });
    values.collect()
}

/// Names of the runs that say nothing about the device, or too little: they were invalid or ended early.
fn void(runs: &[Run]) -> Vec<&str> {
    let is_void = |run: &&Run| matches!(run.report.verdict, Verdict::Invalid | Verdict::Incomplete);
    runs.iter()
        .filter(is_void)
        .map(|run| run.name.as_str())
        .collect()
}

/// A table with a column for each run.
fn beside(caption: &str, runs: &[Run]) -> Table {
    let mut head = vec![""];
    head.extend(runs.iter().map(|run| run.name.as_str()));
    let mut table = Table::new(caption, &[]);
    table.head = head
        .into_iter()
        .map(|name| (name.to_owned(), super::Side::Left))
        .collect();
    table
}

fn about(runs: &[Run]) -> Section {
    let mut section = Section::new("Runs");
    let differing = differing(runs);
    if !differing.is_empty() {
        let more = match differing.len().saturating_sub(MOST_LISTED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let listed: Vec<&str> = differing
            .iter()
            .map(String::as_str)
            .take(MOST_LISTED)
            .collect();
        section.blocks.push(Block::Warning(format!(
            "the plans differ, so changes are not rated: {}{more}",
            listed.join(", ")
        )));
    }
    let void = void(runs);
    if !void.is_empty() {
        section.blocks.push(Block::Warning(format!(
            "changes are not rated, as these runs were invalid or ended early: {}",
            void.join(", ")
        )));
    }
    let mut table = beside("", runs);
    let mut row = |name: &str, text: &dyn Fn(&Run) -> String| {
        let cells = runs.iter().map(text);
        table.row(std::iter::once(name.to_owned()).chain(cells));
    };
    row("kind", &|run| run.report.kind.clone());
    row("started", &|run| run.report.started.clone());
    row("took", &|run| {
        crate::figures::time_ns(run.report.elapsed_ns as f64)
    });
    row("limited by", &|run| run.report.limited_by.to_string());
    section.table(table);
    if runs
        .windows(2)
        .any(|pair| pair[0].report.kind != pair[1].report.kind)
    {
        section.blocks.push(Block::Warning(
            "the runs are of different kinds, so only their common metrics are compared".to_owned(),
        ));
    }
    section
}

fn figures(runs: &[Run]) -> Section {
    let mut section = Section::new("Differences");
    let judged = differing(runs).is_empty() && void(runs).is_empty();
    let all: Vec<Vec<Metric>> = runs.iter().map(|run| metrics(&run.report)).collect();
    // In the order of the first run; names that only other runs have come last.
    let mut names: Vec<(&str, &str, &str)> = Vec::new();
    for m in all.iter().flatten().filter(|m| m.is_compared) {
        if !names.contains(&(&m.of, &m.name, &m.label)) {
            names.push((&m.of, &m.name, &m.label));
        }
    }
    let mut head: Vec<(String, super::Side)> = vec![
        ("group".to_owned(), super::Side::Left),
        ("metric".to_owned(), super::Side::Left),
    ];
    for (i, run) in runs.iter().enumerate() {
        head.push((run.name.clone(), super::Side::Right));
        if i > 0 {
            head.push(("difference".to_owned(), super::Side::Right));
        }
    }
    let mut table = Table {
        head,
        ..Table::default()
    };
    let mut changed: Vec<(f64, Vec<Cell>)> = Vec::new();
    for (of, name, label) in names {
        let find = |list: &'_ [Metric]| list.iter().find(|m| m.of == of && m.name == name).cloned();
        let first = all.first().and_then(|list| find(list));
        let mut cells: Vec<Cell> = vec![of.into(), label.into()];
        for (i, list) in all.iter().enumerate() {
            let own = find(list);
            cells.push(
                own.as_ref()
                    .map_or_else(|| "-".to_owned(), |m| m.text(m.value))
                    .into(),
            );
            if i > 0 {
                cells.push(match (&first, &own) {
                    (Some(a), Some(b)) => difference(a, b, judged),
                    _ => Cell::default(),
                });
            }
        }
        let is_marked = cells.iter().any(|cell| cell.mark != Mark::Plain);
        if let Some(first) = first.filter(|_| is_marked) {
            let others = all.iter().skip(1).filter_map(|list| find(list));
            let shares = others.map(|own| ((own.value - first.value) / first.value).abs());
            changed.push((shares.fold(0.0, f64::max), cells.clone()));
        }
        table.row(cells);
    }
    changed.sort_by(|a, b| b.0.total_cmp(&a.0));
    changed.truncate(MOST_CHANGES);
    let largest = changed.into_iter().map(|(_, cells)| cells);
    section.table(Table {
        caption: "Largest changes".to_owned(),
        head: table.head.clone(),
        rows: largest.collect(),
    });
    table.caption = "All figures".to_owned();
    section.table(table);
    let first = runs.first().map_or("the first", |run| run.name.as_str());
    section.text(match judged {
        true => format!(
            "Baseline: {first}. Changes above {} % are marked.",
            MARKED * 100.0
        ),
        false => format!("Baseline: {first}. No change is marked; a warning above says why."),
    });
    section
}

/// Difference of a figure; if it is `judged`, with a mark for better or worse.
fn difference(a: &Metric, b: &Metric, judged: bool) -> Cell {
    let by = b.value - a.value;
    if by == 0.0 {
        return "same".into();
    }
    let share = by / a.value.abs();
    let sign = if by > 0.0 { "+" } else { "" };
    let text = match share.is_finite() {
        true if share.abs() < 10.0 => {
            format!("{sign}{} ({sign}{:.1} %)", b.text(by), share * 100.0)
        }
        true => format!("{sign}{} (x {:.0})", b.text(by), (b.value / a.value).abs()),
        false => format!("{sign}{}", b.text(by)),
    };
    let worse = match (a.better, b.better) {
        _ if !judged => return text.into(),
        (Better::Neither, _) | (_, Better::Neither) => return text.into(),
        (_, Better::Higher) => by < 0.0,
        (_, Better::Lower) => by > 0.0,
    };
    match (share.is_finite() && share.abs() <= MARKED, worse) {
        (true, _) => text.into(),
        (false, true) => Cell::marked(format!("worse: {text}"), Mark::Bad),
        (false, false) => Cell::marked(format!("better: {text}"), Mark::Good),
    }
}

fn plots(runs: &[Run]) -> Section {
    let mut section = Section::new("Plots");
    let documents: Vec<Document> = runs
        .iter()
        .map(|run| content::document(&run.report))
        .collect();
    let mut names: Vec<&str> = Vec::new();
    for plot in documents.iter().flat_map(Document::plots) {
        if !names.contains(&plot.name.as_str()) {
            names.push(&plot.name);
        }
    }
    for name in names {
        let of_runs = runs.iter().zip(&documents);
        let own = of_runs.filter_map(|(run, document)| {
            let plot = document.plots().find(|plot| plot.name == name)?;
            Some((run.name.as_str(), plot.clone()))
        });
        section.plot(Plot::overlay(&own.collect::<Vec<_>>()));
    }
    section
}

fn environments(runs: &[Run]) -> Section {
    let mut section = Section::new("Environments");
    let rows: Vec<Vec<(&str, String)>> = runs
        .iter()
        .map(|run| content::environment_rows(&run.report))
        .collect();
    let mut table = beside("", runs);
    let first = rows.first().map_or(&[][..], Vec::as_slice);
    for (i, (name, known)) in first.iter().enumerate() {
        let cells = rows.iter().map(|row| {
            let text = row.get(i).map_or("", |(_, text)| text.as_str());
            let differs = text != known;
            Cell::marked(text, if differs { Mark::Bad } else { Mark::Plain })
        });
        table.row(std::iter::once(Cell::from(*name)).chain(cells));
    }
    section.table(table);
    section
}
