//! Client side: when to connect, send requests and close.

use wb_http1::{Progress, Read};

use super::{Cause, LatenessSeries, Machine, after};
use crate::build::{FrameSink, SegmentHeader};
use crate::config::{Client, Close};
use crate::connection::{ConnectionState, ENDLESS, Key, flag, pack_ns, unpack_ns};
use crate::observer::{Exchange, Observer};
use crate::script::Origin;
use crate::side_record::SentRequest;

/// Maximum number of tuples tried to find an unused one.
const MOST_TRIES: u32 = 64;
/// Delay before a connection that cannot record its requests tries again, in ns.
const NO_PLACE: u64 = 1_000_000;

/// Counts the body bytes of answers.
struct Bodies<'a>(&'a mut u64);

/// Counts body bytes and passes heads and bodies to the observer.
struct Shown<'a, O> {
    all: Bodies<'a>,
    observer: &'a mut O,
    place: u16,
    begun: &'a mut bool,
}

impl<O: Observer> wb_http1::MessageSink for Shown<'_, O> {
    fn head(&mut self, bytes: &[u8]) {
        let first = !std::mem::replace(self.begun, true);
        self.observer.head(self.place, first, bytes);
    }

    fn body(&mut self, bytes: &[u8]) {
        self.all.body(bytes);
        self.observer.body(self.place, bytes);
    }

    fn interim(&mut self) {
        *self.begun = false;
    }
}

impl wb_http1::MessageSink for Bodies<'_> {
    #[inline]
    fn head(&mut self, _: &[u8]) {}

    #[inline]
    fn body(&mut self, bytes: &[u8]) {
        *self.0 += bytes.len() as u64;
    }
}

impl<O: Observer> Machine<O> {
    /// Opens up to `n` connections and returns their number. The number is smaller when the sink has no room, the table
    /// is full, or the next tuples are in use ([`crate::Counters::tuples_busy`]). A server opens none.
    pub fn launch(&mut self, now: u64, n: u32, sink: &mut impl FrameSink) -> u32 {
        self.launch_late(now, n, LatenessSeries::NOT, sink)
    }

    /// Like [`Machine::launch`], for connections that are opened later than they were due.
    pub fn launch_late(
        &mut self,
        now: u64,
        n: u32,
        late: LatenessSeries,
        sink: &mut impl FrameSink,
    ) -> u32 {
        for launched in 0..n {
            if self.finishing || !self.open_one(now, late.of_action(launched), sink) {
                return launched;
            }
        }
        n
    }

    #[inline]
    fn open_one(&mut self, now: u64, late: u64, sink: &mut impl FrameSink) -> bool {
        let Some(client) = &mut self.client else {
            return false;
        };
        if self.table.len() >= self.config.most_open || self.left == 0 || sink.lend().is_none() {
            return false;
        }
        let table = &mut self.table;
        let mut found = None;
        let mut tries = 0;
        client.tuples.next(|tuple, remote| {
            tries += 1;
            let key = Key::new(remote, tuple.client, tuple.server_port, tuple.client_port);
            let hash = table.hash(&key);
            let free = table.find(&key, hash).is_none();
            if free {
                found = Some((key, hash));
            }
            free || tries == MOST_TRIES
        });
        let Some((key, hash)) = found else {
            self.counters.tuples_busy += 1;
            return false;
        };
        let (requests, interval, flood) = (client.requests, client.interval, client.flood);
        self.counters.attempted += 1;
        if flood && requests == Some(1) {
            // The flood awaits no answer, so no state is needed.
            self.counters.completed += 1;
            self.send_once(now, &key, hash, sink);
            return true;
        }
        self.counters.open += 1;
        let first = self.first_sequence(now, hash);
        let id = self.table.insert(key, hash);
        let conn = self.table.slab.get(id);
        conn.stamp = now;
        conn.requests = requests.unwrap_or(ENDLESS);
        conn.lateness = pack_ns(late);
        if self.is_tcp {
            conn.state = ConnectionState::SynSent;
            conn.oldest = first;
            conn.next_seq = first.wrapping_add(1);
            conn.set(flag::SEND_SYN);
            if flood && conn.requests != ENDLESS {
                // In a flood each SYN counts as a request.
                conn.requests -= 1;
            }
            self.output(now, id, sink);
            if self.paced && flood {
                self.enqueue_idle(id);
            } else if flood {
                self.wheel
                    .set(&mut self.table.slab, id, after(now, interval.max(1)));
            } else {
                self.restart_timer(now, id);
            }
        } else {
            conn.state = ConnectionState::Udp;
            if self.paced {
                self.enqueue_idle(id);
            } else {
                self.ask_datagrams(now, id, sink);
            }
        }
        true
    }

