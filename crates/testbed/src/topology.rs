//! Kinds of labs as data: nodes, links, hardware and IP addresses of each.
//!
//! Pure; `lab` creates the namespaces and links.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::balancer::{self, BalancerOptions};
use crate::filters::Filter;
use crate::fleet::{self, HOSTS};
use crate::impair::ImpairOptions;
use crate::{Result, TestbedError};

/// Device between the ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LabKind {
    /// One or several wires.
    Pair,
    /// The kernel's IPv4 and IPv6 forwarding.
    Router,
    /// A bridge of wirebench with exact delay, loss, duplication, reordering and rate.
    Impair,
    /// The kernel or haproxy, which distributes the connections to one address over several servers.
    Balancer,
    /// Hosts with a test port each, on both sides of the bridge of `Impair`, and a management network.
    Fleet,
}

impl LabKind {
    /// All kinds.
    pub const ALL: [LabKind; 5] = [
        LabKind::Pair,
        LabKind::Router,
        LabKind::Impair,
        LabKind::Balancer,
        LabKind::Fleet,
    ];

    /// Name on the command line, and default name of a lab of this kind.
    pub fn name(self) -> &'static str {
        match self {
            LabKind::Pair => "pair",
            LabKind::Router => "router",
            LabKind::Impair => "impair",
            LabKind::Balancer => "balancer",
            LabKind::Fleet => "fleet",
        }
    }

    /// Nodes, from the near side to the far one. The hosts of a fleet come in addition.
    pub(crate) fn nodes(self) -> &'static [&'static str] {
        match self {
            LabKind::Pair => &["a", "b"],
            LabKind::Router | LabKind::Impair => &["a", "dut", "b"],
            LabKind::Balancer => &["client", "lb", "server"],
            LabKind::Fleet => &["dut", "net"],
        }
    }

    /// First letters of the interface names on either side.
    fn interface_letters(self) -> [&'static str; 2] {
        match self {
            LabKind::Balancer => ["c", "s"],
            _ => ["a", "b"],
        }
    }

    /// Returns true if the kernel forwards between the ports.
    pub(crate) fn is_routed(self) -> bool {
        matches!(self, LabKind::Router | LabKind::Balancer)
    }
}

impl fmt::Display for LabKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for LabKind {
    type Err = TestbedError;

    fn from_str(text: &str) -> Result<Self> {
        LabKind::ALL
            .into_iter()
            .find(|kind| kind.name() == text)
            .ok_or_else(|| {
                let all = LabKind::ALL.map(LabKind::name).join(", ");
                TestbedError::Input(format!(
                    "unknown kind of lab {text}; expected one of: {all}"
                ))
            })
    }
}

/// Receive method of the impairing device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum DeviceDriver {
    /// The best available method.
    #[default]
    Auto,
    /// AF_PACKET ring, which works everywhere.
    Packet,
}

/// Options of a lab.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct LabOptions {
    /// Name; the default is the name of the kind.
    pub name: Option<String>,
    /// `pair`: wires between the two nodes, 1 to 8.
    pub links: u32,
    /// `pair`, `router`, `balancer`: queues of each port, including the device's, 1 to 128.
    pub queues: u32,
    /// Largest IP packet on every link, bytes.
    pub mtu: u32,
    /// `pair`, `router`, `impair`: the outer nodes are hosts, so that their kernels have addresses for
    /// programs with sockets. Offloads stay on if both ends of a wire belong to a kernel.
    pub hosts: bool,
    /// `router`: capacity towards node b, bits per second with the Ethernet header and without FCS.
    pub limit_bps: Option<u64>,
    /// `router`: packets to forward; empty forwards all.
    pub filters: Vec<Filter>,
    /// `impair`, `fleet`: impairments of the device.
    pub impair: Option<ImpairOptions>,
    /// `balancer`: method of distributing connections, and number of servers.
    pub balancer: Option<BalancerOptions>,
    /// `fleet`: number of hosts, 2 to 64; the default is 2.
    pub fleet_hosts: Option<u32>,
    /// `impair`, `fleet`: program that runs as the device, called with `impair-device STATE_FILE`; the default is
    /// this program.
    pub device_program: Option<PathBuf>,
    /// `impair`, `fleet`: receive method of the device.
    pub device_driver: DeviceDriver,
}

