//! Results of one host: the counts of each sender at its end, and everything at the end of the run.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use wb_model::{Report, Totals};

/// Counts of the sender of a direction at its end.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sent {
    /// Number of the direction.
    pub direction: u32,
    /// Time of the last departure by the wall clock of the sender, in ns since 1970.
    pub last_departure_wall_ns: u64,
    /// Totals of each stream.
    #[serde(default)]
    pub streams: Vec<Totals>,
    /// Frames of the ramp-up.
    #[serde(default)]
    pub ramp_frames: u64,
    /// Frames of each flow from the first flow of the direction on, encoded. Empty if not known.
    #[serde(default)]
    pub flows: String,
}

/// Results of one host.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Share {
    /// Host.
    pub host: String,
    /// Version of the program.
    pub version: String,
    /// Report of the host's part, with full histograms.
    pub report: Box<Report>,
    /// Counts of the senders of directions to other hosts, by number of the direction.
    #[serde(default)]
    pub sent: BTreeMap<u32, Sent>,
    /// End of the host's part.
    pub end: ShareEnd,
}

/// End of the part of a host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ShareEnd {
    /// The part ran to its planned end.
    #[default]
    Finished,
    /// A stop of the controller ended it.
    Stopped,
    /// The lease ran out.
    Lease,
    /// An error ended it.
    Fault(String),
}
