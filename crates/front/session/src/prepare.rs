//! Prepares a plan in stages, each of which consumes the one before. Everything that can fail before the first frame is
//! here.
//!
//! [`Checked::new`] checks the plan, [`Checked::open`] opens ports, [`Opened::attend`] lets them answer, and
//! [`Attended::build`] finds next hops and makes the engines. Ports must answer before any next hop is searched, because
//! both ends of a link may belong to this run or to runs on other machines.

use std::{collections::BTreeMap, sync::Arc};

use wb_capture::Captures;
use wb_engine::{
    Engine,
    neighbour_responder::ResponderThread,
    neighbours::start_responders,
    opening::{Environment, Opening, check_cpus},
};
use wb_http::engine::Https;
use wb_load::{HttpTask, engine as load};
use wb_model::{JobKind, Plan, plan::PortPlan};
use wb_open::{OpenPort, StartError};
use wb_probe::Probes;
use wb_socket::Sockets;
use wb_traffic::{
    devices::{self, Devices},
    engine::{self as traffic, Streams, Traffic},
};

use crate::{
    bench::Benchmark,
    extras::Extras,
    http_over_port::{self, PortHttps},
    run::Prepared,
};

/// Prepares a run: all stages, one after the other.
///
/// # Errors
/// Returns the first problem found. Nothing stays open on error.
pub fn prepare(
    plan: Plan,
    environment: &Environment,
    extras: Extras,
) -> Result<Prepared, StartError> {
    Checked::new(plan, environment)?
        .open()?
        .attend()?
        .build(extras)
}

/// First stage: the plan was checked against this machine. From here on, only resolved addresses are added to it.
pub struct Checked<'a> {
    environment: &'a Environment,
    /// The plan: all jobs have a name, and all ports of a run have queues.
    plan: Plan,
    /// Jobs that open ports: those of the plan, and a load for each HTTP job over a port.
    jobs: Plan,
    /// Requests of the HTTP jobs over ports.
    tasks: Vec<Arc<HttpTask>>,
    warnings: Vec<String>,
}

impl<'a> Checked<'a> {
    /// Checks a plan.
    ///
    /// # Errors
    /// Returns the first problem found.
    pub fn new(mut plan: Plan, environment: &'a Environment) -> Result<Self, StartError> {
        let mut warnings = plan.validate()?;
        match &environment.host {
            // The trials of a benchmark run where the carrier carries them out.
            None if environment.carrier.is_none() => check_hosts(&plan)?,
            None => {}
            Some(host) => plan = plan.of_host(host),
        }
        if environment.shares_process {
            check_users(&plan)?;
        }
        plan.name_jobs();
        // The trials of a benchmark are prepared one by one, with the ports and jobs of the plan.
        let is_benchmark = plan.has(JobKind::Bench);
        if !is_benchmark {
            warnings.extend(wb_machine::offloads::repair());
            warnings.extend(wb_machine::affinity::repair());
            devices::settle_ports(&mut plan);
        }
        check_cpus(&plan)?;
        if !is_benchmark {
            let is_used = |port: &&PortPlan| plan.users(port).next().is_some();
            plan.ports = plan.ports.iter().filter(is_used).cloned().collect();
        }
        let (tasks, jobs) = match is_benchmark {
            true => (Vec::new(), plan.part(JobKind::Bench)),
            false => (http_over_port::tasks(&plan, environment)?, plan.carried()),
        };
        Ok(Self {
            environment,
            plan,
            jobs,
            tasks,
            warnings,
        })
    }

    /// Opens the ports of streams and loads.
    ///
    /// # Errors
    /// Returns the first problem found. Nothing stays open on error.
    pub fn open(mut self) -> Result<Opened<'a>, StartError> {
        let warnings = std::mem::take(&mut self.warnings);
        let mut opening = Opening::new(&self.jobs, self.environment, warnings);
        let streams = traffic::open(&self.jobs, &mut opening)?;
        let loads = load::open(&self.jobs, &mut opening)?;
        Ok(Opened {
            checked: self,
            opening,
            streams,
            loads,
        })
    }
}

/// Second stage: the ports of streams and loads are open.
pub struct Opened<'a> {
    checked: Checked<'a>,
    opening: Opening<'a>,
    streams: Streams,
    loads: Vec<OpenPort>,
}

impl<'a> Opened<'a> {
    /// Starts a neighbour responder at each port. From here on the ports answer others, which may ask for them.
    ///
    /// # Errors
    /// Fails if a socket or a thread cannot be had.
    pub fn attend(self) -> Result<Attended<'a>, StartError> {
        let ports = self.streams.ports.iter().chain(&self.loads);
        let responders = start_responders(&self.checked.jobs, ports)?;
        Ok(Attended {
            opened: self,
            responders,
        })
    }
}

