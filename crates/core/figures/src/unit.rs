//! Units, and the only place where values become text.

use std::borrow::Cow;

use crate::text::{count, exact_pps, group, load, rate_bps, ratio, significant, time_ns};

/// Unit of a value. Values are in base units: ns, bit/s, bytes, shares of 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// No unit: a text or a plain number.
    None,
    /// Things that are counted, in the plural: `frames`.
    Count(&'static str),
    /// Things per second: `frames`.
    PerSecond(&'static str),
    /// Bytes of memory or files.
    Bytes,
    /// Bits per second.
    BitsPerSecond,
    /// A load of a benchmark, rounded down to a whole number, and its unit: `fps`, `connections`. Tables have the unit
    /// in their heads.
    Load(&'static str),
    /// A load of a benchmark in bits per second, shown in Mbit/s.
    Megabits,
    /// Nanoseconds.
    Nanoseconds,
    /// Seconds.
    Seconds,
    /// Percent; others are shares of 1.
    Percent,
    /// A share of 1.
    Share,
}

const MIB: f64 = (1 << 20) as f64;

impl Unit {
    /// Text of a value for people.
    #[must_use]
    pub fn text(self, value: f64) -> String {
        match self {
            Self::PerSecond("frames") => exact_pps(value),
            Self::PerSecond(_) if value.abs() >= 100.0 && value.abs() < 1e15 => {
                format!("{}/s", group(&format!("{value:.0}")))
            }
            Self::PerSecond(_) => format!("{}/s", significant(value, 3)),
            Self::Bytes if value.abs() < MIB => format!("{} bytes", group(&format!("{value:.0}"))),
            Self::Bytes => format!("{} MiB", significant(value / MIB, 3)),
            Self::BitsPerSecond => rate_bps(value),
            Self::Load(unit) => format!("{} {unit}", load(value)),
            Self::Megabits => format!("{} Mbit/s", megabits(value)),
            Self::Nanoseconds => time_ns(value),
            Self::Seconds if value == 0.0 => "0 s".to_owned(),
            Self::Seconds => time_ns(value * 1e9),
            Self::Percent => format!("{} %", significant(value, 3)),
            Self::Share => ratio(value),
            Self::None | Self::Count(_) if value.fract() == 0.0 && value.abs() < 1e15 => {
                group(&format!("{value:.0}"))
            }
            Self::None | Self::Count(_) => significant(value, 4),
        }
    }

    /// Text of a whole value for people.
    #[must_use]
    #[allow(clippy::cast_precision_loss)]
    pub fn whole(self, value: u64) -> String {
        match self {
            Self::None | Self::Count(_) => count(value),
            unit => unit.text(value as f64),
        }
    }

    /// Text of a value below a column head with [`Unit::head`].
    #[must_use]
    pub fn cell(self, value: f64) -> String {
        match self {
            Self::Load(_) => load(value),
            Self::Megabits => megabits(value),
            unit => unit.text(value),
        }
    }

    /// Unit in the head of a table, with a blank before it; empty if each value has its unit.
    #[must_use]
    pub fn head(self) -> String {
        match self {
            Self::Load(unit) => format!(" {unit}"),
            Self::Megabits => " Mbit/s".to_owned(),
            _ => String::new(),
        }
    }

    /// Symbol of the unit, for CSV and axes: `frames`, `pps`, `bit/s`, `ns`, `share`; empty without a unit.
    #[must_use]
    pub fn symbol(self) -> Cow<'static, str> {
        match self {
            Self::None => "".into(),
            Self::Count(what) => what.into(),
            Self::PerSecond("frames") => "pps".into(),
            Self::PerSecond("connections") => "cps".into(),
            Self::PerSecond("requests" | "responses") => "rps".into(),
            Self::PerSecond(what) => format!("{what}/s").into(),
            Self::Bytes => "bytes".into(),
            Self::Load(unit) => unit.into(),
            Self::BitsPerSecond | Self::Megabits => "bit/s".into(),
            Self::Nanoseconds => "ns".into(),
            Self::Seconds => "s".into(),
            Self::Percent => "%".into(),
            Self::Share => "share".into(),
        }
    }

    /// Factor and symbol of the increase of a counter per second: bytes on a network are shown in bit/s.
    #[must_use]
    pub fn rate(self) -> (f64, Cow<'static, str>) {
        match self {
            Self::Count("bytes" | "octets") => (8.0, "bit/s".into()),
            Self::Count(what) => (1.0, Self::PerSecond(what).symbol()),
            Self::Bytes => (1.0, "B/s".into()),
            _ => (1.0, "/s".into()),
        }
    }
}

/// A number of bits per second in Mbit/s, rounded down to one decimal, or to a whole number from 10 Gbit/s on.
fn megabits(bps: f64) -> String {
    let n = bps / 1e6;
    match n.is_finite() && n < 10_000.0 {
        true => group(&format!("{:.1}", (n * 10.0 + 1e-6).floor() / 10.0)),
        false => load(n),
    }
}

#[cfg(test)]
mod tests {
    use super::Unit;

    #[test]
    fn texts_and_symbols() {
        for (unit, value, text, symbol) in [
            (Unit::Count("frames"), 1_234_567.0, "1,234,567", "frames"),
            (
                Unit::PerSecond("frames"),
                1_234_567.0,
                "1,234,567 pps",
                "pps",
            ),
            (Unit::PerSecond("connections"), 1_234.4, "1,234/s", "cps"),
            (Unit::PerSecond("requests"), 25.0, "25.0/s", "rps"),
            (Unit::PerSecond("calls"), 0.0, "0/s", "calls/s"),
            (Unit::Bytes, 1_000.0, "1,000 bytes", "bytes"),
            (Unit::Bytes, 16.0 * 1024.0 * 1024.0, "16.0 MiB", "bytes"),
            (Unit::BitsPerSecond, 51.2e6, "51.2 Mbit/s", "bit/s"),
            (Unit::Load("fps"), 4_222_972.9, "4,222,972 fps", "fps"),
            (Unit::Megabits, 9_999.96e6, "9,999.9 Mbit/s", "bit/s"),
            (Unit::Nanoseconds, 12_345.0, "12.3 us", "ns"),
            (Unit::Share, 0.371, "37.1 %", "share"),
            (Unit::None, 0.5, "0.5000", ""),
        ] {
            assert_eq!((unit.text(value).as_str(), &*unit.symbol()), (text, symbol));
        }
        assert_eq!(
            Unit::Count("frames").whole(u64::MAX),
            "18,446,744,073,709,551,615"
        );
        assert_eq!(Unit::Bytes.whole(7), "7 bytes");
        assert_eq!(
            Unit::Megabits.cell(8.574e6) + &Unit::Megabits.head(),
            "8.5 Mbit/s"
        );
        for (unit, factor, symbol) in [
            (Unit::Bytes, 1.0, "B/s"),
            (Unit::Count("bytes"), 8.0, "bit/s"),
            (Unit::Count("requests"), 1.0, "rps"),
        ] {
            assert_eq!(unit.rate(), (factor, symbol.into()));
        }
    }
}