    /// Sends one SYN or datagram without a connection.
    fn send_once(&mut self, now: u64, key: &Key, hash: u64, sink: &mut impl FrameSink) {
        let seq = self.first_sequence(now, hash);
        let mut path = Self::path(&self.hops, &self.local, key, 0);
        if let Some(to) = &mut self.destinations {
            path.remote = to.next_destination();
        }
        let out = sink.lend().expect("asked before");
        let len = if self.is_tcp {
            let header = SegmentHeader {
                seq,
                ack: 0,
                flags: wb_wire::tcp_flags::SYN,
                window: self.config.window,
            };
            self.counters.tcp_tx += 1;
            self.counters.syn_tx += 1;
            self.builder
                .tcp(out, &path, &header, &self.syn_options, 0, |_| 0)
        } else {
            let text = &self.text;
            self.counters.udp_tx += 1;
            self.counters.requests += 1;
            self.counters.unawaited += 1;
            self.counters.payload_tx += u64::from(text.len());
            self.builder
                .udp(out, &path, text.len() as usize, |payload| {
                    text.write(0, payload)
                })
        };
        sink.commit(len);
        self.counters.tx_frames += 1;
        self.counters.tx_octets += len as u64;
    }

    /// Queues the next requests of a connection, due at `nominal`.
    pub(super) fn ask_again(&mut self, now: u64, nominal: u64, id: u32) {
        let Some(client) = &self.client else { return };
        if self.left == 0 {
            let how = client.close;
            self.close(now, id, how);
            return;
        }
        let conn = self.table.slab.get(id);
        let n = client.pipeline.max(1).min(conn.requests);
        let (interval, mut late) = (client.interval, now.saturating_sub(nominal));
        if interval > 0 && late >= interval {
            // One request can be sent now; those between it and the first are dropped.
            self.counters.requests_unsent += late / interval * u64::from(n);
            late %= interval;
        }
        if self.queue_requests(now, id, n, |_| late) == 0 {
            let conn = self.table.slab.get(id);
            conn.set(flag::PAUSED);
            conn.stamp = after(now, NO_PLACE);
        }
    }

    /// Returns true if requests have a due time that is independent of the previous answer.
    #[inline]
    pub(super) fn has_schedule(&self) -> bool {
        let by_itself = |client: &Client| client.interval > 0 || client.requests == Some(1);
        self.paced || self.client.as_ref().is_some_and(by_itself)
    }

    /// Queues up to `n` requests of a connection and returns their number. `late` gives the lateness of each request in
    /// ns. The number is smaller at the limit of total requests, and 0 if the requests cannot be recorded.
    #[inline]
    pub(super) fn queue_requests(
        &mut self,
        now: u64,
        id: u32,
        n: u16,
        late: impl Fn(u16) -> u64,
    ) -> u16 {
        let n = u64::from(n).min(self.left) as u16;
        if n == 0 {
            return 0;
        }
        if self.remembers && !self.queue_several(now, id, n, &late) {
            return 0;
        }
        self.left -= u64::from(n);
        self.counters.requests += u64::from(n);
        let conn = self.table.slab.get(id);
        if !self.remembers {
            conn.queued_len += u32::from(n) * self.text.len();
            self.observer.asked(now, 0, n);
            conn.lateness = pack_ns(late(0));
        }
        if conn.requests != ENDLESS {
            conn.requests -= n;
        }
        if conn.outstanding == 0 {
            conn.stamp = now;
            conn.clear(flag::PAUSED | flag::ANSWERED);
            conn.set(flag::WAITING);
        }
        conn.outstanding += n;
        n
    }

