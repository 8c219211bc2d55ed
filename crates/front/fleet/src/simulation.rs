//! Many agents in one process, to see how a fleet grows: each has its connection to the broker and the whole agent, and an
//! engine that counts by arithmetic and sends nothing.

use std::{
    collections::BTreeMap,
    io,
    str::FromStr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        mpsc::{RecvTimeoutError, Sender as ChannelSender, channel},
    },
    time::{Duration, Instant},
};

use wb_fleet_core::{
    message::{
        Armed, DirectionFlows, Open, Opened, OpenedPort, PROTOCOL, Refused, RefusedKind,
        RegisteredPort, Registration,
    },
    simulation::{GRACE_NS, Part, Sender, Senders},
};
use wb_machine::clock::{monotonic_ns, wall_ns};
use wb_model::{
    Plan, TrafficJob,
    peer::{PairClock, Sent},
    plan::PLAN_SCHEMA,
    units::{Rational, SizeModel, Span, parse_count, parse_number},
};
use wb_session::Signals;

use crate::{
    agent::{Input, Inputs, Opener, Process, listen_for_others},
    bus::{Bus, Threads},
    clock::HostClock,
    pki::Access,
    wire,
    work::{Engine, PartNews, Tell},
};

/// Maximum number of agents of a process.
const MOST_AGENTS: u64 = 10_000;
/// Name of the port of each agent.
const PORT: &str = "t0";
/// Line rate of the ports in bits per second.
const LINE: u64 = 10_000_000_000;
/// Size of the smallest Ethernet frame with FCS, in bytes.
const SMALLEST: Rational = Rational::whole(64);
/// Time that engines need from the start message to the first frame, in ns.
const LEAD_NS: u64 = 30_000_000;
/// Time until a killed agent starts again.
const RESTART: Duration = Duration::from_secs(5);
/// Longest time without a check of the signals.
const LOOK: Duration = Duration::from_millis(100);
/// Inputs that are taken before the clock is read again.
const BURST: usize = 256;

/// Agents of a simulation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Simulation {
    /// Number of agents.
    pub agents: usize,
    /// Maximum difference of their clocks to that of the machine, in ns.
    pub offset_ns: i64,
    /// Maximum drift of their clocks, in parts per billion.
    pub drift_ppb: i64,
    /// One of this number of frames is lost under way; 0: none is.
    pub lost_of: u64,
    /// Agents that are killed in a minute, one after another. They start again after 5 s.
    pub kills_per_minute: u64,
}

impl FromStr for Simulation {
    type Err = String;

    /// Reads `1000` or `1000,offset=50ms,drift=20ppm,loss=0.1%,kill=10/min`.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut words = text.split(',');
        let agents = words.next().unwrap_or_default();
        let agents = parse_count(agents).map_err(|e| e.to_string())?;
        if !(1..=MOST_AGENTS).contains(&agents) {
            return Err(format!("1 to {MOST_AGENTS} agents are possible"));
        }
        let mut all = Self {
            agents: usize::try_from(agents).unwrap_or(usize::MAX),
            offset_ns: 0,
            drift_ppb: 0,
            lost_of: 0,
            kills_per_minute: 0,
        };
        for word in words {
            let wrong = || {
                format!(
                    "{word:?} is not one of offset=TIME, drift=NUMBERppm, loss=NUMBER%, kill=NUMBER/min"
                )
            };
            let number = |value: &str, unit: &str, most: f64| {
                let value = parse_number(value.strip_suffix(unit)?).ok()?.as_f64();
                (value <= most).then_some(value)
            };
            let mut read = || {
                let (key, value) = word.split_once('=')?;
                #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
                match key {
                    "offset" => {
                        let span: Span = value.parse().ok()?;
                        all.offset_ns = i64::try_from(span.as_nanos()).ok()?;
                    }
                    "drift" => all.drift_ppb = (number(value, "ppm", 1e6)? * 1000.0) as i64,
                    "loss" => {
                        let percent = number(value, "%", 100.0)?;
                        all.lost_of = match percent > 0.0 {
                            true => (100.0 / percent).round() as u64,
                            false => 0,
                        };
                    }
                    "kill" => all.kills_per_minute = number(value, "/min", 1e4)? as u64,
                    _ => return None,
                }
                Some(())
            };
            read().ok_or_else(wrong)?;
        }
        Ok(all)
    }
}

