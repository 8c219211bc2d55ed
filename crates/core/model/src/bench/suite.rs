//! Plan of a test suite: RFC 2544 and related tests on any device between the ports of the tester.
//!
//! The plan that holds the suite defines one trial: its ports and jobs. The suite changes the load of one job from
//! trial to trial. The other jobs run unchanged in each trial.

use std::{fmt, net::IpAddr, str::FromStr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{FamilyFrames, Share};
use crate::{
    plan::{Plan, Procedure},
    units::{ParseUnitError, Rate, SizeModel, Span, parse_size, string_serde},
};

mod b2b;
mod impact;
mod latency;
mod lb;
mod loss;
mod mfr;
mod ndr;
mod recovery;
mod reset;
mod section;
mod soak;
mod test;
mod throughput;
mod y1564;

pub use self::{
    b2b::{BurstResult, BurstTest},
    impact::{ImpactRow, ImpactTest},
    latency::{LatencyRow, LatencyTest},
    loss::LossRow,
    mfr::{MfrResult, MfrRow},
    ndr::{GoalPlan, MlrLoad, MlrResult},
    recovery::{RecoveryResult, RecoveryTest},
    reset::{ResetResult, ResetTest},
    section::{in_bursts, is_test, section, sections, size_text},
    soak::SoakTest,
    test::{SuiteTest, TestDef},
    y1564::{Service, ServiceResult, ServiceStep},
};

/// Unit of loads of frames.
const FPS: wb_figures::Unit = wb_figures::Unit::Load("fps");

/// Tests to run, with the load, frame sizes and durations of trials.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SuitePlan {
    /// Tests to run, in this order (default: the tests of RFC 2544).
    pub tests: Vec<SuiteTest>,
    /// Quantity of the load that changes from trial to trial (default `frames`).
    pub of: Quantity,
    /// Name of the job whose load changes (default: the first job with such a load).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// Frame sizes with FCS, with a separate test for each: a size, a range, `imix`, weights, or a genome of RFC 6985
    /// (`7a4d1g`). Empty: the sizes of the streams. A size that is too small for the frame is raised to the smallest
    /// size that fits.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sizes: Vec<TestSize>,
    /// Shares of IPv6 frames in a mix of IPv4 and IPv6 (RFC 5180). Each share is a separate run at each size, and its
    /// name includes the share (`512 10% IPv6`). The job needs streams of both IP versions; the streams of each version
    /// divide its part of the load in proportion to their rates. Empty: streams are used unchanged.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ipv6_shares: Vec<Share>,
    /// Highest load to try, in each direction: a rate, or a number of connections or requests (default: line rate or,
    /// without a known line rate, the highest load that the tester was found to offer).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max: Option<Load>,
    /// Lowest load to try, at most `max`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min: Option<Load>,
    /// Measure the maximum load that the tester can offer before the first test (default true).
    pub ceiling: bool,
    /// Parameters of the search for a load.
    pub search: SuiteSearch,
    /// Durations of trials.
    pub times: SuiteTimes,
    /// Latency (RFC 2544 section 26.2, RFC 8219 section 7.2).
    pub latency: LatencyTest,
    /// Frame loss rate (RFC 2544 section 26.3): decrease from one load to the next, as a share of the maximum. Maximum
    /// forwarding rate (RFC 2889 section 5.6.1): the increase. 0.1 % to 10 % (default 10 %).
    pub step: Share,
    /// Impact (RFC 5180).
    pub impact: ImpactTest,
    /// Back-to-back frames (RFC 9004).
    pub b2b: BurstTest,
    /// System recovery (RFC 2544 section 26.5).
    pub recovery: RecoveryTest,
    /// Reset (RFC 6201).
    pub reset: ResetTest,
    /// One load for a long time.
    #[serde(skip_serializing_if = "is_usual")]
    pub soak: SoakTest,
    /// Services, each with a configuration test, and one performance test of all together (ITU-T Y.1564).
    #[serde(rename = "service", skip_serializing_if = "Vec::is_empty")]
    pub services: Vec<Service>,
    /// Additional conditions of the tests: extra frames (RFC 2544 section 11) or frames in bursts (section 21).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub modifiers: Vec<Modifier>,
    /// Modifier `bursts`: frames per burst, with a separate run for each (default 16, 64, 256 and 1024).
    #[serde(skip_serializing_if = "are_usual_bursts")]
    pub burst_lengths: Vec<u32>,
    /// Modifier `management`: target and source of the queries.
    #[serde(skip_serializing_if = "is_usual")]
    pub management: ManagementPlan,
    /// Modifier `filters`: number of conditions of the device's filter, 1 or 25 (default 1). The report lists the
    /// conditions.
    #[serde(skip_serializing_if = "is_one")]
    pub filter_conditions: u32,
    /// The device under test, for the report.
    pub device: SuiteDevice,
    /// Confirms that nothing else is connected to this network (RFC 6815).
    #[serde(skip_serializing_if = "is_false")]
    pub isolated: bool,
    /// Preset of the times and limits, for the report: `fast`, `conformance` or empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub preset: String,
}

