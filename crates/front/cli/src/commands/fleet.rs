//! `wirebench fleet`: makes the certificates of a fleet, and lists its agents.

use std::{path::PathBuf, time::Duration};

use anyhow::Result;
use clap::{Args, Subcommand};
use schemars::JsonSchema;
use serde::Serialize;
use wb_fleet::{Fleet, pki};
use wb_render::table::Table;

use crate::{deliver::print, fleet::access, say::say};

/// Make the certificates of a fleet of hosts, and list its agents.
#[derive(Subcommand, Debug)]
#[command(after_help = "Examples:\n  \
    wirebench fleet init lab-fleet 10.0.0.1:4222\n  \
    wirebench fleet add lab-fleet h1\n  \
    wirebench fleet ls --fleet lab-fleet/controller.fleet")]
pub(crate) enum FleetCommand {
    /// Make the authority of a new fleet, the configuration of its broker, and the access file of its controller.
    #[command(after_help = "Example:\n  wirebench fleet init lab-fleet 10.0.0.1:4222")]
    Init(InitArgs),
    /// Add a host: make the access file for its agent.
    #[command(after_help = "Example:\n  wirebench fleet add lab-fleet h1")]
    Add(AddArgs),
    /// List the agents that are there.
    #[command(
        after_help = "Example:\n  wirebench fleet ls --fleet lab-fleet/controller.fleet --json"
    )]
    Ls(ListArgs),
}

#[derive(Args, Debug)]
pub(crate) struct InitArgs {
    /// Folder of the fleet, new or empty. Its files are secret.
    folder: PathBuf,
    /// Addresses of the broker, as the agents reach them.
    #[arg(value_name = "HOST:PORT", required = true)]
    servers: Vec<String>,
}

#[derive(Args, Debug)]
pub(crate) struct AddArgs {
    /// Folder of the fleet.
    folder: PathBuf,
    /// Names of the hosts in plans.
    #[arg(required = true)]
    hosts: Vec<String>,
}

#[derive(Args, Debug)]
pub(crate) struct ListArgs {
    /// Access file of the controller, URL of the broker, or `lab`.
    #[arg(long, value_name = "FLEET")]
    fleet: String,
    /// Print one JSON document.
    #[arg(long)]
    json: bool,
}

/// An agent in the list.
#[derive(Debug, Serialize, JsonSchema)]
struct AgentDocument {
    /// Host of the agent.
    host: String,
    /// Version of its program.
    version: String,
    /// `free`, `draining` or `run ID`.
    state: String,
    /// Names of its ports.
    ports: Vec<String>,
    /// Running tasks for each CPU, if known.
    load: Option<f64>,
}

/// Time in which agents show that they are there.
const LISTEN: Duration = Duration::from_millis(1500);

pub(crate) fn run(command: &FleetCommand) -> Result<u8> {
    match command {
        FleetCommand::Init(args) => {
            let fleet = pki::Fleet::init(&args.folder, &args.servers)?;
            print(&format!(
                "nats-server --config {}\nwirebench fleet add {} HOST",
                fleet.broker_file().display(),
                args.folder.display()
            ));
        }
        FleetCommand::Add(args) => {
            let fleet = pki::Fleet::open(&args.folder)?;
            for host in &args.hosts {
                let path = fleet.add(host)?;
                print(&path.display().to_string());
            }
            say("the broker has to read its configuration again: nats-server --signal reload");
        }
        FleetCommand::Ls(args) => list(args)?,
    }
    Ok(0)
}

fn list(args: &ListArgs) -> Result<()> {
    let fleet = Fleet::join(&access(&args.fleet, pki::CONTROLLER)?)?;
    std::thread::sleep(LISTEN);
    let agents: Vec<AgentDocument> = fleet.agents().into_values().map(describe).collect();
    if args.json {
        print(&serde_json::to_string_pretty(&agents)?);
        return Ok(());
    }
    if agents.is_empty() {
        say("no agent is there");
        return Ok(());
    }
    let mut table = Table::new()
        .left("host")
        .left("version")
        .left("state")
        .left("ports");
    for agent in &agents {
        let ports = agent.ports.join(", ");
        table.row([&agent.host, &agent.version, &agent.state, &ports]);
    }
    print(&table.text(0));
    Ok(())
}

fn describe(agent: wb_fleet::Present) -> AgentDocument {
    let alive = agent.alive.map(|(alive, _)| alive);
    let state = alive
        .as_ref()
        .map(|alive| serde_json::to_value(&alive.state));
    let state = state.and_then(Result::ok);
    AgentDocument {
        host: agent.registration.host,
        version: agent.registration.version,
        state: state
            .and_then(|s| s.as_str().map(str::to_owned))
            .unwrap_or_default(),
        ports: agent
            .registration
            .ports
            .into_iter()
            .map(|port| port.locator)
            .collect(),
        load: alive.and_then(|alive| alive.load),
    }
}
