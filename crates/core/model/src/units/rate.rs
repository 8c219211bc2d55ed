//! Loads: `1.2mpps`, `100k` (frames per second), `10gbps`, `9.5gbps-l2`, `37%`, `max`.

use std::{fmt, str::FromStr};

use super::{ParseUnitError, Rational, rational::DecimalError, string_serde};

/// Load in the user's notation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Rate {
    /// Maximum rate at which the port accepts frames.
    #[default]
    Max,
    /// Frames per second.
    Pps(Rational),
    /// Bits per second at layer 1: with FCS, preamble and gap (20 bytes more than the frame size).
    L1(Rational),
    /// Bits per second at layer 2: the frame size, FCS included.
    L2(Rational),
    /// Percentage of the line rate.
    Percent(Rational),
}

/// Preamble, start delimiter and minimum gap around each frame, in bytes (IEEE 802.3).
pub const WIRE_OVERHEAD: u32 = 20;

impl Rate {
    /// Returns the frames per second for frames of mean size `mean_size` (with FCS) on a line of `line` bits per
    /// second. `None` for [`Rate::Max`], for a percentage without a line rate, and if the exact fraction does not fit.
    #[must_use]
    pub fn frames_per_second(self, mean_size: Rational, line: Option<u64>) -> Option<Rational> {
        let bits = |extra: u32| {
            let den = u128::from(mean_size.denominator());
            let num = u128::from(mean_size.numerator()) + u128::from(extra) * den;
            Rational::new(num * 8, den)
        };
        match self {
            Self::Max => None,
            Self::Pps(n) => Some(n),
            Self::L1(b) => b.over(bits(WIRE_OVERHEAD)?),
            Self::L2(b) => b.over(bits(0)?),
            Self::Percent(p) => Rational::whole(line?)
                .times(p)?
                .over(Rational::whole(100))?
                .over(bits(WIRE_OVERHEAD)?),
        }
    }
}

const SCALES: [(&str, u64); 4] = [
    ("g", 1_000_000_000),
    ("m", 1_000_000),
    ("k", 1_000),
    ("", 1),
];

impl FromStr for Rate {
    type Err = ParseUnitError;

    fn from_str(text: &str) -> Result<Self, ParseUnitError> {
        let error = || {
            ParseUnitError::new(
                text,
                "a rate: max, a percentage (37%), frames per second (100kpps or 100k), or bits per second (10gbps, 10mbps, layer 2: 10gbps-l2)",
            )
        };
        let too_large = || ParseUnitError::too_large(text, "18446744073gpps or 18446744073gbps");
        let lower = text.trim().to_ascii_lowercase();
        if lower == "max" {
            return Ok(Self::Max);
        }
        let split = lower.find(|c: char| !c.is_ascii_digit() && c != '.');
        let (number, unit) = lower.split_at(split.unwrap_or(lower.len()));
        let value = Rational::parse_decimal(number).map_err(|e| match e {
            DecimalError::Form => error(),
            DecimalError::TooLarge => too_large(),
        })?;
        if value.is_zero() {
            return Err(ParseUnitError::new(text, "a rate above 0"));
        }
        let unit = unit.trim();
        if unit == "%" {
            return Ok(Self::Percent(value));
        }
        let (unit, layer2) = match unit.strip_suffix("-l2") {
            Some(u) => (u, true),
            None => (unit.strip_suffix("-l1").unwrap_or(unit), false),
        };
        let (scale, base) = match unit.as_bytes().first() {
            Some(b'g') => (SCALES[0].1, &unit[1..]),
            Some(b'm') => (SCALES[1].1, &unit[1..]),
            Some(b'k') => (SCALES[2].1, &unit[1..]),
            _ => (1, unit),
        };
        let value = value.times(Rational::whole(scale)).ok_or_else(too_large)?;
        match (base, layer2) {
            ("" | "pps", false) => Ok(Self::Pps(value)),
            ("bps" | "bit" | "bit/s", false) => Ok(Self::L1(value)),
            ("bps" | "bit" | "bit/s", true) => Ok(Self::L2(value)),
            _ => Err(error()),
        }
    }
}

/// Writes the value in the largest unit that needs at most three decimal places.
fn scaled(f: &mut fmt::Formatter<'_>, value: Rational, unit: &str) -> fmt::Result {
    let fits = |scale: u64| {
        value.numerator() / value.denominator() >= scale
            && value
                .over(Rational::whole(scale))
                .is_some_and(|v| 1000 % v.denominator() == 0)
    };
    let (prefix, scale) = SCALES
        .into_iter()
        .find(|(_, s)| fits(*s))
        .unwrap_or(("", 1));
    let value = value.over(Rational::whole(scale)).unwrap_or(value);
    write!(f, "{value}{prefix}{unit}")
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Max => f.write_str("max"),
            Self::Pps(n) => scaled(f, *n, "pps"),
            Self::L1(n) => scaled(f, *n, "bps"),
            Self::L2(n) => {
                scaled(f, *n, "bps")?;
                f.write_str("-l2")
            }
            Self::Percent(p) => write!(f, "{p}%"),
        }
    }
}

