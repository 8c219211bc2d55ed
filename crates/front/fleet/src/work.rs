//! The part of one run on this host, in a separate thread.

use std::{
    collections::{BTreeMap, BTreeSet},
    panic::{AssertUnwindSafe, catch_unwind},
    path::PathBuf,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering},
        mpsc::{Receiver, Sender, channel},
    },
    thread,
};

use wb_fleet_core::message::{
    Armed, ClockSource, Direction, DirectionFlows, JobCounts, Open, Opened, PartFile, Problem,
    Refused, RefusedKind, Snap, V1,
};
use wb_fleet_core::{Share, ShareEnd};
use wb_machine::clock::wall_ns;
use wb_model::{
    Plan, PlanProblem, Report,
    peer::{PairClock, Sent},
    powers::Power,
    timeline::Timeline,
};
use wb_runs::Grants;
use wb_session::{
    Checked, End, Environment, Extras, Observer, PeerLink, PortHint, Signals, StartAt, StartError,
    View,
};

use crate::{
    clocks::Comparisons,
    files::{Ask, Fetched},
};

/// News of a part.
#[derive(Debug)]
pub(crate) enum PartNews {
    Opened(Result<Opened, Refused>),
    Armed(Result<Armed, Refused>),
    TooLate(String),
    Snapshot(Box<Snap>),
    SenderEnded(Sent),
    Ended(Box<Share>),
}

/// Facts that a part needs from its agent.
#[derive(Clone)]
pub(crate) struct Surroundings {
    pub(crate) host: String,
    pub(crate) grants: Grants,
    /// Ports that plans may use, as globs; empty: all.
    pub(crate) ports: Vec<String>,
    pub(crate) hints: fn(&Plan) -> BTreeMap<String, PortHint>,
    /// Folder in which files of the plan are kept during the run.
    pub(crate) state: PathBuf,
    /// Asks the controller for a piece of a file.
    pub(crate) ask: Ask,
    /// Random name of the start of the kernel; empty if unknown.
    pub(crate) boot: String,
}

/// Next step of a part.
enum Step {
    Resolve,
    StartAt(u64),
}

/// Engine of a part of a run. It passes its news to the function that it was opened with.
pub(crate) trait Engine {
    /// Resolves neighbours and makes everything ready for the start.
    fn resolve(&mut self);
    /// Starts at a time on the wall clock of the host, in ns since 1970.
    fn start_at(&mut self, wall_ns: u64);
    /// Signals of the part: the first one drains it, the second one ends it at once.
    fn signals(&self) -> &Signals;
    /// Passes on what a sender on another host has sent.
    fn peer_sent(&mut self, sent: Sent);
    /// Ends the wait for a sender on a host that is lost.
    fn peer_lost(&mut self, direction: u32);
    /// Sets the clock of a host that sends to this one.
    fn set_clock(&mut self, clock: &PairClock);
    /// Time of the next call of [`Engine::due`] on the monotonic clock, in ns.
    fn next_ns(&self) -> u64 {
        u64::MAX
    }
    /// Does what is due, for engines without a thread.
    fn due(&mut self) {}
}

/// Receives the news of a part.
pub(crate) type Tell = Arc<dyn Fn(PartNews) + Send + Sync>;

/// A part of a run in a separate thread. Its ports are free once it is dropped and its thread has ended.
#[derive(Debug)]
pub(crate) struct Work {
    steps: Option<Sender<Step>>,
    signals: Signals,
    clocks: Arc<Clocks>,
    thread: Option<thread::JoinHandle<()>>,
}

/// Clocks of the hosts that send to this one.
#[derive(Debug)]
struct Clocks {
    peers: PeerLink,
    /// Hosts that this host compares its clock with. The clocks of other hosts come from the controller.
    compared: OnceLock<BTreeSet<String>>,
    /// Start of the run by the wall clock, in ns since 1970.
    start_ns: AtomicU64,
    /// Directions that still send, by the host of the sender.
    sending: Mutex<BTreeMap<String, BTreeSet<u32>>>,
}

