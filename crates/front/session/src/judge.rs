//! The verdict of a report that several hosts made together.

use std::collections::BTreeMap;

use wb_engine::{
    End,
    criteria::{Judged, Offered, Shortfall},
    lateness::{Trial, consider},
    verdict::{Evidence, verdict},
};
use wb_model::{
    Criterion, Report,
    criteria::statistics,
    fleet::HostState,
    peer::PairClock,
    report::{CriterionReport, JobReport},
};

/// Judges a report by the rule for all runs. Its criteria must have their measured values. `cut_short` is the reason why
/// a host ended before its planned end, `void` the reason why a host without an end of a direction measured nothing.
pub fn judge(report: &mut Report, end: &End, cut_short: Option<String>, void: Option<String>) {
    let criteria = report.plan.criteria.iter().zip(&report.criteria);
    let judged: Vec<Judged> = criteria
        .map(|(criterion, result)| {
            let is_meant = |name: &str| criterion.job.as_deref() == Some(name);
            let job = report.jobs.iter().find(|job| is_meant(&job.name));
            let outages = job.map_or(report.outages, |job| job.outages);
            Judged {
                criterion: criterion.clone(),
                report: result.clone(),
                totals: job.map_or(report.totals, |job| job.totals),
                longest_outage_ns: outages.map(|outages| outages.outage_ns),
            }
        })
        .collect();
    let offered = report.jobs.iter().filter_map(|job| {
        Some(Offered {
            job: &job.name,
            intended: job.totals.intended_frames?,
            offered: job.totals.offered_frames?,
        })
    });
    let short = Shortfall::of(&report.plan, offered);
    let unclear = unclear(report, &judged);
    let decided: Vec<Judged> = judged
        .iter()
        .filter(|judged| !unclear.contains_key(&judged.report.criterion))
        .cloned()
        .collect();
    let trial = Trial {
        judged: &decided,
        totals: &report.totals,
        intended: report.totals.intended_frames,
        offered: report.totals.offered_frames.unwrap_or(0),
        short: short.as_ref(),
        rates_over_ns: None,
    };
    let lateness = consider(&trial, report.lateness.all);
    let missing = report
        .hosts
        .iter()
        .filter(|host| host.state != HostState::Complete);
    let missing: Vec<String> = missing.map(|host| host.account()).collect();
    let unknown = report.jobs.iter().find_map(|job| {
        let why = job.incomplete.as_ref()?;
        Some(format!("{}: {why}", job.name))
    });
    let sections = report.sections();
    let wrong = sections
        .iter()
        .find_map(|section| Some((section, section.wrong().next()?)));
    let defect = wrong
        .map(|(section, sum)| format!("{}: the parts of {} do not add up", section.job, sum.whole));
    let nothing = report.jobs.iter().find(|job| {
        let totals = &job.totals;
        totals.offered_frames.unwrap_or(0) > 0 && totals.received_frames == Some(0)
    });
    let evidence = Evidence {
        incomplete: match missing.is_empty() {
            true => cut_short.or(unknown),
            false => Some(missing.join("; ")),
        },
        defect: defect
            .or_else(|| (!report.totals.adds_up()).then(|| "the totals do not add up".to_owned())),
        excuse: excuse(&lateness.may_have_caused, &unclear, &decided),
        nothing: nothing.map(|job| format!("{}: nothing arrived", job.name)),
        not_offered: short
            .map(|short| short.because(&report.limited_by.to_string()))
            .or(void),
        ..Evidence::default()
    };
    let results: Vec<CriterionReport> = judged.iter().map(|judged| judged.report.clone()).collect();
    drop(sections);
    let (verdict, reason) = verdict(end, &results, evidence);
    (report.verdict, report.reason) = (verdict, reason);
    report.lateness = lateness;
}

/// Criteria of one-way latencies that the error or a step of two clocks decides, and the reason, by their texts.
#[allow(clippy::cast_precision_loss)]
fn unclear(report: &Report, judged: &[Judged]) -> BTreeMap<String, String> {
    let reason = |judged: &Judged| {
        let (criterion, measured) = (&judged.criterion, judged.report.measured?);
        let distance = (measured - criterion.limit.as_f64()).abs();
        if let Some(why) = clocks(report, criterion).find_map(PairClock::stepped) {
            return Some(why);
        }
        let worst = clocks(report, criterion).max_by_key(|clock| clock.error_ns)?;
        (distance < worst.error_ns as f64).then(|| worst.account())
    };
    let all = judged.iter();
    all.filter_map(|judged| Some((judged.report.criterion.clone(), reason(judged)?)))
        .collect()
}

/// Clocks on which the value of a criterion depends. A criterion of one-way latency depends on the clocks of both hosts of
/// each direction that it covers.
fn clocks<'a>(report: &'a Report, criterion: &Criterion) -> impl Iterator<Item = &'a PairClock> {
    let is_latency = statistics().any(|name| name == criterion.metric);
    let is_only = report.plan.traffic.len() == 1;
    // A job in both directions has a result for each.
    let is_meant = move |job: &&JobReport| match &criterion.job {
        Some(name) if !is_only => {
            let way = job.name.strip_prefix(name.as_str());
            way.is_some_and(|way| ["", " forward", " back"].contains(&way))
        }
        _ => true,
    };
    let jobs = report.jobs.iter().filter(move |_| is_latency);
    jobs.filter(is_meant).filter_map(|job| job.clock.as_ref())
}

/// Reason why the run says nothing about the device. `late` is the reason why the tester was late, for the criteria that
/// are decided.
fn excuse(
    late: &Option<String>,
    unclear: &BTreeMap<String, String>,
    decided: &[Judged],
) -> Option<String> {
    let has_failed = decided.iter().any(|judged| !judged.report.held);
    if unclear.is_empty() || has_failed && late.is_none() {
        return late.clone();
    }
    let mut reasons: Vec<&str> = unclear.values().map(String::as_str).collect();
    reasons.dedup();
    reasons.extend(late.as_deref());
    Some(reasons.join("; "))
}
