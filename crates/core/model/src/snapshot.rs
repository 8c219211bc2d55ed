//! Counters at an instant: what live lines, files and APIs all read.

use serde::{Deserialize, Serialize};

use crate::{load::LoadLive, report::Totals, socket::SocketLive};

/// Where a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
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

/// Counters of a whole run at an instant. Totals are cumulative; rates are of the last interval.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
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
    /// Connections, in runs of loads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load: Option<LoadLive>,
    /// The test that runs, in runs of socket tests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket: Option<SocketLive>,
}
