//! State machine of a client or a server: turns received frames, expired timers and requests of the caller into frames.

mod client;
mod datagram;
mod icmp_error;
mod output;
mod paced_requests;
mod recovery;
mod segment;
mod server;
mod stream;
mod timeout;
mod unknown_segment;

use std::collections::{HashMap, VecDeque};

use wb_wire::{MacAddr, tcp_flags};

use crate::addr::{Addr, Pool};
use crate::build::{Builder, FrameSink, Path};
use crate::config::{
    Behaviour, Client, Config, ConfigError, DestinationPool, Role, ServerAnswer, Transport,
};
use crate::connection::{Conn, ConnectionState, ENDLESS, Key, before};
use crate::counters::Counters;
use crate::message::Message;
use crate::mix::{Mix, WeightedRequest};
use crate::observer::Observer;
use crate::outstanding::{NUMBER_LEN, Outstanding};
use crate::parse::{Check, Checksum, Packet, RejectReason, parse};
use crate::reader::{Reading, StreamReader};
use crate::routes::{Route, Routes};
use crate::script::{Text, continue_answer};
use crate::side_record::SideRecords;
use crate::table::ConnectionTable;
use crate::timer::{NONE, Wheel};

/// Maximum number of next hops that a server without a gateway can distinguish.
const MOST_HOPS: usize = 1 << 16;
/// Maximum number of connections in the closing states during a gradual end ([`Machine::finish_by`]).
const CLOSING_AT_ONCE: u64 = 512;
/// Minimum margin of the retransmission timeout above the round-trip time, in ns. Kernels use the same value because a
/// receiver may delay its acknowledgement that long.
const LEAST_TIMEOUT: u64 = 200_000_000;
/// Minimum size of the blocks that store out-of-order data, in bytes.
const LEAST_BLOCK: usize = 2048;

pub use icmp_error::IcmpNews;
pub use paced_requests::LatenessSeries;

/// Result of offering a frame to the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// The machine handled and counted the frame.
    Taken,
    /// Other protocol or other destination address; the neighbour logic may want the frame.
    NotOurs,
}

