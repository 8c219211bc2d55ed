//! Benchmark plan for a running lab of kind `balancer`.

use std::net::IpAddr;

use anyhow::{Context, Result, bail};
use wb_model::{
    bench::{Count, LbDevice, LbMetric, LbPlan, LbSide, LbTest, LbTimes, ProbeKind, ProbePlan},
    units::{AddressRange, PortRange, Span},
};
use wb_testbed::{Balancer, BalancerMode, BalancerSide};

/// Index of IPv4 among the two address families.
const FAMILY: usize = 0;

/// Returns the plan for the lab with this name.
pub(super) fn plan(name: &str) -> Result<LbPlan> {
    let labs = wb_testbed::list_labs()?.labs;
    let Some(lab) = labs.iter().find(|lab| lab.name == name) else {
        bail!("no lab {name}; create it with `wirebench lab up balancer --as {name}`");
    };
    let Some(balancer) = &lab.balancer else {
        bail!("lab {name} is not a balancer; create one with `wirebench lab up balancer`");
    };
    let node = format!("wb-{name}-lb");
    let wires: Vec<String> = lab
        .links
        .iter()
        .flat_map(|link| [&link.a, &link.b])
        .filter(|end| end.namespace == node)
        .map(|end| end.interface.clone())
        .collect();
    of(balancer, &node, &wires)
}

fn of(balancer: &Balancer, node: &str, wires: &[String]) -> Result<LbPlan> {
    let proxy = balancer.mode == BalancerMode::Haproxy;
    let mut server = side(&balancer.server)?;
    server.ports = Some(PortRange::single(balancer.backend_port));
    server.peers = vec![range(&balancer.seen_by_servers[FAMILY])?];
    // A proxy handles TCP only.
    let mut tests = match proxy {
        true => vec![LbTest::new(LbMetric::Cps), LbTest::new(LbMetric::Cc)],
        false => LbMetric::ALL.map(LbTest::new).to_vec(),
    };
    for test in tests.iter_mut().filter(|t| t.metric == LbMetric::Cc) {
        // High enough to fill the connection table of the kernel.
        test.max = balancer.conntrack_max.map(|most| Count(most + most / 10));
    }
    let mut probes = vec![counters(balancer, node)];
    if !proxy {
        probes.push(ProbePlan {
            node: Some(node.to_owned()),
            ..of_kind(ProbeKind::Conntrack)
        });
    }
    probes.push(ProbePlan {
        node: Some(node.to_owned()),
        interfaces: wires.to_vec(),
        ..of_kind(ProbeKind::Netdev)
    });
    Ok(LbPlan {
        client: side(&balancer.client)?,
        server,
        device: LbDevice {
            name: node.to_owned(),
            service: vec![AddressRange::single(balancer.vips[FAMILY])],
            ports: PortRange::single(balancer.vport),
            state_timeout: Span::from_secs(1),
            every: Span::from_millis(500),
            must_not_rise: Vec::new(),
            probes,
        },
        times: LbTimes::default(),
        tests,
    })
}

fn of_kind(kind: ProbeKind) -> ProbePlan {
    ProbePlan {
        kind,
        // A busy machine may need seconds to run a command.
        timeout: Span::from_secs(10),
        ..ProbePlan::default()
    }
}

/// Probe that reads the connection counters of the balancer.
fn counters(balancer: &Balancer, node: &str) -> ProbePlan {
    let (name, command, counters): (_, _, &[(&str, &str)]) = match balancer.mode {
        BalancerMode::Dnat => (
            "nft",
            "nft list table inet balancer",
            &[
                // A chain of type nat sees only the first packet of each connection.
                ("connections", r"dport \d+ counter packets (\d+)"),
                ("invalid_drops", r"ct state invalid counter packets (\d+)"),
            ],
        ),
        BalancerMode::Haproxy => (
            "haproxy",
            "curl -s 'http://127.0.0.1:8404/;csv'",
            // Column stot of the frontend lines.
            &[("connections", r"^vip[^,]*,FRONTEND,(?:[^,]*,){5}(\d+),")],
        ),
    };
    ProbePlan {
        name: name.to_owned(),
        node: Some(node.to_owned()),
        command: Some(command.to_owned()),
        counters: counters
            .iter()
            .map(|(name, pattern)| ((*name).to_owned(), (*pattern).to_owned()))
            .collect(),
        ..of_kind(ProbeKind::Command)
    }
}

fn side(side: &BalancerSide) -> Result<LbSide> {
    let own = side.addresses.get(FAMILY).copied();
    Ok(LbSide {
        port: side.port.parse().context("port of the lab")?,
        workers: 1,
        cpus: Vec::new(),
        addresses: own.map(AddressRange::single).into_iter().collect(),
        gateway: side.gateways.get(FAMILY).copied().filter(IpAddr::is_ipv4),
        hosts: vec![range(&side.ranges[FAMILY])?],
        ports: None,
        peers: Vec::new(),
    })
}

fn range(text: &str) -> Result<AddressRange> {
    text.parse().context("addresses of the lab")
}
