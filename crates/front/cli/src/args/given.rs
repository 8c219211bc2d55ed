//! Options given on the command line, checked by commands that read a file instead.

use anyhow::{Result, bail};
use clap::{ArgMatches, Args, Command, parser::ValueSource};

/// Options given on the command line of the innermost subcommand.
#[derive(Clone, Debug, Default)]
pub(crate) struct Given {
    /// Declared id of each option and the option as written.
    options: Vec<(String, String)>,
}

impl Given {
    /// Collects the options from the parsed matches of a command, without positional arguments.
    pub(crate) fn new(mut command: &Command, mut matches: &ArgMatches) -> Self {
        while let Some((name, below)) = matches.subcommand() {
            let Some(inner) = command.find_subcommand(name) else {
                break;
            };
            (command, matches) = (inner, below);
        }
        let typed = command.get_arguments().filter(|arg| {
            !arg.is_positional()
                && matches.value_source(arg.get_id().as_str()) == Some(ValueSource::CommandLine)
        });
        let written = |arg: &clap::Arg| match (arg.get_long(), arg.get_short()) {
            (Some(long), _) => format!("--{long}"),
            (None, short) => format!("-{}", short.unwrap_or_default()),
        };
        Self {
            options: typed
                .map(|arg| (arg.get_id().to_string(), written(arg)))
                .collect(),
        }
    }

    /// Refuses the options for which `declares` returns true.
    fn refuse(&self, why: &str, declares: impl Fn(&str) -> bool) -> Result<()> {
        let refused = self.options.iter().filter(|(id, _)| declares(id));
        let refused: Vec<&str> = refused.map(|(_, written)| written.as_str()).collect();
        if !refused.is_empty() {
            bail!("{}: {why}", refused.join(", "));
        }
        Ok(())
    }

    /// Refuses every option of the group `A` except the ids in `except`.
    ///
    /// # Errors
    /// Names all refused options and the reason.
    pub(crate) fn refuse_of<A: Args>(&self, except: &[&str], why: &str) -> Result<()> {
        let ids = ids::<A>();
        self.refuse(why, |id| {
            ids.iter().any(|own| own == id) && !except.contains(&id)
        })
    }

    /// Refuses every option with an id that is not in `allowed`.
    ///
    /// # Errors
    /// Names all refused options and the reason.
    pub(crate) fn refuse_all_but(&self, allowed: &[String], why: &str) -> Result<()> {
        self.refuse(why, |id| !allowed.iter().any(|own| own == id))
    }
}

/// Returns the ids of all options that a group declares.
pub(crate) fn ids<A: Args>() -> Vec<String> {
    let command = A::augment_args(Command::new("group"));
    let ids = command.get_arguments().map(|arg| arg.get_id().to_string());
    ids.collect()
}
