//! Options that every native command has.

use std::path::PathBuf;

use clap::Args;
use wb_model::{Criterion, Plan, criteria, units::Span};

use crate::{commands::report, deliver::check_writable, metrics::MetricsArgs};

/// Options for output, criteria and safety.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Output and judgement")]
pub(crate) struct OutputArgs {
    /// Print the report as one JSON document on standard output.
    #[arg(long)]
    pub(crate) json: bool,
    /// Add all distributions at full resolution to the JSON report (`histograms`).
    #[arg(long, requires = "json")]
    pub(crate) histograms: bool,
    /// Print each snapshot as one line of JSON on standard output during the run.
    #[arg(long)]
    pub(crate) live_json: bool,
    /// Print totals and rates as CSV, one line per job.
    #[arg(long, conflicts_with = "json")]
    pub(crate) csv: bool,
    /// Also write the report to a file: HTML with plots (.html), Markdown (.md) or figures (.csv).
    ///
    /// An existing file is overwritten.
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,
    /// Also write criteria and results as JUnit XML for CI systems.
    #[arg(long, value_name = "FILE.xml")]
    pub(crate) junit: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) metrics: MetricsArgs,
    /// Print the plan (TOML) instead of running it; `wirebench run` accepts it.
    #[arg(long)]
    pub(crate) print_plan: bool,
    /// Print more: ports, queues, and full tables of flows and workers.
    #[arg(short, long)]
    pub(crate) verbose: bool,
    /// Print no live lines and open no screen.
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// Print live lines instead of the full-screen view of a terminal.
    #[arg(long)]
    pub(crate) plain: bool,
    /// Interval between live lines, 100ms to 1m [default: 1s].
    #[arg(long, value_name = "TIME")]
    pub(crate) interval: Option<Span>,
    /// Fail (exit code 1) if the loss exceeds this share: 0, 0.1% or 0.001.
    #[arg(long, value_name = "SHARE")]
    pub(crate) max_loss: Option<String>,
    /// Fail (exit code 1) if a criterion does not hold: loss<=0.1%, p99<=500us, cps>=20k; metrics in --help.
    ///
    /// Shares: loss, unsent, duplicates, reordered, failed (connections), errors. Times: mean, p50, p90, p95, p99,
    /// p999, p9999, p99999, max, also connect_p99 and http_p99. Numbers: lost, pps, bps, cps, rps, tps, open,
    /// probe.COUNTER. With several kinds of jobs: load.p99<=5ms; for one job: web.p99<=5ms. Benchmarks: throughput,
    /// ndr, pdr, mfr (50k, 1mpps, 40mbps-l2, 90%), b2b, recovery, reset, cps, cc, rps; with several sizes the worst
    /// decides; for one size: 64.throughput>=1m.
    #[arg(long, value_name = "CRITERION", value_delimiter = ',')]
    pub(crate) criteria: Vec<Criterion>,
    /// Seed of all random choices [default: 1].
    #[arg(long, value_name = "NUMBER")]
    pub(crate) seed: Option<u64>,
    /// Run over the hosts of a fleet: its access file, the URL of its broker, `local` or `lab`. Ports are HOST:PORT then.
    #[cfg(feature = "fleet")]
    #[arg(long, value_name = "FLEET")]
    pub(crate) fleet: Option<String>,
    /// Refuse to start if the clocks of two hosts of the fleet between which frames go are known less exactly: 10us.
    #[cfg(feature = "fleet")]
    #[arg(long, value_name = "TIME", requires = "fleet")]
    pub(crate) max_clock_error: Option<Span>,
    /// Time after which hosts of the fleet stop if they do not hear the controller, 1s to 1m [default: 3s].
    #[cfg(feature = "fleet")]
    #[arg(long, value_name = "TIME", requires = "fleet")]
    pub(crate) lease: Option<Span>,
    /// Allow destinations outside the benchmark ranges and interfaces with the default route.
    #[arg(long)]
    pub(crate) i_own_this_network: bool,
}

/// Option for the minimum share of the intended load (98 %).
#[derive(Args, Clone, Copy, Debug, Default)]
#[command(next_help_heading = "Output and judgement")]
pub(crate) struct UnsentArgs {
    /// Accept a run that offered less than 98 % of its intended load, instead of exit code 3 (invalid).
    #[arg(long)]
    allow_unsent: bool,
}

impl UnsentArgs {
    /// Sets the option in the plan.
    pub(crate) const fn apply(self, plan: &mut Plan) {
        plan.allow_unsent |= self.allow_unsent;
    }
}

impl OutputArgs {
    /// Returns true if the options permit a screen.
    pub(crate) const fn has_screen(&self) -> bool {
        !(self.quiet || self.plain || self.json || self.csv || self.live_json)
    }

    /// Applies the options to the plan and checks the output paths.
    pub(crate) fn apply(&self, plan: &mut Plan) -> anyhow::Result<()> {
        if let Some(interval) = self.interval {
            plan.interval = interval;
        }
        if let Some(seed) = self.seed {
            plan.seed = seed;
        }
        plan.i_own_this_network |= self.i_own_this_network;
        if let Some(share) = &self.max_loss {
            let limit =
                criteria::parse_share(share).map_err(|e| anyhow::anyhow!("--max-loss: {e}"))?;
            let limit = criteria::CriterionLimit::Share(limit);
            plan.criteria.push(Criterion::at_most("loss", limit));
        }
        plan.criteria.extend(self.criteria.iter().cloned());
        if self.histograms && plan.procedure.is_some() {
            anyhow::bail!("--histograms applies to single runs; a benchmark reports each trial");
        }
        if self.print_plan {
            return Ok(());
        }
        if let Some(path) = &self.junit {
            check_writable(path)?;
        }
        match &self.report {
            Some(path) => report::check(path),
            None => Ok(()),
        }
    }
}
