//! Results of a benchmark for criteria and the verdict.

use std::collections::BTreeSet;

use wb_engine::criteria;
use wb_model::{
    Criterion, LimitedBy, Limiter, Plan, Verdict,
    bench::{LbLimit, SuiteResult},
    counted,
    criteria::Bound,
    plan::Procedure,
    report::CriterionReport,
};

/// One result.
struct Finding<'a> {
    result: &'a SuiteResult,
    /// Name in the verdict: `cps`, `throughput 64`.
    title: String,
    /// Cause of the limit; `None` if the result is not about a limit.
    limited_by: Option<LbLimit>,
    /// True if the test did not show what it must show.
    failed: bool,
    /// Reason why the result says nothing about the device.
    silent: Option<&'a str>,
    /// True if the plan asks for this test; other tests run because tests need their results.
    asked: bool,
}

impl<'a> Finding<'a> {
    fn of(result: &'a SuiteResult) -> Self {
        Self {
            result,
            title: title(result),
            limited_by: result.limited_by.filter(|_| result.test.finds_limit()),
            failed: result.has_failed(),
            silent: result.not_measured.as_deref(),
            asked: true,
        }
    }

    /// Returns true if no load held because of the device. The device is then also the cause of what other tests could
    /// not measure.
    fn none_held(&self) -> bool {
        self.failed && self.limited_by.is_some()
    }

    /// Value for a criterion; `None` if the criterion is not about this result.
    fn figure(&self, criterion: &Criterion) -> Option<Option<f64>> {
        let size = criterion.job.as_ref();
        let is_meant = size.is_none_or(|size| *size == self.result.size);
        let is_meant = is_meant && self.result.is_about(&criterion.metric);
        is_meant.then(|| self.result.figure(criterion))
    }
}

fn title(suite: &SuiteResult) -> String {
    let name = suite.goal.as_deref().unwrap_or(suite.name());
    let burst = suite.burst.as_ref();
    let burst = burst.map_or_else(String::new, |b| format!(" in bursts of {}", b.frames));
    // Names the service if there are several.
    let services = suite.services.iter().filter(|_| suite.services.len() > 1);
    let failed = services.filter(|own| own.verdict == Verdict::Fail);
    let failed: Vec<&str> = failed.map(|own| own.service.as_str()).collect();
    let more = match failed.as_slice() {
        [] => burst,
        all => format!(" ({})", all.join(", ")),
    };
    match suite.size.as_str() {
        "" => format!("{name}{more}"),
        size => format!("{name} {size}{more}"),
    }
}

/// All results of a benchmark.
pub(super) struct Findings<'a> {
    all: Vec<Finding<'a>>,
    device: &'a str,
}

impl<'a> Findings<'a> {
    pub(super) fn of(plan: &'a Plan, results: &'a [SuiteResult]) -> Self {
        let asked = |result: &SuiteResult| match &plan.procedure {
            Some(Procedure::Suite(suite)) => suite.tests.contains(&result.test),
            _ => true,
        };
        let finding = |result| Finding {
            asked: asked(result),
            ..Finding::of(result)
        };
        Self {
            all: results.iter().map(finding).collect(),
            device: match &plan.procedure {
                Some(Procedure::Lb(lb)) => &lb.device.name,
                Some(Procedure::Suite(suite)) => &suite.device.name,
                None => "the device",
            },
        }
    }

