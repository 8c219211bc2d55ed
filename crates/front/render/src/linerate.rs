//! Theoretical frame rates of Ethernet: RFC 2544 section 20, RFC 5180 appendix A.

use schemars::JsonSchema;
use serde::Serialize;
use wb_measure::rates::{LAYER1_OVERHEAD, line_rate_pps};

use crate::{
    figures::{count, group, trimmed},
    report::{self, Document, Form, Plot, Scale, Series, X, Y},
    table::Table,
};

const M: u64 = 1_000_000;
const G: u64 = 1_000 * M;

/// Link speeds that are listed by default, in bit/s.
pub const SPEEDS: [u64; 13] = [
    10 * M,
    100 * M,
    G,
    2_500 * M,
    5 * G,
    10 * G,
    25 * G,
    40 * G,
    50 * G,
    100 * G,
    200 * G,
    400 * G,
    800 * G,
];

/// Frame sizes (with FCS) that are listed by default: those of RFC 2544 section 9.1 and
/// RFC 5180 section 5.1.
pub const SIZES: [u32; 12] = [
    64, 128, 256, 512, 1024, 1280, 1518, 1522, 2048, 4096, 8192, 9216,
];

/// Formula of the figures.
pub const FORMULA: &str = "frames/s = floor(line rate / (8 * (X + 20)))";

/// Form of the text table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Columns of the terminal; speeds that do not fit go into further blocks.
    pub width: usize,
    /// Adds a second table with the time that each frame takes on the wire.
    pub times: bool,
}

/// Frames per second as a table: one row for each size, one column for each speed.
#[must_use]
pub fn table(speeds: &[u64], sizes: &[u32], options: &Options) -> String {
    let grid = |cell: &dyn Fn(u64, u32) -> String| {
        let mut table = speeds
            .iter()
            .fold(Table::new().right("X"), |t, s| t.right(speed_name(*s)));
        for size in sizes {
            let cells = speeds.iter().map(|speed| cell(*speed, *size));
            table.row([size.to_string()].into_iter().chain(cells));
        }
        table.text_within(2, 1, options.width)
    };
    let mut text = format!(
        "Theoretical frames per second on Ethernet, by frame size X and line rate (bit/s)\n\n{}",
        grid(&|speed, size| count(line_rate_pps(speed, size)))
    );
    if options.times {
        text.push_str(&format!(
            "\nTime per frame on the wire, in ns\n\n{}",
            grid(&frame_time)
        ));
    }
    text.push_str(&format!(
        "\n{FORMULA}\nX = frame size in bytes with FCS; 20 = 8 preamble + 12 gap\n"
    ));
    text
}

/// Frame rates as a page: frame rate by frame size, with a line for each speed.
#[must_use]
#[allow(clippy::cast_precision_loss)]
pub fn page(speeds: &[u64], sizes: &[u32]) -> Document {
    let mut sizes = sizes.to_vec();
    sizes.sort_unstable();
    sizes.dedup();
    let plot = |name: &str, title: &str, y: Y, figure: fn(u64, u32) -> f64| {
        let names = sizes.iter().map(|size| format!("{size} B")).collect();
        let xs = (0..sizes.len()).map(|i| i as f64).collect();
        let series = speeds.iter().map(|speed| {
            let values = sizes.iter().map(|size| Some(figure(*speed, *size)));
            Series::line(&speed_name(*speed), values.collect()).as_form(Form::Marks)
        });
        let x = X::scaled("frame size with FCS", Scale::Names(names));
        Plot::new(name, title, x, y.log(), xs, series.collect())
    };
    let mut head = vec![">frame size".to_owned()];
    head.extend(
        speeds
            .iter()
            .map(|speed| format!(">{}", speed_name(*speed))),
    );
    let head: Vec<&str> = head.iter().map(String::as_str).collect();
    let mut table = report::Table::new(
        "Frames per second, by frame size and line rate (bit/s)",
        &head,
    );
    for size in &sizes {
        let cells = speeds
            .iter()
            .map(|speed| count(line_rate_pps(*speed, *size)));
        table.row([size.to_string()].into_iter().chain(cells));
    }
    let mut section = report::Section::new("Ethernet line rates");
    section.text(format!(
        "{FORMULA}; X = frame size in bytes with FCS; 20 = 8 preamble + 12 gap (RFC 2544, RFC 5180)."
    ));
    section.plot(plot(
        "frames",
        "Frames per second",
        Y::new("rate", "pps"),
        |speed, size| line_rate_pps(speed, size) as f64,
    ));
    section.plot(plot(
        "throughput",
        "Throughput, layer 2 with FCS",
        Y::new("throughput", "bit/s"),
        |speed, size| speed as f64 * f64::from(size) / f64::from(size + LAYER1_OVERHEAD),
    ));
    section.table(table);
    let mut document = Document {
        title: "Theoretical frame rates of Ethernet".to_owned(),
        ..Document::default()
    };
    document.section(section);
    document
}

/// JSON document of `linerate --json`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct LinerateDocument {
    /// `wirebench.linerate/1`.
    pub schema: &'static str,
    /// Formula of the frame rates.
    pub formula: &'static str,
    /// Preamble and gap of each frame, in bytes.
    pub overhead_octets: u32,
    /// One entry for each speed and size.
    pub rates: Vec<FrameRate>,
}

/// Largest frame rate at one speed and frame size.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct FrameRate {
    /// Line rate, in bit/s.
    pub line_rate_bps: u64,
    /// Frame size with FCS, in bytes.
    pub frame_size: u32,
    /// Frames per second, rounded down.
    pub frames_per_second: u64,
    /// Time of a frame with preamble and gap on the wire, in ns.
    pub frame_time_ns: f64,
}

