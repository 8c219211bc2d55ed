//! Jobs of socket tests: tests between a client and a server over kernel sockets, and servers for such clients.
//!
//! The protocol with the server is netperf's, so either end may be netperf itself. Extensions of the wirebench server
//! are requested in a part of the messages that netperf leaves empty. If the server does not accept an extension, the
//! report shows this.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    hosts::HostChoice,
    units::{PortRange, Span},
};

pub mod figures;
mod problems;
mod report;

pub use problems::NUMBERED_BYTES;
pub use report::{
    ConfidenceReport, CpuUse, DatagramReport, SocketDirection, SocketEndReport, SocketFailure,
    SocketFigures, SocketInterval, SocketIntervalStream, SocketJobReport, SocketLive,
    SocketOmitted, SocketReport, SocketServerReport, SocketStage, SocketStreamReport, TcpSample,
};

/// Port on which servers listen for control connections.
pub const CONTROL_PORT: u16 = 12865;

/// One test between this program as the client and a server. The jobs of a plan run one after another.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SocketJob {
    /// Name in the report. Default or empty: a word and its number.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Host of a fleet that runs the test: a name, or labels such as `{rack=r1}`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<HostChoice>,
    /// Test type (default `send`).
    pub test: SocketTest,
    /// Transport protocol (default `tcp`).
    #[serde(skip_serializing_if = "is_default")]
    pub protocol: SocketProtocol,
    /// Socket type. Default: the usual type of the protocol.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub socket_type: Option<SocketType>,
    /// Control connection: address of the server and protocol options.
    pub control: SocketControl,
    /// Endpoints of the data connections. Default: those of the control connection.
    #[serde(skip_serializing_if = "is_default")]
    pub data: SocketData,
    /// Test duration (default 10 s). With neither `duration` nor `amount`, until a signal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration: Option<Span>,
    /// Amount instead of a duration: bytes for a stream, transactions for other tests.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(deserialize_with = "crate::units::count::optional_count")]
    pub amount: Option<u64>,
    /// Pause between setup and traffic.
    #[serde(skip_serializing_if = "is_default")]
    pub wait: Span,
    /// Request size in bytes, 1 to 1 GiB (default 1).
    pub request_size: u32,
    /// Response size in bytes, 1 to 1 GiB (default 1).
    pub response_size: u32,
    /// Socket parameters of this end.
    #[serde(skip_serializing_if = "is_default")]
    pub local: SocketSide,
    /// Socket parameters of the server's end.
    #[serde(skip_serializing_if = "is_default")]
    pub remote: SocketSide,
    /// Options of the data sockets.
    #[serde(skip_serializing_if = "is_default")]
    pub options: SocketOptions,
    /// Additional requests in flight, 0 to 65536 (default 0).
    #[serde(skip_serializing_if = "is_default")]
    pub first_burst: u32,
    /// Datagrams: maximum time to wait for a response. After it, requests in flight are dropped and the exchange
    /// restarts. Without it, one lost datagram stalls the test until its end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Span>,
    /// Client ports of tests that open a connection for each transaction.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_ports: Option<PortRange>,
    /// Parallel streams, started together, 1 to 512 (default 1). Each has a dedicated thread, control connection and
    /// data connection.
    pub streams: u32,
    /// Streams that load the path while `rr` is measured, first without and then with these streams, 0 to 512 (default
    /// 0). The streams alternate in direction, and every second one comes from the server.
    #[serde(skip_serializing_if = "is_default")]
    pub load_streams: u32,
    /// Initial time that is excluded from rates, times and intervals. Counts of bytes and calls include it, and
    /// `omitted` has its part.
    #[serde(skip_serializing_if = "is_default")]
    pub omit: Span,
    /// Operations per second of each stream, on a fixed schedule: requests of `rr`, datagrams of a stream. Latency is
    /// measured from the scheduled time of a request (no coordinated omission).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(deserialize_with = "crate::units::count::optional_number")]
    pub rate: Option<f64>,
    /// Poll for received data without sleeping, at both ends if the server is wirebench; keeps one CPU busy at each
    /// end.
    #[serde(skip_serializing_if = "is_default")]
    pub busy_poll: bool,
    /// Put sequence numbers and times into the datagrams of a stream, to measure loss, order, one-way delay and jitter.
    /// Requires a wirebench server and at least 18 bytes.
    #[serde(skip_serializing_if = "is_default")]
    pub tagged: bool,
    /// Measure the latency of each operation, with percentiles in the report.
    #[serde(skip_serializing_if = "is_default")]
    pub latency: bool,
    /// Length of report intervals, with TCP_INFO; the program requires at least 1ms.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interim: Option<Span>,
    /// Repeat the test until the confidence interval of the mean is narrow enough.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub confidence: Option<Confidence>,
    /// Duration of a warm-up run before the first measured run; its results are discarded.
    #[serde(skip_serializing_if = "is_default")]
    pub warm_up: Span,
    /// Sweep: varied parameters with their values, as text.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub point: Vec<(String, String)>,
}