/// Client or server with many connections.
///
/// Call [`Machine::receive`] for every frame. Call [`Machine::poll`] after each batch, and at [`Machine::next_due`] at
/// the latest. A client opens connections with [`Machine::launch`]. To end, call [`Machine::finish`], continue until
/// [`Machine::is_idle`], then drop the remaining connections with [`Machine::abort`]. All methods take the time in ns,
/// which must not go back.
#[derive(Debug)]
pub struct Machine<O = ()> {
    config: Config,
    observer: O,
    counters: Counters,
    table: ConnectionTable,
    upcoming: Upcoming,
    wheel: Wheel,
    builder: Builder,
    reader: StreamReader,
    side_records: SideRecords,
    /// Connections with something to send at the next poll.
    queue: VecDeque<u32>,
    hops: Vec<MacAddr>,
    /// Index of each address in `hops`, except the first.
    hop_numbers: HashMap<[u8; 6], u32>,
    /// Local addresses, by index.
    local: Pool,
    /// Request of a client, answer of a server; the first one if there are several.
    text: Message,
    /// All requests of a client or all answers of a server, by index.
    texts: Box<[Text]>,
    /// Selects the next request of a client.
    mix: Mix,
    /// Requests that a client may still send.
    left: u64,
    /// Client: each request in flight is recorded, because the requests differ.
    remembers: bool,
    /// Client: each complete answer triggers one more request (sliding window). If false, the next batch starts when
    /// all requests are answered.
    slides: bool,
    /// Body bytes of answers are counted.
    counts_bodies: bool,
    /// Client: data that no request asked for ends the connection as malformed.
    rejects_unasked: bool,
    /// Heads and bodies of answers are passed to the observer.
    shows_answers: bool,
    /// Answers of a server, selected by path.
    routes: Option<Routes>,
    /// The interim answer "100 Continue".
    leave: Message,
    /// Minimum margin of the retransmission timeout above the round-trip time, in ns.
    least_timeout: u64,
    /// Client part of the configuration, without its requests and addresses.
    client: Option<Client>,
    server: ServerShape,
    is_tcp: bool,
    is_dperf: bool,
    is_http: bool,
    syn_options: [u8; 12],
    /// SYN options for a peer that offered no window scale.
    unscaled_options: [u8; 8],
    /// The client does not wait for answers.
    floods: bool,
    /// UDP: requests carry their numbers.
    numbers: bool,
    /// UDP: offset of the request id in SNMP requests, which serves as their number.
    snmp_id_at: Option<usize>,
    /// UDP client: requests without an answer.
    requests: Outstanding,
    /// Advance of the initial sequence numbers over the clock.
    ahead: u32,
    finishing: bool,
    sweep: u32,
    /// Time until which requests at intervals were due, ns.
    ended_at: u64,
    /// Requests leave only through [`Machine::ask`].
    paced: bool,
    /// Idle connections with their tickets, followed by the last ticket issued.
    resting: VecDeque<(u32, u32)>,
    ticket: u32,
    flow: paced_requests::PrebuiltDatagram,
    /// Destinations of a flood, used in rotation.
    destinations: Option<DestinationPool>,
    /// Payload of every second datagram.
    alternate: Option<Message>,
    /// The next datagram carries `alternate`.
    is_second: bool,
    /// Client connections that have started to close.
    closing: u64,
    /// Time until which closing is gradual, ns; 0 if closing is not limited.
    unhurried_until: u64,
    /// Start and end of the last stall of the caller.
    away: (u64, u64),
    /// Connections that must close once they are idle.
    surplus: u32,
    /// Index up to which [`Machine::reset_open_connections`] has reset connections.
    parted: u32,
    /// Server connections with an incomplete handshake.
    half_open: u32,
    /// Range of [`Config::answered`] that contained the last address checked, both ends included.
    answered: (Addr, Addr),
    /// Incomplete PROXY headers, by connection.
    partial: Vec<(u32, Vec<u8>)>,
    /// Time from the arrival of the current frame until it was read, ns.
    unread: u64,
    icmp_news: IcmpNews,
    /// Reduced segment sizes of destinations behind a link with a smaller MTU.
    path_mss: icmp_error::PathMss,
}

/// Behaviour of a server, without its answers.
#[derive(Clone, Debug)]
struct ServerShape {
    /// Clients that receive answers; empty means all.
    clients: Pool,
    ports: (u16, u16),
    answers: u16,
    echo: bool,
    sink: bool,
    proxy: bool,
    /// The answer keeps HTTP/1.0 connections open.
    grants: bool,
    returns_numbers: bool,
}

impl Upcoming {
    const fn new() -> Self {
        Self {
            hashes: [0; LONGEST_LOOK_AHEAD],
            used: 0,
        }
    }
}

/// The messages that a machine sends: its requests, the answers of its routes, or its only message.
fn texts(asks: Vec<WeightedRequest>, routes: Vec<Route>, only: &Message) -> Vec<Text> {
    let asks = asks.into_iter().map(|ask| ask.message);
    let routes = routes.into_iter().map(|route| route.answer);
    let mut messages: Vec<Message> = asks.collect();
    if messages.is_empty() {
        messages.extend(routes);
    }
    if messages.is_empty() {
        messages.push(only.clone());
    }
    messages.into_iter().map(Text::new).collect()
}

/// Parts of a machine that its role determines.
struct RoleParts {
    /// Its own addresses, sorted.
    local: Pool,
    /// The request of a client, or the answer of a server; empty if a server echoes or only reads.
    text: Message,
    client: Option<Client>,
    server: ServerShape,
    /// Format of received messages.
    reading: Reading,
}

