//! Requests that go out when they are told to, over connections that rest, and connections that are
//! too many.
//!
//! Connections that rest stand in a queue. Each place has a ticket that the connection knows too; a
//! place whose connection has gone or been asked meanwhile is passed over.

use super::Machine;
use crate::build::{FrameSink, Repeated};
use crate::config::Close;
use crate::conn::{Conn, ENDLESS, State, flag};
use crate::observer::Observer;
use crate::timer::NONE;

/// Records looked at in one call for connections that are too many.
const SWEEP: u32 = 256;
/// From so many datagrams of a flow on, the frame is built once.
const WORTH_REPEATING: u32 = 4;

/// The datagram of one flow.
#[derive(Debug)]
pub(super) struct Flow {
    pub(super) owner: u32,
    frame: Repeated,
}

impl Flow {
    pub(super) fn new() -> Self {
        Self {
            owner: NONE,
            frame: Repeated::default(),
        }
    }
}

impl<O: Observer> Machine<O> {
    /// Sends up to `n` requests of a [paced](crate::Client::paced) client over its connections that
    /// rest, in turn, the one first that has rested longest, and says how many. Fewer when none is
    /// left or the sink has no room. A flow of UDP, and a SYN of a flood, always rests.
    pub fn ask(&mut self, now: u64, n: u32, sink: &mut impl FrameSink) -> u32 {
        let mut asked = 0;
        if self.finishing || !self.paced {
            return 0;
        }
        while asked < n && sink.lend().is_some() {
            let Some(id) = self.next_resting() else {
                break;
            };
            asked += self.ask_one(now, id, n - asked, sink);
        }
        asked
    }

    /// Whether [`Machine::ask`] may find somebody to ask.
    #[inline]
    pub fn can_ask(&self) -> bool {
        !self.resting.is_empty()
    }

    /// Whether requests go out by themselves or only by [`Machine::ask`], from now on.
    pub fn set_paced(&mut self, now: u64, paced: bool) {
        let pipeline = match &self.client {
            Some(client) if self.paced != paced => client.pipeline.max(1),
            _ => return,
        };
        self.paced = paced;
        if paced {
            for id in 0..self.table.slab.extent() {
                if !self.can_rest(id) {
                    continue;
                }
                let conn = self.table.slab.get(id);
                match conn.state {
                    State::Open => conn.stamp = u64::MAX,
                    State::Udp => conn.expected = conn.next_seq,
                    _ => {}
                }
                self.rest(id);
            }
            return;
        }
        while let Some(id) = self.next_resting() {
            let conn = self.table.slab.get(id);
            if conn.state == State::Udp {
                let n = pipeline.min(conn.requests);
                self.queue_datagrams(now, id, n);
                self.set_datagram_timer(id);
                let conn = self.table.slab.get(id);
                Self::enqueue(&mut self.queue, conn, id);
            } else {
                conn.stamp = now;
                self.wheel.set(&mut self.table.slab, id, now);
            }
        }
    }

    /// Whether a request may go out on a connection.
    fn can_rest(&mut self, id: u32) -> bool {
        let flood = self.client.as_ref().is_some_and(|client| client.flood);
        let conn = self.table.slab.get(id);
        match conn.state {
            State::Udp => conn.requests > 0,
            State::Open => conn.has(flag::PAUSED),
            State::SynSent => flood,
            _ => false,
        }
    }

    /// Puts a connection at the end of the queue.
    #[inline]
    pub(super) fn rest(&mut self, id: u32) {
        if self.resting.len() > 64 + 2 * self.table.len() as usize {
            // Mostly places of connections that have gone.
            let slab = &mut self.table.slab;
            self.resting
                .retain(|(id, ticket)| slab.get(*id).lateness == *ticket);
        }
        self.ticket = self.ticket.wrapping_add(1).max(1);
        self.table.slab.get(id).lateness = self.ticket;
        self.resting.push_back((id, self.ticket));
    }

    #[inline]
    fn next_resting(&mut self) -> Option<u32> {
        while let Some((id, ticket)) = self.resting.pop_front() {
            if self.table.slab.get(id).lateness == ticket && self.can_rest(id) {
                self.table.slab.get(id).lateness = 0;
                return Some(id);
            }
        }
        None
    }

    #[inline]
    fn ask_one(&mut self, now: u64, id: u32, most: u32, sink: &mut impl FrameSink) -> u32 {
        let pipeline = self.client.as_ref().map_or(1, |c| c.pipeline.max(1));
        let conn = self.table.slab.get(id);
        let left = match conn.requests {
            ENDLESS => most,
            n => most.min(n.into()),
        };
        let n = left.min(pipeline.into());
        match conn.state {
            State::Udp => {
                // Nobody else waits for a turn: all are its own.
                let n = if self.resting.is_empty() { left } else { n };
                let sent = self.send_flow(now, id, n, sink);
                if self.table.slab.get(id).requests > 0 {
                    self.rest(id);
                }
                sent
            }
            State::SynSent => {
                self.next_syn(now, id, sink);
                if self.table.slab.get(id).requests == 0 {
                    self.complete(now, id);
                } else {
                    self.rest(id);
                }
                1
            }
            _ => {
                self.queue_requests(now, id, n as u16);
                self.settle(now, id, true, sink);
                n
            }
        }
    }

