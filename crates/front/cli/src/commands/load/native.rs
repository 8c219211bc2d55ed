//! The native options of loads.

use anyhow::{Result, bail};
use clap::Args;
use wb_model::{
    Locator, Plan, PortPlan,
    load::{
        HttpRequest, LoadAnswer, LoadClose, LoadEnd, LoadJob, LoadMessage, LoadReading, LoadRise,
        LoadRoute, LoadShape, LoadTransport, ProfilePoint, TupleOrder,
    },
    plan::XdpMode,
    stream::{DEFAULT_DST4, DEFAULT_DST6, DEFAULT_SRC4, DEFAULT_SRC6},
    units::{AddressRange, Mac, PortRange, Span},
};

use super::ChangeArgs;
use crate::args::{take, xdp_mode};

#[derive(Args, Debug)]
#[command(next_help_heading = "Ends")]
pub(super) struct NativeArgs {
    /// Port that opens connections.
    #[arg(long, value_name = "PORT")]
    pub(super) client: Option<Locator>,
    /// Port that answers them.
    #[arg(long, value_name = "PORT")]
    pub(super) server: Option<Locator>,
    /// Source addresses of connections: ADDR, FIRST-LAST, ADDR/LEN. May be given several times.
    /// Default 198.18.1.2; of a server alone: anyone.
    #[arg(long, value_name = "RANGE")]
    clients: Vec<AddressRange>,
    /// Where connections go: addresses of the server, or of the device before it. Default 198.19.1.2.
    #[arg(long, value_name = "RANGE")]
    servers: Vec<AddressRange>,
    /// Addresses that the server's port has itself, where a device in between translates. Default:
    /// those of --servers.
    #[arg(long, value_name = "RANGE")]
    backends: Vec<AddressRange>,
    /// IPv6 instead of IPv4, where no address says so.
    #[arg(short = '6', long)]
    ipv6: bool,
    /// Source ports of connections.
    #[arg(long, value_name = "PORTS", default_value = "1024-65535")]
    client_ports: PortRange,
    /// Ports of the server.
    #[arg(long, value_name = "PORTS", default_value = "80")]
    server_ports: PortRange,
    /// Ports that the server answers at, where a device in between translates.
    #[arg(long, value_name = "PORTS")]
    backend_ports: Option<PortRange>,
    /// The client port's own address, which its gateway asks for. May be given several times.
    #[arg(long, value_name = "ADDR")]
    client_address: Vec<AddressRange>,
    /// The server port's own address.
    #[arg(long, value_name = "ADDR")]
    server_address: Vec<AddressRange>,
    /// Workers of the client's port; they share out its queues.
    #[arg(long, value_name = "N", default_value_t = 1)]
    workers: u32,
    /// Workers of the server's port.
    #[arg(long, value_name = "N", default_value_t = 1)]
    server_workers: u32,
    /// CPUs for the workers, the client's first: 2,3 or 2-5. Default: chosen by the program.
    #[arg(long, value_name = "LIST")]
    cpus: Option<String>,
    /// Next hop of everything the client sends. Default: the destination itself.
    #[arg(long, value_name = "ADDR")]
    gateway: Option<std::net::IpAddr>,
    /// Its hardware address, where nobody answers for it.
    #[arg(long, value_name = "MAC")]
    gateway_mac: Option<Mac>,
    /// Next hop of everything the server sends. Default: where a frame came from.
    #[arg(long, value_name = "ADDR")]
    server_gateway: Option<std::net::IpAddr>,
    /// XDP mode of the ports: auto, zero-copy, native, generic.
    #[arg(long, value_name = "MODE", default_value = "auto", value_parser = xdp_mode)]
    xdp_mode: XdpMode,
    #[command(flatten)]
    traffic: TrafficArgs,
    #[command(flatten)]
    tcp: TcpArgs,
}

