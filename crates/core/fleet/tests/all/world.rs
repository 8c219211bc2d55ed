//! World of a simulation: hosts with clocks, a broker that delays, loses and repeats messages, and controllers.
//!
//! Time is a number. Every random choice comes from the seed, so a seed is a test case.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
    fmt,
};

use wb_fleet_core::{
    Now, ShareEnd,
    agent::{self, Agent, AgentSettings},
    clock::{Estimate, Exchange},
    controller::{self, Controller, RunRecord, RunResult, RunSettings, Shown, TICK_NS},
    leader::{self, LEADER_TTL_NS, Leader},
    message::{
        Answer, Armed, DirectionFlows, LeaderEntry, Opened, OpenedPort, Refused, RefusedKind,
        Registration, Reply, ShareMessage, StopHow, decode, encode,
    },
    place::{Placement, place},
    simulation::{GRACE_NS, Part, Sender},
    subjects::Subject,
};
use wb_model::{Plan, PortPlan, Stream, TrafficJob, units::Span};

pub(crate) const MS: u64 = 1_000_000;
pub(crate) const SECOND: u64 = 1_000 * MS;
/// Wall clock at the beginning of every simulation.
const EPOCH_NS: u64 = 1_795_726_288 * SECOND;
pub(crate) const DRAIN_NS: u64 = 100 * MS;
/// One frame of this number is lost under way.
const LOST_OF: u64 = 100;

/// Random numbers of a seed (SplitMix64).
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.next() % (most - least + 1)
    }

    /// True in `per_mille` of 1,000 cases.
    pub(crate) fn chance(&mut self, per_mille: u64) -> bool {
        self.next() % 1000 < per_mille
    }
}

/// Engine of one host.
#[derive(Debug, Default)]
pub(crate) struct Engine {
    pub(crate) part: Option<Part>,
    /// Run that holds the ports.
    pub(crate) held: Option<String>,
}

/// Network and plan of a simulation.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) hosts: usize,
    /// Delay of a message, from and to, in ns.
    pub(crate) delay_ns: (u64, u64),
    /// Lost and repeated messages per 1,000.
    pub(crate) loss: u64,
    pub(crate) repeats: u64,
    pub(crate) offset_ns: i64,
    pub(crate) drift_ppm: i64,
    pub(crate) lease_ns: u64,
    pub(crate) interval_ns: u64,
    pub(crate) duration_ns: u64,
    pub(crate) pps: u64,
    pub(crate) controllers: usize,
    pub(crate) min_agents: Option<usize>,
    pub(crate) max_clock_error_ns: Option<u64>,
    /// Hosts of sender and receiver of each direction. Empty: pairs of neighbours.
    pub(crate) jobs: Vec<(usize, usize, bool)>,
    /// Refusals of the engine per 1,000 commands.
    pub(crate) refusals: u64,
    /// Checks the invariants after every event.
    pub(crate) checks: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            hosts: 4,
            delay_ns: (MS / 10, MS),
            loss: 0,
            repeats: 0,
            offset_ns: 50_000_000,
            drift_ppm: 20,
            lease_ns: 3 * SECOND,
            interval_ns: SECOND,
            duration_ns: 10 * SECOND,
            pps: 1_000,
            controllers: 1,
            min_agents: None,
            max_clock_error_ns: None,
            jobs: Vec::new(),
            refusals: 0,
            checks: true,
        }
    }
}

/// Clock of a host.
#[derive(Clone, Copy, Debug)]
struct HostClock {
    offset_ns: i64,
    drift_ppm: i64,
    booted_ns: u64,
}

impl HostClock {
    fn drifted(&self, at_ns: u64) -> i64 {
        let drift = i128::from(at_ns) * i128::from(self.drift_ppm) / 1_000_000;
        i64::try_from(drift).unwrap()
    }

    fn now(&self, at_ns: u64) -> Now {
        let drift = self.drifted(at_ns);
        Now {
            mono_ns: (self.booted_ns + at_ns).checked_add_signed(drift).unwrap(),
            wall_ns: self.wall(at_ns),
        }
    }

    fn wall(&self, at_ns: u64) -> u64 {
        (EPOCH_NS + at_ns)
            .checked_add_signed(self.offset_ns + self.drifted(at_ns))
            .unwrap()
    }

    /// True time at which the wall clock shows a time.
    fn when(&self, wall_ns: u64) -> i64 {
        let apparent =
            i64::try_from(wall_ns).unwrap() - i64::try_from(EPOCH_NS).unwrap() - self.offset_ns;
        let drift = i128::from(apparent) * i128::from(self.drift_ppm)
            / (1_000_000 + i128::from(self.drift_ppm));
        apparent - i64::try_from(drift).unwrap()
    }
}

pub(crate) struct Host {
    pub(crate) name: String,
    clock: HostClock,
    pub(crate) agent: Option<Agent>,
    pub(crate) engine: Engine,
    disk: BTreeMap<String, ShareMessage>,
    start_count: u64,
    tick_ns: u64,
    /// True while no message reaches the host.
    pub(crate) is_cut: bool,
    /// True time of the last message that renews the lease.
    leased_ns: u64,
    pub(crate) armed_ns: Option<u64>,
    pub(crate) crashes: u32,
}

pub(crate) struct Seat {
    clock: HostClock,
    leader: Leader,
    pub(crate) controller: Option<Controller>,
    is_up: bool,
    starts: u64,
    stalled_until_ns: u64,
}

#[derive(Default)]
struct Broker {
    is_down: bool,
    revision: u64,
    leader: Option<(u64, LeaderEntry)>,
    shares: Vec<ShareMessage>,
    record: Option<RunRecord>,
}

