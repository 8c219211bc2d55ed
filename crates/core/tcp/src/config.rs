//! What a machine is to be.

use wb_wire::{AddrSet, MacAddr};

use crate::addr::Pool;
use crate::build::LONGEST_HEADERS;
use crate::message::{LONGEST_PAYLOAD, Message};
use crate::mix::Ask;
use crate::reader::Reading;
use crate::routes::Route;
use crate::tunnel::{LONGEST_OUTER, Tunnel};
use crate::tuple::Tuples;

/// One millisecond in ns.
const MS: u64 = 1_000_000;

/// Everything a machine is made of. Times are in ns.
#[derive(Clone, Debug)]
pub struct Config {
    /// Which end.
    pub role: Role,
    /// TCP or UDP.
    pub transport: Transport,
    /// Whether the numbers or dperf's habits count.
    pub style: Style,
    /// Our Ethernet address.
    pub mac: MacAddr,
    /// Where all frames go. None: each connection's go to where its first frame came from, and a
    /// client cannot do without.
    pub gateway: Option<MacAddr>,
    /// VLAN id (and priority) put into frames and taken from them.
    pub vlan: Option<u16>,
    /// The tunnel around all frames; a VLAN tag is outside of it.
    pub tunnel: Option<Tunnel>,
    /// IPv4 TOS or IPv6 traffic class.
    pub tos: u8,
    /// Time to live, or hop limit.
    pub ttl: u8,
    /// Largest segment we announce and send, 64 to 8,960.
    pub mss: u16,
    /// The window we announce, as the header has it.
    pub window: u16,
    /// The window scale we announce, 0 to 14.
    pub window_scale: u8,
    /// First congestion window in segments: RFC 6928 has 10.
    pub initial_window: u16,
    /// Most segments in flight, whatever the windows say.
    pub most_in_flight: u16,
    /// When a segment is sent again.
    pub retransmission: Retransmission,
    /// From the first SYN to the SYN-ACK, at most.
    pub connect_timeout: u64,
    /// From a request to the end of its answer, at most.
    pub response_timeout: u64,
    /// TCP client: the same to the first byte of an answer, in ns. Longer than that: none.
    pub first_byte_timeout: u64,
    /// From our FIN to the end, at most.
    pub close_timeout: u64,
    /// Server: without anything from the peer, at most.
    pub idle_timeout: u64,
    /// What becomes of the end that closed first.
    pub time_wait: TimeWait,
    /// Whether a connection that is given up is told so by RST.
    pub reset_on_give_up: bool,
    /// Whether segments of no connection are answered by RST.
    pub reset_unknown: bool,
    /// Whom a packet of no connection is answered to: a new one opened, a datagram returned, a segment
    /// reset. None: whoever sends one.
    pub answered: Option<AddrSet>,
    /// Requests at intervals: what a late caller makes up for at most; older ones are not sent.
    pub catch_up: u64,
    /// UDP: requests that may wait for their answers at a time. For one more the oldest is given up. At
    /// least so many as expected connections have.
    pub most_outstanding: u32,
    /// Longest that an acknowledgement waits to ride on the next request of a kept connection.
    pub ack_delay: u64,
    /// Whether checksums of what comes in are verified. Wrong ones are counted and nothing else.
    pub verify_checksums: bool,
    /// Whether what comes in may be of a kernel that left its checksums to hardware, and nobody says
    /// so: through a virtual device, or from a file.
    pub checksums_may_be_left: bool,
    /// Connections expected, for the first size of the table.
    pub expected: u32,
    /// Most connections at a time.
    pub most_open: u32,
    /// Server: most of those whose handshake has not ended. A flood of SYNs takes no more memory.
    pub most_half_open: u32,
    /// A TCP client's requests, where they are several, or each is to be told apart: they take the place of
    /// [`Client::request`]. At most 65,536.
    pub asks: Vec<Ask>,
    /// Of such a client: what answers hold is shown to the [`Observer`](crate::Observer), in order.
    pub shows_answers: bool,
    /// What an HTTP server answers to which path, in the place of its [`Server::answer`]; the last one to
    /// all that no other has. At most 65,536.
    pub routes: Vec<Route>,
    /// A TCP client sends no more requests than this in all.
    pub most_requests: u64,
    /// Decides where connections stand in the table and with which sequence numbers they begin. Random
    /// for each run, or a peer could choose addresses and ports that all share one place.
    pub key: u64,
}

