//! Interfaces and processors of the machine, for programs that configure devices.

use std::net::IpAddr;

use wb_machine::{
    Namespace, Netlink,
    ethtool::Ethtool,
    link::{Link, LinkKind},
};
use wb_model::device::{Interface, Link as Carries};
use wb_model::units::Mac;
use wb_open::StartError;

/// The interfaces of one network namespace and the processors of the machine.
pub struct Machine {
    namespace: Namespace,
    netlink: Netlink,
    ethtool: Option<Ethtool>,
}

impl Machine {
    /// Opens the namespace called `node`, or the namespace of the calling thread.
    ///
    /// # Errors
    /// Fails if there is no such namespace.
    pub fn open(node: Option<&str>) -> Result<Self, StartError> {
        let namespace = match node {
            Some(node) => Namespace::named(node),
            None => Namespace::current(),
        }
        .map_err(StartError::machine)?;
        Ok(Self {
            netlink: Netlink::open(&namespace).map_err(StartError::machine)?,
            ethtool: Ethtool::open(&namespace).ok(),
            namespace,
        })
    }

    /// The interface of this name.
    #[must_use]
    pub fn interface(&self, name: &str) -> Option<Interface> {
        let link = self.netlink.link(name).ok()?;
        Some(describe(&self.netlink, self.ethtool.as_ref(), &link))
    }

    /// Names of the interfaces on which packets of the network arrive: interfaces that are up, Ethernet or loopback,
    /// and not ports of a bridge or bond, because their packets arrive on the bridge or bond.
    #[must_use]
    pub fn arrival_interfaces(&self) -> Vec<String> {
        let links = self.netlink.links().unwrap_or_default();
        links
            .into_iter()
            .filter(|l| l.up && (l.ethernet || l.kind == LinkKind::Loopback))
            .filter(|l| l.master_index.is_none())
            .map(|l| l.name)
            .collect()
    }

    /// All interfaces: the number, which is stable, and the name, which may change.
    #[must_use]
    pub fn interfaces(&self) -> Vec<(u32, String)> {
        let links = self.netlink.links().unwrap_or_default();
        links.into_iter().map(|l| (l.index, l.name)).collect()
    }

    /// CPUs that are online, in order.
    #[must_use]
    pub fn online_cpus(&self) -> Vec<u32> {
        let cpus = wb_machine::cpu::online().unwrap_or_default();
        if cpus.is_empty() {
            return vec![0];
        }
        cpus.into_iter().map(|cpu| cpu.id).collect()
    }

    /// Returns true if the machine may have a memory node of this number.
    #[must_use]
    pub fn node_possible(&self, node: i32) -> bool {
        wb_machine::cpu::possible_nodes()
            .iter()
            .any(|n| i64::from(*n) == i64::from(node))
    }

    /// The opened namespace.
    #[must_use]
    pub fn namespace(&self) -> &Namespace {
        &self.namespace
    }
}

/// Describes an interface as a device needs it.
pub fn describe(netlink: &Netlink, ethtool: Option<&Ethtool>, link: &Link) -> Interface {
    let addresses = netlink.addresses(&link.name).unwrap_or_default();
    let channels = ethtool.and_then(|e| e.channels(&link.name).ok().flatten());
    let tx_queues = channels.map_or(1, |c| c.tx_queues().max(1));
    Interface {
        up: link.up,
        link: match link.kind {
            LinkKind::Loopback => Carries::Loopback,
            _ if link.ethernet => Carries::Ethernet,
            _ => Carries::Other,
        },
        mac: Mac(link.mac),
        ipv4: addresses.iter().find_map(|a| match a.address {
            IpAddr::V4(address) => Some(address),
            IpAddr::V6(_) => None,
        }),
        link_local: addresses.iter().find_map(|a| match a.address {
            IpAddr::V6(address) if a.link_local && !a.tentative => Some(address),
            _ => None,
        }),
        tx_queues: u16::try_from(tx_queues).unwrap_or(u16::MAX),
        mtu: link.mtu,
        shares_packets: link.kind == LinkKind::Physical,
    }
}