/// Burst lengths in frames that RFC 2544 section 21 names.
pub const BURST_LENGTHS: [u32; 4] = [16, 64, 256, 1024];

/// Numbers of filter conditions that RFC 2544 section 11.4 names.
pub const FILTER_CONDITIONS: [u32; 2] = [1, 25];

/// Preset with the times and limits of the standards ([`SuitePlan::conform`]).
pub const CONFORMANCE: &str = "conformance";

/// Unit in which a load is counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Quantity {
    /// Frames per second of a traffic job, in each direction.
    #[default]
    Frames,
    /// New connections per second of a load.
    Cps,
    /// Concurrently open connections of a load.
    Cc,
    /// Requests per second of a load, or of a load of HTTP requests.
    Rps,
}

impl Quantity {
    /// All quantities.
    pub const ALL: [Self; 4] = [Self::Frames, Self::Cps, Self::Cc, Self::Rps];

    /// Name in plans and options.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Frames => "frames",
            Self::Cps => "cps",
            Self::Cc => "cc",
            Self::Rps => "rps",
        }
    }

    /// Unit of the values.
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

impl Quantity {
    /// Returns the metric of the limit, if it has a dedicated name.
    #[must_use]
    pub const fn metric(self) -> Option<&'static str> {
        match self {
            Self::Frames => None,
            Self::Cps => Some("cps"),
            Self::Cc => Some("cc"),
            Self::Rps => Some("rps"),
        }
    }
}

/// Load as the user writes it: a rate of frames (`100kpps`, `1gbps`, `40%`), or a number of connections or requests
/// (`20k`).
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Load {
    /// Rate of frames.
    Rate(Rate),
    /// Frames, connections or requests per second, or concurrent connections.
    Number(u64),
}

impl Load {
    /// Returns true if this load is larger than another one of the same unit.
    pub(crate) fn exceeds(self, other: Self) -> bool {
        match (self, other) {
            (Self::Rate(Rate::L1(a)), Self::Rate(Rate::L1(b)))
            | (Self::Rate(Rate::L2(a)), Self::Rate(Rate::L2(b)))
            | (Self::Rate(Rate::Percent(a)), Self::Rate(Rate::Percent(b))) => {
                a.as_f64() > b.as_f64()
            }
            _ => matches!((self.count(), other.count()), (Some(a), Some(b)) if a > b),
        }
    }

    /// Returns the load if it is a number, or a number of frames per second.
    fn count(self) -> Option<f64> {
        match self {
            Self::Number(number) => Some(number as f64),
            Self::Rate(Rate::Pps(number)) => Some(number.as_f64()),
            Self::Rate(_) => None,
        }
    }
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

/// Frame sizes of one test, with the user's notation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TestSize {
    /// The user's notation.
    pub name: String,
    /// Frame sizes.
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

/// Parameters of the search for a load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SuiteSearch {
    /// Search method for the throughput (default `binary`).
    pub method: Method,
    /// Share of frames lost, or of connections or requests failed, up to which a load passes, below 1 (default 0).
    pub loss: Share,
    /// Relative precision, 0.01 % to 50 %: the search ends when the highest load that passed and the lowest load that
    /// failed differ by at most this share of the latter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub precision: Option<Share>,
    /// Resolution as a share of the maximum load, as RFC 2544 tools define it, 0.01 % to 50 %. Default without
    /// `precision` and `resolution`: 0.5 % of the load.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resolution: Option<Share>,
    /// Loss verification: maximum number of times that a failed trial is repeated, 0 to 100 (default 0). The load
    /// passes with the first repetition that passes (ETSI GS NFV-TST 009 section 12.3).
    pub repeats: u32,
    /// Goals of `ndr`. Empty: `ndr` and `pdr`.
    #[serde(rename = "goal", skip_serializing_if = "Vec::is_empty")]
    pub goals: Vec<GoalPlan>,
    /// Time limit of the search at one size (default 20 min). The search then ends with its best result.
    pub budget: Span,
}

/// Search method for the throughput.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Method {
    /// Binary search (RFC 2544 section 26.1).
    #[default]
    Binary,
    /// MLRsearch (RFC 9971) with one goal: the loss of the search.
    Mlr,
}

