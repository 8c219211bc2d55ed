//! Registration of an agent: facts about its host.

use wb_fleet_core::message::{PROTOCOL, RegisteredPort, Registration};
use wb_machine::{Ethtool, Netlink, netns::Namespace};
use wb_model::plan::PLAN_SCHEMA;

use crate::{
    agent::{AgentOptions, powers},
    clocks,
};

/// Registration of an agent with the interfaces of its network namespace. `clock_port` is the UDP port that answers clock
/// exchanges, if it is open.
pub(crate) fn registration(
    options: &AgentOptions,
    id: &str,
    clock_port: Option<u16>,
) -> Registration {
    let machine = wb_machine::machine::identity();
    Registration {
        host: options.access.name.clone(),
        id: id.to_owned(),
        version: options
            .version
            .clone()
            .unwrap_or_else(|| env!("CARGO_PKG_VERSION").to_owned()),
        protocol: options.protocol.unwrap_or(PROTOCOL),
        plan_schemas: vec![PLAN_SCHEMA.to_owned()],
        powers: powers(&options.grants),
        cpus: machine.cpus,
        memory_bytes: machine.memory_bytes,
        kernel: machine.kernel,
        // In a test, the agent has another clock.
        boot: match wb_machine::clock::test_offset_ns() {
            0 => wb_machine::machine::boot_id(),
            _ => String::new(),
        },
        udp: clock_port.map_or_else(Vec::new, |port| {
            clocks::addresses(&options.access.servers, port)
        }),
        ports: ports(options),
        labels: options.labels.clone(),
        ..Registration::default()
    }
}

/// `3 ports: eth1, eth2, eth3`.
pub(crate) fn summary(registration: &Registration) -> String {
    let names: Vec<&str> = registration
        .ports
        .iter()
        .map(|port| port.locator.as_str())
        .collect();
    match names.as_slice() {
        [] => "no ports".to_owned(),
        [only] => format!("port {only}"),
        all => format!("{} ports: {}", all.len(), all.join(", ")),
    }
}

/// The interfaces that an agent offers.
pub(crate) fn ports(options: &AgentOptions) -> Vec<RegisteredPort> {
    let Ok(namespace) = Namespace::current() else {
        return Vec::new();
    };
    let links = Netlink::open(&namespace).and_then(|netlink| netlink.links());
    let ethtool = Ethtool::open(&namespace).ok();
    let links = links.unwrap_or_default().into_iter();
    let offered = links.filter(|link| link.ethernet && options.offers(&link.name));
    let port = |link: wb_machine::Link| {
        let speed = ethtool
            .as_ref()
            .and_then(|e| e.speed(&link.name).ok().flatten());
        RegisteredPort {
            speed_bps: speed.filter(|s| !s.nominal).map(|s| s.bits_per_second),
            up: link.up,
            locator: link.name,
            ..RegisteredPort::default()
        }
    };
    offered.map(port).collect()
}

impl AgentOptions {
    /// Returns true if plans may use a port.
    pub(crate) fn offers(&self, port: &str) -> bool {
        self.ports.is_empty() || self.ports.iter().any(|glob| wb_runs::matches(glob, port))
    }
}
