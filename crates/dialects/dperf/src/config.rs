//! Contents of a configuration: the values as written, and the figures derived from them.
//!
//! Fields hold the values of the file; `None` and empty mean that the keyword is absent. The methods return the
//! effective values, with defaults.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use wb_model::units::Mac;

/// One run of one side: client or server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// Which side this is.
    pub mode: Mode,
    /// CPUs of the workers; the order numbers the workers.
    pub cpus: Vec<u32>,
    /// Memory per NUMA node in MB, for example `4096,0`; ignored without DPDK.
    pub socket_mem: Option<String>,
    /// Length of the steady phase, s; above 0.
    pub duration: Option<u32>,
    /// Detach from the terminal.
    pub daemon: bool,
    /// Disables the report of each second.
    pub quiet: bool,
    /// Clear the terminal before each report.
    pub clear_screen: bool,
    /// Log level of the driver library.
    pub log_level: Option<LogLevel>,
    /// Allow drivers with 512-bit vectors.
    pub simd512: bool,
    /// Ports; workers are dealt to them in blocks, the first block to the first port.
    pub ports: Vec<Port>,
    /// Client addresses. On a client, one entry of source addresses for each port; on a server, the addresses
    /// it answers.
    pub clients: Vec<AddressSpan>,
    /// Server addresses, one entry for each port.
    pub servers: Vec<AddressSpan>,
    /// TCP or UDP ports of the server.
    pub listen: Option<Listen>,
    /// Source ports of the client.
    pub client_ports: Option<PortSpan>,
    /// Client address and port both advance from one connection to the next.
    pub client_hop: bool,
    /// Destinations that packets of a flood take in turn, instead of the server's address.
    pub change_dip: Vec<ChangeDip>,
    /// VLAN of all frames, 1 to 4094.
    pub vlan: Option<u16>,
    /// Tunnels, one for each port; empty without tunnels.
    pub vxlans: Vec<Vxlan>,
    /// Announces and answers only for the IP of the port, not for the address range.
    pub neigh_ignore: bool,
    /// Name of a kernel interface for traffic other than test traffic, at most 9 characters.
    pub kni: Option<String>,
    /// MTU in bytes, 9000 to 9710, instead of 1500.
    pub jumbo: Option<u16>,
    /// IPv4 TOS or IPv6 traffic class.
    pub tos: Option<u8>,
    /// The NIC's own hash chooses queues.
    pub rss: Option<Rss>,
    /// Only traffic that matches the flow rules reaches dperf.
    pub flow_isolate: bool,
    /// New connections per second, of all workers.
    pub cps: Option<u32>,
    /// Open connections to hold, of all workers.
    pub cc: Option<u32>,
    /// Connections opened back to back; `None` derives the number from the rate.
    pub launch_num: Option<u32>,
    /// Seconds of linear growth of the rate before the steady phase, 10 to 600.
    pub slow_start: Option<u16>,
    /// Seconds without traffic after the start, at least 1; they overlap `slow_start`.
    pub wait: Option<u32>,
    /// Sends without waiting for answers.
    pub flood: bool,
    /// Connections carry more than one request.
    pub keepalive: Option<Keepalive>,
    /// Requests sent back to back, up to 100; `None` is one at a time.
    pub pipeline: Option<u8>,
    /// Queued packets that force a transmit call, 1 to 1024.
    pub tx_burst: Option<u16>,
    /// Protocol above IP.
    pub protocol: Option<Protocol>,
    /// Bytes of one message above TCP or UDP: one value, or one for each CPU of a server; 0 is the
    /// built-in message.
    pub payload_sizes: Vec<u32>,
    /// Fills messages with random letters, the same in each packet, instead of one repeated letter.
    pub payload_random: bool,
    /// Path of a file with the message.
    pub payload_file: Option<String>,
    /// Bytes of a frame with a message, without FCS; the form of payload sizes before 1.8.
    pub packet_size: Option<u16>,
    /// Advertised segment size and segment size of long responses, bytes.
    pub mss: Option<u16>,
    /// Segments of a long response in flight, 2 to 16.
    pub send_window: Option<u8>,
    /// Host header of requests.
    pub http_host: Option<String>,
    /// Path of requests.
    pub http_path: Option<String>,
    /// Method of requests.
    pub http_method: Method,
    /// Answer the last response with RST instead of FIN.
    pub fast_close: bool,
    /// Sends no pure ACK between requests that are far apart.
    pub disable_ack: bool,
    /// Answer packets of unknown connections with RST.
    pub tcp_rst: Option<bool>,
    /// Time until a packet is retransmitted, or a UDP request counts as lost, s; 2 to 300.
    pub retransmit_timeout: Option<u16>,
    /// Lines of the keywords; any two values compare equal.
    pub places: KeywordLines,
}

