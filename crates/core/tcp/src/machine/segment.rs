//! Effects of a TCP segment on its connection: RFC 9293 section 3.10.7, RFC 5681, RFC 5961.

use wb_wire::tcp_flags::{ACK, FIN, RST, SYN};

use super::icmp_error::segment_size;
use super::recovery::half;
use super::{Cause, Machine};
use crate::build::FrameSink;
use crate::config::{Behaviour, Close, TimeWait};
use crate::connection::{Conn, ConnectionState, ENDLESS, NO_SIDE_RECORD, before, flag, pack};
use crate::observer::Observer;
use crate::parse::{Packet, syn_options};

/// Maximum distance of a plausible sequence number from the expected one.
pub(super) const WINDOW: u32 = 1 << 24;
/// Send queue size in bytes above which a server accepts no more requests.
pub(super) const MOST_QUEUED: u32 = 1 << 30;
/// Maximum congestion window in segments.
pub(super) const WIDEST: u16 = 1 << 14;

impl<O: Observer> Machine<O> {
    #[inline]
    pub(super) fn segment(
        &mut self,
        now: u64,
        id: u32,
        packet: &Packet<'_>,
        sink: &mut impl FrameSink,
    ) {
        let conn = self.table.slab.get(id);
        match conn.state {
            ConnectionState::SynSent => return self.in_syn_sent(now, id, packet, sink),
            ConnectionState::TimeWait => return self.in_time_wait(now, id, packet, sink),
            _ => {}
        }
        if packet.flags & (RST | SYN) != 0 || packet.flags & ACK == 0 {
            return self.unusual(now, id, packet, sink);
        }
        let nothing_sent = conn.in_flight() == 0;
        if !packet.options.is_empty() && self.client.is_none() {
            self.look_for_toa(packet);
        }
        let Some(acked) = self.acknowledgement(now, id, packet) else {
            self.output(now, id, sink);
            return;
        };
        let conn = self.table.slab.get(id);
        if conn.state == ConnectionState::SynReceived {
            // An old acknowledgement does not complete a handshake.
            self.counters.drop_ack += 1;
            return;
        }
        if self.client.is_none() {
            if conn.cwnd > self.config.initial_window
                && nothing_sent
                && !self.is_dperf
                && now.saturating_sub(conn.stamp) > self.config.retransmission.after
            {
                // After a pause the capacity of the path is unknown: RFC 5681 section 4.1.
                conn.cwnd = self.config.initial_window;
            }
            // Every acceptable segment shows that the peer is alive.
            conn.stamp = now;
        }
        let mut seq = packet.seq;
        let mut payload = packet.payload;
        let mut fin = packet.flags & FIN != 0;
        if seq != conn.expected {
            let behind = conn.expected.wrapping_sub(seq);
            if (behind as i32) < 0 {
                // Data that was not acknowledged separately is accepted when it is in order.
                self.ahead_of_turn(id, packet);
                self.send_and_set_timer(now, id, acked > 0 || nothing_sent, sink);
                return;
            }
            let len = payload.len() as u32 + u32::from(fin);
            if behind >= len {
                // All data of the segment was received before.
                if len > 0 || seq != conn.expected.wrapping_sub(1) {
                    self.counters.drop_sequence += 1;
                }
                if len > 0 || behind == 1 {
                    self.counters.ack_again += 1;
                    conn.set(flag::SEND_ACK);
                    self.note_again(id, packet);
                }
                self.send_and_set_timer(now, id, acked > 0 || nothing_sent, sink);
                return;
            }
            payload = &payload[(behind as usize).min(payload.len())..];
            seq = conn.expected;
        }
        debug_assert_eq!(seq, conn.expected);
        // A second FIN would be beyond the end of the stream.
        fin &= !conn.has(flag::FIN_RECEIVED);
        // The window of a dperf server grows by one with every segment: immediately for an acknowledgement, after the
        // first segment of the answer for a request.
        let grows = self.is_dperf && self.client.is_none();
        let grows_later = grows && !payload.is_empty();
        if grows && payload.is_empty() {
            conn.cwnd = (conn.cwnd + 1).min(16);
        }
        if !payload.is_empty() {
            if fin && self.client.is_some() {
                // No request follows after the answer in this segment.
                conn.set(flag::FIN_RECEIVED);
            }
            let Some(taken) = self.take_data(now, id, payload, sink) else {
                return;
            };
            if taken < payload.len() {
                // No room for the answers, so the peer will retransmit the rest.
                self.counters.drop_ahead += 1;
                self.table.slab.get(id).set(flag::SEND_ACK);
                fin = false;
            }
        }
        if self.table.slab.get(id).side_record != NO_SIDE_RECORD {
            if !self.take_kept(now, id, sink) {
                return;
            }
            fin |= self.end_has_come(id);
        }
        if fin && self.take_fin(now, id, sink) {
            return;
        }
        self.send_and_set_timer(now, id, acked > 0 || nothing_sent, sink);
        if grows_later {
            let conn = self.table.slab.get(id);
            conn.cwnd = (conn.cwnd + 1).min(16);
        }
    }

