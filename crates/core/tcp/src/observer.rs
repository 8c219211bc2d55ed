//! Observer: receives the measured times.

use wb_measure::Histogram;

use crate::addr::Addr;
use crate::machine::Cause;

/// One request with its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exchange {
    /// Index of the request in [`Config::asks`](crate::Config::asks); 0 if there is only one request.
    pub text: u16,
    /// Status code of the answer, 100 to 599; 0 if the answer is not HTTP.
    pub status: u16,
    /// Place under which the answer was [shown](Observer::head).
    pub shown: Option<u16>,
    /// Time from queuing the request for sending to the last byte of the answer, ns.
    pub ns: u64,
    /// Time from the arrival of the last byte until it was read, ns; not included in `ns`.
    pub unread: u64,
    /// Time from the due time of the request to the last byte of the answer, ns.
    pub since_due: u64,
}

/// Receiver of measured times. All methods do nothing by default.
pub trait Observer {
    /// A handshake completed `ns` after the first SYN.
    #[inline]
    fn connected(&mut self, ns: u64) {
        let _ = ns;
    }

    /// The first byte of an answer arrived `ns` after its request was queued for sending.
    #[inline]
    fn first_byte(&mut self, ns: u64) {
        let _ = ns;
    }

    /// An answer was complete `ns` after its request was queued for sending.
    #[inline]
    fn answered(&mut self, ns: u64) {
        let _ = ns;
    }

    /// An answer was complete `ns` after its request was due. Called after [`Observer::answered`] if there is a
    /// schedule.
    #[inline]
    fn answered_since_due(&mut self, ns: u64) {
        let _ = ns;
    }

    /// TCP: `n` requests with index `text` were queued for sending.
    #[inline]
    fn asked(&mut self, now: u64, text: u16, n: u16) {
        let _ = (now, text, n);
    }

    /// TCP: an answer was complete. Called in addition to [`Observer::answered`].
    #[inline]
    fn exchanged(&mut self, exchange: &Exchange) {
        let _ = exchange;
    }

    /// TCP, with [`Config::shows_answers`](crate::Config::shows_answers): bytes of a head, the first of them if
    /// `first`. Concurrent answers have different places; later answers reuse a place. A second `first` in a place
    /// means that the head before it was interim or that its connection ended.
    #[inline]
    fn head(&mut self, place: u16, first: bool, bytes: &[u8]) {
        let _ = (place, first, bytes);
    }

    /// TCP, with [`Config::shows_answers`](crate::Config::shows_answers): the next bytes of the body in this place.
    #[inline]
    fn body(&mut self, place: u16, bytes: &[u8]) {
        let _ = (place, bytes);
    }

    /// TCP, with [`Config::asks`](crate::Config::asks): `all` bytes of an answer arrived, `body` of them part of its
    /// body. The request was sent at `sent_ns`.
    #[inline]
    fn answer_bytes(&mut self, sent_ns: u64, all: u64, body: u64) {
        let _ = (sent_ns, all, body);
    }

    /// TCP: a request sent `ns` ago will get no answer, because its connection ended.
    #[inline]
    fn unanswered(&mut self, text: u16, ns: u64, cause: Cause) {
        let _ = (text, ns, cause);
    }

    /// TCP: these bytes arrived instead of an answer but are not a valid message. The connection is given up.
    #[inline]
    fn malformed(&mut self, bytes: &[u8]) {
        let _ = bytes;
    }

    /// TCP, with [`Config::asks`](crate::Config::asks): data arrived without a request. The connection is given up.
    #[inline]
    fn unasked(&mut self) {}

    /// A device on the path reported the original source of a connection.
    #[inline]
    fn source(&mut self, address: Addr, port: u16) {
        let _ = (address, port);
    }
}

impl Observer for () {}

/// Distributions of the measured times, in ns.
#[derive(Clone, Debug, Default)]
pub struct Latencies {
    /// From SYN to SYN-ACK.
    pub connect: Histogram,
    /// From request to first byte.
    pub first_byte: Histogram,
    /// From request to last byte.
    pub answer: Histogram,
    /// From the due time of the request to the last byte.
    pub since_due: Histogram,
}

impl Latencies {
    /// Adds the distributions of another worker.
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
