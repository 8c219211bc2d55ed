//! The binary `wirebench`: parses the command line, runs the command, prints the results, and returns an exit code.
//!
//! Exit codes: 0 ran and all criteria held, 1 a criterion failed, 2 bad input or missing privilege and nothing
//! started, 3 the tester was the limit, 4 started but ended by a fault, 129, 130 and 143 after SIGHUP, SIGINT and SIGTERM.

// These macros panic if the output is closed.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod alias;
mod args;
mod commands;
mod deliver;
#[cfg(feature = "fleet")]
mod fleet;
mod help;
mod metrics;
mod run;
mod safety;
mod say;
mod screen;
mod stdout;

use std::{ffi::OsString, process::ExitCode};

use anyhow::Context as _;
use args::Given;
use clap::{ArgMatches, Command};
use say::say;

/// Returns the command line of the program: all commands of [`commands::GROUPS`], with help in the layout of [`help`].
fn command_line() -> Command {
    help::arranged(declared())
}

fn declared() -> Command {
    let (hidden, shown) = commands::GROUPS.split_last().unwrap_or((&("", &[]), &[]));
    let shown = shown.iter().flat_map(|(_, entries)| *entries);
    let hidden = hidden.1.iter().map(|entry| entry.command().hide(true));
    Command::new("wirebench")
        .version(env!("CARGO_PKG_VERSION"))
        .about("Network test tool: generates, receives and analyses packets on any NIC")
        .max_term_width(100)
        .after_help(
            "Start with `wirebench demo`, which needs no hardware and no arguments.\n\
             Ports are IF, NODE/IF (an interface in the network namespace NODE), xdp:IF, packet:IF,\n\
             live:IF, memory:NAME or file:PATH. `wirebench help COMMAND` has an example for each command.",
        )
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommands(shown.map(commands::Entry::command).chain(hidden))
}

fn main() -> ExitCode {
    wb_session::survive_file_limit();
    wb_machine::descriptors::raise_limit();
    let words: Vec<OsString> = std::env::args_os().collect();
    let words = match alias::translated(&words) {
        Ok(words) => words,
        Err(text) => {
            say(text);
            return ExitCode::from(2);
        }
    };
    let matches = match parse(words) {
        Ok(parsed) => parsed,
        Err(error) => return refuse(&error),
    };
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_env("WIREBENCH_LOG"))
        .with_writer(|| say::Listener)
        .init();
    let result = carry_out(&matches);
    metrics::linger();
    match result {
        Ok(code) => match deliver::unwritten() {
            Some(fault) => {
                say(format_args!("wirebench: {fault}"));
                ExitCode::from(if code == 0 { 4 } else { code })
            }
            None => ExitCode::from(code),
        },
        Err(error) => {
            let mut text = told_once(&error);
            if is_out_of_descriptors(&error) && !text.contains("ulimit -n") {
                text += "; raise the limit of open files (ulimit -n)";
            }
            for line in text.lines() {
                say(format_args!("wirebench: {line}"));
            }
            ExitCode::from(match error.downcast_ref() {
                Some(wb_session::StartError::Interrupted(n)) => {
                    u8::try_from(128 + n).unwrap_or(130)
                }
                _ if error.is::<deliver::Fault>() => 4,
                _ => 2,
            })
        }
    }
}

/// Returns true if the limit of open files was reached.
fn is_out_of_descriptors(error: &anyhow::Error) -> bool {
    let mut causes = error.chain().filter_map(|c| c.downcast_ref());
    causes
        .any(|c: &std::io::Error| c.raw_os_error() == Some(rustix::io::Errno::MFILE.raw_os_error()))
}

/// Parses the command line. `capture -r FILE`, as in tcpdump, means `read`.
fn parse(mut words: Vec<OsString>) -> Result<ArgMatches, clap::Error> {
    let matches = command_line().try_get_matches_from(&words)?;
    match matches.subcommand() {
        Some(("capture", own)) if own.contains_id("read") => {
            words[1] = "read".into();
            command_line().try_get_matches_from(&words)
        }
        _ => Ok(matches),
    }
}

/// Runs the command and returns the exit code.
fn carry_out(matches: &ArgMatches) -> anyhow::Result<u8> {
    let (name, own) = matches.subcommand().context("clap asks for a command")?;
    let entry = commands::all().find(|entry| entry.name == name);
    let entry = entry.context("clap knows the commands of the table only")?;
    (entry.run)(own, &Given::new(&entry.command(), own))
}

