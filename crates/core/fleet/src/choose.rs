//! Choice of hosts and ports by labels, before anything opens: afterwards every port and job of a plan names its host.

use std::collections::{BTreeMap, BTreeSet};

use wb_model::{HostChoice, HttpJob, LoadJob, Locator, Plan, PortPlan, units::parse_count};

use crate::{
    message::{Problem, RegisteredPort, Registration},
    split,
};

/// Interface name in a locator for any free port of the host.
const ANY: &str = "any";
/// Label that means the speed of a port instead of a label of the host.
const SPEED: &str = "speed";

/// Part of the data lines of a file, for a job that was split: host, file, part, number of parts.
pub(crate) type SharedFile = (String, String, u32, u32);

/// Replaces labels by hosts and ports, and splits jobs with `share`. Returns the files that hosts share.
pub(crate) fn choose(
    plan: &mut Plan,
    registrations: &[Registration],
    problems: &mut Vec<Problem>,
) -> Vec<SharedFile> {
    let mut known: Vec<&Registration> = registrations.iter().collect();
    known.sort_by(|a, b| a.host.cmp(&b.host));
    let named = plan
        .ports
        .iter()
        .filter_map(|port| Some((port.locator.host.clone()?, port.locator.place())));
    let mut chooser = Chooser {
        known,
        used: named.collect(),
        problems,
        files: Vec::new(),
    };
    chooser.split_loads(plan);
    for port in &mut plan.ports {
        chooser.port(port);
    }
    chooser.split_http(plan);
    let places: Vec<String> = plan.job_hosts().map(|(place, _)| place).collect();
    let http = plan.http_jobs.iter_mut().map(|job| &mut job.host);
    let sockets = plan.sockets.iter_mut().map(|job| &mut job.host);
    let probes = plan.probes.iter_mut().map(|probe| &mut probe.host);
    let server = plan.socket_server.iter_mut().map(|job| &mut job.host);
    let hosts = http
        .chain(sockets)
        .chain(probes)
        .chain(server)
        .filter_map(Option::as_mut);
    for (place, host) in places.iter().zip(hosts) {
        chooser.job(place, host);
    }
    chooser.files
}

struct Chooser<'a> {
    /// Agents in the order of their names.
    known: Vec<&'a Registration>,
    /// Hosts and ports that the plan uses.
    used: BTreeSet<(String, String)>,
    problems: &'a mut Vec<Problem>,
    files: Vec<SharedFile>,
}

impl<'a> Chooser<'a> {
    fn problem(&mut self, place: &str, what: String) {
        self.problems.push(Problem::new(place, what));
    }

