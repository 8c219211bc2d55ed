//! The agent of a host: offers its ports to a controller, and carries out its parts of runs.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{Receiver, RecvTimeoutError, channel},
    },
    thread,
    time::{Duration, Instant},
};

use wb_fleet_core::{
    Lease,
    agent::{Action, Agent as Machine, AgentSettings, Event, Published, ReplyId},
    message::{LeaseMessage, Open, Registration, ShareMessage, Start},
    other_agent::OtherAgent,
    subjects::Subject,
};
use wb_machine::clock::monotonic_ns;
use wb_model::{Plan, peer::PairClock, powers::Power};
use wb_runs::Grants;
use wb_session::{PortHint, Signals};

use crate::{
    bus::{Bus, Message, News},
    clock::HostClock,
    clocks::ClockServer,
    files,
    pki::Access,
    register,
    time_service::TimeService,
    wire,
    work::{Engine, PartNews, Surroundings, Tell, Work},
};

/// UDP port at which an agent answers clock exchanges unless its options name another one.
pub const CLOCK_PORT: u16 = 40061;
/// Longest time without a check of the signals.
const LOOK: Duration = Duration::from_millis(100);
/// Interval at which the load of the host is read.
const LOAD_LOOK: Duration = Duration::from_secs(5);
/// Interval at which the lease is checked, without the broker and the rest of the agent.
const LEASE_LOOK: Duration = Duration::from_millis(20);
/// Time in which another agent of the same host would have been heard: its messages of presence come every second.
const LISTEN: Duration = Duration::from_millis(1500);
/// Time in which the last results have to be delivered after a signal.
const LAST_DELIVERY_NS: u64 = 5_000_000_000;

/// Settings of an agent.
#[derive(Clone, Debug)]
pub struct AgentOptions {
    /// Access to the broker; its name is that of the host.
    pub access: Access,
    /// Ports that plans may use, `NODE/IF` or `IF` with `*` and `?`; empty: all.
    pub ports: Vec<String>,
    /// Powers of plans.
    pub grants: Grants,
    /// Labels, by which plans choose hosts.
    pub labels: BTreeMap<String, String>,
    /// UDP port that answers clock exchanges; `None`: closed.
    pub clock_port: Option<u16>,
    /// Folder of results that are not delivered yet.
    pub state: PathBuf,
    /// Protocol that the agent claims in a test of versions.
    pub protocol: Option<u32>,
    /// Version that the agent claims in a test of versions.
    pub version: Option<String>,
    /// Hints for the ports of a plan.
    pub hints: fn(&Plan) -> BTreeMap<String, PortHint>,
    /// Says something to the user.
    pub say: fn(&str),
}

/// News for an agent.
pub(crate) enum Input {
    Bus(News),
    Part(String, PartNews),
}

/// Passes news on to the thread of an agent.
pub(crate) type Inputs = Arc<dyn Fn(Input) + Send + Sync>;

/// Opens a part of a run.
pub(crate) type Opener<'a> = Box<dyn Fn(Open, Tell) -> Box<dyn Engine> + 'a>;