    /// Judges each criterion and returns, for each one that failed, why the failure says nothing about the device. The
    /// worst result of several frame sizes decides.
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
        // One failure without an excuse is enough.
        let excuses: Option<Vec<String>> = not_met
            .map(|(f, value)| self.excuse(f, *value, criterion))
            .collect();
        let excuse = excuses
            .and_then(|excuses| excuses.into_iter().next())
            .filter(|_| !report.held);
        (report, excuse)
    }

    /// Returns why a result that does not meet a criterion says nothing against the device.
    fn excuse(
        &self,
        finding: &Finding<'_>,
        value: Option<f64>,
        criterion: &Criterion,
    ) -> Option<String> {
        let is_limit = finding.limited_by.is_some_and(|by| by != LbLimit::Device);
        match (finding.result.late(), finding.silent) {
            (Some(why), _) if criterion.bound == Bound::AtLeast => Some(why.to_owned()),
            (_, Some(why)) => {
                let of_size = |f: &&Finding<'_>| f.result.size == finding.result.size;
                let none_held = self.all.iter().filter(of_size).any(Finding::none_held);
                (!none_held).then(|| format!("{} was not measured: {why}", finding.title))
            }
            _ if is_limit && criterion.bound == Bound::AtLeast => Some(format!(
                "the device was not the limit: {}",
                limited_by(std::iter::once(finding))
            )),
            _ if value.is_none() && finding.result.is_partly_void() => {
                let known = finding.result.known(criterion);
                let holds = known.into_iter().all(|value| criterion.holds(value));
                holds.then(|| format!("trials of {} are void", finding.title))
            }
            _ => None,
        }
    }

    /// Returns which component limited which results.
    pub(super) fn limited_by(&self) -> LimitedBy {
        match self.nothing_arrived() {
            Some(why) => Limiter::Path.because(why).into(),
            None => limited_by(self.all.iter()),
        }
    }

    /// Returns why the benchmark says nothing about the device: nothing came through at any load.
    pub(super) fn nothing_arrived(&self) -> Option<String> {
        let carried = self.all.iter().map(|f| f.result.carried());
        let (sent, arrived) = carried.fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
        (sent > 0 && arrived == 0).then(|| {
            let sent = counted(sent, "frame", "frames");
            format!("nothing arrived at any load: {sent} sent, 0 received")
        })
    }

    /// Demands of the tests themselves, which decide if no criteria were set.
    pub(super) fn own(&self) -> TestOutcome {
        let device = self.device;
        let names = |which: &dyn Fn(&&Finding<'_>) -> bool| -> Vec<&str> {
            let all = self.all.iter().filter(which);
            all.map(|f| f.title.as_str()).collect()
        };
        let failed = names(&|f| f.failed);
        let late = names(&|f| f.result.late().is_some());
        let void = names(&|f| f.result.is_unjudged());
        let mut asked = self.all.iter().filter(|f| f.asked);
        let limits: Vec<_> = self.all.iter().filter(|f| f.limited_by.is_some()).collect();
        let by = |limit: LbLimit| {
            limits
                .iter()
                .filter(|f| f.limited_by == Some(limit))
                .count()
        };
        let nothing = |why: String| TestOutcome {
            nothing: Some(why),
            ..TestOutcome::default()
        };
        if let Some(why) = self.nothing_arrived() {
            return nothing(why);
        }
        if !late.is_empty() && late.len() == failed.len() {
            return nothing(format!(
                "the tester was late in every failed test, so the results do not describe {device}: {}",
                late.join(", ")
            ));
        }
        if !failed.is_empty() {
            let what = [("no load passed", true), ("tests failed", false)]
                .into_iter()
                .map(|(what, is_limit)| {
                    (
                        what,
                        names(&|f| f.failed && f.limited_by.is_some() == is_limit),
                    )
                })
                .filter(|(_, titles)| !titles.is_empty())
                .map(|(what, titles)| format!("{what}: {}", titles.join(", ")))
                .collect::<Vec<_>>();
            return TestOutcome {
                broken: Some(what.join("; ")),
                ..TestOutcome::default()
            };
        }
        if !void.is_empty() {
            return nothing(format!("no valid trials: {}", void.join(", ")));
        }
        if !limits.is_empty() && by(LbLimit::Tester) == limits.len() {
            return nothing(format!(
                "tester-limited: every result is a lower bound for {device}"
            ));
        }
        if asked.all(|f| f.silent.is_some()) {
            let first = self.all.iter().find(|f| f.asked);
            let why =
                first.and_then(|f| Some(format!("{} was not measured: {}", f.title, f.silent?)));
            return nothing(why.unwrap_or_else(|| "nothing could be measured".to_owned()));
        }
        TestOutcome {
            has_goals: (self.all.iter()).any(|f| f.result.test.def().has_services),
            found: Some(match (by(LbLimit::Device), limits.len()) {
                (_, 0) => "all tests completed".to_owned(),
                (0, 1) => format!("no limit of {device} found: the result is a lower bound"),
                (0, all) => {
                    format!("no limit of {device} found: all {all} results are lower bounds")
                }
                (1, 1) => format!("limit of {device} found"),
                (own, all) if own == all => format!("limit of {device} found in all {all} results"),
                (own, all) => {
                    let others = match all - own {
                        1 => "the other is a lower bound",
                        _ => "the others are lower bounds",
                    };
                    format!("limit of {device} found in {own} of {all} results; {others}")
                }
            }),
            ..TestOutcome::default()
        }
    }
}

