//! From a plan to open ports and compiled streams: everything that can fail before the first frame.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use wb_model::{
    Driver, JobKind, Plan, Proto, Stream, TagKind,
    plan::{PortPlan, TrafficJob},
    stream::{DEFAULT_DST4, DEFAULT_DST6},
    units::{AddressRange, Mac, Rate},
};
use wb_packet::{ControlKind, ControlSocket, PacketOptions, RxMode};
use wb_port::memory::Registry;
use wb_traffic::{RecordedFrame, Recording, StreamSpec};
use wb_walk::Walker;
use wb_wire::{AddrSet, Vlan, ethertype, protocol};

use crate::{
    Signals, StartError,
    capture::{CaptureExtras, Captures},
    devices::{self, Devices},
    engine::Engine,
    guard::{Guard, Source},
    load,
    ports::{OpenPort, Sharing, Use, Wire, find_wire, open_virtual, open_wire_as, packet_options},
    presence::{Attendant, Path, Question, attend, customary_router, multicast_mac, resolve},
    probes::Probes,
    run::Prepared,
    sharing,
    socket::{self, Sockets},
    traffic::Traffic,
};

/// What is known of a port from elsewhere: the labs know who is at the other end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PortHint {
    /// Hardware address at the other end of the link, used when nobody answers.
    pub peer_mac: Option<[u8; 6]>,
}

/// What surrounds a run.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    /// Hints by the port's place (`NODE/IF`).
    pub hints: BTreeMap<String, PortHint>,
    /// Who may end the run.
    pub signals: Signals,
    /// The plan file's folder, for relative paths in it.
    pub base: Option<std::path::PathBuf>,
    /// Where to listen for other rates while a load runs: a local socket that is made there.
    pub control: Option<std::path::PathBuf>,
}

/// One way of one job.
pub(crate) struct Way {
    pub(crate) job: usize,
    pub(crate) name: String,
    pub(crate) tx: Option<usize>,
    pub(crate) rx: Option<usize>,
    pub(crate) streams: Vec<StreamSpec>,
    pub(crate) first_flow: u32,
    /// Flows with a tag, from the first on.
    pub(crate) flows: u32,
}

/// What a run is given beside its plan.
#[derive(Default)]
pub struct Extras {
    /// The packet devices as earlier runs left them, one for each of the plan; empty: all begin anew.
    pub walkers: Vec<Walker>,
    /// Who takes frames beside or instead of the files of a capture.
    pub capture: CaptureExtras,
    /// Socket tests tell how they go once per interval of the plan, also those that ask for no interval.
    pub progress: bool,
    /// A server serves only the client at the other end of this control connection.
    pub control_connection: Option<std::net::TcpStream>,
}

/// What engines share while their ports are opened.
pub(crate) struct Opening<'a> {
    pub(crate) environment: &'a Environment,
    pub(crate) memory: Registry,
    /// Who answered at which hardware address, by port.
    pub(crate) neighbours: BTreeMap<String, BTreeMap<String, String>>,
    pub(crate) warnings: Vec<String>,
    /// Ports that several kinds of jobs use, and whether one of them has opened it.
    shared: BTreeMap<String, bool>,
}

impl<'a> Opening<'a> {
    fn new(plan: &Plan, environment: &'a Environment, warnings: Vec<String>) -> Self {
        let shared = plan.ports.iter().filter(|p| plan.users(p).count() > 1);
        Self {
            environment,
            memory: Registry::default(),
            neighbours: BTreeMap::new(),
            warnings,
            shared: shared.map(|p| (p.name.clone(), false)).collect(),
        }
    }

    /// Whether others use a port that is about to be opened.
    pub(crate) fn share(&mut self, port: &PortPlan) -> Sharing {
        match self.shared.get_mut(&port.name) {
            None => Sharing::Alone,
            Some(opened) => match std::mem::replace(opened, true) {
                false => Sharing::First,
                true => Sharing::Also,
            },
        }
    }

    /// Keeps what an open port warns of.
    pub(crate) fn note(&mut self, open: &OpenPort) {
        let warnings = open.facts.warnings.iter();
        for warning in warnings.map(|w| format!("{}: {w}", open.facts.locator)) {
            if !self.warnings.contains(&warning) {
                self.warnings.push(warning);
            }
        }
    }
}

/// What a sending worker keeps of a flow: the frames it sent of it.
const SENT_FLOW_BYTES: u64 = 16;
/// What a receiving worker keeps of a flow: its figures, its window of sequence numbers, and at the
/// end what is told of it.
const RECEIVED_FLOW_BYTES: u64 = 128 + 128 + 208;
/// What settling a flow at the end takes.
const SETTLED_FLOW_BYTES: u64 = 64;

