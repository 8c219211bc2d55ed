//! The plan: everything a run will do, as plain data.
//!
//! Every front door makes one of these, and nothing else reaches an engine. A plan can be printed,
//! saved and run again; the same plan with the same seed sends the same frames, but for the first flow number, by which
//! a run knows its own frames. The text form is
//! TOML (or JSON); the doc comment of each field is its reference.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    bench::{LbPlan, ProbePlan, SuitePlan},
    capture::CaptureJob,
    criteria::Criterion,
    device::{DeviceJob, WatchJob},
    http::HttpJob,
    kinds::JobKind,
    load::{LoadEnd, LoadJob},
    locator::Locator,
    socket::{SocketJob, SocketServerJob},
    units::{AddressRange, Mac, ParseUnitError, PortRange, Rate, SizeModel, Span},
    vary::Vary,
};

/// The value of `schema` in plans of this version.
pub const PLAN_SCHEMA: &str = "wirebench.plan/1";

/// Names for the `kind` of a plan: the commands that make plans.
pub const PLAN_KINDS: [&str; 25] = [
    "run",
    "trial",
    "tx",
    "rx",
    "load",
    "http",
    "capture",
    "netperf",
    "netserver",
    "sweep",
    "wrk",
    "pktgen",
    "pgrx",
    "bench rfc2544",
    "bench ndr",
    "bench pdr",
    "bench loss",
    "bench mfr",
    "bench impact",
    "bench latency",
    "bench b2b",
    "bench recovery",
    "bench reset",
    "bench y1564",
    "bench lb",
];

/// A whole run: ports, and the jobs that use them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// Version of this format; must be `wirebench.plan/1`.
    #[serde(default = "default_schema")]
    pub schema: String,
    /// Name of this run in the report: `run`, or the command that makes such plans, such as `trial` or `bench
    /// rfc2544`. Other words are refused.
    #[serde(default = "default_kind")]
    #[schemars(extend("enum" = PLAN_KINDS))]
    pub kind: String,
    /// Where all random choices come from. The same seed gives the same frames.
    #[serde(default = "default_seed")]
    pub seed: u64,
    /// Number of the first flow in the test tags of the streams, by which a run knows its own frames. Default: random in
    /// each run. Of jobs that only receive: the first flow of the run to follow; default: the run of the first tagged
    /// frame. Flow numbers end at 4294967293.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_flow: Option<u32>,
    /// Time between two snapshots (live lines); 100ms to 1m.
    #[serde(default = "default_interval")]
    pub interval: Span,
    /// Says that sending outside the benchmark address ranges, or out of the interface with the
    /// default route, is meant: you own the network.
    #[serde(default, skip_serializing_if = "is_false")]
    pub i_own_this_network: bool,
    /// Accept a run that offered less than 98 % of its intended load. Without it, such a run is invalid.
    #[serde(default, skip_serializing_if = "is_false")]
    pub allow_unsent: bool,
    /// The ports, each with a name that jobs refer to.
    #[serde(default, rename = "port", skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<PortPlan>,
    /// Traffic to send, receive, or both. Jobs run at the same time unless `start` says otherwise.
    #[serde(default, rename = "traffic", skip_serializing_if = "Vec::is_empty")]
    pub traffic: Vec<TrafficJob>,
    /// Packet devices, as the Linux packet generator has them: fields that walk from packet to
    /// packet.
    #[serde(default, rename = "device", skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<DeviceJob>,
    /// Ports that watch for packets of such devices.
    #[serde(default, rename = "watch", skip_serializing_if = "Vec::is_empty")]
    pub watches: Vec<WatchJob>,
    /// Ports whose frames are kept in files, or only counted. It goes on until its own end, or until the
    /// other jobs have ended.
    #[serde(default, rename = "capture", skip_serializing_if = "Vec::is_empty")]
    pub captures: Vec<CaptureJob>,
    /// Ends of connections: clients that open them, servers that answer.
    #[serde(default, rename = "load", skip_serializing_if = "Vec::is_empty")]
    pub loads: Vec<LoadJob>,
    /// Requests to HTTP servers over sockets of the kernel.
    #[serde(default, rename = "http", skip_serializing_if = "Vec::is_empty")]
    pub http_jobs: Vec<HttpJob>,
    /// Tests over sockets of the kernel, run one after another, beside the other jobs.
    #[serde(default, rename = "socket", skip_serializing_if = "Vec::is_empty")]
    pub sockets: Vec<SocketJob>,
    /// A server for such tests, until a signal ends it or the other jobs have ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket_server: Option<SocketServerJob>,
    /// Commands that show counters of the device, read at each interval, before the first frame and after
    /// the last.
    #[serde(default, rename = "probe", skip_serializing_if = "Vec::is_empty")]
    pub probes: Vec<ProbePlan>,
    /// A benchmark of many trials: `lb` makes ports and jobs itself; `suite` runs those of the plan, again and
    /// again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub procedure: Option<Procedure>,
    /// Conditions on what the jobs measure, `METRIC<=LIMIT`; the run fails when one does not hold. Where
    /// jobs of several kinds measure it, `KIND.METRIC<=LIMIT`: traffic, devices, load, capture, http or socket.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub criteria: Vec<Criterion>,
}

