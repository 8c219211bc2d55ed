//! Opens ports: chooses the driver of an interface, and gives the reason.

use std::collections::BTreeSet;

use wb_filter::Program;
use wb_machine::{
    locks::{Direction, QueueLock},
    netns,
};
use wb_model::{
    Driver, Plan, counted,
    plan::{PortPlan, SendWay, XdpMode},
};
use wb_packet::{Fanout, PacketOptions, QdiscDrops, RxMode};
use wb_port::{
    Interface, PortError, PortFacts, QueuePair, StampSource, TxQueue,
    clock::Clock,
    file::{self, Timing},
    memory::{LinkOptions, Registry},
};
use wb_xdp::{XdpOptions, XdpPort, XdpQueue};

use crate::{
    AnyQueue, OpenPort, Sharing, StartError, Use, Wire, capture::total_memory, wire::host_error,
};

/// Number of receive frames over all queues of a port: 64 MiB at 2 KiB each.
const XDP_RX_FRAMES: u32 = 32_768;
/// Minimum number of receive frames of a queue, as long as all queues together take at most half a GiB.
const XDP_RX_LEAST: u32 = 4096;
const XDP_RX_MOST: u32 = 1 << 18;

/// Number of queues that an XDP receiver opens. A receiver sees only queues on which it has a socket, and frames of
/// other queues go to the kernel. So the receiver opens all queues, however few workers read them.
fn xdp_queues(port: &PortPlan, used: Use, interface: &Interface) -> u32 {
    if used.rx {
        interface.rx_queues
    } else {
        port.workers
    }
}

/// Number of receive frames for each of `queues` queues, a power of two.
fn xdp_rx_frames(queues: u32) -> u32 {
    let queues = queues.next_power_of_two();
    // A receiver that shares its CPU may wait for about 50 ms; at 300 kpps that is 16,000 frames.
    (XDP_RX_FRAMES / queues)
        .max(XDP_RX_LEAST)
        .min(XDP_RX_MOST / queues)
        .max(64)
}

pub(crate) fn xdp_options(
    port: &PortPlan,
    used: Use,
    interface: &Interface,
    filter: Option<&Program>,
) -> XdpOptions {
    let queues = xdp_queues(port, used, interface);
    XdpOptions {
        queues,
        rx_frames: xdp_rx_frames(queues),
        tx: used.tx,
        tx_queues: Some(port.workers),
        rx: used.rx,
        mode: match port.xdp_mode {
            XdpMode::Auto => wb_xdp::Mode::Auto,
            XdpMode::ZeroCopy => wb_xdp::Mode::NativeZeroCopy,
            XdpMode::Native => wb_xdp::Mode::NativeCopy,
            XdpMode::Generic => wb_xdp::Mode::Generic,
        },
        filter: filter.cloned(),
        native_mtu: wb_machine::doctor::xdp_mtu(&interface.kernel_driver),
        ..XdpOptions::default()
    }
}

/// Returns the faster XDP mode for a port that only sends, if its plan leaves the mode open.
fn faster_mode(port: &PortPlan, used: Use, zero_copy: Option<bool>) -> Option<&'static str> {
    (port.xdp_mode == XdpMode::Auto && !used.rx && zero_copy == Some(true)).then_some(
        "; sends in copy mode although the device supports zero copy: `--xdp-mode zero-copy` is faster, but also takes the receive side of the queues",
    )
}

/// Refuses more workers than there are queues: with the xdp driver each worker needs a separate queue.
fn check_xdp_workers(port: &PortPlan, used: Use, interface: &Interface) -> Result<(), PortError> {
    let (tx, rx) = (interface.tx_queues, interface.rx_queues);
    let (most, kind) = match (used.tx, used.rx) {
        (true, true) if tx < rx => (tx, "send"),
        (true, false) => (tx, "send"),
        _ => (rx, "receive"),
    };
    if port.workers <= most {
        return Ok(());
    }
    let n = port.workers;
    Err(PortError::Unsupported {
        port: interface.port.clone(),
        what: format!(
            "{n} workers need {n} {kind} queues with xdp:, but {enabled} enabled; {switch}, or use packet:",
            switch = interface.switch_on(n.into()),
            enabled = counted(most, "is", "are"),
        ),
    })
}

