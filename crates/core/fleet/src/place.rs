//! Placing: which host carries out which jobs of a plan.
//!
//! A job belongs to the hosts of its ports. The part of a host has its jobs and all ports of these jobs, including those
//! on other hosts. Criteria stay with the controller, which judges once, on the figures of all hosts.

use std::collections::{BTreeMap, BTreeSet};

use wb_model::{JobKind, Plan, PortPlan};

use crate::message::{Direction, PROTOCOL, PartFile, Problem, Registration};

/// Maximum number of flows of a direction between two hosts: the sender reports the frames of each flow.
pub const MOST_FLOWS_BETWEEN_HOSTS: u32 = 1_000_000;

/// Part of a plan on one host.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    /// Jobs of the host, and their ports.
    pub plan: Plan,
    /// Files that the part reads.
    pub files: Vec<PartFile>,
    /// Names of its jobs in messages.
    pub jobs: Vec<String>,
}

/// Plan with a host for each job.
#[derive(Clone, Debug, PartialEq)]
pub struct Placement {
    /// Whole plan, with resolved hosts and the first flow number.
    pub plan: Plan,
    /// Parts by host.
    pub parts: BTreeMap<String, Part>,
    /// All directions of traffic jobs with both ends, in the order of the plan.
    pub directions: Vec<Direction>,
    /// Warnings, one sentence each.
    pub warnings: Vec<String>,
}

/// Places the jobs of a plan on hosts. `first_flow` numbers the flows if the plan does not.
///
/// # Errors
/// All problems: hosts that are unknown or of another protocol, jobs without a host, and too many flows.
pub fn place(
    plan: &Plan,
    registrations: &[Registration],
    first_flow: u32,
) -> Result<Placement, Vec<Problem>> {
    let mut plan = plan.clone();
    let mut problems = Vec::new();
    if plan.procedure.is_some() {
        let what = "runs at the controller, which places each of its trials";
        problems.push(Problem::new("procedure", what));
    }
    let first = plan.first_flow.unwrap_or(first_flow);
    if let Err(what) = plan.number_flows(first) {
        problems.push(Problem::new("first_flow", what));
    }
    let placing = Placing::new(&plan, &mut problems);
    let directions = placing.directions(&mut problems);
    let parts = placing.parts();
    let warnings = check_hosts(parts.keys(), registrations, &mut problems);
    match problems.is_empty() {
        true => Ok(Placement {
            directions,
            parts,
            warnings,
            plan,
        }),
        false => Err(problems),
    }
}

struct Placing<'a> {
    plan: &'a Plan,
    /// Host of each port, by name.
    hosts: BTreeMap<&'a str, &'a str>,
}

impl<'a> Placing<'a> {
    fn new(plan: &'a Plan, problems: &mut Vec<Problem>) -> Self {
        let mut hosts = BTreeMap::new();
        for port in &plan.ports {
            match &port.locator.host {
                Some(host) => {
                    hosts.insert(&*port.name, &**host);
                }
                None => problems.push(Problem::new(port.title(), "has no host; write HOST:PORT")),
            }
        }
        Self { plan, hosts }
    }

