//! Hosts of a fleet in a plan: which host runs a job without ports, and among how many hosts a load is split.

use std::{collections::BTreeMap, fmt, str::FromStr};

use crate::{
    load::LoadEnd,
    locator::is_host,
    plan::Plan,
    units::{ParseUnitError, string_serde},
    validate::{Findings, rules},
};

/// Maximum number of hosts of one job.
const MAX_SHARE: u32 = 1000;

/// Host of a fleet, by its name or by its labels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostChoice {
    /// Name of the host: 1 to 63 lower-case letters, digits and hyphens.
    Name(String),
    /// Any host that has all these labels: `{rack=r1,speed=25g}`.
    Labels(BTreeMap<String, String>),
}

impl HostChoice {
    /// Name of the host, unless labels choose it.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        match self {
            Self::Name(name) => Some(name),
            Self::Labels(_) => None,
        }
    }
}

/// Returns true for a label or its value: letters, digits, hyphens, dots and underscores.
fn is_word(word: &str) -> bool {
    let is_allowed = |b: u8| b.is_ascii_alphanumeric() || b"-._".contains(&b);
    !word.is_empty() && word.bytes().all(is_allowed)
}

impl FromStr for HostChoice {
    type Err = ParseUnitError;

    fn from_str(text: &str) -> Result<Self, ParseUnitError> {
        let error = || ParseUnitError::new(text, "a host: NAME, or its labels {LABEL=VALUE,…}");
        let Some(labels) = text.strip_prefix('{') else {
            let name = Some(text).filter(|text| is_host(text)).ok_or_else(error)?;
            return Ok(Self::Name(name.to_owned()));
        };
        let labels = labels.strip_suffix('}').ok_or_else(error)?;
        let labels = labels.split(',').map(|pair| {
            let words = pair
                .split_once('=')
                .filter(|(a, b)| is_word(a) && is_word(b));
            words
                .map(|(label, value)| (label.to_owned(), value.to_owned()))
                .ok_or_else(error)
        });
        let labels = labels.collect::<Result<BTreeMap<_, _>, _>>()?;
        Ok(Self::Labels(labels))
    }
}

impl fmt::Display for HostChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Labels(labels) => {
                let labels = labels
                    .iter()
                    .map(|(label, value)| format!("{label}={value}"));
                write!(f, "{{{}}}", labels.collect::<Vec<_>>().join(","))
            }
        }
    }
}

string_serde!(
    HostChoice,
    "HostChoice",
    "a host of a fleet: NAME, or its labels {LABEL=VALUE,…}",
    "{rack=r1}"
);

impl Plan {
    /// Keys `host` of the jobs, with their places.
    pub fn job_hosts(&self) -> impl Iterator<Item = (String, &HostChoice)> {
        let places = |word: &'static str| move |n: usize| format!("{word} {}, host", n + 1);
        let http = self.http_jobs.iter().map(|job| &job.host).enumerate();
        let sockets = self.sockets.iter().map(|job| &job.host).enumerate();
        let probes = self.probes.iter().map(|probe| &probe.host).enumerate();
        let server = self
            .socket_server
            .iter()
            .filter_map(|job| job.host.as_ref());
        let server = server.map(|host| ("socket_server, host".to_owned(), host));
        let of = |place: (usize, String), host| (place.1, host);
        let http = http.map(move |(n, host)| ((n, places("http")(n)), host));
        let sockets = sockets.map(move |(n, host)| ((n, places("socket")(n)), host));
        let probes = probes.map(move |(n, host)| ((n, places("probe")(n)), host));
        let jobs = http.chain(sockets).chain(probes);
        jobs.filter_map(move |(place, host)| Some(of(place, host.as_ref()?)))
            .chain(server)
    }

    /// The first job or port that names a host, and the host. Such a plan is for a fleet.
    #[must_use]
    pub fn first_host(&self) -> Option<(String, String)> {
        let job = self.job_hosts().next();
        let job = job.map(|(place, host)| (place, host.to_string()));
        job.or_else(|| {
            let mut ports = self.locators();
            ports.find_map(|port| Some((port.to_string(), port.host.clone()?)))
        })
    }

