//! UDP: a server that answers at once and remembers nothing, a client that counts what is missing.

use super::{Cause, Machine, after};
use crate::build::FrameSink;
use crate::conn::{ENDLESS, Key, before, flag};
use crate::observer::Observer;
use crate::parse::Packet;
use crate::source::{Proxy, read_proxy, uoa};

/// Periods that are made up for at most.
const MOST_MISSED: u64 = 63;
/// While more than this wait for room, none is added.
const MOST_WAITING: u32 = 1 << 12;

impl<O: Observer> Machine<O> {
    #[inline]
    pub(super) fn datagram(
        &mut self,
        now: u64,
        key: Key,
        packet: &Packet<'_>,
        sink: &mut impl FrameSink,
    ) {
        if self.is_tcp {
            self.counters.drop_datagram += 1;
        } else if self.client.is_none() {
            self.answer_datagram(key, packet, sink);
        } else {
            let hash = self.table.hash(&key);
            match self.table.find(&key, hash) {
                Some(id) => self.datagram_answered(now, id, packet, sink),
                None => self.counters.drop_datagram += 1,
            }
        }
    }

    #[inline]
    fn answer_datagram(&mut self, key: Key, packet: &Packet<'_>, sink: &mut impl FrameSink) {
        let listens = (self.server.ports.0..=self.server.ports.1).contains(&key.local_port());
        if !listens || !self.may_answer(packet) {
            self.counters.drop_datagram += 1;
            return;
        }
        let mut payload = packet.payload;
        if !packet.options.is_empty()
            && let Some((address, port)) = uoa(packet.options)
        {
            self.counters.uoa_seen += 1;
            self.observer.source(address, port);
            if payload.is_empty() {
                // Sent for the address alone.
                return;
            }
        }
        if self.server.proxy
            && !payload.is_empty()
            && let Proxy::Header { len, source } = read_proxy(payload)
        {
            self.counters.proxy_seen += 1;
            payload = &payload[len..];
            if let Some((address, port)) = source {
                self.observer.source(address, port);
            }
        }
        self.counters.requests += 1;
        self.counters.payload_rx += payload.len() as u64;
        if self.server.sink {
            return;
        }
        let hop = self.hop(packet.src_mac);
        let Some(out) = sink.lend() else {
            self.counters.drop_no_room += 1;
            return;
        };
        let path = Self::path(&self.hops, &self.local, &key, hop);
        let (text, echo) = (&self.text, self.server.echo);
        let len = if echo {
            payload.len().min(crate::message::LONGEST_PAYLOAD)
        } else {
            text.len() as usize
        };
        let frame = self.builder.udp(out, &path, len, |to| {
            if echo {
                to.copy_from_slice(&payload[..len]);
                wb_wire::checksum::sum(to)
            } else {
                text.write(0, to)
            }
        });
        sink.commit(frame);
        self.counters.responses += 1;
        self.count_datagram(frame, len);
    }

    #[inline]
    fn count_datagram(&mut self, frame: usize, payload: usize) {
        self.counters.tx_frames += 1;
        self.counters.tx_octets += frame as u64;
        self.counters.udp_tx += 1;
        self.counters.payload_tx += payload as u64;
    }

    /// Queues the next datagrams of a connection and sends them.
    pub(super) fn ask_datagrams(&mut self, now: u64, id: u32, sink: &mut impl FrameSink) {
        let Some(client) = &self.client else { return };
        let conn = self.table.slab.get(id);
        let n = client.pipeline.max(1).min(conn.requests);
        self.queue_datagrams(now, id, n);
        self.send_datagrams(now, id, sink);
        self.set_datagram_timer(id);
    }

    pub(super) fn queue_datagrams(&mut self, now: u64, id: u32, n: u16) {
        let conn = self.table.slab.get(id);
        if conn.requests != ENDLESS {
            conn.requests -= n;
        }
        conn.stamp = now;
        // Datagrams to be sent, not bytes.
        conn.queued_len += u32::from(n);
    }

    pub(super) fn send_datagrams(&mut self, _now: u64, id: u32, sink: &mut impl FrameSink) {
        let flood = self.client.as_ref().is_some_and(|client| client.flood);
        loop {
            let conn = self.table.slab.get(id);
            if conn.queued_len == 0 {
                return;
            }
            let Some(frame) = self.send_datagram(id, sink) else {
                let conn = self.table.slab.get(id);
                Self::enqueue(&mut self.queue, conn, id);
                return;
            };
            let conn = self.table.slab.get(id);
            conn.queued_len -= 1;
            conn.next_seq = conn.next_seq.wrapping_add(u32::from(!flood));
            self.counters.requests += 1;
            self.count_datagram(frame, self.text.len() as usize);
        }
    }