/// Outcome of the tests of a benchmark by their own rules.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct TestOutcome {
    /// Tests that failed.
    pub(super) broken: Option<String>,
    /// Reason why the benchmark says nothing about the device.
    pub(super) nothing: Option<String>,
    /// Summary of the result, if the benchmark went well.
    pub(super) found: Option<String>,
    /// True if the plan itself says what the device has to keep: limits of a service.
    pub(super) has_goals: bool,
}

fn limited_by<'f, 'r: 'f>(findings: impl Iterator<Item = &'f Finding<'r>> + Clone) -> LimitedBy {
    let named = [
        (LbLimit::Device, Limiter::Device),
        (LbLimit::Tester, Limiter::Tester),
        (LbLimit::Plan, Limiter::Plan),
        (LbLimit::Time, Limiter::Time),
    ];
    LimitedBy::each(named.into_iter().filter_map(|(limit, limiter)| {
        let of_it = findings.clone().filter(|f| f.limited_by == Some(limit));
        let titles: BTreeSet<&str> = of_it.map(|f| f.title.as_str()).collect();
        let titles: Vec<&str> = titles.into_iter().collect();
        (!titles.is_empty()).then(|| limiter.because(titles.join(", ")))
    }))
}

#[cfg(test)]
mod tests {
    use wb_model::{
        bench::{BalancerLimit, ImpactRow, LbMetric, Quantity, SuiteTest},
        load::LoadTransport,
    };

    use super::*;
    use wb_engine::End;

    use wb_engine::verdict::Evidence;

    fn result(size: u16, limit: f64, limited_by: LbLimit) -> SuiteResult {
        let own = BalancerLimit::new(LbMetric::Cps, LoadTransport::Tcp);
        SuiteResult {
            limit: Some(limit),
            limited_by: Some(limited_by),
            confirmed: true,
            ..SuiteResult::of_balancer(own, Some(size))
        }
    }

    /// A search without a limit because the tester was late.
    fn late(result: &SuiteResult) -> SuiteResult {
        let mut late = result.clone();
        let own = late.balancer.as_mut().expect("a limit");
        own.late = Some("the tester was late".to_owned());
        late
    }

    /// Returns the measured value, whether the criterion holds, and the excuse.
    fn judged(criterion: &str, results: &[SuiteResult]) -> (Option<f64>, bool, Option<String>) {
        let criterion = criterion.parse().expect("a criterion");
        let plan = Plan::default();
        let (report, excuse) = Findings::of(&plan, results).judge(&[criterion]).remove(0);
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
        // There is no worst size if one size has no limit.
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
        // There is no excuse if the device was the limit.
        results
            .iter_mut()
            .for_each(|r| r.limited_by = Some(LbLimit::Device));
        assert_eq!(judged("cps>=6k", &results).2, None);
        // A late tester is an excuse, whatever limit was found.
        results[0] = late(&results[0]);
        let excuse = judged("cps>=6k", &results).2.expect("an excuse");
        assert!(excuse.contains("the tester was late"), "{excuse}");
        // An upper bound has no excuse: more was carried, whatever the limit was.
        assert_eq!(judged("cps<=4k", &results).2, None);
        assert_eq!(judged("cps>=5k", &results), (Some(5e3), true, None));
    }

    fn suite(test: SuiteTest, size: &str) -> SuiteResult {
        SuiteResult {
            size: size.to_owned(),
            ..SuiteResult::new(test, Quantity::Frames)
        }
    }

