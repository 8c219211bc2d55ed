//! ARP and neighbour discovery of a port: finds neighbours, answers requests for the port's addresses, and pings.
//!
//! Runs alongside the workers on a dedicated socket that sees only ARP, neighbour discovery and echo, so the hot loops
//! never inspect such frames.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use wb_open::StartError;
use wb_packet::ControlSocket;
use wb_wire::{
    AddrSet, Echo, Ethernet, IcmpVersion, Ipv4, Ipv6, MacAddr, NeighbourResponder, NetworkHeader,
    Stack, TransportHeader, Vlan, arp_request, ethertype, neighbour_solicitation, protocol,
};

use crate::{guard::Guard, signals::Signals};

/// Time that neighbours have to answer.
const RESOLVE_TIMEOUT: Duration = Duration::from_millis(1200);
/// Time between two requests for the same address.
const RETRY: Duration = Duration::from_millis(100);
/// Time to wait for a better answer after the first one.
const BETTER: Duration = Duration::from_millis(40);
/// Maximum number of requests that are sent before answers are read: more answers than the socket holds would be lost.
const AT_ONCE: usize = 64;
/// Maximum number of destinations of a path that are pinged before a run, and that are pinged at once.
const MAX_PINGS: u128 = 256;
/// Identifier of the echo requests that this module sends.
const PING_ID: u16 = 0x7762;

/// Request for a next hop: addresses on one link, within one set of VLAN tags.
#[derive(Clone, Debug)]
pub struct Question {
    /// Our address, which sends the request.
    pub source: IpAddr,
    /// Possible next hops, best first.
    pub targets: Vec<IpAddr>,
    /// VLAN tags of the requests.
    pub vlans: Vec<Vlan>,
}

/// Answers on one link until it is dropped.
pub struct ResponderThread {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for ResponderThread {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Starts answering for `addresses` at `mac`.
pub fn start_responder(
    mut socket: ControlSocket,
    mac: [u8; 6],
    addresses: AddrSet,
    guard: Guard,
    name: &str,
) -> Result<ResponderThread, StartError> {
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    let responder = NeighbourResponder {
        mac: MacAddr(mac),
        addresses,
    };
    let thread = std::thread::Builder::new()
        .name(format!("wb-arp-{name}"))
        .spawn(move || {
            let mut out = [0; 1518];
            let mut answers: Vec<Vec<u8>> = Vec::new();
            while !stopped.load(Ordering::Relaxed) {
                let seen = socket.receive(Duration::from_millis(50), |frame| {
                    // A test frame may be an echo request; it is measured, not answered.
                    if wb_wire::find_tag(frame.bytes).is_none()
                        && let Some(len) = responder.answer(frame.bytes, &mut out)
                        && guard.may_answer(&out[..len])
                    {
                        answers.push(out[..len].to_vec());
                    }
                });
                for answer in answers.drain(..) {
                    // A neighbour repeats its request if this answer is lost.
                    let _ = socket.send(&answer);
                }
                if seen.is_err() {
                    // The link is gone or down. The workers report it; this loop must only not spin.
                    std::thread::sleep(Duration::from_millis(50));
                }
            }
        })
        .map_err(|cause| StartError::System {
            operation: "start a thread",
            cause,
        })?;
    Ok(ResponderThread {
        stop,
        thread: Some(thread),
    })
}

fn ask(socket: &mut ControlSocket, mac: [u8; 6], question: &Question, target: IpAddr) {
    let mut out = [0; 256];
    let len = match (question.source, target) {
        (IpAddr::V4(ours), IpAddr::V4(theirs)) => {
            arp_request(MacAddr(mac), ours, theirs, &question.vlans, &mut out)
        }
        (IpAddr::V6(ours), IpAddr::V6(theirs)) => {
            neighbour_solicitation(MacAddr(mac), ours, theirs, &question.vlans, &mut out)
        }
        _ => None,
    };
    if let Some(len) = len {
        let _ = socket.send(&out[..len]);
    }
}

/// Hardware addresses by IP address.
pub type NeighbourTable = BTreeMap<IpAddr, [u8; 6]>;

/// Answers to a request.
#[derive(Default)]
struct Answers {
    known: NeighbourTable,
    first: Option<Instant>,
}

impl Answers {
    /// Index of the best target that answered.
    fn best(&self, question: &Question) -> Option<usize> {
        let mut targets = question.targets.iter();
        targets.position(|target| self.known.contains_key(target))
    }

