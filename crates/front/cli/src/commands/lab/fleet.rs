//! Description of a fleet: hosts, broker and agents.

use wb_render::table::Table;
use wb_testbed::{DaemonStatus, Fleet, LabStatus};

/// Name of the program that is the broker.
pub(super) const BROKER: &str = "broker";

/// Returns the hosts with their agents, and the broker.
pub(super) fn describe(lab: &LabStatus, fleet: &Fleet) -> String {
    let has_agents = !lab.daemons.is_empty();
    let mut hosts = Table::new()
        .left("host")
        .left("port")
        .left("MAC")
        .left("addresses of the tester")
        .left("management");
    if has_agents {
        hosts = hosts.left("agent");
    }
    for host in &fleet.hosts {
        let addresses = host.tester_addresses.iter().map(ToString::to_string);
        let mut row = vec![
            host.name.clone(),
            format!("{}/{}", host.namespace, host.port),
            host.mac.clone(),
            addresses.collect::<Vec<_>>().join(" "),
            host.management.to_string(),
        ];
        if has_agents {
            row.push(program(lab, &host.name));
        }
        hosts.row(row);
    }
    let mut text = hosts.text(2);
    if has_agents {
        text.push_str(&format!(
            "  broker: tls://{} in namespace {}, {}\n",
            fleet.broker,
            fleet.broker_namespace,
            program(lab, BROKER)
        ));
    }
    if let Some(access) = &fleet.access {
        text.push_str(&format!("  access of a controller: {}\n", access.display()));
    }
    text
}

/// Returns the state of a program of the lab.
fn program(lab: &LabStatus, name: &str) -> String {
    let is_asked = |daemon: &&DaemonStatus| daemon.daemon.name == name;
    match lab.daemons.iter().find(is_asked) {
        Some(DaemonStatus {
            daemon,
            alive: true,
        }) => format!("process {}", daemon.process.pid),
        Some(DaemonStatus { daemon, .. }) => format!("ended (process {})", daemon.process.pid),
        None => "none".to_owned(),
    }
}
