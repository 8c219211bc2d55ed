//! `wirebench rx`: the receiving end alone.

use anyhow::Result;
use clap::Args;
use wb_model::{Locator, Plan, TrafficJob, plan::XdpMode, units::Span};

use crate::{
    args::{OutputArgs, ReceiveArgs},
    run::run_plan,
};

/// Receive only: every tagged frame is analysed, until a signal or for a time.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    wirebench rx -i eth3\n  \
    wirebench rx -i packet:eth3 --duration 60s --json\n  \
    wirebench rx -i live:eth3 --flows 1000\n  \
    wirebench rx -i file:capture.pcapng")]
pub(crate) struct RxArgs {
    /// Receiving port.
    #[arg(short, long, value_name = "PORT")]
    interface: Locator,
    /// How long (default: until SIGINT or SIGTERM; a file: to its end).
    #[arg(long, value_name = "TIME")]
    duration: Option<Span>,
    /// Flows of the run to follow: those of the streams that are sent together. Needed by live:. 1 to 16777216 [default:
    /// 1048576].
    #[arg(long, value_name = "N", value_parser = crate::args::count)]
    flows: Option<u32>,
    /// First flow of the run to follow, as its report says [default: the run of the first tagged frame].
    #[arg(long, value_name = "N")]
    first_flow: Option<u32>,
    /// As --rx-workers. Default: 1.
    #[arg(long, value_name = "N", conflicts_with = "rx_workers")]
    workers: Option<u32>,
    /// CPUs for the workers: 2,3 or 2-5. Default: chosen by the program.
    #[arg(long, value_name = "LIST")]
    cpus: Option<String>,
    #[command(flatten)]
    receive: ReceiveArgs,
    #[command(flatten)]
    output: OutputArgs,
}

pub(crate) fn run(args: &RxArgs) -> Result<u8> {
    let mut cpus = match &args.cpus {
        None => Vec::new(),
        Some(text) => wb_machine::cpu::parse_list(text).ok_or_else(|| {
            anyhow::anyhow!("--cpus {text:?} is not a list of CPUs such as 2,3 or 2-5")
        })?,
    };
    let mut receive = args.receive.clone();
    receive.rx_workers = args.workers.unwrap_or(receive.rx_workers);
    let plan = Plan {
        kind: "rx".to_owned(),
        ports: vec![receive.port(args.interface.clone(), XdpMode::Auto, &mut cpus)?],
        traffic: vec![TrafficJob {
            rx: Some("rx".to_owned()),
            duration: args.duration,
            flows: args.flows,
            ..TrafficJob::default()
        }],
        first_flow: args.first_flow,
        ..Plan::default()
    };
    run_plan(plan, &args.output, None)
}
