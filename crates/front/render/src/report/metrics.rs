//! The figures of a run by their names, in base units, for comparisons and for CSV files.

use std::borrow::Cow;

use wb_figures::{Better, Section, Show, Value};
use wb_model::{
    Report, Summary,
    bench::{Quantity, SuiteResult, SuiteTest},
};

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
                format!("{} {unit}", count(amount as u64))
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
    let all = sections::all(report);
    for section in &all {
        let is_only = all
            .iter()
            .filter(|other| other.kind == section.kind)
            .count()
            == 1;
        list.section(section, is_only || section.is_total);
    }
    for r in report.lb_results() {
        list.of = crate::lb::title(r.metric, r.size);
        let unit = match r.unit.as_str() {
            "bps" => "bit/s",
            "cps" => "cps",
            "connections" => "connections",
            _ => "pps",
        };
        list.add("limit", unit, r.limit, Better::Higher);
    }
    for r in report.suite_results() {
        list.suite(r);
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
                Show::Always => true,
                Show::Details => false,
                Show::IfAny => figure.value.is_any(),
                Show::Never => figure.value.is_any() && def.better != Better::Neither,
            };
            let mut add = |name: String, label: String, value: f64, better| {
                let is_compared = is_compared && !name.ends_with("_stddev");
                self.metrics.push(Metric {
                    of: of.clone(),
                    name,
                    label,
                    unit: def.unit.symbol(),
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
                        add(name, label, value, def.better);
                    }
                }
            } else if let Some(value) = figure.value.number() {
                add(def.name.to_owned(), figure.title(), value, def.better);
            }
        }
    }

    /// Adds the result of a test of a suite.
    fn suite(&mut self, r: &SuiteResult) {
        use Better::{Higher, Lower, Neither};
        self.of = crate::suite::title(r);
        let unit = match r.of {
            Quantity::Frames => "fps",
            Quantity::Cps => "cps",
            Quantity::Cc => "connections",
            Quantity::Rps => "rps",
        };
        let (limit, l2) = match r.test {
            SuiteTest::Throughput | SuiteTest::Ndr => (r.limit, r.throughput_l2_bps),
            // Other tests report these values among their specific figures.
            _ => (None, None),
        };
        // A limit of the tester is neither good nor bad for the device.
        let better = if crate::suite::is_tester_limit(r) {
            Neither
        } else {
            Higher
        };
        self.add("limit", unit, limit, better);
        self.add("limit, layer 2", "bit/s", l2, better);
        let mlr = r.mlr.as_ref();
        let conditional = mlr.and_then(|mlr| mlr.conditional_throughput);
        self.add("conditional throughput", unit, conditional, Higher);
        for row in &r.latency {
            let at = |what: &str| format!("{what} at {}", ratio(row.load));
            let l = &row.latency_ns;
            self.add(&at("latency p50"), "ns", l.p50.map(|ns| ns as f64), Lower);
            self.add(&at("latency p99"), "ns", l.p99.map(|ns| ns as f64), Lower);
            self.add(&at("latency max"), "ns", l.max.map(|ns| ns as f64), Lower);
            self.add(&at("typical latency"), "ns", row.typical_ns, Lower);
            self.add(&at("worst-case latency"), "ns", row.worst_ns, Lower);
            self.add(&at("PDV p99.9"), "ns", row.pdv_ns, Lower);
            self.add(&at("lost"), "frames", Some(row.lost as f64), Lower);
        }
        for row in &r.curve {
            let name = format!("loss at {}", ratio(row.load_pct / 100.0));
            self.add(&name, "share", row.loss_pct.map(|pct| pct / 100.0), Lower);
        }
        if let Some(b) = &r.bursts {
            self.add("average burst", "frames", Some(b.average), Higher);
            let corrected = b.corrected_s.map(|s| s * 1e9);
            self.add("corrected buffer time", "ns", corrected, Neither);
        }
        let whole = self.of.clone();
        for row in &r.impact {
            self.of = format!("{whole} at {}", crate::figures::ratio(row.load_pct / 100.0));
            self.add(
                "loss",
                "share",
                row.loss_pct.map(|loss| loss / 100.0),
                Lower,
            );
            self.summary("latency", &row.latency_ns);
        }
        self.of = whole;
        if let Some(own) = &r.mfr {
            let better = match crate::suite::is_tester_limit(r) {
                true => Neither,
                false => Higher,
            };
            self.add("maximum forwarding rate", "fps", Some(own.rate_fps), better);
            let frmol = "forwarding rate at the maximum offered load";
            self.add(frmol, "fps", own.frmol_fps, better);
        }
        if let Some(own) = &r.recovery {
            let ns = |s: Option<f64>| s.map(|s| s * 1e9);
            self.add("average recovery", "ns", ns(own.average_s), Lower);
            self.add("longest recovery", "ns", ns(own.max_s), Lower);
            let never = own.seconds.iter().filter(|s| s.is_none()).count();
            self.add("not recovered", "times", Some(never as f64), Lower);
        }
        if let Some(own) = &r.reset {
            let ns = |s: Option<f64>| s.map(|s| s * 1e9);
            self.add("reset time by loss", "ns", ns(own.by_loss_s), Lower);
            self.add("reset time by stamps", "ns", ns(own.by_stamps_s), Lower);
        }
        for step in &r.steps {
            self.of = format!("y1564 {} {}", step.service, step.step);
            self.add("received", "bit/s", Some(step.received_bps), Neither);
            self.add("loss", "share", Some(step.loss_ratio), Lower);
            self.add("delay", "ns", step.delay_ns, Lower);
            let variation = step.variation_ns.map(|ns| ns as f64);
            self.add("delay variation", "ns", variation, Lower);
            self.add("availability", "share", step.availability, Higher);
        }
    }

    fn summary(&mut self, name: &str, s: &Summary) {
        let statistics = s
            .statistics()
            .filter(|(name, _)| s.samples > 0 && *name != "stddev");
        for (which, value) in statistics.map(|(name, value)| (Summary::label(name), value)) {
            // If a figure can be negative, less is not better.
            let better = if name == "IPDV" {
                Better::Neither
            } else {
                Better::Lower
            };
            self.add(&format!("{name} {which}"), "ns", value, better);
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
