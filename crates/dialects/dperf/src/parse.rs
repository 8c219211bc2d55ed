//! Parser: from lines to keywords and their arguments.

use std::sync::Arc;

use crate::config::Config;
use crate::keywords::{self, LineWords};
use crate::problem::{Code, Problem, accepted};

/// Result of reading a file.
#[derive(Clone, Debug)]
pub struct Parsed {
    /// The configuration; `None` if a line could not be read.
    pub config: Option<Config>,
    /// Problems of single lines. [`Config::check`] finds the problems between keywords.
    pub problems: Vec<Problem>,
}

/// Reads a file, line by line. `name` appears only in the problems.
#[must_use]
pub fn parse(name: &str, text: &str) -> Parsed {
    let (config, problems) = read(name, text);
    Parsed {
        config: accepted(&problems).then_some(config),
        problems,
    }
}

/// Returns true if `text` looks like a configuration of dperf: its first word outside comments is one of
/// dperf's keywords.
#[must_use]
pub fn is_configuration(text: &str) -> bool {
    text.lines()
        .filter_map(|line| line.split_ascii_whitespace().next())
        .find(|word| !word.starts_with('#'))
        .is_some_and(|word| keywords::find(word).is_some())
}

/// Maximum number of words in a line of dperf.
const WORDS: usize = 32;
/// Maximum number of characters in a line of dperf.
const LINE: usize = 2046;

/// Configuration of the readable lines, and the problems of all lines.
pub(crate) fn read(name: &str, text: &str) -> (Config, Vec<Problem>) {
    let file: Arc<str> = Arc::from(name);
    let mut config = Config::default();
    config.places.file = file.clone();
    let mut problems = Vec::new();
    for (line, number) in text.split('\n').zip(1u32..) {
        let mut tell = |code: Code, text: String, allowed: String| {
            problems.push(Problem {
                file: file.clone(),
                line: Some(number),
                code,
                severity: code.severity(),
                text,
                allowed,
            });
        };
        if config.places.foreign.is_none() && !line.bytes().all(is_plain) {
            config.places.foreign = Some(number);
        }
        let words: Vec<&str> = line
            .split(|c: char| c.is_ascii_whitespace() || c == '\x0b')
            .filter(|w| !w.is_empty())
            .collect();
        let Some((first, arguments)) = words.split_first() else {
            continue;
        };
        if first.starts_with('#') {
            continue;
        }
        if words.len() > WORDS || line.len() > LINE {
            tell(
                Code::Long,
                format!(
                    "dperf reads {WORDS} words and {LINE} characters of a line; wirebench reads the whole line"
                ),
                String::new(),
            );
        }
        let Some(keyword) = keywords::find(first) else {
            let text = format!("unknown keyword {}", quoted(first));
            let allowed = match keywords::nearest_keyword(first) {
                Some(meant) => format!("did you mean {meant}?"),
                None => String::new(),
            };
            tell(
                Code::Keyword,
                [text, allowed].join("; ").trim_end_matches("; ").to_owned(),
                String::new(),
            );
            continue;
        };
        config
            .places
            .lines
            .entry(keyword.name)
            .or_default()
            .push(number);
        if *first != keyword.name {
            tell(
                Code::Deprecated,
                format!("{first} is the old name of {}", keyword.name),
                String::new(),
            );
        }
        let mut words = LineWords::new(arguments);
        if let Err(fault) = keyword.read(&mut words, &mut config) {
            let text = format!("{}: {}", keyword.name, fault.text);
            let allowed = match fault.code {
                Code::Duplicate => "once".to_owned(),
                _ => format!("{} ({})", keyword.syntax(), keyword.allowed),
            };
            tell(fault.code, text, allowed);
        }
        for (code, text) in words.notes {
            tell(code, format!("{}: {text}", keyword.name), String::new());
        }
    }
    (config, problems)
}

/// Returns true if dperf reads this byte.
fn is_plain(byte: u8) -> bool {
    matches!(byte, b' '..=b'~' | b'\t' | b'\r' | 0x0b | 0x0c)
}

/// Quotes a word of the file for a message: short, and without control characters.
pub(crate) fn quoted(word: &str) -> String {
    const SHOWN: usize = 64;
    let mut text: String = word.escape_debug().take(SHOWN).collect();
    if word.chars().count() > SHOWN {
        text.push('…');
    }
    format!("`{text}`")
}
