//! Device under test of the lab `balancer`: distributes connections to a virtual address and port over
//! several servers.
//!
//! In the mode `dnat` the device is the kernel: nftables replaces the virtual address of each new connection by the
//! next
//! server's address, and the connection's conntrack entry translates the answers. In the mode
//! `haproxy` the device is a proxy that terminates the client's connection and opens a second one.
//!
//! The tester answers for the client and server addresses; the kernels of
//! their nodes have none. The device reaches all of them through one neighbour on each side.

mod haproxy;
mod nat;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use wb_machine::{Namespace, sysctl};

use crate::topology::benchmark_v6;
use crate::{End, LabKind, LabState, Process, Result, nft};

/// Virtual addresses. They belong to the device and to the client's network, so that the device
/// answers ARP, neighbour discovery and echo for them.
pub(crate) const VIRTUAL: (Ipv4Addr, Ipv6Addr) =
    (Ipv4Addr::new(198, 18, 1, 100), benchmark_v6(1, 0x100));
/// Virtual port and port of the servers, TCP and UDP.
const PORT: u16 = 80;
/// Number of client addresses; with 64 thousand ports each, more than a run needs.
const CLIENTS: u8 = 250;

/// Method of distributing connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum BalancerMode {
    /// The kernel translates addresses, IPv4 and IPv6, TCP and UDP.
    #[default]
    Dnat,
    /// haproxy ends the client's connection and opens another; TCP only.
    Haproxy,
}

/// Options of the `balancer` lab.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct BalancerOptions {
    /// Method of distributing connections.
    pub mode: BalancerMode,
    /// Number of server addresses of each family, 1 to 250. All are behind the one server port.
    pub backends: u32,
}

impl Default for BalancerOptions {
    fn default() -> Self {
        Self {
            mode: BalancerMode::Dnat,
            backends: 2,
        }
    }
}

impl BalancerOptions {
    /// Problem of the options, if any.
    pub(crate) fn fault(self) -> Option<String> {
        (!(1..=250).contains(&self.backends)).then(|| {
            format!(
                "--backends: must be between 1 and 250, got {}",
                self.backends
            )
        })
    }

    /// Checks early that the required program is installed.
    ///
    /// # Errors
    /// [`TestbedError::Missing`].
    pub(crate) fn require_program(self) -> Result<()> {
        match self.mode {
            BalancerMode::Dnat => nft::nft_program().map(drop),
            BalancerMode::Haproxy => haproxy::haproxy_program().map(drop),
        }
    }

    fn all_servers(self) -> impl Iterator<Item = (Ipv4Addr, Ipv6Addr)> {
        (1..=self.backends as u8).map(server_addresses)
    }
}

/// Addresses of the n-th server, from 1.
fn server_addresses(n: u8) -> (Ipv4Addr, Ipv6Addr) {
    (Ipv4Addr::new(198, 19, 2, n), benchmark_v6(0x8002, n.into()))
}

/// Addresses of the n-th client, from 1.
fn client_addresses(n: u8) -> (Ipv4Addr, Ipv6Addr) {
    (Ipv4Addr::new(198, 18, 2, n), benchmark_v6(2, n.into()))
}

/// Parameters for a load through the balancer.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Balancer {
    /// Method of distributing connections.
    pub mode: BalancerMode,
    /// Virtual addresses, IPv4 then IPv6.
    pub vips: [IpAddr; 2],
    /// Virtual port, TCP and, without haproxy, UDP.
    pub vport: u16,
    /// Side that opens connections.
    pub client: BalancerSide,
    /// Side that answers connections.
    pub server: BalancerSide,
    /// Addresses of each server, IPv4 then IPv6; all are behind the server's port.
    pub backends: Vec<[IpAddr; 2]>,
    /// TCP or UDP port of the servers.
    pub backend_port: u16,
    /// Client addresses that the servers see: those of the clients, or of haproxy. Ranges, IPv4 then IPv6.
    pub seen_by_servers: [String; 2],
    /// Maximum number of connections that the kernel tracks, if it tracks them and the limit can be read.
    /// A setting of the machine, which the lab does not change.
    pub conntrack_max: Option<u64>,
    /// Number of connections that the kernel tracks now.
    pub conntrack_count: Option<u64>,
}

/// One side of the balancer.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct BalancerSide {
    /// Port of the tester, for example `wb-balancer-client/c0`.
    pub port: String,
    /// MAC address of the port.
    pub mac: String,
    /// Addresses that the tester must announce by ARP and neighbour discovery, IPv4 then IPv6: the next hops to
    /// all other addresses.
    pub addresses: Vec<IpAddr>,
    /// Addresses of the device on that side, IPv4 then IPv6.
    pub gateways: Vec<IpAddr>,
    /// MAC address of the device on that side.
    pub gateway_mac: String,
    /// Addresses that open or answer connections, routed to `addresses`. Ranges, IPv4
    /// then IPv6.
    pub ranges: [String; 2],
    /// Number of addresses in each range.
    pub count: usize,
}