/// A benchmark of many trials.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Procedure {
    /// The limits of a load balancer.
    Lb(Box<LbPlan>),
    /// A suite of tests of a device: RFC 2544 and its kin. The ports and jobs of the plan are what a trial is.
    Suite(Box<SuitePlan>),
}

/// A port of the plan. Several jobs may use it where what comes in for each can be told apart: by transport and
/// ports, VLAN, addresses, or a test tag.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PortPlan {
    /// The name that jobs use.
    pub name: String,
    /// Where it is: `IF`, `NODE/IF`, `xdp:IF`, `packet:IF`, `live:IF`, `memory:NAME`, `file:PATH`.
    pub locator: Locator,
    /// Workers, each with a processor of its own; 1 to 64. They share out the queues of the interface;
    /// with the `xdp` driver there are at most as many as it has queues.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub workers: u32,
    /// CPUs for the workers, in order. Empty: chosen by the program.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cpus: Vec<u32>,
    /// Addresses that this port answers for (ARP, neighbour discovery, echo), besides those that
    /// streams sent from or to it use.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<AddressRange>,
    /// Next hop for everything sent from this port. Without it the destination itself is asked
    /// for, then the route of the host, then host 1 of the source's network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<std::net::IpAddr>,
    /// XDP mode: `auto`, `zero-copy`, `native` or `generic`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub xdp_mode: XdpMode,
    /// Receive ring of the `packet` driver in bytes, for each worker. 0: chosen by the program.
    #[serde(default, skip_serializing_if = "is_default")]
    pub ring_bytes: u64,
    /// Bytes of one block of that ring: a power of two from 4096, at most half of the ring. 0: chosen
    /// by the program. For captures.
    #[serde(default, skip_serializing_if = "is_default")]
    pub block_bytes: u64,
    /// Receive queues to take with the `xdp` driver; the host gets the frames of the others. Empty:
    /// all. For captures.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub queues: Vec<u32>,
    /// Slots of the receive ring of the `xdp` driver, for each queue: a power of two from 64 to
    /// 1048576. 0: chosen by the program. For captures.
    #[serde(default, skip_serializing_if = "is_default")]
    pub xdp_ring: u32,
    /// Slots of its fill ring, which holds the memory for frames to come: a power of two from 64 to
    /// 1048576. 0: room for all memory. For captures.
    #[serde(default, skip_serializing_if = "is_default")]
    pub xdp_fill: u32,
    /// Bytes of memory for each of its frames, 2048 or 4096, of which 256 are the kernel's. 0: the
    /// least that carries the MTU. Longer frames are dropped and counted. For captures.
    #[serde(default, skip_serializing_if = "is_default")]
    pub xdp_chunk: u32,
    /// The way of sent frames: `direct` to the driver, through the `qdisc`, or into the `receive`
    /// side of the interface (sent from the other end of a veth pair). For devices.
    #[serde(default, skip_serializing_if = "is_default")]
    pub way: SendWay,
    /// Priority of sent frames in the queueing discipline (SO_PRIORITY).
    #[serde(default, skip_serializing_if = "is_default")]
    pub priority: u32,
}

