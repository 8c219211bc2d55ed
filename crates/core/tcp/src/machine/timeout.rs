//! Timer expiry of a connection.

use super::recovery::half;
use super::{Cause, Machine, after};
use crate::build::FrameSink;
use crate::config::TimeWait;
use crate::connection::{ConnectionState, ENDLESS, NO_SIDE_RECORD, flag, pack};
use crate::observer::Observer;
use crate::sack_scoreboard::NEVER;

impl<O: Observer> Machine<O> {
    /// Sets the single timer of a connection to the earliest event.
    #[inline]
    pub(super) fn restart_timer(&mut self, now: u64, id: u32) {
        let conn = self.table.slab.get(id);
        let due = if conn.state == ConnectionState::TimeWait {
            match self.config.time_wait {
                TimeWait::Hold(hold) => after(conn.stamp, hold),
                _ => now,
            }
        } else if conn.has(flag::PAUSED) {
            conn.stamp
        } else {
            let waits = conn.in_flight() > 0 || conn.unsent() > 0;
            let end = self.phase_end(id).0;
            if waits {
                let (patience, probes) = self.retransmission_timeout(id);
                let due = after(now, patience);
                end.min(self.note_patience(id, due, probes))
            } else {
                end
            }
        };
        let due = match self.routes {
            Some(_) => due.min(self.answer_due(id).unwrap_or(due)),
            None => due,
        };
        self.wheel.set(&mut self.table.slab, id, due);
    }

    /// Stores the time of the next retransmission or probe in the scoreboard, if any, and returns the time for the
    /// timer.
    #[inline]
    fn note_patience(&mut self, id: u32, due: u64, probes: bool) -> u64 {
        let conn = self.table.slab.get(id);
        if conn.side_record == NO_SIDE_RECORD {
            return due;
        }
        match self.side_records.get(conn.side_record) {
            Some(side_record) if side_record.board.is_active() => {
                (side_record.board.again_due, side_record.board.probes) = (due, probes);
                due.min(side_record.board.lost_due)
            }
            _ => due,
        }
    }

    /// Moves the timer of a connection forward if missing data may count as lost earlier.
    #[cold]
    pub(super) fn hasten_timer(&mut self, now: u64, id: u32) {
        let conn = self.table.slab.get(id);
        if conn.has(flag::PAUSED) || conn.state != ConnectionState::Open {
            return;
        }
        let side_record = self.side_records.get(conn.side_record);
        let board = side_record.map(|side_record| &side_record.board);
        if board.is_some_and(|board| board.is_active() && board.again_due == NEVER) {
            // The scoreboard has just started and has no timer yet.
            return self.restart_timer(now, id);
        }
        let side_record = self.side_records.get(self.table.slab.get(id).side_record);
        let board = side_record.map(|side_record| &side_record.board);
        if let Some(board) = board.filter(|board| board.is_active() && board.lost_due != NEVER) {
            let due = board.lost_due.min(board.again_due);
            self.wheel.set(&mut self.table.slab, id, due);
        }
    }

    /// Timeout of the current phase, and the cause of failure after it.
    #[inline]
    fn phase_end(&mut self, id: u32) -> (u64, Cause) {
        let is_client = self.client.is_some();
        let conn = self.table.slab.get(id);
        let config = &self.config;
        let (period, cause) = match conn.state {
            ConnectionState::SynSent | ConnectionState::SynReceived => {
                (config.connect_timeout, Cause::Connect)
            }
            _ if conn.has(flag::FIN_QUEUED) && conn.queued_len == 0 => {
                (config.close_timeout, Cause::Close)
            }
            _ if is_client
                && conn.has(flag::WAITING)
                && !conn.has(flag::ANSWERED)
                && config.first_byte_timeout < config.response_timeout =>
            {
                (config.first_byte_timeout, Cause::FirstByte)
            }
            _ if is_client => (config.response_timeout, Cause::Response),
            _ => (config.idle_timeout, Cause::Idle),
        };
        let stamp = conn.stamp;
        (after(self.left_at(stamp), period), cause)
    }