/// Options of the packet driver for a port.
#[must_use]
pub fn packet_options(port: &PortPlan, used: Use) -> PacketOptions {
    let mut options = PacketOptions {
        queues: port.workers,
        tx: used.tx,
        rx: used.rx,
        rx_mode: RxMode::Throughput,
        // A watching port receives only what the host receives.
        promiscuous: used.rx && !used.watch,
        fanout: if used.watch {
            Fanout::Cpu
        } else {
            PacketOptions::default().fanout
        },
        qdisc_bypass: port.way != SendWay::Qdisc,
        // A drop by the queueing discipline is an error of the device, and a later packet replaces the dropped one.
        qdisc_drops: QdiscDrops::Refuse,
        priority: port.priority,
        ..PacketOptions::default()
    };
    if port.ring_bytes > 0 {
        options.rx_ring_bytes = usize::try_from(port.ring_bytes).unwrap_or(usize::MAX);
    }
    options
}

/// Refuses rings that would take most of the machine's memory. The kernel does not refuse them but kills processes.
pub(crate) fn check_ring(port: &PortPlan) -> Result<(), StartError> {
    let memory = total_memory();
    let wanted = port.ring_bytes.saturating_mul(u64::from(port.workers));
    if wanted > memory / 4 {
        return Err(StartError::stream(
            port.locator.to_string(),
            format!(
                "receive rings need {} MiB; the limit is {} MiB, a quarter of the memory",
                wanted >> 20,
                memory >> 22
            ),
        ));
    }
    Ok(())
}

/// Returns why `xdp` must not receive here, if it must not: it would take frames away from the host.
fn shared_with_host(wire: &Wire) -> Option<String> {
    let name = &wire.interface.name;
    match wire.netlink.host_use(name) {
        Ok(None) => wire
            .link
            .xdp_attached
            .as_ref()
            .map(|p| format!("XDP program {} is attached to {name}", p.id)),
        Ok(Some(why)) => Some(format!("{why}; XDP would hide frames from the host")),
        Err(error) => Some(format!(
            "cannot determine if the host uses {name} ({error}); XDP might hide frames from the host"
        )),
    }
}

/// Returns the driver that a port asks for, and the reason; `None` if any driver will do.
pub fn requested_driver(port: &PortPlan) -> Result<Option<(Driver, &'static str)>, StartError> {
    let asked = port.locator.driver;
    if port.way == SendWay::Qdisc {
        if asked == Some(Driver::Xdp) {
            return Err(StartError::stream(
                port.locator.to_string(),
                "xdp: bypasses the queueing discipline, which xmit_mode queue_xmit requires; use packet:, or xmit_mode start_xmit",
            ));
        }
        let why = "the only driver that uses the queueing discipline";
        return Ok(Some((Driver::Packet, why)));
    }
    Ok(match asked {
        Some(driver) => Some((driver, "requested")),
        None if port.xdp_mode != XdpMode::Auto => Some((Driver::Xdp, "required by the XDP mode")),
        None => None,
    })
}

/// Returns the drivers to try for an interface that one job uses alone, best first, and the reason for the first one.
///
/// # Errors
/// If the port asks for a driver that cannot do what else the port asks for.
pub fn drivers_to_try(
    port: &PortPlan,
    used: Use,
    wire: &Wire,
) -> Result<(Vec<Driver>, String), StartError> {
    candidates(port, used, wire, false)
}

/// Returns the drivers to try for an interface, best first, and the reason for the first one.
fn candidates(
    port: &PortPlan,
    used: Use,
    wire: &Wire,
    selects: bool,
) -> Result<(Vec<Driver>, String), StartError> {
    let asked = requested_driver(port)?;
    if used.sharing != Sharing::Alone && !(selects && asked.is_none_or(|(d, _)| d == Driver::Xdp)) {
        let why = "several jobs share this interface, and each filters its own frames";
        return Ok((vec![Driver::Packet], why.to_owned()));
    }
    let selected = match selects {
        true => "; its XDP program selects the frames of this load and passes on the rest",
        false => "",
    };
    if let Some((driver, why)) = asked {
        return Ok((vec![driver], format!("{why}{selected}")));
    }
    if used.watch {
        let why = "sees the same frames as the host, and on which CPU";
        return Ok((vec![Driver::Packet], why.to_owned()));
    }
    if used.rx && used.shares {
        let why = "XDP leaves some of these frames to the host (ARP, ping, multicast)";
        return Ok((vec![Driver::Packet], why.to_owned()));
    }
    if used.rx
        && let Some(why) = shared_with_host(wire)
    {
        return Ok((vec![Driver::Packet], why));
    }
    let reason = if used.rx {
        "fastest available; the host does not use this interface"
    } else {
        "fastest available"
    };
    let reason = format!("{reason}{selected}");
    Ok((vec![Driver::Xdp, Driver::Packet], reason))
}

