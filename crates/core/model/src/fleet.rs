//! Results of the hosts that carry out one plan together.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// State of a host at the end of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum HostState {
    /// The host delivered its results.
    #[default]
    Complete,
    /// The host fell silent, and its results are missing.
    Lost,
    /// The host refused its part of the plan.
    Refused,
    /// The host was not ready at the start.
    Late,
    /// The host lost its controller, and ended its part.
    CutOff,
}

/// A host of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HostReport {
    /// Name of the host.
    pub host: String,
    /// Version of the program there.
    pub version: String,
    /// State at the end.
    pub state: HostState,
    /// Begin of a state other than `complete`, in ns since the start of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since_ns: Option<u64>,
    /// Reason of a state other than `complete`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
}

impl HostReport {
    /// `host h2 lost at 6.0 s: no message for 3 s`.
    #[must_use]
    pub fn account(&self) -> String {
        let state = match self.state {
            HostState::Complete => "complete",
            HostState::Lost => "lost",
            HostState::Refused => "refused",
            HostState::Late => "late",
            HostState::CutOff => "cut off",
        };
        #[allow(clippy::cast_precision_loss)]
        let since = self
            .since_ns
            .map(|ns| format!(" at {:.1} s", ns as f64 / 1e9));
        let why = match self.why.is_empty() {
            true => String::new(),
            false => format!(": {}", self.why),
        };
        let since = since.unwrap_or_default();
        format!("host {} {state}{since}{why}", self.host)
    }
}

/// An agent of a fleet that is there.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Agent {
    /// Host of the agent.
    pub host: String,
    /// Version of its program.
    pub version: String,
    /// `free`, `draining` or `run ID`.
    pub state: String,
    /// Kernel with release.
    pub kernel: String,
    /// Number of CPUs.
    pub cpus: u32,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// Running tasks for each CPU, if known.
    pub load: Option<f64>,
    /// Labels of the host.
    pub labels: BTreeMap<String, String>,
    /// Its ports.
    pub ports: Vec<AgentPort>,
}

/// Port of an agent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AgentPort {
    /// Locator for plans, `HOST:IF`.
    pub locator: String,
    /// Speed of the link in bits per second, if known.
    pub speed_bps: Option<u64>,
    /// True if the link is up.
    pub up: bool,
}
