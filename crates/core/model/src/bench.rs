//! The plan and the report of a benchmark of a load balancer: six limits, searched one after the
//! other, with the device's own counters beside ours.

use std::{fmt, net::IpAddr, str::FromStr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    criteria::parse_share,
    load::LoadTransport,
    locator::Locator,
    plan::{Plan, Procedure},
    units::{AddressRange, ParseUnitError, PortRange, Span, parse_count, string_serde},
};

mod problems;
mod report;
mod suite;
mod suite_conformance;
mod suite_figure;
mod suite_modifiers;
mod suite_outcome;
mod suite_problems;
mod suite_report;

pub(crate) use problems::check_probe;
pub use report::{
    BenchLive, CounterPair, LbDeviceTrial, LbLimit, LbOurs, LbOutcome, LbPurpose, LbResult,
    LbTrial, ProbeReport,
};
pub use suite::{
    BURST_LENGTHS, BurstTest, CONFORMANCE, FILTER_CONDITIONS, GoalPlan, ImpactTest, LatencyTest,
    Load, ManagementPlan, Method, Modifier, Quantity, RecoveryTest, ResetTest, Service, SuiteCase,
    SuiteDevice, SuitePlan, SuiteSearch, SuiteTest, SuiteTimes, TestSize,
};
pub use suite_modifiers::{FilterCondition, MANAGEMENT, ROUTING, filter_conditions};
pub use suite_report::{
    BenchResult, BurstGap, BurstResult, EndedTrial, Family, FamilyFrames, ImpactRow, LatencyRow,
    LossRow, MfrResult, MfrRow, MlrLoad, MlrResult, Queries, RecoveryResult, ResetResult,
    ServiceResult, ServiceStep, SuiteResult, SuiteTrial, TrialOutcome, TrialPurpose,
};

/// The value of `schema` in files that hold nothing but such a benchmark ([`LbFile`]).
pub const LB_PLAN_SCHEMA: &str = "wirebench.lb/1";

/// What reports of such a benchmark are called.
pub const LB_KIND: &str = "bench lb";

/// A benchmark of a load balancer: its two sides, where it counts, and what is searched.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LbPlan {
    /// The side that opens connections.
    pub client: LbSide,
    /// The side that answers them.
    pub server: LbSide,
    /// The device between them.
    pub device: LbDevice,
    /// How long trials take.
    #[serde(default)]
    pub times: LbTimes,
    /// What is searched, in this order. Empty: all six metrics.
    #[serde(default, rename = "test", skip_serializing_if = "Vec::is_empty")]
    pub tests: Vec<LbTest>,
}

/// A file that holds such a benchmark and nothing else: the short form of a plan with this procedure.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LbFile {
    /// Version of this format; must be `wirebench.lb/1`.
    #[serde(default = "default_schema")]
    pub schema: String,
    /// Where all random choices come from.
    #[serde(default = "default_seed")]
    pub seed: u64,
    /// Says that sending outside the benchmark address ranges, or out of the interface with the
    /// default route, is meant: you own the network.
    #[serde(default)]
    pub i_own_this_network: bool,
    /// The side that opens connections.
    pub client: LbSide,
    /// The side that answers them.
    pub server: LbSide,
    /// The device between them.
    pub device: LbDevice,
    /// How long trials take.
    #[serde(default)]
    pub times: LbTimes,
    /// What is searched, in this order. Empty: all six metrics.
    #[serde(default, rename = "test")]
    pub tests: Vec<LbTest>,
}

impl From<LbFile> for Plan {
    fn from(file: LbFile) -> Self {
        Self {
            seed: file.seed,
            i_own_this_network: file.i_own_this_network,
            ..Self::from(LbPlan {
                client: file.client,
                server: file.server,
                device: file.device,
                times: file.times,
                tests: file.tests,
            })
        }
    }
}