/// The way of sent frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SendWay {
    /// Straight to the driver.
    #[default]
    Direct,
    /// Through the queueing discipline.
    Qdisc,
    /// Into the receive side of the interface.
    Receive,
}

/// How the `xdp` driver attaches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum XdpMode {
    /// The best that works.
    #[default]
    Auto,
    /// In the driver, sharing its buffers.
    ZeroCopy,
    /// In the driver, copying.
    Native,
    /// In the kernel's generic receive path.
    Generic,
}

/// Streams from one port, analysed at another.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TrafficJob {
    /// What the report calls it. Empty, as without: a word and its number.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Name of the sending port. Without it the job only receives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tx: Option<String>,
    /// Name of the receiving port. Without it the job only sends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rx: Option<String>,
    /// Send the same streams back from `rx` to `tx` too, with source and destination exchanged.
    #[serde(default, skip_serializing_if = "is_false")]
    pub bidir: bool,
    /// When to begin, from the start of the run.
    #[serde(default, skip_serializing_if = "is_default")]
    pub start: Span,
    /// How long to send. Default 10s, or for ever in a job that only receives. Whichever of
    /// `duration` and `count` ends first wins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration: Option<Span>,
    /// Frames to send, over all streams and workers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// How long to go on receiving after the last frame was sent. Frames that arrive in this time
    /// are late but received; after it they are lost.
    #[serde(default = "default_drain")]
    pub drain: Span,
    /// Rise evenly from 0 to the full rate in this time, before the duration begins. Frames of the
    /// ramp are sent and counted apart.
    #[serde(default, skip_serializing_if = "is_default")]
    pub ramp: Span,
    /// After the ramp, send at `hold_load` times the rate for this time before the duration begins. These frames are
    /// counted with those of the ramp.
    #[serde(default, skip_serializing_if = "is_default")]
    pub hold: Span,
    /// The rate of that time, and of the ramp before it, as a multiple of the streams' rates: 0.01 to 100.
    #[serde(default = "once", skip_serializing_if = "is_once")]
    pub hold_load: f64,
    /// A stalled sender makes up for at most this much time; what is older stays unsent.
    #[serde(default = "default_catch_up")]
    pub catch_up: Span,
    /// Measure the time between departures too (a histogram, at some cost for each frame).
    #[serde(default, skip_serializing_if = "is_false")]
    pub departures: bool,
    /// Number of flows of the run to follow, for a job that only receives. A port of the live driver needs it. Frames of
    /// other flows are foreign. 1 to 16,777,216; default on other ports: 1,048,576.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flows: Option<u32>,
    /// The streams. Empty in a job that only receives.
    #[serde(default, rename = "stream", skip_serializing_if = "Vec::is_empty")]
    pub streams: Vec<Stream>,
}

