//! Definition of a test of a suite: names, criteria, outcome and presentation. The benchmark engine executes the test.

use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use wb_figures::Section;

use super::{
    Quantity, SuitePlan, b2b, impact, latency, lb, loss, mfr, ndr, recovery, reset, soak,
    throughput, y1564,
};
use crate::{bench::SuiteResult, criteria::Criterion, units::ParseUnitError, validate::Findings};

/// Adds the figures, tables and notes of a test to the section of one result.
type AddTo = for<'a> fn(&'a SuiteResult, Option<&SuitePlan>, Section<'a>) -> Section<'a>;

/// Everything about a test except its execution.
pub struct TestDef {
    /// Name in plans, options and reports.
    pub name: &'static str,
    /// Name in its document.
    pub title: &'static str,
    /// The document that defines it.
    pub document: &'static str,
    /// Heading of its results: title and document.
    pub heading: &'static str,
    /// True if it finds a limit of the device: the highest load that passes, or the highest forwarding rate.
    pub finds_limit: bool,
    /// True if it searches for the highest load that passes.
    pub searches: bool,
    /// True if it needs the throughput of its size. The throughput is searched first unless another test of the suite
    /// finds it.
    pub needs_throughput: bool,
    /// True if the load may also be counted in connections or requests.
    pub takes_connections: bool,
    /// True if the loss or the forwarded rate itself is the result, so that its trials neither pass nor fail.
    pub tells_loss: bool,
    /// True if its trials are bursts, so that loads are numbers of frames.
    pub sends_bursts: bool,
    /// True if the plan holds its pass criteria: the attributes of services.
    pub has_services: bool,
    /// Metrics of criteria that apply to a result.
    pub(crate) metrics: fn(&SuiteResult) -> Vec<&'static str>,
    /// Values of a result for a criterion with one of these metrics, one for each load or repetition: loads in the unit
    /// of the limit, times in ns, shares of 1. An unknown value is `None`.
    pub(crate) values: fn(&SuiteResult, &Criterion) -> Vec<Option<f64>>,
    /// Checks the keys of the plan for the test.
    pub(crate) check: fn(&SuitePlan, &mut Findings),
    /// Returns true if the device failed the test.
    pub(crate) has_failed: fn(&SuiteResult) -> bool,
    /// Behaviour of a device that fails the test, as a clause: `nothing was forwarded`.
    pub failure: &'static str,
    /// Returns true if a result has no valid trials.
    pub(crate) is_void: fn(&SuiteResult) -> bool,
    pub(crate) add_to: AddTo,
}

/// Defaults of a test with a name, a title and a document.
macro_rules! named {
    ($name:literal, $title:literal, $document:literal) => {
        $crate::bench::suite::test::TestDef {
            name: $name,
            title: $title,
            document: $document,
            heading: concat!($title, " (", $document, ")"),
            finds_limit: false,
            searches: false,
            needs_throughput: false,
            takes_connections: false,
            tells_loss: false,
            sends_bursts: false,
            has_services: false,
            metrics: |_| vec![$name],
            values: |_, _| Vec::new(),
            check: |_, _| (),
            has_failed: |_| false,
            failure: "nothing was forwarded",
            is_void: |result| result.test.finds_limit() && result.limit.is_none(),
            add_to: |_, _, section| section,
        }
    };
}
pub(super) use named;

/// Declares the tests: each with its variant and the module of its definition.
macro_rules! tests {
    ($($(#[$doc:meta])* $variant:ident = $module:ident;)*) => {
        /// Test of a suite.
        #[derive(
            Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
        )]
        #[serde(rename_all = "lowercase")]
        pub enum SuiteTest {
            $($(#[$doc])* $variant,)*
            /// Limit of a load balancer, of `wirebench bench lb` only.
            #[serde(skip)]
            Lb,
        }

        impl SuiteTest {
            /// All tests of suites.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// Definition of the test.
            #[must_use]
            pub const fn def(self) -> &'static TestDef {
                match self {
                    $(Self::$variant => &$module::TEST,)*
                    Self::Lb => &lb::TEST,
                }
            }
        }
    };
}

tests! {
    /// Highest load without loss, found by the search of the plan (RFC 2544 section 26.1).
    Throughput = throughput;
    /// Highest loads that meet goals, searched together with MLRsearch (RFC 9971).
    Ndr = ndr;
    /// Delay and its variation at shares of the throughput (RFC 2544 section 26.2, RFC 8219, RFC 5481).
    Latency = latency;
    /// Frame loss at 100 %, 90 %, 80 % and so on (RFC 2544 section 26.3).
    Loss = loss;
    /// Highest forwarding rate regardless of loss, between the throughput and the maximum (RFC 2889 section 5.6.1).
    Mfr = mfr;
    /// Loss and delay at shares of the maximum, without a search: for frames that a device may not forward at full
    /// speed, such as frames with hop-by-hop options (RFC 5180).
    Impact = impact;
    /// Longest burst without loss (RFC 9004).
    B2b = b2b;
    /// Recovery time after an overload (RFC 2544 section 26.5).
    Recovery = recovery;
    /// Time without forwarding after a reset of the device (RFC 6201).
    Reset = reset;
    /// Loss and delay at a share of the throughput for a long time.
    Soak = soak;
    /// Activation of services (ITU-T Y.1564).
    Y1564 = y1564;
}

impl SuiteTest {
    /// Tests of RFC 2544, in its order.
    pub const RFC2544: [Self; 6] = [
        Self::Throughput,
        Self::Latency,
        Self::Loss,
        Self::B2b,
        Self::Recovery,
        Self::Reset,
    ];

    /// Name in plans and options.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.def().name
    }

    /// Returns true if the test finds a limit of the device: the highest load that passes, or the highest forwarding
    /// rate.
    #[must_use]
    pub const fn finds_limit(self) -> bool {
        self.def().finds_limit
    }

    /// Returns true if the test needs the throughput of its size.
    #[must_use]
    pub const fn needs_throughput(self) -> bool {
        self.def().needs_throughput
    }

    /// Unit of the loads of its trials.
    #[must_use]
    pub const fn trial_unit(self, of: Quantity) -> &'static str {
        match self.def().sends_bursts {
            true => "frames",
            false => of.unit(),
        }
    }
}

impl FromStr for SuiteTest {
    type Err = ParseUnitError;

    fn from_str(text: &str) -> Result<Self, ParseUnitError> {
        let found = Self::ALL.iter().find(|test| test.name() == text);
        found.copied().ok_or_else(|| {
            let names: Vec<&str> = Self::ALL.iter().map(|test| test.name()).collect();
            let (last, others) = names.split_last().unwrap_or((&"", &[]));
            ParseUnitError::new(text, format!("a test: {} or {last}", others.join(", ")))
        })
    }
}