/// Durations of trials.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SuiteTimes {
    /// Duration of a full-length trial, at least 100 ms (default 10 s; RFC 2544 section 24 asks for 60 s).
    pub trial: Span,
    /// Duration of a search trial, at least 100 ms. Default: the duration of a full-length trial.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub search: Option<Span>,
    /// Ramp-up time from zero to the full rate before each trial (default 500ms). Frames of the ramp-up are not
    /// counted.
    pub ramp: Span,
    /// Time after a trial to wait for frames in flight, up to 1m (default 500ms).
    pub drain: Span,
    /// Pause between two trials (default 500ms).
    pub settle: Span,
    /// Run a warm-up trial first and discard its results (default true).
    pub warm_up: bool,
}

/// Additional condition of a test: extra frames (RFC 2544 section 11) or frames in bursts (section 21).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Modifier {
    /// Every hundredth frame is a broadcast (section 11.1).
    Broadcast,
    /// Frames come in bursts, and the smallest gap between two bursts is searched: throughput and ndr are searched
    /// again for each of `burst_lengths` (section 21).
    Bursts,
    /// The first frame of every second is an SNMP query to the device itself (section 11.2).
    Management,
    /// The first frame of the trial is a RIPv2 update, and another update follows every 30 s. Two tables alternate, of
    /// networks that no test uses (section 11.3).
    Routing,
    /// The device filters forwarded frames with `filter_conditions` conditions, which its operator configures (section
    /// 11.4).
    Filters,
}

impl Modifier {
    /// All modifiers.
    pub const ALL: [Self; 5] = [
        Self::Broadcast,
        Self::Bursts,
        Self::Management,
        Self::Routing,
        Self::Filters,
    ];

    /// Name in plans and options.
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

/// SNMPv2c queries for sysUpTime.0 (RFC 3418), one per second.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ManagementPlan {
    /// Address of the device itself (default: the gateway of the sending port or, without a gateway, the first address
    /// of the network of the stream's source, which is the router address of RFC 2544 appendix C.2.2 and RFC 5180
    /// section 5.1).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<IpAddr>,
    /// Source address of the queries (default: the first source address of the stream).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<IpAddr>,
    /// SNMPv2c community (default `public`).
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
    /// Name in the report (default `device`).
    pub name: String,
    /// Software version of the device.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub version: String,
    /// Configuration of the device.
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
            soak: SoakTest::default(),
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

impl Default for SuiteDevice {
    fn default() -> Self {
        Self {
            name: "device".to_owned(),
            version: String::new(),
            configuration: String::new(),
        }
    }
}

/// Parameters of one run of each test: frame sizes, and the share of IPv6 if the plan names shares.
#[derive(Clone, Debug, PartialEq)]
pub struct SuiteCase {
    /// Name in the report: `64`, `imix`, `512 10% IPv6`. Empty if the plan names neither sizes nor shares.
    pub name: String,
    /// Frame sizes; `None` for the sizes of the streams.
    pub size: Option<TestSize>,
    /// Share of IPv6 frames; `None` for unchanged streams.
    pub ipv6_share: Option<Share>,
}

impl SuitePlan {
    /// Cases in which each test runs, in order.
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

    /// Goals of `ndr`.
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

    /// Loss ratios up to which loads pass in a test: those of its goals, or that of the search.
    #[must_use]
    pub fn loss_goals(&self, test: SuiteTest) -> Vec<f64> {
        match test {
            SuiteTest::Ndr => self.goals().iter().map(|goal| goal.loss.0).collect(),
            _ => vec![self.search.loss.0],
        }
    }

    /// Returns true if the plan has this modifier.
    #[must_use]
    pub fn has(&self, modifier: Modifier) -> bool {
        self.modifiers.contains(&modifier)
    }

    /// Runs of a test: evenly spaced frames, and bursts of each length in frames.
    #[must_use]
    pub fn bursts_of(&self, test: SuiteTest) -> Vec<Option<u32>> {
        let mut runs = vec![None];
        if test.finds_limit() && self.has(Modifier::Bursts) {
            runs.extend(self.burst_lengths.iter().copied().map(Some));
        }
        runs
    }

    /// Duration of a search trial.
    #[must_use]
    pub fn search_time(&self) -> Span {
        self.times.search.unwrap_or(self.times.trial)
    }
}

impl Plan {
    /// Returns the test suite of the plan, if the plan holds one.
    #[must_use]
    pub fn suite(&self) -> Option<&SuitePlan> {
        match &self.procedure {
            Some(Procedure::Suite(suite)) => Some(suite),
            _ => None,
        }
    }

    /// Returns the plan of one trial before the suite sets its load: ports and jobs, without criteria, which apply to
    /// the results of the suite.
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
