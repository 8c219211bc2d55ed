//! Results of a load balancer benchmark.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{EndedTrial, LbMetric, SuiteTest, SuiteTrial, TrialPurpose, trial_form};
use crate::{lateness::Lateness, load::LoadTransport};

/// Progress of a running benchmark.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BenchLive {
    /// Metric being searched, of a load balancer benchmark.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metric: Option<LbMetric>,
    /// Test being run, of a suite.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub test: Option<SuiteTest>,
    /// Frame size with FCS, for loads of frames: `64`, `imix`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<String>,
    /// Frames per burst, if frames come in bursts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub burst: Option<u32>,
    /// Services: name of the service and of the step: `voice CIR 25 %`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// Number of the trial that runs or has just ended, from 1 in each search; 0 before the first.
    pub trial: u32,
    /// Purpose of the trial.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub purpose: Option<TrialPurpose>,
    /// Load of the trial.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load: Option<f64>,
    /// Unit of the load: `fps`, `cps`, `connections`, `rps`; for bursts `frames`; for frames of a load balancer `pps`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub unit: String,
    /// Highest load that has passed so far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub low: Option<f64>,
    /// Lowest load that has failed so far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub high: Option<f64>,
    /// Estimated remaining time in ns, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_ns: Option<u64>,
    /// Trial that has just ended.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "trial_form")]
    #[schemars(with = "Option<EndedTrial>")]
    pub ended: Option<Box<SuiteTrial>>,
}

/// Limit of a load balancer for one metric, in its JSON form.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct LbResult {
    /// Metric.
    pub metric: LbMetric,
    /// TCP or UDP.
    pub transport: LoadTransport,
    /// Frame size with FCS in bytes, for metrics of frames.
    pub size: Option<u16>,
    /// Concurrent flows, for metrics of frames.
    pub flows: Option<u64>,
    /// Unit of the limit: `pps`, `bps`, `cps` or `connections`.
    pub unit: String,
    /// Highest load that passed, in `unit`: `twoway-pps` counts both directions, `bps` is layer 2 with FCS. Absent if
    /// no load passed.
    pub limit: Option<f64>,
    /// Reason why the limit is not higher.
    pub limited_by: LbLimit,
    /// True if the limit passed a trial of full length.
    pub confirmed: bool,
    /// Metrics of frames: bits per second at layer 2 with FCS, both directions together.
    pub l2_bps: Option<f64>,
    /// Lowest load that failed, in `unit`.
    pub beyond: Option<f64>,
    /// `cps`: time after which addresses and ports are reused at this limit, in seconds.
    pub reuse_s: Option<f64>,
    /// All trials, in order.
    pub trials: Vec<LbTrial>,
    /// Index of the trial that shows the limit.
    pub best_trial: Option<usize>,
    /// Reason why there is no limit although the device may have one: the tester was late in every repetition of a
    /// trial.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub late: Option<String>,
}

/// Reason why a result is not higher.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LbLimit {
    /// The device reached its limit.
    Device,
    /// The tester reached its limit: the device's limit is at least this value.
    Tester,
    /// The plan requests no more, or has no more addresses and ports: the device's limit is at least this value.
    Plan,
    /// Trials or time ran out during the search: the device's limit is at least this value.
    Time,
}

/// Purpose of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LbPurpose {
    /// Searches the limit.
    Search,
    /// Confirms the result.
    Confirm,
}

/// Outcome of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LbOutcome {
    /// Pass: the device carried the load.
    Held,
    /// Fail: the device did not carry the load.
    Broke,
    /// Void: the tester could not offer the whole load, and the device carried what was offered.
    Unoffered,
    /// Void: the tester could not receive the load.
    Unread,
    /// Void, and repeated: the tester was late, which may explain the failure.
    Late,
    /// Void: a link of the tester was down, or the run ended early.
    Cut,
}

/// One trial, in its JSON form.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LbTrial {
    /// Purpose of the trial.
    pub purpose: LbPurpose,
    /// Intended load: frames per second in one direction, connections per second, or connections.
    pub asked: f64,
    /// Offered load as measured.
    pub offered: f64,
    /// Outcome of the trial.
    pub outcome: LbOutcome,
    /// Reason for the outcome, one sentence.
    pub reason: String,
    /// Time at the full rate, in seconds.
    pub seconds: f64,
    /// Counters of the tester.
    pub ours: LbOurs,
    /// Counters of the device.
    pub device: LbDeviceTrial,
    /// Lateness of the tester.
    #[serde(default)]
    pub lateness: Lateness,
    /// Further warnings about the trial.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// Counters of the tester in a trial. Frames: sent = received + lost + tester_dropped, for each direction and therefore
/// for their sum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LbOurs {
    /// Frames sent by both sides.
    pub sent_frames: u64,
    /// Frames received by both sides.
    pub received_frames: u64,
    /// Frames towards the servers that did not leave the device.
    pub lost_frames: u64,
    /// Frames towards the clients that did not leave the device.
    pub lost_answer_frames: u64,
    /// Frames dropped by the ports of the tester; never counted as loss of the device.
    pub tester_dropped_frames: u64,
    /// Connections started; attempted = completed + failed + open.
    pub attempted: u64,
    /// Connections with a completed handshake; over UDP, with a response.
    pub established: u64,
    /// Connections that exchanged all messages and were closed.
    pub completed: u64,
    /// Connections that timed out or were refused.
    pub failed: u64,
    /// Connections open at the end.
    pub open: u64,
    /// Maximum number of concurrent connections, at the end of the full rate.
    pub held: u64,
    /// Retransmitted segments.
    pub retransmitted: u64,
    /// Connections or requests that were due but not sent.
    pub unsent: u64,
    /// Requests sent.
    pub requests: u64,
    /// Responses received.
    pub responses: u64,
    /// 99th percentile of the time from a request to its response, in ns; only if there are responses.
    pub p99_ns: Option<i64>,
    /// Share of its time in which the busiest worker of the tester had work to do, 0 to 1.
    pub busy: f64,
}

/// Counters of the device in a trial.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LbDeviceTrial {
    /// Increase of its counters; names are PROBE.COUNTER. A counter that fell was reset and is omitted.
    pub rose: BTreeMap<String, u64>,
    /// Maximum observed values of its gauges.
    pub peak: BTreeMap<String, u64>,
    /// Device counters with an equivalent counter of the tester.
    pub beside: BTreeMap<String, CounterPair>,
    /// Number of reads during the trial.
    pub readings: u32,
    /// Number of reads that failed.
    pub failed_readings: u32,
}

/// Equivalent counters of the tester and of the device.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CounterPair {
    /// Counter of the tester.
    pub ours: u64,
    /// Counter of the device.
    pub device: u64,
    /// Ratio of device to tester; absent if the tester's counter is 0.
    pub ratio: Option<f64>,
}

impl CounterPair {
    /// Creates a pair with its ratio.
    #[must_use]
    pub fn new(ours: u64, device: u64) -> Self {
        Self {
            ours,
            device,
            ratio: (ours > 0).then(|| device as f64 / ours as f64),
        }
    }
}

/// Results of a probe.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProbeReport {
    /// First word of the counter names.
    pub name: String,
    /// Command, and where it ran.
    pub command: String,
    /// Number of reads.
    pub readings: u64,
    /// Number of reads that failed.
    pub failures: u64,
    /// Error of the last failed read.
    pub last_failure: Option<String>,
    /// Counters before the first frame.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub before: BTreeMap<String, u64>,
    /// Counters after the last frame.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub after: BTreeMap<String, u64>,
    /// Maximum observed value of each gauge.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub highest: BTreeMap<String, u64>,
}
