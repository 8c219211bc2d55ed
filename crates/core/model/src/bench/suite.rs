//! The plan of a suite of tests: RFC 2544 and its kin on any device between our ports.
//!
//! The plan that holds the suite says what a trial is: its ports and jobs. The suite takes one of the jobs and
//! changes its load, trial by trial; the other jobs run beside it, each time.

use std::{fmt, net::IpAddr, str::FromStr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Share;
use crate::{
    plan::{Plan, Procedure},
    units::{ParseUnitError, Rate, SizeModel, Span, parse_size, string_serde},
};

/// Which tests are made, of which load, at which sizes, and how long trials take.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SuitePlan {
    /// The tests, in this order.
    pub tests: Vec<SuiteTest>,
    /// The load that is changed from trial to trial.
    pub of: Quantity,
    /// The job whose load that is, by its name. Without it the first that has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// Frame sizes with FCS, each a test of its own: a size, a range, `imix`, weights, or a genome of RFC 6985
    /// (`7a4d1g`). Empty: those that the streams have. A size in which the frame does not fit is raised to the
    /// smallest that does.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sizes: Vec<TestSize>,
    /// IPv4 and IPv6 in one set of streams (RFC 5180): the shares of frames that are of IPv6, each a run of its own at each
    /// size, named by it (`512 10% IPv6`). The job has streams of both; those of each share their part of the load as
    /// their rates say. Empty: streams as they are.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ipv6_shares: Vec<Share>,
    /// No load above it is tried. Without it line rate or, where no wire sets one, what the tester was found to
    /// offer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max: Option<Load>,
    /// No load below it is tried.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min: Option<Load>,
    /// Whether to tell how much the tester can do by itself before the first test.
    pub ceiling: bool,
    /// How a load is searched.
    pub search: SuiteSearch,
    /// How long trials take.
    pub times: SuiteTimes,
    /// Latency (RFC 2544 section 26.2, RFC 8219 section 7.2).
    pub latency: LatencyTest,
    /// Frame loss rate (RFC 2544 section 26.3): by what share of the maximum each load is less than the one
    /// before; of the maximum forwarding rate (RFC 2889 section 5.6.1) by what share it is more. Up to 10 %.
    pub step: Share,
    /// Impact (RFC 5180).
    pub impact: ImpactTest,
    /// Back-to-back frames (RFC 9004).
    pub b2b: BurstTest,
    /// System recovery (RFC 2544 section 26.5).
    pub recovery: RecoveryTest,
    /// Reset (RFC 6201).
    pub reset: ResetTest,
    /// Services, each with a test of its configuration and one of all together (ITU-T Y.1564).
    #[serde(rename = "service", skip_serializing_if = "Vec::is_empty")]
    pub services: Vec<Service>,
    /// What else is there beside the frames of the test (RFC 2544 section 11), or how they come (section 21).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub modifiers: Vec<Modifier>,
    /// Modifier `bursts`: frames of a burst, a run each. Without it 16, 64, 256 and 1024.
    #[serde(skip_serializing_if = "are_usual_bursts")]
    pub burst_lengths: Vec<u32>,
    /// Modifier `management`: whom it asks.
    #[serde(skip_serializing_if = "is_usual")]
    pub management: ManagementPlan,
    /// Modifier `filters`: conditions of the device's filter, 1 or 25; without it 1. The report lists
    /// them.
    #[serde(skip_serializing_if = "is_one")]
    pub filter_conditions: u32,
    /// The device under test, for the report.
    pub device: SuiteDevice,
    /// The operator has confirmed that nothing else is in this network (RFC 6815).
    #[serde(skip_serializing_if = "is_false")]
    pub isolated: bool,
    /// What the times and limits come from, for the report: `fast`, `conformance` or nothing.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub preset: String,
}

/// Frames of bursts that RFC 2544 section 21 names.
pub const BURST_LENGTHS: [u32; 4] = [16, 64, 256, 1024];

/// Numbers of conditions that RFC 2544 section 11.4 names.
pub const FILTER_CONDITIONS: [u32; 2] = [1, 25];

