//! Output: builds the segments that a connection must or may send now.

use wb_wire::tcp_flags::{ACK, FIN, PSH, RST, SYN};

use super::Machine;
use crate::build::{FrameSink, SegmentHeader};
use crate::connection::{Conn, ConnectionState, NO_SIDE_RECORD, before, flag, pack};
use crate::counters::Counters;
use crate::message::Message;
use crate::observer::Observer;
use crate::reassembly::LONGEST_SACK;
use crate::script::Texts;
use crate::side_record::SideRecords;

/// Next segment of a connection.
struct NextSegment {
    seq: u32,
    flags: u8,
    len: u32,
    /// The SACK scoreboard considers this range lost.
    is_lost: bool,
}

/// Input of the side record for the next segment.
struct SegmentHints {
    /// Bytes in flight.
    pipe: u32,
    /// Sequence range to retransmit.
    lost: Option<(u32, u32)>,
    force: bool,
    /// Length of the options in bytes.
    options_len: u32,
}

/// Flags that require a segment even without data.
const DEMANDS: u16 =
    flag::SEND_SYN | flag::SEND_ACK | flag::SEND_AGAIN | flag::SEND_RST | flag::SEND_PROBE;

impl<O: Observer> Machine<O> {
    /// Sends everything that a connection may send. If the sink has no room, the connection waits in the queue.
    #[inline]
    pub(super) fn output(&mut self, now: u64, id: u32, sink: &mut impl FrameSink) {
        let mut sack = [0; LONGEST_SACK];
        loop {
            let conn = self.table.slab.get(id);
            if conn.side_record == NO_SIDE_RECORD && !has_something(conn) {
                return;
            }
            let hints = if conn.side_record == NO_SIDE_RECORD {
                SegmentHints {
                    pipe: conn.data_in_flight(),
                    lost: None,
                    force: false,
                    options_len: 0,
                }
            } else {
                Self::segment_hints(conn, &self.side_records, &mut sack)
            };
            let Some(next) = Self::next_segment(
                conn,
                &hints,
                &self.config,
                self.is_dperf,
                self.client.is_some(),
                self.text.len(),
            ) else {
                if conn.unsent() > 0 && conn.is(pack::SACK) && !self.scores(id) {
                    // More data than the window allows: from now on the send time of each segment is recorded.
                    self.begin_board(id, Some(now));
                }
                return;
            };
            let Some(out) = sink.lend() else {
                Self::enqueue(&mut self.queue, conn, id);
                return;
            };
            let is_syn = next.flags & SYN != 0;
            let options = if is_syn {
                let all = (&self.syn_options, &self.unscaled_options);
                syn_options(conn, all, self.is_dperf)
            } else {
                &sack[..hints.options_len as usize]
            };
            let path = Self::path(&self.hops, &self.local, &conn.key, conn.lateness);
            let header = SegmentHeader {
                seq: next.seq,
                ack: if next.flags & ACK != 0 {
                    conn.expected
                } else {
                    0
                },
                flags: next.flags,
                window: Self::window(conn, self.server.echo, &self.side_records, &self.config),
            };
            let (text, side_records) = (&self.text, &self.side_records);
            let texts = Texts {
                all: &self.texts,
                leave: &self.leave,
            };
            let len =
                self.builder
                    .tcp(out, &path, &header, options, next.len as usize, |payload| {
                        if conn.side_record == NO_SIDE_RECORD {
                            write_text(text, conn, next.seq, payload)
                        } else {
                            write_script(&texts, side_records, conn, next.seq, payload)
                        }
                    });
            sink.commit(len);
            count_sent(&mut self.counters, side_records, conn, &next, len);
            if next.flags & RST != 0 {
                // Only a client that closes by RST gets here, after its last answer.
                self.counters.completed_by_reset += 1;
                self.complete(now, id);
                return;
            }
            if next.len > 0 && self.client.is_none() {
                conn.set(flag::ANSWERED);
            }
            if conn.side_record == NO_SIDE_RECORD {
                if next.len > 0 && conn.in_flight() == 0 && !conn.has(flag::REWOUND) {
                    conn.packed |= pack::TIMING;
                }
            } else {
                Self::note_side_record(now, conn, &mut self.side_records, &next);
            }
            Self::note_sent(conn, &next);
        }
    }

    /// Reads the side record before the next segment.
    #[inline(never)]
    fn segment_hints(
        conn: &Conn,
        side_records: &SideRecords,
        sack: &mut [u8; LONGEST_SACK],
    ) -> SegmentHints {
        let mut hints = SegmentHints {
            pipe: conn.data_in_flight(),
            lost: None,
            force: false,
            options_len: 0,
        };
        let Some((side_record, _)) = side_records.peek(conn.side_record) else {
            return hints;
        };
        if side_record.board.is_active() {
            hints.pipe = side_record.board.pipe(conn.in_flight());
            hints.lost = side_record.board.first_lost(conn.mss.into());
            hints.force = side_record.board.force;
        }
        if conn.is(pack::SACK) && conn.state == ConnectionState::Open {
            hints.options_len = side_record.ahead.sack_option(sack) as u32;
            if hints.options_len >= conn.mss.into() {
                hints.options_len = 0;
            }
        }
        hints
    }

