//! Plan of a run, as plain data.
//!
//! Every command creates a plan, and an engine gets no other input. A plan can be printed, saved and run again. The
//! same plan with the same seed sends the same frames, except for the first flow number, which identifies the frames of
//! a run. The text form is TOML (or JSON); the doc comment of each field is its reference.

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
    units::{AddressRange, Mac, PortRange, Rate, SizeModel, Span},
    vary::Vary,
};

/// Value of `schema` in plans of this version.
pub const PLAN_SCHEMA: &str = "wirebench.plan/1";

/// Values of a plan's `kind`: the commands that create plans.
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

/// Complete run: ports, and the jobs that use them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// Version of this format; must be `wirebench.plan/1`.
    #[serde(default = "default_schema")]
    pub schema: String,
    /// Name of this run in the report: `run`, or the command that creates such plans, such as `trial` or `bench
    /// rfc2544`. Other words are rejected.
    #[serde(default = "default_kind")]
    #[schemars(extend("enum" = PLAN_KINDS))]
    pub kind: String,
    /// Seed of all random choices (default 1). The same seed gives the same frames.
    #[serde(default = "default_seed")]
    pub seed: u64,
    /// Number of the first flow in the test tags of the streams, which identifies the frames of a run. Default: random
    /// in each run. For jobs that only receive: the first flow of the run to follow; default: the run of the first
    /// tagged frame. The highest flow number is 4294967293.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_flow: Option<u32>,
    /// Interval between two snapshots (live lines), 100ms to 1m (default 1s).
    #[serde(default = "default_interval")]
    pub interval: Span,
    /// Confirm that sending outside the benchmark address ranges, or out of the interface with the default route, is
    /// intended: you own the network.
    #[serde(default, skip_serializing_if = "is_false")]
    pub i_own_this_network: bool,
    /// Accept a run that offered less than 98 % of its intended load. Without it, such a run is invalid.
    #[serde(default, skip_serializing_if = "is_false")]
    pub allow_unsent: bool,
    /// Ports, each with a name that jobs refer to.
    #[serde(default, rename = "port", skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<PortPlan>,
    /// Traffic to send, receive, or both. Jobs run at the same time unless `start` delays them.
    #[serde(default, rename = "traffic", skip_serializing_if = "Vec::is_empty")]
    pub traffic: Vec<TrafficJob>,
    /// Packet devices as in the Linux packet generator: fields that step from packet to packet.
    #[serde(default, rename = "device", skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<DeviceJob>,
    /// Ports that watch for packets of such devices.
    #[serde(default, rename = "watch", skip_serializing_if = "Vec::is_empty")]
    pub watches: Vec<WatchJob>,
    /// Captures: ports with frames to write to files, or only to count. A capture runs until its own limit, or until
    /// the other jobs have ended.
    #[serde(default, rename = "capture", skip_serializing_if = "Vec::is_empty")]
    pub captures: Vec<CaptureJob>,
    /// Ends of connections: clients that open connections, servers that answer.
    #[serde(default, rename = "load", skip_serializing_if = "Vec::is_empty")]
    pub loads: Vec<LoadJob>,
    /// Requests to HTTP servers over kernel sockets.
    #[serde(default, rename = "http", skip_serializing_if = "Vec::is_empty")]
    pub http_jobs: Vec<HttpJob>,
    /// Tests over kernel sockets, run one after another and concurrently with the other jobs.
    #[serde(default, rename = "socket", skip_serializing_if = "Vec::is_empty")]
    pub sockets: Vec<SocketJob>,
    /// Server for such tests, which runs until a signal or until the other jobs have ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket_server: Option<SocketServerJob>,
    /// Commands that print counters of the device, run at each interval, before the first frame and after the last.
    #[serde(default, rename = "probe", skip_serializing_if = "Vec::is_empty")]
    pub probes: Vec<ProbePlan>,
    /// Benchmark of many trials: `lb` creates its ports and jobs; `suite` runs the ports and jobs of the plan
    /// repeatedly.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub procedure: Option<Procedure>,
    /// Criteria for the measurements of the jobs, `METRIC<=LIMIT`; the run fails if one is not met. If jobs of several
    /// kinds measure the metric, use `KIND.METRIC<=LIMIT` with one of traffic, devices, load, capture, http or socket.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub criteria: Vec<Criterion>,
}