/// A frame template, the fields that change, the sizes, and the rate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Stream {
    /// What the report calls it. Empty, as without: a word and its number.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Frame sizes with FCS. Default: the smallest in which headers and tag fit, at least 64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<SizeModel>,
    /// The rate of this stream, over all its workers.
    pub rate: Rate,
    /// Instead of a rate: this many frames back to back …
    #[serde(skip_serializing_if = "Option::is_none")]
    pub burst: Option<u32>,
    /// … and then this pause, counted from the first frame of a burst to the first of the next.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gap: Option<Span>,
    /// Flows, each with its own 5-tuple, used in turn. Default: one for each combination of the
    /// address and port ranges given, at most 65,536; with no ranges, 1. 1 to 16,777,216.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flows: Option<u32>,
    /// What the frames carry.
    pub proto: Proto,
    /// IPv6 instead of IPv4, where no address says so.
    #[serde(skip_serializing_if = "is_false")]
    pub ipv6: bool,
    /// Source addresses. Default 198.18.1.2 or 2001:2:0:1::2.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub src: Option<AddressRange>,
    /// Destination addresses. Default 198.19.1.2 or 2001:2:0:8001::2.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dst: Option<AddressRange>,
    /// Source ports; ICMP identifier. Default 49184 (RFC 2544 C.2.6.4).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sport: Option<PortRange>,
    /// Destination ports. Default 7, echo (RFC 2544 C.2.6.4).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dport: Option<PortRange>,
    /// Source hardware address. Default: the port's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub src_mac: Option<Mac>,
    /// Destination hardware address. Default: resolved by ARP or neighbour discovery.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dst_mac: Option<Mac>,
    /// VLAN ids, outermost first; `id` or `id:priority`. At most 4.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub vlan: Vec<VlanSpec>,
    /// MPLS labels, topmost first. At most 8.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mpls: Vec<u32>,
    /// IPv6 extension headers, in their order: `hop-by-hop` (8 bytes, the first if at all), `routing` (24), `fragment`
    /// (8), `destination` (8). They ask devices for nothing (RFC 5180 section 7).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ext: Vec<Extension>,
    /// IPv4 type of service or IPv6 traffic class.
    #[serde(skip_serializing_if = "is_default")]
    pub tos: u8,
    /// IPv4 time to live or IPv6 hop limit. Default 64.
    pub ttl: u8,
    /// TCP flags, for `proto = "tcp"`. Default 0x10, ACK.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tcp_flags: Option<u8>,
    /// Ethernet type of `proto = "raw"`. Default 0x88b5, local experiments (IEEE 802).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ethertype: Option<u16>,
    /// What follows the headers and the tag: hex digits, repeated to fill the frame. Default zeros.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payload: Option<HexBytes>,
    /// Fields that change from frame to frame, in the order in which they are applied.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub vary: Vec<Vary>,
    /// The test tag behind the last header.
    #[serde(skip_serializing_if = "is_default")]
    pub tag: TagKind,
    /// Send the frames of this pcap or pcapng file, as they are, instead of building any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replay: Option<String>,
    /// Speed of a replay against the recording: 1 is the recorded timing, 2 twice as fast.
    /// Without it the stream's `rate` says how fast.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speed: Option<f64>,
}

impl Default for Stream {
    fn default() -> Self {
        Self {
            name: String::new(),
            size: None,
            rate: Rate::Max,
            burst: None,
            gap: None,
            flows: None,
            proto: Proto::Udp,
            ipv6: false,
            src: None,
            dst: None,
            sport: None,
            dport: None,
            src_mac: None,
            dst_mac: None,
            vlan: Vec::new(),
            mpls: Vec::new(),
            ext: Vec::new(),
            tos: 0,
            ttl: 64,
            tcp_flags: None,
            ethertype: None,
            payload: None,
            vary: Vec::new(),
            tag: TagKind::Wirebench,
            replay: None,
            speed: None,
        }
    }
}

/// What a stream's frames carry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Proto {
    /// UDP over IP.
    #[default]
    Udp,
    /// TCP segments without a connection.
    Tcp,
    /// ICMP or ICMPv6 echo requests.
    Icmp,
    /// ARP requests for the destination address.
    Arp,
    /// No IP: the payload directly behind Ethernet, VLAN tags and MPLS labels.
    Raw,
}

/// An IPv6 extension header of a stream's frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Extension {
    /// Hop-by-hop options, padding alone.
    HopByHop,
    /// A routing header without segments left.
    Routing,
    /// The header of a packet that is whole.
    Fragment,
    /// Destination options, padding alone.
    Destination,
}

impl Extension {
    /// All.
    pub const ALL: [Self; 4] = [
        Self::HopByHop,
        Self::Routing,
        Self::Fragment,
        Self::Destination,
    ];

