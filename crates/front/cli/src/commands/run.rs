//! `wirebench run`: any plan from a file.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Args;
use wb_model::{Plan, text::plan_from_toml};

use crate::{
    args::OutputArgs,
    run::{print, run_plan},
};

/// Run a plan file (TOML): several ports, streams and jobs at once.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    wirebench run examples/mixed-streams.toml\n  \
    wirebench trial --tx eth2 --rx eth3 --rate 10kpps --print-plan > plan.toml; wirebench run plan.toml\n  \
    wirebench run --keys            the reference of all keys")]
pub(crate) struct RunArgs {
    /// The plan; - reads standard input.
    #[arg(value_name = "PLAN.toml", required_unless_present_any = ["keys", "schema"])]
    plan: Option<PathBuf>,
    /// Print the reference of all keys (Markdown) and end.
    #[arg(long)]
    keys: bool,
    /// Print the JSON schema of plans and end.
    #[arg(long, conflicts_with = "keys")]
    schema: bool,
    #[command(flatten)]
    output: OutputArgs,
}

pub(crate) fn run(args: &RunArgs) -> Result<u8> {
    if args.schema {
        print(&serde_json::to_string_pretty(&schemars::schema_for!(Plan))?);
        return Ok(0);
    }
    if args.keys {
        print(&super::meta::plan_reference());
        return Ok(0);
    }
    let path = args
        .plan
        .as_ref()
        .expect("clap asks for it unless --keys or --schema is given");
    let name = path.display().to_string();
    let text = if name == "-" {
        std::io::read_to_string(std::io::stdin()).context("cannot read standard input")?
    } else {
        std::fs::read_to_string(path).with_context(|| format!("cannot read {name}"))?
    };
    let plan = plan_from_toml(&name, &text)?;
    run_plan(plan, &args.output, path.parent().map(PathBuf::from))
}