    /// Returns true if the best target answered, or if the wait for a better answer is over.
    fn is_settled(&self, question: &Question) -> bool {
        let waited = self.first.is_some_and(|t| t.elapsed() >= BETTER);
        match self.best(question) {
            Some(0) => true,
            best => best.is_some() && waited,
        }
    }
}

/// Sends all requests at once. Returns the best answer to each request, and every target that answered. Stops early at
/// a signal.
pub fn resolve(
    socket: &mut ControlSocket,
    mac: [u8; 6],
    questions: &[Question],
    signals: &Signals,
) -> Vec<(Option<[u8; 6]>, NeighbourTable)> {
    let responder = NeighbourResponder {
        mac: MacAddr(mac),
        addresses: AddrSet::default(),
    };
    let mut all: Vec<Answers> = questions.iter().map(|_| Answers::default()).collect();
    // Many requests have the same router among their targets.
    let mut asking: BTreeMap<(Vec<u16>, IpAddr), Vec<usize>> = BTreeMap::new();
    for (place, question) in questions.iter().enumerate() {
        for target in &question.targets {
            let key = (ids_of(&question.vlans), *target);
            asking.entry(key).or_default().push(place);
        }
    }
    let hear = |socket: &mut ControlSocket, all: &mut [Answers], timeout| {
        let _ = socket.receive(timeout, |frame| {
            let Some((address, mac)) = responder.learn(frame.bytes) else {
                return;
            };
            for place in asking
                .get(&(vlan_ids(frame.bytes), address))
                .into_iter()
                .flatten()
            {
                let answers = &mut all[*place];
                answers.known.insert(address, mac.0);
                answers.first.get_or_insert_with(Instant::now);
            }
        });
    };
    let begin = Instant::now();
    let mut next_ask = begin;
    loop {
        let open = |all: &[Answers], place: &usize| !all[*place].is_settled(&questions[*place]);
        let is_over = (0..all.len()).all(|place| !open(&all, &place));
        if is_over || begin.elapsed() >= RESOLVE_TIMEOUT || signals.received().is_some() {
            break;
        }
        if Instant::now() >= next_ask {
            for (n, ((_, target), places)) in asking.iter().enumerate() {
                let silent =
                    |place: &&usize| open(&all, place) && !all[**place].known.contains_key(target);
                if let Some(place) = places.iter().find(silent) {
                    ask(socket, mac, &questions[*place], *target);
                }
                if n % AT_ONCE == AT_ONCE - 1 {
                    hear(socket, &mut all, Duration::ZERO);
                }
            }
            next_ask = Instant::now() + RETRY;
        }
        hear(socket, &mut all, Duration::from_millis(5));
    }
    let answers = all.into_iter().zip(questions);
    answers
        .map(|(answers, question)| {
            let best = answers.best(question);
            let found = best.map(|place| answers.known[&question.targets[place]]);
            (found, answers.known)
        })
        .collect()
}

/// VLAN ids of tags, without priority tags.
fn ids_of(vlans: &[Vlan]) -> Vec<u16> {
    vlans.iter().map(|v| v.id).filter(|id| *id != 0).collect()
}

/// VLAN ids of a frame, without priority tags.
fn vlan_ids(frame: &[u8]) -> Vec<u16> {
    let mut vlans = Vec::new();
    if let Some((_, mut kind, mut rest)) = Ethernet::parse(frame) {
        while Vlan::is_tpid(kind)
            && let Some((vlan, inner, after)) = Vlan::parse(kind, rest)
        {
            vlans.push(vlan);
            (kind, rest) = (inner, after);
        }
    }
    ids_of(&vlans)
}

/// Hardware address of a multicast address, which needs no request: RFC 1112 section 6.4, RFC 2464 section 7.
pub fn multicast_mac(address: IpAddr) -> Option<[u8; 6]> {
    match address {
        IpAddr::V4(a) if a.is_broadcast() => Some([0xff; 6]),
        IpAddr::V4(a) if a.is_multicast() => {
            let [_, b, c, d] = a.octets();
            Some([0x01, 0x00, 0x5e, b & 0x7f, c, d])
        }
        IpAddr::V6(a) if a.is_multicast() => Some(wb_wire::multicast_mac(a).0),
        _ => None,
    }
}

/// Customary router address of a network: host 1 of the /24 or /64 that contains `source`.
pub fn customary_router(source: IpAddr) -> IpAddr {
    match source {
        IpAddr::V4(a) => {
            let [x, y, z, _] = a.octets();
            IpAddr::V4(Ipv4Addr::new(x, y, z, 1))
        }
        IpAddr::V6(a) => {
            let s = a.segments();
            IpAddr::V6(Ipv6Addr::new(s[0], s[1], s[2], s[3], 0, 0, 0, 1))
        }
    }
}

/// Echo requests through the device, so that the device has resolved its neighbours before the first test frame (RFC
/// 2544 section 23 b, learning frames).
pub struct Path {
    /// Hardware address of the sender.
    pub src_mac: [u8; 6],
    /// Hardware address of the next hop.
    pub dst_mac: [u8; 6],
    /// Address of the sender.
    pub source: IpAddr,
    /// Addresses to ping.
    pub destinations: Vec<IpAddr>,
    /// VLAN tags of the frames, outermost first.
    pub vlans: Vec<Vlan>,
}

impl Path {
    /// First destinations of a range, up to the maximum number of pings.
    pub fn destinations(range: &wb_model::units::AddressRange) -> Vec<IpAddr> {
        (0..range.count().min(MAX_PINGS))
            .map(|i| range.nth(i))
            .collect()
    }

