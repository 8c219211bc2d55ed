//! Decides whether tester stalls can explain a failed criterion.
//!
//! All engines use this one place. The rule itself is [`wb_model::judge_lateness`].

use wb_model::{
    Charge, Lateness, LatenessReport, Totals,
    criteria::{Bound, CriterionLimit, is_plain},
    judge_lateness,
};

use crate::criteria::{Judged, Shortfall};

/// Metrics that are rates of what was carried.
const RATES: [&str; 5] = ["pps", "bps", "cps", "rps", "tps"];

/// Input for judging a run.
pub(crate) struct Trial<'a> {
    pub(crate) judged: &'a [Judged],
    pub(crate) totals: &'a Totals,
    /// Number of intended frames, connections or requests, if known.
    pub(crate) intended: Option<u64>,
    /// Number of sent frames, connections or requests.
    pub(crate) offered: u64,
    /// Set if less than 98 % of the intended load was offered.
    pub(crate) short: Option<&'a Shortfall>,
    /// Duration of the run in ns, if stalls lower the measured rates: in a closed loop, or at full speed. `None` if
    /// frames that the tester did not send in time are counted as unsent.
    pub(crate) rates_over_ns: Option<u64>,
}

impl Trial<'_> {
    /// Returns why the result says nothing about the device, if tester stalls can explain it: every failed criterion
    /// or, if none failed, that less than 98 % of the load was offered.
    fn doubt(&self, lateness: &Lateness) -> Option<String> {
        let mut failed = self.judged.iter().filter(|j| !j.report.held).peekable();
        if failed.peek().is_none() {
            let short = self.short?;
            let load = Charge::Load {
                intended: short.intended,
                offered: short.offered,
            };
            return judge_lateness(lateness, &load).map(|why| short.because(&why));
        }
        let load = self.intended.map(|intended| Charge::Load {
            intended,
            offered: self.offered,
        });
        let unoffered = || load.as_ref().and_then(|c| judge_lateness(lateness, c));
        let mut reason = None;
        for judged in failed {
            let why = match self.charge(judged) {
                Some(charge) => judge_lateness(lateness, &charge),
                None => None,
            };
            reason = Some(why.or_else(|| self.is_about_the_load(judged).then(unoffered)?)?);
        }
        reason
    }

    /// Returns a warning if no criteria were set and tester stalls can explain every loss or failure.
    pub(crate) fn warning(&self, lateness: &Lateness) -> Option<String> {
        if !self.judged.is_empty() {
            return None;
        }
        let bad = self.totals.lost_frames.unwrap_or(0);
        let frames = Charge::Frames { bad, borne: 0.0 };
        let bad = failed(
            self.totals,
            self.totals.connections.map_or(0, |c| c.failed_connections),
        );
        let connections = Charge::Connections { bad, borne: 0.0 };
        judge_lateness(lateness, &frames).or_else(|| judge_lateness(lateness, &connections))
    }

    /// Returns true if a criterion failed only because too little was sent to measure anything.
    fn is_about_the_load(&self, judged: &Judged) -> bool {
        let metric = judged.criterion.metric.as_str();
        let is_carried = RATES.contains(&metric) || metric == "open";
        let is_carried = is_carried || is_plain(metric);
        let asked_for =
            metric.starts_with("unsent") || is_carried && judged.criterion.bound == Bound::AtLeast;
        asked_for || judged.report.measured.is_none() || self.offered == 0
    }

    #[allow(clippy::cast_precision_loss, clippy::cast_sign_loss)]
    fn charge(&self, judged: &Judged) -> Option<Charge> {
        let Judged {
            criterion, totals, ..
        } = judged;
        let measured = judged.report.measured?;
        let limit = criterion.limit.as_f64();
        if criterion.bound == Bound::AtLeast {
            // A count of what was carried falls as its rate does.
            let metric = criterion.metric.as_str();
            let is_rate = RATES.contains(&metric) || is_plain(metric);
            return self
                .rates_over_ns
                .filter(|_| is_rate)
                .map(|elapsed_ns| Charge::Rate {
                    measured,
                    limit,
                    elapsed_ns,
                });
        }
        let count = |whole: u64| {
            (
                (measured * whole as f64).round() as u64,
                limit * whole as f64,
            )
        };
        if let CriterionLimit::Time(_) = criterion.limit {
            return Some(Charge::Time {
                measured_ns: measured,
                limit_ns: limit,
            });
        }
        match criterion.metric.as_str() {
            "loss" => {
                let (bad, borne) = count(totals.offered_frames?);
                Some(Charge::Frames { bad, borne })
            }
            "lost" | "lost_frames" | "rx_dropped_frames" => Some(Charge::Frames {
                bad: measured as u64,
                borne: limit,
            }),
            "outages" => Some(Charge::Outages {
                bad: measured as u64,
                borne: limit,
                longest_ns: judged.longest_outage_ns?,
            }),
            "failed" => {
                let Some(c) = totals.connections else {
                    // Requests of a load without connection totals.
                    let (bad, borne) = count(self.offered);
                    return Some(Charge::Connections { bad, borne });
                };
                let (bad, borne) = (
                    c.failed_connections + c.open_connections,
                    limit * c.attempted_connections as f64,
                );
                if bad as f64 > borne {
                    let bad = failed(totals, bad);
                    return Some(Charge::Connections { bad, borne });
                }
                // Only the share of unanswered requests is too high.
                let bad = c.lost_requests + c.in_flight_requests;
                let borne = limit / measured * bad as f64;
                Some(Charge::Connections { bad, borne })
            }
            // A late tester cannot cause duplicates, reordering or errors.
            _ => None,
        }
    }
}

/// Returns the number of failures to excuse if connections failed. A UDP flow fails because of lost requests, so the
/// cause of the losses is also the cause of the failure.
fn failed(totals: &Totals, connections: u64) -> u64 {
    let lost = totals.connections.map_or(0, |c| c.lost_requests);
    match connections {
        0 => 0,
        _ => connections.max(lost),
    }
}

/// Returns the lateness of the tester, and the part of the result that it may have caused.
pub(crate) fn consider(trial: &Trial<'_>, lateness: Lateness) -> LatenessReport {
    LatenessReport {
        all: lateness,
        may_have_caused: trial.doubt(&lateness),
    }
}

#[cfg(test)]
mod tests {
    use wb_model::Verdict;

    use wb_model::{Plan, Summary, frames::Frames, http::HttpJobReport};

    use super::*;
    use crate::criteria::{Offered, judge, reports};
    use wb_engine::End;

    use crate::verdict::{self, Evidence};

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
