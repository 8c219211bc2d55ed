//! Translation of a configuration into a plan: one port and one load job for each `port` line.
//!
//! A job gets the share of the load that dperf gives to the workers of its port. The engine that opens the port
//! decides on the steering of answers and on the use of ports with fewer queues than CPUs.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops;

use wb_model::load::{
    Destinations, HttpRequest, LoadAnswer, LoadClose, LoadEnd, LoadJob, LoadMessage, LoadRate,
    LoadReading, LoadRise, LoadShape, LoadTcp, LoadTransport, TupleOrder, Vxlan,
};
use wb_model::units::{AddressRange, PortRange, Span};
use wb_model::validate::PlanProblem;
use wb_model::{Locator, PortPlan};

use crate::config::{
    AddressSpan, ChangeDip, Config, DRAIN, DperfDevice, HTTP_LEN, Method, Protocol, Steering,
};
use crate::problem::{Code, Problem, Severity};

/// Information that the file does not contain.
#[derive(Clone, Debug, Default)]
pub struct TranslateOptions {
    /// Port of each device, by PCI address, with or without the domain, or by the text of the `port` line.
    /// `if:NAME` needs no entry.
    pub locators: BTreeMap<String, Locator>,
}

/// A configuration as parts of a plan.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TranslatedPlan {
    /// `port 1`, `port 2`, … in the order of the lines.
    pub ports: Vec<PortPlan>,
    /// The job of each port.
    pub jobs: Vec<LoadJob>,
    /// Notes for the user, one line each, with the place in the file if there is one.
    pub notes: Vec<String>,
}

/// Translates `config` into parts of a plan. Checks it by our rules ([`Config::check`]) first.
///
/// Sizes are exact: dperf sends a GET one byte shorter than configured, a job sends the configured size.
///
/// # Errors
/// All errors of the check. Otherwise: devices without a port, two devices with the same port, messages shorter
/// than the request they must hold, and settings that are impossible for a single port.
pub fn translate(
    config: &Config,
    options: &TranslateOptions,
) -> Result<TranslatedPlan, Vec<Problem>> {
    let mut problems = only_errors(config.check(false));
    if !problems.is_empty() {
        return Err(problems);
    }
    let mut made = TranslatedPlan::default();
    for index in 0..config.ports.len() {
        let port = PortTranslation::new(config, index);
        problems.extend(port.port_problems());
        match port.device_locator(options) {
            Ok(locator) => {
                let plan = port.port_plan(locator);
                problems.extend(port.shares_interface(&plan, &made.ports));
                made.ports.push(plan);
            }
            Err(problem) => problems.push(problem),
        }
        let job = port.load_job();
        problems.extend(job.problems().into_iter().map(|p| port.locate_problem(p)));
        made.jobs.push(job);
        made.notes.extend(port.notes(made.ports.last()));
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    made.notes.extend(without_effect(config));
    Ok(made)
}

fn only_errors(problems: Vec<Problem>) -> Vec<Problem> {
    problems
        .into_iter()
        .filter(|p| p.severity == Severity::Error)
        .collect()
}

/// A problem at the `n`-th line of `keyword`.
fn problem_at(
    config: &Config,
    code: Code,
    keyword: (&str, usize),
    text: String,
    allowed: String,
) -> Problem {
    Problem {
        file: config.places.file.clone(),
        line: config.places.line(keyword.0, keyword.1),
        code,
        severity: code.severity(),
        text,
        allowed,
    }
}

/// A note with the line of `keyword`, if it has one.
fn note_at(config: &Config, keyword: &str, text: &str) -> String {
    match config.places.line(keyword, 0) {
        Some(line) => format!("{}:{line}: {text}", config.places.file),
        None => text.to_owned(),
    }
}

/// One port, and the part of the file that applies to it.
struct PortTranslation<'a> {
    whole: &'a Config,
    /// Number of the port, from 0.
    index: usize,
    /// The file reduced to this port: its addresses, CPUs, sizes and share of the load. All values that depend on
    /// the address family are then those of this port.
    own: Config,
}

