//! Specification of one worker, derived from the job of the plan and properties of the port.

use std::sync::Arc;

use wb_model::load::{
    LoadAnswer, LoadClose, LoadEnd, LoadJob, LoadMessage, LoadRate, LoadReading, LoadRoute,
    LoadShape, LoadTransport, TupleOrder,
};
use wb_model::units::{AddressRange, PortRange, Rational, Span};
use wb_tcp::{
    Client, Close, Config, DestinationPool, Pool, Reading, Retransmission, Role, Server,
    ServerAnswer, Steering, TimeWait, Transport, Tunnel, TupleSequence, Tuples,
};
use wb_wire::{AddrSet, MacAddr, NeighbourResponder};

use crate::http::HttpTask;
use crate::launch_schedule::Grouping;
use crate::message::MessageInputs;
use crate::rates::{ConnectionCost, WorkerLimits};

/// Default interval between two snapshots, in ns: much shorter than the interval of a timeline, so that a snapshot just
/// before it does not look like an outage.
const TICK_NS: u64 = 1_000_000;

/// Maximum number of non-contiguous destinations, which are stored individually and searched for each frame.
const MOST_DESTINATIONS: u128 = 65_536;
/// Overhead of a tunnel per frame, in bytes.
const TUNNEL: u32 = 50;

/// Environment of a worker, determined by the engine.
#[derive(Clone, Debug)]
pub struct LoadPlace<'a> {
    /// The port's Ethernet address.
    pub mac: MacAddr,
    /// Largest IP packet of the port.
    pub mtu: u32,
    /// Ethernet address of the next hop. Optional for a server, which answers to the source of each frame.
    pub gateway: Option<MacAddr>,
    /// Addresses of the port in addition to those of the load.
    pub addresses: AddrSet,
    /// Number of this worker in the job, from 0.
    pub worker: u32,
    /// Number of workers that share the job.
    pub workers: u32,
    /// Tuples with answers that arrive at this worker; `None`: those with a client port that is congruent to the
    /// worker's number modulo the number of workers.
    pub steering: Option<Steering>,
    /// Frames may come from a kernel that left their checksums to hardware without indicating it: through a virtual
    /// device, or from a file.
    pub checksums_may_be_left: bool,
    /// Contents of the file that the job names as its request or answer.
    pub file: Option<&'a [u8]>,
    /// Seed of random choices.
    pub seed: u64,
    /// Secret random number of each run ([`Config::key`]).
    pub key: u64,
}

impl LoadPlace<'_> {
    /// The only worker of a port with this address, an MTU of 1500 and no gateway.
    #[must_use]
    pub fn single(mac: MacAddr) -> Self {
        Self {
            mac,
            mtu: 1500,
            gateway: None,
            addresses: AddrSet::default(),
            worker: 0,
            workers: 1,
            steering: None,
            checksums_may_be_left: false,
            file: None,
            seed: 1,
            key: 1,
        }
    }
}

/// Specification of a worker.
#[derive(Clone, Debug)]
pub struct LoadSpec {
    /// The machine's configuration. May be changed before the start.
    pub config: Config,
    /// Addresses for which the worker answers ARP and neighbour discovery; empty if another component does.
    pub responder: NeighbourResponder,
    /// Client or server.
    pub end: LoadEnd,
    /// Times. They also apply to a server: see [`LoadSpec::until_stopped`] and [`LoadSpec::serve_clients`].
    pub shape: LoadShape,
    /// A server in the same run as its clients: it remains after these times, until it is stopped.
    pub beside: bool,
    /// Cost of a connection, to convert rates to connection rates.
    pub cost: ConnectionCost,
    /// The worker's part of the rate.
    pub limits: WorkerLimits,
    /// Grouping of launches.
    pub grouping: Grouping,
    /// Number of this worker.
    pub worker: u32,
    /// Number of workers.
    pub workers: u32,
    /// Maximum lateness that a worker makes up for, in ns.
    pub catch_up_ns: u64,
    /// Maximum time of busy-waiting before a launch, in ns; 0: it only sleeps.
    pub spin_ns: u64,
    /// Interval between two snapshots, in ns.
    pub tick_ns: u64,
    /// Maximum frames received in a turn.
    pub batch: usize,
    /// Requests of an HTTP job; `None` for other jobs.
    pub http: Option<Arc<HttpTask>>,
    /// Send RST to the peers of connections that are still open at the end. False if both ends belong to one run: both
    /// then count them as open.
    pub parts: bool,
}