    /// Writes a datagram of a connection, if there is room, and gives the length of its frame.
    #[inline]
    pub(super) fn send_datagram(&mut self, id: u32, sink: &mut impl FrameSink) -> Option<usize> {
        let out = sink.lend()?;
        let conn = self.table.slab.get(id);
        let mut path = Self::path(&self.hops, &self.local, &conn.key, conn.hop);
        if let Some(to) = &mut self.destinations {
            path.remote = to.take();
        }
        let text = &self.text;
        let len = text.len() as usize;
        let frame = self.builder.udp(out, &path, len, |to| text.write(0, to));
        sink.commit(frame);
        Some(frame)
    }

    pub(super) fn set_datagram_timer(&mut self, id: u32) {
        let Some(client) = &self.client else { return };
        let conn = self.table.slab.get(id);
        let period = if self.paced {
            self.config.response_timeout
        } else if conn.requests > 0 && client.interval > 0 {
            client.interval
        } else if self.is_dperf && client.requests != Some(1) {
            // dperf waits for ever for what keeps the flow going.
            return;
        } else if self.is_dperf {
            self.config.retransmission.after
        } else {
            self.config.response_timeout
        };
        let due = after(conn.stamp, period);
        self.wheel.set(&mut self.table.slab, id, due);
    }

    fn datagram_answered(
        &mut self,
        now: u64,
        id: u32,
        packet: &Packet<'_>,
        sink: &mut impl FrameSink,
    ) {
        let Some(client) = &self.client else { return };
        let (interval, flood) = (client.interval, client.flood);
        let conn = self.table.slab.get(id);
        self.counters.payload_rx += packet.payload.len() as u64;
        let in_flight = conn.in_flight();
        if in_flight == 0 {
            self.counters.udp_unasked += u64::from(!flood);
            return;
        }
        conn.oldest = conn.oldest.wrapping_add(1);
        let ns = now.saturating_sub(conn.stamp);
        if !conn.has(flag::ANSWERED) {
            conn.set(flag::ANSWERED);
            self.counters.established += 1;
            self.observer.connected(ns);
        }
        self.counters.responses += 1;
        if in_flight == 1 || !self.paced {
            // With several in flight nobody knows which one this answers.
            self.observer.first_byte(ns);
            self.observer.answered(ns);
        }
        if conn.requests == 0 || self.finishing {
            if in_flight == 1 && conn.queued_len == 0 {
                self.complete(now, id);
            }
        } else if interval == 0 && !self.paced {
            self.queue_datagrams(now, id, 1);
            self.send_datagrams(now, id, sink);
            self.set_datagram_timer(id);
        }
    }

    /// An interval, or the time for an answer, is over.
    pub(super) fn datagram_due(&mut self, now: u64, id: u32, sink: &mut impl FrameSink) {
        let Some(client) = &self.client else { return };
        let (interval, pipeline) = (client.interval, client.pipeline.max(1));
        let conn = self.table.slab.get(id);
        if self.paced && conn.requests > 0 && !self.finishing {
            return self.look_for_lost(now, id);
        }
        let period = if conn.requests > 0 && interval > 0 {
            interval
        } else if self.is_dperf {
            self.config.retransmission.after
        } else {
            self.config.response_timeout
        };
        let due = after(conn.stamp, period);
        if now < due {
            self.wheel.set(&mut self.table.slab, id, due);
            return;
        }
        let missing = u64::from(conn.in_flight());
        conn.oldest = conn.next_seq;
        let is_done = conn.has(flag::DONE);
        let heard = conn.has(flag::ANSWERED);
        self.counters.udp_lost += missing;
        if conn.requests == 0 || self.finishing {
            if missing == 0 || is_done || (heard && self.is_dperf) {
                self.complete(now, id);
            } else {
                self.fail(now, id, Cause::Response);
            }
            return;
        }
        if interval == 0 {
            self.ask_datagrams(now, id, sink);
            return;
        }
        // Periods follow each other without drift; those that were missed are made up for.
        let periods = ((now - due) / interval).min(MOST_MISSED);
        let n = (periods as u16 + 1).saturating_mul(pipeline);
        let is_stuck = conn.queued_len > MOST_WAITING;
        if !is_stuck {
            let n = n.min(conn.requests);
            self.queue_datagrams(now, id, n);
            self.send_datagrams(now, id, sink);
        }
        let conn = self.table.slab.get(id);
        conn.stamp = if periods < MOST_MISSED {
            due + periods * interval
        } else {
            now
        };
        self.set_datagram_timer(id);
    }

    /// Of a flow that is asked again and again: what was sent by the last look, and is not answered
    /// by now, is lost.
    fn look_for_lost(&mut self, now: u64, id: u32) {
        let conn = self.table.slab.get(id);
        let lost = conn.expected.wrapping_sub(conn.oldest);
        if before(conn.oldest, conn.expected) {
            conn.oldest = conn.expected;
            self.counters.udp_lost += u64::from(lost);
        }
        conn.expected = conn.next_seq;
        if conn.in_flight() > 0 {
            let due = after(now, self.config.response_timeout);
            self.wheel.set(&mut self.table.slab, id, due);
        }
    }
}