/// The preset of the times and limits of the standards ([`SuitePlan::conform`]).
pub const CONFORMANCE: &str = "conformance";

/// A test of a suite.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum SuiteTest {
    /// The highest load without loss, by the search of the plan (RFC 2544 section 26.1).
    Throughput,
    /// The highest loads that meet goals, searched together by MLRsearch (RFC 9971).
    Ndr,
    /// Delay and its variation, at shares of the throughput (RFC 2544 section 26.2, RFC 8219, RFC 5481).
    Latency,
    /// What is lost at 100 %, 90 %, 80 % and so on (RFC 2544 section 26.3).
    Loss,
    /// The highest forwarding rate, whatever is lost, between the throughput and the maximum (RFC 2889 section 5.6.1).
    Mfr,
    /// Loss and delay at shares of the maximum, with no limit searched: for frames that a device may not be fit to forward
    /// at speed, as those with hop-by-hop options (RFC 5180).
    Impact,
    /// The longest burst without loss (RFC 9004).
    B2b,
    /// How long an overload is felt (RFC 2544 section 26.5).
    Recovery,
    /// How long the device does not forward when it is reset (RFC 6201).
    Reset,
    /// Activation of services (ITU-T Y.1564).
    Y1564,
}

impl SuiteTest {
    /// All.
    pub const ALL: [Self; 10] = [
        Self::Throughput,
        Self::Ndr,
        Self::Latency,
        Self::Loss,
        Self::Mfr,
        Self::Impact,
        Self::B2b,
        Self::Recovery,
        Self::Reset,
        Self::Y1564,
    ];
    /// Those of RFC 2544, in its order.
    pub const RFC2544: [Self; 6] = [
        Self::Throughput,
        Self::Latency,
        Self::Loss,
        Self::B2b,
        Self::Recovery,
        Self::Reset,
    ];

    /// The word in plans and options.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Throughput => "throughput",
            Self::Ndr => "ndr",
            Self::Latency => "latency",
            Self::Loss => "loss",
            Self::Mfr => "mfr",
            Self::Impact => "impact",
            Self::B2b => "b2b",
            Self::Recovery => "recovery",
            Self::Reset => "reset",
            Self::Y1564 => "y1564",
        }
    }

    /// Whether it finds a limit of the device: the highest load that holds, or the highest forwarding rate.
    #[must_use]
    pub const fn finds_limit(self) -> bool {
        matches!(self, Self::Throughput | Self::Ndr | Self::Mfr)
    }

    /// Whether it needs the throughput of its size, which is searched first where no other test of the suite does.
    #[must_use]
    pub const fn needs_throughput(self) -> bool {
        matches!(
            self,
            Self::Latency | Self::Mfr | Self::B2b | Self::Recovery | Self::Reset
        )
    }
}

impl FromStr for SuiteTest {
    type Err = ParseUnitError;

    fn from_str(text: &str) -> Result<Self, ParseUnitError> {
        let found = Self::ALL.into_iter().find(|test| test.name() == text);
        found.ok_or_else(|| {
            ParseUnitError::new(
                text,
                "a test: throughput, ndr, latency, loss, mfr, impact, b2b, recovery, reset or y1564",
            )
        })
    }
}

/// What a load is counted in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Quantity {
    /// Frames per second of a traffic job, in each direction.
    #[default]
    Frames,
    /// New connections per second of a load.
    Cps,
    /// Connections of a load that are open at a time.
    Cc,
    /// Requests per second of a load, or of a load of HTTP requests.
    Rps,
}

impl Quantity {
    /// All.
    pub const ALL: [Self; 4] = [Self::Frames, Self::Cps, Self::Cc, Self::Rps];

    /// The word in plans and options.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Frames => "frames",
            Self::Cps => "cps",
            Self::Cc => "cc",
            Self::Rps => "rps",
        }
    }

    /// The unit of its values.
    #[must_use]
    pub const fn unit(self) -> &'static str {
        match self {
            Self::Frames => "fps",
            Self::Cps => "cps",
            Self::Cc => "connections",
            Self::Rps => "rps",
        }
    }
}

