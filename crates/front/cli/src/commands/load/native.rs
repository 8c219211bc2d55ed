//! Native options for loads.

use anyhow::{Result, bail};
use clap::Args;
use wb_model::{
    Locator, Plan, PortPlan,
    load::{
        HttpRequest, LoadAnswer, LoadEnd, LoadJob, LoadMessage, LoadReading, LoadRoute, LoadShape,
        LoadTcp, LoadTransport, ProfilePoint,
    },
    plan::XdpMode,
    stream::{DEFAULT_DST4, DEFAULT_DST6, DEFAULT_SRC4, DEFAULT_SRC6},
    units::{AddressRange, PortRange, Span},
};
use wb_options::{Opt, Typed, options};

use super::ChangeArgs;
use crate::args::{any_port, count_in, cpu_list, take};

#[derive(Args, Debug)]
#[command(next_help_heading = "Ends")]
pub(super) struct NativeArgs {
    /// Port that opens connections.
    #[arg(long, value_name = "PORT")]
    pub(super) client: Option<Locator>,
    /// Port that answers connections.
    #[arg(long, value_name = "PORT")]
    pub(super) server: Option<Locator>,
    /// Source addresses of connections: ADDR, FIRST-LAST or ADDR/LEN; repeatable [default: 198.18.1.2; a server alone
    /// accepts any].
    #[arg(long, value_name = "RANGE")]
    clients: Vec<AddressRange>,
    /// Destination addresses of connections: of the server, or of a device in front of it [default: 198.19.1.2].
    #[arg(long, value_name = "RANGE")]
    servers: Vec<AddressRange>,
    /// Addresses of the server port, if a device translates the addresses [default: as --servers].
    #[arg(long, value_name = "RANGE")]
    backends: Vec<AddressRange>,
    /// Use IPv6 if no address is given.
    #[arg(short = '6', long)]
    ipv6: bool,
    /// Ports on which the server answers, if a device translates ports.
    #[arg(long, value_name = "PORTS")]
    backend_ports: Option<PortRange>,
    #[command(flatten)]
    ends: Typed<Ends>,
    #[command(flatten)]
    client_port: Typed<ClientPort>,
    #[command(flatten)]
    server_port: Typed<ServerPort>,
    /// CPUs for the workers, client first: 2,3 or 2-5 [default: chosen by the program].
    #[arg(long, value_name = "LIST")]
    cpus: Option<String>,
    #[command(flatten)]
    traffic: TrafficArgs,
    #[command(flatten)]
    tcp: TcpArgs,
}

#[derive(Args, Debug)]
#[command(next_help_heading = "Messages")]
struct TrafficArgs {
    /// Use UDP instead of TCP.
    #[arg(long)]
    udp: bool,
    /// Request: http, http:/path, bytes:N, random:N, file:PATH, or over UDP snmp:COMMUNITY (sysUpTime.0 of SNMPv2c,
    /// at --server-ports 161) [default: http; UDP: bytes:18].
    #[arg(long, value_name = "MESSAGE", value_parser = request)]
    request: Option<LoadMessage>,
    #[command(flatten)]
    http: Typed<Http>,
    /// Response: http:N (a body of N bytes), bytes:N, random:N, file:PATH, echo or sink [default: http:1; UDP: echo].
    #[arg(long, value_name = "MESSAGE", value_parser = answer)]
    answer: Option<LoadAnswer>,
    /// Response of a server to a path, instead of --answer: 'PATH STATUS BYTES [DELAY] [close]', such as '/a 200 1000
    /// 10ms' or '/img/* 404 0'; repeatable. All other paths get 404.
    #[arg(long, value_name = "ROUTE", value_parser = route, conflicts_with = "answer")]
    route: Vec<LoadRoute>,
    /// End of a received message: http, segment, bytes:N or stream [default: matches the messages].
    #[arg(long, value_name = "HOW", value_parser = reading)]
    reading: Option<LoadReading>,
    /// Requests per connection before it is closed; 0: no limit [default: 1; 0 with --cc, --rps, --pps or --bps].
    #[arg(long, value_name = "N", value_parser = count_in::<u32>(0..))]
    requests: Option<u32>,
    #[command(flatten)]
    exchange: Typed<Exchange>,
    /// Share of the rate over time: 0s:0.1,5s:1,20s:0.5.
    #[arg(long, value_name = "TIME:SHARE", value_delimiter = ',', value_parser = point)]
    profile: Vec<ProfilePoint>,
}

options! {
    /// Ports of TCP and UDP at both ends.
    Ends: LoadJob = LoadJob::default(), "Ends", [
        Opt::new("client-ports", "PORTS"),
        Opt::new("server-ports", "PORTS"),
        Opt::new("gateway-mac", "MAC").of("Client port"),
    ]
}

