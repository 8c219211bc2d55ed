//! Requests sent on demand over idle connections, and closing of surplus connections.
//!
//! Idle connections wait in a queue. Each entry has a ticket that the connection also stores. An entry is skipped if
//! its connection has gone or was used in the meantime.

use super::Machine;
use crate::build::{FrameSink, Repeated};
use crate::config::Close;
use crate::connection::{Conn, ConnectionState, ENDLESS, flag};
use crate::observer::Observer;
use crate::timer::NONE;

/// Maximum number of records inspected per call for surplus connections.
const SWEEP: u32 = 256;
/// Minimum number of datagrams of one flow for which the frame is built only once.
const WORTH_REPEATING: u32 = 4;

/// Prebuilt datagram of one flow.
#[derive(Debug)]
pub(super) struct PrebuiltDatagram {
    pub(super) owner: u32,
    frame: Repeated,
}

impl PrebuiltDatagram {
    pub(super) fn new() -> Self {
        Self {
            owner: NONE,
            frame: Repeated::default(),
        }
    }
}

/// Lateness of several actions, performed one after the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LatenessSeries {
    /// Lateness of the first action, in ns.
    pub first: u64,
    /// Decrease of the lateness from one action to the next, in ns.
    pub step: u64,
}

impl LatenessSeries {
    /// All actions are on time.
    pub const NOT: Self = Self { first: 0, step: 0 };

    /// Lateness of one action, in ns.
    #[inline]
    pub(super) fn of_action(self, number: u32) -> u64 {
        let made_up = self.step.saturating_mul(number.into());
        self.first.saturating_sub(made_up)
    }
}

impl<O: Observer> Machine<O> {
    /// Sends up to `n` requests of a [paced](crate::Client::paced) client over idle connections, the longest idle
    /// first. Returns the number sent, which is smaller if no idle connection is left or the sink has no room. A UDP
    /// flow and a SYN of a flood always count as idle.
    pub fn ask(&mut self, now: u64, n: u32, sink: &mut impl FrameSink) -> u32 {
        self.ask_late(now, n, LatenessSeries::NOT, sink)
    }

    /// Like [`Machine::ask`], for requests that are sent later than they were due.
    pub fn ask_late(
        &mut self,
        now: u64,
        n: u32,
        late: LatenessSeries,
        sink: &mut impl FrameSink,
    ) -> u32 {
        let mut asked = 0;
        if self.finishing || !self.paced {
            return 0;
        }
        while asked < n && self.left > 0 && sink.lend().is_some() {
            let Some(id) = self.next_idle() else {
                break;
            };
            let late = LatenessSeries {
                first: late.of_action(asked),
                ..late
            };
            match self.ask_one(now, id, n - asked, late, sink) {
                0 => break,
                sent => asked += sent,
            }
        }
        asked
    }

    /// Sends one request for each entry of `late`, its lateness in ns, back to back over the connection that has waited
    /// longest. Stops at the number that the connection may have in flight. Returns the number sent; 0 if no connection
    /// waits or the sink has no room.
    pub fn ask_each(&mut self, now: u64, late: &[u64], sink: &mut impl FrameSink) -> usize {
        if self.finishing || !self.paced || late.is_empty() || sink.lend().is_none() {
            return 0;
        }
        let Some(id) = self.next_with_room() else {
            return 0;
        };
        let most = u16::try_from(late.len()).unwrap_or(u16::MAX);
        let n = most.min(self.free_requests(id));
        // If something is in flight, the timer already runs.
        let restart = self.table.slab.get(id).in_flight() == 0;
        let n = self.queue_requests(now, id, n, |i| late[usize::from(i)]);
        if n == 0 || self.free_requests(id) > 0 {
            self.enqueue_idle(id);
        }
        if n > 0 {
            self.send_and_set_timer(now, id, restart, sink);
        }
        n.into()
    }

    /// Returns true if [`Machine::ask`] may find an idle connection.
    #[inline]
    pub fn can_ask(&self) -> bool {
        !self.resting.is_empty()
    }

