//! Tests of the rule.

use super::*;

fn criterion(measured: Option<f64>, held: bool) -> CriterionReport {
    CriterionReport {
        criterion: "loss<=0%".to_owned(),
        measured,
        held,
    }
}

fn some(text: &str) -> Option<String> {
    Some(text.to_owned())
}

/// One entry for each row of the table, and one for each pair of rows that match together.
#[test]
fn the_first_row_that_matches_decides() {
    use Verdict::{Completed, Fail, Incomplete, Invalid, Pass};
    let no = Evidence::default;
    let endless = || Evidence {
        endless: true,
        ..no()
    };
    let gone = || Evidence {
        incomplete: some("h1 is gone"),
        ..no()
    };
    let defect = || Evidence {
        defect: some("sums"),
        ..no()
    };
    let excuse = || Evidence {
        excuse: some("stalls"),
        ..no()
    };
    let nothing = || Evidence {
        nothing: some("nothing arrived"),
        ..no()
    };
    let short = || Evidence {
        not_offered: some("offered 59 %"),
        ..no()
    };
    let broken = || Evidence {
        broken: some("5 frames were lost"),
        ..no()
    };
    let all = || Evidence {
        defect: some("sums"),
        broken: some("5 frames were lost"),
        excuse: some("stalls"),
        nothing: some("nothing arrived"),
        not_offered: some("offered 59 %"),
        ..no()
    };
    let fault = || End::Fault("x".to_owned());
    let (held, failed) = (
        Some(criterion(Some(0.0), true)),
        Some(criterion(Some(0.5), false)),
    );
    let blank = Some(criterion(None, false));
    let done = || End::Completed;
    let cases = [
        // 1
        (fault(), &None, no(), Incomplete, 4, "ended by an error: x"),
        (
            fault(),
            &failed,
            endless(),
            Incomplete,
            4,
            "ended by an error: x; criteria not met: loss<=0% (measured 50 %)",
        ),
        (
            fault(),
            &held,
            all(),
            Incomplete,
            4,
            "ended by an error: x; 5 frames were lost; sums",
        ),
        // 2
        (
            End::Signal(2),
            &None,
            no(),
            Incomplete,
            130,
            "ended early by SIGINT",
        ),
        (
            End::Signal(15),
            &failed,
            defect(),
            Incomplete,
            143,
            "ended early by SIGTERM; criteria not met: loss<=0% (measured 50 %); sums",
        ),
        (
            End::Signal(2),
            &held,
            nothing(),
            Incomplete,
            130,
            "ended early by SIGINT",
        ),
        (done(), &None, gone(), Incomplete, 4, "h1 is gone"),
        (
            End::Signal(2),
            &None,
            gone(),
            Incomplete,
            130,
            "ended early by SIGINT",
        ),
        // 3
        (done(), &None, defect(), Invalid, 3, "sums"),
        (done(), &failed, all(), Invalid, 3, "sums"),
        // 4
        (
            done(),
            &failed,
            no(),
            Fail,
            1,
            "criteria not met: loss<=0% (measured 50 %)",
        ),
        (
            done(),
            &failed,
            nothing(),
            Fail,
            1,
            "criteria not met: loss<=0% (measured 50 %)",
        ),
        (
            done(),
            &failed,
            short(),
            Fail,
            1,
            "criteria not met: loss<=0% (measured 50 %)",
        ),
        (
            done(),
            &blank,
            no(),
            Fail,
            1,
            "criteria not met: loss<=0% (no data)",
        ),
        (done(), &None, broken(), Fail, 1, "5 frames were lost"),
        (
            End::Signal(2),
            &failed,
            endless(),
            Fail,
            130,
            "ended by SIGINT; criteria not met: loss<=0% (measured 50 %)",
        ),
        // 5
        (
            done(),
            &failed,
            excuse(),
            Invalid,
            3,
            "stalls; criteria not met: loss<=0% (measured 50 %)",
        ),
        (done(), &held, excuse(), Invalid, 3, "stalls"),
        (done(), &None, nothing(), Invalid, 3, "nothing arrived"),
        (done(), &held, nothing(), Invalid, 3, "nothing arrived"),
        (done(), &blank, nothing(), Invalid, 3, "nothing arrived"),
        (done(), &None, short(), Invalid, 3, "offered 59 %"),
        (done(), &held, short(), Invalid, 3, "offered 59 %"),
        // 6
        (done(), &held, no(), Pass, 0, "all criteria met"),
        (
            End::Signal(2),
            &held,
            endless(),
            Pass,
            130,
            "ended by SIGINT",
        ),
        (
            done(),
            &None,
            Evidence {
                has_goals: true,
                found: some("as promised"),
                ..no()
            },
            Pass,
            0,
            "as promised",
        ),
        // 7
        (done(), &None, no(), Completed, 0, "no criteria were set"),
        (
            End::Signal(15),
            &None,
            endless(),
            Completed,
            143,
            "ended by SIGTERM",
        ),
        (
            done(),
            &None,
            Evidence {
                stopped: some("ended early by stop"),
                ..no()
            },
            Completed,
            0,
            "ended early by stop",
        ),
        (
            done(),
            &None,
            Evidence {
                found: some("nothing was lost"),
                ..no()
            },
            Completed,
            0,
            "nothing was lost",
        ),
    ];
    for (end, criterion, evidence, wanted, code, reason) in cases {
        let criteria: Vec<_> = criterion.iter().cloned().collect();
        let case = format!("{end:?} {criterion:?} {evidence:?}");
        let (got, text) = verdict(&end, &criteria, evidence);
        assert_eq!((got, text.as_str()), (wanted, reason), "{case}");
        assert_eq!(exit_code(&end, got), code, "{case}");
    }
}

