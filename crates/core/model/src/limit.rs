//! Reason why a run did not reach a higher rate: determined once, by the engine that knows, and formatted for output.
//!
//! In JSON it is a sentence: `the tester: its sender fell short by 12 frames; and the device or the path: …`. For a run
//! with several engines, their names precede it. A report that was read back has only the text.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::kinds::JobKind;

/// Component that limited a run.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Limiter {
    /// The plan requested no more.
    Plan,
    /// HTTP load: the requested rate.
    Rate,
    /// HTTP load with a rate: too few connections, or a server slower than the rate.
    Connections,
    /// HTTP load without a rate: each connection waits for its response.
    Answers,
    /// Another sender; the run only receives.
    Sender,
    /// This program, or the machine it runs on.
    Tester,
    /// Possibly this program or its machine.
    PerhapsTester,
    /// The link of one of the tester's ports.
    Link,
    /// The interface of a sending port of the tester.
    SendingInterface,
    /// The interface of a receiving port of the tester.
    Interface,
    /// A device measured in trials.
    Device,
    /// A device, or the path to it and back.
    Path,
    /// A device, or the servers behind it.
    FarEnd,
    /// A server.
    Server,
    /// The time limit of a benchmark.
    Time,
    /// An early end: a signal, a command.
    Ended(String),
    /// An error.
    Fault,
    /// Unknown.
    Undetermined,
}

impl Limiter {
    /// Returns true if the tester may be the limit, so that the result does not describe the device.
    #[must_use]
    pub const fn is_tester(&self) -> bool {
        matches!(self, Self::Tester | Self::PerhapsTester)
    }

    /// Returns the name in messages.
    #[must_use]
    pub fn words(&self) -> &str {
        match self {
            Self::Plan => "the plan",
            Self::Rate => "the rate",
            Self::Connections => "connections",
            Self::Answers => "closed loop",
            Self::Sender => "the sender",
            Self::Tester => "the tester",
            Self::PerhapsTester => "possibly the tester",
            Self::Link => "the link",
            Self::SendingInterface => "the sending interface",
            Self::Interface => "the interface",
            Self::Device => "the device",
            Self::Path => "the device or the path",
            Self::FarEnd => "the device or the far end",
            Self::Server => "the server",
            Self::Time => "time",
            Self::Ended(who) => who,
            Self::Fault => "an error",
            Self::Undetermined => "not determined",
        }
    }

    /// Returns a limit with this component and a reason.
    #[must_use]
    pub fn because(self, why: impl Into<String>) -> Limit {
        Limit {
            by: self,
            why: why.into(),
        }
    }
}

/// Component that limited a run, with the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Component.
    pub by: Limiter,
    /// Reason; empty if the component says enough.
    pub why: String,
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.by.words())?;
        match self.why.is_empty() {
            true => Ok(()),
            false => write!(f, ": {}", self.why),
        }
    }
}

/// Limits of one engine or, in a benchmark, of the results with the same limit.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Part {
    /// Engine and job, if a run has several.
    of: Option<(JobKind, String)>,
    /// Limits that acted together.
    limits: Vec<Limit>,
}

/// All limits of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LimitedBy {
    parts: Vec<Part>,
    /// Text of a report that was read back.
    told: String,
}

impl LimitedBy {
    /// Creates several limits, each for a part of the results.
    #[must_use]
    pub fn each(limits: impl IntoIterator<Item = Limit>) -> Self {
        let part = |limit| Part {
            of: None,
            limits: vec![limit],
        };
        Self {
            parts: limits.into_iter().map(part).collect(),
            told: String::new(),
        }
    }

    /// Creates several limits that acted together.
    #[must_use]
    pub fn all(limits: Vec<Limit>) -> Self {
        match limits.is_empty() {
            true => Self::default(),
            false => Self {
                parts: vec![Part { of: None, limits }],
                told: String::new(),
            },
        }
    }