    /// Handles the peer's FIN in its turn. Returns true if the connection is over.
    #[inline]
    fn take_fin(&mut self, now: u64, id: u32, sink: &mut impl FrameSink) -> bool {
        let conn = self.table.slab.get(id);
        conn.expected = conn.expected.wrapping_add(1);
        conn.set(flag::FIN_RECEIVED | flag::SEND_ACK);
        if conn.has(flag::FIN_SENT) {
            conn.packed |= pack::CLOSED_FIRST;
            if self.config.time_wait == TimeWait::Reset && conn.in_flight() == 0 {
                conn.set(flag::SEND_RST | flag::DONE);
            }
        }
        match self.client {
            Some(_) => self.server_closed(now, id, sink),
            None => self.client_closed(now, id, sink),
        }
    }

    /// Sends what is due, sets the timer, and ends the connection if it is over.
    #[inline]
    pub(super) fn send_and_set_timer(
        &mut self,
        now: u64,
        id: u32,
        restart: bool,
        sink: &mut impl FrameSink,
    ) {
        self.output(now, id, sink);
        let conn = self.table.slab.get(id);
        if conn.side_record != NO_SIDE_RECORD {
            self.release_side_record(id);
        }
        let conn = self.table.slab.get(id);
        match conn.state {
            ConnectionState::Free => {}
            _ if conn.is_over() && !conn.has(flag::SEND_ACK | flag::SEND_RST) => {
                self.end(now, id);
            }
            _ => {
                if conn.has(flag::ACK_LATER) {
                    // No segment carried the acknowledgement; it waits for the end of the batch.
                    Self::enqueue(&mut self.queue, conn, id);
                }
                if restart {
                    self.restart_timer(now, id);
                } else if conn.side_record != NO_SIDE_RECORD {
                    if self.answer_due(id).is_some() {
                        self.restart_timer(now, id);
                    } else {
                        self.hasten_timer(now, id);
                    }
                }
            }
        }
    }

    /// Ends a connection after both FINs are acknowledged.
    fn end(&mut self, now: u64, id: u32) {
        let conn = self.table.slab.get(id);
        match self.config.time_wait {
            TimeWait::Hold(_) if conn.is(pack::CLOSED_FIRST) => {
                if conn.state != ConnectionState::TimeWait {
                    conn.state = ConnectionState::TimeWait;
                    self.count_cut_off(id);
                    self.uncount(id);
                    self.counters.completed += 1;
                }
                self.table.slab.get(id).stamp = now;
                self.restart_timer(now, id);
            }
            _ => self.complete(now, id),
        }
    }