fn lock_queues(port: &PortPlan, used: Use, wire: &Wire) -> Result<Vec<QueueLock>, StartError> {
    let mut locks = Vec::new();
    if port.way != SendWay::Direct || used.sharing == Sharing::Also {
        // These sockets share the queues with other users, so no lock is needed.
        return Ok(locks);
    }
    let all = used.sharing == Sharing::First;
    for queue in 0..port.workers {
        let directions = [
            (used.tx || all, Direction::Tx),
            (used.rx || all, Direction::Rx),
        ];
        for (wanted, direction) in directions {
            if wanted {
                let lock = QueueLock::acquire(
                    &wire.namespace,
                    &wire.interface.name,
                    wire.interface.index,
                    queue,
                    direction,
                )
                .map_err(host_error(port))?;
                locks.push(lock);
            }
        }
    }
    Ok(locks)
}

type Opened = (PortFacts, Vec<AnyQueue>, Option<XdpPort>);

fn open_xdp(
    port: &PortPlan,
    used: Use,
    interface: &Interface,
    longest: usize,
    fanout: Fanout,
    filter: Option<&Program>,
) -> Result<Opened, PortError> {
    check_xdp_workers(port, used, interface)?;
    let mut opened = wb_xdp::open(interface, &xdp_options(port, used, interface, filter))?;
    let capacity = opened
        .queues
        .first_mut()
        .map_or(0, |q| q.tx().frame_capacity());
    if used.tx && capacity < longest {
        return Err(PortError::Unsupported {
            port: interface.port.clone(),
            what: format!(
                "frames of {} bytes exceed the XDP buffer size of {} bytes",
                longest + 4,
                capacity + 4
            ),
        });
    }
    let queues = std::mem::take(&mut opened.queues);
    let queues = share_out(interface, queues, port.workers, fanout)?;
    Ok((opened.facts.clone(), queues, Some(opened)))
}

/// Distributes all queues among the workers. If each worker has one queue and no frames are passed between workers, the
/// queues stay as they are.
fn share_out(
    interface: &Interface,
    queues: Vec<XdpQueue>,
    workers: u32,
    fanout: Fanout,
) -> Result<Vec<AnyQueue>, PortError> {
    let steering = match fanout {
        Fanout::Port(steering) if workers > 1 => Some(steering),
        _ => None,
    };
    if queues.len() == workers as usize && steering.is_none() {
        return Ok(queues.into_iter().map(AnyQueue::Xdp).collect());
    }
    let groups = wb_xdp::gather(queues, workers, steering).map_err(|cause| PortError::Io {
        port: interface.port.clone(),
        operation: "create an eventfd for each worker".into(),
        cause,
    })?;
    Ok(groups.into_iter().map(AnyQueue::XdpGroup).collect())
}

/// Opens an interface port that sends and accounts for streams itself, as far as that is possible before the streams
/// are known.
pub fn open_live(
    port: &PortPlan,
    used: Use,
    wire: Wire,
    because: &str,
) -> Result<OpenPort, StartError> {
    let interface = &wire.interface;
    let locks = lock_queues(port, used, &wire)?;
    let facts = PortFacts {
        locator: format!("live:{}", port.locator.place()),
        driver: "live",
        mode: match (used.tx, used.rx) {
            (true, false) => "live frames",
            (true, true) => "live frames, accounted in the kernel",
            _ => "accounted in the kernel",
        }
        .to_owned(),
        ifindex: interface.index,
        mac: interface.mac,
        mtu: interface.mtu,
        speed: interface.speed,
        queues: port.workers,
        stamp_source: StampSource::KernelXdp,
        kernel_driver: interface.kernel_driver.clone(),
        warnings: Vec::new(),
    };
    Ok(OpenPort {
        plan: port.clone(),
        used,
        facts,
        wire: Some(wire),
        queues: Vec::new(),
        chosen_because: because.to_owned(),
        job: String::new(),
        ring_bytes: 0,
        filters: false,
        _locks: locks,
        _xdp: None,
    })
}

/// Opens an interface port with the first driver that works.
pub fn open_wire(
    port: &PortPlan,
    used: Use,
    wire: Wire,
    longest: usize,
) -> Result<OpenPort, StartError> {
    let packet = packet_options(port, used);
    open_wire_as(port, used, wire, longest, &packet, None)
}

