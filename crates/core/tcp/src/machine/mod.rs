//! The machine: what is received, due or asked for becomes frames.

mod ask;
mod client;
mod datagram;
mod icmp_error;
mod output;
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
use crate::config::{Answer, Client, Config, ConfigError, Destinations, Role, Style, Transport};
use crate::conn::{Conn, ENDLESS, Key, State, before};
use crate::counters::Counters;
use crate::message::Message;
use crate::mix::Mix;
use crate::observer::Observer;
use crate::outstanding::{NUMBER_LEN, Outstanding};
use crate::parse::{Check, Checksum, Other, Packet, parse};
use crate::reader::{Reader, Reading};
use crate::routes::Routes;
use crate::script::{Text, leave};
use crate::side_record::SideRecords;
use crate::table::Table;
use crate::timer::{NONE, Wheel};

/// Neighbours that a server without a gateway can tell apart.
const MOST_HOPS: usize = 1 << 16;
/// Connections that close at a time, while the end takes its time.
const CLOSING_AT_ONCE: u64 = 512;
/// The least that a retransmission waits beyond the round trip, in ns: what kernels have, because a
/// receiver may take that long to acknowledge.
const LEAST_TIMEOUT: u64 = 200_000_000;
/// Bytes are kept in blocks of at least so many.
const LEAST_BLOCK: usize = 2048;

pub use ask::Late;
pub use icmp_error::IcmpNews;

/// Whether a frame was for the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// It was dealt with and counted.
    Taken,
    /// It is of another protocol or for another address: for the neighbour logic, say.
    NotOurs,
}

/// A client or a server of many connections.
///
/// Call [`Machine::receive`] for every frame; after each batch, and no later than
/// [`Machine::next_due`], [`Machine::poll`]; a client opens connections by [`Machine::launch`]. At the
/// end [`Machine::finish`], go on until [`Machine::is_idle`], and [`Machine::abort`] what is left.
/// All take the time in ns; it must not go back.
#[derive(Debug)]
pub struct Machine<O = ()> {
    config: Config,
    observer: O,
    counters: Counters,
    table: Table,
    upcoming: Upcoming,
    wheel: Wheel,
    builder: Builder,
    reader: Reader,
    side_records: SideRecords,
    /// Connections with something to send at the next poll.
    queue: VecDeque<u32>,
    hops: Vec<MacAddr>,
    /// Their numbers, where there are several.
    hop_numbers: HashMap<[u8; 6], u32>,
    /// Our addresses by number.
    local: Pool,
    /// The request of a client, the answer of a server.
    text: Message,
    /// The same and those beside it, by number.
    texts: Box<[Text]>,
    /// Which of them a client asks next.
    mix: Mix,
    /// Requests of a client still to be sent.
    left: u64,
    /// A client whose requests differ from each other remembers what each was.
    remembers: bool,
    /// A client with several requests under way on a connection asks again for each answer, not for all.
    slides: bool,
    /// Whether bodies of answers are counted.
    counts_bodies: bool,
    /// Whether they are shown.
    shows_answers: bool,
    /// What a server answers to which path.
    routes: Option<Routes>,
    /// "100 Continue".
    leave: Message,
    /// The least that a retransmission waits beyond the round trip, in ns.
    least_timeout: u64,
    /// A client's share of the configuration, apart from text and addresses.
    client: Option<Client>,
    server: ServerShape,
    is_tcp: bool,
    is_dperf: bool,
    is_http: bool,
    syn_options: [u8; 12],
    /// Those to a peer that offered no window scale.
    unscaled_options: [u8; 8],
    /// A client that waits for no answers.
    floods: bool,
    /// UDP: whether requests tell their numbers.
    numbers: bool,
    /// UDP: where questions of SNMP have their request id, which is their number.
    snmp_id_at: Option<usize>,
    /// UDP: requests of a client without an answer.
    requests: Outstanding,
    /// Sequence numbers given out beyond what the time says.
    ahead: u32,
    finishing: bool,
    sweep: u32,
    /// Up to when requests at intervals were due.
    ended_at: u64,
    /// Whether requests go out only by [`Machine::ask`].
    paced: bool,
    /// Connections that may be asked, with their tickets, and the last ticket given out.
    resting: VecDeque<(u32, u32)>,
    ticket: u32,
    flow: ask::Flow,
    /// Where a flood's packets go in turn.
    destinations: Option<Destinations>,
    /// What every second datagram says.
    alternate: Option<Message>,
    /// The next one is such.
    is_second: bool,
    /// A client's connections that have begun to close.
    closing: u64,
    /// Until then the end takes its time; 0: it does not.
    unhurried_until: u64,
    /// So many are to be closed as they come to rest.
    surplus: u32,
    /// Peers of connections before this one were told of the end.
    parted: u32,
    /// A server's connections whose handshake has not ended.
    half_open: u32,
    /// A range of those who are answered, from the first to the last.
    answered: (Addr, Addr),
    /// Beginnings of PROXY headers, by connection.
    partial: Vec<(u32, Vec<u8>)>,
    /// Time that the frame being received lay unread, ns.
    unread: u64,
    icmp_news: IcmpNews,
    /// Destinations behind a link that takes smaller packets than ours.
    path_mss: icmp_error::PathMss,
}

