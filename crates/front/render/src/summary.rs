//! The first lines of a report: main figures of its jobs, and what to try next.

use wb_figures::{Figure, Section, Show, Value};
use wb_model::{Limiter, Plan, Report, Verdict, bench};

use crate::{
    csv::verdict,
    figures::time_ns,
    sections::{is_bad, shown},
    text::plan,
};

/// Maximum number of jobs in a summary.
const MOST_JOBS: usize = 4;

/// Maximum number of results of one test in a summary.
const MOST_RESULTS: usize = 8;

/// A main figure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lead {
    pub(crate) label: String,
    pub(crate) value: String,
    pub(crate) is_bad: bool,
}

/// Main figures of one job, or the results of one test.
pub(crate) struct Main {
    /// Name of the job or of the test.
    pub(crate) job: String,
    /// Name of the figure of a test with a colon, unless it is that of the test; empty for jobs.
    pub(crate) figure: String,
    pub(crate) leads: Vec<Lead>,
}

/// Main figures of the first jobs; several jobs of streams are one.
pub(crate) fn main_figures(report: &Report) -> Vec<Main> {
    let all = report.sections();
    let total = all.iter().find(|section| section.is_total);
    let is_part = |section: &&Section<'_>| {
        let is_of_frames = ["traffic", "devices"].contains(&section.kind);
        total.is_none() || section.is_total || !is_of_frames
    };
    // The points of a sweep are rows of a table.
    let is_point = |section: &&Section<'_>| !section.parameters.is_empty();
    let of = |section: &Section<'_>| Main {
        job: section.job.to_string(),
        figure: String::new(),
        leads: leads(section),
    };
    // A load that carries an HTTP job is a part of that job.
    let carries = |section: &&Section<'_>| {
        let of_http = |other: &Section<'_>| other.kind == "http" && other.job == section.job;
        section.kind == "load" && all.iter().any(of_http)
    };
    let mut list: Vec<Main> = all
        .iter()
        .filter(|section| is_part(section) && !is_point(section) && !carries(section))
        .map(of)
        .collect();
    list.retain(|main| !main.leads.is_empty());
    list.truncate(MOST_JOBS);
    list.extend(results(report));
    list
}

/// The main figure of each result of a suite, test by test: `throughput 64 B 2,976,190 fps, 128 B none passed`.
fn results(report: &Report) -> Vec<Main> {
    let mut list: Vec<Main> = Vec::new();
    for r in &report.results {
        let section = bench::section(None, r);
        let Some(own) = section.figures.iter().find(|f| f.def.leads) else {
            continue;
        };
        let is_bound =
            r.is_tester_limit() || r.incomplete || ["plan", "time"].contains(&r.limiter());
        let value = match (&r.not_measured, own.value.number()) {
            (Some(_), _) => "not measured".to_owned(),
            (None, Some(_)) if r.test.finds_limit() && is_bound => {
                format!("at least {}", shown(own.unit, &own.value))
            }
            (None, Some(_)) => shown(own.unit, &own.value),
            (None, None) if r.late().is_some() => "no result".to_owned(),
            (None, None) if r.test.finds_limit() => r.limiter().to_owned(),
            (None, None) => "unknown".to_owned(),
        };
        let lead = Lead {
            label: section.job.to_string(),
            value,
            is_bad: r.has_failed() && r.late().is_none(),
        };
        match list.iter_mut().find(|main| main.job == section.kind) {
            Some(main) => main.leads.push(lead),
            None => list.push(Main {
                job: section.kind.to_owned(),
                figure: match own.label == section.kind {
                    true => String::new(),
                    false => format!("{}: ", own.label),
                },
                leads: vec![lead],
            }),
        }
    }
    for main in &mut list {
        let more = main.leads.len().saturating_sub(MOST_RESULTS);
        main.leads.truncate(MOST_RESULTS);
        main.leads.extend((more > 0).then(|| Lead {
            label: format!("and {more} more"),
            value: String::new(),
            is_bad: false,
        }));
    }
    list
}