/// Third stage: the ports answer.
pub struct Attended<'a> {
    opened: Opened<'a>,
    responders: Vec<ResponderThread>,
}

impl Attended<'_> {
    /// Finds the next hops, opens everything else, and makes the engines.
    ///
    /// # Errors
    /// Returns the first problem found. Nothing stays open on error.
    pub fn build(self, extras: Extras) -> Result<Prepared, StartError> {
        let Opened {
            checked,
            mut opening,
            streams,
            mut loads,
        } = self.opened;
        let Checked {
            environment,
            plan,
            mut jobs,
            tasks,
            ..
        } = checked;
        let opening = &mut opening;
        let ends = load::Ends::of(&jobs);
        // The last loads are those of the HTTP jobs.
        let own = jobs.loads.len() - tasks.len();
        let carried_ports = loads.split_off(own);
        let mut prepared = Prepared {
            devices: Vec::new(),
            watches: Vec::new(),
            addresses: Vec::new(),
            _responders: self.responders,
            neighbours: BTreeMap::new(),
            warnings: Vec::new(),
            histograms: extras.histograms,
            signals: environment.signals.clone(),
            engines: Vec::new(),
            plan: Plan::default(),
        };
        let mut engines: Vec<Box<dyn Engine>> = Vec::new();
        if jobs.has(JobKind::Traffic) {
            engines.push(Box::new(Traffic::resolve(&plan, streams, opening)?));
        }
        if jobs.has(JobKind::Devices) {
            let devices = Devices::open(&plan, extras.walkers, opening)?;
            prepared.devices.clone_from(&devices.handles);
            prepared.watches.clone_from(&devices.watches);
            engines.push(Box::new(devices));
        }
        if !loads.is_empty() {
            let loads = load::resolve_jobs(&plan, loads, &ends, &[], opening)?;
            engines.push(Box::new(loads));
        }
        if !tasks.is_empty() {
            // Criteria judge the requests.
            jobs.criteria.clear();
            jobs.loads.drain(..own);
            let loads = load::resolve_jobs(&jobs, carried_ports, &ends, &tasks, opening)?;
            engines.push(Box::new(PortHttps::new(&plan, &tasks, loads)));
        } else if jobs.has(JobKind::Http) {
            engines.push(Box::new(Https::open(&plan, extras.scripts, environment)?));
        }
        if jobs.has(JobKind::Socket) {
            let part = plan.part(JobKind::Socket);
            let (progress, control) = (extras.progress, extras.control_connection);
            let sockets = Sockets::open(&part, progress, control, environment)?;
            prepared.addresses = sockets.addresses();
            engines.push(Box::new(sockets));
        }
        if jobs.has(JobKind::Probe) {
            engines.push(Box::new(Probes::open(&plan)?));
        }
        if jobs.has(JobKind::Bench) {
            engines.push(Box::new(Benchmark::open(&plan, environment, prepare)?));
        }
        // Captures come last, as they may give up the privileges of the process.
        if jobs.has(JobKind::Capture) {
            for capture in Captures::open_all(&plan, extras.capture, opening)? {
                engines.push(Box::new(capture));
            }
        }
        opening.finish();
        prepared.plan = plan;
        for engine in &engines {
            engine.complete(&mut prepared.plan);
        }
        Ok(Prepared {
            engines,
            neighbours: std::mem::take(&mut opening.neighbours),
            warnings: std::mem::take(&mut opening.warnings),
            ..prepared
        })
    }
}

/// Checks that all ports and jobs are on this host.
fn check_hosts(plan: &Plan) -> Result<(), StartError> {
    let Some((place, host)) = plan.first_host() else {
        return Ok(());
    };
    let what =
        format!("is on the host {host}; `--fleet FLEET` carries out the plan over several hosts");
    Err(StartError::stream(place, what))
}

/// Checks that no job changes the user of the process.
fn check_users(plan: &Plan) -> Result<(), StartError> {
    let captures = plan.captures.iter().map(|job| ("capture, user", &job.user));
    let server = plan.socket_server.iter();
    let server = server.map(|job| ("socket_server, user", &job.user));
    match captures.chain(server).find(|(_, user)| user.is_some()) {
        None => Ok(()),
        Some((place, _)) => Err(StartError::stream(
            place,
            "would change the user of the whole process, which other runs share; remove it",
        )),
    }
}