/// What a server does, without its texts.
#[derive(Clone, Debug)]
struct ServerShape {
    /// Whom it answers; empty: anyone.
    clients: Pool,
    ports: (u16, u16),
    answers: u16,
    echo: bool,
    sink: bool,
    proxy: bool,
    /// The answer says that an HTTP/1.0 connection is kept.
    grants: bool,
    returns_numbers: bool,
}

/// Frames that [`Machine::look_ahead`] takes before [`Machine::fetch_records`] must be called.
pub const LONGEST_LOOK_AHEAD: usize = 64;

/// Index and records of fewer connections are in the caches anyway.
const WORTH_LOOKING_AHEAD: u32 = 1 << 16;

/// The hashes of frames that come next.
#[derive(Debug)]
struct Upcoming {
    hashes: [u64; LONGEST_LOOK_AHEAD],
    used: usize,
}

/// Why a connection failed, and with it the requests that waited for answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// No answer to SYN or SYN-ACK in time.
    Connect,
    /// No complete answer in time.
    Response,
    /// Nothing of an answer in the [shorter time](Config::first_byte_timeout) for that. The counters have it
    /// under the one before.
    FirstByte,
    /// The end was not acknowledged in time.
    Close,
    /// The peer was silent for too long (server).
    Idle,
    /// RST instead of SYN-ACK.
    Refused,
    /// An ICMP message instead of SYN-ACK: the destination cannot be reached.
    Unreachable,
    /// RST in the middle.
    Reset,
    /// The peer closed before its message was complete.
    Short,
    /// What came is no message.
    Malformed,
    /// Given up by us.
    Aborted,
}