impl Balancer {
    /// Description of a lab; `None` for other kinds.
    pub(crate) fn of_lab(lab: &LabState) -> Option<Self> {
        if lab.kind != LabKind::Balancer {
            return None;
        }
        let options = lab.options.balancer.unwrap_or_default();
        let [near, far] = &lab.links[..] else {
            return None;
        };
        let client = BalancerSide::of_ends(&near.a, &near.b, client_addresses, CLIENTS);
        let server =
            BalancerSide::of_ends(&far.b, &far.a, server_addresses, options.backends as u8);
        let seen_by_servers = match options.mode {
            BalancerMode::Dnat => client.ranges.clone(),
            BalancerMode::Haproxy => {
                let [v4, v6] = &server.gateways[..] else {
                    return None;
                };
                [v4.to_string(), v6.to_string()]
            }
        };
        // haproxy's connections are sockets, which are not in the conntrack table.
        let device = (options.mode == BalancerMode::Dnat)
            .then(|| Namespace::named(&far.a.namespace).ok())
            .flatten();
        let number = |key: &str| {
            let key = format!("net/netfilter/nf_conntrack_{key}");
            sysctl::get(device.as_ref()?, &key).ok()?.parse().ok()
        };
        let both = |(v4, v6): (Ipv4Addr, Ipv6Addr)| [v4.into(), v6.into()];
        Some(Self {
            mode: options.mode,
            vips: both(VIRTUAL),
            vport: PORT,
            client,
            server,
            backends: options.all_servers().map(both).collect(),
            backend_port: PORT,
            seen_by_servers,
            conntrack_max: number("max"),
            conntrack_count: number("count"),
        })
    }
}

impl BalancerSide {
    fn of_ends(port: &End, device: &End, nth: fn(u8) -> (Ipv4Addr, Ipv6Addr), count: u8) -> Self {
        Self {
            port: port.locator(),
            mac: port.mac.clone(),
            addresses: port.tester_addresses.clone(),
            gateways: device.gateways(),
            gateway_mac: device.mac.clone(),
            ranges: address_ranges(nth(1), nth(count)),
            count: count.into(),
        }
    }
}

fn address_ranges(first: (Ipv4Addr, Ipv6Addr), last: (Ipv4Addr, Ipv6Addr)) -> [String; 2] {
    if first == last {
        return [first.0.to_string(), first.1.to_string()];
    }
    [
        format!("{}-{}", first.0, last.0),
        format!("{}-{}", first.1, last.1),
    ]
}

/// Starts balancing in the device's node, and returns the balancing process, if there is one.
///
/// # Errors
/// A program that is missing or fails.
pub(crate) fn start(lab: &LabState, device: &Namespace) -> Result<Option<Process>> {
    let options = lab.options.balancer.unwrap_or_default();
    match options.mode {
        BalancerMode::Dnat => nat::apply_rules(options, device).map(|()| None),
        BalancerMode::Haproxy => haproxy::start(lab, options, device).map(Some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LabOptions;

    fn facts(mode: BalancerMode, backends: u32) -> Balancer {
        let options = LabOptions {
            balancer: Some(BalancerOptions { mode, backends }),
            ..LabOptions::default()
        };
        assert!(options.validate(LabKind::Balancer).is_ok());
        Balancer::of_lab(&LabState::planned(LabKind::Balancer, options)).unwrap()
    }

    #[test]
    fn the_balancer_as_documented() {
        let facts = facts(BalancerMode::Dnat, 3);
        assert_eq!(
            facts.vips.map(|a| a.to_string()),
            ["198.18.1.100", "2001:2:0:1::100"]
        );
        assert_eq!(facts.client.port, "wb-balancer-client/c0");
        assert_eq!(facts.server.port, "wb-balancer-server/s0");
        assert_eq!(facts.client.gateways[0].to_string(), "198.18.1.1");
        assert_eq!(facts.server.gateways[1].to_string(), "2001:2:0:8001::1");
        assert_eq!(
            facts.client.ranges,
            ["198.18.2.1-198.18.2.250", "2001:2:0:2::1-2001:2:0:2::fa"]
        );
        assert_eq!(facts.server.ranges[0], "198.19.2.1-198.19.2.3");
        assert_eq!(
            facts.backends[2].map(|a| a.to_string()),
            ["198.19.2.3", "2001:2:0:8002::3"]
        );
        assert_eq!(facts.seen_by_servers, facts.client.ranges);
        assert_ne!(facts.client.gateway_mac, facts.server.gateway_mac);
    }

    #[test]
    fn a_proxy_is_what_servers_see() {
        let facts = facts(BalancerMode::Haproxy, 1);
        assert_eq!(facts.seen_by_servers, ["198.19.1.1", "2001:2:0:8001::1"]);
        assert_eq!(facts.server.ranges, ["198.19.2.1", "2001:2:0:8002::1"]);
    }

    #[test]
    fn what_cannot_be_is_told() {
        let fault = |backends| {
            let mode = BalancerMode::Dnat;
            BalancerOptions { mode, backends }.fault()
        };
        assert!(fault(0).is_some() && fault(251).is_some());
        assert!(fault(1).is_none() && fault(250).is_none());
        let options = LabOptions {
            balancer: Some(BalancerOptions::default()),
            ..LabOptions::default()
        };
        let text = options.validate(LabKind::Router).unwrap_err().to_string();
        assert!(
            text.contains("--mode or --backends works with the lab balancer"),
            "{text}"
        );
    }
}
