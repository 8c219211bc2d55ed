//! `wirebench serve`: carries out plans for clients of an HTTP API.

use std::{net::SocketAddr, path::PathBuf};

use anyhow::{Context as _, Result};
use clap::Args;
use wb_runs::Settings;
use wb_session::Signals;
use wb_web::{CertificateFiles, ClientNetwork, Encryption, Listen, Server, TokenFile};

use crate::{
    args::{count_in, grants},
    run::lab_hints,
    say::say,
};

/// Start, watch and stop runs over an HTTP API, and keep their reports.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  wirebench token add me\n  wirebench serve\n  wirebench serve --no-auth --plain\n  \
    curl -s localhost:8443/api/v1/runs -H 'Content-Type: application/toml' --data-binary @plan.toml\n\n\
    The description of all requests, for code generators: /api/v1/openapi.json (docs/serve.md)."
)]
pub(crate) struct ServeArgs {
    /// Address to listen on; port 0 picks and prints a free port.
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:8443")]
    listen: SocketAddr,
    /// Serve every user of this host without tokens; only on loopback addresses.
    #[arg(long)]
    no_auth: bool,
    /// Do not encrypt; only on loopback addresses.
    #[arg(long, conflicts_with_all = ["tls_cert", "tls_key"])]
    plain: bool,
    /// Certificate chain (PEM). Default: the server makes a certificate for the names of this host at its first start.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Key of the certificate (PEM).
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Certificate (PEM) of an authority: clients with a certificate of it need no token, and have the role `run`.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["plain", "no_auth"])]
    tls_client_ca: Option<PathBuf>,
    /// Folder of the history.
    #[arg(long, value_name = "DIR", default_value = "/var/lib/wirebench", value_parser = folder)]
    state: PathBuf,
    /// Powers of plans beyond their ports: `commands`, `leave` (send to any address), `files=DIR` (read and
    /// write files below DIR).
    #[arg(long, value_name = "POWERS", value_delimiter = ',')]
    allow: Vec<String>,
    /// Ports that plans may use, `NODE/IF` or `IF` with `*` and `?` (default: all).
    #[arg(long, value_name = "GLOB", value_delimiter = ',')]
    ports: Vec<String>,
    /// Networks whose Open Traffic Generator clients need no token, as clients of this host do (docs/otg.md).
    #[arg(long, value_name = "CIDR", value_delimiter = ',')]
    otg_open: Vec<ClientNetwork>,
    /// Also serve Open Traffic Generator clients that use gRPC, with or without encryption [without an address:
    /// 127.0.0.1:40051].
    #[arg(long, value_name = "IP:PORT", num_args = 0..=1, default_missing_value = "127.0.0.1:40051")]
    grpc: Option<SocketAddr>,
    /// Carry out plans that name hosts over this fleet: access file of its controller, URL of a broker, `local` (a
    /// broker and an agent of this server) or `lab` (docs/fleet.md).
    #[cfg(feature = "fleet")]
    #[arg(long, value_name = "FLEET")]
    fleet: Option<String>,
    /// Number of ended runs to keep.
    #[arg(long, value_name = "N", default_value = "1000", value_parser = count_in::<usize>(1..))]
    keep: usize,
    /// Maximum number of runs at the same time.
    #[arg(long, value_name = "N", default_value = "4", value_parser = count_in::<usize>(1..))]
    max_runs: usize,
}

/// Reads a path, in which the names of captures are not to be changed by a time.
fn folder(text: &str) -> Result<PathBuf, String> {
    match text.contains('%') {
        true => Err("a path without `%` is needed: captures put times in its place".to_owned()),
        false => Ok(PathBuf::from(text)),
    }
}

pub(crate) fn run(args: &ServeArgs) -> Result<u8> {
    let signals = Signals::install()?;
    let settings = Settings {
        state: args.state.clone(),
        keep: args.keep,
        most: args.max_runs,
        grants: grants(&args.allow)?,
        ports: args.ports.clone(),
        #[cfg(feature = "fleet")]
        carrier: args
            .fleet
            .as_deref()
            .map(|fleet| crate::fleet::carrier(fleet, wb_fleet::FleetSettings::default()))
            .transpose()?,
        #[cfg(not(feature = "fleet"))]
        carrier: None,
        socket: wb_machine::runs::server_socket().ok(),
        hints: lab_hints,
    };
    let encryption = match (args.plain, &args.tls_cert, &args.tls_key) {
        (true, ..) => Encryption::Plain,
        (false, Some(certificate), Some(key)) => Encryption::Given(CertificateFiles {
            certificate: certificate.clone(),
            key: key.clone(),
        }),
        _ => Encryption::Own,
    };
    let listen = Listen {
        address: args.listen,
        authenticates: !args.no_auth,
        encryption,
        authority: args.tls_client_ca.clone(),
        otg_open: args.otg_open.clone(),
        warn: |text| say(format_args!("wirebench: {text}")),
        grpc: args.grpc,
    };
    let server = Server::start(&listen, settings)?;
    let url = server.url().context("cannot make a token")?;
    say(format_args!("serving {url}"));
    if let Some(address) = server.grpc() {
        say(format_args!("serving gRPC at {address}"));
    }
    let has_tokens = || {
        TokenFile::new(&args.state)
            .read()
            .is_ok_and(|all| !all.is_empty())
    };
    if listen.authenticates && !has_tokens() {
        say("no client has a token yet; wirebench token add NAME makes one");
    }
    let all_ended = server.serve(|| signals.interrupted().is_some());
    if !all_ended {
        say("wirebench: not all runs ended in time; the next start stores what is known of them");
    }
    Ok(if all_ended { 0 } else { 4 })
}
