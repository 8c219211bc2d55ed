//! Placing: which host carries out which jobs of a plan.
//!
//! A job belongs to the hosts of its ports, or to the host that it names. Labels are replaced by hosts first, and jobs
//! with `share` are split. The part of a host has its jobs and all ports of these jobs, including those
//! on other hosts. Criteria stay with the controller, which judges once, on the figures of all hosts.

use std::collections::{BTreeMap, BTreeSet};

use wb_model::{
    HostChoice, JobKind, LoadJob, Plan, PortPlan, load::LoadEnd, powers::Power, units::Span,
};

use crate::{
    choose::choose,
    message::{Direction, PROTOCOL, PartFile, Problem, Registration, RowShare},
};

/// Maximum number of flows of a direction between two hosts: the sender reports the frames of each flow.
pub const MOST_FLOWS_BETWEEN_HOSTS: u32 = 1_000_000;

/// Part of a plan on one host.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    /// Jobs of the host, and their ports.
    pub plan: Plan,
    /// Files that the part reads.
    pub files: Vec<PartFile>,
}

/// Plan with a host for each job.
#[derive(Clone, Debug, Default, PartialEq)]
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

impl Placement {
    /// Returns true if a host only has the servers of loads that have clients on other hosts.
    #[must_use]
    pub fn is_other_end(&self, host: &str) -> bool {
        let is_client = |job: &LoadJob| job.end == LoadEnd::Client;
        self.parts.get(host).is_some_and(|part| {
            let plan = &part.plan;
            plan.kinds().eq([JobKind::Load])
                && !plan.loads.iter().any(is_client)
                && self.plan.loads.iter().any(is_client)
        })
    }
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
    let shared = choose(&mut plan, registrations, &mut problems);
    let placing = Placing::new(&plan, &mut problems);
    let directions = placing.directions(&mut problems);
    let mut parts = placing.parts();
    for (host, file, index, of) in shared {
        let files = parts
            .get_mut(&host)
            .into_iter()
            .flat_map(|part| &mut part.files);
        for own in files.filter(|own| own.name == file) {
            own.rows = Some(RowShare { index, of });
        }
    }
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
        let nowhere = "has no host; write host = \"NAME\"";
        let without = |word: &str, count: usize, has_host: &dyn Fn(usize) -> bool| {
            let without = (0..count).filter(|n| !has_host(*n));
            let places = without.map(|n| Problem::new(format!("{word} {}", n + 1), nowhere));
            places.collect::<Vec<_>>()
        };
        let (http, sockets, probes) = (&plan.http_jobs, &plan.sockets, &plan.probes);
        let has_host = |n: usize| http[n].host.is_some() || http[n].port.is_some();
        problems.extend(without("http", http.len(), &has_host));
        problems.extend(without("socket", sockets.len(), &|n| {
            sockets[n].host.is_some()
        }));
        problems.extend(without("probe", probes.len(), &|n| {
            probes[n].host.is_some()
        }));
        if plan
            .socket_server
            .as_ref()
            .is_some_and(|job| job.host.is_none())
        {
            problems.push(Problem::new("socket_server", nowhere));
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
        let mut put = |hosts: &[Option<&'a str>], job: &dyn Fn(&mut Plan)| {
            let hosts = hosts.iter().flatten().copied();
            for host in BTreeSet::from_iter(hosts) {
                job(parts.entry(host).or_insert_with(|| without_jobs(plan)));
            }
        };
        let at = |port: &String| [self.host(Some(port))];
        for job in &plan.traffic {
            let ends = [&job.tx, &job.rx].map(|port| self.host(port.as_ref()));
            put(&ends, &|part| part.traffic.push(job.clone()));
        }
        for job in &plan.devices {
            put(&at(&job.port), &|part| part.devices.push(job.clone()));
        }
        for job in &plan.watches {
            put(&at(&job.port), &|part| part.watches.push(job.clone()));
        }
        for job in &plan.captures {
            let hosts: Vec<_> = job.ports.iter().map(|port| self.host(Some(port))).collect();
            put(&hosts, &|part| part.captures.push(job.clone()));
        }
        let has_clients = JobKind::ALL.into_iter().any(|kind| plan.sends(kind));
        for job in &plan.loads {
            let mut job = job.clone();
            if has_clients && job.end == LoadEnd::Server {
                // The controller ends it after the clients of other hosts.
                job.shape.duration = Span::default();
            }
            put(&at(&job.port), &|part| part.loads.push(job.clone()));
        }
        for job in &plan.http_jobs {
            let own = self.host(job.port.as_ref()).or_else(|| name_of(&job.host));
            put(&[own], &|part| part.http_jobs.push(job.clone()));
        }
        for job in &plan.sockets {
            put(&[name_of(&job.host)], &|part| {
                part.sockets.push(job.clone())
            });
        }
        if let Some(job) = &plan.socket_server {
            put(&[name_of(&job.host)], &|part| {
                part.socket_server = Some(job.clone())
            });
        }
        for probe in &plan.probes {
            put(&[name_of(&probe.host)], &|part| {
                part.probes.push(probe.clone())
            });
        }
        let ports: BTreeMap<&str, &PortPlan> =
            plan.ports.iter().map(|port| (&*port.name, port)).collect();
        let part = |(host, mut plan): (&str, Plan)| {
            let used = used_ports(&plan);
            let used = used.iter().filter_map(|name| ports.get(&**name).copied());
            plan.ports = used.cloned().collect();
            let part = Part {
                files: files_of(&plan),
                plan: plan.of_host(host),
            };
            (host.to_owned(), part)
        };
        parts.into_iter().map(part).collect()
    }
}

