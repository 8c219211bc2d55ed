//! The limits of a load balancer as text.

use wb_model::{
    Report,
    bench::{BenchLive, LbLimit, LbMetric, LbOutcome, LbResult, LbTrial},
};

use crate::{
    figures::{count, exact_pps, rate_bps},
    page::{Page, Tone},
    table::Table,
};

/// Words in the names of counters that should not rise, whatever the probe.
const TROUBLE: [&str; 6] = ["drop", "miss", "fail", "err", "invalid", "nombuf"];

/// Name of a metric in the table and in live lines.
#[must_use]
pub(crate) fn title(metric: LbMetric, size: Option<u16>) -> String {
    match size {
        Some(size) => format!("{} {size} B", metric.name()),
        None => metric.name().to_owned(),
    }
}

/// Name of the limit that a benchmark searches for.
#[must_use]
pub(crate) fn searched(bench: &BenchLive) -> String {
    let name = match (bench.metric, bench.test) {
        (Some(metric), _) => metric.name(),
        (None, Some(test)) => test.name(),
        (None, None) => "search",
    };
    match &bench.size {
        Some(size) => format!("{name} {size} B"),
        None => name.to_owned(),
    }
}

/// A load in the unit of its metric, with `pps` for all metrics of frames.
#[must_use]
pub(crate) fn load(metric: LbMetric, load: f64) -> String {
    let n = count(load.round().max(0.0) as u64);
    match metric {
        LbMetric::Cps => format!("{n} cps"),
        LbMetric::Cc => format!("{n} open"),
        _ => exact_pps(load),
    }
}

/// Result of a trial, in one or two words.
#[must_use]
pub(crate) const fn outcome(outcome: LbOutcome) -> &'static str {
    match outcome {
        LbOutcome::Held => "held",
        LbOutcome::Broke => "failed",
        LbOutcome::Unoffered => "not offered",
        LbOutcome::Unread => "not read",
        LbOutcome::Late | LbOutcome::Cut => "void",
    }
}

/// A trial as a live line.
#[must_use]
pub(crate) fn trial(metric: LbMetric, trial: &LbTrial) -> String {
    use wb_model::bench::LbPurpose;
    let outcome = outcome(trial.outcome);
    let purpose = match trial.purpose {
        LbPurpose::Search => "",
        LbPurpose::Confirm => " (confirmation)",
    };
    format!(
        "  {:>16}  {outcome}{purpose}: {}",
        load(metric, trial.asked),
        trial.reason
    )
}

/// Value of the limit.
pub(crate) fn limit(result: &LbResult) -> String {
    let Some(limit) = result.limit else {
        let word = if result.late.is_some() {
            "invalid"
        } else {
            "none passed"
        };
        return word.to_owned();
    };
    match result.metric {
        LbMetric::Bps => rate_bps(limit),
        metric => load(metric, limit),
    }
}

/// The limit in another unit, or the time after which tuples were reused.
fn other_words(result: &LbResult) -> Option<String> {
    result.limit?;
    match result.metric {
        LbMetric::Bps => {
            let size = f64::from(result.size?) * 8.0;
            Some(exact_pps(result.limit? / size))
        }
        LbMetric::Cps => {
            let reuse = result.reuse_s?;
            Some(format!("tuples reused after {reuse:.0} s"))
        }
        LbMetric::Cc => None,
        _ => Some(format!("{} L2", rate_bps(result.l2_bps?))),
    }
}

/// Name as in the JSON report.
pub(crate) const fn limited_by(limit: LbLimit) -> &'static str {
    match limit {
        LbLimit::Device => "device",
        LbLimit::Tester => "tester",
        LbLimit::Plan => "plan",
        LbLimit::Time => "time",
    }
}

/// Limiting component, with the words of the text report.
pub(crate) fn by(result: &LbResult) -> String {
    match result.limited_by {
        _ if result.late.is_some() => "tester (late)".to_owned(),
        LbLimit::Device => "device".to_owned(),
        other => format!("{} (lower bound)", limited_by(other)),
    }
}

/// Counters of the tester and of the device: counter, tester's value, device's value, ratio.
fn beside(trial: &LbTrial) -> Vec<[String; 4]> {
    let ours = &trial.ours;
    let mut rows: Vec<[String; 4]> = Vec::new();
    let mut own =
        |name: &str, n: u64| rows.push([name.to_owned(), count(n), String::new(), String::new()]);
    if ours.attempted > 0 && ours.established > 0 {
        own("established", ours.established);
        own("completed", ours.completed);
        own("failed", ours.failed);
    } else {
        own("lost", ours.lost_frames + ours.lost_answer_frames);
    }
    if ours.tester_dropped_frames > 0 {
        own("dropped by tester", ours.tester_dropped_frames);
    }
    for (name, pair) in &trial.device.beside {
        let ratio = pair.ratio.map_or_else(String::new, |r| format!("{r:.3}"));
        rows.push([name.clone(), count(pair.ours), count(pair.device), ratio]);
    }
    for (name, n) in trial.device.rose.iter().filter(|(_, n)| **n > 0) {
        let last = name.rsplit('.').next().unwrap_or(name);
        if TROUBLE.iter().any(|word| last.contains(word)) {
            rows.push([name.clone(), String::new(), count(*n), String::new()]);
        }
    }
    rows
}

fn table<'a>(results: impl Iterator<Item = &'a LbResult>) -> Table {
    let mut table = Table::new()
        .left("metric")
        .right("limit")
        .left("limited by")
        .right("trials")
        .left("counter")
        .right("tester")
        .right("device")
        .right("ratio");
    for result in results {
        let trial = result.best_trial.or(result.trials.len().checked_sub(1));
        let pairs = trial.map(|n| beside(&result.trials[n])).unwrap_or_default();
        let confirmed =
            (result.limit.is_some() && !result.confirmed).then(|| "not confirmed".to_owned());
        let left = [
            [
                title(result.metric, result.size),
                limit(result),
                by(result),
                result.trials.len().to_string(),
            ],
            [
                String::new(),
                other_words(result).unwrap_or_default(),
                confirmed.unwrap_or_default(),
                String::new(),
            ],
        ];
        let used = if left[1].iter().all(String::is_empty) {
            1
        } else {
            2
        };
        for row in 0..pairs.len().max(used) {
            let cells = left.get(row).cloned().unwrap_or_default();
            let pair = pairs.get(row).cloned().unwrap_or_default();
            table.row(cells.into_iter().chain(pair));
        }
    }
    table
}

/// The limits, each with the counters of tester and device in the trial that shows it.
pub(crate) fn section(page: &mut Page, report: &Report) {
    if report.lb_results().next().is_none() {
        return;
    }
    page.head("limits");
    // The table may be wider than the terminal: its rows must not be split.
    for line in table(report.lb_results()).text(2).lines() {
        page.line(Tone::Plain, line);
    }
    let ours = "tester, device: counters in the trial that shows the limit; packets of both sides are added up";
    page.item(Tone::Plain, "  ", Tone::Plain, ours);
    for probe in &report.probes {
        let label = format!("  probe {}  ", probe.name);
        page.item(Tone::Plain, &label, Tone::Plain, &probe.command);
        if let Some(failure) = &probe.last_failure {
            let text = format!(
                "{} of {} readings failed; last failure: {failure}",
                probe.failures, probe.readings
            );
            page.item(Tone::Doubt, "    ", Tone::Plain, &text);
        }
    }
}
