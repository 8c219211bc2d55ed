//! Opens the ports of a plan: finds the interface, chooses the driver, and gives the reason.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use wb_filter::Program;
use wb_machine::{
    Namespace, Netlink,
    cpu::{Cpu, Irq},
    ethtool::Ethtool,
    link::{Link, LinkCounters},
    locks::{Direction, QueueLock},
    netns,
};
use wb_model::{
    Driver, counted,
    plan::{Plan, PortPlan, SendWay, XdpMode},
    report::{PortReport, PortUser},
    units::Mac,
};
use wb_packet::{Fanout, PacketOptions, PacketQueue, QdiscDrops, RxMode};
use wb_port::{
    Interface, PortError, PortFacts, QueuePair, RxQueue, Speed, StampSource, TxQueue,
    clock::Clock,
    file::{self, FileQueue, Timing},
    memory::{LinkOptions, MemoryQueue, Registry},
};
use wb_xdp::{XdpGroup, XdpOptions, XdpPort, XdpQueue};

use crate::StartError;

/// Requirements of a plan for a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Use {
    pub(crate) tx: bool,
    pub(crate) rx: bool,
    /// True if the port receives alongside the host: one queue for each CPU, and no frame is taken away from the host.
    pub(crate) watch: bool,
    /// True if test frames are of types that a host must see, such as ARP. The port then receives copies alongside the
    /// host.
    pub(crate) shares: bool,
    /// Sharing of the interface with other jobs.
    pub(crate) sharing: Sharing,
}

/// Use of an interface by one or several jobs. With several jobs, each job receives alongside the others and takes only
/// its own frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Sharing {
    /// One job, or several of one engine that share its sockets.
    #[default]
    Alone,
    /// Several jobs. This job is the first to open the interface and locks it for all.
    First,
    /// Several jobs, and the interface is already locked.
    Also,
}

impl Use {
    /// Returns the directions in which the traffic of a plan uses each port.
    pub(crate) fn of_plan(plan: &Plan) -> BTreeMap<String, Use> {
        let mut uses: BTreeMap<String, Use> = BTreeMap::new();
        for job in &plan.traffic {
            if let Some(tx) = &job.tx {
                let u = uses.entry(tx.clone()).or_default();
                u.tx = true;
                u.rx |= job.bidir;
            }
            if let Some(rx) = &job.rx {
                let u = uses.entry(rx.clone()).or_default();
                u.rx = true;
                u.tx |= job.bidir;
            }
        }
        uses
    }

    fn role(self) -> &'static str {
        match (self.tx, self.rx) {
            (true, true) => "tx+rx",
            (true, false) => "tx",
            _ => "rx",
        }
    }
}

/// One queue pair of any driver. This is the only dynamic choice: it is made once, when the worker starts, and each arm
/// runs a loop compiled for its driver.
pub(crate) enum AnyQueue {
    Xdp(XdpQueue),
    /// Several queues with one worker, or queues of workers that pass frames on to each other.
    XdpGroup(XdpGroup),
    Packet(PacketQueue),
    Memory(MemoryQueue),
    File(FileQueue),
}

/// An interface as the host describes it; absent for memory and files.
pub(crate) struct Wire {
    pub(crate) namespace: Namespace,
    pub(crate) link: Link,
    pub(crate) interface: Interface,
    pub(crate) netlink: Netlink,
    /// Addresses for which the kernel answers.
    pub(crate) host_addresses: Vec<IpAddr>,
}

impl Wire {
    /// Warning that an XDP program takes frames before a packet socket receives them.
    fn program_in_front(&self) -> Option<String> {
        Some(self.link.xdp_attached?.warning())
    }

    pub(crate) fn counters(&self) -> BTreeMap<String, u64> {
        let counters: Option<LinkCounters> = self.netlink.counters(&self.interface.name).ok();
        counters.map_or_else(BTreeMap::new, |c| {
            c.named().map(|(n, v)| (n.to_owned(), v)).collect()
        })
    }
}

