//! Limits of a load balancer. In memory each limit is a result of a suite, so that outputs know one kind of result. In
//! JSON it keeps the form [`LbResult`], which scripts read.

use wb_measure::Summary;

use super::{
    BenchResult, EndedTrial, LbDeviceTrial, LbLimit, LbMetric, LbOurs, LbOutcome, LbPurpose,
    LbResult, LbTrial, Quantity, SuiteResult, SuiteTest, SuiteTrial, TrialOutcome, TrialPurpose,
};
use crate::{figures::sum, load::LoadTransport};

/// The part of a result that only limits of a load balancer have.
#[derive(Clone, Debug)]
pub struct BalancerLimit {
    /// Metric.
    pub metric: LbMetric,
    /// TCP or UDP.
    pub transport: LoadTransport,
    /// Concurrent flows, for metrics of frames.
    pub flows: Option<u64>,
    /// Metrics of frames: bits per second at layer 2 with FCS, both directions together.
    pub l2_bps: Option<f64>,
    /// `cps`: time after which addresses and ports are reused at this limit, in seconds.
    pub reuse_s: Option<f64>,
    /// Index of the trial that shows the limit.
    pub best_trial: Option<usize>,
    /// Reason why there is no limit although the device may have one: the tester was late in every repetition of a
    /// trial.
    pub late: Option<String>,
}

impl BalancerLimit {
    /// A limit without a result.
    #[must_use]
    pub const fn new(metric: LbMetric, transport: LoadTransport) -> Self {
        Self {
            metric,
            transport,
            flows: None,
            l2_bps: None,
            reuse_s: None,
            best_trial: None,
            late: None,
        }
    }
}

/// The part of a trial that only trials of a load balancer have.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BalancerTrial {
    /// Counters of the tester.
    pub ours: LbOurs,
    /// Counters of the device.
    pub device: LbDeviceTrial,
}

impl LbMetric {
    /// Unit of the loads of its trials, which are frames in one direction for all metrics of frames.
    #[must_use]
    pub const fn load_unit(self) -> &'static str {
        match self {
            Self::Bps => "pps",
            other => other.unit(),
        }
    }

    /// Quantity of the load that its trials change.
    #[must_use]
    pub const fn quantity(self) -> Quantity {
        match self {
            Self::Cps => Quantity::Cps,
            Self::Cc => Quantity::Cc,
            Self::OnewayPps | Self::TwowayPps | Self::Bps | Self::Elephant => Quantity::Frames,
        }
    }
}

impl LbLimit {
    /// Name in JSON and tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Device => "device",
            Self::Tester => "tester",
            Self::Plan => "plan",
            Self::Time => "time",
        }
    }
}

impl LbOurs {
    /// Sent, received and lost: frames, or connections attempted, completed and failed or unfinished.
    #[must_use]
    pub fn carried(&self, of: Quantity) -> [u64; 3] {
        match of {
            Quantity::Frames => [
                self.sent_frames,
                self.received_frames,
                sum([self.lost_frames, self.lost_answer_frames]),
            ],
            Quantity::Cps | Quantity::Cc | Quantity::Rps => [
                self.attempted,
                self.completed,
                sum([self.failed, self.open]),
            ],
        }
    }
}

impl SuiteResult {
    /// Creates a limit of a load balancer without trials; `size` is the frame size with FCS, of metrics of frames.
    #[must_use]
    pub fn of_balancer(limit: BalancerLimit, size: Option<u16>) -> Self {
        Self {
            unit: limit.metric.unit().to_owned(),
            size: size.map(|size| size.to_string()).unwrap_or_default(),
            mean_size: size.map(f64::from),
            balancer: Some(Box::new(limit.clone())),
            ..Self::new(SuiteTest::Lb, limit.metric.quantity())
        }
    }
}

impl SuiteTrial {
    /// Adds the counters of a trial of a load balancer. `offered` is the measured load.
    #[must_use]
    #[allow(clippy::cast_precision_loss)]
    pub fn with_balancer(self, own: BalancerTrial, of: Quantity, offered: f64) -> Self {
        let [tx, rx, lost] = own.ours.carried(of);
        // An open connection that does not answer has not passed either.
        let unanswered = match of {
            Quantity::Cc => own.ours.requests.saturating_sub(own.ours.responses),
            _ => 0,
        };
        let loss_ratio = match tx {
            0 => 0.0,
            tx => sum([lost, unanswered]).min(tx) as f64 / tx as f64,
        };
        Self {
            offered,
            forwarded: offered * (1.0 - loss_ratio),
            tx,
            rx,
            lost,
            loss_ratio,
            unsent: own.ours.unsent,
            nic_drops: own.ours.tester_dropped_frames,
            latency_ns: Summary {
                samples: own.ours.responses,
                p99: own.ours.p99_ns,
                ..Summary::default()
            },
            rose: own.device.rose.clone(),
            balancer: Some(Box::new(own)),
            ..self
        }
    }

