//! Neighbours of the ports: addresses for which a port answers, and possible next hops.

use std::{collections::BTreeSet, net::IpAddr};

use wb_model::{
    Plan, Proto,
    plan::PortPlan,
    stream::{DEFAULT_DST4, DEFAULT_DST6},
    units::AddressRange,
};
use wb_open::{OpenPort, StartError};
use wb_packet::{ControlKind, ControlSocket};
use wb_wire::AddrSet;

use crate::{
    guard::Guard,
    neighbour_responder::{ResponderThread, customary_router, start_responder},
};

/// Next hops that may know the way from an address of a port to another, best first.
pub fn next_hops(port: &OpenPort, source: IpAddr, destination: IpAddr) -> Vec<IpAddr> {
    let same = |gateway: &IpAddr| gateway.is_ipv6() == source.is_ipv6();
    if let Some(gateway) = port.plan.gateway.filter(same) {
        return vec![gateway];
    }
    let mut hops = vec![destination];
    if let Some(wire) = &port.wire
        && !wire.host_addresses.is_empty()
        && let Ok(Some(route)) = wire.netlink.route_to(destination)
        && route.interface == wire.interface.index
        && let Some(gateway) = route.gateway
    {
        hops.push(gateway);
    }
    let router = customary_router(source);
    if router != source && !hops.contains(&router) {
        hops.push(router);
    }
    hops
}

/// Joins several hops into a text: "A or B".
pub fn one_of(hops: &[IpAddr]) -> String {
    let hops: Vec<String> = hops.iter().map(ToString::to_string).collect();
    hops.join(" or ")
}

fn insert_range(set: &mut AddrSet, range: &AddressRange) {
    match (range.first(), range.last()) {
        (IpAddr::V4(a), IpAddr::V4(b)) => set.insert_v4(a..=b),
        (IpAddr::V6(a), IpAddr::V6(b)) => set.insert_v6(a..=b),
        _ => {}
    }
}

/// Addresses for which a port answers: sources of sent frames and destinations of received frames.
fn addresses_of(plan: &Plan, port: &PortPlan) -> AddrSet {
    let mut set = AddrSet::default();
    port.addresses
        .iter()
        .for_each(|r| insert_range(&mut set, r));
    for job in plan.loads.iter().filter(|j| j.port == port.name) {
        // If the port has a list of addresses, the port answers for exactly that list.
        if port.addresses.is_empty() {
            job.own_addresses()
                .iter()
                .for_each(|r| insert_range(&mut set, r));
        }
    }
    for job in &plan.traffic {
        let is = |name: &Option<String>| name.as_deref() == Some(port.name.as_str());
        let streams = job
            .streams
            .iter()
            .filter(|s| s.replay.is_none() && s.proto != Proto::Raw);
        for stream in streams {
            if is(&job.tx) {
                insert_range(&mut set, &stream.source());
            }
            if is(&job.rx) {
                insert_range(&mut set, &stream.destination());
            }
        }
        if is(&job.rx) && job.tx.is_none() && port.addresses.is_empty() {
            set.insert(IpAddr::V4(DEFAULT_DST4));
            set.insert(IpAddr::V6(DEFAULT_DST6));
        }
    }
    set
}

/// Opens a socket for neighbour traffic of a port; `None` without an interface.
///
/// # Errors
/// Fails if the socket cannot be opened.
pub fn control_socket(port: &OpenPort) -> Result<Option<ControlSocket>, StartError> {
    let Some(wire) = &port.wire else {
        return Ok(None);
    };
    let interface = &wire.interface;
    let opened = wb_machine::in_namespace(&wire.namespace, || {
        ControlSocket::open(interface, ControlKind::Presence)
    })
    .map_err(|cause| StartError::host(&port.plan.locator, cause))?;
    Ok(Some(opened?))
}

/// Starts a neighbour responder at each port.
pub fn start_responders<'a>(
    plan: &Plan,
    ports: impl Iterator<Item = &'a OpenPort>,
) -> Result<Vec<ResponderThread>, StartError> {
    let mut responders = Vec::new();
    let mut attended = BTreeSet::new();
    for port in ports {
        // One responder serves all users of a port.
        if !attended.insert(&port.plan.name) {
            continue;
        }
        let Some(socket) = control_socket(port)? else {
            continue;
        };
        let mut addresses = addresses_of(plan, &port.plan);
        let wire = port.wire.as_ref().expect("it has a control socket");
        if wire.host_addresses.iter().any(|a| addresses.contains(*a)) {
            // The kernel already answers for its own addresses; two answers would be one too many.
            let kept: Vec<(IpAddr, IpAddr)> = addresses.ranges().collect();
            addresses = AddrSet::default();
            for (first, last) in kept {
                if first == last && wire.host_addresses.contains(&first) {
                    continue;
                }
                if let Ok(range) = format!("{first}-{last}").parse() {
                    insert_range(&mut addresses, &range);
                }
            }
        }
        if !addresses.is_empty() {
            let guard = Guard::of(plan);
            let mac = port.facts.mac;
            responders.push(start_responder(
                socket,
                mac,
                addresses,
                guard,
                &port.plan.name,
            )?);
        }
    }
    Ok(responders)
}
