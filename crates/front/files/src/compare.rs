//! Comparison of two benchmarks: changes that exceed the measurement repeatability.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use anyhow::{Result, bail};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use wb_figures::{Better, Def, Unit};
use wb_model::{
    Report, Verdict,
    bench::{LbLimit, Quantity, SuiteResult},
};
use wb_render::table::Table;

use crate::report::read;

/// The value of `schema` in what `--json` prints.
const SCHEMA: &str = "wirebench.compare/1";
/// Default tolerance for figures without a search interval.
const TOLERANCE: f64 = 0.02;
/// Number of plan differences that are listed one by one.
const NAMED: usize = 12;

/// Result of comparing a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
enum Change {
    Better,
    Worse,
    Same,
    OnlyOld,
    OnlyNew,
    NotComparable,
}

impl Change {
    const fn words(self) -> &'static str {
        match self {
            Self::Better => "better",
            Self::Worse => "WORSE",
            Self::Same => "same",
            Self::OnlyOld => "only in the old report",
            Self::OnlyNew => "only in the new report",
            Self::NotComparable => "not comparable",
        }
    }
}

/// Figure of one report.
#[derive(Clone, Debug, PartialEq)]
struct Figure {
    unit: Unit,
    /// True if a higher value is better.
    is_higher_better: bool,
    /// Absent if not comparable, for the reason in `why`. 0 if no load passed.
    value: Option<f64>,
    /// True if the value is a lower bound: the tester, the plan or time was the limit, not the device.
    at_least: bool,
    /// Spread of repeated measurements, (largest − smallest) ÷ mean, if the measurement was repeated.
    spread: Option<f64>,
    /// Relative width of the search interval.
    interval: Option<f64>,
    /// True if the figure varies between runs, so that one value without a spread proves little.
    varies: bool,
    /// True if any difference counts: the number of passed steps.
    is_exact: bool,
    why: String,
}

/// Comparison of two benchmarks: the JSON document of `bench compare --json`.
#[derive(Serialize, JsonSchema)]
pub struct CompareDocument {
    /// `wirebench.compare/1`.
    schema: &'static str,
    /// True if a figure is worse than before.
    pub worse: bool,
    /// One entry for each figure.
    rows: Vec<Row>,
    /// Plan keys that differ between the two reports.
    plan_differences: Vec<PlanDifference>,
    /// Warnings about the comparison, one sentence each.
    warnings: Vec<String>,
}

/// Plan key that differs between two reports.
#[derive(Debug, PartialEq, Serialize, JsonSchema)]
struct PlanDifference {
    /// Path of the key.
    path: String,
    /// Value in the old report.
    old: String,
    /// Value in the new report.
    new: String,
}

/// One figure: a test at one frame size.
#[derive(Clone, Debug, Serialize, JsonSchema)]
struct Row {
    /// Name of the test.
    test: String,
    /// Frame size, or empty.
    size: String,
    /// Unit of `old` and `new`.
    unit: String,
    /// Value in the old report.
    old: Option<f64>,
    /// Value in the new report.
    new: Option<f64>,
    /// (new − old) ÷ old.
    change: Option<f64>,
    /// Relative difference up to which the two values count as the same.
    repeatability: f64,
    /// Result of the comparison.
    verdict: Change,
    /// Reason why the values are not comparable, or a caveat.
    note: String,
    #[serde(skip)]
    text_unit: Unit,
}

/// Test, numbered if the report has several of the same name, and frame size.
type Key = (String, String);

impl Figure {
    fn new(unit: Unit, value: Option<f64>) -> Self {
        Self {
            unit,
            is_higher_better: true,
            value,
            at_least: false,
            spread: None,
            interval: None,
            varies: false,
            is_exact: unit == Unit::Load("steps"),
            why: if value.is_some() { "" } else { "not measured" }.to_owned(),
        }
    }

    fn of(def: &Def, unit: Unit, value: Option<f64>, spread: Option<f64>) -> Self {
        Self {
            is_higher_better: def.better == Better::Higher,
            spread,
            ..Self::new(unit, value)
        }
    }

