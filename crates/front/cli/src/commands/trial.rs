//! `wirebench trial`: one load for a fixed time, with both ends.

use anyhow::Result;
use clap::Args;
use wb_model::{Locator, Plan, TrafficJob};
use wb_options::Typed;

use crate::{
    args::{
        Outage, OutputArgs, ReceiveArgs, StreamArgs, TrafficArgs, TransmitArgs, UnsentArgs, take,
    },
    run::run_plan,
};

/// Run one trial: send from one port, receive on another, and account for every frame.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    wirebench lab up pair\n  \
    wirebench trial --tx wb-pair-a/a0 --rx wb-pair-b/b0 --size 64 --rate 100kpps --duration 5s\n  \
    wirebench trial --tx eth2 --rx eth3 --size imix --rate 40% --bidir --max-loss 0 --json\n  \
    wirebench trial --tx eth2 --rx eth3 --flows 65536 --vary vlan=list:5,7,9 --vlan 5")]
pub(crate) struct TrialArgs {
    /// Sending port.
    #[arg(long, value_name = "PORT")]
    tx: Locator,
    /// Receiving port.
    #[arg(long, value_name = "PORT")]
    rx: Locator,
    /// Also send the same streams in the reverse direction.
    #[arg(long)]
    bidir: bool,
    #[command(flatten)]
    stream: StreamArgs,
    #[command(flatten)]
    traffic: TrafficArgs,
    #[command(flatten)]
    transmit: TransmitArgs,
    #[command(flatten)]
    receive: ReceiveArgs,
    #[command(flatten)]
    outage: Typed<Outage>,
    #[command(flatten)]
    unsent: UnsentArgs,
    #[command(flatten)]
    output: OutputArgs,
}

pub(crate) fn run(args: &TrialArgs) -> Result<u8> {
    run_plan(plan(args)?, &args.output, None)
}

fn plan(args: &TrialArgs) -> Result<Plan> {
    let mut cpus = args.transmit.cpu_list()?;
    let mut tx = args.transmit.port(args.tx.clone(), &mut cpus)?;
    let mut rx = args.receive.port(args.rx.clone(), tx.xdp_mode);
    let mut ports = Vec::new();
    if args.tx == args.rx && args.tx.is_interface() {
        // One port sends and receives, so it gets the larger number of workers.
        tx.workers = tx.workers.max(rx.workers);
        (tx.addresses, tx.ring_bytes) = (rx.addresses, rx.ring_bytes);
        tx.cpus
            .extend(take(&mut cpus, tx.workers - tx.cpus.len() as u32)?);
    } else {
        rx.cpus = take(&mut cpus, rx.workers)?;
        if args.bidir {
            rx.workers = rx.workers.max(tx.workers);
        }
        ports.push(rx);
    }
    ports.insert(0, tx);
    let mut plan = Plan {
        kind: "trial".to_owned(),
        traffic: vec![TrafficJob {
            tx: Some("tx".to_owned()),
            rx: Some(ports[ports.len() - 1].name.clone()),
            bidir: args.bidir,
            streams: args.stream.streams()?,
            ..args.outage.over(&args.traffic.job())
        }],
        ports,
        first_flow: args.traffic.first_flow,
        ..Plan::default()
    };
    args.unsent.apply(&mut plan);
    Ok(plan)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Typed {
        #[command(flatten)]
        args: TrialArgs,
    }

    fn planned(line: &str) -> Plan {
        let words = std::iter::once("trial").chain(line.split_whitespace());
        plan(&Typed::try_parse_from(words).unwrap().args).unwrap()
    }

    #[test]
    fn one_interface_is_one_port() {
        let made = planned("--tx n/a --rx n/a --flows 500k --count 10k --rx-workers 2 --cpus 3,4");
        assert_eq!(made.ports.len(), 1);
        assert_eq!(
            (made.ports[0].workers, &made.ports[0].cpus[..]),
            (2, &[3, 4][..])
        );
        let job = &made.traffic[0];
        assert_eq!(
            (job.tx.as_deref(), job.rx.as_deref()),
            (Some("tx"), Some("tx"))
        );
        assert_eq!(
            (job.streams[0].flows, job.count),
            (Some(500_000), Some(10_000))
        );
        made.validate().unwrap();
        // Both ends of an in-memory link have the same name.
        assert_eq!(planned("--tx memory:x --rx memory:x").ports.len(), 2);
        assert_eq!(planned("--tx n/a --rx n/b").ports.len(), 2);
    }
}
