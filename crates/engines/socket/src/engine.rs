//! Runs of socket tests: clients one after another, or a server until it is stopped.
//!
//! The engine queries the machine through [`crate::Host`], which is implemented here: names from the system's
//! resolver, CPU times, addresses. If a client fails, its measurements up to the failure are still in the report.

use std::{
    borrow::Cow,
    net::{IpAddr, SocketAddr, TcpStream},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        mpsc::{Receiver, Sender, channel},
    },
    time::{Duration, Instant},
};

use crate::{CpuTimes, Host, JobPlace, Resolved, SocketServer, StopRequest, run_job};
use wb_engine::{Ended, Engine, EngineState, Launch, Outcome, Part, Stop};
use wb_engine::{opening::Environment, signals::Signals};
use wb_machine::{Ethtool, Namespace, Netlink, clock::monotonic_ns, user::KeptPrivileges};
use wb_model::{
    JobKind, Phase, Plan, Snapshot,
    socket::{
        Family, SocketFailure, SocketJob, SocketJobReport, SocketLive, SocketReport,
        SocketServerJob, SocketStage,
    },
    timeline::Row,
};
use wb_open::{OpenPort, StartError, Workers};

mod report;

/// Task of the socket engine of a run.
enum Task {
    /// Tests, one after another. If `progress` is true, tests without a reporting interval report their progress once
    /// per interval of the plan.
    Tests { progress: bool },
    /// A server that runs until it is stopped.
    Serve(SocketServer),
    /// One client on a control connection that was accepted elsewhere.
    ServeOne(TcpStream),
}

/// Outcome of a task.
#[derive(Default)]
struct TaskOutcome {
    report: SocketReport,
    /// Name of the first test that failed, and the failure.
    failure: Option<(String, SocketFailure)>,
    /// Reason why no client could be served.
    refused: Option<String>,
}

/// Socket tests of a run, or its server.
pub struct Sockets {
    plan: Plan,
    task: Option<Task>,
    host: Arc<MachineHost>,
    signals: Signals,
    stop: Arc<StopRequest>,
    worker: Workers<TaskOutcome>,
    /// Start of the worker, until it has been given.
    start: Option<Sender<()>>,
    start_ns: u64,
    live: Receiver<SocketLive>,
    last: Option<SocketLive>,
    outcome: TaskOutcome,
}

impl Sockets {
    /// Prepares tests or a server. For tests nothing is opened yet: each test resolves names and makes connections
    /// itself. A server starts to listen. `control` is the connection of the only client to serve.
    ///
    /// # Errors
    /// Fails if the server cannot listen or cannot give up its privileges.
    pub fn open(
        plan: &Plan,
        progress: bool,
        control: Option<TcpStream>,
        environment: &Environment,
    ) -> Result<Self, StartError> {
        let give_up = |job| match environment.shares_process {
            true => Ok(()),
            false => give_up_privileges(job),
        };
        let (task, host) = match (&plan.socket_server, control) {
            (Some(job), Some(control)) => {
                give_up(job)?;
                (Task::ServeOne(control), MachineHost::for_remote_clients())
            }
            (Some(job), None) => {
                let host: Arc<dyn Host> = Arc::new(MachineHost::for_remote_clients());
                let server = SocketServer::bind(job, host).map_err(|e| {
                    let listen = job.listen.as_deref().unwrap_or("all addresses");
                    StartError::stream(format!("{listen}:{}", job.port), e.to_string())
                })?;
                give_up(job)?;
                (Task::Serve(server), MachineHost::for_remote_clients())
            }
            (None, _) => (Task::Tests { progress }, MachineHost::new()),
        };
        Ok(Self {
            plan: plan.clone(),
            task: Some(task),
            host: Arc::new(host),
            signals: environment.signals.clone(),
            stop: Arc::new(StopRequest::default()),
            worker: Workers::new(&Arc::default()),
            start: None,
            start_ns: 0,
            live: channel().1,
            last: None,
            outcome: TaskOutcome::default(),
        })
    }

    /// Addresses on which the server listens.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        match &self.task {
            Some(Task::Serve(server)) => server.local_addresses(),
            _ => Vec::new(),
        }
    }
}

impl Sockets {
    /// Lets the worker begin if its start has come.
    fn release(&mut self, now_ns: u64) {
        if let Some(start) = self.start.take_if(|_| now_ns >= self.start_ns) {
            // The worker waits for this message.
            let _ = start.send(());
        }
    }
}