/// Checks the plan against the machine, opens its ports, finds its neighbours.
///
/// # Errors
/// With the first thing that stands in the way; nothing is left open then.
pub fn prepare(
    mut plan: Plan,
    environment: &Environment,
    extras: Extras,
) -> Result<Prepared, StartError> {
    let mut warnings = plan.validate()?;
    warnings.extend(wb_host::offloads::repair());
    load::name_jobs(&mut plan);
    socket::name_jobs(&mut plan);
    if plan.has(JobKind::Devices) {
        devices::settle_ports(&mut plan);
    }
    check_port_use(&plan)?;
    check_cpus(&plan)?;
    check_memory(&plan)?;
    let users: Vec<bool> = plan
        .ports
        .iter()
        .map(|p| plan.users(p).next().is_some())
        .collect();
    let mut used = users.into_iter();
    plan.ports.retain(|_| used.next().unwrap_or(false));
    let recordings = read_recordings(&plan, environment)?;

    let mut opening = Opening::new(&plan, environment, warnings);
    let streams = open_traffic(&plan, &recordings, &mut opening)?;
    let loads = load::open(&plan, &mut opening)?;
    let attended = streams.iter().chain(&loads);
    let attendants = attend_all(&plan, attended)?;
    let mut engines: Vec<Box<dyn Engine>> = Vec::new();
    let mut prepared = Prepared {
        devices: Vec::new(),
        watches: Vec::new(),
        addresses: Vec::new(),
        _attendants: attendants,
        neighbours: BTreeMap::new(),
        warnings: Vec::new(),
        signals: environment.signals.clone(),
        engines: Vec::new(),
        plan: Plan::default(),
    };
    if plan.has(JobKind::Traffic) {
        let ways = resolve_all(&mut plan, &streams, &recordings, &mut opening)?;
        engines.push(Box::new(Traffic::new(
            plan.part(JobKind::Traffic),
            streams,
            ways,
        )));
    }
    if plan.has(JobKind::Devices) {
        let part = plan.part(JobKind::Devices);
        let devices = Devices::open(&part, extras.walkers, &mut opening)?;
        prepared.devices.clone_from(&devices.handles);
        prepared.watches.clone_from(&devices.watches);
        engines.push(Box::new(devices));
    }
    if plan.has(JobKind::Load) {
        engines.push(Box::new(load::resolve_jobs(
            &mut plan,
            loads,
            &mut opening,
        )?));
    }
    if plan.has(JobKind::Socket) {
        let part = plan.part(JobKind::Socket);
        let (progress, control) = (extras.progress, extras.control_connection);
        let sockets = Sockets::open(&part, progress, control, &environment.signals)?;
        prepared.addresses = sockets.addresses();
        engines.push(Box::new(sockets));
    }
    if plan.has(JobKind::Probe) {
        engines.push(Box::new(Probes::open(&plan)?));
    }
    // Last, as it may give up the privileges of the process.
    if plan.has(JobKind::Capture) {
        let part = plan.part(JobKind::Capture);
        engines.push(Box::new(Captures::open(
            &part,
            extras.capture,
            &mut opening,
        )?));
    }
    opening.memory.drop_unopened();
    Ok(Prepared {
        plan,
        engines,
        neighbours: opening.neighbours,
        warnings: opening.warnings,
        ..prepared
    })
}

/// Opens the ports of the plan's streams.
fn open_traffic(
    plan: &Plan,
    recordings: &Recordings,
    opening: &mut Opening<'_>,
) -> Result<Vec<OpenPort>, StartError> {
    let mut uses = Use::of_plan(plan);
    for (name, used) in &mut uses {
        used.shares = shares_with_host(plan, name, recordings);
    }
    let mut wires = Vec::new();
    let ports = plan.ports.iter().filter(|p| uses.contains_key(&p.name));
    for port in ports {
        let used = uses[&port.name];
        let wire = if port.locator.is_interface() {
            Some(find_wire(port)?)
        } else {
            None
        };
        check_streams(plan, port, wire.as_ref(), recordings)?;
        if let Some(wire) = &wire {
            check_leaving(plan, port, used, wire, recordings)?;
        }
        if used.shares && port.locator.driver == Some(Driver::Xdp) {
            return Err(StartError::stream(
                port.locator.to_string(),
                "XDP leaves ARP, echo and frames to group addresses to the host, and untagged ones among the streams could not be counted; take packet: for this port",
            ));
        }
        wires.push((port, wire));
    }
    let mut ports = Vec::new();
    for (port, wire) in wires {
        let used = Use {
            sharing: opening.share(port),
            ..uses[&port.name]
        };
        let longest = longest_frame(plan, port, recordings);
        let open = match wire {
            Some(wire) => {
                let packet = match used.sharing {
                    Sharing::Alone => packet_options(port, used),
                    // Whose workers share CPUs wait for longer than a ring of blocks lasts, each of which is
                    // handed over after its time, however little is in it.
                    _ => PacketOptions {
                        filter: sharing::traffic_filter(plan, port)?,
                        rx_mode: RxMode::LowLatency,
                        ..packet_options(port, used)
                    },
                };
                open_wire_as(port, used, wire, longest, &packet)?
            }
            None => open_virtual(port, used, &mut opening.memory)?,
        };
        opening.note(&open);
        ports.push(open);
    }
    opening
        .warnings
        .extend(short_receivers(plan, &ports, recordings));
    Ok(ports)
}

