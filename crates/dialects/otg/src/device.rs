//! Emulated devices: Ethernet interfaces with IPv4 and IPv6 addresses.

use std::net::IpAddr;

use wb_model::units::Mac;

use crate::{config::Names, reader::Node};

/// Alternatives of the connection of an Ethernet interface.
pub(crate) const CONNECTIONS: [&str; 4] = ["port_name", "lag_name", "vxlan_name", "simulated_link"];

/// Ethernet interface of a device at a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceEthernet {
    /// Name.
    pub name: String,
    /// Name of the port.
    pub port: String,
    /// Hardware address.
    pub mac: [u8; 6],
    /// Addresses, IPv4 before IPv6.
    pub addresses: Vec<DeviceAddress>,
}

/// IP address of a device, with its gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceAddress {
    /// Name.
    pub name: String,
    /// Address.
    pub address: IpAddr,
    /// Gateway.
    pub gateway: IpAddr,
    /// Hardware address of the gateway, if it is given.
    pub gateway_mac: Option<[u8; 6]>,
}

/// Reads the devices of a configuration.
pub(crate) fn read_devices(root: &mut Node<'_>, names: &mut Names) -> Vec<DeviceEthernet> {
    let mut ethernets = Vec::new();
    for mut device in root.nodes("devices") {
        names.declare(&mut device, "device");
        for mut node in device.nodes("ethernets") {
            let name = names.declare(&mut node, "ethernet");
            let mut connection = node.node_or_empty("connection");
            let choice = connection.choice(&CONNECTIONS, "port_name");
            let port = connection.text(&choice).unwrap_or_default();
            match choice.as_str() {
                "port_name" => names.refer(connection.at("port_name"), "port", &port),
                other => connection.unsupported(other, ""),
            }
            connection.end();
            let mac = mac(&mut node, "mac").unwrap_or_default();
            node.number_in("mtu", 68..=65_535_u32, 1500);
            for vlan in node.list("vlans") {
                node.problems.unsupported(vlan.0, "");
            }
            let mut addresses = Vec::new();
            for (key, is_ipv6) in [("ipv4_addresses", false), ("ipv6_addresses", true)] {
                for address in node.nodes(key) {
                    addresses.extend(read_address(address, names, is_ipv6));
                }
            }
            node.end();
            ethernets.push(DeviceEthernet {
                name,
                port,
                mac,
                addresses,
            });
        }
        device.end();
    }
    ethernets
}

fn read_address(mut node: Node<'_>, names: &mut Names, is_ipv6: bool) -> Option<DeviceAddress> {
    let name = names.declare(&mut node, "address");
    let mut ip = |key: &str| {
        let text = node.name(key);
        let parsed: Option<IpAddr> = text.parse().ok();
        let fits = parsed.filter(|address| address.is_ipv6() == is_ipv6);
        if fits.is_none() && !text.is_empty() {
            let version = if is_ipv6 { "IPv6" } else { "IPv4" };
            node.problem(key, format!("must be an {version} address, got {text:?}"));
        }
        fits
    };
    let (address, gateway) = (ip("address"), ip("gateway"));
    let (most, default) = if is_ipv6 { (128_u32, 64) } else { (32, 24) };
    node.number_in("prefix", 1..=most, default);
    let mut gateway_mac = None;
    if let Some(mut given) = node.node("gateway_mac") {
        if given.choice(&["auto", "value"], "auto") == "value" {
            gateway_mac = mac(&mut given, "value");
        }
        given.take("auto");
        given.end();
    }
    node.end();
    Some(DeviceAddress {
        name,
        address: address?,
        gateway: gateway?,
        gateway_mac,
    })
}

fn mac(node: &mut Node<'_>, key: &str) -> Option<[u8; 6]> {
    let text = node.name(key);
    let mac: Option<Mac> = text.parse().ok();
    if mac.is_none() && !text.is_empty() {
        node.problem(key, format!("must be a MAC address, got {text:?}"));
    }
    mac.map(|mac| mac.0)
}