    /// Completes the limit that a search has found, or has not.
    fn end_search(&mut self, result: &SuiteResult) {
        self.at_least = result.tester_limit || result.limited_by != Some(LbLimit::Device);
        self.interval = interval(result.limit, result.beyond);
        let is_over = result.not_measured.is_none() && !result.incomplete;
        if !is_over || self.value.is_some() {
            return;
        }
        // A finished search without a limit means that no load passed.
        (self.value, self.why) = match self.at_least {
            false => (Some(0.0), String::new()),
            true => {
                let why = "no limit found: the tester or the time limit ended the search";
                (None, result.late().unwrap_or(why).to_owned())
            }
        };
    }
}

/// Returns the relative width of the interval that a search left.
fn interval(limit: Option<f64>, beyond: Option<f64>) -> Option<f64> {
    let (limit, beyond) = (limit?, beyond?);
    (beyond > limit && limit > 0.0).then(|| (beyond - limit) / beyond)
}

/// The main figures of a result, and those of its tables. The first one has the name of the test.
fn of_result(result: &SuiteResult) -> Vec<(Key, Figure)> {
    let section = wb_model::bench::section(None, result);
    let test = test_name(result);
    let spread = section.figure("spread").and_then(|f| f.value.number());
    let main = section.figures.iter().filter(|f| is_main(f.def));
    let main = main.enumerate().map(|(nth, own)| {
        let name = match nth {
            0 => test.clone(),
            _ => format!("{test} {}", own.label),
        };
        let value = own.value.number();
        (name, Figure::of(own.def, own.unit, value, spread))
    });
    let mut list = measured(main.collect());
    for table in &section.tables {
        list.extend(of_table(&test, table));
    }
    if list.is_empty() {
        list.push((test, Figure::new(Unit::Nanoseconds, None)));
    }
    for (_, figure) in &mut list {
        if let Some(why) = &result.not_measured {
            (figure.value, figure.why) = (None, why.clone());
        } else if result.incomplete {
            (figure.value, figure.why) = (None, "ended early".to_owned());
        }
    }
    if let Some((_, figure)) = list.first_mut().filter(|_| result.test.finds_limit()) {
        figure.end_search(result);
    }
    let size = &result.size;
    let keyed = list
        .into_iter()
        .map(|(name, figure)| ((name, size.clone()), figure));
    keyed.collect()
}

/// Returns the name of a test, with its quantity and its burst.
fn test_name(result: &SuiteResult) -> String {
    let of = match result.of {
        Quantity::Frames => String::new(),
        _ if result.balancer.is_some() => String::new(),
        of => format!(" of {}", of.name()),
    };
    let burst = result.burst.as_ref();
    let burst = burst.map_or_else(String::new, |b| format!(" in bursts of {}", b.frames));
    let test = result.goal.as_deref().unwrap_or(result.name());
    format!("{test}{of}{burst}")
}

/// Returns true if the figure is compared.
fn is_main(def: &Def) -> bool {
    def.leads && def.better != Better::Neither
}

/// Removes figures without a value, unless all are: a comparison then says that they were not measured.
fn measured(mut list: Vec<(String, Figure)>) -> Vec<(String, Figure)> {
    if list.iter().any(|(_, figure)| figure.value.is_some()) {
        list.retain(|(_, figure)| figure.value.is_some());
    }
    list
}

/// The main figures of a table, with the names of their rows.
fn of_table(test: &str, table: &wb_figures::Table<'_>) -> Vec<(String, Figure)> {
    let at = |name: &str| table.columns.iter().position(|def| def.name == name);
    let of_row = |row: &Vec<wb_figures::Value<'_>>| {
        let keys = table.columns.iter().zip(row).take(table.keys);
        let keys = keys.filter_map(|(def, value)| Some(def.unit.cell(value.number()?)));
        let key = keys.collect::<Vec<_>>().join(" ");
        let columns = table.columns.iter().zip(row);
        let main = columns.filter(|(def, _)| is_main(def));
        let figures = main.map(|(def, value)| {
            let spread = at(&format!("{}_spread", def.name));
            let spread = spread.and_then(|at| row[at].number());
            let own = Figure {
                varies: def.unit == Unit::Nanoseconds,
                ..Figure::of(def, def.unit, value.number(), spread)
            };
            (format!("{test} {} at {key}", def.label), own)
        });
        measured(figures.collect())
    };
    table.rows.iter().flat_map(of_row).collect()
}