    /// Handles the acknowledgement number and window of a segment. Returns the number of bytes acknowledged, or None if
    /// the rest of the segment must be ignored.
    #[inline]
    fn acknowledgement(&mut self, now: u64, id: u32, packet: &Packet<'_>) -> Option<u32> {
        let conn = self.table.slab.get(id);
        let acked = packet.ack.wrapping_sub(conn.oldest);
        let mut limit = conn.in_flight();
        if conn.has(flag::REWOUND) && conn.state == ConnectionState::Open {
            limit = limit.max(conn.queued_len + u32::from(conn.has(flag::FIN_QUEUED)));
        }
        if acked > limit {
            if before(packet.ack, conn.oldest) {
                // Old acknowledgement; the rest of the segment may be new.
                return Some(0);
            }
            self.counters.drop_ack += 1;
            // RFC 9293 section 3.10.7.4: acknowledge and drop. A bare acknowledgement gets no answer, because two
            // unsynchronised ends would answer each other forever.
            if !packet.payload.is_empty() || packet.flags & FIN != 0 {
                conn.set(flag::SEND_ACK);
            }
            return None;
        }
        let same_window = conn.window == packet.window;
        if conn.window == 0 && packet.window > 0 {
            // The window opened. Probes of the closed window do not count as retransmissions.
            conn.expiries = 0;
        }
        conn.window = packet.window;
        let scored = conn.is(pack::SACK)
            && (conn.side_record != NO_SIDE_RECORD || !packet.options.is_empty());
        if acked == 0 {
            if packet.window == 0 && conn.state == ConnectionState::Open {
                // The peer is alive but cannot receive now: RFC 9293 section 3.8.6.1.
                conn.expiries = conn.expiries.min(1);
            }
            let flight = conn.in_flight();
            if scored
                && conn.state == ConnectionState::Open
                && self.score(now, id, packet, 0, flight)
            {
                return Some(0);
            }
            let conn = self.table.slab.get(id);
            if conn.in_flight() > 0
                && same_window
                && packet.payload.is_empty()
                && packet.flags & FIN == 0
                && conn.state == ConnectionState::Open
            {
                self.duplicate(id);
            }
            return Some(0);
        }
        let mut data = acked;
        if conn.state == ConnectionState::SynReceived {
            conn.state = ConnectionState::Open;
            self.half_open -= 1;
            self.counters.established += 1;
            let took = now.saturating_sub(conn.stamp);
            self.observer.connected(took.saturating_sub(self.unread));
            if !conn.has(flag::REWOUND) {
                conn.rtt.sample(took);
            }
            data -= 1;
        } else if conn.is(pack::TIMING) {
            // First acknowledgement of a flight sent at once: RFC 6298 section 3.
            conn.packed &= !pack::TIMING;
            let sent = match self.side_records.get(conn.side_record) {
                // Each request in the side record has its own time.
                Some(side_record) if self.slides => side_record.timed,
                _ => conn.stamp,
            };
            conn.rtt.sample(now.saturating_sub(sent));
        }
        let data = data.min(conn.queued_len);
        let (flight, queued) = (conn.in_flight(), conn.queued_len);
        conn.queued_len -= data;
        conn.oldest = packet.ack;
        if before(conn.next_seq, conn.oldest) {
            conn.next_seq = conn.oldest;
            if conn.has(flag::FIN_QUEUED) && conn.queued_len == 0 && acked > data {
                conn.set(flag::FIN_SENT);
            }
        }
        conn.expiries = 0;
        if conn.side_record != NO_SIDE_RECORD
            && let Some((side_record, store)) = self.side_records.with_store(&mut conn.side_record)
        {
            side_record.duplicates = 0;
            side_record.script.acknowledged(data, store);
        }
        if self.client.is_none() {
            self.note_room(id, queued);
        }
        if !(scored && self.score(now, id, packet, data, flight)) && data > 0 && !self.is_dperf {
            self.grow_window(id, data, flight);
        }
        let conn = self.table.slab.get(id);
        if conn.has(flag::REWOUND) {
            // Ends when all data sent before the timeout is acknowledged.
            let over = match self.side_records.get(conn.side_record) {
                Some(side_record) => !before(conn.oldest, side_record.recover),
                None => conn.in_flight() == 0,
            };
            if over {
                conn.clear(flag::REWOUND);
            }
        }
        Some(acked)
    }

    /// Grows the congestion window: RFC 5681 section 3.1, and RFC 6582 section 3.2 in fast recovery.
    #[inline]
    fn grow_window(&mut self, id: u32, data: u32, flight: u32) {
        let conn = self.table.slab.get(id);
        if !conn.has(flag::RECOVERY) {
            self.widen(id, data, flight);
            return;
        }
        let mss = u32::from(conn.mss);
        let recover = self
            .side_records
            .get(conn.side_record)
            .map_or(conn.oldest, |a| a.recover);
        if before(conn.oldest, recover) {
            conn.set(flag::SEND_AGAIN);
            self.counters.fast_again += 1;
            let left = (data / mss) as u16;
            conn.cwnd = (conn.cwnd.saturating_sub(left).max(1) + 1).min(WIDEST);
        } else {
            conn.clear(flag::RECOVERY);
            conn.cwnd = conn.threshold;
        }
    }

    /// Grows the congestion window after `data` of `flight` bytes in flight were acknowledged.
    #[inline]
    pub(super) fn widen(&mut self, id: u32, data: u32, flight: u32) {
        let conn = self.table.slab.get(id);
        let mss = u32::from(conn.mss);
        if data == 0 || !window_was_used(conn, flight) {
            // An unused window shows nothing about the path: RFC 7661 section 4.3.
        } else if conn.cwnd < conn.threshold {
            // Byte counting, limited to two segments, or to one after a timeout: RFC 3465 section 2.3.
            let two = data > mss && !conn.has(flag::REWOUND);
            conn.cwnd = (conn.cwnd + if two { 2 } else { 1 }).min(WIDEST);
        } else {
            // One segment per acknowledged window: whenever a multiple of the window is passed.
            let window = u32::from(conn.cwnd) * mss;
            if conn.oldest.wrapping_sub(data) / window != conn.oldest / window {
                conn.cwnd = (conn.cwnd + 1).min(WIDEST);
            }
        }
    }

