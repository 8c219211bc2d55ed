//! Surroundings of a run, and what engines share while their ports are opened.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use wb_model::{Plan, Report, fleet::Agent, plan::PortPlan};
use wb_open::{OpenPort, Sharing, StartError, Use, open_virtual};
use wb_port::memory::Registry;

use crate::{End, Observer, peers::PeerLink, signals::Signals, steering::Steering};

/// Knowledge about a port from outside the plan: a lab knows the other end of a link.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PortHint {
    /// Hardware address at the other end of the link, used if no neighbour answers.
    pub peer_mac: Option<[u8; 6]>,
}

/// Surroundings of a run.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    /// Name of this host in a fleet. The run then carries out the part of the plan for this host: ports of other hosts
    /// are never opened, and jobs that use no port of this host are left out. `None`: all ports must be on this host.
    pub host: Option<String>,
    /// Connection to the hosts of the other ports.
    pub peers: PeerLink,
    /// Hints by the port's place (`NODE/IF`).
    pub hints: BTreeMap<String, PortHint>,
    /// Signals that may end the run.
    pub signals: Signals,
    /// The plan file's folder, for relative paths in it.
    pub base: Option<PathBuf>,
    /// Path of the local socket that accepts rate changes while a load runs.
    pub control: Option<PathBuf>,
    /// Source of rate changes inside this process while a load runs.
    pub steering: Steering,
    /// Links of ports in memory for runs that start together. Each end can be opened once. Without it each run, and each
    /// trial of a benchmark, makes new links.
    pub memory: Option<Arc<Mutex<Registry>>>,
    /// Name of the run; `None`: the carrier chooses one.
    pub run: Option<String>,
    /// Carries out the plan, or the trials of a benchmark, elsewhere; `None`: this process does.
    pub carrier: Option<Arc<dyn Carrier>>,
    /// True if other runs use this process at the same time: no job may change the user of the process, and servers keep
    /// its privileges.
    pub shares_process: bool,
}

/// Carries out plans elsewhere than in this process: over the hosts of a fleet.
pub trait Carrier: std::fmt::Debug + Send + Sync {
    /// Carries out a plan, to its report and its end. It observes the signals of the environment.
    ///
    /// # Errors
    /// The reason why the run cannot start; nothing was sent then.
    fn carry_out(
        &self,
        plan: Plan,
        environment: &Environment,
        observer: &mut dyn Observer,
    ) -> Result<(Report, End), StartError>;

    /// Continues a run that another process began under this name, and that this process did not end. A run that has
    /// ended in the meantime gives its report. `None`: nothing is known about it.
    fn resume(
        &self,
        run: &str,
        environment: &Environment,
        observer: &mut dyn Observer,
    ) -> Option<Result<(Report, End), StartError>>;

    /// Ended runs of which results have arrived since the last call. [`Carrier::resume`] makes their reports again.
    fn delivered_late(&self) -> Vec<String>;

    /// The agents that are there.
    fn agents(&self) -> Vec<Agent>;

    /// Lets an agent refuse runs, or accept them again. Its current run continues.
    ///
    /// # Errors
    /// A sentence, if there is no such agent.
    fn drain(&self, host: &str, on: bool) -> Result<(), String>;

    /// Ends what this process has started for the hosts. No run follows.
    fn close(&self);
}

/// State that engines share while their ports are opened.
pub struct Opening<'a> {
    /// Surroundings of the run.
    pub environment: &'a Environment,
    memory: Arc<Mutex<Registry>>,
    /// Hardware addresses of the neighbours that answered, by port.
    pub neighbours: BTreeMap<String, BTreeMap<String, String>>,
    /// Warnings so far.
    pub warnings: Vec<String>,
    /// Ports that several jobs use with separate sockets, and true if one of the jobs has opened the port.
    shared: BTreeMap<String, bool>,
}

impl<'a> Opening<'a> {
    /// Begins to open the ports of a plan.
    #[must_use]
    pub fn new(plan: &Plan, environment: &'a Environment, warnings: Vec<String>) -> Self {
        let shared = plan.ports.iter().filter(|p| plan.parties(p) > 1);
        Self {
            environment,
            memory: environment.memory.clone().unwrap_or_default(),
            neighbours: BTreeMap::new(),
            warnings,
            shared: shared.map(|p| (p.name.clone(), false)).collect(),
        }
    }

    /// Opens a port that needs no interface.
    pub fn open_virtual(&self, port: &PortPlan, used: Use) -> Result<OpenPort, StartError> {
        open_virtual(port, used, &mut lock(&self.memory))
    }

    /// Call this after all ports are open. It drops the unopened ends of links in memory, unless other runs may open them.
    pub fn finish(&self) {
        if self.environment.memory.is_none() {
            lock(&self.memory).drop_unopened();
        }
    }

    /// Returns how a port that is about to be opened is shared.
    pub fn share(&mut self, port: &PortPlan) -> Sharing {
        match self.shared.get_mut(&port.name) {
            None => Sharing::Alone,
            Some(opened) => match std::mem::replace(opened, true) {
                false => Sharing::First,
                true => Sharing::Also,
            },
        }
    }

    /// Keeps the warnings of an open port.
    pub fn note(&mut self, open: &OpenPort) {
        let warnings = open.facts.warnings.iter();
        for warning in warnings.map(|w| format!("{}: {w}", open.facts.locator)) {
            if !self.warnings.contains(&warning) {
                self.warnings.push(warning);
            }
        }
    }
}

fn lock(memory: &Mutex<Registry>) -> MutexGuard<'_, Registry> {
    memory.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Checks that the CPUs of the plan exist and that this process may use them.
///
/// # Errors
/// Names the first CPU that is not available.
pub fn check_cpus(plan: &Plan) -> Result<(), StartError> {
    let Ok(allowed) = wb_machine::cpu::allowed() else {
        return Ok(());
    };
    for port in plan.ports.iter().filter(|port| port.locator.host.is_none()) {
        if let Some(cpu) = port.cpus.iter().find(|cpu| !allowed.contains(cpu)) {
            return Err(StartError::stream(
                port.title(),
                format!(
                    "CPU {cpu} is not available; available CPUs: {}",
                    wb_machine::cpu::format_list(&allowed)
                ),
            ));
        }
    }
    Ok(())
}
