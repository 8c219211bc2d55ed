//! Options as POSIX getopt reads them, and the usage text that comes from the same table.
//!
//! Letters may stand together behind one dash, an argument may follow its letter at once or as the
//! next word. Words that are no options are passed over, as GNU's getopt does.

use std::fmt::{self, Write as _};

use super::{Given, Refusal};

/// An option.
pub(super) struct Opt<T> {
    pub(super) letter: char,
    pub(super) argument: Argument,
    /// One line; `\n` breaks it.
    pub(super) help: &'static str,
    /// Notes what was typed.
    pub(super) apply: fn(&mut T, &Given<'_>) -> Result<(), Refusal>,
}

/// What follows the letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Argument {
    /// Nothing.
    Alone,
    /// A text, called this in the usage.
    One(&'static str),
    /// The next word, if it begins with a digit and the letter is the last of its word.
    NextNumber(&'static str),
    /// The next word, if it does not begin with `-` and the letter is the last of its word.
    NextWord(&'static str),
}

/// A table of options. Of each: its letter and what follows it, its help, and what it does with what
/// was typed: statements, or `=` an expression that may refuse.
macro_rules! options {
    ($($letter:literal $argument:ident $(($called:literal))? $help:literal
        |$typed:pat_param, $given:pat_param| $($done:block)? $(= $result:expr)?;)*) => {
        &[$($crate::words::getopt::Opt {
            letter: $letter,
            argument: $crate::words::getopt::Argument::$argument $(($called))?,
            help: $help,
            apply: |$typed, $given| { $($result)? $($done Ok(()))? },
        }),*]
    };
}

pub(super) use options;

/// A word that getopt cannot read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bad {
    /// No such letter.
    Unknown(char),
    /// Nothing follows the letter.
    NoArgument(char),
}

impl fmt::Display for Bad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(letter) => write!(f, "invalid option -- '{letter}'"),
            Self::NoArgument(letter) => write!(f, "option requires an argument -- '{letter}'"),
        }
    }
}

/// Reads `words` up to and with the first `--`. `place` goes before the letter in messages. Returns
/// how many words were used.
///
/// # Errors
/// Those of the options, and those that `on_bad` makes of a word that cannot be read; if it makes
/// none, the letter is passed over.
pub(super) fn scan<T>(
    table: &[Opt<T>],
    words: &[String],
    place: &'static str,
    into: &mut T,
    mut on_bad: impl FnMut(&mut T, Bad) -> Result<(), Refusal>,
) -> Result<usize, Refusal> {
    let mut at = 0;
    while let Some(word) = words.get(at) {
        at += 1;
        if word == "--" {
            break;
        }
        let mut rest = word.strip_prefix('-').unwrap_or_default();
        while let Some(letter) = rest.chars().next() {
            rest = &rest[letter.len_utf8()..];
            let Some(option) = table.iter().find(|o| o.letter == letter) else {
                on_bad(into, Bad::Unknown(letter))?;
                continue;
            };
            let next = words.get(at).map(String::as_str);
            let optional = |fits: fn(&str) -> bool| next.filter(|w| rest.is_empty() && fits(w));
            let text = match option.argument {
                Argument::Alone => None,
                Argument::One(_) if !rest.is_empty() => Some(std::mem::take(&mut rest)),
                Argument::One(_) => {
                    let Some(next) = next else {
                        on_bad(into, Bad::NoArgument(letter))?;
                        continue;
                    };
                    at += 1;
                    Some(next)
                }
                Argument::NextNumber(_) => {
                    optional(|w| w.starts_with(|c: char| c.is_ascii_digit())).inspect(|_| at += 1)
                }
                Argument::NextWord(_) => optional(|w| !w.starts_with('-')).inspect(|_| at += 1),
            };
            let given = Given {
                place,
                letter,
                text,
            };
            (option.apply)(into, &given)?;
        }
    }
    Ok(at)
}

/// The lines of a table, one or more for each option.
pub(super) fn usage<T>(table: &[Opt<T>]) -> String {
    const COLUMN: usize = 26;
    let mut text = String::new();
    for option in table {
        let argument = match option.argument {
            Argument::Alone => String::new(),
            Argument::One(name) => format!(" {name}"),
            Argument::NextNumber(name) | Argument::NextWord(name) => format!(" [{name}]"),
        };
        let mut left = format!("    -{}{argument}", option.letter);
        for line in option.help.lines() {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{left:<COLUMN$} {line}");
            left.clear();
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(seen: &mut Vec<String>, given: &Given<'_>) -> Result<(), Refusal> {
        seen.push(format!("{}{}", given.letter, given.text.unwrap_or("")));
        Ok(())
    }

    const fn opt(letter: char, argument: Argument) -> Opt<Vec<String>> {
        Opt {
            letter,
            argument,
            help: "first\nsecond",
            apply: log,
        }
    }

    const TABLE: &[Opt<Vec<String>>] = &[
        opt('a', Argument::Alone),
        opt('b', Argument::Alone),
        opt('v', Argument::One("value")),
        opt('n', Argument::NextNumber("rate")),
        opt('w', Argument::NextWord("names")),
    ];

    /// What was seen, blanks between; bad letters in brackets, and how many words were used.
    fn read(line: &str) -> (String, usize) {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let mut seen = Vec::new();
        let used = scan(TABLE, &words, "", &mut seen, |seen, bad| {
            seen.push(format!("<{bad}>"));
            Ok(())
        })
        .unwrap();
        (seen.join(" "), used)
    }

    #[test]
    fn letters_cluster_and_arguments_attach_or_follow() {
        for (line, seen) in [
            ("-a -b", "a b"),
            ("-ab", "a b"),
            ("-v5", "v5"),
            ("-v 5", "v5"),
            ("-abv5", "a b v5"),
            ("-abv 5 -a", "a b v5 a"),
            ("-v -a", "v-a"),
            ("-v --", "v--"),
            ("x -a y - -b z", "a b"),
            ("-n 5 -a", "n5 a"),
            ("-n x -a", "n a"),
            ("-n -a", "n a"),
            ("-na 5", "n a"),
            ("-an 5", "a n5"),
            ("-w x,y -a", "wx,y a"),
            ("-w -a", "w a"),
            ("-wa x", "w a"),
            ("-w", "w"),
            ("-n5", "n <invalid option -- '5'>"),
            ("-z -a", "<invalid option -- 'z'> a"),
            ("-zza", "<invalid option -- 'z'> <invalid option -- 'z'> a"),
            ("-a -v", "a <option requires an argument -- 'v'>"),
            ("--a", "<invalid option -- '-'> a"),
            ("-ä", "<invalid option -- 'ä'>"),
        ] {
            assert_eq!(read(line).0, seen, "{line}");
        }
    }

    #[test]
    fn two_dashes_end_the_options() {
        assert_eq!(read("-a -- -b"), ("a".to_owned(), 2));
        assert_eq!(read("-a b c"), ("a".to_owned(), 3));
    }

    #[test]
    fn usage_has_every_row() {
        let text = usage(TABLE);
        assert_eq!(text.lines().count(), 10);
        assert!(
            text.contains("    -v value               first\n"),
            "{text}"
        );
        assert!(
            text.contains("    -w [names]             first\n"),
            "{text}"
        );
    }
}