impl Default for LabOptions {
    fn default() -> Self {
        Self {
            name: None,
            links: 1,
            queues: 1,
            mtu: 1500,
            hosts: false,
            limit_bps: None,
            filters: Vec::new(),
            impair: None,
            balancer: None,
            fleet_hosts: None,
            device_program: None,
            device_driver: DeviceDriver::Auto,
        }
    }
}

impl LabOptions {
    /// Name of a lab of this kind with these options.
    pub fn name_for(&self, kind: LabKind) -> &str {
        self.name.as_deref().unwrap_or(kind.name())
    }

    /// Checks the options for the kind of lab.
    ///
    /// # Errors
    /// All problems, in one line.
    pub fn validate(&self, kind: LabKind) -> Result<()> {
        let mut wrong = Vec::new();
        if let Some(why) = name_fault(self.name_for(kind)) {
            wrong.push(format!(
                "{:?} is not a valid name for a lab: {why}",
                self.name_for(kind)
            ));
        }
        let mut only_for = |owners: &[LabKind], given: bool, option: &str| {
            if given && !owners.contains(&kind) {
                let owners: Vec<&str> = owners.iter().map(|owner| owner.name()).collect();
                let owners = owners.join(", ");
                wrong.push(format!(
                    "{option} works with the lab {owners}, not with {kind}"
                ));
            }
        };
        let with_queues = [LabKind::Pair, LabKind::Router, LabKind::Balancer];
        only_for(&[LabKind::Pair], self.links != 1, "--links");
        only_for(&with_queues, self.queues != 1, "--queues");
        let with_hosts = [LabKind::Pair, LabKind::Router, LabKind::Impair];
        only_for(&with_hosts, self.hosts, "--hosts without a number");
        only_for(&[LabKind::Router], self.limit_bps.is_some(), "--limit");
        only_for(&[LabKind::Router], !self.filters.is_empty(), "--filters");
        let with_device = [LabKind::Impair, LabKind::Fleet];
        only_for(&with_device, self.impair.is_some(), "an impairment");
        only_for(
            &[LabKind::Fleet],
            self.fleet_hosts.is_some(),
            "--hosts with a number",
        );
        only_for(
            &[LabKind::Balancer],
            self.balancer.is_some(),
            "--mode or --backends",
        );
        if !(1..=8).contains(&self.links) {
            wrong.push(format!(
                "--links: must be between 1 and 8, got {}",
                self.links
            ));
        }
        if !(1..=128).contains(&self.queues) {
            wrong.push(format!(
                "--queues: must be between 1 and 128, got {}",
                self.queues
            ));
        }
        if !(1280..=65_535).contains(&self.mtu) {
            wrong.push(format!(
                "--mtu: must be between 1280 and 65535, got {}",
                self.mtu
            ));
        }
        if let Some(limit) = self.limit_bps
            && !(64_000..=1_000_000_000_000).contains(&limit)
        {
            wrong.push(format!(
                "--limit: must be between 64 kbit/s and 1 Tbit/s, got {limit} bit/s"
            ));
        }
        if let Some(Err(fault)) = self.impair.as_ref().map(ImpairOptions::validate) {
            wrong.push(fault.to_string());
        }
        wrong.extend(self.balancer.and_then(BalancerOptions::fault));
        if let Some(hosts) = self.fleet_hosts
            && !HOSTS.contains(&hosts)
        {
            let (least, most) = (HOSTS.start(), HOSTS.end());
            wrong.push(format!(
                "--hosts: must be between {least} and {most}, got {hosts}"
            ));
        }
        if wrong.is_empty() {
            Ok(())
        } else {
            Err(TestbedError::Input(wrong.join("; ")))
        }
    }
}

fn name_fault(name: &str) -> Option<&'static str> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name.is_empty() {
        Some("it must not be empty")
    } else if name.len() > 64 {
        Some("it must have at most 64 bytes")
    } else if !name.chars().all(allowed) || !name.starts_with(|c: char| c.is_ascii_alphanumeric()) {
        Some(
            "it may contain letters, digits, `-`, `_` and `.`, and must begin with a letter or digit",
        )
    } else {
        None
    }
}