    /// Queues requests with individual texts or due times. Returns false if there is no room.
    #[inline(never)]
    fn queue_several(&mut self, now: u64, id: u32, n: u16, late: &dyn Fn(u16) -> u64) -> bool {
        let conn = self.table.slab.get(id);
        let Some(side_record) = self.side_records.get_or_allocate(&mut conn.side_record) else {
            return false;
        };
        for i in 0..n {
            let text = self.mix.choose();
            let len = self.texts[usize::from(text)].message.len();
            side_record
                .script
                .push(conn.queued_len, Origin::Text(text), len);
            conn.queued_len += len;
            side_record.asked.push_back(SentRequest {
                text,
                late: pack_ns(late(i)),
                sent: now,
            });
            self.observer.asked(now, text, 1);
        }
        if let Some(first) = side_record.asked.front() {
            conn.progress.expect(self.mix.is_head(first.text));
        }
        true
    }

    /// Sets the lateness of the first requests of a connection to that of the connection, [packed](pack_ns).
    pub(super) fn note_lateness(&mut self, id: u32, late: u32) {
        let conn = self.table.slab.get(id);
        if let Some(side_record) = self.side_records.get(conn.side_record) {
            side_record
                .asked
                .iter_mut()
                .for_each(|asked| asked.late = late);
        }
    }

    /// Removes the oldest unanswered request: index of its text, lateness in ns, and place of its body. The connection
    /// then carries the time of the next request.
    #[inline(never)]
    fn take_asked(&mut self, id: u32) -> (u16, u64, Option<u16>) {
        let conn = self.table.slab.get(id);
        let Some(side_record) = self.side_records.get(conn.side_record) else {
            return (0, 0, None);
        };
        let shown = std::mem::take(&mut side_record.shown).then_some(conn.side_record);
        let asked = side_record.asked.pop_front();
        if let Some(next) = side_record.asked.front() {
            conn.progress.expect(self.mix.is_head(next.text));
            conn.stamp = next.sent;
        }
        // The next answer has its own first byte.
        conn.clear(flag::ANSWERED);
        asked.map_or((0, 0, None), |asked| {
            (asked.text, unpack_ns(asked.late), shown)
        })
    }

    /// Counts the unanswered requests of a connection as lost.
    #[cold]
    pub(super) fn lose_requests(&mut self, now: u64, id: u32, cause: Cause) {
        let conn = self.table.slab.get(id);
        let n = std::mem::take(&mut conn.outstanding);
        for _ in 0..n {
            let ns = now.saturating_sub(self.table.slab.get(id).stamp);
            let text = match self.remembers {
                true => self.take_asked(id).0,
                false => 0,
            };
            self.counters.requests_lost += 1;
            self.observer.unanswered(text, ns, cause);
        }
    }

    /// Passes each request that waits for its answer to a callback: index of its text, send time.
    pub fn waiting_requests(&mut self, mut tell: impl FnMut(u16, u64)) {
        if self.client.is_none() || !self.is_tcp {
            return;
        }
        for id in 0..self.table.slab.extent() {
            let conn = self.table.slab.get(id);
            if conn.state != ConnectionState::Open || !conn.has(flag::WAITING) {
                continue;
            }
            let (sent, n) = (conn.stamp, usize::from(conn.outstanding));
            match self.side_records.get(conn.side_record) {
                Some(side_record) if self.remembers => {
                    let asked = side_record.asked.iter();
                    asked.for_each(|asked| tell(asked.text, asked.sent));
                }
                _ => (0..n).for_each(|_| tell(0, sent)),
            }
        }
    }

    /// Number of connections that wait for their SYN-ACK.
    pub fn connecting(&mut self) -> u64 {
        let all = 0..self.table.slab.extent();
        all.filter(|id| self.table.slab.get(*id).state == ConnectionState::SynSent)
            .count() as u64
    }

    /// Number of requests that may still be sent in total; `u64::MAX` without a limit.
    #[inline]
    pub fn left(&self) -> u64 {
        self.left
    }

