//! Jobs of stateful load: connections that one end opens and the other end answers.

use std::net::Ipv4Addr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::units::{AddressRange, Mac, PortRange, Span};

pub mod figures;
mod problems;
mod report;

pub(crate) use problems::measures;

pub use report::{
    ConnectionTotals, LoadJobReport, LoadLive, LoadPhaseReport, LoadReport, LoadRouteReport,
    LoadStage, LoadWorkerReport, PORT_COUNTERS,
};

/// One end of connections at one port.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LoadJob {
    /// Name in the report. Default or empty: a word and its number.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Name of the port. Its gateway is the next hop of all frames.
    pub port: String,
    /// Client: number of hosts among which the load is split, 1 to 1000: its rates and the addresses of `clients`. The
    /// locator of the port then has labels of hosts: `{rack=r1}:any`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share: Option<u32>,
    /// Hardware address of the gateway, if it does not answer (default: resolved by ARP or neighbour discovery).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gateway_mac: Option<Mac>,
    /// Role: `client` opens connections, `server` answers them (default `client`).
    pub end: LoadEnd,
    /// TCP or UDP (default `tcp`).
    pub transport: LoadTransport,
    /// Client: source addresses. Server: addresses of the clients that it answers; empty means any.
    pub clients: Vec<AddressRange>,
    /// Client: destination addresses of connections. Server: its addresses.
    pub servers: Vec<AddressRange>,
    /// Source ports of connections (default 1024-65535).
    pub client_ports: PortRange,
    /// Ports of the server (default 80).
    pub server_ports: PortRange,
    /// Order in which addresses and ports are used (default `sequential`).
    #[serde(skip_serializing_if = "is_default")]
    pub order: TupleOrder,
    /// Give worker n exclusive use of the n-th address of `servers` and of the n-th tunnel endpoints, so that both
    /// sides can steer by address. The number of server addresses must equal the number of workers of the port.
    #[serde(skip_serializing_if = "is_default")]
    pub server_per_worker: bool,
    /// Client, with `flood`: destinations that packets use in turn, instead of the servers' addresses.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub destinations: Vec<Destinations>,
    /// VLAN id of all frames, 1 to 4094.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vlan: Option<u16>,
    /// VXLAN tunnel around all frames.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vxlan: Option<Vxlan>,
    /// IPv4 type of service or IPv6 traffic class, 0 to 255 (default 0).
    #[serde(skip_serializing_if = "is_default")]
    pub tos: u8,
    /// IPv4 time to live or IPv6 hop limit, 1 to 255 (default 64).
    pub ttl: u8,
    /// Client: request to send.
    pub request: LoadMessage,
    /// Server: response to send.
    pub answer: LoadAnswer,
    /// Server: response of each worker, in order, instead of `answer`. Empty, or one for each worker.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub worker_answers: Vec<LoadAnswer>,
    /// Server: responses by path, instead of `answer`. All other paths get status 404.
    #[serde(rename = "route", skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<LoadRoute>,
    /// Fill HTTP messages with random letters, the same in each message, instead of one repeated letter. Plain messages
    /// select their filler with `bytes` or `random`.
    #[serde(skip_serializing_if = "is_default")]
    pub random_filler: bool,
    /// End of a received message (default `http`). With UDP each datagram is a message.
    pub reading: LoadReading,
    /// Client: requests per connection, after which it is closed; 0 means until the end of the run. Server: responses
    /// after which it closes a connection; 0 means no limit. Default 1.
    pub requests: u32,
    /// Client: time between the requests of a connection (default 0s). With 0, the next request follows the response
    /// immediately.
    #[serde(skip_serializing_if = "is_default")]
    pub interval: Span,
    /// Client: requests sent back to back, 1 to 100 (default 1).
    pub pipeline: u16,
    /// Client: send SYN packets or datagrams without waiting for responses.
    #[serde(skip_serializing_if = "is_default")]
    pub flood: bool,
    /// Method with which a client closes a connection (default `fin`).
    #[serde(skip_serializing_if = "is_default")]
    pub close: LoadClose,
    /// Client: amount of load.
    pub rate: LoadRate,
    /// Client: change of the load over time.
    pub shape: LoadShape,
    /// Number of frames after which a batch is passed to the port, up to 1024. An idle worker passes on smaller
    /// batches. 0: the program chooses it.
    #[serde(skip_serializing_if = "is_default")]
    pub batch: u16,
    /// TCP parameters.
    pub tcp: LoadTcp,
    /// Server: accept a PROXY header of version 1 or 2 before the first request.
    #[serde(skip_serializing_if = "is_default")]
    pub proxy: bool,
}

impl Default for LoadJob {
    fn default() -> Self {
        Self {
            name: String::new(),
            port: String::new(),
            share: None,
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

/// End of connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LoadEnd {
    /// Opens connections.
    #[default]
    Client,
    /// Answers connections.
    Server,
}

impl LoadEnd {
    /// Name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Server => "server",
        }
    }
}

