//! Durations: `10s`, `200ms`, `300us`, `5m`, `10` (seconds).

use std::{fmt, str::FromStr, time::Duration};

use super::{ParseUnitError, Rational, rational::DecimalError, string_serde};

/// Duration, exact to the nanosecond.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Span(pub Duration);

impl Span {
    /// Creates a duration of whole nanoseconds.
    #[must_use]
    pub const fn from_nanos(ns: u64) -> Self {
        Self(Duration::from_nanos(ns))
    }

    /// Creates a duration of whole seconds.
    #[must_use]
    pub const fn from_secs(s: u64) -> Self {
        Self(Duration::from_secs(s))
    }

    /// Creates a duration of whole milliseconds.
    #[must_use]
    pub const fn from_millis(ms: u64) -> Self {
        Self(Duration::from_millis(ms))
    }

    /// Nanoseconds, at most `u64::MAX` (584 years).
    #[must_use]
    pub fn as_nanos(self) -> u64 {
        u64::try_from(self.0.as_nanos()).unwrap_or(u64::MAX)
    }
}

const UNITS: [(&str, u64); 6] = [
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];

impl FromStr for Span {
    type Err = ParseUnitError;

    fn from_str(text: &str) -> Result<Self, ParseUnitError> {
        let error = || {
            ParseUnitError::new(
                text,
                "a time: a number with ns, us, ms, s, m or h (200ms), or of seconds (10)",
            )
        };
        let too_large = || {
            let hours = Duration::from_nanos(u64::MAX).as_secs() / 3600;
            ParseUnitError::too_large(text, format!("{hours}h"))
        };
        let lower = text.trim().to_ascii_lowercase();
        let split = lower.find(|c: char| c.is_ascii_alphabetic() || c == 'µ');
        let (number, unit) = lower.split_at(split.unwrap_or(lower.len()));
        let unit = match unit {
            "" => "s",
            "µs" => "us",
            unit => unit,
        };
        let scale = UNITS
            .iter()
            .find(|(name, _)| *name == unit)
            .ok_or_else(error)?
            .1;
        let value = Rational::parse_decimal(number.trim()).map_err(|e| match e {
            DecimalError::Form => error(),
            DecimalError::TooLarge => too_large(),
        })?;
        let nanos =
            u128::from(value.numerator()) * u128::from(scale) / u128::from(value.denominator());
        u64::try_from(nanos)
            .map(|n| Self(Duration::from_nanos(n)))
            .map_err(|_| too_large())
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.as_nanos();
        if nanos == 0 {
            return f.write_str("0s");
        }
        // Minutes and hours only if the value is whole; one and a half seconds stay "1.5s".
        let (name, scale) = UNITS
            .iter()
            .find(|(_, scale)| nanos.is_multiple_of(*scale))
            .expect("nanoseconds divide everything");
        let (name, scale) = match UNITS
            .iter()
            .find(|(n, s)| *n != "h" && *n != "m" && nanos >= *s)
        {
            Some((n, s))
                if !nanos.is_multiple_of(*s)
                    && (u128::from(nanos) * 1000).is_multiple_of(u128::from(*s)) =>
            {
                (*n, *s)
            }
            _ => (*name, *scale),
        };
        let value = Rational::new(u128::from(nanos), u128::from(scale)).expect("scale is not 0");
        write!(f, "{value}{name}")
    }
}

string_serde!(
    Span,
    "Span",
    "a time: a number with ns, us, ms, s, m or h; a number without a unit is in seconds",
    "10s"
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_and_prints() {
        for (text, nanos, printed) in [
            ("10s", 10_000_000_000, "10s"),
            ("1.5s", 1_500_000_000, "1.5s"),
            ("200ms", 200_000_000, "200ms"),
            ("300us", 300_000, "300us"),
            ("90s", 90_000_000_000, "90s"),
            ("5M", 300_000_000_000, "5m"),
            ("0", 0, "0s"),
            ("10", 10_000_000_000, "10s"),
            ("0.5", 500_000_000, "500ms"),
            ("1234567ns", 1_234_567, "1234567ns"),
            ("18446744073709551615ns", u64::MAX, "18446744073709551615ns"),
        ] {
            let span: Span = text.parse().unwrap();
            assert_eq!(
                (span.as_nanos(), span.to_string().as_str()),
                (nanos, printed),
                "{text}"
            );
        }
        for text in ["", " ", "s", "1x", "-1s", "-1", "1 2s", "1 2", "1e3"] {
            assert!(text.parse::<Span>().is_err(), "{text}");
        }
        for text in ["5124096h", "999999999999999", "18446744073709551616ns"] {
            let error = text.parse::<Span>().unwrap_err().to_string();
            assert!(
                error.ends_with("is too large; the largest is 5124095h"),
                "{error}"
            );
        }
        assert!("5124095h".parse::<Span>().is_ok());
    }

    #[test]
    fn plan_numbers_are_seconds() {
        let read = |text: &str| serde_json::from_str::<Span>(text);
        assert_eq!(read("5").unwrap(), Span::from_secs(5));
        assert_eq!(read("\"5\"").unwrap(), Span::from_secs(5));
        assert_eq!(read("0.25").unwrap(), Span::from_millis(250));
        assert!(read("-1").is_err() && read("true").is_err());
    }
}
