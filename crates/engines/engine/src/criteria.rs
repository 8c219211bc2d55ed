//! Decides if a run met its criteria: one rule for the jobs of all kinds.

use wb_model::{
    Criterion, Plan, Totals,
    criteria::{Bound, Measured},
    lateness::MISSED,
    report::CriterionReport,
};

/// Share of `part` in `whole`. A share of zero is not a measurement.
#[allow(clippy::cast_precision_loss)]
fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

/// Metric of the share of the load that was not offered.
const UNSENT: &str = "unsent";

/// A criterion and its result.
#[derive(Clone, Debug)]
pub struct Judged {
    /// The criterion.
    pub criterion: Criterion,
    /// Its result, as in reports.
    pub report: CriterionReport,
    /// Totals of the jobs that the criterion covers.
    pub totals: Totals,
    /// Longest outage of these jobs in ns, if outages are measured.
    pub longest_outage_ns: Option<u64>,
}

impl Judged {
    /// Returns true if the criterion may hold because less than intended was offered: an upper bound, unless a
    /// criterion in `all` limits the unsent share. A lower bound that was reached was reached in any case.
    pub fn is_easier_with_less(&self, all: &[Self]) -> bool {
        let Criterion { metric, bound, .. } = &self.criterion;
        let of_the_load = metric == UNSENT;
        !of_the_load && *bound == Bound::AtMost && !all.iter().any(|other| other.allows(self))
    }

    /// Returns true if this criterion limits the unsent share of the job of `other`.
    fn allows(&self, other: &Self) -> bool {
        let of = &self.criterion;
        of.metric == UNSENT && (of.job.is_none() || of.job == other.criterion.job)
    }
}

/// Load that the plan intends for a job, and the part that was offered.
#[derive(Clone, Debug)]
pub struct Offered<'a> {
    /// Name of the job.
    pub job: &'a str,
    /// Intended number of frames, connections or requests.
    pub intended: u64,
    /// Offered number of frames, connections or requests.
    pub offered: u64,
}

/// A job that offered less than 98 % of its load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shortfall {
    /// Its name, if there are several jobs.
    job: Option<String>,
    /// Intended number of frames, connections or requests.
    pub intended: u64,
    /// Offered number of frames, connections or requests.
    pub offered: u64,
}

#[allow(clippy::cast_precision_loss)]
impl Shortfall {
    /// Returns the largest shortfall that the plan does not accept, by `allow_unsent` or by a criterion of `unsent`.
    pub fn of<'a>(plan: &Plan, jobs: impl IntoIterator<Item = Offered<'a>>) -> Option<Self> {
        if plan.allow_unsent {
            return None;
        }
        let accepts = |job: &str, criterion: &Criterion| {
            let names = criterion.job.as_ref();
            criterion.metric == UNSENT && names.is_none_or(|name| name == job)
        };
        let missed = |job: &Offered<'_>| {
            let unsent = job.intended.saturating_sub(job.offered);
            share(unsent, job.intended).unwrap_or(0.0)
        };
        let jobs: Vec<Offered<'a>> = jobs.into_iter().collect();
        let several = jobs.iter().any(|job| job.job != jobs[0].job);
        let short = jobs
            .into_iter()
            .filter(|job| missed(job) > MISSED)
            .filter(|job| !plan.criteria.iter().any(|c| accepts(job.job, c)))
            .max_by(|a, b| missed(a).total_cmp(&missed(b)))?;
        Some(Self {
            job: several.then(|| short.job.to_owned()),
            intended: short.intended,
            offered: short.offered,
        })
    }

    /// Returns the reason for the verdict.
    pub fn because(&self, cause: &str) -> String {
        // Rounded as everywhere, but never to 98 %, which would be enough.
        let share = self.offered as f64 / self.intended.max(1) as f64;
        let tenths = (share * 1000.0).round().min(1000.0 * (1.0 - MISSED) - 1.0);
        let of = self
            .job
            .as_ref()
            .map_or_else(String::new, |job| format!(" of {job}"));
        format!(
            "offered {} % of the intended load{of}: {cause}",
            tenths / 10.0
        )
    }
}

/// Returns why criteria that hold say nothing about the device, if part of the sending time was lost at full speed. No
/// count shows that loss; the criteria hold only because less was offered.
pub fn held_of_less(plan: &Plan, judged: &[Judged], cause: &str) -> Option<String> {
    let easier = judged.iter().filter(|j| j.is_easier_with_less(judged));
    let spared: Vec<String> = easier.map(|j| j.report.with_value()).collect();
    (!plan.allow_unsent && !spared.is_empty()).then(|| {
        format!(
            "criteria met only because less was offered: {}; limited by {cause}",
            spared.join(", ")
        )
    })
}

/// Compares the measured value with the criterion. A criterion without a measured value does not hold.
pub fn report(criterion: &Criterion, measured: Option<f64>) -> CriterionReport {
    CriterionReport {
        criterion: criterion.to_string(),
        measured,
        held: measured.is_some_and(|value| criterion.holds(value)),
    }
}

