//! A controller's view of its fleet: the agents that are there, and the messages of its runs.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc::Sender},
    time::{Duration, Instant},
};

use wb_fleet_core::{
    clock::{EXCHANGES, Estimate},
    controller::Event,
    message::{Alive, DrainHost, Op, Registration, Reply, Request, ShareMessage},
    subjects::Subject,
};
use wb_machine::clock::wall_ns;
use wb_model::fleet::{Agent, AgentPort};

use crate::{
    bus::{Bus, Message, News},
    files::{self, Offer, PieceRequest},
    kept::Kept,
    leadership::Leadership,
    local::{Local, LocalOptions},
    pki::Access,
    wire,
};

/// Time after its last sign of life in which an agent counts as present.
const PRESENT: Duration = Duration::from_secs(3);
/// Time that an agent with a known name has to register once all are asked.
const ASK: Duration = Duration::from_secs(4);
/// Time in which all agents register once they are asked.
const ASK_ALL: Duration = Duration::from_millis(1500);

/// Number of runs with late shares that are remembered.
const MOST_LATE: usize = 1024;
/// Time after which agents that are not known are asked again.
const ASK_AGAIN: Duration = Duration::from_millis(500);

/// An agent that is there.
#[derive(Clone, Debug)]
pub struct Present {
    /// Facts about its host and its ports.
    pub registration: Registration,
    /// Its last sign of life, and when it came.
    pub alive: Option<(Alive, Instant)>,
}

impl Present {
    fn is_there(&self) -> bool {
        let is_recent = |(_, at): &(Alive, Instant)| at.elapsed() < PRESENT;
        self.alive.as_ref().is_some_and(is_recent)
    }

    /// Facts for users.
    #[must_use]
    pub fn describe(self) -> Agent {
        let alive = self.alive.map(|(alive, _)| alive).unwrap_or_default();
        let Registration { host, ports, .. } = self.registration;
        let ports = ports.into_iter().map(|port| AgentPort {
            locator: format!("{host}:{}", port.locator),
            speed_bps: port.speed_bps,
            up: port.up,
        });
        Agent {
            ports: ports.collect(),
            host,
            version: self.registration.version,
            state: alive.state.to_string(),
            kernel: self.registration.kernel,
            cpus: self.registration.cpus,
            memory_bytes: self.registration.memory_bytes,
            load: alive.load,
            labels: self.registration.labels,
        }
    }
}

/// State that the arriving messages change.
#[derive(Default)]
struct Arrivals {
    agents: Mutex<BTreeMap<String, Present>>,
    /// Last sign of life of agents that are not registered. It may arrive before the registration.
    early: Mutex<BTreeMap<String, (Alive, Instant)>>,
    runs: Mutex<BTreeMap<String, Sender<Event>>>,
    /// Files that the agents of a run may fetch.
    offers: Mutex<BTreeMap<String, Offer>>,
    pieces: Mutex<BTreeMap<(String, String), wire::Pieces>>,
    /// Runs that are not listened to, of which a share arrived.
    late: Mutex<BTreeSet<String>>,
    bus: Mutex<Option<Arc<Bus>>>,
    /// Last question to all agents because of one that is not known.
    asked: Mutex<Option<Instant>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A fleet with its broker.
pub struct Fleet {
    joined: Instant,
    pub(crate) bus: Arc<Bus>,
    arrivals: Arc<Arrivals>,
    pub(crate) kept: Kept,
    pub(crate) leadership: Leadership,
    /// The fleet of this host, which ends last.
    local: Mutex<Option<Local>>,
}

impl std::fmt::Debug for Fleet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fleet").finish_non_exhaustive()
    }
}

