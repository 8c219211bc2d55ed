//! Acknowledgements of a peer with SACK: loss detection, recovery and congestion window.

use super::Machine;
use super::segment::WIDEST;
use crate::connection::{ConnectionState, NO_SIDE_RECORD, before, flag, pack};
use crate::observer::Observer;
use crate::parse::{Packet, sack_blocks};

/// Delay of a tail loss probe beyond two round trips, in ns. Kernels use less; but if the peer shares the CPUs of the tester, a
/// shorter delay would retransmit segments that only wait for a CPU.
const LEAST_PROBE: u64 = 25_000_000;

impl<O: Observer> Machine<O> {
    /// Passes an acknowledgement to the scoreboard, and starts a scoreboard at the first SACK block. `acked` is the
    /// number of newly acknowledged numbers, `flight` the number in flight before. Returns false if there is no
    /// scoreboard; the caller must then update the window.
    #[inline(never)]
    pub(super) fn score(
        &mut self,
        now: u64,
        id: u32,
        packet: &Packet<'_>,
        acked: u32,
        flight: u32,
    ) -> bool {
        let (blocks, n) = if packet.options.is_empty() {
            ([(0, 0); 4], 0)
        } else {
            sack_blocks(packet.options)
        };
        let conn = self.table.slab.get(id);
        let (oldest, next) = (conn.oldest, conn.next_seq);
        if conn.side_record == NO_SIDE_RECORD && n == 0
            || conn.has(flag::REWOUND | flag::RECOVERY) && !self.scores(id)
        {
            return false;
        }
        if !self.scores(id) {
            let new = blocks[..n].iter().any(|block| before(oldest, block.1));
            if !new || !self.begin_board(id, None) {
                return false;
            }
        }
        let conn = self.table.slab.get(id);
        let Some(side_record) = self.side_records.get(conn.side_record) else {
            return false;
        };
        let board = &mut side_record.board;
        let news = board.acknowledge(now, oldest, next, &blocks[..n]);
        let recover = side_record.recover;
        if acked == 0 && news.arrived > 0 {
            self.counters.duplicate_acks += 1;
        }
        if let Some(took) = news.sample {
            conn.rtt.sample(took);
        }
        if (conn.has(flag::RECOVERY) || board.timed_out) && !before(oldest, recover) {
            if conn.has(flag::RECOVERY) {
                conn.cwnd = conn.threshold;
            }
            conn.clear(flag::RECOVERY);
            board.timed_out = false;
        }
        if news.needless
            && let Some((cwnd, threshold)) = board.undo()
        {
            conn.cwnd = conn.cwnd.max(cwnd);
            conn.threshold = conn.threshold.max(threshold);
            conn.clear(flag::RECOVERY);
        }
        self.judge(now, id, acked, flight);
        true
    }

    /// Detects losses, starts recovery and grows the window.
    fn judge(&mut self, now: u64, id: u32, acked: u32, flight: u32) {
        let conn = self.table.slab.get(id);
        let Some(side_record) = self.side_records.get(conn.side_record) else {
            return;
        };
        let board = &mut side_record.board;
        if conn.in_flight() == 0 {
            board.clear();
            conn.clear(flag::RECOVERY);
            self.widen(id, acked, flight);
            return;
        }
        let recovering = conn.has(flag::RECOVERY) || board.timed_out;
        let mss = u32::from(conn.mss);
        board.detect(now, recovering, conn.rtt.smoothed_ns(), mss);
        if board.has_lost() && !recovering {
            // RFC 5681 section 3.1: half of the data in flight.
            board.recovery_begins((conn.cwnd, conn.threshold));
            side_record.recover = conn.next_seq;
            conn.threshold = half(flight, mss).min(conn.cwnd).max(2);
            conn.cwnd = conn.threshold;
            conn.set(flag::RECOVERY);
        } else if !conn.has(flag::RECOVERY) {
            self.widen(id, acked, flight);
        }
    }

    /// Returns true if the connection has an active scoreboard.
    #[inline]
    pub(super) fn scores(&mut self, id: u32) -> bool {
        let conn = self.table.slab.get(id);
        self.side_records
            .get(conn.side_record)
            .is_some_and(|side_record| side_record.board.is_active())
    }

