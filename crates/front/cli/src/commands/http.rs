//! `wirebench http`: load for HTTP servers.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, anyhow, bail};
use clap::Args;
use wb_model::{
    Locator, Plan, PortPlan,
    http::{Arrivals, HttpCall, HttpJob, HttpStage, HttpTls, HttpUrl, HttpVersion},
    text::plan_from_toml,
    units::{Span, parse_count},
};
use wb_options::{Opt, Typed, options};
use wb_session::input::read_text;

use crate::{
    args::{Given, OutputArgs, UnsentArgs, any_port, count_in, cpu_list, ids, take},
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
    #[command(flatten)]
    connections: Typed<Connections>,
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
    /// Use HTTP/2, negotiated by ALPN with TLS and assumed without TLS.
    #[arg(long, help_heading = "Connections")]
    http2: bool,
    /// Use HTTP/3 over QUIC; https only.
    #[arg(long, conflicts_with = "http2", help_heading = "Connections")]
    http3: bool,
    /// Open a new connection for every request.
    #[arg(long, help_heading = "Connections")]
    close: bool,
    #[command(flatten)]
    course: Typed<Course>,
    /// Requests per second, on a fixed schedule; latency includes the wait for a connection.
    #[arg(long, value_name = "N", value_parser = rate, help_heading = "Rate and time")]
    rate: Option<f64>,
    /// Rate stages FROM:TO:TIME, run in order.
    #[arg(long, value_name = "STAGE", value_delimiter = ',', value_parser = stage, conflicts_with = "rate", help_heading = "Rate and time")]
    stages: Vec<HttpStage>,
    /// Use Poisson arrivals instead of evenly spaced requests; needs --rate or --stages.
    #[arg(long, help_heading = "Rate and time")]
    poisson: bool,
    #[command(flatten)]
    call: Typed<Call>,
    #[command(flatten)]
    all_calls: Typed<AllCalls>,
    #[command(flatten)]
    tls: Typed<Tls>,
    /// Use a full handshake for every connection, without session resumption.
    #[arg(long, help_heading = "TLS")]
    no_resume: bool,
    /// Use wirebench's own TCP over this port (eth2, xdp:eth2, packet:eth2, NODE/IF), without TLS; source addresses
    /// from --source [default: 198.18.1.2].
    #[arg(long, value_name = "PORT", conflicts_with_all = ["unix", "verify", "tls_version", "authorities", "cert"], help_heading = "wirebench TCP")]
    port: Option<Locator>,
    #[command(flatten)]
    own_port: Typed<OwnPort>,
    /// CPUs for the workers of --port: 2,3 or 2-5 [default: chosen by the program].
    #[arg(
        long,
        value_name = "LIST",
        requires = "port",
        help_heading = "wirebench TCP"
    )]
    cpus: Option<String>,
    #[command(flatten)]
    check: Typed<Check>,
    #[command(flatten)]
    unsent: UnsentArgs,
    #[command(flatten)]
    output: OutputArgs,
}

options! {
    /// Connections to the server.
    Connections: HttpJob = HttpJob::default(), "Connections", [
        Opt::new("connections", "N").with(|arg| arg.short('c')),
        Opt::new("streams", "N"),
        Opt::new("pipeline", "N"),
        Opt::new("per-connection", "N").with(|arg| arg.conflicts_with("close")),
        Opt::new("timeout", "TIME"),
        Opt::new("connect-timeout", "TIME"),
        Opt::new("first-byte-timeout", "TIME"),
        Opt::new("connect-to", "ADDRESS:PORT").list(),
        Opt::new("unix", "PATH"),
        Opt::new("source", "ADDRESSES").key("sources").list(),
    ]
}

options! {
    /// Times of the run.
    Course: HttpJob = HttpJob::default(), "Rate and time", [
        Opt::new("duration", "TIME")
            .help("Duration of the run including warm-up (default: 10s unless --requests or --stages is given)")
            .with(|arg| arg.short('d')),
        Opt::new("requests", "N")
            .key("amount")
            .with(|arg| arg.short('n').conflicts_with("duration")),
        Opt::new("warm-up", "TIME"),
        Opt::new("patience", "TIME"),
    ]
}

options! {
    /// Each request.
    Call: HttpCall = HttpCall::default(), "Requests", [
        Opt::new("method", "METHOD").with(|arg| arg.short('m')),
        Opt::new("body", "TEXT").with(|arg| arg.short('b')),
        Opt::new("body-file", "FILE").with(|arg| arg.conflicts_with("body")),
    ]
}

options! {
    /// All requests together.
    AllCalls: HttpJob = HttpJob::default(), "Requests", [
        Opt::new("header", "HEADER").key("headers").with(|arg| arg.short('H')),
        Opt::new("data", "FILE"),
    ]
}

options! {
    /// TLS of https.
    Tls: HttpTls = HttpTls::default(), "TLS", [
        Opt::new("tls-version", "1.2|1.3").key("version"),
        Opt::flag("verify"),
        Opt::new("authorities", "FILE")
            .help("Verify certificates against these authorities, a PEM file (default: system authorities, with `verify`)")
            .with(|arg| arg.visible_alias("ca")),
        Opt::new("cert", "FILE").key("certificate"),
        Opt::new("key", "FILE").with(|arg| arg.requires("cert")),
        Opt::new("server-name", "NAME"),
    ]
}

options! {
    /// Port of the program's TCP.
    OwnPort: PortPlan = any_port(), "wirebench TCP", [
        Opt::new("gateway", "ADDR").with(|arg| arg.requires("port")),
        Opt::new("xdp-mode", "MODE").with(|arg| arg.requires("port")),
    ]
}

options! {
    /// Checks of responses.
    Check: HttpJob = HttpJob::default(), "Response checks", [
        Opt::new("expect-status", "STATUS").key("check.status").list(),
        Opt::new("expect-body", "TEXT").key("check.body"),
        Opt::new("expect-header", "HEADER").key("check.header"),
        Opt::flag("digest"),
    ]
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
            path: match urls.len() {
                1 => String::new(),
                _ => url.target.clone(),
            },
            ..self.call.value()
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
        let mut job = self.all_calls.over(&self.connections.value());
        job = self.check.over(&self.course.over(&job));
        job.tls = self.tls.value();
        job.tls.resume = !self.no_resume;
        job.tls.verify |= job.tls.authorities.is_some();
        let open = job.amount.is_none() && self.stages.is_empty();
        job.duration = job.duration.or(open.then(|| Span::from_secs(10)));
        if self.close {
            job.per_connection = 1;
        }
        Ok(HttpJob {
            url: self.urls[0].clone(),
            requests: if plain { Vec::new() } else { requests },
            port: self.port.as_ref().map(|_| PORT.to_owned()),
            threads: match self.port {
                Some(_) => 1,
                None => self.threads,
            },
            rate,
            arrivals: match self.poisson {
                true => Arrivals::Poisson,
                false => Arrivals::Uniform,
            },
            version: match (self.http2, self.http3) {
                (true, _) => HttpVersion::V2,
                (_, true) => HttpVersion::V3,
                _ => HttpVersion::V11,
            },
            ..job
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
        let mut cpus = cpu_list(self.cpus.as_deref())?;
        Ok(vec![PortPlan {
            workers: self.threads,
            cpus: take(&mut cpus, self.threads)?,
            ..self.own_port.over(&PortPlan::new(PORT, locator.clone()))
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
