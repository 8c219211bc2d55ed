//! Jobs of socket tests: what a client does with a server over sockets of the kernel, and servers
//! for such clients.
//!
//! The exchange with the server is netperf's, so either end may be the original. What only our own
//! server can do is asked for in a part of the messages that the original leaves empty; where that
//! is not granted, the report says so.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::units::{PortRange, Span};

mod problems;
mod report;

pub use problems::NUMBERED_BYTES;
pub use report::{
    ConfidenceReport, CpuUse, DatagramReport, SocketDirection, SocketEndReport, SocketFailure,
    SocketFigures, SocketInterval, SocketIntervalStream, SocketJobReport, SocketLive,
    SocketOmitted, SocketReport, SocketServerReport, SocketStage, SocketStreamReport, TcpSample,
};

/// The port on which servers listen for control connections.
pub const CONTROL_PORT: u16 = 12865;

/// One test between a client, which is this program, and a server. The jobs of a plan run one after
/// another.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SocketJob {
    /// What the report calls it. Empty, as without: a word and its number.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// What is exchanged.
    pub test: SocketTest,
    /// What runs over IP.
    #[serde(skip_serializing_if = "is_default")]
    pub protocol: SocketProtocol,
    /// Socket type, where it is not the protocol's usual one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub socket_type: Option<SocketType>,
    /// Where the server is, and how the two talk about the test.
    pub control: SocketControl,
    /// Ends of the data connections, where they differ from the control connection's.
    #[serde(skip_serializing_if = "is_default")]
    pub data: SocketData,
    /// How long. With neither `duration` nor `amount`, until a signal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration: Option<Span>,
    /// Instead of a duration: bytes of a stream, transactions of the others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub amount: Option<u64>,
    /// Between set-up and traffic.
    #[serde(skip_serializing_if = "is_default")]
    pub wait: Span,
    /// Bytes of a request; 1 to 1 GiB.
    pub request_size: u32,
    /// Bytes of a response; 1 to 1 GiB.
    pub response_size: u32,
    /// This end.
    #[serde(skip_serializing_if = "is_default")]
    pub local: SocketSide,
    /// The server's end.
    #[serde(skip_serializing_if = "is_default")]
    pub remote: SocketSide,
    /// Switches that hold for both ends or for the data sockets as such.
    #[serde(skip_serializing_if = "is_default")]
    pub options: SocketOptions,
    /// Requests under way besides the one that is waited for.
    #[serde(skip_serializing_if = "is_default")]
    pub first_burst: u32,
    /// With datagrams: how long a response is waited for. After it, what was under way is given up
    /// and the exchange begins anew. Without it, one lost datagram stalls the test until its end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Span>,
    /// Client ports of tests that connect for each transaction.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_ports: Option<PortRange>,
    /// Parallel streams, each with a thread, a control and a data connection of its own, begun
    /// together; 1 to 512.
    pub streams: u32,
    /// Streams that load the path while `rr` is measured: first without them, then with them. Every
    /// other one comes from the server.
    #[serde(skip_serializing_if = "is_default")]
    pub load_streams: u32,
    /// Exclude this time after the start from rates, times and intervals; counts of bytes and calls
    /// have it, and say how much (`omitted`).
    #[serde(skip_serializing_if = "is_default")]
    pub omit: Span,
    /// Operations per second of each stream, on a fixed schedule: requests of `rr`, datagrams of a
    /// stream. Latency counts from when a request was due (no coordinated omission).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<f64>,
    /// Look for what comes without sleeping, at both ends where the server is ours.
    #[serde(skip_serializing_if = "is_default")]
    pub busy_poll: bool,
    /// Sequence numbers and times in datagrams of a stream, so that loss, order and one-way delay
    /// are known. Needs our server, and 18 bytes.
    #[serde(skip_serializing_if = "is_default")]
    pub tagged: bool,
    /// Keep the time of each operation.
    #[serde(skip_serializing_if = "is_default")]
    pub latency: bool,
    /// Report what happened in each interval of this length, TCP's own figures too. The program's
    /// least is 1ms.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interim: Option<Span>,
    /// Repeat until the mean is known well enough.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub confidence: Option<Confidence>,
    /// Runs before the first that counts.
    #[serde(skip_serializing_if = "is_default")]
    pub warm_up: Span,
    /// What varies in a sweep, in words: parameter and value.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub point: Vec<(String, String)>,
}

