//! Placing: which host carries out which jobs of a plan.
//!
//! A job belongs to the hosts of its ports. The part of a host has its jobs and all ports of these jobs, including those
//! on other hosts. Criteria stay with the controller, which judges once, on the figures of all hosts.

use std::collections::{BTreeMap, BTreeSet};

use wb_model::{JobKind, Locator, Plan, Stream, TagKind, TrafficJob, plan::PortPlan};

use crate::message::{Direction, PROTOCOL, PartFile, Problem, Registration};

/// Largest flow number in a tag, plus 1.
const PAST_LAST_FLOW: u64 = 4_294_967_294;
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
    host_of: impl Fn(&Locator) -> Option<String>,
) -> Result<Placement, Vec<Problem>> {
    let mut plan = plan.clone();
    plan.first_flow.get_or_insert(first_flow);
    let mut placing = Placing {
        plan: &plan,
        hosts: BTreeMap::new(),
        problems: Vec::new(),
    };
    for port in &plan.ports {
        match host_of(&port.locator) {
            Some(host) => {
                placing.hosts.insert(&port.name, host);
            }
            None => placing.problem(port.title(), "has no host; write HOST:PORT"),
        }
    }
    placing.check_ports_alone();
    let directions = placing.directions();
    let parts = placing.parts();
    let warnings = placing.check_hosts(&parts, registrations);
    if !placing.problems.is_empty() {
        return Err(placing.problems);
    }
    Ok(Placement {
        directions,
        parts,
        warnings,
        plan,
    })
}

struct Placing<'a> {
    plan: &'a Plan,
    /// Host of each port, by name.
    hosts: BTreeMap<&'a str, String>,
    problems: Vec<Problem>,
}