#[derive(Clone, Debug)]
pub(crate) enum Fault {
    KillAgent(usize),
    StartAgent(usize),
    KillController(usize),
    StartController(usize),
    KillBroker,
    StartBroker,
    Cut(usize),
    Join(usize),
    Stop(StopHow),
    Stall(usize, u64),
    FailPort(usize),
}

enum Item {
    Agent(usize, agent::Event),
    /// Event of an engine, for one start of the agent.
    Engine(usize, u64, Work),
    AgentTick(usize, u64),
    Controller(usize, controller::Event),
    ControllerTick(usize, u64),
    Leader(usize, leader::Event),
    Store(usize, Option<u64>, LeaderEntry),
    Expire(u64),
    Share(usize, Box<ShareMessage>),
    ToStream(usize, Box<ShareMessage>),
    Fault(Fault),
}

enum Work {
    Report(agent::Event),
    Free(String),
    Start,
    SenderEnds(u32),
    ReceiverEnds(u32, u64),
    Snapshot,
    End(Option<&'static str>),
}

struct Entry {
    at_ns: u64,
    seq: u64,
    item: Item,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        (self.at_ns, self.seq) == (other.at_ns, other.seq)
    }
}
impl Eq for Entry {}
impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Entry {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at_ns, self.seq).cmp(&(other.at_ns, other.seq))
    }
}

pub(crate) struct World {
    pub(crate) settings: Settings,
    pub(crate) random: Random,
    pub(crate) now_ns: u64,
    seq: u64,
    queue: BinaryHeap<Reverse<Entry>>,
    pub(crate) hosts: Vec<Host>,
    pub(crate) seats: Vec<Seat>,
    broker: Broker,
    replies: BTreeMap<u64, (usize, u64)>,
    next_reply: u64,
    /// Senders by number of the direction: the truth.
    pub(crate) senders: BTreeMap<u32, Sender>,
    pub(crate) placement: Placement,
    pub(crate) shown: Vec<(u64, Shown)>,
    pub(crate) results: Vec<(u64, RunResult)>,
    pub(crate) notes: Vec<(u64, String)>,
    pub(crate) agent_events: Vec<(u64, usize, String)>,
    pub(crate) events: u64,
    faults: usize,
    last_share_ns: u64,
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "at {:.3} s", self.now_ns as f64 / 1e9)?;
        for host in &self.hosts {
            let stage = host.agent.as_ref().map(|agent| agent.stage());
            writeln!(
                f,
                "  {}: {:?}, holds {:?}, crashes {}",
                host.name, stage, host.engine.held, host.crashes
            )?;
        }
        for (at, note) in &self.notes {
            writeln!(f, "  {:.3} s: {note}", *at as f64 / 1e9)?;
        }
        for (at, host, text) in &self.agent_events {
            writeln!(
                f,
                "  {:.3} s: {}: {text}",
                *at as f64 / 1e9,
                self.hosts[*host].name
            )?;
        }
        for (at, result) in &self.results {
            writeln!(
                f,
                "  {:.3} s: {:?} {:?} {:?}",
                *at as f64 / 1e9,
                result.end,
                result.problems,
                result.hosts
            )?;
        }
        Ok(())
    }
}

fn plan(settings: &Settings) -> Plan {
    let mut plan = Plan {
        interval: Span::from_nanos(settings.interval_ns),
        ..Plan::default()
    };
    let pairs = (0..settings.hosts / 2).map(|pair| (2 * pair, 2 * pair + 1, false));
    let jobs: Vec<_> = match settings.jobs.is_empty() {
        true => pairs.collect(),
        false => settings.jobs.clone(),
    };
    for (number, (from, to, bidir)) in jobs.into_iter().enumerate() {
        let ends = [("tx", from), ("rx", to)].map(|(word, host)| {
            let name = format!("{word}{number}");
            let locator = format!("h{host}:p{number}").parse().unwrap();
            plan.ports.push(PortPlan::new(&*name, locator));
            Some(name)
        });
        let [tx, rx] = ends;
        plan.traffic.push(TrafficJob {
            name: format!("t{number}"),
            tx,
            rx,
            bidir,
            duration: Some(Span::from_nanos(settings.duration_ns)),
            drain: Span::from_nanos(DRAIN_NS),
            streams: vec![Stream::default()],
            ..TrafficJob::default()
        });
    }
    plan
}

impl World {
    pub(crate) fn new(settings: Settings, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let clock = |random: &mut Random| {
            let range = |random: &mut Random, most: i64| {
                let most = u64::try_from(most).unwrap();
                i64::try_from(random.between(0, 2 * most)).unwrap() - i64::try_from(most).unwrap()
            };
            HostClock {
                offset_ns: range(random, settings.offset_ns),
                drift_ppm: range(random, settings.drift_ppm),
                booted_ns: random.between(SECOND, 1000 * SECOND),
            }
        };
        let hosts = (0..settings.hosts).map(|number| Host {
            name: format!("h{number}"),
            clock: clock(&mut random),
            agent: None,
            engine: Engine::default(),
            disk: BTreeMap::new(),
            start_count: 0,
            tick_ns: 0,
            is_cut: false,
            leased_ns: 0,
            armed_ns: None,
            crashes: 0,
        });
        let hosts: Vec<Host> = hosts.collect();
        let seats = (0..settings.controllers).map(|number| Seat {
            clock: clock(&mut random),
            leader: Leader::new(format!("c{number}"), String::new()),
            controller: None,
            is_up: false,
            starts: 0,
            stalled_until_ns: 0,
        });
        let seats: Vec<Seat> = seats.collect();
        let registrations: Vec<Registration> =
            hosts.iter().map(|host| registration(host, 1)).collect();
        let placement = place(&plan(&settings), &registrations, 1000).unwrap();
        let senders = placement.directions.iter().map(|d| {
            let sender = Sender {
                pps: settings.pps,
                lost_of: LOST_OF,
                ..Sender::default()
            };
            (d.first_flow, sender)
        });
        let mut world = Self {
            senders: senders.collect(),
            placement,
            settings,
            random,
            now_ns: 0,
            seq: 0,
            queue: BinaryHeap::new(),
            hosts,
            seats,
            broker: Broker::default(),
            replies: BTreeMap::new(),
            next_reply: 0,
            shown: Vec::new(),
            results: Vec::new(),
            notes: Vec::new(),
            agent_events: Vec::new(),
            events: 0,
            faults: 0,
            last_share_ns: 0,
        };
        for host in 0..world.hosts.len() {
            world.start_agent(host);
        }
        for seat in 0..world.seats.len() {
            world.start_controller(seat);
        }
        world
    }