/// Which end of connections.
#[derive(Clone, Debug)]
pub enum Role {
    /// Opens them.
    Client(Client),
    /// Waits for them.
    Server(Server),
}

/// The opening end.
#[derive(Clone, Debug)]
pub struct Client {
    /// From where to where.
    pub tuples: Tuples,
    /// What is asked.
    pub request: Message,
    /// What answers look like.
    pub answer: Reading,
    /// Requests of a connection, then it is closed; None: until [`crate::Machine::finish`].
    pub requests: Option<u16>,
    /// From request to request of a connection; 0: as soon as the answer has come.
    pub interval: u64,
    /// Requests sent back to back; 0 counts as 1. With TCP the next ones follow when all are answered.
    pub pipeline: u16,
    /// How a connection is closed after the last answer.
    pub close: Close,
    /// Whether answers are not waited for.
    pub flood: bool,
    /// Whether requests go out only when [`crate::Machine::ask`] says so; `interval` then has no
    /// meaning.
    pub paced: bool,
    /// UDP: whether requests of at least 12 bytes tell their number and time in the first twelve, so that
    /// answers that bring them back are told apart.
    pub numbers: bool,
    /// With `flood`: where packets go in turn, instead of the server's address.
    pub destinations: Option<Destinations>,
    /// UDP: what every second datagram says instead; as long as the request.
    pub alternate: Option<Message>,
}

/// Addresses that packets take in turn.
#[derive(Clone, Debug)]
pub struct Destinations {
    /// All of them, of the family of the clients.
    pub pool: Pool,
    /// The number of the first one to be taken.
    pub first: u32,
    /// From one to the next, around the end of the pool.
    pub step: u32,
}

impl Destinations {
    /// The next one.
    #[inline]
    pub(crate) fn take(&mut self) -> crate::Addr {
        let address = self.pool.at(self.first);
        let next = u64::from(self.first) + u64::from(self.step);
        self.first = (next % u64::from(self.pool.len())) as u32;
        address
    }
}

/// The waiting end.
#[derive(Clone, Debug)]
pub struct Server {
    /// Our addresses.
    pub addresses: Pool,
    /// Whom it answers; what others send is foreign. Empty: anyone.
    pub clients: Pool,
    /// First and last port.
    pub ports: (u16, u16),
    /// What requests look like.
    pub request: Reading,
    /// What is answered.
    pub answer: Answer,
    /// TCP: answers of a connection, then it is closed; at least 1. None: as many as the client wants.
    pub answers: Option<u16>,
    /// Whether a PROXY header may come before the first request.
    pub proxy: bool,
    /// UDP: whether the first 12 bytes of a request replace those of the answer, where both have so many:
    /// the number and time of a client of ours.
    pub returns_numbers: bool,
}

/// What a server says.
#[derive(Clone, Debug)]
pub enum Answer {
    /// The same to all.
    Message(Message),
    /// TCP: as many bytes as came, but filler, because nothing that comes is kept. UDP: what came.
    Echo,
    /// Nothing; TCP is acknowledged.
    Sink,
}

/// TCP or UDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// RFC 9293.
    Tcp,
    /// RFC 768.
    Udp,
}

/// Whose habits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// RFC 9293 and 5681.
    Native,
    /// As dperf puts it on the wire: no sequence check of RST, no reset of strangers to known tuples,
    /// a server's window that grows by one with every segment received, FIN after the last
    /// acknowledgement of an answer of several segments, window scale in every SYN-ACK.
    Dperf,
}

/// How a client closes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Close {
    /// By FIN.
    Fin,
    /// By RST.
    Reset,
}