    fn host(&self, port: Option<&String>) -> Option<&'a str> {
        self.hosts.get(&**port?).copied()
    }

    /// Directions with both ends in the plan.
    fn directions(&self, problems: &mut Vec<Problem>) -> Vec<Direction> {
        let first = self.plan.first_flow.unwrap_or(0);
        let all = self.plan.directions(first).into_iter();
        let directions = all.filter_map(|way| {
            Some(Direction {
                from: self.host(way.tx.as_ref())?.to_owned(),
                to: self.host(way.rx.as_ref())?.to_owned(),
                name: way.name,
                job: way.job,
                first_flow: way.first_flow,
                flows: way.flows,
            })
        });
        let directions: Vec<Direction> = directions.collect();
        for way in &directions {
            if !way.is_local() && way.flows > MOST_FLOWS_BETWEEN_HOSTS {
                let what = format!(
                    "{} flows from {} to {}; at most {MOST_FLOWS_BETWEEN_HOSTS} are possible between two hosts",
                    way.flows, way.from, way.to
                );
                problems.push(Problem::new(&*way.name, what));
            }
        }
        directions
    }

    /// Parts of all hosts.
    fn parts(&self) -> BTreeMap<String, Part> {
        let plan = self.plan;
        let mut parts: BTreeMap<&str, Plan> = BTreeMap::new();
        let mut add = |ports: &[&Option<String>], job: &dyn Fn(&mut Plan)| {
            let hosts = ports.iter().filter_map(|port| self.host(port.as_ref()));
            for host in BTreeSet::from_iter(hosts) {
                job(parts.entry(host).or_insert_with(|| without_jobs(plan)));
            }
        };
        for job in &plan.traffic {
            add(&[&job.tx, &job.rx], &|part| part.traffic.push(job.clone()));
        }
        for job in &plan.devices {
            add(&[&Some(job.port.clone())], &|part| {
                part.devices.push(job.clone())
            });
        }
        for job in &plan.watches {
            add(&[&Some(job.port.clone())], &|part| {
                part.watches.push(job.clone())
            });
        }
        for job in &plan.captures {
            let ports: Vec<Option<String>> = job.ports.iter().cloned().map(Some).collect();
            add(&ports.iter().collect::<Vec<_>>(), &|part| {
                part.captures.push(job.clone())
            });
        }
        for job in &plan.loads {
            add(&[&Some(job.port.clone())], &|part| {
                part.loads.push(job.clone())
            });
        }
        for job in &plan.http_jobs {
            add(&[&job.port], &|part| part.http_jobs.push(job.clone()));
        }
        let ports: BTreeMap<&str, &PortPlan> =
            plan.ports.iter().map(|port| (&*port.name, port)).collect();
        let part = |(host, mut plan): (&str, Plan)| {
            let used = used_ports(&plan);
            let used = used.iter().filter_map(|name| ports.get(&**name).copied());
            plan.ports = used.cloned().collect();
            let kinds = plan.kinds().map(JobKind::name);
            let part = Part {
                jobs: kinds.map(str::to_owned).collect(),
                files: Vec::new(),
                plan: plan.of_host(host),
            };
            (host.to_owned(), part)
        };
        parts.into_iter().map(part).collect()
    }
}

/// Checks that each host is registered and speaks this protocol. Returns warnings about versions.
fn check_hosts<'a>(
    hosts: impl Iterator<Item = &'a String>,
    registrations: &[Registration],
    problems: &mut Vec<Problem>,
) -> Vec<String> {
    let known: BTreeMap<&str, &Registration> = registrations
        .iter()
        .map(|known| (&*known.host, known))
        .collect();
    let mut versions: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for host in hosts {
        match known.get(&**host) {
            None => problems.push(Problem::new(&**host, "no agent of this name is registered")),
            Some(known) if known.protocol != PROTOCOL => {
                let what = format!(
                    "the agent speaks protocol {}; this controller speaks {PROTOCOL}",
                    known.protocol
                );
                problems.push(Problem::new(&**host, what));
            }
            Some(known) => versions.entry(&known.version).or_default().push(host),
        }
    }
    if versions.len() < 2 {
        return Vec::new();
    }
    let of = |(version, hosts): (&&str, &Vec<&str>)| format!("{version} on {}", hosts.join(", "));
    let all: Vec<String> = versions.iter().map(of).collect();
    vec![format!(
        "the hosts have different versions: {}",
        all.join("; ")
    )]
}

/// Settings of a plan without its ports, jobs and criteria.
fn without_jobs(plan: &Plan) -> Plan {
    Plan {
        schema: plan.schema.clone(),
        kind: plan.kind.clone(),
        seed: plan.seed,
        first_flow: plan.first_flow,
        interval: plan.interval,
        i_own_this_network: plan.i_own_this_network,
        allow_unsent: plan.allow_unsent,
        ..Plan::default()
    }
}

/// Names of the ports that the jobs of a plan use.
fn used_ports(plan: &Plan) -> BTreeSet<String> {
    let traffic = plan
        .traffic
        .iter()
        .flat_map(|job| [job.tx.clone(), job.rx.clone()])
        .flatten();
    let captures = plan.captures.iter().flat_map(|job| job.ports.clone());
    let devices = plan.devices.iter().map(|job| job.port.clone());
    let watches = plan.watches.iter().map(|job| job.port.clone());
    let loads = plan.loads.iter().map(|job| job.port.clone());
    let http = plan.http_jobs.iter().filter_map(|job| job.port.clone());
    traffic
        .chain(captures)
        .chain(devices)
        .chain(watches)
        .chain(loads)
        .chain(http)
        .collect()
}