/// Name of a chosen host.
fn name_of(choice: &Option<HostChoice>) -> Option<&str> {
    choice.as_ref()?.name()
}

/// Files that a plan reads. The file of a port and a Unix socket belong to the host.
fn files_of(plan: &Plan) -> Vec<PartFile> {
    let reads = plan.powers().into_iter().filter(|used| {
        let is_file = matches!(used.power, Power::Reads | Power::Scripts);
        is_file && !used.place.ends_with(", locator") && !used.place.ends_with(", unix")
    });
    let names: BTreeSet<String> = reads.map(|used| used.value).collect();
    let file = |name| PartFile {
        name,
        ..PartFile::default()
    };
    names.into_iter().map(file).collect()
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
    // Labels that no host has are a problem already.
    for host in hosts.filter(|host| !host.starts_with('{')) {
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

/// Time from the start of a run to the planned end of its last job with its drain, in ns. `None` if a job ends by other
/// means than its duration.
#[must_use]
pub fn planned_ns(plan: &Plan) -> Option<u64> {
    let ns = Span::as_nanos;
    let sum = |spans: &[u64]| spans.iter().fold(0, |sum: u64, ns| sum.saturating_add(*ns));
    let traffic = plan.traffic.iter().map(|job| {
        Some(sum(&[
            ns(job.start),
            job.lead_ns(),
            ns(job.duration?),
            ns(job.drain),
        ]))
    });
    // Servers, captures and probes end with the other jobs.
    let clients = plan.loads.iter().filter(|job| job.end == LoadEnd::Client);
    let clients = clients.map(|job| {
        let shape = &job.shape;
        let all = sum(&[
            ns(shape.wait),
            ns(shape.ramp),
            ns(shape.duration),
            ns(shape.drain),
        ]);
        (shape.duration > Span::default()).then_some(all)
    });
    let http = plan.http_jobs.iter();
    let http = http.map(|job| Some(sum(&[ns(job.ends_after()?), ns(job.timeout)])));
    let others = plan.devices.len() + plan.watches.len() + plan.sockets.len();
    let ends: Option<Vec<u64>> = traffic.chain(clients).chain(http).collect();
    ends?.into_iter().max().filter(|_| others == 0)
}

/// Longest drain of a job in ns.
#[must_use]
pub fn drain_ns(plan: &Plan) -> u64 {
    let traffic = plan.traffic.iter().map(|job| job.drain);
    let loads = plan.loads.iter().map(|job| job.shape.drain);
    let http = plan.http_jobs.iter().map(|job| job.timeout);
    traffic
        .chain(loads)
        .chain(http)
        .max()
        .unwrap_or_default()
        .as_nanos()
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

#[cfg(test)]
mod tests {
    use wb_model::units::AddressRange;

    use super::*;
    use crate::message::RegisteredPort;

    fn agent(host: &str, rack: &str, ports: &[(&str, u64)]) -> Registration {
        let ports = ports.iter().map(|(locator, speed)| RegisteredPort {
            locator: (*locator).to_owned(),
            speed_bps: Some(*speed),
            up: true,
            ..RegisteredPort::default()
        });
        Registration {
            host: host.to_owned(),
            protocol: PROTOCOL,
            ports: ports.collect(),
            labels: [("rack".to_owned(), rack.to_owned())].into(),
            ..Registration::default()
        }
    }

    fn agents() -> Vec<Registration> {
        let ports = [("eth1", 10_000_000_000), ("eth2", 25_000_000_000)];
        vec![
            agent("h3", "r1", &ports),
            agent("h1", "r1", &ports),
            agent("h2", "r1", &[("eth1", 10_000_000_000)]),
            agent("h9", "r2", &ports),
        ]
    }

    fn placed(text: &str) -> Result<Placement, Vec<Problem>> {
        place(&text.parse_plan(), &agents(), 1000)
    }

    trait ParsePlan {
        fn parse_plan(&self) -> Plan;
    }

    impl ParsePlan for str {
        fn parse_plan(&self) -> Plan {
            serde_json::from_str(self).unwrap()
        }
    }

    #[test]
    fn a_part_has_the_jobs_of_its_host_and_all_their_ports() {
        let placement = placed(
            r#"{"port": [{"name": "a", "locator": "h1:eth1"}, {"name": "b", "locator": "h2:eth1"},
                         {"name": "c", "locator": "h9:eth1"}],
                "traffic": [{"name": "t1", "tx": "a", "rx": "b", "bidir": true, "stream": [{"flows": 8}]},
                            {"name": "t2", "tx": "b", "rx": "c", "stream": [{"flows": 4}]}],
                "criteria": ["loss<=0%"]}"#,
        )
        .unwrap();
        let names = |host: &str| {
            let part = &placement.parts[host].plan;
            let jobs = part
                .traffic
                .iter()
                .map(|job| (job.name.clone(), job.first_flow));
            let ports = part.ports.iter().map(|port| port.locator.to_string());
            (jobs.collect::<Vec<_>>(), ports.collect::<Vec<_>>())
        };
        let (t1, t2) = (("t1".to_owned(), Some(1000)), ("t2".to_owned(), Some(1016)));
        assert_eq!(names("h1").0, std::slice::from_ref(&t1));
        assert_eq!(names("h1").1, ["eth1", "h2:eth1"]);
        assert_eq!(names("h2").0, [t1, t2.clone()]);
        assert_eq!(names("h9").0, [t2]);
        assert!(placement.parts["h2"].plan.criteria.is_empty());
        assert_eq!(placement.plan.criteria.len(), 1);
        let directions = placement.directions.iter();
        let directions = directions.map(|d| (&*d.name, &*d.from, &*d.to, d.first_flow, d.flows));
        assert_eq!(
            directions.collect::<Vec<_>>(),
            [
                ("t1 forward", "h1", "h2", 1000, 8),
                ("t1 back", "h2", "h1", 1008, 8),
                ("t2", "h2", "h9", 1016, 4),
            ]
        );
    }

    #[test]
    fn labels_choose_free_ports_of_the_lowest_hosts() {
        let placement = placed(
            r#"{"port": [{"name": "a", "locator": "{rack=r1,speed=25g}:any"},
                         {"name": "b", "locator": "{rack=r1,speed=25g}:any"},
                         {"name": "c", "locator": "{rack=r1}:xdp:eth1"}],
                "traffic": [{"tx": "a", "rx": "b", "stream": [{}]}, {"tx": "a", "rx": "c", "stream": [{}]}]}"#,
        )
        .unwrap();
        let locators = placement
            .plan
            .ports
            .iter()
            .map(|port| port.locator.to_string());
        assert_eq!(
            locators.collect::<Vec<_>>(),
            ["h1:eth2", "h3:eth2", "h1:xdp:eth1"]
        );
    }

    #[test]
    fn all_problems_come_at_once() {
        let problems = placed(
            r#"{"port": [{"name": "a", "locator": "eth1"}, {"name": "b", "locator": "h7:eth1"},
                         {"name": "c", "locator": "{rack=r3}:any"}],
                "traffic": [{"tx": "a", "rx": "b", "stream": [{}]}, {"tx": "c", "rx": "b", "stream": [{}]}],
                "http": [{"url": "http://198.18.0.1/"}], "probe": [{"kind": "ipvs", "host": "{rack=r3}"}]}"#,
        )
        .unwrap_err();
        let text = problems.iter().map(|p| format!("{}: {}", p.place, p.what));
        assert_eq!(
            text.collect::<Vec<_>>(),
            [
                "port c: no agent has a free port {rack=r3}:any",
                "probe 1, host: no agent has the labels {rack=r3}",
                "port a: has no host; write HOST:PORT",
                "http 1: has no host; write host = \"NAME\"",
                "h7: no agent of this name is registered",
            ]
        );
    }

    #[test]
    fn a_load_is_shared_by_hosts_with_a_port_each() {
        let placement = placed(
            r#"{"port": [{"name": "a", "locator": "{rack=r1}:eth1"}],
                "load": [{"name": "web", "port": "a", "share": 3, "clients": ["10.0.0.1-10.0.0.8"],
                          "servers": ["10.1.0.1"], "rate": {"cps": 1000}}]}"#,
        )
        .unwrap();
        let of = |host: &str| {
            let load = &placement.parts[host].plan.loads[0];
            let clients = load.clients.iter().map(AddressRange::to_string);
            (
                load.name.clone(),
                load.rate.cps,
                clients.collect::<Vec<_>>(),
            )
        };
        assert_eq!(
            of("h1"),
            ("web h1".into(), Some(334), vec!["10.0.0.1-10.0.0.3".into()])
        );
        assert_eq!(
            of("h2"),
            ("web h2".into(), Some(333), vec!["10.0.0.4-10.0.0.6".into()])
        );
        assert_eq!(
            of("h3"),
            ("web h3".into(), Some(333), vec!["10.0.0.7-10.0.0.8".into()])
        );
        assert_eq!(
            placement.parts["h3"].plan.ports[0].locator.to_string(),
            "eth1"
        );
    }

    #[test]
    fn the_lines_of_a_file_are_shared_and_other_files_are_whole() {
        let placement = placed(
            r#"{"http": [{"url": "http://198.18.0.1/", "host": "{rack=r1}", "share": 2, "connections": 5,
                          "data": "users.csv", "tls": {"authorities": "ca.pem"}}]}"#,
        )
        .unwrap();
        assert_eq!(placement.parts.keys().collect::<Vec<_>>(), ["h1", "h2"]);
        let part = &placement.parts["h2"];
        assert_eq!(part.plan.http_jobs[0].connections, 2);
        assert_eq!(part.plan.http_jobs[0].host, None);
        let rows = part.files.iter().map(|file| (&*file.name, file.rows));
        let second = Some(RowShare { index: 1, of: 2 });
        assert_eq!(
            rows.collect::<Vec<_>>(),
            [("ca.pem", None), ("users.csv", second)]
        );
    }

    #[test]
    fn a_run_ends_as_planned_if_all_its_jobs_do() {
        let traffic = r#"{"traffic": [{"duration": "10s", "ramp": "1s", "drain": "500ms"}, {"duration": "2s", "start": "3s"}]"#;
        let plan = format!("{traffic}}}").parse_plan();
        assert_eq!(planned_ns(&plan), Some(11_500_000_000));
        assert_eq!(drain_ns(&plan), 500_000_000);
        let plan = format!(r#"{traffic}, "http": [{{"duration": "20s", "timeout": "3s"}}]}}"#)
            .parse_plan();
        assert_eq!(planned_ns(&plan), Some(23_000_000_000));
        let plan = format!(r#"{traffic}, "http": [{{"amount": 5}}]}}"#).parse_plan();
        assert_eq!(planned_ns(&plan), None);
        assert_eq!(planned_ns(&Plan::default()), None);
    }

    #[test]
    fn different_versions_are_a_warning_and_another_protocol_is_a_problem() {
        let plan = r#"{"port": [{"name": "a", "locator": "h1:eth1"}, {"name": "b", "locator": "h2:eth1"}],
                       "traffic": [{"tx": "a", "rx": "b", "stream": [{}]}]}"#;
        let mut agents = agents();
        agents[1].version = "0.1.0".to_owned();
        agents[2].version = "0.0.9".to_owned();
        let placement = place(&plan.parse_plan(), &agents, 1).unwrap();
        assert_eq!(
            placement.warnings,
            ["the hosts have different versions: 0.0.9 on h2; 0.1.0 on h1"]
        );
        agents[1].protocol = 0;
        let problems = place(&plan.parse_plan(), &agents, 1).unwrap_err();
        assert_eq!(
            problems[0].what,
            "the agent speaks protocol 0; this controller speaks 1"
        );
    }
}
