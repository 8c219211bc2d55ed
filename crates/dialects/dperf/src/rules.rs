//! Rules between keywords.
//!
//! A finding names its keywords instead of a line.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use crate::config::{AddressSpan, Config, DperfDevice, ETHERNET_LEN, Method, Protocol, Steering};
use crate::keywords::{KEYWORDS, KeywordSide};
use crate::problem::Code;

/// One violated rule.
pub(crate) struct RuleViolation {
    pub(crate) code: Code,
    /// Keywords of the finding; the first one in the file gives the line.
    pub(crate) keywords: Vec<&'static str>,
    /// Line of the finding, if it is not the first line of a keyword.
    pub(crate) line: Option<u32>,
    pub(crate) text: String,
    pub(crate) allowed: String,
}

struct RuleChecker<'a> {
    config: &'a Config,
    strict: bool,
    findings: Vec<RuleViolation>,
}

/// All rules that `config` violates; see [`Config::check`] for `strict`.
pub(crate) fn all_violations(config: &Config, strict: bool) -> Vec<RuleViolation> {
    let mut judge = RuleChecker {
        config,
        strict,
        findings: Vec::new(),
    };
    judge.transport();
    judge.load();
    judge.pipeline();
    judge.http();
    judge.addresses();
    judge.ports();
    judge.payload();
    judge.workers();
    judge.tunnels();
    judge.families();
    judge.ranges();
    judge.steering();
    judge.destinations();
    judge.tuples();
    judge.sides();
    if strict {
        judge.strictly();
    } else {
        judge.left_to_the_kernel();
    }
    judge.findings
}

/// Rules, in the order in which they are reported. Each rule: condition of the violation; code; keywords and, for
/// a keyword with several lines, its line; text; allowed values.
macro_rules! rules {
    ($judge:ident: $($broken:expr => $code:ident [$($keyword:ident)*] $(at $line:ident)?,
        $text:literal, $allowed:literal;)*) => {$(
        if $broken {
            $judge.findings.push(RuleViolation {
                code: Code::$code,
                keywords: vec![$(stringify!($keyword)),*],
                line: None$(.or($line))?,
                text: format!($text),
                allowed: format!($allowed),
            });
        }
    )*};
}