impl Engine for Sockets {
    fn kind(&self) -> JobKind {
        JobKind::Socket
    }

    fn ports(&self) -> &[OpenPort] {
        &[]
    }

    fn only_listens(&self) -> bool {
        self.plan.socket_server.is_some()
    }

    fn spawn(&mut self, launch: &Launch<'_>) -> Result<(), StartError> {
        let (start, started) = channel();
        let (tell, live) = channel();
        self.worker = Workers::new(launch.alarm);
        let (plan, host) = (self.plan.clone(), Arc::clone(&self.host));
        let stop = Arc::clone(&self.stop);
        let task = self.task.take();
        let alarm = Arc::clone(launch.alarm);
        let work = move || {
            // If the receiver is gone, the run is over.
            let mut observe = |live: &SocketLive| {
                let _ = tell.send(*live);
                alarm.bell.ring();
            };
            // If nothing is received, the thread that starts the run is gone.
            match (started.recv(), task) {
                (Ok(()), Some(task)) => carry_out(task, &plan, host, &stop, &mut observe),
                _ => TaskOutcome::default(),
            }
        };
        // Plain thread without raised priority, because ordinary programs use sockets in the same way.
        self.worker.spawn_plain("wb-sockets".to_owned(), work)?;
        (self.start, self.live) = (Some(start), live);
        Ok(())
    }

    fn begin(&mut self, start_ns: u64) {
        self.start_ns = start_ns;
        self.release(monotonic_ns());
    }

    fn due_ns(&self) -> u64 {
        self.start.as_ref().map_or(u64::MAX, |_| self.start_ns)
    }

    fn stop(&mut self, _how: Stop) {
        self.start = None;
        self.stop.set();
    }

    fn state(&mut self, now: u64) -> EngineState {
        self.release(now);
        // Read first: the run must see the signal before it sees the end that the signal causes.
        let is_over = self.worker.all_over();
        // Includes the signal that the user has set as the end.
        if self.signals.received().is_some() {
            self.stop.set();
        }
        match is_over {
            true => EngineState::Over,
            false => EngineState::Running,
        }
    }

    fn has_own_times(&self) -> bool {
        true
    }

    /// Returns true for a server without clients.
    fn is_idle(&self) -> bool {
        let idle = |live: SocketLive| live.clients == 0 && live.units == 0;
        self.start.is_none() && self.only_listens() && self.last.is_none_or(idle)
    }

    fn has_news(&mut self) -> bool {
        let news = self.live.try_recv();
        self.last = news.ok().or(self.last);
        news.is_ok()
    }