/// Side of the device under test.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Opens connections.
    #[default]
    Client,
    /// Answers connections.
    Server,
}

/// Log level of the driver library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogLevel {
    /// Errors only.
    Error,
    /// Errors and warnings.
    Warn,
    /// Errors, warnings and information.
    Info,
    /// Everything.
    Debug,
}

/// Protocol above IP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// TCP; each segment with data counts as a whole message.
    #[default]
    Tcp,
    /// UDP.
    Udp,
    /// TCP with a client that reads responses to their end.
    Http,
}

/// HTTP method.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Method {
    /// GET
    #[default]
    Get,
    /// POST
    Post,
}

/// Device through which frames enter and leave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DperfDevice {
    /// A PCI address as written, with or without the domain: `0000:1b:00.0`, `1b:00.0`.
    Pci(String),
    /// A kernel interface, written `if:NAME`.
    Interface(String),
    /// A virtual device of the driver library and its arguments, written `vdev:DRIVER,iface=NAME`.
    Virtual(String),
    /// Several devices bonded into one, written `bondMODE:POLICY(PCI,…)`.
    Bond {
        /// Mode of the Linux bonding driver, 0 to 6 (4: IEEE 802.3ad).
        mode: u8,
        /// Transmit hash policy, 0 to 3.
        policy: u8,
        /// PCI addresses, 1 to 4.
        members: Vec<String>,
    },
}

impl DperfDevice {
    /// PCI addresses of the device, with the domain and in lower case.
    #[must_use]
    pub fn pci_ids(&self) -> Vec<String> {
        let full = |id: &String| match id.len() {
            7 => format!("0000:{id}").to_ascii_lowercase(),
            _ => id.to_ascii_lowercase(),
        };
        match self {
            Self::Pci(id) => vec![full(id)],
            Self::Bond { members, .. } => members.iter().map(full).collect(),
            Self::Interface(_) | Self::Virtual(_) => Vec::new(),
        }
    }
}

impl DperfDevice {
    /// Name of the kernel interface that the device names. A virtual device names it as `iface=NAME`,
    /// except a tap, which makes the interface.
    #[must_use]
    pub fn interface(&self) -> Option<&str> {
        match self {
            Self::Interface(name) => Some(name),
            Self::Virtual(text) if !text.contains("_tap") => text
                .split(',')
                .find_map(|argument| argument.strip_prefix("iface=")),
            _ => None,
        }
    }
}

impl fmt::Display for DperfDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pci(id) => f.write_str(id),
            Self::Interface(name) => write!(f, "if:{name}"),
            Self::Virtual(name) => write!(f, "vdev:{name}"),
            Self::Bond {
                mode,
                policy,
                members,
            } => write!(f, "bond{mode}:{policy}({})", members.join(",")),
        }
    }
}

/// A port and its neighbour.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// Device of the port.
    pub device: DperfDevice,
    /// IP address of the port.
    pub ip: IpAddr,
    /// Next hop of all frames.
    pub gateway: IpAddr,
    /// MAC address of the gateway; `None` resolves it by ARP or neighbour discovery.
    pub gateway_mac: Option<Mac>,
}

/// Consecutive addresses, and single addresses in addition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressSpan {
    /// First address.
    pub first: IpAddr,
    /// Number of consecutive addresses, 1 to 254; only the last byte changes.
    pub count: u8,
    /// Additional single addresses near the first.
    pub more: Vec<IpAddr>,
}

impl AddressSpan {
    /// All addresses, in order.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> + '_ {
        (0..self.count)
            .map(|n| address_after(self.first, n))
            .chain(self.more.iter().copied())
    }

    /// Number of addresses.
    #[must_use]
    pub fn len(&self) -> u64 {
        u64::from(self.count) + self.more.len() as u64
    }

    /// Returns true if there is no address. A range that was read has at least one.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The address `n` after `first` in the last byte.
