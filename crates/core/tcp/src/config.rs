//! Configuration of a machine.

use wb_wire::{AddrSet, MacAddr};

use crate::addr::Pool;
use crate::build::LONGEST_HEADERS;
use crate::message::{LONGEST_PAYLOAD, Message};
use crate::mix::WeightedRequest;
use crate::reader::Reading;
use crate::routes::Route;
use crate::tunnel::{LONGEST_OUTER, Tunnel};
use crate::tuple::Tuples;

/// One millisecond in ns.
const MS: u64 = 1_000_000;

/// Complete configuration of a machine. Times are in ns.
#[derive(Clone, Debug)]
pub struct Config {
    /// Client or server.
    pub role: Role,
    /// TCP or UDP.
    pub transport: Transport,
    /// Behaviour according to the RFCs or to dperf.
    pub style: Behaviour,
    /// Local Ethernet address.
    pub mac: MacAddr,
    /// Next hop of all frames. None: each connection answers to the source address of its first frame. A client
    /// requires a gateway.
    pub gateway: Option<MacAddr>,
    /// VLAN id (and priority) inserted into sent frames and removed from received frames.
    pub vlan: Option<u16>,
    /// Tunnel around all frames; a VLAN tag is outside the tunnel.
    pub tunnel: Option<Tunnel>,
    /// IPv4 TOS or IPv6 traffic class.
    pub tos: u8,
    /// TTL or hop limit.
    pub ttl: u8,
    /// Maximum segment size that is announced and sent, 1 to 8,960 bytes.
    pub mss: u16,
    /// Announced window as written in the header, before scaling.
    pub window: u16,
    /// Announced window scale, 0 to 14.
    pub window_scale: u8,
    /// Initial congestion window in segments; RFC 6928 recommends 10.
    pub initial_window: u16,
    /// Maximum number of segments in flight, regardless of the windows.
    pub most_in_flight: u16,
    /// Retransmission of segments.
    pub retransmission: Retransmission,
    /// Maximum time from the first SYN to the SYN-ACK.
    pub connect_timeout: u64,
    /// Maximum time from a request to the end of its answer.
    pub response_timeout: u64,
    /// TCP client: maximum time from a request to the first byte of its answer, in ns. Without effect if longer than
    /// `response_timeout`.
    pub first_byte_timeout: u64,
    /// Maximum time from the local FIN to the end of the connection.
    pub close_timeout: u64,
    /// Server: maximum time without a segment from the peer.
    pub idle_timeout: u64,
    /// TIME_WAIT behaviour of the end that closed first.
    pub time_wait: TimeWait,
    /// Send RST when giving up a connection.
    pub reset_on_give_up: bool,
    /// Send RST in answer to segments of unknown connections.
    pub reset_unknown: bool,
    /// Sources that get an answer to a packet of an unknown connection: a new connection, a returned datagram or a
    /// reset. None: all sources.
    pub answered: Option<AddrSet>,
    /// Requests at intervals: maximum lateness that is caught up. Older requests are not sent.
    pub catch_up: u64,
    /// UDP: maximum number of requests in flight. Beyond that, each new request evicts the oldest. The limit is raised
    /// to the number required by `expected`.
    pub most_outstanding: u32,
    /// Maximum time that an acknowledgement waits for the next request of a kept connection.
    pub ack_delay: u64,
    /// Verify checksums of received frames. Frames with wrong checksums are counted and dropped.
    pub verify_checksums: bool,
    /// Received frames may carry checksums that a kernel left to hardware, without any indication: on a virtual device
    /// or from a file.
    pub checksums_may_be_left: bool,
    /// Expected number of connections, for the initial size of the table.
    pub expected: u32,
    /// Maximum number of open connections.
    pub most_open: u32,
    /// Server: maximum number of incomplete handshakes. This bounds the memory that a SYN flood takes.
    pub most_half_open: u32,
    /// Requests of a TCP client if there are several, or if results are reported per request. They replace
    /// [`Client::request`]. At most 65,536.
    pub asks: Vec<WeightedRequest>,
    /// With `asks`: pass the contents of answers to the [`Observer`](crate::Observer), in order.
    pub shows_answers: bool,
    /// Answers of an HTTP server by path, which replace [`Server::answer`]. The last one answers all other paths. At
    /// most 65,536.
    pub routes: Vec<Route>,
    /// Maximum number of requests that a TCP client sends in total.
    pub most_requests: u64,
    /// Key of the hash that determines table positions and initial sequence numbers. Choose it at random for each run;
    /// otherwise a peer could choose addresses and ports that all collide.
    pub key: u64,
}