    /// The report of a test exists when the test has ended.
    fn fill(&self, _part: &mut Part<'_>) {}

    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    fn show(&mut self, snapshot: &mut Snapshot, _now_ns: u64) {
        let Some(live) = self.last else {
            return;
        };
        snapshot.interval_ns = (live.interval_s * 1e9) as u64;
        let part = f64::from(live.job) / f64::from(live.jobs.max(1));
        snapshot.progress = (live.jobs > 1).then_some(part);
        snapshot.phase = Phase::Running;
        snapshot.socket = Some(live);
    }

    #[allow(clippy::cast_precision_loss)]
    fn record(&self, row: &mut Row<'_>) {
        let Some(live) = self.last.filter(|live| live.interval_s > 0.0) else {
            return;
        };
        let per_second = live.units as f64 / live.interval_s;
        match live.transactions {
            true => row.level("socket", "transactions_per_second", "/s", per_second),
            false => row.level("socket", "throughput_bps", "bit/s", 8.0 * per_second),
        }
    }

    fn join(&mut self) -> Option<String> {
        let outcome = self.worker.join().pop();
        let Some(Some(outcome)) = outcome else {
            return Some("the socket test thread panicked; its counts are missing".into());
        };
        self.outcome = outcome;
        if self.signals.interrupted().is_some() {
            // A signal caused later failures.
            return None;
        }
        let many = self.plan.sockets.len() > 1;
        let failed = self.outcome.failure.as_ref().map(|(name, why)| match many {
            true => format!("{name}: {}", why.what),
            false => why.what.clone(),
        });
        failed.or_else(|| self.outcome.refused.clone())
    }

    fn settle(&mut self, part: &mut Part<'_>, ended: &Ended) -> Outcome {
        let sockets = std::mem::take(&mut self.outcome.report);
        report::settle(&self.plan, part, ended, sockets)
    }
}

fn carry_out(
    task: Task,
    plan: &Plan,
    host: Arc<MachineHost>,
    stop: &StopRequest,
    observe: &mut dyn FnMut(&SocketLive),
) -> TaskOutcome {
    let served = match task {
        Task::Tests { progress } => return test(plan, progress, &host, stop, observe),
        Task::Serve(server) => Ok(server.serve(stop, observe)),
        Task::ServeOne(control) => {
            let default = SocketServerJob::default();
            let job = plan.socket_server.as_ref().unwrap_or(&default);
            crate::serve_one(job, host, control)
        }
    };
    match served {
        Ok(served) => TaskOutcome {
            report: SocketReport {
                jobs: Vec::new(),
                server: Some(served),
            },
            ..TaskOutcome::default()
        },
        Err(why) => TaskOutcome {
            refused: Some(format!("standard input: {why}")),
            ..TaskOutcome::default()
        },
    }
}

/// Runs the tests in order. After a failed test the next one runs, unless no server answers at all. `stop` ends the
/// current test in order and skips the remaining ones.
fn test(
    plan: &Plan,
    progress: bool,
    host: &MachineHost,
    stop: &StopRequest,
    observe: &mut dyn FnMut(&SocketLive),
) -> TaskOutcome {
    let mut outcome = TaskOutcome::default();
    for (number, job) in (0_u32..).zip(&plan.sockets) {
        if stop.is_set() {
            break;
        }
        let place = JobPlace {
            index: number,
            count: u32::try_from(plan.sockets.len()).unwrap_or(u32::MAX),
            seed: plan.seed.wrapping_add(u64::from(number)),
        };
        let shown = match progress && job.interim.is_none() {
            true => Cow::Owned(SocketJob {
                interim: Some(plan.interval),
                ..job.clone()
            }),
            false => Cow::Borrowed(job),
        };
        let mut report = run_job(&shown, place, host, stop, observe);
        if job.interim.is_none() {
            report.intervals.clear();
        }
        require_what_varies(job, &mut report);
        report.link = host.link_towards(&report.server).unwrap_or_default();
        let failed = report.failure.clone();
        outcome.report.jobs.push(report);
        if let Some(failed) = failed {
            let hopeless = nobody_answers(&failed);
            outcome.failure.get_or_insert((job.name.clone(), failed));
            if hopeless {
                break;
            }
        }
    }
    outcome
}

/// Default user of a server that root starts.
const UNPRIVILEGED: &str = "nobody";

/// Gives up the rights of root before serving: at most, the server needed them to listen.
fn give_up_privileges(job: &SocketServerJob) -> Result<(), StartError> {
    match job.user.as_deref() {
        Some("root") => Ok(()),
        Some(user) => wb_machine::user::become_user(user, KeptPrivileges::default())
            .map_err(StartError::machine),
        // A machine may have no such user. A user namespace may contain only its own root, which has no rights to give
        // up.
        None if rustix::process::geteuid().is_root() => {
            let _ = wb_machine::user::become_user(UNPRIVILEGED, KeptPrivileges::default());
            Ok(())
        }
        None => Ok(()),
    }
}

/// Fails a test of a set that did not run with the value in its row.
fn require_what_varies(job: &SocketJob, report: &mut SocketJobReport) {
    let varies = job.point.iter().any(|(name, _)| name == "congestion");
    let had = &report.local.congestion;
    if let Some(wanted) = job.local.congestion.as_ref().filter(|_| varies)
        && !had.is_empty()
        && had != wanted
        && report.failure.is_none()
    {
        report.failure = Some(SocketFailure {
            stage: SocketStage::Socket,
            what: format!("congestion control {wanted} is not available; the test ran with {had}"),
            errno: None,
        });
    }
}

/// Returns true if the next test would fail in the same way.
fn nobody_answers(failure: &SocketFailure) -> bool {
    use wb_model::socket::SocketStage::{Connect, Resolve};
    matches!(failure.stage, Resolve | Connect)
}

/// Ends of a data connection, as the resolver returns them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataEnds {
    /// Name of the server.
    pub server_name: String,
    /// Address of the server.
    pub server: IpAddr,
    /// Name and address of this end, if the job names one.
    pub local: Option<(String, IpAddr)>,
}