/// Transport protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LoadTransport {
    /// TCP (RFC 9293).
    #[default]
    Tcp,
    /// UDP (RFC 768).
    Udp,
}

impl LoadTransport {
    /// Name in plans and reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        }
    }
}

/// Order in which addresses and ports are combined. Each combination is used once before any is reused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TupleOrder {
    /// Server address varies fastest, then server port, client port, client address.
    #[default]
    Sequential,
    /// Client address and port both change from one combination to the next.
    Stride,
    /// Random order from the plan's seed.
    Random,
}

/// Consecutive destinations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Destinations {
    /// Range of addresses.
    pub addresses: AddressRange,
    /// Distance from one address to the next; 1 uses all addresses (default 1).
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub step: u64,
}

/// VXLAN tunnel (RFC 7348) over IPv4.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Vxlan {
    /// Network identifier, 1 to 16777215.
    pub vni: u32,
    /// Source hardware address of the inner frames.
    pub src_mac: Mac,
    /// Destination hardware address of the inner frames.
    pub dst_mac: Mac,
    /// Local tunnel endpoints, one for each worker.
    pub local: AddressRange,
    /// Remote tunnel endpoints: one, or one for each worker.
    pub remote: AddressRange,
}

/// Destination of RIPv2 updates: all routers on the link, which do not forward them (RFC 2453 section 4.5).
pub const ALL_RIP_ROUTERS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 9);

/// Request of a client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum LoadMessage {
    /// Number of bytes, all of one letter; at least 1 with TCP, one packet with UDP.
    Bytes(u32),
    /// Number of bytes, of random letters that are the same in each message.
    Random(u32),
    /// Path of a file with the message.
    File(String),
    /// HTTP/1.1 request.
    Http(HttpRequest),
    /// UDP, with `flood`: RIPv2 updates (RFC 2453) that alternate between two tables of documentation networks. The
    /// value is the first table: 1 or 2.
    Rip(u8),
    /// UDP: SNMPv2c query for sysUpTime.0, with this community. The request id matches responses to queries. Responses
    /// with an error are counted (`snmp_errors`).
    Snmp(String),
}

impl Default for LoadMessage {
    fn default() -> Self {
        Self::Http(HttpRequest::default())
    }
}

/// HTTP/1.1 request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct HttpRequest {
    /// Method of the HTTP request: GET, POST, … (default GET).
    pub method: String,
    /// Path, beginning with `/` (default `/`).
    pub path: String,
    /// Host header of the HTTP request (default: address of the server).
    #[serde(skip_serializing_if = "String::is_empty")]
    pub host: String,
    /// Size of the HTTP request body in bytes (default 0).
    #[serde(skip_serializing_if = "is_default")]
    pub body: u32,
    /// Size of the whole request in bytes: the path of a GET, or the body of other methods, is padded to it. 0:
    /// determined by the other keys.
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

/// Response of a server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum LoadAnswer {
    /// Number of bytes, all of one letter.
    Bytes(u32),
    /// Number of bytes, of random letters that are the same in each response.
    Random(u32),
    /// Path of a file with the response.
    File(String),
    /// HTTP/1.1 status 200 with a body of this number of bytes.
    Http(u32),
    /// The number of bytes received; with UDP the received bytes themselves.
    Echo,
    /// No response. Received data is counted.
    Sink,
}

impl Default for LoadAnswer {
    fn default() -> Self {
        Self::Http(1)
    }
}

/// Response of an HTTP server to a path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LoadRoute {
    /// Path without query (default `*`). With `*` at its end it matches all paths with this prefix. An exact match
    /// takes precedence, then the longest prefix.
    pub path: String,
    /// HTTP status, 200 to 599 (default 200).
    pub status: u16,
    /// Size of the body in bytes (default 1).
    pub size: u32,
    /// Time from the end of the request to the start of the response, up to 30s.
    #[serde(skip_serializing_if = "is_default")]
    pub delay: Span,
    /// Close the connection after the response.
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

/// End of a received message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LoadReading {
    /// End as defined by HTTP/1.1: Content-Length, chunks, or the end of the connection (RFC 9112 section 6).
    #[default]
    Http,
    /// End of each segment or datagram.
    Segment,
    /// Fixed number of bytes.
    Bytes(u32),
    /// End of the connection.
    Stream,
}

/// Method with which a client closes a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LoadClose {
    /// FIN.
    #[default]
    Fin,
    /// RST.
    Reset,
}

