//! A port's presence on its link, from within a worker: neighbours and pings are answered, the
//! gateway is found.

use std::net::IpAddr;

use wb_port::{PortError, QueuePair, RxFrame, RxQueue, TxQueue};
use wb_wire::{
    Ethernet, MacAddr, Presence, Vlan, arp_request, ethertype, find_tag, neighbour_solicitation,
    protocol,
};

use crate::Clock;

const SECOND: u64 = 1_000_000_000;

/// Frames beside the load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PresenceCounters {
    /// ARP messages received.
    pub arp_rx: u64,
    /// ARP messages sent.
    pub arp_tx: u64,
    /// ICMP and ICMPv6 messages received, neighbour discovery included.
    pub icmp_rx: u64,
    /// ICMP and ICMPv6 messages sent.
    pub icmp_tx: u64,
    /// Frames of any other kind that are not the load's.
    pub other_rx: u64,
}

impl PresenceCounters {
    /// Adds those of another worker.
    pub fn merge(&mut self, other: &Self) {
        self.arp_rx += other.arp_rx;
        self.arp_tx += other.arp_tx;
        self.icmp_rx += other.icmp_rx;
        self.icmp_tx += other.icmp_tx;
        self.other_rx += other.other_rx;
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Arp,
    Icmp,
    Other,
}

/// What a frame is to the presence.
fn kind_of(frame: &[u8]) -> Kind {
    let parsed = || {
        let (_, mut kind, mut rest) = Ethernet::parse(frame)?;
        while Vlan::is_tpid(kind) {
            (_, kind, rest) = Vlan::parse(kind, rest)?;
        }
        Some(match kind {
            ethertype::ARP => Kind::Arp,
            ethertype::IPV4 if rest.get(9) == Some(&protocol::ICMP) => Kind::Icmp,
            ethertype::IPV6 if rest.get(6) == Some(&protocol::ICMPV6) => Kind::Icmp,
            _ => Kind::Other,
        })
    };
    parsed().unwrap_or(Kind::Other)
}

/// Counts a frame that is not the load's and writes its answer into `lend`'s buffer, if there is one
/// to write: then its length.
#[cold]
pub(crate) fn attend<'a>(
    presence: &Presence,
    counters: &mut PresenceCounters,
    frame: &RxFrame<'_>,
    lend: impl FnOnce() -> Option<&'a mut [u8]>,
) -> Option<usize> {
    let kind = kind_of(frame.bytes);
    match kind {
        Kind::Arp => counters.arp_rx += 1,
        Kind::Icmp => counters.icmp_rx += 1,
        Kind::Other => {
            counters.other_rx += 1;
            return None;
        }
    }
    if find_tag(frame.bytes).is_some() {
        // A test frame that looks like a ping.
        return None;
    }
    let out = lend()?;
    let mut len = presence.answer(frame.bytes, out)?;
    if let Some(tag) = frame.vlan {
        // The device took the tag out; the answer needs it.
        if out.len() < len + 4 {
            return None;
        }
        out.copy_within(12..len, 16);
        out[12..14].copy_from_slice(&tag.tpid.to_be_bytes());
        out[14..16].copy_from_slice(&tag.tci.to_be_bytes());
        len += 4;
    }
    match kind {
        Kind::Arp => counters.arp_tx += 1,
        _ => counters.icmp_tx += 1,
    }
    Some(len)
}

/// Finds the Ethernet address of the next hop: asks once a second, a number of times.
///
/// Call [`poll`](Resolver::poll) until it gives no more frames, show what comes to
/// [`hear`](Resolver::hear), and look at [`state`](Resolver::state). [`resolve`] does so over a port.
#[derive(Clone, Debug)]
pub struct Resolver {
    presence: Presence,
    /// Who asks; the first one always, the others only once, which also announces them.
    sources: Vec<IpAddr>,
    target: IpAddr,
    vlans: Vec<Vlan>,
    tries: u32,
    asked: u32,
    next_source: usize,
    next_at: u64,
    found: Option<MacAddr>,
}

/// How far a [`Resolver`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// Still asking.
    Asking,
    /// This is it.
    Found(MacAddr),
    /// Nobody answered, a second after the last question.
    Silent,
}

