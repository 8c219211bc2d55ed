//! tcpdump's options that reading does not have: each is refused with one line that says why.

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};

/// Letter, whether a value follows, and the answer.
const TABLE: &[(char, bool, &str)] = &[
    ('B', true, CAPTURES),
    ('C', true, ONE_FILE),
    ('D', false, CAPTURES),
    ('E', true, "nothing is decrypted"),
    ('G', true, ONE_FILE),
    ('I', false, "Wi-Fi monitor mode is not supported"),
    ('J', false, CAPTURES),
    (
        'K',
        false,
        "checksums are looked at with -v only, and always then",
    ),
    ('L', false, "--info shows the link types of a file"),
    ('M', true, "TCP-MD5 signatures are not checked"),
    ('O', false, "filters are always optimized"),
    ('Q', true, CAPTURES),
    (
        'T',
        true,
        "payloads are not taken apart, so none can be forced",
    ),
    ('V', true, "name several files, each with -r"),
    ('W', true, ONE_FILE),
    (
        'Z',
        true,
        "reading needs no privileges that could be dropped",
    ),
    ('i', true, CAPTURES),
    ('j', true, CAPTURES),
    ('m', true, "SMI modules are not loaded"),
    ('p', false, CAPTURES),
    (
        'y',
        true,
        "a file's packets have the link type that it says; --info shows it",
    ),
    ('z', true, ONE_FILE),
];

const CAPTURES: &str = "it is for capturing: see `wirebench capture --help`";
const ONE_FILE: &str = "reading writes one file; slice with --from, --to, --skip and --first";

/// None of the options that are refused, or the answer to the first one.
#[derive(Debug, Default)]
pub(super) struct Refused(pub(super) Option<String>);

impl Args for Refused {
    fn augment_args(command: Command) -> Command {
        TABLE.iter().fold(command, |command, (letter, value, _)| {
            let action = if *value {
                ArgAction::Append
            } else {
                ArgAction::Count
            };
            let option = Arg::new(letter.to_string()).short(*letter);
            command.arg(option.action(action).hide(true))
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Refused {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let typed = |(letter, value, _): &&(char, bool, &str)| {
            let id = letter.to_string();
            if *value {
                matches.contains_id(&id)
            } else {
                matches.get_count(&id) > 0
            }
        };
        Ok(Self(TABLE.iter().find(typed).map(|(letter, _, answer)| {
            format!("-{letter} of tcpdump is not supported here: {answer}")
        })))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
