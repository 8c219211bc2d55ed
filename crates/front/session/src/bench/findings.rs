//! What a benchmark found, as criteria and the verdict see it: limits of a load balancer and tests of a suite alike.

use std::collections::BTreeSet;

use wb_model::{
    Criterion, Plan, Verdict,
    bench::{BenchResult, LbLimit, LbMetric, SuiteResult, SuiteTest},
    criteria::{Bound, Metric},
    plan::Procedure,
    report::CriterionReport,
};

use crate::{End, criteria};

/// One result.
struct Finding<'a> {
    result: &'a BenchResult,
    /// What a verdict calls it: `cps`, `throughput 64`.
    title: String,
    /// Whether it is about a limit at all.
    has_limit: bool,
    limited_by: LbLimit,
    /// Why the tester is to blame that there is no limit.
    late: Option<&'a str>,
    /// What it was to show and did not.
    failed: bool,
    /// Why it says nothing.
    silent: Option<&'a str>,
}

impl<'a> Finding<'a> {
    fn of(result: &'a BenchResult) -> Self {
        match result {
            BenchResult::Lb(lb) => Self {
                result,
                title: lb.metric.name().to_owned(),
                has_limit: true,
                limited_by: lb.limited_by,
                late: lb.late.as_deref(),
                failed: lb.limit.is_none(),
                silent: None,
            },
            BenchResult::Suite(suite) => Self {
                result,
                title: title(suite),
                has_limit: matches!(suite.test, SuiteTest::Throughput | SuiteTest::Ndr),
                limited_by: suite.limited_by,
                late: None,
                failed: failed(suite),
                silent: suite.not_measured.as_deref(),
            },
        }
    }

    /// What it has for a criterion; `None`: the criterion is not about it.
    fn figure(&self, criterion: &Criterion) -> Option<Option<f64>> {
        match self.result {
            BenchResult::Lb(lb) => {
                let is_meant = match (&criterion.metric, lb.metric) {
                    (Metric::Cps, LbMetric::Cps) | (Metric::Bps, LbMetric::Bps) => true,
                    (Metric::Limit(metric), of) => *metric == of,
                    _ => false,
                };
                is_meant.then_some(lb.limit)
            }
            BenchResult::Suite(suite) => {
                let size = criterion.job.as_ref();
                let is_meant = size.is_none_or(|size| *size == suite.size);
                let is_meant = is_meant && suite.is_about(&criterion.metric);
                is_meant.then(|| suite.figure(&criterion.metric))
            }
        }
    }
}

fn title(suite: &SuiteResult) -> String {
    let name = suite.goal.as_deref().unwrap_or(suite.test.name());
    match suite.size.as_str() {
        "" => name.to_owned(),
        size => format!("{name} {size}"),
    }
}

/// Whether a test found that the device does not do what it should.
fn failed(suite: &SuiteResult) -> bool {
    match suite.test {
        SuiteTest::Throughput | SuiteTest::Ndr => {
            suite.limit.is_none() && suite.limited_by == LbLimit::Device
        }
        SuiteTest::Y1564 => suite.steps.iter().any(|step| !step.passed),
        _ => false,
    }
}

/// All results of a benchmark.
pub(super) struct Findings<'a> {
    all: Vec<Finding<'a>>,
    device: &'a str,
}

impl<'a> Findings<'a> {
    pub(super) fn of(plan: &'a Plan, results: &'a [BenchResult]) -> Self {
        Self {
            all: results.iter().map(Finding::of).collect(),
            device: match &plan.procedure {
                Some(Procedure::Lb(lb)) => &lb.device.name,
                Some(Procedure::Suite(suite)) => &suite.device.name,
                None => "the device",
            },
        }
    }

    /// How each criterion came out, and why one that did not hold says nothing of the device. Of several frame
    /// sizes the worst result decides.
    pub(super) fn judge(&self, criteria: &[Criterion]) -> Vec<(CriterionReport, Option<String>)> {
        criteria.iter().map(|c| self.judge_one(c)).collect()
    }

