//! Results of a test suite.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{FilterCondition, LbLimit, LbResult, LbTrial, Quantity, SuiteTest};
use crate::{
    lateness::Lateness,
    report::{Summary, Verdict},
};

/// Result of a benchmark.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum BenchResult {
    /// Limit of a load balancer.
    Lb(Box<LbResult>),
    /// Test of a suite at one frame size.
    Suite(Box<SuiteResult>),
}

/// Trial that has just ended.
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
        }
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
}

impl SuiteTrial {
    /// Minimum number of frames that the device lost: lost frames less the drops of the tester's own ports.
    #[must_use]
    pub const fn lost_by_device(&self) -> u64 {
        self.lost.saturating_sub(self.nic_drops)
    }
}

/// Result of MLRsearch for one goal (RFC 9971).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MlrResult {
    /// Largest load that is a lower bound: `limit`.
    pub relevant_lower_bound: Option<f64>,
    /// Smallest load that is an upper bound: `beyond`.
    pub relevant_upper_bound: Option<f64>,
    /// Relative width of the bounds: (upper − lower) ÷ upper.
    pub relative_width: Option<f64>,
    /// Conditional throughput of the lower bound.
    pub conditional_throughput: Option<f64>,
    /// Reason why the result is irregular: no upper or no lower bound was found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub irregular: Option<String>,
    /// All loads, the lowest first.
    #[serde(default)]
    pub loads: Vec<MlrLoad>,
}

/// MLRsearch statistics of one load for one goal, with total durations in seconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MlrLoad {
    /// Load.
    pub load: f64,
    /// Number of trials at the load.
    pub trials: u32,
    /// Total duration of full-length trials that met the loss ratio.
    pub low_full_s: f64,
    /// Total duration of full-length trials that exceeded the loss ratio.
    pub high_full_s: f64,
    /// Total duration of short trials that met the loss ratio.
    pub low_short_s: f64,
    /// Total duration of short trials that exceeded the loss ratio.
    pub high_short_s: f64,
    /// Classification: `lower`, `upper` or `undecided`.
    pub class: String,
}

/// Delay at one load.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LatencyRow {
    /// Load as a share of the throughput.
    pub load: f64,
    /// Load in the unit of the test.
    pub offered: f64,
    /// Definition of the delay: store-and-forward, with timestamps at both ends.
    pub definition: String,
    /// Source of the timestamps.
    pub stamp_source: String,
    /// Number of measured streams.
    pub repetitions: u32,
    /// Typical latency of RFC 8219, in ns: median over the streams of their median.
    pub typical_ns: Option<f64>,
    /// Worst-case latency of RFC 8219, in ns: median over the streams of their 99.9th percentile.
    pub worst_ns: Option<f64>,
    /// Delays of the stream with the median of all medians.
    pub latency_ns: Summary,
    /// Spread of the streams' medians: (largest − smallest) ÷ mean; absent for one stream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p50_spread: Option<f64>,
    /// Spread of the streams' 99th percentiles; absent for one stream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99_spread: Option<f64>,
    /// Median over the streams of the 99.9th percentile of D(i) − smallest D, in ns (RFC 5481, RFC 8219).
    pub pdv_ns: Option<f64>,
    /// Delay variation D(i) − D(i−1) of the stream in `latency_ns` (RFC 3393).
    pub ipdv_ns: Summary,
    /// Frames lost at this load, in all streams.
    pub lost: u64,
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

/// Loss at one load.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LossRow {
    /// Load as a percentage of the maximum.
    pub load_pct: f64,
    /// Load in the unit of the test.
    pub offered: f64,
    /// Loss in per cent: lost ÷ sent; absent if the trial is void.
    pub loss_pct: Option<f64>,
    /// Mix of IPv4 and IPv6: results of the frames of each version.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub families: Vec<FamilyFrames>,
}

/// Forwarding rates above the throughput (RFC 2889 section 5.6.1, RFC 2285 section 3.6). Rates and loads are per
/// direction.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MfrResult {
    /// Maximum forwarding rate (MFR), in frames per second.
    pub rate_fps: f64,
    /// Lowest load with the maximum forwarding rate, in frames per second.
    pub load_fps: f64,
    /// Maximum forwarding rate in bits per second with FCS, preamble and gap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_l1_bps: Option<f64>,
    /// Maximum forwarding rate in bits per second with FCS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_l2_bps: Option<f64>,
    /// Forwarding rate at the maximum offered load (FRMOL), in frames per second; absent if that trial is void.
    pub frmol_fps: Option<f64>,
    /// Maximum offered load (MOL), in frames per second.
    pub max_offered_fps: Option<f64>,
    /// All loads, the lowest first.
    pub rows: Vec<MfrRow>,
}

/// Forwarding rate at one load.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MfrRow {
    /// Load as a percentage of the maximum.
    pub load_pct: f64,
    /// Offered load as measured, in frames per second.
    pub offered_fps: f64,
    /// Forwarding rate in frames per second; absent if the trial is void.
    pub forwarded_fps: Option<f64>,
}