impl Resolver {
    /// Asks for `target` from `source`, an address of the same family, at most `tries` times (dperf:
    /// 60). `announce` are more addresses of ours, each of which asks once, right after the first
    /// question.
    pub fn new(
        mac: MacAddr,
        source: IpAddr,
        target: IpAddr,
        vlan: Option<u16>,
        tries: u32,
        announce: impl IntoIterator<Item = IpAddr>,
    ) -> Self {
        let same = |address: &IpAddr| address.is_ipv4() == target.is_ipv4() && *address != source;
        let sources = [source]
            .into_iter()
            .chain(announce.into_iter().filter(same));
        Self {
            presence: Presence::new(mac, []),
            sources: sources.collect(),
            target,
            vlans: vlan.map(Vlan::customer).into_iter().collect(),
            tries,
            asked: 0,
            next_source: 0,
            next_at: 0,
            found: None,
        }
    }

    /// How far it is at this time (ns of any steady clock).
    pub fn state(&self, now: u64) -> Resolution {
        match self.found {
            Some(mac) => Resolution::Found(mac),
            None if self.asked >= self.tries && self.next_source == 0 && now >= self.next_at => {
                Resolution::Silent
            }
            None => Resolution::Asking,
        }
    }

    /// When [`Resolver::poll`] has something to say next.
    pub fn next_due(&self) -> u64 {
        self.next_at
    }

    /// Writes the next question that is due and gives its length.
    pub fn poll(&mut self, now: u64, out: &mut [u8]) -> Option<usize> {
        if self.found.is_some() || now < self.next_at {
            return None;
        }
        if self.next_source == 0 {
            if self.asked >= self.tries {
                return None;
            }
            self.asked += 1;
        }
        let source = *self.sources.get(self.next_source)?;
        self.next_source += 1;
        if self.asked > 1 || self.next_source == self.sources.len() {
            self.next_source = 0;
            self.next_at = now + SECOND;
        }
        let mac = self.presence.mac;
        match (source, self.target) {
            (IpAddr::V4(ours), IpAddr::V4(theirs)) => {
                arp_request(mac, ours, theirs, &self.vlans, out)
            }
            (IpAddr::V6(ours), IpAddr::V6(theirs)) => {
                neighbour_solicitation(mac, ours, theirs, &self.vlans, out)
            }
            _ => None,
        }
    }

    /// Listens to a frame. The first word of the target counts.
    pub fn hear(&mut self, frame: &[u8]) {
        if self.found.is_none()
            && let Some((address, mac)) = self.presence.heard(frame)
            && address == self.target
        {
            self.found = Some(mac);
        }
    }
}

/// Finds the next hop over a queue pair before its worker starts. Neighbours that ask for `presence`
/// meanwhile are answered. `None` if nobody answered.
///
/// # Errors
/// The port is gone. While the link is down it waits.
pub fn resolve<Q: QueuePair, C: Clock>(
    queue: &mut Q,
    resolver: &mut Resolver,
    presence: &Presence,
    clock: &C,
) -> Result<Option<MacAddr>, PortError> {
    let (tx, rx) = queue.split();
    loop {
        let now = clock.monotonic_ns();
        match resolver.state(now) {
            Resolution::Found(mac) => return Ok(Some(mac)),
            Resolution::Silent => return Ok(None),
            Resolution::Asking => {}
        }
        while tx.lend(1) == 1 {
            let slot = tx.slot(0);
            let Some(len) = resolver.poll(now, slot.bytes) else {
                break;
            };
            (*slot.len, *slot.cookie) = (len as u32, 0);
            tx.submit(1);
        }
        let mut counters = PresenceCounters::default();
        let received = rx.receive(64, |frame| {
            resolver.hear(frame.bytes);
            if tx.lend(1) == 1 {
                let slot = tx.slot(0);
                if let Some(len) = attend(presence, &mut counters, frame, || Some(slot.bytes)) {
                    (*slot.len, *slot.cookie) = (len as u32, 0);
                    tx.submit(1);
                }
            }
        });
        for result in [received.map(drop), tx.flush()] {
            match result {
                Err(error) if !error.is_transient() => return Err(error),
                _ => {}
            }
        }
        if matches!(resolver.state(now), Resolution::Asking) {
            let wait = resolver.next_due().saturating_sub(now).min(10_000_000);
            rx.wait(std::time::Duration::from_nanos(wait))?;
        }
    }
}