/// What becomes of the end that closed first: RFC 9293 section 3.6.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeWait {
    /// The connection is gone at once.
    Skip,
    /// The tuple is kept for so many ns, to acknowledge a FIN that comes again.
    Hold(u64),
    /// The peer's FIN is answered by RST.
    Reset,
}

/// When a segment is sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retransmission {
    /// After so many ns without acknowledgement.
    pub after: u64,
    /// At most so many times; the next expiry ends the connection.
    pub tries: u8,
    /// Whether the time doubles with every try (RFC 6298 section 5.5).
    pub backoff: bool,
}

/// A machine that cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// Out of range.
    #[error("{name} is {value}; allowed are {low} to {high}")]
    Range {
        /// Which.
        name: &'static str,
        /// What it is.
        value: u64,
        /// Least.
        low: u64,
        /// Most.
        high: u64,
    },
    /// A client needs to know where to send.
    #[error("a client needs the MAC address of its gateway")]
    NoGateway,
    /// Tuples of both families.
    #[error("client and server addresses must be of one family; use a machine for each")]
    MixedFamilies,
    /// A server without addresses.
    #[error("a server needs at least one address")]
    NoAddress,
    /// A datagram is one message.
    #[error("a UDP message of {len} bytes does not fit a datagram; allowed are 0 to {most}")]
    LongDatagram {
        /// Its length.
        len: u32,
        /// Most.
        most: u32,
    },
    /// A client that asks nothing.
    #[error("a TCP client needs a request of at least 1 byte")]
    NoRequest,
}

impl Config {
    /// Sensible numbers for a role; set `gateway` for a client.
    pub fn new(role: Role, transport: Transport, mac: MacAddr) -> Self {
        let family = match &role {
            Role::Client(client) => client.tuples.clients().family_is_v4(),
            Role::Server(server) => server.addresses.family_is_v4(),
        };
        Self {
            role,
            transport,
            style: Style::Native,
            mac,
            gateway: None,
            vlan: None,
            tunnel: None,
            tos: 0,
            ttl: 64,
            // What a packet of 1,500 bytes holds.
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

    /// dperf's numbers and habits: one time `retransmit` (2 s unless told) rules all timers.
    #[must_use]
    pub fn dperf(mut self, retransmit: u64) -> Self {
        let is_client = matches!(self.role, Role::Client(_));
        self.style = Style::Dperf;
        self.window_scale = 13;
        self.initial_window = 1;
        self.most_in_flight = 4;
        self.retransmission = Retransmission {
            // A server's is longer, so that both ends do not send again at the same time.
            after: if is_client {
                retransmit
            } else {
                retransmit / 10 * 11
            },
            tries: 3,
            backoff: false,
        };
        // dperf has none of these.
        self.connect_timeout = u64::MAX / 4;
        self.response_timeout = u64::MAX / 4;
        self.close_timeout = u64::MAX / 4;
        self.idle_timeout = 4 * retransmit;
        self.reset_on_give_up = false;
        self.ack_delay = retransmit - 1;
        self
    }

    /// The longest frame that the machine writes, without FCS, and room that it needs for any.
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
        // Headers are written in one piece of fixed length, of which a short frame has less.
        outer + (14 + tag + network + header + payload).max(LONGEST_HEADERS)
    }

    fn longest_datagram(&self) -> usize {
        if self.transport == Transport::Tcp {
            return 0;
        }
        match &self.role {
            Role::Client(client) => client.request.len() as usize,
            Role::Server(server) => match &server.answer {
                Answer::Message(message) => message.len() as usize,
                Answer::Echo => LONGEST_PAYLOAD,
                Answer::Sink => 0,
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
        range("most in flight", self.most_in_flight.into(), 1, 1 << 14)?;
        range(
            "retransmission time",
            self.retransmission.after,
            MS / 1000,
            u64::MAX / 256,
        )?;
        range("most open connections", self.most_open.into(), 1, 1 << 30)?;
        let half_open = self.most_half_open.into();
        range("most half-open connections", half_open, 1, 1 << 30)?;
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
                if let Answer::Message(message) = &server.answer {
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
