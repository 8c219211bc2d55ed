//! Plan and report of a load balancer benchmark: searches six limits in sequence and compares the device's counters
//! with the counters of the tester.

use std::{fmt, net::IpAddr, str::FromStr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    criteria::parse_share,
    hosts::HostChoice,
    load::LoadTransport,
    locator::Locator,
    plan::{Plan, Procedure},
    units::{AddressRange, ParseUnitError, PortRange, Span, parse_count, string_serde},
};

mod balancer;
pub mod probe_figures;
mod problems;
mod report;
mod suite;
mod suite_conformance;
mod suite_modifiers;
mod suite_problems;
mod suite_report;

pub use balancer::{BalancerLimit, BalancerTrial};
pub(crate) use balancer::{results_form, trial_form};
pub(crate) use problems::check_probe;
pub use report::{
    BenchLive, CounterPair, LbDeviceTrial, LbLimit, LbOurs, LbOutcome, LbPurpose, LbResult,
    LbTrial, ProbeReport,
};
pub use suite::{
    BURST_LENGTHS, BurstResult, BurstTest, CONFORMANCE, FILTER_CONDITIONS, GoalPlan, ImpactRow,
    ImpactTest, LatencyRow, LatencyTest, Load, LossRow, ManagementPlan, Method, MfrResult, MfrRow,
    MlrLoad, MlrResult, Modifier, Quantity, RecoveryResult, RecoveryTest, ResetResult, ResetTest,
    Service, ServiceResult, ServiceStep, SoakTest, SuiteCase, SuiteDevice, SuitePlan, SuiteSearch,
    SuiteTest, SuiteTimes, TestDef, TestSize, in_bursts, is_test, section, sections, size_text,
};
pub use suite_modifiers::{FilterCondition, MANAGEMENT, ROUTING, filter_conditions};
pub use suite_report::{
    BenchResult, BurstGap, EndedTrial, Family, FamilyFrames, Queries, SuiteResult, SuiteTrial,
    TrialOutcome, TrialPurpose,
};

/// Value of `schema` in files that hold only a load balancer benchmark ([`LbFile`]).
pub const LB_PLAN_SCHEMA: &str = "wirebench.lb/1";

/// Report kind of load balancer benchmarks.
pub const LB_KIND: &str = "bench lb";

/// Benchmark of a load balancer: its two sides, the device with its counters, and the metrics to search.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LbPlan {
    /// The side that opens connections.
    pub client: LbSide,
    /// The side that answers them.
    pub server: LbSide,
    /// The device between them.
    pub device: LbDevice,
    /// Durations of trials.
    #[serde(default)]
    pub times: LbTimes,
    /// Metrics to search, in this order. Empty: all six metrics.
    #[serde(default, rename = "test", skip_serializing_if = "Vec::is_empty")]
    pub tests: Vec<LbTest>,
}

/// File that holds only a load balancer benchmark: the short form of a plan with this procedure.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LbFile {
    /// Version of this format; must be `wirebench.lb/1`.
    #[serde(default = "default_schema")]
    pub schema: String,
    /// Seed of all random choices (default 1).
    #[serde(default = "default_seed")]
    pub seed: u64,
    /// Confirms that sending outside the benchmark address ranges, or out of the interface with the default route, is
    /// intended: you own the network.
    #[serde(default)]
    pub i_own_this_network: bool,
    /// The side that opens connections.
    pub client: LbSide,
    /// The side that answers them.
    pub server: LbSide,
    /// The device between them.
    pub device: LbDevice,
    /// Durations of trials.
    #[serde(default)]
    pub times: LbTimes,
    /// Metrics to search, in this order. Empty: all six metrics.
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
    /// Port: `IF`, `NODE/IF`, `xdp:IF`, `packet:IF`.
    pub port: Locator,
    /// Queue pairs to open, each with a dedicated worker, 1 to 64 (default 1).
    #[serde(default = "one_worker", skip_serializing_if = "is_one")]
    pub workers: u32,
    /// CPUs for the workers. Empty: the program chooses them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cpus: Vec<u32>,
    /// Addresses of the port itself; the gateway resolves them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<AddressRange>,
    /// Next hop of all frames sent from this side.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<IpAddr>,
    /// Client: source addresses of connections. Server: addresses that answer connections.
    pub hosts: Vec<AddressRange>,
    /// Client: source ports (default 1024-65535). Server: ports that answer (default: the ports of the service).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ports: Option<PortRange>,
    /// Server: source addresses that it accepts as clients. Empty: any address.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub peers: Vec<AddressRange>,
}

