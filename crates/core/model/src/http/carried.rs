//! HTTP loads over a port of the plan: their form as loads of the program's TCP, and features that are unavailable over
//! it.

use std::net::IpAddr;

use super::{HttpJob, HttpUrl, HttpVersion, Scheme};
use crate::{
    load::{LoadEnd, LoadJob, LoadRate, LoadShape},
    plan::Plan,
    stream::{DEFAULT_SRC4, DEFAULT_SRC6},
    units::{AddressRange, PortRange, Span},
    validate::{Findings, rules},
};

/// Time longer than any run.
const ENDLESS: Span = Span::from_nanos(u64::MAX / 4);
/// Maximum time to wait for responses after the end.
const LONGEST_DRAIN: Span = Span::from_secs(60);
/// Maximum number of counted requests per connection.
const MOST_PER_CONNECTION: u32 = 65_534;

impl HttpJob {
    /// Returns the servers of its connections over a port.
    fn destinations(&self) -> Result<(Vec<AddressRange>, u16), String> {
        let url: HttpUrl = self.url.parse()?;
        let port = url.port_or_default();
        if self.connect_to.is_empty() {
            let address: IpAddr = url.host.parse().map_err(|_| {
                format!(
                    "HTTP over a port does not resolve names, got {:?}; use an address, or connect_to",
                    url.host
                )
            })?;
            return Ok((vec![AddressRange::single(address)], port));
        }
        let ports = self.connect_to.iter().map(|to| match to.address.port() {
            0 => port,
            told => told,
        });
        let mut ports: Vec<u16> = ports.collect();
        ports.dedup();
        let [port] = ports[..] else {
            return Err("HTTP over a port needs the same TCP port in all of connect_to".to_owned());
        };
        let all = self.connect_to.iter().map(|to| to.address.ip());
        Ok((all.map(AddressRange::single).collect(), port))
    }

    /// Returns the same connections as a load of the named port. Returns `None` without a port, or if the servers are
    /// invalid. Requests are not part of it.
    #[must_use]
    pub fn as_load(&self) -> Option<LoadJob> {
        let port = self.port.clone()?;
        let (servers, server_port) = self.destinations().ok()?;
        let clients = match (self.sources.is_empty(), servers.first()?.is_ipv6()) {
            (false, _) => self.sources.clone(),
            (true, false) => vec![AddressRange::single(DEFAULT_SRC4.into())],
            (true, true) => vec![AddressRange::single(DEFAULT_SRC6.into())],
        };
        let timeout = self.timeout;
        let mut load = LoadJob {
            name: self.name.clone(),
            port,
            end: LoadEnd::Client,
            clients,
            servers,
            server_ports: PortRange::single(server_port),
            requests: self.per_connection,
            pipeline: u16::try_from(self.pipeline).unwrap_or(u16::MAX),
            rate: LoadRate {
                cc: Some(self.connections.into()),
                ..LoadRate::default()
            },
            shape: LoadShape {
                duration: self.ends_after().unwrap_or(ENDLESS),
                drain: timeout.min(LONGEST_DRAIN),
                ..LoadShape::default()
            },
            ..LoadJob::default()
        };
        load.tcp.connect_timeout = self.connect_timeout.unwrap_or(timeout);
        load.tcp.response_timeout = timeout;
        load.tcp.close_timeout = timeout;
        Some(load)
    }

    /// Checks for features that are unavailable over a port.
    pub(super) fn check_port(&self, found: &mut Findings) {
        if self.port.is_none() {
            return;
        }
        let tls = self
            .url
            .parse::<HttpUrl>()
            .is_ok_and(|url| url.scheme == Scheme::Https);
        let no = "HTTP over a port";
        rules! { found:
            tls => "url", "{no} does not support TLS; use http://…";
            self.version != HttpVersion::V11 => "version", "{no} needs version 1.1";
            self.unix.is_some() => "unix", "{no} does not support Unix sockets";
            self.data.is_some() => "data", "{no} does not support data files; list each request";
            self.script.is_some() || self.as_wrk => "script", "{no} does not support scripts and as_wrk";
            self.threads != 1 => "threads", "{no} uses the workers of the port as threads; set workers of the port";
            self.per_connection > MOST_PER_CONNECTION =>
                "per_connection", "{no}: must be between 1 and {MOST_PER_CONNECTION}, or 0 (no limit), got {}", self.per_connection;
            self.requests.len() > 1 << 16 => "request", "{no} supports at most 65536 requests, got {}", self.requests.len();
            self.timeout == Span::default() => "timeout", "must be above 0";
        }
        if let Err(what) = self.destinations() {
            found.problem("url", what);
            return;
        }
        // The loads' own checks report these problems here already.
        let own = ["clients", "servers", "rate.cc"];
        for problem in self.as_load().iter().flat_map(LoadJob::problems) {
            let place = match problem.place.as_str() {
                "clients" => "sources",
                "servers" => "url",
                _ => "connections",
            };
            if own.contains(&problem.place.as_str()) {
                found.problem(place, problem.what);
            }
        }
    }
}

