//! The engine of a run: clients that open connections and servers that answer, each at a separate port.
//!
//! The account assigns every connection to exactly one outcome.
//!
//! **Neighbour answers.** On a wire, the neighbour responder answers on a dedicated socket. Workers answer only if
//! there is no wire (memory).
//!
//! **Steering of answers to workers.** A client worker opens only connections whose client port modulo the number of
//! workers is its worker number. Ports steer by the same rule, whichever queue of the device a frame arrives on: the
//! packet driver steers in the kernel, and workers of the xdp driver pass frames on to each other
//! (`wb_port::exchange`).

use std::{
    collections::BTreeMap,
    hash::{BuildHasher, RandomState},
    sync::Arc,
};

use crate::{HttpTask, LoadControl, LoadPlace, LoadSpec};
use wb_engine::{
    guard::{Guard, Source},
    input,
    neighbour_responder::{NeighbourTable, Path, Question, resolve, warm_up},
    neighbours::{control_socket, next_hops, one_of},
    opening::Environment,
    opening::Opening,
    sharing,
};
use wb_model::{
    JobKind, Plan, PortPlan,
    load::{LoadAnswer, LoadEnd, LoadJob, LoadMessage, LoadShape, LoadTransport},
    units::{Mac, Span},
};
use wb_open::{OpenPort, Sharing, StartError, Use, Wire, find_wire, open_wire_as, packet_options};
use wb_packet::{Fanout, PacketOptions, RxMode};
use wb_port::PortSteering;
use wb_wire::{AddrSet, MacAddr, Vlan};

use self::{run::Loads, steering::NextHopQuery};

mod control;

mod report;
pub mod run;
mod steering;

pub use control::client_shares;

/// A job and the specifications of its workers.
struct JobSlot {
    port: usize,
    specs: Vec<LoadSpec>,
    control: Arc<LoadControl>,
}

/// Ends of connections in a run, whichever engine they belong to.
#[derive(Clone)]
pub struct Ends {
    /// Shapes of the client loads.
    clients: Vec<LoadShape>,
    has_servers: bool,
}

impl Ends {
    /// Ends of the loads of a plan.
    #[must_use]
    pub fn of(plan: &Plan) -> Self {
        let of = |end| plan.loads.iter().filter(move |job| job.end == end);
        Self {
            clients: of(LoadEnd::Client).map(|job| job.shape.clone()).collect(),
            has_servers: of(LoadEnd::Server).next().is_some(),
        }
    }
}

/// Opens the ports of the plan's loads: one port for each load, in the order of the loads.
///
/// # Errors
/// Returns the first problem found. Nothing stays open on error.
pub fn open(plan: &Plan, opening: &mut Opening<'_>) -> Result<Vec<OpenPort>, StartError> {
    // A rate of 0 is useful only if it can be changed during the run.
    let is_client = |job: &&LoadJob| job.end == LoadEnd::Client;
    let mut clients = plan.loads.iter().filter(is_client).peekable();
    if opening.environment.control.is_none()
        && clients.peek().is_some()
        && clients.all(|job| job.rate.sends_nothing())
    {
        return Err(StartError::stream(
            "load, rate",
            "must be at least 1, got 0; 0 needs --control, which changes the rate during the run",
        ));
    }
    let port = |job: &LoadJob| plan.ports.iter().find(|port| port.name == job.port);
    let jobs = plan.loads.iter().filter_map(|job| Some((job, port(job)?)));
    let wires = jobs
        .map(|(job, port)| Ok((job, port, find_own_wire(plan, job, port)?)))
        .collect::<Result<Vec<_>, StartError>>()?;
    let mut open = Vec::new();
    for (job, port, wire) in wires {
        let port = open_port(plan, job, port, wire, opening)?;
        opening.note(&port);
        open.push(port);
    }
    Ok(open)
}