fn address_after(first: IpAddr, n: u8) -> IpAddr {
    match first {
        IpAddr::V4(a) => {
            let mut octets = a.octets();
            octets[3] = octets[3].wrapping_add(n);
            octets.into()
        }
        IpAddr::V6(a) => {
            let mut octets = a.octets();
            octets[15] = octets[15].wrapping_add(n);
            octets.into()
        }
    }
}

/// Consecutive ports of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listen {
    /// First port, from 1.
    pub first: u16,
    /// Number of ports, from 1; `first + count` is below 65535.
    pub count: u16,
}

/// Source ports, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortSpan {
    /// Lowest port, from 1.
    pub min: u16,
    /// Highest port.
    pub max: u16,
}

impl PortSpan {
    /// Number of ports.
    #[must_use]
    pub fn len(self) -> u64 {
        u64::from(self.max - self.min) + 1
    }

    /// Always false.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        false
    }
}

/// Destinations `first`, `first + step`, …, `count` in total.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChangeDip {
    /// First address.
    pub first: IpAddr,
    /// Distance between addresses, from 1.
    pub step: u32,
    /// Number of addresses, from 1.
    pub count: u32,
}

/// A VXLAN tunnel (RFC 7348) of one port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vxlan {
    /// Network identifier, 1 to 16777215.
    pub vni: u32,
    /// Inner source MAC.
    pub src_mac: Mac,
    /// Inner destination MAC.
    pub dst_mac: Mac,
    /// First local tunnel address.
    pub local: IpAddr,
    /// Number of local addresses: one for each queue of the port.
    pub local_count: u8,
    /// First remote tunnel address.
    pub remote: IpAddr,
    /// Number of remote addresses: 1, or one for each queue of the port.
    pub remote_count: u8,
}

/// `rss`, with the arguments of older versions. `l3` and `l3l4` name the hashed fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rss {
    /// Hashed fields.
    pub hash: Option<RssHash>,
    /// Relation between queues and hash.
    pub queues: Option<RssQueues>,
}

/// Hash that chooses the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RssHash {
    /// Addresses, with a symmetric key.
    L3,
    /// Addresses and ports, with a symmetric key.
    L3L4,
    /// The NIC's default hash.
    Auto,
    /// The NIC's default hash over addresses.
    AutoL3,
    /// The NIC's default hash over addresses and ports.
    AutoL3L4,
}

/// Relation between queues and hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RssQueues {
    /// Hash over all queues.
    Rss,
    /// Queues without hash.
    None,
}

/// Request schedule of a connection with more than one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keepalive {
    /// Time between requests, ns; 0 sends the next request as soon as the answer arrives.
    pub interval_ns: u64,
    /// Requests after the first before the connection ends; `None` continues until the run ends.
    pub more_requests: Option<u32>,
}

/// Method by which answers reach the worker that sent the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Steering {
    /// Not needed: each port has one worker.
    None,
    /// Each queue of a port has one server address.
    ServerIp,
    /// The NIC's hash; the client chooses its ports so that answers come back.
    NicHash,
    /// No answers arrive.
    Flood,
}

/// Lines of each keyword. Compares equal to any other value, so that configurations compare by content.
#[derive(Clone, Default)]
pub struct KeywordLines {
    /// Name of the file.
    pub(crate) file: Arc<str>,
    /// Lines of each keyword, in order.
    pub(crate) lines: BTreeMap<&'static str, Vec<u32>>,
    /// First line with a character that is not printable ASCII.
    pub(crate) foreign: Option<u32>,
}

impl KeywordLines {
    /// The `n`-th line of `keyword`, from 0.
    #[must_use]
    pub fn line(&self, keyword: &str, n: usize) -> Option<u32> {
        self.lines.get(keyword)?.get(n).copied()
    }

    /// Returns true if the file has `keyword`.
    #[must_use]
    pub fn has_keyword(&self, keyword: &str) -> bool {
        self.lines.contains_key(keyword)
    }
}

impl PartialEq for KeywordLines {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for KeywordLines {}

impl fmt::Debug for KeywordLines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file)
    }
}

/// Time for connections to end after the steady phase, s.
pub const DRAIN: u32 = 4;

/// Bytes of the built-in request and of the header of any response with a payload.
pub const HTTP_LEN: u32 = 85;

impl Config {
    /// Returns true if this side opens connections.
    #[must_use]
    pub fn is_client(&self) -> bool {
        self.mode == Mode::Client
    }

    /// Returns true if the protocol is UDP.
    #[must_use]
    pub fn is_udp(&self) -> bool {
        self.protocol() == Protocol::Udp
    }