impl<O: Observer> Machine<O> {
    /// A machine without connections, which tells times to `observer`.
    ///
    /// # Errors
    /// [`ConfigError`] names the first thing that cannot be.
    pub fn new(mut config: Config, observer: O) -> Result<Self, ConfigError> {
        config.check()?;
        config.mss = config.mss.max(1);
        let empty = || Message::bytes(&[]);
        let no_server = ServerShape {
            clients: Pool::default(),
            ports: (1, 0),
            answers: 1,
            echo: false,
            sink: true,
            proxy: false,
            grants: false,
            returns_numbers: false,
        };
        let (mut local, text, client, server, reading) = match config.role.clone() {
            Role::Client(client) => (
                client.tuples.clients().clone(),
                client.request.clone(),
                Some(client.clone()),
                no_server,
                client.answer,
            ),
            Role::Server(server) => {
                let mut clients = server.clients;
                clients.sort();
                let shape = ServerShape {
                    clients,
                    ports: server.ports,
                    answers: server.answers.unwrap_or(ENDLESS),
                    echo: matches!(server.answer, Answer::Echo),
                    sink: matches!(server.answer, Answer::Sink),
                    proxy: server.proxy,
                    grants: grants_keeping(&server.answer),
                    returns_numbers: server.returns_numbers,
                };
                let text = match server.answer {
                    Answer::Message(message) => message,
                    Answer::Echo | Answer::Sink => empty(),
                };
                (server.addresses, text, None, shape, server.request)
            }
        };
        local.sort();
        let asks = std::mem::take(&mut config.asks);
        let (text, heads) = match asks.first() {
            Some(first) => (first.message.clone(), asks.len() > 1),
            None => (text, false),
        };
        // Of several requests each says by itself whether it is HEAD.
        let beginning = if heads { &[] } else { text.beginning() };
        let reader = Reader::new(reading, client.as_ref().map(|_| beginning));
        let mix = Mix::new(&asks);
        let counts_bodies = !asks.is_empty();
        let routed = std::mem::take(&mut config.routes);
        let routes = Routes::new(&routed);
        let texts = match asks.is_empty() {
            true if !routed.is_empty() => routed
                .into_iter()
                .map(|route| Text::new(route.answer))
                .collect(),
            true => vec![Text::new(text.clone())],
            false => asks.into_iter().map(|ask| Text::new(ask.message)).collect(),
        };
        let is_tcp = config.transport == Transport::Tcp;
        let [mss_high, mss_low] = config.mss.to_be_bytes();
        let floods = client.as_ref().is_some_and(|client| client.flood);
        let outstanding = match &client {
            Some(client) if !is_tcp && !floods => {
                let expected = config
                    .expected
                    .saturating_mul(client.pipeline.max(1).into());
                config.most_outstanding.max(expected)
            }
            _ => 1,
        };
        Ok(Self {
            counters: Counters::default(),
            table: Table::new(config.expected, config.key),
            upcoming: Upcoming {
                hashes: [0; LONGEST_LOOK_AHEAD],
                used: 0,
            },
            wheel: Wheel::new(0),
            builder: Builder::new(
                config.mac,
                config.vlan,
                config.tunnel,
                config.tos,
                config.ttl,
                is_tcp,
            ),
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
            snmp_id_at: match reading {
                Reading::Snmp { id_at } if text.len() >= id_at + 4 => Some(id_at as usize),
                _ => None,
            },
            requests: Outstanding::new(outstanding, config.key),
            text,
            server,
            is_tcp,
            is_dperf: config.style == Style::Dperf,
            is_http: reading == Reading::Http,
            // MSS, NOP, window scale, two NOPs, SACK permitted: RFC 9293 section 3.2, RFC 7323 section
            // 2.2, RFC 2018 section 2.
            syn_options: [
                2,
                4,
                mss_high,
                mss_low,
                1,
                3,
                3,
                config.window_scale,
                1,
                1,
                4,
                2,
            ],
            unscaled_options: [2, 4, mss_high, mss_low, 1, 1, 4, 2],
            remembers: is_tcp
                && (mix.len() > 1
                    || mix.len() == 1
                        && (config.shows_answers
                            || client.as_ref().is_some_and(|c| c.pipeline > 1))),
            shows_answers: is_tcp && counts_bodies && config.shows_answers,
            slides: is_tcp && counts_bodies && client.as_ref().is_some_and(|c| c.pipeline > 1),
            counts_bodies,
            texts: texts.into_boxed_slice(),
            mix,
            left: config.most_requests,
            routes,
            leave: leave(),
            least_timeout: config.retransmission.after.min(LEAST_TIMEOUT),
            ahead: 0,
            finishing: false,
            sweep: 0,
            ended_at: u64::MAX,
            paced: client.as_ref().is_some_and(|client| client.paced),
            resting: VecDeque::new(),
            ticket: 0,
            flow: ask::Flow::new(),
            destinations: client
                .as_ref()
                .and_then(|client| client.destinations.clone()),
            closing: 0,
            unhurried_until: 0,
            surplus: 0,
            parted: 0,
            half_open: 0,
            // No address yet.
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

    /// What was counted so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Who was told of times.
    pub fn observer(&self) -> &O {
        &self.observer
    }

    /// Who was told of times, to empty it at an interval.
    pub fn observer_mut(&mut self) -> &mut O {
        &mut self.observer
    }

    /// How many answers were queued by each of [`Config::routes`].
    pub fn route_answers(&self) -> Vec<u64> {
        let rules = self.routes.iter().flat_map(|routes| &routes.rules);
        rules.map(|rule| rule.answers).collect()
    }

    /// What the machine was made of, but for its texts.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Bytes that connections, their index and the requests that wait for answers take.
    pub fn memory(&self) -> usize {
        self.table.memory() + self.requests.memory()
    }

    /// Connections in the table, those in TIME_WAIT included.
    pub fn held(&self) -> u32 {
        self.table.len()
    }

    /// Whether there are so many connections that looking ahead is worth its time.
    #[inline]
    pub fn is_worth_looking_ahead(&self) -> bool {
        self.table.len() >= WORTH_LOOKING_AHEAD
    }

    /// Notes whose frame will be received soon and asks for its place in the index to be fetched, by `fetch`,
    /// which gets an address and must not wait. [`Machine::fetch_records`] is to follow.
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

    /// Asks for the records of all frames that were looked at ahead.
    #[inline]
    pub fn fetch_records(&mut self, fetch: impl Fn(*const u8)) {
        for hash in &self.upcoming.hashes[..std::mem::take(&mut self.upcoming.used)] {
            self.table.fetch_record(*hash, &fetch);
        }
    }

    /// Sets the time that the next frames lay unread, ns. It is no part of the times that the observer gets.
    #[inline]
    pub fn set_unread(&mut self, ns: u64) {
        self.unread = ns;
    }

    /// Time from `since` until the frame being received came, ns.
    #[inline]
    fn until_came(&self, now: u64, since: u64) -> u64 {
        now.saturating_sub(self.unread).saturating_sub(since)
    }

    /// Takes a frame, without FCS, and answers it.
    #[inline]
    pub fn receive(&mut self, now: u64, frame: &[u8], sink: &mut impl FrameSink) -> Received {
        self.receive_known(now, frame, Checksum::Unknown, sink)
    }

    /// The same, of a frame of whose transport checksum something is known.
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
            Ok(packet) => self.take(now, &packet, sink),
            Err(Other::Foreign) if self.icmp_error(now, frame, sink) => Ok(()),
            Err(other) => Err(other),
        };
        self.received(frame, result)
    }

    #[inline(always)]
    fn received(&mut self, frame: &[u8], result: Result<(), Other>) -> Received {
        match result {
            Ok(()) => Received::Taken,
            Err(other) => self.turned_away(frame, other),
        }
    }

    /// What is to be verified of a frame.
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
        // Whoever found a checksum right looked at the outermost one; whoever left it, left all.
        let inside = match known {
            Checksum::Right => self.check(Checksum::Unknown),
            _ => outside,
        };
        let opened = match self.builder.outer() {
            Some(outer) => outer.open(frame, self.config.vlan, outside),
            None => Err(Other::Foreign),
        };
        let parsed = opened.and_then(|(inner, from)| Ok((parse(inner, None, inside)?, from)));
        let result = match parsed {
            Ok((packet, src_mac)) => self.take(now, &Packet { src_mac, ..packet }, sink),
            Err(other) => Err(other),
        };
        self.received(frame, result)
    }