/// The device under test.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LbDevice {
    /// Name in the report (default `device`).
    #[serde(default = "default_device")]
    pub name: String,
    /// Virtual addresses of the service, which connections are opened to.
    pub service: Vec<AddressRange>,
    /// Ports of the service (default 80).
    #[serde(default = "default_ports")]
    pub ports: PortRange,
    /// Time for which the device keeps the state of an ended connection (default 7 s). Addresses and ports that are
    /// reused earlier hit old entries (DPVS: 7 s for FIN_WAIT and TIME_WAIT).
    #[serde(default = "default_state_timeout")]
    pub state_timeout: Span,
    /// Interval between two reads of the device's counters during a trial, 100 ms to 1 min (default 500 ms).
    #[serde(default = "default_every")]
    pub every: Span,
    /// Counters that must not rise: if one rises during a trial, the trial fails. A full name or its last word:
    /// `imissed`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub must_not_rise: Vec<String>,
    /// Sources of the device's counters.
    #[serde(default, rename = "probe", skip_serializing_if = "Vec::is_empty")]
    pub probes: Vec<ProbePlan>,
}

/// Command that prints counters of the device, and how to parse its output.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProbePlan {
    /// Format of the command's output.
    pub kind: ProbeKind,
    /// First word of the counter names. Empty: the kind.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Host of a fleet that runs the command: a name, or labels such as `{rack=r1}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<HostChoice>,
    /// Network namespace in which the command runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Host on which the command runs over ssh, without a password: `[USER@]HOST`, or a name of `~/.ssh/config`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ssh: Option<String>,
    /// Interfaces to read. `ethtool`: at least one; `netdev`: empty means all except `lo`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub interfaces: Vec<String>,
    /// Command to run with `sh -c` instead of the default command of the kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// Counters of kind `command`: names, and regular expressions whose first group is the number. The values of all
    /// matches are added. `connections`, `in_packets`, `out_packets` and `drops` are compared with the counters of the
    /// tester.
    #[serde(default, skip_serializing_if = "std::collections::BTreeMap::is_empty")]
    pub counters: std::collections::BTreeMap<String, String>,
    /// Gauges of kind `command`, which rise and fall, in the form of `counters`. `entries` is compared with the number
    /// of open connections of the tester.
    #[serde(default, skip_serializing_if = "std::collections::BTreeMap::is_empty")]
    pub gauges: std::collections::BTreeMap<String, String>,
    /// Timeout of one read, above 0 and up to 10 s (default 2 s).
    #[serde(default = "default_probe_timeout")]
    pub timeout: Span,
}

/// Format of a probe's output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ProbeKind {
    /// `ipvsadm -ln --stats --exact`: LVS and DPVS, summed over their services.
    Ipvs,
    /// `dpip link show -s`: ports of DPVS.
    Dpvs,
    /// `nf_conntrack_count` and `/proc/net/stat/nf_conntrack`.
    Conntrack,
    /// `/proc/net/dev`.
    Netdev,
    /// `ethtool -S`.
    Ethtool,
    /// Any command, parsed with regular expressions.
    #[default]
    Command,
}

impl ProbeKind {
    /// Name in plans.
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
    /// First word of the counter names.
    #[must_use]
    pub fn title(&self) -> &str {
        if self.name.is_empty() {
            self.kind.name()
        } else {
            &self.name
        }
    }
}