impl Default for SocketJob {
    fn default() -> Self {
        Self {
            name: String::new(),
            host: None,
            test: SocketTest::Send,
            protocol: SocketProtocol::Tcp,
            socket_type: None,
            control: SocketControl::default(),
            data: SocketData::default(),
            duration: Some(Span::from_secs(10)),
            amount: None,
            wait: Span::default(),
            request_size: 1,
            response_size: 1,
            local: SocketSide::default(),
            remote: SocketSide::default(),
            options: SocketOptions::default(),
            first_burst: 0,
            timeout: None,
            client_ports: None,
            streams: 1,
            load_streams: 0,
            omit: Span::default(),
            rate: None,
            busy_poll: false,
            tagged: false,
            latency: false,
            interim: None,
            confidence: None,
            warm_up: Span::default(),
            point: Vec::new(),
        }
    }
}

/// Test type, from the client's point of view.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SocketTest {
    /// Stream of bytes or datagrams to the server.
    #[default]
    Send,
    /// Stream from the server.
    Receive,
    /// Streams in both directions at once, on separate connections.
    Both,
    /// Request and response transactions in sequence on one connection.
    Rr,
    /// One connection for each request and response.
    Crr,
    /// One connection for each transaction, without data.
    Cc,
    /// Segment size of one connection, without data.
    Mss,
    /// CPU measurement method of the server, without data.
    ServerCpu,
}

impl SocketTest {
    /// Returns true if the test counts transactions; other tests count bytes.
    #[must_use]
    pub const fn counts_transactions(self) -> bool {
        matches!(self, Self::Rr | Self::Crr | Self::Cc)
    }

    /// Returns true if the test measures a stream.
    #[must_use]
    pub const fn is_stream(self) -> bool {
        matches!(self, Self::Send | Self::Receive | Self::Both)
    }

    /// Returns true if the test opens a connection for each transaction.
    #[must_use]
    pub const fn connects_each(self) -> bool {
        matches!(self, Self::Crr | Self::Cc)
    }
}

/// Transport protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SocketProtocol {
    /// TCP (RFC 9293).
    #[default]
    Tcp,
    /// UDP (RFC 768).
    Udp,
    /// SCTP (RFC 9260), if the kernel supports it.
    Sctp,
    /// DCCP (RFC 4340), if the kernel supports it.
    Dccp,
    /// UDP-Lite (RFC 3828), if the kernel supports it.
    UdpLite,
    /// MPTCP (RFC 8684); requires a wirebench server.
    Mptcp,
}

impl SocketProtocol {
    /// Protocol number in an IP header; for MPTCP the kernel's number (IPPROTO_MPTCP).
    #[must_use]
    pub const fn number(self) -> i32 {
        match self {
            Self::Tcp => 6,
            Self::Udp => 17,
            Self::Sctp => 132,
            Self::Dccp => 33,
            Self::UdpLite => 136,
            Self::Mptcp => 262,
        }
    }

    /// Returns true if each message is a separate datagram.
    #[must_use]
    pub const fn is_datagram(self) -> bool {
        matches!(self, Self::Udp | Self::UdpLite | Self::Dccp)
    }

