//! Comparison of clocks between hosts by UDP, without the broker.
//!
//! An exchange is a request and an answer of [`LENGTH`] bytes each, signed with HMAC-SHA-256 (RFC 2104). The key belongs
//! to the run and to the answering host: `open` brings the key of the run, and only hosts of the run have it. A request
//! that is forged, repeated or of another run gets no answer.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use ring::{
    hmac,
    rand::{SecureRandom as _, SystemRandom},
};
use wb_fleet_core::{
    clock::{EXCHANGES, Exchange, SenderLine, same_clock},
    message::ClockSource,
};
use wb_machine::{clock::wall_ns, stamped_udp::StampedUdp};
use wb_model::peer::PairClock;

/// Length of every request and of every answer in bytes.
const LENGTH: usize = 72;
/// Length without the signature in bytes.
const SIGNED: usize = 40;
/// First bytes of a request and of an answer.
const REQUEST: [u8; 8] = *b"wbclkrq1";
const ANSWER: [u8; 8] = *b"wbclkan1";
/// Largest number of clients of a run that get answers.
const MOST_CLIENTS: usize = 4096;
/// Time that an answer may take.
const PATIENCE: Duration = Duration::from_millis(300);
/// Time for the exchanges of one estimate; a long way has fewer of them.
const GROUP: Duration = Duration::from_millis(500);
/// Number of exchanges without an answer, one after another, after which an estimate ends.
const MOST_SILENT: usize = 2;
/// Number of addresses of a host that are tried.
const MOST_ADDRESSES: usize = 3;
/// Time between two checks whether a thread has to end.
const CHECK: Duration = Duration::from_millis(250);
/// Time between two corrections of the offset that the receivers use, in ns.
const CORRECTION_NS: u64 = 20_000_000;
/// Time in which the first estimate of each sender must be there.
const FIRST: Duration = Duration::from_secs(2);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A request or an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Message {
    /// Random number of the client.
    client: u64,
    /// Number of the request; it increases with every request of a client.
    number: u64,
    /// Arrival of the request, by the wall clock of the answering host; 0 in a request.
    received_ns: u64,
    /// Departure of the answer, by the same clock; 0 in a request.
    sent_ns: u64,
}

impl Message {
    fn write(&self, kind: [u8; 8], key: &hmac::Key) -> [u8; LENGTH] {
        let mut bytes = [0; LENGTH];
        bytes[..8].copy_from_slice(&kind);
        let words = [self.client, self.number, self.received_ns, self.sent_ns];
        for (place, word) in bytes[8..SIGNED].chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_be_bytes());
        }
        let signature = hmac::sign(key, &bytes[..SIGNED]);
        bytes[SIGNED..].copy_from_slice(signature.as_ref());
        bytes
    }

    /// Reads a message. `None` if it is of another kind or length, or its signature is wrong.
    fn read(bytes: &[u8], kind: [u8; 8], key: &hmac::Key) -> Option<Self> {
        if bytes.len() != LENGTH || !bytes.starts_with(&kind) {
            return None;
        }
        let (signed, signature) = bytes.split_at(SIGNED);
        hmac::verify(key, signed, signature).ok()?;
        let mut words = signed[8..].chunks_exact(8).map(|word| {
            let word: [u8; 8] = word.try_into().unwrap_or_default();
            u64::from_be_bytes(word)
        });
        let mut next = || words.next().unwrap_or_default();
        Some(Self {
            client: next(),
            number: next(),
            received_ns: next(),
            sent_ns: next(),
        })
    }
}

/// Key of the exchanges with a host, so that no other host of the run can answer for it.
fn key_of(run: &str, host: &str) -> hmac::Key {
    let run = hmac::Key::new(hmac::HMAC_SHA256, run.as_bytes());
    let own = hmac::sign(&run, host.as_bytes());
    hmac::Key::new(hmac::HMAC_SHA256, own.as_ref())
}

/// Answers of a host.
#[derive(Default)]
struct Responder {
    /// Key of the run; without a run nothing is answered.
    key: Option<hmac::Key>,
    /// Last request of each client.
    last: BTreeMap<u64, u64>,
}