    fn push(&mut self, after_ns: u64, item: Item) {
        let entry = Entry {
            at_ns: self.now_ns + after_ns,
            seq: self.seq,
            item,
        };
        self.seq += 1;
        self.queue.push(Reverse(entry));
    }

    pub(crate) fn fault_at(&mut self, at_ns: u64, fault: Fault) {
        self.faults += 1;
        self.push(at_ns - self.now_ns, Item::Fault(fault));
    }

    /// Returns true when no fault is left, the run is over everywhere, and every share is in the stream.
    pub(crate) fn is_quiet(&self) -> bool {
        let is_free = |host: &Host| {
            let agent = host.agent.as_ref();
            host.engine.held.is_none()
                && agent.is_none_or(|a| a.stage().is_none() && a.kept_shares() == 0)
        };
        self.faults == 0
            && self.now_ns > self.last_share_ns + SECOND
            && self
                .results
                .last()
                .is_some_and(|(at, _)| self.now_ns > at + 12 * SECOND)
            && self.hosts.iter().all(is_free)
    }

    /// Start of the run in true time, once it is set.
    pub(crate) fn start_ns(&self) -> Option<u64> {
        let seat = self.seats.iter().find(|seat| seat.controller.is_some())?;
        let start = seat.controller.as_ref()?.start()?;
        u64::try_from(seat.clock.when(start.at_wall_ns)).ok()
    }

    /// Delays of the copies of a message that arrive.
    fn fate(&mut self) -> Vec<u64> {
        let (least, most) = self.settings.delay_ns;
        if self.broker.is_down || self.random.chance(self.settings.loss) {
            return Vec::new();
        }
        let mut copies = vec![self.random.between(least, most)];
        if self.random.chance(self.settings.repeats) {
            copies.push(self.random.between(least, 10 * most));
        }
        copies
    }

    fn send_to_agent(&mut self, host: usize, event: agent::Event) {
        for delay in self.fate() {
            self.push(delay, Item::Agent(host, event.clone()));
        }
    }

    fn send_to_agents(&mut self, event: &agent::Event) {
        for host in 0..self.hosts.len() {
            self.send_to_agent(host, event.clone());
        }
    }

    fn send_to_controllers(&mut self, event: &controller::Event) {
        for seat in 0..self.seats.len() {
            for delay in self.fate() {
                self.push(delay, Item::Controller(seat, event.clone()));
            }
        }
    }

    /// Runs until a time, or until nothing happens any more. Panics with the state of the world if an invariant fails.
    pub(crate) fn run_until(&mut self, end_ns: u64) {
        self.run_while(end_ns, |_| true);
    }

    pub(crate) fn run_while(&mut self, end_ns: u64, goes: impl Fn(&Self) -> bool) {
        while goes(self) {
            let next = self.queue.peek().map(|Reverse(entry)| entry.at_ns);
            if next.is_none_or(|at| at > end_ns) {
                self.now_ns = end_ns;
                return;
            }
            let Some(Reverse(entry)) = self.queue.pop() else {
                return;
            };
            self.now_ns = entry.at_ns;
            self.events += 1;
            self.step(entry.item);
            if self.settings.checks {
                self.check();
            }
        }
    }

    fn step(&mut self, item: Item) {
        match item {
            Item::Agent(host, event) => {
                if !self.hosts[host].is_cut && self.hosts[host].agent.is_some() {
                    self.note_lease(host, &event);
                    self.agent_on(host, event);
                }
            }
            Item::AgentTick(host, start) => {
                let is_current = self.hosts[host].start_count == start;
                if is_current && self.now_ns == self.hosts[host].tick_ns {
                    self.agent_on(host, agent::Event::Tick);
                }
            }
            Item::Engine(host, start, work) => {
                if self.hosts[host].start_count == start && self.hosts[host].agent.is_some() {
                    self.work(host, work);
                }
            }
            Item::Controller(seat, event) => self.controller_on(seat, event),
            Item::ControllerTick(seat, starts) => {
                let now = self.seats[seat].clock.now(self.now_ns);
                let of = &self.seats[seat];
                if of.starts == starts && of.is_up {
                    let stalled = of.stalled_until_ns.saturating_sub(self.now_ns);
                    if stalled == 0 {
                        self.leader_on(seat, leader::Event::Tick);
                        self.controller_on(seat, controller::Event::Tick);
                    }
                    let over =
                        |of: &Controller| of.is_over(now) || of.stage() == controller::Stage::Over;
                    let is_over = self.seats[seat].controller.as_ref().is_some_and(over);
                    let rest = if is_over { SECOND } else { TICK_NS };
                    self.push(stalled.max(rest), Item::ControllerTick(seat, starts));
                }
            }
            Item::Leader(seat, event) => {
                if self.seats[seat].is_up {
                    self.leader_on(seat, event);
                }
            }
            Item::Store(seat, expected, entry) => self.store(seat, expected, entry),
            Item::Expire(revision) => self.expire(revision),
            Item::Share(seat, share) => {
                if self.broker.is_down {
                    self.push(100 * MS, Item::Share(seat, share));
                } else {
                    self.controller_on(seat, controller::Event::Share(share));
                }
            }
            Item::ToStream(host, share) => self.send_to_stream(host, *share),
            Item::Fault(fault) => self.fault(fault),
        }
    }
}