    /// Combines the limits of several engines, each with its kind and the name of its job.
    #[must_use]
    pub fn engines<'a>(engines: impl IntoIterator<Item = (JobKind, &'a str, &'a Self)>) -> Self {
        let named = engines.into_iter().flat_map(|(kind, job, own)| {
            let parts = own.parts.iter().cloned();
            parts.map(move |part| Part {
                of: Some((kind, job.to_owned())),
                ..part
            })
        });
        Self {
            parts: named.collect(),
            told: String::new(),
        }
    }

    /// Returns true if the tester limited the jobs of a kind. Unknown for a report that was read back.
    #[must_use]
    pub fn is_tester_of(&self, kind: JobKind) -> bool {
        let of_kind = |part: &&Part| part.of.as_ref().is_none_or(|(of, _)| *of == kind);
        let mut limits = self.parts.iter().filter(of_kind).flat_map(|p| &p.limits);
        limits.any(|limit| limit.by.is_tester())
    }

    /// Returns true if this component is the only limit, also in a report that was read back.
    #[must_use]
    pub fn names(&self, by: &Limiter) -> bool {
        let text = self.to_string();
        let rest = text.strip_prefix(by.words());
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(": ") && !rest.contains("; "))
    }

    /// Returns true if no limit is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty() && self.told.is_empty()
    }
}

impl From<Limit> for LimitedBy {
    fn from(limit: Limit) -> Self {
        Self::all(vec![limit])
    }
}

/// Text of a report that was read back.
impl From<String> for LimitedBy {
    fn from(told: String) -> Self {
        Self {
            parts: Vec::new(),
            told,
        }
    }
}

impl From<&str> for LimitedBy {
    fn from(told: &str) -> Self {
        told.to_owned().into()
    }
}

impl fmt::Display for LimitedBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.told)?;
        for (n, part) in self.parts.iter().enumerate() {
            if n > 0 {
                f.write_str("; ")?;
            }
            if let Some((kind, job)) = &part.of {
                write!(f, "{}: ", kind.called(job))?;
            }
            for (n, limit) in part.limits.iter().enumerate() {
                let and = if n > 0 { "; and " } else { "" };
                write!(f, "{and}{limit}")?;
            }
        }
        Ok(())
    }
}

impl Serialize for LimitedBy {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for LimitedBy {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self::from)
    }
}

impl JsonSchema for LimitedBy {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        String::schema_name()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        String::json_schema(generator)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_those_of_the_engines() {
        let tester = Limiter::Tester.because("its sender fell short by 3 frames");
        let path = Limiter::Path.because("2 frames did not come back");
        let one = LimitedBy::all(vec![tester.clone(), path]);
        assert_eq!(
            one.to_string(),
            "the tester: its sender fell short by 3 frames; and the device or the path: 2 frames did not come back"
        );
        let plan = LimitedBy::from(Limiter::Plan.because("it said when to end"));
        let none = LimitedBy::default();
        let several = [
            (JobKind::Traffic, "", &one),
            (JobKind::Capture, "far", &plan),
            (JobKind::Capture, "capture 2", &plan),
            (JobKind::Probe, "", &none),
        ];
        let several = LimitedBy::engines(several);
        assert_eq!(
            several.to_string(),
            format!(
                "traffic: {one}; capture far: the plan: it said when to end; capture 2: the plan: it said when to end"
            )
        );
        let rate = LimitedBy::from(Limiter::Rate.because(""));
        assert_eq!(rate.to_string(), "the rate");
        let each = [Limiter::Device.because("cps, cc"), tester];
        assert_eq!(
            LimitedBy::each(each).to_string(),
            "the device: cps, cc; the tester: its sender fell short by 3 frames"
        );
    }

    #[test]
    fn the_tester_is_blamed_for_its_own_engine_alone() {
        let tester = LimitedBy::from(Limiter::PerhapsTester.because("its threads were busy"));
        let plan = LimitedBy::from(Limiter::Plan.because("all was sent"));
        assert!(tester.is_tester_of(JobKind::Http));
        let both = [(JobKind::Traffic, "", &plan), (JobKind::Http, "", &tester)];
        let both = LimitedBy::engines(both);
        assert!(both.is_tester_of(JobKind::Http) && !both.is_tester_of(JobKind::Traffic));
        // A report that was read back has only the text, which stays unchanged.
        let json = serde_json::to_string(&both).unwrap();
        let back: LimitedBy = serde_json::from_str(&json).unwrap();
        assert_eq!(back.to_string(), both.to_string());
        assert!(!back.is_empty() && !back.is_tester_of(JobKind::Http));
    }
}