/// Judges a run by the criteria of a plan. `jobs` returns the named job, or all jobs together.
pub fn judge<M: Measured>(plan: &Plan, mut jobs: impl FnMut(Option<&str>) -> M) -> Vec<Judged> {
    let judged = |criterion: &Criterion| {
        let jobs = jobs(criterion.job.as_deref());
        Judged {
            report: report(criterion, jobs.section().measured(&criterion.metric)),
            criterion: criterion.clone(),
            totals: jobs.totals(),
            longest_outage_ns: jobs.longest_outage_ns(),
        }
    };
    plan.criteria.iter().map(judged).collect()
}

/// Converts judged criteria into the form of reports.
pub fn reports(judged: Vec<Judged>) -> Vec<CriterionReport> {
    judged.into_iter().map(|j| j.report).collect()
}

#[cfg(test)]
mod tests {
    use wb_figures::Merge;
    use wb_model::{
        frames::Frames,
        load::{LoadJobReport, LoadPhaseReport, LoadTransport},
    };

    use super::*;

    fn judged_of(text: &str, jobs: &[LoadJobReport]) -> (Option<f64>, bool) {
        let criterion: Criterion = text.parse().expect("a criterion");
        let mut all = LoadJobReport::default();
        jobs.iter().for_each(|job| all.merge(job));
        let judged = report(&criterion, all.section().measured(&criterion.metric));
        (judged.measured, judged.held)
    }

    fn judged(text: &str, job: &LoadJobReport) -> (Option<f64>, bool) {
        judged_of(text, std::slice::from_ref(job))
    }

    #[test]
    fn what_was_sent_into_a_black_hole_was_not_carried() {
        let mut figures = Frames::default();
        (figures.rates.offered_pps, figures.rates.offered_l2_bps) = (Some(1000.0), Some(512e3));
        let measured =
            |frames: &Frames| ["pps", "bps"].map(|metric| frames.section().measured(metric));
        assert_eq!(measured(&figures), [Some(1000.0), Some(512e3)]);
        figures.totals.received_frames = Some(0);
        assert_eq!(measured(&figures), [None, None]);
    }

    #[test]
    fn what_is_open_at_the_end_has_not_held() {
        let mut job = LoadJobReport::default();
        assert_eq!(judged("failed<=100%", &job), (None, false));
        job.totals.attempted_connections = 300;
        job.totals.open_connections = 300;
        assert_eq!(judged("failed<=0.1%", &job), (Some(1.0), false));
        (job.totals.open_connections, job.totals.failed_connections) = (1, 2);
        assert_eq!(judged("failed<=1%", &job), (Some(0.01), true));
    }

    /// A UDP flow that got one answer to thousands of requests is completed.
    #[test]
    fn requests_that_were_lost_have_failed() {
        let mut job = LoadJobReport {
            transport: LoadTransport::Udp,
            ..LoadJobReport::default()
        };
        (job.totals.attempted_connections, job.totals.requests) = (10, 4000);
        job.totals.completed_connections = 10;
        (job.totals.responses, job.totals.lost_requests) = (40, 3960);
        assert_eq!(judged("failed<=10%", &job), (Some(0.99), false));
        (job.totals.responses, job.totals.lost_requests) = (3999, 1);
        assert_eq!(judged("failed<=0%", &job), (Some(0.00025), false));
        assert_eq!(judged("failed<=0.1%", &job), (Some(0.00025), true));
        (
            job.totals.completed_connections,
            job.totals.open_connections,
        ) = (9, 1);
        assert_eq!(judged("failed<=1%", &job), (Some(0.1), false));
    }

    #[test]
    fn what_tcp_asks_dilutes_no_loss() {
        let asked = |transport, requests, lost| {
            let mut job = LoadJobReport {
                transport,
                ..LoadJobReport::default()
            };
            job.totals.requests = requests;
            job.totals.lost_requests = lost;
            job
        };
        let jobs = [
            asked(LoadTransport::Tcp, 900, 0),
            asked(LoadTransport::Udp, 100, 10),
        ];
        assert_eq!(judged_of("loss<=1%", &jobs), (Some(0.1), false));
    }

    #[test]
    fn shares_of_requests() {
        let mut job = LoadJobReport {
            transport: LoadTransport::Udp,
            ..LoadJobReport::default()
        };
        job.totals.attempted_connections = 10;
        job.totals.requests = 200;
        job.totals.responses = 180;
        job.totals.error_responses = 45;
        job.totals.lost_requests = 15;
        job.totals.in_flight_requests = 5;
        job.totals.duplicate_responses = 2;
        assert_eq!(judged("errors<=25%", &job), (Some(0.25), true));
        assert_eq!(judged("loss<=9%", &job), (Some(0.1), false));
        assert_eq!(judged("duplicates<=1%", &job), (Some(0.01), true));
        assert_eq!(judged("unsent<=0%", &job), (Some(0.0), true));
        job.unsent_requests = 200;
        job.unsent_connections = 90;
        assert_eq!(judged("unsent<=50%", &job), (Some(0.9), false));
        job.totals.unawaited_requests = 200;
        assert_eq!(judged("loss<=1%", &job), (None, false));
    }