    /// Reads the form in JSON of a trial of a load balancer; `number` counts from 1.
    fn of_balancer(trial: LbTrial, of: Quantity, number: u32, size: &str) -> Self {
        let purpose = match trial.purpose {
            LbPurpose::Search => TrialPurpose::Search,
            LbPurpose::Confirm => TrialPurpose::Confirm,
        };
        let own = BalancerTrial {
            ours: trial.ours,
            device: trial.device,
        };
        let all = Self::new(purpose, trial.asked, trial.seconds);
        Self {
            trial: number,
            size: size.to_owned(),
            outcome: match trial.outcome {
                LbOutcome::Held => TrialOutcome::Pass,
                LbOutcome::Broke => TrialOutcome::Fail,
                LbOutcome::Unoffered => TrialOutcome::NotOffered,
                LbOutcome::Unread => TrialOutcome::NotRead,
                LbOutcome::Late => TrialOutcome::Late,
                LbOutcome::Cut => TrialOutcome::Cut,
            },
            reason: trial.reason,
            lateness: trial.lateness,
            warnings: trial.warnings,
            ..all.with_balancer(own, of, trial.offered)
        }
    }

    /// The form in JSON of a trial of a load balancer.
    fn as_balancer(&self, own: &BalancerTrial) -> LbTrial {
        LbTrial {
            purpose: match self.purpose {
                TrialPurpose::Confirm => LbPurpose::Confirm,
                _ => LbPurpose::Search,
            },
            asked: self.intended,
            offered: self.offered,
            outcome: match self.outcome {
                TrialOutcome::Pass | TrialOutcome::Measured => LbOutcome::Held,
                TrialOutcome::Fail => LbOutcome::Broke,
                TrialOutcome::NotOffered => LbOutcome::Unoffered,
                TrialOutcome::NotRead => LbOutcome::Unread,
                TrialOutcome::Late => LbOutcome::Late,
                TrialOutcome::Cut => LbOutcome::Cut,
            },
            reason: self.reason.clone(),
            seconds: self.duration_s,
            ours: own.ours,
            device: own.device.clone(),
            lateness: self.lateness,
            warnings: self.warnings.clone(),
        }
    }
}

impl From<LbResult> for SuiteResult {
    fn from(lb: LbResult) -> Self {
        let of = lb.metric.quantity();
        let limit = BalancerLimit {
            metric: lb.metric,
            transport: lb.transport,
            flows: lb.flows,
            l2_bps: lb.l2_bps,
            reuse_s: lb.reuse_s,
            best_trial: lb.best_trial,
            late: lb.late,
        };
        let empty = Self::of_balancer(limit, lb.size);
        let trials = (1..).zip(lb.trials);
        let trials = trials.map(|(n, trial)| SuiteTrial::of_balancer(trial, of, n, &empty.size));
        let trial_log: Vec<SuiteTrial> = trials.collect();
        Self {
            unit: lb.unit,
            limit: lb.limit,
            beyond: lb.beyond,
            limited_by: Some(lb.limited_by),
            tester_limit: lb.limited_by == LbLimit::Tester,
            confirmed: lb.confirmed,
            incomplete: trial_log
                .last()
                .is_some_and(|trial| trial.outcome == TrialOutcome::Cut),
            trials: u32::try_from(trial_log.len()).unwrap_or(u32::MAX),
            trial_seconds: trial_log.iter().map(|trial| trial.duration_s).sum(),
            trial_log,
            ..empty
        }
    }
}

impl From<BenchResult> for SuiteResult {
    fn from(result: BenchResult) -> Self {
        match result {
            BenchResult::Lb(lb) => Self::from(*lb),
            BenchResult::Suite(suite) => *suite,
        }
    }
}