impl RoleParts {
    fn new(role: Role) -> Self {
        let mut parts = match role {
            Role::Client(client) => Self {
                local: client.tuples.clients().clone(),
                text: client.request.clone(),
                reading: client.answer,
                client: Some(client),
                server: ServerShape {
                    clients: Pool::default(),
                    ports: (1, 0),
                    answers: 1,
                    echo: false,
                    sink: true,
                    proxy: false,
                    grants: false,
                    returns_numbers: false,
                },
            },
            Role::Server(server) => {
                let mut clients = server.clients;
                clients.sort();
                Self {
                    local: server.addresses,
                    client: None,
                    reading: server.request,
                    server: ServerShape {
                        clients,
                        ports: server.ports,
                        answers: server.answers.unwrap_or(ENDLESS),
                        echo: matches!(server.answer, ServerAnswer::Echo),
                        sink: matches!(server.answer, ServerAnswer::Sink),
                        proxy: server.proxy,
                        grants: grants_keeping(&server.answer),
                        returns_numbers: server.returns_numbers,
                    },
                    text: match server.answer {
                        ServerAnswer::Message(message) => message,
                        ServerAnswer::Echo | ServerAnswer::Sink => Message::bytes(&[]),
                    },
                }
            }
        };
        parts.local.sort();
        parts
    }
}

/// Place of the request id in messages of this length, if they are of SNMP.
fn snmp_id_at(reading: Reading, len: u32) -> Option<usize> {
    match reading {
        Reading::Snmp { id_at } if len >= id_at + 4 => Some(id_at as usize),
        _ => None,
    }
}

/// Options of a SYN: MSS, NOP, window scale, two NOPs, SACK permitted (RFC 9293 section 3.2, RFC 7323 section 2.2,
/// RFC 2018 section 2).
fn syn_options(mss: u16, window_scale: u8) -> [u8; 12] {
    let [high, low] = mss.to_be_bytes();
    [2, 4, high, low, 1, 3, 3, window_scale, 1, 1, 4, 2]
}

/// Options of a SYN without a window scale.
fn unscaled_syn_options(mss: u16) -> [u8; 8] {
    let [high, low] = mss.to_be_bytes();
    [2, 4, high, low, 1, 1, 4, 2]
}

/// Maximum number of frames that [`Machine::look_ahead`] accepts before [`Machine::fetch_records`].
pub const LONGEST_LOOK_AHEAD: usize = 64;

/// Below this number of connections, the index and the records stay in the CPU caches.
const WORTH_LOOKING_AHEAD: u32 = 1 << 16;

/// Hashes of the next frames.
#[derive(Debug)]
struct Upcoming {
    hashes: [u64; LONGEST_LOOK_AHEAD],
    used: usize,
}

/// Reason why a connection failed, together with its unanswered requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// No answer to SYN or SYN-ACK in time.
    Connect,
    /// No complete answer in time.
    Response,
    /// No byte of an answer within [`Config::first_byte_timeout`]. Counted as a response timeout.
    FirstByte,
    /// The FIN was not acknowledged in time.
    Close,
    /// The peer was silent for too long (server).
    Idle,
    /// RST instead of SYN-ACK.
    Refused,
    /// ICMP error instead of SYN-ACK: the destination is unreachable.
    Unreachable,
    /// RST on an established connection.
    Reset,
    /// The peer closed before its message was complete.
    Short,
    /// The received bytes are not a valid message.
    Malformed,
    /// Aborted by the caller.
    Aborted,
}