/// Finds the next hops of the loads. This is the last step before the loads start.
///
/// `tasks`: requests over the connections, if the connections are those of HTTP jobs.
///
/// # Errors
/// Fails if a neighbour does not answer, a file cannot be read, or the guard refuses an address.
pub fn resolve_jobs(
    plan: &Plan,
    ports: Vec<OpenPort>,
    ends: &Ends,
    tasks: &[Arc<HttpTask>],
    opening: &mut Opening<'_>,
) -> Result<Loads, StartError> {
    let mut jobs = Vec::new();
    let mut plan = plan.part(JobKind::Load);
    let guard = Guard::of(&plan);
    let Ends {
        clients,
        has_servers,
    } = ends;
    let environment = opening.environment;
    for (port, job) in plan.loads.iter_mut().enumerate() {
        let mut finder = NextHop {
            ports: &ports,
            port,
            environment,
            neighbours: opening.neighbours.entry(job.port.clone()).or_default(),
            warnings: &mut opening.warnings,
        };
        job.gateway_mac = finder.find(job)?.map(Mac);
        let file = read_file(job, environment)?;
        let specs = specs(job, &ports[port], plan.seed, file.as_deref(), guard)?;
        let specs = specs.into_iter().map(|mut spec| {
            if let Some(task) = tasks.get(port) {
                spec = spec.for_http(task);
            }
            spec.parts = clients.is_empty() || !has_servers;
            match job.end {
                LoadEnd::Server if !clients.is_empty() => spec.serve_clients(clients.iter()),
                LoadEnd::Server if job.shape.duration == Span::default() => spec.until_stopped(),
                _ => spec,
            }
        });
        jobs.push(JobSlot {
            port,
            specs: specs.collect(),
            control: Arc::new(LoadControl::new()),
        });
    }
    let control = environment.control.as_deref().filter(|_| tasks.is_empty());
    let steering = match tasks.is_empty() {
        true => environment.steering.clone(),
        false => wb_engine::steering::Steering::default(),
    };
    Loads::new(plan, ports, jobs, control, steering)
}

/// Returns the interface of a port after checking that a load may use it.
fn find_own_wire(plan: &Plan, job: &LoadJob, port: &PortPlan) -> Result<Option<Wire>, StartError> {
    if !port.locator.is_interface() {
        return Ok(None);
    }
    let wire = find_wire(port)?;
    let place = port.locator.to_string();
    let sources = [Source::Neighbours(port), Source::Load(job)];
    Guard::of(plan).admit(port, &wire, &sources)?;
    let own = job.own_addresses();
    let shared = wire
        .host_addresses
        .iter()
        .find(|address| own.iter().any(|range| range.contains(**address)));
    if let Some(address) = shared {
        return Err(StartError::stream(
            place,
            format!(
                "{address} is an address of the host on {}, whose TCP stack would answer too; use other addresses for the load, or try `{}ip addr flush dev {}`",
                wire.interface.name,
                wire.namespace.command_prefix(),
                wire.interface.name
            ),
        ));
    }
    Ok(Some(wire))
}

fn open_port(
    plan: &Plan,
    job: &LoadJob,
    port: &PortPlan,
    wire: Option<Wire>,
    opening: &mut Opening<'_>,
) -> Result<OpenPort, StartError> {
    let used = Use {
        tx: true,
        rx: true,
        sharing: opening.share(port),
        ..Use::default()
    };
    let Some(wire) = wire else {
        return opening.open_virtual(port, used);
    };
    let which = match job.end {
        LoadEnd::Client => PortSteering::Destination,
        LoadEnd::Server => PortSteering::Source,
    };
    let filter = match used.sharing {
        Sharing::Alone => None,
        _ => Some(sharing::load_filter(plan, job)?),
    };
    // An interface has one XDP program. It belongs to the first load of the interface.
    let first = plan.loads_at(&port.name).next();
    let selects = first.is_some_and(|first| std::ptr::eq(first, job)) && plan.leaves_the_rest(port);
    let selected = filter.as_ref().filter(|_| selects).map(|f| &f.whole);
    let attach = filter.as_ref().and_then(|f| f.attach.as_ref().ok());
    let packet = PacketOptions {
        filter: attach.map(sharing::operations),
        rx_mode: RxMode::LowLatency,
        fanout: Fanout::Port(which),
        promiscuous: false,
        ..packet_options(port, used)
    };
    let longest = wire.interface.mtu as usize + 18;
    let ours = plan.loads.iter().any(|other| other.end != job.end);
    let cut = !ours && job.transport == LoadTransport::Tcp && has_large_frames(&wire);
    let mut open = open_wire_as(port, used, wire, longest, &packet, selected)?;
    if cut && open.facts.driver == "packet" {
        open.facts.warnings.push(
            "the kernel at the other end of the veth pair may send segments longer than the MTU, which are truncated here; run `ethtool -K IF tso off gso off` there, or use xdp:"
                .to_owned(),
        );
    }
    if plan.loads_at(&port.name).count() > 1 {
        open.job.clone_from(&job.name);
    }
    Ok(open)
}