/// Returns the figures of a report, in order. A second figure with the same test and size is numbered.
fn figures(report: &Report) -> Vec<(Key, Figure)> {
    let all = report.results.iter().flat_map(of_result);
    let mut seen: BTreeMap<Key, u32> = BTreeMap::new();
    all.map(|((test, size), figure)| {
        let times = seen.entry((test.clone(), size.clone())).or_default();
        *times += 1;
        let test = match times {
            1 => test,
            n => format!("{test} ({n})"),
        };
        ((test, size), figure)
    })
    .collect()
}

fn judge(old: &Figure, new: &Figure, repeatability: f64) -> (Change, String) {
    let (Some(a), Some(b)) = (old.value, new.value) else {
        let (which, why) = if old.value.is_none() {
            ("old", &old.why)
        } else {
            ("new", &new.why)
        };
        return (Change::NotComparable, format!("{which}: {why}"));
    };
    if old.unit != new.unit {
        return (Change::NotComparable, "units differ".to_owned());
    }
    // Relative to the larger value, so that only two zeros are undefined.
    let beyond = (b - a).abs() > repeatability * a.abs().max(b.abs());
    let change = match (beyond, (b > a) == old.is_higher_better) {
        (false, _) => Change::Same,
        (true, true) => Change::Better,
        (true, false) => Change::Worse,
    };
    // A lower bound counts as a value if the other value lies below it.
    let known = match (old.at_least, new.at_least) {
        (false, false) => true,
        (true, false) => change == Change::Worse,
        (false, true) => change == Change::Better,
        (true, true) => false,
    };
    match known {
        true => (change, String::new()),
        false => {
            let which = match (old.at_least, new.at_least) {
                (true, true) => "both results are",
                (true, false) => "the old result is",
                _ => "the new result is",
            };
            (
                Change::NotComparable,
                format!("{which} only a lower bound of the device limit"),
            )
        }
    }
}

/// Returns the difference that two measurements of the same device may have, as a share of the larger value.
///
/// Search results are exact to their interval. Repeated results may each lie at opposite ends of their spread.
fn repeatability(figures: &[&Figure], tolerance: f64) -> f64 {
    if figures.iter().any(|f| f.is_exact) {
        return 0.0;
    }
    let interval = figures.iter().filter_map(|f| f.interval).reduce(f64::max);
    let spread: f64 = figures.iter().filter_map(|f| f.spread).sum();
    interval.unwrap_or(tolerance).max(spread)
}

/// Returns one row for each figure of either report.
fn compared(old: &Report, new: &Report, tolerance: Option<f64>) -> Vec<Row> {
    let (old, new) = (figures(old), figures(new));
    let find = |list: &[(Key, Figure)], key: &Key| {
        list.iter()
            .find(|(k, _)| k == key)
            .map(|(_, figure)| figure.clone())
    };
    let only_new = new.iter().filter(|(key, _)| find(&old, key).is_none());
    let keys: Vec<&Key> = old.iter().chain(only_new).map(|(key, _)| key).collect();
    let row = |key: &Key| {
        let (before, after) = (find(&old, key), find(&new, key));
        let known: Vec<&Figure> = [&before, &after].into_iter().flatten().collect();
        let repeatability = repeatability(&known, tolerance.unwrap_or(TOLERANCE));
        let unit = known.first().map_or(Unit::None, |figure| figure.unit);
        let unsure = |f: &Figure| f.varies && f.spread.is_none() && tolerance.is_none();
        let (verdict, note) = match (&before, &after) {
            (Some(a), Some(b)) => match judge(a, b, repeatability) {
                (Change::Better | Change::Worse, _) if unsure(a) || unsure(b) => (
                    Change::NotComparable,
                    "measured once; use --tolerance to compare it anyway".to_owned(),
                ),
                judged => judged,
            },
            (Some(_), None) => (Change::OnlyOld, String::new()),
            (None, _) => (Change::OnlyNew, String::new()),
        };
        let value = |figure: &Option<Figure>| figure.as_ref().and_then(|figure| figure.value);
        let (a, b) = (value(&before), value(&after));
        Row {
            test: key.0.clone(),
            size: key.1.clone(),
            unit: unit.symbol().into_owned(),
            old: a,
            new: b,
            change: a
                .zip(b)
                .filter(|(a, _)| *a != 0.0)
                .map(|(a, b)| (b - a) / a),
            repeatability,
            verdict,
            note,
            text_unit: unit,
        }
    };
    keys.into_iter().map(row).collect()
}

