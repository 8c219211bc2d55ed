//! Command lines: the words after `netperf` become a plan with one test and its output options, the
//! words after `netserver` a server.
//!
//! Each option is one row of a table (`global.rs`, `omni.rs`, `sockets.rs`, `server.rs`): letter,
//! argument, help line, effect. A row only records the typed value; `settle.rs` then resolves everything that
//! depends on several options.
//!
//! Intentional differences from netperf 2.7: Numbers have 64 bits. Invalid and out-of-range numbers are rejected, where
//! the original reads the leading digits or wraps around. Unknown directions, protocols, socket types and kinds of
//! service are rejected too. `-b` and `-w` set the pace, for which the original needs a special build. Short names of
//! congestion control also apply to the server.

mod dashes;
mod getopt;
mod global;
mod number;
mod omni;
mod resolve;
mod server;
mod sockets;
mod tests_known;
mod typed_option;

use wb_getopt::Bad;
use wb_model::{
    Plan,
    socket::{Family, SocketJob},
};

pub use server::{ServerCommand, cannot_start, netserver, start_line};

use crate::{FigureSelection, OutputForm, OutputOptions, ProgramExit, TestKind};
use getopt::scan;
use typed_option::TypedOption;

/// Output of `netperf -V` and `netserver -V`: the version that this crate follows, which scripts query.
const VERSION: &str = "Netperf version 2.7.0\n";

/// netperf's command line, parsed.
#[derive(Clone, Debug)]
pub struct NetperfCommand {
    /// The plan, with one socket test. For [`SpecialAction::LocalCpu`] and [`SpecialAction::Uuid`] that test is
    /// [`SocketTest::ServerCpu`](wb_model::socket::SocketTest::ServerCpu), since the original connects to the server
    /// for
    /// these as well.
    pub plan: Plan,
    /// Output options.
    pub show: OutputOptions,
    /// Action other than a test.
    pub special: SpecialAction,
    /// Lines to print first, in this order.
    pub notes: Vec<NoteLine>,
    /// Number of `-d` options.
    pub debug: u32,
    /// `-n`: assumed number of CPUs if they cannot be counted.
    pub cpus: Option<u32>,
}

impl NetperfCommand {
    /// Selects the figures to print, and enables the measurements that they need. Call once, before
    /// the test and after [`NetperfCommand::be_strict`]. `read` returns the content of a file of selectors, or
    /// the error number of the system.
    ///
    /// # Errors
    /// Output and exit status if there is nothing to run: for a file that cannot be read, and
    /// for `?`.
    pub fn select_figures(
        &mut self,
        read: impl FnOnce(&str) -> Result<String, i32>,
    ) -> Result<FigureSelection, ProgramExit> {
        let word = self.show.selection.clone().unwrap_or_default();
        if self.show.form != OutputForm::Classic
            && let Some(file) = FigureSelection::file_of(&word)
        {
            let content =
                read(file).map_err(|errno| FigureSelection::unreadable_file(file, errno))?;
            self.show.selection_file = Some(content);
        }
        let selection = FigureSelection::of_command(&self.show, self.job())?;
        if selection.needs().latency {
            for job in &mut self.plan.sockets {
                job.latency = true;
            }
        }
        Ok(selection)
    }

    /// The only test.
    ///
    /// # Panics
    /// If the plan is empty.
    #[must_use]
    pub fn job(&self) -> &SocketJob {
        &self.plan.sockets[0]
    }

    /// Makes the output and the requests to the server identical to those of the original.
    pub fn be_strict(&mut self) {
        self.show.strict = true;
        for job in &mut self.plan.sockets {
            job.control.plain = true;
        }
    }
}

/// Action of a command line other than a test.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SpecialAction {
    /// A test, so no special action.
    #[default]
    Normal,
    /// `-t UUID`: prints [`OutputOptions::uuid`] or, if empty, a new UUID, without a line end.
    Uuid,
    /// `-t LOC_CPU`: prints the calibration of the local CPUs.
    LocalCpu,
    /// `-t REM_CPU`: prints the calibration of the server's CPUs.
    RemoteCpu,
}

/// A line printed before anything else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoteLine {
    /// The text, with its line end.
    pub text: String,
    /// True for standard output, false for standard error.
    pub to_stdout: bool,
}

/// Reason not to run: a mistake, or a question such as `-h`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", text.trim_end())]
pub struct NetperfRefusal {
    /// Text to print, with its line end.
    pub text: String,
    /// True for standard output, false for standard error.
    pub to_stdout: bool,
    /// Exit status.
    pub code: i32,
    /// Lines to print first.
    pub notes: Vec<NoteLine>,
}

impl NetperfRefusal {
    /// Usage error: one line on standard error, exit status 1.
    fn usage_error(line: impl std::fmt::Display) -> Self {
        Self::to_stderr(format!("{line}\n"), 1)
    }

