//! Verdicts of reports that several hosts made together.

use wb_model::{Criterion, Report, TrafficJob, Verdict, peer::PairClock, report::JobReport};
use wb_session::{End, judge};

/// Verdict of a run with a direction between two hosts, by the values of its criteria.
fn judged(criteria: &[(&str, f64)], method: &str, error_ns: u64) -> (Verdict, String) {
    judged_after_step(criteria, method, error_ns, None)
}

fn judged_after_step(
    criteria: &[(&str, f64)],
    method: &str,
    error_ns: u64,
    step_ns: Option<i64>,
) -> (Verdict, String) {
    let mut report = Report::default();
    for (text, measured) in criteria {
        let criterion: Criterion = text.parse().unwrap();
        let result = wb_engine::criteria::report(&criterion, Some(*measured));
        report.criteria.push(result);
        report.plan.criteria.push(criterion);
    }
    let clock = PairClock {
        from: "a".to_owned(),
        to: "b".to_owned(),
        method: method.to_owned(),
        error_ns,
        step_ns,
        ..PairClock::default()
    };
    let job = |name: &str| JobReport {
        name: name.to_owned(),
        // The job `all` has both ends on one host.
        clock: (name == "web").then(|| clock.clone()),
        ..JobReport::default()
    };
    report.jobs = vec![job("web"), job("all")];
    report.plan.traffic = vec![TrafficJob::default(); 2];
    judge(&mut report, &End::Completed, None, None);
    (report.verdict, report.reason)
}

#[test]
fn a_latency_closer_to_its_limit_than_the_clocks_are_known_is_not_judged() {
    const UNKNOWN: &str = "the clocks of a and b are known to 4.90 us only";
    let one = |text, measured| judged(&[(text, measured)], "udp", 4900);
    let expect = |(verdict, reason): (Verdict, String), expected: Verdict, text: &str| {
        assert_eq!(verdict, expected, "{reason}");
        assert!(reason.starts_with(text), "{reason}");
    };
    expect(one("p99<=500us", 500_000.0), Verdict::Invalid, UNKNOWN);
    expect(one("p99<=500us", 495_101.0), Verdict::Invalid, UNKNOWN);
    expect(
        one("p99<=500us", 495_100.0),
        Verdict::Pass,
        "all criteria met",
    );
    expect(one("max>=500us", 504_899.0), Verdict::Invalid, UNKNOWN);
    expect(one("p99<=500us", 504_899.0), Verdict::Invalid, UNKNOWN);
    expect(
        one("p99<=500us", 504_900.0),
        Verdict::Fail,
        "criteria not met: p99<=500us",
    );
    // Only the jobs of the criterion count, and only one-way latencies depend on two clocks.
    expect(one("web.p99<=500us", 501_000.0), Verdict::Invalid, UNKNOWN);
    expect(
        one("all.p99<=500us", 501_000.0),
        Verdict::Fail,
        "criteria not met",
    );
    expect(one("lost<=10", 12.0), Verdict::Fail, "criteria not met");
    // Another criterion that failed decides.
    let both = [("p99<=500us", 499_000.0), ("lost<=10", 12.0)];
    expect(
        judged(&both, "udp", 4900),
        Verdict::Fail,
        "criteria not met: lost<=10",
    );
    let both = [("p99<=500us", 499_000.0), ("lost<=10", 8.0)];
    expect(judged(&both, "udp", 4900), Verdict::Invalid, UNKNOWN);
    expect(judged(&both, "same", 0), Verdict::Pass, "all criteria met");
}

#[test]
fn a_clock_that_was_stepped_makes_latencies_invalid_but_no_counts() {
    const STEPPED: &str = "the wall clock of a or b was stepped by -5.00 us during the run";
    let judged = |criteria: &[(&str, f64)], method, step| {
        judged_after_step(criteria, method, 4_900, Some(step))
    };
    let latency = [("p99<=500us", 100_000.0)];
    let (verdict, reason) = judged(&latency, "udp", -5_000);
    assert_eq!(verdict, Verdict::Invalid);
    assert!(reason.starts_with(STEPPED), "{reason}");
    // Within the error, of one clock, of another job, and of counts.
    for (criteria, method, step) in [
        (latency, "udp", -4_900),
        (latency, "same", -5_000),
        ([("all.p99<=500us", 100_000.0)], "udp", -5_000),
        ([("lost<=10", 8.0)], "udp", -5_000),
    ] {
        let (verdict, reason) = judged(&criteria, method, step);
        assert_eq!(verdict, Verdict::Pass, "{criteria:?}: {reason}");
    }
}
