//! wrk's command line.
//!
//! Intentional difference from wrk 4.1: numbers beyond 64 bits become the largest number instead of wrapping around.

mod number;
mod url;

use wb_getopt::{Argument, Bad, OptionRow, Piece, Pieces};

pub use url::Url;

/// Version of wrk that this crate follows.
const VERSION: &str = "4.1.0";

/// wrk's command line, parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrkCommand {
    /// Target of the requests.
    pub url: Url,
    /// `-t`: threads, 1 up to the number of connections.
    pub threads: u64,
    /// `-c`: connections.
    pub connections: u64,
    /// `-d`: seconds, at least 1.
    pub duration: u64,
    /// `-T`: seconds after which a response counts as a timeout; 0 counts every response.
    pub timeout: u64,
    /// `-L`: print percentiles of the latency.
    pub latency: bool,
    /// `-s`: path of a script.
    pub script: Option<String>,
    /// `-H`: names and values as typed, each name once.
    pub headers: Vec<(String, String)>,
    /// Words after the URL, for the script.
    pub arguments: Vec<String>,
    /// Text for standard output before anything else; lines of `-v`.
    pub stdout: String,
    /// Problems that wrk silently ignores: a line each, without line end.
    pub warnings: Vec<String>,
}

/// Output of wrk instead of a run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", String::from_utf8_lossy(stderr).trim_end())]
pub struct WrkExit {
    /// Text for standard output.
    pub stdout: String,
    /// Text for standard error, byte for byte.
    pub stderr: Vec<u8>,
    /// Exit status.
    pub exit: u8,
}

impl WrkExit {
    /// A line on standard error and exit status 1.
    fn line(text: impl std::fmt::Display) -> Self {
        Self {
            stdout: String::new(),
            stderr: format!("{text}\n").into_bytes(),
            exit: 1,
        }
    }

    /// Error for a host without addresses; `why` is the text of the resolver.
    #[must_use]
    pub fn unresolved_host(url: &Url, why: &str) -> Self {
        let (host, service) = (&url.host, url.service());
        Self::line(format_args!("unable to resolve {host}:{service} {why}"))
    }

    /// Error if no address accepts a connection; `why` is the system's text of the last error.
    #[must_use]
    pub fn no_connection(url: &Url, why: &str) -> Self {
        let (host, service) = (&url.host, url.service());
        Self::line(format_args!("unable to connect to {host}:{service} {why}"))
    }

    /// Error for thread `number`, from 0, which could not be created; `why` is the system's text.
    #[must_use]
    pub fn no_thread(number: u64, why: &str) -> Self {
        Self {
            exit: 2,
            ..Self::line(format_args!("unable to create thread {number}: {why}"))
        }
    }
}

/// An option: letter, name, argument and effect; `None` prints the usage.
struct WrkOption(
    Option<char>,
    &'static str,
    Argument,
    fn(&mut WrkCommand, &str) -> Option<()>,
);

impl OptionRow for WrkOption {
    fn letter(&self) -> Option<char> {
        self.0
    }

    fn name(&self) -> &str {
        self.1
    }

    fn argument(&self) -> Argument {
        self.2
    }
}

const NONE: Argument = Argument::None;
const TEXT: Argument = Argument::Required;

/// In the order in which getopt lists the candidates of an ambiguous short form.
const OPTIONS: &[WrkOption] = &[
    WrkOption(Some('c'), "connections", TEXT, |c, text| {
        c.connections = number::count(text)?;
        Some(())
    }),
    WrkOption(Some('d'), "duration", TEXT, |c, text| {
        c.duration = number::seconds(text)?;
        Some(())
    }),
    WrkOption(Some('t'), "threads", TEXT, |c, text| {
        c.threads = number::count(text)?;
        Some(())
    }),
    WrkOption(Some('s'), "script", TEXT, |c, text| {
        c.script = Some(text.to_owned());
        Some(())
    }),
    WrkOption(Some('H'), "header", TEXT, |c, text| {
        c.add_header(text);
        Some(())
    }),
    WrkOption(Some('L'), "latency", NONE, |c, _| {
        c.latency = true;
        Some(())
    }),
    WrkOption(Some('T'), "timeout", TEXT, |c, text| {
        c.timeout = number::seconds(text)?;
        Some(())
    }),
    WrkOption(None, "help", NONE, |_, _| None),
    WrkOption(Some('v'), "version", NONE, |c, _| {
        c.stdout += &format!("wrk {VERSION} [epoll] Copyright (C) 2012 Will Glozer\n");
        Some(())
    }),
    // Obsolete in the original; they only print the usage.
    WrkOption(Some('r'), "", NONE, |_, _| None),
    WrkOption(Some('?'), "", NONE, |_, _| None),
];