impl Placing<'_> {
    fn problem(&mut self, place: impl Into<String>, what: impl Into<String>) {
        self.problems.push(Problem::new(place, what));
    }

    fn host(&self, port: Option<&String>) -> Option<&String> {
        self.hosts.get(&**port?)
    }

    /// Jobs that no host can carry out.
    fn check_ports_alone(&mut self) {
        if self.plan.procedure.is_some() {
            self.problem(
                "procedure",
                "runs at the controller, which places each of its trials",
            );
        }
    }

    /// Numbers the directions between ports and their flows, as the engine does.
    fn directions(&mut self) -> Vec<Direction> {
        let mut next = u64::from(self.plan.first_flow.unwrap_or(0));
        let mut found = Vec::new();
        let jobs = self.plan.traffic.len();
        for (number, job) in self.plan.traffic.iter().enumerate() {
            let base = job_name(job, number, jobs);
            let ways: &[(bool, &str)] = match job.bidir {
                true => &[(false, " forward"), (true, " back")],
                false => &[(false, "")],
            };
            for (reverse, suffix) in ways {
                let (tx, rx) = match reverse {
                    true => (&job.rx, &job.tx),
                    false => (&job.tx, &job.rx),
                };
                let Some(sender) = self.port(tx.as_ref()) else {
                    continue;
                };
                let tagged = flows(job, sender.workers, true);
                let all = tagged.saturating_add(flows(job, sender.workers, false));
                let first = next;
                next = next.saturating_add(u64::from(all));
                if let (Some(from), Some(to)) = (self.host(tx.as_ref()), self.host(rx.as_ref())) {
                    found.push(Direction {
                        number: u32::try_from(found.len()).unwrap_or(u32::MAX),
                        name: format!("{base}{suffix}"),
                        job: number,
                        reverse: *reverse,
                        from: from.clone(),
                        to: to.clone(),
                        first_flow: u32::try_from(first).unwrap_or(u32::MAX),
                        flows: tagged,
                    });
                }
            }
        }
        if next > PAST_LAST_FLOW {
            let what = format!("the flows end at number {next}; the largest is 4294967293");
            self.problem("first_flow", what);
        }
        for direction in &found {
            if !direction.is_local() && direction.flows > MOST_FLOWS_BETWEEN_HOSTS {
                let what = format!(
                    "{} flows from {} to {}; at most {MOST_FLOWS_BETWEEN_HOSTS} are possible between two hosts",
                    direction.flows, direction.from, direction.to
                );
                self.problems.push(Problem::new(&*direction.name, what));
            }
        }
        found
    }

    fn port(&self, name: Option<&String>) -> Option<&PortPlan> {
        let name = name?;
        self.plan.ports.iter().find(|port| port.name == *name)
    }

    fn parts(&self) -> BTreeMap<String, Part> {
        let hosts: BTreeSet<&String> = self.hosts.values().collect();
        let part = |host: &String| (host.clone(), self.part(host));
        hosts.into_iter().map(part).collect()
    }

    /// Jobs that touch a host, with all their ports.
    fn part(&self, host: &str) -> Part {
        let here = |port: &String| self.hosts.get(&**port).is_some_and(|of| of == host);
        let mut plan = self.plan.clone();
        plan.criteria.clear();
        let ends = |job: &TrafficJob| [job.tx.clone(), job.rx.clone()];
        plan.traffic
            .retain(|job| ends(job).iter().flatten().any(here));
        plan.devices.retain(|job| here(&job.port));
        plan.watches.retain(|job| here(&job.port));
        plan.captures.retain(|job| job.ports.iter().any(here));
        plan.loads.retain(|job| here(&job.port));
        plan.http_jobs
            .retain(|job| job.port.as_ref().is_some_and(here));
        let used = used_ports(&plan);
        plan.ports.retain(|port| used.contains(&port.name));
        let kinds = plan.kinds().map(JobKind::name);
        Part {
            jobs: kinds.map(str::to_owned).collect(),
            files: Vec::new(),
            plan,
        }
    }

    /// Checks that each host is registered and speaks this protocol. Returns warnings about versions.
    fn check_hosts(
        &mut self,
        parts: &BTreeMap<String, Part>,
        registrations: &[Registration],
    ) -> Vec<String> {
        let mut versions: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for host in parts.keys() {
            match registrations.iter().find(|known| known.host == *host) {
                None => self.problem(&**host, "no agent of this name is registered"),
                Some(known) if known.protocol != PROTOCOL => {
                    let what = format!(
                        "the agent speaks protocol {}; this controller speaks {PROTOCOL}",
                        known.protocol
                    );
                    self.problem(&**host, what);
                }
                Some(known) => versions.entry(&known.version).or_default().push(host),
            }
        }
        match versions.len() {
            0 | 1 => Vec::new(),
            _ => {
                let of = |(version, hosts): (&&str, &Vec<&str>)| {
                    format!("{version} on {}", hosts.join(", "))
                };
                let all: Vec<String> = versions.iter().map(of).collect();
                vec![format!(
                    "the hosts have different versions: {}",
                    all.join("; ")
                )]
            }
        }
    }
}

/// Name of a traffic job in messages, as the engine names it.
fn job_name(job: &TrafficJob, number: usize, jobs: usize) -> String {
    match (job.name.as_str(), jobs) {
        ("", 1) => "traffic".to_owned(),
        ("", _) => format!("job {}", number + 1),
        (name, _) => name.to_owned(),
    }
}

/// Flows of a direction: of streams with a test tag, or of the others.
fn flows(job: &TrafficJob, workers: u32, tagged: bool) -> u32 {
    let is_tagged = |stream: &Stream| stream.tag != TagKind::None && stream.replay.is_none();
    let streams = job
        .streams
        .iter()
        .filter(|stream| is_tagged(stream) == tagged);
    let flows = streams.map(|stream| match stream.tag {
        TagKind::Wirebench if tagged => stream.flow_count().max(workers),
        _ => 1,
    });
    flows.fold(0, u32::saturating_add)
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