/// Role of the machine in its connections.
#[derive(Clone, Debug)]
pub enum Role {
    /// Opens connections.
    Client(Client),
    /// Accepts connections.
    Server(Server),
}

/// Configuration of a client.
#[derive(Clone, Debug)]
pub struct Client {
    /// Source and destination addresses and ports.
    pub tuples: Tuples,
    /// Request that is sent.
    pub request: Message,
    /// Format of the answers.
    pub answer: Reading,
    /// Requests per connection before it is closed. None: until [`crate::Machine::finish`].
    pub requests: Option<u16>,
    /// Interval between requests of a connection. 0: the next request follows as soon as the answer has arrived.
    pub interval: u64,
    /// Requests sent back to back; 0 counts as 1. With TCP, the next batch follows when all of them are answered, or
    /// with [`Config::asks`] one request after each answer.
    pub pipeline: u16,
    /// Method of closing a connection after the last answer.
    pub close: Close,
    /// Do not wait for answers.
    pub flood: bool,
    /// Requests leave only through [`crate::Machine::ask`]; `interval` is ignored.
    pub paced: bool,
    /// UDP: the first 12 bytes of each request (if it has at least 12) carry its number and time. This identifies
    /// answers that return them.
    pub numbers: bool,
    /// With `flood`: destinations that are used in rotation instead of the server's address.
    pub destinations: Option<DestinationPool>,
    /// UDP: payload of every second datagram, as long as the request.
    pub alternate: Option<Message>,
}

/// Destination addresses used in rotation.
#[derive(Clone, Debug)]
pub struct DestinationPool {
    /// All destinations, of the same address family as the clients.
    pub pool: Pool,
    /// Index of the first destination.
    pub first: u32,
    /// Distance between successive indexes; wraps at the end of the pool.
    pub step: u32,
}

impl DestinationPool {
    /// Returns the current destination and advances to the next.
    #[inline]
    pub(crate) fn next_destination(&mut self) -> crate::Addr {
        let address = self.pool.at(self.first);
        let next = u64::from(self.first) + u64::from(self.step);
        self.first = (next % u64::from(self.pool.len())) as u32;
        address
    }
}

/// Configuration of a server.
#[derive(Clone, Debug)]
pub struct Server {
    /// Local addresses.
    pub addresses: Pool,
    /// Clients that are answered; frames from other sources count as foreign. Empty: all.
    pub clients: Pool,
    /// First and last port.
    pub ports: (u16, u16),
    /// Format of the requests.
    pub request: Reading,
    /// Kind of answer.
    pub answer: ServerAnswer,
    /// TCP: answers per connection before it is closed, at least 1. None: no limit.
    pub answers: Option<u16>,
    /// A PROXY header may precede the first request.
    pub proxy: bool,
    /// UDP: copy the first 12 bytes of a request into the answer, if both are that long. A wirebench client stores its
    /// request number and time there.
    pub returns_numbers: bool,
}

/// Kind of answer of a server.
#[derive(Clone, Debug)]
pub enum ServerAnswer {
    /// One message for all requests.
    Message(Message),
    /// UDP: the received payload. TCP: filler of the received length, because received data is not stored.
    Echo,
    /// No answer; TCP data is acknowledged.
    Sink,
}

/// Transport protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// RFC 9293.
    Tcp,
    /// RFC 768.
    Udp,
}

/// Behaviour on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behaviour {
    /// RFC 9293 and RFC 5681.
    Native,
    /// Behaviour of dperf: no sequence check of RST, no reset for an unexpected segment of a known tuple, a server
    /// window that grows by one with every segment received, FIN after the last acknowledgement of an answer of several
    /// segments, window scale in every SYN-ACK.
    Dperf,
}

/// Method of closing a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Close {
    /// FIN.
    Fin,
    /// RST.
    Reset,
}

/// TIME_WAIT behaviour of the end that closed first, RFC 9293 section 3.6.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeWait {
    /// The connection is removed at once.
    Skip,
    /// The tuple is kept for this time in ns, to acknowledge a retransmitted FIN.
    Hold(u64),
    /// The peer's FIN is answered with RST.
    Reset,
}