    fn to_stderr(text: impl Into<String>, code: i32) -> Self {
        Self {
            text: text.into(),
            to_stdout: false,
            code,
            notes: Vec::new(),
        }
    }

    fn to_stdout(text: impl Into<String>, code: i32) -> Self {
        Self {
            to_stdout: true,
            ..Self::to_stderr(text, code)
        }
    }
}

/// Options as typed. Options with a fixed meaning are in `job` and `show` already.
#[derive(Debug, Default)]
struct TypedOptions {
    job: SocketJob,
    show: OutputOptions,
    notes: Vec<NoteLine>,
    debug: u32,
    cpus: Option<u32>,
    /// `-t`: name of the test.
    test: String,
    /// `-l`: seconds, or units if negative.
    length: Option<i64>,
    /// `-w`: local and remote interval, µs.
    interval: [Option<u64>; 2],
    iterations: IterationLimits,
    /// Test-specific `-R`.
    routing: Option<bool>,
    /// Test-specific `-d`.
    direction: Option<DataDirection>,
    /// Directions implied by `-m`, `-M` and `-r` of the test.
    implied: DataDirection,
    /// Test-specific `-c`.
    connect_each: bool,
    /// Test-specific `-T` was given.
    protocol_given: bool,
    /// Families of the data connection: from `-H`, `-4` or `-6`, and from `-L`.
    data_family: Family,
    data_local_family: Family,
}

/// `-i` and `-I` as typed.
#[derive(Debug)]
struct IterationLimits {
    /// Confidence level in percent; 0 if absent.
    level: u8,
    /// Width in percent; 0 if absent.
    width: f64,
    min: u32,
    max: u32,
    /// `-r`.
    result_only: bool,
}

impl Default for IterationLimits {
    fn default() -> Self {
        Self {
            level: 0,
            width: 0.0,
            min: 1,
            max: 1,
            result_only: false,
        }
    }
}

/// Directions of the data from the client's view.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct DataDirection {
    send: bool,
    receive: bool,
}

/// Kind of the options after `--`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TestOptionKind {
    /// Options of OMNI and the tests based on it.
    Omni,
    /// Options of the older tests.
    Sockets,
    /// Options are not read.
    Ignored,
}

/// Parses the words after `netperf`.
///
/// A dash of any kind at the beginning of a word counts as a hyphen. The last occurrence of an option is used. Words
/// that are not options are ignored. The first `--` ends the global options and begins those of the test.
///
/// # Errors
/// Output and exit status if there is nothing to run: unknown options, missing arguments, an unknown test, invalid
/// or out-of-range numbers; and `-h`, `-V`. [`NetperfCommand::select_figures`] checks the selectors.
pub fn netperf(words: &[String]) -> Result<NetperfCommand, NetperfRefusal> {
    let mut typed = TypedOptions::default();
    typed.show.command_line = std::iter::once("netperf")
        .chain(words.iter().map(String::as_str))
        .collect::<Vec<_>>()
        .join(" ");
    let (words, note) = dashes::with_hyphens(words);
    typed.notes.extend(note);
    let result = read(&words, &mut typed);
    match result {
        Ok(special) => resolve::resolve_command(typed, special),
        Err(refusal) => Err(NetperfRefusal {
            notes: typed.notes,
            ..refusal
        }),
    }
}

fn read(
    words: &[String],
    typed: &mut TypedOptions,
) -> Result<&'static tests_known::Known, NetperfRefusal> {
    let used = scan(global::OPTIONS, words, "netperf: ", typed, |_, bad| {
        Err(NetperfRefusal::to_stderr(
            format!("netperf: {bad}\n{}", global::usage_text()),
            1,
        ))
    })?;
    let name = if typed.test.is_empty() {
        "TCP_STREAM"
    } else {
        &typed.test
    };
    let name = name.to_ascii_uppercase();
    let Some(known) = tests_known::find(&name) else {
        return Err(NetperfRefusal::to_stdout(
            format!(
                "The test you requested ({name}) is unknown to this netperf.\n\
                 `netperf -h` lists the known tests.\n"
            ),
            1,
        ));
    };
    typed.job.name = known.name.to_owned();
    typed.job.test = known.test;
    typed.job.protocol = known.protocol;
    typed.show.kind = known.kind;
    if known.kind == TestKind::Omni {
        typed.show.form = OutputForm::Human;
    }
    // The original reports a bad option of a test and continues without it.
    let pass_over = |typed: &mut TypedOptions, bad: Bad| {
        typed.notes.push(NoteLine {
            text: format!("netperf: {bad}\n"),
            to_stdout: false,
        });
        Ok(())
    };
    let rest = &words[used..];
    match known.parser {
        TestOptionKind::Omni => scan(omni::OPTIONS, rest, "netperf: -- ", typed, pass_over)?,
        TestOptionKind::Sockets => scan(sockets::OPTIONS, rest, "netperf: -- ", typed, pass_over)?,
        TestOptionKind::Ignored => 0,
    };
    Ok(known)
}

#[cfg(test)]
mod tests;