impl FromStr for Quantity {
    type Err = ParseUnitError;

    fn from_str(text: &str) -> Result<Self, ParseUnitError> {
        let found = Self::ALL.into_iter().find(|of| of.name() == text);
        found.ok_or_else(|| ParseUnitError::new(text, "frames, cps, cc or rps"))
    }
}

/// A load as the user writes it: a rate of frames (`100kpps`, `1gbps`, `40%`), or a number of connections or
/// requests (`20k`).
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Load {
    /// Of frames.
    Rate(Rate),
    /// Frames, connections or requests per second, or connections.
    Number(u64),
}

impl FromStr for Load {
    type Err = ParseUnitError;

    fn from_str(text: &str) -> Result<Self, ParseUnitError> {
        let number = crate::units::parse_count(text).map(Self::Number);
        number.or_else(|_| text.parse().map(Self::Rate))
    }
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rate(rate) => rate.fmt(f),
            Self::Number(number) => super::Count(*number).fmt(f),
        }
    }
}

string_serde!(
    Load,
    "Load",
    "a rate (100kpps, 1gbps, 40%) or a number (20k)",
    "100kpps"
);

/// Frame sizes of one test, and how the user wrote them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TestSize {
    /// As written.
    pub name: String,
    /// The sizes.
    pub model: SizeModel,
}

impl FromStr for TestSize {
    type Err = ParseUnitError;

    fn from_str(text: &str) -> Result<Self, ParseUnitError> {
        let name = text.trim().to_owned();
        let model = parse_size(&name)?;
        Ok(Self { name, model })
    }
}

impl fmt::Display for TestSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

string_serde!(
    TestSize,
    "TestSize",
    "a frame size with FCS, a range, imix, weights, or a genome of RFC 6985 (7a4d1g)",
    "64"
);

/// How a load is searched.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SuiteSearch {
    /// How the throughput is searched.
    pub method: Method,
    /// A load passes when no more than this share is lost (frames) or fails (connections, requests).
    pub loss: Share,
    /// The search ends when the best load and the least that failed differ by no more than this share of the
    /// latter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub precision: Option<Share>,
    /// The same as a share of the largest load, as RFC 2544 tools do it. Without either: 0.5 % of the load.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resolution: Option<Share>,
    /// Loss verification: a trial that fails is made again so often at most, and the first that passes makes the
    /// load pass (ETSI GS NFV-TST 009 section 12.3).
    pub repeats: u32,
    /// What `ndr` searches for. Empty: goals `ndr` and `pdr`.
    #[serde(rename = "goal", skip_serializing_if = "Vec::is_empty")]
    pub goals: Vec<GoalPlan>,
    /// The search of one size ends after this time with what it has.
    pub budget: Span,
}

/// How a throughput is searched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Method {
    /// Halving (RFC 2544 section 26.1).
    #[default]
    Binary,
    /// By MLRsearch (RFC 9971) with one goal: the loss of the search.
    Mlr,
}

/// A goal of MLRsearch (RFC 9971 section 4.6).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GoalPlan {
    /// What the report calls it.
    pub name: String,
    /// A trial of this length counts in full.
    pub final_duration: Span,
    /// Trials at a load together last so long before it is decided at the latest.
    pub duration_sum: Span,
    /// A trial is low when no more than this share is lost.
    pub loss: Share,
    /// The share of the sum of durations in which more may be lost.
    pub exceed: Share,
    /// The bounds differ by no more than this share of the upper one.
    pub width: Share,
}

/// How long trials take.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SuiteTimes {
    /// A trial that decides; RFC 2544 section 24 asks for 60 s.
    pub trial: Span,
    /// A trial that finds the way. Without it as long as one that decides.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub search: Option<Span>,
    /// From nothing to the full rate before each trial; those frames are not counted.
    pub ramp: Span,
    /// After a trial, for frames that are on their way.
    pub drain: Span,
    /// Between two trials.
    pub settle: Span,
    /// Whether a first trial wakes the device; what it shows is thrown away.
    pub warm_up: bool,
}

