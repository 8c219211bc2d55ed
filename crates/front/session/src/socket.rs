//! Runs of socket tests: clients one after another, or a server until it is told to end.
//!
//! The engine asks the machine through [`wb_socket::Host`], which is answered here: names by the
//! system's resolver, CPU times, addresses. What a client measures before something breaks is in the
//! report all the same.

use std::{
    borrow::Cow,
    net::{IpAddr, TcpStream},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use wb_host::{
    Ethtool, Namespace, Netlink,
    clock::{ClockOffset, monotonic_ns, wall_minus_monotonic, wall_ns},
    user::Kept,
};
use wb_model::{
    Lateness, Phase, Plan, Snapshot, Totals,
    socket::{
        Family, SocketFailure, SocketJob, SocketJobReport, SocketLive, SocketReport,
        SocketServerJob, SocketStage,
    },
};
use wb_socket::{CpuTimes, Host, JobPlace, Resolved, Server, run_job};

use crate::{End, Finished, Signals, StartError, lateness::Watchman, run::clock_step};

mod report;

/// Socket tests that are ready to run.
pub struct PreparedSockets {
    plan: Plan,
    host: Arc<MachineHost>,
    signals: Signals,
}

/// A server that listens; the next step serves.
pub struct PreparedServer {
    plan: Plan,
    server: Server,
    signals: Signals,
}

/// Checks a plan of socket tests. Nothing is opened yet: names are resolved and connections made by
/// each test for itself.
///
/// # Errors
/// With everything that is wrong with the plan.
pub fn prepare_sockets(mut plan: Plan, signals: Signals) -> Result<PreparedSockets, StartError> {
    plan.validate()?;
    for (number, job) in plan.sockets.iter_mut().enumerate() {
        if job.name.is_empty() {
            job.name = format!("test {}", number + 1);
        }
    }
    Ok(PreparedSockets {
        host: Arc::new(MachineHost::new()),
        plan,
        signals,
    })
}

/// Checks a plan of a server and listens.
///
/// # Errors
/// With what is wrong with the plan, or why it cannot listen.
pub fn prepare_server(plan: Plan, signals: Signals) -> Result<PreparedServer, StartError> {
    plan.validate()?;
    let job: &SocketServerJob = plan.socket_server.as_ref().ok_or_else(|| {
        StartError::stream(
            "plan",
            "it has no [socket_server], which is what was asked for",
        )
    })?;
    let host: Arc<dyn Host> = Arc::new(MachineHost::for_strangers());
    let server = Server::bind(job, host).map_err(|e| {
        let place = format!(
            "{}:{}",
            job.listen.as_deref().unwrap_or("all addresses"),
            job.port
        );
        StartError::stream(place, e.to_string())
    })?;
    give_up_privileges(job)?;
    Ok(PreparedServer {
        plan,
        server,
        signals,
    })
}

/// The user that a server becomes whom root starts and nobody says otherwise.
const UNPRIVILEGED: &str = "nobody";

/// What a server serves it serves without the rights of root: it only needed them to listen, if at all.
fn give_up_privileges(job: &SocketServerJob) -> Result<(), StartError> {
    match job.user.as_deref() {
        Some("root") => Ok(()),
        Some(user) => {
            wb_host::user::become_user(user, Kept::default()).map_err(StartError::machine)
        }
        // A machine may have no such user, and a user namespace knows nobody but its own root, who
        // is none.
        None if rustix::process::geteuid().is_root() => {
            let _ = wb_host::user::become_user(UNPRIVILEGED, Kept::default());
            Ok(())
        }
        None => Ok(()),
    }
}

/// A run as it went.
struct Times {
    started_wall_ns: u64,
    began_ns: u64,
    offset: ClockOffset,
}

impl Times {
    fn start() -> Self {
        Self {
            started_wall_ns: wall_ns(),
            began_ns: monotonic_ns(),
            offset: wall_minus_monotonic(),
        }
    }

    fn snapshot(&self, phase: Phase, live: SocketLive) -> Snapshot {
        let nanoseconds = (live.interval_s * 1e9) as u64;
        let jobs = f64::from(live.jobs.max(1));
        Snapshot {
            elapsed_ns: monotonic_ns().saturating_sub(self.began_ns),
            interval_ns: nanoseconds,
            phase,
            progress: (live.jobs > 1).then(|| f64::from(live.job) / jobs),
            totals: Totals::default(),
            offered_pps: None,
            received_pps: None,
            offered_l2_bps: None,
            received_l2_bps: None,
            missing_frames: None,
            latency_mean_ns: None,
            load: None,
            socket: Some(live),
        }
    }

    fn step(&self) -> i64 {
        clock_step(self.offset, wall_minus_monotonic())
    }

    fn elapsed_ns(&self) -> u64 {
        monotonic_ns().saturating_sub(self.began_ns)
    }
}

impl PreparedSockets {
    /// The plan as it will be run.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Runs the tests in order. A test that fails does not keep the next from its turn, unless nobody
    /// answers at all; a signal ends the one that runs in order, and those to come are left out.
    ///
    /// `observe` is called at the end of each interval that a test asks for; with `progress` once per
    /// interval of the plan too, where a test asks for none.
    pub fn run(self, progress: bool, observe: &mut dyn FnMut(&Snapshot)) -> Finished {
        let times = Times::start();
        let signals = self.signals.clone();
        let watchman = Watchman::start();
        let mut jobs = Vec::new();
        let mut failure: Option<(String, SocketFailure)> = None;
        for (number, job) in (0_u32..).zip(&self.plan.sockets) {
            if signals.received().is_some() {
                break;
            }
            let place = JobPlace {
                index: number,
                count: u32::try_from(self.plan.sockets.len()).unwrap_or(u32::MAX),
                seed: self.plan.seed.wrapping_add(u64::from(number)),
            };
            let shown = match progress && job.interim.is_none() {
                true => Cow::Owned(SocketJob {
                    interim: Some(self.plan.interval),
                    ..job.clone()
                }),
                false => Cow::Borrowed(job),
            };
            let mut report = run_job(
                &shown,
                place,
                self.host.as_ref(),
                signals.flag(),
                &mut |live: &SocketLive| observe(&times.snapshot(Phase::Running, *live)),
            );
            if job.interim.is_none() {
                report.intervals.clear();
            }
            require_what_varies(job, &mut report);
            report.link = self.host.link_towards(&report.server).unwrap_or_default();
            let failed = report.failure.clone();
            jobs.push(report);
            if let Some(failed) = failed {
                let hopeless = nobody_answers(&failed);
                failure.get_or_insert((job.name.clone(), failed));
                if hopeless {
                    break;
                }
            }
        }
        let end = match (&failure, signals.interrupted()) {
            (_, Some(signal)) => End::Signal(signal),
            (Some((name, failure)), _) if self.plan.sockets.len() > 1 => {
                End::Fault(format!("{name}: {}", failure.what))
            }
            (Some((_, failure)), _) => End::Fault(failure.what.clone()),
            (None, None) => End::Completed,
        };
        let sockets = SocketReport { jobs, server: None };
        let late = watchman.end();
        let report = report::report(&self.plan, &times, &end, sockets, late);
        Finished { report, end }
    }
}

/// A test of a set that did not have the value that stands in its row is no test of that value.
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
            what: format!("this host has no congestion control {wanted} for it; it ran with {had}"),
            errno: None,
        });
    }
}