fn registration(host: &Host, start: u64) -> Registration {
    Registration {
        host: host.name.clone(),
        id: format!("{}-{start}", host.name),
        version: "0.1.0".to_owned(),
        protocol: 1,
        ..Registration::default()
    }
}

/// Agents and their engines.
impl World {
    fn start_agent(&mut self, number: usize) {
        let host = &mut self.hosts[number];
        host.start_count += 1;
        let settings = AgentSettings {
            host: host.name.clone(),
            id: format!("{}-{}", host.name, host.start_count),
            version: "0.1.0".to_owned(),
            powers: Vec::new(),
        };
        let shares = host.disk.values().cloned().collect();
        host.agent = Some(Agent::new(settings, shares, host.clock.now(self.now_ns)));
        host.engine = Engine::default();
        host.tick_ns = 0;
        self.agent_on(number, agent::Event::Tick);
    }

    fn kill_agent(&mut self, number: usize) {
        let host = &mut self.hosts[number];
        host.crashes += 1;
        host.agent = None;
        if let Some(part) = host.engine.part.take() {
            for out in &part.outs {
                let sender = self.senders.get_mut(&out.first_flow).unwrap();
                if sender.stopped_ns.is_none() && sender.first_ns.is_some() {
                    sender.stopped_ns = Some(self.now_ns);
                }
            }
        }
        host.engine = Engine::default();
    }

    /// Notes when a message that renews the lease arrived, to check the agent independently.
    fn note_lease(&mut self, host: usize, event: &agent::Event) {
        if matches!(event, agent::Event::Start(_) | agent::Event::Lease { .. }) {
            self.hosts[host].leased_ns = self.now_ns;
        }
    }

    fn agent_on(&mut self, number: usize, event: agent::Event) {
        let now = self.hosts[number].clock.now(self.now_ns);
        let Some(agent) = &mut self.hosts[number].agent else {
            return;
        };
        let actions = agent.on(event, now);
        for action in actions {
            self.agent_does(number, action);
        }
        let host = &mut self.hosts[number];
        let Some(agent) = &host.agent else { return };
        let next_ns = self.now_ns + agent.next_ns().saturating_sub(now.mono_ns).max(MS / 10);
        if host.tick_ns <= self.now_ns || next_ns < host.tick_ns {
            host.tick_ns = next_ns;
            let start = host.start_count;
            self.push(next_ns - self.now_ns, Item::AgentTick(number, start));
        }
    }

    fn later(&mut self, host: usize, after_ns: u64, work: Work) {
        let start = self.hosts[host].start_count;
        self.push(after_ns, Item::Engine(host, start, work));
    }

    fn agent_does(&mut self, number: usize, action: agent::Action) {
        use agent::Action;
        let name = self.hosts[number].name.clone();
        match action {
            Action::Reply { to, reply } => self.reply(number, to, reply),
            Action::Publish { subject, message } => self.agent_publishes(number, subject, message),
            Action::Open(open) => {
                let took = self.random.between(MS, 30 * MS);
                let refused = self.random.chance(self.settings.refusals);
                let engine = &mut self.hosts[number].engine;
                assert_eq!(engine.held, None, "{name} opens ports that are held");
                let run = open.run.clone();
                let result = if refused {
                    Err(Refused::new(
                        RefusedKind::Machine,
                        name,
                        "no such interface",
                    ))
                } else {
                    engine.held = Some(run.clone());
                    engine.part = Some(Part::new(&run, &name, &open.plan, &open.directions));
                    let ports = open.plan.ports.iter().map(|port| OpenedPort {
                        name: port.name.clone(),
                        ..OpenedPort::default()
                    });
                    Ok(Opened {
                        ports: ports.collect(),
                        ..Opened::default()
                    })
                };
                let event = agent::Event::Opened { run, result };
                self.later(number, took, Work::Report(event));
            }
            Action::Resolve { run } => {
                let took = self.random.between(MS, 300 * MS);
                let part = self.hosts[number].engine.part.as_ref().unwrap();
                let ins = part.ins.values().map(|(d, _)| d);
                let flows = part.outs.iter().chain(ins).map(|d| DirectionFlows {
                    direction: d.name.clone(),
                    first: d.first_flow,
                    count: d.flows,
                });
                let result = Ok(Armed {
                    lead_ns: 30 * MS,
                    flows: flows.collect(),
                    ..Armed::default()
                });
                let event = agent::Event::Armed { run, result };
                self.later(number, took, Work::Report(event));
            }
            Action::StartAt { wall_ns, .. } => {
                let start_ns = self.hosts[number].clock.when(wall_ns);
                let after = start_ns - i64::try_from(self.now_ns).unwrap();
                let after = u64::try_from(after).expect("the agent checks that the start is ahead");
                self.later(number, after, Work::Start);
            }
            Action::Drain { .. } => self.drain(number, false),
            Action::StopNow { .. } => self.drain(number, true),
            Action::PeerSent { sent, .. } => {
                let frames: u64 = sent.streams.iter().filter_map(|s| s.offered_frames).sum();
                self.peer_ends(number, sent.direction, Some(frames));
            }
            Action::PeerLost { direction, .. } => self.peer_ends(number, direction, None),
            Action::Release { run } => self.later(number, MS, Work::Free(run)),
            Action::StoreShare(share) => {
                self.hosts[number].disk.insert(share.run.clone(), *share);
            }
            Action::RemoveShare { run } => {
                self.hosts[number].disk.remove(&run);
            }
        }
    }