impl Default for SocketJob {
    fn default() -> Self {
        Self {
            name: String::new(),
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

/// What is exchanged, as the client sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SocketTest {
    /// A stream of bytes or datagrams to the server.
    #[default]
    Send,
    /// A stream from the server.
    Receive,
    /// Both at once, on connections of their own.
    Both,
    /// A request, its response, the next request, on one connection.
    Rr,
    /// A connection for each request and response.
    Crr,
    /// A connection for each transaction, and nothing on it.
    Cc,
    /// No data: the segment size of one connection.
    Mss,
    /// No data: how the server measures its CPUs.
    ServerCpu,
}

impl SocketTest {
    /// Whether its unit is a transaction; else it is a byte.
    #[must_use]
    pub const fn counts_transactions(self) -> bool {
        matches!(self, Self::Rr | Self::Crr | Self::Cc)
    }

    /// Whether it connects for each transaction.
    #[must_use]
    pub const fn connects_each(self) -> bool {
        matches!(self, Self::Crr | Self::Cc)
    }
}

/// What runs over IP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SocketProtocol {
    /// RFC 9293.
    #[default]
    Tcp,
    /// RFC 768.
    Udp,
    /// RFC 9260, where the kernel has it.
    Sctp,
    /// RFC 4340, where the kernel has it.
    Dccp,
    /// RFC 3828, where the kernel has it.
    UdpLite,
    /// RFC 8684; needs our server.
    Mptcp,
}

impl SocketProtocol {
    /// Number in an IP header; MPTCP is told apart by the kernel only (IPPROTO_MPTCP).
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

    /// Whether each message is a datagram of its own.
    #[must_use]
    pub const fn is_datagram(self) -> bool {
        matches!(self, Self::Udp | Self::UdpLite | Self::Dccp)
    }

    /// Whether there are connections.
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

/// Family of addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Family {
    /// Whichever the name gives first.
    #[default]
    Any,
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
}

/// The control connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SocketControl {
    /// Name or address of the server.
    pub server: String,
    /// Its port.
    pub port: u16,
    /// Family of both ends.
    #[serde(skip_serializing_if = "is_default")]
    pub family: Family,
    /// Name or address of this end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub local: Option<String>,
    /// Family asked for with `local`.
    #[serde(skip_serializing_if = "is_default")]
    pub local_family: Family,
    /// Port of this end; 0 is any.
    #[serde(skip_serializing_if = "is_default")]
    pub local_port: u16,
    /// Sent first. Clear text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub passphrase: Option<String>,
    /// No control connection: data goes to the server's discard, chargen or echo service.
    #[serde(skip_serializing_if = "is_default")]
    pub none: bool,
    /// Use the messages of the time before the one message for all tests, which the original still
    /// uses for some: sendfile, `cc`, `mss`.
    #[serde(skip_serializing_if = "is_default")]
    pub classic: bool,
    /// Ask for nothing that only our own server can do.
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

/// Ends of the data connections.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SocketData {
    /// Name or address of the server; without it the control connection's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// Port that the server binds; 0 is any.
    #[serde(skip_serializing_if = "is_default")]
    pub server_port: u16,
    /// Name or address of this end; without it the control connection's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub local: Option<String>,
    /// Port of this end; 0 is any.
    #[serde(skip_serializing_if = "is_default")]
    pub local_port: u16,
    /// Family of both ends.
    #[serde(skip_serializing_if = "is_default")]
    pub family: Family,
    /// Bits of the server's address that stay; the others are drawn for each iteration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_prefix: Option<u8>,
    /// Bits of our address that stay; the others are drawn for each iteration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub local_prefix: Option<u8>,
}