    /// The word in plans and options.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::HopByHop => "hop-by-hop",
            Self::Routing => "routing",
            Self::Fragment => "fragment",
            Self::Destination => "destination",
        }
    }

    /// Bytes on the wire.
    #[must_use]
    pub const fn octets(self) -> u32 {
        match self {
            Self::Routing => 24,
            Self::HopByHop | Self::Fragment | Self::Destination => 8,
        }
    }
}

impl std::str::FromStr for Extension {
    type Err = ParseUnitError;

    fn from_str(text: &str) -> Result<Self, ParseUnitError> {
        let found = Self::ALL.into_iter().find(|e| e.name() == text);
        found.ok_or_else(|| {
            ParseUnitError::new(
                text,
                "an extension header: hop-by-hop, routing, fragment or destination",
            )
        })
    }
}

/// Which tag goes into the frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TagKind {
    /// The test tag of this program: flow, sequence, time; 18 bytes.
    #[default]
    Wirebench,
    /// The header of the Linux packet generator: sequence and time; 16 bytes.
    Pktgen,
    /// None: frames can only be counted.
    None,
}

/// A VLAN tag: `10` or `10:5` with a priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VlanSpec {
    /// VLAN id, 0 to 4095.
    pub id: u16,
    /// Priority code point, 0 to 7.
    pub priority: u8,
}

/// Bytes written as hex digits; blanks and colons between them are ignored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HexBytes(pub Vec<u8>);

fn default_schema() -> String {
    PLAN_SCHEMA.to_owned()
}
fn default_kind() -> String {
    "run".to_owned()
}
const fn default_seed() -> u64 {
    1
}
const fn default_interval() -> Span {
    Span::from_secs(1)
}
const fn default_drain() -> Span {
    Span::from_millis(200)
}
const fn default_catch_up() -> Span {
    Span::from_millis(100)
}
const fn once() -> f64 {
    1.0
}
fn is_once(times: &f64) -> bool {
    *times == once()
}
const fn one() -> u32 {
    1
}
const fn is_one(n: &u32) -> bool {
    *n == 1
}
const fn is_false(b: &bool) -> bool {
    !*b
}
fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl Plan {
    /// Its benchmark of a load balancer, if it is one.
    #[must_use]
    pub fn lb(&self) -> Option<&LbPlan> {
        match &self.procedure {
            Some(Procedure::Lb(lb)) => Some(lb),
            _ => None,
        }
    }

    /// Where its frames go out and come in, those of a benchmark's trials too.
    pub fn locators(&self) -> impl Iterator<Item = &Locator> {
        let sides = self
            .lb()
            .into_iter()
            .flat_map(|lb| [&lb.client.port, &lb.server.port]);
        self.ports.iter().map(|port| &port.locator).chain(sides)
    }

    /// Whether nothing of a kind ends by itself.
    pub(crate) fn part_is_endless(&self, kind: JobKind) -> bool {
        let receives = |job: &TrafficJob| job.tx.is_none() && job.duration.is_none();
        let captures = |job: &CaptureJob| {
            job.count.is_none() && job.duration.is_none() && job.stop_octets.is_none()
        };
        match kind {
            JobKind::Traffic => self.traffic.iter().any(receives),
            JobKind::Devices => {
                self.devices.iter().any(|d| d.settings.count == 0)
                    || self.devices.is_empty() && self.watches.iter().any(|w| w.duration.is_none())
            }
            JobKind::Capture => self.captures.iter().any(captures),
            // Servers go on for as long as the clients of the same plan.
            JobKind::Load => {
                let clients = self.loads.iter().any(|l| l.end == LoadEnd::Client);
                self.loads
                    .iter()
                    .filter(|l| !clients || l.end == LoadEnd::Client)
                    .any(|l| l.shape.duration == Span::default())
            }
            JobKind::Http => {
                let open = |job: &HttpJob| job.amount.is_none() && job.ends_after().is_none();
                self.http_jobs.iter().any(open)
            }
            JobKind::Socket => self.socket_server.is_some(),
            JobKind::Probe => !self.probes.is_empty(),
            JobKind::Bench => false,
        }
    }
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            schema: default_schema(),
            kind: default_kind(),
            seed: default_seed(),
            first_flow: None,
            interval: default_interval(),
            i_own_this_network: false,
            allow_unsent: false,
            ports: Vec::new(),
            traffic: Vec::new(),
            devices: Vec::new(),
            watches: Vec::new(),
            captures: Vec::new(),
            loads: Vec::new(),
            http_jobs: Vec::new(),
            sockets: Vec::new(),
            socket_server: None,
            probes: Vec::new(),
            procedure: None,
            criteria: Vec::new(),
        }
    }
}