    /// Returns true if the protocol has connections.
    #[must_use]
    pub const fn connects(self) -> bool {
        !matches!(self, Self::Udp | Self::UdpLite)
    }
}

/// Type of a socket (socket(2)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SocketType {
    /// SOCK_STREAM.
    Stream,
    /// SOCK_DGRAM.
    Dgram,
    /// SOCK_DCCP.
    Dccp,
    /// SOCK_SEQPACKET.
    SeqPacket,
}

/// Address family.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Family {
    /// Family of the first address that the name resolves to.
    #[default]
    Any,
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
}

/// Control connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SocketControl {
    /// Name or address of the server (default `localhost`).
    pub server: String,
    /// Port of the server (default 12865).
    pub port: u16,
    /// Address family of both ends.
    #[serde(skip_serializing_if = "is_default")]
    pub family: Family,
    /// Name or address of this end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub local: Option<String>,
    /// Address family for `local`.
    #[serde(skip_serializing_if = "is_default")]
    pub local_family: Family,
    /// Port of this end; 0 means any.
    #[serde(skip_serializing_if = "is_default")]
    pub local_port: u16,
    /// Passphrase that is sent first, as clear text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub passphrase: Option<String>,
    /// Use no control connection: data goes to the server's discard, chargen or echo service.
    #[serde(skip_serializing_if = "is_default")]
    pub none: bool,
    /// Use the older messages from before the single message for all tests. netperf still uses them for some tests:
    /// sendfile, `cc`, `mss`.
    #[serde(skip_serializing_if = "is_default")]
    pub classic: bool,
    /// Use only features that the original netserver has: request no extensions of wirebench.
    #[serde(skip_serializing_if = "is_default")]
    pub plain: bool,
}

impl Default for SocketControl {
    fn default() -> Self {
        Self {
            server: "localhost".to_owned(),
            port: CONTROL_PORT,
            family: Family::Any,
            local: None,
            local_family: Family::Any,
            local_port: 0,
            passphrase: None,
            none: false,
            classic: false,
            plain: false,
        }
    }
}

/// Endpoints of the data connections.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SocketData {
    /// Name or address of the server. Default: the server of the control connection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// Port that the server binds; 0 means any.
    #[serde(skip_serializing_if = "is_default")]
    pub server_port: u16,
    /// Name or address of this end. Default: the local end of the control connection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub local: Option<String>,
    /// Port of this end; 0 means any.
    #[serde(skip_serializing_if = "is_default")]
    pub local_port: u16,
    /// Address family of both ends.
    #[serde(skip_serializing_if = "is_default")]
    pub family: Family,
    /// Prefix length of the server's address; the remaining bits are random in each iteration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_prefix: Option<u8>,
    /// Prefix length of the local address; the remaining bits are random in each iteration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub local_prefix: Option<u8>,
}

