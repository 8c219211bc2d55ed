//! Interfaces of a benchmark that may be part of a network in use. A suite overloads its device, so its network must be
//! isolated (RFC 6815).
//!
//! The guard of each run checks the addresses in frames and the routes of interfaces. Concerns are about what the guard
//! permits; they need a confirmation that the network is isolated.

use std::{collections::BTreeSet, net::IpAddr};

use schemars::JsonSchema;
use serde::Serialize;
use wb_machine::{HostError, Netlink, netns::Namespace};
use wb_model::{Locator, Plan};

/// Interface that may be part of a network in use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Concern {
    /// The interface.
    pub port: String,
    /// Reason: its way out, or an address.
    pub why: String,
}

/// Returns the interfaces that may be part of a network in use, if the plan is a suite without a confirmed isolated
/// network. Interfaces in named namespaces are set up for tests.
///
/// # Errors
/// If the interfaces cannot be read.
pub fn concerns(plan: &Plan) -> Result<Vec<Concern>, HostError> {
    if plan.suite().is_none_or(|suite| suite.isolated) {
        return Ok(Vec::new());
    }
    let own = |port: &&Locator| port.is_interface() && port.host.is_none() && port.node.is_none();
    let ports: BTreeSet<&str> = plan
        .ports
        .iter()
        .map(|port| &port.locator)
        .filter(own)
        .map(|port| port.name.as_str())
        .collect();
    if ports.is_empty() {
        return Ok(Vec::new());
    }
    let netlink = Netlink::open(&Namespace::current()?)?;
    let mut found = Vec::new();
    for port in ports {
        found.extend(why_in_use(&netlink, port).map(|why| Concern {
            port: port.to_owned(),
            why,
        }));
    }
    Ok(found)
}

/// Returns the reason why an interface of this network namespace may be part of a network in use, if there is one.
///
/// # Errors
/// If the interfaces cannot be read.
pub fn in_use(interface: &str) -> Result<Option<String>, HostError> {
    let netlink = Netlink::open(&Namespace::current()?)?;
    Ok(why_in_use(&netlink, interface))
}

fn why_in_use(netlink: &Netlink, interface: &str) -> Option<String> {
    // A missing interface is reported when it is opened.
    let addresses = netlink.addresses(interface).ok()?;
    match netlink.way_out(interface) {
        Ok(Some(way)) => Some(way.to_string()),
        Ok(None) => addresses
            .iter()
            .find(|known| !is_for_tests(known.address))
            .map(|known| format!("it has the address {known}")),
        Err(error) => Some(format!("cannot read its routes ({error})")),
    }
}

/// Returns true if an address gives no hint of a network in use: addresses of RFC 2544 C.2.2 and RFC 5180 section 8,
/// and addresses that every interface has.
fn is_for_tests(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(a) => a.is_link_local() || (a.octets()[0] == 198 && a.octets()[1] & 0xfe == 18),
        IpAddr::V6(a) => a.is_unicast_link_local() || a.segments()[..3] == [0x2001, 2, 0],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_interface_is_in_use() {
        let why = in_use("lo").unwrap().unwrap();
        assert!(why.contains("127.0.0.1"), "{why}");
        assert_eq!(in_use("no-such-link").unwrap(), None);
    }

    #[test]
    fn addresses_of_tests_are_no_concern() {
        for (address, free) in [
            ("198.18.0.1", true),
            ("198.19.255.255", true),
            ("198.20.0.1", false),
            ("10.0.0.1", false),
            ("127.0.0.1", false),
            ("169.254.1.1", true),
            ("2001:2:0:1::2", true),
            ("2001:2:1::2", false),
            ("2001:db8::1", false),
            ("fe80::1", true),
        ] {
            assert_eq!(is_for_tests(address.parse().unwrap()), free, "{address}");
        }
    }

    #[test]
    fn only_suites_that_nobody_confirmed_are_a_concern() {
        assert_eq!(concerns(&Plan::default()).unwrap(), []);
    }
}
