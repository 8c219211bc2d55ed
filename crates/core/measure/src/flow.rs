//! Receive statistics of one flow.

use crate::sequence::unwrap;

/// Value for "no delay known", far from any real delay.
pub(crate) const NO_DELAY: i64 = i64::MIN;

/// Fraction bits of the smoothed jitter. RFC 3550 appendix A.8 uses 4. With 20 the first five steps are exact, and no
/// step loses more than a millionth of a nanosecond.
const JITTER_FRACTION: u32 = 20;

/// Maximum delay variation for the smoothed jitter: the largest value that leaves room for the fraction.
const JITTER_LIMIT: u64 = (1 << 42) - 1;

/// State of one flow in two cache lines. Fields that every frame reads and writes come first, then fields that are
/// mostly compared, then rarely used ones.
#[repr(C, align(64))]
#[derive(Clone, Debug)]
pub(crate) struct Flow {
    /// Highest sequence number seen, plus one.
    pub(crate) next: u64,
    pub(crate) received: u64,
    pub(crate) octets: u64,
    /// Delay of the original that arrived last.
    pub(crate) last_delay: i64,
    pub(crate) last_was_highest: bool,
    has_jitter: bool,
    /// Lowest sequence number seen if gaps count from there, else 0.
    pub(crate) head: u32,
    smoothed_jitter: i64,
    latency_sum: u128,

    latency_min: u64,
    latency_max: u64,
    first_rx_ns: u64,
    last_rx_ns: u64,
    pub(crate) duplicates: u64,
    pub(crate) reordered: u64,
    pub(crate) late: u64,
    /// Originals without a latency: no stamp, or a stamp in the future.
    pub(crate) unmeasured: u64,
}

const _: () = assert!(size_of::<Flow>() == 128);

impl Flow {
    pub(crate) const NEW: Flow = Flow {
        next: 0,
        received: 0,
        octets: 0,
        last_delay: NO_DELAY,
        last_was_highest: false,
        has_jitter: false,
        head: 0,
        smoothed_jitter: 0,
        latency_sum: 0,
        latency_min: u64::MAX,
        latency_max: 0,
        first_rx_ns: u64::MAX,
        last_rx_ns: 0,
        duplicates: 0,
        reordered: 0,
        late: 0,
        unmeasured: 0,
    };

    /// Counts an arrival of any kind. Returns the time of the latest one before it.
    #[inline]
    pub(crate) fn count(&mut self, rx_ns: u64, octets: u32) -> u64 {
        let before = self.last_rx_ns;
        self.received += 1;
        self.octets += u64::from(octets);
        self.first_rx_ns = self.first_rx_ns.min(rx_ns);
        self.last_rx_ns = before.max(rx_ns);
        before
    }

    #[inline]
    pub(crate) fn latency(&mut self, ns: u64) {
        self.latency_sum += u128::from(ns);
        self.latency_min = self.latency_min.min(ns);
        self.latency_max = self.latency_max.max(ns);
    }

    /// RFC 3550 section 6.4.1: J += (|D| - J) / 16.
    #[inline]
    pub(crate) fn smooth(&mut self, variation: u64) {
        self.has_jitter = true;
        let variation = (variation.min(JITTER_LIMIT) << JITTER_FRACTION) as i64;
        self.smoothed_jitter += (variation - self.smoothed_jitter) >> 4;
    }

    /// Handles an original that is older than the newest one. Returns the amount by which it lowers the head, 0 if it
    /// does not.
    pub(crate) fn lower_head(&mut self, wire: u32) -> u64 {
        if self.head == 0 {
            return 0;
        }
        let number = unwrap(self.next, wire);
        match u64::from(self.head).checked_sub(number) {
            None => 0,
            Some(lower) => {
                // Below a head of 32 bits.
                self.head = number as u32;
                lower
            }
        }
    }

    pub(crate) fn stats(&self, flow: u32) -> FlowStats {
        let samples = self.received - self.duplicates - self.unmeasured;
        FlowStats {
            flow,
            workers: u32::from(self.received > 0),
            received: self.received,
            octets: self.octets,
            duplicates: self.duplicates,
            reordered: self.reordered,
            late: self.late,
            highest: self.next.checked_sub(1),
            head: self.head.into(),
            first_rx_ns: (self.received > 0).then_some(self.first_rx_ns),
            last_rx_ns: (self.received > 0).then_some(self.last_rx_ns),
            latency: FlowLatency {
                samples,
                sum: self.latency_sum,
                min: (samples > 0).then_some(self.latency_min),
                max: (samples > 0).then_some(self.latency_max),
            },
            smoothed_jitter: self.has_jitter.then_some(self.smoothed_jitter),
        }
    }
}

/// Latency of one flow, in nanoseconds. Exact; percentiles are available only for all flows together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowLatency {
    /// Number of originals with a latency.
    pub samples: u64,
    /// Sum of the latencies.
    pub sum: u128,
    /// Smallest latency.
    pub min: Option<u64>,
    /// Largest latency.
    pub max: Option<u64>,
}

impl FlowLatency {
    /// Arithmetic mean.
    pub fn mean(&self) -> Option<f64> {
        (self.samples > 0).then(|| self.sum as f64 / self.samples as f64)
    }

    /// Copy with every latency reduced by `offset` ns; latencies below it become 0.
    #[must_use]
    pub fn lowered_by(self, offset: u64) -> Self {
        Self {
            samples: self.samples,
            sum: self
                .sum
                .saturating_sub(u128::from(self.samples) * u128::from(offset)),
            min: self.min.map(|min| min.saturating_sub(offset)),
            max: self.max.map(|max| max.saturating_sub(offset)),
        }
    }
}