/// Retransmission of unacknowledged segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retransmission {
    /// Timeout in ns.
    pub after: u64,
    /// Maximum number of retransmissions; the next timeout ends the connection.
    pub tries: u8,
    /// Double the timeout with every retransmission (RFC 6298 section 5.5).
    pub backoff: bool,
}

/// Invalid configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// Value out of range.
    #[error("{name} must be between {low} and {high}, got {value}")]
    Range {
        /// Name of the setting.
        name: &'static str,
        /// Value given.
        value: u64,
        /// Minimum.
        low: u64,
        /// Maximum.
        high: u64,
    },
    /// A client without a gateway.
    #[error("a client needs the MAC address of its gateway")]
    NoGateway,
    /// Client and server addresses of different families.
    #[error(
        "client and server addresses must have the same IP version; use one machine per version"
    )]
    MixedFamilies,
    /// A server without addresses.
    #[error("a server needs at least one address")]
    NoAddress,
    /// A UDP message that does not fit one datagram.
    #[error("UDP messages must have at most {most} bytes, got {len}")]
    LongDatagram {
        /// Length of the message in bytes.
        len: u32,
        /// Maximum length in bytes.
        most: u32,
    },
    /// A TCP client with an empty request.
    #[error("a TCP client needs a request of at least 1 byte")]
    NoRequest,
}

impl Config {
    /// Default configuration for a role; a client must also set `gateway`.
    pub fn new(role: Role, transport: Transport, mac: MacAddr) -> Self {
        let family = match &role {
            Role::Client(client) => client.tuples.clients().family_is_v4(),
            Role::Server(server) => server.addresses.family_is_v4(),
        };
        Self {
            role,
            transport,
            style: Behaviour::Native,
            mac,
            gateway: None,
            vlan: None,
            tunnel: None,
            tos: 0,
            ttl: 64,
            // Payload of a 1,500-byte packet.
            mss: if family == Some(true) { 1460 } else { 1440 },
            window: 58_400,
            window_scale: 7,
            initial_window: 10,
            most_in_flight: 1024,
            retransmission: Retransmission {
                after: 1000 * MS,
                tries: 5,
                backoff: true,
            },
            connect_timeout: 10_000 * MS,
            response_timeout: 30_000 * MS,
            first_byte_timeout: u64::MAX,
            close_timeout: 10_000 * MS,
            idle_timeout: 60_000 * MS,
            time_wait: TimeWait::Skip,
            reset_on_give_up: true,
            answered: None,
            reset_unknown: true,
            catch_up: 100 * MS,
            most_outstanding: 1 << 16,
            ack_delay: 40 * MS,
            verify_checksums: true,
            checksums_may_be_left: false,
            expected: 1 << 10,
            most_open: 1 << 24,
            most_half_open: 1 << 18,
            asks: Vec::new(),
            shows_answers: false,
            routes: Vec::new(),
            most_requests: u64::MAX,
            key: 1,
        }
    }

    /// Values and behaviour of dperf: one time `retransmit` (2 s by default in dperf) determines all timers.
    #[must_use]
    pub fn dperf(mut self, retransmit: u64) -> Self {
        let is_client = matches!(self.role, Role::Client(_));
        self.style = Behaviour::Dperf;
        self.window_scale = 13;
        self.initial_window = 1;
        self.most_in_flight = 4;
        self.retransmission = Retransmission {
            // A server waits longer, so that the two ends do not retransmit at the same time.
            after: if is_client {
                retransmit
            } else {
                retransmit / 10 * 11
            },
            tries: 3,
            backoff: false,
        };
        // dperf has none of these timeouts.
        self.connect_timeout = u64::MAX / 4;
        self.response_timeout = u64::MAX / 4;
        self.close_timeout = u64::MAX / 4;
        self.idle_timeout = 4 * retransmit;
        self.reset_on_give_up = false;
        self.ack_delay = retransmit - 1;
        self
    }

