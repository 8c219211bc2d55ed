//! What a suite of tests found.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{FilterCondition, LbLimit, LbResult, LbTrial, Quantity, SuiteTest};
use crate::{
    lateness::Lateness,
    report::{Summary, Verdict},
};

/// One result of a benchmark.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum BenchResult {
    /// A limit of a load balancer.
    Lb(Box<LbResult>),
    /// A test of a suite at one frame size.
    Suite(Box<SuiteResult>),
}

/// A trial that has just ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum EndedTrial {
    /// Of a benchmark of a load balancer.
    Lb(Box<LbTrial>),
    /// Of a suite.
    Suite(Box<SuiteTrial>),
}

/// One test at one frame size: what was found, how, and all trials.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct SuiteResult {
    /// Which test.
    pub test: SuiteTest,
    /// The goal of MLRsearch, by its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub goal: Option<String>,
    /// What the load is.
    pub of: Quantity,
    /// The unit of loads: `fps`, `cps`, `connections` or `rps`.
    pub unit: String,
    /// Frame sizes as the plan has them: `64`, `imix`; of loads that are no frames empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub size: String,
    /// The share of frames that are of IPv6, where there are runs with several: then `size` has it too (`512 10% IPv6`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ipv6_share: Option<f64>,
    /// Modifier `bursts`: how its frames came, and the gap that was found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub burst: Option<BurstGap>,
    /// Mean frame size with FCS, bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mean_size: Option<f64>,
    /// Directions in which frames go at the same time, each with the load that is told: 1 or 2.
    pub directions: u32,
    /// Frames per second that the link carries at this size (line rate ÷ ((size + 20) × 8)); absent where no wire
    /// sets its speed.
    pub theoretical_fps: Option<f64>,
    /// The most that the tester was found to do by itself, in `unit`.
    pub tester_ceiling: Option<f64>,
    /// The same of frames.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tester_ceiling_fps: Option<f64>,
    /// The largest load that the search might try, in `unit`.
    pub maximum: Option<f64>,
    /// The highest load that held, in `unit` and in each direction; of `mfr` the highest forwarding rate. Absent: none
    /// did, or the test finds none.
    pub limit: Option<f64>,
    /// The same of frames: the throughput of RFC 1242 where the loss goal is 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throughput_fps: Option<f64>,
    /// The same in bits per second with FCS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throughput_l2_bps: Option<f64>,
    /// The same with FCS, preamble and gap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throughput_l1_bps: Option<f64>,
    /// The loss ratio up to which a load passes.
    pub loss_goal: Option<f64>,
    /// The least load above it that did not hold, in `unit`.
    pub beyond: Option<f64>,
    /// What kept it from being higher; absent for tests that find no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limited_by: Option<LbLimit>,
    /// The tester was the limit: the device's is at least this.
    pub tester_limit: bool,
    /// It held in a trial of full length.
    pub confirmed: bool,
    /// Trials that were made, those that were void included. Of a goal those that were made for its sake and say
    /// something of the device: all goals share them.
    pub trials: u32,
    /// How long these trials were together, seconds.
    pub trial_seconds: f64,
    /// The test says nothing, and why: not applicable, not made, broken off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_measured: Option<String>,
    /// It was ended before it had come to its end.
    #[serde(default)]
    pub incomplete: bool,
    /// How far results of repeated measurements of the same differ: (largest − smallest) ÷ mean, where some were
    /// made. `bench compare` takes it for the repeatability.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spread: Option<f64>,
    /// Of a mix of IPv4 and IPv6, what became of the frames of each in the trial at the limit.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub families: Vec<FamilyFrames>,
    /// What MLRsearch found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mlr: Option<MlrResult>,
    /// Delay and its variation, a row for each load.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub latency: Vec<LatencyRow>,
    /// Loss by load, the largest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub curve: Vec<LossRow>,
    /// Forwarding rates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mfr: Option<MfrResult>,
    /// Loss and delay, a row for each load.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub impact: Vec<ImpactRow>,
    /// Bursts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bursts: Option<BurstResult>,
    /// Recovery.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recovery: Option<RecoveryResult>,
    /// Reset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reset: Option<ResetResult>,
    /// Steps of a service.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<ServiceStep>,
    /// What each service came to, all its steps together.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub services: Vec<ServiceResult>,
    /// Modifier `filters`: the conditions that the device was to have, in order; the first that is about a frame decides,
    /// and what none is about is denied.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub filter: Vec<FilterCondition>,
    /// Modifier `management`: the queries of all its trials.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub management: Option<Queries>,
    /// Modifier `routing`: the updates of all its trials.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub routing_updates: Option<u64>,
    /// What must be known to read it, a sentence each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// All trials, in order.
    pub trial_log: Vec<SuiteTrial>,
}

