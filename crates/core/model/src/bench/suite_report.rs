//! Results of a test suite.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    BalancerLimit, BalancerTrial, BurstResult, FilterCondition, ImpactRow, LatencyRow, LbLimit,
    LbResult, LbTrial, LossRow, MfrResult, MlrResult, Quantity, RecoveryResult, ResetResult,
    ServiceResult, ServiceStep, SuiteTest,
};
use crate::{criteria::Criterion, lateness::Lateness, report::Summary};

/// Result of a benchmark, in its JSON form.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum BenchResult {
    /// Limit of a load balancer.
    Lb(Box<LbResult>),
    /// Test of a suite at one frame size.
    Suite(Box<SuiteResult>),
}

/// Trial that has just ended, in its JSON form.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum EndedTrial {
    /// Trial of a load balancer benchmark.
    Lb(Box<LbTrial>),
    /// Trial of a suite.
    Suite(Box<SuiteTrial>),
}

/// Result of one test at one frame size, with all trials.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct SuiteResult {
    /// Test.
    pub test: SuiteTest,
    /// Name of the MLRsearch goal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub goal: Option<String>,
    /// Quantity of the load.
    pub of: Quantity,
    /// Unit of loads: `fps`, `cps`, `connections` or `rps`.
    pub unit: String,
    /// Frame sizes in the notation of the plan: `64`, `imix`; empty for loads other than frames.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub size: String,
    /// Share of IPv6 frames, for runs with several shares. Then `size` includes the share (`512 10% IPv6`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ipv6_share: Option<f64>,
    /// Modifier `bursts`: length of the bursts, and the smallest gap found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub burst: Option<BurstGap>,
    /// Mean frame size with FCS, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mean_size: Option<f64>,
    /// Number of directions with concurrent traffic, 1 or 2. Each carries the reported load.
    pub directions: u32,
    /// Line rate in frames per second at this size (line rate ÷ ((size + 20) × 8)); absent if the line rate is unknown.
    pub theoretical_fps: Option<f64>,
    /// Maximum load that the tester was found to offer, in `unit`.
    pub tester_ceiling: Option<f64>,
    /// Maximum load that the tester was found to offer, in frames per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tester_ceiling_fps: Option<f64>,
    /// Highest load that the search may try, in `unit`.
    pub maximum: Option<f64>,
    /// Highest load that passed, in `unit` and in each direction; for `mfr` the highest forwarding rate. Absent if no
    /// load passed or the test finds no limit.
    pub limit: Option<f64>,
    /// Limit in frames per second: the throughput of RFC 1242 if the loss goal is 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throughput_fps: Option<f64>,
    /// Limit in bits per second with FCS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throughput_l2_bps: Option<f64>,
    /// Limit in bits per second with FCS, preamble and gap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throughput_l1_bps: Option<f64>,
    /// Loss ratio up to which a load passes.
    pub loss_goal: Option<f64>,
    /// Lowest load above the limit that failed, in `unit`.
    pub beyond: Option<f64>,
    /// Reason why the limit is not higher; absent for tests that find no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limited_by: Option<LbLimit>,
    /// True if the tester was the limit: the device's limit is at least this value.
    pub tester_limit: bool,
    /// True if the limit passed a trial of full length.
    pub confirmed: bool,
    /// Number of trials, void trials included. For a goal: the valid trials that were made for it. All goals share the
    /// results of all trials.
    pub trials: u32,
    /// Total duration of these trials, in seconds.
    pub trial_seconds: f64,
    /// Reason why the test has no result: not applicable, skipped or interrupted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_measured: Option<String>,
    /// True if the test was stopped before its end.
    #[serde(default)]
    pub incomplete: bool,
    /// Spread of repeated measurements: (largest − smallest) ÷ mean. `bench compare` uses it as the repeatability.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spread: Option<f64>,
    /// Mix of IPv4 and IPv6: results of the frames of each version in the trial at the limit.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub families: Vec<FamilyFrames>,
    /// Result of MLRsearch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mlr: Option<MlrResult>,
    /// Delay and its variation, one row for each load.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub latency: Vec<LatencyRow>,
    /// Loss by load, the highest load first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub curve: Vec<LossRow>,
    /// Forwarding rates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mfr: Option<MfrResult>,
    /// Loss and delay, one row for each load.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub impact: Vec<ImpactRow>,
    /// Back-to-back frames.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bursts: Option<BurstResult>,
    /// System recovery.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recovery: Option<RecoveryResult>,
    /// Reset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reset: Option<ResetResult>,
    /// Steps of services.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<ServiceStep>,
    /// Result of each service over all its steps.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub services: Vec<ServiceResult>,
    /// Modifier `filters`: the conditions that the device must have, in order. The first condition that matches a frame
    /// decides; a frame that matches none is denied.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub filter: Vec<FilterCondition>,
    /// Modifier `management`: queries of all trials.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub management: Option<Queries>,
    /// Modifier `routing`: updates in all trials.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub routing_updates: Option<u64>,
    /// Notes for the interpretation of the result, one sentence each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// All trials, in order.
    pub trial_log: Vec<SuiteTrial>,
    /// Limit of a load balancer: the rest of the result, which has another form in JSON.
    #[serde(skip)]
    pub balancer: Option<Box<BalancerLimit>>,
}

