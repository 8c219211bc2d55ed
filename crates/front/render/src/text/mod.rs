//! The report as plain text: the verdict first, with its caveats, and sums that can be checked.
//!
//! Each section is a file; this one puts them in order.

mod counts;
pub(crate) mod plan;
mod ports;
pub(crate) mod rates;
pub mod socket;
pub(crate) mod times;
mod workers;

pub(crate) use wb_model::criteria::measured_text as measured;
use wb_model::{Lateness, Report, Verdict, report::CriterionReport};

use crate::{
    figures::time_ns,
    page::{Page, Tone},
    sections,
};

/// Level of detail and form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Marks verdict, losses and warnings by colour (ECMA-48).
    pub color: bool,
    /// Columns of the terminal.
    pub width: usize,
    /// Adds streams, latency by worker, all device counters, all neighbours, clock details.
    pub verbose: bool,
    /// Maximum number of listed flows; the rest is counted.
    pub max_flows: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            color: false,
            width: 80,
            verbose: false,
            max_flows: 10,
        }
    }
}

/// The whole report.
#[must_use]
pub fn report(report: &Report, options: &Options) -> String {
    let mut page = Page::new(options.color, options.width);
    verdict(&mut page, report);
    criteria(&mut page, &report.criteria);
    warnings(&mut page, &report.warnings);
    plan::section(&mut page, &report.plan);
    sections_of(&mut page, report, "load", options.verbose);
    sections_of(&mut page, report, "http", options.verbose);
    sections_of(&mut page, report, "server", options.verbose);
    socket::section(&mut page, report, options.verbose);
    for job in &report.jobs {
        page.head(&job_title(&job.name, job.tx.as_deref(), job.rx.as_deref()));
        let both_ends = job.tx.is_some() && job.rx.is_some();
        counts::section(&mut page, &job.totals);
        rates::section(&mut page, &job.rates, &job.totals, both_ends);
        if report.jobs.len() > 1 {
            times::brief(&mut page, &job.latency_ns);
        }
        if options.verbose || job.streams.len() > 1 {
            workers::streams(&mut page, &job.streams);
        }
    }
    sections_of(&mut page, report, "capture", options.verbose);
    crate::lb::section(&mut page, report);
    crate::suite::section(&mut page, report, options.verbose);
    // With limits of a load balancer they are shown in that section.
    if report.lb_results().next().is_none() {
        sections_of(&mut page, report, "probe", options.verbose);
    }
    let frames = !has_other_jobs(report) || !report.jobs.is_empty();
    if report.jobs.len() != 1 && frames {
        page.head(if report.jobs.is_empty() {
            "counts"
        } else {
            match report.plan.traffic.is_empty() {
                true => "all devices",
                false => "all streams",
            }
        });
        counts::section(&mut page, &report.totals);
        rates::section(&mut page, &report.rates, &report.totals, true);
    }
    if frames {
        times::section(&mut page, report, options.verbose);
    }
    workers::flows(&mut page, report, options.max_flows);
    workers::section(&mut page, report, options.verbose);
    ports::section(&mut page, report, options.verbose);
    page.finish()
}

/// Returns true if the run has jobs other than streams and packet devices.
pub(crate) fn has_other_jobs(report: &Report) -> bool {
    report.plan.procedure.is_some()
        || report.load.is_some()
        || report.http.is_some()
        || report.socket.is_some()
        || report.capture.is_some()
        || !report.captures.is_empty()
        || !report.probes.is_empty()
}

fn sections_of(page: &mut Page, report: &Report, kind: &str, details: bool) {
    for section in sections::of_kind(report, kind) {
        sections::text::section(page, &section, details);
    }
}

fn job_title(name: &str, tx: Option<&str>, rx: Option<&str>) -> String {
    match (tx, rx) {
        (Some(tx), Some(rx)) => format!("{name}: {tx} -> {rx}"),
        (Some(tx), None) => format!("{name}: sent from {tx}"),
        (None, Some(rx)) => format!("{name}: received at {rx}"),
        (None, None) => name.to_owned(),
    }
}

fn verdict(page: &mut Page, report: &Report) {
    let (tone, word) = match report.verdict {
        Verdict::Pass => (Tone::Good, "PASS  "),
        Verdict::Completed => (Tone::Quiet, "COMPLETED  "),
        Verdict::Fail => (Tone::Bad, "FAIL  "),
        Verdict::Invalid => (Tone::Bad, "INVALID  "),
        Verdict::Incomplete => (Tone::Bad, "INCOMPLETE  "),
    };
    page.item(tone, word, Tone::Plain, &report.reason);
    if !report.limited_by.is_empty() {
        page.item(
            Tone::Plain,
            "  limited by  ",
            Tone::Plain,
            &report.limited_by.to_string(),
        );
    }
    // Nanoseconds in a run's length fit a double up to 104 days.
    #[allow(clippy::cast_precision_loss)]
    let took = time_ns(report.elapsed_ns as f64);
    page.item(
        Tone::Plain,
        "  run         ",
        Tone::Plain,
        &format!(
            "{}, started {}, took {took}, seed {}",
            report.kind, report.started, report.plan.seed
        ),
    );
    lateness(page, &report.lateness.all);
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