impl From<&SuiteResult> for BenchResult {
    fn from(result: &SuiteResult) -> Self {
        let Some(own) = &result.balancer else {
            return Self::Suite(Box::new(result.clone()));
        };
        let trials = result.trial_log.iter();
        let trials = trials.filter_map(|t| Some(t.as_balancer(t.balancer.as_ref()?)));
        Self::Lb(Box::new(LbResult {
            metric: own.metric,
            transport: own.transport,
            size: result.size.parse().ok(),
            flows: own.flows,
            unit: result.unit.clone(),
            limit: result.limit,
            limited_by: result.limited_by.unwrap_or(LbLimit::Time),
            confirmed: result.confirmed,
            l2_bps: own.l2_bps,
            beyond: result.beyond,
            reuse_s: own.reuse_s,
            trials: trials.collect(),
            best_trial: own.best_trial,
            late: own.late.clone(),
        }))
    }
}

impl From<EndedTrial> for Box<SuiteTrial> {
    fn from(ended: EndedTrial) -> Self {
        match ended {
            // A trial alone has no metric. Floods of frames establish no connections.
            EndedTrial::Lb(lb) => {
                let of = match lb.ours.established > 0 {
                    true => Quantity::Cps,
                    false => Quantity::Frames,
                };
                Self::new(SuiteTrial::of_balancer(*lb, of, 0, ""))
            }
            EndedTrial::Suite(trial) => trial,
        }
    }
}

impl From<&SuiteTrial> for EndedTrial {
    fn from(trial: &SuiteTrial) -> Self {
        match &trial.balancer {
            Some(own) => Self::Lb(Box::new(trial.as_balancer(own))),
            None => Self::Suite(Box::new(trial.clone())),
        }
    }
}

/// JSON of the results of a benchmark.
pub(crate) mod results_form {
    use serde::{Deserialize, Deserializer, Serializer};

    use super::{BenchResult, SuiteResult};

    pub(crate) fn serialize<S: Serializer>(all: &[SuiteResult], to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(all.iter().map(BenchResult::from))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Vec<SuiteResult>, D::Error> {
        let all = Vec::<BenchResult>::deserialize(from)?;
        Ok(all.into_iter().map(SuiteResult::from).collect())
    }
}

/// JSON of the trial that has just ended.
pub(crate) mod trial_form {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::{EndedTrial, SuiteTrial};

    #[allow(clippy::borrowed_box, reason = "serde passes the type of the field")]
    pub(crate) fn serialize<S: Serializer>(
        trial: &Option<Box<SuiteTrial>>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        let trial = trial.as_ref().map(|trial| EndedTrial::from(&**trial));
        trial.serialize(to)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<Box<SuiteTrial>>, D::Error> {
        let trial = Option::<EndedTrial>::deserialize(from)?;
        Ok(trial.map(Into::into))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trial(ours: LbOurs, of: Quantity) -> SuiteTrial {
        let own = BalancerTrial {
            ours,
            ..BalancerTrial::default()
        };
        SuiteTrial::new(TrialPurpose::Search, 1000.0, 2.0).with_balancer(own, of, 1000.0)
    }

    #[test]
    fn connections_that_do_not_answer_are_no_success() {
        let ours = LbOurs {
            attempted: 1000,
            completed: 1000,
            requests: 2000,
            responses: 1990,
            ..LbOurs::default()
        };
        let held = trial(ours, Quantity::Cc);
        assert_eq!((held.tx, held.rx, held.lost), (1000, 1000, 0));
        assert!((held.loss_ratio - 0.01).abs() < 1e-12, "{held:?}");
        // Other loads do not judge requests.
        assert_eq!(trial(ours, Quantity::Cps).loss_ratio, 0.0);
    }

    #[test]
    fn the_form_in_json_is_the_same_after_it_was_read() {
        let mut cut = trial(LbOurs::default(), Quantity::Frames);
        cut.outcome = TrialOutcome::Cut;
        let limit = BalancerLimit::new(LbMetric::Elephant, LoadTransport::Udp);
        let result = SuiteResult {
            limit: Some(5.0),
            trial_log: vec![cut],
            ..SuiteResult::of_balancer(limit, Some(64))
        };
        let json = |result: &SuiteResult| serde_json::to_value(BenchResult::from(result)).unwrap();
        let form: BenchResult = serde_json::from_value(json(&result)).unwrap();
        let read = SuiteResult::from(form);
        assert_eq!(json(&read), json(&result));
        assert_eq!(json(&read)["trials"][0]["outcome"], "cut");
        // A search that ended in a trial was stopped early.
        assert!(read.incomplete);
    }
}