/// Returns an error with its causes; a cause that is already part of the text is not repeated.
fn told_once(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain() {
        let cause = say::without_numbers(cause.to_string());
        if text.is_empty() {
            text = cause;
        } else if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

/// A command line that cannot be read, in one line; help and version as they are.
fn refuse(error: &clap::Error) -> ExitCode {
    use clap::error::ErrorKind;
    if matches!(
        error.kind(),
        ErrorKind::DisplayHelp
            | ErrorKind::DisplayVersion
            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
    ) {
        // A closed pipe (`| head`) is no error.
        if let Err(why) = error.print()
            && why.kind() != std::io::ErrorKind::BrokenPipe
        {
            say(format_args!("wirebench: cannot write the help: {why}"));
            return ExitCode::from(4);
        }
        return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
    }
    say(format_args!(
        "wirebench: {}",
        in_one_line(&error.to_string())
    ));
    ExitCode::from(2)
}

/// Shortens an error of clap to one line with its tip, without the usage, which is in `--help`.
fn in_one_line(full: &str) -> String {
    let paragraphs = full.split("\n\n").filter(|p| {
        let p = p.trim_start();
        let is_left_out = ["Usage:", "For more information", "tip: to pass "];
        !p.is_empty() && !is_left_out.iter().any(|begin| p.starts_with(begin))
    });
    let lines: Vec<String> = paragraphs
        .map(|p| p.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect();
    let text = lines.join("; ");
    let mut text = text.strip_prefix("error: ").unwrap_or(&text).to_owned();
    for (of_the_library, ours) in [
        ("invalid digit found in string", "expected a whole number"),
        ("cannot parse integer from empty string", "missing number"),
        ("number too large to fit in target type", "number too large"),
        ("invalid float literal", "expected a number"),
    ] {
        if let Some(rest) = text.strip_suffix(of_the_library) {
            text = format!("{rest}{ours}");
        }
    }
    // "'--size <SIZE>': 63 is not in 64..=65535" of the library.
    if let Some((before, range)) = text.rsplit_once(" is not in ")
        && let Some((least, most)) = range.split_once("..=")
        && let Some((option, _)) = before.rsplit_once(": ")
    {
        text = format!("{option}: must be between {least} and {most}");
    }
    if let Some(word) = text.strip_prefix("unexpected argument '") {
        let negative = word.strip_prefix('-');
        if negative.is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit())) {
            text.push_str("; values cannot be negative");
        } else if negative.is_none() && full.contains("Usage: wirebench trial ") {
            text.push_str("; name the ports with --tx PORT and --rx PORT");
        }
    }
    format!("{text}; see --help")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_told_once() {
        let inner = || anyhow::anyhow!("no interface x0");
        let twice = inner().context("x0: no interface x0");
        assert_eq!(told_once(&twice), "x0: no interface x0");
        let once = Err::<(), _>(inner()).context("cannot open x0").unwrap_err();
        assert_eq!(told_once(&once), "cannot open x0: no interface x0");
        let reason = std::io::Error::from_raw_os_error(2);
        let shown = anyhow::Error::new(reason).context("x: No such file or directory");
        assert_eq!(told_once(&shown), "x: No such file or directory");
    }

    #[test]
    fn clap_speaks_in_one_line() {
        for (arguments, line) in [
            (
                &["wirebench", "lab", "exec"][..],
                "the following required arguments were not provided: <NODE> <COMMAND>...; see --help",
            ),
            (
                &["wirebench", "demo", "--quite"],
                "unexpected argument '--quite' found; tip: a similar argument exists: '--quiet'; see --help",
            ),
            (
                &["wirebench", "linerate", "--size", "63"],
                "invalid value '63' for '--size <SIZE>': must be between 64 and 65535; see --help",
            ),
            (
                &["wirebench", "tx", "-i", "lo", "--seed", "banana"],
                "invalid value 'banana' for '--seed <NUMBER>': expected a whole number; see --help",
            ),
            (
                &["wirebench", "trial", "eth2", "eth3"],
                "unexpected argument 'eth2' found; name the ports with --tx PORT and --rx PORT; see --help",
            ),
            (
                &["wirebench", "tx", "-i", "lo", "--rate", "-5kpps"],
                "unexpected argument '-5' found; values cannot be negative; see --help",
            ),
        ] {
            let error = declared().try_get_matches_from(arguments).unwrap_err();
            assert_eq!(in_one_line(&error.to_string()), line);
        }
    }
}