impl<O: Observer> Machine<O> {
    /// Creates a machine without connections, which reports times to `observer`.
    ///
    /// # Errors
    /// Returns the first invalid setting as a [`ConfigError`].
    pub fn new(mut config: Config, observer: O) -> Result<Self, ConfigError> {
        config.check()?;
        config.mss = config.mss.max(1);
        let RoleParts {
            local,
            text,
            client,
            server,
            reading,
        } = RoleParts::new(config.role.clone());
        let asks = std::mem::take(&mut config.asks);
        let text = asks.first().map_or(text, |first| first.message.clone());
        // If there are several requests, each one records whether it is HEAD.
        let beginning = if asks.len() > 1 {
            &[]
        } else {
            text.beginning()
        };
        let reader = StreamReader::new(reading, client.as_ref().map(|_| beginning));
        let mix = Mix::new(&asks);
        let counts_bodies = !asks.is_empty();
        let routed = std::mem::take(&mut config.routes);
        let routes = Routes::new(&routed);
        let texts = texts(asks, routed, &text);
        let is_tcp = config.transport == Transport::Tcp;
        let is_pipelined = client.as_ref().is_some_and(|client| client.pipeline > 1);
        let floods = client.as_ref().is_some_and(|client| client.flood);
        // dperf takes whatever a server sends. Without a known end of the answer nothing is beyond it.
        let is_delimited = matches!(reading, Reading::Fixed(_) | Reading::Http);
        let is_strict = is_tcp && is_delimited && !floods && config.style != Behaviour::Dperf;
        let rejects_unasked = counts_bodies || is_strict && client.is_some();
        let asking = client.as_ref().filter(|_| !is_tcp && !floods);
        let outstanding = asking.map_or(1, |client| {
            let each = client.pipeline.max(1).into();
            let expected = config.expected.saturating_mul(each);
            config.most_outstanding.max(expected)
        });
        Ok(Self {
            counters: Counters::default(),
            table: ConnectionTable::new(config.expected, config.key),
            upcoming: Upcoming::new(),
            wheel: Wheel::new(0),
            builder: Builder::of(&config),
            reader,
            side_records: SideRecords::new(usize::from(config.mss).max(LEAST_BLOCK)),
            queue: VecDeque::with_capacity(1024),
            hops: config.gateway.into_iter().collect(),
            hop_numbers: HashMap::new(),
            local,
            floods,
            numbers: text.len() as usize >= NUMBER_LEN
                && client.as_ref().is_some_and(|client| client.numbers),
            alternate: client
                .as_ref()
                .and_then(|client| client.alternate.clone())
                .filter(|other| !is_tcp && other.len() == text.len()),
            is_second: false,
            snmp_id_at: snmp_id_at(reading, text.len()),
            requests: Outstanding::new(outstanding, config.key),
            text,
            server,
            is_tcp,
            is_dperf: config.style == Behaviour::Dperf,
            is_http: reading == Reading::Http,
            syn_options: syn_options(config.mss, config.window_scale),
            unscaled_options: unscaled_syn_options(config.mss),
            remembers: is_tcp
                && (mix.len() > 1 || mix.len() == 1 && (config.shows_answers || is_pipelined)),
            shows_answers: is_tcp && counts_bodies && config.shows_answers,
            slides: is_tcp && counts_bodies && is_pipelined,
            counts_bodies,
            rejects_unasked,
            texts: texts.into_boxed_slice(),
            mix,
            left: config.most_requests,
            routes,
            leave: continue_answer(),
            least_timeout: config.retransmission.after.min(LEAST_TIMEOUT),
            ahead: 0,
            finishing: false,
            sweep: 0,
            ended_at: u64::MAX,
            paced: client.as_ref().is_some_and(|client| client.paced),
            resting: VecDeque::new(),
            ticket: 0,
            flow: paced_requests::PrebuiltDatagram::new(),
            destinations: client.as_ref().and_then(|c| c.destinations.clone()),
            closing: 0,
            unhurried_until: 0,
            away: (0, 0),
            surplus: 0,
            parted: 0,
            half_open: 0,
            // Empty range: no address checked yet.
            answered: (Addr::v4(1), Addr::v4(0)),
            partial: Vec::new(),
            unread: 0,
            icmp_news: IcmpNews::default(),
            path_mss: HashMap::new(),
            client,
            config,
            observer,
        })
    }

    /// Counters since the machine was created.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Observer of the measured times.
    pub fn observer(&self) -> &O {
        &self.observer
    }

    /// Mutable access to the observer, to reset it after an interval.
    pub fn observer_mut(&mut self) -> &mut O {
        &mut self.observer
    }

    /// Number of answers queued for each of [`Config::routes`].
    pub fn route_answers(&self) -> Vec<u64> {
        let rules = self.routes.iter().flat_map(|routes| &routes.rules);
        rules.map(|rule| rule.answers).collect()
    }

    /// Configuration of the machine, without its requests and answers.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Memory of the connections, their index and the unanswered requests, in bytes.
    pub fn memory(&self) -> usize {
        self.table.memory() + self.requests.memory()
    }

    /// Connections in the table, including those in TIME_WAIT.
    pub fn held(&self) -> u32 {
        self.table.len()
    }

    /// Returns true if the table is large enough for [`Machine::look_ahead`] to pay off.
    #[inline]
    pub fn is_worth_looking_ahead(&self) -> bool {
        self.table.len() >= WORTH_LOOKING_AHEAD
    }