impl Responder {
    fn answer(&mut self, bytes: &[u8], received_ns: u64) -> Option<[u8; LENGTH]> {
        let key = self.key.as_ref()?;
        let request = Message::read(bytes, REQUEST, key)?;
        let is_next = match self.last.get(&request.client) {
            Some(last) => request.number > *last,
            None => self.last.len() < MOST_CLIENTS,
        };
        if !is_next {
            return None;
        }
        self.last.insert(request.client, request.number);
        let answer = Message {
            received_ns,
            sent_ns: wall_ns(),
            ..request
        };
        Some(answer.write(ANSWER, key))
    }
}

/// Answers exchanges of stamps at a UDP port. Its thread ends soon after the value.
pub(crate) struct ClockServer {
    host: String,
    port: u16,
    responder: Arc<Mutex<Responder>>,
    is_over: Arc<AtomicBool>,
}

impl ClockServer {
    /// Opens the port at all addresses.
    ///
    /// # Errors
    /// If the port is in use.
    pub(crate) fn open(host: &str, port: u16) -> io::Result<Self> {
        let socket = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, port))
            .or_else(|_| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port)))?;
        let socket = StampedUdp::new(socket, CHECK)?;
        let responder = Arc::new(Mutex::new(Responder::default()));
        let is_over = Arc::new(AtomicBool::new(false));
        let own = Self {
            host: host.to_owned(),
            port: socket.socket().local_addr()?.port(),
            responder: Arc::clone(&responder),
            is_over: Arc::clone(&is_over),
        };
        let thread = thread::Builder::new().name("wb-clock".to_owned());
        thread.spawn(move || {
            let mut buffer = [0; LENGTH + 1];
            while !is_over.load(Ordering::Relaxed) {
                let Ok((len, from, received_ns)) = socket.receive(&mut buffer) else {
                    continue;
                };
                let answer = lock(&responder).answer(&buffer[..len], received_ns);
                if let Some(answer) = answer {
                    // A lost answer is an exchange without a result.
                    let _ = socket.socket().send_to(&answer, from);
                }
            }
        })?;
        Ok(own)
    }

    /// The port.
    pub(crate) const fn port(&self) -> u16 {
        self.port
    }

    /// Answers the hosts of a run, which have its key. Without a key it answers no request.
    pub(crate) fn answer_run(&self, key: Option<&str>) {
        let key = key.filter(|key| !key.is_empty());
        *lock(&self.responder) = Responder {
            key: key.map(|key| key_of(key, &self.host)),
            last: BTreeMap::new(),
        };
    }
}

impl Drop for ClockServer {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

/// Addresses at which other hosts reach this host: the one from which it reaches the broker, or all if that is loopback.
pub(crate) fn addresses(servers: &[String], port: u16) -> Vec<String> {
    let to_broker = |server: &String| {
        let place = server.rsplit('/').next()?;
        let connected = |any: IpAddr| {
            let socket = UdpSocket::bind((any, 0))?;
            socket.connect(place)?;
            socket.local_addr()
        };
        let own = connected(Ipv4Addr::UNSPECIFIED.into())
            .or_else(|_| connected(Ipv6Addr::UNSPECIFIED.into()));
        Some(own.ok()?.ip().to_canonical())
    };
    let mut all: BTreeSet<IpAddr> = servers.iter().filter_map(to_broker).collect();
    all.retain(|address| !address.is_loopback());
    if all.is_empty() {
        all.extend(crate::local::global_addresses().unwrap_or_default());
    }
    let all = all.into_iter();
    all.map(|address| SocketAddr::new(address, port).to_string())
        .collect()
}

/// Exchanges of stamps with one host.
struct Client {
    socket: StampedUdp,
    key: hmac::Key,
    client: u64,
    number: u64,
}

impl Client {
    fn connect(address: &str, key: &hmac::Key) -> io::Result<Self> {
        let address: SocketAddr = address.parse().map_err(io::Error::other)?;
        let any: SocketAddr = match address {
            SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
            SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
        };
        let socket = UdpSocket::bind(any)?;
        socket.connect(address)?;
        let mut random = [0; 8];
        let filled = SystemRandom::new().fill(&mut random);
        filled.map_err(|_| io::Error::other("the system has no random bytes"))?;
        Ok(Self {
            socket: StampedUdp::new(socket, PATIENCE)?,
            key: key.clone(),
            client: u64::from_be_bytes(random),
            number: 0,
        })
    }