impl<'a> PortTranslation<'a> {
    fn new(whole: &'a Config, index: usize) -> Self {
        let workers = port_workers(whole, index);
        let server = whole.servers[index].clone();
        let v6 = server.first.is_ipv6();
        let own = Config {
            ports: vec![whole.ports[index].clone()],
            cpus: whole.cpus[workers.clone()].to_vec(),
            clients: match whole.is_client() {
                true => vec![whole.clients[index].clone()],
                false => whole
                    .clients
                    .iter()
                    .filter(|c| c.first.is_ipv6() == v6)
                    .cloned()
                    .collect(),
            },
            servers: vec![server],
            vxlans: whole.vxlans.get(index).copied().into_iter().collect(),
            payload_sizes: match whole.payload_sizes.len() {
                0 | 1 => whole.payload_sizes.clone(),
                _ => whole.payload_sizes[workers.clone()].to_vec(),
            },
            cps: whole.cps().map(|cps| workers_share(whole, cps, &workers)),
            cc: whole.cc().map(|cc| workers_share(whole, cc, &workers)),
            ..whole.clone()
        };
        Self { whole, index, own }
    }

    /// The name of the port.
    fn name(&self) -> String {
        format!("port {}", self.index + 1)
    }

    fn port_problem(&self, code: Code, keyword: &str, text: String, allowed: String) -> Problem {
        // Only these have a line for each port.
        let line = match keyword {
            "port" | "server" => self.index,
            _ => 0,
        };
        problem_at(self.whole, code, (keyword, line), text, allowed)
    }

    /// Settings that are impossible for this port although the file as a whole is consistent.
    fn port_problems(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        let (own, v6) = (&self.own, self.own.is_ipv6());
        if own.clients.is_empty() {
            problems.push(self.port_problem(
                Code::Family,
                "server",
                format!(
                    "no client address has the IP version of {}",
                    own.servers[0].first
                ),
                "a client line of this IP version".to_owned(),
            ));
        }
        if own.change_dip.iter().any(|d| d.first.is_ipv6() != v6) {
            problems.push(self.port_problem(
                Code::Family,
                "change_dip",
                format!(
                    "change_dip has another IP version than the servers of {}",
                    self.name()
                ),
                "one file for each IP version".to_owned(),
            ));
        }
        if v6 != self.whole.is_ipv6() {
            // The rules used the family of the first port for the whole file.
            let measured = [Code::Mss, Code::PayloadLarge, Code::PacketSize];
            problems.extend(
                only_errors(own.check(false))
                    .into_iter()
                    .filter(|p| measured.contains(&p.code)),
            );
        }
        if let Some(size) = self.http_size() {
            let bare = Config {
                payload_sizes: Vec::new(),
                packet_size: None,
                ..own.clone()
            };
            let least = bare.message_len(0).unwrap_or(0);
            if size < least {
                let keyword = match own.packet_size {
                    Some(_) => "packet_size",
                    None => "payload_size",
                };
                problems.push(self.port_problem(
                    Code::PayloadSmall,
                    keyword,
                    format!("a request of {size} bytes: path and host alone need {least}"),
                    format!("up to {} bytes, or from {least}", HTTP_LEN - 1),
                ));
            }
        }
        problems
    }

    /// Locator of the device.
    fn device_locator(&self, options: &TranslateOptions) -> Result<Locator, Problem> {
        let device = &self.own.ports[0].device;
        if let Some(locator) = mapped_locator(device, &options.locators) {
            return Ok(locator);
        }
        let unknown = |text: String, allowed: String| {
            Err(self.port_problem(Code::Device, "port", text, allowed))
        };
        match device.interface() {
            Some(name) => match name.parse::<Locator>() {
                Ok(locator) if locator.is_interface() => Ok(locator),
                _ => unknown(
                    format!("{device} does not name an interface"),
                    "if:IF, if:NODE/IF, vdev:DRIVER,iface=IF".to_owned(),
                ),
            },
            None => unknown(
                format!("the interface of device {device} is unknown"),
                format!("--port {device}=IF"),
            ),
        }
    }

