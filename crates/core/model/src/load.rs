//! Jobs of stateful load: connections that one end opens and the other answers.

use std::net::Ipv4Addr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::units::{AddressRange, Mac, PortRange, Span};

mod problems;
mod report;

pub(crate) use problems::measures;

pub use report::{
    ConnectionTotals, LoadJobReport, LoadLive, LoadPhaseReport, LoadReport, LoadRouteReport,
    LoadStage, LoadWorkerReport,
};

/// One end of connections, at one port.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LoadJob {
    /// What the report calls it. Empty, as without: a word and its number.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Name of the port. Its gateway is the next hop of everything.
    pub port: String,
    /// The gateway's hardware address. Without it, asked for by ARP or neighbour discovery.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gateway_mac: Option<Mac>,
    /// Whether it opens connections or answers them.
    pub end: LoadEnd,
    /// TCP or UDP.
    pub transport: LoadTransport,
    /// Client: source addresses. Server: whom it answers; empty is anyone.
    pub clients: Vec<AddressRange>,
    /// Client: where connections go. Server: its own addresses.
    pub servers: Vec<AddressRange>,
    /// Source ports of connections.
    pub client_ports: PortRange,
    /// Ports of the server.
    pub server_ports: PortRange,
    /// In which order addresses and ports are used.
    #[serde(skip_serializing_if = "is_default")]
    pub order: TupleOrder,
    /// Worker number n has the n-th of `servers` to itself, and the n-th ends of the tunnel, so that
    /// both sides can steer by address. As many server addresses as the port has workers.
    #[serde(skip_serializing_if = "is_default")]
    pub server_per_worker: bool,
    /// Client, with `flood`: destinations that packets take in turn, instead of the server's.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub destinations: Vec<Destinations>,
    /// VLAN id of all frames, 1 to 4094.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vlan: Option<u16>,
    /// The tunnel around all frames.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vxlan: Option<Vxlan>,
    /// IPv4 type of service or IPv6 traffic class.
    #[serde(skip_serializing_if = "is_default")]
    pub tos: u8,
    /// IPv4 time to live or IPv6 hop limit.
    pub ttl: u8,
    /// Client: what is asked.
    pub request: LoadMessage,
    /// Server: what is answered.
    pub answer: LoadAnswer,
    /// Server: what each worker answers, in their order, in place of `answer`. Empty, or one for each
    /// worker.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub worker_answers: Vec<LoadAnswer>,
    /// Server: what is answered to which path, in place of `answer`; 404 to all others.
    #[serde(rename = "route", skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<LoadRoute>,
    /// Fill HTTP messages with random letters instead of one, the same in each message. Plain messages
    /// say it by themselves.
    #[serde(skip_serializing_if = "is_default")]
    pub random_filler: bool,
    /// What ends a message that comes in. With UDP each datagram is one.
    pub reading: LoadReading,
    /// Client: requests of a connection, after which it is closed; 0: until the end of the run.
    /// Server: answers, after which it closes; 0: as many as the client wants.
    pub requests: u32,
    /// Client: from request to request of a connection; 0: as soon as the answer has come.
    #[serde(skip_serializing_if = "is_default")]
    pub interval: Span,
    /// Client: requests sent back to back; 1 to 100.
    pub pipeline: u16,
    /// Client: send and do not wait for answers: SYN packets, or datagrams.
    #[serde(skip_serializing_if = "is_default")]
    pub flood: bool,
    /// How a client ends a connection.
    #[serde(skip_serializing_if = "is_default")]
    pub close: LoadClose,
    /// Client: how much.
    pub rate: LoadRate,
    /// Client: how it changes with time.
    pub shape: LoadShape,
    /// Frames that are handed to the port as soon as there are so many, up to 1024; fewer go when a
    /// worker has nothing else to do. 0: chosen by the program.
    #[serde(skip_serializing_if = "is_default")]
    pub batch: u16,
    /// How TCP behaves.
    pub tcp: LoadTcp,
    /// Server: a PROXY header of version 1 or 2 may come before the first request.
    #[serde(skip_serializing_if = "is_default")]
    pub proxy: bool,
}

