//! Server side: reads requests and queues answers.

use wb_http1::{MessageEnd, Read};

use super::segment::MOST_QUEUED;
use super::stream::MOST_ECHOED;
use super::{Cause, Machine};
use crate::build::FrameSink;
use crate::connection::{ENDLESS, NO_SIDE_RECORD, flag};
use crate::observer::Observer;
use crate::original_source::{Proxy, read_proxy};
use crate::routes::{DelayedAnswer, RouteSearch};
use crate::script::Origin;
use crate::side_record::SideRecord;

/// Value of `outstanding` of a server connection after the check for a PROXY header.
pub(super) const PROXY_READ: u16 = 1;
/// Maximum number of PROXY headers that are received in pieces concurrently.
const MOST_PARTIAL: usize = 256;

impl<O: Observer> Machine<O> {
    #[inline]
    pub(super) fn read_requests(
        &mut self,
        now: u64,
        id: u32,
        bytes: &[u8],
        sink: &mut impl FrameSink,
    ) -> Option<usize> {
        let conn = self.table.slab.get(id);
        if self.server.proxy && conn.outstanding != PROXY_READ {
            return self.read_first(now, id, bytes, sink);
        }
        if self.routes.is_some() {
            return self.read_messages::<true>(now, id, bytes, sink);
        }
        let bytes = if self.server.echo {
            let room = MOST_ECHOED.saturating_sub(conn.queued_len) as usize;
            let (side_record, store) = match self.side_records.with_store(&mut conn.side_record) {
                Some(place) => place,
                None => return Some(0),
            };
            let taken = side_record
                .script
                .echo(&bytes[..bytes.len().min(room)], store);
            conn.queued_len += taken as u32;
            &bytes[..taken]
        } else {
            bytes
        };
        self.read_messages::<false>(now, id, bytes, sink)
    }