    // Inlined by force, as the parser is, so that the packet is never put together in memory.
    #[inline(always)]
    fn take(
        &mut self,
        now: u64,
        packet: &Packet<'_>,
        sink: &mut impl FrameSink,
    ) -> Result<(), Other> {
        let Some(local) = self.local.position(packet.dst) else {
            return Err(Other::Foreign);
        };
        if !self.server.clients.is_empty() && self.server.clients.position(packet.src).is_none() {
            return Err(Other::Foreign);
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
    fn turned_away(&mut self, frame: &[u8], other: Other) -> Received {
        match other {
            Other::Foreign => {
                self.counters.rx_foreign += 1;
                self.counters.rx_foreign_octets += frame.len() as u64;
            }
            Other::Malformed => self.counters.rx_malformed += 1,
            Other::Corrupt => self.counters.rx_bad_checksum += 1,
            Other::Fragment => self.counters.rx_fragments += 1,
        }
        if other == Other::Foreign {
            Received::NotOurs
        } else {
            Received::Taken
        }
    }

    /// Does what is due, and sends what waited for room or for the end of a batch.
    pub fn poll(&mut self, now: u64, sink: &mut impl FrameSink) {
        self.poll_heard(now, now, sink);
    }

    /// The same for a caller who has not read yet all that has come: at `heard` there was nothing left
    /// to be read. Answers that came by then are known, so only requests whose time was over then are
    /// lost.
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
            if conn.state == State::Free {
                continue;
            }
            self.resume(now, id, sink);
            if self.table.slab.get(id).is_queued() {
                // No room; it is at the back of the queue now, and so are the others' turns.
                break;
            }
        }
    }