/// A port of the plan, open.
pub(crate) struct OpenPort {
    pub(crate) plan: PortPlan,
    pub(crate) used: Use,
    pub(crate) facts: PortFacts,
    pub(crate) wire: Option<Wire>,
    pub(crate) queues: Vec<AnyQueue>,
    pub(crate) chosen_because: String,
    /// Job that opened the port for itself alone; empty if the port belongs to all jobs of a kind.
    pub(crate) job: String,
    /// Size of all receive rings together in bytes, if a capture has chosen it.
    pub(crate) ring_bytes: u64,
    /// True if the kernel runs the filter of the capture.
    pub(crate) filters: bool,
    _locks: Vec<QueueLock>,
    /// Keeps the XDP program attached for as long as the port lives.
    _xdp: Option<XdpPort>,
}

impl OpenPort {
    pub(crate) fn role(&self) -> &'static str {
        self.used.role()
    }

    /// Returns true if the port itself sends the streams and accounts for them.
    pub(crate) fn is_live(&self) -> bool {
        self.facts.driver == Driver::Live.name()
    }

    /// Returns true if the port counts foreign frames. A live port that shares its interface with other jobs passes
    /// such frames on to the other jobs, and does not count them.
    pub(crate) fn counts_foreign(&self) -> bool {
        !self.is_live() || self.used.sharing == Sharing::Alone
    }

    /// Number of workers. Once the workers run, they own the queues of the port.
    pub(crate) fn workers(&self) -> usize {
        match self.is_live() {
            true => self.plan.workers as usize,
            false => self.queues.len(),
        }
    }

    /// Number of workers that need a CPU. A live port that only receives needs none, because its workers only read
    /// counters now and then.
    fn placed_workers(&self) -> usize {
        match self.is_live() && !self.used.tx {
            true => 0,
            false => self.workers(),
        }
    }

    /// Counters of the interface so far; empty if there is no interface.
    pub(crate) fn counters(&self) -> BTreeMap<String, u64> {
        self.wire
            .as_ref()
            .map_or_else(BTreeMap::new, Wire::counters)
    }

    /// Returns true if the interface is set down on this host.
    pub(crate) fn is_set_down(&self) -> bool {
        let link = |wire: &Wire| wire.netlink.link(&wire.interface.name).ok();
        self.wire
            .as_ref()
            .and_then(link)
            .is_some_and(|link| !link.up)
    }

    /// Report of the port, with its interface counters before and after the run.
    pub(crate) fn report(
        &self,
        before: BTreeMap<String, u64>,
        after: BTreeMap<String, u64>,
    ) -> PortReport {
        PortReport {
            nic: self.wire.as_ref().and_then(crate::environment::nic),
            ..self.so_far(before, after)
        }
    }

    /// Report of the port during a run, without what the system has to be asked for.
    pub(crate) fn so_far(
        &self,
        before: BTreeMap<String, u64>,
        after: BTreeMap<String, u64>,
    ) -> PortReport {
        PortReport {
            name: self.plan.name.clone(),
            locator: self.facts.locator.clone(),
            driver: self.facts.driver.to_owned(),
            mode: self.facts.mode.clone(),
            chosen_because: self.chosen_because.clone(),
            mac: Mac(self.facts.mac).to_string(),
            mtu: self.facts.mtu,
            kernel_driver: self.facts.kernel_driver.clone(),
            speed_bps: self.facts.speed.map(|s| s.bits_per_second),
            speed_nominal: self.facts.speed.is_some_and(|s| s.nominal),
            timestamp_source: self.facts.stamp_source.to_string(),
            nic: None,
            neighbours: BTreeMap::new(),
            users: vec![PortUser {
                jobs: self.job.clone(),
                locator: self.facts.locator.clone(),
                mode: self.facts.mode.clone(),
                chosen_because: self.chosen_because.clone(),
                timestamp_source: self.facts.stamp_source.to_string(),
            }],
            link_downs: 0,
            interface_drops: 0,
            before,
            after,
        }
    }

    /// Text with locator, driver, mode, and the reason for the driver.
    pub(crate) fn line(&self) -> String {
        format!(
            "{} ({}): {}, {}; {}",
            self.plan.name,
            self.role(),
            self.facts.locator,
            self.facts.mode,
            self.chosen_because
        )
    }

    /// Bits per second, if a real wire sets the pace.
    pub(crate) fn line_rate(&self) -> Option<u64> {
        self.facts
            .speed
            .filter(|s| !s.nominal)
            .map(|s| s.bits_per_second)
    }
}

