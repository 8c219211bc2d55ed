//! Compatibility options of tcpdump and dumpcap.

use std::time::Duration;

use anyhow::{Result, bail};
use clap::Args;
use wb_machine::{Ethtool, Namespace, link};
use wb_model::{
    Locator,
    capture::{CaptureJob, Stamps},
    units::Span,
};

/// Options that tcpdump and dumpcap share with a capture.
#[derive(Args, Debug)]
#[command(next_help_heading = "tcpdump and dumpcap options")]
pub(crate) struct TcpdumpOptions {
    /// Switch to this user once the ports are open; the files belong to the user.
    #[arg(short = 'Z', long = "relinquish-privileges", value_name = "USER", conflicts_with_all = ["rt", "offloads"])]
    user: Option<String>,
    /// Link type; only EN10MB is supported [default: EN10MB].
    #[arg(short = 'y', long = "linktype", value_name = "TYPE", value_parser = link_type)]
    link_type: Option<String>,
    /// List the link types of the port and exit.
    #[arg(short = 'L', long)]
    list_data_link_types: bool,
    /// Time stamp source: host, adapter (its clock is synchronised) or adapter_unsynced.
    #[arg(short = 'j', long = "time-stamp-type", value_name = "TYPE", default_value = "host", value_parser = stamps)]
    stamps: Stamps,
    /// List the time stamp sources of the port and exit.
    #[arg(short = 'J', long)]
    list_time_stamp_types: bool,
    /// Use microsecond time stamps, the default of printed lines; files are written as pcap.
    #[arg(long, overrides_with_all = ["nano", "time_stamp_precision"])]
    micro: bool,
    /// Use nanosecond time stamps, the default of files.
    #[arg(long, overrides_with_all = ["micro", "time_stamp_precision"])]
    nano: bool,
    /// Time stamp precision, as with --micro or --nano.
    #[arg(long, value_name = "micro|nano", value_parser = ["micro", "nano"], overrides_with_all = ["micro", "nano"])]
    time_stamp_precision: Option<String>,
    /// Stop condition as in dumpcap: duration:SECONDS, packets:N, filesize:KB (approximate), or files:N.
    #[arg(short = 'a', long = "autostop", value_name = "WHEN", value_parser = stop)]
    stop: Vec<Stop>,
    /// File rotation as in dumpcap: duration:SECONDS, interval:SECONDS (at multiples), filesize:KB, packets:N;
    /// files:N limits the number of files.
    #[arg(short = 'b', long = "ring-buffer", value_name = "WHEN", value_parser = next)]
    next: Vec<Next>,
    /// Accepted without effect: mesh headers exist only in Wi-Fi.
    #[arg(short = 'H', hide = true)]
    mesh: bool,
    /// Accepted: the filter selects the same frames, only the output of -d differs.
    #[arg(short = 'O', long, hide = true)]
    pub(crate) no_optimize: bool,
}

/// Stop condition of dumpcap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    Duration(Span),
    Packets(u64),
    FileKb(u64),
    Files(u32),
}

/// File rotation of dumpcap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Duration(Span),
    Interval(Span),
    Packets(u64),
    FileKb(u64),
    Files(u32),
}

fn link_type(text: &str) -> Result<String, String> {
    if text.eq_ignore_ascii_case("EN10MB") {
        Ok(text.to_owned())
    } else {
        Err("expected EN10MB (Ethernet), the only supported link type".to_owned())
    }
}

fn stamps(text: &str) -> Result<Stamps, String> {
    match text {
        "host" => Ok(Stamps::Host),
        "adapter" => Ok(Stamps::Adapter),
        "adapter_unsynced" => Ok(Stamps::AdapterUnsynced),
        _ => Err(
            "expected host, adapter or adapter_unsynced; list those of the port with -J".to_owned(),
        ),
    }
}

/// Splits `what:N`; N must be above 0.
fn numbered(text: &str) -> Option<(&str, u64)> {
    let (what, number) = text.split_once(':')?;
    Some((what, number.parse().ok().filter(|n| *n > 0)?))
}

/// Parses the seconds of `what:SECONDS`, above 0, with optional decimals.
fn seconds(text: &str, what: &str) -> Option<Span> {
    let number = text.strip_prefix(what)?.strip_prefix(':')?;
    let plain = number.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    let seconds = Duration::try_from_secs_f64(number.parse().ok()?).ok()?;
    let ns = u64::try_from(seconds.as_nanos())
        .ok()
        .filter(|ns| *ns > 0)?;
    plain.then_some(Span(Duration::from_nanos(ns)))
}

fn stop(text: &str) -> Result<Stop, String> {
    if let Some(time) = seconds(text, "duration") {
        return Ok(Stop::Duration(time));
    }
    match numbered(text) {
        Some(("packets", n)) => Ok(Stop::Packets(n)),
        Some(("filesize", n)) => Ok(Stop::FileKb(n)),
        Some(("files", n)) if u32::try_from(n).is_ok() => Ok(Stop::Files(n as u32)),
        _ => {
            Err("expected duration:N, packets:N, filesize:N or files:N, with N above 0".to_owned())
        }
    }
}

