//! The current runs of a program: started, queued, stopped.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    path::PathBuf,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use jiff::Timestamp;
use thiserror::Error;
use wb_machine::{
    HostError,
    clock::{monotonic_ns, wall_ns},
    link, locks,
    netns::Namespace,
    runs::Listed,
};
use wb_model::{
    Locator, Phase, Plan, PlanError, PlanProblem, Report,
    bench::SuitePlan,
    fleet::{HostReport, HostState},
    plan::Procedure,
    powers::PowerUse,
    report::{JobReport, PortReport},
    timeline::Timeline,
};
use wb_render::metrics::Seen;
use wb_session::{
    Carrier, Environment, PortHint, Signals, Steer, Steering, StreamState, StreamSteer, View,
};

use crate::{
    carry_out::{Ending, Work, carry_out, publish_end},
    concerns::{Concern, concerns},
    feed::{Feed, NumberedEvent},
    grants::{Grants, is_plain_name},
    ports::{HeldPort, Holder, Ports, Waiting, matches, may_start},
    store::{RunEnd, RunFolder, RunMeta, RunState, Store, StoreError},
};

/// Interval at which waiting runs look whether other processes have left their ports.
const LOOK: Duration = Duration::from_millis(250);
/// Interval at which reports that could not be written are tried again.
const SAVE_AGAIN: Duration = Duration::from_secs(5);
/// Interval at which a server looks for results that arrived after the end of their runs.
const REVISE: Duration = Duration::from_secs(1);
/// Maximum number of runs that wait.
const MOST_QUEUED: usize = 100;
/// Free space in bytes that a new capture needs.
const LEAST_FREE: u64 = 1 << 30;
/// Time for which the figures of an ended run are still shown, so that each reader sees the last ones.
const RECENT: Duration = Duration::from_secs(60);
/// One second in ns.
const SECOND_NS: u64 = 1_000_000_000;

/// Settings of a program that runs plans.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Folder of the history.
    pub state: PathBuf,
    /// Number of ended runs to keep.
    pub keep: usize,
    /// Maximum number of runs at the same time.
    pub most: usize,
    /// Powers that plans may use.
    pub grants: Grants,
    /// Ports that plans may use, with `*` and `?`; empty: all.
    pub ports: Vec<String>,
    /// Carries out plans that name hosts; `None`: such plans are refused.
    pub carrier: Option<Arc<dyn Carrier>>,
    /// Local socket that takes requests to stop runs.
    pub socket: Option<PathBuf>,
    /// Returns what is known about the ports of a plan from outside of it, by place.
    pub hints: fn(&Plan) -> BTreeMap<String, PortHint>,
}

/// Request for a run.
#[derive(Clone, Debug, Default)]
pub struct RunRequest {
    /// The plan.
    pub plan: Plan,
    /// Name for people; may be empty.
    pub name: String,
    /// Labels for programs.
    pub labels: BTreeMap<String, String>,
    /// Time to wait for ports that are in use; without it, such a run is refused at once.
    pub wait: Option<Duration>,
    /// Owner for the run: it may use the ports of this owner.
    pub owner: Option<String>,
    /// Confirms that the network of a benchmark is isolated.
    pub isolated: bool,
    /// Names of streams that are off until they are switched on ([`Run::steer_streams`]).
    pub held: Vec<String>,
}

/// Reason why a run is refused.
#[derive(Debug, Error)]
pub enum Refusal {
    /// The plan is invalid.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The plan uses powers that are not granted.
    #[error("the plan uses powers that this server does not grant")]
    Powers(Vec<PowerUse>),
    /// Ports that plans may not use here.
    #[error("this server does not offer these ports")]
    Offered(Vec<String>),
    /// The isolation of the network is not confirmed.
    #[error(
        "a benchmark overloads the device on purpose (RFC 6815); confirm that no other system uses the network"
    )]
    Concerns(Vec<Concern>),
    /// Ports are in use.
    #[error("ports are in use")]
    Held(Vec<HeldPort>),
    /// Too many runs are active.
    #[error("{0} runs are active, the maximum of this server")]
    Busy(usize),
    /// Too many runs wait.
    #[error("{0} runs are waiting, the maximum")]
    Waiting(usize),
    /// The program ends.
    #[error("the server is about to end")]
    Stopping,
    /// Too little disk space for a capture.
    #[error("less than 1 GiB of disk space is free for captures")]
    Full,
    /// The run cannot be stored.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The machine refused a check.
    #[error(transparent)]
    Machine(#[from] HostError),
}