    /// Sends datagrams of one flow while there is room, and says how many.
    fn send_flow(&mut self, now: u64, id: u32, n: u32, sink: &mut impl FrameSink) -> u32 {
        let is_repeated = self.flow.owner == id || n >= WORTH_REPEATING || self.table.len() == 1;
        let mut sent = 0;
        let mut octets = 0;
        let plain = self.builder.outer().is_none() && self.destinations.is_none();
        if is_repeated && plain {
            if self.flow.owner != id {
                self.repeat_flow(id, sink);
            }
            while sent < n {
                let Some(out) = sink.lend() else { break };
                let len = self.builder.again(&self.flow.frame, out);
                sink.commit(len);
                octets += len as u64;
                sent += 1;
            }
        } else {
            while sent < n {
                let Some(len) = self.send_datagram(id, sink) else {
                    break;
                };
                octets += len as u64;
                sent += 1;
            }
        }
        let counters = &mut self.counters;
        let all = u64::from(sent);
        counters.tx_frames += all;
        counters.tx_octets += octets;
        counters.udp_tx += all;
        counters.requests += all;
        counters.payload_tx += all * u64::from(self.text.len());
        let flood = self.client.as_ref().is_some_and(|client| client.flood);
        let conn = self.table.slab.get(id);
        conn.stamp = now;
        if conn.requests != ENDLESS {
            conn.requests -= sent as u16;
        }
        if !flood {
            conn.next_seq = conn.next_seq.wrapping_add(sent);
            if !conn.link.is_linked() {
                conn.expected = conn.next_seq;
                self.set_datagram_timer(id);
            }
        } else if conn.requests == 0 {
            self.set_datagram_timer(id);
        }
        sent
    }

    /// Builds the datagram of a flow, which is then sent again and again.
    #[cold]
    fn repeat_flow(&mut self, id: u32, sink: &mut impl FrameSink) {
        let Some(out) = sink.lend() else { return };
        let conn = self.table.slab.get(id);
        let path = Self::path(&self.hops, &self.local, &conn.key, conn.hop);
        let text = &self.text;
        let len = self
            .builder
            .udp(out, &path, text.len() as usize, |to| text.write(0, to));
        self.flow = Flow {
            owner: id,
            frame: self.builder.remember(&out[..len], &path),
        };
    }

    /// An answer is complete and the next request will be told: the connection rests. What is to be
    /// acknowledged waits for the request to carry it, but for no longer than `ack_delay`.
    pub(super) fn pause(&mut self, now: u64, id: u32, owes_ack: bool) {
        let patience = self.config.ack_delay;
        let conn = self.table.slab.get(id);
        conn.set(flag::PAUSED);
        conn.clear(flag::ACK_LATER);
        conn.stamp = if owes_ack && patience != u64::MAX {
            now.saturating_add(patience)
        } else {
            u64::MAX
        };
        self.rest(id);
    }

    /// Closes connections of a client beyond `most`, and counts them as completed: those that rest
    /// first, a few at each call, the others after their next answer. Call it at every turn.
    pub fn close_down_to(&mut self, now: u64, most: u64) {
        let excess = (self.counters.open - self.closing).saturating_sub(most);
        self.surplus = u32::try_from(excess).unwrap_or(u32::MAX);
        if excess > 0 && !self.finishing {
            self.close_surplus(now);
        }
    }

    #[cold]
    fn close_surplus(&mut self, now: u64) {
        if self.paced {
            for _ in 0..self.surplus.min(SWEEP) {
                let Some(id) = self.next_resting() else {
                    return;
                };
                self.surplus -= 1;
                self.close_resting(now, id);
            }
            return;
        }
        let extent = self.table.slab.extent();
        for _ in 0..extent.min(SWEEP) {
            self.sweep = if self.sweep < extent { self.sweep } else { 0 };
            let id = self.sweep;
            self.sweep += 1;
            if self.surplus > 0 && self.can_rest(id) {
                self.surplus -= 1;
                self.close_resting(now, id);
            }
        }
    }

    /// Closes a connection that rests.
    pub(super) fn close_resting(&mut self, now: u64, id: u32) {
        let how = self.client.as_ref().map_or(Close::Fin, |c| c.close);
        let conn = self.table.slab.get(id);
        match conn.state {
            State::Open => {
                self.close(now, id, how);
                let conn = self.table.slab.get(id);
                Self::enqueue(&mut self.queue, conn, id);
            }
            State::Udp if conn.in_flight() > 0 || conn.queued_len > 0 => {
                // Answers that are on their way are waited for.
                conn.requests = 0;
                self.close_begins(id);
                self.set_datagram_timer(id);
            }
            _ => self.complete(now, id),
        }
    }

    /// A client's connection has begun to close.
    #[inline]
    pub(super) fn close_begins(&mut self, id: u32) {
        let conn = self.table.slab.get(id);
        self.closing += u64::from(!conn.has(flag::DONE));
        conn.set(flag::DONE);
    }

    /// A connection is no longer open.
    #[inline]
    pub(super) fn uncount(&mut self, id: u32) {
        self.counters.open -= 1;
        if self.client.is_some() {
            let conn: &mut Conn = self.table.slab.get(id);
            self.closing -= u64::from(conn.has(flag::DONE));
        }
    }
}