/// Lets the agents take part in a fleet until a signal arrives. Their hosts are named `NAME1`, `NAME2` and so on by the
/// name in `access`, and each has a port `t0`.
///
/// # Errors
/// If the broker cannot be reached, or another agent has one of the names.
pub fn run(
    simulation: &Simulation,
    access: &Access,
    labels: &BTreeMap<String, String>,
    say: fn(&str),
    signals: &Signals,
) -> io::Result<()> {
    let threads = Threads::start(access)?;
    let world = Arc::new(World::default());
    let (sender, arrivals) = channel();
    let seat = |number: usize| Seat {
        number,
        access: Access {
            name: format!("{}{}", access.name, number + 1),
            ..access.clone()
        },
        clock: simulation.clock(),
        labels,
        lost_of: simulation.lost_of,
        world: &world,
        inputs: &sender,
    };
    let seats: Vec<Seat<'_>> = (0..simulation.agents).map(seat).collect();
    let buses: Vec<Bus> = seats
        .iter()
        .map(|seat| seat.connect(&threads))
        .collect::<io::Result<_>>()?;
    let members = buses
        .iter()
        .zip(&seats)
        .map(|(bus, seat)| (bus, &*seat.access.name));
    listen_for_others(members, &arrivals, signals)?;
    let mut hosts = Vec::new();
    for (bus, seat) in buses.into_iter().zip(&seats) {
        hosts.push(Some(seat.process(bus)?));
    }
    say(&format!(
        "{} simulated agents are ready: {} to {}",
        hosts.len(),
        seats[0].access.name,
        seats[seats.len() - 1].access.name
    ));
    let kill_every = Duration::from_secs(60)
        .checked_div(u32::try_from(simulation.kills_per_minute).unwrap_or(u32::MAX));
    let mut next_kill = kill_every.map(|every| Instant::now() + every);
    let mut killed: Vec<(usize, Instant)> = Vec::new();
    let due_of = |host: &Option<Process<'_>>| host.as_ref().map_or(u64::MAX, Process::next_ns);
    let mut due: Vec<u64> = hosts.iter().map(due_of).collect();
    while signals.interrupted().is_none() {
        let next_ns = due.iter().copied().min().unwrap_or(u64::MAX);
        let wait = Duration::from_nanos(next_ns.saturating_sub(monotonic_ns()));
        let mut input = match arrivals.recv_timeout(wait.min(LOOK)) {
            Ok(input) => Some(input),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => break,
        };
        let mut taken = 0;
        while let Some((number, news)) = input {
            if let Some(host) = &mut hosts[number] {
                host.take(news);
                due[number] = host.next_ns();
            }
            taken += 1;
            input = match taken < BURST {
                true => arrivals.try_recv().ok(),
                false => None,
            };
        }
        let now = monotonic_ns();
        for (host, due) in hosts.iter_mut().zip(&mut due) {
            if let Some(host) = host
                && *due <= now
            {
                host.tick();
                *due = host.next_ns();
            }
        }
        if let (Some(at), Some(every)) = (next_kill, kill_every)
            && Instant::now() >= at
        {
            next_kill = Some(at + every);
            let number = usize::try_from(random()).unwrap_or(0) % hosts.len();
            if hosts[number].take().is_some() {
                say(&format!("{} is killed", seats[number].access.name));
                due[number] = u64::MAX;
                killed.push((number, Instant::now() + RESTART));
            }
        }
        let starts = killed.extract_if(.., |(_, at)| Instant::now() >= *at);
        for (number, _) in starts {
            let bus = seats[number].connect(&threads)?;
            let host = seats[number].process(bus)?;
            due[number] = host.next_ns();
            hosts[number] = Some(host);
            say(&format!("{} starts again", seats[number].access.name));
        }
    }
    Ok(())
}

impl Simulation {
    /// The clock of an agent.
    fn clock(&self) -> HostClock {
        if self.offset_ns == 0 && self.drift_ppb == 0 {
            return HostClock::default();
        }
        HostClock {
            offset_ns: between(self.offset_ns),
            drift_ppb: between(self.drift_ppb),
            since_ns: monotonic_ns(),
        }
    }
}

/// A random number.
fn random() -> u64 {
    wire::random_id().map_or(0, |id| u64::from_str_radix(&id, 16).unwrap_or(0))
}

/// A random number from `-most` to `most`.
fn between(most: i64) -> i64 {
    let range = 2 * most.unsigned_abs() + 1;
    i64::try_from(random() % range).unwrap_or(0) - most
}

