//! The report as plain text: the verdict first, with its caveats, and sums that can be checked.
//!
//! Each section is a file; this one puts them in order.

pub(crate) mod plan;
mod ports;
pub mod socket;
pub(crate) mod times;

use wb_model::{
    Lateness, Report, Verdict, criteria::CriterionLimit, frames, report::CriterionReport,
};

use crate::{
    figures::{count, ratio_to, significant, time_ns, trimmed},
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
    /// Adds streams, all flows, latency by worker, all device counters, all neighbours, clock details.
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
    sections_of(&mut page, report, "traffic", options.verbose);
    sections_of(&mut page, report, "devices", options.verbose);
    sections_of(&mut page, report, "capture", options.verbose);
    crate::lb::section(&mut page, report);
    crate::suite::section(&mut page, report, options.verbose);
    // With limits of a load balancer they are shown in that section.
    if report.lb_results().next().is_none() {
        sections_of(&mut page, report, "probe", options.verbose);
    }
    times::clock(&mut page, report, options.verbose);
    let workers = frames::workers(report);
    if !report.workers.is_empty() {
        sections::text::section(&mut page, &workers, options.verbose);
    }
    ports::section(&mut page, report, options.verbose);
    page.finish()
}

fn sections_of(page: &mut Page, report: &Report, kind: &str, details: bool) {
    for section in sections::of_kind(report, kind) {
        sections::text::section(page, &section, details);
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

/// The measured value in the criterion's unit, with enough digits to differ from the limit:
/// `500 us` next to `p99<=500us` would not show why it failed.
pub(crate) fn measured(criterion: &str, value: f64) -> String {
    match criterion
        .parse::<wb_model::Criterion>()
        .map(|criterion| criterion.limit)
    {
        Ok(CriterionLimit::Share(limit)) => {
            let limit = limit.as_f64();
            (2..=12)
                .map(|places| (ratio_to(value, places), ratio_to(limit, places)))
                .find_map(|(text, limit_text)| (text != limit_text).then_some(text))
                .unwrap_or_else(|| ratio_to(value, 2))
        }
        #[allow(clippy::cast_precision_loss)]
        Ok(CriterionLimit::Time(limit)) => {
            let limit = limit.as_nanos() as f64;
            let text = time_ns(value);
            if value != limit && text == time_ns(limit) {
                format!("{} us", trimmed(&significant(value / 1e3, 12)))
            } else {
                text
            }
        }
        #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation)]
        #[allow(clippy::cast_sign_loss)]
        Ok(CriterionLimit::Number(limit)) => {
            let (whole, limit) = (value.max(0.0).round(), limit.as_f64());
            match limit.fract() != 0.0 || whole == limit && value != whole {
                true => trimmed(&significant(value, 12)).to_owned(),
                false => count(whole as u64),
            }
        }
        Err(_) => significant(value, 6),
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

#[cfg(test)]
mod tests {
    use super::measured;

    #[test]
    fn a_measured_value_is_told_from_its_limit() {
        for (criterion, value, text) in [
            ("loss<=0.1%", 0.002, "0.2 %"),
            ("loss<=0.1%", 0.001_000_01, "0.100001 %"),
            ("loss<=0.1%", 0.001, "0.1 %"),
            ("p99<=500us", 23_100.0, "23.1 us"),
            ("p99<=500us", 500_123.0, "500.123 us"),
            ("p99<=500us", 500_000.0, "500 us"),
            ("cps>=20k", 12_345.4, "12,345"),
            ("cps>=20k", 19_999.75, "19999.75"),
            ("probe.drops<=0", 3.0, "3"),
        ] {
            assert_eq!(measured(criterion, value), text, "{criterion}");
        }
    }
}
