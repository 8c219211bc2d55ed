//! Names of the files of a capture, compatible with tcpdump.
//!
//! `out`, `out1`, `out2`, …; in a ring of `n` files `out0`, `out1`, … with as many digits as `n - 1`; with time
//! conversions in the name, if files change by time.

use std::collections::VecDeque;
use std::path::PathBuf;

use jiff::fmt::strtime::{BrokenDownTime, Config, PosixCustom};
use jiff::{Timestamp, tz::TimeZone};
use wb_model::capture::{CaptureOutput, Compression};

/// Generates the names.
#[derive(Clone, Debug)]
pub(crate) struct FileNames {
    base: String,
    suffix: &'static str,
    ring: Option<u64>,
    by_time: bool,
    overwrites: bool,
    zone: TimeZone,
    begun: u64,
    /// Names made from the time, and the number of uses of each; the latest last.
    bases: VecDeque<(String, u64)>,
}

/// Number of remembered names: more than the number of files that can be open at once.
const REMEMBERED: usize = 16;

impl FileNames {
    pub(crate) fn new(output: &CaptureOutput, zone: TimeZone) -> Self {
        let suffix = match output.compress {
            Compression::None => "",
            Compression::Zstd => ".zst",
            Compression::Lz4 => ".lz4",
            Compression::Gzip => ".gz",
        };
        let path = &output.path;
        let at = path.len().saturating_sub(suffix.len());
        let ends = path
            .get(at..)
            .is_some_and(|end| end.eq_ignore_ascii_case(suffix));
        let base = if ends { &path[..at] } else { path };
        let rotates =
            output.rotate_bytes > 0 || output.rotate_frames > 0 || output.rotate_time.is_some();
        Self {
            base: base.to_owned(),
            suffix,
            ring: (output.files > 0 && rotates).then_some(output.files.into()),
            by_time: output.rotate_time.is_some() && base.contains('%'),
            overwrites: output.overwrite && output.rotate_time.is_some(),
            zone,
            begun: 0,
            bases: VecDeque::new(),
        }
    }

    /// Returns true if names repeat, so that the ring overwrites its oldest file.
    pub(crate) fn names_recur(&self) -> bool {
        !self.by_time || self.overwrites
    }

    /// Name of the next file: file `number`, from 0, of the time span that begins with this timestamp.
    pub(crate) fn next(&mut self, begin_ns: u64, number: u64) -> PathBuf {
        let name = match (self.overwrites, self.by_time) {
            (true, _) => self.numbered_name(&strftime(&self.base, begin_ns, &self.zone), number),
            (false, true) => self.of_time(begin_ns),
            (false, false) => self.numbered_name(&self.base, self.begun),
        };
        self.begun += 1;
        PathBuf::from(name + self.suffix)
    }

    fn numbered_name(&self, base: &str, n: u64) -> String {
        match self.ring {
            None if n == 0 => base.to_owned(),
            None => format!("{base}{n}"),
            Some(files) => {
                let width = (files - 1).to_string().len();
                format!("{base}{:0width$}", n % files)
            }
        }
    }

