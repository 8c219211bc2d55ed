//! Results of the hosts that carry out one plan together.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use wb_figures::{Field, Section, Show, Tone, Unit, Value, derived, fact, fields, text::time_ns};

use crate::Report;

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
    /// A fault ended the part of the host: a port vanished, or a worker failed.
    Failed,
}

impl HostState {
    /// Name for people.
    const fn name(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::Lost => "lost",
            Self::Refused => "refused",
            Self::Late => "late",
            Self::CutOff => "cut off",
            Self::Failed => "failed",
        }
    }
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
    /// Clock of the host, as its time service describes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock: Option<HostClock>,
}

/// Clock of a host, as its time service describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HostClock {
    /// Time service: `chrony` or `ptp`.
    pub method: String,
    /// Time source that the host follows: an address, or the identity of a PTP clock.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub source: String,
    /// Largest error of the clock in ns, as claimed.
    pub error_ns: u64,
}

impl HostClock {
    /// `chrony, at most 20.0 us`.
    #[must_use]
    #[allow(clippy::cast_precision_loss)]
    pub fn account(&self) -> String {
        format!("{}, at most {}", self.method, time_ns(self.error_ns as f64))
    }
}

impl HostReport {
    /// `host h2 lost at 6.0 s: no message for 3 s`.
    #[must_use]
    pub fn account(&self) -> String {
        let state = self.state.name();
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

static HOST: &[Field<HostReport>] = fields!(HostReport:
    fact!("host", "host", |h| (&h.host).into()),
    fact!("state", "state", |h| h.state.name().into()),
    derived!("since_ns", "since", Unit::Nanoseconds, |h| (&h.since_ns).into()).show(Show::IfAny),
    fact!("why", "reason", |h| (&h.why).into()).show(Show::IfAny),
    fact!("version", "version", |h| (&h.version).into()),
    fact!("clock", "claimed clock error", |h| match &h.clock {
        Some(clock) => Value::Text(clock.account().into()),
        None => Value::Unknown,
    }).show(Show::IfAny),
);

/// Section of the hosts of a run over a fleet, with the clocks of each two hosts between which frames went.
#[must_use]
pub fn hosts(report: &Report) -> Section<'_> {
    let clocks = report.jobs.iter().filter_map(|job| job.clock.as_ref());
    let clocks = clocks.map(|clock| {
        let (from, to) = (&clock.from, &clock.to);
        let error = match clock.method.as_str() {
            "same" => "both hosts have the same clock".to_owned(),
            method => format!("clock error at most {} ({method})", clock.error_text()),
        };
        match clock.stepped() {
            Some(why) => format!("latency between {from} and {to}: invalid, {why}"),
            None => format!("latency between {from} and {to}: {error}"),
        }
    });
    let section = Section::new("host", "Hosts", "hosts", String::new());
    let section = section.table("", HOST, &report.hosts);
    let notes: BTreeSet<String> = clocks.collect();
    notes.into_iter().fold(section, |section, note| {
        section.note(Tone::Plain, Some(note))
    })
}
