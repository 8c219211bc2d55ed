//! `wirebench token`: tokens of the clients of `wirebench serve`.

use std::{path::PathBuf, time::Duration};

use anyhow::{Context as _, Result, bail};
use clap::{Args, Subcommand};
use wb_render::table::Table;
use wb_web::{Role, TokenFile, lifetime};

use crate::deliver::print;

/// Manage the tokens that clients of `wirebench serve` need.
#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// Make a token and print it once. A running server accepts it at once.
    #[command(after_help = "Example:\n  wirebench token add ci --role run --expires 90d")]
    Add(AddArgs),
    /// List the tokens, without their secrets.
    #[command(after_help = "Example:\n  wirebench token ls --json")]
    Ls(ListArgs),
    /// Remove tokens. A running server refuses them at once.
    #[command(after_help = "Example:\n  wirebench token rm ci")]
    Rm(RemoveArgs),
}

/// Place of the tokens.
#[derive(Args, Debug)]
struct StateArgs {
    /// Folder of the server's history.
    #[arg(long, value_name = "DIR", default_value = "/var/lib/wirebench")]
    state: PathBuf,
}

#[derive(Args, Debug)]
pub(crate) struct AddArgs {
    /// Name of the client.
    name: String,
    /// Role of the client: `read`; `run` also starts and stops runs; `admin` also removes runs and takes ports from
    /// others.
    #[arg(long, value_name = "ROLE", default_value = "run")]
    role: Role,
    /// Time after which the token is refused: 12h, 90d (default: never).
    #[arg(long, value_name = "TIME", value_parser = lifetime)]
    expires: Option<Duration>,
    #[command(flatten)]
    state: StateArgs,
}

#[derive(Args, Debug)]
pub(crate) struct ListArgs {
    /// Print JSON instead of text.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    state: StateArgs,
}

#[derive(Args, Debug)]
pub(crate) struct RemoveArgs {
    /// Ids or names of tokens.
    #[arg(required = true, value_name = "TOKEN")]
    tokens: Vec<String>,
    #[command(flatten)]
    state: StateArgs,
}

pub(crate) fn run(command: &TokenCommand) -> Result<u8> {
    match command {
        TokenCommand::Add(args) => {
            let file = TokenFile::new(&args.state.state);
            let token = file.add(&args.name, args.role, args.expires);
            print(&token.with_context(|| cannot("change", &args.state))?);
        }
        TokenCommand::Ls(args) => {
            let tokens = TokenFile::new(&args.state.state).read();
            let tokens = tokens.with_context(|| cannot("read", &args.state))?;
            if args.json {
                print(&serde_json::to_string_pretty(&tokens)?);
                return Ok(0);
            }
            let mut table = Table::new()
                .left("id")
                .left("name")
                .left("role")
                .left("expires");
            for token in &tokens {
                let expires = token.expires();
                let expires = expires.map_or_else(|| "never".to_owned(), |at| at.to_string());
                let role = token.role.name().to_owned();
                table.row([token.id.clone(), token.name.clone(), role, expires]);
            }
            print(&match tokens.is_empty() {
                true => "no tokens".to_owned(),
                false => table.text(0),
            });
        }
        TokenCommand::Rm(args) => {
            let file = TokenFile::new(&args.state.state);
            for token in &args.tokens {
                let removed = file.remove(token);
                if removed.with_context(|| cannot("change", &args.state))? == 0 {
                    bail!("{token}: no such token; wirebench token ls has all");
                }
            }
        }
    }
    Ok(0)
}

fn cannot(what: &str, state: &StateArgs) -> String {
    format!("cannot {what} the tokens in {}", state.state.display())
}