impl From<LbPlan> for Plan {
    fn from(lb: LbPlan) -> Self {
        Self {
            kind: LB_KIND.to_owned(),
            procedure: Some(Procedure::Lb(Box::new(lb))),
            ..Self::default()
        }
    }
}

/// One side of the device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LbSide {
    /// The port: `IF`, `NODE/IF`, `xdp:IF`, `packet:IF`.
    pub port: Locator,
    /// Queue pairs to open, each with a worker of its own.
    #[serde(default = "one_worker", skip_serializing_if = "is_one")]
    pub workers: u32,
    /// CPUs for the workers. Empty: chosen by the program.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cpus: Vec<u32>,
    /// The port's own addresses, which its gateway asks for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<AddressRange>,
    /// Next hop of everything sent from here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<IpAddr>,
    /// Client: addresses that connections come from. Server: addresses that answer them.
    pub hosts: Vec<AddressRange>,
    /// Client: source ports (default 1024-65535). Server: ports that answer (default those of the
    /// service).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ports: Option<PortRange>,
    /// Server: whom it sees as its clients. Empty: anyone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub peers: Vec<AddressRange>,
}

/// The device under test.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LbDevice {
    /// What the report calls it.
    #[serde(default = "default_device")]
    pub name: String,
    /// Where connections go: its virtual addresses.
    pub service: Vec<AddressRange>,
    /// Ports of the service.
    #[serde(default = "default_ports")]
    pub ports: PortRange,
    /// How long it remembers a connection that has ended. Addresses and ports that come again sooner
    /// hit entries that are still there (DPVS: 7 s for FIN_WAIT and TIME_WAIT).
    #[serde(default = "default_state_timeout")]
    pub state_timeout: Span,
    /// Time between two readings of its counters during a trial; 100 ms to 1 min.
    #[serde(default = "default_every")]
    pub every: Span,
    /// Counters that must not rise: a trial in which one does has not held. By name or its last word:
    /// `imissed`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub must_not_rise: Vec<String>,
    /// Where it counts.
    #[serde(default, rename = "probe", skip_serializing_if = "Vec::is_empty")]
    pub probes: Vec<ProbePlan>,
}

/// A command that shows counters of the device, and what to read of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProbePlan {
    /// What its text is like.
    pub kind: ProbeKind,
    /// The first word of its counters' names. Empty: the kind's.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Network namespace to run in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Run there over ssh, without a password: `[USER@]HOST`, or a name of `~/.ssh/config`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ssh: Option<String>,
    /// Interfaces to read. `ethtool`: one at least; `netdev`: empty is all but `lo`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub interfaces: Vec<String>,
    /// What to run instead of the kind's own command, by `sh -c`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// Counters of kind `command`: names, and the regular expressions whose first group is the number.
    /// All places that match are added. `connections`, `in_packets`, `out_packets` and `drops` are
    /// compared with our own.
    #[serde(default, skip_serializing_if = "std::collections::BTreeMap::is_empty")]
    pub counters: std::collections::BTreeMap<String, String>,
    /// The same for values that rise and fall; `entries` is compared with our open connections.
    #[serde(default, skip_serializing_if = "std::collections::BTreeMap::is_empty")]
    pub gauges: std::collections::BTreeMap<String, String>,
    /// The reading is given up after this time; up to 10 s.
    #[serde(default = "default_probe_timeout")]
    pub timeout: Span,
}

/// What a probe's text is like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ProbeKind {
    /// `ipvsadm -ln --stats --exact`: LVS and DPVS, added over their services.
    Ipvs,
    /// `dpip link show -s`: ports of DPVS.
    Dpvs,
    /// `nf_conntrack_count` and `/proc/net/stat/nf_conntrack`.
    Conntrack,
    /// `/proc/net/dev`.
    Netdev,
    /// `ethtool -S`.
    Ethtool,
    /// Any command, read by regular expressions.
    #[default]
    Command,
}