    /// Due time of the next request after an answer that arrived now.
    fn next_request(&mut self, now: u64, id: u32, interval: u64) -> u64 {
        let conn = self.table.slab.get(id);
        let nominal = conn.stamp.saturating_sub(unpack_ns(conn.lateness));
        let next = after(nominal, interval);
        if next >= now {
            return next;
        }
        // The answer was late. Skip up to two periods to stay in step; after more, the last missed period starts now.
        let periods = (now - nominal).div_ceil(interval);
        let next = if periods <= 3 {
            nominal + periods * interval
        } else {
            now - (now - nominal) % interval
        };
        self.pass_over(id, next);
        next
    }

    /// Counts the periods before `end` in which a connection sent no request because it waited for an answer.
    #[cold]
    fn pass_over(&mut self, id: u32, end: u64) {
        let Some(client) = &self.client else { return };
        let (interval, pipeline) = (client.interval, u64::from(client.pipeline.max(1)));
        let conn = self.table.slab.get(id);
        let nominal = conn.stamp.saturating_sub(unpack_ns(conn.lateness));
        let periods = end.saturating_sub(nominal).div_ceil(interval);
        let missed = periods.saturating_sub(1) * pipeline;
        let left = match conn.requests {
            ENDLESS => u64::MAX,
            n => n.into(),
        };
        self.counters.requests_waited += missed.min(left);
    }

    /// Counts the requests that an answer still pending held up until now or until the end of the run. After the end of
    /// the run they are counted once, either by the sweep or here.
    pub(super) fn waited_until(&mut self, now: u64, id: u32) {
        let at_intervals = self.client.as_ref().is_some_and(|c| c.interval > 0);
        let conn = self.table.slab.get(id);
        let waits = conn.state == ConnectionState::Open && conn.has(flag::WAITING);
        if !at_intervals || self.paced || !waits {
            return;
        }
        if !self.finishing {
            self.pass_over(id, now);
        } else if id >= self.sweep {
            self.pass_over(id, self.ended_at.min(now));
        }
    }

    /// Reads in-order bytes and returns the number accepted. Returns None if the connection has ended.
    #[inline]
    pub(super) fn read(
        &mut self,
        now: u64,
        id: u32,
        bytes: &[u8],
        sink: &mut impl FrameSink,
    ) -> Option<usize> {
        if self.client.is_none() {
            return self.read_requests(now, id, bytes, sink);
        }
        let all = Some(bytes.len());
        let mut rest = bytes;
        while !rest.is_empty() {
            let conn = self.table.slab.get(id);
            if !conn.has(flag::WAITING) {
                // No request was sent, or all answers have arrived.
                if self.rejects_unasked && !conn.has(flag::DONE) {
                    self.observer.unasked();
                    self.give_up(now, id, Cause::Malformed, sink);
                    return None;
                }
                return all;
            }
            if !conn.has(flag::ANSWERED) {
                if self.rejects_unasked && self.is_premature(id) {
                    self.observer.unasked();
                    self.give_up(now, id, Cause::Malformed, sink);
                    return None;
                }
                let conn = self.table.slab.get(id);
                conn.set(flag::ANSWERED);
                let came = now.saturating_sub(self.unread);
                self.observer.first_byte(came.saturating_sub(conn.stamp));
            }
            let conn = self.table.slab.get(id);
            let sent_ns = conn.stamp;
            let mut progress = conn.progress;
            let before = self.counters.body_rx;
            let read = match self.counts_bodies {
                false => self.reader.read(&mut progress, rest),
                true if self.shows_answers => self.read_shown(id, &mut progress, rest),
                true => {
                    let mut bodies = Bodies(&mut self.counters.body_rx);
                    self.reader.read_with(&mut progress, rest, &mut bodies)
                }
            };
            self.table.slab.get(id).progress = progress;
            if self.counts_bodies {
                let taken = match read {
                    Read::Message { used, .. } | Read::Expects { used } => used,
                    Read::More | Read::Bad => rest.len(),
                };
                let body = self.counters.body_rx - before;
                self.observer.answer_bytes(sent_ns, taken as u64, body);
            }
            match read {
                Read::More => return all,
                Read::Bad => {
                    self.observer.malformed(rest);
                    self.give_up(now, id, Cause::Malformed, sink);
                    return None;
                }
                Read::Message { used, status, end } => {
                    rest = &rest[used..];
                    if self.rejects_unasked && !rest.is_empty() && self.is_last_asked(id) {
                        // The following bytes arrived before the next request.
                        self.count_answer(now, id, status);
                        self.observer.unasked();
                        self.give_up(now, id, Cause::Malformed, sink);
                        return None;
                    }
                    self.answered(now, id, status, end.close);
                }
                Read::Expects { used } => rest = &rest[used..],
            }
        }
        all
    }