impl Clocks {
    /// Sets the clock of a sender. From the start on, the largest error counts. Once a host has sent its last frame, its
    /// clock stays as it is.
    fn set(&self, pair: PairClock) {
        let sending = self.sending.lock().unwrap_or_else(PoisonError::into_inner);
        if sending.get(&pair.from).is_some_and(BTreeSet::is_empty) {
            return;
        }
        let clock = self.peers.clock(&pair.from);
        let is_running = wall_ns() >= self.start_ns.load(Ordering::Relaxed);
        let known = clock.pair().filter(|_| is_running);
        clock.set(match known {
            Some(known) => known.followed_by(pair),
            None => pair,
        });
    }

    /// Takes the end of the sender of a direction.
    fn end(&self, direction: u32) {
        let mut sending = self.sending.lock().unwrap_or_else(PoisonError::into_inner);
        for directions in sending.values_mut() {
            directions.remove(&direction);
        }
    }

    /// Sets the clock of a sender as the controller knows it, unless this host knows it better.
    fn set_of_controller(&self, pair: &PairClock) {
        let is_compared = |compared: &BTreeSet<String>| compared.contains(&pair.from);
        if !self.compared.get().is_some_and(is_compared) {
            self.set(pair.clone());
        }
    }
}

impl Work {
    /// Begins to open the ports of a part.
    pub(crate) fn open(open: Open, around: Surroundings, tell: Tell) -> Self {
        let (steps, next) = channel();
        let signals = Signals::default();
        let of_sent = Arc::clone(&tell);
        let peers = PeerLink::new(move |sent| of_sent(PartNews::SenderEnded(sent)));
        let mut sending: BTreeMap<String, BTreeSet<u32>> = BTreeMap::new();
        for way in open.directions.iter().filter(|way| way.to == around.host) {
            let of_host = sending.entry(way.from.clone()).or_default();
            of_host.insert(way.first_flow);
        }
        let clocks = Arc::new(Clocks {
            sending: Mutex::new(sending),
            peers: peers.clone(),
            compared: OnceLock::new(),
            start_ns: AtomicU64::new(u64::MAX),
        });
        let part = Part {
            around,
            signals: signals.clone(),
            run: open.run.clone(),
            clocks: Arc::clone(&clocks),
            key: open.key.clone(),
            senders: open.senders.clone(),
            directions: open.directions.clone(),
            files: open.files.clone(),
            next,
            tell,
        };
        let thread = thread::Builder::new()
            .name("wb-part".to_owned())
            .spawn(move || {
                // A defect must not end the agent.
                if catch_unwind(AssertUnwindSafe(|| part.carry_out(open.plan))).is_err() {
                    let what = "a defect of the program ended the part; its log has the place";
                    let share = Share {
                        host: part.around.host.clone(),
                        version: env!("CARGO_PKG_VERSION").to_owned(),
                        report: Box::new(Report {
                            reason: what.to_owned(),
                            ..Report::default()
                        }),
                        end: ShareEnd::Fault(what.to_owned()),
                        ..Share::default()
                    };
                    part.tell(PartNews::Ended(Box::new(share)));
                }
            });
        Self {
            steps: Some(steps),
            signals,
            clocks,
            thread: thread.ok(),
        }
    }

    fn step(&self, step: Step) {
        if let Some(steps) = &self.steps {
            // Without its thread the part has ended.
            let _ = steps.send(step);
        }
    }
}

impl Engine for Work {
    fn resolve(&mut self) {
        self.step(Step::Resolve);
    }

    fn start_at(&mut self, wall_ns: u64) {
        self.step(Step::StartAt(wall_ns));
    }

    fn signals(&self) -> &Signals {
        &self.signals
    }

    fn peer_sent(&mut self, sent: Sent) {
        self.clocks.end(sent.direction);
        self.clocks.peers.receive(sent);
    }

    fn peer_lost(&mut self, direction: u32) {
        self.clocks.end(direction);
        let why = "its sender was lost".to_owned();
        self.clocks.peers.report_lost(direction, why);
    }

