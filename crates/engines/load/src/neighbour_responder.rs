//! Answers ARP, neighbour discovery and pings within a worker.

use wb_port::RxFrame;
use wb_wire::{Ethernet, NeighbourResponder, Vlan, ethertype, find_tag, protocol};

/// Frames that are not part of the load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, derive_more::AddAssign)]
pub struct ResponderCounters {
    /// ARP messages received.
    pub arp_rx: u64,
    /// ARP messages sent.
    pub arp_tx: u64,
    /// ICMP and ICMPv6 messages received, including neighbour discovery.
    pub icmp_rx: u64,
    /// ICMP and ICMPv6 messages sent.
    pub icmp_tx: u64,
    /// Other frames that do not belong to the load.
    pub other_rx: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Arp,
    Icmp,
    Other,
}

/// Classifies a frame.
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

/// Counts a frame that does not belong to the load. If it needs an answer, writes it into the buffer from `lend` and
/// returns its length.
#[cold]
pub(crate) fn answer_frame<'a>(
    responder: &NeighbourResponder,
    counters: &mut ResponderCounters,
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
    let mut len = responder.answer(frame.bytes, out)?;
    if let Some(tag) = frame.vlan {
        // The device removed the VLAN tag; the answer needs it.
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