    fn shares_interface(&self, plan: &PortPlan, others: &[PortPlan]) -> Option<Problem> {
        let place = plan.locator.place();
        let other = others.iter().find(|o| o.locator.place() == place)?;
        let device = &self.own.ports[0].device;
        Some(self.port_problem(
            Code::PciDup,
            "port",
            format!("{device} is {place}, which {} already uses", other.name),
            "one interface for each port".to_owned(),
        ))
    }

    fn port_plan(&self, locator: Locator) -> PortPlan {
        let port = &self.own.ports[0];
        PortPlan {
            workers: self.own.cpus.len() as u32,
            cpus: self.own.cpus.clone(),
            addresses: self.announced_addresses(),
            gateway: Some(port.gateway),
            ..PortPlan::new(self.name(), locator)
        }
    }

    /// Addresses that the port answers for: first its own, then the addresses of the load. With
    /// a tunnel, the latter are the local tunnel addresses.
    fn announced_addresses(&self) -> Vec<AddressRange> {
        let own = AddressRange::single(self.own.ports[0].ip);
        let used = match self.tunnel() {
            Some(tunnel) => vec![tunnel.local],
            None if self.own.neigh_ignore => Vec::new(),
            None if self.own.is_client() => address_ranges(&self.own.clients),
            None => address_ranges(&self.own.servers),
        };
        std::iter::once(own)
            .chain(used.into_iter().filter(|range| *range != own))
            .collect()
    }

    fn tunnel(&self) -> Option<Vxlan> {
        let tunnel = self.own.vxlans.first()?;
        Some(Vxlan {
            vni: tunnel.vni,
            src_mac: tunnel.src_mac,
            dst_mac: tunnel.dst_mac,
            local: address_range(tunnel.local, 1, u32::from(tunnel.local_count)),
            remote: address_range(tunnel.remote, 1, u32::from(tunnel.remote_count)),
        })
    }

    fn load_job(&self) -> LoadJob {
        let c = &self.own;
        let (ports, listen) = (c.client_ports(), c.listen());
        let client = c.is_client();
        let end = if client {
            LoadEnd::Client
        } else {
            LoadEnd::Server
        };
        let side = if client { "client" } else { "server" };
        let (answer, worker_answers) = self.answers();
        LoadJob {
            name: format!("{side} {}", self.index + 1),
            port: self.name(),
            gateway_mac: c.ports[0].gateway_mac,
            end,
            transport: if c.is_udp() {
                LoadTransport::Udp
            } else {
                LoadTransport::Tcp
            },
            clients: address_ranges(&c.clients),
            servers: address_ranges(&c.servers),
            client_ports: PortRange {
                first: ports.min,
                last: ports.max,
            },
            server_ports: PortRange {
                first: listen.first,
                last: listen.first + (listen.count - 1),
            },
            order: if client && c.client_hop {
                TupleOrder::Stride
            } else {
                TupleOrder::Sequential
            },
            server_per_worker: c.steering() == Steering::ServerIp,
            destinations: worker_destinations(self.whole, &port_workers(self.whole, self.index)),
            vlan: c.vlan,
            vxlan: self.tunnel(),
            tos: c.tos.unwrap_or(0),
            request: if client {
                self.request_message()
            } else {
                LoadMessage::default()
            },
            answer,
            worker_answers,
            random_filler: c.payload_random && self.fills_http(),
            reading: match c.protocol() {
                Protocol::Http if client => LoadReading::Http,
                // Except for HTTP clients, dperf treats any segment with data as a whole message.
                _ => LoadReading::Segment,
            },
            requests: self.requests(),
            interval: match c.keepalive.filter(|_| client) {
                Some(keepalive) => Span::from_nanos(keepalive.interval_ns),
                None => Span::default(),
            },
            pipeline: u16::from(c.pipeline.unwrap_or(1)),
            flood: c.floods(),
            close: if c.fast_close {
                LoadClose::Reset
            } else {
                LoadClose::Fin
            },
            rate: self.load_rate(),
            shape: LoadShape {
                wait: Span::from_secs(c.wait_s().into()),
                ramp: Span::from_secs(c.slow_start_s().into()),
                rise: LoadRise::Linear,
                duration: Span::from_secs(c.duration_s().into()),
                drain: Span::from_secs(DRAIN.into()),
                profile: Vec::new(),
            },
            batch: c.tx_burst.unwrap_or(0),
            tcp: self.tcp_settings(),
            ..LoadJob::default()
        }
    }