    fn pings(&self) -> impl Iterator<Item = Ping> {
        let destinations = self.destinations.iter();
        destinations.map(|destination| (ids_of(&self.vlans), self.source, *destination))
    }

    fn ping(&self, destination: IpAddr, sequence: u16) -> Option<Vec<u8>> {
        let echo = TransportHeader::Echo(Echo::request(PING_ID, sequence));
        let mut stack = Stack::over(match (self.source, destination) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => NetworkHeader::Ipv4(Ipv4::new(src, dst), echo),
            (IpAddr::V6(src), IpAddr::V6(dst)) => NetworkHeader::Ipv6(Ipv6::new(src, dst), echo),
            _ => return None,
        });
        stack.ethernet.src = MacAddr(self.src_mac);
        stack.ethernet.dst = MacAddr(self.dst_mac);
        stack.vlans.clone_from(&self.vlans);
        Some(stack.build(stack.min_len().max(60)))
    }
}

/// An echo request: its VLAN ids, our address, and the destination.
type Ping = (Vec<u16>, IpAddr, IpAddr);

/// Pings every destination of the paths until each has answered, for at most one second per [`MAX_PINGS`] destinations.
/// Returns the number of answering destinations for each path. Stops early at a signal.
pub fn warm_up(socket: &mut ControlSocket, paths: &[Path], signals: &Signals) -> Vec<usize> {
    let mut answered = Vec::new();
    let mut rest = paths;
    while !rest.is_empty() {
        let mut pings = 0;
        let fits = |path: &&Path| {
            pings += path.destinations.len() as u128;
            pings <= MAX_PINGS
        };
        let count = rest.iter().take_while(fits).count().max(1);
        let (group, after) = rest.split_at(count);
        let open = ping_all(socket, group, signals);
        answered.extend(group.iter().map(|path| {
            let pings = path.pings();
            pings.filter(|ping| !open.contains_key(ping)).count()
        }));
        rest = after;
    }
    answered
}

/// Pings until all have answered. Returns the pings without an answer.
fn ping_all<'a>(
    socket: &mut ControlSocket,
    paths: &'a [Path],
    signals: &Signals,
) -> BTreeMap<Ping, &'a Path> {
    let pings = paths.iter();
    let mut open: BTreeMap<Ping, &Path> = pings
        .flat_map(|path| path.pings().map(move |ping| (ping, path)))
        .collect();
    let begin = Instant::now();
    let (mut sequence, mut next_round) = (0, begin);
    while !open.is_empty()
        && begin.elapsed() < Duration::from_secs(1)
        && signals.received().is_none()
    {
        if Instant::now() >= next_round {
            for ((_, _, destination), path) in &open {
                if let Some(frame) = path.ping(*destination, sequence) {
                    let _ = socket.send(&frame);
                }
                sequence = sequence.wrapping_add(1);
            }
            next_round = Instant::now() + RETRY;
        }
        let _ = socket.receive(Duration::from_millis(5), |frame| {
            if let Some((from, to)) = echo_reply_between(frame.bytes) {
                open.remove(&(vlan_ids(frame.bytes), to, from));
            }
        });
    }
    open
}

/// Sender and destination of an echo reply to a request of this module.
fn echo_reply_between(frame: &[u8]) -> Option<(IpAddr, IpAddr)> {
    let (_, mut kind, mut rest) = Ethernet::parse(frame)?;
    while Vlan::is_tpid(kind) {
        let (_, inner, after) = Vlan::parse(kind, rest)?;
        (kind, rest) = (inner, after);
    }
    let (ends, version, message) = match kind {
        ethertype::IPV4 => {
            let (ip, next, message) = Ipv4::parse(rest)?;
            let ends = (IpAddr::V4(ip.src), IpAddr::V4(ip.dst));
            (next == protocol::ICMP).then_some((ends, IcmpVersion::V4, message))?
        }
        ethertype::IPV6 => {
            let (ip, next, message) = Ipv6::parse(rest)?;
            let ends = (IpAddr::V6(ip.src), IpAddr::V6(ip.dst));
            (next == protocol::ICMPV6).then_some((ends, IcmpVersion::V6, message))?
        }
        _ => return None,
    };
    let (echo, _) = Echo::parse(version, message)?;
    (echo.reply && echo.identifier == PING_ID).then_some(ends)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routers_by_custom() {
        let router = |t: &str| customary_router(t.parse().unwrap()).to_string();
        assert_eq!(router("198.18.1.2"), "198.18.1.1");
        assert_eq!(router("2001:2:0:1::2"), "2001:2:0:1::1");
    }

    #[test]
    fn multicast_addresses() {
        assert_eq!(
            multicast_mac("224.1.2.3".parse().unwrap()),
            Some([1, 0, 0x5e, 1, 2, 3])
        );
        assert_eq!(
            multicast_mac("ff02::1:2".parse().unwrap()),
            Some([0x33, 0x33, 0, 1, 0, 2])
        );
        assert_eq!(multicast_mac("198.18.0.1".parse().unwrap()), None);
    }
}