    pub(super) fn expired(&mut self, now: u64, id: u32, sink: &mut impl FrameSink) {
        let conn = self.table.slab.get(id);
        match conn.state {
            ConnectionState::Free => return,
            ConnectionState::Udp => return self.datagram_due(now, id, sink),
            ConnectionState::TimeWait => {
                let TimeWait::Hold(hold) = self.config.time_wait else {
                    return self.remove(now, id);
                };
                if now >= after(conn.stamp, hold) {
                    self.remove(now, id);
                } else {
                    self.restart_timer(now, id);
                }
                return;
            }
            ConnectionState::SynSent if self.client.as_ref().is_some_and(|client| client.flood) => {
                return self.flood_again(now, id, sink);
            }
            _ => {}
        }
        if conn.has(flag::PAUSED) {
            let due = conn.stamp;
            if due > now {
                self.wheel.set(&mut self.table.slab, id, due);
                return;
            }
            if self.finishing {
                let how = self
                    .client
                    .as_ref()
                    .map_or(crate::Close::Fin, |client| client.close);
                self.close(now, id, how);
            } else if self.paced {
                // No request came to carry the acknowledgement.
                conn.stamp = u64::MAX;
                conn.set(flag::SEND_ACK);
            } else {
                self.ask_again(now, due, id);
            }
            self.send_and_set_timer(now, id, true, sink);
            return;
        }
        if self.answer_due(id).is_some() && self.answer_waiting(now, id) {
            self.send_and_set_timer(now, id, true, sink);
            return;
        }
        let (end, cause) = self.phase_end(id);
        if now >= end {
            self.give_up(now, id, cause, sink);
            return;
        }
        let conn = self.table.slab.get(id);
        if conn.is_queued() && !conn.has(flag::ACK_LATER) {
            // Not sent yet because the sink has no room.
            self.restart_timer(now, id);
            return;
        }
        if conn.in_flight() > 0
            && conn.state == ConnectionState::Open
            && self.gives_time(now, id, sink)
        {
            return;
        }
        let conn = self.table.slab.get(id);
        if conn.in_flight() > 0 {
            if conn.expiries >= self.config.retransmission.tries {
                let cause = match conn.state {
                    ConnectionState::SynSent | ConnectionState::SynReceived => Cause::Connect,
                    _ if conn.queued_len == 0 => Cause::Close,
                    _ => Cause::Response,
                };
                self.give_up(now, id, cause, sink);
                return;
            }
            conn.expiries += 1;
            conn.packed &= !pack::TIMING;
            let scores = conn.state == ConnectionState::Open
                && conn.is(pack::SACK)
                && (self.scores(id) || self.begin_board(id, None));
            let conn = self.table.slab.get(id);
            if scores {
                self.lose_all(id);
                self.send_and_set_timer(now, id, true, sink);
                return;
            }
            if conn.state == ConnectionState::Open {
                // RFC 5681 section 3.1: half of the data in flight, starting with one segment.
                conn.threshold = half(conn.in_flight(), conn.mss.into());
                conn.cwnd = 1;
                self.rewind(id);
            } else {
                conn.set(flag::SEND_SYN | flag::REWOUND);
            }
        } else if conn.unsent() > 0 {
            // The peer's window is closed: RFC 9293 section 3.8.6.1.
            conn.expiries = (conn.expiries + 1).min(7);
            conn.set(flag::SEND_PROBE);
            self.counters.window_probes += 1;
        }
        self.send_and_set_timer(now, id, true, sink);
    }

    /// Returns true if the expired timer must not trigger a retransmission, because data may only be late or a tail
    /// loss probe was sent.
    fn gives_time(&mut self, now: u64, id: u32, sink: &mut impl FrameSink) -> bool {
        if !self.scores(id) {
            // Same decision as when the timer was set.
            let probes = self.retransmission_timeout(id).1;
            if !probes || !self.begin_board(id, None) {
                return false;
            }
            self.note_patience(id, now, true);
        }
        if !self.score_expired(now, id) {
            return false;
        }
        self.output(now, id, sink);
        let is_due = {
            let conn = self.table.slab.get(id);
            let side_record = self.side_records.get(conn.side_record);
            side_record.is_none_or(|side_record| {
                let due = side_record.board.again_due;
                !side_record.board.is_active() || due <= now || due == NEVER
            })
        };
        if is_due {
            self.restart_timer(now, id);
        } else {
            self.look_again(id);
        }
        true
    }

    /// Sets the timer to the next event of the scoreboard.
    fn look_again(&mut self, id: u32) {
        let end = self.phase_end(id).0;
        let conn = self.table.slab.get(id);
        if let Some(side_record) = self.side_records.get(conn.side_record) {
            let due = side_record
                .board
                .lost_due
                .min(side_record.board.again_due)
                .min(end);
            self.wheel.set(&mut self.table.slab, id, due);
        }
    }

    /// Sends the next SYN of a flood with keepalive, with the next sequence number. The flood awaits no answer, so it
    /// succeeds when all SYNs were sent or the run ends.
    fn flood_again(&mut self, now: u64, id: u32, sink: &mut impl FrameSink) {
        let conn = self.table.slab.get(id);
        if self.finishing || conn.requests == 0 {
            self.complete(now, id);
            return;
        }
        if self.paced {
            return;
        }
        let interval = self
            .client
            .as_ref()
            .map_or(1, |client| client.interval.max(1));
        self.next_syn(now, id, sink);
        self.wheel
            .set(&mut self.table.slab, id, after(now, interval));
    }

    /// Sends one more SYN of a flood.
    pub(super) fn next_syn(&mut self, now: u64, id: u32, sink: &mut impl FrameSink) {
        let conn = self.table.slab.get(id);
        if conn.requests != ENDLESS {
            conn.requests = conn.requests.saturating_sub(1);
        }
        conn.oldest = conn.oldest.wrapping_add(1);
        conn.next_seq = conn.next_seq.wrapping_add(1);
        conn.stamp = now;
        conn.set(flag::SEND_SYN);
        self.output(now, id, sink);
    }

    /// Continues a connection from the queue.
    pub(super) fn resume(&mut self, now: u64, id: u32, sink: &mut impl FrameSink) {
        let conn = self.table.slab.get(id);
        if conn.state == ConnectionState::Udp {
            self.send_datagrams(now, id, sink);
            return;
        }
        if conn.has(flag::ACK_LATER) {
            conn.clear(flag::ACK_LATER);
            conn.set(flag::SEND_ACK);
        }
        let nothing_sent = conn.in_flight() == 0;
        self.send_and_set_timer(now, id, nothing_sent, sink);
    }
}