impl PortPlan {
    /// A port with one worker and everything else chosen by the program.
    #[must_use]
    pub fn new(name: impl Into<String>, locator: Locator) -> Self {
        Self {
            name: name.into(),
            locator,
            workers: 1,
            cpus: Vec::new(),
            addresses: Vec::new(),
            gateway: None,
            xdp_mode: XdpMode::Auto,
            ring_bytes: 0,
            block_bytes: 0,
            queues: Vec::new(),
            xdp_ring: 0,
            xdp_fill: 0,
            xdp_chunk: 0,
            way: SendWay::Direct,
            priority: 0,
        }
    }
}

impl TrafficJob {
    /// From its first frame to the first that counts, ns.
    #[must_use]
    pub fn lead_ns(&self) -> u64 {
        self.ramp.as_nanos().saturating_add(self.hold.as_nanos())
    }
}

impl Default for TrafficJob {
    fn default() -> Self {
        Self {
            name: String::new(),
            tx: None,
            rx: None,
            bidir: false,
            start: Span::default(),
            duration: None,
            count: None,
            drain: default_drain(),
            ramp: Span::default(),
            hold: Span::default(),
            hold_load: once(),
            catch_up: default_catch_up(),
            departures: false,
            flows: None,
            streams: Vec::new(),
        }
    }
}

mod text {
    use std::{fmt, str::FromStr};

    use super::{HexBytes, VlanSpec};
    use crate::units::{ParseUnitError, string_serde};

    impl FromStr for VlanSpec {
        type Err = ParseUnitError;

        fn from_str(text: &str) -> Result<Self, ParseUnitError> {
            let error = || {
                ParseUnitError::new(
                    text,
                    "a VLAN id (0 to 4095), or id:priority with a priority of 0 to 7",
                )
            };
            let (id, priority) = text.trim().split_once(':').unwrap_or((text.trim(), "0"));
            let id: u16 = id.parse().ok().filter(|id| *id < 4096).ok_or_else(error)?;
            let priority: u8 = priority.parse().ok().filter(|p| *p < 8).ok_or_else(error)?;
            Ok(Self { id, priority })
        }
    }

    impl fmt::Display for VlanSpec {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "{}", self.id)?;
            if self.priority != 0 {
                write!(f, ":{}", self.priority)?;
            }
            Ok(())
        }
    }

    string_serde!(
        VlanSpec,
        "VlanSpec",
        "a VLAN id (0 to 4095), or id:priority",
        "10"
    );

    impl FromStr for HexBytes {
        type Err = ParseUnitError;

        fn from_str(text: &str) -> Result<Self, ParseUnitError> {
            let error = || ParseUnitError::new(text, "hex digits, two for each byte (deadbeef)");
            let digits: String = text
                .trim_start_matches("0x")
                .chars()
                .filter(|c| !c.is_whitespace() && *c != ':')
                .collect();
            if digits.is_empty() || !digits.len().is_multiple_of(2) || !digits.is_ascii() {
                return Err(error());
            }
            let bytes = (0..digits.len())
                .step_by(2)
                .map(|i| u8::from_str_radix(&digits[i..i + 2], 16).map_err(|_| error()));
            Ok(Self(bytes.collect::<Result<_, _>>()?))
        }
    }

    impl fmt::Display for HexBytes {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            self.0.iter().try_for_each(|b| write!(f, "{b:02x}"))
        }
    }

    string_serde!(
        HexBytes,
        "HexBytes",
        "hex digits, two for each byte",
        "deadbeef"
    );
}
