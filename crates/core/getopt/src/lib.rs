//! Parser of command lines with the rules of GNU `getopt` and `getopt_long`, for programs that stand in for others.
//!
//! Letters may share one dash. The argument of a letter follows directly or as the next word. Names follow two dashes,
//! may be abbreviated as long as only one option matches, and take their argument behind `=` or as the next word. Words
//! that are not options may stand anywhere; `--` ends the options.

#![forbid(unsafe_code)]

use std::fmt;

/// Row in a table of options.
pub trait OptionRow {
    /// Letter behind one dash, if any.
    fn letter(&self) -> Option<char>;

    /// Name behind two dashes; empty if there is none. In a table without names, two dashes are one dash and the letter
    /// `-`.
    fn name(&self) -> &str {
        ""
    }

    /// Kind of argument that follows.
    fn argument(&self) -> Argument;
}

/// Kind of argument of an option.
#[derive(Clone, Copy, Debug)]
pub enum Argument {
    /// No argument.
    None,
    /// A mandatory argument.
    Required,
    /// The next word, if the function accepts it and the letter is the last of its word.
    NextIf(fn(&str) -> bool),
}

/// Piece of a command line.
#[derive(Debug)]
pub enum Piece<'a, R> {
    /// Option with its argument.
    Option(&'a R, Option<&'a str>),
    /// Word that is not an option.
    Word(&'a str),
    /// Word that begins with a dash and is not a valid option.
    Bad(Bad),
}

/// Message of getopt about an invalid word, without the name of the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bad(String);

impl Bad {
    /// Returns the message byte for byte: of an unknown letter, getopt prints only the first byte.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = self.0.clone().into_bytes();
        if self.0.starts_with(INVALID) {
            bytes.truncate(INVALID.len() + 1);
            bytes.push(b'\'');
        }
        bytes
    }
}

/// Beginning of the message about an unknown letter.
const INVALID: &str = "invalid option -- '";

impl fmt::Display for Bad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Pieces of a command line, up to `--`.
#[derive(Debug)]
pub struct Pieces<'a, R> {
    table: &'a [R],
    words: &'a [String],
    used: usize,
    /// Remaining letters of the previous word.
    letters: &'a str,
    /// True after `--`.
    ended: bool,
}

impl<'a, R: OptionRow> Pieces<'a, R> {
    /// Creates the parser. `words` are the words behind the name of the program.
    #[must_use]
    pub fn new(table: &'a [R], words: &'a [String]) -> Self {
        Self {
            table,
            words,
            used: 0,
            letters: "",
            ended: false,
        }
    }

    /// Returns the number of words read, including `--`.
    #[must_use]
    pub fn used(&self) -> usize {
        self.used
    }

    fn next_word(&mut self) -> Option<&'a str> {
        let word = self.words.get(self.used)?;
        self.used += 1;
        Some(word)
    }

    fn letter(&mut self, letter: char) -> Piece<'a, R> {
        let Some(row) = self.table.iter().find(|row| row.letter() == Some(letter)) else {
            return Piece::Bad(Bad(format!("{INVALID}{letter}'")));
        };
        let text = match row.argument() {
            Argument::None => None,
            Argument::Required if !self.letters.is_empty() => {
                Some(std::mem::take(&mut self.letters))
            }
            Argument::Required => match self.next_word() {
                None => {
                    let text = format!("option requires an argument -- '{letter}'");
                    return Piece::Bad(Bad(text));
                }
                next => next,
            },
            Argument::NextIf(fits) => match self.words.get(self.used) {
                Some(next) if self.letters.is_empty() && fits(next) => self.next_word(),
                _ => None,
            },
        };
        Piece::Option(row, text)
    }

    /// Parses a long option. `typed` is the text behind the dashes.
    fn name(&mut self, typed: &'a str) -> Piece<'a, R> {
        let (name, value) = match typed.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (typed, None),
        };
        let table = self.table;
        let names = || table.iter().filter(|row| !row.name().is_empty());
        let fit: Vec<&R> = match names().find(|row| row.name() == name) {
            Some(row) => vec![row],
            None => names().filter(|row| row.name().starts_with(name)).collect(),
        };
        let row = match fit[..] {
            [row] => row,
            [] => return Piece::Bad(Bad(format!("unrecognized option '--{typed}'"))),
            _ => {
                let mut text = format!("option '--{typed}' is ambiguous; possibilities:");
                fit.iter()
                    .for_each(|row| text += &format!(" '--{}'", row.name()));
                return Piece::Bad(Bad(text));
            }
        };
        let bad = |why| Piece::Bad(Bad(format!("option '--{}' {why}", row.name())));
        match (row.argument(), value) {
            (Argument::None, Some(_)) => bad("doesn't allow an argument"),
            (Argument::Required, None) => match self.next_word() {
                None => bad("requires an argument"),
                next => Piece::Option(row, next),
            },
            _ => Piece::Option(row, value),
        }
    }
}