options! {
    /// Port of the client. The XDP mode is that of both ports.
    ClientPort: PortPlan = any_port(), "Ends", [
        Opt::new("client-address", "ADDR")
            .key("addresses")
            .help("Own address of the client port, which its gateway resolves"),
        Opt::new("workers", "N").of("Client port"),
        Opt::new("gateway", "ADDR").of("Client port"),
        Opt::new("xdp-mode", "MODE"),
    ]
}

options! {
    /// Port of the server.
    ServerPort: PortPlan = any_port(), "Ends", [
        Opt::new("server-address", "ADDR")
            .key("addresses")
            .help("Own address of the server port"),
        Opt::new("server-workers", "N").key("workers").of("Server port"),
        Opt::new("server-gateway", "ADDR").key("gateway").help(
            "Next hop of all frames from the server (default: the sender of the received frame)",
        ),
    ]
}

options! {
    /// Requests of HTTP.
    Http: HttpRequest = HttpRequest::default(), "Messages", [
        Opt::new("method", "METHOD"),
        Opt::new("host", "NAME"),
        Opt::new("body", "N"),
    ]
}

options! {
    /// Ways to send, and headers of frames.
    Exchange: LoadJob = LoadJob::default(), "Messages", [
        Opt::new("pipeline", "N"),
        Opt::flag("flood"),
        Opt::new("close", "HOW"),
        Opt::new("order", "ORDER"),
        Opt::new("rise", "HOW").key("shape.rise"),
        Opt::new("vlan", "ID"),
        Opt::new("tos", "NUMBER"),
    ]
}

options! {
    /// Parameters of TCP. Segments of unknown connections are ignored by default, because a device may send them.
    Tcp: LoadTcp = silent(), "TCP", [
        Opt::new("mss", "BYTES"),
        Opt::new("window", "BYTES"),
        Opt::new("retransmit", "TIME"),
        Opt::new("tries", "N"),
        Opt::new("connect-timeout", "TIME"),
        Opt::new("response-timeout", "TIME"),
        Opt::new("close-timeout", "TIME"),
        Opt::new("idle-timeout", "TIME"),
        Opt::new("time-wait", "TIME"),
        Opt::flag("reset-unknown").help("Answer segments of unknown connections with RST"),
    ]
}

/// Parameters that send no RST to unknown connections.
fn silent() -> LoadTcp {
    LoadTcp {
        reset_unknown: false,
        ..LoadTcp::default()
    }
}

#[derive(Args, Debug)]
#[command(next_help_heading = "TCP")]
struct TcpArgs {
    #[command(flatten)]
    tcp: Typed<Tcp>,
    /// Server: accept a leading PROXY header, version 1 or 2.
    #[arg(long)]
    proxy: bool,
}

fn size(text: &str) -> Result<u32, String> {
    count_in::<u32>(0..)(text)
}

fn request(text: &str) -> Result<LoadMessage, String> {
    match text.split_once(':') {
        None if text == "http" => Ok(LoadMessage::default()),
        Some(("http", path)) => Ok(LoadMessage::Http(HttpRequest {
            path: path.to_owned(),
            ..HttpRequest::default()
        })),
        Some(("bytes", n)) => size(n).map(LoadMessage::Bytes),
        Some(("random", n)) => size(n).map(LoadMessage::Random),
        Some(("file", path)) => Ok(LoadMessage::File(path.to_owned())),
        Some(("snmp", community)) => Ok(LoadMessage::Snmp(community.to_owned())),
        _ => Err(
            "expected http, http:/path, bytes:N, random:N, file:PATH or snmp:COMMUNITY".to_owned(),
        ),
    }
}

fn answer(text: &str) -> Result<LoadAnswer, String> {
    match text.split_once(':') {
        None if text == "http" => Ok(LoadAnswer::default()),
        None if text == "echo" => Ok(LoadAnswer::Echo),
        None if text == "sink" => Ok(LoadAnswer::Sink),
        Some(("http", n)) => size(n).map(LoadAnswer::Http),
        Some(("bytes", n)) => size(n).map(LoadAnswer::Bytes),
        Some(("random", n)) => size(n).map(LoadAnswer::Random),
        Some(("file", path)) => Ok(LoadAnswer::File(path.to_owned())),
        _ => Err("expected http:N, bytes:N, random:N, file:PATH, echo or sink".to_owned()),
    }
}