    fn agent_publishes(&mut self, number: usize, subject: Subject, message: agent::Published) {
        let host = self.hosts[number].name.clone();
        if self.hosts[number].is_cut {
            return;
        }
        match message {
            agent::Published::Alive(alive) => {
                self.send_to_controllers(&controller::Event::Alive { host, alive });
            }
            agent::Published::Snap(snap) => {
                self.send_to_controllers(&controller::Event::Snap { host, snap });
            }
            agent::Published::Event(event) => {
                self.agent_events
                    .push((self.now_ns, number, event.text.clone()));
                self.send_to_controllers(&controller::Event::Agent { host, event });
            }
            agent::Published::Sent(message) => {
                let Subject::Sent {
                    run, to, direction, ..
                } = subject
                else {
                    panic!("{subject} for the end of a sender");
                };
                let event = agent::Event::Sent {
                    run,
                    host,
                    direction,
                    message,
                };
                self.send_to_agent(to[1..].parse().unwrap(), event);
            }
            agent::Published::Share(share) => {
                for delay in self.fate() {
                    self.push(delay, Item::ToStream(number, share.clone()));
                }
            }
        }
    }

    fn send_to_stream(&mut self, host: usize, share: ShareMessage) {
        if self.broker.is_down {
            return;
        }
        let run = share.run.clone();
        let is_known = self
            .broker
            .shares
            .iter()
            .any(|known| known.host == share.host && known.run == run);
        if !is_known {
            // Shares go through their bytes.
            let share: ShareMessage = decode(&encode(&share).unwrap()).unwrap();
            self.broker.shares.push(share.clone());
            self.last_share_ns = self.now_ns;
            for seat in 0..self.seats.len() {
                self.push(MS, Item::Share(seat, Box::new(share.clone())));
            }
        }
        self.send_to_agent(host, agent::Event::Acknowledged { run });
    }

    fn work(&mut self, number: usize, work: Work) {
        match work {
            Work::Report(event) => {
                if let agent::Event::Opened {
                    run,
                    result: Err(_),
                } = &event
                {
                    let run = run.clone();
                    self.free(number, &run);
                }
                if matches!(event, agent::Event::Armed { result: Ok(_), .. }) {
                    self.hosts[number].armed_ns = Some(self.now_ns);
                }
                self.agent_on(number, event);
            }
            Work::Free(run) => self.free(number, &run),
            Work::Start => self.start_part(number),
            Work::SenderEnds(direction) => self.sender_ends(number, direction),
            Work::ReceiverEnds(direction, at_ns) => {
                let Some(part) = &mut self.hosts[number].engine.part else {
                    return;
                };
                let Some((_, receiver)) = part.ins.get_mut(&direction) else {
                    return;
                };
                if receiver.ends_ns == Some(at_ns) {
                    receiver.ended = true;
                    self.end_if_done(number);
                }
            }
            Work::Snapshot => self.snapshot(number),
            Work::End(fault) => {
                let host = &self.hosts[number];
                let Some(part) = &host.engine.part else {
                    return;
                };
                let share = part.share(&self.senders, self.now_ns, fault);
                let event = agent::Event::Ended {
                    run: part.run.clone(),
                    share: Box::new(share),
                };
                self.agent_on(number, event);
            }
        }
    }

    fn free(&mut self, number: usize, run: &str) {
        let engine = &mut self.hosts[number].engine;
        if engine.held.as_deref() == Some(run) {
            if let Some(part) = engine.part.take() {
                for out in &part.outs {
                    let sender = &self.senders[&out.first_flow];
                    assert!(!sender.is_sending(), "released while sending");
                }
            }
            engine.held = None;
        }
    }

    fn start_part(&mut self, number: usize) {
        let (duration, interval) = (self.settings.duration_ns, self.settings.interval_ns);
        let Some(part) = &mut self.hosts[number].engine.part else {
            return;
        };
        if part.has_ended || part.stopped {
            return;
        }
        part.started_ns = Some(self.now_ns);
        let outs: Vec<u32> = part.outs.iter().map(|out| out.first_flow).collect();
        let ins: Vec<u32> = part.ins.keys().copied().collect();
        for out in outs {
            self.senders.get_mut(&out).unwrap().first_ns = Some(self.now_ns);
            self.later(number, duration, Work::SenderEnds(out));
        }
        for of in ins {
            self.receiver_until(number, of, duration + DRAIN_NS + GRACE_NS, None);
        }
        self.later(number, interval, Work::Snapshot);
    }

    fn receiver_until(&mut self, number: usize, direction: u32, after_ns: u64, sent: Option<u64>) {
        let ends_ns = self.now_ns + after_ns;
        let Some(part) = &mut self.hosts[number].engine.part else {
            return;
        };
        let Some((_, receiver)) = part.ins.get_mut(&direction) else {
            return;
        };
        if !receiver.ended {
            receiver.ends_ns = Some(ends_ns);
            receiver.sent = receiver.sent.or(sent);
            self.later(number, after_ns, Work::ReceiverEnds(direction, ends_ns));
        }
    }

    fn peer_ends(&mut self, number: usize, direction: u32, sent: Option<u64>) {
        self.receiver_until(number, direction, DRAIN_NS, sent);
    }

    fn sender_ends(&mut self, number: usize, direction: u32) {
        let wall_ns = self.hosts[number].clock.wall(self.now_ns);
        let sender = self.senders.get_mut(&direction).unwrap();
        let Some(part) = &self.hosts[number].engine.part else {
            return;
        };
        if sender.stopped_ns.is_some() {
            return;
        }
        sender.stopped_ns = Some(self.now_ns);
        sender.first_ns = sender.first_ns.or(Some(self.now_ns));
        let sent = part.sent(direction, &self.senders, self.now_ns, wall_ns);
        let run = part.run.clone();
        if part.ins.contains_key(&direction) {
            let frames = self.senders[&direction].departed(self.now_ns);
            self.peer_ends(number, direction, Some(frames));
        } else {
            self.agent_on(number, agent::Event::SenderEnded { run, sent });
        }
        self.end_if_done(number);
    }

