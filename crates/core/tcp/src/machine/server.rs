//! The server's part: requests are read, answers queued.

use wb_http1::{End, Read};

use super::segment::MOST_QUEUED;
use super::stream::MOST_ECHOED;
use super::{Cause, Machine};
use crate::build::FrameSink;
use crate::conn::{ENDLESS, NO_SIDE_RECORD, flag};
use crate::observer::Observer;
use crate::script::Origin;
use crate::source::{Proxy, read_proxy};

/// `outstanding` of a server's connection whose PROXY header, if any, was read.
pub(super) const PROXY_READ: u16 = 1;
/// Headers that are read in pieces at a time.
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
        let mut rest = bytes;
        while !rest.is_empty() {
            let conn = self.table.slab.get(id);
            if conn.has(flag::FIN_QUEUED) {
                break;
            }
            if conn.queued_len > MOST_QUEUED {
                return Some(bytes.len() - rest.len());
            }
            let mut progress = conn.progress;
            let read = self.reader.read(&mut progress, rest);
            self.table.slab.get(id).progress = progress;
            match read {
                Read::More => break,
                Read::Bad => {
                    self.give_up(now, id, Cause::Malformed, sink);
                    return None;
                }
                Read::Expects { used } => {
                    rest = &rest[used..];
                    self.queue_piece(id, Origin::Leave, self.leave.len());
                }
                Read::Message { used, end, .. } => {
                    rest = &rest[used..];
                    self.requested(id, end);
                }
            }
        }
        Some(bytes.len())
    }

    /// Queues what is not the answer to all: from then on the connection remembers what it says.
    #[cold]
    fn queue_piece(&mut self, id: u32, origin: Origin, len: u32) {
        let conn = self.table.slab.get(id);
        if let Some(side_record) = self.side_records.of(&mut conn.side_record) {
            side_record.script.push(conn.queued_len, origin, len);
            conn.queued_len += len;
        } else if origin == Origin::Head(0) {
            // No place to remember it: the whole answer is wrong, none would be too.
            conn.queued_len += self.text.len();
        }
    }

    /// Reads the beginning of a stream, where a PROXY header may be, in one piece or several.
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

    /// A request is complete.
    #[inline]
    pub(super) fn requested(&mut self, id: u32, end: End) {
        let conn = self.table.slab.get(id);
        self.counters.requests += 1;
        conn.set(flag::DONE);
        if self.server.sink {
            return;
        }
        self.counters.responses += 1;
        if self.server.echo {
            // What it consists of is queued already.
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

    /// The client's FIN has come. True if the connection is no more.
    pub(super) fn client_closed(&mut self, now: u64, id: u32, sink: &mut impl FrameSink) -> bool {
        let conn = self.table.slab.get(id);
        let progress = conn.progress;
        if conn.has(flag::FIN_QUEUED) {
            // The answer goes on; nothing was left to ask.
        } else if self.reader.end(&progress).is_some() {
            let end = End {
                close: true,
                ..End::default()
            };
            self.requested(id, end);
        } else if progress.is_within() || self.partial.iter().any(|(of, _)| *of == id) {
            self.give_up(now, id, Cause::Short, sink);
            return true;
        }
        let conn = self.table.slab.get(id);
        if self.is_dperf {
            // What was not sent yet never is.
            conn.queued_len = conn.data_in_flight();
        }
        conn.set(flag::FIN_QUEUED | flag::DONE);
        false
    }
}