/// Carries out parts of runs until a signal arrives.
///
/// # Errors
/// If the broker cannot be reached, or another agent has the name of the host.
pub fn run(options: &AgentOptions, signals: &Signals) -> io::Result<()> {
    if let Some(ns) = wire::test_offset_ns() {
        wb_machine::clock::set_test_offset_ns(ns);
    }
    let (sender, arrivals) = channel();
    let inputs: Inputs = Arc::new(move |input| {
        let _ = sender.send(((), input));
    });
    let news = Arc::clone(&inputs);
    let bus = Bus::connect(&options.access, Arc::new(move |own| news(Input::Bus(own))))?;
    let host = options.access.name.clone();
    listen_for_others([(&bus, &*host)], &arrivals, signals)?;
    let store = Store::open(&options.state)?;
    let kept = store.kept();
    if !kept.is_empty() {
        let n = kept.len();
        (options.say)(&format!("{n} results of earlier runs are to be delivered"));
    }
    let clock_server = options.clock_port.and_then(|port| {
        let opened = ClockServer::open(&host, port);
        let refused = |why: &io::Error| {
            let what = format!(
                "UDP port {port}: {why}; clocks are compared over the broker, which is less exact (--clock-port)"
            );
            (options.say)(&what);
        };
        opened.inspect_err(refused).ok()
    });
    let clock_port = clock_server.as_ref().map(ClockServer::port);
    let registration = register::registration(options, &wire::random_id()?, clock_port);
    let around = Surroundings {
        host,
        grants: options.grants.clone(),
        ports: options.ports.clone(),
        hints: options.hints,
        boot: registration.boot.clone(),
        state: options.state.clone(),
        ask: bus.asks(format!("{}{}", files::FILE, options.access.name)),
    };
    // A crash may have left some.
    let _ = fs::remove_dir_all(files::folder(&options.state));
    let clock = HostClock::default();
    let open: Opener<'_> =
        Box::new(move |open, tell| Box::new(Work::open(open, around.clone(), tell)));
    let mut agent = Process {
        store: Some(store),
        guard: Some(LeaseGuard::start()?),
        clock_server,
        time_service: Some(TimeService::start()),
        say: options.say,
        ..Process::new(registration, kept, bus, clock, inputs, open)?
    };
    agent.register();
    (options.say)(&format!(
        "agent {} is ready: {}",
        agent.host,
        register::summary(&agent.registration)
    ));
    agent.serve(options, &arrivals, signals)
}

/// Makes sure that no other agent has the name of one of these hosts.
pub(crate) fn listen_for_others<'a, T>(
    members: impl IntoIterator<Item = (&'a Bus, &'a str)>,
    arrivals: &Receiver<(T, Input)>,
    signals: &Signals,
) -> io::Result<()> {
    for (bus, host) in members {
        let host = host.to_owned();
        bus.subscribe(&Subject::Alive { host }.to_string())?;
        bus.flush();
    }
    let until = Instant::now() + LISTEN;
    while let Some(left) = until.checked_duration_since(Instant::now()) {
        if signals.interrupted().is_some() {
            break;
        }
        if let Ok((_, Input::Bus(News::Message(message)))) = arrivals.recv_timeout(left.min(LOOK))
            && let Ok(Subject::Alive { host }) = message.subject.parse()
        {
            return Err(has_other_agent(&host));
        }
    }
    Ok(())
}

fn has_other_agent(host: &str) -> io::Error {
    io::Error::other(format!(
        "another agent has the host name {host} already; stop it, or use another name"
    ))
}

pub(crate) fn powers(grants: &Grants) -> Vec<Power> {
    let mut powers = Vec::new();
    if grants.commands {
        powers.push(Power::Commands);
    }
    if grants.leave {
        powers.push(Power::Leaves);
    }
    // The part checks each path again.
    if grants.files.is_some() {
        powers.extend([Power::Reads, Power::Writes]);
    }
    powers
}

/// A running agent.
pub(crate) struct Process<'a> {
    machine: Machine,
    registration: Registration,
    clock_server: Option<ClockServer>,
    time_service: Option<TimeService>,
    bus: Bus,
    host: String,
    clock: HostClock,
    inputs: Inputs,
    /// Subjects of answers that are still to be sent.
    replies: BTreeMap<ReplyId, String>,
    /// Runs with shares that are not acknowledged yet, and the number of missing acknowledgements, by their subject.
    acknowledgements: BTreeMap<String, (String, usize)>,
    next_reply: ReplyId,
    work: Option<(String, Box<dyn Engine>)>,
    open: Opener<'a>,
    /// Folder of shares; `None`: they are kept in memory only.
    store: Option<Store>,
    guard: Option<LeaseGuard>,
    other: OtherAgent,
    /// True once another agent of this host has precedence.
    has_to_yield: bool,
    say: fn(&str),
}