impl SuiteResult {
    /// A test that has not measured anything yet.
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

/// Queries of SNMP to the device itself: sent = answered + errors + unanswered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Queries {
    /// Sent.
    pub sent: u64,
    /// Answered with the request id of the query and a value.
    pub answered: u64,
    /// Answered with an error, or without a value.
    pub errors: u64,
    /// Not answered within a second, or by the end.
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

/// Frames in bursts, and how near to each other bursts may be (RFC 2544 section 21).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BurstGap {
    /// Frames of a burst.
    pub frames: u32,
    /// Rate of the frames of a burst, frames per second: line rate, or what the tester was found to offer where that is
    /// less. Absent where neither is known.
    pub burst_fps: Option<f64>,
    /// From the first frame of a burst to the first of the next at the limit, us. Absent: no load held.
    pub period_us: Option<f64>,
    /// From the end of a burst to the begin of the next at the limit, us: the period less frames ÷ `burst_fps`. 0: they
    /// may follow each other without a pause.
    pub gap_us: Option<f64>,
}

/// What a trial of a suite was for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum TrialPurpose {
    /// To find what the tester can do.
    Ceiling,
    /// To wake the device; nothing is concluded from it.
    WarmUp,
    /// To find the way.
    Search,
    /// To prove a result.
    Confirm,
    /// To measure what the test is about: delay, loss at a load, a burst, recovery, reset, a step.
    Measure,
}

/// How a trial of a suite came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum TrialOutcome {
    /// No more was lost than the goal allows.
    Pass,
    /// More was.
    Fail,
    /// Nothing was claimed of the loss: what came through is what was to be learned.
    Measured,
    /// Void: the tester could not offer the load; what it offered was carried.
    NotOffered,
    /// Void: frames came to our ports and found no room there.
    NotRead,
    /// Void: the tester was late, which may be all that went wrong.
    Late,
    /// Void: a link was down, or the run was broken off.
    Cut,
}

impl TrialOutcome {
    /// Whether it says something of the device.
    #[must_use]
    pub const fn is_valid(self) -> bool {
        matches!(self, Self::Pass | Self::Fail | Self::Measured)
    }

    /// The word in JSON and tables.
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

/// One trial of a suite. Frames: tx = (rx − dup) + lost, of both directions together; of connections and requests
/// tx are those begun, rx those completed, lost those that failed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SuiteTrial {
    /// Its number in the test, from 1.
    pub trial: u32,
    /// What for.
    pub purpose: TrialPurpose,
    /// Of services: whose step it is, and which: `voice CIR 25 %`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub step: String,
    /// Frame sizes as the plan has them.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub size: String,
    /// The load that was asked for in each direction, in the unit of the test; of bursts their frames.
    pub intended: f64,
    /// The same as a share of the maximum, per cent.
    pub intended_pct: Option<f64>,
    /// The load that was really offered in each direction.
    pub offered: f64,
    /// What came through in the time of the trial, in each direction.
    pub forwarded: f64,
    /// How long it was offered, seconds; without ramp and drain.
    pub duration_s: f64,
    /// Sent.
    pub tx: u64,
    /// Received, duplicates included.
    pub rx: u64,
    /// Lost.
    pub lost: u64,
    /// Lost ÷ sent, not rounded. Of frames without those that found no room in our ports (`nic_drops`): the device lost
    /// at least this.
    pub loss_ratio: f64,
    /// Received again.
    pub dup: u64,
    /// Received after a later one (out of order).
    pub ooo: u64,
    /// Not ours.
    pub foreign: u64,
    /// Asked for and not sent; never loss.
    pub unsent: u64,
    /// Came to our ports and found no room there; never loss.
    pub nic_drops: u64,
    /// Delay, ns.
    pub latency_ns: Summary,
    /// D(i) − D(i−1), signed, ns (RFC 3393).
    pub ipdv_ns: Summary,
    /// D(i) − smallest D, ns (RFC 5481).
    pub pdv_ns: Summary,
    /// The longest time in which nothing arrived, ns.
    pub longest_silence_ns: Option<i64>,
    /// How it came out.
    pub outcome: TrialOutcome,
    /// Why, in a sentence.
    pub reason: String,
    /// Of a mix of IPv4 and IPv6, what became of the frames of each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub families: Vec<FamilyFrames>,
    /// By how much counters of the device and of our ports rose.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub rose: BTreeMap<String, u64>,
    /// Modifier `management`: its queries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub management: Option<Queries>,
    /// Modifier `routing`: updates of routes that were sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub routing_updates: Option<u64>,
    /// How the jobs beside it did, a sentence each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub beside: Vec<String>,
    /// How late the tester was.
    #[serde(default)]
    pub lateness: Lateness,
    /// What else is to be known of it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

impl SuiteTrial {
    /// Frames that the device lost at the least: those that are missing, less those that our own ports dropped.
    #[must_use]
    pub const fn lost_by_device(&self) -> u64 {
        self.lost.saturating_sub(self.nic_drops)
    }
}

/// What MLRsearch found for one goal (RFC 9971).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MlrResult {
    /// The largest load that is a lower bound: `limit`.
    pub relevant_lower_bound: Option<f64>,
    /// The smallest load that is an upper bound: `beyond`.
    pub relevant_upper_bound: Option<f64>,
    /// (upper − lower) ÷ upper.
    pub relative_width: Option<f64>,
    /// The conditional throughput of the lower bound.
    pub conditional_throughput: Option<f64>,
    /// Why the result is irregular: no upper or no lower bound was found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub irregular: Option<String>,
    /// All loads, the smallest first.
    #[serde(default)]
    pub loads: Vec<MlrLoad>,
}

