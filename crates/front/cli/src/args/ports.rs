//! Options of ports and of the time a run takes.

use clap::Args;
use wb_model::{
    Locator, PortPlan, TrafficJob,
    plan::XdpMode,
    units::{AddressRange, Span},
};

/// When sending begins and ends.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Time")]
pub(crate) struct TrafficArgs {
    /// How long to send (default 10s, unless --count is given).
    #[arg(long, value_name = "TIME")]
    duration: Option<Span>,
    /// Frames to send; the first of --duration and --count to end wins.
    #[arg(long, value_name = "N", value_parser = wb_model::units::parse_count)]
    count: Option<u64>,
    /// How long to go on receiving after the last frame was sent.
    #[arg(long, value_name = "TIME", default_value = "200ms")]
    drain: Span,
    /// Rise from 0 to the full rate in this time first; those frames are not counted.
    #[arg(long, value_name = "TIME", default_value = "0s")]
    ramp: Span,
    /// A stalled sender makes up for at most this much; what is older stays unsent.
    #[arg(long, value_name = "TIME", default_value = "100ms")]
    catch_up: Span,
    /// Measure the time between departures too.
    #[arg(long)]
    departures: bool,
    /// Number of the first flow in test tags, by which the run knows its own frames [default: random].
    #[arg(long, value_name = "N")]
    pub(crate) first_flow: Option<u32>,
}

/// Sent for when neither a duration nor a count is given.
const DEFAULT_DURATION: Span = Span::from_secs(10);

impl TrafficArgs {
    /// The job without ports and streams.
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

/// Options of the sending port.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Ports")]
pub(crate) struct TransmitArgs {
    /// Sending workers, each with a queue to send by.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) workers: u32,
    /// CPUs for the workers, sending ones first: 2,3 or 2-5. Default: chosen by the program.
    #[arg(long, value_name = "LIST")]
    pub(crate) cpus: Option<String>,
    /// Next hop of everything that is sent. Default: the destination itself, else the route of the host.
    #[arg(long, value_name = "ADDR")]
    pub(crate) gateway: Option<std::net::IpAddr>,
    /// XDP mode of the ports: auto, zero-copy, native, generic.
    #[arg(long, value_name = "MODE", default_value = "auto", value_parser = xdp_mode)]
    pub(crate) xdp_mode: XdpMode,
}

/// Largest receive ring that can be asked for; the kernel takes a ring in one piece of address space.
const MAX_RING_MIB: u64 = 4_095;

/// Options of the receiving port.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Ports")]
pub(crate) struct ReceiveArgs {
    /// Receiving workers; they share out the queues of the port.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) rx_workers: u32,
    /// Addresses that the receiving port answers for (ARP, neighbour discovery, echo), besides the
    /// destinations of the streams. May be given several times.
    #[arg(long, value_name = "ADDR")]
    pub(crate) address: Vec<AddressRange>,
    /// Receive ring of the packet driver in MiB, for each worker. Default: chosen by the program.
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u64).range(1..=MAX_RING_MIB))]
    pub(crate) ring: Option<u64>,
}

pub(crate) fn xdp_mode(text: &str) -> Result<XdpMode, String> {
    match text {
        "auto" => Ok(XdpMode::Auto),
        "zero-copy" => Ok(XdpMode::ZeroCopy),
        "native" => Ok(XdpMode::Native),
        "generic" => Ok(XdpMode::Generic),
        _ => Err("auto, zero-copy, native or generic is allowed".to_owned()),
    }
}

impl TransmitArgs {
    /// The CPUs named, in order.
    pub(crate) fn cpu_list(&self) -> anyhow::Result<Vec<u32>> {
        match &self.cpus {
            None => Ok(Vec::new()),
            Some(text) => wb_machine::cpu::parse_list(text).ok_or_else(|| {
                anyhow::anyhow!("--cpus {text:?} is not a list of CPUs such as 2,3 or 2-5")
            }),
        }
    }

    /// The sending port with its share of the CPUs.
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
    /// The receiving port with its share of the CPUs.
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

/// As many CPUs as there are workers; none where no CPU is left, and the program chooses.
pub(crate) fn take(cpus: &mut Vec<u32>, workers: u32) -> anyhow::Result<Vec<u32>> {
    let (left, workers) = (cpus.len(), workers as usize);
    if left > 0 && left < workers {
        anyhow::bail!("--cpus: {left} left for {workers} workers; name one for each");
    }
    Ok(cpus.drain(..workers.min(left)).collect())
}