/// Opens an interface port with these options of the packet driver. `selected` holds the frames that XDP may take from
/// a shared interface.
pub fn open_wire_as(
    port: &PortPlan,
    used: Use,
    wire: Wire,
    longest: usize,
    packet: &PacketOptions,
    selected: Option<&Program>,
) -> Result<OpenPort, StartError> {
    check_ring(port)?;
    let (drivers, mut because) = candidates(port, used, &wire, selected.is_some())?;
    let locks = lock_queues(port, used, &wire)?;
    let last = drivers.len() - 1;
    for (i, driver) in drivers.into_iter().enumerate() {
        let interface = &wire.interface;
        let opened = netns::in_namespace(&wire.namespace, || match driver {
            Driver::Xdp => open_xdp(port, used, interface, longest, packet.fanout, selected),
            _ => wb_packet::open(interface, packet).map(|p| {
                (
                    p.facts,
                    p.queues.into_iter().map(AnyQueue::Packet).collect(),
                    None,
                )
            }),
        })
        .map_err(host_error(port))?;
        match opened {
            Ok((mut facts, queues, hold)) => {
                facts.locator = format!("{}:{}", facts.driver, port.locator.place());
                if driver == Driver::Xdp {
                    let features =
                        netns::in_namespace(&wire.namespace, || wb_xdp::features(interface));
                    let zero_copy = features.ok().and_then(|features| features.zero_copy);
                    because.push_str(faster_mode(port, used, zero_copy).unwrap_or_default());
                }
                if driver == Driver::Packet && used.rx {
                    facts.warnings.extend(wire.program_in_front());
                }
                return Ok(OpenPort {
                    plan: port.clone(),
                    used,
                    facts,
                    wire: Some(wire),
                    queues,
                    chosen_because: because,
                    job: String::new(),
                    ring_bytes: 0,
                    filters: false,
                    _locks: locks,
                    _xdp: hold,
                });
            }
            Err(e) if i == last => return Err(e.into()),
            Err(e) => {
                let text = e.to_string();
                let text = text
                    .strip_prefix(&format!("{}: ", wire.interface.port))
                    .unwrap_or(&text);
                because = format!("{} does not work here: {text}", driver.name());
            }
        }
    }
    unreachable!("the list of drivers is never empty")
}

/// MTU of memory ports: large enough for every frame size.
const MEMORY_MTU: u32 = 16_384;

fn link_options(port: &PortPlan) -> LinkOptions {
    LinkOptions {
        queues: port.workers,
        mtu: MEMORY_MTU,
        ..LinkOptions::new(&port.locator.name, Clock::Real(wb_machine::clock::wall_ns))
    }
}

/// Most memory that the ports of a plan take for frames, in bytes: links in memory, and receive rings with a set size.
#[must_use]
pub fn port_memory(plan: &Plan) -> u64 {
    let mut links = BTreeSet::new();
    let own = plan.ports.iter().filter(|port| port.locator.host.is_none());
    let ports = own.map(|port| match port.locator.driver {
        Some(Driver::Memory) if links.insert(&port.locator.name) => link_options(port).bytes(),
        Some(Driver::Memory | Driver::File) => 0,
        _ => port.ring_bytes.saturating_mul(port.workers.into()),
    });
    ports.fold(0, u64::saturating_add)
}