    /// Handles a duplicate acknowledgement: RFC 5681 section 3.2.
    #[inline(never)]
    fn duplicate(&mut self, id: u32) {
        self.counters.duplicate_acks += 1;
        let conn = self.table.slab.get(id);
        if conn.has(flag::RECOVERY) {
            conn.cwnd = (conn.cwnd + 1).min(WIDEST);
            return;
        }
        if conn.has(flag::REWOUND) && !self.is_dperf {
            // Retransmissions after a timeout cause duplicate acknowledgements: RFC 6582 section 4.
            return;
        }
        let Some(side_record) = self.side_records.get_or_allocate(&mut conn.side_record) else {
            return;
        };
        side_record.duplicates = (side_record.duplicates + 1) % 4;
        if side_record.duplicates != 3 {
            return;
        }
        self.counters.fast_again += 1;
        conn.set(flag::SEND_AGAIN);
        conn.packed &= !pack::TIMING;
        if self.is_dperf {
            conn.cwnd = 1;
            return;
        }
        conn.threshold = half(conn.in_flight(), conn.mss.into());
        conn.cwnd = (conn.threshold + 3).min(WIDEST);
        side_record.recover = conn.next_seq;
        conn.set(flag::RECOVERY);
    }

    fn in_syn_sent(&mut self, now: u64, id: u32, packet: &Packet<'_>, sink: &mut impl FrameSink) {
        let conn = self.table.slab.get(id);
        let acks_ours = packet.flags & ACK != 0 && packet.ack == conn.oldest.wrapping_add(1);
        if packet.flags & ACK != 0 && !acks_ours {
            self.counters.drop_ack += 1;
            if packet.flags & RST == 0 && self.config.style == Behaviour::Native {
                let key = conn.key;
                // The reset ends an earlier connection that the peer still remembers, so the SYN need not wait for its
                // timer. Only once, because a peer may answer every SYN like this.
                let goes_again = !conn.has(flag::REWOUND);
                if goes_again {
                    conn.set(flag::SEND_SYN | flag::REWOUND);
                }
                self.answer_reset(&key, packet, sink);
                if goes_again {
                    self.output(now, id, sink);
                }
            }
            return;
        }
        if packet.flags & RST != 0 {
            if acks_ours {
                self.fail(now, id, Cause::Refused);
            }
            return;
        }
        if packet.flags & (SYN | ACK) != SYN | ACK {
            self.counters.drop_flags += 1;
            return;
        }
        let options = syn_options(packet.options);
        conn.state = ConnectionState::Open;
        conn.oldest = packet.ack;
        conn.next_seq = packet.ack;
        conn.expected = packet.seq.wrapping_add(1);
        conn.window = packet.window;
        // The window of a SYN is not scaled (RFC 7323 section 2.2); scaling starts with the next segment.
        conn.mss = segment_size(
            self.config.mss,
            options.mss,
            &self.path_mss,
            conn.key.remote,
        );
        conn.cwnd = self.config.initial_window;
        conn.expiries = 0;
        if !conn.has(flag::REWOUND) {
            conn.rtt.sample(now.saturating_sub(conn.stamp));
        }
        if options.sack && !self.is_dperf {
            conn.packed |= pack::SACK;
        }
        conn.clear(flag::SEND_SYN | flag::REWOUND);
        conn.set(flag::SEND_ACK);
        if let Some(client) = self.client.as_ref().filter(|client| client.flood) {
            // A peer answers the flood: the SYNs were no requests of this connection.
            conn.requests = client.requests.unwrap_or(ENDLESS);
        }
        self.counters.established += 1;
        let since = conn.stamp;
        self.observer.connected(self.until_came(now, since));
        if !self.paced {
            let late = self.table.slab.get(id).lateness;
            self.ask_again(now, now, id);
            if self.client.as_ref().is_some_and(|c| c.interval == 0) {
                // The first requests have the lateness of the connection.
                self.table.slab.get(id).lateness = late;
                if self.remembers {
                    self.note_lateness(id, late);
                }
            }
        } else if self.finishing {
            let how = self.client.as_ref().map_or(Close::Fin, |c| c.close);
            self.close(now, id, how);
        } else {
            self.pause(now, id, false);
        }
        self.output(now, id, sink);
        let conn = self.table.slab.get(id);
        if conn.state == ConnectionState::Open {
            conn.packed = conn.packed & 0xf0 | options.scale.unwrap_or(0);
            self.restart_timer(now, id);
        }
    }