    /// Bytes of a request that is HTTP with a fixed size.
    fn http_size(&self) -> Option<u32> {
        let c = &self.own;
        c.payload(0)
            .filter(|n| c.is_client() && !c.is_udp() && *n >= HTTP_LEN)
    }

    /// Returns true if letters fill an HTTP message.
    fn fills_http(&self) -> bool {
        let (_, several) = self.answers();
        let filled = |answer: &LoadAnswer| matches!(answer, LoadAnswer::Http(_));
        let c = &self.own;
        match c.is_client() {
            true => self.http_size().is_some(),
            false => {
                several.iter().any(filled) || (c.payload(0).is_some() && filled(&self.answer_of(0)))
            }
        }
    }

    fn request_message(&self) -> LoadMessage {
        let c = &self.own;
        if let Some(path) = &c.payload_file {
            return LoadMessage::File(path.clone());
        }
        let plain = match c.payload_random {
            true => LoadMessage::Random,
            false => LoadMessage::Bytes,
        };
        match c.payload(0) {
            None if c.is_udp() => LoadMessage::Bytes(0),
            Some(size) if c.is_udp() || size < HTTP_LEN => plain(size),
            size => LoadMessage::Http(HttpRequest {
                method: match c.http_method {
                    Method::Get => "GET",
                    Method::Post => "POST",
                }
                .to_owned(),
                path: c.http_path.clone().unwrap_or_else(|| "/".to_owned()),
                host: c.http_host.clone().unwrap_or_else(|| "dperf".to_owned()),
                body: 0,
                size: size.unwrap_or(0),
            }),
        }
    }

    /// The common answer of all workers, or the answer of each.
    fn answers(&self) -> (LoadAnswer, Vec<LoadAnswer>) {
        if self.own.is_client() {
            return (LoadAnswer::default(), Vec::new());
        }
        let all: Vec<_> = (0..self.own.cpus.len())
            .map(|w| self.answer_of(w))
            .collect();
        let first = all[0].clone();
        match all.iter().all(|a| *a == first) {
            true => (first, Vec::new()),
            false => (first, all),
        }
    }

    fn answer_of(&self, worker: usize) -> LoadAnswer {
        let c = &self.own;
        if let Some(path) = &c.payload_file {
            return LoadAnswer::File(path.clone());
        }
        let plain = match c.payload_random {
            true => LoadAnswer::Random,
            false => LoadAnswer::Bytes,
        };
        match c.payload(worker) {
            None if c.is_udp() => LoadAnswer::Bytes(0),
            None => LoadAnswer::Http(c.message_len(worker).unwrap_or(0) - HTTP_LEN),
            Some(size) if c.is_udp() || size < HTTP_LEN => plain(size),
            Some(size) => LoadAnswer::Http(size - HTTP_LEN),
        }
    }

    /// Requests or answers of a connection; 0 is no limit.
    fn requests(&self) -> u32 {
        let c = &self.own;
        match c.is_client() {
            true => c.requests().unwrap_or(0),
            // Each datagram is answered as it arrives; the client alone applies NUM.
            false => u32::from(!c.is_udp() && c.keepalive.is_none()),
        }
    }

