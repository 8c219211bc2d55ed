//! `wirebench rx`: receiver without a sender.

use anyhow::Result;
use clap::Args;
use wb_model::{Locator, Plan, TrafficJob, plan::XdpMode, units::Span};
use wb_options::Typed;

use crate::{
    args::{Outage, OutputArgs, ReceiveArgs, count_in, cpu_list, take},
    run::run_plan,
};

/// Receive on one port and analyse all tagged frames, for a given time or until a signal.
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
    /// Receive time [default: until SIGINT or SIGTERM; a file: to its end].
    #[arg(long, value_name = "TIME")]
    duration: Option<Span>,
    /// Number of flows to analyse, over all streams sent together; required by live:. 1 to 16777216 [default:
    /// 1048576].
    #[arg(long, value_name = "N", value_parser = count_in::<u32>(0..))]
    flows: Option<u32>,
    /// First flow of the run to analyse, as given in its report [default: of the first tagged frame].
    #[arg(long, value_name = "NUMBER")]
    first_flow: Option<u32>,
    /// Number of receiving workers, 1 to 64, as --rx-workers [default: 1].
    #[arg(long, value_name = "N", conflicts_with = "rx_workers", value_parser = count_in::<u32>(0..))]
    workers: Option<u32>,
    /// CPUs for the workers: 2,3 or 2-5 [default: chosen by the program].
    #[arg(long, value_name = "LIST")]
    cpus: Option<String>,
    #[command(flatten)]
    receive: ReceiveArgs,
    #[command(flatten)]
    outage: Typed<Outage>,
    #[command(flatten)]
    output: OutputArgs,
}

pub(crate) fn run(args: &RxArgs) -> Result<u8> {
    let mut port = args.receive.port(args.interface.clone(), XdpMode::Auto);
    port.workers = args.workers.unwrap_or(port.workers);
    port.cpus = take(&mut cpu_list(args.cpus.as_deref())?, port.workers)?;
    let plan = Plan {
        kind: "rx".to_owned(),
        ports: vec![port],
        traffic: vec![TrafficJob {
            rx: Some("rx".to_owned()),
            duration: args.duration,
            flows: args.flows,
            ..args.outage.value()
        }],
        first_flow: args.first_flow,
        ..Plan::default()
    };
    run_plan(plan, &args.output, None)
}
