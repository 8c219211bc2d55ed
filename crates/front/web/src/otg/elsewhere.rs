//! Ports on the hosts of a fleet: checks of a configuration that names them, and figures of these ports.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use serde_json::Value;
use wb_model::{Locator, fleet::Agent, report::PortReport};
use wb_otg::{Config, PortConfig, PortFigures, Problem};
use wb_runs::JobsSoFar;

use super::{ActiveFlows, FCS, Inner, OtgError, OtgResult, ports, wait_until};

/// Time in which hosts that have just been started appear. They give a sign of life each second.
const APPEARANCE: Duration = Duration::from_secs(2);

/// Counts of a port: frames sent and received, octets sent and received, with FCS.
pub(super) type PortCounts = [u64; 4];

impl ActiveFlows {
    /// Returns true if the run is carried out by hosts of a fleet.
    pub(super) fn is_elsewhere(&self) -> bool {
        self.run.plan().first_host().is_some()
    }
}

impl Inner {
    /// The hosts of the fleet that are there; none without a fleet.
    pub(super) fn agents(&self) -> Vec<Agent> {
        let carrier = self.runs.settings().carrier.as_ref();
        carrier.map_or_else(Vec::new, |carrier| carrier.agents())
    }

    /// Waits for the hosts that a configuration names, which may just have been started.
    pub(super) fn await_hosts(&self, config: &Value) {
        let ports = config["ports"].as_array().into_iter().flatten();
        let locators = ports.filter_map(|port| ports::locator(port["location"].as_str()?));
        let hosts = locators.filter_map(|locator| locator.host);
        let hosts: BTreeSet<String> = hosts.filter(|host| !host.starts_with('{')).collect();
        if hosts.is_empty() || self.runs.settings().carrier.is_none() {
            return;
        }
        wait_until(APPEARANCE, || {
            let agents = self.agents();
            let is_there = |host: &String| agents.iter().any(|agent| agent.host == *host);
            hosts.iter().all(is_there)
        });
    }

    /// Checks that a port on a host of the fleet can be used.
    pub(super) fn check_elsewhere(&self, locator: &Locator) -> Result<(), String> {
        let Some(host) = &locator.host else {
            return Ok(());
        };
        if self.runs.settings().carrier.is_none() {
            return Err(format!(
                "unsupported location: the port is on the host {host}, and this server has no fleet (--fleet)"
            ));
        }
        if host.starts_with('{') {
            return Err("unsupported location: labels; write the name of a host".to_owned());
        }
        let agents = self.agents();
        let agent = agents.iter().find(|agent| agent.host == *host);
        let agent = agent.ok_or_else(|| {
            let hosts: Vec<&str> = agents.iter().map(|agent| agent.host.as_str()).collect();
            format!(
                "unknown name: no agent of the host {host} is there, only {}",
                listed(&hosts)
            )
        })?;
        // An agent lists the interfaces of the namespace in which it runs only.
        let is_known = |site: &String| agent.ports.iter().any(|port| port.locator == *site);
        match locator.node.is_some() || is_known(&locator.site()) {
            true => Ok(()),
            false => {
                let ports = agent.ports.iter().map(|port| port.locator.as_str());
                let ports = listed(&ports.collect::<Vec<_>>());
                Err(format!("unknown name: the host {host} offers only {ports}"))
            }
        }
    }

    /// Figures of a port on another host: counts of the runs of this configuration.
    pub(super) fn figures_elsewhere(
        &self,
        port: &PortConfig,
        locator: &Locator,
        transmits: bool,
    ) -> PortFigures {
        let agents = self.agents();
        let mut hosts = agents.iter();
        let agent = hosts.find(|agent| Some(&agent.host) == locator.host.as_ref());
        let (site, state) = (locator.site(), self.state());
        let seen = state.active.as_ref().map(|active| active.run.jobs());
        let seen = seen.unwrap_or_default();
        let counted = |at: &JobsSoFar| {
            let own = at.ports.iter().find(|own| own.name == port.name);
            own.map(counts).unwrap_or_default()
        };
        let points = seen.iter().map(|at| (at.elapsed_ns, counted(at)));
        let points: Vec<(u64, PortCounts)> = points.collect();
        let before = state.counted.get(&port.name).copied().unwrap_or_default();
        let now = points.last().map(|(_, counts)| *counts).unwrap_or_default();
        let [tx_pps, rx_pps, tx_rate, rx_rate] = rates(points);
        PortFigures {
            is_up: agent.is_some_and(|agent| {
                let mut ports = agent.ports.iter();
                let listed = ports.find(|port| port.locator == site);
                listed.is_none_or(|port| port.up)
            }),
            captures: false,
            transmits,
            frames_tx: before[0] + now[0],
            frames_rx: before[1] + now[1],
            bytes_tx: before[2] + now[2],
            bytes_rx: before[3] + now[3],
            tx_pps,
            rx_pps,
            tx_rate,
            rx_rate,
        }
    }
}

/// Counts of the interface of a port during its run.
fn counts(port: &PortReport) -> PortCounts {
    let of = |name: &str| {
        let at = |counters: &BTreeMap<String, u64>| counters.get(name).copied().unwrap_or(0);
        at(&port.after).saturating_sub(at(&port.before))
    };
    let (tx, rx) = (of("tx_packets"), of("rx_packets"));
    [tx, rx, of("tx_bytes") + FCS * tx, of("rx_bytes") + FCS * rx]
}