    fn load_rate(&self) -> LoadRate {
        let c = &self.own;
        let Some(cps) = c.cps() else {
            return LoadRate::default();
        };
        // The first worker gets the remainder, so no worker opens more.
        let whole = self.whole.cps().unwrap_or(0);
        let first = port_workers(self.whole, self.index).start as u32;
        let worker = self.whole.worker_share(whole, first);
        LoadRate {
            cps: Some(cps.into()),
            cc: c.cc().map(u64::from),
            // A worker with less than one group per second opens its whole share at once.
            group: c.launch_num(worker).min(worker).max(1),
            ..LoadRate::default()
        }
    }

    fn tcp_settings(&self) -> LoadTcp {
        let c = &self.own;
        let lost = Span::from_secs(c.retransmit_timeout_s().into());
        let in_flight = (0..c.cpus.len())
            .map(|worker| c.send_window(worker))
            .max()
            .filter(|_| !c.is_client());
        let mut tcp = LoadTcp {
            mss: c.mss(),
            // 40 segments of 1460 bytes, with a scale of 13.
            window: 58_400 << 13,
            in_flight: in_flight.unwrap_or(0).into(),
            retransmit: lost,
            // The next expiry, the fourth, ends the connection.
            tries: 3,
            backoff: false,
            // dperf has no such limits, apart from lost datagrams.
            connect_timeout: Span::default(),
            response_timeout: Span::default(),
            close_timeout: Span::default(),
            acknowledge: !(c.is_client() && c.disable_ack),
            reset_unknown: c.answers_rst(),
            like_dperf: true,
            ..LoadTcp::default()
        };
        if !c.is_client() {
            // A tenth longer than the client's, so that the two sides do not retransmit at the same time.
            tcp.retransmit = Span::from_millis(u64::from(c.retransmit_timeout_s()) * 1100);
            tcp.idle_timeout = Span::from_nanos(c.idle_timeout_ns());
        } else if c.is_udp() && c.keepalive.is_none() {
            tcp.response_timeout = lost;
        }
        tcp
    }

    /// Converts a problem of the job into one with a line of the file.
    fn locate_problem(&self, found: PlanProblem) -> Problem {
        let (code, keyword) = match found.place.as_str() {
            "rate.cc" => (Code::Tuples, "cc"),
            "request.http.host" => (Code::Value, "http_host"),
            "request.http.path" => (Code::Value, "http_path"),
            _ => (Code::Value, "port"),
        };
        let text = format!("{}: {}", self.name(), found.what);
        self.port_problem(code, keyword, text, String::new())
    }

    fn notes(&self, plan: Option<&PortPlan>) -> Vec<String> {
        let c = &self.own;
        let mut notes = Vec::new();
        if let (Some(mtu), Some(plan)) = (c.jumbo, plan) {
            let text = format!(
                "{} needs an MTU of {mtu}: ip link set dev {} mtu {mtu}",
                self.name(),
                plan.locator.name
            );
            notes.push(note_at(c, "jumbo", &text));
        }
        if c.cps() == Some(0) {
            let text = format!(
                "the load is too small for {}, which stays idle",
                self.name()
            );
            notes.push(note_at(self.whole, "cps", &text));
        }
        let request = c.message_len(0).filter(|_| c.is_client() && !c.is_udp());
        if let Some(len) = request.filter(|len| *len > u32::from(c.mss())) {
            let text = format!(
                "requests of {len} bytes are sent in segments of {}; dperf sends them in one",
                c.mss()
            );
            notes.push(note_at(c, "mss", &text));
        }
        notes
    }
}

/// Workers of port `index`, by number: the first block belongs to the first port.
fn port_workers(config: &Config, index: usize) -> ops::Range<usize> {
    let queues = config.queues();
    index * queues..(index + 1) * queues
}

