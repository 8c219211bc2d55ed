//! UDP: a server that answers at once and keeps no state, and a client that tracks the outcome of each request.
//!
//! At every instant requests = responses + lost + in flight + unawaited (requests of a flood). If the payload has room,
//! a request carries its number and time. An answer that returns them is matched to its request, even if it is late,
//! out of order or a duplicate. Any other answer is attributed to the oldest request of the flow, and the measured time
//! is an estimate ([`crate::Counters::udp_by_order`]).

use wb_services::snmp;

use super::{Cause, Machine, after};
use crate::build::FrameSink;
use crate::connection::{Conn, ENDLESS, Key, flag};
use crate::observer::Observer;
use crate::original_source::{Proxy, read_proxy, uoa};
use crate::outstanding::{FoundRequest, NUMBER_LEN, RequestState};
use crate::parse::Packet;

/// UDP flow: at least one request was sent. These flags reuse bits that only TCP needs.
const ASKED: u16 = flag::WAITING;
/// UDP flow: a request was lost.
const LOST: u16 = flag::RECOVERY;
/// UDP flow: answers return request numbers.
const NUMBERED: u16 = flag::REWOUND;

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
                None => self.answer_of_no_flow(packet.payload),
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
                // The datagram only carried the address.
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
        let Some(out) = sink.lend() else {
            self.counters.drop_no_room += 1;
            return;
        };
        let mut path = Self::path(&self.hops, &self.local, &key, 0);
        if self.config.gateway.is_none() {
            path.to.0 = *packet.src_mac;
        }
        let (text, echo) = (&self.text, self.server.echo);
        let len = if echo {
            payload.len().min(crate::message::LONGEST_PAYLOAD)
        } else {
            text.len() as usize
        };
        let number = payload.first_chunk::<NUMBER_LEN>();
        let number = number.filter(|_| self.server.returns_numbers && len >= NUMBER_LEN);
        let frame = self.builder.udp(out, &path, len, |to| {
            if echo {
                to.copy_from_slice(&payload[..len]);
                wb_wire::checksum::sum(to)
            } else if let Some(number) = number {
                text.write_after(number, to)
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

    /// Queues and sends the first datagrams of a flow.
    pub(super) fn ask_datagrams(&mut self, now: u64, id: u32, sink: &mut impl FrameSink) {
        let pipeline = self.pipeline();
        self.table.slab.get(id).stamp = now;
        self.queue_datagrams(id, pipeline);
        self.set_datagram_timer(id);
        self.send_datagrams(now, id, sink);
    }

    #[inline]
    fn pipeline(&self) -> u16 {
        self.client.as_ref().map_or(1, |c| c.pipeline.max(1))
    }

    /// Queues `n` more datagrams, or fewer if the flow has fewer left.
    pub(super) fn queue_datagrams(&mut self, id: u32, n: u16) {
        let conn = self.table.slab.get(id);
        let n = n.min(conn.requests);
        if conn.requests != ENDLESS {
            conn.requests -= n;
        }
        // For UDP, `queued_len` counts datagrams, not bytes.
        conn.queued_len += u32::from(n);
    }

    /// Sends queued datagrams while there is room. This may end the flow.
    pub(super) fn send_datagrams(&mut self, now: u64, id: u32, sink: &mut impl FrameSink) {
        let Some(client) = &self.client else { return };
        let interval = client.interval;
        let pipeline = u64::from(self.pipeline());
        loop {
            let conn = self.table.slab.get(id);
            if conn.queued_len == 0 {
                if !self.paced {
                    conn.lateness = 0;
                }
                return self.end_if_over(now, id);
            }
            // The last ones were due at `stamp`, each batch before them one interval earlier.
            let early = match interval {
                0 => 0,
                _ => u64::from(conn.queued_len - 1) / pipeline * interval,
            };
            let mut lateness = now.saturating_sub(conn.stamp.saturating_sub(early));
            if !self.paced {
                lateness += u64::from(conn.lateness);
            }
            let Some(frame) = self.send_datagram(now, id, lateness, sink) else {
                let conn = self.table.slab.get(id);
                Self::enqueue(&mut self.queue, conn, id);
                return;
            };
            self.table.slab.get(id).queued_len -= 1;
            self.counters.requests += 1;
            self.count_datagram(frame, self.text.len() as usize);
        }
    }

    /// Writes one datagram of a flow if there is room, and returns the length of its frame.
    #[inline]
    pub(super) fn send_datagram(
        &mut self,
        now: u64,
        id: u32,
        lateness: u64,
        sink: &mut impl FrameSink,
    ) -> Option<usize> {
        let out = sink.lend()?;
        let number = self.remember(now, id, lateness);
        let conn = self.table.slab.get(id);
        let mut path = Self::path(&self.hops, &self.local, &conn.key, 0);
        if let Some(to) = &mut self.destinations {
            path.remote = to.next_destination();
        }
        let text = match &self.alternate {
            Some(other) if self.is_second => other,
            _ => &self.text,
        };
        self.is_second = !self.is_second;
        let (requests, snmp) = (&self.requests, self.snmp_id_at);
        let len = text.len() as usize;
        let frame = self
            .builder
            .udp(out, &path, len, |to| match (number, snmp) {
                (Some(number), Some(at)) => {
                    text.write(0, to);
                    to[at..at + 4].copy_from_slice(&requests.snmp_id(number).to_be_bytes());
                    wb_wire::checksum::sum(to)
                }
                (Some(number), None) => text.write_after(&requests.write(number, now), to),
                (None, _) => text.write(0, to),
            });
        sink.commit(frame);
        Some(frame)
    }

    /// Records a request of a flow as in flight, unless the client floods. Returns its number if the request carries
    /// one.
    #[inline]
    pub(super) fn remember(&mut self, now: u64, id: u32, lateness: u64) -> Option<u32> {
        if self.floods {
            self.counters.unawaited += 1;
            return None;
        }
        if self.requests.is_full() {
            self.give_up_oldest();
        }
        let lateness = u32::try_from(lateness).unwrap_or(u32::MAX);
        let conn = self.table.slab.get(id);
        conn.set(ASKED);
        let number = self.requests.push(now, lateness, id, conn);
        self.counters.udp_in_flight += 1;
        (self.numbers || self.snmp_id_at.is_some()).then_some(number)
    }

    /// Makes room for another request: the request in flight for the longest time counts as lost.
    #[cold]
    fn give_up_oldest(&mut self) {
        let Some(found) = self.requests.oldest() else {
            return;
        };
        self.counters.udp_given_up += 1;
        self.lose(&found);
        let conn = self.table.slab.get(found.flow);
        if conn.queued_len > 0 && !conn.is_queued() {
            // Keep the due time of the following request; otherwise no request would ever wait.
            let due = after(found.sent, self.answer_time());
            self.wheel.set(&mut self.table.slab, found.flow, due);
        } else {
            // The caller may be sending on this flow, so it must end later.
            Self::enqueue(&mut self.queue, conn, found.flow);
        }
    }

    fn lose(&mut self, found: &FoundRequest) {
        self.counters.udp_lost += 1;
        self.counters.udp_in_flight -= 1;
        self.table.slab.get(found.flow).set(LOST);
        self.requests
            .finish(found.number, RequestState::Lost, &mut self.table.slab);
        self.refill(found.flow);
    }

    /// Queues the next request after an answer or a loss, if requests follow each other without an interval.
    #[inline]
    fn refill(&mut self, id: u32) {
        let follows = !self.paced && !self.finishing;
        if follows && self.client.as_ref().is_some_and(|c| c.interval == 0) {
            self.queue_datagrams(id, 1);
        }
    }

    /// Time that a request waits for its answer, ns.
    #[inline]
    fn answer_time(&self) -> u64 {
        match &self.client {
            // dperf checks at the next interval, or after its retransmission time.
            Some(client) if self.is_dperf && client.interval > 0 => client.interval,
            Some(client) if self.is_dperf && client.requests == Some(1) => {
                self.config.retransmission.after
            }
            _ => self.config.response_timeout,
        }
    }

    /// Time at which the next request counts as lost.
    #[inline]
    pub(super) fn next_lost(&self) -> Option<u64> {
        let oldest = self.requests.oldest_sent()?;
        Some(after(self.left_at(oldest), self.answer_time()))
    }

    /// Marks requests as lost if their timeout ended by `heard`; everything that arrived by then has been read.
    #[inline]
    pub(super) fn lose_overdue(&mut self, now: u64, heard: u64, sink: &mut impl FrameSink) {
        while self.next_lost().is_some_and(|due| due <= heard)
            && let Some(found) = self.requests.oldest()
        {
            self.lose(&found);
            self.send_on(now, found.flow, sink);
        }
    }

    /// Sets the timer of a flow with requests at intervals.
    pub(super) fn set_datagram_timer(&mut self, id: u32) {
        let Some(client) = &self.client else { return };
        let conn = self.table.slab.get(id);
        if client.interval > 0 && !self.paced && conn.requests > 0 {
            let due = after(conn.stamp, client.interval);
            self.wheel.set(&mut self.table.slab, id, due);
        }
    }

    /// Returns the request in flight that matches an answer.
    #[inline]
    fn asked(&mut self, id: u32, payload: &[u8]) -> Option<FoundRequest> {
        if self.snmp_id_at.is_some() {
            return self.snmp_asked(id, payload);
        }
        let conn = self.table.slab.get(id);
        if self.numbers
            && let Some((number, sent)) = self.requests.read(payload)
        {
            conn.set(NUMBERED);
            let found = self.requests.find(number, sent);
            if found.is_none() {
                // Too old: its record has been reused.
                self.counters.udp_late += 1;
            }
            return found.and_then(|found| self.waiting_of(id, found));
        }
        if conn.has(NUMBERED) {
            self.counters.udp_unasked += 1;
            return None;
        }
        let found = self.requests.oldest_of(conn);
        match found {
            Some(_) => self.counters.udp_by_order += 1,
            None => self.counters.udp_unasked += 1,
        }
        found
    }

    /// Returns the request named by an answer if it belongs to this flow and is in flight.
    #[inline]
    fn waiting_of(&mut self, id: u32, found: FoundRequest) -> Option<FoundRequest> {
        if found.flow != id {
            // The answer arrived on the wrong flow.
            self.counters.udp_unasked += 1;
            return None;
        }
        if found.fate != RequestState::Waiting {
            self.count_repeated(&found);
            return None;
        }
        Some(found)
    }

    /// Returns the SNMP request in flight that matches a response by its request id.
    #[cold]
    fn snmp_asked(&mut self, id: u32, payload: &[u8]) -> Option<FoundRequest> {
        let told = snmp::response(payload);
        let found = told.and_then(|told| self.requests.find_snmp(told.id));
        let Some(found) = found else {
            self.counters.udp_unasked += 1;
            return None;
        };
        let found = self.waiting_of(id, found)?;
        self.counters.snmp_errors += u64::from(told.is_some_and(|told| told.is_error));
        Some(found)
    }

    /// Counts an answer to a request that is no longer in flight.
    #[cold]
    fn count_repeated(&mut self, found: &FoundRequest) {
        if found.fate == RequestState::Lost {
            self.counters.udp_late += 1;
            self.requests.came_late(found.number);
        } else {
            self.counters.udp_duplicates += 1;
        }
    }

    /// Counts an answer to an ended flow, if its number identifies the request.
    #[cold]
    fn answer_of_no_flow(&mut self, payload: &[u8]) {
        let found = match self.snmp_id_at {
            Some(_) => snmp::response(payload).and_then(|told| self.requests.find_snmp(told.id)),
            None => {
                let number = self.requests.read(payload).filter(|_| self.numbers);
                number.and_then(|(number, sent)| self.requests.find(number, sent))
            }
        };
        match found {
            Some(found) if found.fate != RequestState::Waiting => self.count_repeated(&found),
            _ => self.counters.drop_datagram += 1,
        }
    }

    fn datagram_answered(
        &mut self,
        now: u64,
        id: u32,
        packet: &Packet<'_>,
        sink: &mut impl FrameSink,
    ) {
        self.counters.payload_rx += packet.payload.len() as u64;
        if self.floods {
            return;
        }
        let Some(found) = self.asked(id, packet.payload) else {
            return;
        };
        self.counters.responses += 1;
        self.counters.udp_in_flight -= 1;
        self.requests
            .finish(found.number, RequestState::Answered, &mut self.table.slab);
        let ns = self.until_came(now, found.sent);
        let conn = self.table.slab.get(id);
        if !conn.has(flag::ANSWERED) {
            conn.set(flag::ANSWERED);
            self.counters.established += 1;
            self.observer.connected(ns);
        }
        self.observer.first_byte(ns);
        self.observer.answered(ns);
        if self.has_schedule() {
            let since_due = ns + u64::from(found.lateness);
            self.observer.answered_since_due(since_due);
        }
        self.refill(id);
        self.send_on(now, id, sink);
    }

    /// Continues after a request was answered or lost.
    #[inline]
    fn send_on(&mut self, now: u64, id: u32, sink: &mut impl FrameSink) {
        if self.client.as_ref().is_some_and(|c| c.interval == 0) {
            // The following request is due now.
            self.table.slab.get(id).stamp = now;
        }
        self.send_datagrams(now, id, sink);
    }

    /// Ends a flow with nothing to send and nothing in flight.
    #[inline]
    pub(super) fn end_if_over(&mut self, now: u64, id: u32) {
        let conn = self.table.slab.get(id);
        let over = conn.requests == 0 || self.finishing;
        if over && conn.queued_len == 0 && conn.waiting() == 0 {
            self.end_flow(now, id);
        }
    }

    /// Ends a flow. A flow that has sent its fixed number of requests fails if any answer is missing. A flow that was
    /// cut off fails only if no answer ever arrived.
    fn end_flow(&mut self, now: u64, id: u32) {
        if self.finishing {
            self.miss_periods(id, self.ended_at.min(now));
        }
        let conn = self.table.slab.get(id);
        let cut = conn.has(flag::DONE) || self.finishing || self.is_dperf;
        let well = match cut {
            true => conn.has(flag::ANSWERED) || !conn.has(ASKED),
            false => !conn.has(LOST),
        };
        if well {
            self.complete(now, id);
        } else {
            self.fail(now, id, Cause::Response);
        }
    }

    /// Marks all requests in flight of an ending flow as lost.
    #[inline]
    pub(super) fn forget_requests(&mut self, id: u32) {
        let conn: &Conn = self.table.slab.get(id);
        if conn.waiting() == 0 {
            return;
        }
        self.table.slab.get(id).requests = 0;
        while let Some(found) = self.requests.oldest_of(self.table.slab.get(id)) {
            self.lose(&found);
        }
    }

    /// Handles the end of an interval.
    pub(super) fn datagram_due(&mut self, now: u64, id: u32, sink: &mut impl FrameSink) {
        let Some(client) = &self.client else { return };
        let interval = client.interval;
        let conn = self.table.slab.get(id);
        if interval == 0 {
            return self.send_datagrams(now, id, sink);
        }
        if self.paced || self.finishing || conn.requests == 0 {
            return;
        }
        let due = after(conn.stamp, interval);
        if now < due {
            self.wheel.set(&mut self.table.slab, id, due);
            return;
        }
        self.queue_periods(id, due, (now - due) / interval + 1);
        self.set_datagram_timer(id);
        self.send_datagrams(now, id, sink);
    }

    /// Starts `periods` intervals, the first of them at `due`. Requests beyond `catch_up` are not sent.
    fn queue_periods(&mut self, id: u32, due: u64, periods: u64) {
        let Some(client) = &self.client else { return };
        let interval = client.interval;
        let pipeline = u64::from(client.pipeline.max(1));
        let most = (self.config.catch_up / interval + 1) * pipeline;
        let conn = self.table.slab.get(id);
        conn.stamp = due + (periods - 1) * interval;
        let mut wanted = periods * pipeline;
        if conn.requests != ENDLESS {
            wanted = wanted.min(conn.requests.into());
            conn.requests -= wanted as u16;
        }
        let all = u64::from(conn.queued_len) + wanted;
        let kept = all.min(most.min(u64::from(u32::MAX)));
        conn.queued_len = kept as u32;
        self.counters.requests_unsent += all - kept;
    }

    /// Counts the requests of intervals that started by `end`, the end of the run, but were not handled, as unsent.
    /// Repeated calls count each request once.
    pub(super) fn miss_periods(&mut self, id: u32, end: u64) {
        let Some(client) = &self.client else { return };
        let (interval, pipeline) = (client.interval, u64::from(client.pipeline.max(1)));
        let conn = self.table.slab.get(id);
        if interval == 0 || self.paced || conn.requests == 0 {
            return;
        }
        let missed = end.saturating_sub(conn.stamp) / interval;
        conn.stamp += missed * interval;
        self.counters.requests_unsent += missed * pipeline;
    }
}