/// Loss and delay of frames at one load, without a limit.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ImpactRow {
    /// Load as a percentage of the maximum.
    pub load_pct: f64,
    /// Load in each direction, in frames per second.
    pub offered_fps: f64,
    /// Frames sent in both directions.
    pub tx: u64,
    /// Frames lost; absent if the trial is void.
    pub lost: Option<u64>,
    /// Loss in per cent: lost ÷ sent, without frames dropped by the tester's ports.
    pub loss_pct: Option<f64>,
    /// Delay in ns; with two directions, of the direction with the longer delay.
    pub latency_ns: Summary,
    /// Increase of counters of the device and of the tester's ports.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub rose: BTreeMap<String, u64>,
    /// Reason why the trial is void; empty if it is valid.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub void: String,
}

/// Back-to-back frames (RFC 9004).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BurstResult {
    /// Longest burst without loss of each search, in frames.
    pub lengths: Vec<u64>,
    /// Benchmark: mean of the lengths.
    pub average: f64,
    /// Minimum of the lengths.
    pub min: u64,
    /// Maximum of the lengths.
    pub max: u64,
    /// Standard deviation of the lengths.
    pub stddev: f64,
    /// Maximum difference between the longest burst that passed and the shortest that failed, in frames.
    pub resolution: u64,
    /// Longest burst that may be tried, in frames.
    pub longest: u64,
    /// Rate of the frames of a burst, in frames per second: line rate, or the rate that the tester reaches.
    pub burst_fps: f64,
    /// Throughput at this size, in frames per second.
    pub throughput_fps: Option<f64>,
    /// Implied buffer time in seconds: average ÷ rate.
    pub implied_s: f64,
    /// Corrected buffer time in seconds: implied × (1 − throughput ÷ rate) (RFC 9004 section 6.4).
    pub corrected_s: Option<f64>,
    /// Buffer size in frames: corrected × rate.
    pub buffer_frames: Option<f64>,
}

/// System recovery (RFC 2544 section 26.5).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RecoveryResult {
    /// Overload, in frames per second.
    pub overload_fps: f64,
    /// Half of the overload, in frames per second.
    pub half_fps: f64,
    /// Time from the reduction of the load to the last lost frame for each repetition, in seconds; null if the device
    /// did not recover.
    pub seconds: Vec<Option<f64>>,
    /// Mean of the repetitions that recovered.
    pub average_s: Option<f64>,
    /// Minimum of the repetitions that recovered.
    pub min_s: Option<f64>,
    /// Maximum of the repetitions that recovered.
    pub max_s: Option<f64>,
}

/// Reset (RFC 6201).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ResetResult {
    /// Kind of reset, from the plan.
    pub kind: String,
    /// Command that reset the device.
    pub trigger: String,
    /// Load, in frames per second.
    pub offered_fps: f64,
    /// Frames lost due to the reset; with two directions, of the direction that lost more.
    #[serde(default)]
    pub lost: u64,
    /// Reset time by the frame-loss method (section 4.1), in seconds: lost ÷ load.
    pub by_loss_s: Option<f64>,
    /// Reset time by the time-stamp method (section 4.1), in seconds: from the last frame before the reset to the first
    /// after it.
    pub by_stamps_s: Option<f64>,
    /// Time without a received frame at the end, in seconds, if the device did not forward again while the tester
    /// waited. Then the two reset times are absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_again_s: Option<f64>,
}

/// One step of a service (ITU-T Y.1564).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ServiceStep {
    /// Name of the service.
    pub service: String,
    /// Name of the step: `CIR 25 %`, `CIR + EIR`, `policing`, `performance`.
    pub step: String,
    /// Offered rate at layer 2 with FCS, in bits per second.
    pub offered_bps: f64,
    /// Received information rate at layer 2 with FCS, in bits per second.
    pub received_bps: f64,
    /// Frame loss ratio.
    pub loss_ratio: f64,
    /// Mean frame delay, in ns.
    pub delay_ns: Option<f64>,
    /// Maximum frame delay, in ns.
    pub delay_max_ns: Option<i64>,
    /// Frame delay variation, in ns: the longest less the shortest delay.
    pub variation_ns: Option<i64>,
    /// Duration of the step in seconds; for an interrupted step, until the interruption.
    #[serde(default)]
    pub duration_s: f64,
    /// Availability in a performance test of at least 10 s: share of its time in which the service was available.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub availability: Option<f64>,
    /// True if the step meets the criteria of the service.
    pub passed: bool,
    /// True if the trial is void: the criteria are neither met nor missed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub void: bool,
    /// Reason for the result.
    pub reason: String,
}

/// Verdict of a service over all its steps (ITU-T Y.1564).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ServiceResult {
    /// Name of the service.
    pub service: String,
    /// `pass`: all steps meet the criteria; `fail`: at least one does not; `invalid`: none fails, and at least one is
    /// void; `incomplete`: none fails, and some were not run.
    pub verdict: Verdict,
    /// Number of steps run.
    pub steps: u32,
    /// Number of steps that passed.
    pub passed: u32,
    /// Reason for the verdict, one sentence.
    pub reason: String,
}
