//! Native options for loads.

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
use crate::args::{count_in, take, xdp_mode};

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
    /// Source ports of connections.
    #[arg(long, value_name = "PORTS", default_value = "1024-65535")]
    client_ports: PortRange,
    /// Ports of the server.
    #[arg(long, value_name = "PORTS", default_value = "80")]
    server_ports: PortRange,
    /// Ports on which the server answers, if a device translates ports.
    #[arg(long, value_name = "PORTS")]
    backend_ports: Option<PortRange>,
    /// Own address of the client port, which its gateway resolves; repeatable.
    #[arg(long, value_name = "ADDR")]
    client_address: Vec<AddressRange>,
    /// Own address of the server port.
    #[arg(long, value_name = "ADDR")]
    server_address: Vec<AddressRange>,
    /// Number of workers of the client port, 1 to 64, which share its queues.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = count_in::<u32>(0..))]
    workers: u32,
    /// Number of workers of the server port, 1 to 64.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = count_in::<u32>(0..))]
    server_workers: u32,
    /// CPUs for the workers, client first: 2,3 or 2-5 [default: chosen by the program].
    #[arg(long, value_name = "LIST")]
    cpus: Option<String>,
    /// Next hop of all frames from the client [default: the destination].
    #[arg(long, value_name = "ADDR")]
    gateway: Option<std::net::IpAddr>,
    /// Hardware address of the client's next hop, if it does not answer ARP or neighbour discovery.
    #[arg(long, value_name = "MAC")]
    gateway_mac: Option<Mac>,
    /// Next hop of all frames from the server [default: the sender of the received frame].
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
    /// Use UDP instead of TCP.
    #[arg(long)]
    udp: bool,
    /// Request: http, http:/path, bytes:N, random:N, file:PATH, or over UDP snmp:COMMUNITY (sysUpTime.0 of SNMPv2c,
    /// at --server-ports 161) [default: http; UDP: bytes:18].
    #[arg(long, value_name = "MESSAGE", value_parser = request)]
    request: Option<LoadMessage>,
    /// Method of HTTP requests.
    #[arg(long, value_name = "METHOD", default_value = "GET")]
    method: String,
    /// Host header of HTTP requests; empty: address of the server.
    #[arg(long, value_name = "NAME", default_value = "")]
    host: String,
    /// Size of the HTTP request body, in bytes.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = count_in::<u32>(0..))]
    body: u32,
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
    /// Number of requests sent back to back, 1 to 100.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = count_in::<u16>(0..))]
    pipeline: u16,
    /// Send SYN packets or datagrams without waiting for answers.
    #[arg(long)]
    flood: bool,
    /// Method of closing a connection by the client: fin or reset.
    #[arg(long, value_name = "HOW", default_value = "fin", value_parser = close)]
    close: LoadClose,
    /// Order of addresses and ports: sequential, stride or random.
    #[arg(long, value_name = "ORDER", default_value = "sequential", value_parser = order)]
    order: TupleOrder,
    /// Shape of the ramp: linear, steps or exponential.
    #[arg(long, value_name = "HOW", default_value = "linear", value_parser = rise)]
    rise: LoadRise,
    /// Share of the rate over time: 0s:0.1,5s:1,20s:0.5.
    #[arg(long, value_name = "TIME:SHARE", value_delimiter = ',', value_parser = point)]
    profile: Vec<ProfilePoint>,
    /// VLAN id of all frames.
    #[arg(long, value_name = "ID")]
    vlan: Option<u16>,
    /// IPv4 type of service or IPv6 traffic class.
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    tos: u8,
}

#[derive(Args, Debug)]
#[command(next_help_heading = "TCP")]
struct TcpArgs {
    /// Maximum segment size in bytes; 0: derived from the MTU.
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    mss: u16,
    /// Receive window in bytes.
    #[arg(long, value_name = "BYTES", default_value_t = 1 << 20)]
    window: u32,
    /// Initial retransmission timeout, until the round trip is measured; afterwards the minimum of the timeout,
    /// capped at 200 ms.
    #[arg(long, value_name = "TIME", default_value = "1s")]
    retransmit: Span,
    /// Maximum transmissions of a segment, 1 to 255.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = count_in::<u8>(1..))]
    tries: u8,
    /// Time limit from the first SYN to its answer; 0s: no limit.
    #[arg(long, value_name = "TIME", default_value = "10s")]
    connect_timeout: Span,
    /// Time limit from a request to the end of its response; 0s: no limit.
    #[arg(long, value_name = "TIME", default_value = "10s")]
    response_timeout: Span,
    /// Time limit from the sent FIN to the end of the connection; 0s: no limit.
    #[arg(long, value_name = "TIME", default_value = "10s")]
    close_timeout: Span,
    /// Server: time limit without data from the client; 0s: no limit.
    #[arg(long, value_name = "TIME", default_value = "1m")]
    idle_timeout: Span,
    /// Time before the addresses and ports of a closed connection are reused; 0s: immediately.
    #[arg(long, value_name = "TIME", default_value = "0s")]
    time_wait: Span,
    /// Answer segments of unknown connections with RST.
    #[arg(long)]
    reset_unknown: bool,
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

fn close(text: &str) -> Result<LoadClose, String> {
    match text {
        "fin" => Ok(LoadClose::Fin),
        "reset" => Ok(LoadClose::Reset),
        _ => Err("expected fin or reset".to_owned()),
    }
}

fn order(text: &str) -> Result<TupleOrder, String> {
    match text {
        "sequential" => Ok(TupleOrder::Sequential),
        "stride" => Ok(TupleOrder::Stride),
        "random" => Ok(TupleOrder::Random),
        _ => Err("expected sequential, stride or random".to_owned()),
    }
}

fn rise(text: &str) -> Result<LoadRise, String> {
    match text {
        "linear" => Ok(LoadRise::Linear),
        "steps" => Ok(LoadRise::Steps),
        "exponential" => Ok(LoadRise::Exponential),
        _ => Err("expected linear, steps or exponential".to_owned()),
    }
}

fn point(text: &str) -> Result<ProfilePoint, String> {
    let wrong = || format!("expected TIME:SHARE, such as 5s:0.5, got {text:?}");
    let (at, share) = text.split_once(':').ok_or_else(wrong)?;
    Ok(ProfilePoint {
        at: at.parse().map_err(|_| wrong())?,
        share: share.parse().map_err(|_| wrong())?,
    })
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
                bail!("{option}: no configuration file is for that end");
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
                anyhow::anyhow!("--cpus: expected a list of CPUs such as 2,3 or 2-5, got {text:?}")
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
            bail!("load needs --client PORT, --server PORT or a configuration file");
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
            // A device between the ends may translate addresses, so the server then accepts any client.
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