    /// Checks the keys `host` and `share` of the jobs.
    pub(crate) fn check_job_hosts(&self, found: &mut Findings) {
        let is_number = |share: u32| (1..=MAX_SHARE).contains(&share);
        for (n, job) in self.http_jobs.iter().enumerate() {
            let place = format!("http {}", n + 1);
            let has_labels = job.host.as_ref().is_some_and(|host| host.name().is_none());
            rules! { found:
                job.host.is_some() && job.port.is_some() =>
                    &place, "host and port exclude each other; a port has its host in its locator";
                job.share.is_some_and(|share| !is_number(share)) =>
                    &place, "share must be between 1 and {MAX_SHARE}, got {}", job.share.unwrap_or(0);
                job.share.is_some() && !has_labels =>
                    &place, "share needs labels of hosts in host, such as {{rack=r1}}";
                job.share.is_some_and(|share| share > job.connections) =>
                    &place, "share: each host needs at least one connection, got {}", job.connections;
            }
        }
        for (n, job) in self.loads.iter().enumerate() {
            let place = format!("load {}", n + 1);
            let port = self.ports.iter().find(|port| port.name == job.port);
            let host = port.and_then(|port| port.locator.host.as_ref());
            rules! { found:
                job.share.is_some_and(|share| !is_number(share)) =>
                    &place, "share must be between 1 and {MAX_SHARE}, got {}", job.share.unwrap_or(0);
                job.share.is_some() && job.end == LoadEnd::Server =>
                    &place, "share splits the load of clients; remove it from a server";
                job.share.is_some() && !host.is_some_and(|host| host.starts_with('{')) =>
                    &place, "share needs a port with labels of hosts, such as {{rack=r1}}:any";
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_read_as_they_are_printed() {
        for text in ["h1", "rack-1", "{rack=r1}", "{rack=r1,speed=25g}"] {
            assert_eq!(text.parse::<HostChoice>().unwrap().to_string(), text);
        }
        for text in [
            "", "H1", "xdp", "{}", "{rack}", "{rack=}", "{rack=r1", "{a=b c}",
        ] {
            assert!(text.parse::<HostChoice>().is_err(), "{text}");
        }
    }

    #[test]
    fn places_of_hosts_name_the_job() {
        let plan = r#"
            [[http]]
            url = "http://198.18.0.1/"
            [[http]]
            url = "http://198.18.0.1/"
            host = "{rack=r1}"
            [[probe]]
            kind = "ipvs"
            host = "h1"
        "#;
        let plan: Plan = toml::from_str(plan).unwrap();
        let places: Vec<String> = plan
            .job_hosts()
            .map(|(place, host)| format!("{place}: {host}"))
            .collect();
        assert_eq!(places, ["http 2, host: {rack=r1}", "probe 1, host: h1"]);
    }

    #[test]
    fn a_share_needs_hosts_to_share_with() {
        let problems = |keys: &str| {
            let text = format!("[[http]]\nurl = \"http://198.18.0.1/\"\n{keys}");
            let plan: Plan = toml::from_str(&text).unwrap();
            let mut found = Findings::default();
            plan.check_job_hosts(&mut found);
            found
                .problems
                .iter()
                .map(|problem| problem.what.clone())
                .collect::<Vec<_>>()
        };
        assert!(problems("host = \"{rack=r1}\"\nshare = 4").is_empty());
        assert!(problems("share = 4")[0].contains("labels"));
        assert!(problems("host = \"h1\"\nshare = 4")[0].contains("labels"));
        assert!(problems("host = \"{rack=r1}\"\nshare = 0")[0].contains("between 1 and 1000"));
        assert!(problems("host = \"{rack=r1}\"\nshare = 40")[0].contains("connection"));
    }
}
