//! Command lines: the words after `netperf` become a plan with one test and what to show of it, the
//! words after `netserver` a server.
//!
//! Each option is one row of a table (`global.rs`, `omni.rs`, `sockets.rs`, `server.rs`): letter,
//! argument, help line, effect. A row only notes what was typed; what depends on several options is
//! settled once, in `settle.rs`.
//!
//! Departures from netperf 2.7, all of them meant: numbers are of 64 bits, and what is no number or
//! out of range is refused where the original takes the digits in front or wraps; so are unknown
//! directions, protocols, socket types and kinds of service. `-b` and `-w` pace, for which the
//! original must be compiled specially. Short names of congestion control hold for the server too.

mod dashes;
mod getopt;
mod given;
mod global;
mod number;
mod omni;
mod server;
mod settle;
mod sockets;
mod tests_known;

use wb_getopt::Bad;
use wb_model::{
    Plan,
    socket::{Family, SocketJob},
};

pub use server::{ServerCommand, cannot_start, netserver, start_line};

use crate::{Ending, Form, Selection, Show, TestKind};
use getopt::scan;
use given::Given;

/// What `netperf -V` and `netserver -V` say: the version whose behaviour this is, which scripts ask
/// for.
const VERSION: &str = "Netperf version 2.7.0\n";

/// What a command line of netperf asks for.
#[derive(Clone, Debug)]
pub struct Command {
    /// The plan, with one socket test. For [`Special::LocalCpu`] and [`Special::Uuid`] that test is
    /// [`SocketTest::ServerCpu`](wb_model::socket::SocketTest::ServerCpu): the original connects to the server for these as well.
    pub plan: Plan,
    /// What to print of it.
    pub show: Show,
    /// What is not a test.
    pub special: Special,
    /// Lines to print before anything else, in this order.
    pub notes: Vec<Note>,
    /// How often `-d` was given.
    pub debug: u32,
    /// `-n`: CPUs to assume where they cannot be counted.
    pub cpus: Option<u32>,
}

impl Command {
    /// Settles which figures are printed, and has measured what they need. To be called once, before
    /// the test and after [`Command::be_strict`]. `read` gives the content of a file of selectors, or
    /// the system's number of why it cannot.
    ///
    /// # Errors
    /// What to print, and the exit status, where nothing is to be run: a file that cannot be read, and
    /// `?`.
    pub fn select(
        &mut self,
        read: impl FnOnce(&str) -> Result<String, i32>,
    ) -> Result<Selection, Ending> {
        let word = self.show.selection.clone().unwrap_or_default();
        if self.show.form != Form::Classic
            && let Some(file) = Selection::file_of(&word)
        {
            let content = read(file).map_err(|errno| Selection::unreadable(file, errno))?;
            self.show.selection_file = Some(content);
        }
        let selection = Selection::of(&self.show, self.job())?;
        if selection.needs().latency {
            for job in &mut self.plan.sockets {
                job.latency = true;
            }
        }
        Ok(selection)
    }

    /// The one test.
    ///
    /// # Panics
    /// If the plan was emptied.
    #[must_use]
    pub fn job(&self) -> &SocketJob {
        &self.plan.sockets[0]
    }

    /// Be the original in what is printed and in what is asked of the server.
    pub fn be_strict(&mut self) {
        self.show.strict = true;
        for job in &mut self.plan.sockets {
            job.control.plain = true;
        }
    }
}

/// What a command line asks for that is not a test.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Special {
    /// It is a test.
    #[default]
    Normal,
    /// `-t UUID`: print [`Show::uuid`] or, where that is empty, a new one, without a line end.
    Uuid,
    /// `-t LOC_CPU`: print how this end measures its CPUs.
    LocalCpu,
    /// `-t REM_CPU`: print how the server measures its CPUs.
    RemoteCpu,
}

/// A line to print before anything else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// The text, with its line end.
    pub text: String,
    /// On standard output; else on standard error.
    pub to_stdout: bool,
}

/// Why nothing is run: a mistake, or only a question such as `-h`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", text.trim_end())]
pub struct Refusal {
    /// What to print, with its line end.
    pub text: String,
    /// On standard output; else on standard error.
    pub to_stdout: bool,
    /// Exit status.
    pub code: i32,
    /// Lines to print before.
    pub notes: Vec<Note>,
}