/// Senders of all runs.
#[derive(Default)]
struct World {
    runs: Mutex<BTreeMap<String, Weak<Mutex<Senders>>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl World {
    /// Senders of a run, which live as long as one of its parts.
    fn senders(&self, run: &str) -> Arc<Mutex<Senders>> {
        let mut runs = lock(&self.runs);
        if let Some(known) = runs.get(run).and_then(Weak::upgrade) {
            return known;
        }
        runs.retain(|_, senders| senders.strong_count() > 0);
        let senders = Arc::default();
        runs.insert(run.to_owned(), Arc::downgrade(&senders));
        senders
    }
}

/// Place of an agent, which stays when it is killed.
struct Seat<'a> {
    number: usize,
    access: Access,
    clock: HostClock,
    labels: &'a BTreeMap<String, String>,
    lost_of: u64,
    world: &'a Arc<World>,
    inputs: &'a ChannelSender<(usize, Input)>,
}

impl Seat<'_> {
    fn inputs(&self) -> Inputs {
        let (inputs, number) = (self.inputs.clone(), self.number);
        Arc::new(move |input| {
            let _ = inputs.send((number, input));
        })
    }

    fn connect(&self, threads: &Threads) -> io::Result<Bus> {
        let inputs = self.inputs();
        let news = Arc::new(move |news| inputs(Input::Bus(news)));
        Bus::connect_with(threads, &self.access, news)
    }

    /// Starts the agent with a connection.
    fn process(&self, bus: Bus) -> io::Result<Process<'static>> {
        let registration = Registration {
            host: self.access.name.clone(),
            id: wire::random_id()?,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            protocol: PROTOCOL,
            plan_schemas: vec![PLAN_SCHEMA.to_owned()],
            kernel: "simulated".to_owned(),
            // One machine has one clock, unless the simulation changes it.
            boot: match self.clock == HostClock::default() {
                true => wb_machine::machine::boot_id(),
                false => String::new(),
            },
            ports: vec![RegisteredPort {
                locator: PORT.to_owned(),
                speed_bps: Some(LINE),
                up: true,
                ..RegisteredPort::default()
            }],
            labels: self.labels.clone(),
            ..Registration::default()
        };
        let (host, clock, lost_of) = (self.access.name.clone(), self.clock, self.lost_of);
        let world = Arc::clone(self.world);
        let open: Opener<'static> = Box::new(move |open, tell| {
            let senders = world.senders(&open.run);
            Box::new(Simulated::open(&open, &host, clock, lost_of, senders, tell))
        });
        let process = Process::new(registration, Vec::new(), bus, clock, self.inputs(), open)?;
        process.register();
        Ok(process)
    }
}

/// Something that an engine does at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Due {
    Start,
    SenderEnds(u32),
    ReceiverEnds(u32),
    Snapshot,
    End,
}

/// Engine of a part.
struct Simulated {
    part: Part,
    senders: Arc<Mutex<Senders>>,
    /// Duration and drain of each direction, in ns.
    times: BTreeMap<u32, (u64, u64)>,
    flows: Vec<DirectionFlows>,
    interval_ns: u64,
    clock: HostClock,
    signals: Signals,
    /// Number of signals that were obeyed.
    stops: usize,
    agenda: Vec<(u64, Due)>,
    tell: Tell,
}

/// Frames per second, and duration and drain in ns, of a job.
fn pace(job: &TrafficJob) -> Result<(u64, u64, u64), String> {
    let Some(duration) = job.duration else {
        return Err("simulated hosts need a duration".to_owned());
    };
    let mut pps = 0.0;
    for stream in &job.streams {
        let size = stream.size.as_ref().map_or(SMALLEST, SizeModel::mean);
        let Some(rate) = stream.rate.frames_per_second(size, Some(LINE)) else {
            return Err("simulated hosts need a rate".to_owned());
        };
        pps += rate.as_f64();
    }
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    Ok((pps as u64, duration.as_nanos(), job.drain.as_nanos()))
}

/// Returns true if a plan has jobs other than traffic.
fn has_other_jobs(plan: &Plan) -> bool {
    let others = [
        plan.loads.len(),
        plan.http_jobs.len(),
        plan.sockets.len(),
        plan.captures.len(),
        plan.devices.len(),
        plan.watches.len(),
        plan.probes.len(),
    ];
    others.iter().sum::<usize>() > 0 || plan.socket_server.is_some()
}