/// Benchmark of many trials.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Procedure {
    /// Limits of a load balancer.
    Lb(Box<LbPlan>),
    /// Suite of tests of a device: RFC 2544 and related tests. The ports and jobs of the plan define one trial.
    Suite(Box<SuitePlan>),
}

/// Port of the plan. Several jobs may share it if their received frames can be distinguished: by transport and ports,
/// VLAN, addresses, or a test tag.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PortPlan {
    /// Name that jobs refer to.
    pub name: String,
    /// Locator: `IF`, `NODE/IF`, `xdp:IF`, `packet:IF`, `live:IF`, `memory:NAME`, `file:PATH`; with `HOST:` before it,
    /// a port of that host of a fleet.
    pub locator: Locator,
    /// Number of workers, each with a dedicated CPU, 1 to 64 (default 1). They share the queues of the interface; with
    /// the `xdp` driver there can be at most one worker per queue.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub workers: u32,
    /// CPUs for the workers, in order. Empty: the program chooses them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cpus: Vec<u32>,
    /// Addresses that this port answers for (ARP, neighbour discovery, echo), in addition to the addresses of streams
    /// sent from or to it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<AddressRange>,
    /// Next hop of all frames sent from this port (default: the destination itself, then the route of the host, then
    /// host 1 of the source's network, whichever resolves first).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<std::net::IpAddr>,
    /// Mode in which the `xdp` driver attaches (default `auto`).
    #[serde(default, skip_serializing_if = "is_default")]
    pub xdp_mode: XdpMode,
    /// Size of the `packet` driver's receive ring in bytes, for each worker. 0: the program chooses it.
    #[serde(default, skip_serializing_if = "is_default")]
    pub ring_bytes: u64,
    /// Captures: size of one block of that ring in bytes, a power of two from 4096 to half of the ring. 0: the program
    /// chooses it.
    #[serde(default, skip_serializing_if = "is_default")]
    pub block_bytes: u64,
    /// Captures: receive queues to use with the `xdp` driver; the host receives the frames of the other queues. Empty:
    /// all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub queues: Vec<u32>,
    /// Slots of the `xdp` driver's receive ring for captures, per queue, a power of two from 64 to 1048576 (default:
    /// 65536, on small machines 8192).
    #[serde(default, skip_serializing_if = "is_default")]
    pub xdp_ring: u32,
    /// Slots of the `xdp` driver's fill ring for captures, which holds the free frame memory, a power of two from 64 to
    /// 1048576 (default: enough for all frame memory).
    #[serde(default, skip_serializing_if = "is_default")]
    pub xdp_fill: u32,
    /// Memory per frame of the `xdp` driver for captures in bytes, 2048 or 4096, of which the kernel uses 256 (default:
    /// the smallest that fits the MTU). Longer frames are dropped and counted.
    #[serde(default, skip_serializing_if = "is_default")]
    pub xdp_chunk: u32,
    /// Devices: path of sent frames: `direct` to the driver, through the `qdisc`, or into the `receive` side of the
    /// interface (sent from the other end of a veth pair).
    #[serde(default, skip_serializing_if = "is_default")]
    pub way: SendWay,
    /// Priority of sent frames in the queueing discipline (SO_PRIORITY).
    #[serde(default, skip_serializing_if = "is_default")]
    pub priority: u32,
}

/// Path of sent frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SendWay {
    /// Directly to the driver.
    #[default]
    Direct,
    /// Through the queueing discipline.
    Qdisc,
    /// Into the receive side of the interface.
    Receive,
}