/// A worker sends for one job and receives for one; so does a port.
fn check_port_use(plan: &Plan) -> Result<(), StartError> {
    for port in &plan.ports {
        let count = |f: &dyn Fn(&TrafficJob) -> bool| plan.traffic.iter().filter(|j| f(j)).count();
        let is = |name: &Option<String>| name.as_deref() == Some(&port.name);
        let sends = count(&|j| is(&j.tx) || (j.bidir && is(&j.rx)));
        let receives = count(&|j| is(&j.rx) || (j.bidir && is(&j.tx)));
        for (n, verb) in [(sends, "sends"), (receives, "receives")] {
            if n > 1 {
                return Err(StartError::stream(
                    format!("port {}", port.name),
                    format!("{verb} in {n} jobs; put the streams into one job"),
                ));
            }
        }
    }
    Ok(())
}

/// Workers can only be pinned to CPUs that are there and allowed to this process.
pub(crate) fn check_cpus(plan: &Plan) -> Result<(), StartError> {
    let Ok(allowed) = wb_host::cpu::allowed() else {
        return Ok(());
    };
    for port in &plan.ports {
        if let Some(cpu) = port.cpus.iter().find(|cpu| !allowed.contains(cpu)) {
            return Err(StartError::stream(
                format!("port {}", port.name),
                format!(
                    "CPU {cpu} cannot be used; there are: {}",
                    wb_host::cpu::format_list(&allowed)
                ),
            ));
        }
    }
    Ok(())
}

/// Flows are followed one by one, and a machine that swaps measures nothing.
fn check_memory(plan: &Plan) -> Result<(), StartError> {
    let workers = |name: Option<&str>| {
        let port = plan.ports.iter().find(|p| Some(p.name.as_str()) == name);
        port.map_or(0, |p| u64::from(p.workers.max(1)))
    };
    let mut need = 0;
    let mut flows = 0;
    for job in &plan.traffic {
        let ways = if job.bidir { 2 } else { 1 };
        let of_job = ways
            * job
                .streams
                .iter()
                .map(|s| u64::from(s.flow_count()))
                .sum::<u64>();
        let (tx, rx) = (workers(job.tx.as_deref()), workers(job.rx.as_deref()));
        let sending = if tx > 0 {
            SENT_FLOW_BYTES * (tx + 1)
        } else {
            0
        };
        let receiving = if rx > 0 {
            RECEIVED_FLOW_BYTES * rx + SETTLED_FLOW_BYTES
        } else {
            0
        };
        flows += of_job;
        need += of_job * (sending + receiving);
    }
    match wb_host::memory::available() {
        Some(available) => fits(flows, need, available),
        None => Ok(()),
    }
}

#[allow(clippy::cast_precision_loss)]
fn fits(flows: u64, need: u64, available: u64) -> Result<(), StartError> {
    if need <= available {
        return Ok(());
    }
    let gib = |bytes: u64| bytes as f64 / f64::from(1 << 30);
    let most = u128::from(flows) * u128::from(available) / u128::from(need);
    Err(StartError::stream(
        "flows",
        format!(
            "{flows} flows need {:.1} GiB of memory, and {:.1} GiB are available: at most {most} fit",
            gib(need),
            gib(available)
        ),
    ))
}

type Recordings = BTreeMap<String, Arc<Recording>>;

/// Bytes of two addresses and a type.
const ETHERNET_HEADER: usize = 14;

