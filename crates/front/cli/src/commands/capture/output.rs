//! Options for output files.

use clap::Args;
use wb_model::{
    capture::{CaptureJob, CaptureOutput, FileFormat, by_name},
    units::Span,
};
use wb_options::{Opt, Typed, options};

use crate::args::count_in;

/// Options for the output.
#[derive(Args, Debug)]
#[command(next_help_heading = "Files")]
pub(crate) struct OutputArgs {
    /// Write to this file; - is standard output. The format is pcapng, or pcap for names ending in .pcap or .cap. An
    /// existing file is overwritten. Without -w, frames are printed.
    #[arg(short = 'w', value_name = "FILE")]
    pub(crate) write: Option<String>,
    /// Start a new file after this many million bytes (10k, 10m, 10g: binary units).
    #[arg(short = 'C', requires = "write", value_name = "SIZE", value_parser = file_size)]
    rotate_size: Option<u64>,
    /// Start a new file after this many seconds; % in the file name stands for time (strftime). A file of the same
    /// name is overwritten, as with tcpdump.
    #[arg(short = 'G', requires = "write", value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    rotate_seconds: Option<u64>,
    /// With -G stop after this many files; with -C keep this many files and overwrite the oldest, with both in each
    /// -G interval.
    #[arg(short = 'W', requires = "write", value_name = "N", value_parser = count_in::<u32>(1..))]
    files: Option<u32>,
    /// Write captured frames to the file at least every 100 ms.
    #[arg(short = 'U', long)]
    packet_buffered: bool,
    #[command(flatten)]
    writing: Typed<Writing>,
    #[command(flatten)]
    pub(crate) overload: Typed<Overload>,
    /// Remove the oldest finished files of this capture if the file system has less free space than this; sizes as
    /// with -C.
    #[arg(long, requires = "write", value_name = "SIZE", value_parser = file_size)]
    keep_free: Option<u64>,
    /// Run this program for each finished file, with the file as its only argument.
    #[arg(short = 'z', requires = "write", value_name = "PROGRAM")]
    command: Option<String>,
    /// Flush files to disk (fdatasync) every N seconds and on close; 0: only on close [default: left to the system].
    #[arg(long, requires = "write", value_name = "SECONDS")]
    sync: Option<u64>,
}

options! {
    /// Output files.
    Writing: CaptureOutput = CaptureOutput::default(), "Files", [
        Opt::new("rotate-packets", "N")
            .key("rotate_frames")
            .with(|arg| arg.requires("write")),
        Opt::new("format", "FORM")
            .help("File format (default: by file name)")
            .with(|arg| arg.requires("write")),
        Opt::new("compress", "HOW")
            .help("Compression (default: by file name .zst, .lz4 or .gz)")
            .with(|arg| arg.requires("write")),
        Opt::new("on-enospc", "WHAT").with(|arg| arg.requires("write")),
        Opt::flag("part").with(|arg| arg.requires("write")),
        Opt::new("direct", "WHEN")
            .help("Bypass the page cache (O_DIRECT) if the file system supports it; without a value: always (default auto)")
            .with(|arg| {
                arg.requires("write")
                    .num_args(0..=1)
                    .require_equals(true)
                    .default_missing_value("always")
            }),
    ]
}

options! {
    /// Frames that the output cannot take.
    Overload: CaptureJob = CaptureJob::default(), "Files", [Opt::new("overflow", "WHAT")]
}

/// Parses a size as in tcpdump(8): millions of bytes, or KiB, MiB or GiB with a suffix.
fn file_size(text: &str) -> Result<u64, String> {
    let error = || "expected a size such as 100 (million bytes), 500k, 10m or 2g".to_owned();
    let (number, unit) = match text.to_ascii_lowercase().strip_suffix(['k', 'm', 'g']) {
        Some(number) => {
            let shift = match text.as_bytes().last().map(u8::to_ascii_lowercase) {
                Some(b'k') => 10,
                Some(b'm') => 20,
                _ => 30,
            };
            (number.to_owned(), 1_u64 << shift)
        }
        None => (text.to_owned(), 1_000_000),
    };
    let number: u64 = number.parse().map_err(|_| error())?;
    number
        .checked_mul(unit)
        .filter(|bytes| *bytes > 0)
        .ok_or_else(error)
}

impl OutputArgs {
    /// Returns the output of the plan; none without -w.
    pub(crate) fn output(&self, micro: bool) -> Option<CaptureOutput> {
        let path = self.write.clone()?;
        // As with tcpdump, files by time stop at the limit, and files by size form a ring.
        let (format, compress) = by_name(&path);
        let named = CaptureOutput {
            format: if micro { FileFormat::Pcap } else { format },
            compress,
            ..CaptureOutput::default()
        };
        let ends = self.rotate_seconds.is_some() && self.rotate_size.is_none();
        Some(CaptureOutput {
            rotate_bytes: self.rotate_size.unwrap_or(0),
            rotate_time: self.rotate_seconds.map(Span::from_secs),
            overwrite: self.rotate_seconds.is_some(),
            files: if ends { 0 } else { self.files.unwrap_or(0) },
            file_limit: if ends { self.files.unwrap_or(0) } else { 0 },
            flush: if self.packet_buffered {
                Span::from_millis(100)
            } else {
                Span::from_secs(1)
            },
            keep_free: self.keep_free.unwrap_or(0),
            command: self.command.clone(),
            sync: self.sync.map(Span::from_secs),
            path,
            ..self.writing.over(&named)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_tcpdump() {
        for (text, bytes) in [
            ("1", 1_000_000),
            ("5k", 5 << 10),
            ("2M", 2 << 20),
            ("1g", 1 << 30),
        ] {
            assert_eq!(file_size(text), Ok(bytes));
        }
        for bad in ["", "0", "k", "-1", "1x", "99999999999999999999"] {
            assert!(file_size(bad).is_err(), "{bad}");
        }
    }
}