fn host_error(port: &PortPlan) -> impl Fn(wb_machine::HostError) -> StartError + '_ {
    move |cause| StartError::host(&port.locator, cause)
}

/// Finds the interface of a port and checks that it can be used at all.
pub(crate) fn find_wire(port: &PortPlan) -> Result<Wire, StartError> {
    let wire = locate_wire(port)?;
    require_link(port, &wire)?;
    Ok(wire)
}

/// Finds the interface of a port, whatever its state.
pub(crate) fn locate_wire(port: &PortPlan) -> Result<Wire, StartError> {
    let error = host_error(port);
    let namespace = match &port.locator.node {
        Some(node) => Namespace::named(node),
        None => Namespace::current(),
    }
    .map_err(&error)?;
    let name = &port.locator.name;
    if port.way != SendWay::Receive {
        return wire_at(port, namespace, name);
    }
    match wb_machine::peer::veth_peer(&namespace, name).map_err(&error)? {
        Some((namespace, peer)) => wire_at(port, namespace, &peer),
        None => Err(StartError::stream(
            port.locator.to_string(),
            "sending into the receive path needs a veth pair whose other end is in a named namespace",
        )),
    }
}

/// Returns true if the interface of a port is up with its cable plugged in, if the state is unknown, or if the port has
/// no interface.
pub(crate) fn has_link(port: &PortPlan) -> bool {
    !port.locator.is_interface()
        || locate_wire(port).map_or(true, |wire| wire.link.up && wire.link.carrier)
}

/// Returns the other end of a veth pair, if it is accessible.
pub(crate) fn far_end(port: &PortPlan, wire: &Wire) -> Option<Wire> {
    let peer = wb_machine::peer::veth_peer(&wire.namespace, &wire.interface.name);
    let (namespace, name) = peer.ok()??;
    wire_at(port, namespace, &name).ok()
}

/// Returns true if the interface is in a namespace of a lab, so that this program may prepare it.
pub(crate) fn is_of_a_lab(wire: &Wire) -> bool {
    wire.namespace
        .name()
        .is_some_and(|name| name.starts_with("wb-"))
}

/// Checks that the interface of a port is up and its cable is plugged in.
pub(crate) fn require_link(port: &PortPlan, wire: &Wire) -> Result<(), StartError> {
    let (link, name) = (&wire.link, &wire.interface.name);
    let prefix = wire.namespace.command_prefix();
    if !link.up {
        return Err(StartError::stream(
            port.locator.to_string(),
            format!("the interface is down; try `{prefix}ip link set {name} up`"),
        ));
    }
    if !link.carrier {
        return Err(StartError::stream(
            port.locator.to_string(),
            "the interface has no carrier: the cable is unplugged, or the other end is down",
        ));
    }
    Ok(())
}

fn wire_at(port: &PortPlan, namespace: Namespace, name: &str) -> Result<Wire, StartError> {
    let error = host_error(port);
    let netlink = Netlink::open(&namespace).map_err(&error)?;
    let link = netlink.link(name).map_err(&error)?;
    let ethtool = Ethtool::open(&namespace).ok();
    let driver = ethtool.as_ref().and_then(|e| e.driver(name).ok().flatten());
    let speed = ethtool.as_ref().and_then(|e| e.speed(name).ok().flatten());
    let channels = ethtool
        .as_ref()
        .and_then(|e| e.channels(name).ok().flatten());
    let interface = Interface {
        port: port.locator.to_string(),
        name: name.to_owned(),
        index: link.index,
        mac: link.mac,
        mtu: link.mtu,
        speed: speed.map(|s| Speed {
            bits_per_second: s.bits_per_second,
            nominal: s.nominal,
        }),
        kernel_driver: driver.map(|d| d.name).unwrap_or_default(),
        tx_queues: channels.map_or(1, |c| c.tx_queues().max(1)),
        rx_queues: channels.map_or(1, |c| c.rx_queues().max(1)),
    };
    let host_addresses = netlink
        .addresses(name)
        .map(|list| {
            list.into_iter()
                .filter(|a| !a.link_local)
                .map(|a| a.address)
                .collect()
        })
        .unwrap_or_default();
    Ok(Wire {
        namespace,
        link,
        interface,
        netlink,
        host_addresses,
    })
}

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

