//! What a connection has to say now becomes segments.

use wb_wire::tcp_flags::{ACK, FIN, PSH, RST, SYN};

use super::Machine;
use crate::build::{FrameSink, Header};
use crate::conn::{Conn, State, before, flag};
use crate::observer::Observer;

/// The next segment of a connection.
struct Next {
    seq: u32,
    flags: u8,
    len: u32,
}

/// Anything that must be sent although no data is waiting.
const DEMANDS: u16 =
    flag::SEND_SYN | flag::SEND_ACK | flag::SEND_AGAIN | flag::SEND_RST | flag::SEND_PROBE;

impl<O: Observer> Machine<O> {
    /// Sends what a connection may send. What finds no room waits in the queue.
    #[inline]
    pub(super) fn output(&mut self, now: u64, id: u32, sink: &mut impl FrameSink) {
        loop {
            let conn = self.table.slab.get(id);
            let Some(next) = Self::next_segment(
                conn,
                &self.config,
                self.is_dperf,
                self.client.is_some(),
                self.text.len(),
            ) else {
                return;
            };
            let Some(out) = sink.lend() else {
                Self::enqueue(&mut self.queue, conn, id);
                return;
            };
            let path = Self::path(&self.hops, &self.local, &conn.key, conn.hop);
            let is_syn = next.flags & SYN != 0;
            let options: &[u8] = if !is_syn {
                &[]
            } else if conn.state == State::SynSent || conn.packed & 0x40 != 0 || self.is_dperf {
                &self.syn_options
            } else {
                // The peer offered no scale, so none may be sent: RFC 7323 section 2.2.
                &self.syn_options[..4]
            };
            let header = Header {
                seq: next.seq,
                ack: if next.flags & ACK != 0 {
                    conn.expected
                } else {
                    0
                },
                flags: next.flags,
                window: self.config.window,
            };
            let text = &self.text;
            let offset = Self::offset_in_message(conn, text.len(), next.seq);
            let len =
                self.builder
                    .tcp(out, &path, &header, options, next.len as usize, |payload| {
                        let first = (text.len() - offset) as usize;
                        if payload.len() <= first {
                            text.write(offset, payload)
                        } else {
                            write_several(text, offset, payload)
                        }
                    });
            sink.commit(len);
            let counters = &mut self.counters;
            counters.tx_frames += 1;
            counters.tx_octets += len as u64;
            counters.tcp_tx += 1;
            counters.payload_tx += u64::from(next.len);
            counters.syn_tx += u64::from(is_syn);
            counters.fin_tx += u64::from(next.flags & FIN != 0);
            let is_again = conn.has(flag::REWOUND | flag::SEND_AGAIN) && {
                let aside = self.asides.get(conn.aside);
                is_syn
                    || conn.has(flag::SEND_AGAIN)
                    || aside.is_none_or(|aside| before(next.seq, aside.recover))
            };
            if is_again {
                if is_syn {
                    counters.syn_again += 1;
                } else if next.len > 0 {
                    counters.data_again += 1;
                } else if next.flags & FIN != 0 {
                    counters.fin_again += 1;
                }
            }
            if next.flags & RST != 0 {
                counters.rst_tx += 1;
                // Only a client that closes by RST comes here, with all it wanted.
                counters.completed_by_reset += 1;
                self.complete(now, id);
                return;
            }
            if next.len > 0 && self.client.is_none() {
                conn.set(flag::ANSWERED);
            }
            Self::note_sent(conn, &next);
        }
    }

    #[inline]
    fn note_sent(conn: &mut Conn, next: &Next) {
        // One demand is met by each segment, in the order of `next_segment`; any segment acknowledges.
        if conn.has(flag::SEND_SYN) {
            conn.clear(flag::SEND_SYN);
        } else if conn.has(flag::SEND_PROBE) {
            conn.clear(flag::SEND_PROBE);
        } else if conn.has(flag::SEND_AGAIN) {
            conn.clear(flag::SEND_AGAIN);
        } else {
            conn.next_seq = next
                .seq
                .wrapping_add(next.len + u32::from(next.flags & FIN != 0));
            if next.flags & FIN != 0 {
                conn.set(flag::FIN_SENT);
            }
        }
        conn.clear(flag::SEND_ACK | flag::ACK_LATER);
    }