/// Mode in which the `xdp` driver attaches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum XdpMode {
    /// Best mode that works.
    #[default]
    Auto,
    /// In the driver, with shared buffers.
    ZeroCopy,
    /// In the driver, with copies.
    Native,
    /// In the kernel's generic receive path.
    Generic,
}

/// Streams that one port sends and another port analyses.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TrafficJob {
    /// Name in the report. Default or empty: a word and its number.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Name of the sending port. Without it the job only receives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tx: Option<String>,
    /// Name of the receiving port. Without it the job only sends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rx: Option<String>,
    /// Also send the same streams from `rx` to `tx`, with source and destination exchanged.
    #[serde(default, skip_serializing_if = "is_false")]
    pub bidir: bool,
    /// Start time, relative to the start of the run (default 0).
    #[serde(default, skip_serializing_if = "is_default")]
    pub start: Span,
    /// Time to send, or to receive in a job that only receives (default: unlimited). A replay without `duration` and
    /// `count` ends after one pass.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration: Option<Span>,
    /// Number of frames to send, over all streams and workers. Sending ends at the first of `duration` and `count`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(deserialize_with = "crate::units::count::optional_count")]
    pub count: Option<u64>,
    /// Drain time: receiving continues for this time after the last frame was sent, up to 1m (default 200ms). Frames
    /// that arrive in this time are received and counted as late; later frames are lost.
    #[serde(default = "default_drain")]
    pub drain: Span,
    /// Ramp-up time before the duration, in which the rate rises evenly from 0 to the full rate (default 0s). Frames of
    /// the ramp-up are sent and counted separately.
    #[serde(default, skip_serializing_if = "is_default")]
    pub ramp: Span,
    /// Time after the ramp-up at `hold_load` times the rate, before the duration starts (default 0). These frames are
    /// counted as frames of the ramp-up.
    #[serde(default, skip_serializing_if = "is_default")]
    pub hold: Span,
    /// Rate during `hold`, and target of the ramp-up, as a multiple of the streams' rates, 0.01 to 100 (default 1).
    #[serde(default = "once", skip_serializing_if = "is_once")]
    pub hold_load: f64,
    /// Shortest time without an arrival of a flow that counts as an outage if frames are missing, 0 to 1h (default
    /// 10ms).
    #[serde(default = "default_outage_threshold")]
    #[serde(skip_serializing_if = "is_default_outage_threshold")]
    pub outage_threshold: Span,
    /// Maximum delay that a stalled sender makes up for (default 100ms). Older frames stay unsent.
    #[serde(default = "default_catch_up")]
    pub catch_up: Span,
    /// Also measure the time between departures (a histogram, at some cost per frame).
    #[serde(default, skip_serializing_if = "is_false")]
    pub departures: bool,
    /// Number of flows to follow, for a job that only receives, 1 to 16,777,216. Required for a port of the live
    /// driver; default on other ports: 1,048,576. Frames of other flows are foreign.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(deserialize_with = "crate::units::count::optional_count")]
    pub flows: Option<u32>,
    /// Number of the job's first flow in test tags, as a fleet sets it in the part of each host (default: jobs are
    /// numbered in order, from `first_flow` of the plan on). For a job that only receives: the first flow of the run to
    /// follow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_flow: Option<u32>,
    /// Streams. Empty in a job that only receives.
    #[serde(default, rename = "stream", skip_serializing_if = "Vec::is_empty")]
    pub streams: Vec<Stream>,
}