fn read_recordings(plan: &Plan, environment: &Environment) -> Result<Recordings, StartError> {
    let mut recordings = Recordings::new();
    for stream in plan.traffic.iter().flat_map(|j| &j.streams) {
        let Some(path) = &stream.replay else { continue };
        if recordings.contains_key(path) {
            continue;
        }
        let file = environment
            .base
            .as_ref()
            .map_or_else(|| path.into(), |b| b.join(path));
        let wrong = |what: String| StartError::stream(format!("replay {path}"), what);
        let bytes = std::fs::read(&file).map_err(|e| wrong(format!("cannot be read: {e}")))?;
        let reader = wb_pcapng::Reader::new(&bytes).map_err(|e| wrong(e.to_string()))?;
        let (mut frames, mut first) = (Vec::new(), None);
        for record in reader {
            let record = record.map_err(|e| wrong(e.to_string()))?;
            if record.link_type != wb_pcapng::LINK_ETHERNET {
                return Err(wrong(format!(
                    "link type {} is not Ethernet",
                    record.link_type
                )));
            }
            if record.captured.len() < ETHERNET_HEADER {
                return Err(wrong(format!(
                    "frame {} has {} bytes; no device sends less than an Ethernet header of {ETHERNET_HEADER}",
                    frames.len() + 1,
                    record.captured.len()
                )));
            }
            let first = *first.get_or_insert(record.stamp_ns);
            frames.push(RecordedFrame {
                offset_ns: record.stamp_ns.saturating_sub(first),
                bytes: record.captured.to_vec(),
            });
        }
        if frames.is_empty() {
            return Err(wrong("holds no frames".to_owned()));
        }
        recordings.insert(path.clone(), Arc::new(Recording { frames }));
    }
    Ok(recordings)
}

/// Streams that leave by a port: those of jobs that send from it, and those sent back to it.
fn streams_from<'a>(plan: &'a Plan, port: &'a str) -> impl Iterator<Item = &'a Stream> {
    plan.traffic
        .iter()
        .filter(move |j| {
            j.tx.as_deref() == Some(port) || (j.bidir && j.rx.as_deref() == Some(port))
        })
        .flat_map(|j| &j.streams)
}

/// Whether untagged frames that come in by a port are such as XDP hands on to the host.
fn shares_with_host(plan: &Plan, port: &str, recordings: &Recordings) -> bool {
    plan.traffic
        .iter()
        .filter(|j| {
            j.tx.is_some()
                && (j.rx.as_deref() == Some(port) || (j.bidir && j.tx.as_deref() == Some(port)))
        })
        .flat_map(|j| &j.streams)
        .filter(|s| !is_tagged(s))
        .any(
            |s| match s.replay.as_ref().and_then(|r| recordings.get(r)) {
                Some(recording) => recording.frames.iter().any(|f| left_to_host(&f.bytes)),
                None => {
                    let group = |mac: Mac| mac.0[0] & 1 == 1;
                    !matches!(s.proto, Proto::Udp | Proto::Tcp) || s.dst_mac.is_some_and(group)
                }
            },
        )
}

/// Whether the XDP program would leave this frame to the host (`is_control` in its source).
fn left_to_host(frame: &[u8]) -> bool {
    let byte = |at: usize| frame.get(at).copied().unwrap_or(0);
    let word = |at: usize| u16::from_be_bytes([byte(at), byte(at + 1)]);
    if byte(0) & 1 == 1 {
        return true;
    }
    let mut at = 12;
    for _ in 0..2 {
        if matches!(word(at), ethertype::VLAN | ethertype::QINQ) {
            at += 4;
        }
    }
    match word(at) {
        ethertype::ARP => true,
        ethertype::IPV4 if byte(at + 11) == protocol::ICMP => {
            matches!(byte(at + 2 + usize::from(byte(at + 2) & 15) * 4), 0 | 8)
        }
        ethertype::IPV6 if byte(at + 8) == protocol::ICMPV6 => {
            matches!(byte(at + 42), 128 | 129 | 133..=137)
        }
        _ => false,
    }
}

/// Length of the longest frame of a stream, without FCS.
fn longest_of(stream: &Stream, recordings: &Recordings) -> usize {
    match stream.replay.as_ref().and_then(|r| recordings.get(r)) {
        Some(recording) => recording
            .frames
            .iter()
            .map(|f| f.bytes.len())
            .max()
            .unwrap_or(0),
        None => stream.sizes().largest().len_without_fcs(),
    }
}

fn longest_frame(plan: &Plan, port: &PortPlan, recordings: &Recordings) -> usize {
    let lengths = streams_from(plan, &port.name).map(|s| longest_of(s, recordings));
    lengths.max().unwrap_or(1514)
}