    fn end_if_done(&mut self, number: usize) {
        let Some(part) = &mut self.hosts[number].engine.part else {
            return;
        };
        if !part.has_ended && part.is_done(&self.senders) {
            part.has_ended = true;
            self.later(number, 5 * MS, Work::End(None));
        }
    }

    fn drain(&mut self, number: usize, now: bool) {
        let Some(part) = &mut self.hosts[number].engine.part else {
            return;
        };
        part.stopped = true;
        let outs: Vec<u32> = part.outs.iter().map(|out| out.first_flow).collect();
        let ins: Vec<u32> = part.ins.keys().copied().collect();
        for out in outs {
            self.sender_ends(number, out);
        }
        for of in ins {
            let known = self.hosts[number]
                .engine
                .part
                .as_ref()
                .and_then(|part| part.ins[&of].1.sent);
            match (now, known) {
                (true, _) => self.receiver_until(number, of, 0, None),
                (false, None) => self.receiver_until(number, of, DRAIN_NS + GRACE_NS, None),
                (false, Some(_)) => {}
            }
        }
        self.end_if_done(number);
    }

    fn fail_port(&mut self, number: usize) {
        let Some(part) = &mut self.hosts[number].engine.part else {
            return;
        };
        if part.started_ns.is_none() || part.has_ended {
            return;
        }
        part.has_ended = true;
        let outs: Vec<u32> = part.outs.iter().map(|out| out.first_flow).collect();
        for out in outs {
            self.sender_ends(number, out);
        }
        self.later(number, MS, Work::End(Some("port p vanished")));
    }

    fn snapshot(&mut self, number: usize) {
        let interval = self.settings.interval_ns;
        let wall_ns = self.hosts[number].clock.wall(self.now_ns);
        let Some(part) = &mut self.hosts[number].engine.part else {
            return;
        };
        if part.has_ended || part.started_ns.is_none() {
            return;
        }
        let snap = part.snapshot(interval, &self.senders, self.now_ns, wall_ns);
        let run = part.run.clone();
        self.later(number, interval, Work::Snapshot);
        let snap = Box::new(snap);
        self.agent_on(number, agent::Event::Snapshot { run, snap });
    }
}

/// Controllers, their leadership and the broker.
impl World {
    fn start_controller(&mut self, number: usize) {
        let seat = &mut self.seats[number];
        seat.starts += 1;
        seat.is_up = true;
        seat.leader = Leader::new(format!("c{number}"), format!("c{number}-{}", seat.starts));
        seat.controller = None;
        let starts = seat.starts;
        self.push(TICK_NS, Item::ControllerTick(number, starts));
        if self.broker.is_down {
            return;
        }
        let event = match self.broker.leader.clone() {
            Some((revision, entry)) => leader::Event::Entry { revision, entry },
            None => leader::Event::Empty,
        };
        self.push(MS, Item::Leader(number, event));
    }

    fn leader_on(&mut self, seat: usize, event: leader::Event) {
        let now_ns = self.seats[seat].clock.now(self.now_ns).mono_ns;
        for action in self.seats[seat].leader.on(event, now_ns) {
            match action {
                leader::Action::Put { expected, entry } => {
                    self.push(MS, Item::Store(seat, expected, entry));
                }
                leader::Action::Lead { epoch } => self.lead(seat, epoch),
                leader::Action::StepDown => self.seats[seat].controller = None,
            }
        }
    }

    fn lead(&mut self, number: usize, epoch: u64) {
        let now = self.seats[number].clock.now(self.now_ns);
        let (controller, actions) = match self.broker.record.clone() {
            Some(record) => {
                let record: RunRecord = decode(&encode(&record).unwrap()).unwrap();
                Controller::adopt(record, epoch, now)
            }
            None => {
                let registrations = self
                    .hosts
                    .iter()
                    .map(|host| registration(host, host.start_count));
                let registrations: Vec<Registration> = registrations.collect();
                let settings = RunSettings {
                    run: "r1".to_owned(),
                    controller: format!("c{number}"),
                    lease_ns: self.settings.lease_ns,
                    interval_ns: self.settings.interval_ns,
                    min_agents: self.settings.min_agents,
                    max_clock_error_ns: self.settings.max_clock_error_ns,
                    planned_ns: Some(self.settings.duration_ns + DRAIN_NS),
                    drain_ns: DRAIN_NS,
                    ..RunSettings::default()
                };
                Controller::new(settings, epoch, self.placement.clone(), &registrations, now)
            }
        };
        self.seats[number].controller = Some(controller);
        for share in self.broker.shares.clone() {
            self.push(MS, Item::Share(number, Box::new(share)));
        }
        for action in actions {
            self.controller_does(number, action);
        }
    }

    fn store(&mut self, seat: usize, expected: Option<u64>, entry: LeaderEntry) {
        let current = self.broker.leader.as_ref().map(|(revision, _)| *revision);
        let event = if self.broker.is_down || current != expected {
            leader::Event::NotStored
        } else {
            self.broker.revision += 1;
            let revision = self.broker.revision;
            self.broker.leader = Some((revision, entry.clone()));
            self.push(LEADER_TTL_NS, Item::Expire(revision));
            for other in 0..self.seats.len() {
                let entry = entry.clone();
                self.push(
                    MS,
                    Item::Leader(other, leader::Event::Entry { revision, entry }),
                );
            }
            leader::Event::Stored { revision }
        };
        self.push(MS, Item::Leader(seat, event));
    }