    fn set_clock(&mut self, clock: &PairClock) {
        self.clocks.set_of_controller(clock);
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        self.steps = None;
        self.signals.raise(15);
        self.signals.raise(2);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Part {
    around: Surroundings,
    signals: Signals,
    run: String,
    clocks: Arc<Clocks>,
    key: String,
    senders: Vec<ClockSource>,
    directions: Vec<Direction>,
    files: Vec<PartFile>,
    next: Receiver<Step>,
    tell: Tell,
}

impl Part {
    fn tell(&self, news: PartNews) {
        (self.tell)(news);
    }

    /// From the opening of the ports to the share.
    fn carry_out(&self, mut plan: Plan) {
        let Surroundings { state, ask, .. } = &self.around;
        let fetched = Fetched::fetch(&self.run, &self.files, &mut plan, state, ask);
        let fetched = match fetched {
            Ok(fetched) => fetched,
            Err(why) => {
                let refused = Refused::new(RefusedKind::Machine, &*self.around.host, why);
                return self.tell(PartNews::Opened(Err(refused)));
            }
        };
        let mut uses = self.around.grants.refused(&plan);
        // The controller sent these files, so the host loses nothing by them.
        if let Some(fetched) = &fetched {
            uses.retain(|used| used.power != Power::Reads || !fetched.holds(&used.value));
        }
        if !uses.is_empty() {
            let problems = uses.into_iter().map(|used| {
                let what = format!(
                    "{:?} needs the power {}, which {} does not grant",
                    used.value,
                    used.power.name(),
                    self.around.host
                );
                Problem::new(format!("{}: {}", self.around.host, used.place), what)
            });
            let refused = Refused {
                kind: RefusedKind::Power,
                problems: problems.collect(),
            };
            return self.tell(PartNews::Opened(Err(refused)));
        }
        let barred = self.barred(&plan);
        if !barred.is_empty() {
            let refused = Refused {
                kind: RefusedKind::Machine,
                problems: barred,
            };
            return self.tell(PartNews::Opened(Err(refused)));
        }
        let environment = Environment {
            host: Some(self.around.host.clone()),
            hints: (self.around.hints)(&plan),
            signals: self.signals.clone(),
            base: self.around.grants.files.clone(),
            peers: self.clocks.peers.clone(),
            shares_process: true,
            ..Environment::default()
        };
        let opened = Checked::new(plan, &environment)
            .and_then(Checked::open)
            .and_then(wb_session::Opened::attend);
        let attended = match opened {
            Ok(attended) => attended,
            Err(error) => {
                let refused = self.refused(&error, fetched.as_ref());
                return self.tell(PartNews::Opened(Err(refused)));
            }
        };
        self.tell(PartNews::Opened(Ok(Opened {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            ..Opened::default()
        })));
        let Ok(Step::Resolve) = self.next.recv() else {
            return;
        };
        let Surroundings { host, boot, .. } = &self.around;
        let comparisons = Comparisons::begin(host, boot, &self.key, &self.senders);
        let mut extras = Extras {
            histograms: true,
            progress: true,
            ..Extras::default()
        };
        extras.capture.zone = jiff::tz::TimeZone::system();
        let prepared = match attended.build(extras) {
            Ok(prepared) => prepared,
            Err(error) => {
                let refused = self.refused(&error, fetched.as_ref());
                return self.tell(PartNews::Armed(Err(refused)));
            }
        };
        let compared = comparisons.first();
        let hosts = compared.iter().map(|clock| clock.from.clone());
        self.clocks.compared.get_or_init(|| hosts.collect());
        self.tell(PartNews::Armed(Ok(Armed {
            lead_ns: prepared.lead_ns(),
            flows: self.flows(),
            neighbours: BTreeMap::new(),
            clocks: compared,
        })));
        let Ok(Step::StartAt(wall_ns)) = self.next.recv() else {
            return;
        };
        self.clocks.start_ns.store(wall_ns, Ordering::Relaxed);
        let clocks = Arc::clone(&self.clocks);
        comparisons.follow(Arc::new(move |pair| clocks.set(pair)));
        let mut observer = Watcher { part: self };
        match prepared.run_at(StartAt::Wall(wall_ns), &mut observer) {
            Ok(finished) => {
                let end = match &finished.end {
                    End::Completed => ShareEnd::Finished,
                    End::Signal(Signals::REQUEST | Signals::LEASE_END) => ShareEnd::Stopped,
                    // The other hosts continue.
                    End::Signal(n) => ShareEnd::Fault(format!(
                        "its agent was ended by {}",
                        wb_session::signal_name(*n)
                    )),
                    End::Fault(text) => {
                        ShareEnd::Fault(Fetched::with_names(fetched.as_ref(), text))
                    }
                };
                let share = Share {
                    host: self.around.host.clone(),
                    version: env!("CARGO_PKG_VERSION").to_owned(),
                    report: Box::new(finished.report),
                    end,
                    ..Share::default()
                };
                self.tell(PartNews::Ended(Box::new(share)));
            }
            Err(error) => self.tell(PartNews::TooLate(error.to_string())),
        }
    }

    /// Ports of the plan at this host that the agent does not offer.
    fn barred(&self, plan: &Plan) -> Vec<Problem> {
        let Surroundings { host, ports, .. } = &self.around;
        let own = plan.ports.iter().filter(|port| {
            let of = port.locator.host.as_ref();
            of.is_none_or(|of| of == host)
        });
        let is_barred = |place: &str| {
            !ports.is_empty() && !ports.iter().any(|glob| wb_runs::matches(glob, place))
        };
        let barred = own.filter(|port| is_barred(&port.locator.place()));
        let problem = |port: &wb_model::PortPlan| {
            let what = format!("the agent offers only {}", ports.join(", "));
            Problem::new(format!("{host}: {}", port.title()), what)
        };
        barred.map(problem).collect()
    }

    fn flows(&self) -> Vec<DirectionFlows> {
        let flows = |way: &Direction| DirectionFlows {
            direction: way.name.clone(),
            first: way.first_flow,
            count: way.flows,
        };
        self.directions.iter().map(flows).collect()
    }

    fn refused(&self, error: &StartError, fetched: Option<&Fetched>) -> Refused {
        let host = &self.around.host;
        match error {
            StartError::Plan(error) => {
                let problem = |p: &PlanProblem| {
                    let what = Fetched::with_names(fetched, &p.what);
                    Problem::new(format!("{host}: {}", p.place), what)
                };
                Refused {
                    kind: RefusedKind::Plan,
                    problems: error.0.iter().map(problem).collect(),
                }
            }
            _ => {
                let what = Fetched::with_names(fetched, &error.to_string());
                Refused::new(RefusedKind::Machine, host.as_str(), what)
            }
        }
    }
}

/// Observer of the part: passes on each view, and the ends of its senders.
struct Watcher<'a> {
    part: &'a Part,
}

impl Observer for Watcher<'_> {
    fn recorded(&mut self, _: &Timeline) {}

    fn view(&mut self, view: &View<'_>) {
        let snapshot = view.snapshot.clone();
        let counts = |job: &wb_model::report::JobReport| JobCounts {
            name: job.name.clone(),
            offered: job.totals.offered_frames,
            received: job.totals.received_frames,
            duplicate: job.totals.duplicate_frames,
        };
        let interval = snapshot.interval_ns.max(1);
        let snap = Snap {
            v: V1,
            k: (snapshot.elapsed_ns + interval / 2) / interval,
            at_wall_ns: wb_machine::clock::wall_ns(),
            jobs: view.report.jobs.iter().map(counts).collect(),
            snapshot,
            histograms: Vec::new(),
            so_far: Some(Box::new(Report {
                plan: Plan::default(),
                timeline: Timeline::default(),
                ..view.report.clone()
            })),
        };
        self.part.tell(PartNews::Snapshot(Box::new(snap)));
    }
}
