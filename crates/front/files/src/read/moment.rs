//! Points in time as entered by the user, and local time.

use jiff::{Timestamp, civil::DateTime, tz::TimeZone};
use wb_model::units::Span;

/// Absolute point in time, or one relative to the first packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// Nanoseconds since 1970.
    At(u64),
    /// Nanoseconds after the first packet.
    After(u64),
}

impl Moment {
    /// Returns the nanoseconds since 1970, given the time stamp of the first packet.
    pub(super) const fn from(self, first_ns: u64) -> u64 {
        match self {
            Self::At(ns) => ns,
            Self::After(ns) => first_ns.saturating_add(ns),
        }
    }
}

impl Moment {
    /// Parses a point in time; `zone` is that of dates without a zone.
    ///
    /// # Errors
    /// The forms that are allowed.
    pub fn parse(text: &str, zone: &TimeZone) -> Result<Self, String> {
        let error = || {
            format!(
                "expected a time such as 2023-11-14T22:13:20.5Z, \"2023-11-14 22:13:20\" (local time), 1700000000.5 \
                 (seconds since 1970), or +1.5 or +200ms (after the first packet), got {text:?}"
            )
        };
        if let Some(after) = text.strip_prefix('+') {
            let ns = seconds(after).or_else(|| after.parse().ok().map(Span::as_nanos));
            return ns.map(Self::After).ok_or_else(error);
        }
        if let Some(ns) = seconds(text) {
            return Ok(Self::At(ns));
        }
        let stamp = text.parse::<Timestamp>().or_else(|_| {
            let local = text.parse::<DateTime>()?;
            local.to_zoned(zone.clone()).map(|z| z.timestamp())
        });
        let ns = stamp.map_err(|_| error())?.as_nanosecond();
        u64::try_from(ns).map(Self::At).map_err(|_| error())
    }
}

/// Parses a decimal number of seconds to exact nanoseconds; digits after the ninth are truncated.
fn seconds(text: &str) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
    if whole.is_empty() || !digits(whole) || !digits(fraction) {
        return None;
    }
    let nine: String = fraction
        .chars()
        .chain("000000000".chars())
        .take(9)
        .collect();
    let whole: u64 = whole.parse().ok()?;
    whole
        .checked_mul(1_000_000_000)?
        .checked_add(nine.parse().ok()?)
}

/// Returns a function from a time stamp in nanoseconds since 1970 to the UTC offset of the zone in seconds.
pub fn offsets(zone: TimeZone) -> impl Fn(u64) -> i32 + Send + 'static {
    move |ns| {
        let second = i64::try_from(ns / 1_000_000_000).unwrap_or(i64::MAX);
        Timestamp::from_second(second).map_or(0, |stamp| zone.to_offset(stamp).seconds())
    }
}

/// Formats a time stamp as in RFC 3339, in UTC, with nine decimals.
pub(super) fn rfc3339(ns: u64) -> String {
    match Timestamp::from_nanosecond(ns.into()) {
        Ok(stamp) => format!("{stamp:.9}"),
        Err(_) => format!("{}.{:09} s", ns / 1_000_000_000, ns % 1_000_000_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_as_typed() {
        const S: u64 = 1_000_000_000;
        let zone = TimeZone::fixed(jiff::tz::offset(2));
        for (text, moment) in [
            ("1700000000", Moment::At(1_700_000_000 * S)),
            (
                "1700000000.123456789",
                Moment::At(1_700_000_000 * S + 123_456_789),
            ),
            ("1700000000.5", Moment::At(1_700_000_000 * S + S / 2)),
            ("2023-11-14T22:13:20Z", Moment::At(1_700_000_000 * S)),
            (
                "2023-11-14T23:13:20.25+01:00",
                Moment::At(1_700_000_000 * S + S / 4),
            ),
            ("2023-11-15 00:13:20", Moment::At(1_700_000_000 * S)),
            ("+1.5", Moment::After(S + S / 2)),
            ("+200ms", Moment::After(S / 5)),
            ("0", Moment::At(0)),
        ] {
            assert_eq!(Moment::parse(text, &zone), Ok(moment), "{text}");
        }
        for text in [
            "",
            "+",
            "-1",
            "soon",
            "1.5.5",
            "1e9",
            "+soon",
            "1969-01-01T00:00:00Z",
        ] {
            assert!(Moment::parse(text, &zone).is_err(), "{text}");
        }
    }

    #[test]
    fn stamps_as_text() {
        assert_eq!(
            rfc3339(1_700_000_000_123_456_789),
            "2023-11-14T22:13:20.123456789Z"
        );
        assert_eq!(rfc3339(0), "1970-01-01T00:00:00.000000000Z");
    }
}
