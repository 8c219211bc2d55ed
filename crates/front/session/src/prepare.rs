//! From a plan to open ports and compiled streams: everything that can fail before the first frame.

use std::collections::BTreeMap;

use wb_model::{JobKind, Plan, plan::PortPlan};
use wb_pktgen_device::Walker;
use wb_port::memory::Registry;

use crate::{
    Signals, StartError, Steering,
    bench::Benchmark,
    capture::{self, CaptureExtras, Captures, TakenFiles},
    devices::{self, Devices},
    engine::Engine,
    http::{self, Https, PortHttps, Scripts},
    load,
    neighbours::start_responders,
    ports::{OpenPort, Sharing},
    probes::Probes,
    run::Prepared,
    socket::{self, Sockets},
    traffic::{self, Traffic},
};

/// What is known of a port from elsewhere: the labs know who is at the other end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PortHint {
    /// Hardware address at the other end of the link, used when nobody answers.
    pub peer_mac: Option<[u8; 6]>,
}

/// What surrounds a run.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    /// Hints by the port's place (`NODE/IF`).
    pub hints: BTreeMap<String, PortHint>,
    /// Who may end the run.
    pub signals: Signals,
    /// The plan file's folder, for relative paths in it.
    pub base: Option<std::path::PathBuf>,
    /// Where to listen for other rates while a load runs: a local socket that is made there.
    pub control: Option<std::path::PathBuf>,
    /// Where wishes for other rates come from while it runs.
    pub steering: Steering,
}

/// What a run is given beside its plan.
#[derive(Default)]
pub struct Extras {
    /// The packet devices as earlier runs left them, one for each of the plan; empty: all begin anew.
    pub walkers: Vec<Walker>,
    /// Who takes frames beside or instead of the files of a capture.
    pub capture: CaptureExtras,
    /// Socket tests tell how they go once per interval of the plan, also those that ask for no interval.
    pub progress: bool,
    /// The scripts of HTTP loads, job by job.
    pub scripts: Vec<Scripts>,
    /// A server serves only the client at the other end of this control connection.
    pub control_connection: Option<std::net::TcpStream>,
}

/// What engines share while their ports are opened.
pub(crate) struct Opening<'a> {
    pub(crate) environment: &'a Environment,
    pub(crate) memory: Registry,
    /// Who answered at which hardware address, by port.
    pub(crate) neighbours: BTreeMap<String, BTreeMap<String, String>>,
    pub(crate) warnings: Vec<String>,
    /// Ports that several jobs use, each with sockets of its own, and whether one of them has opened it.
    shared: BTreeMap<String, bool>,
}

impl<'a> Opening<'a> {
    fn new(plan: &Plan, environment: &'a Environment, warnings: Vec<String>) -> Self {
        let shared = plan.ports.iter().filter(|p| plan.parties(p) > 1);
        Self {
            environment,
            memory: Registry::default(),
            neighbours: BTreeMap::new(),
            warnings,
            shared: shared.map(|p| (p.name.clone(), false)).collect(),
        }
    }

    /// Whether others use a port that is about to be opened.
    pub(crate) fn share(&mut self, port: &PortPlan) -> Sharing {
        match self.shared.get_mut(&port.name) {
            None => Sharing::Alone,
            Some(opened) => match std::mem::replace(opened, true) {
                false => Sharing::First,
                true => Sharing::Also,
            },
        }
    }

    /// Keeps what an open port warns of.
    pub(crate) fn note(&mut self, open: &OpenPort) {
        let warnings = open.facts.warnings.iter();
        for warning in warnings.map(|w| format!("{}: {w}", open.facts.locator)) {
            if !self.warnings.contains(&warning) {
                self.warnings.push(warning);
            }
        }
    }
}