/// Frame template with the varying fields, the sizes and the rate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Stream {
    /// Name in the report. Default or empty: a word and its number.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Frame sizes with FCS: `64`, a range `64-1518`, a sequence `64,128,256`, `imix`, or weights `64:7,570:4,1518:1`
    /// (default: the smallest that holds headers and tag, at least 64).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<SizeModel>,
    /// Rate of this stream, over all its workers: `100kpps` or `100k`, `1.2mpps`, `10gbps` (layer 1), `9gbps-l2`,
    /// `37%`, `max` (default `max`).
    pub rate: Rate,
    /// Number of frames of this stream, over all its workers (default: no limit other than those of the job). It needs a
    /// rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(deserialize_with = "crate::units::count::optional_count")]
    pub count: Option<u64>,
    /// Time of the first frame, relative to the start of the job (default 0).
    #[serde(skip_serializing_if = "is_default")]
    pub start: Span,
    /// Frames per burst, sent back to back or at `rate` in frames per second, one burst every `gap`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(deserialize_with = "crate::units::count::optional_count")]
    pub burst: Option<u32>,
    /// Time from the first frame of a burst to the first frame of the next.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gap: Option<Span>,
    /// Number of flows with distinct 5-tuples, used in turn, 1 to 16,777,216 (default: one for each combination of the
    /// given address and port ranges, at most 65,536).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(deserialize_with = "crate::units::count::optional_count")]
    pub flows: Option<u32>,
    /// Protocol of the frames (default `udp`).
    pub proto: Proto,
    /// Use IPv6 instead of IPv4 if no address determines the version.
    #[serde(skip_serializing_if = "is_false")]
    pub ipv6: bool,
    /// Source addresses: one, a range A-B, or a prefix (default 198.18.1.2; with `ipv6` 2001:2:0:1::2).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub src: Option<AddressRange>,
    /// Destination addresses: one, a range A-B, or a prefix (default 198.19.1.2; with `ipv6` 2001:2:0:8001::2).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dst: Option<AddressRange>,
    /// Source ports: one or a range; ICMP identifier (default 49184, RFC 2544 C.2.6.4).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sport: Option<PortRange>,
    /// Destination ports: one or a range (default 7, echo; RFC 2544 C.2.6.4).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dport: Option<PortRange>,
    /// Source hardware address (default: address of the port).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub src_mac: Option<Mac>,
    /// Destination hardware address (default: resolved by ARP or neighbour discovery).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dst_mac: Option<Mac>,
    /// VLAN ids, outermost first, at most 4: `ID` or `ID:PRIORITY`. The last tag is 802.1Q, outer tags are 802.1ad.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub vlan: Vec<VlanSpec>,
    /// MPLS labels, topmost first, at most 8.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mpls: Vec<u32>,
    /// IPv6 extension headers, in order. They request no action from devices (RFC 5180 section 7).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ext: Vec<Extension>,
    /// IPv4 type of service or IPv6 traffic class, 0 to 255 (default 0).
    #[serde(skip_serializing_if = "is_default")]
    pub tos: u8,
    /// IPv4 time to live or IPv6 hop limit (default 64).
    pub ttl: u8,
    /// TCP flags of `proto = "tcp"` as a number: 0x10 is ACK, 0x02 SYN (default 0x10).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tcp_flags: Option<u8>,
    /// EtherType of `proto = "raw"` (default 0x88b5, local experiments of IEEE 802).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ethertype: Option<u16>,
    /// Bytes of `proto = "raw"` between the Ethernet header, with its VLAN tags and labels, and the tag, as hex digits:
    /// other headers, such as tunnels. Lengths and checksums that are 0 are filled in if the headers are known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub headers: Option<HexBytes>,
    /// Offsets of checksums in `headers`, from the start of the frame, that are sent as the complement of the right
    /// value: 24 is that of IPv4 without tags.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub bad_checksums: Vec<u16>,
    /// Payload after the headers and the tag: hex digits, repeated to fill the frame (default: zeros).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payload: Option<HexBytes>,
    /// Fields that vary from frame to frame, in the order in which they are applied: `FIELD=inc:FIRST-LAST`, also with
    /// `dec` or `random`, or `FIELD=list:A,B`, optionally with `,step=N` and `,mask=0x..`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub vary: Vec<Vary>,
    /// Test tag after the last header (default `wirebench`).
    #[serde(skip_serializing_if = "is_default")]
    pub tag: TagKind,
    /// File (pcap or pcapng) with frames to send unmodified, instead of generated frames. They are repeated until the
    /// `duration` or `count` of the job is reached.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replay: Option<String>,
    /// Speed of a replay relative to the recording: 1 is the recorded timing, 2 twice as fast (default: paced by
    /// `rate`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speed: Option<f64>,
}