/// Returns true if frames may be longer than the MTU: segments that never crossed a wire.
fn has_large_frames(wire: &Wire) -> bool {
    wire.interface.kernel_driver == "veth"
}

/// Returns true if a kernel may have left checksums to missing hardware and the port does not report it. AF_PACKET
/// reports it, but an XDP program cannot see it.
fn leaves_checksums(port: &OpenPort) -> bool {
    const VIRTUAL: [&str; 2] = ["veth", "tun"];
    match &port.wire {
        Some(wire) => {
            port.facts.driver == "xdp" && VIRTUAL.contains(&wire.interface.kernel_driver.as_str())
        }
        None => port.facts.driver == "file",
    }
}

/// Reads the file that holds the job's message, if there is one.
fn read_file(job: &LoadJob, environment: &Environment) -> Result<Option<Vec<u8>>, StartError> {
    let path = match (job.end, &job.request, &job.answer) {
        (LoadEnd::Client, LoadMessage::File(path), _) => path,
        (LoadEnd::Server, _, LoadAnswer::File(path)) => path,
        _ => return Ok(None),
    };
    let file = match &environment.base {
        Some(base) => base.join(path),
        None => path.into(),
    };
    input::read_file(&file, input::LARGEST_DATA)
        .map(Some)
        .map_err(|e| {
            StartError::stream(
                job.name.clone(),
                format!("cannot read {path}: {}", wb_machine::cause_text(&e)),
            )
        })
}

/// Specifications of each worker of a job.
fn specs(
    job: &LoadJob,
    port: &OpenPort,
    seed: u64,
    file: Option<&[u8]>,
    guard: Guard,
) -> Result<Vec<LoadSpec>, StartError> {
    let workers = u32::try_from(port.queues.len()).unwrap_or(u32::MAX);
    let key = by_chance();
    (0..workers)
        .map(|worker| {
            let place = LoadPlace {
                mtu: port.facts.mtu,
                gateway: job.gateway_mac.map(|mac| MacAddr(mac.0)),
                worker,
                workers,
                steering: steering::own(port.wire.is_some(), worker, workers),
                file,
                checksums_may_be_left: leaves_checksums(port),
                seed,
                key,
                ..LoadPlace::single(own_mac(port))
            };
            let mut spec = LoadSpec::new(job, &place).map_err(|e| {
                StartError::stream(
                    format!("load {}", job.name),
                    format!("{}: {}", e.key, e.what),
                )
            })?;
            if port.wire.is_some() {
                // The neighbour responder answers instead.
                spec.responder.addresses = AddrSet::default();
                spec.config.answered = guard.answered();
            }
            Ok(spec)
        })
        .collect()
}

/// Returns an unpredictable number. It does not come from the plan, because a plan is not secret.
fn by_chance() -> u64 {
    // The standard library takes the keys of its hash maps from the kernel.
    RandomState::new().hash_one(0)
}

/// Hardware address of an end without a wire.
const NO_WIRE_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];

fn own_mac(port: &OpenPort) -> MacAddr {
    MacAddr(match port.facts.mac {
        [0, 0, 0, 0, 0, 0] => NO_WIRE_MAC,
        mac => mac,
    })
}

/// Maximum number of client addresses that ping through the device before a run, so that the device knows them.
const MAX_ANNOUNCED: u128 = 64;

/// Search for the next hop of a job.
struct NextHop<'a> {
    ports: &'a [OpenPort],
    port: usize,
    environment: &'a Environment,
    neighbours: &'a mut BTreeMap<String, String>,
    warnings: &'a mut Vec<String>,
}

