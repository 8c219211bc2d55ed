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
pub struct Trial<'a> {
    /// Criteria with their results.
    pub judged: &'a [Judged],
    /// Frames or connections of the run.
    pub totals: &'a Totals,
    /// Number of intended frames, connections or requests, if known.
    pub intended: Option<u64>,
    /// Number of sent frames, connections or requests.
    pub offered: u64,
    /// Set if less than 98 % of the intended load was offered.
    pub short: Option<&'a Shortfall>,
    /// Duration of the run in ns, if stalls lower the measured rates: in a closed loop, or at full speed. `None` if
    /// frames that the tester did not send in time are counted as unsent.
    pub rates_over_ns: Option<u64>,
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
    pub fn warning(&self, lateness: &Lateness) -> Option<String> {
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
pub fn consider(trial: &Trial<'_>, lateness: Lateness) -> LatenessReport {
    LatenessReport {
        all: lateness,
        may_have_caused: trial.doubt(&lateness),
    }
}
