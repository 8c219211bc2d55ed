//! Counters at an instant: what live lines, files and APIs all read.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{bench::BenchLive, http::HttpLive, load::LoadLive, report::Totals, socket::SocketLive};

/// Where a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// Ports are opened, neighbours resolved.
    Preparing,
    /// The rate rises; frames are not counted.
    Ramp,
    /// Sending, or receiving only.
    Running,
    /// Sending has ended; residual frames are awaited.
    Drain,
    /// All counters are read.
    Done,
}

/// Version of the lines of `--live-json`.
pub const SNAPSHOT_SCHEMA: &str = "wirebench.snapshot/1";

/// A line of `--live-json`: a snapshot with its version and the kind of its run.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct LiveLine<'a> {
    /// `wirebench.snapshot/1`.
    pub schema: &'static str,
    /// Kind of the run, as in the report, such as `trial`.
    pub kind: &'a str,
    /// The counters.
    #[serde(flatten)]
    pub snapshot: &'a Snapshot,
}

/// Counters of a whole run at an instant. Totals are cumulative; rates are of the last interval.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Snapshot {
    /// Time since the start of the run, ns.
    pub elapsed_ns: u64,
    /// Length of the interval that the rates cover, ns.
    pub interval_ns: u64,
    /// Where the run is.
    pub phase: Phase,
    /// How much of it is done, 0 to 1; absent when it has no planned end.
    pub progress: Option<f64>,
    /// Counts so far. `lost_frames` is absent while frames may still be under way.
    pub totals: Totals,
    /// Offered frames per second in the interval.
    pub offered_pps: Option<f64>,
    /// Received frames per second in the interval.
    pub received_pps: Option<f64>,
    /// Offered bits per second at layer 2 in the interval.
    pub offered_l2_bps: Option<f64>,
    /// Received bits per second at layer 2 in the interval.
    pub received_l2_bps: Option<f64>,
    /// Offered and not (yet) received originals: lost or under way.
    pub missing_frames: Option<u64>,
    /// Mean latency of the interval, ns.
    pub latency_mean_ns: Option<f64>,
    /// Ports at which streams wait for a link.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub links_down: Vec<String>,
    /// Connections, in runs of loads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load: Option<LoadLive>,
    /// How HTTP loads go.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<HttpLive>,
    /// The test that runs, in runs of socket tests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket: Option<SocketLive>,
    /// Frames into files, in runs that capture.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capture: Option<CaptureLive>,
    /// The same by name, in runs of several captures.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub captures: BTreeMap<String, CaptureLive>,
    /// The trial that the rest is about, in benchmarks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bench: Option<BenchLive>,
    /// What the probes of the device read last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub probes: Vec<ProbeLive>,
}

impl Snapshot {
    /// A run at this time, ns, of which nothing else is known yet.
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
            links_down: Vec::new(),
            latency_mean_ns: None,
            load: None,
            http: None,
            socket: None,
            capture: None,
            captures: BTreeMap::new(),
            bench: None,
            probes: Vec::new(),
        }
    }
}

/// A capture at an instant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CaptureLive {
    /// Frames that were read.
    pub read_frames: u64,
    /// Frames that the kernel or the device dropped for want of room.
    pub kernel_drop_frames: u64,
    /// Frames that are in the files.
    pub written_frames: u64,
    /// Bytes of the files.
    pub file_octets: u64,
}

/// What a probe read last.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProbeLive {
    /// The first word of its counters' names.
    pub name: String,
    /// Readings that failed so far.
    pub failures: u64,
    /// By how much its counters have risen since the run began.
    pub counters: BTreeMap<String, u64>,
    /// Values that rise and fall.
    pub gauges: BTreeMap<String, u64>,
}