/// Durations of trials. Each trial adds the time to set up and to drain.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LbTimes {
    /// Duration of a search trial at the full rate, at least 100 ms (default 2 s).
    pub trial: Span,
    /// Duration of the trial that confirms a result, at least 100 ms (default 5 s; RFC 2544 section 24 asks for 60 s).
    pub confirm: Span,
    /// Ramp-up time from zero to the full rate, during which flows are opened (default 400 ms). It is longer if there
    /// are many flows.
    pub ramp: Span,
    /// Time after a trial to wait for frames in flight, up to 1m (default 300 ms).
    pub drain: Span,
    /// Time limit of all tests together (default 270 s). A search that has used its part ends with its best result.
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

/// Limit to search.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LbTest {
    /// Metric to search.
    pub metric: LbMetric,
    /// TCP or UDP. `cps` and `cc`: TCP by default; all other metrics use UDP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transport: Option<LoadTransport>,
    /// Frame sizes with FCS, with a separate search for each. Empty: 64, `bps` 1500, `elephant` 64 and 1500. `cps` and
    /// `cc` have no sizes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sizes: Vec<u16>,
    /// Concurrent flows (default 1000; `elephant` has one).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flows: Option<Count>,
    /// Load at which the search starts, going down: frames per second, connections per second, or connections. Without
    /// it, the search starts low and increases the load. `cc`: the maximum number of connections to try.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<Count>,
    /// Load at which an increasing search starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<Count>,
    /// Resolution, 0.1% to 50%: the search ends when the highest load that passed and the lowest load that failed
    /// differ by at most this share (default 5%).
    #[serde(default = "default_resolution")]
    pub resolution: Share,
    /// Share of frames lost or connections failed up to which a trial passes, up to 50%. Default 0; `cps` 0.001%.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss: Option<Share>,
    /// `cc`: idle time of connections between requests, at least 100 ms (default 2 s). All connections must answer
    /// after it.
    #[serde(default = "default_hold")]
    pub hold: Span,
    /// `cc`: connections opened per second. Default: the result of `cps`, or 20k without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open_rate: Option<Count>,
    /// Maximum number of trials of the search, 1 to 100 (default 10).
    #[serde(default = "default_trials")]
    pub trials: u32,
}

impl LbTest {
    /// Creates a test of a metric with the default values.
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

/// Metrics of a load balancer.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum LbMetric {
    /// Frames per second through the device in one direction, to servers that do not answer.
    OnewayPps,
    /// Frames per second in both directions together, with servers that return each frame.
    TwowayPps,
    /// Bits per second with large frames in one direction.
    Bps,
    /// New connections per second: each is opened, exchanges one byte and is closed.
    Cps,
    /// Concurrent connections, each of which still answers at the end.
    Cc,
    /// Frames per second of a single flow, which one core of the device forwards.
    Elephant,
}

impl LbMetric {
    /// All metrics, in the order of a run.
    pub const ALL: [Self; 6] = [
        Self::OnewayPps,
        Self::TwowayPps,
        Self::Bps,
        Self::Cps,
        Self::Cc,
        Self::Elephant,
    ];

    /// Name in plans.
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

    /// Unit of its loads.
    #[must_use]
    pub const fn unit(self) -> &'static str {
        match self {
            Self::Bps => "bps",
            Self::Cps => "cps",
            Self::Cc => "connections",
            Self::OnewayPps | Self::TwowayPps | Self::Elephant => "pps",
        }
    }

    /// Returns true if the metric counts connections rather than frames.
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

/// Number as the user writes it: 500k, 1.5m.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Count(pub u64);

impl FromStr for Count {
    type Err = ParseUnitError;

    fn from_str(text: &str) -> Result<Self, ParseUnitError> {
        parse_count(text).map(Self)
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

/// Share as the user writes it: 5%, 0.001.
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
        // The shortest text that parses to the same number.
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
    /// Returns the tests to run: the tests of the plan, or all six metrics.
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

    /// Number of address and port combinations that the client can use.
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
