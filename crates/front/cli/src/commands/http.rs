//! `wirebench http`: load for HTTP servers.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, anyhow, bail};
use clap::Args;
use wb_model::{
    Locator, Plan, PortPlan,
    http::{
        Arrivals, HttpCall, HttpCheck, HttpJob, HttpStage, HttpTls, HttpUrl, HttpVersion,
        ServerAddress, TlsVersion,
    },
    plan::XdpMode,
    text::plan_from_toml,
    units::{AddressRange, Span, parse_count},
};
use wb_session::input::read_text;

use crate::{
    args::{Given, OutputArgs, UnsentArgs, count_in, ids, take, xdp_mode},
    run::run_plan,
};

/// Load HTTP servers over kernel sockets or wirebench's own TCP, as fast as possible or at a fixed rate (open loop).
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    wirebench http http://web.lab/                          10 connections for 10 s\n  \
    wirebench http -c 100 -t 2 --rate 20k -d 30s http://web.lab/\n  \
    wirebench http --stages 0:50k:30s,50k:50k:60s --criteria 'p99<=5ms,failed<=0' https://web.lab/\n  \
    wirebench http --close -c 200 http://web.lab/           a new connection for every request\n  \
    wirebench http -m POST -b id=1 -H 'X-A: b' http://web.lab/login\n  \
    wirebench http http://web.lab/a http://web.lab/b        both URLs in turn\n  \
    wirebench http --http2 --streams 10 https://web.lab/    10 concurrent streams per connection\n  \
    wirebench http --http3 --streams 10 https://web.lab/    the same over QUIC\n  \
    wirebench http --port eth2 --source 198.18.1.2-198.18.1.99 -c 10k http://198.19.1.2/\n  \
    wirebench http examples/http/mixed.toml --json")]