/// Returns the plan keys that affect figures and differ between two reports.
fn differences(old: &Report, new: &Report) -> Vec<PlanDifference> {
    let (mut a, mut b) = (BTreeMap::new(), BTreeMap::new());
    for (report, leaves) in [(old, &mut a), (new, &mut b)] {
        if let Ok(plan) = serde_json::to_value(&report.plan) {
            flatten("", &plan, leaves);
        }
    }
    // These keys affect only output, verdicts and names.
    let is_told = |path: &str| {
        [
            "criteria",
            "interval",
            "procedure.suite.device.",
            "procedure.suite.isolated",
            "procedure.lb.device.name",
        ]
        .iter()
        .any(|start| path.starts_with(start))
    };
    let paths: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
    let paths = paths.into_iter().filter(|path| !is_told(path));
    let value = |leaves: &BTreeMap<String, String>, path: &String| {
        leaves
            .get(path)
            .map_or_else(|| "-".to_owned(), String::clone)
    };
    let pair = |path: &String| PlanDifference {
        path: path.clone(),
        old: value(&a, path),
        new: value(&b, path),
    };
    paths
        .map(pair)
        .filter(|pair| pair.old != pair.new)
        .collect()
}

fn flatten(path: &str, value: &Value, leaves: &mut BTreeMap<String, String>) {
    let below = |name: &str| match path {
        "" => name.to_owned(),
        path => format!("{path}.{name}"),
    };
    match value {
        Value::Object(fields) => fields
            .iter()
            .for_each(|(name, v)| flatten(&below(name), v, leaves)),
        Value::Array(list) => list
            .iter()
            .enumerate()
            .for_each(|(n, v)| flatten(&below(&n.to_string()), v, leaves)),
        Value::String(text) => drop(leaves.insert(path.to_owned(), text.clone())),
        other => drop(leaves.insert(path.to_owned(), other.to_string())),
    }
}

fn cell(row: &Row, value: Option<f64>) -> String {
    let Some(value) = value else {
        return "-".to_owned();
    };
    match row.text_unit {
        Unit::Load(_) if value == 0.0 => "none passed".to_owned(),
        unit => unit.text(value),
    }
}

/// Returns the table of all figures.
fn table(rows: &[Row]) -> String {
    let mut table = Table::new()
        .left("test")
        .left("size")
        .right("old")
        .right("new")
        .right("change")
        .right("repeatability")
        .left("verdict");
    for row in rows {
        let change = row
            .change
            .map_or_else(|| "-".to_owned(), |c| format!("{:+.1} %", c * 100.0));
        let verdict = match row.note.as_str() {
            "" => row.verdict.words().to_owned(),
            note => format!("{}: {note}", row.verdict.words()),
        };
        table.row([
            row.test.clone(),
            row.size.clone(),
            cell(row, row.old),
            cell(row, row.new),
            change,
            format!("{:.1} %", row.repeatability * 100.0),
            verdict,
        ]);
    }
    table.text(2)
}

impl CompareDocument {
    /// Returns the JSON document.
    ///
    /// # Errors
    /// If a value has no form in JSON.
    pub fn json(&self) -> serde_json::Result<String> {
        serde_json::to_string_pretty(self)
    }

