//! What must go together: rules between keywords.
//!
//! Knows no lines; a finding names the keywords it is about.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use crate::config::{Config, Device, ETHERNET_LEN, Method, Protocol, Range, Steering};
use crate::keywords::{KEYWORDS, Side};
use crate::problem::Code;

/// One rule broken.
pub(crate) struct Finding {
    pub(crate) code: Code,
    /// What it is about; the first that was written gives the line.
    pub(crate) keywords: Vec<&'static str>,
    /// The line, where it is not the first of a keyword.
    pub(crate) line: Option<u32>,
    pub(crate) text: String,
    pub(crate) allowed: String,
}

struct Judge<'a> {
    config: &'a Config,
    strict: bool,
    findings: Vec<Finding>,
}

/// Everything that `config` breaks; see [`Config::check`] for `strict`.
pub(crate) fn all(config: &Config, strict: bool) -> Vec<Finding> {
    // Nearly every rule depends on the side.
    if config.places.broken.contains("mode") {
        return Vec::new();
    }
    let mut judge = Judge {
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

impl Judge<'_> {
    fn tell(
        &mut self,
        code: Code,
        keywords: &[&'static str],
        text: impl Into<String>,
        allowed: impl Into<String>,
    ) {
        self.tell_at(code, keywords, None, text, allowed);
    }

    fn tell_at(
        &mut self,
        code: Code,
        keywords: &[&'static str],
        line: Option<u32>,
        text: impl Into<String>,
        allowed: impl Into<String>,
    ) {
        self.findings.push(Finding {
            code,
            keywords: keywords.to_vec(),
            line,
            text: text.into(),
            allowed: allowed.into(),
        });
    }

    /// [`Judge::tell`] if `wrong`.
    fn forbid(
        &mut self,
        wrong: bool,
        code: Code,
        keywords: &[&'static str],
        text: &str,
        allowed: &str,
    ) {
        if wrong {
            self.tell(code, keywords, text, allowed);
        }
    }

    fn line(&self, keyword: &str, n: usize) -> Option<u32> {
        self.config.places.line(keyword, n)
    }

    fn transport(&mut self) {
        let c = self.config;
        let ceiling = c.mss_ceiling();
        if c.mss() > ceiling {
            self.tell(
                Code::Mss,
                &["mss", "jumbo"],
                format!("mss {} is more than the MTU of {} leaves", c.mss(), c.mtu()),
                format!("1 to {ceiling}"),
            );
        }
        let why = match (c.is_client(), c.is_udp()) {
            (false, _) => "fast_close is the client's",
            (true, true) => "fast_close needs TCP",
            (true, false) => "",
        };
        let wrong = c.fast_close && !why.is_empty();
        self.forbid(
            wrong,
            Code::FastClose,
            &["fast_close", "protocol"],
            why,
            "mode client with protocol tcp or http",
        );
    }

    fn load(&mut self) {
        let c = self.config;
        if !c.is_client() {
            for (keyword, said) in [
                ("wait", c.wait.is_some()),
                ("slow_start", c.slow_start.is_some()),
            ] {
                let text = format!("{keyword} in server mode");
                self.forbid(
                    said,
                    Code::ClientOnly,
                    &[keyword],
                    &text,
                    "leave it out, or mode client",
                );
            }
            return;
        }
        self.forbid(
            c.cc.is_some() && c.keepalive.is_none(),
            Code::CcKeepalive,
            &["cc", "keepalive"],
            "cc without keepalive: connections would not stay open",
            "cc with keepalive INTERVAL",
        );
        self.forbid(
            c.flood && c.keepalive.is_some_and(|k| k.interval_ns == 0),
            Code::FloodInterval,
            &["keepalive", "flood"],
            "flood does not wait for answers, so a keepalive interval of 0 has no rate",
            "an interval above 0",
        );
        self.forbid(
            c.cps().is_none(),
            Code::NoTarget,
            &["cps", "cc"],
            "no load: neither cps nor cc",
            "cps RATE, cc RATE, or both",
        );
    }

    fn pipeline(&mut self) {
        let c = self.config;
        if c.pipeline.is_none() {
            return;
        }
        let keywords = &["pipeline", "keepalive", "protocol"];
        self.forbid(
            !c.is_client(),
            Code::PipelineServer,
            keywords,
            "pipeline in server mode",
            "mode client",
        );
        self.forbid(
            !c.is_udp(),
            Code::PipelineTcp,
            keywords,
            "pipeline without UDP",
            "protocol udp",
        );
        match c.keepalive {
            None => self.tell(
                Code::PipelineKeepalive,
                keywords,
                "pipeline without keepalive",
                "keepalive 0us, or flood and keepalive INTERVAL",
            ),
            Some(k) => self.forbid(
                k.interval_ns > 0 && !c.floods(),
                Code::PipelineInterval,
                keywords,
                "pipeline with a keepalive interval above 0",
                "keepalive 0us, or flood",
            ),
        }
    }

    fn http(&mut self) {
        let c = self.config;
        let payload = !c.payload_sizes.is_empty() || c.payload_file.is_some();
        self.forbid(
            c.http_path.is_some() && payload && c.http_method == Method::Get,
            Code::HttpPathPayload,
            &["http_path", "payload_size", "payload_file", "http_method"],
            "http_path and a payload: in a GET the path is the payload",
            "one of the two, or http_method POST",
        );
        for (keyword, said) in [
            ("http_host", c.http_host.is_some()),
            ("http_path", c.http_path.is_some()),
        ] {
            let text = format!("{keyword} in server mode");
            self.forbid(
                said && !c.is_client(),
                Code::HttpServer,
                &[keyword],
                &text,
                "mode client",
            );
            let text = format!("{keyword} without HTTP");
            let wrong = said && c.is_client() && c.protocol() != Protocol::Http;
            self.forbid(
                wrong,
                Code::HttpProto,
                &[keyword, "protocol"],
                &text,
                "protocol http",
            );
        }
    }

    fn addresses(&mut self) {
        let c = self.config;
        let mut low16: BTreeMap<u32, IpAddr> = BTreeMap::new();
        let mut seen: BTreeSet<IpAddr> = BTreeSet::new();
        for (n, range) in c.clients.iter().enumerate() {
            let line = self.line("client", n);
            // One address a line is enough to find the mistake.
            let mut clash = None;
            for ip in range.addresses() {
                let other = low16.insert(low(ip), ip);
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
            if let Some(text) = clash {
                self.tell_at(
                    Code::ClientLow16,
                    &["client"],
                    line,
                    text,
                    "each address once",
                );
            }
        }
        for (n, range) in c.servers.iter().enumerate() {
            let line = self.line("server", n);
            if let Some(ip) = c.servers[..n].iter().find_map(|other| shared(range, other)) {
                let text = format!("server address {ip} twice");
                self.tell_at(
                    Code::ServerDup,
                    &["server"],
                    line,
                    text,
                    "each address once",
                );
            }
        }
        // A server is never its own client, so there it does no harm.
        let overlaps = self.strict || c.is_client();
        for (n, range) in c.clients.iter().enumerate().filter(|_| overlaps) {
            if let Some(ip) = c.servers.iter().find_map(|server| shared(range, server)) {
                self.tell_at(
                    Code::AddrOverlap,
                    &["client", "server"],
                    self.line("client", n),
                    format!("{ip} is both a client and a server address"),
                    "ranges that do not overlap",
                );
            }
        }
    }

    fn ports(&mut self) {
        let c = self.config;
        let (other, own, ours, theirs) = match c.is_client() {
            true => (&c.servers, &c.clients, "client", "server"),
            false => (&c.clients, &c.servers, "server", "client"),
        };
        let within =
            |ranges: &[Range], ip: IpAddr| ranges.iter().any(|r| r.addresses().any(|a| a == ip));
        for (n, port) in c.ports.iter().enumerate() {
            let line = self.line("port", n);
            if within(other, port.ip) {
                self.tell_at(
                    Code::LocalConflict,
                    &["port", "client", "server"],
                    line,
                    format!("the port's IP {} is in a {theirs} range", port.ip),
                    format!("a free address or one of the {ours} range"),
                );
            }
            if within(own, port.gateway) {
                self.tell_at(
                    Code::GwConflict,
                    &["port", "client", "server"],
                    line,
                    format!("the gateway {} is in a {ours} range", port.gateway),
                    "an address of another host",
                );
            }
            if c.ports[..n].iter().any(|p| p.ip == port.ip) {
                let text = format!("two ports have the IP {}", port.ip);
                self.tell_at(Code::PortIpDup, &["port"], line, text, "one for each port");
            }
            let twice = |p: &crate::config::Port| match &port.device {
                Device::Interface(_) | Device::Virtual(_) => p.device == port.device,
                _ => p
                    .device
                    .pci_ids()
                    .iter()
                    .any(|id| port.device.pci_ids().contains(id)),
            };
            if c.ports[..n].iter().any(twice) {
                let text = format!("{} is another port already", port.device);
                self.tell_at(
                    Code::PciDup,
                    &["port"],
                    line,
                    text,
                    "one device for each port",
                );
            }
        }
    }

    fn payload(&mut self) {
        let c = self.config;
        let count = c.payload_sizes.len();
        if count > 1 && c.is_client() {
            self.tell(
                Code::PayloadMany,
                &["payload_size"],
                format!("{count} payload sizes in client mode"),
                "one",
            );
        } else if count > 1 && count != c.cpus.len() {
            self.tell(
                Code::PayloadCount,
                &["payload_size", "cpu"],
                format!("{count} payload sizes for {} CPUs", c.cpus.len()),
                "one, or one for each CPU",
            );
        }
        self.forbid(
            count > 0 && c.payload_file.is_some(),
            Code::PayloadBoth,
            &["payload_file", "payload_size"],
            "payload_size and payload_file",
            "one of the two",
        );
        if !self.strict {
            self.packet_size();
        }
        // Long responses are sent in segments; all else must fit one packet.
        if !c.is_client() && !c.is_udp() {
            return;
        }
        let most = u32::from(c.mtu().saturating_sub(c.header_len()));
        // A packet size has its own rule, and dperf does not look at it.
        if c.packet_size.is_some() && count == 0 {
            return;
        }
        let sizes = if count == 0 { 1 } else { count };
        if let Some(large) = (0..sizes)
            .filter_map(|i| c.message_len(i))
            .find(|n| *n > most)
        {
            self.tell(
                Code::PayloadLarge,
                &[
                    "payload_size",
                    "http_path",
                    "http_host",
                    "protocol",
                    "jumbo",
                ],
                format!("a message of {large} bytes does not fit one packet"),
                format!("up to {most} bytes"),
            );
        }
    }

    fn packet_size(&mut self) {
        let c = self.config;
        let Some(size) = c.packet_size else {
            return;
        };
        let keywords = &[
            "packet_size",
            "payload_size",
            "payload_file",
            "protocol",
            "jumbo",
            "server",
        ];
        self.forbid(
            !c.payload_sizes.is_empty() || c.payload_file.is_some(),
            Code::SizeBoth,
            keywords,
            "packet_size and another size of messages",
            "one of packet_size, payload_size, payload_file",
        );
        let headers = ETHERNET_LEN + c.header_len();
        let most = c.mtu() + ETHERNET_LEN;
        if !(headers + 1..=most).contains(&size) {
            self.tell(
                Code::PacketSize,
                keywords,
                format!("a frame of {size} bytes without FCS has headers of {headers}"),
                format!("{} to {most}", headers + 1),
            );
        }
    }

    fn workers(&mut self) {
        let c = self.config;
        self.forbid(
            c.cpus.is_empty(),
            Code::Cpu,
            &["cpu"],
            "no cpu line",
            "cpu N|A-B …",
        );
        self.forbid(
            c.ports.is_empty(),
            Code::Port,
            &["port"],
            "no port line",
            "port DEVICE IP GATEWAY [MAC]",
        );
        let (cpus, ports) = (c.cpus.len(), c.ports.len());
        if ports > 0 && cpus % ports != 0 {
            self.tell(
                Code::CpuPortRatio,
                &["cpu", "port"],
                format!("{cpus} CPUs for {ports} ports"),
                "a multiple of the number of ports",
            );
        }
    }

    fn tunnels(&mut self) {
        let c = self.config;
        let vxlan = !c.vxlans.is_empty();
        if vxlan && c.vxlans.len() != c.ports.len() {
            self.tell(
                Code::VxlanCount,
                &["vxlan", "port"],
                format!("{} vxlan lines for {} ports", c.vxlans.len(), c.ports.len()),
                "one for each port",
            );
        }
        let queues = c.queues();
        for (n, tunnel) in c.vxlans.iter().enumerate() {
            let line = self.line("vxlan", n);
            if usize::from(tunnel.local_count) != queues {
                self.tell_at(
                    Code::VxlanLocal,
                    &["vxlan", "cpu", "port"],
                    line,
                    format!(
                        "{} local tunnel addresses for {queues} queues",
                        tunnel.local_count
                    ),
                    "one for each queue of the port",
                );
            }
            if tunnel.remote_count != 1 && usize::from(tunnel.remote_count) != queues {
                self.tell_at(
                    Code::VxlanRemote,
                    &["vxlan", "cpu", "port"],
                    line,
                    format!(
                        "{} remote tunnel addresses for {queues} queues",
                        tunnel.remote_count
                    ),
                    "1, or one for each queue of the port",
                );
            }
            if tunnel.local.is_ipv6() || tunnel.remote.is_ipv6() {
                self.tell_at(
                    Code::Family,
                    &["vxlan"],
                    line,
                    "a tunnel over IPv6",
                    "IPv4 tunnel addresses",
                );
            }
        }
        let bond = c
            .ports
            .iter()
            .any(|p| matches!(p.device, Device::Bond { .. }));
        if c.vlan.is_some() && (vxlan || bond) {
            let with = if vxlan { "vxlan" } else { "a bond" };
            self.tell(
                Code::VlanExcl,
                &["vlan", "vxlan", "port"],
                format!("vlan with {with}"),
                "one of the two",
            );
        }
    }

    fn families(&mut self) {
        let c = self.config;
        let v6 = c.is_ipv6();
        let keywords = &["port", "client", "server"];
        let (tunnels, strict) = (!c.vxlans.is_empty(), self.strict);
        for (n, port) in c.ports.iter().enumerate() {
            // dperf has one family for all ports, we have one for each.
            let family = |ranges: &[Range]| match ranges.get(n) {
                Some(range) if !strict => range.first.is_ipv6(),
                _ => v6,
            };
            let line = self.line("port", n);
            // The port is the outside of a tunnel, the ranges are inside.
            let outside = if tunnels {
                family(&c.servers)
            } else {
                port.ip.is_ipv6()
            };
            if tunnels && port.ip.is_ipv6() {
                self.tell_at(
                    Code::Family,
                    &["port", "vxlan"],
                    line,
                    "a tunnel over IPv6",
                    "an IPv4 port",
                );
            }
            if family(&c.servers) != outside || (c.is_client() && family(&c.clients) != outside) {
                self.tell_at(
                    Code::Family,
                    keywords,
                    line,
                    format!("port {} and its address ranges mix IPv4 and IPv6", port.ip),
                    "one family for a port and its ranges",
                );
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
            // A client's ranges were compared with their ports.
            if wrong && !c.is_client() && !c.servers.is_empty() {
                let text = format!("no server address is of the family of {}", range.first);
                self.tell_at(
                    Code::Family,
                    keywords,
                    self.line("client", n),
                    text,
                    "one family for both",
                );
            }
        }
    }

    fn ranges(&mut self) {
        let c = self.config;
        let ports = c.ports.len();
        for (keyword, count, each) in [
            ("client", c.clients.len(), c.is_client()),
            ("server", c.servers.len(), true),
        ] {
            if count == 0 {
                let text = format!("no {keyword} line");
                self.tell(
                    Code::Ranges,
                    &[keyword],
                    text,
                    format!("{keyword} IP COUNT"),
                );
            } else if each && ports > 0 && count != ports {
                self.tell(
                    Code::Ranges,
                    &[keyword, "port"],
                    format!("{ports} port lines, but {count} {keyword} lines"),
                    "one for each port",
                );
            }
        }
    }

    fn steering(&mut self) {
        let c = self.config;
        self.forbid(
            c.rss.is_some() && !c.vxlans.is_empty(),
            Code::Steering,
            &["rss", "vxlan"],
            "rss with vxlan: tunnels are steered by their addresses",
            "one of the two",
        );
        if c.steering() == Steering::ServerIp
            && !c.ports.is_empty()
            && c.cpus.len().is_multiple_of(c.ports.len())
        {
            for (n, range) in c.servers.iter().enumerate() {
                if range.len() != c.queues() as u64 {
                    self.tell_at(
                        Code::Steering,
                        &["server", "cpu", "port", "rss", "flood"],
                        self.line("server", n),
                        format!(
                            "{} server addresses for {} CPUs of the port",
                            range.len(),
                            c.queues()
                        ),
                        "one for each, or rss",
                    );
                }
            }
        }
        if c.flow_isolate {
            self.forbid(
                c.rss.is_some(),
                Code::FlowIsolate,
                &["flow_isolate", "rss"],
                "flow_isolate with rss",
                "one of the two",
            );
            self.forbid(
                c.ports.iter().any(|p| p.gateway_mac.is_none()),
                Code::FlowIsolate,
                &["flow_isolate", "port"],
                "flow_isolate keeps ARP away, so the gateway's MAC must be given",
                "port DEVICE IP GATEWAY MAC",
            );
        }
    }

    fn destinations(&mut self) {
        let c = self.config;
        if c.change_dip.is_empty() {
            return;
        }
        self.forbid(
            !c.floods(),
            Code::ChangeDipFlood,
            &["change_dip", "flood"],
            "change_dip without flood: answers would not be recognised",
            "mode client with flood",
        );
        self.forbid(
            !c.vxlans.is_empty(),
            Code::ChangeDipVxlan,
            &["change_dip", "vxlan"],
            "change_dip with vxlan",
            "one of the two",
        );
        let count: u64 = c.change_dip.iter().map(|d| u64::from(d.count)).sum();
        if count < c.cpus.len() as u64 {
            self.tell(
                Code::ChangeDipCount,
                &["change_dip", "cpu"],
                format!("{count} change_dip addresses for {} CPUs", c.cpus.len()),
                "one for each CPU at least",
            );
        }
        let v6 = c.is_ipv6();
        if let Some(n) = c.change_dip.iter().position(|d| d.first.is_ipv6() != v6) {
            let text = format!(
                "change_dip {} is not of the family of the servers",
                c.change_dip[n].first
            );
            let line = self.line("change_dip", n);
            self.tell_at(
                Code::Family,
                &["change_dip", "server"],
                line,
                text,
                "their family",
            );
        }
    }

    fn tuples(&mut self) {
        let c = self.config;
        let cpus = c.cpus.len() as u32;
        if !c.is_client() || cpus == 0 {
            return;
        }
        let cc = c.cc().map(|cc| u64::from(cc / cpus));
        let open = c
            .cps()
            .map(|cps| u64::from(cps / cpus) * u64::from(c.retransmit_timeout_s()));
        let needs = [
            (cc, "cc", "to hold"),
            (open, "cps", "until the first are free again"),
        ];
        for port in 0..c.ports.len().min(c.clients.len()).min(c.servers.len()) {
            let have = c.tuples(port);
            for (need, keyword, why) in needs {
                if let Some(need) = need.filter(|need| have < *need) {
                    let needed = [
                        keyword,
                        "client",
                        "server",
                        "listen",
                        "client_port_range",
                        "cpu",
                        "port",
                        "retransmit_timeout",
                        "rss",
                        "keepalive",
                    ];
                    self.tell(
                        Code::Tuples,
                        &needed,
                        format!(
                            "port {}: a worker has {have} combinations of addresses and ports, but needs {need} {why}",
                            port + 1
                        ),
                        "more client or server addresses, listen ports or client ports, or less load",
                    );
                }
            }
        }
    }

    /// Keywords of the other side that do nothing.
    fn sides(&mut self) {
        let idle = match self.config.is_client() {
            true => Side::Server,
            false => Side::Client,
        };
        let mode = if self.config.is_client() {
            "client"
        } else {
            "server"
        };
        for keyword in KEYWORDS.iter().filter(|k| k.side == idle) {
            if self.config.places.has(keyword.name) {
                let text = format!("{} has no effect in {mode} mode", keyword.name);
                self.tell(Code::Ignored, &[keyword.name], text, "");
            }
        }
    }

    /// What dperf does itself and is the kernel's here.
    fn left_to_the_kernel(&mut self) {
        let c = self.config;
        for (n, port) in c.ports.iter().enumerate() {
            if let Device::Bond { .. } = port.device {
                self.tell_at(
                    Code::Bond,
                    &["port"],
                    self.line("port", n),
                    format!(
                        "{}: the kernel bonds, not the tester; this port is the one interface that --port names for it",
                        port.device
                    ),
                    "",
                );
            }
        }
        if c.kni.is_some() {
            let text = "kni: no interface is made; the device keeps its own, where what is not test traffic reaches the kernel";
            self.tell(Code::Kni, &["kni"], text.to_owned(), "");
        }
    }

    /// What we take and dperf 1.9 does not, or reads otherwise.
    fn strictly(&mut self) {
        let c = self.config;
        if let Some(line) = c.places.foreign {
            self.tell_at(
                Code::Character,
                &[],
                Some(line),
                "a character that dperf does not read",
                "printable ASCII, also in comments",
            );
        }
        self.forbid(
            c.tcp_rst.is_some(),
            Code::Duplicate,
            &["tcp_rst"],
            "dperf 1.9 refuses any tcp_rst line as a duplicate",
            "leave it out",
        );
        self.forbid(
            c.payload_file.is_some(),
            Code::Duplicate,
            &["payload_file"],
            "dperf 1.9 refuses any payload_file line as a duplicate",
            "payload_size",
        );
        if let Some(k) = c.keepalive {
            self.forbid(
                !dperf_has(k.interval_ns),
                Code::Value,
                &["keepalive"],
                "an interval that dperf does not have",
                "0, 1 or an even number of us below 10 us, then multiples of 10 us, from 1 ms of 1 ms",
            );
            self.forbid(
                k.more_requests > Some(32_767),
                Code::Value,
                &["keepalive"],
                "more requests than dperf counts",
                "0 to 32767",
            );
            self.forbid(
                k.interval_ns / 1000 > u64::from(i32::MAX as u32),
                Code::Differs,
                &["keepalive"],
                "dperf counts microseconds in 32 bits",
                "",
            );
        }
        self.forbid(
            c.tx_burst() >= 256,
            Code::Differs,
            &["tx_burst"],
            "dperf keeps 8 bits of tx_burst",
            "",
        );
        for (n, port) in c.ports.iter().enumerate() {
            let plain = match &port.device {
                Device::Pci(id) => id.len() == 12,
                Device::Bond { members, .. } => members.iter().all(|id| id.len() == 12),
                Device::Interface(_) | Device::Virtual(_) => false,
            };
            if !plain {
                self.tell_at(
                    Code::Value,
                    &["port"],
                    self.line("port", n),
                    format!("{} is no device of dperf", port.device),
                    "0000:1b:00.0 or bondMODE:POLICY(PCI,…)",
                );
            }
        }
        let destinations: u64 = c.change_dip.iter().map(|d| u64::from(d.count)).sum();
        let longest = |text: &Option<String>| text.as_ref().map_or(0, String::len) as u64;
        for (keyword, have, most, what) in [
            ("cpu", c.cpus.len() as u64, 64, "CPUs"),
            ("port", c.ports.len() as u64, 32, "ports"),
            ("client", c.clients.len() as u64, 32, "client lines"),
            ("server", c.servers.len() as u64, 32, "server lines"),
            ("change_dip", destinations, 65_536, "addresses"),
            ("http_host", longest(&c.http_host), 127, "characters"),
            ("http_path", longest(&c.http_path), 255, "characters"),
        ] {
            if have > most {
                let text = format!("{have} {what}");
                self.tell(Code::Limit, &[keyword], text, format!("up to {most}"));
            }
        }
    }
}

/// Whether dperf 1.9 takes this interval: whole us in steps that grow.
fn dperf_has(interval_ns: u64) -> bool {
    let us = interval_ns / 1000;
    let fits = match us {
        0..10 => us == 1 || us.is_multiple_of(2),
        10..1000 => us.is_multiple_of(10),
        _ => us.is_multiple_of(1000),
    };
    interval_ns.is_multiple_of(1000) && fits
}

/// The low 32 bits of an address, cut to 16: the index of dperf's client table.
fn low(ip: IpAddr) -> u32 {
    match ip {
        IpAddr::V4(a) => a.to_bits() & 0xffff,
        IpAddr::V6(a) => a.to_bits() as u32 & 0xffff,
    }
}

/// An address that both ranges hold.
fn shared(a: &Range, b: &Range) -> Option<IpAddr> {
    let held: BTreeSet<IpAddr> = b.addresses().collect();
    a.addresses().find(|ip| held.contains(ip))
}
