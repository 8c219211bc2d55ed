//! The figures of a run by their names, in base units, for comparisons and for CSV files.

use std::borrow::Cow;

use wb_figures::{Better, Def, Section, Show, Table, Value};
use wb_model::{Report, Summary, counted};

use crate::{
    figures::{count, ratio, significant, time_ns},
    sections,
};

/// One figure.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Metric {
    /// Owner: `load web`; empty for the whole run.
    pub(super) of: String,
    /// Stable name, as in CSV files.
    pub(super) name: String,
    /// Name for people.
    pub(super) label: String,
    /// `frames`, `pps`, `bit/s`, `ns`, `share`.
    pub(super) unit: Cow<'static, str>,
    pub(super) value: f64,
    pub(super) better: Better,
    /// Shown in comparisons.
    pub(super) is_compared: bool,
}

impl Metric {
    /// The value in the form for people.
    pub(super) fn text(&self, value: f64) -> String {
        let sign = if value < 0.0 { "-" } else { "" };
        let amount = value.abs();
        let rest = match &*self.unit {
            "ns" => time_ns(amount),
            "share" => ratio(amount),
            "bit/s" => crate::figures::rate_bps(amount),
            unit if amount.fract() == 0.0 && amount < 1e15 => {
                let one = unit
                    .strip_suffix('s')
                    .filter(|_| unit.len() > 3 && !unit.contains('/'))
                    .unwrap_or(unit);
                counted(count(amount as u64), one, unit)
            }
            unit if (100.0..1e15).contains(&amount) => {
                format!("{} {unit}", crate::figures::group(&format!("{amount:.0}")))
            }
            unit => format!("{} {unit}", significant(amount, 4)),
        };
        format!("{sign}{rest}")
    }
}

/// All known figures of a run.
pub(super) fn metrics(report: &Report) -> Vec<Metric> {
    let mut list = List {
        of: String::new(),
        metrics: Vec::new(),
    };
    let all = report.sections();
    for section in &all {
        let is_only = all
            .iter()
            .filter(|other| other.kind == section.kind)
            .count()
            == 1;
        let is_kind = is_only && section.parameters.is_empty();
        list.section(section, is_kind || section.is_total);
    }
    list.of = "tester".to_owned();
    let late = &report.lateness.all;
    list.add("stalls", "stalls", Some(late.stalls as f64), Better::Lower);
    list.add(
        "longest absence",
        "ns",
        Some(late.largest_gap_ns as f64),
        Better::Lower,
    );
    list.metrics
}

struct List {
    of: String,
    metrics: Vec<Metric>,
}

impl List {
    fn add(&mut self, name: &str, unit: &'static str, value: Option<f64>, better: Better) {
        let Some(value) = value.filter(|v| v.is_finite()) else {
            return;
        };
        self.metrics.push(Metric {
            of: self.of.clone(),
            name: name.to_owned(),
            label: title(name),
            unit: unit.into(),
            value,
            better,
            is_compared: true,
        });
    }

    /// Adds all numbers of a section. The section that stands for its kind is compared whatever its job is called.
    fn section(&mut self, section: &Section<'_>, is_kind: bool) {
        let of = match is_kind {
            true => section.kind.to_owned(),
            false => format!("{} {}", section.kind, section.job),
        };
        for figure in &section.figures {
            let def = figure.def;
            let is_compared = match figure.show {
                // Benchmarks show by the way how long they took.
                Show::Always => section.parameters.is_empty() || def.better != Better::Neither,
                Show::Details => false,
                Show::IfAny => figure.value.is_any(),
                Show::Never => figure.value.is_any() && figure.better != Better::Neither,
            };
            let mut add = |name: String, label: String, value: f64, better| {
                let is_compared = is_compared && !name.ends_with("_stddev");
                self.metrics.push(Metric {
                    of: of.clone(),
                    name,
                    label,
                    unit: figure.unit.symbol(),
                    value,
                    better,
                    is_compared,
                });
            };
            if let Value::Times(times, _) = figure.value {
                for (statistic, value) in times.statistics() {
                    let label = format!("{} {}", figure.title(), Summary::label(statistic));
                    if let Some(value) = value.filter(|_| times.samples > 0) {
                        let name = format!("{}_{statistic}", def.name);
                        add(name, label, value, figure.better);
                    }
                }
            } else if let Some(value) = figure.value.number() {
                add(def.name.to_owned(), figure.title(), value, figure.better);
            }
        }
        for table in section.tables.iter().filter(|table| table.keys > 0) {
            self.rows(&of, table);
        }
    }

    /// Adds the numbers of a table with named rows: `p99 at 50 %`.
    fn rows(&mut self, of: &str, table: &Table<'_>) {
        for row in &table.rows {
            let cells = || table.columns.iter().zip(row);
            let key = |(def, value): (&Def, &Value<'_>)| sections::shown(def.unit, value);
            let keys: Vec<String> = cells().take(table.keys).map(key).collect();
            let at = keys.join(" ");
            for (def, value) in cells().skip(table.keys) {
                if let Some(value) = value.number() {
                    self.metrics.push(Metric {
                        of: of.to_owned(),
                        name: format!("{} at {at}", def.name),
                        label: format!("{} at {at}", def.label),
                        unit: def.unit.symbol(),
                        value,
                        better: def.better,
                        is_compared: def.show != Show::Never && def.better != Better::Neither,
                    });
                }
            }
        }
    }
}

/// Title of a metric. Its name is a key of CSV files and therefore stable.
fn title(name: &str) -> String {
    let titles = [
        (" a second", " per second"),
        ("request to its answer", "request to response"),
        ("connection set up", "connection setup"),
        ("throughput back", "reverse throughput"),
        ("CPU here", "local CPU"),
        ("CPU there", "remote CPU"),
        ("an operation", "operation"),
        ("longest absence", "longest pause"),
    ];
    titles.iter().fold(name.to_owned(), |text, (key, title)| {
        text.replace(key, title)
    })
}