impl ProbeKind {
    /// The word in plans.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ipvs => "ipvs",
            Self::Dpvs => "dpvs",
            Self::Conntrack => "conntrack",
            Self::Netdev => "netdev",
            Self::Ethtool => "ethtool",
            Self::Command => "command",
        }
    }
}

impl ProbePlan {
    /// The first word of its counters' names.
    #[must_use]
    pub fn title(&self) -> &str {
        if self.name.is_empty() {
            self.kind.name()
        } else {
            &self.name
        }
    }
}

/// How long trials take. Each adds the time to set up and to drain.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LbTimes {
    /// A trial of the search, at the full rate; 100 ms at least.
    pub trial: Span,
    /// The trial that confirms a result (RFC 2544 section 24 asks for 60 s).
    pub confirm: Span,
    /// From nothing to the full rate, while flows are opened; beyond it where they are many.
    pub ramp: Span,
    /// After a trial, for what is under way.
    pub drain: Span,
    /// All tests together; a search that has used up its part ends with what it has.
    pub budget: Span,
}

impl Default for LbTimes {
    fn default() -> Self {
        Self {
            trial: Span::from_secs(2),
            confirm: Span::from_secs(5),
            ramp: Span::from_millis(400),
            drain: Span::from_millis(300),
            budget: Span::from_secs(270),
        }
    }
}

/// A limit to search.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LbTest {
    /// Which.
    pub metric: LbMetric,
    /// TCP or UDP. `cps` and `cc`: TCP if not told; the others are UDP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transport: Option<LoadTransport>,
    /// Frame sizes with FCS, each a search of its own. Empty: 64, `bps` 1500, `elephant` 64 and 1500.
    /// `cps` and `cc` have none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sizes: Vec<u16>,
    /// Flows at a time. Default 1000; `elephant` has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flows: Option<Count>,
    /// The search begins here and goes down: frames per second, connections per second, or connections.
    /// Without it, it begins low and grows. `cc`: the most that is tried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<Count>,
    /// Where it begins to grow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<Count>,
    /// It ends when the best load and the least that did not hold are as close as this share.
    #[serde(default = "default_resolution")]
    pub resolution: Share,
    /// A trial holds up to this share lost (frames) or failed (connections). Default 0; `cps` 0.001%.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss: Option<Share>,
    /// `cc`: connections rest for this time between requests, and all must answer after it.
    #[serde(default = "default_hold")]
    pub hold: Span,
    /// `cc`: connections opened per second. Without it what `cps` found, else 20k.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open_rate: Option<Count>,
    /// Trials of the search at most; 1 to 100.
    #[serde(default = "default_trials")]
    pub trials: u32,
}

impl LbTest {
    /// With defaults.
    #[must_use]
    pub fn new(metric: LbMetric) -> Self {
        Self {
            metric,
            transport: None,
            sizes: Vec::new(),
            flows: None,
            max: None,
            start: None,
            resolution: default_resolution(),
            loss: None,
            hold: default_hold(),
            open_rate: None,
            trials: default_trials(),
        }
    }
}

/// The six metrics of a load balancer.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum LbMetric {
    /// Frames per second through the device in one direction, to servers that do not answer.
    OnewayPps,
    /// Frames per second in both directions together, with servers that send each back.
    TwowayPps,
    /// Bits per second with large frames, one direction.
    Bps,
    /// New connections per second: opened, one exchange of a byte, closed.
    Cps,
    /// Connections open at a time, each of which still answers at the end.
    Cc,
    /// Frames per second of a single flow, which one core of the device carries.
    Elephant,
}

impl LbMetric {
    /// All, in the order of a run.
    pub const ALL: [Self; 6] = [
        Self::OnewayPps,
        Self::TwowayPps,
        Self::Bps,
        Self::Cps,
        Self::Cc,
        Self::Elephant,
    ];

