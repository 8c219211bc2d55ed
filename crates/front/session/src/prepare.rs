//! Prepares a plan: opens ports and compiles streams. Everything that can fail before the first frame is here.

use std::collections::BTreeMap;

use wb_engine::Engine;
use wb_model::{JobKind, Plan, plan::PortPlan};
use wb_open::{OpenPort, Sharing, StartError};
use wb_pktgen_device::Walker;
use wb_port::memory::Registry;

use crate::{
    Signals, Steering,
    bench::Benchmark,
    capture::{self, CaptureExtras, Captures, TakenFiles},
    devices::{self, Devices},
    http::{self, Https, PortHttps, Scripts},
    load,
    neighbours::start_responders,
    probes::Probes,
    run::Prepared,
    socket::{self, Sockets},
    traffic::{self, Traffic},
};

/// Knowledge about a port from outside the plan: a lab knows the other end of a link.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PortHint {
    /// Hardware address at the other end of the link, used if no neighbour answers.
    pub peer_mac: Option<[u8; 6]>,
}

/// Surroundings of a run.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    /// Hints by the port's place (`NODE/IF`).
    pub hints: BTreeMap<String, PortHint>,
    /// Signals that may end the run.
    pub signals: Signals,
    /// The plan file's folder, for relative paths in it.
    pub base: Option<std::path::PathBuf>,
    /// Path of the local socket that accepts rate changes while a load runs.
    pub control: Option<std::path::PathBuf>,
    /// Source of rate changes inside this process while a load runs.
    pub steering: Steering,
}

/// Inputs of a run in addition to its plan.
#[derive(Default)]
pub struct Extras {
    /// State of the packet devices from earlier runs, one for each device of the plan. If empty, all devices start
    /// anew.
    pub walkers: Vec<Walker>,
    /// Receiver of frames in addition to the files of a capture or instead of them.
    pub capture: CaptureExtras,
    /// If true, socket tests report their progress once per interval of the plan, even if they ask for no interval.
    pub progress: bool,
    /// The scripts of HTTP loads, job by job.
    pub scripts: Vec<Scripts>,
    /// If true, the report has all distributions at full resolution.
    pub histograms: bool,
    /// Control connection of a server that serves only the client at the other end of this connection.
    pub control_connection: Option<std::net::TcpStream>,
}

/// State that engines share while their ports are opened.
pub(crate) struct Opening<'a> {
    pub(crate) environment: &'a Environment,
    pub(crate) memory: Registry,
    /// Hardware addresses of the neighbours that answered, by port.
    pub(crate) neighbours: BTreeMap<String, BTreeMap<String, String>>,
    pub(crate) warnings: Vec<String>,
    /// Ports that several jobs use with separate sockets, and true if one of the jobs has opened the port.
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

    /// Returns how a port that is about to be opened is shared.
    pub(crate) fn share(&mut self, port: &PortPlan) -> Sharing {
        match self.shared.get_mut(&port.name) {
            None => Sharing::Alone,
            Some(opened) => match std::mem::replace(opened, true) {
                false => Sharing::First,
                true => Sharing::Also,
            },
        }
    }

    /// Keeps the warnings of an open port.
    pub(crate) fn note(&mut self, open: &OpenPort) {
        let warnings = open.facts.warnings.iter();
        for warning in warnings.map(|w| format!("{}: {w}", open.facts.locator)) {
            if !self.warnings.contains(&warning) {
                self.warnings.push(warning);
            }
        }
    }
}

/// Checks the plan against the machine, opens its ports, and finds its neighbours.
///
/// # Errors
/// Returns the first problem found. Nothing stays open on error.
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

    // HTTP loads over ports count as loads until their engines exist.
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
        histograms: extras.histograms,
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
    // Captures come last, as they may give up the privileges of the process.
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

/// Prepares a benchmark. Its trials are prepared one by one, so only the probes are opened here.
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
        histograms: false,
        signals: environment.signals.clone(),
        plan,
    })
}

/// Checks that the CPUs of the plan exist and that this process may use them.
pub(crate) fn check_cpus(plan: &Plan) -> Result<(), StartError> {
    let Ok(allowed) = wb_machine::cpu::allowed() else {
        return Ok(());
    };
    for port in &plan.ports {
        if let Some(cpu) = port.cpus.iter().find(|cpu| !allowed.contains(cpu)) {
            return Err(StartError::stream(
                format!("port {}", port.name),
                format!(
                    "CPU {cpu} is not available; available CPUs: {}",
                    wb_machine::cpu::format_list(&allowed)
                ),
            ));
        }
    }
    Ok(())
}
