//! What comes in becomes a stream: in order, each byte once, as fast as it can be taken.

use wb_wire::tcp_flags::FIN;

use super::Machine;
use super::segment::{MOST_QUEUED, WINDOW};
use super::server::PROXY_READ;
use crate::build::FrameSink;
use crate::config::Config;
use crate::conn::{Conn, NO_SIDE_RECORD, flag, pack};
use crate::observer::Observer;
use crate::parse::Packet;
use crate::reassembly::{Kept, Piece};
use crate::side_record::SideRecords;

/// Most bytes of an echo that wait to be sent or acknowledged.
pub(super) const MOST_ECHOED: u32 = 256 << 10;

impl<O: Observer> Machine<O> {
    /// The window to be announced, as the header has it: no more than can be taken.
    #[inline]
    pub(super) fn window(
        conn: &Conn,
        echo: bool,
        side_records: &SideRecords,
        config: &Config,
    ) -> u16 {
        if echo {
            return echo_window(conn, side_records, config);
        }
        if conn.queued_len > MOST_QUEUED {
            return 0;
        }
        config.window
    }

    /// Something of what waited was acknowledged: a window that was closed by it is opened again.
    #[inline]
    pub(super) fn note_room(&mut self, id: u32, queued_before: u32) {
        let conn = self.table.slab.get(id);
        let most = if self.server.echo {
            MOST_ECHOED - u32::from(conn.mss)
        } else {
            MOST_QUEUED
        };
        if queued_before > most && conn.queued_len <= most {
            conn.set(flag::SEND_ACK);
        }
    }

    /// A segment ahead of its turn: kept, and acknowledged at once, so that the peer notices: RFC 5681
    /// section 4.2.
    #[inline(never)]
    pub(super) fn ahead_of_turn(&mut self, id: u32, packet: &Packet<'_>) {
        let conn = self.table.slab.get(id);
        let start = packet.seq;
        let end = start.wrapping_add(packet.payload.len() as u32);
        let distance = end.wrapping_sub(conn.expected);
        let fin = packet.flags & FIN != 0;
        if packet.payload.is_empty() && !fin {
            // An acknowledgement that overtook data, or whose data was lost. Acknowledging
            // acknowledgements would go on for ever where both ends have lost something.
            return;
        }
        conn.set(flag::SEND_ACK);
        let countable = if conn.is_closing() && self.client.is_some() {
            u64::from(WINDOW)
        } else if self.server.echo
            || self.server.proxy && conn.outstanding != PROXY_READ
            || self.shows_answers
        {
            0
        } else {
            self.reader.countable(&conn.progress)
        };
        let sack = conn.is(pack::SACK);
        let wanted = distance < WINDOW && !conn.has(flag::FIN_RECEIVED);
        let record = if wanted {
            self.side_records.with_store(&mut conn.side_record)
        } else {
            None
        };
        let Some((side_record, store)) = record else {
            self.counters.drop_ahead += 1;
            return;
        };
        let bytes = (u64::from(distance) > countable).then_some(packet.payload);
        match side_record.ahead.keep(start, end, bytes, store) {
            Kept::NoRoom => self.counters.drop_ahead += 1,
            Kept::New => self.counters.out_of_order += 1,
            Kept::Again => {
                self.counters.drop_sequence += u64::from(!packet.payload.is_empty());
                if sack && !packet.payload.is_empty() {
                    side_record.ahead.note_again(start, end);
                }
            }
        }
        if fin {
            side_record.ahead.end = Some(end);
        }
    }

    /// A segment came twice: a peer that hears of it knows that it need not have sent it again.
    #[inline(never)]
    pub(super) fn note_again(&mut self, id: u32, packet: &Packet<'_>) {
        let conn = self.table.slab.get(id);
        if conn.is(pack::SACK)
            && !packet.payload.is_empty()
            && let Some(side_record) = self.side_records.of(&mut conn.side_record)
        {
            let end = packet.seq.wrapping_add(packet.payload.len() as u32);
            side_record.ahead.note_again(packet.seq, end);
        }
    }