impl SuiteResult {
    /// Creates the result of a test without measurements.
    #[must_use]
    pub fn new(test: SuiteTest, of: Quantity) -> Self {
        Self {
            test,
            goal: None,
            of,
            unit: of.unit().to_owned(),
            size: String::new(),
            ipv6_share: None,
            burst: None,
            mean_size: None,
            directions: 1,
            theoretical_fps: None,
            tester_ceiling: None,
            tester_ceiling_fps: None,
            maximum: None,
            limit: None,
            throughput_fps: None,
            throughput_l2_bps: None,
            throughput_l1_bps: None,
            loss_goal: None,
            beyond: None,
            limited_by: test.finds_limit().then_some(LbLimit::Time),
            tester_limit: false,
            confirmed: false,
            trials: 0,
            trial_seconds: 0.0,
            not_measured: None,
            incomplete: false,
            spread: None,
            families: Vec::new(),
            mlr: None,
            latency: Vec::new(),
            curve: Vec::new(),
            mfr: None,
            impact: Vec::new(),
            bursts: None,
            recovery: None,
            reset: None,
            steps: Vec::new(),
            services: Vec::new(),
            filter: Vec::new(),
            management: None,
            routing_updates: None,
            notes: Vec::new(),
            trial_log: Vec::new(),
            balancer: None,
        }
    }

    /// Name of the test, or of the metric of a load balancer.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match &self.balancer {
            Some(own) => own.metric.name(),
            None => self.test.name(),
        }
    }

    /// Reason why the search has no result: the tester was late in every repetition of a trial.
    #[must_use]
    pub fn late(&self) -> Option<&str> {
        self.balancer.as_ref()?.late.as_deref()
    }

    /// Returns the number of frames sent through the device, and the number that arrived or were dropped by the
    /// tester's ports, over all trials.
    #[must_use]
    pub fn carried(&self) -> (u64, u64) {
        let trials = self.trial_log.iter();
        let through = trials.filter(|trial| trial.purpose != TrialPurpose::Ceiling);
        through.fold((0, 0), |(sent, arrived), trial| {
            let (tx, rx) = match &trial.balancer {
                Some(own) => (own.ours.sent_frames, own.ours.received_frames),
                None => (trial.tx, trial.rx),
            };
            (sent + tx, arrived + rx + trial.nic_drops)
        })
    }

    /// Returns true if a metric applies to results of this test.
    #[must_use]
    pub fn is_about(&self, metric: &str) -> bool {
        self.metrics().contains(&metric)
    }

    /// Metrics of criteria that apply to this result.
    #[must_use]
    pub fn metrics(&self) -> Vec<&'static str> {
        (self.test.def().metrics)(self)
    }

    fn values(&self, criterion: &Criterion) -> Vec<Option<f64>> {
        match self.is_about(&criterion.metric) {
            true => (self.test.def().values)(self, criterion),
            false => Vec::new(),
        }
    }

    /// Returns the value for a criterion that applies to this test: loads in the unit of its limit, times in ns, shares
    /// of 1. For delay and loss, the maximum over all loads. `None` if a value was not measured, because it may be the
    /// maximum.
    #[must_use]
    pub fn figure(&self, criterion: &Criterion) -> Option<f64> {
        let values: Option<Vec<f64>> = self.values(criterion).into_iter().collect();
        values?.into_iter().reduce(f64::max)
    }

    /// Returns all known values, for a metric that covers several loads.
    #[must_use]
    pub fn known(&self, criterion: &Criterion) -> Vec<f64> {
        self.values(criterion).into_iter().flatten().collect()
    }

    /// Returns true if the device failed the test.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        (self.test.def().has_failed)(self)
    }

    /// Returns true if the test has no result because it had no valid trials.
    #[must_use]
    pub fn is_unjudged(&self) -> bool {
        let is_void = (self.test.def().is_void)(self);
        let nothing = is_void && self.not_measured.is_none() && !self.has_failed();
        nothing || self.steps.iter().any(|step| step.void)
    }

    /// Returns true if a part of the result is void because the tester could not run its trial.
    #[must_use]
    pub fn is_partly_void(&self) -> bool {
        self.steps.iter().any(|step| step.void)
            || self.impact.iter().any(|row| row.lost.is_none())
            || self.curve.iter().any(|row| row.loss_pct.is_none())
    }
}