fn leads(section: &Section<'_>) -> Vec<Lead> {
    let mut list = Vec::new();
    let is_hidden = |f: &Figure<'_>| f.show == Show::Never && f.def.show != Show::Never;
    let own = section
        .figures
        .iter()
        .filter(|f| f.def.leads && f.group.is_empty());
    let is_none = |f: &Figure<'_>| f.def.show == Show::IfAny && !f.value.is_any();
    for figure in own.filter(|f| !is_hidden(f) && !is_none(f)) {
        // `established/s, steady`: the table of the job says when.
        let label = figure.label.split(',').next().unwrap_or_default();
        let mut add = |label: String, value: String, is_bad| {
            list.push(Lead {
                label,
                value,
                is_bad,
            });
        };
        match figure.value {
            Value::Unknown => {}
            Value::Times(times, _) if times.samples == 0 => {}
            Value::Times(times, _) => {
                let [p50, p99] = [times.p50, times.p99].map(|ns| ns.map(|ns| ns as f64));
                let at = |name: &str| format!("{label} {name}");
                add(at("p50"), p50.map(time_ns).unwrap_or_default(), false);
                add(at("p99"), p99.map(time_ns).unwrap_or_default(), false);
            }
            _ => add(
                label.to_owned(),
                shown(figure.unit, &figure.value),
                is_bad(figure.def, &figure.value),
            ),
        }
    }
    list
}

/// Returns the request of the plan in one line; `None` if it needs more lines.
pub(crate) fn asked(report: &Report) -> Option<String> {
    let lines = plan::lines(&report.plan);
    let asked = match lines.as_slice() {
        [one] => one.trim_start().to_owned(),
        [one, two] => format!("{}: {}", one.trim_start(), two.trim_start()),
        _ => return None,
    };
    match report.merged.first() {
        None => Some(asked),
        Some(first) => Some(format!("{asked} (plan of {})", first.name)),
    }
}

/// The runs of a merged report: `2 runs: a (pass), b (fail)`.
pub(crate) fn merged(report: &Report) -> Option<String> {
    let runs = report.merged.iter();
    let runs = runs.map(|run| format!("{} ({})", run.name, verdict(run.verdict)));
    let runs: Vec<String> = runs.collect();
    (!runs.is_empty()).then(|| format!("{} runs: {}", runs.len(), runs.join(", ")))
}

/// The measured target: the URL of an HTTP load, the server of a socket test, or the interfaces; of a merged report the
/// number of runs.
pub(crate) fn target(report: &Report) -> String {
    if !report.merged.is_empty() {
        return format!("{} runs merged", report.merged.len());
    }
    plan_target(&report.plan)
}

/// Target of a plan: the URL of an HTTP load, the server of a socket test, or the interfaces.
#[must_use]
pub fn plan_target(plan: &Plan) -> String {
    let urls = plan.http_jobs.iter().map(|job| job.url.to_string());
    let servers = plan.sockets.iter().map(|job| job.control.server.clone());
    let mut names: Vec<String> = urls.chain(servers).collect();
    if names.is_empty() {
        names = plan.locators().map(ToString::to_string).collect();
    }
    names.dedup();
    match names.len() {
        0..=2 => names.join(" and "),
        n => format!("{} and {} more", names[0], n - 1),
    }
}

/// Returns a command to try next.
pub(crate) fn next(report: &Report) -> Option<String> {
    let totals = &report.totals;
    let ports: Vec<String> = (report.plan.ports.iter())
        .map(|port| port.locator.to_string())
        .collect();
    let [tx, rx] = ports.as_slice() else {
        return None;
    };
    let is_interface = |port: &String| !["memory:", "file:"].iter().any(|k| port.starts_with(k));
    let is_trial = report.plan.procedure.is_none() && totals.received_frames.is_some();
    if !is_trial || !is_interface(tx) || !is_interface(rx) {
        return None;
    }
    let limit = report.limited_by.to_string();
    let is_by = |limiter: Limiter| limit.starts_with(limiter.words());
    let interface = |port: &str| port.split_once(':').map_or(port, |(_, own)| own).to_owned();
    let search = format!("wirebench bench ndr --tx {tx} --rx {rx}: the highest rate without loss");
    match (report.verdict, totals.received_frames, totals.lost_frames) {
        (Verdict::Incomplete, ..) => None,
        (_, Some(0), _) => Some(format!(
            "wirebench stat --path {},{} during a run: where the frames end",
            interface(tx),
            interface(rx)
        )),
        (Verdict::Invalid, ..) if is_by(Limiter::Tester) || is_by(Limiter::PerhapsTester) => {
            Some(format!(
                "wirebench doctor {}: what slows this host down",
                interface(tx)
            ))
        }
        (Verdict::Pass | Verdict::Completed, _, Some(0)) if is_by(Limiter::Plan) => Some(search),
        (_, _, Some(1..)) if is_by(Limiter::Path) || is_by(Limiter::Device) => Some(search),
        _ => None,
    }
}