    /// Reads requests, and queues the common answer or the answer for the path.
    #[inline]
    fn read_messages<const ROUTED: bool>(
        &mut self,
        now: u64,
        id: u32,
        bytes: &[u8],
        sink: &mut impl FrameSink,
    ) -> Option<usize> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let conn = self.table.slab.get(id);
            if conn.has(flag::FIN_QUEUED) {
                break;
            }
            if conn.queued_len > MOST_QUEUED {
                return Some(bytes.len() - rest.len());
            }
            let read = if ROUTED {
                if self.last_waiting(id).is_some_and(|last| last.close) {
                    break;
                }
                match self.read_routed(id, rest) {
                    Some(read) => read,
                    // No room to record the answer; the request will be retransmitted.
                    None => return Some(bytes.len() - rest.len()),
                }
            } else {
                let mut progress = conn.progress;
                let read = self.reader.read(&mut progress, rest);
                self.table.slab.get(id).progress = progress;
                read
            };
            match read {
                Read::More => break,
                Read::Bad => {
                    self.give_up(now, id, Cause::Malformed, sink);
                    return None;
                }
                Read::Expects { used } => {
                    rest = &rest[used..];
                    // Behind a delayed answer "100 Continue" would come too early; clients continue without it.
                    if !ROUTED || self.last_waiting(id).is_none() {
                        self.queue_piece(id, Origin::Leave, self.leave.len());
                    }
                }
                Read::Message { used, end, .. } => {
                    rest = &rest[used..];
                    match ROUTED {
                        true => self.routed(now, id, end),
                        false => self.requested(id, end),
                    }
                }
            }
        }
        Some(bytes.len())
    }

    /// Reads up to the end of a request and records its route. Returns None if there is no room to record it.
    #[inline(never)]
    fn read_routed(&mut self, id: u32, bytes: &[u8]) -> Option<Read> {
        let conn = self.table.slab.get(id);
        let side_record = self.side_records.get_or_allocate(&mut conn.side_record)?;
        let mut seen = RouteSearch {
            found: side_record.route,
            line: &mut side_record.line,
            routes: self.routes.as_ref()?,
        };
        let read = self.reader.read_with(&mut conn.progress, bytes, &mut seen);
        side_record.route = seen.found;
        if side_record.route.is_some() {
            side_record.line.clear();
        }
        Some(read)
    }

    /// Last delayed answer of a connection.
    fn last_waiting(&mut self, id: u32) -> Option<&mut DelayedAnswer> {
        let conn = self.table.slab.get(id);
        let side_record = self.side_records.get(conn.side_record)?;
        side_record.waiting.back_mut()
    }

    /// Handles a complete request with a known route.
    pub(super) fn routed(&mut self, now: u64, id: u32, end: MessageEnd) {
        self.counters.requests += 1;
        let conn = self.table.slab.get(id);
        let record = self.side_records.get_or_allocate(&mut conn.side_record);
        let (Some(routes), Some(side_record)) = (&self.routes, record) else {
            return;
        };
        let route = side_record.route.take().unwrap_or(routes.last());
        side_record.line.clear();
        let rule = &routes.rules[usize::from(route)];
        if conn.requests != ENDLESS {
            conn.requests -= 1;
        }
        let close = rule.close || end.close || end.keep_if_granted || conn.requests == 0;
        let answer = DelayedAnswer {
            due: now.saturating_add(rule.delay),
            route,
            head_only: end.head_only,
            close,
        };
        if rule.delay == 0 && side_record.waiting.is_empty() {
            self.answer_routed(id, answer);
        } else {
            // Queue behind the delayed answers, because answers keep the order of the requests.
            side_record.waiting.push_back(answer);
            conn.clear(flag::DONE);
        }
    }

    /// Queues an answer that is due.
    fn answer_routed(&mut self, id: u32, answer: DelayedAnswer) {
        let text = &self.texts[usize::from(answer.route)];
        let (origin, len) = match answer.head_only {
            true => (Origin::Head(answer.route), text.head_len),
            false => (Origin::Text(answer.route), text.message.len()),
        };
        self.queue_piece(id, origin, len);
        self.counters.responses += 1;
        if let Some(routes) = &mut self.routes {
            let rule = &mut routes.rules[usize::from(answer.route)];
            rule.answers += 1;
            let status = rule.status;
            self.counters.status(status);
        }
        let conn = self.table.slab.get(id);
        conn.set(flag::DONE);
        if answer.close {
            conn.set(flag::FIN_QUEUED);
        }
    }

    /// Queues the delayed answers of a connection that are due, and returns true if there were any.
    #[cold]
    pub(super) fn answer_waiting(&mut self, now: u64, id: u32) -> bool {
        let mut any = false;
        loop {
            let conn = self.table.slab.get(id);
            let next = self.side_records.get(conn.side_record).and_then(|record| {
                let is_due = record.waiting.front().is_some_and(|next| next.due <= now);
                is_due.then(|| record.waiting.pop_front()).flatten()
            });
            let Some(answer) = next else { break };
            self.answer_routed(id, answer);
            any = true;
        }
        let conn = self.table.slab.get(id);
        let waits = |record: &mut SideRecord| !record.waiting.is_empty();
        if any && self.side_records.get(conn.side_record).is_some_and(waits) {
            conn.clear(flag::DONE);
        }
        any
    }

    /// Due time of the next delayed answer of a connection.
    pub(super) fn answer_due(&mut self, id: u32) -> Option<u64> {
        self.routes.as_ref()?;
        let conn = self.table.slab.get(id);
        let side_record = self.side_records.get(conn.side_record)?;
        side_record.waiting.front().map(|next| next.due)
    }

    /// Queues anything other than the common answer. From then on the connection records its output in a script.
    #[cold]
    fn queue_piece(&mut self, id: u32, origin: Origin, len: u32) {
        let conn = self.table.slab.get(id);
        if let Some(side_record) = self.side_records.get_or_allocate(&mut conn.side_record) {
            side_record.script.push(conn.queued_len, origin, len);
            conn.queued_len += len;
        } else if origin == Origin::Head(0) {
            // No room to record it. The complete answer is wrong here, but so is no answer.
            conn.queued_len += self.text.len();
        }
    }

    /// Reads the start of a stream, which may contain a PROXY header in one or several pieces.
    #[cold]
    fn read_first(
        &mut self,
        now: u64,
        id: u32,
        bytes: &[u8],
        sink: &mut impl FrameSink,
    ) -> Option<usize> {
        let before = self.partial.iter().position(|(of, _)| *of == id);
        let mut all = before.map_or(Vec::new(), |at| self.partial.swap_remove(at).1);
        all.extend_from_slice(bytes);
        let rest = match read_proxy(&all) {
            Proxy::None => &all[..],
            Proxy::Header { len, source } => {
                self.counters.proxy_seen += 1;
                if let Some((address, port)) = source {
                    self.observer.source(address, port);
                }
                &all[len..]
            }
            Proxy::Partial if self.partial.len() < MOST_PARTIAL => {
                self.partial.push((id, all));
                return Some(bytes.len());
            }
            Proxy::Partial | Proxy::Malformed => {
                self.give_up(now, id, Cause::Malformed, sink);
                return None;
            }
        };
        self.table.slab.get(id).outstanding = PROXY_READ;
        let taken = self.read_requests(now, id, rest, sink)?;
        Some(bytes.len() - (rest.len() - taken))
    }

    /// Handles a complete request.
    #[inline]
    pub(super) fn requested(&mut self, id: u32, end: MessageEnd) {
        let conn = self.table.slab.get(id);
        self.counters.requests += 1;
        conn.set(flag::DONE);
        if self.server.sink {
            return;
        }
        self.counters.responses += 1;
        if self.server.echo {
            // The echoed bytes are already queued.
            return;
        }
        if end.head_only {
            self.queue_piece(id, Origin::Head(0), self.texts[0].head_len);
        } else if conn.side_record != NO_SIDE_RECORD && self.is_scripted(id) {
            self.queue_piece(id, Origin::Text(0), self.text.len());
        } else {
            self.table.slab.get(id).queued_len += self.text.len();
        }
        let conn = self.table.slab.get(id);
        let close = end.close || end.keep_if_granted && !self.server.grants;
        if self.is_http {
            self.counters.status(200);
        }
        if conn.requests != ENDLESS {
            conn.requests -= 1;
        }
        if close || conn.requests == 0 {
            conn.set(flag::FIN_QUEUED);
        }
    }

    fn is_scripted(&mut self, id: u32) -> bool {
        let conn = self.table.slab.get(id);
        self.side_records
            .get(conn.side_record)
            .is_some_and(|side_record| !side_record.script.is_empty())
    }

    /// Handles the client's FIN. Returns true if the connection has ended.
    pub(super) fn client_closed(&mut self, now: u64, id: u32, sink: &mut impl FrameSink) -> bool {
        let conn = self.table.slab.get(id);
        let progress = conn.progress;
        if conn.has(flag::FIN_QUEUED) {
            // The answer continues; there is no further request.
        } else if self.reader.end(&progress).is_some() {
            let end = MessageEnd {
                close: true,
                ..MessageEnd::default()
            };
            self.requested(id, end);
        } else if progress.is_within() || self.partial.iter().any(|(of, _)| *of == id) {
            self.give_up(now, id, Cause::Short, sink);
            return true;
        }
        if self.answer_due(id).is_some() {
            // Close after the delayed answers.
            if let Some(last) = self.last_waiting(id) {
                last.close = true;
            }
            return false;
        }
        let conn = self.table.slab.get(id);
        if self.is_dperf {
            // dperf does not send the rest.
            conn.queued_len = conn.data_in_flight();
        }
        conn.set(flag::FIN_QUEUED | flag::DONE);
        false
    }
}