    /// Prefetches the index entry of a frame that will be received soon. `fetch` gets an address and must not block.
    /// Call [`Machine::fetch_records`] afterwards.
    #[inline]
    pub fn look_ahead(&mut self, frame: &[u8], fetch: impl Fn(*const u8)) {
        let Ok(packet) = parse(frame, self.config.vlan, Check::Nothing) else {
            return;
        };
        let Some(local) = self.local.position(packet.dst) else {
            return;
        };
        let key = Key {
            remote: packet.src,
            local,
            ports: packet.ports,
        };
        let hash = self.table.hash(&key);
        if let Some(place) = self.upcoming.hashes.get_mut(self.upcoming.used) {
            *place = hash;
            self.upcoming.used += 1;
            fetch(self.table.place(hash));
        }
    }

    /// Prefetches the records of all frames passed to [`Machine::look_ahead`].
    #[inline]
    pub fn fetch_records(&mut self, fetch: impl Fn(*const u8)) {
        for hash in &self.upcoming.hashes[..std::mem::take(&mut self.upcoming.used)] {
            self.table.fetch_record(*hash, &fetch);
        }
    }

    /// Sets the time from the arrival of the next frames until they were read, in ns. Times reported to the observer
    /// exclude this delay.
    #[inline]
    pub fn set_unread(&mut self, ns: u64) {
        self.unread = ns;
    }

    /// Time from `since` until the arrival of the current frame, ns.
    #[inline]
    fn until_came(&self, now: u64, since: u64) -> u64 {
        now.saturating_sub(self.unread).saturating_sub(since)
    }

    /// Handles one frame (without FCS) and sends the answers.
    #[inline]
    pub fn receive(&mut self, now: u64, frame: &[u8], sink: &mut impl FrameSink) -> Received {
        self.receive_known(now, frame, Checksum::Unknown, sink)
    }

    /// Like [`Machine::receive`], with knowledge about the transport checksum of the frame.
    #[inline]
    pub fn receive_known(
        &mut self,
        now: u64,
        frame: &[u8],
        known: Checksum,
        sink: &mut impl FrameSink,
    ) -> Received {
        self.counters.rx_frames += 1;
        self.counters.rx_octets += frame.len() as u64;
        if self.builder.outer().is_some() {
            return self.receive_tunnelled(now, frame, known, sink);
        }
        let result = match parse(frame, self.config.vlan, self.check(known)) {
            Ok(packet) => self.process_packet(now, &packet, sink),
            Err(RejectReason::Foreign) if self.icmp_error(now, frame, self.config.vlan, sink) => {
                Ok(())
            }
            Err(other) => Err(other),
        };
        self.received(frame, result)
    }

    #[inline(always)]
    fn received(&mut self, frame: &[u8], result: Result<(), RejectReason>) -> Received {
        match result {
            Ok(()) => Received::Taken,
            Err(other) => self.count_rejected(frame, other),
        }
    }

    /// Checks required for a frame.
    #[inline(always)]
    fn check(&self, known: Checksum) -> Check {
        match known {
            _ if !self.config.verify_checksums => Check::Nothing,
            Checksum::Right | Checksum::Left => Check::Header,
            Checksum::Unknown if self.config.checksums_may_be_left => Check::AllOrLeft,
            Checksum::Unknown => Check::All,
        }
    }

    #[inline(never)]
    fn receive_tunnelled(
        &mut self,
        now: u64,
        frame: &[u8],
        known: Checksum,
        sink: &mut impl FrameSink,
    ) -> Received {
        let outside = self.check(known);
        // A device that verified a checksum verified only the outermost one; a kernel that left the checksum to
        // hardware left all of them.
        let inside = match known {
            Checksum::Right => self.check(Checksum::Unknown),
            _ => outside,
        };
        let opened = match self.builder.outer() {
            Some(outer) => outer.open(frame, self.config.vlan, outside),
            None => Err(RejectReason::Foreign),
        };
        let result = opened.and_then(|(inner, src_mac)| match parse(inner, None, inside) {
            Ok(packet) => self.process_packet(now, &Packet { src_mac, ..packet }, sink),
            Err(RejectReason::Foreign) if self.icmp_error(now, inner, None, sink) => Ok(()),
            Err(other) => Err(other),
        });
        self.received(frame, result)
    }

