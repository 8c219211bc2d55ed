//! Receive side of the stream: each byte once, in order, no faster than it can be processed.

use wb_wire::tcp_flags::FIN;

use super::Machine;
use super::segment::{MOST_QUEUED, WINDOW};
use super::server::PROXY_READ;
use crate::build::FrameSink;
use crate::config::Config;
use crate::connection::{Conn, NO_SIDE_RECORD, flag, pack};
use crate::observer::Observer;
use crate::parse::Packet;
use crate::reassembly::{Kept, ReceivedPiece};
use crate::side_record::SideRecords;

/// Maximum number of echoed bytes that are unsent or unacknowledged.
pub(super) const MOST_ECHOED: u32 = 256 << 10;

impl<O: Observer> Machine<O> {
    /// Window to announce as written in the header; limited by what can be processed.
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

    /// Reopens a closed window after queued data was acknowledged.
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

    /// Stores an out-of-order segment and acknowledges it at once, so that the peer detects the loss: RFC 5681 section
    /// 4.2.
    #[inline(never)]
    pub(super) fn ahead_of_turn(&mut self, id: u32, packet: &Packet<'_>) {
        let conn = self.table.slab.get(id);
        let start = packet.seq;
        let end = start.wrapping_add(packet.payload.len() as u32);
        let distance = end.wrapping_sub(conn.expected);
        let fin = packet.flags & FIN != 0;
        if packet.payload.is_empty() && !fin {
            // An acknowledgement that overtook data or follows lost data. Acknowledging acknowledgements would never
            // end if both ends have lost something.
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

    /// Records a duplicate segment, so that SACK shows the peer that the retransmission was unnecessary.
    #[inline(never)]
    pub(super) fn note_again(&mut self, id: u32, packet: &Packet<'_>) {
        let conn = self.table.slab.get(id);
        if conn.is(pack::SACK)
            && !packet.payload.is_empty()
            && let Some(side_record) = self.side_records.get_or_allocate(&mut conn.side_record)
        {
            let end = packet.seq.wrapping_add(packet.payload.len() as u32);
            side_record.ahead.note_again(packet.seq, end);
        }
    }

    /// Processes in-order data, and returns the number of bytes accepted. Returns None if the connection has ended.
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
        // Update before reading: the answer carries the acknowledgement.
        conn.expected = expected.wrapping_add(payload.len() as u32);
        let taken = self.read(now, id, payload, sink);
        // Data that ends the connection has arrived as well.
        self.counters.payload_rx += taken.unwrap_or(payload.len()) as u64;
        let taken = taken?;
        if taken < payload.len() {
            self.table.slab.get(id).expected = expected.wrapping_add(taken as u32);
        }
        Some(taken)
    }

    /// Processes stored data that is now in order. Returns false if the connection has ended.
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
                        .next_piece(expected, store)
                        .map(|piece| (piece, end))
                }
                _ => None,
            };
            let Some((piece, end)) = next else {
                return true;
            };
            let conn = self.table.slab.get(id);
            // A filled gap is acknowledged at once: RFC 5681 section 4.2.
            conn.set(flag::SEND_ACK);
            if end == Some(piece.end) && self.client.is_some() {
                // No request follows after the answer that ends the stream.
                conn.set(flag::FIN_RECEIVED);
            }
            match self.take_piece(now, id, piece, sink) {
                None => return false,
                Some(true) => {}
                Some(false) => return true,
            }
        }
    }

    /// Returns true if the complete piece was accepted, or None if the connection has ended.
    fn take_piece(
        &mut self,
        now: u64,
        id: u32,
        piece: ReceivedPiece,
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
        self.side_records.store.return_bytes(block, bytes);
        if taken.is_some_and(|taken| from + taken < to) {
            // No room for the answers; reading continues later.
            let number = self.table.slab.get(id).side_record;
            if let Some(side_record) = self.side_records.get(number) {
                side_record.ahead.put_back(piece);
                return Some(false);
            }
        }
        self.side_records.store.give_back(block);
        taken.map(|_| true)
    }

    /// Returns true if a FIN that arrived out of order is now in order.
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

    /// Gives back a side record that is empty.
    #[inline(never)]
    pub(super) fn release_side_record(&mut self, id: u32) {
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
    let kept = u32::try_from(side_records.store.free_bytes()).unwrap_or(u32::MAX);
    let room = MOST_ECHOED.saturating_sub(conn.queued_len).min(kept);
    // Never announce less than a segment: RFC 9293 section 3.8.6.2.2.
    if room < u32::from(conn.mss) {
        return 0;
    }
    let room = room >> config.window_scale;
    config.window.min(u16::try_from(room).unwrap_or(u16::MAX))
}
