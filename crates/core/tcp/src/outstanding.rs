//! UDP requests in flight: a ring of the most recent requests in the order of sending.
//!
//! All requests have the same timeout, so they also expire in this order. An answer that returns the number of its
//! request finds it directly. If answers return no numbers, each answer is attributed to the oldest request in the
//! chain of its flow. A finished request stays in the ring until its slot is reused, so late and duplicate answers are
//! recognised. Nothing is allocated after the ring is created.

use crate::connection::Conn;
use crate::table::Slab;

/// Length of the header that a request and its answer carry at the start of the payload: number (4 bytes), a mark that
/// identifies our requests (2 bytes), and the send time in ns modulo 2^48 (3 days; 6 bytes).
pub(crate) const NUMBER_LEN: usize = 12;
const TIME: u64 = (1 << 48) - 1;
/// SNMP request ids: the common bit, and the mask of the request number.
const SNMP_ID: u32 = 1 << 30;
const SNMP_NUMBER: u32 = SNMP_ID - 1;

/// State of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum RequestState {
    /// Slot that was never used.
    #[default]
    Unused,
    /// In flight.
    Waiting,
    /// Answered in time.
    Answered,
    /// Not answered in time.
    Lost,
    /// Answered after it was lost.
    Late,
}

#[derive(Clone, Copy, Debug, Default)]
struct RequestEntry {
    sent: u64,
    /// Record of the flow.
    flow: u32,
    /// Next request of the flow.
    next: u32,
    /// Lateness of the request, in ns, at most 4.2 s.
    lateness: u32,
    fate: RequestState,
}

const _: () = assert!(size_of::<RequestEntry>() == 24);

/// Result of a lookup.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FoundRequest {
    pub(crate) number: u32,
    pub(crate) flow: u32,
    pub(crate) sent: u64,
    pub(crate) lateness: u32,
    pub(crate) fate: RequestState,
}

/// Requests of one worker, numbered consecutively modulo 2^32.
#[derive(Debug)]
pub(crate) struct Outstanding {
    ring: Box<[RequestEntry]>,
    /// Oldest request in flight; all earlier ones are finished.
    first: u32,
    /// Number of the next request.
    next: u32,
    waiting: u64,
    key: u64,
}

impl Outstanding {
    /// Creates a ring for at least `most` requests in flight. The key marks the numbers of this machine.
    pub(crate) fn new(most: u32, key: u64) -> Self {
        let len = most.next_power_of_two().min(1 << 30) as usize;
        Self {
            ring: vec![RequestEntry::default(); len].into(),
            first: 0,
            next: 0,
            waiting: 0,
            key,
        }
    }

    /// Memory used, in bytes.
    pub(crate) fn memory(&self) -> usize {
        self.ring.len() * size_of::<RequestEntry>()
    }

    #[inline]
    fn entry(&mut self, number: u32) -> &mut RequestEntry {
        let mask = self.ring.len() - 1;
        &mut self.ring[number as usize & mask]
    }

    #[inline]
    fn found(&mut self, number: u32) -> FoundRequest {
        let entry = *self.entry(number);
        FoundRequest {
            number,
            flow: entry.flow,
            sent: entry.sent,
            lateness: entry.lateness,
            fate: entry.fate,
        }
    }

    /// Returns true if the next request needs the slot of one in flight.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.next.wrapping_sub(self.first) as usize >= self.ring.len()
    }

    /// Records a request of a flow and returns its number. The ring must not be full.
    #[inline]
    pub(crate) fn push(&mut self, now: u64, lateness: u32, flow: u32, conn: &mut Conn) -> u32 {
        debug_assert!(!self.is_full(), "the caller made room");
        let number = self.next;
        *self.entry(number) = RequestEntry {
            sent: now,
            flow,
            next: number,
            lateness,
            fate: RequestState::Waiting,
        };
        if conn.waiting() == 0 {
            conn.oldest = number;
        } else {
            // The last request is younger than one in flight, so its slot has not been reused.
            self.entry(conn.next_seq).next = number;
        }
        conn.next_seq = number;
        conn.expected += 1;
        self.next = number.wrapping_add(1);
        self.waiting += 1;
        number
    }

    /// Oldest request in flight.
    #[inline]
    pub(crate) fn oldest(&mut self) -> Option<FoundRequest> {
        (self.waiting > 0).then(|| self.found(self.first))
    }

    /// Send time of the oldest request in flight.
    #[inline]
    pub(crate) fn oldest_sent(&self) -> Option<u64> {
        let mask = self.ring.len() - 1;
        (self.waiting > 0).then(|| self.ring[self.first as usize & mask].sent)
    }

    /// Oldest request in flight of one flow.
    #[inline]
    pub(crate) fn oldest_of(&mut self, conn: &Conn) -> Option<FoundRequest> {
        (conn.waiting() > 0).then(|| self.found(conn.oldest))
    }

    /// Returns the request with this number if its send time matches and its slot has not been reused.
    #[inline]
    pub(crate) fn find(&mut self, number: u32, sent: u64) -> Option<FoundRequest> {
        let age = self.next.wrapping_sub(number);
        if age == 0 || age as usize > self.ring.len() {
            return None;
        }
        let found = self.found(number);
        (found.sent & TIME == sent & TIME && found.fate != RequestState::Unused).then_some(found)
    }

    /// SNMP request id of a request: its number in 30 bits, mixed with the key to differ between machines, and one more
    /// bit that makes the shortest encoding four bytes long.
    #[inline]
    pub(crate) fn snmp_id(&self, number: u32) -> u32 {
        SNMP_ID | (number ^ self.key as u32) & SNMP_NUMBER
    }

    /// Returns the request with this SNMP request id if its slot has not been reused.
    pub(crate) fn find_snmp(&mut self, id: u32) -> Option<FoundRequest> {
        let number = (id ^ self.key as u32) & SNMP_NUMBER;
        let age = self.next.wrapping_sub(number) & SNMP_NUMBER;
        if id & !SNMP_NUMBER != SNMP_ID || age == 0 || age as usize > self.ring.len() {
            return None;
        }
        let found = self.found(self.next.wrapping_sub(age));
        (found.fate != RequestState::Unused).then_some(found)
    }

    /// Records a late answer to a lost request.
    pub(crate) fn came_late(&mut self, number: u32) {
        self.entry(number).fate = RequestState::Late;
    }

    /// Records the final state of a request in flight. `slab` contains its flow.
    #[inline]
    pub(crate) fn finish(&mut self, number: u32, fate: RequestState, slab: &mut Slab) {
        let entry = self.entry(number);
        debug_assert_eq!(entry.fate, RequestState::Waiting);
        entry.fate = fate;
        let (flow, mut after) = (entry.flow, entry.next);
        self.waiting -= 1;
        let conn = slab.get(flow);
        conn.expected -= 1;
        if conn.waiting() > 0 && conn.oldest == number {
            // The requests in between are younger than this one, so their slots have not been reused.
            while self.entry(after).fate != RequestState::Waiting {
                after = self.entry(after).next;
            }
            conn.oldest = after;
        }
        if number == self.first {
            while self.first != self.next && self.entry(self.first).fate != RequestState::Waiting {
                self.first = self.first.wrapping_add(1);
            }
        }
    }
}