    fn expire(&mut self, revision: u64) {
        if self.broker.is_down {
            return self.push(100 * MS, Item::Expire(revision));
        }
        if self
            .broker
            .leader
            .as_ref()
            .is_some_and(|(current, _)| *current == revision)
        {
            self.broker.leader = None;
            for seat in 0..self.seats.len() {
                self.push(MS, Item::Leader(seat, leader::Event::Empty));
            }
        }
    }

    fn controller_on(&mut self, number: usize, event: controller::Event) {
        let seat = &mut self.seats[number];
        if !seat.is_up {
            return;
        }
        if seat.stalled_until_ns > self.now_ns {
            let after = seat.stalled_until_ns - self.now_ns;
            return self.push(after, Item::Controller(number, event));
        }
        let now = seat.clock.now(self.now_ns);
        let Some(controller) = &mut seat.controller else {
            return;
        };
        for action in controller.on(event, now) {
            self.controller_does(number, action);
        }
    }

    fn controller_does(&mut self, number: usize, action: controller::Action) {
        use controller::{Action, Published};
        match action {
            Action::Request { host, id, request } => {
                let reply = self.next_reply;
                self.next_reply += 1;
                self.replies.insert(reply, (number, id));
                let host = host[1..].parse().unwrap();
                self.send_to_agent(host, agent::Event::Request { reply, request });
            }
            Action::Publish { subject, message } => {
                let run = subject.run().unwrap().to_owned();
                let event = match message {
                    Published::Start(start) => agent::Event::Start(start),
                    Published::Lease(lease) => agent::Event::Lease { run, lease },
                    Published::Stop(stop) => agent::Event::Stop { run, stop },
                };
                self.send_to_agents(&event);
            }
            Action::MeasureClocks { hosts } => {
                for host in hosts {
                    self.measure_clock(number, host[1..].parse().unwrap());
                }
            }
            Action::Show(shown) => self.shown.push((self.now_ns, *shown)),
            Action::Store(record) => self.broker.record = Some(*record),
            Action::Note(text) => self.notes.push((self.now_ns, text)),
            Action::Finish(result) => self.results.push((self.now_ns, *result)),
        }
    }

    /// Exchanges with random, unequal delays of both directions.
    fn measure_clock(&mut self, seat: usize, host: usize) {
        if self.hosts[host].agent.is_none() || self.hosts[host].is_cut || self.broker.is_down {
            return;
        }
        let (near, far) = (self.seats[seat].clock, self.hosts[host].clock);
        let mut at_ns = self.now_ns;
        let exchanges: Vec<Exchange> = (0..4)
            .map(|_| {
                let there = self.random.between(10_000, 200_000);
                let back = self.random.between(10_000, 200_000);
                let sent_ns = at_ns;
                at_ns += there + back + 5_000;
                Exchange {
                    sent_ns: near.wall(sent_ns),
                    far_received_ns: far.wall(sent_ns + there),
                    far_sent_ns: far.wall(sent_ns + there + 5_000),
                    received_ns: near.wall(at_ns),
                }
            })
            .collect();
        let estimate = Estimate::best(&exchanges).unwrap();
        let event = controller::Event::Clock {
            host: self.hosts[host].name.clone(),
            estimate,
            exchanges: exchanges.len(),
        };
        self.push(at_ns - self.now_ns, Item::Controller(seat, event));
    }

    fn reply(&mut self, number: usize, to: u64, reply: Reply) {
        let Some((seat, id)) = self.replies.get(&to).copied() else {
            return;
        };
        // Replies go through their bytes.
        let reply: Reply = decode(&encode(&reply).unwrap()).unwrap();
        if let Answer::Refused(refused) = &reply.answer {
            let text = format!("refused: {:?}", refused.problems);
            self.agent_events.push((self.now_ns, number, text));
        }
        if self.hosts[number].is_cut {
            return;
        }
        let host = self.hosts[number].name.clone();
        let event = controller::Event::Reply {
            host,
            id,
            answer: reply.answer,
        };
        for delay in self.fate() {
            self.push(delay, Item::Controller(seat, event.clone()));
        }
    }

    fn fault(&mut self, fault: Fault) {
        self.faults -= 1;
        match fault {
            Fault::KillAgent(host) => self.kill_agent(host),
            Fault::StartAgent(host) => {
                if self.hosts[host].agent.is_none() {
                    self.start_agent(host);
                }
            }
            Fault::KillController(seat) => {
                self.seats[seat].is_up = false;
                self.seats[seat].controller = None;
            }
            Fault::StartController(seat) => {
                if !self.seats[seat].is_up {
                    self.start_controller(seat);
                }
            }
            Fault::KillBroker => self.broker.is_down = true,
            Fault::StartBroker => {
                self.broker.is_down = false;
                for seat in 0..self.seats.len() {
                    let event = match self.broker.leader.clone() {
                        Some((revision, entry)) => leader::Event::Entry { revision, entry },
                        None => leader::Event::Empty,
                    };
                    self.push(MS, Item::Leader(seat, event));
                }
            }
            Fault::Cut(host) => self.hosts[host].is_cut = true,
            Fault::Join(host) => self.hosts[host].is_cut = false,
            Fault::Stop(how) => {
                for seat in 0..self.seats.len() {
                    self.controller_on(seat, controller::Event::Stop(how));
                }
            }
            Fault::Stall(seat, ns) => self.seats[seat].stalled_until_ns = self.now_ns + ns,
            Fault::FailPort(host) => self.fail_port(host),
        }
    }
}

