//! Where times go.

use wb_measure::Histogram;

use crate::addr::Addr;

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