    /// Makes the exchanges of one estimate. Fewer if answers are missing.
    fn exchanges(&mut self) -> Vec<Exchange> {
        let mut all = Vec::with_capacity(EXCHANGES);
        let (begin, mut silent) = (Instant::now(), 0);
        while all.len() < EXCHANGES && silent < MOST_SILENT && begin.elapsed() < GROUP {
            match self.exchange() {
                Some(exchange) => {
                    all.push(exchange);
                    silent = 0;
                }
                None => silent += 1,
            }
        }
        all
    }

    fn exchange(&mut self) -> Option<Exchange> {
        self.number += 1;
        let request = Message {
            client: self.client,
            number: self.number,
            ..Message::default()
        };
        let request = request.write(REQUEST, &self.key);
        let until = Instant::now() + PATIENCE;
        let sent_ns = wall_ns();
        self.socket.socket().send(&request).ok()?;
        let mut buffer = [0; LENGTH + 1];
        while Instant::now() < until {
            let (len, _, received_ns) = self.socket.receive(&mut buffer).ok()?;
            let answer = Message::read(&buffer[..len], ANSWER, &self.key);
            let is_own =
                |answer: &Message| (answer.client, answer.number) == (self.client, self.number);
            if let Some(answer) = answer.filter(is_own) {
                return Some(Exchange {
                    sent_ns,
                    far_received_ns: answer.received_ns,
                    far_sent_ns: answer.sent_ns,
                    received_ns,
                });
            }
        }
        None
    }
}

/// Takes the clocks of a sender and this host, each time they are computed.
pub(crate) type SetClock = dyn Fn(PairClock) + Send + Sync;

/// Comparison of the own clock with the clocks of all hosts that send to this host. Its threads end with the value.
pub(crate) struct Comparisons {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    own_host: String,
    senders: Mutex<BTreeMap<String, Sender>>,
    news: Condvar,
    is_over: Mutex<bool>,
    over: Condvar,
    /// Receives the clocks once the run starts.
    set: Mutex<Option<Arc<SetClock>>>,
}

/// State of the comparison with a sender.
enum Sender {
    /// Neither an estimate nor a failure.
    New,
    /// The sender does not answer.
    Silent,
    /// Both hosts have one clock.
    Same,
    Compared(Arc<Mutex<SenderLine>>),
}

impl Comparisons {
    /// Begins to compare clocks. `own_boot` is the name of the start of this kernel.
    pub(crate) fn begin(own_host: &str, own_boot: &str, key: &str, all: &[ClockSource]) -> Self {
        let state = |source: &ClockSource| {
            let is_same = !own_boot.is_empty() && source.boot == own_boot;
            let state = match (is_same, source.udp.is_empty() || key.is_empty()) {
                (true, _) => Sender::Same,
                (false, true) => Sender::Silent,
                (false, false) => Sender::New,
            };
            (source.host.clone(), state)
        };
        let shared = Arc::new(Shared {
            own_host: own_host.to_owned(),
            senders: Mutex::new(all.iter().map(state).collect()),
            news: Condvar::new(),
            is_over: Mutex::new(false),
            over: Condvar::new(),
            set: Mutex::new(None),
        });
        let mut threads = Vec::new();
        for source in all {
            if !matches!(lock(&shared.senders).get(&source.host), Some(Sender::New)) {
                continue;
            }
            let (of_thread, source, key) = (
                Arc::clone(&shared),
                source.clone(),
                key_of(key, &source.host),
            );
            let thread = thread::Builder::new().name("wb-clock".to_owned());
            let host = source.host.clone();
            match thread.spawn(move || of_thread.compare(&source, &key)) {
                Ok(thread) => threads.push(thread),
                Err(_) => shared.put(&host, Sender::Silent),
            }
        }
        Self { shared, threads }
    }