    /// Reads up to the end of an answer and passes its contents to the observer.
    #[inline(never)]
    fn read_shown(&mut self, id: u32, progress: &mut Progress, bytes: &[u8]) -> Read {
        let all = Bodies(&mut self.counters.body_rx);
        let place = self.table.slab.get(id).side_record;
        match self.side_records.get(place) {
            Some(side_record) => {
                let mut shown = Shown {
                    all,
                    observer: &mut self.observer,
                    place,
                    begun: &mut side_record.shown,
                };
                self.reader.read_with(progress, bytes, &mut shown)
            }
            // Does not occur while an answer is awaited.
            None => self.reader.read_with(progress, bytes, &mut { all }),
        }
    }

    /// Reads bytes that were stored only as a range.
    pub(super) fn count_read(&mut self, now: u64, id: u32, n: u32) {
        let conn = self.table.slab.get(id);
        if self.client.is_some() && !conn.has(flag::WAITING) {
            return;
        }
        if self.counts_bodies {
            self.counters.body_rx += u64::from(n);
            if self.client.is_some() {
                self.observer.answer_bytes(conn.stamp, n.into(), n.into());
            }
        }
        let mut progress = conn.progress;
        let read = self.reader.count(&mut progress, u64::from(n));
        self.table.slab.get(id).progress = progress;
        if let Read::Message { status, end, .. } = read {
            if self.client.is_some() {
                self.answered(now, id, status, end.close);
            } else if self.routes.is_some() {
                self.routed(now, id, end);
            } else {
                self.requested(id, end);
            }
        }
    }

    /// Returns true if exactly one request waits for its answer.
    fn is_last_asked(&mut self, id: u32) -> bool {
        self.table.slab.get(id).outstanding == 1
    }

    /// Returns true if the peer has acknowledged nothing of the only pending request. Data arriving now was sent before
    /// the peer received the request.
    fn is_premature(&mut self, id: u32) -> bool {
        let conn = self.table.slab.get(id);
        if conn.outstanding != 1 {
            return false;
        }
        let side_record = self.side_records.get(conn.side_record);
        let text = side_record.and_then(|side_record| side_record.asked.front());
        let len = match (self.remembers, text) {
            (true, Some(asked)) => self.texts[usize::from(asked.text)].message.len(),
            _ => self.text.len(),
        };
        conn.queued_len >= len
    }

    /// Handles a complete answer.
    #[inline]
    fn answered(&mut self, now: u64, id: u32, status: u16, close: bool) {
        self.count_answer(now, id, status);
        let conn = self.table.slab.get(id);
        if conn.outstanding > 0 {
            if !close {
                if self.slides {
                    self.ask_beside(now, id);
                }
                return;
            }
            self.lose_requests(now, id, Cause::Short);
        }
        self.rest_or_ask(now, id, close);
    }

    /// Counts a complete answer.
    #[inline]
    fn count_answer(&mut self, now: u64, id: u32, status: u16) {
        let conn = self.table.slab.get(id);
        self.counters.responses += 1;
        if self.is_http || status != 0 {
            self.counters.status(status);
        }
        let until_read = now.saturating_sub(conn.stamp);
        let ns = until_read.saturating_sub(self.unread);
        let (text, late, shown) = match self.remembers {
            true => self.take_asked(id),
            false => (0, unpack_ns(conn.lateness), None),
        };
        let since_due = ns + late;
        self.observer.answered(ns);
        if self.has_schedule() {
            self.observer.answered_since_due(since_due);
        }
        self.observer.exchanged(&Exchange {
            text,
            status,
            shown,
            ns,
            unread: until_read - ns,
            since_due,
        });
        let conn = self.table.slab.get(id);
        conn.outstanding = conn.outstanding.saturating_sub(1);
    }