impl<'a, R: OptionRow> Iterator for Pieces<'a, R> {
    type Item = Piece<'a, R>;

    fn next(&mut self) -> Option<Piece<'a, R>> {
        if self.letters.is_empty() && !self.ended {
            let word = self.next_word()?;
            self.ended = word == "--";
            let named = self.table.iter().any(|row| !row.name().is_empty());
            match (word.strip_prefix("--"), word.strip_prefix('-')) {
                _ if self.ended => {}
                (Some(typed), _) if named => return Some(self.name(typed)),
                (_, Some(letters)) if !letters.is_empty() => self.letters = letters,
                _ => return Some(Piece::Word(word)),
            }
        }
        let letter = self.letters.chars().next()?;
        self.letters = &self.letters[letter.len_utf8()..];
        Some(self.letter(letter))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Opt(Option<char>, &'static str, Argument);

    impl OptionRow for Opt {
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

    const NUMBER: Argument = Argument::NextIf(|w| w.starts_with(|c: char| c.is_ascii_digit()));
    const WORD: Argument = Argument::NextIf(|w| !w.starts_with('-'));

    /// Formats the pieces, separated by blanks: options with `:` and their argument, words in parentheses, errors in
    /// angle brackets. Also returns the number of words used.
    fn read(table: &[Opt], line: &str) -> (String, usize) {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let mut pieces = Pieces::new(table, &words);
        let mut seen = Vec::new();
        for piece in &mut pieces {
            seen.push(match piece {
                Piece::Option(row, text) => {
                    let option = row.0.map_or(row.1.to_owned(), String::from);
                    option + &text.map(|text| format!(":{text}")).unwrap_or_default()
                }
                Piece::Word(word) => format!("({word})"),
                Piece::Bad(bad) => format!("<{bad}>"),
            });
        }
        (seen.join(" "), pieces.used())
    }

    #[test]
    fn letters_cluster_and_arguments_attach_or_follow() {
        let table = [
            Opt(Some('a'), "", Argument::None),
            Opt(Some('b'), "", Argument::None),
            Opt(Some('v'), "", Argument::Required),
            Opt(Some('n'), "", NUMBER),
            Opt(Some('w'), "", WORD),
        ];
        for (line, seen) in [
            ("-a -b", "a b"),
            ("-ab", "a b"),
            ("-v5", "v:5"),
            ("-v 5", "v:5"),
            ("-abv5", "a b v:5"),
            ("-abv 5 -a", "a b v:5 a"),
            ("-v -a", "v:-a"),
            ("-v --", "v:--"),
            ("x -a y - -b z", "(x) a (y) (-) b (z)"),
            ("-n 5 -a", "n:5 a"),
            ("-n x -a", "n (x) a"),
            ("-n -a", "n a"),
            ("-na 5", "n a (5)"),
            ("-an 5", "a n:5"),
            ("-w x,y -a", "w:x,y a"),
            ("-w -a", "w a"),
            ("-wa x", "w a (x)"),
            ("-w", "w"),
            ("-n5", "n <invalid option -- '5'>"),
            ("-z -a", "<invalid option -- 'z'> a"),
            ("-zza", "<invalid option -- 'z'> <invalid option -- 'z'> a"),
            ("-a -v", "a <option requires an argument -- 'v'>"),
            ("--a", "<invalid option -- '-'> a"),
            ("-\u{e4}", "<invalid option -- '\u{e4}'>"),
        ] {
            assert_eq!(read(&table, line).0, seen, "{line}");
        }
        assert_eq!(read(&table, "-a -- -b"), ("a".to_owned(), 2));
        assert_eq!(read(&table, "-a b c"), ("a (b) (c)".to_owned(), 3));
    }

    #[test]
    fn names_may_be_cut_short() {
        let table = [
            Opt(Some('h'), "header", Argument::Required),
            Opt(None, "help", Argument::None),
            Opt(None, "helper", Argument::None),
            Opt(Some('t'), "", Argument::None),
        ];
        for (line, seen) in [
            ("--header x --help", "h:x help"),
            ("--header=x", "h:x"),
            ("--header=", "h:"),
            ("--hea x y", "h:x (y)"),
            ("--hea=x=y", "h:x=y"),
            ("--help --helpe", "help helper"),
            ("--help=x", "<option '--help' doesn't allow an argument>"),
            ("--helpe=x", "<option '--helper' doesn't allow an argument>"),
            ("--hea", "<option '--header' requires an argument>"),
            ("--head --", "h:--"),
            (
                "--hel=1",
                "<option '--hel=1' is ambiguous; possibilities: '--help' '--helper'>",
            ),
            ("--foo=1 -t", "<unrecognized option '--foo=1'> t"),
            ("-help", "h:elp"),
            ("a --help -- --help", "(a) help"),
        ] {
            assert_eq!(read(&table, line).0, seen, "{line}");
        }
    }
}
