//! Value of a figure.

use std::{borrow::Cow, collections::BTreeMap};

use wb_measure::{Histogram, Summary, Times};

/// Value of a figure, borrowed from its report.
#[derive(Clone, Debug, PartialEq)]
pub enum Value<'a> {
    /// Not known, or not part of this run.
    Unknown,
    /// A whole number.
    Count(u64),
    /// A number.
    Real(f64),
    /// A text.
    Text(Cow<'a, str>),
    /// Whole numbers by label.
    Counts(Vec<(&'a str, u64)>),
    /// A distribution, with all its values if they are available.
    Times(&'a Summary, Option<&'a Histogram>),
}

impl Value<'_> {
    /// The value as a number, if it is one.
    #[must_use]
    #[allow(clippy::cast_precision_loss)]
    pub fn number(&self) -> Option<f64> {
        match self {
            Self::Count(n) => Some(*n as f64),
            Self::Real(n) => Some(*n).filter(|n| n.is_finite()),
            _ => None,
        }
    }

    /// Returns true if the value is known and not 0 or empty.
    #[must_use]
    pub fn is_any(&self) -> bool {
        match self {
            Self::Unknown => false,
            Self::Count(n) => *n > 0,
            Self::Real(n) => *n != 0.0,
            Self::Text(text) => !text.is_empty(),
            Self::Counts(all) => all.iter().any(|(_, n)| *n > 0),
            Self::Times(summary, _) => summary.samples > 0,
        }
    }
}

impl From<bool> for Value<'_> {
    fn from(yes: bool) -> Self {
        Self::Text(if yes { "true" } else { "false" }.into())
    }
}

impl From<u64> for Value<'_> {
    fn from(n: u64) -> Self {
        Self::Count(n)
    }
}

impl From<&u64> for Value<'_> {
    fn from(n: &u64) -> Self {
        Self::Count(*n)
    }
}

impl From<u32> for Value<'_> {
    fn from(n: u32) -> Self {
        Self::Count(u64::from(n))
    }
}

impl From<&u32> for Value<'_> {
    fn from(n: &u32) -> Self {
        Self::Count(u64::from(*n))
    }
}

impl From<f64> for Value<'_> {
    fn from(n: f64) -> Self {
        Self::Real(n)
    }
}

impl From<&f64> for Value<'_> {
    fn from(n: &f64) -> Self {
        Self::Real(*n)
    }
}

impl<'a> From<&'a str> for Value<'a> {
    fn from(text: &'a str) -> Self {
        Self::Text(text.into())
    }
}

impl<'a> From<&'a String> for Value<'a> {
    fn from(text: &'a String) -> Self {
        Self::Text(text.as_str().into())
    }
}

impl<'a> From<&'a BTreeMap<String, u64>> for Value<'a> {
    fn from(all: &'a BTreeMap<String, u64>) -> Self {
        Self::Counts(all.iter().map(|(name, n)| (name.as_str(), *n)).collect())
    }
}

impl<'a> From<&'a Times> for Value<'a> {
    fn from(times: &'a Times) -> Self {
        Self::Times(times.summary(), times.histogram())
    }
}

impl<'a, T: Into<Value<'a>>> From<Option<T>> for Value<'a> {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Unknown, Into::into)
    }
}

impl<'a> From<&'a Summary> for Value<'a> {
    fn from(summary: &'a Summary) -> Self {
        Self::Times(summary, None)
    }
}

macro_rules! optional {
    ($($known:ty)*) => {$(
        impl<'a> From<&'a Option<$known>> for Value<'a> {
            fn from(value: &'a Option<$known>) -> Self {
                value.as_ref().map_or(Self::Unknown, Self::from)
            }
        }
    )*};
}

optional! { u32 u64 f64 String Summary Times }