impl<'a> Process<'a> {
    /// An agent with shares of earlier runs. It does not register yet.
    pub(crate) fn new(
        registration: Registration,
        kept: Vec<ShareMessage>,
        bus: Bus,
        clock: HostClock,
        inputs: Inputs,
        open: Opener<'a>,
    ) -> io::Result<Self> {
        let host = registration.host.clone();
        for subject in Subject::for_agent(&host) {
            bus.subscribe(&subject)?;
        }
        bus.subscribe(wire::WHO)?;
        bus.answer_clock(&host, clock)?;
        let settings = AgentSettings {
            host: host.clone(),
            id: registration.id.clone(),
            version: registration.version.clone(),
            powers: registration.powers.clone(),
        };
        Ok(Self {
            machine: Machine::new(settings, kept, clock.now()),
            registration,
            bus,
            host,
            clock,
            inputs,
            replies: BTreeMap::new(),
            acknowledgements: BTreeMap::new(),
            next_reply: 0,
            work: None,
            open,
            store: None,
            guard: None,
            clock_server: None,
            time_service: None,
            other: OtherAgent::default(),
            has_to_yield: false,
            say: |_| {},
        })
    }

    fn serve(
        &mut self,
        options: &AgentOptions,
        arrivals: &Receiver<((), Input)>,
        signals: &Signals,
    ) -> io::Result<()> {
        let mut ends_ns = None;
        let mut looked = None;
        loop {
            let wait_ns = self.next_ns().saturating_sub(monotonic_ns());
            match arrivals.recv_timeout(Duration::from_nanos(wait_ns).min(LOOK)) {
                Ok((_, input)) => self.take(input),
                Err(RecvTimeoutError::Timeout) => self.tick(),
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
            if self.has_to_yield && self.work.is_none() {
                return Err(has_other_agent(&self.host));
            }
            if looked.is_none_or(|at: Instant| at.elapsed() >= LOAD_LOOK) {
                looked = Some(Instant::now());
                let clock = self.time_service.as_ref().and_then(TimeService::clock);
                self.machine.set_claims(clock, wb_machine::machine::load());
                self.look_at_ports(options);
            }
            if signals.interrupted().is_some() {
                let ends = *ends_ns.get_or_insert_with(|| {
                    if let (Some((_, work)), Some(signal)) = (&self.work, signals.received()) {
                        work.signals().raise(signal);
                    }
                    monotonic_ns() + LAST_DELIVERY_NS
                });
                let is_done = self.work.is_none() && self.machine.kept_shares() == 0;
                if is_done || signals.hurry() || monotonic_ns() >= ends {
                    self.bus.flush();
                    return Ok(());
                }
            }
        }
    }

    /// Time of the next call of [`Process::tick`] on the monotonic clock, in ns.
    pub(crate) fn next_ns(&self) -> u64 {
        let work = self.work.as_ref().map(|(_, work)| work.next_ns());
        self.machine.next_ns().min(work.unwrap_or(u64::MAX))
    }

    /// Does what is due.
    pub(crate) fn tick(&mut self) {
        self.handle(Event::Tick);
    }

    /// Takes an input.
    pub(crate) fn take(&mut self, input: Input) {
        if let Some(event) = self.event(input) {
            self.handle(event);
        }
    }

    fn handle(&mut self, event: Event) {
        for action in self.machine.on(event, self.clock.now()) {
            self.perform(action);
        }
        if let Some((_, work)) = &mut self.work {
            work.due();
        }
        if let Some(guard) = &self.guard {
            let run = self.work.as_ref().map(|(_, work)| work.signals().clone());
            guard.watch(self.machine.lease().zip(run));
        }
    }

    /// The event of an input; `None` if the input was dealt with.
    fn event(&mut self, input: Input) -> Option<Event> {
        match input {
            Input::Bus(News::Message(message)) => self.message(message),
            Input::Bus(News::Connected) => {
                self.register();
                None
            }
            Input::Bus(News::Lost) => None,
            Input::Part(run, news) => {
                let is_current = self.work.as_ref().is_some_and(|(own, _)| *own == run);
                is_current.then_some(match news {
                    PartNews::Opened(result) => Event::Opened { run, result },
                    PartNews::Armed(result) => Event::Armed { run, result },
                    PartNews::TooLate(why) => Event::TooLate { run, why },
                    PartNews::Snapshot(snap) => Event::Snapshot { run, snap },
                    PartNews::SenderEnded(sent) => Event::SenderEnded { run, sent },
                    PartNews::Ended(share) => Event::Ended { run, share },
                })
            }
        }
    }

    fn message(&mut self, message: Message) -> Option<Event> {
        if message.subject == wire::WHO {
            self.register();
            return Some(Event::Asked);
        }
        if let Some((run, left)) = self.acknowledgements.get_mut(&message.subject) {
            if !wire::is_acknowledgement(&message.content) {
                return None;
            }
            *left -= 1;
            let run = run.clone();
            let is_whole = *left == 0;
            return is_whole.then(|| {
                self.acknowledgements.retain(|_, (own, _)| *own != run);
                Event::Acknowledged { run }
            });
        }
        match message.subject.parse().ok()? {
            Subject::Control { .. } => {
                let reply = self.next_reply;
                self.next_reply += 1;
                self.replies.insert(reply, message.reply?);
                Some(match wire::read(&message.content) {
                    Ok(request) => Event::Request { reply, request },
                    Err(error) => Event::Unreadable { reply, error },
                })
            }
            Subject::Start { run } => {
                let start: Start = wire::read(&message.content).ok()?;
                self.set_clocks(&run, &start.clocks);
                (start.run == run).then_some(Event::Start(start))
            }
            Subject::Lease { run } => {
                let lease: LeaseMessage = wire::read(&message.content).ok()?;
                self.set_clocks(&run, &lease.clocks);
                Some(Event::Lease { run, lease })
            }
            Subject::Stop { run } => Some(Event::Stop {
                run,
                stop: wire::read(&message.content).ok()?,
            }),
            Subject::Sent {
                run,
                host,
                direction,
                ..
            } => Some(Event::Sent {
                run,
                host,
                direction,
                message: wire::read(&message.content).ok()?,
            }),
            Subject::Alive { host } if host == self.host => {
                let other = wire::read_short(&message.content).ok()?;
                let (id, seq) = (&*self.registration.id, self.machine.alive_seq());
                self.has_to_yield |= self.other.has_precedence(&other, id, seq);
                None
            }
            _ => None,
        }
    }

    /// Passes the clocks of senders on other hosts to the part.
    fn set_clocks(&mut self, run: &str, clocks: &[PairClock]) {
        let host = self.host.clone();
        let own = clocks.iter().filter(|clock| clock.to == host);
        self.with(run, |work| own.for_each(|clock| work.set_clock(clock)));
    }

    /// Registers again if the ports have changed. During a run nothing is asked of the kernel that may take long.
    fn look_at_ports(&mut self, options: &AgentOptions) {
        if self.work.is_some() {
            return;
        }
        let ports = register::ports(options);
        if self.registration.ports != ports {
            self.registration.ports = ports;
            self.register();
        }
    }

    pub(crate) fn register(&self) {
        let subject = format!("{}{}", wire::AGENT, self.host);
        self.bus.publish(&subject, wire::write(&self.registration));
    }

    fn perform(&mut self, action: Action) {
        match action {
            Action::Reply { to, reply } => {
                if let Some(subject) = self.replies.remove(&to) {
                    self.bus.publish(&subject, wire::write(&reply));
                }
            }
            Action::Publish { subject, message } => self.publish(&subject, message),
            Action::Open(open) => {
                // The part before must have freed its ports.
                self.work = None;
                self.answer_clock(Some(&open.key));
                self.pause_time_service(true);
                let (inputs, run) = (Arc::clone(&self.inputs), open.run.clone());
                let own = run.clone();
                let tell: Tell = Arc::new(move |news| inputs(Input::Part(own.clone(), news)));
                self.work = Some((run, (self.open)(*open, tell)));
            }
            Action::Resolve { run } => self.with(&run, |work| work.resolve()),
            Action::StartAt { run, wall_ns } => self.with(&run, |work| work.start_at(wall_ns)),
            Action::Drain { run } => {
                let lease = self.machine.lease();
                let cause = match lease.is_some_and(|lease| lease.has_run_out(monotonic_ns())) {
                    true => Signals::LEASE_END,
                    false => Signals::REQUEST,
                };
                self.with(&run, |work| work.signals().raise(cause));
            }
            Action::StopNow { run } => self.with(&run, |work| {
                work.signals().raise(Signals::REQUEST);
                work.signals().raise(Signals::REQUEST);
            }),
            Action::PeerSent { run, sent } => self.with(&run, |work| work.peer_sent(sent)),
            Action::PeerLost { run, direction } => {
                self.with(&run, |work| work.peer_lost(direction));
            }
            Action::Release { run } => {
                if self.work.take_if(|(own, _)| *own == run).is_some() {
                    self.answer_clock(None);
                    self.pause_time_service(false);
                }
            }
            Action::StoreShare(share) => {
                if let Some(store) = &self.store
                    && let Err(error) = store.keep(&share)
                {
                    let run = share.run.clone();
                    let why = error.to_string();
                    self.handle(Event::NotStored { run, why });
                }
            }
            Action::RemoveShare { run } => {
                if let Some(store) = &self.store {
                    store.remove(&run);
                }
            }
        }
    }

    fn pause_time_service(&self, on: bool) {
        if let Some(service) = &self.time_service {
            service.pause(on);
        }
    }

    /// Answers exchanges of stamps with the hosts of a run; without a key it answers no request.
    fn answer_clock(&self, key: Option<&str>) {
        if let Some(server) = &self.clock_server {
            server.answer_run(key);
        }
    }

    fn with(&mut self, run: &str, what: impl FnOnce(&mut dyn Engine)) {
        if let Some((own, work)) = &mut self.work
            && own == run
        {
            what(&mut **work);
        }
    }

    fn publish(&mut self, subject: &Subject, message: Published) {
        let name = subject.to_string();
        match message {
            Published::Alive(message) => self.bus.publish(&name, wire::write(&message)),
            Published::Snap(message) => self.bus.publish(&name, wire::write(&message)),
            Published::Sent(message) => self.bus.publish(&name, wire::write(&message)),
            Published::Event(message) => {
                (self.say)(&message.text);
                self.bus.publish(&name, wire::write(&message));
            }
            Published::Share(share) => {
                let pieces = wire::pieces(&wire::write(&share));
                let reply = self.bus.inbox();
                let (host, run) = (&share.host, &share.run);
                self.acknowledgements
                    .insert(reply.clone(), (run.clone(), pieces.len()));
                for (n, piece) in pieces.into_iter().enumerate() {
                    let id = format!("{run}-{host}-{}-{n}", share.revision);
                    self.bus.store(&name, &id, &reply, piece);
                }
            }
        }
    }
}

/// Results on the disk that no stream has acknowledged yet.
struct Store {
    folder: PathBuf,
}

impl Store {
    fn open(state: &Path) -> io::Result<Self> {
        let folder = state.join("shares");
        fs::create_dir_all(&folder).map_err(|e| crate::pki::in_file(&folder, &e))?;
        Ok(Self { folder })
    }