    /// Updates the side record after a segment was sent.
    #[inline(never)]
    fn note_side_record(
        now: u64,
        conn: &mut Conn,
        side_records: &mut SideRecords,
        next: &NextSegment,
    ) {
        let Some(side_record) = side_records.get(conn.side_record) else {
            return;
        };
        side_record.ahead.clear_reported_duplicate();
        let end = next
            .seq
            .wrapping_add(next.len + u32::from(next.flags & FIN != 0));
        if !side_record.board.is_active() {
            if next.len > 0 && conn.in_flight() == 0 && !conn.has(flag::REWOUND) {
                conn.packed |= pack::TIMING;
                side_record.timed = now;
            }
        } else if next.is_lost {
            side_record.board.sent_again(next.seq, end, now);
        } else if before(conn.next_seq.wrapping_sub(1), next.seq) {
            side_record.board.sent(end, now);
        }
    }

    #[inline]
    fn note_sent(conn: &mut Conn, next: &NextSegment) {
        // Each segment satisfies one demand, in the order of `next_segment`; any segment acknowledges.
        if conn.has(flag::SEND_SYN) {
            conn.clear(flag::SEND_SYN);
        } else if conn.has(flag::SEND_PROBE) {
            conn.clear(flag::SEND_PROBE);
        } else if next.is_lost {
            // Recorded in the scoreboard.
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
        hints: &SegmentHints,
        config: &crate::Config,
        is_dperf: bool,
        is_client: bool,
        message_len: u32,
    ) -> Option<NextSegment> {
        let unsent = conn.unsent();
        let fin_due = conn.has(flag::FIN_QUEUED) && !conn.has(flag::FIN_SENT);
        let some = |seq, flags, len| {
            Some(NextSegment {
                seq,
                flags,
                len,
                is_lost: false,
            })
        };
        if conn.has(flag::SEND_SYN) {
            let flags = if conn.state == ConnectionState::SynSent {
                SYN
            } else {
                SYN | ACK
            };
            return some(conn.oldest, flags, 0);
        }
        if !matches!(
            conn.state,
            ConnectionState::Open | ConnectionState::TimeWait
        ) {
            // No segment may overtake the SYN in flight.
            return None;
        }
        if conn.has(flag::SEND_RST) {
            return some(conn.next_seq, RST | ACK, 0);
        }
        if conn.has(flag::SEND_PROBE) {
            return some(conn.oldest.wrapping_sub(1), ACK, 0);
        }
        let mss = u32::from(conn.mss) - hints.options_len;
        let most = u32::from(conn.cwnd.min(config.most_in_flight)) * u32::from(conn.mss);
        if let Some((seq, end)) = hints.lost
            && (hints.force || hints.pipe + end.wrapping_sub(seq) <= most)
        {
            let data = conn.queued_len - seq.wrapping_sub(conn.oldest);
            let len = end.wrapping_sub(seq).min(data).min(mss);
            let last = len == data;
            let fin = last && conn.has(flag::FIN_SENT);
            return Some(NextSegment {
                seq,
                flags: ACK | if last { PSH } else { 0 } | if fin { FIN } else { 0 },
                len,
                is_lost: true,
            });
        }
        if conn.has(flag::SEND_AGAIN) {
            let len = conn.data_in_flight().min(conn.queued_len).min(mss);
            let fin = conn.has(flag::FIN_SENT) && len == conn.queued_len;
            return some(conn.oldest, ACK | if fin { FIN } else { 0 }, len);
        }
        if !has_something(conn) {
            return None;
        }
        let several = message_len > mss;
        if unsent > 0 && !conn.has(flag::FIN_SENT) {
            let peer = if is_dperf {
                u32::MAX
            } else {
                conn.peer_window().saturating_sub(conn.data_in_flight())
            };
            let room = most.saturating_sub(hints.pipe).min(peer);
            let len = unsent.min(mss).min(room);
            // Silly window avoidance: a small segment waits until the window opens or all data is acknowledged: RFC
            // 9293 section 3.8.6.2.1.
            if len > 0 && (len == unsent || len == mss || conn.in_flight() == 0) {
                let last = len == unsent;
                let push = if is_dperf && several && !is_client {
                    !conn.has(flag::ANSWERED)
                } else {
                    last
                };
                let fin = fin_due && last && !(is_dperf && several);
                let flags = ACK | if push { PSH } else { 0 } | if fin { FIN } else { 0 };
                return some(conn.next_seq, flags, len);
            }
        } else if fin_due && (!is_dperf || conn.queued_len == 0 || !several) {
            return some(conn.next_seq, FIN | ACK, 0);
        }
        if conn.has(flag::SEND_ACK) {
            return some(conn.next_seq, ACK, 0);
        }
        None
    }

    /// Sends RST for a connection that is given up, if there is room.
    pub(super) fn send_reset(&mut self, id: u32, sink: &mut impl FrameSink) {
        let conn = self.table.slab.get(id);
        // No RST if the SYN was never answered.
        if !matches!(
            conn.state,
            ConnectionState::Open | ConnectionState::SynReceived
        ) {
            return;
        }
        let Some(out) = sink.lend() else {
            self.counters.drop_no_room += 1;
            return;
        };
        let path = Self::path(&self.hops, &self.local, &conn.key, conn.lateness);
        let header = SegmentHeader {
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

/// Returns true if something must be sent, apart from lost segments.
#[inline]
fn has_something(conn: &Conn) -> bool {
    conn.has(DEMANDS)
        || conn.unsent() > 0
        || conn.flags & (flag::FIN_QUEUED | flag::FIN_SENT) == flag::FIN_QUEUED
}

/// Writes the payload from a sequence number on, and returns its checksum sum.
#[inline]
fn write_text(text: &Message, conn: &Conn, seq: u32, payload: &mut [u8]) -> u64 {
    let offset = offset_in_message(conn, text.len(), seq);
    if payload.len() <= (text.len() - offset) as usize {
        text.write(offset, payload)
    } else {
        write_several(text, offset, payload)
    }
}

/// Like `write_text`, for a connection with a side record, which may contain a script.
#[inline(never)]
fn write_script(
    texts: &Texts,
    side_records: &SideRecords,
    conn: &Conn,
    seq: u32,
    payload: &mut [u8],
) -> u64 {
    match side_records.peek(conn.side_record) {
        Some((side_record, store)) if !side_record.script.is_empty() => {
            let at = seq.wrapping_sub(conn.oldest);
            side_record.script.write(at, payload, texts, store);
            wb_wire::checksum::sum(payload)
        }
        _ => match texts.all {
            [text, ..] => write_text(&text.message, conn, seq, payload),
            [] => 0,
        },
    }
}

/// Writes the end of one message and the start of the following ones into one segment.
fn write_several(text: &Message, offset: u32, payload: &mut [u8]) -> u64 {
    let (mut at, mut offset) = (0, offset);
    while at < payload.len() {
        let n = ((text.len() - offset) as usize).min(payload.len() - at);
        text.write(offset, &mut payload[at..at + n]);
        at += n;
        offset = 0;
    }
    wb_wire::checksum::sum(payload)
}

/// Offset in its message of a sequence number at or after `oldest`. The queue ends with a complete message, so the
/// offset is derived from the end.
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

/// Options of a SYN, or of a SYN-ACK with only those that the peer offered.
fn syn_options<'a>(conn: &Conn, all: (&'a [u8; 12], &'a [u8; 8]), is_dperf: bool) -> &'a [u8] {
    let (scaled, unscaled) = all;
    if is_dperf {
        return &scaled[..8];
    }
    let is_first = conn.state == ConnectionState::SynSent;
    match (
        is_first || conn.is(pack::SCALE),
        is_first || conn.is(pack::SACK),
    ) {
        (true, true) => scaled,
        (true, false) => &scaled[..8],
        (false, true) => unscaled,
        (false, false) => &scaled[..4],
    }
}

#[inline]
fn count_sent(
    counters: &mut Counters,
    side_records: &SideRecords,
    conn: &Conn,
    next: &NextSegment,
    len: usize,
) {
    let is_syn = next.flags & SYN != 0;
    counters.tx_frames += 1;
    counters.tx_octets += len as u64;
    counters.tcp_tx += 1;
    counters.payload_tx += u64::from(next.len);
    counters.syn_tx += u64::from(is_syn);
    counters.fin_tx += u64::from(next.flags & FIN != 0);
    counters.rst_tx += u64::from(next.flags & RST != 0);
    if next.is_lost || conn.has(flag::SEND_AGAIN | flag::REWOUND) {
        count_again(counters, side_records, conn, next);
    }
}

#[cold]
fn count_again(
    counters: &mut Counters,
    side_records: &SideRecords,
    conn: &Conn,
    next: &NextSegment,
) {
    let is_syn = next.flags & SYN != 0;
    let is_old = is_syn
        || next.is_lost
        || conn.has(flag::SEND_AGAIN)
        || side_records
            .peek(conn.side_record)
            .is_none_or(|(side_record, _)| before(next.seq, side_record.recover));
    if !is_old {
        return;
    }
    if is_syn {
        counters.syn_again += 1;
    } else if next.len > 0 {
        counters.data_again += 1;
        counters.fast_again += u64::from(next.is_lost && conn.has(flag::RECOVERY));
    } else if next.flags & FIN != 0 {
        counters.fin_again += 1;
    }
}
