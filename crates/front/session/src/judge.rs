//! The verdict of a report that several hosts made together.

use wb_engine::{
    End,
    criteria::{Judged, Offered, Shortfall},
    lateness::{Trial, consider},
    verdict::{Evidence, verdict},
};
use wb_model::{Report, fleet::HostState, report::CriterionReport};

/// Judges a report by the rule for all runs. Its criteria must have their measured values.
pub fn judge(report: &mut Report, end: &End) {
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
    let trial = Trial {
        judged: &judged,
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
            true => unknown,
            false => Some(missing.join("; ")),
        },
        defect: defect
            .or_else(|| (!report.totals.adds_up()).then(|| "the totals do not add up".to_owned())),
        excuse: lateness.may_have_caused.clone(),
        nothing: nothing.map(|job| format!("{}: nothing arrived", job.name)),
        not_offered: short.map(|short| short.because(&report.limited_by.to_string())),
        ..Evidence::default()
    };
    let results: Vec<CriterionReport> = judged.iter().map(|judged| judged.report.clone()).collect();
    drop(sections);
    let (verdict, reason) = verdict(end, &results, evidence);
    (report.verdict, report.reason) = (verdict, reason);
    report.lateness = lateness;
}