impl Fleet {
    /// Connects to a fleet, and lets its agents register.
    ///
    /// # Errors
    /// If the broker cannot be reached or refuses the controller.
    pub fn join(access: &Access) -> io::Result<Self> {
        let arrivals = Arc::new(Arrivals::default());
        let of_news = Arc::clone(&arrivals);
        let bus = Bus::connect(access, Arc::new(move |news| of_news.take(news)))?;
        let bus = Arc::new(bus);
        *lock(&arrivals.bus) = Some(Arc::clone(&bus));
        for subject in [
            "alive.*",
            "agent.*",
            "file.*",
            "event.>",
            "share.>",
            "run.*.snap.*",
        ] {
            bus.subscribe(&format!("wb.v1.{subject}"))?;
        }
        let own = wb_machine::machine::identity().host;
        let own = format!("process {} on {own}", std::process::id());
        let kept = Kept::open(&bus)?;
        let leadership = Leadership::seek(&bus, &kept, &own)?;
        *lock(&arrivals.asked) = Some(Instant::now());
        bus.publish(wire::WHO, Vec::new());
        Ok(Self {
            joined: Instant::now(),
            bus,
            arrivals,
            kept,
            leadership,
            local: Mutex::default(),
        })
    }

    /// Connects to the fleet of this host. Starts its broker and its agent, unless another process has done so.
    ///
    /// # Errors
    /// If `nats-server` is not there or cannot listen, or the folder cannot be used.
    pub fn join_local(folder: &Path, options: LocalOptions) -> io::Result<Self> {
        let local = Local::start(folder, options)?;
        let fleet = Self::join(&local.access)?;
        Ok(Self {
            local: Mutex::new(Some(local)),
            ..fleet
        })
    }

    /// Lets the next controller lead, and ends the broker and the agent of this process.
    pub(crate) fn close(&self) {
        self.leadership.release();
        lock(&self.local).take();
    }

    /// The agents that are there, by host.
    #[must_use]
    pub fn agents(&self) -> BTreeMap<String, Present> {
        let mut agents = lock(&self.arrivals.agents).clone();
        agents.retain(|_, agent| agent.is_there());
        agents
    }