impl Outstanding {
    /// Encodes number and send time of a request for its payload.
    #[inline]
    pub(crate) fn write(&self, number: u32, sent: u64) -> [u8; NUMBER_LEN] {
        let mut bytes = [0; NUMBER_LEN];
        bytes[..4].copy_from_slice(&number.to_be_bytes());
        bytes[4..].copy_from_slice(&self.marked(number, sent).to_be_bytes());
        bytes
    }

    /// Decodes number and send time (modulo 2^48) if a payload starts with a request header of this machine.
    #[inline]
    pub(crate) fn read(&self, payload: &[u8]) -> Option<(u32, u64)> {
        let (number, rest) = payload.split_first_chunk()?;
        let number = u32::from_be_bytes(*number);
        let told = u64::from_be_bytes(*rest.first_chunk()?);
        (self.marked(number, told) == told).then_some((number, told & TIME))
    }

    #[inline]
    fn marked(&self, number: u32, sent: u64) -> u64 {
        let sent = sent & TIME;
        let mixed = (sent ^ u64::from(number).rotate_left(40) ^ self.key)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed & !TIME | sent
    }
}

impl Conn {
    /// Number of requests in flight of a UDP flow. `oldest` and `next_seq` are the numbers of the first and the last of
    /// them.
    #[inline]
    pub(crate) const fn waiting(&self) -> u32 {
        self.expected
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::Key;
    use crate::table::ConnectionTable;
    use proptest::prelude::*;

    proptest! {
        /// The ring agrees with a plain list, also when the numbers wrap.
        #[test]
        fn knows_what_a_list_knows(steps in prop::collection::vec((0u8..4, 0usize..40, any::<bool>()), 0..400)) {
            let mut table = ConnectionTable::new(0, 1);
            let flows: Vec<u32> = (0..3).map(|i| {
                let key = Key::new(crate::Addr::v4(i), 0, 1, 1);
                let hash = table.hash(&key);
                table.insert(key, hash)
            }).collect();
            let mut ring = Outstanding::new(16, 1);
            (ring.first, ring.next) = (u32::MAX - 50, u32::MAX - 50);
            let mut list: Vec<(u32, u64, u32, RequestState)> = Vec::new();
            for (now, (what, which, flag)) in steps.into_iter().enumerate() {
                let now = now as u64;
                let waiting: Vec<usize> = (0..list.len()).filter(|i| list[*i].3 == RequestState::Waiting).collect();
                match what {
                    0 | 1 if !ring.is_full() => {
                        let flow = flows[which % 3];
                        let number = ring.push(now, 0, flow, table.slab.get(flow));
                        list.push((number, now, flow, RequestState::Waiting));
                    }
                    2 if !waiting.is_empty() => {
                        let i = waiting[which % waiting.len()];
                        let fate = if flag { RequestState::Answered } else { RequestState::Lost };
                        ring.finish(list[i].0, fate, &mut table.slab);
                        list[i].3 = fate;
                    }
                    _ => {}
                }
                let first = |of: Option<u32>| list.iter()
                    .find(|r| r.3 == RequestState::Waiting && of.is_none_or(|flow| r.2 == flow)).map(|r| r.0);
                prop_assert_eq!(ring.oldest().map(|f| f.number), first(None));
                for flow in &flows {
                    let conn = *table.slab.get(*flow);
                    prop_assert_eq!(ring.oldest_of(&conn).map(|f| f.number), first(Some(*flow)));
                }
                let count = list.iter().filter(|r| r.3 == RequestState::Waiting).count();
                prop_assert_eq!(ring.waiting, count as u64);
                for (i, (number, sent, flow, fate)) in list.iter().enumerate() {
                    let found = ring.find(*number, *sent);
                    if list.len() - i <= 16 {
                        let found = found.unwrap();
                        prop_assert_eq!((found.flow, found.fate), (*flow, *fate));
                        prop_assert!(ring.find(*number, *sent + 1).is_none());
                    } else {
                        prop_assert!(found.is_none());
                    }
                }
            }
        }
    }
}