    /// No later than then [`Machine::poll`] has something to do; 0 means now, None: never, unless
    /// something is received or launched.
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

    /// Begins the end: no connection sends another request, and those between requests are closed
    /// in the polls that follow. Answers are still waited for.
    pub fn finish(&mut self) {
        self.finish_by(0);
    }

    /// The same, but until `hurry_at` only so many connections close at a time that a million of them
    /// do not end in one burst.
    pub fn finish_by(&mut self, hurry_at: u64) {
        self.finish_as_of(u64::MAX, hurry_at);
    }

    /// The same for a caller who may be late: the end was at `ended_at`, and what was due by then is
    /// counted as unsent.
    pub fn finish_as_of(&mut self, ended_at: u64, hurry_at: u64) {
        self.ended_at = ended_at;
        self.finishing = true;
        self.sweep = 0;
        self.unhurried_until = hurry_at;
    }

    /// Whether the end may close another connection now.
    #[inline]
    fn may_close_more(&self) -> bool {
        self.closing < CLOSING_AT_ONCE || self.unhurried_until == 0
    }

    /// Whether no connection is open and nothing waits to be sent.
    pub fn is_idle(&self) -> bool {
        self.counters.open == 0 && self.queue.is_empty()
    }

    /// Tells the peers of connections that are still open, by RST, that nobody is there any more; they
    /// stay open in the counters, and nothing else is to be done with the machine. False if the sink has
    /// no room for all: call it again. Without effect where connections are given up in silence.
    pub fn part(&mut self, sink: &mut impl FrameSink) -> bool {
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

    /// Forgets all connections. Those open are counted as aborted, and told so by RST if the sink has
    /// room and the configuration wants it.
    pub fn abort(&mut self, now: u64, sink: &mut impl FrameSink) {
        for id in 0..self.table.slab.extent() {
            match self.table.slab.get(id).state {
                State::Free => {}
                State::TimeWait => self.remove(now, id),
                _ => self.give_up(now, id, Cause::Aborted, sink),
            }
        }
        self.queue.clear();
        for id in 0..self.table.slab.extent() {
            self.table.slab.get(id).set_queued(false);
        }
    }

    /// The number of the next hop with this address; none if there are too many.
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

    /// Where the frames of a connection go.
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

    /// A first sequence number: RFC 6528, a hash of the tuple plus a clock of 4 us. The clock is put
    /// forward where a connection used numbers up faster ([`Machine::remove`]), so that a tuple used
    /// again goes on after its last number.
    #[inline]
    fn first_sequence(&self, now: u64, hash: u64) -> u32 {
        ((hash >> 32) as u32)
            .wrapping_add((now >> 12) as u32)
            .wrapping_add(self.ahead)
    }

    /// Puts a connection into the queue of the next poll.
    #[inline]
    fn enqueue(queue: &mut VecDeque<u32>, conn: &mut Conn, id: u32) {
        if !conn.is_queued() {
            conn.set_queued(true);
            queue.push_back(id);
        }
    }

    /// Ends a connection well.
    #[inline]
    fn complete(&mut self, now: u64, id: u32) {
        self.note_cut(id);
        self.uncount(id);
        self.counters.completed += 1;
        self.remove(now, id);
    }

    /// A connection that ends well may have had more to ask.
    #[inline]
    fn note_cut(&mut self, id: u32) {
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

    /// Fails a connection and tells the peer.
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
        self.half_open -= u32::from(conn.state == State::SynReceived);
        conn.state = State::Free;
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

/// A time after another, without end if it would be beyond all times.
#[inline]
fn after(start: u64, period: u64) -> u64 {
    start.saturating_add(period)
}

/// Whether an answer says that a connection of HTTP/1.0 is kept after it.
fn grants_keeping(answer: &Answer) -> bool {
    let Answer::Message(message) = answer else {
        return false;
    };
    let head = &message.beginning()[..(message.head_len() as usize).min(message.beginning().len())];
    let wanted = b"connection: keep-alive";
    head.windows(wanted.len())
        .any(|word| word.eq_ignore_ascii_case(wanted))
}