/// A network namespace of a lab.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Node {
    /// `a`, `dut`, `b`; in a balancer lab `client`, `lb`, `server`; in a fleet `h1`, `h2`, …, `dut`, `net`.
    pub node: String,
    /// Name of the namespace for `ip netns`: `wb-pair-a`.
    pub namespace: String,
}

/// One end of a wire.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct End {
    /// Namespace of the end.
    pub namespace: String,
    /// Interface in the namespace.
    pub interface: String,
    /// MAC address of the interface, as text.
    pub mac: String,
    /// Addresses of the kernel, with prefix length; empty if the tester uses the interface alone.
    pub kernel_addresses: Vec<String>,
    /// Default addresses of a tester on this port: one IPv4 and one IPv6 address.
    /// Empty on the device under test.
    pub tester_addresses: Vec<IpAddr>,
}

impl End {
    /// Returns true if this end is a port for the tester.
    pub fn faces_tester(&self) -> bool {
        !self.tester_addresses.is_empty()
    }

    /// The hardware address.
    pub fn mac_bytes(&self) -> [u8; 6] {
        mac_bytes(&self.mac)
    }

    /// Addresses to which frames for other networks go: the kernel's addresses that have a network, IPv4 then
    /// IPv6.
    pub(crate) fn gateways(&self) -> Vec<IpAddr> {
        let with_network = self
            .kernel_addresses
            .iter()
            .filter(|address| !address.ends_with("/32") && !address.ends_with("/128"));
        with_network
            .filter_map(|address| address.split_once('/')?.0.parse().ok())
            .collect()
    }

    /// Locator, for example `wb-pair-a/a0`.
    pub fn locator(&self) -> String {
        format!("{}/{}", self.namespace, self.interface)
    }
}

/// The two ends of a wire.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LinkEnds {
    /// End closer to node a or to the client.
    pub a: End,
    /// Opposite end.
    pub b: End,
}

/// Addresses of the router, towards a and towards b.
pub(crate) const ROUTER_V4: [Ipv4Addr; 2] =
    [Ipv4Addr::new(198, 18, 1, 1), Ipv4Addr::new(198, 19, 1, 1)];
pub(crate) const ROUTER_V6: [Ipv6Addr; 2] = [benchmark_v6(1, 1), benchmark_v6(0x8001, 1)];

/// A network behind a tester.
pub(crate) struct TesterNetwork {
    /// 0 towards a or the client, 1 towards b or the server.
    pub(crate) side: usize,
    pub(crate) network: IpAddr,
    pub(crate) prefix_len: u8,
    /// Tester that is the next hop.
    pub(crate) tester: IpAddr,
}

/// All networks behind the testers on either side of the router.
pub(crate) fn networks_behind() -> [TesterNetwork; 4] {
    let v4 = |side: u8| TesterNetwork {
        side: side.into(),
        network: Ipv4Addr::new(198, 18 + side, 0, 0).into(),
        prefix_len: 16,
        tester: tester_v4(side, 0).into(),
    };
    let v6 = |side: u8| TesterNetwork {
        side: side.into(),
        network: benchmark_v6(u16::from(side) * 0x8000, 0).into(),
        prefix_len: 49,
        tester: tester_v6(side, 0).into(),
    };
    [v4(0), v4(1), v6(0), v6(1)]
}

/// 2001:2::/48 is reserved for benchmarks: RFC 5180 section 8.
pub(crate) const fn benchmark_v6(subnet: u16, host: u16) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 2, 0, subnet, 0, 0, 0, host)
}

/// 198.18.0.0/15 is reserved for benchmarks: RFC 2544 appendix C.2.2. Each link after the first has a separate
/// network.
pub(crate) const fn tester_v4(side: u8, link: u8) -> Ipv4Addr {
    Ipv4Addr::new(198, 18 + side, 1 + link, 2)
}

pub(crate) const fn tester_v6(side: u8, link: u8) -> Ipv6Addr {
    benchmark_v6(side as u16 * 0x8000 + 1 + link as u16, 2)
}

