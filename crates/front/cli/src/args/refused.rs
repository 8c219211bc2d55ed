//! tcpdump options that a command does not have. Each is refused with one line that gives the reason.

use std::marker::PhantomData;

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};

/// Letter, long name, true if a value follows, and the answer.
pub(crate) type Row = (char, &'static str, bool, &'static str);

/// Options that a command refuses.
pub(crate) trait Table {
    const ROWS: &'static [Row];
}

/// Options that all wirebench commands refuse, and what to use instead.
pub(crate) const DISSECTION: [Row; 5] = [
    (
        'E',
        "",
        true,
        "decryption is not supported; write a file and read it with tcpdump or tshark",
    ),
    (
        'M',
        "",
        true,
        "TCP-MD5 signatures are not checked; write a file and read it with tcpdump",
    ),
    (
        'T',
        "",
        true,
        "payloads are not decoded; use `wirebench read --as tcpdump` or `--decode`",
    ),
    (
        'm',
        "",
        true,
        "SNMP is not decoded, so SMI modules are not loaded; use `wirebench read --decode`",
    ),
    (
        'u',
        "",
        false,
        "NFS is not decoded; use `wirebench read --decode`",
    ),
];

/// Parser of the refused options. Holds the answer to the first one, if any was given.
pub(crate) struct Refused<T>(Option<String>, PhantomData<T>);

impl<T> std::fmt::Debug for Refused<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl<T> Refused<T> {
    /// # Errors
    /// The answer to the refused option.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        match &self.0 {
            Some(answer) => anyhow::bail!("{answer}"),
            None => Ok(()),
        }
    }
}

fn rows<T: Table>() -> impl Iterator<Item = &'static Row> {
    T::ROWS.iter().chain(&DISSECTION)
}

fn id(letter: char) -> String {
    format!("refused-{letter}")
}

impl<T: Table> Args for Refused<T> {
    fn augment_args(command: Command) -> Command {
        rows::<T>().fold(command, |command, (letter, long, value, _)| {
            let action = if *value {
                ArgAction::Append
            } else {
                ArgAction::Count
            };
            let mut option = Arg::new(id(*letter)).short(*letter);
            if !long.is_empty() {
                option = option.long(*long);
            }
            command.arg(option.action(action).hide(true))
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<T: Table> FromArgMatches for Refused<T> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let typed = |(letter, _, value, _): &&Row| match value {
            true => matches.contains_id(&id(*letter)),
            false => matches.get_count(&id(*letter)) > 0,
        };
        let answer = rows::<T>().find(typed).map(|(letter, _, _, answer)| {
            format!("-{letter} of tcpdump is not supported here: {answer}")
        });
        Ok(Self(answer, PhantomData))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