    fn judge_one(&self, criterion: &Criterion) -> (CriterionReport, Option<String>) {
        let mut meant: Vec<(&Finding<'_>, Option<f64>)> = Vec::new();
        for finding in &self.all {
            meant.extend(finding.figure(criterion).map(|value| (finding, value)));
        }
        let values: Option<Vec<f64>> = meant.iter().map(|(_, value)| *value).collect();
        let worst = values.and_then(|values| {
            values.into_iter().reduce(|a, b| match criterion.bound {
                Bound::AtLeast => a.min(b),
                Bound::AtMost => a.max(b),
            })
        });
        let report = criteria::report(criterion, worst);
        let not_met = meant
            .iter()
            .filter(|(_, value)| !value.is_some_and(|value| criterion.holds(value)));
        let mut of_others = not_met
            .filter(|(f, _)| f.late.is_some() || f.has_limit && f.limited_by != LbLimit::Device);
        let excuse = match (report.held, criterion.bound, of_others.next()) {
            (false, Bound::AtLeast, Some((finding, _))) => Some(match finding.late {
                Some(why) => format!("{criterion}: {why}"),
                None => format!(
                    "{criterion}: the device was not the limit: {}",
                    limited_by(std::iter::once(*finding))
                ),
            }),
            _ => None,
        };
        (report, excuse)
    }

    /// Who was the limit of what.
    pub(super) fn limited_by(&self) -> String {
        limited_by(self.all.iter())
    }

    /// The verdict where no criteria were given, and why.
    pub(super) fn verdict(&self, end: &End) -> (Verdict, String) {
        let device = self.device;
        let names = |which: &dyn Fn(&&Finding<'_>) -> bool| -> Vec<&str> {
            let all = self.all.iter().filter(which);
            all.map(|f| f.title.as_str()).collect()
        };
        let failed = names(&|f| f.failed);
        let late = names(&|f| f.late.is_some());
        let silent = self.all.iter().filter(|f| f.silent.is_some()).count();
        let limits: Vec<_> = self.all.iter().filter(|f| f.has_limit).collect();
        let by = |limit: LbLimit| limits.iter().filter(|f| f.limited_by == limit).count();
        match end {
            End::Fault(text) => (Verdict::Invalid, format!("ended by a fault: {text}")),
            End::Signal(_) => (
                Verdict::Incomplete,
                "ended early; this is what was measured until then".to_owned(),
            ),
            End::Completed if !late.is_empty() && late.len() == failed.len() => (
                Verdict::Invalid,
                format!(
                    "the tester was late, again and again; nothing is known of {device}: {}",
                    late.join(", ")
                ),
            ),
            End::Completed if !failed.is_empty() => (
                Verdict::Fail,
                match limits.is_empty() {
                    true => format!("not as promised: {}", failed.join(", ")),
                    false => format!("no load held: {}", failed.join(", ")),
                },
            ),
            End::Completed if !limits.is_empty() && by(LbLimit::Tester) == limits.len() => (
                Verdict::Invalid,
                format!("the tester was the limit of all; {device} carries at least this"),
            ),
            End::Completed if silent == self.all.len() => {
                (Verdict::Invalid, "nothing could be measured".to_owned())
            }
            End::Completed if limits.is_empty() => {
                (Verdict::Pass, "all tests were made".to_owned())
            }
            End::Completed => (
                Verdict::Pass,
                format!(
                    "{} of {} limits are those of {device}, the others at least so high",
                    by(LbLimit::Device),
                    limits.len()
                ),
            ),
        }
    }
}

fn limited_by<'f, 'r: 'f>(findings: impl Iterator<Item = &'f Finding<'r>> + Clone) -> String {
    let named = [
        (LbLimit::Device, "the device"),
        (LbLimit::Tester, "the tester"),
        (LbLimit::Plan, "the plan"),
        (LbLimit::Time, "time"),
    ];
    let parts = named.into_iter().filter_map(|(limit, name)| {
        let of_it = findings
            .clone()
            .filter(|f| f.has_limit && f.limited_by == limit);
        let titles: BTreeSet<&str> = of_it.map(|f| f.title.as_str()).collect();
        let titles: Vec<&str> = titles.into_iter().collect();
        (!titles.is_empty()).then(|| format!("{name}: {}", titles.join(", ")))
    });
    parts.collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use wb_model::load::LoadTransport;

    use super::*;
    use wb_model::bench::LbResult;

    fn result(size: u16, limit: f64, limited_by: LbLimit) -> LbResult {
        LbResult {
            metric: LbMetric::Cps,
            transport: LoadTransport::Tcp,
            size: Some(size),
            flows: None,
            unit: "cps".to_owned(),
            limit: Some(limit),
            limited_by,
            confirmed: true,
            l2_bps: None,
            beyond: None,
            reuse_s: None,
            trials: Vec::new(),
            best_trial: None,
            late: None,
        }
    }

    /// What was measured, whether it holds, and the excuse.
    fn judged(criterion: &str, results: &[LbResult]) -> (Option<f64>, bool, Option<String>) {
        let criterion = criterion.parse().expect("a criterion");
        let all: Vec<BenchResult> = results
            .iter()
            .map(|r| BenchResult::Lb(Box::new(r.clone())))
            .collect();
        let plan = Plan::default();
        let (report, excuse) = Findings::of(&plan, &all).judge(&[criterion]).remove(0);
        (report.measured, report.held, excuse)
    }

    #[test]
    fn the_worst_size_decides_a_criterion() {
        let both = [
            result(64, 5e3, LbLimit::Device),
            result(1518, 9e3, LbLimit::Device),
        ];
        assert_eq!(judged("cps>=5k", &both), (Some(5e3), true, None));
        assert_eq!(judged("cps>=6k", &both), (Some(5e3), false, None));
        assert_eq!(judged("cps<=9k", &both), (Some(9e3), true, None));
        assert_eq!(judged("cps<=8k", &both), (Some(9e3), false, None));
        // Where one size has no limit there is no worst one.
        let mut none = both.clone();
        none[1].limit = None;
        assert_eq!(judged("cps>=1", &none), (None, false, None));
        assert_eq!(judged("bps>=1", &both), (None, false, None));
    }

    #[test]
    fn a_limit_of_the_tester_excuses_the_device() {
        let mut results = [
            result(64, 5e3, LbLimit::Tester),
            result(1518, 9e3, LbLimit::Device),
        ];
        let (_, held, excuse) = judged("cps>=6k", &results);
        assert!(!held);
        let excuse = excuse.expect("an excuse");
        assert!(excuse.contains("the device was not the limit"), "{excuse}");
        assert!(excuse.contains("the tester: cps"), "{excuse}");
        // Not where the device was the limit of what does not hold.
        results
            .iter_mut()
            .for_each(|r| r.limited_by = LbLimit::Device);
        assert_eq!(judged("cps>=6k", &results).2, None);
        // A tester that was late is one, whatever was found to be the limit.
        results[0].late = Some("the tester was late".to_owned());
        let excuse = judged("cps>=6k", &results).2.expect("an excuse");
        assert!(excuse.contains("the tester was late"), "{excuse}");
        // At most so much: more was carried, whoever was the limit.
        assert_eq!(judged("cps<=4k", &results).2, None);
        assert_eq!(judged("cps>=5k", &results), (Some(5e3), true, None));
    }
}