    /// Clocks of the senders that answer, once each has answered or failed.
    pub(crate) fn first(&self) -> Vec<PairClock> {
        let senders = lock(&self.shared.senders);
        let is_new = |senders: &mut BTreeMap<String, Sender>| {
            senders.values().any(|s| matches!(s, Sender::New))
        };
        let waited = self.shared.news.wait_timeout_while(senders, FIRST, is_new);
        let (mut senders, _) = waited.unwrap_or_else(PoisonError::into_inner);
        for sender in senders.values_mut() {
            if matches!(sender, Sender::New) {
                *sender = Sender::Silent;
            }
        }
        let clocks = senders.iter();
        clocks
            .filter_map(|(host, sender)| sender.pair(host, &self.shared.own_host))
            .collect()
    }

    /// Passes on all clocks now, and again each time they are computed.
    pub(crate) fn follow(&self, set: Arc<SetClock>) {
        for (host, sender) in &*lock(&self.shared.senders) {
            if let Some(pair) = sender.pair(host, &self.shared.own_host) {
                set(pair);
            }
        }
        *lock(&self.shared.set) = Some(set);
    }
}

impl Drop for Comparisons {
    fn drop(&mut self) {
        *lock(&self.shared.is_over) = true;
        self.shared.over.notify_all();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl Sender {
    fn pair(&self, host: &str, own_host: &str) -> Option<PairClock> {
        match self {
            Self::New | Self::Silent => None,
            Self::Same => Some(same_clock(host, own_host)),
            Self::Compared(line) => lock(line).pair(wall_ns(), CORRECTION_NS),
        }
    }
}

impl Shared {
    fn put(&self, host: &str, state: Sender) {
        lock(&self.senders).insert(host.to_owned(), state);
        self.news.notify_all();
    }

    /// Waits. Returns false at the end of the comparison.
    fn wait(&self, time: Duration) -> bool {
        let waited = self
            .over
            .wait_timeout_while(lock(&self.is_over), time, |over| !*over);
        !*waited.unwrap_or_else(PoisonError::into_inner).0
    }

    fn compare(&self, source: &ClockSource, key: &hmac::Key) {
        let mut line = SenderLine::new(&*source.host, &*self.own_host);
        let clients = source.udp.iter().take(MOST_ADDRESSES);
        let mut clients = clients.filter_map(|address| Client::connect(address, key).ok());
        let first = clients.find_map(|mut client| {
            let has_answered = line.add(&client.exchanges());
            has_answered.then_some(client)
        });
        let Some(mut client) = first else {
            return self.put(&source.host, Sender::Silent);
        };
        let line = Arc::new(Mutex::new(line));
        {
            let mut senders = lock(&self.senders);
            // Too late: the clocks are compared over the broker.
            if !matches!(senders.get(&source.host), Some(Sender::New)) {
                return;
            }
            senders.insert(source.host.clone(), Sender::Compared(Arc::clone(&line)));
        }
        self.news.notify_all();
        let mut measured = Instant::now();
        while self.wait(Duration::from_nanos(CORRECTION_NS)) {
            if measured.elapsed() >= Duration::from_nanos(lock(&line).wait_ns()) {
                let exchanges = client.exchanges();
                lock(&line).add(&exchanges);
                measured = Instant::now();
            }
            if let Some(set) = lock(&self.set).clone()
                && let Some(pair) = lock(&line).pair(wall_ns(), CORRECTION_NS)
            {
                set(pair);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: &str = "0011223344556677";

    fn request(number: u64, key: &hmac::Key) -> [u8; LENGTH] {
        let request = Message {
            client: 7,
            number,
            ..Message::default()
        };
        request.write(REQUEST, key)
    }

    #[test]
    fn only_a_new_request_with_the_key_of_the_run_and_the_host_is_answered() {
        let key = key_of(RUN, "h1");
        let mut responder = Responder::default();
        assert_eq!(responder.answer(&request(1, &key), 5), None, "no run");
        responder.key = Some(key.clone());
        let answer = responder.answer(&request(1, &key), 5).unwrap();
        let read = Message::read(&answer, ANSWER, &key).unwrap();
        assert_eq!((read.client, read.number, read.received_ns), (7, 1, 5));
        assert!(read.sent_ns > 0);
        let refused = |responder: &mut Responder, bytes: &[u8], why: &str| {
            assert_eq!(responder.answer(bytes, 5), None, "{why}");
        };
        refused(&mut responder, &request(1, &key), "repeated");
        refused(&mut responder, &answer, "an answer");
        for (why, wrong) in [
            ("another run", key_of("other", "h1")),
            ("another host", key_of(RUN, "h2")),
        ] {
            refused(&mut responder, &request(2, &wrong), why);
        }
        let right = request(2, &key);
        for at in 0..LENGTH {
            let mut forged = right;
            forged[at] ^= 1;
            refused(&mut responder, &forged, "forged");
        }
        refused(&mut responder, &right[..LENGTH - 1], "too short");
        refused(&mut responder, &[&right[..], &[0]].concat(), "too long");
        assert!(responder.answer(&right, 5).is_some());
        refused(&mut responder, &request(2, &key), "repeated");
    }

    #[test]
    fn clients_of_a_run_are_limited() {
        let key = key_of(RUN, "h1");
        let mut responder = Responder {
            key: Some(key.clone()),
            ..Responder::default()
        };
        let mut answered = 0;
        for client in 0..MOST_CLIENTS as u64 + 5 {
            let request = Message {
                client,
                number: 1,
                ..Message::default()
            };
            let answer = responder.answer(&request.write(REQUEST, &key), 5);
            answered += usize::from(answer.is_some());
        }
        assert_eq!(answered, MOST_CLIENTS);
    }

    fn source(host: &str, server: &ClockServer) -> ClockSource {
        ClockSource {
            host: host.to_owned(),
            boot: String::new(),
            udp: vec![format!("127.0.0.1:{}", server.port())],
        }
    }

    #[test]
    fn two_hosts_compare_their_clocks() {
        let server = ClockServer::open("h1", 0).unwrap();
        server.answer_run(Some(RUN));
        let comparisons = Comparisons::begin("h2", "", RUN, &[source("h1", &server)]);
        let [first] = &comparisons.first()[..] else {
            panic!("no clock")
        };
        assert_eq!(
            (&*first.from, &*first.to, &*first.method),
            ("h1", "h2", "udp")
        );
        // Both read one clock.
        assert!(
            first.offset_end_ns.unsigned_abs() <= first.error_ns,
            "{first:?}"
        );
        assert!(first.exchanges > 0, "{first:?}");
        let (clocks, arrivals) = std::sync::mpsc::channel();
        let clocks = Mutex::new(clocks);
        comparisons.follow(Arc::new(move |pair| {
            let _ = lock(&clocks).send(pair);
        }));
        let mut later = arrivals
            .iter()
            .filter(|pair| pair.exchanges > first.exchanges);
        let later = later.next().unwrap();
        assert!(
            later.offset_end_ns.unsigned_abs() <= later.error_ns,
            "{later:?}"
        );
        drop(comparisons);
        assert!(arrivals.iter().all(|pair| pair.method == "udp"));
    }

    #[test]
    fn hosts_that_do_not_answer_have_no_clock() {
        let server = ClockServer::open("h1", 0).unwrap();
        // No run is open at the first one, and the second one does not exist.
        let gone = ClockServer::open("h3", 0).unwrap();
        let mut all = vec![source("h1", &server), source("h3", &gone)];
        drop(gone);
        all.push(ClockSource {
            host: "h4".to_owned(),
            boot: "b1".to_owned(),
            udp: Vec::new(),
        });
        let comparisons = Comparisons::begin("h2", "b1", RUN, &all);
        assert_eq!(comparisons.first(), [same_clock("h4", "h2")]);
        // After a run the key has no meaning.
        server.answer_run(Some(RUN));
        server.answer_run(None);
        let comparisons = Comparisons::begin("h2", "", RUN, &all[..1]);
        assert_eq!(comparisons.first(), []);
    }
}