fn check_streams(
    plan: &Plan,
    port: &PortPlan,
    wire: Option<&Wire>,
    recordings: &Recordings,
) -> Result<(), StartError> {
    let place = port.locator.to_string();
    let line = wire
        .and_then(|w| w.interface.speed)
        .filter(|s| !s.nominal)
        .map(|s| s.bits_per_second);
    let mut total = 0.0;
    for stream in streams_from(plan, &port.name) {
        if matches!(stream.rate, Rate::Percent(_)) && line.is_none() {
            return Err(StartError::stream(
                place,
                format!(
                    "{} of line rate, but its speed is nominal or unknown; give the rate in pps or bit/s",
                    stream.rate
                ),
            ));
        }
        if let (Some(fps), Some(_)) = (stream.frames_per_second(line), line) {
            total += fps.as_f64()
                * (stream.sizes().mean().as_f64() + f64::from(wb_model::units::WIRE_OVERHEAD))
                * 8.0;
        }
        if let Some(wire) = wire {
            check_mtu(&place, stream, wire, recordings)?;
        }
    }
    if let Some(line) = line
        && total > line as f64 * 1.0001
    {
        return Err(StartError::stream(
            place,
            format!(
                "its streams ask for {:.3} Gbit/s at layer 1, the link carries {:.3}",
                total / 1e9,
                line as f64 / 1e9
            ),
        ));
    }
    Ok(())
}

/// What leaves by a port, and whether it may.
fn check_leaving(
    plan: &Plan,
    port: &PortPlan,
    used: Use,
    wire: &Wire,
    recordings: &Recordings,
) -> Result<(), StartError> {
    let guard = Guard::of(plan);
    guard.addresses(&[Source::Neighbours(port)])?;
    if !used.tx {
        return Ok(());
    }
    for job in &plan.traffic {
        let is = |name: &Option<String>| name.as_deref() == Some(port.name.as_str());
        let place = |number: usize| match job.streams.len() {
            1 => "stream".to_owned(),
            _ => format!("stream {}", number + 1),
        };
        let back: Vec<Stream> = job.streams.iter().map(Stream::reversed).collect();
        let mut leaving: Vec<(usize, &Stream)> = Vec::new();
        if is(&job.tx) {
            leaving.extend(job.streams.iter().enumerate());
        }
        if job.bidir && is(&job.rx) {
            leaving.extend(back.iter().enumerate());
        }
        let sources: Vec<Source> = leaving
            .into_iter()
            .map(|(number, stream)| Source::Stream {
                place: place(number),
                stream,
                recording: stream
                    .replay
                    .as_ref()
                    .and_then(|r| recordings.get(r))
                    .map(|r| &**r),
            })
            .collect();
        guard.addresses(&sources)?;
    }
    guard.outlet(port, wire)
}

fn check_mtu(
    place: &str,
    stream: &Stream,
    wire: &Wire,
    recordings: &Recordings,
) -> Result<(), StartError> {
    // The kernel lets one VLAN tag exceed the MTU, not two (`is_skb_forwardable`).
    let tags = 4 * stream.vlan.len().min(1);
    let len = longest_of(stream, recordings);
    let mtu = wire.interface.mtu as usize;
    if len <= mtu + 14 + tags {
        return Ok(());
    }
    Err(StartError::stream(
        place,
        format!(
            "frames of {} bytes need an MTU of {}, it is {mtu}: the largest size is {}; or try `{}ip link set {} mtu {}`",
            len + 4,
            len - 14 - tags,
            mtu + 18 + tags,
            wire.namespace.command_prefix(),
            wire.interface.name,
            len - 14 - tags,
        ),
    ))
}

/// Receiving ports whose MTU is too small for what is sent to them. No error: a device may
/// fragment on the way.
fn short_receivers(plan: &Plan, ports: &[OpenPort], recordings: &Recordings) -> Vec<String> {
    let mut warnings = Vec::new();
    for port in ports {
        let Some(wire) = &port.wire else { continue };
        let received = plan
            .traffic
            .iter()
            .filter(|job| job.rx.as_ref() == Some(&port.plan.name))
            .flat_map(|job| &job.streams);
        let error = received
            .filter_map(|s| check_mtu(&port.plan.locator.to_string(), s, wire, recordings).err())
            .next();
        warnings.extend(error.map(|e| e.to_string()));
    }
    warnings
}

fn insert_range(set: &mut AddrSet, range: &AddressRange) {
    match (range.first(), range.last()) {
        (IpAddr::V4(a), IpAddr::V4(b)) => set.insert_v4(a..=b),
        (IpAddr::V6(a), IpAddr::V6(b)) => set.insert_v6(a..=b),
        _ => {}
    }
}

/// The addresses a port stands for: sources of what it sends, destinations of what it receives.
fn addresses_of(plan: &Plan, port: &PortPlan) -> AddrSet {
    let mut set = AddrSet::default();
    port.addresses
        .iter()
        .for_each(|r| insert_range(&mut set, r));
    for job in plan.loads.iter().filter(|j| j.port == port.name) {
        // A list of addresses is whom the port answers for, and nobody else.
        if port.addresses.is_empty() {
            crate::load::own_addresses(job)
                .iter()
                .for_each(|r| insert_range(&mut set, r));
        }
    }
    for job in &plan.traffic {
        let is = |name: &Option<String>| name.as_deref() == Some(port.name.as_str());
        let streams = job
            .streams
            .iter()
            .filter(|s| s.replay.is_none() && s.proto != Proto::Raw);
        for stream in streams {
            if is(&job.tx) {
                insert_range(&mut set, &stream.source());
            }
            if is(&job.rx) {
                insert_range(&mut set, &stream.destination());
            }
        }
        if is(&job.rx) && job.tx.is_none() && port.addresses.is_empty() {
            set.insert(IpAddr::V4(DEFAULT_DST4));
            set.insert(IpAddr::V6(DEFAULT_DST6));
        }
    }
    set
}