#[derive(Args, Debug)]
#[command(next_help_heading = "Messages")]
struct TrafficArgs {
    /// UDP instead of TCP.
    #[arg(long)]
    udp: bool,
    /// What is asked: http, http:/path, bytes:N, random:N, file:PATH, or over UDP snmp:COMMUNITY (sysUpTime.0 of
    /// SNMPv2c, at --server-ports 161). Default: http; UDP: bytes:18.
    #[arg(long, value_name = "MESSAGE", value_parser = request)]
    request: Option<LoadMessage>,
    /// Method of an HTTP request.
    #[arg(long, value_name = "METHOD", default_value = "GET")]
    method: String,
    /// Its Host header. Default: the server's address.
    #[arg(long, value_name = "NAME", default_value = "")]
    host: String,
    /// Bytes of its body.
    #[arg(long, value_name = "N", default_value_t = 0)]
    body: u32,
    /// What is answered: http:N (a body of N bytes), bytes:N, random:N, file:PATH, echo or sink.
    /// Default: http:1; UDP: echo.
    #[arg(long, value_name = "MESSAGE", value_parser = answer)]
    answer: Option<LoadAnswer>,
    /// What a server answers to a path, in place of --answer: 'PATH STATUS BYTES [DELAY] [close]', such as
    /// '/a 200 1000 10ms' or '/img/* 404 0'. May be given several times; 404 to all other paths.
    #[arg(long, value_name = "ROUTE", value_parser = route, conflicts_with = "answer")]
    route: Vec<LoadRoute>,
    /// What ends a message that comes in: http, segment, bytes:N or stream. Default: what fits the
    /// messages.
    #[arg(long, value_name = "HOW", value_parser = reading)]
    reading: Option<LoadReading>,
    /// Requests of a connection, after which it is closed; 0: until the end. Default 1; with --cc,
    /// --rps, --pps or --bps 0.
    #[arg(long, value_name = "N")]
    requests: Option<u32>,
    /// Requests sent back to back.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pipeline: u16,
    /// Send and do not wait for answers: SYN packets, or datagrams.
    #[arg(long)]
    flood: bool,
    /// How a client ends a connection: fin or reset.
    #[arg(long, value_name = "HOW", default_value = "fin", value_parser = close)]
    close: LoadClose,
    /// Order of addresses and ports: sequential, stride or random.
    #[arg(long, value_name = "ORDER", default_value = "sequential", value_parser = order)]
    order: TupleOrder,
    /// How a ramp rises: linear, steps or exponential.
    #[arg(long, value_name = "HOW", default_value = "linear", value_parser = rise)]
    rise: LoadRise,
    /// Share of the rate over the duration: 0s:0.1,5s:1,20s:0.5.
    #[arg(long, value_name = "TIME:SHARE", value_delimiter = ',', value_parser = point)]
    profile: Vec<ProfilePoint>,
    /// VLAN id of all frames.
    #[arg(long, value_name = "ID")]
    vlan: Option<u16>,
    /// IPv4 type of service or IPv6 traffic class.
    #[arg(long, value_name = "N", default_value_t = 0)]
    tos: u8,
}

#[derive(Args, Debug)]
#[command(next_help_heading = "TCP")]
struct TcpArgs {
    /// Largest segment; 0: what the MTU carries.
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    mss: u16,
    /// Bytes of the window.
    #[arg(long, value_name = "BYTES", default_value_t = 1 << 20)]
    window: u32,
    /// A segment without acknowledgement is sent again after this time, as long as the round trip is not
    /// known; then the round trip decides, and this is the least beside it, up to 200 ms.
    #[arg(long, value_name = "TIME", default_value = "1s")]
    retransmit: Span,
    /// Transmissions of a segment, at most.
    #[arg(long, value_name = "N", default_value_t = 5)]
    tries: u8,
    /// From the first SYN to its answer, at most; 0s: no limit.
    #[arg(long, value_name = "TIME", default_value = "10s")]
    connect_timeout: Span,
    /// From a request to the end of its answer, at most; 0s: no limit.
    #[arg(long, value_name = "TIME", default_value = "10s")]
    response_timeout: Span,
    /// From our FIN to the end, at most; 0s: no limit.
    #[arg(long, value_name = "TIME", default_value = "10s")]
    close_timeout: Span,
    /// Server: without anything from the client, at most; 0s: no limit.
    #[arg(long, value_name = "TIME", default_value = "1m")]
    idle_timeout: Span,
    /// How long addresses and ports of a closed connection rest; 0s: not at all.
    #[arg(long, value_name = "TIME", default_value = "0s")]
    time_wait: Span,
    /// Answer segments of no connection by RST.
    #[arg(long)]
    reset_unknown: bool,
    /// Server: a PROXY header of version 1 or 2 may come first.
    #[arg(long)]
    proxy: bool,
}