/// SNMP queries to the device itself: sent = answered + errors + unanswered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Queries {
    /// Queries sent.
    pub sent: u64,
    /// Responses with a value and the request id of the query.
    pub answered: u64,
    /// Responses with an error, or without a value.
    pub errors: u64,
    /// Queries without a response within one second, or by the end.
    pub unanswered: u64,
}

impl std::ops::AddAssign for Queries {
    fn add_assign(&mut self, other: Self) {
        self.sent += other.sent;
        self.answered += other.answered;
        self.errors += other.errors;
        self.unanswered += other.unanswered;
    }
}

/// Frames in bursts, and the smallest gap between bursts (RFC 2544 section 21).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BurstGap {
    /// Frames per burst.
    pub frames: u32,
    /// Rate of the frames of a burst in frames per second: line rate, or the maximum load of the tester if that is
    /// lower. Absent if neither is known.
    pub burst_fps: Option<f64>,
    /// Time from the first frame of a burst to the first frame of the next at the limit, in us. Absent if no load
    /// passed.
    pub period_us: Option<f64>,
    /// Time from the end of a burst to the start of the next at the limit, in us: the period less frames ÷ `burst_fps`.
    /// 0 if bursts may follow each other without a pause.
    pub gap_us: Option<f64>,
}

/// Purpose of a trial of a suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum TrialPurpose {
    /// Measures the maximum load of the tester.
    Ceiling,
    /// Warms up the device; its results are discarded.
    WarmUp,
    /// Searches the limit.
    Search,
    /// Confirms a result.
    Confirm,
    /// Measures delay, loss at a load, a burst, recovery, reset or a step of a service.
    Measure,
}

/// Outcome of a trial of a suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum TrialOutcome {
    /// The loss is within the goal.
    Pass,
    /// The loss exceeds the goal.
    Fail,
    /// The trial has no loss goal: it only measures.
    Measured,
    /// Void: the tester could not offer the load, and the device carried the load that it did offer.
    NotOffered,
    /// Void: the ports of the tester dropped received frames.
    NotRead,
    /// Void: the tester was late, which may explain the failure.
    Late,
    /// Void: a link was down, or the run was interrupted.
    Cut,
}

impl TrialOutcome {
    /// Returns true if the trial is a valid measurement of the device.
    #[must_use]
    pub const fn is_valid(self) -> bool {
        matches!(self, Self::Pass | Self::Fail | Self::Measured)
    }

    /// Name in JSON and tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Fail => "fail",
            Self::Measured => "measured",
            Self::NotOffered => "not-offered",
            Self::NotRead => "not-read",
            Self::Late => "late",
            Self::Cut => "cut",
        }
    }
}