/// Looks up both ends of a test's data connection.
///
/// # Errors
/// Fails if a name cannot be resolved.
pub fn data_ends(job: &SocketJob) -> Result<DataEnds, SocketFailure> {
    let host = MachineHost::new();
    let family = match job.data.family {
        Family::Any => job.control.family,
        family => family,
    };
    let ask = |name: &str, family: Family| {
        let resolved = host.resolve(name, family).map_err(|why| SocketFailure {
            stage: SocketStage::Resolve,
            what: format!("{name}: {why}"),
            errno: None,
        })?;
        Ok((resolved.name, resolved.addresses[0]))
    };
    let (name, address) = ask(
        job.data.server.as_deref().unwrap_or(&job.control.server),
        family,
    )?;
    let local_family = match address {
        IpAddr::V4(_) => Family::Ipv4,
        IpAddr::V6(_) => Family::Ipv6,
    };
    let local = job.data.local.as_deref().or(job.control.local.as_deref());
    let local = local.map(|local| ask(local, local_family)).transpose()?;
    Ok(DataEnds {
        server_name: name,
        server: address,
        local,
    })
}

/// The machine, as the engine queries it.
struct MachineHost {
    known: Mutex<AddressCache>,
    /// CPUs to which threads may be pinned; `None` means any CPU.
    cpus: Option<Vec<u32>>,
}

/// Addresses of the machine at the last query.
struct AddressCache {
    netlink: Option<Netlink>,
    asked: Option<Instant>,
    addresses: Vec<IpAddr>,
}

/// Shortest time between two queries of the machine's addresses. Addresses change seldom, so only a lookup of an
/// unknown address causes a query.
const AGAIN: Duration = Duration::from_millis(100);

impl MachineHost {
    fn new() -> Self {
        Self {
            known: Mutex::new(AddressCache {
                netlink: Namespace::current().and_then(|n| Netlink::open(&n)).ok(),
                asked: None,
                addresses: Vec::new(),
            }),
            cpus: None,
        }
    }

    /// Creates the host of a server. Clients may choose only among the CPUs that the server was given.
    fn for_remote_clients() -> Self {
        Self {
            cpus: wb_machine::cpu::allowed().ok(),
            ..Self::new()
        }
    }

    fn known(&self) -> MutexGuard<'_, AddressCache> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MachineHost {
    /// Returns the interface by which packets to this address leave, and its speed.
    fn link_towards(&self, server: &str) -> Option<String> {
        let address: std::net::SocketAddr = server.parse().ok()?;
        let known = self.known();
        let netlink = known.netlink.as_ref()?;
        let route = netlink.route_to(address.ip()).ok()??;
        let links = netlink.links().ok()?;
        let interface = links.into_iter().find(|l| l.index == route.interface)?.name;
        let speed = Namespace::current()
            .and_then(|n| Ethtool::open(&n))
            .and_then(|ethtool| ethtool.speed(&interface))
            .ok()
            .flatten()
            .filter(|speed| !speed.nominal);
        Some(match speed {
            Some(speed) => format!("{interface} {} Mbit/s", speed.bits_per_second / 1_000_000),
            None => interface,
        })
    }
}

impl Host for MachineHost {
    fn resolve(&self, name: &str, family: Family) -> Result<Resolved, String> {
        let ipv6 = match family {
            Family::Any => None,
            Family::Ipv4 => Some(false),
            Family::Ipv6 => Some(true),
        };
        let host = wb_machine::resolve::resolve(name, ipv6)?;
        Ok(Resolved {
            name: host.name,
            addresses: host.addresses,
            scope: host.scope,
        })
    }

    fn cpu_times(&self) -> Option<CpuTimes> {
        wb_machine::cpu::times().map(|cpus| CpuTimes { cpus })
    }

    fn bind_cpu(&self, cpu: u32) -> Result<(), String> {
        if !self.cpus.as_ref().is_none_or(|own| own.contains(&cpu)) {
            return Err(format!("CPU {cpu} is not available to this server"));
        }
        wb_machine::cpu::pin(cpu).map_err(|e| e.to_string())
    }

    fn has_address(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        if address.is_loopback() {
            return true;
        }
        let mut known = self.known();
        if known.addresses.contains(&address) {
            return true;
        }
        if known.asked.is_none_or(|asked| asked.elapsed() > AGAIN) {
            known.asked = Some(Instant::now());
            // If the kernel gives no answer, no client is refused.
            let Some(Ok(all)) = known.netlink.as_ref().map(Netlink::all_addresses) else {
                return true;
            };
            known.addresses = all.iter().map(|a| a.address).collect();
        }
        known.addresses.contains(&address)
    }
}