/// Amount of load. Absent keys set no limit. All given limits apply together, over all workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LoadRate {
    /// New connections per second (`10k`, `1.5m`), or `max`: as fast as possible with `cc` concurrent connections. With
    /// 0 in all clients, `load --control` is required.
    #[serde(skip_serializing_if = "Option::is_none", with = "count_or_max")]
    #[schemars(with = "Option<CountOrMax>")]
    pub cps: Option<u64>,
    /// Concurrent connections. With 0 in all clients, `load --control` is required.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(deserialize_with = "crate::units::count::optional_count")]
    pub cc: Option<u64>,
    /// Requests per second over all open connections, or `max`: each request as soon as a response has arrived, over
    /// `cc` connections. `interval` is then ignored.
    #[serde(skip_serializing_if = "Option::is_none", with = "count_or_max")]
    #[schemars(with = "Option<CountOrMax>")]
    pub rps: Option<u64>,
    /// UDP: frames sent per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(deserialize_with = "crate::units::count::optional_count")]
    pub pps: Option<u64>,
    /// UDP: bits sent per second at layer 2 with FCS.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(deserialize_with = "crate::units::count::optional_count")]
    pub bps: Option<u64>,
    /// Connections opened back to back; 0: the program chooses it.
    #[serde(skip_serializing_if = "is_default")]
    pub group: u32,
}

impl LoadRate {
    /// Value of `cps` and `rps` for `"max"`. There is no target rate, so nothing counts as unsent.
    pub const MAX: u64 = u64::MAX - 1;

    /// Returns true if a limit of 0 prevents every connection and every request.
    #[must_use]
    pub fn sends_nothing(&self) -> bool {
        let given = [self.cps, self.cc, self.rps, self.pps, self.bps];
        [self.cps, self.cc].contains(&Some(0)) || given.into_iter().flatten().max() == Some(0)
    }
}

/// Number or `"max"`.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
enum CountOrMax {
    #[serde(deserialize_with = "crate::units::count::count")]
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
        let told = Option::<CountOrMax>::deserialize(deserializer).map_err(|_| {
            serde::de::Error::custom(
                "expected a whole number below 2^64, also with k, m or g (\"20k\"), or \"max\"",
            )
        })?;
        Ok(told.map(|told| match told {
            CountOrMax::Count(rate) => rate,
            CountOrMax::Word(MaxWord::Max) => LoadRate::MAX,
        }))
    }
}

/// Change of the load over time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LoadShape {
    /// Time before the first connection is opened (default 0s).
    #[serde(skip_serializing_if = "is_default")]
    pub wait: Span,
    /// Ramp-up time from zero to the full rate, before the duration starts (default 0s). It includes `wait`.
    #[serde(skip_serializing_if = "is_default")]
    pub ramp: Span,
    /// Shape of the ramp-up (default `linear`).
    #[serde(skip_serializing_if = "is_default")]
    pub rise: LoadRise,
    /// Time at the full rate (default 10s). Server: 0 means until the server is stopped. With clients in the same plan,
    /// a server runs until they have ended.
    pub duration: Span,
    /// Time after the duration for connections to end, up to 1m (default 4s).
    pub drain: Span,
    /// Profile of the rate over the duration, as shares of the full rate. The share changes linearly between points,
    /// and the last one stays until the end. Empty: the full rate throughout.
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

/// Shape of the ramp-up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LoadRise {
    /// Linear increase.
    #[default]
    Linear,
    /// One step per second.
    Steps,
    /// Repeated doubling from a thousandth of the rate.
    Exponential,
}

/// Point of a profile.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProfilePoint {
    /// Time since the start of the duration.
    pub at: Span,
    /// Share of the rate, 0 to 10.
    pub share: f64,
}

/// TCP parameters. Times apply to both ends unless noted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LoadTcp {
    /// Maximum segment size, announced and sent, in bytes; 0: the size that fits the MTU of the port (default 0).
    #[serde(skip_serializing_if = "is_default")]
    pub mss: u16,
    /// Announced receive window in bytes, 1 to 1 GiB (default 1048576).
    pub window: u32,
    /// Maximum number of segments in flight; 0 means the limit of the peer's window and the congestion window.
    #[serde(skip_serializing_if = "is_default")]
    pub in_flight: u16,
    /// Initial retransmission timeout, used until the round-trip time is known (default 1s). Later the timeout follows
    /// the round-trip time, and the minimum timeout is this value or 200ms if that is less.
    pub retransmit: Span,
    /// Maximum number of transmissions of a segment, 1 to 255 (default 5).
    #[schemars(range(min = 1))]
    pub tries: u8,
    /// Double the timeout with each retransmission (RFC 6298 section 5.5; default true).
    pub backoff: bool,
    /// Maximum time from the first SYN to its response; 0: no limit (default 10s).
    pub connect_timeout: Span,
    /// Maximum time from a request to the end of its response; 0: no limit (default 10s). It applies to UDP, too: a
    /// later request counts as lost.
    pub response_timeout: Span,
    /// Maximum time from the own FIN to the end of the connection; 0: no limit (default 10s).
    pub close_timeout: Span,
    /// Server: maximum time without data from the client; 0: no limit (default 1m).
    pub idle_timeout: Span,
    /// Time before the addresses and ports of a closed connection are reused; 0: immediately (default 0s).
    #[serde(skip_serializing_if = "is_default")]
    pub time_wait: Span,
    /// Acknowledge immediately if the next request is not due soon, instead of with that request (default true).
    pub acknowledge: bool,
    /// Answer segments without a connection with RST (default true).
    pub reset_unknown: bool,
    /// Send packets in the way of dperf, even if it deviates from the standards.
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