/// Whether the next test would meet the same.
fn nobody_answers(failure: &SocketFailure) -> bool {
    use wb_model::socket::SocketStage::{Connect, Resolve};
    matches!(failure.stage, Resolve | Connect)
}

impl PreparedServer {
    /// Where it listens.
    #[must_use]
    pub fn addresses(&self) -> Vec<std::net::SocketAddr> {
        self.server.local_addresses()
    }

    /// Serves until a signal comes; tests that run then are ended.
    pub fn run(self, observe: &mut dyn FnMut(&Snapshot)) -> Finished {
        let times = Times::start();
        let signals = self.signals.clone();
        let watchman = Watchman::start();
        let served = self.server.serve(signals.flag(), &mut |live: &SocketLive| {
            observe(&times.snapshot(Phase::Running, *live))
        });
        finish_server(&self.plan, &times, &signals, served, watchman.end())
    }
}

fn finish_server(
    plan: &Plan,
    times: &Times,
    signals: &Signals,
    served: wb_model::socket::SocketServerReport,
    late: Lateness,
) -> Finished {
    let end = match signals.received() {
        Some(signal) => End::Signal(signal),
        None => End::Completed,
    };
    let sockets = SocketReport {
        jobs: Vec::new(),
        server: Some(served),
    };
    let report = report::report(plan, times, &end, sockets, late);
    Finished { report, end }
}