    /// Continues after all answers of a connection have arrived: sends the next request, pauses or closes.
    #[inline]
    fn rest_or_ask(&mut self, now: u64, id: u32, close: bool) {
        if self.finishing {
            self.waited_until(now, id);
        }
        let conn = self.table.slab.get(id);
        conn.clear(flag::WAITING | flag::ANSWERED);
        let Some(client) = &self.client else { return };
        let is_last = conn.requests == 0 || close || conn.has(flag::FIN_RECEIVED) || self.left == 0;
        if is_last || self.finishing || self.surplus > 0 {
            let how = client.close;
            self.surplus = self.surplus.saturating_sub(1);
            self.close(now, id, how);
            return;
        }
        let interval = client.interval;
        if self.paced {
            self.pause(now, id, true);
        } else if interval == 0 {
            self.ask_again(now, now, id);
        } else {
            let next = self.next_request(now, id, interval);
            let patience = self.config.ack_delay;
            let conn = self.table.slab.get(id);
            conn.set(flag::PAUSED);
            conn.stamp = next;
            // The next request carries the acknowledgement unless the peer would wait for too long.
            if next.saturating_sub(now) > patience && patience != u64::MAX {
                conn.set(flag::SEND_ACK);
            }
            conn.clear(flag::ACK_LATER);
        }
    }

    /// After an answer with other requests still in flight: sends another request, or waits until one is due.
    #[inline(never)]
    fn ask_beside(&mut self, now: u64, id: u32) {
        if self.finishing || self.surplus > 0 {
            return;
        }
        let n = self.free_requests(id);
        if !self.paced {
            self.queue_requests(now, id, n, |_| 0);
        } else if n > 0 && self.table.slab.get(id).lateness == 0 {
            self.enqueue_idle(id);
        }
    }

    /// Starts closing a connection that needs no more answers.
    pub(super) fn close(&mut self, now: u64, id: u32, how: Close) {
        let conn = self.table.slab.get(id);
        conn.stamp = now;
        conn.clear(flag::PAUSED | flag::WAITING);
        self.close_begins(id);
        let conn = self.table.slab.get(id);
        match how {
            Close::Fin => conn.set(flag::FIN_QUEUED),
            Close::Reset => conn.set(flag::SEND_RST),
        }
    }

    /// Handles the server's FIN. Returns true if the connection has ended.
    pub(super) fn server_closed(&mut self, now: u64, id: u32, sink: &mut impl FrameSink) -> bool {
        let conn = self.table.slab.get(id);
        if conn.has(flag::DONE) {
            return false;
        }
        if conn.has(flag::WAITING) {
            let progress = conn.progress;
            match self.reader.end(&progress) {
                Some(status) => self.answered(now, id, status, true),
                None => {
                    self.give_up(now, id, Cause::Short, sink);
                    return true;
                }
            }
            return false;
        }
        // A server may close between two requests.
        self.close(now, id, Close::Fin);
        false
    }

    /// Closes idle connections, a few per call.
    pub(super) fn close_some(&mut self, now: u64) {
        if !self.may_close_more() {
            return;
        }
        let end = self.table.slab.extent();
        let stop = end.min(self.sweep.saturating_add(256));
        for id in self.sweep..stop {
            let conn = self.table.slab.get(id);
            match conn.state {
                ConnectionState::Open if conn.has(flag::PAUSED) => {
                    self.miss_requests(id, self.ended_at.min(now));
                    self.close_resting(now, id);
                }
                // A flood awaits no answer.
                ConnectionState::SynSent if self.client.as_ref().is_some_and(|c| c.flood) => {
                    self.complete(now, id);
                }
                ConnectionState::Open => self.waited_until(now, id),
                ConnectionState::Udp => {
                    self.miss_periods(id, self.ended_at.min(now));
                    self.end_if_over(now, id);
                }
                _ => {}
            }
        }
        self.sweep = stop;
    }
}
