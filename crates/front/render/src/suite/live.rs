//! Running suites: a line when a test begins, while a trial runs, and when it has ended.

use wb_model::bench::{
    BenchLive, LbMetric, SuiteTest, SuiteTrial, TrialPurpose, in_bursts, size_text,
};

use wb_figures::text::load as figure;

use super::{load, of_line, outcome, purpose};

/// Heading of a search that begins.
#[must_use]
pub fn begins(bench: &BenchLive) -> String {
    let size = bench
        .size
        .as_deref()
        .filter(|s| !s.is_empty())
        .map(size_text);
    let size = size.map_or_else(String::new, |size| format!(", {size}"));
    let burst = bench.burst.map(|n| format!(", {}", in_bursts(n)));
    let burst = burst.unwrap_or_default();
    match bench.test.map(SuiteTest::def) {
        Some(test) => format!("{}{size}{burst} ({})", test.title, test.document),
        None => format!("{}{size}", name(bench)),
    }
}

/// Name of the test, or of the metric of a load balancer.
fn name(bench: &BenchLive) -> &'static str {
    let metric = bench.metric.map(LbMetric::name);
    let test = bench.test.map(SuiteTest::name);
    metric.or(test).unwrap_or("search")
}

/// A trial that has ended.
pub(crate) fn ended(bench: &BenchLive, trial: &SuiteTrial) -> String {
    let share = trial
        .intended_pct
        .map_or_else(String::new, |pct| format!(" ({})", of_line(pct / 100.0)));
    let purpose = match trial.purpose {
        TrialPurpose::Search | TrialPurpose::Measure => String::new(),
        TrialPurpose::Confirm => " (confirmation)".to_owned(),
        other => format!(" ({})", purpose(other)),
    };
    let came = match trial.outcome.is_valid() {
        true => outcome(trial.outcome),
        false => "void",
    };
    format!(
        "  {:>16}{share}  {came}{purpose}: {}",
        load(trial.intended, &bench.unit),
        trial.reason
    )
}

/// Interval that contains the result: `9,000..10,000`, as far as it is known.
#[must_use]
pub fn interval(bench: &BenchLive) -> Option<String> {
    match (bench.low, bench.high) {
        (None, None) => None,
        (Some(low), None) => Some(format!("at least {}", figure(low))),
        (None, Some(high)) => Some(format!("less than {}", figure(high))),
        (Some(low), Some(high)) => Some(format!("{}..{}", figure(low), figure(high))),
    }
}

/// Remaining time, at the precision of the estimate: `4 min`.
#[must_use]
pub fn left(ns: u64) -> String {
    let seconds = ns.div_ceil(1_000_000_000);
    match seconds {
        0..=99 => format!("{seconds} s"),
        100..=5_999 => format!("{} min", seconds.div_ceil(60)),
        _ => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
    }
}

/// Description of a running trial, the most important part first: parts that do not fit are dropped from the end.
pub(crate) fn running(bench: &BenchLive) -> Vec<String> {
    let mut what = name(bench).to_owned();
    if let Some(own) = bench.size.as_deref().filter(|s| !s.is_empty()) {
        what.push_str(&format!(" {}", size_text(own)));
    }
    if let Some(step) = &bench.step {
        what.push_str(&format!(" {step}"));
    }
    if let Some(frames) = bench.burst {
        what.push_str(&format!(" {}", in_bursts(frames)));
    }
    let purpose = match bench.purpose {
        None | Some(TrialPurpose::Search | TrialPurpose::Measure) => String::new(),
        Some(other) => format!(" ({})", purpose(other)),
    };
    let mut parts = vec![what];
    parts.extend(bench.load.map(|n| load(n, &bench.unit)));
    parts.extend(interval(bench).map(|text| match bench.low.and(bench.high) {
        Some(_) => format!("in {text}"),
        None => text,
    }));
    parts.extend(bench.left_ns.map(|ns| format!("~{} left", left(ns))));
    parts.extend((bench.trial > 0).then(|| format!("trial {}{purpose}", bench.trial)));
    parts
}