    /// The registrations of all agents. Waits a moment for those of `hosts`, which are names or labels in braces. Labels
    /// wait for all agents.
    #[must_use]
    pub fn registrations(&self, hosts: &BTreeSet<String>) -> Vec<Registration> {
        let until = Instant::now() + ASK;
        let mut agents = self.agents();
        let is_there = |agents: &BTreeMap<String, Present>, host: &str| match host.starts_with('{')
        {
            true => self.joined.elapsed() > ASK_ALL,
            false => agents.contains_key(host),
        };
        while !hosts.iter().all(|host| is_there(&agents, host)) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(20));
            agents = self.agents();
        }
        agents
            .into_values()
            .map(|agent| agent.registration)
            .collect()
    }

    /// Lets the messages of a run arrive in a channel until the value is dropped.
    pub(crate) fn listen(&self, run: &str, events: Sender<Event>) -> Listening {
        lock(&self.arrivals.runs).insert(run.to_owned(), events);
        Listening {
            arrivals: Arc::clone(&self.arrivals),
            run: run.to_owned(),
        }
    }

    /// Lets an agent refuse runs, or accept them again.
    pub(crate) fn drain(&self, host: &str, on: bool) {
        let request = Request::new(Op::Drain(DrainHost { on }));
        self.ask("drain", host, 0, wire::write(&request));
    }

    /// Runs that are not listened to, of which shares arrived since the last call.
    pub(crate) fn delivered_late(&self) -> Vec<String> {
        std::mem::take(&mut *lock(&self.arrivals.late))
            .into_iter()
            .collect()
    }

    /// Lets the agents of a run fetch files until the run is listened to no more.
    pub(crate) fn offer(&self, run: &str, files: Offer) {
        lock(&self.arrivals.offers).insert(run.to_owned(), files);
    }

    /// The shares of a run that the broker keeps.
    ///
    /// # Errors
    /// A sentence, if the broker does not answer.
    pub(crate) fn shares(&self, run: &str) -> Result<Vec<ShareMessage>, String> {
        let mut pieces: BTreeMap<String, wire::Pieces> = BTreeMap::new();
        let mut shares = Vec::new();
        for message in self.kept.shares(run)? {
            let own = pieces.entry(message.subject.clone()).or_default();
            let whole = own.add(&message.content);
            let share = whole.and_then(|whole| wire::read_whole::<ShareMessage>(&whole).ok());
            let end = |share: &ShareMessage| format!(".{run}.{}", share.host);
            shares.extend(share.filter(|s| s.run == run && message.subject.ends_with(&end(s))));
        }
        Ok(shares)
    }

    /// Asks an agent. The answer arrives as an event of the run.
    pub(crate) fn ask(&self, run: &str, host: &str, id: u64, request: Vec<u8>) {
        let reply = self.bus.inbox_for(&format!("{run}.{host}.{id}"));
        let subject = Subject::Control {
            host: host.to_owned(),
        }
        .to_string();
        self.bus.ask(&subject, &reply, request);
    }

    /// Compares the clocks of hosts with the clock of this one. The estimates arrive as events of the run.
    pub(crate) fn measure_clocks(&self, run: &str, hosts: Vec<String>) {
        let own = wb_machine::machine::boot_id();
        for host in hosts {
            let boot = lock(&self.arrivals.agents)
                .get(&host)
                .map(|agent| agent.registration.boot.clone());
            if !own.is_empty() && boot.as_ref() == Some(&own) {
                // One kernel has one clock.
                let estimate = Estimate {
                    at_ns: wall_ns(),
                    ..Estimate::default()
                };
                let exchanges = 0;
                self.arrivals.tell(
                    run,
                    Event::Clock {
                        host,
                        estimate,
                        exchanges,
                    },
                );
                continue;
            }
            let (arrivals, run) = (Arc::clone(&self.arrivals), run.to_owned());
            let of = host.clone();
            self.bus.compare_clock(&of, EXCHANGES, move |exchanges| {
                if let Some(estimate) = Estimate::best(&exchanges) {
                    arrivals.tell(
                        &run,
                        Event::Clock {
                            host: host.clone(),
                            estimate,
                            exchanges: exchanges.len(),
                        },
                    );
                }
            });
        }
    }
}

/// Connection of a run with the arriving messages.
pub(crate) struct Listening {
    arrivals: Arc<Arrivals>,
    run: String,
}

impl Drop for Listening {
    fn drop(&mut self) {
        lock(&self.arrivals.runs).remove(&self.run);
        lock(&self.arrivals.offers).remove(&self.run);
        lock(&self.arrivals.pieces).retain(|(run, _), _| *run != self.run);
    }
}

impl Arrivals {
    fn take(&self, news: News) {
        match news {
            News::Message(message) => self.message(message),
            News::Connected => {
                if let Some(bus) = &*lock(&self.bus) {
                    bus.post(wire::WHO, Vec::new());
                }
            }
            News::Lost => {}
        }
    }

    fn tell(&self, run: &str, event: Event) {
        if let Some(events) = lock(&self.runs).get(run) {
            // A run that has ended takes no more.
            let _ = events.send(event);
        }
    }

    fn tell_all(&self, event: &Event) {
        for events in lock(&self.runs).values() {
            let _ = events.send(event.clone());
        }
    }

    /// Takes a message. Messages that cannot be read are of no run.
    fn message(&self, message: Message) {
        if let Some(host) = message.subject.strip_prefix(wire::AGENT) {
            if let Ok(registration) = wire::read_short::<Registration>(&message.content)
                && registration.host == host
            {
                self.registered(registration);
            }
            return;
        }
        if let Some(host) = message.subject.strip_prefix(files::FILE) {
            self.asked_for_file(host, &message);
            return;
        }
        if let Some(place) = Bus::answered(&message.subject) {
            self.answered(place, &message.content);
            return;
        }
        match message.subject.parse() {
            Ok(Subject::Alive { host }) => {
                if let Ok(alive) = wire::read_short::<Alive>(&message.content) {
                    self.alive(&host, &alive);
                    self.tell_all(&Event::Alive { host, alive });
                }
            }
            Ok(Subject::Snap { run, host }) => {
                if let Ok(snap) = wire::read(&message.content) {
                    self.tell(&run, Event::Snap { host, snap });
                }
            }
            Ok(Subject::Event { host, .. }) => {
                if let Ok(event) = wire::read_short(&message.content) {
                    self.tell_all(&Event::Agent { host, event });
                }
            }
            Ok(Subject::Share { run, host }) => self.share(run, host, &message),
            _ => {}
        }
    }