fn reading(text: &str) -> Result<LoadReading, String> {
    match text.split_once(':') {
        None if text == "http" => Ok(LoadReading::Http),
        None if text == "segment" => Ok(LoadReading::Segment),
        None if text == "stream" => Ok(LoadReading::Stream),
        Some(("bytes", n)) => size(n).map(LoadReading::Bytes),
        _ => Err("expected http, segment, bytes:N or stream".to_owned()),
    }
}

fn route(text: &str) -> Result<LoadRoute, String> {
    let wrong =
        || "expected PATH STATUS BYTES [DELAY] [close], such as '/a 200 1000 10ms'".to_owned();
    let mut words: Vec<&str> = text.split_whitespace().collect();
    let close = words.last() == Some(&"close");
    if close {
        words.pop();
    }
    let (path, status, bytes, delay) = match words[..] {
        [path, status, bytes] => (path, status, bytes, "0s"),
        [path, status, bytes, delay] => (path, status, bytes, delay),
        _ => return Err(wrong()),
    };
    Ok(LoadRoute {
        path: path.to_owned(),
        status: status.parse().map_err(|_| wrong())?,
        size: size(bytes)?,
        delay: delay.parse().map_err(|_| wrong())?,
        close,
    })
}

fn point(text: &str) -> Result<ProfilePoint, String> {
    let wrong = || format!("expected TIME:SHARE, such as 5s:0.5, got {text:?}");
    let (at, share) = text.split_once(':').ok_or_else(wrong)?;
    let share: f64 = share.parse().map_err(|_| wrong())?;
    if !share.is_finite() {
        return Err(wrong());
    }
    let at = at.parse().map_err(|_| wrong())?;
    Ok(ProfilePoint { at, share })
}

/// Payload of the smallest frame, 64 bytes with FCS, in bytes.
const SMALLEST_DATAGRAM: u32 = 18;

/// Options that may override configuration files of dperf.
pub(super) const BESIDE_FILES: [&str; 4] = ["gateway", "gateway_mac", "server_gateway", "xdp_mode"];

impl NativeArgs {
    /// Overrides the next hops and the XDP mode of configuration files.
    ///
    /// # Errors
    /// If no file configures the end that an option is for.
    pub(super) fn change(&self, plan: &mut Plan) -> Result<()> {
        let (client, server) = (self.client_port.value(), self.server_port.value());
        let mac = self.ends.value().gateway_mac;
        let hops = [
            ("--gateway", LoadEnd::Client, client.gateway, None),
            ("--gateway-mac", LoadEnd::Client, None, mac),
            ("--server-gateway", LoadEnd::Server, server.gateway, None),
        ];
        for (option, end, gateway, mac) in hops {
            if gateway.is_none() && mac.is_none() {
                continue;
            }
            if !plan.loads.iter().any(|job| job.end == end) {
                bail!("{option}: no configuration file is for that end");
            }
            for job in plan.loads.iter_mut().filter(|job| job.end == end) {
                job.gateway_mac = mac.or(job.gateway_mac);
                for port in plan.ports.iter_mut().filter(|port| port.name == job.port) {
                    port.gateway = gateway.or(port.gateway);
                }
            }
        }
        if client.xdp_mode != XdpMode::default() {
            for port in &mut plan.ports {
                port.xdp_mode = client.xdp_mode;
            }
        }
        Ok(())
    }

    pub(super) fn plan(&self, change: &ChangeArgs) -> Result<Plan> {
        let mut cpus = cpu_list(self.cpus.as_deref())?;
        let ends = [
            (LoadEnd::Client, &self.client),
            (LoadEnd::Server, &self.server),
        ];
        let mut plan = Plan {
            kind: "load".to_owned(),
            ..Plan::default()
        };
        for (end, locator) in ends {
            let Some(locator) = locator else { continue };
            let job = self.job(end, change)?;
            let port = PortPlan {
                xdp_mode: self.client_port.value().xdp_mode,
                ..PortPlan::new(end.name(), locator.clone())
            };
            let (mut port, own) = match end {
                LoadEnd::Client => (self.client_port.over(&port), &job.clients),
                LoadEnd::Server => (self.server_port.over(&port), &job.servers),
            };
            port.cpus = take(&mut cpus, port.workers)?;
            if !port.addresses.is_empty() {
                port.addresses.extend(own);
            }
            plan.ports.push(port);
            plan.loads.push(job);
        }
        if plan.loads.is_empty() {
            bail!("load needs --client PORT, --server PORT or a configuration file");
        }
        Ok(plan)
    }

    fn is_v6(&self) -> bool {
        let given = self.servers.first().or(self.clients.first());
        given.map_or(self.ipv6, AddressRange::is_ipv6)
    }