    /// Returns true if addresses are IPv6, judged by the first range or port.
    #[must_use]
    pub fn is_ipv6(&self) -> bool {
        self.servers
            .first()
            .or(self.clients.first())
            .map(|r| r.first)
            .or(self.ports.first().map(|p| p.ip))
            .is_some_and(|ip| ip.is_ipv6())
    }

    /// Protocol above IP (default TCP).
    #[must_use]
    pub fn protocol(&self) -> Protocol {
        self.protocol.unwrap_or_default()
    }

    /// Duration of the steady phase, s (default 60).
    #[must_use]
    pub fn duration_s(&self) -> u32 {
        self.duration.unwrap_or(60)
    }

    /// Ramp-up before the steady phase, s (default 30; 0 on a server).
    #[must_use]
    pub fn slow_start_s(&self) -> u32 {
        match self.mode {
            Mode::Client => self.slow_start.map_or(30, u32::from),
            Mode::Server => 0,
        }
    }

    /// Silence after the start, s (default 3; 0 on a server).
    #[must_use]
    pub fn wait_s(&self) -> u32 {
        match self.mode {
            Mode::Client => self.wait.unwrap_or(3),
            Mode::Server => 0,
        }
    }

    /// Returns true if a client does not wait for answers; always false on a server.
    #[must_use]
    pub fn floods(&self) -> bool {
        self.flood && self.is_client()
    }

    /// New connections per second of all workers after the ramp-up: 1000 if only `cc` is given.
    #[must_use]
    pub fn cps(&self) -> Option<u32> {
        self.cps
            .or(self.cc.map(|_| 1000))
            .filter(|_| self.is_client())
    }

    /// Connections to hold.
    #[must_use]
    pub fn cc(&self) -> Option<u32> {
        self.cc.filter(|_| self.is_client())
    }

    /// Connections a worker opens back to back, for a rate of `cps` of this worker.
    #[must_use]
    pub fn launch_num(&self, cps: u32) -> u32 {
        let fits = |n: &u32| cps.is_multiple_of(*n);
        self.launch_num
            .unwrap_or_else(|| (4..=10).find(fits).unwrap_or(4))
    }

    /// Share of worker `index` in `target`, divided as in dperf. If `target` is at most the number of workers, the
    /// first workers get one each. Otherwise the parts are equal, and the first worker gets the remainder.
    #[must_use]
    pub fn worker_share(&self, target: u32, index: u32) -> u32 {
        let workers = self.cpus.len().max(1) as u32;
        match () {
            () if target <= workers => u32::from(index < target),
            () if index == 0 => target / workers + target % workers,
            () => target / workers,
        }
    }

    /// Queued packets that force a transmit call (default 8).
    #[must_use]
    pub fn tx_burst(&self) -> u16 {
        self.tx_burst.unwrap_or(8)
    }

    /// Time until a packet is retransmitted, s (default 2). A server waits 1.1 times as long.
    #[must_use]
    pub fn retransmit_timeout_s(&self) -> u32 {
        self.retransmit_timeout.map_or(2, u32::from)
    }

    /// Time after which a server drops a silent connection, ns: four retransmission timeouts plus the
    /// keepalive interval.
    #[must_use]
    pub fn idle_timeout_ns(&self) -> u64 {
        let interval = self.keepalive.map_or(0, |k| k.interval_ns);
        (u64::from(self.retransmit_timeout_s()) * 4_000_000_000).saturating_add(interval)
    }

    /// Returns true if packets of unknown connections are answered with RST.
    #[must_use]
    pub fn answers_rst(&self) -> bool {
        self.tcp_rst.unwrap_or(true) && self.vxlans.is_empty()
    }

    /// Largest IP packet, bytes.
    #[must_use]
    pub fn mtu(&self) -> u16 {
        self.jumbo.unwrap_or(1500)
    }

    /// Bytes of the IP header and of the TCP header without options, or of the UDP header.
    #[must_use]
    pub fn header_len(&self) -> u16 {
        let ip = if self.is_ipv6() { 40 } else { 20 };
        ip + if self.is_udp() { 8 } else { 20 }
    }

    /// The largest `mss`, bytes.
    #[must_use]
    pub fn mss_ceiling(&self) -> u16 {
        self.mtu() - if self.is_ipv6() { 60 } else { 40 }
    }

    /// Segment size, bytes.
    #[must_use]
    pub fn mss(&self) -> u16 {
        self.mss.unwrap_or_else(|| self.mss_ceiling())
    }