impl Simulated {
    fn open(
        open: &Open,
        host: &str,
        clock: HostClock,
        lost_of: u64,
        senders: Arc<Mutex<Senders>>,
        tell: Tell,
    ) -> Self {
        let mut times = BTreeMap::new();
        let mut flows = Vec::new();
        let mut problems = Vec::new();
        let ways = open.plan.directions(open.plan.first_flow.unwrap_or(0));
        if has_other_jobs(&open.plan) {
            problems.push("simulated hosts carry out traffic jobs only".to_owned());
        }
        for direction in &open.directions {
            let way = ways.iter().find(|way| way.name == direction.name);
            match way.map(|way| pace(&open.plan.traffic[way.job])) {
                Some(Ok((pps, duration, drain))) => {
                    times.insert(direction.first_flow, (duration, drain));
                    lock(&senders)
                        .entry(direction.first_flow)
                        .or_insert(Sender {
                            pps,
                            lost_of,
                            ..Sender::default()
                        });
                }
                Some(Err(why)) => problems.push(format!("{}: {why}", direction.name)),
                None => problems.push(format!("{} is of no job", direction.name)),
            }
            flows.push(DirectionFlows {
                direction: direction.name.clone(),
                first: direction.first_flow,
                count: direction.flows,
            });
        }
        problems.dedup();
        let result = match problems.is_empty() {
            true => Ok(Opened {
                ports: opened_ports(&open.plan),
                version: env!("CARGO_PKG_VERSION").to_owned(),
                ..Opened::default()
            }),
            false => Err(Refused::new(RefusedKind::Plan, host, problems.join("; "))),
        };
        tell(PartNews::Opened(result));
        Self {
            part: Part::new(&open.run, host, &open.plan, &open.directions),
            senders,
            times,
            flows,
            interval_ns: open.plan.interval.as_nanos(),
            clock,
            signals: Signals::default(),
            stops: 0,
            agenda: Vec::new(),
            tell,
        }
    }

    fn later(&mut self, at_ns: u64, what: Due) {
        self.agenda.push((at_ns, what));
    }

    fn carry_out(&mut self, what: Due, at_ns: u64) {
        match what {
            Due::Start => self.start(at_ns),
            Due::SenderEnds(number) => self.sender_ends(number, at_ns),
            Due::ReceiverEnds(number) => {
                if let Some((_, receiver)) = self.part.ins.get_mut(&number)
                    && receiver.ends_ns == Some(at_ns)
                {
                    receiver.ended = true;
                    self.end_if_done(at_ns);
                }
            }
            Due::Snapshot if !self.part.has_ended => {
                let senders = lock(&self.senders);
                let wall_ns = self.clock.wall_ns();
                let snap = self
                    .part
                    .snapshot(self.interval_ns, &senders, at_ns, wall_ns);
                drop(senders);
                (self.tell)(PartNews::Snapshot(Box::new(snap)));
                self.later(at_ns + self.interval_ns, Due::Snapshot);
            }
            Due::Snapshot => {}
            Due::End => {
                let mut share = self.part.share(&lock(&self.senders), at_ns, None);
                let took = monotonic_ns().saturating_sub(self.part.started_ns.unwrap_or(at_ns));
                share.report.started = wb_session::rfc3339(wall_ns().saturating_sub(took));
                (self.tell)(PartNews::Ended(Box::new(share)));
            }
        }
    }

    fn start(&mut self, at_ns: u64) {
        if self.part.has_ended || self.part.stopped {
            return;
        }
        self.part.started_ns = Some(at_ns);
        for number in self.outs() {
            if let Some(sender) = lock(&self.senders).get_mut(&number) {
                sender.first_ns = Some(at_ns);
            }
            self.later(at_ns + self.times[&number].0, Due::SenderEnds(number));
        }
        for number in self.ins() {
            let (duration, drain) = self.times[&number];
            self.receive_until(number, at_ns + duration + drain + GRACE_NS, None);
        }
        self.later(at_ns + self.interval_ns, Due::Snapshot);
    }

    fn outs(&self) -> Vec<u32> {
        self.part.outs.iter().map(|out| out.first_flow).collect()
    }

    fn ins(&self) -> Vec<u32> {
        self.part.ins.keys().copied().collect()
    }

    fn receive_until(&mut self, number: u32, ends_ns: u64, sent: Option<u64>) {
        let Some((_, receiver)) = self.part.ins.get_mut(&number) else {
            return;
        };
        if !receiver.ended {
            receiver.ends_ns = Some(ends_ns);
            receiver.sent = receiver.sent.or(sent);
            self.later(ends_ns, Due::ReceiverEnds(number));
        }
    }

    fn peer_ends(&mut self, number: u32, at_ns: u64, sent: Option<u64>) {
        let drain = self.times.get(&number).map_or(0, |(_, drain)| *drain);
        self.receive_until(number, at_ns + drain, sent);
    }