impl Plan {
    /// Returns the plan with HTTP loads over ports added as loads after its other loads, which determines the use of
    /// its ports.
    #[must_use]
    pub fn carried(&self) -> Self {
        let mut plan = self.clone();
        let carried = self.http_jobs.iter().filter_map(HttpJob::as_load);
        plan.loads.extend(carried);
        plan.http_jobs.retain(|job| job.port.is_none());
        plan
    }

    /// Checks the HTTP loads over ports together.
    pub(crate) fn check_carried(&self, found: &mut Findings) {
        let over = |job: &&HttpJob| job.port.is_some();
        let n = self.http_jobs.iter().filter(over).count();
        rules! { found:
            n > 0 && n < self.http_jobs.len() =>
                "http", "jobs with a port and jobs over kernel sockets exclude each other; use two plans";
        }
        for job in self.http_jobs.iter().filter(over) {
            let name = job.port.as_deref().unwrap_or_default();
            rules! { found:
                !self.ports.iter().any(|port| port.name == name) =>
                    "http", "unknown port {name:?}";
            }
            if let Some(port) = self.ports.iter().find(|port| port.name == name) {
                rules! { found:
                    job.connections < port.workers =>
                        "http", "each worker of the port needs at least one connection, got workers = {}, connections = {}",
                        port.workers, job.connections;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PortPlan;

    fn plan(job: HttpJob) -> Plan {
        Plan {
            ports: vec![PortPlan::new("a", "n/a".parse().unwrap())],
            http_jobs: vec![HttpJob {
                port: Some("a".to_owned()),
                duration: Some(Span::from_secs(1)),
                url: match job.url.as_str() {
                    "" => "http://198.19.1.2:81/x".to_owned(),
                    url => url.to_owned(),
                },
                ..job
            }],
            ..Plan::default()
        }
    }

    fn problems(job: HttpJob) -> String {
        let error = plan(job).validate().err();
        error.map(|e| e.to_string()).unwrap_or_default()
    }

    #[test]
    fn a_job_over_a_port_is_a_load_of_it() {
        let plan = plan(HttpJob {
            connections: 7,
            per_connection: 3,
            ..HttpJob::default()
        });
        plan.validate().unwrap();
        assert_eq!(plan.users(&plan.ports[0]).count(), 1);
        let carried = plan.carried();
        let load = &carried.loads[0];
        assert!(carried.http_jobs.is_empty());
        assert_eq!((load.port.as_str(), load.requests), ("a", 3));
        assert_eq!(load.server_ports, PortRange::single(81));
        assert_eq!(load.clients[0].first(), IpAddr::from(DEFAULT_SRC4));
        assert_eq!(load.servers[0].to_string(), "198.19.1.2");
        assert_eq!(load.rate.cc, Some(7));
        assert!(load.problems().is_empty());
    }

    #[test]
    fn what_cannot_be_is_refused_by_its_key() {
        let job = HttpJob::default;
        assert_eq!(problems(job()), "");
        let url = |url: &str| HttpJob {
            url: url.to_owned(),
            ..job()
        };
        let cases: [(HttpJob, &str); 10] = [
            (
                HttpJob {
                    version: HttpVersion::V2,
                    ..job()
                },
                "needs version 1.1",
            ),
            (url("https://198.19.1.2/"), "does not support TLS"),
            (
                url("http://web.lab/"),
                "does not resolve names, got \"web.lab\"",
            ),
            (url("http://198.18.1.2/"), "overlaps the servers"),
            (
                HttpJob {
                    threads: 2,
                    ..job()
                },
                "threads",
            ),
            (
                HttpJob {
                    data: Some("x".to_owned()),
                    ..job()
                },
                "data",
            ),
            (
                HttpJob {
                    unix: Some("x".to_owned()),
                    ..job()
                },
                "unix",
            ),
            (
                HttpJob {
                    per_connection: 65_535,
                    ..job()
                },
                "between 1 and 65534",
            ),
            (
                HttpJob {
                    connections: 100_000,
                    ..job()
                },
                "64512; add addresses or ports",
            ),
            (
                HttpJob {
                    connect_to: vec![
                        "198.19.1.2:1".parse().unwrap(),
                        "198.19.1.3:2".parse().unwrap(),
                    ],
                    ..job()
                },
                "same TCP port",
            ),
        ];
        for (job, wanted) in cases {
            let text = problems(job);
            assert!(
                text.contains(wanted) && text.contains("http"),
                "{wanted}: {text}"
            );
        }
        let mut mixed = plan(job());
        mixed.http_jobs.push(HttpJob {
            url: "http://198.19.1.3/".to_owned(),
            ..job()
        });
        assert!(
            mixed
                .validate()
                .unwrap_err()
                .to_string()
                .contains("use two plans")
        );
        mixed.http_jobs.pop();
        mixed.ports[0].name = "b".to_owned();
        assert!(
            mixed
                .validate()
                .unwrap_err()
                .to_string()
                .contains("unknown port \"a\"")
        );
    }
}
