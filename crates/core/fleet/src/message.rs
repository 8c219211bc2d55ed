//! Messages between a controller and its agents, as JSON.
//!
//! Every message has `"v":1`. A receiver refuses an unknown version and ignores unknown fields. The maximum size
//! of a message is [`MESSAGE_LIMIT`].

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use wb_measure::EncodedHistogram;
use wb_model::{
    Plan, PlanProblem, Report, Snapshot, Totals,
    fleet::HostClock,
    peer::{PairClock, Sent},
    powers::Power,
};

use crate::share::Share;

/// Version of the messages.
pub const VERSION: u32 = 1;

/// Version of the protocol: the order and the meaning of the messages. Agents of another protocol get no part of a run.
pub const PROTOCOL: u32 = 1;

/// Maximum size of a message in bytes.
pub const MESSAGE_LIMIT: usize = 900_000;

/// The field `"v":1`. Reading fails for every other version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct V1;

impl Serialize for V1 {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u32(VERSION)
    }
}

impl<'de> Deserialize<'de> for V1 {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match u64::deserialize(deserializer)? {
            version if version == u64::from(VERSION) => Ok(Self),
            version => Err(de::Error::custom(format!(
                "message of version {version}; this program reads version {VERSION}"
            ))),
        }
    }
}

/// Error of a message.
#[derive(Debug, thiserror::Error)]
pub enum MessageError {
    /// The message is too large for the broker.
    #[error("a message of {0} bytes is too large; at most {MESSAGE_LIMIT} bytes are possible")]
    TooLarge(usize),
    /// The bytes are no message of this kind, or of another version.
    #[error("unreadable message: {0}")]
    Unreadable(#[from] serde_json::Error),
}

/// Returns the bytes of a message.
///
/// # Errors
/// The message is larger than [`MESSAGE_LIMIT`].
pub fn encode<T: Serialize>(message: &T) -> Result<Vec<u8>, MessageError> {
    let bytes = serde_json::to_vec(message)?;
    match bytes.len() <= MESSAGE_LIMIT {
        true => Ok(bytes),
        false => Err(MessageError::TooLarge(bytes.len())),
    }
}

/// Reads a message.
///
/// # Errors
/// The bytes are no message of this type, of another version, or more than [`MESSAGE_LIMIT`].
pub fn decode<T: de::DeserializeOwned>(bytes: &[u8]) -> Result<T, MessageError> {
    if bytes.len() > MESSAGE_LIMIT {
        return Err(MessageError::TooLarge(bytes.len()));
    }
    Ok(serde_json::from_slice(bytes)?)
}

/// Problem of a host or of its part of a plan.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Problem {
    /// Place: `h1: port a`.
    pub place: String,
    /// Problem, and the allowed values.
    pub what: String,
}

impl Problem {
    /// Creates a problem.
    #[must_use]
    pub fn new(place: impl Into<String>, what: impl Into<String>) -> Self {
        Self {
            place: place.into(),
            what: what.into(),
        }
    }
}

impl From<PlanProblem> for Problem {
    fn from(problem: PlanProblem) -> Self {
        Self::new(problem.place, problem.what)
    }
}

/// Registration of an agent: value of its key in the bucket `WB_AGENTS`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Registration {
    /// Version of the message.
    pub v: V1,
    /// Name of the host.
    pub host: String,
    /// Identity of this start of the agent, random.
    pub id: String,
    /// Version of the program: `0.1.0`.
    pub version: String,
    /// Protocol of the agent; see [`PROTOCOL`].
    pub protocol: u32,
    /// Plan formats that the agent reads: `wirebench.plan/1`.
    #[serde(default)]
    pub plan_schemas: Vec<String>,
    /// Kinds of jobs that the agent runs. Empty: all.
    #[serde(default)]
    pub kinds: Vec<String>,
    /// Powers that the agent grants to plans.
    #[serde(default)]
    pub powers: Vec<Power>,
    /// Number of CPUs.
    #[serde(default)]
    pub cpus: u32,
    /// Memory in bytes.
    #[serde(default)]
    pub memory_bytes: u64,
    /// Kernel with release.
    #[serde(default)]
    pub kernel: String,
    /// Ports that the agent offers.
    #[serde(default)]
    pub ports: Vec<RegisteredPort>,
    /// Random name of this start of the host's kernel. Agents of one kernel share its clock. Empty if unknown.
    #[serde(default)]
    pub boot: String,
    /// Addresses that answer clock exchanges: `10.0.0.7:40061`.
    #[serde(default)]
    pub udp: Vec<String>,
    /// Labels of the host, for the choice of hosts by labels.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
}

