//! What a run must meet: `loss<=0.1%`, `p99<=500us`.

use std::{fmt, str::FromStr};

use crate::kinds::JobKind;
use crate::units::{ParseUnitError, Rational, Span, string_serde};

/// What is judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metric {
    /// Lost frames as a share of offered frames.
    Loss,
    /// Unsent frames as a share of intended frames.
    Unsent,
    /// Duplicate frames as a share of offered frames.
    Duplicates,
    /// Reordered frames as a share of offered frames.
    Reordered,
    /// Connections that failed, or are open at the end, as a share of those attempted.
    Failed,
    /// HTTP answers with a status of 400 or more as a share of all answers.
    Errors,
    /// Mean latency.
    Mean,
    /// Median latency.
    P50,
    /// 99th percentile of latency.
    P99,
    /// 99.9th percentile of latency.
    P999,
    /// Largest latency.
    Max,
}

const METRICS: [(&str, Metric); 11] = [
    ("loss", Metric::Loss),
    ("unsent", Metric::Unsent),
    ("duplicates", Metric::Duplicates),
    ("reordered", Metric::Reordered),
    ("failed", Metric::Failed),
    ("errors", Metric::Errors),
    ("mean", Metric::Mean),
    ("p50", Metric::P50),
    ("p99", Metric::P99),
    ("p999", Metric::P999),
    ("max", Metric::Max),
];

/// The most that is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// A share between 0 and 1.
    Share(Rational),
    /// A time.
    Time(Span),
}

/// One condition: the metric must not be above the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Criterion {
    /// Whose metric it is, where jobs of several kinds have it.
    pub kind: Option<JobKind>,
    /// What is judged.
    pub metric: Metric,
    /// The most that is allowed.
    pub limit: Limit,
}

/// A share: `1%`, `0.1%`, `0.001` or `0`.
///
/// # Errors
/// When the text is no number, or more than all.
pub fn parse_share(text: &str) -> Result<Rational, ParseUnitError> {
    let error =
        || ParseUnitError::new(text, "a share: a percentage (0.1%) or a number from 0 to 1");
    let (number, scale) = match text.trim().strip_suffix('%') {
        Some(n) => (n, 100),
        None => (text.trim(), 1),
    };
    let value = Rational::parse_decimal(number.trim()).ok_or_else(error)?;
    let share = value.over(Rational::whole(scale)).ok_or_else(error)?;
    if share.numerator() > share.denominator() {
        Err(error())
    } else {
        Ok(share)
    }
}

impl FromStr for Criterion {
    type Err = ParseUnitError;

    fn from_str(text: &str) -> Result<Self, ParseUnitError> {
        let error = || {
            ParseUnitError::new(
                text,
                "a criterion METRIC<=LIMIT or KIND.METRIC<=LIMIT (traffic, devices, load, capture, socket), with loss, unsent, duplicates, reordered, failed, errors (a share: 0.1%) or mean, p50, p99, p999, max (a time: 500us)",
            )
        };
        let (name, limit) = text.split_once("<=").ok_or_else(error)?;
        let (kind, name) = match name.trim().split_once('.') {
            Some((kind, name)) => {
                let mut kinds = JobKind::ALL.into_iter();
                let kind = kinds.find(|k| k.name() == kind).ok_or_else(error)?;
                (Some(kind), name)
            }
            None => (None, name.trim()),
        };
        let metric = METRICS
            .iter()
            .find(|(n, _)| *n == name)
            .ok_or_else(error)?
            .1;
        let limit = match metric {
            Metric::Loss
            | Metric::Unsent
            | Metric::Duplicates
            | Metric::Reordered
            | Metric::Failed
            | Metric::Errors => Limit::Share(parse_share(limit).map_err(|_| error())?),
            _ => Limit::Time(limit.parse().map_err(|_| error())?),
        };
        Ok(Self {
            kind,
            metric,
            limit,
        })
    }
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            METRICS
                .iter()
                .find(|(_, m)| m == self)
                .map_or("?", |(n, _)| n),
        )
    }
}

impl fmt::Display for Criterion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(kind) = self.kind {
            write!(f, "{}.", kind.name())?;
        }
        write!(f, "{}<=", self.metric)?;
        match self.limit {
            Limit::Share(s) => match s.times(Rational::whole(100)) {
                Some(percent) => write!(f, "{percent}%"),
                None => write!(f, "{s}"),
            },
            Limit::Time(t) => t.fmt(f),
        }
    }
}

string_serde!(
    Criterion,
    "Criterion",
    "a criterion METRIC<=LIMIT or KIND.METRIC<=LIMIT: loss, unsent, duplicates, reordered, failed, errors (a share) or mean, p50, p99, p999, max (a time)",
    "loss<=0.1%"
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_and_prints() {
        for text in [
            "loss<=0.1%",
            "p99<=500us",
            "reordered<=0%",
            "errors<=1%",
            "max<=1ms",
            "load.p99<=1ms",
        ] {
            assert_eq!(text.parse::<Criterion>().unwrap().to_string(), text);
        }
        assert_eq!(
            "loss<=0.001".parse::<Criterion>().unwrap().to_string(),
            "loss<=0.1%"
        );
        for text in [
            "",
            "loss",
            "loss<1",
            "loss<=500us",
            "p99<=1%",
            "loss<=101%",
            "speed<=1",
        ] {
            assert!(text.parse::<Criterion>().is_err(), "{text}");
        }
    }
}
