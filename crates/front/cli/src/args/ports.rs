//! Options for ports and for the duration of a run.

use clap::Args;
use wb_model::{
    Locator, PortPlan, TrafficJob,
    plan::XdpMode,
    units::{AddressRange, Span},
};

use super::count_in;

/// Duration and timing of sending.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Time")]
pub(crate) struct TrafficArgs {
    /// Time to send [default: 10s unless --count is given].
    #[arg(long, value_name = "TIME")]
    duration: Option<Span>,
    /// Number of frames to send; with --duration, the run ends at the limit reached first.
    #[arg(long, value_name = "N", value_parser = count_in::<u64>(0..))]
    count: Option<u64>,
    /// Time to keep receiving after the last frame was sent, up to 1m.
    #[arg(long, value_name = "TIME", default_value = "200ms")]
    drain: Span,
    /// Ramp-up time from 0 to the full rate; frames sent in it are not counted.
    #[arg(long, value_name = "TIME", default_value = "0s")]
    ramp: Span,
    /// Longest stall that a sender makes up for; older frames stay unsent.
    #[arg(long, value_name = "TIME", default_value = "100ms")]
    catch_up: Span,
    /// Also measure the time between departures.
    #[arg(long)]
    departures: bool,
    /// Number of the first flow in test tags, which identify the frames of a run [default: random].
    #[arg(long, value_name = "NUMBER")]
    pub(crate) first_flow: Option<u32>,
}

/// Duration if neither a duration nor a count is given.
const DEFAULT_DURATION: Span = Span::from_secs(10);

impl TrafficArgs {
    /// Returns the job without ports and streams.
    pub(crate) fn job(&self) -> TrafficJob {
        TrafficJob {
            duration: self
                .duration
                .or((self.count.is_none()).then_some(DEFAULT_DURATION)),
            count: self.count,
            drain: self.drain,
            ramp: self.ramp,
            catch_up: self.catch_up,
            departures: self.departures,
            ..TrafficJob::default()
        }
    }
}

/// Options for the sending port.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Ports")]
pub(crate) struct TransmitArgs {
    /// Number of sending workers, 1 to 64, each with its own transmit queue.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = count_in::<u32>(0..))]
    pub(crate) workers: u32,
    /// CPUs for the workers, sending workers first: 2,3 or 2-5 [default: chosen by the program].
    #[arg(long, value_name = "LIST")]
    pub(crate) cpus: Option<String>,
    /// Next hop of all sent frames [default: the destination, else the router of the host's routes].
    #[arg(long, value_name = "ADDR")]
    pub(crate) gateway: Option<std::net::IpAddr>,
    /// XDP mode of the ports: auto, zero-copy, native, generic.
    #[arg(long, value_name = "MODE", default_value = "auto", value_parser = xdp_mode)]
    pub(crate) xdp_mode: XdpMode,
}

/// Largest accepted receive ring, in MiB; the kernel maps a ring in one piece of address space.
const MAX_RING_MIB: u64 = 4_095;

/// Options for the receiving port.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Ports")]
pub(crate) struct ReceiveArgs {
    /// Number of receiving workers, 1 to 64, which share the queues of the port.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = count_in::<u32>(0..))]
    pub(crate) rx_workers: u32,
    /// Additional address, besides the stream destinations, that the receiving port answers for (ARP, neighbour
    /// discovery, echo); repeatable.
    #[arg(long, value_name = "ADDR")]
    pub(crate) address: Vec<AddressRange>,
    /// Receive ring of the packet driver per worker, 1 to 4095 MiB [default: chosen by the program].
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u64).range(1..=MAX_RING_MIB))]
    pub(crate) ring: Option<u64>,
}

pub(crate) fn xdp_mode(text: &str) -> Result<XdpMode, String> {
    match text {
        "auto" => Ok(XdpMode::Auto),
        "zero-copy" => Ok(XdpMode::ZeroCopy),
        "native" => Ok(XdpMode::Native),
        "generic" => Ok(XdpMode::Generic),
        _ => Err("expected auto, zero-copy, native or generic".to_owned()),
    }
}

impl TransmitArgs {
    /// Returns the CPUs of `--cpus`, in order.
    pub(crate) fn cpu_list(&self) -> anyhow::Result<Vec<u32>> {
        match &self.cpus {
            None => Ok(Vec::new()),
            Some(text) => wb_machine::cpu::parse_list(text).ok_or_else(|| {
                anyhow::anyhow!("--cpus: expected a list of CPUs such as 2,3 or 2-5, got {text:?}")
            }),
        }
    }

    /// Returns the sending port, with its CPUs removed from `cpus`.
    pub(crate) fn port(&self, locator: Locator, cpus: &mut Vec<u32>) -> anyhow::Result<PortPlan> {
        Ok(PortPlan {
            workers: self.workers,
            cpus: take(cpus, self.workers)?,
            gateway: self.gateway,
            xdp_mode: self.xdp_mode,
            ..PortPlan::new("tx", locator)
        })
    }
}

impl ReceiveArgs {
    /// Returns the receiving port, with its CPUs removed from `cpus`.
    pub(crate) fn port(
        &self,
        locator: Locator,
        xdp_mode: XdpMode,
        cpus: &mut Vec<u32>,
    ) -> anyhow::Result<PortPlan> {
        Ok(PortPlan {
            workers: self.rx_workers,
            cpus: take(cpus, self.rx_workers)?,
            addresses: self.address.clone(),
            xdp_mode,
            ring_bytes: self.ring.unwrap_or(0) * 1024 * 1024,
            ..PortPlan::new("rx", locator)
        })
    }
}

/// Options for the frames that arrive.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Time")]
pub(crate) struct OutageArgs {
    /// Shortest time without an arrival of a flow that counts as an outage if frames are missing, 0 to 1h.
    #[arg(long, value_name = "TIME", default_value = "10ms")]
    pub(crate) outage_threshold: Span,
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