    fn job(&self, end: LoadEnd, change: &ChangeArgs) -> Result<LoadJob> {
        let t = &self.traffic;
        let common = t.exchange.over(&self.ends.value());
        let client = end == LoadEnd::Client;
        let (src, dst) = match self.is_v6() {
            true => (DEFAULT_SRC6.into(), DEFAULT_DST6.into()),
            false => (DEFAULT_SRC4.into(), DEFAULT_DST4.into()),
        };
        let or = |given: &[AddressRange], default: std::net::IpAddr| match given {
            [] => vec![AddressRange::single(default)],
            given => given.to_vec(),
        };
        let servers = or(&self.servers, dst);
        let translated = !client && !self.backends.is_empty();
        let servers = match translated {
            true => self.backends.clone(),
            false => servers,
        };
        let server_ports = match (client, self.backend_ports) {
            (false, Some(ports)) => ports,
            _ => common.server_ports,
        };
        let rates = change.amounts.value().rate;
        let paced = rates.rps.or(rates.pps).or(rates.bps).is_some();
        let holds = paced || rates.cc.is_some();
        let request = self.request();
        let answer = match (&t.answer, t.udp) {
            (Some(answer), _) => answer.clone(),
            (None, true) => LoadAnswer::Echo,
            (None, false) if matches!(request, LoadMessage::Http(_)) => LoadAnswer::default(),
            (None, false) => LoadAnswer::Echo,
        };
        let alone = self.client.is_none();
        let mut shape = LoadShape {
            profile: t.profile.clone(),
            ..common.shape
        };
        if !client && alone {
            shape.duration = Span::default();
        }
        let mut job = LoadJob {
            name: end.name().to_owned(),
            port: end.name().to_owned(),
            gateway_mac: common.gateway_mac.filter(|_| client),
            end,
            transport: match t.udp {
                true => LoadTransport::Udp,
                false => LoadTransport::Tcp,
            },
            // A device between the ends may translate addresses, so the server then accepts any client.
            clients: match (client, self.clients.is_empty() || !alone) {
                (false, true) => Vec::new(),
                _ => or(&self.clients, src),
            },
            servers,
            server_ports,
            reading: self.reading(end, &request, &answer),
            flood: common.flood && client,
            shape,
            tcp: self.tcp.tcp.value(),
            proxy: self.tcp.proxy && !client,
            ..common
        };
        job.requests = match (client, t.requests) {
            (true, Some(n)) => n,
            (true, None) => u32::from(!holds),
            (false, _) => 0,
        };
        if client && holds && !paced && t.requests.is_none() {
            job.interval = Span::from_secs(1);
        }
        if client {
            job.request = request;
        } else {
            job.answer = answer;
            job.routes.clone_from(&t.route);
        }
        Ok(job)
    }

    fn request(&self) -> LoadMessage {
        let t = &self.traffic;
        match &t.request {
            None if t.udp => LoadMessage::Bytes(SMALLEST_DATAGRAM),
            None => LoadMessage::Http(self.http("/")),
            Some(LoadMessage::Http(request)) => LoadMessage::Http(self.http(&request.path)),
            Some(other) => other.clone(),
        }
    }

    fn http(&self, path: &str) -> HttpRequest {
        HttpRequest {
            path: path.to_owned(),
            ..self.traffic.http.value()
        }
    }

    /// Returns the reading that matches the messages of the other end.
    fn reading(&self, end: LoadEnd, request: &LoadMessage, answer: &LoadAnswer) -> LoadReading {
        if let Some(told) = self.traffic.reading {
            return told;
        }
        let of_request = match request {
            LoadMessage::Http(_) => LoadReading::Http,
            LoadMessage::Bytes(n) | LoadMessage::Random(n) if *n > 0 => LoadReading::Bytes(*n),
            LoadMessage::File(path) => of_file(path),
            LoadMessage::Bytes(_)
            | LoadMessage::Random(_)
            | LoadMessage::Snmp(_)
            | LoadMessage::Rip(_) => LoadReading::Segment,
        };
        match (end, answer) {
            (LoadEnd::Server, _) | (_, LoadAnswer::Echo) => of_request,
            (_, LoadAnswer::Http(_)) => LoadReading::Http,
            (_, LoadAnswer::Bytes(n) | LoadAnswer::Random(n)) if *n > 0 => LoadReading::Bytes(*n),
            (_, LoadAnswer::File(path)) => of_file(path),
            _ => LoadReading::Segment,
        }
    }
}

/// Returns the reading for messages from a file. An unreadable file is reported later, when its contents are loaded.
fn of_file(path: &str) -> LoadReading {
    match std::fs::metadata(path).map(|file| u32::try_from(file.len())) {
        Ok(Ok(len)) if len > 0 => LoadReading::Bytes(len),
        _ => LoadReading::Segment,
    }
}