/// Port of a registration. Fields that placing does not use are kept as they are.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RegisteredPort {
    /// Locator on the host, without the host: `eth2`.
    pub locator: String,
    /// Speed of the link in bits per second, if known.
    #[serde(default)]
    pub speed_bps: Option<u64>,
    /// True if the link is up.
    #[serde(default)]
    pub up: bool,
    /// Holder of the port, if it is in use.
    #[serde(default)]
    pub held_by: Option<serde_json::Value>,
    /// Other facts, such as drivers and addresses.
    #[serde(flatten)]
    pub facts: serde_json::Map<String, serde_json::Value>,
}

/// State of an agent as its presence reports it: `free`, `draining`, or `run ID`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Occupation {
    /// The agent accepts a run.
    #[default]
    Free,
    /// The agent accepts no run.
    Draining,
    /// The agent carries out its part of this run.
    Run(String),
}

impl fmt::Display for Occupation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Free => f.write_str("free"),
            Self::Draining => f.write_str("draining"),
            Self::Run(run) => write!(f, "run {run}"),
        }
    }
}

impl Serialize for Occupation {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Occupation {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        match (&*text, text.strip_prefix("run ")) {
            ("free", _) => Ok(Self::Free),
            ("draining", _) => Ok(Self::Draining),
            (_, Some(run)) => Ok(Self::Run(run.to_owned())),
            _ => Err(de::Error::custom(format!(
                "state {text:?}; possible are free, draining and run ID"
            ))),
        }
    }
}

/// Presence of an agent, each second. The agent is present until 3 s after the last one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Alive {
    /// Version of the message.
    pub v: V1,
    /// Identity of this start of the agent, as in its registration.
    pub id: String,
    /// Number of the message, from 0.
    pub seq: u64,
    /// State of the agent.
    pub state: Occupation,
    /// State of the host's clock, as its time service reports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock: Option<HostClock>,
    /// Load of the host: running tasks for each CPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load: Option<f64>,
}

/// Request of a controller to one agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Request {
    /// Version of the message.
    pub v: V1,
    /// Request.
    #[serde(flatten)]
    pub op: Op,
}

impl Request {
    /// Creates a request.
    #[must_use]
    pub const fn new(op: Op) -> Self {
        Self { v: V1, op }
    }
}

/// Kinds of requests, by the field `op`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "lowercase")]
pub enum Op {
    /// Asks for the state of the agent.
    Hello,
    /// Opens the ports of a part.
    Open(Box<Open>),
    /// Resolves neighbours and starts the workers.
    Resolve(RunEpoch),
    /// Drops a run that has not started, or stops it at once.
    Disarm(RunEpoch),
    /// Stops the part of this host.
    Stop(StopHost),
    /// Accepts no more runs (`on`), or accepts them again.
    Drain(DrainHost),
    /// Delivers the kept share again.
    Resend(RunEpoch),
    /// Reports a lost host: directions that it sends end now.
    Lost(LostHost),
}

impl Op {
    /// The word in the field `op`.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Hello => "hello",
            Self::Open(_) => "open",
            Self::Resolve(_) => "resolve",
            Self::Disarm(_) => "disarm",
            Self::Stop(_) => "stop",
            Self::Drain(_) => "drain",
            Self::Resend(_) => "resend",
            Self::Lost(_) => "lost",
        }
    }

    /// Run and epoch of the request; `None` if it concerns no run.
    #[must_use]
    pub fn run(&self) -> Option<(&str, u64)> {
        match self {
            Self::Hello | Self::Drain(_) => None,
            Self::Open(open) => Some((&open.run, open.epoch)),
            Self::Resolve(run) | Self::Disarm(run) | Self::Resend(run) => {
                Some((&run.run, run.epoch))
            }
            Self::Stop(stop) => Some((&stop.run, stop.epoch)),
            Self::Lost(lost) => Some((&lost.run, lost.epoch)),
        }
    }
}

