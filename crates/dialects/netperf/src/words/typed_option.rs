//! An option with its argument, and conversions of the argument.

use std::{fmt::Display, ops::RangeInclusive};

use wb_model::socket::Family;

use super::{NetperfRefusal, NoteLine, number};

/// An option as typed.
pub(super) struct TypedOption<'a> {
    /// Prefix of the option in messages: the program, and `-- ` for options of a test.
    pub(super) place: &'static str,
    pub(super) letter: char,
    /// Argument of the option.
    pub(super) text: Option<&'a str>,
}

impl<'a> TypedOption<'a> {
    /// The argument; empty if there is none.
    pub(super) fn argument_text(&self) -> &'a str {
        self.text.unwrap_or_default()
    }

    /// Error with the problem of the argument and the allowed values.
    pub(super) fn argument_error(&self, what: impl Display) -> NetperfRefusal {
        NetperfRefusal::usage_error(format_args!(
            "{}-{} {}: {what}",
            self.place,
            self.letter,
            self.argument_text().escape_debug()
        ))
    }

    /// The argument as a number in `range`.
    pub(super) fn number(&self, range: RangeInclusive<i64>) -> Result<i64, NetperfRefusal> {
        self.number_of(self.argument_text(), range)
    }

    /// A part of the argument as a number in `range`.
    pub(super) fn number_of(
        &self,
        text: &str,
        range: RangeInclusive<i64>,
    ) -> Result<i64, NetperfRefusal> {
        number::parse_number(text)
            .ok_or_else(|| {
                self.argument_error(
                    "expected a whole number, optionally followed by K M G (2^10, 2^20, 2^30) or k m g (10^3, 10^6, 10^9)",
                )
            })
            .and_then(|n| {
                if range.contains(&n) {
                    Ok(n)
                } else {
                    Err(self.argument_error(format_args!(
                        "{n} is out of range; must be between {} and {}",
                        range.start(),
                        range.end()
                    )))
                }
            })
    }

    /// The argument as a number from 0 to `max`.
    pub(super) fn unsigned<N: TryFrom<i64>>(&self, max: i64) -> Result<N, NetperfRefusal> {
        self.unsigned_of(self.argument_text(), max)
    }

    /// A part of the argument as a number from 0 to `max`.
    pub(super) fn unsigned_of<N: TryFrom<i64>>(
        &self,
        text: &str,
        max: i64,
    ) -> Result<N, NetperfRefusal> {
        let n = self.number_of(text, 0..=max)?;
        N::try_from(n).map_err(|_| self.argument_error(format_args!("{n} is too large")))
    }

    /// The two values of an argument; a single value without a comma sets both.
    pub(super) fn two_values(&self) -> Result<[Option<&'a str>; 2], NetperfRefusal> {
        self.some_of(number::two_values(self.argument_text()))
    }

    /// The two values of an argument; a single value without a comma sets the first.
    pub(super) fn first(&self) -> Result<[Option<&'a str>; 2], NetperfRefusal> {
        self.some_of(number::first(self.argument_text()))
    }

    fn some_of(&self, pair: [Option<&'a str>; 2]) -> Result<[Option<&'a str>; 2], NetperfRefusal> {
        if pair == [None, None] {
            Err(self.argument_error("no value given; use `a`, `a,b`, `a,` or `,b`"))
        } else {
            Ok(pair)
        }
    }

    /// Sets each of two numbers that the argument contains.
    pub(super) fn set<N: TryFrom<i64>>(
        &self,
        pair: [Option<&str>; 2],
        max: i64,
        to: [&mut N; 2],
    ) -> Result<(), NetperfRefusal> {
        for (text, to) in pair.into_iter().zip(to) {
            if let Some(text) = text {
                *to = self.unsigned_of(text, max)?;
            }
        }
        Ok(())
    }

    /// Sets each of two settings that the argument contains. -1 and `none` mean the system's default.
    pub(super) fn set_or_default<N: TryFrom<i64>>(
        &self,
        pair: [Option<&str>; 2],
        none: i64,
        max: i64,
        to: [&mut Option<N>; 2],
    ) -> Result<(), NetperfRefusal> {
        for (text, to) in pair.into_iter().zip(to) {
            let Some(text) = text else { continue };
            let n = self.number_of(text, -1..=max)?;
            *to = if n == -1 || n == none {
                None
            } else {
                Some(self.unsigned_of(text, max)?)
            };
        }
        Ok(())
    }

    /// The argument as seconds with a fraction.
    pub(super) fn seconds_of(&self, text: &str) -> Result<f64, NetperfRefusal> {
        text.parse::<f64>()
            .ok()
            .filter(|s| s.is_finite())
            .ok_or_else(|| self.argument_error("not a number of seconds, such as 1 or 0.25"))
    }

    /// A port of the client. The exit status of an error is the original's, which tries to resolve the
    /// name first.
    pub(super) fn client_port_of(&self, text: &str, least: i64) -> Result<u16, NetperfRefusal> {
        self.port_of(text, least).map_err(|refusal| NetperfRefusal {
            code: 255,
            ..refusal
        })
    }

    /// A port.
    pub(super) fn port_of(&self, text: &str, least: i64) -> Result<u16, NetperfRefusal> {
        let port = text.parse::<u16>().ok().filter(|p| i64::from(*p) >= least);
        port.ok_or_else(|| {
            self.argument_error(format_args!(
                "not a port number; must be between {least} and 65535"
            ))
        })
    }

    /// An address family; an unknown word gives either family and a note.
    pub(super) fn family_of(&self, text: &str, notes: &mut Vec<NoteLine>) -> Family {
        number::parse_family(text).unwrap_or_else(|| {
            notes.push(NoteLine {
                text: format!(
                    "WARNING! {} not recognized as an address family; use 4, 6 or 0 (either, which is used)\n",
                    text.escape_debug()
                ),
                to_stdout: true,
            });
            Family::Any
        })
    }

    /// Host and family; both are optional.
    pub(super) fn host_and_family(
        &self,
        notes: &mut Vec<NoteLine>,
    ) -> Result<(Option<&'a str>, Option<Family>), NetperfRefusal> {
        let [host, family] = self.first()?;
        Ok((host, family.map(|f| self.family_of(f, notes))))
    }
}
