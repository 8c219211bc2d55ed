//! `wirebench bench`: benchmark procedures.

mod lab;

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use wb_bench::Event;
use wb_model::{
    Plan, PortPlan,
    bench::{Count, LbMetric, LbPlan, LbTest},
    units::Span,
};
use wb_render::lb;
use wb_session::{End, Environment, Signals, bench::run_lb};

use crate::{
    args::OutputArgs,
    run::{deliver, deliver_document, lab_hints, print},
    say::{say, say_in_passing},
};

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
    /// Print the report as one JSON document on standard output.
    #[arg(long)]
    json: bool,
    /// Print the plan (TOML) instead of running it.
    #[arg(long)]
    print_plan: bool,
    /// No line for each trial.
    #[arg(short, long)]
    quiet: bool,
    /// Allow destinations outside the benchmark ranges, and interfaces with the default route.
    #[arg(long)]
    i_own_this_network: bool,
}

impl LbArgs {
    fn plan(&self) -> Result<LbPlan> {
        let mut plan = match (&self.file, &self.lab) {
            (Some(file), _) => {
                let name = file.display().to_string();
                let text =
                    std::fs::read_to_string(file).with_context(|| format!("cannot read {name}"))?;
                LbPlan::from_toml(&name, &text)?
            }
            (None, Some(name)) => lab::plan(name)?,
            (None, None) => bail!("give a plan, or --lab NAME"),
        };
        plan.i_own_this_network |= self.i_own_this_network;
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
        Ok(plan)
    }
}

pub(crate) fn run(command: &BenchCommand) -> Result<u8> {
    match command {
        BenchCommand::Lb(args) => run_balancer(args),
    }
}

fn run_balancer(args: &LbArgs) -> Result<u8> {
    let plan = args.plan()?;
    if args.print_plan {
        print(&plan.to_toml());
        return Ok(0);
    }
    search(&plan, args.json, args.quiet)
}

/// Runs the plan of a benchmark from a file of `wirebench run`.
pub(crate) fn run_file(mut plan: LbPlan, output: &OutputArgs) -> Result<u8> {
    let unfit = [
        ("--csv", output.csv),
        ("--live-json", output.live_json),
        ("--max-loss", output.max_loss.is_some()),
        ("--criteria", !output.criteria.is_empty()),
        ("--interval", output.interval.is_some()),
    ];
    if let Some((option, _)) = unfit.into_iter().find(|(_, given)| *given) {
        bail!(
            "{option}: not for the plan of a benchmark; there are --json, --print-plan, --quiet, --seed, --i-own-this-network"
        );
    }
    plan.seed = output.seed.unwrap_or(plan.seed);
    plan.i_own_this_network |= output.i_own_this_network;
    if output.print_plan {
        print(&plan.to_toml());
        return Ok(0);
    }
    search(&plan, output.json, output.quiet)
}

/// Finds the limits and tells them.
fn search(plan: &LbPlan, json: bool, quiet: bool) -> Result<u8> {
    let of_hints = Plan {
        ports: [("client", &plan.client), ("server", &plan.server)]
            .map(|(name, side)| PortPlan::new(name, side.port.clone()))
            .to_vec(),
        ..Plan::default()
    };
    let environment = Environment {
        hints: lab_hints(&of_hints),
        signals: Signals::install()?,
        ..Environment::default()
    };
    let mut observe = |event: &Event<'_>| {
        if !quiet {
            show(event);
        }
    };
    let finished = run_lb(plan, &environment, &mut observe)?;
    let delivered = match json {
        true => deliver_document(&lb::json(&finished.report)),
        false => deliver(&lb::text(&finished.report)),
    };
    if let End::Fault(text) = &finished.end {
        say(format_args!(
            "wirebench: the benchmark ended by a fault: {text}"
        ));
    }
    delivered?;
    Ok(finished.exit_code())
}

fn show(event: &Event<'_>) {
    match event {
        Event::Begin { metric, size } => say_in_passing(lb::title(*metric, *size)),
        Event::Trial { metric, trial } => say_in_passing(lb::trial(*metric, trial)),
        Event::End(_) => {}
    }
}