    /// The word in plans.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::OnewayPps => "oneway-pps",
            Self::TwowayPps => "twoway-pps",
            Self::Bps => "bps",
            Self::Cps => "cps",
            Self::Cc => "cc",
            Self::Elephant => "elephant",
        }
    }

    /// Whether it counts connections and not frames.
    #[must_use]
    pub const fn is_of_connections(self) -> bool {
        matches!(self, Self::Cps | Self::Cc)
    }
}

impl FromStr for LbMetric {
    type Err = ParseUnitError;

    fn from_str(text: &str) -> Result<Self, ParseUnitError> {
        let found = Self::ALL.into_iter().find(|m| m.name() == text);
        found.ok_or_else(|| {
            ParseUnitError::new(text, "oneway-pps, twoway-pps, bps, cps, cc or elephant")
        })
    }
}

/// A number as the user writes it: 500k, 1.5m.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Count(pub u64);

impl FromStr for Count {
    type Err = ParseUnitError;

    fn from_str(text: &str) -> Result<Self, ParseUnitError> {
        parse_count(text)
            .map(Self)
            .map_err(|_| ParseUnitError::new(text, "a number, such as 800, 20k or 1.5m"))
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scales = [(1_000_000_000, "g"), (1_000_000, "m"), (1_000, "k")];
        let whole = scales
            .into_iter()
            .find(|(n, _)| self.0 > 0 && self.0.is_multiple_of(*n));
        match whole {
            Some((scale, unit)) => write!(f, "{}{unit}", self.0 / scale),
            None => write!(f, "{}", self.0),
        }
    }
}

string_serde!(Count, "Count", "a number: 800, 20k, 1.5m", "20k");

/// A share as the user writes it: 5%, 0.001.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub struct Share(pub f64);

impl FromStr for Share {
    type Err = ParseUnitError;

    fn from_str(text: &str) -> Result<Self, ParseUnitError> {
        parse_share(text)
            .map(|share| Self(share.numerator() as f64 / share.denominator() as f64))
            .map_err(|_| ParseUnitError::new(text, "a share from 0 to 1, such as 5% or 0.001"))
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The shortest text that is read as the same number.
        write!(f, "{}", self.0)
    }
}

string_serde!(Share, "Share", "a share from 0 to 1: 5%, 0.001", "5%");

fn default_schema() -> String {
    LB_PLAN_SCHEMA.to_owned()
}
const fn default_seed() -> u64 {
    1
}
fn default_device() -> String {
    "device".to_owned()
}
const fn default_ports() -> PortRange {
    PortRange::single(80)
}
const fn default_state_timeout() -> Span {
    Span::from_secs(7)
}
const fn default_every() -> Span {
    Span::from_millis(500)
}
const fn default_probe_timeout() -> Span {
    Span::from_secs(2)
}
const fn default_resolution() -> Share {
    Share(0.05)
}
const fn default_hold() -> Span {
    Span::from_secs(2)
}
const fn default_trials() -> u32 {
    10
}
const fn one_worker() -> u32 {
    1
}
const fn is_one(n: &u32) -> bool {
    *n == 1
}

impl LbPlan {
    /// The tests to run: those of the plan, or all six metrics.
    #[must_use]
    pub fn tests(&self) -> Vec<LbTest> {
        match self.tests.as_slice() {
            [] => LbMetric::ALL.map(LbTest::new).to_vec(),
            tests => tests.to_vec(),
        }
    }

    /// Source ports of connections.
    #[must_use]
    pub fn client_ports(&self) -> PortRange {
        self.client.ports.unwrap_or(PortRange {
            first: 1024,
            last: 65535,
        })
    }

    /// Combinations of addresses and ports that a client can use.
    #[must_use]
    pub fn tuples(&self) -> u128 {
        let addresses =
            |ranges: &[AddressRange]| ranges.iter().map(AddressRange::count).sum::<u128>();
        let ports = |ports: PortRange| u128::from(ports.last.saturating_sub(ports.first)) + 1;
        addresses(&self.client.hosts)
            * ports(self.client_ports())
            * addresses(&self.device.service)
            * ports(self.device.ports)
    }
}