/// Share of `workers` in `target`.
fn workers_share(config: &Config, target: u32, workers: &ops::Range<usize>) -> u32 {
    workers
        .clone()
        .map(|worker| config.worker_share(target, worker as u32))
        .sum()
}

/// Destinations of `workers` in `change_dip`: with n workers in total, worker w has every n-th address,
/// starting at number w.
fn worker_destinations(config: &Config, workers: &ops::Range<usize>) -> Vec<Destinations> {
    let row = |first: IpAddr, step: u64, count: u32| Destinations {
        addresses: address_range(first, step, count),
        step,
    };
    let all = config.cpus.len() as u32;
    if workers.len() == config.cpus.len() {
        let whole = |line: &ChangeDip| row(line.first, line.step.into(), line.count);
        return config.change_dip.iter().map(whole).collect();
    }
    let mut part = Vec::new();
    // Number of the worker that gets the first address of a line.
    let mut turn = 0;
    for line in &config.change_dip {
        let step = u64::from(line.step);
        for worker in workers.clone() {
            let first = (worker as u32 + all - turn) % all;
            if first < line.count {
                let count = (line.count - first).div_ceil(all);
                part.push(row(
                    address_at_step(line.first, step, first),
                    step * u64::from(all),
                    count,
                ));
            }
        }
        turn = (turn + line.count % all) % all;
    }
    part
}

/// `count` addresses from `first`, each `step` after the one before it.
fn address_range(first: IpAddr, step: u64, count: u32) -> AddressRange {
    let last = address_at_step(first, step, count.saturating_sub(1));
    // The parser accepts only lines whose last address exists.
    AddressRange::between(first, last).unwrap_or(AddressRange::single(first))
}

/// The address `n` steps after `first`.
fn address_at_step(first: IpAddr, step: u64, n: u32) -> IpAddr {
    let way = step.saturating_mul(n.into());
    match first {
        IpAddr::V4(a) => Ipv4Addr::from_bits(a.to_bits().wrapping_add(way as u32)).into(),
        IpAddr::V6(a) => Ipv6Addr::from_bits(a.to_bits().wrapping_add(way.into())).into(),
    }
}

fn address_ranges(ranges: &[AddressSpan]) -> Vec<AddressRange> {
    ranges
        .iter()
        .flat_map(|range| {
            let row = address_range(range.first, 1, u32::from(range.count));
            std::iter::once(row).chain(range.more.iter().copied().map(AddressRange::single))
        })
        .collect()
}

/// The locator given for a device.
fn mapped_locator(device: &DperfDevice, locators: &BTreeMap<String, Locator>) -> Option<Locator> {
    let text = device.to_string();
    let ids = device.pci_ids();
    let (_, locator) = locators.iter().find(|(key, _)| {
        let key_ids = DperfDevice::Pci((*key).clone()).pci_ids();
        // A bond is found by any of its members.
        **key == text || key_ids.iter().any(|id| ids.contains(id))
    })?;
    Some(locator.clone())
}

/// Keywords that only affect DPDK.
fn without_effect(config: &Config) -> Vec<String> {
    [
        ("socket_mem", "memory is allocated when needed"),
        ("simd512", "it is for DPDK drivers"),
        ("log_level", "it is for DPDK; -v logs more"),
        ("flow_isolate", "other traffic is left to the kernel anyway"),
    ]
    .into_iter()
    .filter(|(keyword, _)| config.places.has_keyword(keyword))
    .map(|(keyword, why)| note_at(config, keyword, &format!("{keyword} has no effect: {why}")))
    .chain(
        config
            .keepalive
            .and_then(|k| k.more_requests)
            .filter(|_| config.is_client() && config.is_udp())
            .map(|_| {
                let text = "NUM has no effect with UDP, as in dperf: requests continue to the end";
                note_at(config, "keepalive", text)
            }),
    )
    .collect()
}
