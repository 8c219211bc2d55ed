//! Snapshots of the counters, for live lines, files and APIs.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{bench::BenchLive, http::HttpLive, load::LoadLive, report::Totals, socket::SocketLive};

/// Phase of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// Opening ports and resolving neighbours.
    Preparing,
    /// Ramp-up of the rate; frames are not counted.
    Ramp,
    /// Sending, or receiving only.
    Running,
    /// Sending has ended; waiting for frames in flight.
    Drain,
    /// All counters have been read.
    Done,
}

/// Version of the lines of `--live-json`.
pub const SNAPSHOT_SCHEMA: &str = "wirebench.snapshot/1";

/// Line of `--live-json`: a snapshot with its version and the kind of its run.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct LiveLine<'a> {
    /// `wirebench.snapshot/1`.
    pub schema: &'static str,
    /// Kind of the run, as in the report, such as `trial`.
    pub kind: &'a str,
    /// Counters.
    #[serde(flatten)]
    pub snapshot: &'a Snapshot,
}

/// Counters of a whole run at a moment. Totals are cumulative; rates are of the last interval.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Snapshot {
    /// Time since the start of the run, in ns.
    pub elapsed_ns: u64,
    /// Length of the interval of the rates, in ns.
    pub interval_ns: u64,
    /// Phase of the run.
    pub phase: Phase,
    /// Progress, 0 to 1; absent if the run has no planned end.
    pub progress: Option<f64>,
    /// Counts since the start. `lost_frames` is absent while frames may still be in flight.
    pub totals: Totals,
    /// Offered frames per second in the interval.
    pub offered_pps: Option<f64>,
    /// Received frames per second in the interval.
    pub received_pps: Option<f64>,
    /// Offered bits per second at layer 2 in the interval.
    pub offered_l2_bps: Option<f64>,
    /// Received bits per second at layer 2 in the interval.
    pub received_l2_bps: Option<f64>,
    /// Original frames that were offered and not (yet) received: lost or in flight.
    pub missing_frames: Option<u64>,
    /// Outages of flows so far; an outage counts when it ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outages: Option<u64>,
    /// Mean latency in the interval, in ns.
    pub latency_mean_ns: Option<f64>,
    /// Ports at which streams wait for a link.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub links_down: Vec<String>,
    /// Connections, in runs with loads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load: Option<LoadLive>,
    /// Current figures of HTTP loads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<HttpLive>,
    /// Running test, in runs with socket tests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket: Option<SocketLive>,
    /// Captured frames, in runs with one capture.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capture: Option<CaptureLive>,
    /// Captured frames by capture name, in runs with several captures.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub captures: BTreeMap<String, CaptureLive>,
    /// Current trial, in benchmarks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bench: Option<BenchLive>,
    /// Last values from the probes of the device.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub probes: Vec<ProbeLive>,
    /// Planned time of the snapshot by the wall clock, in ns since 1970; in runs over several hosts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_wall_ns: Option<u64>,
    /// Hosts that were lost in the run. Their last counts are in the totals.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts_lost: Vec<String>,
    /// Hosts of the run without counts of this interval. Their last counts are in the totals.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts_late: Vec<String>,
}

impl Snapshot {
    /// Creates a snapshot at this time, in ns, without further values.
    #[must_use]
    pub fn at(elapsed_ns: u64, interval_ns: u64, phase: Phase) -> Self {
        Self {
            elapsed_ns,
            interval_ns,
            phase,
            progress: None,
            totals: Totals::default(),
            offered_pps: None,
            received_pps: None,
            offered_l2_bps: None,
            received_l2_bps: None,
            missing_frames: None,
            outages: None,
            links_down: Vec::new(),
            latency_mean_ns: None,
            load: None,
            http: None,
            socket: None,
            capture: None,
            captures: BTreeMap::new(),
            bench: None,
            probes: Vec::new(),
            at_wall_ns: None,
            hosts_lost: Vec::new(),
            hosts_late: Vec::new(),
        }
    }
}

/// Figures of a capture at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CaptureLive {
    /// Frames read.
    pub read_frames: u64,
    /// Frames dropped by the kernel or the interface because no buffer was free.
    pub kernel_drop_frames: u64,
    /// Frames written to the files.
    pub written_frames: u64,
    /// Size of the files in bytes.
    pub file_octets: u64,
}

/// Last values from a probe.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProbeLive {
    /// First word of the counter names.
    pub name: String,
    /// Number of failed reads so far.
    pub failures: u64,
    /// Increase of its counters since the start of the run.
    pub counters: BTreeMap<String, u64>,
    /// Values of its gauges.
    pub gauges: BTreeMap<String, u64>,
}