/// Error in a job that cannot be carried out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("load {job}: {key}: {what}")]
pub struct SpecError {
    /// The job, by its name or port.
    pub job: String,
    /// The key of the plan.
    pub key: &'static str,
    /// Description of the error, with the allowed values.
    pub what: String,
}

impl LoadSpec {
    /// Specification of worker `place.worker` of a job.
    ///
    /// # Errors
    /// Returns the first problem found.
    pub fn new(job: &LoadJob, place: &LoadPlace<'_>) -> Result<Self, SpecError> {
        let build = SpecBuilder { job, place };
        let config = build.config()?;
        let cost = build.connection_cost(&config);
        let limits = WorkerLimits::for_worker(&job.rate, cost, place.worker, place.workers);
        let mut spec = Self {
            config,
            responder: build.responder(),
            end: job.end,
            shape: job.shape.clone(),
            beside: false,
            cost,
            limits,
            grouping: if job.tcp.like_dperf && job.shape.profile.is_empty() {
                Grouping::Dperf(job.rate.group)
            } else {
                Grouping::Even(job.rate.group)
            },
            worker: place.worker,
            workers: place.workers,
            catch_up_ns: 100_000_000,
            spin_ns: 60_000,
            tick_ns: TICK_NS,
            batch: match job.batch {
                0 => 64,
                told => usize::from(told),
            },
            http: None,
            parts: true,
        };
        if job.end == LoadEnd::Client {
            spec.pace_requests(&build)?;
            spec.config.catch_up = spec.catch_up_ns;
            spec.config.most_outstanding = outstanding_requests(&spec.config, &spec.limits);
        }
        Ok(spec)
    }

    /// Adds the requests of an HTTP job, which uses the connections of this load.
    #[must_use]
    pub fn for_http(mut self, task: &Arc<HttpTask>) -> Self {
        let job = &task.job;
        let (worker, workers) = (self.worker, self.workers);
        let amount = |n| crate::worker_share(n, worker, workers);
        self.config.asks.clone_from(&task.asks);
        self.config.shows_answers = task.job.digest || task.judge.looks();
        self.config.first_byte_timeout = job.first_byte_timeout.map_or(u64::MAX, Span::as_nanos);
        self.config.most_requests = job.amount.map_or(u64::MAX, amount);
        self.limits = WorkerLimits {
            launches: None,
            unlimited: false,
            open: Some(crate::worker_share(job.connections.into(), worker, workers)),
            requests: None,
        };
        if let Role::Client(client) = &mut self.config.role {
            client.paced = !job.rate.is_empty();
        }
        self.http = Some(Arc::clone(task));
        self
    }

    /// Removes the end: the worker continues until it is stopped.
    #[must_use]
    pub fn until_stopped(mut self) -> Self {
        self.shape.wait = Span::default();
        self.shape.ramp = self.shape.wait;
        self.shape.duration = Span::from_nanos(u64::MAX / 4);
        self
    }

