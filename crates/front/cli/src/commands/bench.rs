//! `wirebench bench`: benchmark procedures.

mod lab;

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use wb_model::{
    Plan,
    bench::{Count, LbMetric, LbPlan, LbTest},
    plan::Procedure,
    text::plan_from_toml,
    units::Span,
};

use crate::{args::OutputArgs, run::run_plan};

/// Find the limits of a device.
#[derive(Subcommand, Debug)]
#[command(
    after_help = "Example:\n  wirebench bench lb --lab balancer      the six limits of a load balancer"
)]
pub(crate) enum BenchCommand {
    Lb(Box<LbArgs>),
}

/// The six limits of a load balancer: one-way and two-way packet rate, bit rate, new connections per
/// second, open connections, and one elephant flow, with the device's own counters beside ours.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    wirebench lab up balancer\n  \
    wirebench bench lb --lab balancer\n  \
    wirebench bench lb --lab balancer --print-plan >lb.toml      a plan to begin with\n  \
    wirebench bench lb lb.toml --json >limits.json\n  \
    wirebench bench lb lb.toml --only cps,cc --confirm 60s\n\n\
    Exit codes: 0 every search found a limit; 1 one found none; 3 the tester was the limit of all; 4 a fault.")]
pub(crate) struct LbArgs {
    /// The plan (TOML).
    #[arg(value_name = "PLAN.toml", required_unless_present = "lab")]
    file: Option<PathBuf>,
    /// Make the plan for a lab `balancer` that is up.
    #[arg(long, value_name = "NAME", conflicts_with = "file")]
    lab: Option<String>,
    /// Only these: oneway-pps, twoway-pps, bps, cps, cc, elephant.
    #[arg(long, value_name = "METRIC", value_delimiter = ',')]
    only: Vec<LbMetric>,
    /// Length of a trial of the search.
    #[arg(long, value_name = "TIME")]
    trial: Option<Span>,
    /// Length of the trial that confirms a result.
    #[arg(long, value_name = "TIME")]
    confirm: Option<Span>,
    /// All tests together take about this long at most.
    #[arg(long, value_name = "TIME")]
    budget: Option<Span>,
    /// No load above it is tried, whatever the metric: frames or connections per second, connections.
    #[arg(long, value_name = "N")]
    max: Option<Count>,
    #[command(flatten)]
    output: OutputArgs,
}

impl LbArgs {
    fn plan(&self) -> Result<Plan> {
        let mut plan = match (&self.file, &self.lab) {
            (Some(file), _) => {
                let name = file.display().to_string();
                let text =
                    std::fs::read_to_string(file).with_context(|| format!("cannot read {name}"))?;
                plan_from_toml(&name, &text)?
            }
            (None, Some(name)) => lab::plan(name)?.into(),
            (None, None) => bail!("give a plan, or --lab NAME"),
        };
        match &mut plan.procedure {
            Some(Procedure::Lb(lb)) => self.apply(lb),
            _ => bail!("the plan has no [procedure.lb]; `wirebench run` runs it"),
        }
        Ok(plan)
    }

    /// Puts what was said on the command line in place of what the plan says.
    fn apply(&self, plan: &mut LbPlan) {
        for (time, told) in [
            (&mut plan.times.trial, self.trial),
            (&mut plan.times.confirm, self.confirm),
            (&mut plan.times.budget, self.budget),
        ] {
            *time = told.unwrap_or(*time);
        }
        if !self.only.is_empty() {
            let mut tests = plan.tests();
            tests.retain(|test| self.only.contains(&test.metric));
            // What the plan leaves out can be asked for all the same.
            let missing = |m: &&LbMetric| !tests.iter().any(|t| t.metric == **m);
            let missing: Vec<LbTest> = self
                .only
                .iter()
                .filter(missing)
                .map(|m| LbTest::new(*m))
                .collect();
            plan.tests = [tests, missing].concat();
        }
        if let Some(max) = self.max {
            plan.tests = plan.tests();
            for test in &mut plan.tests {
                test.max = Some(max);
            }
        }
    }
}

pub(crate) fn run(command: &BenchCommand) -> Result<u8> {
    match command {
        BenchCommand::Lb(args) => run_balancer(args),
    }
}

fn run_balancer(args: &LbArgs) -> Result<u8> {
    let base = args.file.as_ref().and_then(|f| f.parent());
    run_plan(args.plan()?, &args.output, base.map(PathBuf::from))
}
