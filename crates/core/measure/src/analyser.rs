//! Analyser of one receive worker: evaluates every frame.
//!
//! D(i) is the receive stamp minus the transmit stamp of frame i. The definitions apply to each flow and to originals
//! only (a duplicate has no delay of any kind):
//!
//! | quantity | definition | source |
//! |---|---|---|
//! | latency | D(i) >= 0 | RFC 1242; its kind depends on where the stamps were taken |
//! | jitter | \|D(i) - D(j)\|, j the arrival before i | RFC 4689 |
//! | smoothed jitter | J += (jitter - J) / 16, from 0 | RFC 3550 |
//! | IPDV | D(i) - D(i-1), signed, where i-1 is the arrival before i | RFC 3393, 5481 |
//! | PDV | D(i) - min D, from the latencies at the end | RFC 5481 |
//! | inter-arrival | time between two frames of the worker, of any flows | |
//!
//! A lost frame breaks the pair for IPDV, and so does a reordered one: with its predecessor, with its successor, and
//! between the two frames around its arrival. Jitter has a sample for every arrival but the first of a flow. Frames
//! that a device held back together are all reordered, so their pairs count for jitter but not for IPDV.
//!
//! A negative D is a clock error and gives no latency. Variation is immune to a constant clock offset and is still
//! recorded, so two hosts without a common clock get jitter and IPDV.

use crate::counters::Counters;
use crate::flow::{Flow, FlowStats, NO_DELAY};
use crate::histogram::{Histogram, SignedHistogram};
use crate::measurement::Measurement;
use crate::outages::{Outage, OutageRecorder};
use crate::sequence::{Arrival, WindowSize, unwrap};
use crate::table::FlowTable;

/// Analyses the frames that one worker receives.
///
/// Pass each frame to one of the `on_` methods in the order of arrival. [`counters`](Analyser::counters) and the
/// histograms can be read at any time; [`Analyser::into_measurement`] ends the analysis. When the sender has stopped,
/// call [`Analyser::drain_since`]: frames with a later receive stamp are late.
#[derive(Clone, Debug)]
pub struct Analyser {
    table: FlowTable,
    pace: Pace,
    drain_since: u64,
    delays: Delays,
    counters: Counters,
    gaps: Gaps,
}

/// Skipped sequence numbers of all flows.
#[derive(Clone, Debug)]
struct Gaps {
    /// True if the sender is unknown: gaps count from the first number seen.
    sender_unknown: bool,
    largest: u64,
    last_skipped: Option<u64>,
    outages: OutageRecorder,
}

/// Maximum advance of a transmit stamp over the receive stamp, so that the difference of two delays fits 64 bits.
const LARGEST_ADVANCE_NS: u64 = 1 << 61;

/// Arrival times of all flows.
#[derive(Clone, Debug)]
struct Pace {
    first_rx_ns: Option<u64>,
    last_rx_ns: u64,
    inter_arrival: Histogram,
}

/// Distributions of delay and delay variation over all flows.
#[derive(Clone, Debug, Default)]
struct Delays {
    latency: Histogram,
    ipdv: SignedHistogram,
    /// Jitter of arrivals that do not form an IPDV pair. For the others the jitter is the magnitude of the IPDV, so the
    /// hot path updates only one histogram.
    unpaired_jitter: Histogram,
}

impl Analyser {
    /// Creates an analyser for flows 0 to `flows` - 1, with the largest window that [`WindowSize::for_flows`] allows.
    /// Frames of other flows are foreign.
    pub fn planned(flows: usize) -> Analyser {
        Self::planned_with_window(flows, WindowSize::for_flows(flows))
    }

    /// Like [`Analyser::planned`], with a given window.
    pub fn planned_with_window(flows: usize, window: WindowSize) -> Analyser {
        Self::with_table(FlowTable::planned(flows, window))
    }

    /// Creates an analyser for flows that are not known in advance. It tracks the first `limit` flows; frames of others
    /// count as received and untracked. Up to 512 flows have the largest window; each doubling of the flows then halves
    /// the windows.
    pub fn open(limit: usize) -> Analyser {
        Self::with_table(FlowTable::open(limit))
    }

    /// Accepts a sender that may have started earlier. In each flow the numbers below the first one seen count as
    /// `head_frames` and not as missing. If a lower number arrives later, gaps count from that number.
    #[must_use]
    pub fn with_unknown_sender(mut self) -> Analyser {
        self.gaps.sender_unknown = true;
        self
    }

    /// Sets the shortest silence that counts as an outage, in ns.
    #[must_use]
    pub fn with_outage_threshold(mut self, ns: u64) -> Analyser {
        self.gaps.outages.threshold_ns = ns;
        self
    }

    fn with_table(table: FlowTable) -> Analyser {
        Analyser {
            table,
            pace: Pace {
                first_rx_ns: None,
                last_rx_ns: 0,
                inter_arrival: Histogram::new(),
            },
            drain_since: u64::MAX,
            delays: Delays::default(),
            counters: Counters::default(),
            gaps: Gaps::new(),
        }
    }

