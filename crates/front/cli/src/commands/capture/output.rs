//! Options for output files.

use clap::Args;
use wb_model::{
    capture::{CaptureOutput, Compression, DirectWrites, FileFormat, OnFull, Overflow, by_name},
    units::Span,
};

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
    /// Start a new file after this many frames.
    #[arg(long, requires = "write", value_name = "N", value_parser = count_in::<u64>(0..))]
    rotate_packets: Option<u64>,
    /// With -G stop after this many files; with -C keep this many files and overwrite the oldest, with both in each
    /// -G interval.
    #[arg(short = 'W', requires = "write", value_name = "N", value_parser = count_in::<u32>(1..))]
    files: Option<u32>,
    /// Write captured frames to the file at least every 100 ms.
    #[arg(short = 'U', long)]
    packet_buffered: bool,
    /// File format: pcapng, pcap-ns (nanoseconds) or pcap (microseconds) [default: by file name].
    #[arg(long, requires = "write", value_name = "FORM", value_parser = format)]
    format: Option<FileFormat>,
    /// Compression: zstd, lz4 or gzip [default: by file name .zst, .lz4 or .gz].
    #[arg(long, requires = "write", value_name = "HOW", value_parser = compression)]
    compress: Option<Compression>,
    /// If the output is too slow: wait (the kernel drops and counts) or drop-newest.
    #[arg(long, value_name = "WHAT", default_value = "wait", value_parser = overflow)]
    pub(crate) overflow: Overflow,
    /// If the disk is full: stop, or rotate-delete (remove the oldest finished file of this capture).
    #[arg(long, requires = "write", value_name = "WHAT", default_value = "stop", value_parser = on_full)]
    on_enospc: OnFull,
    /// Remove the oldest finished files of this capture if the file system has less free space than this; sizes as
    /// with -C.
    #[arg(long, requires = "write", value_name = "SIZE", value_parser = file_size)]
    keep_free: Option<u64>,
    /// Name files NAME.part until they are complete and on disk.
    #[arg(long, requires = "write")]
    part: bool,
    /// Run this program for each finished file, with the file as its only argument.
    #[arg(short = 'z', requires = "write", value_name = "PROGRAM")]
    command: Option<String>,
    /// Flush files to disk (fdatasync) every N seconds and on close; 0: only on close [default: left to the system].
    #[arg(long, requires = "write", value_name = "SECONDS")]
    sync: Option<u64>,
    /// Bypass the page cache (O_DIRECT) if the file system supports it: auto (above 100 MB/s), always (also without a
    /// value), never.
    #[arg(long, requires = "write", value_name = "WHEN", num_args = 0..=1, require_equals = true,
        default_missing_value = "always", default_value = "auto", value_parser = direct)]
    direct: DirectWrites,
}

fn direct(text: &str) -> Result<DirectWrites, String> {
    match text {
        "auto" => Ok(DirectWrites::Auto),
        "always" => Ok(DirectWrites::Always),
        "never" => Ok(DirectWrites::Never),
        _ => Err("expected auto, always or never".to_owned()),
    }
}

fn on_full(text: &str) -> Result<OnFull, String> {
    match text {
        "stop" => Ok(OnFull::Stop),
        "rotate-delete" => Ok(OnFull::RotateDelete),
        _ => Err("expected stop or rotate-delete".to_owned()),
    }
}

fn format(text: &str) -> Result<FileFormat, String> {
    match text {
        "pcapng" => Ok(FileFormat::Pcapng),
        "pcap-ns" => Ok(FileFormat::PcapNs),
        "pcap" => Ok(FileFormat::Pcap),
        _ => Err("expected pcapng, pcap-ns or pcap".to_owned()),
    }
}

fn compression(text: &str) -> Result<Compression, String> {
    match text {
        "zstd" => Ok(Compression::Zstd),
        "lz4" => Ok(Compression::Lz4),
        "gzip" => Ok(Compression::Gzip),
        "none" => Ok(Compression::None),
        _ => Err("expected zstd, lz4, gzip or none".to_owned()),
    }
}

fn overflow(text: &str) -> Result<Overflow, String> {
    match text {
        "wait" => Ok(Overflow::Wait),
        "drop-newest" => Ok(Overflow::DropNewest),
        _ => Err("expected wait or drop-newest".to_owned()),
    }
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
    fn form_of(&self, path: &str, micro: bool) -> FileFormat {
        match self.format {
            Some(format) => format,
            None if micro => FileFormat::Pcap,
            None => by_name(path).0,
        }
    }

    /// Returns the output of the plan; none without -w.
    pub(crate) fn output(&self, micro: bool) -> Option<CaptureOutput> {
        let path = self.write.clone()?;
        // As with tcpdump, files by time stop at the limit, and files by size form a ring.
        let ends = self.rotate_seconds.is_some() && self.rotate_size.is_none();
        Some(CaptureOutput {
            format: self.form_of(&path, micro),
            compress: self.compress.unwrap_or(by_name(&path).1),
            rotate_bytes: self.rotate_size.unwrap_or(0),
            rotate_time: self.rotate_seconds.map(Span::from_secs),
            overwrite: self.rotate_seconds.is_some(),
            rotate_frames: self.rotate_packets.unwrap_or(0),
            files: if ends { 0 } else { self.files.unwrap_or(0) },
            file_limit: if ends { self.files.unwrap_or(0) } else { 0 },
            flush: if self.packet_buffered {
                Span::from_millis(100)
            } else {
                Span::from_secs(1)
            },
            on_enospc: self.on_enospc,
            keep_free: self.keep_free.unwrap_or(0),
            part: self.part,
            command: self.command.clone(),
            sync: self.sync.map(Span::from_secs),
            direct: self.direct,
            path,
            ..CaptureOutput::default()
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