pub(crate) struct HttpArgs {
    /// URLs to request, or a plan file; several URLs of one server are used in turn.
    #[arg(value_name = "URL|PLAN.toml", required = true)]
    urls: Vec<String>,
    /// Number of connections kept open.
    #[arg(short, long, value_name = "N", default_value = "10", value_parser = count_in::<u64>(0..), help_heading = "Connections")]
    connections: u64,
    /// Number of threads, each with its own connections; with --port number of workers.
    #[arg(
        short,
        long,
        value_name = "N",
        default_value = "1",
        value_parser = count_in::<u32>(0..),
        help_heading = "Connections"
    )]
    threads: u32,
    /// Duration of the run including warm-up [default: 10s unless --requests or --stages is given].
    #[arg(short, long, value_name = "TIME", help_heading = "Rate and time")]
    duration: Option<Span>,
    /// Exact number of requests, instead of a duration.
    #[arg(short = 'n', long, value_name = "N", value_parser = count_in::<u64>(0..), conflicts_with = "duration", help_heading = "Rate and time")]
    requests: Option<u64>,
    /// Warm-up time at the start of the duration, excluded from the results.
    #[arg(long, value_name = "TIME", help_heading = "Rate and time")]
    warm_up: Option<Span>,
    /// Requests per second, on a fixed schedule; latency includes the wait for a connection.
    #[arg(long, value_name = "N", value_parser = rate, help_heading = "Rate and time")]
    rate: Option<f64>,
    /// Rate stages FROM:TO:TIME, run in order.
    #[arg(long, value_name = "STAGE", value_delimiter = ',', value_parser = stage, conflicts_with = "rate", help_heading = "Rate and time")]
    stages: Vec<HttpStage>,
    /// Use Poisson arrivals instead of evenly spaced requests; needs --rate or --stages.
    #[arg(long, help_heading = "Rate and time")]
    poisson: bool,
    /// Maximum wait for a connection; requests that wait longer count as unsent.
    #[arg(long, value_name = "TIME", help_heading = "Rate and time")]
    patience: Option<Span>,
    /// Use HTTP/2, negotiated by ALPN with TLS and assumed without TLS.
    #[arg(long, help_heading = "Connections")]
    http2: bool,
    /// Use HTTP/3 over QUIC; https only.
    #[arg(long, conflicts_with = "http2", help_heading = "Connections")]
    http3: bool,
    /// Concurrent requests per HTTP/2 or HTTP/3 connection, within the limit of the server.
    #[arg(
        long,
        value_name = "N",
        default_value = "1",
        value_parser = count_in::<u32>(0..),
        help_heading = "Connections"
    )]
    streams: u32,
    /// Pipelined requests per HTTP/1.1 connection, 1 to 1000.
    #[arg(
        long,
        value_name = "N",
        default_value = "1",
        value_parser = count_in::<u32>(0..),
        help_heading = "Connections"
    )]
    pipeline: u32,
    /// Open a new connection for every request.
    #[arg(long, help_heading = "Connections")]
    close: bool,
    /// Number of requests after which a connection is replaced.
    #[arg(
        long,
        value_name = "N",
        conflicts_with = "close",
        value_parser = count_in::<u32>(0..),
        help_heading = "Connections"
    )]
    per_connection: Option<u32>,
    /// Time limit for a connection, and for a response.
    #[arg(
        long,
        value_name = "TIME",
        default_value = "2s",
        help_heading = "Connections"
    )]
    timeout: Span,
    /// Time limit for a connection including its TLS or QUIC handshake [default: as --timeout].
    #[arg(long, value_name = "TIME", help_heading = "Connections")]
    connect_timeout: Option<Span>,
    /// Time limit from a sent request to the first byte of the response [default: as --timeout].
    #[arg(long, value_name = "TIME", help_heading = "Connections")]
    first_byte_timeout: Option<Span>,
    /// HTTP method: GET, POST, ...
    #[arg(
        short,
        long,
        value_name = "METHOD",
        default_value = "GET",
        help_heading = "Requests"
    )]
    method: String,
    /// Header of all requests, `Name: value`.
    #[arg(
        short = 'H',
        long = "header",
        value_name = "HEADER",
        help_heading = "Requests"
    )]
    headers: Vec<String>,
    /// Request body.
    #[arg(short, long, value_name = "TEXT", help_heading = "Requests")]
    body: Option<String>,
    /// File with the request body.
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with = "body",
        help_heading = "Requests"
    )]
    body_file: Option<String>,
    /// CSV file with values for {{NAME}} in paths, headers and body; the first line has the names.
    #[arg(long, value_name = "FILE", help_heading = "Requests")]
    data: Option<String>,
    /// TLS version [default: both].
    #[arg(long, value_name = "1.2|1.3", value_parser = tls_version, help_heading = "TLS")]
    tls_version: Option<TlsVersion>,
    /// Use a full handshake for every connection, without session resumption.
    #[arg(long, help_heading = "TLS")]
    no_resume: bool,
    /// Verify server certificates.
    #[arg(long, help_heading = "TLS")]
    verify: bool,
    /// Verify certificates against these authorities (PEM) [default: system authorities, with --verify].
    #[arg(long, visible_alias = "ca", value_name = "FILE", help_heading = "TLS")]
    authorities: Option<String>,
    /// Client certificate (PEM), with its chain.
    #[arg(long, value_name = "FILE", help_heading = "TLS")]
    cert: Option<String>,
    /// Private key of the client certificate (PEM) [default: in the file of --cert].
    #[arg(long, value_name = "FILE", requires = "cert", help_heading = "TLS")]
    key: Option<String>,
    /// Server name in the handshake (SNI) [default: host of the URL].
    #[arg(long, value_name = "NAME", help_heading = "TLS")]
    server_name: Option<String>,
    /// Connect to these addresses in turn instead of resolving the URL's host; port 0: port of the URL.
    #[arg(
        long,
        value_name = "ADDRESS:PORT",
        value_delimiter = ',',
        help_heading = "Connections"
    )]
    connect_to: Vec<ServerAddress>,
    /// Connect to this Unix socket.
    #[arg(long, value_name = "PATH", help_heading = "Connections")]
    unix: Option<String>,
    /// Source addresses of connections, used in turn: one, FIRST-LAST, or a prefix [default: chosen by the system].
    #[arg(
        long,
        value_name = "ADDRESSES",
        value_delimiter = ',',
        help_heading = "Connections"
    )]
    source: Vec<AddressRange>,
    /// Use wirebench's own TCP over this port (eth2, xdp:eth2, packet:eth2, NODE/IF), without TLS; source addresses
    /// from --source [default: 198.18.1.2].
    #[arg(long, value_name = "PORT", conflicts_with_all = ["unix", "verify", "tls_version", "authorities", "cert"], help_heading = "wirebench TCP")]
    port: Option<Locator>,
    /// Next hop of all frames sent over --port [default: from the host's routes].
    #[arg(
        long,
        value_name = "ADDR",
        requires = "port",
        help_heading = "wirebench TCP"
    )]
    gateway: Option<std::net::IpAddr>,
    /// CPUs for the workers of --port: 2,3 or 2-5 [default: chosen by the program].
    #[arg(
        long,
        value_name = "LIST",
        requires = "port",
        help_heading = "wirebench TCP"
    )]
    cpus: Option<String>,
    /// XDP mode of --port: auto, zero-copy, native, generic.
    #[arg(long, value_name = "MODE", default_value = "auto", value_parser = xdp_mode, requires = "port", help_heading = "wirebench TCP")]
    xdp_mode: XdpMode,
    /// Expected status; a response with another status has failed.
    #[arg(
        long,
        value_name = "STATUS",
        value_delimiter = ',',
        help_heading = "Response checks"
    )]
    expect_status: Vec<u16>,
    /// Expected text in the body; a response without it has failed.
    #[arg(long, value_name = "TEXT", help_heading = "Response checks")]
    expect_body: Option<String>,
    /// Expected header, `Name` or `Name: value`; a response without it has failed.
    #[arg(long, value_name = "HEADER", help_heading = "Response checks")]
    expect_header: Option<String>,
    /// List the SHA-256 digests of all distinct bodies.
    #[arg(long, help_heading = "Response checks")]
    digest: bool,
    #[command(flatten)]
    unsent: UnsentArgs,
    #[command(flatten)]
    output: OutputArgs,
}