pub(crate) fn control_socket(port: &OpenPort) -> Result<Option<ControlSocket>, StartError> {
    let Some(wire) = &port.wire else {
        return Ok(None);
    };
    let interface = &wire.interface;
    let opened = wb_host::in_namespace(&wire.namespace, || {
        ControlSocket::open(interface, ControlKind::Presence)
    })
    .map_err(|cause| StartError::host(&port.plan.locator, cause))?;
    Ok(Some(opened?))
}

/// Somebody who answers neighbours at each port.
fn attend_all<'a>(
    plan: &Plan,
    ports: impl Iterator<Item = &'a OpenPort>,
) -> Result<Vec<Attendant>, StartError> {
    let mut attendants = Vec::new();
    let mut attended = BTreeSet::new();
    for port in ports {
        // One for all who use it.
        if !attended.insert(&port.plan.name) {
            continue;
        }
        let Some(socket) = control_socket(port)? else {
            continue;
        };
        let mut addresses = addresses_of(plan, &port.plan);
        let wire = port.wire.as_ref().expect("it has a control socket");
        if wire.host_addresses.iter().any(|a| addresses.contains(*a)) {
            // The kernel answers for its own addresses; two answers would be one too many.
            let kept: Vec<(IpAddr, IpAddr)> = addresses.ranges().collect();
            addresses = AddrSet::default();
            for (first, last) in kept {
                if first == last && wire.host_addresses.contains(&first) {
                    continue;
                }
                if let Ok(range) = format!("{first}-{last}").parse() {
                    insert_range(&mut addresses, &range);
                }
            }
        }
        if !addresses.is_empty() {
            let guard = Guard::of(plan);
            let mac = port.facts.mac;
            attendants.push(attend(socket, mac, addresses, guard, &port.plan.name)?);
        }
    }
    Ok(attendants)
}

pub(crate) fn vlans_of(stream: &Stream) -> Vec<Vlan> {
    let ids: Vec<u16> = stream.vlan.iter().map(|v| v.id).collect();
    let mut tags = Vlan::stack(&ids);
    for (tag, spec) in tags.iter_mut().zip(&stream.vlan) {
        tag.priority = spec.priority;
    }
    tags
}

/// Hardware addresses where there is no wire to have any.
const NO_WIRE_SRC_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
const NO_WIRE_DST_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];

/// Who may know the way to a stream's destination, best first.
fn next_hops(port: &OpenPort, stream: &Stream) -> Vec<IpAddr> {
    if let Some(gateway) = port
        .plan
        .gateway
        .filter(|g| g.is_ipv6() == stream.is_ipv6())
    {
        return vec![gateway];
    }
    let destination = stream.destination().first();
    let mut hops = vec![destination];
    if let Some(wire) = &port.wire
        && !wire.host_addresses.is_empty()
        && let Ok(Some(way)) = wire.netlink.way_to(destination)
        && way.interface == wire.interface.index
        && let Some(gateway) = way.gateway
    {
        hops.push(gateway);
    }
    let router = customary_router(stream.source().first());
    if router != stream.source().first() && !hops.contains(&router) {
        hops.push(router);
    }
    hops
}