/// Frame rates as one JSON document.
///
/// # Panics
/// Never: numbers and words only.
#[must_use]
pub fn json(speeds: &[u64], sizes: &[u32]) -> String {
    let rates = cells(speeds, sizes).map(|(speed, size)| FrameRate {
        line_rate_bps: speed,
        frame_size: size,
        frames_per_second: line_rate_pps(speed, size),
        frame_time_ns: frame_time_ns(speed, size),
    });
    let document = LinerateDocument {
        schema: "wirebench.linerate/1",
        formula: FORMULA,
        overhead_octets: LAYER1_OVERHEAD,
        rates: rates.collect(),
    };
    let mut text = serde_json::to_string_pretty(&document).expect("numbers and words only");
    text.push('\n');
    text
}

/// Frame rates as comma-separated values, one row for each speed and size.
#[must_use]
pub fn csv(speeds: &[u64], sizes: &[u32]) -> String {
    let mut text = "line_rate_bps,frame_size,frames_per_second,frame_time_ns\n".to_owned();
    for (speed, size) in cells(speeds, sizes) {
        text.push_str(&format!(
            "{speed},{size},{},{}\n",
            line_rate_pps(speed, size),
            frame_time_ns(speed, size)
        ));
    }
    text
}

fn cells(speeds: &[u64], sizes: &[u32]) -> impl Iterator<Item = (u64, u32)> {
    speeds
        .iter()
        .flat_map(move |speed| sizes.iter().map(move |size| (*speed, *size)))
}

#[allow(clippy::cast_precision_loss)]
fn frame_time_ns(speed: u64, size: u32) -> f64 {
    let bits = 8 * (u64::from(size) + u64::from(LAYER1_OVERHEAD));
    bits as f64 * 1e9 / speed as f64
}

/// Frame time with three decimal places: from 800G down that is half a per mille or better.
fn frame_time(speed: u64, size: u32) -> String {
    group(trimmed(&format!("{:.3}", frame_time_ns(speed, size))))
}

const PREFIXES: [(char, u64); 4] = [('T', 1_000 * G), ('G', G), ('M', M), ('k', 1_000)];

/// A link speed in its largest unit: `10M`, `2.5G`.
#[must_use]
pub fn speed_name(bps: u64) -> String {
    let (prefix, scale) = PREFIXES
        .into_iter()
        .find(|(_, scale)| bps >= *scale)
        .unwrap_or((' ', 1));
    let fraction = format!("{:03}", bps % scale * 1_000 / scale);
    if scale == 1 || !(bps % scale * 1_000).is_multiple_of(scale) {
        return bps.to_string();
    }
    format!(
        "{}{prefix}",
        trimmed(&format!("{}.{fraction}", bps / scale))
    )
}

/// Reads a link speed: `10g`, `10gbps`, `10Gbit/s`, `2.5G`, `100M`.
///
/// # Errors
/// If the text is not a number with a unit, not above 0, or not a whole number of bits per second.
pub fn parse_speed(text: &str) -> Result<u64, String> {
    let error = || format!("expected a link speed with a unit (100Mbps, 2.5G, 10g), got {text:?}");
    let lower = text.trim().to_ascii_lowercase();
    let split = lower
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .ok_or_else(error)?;
    let (number, unit) = lower.split_at(split);
    let unit = unit.trim_start();
    let base = ["bit/s", "bits/s", "bps", "bit", "b/s"]
        .into_iter()
        .find_map(|base| unit.strip_suffix(base));
    let scale = match base.unwrap_or(unit) {
        "t" => 1_000 * G,
        "g" => G,
        "m" => M,
        "k" => 1_000,
        "" if base.is_some() => 1,
        _ => return Err(error()),
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if fraction.contains('.') || fraction.len() > 12 {
        return Err(error());
    }
    let digits: u128 = format!("{whole}{fraction}").parse().map_err(|_| error())?;
    let places = 10u128.pow(u32::try_from(fraction.len()).map_err(|_| error())?);
    let scaled = digits.checked_mul(u128::from(scale)).ok_or_else(error)?;
    if scaled == 0 || scaled % places != 0 {
        return Err(error());
    }
    u64::try_from(scaled / places).map_err(|_| error())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speeds_are_read_and_named() {
        for (text, bps, name) in [
            ("10g", 10 * G, "10G"),
            ("10gbps", 10 * G, "10G"),
            ("10 Gbit/s", 10 * G, "10G"),
            ("100M", 100 * M, "100M"),
            ("2.5G", 2_500 * M, "2.5G"),
            ("1000M", G, "1G"),
            ("1.6T", 1_600 * G, "1.6T"),
            ("9600bps", 9_600, "9.6k"),
            ("1234567bps", 1_234_567, "1234567"),
            ("100bit", 100, "100"),
        ] {
            assert_eq!(parse_speed(text), Ok(bps), "{text}");
            assert_eq!(speed_name(bps), name);
        }
        for text in [
            "",
            "10",
            "g",
            "0g",
            "-1g",
            "1.2.3g",
            "1x",
            "10gpps",
            ".g",
            "0.0001bps",
            "1e9g",
            "99999999999999999999g",
            "10gbpsbps",
        ] {
            assert!(parse_speed(text).is_err(), "{text}");
        }
        for bps in SPEEDS {
            assert_eq!(parse_speed(&speed_name(bps)), Ok(bps));
        }
    }

    #[test]
    fn times_of_the_smallest_frame() {
        for (speed, text) in [
            (G, "672"),
            (10 * G, "67.2"),
            (25 * G, "26.88"),
            (40 * G, "16.8"),
            (100 * G, "6.72"),
            (800 * G, "0.84"),
            (10 * M, "67,200"),
        ] {
            assert_eq!(frame_time(speed, 64), text);
        }
    }
}