/// Delay and its variation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LatencyTest {
    /// How long a stream is; 120 s by RFC 2544.
    pub duration: Span,
    /// Frames before this time are not measured; 60 s by RFC 2544.
    pub after: Span,
    /// How often; 20 by RFC 2544.
    pub repetitions: u32,
    /// Shares of the throughput.
    pub loads: Vec<Share>,
}

/// Impact.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ImpactTest {
    /// Shares of the maximum; 1, 10 and 50 % by RFC 5180.
    pub loads: Vec<Share>,
}

/// Back-to-back frames.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct BurstTest {
    /// Searches, whose mean is the result; RFC 2544 says 50.
    pub searches: u32,
    /// The longest burst, as the time it takes at the full rate; up to 30 s.
    pub longest: Span,
    /// It ends when the longest burst without loss and the shortest with loss differ by so many frames.
    pub resolution: u64,
}

/// System recovery.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RecoveryTest {
    /// How long the overload lasts; RFC 2544 says at least 60 s.
    pub overload: Span,
    /// How long half of it lasts after that: up to here the device has to recover.
    pub half: Span,
    /// How often.
    pub repetitions: u32,
}

/// Reset.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ResetTest {
    /// The command that resets the device, by `sh -c`. Without it the test is not made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trigger: Option<String>,
    /// What kind of reset that is, for the report: `hardware`, `software`, `power`, `link`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// The load as a share of the largest; 0: 10 %.
    #[serde(skip_serializing_if = "is_nothing")]
    pub load: Share,
    /// How long it is waited for the device to forward again; 0: 30 s.
    #[serde(skip_serializing_if = "is_zero")]
    pub patience: Span,
}

/// A service of ITU-T Y.1564.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Service {
    /// What the report calls it.
    pub name: String,
    /// The traffic job of the plan whose frames are those of this service, by its name. Without it that of the suite.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// Committed information rate: `100mbps-l2`, with FCS, or `100mbps`, with preamble and gap too.
    pub cir: Rate,
    /// Excess information rate. 0: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub eir: Option<Rate>,
    /// Longest frame delay (FTD).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay: Option<Span>,
    /// Largest frame delay variation (FDV), from the shortest to the longest delay of a step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub variation: Option<Span>,
    /// Largest frame loss ratio (FLR).
    pub loss: Share,
    /// Least availability (AVAIL) in the performance test, which is then 10 s long at least: the share of its time in
    /// which the service is available. Ten seconds in a row in each of which more than half is lost end that, ten in
    /// which no more is lost begin it again (ITU-T Y.1563).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub availability: Option<Share>,
    /// How long a step of the configuration test is.
    pub step: Span,
    /// How long the performance test is.
    pub performance: Span,
    /// What a policer may let through beyond CIR and EIR, as a share of their sum.
    pub tolerance: Share,
}

/// What else is there beside the frames of a test (RFC 2544 section 11), or how they come (section 21).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Modifier {
    /// Every hundredth frame goes to all stations (section 11.1).
    Broadcast,
    /// Frames come in bursts, and the least gap between two bursts is found: throughput and ndr are searched again for
    /// each of `burst_lengths` (section 21).
    Bursts,
    /// A query of SNMP to the device itself is the first frame of every second (section 11.2).
    Management,
    /// An update of RIPv2 is the first frame of the trial, and one more comes every 30 s: two tables in turn, of networks
    /// that no test uses (section 11.3).
    Routing,
    /// The device filters what it forwards, by `filter_conditions`; its operator has it do so (section 11.4).
    Filters,
}

impl Modifier {
    /// All.
    pub const ALL: [Self; 5] = [
        Self::Broadcast,
        Self::Bursts,
        Self::Management,
        Self::Routing,
        Self::Filters,
    ];

    /// The word in plans and options.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Broadcast => "broadcast",
            Self::Bursts => "bursts",
            Self::Management => "management",
            Self::Routing => "routing",
            Self::Filters => "filters",
        }
    }
}

impl FromStr for Modifier {
    type Err = ParseUnitError;