fn rate(text: &str) -> Result<f64, String> {
    let text = text.strip_suffix("/s").unwrap_or(text);
    if let Ok(rate) = text.parse::<f64>() {
        return Ok(rate);
    }
    #[allow(clippy::cast_precision_loss)]
    parse_count(text)
        .map(|n| n as f64)
        .map_err(|e| e.to_string())
}

fn stage(text: &str) -> Result<HttpStage, String> {
    let parts: Vec<&str> = text.split(':').collect();
    let [from, to, time] = parts[..] else {
        return Err("expected FROM:TO:TIME, such as 0:10k:30s".to_owned());
    };
    Ok(HttpStage {
        from: rate(from)?,
        to: rate(to)?,
        time: Some(time.parse::<Span>().map_err(|e| e.to_string())?),
    })
}

fn tls_version(text: &str) -> Result<TlsVersion, String> {
    match text {
        "1.2" => Ok(TlsVersion::V12),
        "1.3" => Ok(TlsVersion::V13),
        _ => Err("expected 1.2 or 1.3".to_owned()),
    }
}

impl HttpArgs {
    fn job(&self) -> Result<HttpJob> {
        let urls: Result<Vec<HttpUrl>, String> = self.urls.iter().map(|u| u.parse()).collect();
        let urls = urls.map_err(|e| anyhow!(e))?;
        let first = urls.first().context("no URL")?;
        let same =
            |u: &HttpUrl| (u.scheme, &u.host, u.port) == (first.scheme, &first.host, first.port);
        if let Some(other) = urls.iter().find(|u| !same(u)) {
            bail!(
                "all URLs must name the same server ({first}, {other}); write a plan with one [[http]] job per server"
            );
        }
        let call = |url: &HttpUrl| HttpCall {
            method: self.method.clone(),
            path: match urls.len() {
                1 => String::new(),
                _ => url.target.clone(),
            },
            body: self.body.clone().unwrap_or_default(),
            body_file: self.body_file.clone(),
            ..HttpCall::default()
        };
        let requests: Vec<HttpCall> = urls.iter().map(call).collect();
        let plain = requests == [HttpCall::default()];
        let rate = match self.rate {
            Some(rate) => vec![HttpStage {
                from: rate,
                to: rate,
                time: None,
            }],
            None => self.stages.clone(),
        };
        Ok(HttpJob {
            url: self.urls[0].clone(),
            requests: if plain { Vec::new() } else { requests },
            headers: self.headers.clone(),
            data: self.data.clone(),
            port: self.port.as_ref().map(|_| PORT.to_owned()),
            connections: u32::try_from(self.connections).unwrap_or(u32::MAX),
            threads: match self.port {
                Some(_) => 1,
                None => self.threads,
            },
            duration: self.duration.or_else(|| {
                let open = self.requests.is_none() && self.stages.is_empty();
                open.then(|| Span::from_secs(10))
            }),
            amount: self.requests,
            warm_up: self.warm_up.unwrap_or_default(),
            rate,
            arrivals: match self.poisson {
                true => Arrivals::Poisson,
                false => Arrivals::Uniform,
            },
            patience: self.patience,
            version: match (self.http2, self.http3) {
                (true, _) => HttpVersion::V2,
                (_, true) => HttpVersion::V3,
                _ => HttpVersion::V11,
            },
            streams: self.streams,
            pipeline: self.pipeline,
            per_connection: match self.close {
                true => 1,
                false => self.per_connection.unwrap_or(0),
            },
            timeout: self.timeout,
            connect_timeout: self.connect_timeout,
            first_byte_timeout: self.first_byte_timeout,
            tls: HttpTls {
                version: self.tls_version,
                resume: !self.no_resume,
                verify: self.verify || self.authorities.is_some(),
                authorities: self.authorities.clone(),
                certificate: self.cert.clone(),
                key: self.key.clone(),
                server_name: self.server_name.clone(),
            },
            connect_to: self.connect_to.clone(),
            unix: self.unix.clone(),
            sources: self.source.clone(),
            check: HttpCheck {
                status: self.expect_status.clone(),
                body: self.expect_body.clone(),
                header: self.expect_header.clone(),
            },
            digest: self.digest,
            ..HttpJob::default()
        })
    }
}