/// Socket parameters of one end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SocketSide {
    /// Requested SO_SNDBUF in bytes, which the kernel doubles. Default: the system's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub send_buffer: Option<u32>,
    /// Requested SO_RCVBUF in bytes. Default: the system's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receive_buffer: Option<u32>,
    /// Bytes per send call of a stream. Default: the effective SO_SNDBUF, at most one datagram.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub send_size: Option<u32>,
    /// Bytes per receive call of a stream. Default: the effective SO_RCVBUF.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receive_size: Option<u32>,
    /// Alignment of send buffers in bytes, a power of two up to 16 Mi (default 8).
    pub send_align: u32,
    /// Offset of send buffers from the alignment in bytes.
    #[serde(skip_serializing_if = "is_default")]
    pub send_offset: u32,
    /// Alignment of receive buffers in bytes, a power of two up to 16 Mi (default 8).
    pub receive_align: u32,
    /// Offset of receive buffers from the alignment in bytes.
    #[serde(skip_serializing_if = "is_default")]
    pub receive_offset: u32,
    /// Number of send buffers used in turn; 0 means enough to fill the socket buffer, plus one.
    #[serde(skip_serializing_if = "is_default")]
    pub send_width: u32,
    /// Number of receive buffers used in turn.
    #[serde(skip_serializing_if = "is_default")]
    pub receive_width: u32,
    /// Operations per burst of paced sending; 0 means no pacing.
    #[serde(skip_serializing_if = "is_default")]
    pub burst: u32,
    /// Interval between bursts.
    #[serde(skip_serializing_if = "is_default")]
    pub burst_interval: Span,
    /// CPU of the thread of this end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<u32>,
    /// TCP congestion control, by its kernel name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub congestion: Option<String>,
    /// SO_PRIORITY.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<u32>,
    /// IP_TOS, IPV6_TCLASS.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tos: Option<u8>,
    /// Path of a file that fills the send buffers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fill_file: Option<String>,
    /// Measure CPU utilization.
    #[serde(skip_serializing_if = "is_default")]
    pub measure_cpu: bool,
    /// SO_MAX_PACING_RATE in bits per second, at least 8.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(deserialize_with = "crate::units::count::optional_count")]
    pub pacing_bps: Option<u64>,
    /// Method to send data (default `copy`).
    #[serde(skip_serializing_if = "is_default")]
    pub send_by: SendBy,
    /// Method to receive data of a stream (default `copy`).
    #[serde(skip_serializing_if = "is_default")]
    pub receive_by: ReceiveBy,
    /// Datagrams passed to the kernel per call, in one message (UDP_SEGMENT) or several messages (sendmmsg), up to
    /// 1024; 0 and 1 mean one datagram per call.
    #[serde(skip_serializing_if = "is_default")]
    pub batch: u32,
    /// Pass each `batch` as one large datagram that the kernel or the NIC segments (UDP_SEGMENT).
    #[serde(skip_serializing_if = "is_default")]
    pub gso: bool,
    /// Receive several datagrams of a stream at once (UDP_GRO).
    #[serde(skip_serializing_if = "is_default")]
    pub gro: bool,
}

impl Default for SocketSide {
    fn default() -> Self {
        Self {
            send_buffer: None,
            receive_buffer: None,
            send_size: None,
            receive_size: None,
            send_align: 8,
            send_offset: 0,
            receive_align: 8,
            receive_offset: 0,
            send_width: 0,
            receive_width: 0,
            burst: 0,
            burst_interval: Span::default(),
            cpu: None,
            congestion: None,
            priority: None,
            tos: None,
            fill_file: None,
            measure_cpu: false,
            pacing_bps: None,
            send_by: SendBy::Copy,
            receive_by: ReceiveBy::Copy,
            batch: 0,
            gso: false,
            gro: false,
        }
    }
}

/// Method to send data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SendBy {
    /// send(2), with a copy in the kernel.
    #[default]
    Copy,
    /// write(2).
    Write,
    /// sendfile(2) from a file.
    Sendfile,
    /// send(2) with MSG_ZEROCOPY; completions are counted, and so are those that were copied.
    Zerocopy,
    /// io_uring with registered buffers and zero copy.
    Uring,
}

/// Method to receive data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ReceiveBy {
    /// recv(2).
    #[default]
    Copy,
    /// splice(2) to the null device.
    Splice,
    /// recv(2) with MSG_TRUNC: TCP counts and discards the data.
    Discard,
}

