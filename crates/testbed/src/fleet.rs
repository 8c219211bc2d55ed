//! Lab `fleet`: hosts with a test port each, and a management network with a broker.
//!
//! ```text
//! h1/t0 ─┐                                        ┌─ h2/t0
//! h3/t0 ─┼─ bridge odd ── impairing device ── bridge even ─┼─ h4/t0     namespace dut
//! h5/t0 ─┘                                        └─ h6/t0
//!
//! h1/m0, h2/m0, … ── bridge mgmt with the broker's address              namespace net
//! ```
//!
//! Knows addresses and wires, but not what runs in the nodes: the lab's maker names those programs.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Serialize;

use crate::topology::{Bridge, Topology, lab_mac, namespace_name, tester_v4, tester_v6};
use crate::{End, LabKind, LabState, LinkEnds, Node, state};

/// Number of hosts.
pub(crate) const HOSTS: RangeInclusive<u32> = 2..=64;
/// Number of hosts unless the options name one.
const DEFAULT_HOSTS: u32 = 2;
/// Address of the broker. Link-local addresses (RFC 3927) are never routed, and no test traffic uses them.
const BROKER: Ipv4Addr = Ipv4Addr::new(169, 254, 1, 100);
/// TCP port of the broker, as registered for NATS.
const BROKER_PORT: u16 = 4222;
/// File of the controller in the folder of a fleet.
const CONTROLLER_FILE: &str = "controller.fleet";
/// Port of the tester in each host.
const TEST_PORT: &str = "t0";

/// Hosts of a fleet and the place of its broker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Fleet {
    /// Hosts, in their order.
    pub hosts: Vec<FleetHost>,
    /// Address and port at which the hosts reach the broker.
    pub broker: SocketAddr,
    /// Namespace in which the broker runs.
    pub broker_namespace: String,
    /// Access file of the controller, once it exists.
    pub access: Option<PathBuf>,
}

/// A host of a fleet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct FleetHost {
    /// Name of the host: `h1`.
    pub name: String,
    /// Namespace that is the host.
    pub namespace: String,
    /// Test port in the namespace: `t0`.
    pub port: String,
    /// MAC address of the test port, as text.
    pub mac: String,
    /// Addresses of the tester at the test port, IPv4 then IPv6.
    pub tester_addresses: Vec<IpAddr>,
    /// Address of the host in the management network.
    pub management: IpAddr,
}

impl Fleet {
    /// Description of a lab; `None` for other kinds.
    pub fn of_lab(lab: &LabState) -> Option<Self> {
        if lab.kind != LabKind::Fleet {
            return None;
        }
        let ends = || lab.links.iter().flat_map(|link| [&link.a, &link.b]);
        let host = |(number, end): (usize, &End)| FleetHost {
            name: host_name(number + 1),
            namespace: end.namespace.clone(),
            port: end.interface.clone(),
            mac: end.mac.clone(),
            tester_addresses: end.tester_addresses.clone(),
            management: management_address(number + 1).into(),
        };
        let network = lab.nodes.iter().find(|node| node.node == "net")?;
        let access = state::path_of(&lab.name)
            .map(|file| state::fleet_path(&file).join(CONTROLLER_FILE))
            .ok();
        Some(Self {
            hosts: ends()
                .filter(|end| end.faces_tester())
                .enumerate()
                .map(host)
                .collect(),
            broker: (BROKER, BROKER_PORT).into(),
            broker_namespace: network.namespace.clone(),
            access: access.filter(|file| file.is_file()),
        })
    }
}

/// Access file of the controller of the lab `name`, if it is a fleet with a broker.
pub fn fleet_access(name: &str) -> Option<PathBuf> {
    Fleet::of_lab(&LabState::load(name).ok()?)?.access
}

fn host_name(number: usize) -> String {
    format!("h{number}")
}

/// Address of the n-th host in the management network, from 1.
fn management_address(number: usize) -> Ipv4Addr {
    Ipv4Addr::new(169, 254, 1, number as u8)
}