impl Default for Stream {
    fn default() -> Self {
        Self {
            name: String::new(),
            size: None,
            rate: Rate::Max,
            count: None,
            start: Span::default(),
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
            headers: None,
            bad_checksums: Vec::new(),
            payload: None,
            vary: Vec::new(),
            tag: TagKind::Wirebench,
            replay: None,
            speed: None,
        }
    }
}

/// Protocol of a stream's frames.
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
    /// No IP: the payload directly follows Ethernet, VLAN tags and MPLS labels.
    Raw,
}

/// IPv6 extension header of a stream's frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Extension {
    /// Hop-by-hop options with padding only, 8 bytes; must be first.
    HopByHop,
    /// Routing header without segments left, 24 bytes.
    Routing,
    /// Fragment header of an unfragmented packet, 8 bytes.
    Fragment,
    /// Destination options with padding only, 8 bytes.
    Destination,
}

impl Extension {
    /// All extension headers.
    pub const ALL: [Self; 4] = [
        Self::HopByHop,
        Self::Routing,
        Self::Fragment,
        Self::Destination,
    ];

    /// Name in plans and options.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::HopByHop => "hop-by-hop",
            Self::Routing => "routing",
            Self::Fragment => "fragment",
            Self::Destination => "destination",
        }
    }

    /// Length on the wire in bytes.
    #[must_use]
    pub const fn octets(self) -> u32 {
        match self {
            Self::Routing => 24,
            Self::HopByHop | Self::Fragment | Self::Destination => 8,
        }
    }
}

/// Test tag of the frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TagKind {
    /// The test tag of this program: flow, sequence, time; 18 bytes.
    #[default]
    Wirebench,
    /// The header of the Linux packet generator: sequence and time; 16 bytes.
    Pktgen,
    /// No tag: frames can only be counted.
    None,
}

/// VLAN tag: `10`, or `10:5` with a priority.
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
const fn default_outage_threshold() -> Span {
    Span::from_nanos(wb_measure::OUTAGE_THRESHOLD_NS)
}
fn is_default_outage_threshold(threshold: &Span) -> bool {
    *threshold == default_outage_threshold()
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
    /// Returns the load balancer benchmark of the plan, if the plan holds one.
    #[must_use]
    pub fn lb(&self) -> Option<&LbPlan> {
        match &self.procedure {
            Some(Procedure::Lb(lb)) => Some(lb),
            _ => None,
        }
    }

    /// Returns true if a port is on another host.
    #[must_use]
    pub fn is_elsewhere(&self, port: &Option<String>) -> bool {
        let mut ports = self.ports.iter().filter(|p| p.locator.host.is_some());
        ports.any(|p| Some(&p.name) == port.as_ref())
    }

    /// Returns the locators of all ports, including those of a benchmark's trials.
    pub fn locators(&self) -> impl Iterator<Item = &Locator> {
        let sides = self
            .lb()
            .into_iter()
            .flat_map(|lb| [&lb.client.port, &lb.server.port]);
        self.ports.iter().map(|port| &port.locator).chain(sides)
    }

    /// Returns true if the jobs of a kind run without a limit.
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
            // Servers run as long as the clients of the same plan.
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
    /// Name of the port in messages: `port NAME`, or `NAME` if the name is of this form, as in plans of dperf files.
    #[must_use]
    pub fn title(&self) -> String {
        match self.name.strip_prefix("port ") {
            Some(_) => self.name.clone(),
            None => format!("port {}", self.name),
        }
    }

    /// Creates a port with one worker and default values.
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
    /// Returns the time from the first frame to the first counted frame, in ns.
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
            outage_threshold: default_outage_threshold(),
            catch_up: default_catch_up(),
            departures: false,
            flows: None,
            first_flow: None,
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