impl RuleChecker<'_> {
    fn line(&self, keyword: &str, n: usize) -> Option<u32> {
        self.config.places.line(keyword, n)
    }

    fn transport(&mut self) {
        let c = self.config;
        let (mss, mtu, ceiling) = (c.mss(), c.mtu(), c.mss_ceiling());
        let why = match (c.is_client(), c.is_udp()) {
            (false, _) => "fast_close in server mode",
            (true, true) => "fast_close needs TCP",
            (true, false) => "",
        };
        rules! { self:
            mss > ceiling => Mss [mss jumbo],
                "mss {mss} is more than the MTU of {mtu} leaves", "1 to {ceiling}";
            c.fast_close && !why.is_empty() => FastClose [fast_close protocol],
                "{why}", "mode client with protocol tcp or http";
        }
    }

    fn load(&mut self) {
        let c = self.config;
        let client = c.is_client();
        rules! { self:
            !client && c.wait.is_some() => ClientOnly [wait],
                "wait in server mode", "leave it out, or mode client";
            !client && c.slow_start.is_some() => ClientOnly [slow_start],
                "slow_start in server mode", "leave it out, or mode client";
            client && c.cc.is_some() && c.keepalive.is_none() => CcKeepalive [cc keepalive],
                "cc without keepalive: connections would not stay open", "cc with keepalive INTERVAL";
            client && c.flood && c.keepalive.is_some_and(|k| k.interval_ns == 0) =>
                FloodInterval [keepalive flood],
                "flood does not wait for answers, so a keepalive interval of 0 has no rate",
                "an interval above 0";
            client && c.cps().is_none() => NoTarget [cps cc],
                "no load: neither cps nor cc", "cps RATE, cc RATE, or both";
        }
    }

    fn pipeline(&mut self) {
        let c = self.config;
        if c.pipeline.is_none() {
            return;
        }
        let waits = c.keepalive.is_some_and(|k| k.interval_ns > 0) && !c.floods();
        rules! { self:
            !c.is_client() => PipelineServer [pipeline keepalive protocol],
                "pipeline in server mode", "mode client";
            !c.is_udp() => PipelineTcp [pipeline keepalive protocol],
                "pipeline without UDP", "protocol udp";
            c.keepalive.is_none() => PipelineKeepalive [pipeline keepalive protocol],
                "pipeline without keepalive", "keepalive 0us, or flood and keepalive INTERVAL";
            waits => PipelineInterval [pipeline keepalive protocol],
                "pipeline with a keepalive interval above 0", "keepalive 0us, or flood";
        }
    }

    fn http(&mut self) {
        let c = self.config;
        let (client, host, path) = (c.is_client(), c.http_host.is_some(), c.http_path.is_some());
        let payload = !c.payload_sizes.is_empty() || c.payload_file.is_some();
        let other = client && c.protocol() != Protocol::Http;
        rules! { self:
            path && payload && c.http_method == Method::Get =>
                HttpPathPayload [http_path payload_size payload_file http_method],
                "http_path and a payload: in a GET the path is the payload",
                "one of the two, or http_method POST";
            host && !client => HttpServer [http_host], "http_host in server mode", "mode client";
            host && other => HttpProto [http_host protocol], "http_host without HTTP", "protocol http";
            path && !client => HttpServer [http_path], "http_path in server mode", "mode client";
            path && other => HttpProto [http_path protocol], "http_path without HTTP", "protocol http";
        }
    }

    fn addresses(&mut self) {
        let c = self.config;
        let mut low16: BTreeMap<u32, IpAddr> = BTreeMap::new();
        let mut seen: BTreeSet<IpAddr> = BTreeSet::new();
        for (n, range) in c.clients.iter().enumerate() {
            let line = self.line("client", n);
            // One address per line is enough to find the mistake.
            let mut clash = None;
            for ip in range.addresses() {
                let other = low16.insert(low_bits(ip), ip);
                let twice = !seen.insert(ip);
                if clash.is_none() && twice {
                    clash = Some(format!("client address {ip} twice"));
                }
                if let (None, true, Some(other)) = (&clash, self.strict, other) {
                    clash = Some(format!(
                        "client addresses {other} and {ip} share their low 16 bits"
                    ));
                }
            }
            let text = clash.unwrap_or_default();
            rules! { self: !text.is_empty() => ClientLow16 [client] at line, "{text}", "each address once"; }
        }
        for (n, range) in c.servers.iter().enumerate() {
            let line = self.line("server", n);
            if let Some(ip) = c.servers[..n]
                .iter()
                .find_map(|other| shared_address(range, other))
            {
                rules! { self: true => ServerDup [server] at line,
                "server address {ip} twice", "each address once"; }
            }
        }
        // A server is never its own client, so an overlap is harmless there.
        let overlaps = self.strict || c.is_client();
        for (n, range) in c.clients.iter().enumerate().filter(|_| overlaps) {
            let line = self.line("client", n);
            if let Some(ip) = c
                .servers
                .iter()
                .find_map(|server| shared_address(range, server))
            {
                rules! { self: true => AddrOverlap [client server] at line,
                "{ip} is both a client and a server address", "ranges that do not overlap"; }
            }
        }
    }

    fn ports(&mut self) {
        let c = self.config;
        let (other, own, ours, theirs) = match c.is_client() {
            true => (&c.servers, &c.clients, "client", "server"),
            false => (&c.clients, &c.servers, "server", "client"),
        };
        let within = |ranges: &[AddressSpan], ip: IpAddr| {
            ranges.iter().any(|r| r.addresses().any(|a| a == ip))
        };
        for (n, port) in c.ports.iter().enumerate() {
            let line = self.line("port", n);
            let (ip, gateway, device) = (port.ip, port.gateway, &port.device);
            let twice = |p: &crate::config::Port| match device {
                DperfDevice::Interface(_) | DperfDevice::Virtual(_) => p.device == *device,
                _ => p
                    .device
                    .pci_ids()
                    .iter()
                    .any(|id| device.pci_ids().contains(id)),
            };
            rules! { self:
                within(other, ip) => LocalConflict [port client server] at line,
                    "the port's IP {ip} is in a {theirs} range", "a free address or one of the {ours} range";
                within(own, gateway) => GwConflict [port client server] at line,
                    "the gateway {gateway} is in a {ours} range", "an address of another host";
                c.ports[..n].iter().any(|p| p.ip == ip) => PortIpDup [port] at line,
                    "two ports have the IP {ip}", "one for each port";
                c.ports[..n].iter().any(twice) => PciDup [port] at line,
                    "{device} is another port already", "one device for each port";
            }
        }
    }

    fn payload(&mut self) {
        let c = self.config;
        let (count, cpus) = (c.payload_sizes.len(), c.cpus.len());
        rules! { self:
            count > 1 && c.is_client() => PayloadMany [payload_size],
                "{count} payload sizes in client mode", "one";
            count > 1 && !c.is_client() && count != cpus => PayloadCount [payload_size cpu],
                "payload sizes: {count}, CPUs: {cpus}", "one, or one for each CPU";
            count > 0 && c.payload_file.is_some() => PayloadBoth [payload_file payload_size],
                "payload_size and payload_file", "one of the two";
        }
        if !self.strict {
            self.packet_size();
        }
        // Long responses are sent in segments; all other messages must fit one packet.
        if !c.is_client() && !c.is_udp() {
            return;
        }
        let most = u32::from(c.mtu().saturating_sub(c.header_len()));
        // A packet size is checked by a separate rule; dperf does not check it.
        if c.packet_size.is_some() && count == 0 {
            return;
        }
        let sizes = if count == 0 { 1 } else { count };
        if let Some(large) = (0..sizes)
            .filter_map(|i| c.message_len(i))
            .find(|n| *n > most)
        {
            rules! { self: true => PayloadLarge [payload_size http_path http_host protocol jumbo],
            "a message of {large} bytes does not fit one packet", "up to {most} bytes"; }
        }
    }

    fn packet_size(&mut self) {
        let c = self.config;
        let Some(size) = c.packet_size else {
            return;
        };
        let headers = ETHERNET_LEN + c.header_len();
        let (least, most) = (headers + 1, c.mtu() + ETHERNET_LEN);
        let another = !c.payload_sizes.is_empty() || c.payload_file.is_some();
        rules! { self:
            another => SizeBoth [packet_size payload_size payload_file protocol jumbo server],
                "packet_size and another size of messages", "one of packet_size, payload_size, payload_file";
            !(least..=most).contains(&size) =>
                PacketSize [packet_size payload_size payload_file protocol jumbo server],
                "a frame of {size} bytes without FCS has headers of {headers}", "{least} to {most}";
        }
    }

    fn workers(&mut self) {
        let c = self.config;
        let (cpus, ports) = (c.cpus.len(), c.ports.len());
        rules! { self:
            cpus == 0 => Cpu [cpu], "no cpu line", "cpu N|A-B …";
            ports == 0 => Port [port], "no port line", "port DEVICE IP GATEWAY [MAC]";
            ports > 0 && !cpus.is_multiple_of(ports) => CpuPortRatio [cpu port],
                "CPUs: {cpus}, ports: {ports}", "a multiple of the number of ports";
        }
    }

    fn tunnels(&mut self) {
        let c = self.config;
        let (vxlans, ports, queues) = (c.vxlans.len(), c.ports.len(), c.queues());
        rules! { self:
            vxlans > 0 && vxlans != ports => VxlanCount [vxlan port],
                "vxlan lines: {vxlans}, ports: {ports}", "one for each port";
        }
        for (n, tunnel) in c.vxlans.iter().enumerate() {
            let line = self.line("vxlan", n);
            let (locals, remotes) = (tunnel.local_count, tunnel.remote_count);
            rules! { self:
                usize::from(locals) != queues => VxlanLocal [vxlan cpu port] at line,
                    "local tunnel addresses: {locals}, queues: {queues}", "one for each queue of the port";
                remotes != 1 && usize::from(remotes) != queues => VxlanRemote [vxlan cpu port] at line,
                    "remote tunnel addresses: {remotes}, queues: {queues}",
                    "1, or one for each queue of the port";
                tunnel.local.is_ipv6() || tunnel.remote.is_ipv6() => Family [vxlan] at line,
                    "a tunnel over IPv6", "IPv4 tunnel addresses";
            }
        }
        let bond = c
            .ports
            .iter()
            .any(|p| matches!(p.device, DperfDevice::Bond { .. }));
        let with = if vxlans > 0 { "vxlan" } else { "a bond" };
        rules! { self:
            c.vlan.is_some() && (vxlans > 0 || bond) => VlanExcl [vlan vxlan port],
                "vlan with {with}", "one of the two";
        }
    }

    fn families(&mut self) {
        let c = self.config;
        let v6 = c.is_ipv6();
        let (tunnels, strict) = (!c.vxlans.is_empty(), self.strict);
        for (n, port) in c.ports.iter().enumerate() {
            // dperf has one family for all ports; here each port has its own.
            let family = |ranges: &[AddressSpan]| match ranges.get(n) {
                Some(range) if !strict => range.first.is_ipv6(),
                _ => v6,
            };
            let (line, ip) = (self.line("port", n), port.ip);
            // The port is the outside of a tunnel, the ranges are inside.
            let outside = if tunnels {
                family(&c.servers)
            } else {
                ip.is_ipv6()
            };
            rules! { self:
                tunnels && ip.is_ipv6() => Family [port vxlan] at line,
                    "a tunnel over IPv6", "an IPv4 port";
                family(&c.servers) != outside || (c.is_client() && family(&c.clients) != outside) =>
                    Family [port client server] at line,
                    "port {ip} and its address ranges mix IPv4 and IPv6",
                    "one family for a port and its ranges";
            }
        }
        for (n, range) in c.clients.iter().enumerate() {
            let known = c
                .servers
                .iter()
                .any(|s| s.first.is_ipv6() == range.first.is_ipv6());
            let wrong = if self.strict {
                range.first.is_ipv6() != v6
            } else {
                !known
            };
            let (line, first) = (self.line("client", n), range.first);
            // The ranges of a client are already compared with its ports.
            rules! { self:
                wrong && !c.is_client() && !c.servers.is_empty() => Family [port client server] at line,
                    "no server address has the IP version of {first}", "one IP version for both";
            }
        }
    }

    fn ranges(&mut self) {
        let c = self.config;
        let (ports, clients, servers) = (c.ports.len(), c.clients.len(), c.servers.len());
        rules! { self:
            clients == 0 => Ranges [client], "no client line", "client IP COUNT";
            clients > 0 && c.is_client() && ports > 0 && clients != ports => Ranges [client port],
                "port lines: {ports}, client lines: {clients}", "one for each port";
            servers == 0 => Ranges [server], "no server line", "server IP COUNT";
            servers > 0 && ports > 0 && servers != ports => Ranges [server port],
                "port lines: {ports}, server lines: {servers}", "one for each port";
        }
    }

    fn steering(&mut self) {
        let c = self.config;
        rules! { self:
            c.rss.is_some() && !c.vxlans.is_empty() => Steering [rss vxlan],
                "rss with vxlan: tunnels are steered by their addresses", "one of the two";
        }
        if c.steering() == Steering::ServerIp
            && !c.ports.is_empty()
            && c.cpus.len().is_multiple_of(c.ports.len())
        {
            let queues = c.queues();
            for (n, range) in c.servers.iter().enumerate() {
                let (line, count) = (self.line("server", n), range.len());
                rules! { self:
                    count != queues as u64 => Steering [server cpu port rss flood] at line,
                        "server addresses: {count}, CPUs of the port: {queues}", "one for each, or rss";
                }
            }
        }
        rules! { self:
            c.flow_isolate && c.rss.is_some() => FlowIsolate [flow_isolate rss],
                "flow_isolate with rss", "one of the two";
            c.flow_isolate && c.ports.iter().any(|p| p.gateway_mac.is_none()) =>
                FlowIsolate [flow_isolate port],
                "flow_isolate blocks ARP, so the gateway's MAC is needed",
                "port DEVICE IP GATEWAY MAC";
        }
    }

    fn destinations(&mut self) {
        let c = self.config;
        if c.change_dip.is_empty() {
            return;
        }
        let (count, cpus) = (self.destination_count(), c.cpus.len());
        rules! { self:
            !c.floods() => ChangeDipFlood [change_dip flood],
                "change_dip without flood: responses would not be recognised", "mode client with flood";
            !c.vxlans.is_empty() => ChangeDipVxlan [change_dip vxlan],
                "change_dip with vxlan", "one of the two";
            count < cpus as u64 => ChangeDipCount [change_dip cpu],
                "change_dip addresses: {count}, CPUs: {cpus}", "at least one for each CPU";
        }
        let v6 = c.is_ipv6();
        if let Some(n) = c.change_dip.iter().position(|d| d.first.is_ipv6() != v6) {
            let (line, first) = (self.line("change_dip", n), c.change_dip[n].first);
            rules! { self: true => Family [change_dip server] at line,
            "change_dip {first} has another IP version than the servers", "their family"; }
        }
    }

    fn destination_count(&self) -> u64 {
        let counts = self.config.change_dip.iter().map(|d| u64::from(d.count));
        counts.sum()
    }

    fn tuples(&mut self) {
        let c = self.config;
        let cpus = c.cpus.len() as u32;
        if !c.is_client() || cpus == 0 {
            return;
        }
        let held = c.cc().map_or(0, |cc| u64::from(cc / cpus));
        let open = c.cps().map_or(0, |cps| {
            u64::from(cps / cpus) * u64::from(c.retransmit_timeout_s())
        });
        for index in 0..c.ports.len().min(c.clients.len()).min(c.servers.len()) {
            let (have, port) = (c.tuple_count(index), index + 1);
            // A load that holds connections waits for free tuples; only dperf requires spare ones.
            let rate_counts = self.strict || c.cc().is_none();
            rules! { self:
                have < held =>
                    Tuples [cc client server listen client_port_range cpu port retransmit_timeout rss keepalive],
                    "port {port}: a worker has {have} combinations of addresses and ports, but needs {held} for its open connections",
                    "more client or server addresses, listen ports or client ports, or less load";
                have < open && rate_counts =>
                    Tuples [cps client server listen client_port_range cpu port retransmit_timeout rss keepalive],
                    "port {port}: a worker has {have} combinations of addresses and ports, but needs {open} before the first can be reused",
                    "more client or server addresses, listen ports or client ports, or less load";
            }
        }
    }

    /// Reports keywords of the other side, which have no effect.
    fn sides(&mut self) {
        let (idle, mode) = match self.config.is_client() {
            true => (KeywordSide::Server, "client"),
            false => (KeywordSide::Client, "server"),
        };
        for keyword in KEYWORDS.iter().filter(|k| k.side == idle) {
            if self.config.places.has_keyword(keyword.name) {
                self.findings.push(RuleViolation {
                    code: Code::Ignored,
                    keywords: vec![keyword.name],
                    line: None,
                    text: format!("{} has no effect in {mode} mode", keyword.name),
                    allowed: String::new(),
                });
            }
        }
    }

    /// Reports functions that dperf performs itself and the kernel performs here.
    fn left_to_the_kernel(&mut self) {
        let c = self.config;
        for (n, port) in c.ports.iter().enumerate() {
            let (line, device) = (self.line("port", n), &port.device);
            rules! { self:
                matches!(device, DperfDevice::Bond { .. }) => Bond [port] at line,
                    "{device}: the kernel does the bonding; the port uses the interface that --port names for it", "";
            }
        }
        rules! { self:
            c.kni.is_some() => Kni [kni],
                "kni: no interface is created; other traffic reaches the kernel at the device's own interface", "";
        }
    }

    /// Reports settings that dperf 1.9 rejects or reads differently.
    fn strictly(&mut self) {
        let c = self.config;
        let foreign = c.places.foreign;
        let interval = c.keepalive.map_or(0, |k| k.interval_ns);
        rules! { self:
            foreign.is_some() => Character [] at foreign,
                "a character that dperf does not accept", "printable ASCII, also in comments";
            c.tcp_rst.is_some() => Duplicate [tcp_rst],
                "dperf 1.9 refuses any tcp_rst line as a duplicate", "leave it out";
            c.payload_file.is_some() => Duplicate [payload_file],
                "dperf 1.9 refuses any payload_file line as a duplicate", "payload_size";
            !dperf_has(interval) => Value [keepalive],
                "an interval that dperf does not support",
                "0, 1 or an even number of us below 10 us, multiples of 10 us below 1 ms, then multiples of 1 ms";
            c.keepalive.is_some_and(|k| k.more_requests > Some(32_767)) => Value [keepalive],
                "more requests than dperf can count", "0 to 32767";
            interval / 1000 > u64::from(i32::MAX as u32) => Differs [keepalive],
                "dperf counts microseconds in 32 bits", "";
            c.tx_burst() >= 256 => Differs [tx_burst], "dperf keeps 8 bits of tx_burst", "";
        }
        for (n, port) in c.ports.iter().enumerate() {
            let (line, device) = (self.line("port", n), &port.device);
            let plain = match device {
                DperfDevice::Pci(id) => id.len() == 12,
                DperfDevice::Bond { members, .. } => members.iter().all(|id| id.len() == 12),
                DperfDevice::Interface(_) | DperfDevice::Virtual(_) => false,
            };
            rules! { self:
                !plain => Value [port] at line,
                    "{device} is not a dperf device", "0000:1b:00.0 or bondMODE:POLICY(PCI,…)";
            }
        }
        self.limits();
    }

    /// Reports values beyond the limits of dperf's tables.
    fn limits(&mut self) {
        let c = self.config;
        let longest = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        let (cpus, ports) = (c.cpus.len(), c.ports.len());
        let (clients, servers) = (c.clients.len(), c.servers.len());
        let (host, path) = (longest(&c.http_host), longest(&c.http_path));
        let destinations = self.destination_count();
        rules! { self:
            cpus > 64 => Limit [cpu], "{cpus} CPUs", "up to 64";
            ports > 32 => Limit [port], "{ports} ports", "up to 32";
            clients > 32 => Limit [client], "{clients} client lines", "up to 32";
            servers > 32 => Limit [server], "{servers} server lines", "up to 32";
            destinations > 65_536 => Limit [change_dip], "{destinations} addresses", "up to 65536";
            host > 127 => Limit [http_host], "{host} characters", "up to 127";
            path > 255 => Limit [http_path], "{path} characters", "up to 255";
        }
    }
}

/// Returns true if dperf 1.9 accepts this interval: whole us in increasing steps.
fn dperf_has(interval_ns: u64) -> bool {
    let us = interval_ns / 1000;
    let fits = match us {
        0..10 => us == 1 || us.is_multiple_of(2),
        10..1000 => us.is_multiple_of(10),
        _ => us.is_multiple_of(1000),
    };
    interval_ns.is_multiple_of(1000) && fits
}

/// The low 16 bits of an address: the index of dperf's client table.
fn low_bits(ip: IpAddr) -> u32 {
    match ip {
        IpAddr::V4(a) => a.to_bits() & 0xffff,
        IpAddr::V6(a) => a.to_bits() as u32 & 0xffff,
    }
}

/// First address that is in both ranges.
fn shared_address(a: &AddressSpan, b: &AddressSpan) -> Option<IpAddr> {
    let held: BTreeSet<IpAddr> = b.addresses().collect();
    a.addresses().find(|ip| held.contains(ip))
}