/// A bridge of the kernel in a node of a lab.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bridge {
    /// Namespace of the bridge.
    pub namespace: String,
    /// Interface that is the bridge.
    pub interface: String,
    /// MAC address of the bridge, as text.
    pub mac: String,
    /// Interfaces of the namespace that are its ports.
    pub ports: Vec<String>,
    /// Address of the kernel on the bridge, with prefix length.
    pub address: Option<String>,
}

/// Nodes, wires and bridges of a lab.
pub(crate) struct Topology {
    pub(crate) nodes: Vec<Node>,
    pub(crate) links: Vec<LinkEnds>,
    pub(crate) bridges: Vec<Bridge>,
}

impl Topology {
    pub(crate) fn of_kind(kind: LabKind, options: &LabOptions) -> Self {
        let name = options.name_for(kind);
        if kind == LabKind::Fleet {
            return fleet::topology(name, options.fleet_hosts);
        }
        let nodes = kind
            .nodes()
            .iter()
            .map(|node| Node {
                node: (*node).into(),
                namespace: namespace_name(name, node),
            })
            .collect();
        let tester_end = |name, kind, side, link| {
            let mut end = tester_end(name, kind, side, link);
            if options.hosts {
                end.kernel_addresses = host_addresses(kind, side, link);
            }
            end
        };
        let links = match kind {
            LabKind::Pair => (0..options.links as u8)
                .map(|link| LinkEnds {
                    a: tester_end(name, kind, 0, link),
                    b: tester_end(name, kind, 1, link),
                })
                .collect(),
            _ => vec![
                LinkEnds {
                    a: tester_end(name, kind, 0, 0),
                    b: device_end(name, kind, 0),
                },
                LinkEnds {
                    a: device_end(name, kind, 1),
                    b: tester_end(name, kind, 1, 0),
                },
            ],
        };
        Topology {
            nodes,
            links,
            bridges: Vec::new(),
        }
    }
}

/// Prefix of the name of every lab namespace.
pub(crate) const PREFIX: &str = "wb-";

pub(crate) fn namespace_name(lab: &str, node: &str) -> String {
    format!("{PREFIX}{lab}-{node}")
}

fn tester_end(lab: &str, kind: LabKind, side: u8, link: u8) -> End {
    let nodes = kind.nodes();
    let node = if side == 0 { 0 } else { nodes.len() - 1 };
    End {
        namespace: namespace_name(lab, nodes[node]),
        interface: format!("{}{link}", kind.interface_letters()[usize::from(side)]),
        mac: lab_mac(lab, link * 2 + side),
        kernel_addresses: Vec::new(),
        tester_addresses: vec![tester_v4(side, link).into(), tester_v6(side, link).into()],
    }
}

/// Addresses of a host's kernel. On a wire, all benchmark networks are directly connected; behind a router, only the
/// network of this side. Further links have separate networks, which must not overlap.
fn host_addresses(kind: LabKind, side: u8, link: u8) -> Vec<String> {
    let (v4, v6) = match (kind, link) {
        (LabKind::Pair | LabKind::Impair, 0) => (15, 48),
        _ => (24, 64),
    };
    vec![
        format!("{}/{v4}", tester_v4(side, link)),
        format!("{}/{v6}", tester_v6(side, link)),
        format!("fe80::{:x}/64", 2 + side),
    ]
}

fn device_end(lab: &str, kind: LabKind, side: usize) -> End {
    let mut kernel_addresses = Vec::new();
    if kind.is_routed() {
        kernel_addresses.push(format!("{}/24", ROUTER_V4[side]));
        kernel_addresses.push(format!("{}/64", ROUTER_V6[side]));
    }
    if kind == LabKind::Balancer && side == 0 {
        let (v4, v6) = balancer::VIRTUAL;
        kernel_addresses.extend([format!("{v4}/32"), format!("{v6}/128")]);
    }
    End {
        namespace: namespace_name(lab, kind.nodes()[1]),
        interface: format!("d{}", kind.interface_letters()[side]),
        mac: lab_mac(lab, 0x80 + side as u8),
        kernel_addresses,
        tester_addresses: Vec::new(),
    }
}

