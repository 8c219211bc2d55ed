//! The time in which all streams of a test were running, and the work of each stream in it.
//!
//! Streams never begin and end at exactly the same moment. A sum of rates over different times exceeds what the path
//! carried, so only the time common to all streams counts.

use std::time::Instant;

use wb_model::socket::{SocketOmitted, TcpSample};

use crate::flow::SequenceResults;

/// Counters of a stream at an instant, from its start.
#[derive(Clone, Copy, Debug)]
pub(super) struct CounterReading {
    pub(super) at: Instant,
    /// Bytes moved by this end.
    pub(super) bytes: u64,
    /// Calls; datagrams of a datagram stream.
    pub(super) calls: u64,
    pub(super) transactions: u64,
    /// TCP statistics, if available.
    pub(super) tcp: Option<TcpSample>,
    /// Results from the sequence numbers in datagrams, if this end receives them.
    pub(super) numbers: Option<SequenceResults>,
}

impl CounterReading {
    /// Reading before any work.
    pub(super) fn before_work(at: Instant) -> Self {
        Self {
            at,
            bytes: 0,
            calls: 0,
            transactions: 0,
            tcp: None,
            numbers: None,
        }
    }

    /// Bytes of a sender that have arrived: bytes acknowledged by TCP, else bytes sent.
    pub(super) fn acked_bytes(&self) -> u64 {
        self.tcp.map_or(self.bytes, |tcp| tcp.bytes_acked)
    }

    /// Segments retransmitted by this end.
    pub(super) fn retransmissions(&self) -> u64 {
        self.tcp.map_or(0, |tcp| tcp.retransmissions.into())
    }

    /// The omitted part, if this was read at the end of `omit`.
    pub(super) fn omitted_part(&self) -> SocketOmitted {
        SocketOmitted {
            bytes: self.bytes,
            transactions: self.transactions,
            calls: Some(self.calls),
            retransmissions: self.tcp.map(|tcp| tcp.retransmissions.into()),
        }
    }
}

/// Readings of a stream at both ends of the window.
#[derive(Clone, Copy, Debug)]
pub(super) struct WindowReadings {
    pub(super) begin: CounterReading,
    pub(super) end: CounterReading,
}

impl WindowReadings {
    /// Length, s.
    pub(super) fn seconds(&self) -> f64 {
        let length = self.end.at.saturating_duration_since(self.begin.at);
        length.as_secs_f64()
    }

    fn per_second(&self, units: u64) -> f64 {
        let seconds = self.seconds();
        if seconds > 0.0 {
            units as f64 / seconds
        } else {
            0.0
        }
    }

    /// Bytes moved by this end.
    pub(super) fn bytes(&self) -> u64 {
        self.end.bytes.saturating_sub(self.begin.bytes)
    }

    /// Bits per second moved by this end.
    pub(super) fn bits_per_second(&self) -> f64 {
        8.0 * self.per_second(self.bytes())
    }

    /// Bits per second sent and acknowledged, if TCP statistics are available.
    pub(super) fn acked_bits_per_second(&self) -> Option<f64> {
        let (begin, end) = (self.begin.tcp?.bytes_acked, self.end.tcp?.bytes_acked);
        Some(8.0 * self.per_second(end.saturating_sub(begin)))
    }

    pub(super) fn transactions(&self) -> u64 {
        self.end
            .transactions
            .saturating_sub(self.begin.transactions)
    }

    pub(super) fn transactions_per_second(&self) -> f64 {
        self.per_second(self.transactions())
    }
}

/// Jain's fairness index of the streams: (Σx)² ÷ (n·Σx²) (Jain, Chiu and Hawe 1984). `None` for fewer than two streams
/// or if nothing moved.
pub(super) fn fairness(shares: &[f64]) -> Option<f64> {
    let sum: f64 = shares.iter().sum();
    let squares: f64 = shares.iter().map(|share| share * share).sum();
    (shares.len() > 1 && squares > 0.0).then(|| sum * sum / (shares.len() as f64 * squares))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn span(seconds: f64, bytes: (u64, u64), acked: Option<(u64, u64)>) -> WindowReadings {
        let at = Instant::now();
        let sample = |bytes_acked| TcpSample {
            bytes_acked,
            ..TcpSample::default()
        };
        WindowReadings {
            begin: CounterReading {
                bytes: bytes.0,
                transactions: 5,
                tcp: acked.map(|acked| sample(acked.0)),
                ..CounterReading::before_work(at)
            },
            end: CounterReading {
                bytes: bytes.1,
                transactions: 25,
                tcp: acked.map(|acked| sample(acked.1)),
                ..CounterReading::before_work(at + Duration::from_secs_f64(seconds))
            },
        }
    }

    #[test]
    fn only_what_was_between_the_ends_counts() {
        let span = span(2.0, (1000, 5000), Some((400, 3400)));
        assert_eq!(span.bits_per_second(), 16_000.0);
        assert_eq!(span.acked_bits_per_second(), Some(12_000.0));
        assert_eq!(span.transactions_per_second(), 10.0);
        assert_eq!((span.bytes(), span.transactions()), (4000, 20));
    }

    #[test]
    fn a_window_of_no_length_has_no_rate() {
        let span = span(0.0, (0, 5000), None);
        assert_eq!(span.bits_per_second(), 0.0);
        assert_eq!(span.acked_bits_per_second(), None);
    }

    #[test]
    fn fairness_is_jains() {
        assert_eq!(fairness(&[5.0, 5.0, 5.0]), Some(1.0));
        assert_eq!(fairness(&[8.0, 0.0]), Some(0.5));
        // (1 + 2 + 3)² ÷ (3 · 14)
        assert!((fairness(&[1.0, 2.0, 3.0]).unwrap() - 36.0 / 42.0).abs() < 1e-12);
        assert_eq!(fairness(&[1.0]), None);
        assert_eq!(fairness(&[0.0, 0.0]), None);
    }
}