    fn throughput(size: &str, limit: Option<f64>, by: LbLimit) -> SuiteResult {
        SuiteResult {
            limit,
            limited_by: Some(by),
            ..suite(SuiteTest::Throughput, size)
        }
    }

    fn verdict_of(own: TestOutcome) -> (Verdict, String) {
        let evidence = Evidence {
            broken: own.broken,
            nothing: own.nothing,
            found: own.found,
            has_goals: own.has_goals,
            ..Evidence::default()
        };
        wb_engine::verdict::verdict(&End::Completed, &[], evidence)
    }

    /// Returns the verdict without criteria, whether a criterion holds, and the excuse.
    fn found(results: &[SuiteResult], criterion: &str) -> (Verdict, String, bool, Option<String>) {
        let plan = Plan::default();
        let findings = Findings::of(&plan, results);
        let (verdict, reason) = verdict_of(findings.own());
        let criterion = criterion.parse().expect("a criterion");
        let (report, excuse) = findings.judge(&[criterion]).remove(0);
        (verdict, reason, report.held, excuse)
    }

    #[test]
    fn one_size_that_is_the_devices_own_is_enough() {
        let both = [
            throughput("64", Some(5e3), LbLimit::Tester),
            throughput("1518", Some(5e3), LbLimit::Device),
        ];
        let (_, _, held, excuse) = found(&both, "throughput>=6k");
        assert_eq!((held, excuse), (false, None));
        let (_, _, held, excuse) = found(&both[..1], "throughput>=6k");
        assert!(!held && excuse.is_some());
    }

    #[test]
    fn what_the_tester_could_not_measure_is_not_held_against_the_device() {
        let recovery = SuiteResult {
            not_measured: Some("the tester could not offer the overload".to_owned()),
            ..suite(SuiteTest::Recovery, "64")
        };
        let held = throughput("64", Some(5e3), LbLimit::Device);
        let (_, _, _, excuse) = found(&[held, recovery.clone()], "recovery<=1s");
        let excuse = excuse.expect("an excuse");
        assert!(excuse.contains("could not offer the overload"), "{excuse}");
        // If nothing came through, there was nothing to measure.
        let none = throughput("64", None, LbLimit::Device);
        assert_eq!(found(&[none, recovery], "recovery<=1s").3, None);

        let row = |loss_pct| wb_model::bench::LossRow {
            loss_pct,
            ..Default::default()
        };
        let mut loss = suite(SuiteTest::Loss, "64");
        loss.curve = vec![row(None), row(Some(0.0))];
        assert!(found(&[loss.clone()], "loss<=1%").3.is_some());
        // The known loss already exceeds the limit.
        loss.curve.push(row(Some(2.0)));
        assert_eq!(found(&[loss], "loss<=1%").3, None);
    }

    #[test]
    fn void_steps_of_a_service_are_no_broken_promise() {
        let step = |passed, void| wb_model::bench::ServiceStep {
            passed,
            void,
            ..Default::default()
        };
        let mut result = suite(SuiteTest::Y1564, "512");
        result.steps = vec![step(true, false), step(false, true)];
        let (verdict, reason, ..) = found(&[result.clone()], "loss<=1%");
        assert_eq!(verdict, Verdict::Invalid, "{reason}");
        result.steps.push(step(false, false));
        let (verdict, reason, ..) = found(&[result.clone()], "loss<=1%");
        assert_eq!(
            (verdict, reason.as_str()),
            (Verdict::Fail, "tests failed: y1564 512")
        );
        // If there are several services, the text names the service.
        let own = |service: &str, verdict| wb_model::bench::ServiceResult {
            service: service.to_owned(),
            verdict,
            ..Default::default()
        };
        result.services = vec![own("voice", Verdict::Fail), own("video", Verdict::Pass)];
        let (_, reason, ..) = found(&[result], "loss<=1%");
        assert_eq!(reason, "tests failed: y1564 512 (voice)");
    }

