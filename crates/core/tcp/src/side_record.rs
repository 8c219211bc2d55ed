//! What a connection needs only while segments are lost or out of order, more is to be sent than the
//! window lets go, what it says is not one message again and again, or several things wait their turn.

use std::collections::VecDeque;

use crate::board::Board;
use crate::conn::NO_SIDE_RECORD;
use crate::reassembly::Reassembly;
use crate::routes::Waiting;
use crate::script::Script;
use crate::store::Store;

/// A request that waits for its answer, where they differ from each other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    /// The number of its text.
    pub(crate) text: u16,
    /// How much later than it was due it left, [packed](crate::conn::pack_ns).
    pub(crate) late: u32,
    /// When it was queued for sending.
    pub(crate) sent: u64,
}

/// The side record of one connection.
#[derive(Debug, Default)]
pub(crate) struct SideRecord {
    /// Where fast recovery, or sending again after a timeout, ends: RFC 6582 section 3.2, "recover".
    pub(crate) recover: u32,
    /// Duplicate acknowledgements of a peer without selective ones, up to 3.
    pub(crate) duplicates: u8,
    pub(crate) ahead: Reassembly,
    pub(crate) board: Board,
    pub(crate) script: Script,
    /// Requests without an answer, the oldest first.
    pub(crate) asked: VecDeque<Asked>,
    /// Something of the next answer was shown.
    pub(crate) shown: bool,
    /// When what is timed ([`pack::TIMING`](crate::conn::pack::TIMING)) went out.
    pub(crate) timed: u64,
    /// Answers of a server that wait for their time, in the order of the requests.
    pub(crate) waiting: VecDeque<Waiting>,
    /// The beginning of a request line, and the route of a request that has not ended.
    pub(crate) line: Vec<u8>,
    pub(crate) route: Option<u16>,
    next_free: u16,
}

impl SideRecord {
    /// Whether it holds nothing but a recovery point.
    pub(crate) fn is_empty(&self) -> bool {
        self.ahead.is_empty()
            && !self.board.is_active()
            && self.script.is_empty()
            && self.asked.is_empty()
            && self.waiting.is_empty()
            && self.line.is_empty()
            && self.route.is_none()
            && self.duplicates == 0
    }

    fn clear(&mut self, store: &mut Store) {
        (self.recover, self.duplicates) = (0, 0);
        self.ahead.clear(store);
        self.board.clear();
        self.script.clear(store);
        self.asked.clear();
        self.waiting.clear();
        self.line.clear();
        self.route = None;
    }
}

/// Side records by number; at most 65,534, the connections beyond do without.
#[derive(Debug)]
pub(crate) struct SideRecords {
    all: Vec<SideRecord>,
    free: u16,
    pub(crate) store: Store,
}

impl SideRecords {
    /// None yet; bytes are kept in blocks of so many.
    pub(crate) fn new(block_len: usize) -> Self {
        Self {
            all: Vec::new(),
            free: NO_SIDE_RECORD,
            store: Store::new(block_len),
        }
    }

    /// The record of a connection whose number may be [`NO_SIDE_RECORD`]; a fresh one then, if there is any.
    pub(crate) fn of(&mut self, number: &mut u16) -> Option<&mut SideRecord> {
        self.with_store(number).map(|(side_record, _)| side_record)
    }

    /// The same, and where its bytes are.
    pub(crate) fn with_store(&mut self, number: &mut u16) -> Option<(&mut SideRecord, &mut Store)> {
        if *number == NO_SIDE_RECORD {
            if self.free != NO_SIDE_RECORD {
                *number = self.free;
                self.free = self.all[usize::from(*number)].next_free;
            } else if self.all.len() < usize::from(NO_SIDE_RECORD) {
                *number = self.all.len() as u16;
                self.all.push(SideRecord::default());
            } else {
                return None;
            }
        }
        let side_record = self.all.get_mut(usize::from(*number))?;
        Some((side_record, &mut self.store))
    }

    pub(crate) fn get(&mut self, number: u16) -> Option<&mut SideRecord> {
        self.all.get_mut(usize::from(number))
    }

    /// A record to look at, and where its bytes are.
    pub(crate) fn look(&self, number: u16) -> Option<(&SideRecord, &Store)> {
        Some((self.all.get(usize::from(number))?, &self.store))
    }

    #[inline]
    pub(crate) fn give_back(&mut self, number: &mut u16) {
        if *number != NO_SIDE_RECORD {
            let side_record = &mut self.all[usize::from(*number)];
            side_record.clear(&mut self.store);
            side_record.next_free = self.free;
            self.free = std::mem::replace(number, NO_SIDE_RECORD);
        }
    }
}