    /// Sends a piece of a file to the agent of a host; nothing of a file that its part does not have.
    fn asked_for_file(&self, host: &str, message: &Message) {
        let (Some(reply), Ok(request)) = (
            &message.reply,
            wire::read_short::<PieceRequest>(&message.content),
        ) else {
            return;
        };
        // The controller may publish anything; an agent must not choose what.
        if !reply.starts_with(&format!("_INBOX.{host}.")) {
            return;
        }
        let offers = lock(&self.offers);
        let offer = offers.get(&request.run);
        let piece = offer.and_then(|offer| offer.piece(host, &request));
        if let Some(bus) = &*lock(&self.bus) {
            bus.post(reply, piece.unwrap_or_default());
        }
    }

    /// The answer of a host to a request of a run: `RUN.HOST.NUMBER`.
    fn answered(&self, place: &str, content: &[u8]) {
        let words: Vec<&str> = place.split('.').collect();
        let [run, host, id] = words[..] else { return };
        let answer = wire::read::<Reply>(content).map(|reply| reply.answer);
        if let (Ok(id), Ok(answer)) = (id.parse(), answer) {
            let host = host.to_owned();
            self.tell(run, Event::Reply { host, id, answer });
        }
    }

    fn share(&self, run: String, host: String, message: &Message) {
        let mut pieces = lock(&self.pieces);
        if !lock(&self.runs).contains_key(&run) {
            let mut late = lock(&self.late);
            if late.len() < MOST_LATE {
                late.insert(run);
            }
            return;
        }
        let key = (run, host);
        let own = pieces.entry(key.clone()).or_default();
        let Some(whole) = own.add(&message.content) else {
            return;
        };
        pieces.remove(&key);
        drop(pieces);
        let (run, host) = key;
        match wire::read_whole::<Box<ShareMessage>>(&whole) {
            Ok(share) if share.run == run && share.host == host => {
                self.tell(&run, Event::Share(share))
            }
            _ => {}
        }
    }

    fn registered(&self, registration: Registration) {
        let mut agents = lock(&self.agents);
        let early = lock(&self.early).remove(&registration.host);
        let known = agents.remove(&registration.host);
        let mut signs = known
            .into_iter()
            .filter_map(|known| known.alive)
            .chain(early);
        let alive = signs.find(|(alive, _)| alive.id == registration.id);
        let host = registration.host.clone();
        let present = Present {
            registration,
            alive,
        };
        agents.insert(host, present);
    }

    /// Takes over a sign of life; asks an agent to register that is not known.
    fn alive(&self, host: &str, alive: &Alive) {
        let mut agents = lock(&self.agents);
        match agents.get_mut(host) {
            Some(known) if known.registration.id == alive.id => {
                known.alive = Some((alive.clone(), Instant::now()));
            }
            // Every agent answers the question, so one is enough for several unknown agents.
            _ => {
                lock(&self.early).insert(host.to_owned(), (alive.clone(), Instant::now()));
                let mut asked = lock(&self.asked);
                if asked.is_none_or(|at| at.elapsed() >= ASK_AGAIN)
                    && let Some(bus) = &*lock(&self.bus)
                {
                    *asked = Some(Instant::now());
                    bus.post(wire::WHO, Vec::new());
                }
            }
        }
    }
}