    fn path(&self, run: &str) -> PathBuf {
        self.folder.join(format!("{run}.json"))
    }

    fn keep(&self, share: &ShareMessage) -> io::Result<()> {
        let (path, part) = (self.path(&share.run), self.folder.join("part"));
        fs::write(&part, wire::write(share))?;
        fs::File::open(&part)?.sync_all()?;
        fs::rename(part, path)
    }

    fn remove(&self, run: &str) {
        let _ = fs::remove_file(self.path(run));
    }

    fn kept(&self) -> Vec<ShareMessage> {
        let files = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let shares = files.filter_map(|file| {
            let path = file.path();
            let is_share = path.extension().is_some_and(|end| end == "json");
            is_share
                .then(|| wire::read_whole(&fs::read(path).ok()?).ok())
                .flatten()
        });
        shares.collect()
    }
}

type Watched = Option<(Lease, Signals)>;

/// Ends the part when its lease has run out, even if the rest of the agent does not run.
struct LeaseGuard(Arc<Mutex<Watched>>);

impl LeaseGuard {
    fn start() -> io::Result<Self> {
        let watched: Arc<Mutex<Watched>> = Arc::default();
        let shared = Arc::downgrade(&watched);
        thread::Builder::new()
            .name("wb-lease".to_owned())
            .spawn(move || {
                while let Some(watched) = shared.upgrade() {
                    let mut watched = watched.lock().unwrap_or_else(PoisonError::into_inner);
                    if let Some((_, signals)) =
                        watched.take_if(|(lease, _)| lease.has_run_out(monotonic_ns()))
                    {
                        signals.raise(Signals::LEASE_END);
                    }
                    drop(watched);
                    thread::sleep(LEASE_LOOK);
                }
            })?;
        Ok(Self(watched))
    }

    fn watch(&self, watched: Watched) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = watched;
    }
}
