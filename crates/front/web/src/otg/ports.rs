//! Interfaces of a configuration.

use std::{collections::BTreeMap, time::Duration};

use wb_machine::{Ethtool, LinkCounters, Netlink};
use wb_model::{Locator, fleet::Agent};
use wb_otg::{Config, PortConfig};

use crate::host::interface;

/// Time for which a configuration owns its ports, unless another one replaces it.
pub(super) const LEASE: Duration = Duration::from_secs(365 * 24 * 3600);

/// The port of plans at a location; `None` if the location is not supported.
pub(super) fn locator(location: &str) -> Option<Locator> {
    let port = PortConfig {
        name: String::new(),
        location: location.to_owned(),
        speed: None,
    };
    Some(port.plan().ok()?.locator)
}

/// Place of a port of this host.
fn place_of(location: &str) -> Option<String> {
    let locator = locator(location).filter(|locator| locator.host.is_none());
    locator.map(|locator| locator.place())
}

/// Speed of the link at a location, in bit/s, if it means something.
pub(super) fn speed(location: &str, agents: &[Agent]) -> Option<u64> {
    let locator = locator(location)?;
    if locator.host.is_some() {
        let site = locator.site();
        let mut ports = agents.iter().flat_map(|agent| &agent.ports);
        return ports.find(|port| port.locator == site)?.speed_bps;
    }
    let place = locator.place();
    let (namespace, name) = interface(&place)?;
    let speed = Ethtool::open(&namespace).ok()?.speed(name).ok()??;
    (!speed.nominal).then_some(speed.bits_per_second)
}

/// Checks that an interface is there and up.
pub(super) fn check(place: &str) -> Result<(), String> {
    let unknown = || format!("unknown name: there is no interface {place}");
    let (namespace, name) = interface(place).ok_or_else(unknown)?;
    let netlink = Netlink::open(&namespace).map_err(|error| error.to_string())?;
    let link = netlink.link(name).map_err(|_| unknown())?;
    match link.up {
        true => Ok(()),
        false => Err(format!("the interface {place} is down")),
    }
}

/// Counters and state of the interface of a port.
pub(super) fn reading(port: &PortConfig) -> Option<(LinkCounters, bool)> {
    let place = place_of(&port.location)?;
    let (namespace, name) = interface(&place)?;
    let netlink = Netlink::open(&namespace).ok()?;
    let link = netlink.link(name).ok()?;
    Some((netlink.counters(name).ok()?, link.up && link.carrier))
}

/// Counters of all ports.
pub(super) fn counters(config: &Config) -> BTreeMap<String, LinkCounters> {
    let ports = config.ports.iter();
    ports
        .filter_map(|port| Some((port.name.clone(), reading(port)?.0)))
        .collect()
}

/// Sets the interface of a port up or down. An interface that the host may need is never set down.
pub(super) fn set_link(port: &PortConfig, is_up: bool) -> Result<(), String> {
    let place = place_of(&port.location).unwrap_or_default();
    // Interfaces in named namespaces are set up for tests.
    if !is_up && !place.contains('/') {
        let why = wb_runs::in_use(&place).map_err(|error| error.to_string())?;
        if let Some(why) = why {
            return Err(format!("{place} stays up: the host may need it, as {why}"));
        }
    }
    let found = interface(&place);
    let (namespace, name) = found.ok_or_else(|| format!("there is no interface {place}"))?;
    let netlink = Netlink::open(&namespace).map_err(|error| error.to_string())?;
    let done = match is_up {
        true => netlink.set_up(name),
        false => netlink.set_down(name),
    };
    done.map_err(|error| error.to_string())
}