/// Finds the next hop of one stream. Gives its hardware address, and a warning where it is a guess.
fn next_hop(
    port: &OpenPort,
    stream: &Stream,
    receiver: Option<&OpenPort>,
    opening: &mut Opening<'_>,
) -> Result<[u8; 6], StartError> {
    if stream.replay.is_some() {
        return Ok([0; 6]);
    }
    let destination = stream.destination().first();
    if let Some(mac) = multicast_mac(destination) {
        return Ok(mac);
    }
    if stream.proto == Proto::Arp {
        return Ok([0xff; 6]);
    }
    let hint = opening
        .environment
        .hints
        .get(&port.plan.locator.place())
        .and_then(|h| h.peer_mac)
        .filter(|_| port.plan.gateway.is_none());
    if port.wire.is_none() {
        let peer = receiver.map(|r| r.facts.mac).filter(|m| *m != [0; 6]);
        return Ok(peer.unwrap_or(NO_WIRE_DST_MAC));
    }
    if stream.proto == Proto::Raw {
        let mac = hint
            .or_else(|| receiver.map(|r| r.facts.mac))
            .filter(|m| *m != [0; 6]);
        return mac.ok_or_else(|| {
            StartError::stream(
                port.plan.locator.to_string(),
                "raw frames have no address to ask for; give --dst-mac",
            )
        });
    }
    let Some(mut socket) = control_socket(port)? else {
        return Ok(NO_WIRE_DST_MAC);
    };
    let question = Question {
        source: stream.source().first(),
        targets: next_hops(port, stream),
        vlans: vlans_of(stream),
    };
    let (found, known) = resolve(&mut socket, port.facts.mac, &question);
    let text = |mac: &[u8; 6]| Mac(*mac).to_string();
    let neighbours = opening.neighbours.entry(port.plan.name.clone());
    neighbours
        .or_default()
        .extend(known.iter().map(|(ip, mac)| (ip.to_string(), text(mac))));
    if let Some(mac) = found {
        return Ok(mac);
    }
    let asked = question
        .targets
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(" or ");
    let protocol = if stream.is_ipv6() {
        "neighbour solicitation"
    } else {
        "ARP"
    };
    if let Some(mac) = hint {
        opening.warnings.push(format!(
            "{}: nobody answered {protocol} for {asked}; frames go to {}, the other end of the lab's link",
            port.plan.locator,
            text(&mac)
        ));
        return Ok(mac);
    }
    Err(StartError::stream(
        port.plan.locator.to_string(),
        format!(
            "no neighbour: nobody answered {protocol} for {asked}; give --dst-mac, or --gateway with the router's address"
        ),
    ))
}

fn resolve_all(
    plan: &mut Plan,
    ports: &[OpenPort],
    recordings: &Recordings,
    opening: &mut Opening<'_>,
) -> Result<Vec<Way>, StartError> {
    let index = |name: &Option<String>| {
        name.as_ref()
            .and_then(|n| ports.iter().position(|p| p.plan.name == *n))
    };
    let jobs = plan.traffic.len();
    let (mut ways, mut next_flow) = (Vec::new(), 0);
    for (number, job) in plan.traffic.iter_mut().enumerate() {
        let (tx, rx) = (index(&job.tx), index(&job.rx));
        let base = match (job.name.as_str(), jobs) {
            ("", 1) => "traffic".to_owned(),
            ("", _) => format!("job {}", number + 1),
            (name, _) => name.to_owned(),
        };
        let back: Vec<Stream> = if job.bidir {
            job.streams.iter().map(Stream::reversed).collect()
        } else {
            Vec::new()
        };
        let bidir = job.bidir;
        let forward = resolve_way(
            tx,
            rx,
            &mut job.streams,
            ports,
            recordings,
            opening,
            &mut next_flow,
        )?;
        let name = |suffix: &str| {
            if bidir {
                format!("{base} {suffix}")
            } else {
                base.clone()
            }
        };
        ways.push(Way {
            job: number,
            name: name("forward"),
            tx,
            rx,
            ..forward
        });
        if bidir {
            let mut back = back;
            let way = resolve_way(
                rx,
                tx,
                &mut back,
                ports,
                recordings,
                opening,
                &mut next_flow,
            )?;
            ways.push(Way {
                job: number,
                name: name("back"),
                tx: rx,
                rx: tx,
                ..way
            });
        }
    }
    Ok(ways)
}

/// Whether frames of a stream can be told apart by a tag.
pub(crate) fn is_tagged(stream: &Stream) -> bool {
    stream.tag != TagKind::None && stream.replay.is_none()
}