/// What MLRsearch knows of one load for one goal; sums of durations in seconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MlrLoad {
    /// The load.
    pub load: f64,
    /// Trials at it.
    pub trials: u32,
    /// Of trials of full length that met the loss ratio.
    pub low_full_s: f64,
    /// Of those that did not.
    pub high_full_s: f64,
    /// Of short trials that met it.
    pub low_short_s: f64,
    /// Of those that did not.
    pub high_short_s: f64,
    /// `lower`, `upper` or `undecided`.
    pub class: String,
}

/// Delay at one load.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LatencyRow {
    /// The load as a share of the throughput.
    pub load: f64,
    /// The load in the unit of the test.
    pub offered: f64,
    /// What is measured: store-and-forward, by stamps of both ends.
    pub definition: String,
    /// Who took the stamps.
    pub stamp_source: String,
    /// Streams that were measured.
    pub repetitions: u32,
    /// Median over the streams of their median: typical latency of RFC 8219, ns.
    pub typical_ns: Option<f64>,
    /// Median over the streams of their 99.9th percentile: worst-case latency of RFC 8219, ns.
    pub worst_ns: Option<f64>,
    /// Delays of the stream whose median is the median of them all.
    pub latency_ns: Summary,
    /// (largest − smallest) ÷ mean of the streams' medians; absent for one stream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p50_spread: Option<f64>,
    /// The same of their 99th percentiles.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99_spread: Option<f64>,
    /// Median over the streams of the 99.9th percentile of D(i) − smallest D, ns (RFC 5481, RFC 8219).
    pub pdv_ns: Option<f64>,
    /// D(i) − D(i−1) of that stream (RFC 3393).
    pub ipdv_ns: Summary,
    /// Frames lost at this load, in all streams.
    pub lost: u64,
}

/// A version of IP.
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
    /// As it is written.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ipv4 => "IPv4",
            Self::Ipv6 => "IPv6",
        }
    }
}

/// What became of the frames of one IP version in a trial; tx = (rx − dup) + lost, of both directions together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FamilyFrames {
    /// Which.
    pub family: Family,
    /// Offered in each direction, frames per second.
    pub offered_fps: f64,
    /// What came through, in each direction, frames per second.
    pub forwarded_fps: f64,
    /// Sent.
    pub tx: u64,
    /// Received, duplicates included.
    pub rx: u64,
    /// Lost.
    pub lost: u64,
    /// Received again.
    pub dup: u64,
}

impl FamilyFrames {
    /// Lost ÷ sent.
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
    /// The load as a share of the maximum, per cent.
    pub load_pct: f64,
    /// The load in the unit of the test.
    pub offered: f64,
    /// Lost ÷ sent, per cent; absent where the trial says nothing of the device.
    pub loss_pct: Option<f64>,
    /// Of a mix of IPv4 and IPv6, what became of the frames of each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub families: Vec<FamilyFrames>,
}

/// Forwarding rates above the throughput (RFC 2889 section 5.6.1, RFC 2285 section 3.6); rates and loads in each
/// direction.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MfrResult {
    /// The highest forwarding rate (MFR), frames per second.
    pub rate_fps: f64,
    /// The load at which it was seen, frames per second; of equals the least.
    pub load_fps: f64,
    /// The same rate in bits per second with FCS, preamble and gap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_l1_bps: Option<f64>,
    /// The same with FCS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_l2_bps: Option<f64>,
    /// The forwarding rate at the maximum offered load (FRMOL), frames per second; absent where that trial says nothing.
    pub frmol_fps: Option<f64>,
    /// The maximum offered load (MOL), frames per second.
    pub max_offered_fps: Option<f64>,
    /// All loads, the smallest first.
    pub rows: Vec<MfrRow>,
}

/// The forwarding rate at one load.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MfrRow {
    /// The load as a share of the maximum, per cent.
    pub load_pct: f64,
    /// What was really offered, frames per second.
    pub offered_fps: f64,
    /// What came through, frames per second; absent where the trial does not tell.
    pub forwarded_fps: Option<f64>,
}

