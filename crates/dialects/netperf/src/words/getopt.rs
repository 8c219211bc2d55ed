//! Tables of options, and the usage text generated from them.

use std::fmt::Write as _;

use wb_getopt::{Bad, OptionRow, Piece, Pieces};

use super::{NetperfRefusal, TypedOption};

/// An option.
pub(super) struct NetperfOption<T> {
    pub(super) letter: char,
    pub(super) argument: OptionArgument,
    /// Help in one line; `\n` breaks it.
    pub(super) help: &'static str,
    /// Records the typed value.
    pub(super) apply: fn(&mut T, &TypedOption<'_>) -> Result<(), NetperfRefusal>,
}

/// Argument of an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OptionArgument {
    /// No argument.
    Alone,
    /// A text, with its name in the usage text.
    One(&'static str),
    /// The next word, if it begins with a digit and the letter ends its word.
    NextNumber(&'static str),
    /// The next word, if it does not begin with `-` and the letter ends its word.
    NextWord(&'static str),
}

/// A table of options. For each option: letter, argument, help, and effect: statements, or `=` an expression that
/// may return a refusal.
macro_rules! options {
    ($($letter:literal $argument:ident $(($called:literal))? $help:literal
        |$typed:pat_param, $given:pat_param| $($done:block)? $(= $result:expr)?;)*) => {
        &[$($crate::words::getopt::NetperfOption {
            letter: $letter,
            argument: $crate::words::getopt::OptionArgument::$argument $(($called))?,
            help: $help,
            apply: |$typed, $given| { $($result)? $($done Ok(()))? },
        }),*]
    };
}

pub(super) use options;

impl<T> OptionRow for NetperfOption<T> {
    fn letter(&self) -> Option<char> {
        Some(self.letter)
    }

    fn argument(&self) -> wb_getopt::Argument {
        match self.argument {
            OptionArgument::Alone => wb_getopt::Argument::None,
            OptionArgument::One(_) => wb_getopt::Argument::Required,
            OptionArgument::NextNumber(_) => {
                wb_getopt::Argument::NextIf(|w| w.starts_with(|c: char| c.is_ascii_digit()))
            }
            OptionArgument::NextWord(_) => wb_getopt::Argument::NextIf(|w| !w.starts_with('-')),
        }
    }
}

/// Reads `words` up to and including the first `--`. `place` precedes the letter in messages. Returns
/// the number of words used. Ignores words that are not options.
///
/// # Errors
/// Errors of the options, and those that `on_bad` returns for an unreadable word; if it returns
/// none, the letter is ignored.
pub(super) fn scan<T>(
    table: &[NetperfOption<T>],
    words: &[String],
    place: &'static str,
    into: &mut T,
    mut on_bad: impl FnMut(&mut T, Bad) -> Result<(), NetperfRefusal>,
) -> Result<usize, NetperfRefusal> {
    let mut pieces = Pieces::new(table, words);
    for piece in &mut pieces {
        match piece {
            Piece::Option(option, text) => {
                let given = TypedOption {
                    place,
                    letter: option.letter,
                    text,
                };
                (option.apply)(into, &given)?;
            }
            Piece::Word(_) => {}
            Piece::Bad(bad) => on_bad(into, bad)?,
        }
    }
    Ok(pieces.used())
}

/// Lines of a table, one or more for each option.
pub(super) fn usage<T>(table: &[NetperfOption<T>]) -> String {
    const COLUMN: usize = 26;
    let mut text = String::new();
    for option in table {
        let argument = match option.argument {
            OptionArgument::Alone => String::new(),
            OptionArgument::One(name) => format!(" {name}"),
            OptionArgument::NextNumber(name) | OptionArgument::NextWord(name) => {
                format!(" [{name}]")
            }
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

    const fn opt(letter: char, argument: OptionArgument) -> NetperfOption<()> {
        NetperfOption {
            letter,
            argument,
            help: "first\nsecond",
            apply: |(), _| Ok(()),
        }
    }

    #[test]
    fn usage_has_every_row() {
        let text = usage(&[
            opt('a', OptionArgument::Alone),
            opt('v', OptionArgument::One("value")),
            opt('w', OptionArgument::NextWord("names")),
        ]);
        assert_eq!(text.lines().count(), 6);
        for line in [
            "    -v value               first\n",
            "    -w [names]             first\n",
        ] {
            assert!(text.contains(line), "{text}");
        }
    }
}
