//! Side record: connection state that is needed only for losses, out-of-order data, data beyond the window, output that
//! is not one repeated message, or several pending requests or answers.

use std::collections::VecDeque;

use crate::connection::NO_SIDE_RECORD;
use crate::reassembly::Reassembly;
use crate::routes::DelayedAnswer;
use crate::sack_scoreboard::SackScoreboard;
use crate::script::OutputScript;
use crate::store::Store;

/// Request in flight, if requests differ from each other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SentRequest {
    /// Index of its text.
    pub(crate) text: u16,
    /// Lateness of the request, [packed](crate::connection::pack_ns).
    pub(crate) late: u32,
    /// Time at which it was queued for sending, ns.
    pub(crate) sent: u64,
}

/// Side record of one connection.
#[derive(Debug, Default)]
pub(crate) struct SideRecord {
    /// End of fast recovery or of the retransmissions after a timeout: "recover" in RFC 6582 section 3.2.
    pub(crate) recover: u32,
    /// Duplicate acknowledgements of a peer without SACK, up to 3.
    pub(crate) duplicates: u8,
    pub(crate) ahead: Reassembly,
    pub(crate) board: SackScoreboard,
    pub(crate) script: OutputScript,
    /// Requests without an answer, oldest first.
    pub(crate) asked: VecDeque<SentRequest>,
    /// Part of the next answer was passed to the observer.
    pub(crate) shown: bool,
    /// Send time of the data being timed ([`pack::TIMING`](crate::conn::pack::TIMING)).
    pub(crate) timed: u64,
    /// Delayed answers of a server, in the order of the requests.
    pub(crate) waiting: VecDeque<DelayedAnswer>,
    /// Start of a request line, and `route`, the route of an incomplete request.
    pub(crate) line: Vec<u8>,
    pub(crate) route: Option<u16>,
    next_free: u16,
}

impl SideRecord {
    /// Returns true if the record contains nothing but a recovery point.
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

/// Side records by index, at most 65,535; further connections work without one.
#[derive(Debug)]
pub(crate) struct SideRecords {
    all: Vec<SideRecord>,
    free: u16,
    pub(crate) store: Store,
}

impl SideRecords {
    /// Creates an empty collection; received bytes are stored in blocks of `block_len`.
    pub(crate) fn new(block_len: usize) -> Self {
        Self {
            all: Vec::new(),
            free: NO_SIDE_RECORD,
            store: Store::new(block_len),
        }
    }

    /// Returns the record of a connection. Allocates one if `number` is [`NO_SIDE_RECORD`] and one is available.
    pub(crate) fn get_or_allocate(&mut self, number: &mut u16) -> Option<&mut SideRecord> {
        self.with_store(number).map(|(side_record, _)| side_record)
    }

    /// Like `get_or_allocate`, also returns the byte store.
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

    /// Returns a record for reading, with the byte store.
    pub(crate) fn peek(&self, number: u16) -> Option<(&SideRecord, &Store)> {
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