/// One trial of a suite. Frames: tx = (rx − dup) + lost, for both directions together. Connections and requests: tx
/// counts started, rx completed and lost failed ones.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SuiteTrial {
    /// Number of the trial in the test, from 1.
    pub trial: u32,
    /// Purpose of the trial.
    pub purpose: TrialPurpose,
    /// Services: name of the service and of the step: `voice CIR 25 %`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub step: String,
    /// Frame sizes in the notation of the plan.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub size: String,
    /// Intended load in each direction, in the unit of the test; for bursts their length in frames.
    pub intended: f64,
    /// Intended load as a percentage of the maximum.
    pub intended_pct: Option<f64>,
    /// Offered load in each direction, as measured.
    pub offered: f64,
    /// Load that was received during the trial, in each direction.
    pub forwarded: f64,
    /// Duration of the load in seconds, without ramp-up and drain.
    pub duration_s: f64,
    /// Frames sent.
    pub tx: u64,
    /// Frames received, duplicates included.
    pub rx: u64,
    /// Frames lost.
    pub lost: u64,
    /// Lost ÷ sent, not rounded. For frames without `nic_drops`: the device lost at least this share.
    pub loss_ratio: f64,
    /// Duplicates received.
    pub dup: u64,
    /// Frames received after a later frame (out of order).
    pub ooo: u64,
    /// Unexpected frames received.
    pub foreign: u64,
    /// Frames intended but not sent; never counted as loss.
    pub unsent: u64,
    /// Frames dropped by the ports of the tester; never counted as loss of the device.
    pub nic_drops: u64,
    /// Delay, in ns.
    pub latency_ns: Summary,
    /// Delay variation D(i) − D(i−1), signed, in ns (RFC 3393).
    pub ipdv_ns: Summary,
    /// Delay variation D(i) − smallest D, in ns (RFC 5481).
    pub pdv_ns: Summary,
    /// Longest time without a received frame, in ns.
    pub longest_silence_ns: Option<i64>,
    /// Outcome of the trial.
    pub outcome: TrialOutcome,
    /// Reason for the outcome, one sentence.
    pub reason: String,
    /// Mix of IPv4 and IPv6: results of the frames of each version.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub families: Vec<FamilyFrames>,
    /// Increase of counters of the device and of the tester's ports.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub rose: BTreeMap<String, u64>,
    /// Modifier `management`: queries of the trial.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub management: Option<Queries>,
    /// Modifier `routing`: route updates sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub routing_updates: Option<u64>,
    /// Results of the other jobs that ran in the trial, one sentence each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub beside: Vec<String>,
    /// Lateness of the tester.
    #[serde(default)]
    pub lateness: Lateness,
    /// Further warnings about the trial.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// Trial of a load balancer: all counters. Such a trial has another form in JSON.
    #[serde(skip)]
    pub balancer: Option<Box<BalancerTrial>>,
}

impl SuiteTrial {
    /// Creates a trial without counters, with its intended load and its duration in seconds.
    #[must_use]
    pub fn new(purpose: TrialPurpose, intended: f64, duration_s: f64) -> Self {
        Self {
            trial: 0,
            purpose,
            step: String::new(),
            size: String::new(),
            intended,
            intended_pct: None,
            offered: 0.0,
            forwarded: 0.0,
            duration_s,
            tx: 0,
            rx: 0,
            lost: 0,
            loss_ratio: 0.0,
            dup: 0,
            ooo: 0,
            foreign: 0,
            unsent: 0,
            nic_drops: 0,
            latency_ns: Summary::default(),
            ipdv_ns: Summary::default(),
            pdv_ns: Summary::default(),
            longest_silence_ns: None,
            families: Vec::new(),
            outcome: TrialOutcome::Pass,
            reason: String::new(),
            rose: BTreeMap::new(),
            management: None,
            routing_updates: None,
            beside: Vec::new(),
            lateness: Lateness::default(),
            warnings: Vec::new(),
            balancer: None,
        }
    }

    /// Minimum number of frames that the device lost: lost frames less the drops of the tester's own ports.
    #[must_use]
    pub const fn lost_by_device(&self) -> u64 {
        self.lost.saturating_sub(self.nic_drops)
    }
}

/// Version of IP.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Family {
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
}

impl Family {
    /// Usual name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ipv4 => "IPv4",
            Self::Ipv6 => "IPv6",
        }
    }
}

/// Results of the frames of one IP version in a trial; tx = (rx − dup) + lost, for both directions together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FamilyFrames {
    /// IP version.
    pub family: Family,
    /// Offered load in each direction, in frames per second.
    pub offered_fps: f64,
    /// Received load in each direction, in frames per second.
    pub forwarded_fps: f64,
    /// Frames sent.
    pub tx: u64,
    /// Frames received, duplicates included.
    pub rx: u64,
    /// Frames lost.
    pub lost: u64,
    /// Duplicates received.
    pub dup: u64,
}

