//! Verdict of merged runs.

use wb_figures::Merge as _;
use wb_measure::SignedHistogram;

use super::{
    Part,
    values::{Values, add},
};
use crate::{
    Criterion, JobKind, Verdict, counted,
    criteria::Measured,
    frames::Frames,
    http::HttpJobReport,
    load::LoadJobReport,
    report::{CriterionReport, JobReport, Rates, Report},
};

/// Judges the criteria again, by the results of all runs, and sets the verdict.
///
/// A run that was incomplete or invalid makes the result so. Otherwise the merged figures decide.
pub(super) fn judge(merged: &mut Report, parts: &[Part], values: &Values) {
    let criteria = merged.plan.criteria.iter().map(|criterion| {
        let measured = measured(merged, values, criterion);
        CriterionReport {
            criterion: criterion.to_string(),
            measured,
            held: measured.is_some_and(|value| criterion.holds(value)),
        }
    });
    merged.criteria = criteria.collect();
    (merged.verdict, merged.reason) = verdict(merged, parts);
    let failed = parts
        .iter()
        .filter(|part| part.report.verdict == Verdict::Fail);
    let failed =
        failed.map(|part| format!("{} failed on its own: {}", part.name, part.report.reason));
    merged.warnings.extend(failed);
}

fn verdict(merged: &Report, parts: &[Part]) -> (Verdict, String) {
    for verdict in [Verdict::Incomplete, Verdict::Invalid] {
        let of_this = parts.iter().filter(|part| part.report.verdict == verdict);
        let reasons: Vec<String> = of_this
            .map(|part| format!("{}: {}", part.name, part.report.reason))
            .collect();
        if !reasons.is_empty() {
            return (verdict, reasons.join("; "));
        }
    }
    let sections = merged.sections();
    let wrong = sections
        .iter()
        .find_map(|section| Some((section, section.wrong().next()?)));
    if let Some((section, sum)) = wrong {
        return (
            Verdict::Invalid,
            format!("{}: the parts of {} do not add up", section.job, sum.whole),
        );
    }
    if !merged.totals.adds_up() {
        return (Verdict::Invalid, "the totals do not add up".to_owned());
    }
    let unmet = |is_measured: bool| {
        let unmet = merged
            .criteria
            .iter()
            .filter(|c| !c.held && c.measured.is_some() == is_measured);
        let names: Vec<String> = unmet.map(CriterionReport::with_value).collect();
        (!names.is_empty()).then(|| names.join(", "))
    };
    if let Some(unmet) = unmet(true) {
        let unmet = format!("criteria not met: {unmet}");
        return match late(merged, parts) {
            Some(excuse) => (Verdict::Invalid, format!("{excuse}; {unmet}")),
            None => (Verdict::Fail, unmet),
        };
    }
    if let Some(unknown) = unmet(false) {
        return (
            Verdict::Invalid,
            format!("criteria without a value: {unknown}"),
        );
    }
    let captures = merged.capture.iter().chain(merged.captures.values());
    let lost = captures
        .map(|capture| capture.lost())
        .fold(0, u64::saturating_add);
    match merged.criteria.is_empty() {
        true if lost > 0 => (
            Verdict::Fail,
            counted(lost, "frame was lost", "frames were lost"),
        ),
        true => (Verdict::Completed, "no criteria were set".to_owned()),
        false => (Verdict::Pass, "all criteria met".to_owned()),
    }
}

