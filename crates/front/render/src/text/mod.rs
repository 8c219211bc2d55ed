//! The report as plain text: the verdict first, with its caveats, and sums that can be checked.
//!
//! Each section is a file; this one puts them in order.

pub(crate) mod plan;
mod ports;
pub mod socket;
pub(crate) mod times;

pub(crate) use times::{UNKNOWN_CLOCK, is_clock_unknown};
pub(crate) use wb_model::criteria::measured_text as measured;
use wb_model::{Lateness, Report, Verdict, fleet, frames, report::CriterionReport};

use crate::{
    figures::time_ns,
    page::{Page, Tone},
    sections, summary,
};

/// Level of detail and form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Marks verdict, losses and warnings by colour (ECMA-48).
    pub color: bool,
    /// Columns of the terminal.
    pub width: usize,
    /// Adds streams, all flows, timestamps, workers and ports.
    pub verbose: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            color: false,
            width: 80,
            verbose: false,
        }
    }
}

/// Kinds of jobs in the order of the text. Other kinds follow benchmarks.
const FIRST: [&str; 7] = [
    "load", "http", "server", "socket", "traffic", "devices", "capture",
];

/// The whole report.
#[must_use]
pub fn report(report: &Report, options: &Options) -> String {
    let mut page = Page::new(options.color, options.width);
    summary(&mut page, report);
    criteria(&mut page, &report.criteria);
    warnings(&mut page, &report.warnings);
    if summary::asked(report).is_none() {
        plan::section(&mut page, &report.plan);
    }
    for kind in FIRST {
        match kind {
            "socket" => socket::section(&mut page, report, options.verbose),
            kind => sections_of(&mut page, report, kind, options.verbose),
        }
    }
    crate::suite::section(&mut page, report, options.verbose);
    for kind in sections::other_kinds(report, &FIRST) {
        sections_of(&mut page, report, kind, options.verbose);
    }
    if !report.hosts.is_empty() {
        sections::text::section(&mut page, &fleet::hosts(report), options.verbose);
    }
    times::clock(&mut page, report, options.verbose);
    if options.verbose {
        if !report.workers.is_empty() {
            sections::text::section(&mut page, &frames::workers(report), true);
        }
        ports::section(&mut page, report);
    }
    page.finish()
}

fn sections_of(page: &mut Page, report: &Report, kind: &str, details: bool) {
    for section in sections::of_kind(report, kind) {
        sections::text::section(page, &section, details);
    }
}

/// Verdict, limit, main figures, and what to try next.
fn summary(page: &mut Page, report: &Report) {
    let (tone, word) = match report.verdict {
        Verdict::Pass => (Tone::Good, "PASS  "),
        Verdict::Completed => (Tone::Quiet, "COMPLETED  "),
        Verdict::Fail => (Tone::Bad, "FAIL  "),
        Verdict::Invalid => (Tone::Bad, "INVALID  "),
        Verdict::Incomplete => (Tone::Bad, "INCOMPLETE  "),
    };
    page.item(tone, word, Tone::Plain, &report.reason);
    if let Some(asked) = summary::asked(report) {
        page.item(Tone::Plain, "  asked       ", Tone::Plain, &asked);
    }
    if let Some(merged) = summary::merged(report) {
        page.item(Tone::Plain, "  merged      ", Tone::Plain, &merged);
    }
    let jobs = summary::main_figures(report);
    for main in &jobs {
        let name = match jobs.len() {
            1 if report.results.is_empty() => "result",
            _ => &main.job,
        };
        let leads = main.leads.iter();
        let leads = leads.map(|l| format!("{} {}", l.label, l.value).trim_end().to_owned());
        let leads: Vec<String> = leads.collect();
        let tone = match main.leads.iter().any(|lead| lead.is_bad) {
            true => Tone::Bad,
            false => Tone::Plain,
        };
        let leads = main.figure.clone() + &leads.join(", ");
        page.item(tone, &format!("  {name:<10}  "), tone, &leads);
    }
    if !report.limited_by.is_empty() {
        page.item(
            Tone::Plain,
            "  limited by  ",
            Tone::Plain,
            &report.limited_by.to_string(),
        );
    }
    lateness(page, &report.lateness.all);
    // Nanoseconds in a run's length fit a double up to 104 days.
    #[allow(clippy::cast_precision_loss)]
    let took = time_ns(report.elapsed_ns as f64);
    let mut drivers: Vec<&str> = report
        .ports
        .iter()
        .map(|port| port.driver.as_str())
        .collect();
    drivers.dedup();
    let over = match drivers.as_slice() {
        [] => String::new(),
        all => format!(" over {}", all.join(" and ")),
    };
    page.item(
        Tone::Plain,
        "  run         ",
        Tone::Plain,
        &format!(
            "{}{over}, started {}, took {took}, seed {}",
            report.kind, report.started, report.plan.seed
        ),
    );
    if let Some(next) = summary::next(report) {
        page.item(Tone::Plain, "  next        ", Tone::Plain, &next);
    }
}

/// Delay of the tester, because it may explain the following figures.
fn lateness(page: &mut Page, late: &Lateness) {
    if late.stalls + late.dropped_reads > 0 {
        page.item(Tone::Doubt, "  tester      ", Tone::Plain, &late.account());
    } else if late.largest_gap_ns > 0 {
        #[allow(clippy::cast_precision_loss)]
        let gap = time_ns(late.largest_gap_ns as f64);
        let text = format!("on time (longest pause {gap})");
        page.item(Tone::Plain, "  tester      ", Tone::Plain, &text);
    }
}

fn criteria(page: &mut Page, criteria: &[CriterionReport]) {
    if criteria.is_empty() {
        return;
    }
    page.head("criteria");
    let name = |c: &CriterionReport| c.criterion.chars().count();
    let names = criteria.iter().map(name).max().unwrap_or(0);
    for c in criteria {
        let (tone, word) = if c.held {
            (Tone::Good, "held    ")
        } else {
            (Tone::Bad, "FAILED  ")
        };
        let measured = c.measured.map_or_else(
            || "no data".to_owned(),
            |value| format!("measured {}", measured(&c.criterion, value)),
        );
        page.spans(&[
            (Tone::Plain, "  "),
            (tone, word),
            (Tone::Plain, &format!("{:<names$}  {measured}", c.criterion)),
        ]);
    }
}

fn warnings(page: &mut Page, warnings: &[String]) {
    if warnings.is_empty() {
        return;
    }
    page.head("warnings");
    for warning in warnings {
        page.item(Tone::Doubt, "  ! ", Tone::Doubt, warning);
    }
}