/// What one end does with its socket.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SocketSide {
    /// SO_SNDBUF asked for; the kernel doubles it. Without it, the system's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub send_buffer: Option<u32>,
    /// SO_RCVBUF asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receive_buffer: Option<u32>,
    /// Bytes of a send of a stream. Without it, the effective SO_SNDBUF, at most a datagram.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub send_size: Option<u32>,
    /// Bytes of a receive of a stream. Without it, the effective SO_RCVBUF.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receive_size: Option<u32>,
    /// Alignment of send buffers.
    pub send_align: u32,
    /// Offset from that alignment.
    #[serde(skip_serializing_if = "is_default")]
    pub send_offset: u32,
    /// Alignment of receive buffers.
    pub receive_align: u32,
    /// Offset from that alignment.
    #[serde(skip_serializing_if = "is_default")]
    pub receive_offset: u32,
    /// Send buffers used in turn; 0: as many as fill the socket's buffer, and one.
    #[serde(skip_serializing_if = "is_default")]
    pub send_width: u32,
    /// Receive buffers used in turn.
    #[serde(skip_serializing_if = "is_default")]
    pub receive_width: u32,
    /// Operations in a burst of paced sending; 0: not paced.
    #[serde(skip_serializing_if = "is_default")]
    pub burst: u32,
    /// From burst to burst.
    #[serde(skip_serializing_if = "is_default")]
    pub burst_interval: Span,
    /// The CPU of its thread.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<u32>,
    /// TCP's congestion control, by the kernel's name for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub congestion: Option<String>,
    /// SO_PRIORITY.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<u32>,
    /// IP_TOS, IPV6_TCLASS.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tos: Option<u8>,
    /// A file that send buffers are filled from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fill_file: Option<String>,
    /// Measure how busy the CPUs are.
    #[serde(skip_serializing_if = "is_default")]
    pub measure_cpu: bool,
    /// SO_MAX_PACING_RATE in bits per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pacing_bps: Option<u64>,
    /// How data leaves.
    #[serde(skip_serializing_if = "is_default")]
    pub send_by: SendBy,
    /// How data of a stream is taken.
    #[serde(skip_serializing_if = "is_default")]
    pub receive_by: ReceiveBy,
    /// Datagrams handed to the kernel in one (UDP_SEGMENT) or several messages (sendmmsg); 0 and 1
    /// is one by one.
    #[serde(skip_serializing_if = "is_default")]
    pub batch: u32,
    /// The `batch` goes as one large datagram that the kernel or the NIC cuts (UDP_SEGMENT).
    #[serde(skip_serializing_if = "is_default")]
    pub gso: bool,
    /// Take several datagrams of a stream in one (UDP_GRO).
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

/// How data leaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SendBy {
    /// send(2): the kernel copies.
    #[default]
    Copy,
    /// write(2).
    Write,
    /// sendfile(2) from a file.
    Sendfile,
    /// send(2) with MSG_ZEROCOPY; completions are counted, and how many were copies all the same.
    Zerocopy,
    /// io_uring with registered buffers and zero copy.
    Uring,
}

/// How data is taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ReceiveBy {
    /// recv(2).
    #[default]
    Copy,
    /// splice(2) to the null device.
    Splice,
    /// recv(2) with MSG_TRUNC: TCP counts and drops it.
    Discard,
}

/// Switches of the data sockets.
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
    /// SO_DONTROUTE: only destinations of connected networks.
    #[serde(skip_serializing_if = "is_default")]
    pub dont_route: bool,
    /// connect(2) the datagram socket at this end.
    #[serde(skip_serializing_if = "is_default")]
    pub connect_local: bool,
    /// connect(2) the datagram socket at the server.
    #[serde(skip_serializing_if = "is_default")]
    pub connect_remote: bool,
    /// The server answers datagrams from the address they were sent to.
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
    /// Time to live of multicasts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub multicast_ttl: Option<u8>,
    /// A connection that cannot be made is tried again from another port.
    #[serde(skip_serializing_if = "is_default")]
    pub retry_connect: bool,
    /// Do not count the first connection's set-up in the time.
    #[serde(skip_serializing_if = "is_default")]
    pub exclude_connect: bool,
}

/// When repetitions end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Confidence {
    /// Level in percent: 95 or 99.
    pub level: u8,
    /// Width of the whole interval in percent of the mean: 5 means ± 2.5 %.
    pub width: f64,
    /// Repetitions at least; 1 to 1000.
    pub min: u32,
    /// Repetitions at most.
    pub max: u32,
    /// Only the result counts, not how busy the CPUs were.
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

/// A server for clients of socket tests, until a signal ends it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SocketServerJob {
    /// Name or address to listen at; without it, all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub listen: Option<String>,
    /// Family.
    #[serde(skip_serializing_if = "is_default")]
    pub family: Family,
    /// Port of control connections.
    pub port: u16,
    /// What a client must say first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub passphrase: Option<String>,
    /// Serve one client after another.
    #[serde(skip_serializing_if = "is_default")]
    pub one_by_one: bool,
    /// End when this many clients have been served; without it, at a signal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub serves: Option<u64>,
    /// Clients at a time; those beyond are turned away at once. 1 to 10000.
    pub clients: u32,
    /// Clients at a time from one address (of IPv6: from one /64). 1 to 10000.
    pub clients_per_address: u32,
    /// Control connections that have not begun a test end after this time.
    pub idle: Span,
    /// Serve clients at addresses too that no interface of the machine has.
    #[serde(skip_serializing_if = "is_default")]
    pub any_address: bool,
    /// Take data of a test from any address, not from its client's alone: for clients whose data goes
    /// over another network than their control connection. Anyone can then have datagrams answered.
    #[serde(skip_serializing_if = "is_default")]
    pub any_source: bool,
    /// The user that the server becomes when it listens. Without it, one that is started by root
    /// becomes `nobody`, where there is one; `root` stays.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
}

impl Default for SocketServerJob {
    fn default() -> Self {
        Self {
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
