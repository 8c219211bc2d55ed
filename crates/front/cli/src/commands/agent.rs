//! `wirebench agent`: offers the ports of this host to the controller of a fleet.

use std::{collections::BTreeMap, path::PathBuf};

use anyhow::{Result, bail};
use clap::Args;
use wb_fleet::{
    agent::{AgentOptions, run as serve},
    simulation::{self, Simulation},
};
use wb_session::Signals;

use crate::{
    args::{count_in, grants},
    fleet::access,
    run::lab_hints,
    say::say,
};

/// Offer the ports of this host to the controller of a fleet, until a signal arrives.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  wirebench agent --fleet h1.fleet\n  \
    wirebench agent --fleet h1.fleet --ports 'eth*' --label rack=r1 --allow files=/srv/wirebench\n\n\
    `wirebench fleet add HOST` makes the access file of a host (docs/fleet.md).")]
pub(crate) struct AgentArgs {
    /// Access file of this host, or the URL of a broker that asks for no certificate.
    #[arg(long, value_name = "FLEET")]
    fleet: String,
    /// Name of this host in plans [default: that of the access file; with a URL the name of the host].
    #[arg(long, value_name = "NAME")]
    host: Option<String>,
    /// Ports that plans may use, `IF` with `*` and `?` (default: all).
    #[arg(long, value_name = "GLOB", value_delimiter = ',')]
    ports: Vec<String>,
    /// Powers of plans beyond their ports: `commands`, `leave` (send to any address), `files=DIR` (read and
    /// write files below DIR).
    #[arg(long, value_name = "POWERS", value_delimiter = ',')]
    allow: Vec<String>,
    /// Labels of this host, by which plans choose hosts.
    #[arg(long = "label", value_name = "KEY=VALUE", value_delimiter = ',', value_parser = label)]
    labels: Vec<(String, String)>,
    /// UDP port at which other hosts compare their clocks with the clock of this host; `none` compares them over the
    /// broker, which is less exact.
    #[arg(long, value_name = "NUMBER", default_value = "40061", value_parser = clock_port)]
    clock_port: ClockPort,
    /// Folder of results that could not be delivered yet.
    #[arg(long, value_name = "DIR", default_value = "/var/lib/wirebench/agent")]
    state: PathBuf,
    /// Be this number of agents in one process, which count by arithmetic and send nothing; hosts `NAME1`, `NAME2`…, each
    /// with a port `t0`. Clocks and loss can be wrong on purpose: `1000,offset=50ms,drift=20ppm,loss=0.1%,kill=10/min`.
    #[arg(long, value_name = "AGENTS", conflicts_with_all = ["ports", "allow", "state"])]
    simulate: Option<Simulation>,
    /// Protocol that the agent claims, in tests of versions.
    #[arg(long, value_name = "N", value_parser = count_in::<u32>(0..), hide = true)]
    protocol: Option<u32>,
    /// Version that the agent claims, in tests of versions.
    #[arg(long, value_name = "VERSION", hide = true)]
    version_as: Option<String>,
}

/// UDP port of clock exchanges; `None`: closed.
#[derive(Clone, Copy, Debug)]
struct ClockPort(Option<u16>);

fn clock_port(text: &str) -> Result<ClockPort, String> {
    match text.parse::<u16>() {
        _ if text == "none" => Ok(ClockPort(None)),
        Ok(port) if port > 0 => Ok(ClockPort(Some(port))),
        _ => Err("a port from 1 to 65535 is needed, or `none`".to_owned()),
    }
}

fn label(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("a label is needed: KEY=VALUE".to_owned()),
    }
}

pub(crate) fn run(args: &AgentArgs) -> Result<u8> {
    let signals = Signals::install()?;
    let own = wb_machine::machine::identity().host.to_lowercase();
    let mut access = access(&args.fleet, &own.replace('.', "-"))?;
    if let Some(host) = &args.host {
        if access.certificate.is_some() && access.name != *host {
            bail!(
                "--host {host}: the certificate of {} is for the host {}",
                args.fleet,
                access.name
            );
        }
        access.name.clone_from(host);
    }
    if access.certificate.is_some() && access.name == wb_fleet::pki::CONTROLLER {
        bail!(
            "{} is the access file of a controller; an agent needs that of its host, which wirebench fleet add makes",
            args.fleet
        );
    }
    if !wb_model::locator::is_host(&access.name) {
        bail!(
            "{:?} cannot be the name of a host in plans; --host NAME gives another one: lower-case letters, digits and hyphens",
            access.name
        );
    }
    let labels: BTreeMap<_, _> = args.labels.iter().cloned().collect();
    if let Some(all) = &args.simulate {
        if access.certificate.is_some() {
            bail!(
                "--simulate: {} is for one host; a broker without certificates is needed: --fleet nats://HOST:PORT",
                args.fleet
            );
        }
        simulation::run(all, &access, &labels, |text| say(text), &signals)?;
        return Ok(0);
    }
    let options = AgentOptions {
        access,
        ports: args.ports.clone(),
        grants: grants(&args.allow)?,
        labels,
        clock_port: args.clock_port.0,
        protocol: args.protocol,
        version: args.version_as.clone(),
        state: args.state.clone(),
        hints: lab_hints,
        say: |text| say(text),
    };
    serve(&options, &signals)?;
    Ok(0)
}