    /// Ports of the server (default 80).
    #[must_use]
    pub fn listen(&self) -> Listen {
        self.listen.unwrap_or(Listen {
            first: 80,
            count: 1,
        })
    }

    /// Source ports of the client (default: all).
    #[must_use]
    pub fn client_ports(&self) -> PortSpan {
        self.client_ports.unwrap_or(PortSpan {
            min: 1,
            max: u16::MAX,
        })
    }

    /// Queues of each port, equal to the workers of each port.
    #[must_use]
    pub fn queues(&self) -> usize {
        self.cpus.len() / self.ports.len().max(1)
    }

    /// Method by which answers reach the worker that sent the request.
    #[must_use]
    pub fn steering(&self) -> Steering {
        match () {
            () if self.queues() <= 1 => Steering::None,
            () if self.rss.is_some() => Steering::NicHash,
            () if self.floods() => Steering::Flood,
            () => Steering::ServerIp,
        }
    }

    /// Combinations of addresses and ports that a worker of port `port` can use, equal to its limit of
    /// open connections. Saturates.
    #[must_use]
    pub fn tuple_count(&self, port: usize) -> u64 {
        let clients = match self.mode {
            Mode::Client => self.clients.get(port).map_or(0, AddressSpan::len),
            Mode::Server => self.clients.iter().map(AddressSpan::len).sum(),
        };
        let servers = match self.steering() {
            Steering::ServerIp => 1,
            _ => self.servers.get(port).map_or(0, AddressSpan::len),
        };
        u64::from(self.listen().count)
            .saturating_mul(self.client_ports().len())
            .saturating_mul(clients)
            .saturating_mul(servers)
    }

    /// Payload bytes of a message of worker `index`, if the file gives a size. The size is exact, except that
    /// responses above `mss` are whole segments.
    ///
    /// dperf itself sends one byte less in a GET of 86 bytes or more.
    #[must_use]
    pub fn payload(&self, index: usize) -> Option<u32> {
        if let Some(size) = self.packet_size {
            let headers = ETHERNET_LEN + self.header_len();
            return Some(u32::from(size.saturating_sub(headers)));
        }
        let size = match self.payload_sizes.as_slice() {
            [one] => *one,
            several => *several.get(index)?,
        };
        let mss = u32::from(self.mss());
        match size {
            0 => None,
            n if !self.is_client() && !self.is_udp() && n > mss => Some(n.div_ceil(mss) * mss),
            n => Some(n),
        }
    }

    /// Bytes of a message of worker `index`, built-in messages included; `None` if the message comes from a file.
    #[must_use]
    pub fn message_len(&self, index: usize) -> Option<u32> {
        if self.payload_file.is_some() {
            return None;
        }
        let built_in = match (self.is_udp(), self.mode) {
            (true, _) => 0,
            (false, Mode::Server) => HTTP_LEN + 14,
            (false, Mode::Client) => {
                let host = self.http_host.as_ref().map_or(5, String::len);
                let path = self.http_path.as_ref().map_or(1, String::len);
                HTTP_LEN - 6 + (host + path) as u32
            }
        };
        Some(self.payload(index).unwrap_or(built_in))
    }

    /// Returns true if messages are HTTP, so that requests and responses are counted by kind. This holds for TCP with
    /// a built-in message or a message long enough for the header.
    #[must_use]
    pub fn speaks_http(&self) -> bool {
        !self.is_udp() && self.payload(0).is_none_or(|n| n >= HTTP_LEN)
    }

    /// Segments of a long response in flight (default 4), or 0 if the responses of worker `index`
    /// fit one packet.
    #[must_use]
    pub fn send_window(&self, index: usize) -> u8 {
        let long = !self.is_udp() && self.message_len(index) > Some(u32::from(self.mss()));
        if long {
            self.send_window.unwrap_or(4)
        } else {
            0
        }
    }

    /// Requests on one connection as dperf sends them: TCP one more than written, UDP without limit.
    /// `None` is no limit.
    #[must_use]
    pub fn requests(&self) -> Option<u32> {
        match (self.keepalive, self.is_udp()) {
            (None, _) => Some(1),
            (Some(_), true) => None,
            (Some(k), false) => k.more_requests.map(|n| n.saturating_add(1)),
        }
    }
}

/// Bytes of an Ethernet header.
pub(crate) const ETHERNET_LEN: u16 = 14;