    /// Name from the time. A repeated name gets a number, so no file is overwritten.
    fn of_time(&mut self, stamp_ns: u64) -> String {
        let base = strftime(&self.base, stamp_ns, &self.zone);
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

/// The conversions of strftime(3) in the C locale, with flags and widths; unknown ones are left unchanged.
fn strftime(pattern: &str, stamp_ns: u64, zone: &TimeZone) -> String {
    const CONVERSIONS: &str = "aAbBcCdDeFgGhHIjklmMnpPrRsStTuUVwWxXyYzZ%";
    let unix_s = i64::try_from(stamp_ns / 1_000_000_000).unwrap_or(i64::MAX);
    let time = Timestamp::from_second(unix_s).unwrap_or_default();
    let time = BrokenDownTime::from(&time.to_zoned(zone.clone()));
    let posix = Config::new().custom(PosixCustom::new()).lenient(true);
    let mut out = String::with_capacity(pattern.len() + 16);
    let mut rest = pattern;
    while let Some(at) = rest.find('%') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let flags = rest[1..].find(|c: char| !"_-0^#123456789".contains(c));
        let flags = flags.map_or(rest.len(), |len| len + 1);
        // Alternative number and date forms, which do not exist in the C locale.
        let other = usize::from(rest[flags..].starts_with(['E', 'O']));
        let conversion = rest[flags + other..].chars().next();
        let end = flags + other + conversion.map_or(0, char::len_utf8);
        let text = match conversion.filter(|c| CONVERSIONS.contains(*c)) {
            Some(c) => time
                .to_string_with_config(&posix, format!("{}{c}", &rest[..flags]))
                .unwrap_or_default(),
            None => rest[..end].to_owned(),
        };
        out.push_str(&text);
        rest = &rest[end..];
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use wb_model::units::Span;

    fn names(output: CaptureOutput, stamps_s: &[u64]) -> Vec<String> {
        let mut names = FileNames::new(&output, TimeZone::posix("CET-1").unwrap());
        stamps_s
            .iter()
            .map(|s| names.next(s * 1_000_000_000, 0).display().to_string())
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
        for path in ["a.pcap", "a.pcap.zst", "a.pcap.ZST"] {
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
        // Within the same second no file is overwritten.
        assert_eq!(
            names(output("x%H"), &[0, 1, 2, 3600]),
            ["x01", "x011", "x012", "x02"]
        );
        // Without a conversion, or without a change by time, they are numbered.
        assert_eq!(names(output("x"), &[0, 1]), ["x", "x1"]);
        assert_eq!(names(to("x%H"), &[0, 1]), ["x%H", "x%H1"]);
    }

    #[test]
    fn a_name_that_comes_again_is_the_same_where_files_are_overwritten() {
        let output = CaptureOutput {
            rotate_time: Some(Span::from_secs(1)),
            overwrite: true,
            ..to("d-%M")
        };
        let minute = 60_000_000_000;
        let mut names = FileNames::new(&output, TimeZone::UTC);
        assert!(names.names_recur());
        let mut next = |begin_ns, number| names.next(begin_ns, number).display().to_string();
        assert_eq!(next(0, 0), "d-00");
        assert_eq!([next(0, 1), next(0, 2)], ["d-001", "d-002"]);
        assert_eq!([next(minute, 0), next(60 * minute, 0)], ["d-01", "d-00"]);
        let plain = CaptureOutput {
            path: "x.pcap".to_owned(),
            ..output.clone()
        };
        let mut names = FileNames::new(&plain, TimeZone::UTC);
        assert_eq!(names.next(0, 0), names.next(minute, 0));
        let ring = CaptureOutput {
            files: 12,
            ..output
        };
        let mut names = FileNames::new(&ring, TimeZone::UTC);
        let mut next = |number| names.next(0, number).display().to_string();
        assert_eq!(
            [next(0), next(11), next(12)],
            ["d-0000", "d-0011", "d-0000"]
        );
    }

    #[test]
    fn all_conversions_of_strftime_are_known() {
        let zone = TimeZone::posix("CET-1").unwrap();
        // Tuesday, 2023-11-14 23:13:20 CET.
        let at = |pattern: &str| strftime(pattern, 1_700_000_000_000_000_000, &zone);
        for (pattern, text) in [
            ("%a %A %b %B %h", "Tue Tuesday Nov November Nov"),
            (
                "%c|%x|%X|%r",
                "Tue Nov 14 23:13:20 2023|11/14/23|23:13:20|11:13:20 PM",
            ),
            ("%C %d %e %D %F", "20 14 14 11/14/23 2023-11-14"),
            ("%g %G %V %U %W", "23 2023 46 46 46"),
            ("%H %I %k %l %M %S %p %P", "23 11 23 11 13 20 PM pm"),
            ("%R %T %s %j %u %w", "23:13 23:13:20 1700000000 318 2 2"),
            ("%y %Y %z %Z%n%t%%", "23 2023 +0100 CET\n\t%"),
            ("%Ey %Od %_d %-j %^a", "23 14 14 318 TUE"),
            ("a%Qb%N%", "a%Qb%N%"),
            ("\u{e4}%Y\u{e4}%\u{e4}", "\u{e4}2023\u{e4}%\u{e4}"),
        ] {
            assert_eq!(at(pattern), text, "{pattern}");
        }
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
            assert_eq!(strftime("%F %j", stamp_ns, &TimeZone::UTC), date);
        }
        let west = TimeZone::posix("EST5").unwrap();
        assert_eq!(strftime("%F", 0, &west), "1969-12-31");
    }
}