/// Opens a port that needs no interface. The ends of `memory` ports come from the plan's registry.
pub fn open_virtual(
    port: &PortPlan,
    used: Use,
    memory: &mut Registry,
) -> Result<OpenPort, StartError> {
    let clock = Clock::Real(wb_machine::clock::wall_ns);
    let (facts, queues) = match port.locator.driver {
        Some(Driver::Memory) => {
            let end = memory.open(&link_options(port))?;
            (
                end.facts,
                end.queues
                    .into_iter()
                    .map(AnyQueue::Memory)
                    .collect::<Vec<_>>(),
            )
        }
        _ => {
            let path = std::path::Path::new(&port.locator.name);
            let file = match (used.tx, used.rx) {
                (true, true) => {
                    return Err(StartError::stream(
                        port.locator.to_string(),
                        "a file can be read or written, not both",
                    ));
                }
                (true, false) => file::create(path, clock)?,
                _ => file::open(path, Timing::AsFastAsPossible, clock)?,
            };
            (file.facts, vec![AnyQueue::File(file.queue)])
        }
    };
    if (queues.len() as u64) < u64::from(port.workers) {
        return Err(PortError::Input {
            port: port.locator.to_string(),
            what: format!(
                "has {}, but {} workers were requested",
                counted(queues.len(), "queue", "queues"),
                port.workers
            ),
        }
        .into());
    }
    Ok(OpenPort {
        plan: port.clone(),
        used,
        facts,
        wire: None,
        queues,
        chosen_because: "requested".to_owned(),
        job: String::new(),
        ring_bytes: 0,
        filters: false,
        _locks: Vec::new(),
        _xdp: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(locator: &str) -> PortPlan {
        PortPlan::new("p", locator.parse().unwrap())
    }

    fn asked(port: &PortPlan) -> Result<Option<Driver>, String> {
        let asked = requested_driver(port).map_err(|e| e.to_string())?;
        Ok(asked.map(|(driver, _)| driver))
    }

    #[test]
    fn what_a_port_asks_for_is_what_it_gets_or_an_error() {
        assert_eq!(asked(&port("a0")), Ok(None));
        assert_eq!(asked(&port("packet:a0")), Ok(Some(Driver::Packet)));
        for mode in [XdpMode::ZeroCopy, XdpMode::Native, XdpMode::Generic] {
            let of = |locator| PortPlan {
                xdp_mode: mode,
                ..port(locator)
            };
            assert_eq!(asked(&of("a0")), Ok(Some(Driver::Xdp)));
            // The mode applies to those ports of a run that are opened by xdp.
            assert_eq!(asked(&of("packet:a0")), Ok(Some(Driver::Packet)));
        }
        let through = |locator| PortPlan {
            way: SendWay::Qdisc,
            ..port(locator)
        };
        for locator in ["a0", "packet:a0"] {
            assert_eq!(asked(&through(locator)), Ok(Some(Driver::Packet)));
        }
        let refused = asked(&through("xdp:a0")).unwrap_err();
        assert!(refused.contains("queueing discipline"), "{refused}");
    }

    #[test]
    fn a_sender_by_copies_is_told_of_zero_copy_if_the_device_has_it() {
        let port = port("eth2");
        let sends = Use {
            tx: true,
            ..Use::default()
        };
        let both = Use { rx: true, ..sends };
        let faster = faster_mode(&port, sends, Some(true)).unwrap();
        assert!(faster.contains("`--xdp-mode zero-copy`"), "{faster}");
        for (used, zero_copy) in [(sends, Some(false)), (sends, None), (both, Some(true))] {
            assert_eq!(faster_mode(&port, used, zero_copy), None);
        }
        let named = PortPlan {
            xdp_mode: XdpMode::Native,
            ..port
        };
        assert_eq!(faster_mode(&named, sends, Some(true)), None);
    }

    #[test]
    fn each_worker_has_a_queue_of_the_xdp_driver() {
        let interface = Interface {
            port: "xdp:a0".to_owned(),
            name: "a0".to_owned(),
            index: 3,
            mac: [2, 0, 0, 0, 0, 1],
            mtu: 1500,
            speed: None,
            kernel_driver: "veth".to_owned(),
            tx_queues: 2,
            rx_queues: 4,
        };
        let most = |tx, rx| {
            let used = Use {
                tx,
                rx,
                ..Use::default()
            };
            let fits = |workers| {
                let port = PortPlan {
                    workers,
                    ..port("xdp:a0")
                };
                check_xdp_workers(&port, used, &interface).is_ok()
            };
            (1..=64).filter(|&n| fits(n)).max()
        };
        assert_eq!(most(true, true), Some(2));
        assert_eq!(most(true, false), Some(2));
        assert_eq!(most(false, true), Some(4));
    }

    #[test]
    fn each_link_in_memory_counts_once() {
        let plan = |locators: &[&str]| Plan {
            ports: locators.iter().map(|locator| port(locator)).collect(),
            ..Plan::default()
        };
        let one = port_memory(&plan(&["memory:x", "memory:x", "a0", "file:f"]));
        assert_eq!(one, 2 * 2048 * 16_448);
        assert_eq!(port_memory(&plan(&["memory:x", "memory:y"])), 2 * one);
        let mut rings = plan(&["a0"]);
        rings.ports[0].ring_bytes = 1 << 20;
        rings.ports[0].workers = 3;
        assert_eq!(port_memory(&rings), 3 << 20);
    }

    #[test]
    fn the_memory_of_many_queues_is_bounded() {
        for (queues, frames) in [(1, 32_768), (4, 8192), (64, 4096), (65, 2048), (1024, 256)] {
            assert_eq!(xdp_rx_frames(queues), frames, "{queues} queues");
        }
    }
}