/// Invariants.
impl World {
    /// Checks what holds at every moment: senders send within their lease, and after everyone was armed.
    fn check(&self) {
        for host in &self.hosts {
            let Some(part) = &host.engine.part else {
                continue;
            };
            let sends = part
                .outs
                .iter()
                .any(|out| self.senders[&out.first_flow].is_sending());
            if sends {
                let until = host.leased_ns + self.settings.lease_ns + 100 * MS;
                assert!(
                    self.now_ns <= until,
                    "{} sends without a lease\n{self:?}",
                    host.name
                );
                assert!(
                    host.agent.is_some(),
                    "{} sends without an agent\n{self:?}",
                    host.name
                );
            }
        }
        if let Some((_, shown)) = self.shown.last() {
            let totals = &shown.snapshot.totals;
            assert!(totals.adds_up(), "{totals:?}\n{self:?}");
        }
    }

    /// Distance of the first frame of a host from the start of the run, in ns, with the error that the controller states.
    pub(crate) fn start_errors(&self) -> Vec<(String, i64, u64)> {
        let seat = self
            .seats
            .iter()
            .find(|seat| seat.controller.is_some())
            .unwrap();
        let controller = seat.controller.as_ref().unwrap();
        let start = controller.start().unwrap();
        let planned = seat.clock.when(start.at_wall_ns);
        let of = |d: &wb_fleet_core::message::Direction| {
            let first = i64::try_from(self.senders[&d.first_flow].first_ns?).unwrap();
            let error = controller.offset(&d.from, start.at_wall_ns)?.error_ns;
            Some((d.from.clone(), first - planned, error))
        };
        self.placement.directions.iter().filter_map(of).collect()
    }

    /// Checks the end of a run: a result exists, nothing is counted twice or invented, and all ports are free.
    pub(crate) fn check_end(&self) {
        assert!(!self.results.is_empty(), "the run did not end\n{self:?}");
        for host in &self.hosts {
            assert_eq!(
                host.engine.held, None,
                "{} holds its ports\n{self:?}",
                host.name
            );
            let stage = host.agent.as_ref().and_then(|agent| agent.stage());
            assert_eq!(stage, None, "{} is not free\n{self:?}", host.name);
        }
        for (_, result) in &self.results {
            self.check_result(result);
        }
        let mut last = (0, 0);
        for (_, shown) in &self.shown {
            let totals = &shown.snapshot.totals;
            let now = (
                totals.offered_frames.unwrap_or(0),
                totals.received_frames.unwrap_or(0),
            );
            let missing = shown.snapshot.missing_frames.unwrap_or(0);
            assert!(missing <= now.0, "{shown:?}");
            assert!(last.0 <= now.0, "the counts fall: {last:?} {shown:?}");
            if shown.snapshot.hosts_late.is_empty() && shown.snapshot.hosts_lost.is_empty() {
                // The hosts read their counts at the same time, up to the error of their clocks.
                let error = self.settings.pps / 1000 + 1;
                assert!(
                    now.1 <= now.0 + error * self.senders.len() as u64,
                    "{shown:?}"
                );
            }
            last = now;
        }
    }

    fn check_result(&self, result: &RunResult) {
        let mut hosts: Vec<&str> = result.shares.iter().map(|share| &*share.host).collect();
        hosts.sort_unstable();
        let count = hosts.len();
        hosts.dedup();
        assert_eq!(hosts.len(), count, "a share is counted twice\n{self:?}");
        let share_of = |host: &str| result.shares.iter().find(|share| share.host == host);
        for share in &result.shares {
            assert!(share.share.report.totals.adds_up(), "{share:?}");
        }
        for direction in &self.placement.directions {
            let truth = &self.senders[&direction.first_flow];
            let (from, to) = (share_of(&direction.from), share_of(&direction.to));
            if let Some(from) = from {
                let sent = &from.share.sent[&direction.first_flow];
                let frames: u64 = sent.streams.iter().filter_map(|s| s.offered_frames).sum();
                assert_eq!(frames, truth.departed(u64::MAX), "{direction:?}\n{self:?}");
            }
            let started = result.started_wall_ns.is_some();
            if started && !result.incomplete.contains_key(&direction.first_flow) {
                let (from, to) = (
                    from.unwrap_or_else(|| {
                        panic!("no share for {direction:?} {result:?}\n{self:?}")
                    }),
                    to.unwrap_or_else(|| panic!("no share for {direction:?}\n{self:?}")),
                );
                let ends = [&from.share.end, &to.share.end];
                let is_whole = ends
                    .iter()
                    .all(|end| matches!(end, ShareEnd::Finished | ShareEnd::Stopped));
                assert!(is_whole, "{direction:?} is not complete\n{self:?}");
            }
        }
    }

    /// Sender of the n-th direction.
    pub(crate) fn sender(&self, number: usize) -> &Sender {
        &self.senders[&self.placement.directions[number].first_flow]
    }

    /// Frames of a direction that were lost under way.
    pub(crate) fn truly_lost(&self, number: usize) -> u64 {
        let sent = self.sender(number).departed(u64::MAX);
        sent - self.sender(number).arriving(sent)
    }

    /// Reason for which a direction is incomplete in the last result.
    pub(crate) fn why_incomplete(&self, number: usize) -> Option<&str> {
        let (_, result) = self.results.last()?;
        result
            .incomplete
            .get(&self.placement.directions[number].first_flow)
            .map(|why| &**why)
    }

    /// Lost frames of a direction by the shares of the last result; `None` if unknown.
    pub(crate) fn lost(&self, number: usize) -> Option<u64> {
        let (_, result) = self.results.last()?;
        let direction = &self.placement.directions[number];
        if result.incomplete.contains_key(&direction.first_flow) {
            return None;
        }
        let to = result
            .shares
            .iter()
            .find(|share| share.host == direction.to)?;
        to.share.report.totals.lost_frames
    }
}