/// Checks the plan against the machine, opens its ports, finds its neighbours.
///
/// # Errors
/// With the first thing that stands in the way; nothing is left open then.
pub fn prepare(
    mut plan: Plan,
    environment: &Environment,
    extras: Extras,
) -> Result<Prepared, StartError> {
    let mut warnings = plan.validate()?;
    if plan.procedure.is_some() {
        return prepare_benchmark(plan, environment, warnings);
    }
    warnings.extend(wb_machine::offloads::repair());
    warnings.extend(wb_machine::affinity::repair());
    load::name_jobs(&mut plan);
    http::name_jobs(&mut plan);
    socket::name_jobs(&mut plan);
    capture::name_jobs(&mut plan);
    if plan.has(JobKind::Devices) {
        devices::settle_ports(&mut plan);
    }
    check_cpus(&plan)?;
    let users: Vec<bool> = plan
        .ports
        .iter()
        .map(|p| plan.users(p).next().is_some())
        .collect();
    let mut used = users.into_iter();
    plan.ports.retain(|_| used.next().unwrap_or(false));

    // HTTP loads over ports are loads until their engines are made.
    let (own, http_jobs) = (plan.loads.len(), plan.http_jobs.clone());
    let tasks = http::tasks(&plan, environment)?;
    plan = plan.carried();
    let ends = load::Ends::of(&plan);

    let mut opening = Opening::new(&plan, environment, warnings);
    let streams = traffic::open(&plan, &mut opening)?;
    let mut loads = load::open(&plan, &mut opening)?;
    let attended = streams.ports.iter().chain(&loads);
    let responders = start_responders(&plan, attended)?;
    let mut carried = Plan {
        loads: plan.loads.split_off(own),
        criteria: Vec::new(),
        ..plan.clone()
    };
    plan.http_jobs = http_jobs;
    let carried_ports = loads.split_off(own);
    let mut engines: Vec<Box<dyn Engine>> = Vec::new();
    let mut prepared = Prepared {
        devices: Vec::new(),
        watches: Vec::new(),
        addresses: Vec::new(),
        _responders: responders,
        neighbours: BTreeMap::new(),
        warnings: Vec::new(),
        signals: environment.signals.clone(),
        engines: Vec::new(),
        plan: Plan::default(),
    };
    if plan.has(JobKind::Traffic) {
        let traffic = Traffic::resolve(&mut plan, streams, &mut opening)?;
        engines.push(Box::new(traffic));
    }
    if plan.has(JobKind::Devices) {
        let mut part = plan.part(JobKind::Devices);
        devices::settle_ports(&mut part);
        check_cpus(&part)?;
        let devices = Devices::open(&part, extras.walkers, &mut opening)?;
        prepared.devices.clone_from(&devices.handles);
        prepared.watches.clone_from(&devices.watches);
        engines.push(Box::new(devices));
    }
    if plan.has(JobKind::Load) {
        engines.push(Box::new(load::resolve_jobs(
            &mut plan,
            loads,
            &ends,
            &[],
            &mut opening,
        )?));
    }
    if !tasks.is_empty() {
        let loads = load::resolve_jobs(&mut carried, carried_ports, &ends, &tasks, &mut opening)?;
        engines.push(Box::new(PortHttps::new(&plan, &tasks, loads)));
    } else if plan.has(JobKind::Http) {
        engines.push(Box::new(Https::open(&plan, extras.scripts, environment)?));
    }
    if plan.has(JobKind::Socket) {
        let part = plan.part(JobKind::Socket);
        let (progress, control) = (extras.progress, extras.control_connection);
        let sockets = Sockets::open(&part, progress, control, &environment.signals)?;
        prepared.addresses = sockets.addresses();
        engines.push(Box::new(sockets));
    }
    if plan.has(JobKind::Probe) {
        engines.push(Box::new(Probes::open(&plan)?));
    }
    // Last, as it may give up the privileges of the process.
    let mut capture_extras = Some(extras.capture);
    let mut files = TakenFiles::default();
    for job in &plan.captures {
        let mut part = plan.part(JobKind::Capture);
        part.captures = vec![job.clone()];
        part.criteria
            .retain(|c| c.job.as_ref().is_none_or(|name| *name == job.name));
        let key = (plan.captures.len() > 1).then(|| job.name.clone());
        let extras = capture_extras.take().unwrap_or_default();
        let capture = Captures::open(&part, key, extras, &mut opening)?;
        files.take(&capture)?;
        engines.push(Box::new(capture));
    }
    opening.memory.drop_unopened();
    Ok(Prepared {
        plan,
        engines,
        neighbours: opening.neighbours,
        warnings: opening.warnings,
        ..prepared
    })
}

/// A benchmark prepares its trials one by one: of the plan itself nothing is opened but the probes.
fn prepare_benchmark(
    mut plan: Plan,
    environment: &Environment,
    warnings: Vec<String>,
) -> Result<Prepared, StartError> {
    load::name_jobs(&mut plan);
    check_cpus(&plan)?;
    let benchmark = Benchmark::open(&plan, environment)?;
    Ok(Prepared {
        engines: vec![Box::new(benchmark)],
        devices: Vec::new(),
        watches: Vec::new(),
        addresses: Vec::new(),
        _responders: Vec::new(),
        neighbours: BTreeMap::new(),
        warnings,
        signals: environment.signals.clone(),
        plan,
    })
}

/// Workers can only be pinned to CPUs that are there and allowed to this process.
pub(crate) fn check_cpus(plan: &Plan) -> Result<(), StartError> {
    let Ok(allowed) = wb_machine::cpu::allowed() else {
        return Ok(());
    };
    for port in &plan.ports {
        if let Some(cpu) = port.cpus.iter().find(|cpu| !allowed.contains(cpu)) {
            return Err(StartError::stream(
                format!("port {}", port.name),
                format!(
                    "CPU {cpu} cannot be used; there are: {}",
                    wb_machine::cpu::format_list(&allowed)
                ),
            ));
        }
    }
    Ok(())
}
