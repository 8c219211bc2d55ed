//! Description of the balancer, with the options for a load through it.

use wb_render::{figures, table::Table};
use wb_testbed::{Balancer, BalancerMode};

/// Returns the text on addresses, the needs of each side, and the device's counters.
pub(super) fn describe(lab: &str, balancer: &Balancer) -> String {
    let Balancer { vips, vport, .. } = balancer;
    let device = match balancer.mode {
        BalancerMode::Dnat => "NAT in the kernel (nftables), TCP and UDP",
        BalancerMode::Haproxy => "haproxy, TCP",
    };
    let mut text = format!(
        "  virtual: {} port {vport}, IPv6 {}: {device}\n",
        vips[0], vips[1]
    );
    let mut sides = Table::new()
        .left("side")
        .left("own address")
        .left("gateway")
        .left("MAC of gateway")
        .left("clients or backends");
    for (name, side) in [("client", &balancer.client), ("server", &balancer.server)] {
        for (family, range) in side.ranges.iter().enumerate() {
            let address = |list: &[std::net::IpAddr]| {
                list.get(family)
                    .map(ToString::to_string)
                    .unwrap_or_default()
            };
            sides.row([
                if family == 0 { name } else { "" }.to_owned(),
                address(&side.addresses),
                address(&side.gateways),
                side.gateway_mac.clone(),
                range.clone(),
            ]);
        }
    }
    text.push_str(&sides.text(2));
    text.push_str(&format!(
        "  client address seen by the servers: {}, IPv6 {}\n",
        balancer.seen_by_servers[0], balancer.seen_by_servers[1]
    ));
    text.push_str(&hints(balancer));
    text.push_str(&counters(lab, balancer));
    text
}

/// Returns the command for a load through the device with both ends.
fn hints(balancer: &Balancer) -> String {
    let first =
        |list: &[std::net::IpAddr]| list.first().map(ToString::to_string).unwrap_or_default();
    let (client, server) = (&balancer.client, &balancer.server);
    format!(
        "  try: wirebench load --client {} --client-address {} --gateway {} --clients {} --servers {} --server-ports {} \\\n         \
         --server {} --server-address {} --server-gateway {} --backends {} --backend-ports {} --cps 1k --duration 5s\n",
        client.port,
        first(&client.addresses),
        first(&client.gateways),
        client.ranges[0],
        balancer.vips[0],
        balancer.vport,
        server.port,
        first(&server.addresses),
        first(&server.gateways),
        server.ranges[0],
        balancer.backend_port,
    )
}

/// Returns the command that shows the device's counters.
fn counters(lab: &str, balancer: &Balancer) -> String {
    let command = match balancer.mode {
        BalancerMode::Dnat => "nft list table inet balancer",
        BalancerMode::Haproxy => "curl -s 'http://127.0.0.1:8404/;csv'",
    };
    let mut text = format!("  counters of the device: wirebench lab exec wb-{lab}-lb {command}\n");
    if let (BalancerMode::Dnat, Some(most), Some(now)) = (
        balancer.mode,
        balancer.conntrack_max,
        balancer.conntrack_count,
    ) {
        text.push_str(&format!(
            "  tracked connections: {} of {} (net.netfilter.nf_conntrack_max of the host)\n",
            figures::count(now),
            figures::count(most)
        ));
    }
    text
}
