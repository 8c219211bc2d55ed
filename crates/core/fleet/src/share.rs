//! Results of one host at the end of a run.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use wb_model::{Report, peer::Sent};

/// Results of one host.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Share {
    /// Host.
    pub host: String,
    /// Version of the program.
    pub version: String,
    /// Report of the host's part, with full histograms.
    pub report: Box<Report>,
    /// Counts of the senders of directions to other hosts, by the first flow of the direction.
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