impl Default for LoadJob {
    fn default() -> Self {
        Self {
            name: String::new(),
            port: String::new(),
            gateway_mac: None,
            end: LoadEnd::Client,
            transport: LoadTransport::Tcp,
            clients: Vec::new(),
            servers: Vec::new(),
            client_ports: PortRange {
                first: 1024,
                last: 65535,
            },
            server_ports: PortRange::single(80),
            order: TupleOrder::Sequential,
            server_per_worker: false,
            destinations: Vec::new(),
            vlan: None,
            vxlan: None,
            tos: 0,
            ttl: 64,
            request: LoadMessage::default(),
            answer: LoadAnswer::default(),
            worker_answers: Vec::new(),
            routes: Vec::new(),
            random_filler: false,
            reading: LoadReading::Http,
            requests: 1,
            interval: Span::default(),
            pipeline: 1,
            flood: false,
            close: LoadClose::Fin,
            rate: LoadRate::default(),
            shape: LoadShape::default(),
            batch: 0,
            tcp: LoadTcp::default(),
            proxy: false,
        }
    }
}

/// Which end of connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LoadEnd {
    /// Opens connections.
    #[default]
    Client,
    /// Answers them.
    Server,
}

impl LoadEnd {
    /// As reports call it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Server => "server",
        }
    }
}

/// What runs over IP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LoadTransport {
    /// RFC 9293.
    #[default]
    Tcp,
    /// RFC 768.
    Udp,
}

/// In which order addresses and ports are combined. Each combination comes once before any comes
/// again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TupleOrder {
    /// Server address fastest, then server port, client port, client address.
    #[default]
    Sequential,
    /// Client address and port both change from one to the next.
    Stride,
    /// By the plan's seed.
    Random,
}

/// Destinations that follow one another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Destinations {
    /// From the first to the last.
    pub addresses: AddressRange,
    /// From one to the next; 1 takes all of them.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub step: u64,
}

/// A VXLAN tunnel (RFC 7348); IPv4 outside.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Vxlan {
    /// Network identifier, 1 to 16777215.
    pub vni: u32,
    /// Source hardware address inside.
    pub src_mac: Mac,
    /// Destination hardware address inside.
    pub dst_mac: Mac,
    /// Our ends, one for each worker.
    pub local: AddressRange,
    /// The other ends: one, or one for each worker.
    pub remote: AddressRange,
}

/// Whom updates of RIPv2 go to: routers on the link, which take them no further (RFC 2453 section 4.5).
pub const ALL_RIP_ROUTERS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 9);

/// What a client asks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum LoadMessage {
    /// So many bytes of one letter; at least 1 with TCP, one packet with UDP.
    Bytes(u32),
    /// So many bytes of random letters, the same in each message.
    Random(u32),
    /// What is in this file.
    File(String),
    /// An HTTP/1.1 request.
    Http(HttpRequest),
    /// UDP, with `flood`: updates of RIPv2 (RFC 2453), two tables of documentation networks in turn, of which this one
    /// comes first: 1 or 2.
    Rip(u8),
    /// UDP: a question of SNMPv2c for sysUpTime.0, with this community. A response belongs to the question with its
    /// request id; those that tell of an error are counted (`snmp_errors`).
    Snmp(String),
}

impl Default for LoadMessage {
    fn default() -> Self {
        Self::Http(HttpRequest::default())
    }
}

/// An HTTP/1.1 request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct HttpRequest {
    /// GET, POST, …
    pub method: String,
    /// Begins with `/`.
    pub path: String,
    /// Of the Host header. Empty: the server's address.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub host: String,
    /// Bytes of the body.
    #[serde(skip_serializing_if = "is_default")]
    pub body: u32,
    /// Bytes of the whole request: the path of a GET, else the body, is filled up to it. 0: as many as
    /// the others make.
    #[serde(skip_serializing_if = "is_default")]
    pub size: u32,
}