    /// Hosts with all labels. The speed is a matter of the port.
    fn hosts(&self, labels: &BTreeMap<String, String>) -> Vec<&'a Registration> {
        let of_host = |known: &&&Registration| {
            let mut labels = labels.iter().filter(|(label, _)| *label != SPEED);
            labels.all(|(label, value)| known.labels.get(label) == Some(value))
        };
        self.known.iter().filter(of_host).copied().collect()
    }

    /// Free ports with these labels and this locator, at most one of each host.
    fn ports(
        &self,
        labels: &BTreeMap<String, String>,
        locator: &Locator,
    ) -> Vec<(&'a str, &'a str)> {
        let speed = labels.get(SPEED).map(|speed| parse_count(speed));
        let is_free = |host: &Registration, port: &RegisteredPort| {
            let is_wanted = locator.name == ANY || locator.place() == port.locator;
            let has_speed = speed.as_ref().is_none_or(|speed| {
                speed
                    .as_ref()
                    .is_ok_and(|speed| port.speed_bps == Some(*speed))
            });
            let is_used = self
                .used
                .contains(&(host.host.clone(), port.locator.clone()));
            is_wanted && has_speed && !is_used && port.up && port.held_by.is_none()
        };
        let hosts = self.hosts(labels).into_iter();
        let first = |host: &'a Registration| {
            let port = host.ports.iter().find(|port| is_free(host, port))?;
            Some((&*host.host, &*port.locator))
        };
        hosts.filter_map(first).collect()
    }

    fn port(&mut self, port: &mut PortPlan) {
        let Some(labels) = labels_of(&port.locator) else {
            return;
        };
        match self.ports(&labels, &port.locator).first() {
            Some((host, name)) => self.settle(port, host, name),
            None => {
                let what = format!("no agent has a free port {}", port.locator);
                self.problem(&port.title(), what);
            }
        }
    }

    fn settle(&mut self, port: &mut PortPlan, host: &str, name: &str) {
        if port.locator.name == ANY {
            let (node, interface) = match name.split_once('/') {
                Some((node, interface)) => (Some(node.to_owned()), interface),
                None => (None, name),
            };
            port.locator.node = node;
            port.locator.name = interface.to_owned();
        }
        port.locator.host = Some(host.to_owned());
        self.used.insert((host.to_owned(), name.to_owned()));
    }

    fn job(&mut self, place: &str, choice: &mut HostChoice) {
        let HostChoice::Labels(labels) = &*choice else {
            return;
        };
        match self.hosts(labels).first() {
            Some(host) => *choice = HostChoice::Name(host.host.clone()),
            None => {
                let what = format!("no agent has the labels {choice}");
                self.problem(place, what);
            }
        }
    }

    /// Refuses criteria for a single job that is split: each host has a job then.
    fn check_criteria(&mut self, plan: &Plan, job: &str) {
        let named = plan.criteria.iter();
        for criterion in named.filter(|criterion| criterion.job.as_deref() == Some(job)) {
            let what = format!("{criterion} names a job that hosts share; judge all jobs together");
            self.problem("criteria", what);
        }
    }

    /// Gives each part of a load a port on another host.
    fn split_loads(&mut self, plan: &mut Plan) {
        let mut loads: Vec<LoadJob> = Vec::new();
        for (n, job) in std::mem::take(&mut plan.loads).into_iter().enumerate() {
            let place = format!("load {}", n + 1);
            let port = plan
                .ports
                .iter()
                .find(|port| port.name == job.port)
                .cloned();
            let (Some(of), Some(port)) = (job.share, port) else {
                loads.push(job);
                continue;
            };
            let labels = labels_of(&port.locator).unwrap_or_default();
            let found = self.ports(&labels, &port.locator);
            let few = (found.len() < of as usize).then(|| {
                format!(
                    "share is {of}; registered hosts with a free port {}: {}",
                    port.locator,
                    found.len()
                )
            });
            if let Some(what) = few.or_else(|| split::load_problem(&job, of)) {
                self.problem(&place, what);
                continue;
            }
            self.check_criteria(plan, &job.name);
            plan.ports.retain(|of| of.name != port.name);
            for (index, (host, name)) in (0..of).zip(found) {
                let mut own = port.clone();
                own.name = format!("{} {host}", port.name);
                self.settle(&mut own, host, name);
                let mut part = split::load_part(&job, index, of);
                part.port.clone_from(&own.name);
                part.name = part_name(&job.name, &place, host);
                plan.ports.push(own);
                loads.push(part);
            }
        }
        plan.loads = loads;
    }

    fn split_http(&mut self, plan: &mut Plan) {
        let mut jobs: Vec<HttpJob> = Vec::new();
        for (n, job) in std::mem::take(&mut plan.http_jobs).into_iter().enumerate() {
            let place = format!("http {}", n + 1);
            let (Some(of), Some(HostChoice::Labels(labels))) = (job.share, &job.host) else {
                jobs.push(job);
                continue;
            };
            let hosts = self.hosts(labels);
            let few = (hosts.len() < of as usize)
                .then(|| format!("share is {of}; hosts with these labels: {}", hosts.len()));
            if let Some(what) = few.or_else(|| split::http_problem(&job, of)) {
                self.problem(&place, what);
                continue;
            }
            self.check_criteria(plan, &job.name);
            for (index, host) in (0..of).zip(hosts) {
                let mut part = split::http_part(&job, index, of);
                part.host = Some(HostChoice::Name(host.host.clone()));
                part.name = part_name(&job.name, &place, &host.host);
                if let Some(file) = &job.data {
                    self.files
                        .push((host.host.clone(), file.clone(), index, of));
                }
                jobs.push(part);
            }
        }
        plan.http_jobs = jobs;
    }
}

/// Labels in the host of a locator.
fn labels_of(locator: &Locator) -> Option<BTreeMap<String, String>> {
    match locator.host.as_ref()?.parse() {
        Ok(HostChoice::Labels(labels)) => Some(labels),
        _ => None,
    }
}

/// Name of the part of a job on a host.
fn part_name(job: &str, place: &str, host: &str) -> String {
    let job = if job.is_empty() { place } else { job };
    format!("{job} {host}")
}