    /// Handles a tagged frame of `octets` octets (with FCS): flow and sequence number of its tag, transmit stamp (0:
    /// none) and receive stamp in nanoseconds of the same clock.
    ///
    /// Returns the kind of arrival, or `None` if the flow is not tracked.
    #[inline]
    pub fn on_frame(
        &mut self,
        flow: u32,
        sequence: u32,
        tx_ns: u64,
        rx_ns: u64,
        octets: u32,
    ) -> Option<Arrival> {
        let Some(index) = self.table.index_of(flow) else {
            self.on_unfollowed(rx_ns, octets);
            return None;
        };
        self.counters.received_frames += 1;
        self.counters.received_octets += u64::from(octets);
        self.pace.note(rx_ns);
        let (flow, arrival) = self.table.arrive(index, sequence);
        let silent_since_ns = flow.count(rx_ns, octets);
        match arrival {
            Arrival::InOrder { gap } => {
                if gap != 0 {
                    let silence = Outage {
                        begin_ns: silent_since_ns,
                        end_ns: rx_ns,
                    };
                    let frame = (index, sequence, silence);
                    self.gaps.note(flow, &mut self.counters, frame, gap);
                }
                let delay = self.delays.measure(flow, &mut self.counters, tx_ns, rx_ns);
                self.delays.vary_in_order(flow, delay, gap == 0);
            }
            Arrival::Reordered => {
                self.gaps.fill(flow, &mut self.counters, index, sequence);
                let delay = self.delays.measure(flow, &mut self.counters, tx_ns, rx_ns);
                self.delays.vary_reordered(flow, delay);
            }
            Arrival::Duplicate | Arrival::BeyondWindow => {
                flow.duplicates += 1;
                self.counters.duplicate_frames += 1;
                self.counters.beyond_window_frames += u64::from(arrival == Arrival::BeyondWindow);
                return Some(arrival);
            }
        }
        if rx_ns > self.drain_since {
            flow.late += 1;
            self.counters.late_frames += 1;
        }
        Some(arrival)
    }

    #[cold]
    fn on_unfollowed(&mut self, rx_ns: u64, octets: u32) {
        if !self.table.is_open() {
            return self.on_unplanned(octets);
        }
        self.counters.untracked_frames += 1;
        self.on_ours_unfollowed(rx_ns, octets);
    }

    /// Handles an untagged frame of the run (`--tag none`): only counted.
    #[inline]
    pub fn on_untagged(&mut self, rx_ns: u64, octets: u32) {
        self.counters.untagged_frames += 1;
        self.on_ours_unfollowed(rx_ns, octets);
    }

    #[inline]
    fn on_ours_unfollowed(&mut self, rx_ns: u64, octets: u32) {
        self.counters.received_frames += 1;
        self.counters.received_octets += u64::from(octets);
        self.counters.late_frames += u64::from(rx_ns > self.drain_since);
        self.pace.note(rx_ns);
    }

    /// Handles a foreign frame.
    #[inline]
    pub fn on_foreign(&mut self, octets: u32) {
        self.counters.foreign_frames += 1;
        self.counters.foreign_octets += u64::from(octets);
    }

    /// Handles a foreign frame with a wirebench tag of a flow that was not planned; counted separately.
    #[cold]
    pub fn on_unplanned(&mut self, octets: u32) {
        self.counters.unplanned_frames += 1;
        self.on_foreign(octets);
    }

    /// Handles a foreign frame with an unplanned pktgen tag; counted separately.
    #[cold]
    pub fn on_pktgen(&mut self, octets: u32) {
        self.counters.pktgen_frames += 1;
        self.on_foreign(octets);
    }

    /// Handles a foreign frame with a stamp before the first departure of this run; counted separately.
    #[cold]
    pub fn on_stale(&mut self, octets: u32) {
        self.counters.stale_frames += 1;
        self.on_foreign(octets);
    }

    /// Sets the time at which the sender stopped: originals with a later receive stamp are late.
    pub fn drain_since(&mut self, rx_ns: u64) {
        self.drain_since = rx_ns;
    }

    /// Current counters.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Latencies so far.
    pub fn latency(&self) -> &Histogram {
        &self.delays.latency
    }

    /// Inter-packet delay variation so far.
    pub fn ipdv(&self) -> &SignedHistogram {
        &self.delays.ipdv
    }

    /// Inter-arrival times so far.
    pub fn inter_arrival(&self) -> &Histogram {
        &self.pace.inter_arrival
    }

    /// Statistics of one flow so far; `None` if it is not tracked.
    pub fn flow(&self, flow: u32) -> Option<FlowStats> {
        self.table.get(flow).map(|record| record.stats(flow))
    }