/// A current run.
#[derive(Debug)]
pub struct Run {
    /// Name.
    pub id: String,
    /// Events.
    pub feed: Feed,
    pub(crate) folder: RunFolder,
    pub(crate) signals: Signals,
    pub(crate) steering: Steering,
    pub(crate) course: Course,
    meta: Mutex<RunMeta>,
    /// Figures for readers of metrics.
    seen: Mutex<Arc<Seen>>,
    /// The report so far, without its timeline.
    so_far: Mutex<Option<Arc<Report>>>,
    /// Frames of jobs and streams within the last second, and the last ones before.
    jobs: Mutex<VecDeque<JobsSoFar>>,
    plan: Mutex<Arc<Plan>>,
    /// The report, if it could not be stored.
    report: Mutex<Option<Arc<Report>>>,
    started: Mutex<Option<Instant>>,
    stopping: AtomicBool,
    /// True once a client changed the rate.
    steered: AtomicBool,
    /// Lets `wirebench ls` find the run until it has ended.
    listed: Mutex<Option<Listed>>,
}

/// Frames of the jobs of a run at a moment.
#[derive(Clone, Debug)]
pub struct JobsSoFar {
    /// Time since the start of the run, in ns.
    pub elapsed_ns: u64,
    /// Phase of the run.
    pub phase: Phase,
    /// Jobs with their streams.
    pub jobs: Arc<Vec<JobReport>>,
    /// Ports with their counters.
    pub ports: Arc<Vec<PortReport>>,
}

/// Figures of a run over time. They are copied on request only.
#[derive(Debug, Default)]
pub(crate) struct Course {
    is_wanted: AtomicBool,
    latest: Mutex<Option<Arc<Timeline>>>,
    /// Number of copies so far.
    copies: AtomicU64,
}