impl NextHop<'_> {
    /// Returns the hardware address of the next hop. A server without a gateway needs none: it answers to the sender of
    /// a frame.
    fn find(&mut self, job: &LoadJob) -> Result<Option<[u8; 6]>, StartError> {
        if let Some(mac) = job.gateway_mac {
            return Ok(Some(mac.0));
        }
        let port = &self.ports[self.port];
        if port.wire.is_none() {
            return Ok(Some(self.memory_peer()));
        }
        let asked = NextHopQuery::of(job, &port.plan);
        let gateway = port
            .plan
            .gateway
            .filter(|g| g.is_ipv6() == asked.source.is_ipv6());
        if job.end == LoadEnd::Server && gateway.is_none() {
            return Ok(None);
        }
        let targets = next_hops(port, asked.source, asked.destination);
        let Some(mut socket) = control_socket(port)? else {
            return Ok(None);
        };
        let question = Question {
            source: asked.source,
            targets,
            vlans: job.vlan.map(Vlan::customer).into_iter().collect(),
        };
        let asked_for = std::slice::from_ref(&question);
        let signals = &self.environment.signals;
        let answers = resolve(&mut socket, port.facts.mac, asked_for, signals);
        signals.refuse_start()?;
        let (found, known) = answers.into_iter().next().unwrap_or_default();
        self.note(&known);
        match found {
            Some(mac) if job.end == LoadEnd::Client && !job.flood => {
                self.announce(job, &asked, mac, &question.vlans)?;
                Ok(Some(mac))
            }
            Some(mac) => Ok(Some(mac)),
            // A server with a silent gateway learns the address from the first frame.
            None if job.end == LoadEnd::Server => Ok(None),
            None => self.silent(&question).map(Some),
        }
    }

    /// Returns the hardware address of the other end of a memory link.
    fn memory_peer(&self) -> [u8; 6] {
        let own = &self.ports[self.port];
        self.ports
            .iter()
            .filter(|p| p.plan.name != own.plan.name && p.plan.locator == own.plan.locator)
            .map(|p| p.facts.mac)
            .find(|mac| *mac != [0; 6])
            .unwrap_or([2, 0, 0, 0, 0, 2])
    }

    fn note(&mut self, known: &NeighbourTable) {
        let text = |mac: &[u8; 6]| Mac(*mac).to_string();
        self.neighbours
            .extend(known.iter().map(|(ip, mac)| (ip.to_string(), text(mac))));
    }

    /// Pings through the device from the first client addresses, so that the device finds its neighbours before the
    /// first connection.
    fn announce(
        &self,
        job: &LoadJob,
        asked: &NextHopQuery,
        mac: [u8; 6],
        vlans: &[Vlan],
    ) -> Result<(), StartError> {
        let port = &self.ports[self.port];
        if job.vxlan.is_some() {
            return Ok(());
        }
        let Some(mut socket) = control_socket(port)? else {
            return Ok(());
        };
        let sources = job
            .clients
            .iter()
            .flat_map(|range| (0..range.count().min(MAX_ANNOUNCED)).map(|i| range.nth(i)))
            .take(MAX_ANNOUNCED as usize);
        for source in sources {
            let path = Path {
                src_mac: port.facts.mac,
                dst_mac: mac,
                source,
                destinations: vec![asked.destination],
                vlans: vlans.to_vec(),
            };
            let answered = warm_up(&mut socket, &[path], &self.environment.signals);
            self.environment.signals.refuse_start()?;
            if answered == [0] {
                // Some hosts never answer pings, so the load itself shows the result.
                return Ok(());
            }
        }
        Ok(())
    }

    /// Handles a silent neighbour: returns the hint of the lab, or an error.
    fn silent(&mut self, question: &Question) -> Result<[u8; 6], StartError> {
        let port = &self.ports[self.port];
        let asked = one_of(&question.targets);
        let hint = self
            .environment
            .hints
            .get(&port.plan.locator.place())
            .and_then(|h| h.peer_mac);
        if let Some(mac) = hint {
            self.warnings.push(format!(
                "{}: no neighbour reply for {asked}; frames go to {}, the other end of the lab link",
                port.plan.locator,
                Mac(mac)
            ));
            return Ok(mac);
        }
        Err(StartError::stream(
            port.plan.locator.to_string(),
            format!(
                "no next hop: no neighbour reply for {asked}; use --gateway with the router's address, or --gateway-mac"
            ),
        ))
    }
}