/// Run and epoch of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunEpoch {
    /// Run.
    pub run: String,
    /// Epoch of the controller.
    pub epoch: u64,
}

/// Contents of `open`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Open {
    /// Run.
    pub run: String,
    /// Epoch of the controller.
    pub epoch: u64,
    /// Name of the controller.
    pub controller: String,
    /// Part of the host: its jobs, and their ports.
    pub plan: Plan,
    /// Directions between hosts of which this host is one end.
    #[serde(default)]
    pub directions: Vec<Direction>,
    /// Files that the part reads.
    #[serde(default)]
    pub files: Vec<PartFile>,
    /// Length of the lease in ms, 1,000 to 60,000.
    pub lease_ms: u64,
    /// Key of the run for HMAC-SHA-256 of clock exchanges, as hex digits.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub key: String,
    /// Hosts that send to this host. It compares its clock with the clock of each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub senders: Vec<ClockSource>,
}

/// Host that answers clock exchanges of other hosts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockSource {
    /// Name of the host.
    pub host: String,
    /// Random name of the start of its kernel, as in its registration.
    #[serde(default)]
    pub boot: String,
    /// Addresses that answer clock exchanges.
    #[serde(default)]
    pub udp: Vec<String>,
}

/// Direction of a traffic job between two ports. Its first flow number identifies it in messages.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Direction {
    /// Name in the report: `t1 forward`.
    pub name: String,
    /// Number of the traffic job in the whole plan, from 0.
    pub job: usize,
    /// Host of the sender.
    pub from: String,
    /// Host of the receiver.
    pub to: String,
    /// First flow number in test tags.
    pub first_flow: u32,
    /// Number of flows with a tag.
    pub flows: u32,
}

impl Direction {
    /// Returns true if both ends are on one host.
    #[must_use]
    pub fn is_local(&self) -> bool {
        self.from == self.to
    }
}

/// File that a part reads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartFile {
    /// Path as in the plan.
    pub name: String,
    /// Size of the contents in bytes; 0 until the controller has read the file.
    #[serde(default)]
    pub size: u64,
    /// SHA-256 digest of the contents as hex digits; empty until the controller has read the file.
    #[serde(default)]
    pub sha256: String,
    /// Data lines of this part, of a CSV file that several hosts share; `None`: the whole file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rows: Option<RowShare>,
}

/// Part of the data lines of a CSV file: share `index` of `of`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RowShare {
    /// Number of the part, from 0.
    pub index: u32,
    /// Number of parts.
    pub of: u32,
}

/// Contents of `stop` to one host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StopHost {
    /// Run.
    pub run: String,
    /// Epoch of the controller.
    pub epoch: u64,
    /// With or without the drain.
    pub how: StopHow,
}

/// Contents of `drain`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrainHost {
    /// True: no more runs.
    pub on: bool,
}

/// Contents of `lost`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostHost {
    /// Run.
    pub run: String,
    /// Epoch of the controller.
    pub epoch: u64,
    /// Host that is lost.
    pub host: String,
}

/// End of a run on request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StopHow {
    /// Senders stop; frames in flight are received.
    Drain,
    /// Everything stops.
    Now,
}

/// Reply to a request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reply {
    /// Version of the message.
    pub v: V1,
    /// False if the request was refused.
    pub ok: bool,
    /// Answer.
    #[serde(flatten)]
    pub answer: Answer,
}

impl From<Answer> for Reply {
    fn from(answer: Answer) -> Self {
        Self {
            v: V1,
            ok: !matches!(answer, Answer::Refused(_)),
            answer,
        }
    }
}

