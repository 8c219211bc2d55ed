//! Printing by an external program with more dissectors.

use std::{
    io::{ErrorKind, Write},
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use anyhow::{Context, Result, bail};
use wb_model::capture::{Compression, FileFormat};
use wb_session::Fault;

use super::{Selection, write::Order};

/// External program that prints captures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Foreign {
    /// tcpdump.
    Tcpdump,
    /// tshark.
    Tshark,
}

impl Foreign {
    const fn name(self) -> &'static str {
        match self {
            Self::Tcpdump => "tcpdump",
            Self::Tshark => "tshark",
        }
    }
}

/// External program that prints packets, with its options.
#[derive(Clone, Debug)]
pub struct Program {
    /// Program to start.
    pub program: Foreign,
    /// Options in addition to those that name the input.
    pub options: Vec<String>,
    /// Maximum bytes passed on of each packet, if limited.
    pub cut: Option<usize>,
    /// True if each packet is passed on at once.
    pub unbuffered: bool,
}

impl Program {
    /// Starts the program. Returns the process and the pipe to it.
    ///
    /// # Errors
    /// If the program is missing or cannot be run.
    pub(super) fn start(&self) -> Result<(Running, Box<dyn Write>)> {
        let name = self.program.name();
        let child = Command::new(name)
            .args(["-n", "-r", "-"])
            .args(&self.options)
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
    pub(super) fn order(&self) -> Order {
        Order {
            path: PathBuf::from("-"),
            format: match self.program {
                Foreign::Tcpdump => FileFormat::PcapNs,
                Foreign::Tshark => FileFormat::Pcapng,
            },
            compression: Compression::None,
            cut: self.cut,
            unbuffered: self.unbuffered,
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
    selection: &Selection,
) -> Result<Option<u8>> {
    const PIPE: i32 = 13;
    let mut command = Command::new("tcpdump");
    command.arg("-n").arg("-r").arg(file).args(options);
    if let Some(first) = selection.first {
        command.args(["-c", &first.to_string()]);
    }
    if !selection.filter.is_empty() {
        command.args(["--", &selection.filter]);
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