    /// In-order data, as much of it as can be taken now. None if the connection is no more.
    #[inline]
    pub(super) fn take_data(
        &mut self,
        now: u64,
        id: u32,
        payload: &[u8],
        sink: &mut impl FrameSink,
    ) -> Option<usize> {
        let conn = self.table.slab.get(id);
        conn.set(flag::ACK_LATER);
        let expected = conn.expected;
        // Before it is read: what is answered acknowledges it.
        conn.expected = expected.wrapping_add(payload.len() as u32);
        let taken = self.read(now, id, payload, sink)?;
        self.counters.payload_rx += taken as u64;
        if taken < payload.len() {
            self.table.slab.get(id).expected = expected.wrapping_add(taken as u32);
        }
        Some(taken)
    }

    /// Takes what was kept and whose turn has come. False if the connection is no more.
    #[cold]
    pub(super) fn take_kept(&mut self, now: u64, id: u32, sink: &mut impl FrameSink) -> bool {
        loop {
            let conn = self.table.slab.get(id);
            let number = conn.side_record;
            let expected = conn.expected;
            let next = match self.side_records.with_store(&mut conn.side_record) {
                Some((side_record, store)) if number != NO_SIDE_RECORD => {
                    let end = side_record.ahead.end;
                    side_record
                        .ahead
                        .take(expected, store)
                        .map(|piece| (piece, end))
                }
                _ => None,
            };
            let Some((piece, end)) = next else {
                return true;
            };
            let conn = self.table.slab.get(id);
            // A gap that was filled is acknowledged at once: RFC 5681 section 4.2.
            conn.set(flag::SEND_ACK);
            if end == Some(piece.end) && self.client.is_some() {
                // Nothing more is asked after the answer that ends the stream.
                conn.set(flag::FIN_RECEIVED);
            }
            match self.take_piece(now, id, piece, sink) {
                None => return false,
                Some(true) => {}
                Some(false) => return true,
            }
        }
    }

    /// Whether all of a piece could be taken. None if the connection is no more.
    fn take_piece(
        &mut self,
        now: u64,
        id: u32,
        piece: Piece,
        sink: &mut impl FrameSink,
    ) -> Option<bool> {
        let conn = self.table.slab.get(id);
        let n = piece.end.wrapping_sub(conn.expected);
        let Some(block) = piece.block() else {
            conn.expected = piece.end;
            self.counters.payload_rx += u64::from(n);
            self.count_read(now, id, n);
            return Some(true);
        };
        let from = conn.expected.wrapping_sub(piece.start) as usize;
        let to = piece.end.wrapping_sub(piece.start) as usize;
        let bytes = self.side_records.store.lend(block);
        let taken = self.take_data(now, id, &bytes[from..to], sink);
        self.side_records.store.put(block, bytes);
        if taken.is_some_and(|taken| from + taken < to) {
            // There is no room for the answers; it goes on when there is.
            let number = self.table.slab.get(id).side_record;
            if let Some(side_record) = self.side_records.get(number) {
                side_record.ahead.put_back(piece);
                return Some(false);
            }
        }
        self.side_records.store.give_back(block);
        taken.map(|_| true)
    }

    /// Whether the end of the stream, which came before, has its turn now.
    #[inline(never)]
    pub(super) fn end_has_come(&mut self, id: u32) -> bool {
        let conn = self.table.slab.get(id);
        let expected = conn.expected;
        match self.side_records.get(conn.side_record) {
            Some(side_record) if side_record.ahead.end == Some(expected) => {
                side_record.ahead.end = None;
                true
            }
            _ => false,
        }
    }

    /// Gives a side record back that holds nothing more.
    #[inline(never)]
    pub(super) fn tidy(&mut self, id: u32) {
        let conn = self.table.slab.get(id);
        if !conn.has(flag::RECOVERY | flag::REWOUND)
            && self
                .side_records
                .get(conn.side_record)
                .is_some_and(|side_record| side_record.is_empty())
        {
            self.side_records.give_back(&mut conn.side_record);
        }
    }
}

#[cold]
fn echo_window(conn: &Conn, side_records: &SideRecords, config: &Config) -> u16 {
    let kept = u32::try_from(side_records.store.room()).unwrap_or(u32::MAX);
    let room = MOST_ECHOED.saturating_sub(conn.queued_len).min(kept);
    // Less than a segment is nothing: RFC 9293 section 3.8.6.2.2.
    if room < u32::from(conn.mss) {
        return 0;
    }
    let room = room >> config.window_scale;
    config.window.min(u16::try_from(room).unwrap_or(u16::MAX))
}