    /// Starts a scoreboard with the data in flight. `sent` is its send time; None means the start of the current phase.
    /// Returns false if there is no room.
    #[cold]
    pub(super) fn begin_board(&mut self, id: u32, sent: Option<u64>) -> bool {
        let conn = self.table.slab.get(id);
        if conn.in_flight() == 0
            || conn.state != ConnectionState::Open
            || conn.has(flag::REWOUND | flag::RECOVERY)
        {
            return false;
        }
        let (oldest, next, rtt) = (conn.oldest, conn.next_seq, conn.rtt.smoothed_ns());
        let at = sent.unwrap_or(conn.stamp);
        conn.packed &= !pack::TIMING;
        let Some(side_record) = self.side_records.get_or_allocate(&mut conn.side_record) else {
            return false;
        };
        side_record.board.start(oldest, next, at, rtt);
        true
    }

    /// Handles the timer of a connection with a scoreboard: detects losses or sends a tail loss probe. Returns false if
    /// the retransmission timeout itself must be handled.
    pub(super) fn score_expired(&mut self, now: u64, id: u32) -> bool {
        let conn = self.table.slab.get(id);
        let (mss, flight) = (u32::from(conn.mss), conn.in_flight());
        let Some(side_record) = self.side_records.get(conn.side_record) else {
            return false;
        };
        let board = &mut side_record.board;
        if board.lost_due <= now {
            self.judge(now, id, 0, flight);
            return true;
        }
        if board.again_due > now {
            return true;
        }
        if board.probes {
            board.probe(mss);
            self.counters.tail_probes += 1;
            return true;
        }
        false
    }

    /// Marks all segments as lost: RFC 5681 section 3.1, RFC 6298 section 5.
    pub(super) fn lose_all(&mut self, id: u32) {
        let conn = self.table.slab.get(id);
        let mss = u32::from(conn.mss);
        let Some(side_record) = self.side_records.get(conn.side_record) else {
            return;
        };
        let board = &mut side_record.board;
        if !board.timed_out {
            if !conn.has(flag::RECOVERY) {
                board.recovery_begins((conn.cwnd, conn.threshold));
            }
            conn.threshold = half(conn.in_flight(), mss).min(conn.cwnd).max(2);
        }
        side_record.recover = conn.next_seq;
        conn.cwnd = 1;
        conn.clear(flag::RECOVERY);
        board.lose_all();
    }

    /// Retransmission timeout of a connection in ns from now, and true if it triggers a tail loss probe instead.
    #[inline]
    pub(super) fn retransmission_timeout(&mut self, id: u32) -> (u64, bool) {
        let least = self.least_timeout;
        let is_dperf = self.is_dperf;
        let conn = self.table.slab.get(id);
        if conn.rtt.is_known()
            && conn.expiries == 0
            && !is_dperf
            && conn.in_flight() <= u32::from(conn.mss)
        {
            // Most common case.
            return (conn.rtt.timeout_ns(least).min(LONGEST_TIMEOUT), false);
        }
        self.uncommon_retransmission_timeout(id)
    }

    #[inline(never)]
    fn uncommon_retransmission_timeout(&mut self, id: u32) -> (u64, bool) {
        let retransmission = self.config.retransmission;
        let least = self.least_timeout;
        let is_dperf = self.is_dperf;
        let conn = self.table.slab.get(id);
        let known = conn.rtt.is_known() && !is_dperf;
        let first = if known {
            conn.rtt.timeout_ns(least).min(LONGEST_TIMEOUT)
        } else {
            retransmission.after
        };
        let doublings = if retransmission.backoff {
            conn.expiries.min(7)
        } else {
            0
        };
        let after = first << doublings;
        let is_long = conn.is(pack::SACK) && conn.in_flight() > u32::from(conn.mss);
        if !is_long || !known || conn.expiries > 0 || conn.state != ConnectionState::Open {
            return (after, false);
        }
        let rtt = conn.rtt;
        let in_recovery = conn.has(flag::RECOVERY | flag::REWOUND);
        let used = self
            .side_records
            .get(conn.side_record)
            .is_some_and(|side_record| side_record.board.probed || side_record.board.timed_out);
        let probe = 2 * rtt.smoothed_ns() + LEAST_PROBE;
        if in_recovery || used || probe >= after {
            (after, false)
        } else {
            (probe, true)
        }
    }
}

/// Maximum retransmission timeout before backoff: RFC 6298 section 2.5.
const LONGEST_TIMEOUT: u64 = 60_000_000_000;

/// Half of the data in flight in segments, at least two.
pub(super) fn half(flight: u32, mss: u32) -> u16 {
    let segments = (flight / mss).min(u32::from(WIDEST)) as u16;
    (segments / 2).max(2)
}