fn xdp_options(
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

pub(crate) fn packet_options(port: &PortPlan, used: Use) -> PacketOptions {
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
fn check_ring(port: &PortPlan) -> Result<(), StartError> {
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
pub(crate) fn requested_driver(
    port: &PortPlan,
) -> Result<Option<(Driver, &'static str)>, StartError> {
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
pub(crate) fn open_live(
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
pub(crate) fn open_wire(
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
pub(crate) fn open_wire_as(
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

/// Way to capture from an interface.
pub(crate) enum Tap {
    /// Capture alongside the host.
    Packet(PacketOptions),
    /// Capture instead of the host.
    Xdp(XdpOptions),
}

/// Opens an interface for a capture: alongside the host by the packet driver or, if asked for, instead of the host by
/// XDP. A cable may be plugged in later.
pub(crate) fn open_capture(port: &PortPlan, wire: Wire, tap: &Tap) -> Result<OpenPort, StartError> {
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
pub(crate) fn capture_xdp_options(
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
pub(crate) fn total_memory() -> u64 {
    let info = rustix::system::sysinfo();
    info.totalram as u64 * u64::from(info.mem_unit)
}

/// MTU of memory ports: large enough for every frame size.
const MEMORY_MTU: u32 = 16_384;

/// Opens a port that needs no interface. The ends of `memory` ports come from the plan's registry.
pub(crate) fn open_virtual(
    port: &PortPlan,
    used: Use,
    memory: &mut Registry,
) -> Result<OpenPort, StartError> {
    let clock = Clock::Real(wb_machine::clock::wall_ns);
    let (facts, queues) = match port.locator.driver {
        Some(Driver::Memory) => {
            let options = LinkOptions {
                queues: port.workers,
                mtu: MEMORY_MTU,
                ..LinkOptions::new(&port.locator.name, clock)
            };
            let end = memory.open(&options)?;
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

/// Chooses CPUs for the workers of all ports, in the order of ports and queues. The text is a warning about the
/// placement.
pub(crate) fn place(ports: &[&OpenPort], cpus: &[Cpu]) -> (Vec<Vec<u32>>, Option<String>) {
    let wanted = |p: &&&OpenPort| p.plan.cpus.is_empty();
    let sending: usize = ports
        .iter()
        .filter(wanted)
        .filter(|p| p.used.tx)
        .map(|p| p.placed_workers())
        .sum();
    let receiving: usize = ports
        .iter()
        .filter(wanted)
        .filter(|p| !p.used.tx)
        .map(|p| p.placed_workers())
        .sum();
    let usable: Vec<Cpu> = cpus.iter().filter(|c| c.allowed).cloned().collect();
    if usable.is_empty() || sending + receiving == 0 {
        return (ports.iter().map(|p| p.plan.cpus.clone()).collect(), None);
    }
    let placement = wb_machine::cpu::place_workers(sending, receiving, &usable);
    let (mut tx, mut rx) = (placement.tx.into_iter(), placement.rx.into_iter());
    let lists = ports
        .iter()
        .map(|p| {
            if !p.plan.cpus.is_empty() {
                return p.plan.cpus.clone();
            }
            let from: &mut dyn Iterator<Item = u32> = if p.used.tx { &mut tx } else { &mut rx };
            from.take(p.placed_workers()).collect()
        })
        .collect();
    (lists, placement.warning)
}

/// Returns a warning (T5) for workers on CPUs that serve interrupts of the same port, if other CPUs are available.
pub(crate) fn in_the_way(ports: &[&OpenPort], lists: &[Vec<u32>], cpus: &[Cpu]) -> Vec<String> {
    let used: BTreeSet<u32> = lists.iter().flatten().copied().collect();
    if cpus
        .iter()
        .filter(|c| c.allowed)
        .all(|c| used.contains(&c.id))
    {
        return Vec::new();
    }
    let said = |(port, own): (&&OpenPort, &Vec<u32>)| {
        let wire = port.wire.as_ref()?;
        let irqs = wb_machine::cpu::irqs(&wire.namespace, &wire.interface.name).ok()?;
        let (irq, cpu) = shared(&irqs, own)?;
        Some(format!(
            "T5: {}: a worker shares CPU {cpu} with interrupt {} ({}); `echo CPU > /proc/irq/{}/smp_affinity_list` \
             moves the interrupt to a free CPU (busy polling may want both on one CPU)",
            port.facts.locator, irq.number, irq.name, irq.number
        ))
    };
    let said: BTreeSet<String> = ports.iter().zip(lists).filter_map(said).collect();
    said.into_iter().collect()
}

/// Returns the first active interrupt that is served by these CPUs alone.
fn shared<'a>(irqs: &'a [Irq], cpus: &[u32]) -> Option<(&'a Irq, u32)> {
    irqs.iter()
        .filter(|irq| irq.count > 0)
        .find_map(|irq| match irq.cpus[..] {
            [cpu] if cpus.contains(&cpu) => Some((irq, cpu)),
            _ => None,
        })
}

/// Maximum number of frames that are discarded before a run.
const MAX_STALE: usize = 1 << 16;

/// Discards frames that have arrived so far.
fn discard<Q: QueuePair>(pair: &mut Q) {
    let (_, rx) = pair.split();
    let mut left = MAX_STALE;
    while left > 0 {
        match rx.receive(left.min(64), |_| {}) {
            Ok(n) if n > 0 => left = left.saturating_sub(n),
            // The worker detects that a device is gone.
            _ => return,
        }
    }
}

impl AnyQueue {
    /// Discards frames that have arrived so far: our own neighbour requests, and frames from before the run.
    pub(crate) fn discard_stale(&mut self) {
        match self {
            Self::Xdp(q) => discard(q),
            Self::XdpGroup(q) => q.discard(MAX_STALE),
            Self::Packet(q) => discard(q),
            // These ports receive nothing before the run.
            Self::Memory(_) | Self::File(_) => {}
        }
    }

    /// Number of sources from which the queue takes frames in turn: see [`RxQueue::lanes`].
    pub(crate) fn lanes(&mut self) -> usize {
        match self {
            Self::XdpGroup(q) => q.rx().lanes(),
            Self::Xdp(_) | Self::Packet(_) | Self::Memory(_) | Self::File(_) => 1,
        }
    }

    /// Longest frame that the queue sends, without FCS.
    pub(crate) fn frame_capacity(&mut self) -> usize {
        match self {
            Self::Xdp(q) => q.tx().frame_capacity(),
            Self::XdpGroup(q) => q.tx().frame_capacity(),
            Self::Packet(q) => q.tx().frame_capacity(),
            Self::Memory(q) => q.tx().frame_capacity(),
            Self::File(q) => q.tx().frame_capacity(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_shares_its_cpu_with_an_interrupt_that_comes_there_alone() {
        let irq = |number, cpus: &[u32], count| Irq {
            number,
            name: String::new(),
            cpus: cpus.to_vec(),
            count,
        };
        let irqs = [
            irq(40, &[3], 0),
            irq(41, &[2, 3], 9),
            irq(42, &[1], 9),
            irq(43, &[3], 9),
        ];
        let found = |cpus: &[u32]| shared(&irqs, cpus).map(|(irq, cpu)| (irq.number, cpu));
        assert_eq!(found(&[2, 3]), Some((43, 3)));
        assert_eq!(found(&[0, 1]), Some((42, 1)));
        assert_eq!(found(&[0, 2]), None);
    }

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
    fn the_memory_of_many_queues_is_bounded() {
        for (queues, frames) in [(1, 32_768), (4, 8192), (64, 4096), (65, 2048), (1024, 256)] {
            assert_eq!(xdp_rx_frames(queues), frames, "{queues} queues");
        }
    }
}