/// Increase per second of counts between the first and the last of these moments at which they changed. Counters of
/// interfaces are read less often than the figures of flows, so the first moment may have old ones.
#[allow(clippy::cast_precision_loss)]
fn rates(mut points: Vec<(u64, PortCounts)>) -> [f64; 4] {
    points.dedup_by_key(|(_, counts)| *counts);
    if points.len() > 2 {
        points.remove(0);
    }
    let (Some((since, old)), Some((now, new))) = (points.first(), points.last()) else {
        return [0.0; 4];
    };
    let seconds = now.saturating_sub(*since) as f64 / 1e9;
    std::array::from_fn(|n| new[n].saturating_sub(old[n]) as f64 / seconds.max(1e-9))
}

/// Adds the counts of ports in a run that has ended.
pub(super) fn add_counts(counted: &mut BTreeMap<String, PortCounts>, ports: &[PortReport]) {
    for port in ports {
        let sum = counted.entry(port.name.clone()).or_default();
        for (sum, more) in sum.iter_mut().zip(counts(port)) {
            *sum += more;
        }
    }
}

/// Problems of a configuration that ports on other hosts cannot carry out.
pub(super) fn unsupported(config: &Config) -> Vec<Problem> {
    let host_of = |name: &str| {
        let port = config.port(name)?;
        Some((port.location.clone(), port.host()?))
    };
    let mut problems = Vec::new();
    for (n, capture) in config.captures.iter().enumerate() {
        for port in &capture.ports {
            if let Some((location, _)) = host_of(port) {
                let what = format!("a capture at a port of another host ({location})");
                problems.push(Problem::unsupported(format!("captures[{n}]"), &what));
            }
        }
    }
    for ethernet in &config.ethernets {
        if let Some((location, _)) = host_of(&ethernet.port) {
            let what = format!(
                "device interface '{}' at a port of another host ({location})",
                ethernet.name
            );
            problems.push(Problem::unsupported("devices", &what));
        }
    }
    let has_hosts = config.ports.iter().any(|port| port.host().is_some());
    let here = config.ports.iter().enumerate().filter(|_| has_hosts);
    for (n, port) in here.filter(|(_, port)| port.host().is_none()) {
        let what = format!(
            "'{}' has no host, but other ports have; write HOST:PORT for each",
            port.location
        );
        problems.push(Problem::unsupported(format!("ports[{n}].location"), &what));
    }
    problems
}

/// The error of a change that flows between ports of other hosts cannot follow.
pub(super) fn cannot_change(what: &str) -> OtgError {
    OtgError::new(
        501,
        format!(
            "unsupported: {what} while flows are sent by other hosts; start and stop them together"
        ),
    )
}

/// Refuses to set the link of a port on another host.
pub(super) fn refuse_link(port: &PortConfig) -> OtgResult<()> {
    match port.host() {
        None => Ok(()),
        Some(host) => {
            let what = format!(
                "port.link.port_names: unsupported: the link of port '{}' on the host {host}",
                port.name
            );
            Err(OtgError::new(501, what))
        }
    }
}

/// Names for a message, at most eight of them.
fn listed(names: &[&str]) -> String {
    match names.len() {
        0 => "none".to_owned(),
        1..=8 => names.join(", "),
        all => format!("{} and {} more", names[..8].join(", "), all - 8),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(before: &[(&str, u64)], after: &[(&str, u64)]) -> PortReport {
        let of = |counters: &[(&str, u64)]| {
            let counters = counters.iter();
            counters.map(|(k, v)| ((*k).to_owned(), *v)).collect()
        };
        PortReport {
            name: "p1".to_owned(),
            before: of(before),
            after: of(after),
            ..PortReport::default()
        }
    }

    #[test]
    fn counts_of_runs_add_up() {
        let mut counted = BTreeMap::new();
        let before = [("tx_packets", 5), ("tx_bytes", 300), ("rx_packets", 7)];
        let after = [("tx_packets", 8), ("tx_bytes", 480), ("rx_packets", 7)];
        let run = [port(&before, &after)];
        add_counts(&mut counted, &run);
        assert_eq!(counted["p1"], [3, 0, 180 + 3 * FCS, 0]);
        add_counts(&mut counted, &run);
        // A counter that was reset counts nothing.
        add_counts(&mut counted, &[port(&after, &before)]);
        assert_eq!(counted["p1"], [6, 0, 2 * (180 + 3 * FCS), 0]);
    }

    #[test]
    fn rates_are_those_between_two_readings() {
        let points = |all: &[(u64, u64)]| {
            let all = all.iter();
            let points = all.map(|(ms, n)| (ms * 1_000_000, [*n, 0, 0, 0]));
            rates(points.collect())[0]
        };
        assert_eq!(points(&[]), 0.0);
        assert_eq!(points(&[(250, 10)]), 0.0);
        assert_eq!(points(&[(250, 0), (500, 500)]), 2000.0);
        // The first one was read before its moment.
        let all = [
            (250, 100),
            (500, 600),
            (750, 600),
            (1000, 1600),
            (1250, 1600),
        ];
        assert_eq!(points(&all), 2000.0);
        assert_eq!(points(&[(250, 9), (1250, 9)]), 0.0);
    }

    #[test]
    fn messages_list_few_names() {
        assert_eq!(listed(&[]), "none");
        assert_eq!(listed(&["a", "b"]), "a, b");
        assert_eq!(listed(&["a"; 10]), "a, a, a, a, a, a, a, a and 2 more");
    }
}