/// Answers, by the field `answer`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "lowercase")]
pub enum Answer {
    /// State of the agent.
    Hello(Hello),
    /// Ports are open; responders answer.
    Opened(Opened),
    /// Neighbours are resolved; the workers wait for the start.
    Armed(Armed),
    /// The request was carried out.
    Done,
    /// The request was refused.
    Refused(Refused),
}

/// State of an agent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// Host.
    pub host: String,
    /// Identity of this start of the agent.
    pub id: String,
    /// Version of the program.
    pub version: String,
    /// State.
    pub state: Occupation,
}

/// Opened ports of a host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Opened {
    /// Ports.
    #[serde(default)]
    pub ports: Vec<OpenedPort>,
    /// Warnings, one sentence each.
    #[serde(default)]
    pub warnings: Vec<String>,
    /// Version of the program.
    #[serde(default)]
    pub version: String,
    /// Clock of the host, as its time service describes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock: Option<HostClock>,
}

/// Opened port.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenedPort {
    /// Name in the plan.
    pub name: String,
    /// Locator with the selected driver.
    pub locator: String,
    /// Driver.
    pub driver: String,
    /// Mode of the driver.
    #[serde(default)]
    pub mode: String,
    /// Hardware address; empty for ports without one.
    #[serde(default)]
    pub mac: String,
    /// Number of workers.
    #[serde(default)]
    pub workers: u32,
    /// Bits per second of the link, if known.
    #[serde(default)]
    pub line_rate: Option<u64>,
}

/// Armed part of a host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Armed {
    /// Time from the start message to the first frame that the host needs, in ns.
    pub lead_ns: u64,
    /// Flows of the directions with an end on this host.
    #[serde(default)]
    pub flows: Vec<DirectionFlows>,
    /// Hardware addresses of neighbours by IP address.
    #[serde(default)]
    pub neighbours: BTreeMap<String, String>,
    /// Clocks of the hosts that send to this host, as far as it could compare them itself.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clocks: Vec<PairClock>,
}

/// Flows of a direction.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirectionFlows {
    /// Name of the direction, as in [`Direction::name`].
    pub direction: String,
    /// First flow number.
    pub first: u32,
    /// Number of flows.
    pub count: u32,
}

/// Refusal with all problems of the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    /// Cause.
    pub kind: RefusedKind,
    /// All problems.
    pub problems: Vec<Problem>,
}

impl Refused {
    /// Creates a refusal with one problem.
    #[must_use]
    pub fn new(kind: RefusedKind, place: impl Into<String>, what: impl Into<String>) -> Self {
        Self {
            kind,
            problems: vec![Problem::new(place, what)],
        }
    }
}

/// Cause of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RefusedKind {
    /// The plan is wrong.
    Plan,
    /// The agent does not grant a power.
    Power,
    /// The agent or a port is in use, or another controller leads.
    Busy,
    /// The machine cannot do it.
    Machine,
    /// The agent does not know the message or the plan's format.
    Version,
    /// The start came too late.
    Late,
}

/// Start of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Start {
    /// Version of the message.
    pub v: V1,
    /// Run.
    pub run: String,
    /// Epoch of the controller.
    pub epoch: u64,
    /// Start time by the wall clock of the controller, in ns since 1970.
    pub at_wall_ns: u64,
    /// Clock of each host minus the clock of the controller, in ns.
    pub offsets: BTreeMap<String, i64>,
    /// Clocks of the hosts of each direction between two hosts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clocks: Vec<PairClock>,
}

impl Start {
    /// Start time by the wall clock of a host, in ns since 1970. `None` if the host's offset is unknown.
    #[must_use]
    pub fn at(&self, host: &str) -> Option<u64> {
        let offset = self.offsets.get(host)?;
        self.at_wall_ns.checked_add_signed(*offset)
    }
}

/// Renewal of the lease of a run, twice a second.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseMessage {
    /// Version of the message.
    pub v: V1,
    /// Epoch of the controller.
    pub epoch: u64,
    /// Number of the renewal.
    pub seq: u64,
    /// Clocks of the hosts of each direction between two hosts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clocks: Vec<PairClock>,
}