    /// Returns the comparison as text.
    #[must_use]
    pub fn text(&self) -> String {
        let warnings = self.warnings.iter().map(|text| format!("! {text}\n"));
        let mut out: String = warnings.collect();
        let of = |change: Change| self.rows.iter().filter(|row| row.verdict == change).count();
        out += &match of(Change::Worse) {
            0 => format!(
                "no figure is worse; {} better, {} the same",
                of(Change::Better),
                of(Change::Same)
            ),
            worse => format!("WORSE: {worse} of {} figures", self.rows.len()),
        };
        out += &format!("\n\n{}", table(&self.rows));
        let plans = &self.plan_differences;
        if !plans.is_empty() {
            out += "\nThe plans differ, which may explain differences between the figures:\n";
            for PlanDifference { path, old, new } in plans.iter().take(NAMED) {
                out += &format!("  {path}: {old} / {new}\n");
            }
            if plans.len() > NAMED {
                out += &format!("  and {} more\n", plans.len() - NAMED);
            }
        }
        out
    }
}

/// Compares two report files. `tolerance` is the share that figures without a search interval may differ by, 2 %
/// if it is not given.
///
/// # Errors
/// If a file is no report of a benchmark, or the two have no figure in common.
pub fn compare(
    old_file: &Path,
    new_file: &Path,
    tolerance: Option<f64>,
) -> Result<CompareDocument> {
    let (old, new) = (read(old_file)?, read(new_file)?);
    for (report, path) in [(&old, old_file), (&new, new_file)] {
        if report.results.is_empty() {
            bail!(
                "{}: no benchmark results; compare other runs with `wirebench report`",
                path.display()
            );
        }
    }
    compare_reports(&old, &new, tolerance)
}

