//! System recovery after an overload (RFC 2544 section 26.5).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use wb_figures::{Def, Field, Kind, Plot, Series, Tone, Unit, Value, derived, fields};

use super::{
    FPS,
    test::{TestDef, named},
};
use crate::{bench::SuiteResult, figures::TIMES, units::Span};

/// Nanoseconds of a second.
const NS: f64 = 1e9;

pub(super) const TEST: TestDef = TestDef {
    needs_throughput: true,
    values: |r, _| match &r.recovery {
        Some(own) => own.seconds.iter().map(|s| Some((*s)? * NS)).collect(),
        None => vec![None],
    },
    has_failed: |r| {
        r.recovery
            .as_ref()
            .is_some_and(|own| own.seconds.iter().any(Option::is_none))
    },
    failure: "the device had not recovered at the end of at least one repetition",
    add_to: |r, _, section| {
        let seconds = r.recovery.iter().flat_map(|own| &own.seconds);
        let row = |(n, s): (usize, &Option<f64>)| {
            vec![Value::Count(n as u64 + 1), s.map(|s| s * NS).into()]
        };
        let columns = vec![
            Def::new("repetition", "repetition", Unit::None, Kind::Counter),
            Def::new("time_ns", "time", Unit::Nanoseconds, Kind::Derived),
        ];
        let terms = "time from halving the overload to the last lost frame";
        section
            .figures(TIME, r)
            .rows("Repetitions", columns, seconds.enumerate().map(row))
            .detail(true)
            .plots(&PLOTS)
            .note(Tone::Term, r.recovery.as_ref().map(|_| terms.to_owned()))
    },
    ..named!("recovery", "system recovery", "RFC 2544 section 26.5")
};

static PLOTS: [Plot; 1] = [Plot::new(
    "by-repetition",
    "Time to recover from an overload",
    Series::Jobs("Repetitions", "repetition", "time_ns"),
)];

static TIME: &[Field<SuiteResult>] = fields!(SuiteResult:
    derived!("overload_fps", "overload", FPS, |r| of(r, |own| Some(own.overload_fps))),
    derived!("half_fps", "half", FPS, |r| of(r, |own| Some(own.half_fps))),
    derived!("repetitions", "repetitions", TIMES, |r| r.recovery.as_ref().map(|own| own.seconds.len() as u64).into()),
    derived!("average_ns", "average", Unit::Nanoseconds, |r| of(r, |own| Some(own.average_s? * NS))).bad().leads(),
    derived!("min_ns", "min", Unit::Nanoseconds, |r| of(r, |own| Some(own.min_s? * NS))),
    derived!("max_ns", "max", Unit::Nanoseconds, |r| of(r, |own| Some(own.max_s? * NS))).bad(),
    derived!("not_recovered", "not recovered", TIMES, |r| r.recovery.as_ref()
        .map(|own| own.seconds.iter().filter(|s| s.is_none()).count() as u64).into()).bad(),
);

fn of(r: &SuiteResult, value: fn(&RecoveryResult) -> Option<f64>) -> Value<'_> {
    r.recovery.as_ref().and_then(value).into()
}

/// Parameters of the system recovery test.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RecoveryTest {
    /// Duration of the overload, at least 100 ms (default 10 s; RFC 2544: at least 60 s).
    pub overload: Span,
    /// Duration of half the overload after it, at least 100 ms (default 10 s). The device must recover within this
    /// time.
    pub half: Span,
    /// Number of repetitions, 1 to 1000 (default 5).
    pub repetitions: u32,
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

/// System recovery (RFC 2544 section 26.5).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RecoveryResult {
    /// Overload, in frames per second.
    pub overload_fps: f64,
    /// Half of the overload, in frames per second.
    pub half_fps: f64,
    /// Time from the reduction of the load to the last lost frame for each repetition, in seconds; null if the device
    /// did not recover.
    pub seconds: Vec<Option<f64>>,
    /// Mean of the repetitions that recovered.
    pub average_s: Option<f64>,
    /// Minimum of the repetitions that recovered.
    pub min_s: Option<f64>,
    /// Maximum of the repetitions that recovered.
    pub max_s: Option<f64>,
}
