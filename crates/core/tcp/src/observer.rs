//! Where times go.

use wb_measure::Histogram;

use crate::addr::Addr;
use crate::machine::Cause;

/// A request and its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exchange {
    /// The number of the request in [`Config::asks`](crate::Config::asks); 0 if there is one.
    pub text: u16,
    /// Of the answer, 100 to 599; 0 if it is not of HTTP.
    pub status: u16,
    /// The place of what was [shown](Observer::head) of it.
    pub shown: Option<u16>,
    /// From when the request was queued for sending to the last byte of the answer.
    pub ns: u64,
    /// Time that the last byte lay unread, which is not in `ns`.
    pub unread: u64,
    /// The same from when it was due.
    pub since_due: u64,
}

/// Told of times as they are known. All methods do nothing by default.
pub trait Observer {
    /// A handshake took `ns`, from the first SYN.
    #[inline]
    fn connected(&mut self, ns: u64) {
        let _ = ns;
    }

    /// The first byte of an answer came `ns` after its request was queued for sending.
    #[inline]
    fn first_byte(&mut self, ns: u64) {
        let _ = ns;
    }

    /// An answer was complete `ns` after its request was queued for sending.
    #[inline]
    fn answered(&mut self, ns: u64) {
        let _ = ns;
    }

    /// The same since the request was due, where there is a schedule: told after
    /// [`Observer::answered`].
    #[inline]
    fn answered_since_due(&mut self, ns: u64) {
        let _ = ns;
    }

    /// TCP: so many requests of a text were queued for sending.
    #[inline]
    fn asked(&mut self, now: u64, text: u16, n: u16) {
        let _ = (now, text, n);
    }

    /// TCP: an answer was complete. Told beside [`Observer::answered`].
    #[inline]
    fn exchanged(&mut self, exchange: &Exchange) {
        let _ = exchange;
    }

    /// TCP, with [`Config::shows_answers`](crate::Config::shows_answers): the next bytes of a head, the first of them
    /// or more. Answers that come at the same time have different places; a place is used again by later ones. Where
    /// a place has a first head again, what was shown of it was interim, or its connection ended.
    #[inline]
    fn head(&mut self, place: u16, first: bool, bytes: &[u8]) {
        let _ = (place, first, bytes);
    }

    /// The same: the next bytes of the body that belongs to that head.
    #[inline]
    fn body(&mut self, place: u16, bytes: &[u8]) {
        let _ = (place, bytes);
    }

    /// TCP, with [`Config::counts_bodies`](crate::Config::counts_bodies): bytes of the answer to a request that was sent
    /// at this time came, `body` of them of its body.
    #[inline]
    fn answer_bytes(&mut self, sent_ns: u64, all: u64, body: u64) {
        let _ = (sent_ns, all, body);
    }

    /// TCP: a request that was sent so long ago, in ns, gets no answer, because its connection ended.
    #[inline]
    fn unanswered(&mut self, text: u16, ns: u64, cause: Cause) {
        let _ = (text, ns, cause);
    }

    /// TCP: this came where an answer was expected, and is none: its connection is given up.
    #[inline]
    fn malformed(&mut self, bytes: &[u8]) {
        let _ = bytes;
    }

    /// TCP, with [`Config::asks`](crate::Config::asks): something came that nobody had asked for. Its connection is
    /// given up.
    #[inline]
    fn unasked(&mut self) {}

    /// A device in between told where a connection really comes from.
    #[inline]
    fn source(&mut self, address: Addr, port: u16) {
        let _ = (address, port);
    }
}

impl Observer for () {}

/// Distributions of the times.
#[derive(Clone, Debug, Default)]
pub struct Latencies {
    /// From SYN to SYN-ACK.
    pub connect: Histogram,
    /// From request to first byte.
    pub first_byte: Histogram,
    /// From request to last byte.
    pub answer: Histogram,
    /// From when the request was due to the last byte.
    pub since_due: Histogram,
}

impl Latencies {
    /// Adds those of another worker.
    pub fn merge(&mut self, other: &Self) {
        self.connect.merge(&other.connect);
        self.first_byte.merge(&other.first_byte);
        self.answer.merge(&other.answer);
        self.since_due.merge(&other.since_due);
    }
}

impl Observer for Latencies {
    #[inline]
    fn connected(&mut self, ns: u64) {
        self.connect.record(ns);
    }

    #[inline]
    fn first_byte(&mut self, ns: u64) {
        self.first_byte.record(ns);
    }

    #[inline]
    fn answered(&mut self, ns: u64) {
        self.answer.record(ns);
    }

    #[inline]
    fn answered_since_due(&mut self, ns: u64) {
        self.since_due.record(ns);
    }
}