    /// Switches between requests sent by the machine and requests sent only by [`Machine::ask`].
    pub fn set_paced(&mut self, now: u64, paced: bool) {
        let (pipeline, interval) = match &self.client {
            Some(client) if self.paced != paced => (client.pipeline.max(1), client.interval),
            _ => return,
        };
        self.paced = paced;
        if paced {
            for id in 0..self.table.slab.extent() {
                if !self.is_ready_for_request(id) {
                    continue;
                }
                let conn = self.table.slab.get(id);
                if conn.state == ConnectionState::Open {
                    conn.stamp = u64::MAX;
                }
                self.enqueue_idle(id);
            }
            return;
        }
        while let Some(id) = self.next_idle() {
            let conn = self.table.slab.get(id);
            if conn.state == ConnectionState::Udp {
                conn.stamp = now;
                let waiting = u16::try_from(conn.waiting()).unwrap_or(u16::MAX);
                let n = match interval {
                    0 => pipeline.saturating_sub(waiting),
                    _ => pipeline,
                };
                self.queue_datagrams(id, n);
                self.set_datagram_timer(id);
                let conn = self.table.slab.get(id);
                Self::enqueue(&mut self.queue, conn, id);
            } else {
                conn.stamp = now;
                self.wheel.set(&mut self.table.slab, id, now);
            }
        }
    }

    /// Returns true if a request may be sent on the connection.
    fn is_ready_for_request(&mut self, id: u32) -> bool {
        let flood = self.client.as_ref().is_some_and(|client| client.flood);
        let conn = self.table.slab.get(id);
        match conn.state {
            ConnectionState::Udp => conn.requests > 0,
            ConnectionState::Open => conn.has(flag::PAUSED),
            ConnectionState::SynSent => flood,
            _ => false,
        }
    }

    /// Adds a connection to the end of the queue of idle connections.
    #[inline]
    pub(super) fn enqueue_idle(&mut self, id: u32) {
        if self.resting.len() > 64 + 2 * self.table.len() as usize {
            // Most entries are stale.
            let slab = &mut self.table.slab;
            self.resting
                .retain(|(id, ticket)| slab.get(*id).lateness == *ticket);
        }
        self.ticket = self.ticket.wrapping_add(1).max(1);
        self.table.slab.get(id).lateness = self.ticket;
        self.resting.push_back((id, self.ticket));
    }

    #[inline]
    fn next_idle(&mut self) -> Option<u32> {
        while let Some((id, ticket)) = self.resting.pop_front() {
            if self.table.slab.get(id).lateness == ticket && self.is_ready_for_request(id) {
                self.table.slab.get(id).lateness = 0;
                return Some(id);
            }
        }
        None
    }

    /// Like `next_idle`, but also returns connections in use that may have more requests in flight.
    fn next_with_room(&mut self) -> Option<u32> {
        while let Some((id, ticket)) = self.resting.pop_front() {
            if self.table.slab.get(id).lateness != ticket {
                continue;
            }
            if self.is_ready_for_request(id) || self.slides && self.free_requests(id) > 0 {
                self.table.slab.get(id).lateness = 0;
                return Some(id);
            }
        }
        None
    }

    /// Number of additional requests that an open connection may have in flight.
    pub(super) fn free_requests(&mut self, id: u32) -> u16 {
        let pipeline = self.client.as_ref().map_or(1, |c| c.pipeline.max(1));
        let conn = self.table.slab.get(id);
        let ends = flag::FIN_QUEUED | flag::FIN_RECEIVED | flag::SEND_RST;
        if conn.state != ConnectionState::Open || conn.has(ends) {
            return 0;
        }
        pipeline.saturating_sub(conn.outstanding).min(conn.requests)
    }

    #[inline]
    fn ask_one(
        &mut self,
        now: u64,
        id: u32,
        most: u32,
        late: LatenessSeries,
        sink: &mut impl FrameSink,
    ) -> u32 {
        let pipeline = self.client.as_ref().map_or(1, |c| c.pipeline.max(1));
        let conn = self.table.slab.get(id);
        let left = match conn.requests {
            ENDLESS => most,
            n => most.min(n.into()),
        };
        let n = left.min(pipeline.into());
        match conn.state {
            ConnectionState::Udp => {
                // No other flow waits for its turn, so this one sends all.
                let n = if self.resting.is_empty() { left } else { n };
                let sent = self.send_flow(now, id, n, late, sink);
                if self.table.slab.get(id).requests > 0 {
                    self.enqueue_idle(id);
                } else {
                    self.end_if_over(now, id);
                }
                sent
            }
            ConnectionState::SynSent => {
                self.next_syn(now, id, sink);
                if self.table.slab.get(id).requests == 0 {
                    self.complete(now, id);
                } else {
                    self.enqueue_idle(id);
                }
                1
            }
            _ => {
                let n = self.queue_requests(now, id, n as u16, |i| late.of_action(i.into()));
                if n == 0 {
                    // No room to record the requests.
                    self.enqueue_idle(id);
                    return 0;
                }
                self.send_and_set_timer(now, id, true, sink);
                n.into()
            }
        }
    }