/// Receive statistics of one flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowStats {
    /// Flow number in the tag.
    pub flow: u32,
    /// Number of workers that received frames of the flow. More than one means a split flow: see
    /// [`Measurement::split_flows`](crate::Measurement::split_flows).
    pub workers: u32,
    /// All arrivals, including duplicates.
    pub received: u64,
    /// Octets of these frames, with FCS.
    pub octets: u64,
    /// Arrivals with a sequence number that arrived before or is beyond the window.
    pub duplicates: u64,
    /// Originals that arrived after a later one.
    pub reordered: u64,
    /// Originals that arrived during the drain.
    pub late: u64,
    /// Highest sequence number, extended to 64 bits. It reaches the number of frames sent only if another run sends the
    /// same flow.
    pub highest: Option<u64>,
    /// Lowest sequence number seen if the sender is unknown, else 0. Lower numbers do not count as missing.
    pub head: u64,
    /// Receive stamp of the first frame.
    pub first_rx_ns: Option<u64>,
    /// Receive stamp of the last frame.
    pub last_rx_ns: Option<u64>,
    /// Latency of the originals of the flow.
    pub latency: FlowLatency,
    smoothed_jitter: Option<i64>,
}

impl FlowStats {
    /// Number of words that [`FlowStats::recorded`] takes.
    pub const WORDS: usize = 16;

    /// Words of a flow without frames.
    pub const NOTHING: [u64; Self::WORDS] = [
        0,
        0,
        0,
        NO_DELAY as u64,
        0,
        0,
        0,
        0,
        u64::MAX,
        0,
        u64::MAX,
        0,
        0,
        0,
        0,
        0,
    ];

    /// Creates the statistics of a flow from words recorded elsewhere by the rules of [`Analyser`](crate::Analyser):
    /// highest number seen plus one, arrivals, octets, delay of the original that arrived last (before the first one as
    /// in [`FlowStats::NOTHING`]), flags (1: it had the highest number; 256: there is a jitter; upper 32 bits: head),
    /// smoothed jitter in 2^-20 ns, sum of the latencies (low, high word), smallest and largest latency, first and last
    /// receive stamp, duplicates, reordered, late, originals without a latency.
    #[must_use]
    pub fn recorded(flow: u32, words: &[u64; Self::WORDS]) -> FlowStats {
        let &[
            next,
            received,
            octets,
            last_delay,
            flags,
            jitter,
            low,
            high,
            min,
            max,
            first,
            last,
            duplicates,
            reordered,
            late,
            unmeasured,
        ] = words;
        let flow_record = Flow {
            next,
            received,
            octets,
            last_delay: last_delay as i64,
            last_was_highest: flags & 1 != 0,
            has_jitter: flags & 256 != 0,
            head: (flags >> 32) as u32,
            smoothed_jitter: jitter as i64,
            latency_sum: (u128::from(high) << 64) | u128::from(low),
            latency_min: min,
            latency_max: max,
            first_rx_ns: first,
            last_rx_ns: last,
            duplicates,
            reordered,
            late,
            unmeasured,
        };
        flow_record.stats(flow)
    }

    /// Number of distinct sequence numbers received.
    pub fn unique(&self) -> u64 {
        self.received - self.duplicates
    }

    /// RFC 3550 jitter after the last frame: J += (|D(i) - D(i-1)| - J) / 16 over successive arrivals, from 0. `None`
    /// before the second arrival.
    pub fn smoothed_jitter_ns(&self) -> Option<f64> {
        self.smoothed_jitter
            .map(|jitter| jitter as f64 / f64::from(1 << JITTER_FRACTION))
    }

    /// Adds the statistics of another worker for the same flow. A number that both received counts twice, because the
    /// overlap is unknown. The larger smoothed jitter is kept.
    pub(crate) fn merge(&mut self, other: &FlowStats) {
        self.workers += other.workers;
        self.received += other.received;
        self.octets += other.octets;
        self.duplicates += other.duplicates;
        self.reordered += other.reordered;
        self.late += other.late;
        self.head = match (self.highest, other.highest) {
            (Some(_), None) => self.head,
            (None, _) => other.head,
            _ => self.head.min(other.head),
        };
        self.highest = self.highest.max(other.highest);
        self.first_rx_ns = lesser(self.first_rx_ns, other.first_rx_ns);
        self.last_rx_ns = self.last_rx_ns.max(other.last_rx_ns);
        self.latency.samples += other.latency.samples;
        self.latency.sum += other.latency.sum;
        self.latency.min = lesser(self.latency.min, other.latency.min);
        self.latency.max = self.latency.max.max(other.latency.max);
        self.smoothed_jitter = self.smoothed_jitter.max(other.smoothed_jitter);
    }
}

/// Smaller of two values; a missing value is ignored.
pub(crate) fn lesser<T: Ord>(a: Option<T>, b: Option<T>) -> Option<T> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_recorded_of_a_flow_is_told_alike() {
        assert_eq!(
            FlowStats::recorded(3, &FlowStats::NOTHING),
            Flow::NEW.stats(3)
        );
        let mut flow = Flow::NEW;
        for (rx_ns, latency) in [(100, 7), (90, 9)] {
            flow.count(rx_ns, 64);
            flow.latency(latency);
            flow.smooth(2);
        }
        (flow.next, flow.late, flow.head) = (5, 1, 4);
        let words = [
            5,
            2,
            128,
            NO_DELAY as u64,
            256 | 4 << 32,
            flow.smoothed_jitter as u64,
            16,
            0,
            7,
            9,
            90,
            100,
            0,
            0,
            1,
            0,
        ];
        assert_eq!(FlowStats::recorded(3, &words), flow.stats(3));
    }
}