/// The host to which the n-th one of `hosts` sends by default, on the other side of the device; from 1.
fn partner(number: usize, hosts: usize) -> usize {
    match number % 2 {
        0 => number - 1,
        _ if number < hosts => number + 1,
        _ => number - 1,
    }
}

/// End of the lab to which frames from the tester's port `own` go by default.
pub(crate) fn partner_of<'a>(links: &'a [LinkEnds], own: &End) -> Option<&'a End> {
    let ends: Vec<&End> = links
        .iter()
        .map(|link| &link.a)
        .filter(|end| end.faces_tester())
        .collect();
    let number = 1 + ends.iter().position(|end| *end == own)?;
    Some(ends[partner(number, ends.len()) - 1])
}

/// Nodes, wires and bridges of a fleet. The first two wires are those of the impairing device.
pub(crate) fn topology(lab: &str, hosts: Option<u32>) -> Topology {
    let hosts = hosts.unwrap_or(DEFAULT_HOSTS) as usize;
    let names = (1..=hosts).map(host_name);
    let nodes = names
        .chain(LabKind::Fleet.nodes().iter().map(|name| (*name).to_owned()))
        .map(|node| Node {
            namespace: namespace_name(lab, &node),
            node,
        });
    let end = |node: &str, interface: String, number: u8| End {
        namespace: namespace_name(lab, node),
        mac: lab_mac(&namespace_name(lab, node), number),
        interface,
        kernel_addresses: Vec::new(),
        tester_addresses: Vec::new(),
    };
    let device = |interface: &str, number| end("dut", interface.to_owned(), number);
    let mut links = vec![
        LinkEnds {
            a: device("bo", 0x80),
            b: device("do", 0x81),
        },
        LinkEnds {
            a: device("de", 0x82),
            b: device("be", 0x83),
        },
    ];
    for number in 1..=hosts {
        let (side, link) = ((number as u8 - 1) % 2, (number as u8 - 1) / 2);
        let mut port = end(&host_name(number), TEST_PORT.to_owned(), 0);
        port.tester_addresses = vec![tester_v4(side, link).into(), tester_v6(side, link).into()];
        links.push(LinkEnds {
            a: port,
            b: end("dut", format!("p{number}"), number as u8),
        });
    }
    for number in 1..=hosts {
        let mut port = end(&host_name(number), "m0".to_owned(), 1);
        port.kernel_addresses = vec![format!("{}/24", management_address(number))];
        links.push(LinkEnds {
            a: port,
            b: end("net", format!("m{number}"), number as u8),
        });
    }
    let bridge = |node: &str, interface: &str, mac, ports, address| Bridge {
        namespace: namespace_name(lab, node),
        interface: interface.to_owned(),
        mac: lab_mac(&namespace_name(lab, node), mac),
        ports,
        address,
    };
    let ports = |first: usize, step, letter: &str, device: Option<&str>| {
        let of_hosts = (first..=hosts).step_by(step);
        let of_hosts = of_hosts.map(|number| format!("{letter}{number}"));
        of_hosts.chain(device.map(str::to_owned)).collect()
    };
    let broker = Some(format!("{BROKER}/24"));
    Topology {
        nodes: nodes.collect(),
        links,
        bridges: vec![
            bridge("dut", "odd", 0x90, ports(1, 2, "p", Some("bo")), None),
            bridge("dut", "even", 0x91, ports(2, 2, "p", Some("be")), None),
            bridge("net", "mgmt", 0x92, ports(1, 1, "m", None), broker),
        ],
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::LabOptions;

    fn lab(hosts: Option<u32>) -> LabState {
        let options = LabOptions {
            fleet_hosts: hosts,
            ..LabOptions::default()
        };
        assert!(options.validate(LabKind::Fleet).is_ok());
        LabState::planned(LabKind::Fleet, options)
    }

    #[test]
    fn the_fleet_as_documented() {
        let lab = lab(Some(3));
        let nodes: Vec<&str> = lab.nodes.iter().map(|node| node.node.as_str()).collect();
        assert_eq!(nodes, ["h1", "h2", "h3", "dut", "net"]);
        let fleet = Fleet::of_lab(&lab).unwrap();
        let hosts: Vec<String> = fleet
            .hosts
            .iter()
            .map(|host| {
                let [v4, v6] = &host.tester_addresses[..] else {
                    panic!()
                };
                format!(
                    "{} {}/{} {v4} {v6} {}",
                    host.name, host.namespace, host.port, host.management
                )
            })
            .collect();
        assert_eq!(
            hosts,
            [
                "h1 wb-fleet-h1/t0 198.18.1.2 2001:2:0:1::2 169.254.1.1",
                "h2 wb-fleet-h2/t0 198.19.1.2 2001:2:0:8001::2 169.254.1.2",
                "h3 wb-fleet-h3/t0 198.18.2.2 2001:2:0:2::2 169.254.1.3",
            ]
        );
        assert_eq!(fleet.broker.to_string(), "169.254.1.100:4222");
        assert_eq!(fleet.broker_namespace, "wb-fleet-net");
        let bridges: Vec<String> = lab
            .bridges
            .iter()
            .map(|bridge| format!("{} {}", bridge.interface, bridge.ports.join(" ")))
            .collect();
        assert_eq!(bridges, ["odd p1 p3 bo", "even p2 be", "mgmt m1 m2 m3"]);
        let device = [&lab.links[0].b, &lab.links[1].a].map(End::locator);
        assert_eq!(device, ["wb-fleet-dut/do", "wb-fleet-dut/de"]);
    }

    #[test]
    fn ends_are_distinct_and_in_nodes_of_the_lab_up_to_the_largest_fleet() {
        let lab = lab(Some(*HOSTS.end()));
        let ends = || lab.links.iter().flat_map(|link| [&link.a, &link.b]);
        let count = 4 * 64 + 4;
        assert_eq!(ends().count(), count);
        assert_eq!(
            ends().map(End::locator).collect::<BTreeSet<_>>().len(),
            count
        );
        let macs = ends().map(|end| &end.mac);
        let macs: BTreeSet<_> = macs
            .chain(lab.bridges.iter().map(|bridge| &bridge.mac))
            .collect();
        assert_eq!(macs.len(), count + 3);
        let addresses = ends().flat_map(|end| &end.tester_addresses);
        assert_eq!(addresses.collect::<BTreeSet<_>>().len(), 2 * 64);
        assert!(ends().all(|end| lab.nodes.iter().any(|node| node.namespace == end.namespace)));
        let locators: BTreeSet<String> = ends().map(End::locator).collect();
        for bridge in &lab.bridges {
            for port in &bridge.ports {
                let locator = format!("{}/{port}", bridge.namespace);
                assert!(locators.contains(&locator), "{locator}");
            }
        }
        let hosts = Fleet::of_lab(&lab).unwrap().hosts;
        assert_eq!(hosts[63].management.to_string(), "169.254.1.64");
    }

    #[test]
    fn two_hosts_unless_a_number_is_given() {
        assert_eq!(Fleet::of_lab(&lab(None)).unwrap().hosts.len(), 2);
        for wrong in [0, 1, 65] {
            let options = LabOptions {
                fleet_hosts: Some(wrong),
                ..LabOptions::default()
            };
            let text = options.validate(LabKind::Fleet).unwrap_err().to_string();
            let expected = format!("--hosts: must be between 2 and 64, got {wrong}");
            assert_eq!(text, expected);
        }
        let pair = LabState::planned(LabKind::Pair, LabOptions::default());
        assert_eq!(Fleet::of_lab(&pair), None);
    }

    #[test]
    fn partners_are_on_different_sides() {
        for hosts in 2..=9 {
            for number in 1..=hosts {
                let other = partner(number, hosts);
                assert!((1..=hosts).contains(&other));
                assert_eq!((number + other) % 2, 1, "{number} of {hosts}");
            }
        }
        assert_eq!([1, 2, 3].map(|number| partner(number, 3)), [2, 1, 2]);
    }
}