    #[test]
    fn segments_that_were_sent_again_are_judged_together() {
        let mut job = LoadJobReport::default();
        for (name, n) in [
            ("syn_again", 1),
            ("data_again", 2),
            ("fast_again", 2),
            ("fin_again", 3),
        ] {
            job.counters.insert(name.to_owned(), n);
        }
        assert_eq!(judged("retransmissions<=6", &job), (Some(6.0), true));
        let jobs = [job.clone(), job];
        assert_eq!(judged_of("retransmissions<=6", &jobs), (Some(12.0), false));
    }

    #[test]
    fn rates_are_those_of_the_duration() {
        let phase = |phase: &str, established, responses, open| {
            let mut report = LoadPhaseReport {
                phase: phase.to_owned(),
                from_ns: 1_000_000_000,
                to_ns: 3_000_000_000,
                ..LoadPhaseReport::default()
            };
            report.totals.established_connections = established;
            report.totals.responses = responses;
            report.totals.open_connections = open;
            report
        };
        let job = LoadJobReport {
            phases: vec![phase("ramp", 7, 7, 7), phase("steady", 4000, 5000, 40)],
            ..LoadJobReport::default()
        };
        let jobs = [job.clone(), job];
        assert_eq!(judged_of("cps>=4000", &jobs), (Some(4000.0), true));
        assert_eq!(judged_of("cps>=4001", &jobs), (Some(4000.0), false));
        assert_eq!(judged_of("rps<=5000", &jobs), (Some(5000.0), true));
        assert_eq!(judged_of("open>=81", &jobs), (Some(80.0), false));
        assert_eq!(judged("cps>=0", &LoadJobReport::default()), (None, false));
    }

    fn plan(criteria: &[&str], allow_unsent: bool) -> Plan {
        Plan {
            allow_unsent,
            criteria: criteria.iter().map(|c| c.parse().unwrap()).collect(),
            ..Plan::default()
        }
    }

    #[test]
    fn less_than_98_percent_of_the_load_is_a_shortfall() {
        let said = |criteria: &[&str], allow: bool, jobs: &[(&str, u64)]| {
            let offered = jobs.iter().map(|&(job, offered)| Offered {
                job,
                intended: 1000,
                offered,
            });
            let short = Shortfall::of(&plan(criteria, allow), offered)?;
            Some(short.because("the link"))
        };
        let one = |offered| vec![("one", offered)];
        assert_eq!(
            said(&[], false, &one(590)).as_deref(),
            Some("offered 59 % of the intended load: the link")
        );
        assert_eq!(
            said(&["pps>=300"], false, &one(979)).as_deref(),
            Some("offered 97.9 % of the intended load: the link")
        );
        for (offered, intended, percent) in [(6988, 10_000, "69.9"), (97_999, 100_000, "97.9")] {
            let short = Shortfall {
                job: None,
                intended,
                offered,
            };
            let said = short.because("the link");
            assert!(
                said.starts_with(&format!("offered {percent} % of")),
                "{said}"
            );
        }
        assert_eq!(said(&[], false, &one(980)), None);
        assert_eq!(said(&[], true, &one(360)), None);
        assert_eq!(said(&["loss<=10%", "unsent<=70%"], false, &one(360)), None);
        assert_eq!(said(&[], false, &[]), None);
        // Each job is judged separately: a limit for the unsent share of one job does not cover another.
        let two = [("one", 360), ("other", 1000)];
        assert_eq!(
            said(&["other.unsent<=70%"], false, &two).as_deref(),
            Some("offered 36 % of the intended load of one: the link")
        );
        assert_eq!(said(&["one.unsent<=70%"], false, &two), None);
    }

    #[test]
    fn at_full_speed_a_link_that_was_down_spares_criteria() {
        let said = |criteria: &[&str], allow: bool| {
            let plan = plan(criteria, allow);
            let judged = judge(&plan, |_| Frames::default());
            held_of_less(&plan, &judged, "the link")
        };
        assert_eq!(
            said(&["loss<=0%", "pps>=1"], false).as_deref(),
            Some(
                "criteria met only because less was offered: loss<=0% (no data); limited by the link"
            )
        );
        for criteria in [&[][..], &["pps>=1"], &["loss<=0%", "unsent<=70%"]] {
            assert_eq!(said(criteria, false), None, "{criteria:?}");
        }
        assert_eq!(said(&["loss<=0%"], true), None);
    }

    #[test]
    fn what_a_job_did_not_measure_does_not_hold() {
        let frames = Frames::default();
        for text in [
            "loss<=100%",
            "p99<=1s",
            "pps>=0",
            "tps>=0",
            "probe.x<=9",
            "cc>=0",
        ] {
            let criterion: Criterion = text.parse().unwrap();
            let judged = report(&criterion, frames.section().measured(&criterion.metric));
            assert_eq!((judged.measured, judged.held), (None, false), "{text}");
        }
    }
}