/// Returns why testers may have caused the failure of criteria which each run on its own met.
fn late(merged: &Report, parts: &[Part]) -> Option<String> {
    let lateness = &merged.lateness.all;
    let has_failed = |name: &str| {
        let criteria = parts.iter().flat_map(|part| &part.report.criteria);
        criteria.clone().any(|c| c.criterion == name && !c.held)
    };
    let mut unmet = merged.criteria.iter().filter(|c| !c.held);
    let is_new = !unmet.any(|c| has_failed(&c.criterion));
    // A stall is an excuse only for what it delayed; for an outage it is one on its own.
    let delayed = [
        lateness.late_departures,
        lateness.missed_departures,
        lateness.late_reads,
        lateness.dropped_reads,
        lateness.exposed_connections,
    ];
    let of_outages = |c: &CriterionReport| c.criterion.contains("outage");
    let is_of_outages = merged.criteria.iter().any(|c| !c.held && of_outages(c));
    let was_late = delayed.iter().any(|n| *n > 0) || (is_of_outages && lateness.stalls > 0);
    (is_new && was_late).then(|| {
        format!(
            "each run met the criteria, and testers were late: {}",
            lateness.account()
        )
    })
}

/// Value of a criterion, from the results of the jobs that it names. Of several captures, that of the first one that
/// does not meet it.
fn measured(report: &Report, values: &Values, criterion: &Criterion) -> Option<f64> {
    let is_meant = |name: &str| criterion.job.as_ref().is_none_or(|job| job == name);
    let metric = &criterion.metric;
    match report.plan.judges(criterion).ok()? {
        JobKind::Traffic | JobKind::Devices => {
            frames(report, values, criterion).section().measured(metric)
        }
        JobKind::Load => {
            let load = report.load.as_ref()?;
            let is_meant = |job: &&LoadJobReport| match &criterion.job {
                Some(name) => job.name == *name,
                None => job.end == load.shown(),
            };
            let mut all = LoadJobReport::default();
            load.jobs
                .iter()
                .filter(is_meant)
                .for_each(|job| all.merge(job));
            all.section().measured(metric)
        }
        JobKind::Http => {
            let jobs = report.http.iter().flat_map(|http| &http.jobs);
            let mut all = HttpJobReport::default();
            jobs.filter(|job| is_meant(&job.name))
                .for_each(|job| all.merge(job));
            all.section().measured(metric)
        }
        JobKind::Capture => {
            let named = report.captures.iter().filter(|(name, _)| is_meant(name));
            let all = report.capture.iter().chain(named.map(|(_, one)| one));
            let measured: Vec<Option<f64>> =
                all.map(|one| one.section().measured(metric)).collect();
            let failed = measured
                .iter()
                .find(|value| !value.is_some_and(|value| criterion.holds(value)));
            *failed.or(measured.first())?
        }
        JobKind::Socket | JobKind::Probe | JobKind::Bench => None,
    }
}

/// Frames of the jobs that a criterion names; of all jobs if it names none.
fn frames(report: &Report, values: &Values, criterion: &Criterion) -> Frames {
    let Some(name) = &criterion.job else {
        return Frames {
            totals: report.totals,
            rates: report.rates,
            latency_ns: report.latency_ns,
            outages: report.outages,
            transactions_per_second: None,
        };
    };
    let names = report.plan.job_names(JobKind::Traffic);
    // In results, a single job without a name has that of its kind.
    let name = match &report.plan.traffic[..] {
        [only] if only.name.is_empty() && names.contains(name) => JobKind::Traffic.name(),
        _ => name,
    };
    // A job in both directions has a result for each.
    let is_meant = |job: &&JobReport| {
        let way = job.name.strip_prefix(name);
        way.is_some_and(|way| ["", " forward", " back"].contains(&way))
    };
    let jobs: Vec<&JobReport> = report.jobs.iter().filter(is_meant).collect();
    let mut all = Frames::default();
    let mut latency = SignedHistogram::new();
    for job in &jobs {
        all.totals = all.totals.plus(&job.totals);
        add(&mut all.latency_ns, job.latency_ns);
        if let Some(values) = values.get(&job.name, "latency_ns") {
            latency.merge(values);
        }
        all.outages.merge(&job.outages);
    }
    if latency.count() == all.latency_ns.samples {
        all.latency_ns = latency.summary();
    }
    all.rates = Rates::sum(jobs.iter().map(|job| job.rates));
    all
}
