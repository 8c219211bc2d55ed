//! Opens interfaces for captures.

use wb_machine::{Ethtool, netns};
use wb_model::{counted, plan::PortPlan};
use wb_packet::PacketOptions;
use wb_port::{Interface, PortError, PortFacts};
use wb_xdp::{XdpOptions, XdpPort};

use crate::{
    AnyQueue, OpenPort, StartError, Use, Wire,
    interface::{check_ring, xdp_options},
    wire::host_error,
};

/// Way to capture from an interface.
pub enum Tap {
    /// Capture alongside the host.
    Packet(PacketOptions),
    /// Capture instead of the host.
    Xdp(XdpOptions),
}

/// Opens an interface for a capture: alongside the host by the packet driver or, if asked for, instead of the host by
/// XDP. A cable may be plugged in later.
pub fn open_capture(port: &PortPlan, wire: Wire, tap: &Tap) -> Result<OpenPort, StartError> {
    check_ring(port)?;
    let used = Use {
        tx: false,
        rx: true,
        watch: true,
        ..Use::default()
    };
    let interface = &wire.interface;
    let opened = netns::in_namespace(&wire.namespace, || match tap {
        Tap::Xdp(options) => open_capture_by_xdp(interface, options),
        Tap::Packet(options) => wb_packet::open(interface, options).map(|p| {
            (
                p.facts,
                p.queues.into_iter().map(AnyQueue::Packet).collect(),
                None,
                options.filter.is_some(),
            )
        }),
    })
    .map_err(host_error(port))?;
    let (mut facts, queues, hold, filters) = opened?;
    facts.locator = format!("{}:{}", facts.driver, port.locator.place());
    if matches!(tap, Tap::Packet(_)) {
        facts.warnings.extend(wire.program_in_front());
    }
    let (ring_bytes, because) = match tap {
        Tap::Packet(options) => (
            options.rx_ring_bytes as u64 * queues.len() as u64,
            "sees the same frames as the host and consumes none",
        ),
        Tap::Xdp(options) => (
            xdp_memory(options, interface) * queues.len() as u64,
            "requested; captured frames do not reach the host",
        ),
    };
    Ok(OpenPort {
        plan: port.clone(),
        used,
        facts,
        wire: Some(wire),
        queues,
        chosen_because: because.to_owned(),
        job: String::new(),
        ring_bytes,
        filters,
        _locks: Vec::new(),
        _xdp: hold,
    })
}

type Tapped = (PortFacts, Vec<AnyQueue>, Option<XdpPort>, bool);

/// Opens the queues by XDP. A filter that cannot run in the XDP program runs in the readers.
fn open_capture_by_xdp(interface: &Interface, options: &XdpOptions) -> Result<Tapped, PortError> {
    let (mut opened, filters) = match wb_xdp::open(interface, options) {
        Err(PortError::Unsupported { what, .. }) if options.filter.is_some() => {
            let unfiltered = XdpOptions {
                filter: None,
                ..options.clone()
            };
            let mut opened = wb_xdp::open(interface, &unfiltered)?;
            opened.facts.warnings.push(format!(
                "the filter runs in user space, not in the kernel: {what}"
            ));
            (opened, false)
        }
        opened => (opened?, options.filter.is_some()),
    };
    let queues = std::mem::take(&mut opened.queues);
    Ok((
        opened.facts.clone(),
        queues.into_iter().map(AnyQueue::Xdp).collect(),
        Some(opened),
        filters,
    ))
}

/// Default number of slots in the receive ring of a capture by XDP.
const XDP_RING: u32 = 65_536;
/// Default number of slots on a machine with less memory than [`LITTLE_MEMORY`].
const XDP_RING_LITTLE: u32 = 8_192;
const LITTLE_MEMORY: u64 = 4 << 30;
/// Smallest number of slots that is chosen by default.
const XDP_RING_LEAST: u32 = 1_024;
/// Number of frames that a reader processes at once.
const XDP_BATCH: u32 = 1_024;

/// Memory for the frames of one queue, in bytes.
fn xdp_memory(options: &XdpOptions, interface: &Interface) -> u64 {
    let frame = options
        .frame_size
        // The MTU plus 256 bytes for the kernel, the header and two VLAN tags.
        .unwrap_or(if interface.mtu + 278 <= 2048 {
            2048
        } else {
            4096
        });
    u64::from(options.rx_memory_frames.unwrap_or(options.rx_frames)) * u64::from(frame)
}

/// Options of a capture by XDP: all queues of the device, or those that the plan names.
pub fn capture_xdp_options(
    port: &PortPlan,
    wire: &Wire,
    filter: wb_filter::Program,
) -> Result<XdpOptions, StartError> {
    let interface = &wire.interface;
    let refuse = |what: String| Err(StartError::stream(port.locator.to_string(), what));
    let queues = if port.queues.is_empty() {
        (0..interface.rx_queues).collect()
    } else {
        port.queues.clone()
    };
    if queues.len() > 64 {
        return refuse(format!(
            "the device has {} receive queues, but at most 64 can be read; list the queues to read, the others go to the host",
            queues.len()
        ));
    }
    if port.workers as usize > queues.len() {
        return refuse(format!(
            "{} for {}: each queue has one reader",
            counted(port.workers, "reader", "readers"),
            counted(queues.len(), "receive queue", "receive queues")
        ));
    }
    let memory = total_memory();
    let device_ring = Ethtool::open(&wire.namespace)
        .ok()
        .and_then(|e| e.rings(&interface.name).ok().flatten())
        .map_or(0, |rings| rings.rx);
    let count = queues.len() as u64;
    let of_ring = |ring: u32| {
        // Frames that wait to be read, frames that the device holds for receiving, and frames that are being read.
        let frames = ring.saturating_add(device_ring).saturating_add(XDP_BATCH);
        XdpOptions {
            only_queues: queues.clone(),
            tx: false,
            rx: true,
            select: wb_xdp::Select::Everything,
            filter: Some(filter.clone()),
            rx_frames: ring,
            rx_memory_frames: Some(frames),
            // An entry takes eight bytes. An empty fill ring loses frames.
            fill_slots: Some(match port.xdp_fill {
                0 => frames.next_power_of_two(),
                slots => slots,
            }),
            frame_size: Some(port.xdp_chunk).filter(|&bytes| bytes > 0),
            ..xdp_options(
                port,
                Use {
                    tx: false,
                    rx: true,
                    watch: true,
                    ..Use::default()
                },
                interface,
                None,
            )
        }
    };
    let bytes = |ring| count * xdp_memory(&of_ring(ring), interface);
    let ring = if port.xdp_ring > 0 {
        if bytes(port.xdp_ring) > memory / 4 {
            return refuse(format!(
                "frame memory of {count} queues needs {} MiB; the limit is {} MiB, a quarter of the memory",
                bytes(port.xdp_ring) >> 20,
                memory >> 22
            ));
        }
        port.xdp_ring
    } else {
        let mut ring = if memory < LITTLE_MEMORY {
            XDP_RING_LITTLE
        } else {
            XDP_RING
        };
        while ring > XDP_RING_LEAST && bytes(ring) > memory / 8 {
            ring /= 2;
        }
        ring
    };
    Ok(of_ring(ring))
}

/// Memory of this machine, in bytes.
pub fn total_memory() -> u64 {
    let info = rustix::system::sysinfo();
    info.totalram as u64 * u64::from(info.mem_unit)
}