    // Force inlining, as for the parser: otherwise the packet is assembled in memory.
    #[inline(always)]
    fn process_packet(
        &mut self,
        now: u64,
        packet: &Packet<'_>,
        sink: &mut impl FrameSink,
    ) -> Result<(), RejectReason> {
        let Some(local) = self.local.position(packet.dst) else {
            return Err(RejectReason::Foreign);
        };
        if !self.server.clients.is_empty() && self.server.clients.position(packet.src).is_none() {
            return Err(RejectReason::Foreign);
        }
        self.counters.rx_tos += u64::from(packet.tos == self.config.tos);
        let key = Key {
            remote: packet.src,
            local,
            ports: packet.ports,
        };
        if packet.is_tcp {
            self.counters.tcp_rx += 1;
            let flags = packet.flags;
            self.counters.syn_rx += u64::from(flags & tcp_flags::SYN != 0);
            self.counters.fin_rx += u64::from(flags & tcp_flags::FIN != 0);
            self.counters.rst_rx += u64::from(flags & tcp_flags::RST != 0);
            if !self.is_tcp {
                self.counters.drop_unknown += 1;
                return Ok(());
            }
            let hash = self.table.hash(&key);
            match self.table.find(&key, hash) {
                Some(id) => self.segment(now, id, packet, sink),
                None => self.unknown_segment(now, key, hash, packet, sink),
            }
        } else {
            self.counters.udp_rx += 1;
            self.datagram(now, key, packet, sink);
        }
        Ok(())
    }

    #[cold]
    fn count_rejected(&mut self, frame: &[u8], other: RejectReason) -> Received {
        match other {
            RejectReason::Foreign => {
                self.counters.rx_foreign += 1;
                self.counters.rx_foreign_octets += frame.len() as u64;
            }
            RejectReason::Malformed => self.counters.rx_malformed += 1,
            RejectReason::Corrupt => self.counters.rx_bad_checksum += 1,
            RejectReason::Fragment => self.counters.rx_fragments += 1,
        }
        if other == RejectReason::Foreign {
            Received::NotOurs
        } else {
            Received::Taken
        }
    }

    /// Handles expired timers, and sends what waited for room in the sink or for the end of a batch.
    pub fn poll(&mut self, now: u64, sink: &mut impl FrameSink) {
        self.poll_heard(now, now, sink);
    }

    /// Like [`Machine::poll`], for a caller that has not read all frames yet: everything that arrived by `heard` has
    /// been read. A request counts as lost only if its timeout ended by then.
    pub fn poll_heard(&mut self, now: u64, heard: u64, sink: &mut impl FrameSink) {
        while let Some(id) = self.wheel.expire(&mut self.table.slab, now) {
            self.expired(now, id, sink);
        }
        self.lose_overdue(now, heard, sink);
        if self.finishing {
            if now >= self.unhurried_until {
                self.unhurried_until = 0;
            }
            self.close_some(now);
        }
        for _ in 0..self.queue.len() {
            let Some(id) = self.queue.pop_front() else {
                break;
            };
            let conn = self.table.slab.get(id);
            conn.set_queued(false);
            if conn.state == ConnectionState::Free {
                continue;
            }
            self.resume(now, id, sink);
            if self.table.slab.get(id).is_queued() {
                // No room. This connection is at the back of the queue, so the others come first.
                break;
            }
        }
    }

    /// Announces a stall of the caller, from the start of the turn in which it began until `until`. What was sent in that
    /// turn may have left only at `until`, so its time limits count from then.
    pub const fn was_away(&mut self, from: u64, until: u64) {
        self.away = (from, until);
    }

    /// Time from which the time limits of what was sent at `stamp` count.
    #[inline]
    const fn left_at(&self, stamp: u64) -> u64 {
        let (from, until) = self.away;
        if stamp < until && stamp >= from {
            return until;
        }
        stamp
    }