fn size(text: &str) -> Result<u32, String> {
    wb_model::units::parse_count(text)
        .ok()
        .and_then(|n| u32::try_from(n).ok())
        .ok_or_else(|| format!("{text:?} is no number of bytes"))
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
        _ => Err("http, http:/path, bytes:N, random:N, file:PATH or snmp:COMMUNITY".to_owned()),
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
        _ => Err("http:N, bytes:N, random:N, file:PATH, echo or sink".to_owned()),
    }
}

fn reading(text: &str) -> Result<LoadReading, String> {
    match text.split_once(':') {
        None if text == "http" => Ok(LoadReading::Http),
        None if text == "segment" => Ok(LoadReading::Segment),
        None if text == "stream" => Ok(LoadReading::Stream),
        Some(("bytes", n)) => size(n).map(LoadReading::Bytes),
        _ => Err("http, segment, bytes:N or stream".to_owned()),
    }
}

fn route(text: &str) -> Result<LoadRoute, String> {
    let wrong = || "PATH STATUS BYTES [DELAY] [close], such as '/a 200 1000 10ms'".to_owned();
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

fn close(text: &str) -> Result<LoadClose, String> {
    match text {
        "fin" => Ok(LoadClose::Fin),
        "reset" => Ok(LoadClose::Reset),
        _ => Err("fin or reset".to_owned()),
    }
}

fn order(text: &str) -> Result<TupleOrder, String> {
    match text {
        "sequential" => Ok(TupleOrder::Sequential),
        "stride" => Ok(TupleOrder::Stride),
        "random" => Ok(TupleOrder::Random),
        _ => Err("sequential, stride or random".to_owned()),
    }
}

fn rise(text: &str) -> Result<LoadRise, String> {
    match text {
        "linear" => Ok(LoadRise::Linear),
        "steps" => Ok(LoadRise::Steps),
        "exponential" => Ok(LoadRise::Exponential),
        _ => Err("linear, steps or exponential".to_owned()),
    }
}

fn point(text: &str) -> Result<ProfilePoint, String> {
    let wrong = || format!("{text:?}: a time, a colon and a share, such as 5s:0.5");
    let (at, share) = text.split_once(':').ok_or_else(wrong)?;
    Ok(ProfilePoint {
        at: at.parse().map_err(|_| wrong())?,
        share: share.parse().map_err(|_| wrong())?,
    })
}

/// Payload of the smallest frame: 64 bytes with FCS.
const SMALLEST_DATAGRAM: u32 = 18;

/// Options that change what configuration files of dperf say.
pub(super) const BESIDE_FILES: [&str; 4] = ["gateway", "gateway_mac", "server_gateway", "xdp_mode"];

impl NativeArgs {
    /// Puts next hops and the XDP mode in place of what configuration files say.
    ///
    /// # Errors
    /// If no file is of the end that an option is about.
    pub(super) fn change(&self, plan: &mut Plan) -> Result<()> {
        let hops = [
            ("--gateway", LoadEnd::Client, self.gateway, None),
            ("--gateway-mac", LoadEnd::Client, None, self.gateway_mac),
            (
                "--server-gateway",
                LoadEnd::Server,
                self.server_gateway,
                None,
            ),
        ];
        for (option, end, gateway, mac) in hops {
            if gateway.is_none() && mac.is_none() {
                continue;
            }
            if !plan.loads.iter().any(|job| job.end == end) {
                bail!("{option}: no file is of that end");
            }
            for job in plan.loads.iter_mut().filter(|job| job.end == end) {
                job.gateway_mac = mac.or(job.gateway_mac);
                for port in plan.ports.iter_mut().filter(|port| port.name == job.port) {
                    port.gateway = gateway.or(port.gateway);
                }
            }
        }
        if self.xdp_mode != XdpMode::default() {
            for port in &mut plan.ports {
                port.xdp_mode = self.xdp_mode;
            }
        }
        Ok(())
    }

    pub(super) fn plan(&self, change: &ChangeArgs) -> Result<Plan> {
        let mut cpus = match &self.cpus {
            None => Vec::new(),
            Some(text) => wb_machine::cpu::parse_list(text).ok_or_else(|| {
                anyhow::anyhow!("--cpus {text:?} is not a list of CPUs such as 2,3 or 2-5")
            })?,
        };
        let ends = [
            (LoadEnd::Client, &self.client, self.workers, self.gateway),
            (
                LoadEnd::Server,
                &self.server,
                self.server_workers,
                self.server_gateway,
            ),
        ];
        let mut plan = Plan {
            kind: "load".to_owned(),
            ..Plan::default()
        };
        for (end, locator, workers, gateway) in ends {
            let Some(locator) = locator else { continue };
            let name = match end {
                LoadEnd::Client => "client",
                LoadEnd::Server => "server",
            };
            let job = self.job(end, name, change)?;
            let (mut addresses, own) = match end {
                LoadEnd::Client => (self.client_address.clone(), &job.clients),
                LoadEnd::Server => (self.server_address.clone(), &job.servers),
            };
            if !addresses.is_empty() {
                addresses.extend(own);
            }
            plan.ports.push(PortPlan {
                workers,
                cpus: take(&mut cpus, workers)?,
                addresses,
                gateway,
                xdp_mode: self.xdp_mode,
                ..PortPlan::new(name, locator.clone())
            });
            plan.loads.push(job);
        }
        if plan.loads.is_empty() {
            bail!("there is nothing to do; --client PORT, --server PORT, or a file");
        }
        Ok(plan)
    }

    fn is_v6(&self) -> bool {
        let given = self.servers.first().or(self.clients.first());
        given.map_or(self.ipv6, AddressRange::is_ipv6)
    }

    fn job(&self, end: LoadEnd, name: &str, change: &ChangeArgs) -> Result<LoadJob> {
        let t = &self.traffic;
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
            _ => self.server_ports,
        };
        let rate = wb_model::load::LoadRate::default();
        let holds = change
            .cc
            .or(change.rps)
            .or(change.pps)
            .or(change.bps)
            .is_some();
        let paced = change.rps.or(change.pps).or(change.bps).is_some();
        let request = self.request();
        let answer = match (&t.answer, t.udp) {
            (Some(answer), _) => answer.clone(),
            (None, true) => LoadAnswer::Echo,
            (None, false) if matches!(request, LoadMessage::Http(_)) => LoadAnswer::default(),
            (None, false) => LoadAnswer::Echo,
        };
        let alone = self.client.is_none();
        let mut shape = LoadShape {
            rise: t.rise,
            profile: t.profile.clone(),
            ..LoadShape::default()
        };
        if !client && alone {
            shape.duration = Span::default();
        }
        let mut job = LoadJob {
            name: name.to_owned(),
            port: name.to_owned(),
            gateway_mac: self.gateway_mac.filter(|_| client),
            end,
            transport: match t.udp {
                true => LoadTransport::Udp,
                false => LoadTransport::Tcp,
            },
            // A device between our ends may translate addresses, so the server answers anyone there.
            clients: match (client, self.clients.is_empty() || !alone) {
                (false, true) => Vec::new(),
                _ => or(&self.clients, src),
            },
            servers,
            client_ports: self.client_ports,
            server_ports,
            order: t.order,
            vlan: t.vlan,
            tos: t.tos,
            reading: self.reading(end, &request, &answer),
            pipeline: t.pipeline,
            flood: t.flood && client,
            close: t.close,
            rate,
            shape,
            proxy: self.tcp.proxy && !client,
            ..LoadJob::default()
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
        let tcp = &self.tcp;
        job.tcp.mss = tcp.mss;
        job.tcp.window = tcp.window;
        job.tcp.retransmit = tcp.retransmit;
        job.tcp.tries = tcp.tries;
        job.tcp.connect_timeout = tcp.connect_timeout;
        job.tcp.response_timeout = tcp.response_timeout;
        job.tcp.close_timeout = tcp.close_timeout;
        job.tcp.idle_timeout = tcp.idle_timeout;
        job.tcp.time_wait = tcp.time_wait;
        job.tcp.reset_unknown = tcp.reset_unknown;
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
        let t = &self.traffic;
        HttpRequest {
            method: t.method.clone(),
            path: path.to_owned(),
            host: t.host.clone(),
            body: t.body,
            size: 0,
        }
    }

    /// What fits the messages of the other end.
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

/// How a message is read that is a file's content. What cannot be read is told of when it is read.
fn of_file(path: &str) -> LoadReading {
    match std::fs::metadata(path).map(|file| u32::try_from(file.len())) {
        Ok(Ok(len)) if len > 0 => LoadReading::Bytes(len),
        _ => LoadReading::Segment,
    }
}
