//! Printing by an external program with more dissectors.

use std::{
    io::{ErrorKind, Write},
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use wb_pcapng::Precision;

use super::write::{FileFormat, Order};
use crate::deliver::Fault;

/// External program that prints captures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Foreign {
    Tcpdump,
    Wirebench,
    #[value(skip)]
    Tshark,
}

impl Foreign {
    const fn name(self) -> &'static str {
        match self {
            Self::Tcpdump => "tcpdump",
            Self::Wirebench => "wirebench",
            Self::Tshark => "tshark",
        }
    }

    /// Starts the program with these options. Returns the process and the pipe to it.
    ///
    /// # Errors
    /// If the program is missing or cannot be run.
    pub(super) fn start(self, options: &[String]) -> Result<(Running, Box<dyn Write>)> {
        let name = self.name();
        let child = Command::new(name)
            .args(["-n", "-r", "-"])
            .args(options)
            .stdin(Stdio::piped())
            .spawn();
        let mut child = match child {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                bail!("{name} is not installed; without it, packets are decoded up to TCP and UDP")
            }
            child => child.with_context(|| format!("cannot run {name}"))?,
        };
        let input = child.stdin.take().context("standard input is a pipe")?;
        Ok((Running { name, child }, Box::new(input)))
    }

    /// Returns the output settings for the pipe to the program. Like standard output, the pipe may be closed early.
    pub(super) fn order(self, cut: Option<usize>, unbuffered: bool) -> Order {
        Order {
            path: PathBuf::from("-"),
            format: match self {
                Self::Tcpdump => FileFormat::Pcap,
                Self::Wirebench | Self::Tshark => FileFormat::Pcapng,
            },
            compression: None,
            precision: Precision::Nano,
            cut,
            unbuffered,
        }
    }
}

/// Prints a whole file with tcpdump. Returns the exit code, or None if tcpdump is not installed.
///
/// # Errors
/// If tcpdump cannot be run.
pub(super) fn print_file(
    file: &Path,
    options: &[String],
    first: Option<u64>,
    filter: &str,
) -> Result<Option<u8>> {
    const PIPE: i32 = 13;
    let mut command = Command::new("tcpdump");
    command.arg("-n").arg("-r").arg(file).args(options);
    if let Some(first) = first {
        command.args(["-c", &first.to_string()]);
    }
    if !filter.is_empty() {
        command.args(["--", filter]);
    }
    match command.status() {
        Err(error)
            if matches!(
                error.kind(),
                ErrorKind::NotFound | ErrorKind::PermissionDenied
            ) =>
        {
            Ok(None)
        }
        status => {
            let status = status.context("cannot run tcpdump")?;
            // The reader has closed the pipe.
            let ends_well = status.success() || status.signal() == Some(PIPE);
            Ok(Some(u8::from(!ends_well)))
        }
    }
}

/// Running program.
pub(super) struct Running {
    name: &'static str,
    child: Child,
}

impl Running {
    /// Waits until the program has printed everything; all input has been written.
    ///
    /// # Errors
    /// If the program failed.
    pub(super) fn end(mut self) -> Result<()> {
        let status = self
            .child
            .wait()
            .with_context(|| format!("cannot wait for {}", self.name))?;
        match status.success() {
            true => Ok(()),
            false => Err(Fault(format!("{} failed: {status}", self.name)).into()),
        }
    }
}

/// Ensures that the program's output is complete before this process ends.
impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.wait();
    }
}