/// Stop of a run on all hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stop {
    /// Version of the message.
    pub v: V1,
    /// Epoch of the controller.
    pub epoch: u64,
    /// With or without the drain.
    pub how: StopHow,
}

/// Snapshot of a host: cumulative counts at `start + k × interval`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Snap {
    /// Version of the message.
    pub v: V1,
    /// Number of the interval, from 1.
    pub k: u64,
    /// Time by the wall clock of the host, in ns since 1970.
    pub at_wall_ns: u64,
    /// Counts of the host.
    pub snapshot: Snapshot,
    /// Counts by direction of traffic jobs.
    #[serde(default)]
    pub jobs: Vec<JobCounts>,
    /// Distributions so far, at low resolution.
    #[serde(default)]
    pub histograms: Vec<EncodedHistogram>,
    /// Report so far: counts, and means of times. Without plan and timeline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub so_far: Option<Box<Report>>,
}

/// Counts of a direction at one end. Counts of the other end are absent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobCounts {
    /// Name of the direction, as in [`Direction::name`].
    pub name: String,
    /// Frames sent.
    #[serde(default)]
    pub offered: Option<u64>,
    /// Frames received, duplicates included.
    #[serde(default)]
    pub received: Option<u64>,
    /// Duplicates.
    #[serde(default)]
    pub duplicate: Option<u64>,
}

impl JobCounts {
    /// Received frames without duplicates.
    #[must_use]
    pub fn unique(&self) -> Option<u64> {
        let received = self.received?;
        Some(received.saturating_sub(self.duplicate.unwrap_or(0)))
    }

    /// Counts of both ends together.
    #[must_use]
    pub fn or(&self, other: &Self) -> Self {
        Self {
            name: self.name.clone(),
            offered: self.offered.or(other.offered),
            received: self.received.or(other.received),
            duplicate: self.duplicate.or(other.duplicate),
        }
    }
}

/// End of the sender of a direction.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SentMessage {
    /// Version of the message.
    pub v: V1,
    /// Counts of the sender.
    pub sent: Sent,
}

/// Share of a host: its results at the end.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ShareMessage {
    /// Version of the message.
    pub v: V1,
    /// Run.
    pub run: String,
    /// Host.
    pub host: String,
    /// Identity of the agent's start that measured the share.
    #[serde(default)]
    pub id: String,
    /// Number of the version of this share, from 1.
    pub revision: u32,
    /// Results.
    pub share: Share,
}

/// Message of an agent for the history and for the controller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentEvent {
    /// Version of the message.
    pub v: V1,
    /// Time by the wall clock of the host, in ns since 1970.
    pub at_wall_ns: u64,
    /// Identity of the agent's start.
    pub id: String,
    /// Run, if the event concerns one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
    /// Kind of the event.
    pub kind: AgentEventKind,
    /// Event, one sentence.
    pub text: String,
}

/// Kind of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AgentEventKind {
    /// The start came too late; the host does not take part.
    Late,
    /// The agent freed its ports because no message came.
    Freed,
    /// The lease ran out; the agent stopped.
    Lease,
    /// A message was refused: another host's subject, or an old epoch.
    Refused,
    /// The share could not be written to disk.
    Disk,
    /// Anything else.
    Note,
}

/// Value of the key `controller` in the bucket `WB_LEADER`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaderEntry {
    /// Version of the message.
    pub v: V1,
    /// Name of the controller.
    pub controller: String,
    /// Identity of this start of the controller, random. Empty: the leadership was given up.
    pub id: String,
    /// Epoch of the leadership. The first entry of a leadership has 0; the revision of this entry decides the epoch.
    pub epoch: u64,
}

/// Sum of the totals of several jobs, field by field.
pub(crate) fn sum_of_totals<'a>(all: impl Iterator<Item = &'a Totals>) -> Totals {
    all.fold(Totals::default(), |sum, totals| sum.plus(totals))
}
