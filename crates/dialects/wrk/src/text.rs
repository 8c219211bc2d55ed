//! Text that wrk prints.

use std::fmt::Write as _;

use crate::{Stats, extended::Extended};

/// Results of a run as wrk prints them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WrkResults {
    /// Time from the first line to the end, µs.
    pub elapsed_us: u64,
    /// Responses.
    pub requests: u64,
    /// Bytes of responses, heads included.
    pub bytes: u64,
    /// Connections that could not be opened.
    pub connect_errors: u64,
    /// Connections that ended within a response, or received an invalid one.
    pub read_errors: u64,
    /// Requests that could not be written.
    pub write_errors: u64,
    /// Responses that took longer than the timeout.
    pub timeouts: u64,
    /// Responses with a status above 399.
    pub status_errors: u64,
    /// Latency, µs.
    pub latency: Stats,
    /// Responses per second of each thread.
    pub rate: Stats,
}

/// Lines printed before a run of `duration` seconds.
#[must_use]
pub fn banner(url: &str, duration: u64, threads: u64, connections: u64) -> String {
    format!(
        "Running {} test @ {url}\n  {threads} threads and {connections} connections\n",
        TIME.scale_value(duration.into(), 0)
    )
}

/// Lines printed after the run, with percentiles if `latency` is set.
#[must_use]
pub fn results(outcome: &WrkResults, latency: bool) -> String {
    let mut text = format!(
        "  Thread Stats{:>6}{:>11}{:>8}{:>12}\n",
        "Avg", "Stdev", "Max", "+/- Stdev"
    );
    stats_row(&mut text, "Latency", &outcome.latency, time_text);
    stats_row(&mut text, "Req/Sec", &outcome.rate, count);
    if latency {
        text += "  Latency Distribution\n";
        for percent in [50, 75, 90, 99] {
            let value = outcome.latency.percentile(percent.into());
            append(
                &mut text,
                format_args!(
                    "{percent:>7}%{}\n",
                    align_cell(&time_text(value.into()), 10)
                ),
            );
        }
    }
    // Rounded like the original, which divides the time as a double.
    let seconds = Extended::from_f64(outcome.elapsed_us.max(1) as f64 / 1e6);
    let per_second = |n: u64| Extended::from(n) / seconds;
    append(
        &mut text,
        format_args!(
            "  {} requests in {}, {}B read\n",
            outcome.requests,
            time_text(outcome.elapsed_us.into()),
            bytes_text(outcome.bytes.into()),
        ),
    );
    let [connect, read] = [outcome.connect_errors, outcome.read_errors];
    let [write, timeout] = [outcome.write_errors, outcome.timeouts];
    if [connect, read, write, timeout].iter().any(|&n| n > 0) {
        append(
            &mut text,
            format_args!(
                "  Socket errors: connect {connect}, read {read}, write {write}, timeout {timeout}\n"
            ),
        );
    }
    if outcome.status_errors > 0 {
        append(
            &mut text,
            format_args!("  Non-2xx or 3xx responses: {}\n", outcome.status_errors),
        );
    }
    append(
        &mut text,
        format_args!(
            "Requests/sec: {:>9}\nTransfer/sec: {:>10}B\n",
            per_second(outcome.requests).decimal_text(2),
            bytes_text(per_second(outcome.bytes)),
        ),
    );
    text
}

/// Writing to a String cannot fail.
fn append(text: &mut String, what: std::fmt::Arguments<'_>) {
    let _ = text.write_fmt(what);
}

fn stats_row(text: &mut String, name: &str, stats: &Stats, shown: fn(Extended) -> String) {
    append(
        text,
        format_args!(
            "    {name:<10}{}{}{}{}\n",
            align_cell(&shown(stats.exact_mean()), 8),
            align_cell(&shown(Extended::from_f64(stats.stdev())), 10),
            align_cell(&shown(stats.max().into()), 9),
            match stats.within_stdev() {
                Some(percent) => format!("{:>8}%", percent.decimal_text(2)),
                None => "    -nan%".to_owned(),
            },
        ),
    );
}

/// Aligns digits: blanks replace the missing letters of a unit shorter than two.
pub(crate) fn align_cell(text: &str, width: usize) -> String {
    let letters = (text.chars().rev().take(2))
        .filter(char::is_ascii_alphabetic)
        .count();
    let blanks = 2 - letters;
    let width = width - blanks;
    format!("{text:>width$.width$}{:blanks$}", "")
}

/// A unit and the larger units.
struct UnitScale {
    scale: u64,
    names: &'static [&'static str],
}

const MICROSECONDS: UnitScale = UnitScale {
    scale: 1000,
    names: &["us", "ms"],
};
const TIME: UnitScale = UnitScale {
    scale: 60,
    names: &["s", "m"],
};
const COUNT: UnitScale = UnitScale {
    scale: 1000,
    names: &["", "k", "M", "G", "T"],
};
const BINARY: UnitScale = UnitScale {
    scale: 1024,
    names: &["", "K", "M", "G", "T"],
};

impl UnitScale {
    /// Value in the first unit in which it is below 0.85 of the next unit, or in the last unit.
    fn scale_value(&self, mut value: Extended, places: u32) -> String {
        let least = Extended::from_f64(self.scale as f64 * 0.85);
        let mut names = self.names.iter();
        let mut name = names.next();
        while value >= least
            && let Some(next) = names.next()
        {
            value = value / self.scale.into();
            name = Some(next);
        }
        value.decimal_text(places) + name.unwrap_or(&"")
    }
}

/// A time of `value` µs.
pub(crate) fn time_text(value: Extended) -> String {
    let second = Extended::from(1_000_000u64);
    match value >= second {
        true => TIME.scale_value(value / second, 2),
        false => MICROSECONDS.scale_value(value, 2),
    }
}

fn count(value: Extended) -> String {
    COUNT.scale_value(value, 2)
}

fn bytes_text(value: Extended) -> String {
    BINARY.scale_value(value, 2)
}

#[cfg(test)]
mod tests;