    fn from_str(text: &str) -> Result<Self, ParseUnitError> {
        let found = Self::ALL.into_iter().find(|m| m.name() == text);
        found.ok_or_else(|| {
            ParseUnitError::new(
                text,
                "a modifier: broadcast, bursts, management, routing or filters",
            )
        })
    }
}

/// Queries of SNMPv2c for sysUpTime.0 (RFC 3418), one a second.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ManagementPlan {
    /// The device's own address. Without it the gateway of the sending port, else the router's by the standards: the
    /// first of the network of the stream's source (RFC 2544 appendix C.2.2, RFC 5180 section 5.1).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<IpAddr>,
    /// Whom the queries are from. Without it the first source of the stream.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<IpAddr>,
    /// The community.
    pub community: String,
}

impl Default for ManagementPlan {
    fn default() -> Self {
        Self {
            address: None,
            source: None,
            community: "public".to_owned(),
        }
    }
}

/// The device under test, for the report.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SuiteDevice {
    /// What the report calls it.
    pub name: String,
    /// Its version.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub version: String,
    /// How it is configured.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub configuration: String,
}

impl Default for SuitePlan {
    fn default() -> Self {
        Self {
            tests: SuiteTest::RFC2544.to_vec(),
            of: Quantity::Frames,
            job: None,
            sizes: Vec::new(),
            ipv6_shares: Vec::new(),
            max: None,
            min: None,
            ceiling: true,
            search: SuiteSearch::default(),
            times: SuiteTimes::default(),
            latency: LatencyTest::default(),
            step: Share(0.1),
            impact: ImpactTest::default(),
            b2b: BurstTest::default(),
            recovery: RecoveryTest::default(),
            reset: ResetTest::default(),
            services: Vec::new(),
            modifiers: Vec::new(),
            burst_lengths: BURST_LENGTHS.to_vec(),
            management: ManagementPlan::default(),
            filter_conditions: FILTER_CONDITIONS[0],
            device: SuiteDevice::default(),
            isolated: false,
            preset: String::new(),
        }
    }
}

impl Default for SuiteSearch {
    fn default() -> Self {
        Self {
            method: Method::Binary,
            loss: Share(0.0),
            precision: None,
            resolution: None,
            repeats: 0,
            goals: Vec::new(),
            budget: Span::from_secs(20 * 60),
        }
    }
}

impl Default for SuiteTimes {
    fn default() -> Self {
        Self {
            trial: Span::from_secs(10),
            search: None,
            ramp: Span::from_millis(500),
            drain: Span::from_millis(500),
            settle: Span::from_millis(500),
            warm_up: true,
        }
    }
}

impl Default for LatencyTest {
    fn default() -> Self {
        Self {
            duration: Span::from_secs(20),
            after: Span::from_secs(10),
            repetitions: 3,
            loads: vec![Share(0.1), Share(0.5), Share(0.9), Share(1.0)],
        }
    }
}

impl Default for ImpactTest {
    fn default() -> Self {
        Self {
            loads: vec![Share(0.01), Share(0.1), Share(0.5)],
        }
    }
}

impl Default for BurstTest {
    fn default() -> Self {
        Self {
            searches: 10,
            longest: Span::from_secs(2),
            resolution: 1,
        }
    }
}

impl Default for RecoveryTest {
    fn default() -> Self {
        Self {
            overload: Span::from_secs(10),
            half: Span::from_secs(10),
            repetitions: 5,
        }
    }
}

impl Default for Service {
    fn default() -> Self {
        Self {
            name: "service".to_owned(),
            job: None,
            cir: Rate::Max,
            eir: None,
            delay: None,
            variation: None,
            loss: Share(0.0),
            availability: None,
            step: Span::from_secs(10),
            performance: Span::from_secs(15 * 60),
            tolerance: Share(0.01),
        }
    }
}

impl Default for SuiteDevice {
    fn default() -> Self {
        Self {
            name: "device".to_owned(),
            version: String::new(),
            configuration: String::new(),
        }
    }
}