impl Default for HttpRequest {
    fn default() -> Self {
        Self {
            method: "GET".to_owned(),
            path: "/".to_owned(),
            host: String::new(),
            body: 0,
            size: 0,
        }
    }
}

/// What a server answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum LoadAnswer {
    /// So many bytes of one letter.
    Bytes(u32),
    /// So many bytes of random letters, the same in each answer.
    Random(u32),
    /// What is in this file.
    File(String),
    /// HTTP/1.1 200 with a body of so many bytes.
    Http(u32),
    /// As many bytes as came; with UDP the same.
    Echo,
    /// Nothing. What comes is counted.
    Sink,
}

impl Default for LoadAnswer {
    fn default() -> Self {
        Self::Http(1)
    }
}

/// What an HTTP server answers to a path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LoadRoute {
    /// Path without query; with `*` at its end all that begin with what stands before. The exact path counts, then
    /// the longest beginning.
    pub path: String,
    /// 200 to 599.
    pub status: u16,
    /// Bytes of the body.
    pub size: u32,
    /// From the end of the request to the beginning of the answer; up to 30s.
    #[serde(skip_serializing_if = "is_default")]
    pub delay: Span,
    /// The connection is closed after it.
    #[serde(skip_serializing_if = "is_default")]
    pub close: bool,
}

impl Default for LoadRoute {
    fn default() -> Self {
        Self {
            path: "*".to_owned(),
            status: 200,
            size: 1,
            delay: Span::default(),
            close: false,
        }
    }
}

/// What ends a message that comes in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LoadReading {
    /// HTTP/1.1 says so: Content-Length, chunks, or the end of the connection (RFC 9112 section 6).
    #[default]
    Http,
    /// Each segment or datagram is a message.
    Segment,
    /// So many bytes.
    Bytes(u32),
    /// The end of the connection.
    Stream,
}

/// How a client ends a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LoadClose {
    /// By FIN.
    #[default]
    Fin,
    /// By RST.
    Reset,
}

/// How much load. What is absent is no limit; all that is given holds together, over all workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LoadRate {
    /// New connections per second; 0: none; `"max"`: as fast as possible with `cc` connections open at a time.
    #[serde(skip_serializing_if = "Option::is_none", with = "count_or_max")]
    #[schemars(with = "Option<CountOrMax>")]
    pub cps: Option<u64>,
    /// Connections open at a time; 0: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cc: Option<u64>,
    /// Requests per second, over all open connections; with it `interval` has no meaning. `"max"`: each as soon as an
    /// answer has come, over `cc` connections.
    #[serde(skip_serializing_if = "Option::is_none", with = "count_or_max")]
    #[schemars(with = "Option<CountOrMax>")]
    pub rps: Option<u64>,
    /// Frames per second sent; for UDP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pps: Option<u64>,
    /// Bits per second sent, layer 2 with FCS; for UDP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bps: Option<u64>,
    /// Connections opened back to back; 0: chosen by the program.
    #[serde(skip_serializing_if = "is_default")]
    pub group: u32,
}

impl LoadRate {
    /// Value of `cps` and `rps` for `"max"`: no limit, so nothing of it can stay unsent.
    pub const MAX: u64 = u64::MAX - 1;
}

/// A number or `"max"`.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
enum CountOrMax {
    Count(u64),
    Word(MaxWord),
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum MaxWord {
    Max,
}

mod count_or_max {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::{CountOrMax, LoadRate, MaxWord};

