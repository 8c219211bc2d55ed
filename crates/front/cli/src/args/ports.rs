//! Options for ports and for the duration of a run.

use clap::Args;
use wb_model::{Locator, PortPlan, TrafficJob, plan::XdpMode, units::Span};
use wb_options::{Opt, Typed, options};

options! {
    /// Duration and timing of sending.
    Times: TrafficJob = TrafficJob::default(), "Time", [
        Opt::new("duration", "TIME").help("Time to send (default: 10s unless `count` is given)"),
        Opt::new("count", "N"),
        Opt::new("drain", "TIME"),
        Opt::new("ramp", "TIME"),
        Opt::new("catch-up", "TIME"),
        Opt::flag("departures"),
    ]
}

options! {
    /// Judgement of frames that arrive.
    Outage: TrafficJob = TrafficJob::default(), "Time", [Opt::new("outage-threshold", "TIME")]
}

/// Duration and timing of sending.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Time")]
pub(crate) struct TrafficArgs {
    #[command(flatten)]
    times: Typed<Times>,
    /// Number of the first flow in test tags, which identify the frames of a run [default: random].
    #[arg(long, value_name = "NUMBER")]
    pub(crate) first_flow: Option<u32>,
}

/// Duration if neither a duration nor a count is given.
const DEFAULT_DURATION: Span = Span::from_secs(10);

impl TrafficArgs {
    /// Returns the job without ports and streams.
    pub(crate) fn job(&self) -> TrafficJob {
        let job = self.times.value();
        TrafficJob {
            duration: job
                .duration
                .or((job.count.is_none()).then_some(DEFAULT_DURATION)),
            ..job
        }
    }
}

/// Returns a port with default values, to which options are applied.
pub(crate) fn any_port() -> PortPlan {
    let locator = Locator {
        host: None,
        driver: None,
        node: None,
        name: "port".to_owned(),
    };
    PortPlan::new("port", locator)
}

options! {
    /// Sending port. The XDP mode is that of all ports.
    Sender: PortPlan = any_port(), "Ports", [
        Opt::new("workers", "N").of("Sending port"),
        Opt::new("gateway", "ADDR").of("Sending port"),
        Opt::new("xdp-mode", "MODE"),
    ]
}

options! {
    /// Receiving port.
    Receiver: PortPlan = any_port(), "Ports", [
        Opt::new("rx-workers", "N").key("workers").of("Receiving port"),
        Opt::new("address", "ADDR").key("addresses").of("Receiving port"),
    ]
}

/// Options for the sending port.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Ports")]
pub(crate) struct TransmitArgs {
    #[command(flatten)]
    port: Typed<Sender>,
    /// CPUs for the workers, sending workers first: 2,3 or 2-5 [default: chosen by the program].
    #[arg(long, value_name = "LIST")]
    cpus: Option<String>,
}

/// Largest accepted receive ring, in MiB; the kernel maps a ring in one piece of address space.
const MAX_RING_MIB: u64 = 4_095;

/// Options for the receiving port.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Ports")]
pub(crate) struct ReceiveArgs {
    #[command(flatten)]
    port: Typed<Receiver>,
    /// Receive ring of the packet driver per worker, 1 to 4095 MiB [default: chosen by the program].
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u64).range(1..=MAX_RING_MIB))]
    ring: Option<u64>,
}

impl TransmitArgs {
    /// Returns the CPUs of `--cpus`, in order.
    pub(crate) fn cpu_list(&self) -> anyhow::Result<Vec<u32>> {
        cpu_list(self.cpus.as_deref())
    }

    /// Returns the sending port, with its CPUs removed from `cpus`.
    pub(crate) fn port(&self, locator: Locator, cpus: &mut Vec<u32>) -> anyhow::Result<PortPlan> {
        let mut port = self.port.over(&PortPlan::new("tx", locator));
        port.cpus = take(cpus, port.workers)?;
        Ok(port)
    }
}

impl ReceiveArgs {
    /// Returns the receiving port without CPUs.
    pub(crate) fn port(&self, locator: Locator, xdp_mode: XdpMode) -> PortPlan {
        PortPlan {
            xdp_mode,
            ring_bytes: self.ring.unwrap_or(0) * 1024 * 1024,
            ..self.port.over(&PortPlan::new("rx", locator))
        }
    }
}

/// Returns the CPUs of `--cpus`, in order.
pub(crate) fn cpu_list(text: Option<&str>) -> anyhow::Result<Vec<u32>> {
    let parsed = text.map_or(Some(Vec::new()), wb_machine::cpu::parse_list);
    parsed.ok_or_else(|| {
        let text = text.unwrap_or_default();
        anyhow::anyhow!("--cpus: expected a list of CPUs such as 2,3 or 2-5, got {text:?}")
    })
}

/// Removes one CPU per worker from `cpus`. Returns an empty list if `cpus` is empty; the program then chooses.
pub(crate) fn take(cpus: &mut Vec<u32>, workers: u32) -> anyhow::Result<Vec<u32>> {
    let (left, workers) = (cpus.len(), workers as usize);
    if left > 0 && left < workers {
        anyhow::bail!(
            "--cpus: {workers} workers need as many CPUs, but only {left} left; pass more CPUs or fewer workers"
        );
    }
    Ok(cpus.drain(..workers.min(left)).collect())
}
