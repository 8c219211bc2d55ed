//! Writes results to standard output and to files.

use std::{
    io::{ErrorKind, IsTerminal, Write},
    path::Path,
    sync::OnceLock,
};

use anyhow::Result;
use wb_model::{Report, Snapshot};
pub(crate) use wb_session::Fault;

use crate::{args::OutputArgs, say::say_in_passing, stdout::stdout};

/// Returns the columns of the terminal on standard error, or a width that fits everywhere.
pub(crate) fn width() -> usize {
    let columns =
        rustix::termios::tcgetwinsize(std::io::stderr()).map_or(0, |w| usize::from(w.ws_col));
    if columns == 0 { 100 } else { columns }
}

/// Returns true if the locale supports characters beyond ASCII.
pub(crate) fn unicode() -> bool {
    ["LC_ALL", "LC_CTYPE", "LANG"]
        .iter()
        .find_map(|v| std::env::var(v).ok().filter(|v| !v.is_empty()))
        .is_some_and(|v| v.to_ascii_lowercase().contains("utf"))
}

/// Prints a snapshot as a live line.
pub(crate) fn show(snapshot: &Snapshot) {
    say_in_passing(wb_render::live::line(snapshot, width(), unicode()));
}

/// Returns true if standard output is a terminal and `NO_COLOR` is unset or empty (<https://no-color.org>).
pub(crate) fn color() -> bool {
    let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    std::io::stdout().is_terminal() && !refused
}

/// Returns the text options of a report for this terminal.
pub(crate) fn text_options(verbose: bool) -> wb_render::text::Options {
    wb_render::text::Options {
        color: color(),
        width: width(),
        verbose,
    }
}

/// Checks before the start that a result can be written at the end.
///
/// # Errors
/// If the file cannot be written.
pub(crate) fn check_writable(path: &std::path::Path) -> Result<()> {
    let new = !path.exists();
    let opened = std::fs::OpenOptions::new()
        .append(true)
        .create(true)
        .open(path);
    opened.map_err(|e| anyhow::anyhow!("cannot write {}: {e}", path.display()))?;
    if new {
        let _ = std::fs::remove_file(path);
    }
    Ok(())
}

/// First text that [`print`] could not write.
static UNWRITTEN: OnceLock<Fault> = OnceLock::new();

/// Records a text or file that could not be written. The first failure decides the exit code; further failures are
/// printed at once.
fn record_unwritten(fault: Fault) {
    if let Err(another) = UNWRITTEN.set(fault) {
        let _ = writeln!(std::io::stderr(), "wirebench: {another}");
    }
}

/// Writes to standard output; a closed pipe (`| head`) is no error. A run that continues after a failed write reports
/// the missing output at its end: [`unwritten`].
pub(crate) fn print(text: &str) {
    if let Err(fault) = deliver(text) {
        let _ = UNWRITTEN.set(fault);
    }
}

/// Writes the requested files of a run that has just ended. If a file cannot be written, the results are still
/// printed, and the failure is reported at the end.
pub(crate) fn write_files(report: &Report, output: &OutputArgs) {
    write_page(report, output.report.as_deref());
    if let Some(path) = &output.junit
        && let Err(e) = std::fs::write(path, wb_render::junit::report(report))
    {
        record_unwritten(Fault(format!("cannot write {}: {e}", path.display())));
    }
}

/// Writes only the report page.
pub(crate) fn write_page(report: &Report, path: Option<&Path>) {
    let Some(path) = path else { return };
    let run = wb_render::report::Run {
        name: String::new(),
        report: report.clone(),
    };
    if let Err(fault) = wb_files::report::write(&[run], path) {
        record_unwritten(fault);
    }
}

/// Returns the reason why some output is missing, if any.
pub(crate) fn unwritten() -> Option<&'static Fault> {
    UNWRITTEN.get()
}

/// Writes results to standard output; a closed pipe (`| head`) is no error.
///
/// # Errors
/// If the results cannot be written, for example because the disk is full.
pub(crate) fn deliver(text: &str) -> Result<(), Fault> {
    let end = if text.ends_with('\n') { "" } else { "\n" };
    match stdout().and_then(|mut out| write!(out, "{text}{end}").and_then(|()| out.flush())) {
        Err(e) if !is_reader_gone(&e) => Err(not_written(&e)),
        _ => Ok(()),
    }
}

/// Writes a part of endless results. Returns false if nothing reads standard output any more.
///
/// # Errors
/// If the part cannot be written, for example because the disk is full.
pub(crate) fn deliver_to_reader(text: &str) -> Result<bool, Fault> {
    let end = if text.ends_with('\n') || text.is_empty() {
        ""
    } else {
        "\n"
    };
    match stdout().and_then(|mut out| write!(out, "{text}{end}").and_then(|()| out.flush())) {
        Err(e) if is_reader_gone(&e) => Ok(false),
        Err(e) => Err(not_written(&e)),
        Ok(()) => Ok(true),
    }
}

/// Writes a document to standard output. A closed pipe is an error, because a partial document is useless.
///
/// # Errors
/// If the document cannot be written completely.
pub(crate) fn deliver_document(text: &str) -> Result<(), Fault> {
    match stdout().and_then(|mut out| writeln!(out, "{text}").and_then(|()| out.flush())) {
        Err(e) if !is_hung_up(&e) => Err(not_written(&e)),
        _ => Ok(()),
    }
}

/// Returns true if nothing reads standard output any more: its pipe is closed, or its terminal has hung up.
fn is_reader_gone(error: &std::io::Error) -> bool {
    error.kind() == ErrorKind::BrokenPipe || is_hung_up(error)
}

/// Returns true if standard output was a terminal that has hung up. Writes then fail with EIO, as for a broken disk.
fn is_hung_up(error: &std::io::Error) -> bool {
    use rustix::fs::{FileType, fstat};
    let is_device = || {
        let stat = fstat(std::io::stdout());
        stat.is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice)
    };
    error.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error()) && is_device()
}

/// Creates the fault for results that cannot be written.
pub(crate) fn not_written(error: &std::io::Error) -> Fault {
    Fault(format!(
        "cannot write the results to standard output: {error}"
    ))
}

pub(crate) fn deliver_report(report: &Report, output: &OutputArgs) -> Result<(), Fault> {
    if output.json {
        deliver_document(&wb_render::json::report(report))
    } else if output.csv {
        deliver(&wb_render::csv::report(report))
    } else if !output.live_json {
        deliver(&wb_render::text::report(
            report,
            &text_options(output.verbose),
        ))
    } else {
        Ok(())
    }
}