    #[test]
    fn a_path_through_which_nothing_comes_is_no_device_that_fails() {
        let trial = |purpose: &str, tx: u64, rx: u64| {
            let zero = serde_json::json!({"samples": 0});
            serde_json::from_value(serde_json::json!({
                "trial": 1, "purpose": purpose, "intended": 0.0, "intended_pct": null, "offered": 0.0,
                "forwarded": 0.0, "duration_s": 1.0, "tx": tx, "rx": rx, "lost": tx - rx, "loss_ratio": 1.0,
                "dup": 0, "ooo": 0, "foreign": 0, "unsent": 0, "nic_drops": 0, "latency_ns": zero,
                "ipdv_ns": zero, "pdv_ns": zero, "longest_silence_ns": null, "outcome": "fail", "reason": "",
            }))
            .unwrap()
        };
        let none_held = |size: &str, log| SuiteResult {
            trial_log: log,
            ..throughput(size, None, LbLimit::Device)
        };
        let dead = none_held("64", vec![trial("ceiling", 9, 9), trial("search", 50, 0)]);
        let (verdict, reason, held, _) = found(std::slice::from_ref(&dead), "throughput>=6k");
        assert_eq!(
            (verdict, reason.as_str(), held),
            (
                Verdict::Invalid,
                "nothing arrived at any load: 50 frames sent, 0 received",
                false
            )
        );
        let all = [dead.clone()];
        let plan = Plan::default();
        let limited_by = Findings::of(&plan, &all).limited_by().to_string();
        assert!(
            limited_by.starts_with("the device or the path: nothing arrived"),
            "{limited_by}"
        );
        // Frames of another size arrive, so the device does not carry these frames.
        let other = none_held("1518", vec![trial("search", 50, 1)]);
        assert_eq!(found(&[dead, other], "loss<=1%").0, Verdict::Fail);
    }

    #[test]
    fn impact_and_forwarding_of_a_device_that_forwards_nothing() {
        let row = |lost: Option<u64>| ImpactRow {
            tx: 100,
            lost,
            loss_pct: lost.map(|lost| lost as f64),
            ..ImpactRow::default()
        };
        let impact = |rows: &[Option<u64>]| SuiteResult {
            impact: rows.iter().copied().map(row).collect(),
            ..suite(SuiteTest::Impact, "64")
        };
        let mfr = |rate: f64| SuiteResult {
            limit: (rate > 0.0).then_some(rate),
            limited_by: Some(LbLimit::Device),
            mfr: Some(wb_model::bench::MfrResult {
                rate_fps: rate,
                ..Default::default()
            }),
            ..suite(SuiteTest::Mfr, "64")
        };
        for (result, expected) in [
            (impact(&[Some(0), Some(100)]), Verdict::Completed),
            (impact(&[Some(100), Some(100)]), Verdict::Fail),
            (impact(&[None, None]), Verdict::Invalid),
            (mfr(1e6), Verdict::Completed),
            (mfr(0.0), Verdict::Fail),
        ] {
            let (verdict, reason, ..) = found(&[result], "loss<=1%");
            assert_eq!(verdict, expected, "{reason}");
        }
    }

    /// A search that ran out of time before it reached the lowest load.
    #[test]
    fn a_device_that_lets_nothing_through_never_passes() {
        let load = |low_short_s, high_full_s| wb_model::bench::MlrLoad {
            low_short_s,
            high_full_s,
            ..Default::default()
        };
        let of = |loads| SuiteResult {
            mlr: Some(wb_model::bench::MlrResult {
                loads,
                ..Default::default()
            }),
            ..throughput("64", None, LbLimit::Time)
        };
        let (verdict, reason, ..) = found(&[of(vec![load(0.0, 1.0)])], "loss<=1%");
        assert_eq!(verdict, Verdict::Fail, "{reason}");
        for loads in [vec![], vec![load(0.4, 1.0)]] {
            let (verdict, reason, ..) = found(&[of(loads)], "loss<=1%");
            assert_eq!(verdict, Verdict::Invalid, "{reason}");
        }
        let row = |loss_pct| wb_model::bench::LossRow {
            loss_pct,
            ..Default::default()
        };
        for (rows, expected) in [
            (vec![row(Some(100.0)), row(None)], Verdict::Fail),
            (vec![row(Some(100.0)), row(Some(50.0))], Verdict::Completed),
            (vec![row(None)], Verdict::Invalid),
        ] {
            let mut loss = suite(SuiteTest::Loss, "64");
            loss.curve = rows;
            let (verdict, reason, ..) = found(&[loss], "loss<=1%");
            assert_eq!(verdict, expected, "{reason}");
        }
    }

