//! What a benchmark of a load balancer found.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{EndedTrial, LbMetric, SuiteTest, TrialPurpose};
use crate::{lateness::Lateness, load::LoadTransport};

/// How a benchmark goes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BenchLive {
    /// What is searched, of a load balancer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metric: Option<LbMetric>,
    /// Which test is made, of a suite.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub test: Option<SuiteTest>,
    /// Frame size with FCS, of loads of frames: `64`, `imix`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<String>,
    /// Frames of a burst, where they come in bursts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub burst: Option<u32>,
    /// Of services: whose step is made, and which: `voice CIR 25 %`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// The trial that runs or has just ended, counted from 1 in each search; 0 before the first.
    pub trial: u32,
    /// What the trial is for, of a suite.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub purpose: Option<TrialPurpose>,
    /// The load that is tried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load: Option<f64>,
    /// Its unit: `fps`, `cps`, `connections`, `rps`; of bursts `frames`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub unit: String,
    /// The highest load that has held so far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub low: Option<f64>,
    /// The least that has not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub high: Option<f64>,
    /// The time that the rest will take, as far as it can be told, ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_ns: Option<u64>,
    /// The trial that has just ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<EndedTrial>,
}

/// One limit.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct LbResult {
    /// Which.
    pub metric: LbMetric,
    /// TCP or UDP.
    pub transport: LoadTransport,
    /// Frame size with FCS, of metrics of frames.
    pub size: Option<u16>,
    /// Flows at a time, of metrics of frames.
    pub flows: Option<u64>,
    /// `pps`, `bps`, `cps` or `connections`.
    pub unit: String,
    /// The highest load that held, in that unit: `twoway-pps` counts both directions, `bps` is layer 2
    /// with FCS. Absent: none did.
    pub limit: Option<f64>,
    /// What kept it from being higher.
    pub limited_by: LbLimit,
    /// It held in a trial of full length too.
    pub confirmed: bool,
    /// Bits per second at layer 2 with FCS, both directions together, of metrics of frames.
    pub l2_bps: Option<f64>,
    /// The least load that did not hold, in `unit`.
    pub beyond: Option<f64>,
    /// Seconds after which addresses and ports come again at this limit, of `cps`.
    pub reuse_s: Option<f64>,
    /// All trials, in order.
    pub trials: Vec<LbTrial>,
    /// Which of them shows the limit.
    pub best_trial: Option<usize>,
    /// Why there is no limit though the device may have one: the tester was late in every repetition of
    /// a trial.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub late: Option<String>,
}

/// What kept a result from being higher.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LbLimit {
    /// The device gave way.
    Device,
    /// The tester could do no more: the device's limit is at least this.
    Tester,
    /// The plan asks for no more, or has no more addresses and ports: at least this.
    Plan,
    /// Trials or time ran out before it was narrowed down: at least this.
    Time,
}

/// What a trial was for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LbPurpose {
    /// To find the way.
    Search,
    /// To prove the result.
    Confirm,
}

/// How a trial came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LbOutcome {
    /// The device carried it.
    Held,
    /// The device did not.
    Broke,
    /// The tester could not offer all of it; what it offered was carried.
    Unoffered,
    /// The tester could not receive it; nothing is known of the device.
    Unread,
    /// The tester was late, which may be all that went wrong: void, and repeated.
    Late,
    /// A link of the tester was down, or the run ended early: void.
    Cut,
}

/// One trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LbTrial {
    /// What for.
    pub purpose: LbPurpose,
    /// Frames per second in one direction, connections per second, or connections, that were asked for.
    pub asked: f64,
    /// Those really offered.
    pub offered: f64,
    /// How it came out.
    pub outcome: LbOutcome,
    /// Why, in a sentence.
    pub reason: String,
    /// How long the full rate was held, seconds.
    pub seconds: f64,
    /// What we counted.
    pub ours: LbOurs,
    /// What the device counted.
    pub device: LbDeviceTrial,
    /// How late the tester was.
    #[serde(default)]
    pub lateness: Lateness,
    /// What else is to be known of it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// What we counted in a trial. Frames: sent = received + lost + tester_dropped, for each direction and
/// so for their sum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LbOurs {
    /// Frames sent by both sides.
    pub sent_frames: u64,
    /// Frames received by both sides.
    pub received_frames: u64,
    /// Frames that did not come out of the device, towards the servers.
    pub lost_frames: u64,
    /// Frames that did not come out of the device, towards the clients.
    pub lost_answer_frames: u64,
    /// Frames that came to our ports and found no room there; never loss.
    pub tester_dropped_frames: u64,
    /// Connections begun; attempted = completed + failed + open.
    pub attempted: u64,
    /// Those with a finished handshake, or over UDP an answer.
    pub established: u64,
    /// Those closed after all that was to be exchanged.
    pub completed: u64,
    /// Those given up or refused.
    pub failed: u64,
    /// Those open at the end.
    pub open: u64,
    /// Most connections open at a time, at the end of the full rate.
    pub held: u64,
    /// Segments sent again.
    pub retransmitted: u64,
    /// Connections or requests that were due and not sent.
    pub unsent: u64,
    /// Requests sent.
    pub requests: u64,
    /// Answers received.
    pub responses: u64,
    /// From a request to its answer, 99th percentile, ns; where there are answers.
    pub p99_ns: Option<i64>,
    /// Share of its time in which our busiest worker had something to do, 0 to 1.
    pub busy: f64,
}

/// What the device counted in a trial.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LbDeviceTrial {
    /// By how much its counters rose; names are PROBE.COUNTER. One that fell was reset and is left out.
    pub rose: BTreeMap<String, u64>,
    /// The highest values seen of those that rise and fall.
    pub peak: BTreeMap<String, u64>,
    /// What it says in our words, where it says so.
    pub beside: BTreeMap<String, CounterPair>,
    /// Readings during the trial, and how many failed.
    pub readings: u32,
    /// How many failed.
    pub failed_readings: u32,
}

/// A number of ours and the device's of the same.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CounterPair {
    /// Ours.
    pub ours: u64,
    /// The device's.
    pub device: u64,
    /// Device's by ours; absent where ours is 0.
    pub ratio: Option<f64>,
}

impl CounterPair {
    /// Of two numbers.
    #[must_use]
    pub fn new(ours: u64, device: u64) -> Self {
        Self {
            ours,
            device,
            ratio: (ours > 0).then(|| device as f64 / ours as f64),
        }
    }
}

/// How a probe did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProbeReport {
    /// The first word of its counters' names.
    pub name: String,
    /// What was run, and where.
    pub command: String,
    /// How often it was read.
    pub readings: u64,
    /// How often that failed.
    pub failures: u64,
    /// What the last failure was.
    pub last_failure: Option<String>,
    /// Its counters before the first frame.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub before: BTreeMap<String, u64>,
    /// Its counters after the last frame.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub after: BTreeMap<String, u64>,
    /// The highest that each value had which rises and falls.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub highest: BTreeMap<String, u64>,
}