string_serde!(
    Rate,
    "Rate",
    "a rate: max, a percentage of line rate, or a number with pps, kpps, mpps, gpps, bps, kbps, mbps, gbps (layer 1; append -l2 for layer 2); a number without a unit, or with k, m or g, is in frames per second",
    "100kpps"
);

/// Parses a whole number with an optional suffix k, m or g for thousands: `20k`, `1.5m`.
///
/// # Errors
/// Returns an error if the text is not a number, is not whole, or does not fit.
pub fn parse_count(text: &str) -> Result<u64, ParseUnitError> {
    match parse_number(text) {
        Ok(value) if value.denominator() == 1 => Ok(value.numerator()),
        Err(error @ ParseUnitError::TooLarge { .. }) => Err(error),
        _ => Err(ParseUnitError::new(
            text,
            "a whole number, also with k, m or g: 20k, 1.5m",
        )),
    }
}

/// Parses a number with an optional suffix k, m or g for thousands: `0.5`, `20k`, `1.5m`.
///
/// # Errors
/// Returns an error if the text is not a number or does not fit.
pub fn parse_number(text: &str) -> Result<Rational, ParseUnitError> {
    let error = || ParseUnitError::new(text, "a number, also with k, m or g: 0.5, 20k, 1.5m");
    let too_large = || ParseUnitError::too_large(text, u64::MAX.to_string());
    let lower = text.trim().to_ascii_lowercase();
    let (unit, scale) = SCALES
        .iter()
        .find(|(unit, _)| lower.ends_with(unit))
        .ok_or_else(error)?;
    let value = Rational::parse_decimal(&lower[..lower.len() - unit.len()]);
    let value = value.map_err(|e| match e {
        DecimalError::Form => error(),
        DecimalError::TooLarge => too_large(),
    })?;
    value.times(Rational::whole(*scale)).ok_or_else(too_large)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_and_prints() {
        for (text, printed) in [
            ("1.2mpps", "1.2mpps"),
            ("500KPPS", "500kpps"),
            ("10gbps", "10gbps"),
            ("10gbit", "10gbps"),
            ("9.5gbps-l2", "9.5gbps-l2"),
            ("37%", "37%"),
            ("max", "max"),
            ("14880952.38pps", "14880952.38pps"),
            ("1pps", "1pps"),
            ("10", "10pps"),
            ("100k", "100kpps"),
            ("1.5M", "1.5mpps"),
        ] {
            let rate: Rate = text.parse().unwrap();
            assert_eq!(rate.to_string(), printed);
            assert_eq!(printed.parse::<Rate>().unwrap(), rate);
        }
        for text in [
            "", " ", "k", "pps", "0", "0pps", "5x", "5xpps", "5pps-l2", "5k-l2", "-5pps", "1/3pps",
        ] {
            assert!(text.parse::<Rate>().is_err(), "{text}");
        }
    }

    #[test]
    fn errors_of_large_numbers_have_the_largest() {
        for text in ["18446744073709551616pps", "18446744074gpps", "99999999999g"] {
            let error = text.parse::<Rate>().unwrap_err().to_string();
            assert!(error.contains("the largest is 18446744073gpps"), "{error}");
        }
        for text in ["18446744073gpps", "18446744073gbps"] {
            assert!(text.parse::<Rate>().is_ok(), "{text}");
        }
        for text in ["18446744073709551616", "18446744074g"] {
            let error = parse_count(text).unwrap_err().to_string();
            assert!(
                error.ends_with("is too large; the largest is 18446744073709551615"),
                "{error}"
            );
        }
        assert_eq!(parse_count("18446744073709551615"), Ok(u64::MAX));
    }

    #[test]
    fn line_rate_of_ten_gigabit() {
        let rate: Rate = "100%".parse().unwrap();
        let fps = rate
            .frames_per_second(Rational::whole(64), Some(10_000_000_000))
            .unwrap();
        assert_eq!(fps.numerator() / fps.denominator(), 14_880_952);
        let l2: Rate = "512mbps-l2".parse().unwrap();
        assert_eq!(
            l2.frames_per_second(Rational::whole(64), None),
            Some(Rational::whole(1_000_000))
        );
        assert_eq!(rate.frames_per_second(Rational::whole(64), None), None);
    }
}