/// Name of the port of --port in the plan.
const PORT: &str = "client";

impl HttpArgs {
    fn ports(&self) -> Result<Vec<PortPlan>> {
        let Some(locator) = &self.port else {
            return Ok(Vec::new());
        };
        let mut cpus = match &self.cpus {
            None => Vec::new(),
            Some(text) => wb_machine::cpu::parse_list(text).with_context(|| {
                format!("--cpus: expected a list of CPUs such as 2,3, got {text:?}")
            })?,
        };
        Ok(vec![PortPlan {
            workers: self.threads,
            cpus: take(&mut cpus, self.threads)?,
            gateway: self.gateway,
            xdp_mode: self.xdp_mode,
            ..PortPlan::new(PORT, locator.clone())
        }])
    }
}

pub(crate) fn run(args: &HttpArgs, given: &Given) -> Result<u8> {
    if let [path] = args.urls.as_slice()
        && !path.contains("://")
    {
        if !Path::new(path).exists() {
            bail!("{path}: neither a URL nor a plan file; did you mean http://{path}/?");
        }
        let text = read_text(path.as_ref())
            .with_context(|| format!("cannot read {path} as a plan (URLs begin with http://)"))?;
        given.refuse_all_but(
            &[ids::<OutputArgs>(), ids::<UnsentArgs>()].concat(),
            &format!("no effect on a plan; set this in {path}, or change rate and duration with `wirebench run`"),
        )?;
        let mut plan = plan_from_toml(path, &text)?;
        args.unsent.apply(&mut plan);
        let base = PathBuf::from(path).parent().map(PathBuf::from);
        return run_plan(plan, &args.output, base);
    }
    let mut plan = Plan {
        kind: "http".to_owned(),
        ports: args.ports()?,
        http_jobs: vec![args.job()?],
        ..Plan::default()
    };
    args.unsent.apply(&mut plan);
    run_plan(plan, &args.output, None)
}