    #[test]
    fn what_says_nothing_of_the_device_is_no_verdict_on_it() {
        // A search in which the tester was late has no limit either.
        let none = |by| SuiteResult {
            limit: None,
            ..result(64, 0.0, by)
        };
        let (late, own) = (late(&none(LbLimit::Tester)), none(LbLimit::Device));
        let plan = Plan::default();
        let of = |results: &[SuiteResult]| verdict_of(Findings::of(&plan, results).own()).0;
        assert_eq!(of(std::slice::from_ref(&late)), Verdict::Invalid);
        assert_eq!(of(&[late, own]), Verdict::Fail);
        // Limits by the tester only, and tests that were not made.
        let ours = throughput("64", Some(5e3), LbLimit::Tester);
        let device = throughput("512", Some(5e3), LbLimit::Device);
        assert_eq!(
            found(std::slice::from_ref(&ours), "loss<=1%").0,
            Verdict::Invalid
        );
        assert_eq!(found(&[ours, device], "loss<=1%").0, Verdict::Completed);
        let silent = SuiteResult {
            not_measured: Some("not applicable".to_owned()),
            ..suite(SuiteTest::Recovery, "64")
        };
        assert_eq!(
            found(std::slice::from_ref(&silent), "loss<=1%").0,
            Verdict::Invalid
        );
        // The only reset was not measured: its command failed.
        let misfired = SuiteResult {
            not_measured: Some("trigger: failed with exit status: 1".to_owned()),
            ..suite(SuiteTest::Reset, "64")
        };
        let (verdict, reason, ..) = found(&[misfired], "reset<=1s");
        assert_eq!(verdict, Verdict::Invalid);
        assert!(reason.contains("exit status: 1"), "{reason}");
        // A trigger that did not fire broke nothing.
        let reset = SuiteResult {
            reset: Some(wb_model::bench::ResetResult {
                not_again_s: Some(30.0),
                ..Default::default()
            }),
            test: SuiteTest::Reset,
            ..silent
        };
        assert_eq!(found(&[reset], "loss<=1%").0, Verdict::Invalid);
    }

    #[test]
    fn a_criterion_of_one_size_is_about_no_other() {
        let both = [
            throughput("64", Some(1e3), LbLimit::Device),
            throughput("1518", Some(5e3), LbLimit::Device),
        ];
        assert!(found(&both, "1518.throughput>=4k").2);
        assert!(!found(&both, "64.throughput>=4k").2);
    }

    #[test]
    fn a_device_that_does_not_come_back_fails() {
        let reset = SuiteResult {
            reset: Some(wb_model::bench::ResetResult {
                not_again_s: Some(30.0),
                ..Default::default()
            }),
            ..suite(SuiteTest::Reset, "64")
        };
        let (verdict, _, held, excuse) = found(&[reset], "reset<=1h");
        assert_eq!((verdict, held, excuse), (Verdict::Fail, false, None));

        let recovery = |seconds: Vec<Option<f64>>| SuiteResult {
            recovery: Some(wb_model::bench::RecoveryResult {
                max_s: seconds.iter().flatten().copied().reduce(f64::max),
                seconds,
                ..Default::default()
            }),
            ..suite(SuiteTest::Recovery, "64")
        };
        let (verdict, _, held, excuse) = found(&[recovery(vec![Some(0.1), None])], "recovery<=1h");
        assert_eq!((verdict, held, excuse), (Verdict::Fail, false, None));
        let (verdict, _, held, _) = found(&[recovery(vec![Some(0.1)])], "recovery<=1h");
        assert_eq!((verdict, held), (Verdict::Completed, true));
    }
}