    /// Makes the worker a server in the same run as clients with these times: it continues until it is stopped. Its
    /// ramp and duration are those of the clients, from the end of the first ramp to the end of the last duration.
    /// Therefore both ends report rates over the same time.
    #[must_use]
    pub fn serve_clients<'a>(
        mut self,
        clients: impl Iterator<Item = &'a LoadShape> + Clone,
    ) -> Self {
        let risen = |shape: &LoadShape| shape.wait.as_nanos().max(shape.ramp.as_nanos());
        let done = |shape: &LoadShape| risen(shape).saturating_add(shape.duration.as_nanos());
        let wait = clients.clone().map(|shape| shape.wait).min();
        let from = clients.clone().map(risen).min().unwrap_or(0);
        let until = clients.map(done).max().unwrap_or(0);
        self.shape.wait = wait.unwrap_or_default();
        self.shape.ramp = Span::from_nanos(from);
        self.shape.duration = Span::from_nanos(until - from);
        self.beside = true;
        self
    }

    /// Returns true if requests over persistent connections have a separate schedule: if their rate is limited, or in a
    /// flood over held connections without limit and interval.
    pub(crate) fn is_paced(&self, limits: &WorkerLimits) -> bool {
        let Role::Client(client) = &self.config.role else {
            return false;
        };
        let unlimited = client.flood && client.interval == 0 && limits.open.is_some();
        client.requests != Some(1) && (limits.requests.is_some() || unlimited)
    }

    fn pace_requests(&mut self, build: &SpecBuilder<'_>) -> Result<(), SpecError> {
        if self.limits.launches.is_none() && self.limits.open.is_none() {
            let rate = &build.job.rate;
            let is_max = [rate.cps, rate.rps].contains(&Some(LoadRate::MAX));
            let what = match is_max {
                true => "\"max\" needs cc, the number of open connections",
                false => {
                    "needs one of cps, cc, rps, pps and bps; if connections are held, cps or cc"
                }
            };
            return Err(build.spec_error("rate", what.to_owned()));
        }
        let paced = self.is_paced(&self.limits);
        if let Role::Client(client) = &mut self.config.role {
            client.paced = paced;
        }
        Ok(())
    }
}

struct SpecBuilder<'a> {
    job: &'a LoadJob,
    place: &'a LoadPlace<'a>,
}