/// Compares two reports. `tolerance` is the share that figures without a search interval may differ by, 2 % if it is
/// not given.
///
/// # Errors
/// If the two have no figure of a benchmark in common.
pub fn compare_reports(
    old: &Report,
    new: &Report,
    tolerance: Option<f64>,
) -> Result<CompareDocument> {
    let rows = compared(old, new, tolerance);
    let in_common = |row: &Row| !matches!(row.verdict, Change::OnlyOld | Change::OnlyNew);
    if !rows.iter().any(in_common) {
        bail!(
            "the reports have no test and size in common: {} and {}",
            old.kind,
            new.kind
        );
    }
    let warnings = [("old", old), ("new", new)]
        .into_iter()
        .filter(|(_, report)| matches!(report.verdict, Verdict::Invalid | Verdict::Incomplete))
        .filter(|(_, report)| !report.reason.is_empty())
        .map(|(which, report)| format!("the {which} run is no full measurement: {}", report.reason))
        .collect();
    Ok(CompareDocument {
        schema: SCHEMA,
        worse: rows.iter().any(|row| row.verdict == Change::Worse),
        rows,
        plan_differences: differences(old, new),
        warnings,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use wb_model::{
        bench::{
            BalancerLimit, BurstResult, LatencyRow, LbMetric, LossRow, RecoveryResult, ServiceStep,
            SuiteTest,
        },
        load::LoadTransport,
    };

    use super::*;

    fn report(results: Vec<SuiteResult>) -> Report {
        Report {
            results,
            ..Report::default()
        }
    }

    fn throughput(limit: f64, beyond: Option<f64>) -> SuiteResult {
        SuiteResult {
            size: "64".to_owned(),
            limit: Some(limit),
            beyond,
            limited_by: Some(LbLimit::Device),
            ..SuiteResult::new(SuiteTest::Throughput, Quantity::Frames)
        }
    }

    fn verdict(old: SuiteResult, new: SuiteResult) -> Change {
        compared(&report(vec![old]), &report(vec![new]), None)[0].verdict
    }

    #[test]
    fn what_lies_within_the_repeatability_is_the_same() {
        let one = |limit| throughput(limit, None);
        // Unknown repeatability: the tolerance applies.
        assert_eq!(verdict(one(1000.0), one(985.0)), Change::Same);
        assert_eq!(verdict(one(1000.0), one(975.0)), Change::Worse);
        assert_eq!(verdict(one(975.0), one(1000.0)), Change::Better);
        // The search interval applies.
        let wide = |limit: f64| throughput(limit, Some(limit * 1.1));
        assert_eq!(verdict(wide(1000.0), wide(950.0)), Change::Same);
        assert_eq!(verdict(wide(1000.0), wide(900.0)), Change::Worse);
        // The spread of repetitions applies if it is larger.
        let spread = |limit: f64| SuiteResult {
            spread: Some(0.3),
            ..wide(limit)
        };
        assert_eq!(verdict(spread(1000.0), wide(800.0)), Change::Same);
    }

    #[test]
    fn no_load_that_held_is_worse_than_any() {
        let none = SuiteResult {
            limit: None,
            ..throughput(0.0, None)
        };
        assert_eq!(verdict(throughput(9.0, None), none.clone()), Change::Worse);
        assert_eq!(verdict(none.clone(), throughput(9.0, None)), Change::Better);
        assert_eq!(verdict(none.clone(), none), Change::Same);
    }

    #[test]
    fn a_limit_of_the_tester_is_a_bound() {
        let device = |limit| throughput(limit, None);
        let tester = |limit| SuiteResult {
            tester_limit: true,
            limited_by: Some(LbLimit::Tester),
            ..device(limit)
        };
        assert_eq!(verdict(device(100.0), tester(200.0)), Change::Better);
        assert_eq!(verdict(device(100.0), tester(90.0)), Change::NotComparable);
        assert_eq!(verdict(tester(200.0), device(100.0)), Change::Worse);
        assert_eq!(verdict(tester(100.0), device(200.0)), Change::NotComparable);
        assert_eq!(verdict(tester(100.0), tester(100.0)), Change::NotComparable);
    }

    #[test]
    fn what_was_not_measured_is_not_comparable() {
        let whole = throughput(100.0, None);
        let early = SuiteResult {
            incomplete: true,
            ..whole.clone()
        };
        let none = SuiteResult {
            not_measured: Some("throughput is the maximum".to_owned()),
            ..whole.clone()
        };
        assert_eq!(verdict(whole.clone(), early), Change::NotComparable);
        let rows = compared(&report(vec![none]), &report(vec![whole.clone()]), None);
        assert_eq!(rows[0].note, "old: throughput is the maximum");
        let other = SuiteResult {
            size: "1518".to_owned(),
            ..whole.clone()
        };
        let rows = compared(&report(vec![whole]), &report(vec![other]), None);
        let verdicts: Vec<Change> = rows.iter().map(|row| row.verdict).collect();
        assert_eq!(verdicts, [Change::OnlyOld, Change::OnlyNew]);
    }

    #[test]
    fn outages_and_steps_count_though_measured_once() {
        let reset = |s: f64| SuiteResult {
            reset: Some(wb_model::bench::ResetResult {
                by_loss_s: Some(s),
                ..Default::default()
            }),
            ..SuiteResult::new(SuiteTest::Reset, Quantity::Frames)
        };
        assert_eq!(verdict(reset(1.0), reset(60.0)), Change::Worse);
        let recovery = |s: f64| SuiteResult {
            recovery: Some(RecoveryResult {
                average_s: Some(s),
                ..RecoveryResult::default()
            }),
            ..SuiteResult::new(SuiteTest::Recovery, Quantity::Frames)
        };
        assert_eq!(verdict(recovery(0.0), recovery(8.0)), Change::Worse);
        let steps = |passed: usize| SuiteResult {
            steps: (0..60)
                .map(|n| ServiceStep {
                    passed: n < passed,
                    ..ServiceStep::default()
                })
                .collect(),
            ..SuiteResult::new(SuiteTest::Y1564, Quantity::Frames)
        };
        assert_eq!(verdict(steps(60), steps(59)), Change::Worse);
        assert_eq!(verdict(steps(59), steps(59)), Change::Same);
    }

    #[test]
    fn each_load_of_an_impact_is_compared() {
        let row = |load_pct: f64, loss_pct: Option<f64>| wb_model::bench::ImpactRow {
            load_pct,
            loss_pct,
            lost: loss_pct.map(|_| 1),
            ..Default::default()
        };
        let impact = |losses: [Option<f64>; 2]| SuiteResult {
            impact: vec![row(1.0, losses[0]), row(50.0, losses[1])],
            ..SuiteResult::new(SuiteTest::Impact, Quantity::Frames)
        };
        let old = impact([Some(0.0), Some(20.0)]);
        let of = |new: SuiteResult| -> Vec<(String, Change)> {
            let rows = compared(&report(vec![old.clone()]), &report(vec![new]), None);
            rows.into_iter()
                .map(|row| (row.test, row.verdict))
                .collect()
        };
        let loss = |at: &str, change| (format!("impact loss at {at}"), change);
        let new = of(impact([Some(5.0), Some(20.0)]));
        assert_eq!(
            new,
            [loss("1 %", Change::Worse), loss("50 %", Change::Same)]
        );
        let void = of(impact([Some(0.0), None]));
        assert_eq!(void[1], loss("50 %", Change::NotComparable));
    }

    #[test]
    fn of_times_and_losses_less_is_better() {
        let latency = |ns: f64| SuiteResult {
            latency: vec![LatencyRow {
                load: 0.5,
                latency_ns: wb_model::Summary {
                    p50: Some(ns as i64),
                    ..wb_model::Summary::default()
                },
                p50_spread: Some(0.05),
                ..LatencyRow::default()
            }],
            ..SuiteResult::new(SuiteTest::Latency, Quantity::Frames)
        };
        assert_eq!(verdict(latency(100.0), latency(150.0)), Change::Worse);
        // Both values may lie at opposite ends of their spread.
        assert_eq!(verdict(latency(100.0), latency(110.0)), Change::Same);
        let mut once = latency(150.0);
        once.latency[0].p50_spread = None;
        assert_eq!(verdict(latency(100.0), once.clone()), Change::NotComparable);
        let told = compared(
            &report(vec![latency(100.0)]),
            &report(vec![once]),
            Some(0.02),
        );
        assert_eq!(told[0].verdict, Change::Worse);
        assert_eq!(verdict(latency(150.0), latency(100.0)), Change::Better);
        let bursts = |average| SuiteResult {
            spread: Some(0.0),
            bursts: Some(BurstResult {
                average,
                ..BurstResult::default()
            }),
            ..SuiteResult::new(SuiteTest::B2b, Quantity::Frames)
        };
        assert_eq!(verdict(bursts(156.0), bursts(155.0)), Change::Same);
        assert_eq!(verdict(bursts(156.0), bursts(150.0)), Change::Worse);
        let loss = |pct| SuiteResult {
            curve: vec![LossRow {
                loss_pct: Some(pct),
                ..LossRow::default()
            }],
            ..SuiteResult::new(SuiteTest::Loss, Quantity::Frames)
        };
        assert_eq!(verdict(loss(0.0), loss(0.0)), Change::Same);
        assert_eq!(verdict(loss(0.0), loss(0.1)), Change::Worse);
        let steps = |passed| SuiteResult {
            steps: [true, passed]
                .map(|passed| ServiceStep {
                    passed,
                    ..ServiceStep::default()
                })
                .to_vec(),
            ..SuiteResult::new(SuiteTest::Y1564, Quantity::Frames)
        };
        assert_eq!(verdict(steps(true), steps(false)), Change::Worse);
        assert_eq!(verdict(steps(false), steps(true)), Change::Better);
    }

    #[test]
    fn limits_of_a_load_balancer() {
        let lb = |limit, limited_by| {
            let own = BalancerLimit::new(LbMetric::Cps, LoadTransport::Tcp);
            report(vec![SuiteResult {
                limit,
                limited_by: Some(limited_by),
                ..SuiteResult::of_balancer(own, None)
            }])
        };
        let verdict = |old: &Report, new: &Report| compared(old, new, None)[0].verdict;
        let (known, less) = (
            lb(Some(9e3), LbLimit::Device),
            lb(Some(8e3), LbLimit::Device),
        );
        assert_eq!(verdict(&known, &less), Change::Worse);
        assert_eq!(verdict(&known, &lb(None, LbLimit::Device)), Change::Worse);
        assert_eq!(
            verdict(&known, &lb(Some(8e3), LbLimit::Time)),
            Change::NotComparable
        );
    }

    #[test]
    fn plans_that_differ_are_told() {
        let with = |seed| Report {
            plan: wb_model::Plan {
                seed,
                interval: wb_model::units::Span::from_secs(seed),
                ..Default::default()
            },
            ..report(vec![throughput(1.0, None)])
        };
        let told = differences(&with(1), &with(2));
        let expected = PlanDifference {
            path: "seed".to_owned(),
            old: "1".to_owned(),
            new: "2".to_owned(),
        };
        assert_eq!(told, [expected]);
    }

    fn any_result() -> impl Strategy<Value = SuiteResult> {
        let value = proptest::option::of(0.0..1e9_f64);
        let test = proptest::sample::select(SuiteTest::ALL.to_vec());
        let size = proptest::sample::select(vec!["64", "1518", "imix"]);
        (
            test,
            size,
            value.clone(),
            value,
            proptest::option::of(0.0..0.5_f64),
        )
            .prop_map(|(test, size, a, b, spread)| SuiteResult {
                size: size.to_owned(),
                limit: a,
                beyond: b,
                limited_by: Some(LbLimit::Device),
                spread,
                latency: vec![LatencyRow {
                    typical_ns: Some(a.unwrap_or(1.0)),
                    latency_ns: wb_model::report::Summary {
                        p99: Some(5),
                        ..Default::default()
                    },
                    ..LatencyRow::default()
                }],
                curve: vec![LossRow {
                    loss_pct: Some(b.unwrap_or(0.0).min(100.0)),
                    ..LossRow::default()
                }],
                impact: vec![wb_model::bench::ImpactRow {
                    loss_pct: Some(b.unwrap_or(0.0).min(100.0)),
                    latency_ns: wb_model::report::Summary {
                        p50: Some(5),
                        ..Default::default()
                    },
                    ..Default::default()
                }],
                bursts: Some(BurstResult {
                    average: a.unwrap_or(0.0),
                    ..BurstResult::default()
                }),
                recovery: Some(RecoveryResult {
                    average_s: Some(a.unwrap_or(0.0)),
                    ..RecoveryResult::default()
                }),
                reset: Some(wb_model::bench::ResetResult {
                    by_stamps_s: Some(a.unwrap_or(0.0)),
                    ..Default::default()
                }),
                steps: vec![ServiceStep::default()],
                ..SuiteResult::new(test, Quantity::Frames)
            })
    }

    proptest! {
        #[test]
        fn a_report_is_the_same_as_itself(results in proptest::collection::vec(any_result(), 1..8)) {
            let report = report(results);
            let rows = compared(&report, &report, None);
            prop_assert!(rows.iter().all(|row| row.verdict == Change::Same), "{rows:?}");
            prop_assert!(differences(&report, &report).is_empty());
        }

        #[test]
        fn what_is_better_one_way_is_worse_the_other(
            old in proptest::collection::vec(any_result(), 1..6),
            new in proptest::collection::vec(any_result(), 1..6),
        ) {
            let (old, new) = (report(old), report(new));
            let back = compared(&new, &old, None);
            for row in compared(&old, &new, None) {
                let turned = back.iter().find(|r| (&r.test, &r.size) == (&row.test, &row.size));
                let expected = match row.verdict {
                    Change::Better => Change::Worse,
                    Change::Worse => Change::Better,
                    Change::OnlyOld => Change::OnlyNew,
                    Change::OnlyNew => Change::OnlyOld,
                    same => same,
                };
                prop_assert_eq!(turned.map(|r| r.verdict), Some(expected));
            }
        }
    }
}