    /// Converts into the results, to be merged with those of other workers.
    pub fn into_measurement(self) -> Measurement {
        let mut flows: Vec<_> = self
            .table
            .iter()
            .map(|(flow, record)| record.stats(flow))
            .collect();
        flows.sort_unstable_by_key(|flow| flow.flow);
        Measurement {
            counters: self.counters,
            latency: self.delays.latency,
            ipdv: self.delays.ipdv,
            inter_arrival: self.pace.inter_arrival,
            first_rx_ns: self.pace.first_rx_ns,
            last_rx_ns: self.pace.first_rx_ns.map(|_| self.pace.last_rx_ns),
            largest_gap: self.gaps.largest,
            last_skipped: self.gaps.last_skipped,
            outages: self
                .gaps
                .outages
                .finish(|index| self.table.number_of(index)),
            window: Some(self.table.window()),
            flows,
            unpaired_jitter: self.delays.unpaired_jitter,
        }
    }
}

impl Pace {
    /// A receive stamp before the latest one (two sources, a clock set back) counts as an inter-arrival time of 0.
    #[inline]
    fn note(&mut self, rx_ns: u64) {
        if self.first_rx_ns.is_some() {
            self.inter_arrival
                .record(rx_ns.saturating_sub(self.last_rx_ns));
        } else {
            self.first_rx_ns = Some(rx_ns);
        }
        self.last_rx_ns = self.last_rx_ns.max(rx_ns);
    }
}

impl Gaps {
    fn new() -> Self {
        Self {
            sender_unknown: false,
            largest: 0,
            last_skipped: None,
            outages: OutageRecorder::new(),
        }
    }

    /// Counts the `gap` numbers that were skipped before a frame: with the index of its flow, its sequence number, and the
    /// silence that it ended.
    #[cold]
    #[inline(never)]
    fn note(
        &mut self,
        flow: &mut Flow,
        counters: &mut Counters,
        (index, sequence, silence): (usize, u32, Outage),
        gap: u64,
    ) {
        if self.sender_unknown && flow.received == 1 {
            // The first frame of a flow has no predecessor, so the gap is its 32-bit number.
            flow.head = sequence;
            counters.head_frames += gap;
        } else {
            counters.missing_frames += gap;
            self.largest = self.largest.max(gap);
            // `next` is already after the current frame.
            self.last_skipped = self.last_skipped.max(flow.next.checked_sub(2));
            if flow.received > 1 {
                let from = flow.next - 1 - gap;
                let is_outage = self.outages.skipped(index as u32, from, gap, silence);
                counters.outages += u64::from(is_outage);
            }
        }
    }

    /// Counts an original that arrived after a frame with a higher sequence number.
    #[cold]
    #[inline(never)]
    fn fill(&mut self, flow: &mut Flow, counters: &mut Counters, index: usize, sequence: u32) {
        flow.reordered += 1;
        counters.reordered_frames += 1;
        match flow.lower_head(sequence) {
            0 => counters.missing_frames -= 1,
            lower => {
                counters.head_frames -= lower;
                counters.missing_frames += lower - 1;
            }
        }
        let taken_back = self
            .outages
            .filled(index as u32, unwrap(flow.next, sequence));
        counters.outages -= u64::from(taken_back);
    }
}

/// Counts a frame with a transmit stamp after its receive stamp. Returns the negative delay in ns.
#[cold]
#[inline(never)]
fn count_clock_error(flow: &mut Flow, counters: &mut Counters, ahead_ns: u64) -> i64 {
    counters.clock_error_frames += 1;
    flow.unmeasured += 1;
    -(ahead_ns.min(LARGEST_ADVANCE_NS) as i64)
}

impl Delays {
    /// Records the latency of an original and returns its delay.
    #[inline]
    fn measure(&mut self, flow: &mut Flow, counters: &mut Counters, tx_ns: u64, rx_ns: u64) -> i64 {
        if tx_ns == 0 {
            counters.unstamped_frames += 1;
            flow.unmeasured += 1;
            return NO_DELAY;
        }
        let (delay, is_ahead) = rx_ns.overflowing_sub(tx_ns);
        if is_ahead {
            return count_clock_error(flow, counters, delay.wrapping_neg());
        }
        self.latency.record(delay);
        flow.latency(delay);
        delay as i64
    }

    /// Records the variation of a frame with a new highest number; `adjacent` if the previous highest number was its
    /// predecessor.
    #[inline]
    fn vary_in_order(&mut self, flow: &mut Flow, delay: i64, adjacent: bool) {
        let last = std::mem::replace(&mut flow.last_delay, delay);
        let last_was_highest = std::mem::replace(&mut flow.last_was_highest, true);
        if last == NO_DELAY || delay == NO_DELAY {
            return;
        }
        let variation = delay.wrapping_sub(last);
        if adjacent && last_was_highest {
            self.ipdv.record(variation);
        } else {
            self.unpaired_jitter.record(variation.unsigned_abs());
        }
        flow.smooth(variation.unsigned_abs());
    }

    #[cold]
    fn vary_reordered(&mut self, flow: &mut Flow, delay: i64) {
        let last = std::mem::replace(&mut flow.last_delay, delay);
        flow.last_was_highest = false;
        if last == NO_DELAY || delay == NO_DELAY {
            return;
        }
        let variation = delay.wrapping_sub(last).unsigned_abs();
        self.unpaired_jitter.record(variation);
        flow.smooth(variation);
    }
}