impl WrkCommand {
    /// Adds a header; the last one with a name is used.
    fn add_header(&mut self, text: &str) {
        let Some((name, value)) = text.split_once(':') else {
            return self.no_header(text);
        };
        let Some(value) = value.strip_prefix(' ') else {
            return self.no_header(text);
        };
        match self.headers.iter_mut().find(|(known, _)| known == name) {
            Some((_, known)) => value.clone_into(known),
            None => self.headers.push((name.to_owned(), value.to_owned())),
        }
    }

    fn no_header(&mut self, text: &str) {
        self.warnings.push(format!(
            "-H {}: not sent; expected a name, a colon, one space and a value",
            text.escape_debug()
        ));
    }
}

/// Parses the words after the program name; `program` is that name, for messages.
///
/// # Errors
/// wrk's output and exit status if there is nothing to run: for mistakes, help and version.
pub fn wrk(program: &str, words: &[String]) -> Result<WrkCommand, WrkExit> {
    let mut command = WrkCommand {
        url: Url::default(),
        threads: 2,
        connections: 10,
        duration: 10,
        timeout: 2,
        latency: false,
        script: None,
        headers: Vec::new(),
        arguments: Vec::new(),
        stdout: String::new(),
        warnings: Vec::new(),
    };
    match read(&mut command, words) {
        Ok(()) => Ok(command),
        Err(mistake) => Err(WrkExit {
            stdout: command.stdout + &usage(),
            stderr: match mistake {
                UsageMistake::None => Vec::new(),
                UsageMistake::Said(line) => format!("{line}\n").into_bytes(),
                UsageMistake::Option(bad) => {
                    [program.as_bytes(), b": ", &bad.bytes(), b"\n"].concat()
                }
            },
            exit: 1,
        }),
    }
}

/// Text on standard error above the usage.
enum UsageMistake {
    None,
    Said(String),
    Option(Bad),
}

fn read(command: &mut WrkCommand, words: &[String]) -> Result<(), UsageMistake> {
    let mut pieces = Pieces::new(OPTIONS, words);
    let mut others = Vec::new();
    for piece in &mut pieces {
        match piece {
            Piece::Option(option, text) => {
                (option.3)(command, text.unwrap_or_default()).ok_or(UsageMistake::None)?;
            }
            Piece::Word(word) => others.push(word.to_owned()),
            Piece::Bad(bad) => return Err(UsageMistake::Option(bad)),
        }
    }
    others.extend_from_slice(&words[pieces.used()..]);
    if others.is_empty() || command.threads == 0 || command.duration == 0 {
        return Err(UsageMistake::None);
    }
    command.arguments = others.split_off(1);
    let text = others.remove(0);
    command.url = match Url::read(&text) {
        Some(url) => url,
        None => return Err(UsageMistake::Said(format!("invalid URL: {text}"))),
    };
    if command.connections < command.threads {
        let text = "number of connections must be >= threads";
        return Err(UsageMistake::Said(text.to_owned()));
    }
    Ok(())
}

/// Text of `--help`; the trailing blanks of its lines are the original's.
fn usage() -> String {
    const LINES: [&str; 14] = [
        "Usage: wrk <options> <url>",
        "  Options:",
        "    -c, --connections <N>  Connections to keep open",
        "    -d, --duration    <T>  Duration of test",
        "    -t, --threads     <N>  Number of threads to use",
        "",
        "    -s, --script      <S>  Load Lua script file",
        "    -H, --header      <H>  Add header to request",
        "        --latency          Print latency statistics",
        "        --timeout     <T>  Socket/request timeout",
        "    -v, --version          Print version details",
        "",
        "  Numeric arguments may include a SI unit (1k, 1M, 1G)",
        "  Time arguments may include a time unit (2s, 2m, 2h)",
    ];
    let mut text: String = LINES.iter().map(|line| format!("{line:<54}\n")).collect();
    // The last line has one trailing blank fewer than the others.
    text.truncate(text.len() - 2);
    text + "\n"
}

#[cfg(test)]
mod tests;