impl SpecBuilder<'_> {
    fn spec_error(&self, key: &'static str, what: String) -> SpecError {
        let job = if self.job.name.is_empty() {
            &self.job.port
        } else {
            &self.job.name
        };
        SpecError {
            job: job.clone(),
            key,
            what,
        }
    }

    fn address_pool(&self, key: &'static str, ranges: &[AddressRange]) -> Result<Pool, SpecError> {
        let mut pool = Pool::default();
        for range in ranges {
            let count = u32::try_from(range.count()).unwrap_or(u32::MAX);
            let before = pool.len();
            pool.add(range.first(), count);
            if u128::from(pool.len() - before) < range.count() {
                return Err(self.spec_error(
                    key,
                    format!("{range} and the ranges before it exceed 4294967295 addresses"),
                ));
            }
        }
        if pool.is_empty() {
            return Err(self.spec_error(key, "at least one address is needed".to_owned()));
        }
        Ok(pool)
    }

    /// The addresses of this end.
    fn own_addresses(&self) -> &[AddressRange] {
        match self.job.end {
            LoadEnd::Client => &self.job.clients,
            LoadEnd::Server => &self.job.servers,
        }
    }

    fn is_v6(&self) -> bool {
        self.own_addresses()
            .first()
            .is_some_and(AddressRange::is_ipv6)
    }

    fn responder(&self) -> NeighbourResponder {
        let mut addresses = self.place.addresses.clone();
        // The addresses inside a tunnel need no neighbour discovery.
        let ours = match &self.job.vxlan {
            Some(vxlan) => std::slice::from_ref(&vxlan.local),
            None => self.own_addresses(),
        };
        for range in ours {
            match (range.first(), range.last()) {
                (std::net::IpAddr::V4(a), std::net::IpAddr::V4(b)) => addresses.insert_v4(a..=b),
                (std::net::IpAddr::V6(a), std::net::IpAddr::V6(b)) => addresses.insert_v6(a..=b),
                _ => {}
            }
        }
        NeighbourResponder {
            mac: self.place.mac,
            addresses,
        }
    }

    /// Largest IP packet of the load.
    fn mtu(&self) -> u32 {
        let outer = self.job.vxlan.as_ref().map_or(0, |_| TUNNEL);
        self.place.mtu.saturating_sub(outer)
    }

    /// This worker's tunnel.
    fn tunnel(&self) -> Result<Option<Tunnel>, SpecError> {
        let Some(vxlan) = &self.job.vxlan else {
            return Ok(None);
        };
        let (worker, workers) = (u128::from(self.place.worker), self.place.workers);
        let end = |key, ends: &AddressRange, one_for_all: bool| {
            let what = match (ends.count(), one_for_all) {
                (1, true) => ends.first(),
                (n, _) if worker < n => ends.nth(worker),
                (n, _) => {
                    let what = format!("must be one address per worker ({workers}), got {n}");
                    return Err(self.spec_error(key, what));
                }
            };
            match what {
                std::net::IpAddr::V4(address) => Ok(address),
                other => Err(self.spec_error(key, format!("must be IPv4, got {other}"))),
            }
        };
        Ok(Some(Tunnel {
            vni: vxlan.vni,
            src_mac: MacAddr(vxlan.src_mac.0),
            dst_mac: MacAddr(vxlan.dst_mac.0),
            local: end("vxlan.local", &vxlan.local, false)?,
            remote: end("vxlan.remote", &vxlan.remote, true)?,
        }))
    }

    /// Largest segment of the port: the packet without IP and TCP headers.
    fn mss(&self) -> u16 {
        let headers = if self.is_v6() { 60 } else { 40 };
        let most = self.mtu().saturating_sub(headers).clamp(1, 8960) as u16;
        match self.job.tcp.mss {
            0 => most,
            told => told.min(most),
        }
    }

    fn config(&self) -> Result<Config, SpecError> {
        let job = self.job;
        let transport = match job.transport {
            LoadTransport::Tcp => Transport::Tcp,
            LoadTransport::Udp => Transport::Udp,
        };
        let role = match job.end {
            LoadEnd::Client => Role::Client(self.client()?),
            LoadEnd::Server => Role::Server(self.server()?),
        };
        let mut config = Config::new(role, transport, self.place.mac);
        config.mss = self.mss();
        let tcp = &job.tcp;
        config.retransmission = Retransmission {
            after: tcp.retransmit.as_nanos(),
            tries: tcp.tries,
            backoff: tcp.backoff,
        };
        if tcp.like_dperf {
            config = config.dperf(tcp.retransmit.as_nanos());
            // The plan already contains a longer value for servers.
            config.retransmission.after = tcp.retransmit.as_nanos();
        } else {
            (config.window, config.window_scale) = window_field(tcp.window);
            config.most_in_flight = 1 << 14;
        }
        if tcp.in_flight > 0 {
            config.most_in_flight = tcp.in_flight.min(1 << 14);
        }
        if !tcp.acknowledge {
            config.ack_delay = u64::MAX;
        }
        config.connect_timeout = time_limit(tcp.connect_timeout);
        config.response_timeout = time_limit(tcp.response_timeout);
        config.close_timeout = time_limit(tcp.close_timeout);
        config.idle_timeout = time_limit(tcp.idle_timeout);
        config.time_wait = match tcp.time_wait.as_nanos() {
            0 => TimeWait::Skip,
            hold => TimeWait::Hold(hold),
        };
        config.reset_unknown = tcp.reset_unknown;
        config.gateway = self.gateway();
        config.vlan = job.vlan;
        config.tunnel = self.tunnel()?;
        config.tos = job.tos;
        config.ttl = job.ttl;
        config.checksums_may_be_left = self.place.checksums_may_be_left;
        config.key = self
            .place
            .key
            .wrapping_add(u64::from(self.place.worker).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let open = job
            .rate
            .cc
            .map(|cc| crate::worker_share(cc, self.place.worker, self.place.workers));
        config.expected = u32::try_from(open.unwrap_or(1 << 10)).unwrap_or(1 << 30);
        config.expected = config.expected.clamp(1 << 10, 1 << 30);
        config.most_open = config.most_open.max(config.expected);
        if !job.routes.is_empty() {
            let making = self.message_inputs("", job.requests == 1);
            let other = LoadRoute {
                status: 404,
                size: 0,
                ..LoadRoute::default()
            };
            let routes = job.routes.iter().chain(std::iter::once(&other));
            config.routes = routes.map(|route| making.route_answer(route)).collect();
        }
        self.check_frames(&config)?;
        Ok(config)
    }

    /// Checks that messages sent in one piece fit the port.
    fn check_frames(&self, config: &Config) -> Result<(), SpecError> {
        if config.transport == Transport::Tcp {
            return Ok(());
        }
        let (key, len) = match &config.role {
            Role::Client(client) => ("request", client.request.len()),
            Role::Server(Server {
                answer: ServerAnswer::Message(message),
                ..
            }) => ("answer", message.len()),
            Role::Server(_) => return Ok(()),
        };
        let most = self
            .mtu()
            .saturating_sub(if self.is_v6() { 48 } else { 28 });
        if len > most {
            let mtu = self.mtu();
            return Err(self.spec_error(key, format!("{len} bytes exceed a datagram of the port's MTU {mtu}; must be between 0 and {most}")));
        }
        Ok(())
    }

    fn gateway(&self) -> Option<MacAddr> {
        self.place
            .gateway
            .or(self.job.gateway_mac.map(|mac| MacAddr(mac.0)))
    }

    fn message_inputs<'b>(&'b self, host: &'b str, closes: bool) -> MessageInputs<'b> {
        MessageInputs {
            file: self.place.file,
            host,
            seed: self.place.seed,
            like_dperf: self.job.tcp.like_dperf,
            mss: self.mss(),
            closes,
            random: self.job.random_filler,
        }
    }

    fn client(&self) -> Result<Client, SpecError> {
        let job = self.job;
        if self.gateway().is_none() {
            return Err(self.spec_error(
                "port",
                "the MAC address of its gateway is unknown".to_owned(),
            ));
        }
        let clients = self.address_pool("clients", &job.clients)?;
        let (key, servers) = self.destination_pool()?;
        if clients.family_is_v4().is_none() || clients.family_is_v4() != servers.family_is_v4() {
            return Err(self.spec_error(
                key,
                "clients and servers must have the same IP version; use one job per version"
                    .to_owned(),
            ));
        }
        let is_v4 = clients.family_is_v4();
        let tuples = self.tuples(clients, servers)?;
        let host = job
            .servers
            .first()
            .map_or(String::new(), |range| match range.first() {
                std::net::IpAddr::V6(address) => format!("[{address}]"),
                address => address.to_string(),
            });
        let request = self
            .message_inputs(&host, false)
            .request_message(&job.request);
        let requests = self.requests_per_connection()?;
        Ok(Client {
            tuples,
            request: request.ok_or_else(|| self.file_missing("request"))?,
            answer: match &job.request {
                LoadMessage::Snmp(community) => Reading::Snmp {
                    id_at: wb_services::snmp::sys_up_time(community.as_bytes()).id_at,
                },
                _ => convert_reading(job.reading),
            },
            requests,
            interval: job.interval.as_nanos(),
            pipeline: job.pipeline,
            close: match job.close {
                LoadClose::Fin => Close::Fin,
                LoadClose::Reset => Close::Reset,
            },
            flood: job.flood,
            paced: false,
            // The contents of a file are not changed, and dperf's datagrams keep their form.
            numbers: !job.tcp.like_dperf
                && matches!(job.request, LoadMessage::Bytes(_) | LoadMessage::Random(_)),
            destinations: self.destinations(is_v4)?,
            alternate: match job.request {
                LoadMessage::Rip(first) => Some(wb_tcp::Message::bytes(&wb_services::rip::update(
                    first != 2,
                ))),
                _ => None,
            },
        })
    }

    /// Requests per connection, or a server's answers; `None` means unlimited.
    fn requests_per_connection(&self) -> Result<Option<u16>, SpecError> {
        match self.job.requests {
            0 => Ok(None),
            n => u16::try_from(n)
                .ok()
                .filter(|n| *n < u16::MAX)
                .map(Some)
                .ok_or_else(|| {
                    self.spec_error(
                        "requests",
                        format!("must be between 0 (unlimited) and 65534, got {n}"),
                    )
                }),
        }
    }

    /// Destination addresses of connections.
    fn destination_pool(&self) -> Result<(&'static str, Pool), SpecError> {
        let (job, place) = (self.job, self.place);
        if let Some(first) = job.destinations.first().filter(|_| job.servers.is_empty()) {
            return Ok(("destinations", Pool::range(first.addresses.first(), 1)));
        }
        let pool = self.address_pool("servers", &job.servers)?;
        if !job.server_per_worker {
            return Ok(("servers", pool));
        }
        if pool.len() != place.workers {
            let what = format!(
                "needs one address per worker ({}), got {}",
                place.workers,
                pool.len()
            );
            return Err(self.spec_error("server_per_worker", what));
        }
        Ok(("servers", Pool::range(pool.at(place.worker).into(), 1)))
    }

    /// Destinations of a flood's packets in turn: each worker takes every n-th of n workers.
    fn destinations(&self, is_v4: Option<bool>) -> Result<Option<DestinationPool>, SpecError> {
        let (job, place) = (self.job, self.place);
        if job.destinations.is_empty() {
            return Ok(None);
        }
        let mut pool = Pool::default();
        for range in &job.destinations {
            if range.step == 1 {
                let count = u32::try_from(range.addresses.count()).unwrap_or(u32::MAX);
                pool.add(range.addresses.first(), count);
                continue;
            }
            let count = range.addresses.count().div_ceil(range.step.max(1).into());
            for i in 0..count.min(MOST_DESTINATIONS) {
                pool.add(range.addresses.nth(i * u128::from(range.step)), 1);
            }
        }
        if pool.family_is_v4() != is_v4 {
            let what = "must have the IP version of the clients".to_owned();
            return Err(self.spec_error("destinations", what));
        }
        Ok(Some(DestinationPool {
            first: place.worker % pool.len(),
            step: place.workers.max(1),
            pool,
        }))
    }

    fn file_missing(&self, key: &'static str) -> SpecError {
        self.spec_error(key, "the file was not read".to_owned())
    }

    fn tuples(&self, clients: Pool, servers: Pool) -> Result<Tuples, SpecError> {
        let (job, place) = (self.job, self.place);
        let workers = u16::try_from(place.workers).map_err(|_| {
            self.spec_error(
                "port",
                format!("at most 65535 workers are possible, got {}", place.workers),
            )
        })?;
        let steering = match &place.steering {
            // No answers arrive, and the port is that of the protocol.
            _ if matches!(job.request, LoadMessage::Rip(_)) => Steering::All,
            Some(steering) => steering.clone(),
            // Each worker has a separate server address.
            None if job.server_per_worker => Steering::All,
            None => Steering::ClientPort {
                workers,
                mine: place.worker as u16,
            },
        };
        let PortRange { first, last } = job.client_ports;
        let own_ports = match &steering {
            Steering::ClientPort { workers, .. } => {
                u64::from(job.client_ports.count()) / u64::from((*workers).max(1))
            }
            _ => u64::from(job.client_ports.count()),
        };
        let within = u64::from(servers.len()) * u64::from(job.server_ports.count());
        let order = match job.order {
            TupleOrder::Sequential => TupleSequence::Sequential,
            // The next client address and client port.
            TupleOrder::Stride => TupleSequence::Stride((own_ports + 1).saturating_mul(within)),
            TupleOrder::Random => TupleSequence::Random(place.seed ^ 0x7475_706c_6573),
        };
        let server_ports = (job.server_ports.first, job.server_ports.last);
        Tuples::new(
            clients,
            (first, last),
            servers,
            server_ports,
            order,
            steering,
        )
        .ok_or_else(|| {
            let (ports, workers) = (job.client_ports, place.workers);
            self.spec_error(
                "client_ports",
                format!(
                    "{ports} has no port for worker {} of {workers}",
                    place.worker
                ),
            )
        })
    }

    fn server(&self) -> Result<Server, SpecError> {
        let job = self.job;
        let answers = self.requests_per_connection()?;
        let answer = match job.worker_answers.as_slice() {
            [] => &job.answer,
            answers => answers.get(self.place.worker as usize).ok_or_else(|| {
                let (n, workers) = (answers.len(), self.place.workers);
                self.spec_error(
                    "worker_answers",
                    format!("needs one answer per worker ({workers}), got {n}"),
                )
            })?,
        };
        let made = self
            .message_inputs("", job.requests == 1)
            .server_answer(answer);
        Ok(Server {
            addresses: self.address_pool("servers", &job.servers)?,
            clients: match job.clients.is_empty() {
                true => Pool::default(),
                false => self.address_pool("clients", &job.clients)?,
            },
            ports: (job.server_ports.first, job.server_ports.last),
            request: convert_reading(job.reading),
            answer: made.ok_or_else(|| self.file_missing("answer"))?,
            answers: answers.filter(|_| !matches!(answer, LoadAnswer::Echo | LoadAnswer::Sink)),
            proxy: job.proxy,
            returns_numbers: !job.tcp.like_dperf
                && matches!(answer, LoadAnswer::Bytes(_) | LoadAnswer::Random(_)),
        })
    }

    fn connection_cost(&self, config: &Config) -> ConnectionCost {
        let Role::Client(client) = &config.role else {
            return ConnectionCost {
                requests: None,
                frame_size: None,
            };
        };
        let outer = self.job.vxlan.as_ref().map_or(0, |_| TUNNEL);
        let headers = outer
            + 14
            + if self.job.vlan.is_some() { 4 } else { 0 }
            + if self.is_v6() { 48 } else { 28 };
        let size = (headers + client.request.len()).max(60) + 4;
        ConnectionCost {
            requests: client.requests.map(u64::from),
            frame_size: (config.transport == Transport::Udp).then_some(size),
        }
    }
}