    /// Sends datagrams of one flow while there is room, and returns their number.
    fn send_flow(
        &mut self,
        now: u64,
        id: u32,
        n: u32,
        late: LatenessSeries,
        sink: &mut impl FrameSink,
    ) -> u32 {
        let is_repeated = self.flow.owner == id || n >= WORTH_REPEATING || self.table.len() == 1;
        let mut sent = 0;
        let mut octets = 0;
        let plain = self.builder.outer().is_none()
            && self.destinations.is_none()
            && self.snmp_id_at.is_none()
            && self.alternate.is_none();
        if is_repeated && plain {
            if self.flow.owner != id {
                self.repeat_flow(id, sink);
            }
            while sent < n {
                let Some(out) = sink.lend() else { break };
                let number = self.remember(now, id, late.of_action(sent));
                let number = number.map(|number| self.requests.write(number, now));
                let len = self.builder.again(&self.flow.frame, number.as_ref(), out);
                sink.commit(len);
                octets += len as u64;
                sent += 1;
            }
        } else {
            while sent < n {
                let lateness = late.of_action(sent);
                let Some(len) = self.send_datagram(now, id, lateness, sink) else {
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
        let conn = self.table.slab.get(id);
        if conn.requests != ENDLESS {
            conn.requests -= sent as u16;
        }
        sent
    }

    /// Builds the datagram of a flow for repeated use.
    #[cold]
    fn repeat_flow(&mut self, id: u32, sink: &mut impl FrameSink) {
        let Some(out) = sink.lend() else { return };
        let conn = self.table.slab.get(id);
        let path = Self::path(&self.hops, &self.local, &conn.key, 0);
        let text = &self.text;
        let len = self
            .builder
            .udp(out, &path, text.len() as usize, |to| text.write(0, to));
        self.flow = PrebuiltDatagram {
            owner: id,
            frame: self.builder.remember(&out[..len], &path),
        };
    }

    /// Marks a connection as idle after its last answer, until the caller asks again. A pending acknowledgement waits
    /// for the next request, but for at most `ack_delay`.
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
        self.enqueue_idle(id);
    }

    /// Closes client connections beyond `most` and counts them as completed: idle connections first, a few per call,
    /// the others after their next answer. Call this in every iteration.
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
                let Some(id) = self.next_idle() else {
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
            if self.surplus > 0 && self.is_ready_for_request(id) {
                self.surplus -= 1;
                self.close_resting(now, id);
            }
        }
    }

    /// Closes an idle connection.
    pub(super) fn close_resting(&mut self, now: u64, id: u32) {
        let how = self.client.as_ref().map_or(Close::Fin, |c| c.close);
        let conn = self.table.slab.get(id);
        match conn.state {
            ConnectionState::Open => {
                self.close(now, id, how);
                let conn = self.table.slab.get(id);
                Self::enqueue(&mut self.queue, conn, id);
            }
            ConnectionState::Udp => {
                // Answers on their way are still awaited.
                conn.requests = 0;
                self.close_begins(id);
                self.end_if_over(now, id);
            }
            _ => self.complete(now, id),
        }
    }

    /// Counts requests of an idle connection as unsent if they were due by `end`, the end of the run.
    pub(super) fn miss_requests(&mut self, id: u32, end: u64) {
        let Some(client) = &self.client else { return };
        let (interval, pipeline) = (client.interval, u64::from(client.pipeline.max(1)));
        let due = self.table.slab.get(id).stamp;
        if interval > 0 && !self.paced && due < end {
            self.counters.requests_unsent += ((end - due) / interval + 1) * pipeline;
        }
    }

    /// Marks a client connection as closing.
    #[inline]
    pub(super) fn close_begins(&mut self, id: u32) {
        let conn = self.table.slab.get(id);
        self.closing += u64::from(!conn.has(flag::DONE));
        conn.set(flag::DONE);
    }

    /// Removes a connection from the open ones.
    #[inline]
    pub(super) fn uncount(&mut self, id: u32) {
        self.counters.open -= 1;
        if self.client.is_some() {
            let conn: &mut Conn = self.table.slab.get(id);
            self.closing -= u64::from(conn.has(flag::DONE));
        }
    }
}