fn next(text: &str) -> Result<Next, String> {
    if let Some(time) = seconds(text, "duration") {
        return Ok(Next::Duration(time));
    }
    if let Some(time) = seconds(text, "interval") {
        return Ok(Next::Interval(time));
    }
    match numbered(text) {
        Some(("packets", n)) => Ok(Next::Packets(n)),
        Some(("filesize", n)) => Ok(Next::FileKb(n)),
        Some(("files", n)) if u32::try_from(n).is_ok() => Ok(Next::Files(n as u32)),
        _ => Err(
            "expected duration:N, interval:N, filesize:N, packets:N or files:N, with N above 0 (-b of tcpdump, for BGP, is not supported)"
                .to_owned(),
        ),
    }
}

/// Converts kB of dumpcap(1), which are 1000 bytes, to bytes.
const fn kilobytes(n: u64) -> u64 {
    n.saturating_mul(1000)
}

impl TcpdumpOptions {
    /// Returns true if files also use microseconds.
    pub(crate) fn micro(&self) -> bool {
        self.micro || self.time_stamp_precision.as_deref() == Some("micro")
    }

    /// Returns true if printed lines also use nanoseconds.
    pub(crate) fn nano(&self) -> bool {
        self.nano || self.time_stamp_precision.as_deref() == Some("nano")
    }

    /// Returns the output of -L and -J, if one was given.
    pub(crate) fn lists(&self, locators: &[Locator]) -> Result<Option<String>> {
        if !self.list_data_link_types && !self.list_time_stamp_types {
            return Ok(None);
        }
        let mut text = String::new();
        for locator in locators.iter().filter(|l| l.is_interface()) {
            let hardware = stamps_by_itself(locator)?;
            if self.list_data_link_types {
                text += &format!(
                    "Data link types for {} (use option -y to set):\n  EN10MB (Ethernet)\n",
                    locator.place()
                );
            }
            if self.list_time_stamp_types {
                text += &format!(
                    "Time stamp types for {} (use option -j to set):\n  host (Host)\n",
                    locator.place()
                );
                if hardware {
                    text += "  adapter (Adapter)\n  adapter_unsynced (Adapter, not synced with system time)\n";
                }
            }
        }
        Ok(Some(text))
    }

    /// Applies the options to the job.
    pub(crate) fn complete(&self, job: &mut CaptureJob) -> Result<()> {
        job.user.clone_from(&self.user);
        job.stamps = self.stamps;
        for stop in &self.stop {
            match *stop {
                Stop::Duration(time) => job.duration = Some(time),
                Stop::Packets(n) => job.count = Some(n),
                Stop::FileKb(n) => job.stop_octets = Some(kilobytes(n)),
                Stop::Files(_) => {}
            }
        }
        let most_files = self.stop.iter().rev().find_map(|stop| match stop {
            Stop::Files(n) => Some(*n),
            _ => None,
        });
        let Some(output) = &mut job.output else {
            if !self.next.is_empty() || job.stop_octets.is_some() || most_files.is_some() {
                bail!("-b, -a filesize and -a files need -w");
            }
            return Ok(());
        };
        for next in &self.next {
            match *next {
                Next::Duration(time) => output.rotate_time = Some(time),
                Next::Interval(time) => {
                    output.rotate_time = Some(time);
                    output.rotate_aligned = true;
                }
                Next::Packets(n) => output.rotate_frames = n,
                Next::FileKb(n) => output.rotate_bytes = kilobytes(n),
                Next::Files(n) => output.files = n,
            }
        }
        if let Some(most) = most_files {
            output.file_limit = most;
        }
        Ok(())
    }
}

/// Returns true if the network card can stamp received frames.
fn stamps_by_itself(locator: &Locator) -> Result<bool> {
    let namespace = match &locator.node {
        Some(node) => Namespace::named(node)?,
        None => Namespace::current()?,
    };
    link::link_by_name(&namespace, &locator.name)?;
    let can = Ethtool::open(&namespace)?.timestamping(&locator.name)?;
    Ok(can.is_some_and(|can| can.hardware_rx))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dumpcaps_words_are_understood() {
        let half = Span::from_millis(500);
        assert_eq!(stop("duration:5"), Ok(Stop::Duration(Span::from_secs(5))));
        assert_eq!(stop("duration:0.5"), Ok(Stop::Duration(half)));
        assert_eq!(next("duration:0.5"), Ok(Next::Duration(half)));
        assert_eq!(next("interval:1"), Ok(Next::Interval(Span::from_secs(1))));
        assert_eq!(stop("files:3"), Ok(Stop::Files(3)));
        assert_eq!(stop("packets:7"), Ok(Stop::Packets(7)));
        assert_eq!(stop("filesize:9"), Ok(Stop::FileKb(9)));
        assert_eq!(next("files:3"), Ok(Next::Files(3)));
        assert_eq!(next("filesize:3"), Ok(Next::FileKb(3)));
        for bad in [
            "",
            "duration",
            "duration:0",
            "duration:x",
            "duration:inf",
            "duration:1e3",
            "files:0",
        ] {
            assert!(stop(bad).is_err() && next(bad).is_err(), "{bad}");
        }
        assert!(stop("interval:5").is_err());
    }

    #[test]
    fn one_link_type_is_there() {
        assert!(link_type("en10mb").is_ok());
        assert!(link_type("LINUX_SLL").is_err());
    }
}
