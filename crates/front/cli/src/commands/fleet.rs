//! `wirebench fleet`: makes the certificates of a fleet, lists its agents, and makes the reports of its runs.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::{Result, bail};
use clap::{Args, Subcommand};
use wb_fleet::{FleetCarrier, FleetSettings, Present, local, pki};
use wb_model::fleet::Agent;
use wb_render::table::Table;
use wb_session::{Carrier as _, Environment, Finished, Signals, View};

use crate::{
    deliver::{deliver, deliver_document, print, text_options},
    fleet::{LOCAL, join},
    say::say,
};

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
    /// Make the report of a run from the results that its hosts delivered, if the command that began it was killed. A run
    /// that has not ended is continued.
    #[command(
        after_help = "Example:\n  wirebench fleet report --fleet lab-fleet/controller.fleet --json > run.json"
    )]
    Report(ReportArgs),
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
    /// Folder of the fleet, or `local` for the fleet of this host.
    folder: PathBuf,
    /// Names of the hosts in plans.
    #[arg(required = true)]
    hosts: Vec<String>,
}

#[derive(Args, Debug)]
pub(crate) struct ListArgs {
    /// Access file of the controller, URL of the broker, `local` or `lab`.
    #[arg(long, value_name = "FLEET")]
    fleet: String,
    /// Print one JSON document.
    #[arg(long)]
    json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct ReportArgs {
    /// Access file of the controller, URL of the broker, `local` or `lab`.
    #[arg(long, value_name = "FLEET")]
    fleet: String,
    /// Name of the run [default: the last one].
    #[arg(value_name = "RUN")]
    run: Option<String>,
    /// Print the report as one JSON document.
    #[arg(long)]
    json: bool,
}

/// Time in which agents show that they are there.
const LISTEN: Duration = Duration::from_secs(1);

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
            let fleet = match args.folder.to_str() {
                Some("local") => local::open(Path::new(LOCAL))?,
                _ => pki::Fleet::open(&args.folder)?,
            };
            for host in &args.hosts {
                let path = fleet.add(host)?;
                print(&path.display().to_string());
            }
            if !fleet.reload_broker() {
                say(
                    "a broker that runs elsewhere has to read its configuration again: nats-server --signal reload",
                );
            }
        }
        FleetCommand::Ls(args) => list(args)?,
        FleetCommand::Report(args) => return report(args),
    }
    Ok(0)
}

fn report(args: &ReportArgs) -> Result<u8> {
    let signals = Signals::install()?;
    let fleet = Arc::new(join(&args.fleet)?);
    let carrier = FleetCarrier::new(fleet, FleetSettings::default());
    let runs = carrier.runs().map_err(anyhow::Error::msg)?;
    let run = match &args.run {
        Some(run) => runs.iter().find(|known| *known == run),
        None => runs.last(),
    };
    let Some(run) = run else {
        let wanted = args.run.as_deref();
        let wanted = wanted.map_or_else(|| "no run".to_owned(), |run| format!("no run {run}"));
        let known: Vec<&str> = runs.iter().rev().take(5).map(String::as_str).collect();
        match known.is_empty() {
            true => bail!("the broker has {wanted}"),
            false => bail!(
                "the broker has {wanted}; the last ones are: {}",
                known.join(", ")
            ),
        }
    };
    let environment = Environment {
        run: Some(run.clone()),
        signals,
        ..Environment::default()
    };
    let resumed = carrier.resume(run, &environment, &mut |_: &View<'_>| {});
    let Some(resumed) = resumed else {
        bail!("the broker has no record of the run {run}");
    };
    let (report, end) = resumed?;
    match args.json {
        true => deliver_document(&wb_render::json::report(&report))?,
        false => deliver(&wb_render::text::report(&report, &text_options(false)))?,
    }
    Ok(Finished { report, end }.exit_code())
}

fn list(args: &ListArgs) -> Result<()> {
    let fleet = join(&args.fleet)?;
    std::thread::sleep(LISTEN);
    let agents = fleet.agents().into_values().map(Present::describe);
    let agents: Vec<Agent> = agents.collect();
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
        let ports: Vec<&str> = agent.ports.iter().map(|port| &*port.locator).collect();
        let ports = ports.join(", ");
        table.row([&agent.host, &agent.version, &agent.state, &ports]);
    }
    print(&table.text(0));
    Ok(())
}