/// Serves one client on a control connection that somebody else accepted.
///
/// # Errors
/// With what is wrong with the plan.
pub fn serve_one(
    plan: &Plan,
    control: TcpStream,
    signals: &Signals,
) -> Result<Finished, StartError> {
    plan.validate()?;
    let default = SocketServerJob::default();
    let job = plan.socket_server.as_ref().unwrap_or(&default);
    let times = Times::start();
    give_up_privileges(job)?;
    let host: Arc<dyn Host> = Arc::new(MachineHost::for_strangers());
    let watchman = Watchman::start();
    let served = wb_socket::serve_one(job, host, control)
        .map_err(|e| StartError::stream("standard input", e.to_string()))?;
    Ok(finish_server(plan, &times, signals, served, watchman.end()))
}

/// The ends of a data connection as the resolver has them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataEnds {
    /// Name of the server.
    pub server_name: String,
    /// Its address.
    pub server: IpAddr,
    /// Name and address of this end, where one was asked for.
    pub local: Option<(String, IpAddr)>,
}

/// Looks up both ends of a test's data connection.
///
/// # Errors
/// If there is no such name.
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

/// The machine, as the engine asks for it.
struct MachineHost {
    known: Mutex<Known>,
    /// The CPUs that threads may be tied to; none: any.
    cpus: Option<Vec<u32>>,
}

/// Addresses of the machine when they were last asked for.
struct Known {
    netlink: Option<Netlink>,
    asked: Option<Instant>,
    addresses: Vec<IpAddr>,
}

/// Addresses change seldom; who asks for one that is not known makes the kernel be asked again, at
/// most this often.
const AGAIN: Duration = Duration::from_millis(100);

impl MachineHost {
    fn new() -> Self {
        Self {
            known: Mutex::new(Known {
                netlink: Namespace::current().and_then(|n| Netlink::open(&n)).ok(),
                asked: None,
                addresses: Vec::new(),
            }),
            cpus: None,
        }
    }

    /// For a server: clients choose among the CPUs that it was given, and get no others.
    fn for_strangers() -> Self {
        Self {
            cpus: wb_host::cpu::allowed().ok(),
            ..Self::new()
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MachineHost {
    /// The interface that packets to this address and port leave by, and its speed.
    fn link_towards(&self, server: &str) -> Option<String> {
        let address: std::net::SocketAddr = server.parse().ok()?;
        let known = self.known();
        let netlink = known.netlink.as_ref()?;
        let way = netlink.way_to(address.ip()).ok()??;
        let links = netlink.links().ok()?;
        let interface = links.into_iter().find(|l| l.index == way.interface)?.name;
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
        let host = wb_host::resolve::resolve(name, ipv6)?;
        Ok(Resolved {
            name: host.name,
            addresses: host.addresses,
            scope: host.scope,
        })
    }

    fn cpu_times(&self) -> Option<CpuTimes> {
        wb_host::cpu::times().map(|cpus| CpuTimes { cpus })
    }

    fn bind_cpu(&self, cpu: u32) -> Result<(), String> {
        if !self.cpus.as_ref().is_none_or(|own| own.contains(&cpu)) {
            return Err(format!("CPU {cpu} is not one of this server's"));
        }
        wb_host::cpu::pin(cpu).map_err(|e| e.to_string())
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
            // Where the kernel does not tell, nobody is turned away for it.
            let Some(Ok(all)) = known.netlink.as_ref().map(Netlink::all_addresses) else {
                return true;
            };
            known.addresses = all.iter().map(|a| a.address).collect();
        }
        known.addresses.contains(&address)
    }
}
