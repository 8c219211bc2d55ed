//! Out-of-order data of a connection: bytes if their contents are needed, otherwise only ranges.

use std::collections::VecDeque;

use crate::connection::before;
use crate::store::Store;

/// Maximum number of pieces of one connection; further data is not stored.
const MOST_PIECES: usize = 4096;
/// Maximum number of SACK blocks without other options: RFC 2018 section 3.
const MOST_BLOCKS: usize = 4;
/// Maximum length of the SACK option, including padding.
pub(crate) const LONGEST_SACK: usize = 4 + 8 * MOST_BLOCKS;
/// No bytes stored.
const NONE: u32 = u32::MAX;

/// Piece of the stream; its bytes, if stored, are at the start of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReceivedPiece {
    pub(crate) start: u32,
    pub(crate) end: u32,
    block: u32,
}

impl ReceivedPiece {
    /// Block with the bytes; None if only the range is stored.
    pub(crate) fn block(&self) -> Option<u32> {
        (self.block != NONE).then_some(self.block)
    }
}

/// Result of storing a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    /// At least part of the segment is new.
    New,
    /// All of the segment was already stored.
    Again,
    /// Part of the segment could not be stored.
    NoRoom,
}

#[derive(Debug, Default)]
pub(crate) struct Reassembly {
    /// Pieces in order, without overlap.
    pieces: VecDeque<ReceivedPiece>,
    /// Positions in the most recent ranges, latest first: RFC 2018 section 4.
    recent: [u32; MOST_BLOCKS],
    recents: u8,
    /// Duplicate segment to report: RFC 2883.
    again: Option<(u32, u32)>,
    /// End of the stream, if known.
    pub(crate) end: Option<u32>,
}

impl Reassembly {
    pub(crate) fn is_empty(&self) -> bool {
        self.pieces.is_empty() && self.again.is_none() && self.end.is_none()
    }

    #[cfg(test)]
    fn has_pieces(&self) -> bool {
        !self.pieces.is_empty()
    }

    pub(crate) fn clear(&mut self, store: &mut Store) {
        for piece in self.pieces.drain(..) {
            if let Some(block) = piece.block() {
                store.give_back(block);
            }
        }
        self.recents = 0;
        (self.again, self.end) = (None, None);
    }

    /// Records a duplicate segment.
    pub(crate) fn note_again(&mut self, start: u32, end: u32) {
        self.again = Some((start, end));
    }

    /// Stores `start..end` with its bytes, or only the range if `bytes` is None.
    pub(crate) fn keep(
        &mut self,
        start: u32,
        end: u32,
        bytes: Option<&[u8]>,
        store: &mut Store,
    ) -> Kept {
        let mut at = self
            .pieces
            .partition_point(|piece| !before(start, piece.end));
        let mut cursor = start;
        let mut kept = Kept::Again;
        while before(cursor, end) {
            let next = self.pieces.get(at).copied();
            if let Some(piece) = next.filter(|piece| !before(cursor, piece.start)) {
                cursor = if before(cursor, piece.end) {
                    piece.end
                } else {
                    cursor
                };
                at += 1;
                continue;
            }
            let stop = next
                .map(|piece| piece.start)
                .filter(|stop| before(*stop, end))
                .unwrap_or(end);
            let part = bytes.map(|bytes| {
                let from = cursor.wrapping_sub(start) as usize;
                &bytes[from..from + stop.wrapping_sub(cursor) as usize]
            });
            let Some(pieces) = self.insert(at, cursor, stop, part, store) else {
                return Kept::NoRoom;
            };
            kept = Kept::New;
            at += pieces;
            cursor = stop;
        }
        if kept == Kept::New {
            self.note_recent(start);
        }
        kept
    }