/// The tester was late.
mod late {
    use crate::{
        End,
        criteria::{Offered, Shortfall, judge, reports},
        lateness::{Trial, consider},
        verdict::{self, Evidence},
    };
    use wb_model::{Lateness, Plan, Summary, Totals, Verdict, frames::Frames, http::HttpJobReport};

    fn late(frames: u64) -> Lateness {
        Lateness {
            stalls: 1,
            largest_gap_ns: 80_000_000,
            stalled_ns: 80_000_000,
            late_departures: frames,
            ..Lateness::default()
        }
    }

    fn verdict(criteria: &[&str], lost: u64, p99: f64, lateness: Lateness) -> Verdict {
        let totals = Totals {
            intended_frames: Some(1_000 + lateness.missed_departures),
            offered_frames: Some(1_000),
            unsent_frames: Some(lateness.missed_departures),
            lost_frames: Some(lost),
            ..Totals::default()
        };
        let plan = Plan {
            criteria: criteria.iter().map(|c| c.parse().unwrap()).collect(),
            ..Plan::default()
        };
        let judged = judge(&plan, |_| Frames {
            totals,
            latency_ns: Summary {
                p99: Some(p99 as i64),
                ..Summary::default()
            },
            ..Frames::default()
        });
        let offered = Offered {
            job: "",
            intended: 1_000 + lateness.missed_departures,
            offered: 1_000,
        };
        let short = Shortfall::of(&plan, [offered]);
        let trial = Trial {
            judged: &judged,
            totals: &totals,
            intended: Some(1_000 + lateness.missed_departures),
            offered: 1_000,
            short: short.as_ref(),
            rates_over_ns: None,
        };
        let report = consider(&trial, lateness);
        let evidence = Evidence {
            excuse: report.may_have_caused,
            ..Evidence::default()
        };
        let reports = reports(judged);
        let (verdict, reason) = verdict::verdict(&End::Completed, &reports, evidence);
        assert_eq!(
            verdict == Verdict::Invalid,
            reason.contains("the tester was late"),
            "{reason}"
        );
        verdict
    }

    #[test]
    fn no_device_is_blamed_for_a_late_tester() {
        let punctual = Lateness::default();
        assert_eq!(verdict(&["loss<=0"], 5, 0.0, punctual), Verdict::Fail);
        assert_eq!(verdict(&["loss<=0"], 5, 0.0, late(5)), Verdict::Invalid);
        assert_eq!(verdict(&["loss<=0"], 6, 0.0, late(5)), Verdict::Fail);
        assert_eq!(verdict(&["loss<=0"], 0, 0.0, late(5)), Verdict::Pass);
        // One failure without an excuse is enough.
        let two = ["loss<=0", "p99<=1ms"];
        assert_eq!(verdict(&two, 5, 2e6, late(5)), Verdict::Invalid);
        assert_eq!(verdict(&two, 5, 90e6, late(5)), Verdict::Fail);
        // Without criteria nothing is judged. A warning names losses that the tester may have caused.
        assert_eq!(verdict(&[], 5, 0.0, late(5)), Verdict::Completed);
        assert_eq!(verdict(&[], 0, 0.0, late(5)), Verdict::Completed);
    }