impl Course {
    /// Takes over the figures so far, if a reader waits for them.
    pub(crate) fn offer(&self, timeline: &Timeline) {
        if self.is_wanted.swap(false, Ordering::Relaxed) {
            *lock(&self.latest) = Some(Arc::new(timeline.clone()));
            self.copies.fetch_add(1, Ordering::Release);
        }
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Run {
    fn new(meta: RunMeta, folder: RunFolder, plan: Plan, listed: Option<Listed>) -> Self {
        Self {
            id: meta.id.clone(),
            feed: Feed::default(),
            folder,
            signals: Signals::none(),
            steering: Steering::default(),
            course: Course::default(),
            meta: Mutex::new(meta),
            seen: Mutex::default(),
            so_far: Mutex::default(),
            jobs: Mutex::default(),
            plan: Mutex::new(Arc::new(plan)),
            report: Mutex::default(),
            started: Mutex::default(),
            stopping: AtomicBool::new(false),
            steered: AtomicBool::new(false),
            listed: Mutex::new(listed),
        }
    }

    /// Facts about the run at this moment.
    #[must_use]
    pub fn meta(&self) -> RunMeta {
        let mut meta = lock(&self.meta).clone();
        if meta.state != RunState::Ended
            && let Some(started) = *lock(&self.started)
        {
            meta.elapsed_ns = u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        }
        meta
    }

    fn has_ended(&self) -> bool {
        lock(&self.meta).state == RunState::Ended
    }

    /// The plan, with resolved addresses once the run is ready.
    #[must_use]
    pub fn plan(&self) -> Arc<Plan> {
        Arc::clone(&lock(&self.plan))
    }

    pub(crate) fn resolved(&self, plan: &Plan) {
        *lock(&self.plan) = Arc::new(plan.clone());
    }

    pub(crate) fn change(&self, change: impl FnOnce(&mut RunMeta)) {
        change(&mut lock(&self.meta));
    }

    pub(crate) fn begins(&self) {
        *lock(&self.started) = Some(Instant::now());
    }

    pub(crate) fn show(&self, seen: Seen) {
        *lock(&self.seen) = Arc::new(seen);
    }

    pub(crate) fn seen(&self) -> Arc<Seen> {
        Arc::clone(&lock(&self.seen))
    }

    pub(crate) fn has_report_so_far(&self, report: Report) {
        *lock(&self.so_far) = Some(Arc::new(report));
    }

    /// The report so far, with the figures over time of the last interval in which they were asked for. They are asked
    /// for again.
    #[must_use]
    pub fn so_far(&self) -> Option<Report> {
        self.ask_for_course();
        let mut report = lock(&self.so_far).as_deref().cloned()?;
        report.timeline = self.course().as_deref().cloned().unwrap_or_default();
        Some(report)
    }

    /// Returns true if the senders of the run can change their rate.
    #[must_use]
    pub fn can_be_steered(&self) -> bool {
        let plan = self.plan();
        plan.first_host().is_none() && Steering::is_followed_by(&plan)
    }

    pub(crate) fn show_jobs(&self, now: JobsSoFar) {
        let mut jobs = lock(&self.jobs);
        let is_old = |at: &JobsSoFar| now.elapsed_ns.saturating_sub(at.elapsed_ns) >= SECOND_NS;
        // The newest of those that are a second old is the base of rates.
        while jobs.get(1).is_some_and(is_old) {
            jobs.pop_front();
        }
        jobs.push_back(now);
    }

    /// Frames of jobs and streams so far, the newest last. The first figures are about a second older, or those of the
    /// first interval.
    #[must_use]
    pub fn jobs(&self) -> Vec<JobsSoFar> {
        lock(&self.jobs).iter().cloned().collect()
    }

    pub(crate) fn was_steered(&self) -> bool {
        self.steered.load(Ordering::Relaxed)
    }

    /// Writes the report that could not be written before, and the facts. Returns true if both are on the disk.
    fn is_saved(&self) -> bool {
        let mut report = lock(&self.report);
        let kept = report.clone();
        if kept.is_some_and(|kept| self.folder.write("report.json.zst", &*kept).is_err()) {
            return false;
        }
        *report = None;
        self.folder.write("run.json", &self.meta()).is_ok()
    }

    /// Asks for the figures over time so far. They are there once [`Run::courses`] has risen, at the next interval.
    pub fn ask_for_course(&self) {
        self.course.is_wanted.store(true, Ordering::Relaxed);
    }

    /// Number of copies of the figures over time that were made so far.
    #[must_use]
    pub fn courses(&self) -> u64 {
        self.course.copies.load(Ordering::Acquire)
    }

    /// The figures over time, as of the last copy.
    #[must_use]
    pub fn course(&self) -> Option<Arc<Timeline>> {
        lock(&self.course.latest).clone()
    }

    /// Requests a change of the rate. Returns false if the senders of the run cannot follow it.
    pub fn steer(&self, wish: Steer) -> bool {
        let follows = self.can_be_steered();
        if follows {
            self.steered.store(true, Ordering::Relaxed);
            self.steering.ask(wish);
        }
        follows
    }

    /// The streams of the run as they are now, while clients can change them.
    #[must_use]
    pub fn streams(&self) -> Vec<StreamState> {
        match self.plan().procedure {
            Some(_) => Vec::new(),
            None => self.steering.streams(),
        }
    }

    /// Changes streams by their names, all at the same time. A name stands for all streams that have it.
    ///
    /// # Errors
    /// The reason why a stream cannot follow. No stream changes then.
    pub fn steer_streams(&self, wishes: &[(String, StreamSteer)]) -> Result<(), String> {
        if self.plan().procedure.is_some() {
            return Err("a benchmark sets the rates of its streams".to_owned());
        }
        if self.plan().first_host().is_some() {
            return Err("streams of other hosts cannot be changed during the run".to_owned());
        }
        self.steering.steer_streams(wishes)
    }

    /// Asks the run to end in order, or without waiting for frames in flight. Repeated requests change nothing.
    fn interrupt(&self, now: bool) {
        if !self.stopping.swap(true, Ordering::Relaxed) {
            self.signals.raise(Signals::REQUEST);
        }
        if now && !self.signals.hurry() {
            self.signals.raise(Signals::REQUEST);
        }
    }
}

/// Run that waits for its ports.
struct Queued {
    waiting: Waiting,
    run: Arc<Run>,
    plan: Plan,
    until: Instant,
    wait: Duration,
}

#[derive(Default)]
struct Table {
    /// Current runs, queued ones included, and ended ones with a report that could not be stored.
    runs: BTreeMap<String, Arc<Run>>,
    queue: Vec<Queued>,
    ports: Ports,
    active: usize,
    stopping: bool,
    /// Runs that ended a short time ago, with their last figures.
    recent: Vec<(Instant, String, Arc<Seen>)>,
}

struct Inner {
    settings: Settings,
    store: Store,
    table: Mutex<Table>,
    changed: Condvar,
}

/// The runs of a program.
#[derive(Clone)]
pub struct Runs(Arc<Inner>);

impl Runs {
    /// Opens the history, and makes ready for runs.
    ///
    /// # Errors
    /// If the history cannot be used, or a thread cannot be started.
    pub fn new(settings: Settings) -> Result<Self, StoreError> {
        let store = Store::open(&settings.state, settings.keep)?;
        let inner = Arc::new(Inner {
            settings,
            store,
            table: Mutex::default(),
            changed: Condvar::new(),
        });
        let queue = Arc::clone(&inner);
        thread::Builder::new()
            .name("wb-queue".to_owned())
            .spawn(move || serve_queue(&queue))
            .map_err(|cause| StoreError::File {
                what: "start a thread for",
                path: inner.settings.state.clone(),
                cause,
            })?;
        let mut table = lock(&inner.table);
        for meta in inner.store.left_behind() {
            inner.resume(&mut table, meta.clone());
        }
        drop(table);
        Ok(Self(inner))
    }

    /// The settings.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.0.settings
    }

    /// Checks a plan without opening anything. Returns the plan, in which several jobs of a kind have names, the
    /// warnings, and the concerns to confirm.
    ///
    /// # Errors
    /// The reason why a run of the plan would be refused, apart from ports in use and concerns.
    pub fn check(&self, plan: &Plan) -> Result<(Plan, Vec<String>, Vec<Concern>), Refusal> {
        let mut plan = plan.clone();
        let warnings = plan.validate()?;
        self.0.admit(&plan)?;
        let concerns = concerns(&plan)?;
        plan.name_jobs();
        Ok((plan, warnings, concerns))
    }

    /// Starts a run, or lets it wait for its ports.
    ///
    /// # Errors
    /// The reason why it is refused. Nothing was opened then.
    pub fn start(&self, request: RunRequest) -> Result<Arc<Run>, Refusal> {
        let RunRequest {
            mut plan,
            name,
            labels,
            wait,
            owner,
            isolated,
            held,
        } = request;
        plan.validate()?;
        self.0.admit(&plan)?;
        if let Some((place, host)) = plan.first_host()
            && !held.is_empty()
        {
            let what = format!("is on the host {host}: its streams cannot be off at the start");
            return Err(PlanError(vec![PlanProblem { place, what }]).into());
        }
        if isolated && let Some(suite) = suite_of(&mut plan) {
            suite.isolated = true;
        }
        let concerns = concerns(&plan)?;
        if !concerns.is_empty() {
            return Err(Refusal::Concerns(concerns));
        }
        if !plan.captures.is_empty() && self.0.store.free_bytes() < LEAST_FREE {
            return Err(Refusal::Full);
        }
        let ports = ports_of(&plan);
        let mut table = lock(&self.0.table);
        if table.stopping {
            return Err(Refusal::Stopping);
        }
        if wait.is_none() {
            table.refuse_held(&ports, owner.as_deref())?;
            if table.active >= self.0.settings.most {
                return Err(Refusal::Busy(table.active));
            }
        }
        if table.queue.len() >= MOST_QUEUED {
            return Err(Refusal::Waiting(table.queue.len()));
        }
        let run = self
            .0
            .new_run(&mut plan, name, labels, owner.clone(), &ports, held)?;
        table.runs.insert(run.id.clone(), Arc::clone(&run));
        let waiting = Waiting {
            id: run.id.clone(),
            ports,
            owner,
        };
        let wait = wait.unwrap_or_default();
        table.queue.push(Queued {
            waiting,
            run: Arc::clone(&run),
            plan,
            until: Instant::now() + wait,
            wait,
        });
        self.0.advance(&mut table);
        self.0.changed.notify_all();
        Ok(run)
    }

    /// A current run.
    #[must_use]
    pub fn current(&self, id: &str) -> Option<Arc<Run>> {
        lock(&self.0.table).runs.get(id).cloned()
    }

    /// Facts about a run.
    #[must_use]
    pub fn get(&self, id: &str) -> Option<RunMeta> {
        let current = self.current(id).map(|run| run.meta());
        current.or_else(|| self.0.store.get(id))
    }

    /// All runs, the newest first.
    #[must_use]
    pub fn list(&self) -> Vec<Arc<RunMeta>> {
        let current: Vec<Arc<Run>> = lock(&self.0.table).runs.values().cloned().collect();
        let mut all = self.0.store.list();
        for run in current {
            let meta = Arc::new(run.meta());
            match all.binary_search_by(|known| meta.id.cmp(&known.id)) {
                Ok(place) => all[place] = meta,
                Err(place) => all.insert(place, meta),
            }
        }
        all
    }

    /// The plan of a run.
    #[must_use]
    pub fn plan(&self, id: &str) -> Option<Plan> {
        let current = self.current(id).map(|run| (*run.plan()).clone());
        current.or_else(|| {
            self.0.store.get(id)?;
            self.0.store.folder(id).read("plan.json")
        })
    }

    /// The report of an ended run.
    #[must_use]
    pub fn report(&self, id: &str) -> Option<Report> {
        let unsaved = self.current(id).and_then(|run| lock(&run.report).clone());
        unsaved.map(|report| (*report).clone()).or_else(|| {
            // A run that is about to end has one, too.
            self.get(id)?;
            self.0.store.folder(id).read("report.json.zst")
        })
    }

    /// The events of an ended run, read one by one.
    pub fn events(&self, id: &str) -> impl Iterator<Item = NumberedEvent> + Send + use<> {
        let known = self.0.store.get(id);
        let folder = known.map(|_| self.0.store.folder(id));
        folder.into_iter().flat_map(|folder| folder.read_events())
    }

    /// Folder of the files that the captures of a run have written.
    #[must_use]
    pub fn files(&self, id: &str) -> Option<PathBuf> {
        self.get(id).map(|_| self.0.store.folder(id).files())
    }

    /// Asks a run to end. Returns false if there is no such run; an ended run needs no more.
    pub fn stop(&self, id: &str, now: bool) -> bool {
        let mut table = lock(&self.0.table);
        let place = table.queue.iter().position(|queued| queued.run.id == id);
        if let Some(place) = place {
            let queued = table.queue.remove(place);
            self.0.refuse(
                &mut table,
                &queued.run,
                RunEnd::Stopped,
                "stopped before it started",
            );
            return true;
        }
        let current = table.runs.get(id).cloned();
        drop(table);
        match current {
            Some(run) => run.interrupt(now),
            None => return self.0.store.get(id).is_some(),
        }
        true
    }

    /// Removes an ended run from the history. Returns false if there is none.
    pub fn remove(&self, id: &str) -> bool {
        let mut table = lock(&self.0.table);
        if let Some(run) = table.runs.get(id).filter(|run| run.has_ended()).cloned() {
            // It waits for space on the disk.
            table.runs.remove(id);
            self.0.store.add(run.meta());
        }
        drop(table);
        self.0.store.remove(id)
    }

    /// Gives a port to an owner for a time, or extends the lease. With `steals`, others lose the port, and a run of
    /// theirs is stopped.
    ///
    /// # Errors
    /// The user of the port.
    pub fn own(&self, port: &str, owner: &str, time: Duration, steals: bool) -> Result<(), Holder> {
        let now_ns = monotonic_ns();
        let until_ns = now_ns.saturating_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
        let mut table = lock(&self.0.table);
        let stolen = table.ports.own(port, owner, until_ns, now_ns, steals)?;
        drop(table);
        if let Some(id) = stolen {
            self.stop(&id, false);
        }
        Ok(())
    }

    /// Ends the lease of a port. Returns false if it is not of this owner.
    pub fn disown(&self, port: &str, owner: &str) -> bool {
        let ended = lock(&self.0.table).ports.disown(port, owner);
        self.0.changed.notify_all();
        ended
    }

    /// Returns true if plans may use a port here.
    #[must_use]
    pub fn offers(&self, port: &str) -> bool {
        let globs = &self.0.settings.ports;
        globs.is_empty() || globs.iter().any(|glob| matches(glob, port))
    }

    /// Returns true once new runs are refused.
    #[must_use]
    pub fn is_ending(&self) -> bool {
        lock(&self.0.table).stopping
    }

    /// The user of a port: a run, an owner or another process.
    #[must_use]
    pub fn holder(&self, port: &str) -> Option<Holder> {
        let held = lock(&self.0.table).ports.holder(port, None, monotonic_ns());
        held.or_else(|| process_at(port))
    }

    /// The number of active runs, and the figures of current runs and of those that ended within a minute, by name.
    #[must_use]
    pub fn figures(&self) -> (usize, Vec<(String, Arc<Seen>)>) {
        let table = lock(&self.0.table);
        let recent = table.recent.iter();
        let recent =
            recent.filter(|(at, id, _)| at.elapsed() < RECENT && !table.runs.contains_key(id));
        let mut all: Vec<_> = recent
            .map(|(_, id, seen)| (id.clone(), Arc::clone(seen)))
            .collect();
        all.extend(table.runs.values().map(|run| (run.id.clone(), run.seen())));
        (table.active, all)
    }

    /// Refuses new runs, stops the current ones, and waits until they have ended, for at most this time. Returns true if
    /// all have.
    pub fn end(&self, patience: Duration) -> bool {
        let all_ended = self.end_runs(patience);
        if let Some(carrier) = &self.0.settings.carrier {
            carrier.close();
        }
        all_ended
    }

    fn end_runs(&self, patience: Duration) -> bool {
        let mut table = lock(&self.0.table);
        table.stopping = true;
        let runs: Vec<String> = table.runs.keys().cloned().collect();
        drop(table);
        for id in &runs {
            self.stop(id, false);
        }
        self.0.changed.notify_all();
        let until = Instant::now() + patience;
        let mut table = lock(&self.0.table);
        self.0.save_ended(&mut table);
        while table.active > 0 {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let woken = self.0.changed.wait_timeout(table, left);
            table = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        self.0.save_ended(&mut table);
        table.runs.is_empty()
    }
}

impl Table {
    /// Refuses a run if its ports are in use, or wanted by runs that wait.
    fn refuse_held(&self, ports: &BTreeSet<String>, owner: Option<&str>) -> Result<(), Refusal> {
        match self.in_the_way(ports, owner, self.queue.len()) {
            held if held.is_empty() => Ok(()),
            held => Err(Refusal::Held(held)),
        }
    }

    /// The users that keep a run from using these ports; if there are none, those of the first `ahead` waiting runs that
    /// want a port.
    fn in_the_way(
        &self,
        ports: &BTreeSet<String>,
        owner: Option<&str>,
        ahead: usize,
    ) -> Vec<HeldPort> {
        let mut held = self.ports.holders(ports, owner, monotonic_ns());
        held.extend(processes_at(ports));
        if !held.is_empty() {
            return held;
        }
        let ahead = self.queue.iter().take(ahead);
        let wanted = ahead.flat_map(|queued| {
            let both = queued.waiting.ports.intersection(ports);
            both.map(|port| HeldPort {
                port: port.clone(),
                held_by: Holder::Waiting(queued.run.id.clone()),
            })
        });
        wanted.collect()
    }
}

impl Inner {
    /// Checks what a plan may do here.
    fn admit(&self, plan: &Plan) -> Result<(), Refusal> {
        let refused = self.settings.grants.refused(plan);
        if !refused.is_empty() {
            return Err(Refusal::Powers(refused));
        }
        if let Some((place, host)) = plan.first_host()
            && self.settings.carrier.is_none()
        {
            let what = format!("is on the host {host}; this server has no fleet (`--fleet FLEET`)");
            return Err(PlanError(vec![PlanProblem { place, what }]).into());
        }
        let (need, limit) = (
            wb_session::port_memory(plan),
            wb_session::total_memory() / 4,
        );
        if need > limit {
            let what = format!(
                "the ports need up to {} MiB of memory; the limit is {} MiB, a quarter of the memory",
                need >> 20,
                limit >> 20
            );
            let place = "port".to_owned();
            return Err(PlanError(vec![PlanProblem { place, what }]).into());
        }
        let globs = &self.settings.ports;
        let is_offered = |port: &String| globs.iter().any(|glob| matches(glob, port));
        let refused: Vec<String> = ports_of(plan)
            .into_iter()
            .filter(|port| !globs.is_empty() && !is_offered(port))
            .collect();
        match refused.is_empty() {
            true => Ok(()),
            false => Err(Refusal::Offered(refused)),
        }
    }

    fn new_run(
        &self,
        plan: &mut Plan,
        name: String,
        labels: BTreeMap<String, String>,
        owner: Option<String>,
        ports: &BTreeSet<String>,
        held: Vec<String>,
    ) -> Result<Arc<Run>, Refusal> {
        let now = Timestamp::now();
        let stamp = now.strftime("%Y%m%dT%H%M%S").to_string();
        let target = wb_render::plan_target(plan);
        let socket = self.settings.socket.as_deref();
        let listed = Listed::new(&stamp, &plan.kind, &target, wall_ns(), socket);
        let id = listed
            .id()
            .map_or_else(|| self.free_name(&stamp), str::to_owned);
        let meta = RunMeta {
            id: id.clone(),
            name,
            kind: plan.kind.clone(),
            target,
            ports: ports.iter().cloned().collect(),
            labels,
            owner,
            state: RunState::Queued,
            end: None,
            verdict: None,
            reason: String::new(),
            requested: now.to_string(),
            started: None,
            ended: None,
            elapsed_ns: 0,
            progress: None,
            now: String::new(),
            figures: Vec::new(),
        };
        let folder = self.store.create(&meta, plan)?;
        for capture in &mut plan.captures {
            if let Some(output) = capture.output.as_mut().filter(|o| is_plain_name(&o.path)) {
                output.path = folder.files().join(&output.path).display().to_string();
            }
        }
        let mut run = Run::new(meta, folder, plan.clone(), Some(listed));
        run.steering = Steering::with_held(held);
        Ok(Arc::new(run))
    }

    /// Continues a run over a fleet that a server left behind: its hosts may still run, and keep their results.
    fn resume(self: &Arc<Self>, table: &mut Table, meta: RunMeta) {
        let folder = self.store.folder(&meta.id);
        let plan = folder.read::<Plan>("plan.json");
        let plan = plan.filter(|plan| plan.first_host().is_some() && plan.procedure.is_none());
        let Some(plan) = plan.filter(|_| self.settings.carrier.is_some()) else {
            return;
        };
        let ports = ports_of(&plan);
        let run = Arc::new(Run::new(meta, folder, plan, None));
        for event in run.folder.read_events() {
            run.feed.push(event.name, &event.data);
        }
        table.runs.insert(run.id.clone(), Arc::clone(&run));
        self.spawn(table, &run, &ports, Work::Resume);
    }

    /// Ends a resumed run of which nothing more is known than the history has.
    fn give_up(&self, table: &mut Table, run: &Run) {
        if let Some(meta) = self.store.get(&run.id) {
            // The next start tries again if it cannot be written.
            let _ = run.folder.write("run.json", &meta);
        }
        run.folder.forget_so_far();
        table.runs.remove(&run.id);
    }

    /// A name of this second that no run has.
    fn free_name(&self, stamp: &str) -> String {
        let mut names = (0..=u16::MAX).map(|n| format!("{stamp}-{n:04x}"));
        let free = names.find(|name| !self.store.folder(name).files().exists());
        free.unwrap_or_else(|| stamp.to_owned())
    }

    /// Starts the queued runs with free ports, and refuses those that have waited for their whole time.
    fn advance(self: &Arc<Self>, table: &mut Table) {
        let now = Instant::now();
        let waiting: Vec<Waiting> = table.queue.iter().map(|q| q.waiting.clone()).collect();
        let free = match table.stopping {
            true => 0,
            false => self.settings.most.saturating_sub(table.active),
        };
        for id in may_start(&waiting, &table.ports, free, monotonic_ns()) {
            let place = table.queue.iter().position(|q| q.run.id == id);
            let Some(place) = place else { continue };
            if processes_at(&table.queue[place].waiting.ports)
                .next()
                .is_none()
            {
                let Queued {
                    run, plan, waiting, ..
                } = table.queue.remove(place);
                self.spawn(table, &run, &waiting.ports, Work::Start(Box::new(plan)));
            }
        }
        let late = |queued: &Queued| queued.until <= now;
        while let Some(place) = table.queue.iter().position(late) {
            let queued = table.queue.remove(place);
            let owner = queued.waiting.owner.as_deref();
            let held = table.in_the_way(&queued.waiting.ports, owner, place);
            let held: Vec<String> = held.iter().map(ToString::to_string).collect();
            let why = match held.is_empty() {
                true => format!("{} runs were active", table.active),
                false => held.join(", "),
            };
            let reason = format!("waited for {} s: {why}", queued.wait.as_secs_f64());
            self.refuse(table, &queued.run, RunEnd::Refused, &reason);
        }
    }

    /// Ends a run that never started.
    fn refuse(&self, table: &mut Table, run: &Arc<Run>, end: RunEnd, reason: &str) {
        let ending = Ending::without_report(end, reason);
        self.finish(table, run, end, reason.to_owned(), None);
        publish_end(run, ending);
        run.feed.close();
    }

    /// Moves a run that has ended into the history.
    fn finish(
        &self,
        table: &mut Table,
        run: &Arc<Run>,
        end: RunEnd,
        reason: String,
        report: Option<&Report>,
    ) {
        run.change(|meta| {
            meta.state = RunState::Ended;
            meta.end = Some(end);
            meta.ended = Some(Timestamp::now().to_string());
            meta.reason = reason;
            meta.progress = None;
            meta.now = String::new();
            if let Some(report) = report {
                meta.take_over(report);
            }
        });
        *lock(&run.listed) = None;
        table.recent.retain(|(at, ..)| at.elapsed() < RECENT);
        let seen = (Instant::now(), run.id.clone(), run.seen());
        table.recent.push(seen);
        self.save(table, run);
        self.changed.notify_all();
    }

    /// Adds a run that has ended to the history, as soon as its files can be written.
    fn save(&self, table: &mut Table, run: &Arc<Run>) {
        if run.is_saved() {
            run.folder.forget_so_far();
            self.store.add(run.meta());
            table.runs.remove(&run.id);
        }
    }

    /// Tries again to write what could not be written.
    fn save_ended(&self, table: &mut Table) {
        let runs = table.runs.values().cloned();
        let ended: Vec<_> = runs.filter(|run| run.has_ended()).collect();
        ended.iter().for_each(|run| self.save(table, run));
    }

    /// Carries out a run in a new thread.
    fn spawn(
        self: &Arc<Self>,
        table: &mut Table,
        run: &Arc<Run>,
        ports: &BTreeSet<String>,
        work: Work,
    ) {
        let owner = run.meta().owner;
        table.ports.take(ports, &run.id, owner.as_deref());
        table.active += 1;
        run.change(|meta| meta.state = RunState::Preparing);
        let (inner, carried) = (Arc::clone(self), Arc::clone(run));
        let resumes = matches!(work, Work::Resume);
        let work = move || {
            let ending = carry_out(&carried, work, &inner.settings);
            if resumes && ending.report.is_none() {
                let mut table = lock(&inner.table);
                table.active -= 1;
                table.ports.release(&carried.id);
                inner.give_up(&mut table, &carried);
                inner.advance(&mut table);
                drop(table);
                carried.feed.close();
                return;
            }
            let (end, reason) = (ending.end, ending.reason.clone());
            let report = ending.report.clone();
            // The report is there before anything says that the run has ended.
            let unsaved = publish_end(&carried, ending);
            *lock(&carried.report) = unsaved.map(Arc::from);
            let mut table = lock(&inner.table);
            table.active -= 1;
            table.ports.release(&carried.id);
            inner.finish(&mut table, &carried, end, reason, report.as_deref());
            inner.advance(&mut table);
            drop(table);
            carried.feed.close();
        };
        let name = format!("wb-run{}", run.id.get(15..).unwrap_or_default());
        if let Err(error) = thread::Builder::new().name(name).spawn(work) {
            table.active -= 1;
            table.ports.release(&run.id);
            let reason = format!("cannot start a thread: {error}");
            self.refuse(table, run, RunEnd::Refused, &reason);
        }
    }
}

impl Inner {
    /// Makes the reports of ended runs again if more results have arrived.
    fn revise(self: &Arc<Self>) {
        let carrier = self.settings.carrier.iter();
        for id in carrier.flat_map(|carrier| carrier.delivered_late()) {
            let (inner, name) = (Arc::clone(self), "wb-revise".to_owned());
            let work = move || inner.revise_one(&id);
            // Without a thread, the old report stays.
            let _ = thread::Builder::new().name(name).spawn(work);
        }
    }

    /// `None` if the report stays as it is.
    fn revise_one(&self, id: &str) -> Option<()> {
        let carrier = self.settings.carrier.as_ref()?;
        let mut meta = self.store.get(id)?;
        let folder = self.store.folder(id);
        let old: Report = folder.read("report.json.zst")?;
        let is_missing = |host: &&HostReport| host.state != HostState::Complete;
        let missing: Vec<&str> = old
            .hosts
            .iter()
            .filter(is_missing)
            .map(|host| &*host.host)
            .collect();
        if missing.is_empty() {
            return None;
        }
        let environment = Environment {
            run: Some(id.to_owned()),
            shares_process: true,
            ..Environment::default()
        };
        let resumed = carrier.resume(id, &environment, &mut |_: &View<'_>| {})?;
        let (mut report, _) = resumed.ok()?;
        report.warnings.push(format!(
            "made again with results that arrived after the end of the run; these hosts were missing at its end: {}",
            missing.join(", ")
        ));
        meta.take_over(&report);
        meta.reason.clone_from(&report.reason);
        folder.write("report.json.zst", &report).ok()?;
        folder.write("run.json", &meta).ok()?;
        self.store.add(meta);
        Some(())
    }
}

/// Looks after waiting runs until the program ends.
fn serve_queue(inner: &Arc<Inner>) {
    let mut table = lock(&inner.table);
    while !table.stopping {
        inner.advance(&mut table);
        inner.save_ended(&mut table);
        let is_unsaved = table.runs.values().any(|run| run.has_ended());
        let next = match (table.queue.is_empty(), is_unsaved) {
            (false, _) => LOOK,
            (true, true) => SAVE_AGAIN,
            // Late results of a fleet do not wake this thread, so it looks for them.
            (true, false) if inner.settings.carrier.is_some() => REVISE,
            (true, false) => Duration::from_secs(3600),
        };
        inner.revise();
        let woken = inner.changed.wait_timeout(table, next);
        table = woken.unwrap_or_else(PoisonError::into_inner).0;
    }
}

fn suite_of(plan: &mut Plan) -> Option<&mut SuitePlan> {
    match &mut plan.procedure {
        Some(Procedure::Suite(suite)) => Some(suite),
        _ => None,
    }
}

/// Ports that runs of a plan use alone: interfaces and links in memory.
fn ports_of(plan: &Plan) -> BTreeSet<String> {
    let interfaces = plan.locators().filter(|locator| locator.is_interface());
    interfaces.map(Locator::site).collect()
}

/// Other processes that use these ports.
fn processes_at(ports: &BTreeSet<String>) -> impl Iterator<Item = HeldPort> {
    ports.iter().filter_map(|port| {
        Some(HeldPort {
            port: port.clone(),
            held_by: process_at(port)?,
        })
    })
}

/// Another process that uses the queues of a port.
fn process_at(port: &str) -> Option<Holder> {
    let (namespace, name) = match port.split_once('/') {
        Some((node, name)) => (Namespace::named(node), name),
        None => (Namespace::current(), port),
    };
    // A port that cannot be read is reported when it is opened.
    let namespace = namespace.ok()?;
    let link = link::link_by_name(&namespace, name).ok()?;
    let others = locks::others_at(&namespace, link.index).ok()?;
    others.into_iter().next().map(Holder::Process)
}