/// What frames at one load suffer; no limit follows from it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ImpactRow {
    /// The load as a share of the maximum, per cent.
    pub load_pct: f64,
    /// The load in each direction, frames per second.
    pub offered_fps: f64,
    /// Sent, in both directions.
    pub tx: u64,
    /// Lost; absent where the trial says nothing of the device.
    pub lost: Option<u64>,
    /// Lost ÷ sent, per cent, of frames that found no room in our ports none.
    pub loss_pct: Option<f64>,
    /// Delay, ns; of two directions that in which it was longer.
    pub latency_ns: Summary,
    /// By how much counters of the device and of our ports rose.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub rose: BTreeMap<String, u64>,
    /// Why it says nothing of the device.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub void: String,
}

/// Back-to-back frames (RFC 9004).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BurstResult {
    /// The longest burst without loss of each search, frames.
    pub lengths: Vec<u64>,
    /// Their mean: the benchmark.
    pub average: f64,
    /// The shortest.
    pub min: u64,
    /// The longest.
    pub max: u64,
    /// Their standard deviation.
    pub stddev: f64,
    /// Frames between the longest that passed and the shortest that failed.
    pub resolution: u64,
    /// No longer burst was tried.
    pub longest: u64,
    /// Rate of the frames of a burst, frames per second: line rate, or what the tester makes of it.
    pub burst_fps: f64,
    /// Throughput at this size, frames per second.
    pub throughput_fps: Option<f64>,
    /// Average ÷ rate, seconds.
    pub implied_s: f64,
    /// Implied × (1 − throughput ÷ rate), seconds (RFC 9004 section 6.4).
    pub corrected_s: Option<f64>,
    /// The buffer in frames: corrected × rate.
    pub buffer_frames: Option<f64>,
}

/// System recovery (RFC 2544 section 26.5).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RecoveryResult {
    /// The overload, frames per second.
    pub overload_fps: f64,
    /// Half of it.
    pub half_fps: f64,
    /// From the reduction to the last frame that was lost, seconds, of each repetition; none: it did not recover.
    pub seconds: Vec<Option<f64>>,
    /// The mean of those that recovered.
    pub average_s: Option<f64>,
    /// The shortest.
    pub min_s: Option<f64>,
    /// The longest.
    pub max_s: Option<f64>,
}

/// Reset (RFC 6201).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ResetResult {
    /// What kind of reset, as the plan has it.
    pub kind: String,
    /// The command.
    pub trigger: String,
    /// The load, frames per second.
    pub offered_fps: f64,
    /// Frames lost for it; of two directions those of the one that lost more.
    #[serde(default)]
    pub lost: u64,
    /// Lost ÷ load: the frame-loss method (section 4.1), seconds.
    pub by_loss_s: Option<f64>,
    /// From the last frame before to the first after it: the time-stamp method (section 4.1), seconds.
    pub by_stamps_s: Option<f64>,
    /// It did not forward again for as long as it was waited: how long nothing had come at the end, seconds. Then
    /// there are no other times.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_again_s: Option<f64>,
}

/// One step of a service (ITU-T Y.1564).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ServiceStep {
    /// The service.
    pub service: String,
    /// `CIR 25 %`, `CIR + EIR`, `policing`, `performance`.
    pub step: String,
    /// Offered, layer 2 with FCS, bits per second.
    pub offered_bps: f64,
    /// Information rate received, layer 2 with FCS, bits per second.
    pub received_bps: f64,
    /// Frame loss ratio.
    pub loss_ratio: f64,
    /// Frame delay: mean, ns.
    pub delay_ns: Option<f64>,
    /// Frame delay: the longest, ns.
    pub delay_max_ns: Option<i64>,
    /// Frame delay variation: longest less shortest, ns.
    pub variation_ns: Option<i64>,
    /// How long it was, seconds; of one that was broken off, how long it had been.
    #[serde(default)]
    pub duration_s: f64,
    /// Availability, of a performance test of 10 s at least: the share of its time in which the service was available.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub availability: Option<f64>,
    /// Whether it meets what the service promises.
    pub passed: bool,
    /// The trial says nothing of the device: it is neither met nor missed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub void: bool,
    /// Why not, or that it does.
    pub reason: String,
}

/// What a service came to (ITU-T Y.1564): the verdict over all its steps.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ServiceResult {
    /// The service.
    pub service: String,
    /// `pass`: all steps show what it promises; `fail`: one does not; `invalid`: none fails, and one is void;
    /// `incomplete`: none fails, and some were not made.
    pub verdict: Verdict,
    /// Steps that were made.
    pub steps: u32,
    /// Those of them that passed.
    pub passed: u32,
    /// Why, in a sentence.
    pub reason: String,
}