impl FamilyFrames {
    /// Loss ratio: lost ÷ sent.
    #[must_use]
    #[allow(clippy::cast_precision_loss)]
    pub fn loss_ratio(&self) -> f64 {
        match self.tx {
            0 => 0.0,
            tx => self.lost as f64 / tx as f64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(result: &SuiteResult, criterion: &str) -> Option<f64> {
        result.figure(&criterion.parse().unwrap())
    }

    fn of(test: SuiteTest) -> SuiteResult {
        SuiteResult::new(test, Quantity::Frames)
    }

    #[test]
    fn a_load_in_frames_and_bits() {
        let result = SuiteResult {
            limit: Some(1e6),
            throughput_fps: Some(1e6),
            throughput_l1_bps: Some(672e6),
            throughput_l2_bps: Some(512e6),
            theoretical_fps: Some(2e6),
            loss_goal: Some(0.0),
            ..of(SuiteTest::Throughput)
        };
        assert_eq!(figure(&result, "throughput>=1"), Some(1e6));
        assert_eq!(figure(&result, "throughput>=1mbps"), Some(672e6));
        assert_eq!(figure(&result, "throughput>=1mbps-l2"), Some(512e6));
        assert_eq!(figure(&result, "throughput>=1%"), Some(0.5));
        assert_eq!(figure(&result, "ndr>=1"), None);
        let mut goal = SuiteResult {
            test: SuiteTest::Ndr,
            ..result
        };
        assert_eq!(figure(&goal, "ndr>=1"), Some(1e6));
        assert_eq!(figure(&goal, "pdr>=1"), None);
        goal.loss_goal = Some(0.005);
        assert_eq!(figure(&goal, "ndr>=1"), None);
        assert_eq!(figure(&goal, "pdr>=1"), Some(1e6));
        assert_eq!(figure(&goal, "throughput>=1"), None);
        assert_eq!(figure(&goal, "cps>=1"), None);
    }

    #[test]
    fn a_load_of_connections() {
        let result = |of| SuiteResult {
            limit: Some(9.0),
            ..SuiteResult::new(SuiteTest::Ndr, of)
        };
        assert_eq!(figure(&result(Quantity::Cps), "cps>=1"), Some(9.0));
        assert_eq!(figure(&result(Quantity::Cps), "ndr>=1"), Some(9.0));
        assert_eq!(figure(&result(Quantity::Cps), "rps>=1"), None);
        assert_eq!(figure(&result(Quantity::Cc), "cc>=1"), Some(9.0));
        assert_eq!(figure(&result(Quantity::Rps), "rps>=1"), Some(9.0));
    }

    #[test]
    fn the_worst_load_and_the_worst_repetition() {
        let row = |p99: Option<i64>| LatencyRow {
            latency_ns: Summary {
                p99,
                ..Summary::default()
            },
            ..LatencyRow::default()
        };
        let mut result = of(SuiteTest::Latency);
        assert_eq!(figure(&result, "p99<=1ms"), None);
        result.latency = vec![row(Some(7)), row(Some(900)), row(Some(20))];
        assert_eq!(figure(&result, "p99<=1ms"), Some(900.0));
        assert_eq!(figure(&result, "loss<=1%"), None);
        result.latency.push(row(None));
        assert_eq!(figure(&result, "p99<=1ms"), None);

        let loss = |loss_pct| LossRow {
            loss_pct,
            ..LossRow::default()
        };
        let mut result = of(SuiteTest::Loss);
        result.curve = vec![loss(Some(25.0)), loss(Some(0.0))];
        assert_eq!(figure(&result, "loss<=1%"), Some(0.25));
        result.curve.push(loss(None));
        assert_eq!(figure(&result, "loss<=1%"), None);
        // The known values may already exceed the limit.
        assert_eq!(result.known(&"loss<=1%".parse().unwrap()), [0.25, 0.0]);

        let mut result = of(SuiteTest::Recovery);
        result.recovery = Some(RecoveryResult {
            seconds: vec![Some(0.5), Some(0.25)],
            average_s: Some(0.375),
            ..RecoveryResult::default()
        });
        assert_eq!(figure(&result, "recovery<=1s"), Some(0.5e9));
        // A failed recovery exceeds any limit.
        result.recovery.as_mut().unwrap().seconds.push(None);
        assert_eq!(figure(&result, "recovery<=1s"), None);
    }

    #[test]
    fn bursts_and_resets() {
        let mut result = of(SuiteTest::B2b);
        assert_eq!(figure(&result, "b2b>=1"), None);
        result.bursts = Some(BurstResult {
            average: 3048.0,
            min: 1,
            ..BurstResult::default()
        });
        assert_eq!(figure(&result, "b2b>=1"), Some(3048.0));
        // Only timestamps, because the link was down and loss is meaningless.
        let mut result = of(SuiteTest::Reset);
        let (by_loss_s, by_stamps_s) = (Some(2.0), Some(3.0));
        result.reset = Some(ResetResult {
            by_loss_s,
            by_stamps_s,
            ..ResetResult::default()
        });
        assert_eq!(figure(&result, "reset<=1s"), Some(2e9));
        result.reset.as_mut().unwrap().by_loss_s = None;
        assert_eq!(figure(&result, "reset<=1s"), Some(3e9));
    }
}