    #[inline]
    fn next_segment(
        conn: &Conn,
        config: &crate::Config,
        is_dperf: bool,
        is_client: bool,
        message_len: u32,
    ) -> Option<Next> {
        let unsent = conn.unsent();
        let fin_due = conn.has(flag::FIN_QUEUED) && !conn.has(flag::FIN_SENT);
        if !conn.has(DEMANDS) && unsent == 0 && !fin_due {
            return None;
        }
        let bare = |seq, flags| Some(Next { seq, flags, len: 0 });
        if conn.has(flag::SEND_SYN) {
            let flags = if conn.state == State::SynSent {
                SYN
            } else {
                SYN | ACK
            };
            return bare(conn.oldest, flags);
        }
        if !matches!(conn.state, State::Open | State::TimeWait) {
            // A SYN is on its way; nothing may overtake it.
            return None;
        }
        if conn.has(flag::SEND_RST) {
            return bare(conn.next_seq, RST | ACK);
        }
        if conn.has(flag::SEND_PROBE) {
            return bare(conn.oldest.wrapping_sub(1), ACK);
        }
        let mss = u32::from(conn.mss);
        if conn.has(flag::SEND_AGAIN) {
            let len = conn.data_in_flight().min(conn.queued_len).min(mss);
            let fin = conn.has(flag::FIN_SENT) && len == conn.queued_len;
            let flags = ACK | if fin { FIN } else { 0 };
            return Some(Next {
                seq: conn.oldest,
                flags,
                len,
            });
        }
        let several = message_len > mss;
        if unsent > 0 && !conn.has(flag::FIN_SENT) {
            let most = conn.cwnd.min(config.most_in_flight);
            let in_flight = conn.data_in_flight();
            let peer = if is_dperf {
                u32::MAX
            } else {
                conn.peer_window()
            };
            let room = (u32::from(most) * mss).min(peer).saturating_sub(in_flight);
            let len = unsent.min(mss).min(room);
            // A small piece waits until the window opens or all is acknowledged: RFC 9293
            // section 3.8.6.2.1.
            if len > 0 && (len == unsent || len == mss || in_flight == 0) {
                let last = len == unsent;
                let push = if is_dperf && several && !is_client {
                    !conn.has(flag::ANSWERED)
                } else {
                    last
                };
                let fin = fin_due && last && !(is_dperf && several);
                return Some(Next {
                    seq: conn.next_seq,
                    flags: ACK | if push { PSH } else { 0 } | if fin { FIN } else { 0 },
                    len,
                });
            }
        } else if fin_due && (!is_dperf || conn.queued_len == 0 || !several) {
            return bare(conn.next_seq, FIN | ACK);
        }
        if conn.has(flag::SEND_ACK) {
            return bare(conn.next_seq, ACK);
        }
        None
    }

    /// The place in its message of a sequence number at or after `oldest`. What is queued ends with
    /// a message, so the place follows from the end.
    #[inline]
    fn offset_in_message(conn: &Conn, message_len: u32, seq: u32) -> u32 {
        let to_end = conn.queued_len.wrapping_sub(seq.wrapping_sub(conn.oldest));
        if to_end == message_len || message_len == 0 {
            return 0;
        }
        let from_end = if to_end < message_len {
            to_end
        } else {
            to_end % message_len
        };
        if from_end == 0 {
            0
        } else {
            message_len - from_end
        }
    }

    /// Tells the peer that a connection is given up, if there is room.
    pub(super) fn send_reset(&mut self, id: u32, sink: &mut impl FrameSink) {
        let conn = self.table.slab.get(id);
        // A SYN that was never answered is not followed by anything.
        if !matches!(conn.state, State::Open | State::SynReceived) {
            return;
        }
        let Some(out) = sink.lend() else {
            self.counters.drop_no_room += 1;
            return;
        };
        let path = Self::path(&self.hops, &self.local, &conn.key, conn.hop);
        let header = Header {
            seq: conn.next_seq,
            ack: conn.expected,
            flags: RST | ACK,
            window: 0,
        };
        let len = self.builder.tcp(out, &path, &header, &[], 0, |_| 0);
        sink.commit(len);
        self.counters.tx_frames += 1;
        self.counters.tx_octets += len as u64;
        self.counters.tcp_tx += 1;
        self.counters.rst_tx += 1;
    }
}

/// A segment with the end of one message and the beginning of the next ones.
fn write_several(text: &crate::Message, offset: u32, payload: &mut [u8]) -> u64 {
    let (mut at, mut offset) = (0, offset);
    while at < payload.len() {
        let n = ((text.len() - offset) as usize).min(payload.len() - at);
        text.write(offset, &mut payload[at..at + n]);
        at += n;
        offset = 0;
    }
    wb_wire::checksum::sum(payload)
}
