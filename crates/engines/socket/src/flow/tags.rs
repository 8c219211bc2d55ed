//! Evaluates the sequence numbers and times in datagrams.

use wb_measure::{Arrival, Histogram, SequenceTracker, WindowSize};
use wb_model::socket::DatagramReport;
use wb_wire::Tag;

use super::SequenceResults;

/// Tag statistics of one datagram stream.
#[derive(Clone, Debug)]
pub struct TagReport {
    /// Datagrams with our tag, including duplicates.
    pub received: u64,
    /// Duplicates.
    pub duplicate: u64,
    /// Arrived after a later one (RFC 4689).
    pub reordered: u64,
    /// Without our tag, or with the tag of another stream.
    pub foreign: u64,
    /// Highest number that arrived; numbers start at 0.
    pub highest: Option<u64>,
    /// RFC 3550 jitter at the end, ns; `None` before the second datagram.
    pub jitter_ns: Option<f64>,
    /// Time from the timestamp in the datagram until the receive call returned, ns. Datagrams that seem to arrive
    /// before they were sent, because two clocks differ, are excluded.
    pub one_way: Histogram,
}

impl TagReport {
    /// Number of `sent` datagrams that did not arrive.
    #[must_use]
    pub fn lost_datagrams(&self, sent: u64) -> u64 {
        sent.saturating_sub(self.received - self.duplicate)
    }

    /// Report of a test in which `sent` datagrams were sent.
    #[must_use]
    pub fn datagram_report(&self, sent: u64) -> DatagramReport {
        DatagramReport {
            sent,
            received: self.received,
            lost: self.lost_datagrams(sent),
            duplicate: self.duplicate,
            reordered: self.reordered,
            foreign: self.foreign,
            jitter_rfc3550_ns: self.jitter_ns,
            one_way_ns: self.one_way.summary(),
        }
    }
}

/// Evaluates each datagram of a stream.
#[derive(Debug)]
pub(super) struct TagReader {
    sequence: SequenceTracker,
    /// Stream ID of the first tag; datagrams of others are foreign.
    flow: Option<u32>,
    foreign: u64,
    last_transit: Option<i64>,
    jitter: Option<f64>,
    one_way: Histogram,
}

impl TagReader {
    pub(super) fn new() -> Self {
        Self {
            sequence: SequenceTracker::new(WindowSize::MAX),
            flow: None,
            foreign: 0,
            last_transit: None,
            jitter: None,
            one_way: Histogram::new(),
        }
    }

    /// Processes a datagram received at `now`, ns since 1970.
    #[inline]
    pub(super) fn on_datagram(&mut self, bytes: &[u8], now: u64) {
        let Some(tag) = Tag::read(bytes) else {
            self.foreign += 1;
            return;
        };
        if *self.flow.get_or_insert(tag.flow) != tag.flow {
            self.foreign += 1;
            return;
        }
        match self.sequence.observe(tag.sequence) {
            Arrival::InOrder { .. } | Arrival::Reordered => {}
            Arrival::Duplicate | Arrival::BeyondWindow => return,
        }
        let transit = now.cast_signed().wrapping_sub(tag.time_ns.cast_signed());
        if let Ok(delay) = u64::try_from(transit) {
            self.one_way.record(delay);
        }
        // RFC 3550 section 6.4.1. This is a difference of transit times, so the clocks need not agree.
        if let Some(last) = self.last_transit.replace(transit) {
            let variation = transit.wrapping_sub(last).unsigned_abs() as f64;
            let jitter = self.jitter.unwrap_or(0.0);
            self.jitter = Some(jitter + (variation - jitter) / 16.0);
        }
    }

    /// Results so far, for observers.
    #[inline]
    pub(super) fn sequence_results(&self) -> SequenceResults {
        SequenceResults {
            came: self.sequence.unique(),
            missing: self.sequence.missing(),
            jitter_ns: self.jitter,
        }
    }

    pub(super) fn tag_report(&self) -> TagReport {
        TagReport {
            received: self.sequence.received(),
            duplicate: self.sequence.duplicates(),
            reordered: self.sequence.reordered(),
            foreign: self.foreign,
            highest: self.sequence.highest(),
            jitter_ns: self.jitter,
            one_way: self.one_way.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn datagram(flow: u32, sequence: u32, time_ns: u64) -> [u8; Tag::LEN] {
        let mut bytes = [0; Tag::LEN];
        Tag {
            flow,
            sequence,
            time_ns,
        }
        .write(&mut bytes);
        bytes
    }

    #[test]
    fn each_datagram_is_counted_once() {
        let mut reader = TagReader::new();
        // Number, time sent, time received: transits of 100, 260, (again), 20, 120.
        for (sequence, sent, came) in [
            (0, 1000, 1100),
            (2, 2000, 2260),
            (2, 2000, 2300),
            (1, 3000, 3020),
            (5, 4000, 4120),
        ] {
            reader.on_datagram(&datagram(7, sequence, sent), came);
        }
        reader.on_datagram(&datagram(8, 6, 0), 9);
        reader.on_datagram(b"netperf\0", 9);
        reader.on_datagram(&datagram(7, 6, 0)[..17], 9);
        let report = reader.tag_report();
        assert_eq!((report.received, report.duplicate), (5, 1));
        assert_eq!((report.reordered, report.foreign), (1, 3));
        assert_eq!(report.highest, Some(5));
        assert_eq!(report.lost_datagrams(8), 4);
        assert_eq!(report.one_way.sum(), 100 + 260 + 20 + 120);
        // 160, 240, 100, each contributing a sixteenth of the difference.
        let mut jitter = 0.0;
        for variation in [160.0, 240.0, 100.0] {
            jitter += (variation - jitter) / 16.0;
        }
        assert_eq!(report.jitter_ns, Some(jitter));
        let numbers = reader.sequence_results();
        assert_eq!((numbers.came, numbers.missing), (4, 2));
        assert_eq!(numbers.jitter_ns, report.jitter_ns);
        let datagrams = report.datagram_report(8);
        assert_eq!((datagrams.sent, datagrams.lost), (8, 4));
        assert_eq!(datagrams.one_way_ns.max, Some(260));
    }

    #[test]
    fn clocks_that_differ_leave_the_jitter() {
        let mut reader = TagReader::new();
        for (sequence, came) in [(0, 10), (1, 20), (2, 62)] {
            reader.on_datagram(
                &datagram(0, sequence, 1_000_000 + u64::from(sequence) * 10),
                came,
            );
        }
        let report = reader.tag_report();
        assert_eq!(report.one_way.count(), 0);
        assert_eq!(report.jitter_ns, Some(32.0 / 16.0));
    }
}