    /// Inserts data that fills a gap, and returns the number of pieces inserted.
    fn insert(
        &mut self,
        at: usize,
        start: u32,
        end: u32,
        bytes: Option<&[u8]>,
        store: &mut Store,
    ) -> Option<usize> {
        let Some(bytes) = bytes else {
            if let Some(piece) = at.checked_sub(1).and_then(|at| self.pieces.get_mut(at))
                && piece.block == NONE
                && piece.end == start
            {
                piece.end = end;
                return Some(0);
            }
            if let Some(piece) = self.pieces.get_mut(at)
                && piece.block == NONE
                && piece.start == end
            {
                piece.start = start;
                return Some(0);
            }
            let block = NONE;
            return self
                .insert_at(at, ReceivedPiece { start, end, block })
                .then_some(1);
        };
        let mut from = start;
        let chunks = bytes.chunks(store.block_len());
        let n = chunks.len();
        for (i, chunk) in chunks.enumerate() {
            let block = store.allocate_block()?;
            store.get_mut(block)[..chunk.len()].copy_from_slice(chunk);
            let piece = ReceivedPiece {
                start: from,
                end: from.wrapping_add(chunk.len() as u32),
                block,
            };
            if !self.insert_at(at + i, piece) {
                store.give_back(block);
                return None;
            }
            from = piece.end;
        }
        Some(n)
    }

    fn insert_at(&mut self, at: usize, piece: ReceivedPiece) -> bool {
        let fits = self.pieces.len() < MOST_PIECES;
        if fits {
            self.pieces.insert(at, piece);
        }
        fits
    }

    /// Moves the range around a position to the front of the recent ones.
    fn note_recent(&mut self, place: u32) {
        let Some((start, end)) = self.range(place) else {
            return;
        };
        let before_it = self.recent;
        let others = before_it[..usize::from(self.recents)]
            .iter()
            .filter(|other| before(**other, start) || !before(**other, end));
        let mut n = 1;
        for (to, other) in self.recent[1..].iter_mut().zip(others) {
            *to = *other;
            n += 1;
        }
        self.recent[0] = place;
        self.recents = n;
    }

    /// Removes and returns the next piece in order: it starts at or before `expected` and ends after it. The caller
    /// must give back its block.
    pub(crate) fn next_piece(&mut self, expected: u32, store: &mut Store) -> Option<ReceivedPiece> {
        while let Some(&piece) = self.pieces.front() {
            if before(expected, piece.start) {
                return None;
            }
            self.pieces.pop_front();
            if before(expected, piece.end) {
                return Some(piece);
            }
            if let Some(block) = piece.block() {
                store.give_back(block);
            }
        }
        None
    }

    /// Puts back a piece that was not used completely.
    pub(crate) fn put_back(&mut self, piece: ReceivedPiece) {
        self.pieces.push_front(piece);
    }

    /// Contiguous range around a position.
    fn range(&self, place: u32) -> Option<(u32, u32)> {
        let at = self
            .pieces
            .partition_point(|piece| !before(place, piece.end));
        let piece = self.pieces.get(at)?;
        if before(place, piece.start) {
            return None;
        }
        let (mut start, mut end) = (piece.start, piece.end);
        for piece in self.pieces.range(..at).rev() {
            if piece.end != start {
                break;
            }
            start = piece.start;
        }
        for piece in self.pieces.range(at + 1..) {
            if piece.start != end {
                break;
            }
            end = piece.end;
        }
        Some((start, end))
    }

    /// Writes the SACK option: the duplicate segment, then the most recent ranges. Returns its length, or 0 if there is
    /// nothing to report.
    pub(crate) fn sack_option(&self, out: &mut [u8; LONGEST_SACK]) -> usize {
        let mut blocks = [(0, 0); MOST_BLOCKS];
        let mut n = 0;
        if let Some(again) = self.again {
            blocks[0] = again;
            n = 1;
        }
        let first = n;
        let oldest = self.pieces.front().map(|piece| piece.start);
        let recent = self.recent[..usize::from(self.recents)].iter().copied();
        for place in recent.chain(oldest) {
            if n == MOST_BLOCKS {
                break;
            }
            if let Some(range) = self.range(place)
                && !blocks[first..n].contains(&range)
            {
                blocks[n] = range;
                n += 1;
            }
        }
        if n == 0 {
            return 0;
        }
        out[..4].copy_from_slice(&[1, 1, 5, 2 + 8 * n as u8]);
        for (block, to) in blocks[..n].iter().zip(out[4..].chunks_exact_mut(8)) {
            to[..4].copy_from_slice(&block.0.to_be_bytes());
            to[4..].copy_from_slice(&block.1.to_be_bytes());
        }
        4 + 8 * n
    }

