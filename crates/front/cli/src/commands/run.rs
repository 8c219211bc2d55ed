//! `wirebench run`: runs any plan from a file.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::Args;
use wb_model::{
    JobKind, Plan,
    text::plan_from_toml,
    units::{Rate, Span},
};
use wb_session::input::{read_text, read_text_input};

use crate::{
    args::{OutputArgs, UnsentArgs},
    deliver::print,
    run::run_plan,
};

/// Run a plan file (TOML or JSON): a benchmark, or any mix of ports, streams and jobs.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    wirebench run examples/mixed-streams.toml\n  \
    wirebench trial --tx eth2 --rx eth3 --rate 10kpps --print-plan > plan.toml; wirebench run plan.toml\n  \
    wirebench run examples/mixed-streams.toml --rate 5kpps --duration 2s\n  \
    wirebench run --keys            print the reference of all keys")]
pub(crate) struct RunArgs {
    /// Plan file; - reads standard input.
    #[arg(value_name = "PLAN.toml", required_unless_present_any = ["keys", "schema"])]
    plan: Option<PathBuf>,
    /// Print the reference of all plan keys (Markdown) and exit.
    #[arg(long)]
    keys: bool,
    /// Print the JSON schema of plans and exit.
    #[arg(long, conflicts_with = "keys")]
    schema: bool,
    /// Rate of each stream, overriding the plan; bursts are unchanged.
    #[arg(long, value_name = "RATE")]
    rate: Option<Rate>,
    /// Time that each job sends, receives or captures, overriding the plan.
    #[arg(long, value_name = "TIME")]
    duration: Option<Span>,
    #[command(flatten)]
    unsent: UnsentArgs,
    #[command(flatten)]
    output: OutputArgs,
}

impl RunArgs {
    /// Overrides the plan with the command line options.
    fn apply(&self, plan: &mut Plan) -> Result<()> {
        if plan.procedure.is_some() && (self.rate.is_some() || self.duration.is_some()) {
            bail!("--rate and --duration: not for a benchmark, which sets both itself");
        }
        if let Some(rate) = self.rate {
            let streams = plan.traffic.iter_mut().flat_map(|job| &mut job.streams);
            let mut changed = 0;
            for stream in streams.filter(|s| s.burst.is_none()) {
                stream.rate = rate;
                changed += 1;
            }
            if changed == 0 {
                bail!("--rate: the plan has no stream with a rate");
            }
        }
        if let Some(duration) = self.duration {
            let kinds = JobKind::ALL.into_iter();
            let changed: usize = kinds.map(|kind| plan.set_duration(kind, duration)).sum();
            if changed == 0 {
                bail!("--duration: no job in this plan has a duration");
            }
        }
        Ok(())
    }
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
        read_text_input().context("cannot read standard input")?
    } else {
        read_text(path).with_context(|| format!("cannot read {name}"))?
    };
    let mut plan = plan_from_toml(&name, &text)?;
    args.apply(&mut plan)?;
    args.unsent.apply(&mut plan);
    run_plan(plan, &args.output, path.parent().map(PathBuf::from))
}
