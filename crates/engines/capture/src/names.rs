//! Names of the files of a capture, as tcpdump gives them.
//!
//! `out`, `out1`, `out2`, …; in a ring of `n` files `out0`, `out1`, … with as many digits as `n - 1` has; with
//! conversions of the time in the name, if files change by time.

use std::collections::VecDeque;
use std::path::PathBuf;

use jiff::{Timestamp, tz::Offset};
use wb_model::capture::{CaptureOutput, Compression};

/// Makes the names.
#[derive(Clone, Debug)]
pub(crate) struct Names {
    base: String,
    suffix: &'static str,
    ring: Option<u64>,
    by_time: bool,
    utc_offset_s: fn(i64) -> i64,
    begun: u64,
    /// Names made of the time, and how often each was given; the latest last.
    bases: VecDeque<(String, u64)>,
}

/// Names that are remembered: more than files that can be open at once.
const REMEMBERED: usize = 16;

impl Names {
    pub(crate) fn new(output: &CaptureOutput, utc_offset_s: fn(i64) -> i64) -> Self {
        let suffix = match output.compress {
            Compression::None => "",
            Compression::Zstd => ".zst",
            Compression::Lz4 => ".lz4",
        };
        let base = output.path.strip_suffix(suffix).unwrap_or(&output.path);
        let rotates =
            output.rotate_bytes > 0 || output.rotate_frames > 0 || output.rotate_time.is_some();
        Self {
            base: base.to_owned(),
            suffix,
            ring: (output.files > 0 && rotates).then_some(output.files.into()),
            by_time: output.rotate_time.is_some() && base.contains('%'),
            utc_offset_s,
            begun: 0,
            bases: VecDeque::new(),
        }
    }

    /// Whether the ring writes over its oldest file by itself, as names come again.
    pub(crate) fn recur(&self) -> bool {
        !self.by_time
    }

    /// Whether all files have the same name.
    pub(crate) fn is_one(&self) -> bool {
        self.recur() && self.ring == Some(1)
    }

    /// The name of the next file, whose first frame has this stamp.
    pub(crate) fn next(&mut self, stamp_ns: u64) -> PathBuf {
        let name = match self.by_time {
            true => self.of_time(stamp_ns),
            false => self.numbered(),
        };
        self.begun += 1;
        PathBuf::from(name + self.suffix)
    }

    fn numbered(&self) -> String {
        let (base, n) = (&self.base, self.begun);
        match self.ring {
            None if n == 0 => base.clone(),
            None => format!("{base}{n}"),
            Some(files) => {
                let width = (files - 1).to_string().len();
                format!("{base}{:0width$}", n % files)
            }
        }
    }

    /// A file that would have the name of one before gets a number: nothing is written over.
    fn of_time(&mut self, stamp_ns: u64) -> String {
        let base = strftime(&self.base, stamp_ns, self.utc_offset_s);
        if let Some((_, again)) = self.bases.iter_mut().find(|(known, _)| *known == base) {
            *again += 1;
            return format!("{base}{again}");
        }
        if self.bases.len() == REMEMBERED {
            self.bases.pop_front();
        }
        self.bases.push_back((base.clone(), 0));
        base
    }
}

/// The conversions `%Y %m %d %H %M %S %y %j %F %T %s %%`; others stay as they are.
fn strftime(pattern: &str, stamp_ns: u64, utc_offset_s: fn(i64) -> i64) -> String {
    let unix_s = (stamp_ns / 1_000_000_000) as i64;
    let local = Timestamp::from_second(unix_s + utc_offset_s(unix_s)).unwrap_or_default();
    let local = Offset::UTC.to_datetime(local);
    let mut out = String::with_capacity(pattern.len() + 16);
    let mut chars = pattern.chars();
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        let conversion = chars.next();
        let text = match conversion {
            Some(known @ ('Y' | 'y' | 'm' | 'd' | 'j' | 'H' | 'M' | 'S' | 'F' | 'T')) => {
                local.strftime(&format!("%{known}")).to_string()
            }
            Some('s') => unix_s.to_string(),
            Some('%') => "%".to_owned(),
            Some(other) => format!("%{other}"),
            None => "%".to_owned(),
        };
        out.push_str(&text);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use wb_model::units::Span;

    fn names(output: CaptureOutput, stamps_s: &[u64]) -> Vec<String> {
        let mut names = Names::new(&output, |_| 3600);
        stamps_s
            .iter()
            .map(|s| names.next(s * 1_000_000_000).display().to_string())
            .collect()
    }

    fn to(path: &str) -> CaptureOutput {
        CaptureOutput {
            path: path.to_owned(),
            rotate_bytes: 1_000_000,
            ..CaptureOutput::default()
        }
    }

    #[test]
    fn files_are_numbered_as_tcpdump_does() {
        assert_eq!(names(to("out"), &[0; 3]), ["out", "out1", "out2"]);
        let ring = |files| CaptureOutput { files, ..to("out") };
        assert_eq!(names(ring(3), &[0; 4]), ["out0", "out1", "out2", "out0"]);
        assert_eq!(names(ring(12), &[0; 2]), ["out00", "out01"]);
        assert_eq!(names(ring(10), &[0; 2]), ["out0", "out1"]);
        assert_eq!(names(ring(1), &[0; 2]), ["out0", "out0"]);
    }

    #[test]
    fn the_suffix_of_the_compression_stays_at_the_end() {
        for path in ["a.pcap", "a.pcap.zst"] {
            let output = CaptureOutput {
                compress: Compression::Zstd,
                ..to(path)
            };
            assert_eq!(names(output, &[0; 2]), ["a.pcap.zst", "a.pcap1.zst"]);
        }
    }

    #[test]
    fn names_are_made_of_local_time() {
        let output = |path: &str| CaptureOutput {
            rotate_time: Some(Span::from_secs(1)),
            ..to(path)
        };
        // 2023-11-14T22:13:20Z, and a leap day.
        let got = names(
            output("x-%Y%m%d-%H%M%S-%j-%s-%%-%Q"),
            &[1_700_000_000, 1_709_164_800 + 86_399],
        );
        assert_eq!(
            got,
            [
                "x-20231114-231320-318-1700000000-%-%Q",
                "x-20240301-005959-061-1709251199-%-%Q"
            ]
        );
        assert_eq!(names(output("x%F_%T%y"), &[0]), ["x1970-01-01_01:00:0070"]);
        // Within the same second nothing is written over.
        assert_eq!(
            names(output("x%H"), &[0, 1, 2, 3600]),
            ["x01", "x011", "x012", "x02"]
        );
        // Without a conversion, or a change by time, they are numbered.
        assert_eq!(names(output("x"), &[0, 1]), ["x", "x1"]);
        assert_eq!(names(to("x%H"), &[0, 1]), ["x%H", "x%H1"]);
    }

    #[test]
    fn days_have_dates() {
        for (days, date) in [
            (0, "1970-01-01 001"),
            (11_016, "2000-02-29 060"),
            (11_017, "2000-03-01 061"),
            (47_540, "2100-02-28 059"),
            (47_541, "2100-03-01 060"),
        ] {
            let stamp_ns = days * 86_400_000_000_000;
            assert_eq!(strftime("%F %j", stamp_ns, |_| 0), date);
        }
        assert_eq!(strftime("%F", 0, |_| -1), "1969-12-31");
    }
}