    #[allow(clippy::ref_option)]
    pub(super) fn serialize<S: Serializer>(
        rate: &Option<u64>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let told = rate.map(|rate| match rate {
            LoadRate::MAX => CountOrMax::Word(MaxWord::Max),
            rate => CountOrMax::Count(rate),
        });
        told.serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<u64>, D::Error> {
        let told = Option::<CountOrMax>::deserialize(deserializer)
            .map_err(|_| serde::de::Error::custom("it is neither a whole number nor \"max\""))?;
        Ok(told.map(|told| match told {
            CountOrMax::Count(rate) => rate,
            CountOrMax::Word(MaxWord::Max) => LoadRate::MAX,
        }))
    }
}

/// How the load changes with time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LoadShape {
    /// Nothing is opened before this time.
    #[serde(skip_serializing_if = "is_default")]
    pub wait: Span,
    /// From nothing to the full rate, before the duration begins. `wait` is part of it.
    #[serde(skip_serializing_if = "is_default")]
    pub ramp: Span,
    /// How it rises.
    #[serde(skip_serializing_if = "is_default")]
    pub rise: LoadRise,
    /// At the full rate. Server: 0 is until it is stopped; with clients in the same plan it goes on
    /// until they have ended.
    pub duration: Span,
    /// After it, for connections to end.
    pub drain: Span,
    /// Share of the rate over the duration, in place of the full rate throughout: from each point to
    /// the next on a straight line, the last one to the end.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub profile: Vec<ProfilePoint>,
}

impl Default for LoadShape {
    fn default() -> Self {
        Self {
            wait: Span::default(),
            ramp: Span::default(),
            rise: LoadRise::Linear,
            duration: Span::from_secs(10),
            drain: Span::from_secs(4),
            profile: Vec::new(),
        }
    }
}

/// How a ramp rises.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LoadRise {
    /// Evenly.
    #[default]
    Linear,
    /// In a step each second.
    Steps,
    /// Doubling from a thousandth.
    Exponential,
}

/// A point of a profile.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProfilePoint {
    /// From the beginning of the duration.
    pub at: Span,
    /// Share of the rate; 0 to 10.
    pub share: f64,
}

/// How TCP behaves. Times are for both ends unless said.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LoadTcp {
    /// Largest segment announced and sent; 0: what the MTU of the port carries.
    #[serde(skip_serializing_if = "is_default")]
    pub mss: u16,
    /// Bytes of the window announced; up to 1 GiB.
    pub window: u32,
    /// Most segments in flight; 0: what the peer's and the congestion window allow.
    #[serde(skip_serializing_if = "is_default")]
    pub in_flight: u16,
    /// A segment without acknowledgement is sent again after this time, as long as the round trip is not
    /// known; then the round trip decides, and this is the least beside it, up to 200 ms.
    pub retransmit: Span,
    /// Transmissions of a segment, at most.
    pub tries: u8,
    /// The time doubles with each try (RFC 6298 section 5.5).
    pub backoff: bool,
    /// From the first SYN to its answer, at most; 0: no limit.
    pub connect_timeout: Span,
    /// From a request to the end of its answer, at most; 0: no limit. For UDP too: then the request
    /// is lost.
    pub response_timeout: Span,
    /// From our FIN to the end, at most; 0: no limit.
    pub close_timeout: Span,
    /// Server: without anything from the client, at most; 0: no limit.
    pub idle_timeout: Span,
    /// How long a closed connection's addresses and ports rest; 0: not at all.
    #[serde(skip_serializing_if = "is_default")]
    pub time_wait: Span,
    /// Between requests that are far apart: acknowledge at once, without waiting for the next one.
    pub acknowledge: bool,
    /// Answer segments of no connection by RST.
    pub reset_unknown: bool,
    /// Packets as dperf sends them, where that differs from the standards.
    #[serde(skip_serializing_if = "is_default")]
    pub like_dperf: bool,
}

impl Default for LoadTcp {
    fn default() -> Self {
        Self {
            mss: 0,
            window: 1 << 20,
            in_flight: 0,
            retransmit: Span::from_secs(1),
            tries: 5,
            backoff: true,
            connect_timeout: Span::from_secs(10),
            response_timeout: Span::from_secs(10),
            close_timeout: Span::from_secs(10),
            idle_timeout: Span::from_secs(60),
            time_wait: Span::default(),
            acknowledge: true,
            reset_unknown: true,
            like_dperf: false,
        }
    }
}

const fn one() -> u64 {
    1
}
const fn is_one(n: &u64) -> bool {
    *n == 1
}
fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
