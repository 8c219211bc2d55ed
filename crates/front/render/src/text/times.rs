//! Tables of distributions of times, and the source of the timestamps.

use wb_model::{Report, Summary};

use crate::{
    figures::{TIME_UNITS, count, group, ratio, time_ns},
    page::{Page, Tone},
    table::Table,
};

/// Table of the named distributions that have samples.
pub(crate) fn distributions(page: &mut Page, all: &[(&'static str, &Summary)]) {
    let columns: Vec<Column> = all
        .iter()
        .filter(|(_, s)| s.samples > 0)
        .map(|(name, s)| Column::new(name, s))
        .collect();
    if !columns.is_empty() {
        page.gap();
        page.table(&table(&columns), 2, 1);
    }
}

fn table(columns: &[Column]) -> Table {
    let mut table = columns.iter().fold(Table::new().left(""), |t, c| {
        t.right(format!("{} {}", c.name, c.unit))
    });
    let all: Vec<_> = columns.iter().map(Column::cells).collect();
    let Some(first) = all.first() else {
        return table;
    };
    for (i, (name, _)) in first.iter().enumerate() {
        let cells: Vec<String> = all.iter().map(|cells| cells[i].1.clone()).collect();
        if cells.iter().any(|c| !c.is_empty()) {
            table.row([(*name).to_owned()].into_iter().chain(cells));
        }
    }
    table.row(
        ["samples".to_owned()]
            .into_iter()
            .chain(columns.iter().map(|c| count(c.summary.samples))),
    );
    table
}

/// A distribution with the unit and the decimal places of all its figures.
struct Column<'a> {
    name: &'static str,
    summary: &'a Summary,
    unit: &'static str,
    scale: f64,
    places: usize,
}

impl<'a> Column<'a> {
    fn new(name: &'static str, summary: &'a Summary) -> Self {
        let mut sizes: Vec<f64> = figures(summary)
            .into_iter()
            .filter_map(|(_, v)| v.map(f64::abs))
            .filter(|v| *v > 0.0)
            .collect();
        sizes.sort_by(f64::total_cmp);
        let typical = sizes.get(sizes.len() / 2).copied().unwrap_or(0.0);
        let unit = TIME_UNITS
            .iter()
            .rposition(|(_, scale)| typical >= *scale)
            .unwrap_or(0);
        let (unit, scale) = TIME_UNITS[unit];
        // Enough decimal places to show the smallest figure, and half a nanosecond at the finest.
        let smallest = sizes.first().copied().unwrap_or(0.0) / scale;
        let finest = match unit {
            "ns" => 1,
            "us" => 3,
            "ms" => 6,
            _ => 9,
        };
        let least = usize::from(unit != "ns" || typical < 100.0);
        let places = (least..=finest)
            .find(|places| smallest == 0.0 || smallest * 10f64.powi(*places as i32) >= 0.5)
            .unwrap_or(finest);
        Self {
            name,
            summary,
            unit,
            scale,
            places,
        }
    }

    fn cells(&self) -> Vec<(&'static str, String)> {
        let show = |v: f64| {
            let text = format!("{:.*}", self.places, v / self.scale);
            // A mean of -0.04 ns is shown as zero without a sign.
            let zero = text.chars().all(|c| matches!(c, '-' | '0' | '.'));
            group(if zero {
                text.trim_start_matches('-')
            } else {
                &text
            })
        };
        figures(self.summary)
            .into_iter()
            .map(|(name, v)| (name, v.map(show).unwrap_or_default()))
            .collect()
    }
}

/// Statistics with their labels, with the standard deviation at the end.
fn figures(s: &Summary) -> Vec<(&'static str, Option<f64>)> {
    let mut all: Vec<_> = s
        .statistics()
        .map(|(name, value)| (Summary::label(name), value))
        .collect();
    all.sort_by_key(|(name, _)| *name == "stddev");
    all
}

/// Doubt about latencies of frames of a sender in another run.
pub(crate) const UNKNOWN_CLOCK: &str = "unknown sender clock: if the sender is another host, its clock offset is part of every latency";

/// Returns true if the report has latencies of a sender with an unknown clock.
pub(crate) fn is_clock_unknown(report: &Report) -> bool {
    let clock = &report.clock;
    !clock.same_clock && clock.error_ns.is_none() && report.latency_ns.samples > 0
}

/// Source of the timestamps, and doubts about them.
pub(super) fn clock(page: &mut Page, report: &Report, verbose: bool) {
    let clock = &report.clock;
    let mut doubts = Vec::new();
    if is_clock_unknown(report) {
        doubts.push(UNKNOWN_CLOCK.to_owned());
    }
    if clock.step_ns != 0 {
        #[allow(clippy::cast_precision_loss)]
        let step = time_ns(clock.step_ns as f64);
        doubts.push(format!(
            "the wall clock was stepped by {step} during the run"
        ));
    }
    if report.jobs.is_empty() || !verbose && doubts.is_empty() {
        return;
    }
    page.head("timestamps");
    if verbose {
        let stamps = [("sent", &clock.tx_stamp), ("received", &clock.rx_stamp)];
        let stamps = stamps.iter().filter(|(_, stamp)| !stamp.is_empty());
        let stamps: Vec<String> = stamps
            .map(|(end, stamp)| format!("{end}: {stamp}"))
            .collect();
        if !stamps.is_empty() {
            page.item(Tone::Plain, "  stamps  ", Tone::Plain, &stamps.join("; "));
        }
        page.item(Tone::Plain, "  clock   ", Tone::Plain, &about(report));
    }
    for doubt in doubts {
        page.item(Tone::Doubt, "  ! ", Tone::Doubt, &doubt);
    }
}

/// Source and accuracy of the clock.
fn about(report: &Report) -> String {
    let clock = &report.clock;
    let mut facts = Vec::new();
    if !clock.source.is_empty() {
        facts.push(clock.source.clone());
    }
    if clock.resolution_ns > 0 {
        facts.push(format!("resolution {} ns", count(clock.resolution_ns)));
    }
    if let Some(error) = clock.error_ns {
        facts.push(format!("latency error up to {} ns", count(error)));
    }
    facts.push(format!("{} ns per reading", count(clock.read_cost_ns)));
    if report.percentile_error > 0.0 {
        facts.push(format!(
            "percentile error up to {}",
            ratio(report.percentile_error)
        ));
    }
    facts.join(", ")
}
