//! Description of a fleet: hosts, broker and agents.

use std::{io, path::Path};

use wb_render::table::Table;
use wb_testbed::{Daemon, DaemonStatus, Fleet, LabState, LabStatus};

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

/// Without fleets, the hosts of a lab have no programs.
#[cfg(not(feature = "fleet"))]
pub(super) fn programs(_: &LabState, _: &Path) -> io::Result<Vec<Vec<Daemon>>> {
    Ok(Vec::new())
}

/// Programs of a fleet: the broker, then an agent on each host.
#[cfg(feature = "fleet")]
pub(super) fn programs(lab: &LabState, folder: &Path) -> io::Result<Vec<Vec<Daemon>>> {
    let Some(fleet) = Fleet::of_lab(lab) else {
        return Ok(Vec::new());
    };
    let nats = wb_testbed::find_program("nats-server", "nats-server");
    let nats = nats.map_err(io::Error::other)?;
    let access = wb_fleet::pki::Fleet::init(folder, &[fleet.broker.to_string()])?;
    access.place_broker(&fleet.broker_namespace)?;
    let program = std::env::current_exe()?;
    let agent = |(index, host): (usize, &wb_testbed::FleetHost)| {
        let file = access.add(&host.name)?;
        let side = ["odd", "even"][index % 2];
        let words = ["agent".into(), "--fleet".into(), file.into_os_string()];
        let state = folder.join(format!("{}.state", host.name));
        let more = [
            "--ports".into(),
            host.port.clone().into(),
            "--state".into(),
            state.into_os_string(),
            "--label".into(),
            format!("side={side}").into(),
        ];
        Ok(Daemon {
            name: host.name.clone(),
            namespace: host.namespace.clone(),
            program: program.clone(),
            arguments: words.into_iter().chain(more).collect(),
            log: folder.join(format!("{}.log", host.name)),
            ready: wb_testbed::Ready::Prints(" is ready: "),
        })
    };
    let agents = fleet
        .hosts
        .iter()
        .enumerate()
        .map(agent)
        .collect::<io::Result<Vec<_>>>()?;
    let broker = Daemon {
        name: BROKER.to_owned(),
        namespace: fleet.broker_namespace.clone(),
        program: nats,
        arguments: vec!["--config".into(), access.broker_file().into_os_string()],
        log: folder.join("broker.log"),
        ready: wb_testbed::Ready::Prints("Server is ready"),
    };
    Ok(vec![vec![broker], agents])
}