impl Refusal {
    /// A mistake of usage: one line on standard error, exit status 1.
    fn usage(line: impl std::fmt::Display) -> Self {
        Self::err(format!("{line}\n"), 1)
    }

    fn err(text: impl Into<String>, code: i32) -> Self {
        Self {
            text: text.into(),
            to_stdout: false,
            code,
            notes: Vec::new(),
        }
    }

    fn out(text: impl Into<String>, code: i32) -> Self {
        Self {
            to_stdout: true,
            ..Self::err(text, code)
        }
    }
}

/// All that was typed. What means the same wherever it stands is in `job` and `show` at once.
#[derive(Debug, Default)]
struct Typed {
    job: SocketJob,
    show: Show,
    notes: Vec<Note>,
    debug: u32,
    cpus: Option<u32>,
    /// `-t`.
    test: String,
    /// `-l`: seconds, or units if negative.
    length: Option<i64>,
    /// `-w`: local, remote; microseconds.
    interval: [Option<u64>; 2],
    iterations: Iterations,
    /// Test-specific `-R`.
    routing: Option<bool>,
    /// Test-specific `-d`.
    direction: Option<Direction>,
    /// What `-m`, `-M` and `-r` of the test imply.
    implied: Direction,
    /// Test-specific `-c`.
    connect_each: bool,
    /// Test-specific `-T` was given.
    protocol_given: bool,
    /// Families of the data connection: `-H`'s or `-4`, `-6`; `-L`'s.
    data_family: Family,
    data_local_family: Family,
}

/// `-i`, `-I`, as far as typed.
#[derive(Debug)]
struct Iterations {
    /// 0: not asked for.
    level: u8,
    /// Percent; 0: not given.
    width: f64,
    min: u32,
    max: u32,
    /// `-r`.
    result_only: bool,
}

impl Default for Iterations {
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

/// Which ways data goes, as the client sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Direction {
    send: bool,
    receive: bool,
}

/// Which options follow `--`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Parser {
    /// Those of OMNI and of the tests made of it.
    Omni,
    /// Those of the older tests.
    Sockets,
    /// None are read.
    Ignored,
}

/// Reads the words after `netperf`.
///
/// A dash of any kind at the beginning of a word is a hyphen. Of two occurrences of an option the last holds; words that are no options are passed over; the
/// first `--` ends the global options and begins those of the test.
///
/// # Errors
/// What to print and the exit status, where nothing is to be run: unknown options, missing
/// arguments, an unknown test, numbers that are none or out of range; and `-h`, `-V`. Selectors are
/// looked at by [`Command::select`].
pub fn netperf(words: &[String]) -> Result<Command, Refusal> {
    let mut typed = Typed::default();
    typed.show.command_line = std::iter::once("netperf")
        .chain(words.iter().map(String::as_str))
        .collect::<Vec<_>>()
        .join(" ");
    let (words, note) = dashes::with_hyphens(words);
    typed.notes.extend(note);
    let result = read(&words, &mut typed);
    match result {
        Ok(special) => settle::settle(typed, special),
        Err(refusal) => Err(Refusal {
            notes: typed.notes,
            ..refusal
        }),
    }
}

fn read(words: &[String], typed: &mut Typed) -> Result<&'static tests_known::Known, Refusal> {
    let used = scan(global::OPTIONS, words, "netperf: ", typed, |_, bad| {
        Err(Refusal::err(
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
        return Err(Refusal::out(
            format!(
                "The test you requested ({name}) is unknown to this netperf.\n\
                 `netperf -h` names the tests that it knows.\n"
            ),
            1,
        ));
    };
    typed.job.name = known.name.to_owned();
    typed.job.test = known.test;
    typed.job.protocol = known.protocol;
    typed.show.kind = known.kind;
    if known.kind == TestKind::Omni {
        typed.show.form = Form::Human;
    }
    // The original tells of a bad option of a test and goes on without it.
    let pass_over = |typed: &mut Typed, bad: Bad| {
        typed.notes.push(Note {
            text: format!("netperf: {bad}\n"),
            to_stdout: false,
        });
        Ok(())
    };
    let rest = &words[used..];
    match known.parser {
        Parser::Omni => scan(omni::OPTIONS, rest, "netperf: -- ", typed, pass_over)?,
        Parser::Sockets => scan(sockets::OPTIONS, rest, "netperf: -- ", typed, pass_over)?,
        Parser::Ignored => 0,
    };
    Ok(known)
}

#[cfg(test)]
mod tests;