fn convert_reading(reading: LoadReading) -> Reading {
    match reading {
        LoadReading::Http => Reading::Http,
        LoadReading::Segment => Reading::Segment,
        LoadReading::Bytes(n) => Reading::Fixed(n.max(1)),
        LoadReading::Stream => Reading::UntilEnd,
    }
}

/// Number of requests that may wait for answers: those of the time that each waits, within bounds, because each takes
/// 24 bytes.
fn outstanding_requests(config: &Config, limits: &WorkerLimits) -> u32 {
    const BOUNDS: (u128, u128) = (1 << 16, 1 << 20);
    let a_second = |rate: Option<Rational>| {
        rate.map_or(0, |rate| {
            u128::from(rate.numerator().div_ceil(rate.denominator()))
        })
    };
    let rate = a_second(limits.requests).max(a_second(limits.launches));
    let seconds = u128::from(config.response_timeout.div_ceil(1_000_000_000));
    let wanted = rate.saturating_mul(seconds);
    wanted.clamp(BOUNDS.0, BOUNDS.1) as u32
}

/// A time of 0 means no limit.
fn time_limit(time: Span) -> u64 {
    match time.as_nanos() {
        0 => u64::MAX / 4,
        ns => ns,
    }
}

/// A window as header field and scale: the smallest scale with which it fits (RFC 7323 section 2.2).
fn window_field(bytes: u32) -> (u16, u8) {
    let scale = (0..14)
        .find(|scale| bytes >> scale <= u32::from(u16::MAX))
        .unwrap_or(14);
    ((bytes >> scale).min(u16::MAX.into()) as u16, scale)
}

#[cfg(test)]
mod tests;
