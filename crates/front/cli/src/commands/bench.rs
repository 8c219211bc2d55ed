//! `wirebench bench`: benchmark procedures.

pub(crate) mod compare;
mod lab;
mod presets;
mod suite;

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
use wb_session::input::read_text;

use self::suite::{
    BurstArgs, ForwardingArgs, GoalArgs, ImpactArgs, LatencyTestArgs, LossArgs, ResetTestArgs,
    Rfc2544Args, ServiceArgs,
};
use crate::{args::OutputArgs, run::run_plan};

/// Benchmark a device: RFC 2544 and related tests, NDR and PDR, Y.1564 services, load balancers.
#[derive(Subcommand, Debug)]
#[command(after_help = "Examples:\n  \
    wirebench lab up router --limit 50mbit\n  \
    wirebench bench rfc2544 --tx wb-router-a/a0 --rx wb-router-b/b0 --fast\n  \
    wirebench bench ndr --tx eth2 --rx eth3 --sizes 64,1518 --criteria 'ndr>=1mpps'\n  \
    wirebench bench ndr --tx eth2 --rx eth3 --print-plan >ndr.toml; wirebench run ndr.toml\n\n\
    These tests overload the device on purpose, so use them only in an isolated network (RFC 6815). For a service in \
    use, run y1564 out of hours, or measure delay at a low rate: wirebench trial --rate 100pps.")]
pub(crate) enum BenchCommand {
    /// RFC 2544: throughput, latency, loss, back-to-back frames, recovery, reset.
    #[command(after_help = "Examples:\n  \
        wirebench bench rfc2544 --tx wb-router-a/a0 --rx wb-router-b/b0 --fast\n  \
        wirebench bench rfc2544 --tx eth2 --rx eth3 --conformance --report rfc2544.html\n  \
        wirebench bench rfc2544 --tx eth2 --rx eth3 --tests throughput --mlr --precision 1%\n  \
        wirebench bench rfc2544 --tx eth2 --rx eth3 --tests throughput --modifiers bursts\n  \
        wirebench bench rfc2544 examples/bench/rfc2544.toml --json >result.json\n  \
        wirebench bench rfc2544 --tx eth2 --rx eth3 --criteria '64.throughput>=1m,p99<=500us'\n\n\
        The tests overload the device, so use them only in an isolated network (RFC 6815).")]
    Rfc2544(Box<Rfc2544Args>),
    /// Highest loads that meet loss goals (NDR and PDR), found together by MLRsearch (RFC 9971).
    #[command(after_help = "Examples:\n  \
        wirebench bench ndr --tx wb-router-a/a0 --rx wb-router-b/b0 --fast\n  \
        wirebench bench ndr --tx eth2 --rx eth3 --goals ndr,tst009 --sizes 64,1518\n  \
        wirebench bench ndr examples/bench/cps-ndr.toml --of cps --criteria 'ndr>=20k'\n\n\
        Default sizes: 64, the highest load for a device, and imix, a typical traffic mix.")]
    Ndr(Box<GoalArgs>),
    /// Highest load with a small loss share: `ndr` with goal pdr only.
    #[command(after_help = "Examples:\n  \
        wirebench bench pdr --tx wb-router-a/a0 --rx wb-router-b/b0 --loss 0.1%")]
    Pdr(Box<GoalArgs>),
    /// Loss ratio at 100 %, 90 %, 80 % … of the maximum (RFC 2544 section 26.3).
    #[command(after_help = "Examples:\n  \
        wirebench bench loss --tx wb-router-a/a0 --rx wb-router-b/b0 --sizes 64 --step 5%\n  \
        wirebench bench loss --tx eth2 --rx eth3 --max 40kpps --criteria 'loss<=0.1%'")]
    Loss(Box<LossArgs>),
    /// Maximum forwarding rate (MFR) with any loss, searched from the throughput to the maximum load, and the
    /// forwarding rate at the maximum load (FRMOL; RFC 2889 section 5.6.1).
    #[command(after_help = "Examples:\n  \
        wirebench bench mfr --tx wb-router-a/a0 --rx wb-router-b/b0 --fast --sizes 64,1518\n  \
        wirebench bench mfr --tx eth2 --rx eth3 --bidir --step 5% --criteria 'mfr>=1mpps'")]
    Mfr(Box<ForwardingArgs>),
    /// Loss and delay at 1, 10 and 50 % of the maximum, without a throughput search: for frames on the slow path of a
    /// device, such as frames with hop-by-hop options (RFC 5180).
    #[command(after_help = "Examples:\n  \
        wirebench bench impact --tx wb-router-a/a0 --rx wb-router-b/b0 -6 --ext hop-by-hop --fast\n  \
        wirebench bench impact --tx eth2 --rx eth3 -6 --ext hop-by-hop --loads 1%,5% --criteria 'loss<=0'")]
    Impact(Box<ImpactArgs>),
    /// Delay and delay variation at shares of the throughput (RFC 2544 section 26.2, RFC 8219, RFC 5481).
    #[command(after_help = "Examples:\n  \
        wirebench bench latency --tx wb-router-a/a0 --rx wb-router-b/b0 --latency-load 50%,90%\n  \
        wirebench bench latency --tx eth2 --rx eth3 --sizes 64 --max 10kpps --criteria 'p99<=500us'")]
    Latency(Box<LatencyTestArgs>),
    /// Longest burst without loss, and the buffer size derived from it (RFC 9004).
    #[command(after_help = "Examples:\n  \
        wirebench bench b2b --tx wb-router-a/a0 --rx wb-router-b/b0 --sizes 64 --n 50")]
    B2b(Box<BurstArgs>),
    /// Recovery time after an overload (RFC 2544 section 26.5).
    #[command(after_help = "Examples:\n  \
        wirebench bench recovery --tx wb-router-a/a0 --rx wb-router-b/b0 --criteria 'recovery<=1s'")]
    Recovery(Box<BurstArgs>),
    /// Forwarding outage during a reset of the device (RFC 6201).
    #[command(after_help = "Examples:\n  \
        wirebench bench reset --tx wb-router-a/a0 --rx wb-router-b/b0 --reset-kind link \\\n      \
        --trigger 'ip -n wb-router-dut link set db down; sleep 2; ip -n wb-router-dut link set db up'")]
    Reset(Box<ResetTestArgs>),
    /// Activation test of an Ethernet service: configuration in steps, then performance (ITU-T Y.1564).
    #[command(after_help = "Examples:\n  \
        wirebench bench y1564 --tx wb-router-a/a0 --rx wb-router-b/b0 --cir 20mbps-l2 --eir 10mbps-l2\n  \
        wirebench bench y1564 examples/bench/services.toml --fast --junit result.xml\n\n\
        The load is close to the promised rates, so this is the test before a line goes live.")]
    Y1564(Box<ServiceArgs>),
    Lb(Box<LbArgs>),
    Compare(compare::CompareArgs),
}