/// Bytes of a MAC address that [`lab_mac`] made.
pub(crate) fn mac_bytes(mac: &str) -> [u8; 6] {
    let mut bytes = [0; 6];
    for (byte, text) in bytes.iter_mut().zip(mac.split(':')) {
        *byte = u8::from_str_radix(text, 16).unwrap_or(0);
    }
    bytes
}

/// Locally administered MAC address, fixed for a lab and port, or for a namespace and port. Four bytes depend on the
/// name, so that addresses stay distinct if a user connects two labs.
pub(crate) fn lab_mac(lab: &str, port: u8) -> String {
    // FNV-1a.
    let hash = lab.bytes().fold(0x811c_9dc5_u32, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    });
    let [a, b, c, d] = hash.to_be_bytes();
    format!("02:{a:02x}:{b:02x}:{c:02x}:{d:02x}:{port:02x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pair_as_documented() {
        let options = LabOptions {
            links: 2,
            ..LabOptions::default()
        };
        let pair = Topology::of_kind(LabKind::Pair, &options);
        let ends: Vec<(String, String)> = pair
            .links
            .iter()
            .map(|link| (link.a.locator(), link.b.locator()))
            .collect();
        assert_eq!(
            ends,
            [
                ("wb-pair-a/a0".into(), "wb-pair-b/b0".into()),
                ("wb-pair-a/a1".into(), "wb-pair-b/b1".into())
            ]
        );
        let macs: std::collections::BTreeSet<&str> = pair
            .links
            .iter()
            .flat_map(|l| [l.a.mac.as_str(), l.b.mac.as_str()])
            .collect();
        assert_eq!(macs.len(), 4);
        assert_eq!(
            pair.links[1].b.tester_addresses[0].to_string(),
            "198.19.2.2"
        );
    }

    #[test]
    fn the_router_as_documented() {
        let router = Topology::of_kind(LabKind::Router, &LabOptions::default());
        let [near, far] = &router.links[..] else {
            panic!()
        };
        assert_eq!(
            (near.a.locator(), near.b.locator()),
            ("wb-router-a/a0".into(), "wb-router-dut/da".into())
        );
        assert_eq!(
            (far.a.locator(), far.b.locator()),
            ("wb-router-dut/db".into(), "wb-router-b/b0".into())
        );
        assert_eq!(
            near.b.kernel_addresses,
            ["198.18.1.1/24", "2001:2:0:1::1/64"]
        );
        assert_eq!(
            far.a.kernel_addresses,
            ["198.19.1.1/24", "2001:2:0:8001::1/64"]
        );
        let testers: Vec<String> = [&near.a, &far.b]
            .iter()
            .flat_map(|end| end.tester_addresses.iter().map(ToString::to_string))
            .collect();
        assert_eq!(
            testers,
            [
                "198.18.1.2",
                "2001:2:0:1::2",
                "198.19.1.2",
                "2001:2:0:8001::2"
            ]
        );
        assert!(near.a.faces_tester() && !near.b.faces_tester());
    }

    #[test]
    fn addresses_are_the_same_each_time_and_local() {
        assert_eq!(lab_mac("pair", 0), lab_mac("pair", 0));
        assert_ne!(lab_mac("pair", 0), lab_mac("pair", 1));
        assert_ne!(lab_mac("pair", 0), lab_mac("router", 0));
        let end = tester_end("pair", LabKind::Pair, 0, 0);
        assert_eq!(end.mac_bytes()[0], 2);
        assert_eq!(end.mac_bytes()[5], 0);
    }

    #[test]
    fn all_faults_are_told_at_once() {
        let options = LabOptions {
            name: Some("a/b".into()),
            links: 9,
            limit_bps: Some(1),
            ..LabOptions::default()
        };
        let text = options.validate(LabKind::Pair).unwrap_err().to_string();
        for part in [
            "name for a lab",
            "--limit works with the lab router",
            "--links: must be between 1 and 8, got 9",
            "got 1 bit/s",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(LabOptions::default().validate(LabKind::Router).is_ok());
        assert!(
            "wire"
                .parse::<LabKind>()
                .unwrap_err()
                .to_string()
                .contains("pair, router, impair, balancer, fleet")
        );
    }
}