fn resolve_way(
    tx: Option<usize>,
    rx: Option<usize>,
    streams: &mut [Stream],
    ports: &[OpenPort],
    recordings: &Recordings,
    opening: &mut Opening<'_>,
    next_flow: &mut u32,
) -> Result<Way, StartError> {
    let first_flow = *next_flow;
    let mut specs = Vec::new();
    let mut asked: Vec<(Vec<Vlan>, IpAddr, [u8; 6])> = Vec::new();
    for (i, stream) in streams.iter_mut().enumerate() {
        let Some(tx) = tx else { break };
        let port = &ports[tx];
        let dst_mac = match stream.dst_mac {
            Some(mac) => mac.0,
            None => {
                let vlans = vlans_of(stream);
                let key = stream.destination().first();
                let same = asked
                    .iter()
                    .find(|(v, d, _)| *v == vlans && *d == key && stream.proto != Proto::Arp);
                if let Some((_, _, mac)) = same {
                    *mac
                } else {
                    let receiver = rx.map(|rx| &ports[rx]);
                    let mac = next_hop(port, stream, receiver, opening)?;
                    asked.push((vlans, key, mac));
                    mac
                }
            }
        };
        let src_mac = match stream.src_mac {
            Some(mac) => mac.0,
            None if port.facts.mac == [0; 6] => NO_WIRE_SRC_MAC,
            None => port.facts.mac,
        };
        warm_up(
            port,
            rx.is_some(),
            stream,
            src_mac,
            dst_mac,
            &mut opening.warnings,
        )?;
        let workers = u32::try_from(port.queues.len()).unwrap_or(1);
        let flows = if stream.tag == TagKind::Wirebench && stream.replay.is_none() {
            stream.flow_count().max(workers)
        } else {
            1
        };
        if stream.tag == TagKind::Pktgen && workers > 1 {
            return Err(StartError::stream(
                port.plan.locator.to_string(),
                "the pktgen tag has one sequence for all frames, so it needs one worker (--workers 1)",
            ));
        }
        if stream.replay.is_none() {
            stream.dst_mac = Some(Mac(dst_mac));
            stream.src_mac = Some(Mac(src_mac));
        }
        specs.push(StreamSpec {
            stream: stream.clone(),
            name: if stream.name.is_empty() {
                format!("stream {}", i + 1)
            } else {
                stream.name.clone()
            },
            first_flow: 0,
            flows,
            src_mac,
            dst_mac,
            pps: stream.frames_per_second(port.line_rate()),
            replay: stream
                .replay
                .as_ref()
                .and_then(|r| recordings.get(r))
                .map(Arc::clone),
        });
    }
    // Streams without a tag come last, so that the flows to follow are one range.
    let mut number = |tagged: bool| {
        for spec in specs.iter_mut().filter(|s| is_tagged(&s.stream) == tagged) {
            spec.first_flow = *next_flow;
            *next_flow += spec.flows;
        }
        *next_flow
    };
    let followed = number(true) - first_flow;
    number(false);
    Ok(Way {
        job: 0,
        name: String::new(),
        tx,
        rx,
        streams: specs,
        first_flow,
        flows: followed,
    })
}

/// Pings through the device, so that it knows its neighbours before the first test frame.
fn warm_up(
    port: &OpenPort,
    has_receiver: bool,
    stream: &Stream,
    src_mac: [u8; 6],
    dst_mac: [u8; 6],
    warnings: &mut Vec<String>,
) -> Result<(), StartError> {
    let routable = !matches!(stream.proto, Proto::Arp | Proto::Raw) && stream.replay.is_none();
    let unicast = multicast_mac(stream.destination().first()).is_none();
    if !routable || !unicast || !has_receiver || !stream.mpls.is_empty() {
        return Ok(());
    }
    let Some(mut socket) = control_socket(port)? else {
        return Ok(());
    };
    let path = Path {
        src_mac,
        dst_mac,
        source: stream.source().first(),
        destinations: Path::destinations(&stream.destination()),
        vlans: vlans_of(stream),
    };
    let answered = path.warm_up(&mut socket);
    if answered == 0 {
        warnings.push(format!(
            "{}: no echo from {} came back before the run; the device may still have to find its neighbours, and may lose the first frames",
            port.plan.locator,
            stream.destination(),
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_refused_with_the_need() {
        assert!(fits(1, 1000, 1000).is_ok());
        let error = fits(16_777_216, 9 << 30, 3 << 30).unwrap_err().to_string();
        for part in ["16777216 flows", "9.0 GiB", "3.0 GiB", "5592405 fit"] {
            assert!(error.contains(part), "no {part:?} in {error}");
        }
    }

    #[test]
    fn what_xdp_leaves_to_the_host_is_known() {
        let frame = |destination: u8, at: &[(usize, u8)]| {
            let mut bytes = vec![0; 60];
            bytes[0] = destination;
            for (place, byte) in at {
                bytes[*place] = *byte;
            }
            bytes
        };
        let ipv4 = |kind: u8| frame(2, &[(12, 8), (14, 0x45), (23, 1), (34, kind)]);
        let ipv6 = |kind: u8| frame(2, &[(12, 0x86), (13, 0xdd), (20, 58), (54, kind)]);
        for left in [
            frame(0xff, &[(12, 8)]),
            frame(1, &[]),
            frame(2, &[(12, 8), (13, 6)]),
            frame(2, &[(12, 0x81), (16, 8), (17, 6)]),
            ipv4(8),
            ipv4(0),
            ipv6(128),
            ipv6(135),
        ] {
            assert!(left_to_host(&left), "{left:x?}");
        }
        for taken in [
            frame(2, &[(12, 8), (14, 0x45), (23, 17)]),
            ipv4(3),
            ipv6(1),
            frame(2, &[(12, 0x88), (13, 0xcc)]),
            Vec::new(),
        ] {
            assert!(!left_to_host(&taken), "{taken:x?}");
        }
    }
}