    fn sender_ends(&mut self, number: u32, at_ns: u64) {
        let mut senders = lock(&self.senders);
        let Some(sender) = senders.get_mut(&number) else {
            return;
        };
        if sender.stopped_ns.is_some() {
            return;
        }
        sender.stopped_ns = Some(at_ns);
        sender.first_ns = sender.first_ns.or(Some(at_ns));
        let frames = sender.departed(at_ns);
        let sent = self
            .part
            .sent(number, &senders, at_ns, self.clock.wall_ns());
        drop(senders);
        match self.part.ins.contains_key(&number) {
            true => self.peer_ends(number, at_ns, Some(frames)),
            false => (self.tell)(PartNews::SenderEnded(sent)),
        }
        self.end_if_done(at_ns);
    }

    fn end_if_done(&mut self, at_ns: u64) {
        if !self.part.has_ended && self.part.is_done(&lock(&self.senders)) {
            self.part.has_ended = true;
            self.later(at_ns, Due::End);
        }
    }

    /// Obeys a stop: the first one drains, the second one ends everything.
    fn stop(&mut self, now_ns: u64) {
        self.part.stopped = true;
        self.stops += 1;
        for number in self.outs() {
            self.sender_ends(number, now_ns);
        }
        for number in self.ins() {
            let is_known = self.part.ins[&number].1.sent.is_some();
            let drain = self.times.get(&number).map_or(0, |(_, drain)| *drain);
            match (self.stops, is_known) {
                (1, true) => {}
                (1, false) => self.receive_until(number, now_ns + drain + GRACE_NS, None),
                _ => self.receive_until(number, now_ns, None),
            }
        }
        self.end_if_done(now_ns);
    }
}

fn opened_ports(plan: &Plan) -> Vec<OpenedPort> {
    let port = |port: &wb_model::PortPlan| OpenedPort {
        name: port.name.clone(),
        locator: port.locator.to_string(),
        driver: "simulated".to_owned(),
        workers: 1,
        line_rate: Some(LINE),
        ..OpenedPort::default()
    };
    plan.ports.iter().map(port).collect()
}

impl Engine for Simulated {
    fn resolve(&mut self) {
        let armed = Armed {
            lead_ns: LEAD_NS,
            flows: self.flows.clone(),
            ..Armed::default()
        };
        (self.tell)(PartNews::Armed(Ok(armed)));
    }

    fn start_at(&mut self, wall_ns: u64) {
        let at_ns = self.clock.mono_at(wall_ns);
        self.later(at_ns, Due::Start);
    }

    fn signals(&self) -> &Signals {
        &self.signals
    }

    fn peer_sent(&mut self, sent: Sent) {
        let frames = sent.streams.iter().filter_map(|s| s.offered_frames).sum();
        self.peer_ends(sent.direction, monotonic_ns(), Some(frames));
    }

    fn peer_lost(&mut self, direction: u32) {
        self.peer_ends(direction, monotonic_ns(), None);
    }

    fn set_clock(&mut self, _: &PairClock) {}

    fn next_ns(&self) -> u64 {
        let times = self.agenda.iter().map(|(at_ns, _)| *at_ns);
        times.min().unwrap_or(u64::MAX)
    }

    fn due(&mut self) {
        let now_ns = monotonic_ns();
        if self.signals.interrupted().is_some() && self.stops == 0 {
            self.stop(now_ns);
        }
        if self.signals.hurry() && self.stops == 1 {
            self.stop(now_ns);
        }
        while let Some(next) = (0..self.agenda.len())
            .min_by_key(|n| self.agenda[*n].0)
            .filter(|n| self.agenda[*n].0 <= now_ns)
        {
            let (at_ns, what) = self.agenda.swap_remove(next);
            self.carry_out(what, at_ns);
        }
    }
}

impl Drop for Simulated {
    /// A killed host sends no more.
    fn drop(&mut self) {
        let now_ns = monotonic_ns();
        for number in self.outs() {
            if let Some(sender) = lock(&self.senders).get_mut(&number)
                && sender.is_sending()
            {
                sender.stopped_ns = Some(now_ns);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn simulations_are_read() {
        let all = "1000,offset=50ms,drift=20ppm,loss=0.1%,kill=10/min";
        let all: Simulation = all.parse().unwrap();
        assert_eq!(
            all,
            Simulation {
                agents: 1000,
                offset_ns: 50_000_000,
                drift_ppb: 20_000,
                lost_of: 1000,
                kills_per_minute: 10,
            }
        );
        assert_eq!("3".parse::<Simulation>().unwrap().agents, 3);
        for wrong in [
            "",
            "0",
            "20000",
            "x",
            "3,offset",
            "3,loss=200%",
            "3,kill=1/h",
            "3,",
        ] {
            assert!(wrong.parse::<Simulation>().is_err(), "{wrong}");
        }
    }
}