    /// Buffer size that fits every frame of the machine, in bytes without FCS.
    pub fn longest_frame(&self) -> usize {
        let outer = if self.tunnel.is_some() {
            LONGEST_OUTER - 4
        } else {
            0
        };
        let tag = if self.vlan.is_some() { 4 } else { 0 };
        let is_v4 = match &self.role {
            Role::Client(client) => client.tuples.clients().family_is_v4(),
            Role::Server(server) => server.addresses.family_is_v4(),
        };
        let network = if is_v4 == Some(true) { 20 } else { 40 };
        let (header, payload) = match self.transport {
            Transport::Tcp => (20, usize::from(self.mss)),
            Transport::Udp => (8, LONGEST_PAYLOAD.min(self.longest_datagram())),
        };
        // The builder writes all headers in one block of fixed length, which may exceed a short frame.
        outer + (14 + tag + network + header + payload).max(LONGEST_HEADERS)
    }

    fn longest_datagram(&self) -> usize {
        if self.transport == Transport::Tcp {
            return 0;
        }
        match &self.role {
            Role::Client(client) => client.request.len() as usize,
            Role::Server(server) => match &server.answer {
                ServerAnswer::Message(message) => message.len() as usize,
                ServerAnswer::Echo => LONGEST_PAYLOAD,
                ServerAnswer::Sink => 0,
            },
        }
    }

    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let range = |name, value, low, high| {
            if (low..=high).contains(&value) {
                Ok(())
            } else {
                Err(ConfigError::Range {
                    name,
                    value,
                    low,
                    high,
                })
            }
        };
        range("mss", self.mss.into(), 1, 8960)?;
        range("window scale", self.window_scale.into(), 0, 14)?;
        range("initial window", self.initial_window.into(), 1, 1 << 14)?;
        range("maximum in flight", self.most_in_flight.into(), 1, 1 << 14)?;
        range(
            "retransmission time",
            self.retransmission.after,
            MS / 1000,
            u64::MAX / 256,
        )?;
        range(
            "maximum open connections",
            self.most_open.into(),
            1,
            1 << 30,
        )?;
        let half_open = self.most_half_open.into();
        range("maximum half-open connections", half_open, 1, 1 << 30)?;
        if let Some(tunnel) = &self.tunnel {
            range("vni", tunnel.vni.into(), 1, 0xff_ffff)?;
        }
        let mut longest = 0;
        match &self.role {
            Role::Client(client) => {
                if self.gateway.is_none() {
                    return Err(ConfigError::NoGateway);
                }
                let family = client.tuples.clients().family_is_v4();
                if family.is_none() || family != client.tuples.servers().family_is_v4() {
                    return Err(ConfigError::MixedFamilies);
                }
                if let Some(to) = &client.destinations {
                    if to.pool.family_is_v4() != family {
                        return Err(ConfigError::MixedFamilies);
                    }
                    let last = u64::from(to.pool.len()) - 1;
                    range("first destination", to.first.into(), 0, last)?;
                }
                if let Some(requests) = client.requests {
                    range("requests", requests.into(), 1, u64::from(u16::MAX) - 1)?;
                }
                range("pipeline", client.pipeline.into(), 0, 1 << 12)?;
                let tcp = self.transport == Transport::Tcp;
                let asks = self.asks.iter().map(|ask| &ask.message);
                let one = Some(&client.request).filter(|_| self.asks.is_empty());
                let requests = || asks.clone().chain(one);
                if tcp && !client.flood && requests().any(Message::is_empty) {
                    return Err(ConfigError::NoRequest);
                }
                range("requests of a mix", self.asks.len() as u64, 0, 1 << 16)?;
                if tcp {
                    let most = requests().map(Message::len).max().unwrap_or(0);
                    let all = u64::from(most) * u64::from(client.pipeline.max(1));
                    range("request bytes sent back to back", all, 0, 1 << 30)?;
                }
                longest = longest.max(client.request.len());
            }
            Role::Server(server) => {
                if server.addresses.is_empty() {
                    return Err(ConfigError::NoAddress);
                }
                range("routes", self.routes.len() as u64, 0, 1 << 16)?;
                for route in &self.routes {
                    range("answer bytes", route.answer.len().into(), 0, 1 << 30)?;
                }
                if let Some(answers) = server.answers {
                    range("answers", answers.into(), 1, u64::from(u16::MAX) - 1)?;
                }
                if let ServerAnswer::Message(message) = &server.answer {
                    range("answer bytes", message.len().into(), 0, 1 << 30)?;
                    longest = longest.max(message.len());
                }
            }
        }
        let most = LONGEST_PAYLOAD as u32;
        if self.transport == Transport::Udp && longest > most {
            return Err(ConfigError::LongDatagram { len: longest, most });
        }
        Ok(())
    }
}