    /// Latest time at which [`Machine::poll`] must be called. 0 means now. None means not until something is received
    /// or launched.
    pub fn next_due(&self) -> Option<u64> {
        if !self.queue.is_empty() {
            return Some(0);
        }
        let due = match (self.wheel.next_due_ns(), self.next_lost()) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (one, other) => one.or(other),
        };
        if !self.finishing || self.sweep >= self.table.slab.extent() {
            return due;
        }
        if self.may_close_more() {
            return Some(0);
        }
        Some(due.map_or(self.unhurried_until, |due| due.min(self.unhurried_until)))
    }

    /// Starts the end: no connection sends another request, and the following polls close idle connections. Pending
    /// answers are still awaited.
    pub fn finish(&mut self) {
        self.finish_by(0);
    }

    /// Like [`Machine::finish`], but limits the number of closing connections until `hurry_at`. This prevents a burst
    /// when a million connections end.
    pub fn finish_by(&mut self, hurry_at: u64) {
        self.finish_as_of(u64::MAX, hurry_at);
    }

    /// Like [`Machine::finish_by`], for a caller that may be late: the run ended at `ended_at`, and requests due by
    /// then count as unsent.
    pub fn finish_as_of(&mut self, ended_at: u64, hurry_at: u64) {
        self.ended_at = ended_at;
        self.finishing = true;
        self.sweep = 0;
        self.unhurried_until = hurry_at;
    }

    /// Returns true if another connection may close now.
    #[inline]
    fn may_close_more(&self) -> bool {
        self.closing < CLOSING_AT_ONCE || self.unhurried_until == 0
    }

    /// Returns true if no connection is open and nothing is queued.
    pub fn is_idle(&self) -> bool {
        self.counters.open == 0 && self.queue.is_empty()
    }

    /// Sends RST to the peers of all open connections. The counters still report these connections as open, and the
    /// machine must not be used afterwards. Returns false if the sink is full; call again. Does nothing if the
    /// configuration has `reset_on_give_up` off.
    pub fn reset_open_connections(&mut self, sink: &mut impl FrameSink) -> bool {
        if !self.is_tcp || !self.config.reset_on_give_up {
            return true;
        }
        while self.parted < self.table.slab.extent() {
            if sink.lend().is_none() {
                return false;
            }
            self.send_reset(self.parted, sink);
            self.parted += 1;
        }
        true
    }

    /// Drops all connections and counts the open ones as aborted. Sends RST if the sink has room and the configuration
    /// has `reset_on_give_up` on.
    pub fn abort(&mut self, now: u64, sink: &mut impl FrameSink) {
        for id in 0..self.table.slab.extent() {
            match self.table.slab.get(id).state {
                ConnectionState::Free => {}
                ConnectionState::TimeWait => self.remove(now, id),
                _ => self.give_up(now, id, Cause::Aborted, sink),
            }
        }
        self.queue.clear();
        for id in 0..self.table.slab.extent() {
            self.table.slab.get(id).set_queued(false);
        }
    }

    /// Index of the next hop with this address; None if there are too many next hops.
    fn hop(&mut self, mac: &[u8; 6]) -> Option<u32> {
        if self.config.gateway.is_some() || self.hops.first().is_some_and(|hop| hop.0 == *mac) {
            return Some(0);
        }
        self.other_hop(MacAddr(*mac))
    }

    #[cold]
    fn other_hop(&mut self, mac: MacAddr) -> Option<u32> {
        if let Some(known) = self.hop_numbers.get(&mac.0) {
            return Some(*known);
        }
        if self.hops.len() >= MOST_HOPS {
            return None;
        }
        let number = self.hops.len() as u32;
        self.hops.push(mac);
        self.hop_numbers.insert(mac.0, number);
        Some(number)
    }

    /// Addresses and ports of the frames of a connection.
    #[inline]
    fn path(hops: &[MacAddr], local: &Pool, key: &Key, hop: u32) -> Path {
        Path {
            to: match hops {
                [only] => *only,
                all => all.get(hop as usize).copied().unwrap_or(MacAddr::ZERO),
            },
            local: local.at(key.local),
            remote: key.remote,
            local_port: key.local_port(),
            remote_port: key.remote_port(),
        }
    }

    /// Initial sequence number, RFC 6528: hash of the tuple plus a clock of 4 us. [`Machine::remove`] advances the
    /// clock if a connection used numbers faster, so that the next connection of a tuple continues after the last
    /// number.
    #[inline]
    fn first_sequence(&self, now: u64, hash: u64) -> u32 {
        ((hash >> 32) as u32)
            .wrapping_add((now >> 12) as u32)
            .wrapping_add(self.ahead)
    }

    /// Adds a connection to the queue of the next poll.
    #[inline]
    fn enqueue(queue: &mut VecDeque<u32>, conn: &mut Conn, id: u32) {
        if !conn.is_queued() {
            conn.set_queued(true);
            queue.push_back(id);
        }
    }

    /// Ends a connection successfully.
    #[inline]
    fn complete(&mut self, now: u64, id: u32) {
        self.count_cut_off(id);
        self.uncount(id);
        self.counters.completed += 1;
        self.remove(now, id);
    }

    /// Counts a connection that ends successfully before it has sent all its requests.
    #[inline]
    fn count_cut_off(&mut self, id: u32) {
        let left = self.table.slab.get(id).requests;
        let cut = self.client.is_some() && left > 0 && left != ENDLESS;
        self.counters.completed_cut += u64::from(cut);
    }

    fn fail(&mut self, now: u64, id: u32, cause: Cause) {
        self.waited_until(now, id);
        if self.is_tcp && self.client.is_some() {
            self.lose_requests(now, id, cause);
        }
        self.uncount(id);
        let counters = &mut self.counters;
        *match cause {
            Cause::Connect => &mut counters.failed_connect_timeout,
            Cause::Response | Cause::FirstByte => &mut counters.failed_response_timeout,
            Cause::Close => &mut counters.failed_close_timeout,
            Cause::Idle => &mut counters.failed_idle_timeout,
            Cause::Refused => &mut counters.failed_refused,
            Cause::Unreachable => &mut counters.failed_unreachable,
            Cause::Reset => &mut counters.failed_reset,
            Cause::Short => &mut counters.failed_short,
            Cause::Malformed => &mut counters.failed_malformed,
            Cause::Aborted => &mut counters.failed_aborted,
        } += 1;
        self.remove(now, id);
    }

    /// Fails a connection and resets the peer.
    fn give_up(&mut self, now: u64, id: u32, cause: Cause, sink: &mut impl FrameSink) {
        if self.config.reset_on_give_up && self.is_tcp {
            self.send_reset(id, sink);
        }
        self.fail(now, id, cause);
    }

    #[inline]
    fn remove(&mut self, now: u64, id: u32) {
        if !self.is_tcp {
            self.forget_requests(id);
        }
        self.wheel.unlink(&mut self.table.slab, id);
        let conn = self.table.slab.get(id);
        self.side_records.give_back(&mut conn.side_record);
        self.half_open -= u32::from(conn.state == ConnectionState::SynReceived);
        conn.state = ConnectionState::Free;
        if self.flow.owner == id {
            self.flow.owner = NONE;
        }
        if !self.partial.is_empty() {
            self.partial.retain(|(of, _)| *of != id);
        }
        let conn = self.table.slab.get(id);
        let (key, last) = (conn.key, conn.next_seq);
        let hash = self.table.hash(&key);
        if self.is_tcp {
            let next = self.first_sequence(now, hash);
            if !before(last, next) {
                self.ahead = self.ahead.wrapping_add(last.wrapping_sub(next) + 1);
            }
        }
        self.table.remove(id, hash);
    }
}

/// Adds a period to a time; saturates.
#[inline]
fn after(start: u64, period: u64) -> u64 {
    start.saturating_add(period)
}

/// Returns true if an answer keeps an HTTP/1.0 connection open.
fn grants_keeping(answer: &ServerAnswer) -> bool {
    let ServerAnswer::Message(message) = answer else {
        return false;
    };
    let head = &message.beginning()[..(message.head_len() as usize).min(message.beginning().len())];
    let wanted = b"connection: keep-alive";
    head.windows(wanted.len())
        .any(|word| word.eq_ignore_ascii_case(wanted))
}
