//! `wirebench tx`: sender without a receiver.

use anyhow::Result;
use clap::Args;
use wb_model::{Locator, Plan, TrafficJob};

use crate::{
    args::{OutputArgs, StreamArgs, TrafficArgs, TransmitArgs, UnsentArgs},
    run::run_plan,
};

/// Send frames from one port and report intended, offered and unsent frames.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    wirebench tx -i eth2 --dst-mac 02:00:00:00:00:02 --rate 1.2mpps --duration 60s\n  \
    wirebench tx -i wb-pair-a/a0 --stream \"size=64 rate=10kpps\" --stream \"size=1518 rate=5kpps vlan=7\"\n  \
    wirebench tx -i file:frames.pcap --count 10 --vary sport=inc:1000-2000")]
pub(crate) struct TxArgs {
    /// Sending port.
    #[arg(short, long, value_name = "PORT")]
    interface: Locator,
    #[command(flatten)]
    stream: StreamArgs,
    #[command(flatten)]
    traffic: TrafficArgs,
    #[command(flatten)]
    transmit: TransmitArgs,
    #[command(flatten)]
    unsent: UnsentArgs,
    #[command(flatten)]
    output: OutputArgs,
}

pub(crate) fn run(args: &TxArgs) -> Result<u8> {
    let mut cpus = args.transmit.cpu_list()?;
    let mut plan = Plan {
        kind: "tx".to_owned(),
        ports: vec![args.transmit.port(args.interface.clone(), &mut cpus)?],
        traffic: vec![TrafficJob {
            tx: Some("tx".to_owned()),
            streams: args.stream.streams()?,
            ..args.traffic.job()
        }],
        first_flow: args.traffic.first_flow,
        ..Plan::default()
    };
    args.unsent.apply(&mut plan);
    run_plan(plan, &args.output, None)
}