impl GoalPlan {
    /// A goal by its name: `ndr`, `pdr` (FD.io), `rfc2544`, `tst009`.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let goal = |last: u64, sum: u64, loss: f64, exceed: f64| Self {
            name: name.to_owned(),
            final_duration: Span::from_secs(last),
            duration_sum: Span::from_secs(sum),
            loss: Share(loss),
            exceed: Share(exceed),
            width: Share(0.005),
        };
        match name {
            "ndr" => Some(goal(1, 21, 0.0, 0.5)),
            "pdr" => Some(goal(1, 21, 0.005, 0.5)),
            "rfc2544" => Some(goal(60, 60, 0.0, 0.0)),
            "tst009" => Some(goal(60, 120, 0.0, 0.5)),
            _ => None,
        }
    }
}

/// What each test is made with: sizes, and the share of IPv6 where there are several.
#[derive(Clone, Debug, PartialEq)]
pub struct SuiteCase {
    /// What the report calls it, where results have their sizes: `64`, `imix`, `512 10% IPv6`. Empty where the plan names
    /// neither.
    pub name: String,
    /// Frame sizes; none: those of the streams.
    pub size: Option<TestSize>,
    /// The share of frames that are of IPv6; none: as the streams are.
    pub ipv6_share: Option<Share>,
}

impl SuitePlan {
    /// What each test is made with, one after the other.
    #[must_use]
    pub fn cases(&self) -> Vec<SuiteCase> {
        let or_none = |n: usize| if n == 0 { 1 } else { n };
        let mut cases = Vec::new();
        for n in 0..or_none(self.sizes.len()) {
            for m in 0..or_none(self.ipv6_shares.len()) {
                let (size, share) = (self.sizes.get(n), self.ipv6_shares.get(m));
                let percent = |share: &Share| (share.0 * 1e8).round() / 1e6;
                let parts = [
                    size.map(|size| size.name.clone()),
                    share.map(|share| format!("{}% IPv6", percent(share))),
                ];
                cases.push(SuiteCase {
                    name: parts.into_iter().flatten().collect::<Vec<_>>().join(" "),
                    size: size.cloned(),
                    ipv6_share: share.copied(),
                });
            }
        }
        cases
    }

    /// The goals of `ndr`.
    #[must_use]
    pub fn goals(&self) -> Vec<GoalPlan> {
        match self.search.goals.as_slice() {
            [] => ["ndr", "pdr"]
                .into_iter()
                .filter_map(GoalPlan::named)
                .collect(),
            goals => goals.to_vec(),
        }
    }

    /// Whether something is beside the frames of the test, or how they come.
    #[must_use]
    pub fn has(&self, modifier: Modifier) -> bool {
        self.modifiers.contains(&modifier)
    }

    /// How frames come in the runs of a test: evenly, and in bursts of so many.
    #[must_use]
    pub fn bursts_of(&self, test: SuiteTest) -> Vec<Option<u32>> {
        let mut runs = vec![None];
        if test.finds_limit() && self.has(Modifier::Bursts) {
            runs.extend(self.burst_lengths.iter().copied().map(Some));
        }
        runs
    }

    /// How long a trial that finds the way is.
    #[must_use]
    pub fn search_time(&self) -> Span {
        self.times.search.unwrap_or(self.times.trial)
    }
}

impl Plan {
    /// Its suite of tests, if it holds one.
    #[must_use]
    pub fn suite(&self) -> Option<&SuitePlan> {
        match &self.procedure {
            Some(Procedure::Suite(suite)) => Some(suite),
            _ => None,
        }
    }

    /// What one trial of its suite is before the suite says how much is sent: its ports and jobs, without criteria,
    /// which judge what the suite finds.
    #[must_use]
    pub fn trial(&self) -> Self {
        Self {
            procedure: None,
            criteria: Vec::new(),
            ..self.clone()
        }
    }
}

const fn is_false(b: &bool) -> bool {
    !*b
}
const fn is_one(n: &u32) -> bool {
    *n == 1
}
fn is_usual<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
fn are_usual_bursts(lengths: &[u32]) -> bool {
    lengths == BURST_LENGTHS
}
fn is_nothing(share: &Share) -> bool {
    share.0 == 0.0
}
fn is_zero(span: &Span) -> bool {
    *span == Span::default()
}