    /// Clears the duplicate segment after it was reported.
    pub(crate) fn clear_reported_duplicate(&mut self) {
        self.again = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BYTE: fn(u32) -> u8 = |place| (place % 251) as u8;

    proptest! {
        /// Each byte is returned exactly once and in order, regardless of the order and repetition of segments.
        #[test]
        fn every_byte_is_given_out_once_and_in_order(
            base: u32,
            segments in prop::collection::vec((0u32..3000, 1u32..300, any::<bool>()), 1..80),
        ) {
            let mut store = Store::new(100);
            let mut ahead = Reassembly::default();
            let mut model = vec![false; 3300];
            let mut expected = base;
            for (start, len, counted) in segments {
                let start = base.wrapping_add(start);
                let end = start.wrapping_add(len);
                if before(expected, start) {
                    let bytes: Vec<_> = (0..len).map(|i| BYTE(start.wrapping_add(i).wrapping_sub(base))).collect();
                    let range = start.wrapping_sub(base) as usize..end.wrapping_sub(base) as usize;
                    let new = model[range.clone()].iter().any(|there| !there);
                    let kept = ahead.keep(start, end, (!counted).then_some(&bytes[..]), &mut store);
                    prop_assert_eq!(kept, if new { Kept::New } else { Kept::Again });
                    model[range].fill(true);
                } else if before(expected, end) {
                    expected = end;
                    model[..end.wrapping_sub(base) as usize].fill(true);
                }
                while let Some(piece) = ahead.next_piece(expected, &mut store) {
                    if let Some(block) = piece.block() {
                        for place in expected.wrapping_sub(base)..piece.end.wrapping_sub(base) {
                            let at = base.wrapping_add(place).wrapping_sub(piece.start) as usize;
                            prop_assert_eq!(store.get(block)[at], BYTE(place));
                        }
                        store.give_back(block);
                    }
                    expected = piece.end;
                }
                let there = model.iter().take_while(|there| **there).count();
                prop_assert_eq!(expected.wrapping_sub(base) as usize, there);
                let mut option = [0; LONGEST_SACK];
                let len = ahead.sack_option(&mut option);
                for block in option[..len].get(4..).unwrap_or(&[]).chunks_exact(8) {
                    let at = |i: usize| u32::from_be_bytes(block[i..i + 4].try_into().unwrap()).wrapping_sub(base) as usize;
                    // A reported range is complete, and the bytes next to it are missing.
                    prop_assert!(model[at(0)..at(4)].iter().all(|there| *there));
                    prop_assert!(!model[at(0) - 1] && !model[at(4)]);
                }
                prop_assert_eq!(len == 0, !ahead.has_pieces());
            }
            ahead.clear(&mut store);
            prop_assert_eq!(store.free_bytes(), 256 << 20, "all blocks are back");
        }
    }

    #[test]
    fn the_latest_range_is_told_first_and_what_came_twice_before_it() {
        let mut store = Store::new(100);
        let mut ahead = Reassembly::default();
        for start in [100, 300, 500] {
            ahead.keep(start, start + 100, None, &mut store);
        }
        ahead.note_again(300, 400);
        let mut out = [0; LONGEST_SACK];
        assert_eq!(ahead.sack_option(&mut out), 36);
        assert_eq!(out[..4], [1, 1, 5, 34]);
        let starts: Vec<_> = out[4..]
            .chunks(8)
            .map(|b| u32::from_be_bytes(b[..4].try_into().unwrap()))
            .collect();
        assert_eq!(starts, [300, 500, 300, 100]);
        ahead.clear_reported_duplicate();
        assert_eq!(ahead.sack_option(&mut out), 28);
    }
}
