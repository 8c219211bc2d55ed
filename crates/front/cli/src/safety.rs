//! Confirmation before a suite overloads a device: the network must be isolated (RFC 6815).
//!
//! The guard checks the addresses in frames and the routes of interfaces. This module asks the operator about
//! interfaces that may be part of a network in use, even if the guard permits them.

use std::{
    collections::BTreeSet,
    io::{BufRead as _, IsTerminal as _},
    net::IpAddr,
};

use anyhow::{Result, bail};
use wb_machine::{Netlink, netns::Namespace};
use wb_model::{
    Locator, Plan,
    bench::{Quantity, SuitePlan},
    plan::Procedure,
};

use crate::say::say;

/// Asks for confirmation if needed, and stores the answer in the plan for the report.
///
/// # Errors
/// If there is no operator to ask, or the answer is no.
pub(crate) fn confirm(plan: &mut Plan) -> Result<()> {
    let Some(suite) = plan.suite().filter(|suite| !suite.isolated) else {
        return Ok(());
    };
    let concerns = concerns(plan)?;
    if concerns.is_empty() {
        return Ok(());
    }
    let targets: Vec<String> = concerns.iter().map(|(port, _)| port.clone()).collect();
    let targets = targets.join(" and ");
    if !(std::io::stdin().is_terminal() && std::io::stderr().is_terminal()) {
        let (port, why) = &concerns[0];
        bail!(
            "{port}: {why}; these tests overload the device on purpose (RFC 6815); if no other system uses the network \
             behind {targets}, give --isolated (isolated = true in [procedure.suite])"
        );
    }
    say(
        "These tests overload the device on purpose; run them only in an isolated network (RFC 6815).",
    );
    for (port, why) in &concerns {
        say(format_args!("  interface    {port}: {why}"));
    }
    say(format_args!("  peak load    {}", peak(suite)));
    say(format_args!("  addresses    {}", destinations(plan)));
    say(format_args!(
        "Is the network behind {targets} isolated? [y/N]"
    ));
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    if !matches!(answer.trim(), "y" | "Y" | "yes") {
        bail!("not confirmed: nothing was sent; confirm in advance with --isolated");
    }
    if let Some(Procedure::Suite(suite)) = &mut plan.procedure {
        suite.isolated = true;
    }
    Ok(())
}

/// Returns the ports that may be part of a network in use, with the reasons. Ports in named namespaces are set up for
/// tests, and memory and files belong to no network.
fn concerns(plan: &Plan) -> Result<Vec<(String, String)>> {
    let own = |port: &&Locator| port.is_interface() && port.node.is_none();
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
        // A missing interface is reported when it is opened.
        let Ok(addresses) = netlink.addresses(port) else {
            continue;
        };
        let why = match netlink.way_out(port) {
            Ok(Some(way)) => Some(way.to_string()),
            Ok(None) => addresses
                .iter()
                .find(|known| !is_for_tests(known.address))
                .map(|known| format!("it has the address {known}")),
            Err(error) => Some(format!("cannot read its routes ({error})")),
        };
        found.extend(why.map(|why| (port.to_owned(), why)));
    }
    Ok(found)
}

/// Returns true if an address gives no hint of a network in use: addresses of RFC 2544 C.2.2 and RFC 5180 section 8,
/// and addresses that every interface has.
fn is_for_tests(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(a) => a.is_link_local() || (a.octets()[0] == 198 && a.octets()[1] & 0xfe == 18),
        IpAddr::V6(a) => a.is_unicast_link_local() || a.segments()[..3] == [0x2001, 2, 0],
    }
}

/// Returns the highest load that the suite may try.
fn peak(suite: &SuitePlan) -> String {
    match (suite.max, suite.of) {
        (Some(max), Quantity::Frames) => max.to_string(),
        (Some(max), of) => format!("{max} {}", of.unit()),
        (None, Quantity::Frames) => "line rate, or the maximum of the tester".to_owned(),
        (None, _) => "the maximum of the tester".to_owned(),
    }
}

/// Returns the destinations of the frames.
fn destinations(plan: &Plan) -> String {
    let streams = plan.traffic.iter().flat_map(|job| {
        let streams = job.streams.iter();
        streams.flat_map(|stream| {
            stream
                .reach()
                .into_iter()
                .filter(|r| job.bidir || r.0 != "src")
        })
    });
    let streams = streams.map(|(_, range)| range.to_string());
    let servers = plan.loads.iter().flat_map(|load| &load.servers);
    let all: BTreeSet<String> = streams.chain(servers.map(ToString::to_string)).collect();
    let all: Vec<String> = all.into_iter().collect();
    all.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn what_is_told_before_it_starts() {
        let mut suite = SuitePlan::default();
        assert_eq!(peak(&suite), "line rate, or the maximum of the tester");
        suite.max = "40kpps".parse().ok();
        assert_eq!(peak(&suite), "40kpps");
        let plan = |bidir| Plan {
            traffic: vec![wb_model::TrafficJob {
                bidir,
                streams: vec![wb_model::Stream::default()],
                ..Default::default()
            }],
            ..Plan::default()
        };
        assert_eq!(destinations(&plan(false)), "198.19.1.2");
        assert_eq!(destinations(&plan(true)), "198.18.1.2, 198.19.1.2");
    }
}