/// Options of the data sockets.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SocketOptions {
    /// TCP_NODELAY at both ends.
    #[serde(skip_serializing_if = "is_default")]
    pub no_delay: bool,
    /// TCP_CORK at this end.
    #[serde(skip_serializing_if = "is_default")]
    pub cork: bool,
    /// SO_KEEPALIVE at both ends.
    #[serde(skip_serializing_if = "is_default")]
    pub keepalive: bool,
    /// TCP Fast Open (RFC 7413).
    #[serde(skip_serializing_if = "is_default")]
    pub fast_open: bool,
    /// TCP_DEFER_ACCEPT at the server.
    #[serde(skip_serializing_if = "is_default")]
    pub defer_accept: bool,
    /// SO_DONTROUTE: reach destinations of connected networks only.
    #[serde(skip_serializing_if = "is_default")]
    pub dont_route: bool,
    /// connect(2) the datagram socket at this end.
    #[serde(skip_serializing_if = "is_default")]
    pub connect_local: bool,
    /// connect(2) the datagram socket at the server.
    #[serde(skip_serializing_if = "is_default")]
    pub connect_remote: bool,
    /// Make the server answer datagrams from the address that they were sent to.
    #[serde(skip_serializing_if = "is_default")]
    pub packet_info: bool,
    /// SO_DEBUG at this end.
    #[serde(skip_serializing_if = "is_default")]
    pub debug: bool,
    /// TCP_MAXSEG at this end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_segment: Option<u32>,
    /// IP_MTU_DISCOVER = DO at both ends.
    #[serde(skip_serializing_if = "is_default")]
    pub dont_fragment: bool,
    /// Time to live of multicast datagrams.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub multicast_ttl: Option<u8>,
    /// Retry a failed connection from another port.
    #[serde(skip_serializing_if = "is_default")]
    pub retry_connect: bool,
    /// Exclude the setup of the first connection from the time.
    #[serde(skip_serializing_if = "is_default")]
    pub exclude_connect: bool,
}

/// Stop condition of repetitions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Confidence {
    /// Confidence level in percent: 95 or 99 (default 99).
    pub level: u8,
    /// Full width of the interval in percent of the mean (default 5, which means ± 2.5 %).
    pub width: f64,
    /// Minimum number of repetitions, 1 to 1000 (default 3).
    pub min: u32,
    /// Maximum number of repetitions, up to 1000 (default 10).
    pub max: u32,
    /// Apply the condition to the result only, not to the CPU utilization.
    #[serde(skip_serializing_if = "is_default")]
    pub result_only: bool,
}

impl Default for Confidence {
    fn default() -> Self {
        Self {
            level: 99,
            width: 5.0,
            min: 3,
            max: 10,
            result_only: false,
        }
    }
}

/// Server for clients of socket tests, which runs until a signal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SocketServerJob {
    /// Host of a fleet that runs the server: a name, or labels such as `{rack=r1}`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<HostChoice>,
    /// Name or address to listen on; default: all addresses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub listen: Option<String>,
    /// Address family.
    #[serde(skip_serializing_if = "is_default")]
    pub family: Family,
    /// Port of control connections (default 12865).
    pub port: u16,
    /// Passphrase that a client must send first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub passphrase: Option<String>,
    /// Serve one client at a time.
    #[serde(skip_serializing_if = "is_default")]
    pub one_by_one: bool,
    /// Number of clients after which the server ends. Without it, the server runs until a signal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub serves: Option<u64>,
    /// Maximum number of concurrent clients, 1 to 10000 (default 1024). Further clients are rejected immediately.
    pub clients: u32,
    /// Maximum number of concurrent clients from one address (IPv6: from one /64), 1 to 10000 (default 512).
    pub clients_per_address: u32,
    /// Time after which control connections without a test are closed, at least 100 ms (default 60 s).
    pub idle: Span,
    /// Also serve clients at addresses that no interface of the machine has.
    #[serde(skip_serializing_if = "is_default")]
    pub any_address: bool,
    /// Accept data of a test from any address instead of only from its client: for clients that send data over another
    /// network than their control connection. Any host can then cause responses to datagrams.
    #[serde(skip_serializing_if = "is_default")]
    pub any_source: bool,
    /// User that the server switches to after it starts to listen. Default for a server started by root: `nobody`, if
    /// that user exists. `root` keeps root.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
}

impl Default for SocketServerJob {
    fn default() -> Self {
        Self {
            host: None,
            listen: None,
            family: Family::Any,
            port: CONTROL_PORT,
            passphrase: None,
            one_by_one: false,
            serves: None,
            clients: 1024,
            clients_per_address: 512,
            idle: Span::from_secs(60),
            any_address: false,
            any_source: false,
            user: None,
        }
    }
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
