//! Timestamp at the beginning of a line.

use std::fmt::Write;

use crate::print::{Precision, TimeForm};

const NS: u64 = 1_000_000_000;

/// Timestamps of a series of lines; remembers the first and the last one.
#[derive(Debug, Default)]
pub(crate) struct Stamps {
    first: Option<u64>,
    last: Option<u64>,
}

impl Stamps {
    /// Writes the timestamp `ns` and a space; `zone` is in seconds east of UTC.
    pub(crate) fn write(
        &mut self,
        out: &mut String,
        ns: u64,
        zone: i32,
        form: TimeForm,
        precision: Precision,
    ) {
        // A finer timestamp is truncated before differences are taken, as in tcpdump.
        let ns = ns - ns % precision.unit_ns();
        let first = *self.first.get_or_insert(ns);
        let last = self.last.replace(ns).unwrap_or(ns);
        let _ = match form {
            TimeForm::None => return,
            TimeForm::Unix => write!(out, "{}", ns / NS),
            TimeForm::TimeOfDay => {
                append_clock(out, local_seconds(ns, zone).rem_euclid(86_400) as u64)
            }
            TimeForm::DateTime => {
                let seconds = local_seconds(ns, zone);
                let stamp = jiff::Timestamp::from_second(seconds).unwrap_or_default();
                let _ = write!(out, "{} ", jiff::tz::Offset::UTC.to_datetime(stamp).date());
                append_clock(out, seconds.rem_euclid(86_400) as u64)
            }
            TimeForm::SincePrevious => return append_difference(out, last, ns, precision),
            TimeForm::SinceFirst => return append_difference(out, first, ns, precision),
        };
        append_fraction(out, ns, precision);
    }
}

fn local_seconds(ns: u64, zone: i32) -> i64 {
    (ns / NS) as i64 + i64::from(zone)
}

fn append_clock(out: &mut String, seconds: u64) -> std::fmt::Result {
    let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
    write!(out, "{hours:02}:{minutes:02}:{:02}", seconds % 60)
}

fn append_fraction(out: &mut String, ns: u64, precision: Precision) {
    let _ = match precision {
        Precision::Micro => write!(out, ".{:06} ", ns % NS / 1000),
        Precision::Nano => write!(out, ".{:09} ", ns % NS),
    };
}

fn append_difference(out: &mut String, from: u64, to: u64, precision: Precision) {
    out.push(if to < from { '-' } else { ' ' });
    let ns = to.abs_diff(from);
    let _ = append_clock(out, ns / NS);
    append_fraction(out, ns, precision);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(forms: &[(u64, i32)], form: TimeForm, precision: Precision) -> Vec<String> {
        let mut stamps = Stamps::default();
        forms
            .iter()
            .map(|&(ns, zone)| {
                let mut out = String::new();
                stamps.write(&mut out, ns, zone, form, precision);
                out
            })
            .collect()
    }

    #[test]
    fn dates_across_leap_days_and_zones() {
        let date = |s: u64, zone| text(&[(s * NS, zone)], TimeForm::DateTime, Precision::Micro);
        assert_eq!(date(0, 0), ["1970-01-01 00:00:00.000000 "]);
        assert_eq!(date(951_782_400, 0), ["2000-02-29 00:00:00.000000 "]);
        assert_eq!(date(1_709_251_199, 1), ["2024-03-01 00:00:00.000000 "]);
        assert_eq!(date(0, -3600), ["1969-12-31 23:00:00.000000 "]);
        assert_eq!(date(4_107_542_400, 0), ["2100-03-01 00:00:00.000000 "]);
    }

    #[test]
    fn differences_may_be_negative_and_pass_a_day() {
        let stamps = [(5 * NS, 0), (3 * NS, 0), (90_003 * NS + 1999, 0)];
        assert_eq!(
            text(&stamps, TimeForm::SincePrevious, Precision::Micro),
            [
                " 00:00:00.000000 ",
                "-00:00:02.000000 ",
                " 25:00:00.000001 "
            ]
        );
        assert_eq!(
            text(&stamps, TimeForm::SinceFirst, Precision::Nano),
            [
                " 00:00:00.000000000 ",
                "-00:00:02.000000000 ",
                " 24:59:58.000001999 "
            ]
        );
    }
}
