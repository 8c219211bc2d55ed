//! The interface of a port, as the host describes it.

use std::{collections::BTreeMap, net::IpAddr};

use wb_machine::{
    LinkEvents, Namespace, Netlink,
    ethtool::Ethtool,
    link::{Link, LinkCounters},
};
use wb_model::plan::{PortPlan, SendWay};
use wb_port::{Interface, Speed};

use crate::StartError;

/// An interface as the host describes it; absent for memory and files.
pub struct Wire {
    /// Namespace of the interface.
    pub namespace: Namespace,
    /// State of the link.
    pub link: Link,
    /// The interface as drivers see it.
    pub interface: Interface,
    /// Netlink socket in the namespace.
    pub netlink: Netlink,
    /// Changes of the interface; `None` if the kernel does not report them.
    pub link_events: Option<LinkEvents>,
    /// Addresses for which the kernel answers.
    pub host_addresses: Vec<IpAddr>,
}

impl Wire {
    /// Warning that an XDP program takes frames before a packet socket receives them.
    pub(crate) fn program_in_front(&self) -> Option<String> {
        Some(self.link.xdp_attached?.warning())
    }

    /// Counters of the interface so far, with the kernel's names; empty if the interface is gone.
    #[must_use]
    pub fn counters(&self) -> BTreeMap<String, u64> {
        let counters: Option<LinkCounters> = self.netlink.counters(&self.interface.name).ok();
        counters.map_or_else(BTreeMap::new, |c| {
            c.named().map(|(n, v)| (n.to_owned(), v)).collect()
        })
    }
}

pub(crate) fn host_error(port: &PortPlan) -> impl Fn(wb_machine::HostError) -> StartError + '_ {
    move |cause| StartError::host(&port.locator, cause)
}

/// Finds the interface of a port and checks that it can be used at all.
pub fn find_wire(port: &PortPlan) -> Result<Wire, StartError> {
    let wire = locate_wire(port)?;
    require_link(port, &wire)?;
    Ok(wire)
}

/// Finds the interface of a port, whatever its state.
pub fn locate_wire(port: &PortPlan) -> Result<Wire, StartError> {
    let error = host_error(port);
    let namespace = match &port.locator.node {
        Some(node) => Namespace::named(node),
        None => Namespace::current(),
    }
    .map_err(&error)?;
    let name = &port.locator.name;
    if port.way != SendWay::Receive {
        return wire_at(port, namespace, name);
    }
    match wb_machine::peer::veth_peer(&namespace, name).map_err(&error)? {
        Some((namespace, peer)) => wire_at(port, namespace, &peer),
        None => Err(StartError::stream(
            port.locator.to_string(),
            "sending into the receive path needs a veth pair whose other end is in a named namespace",
        )),
    }
}

/// Returns true if the interface of a port is up with its cable plugged in, if the state is unknown, or if the port has
/// no interface.
pub fn has_link(port: &PortPlan) -> bool {
    // Another host answers for its links.
    port.locator.host.is_some()
        || !port.locator.is_interface()
        || locate_wire(port).map_or(true, |wire| wire.link.up && wire.link.carrier)
}

/// Returns the other end of a veth pair, if it is accessible.
pub fn far_end(port: &PortPlan, wire: &Wire) -> Option<Wire> {
    let peer = wb_machine::peer::veth_peer(&wire.namespace, &wire.interface.name);
    let (namespace, name) = peer.ok()??;
    wire_at(port, namespace, &name).ok()
}

/// Returns true if the interface is in a namespace of a lab, so that this program may prepare it.
pub fn is_of_a_lab(wire: &Wire) -> bool {
    wire.namespace
        .name()
        .is_some_and(|name| name.starts_with("wb-"))
}

/// Checks that the interface of a port is up and its cable is plugged in.
pub fn require_link(port: &PortPlan, wire: &Wire) -> Result<(), StartError> {
    let (link, name) = (&wire.link, &wire.interface.name);
    let prefix = wire.namespace.command_prefix();
    if !link.up {
        return Err(StartError::stream(
            port.locator.to_string(),
            format!("the interface is down; try `{prefix}ip link set {name} up`"),
        ));
    }
    if !link.carrier {
        return Err(StartError::stream(
            port.locator.to_string(),
            "the interface has no carrier: the cable is unplugged, or the other end is down",
        ));
    }
    Ok(())
}

fn wire_at(port: &PortPlan, namespace: Namespace, name: &str) -> Result<Wire, StartError> {
    let error = host_error(port);
    let netlink = Netlink::open(&namespace).map_err(&error)?;
    let link = netlink.link(name).map_err(&error)?;
    let ethtool = Ethtool::open(&namespace).ok();
    let driver = ethtool.as_ref().and_then(|e| e.driver(name).ok().flatten());
    let speed = ethtool.as_ref().and_then(|e| e.speed(name).ok().flatten());
    let channels = ethtool
        .as_ref()
        .and_then(|e| e.channels(name).ok().flatten());
    let interface = Interface {
        port: port.locator.to_string(),
        name: name.to_owned(),
        index: link.index,
        mac: link.mac,
        mtu: link.mtu,
        speed: speed.map(|s| Speed {
            bits_per_second: s.bits_per_second,
            nominal: s.nominal,
        }),
        kernel_driver: driver.map(|d| d.name).unwrap_or_default(),
        tx_queues: channels.map_or(1, |c| c.tx_queues().max(1)),
        rx_queues: channels.map_or(1, |c| c.rx_queues().max(1)),
    };
    let host_addresses = netlink
        .addresses(name)
        .map(|list| {
            list.into_iter()
                .filter(|a| !a.link_local)
                .map(|a| a.address)
                .collect()
        })
        .unwrap_or_default();
    Ok(Wire {
        link_events: LinkEvents::open(&namespace, link.index).ok(),
        namespace,
        link,
        interface,
        netlink,
        host_addresses,
    })
}
