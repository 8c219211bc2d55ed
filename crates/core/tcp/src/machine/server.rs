//! The server's part: requests are read, answers queued.

use super::{Cause, Machine};
use crate::build::FrameSink;
use crate::conn::{ENDLESS, flag};
use crate::observer::Observer;
use crate::reader::Read;
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
    ) -> bool {
        let mut rest = bytes;
        let conn = self.table.slab.get(id);
        if self.server.proxy && conn.outstanding != PROXY_READ {
            return self.read_first(now, id, bytes, sink);
        }
        if self.server.echo && !rest.is_empty() {
            conn.queued_len += rest.len() as u32;
            conn.set(flag::DONE);
            self.counters.requests += 1;
            self.counters.responses += 1;
            return true;
        }
        while !rest.is_empty() {
            let conn = self.table.slab.get(id);
            if conn.has(flag::FIN_QUEUED) {
                return true;
            }
            let mut progress = conn.progress;
            let read = self.reader.read(&mut progress, rest);
            self.table.slab.get(id).progress = progress;
            match read {
                Read::More => return true,
                Read::Bad => {
                    self.give_up(now, id, Cause::Malformed, sink);
                    return false;
                }
                Read::Message { used, close, .. } => {
                    rest = &rest[used..];
                    self.requested(id, close);
                }
            }
        }
        true
    }

    /// Reads the beginning of a stream, where a PROXY header may be, in one piece or several.
    #[cold]
    fn read_first(&mut self, now: u64, id: u32, bytes: &[u8], sink: &mut impl FrameSink) -> bool {
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
                return true;
            }
            Proxy::Partial | Proxy::Malformed => {
                self.give_up(now, id, Cause::Malformed, sink);
                return false;
            }
        };
        self.table.slab.get(id).outstanding = PROXY_READ;
        self.read_requests(now, id, rest, sink)
    }

    /// A request is complete.
    #[inline]
    pub(super) fn requested(&mut self, id: u32, close: bool) {
        let conn = self.table.slab.get(id);
        self.counters.requests += 1;
        conn.set(flag::DONE);
        if self.server.sink {
            return;
        }
        conn.queued_len += self.text.len();
        self.counters.responses += 1;
        if self.is_http {
            self.counters.status(2);
        }
        if conn.requests != ENDLESS {
            conn.requests -= 1;
        }
        if close || conn.requests == 0 {
            conn.set(flag::FIN_QUEUED);
        }
    }

    /// The client's FIN has come. True if the connection is no more.
    pub(super) fn client_closed(&mut self, now: u64, id: u32, sink: &mut impl FrameSink) -> bool {
        let conn = self.table.slab.get(id);
        let progress = conn.progress;
        if conn.has(flag::FIN_QUEUED) {
            // The answer goes on; nothing was left to ask.
        } else if self.reader.end(&progress).is_some() {
            self.requested(id, true);
        } else if self.reader.is_within(&progress) || self.partial.iter().any(|(of, _)| *of == id) {
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
