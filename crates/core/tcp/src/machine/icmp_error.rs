//! Effects of ICMP errors about sent packets: a smaller segment size (RFC 1191, RFC 8201), or the failure of a
//! connection that has no answer yet.

use std::collections::HashMap;

use super::{Cause, Machine};
use crate::addr::Addr;
use crate::build::FrameSink;
use crate::connection::{ConnectionState, Key, NO_SIDE_RECORD, before, flag, pack};
use crate::icmp_error::{IcmpErrorKind, parse};
use crate::observer::Observer;

/// Maximum number of destinations with a recorded path MTU.
const MOST_PATHS: usize = 1 << 16;
/// Minimum MTU of IPv6: RFC 8200 section 5.
const LEAST_V6: u16 = 1280;
/// Minimum MTU of IPv4: RFC 791.
const LEAST_V4: u16 = 68;

/// Summary of the ICMP errors about sent packets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IcmpNews {
    /// Destination unreachable messages, by IP version (4 or 6) and code.
    pub unreachable: std::collections::BTreeMap<(u8, u8), u64>,
    /// Messages about packets that were too large for a link of the path.
    pub too_big: u64,
    /// Minimum path MTU reported, in bytes; 0 if none.
    pub least_mtu: u16,
}

impl IcmpNews {
    /// Adds the summary of another worker.
    pub fn merge(&mut self, other: &Self) {
        for (code, n) in &other.unreachable {
            *self.unreachable.entry(*code).or_default() += n;
        }
        self.too_big += other.too_big;
        self.note_mtu(other.least_mtu);
    }

    fn note_mtu(&mut self, mtu: u16) {
        if mtu > 0 && (self.least_mtu == 0 || mtu < self.least_mtu) {
            self.least_mtu = mtu;
        }
    }
}

/// Maximum segment size by destination, in bytes of payload.
pub(super) type PathMss = HashMap<Addr, u16>;

/// Segment size of a new connection: the minimum of the local one, the peer's, and that of the path if known.
#[inline]
pub(super) fn segment_size(ours: u16, theirs: Option<u16>, paths: &PathMss, remote: Addr) -> u16 {
    let mss = ours.min(theirs.unwrap_or(536)).max(1);
    match paths.is_empty() {
        true => mss,
        false => paths.get(&remote).map_or(mss, |path| mss.min(*path)),
    }
}

impl<O: Observer> Machine<O> {
    /// Summary of the ICMP errors about sent packets.
    pub fn icmp_news(&self) -> &IcmpNews {
        &self.icmp_news
    }

    /// Handles a frame if it is an ICMP error about a packet of one of the connections, and returns true if so.
    /// `vlan` is the expected VLAN id.
    #[cold]
    pub(super) fn icmp_error(
        &mut self,
        now: u64,
        frame: &[u8],
        vlan: Option<u16>,
        sink: &mut impl FrameSink,
    ) -> bool {
        // dperf ignores ICMP errors.
        if self.is_dperf {
            return false;
        }
        let Some(error) = parse(frame, vlan) else {
            return false;
        };
        let Some(local) = self.local.position(error.local) else {
            return false;
        };
        let key = Key {
            remote: error.remote,
            local,
            ports: error.ports,
        };
        let hash = self.table.hash(&key);
        let Some(id) = self
            .table
            .find(&key, hash)
            .filter(|_| error.is_tcp == self.is_tcp)
        else {
            return false;
        };
        let conn = self.table.slab.get(id);
        // An off-path attacker cannot know the sequence numbers: RFC 5927 section 4.1.
        if self.is_tcp
            && error.seq.wrapping_sub(conn.oldest) > conn.in_flight().max(conn.queued_len)
        {
            return false;
        }
        self.counters.icmp_rx += 1;
        match error.what {
            IcmpErrorKind::Unreachable(code) => {
                let version = if error.remote.is_v4() { 4 } else { 6 };
                *self
                    .icmp_news
                    .unreachable
                    .entry((version, code))
                    .or_default() += 1;
                // ICMP errors do not end an established connection: RFC 5927 section 5.
                if conn.state == ConnectionState::SynSent && !self.floods {
                    self.fail(now, id, Cause::Unreachable);
                }
            }
            IcmpErrorKind::TooBig(mtu) => self.shrink(now, id, mtu, sink),
        }
        true
    }

    /// Reduces the segment size of this connection and of future ones to this destination.
    fn shrink(&mut self, now: u64, id: u32, mtu: u16, sink: &mut impl FrameSink) {
        let conn = self.table.slab.get(id);
        let (mtu, headers) = match conn.key.remote.is_v4() {
            true => (mtu.max(LEAST_V4), 40),
            false => (mtu.max(LEAST_V6), 60),
        };
        self.icmp_news.too_big += 1;
        self.icmp_news.note_mtu(mtu);
        let mss = mtu - headers;
        if !self.is_tcp || mss >= conn.mss {
            return;
        }
        if self.path_mss.len() < MOST_PATHS {
            self.path_mss.insert(conn.key.remote, mss);
        }
        conn.mss = mss;
        if conn.state != ConnectionState::Open || conn.data_in_flight() == 0 {
            return;
        }
        // Losing a packet that was too large is not a sign of congestion: RFC 1191 section 6.5.
        conn.packed &= !pack::TIMING;
        if self.scores(id) {
            self.lose_all_to_the_path(id);
        } else {
            self.rewind(id);
        }
        self.send_and_set_timer(now, id, true, sink);
    }

    /// Marks all segments as lost without reducing the congestion window.
    fn lose_all_to_the_path(&mut self, id: u32) {
        let conn = self.table.slab.get(id);
        let window = (conn.cwnd, conn.threshold);
        self.lose_all(id);
        let conn = self.table.slab.get(id);
        (conn.cwnd, conn.threshold) = window;
    }

    /// Retransmits from the oldest byte on.
    pub(super) fn rewind(&mut self, id: u32) {
        let conn = self.table.slab.get(id);
        let several = conn.in_flight() > u32::from(conn.mss);
        if (several || conn.side_record != NO_SIDE_RECORD)
            && let Some(side_record) = self.side_records.get_or_allocate(&mut conn.side_record)
            && !(conn.has(flag::REWOUND) && before(conn.next_seq, side_record.recover))
        {
            side_record.recover = conn.next_seq;
        }
        conn.next_seq = conn.oldest;
        if let Some(side_record) = self.side_records.get(conn.side_record) {
            side_record.duplicates = 0;
        }
        conn.clear(flag::RECOVERY | flag::FIN_SENT | flag::SEND_AGAIN);
        conn.set(flag::REWOUND);
    }
}