/// Six limits of a load balancer: one-way and two-way packet rate, bit rate, new connections per second, open
/// connections, and one elephant flow, with the device's own counters.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    wirebench lab up balancer\n  \
    wirebench bench lb --lab balancer\n  \
    wirebench bench lb --lab balancer --print-plan >lb.toml      print a plan to start from\n  \
    wirebench bench lb lb.toml --json >limits.json\n  \
    wirebench bench lb lb.toml --only cps,cc --confirm 60s\n\n\
    Exit codes: 0 all searches found a limit; 1 a search found none; 3 the tester limited all of them; 4 a fault.")]
pub(crate) struct LbArgs {
    /// Plan file (TOML).
    #[arg(value_name = "PLAN.toml", required_unless_present = "lab")]
    file: Option<PathBuf>,
    /// Create the plan for a running lab of kind `balancer`.
    #[arg(long, value_name = "NAME", conflicts_with = "file")]
    lab: Option<String>,
    /// Metrics to measure: oneway-pps, twoway-pps, bps, cps, cc, elephant [default: all of the plan].
    #[arg(long, value_name = "METRIC", value_delimiter = ',')]
    only: Vec<LbMetric>,
    /// Length of a search trial.
    #[arg(long, value_name = "TIME")]
    trial: Option<Span>,
    /// Length of the trial that confirms a result.
    #[arg(long, value_name = "TIME")]
    confirm: Option<Span>,
    /// Approximate limit for the duration of all tests together.
    #[arg(long, value_name = "TIME")]
    budget: Option<Span>,
    /// Highest load to try, for every metric: frames or connections per second, or connections.
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
                let text = read_text(file).with_context(|| format!("cannot read {name}"))?;
                plan_from_toml(&name, &text)?
            }
            (None, Some(name)) => lab::plan(name)?.into(),
            (None, None) => bail!("no plan: give PLAN.toml or --lab NAME"),
        };
        match &mut plan.procedure {
            Some(Procedure::Lb(lb)) => self.apply(lb),
            _ => bail!("the plan has no [procedure.lb]; run it with `wirebench run`"),
        }
        Ok(plan)
    }

    /// Overrides the plan with the command line options.
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
            // An option can request metrics that the plan leaves out.
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
        BenchCommand::Rfc2544(args) => suite::rfc2544(args),
        BenchCommand::Ndr(args) => suite::ndr(args),
        BenchCommand::Pdr(args) => suite::pdr(args),
        BenchCommand::Loss(args) => suite::loss(args),
        BenchCommand::Mfr(args) => suite::mfr(args),
        BenchCommand::Impact(args) => suite::impact(args),
        BenchCommand::Latency(args) => suite::latency(args),
        BenchCommand::B2b(args) => suite::b2b(args),
        BenchCommand::Recovery(args) => suite::recovery(args),
        BenchCommand::Reset(args) => suite::reset(args),
        BenchCommand::Y1564(args) => suite::y1564(args),
        BenchCommand::Lb(args) => run_balancer(args),
        BenchCommand::Compare(args) => compare::run(args),
    }
}

fn run_balancer(args: &LbArgs) -> Result<u8> {
    let base = args.file.as_ref().and_then(|f| f.parent());
    run_plan(args.plan()?, &args.output, base.map(PathBuf::from))
}