    #[test]
    fn what_was_not_offered_was_not_carried() {
        let missed = |n| Lateness {
            missed_departures: n,
            ..late(0)
        };
        assert_eq!(verdict(&["loss<=0"], 0, 0.0, missed(100)), Verdict::Invalid);
        assert_eq!(verdict(&["loss<=0"], 0, 0.0, missed(5)), Verdict::Pass);
        // A criterion may accept unsent frames.
        let two = ["loss<=0", "unsent<=10%"];
        assert_eq!(verdict(&two, 0, 0.0, missed(100)), Verdict::Pass);
        assert_eq!(verdict(&two, 0, 0.0, missed(150)), Verdict::Invalid);
        assert_eq!(verdict(&[], 0, 0.0, missed(100)), Verdict::Invalid);
        assert_eq!(verdict(&[], 0, 0.0, missed(5)), Verdict::Completed);
    }

    /// A tester that was late for a moment is not an excuse for a server that never answers.
    #[test]
    fn a_flow_fails_for_all_that_it_lost() {
        let warns = |lost_requests| {
            let totals = Totals {
                connections: Some(wb_model::load::ConnectionTotals {
                    attempted_connections: 1,
                    failed_connections: 1,
                    requests: 1_000,
                    lost_requests,
                    ..Default::default()
                }),
                ..Totals::default()
            };
            let trial = Trial {
                judged: &[],
                totals: &totals,
                intended: Some(1_001),
                offered: 1_001,
                short: None,
                rates_over_ns: None,
            };
            trial.warning(&late(300)).is_some()
        };
        assert!(warns(300));
        assert!(!warns(301));
        // TCP loses no requests.
        assert!(warns(0));
    }

    #[test]
    fn what_was_not_sent_fails_no_count() {
        let missed = Lateness {
            missed_departures: 500,
            ..late(0)
        };
        for criterion in ["offered_frames>=1200", "unsent_frames<=100", "unsent<=10%"] {
            assert_eq!(
                verdict(&[criterion], 0, 1.0, missed),
                Verdict::Invalid,
                "{criterion}"
            );
            assert_ne!(
                verdict(&[criterion], 0, 1.0, late(0)),
                Verdict::Invalid,
                "{criterion}"
            );
        }
        assert_eq!(
            verdict(&["lost_frames<=0"], 7, 1.0, late(9)),
            Verdict::Invalid
        );
        assert_eq!(
            verdict(&["lost_frames<=0"], 70, 1.0, late(9)),
            Verdict::Fail
        );
    }

    #[test]
    fn stalls_explain_a_closed_loop_that_is_too_slow_only_by_as_much_as_they_took() {
        let verdict = |limit: &str, rates_over_ns| {
            let plan = Plan {
                criteria: vec![format!("rps>={limit}").parse().unwrap()],
                ..Plan::default()
            };
            let judged = judge(&plan, |_| HttpJobReport {
                requests_per_second: 28_164.0,
                ..HttpJobReport::default()
            });
            let trial = Trial {
                judged: &judged,
                totals: &Totals::default(),
                intended: Some(84_000),
                offered: 84_000,
                short: None,
                rates_over_ns,
            };
            // Stalled for one of three seconds.
            let stalled = Lateness {
                stalled_ns: 1_000_000_000,
                ..late(0)
            };
            let report = consider(&trial, stalled);
            let evidence = Evidence {
                excuse: report.may_have_caused,
                ..Evidence::default()
            };
            verdict::verdict(&End::Completed, &reports(judged), evidence).0
        };
        let three_seconds = Some(3_000_000_000);
        assert_eq!(verdict("28k", three_seconds), Verdict::Pass);
        assert_eq!(verdict("29k", three_seconds), Verdict::Invalid);
        assert_eq!(verdict("42k", three_seconds), Verdict::Invalid);
        assert_eq!(verdict("43k", three_seconds), Verdict::Fail);
        assert_eq!(verdict("29k", None), Verdict::Fail);
    }
}