    #[inline(never)]
    fn in_time_wait(&mut self, now: u64, id: u32, packet: &Packet<'_>, sink: &mut impl FrameSink) {
        let conn = self.table.slab.get(id);
        if packet.flags & RST != 0 {
            // RST is ignored in TIME_WAIT: RFC 1337 section 3.
            return;
        }
        if packet.flags & (SYN | ACK) == SYN && before(conn.expected, packet.seq) {
            // A new connection may replace the old one: RFC 9293 section 3.10.7.4.
            let key = conn.key;
            self.remove(now, id);
            let hash = self.table.hash(&key);
            self.unknown_segment(now, key, hash, packet, sink);
            return;
        }
        if !packet.payload.is_empty() || packet.flags & (FIN | SYN) != 0 {
            self.counters.ack_again += 1;
            conn.set(flag::SEND_ACK);
            conn.stamp = now;
            self.output(now, id, sink);
            self.restart_timer(now, id);
        }
    }

    /// Handles RST, SYN, or a missing ACK flag.
    #[inline(never)]
    fn unusual(&mut self, now: u64, id: u32, packet: &Packet<'_>, sink: &mut impl FrameSink) {
        let conn = self.table.slab.get(id);
        if packet.flags & RST != 0 {
            let distance = packet.seq.wrapping_sub(conn.expected);
            if distance == 0 || self.is_dperf {
                let acked = packet.ack.wrapping_sub(conn.oldest);
                let all = conn.queued_len
                    + u32::from(conn.has(flag::FIN_SENT))
                    + u32::from(conn.state == ConnectionState::SynReceived);
                let acks_all = conn.queued_len == 0 || packet.flags & ACK != 0 && acked == all;
                self.reset(now, id, acks_all);
            } else if distance < WINDOW {
                // Challenge ACK: RFC 5961 section 3.2.
                self.counters.drop_sequence += 1;
                conn.set(flag::SEND_ACK);
                self.output(now, id, sink);
            } else {
                self.counters.drop_sequence += 1;
            }
            return;
        }
        if packet.flags & SYN != 0 {
            let again = packet.seq.wrapping_add(1) == conn.expected;
            if conn.state == ConnectionState::SynReceived && again && packet.flags & ACK == 0 {
                // dperf repeats its SYN-ACK only after a second.
                if !self.is_dperf || now.saturating_sub(conn.stamp) > 1_000_000_000 {
                    conn.set(flag::SEND_SYN | flag::REWOUND);
                } else {
                    self.counters.drop_flags += 1;
                }
            } else if conn.state == ConnectionState::Open {
                // Duplicate SYN-ACK, or a challenge ACK: RFC 5961 section 4.2.
                if again {
                    self.counters.ack_again += 1;
                } else {
                    self.counters.drop_flags += 1;
                }
                conn.set(flag::SEND_ACK);
            } else {
                self.counters.drop_flags += 1;
            }
            self.output(now, id, sink);
            return;
        }
        self.counters.drop_flags += 1;
    }

    /// Handles an accepted RST of the peer.
    fn reset(&mut self, now: u64, id: u32, acks_all: bool) {
        let conn = self.table.slab.get(id);
        // A server is done when all its answers arrived, regardless of how the connection ends.
        let done = if self.client.is_some() {
            conn.has(flag::DONE)
        } else {
            conn.state == ConnectionState::Open && conn.has(flag::DONE) && acks_all
        };
        if done {
            self.counters.completed_by_reset += 1;
            self.complete(now, id);
        } else {
            self.fail(now, id, Cause::Reset);
        }
    }
}

/// Returns true if the congestion window was in full use before an acknowledgement. In slow start half of it is enough,
/// because the window doubles before it can be filled.
#[inline]
fn window_was_used(conn: &Conn, flight: u32) -> bool {
    let window = u32::from(conn.cwnd) * u32::from(conn.mss);
    if conn.cwnd < conn.threshold {
        window < 2 * flight
    } else {
        window <= flight + u32::from(conn.mss)
    }
}
