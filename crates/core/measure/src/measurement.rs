//! Results of one or more receive workers.

use crate::account::{Account, settle_flows};
use crate::counters::Counters;
use crate::flow::{FlowStats, lesser};
use crate::histogram::{Histogram, SignedHistogram};
use crate::outages::{Outages, SentFrames};
use crate::sequence::WindowSize;
use crate::summary::Summary;

/// Results of a run or an interval. Merging is exact and order-independent. The default is empty and neutral in a
/// merge.
///
/// Network cards usually keep a flow on one queue, and therefore on one worker. If a flow is split over several
/// workers, each tracks only its part. The counts still add up, but a frame received by two workers is not recognised
/// as a duplicate, and reordering between the workers is not detected. [`Measurement::split_flows`] counts these flows.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measurement {
    /// Counters.
    pub counters: Counters,
    /// Latency of the originals, ns.
    pub latency: Histogram,
    /// Inter-packet delay variation, ns.
    pub ipdv: SignedHistogram,
    /// Times between frames on the same worker, ns.
    pub inter_arrival: Histogram,
    /// Receive stamp of the first frame of the run.
    pub first_rx_ns: Option<u64>,
    /// Receive stamp of the last frame of the run.
    pub last_rx_ns: Option<u64>,
    /// Maximum number of sequence numbers skipped at once: the longest run of loss, if nothing was reordered.
    pub largest_gap: u64,
    /// Highest sequence number that was skipped in any flow. With one flow in order: the last frame that was lost
    /// before others arrived.
    pub last_skipped: Option<u64>,
    /// Outages of the flows.
    pub outages: Outages,
    /// Smallest sequence window of any worker at the end.
    pub window: Option<WindowSize>,
    /// Flows by ascending number; planned flows are included even without frames.
    pub flows: Vec<FlowStats>,
    pub(crate) unpaired_jitter: Histogram,
}

/// RFC 3550 jitter over all flows with at least two delays.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SmoothedJitter {
    /// Mean over the flows, ns.
    pub mean_ns: f64,
    /// Maximum over the flows, ns.
    pub max_ns: f64,
}

impl Measurement {
    /// Adds the results of another worker.
    pub fn merge(&mut self, other: &Measurement) {
        self.counters += other.counters;
        self.latency.merge(&other.latency);
        self.ipdv.merge(&other.ipdv);
        self.inter_arrival.merge(&other.inter_arrival);
        self.unpaired_jitter.merge(&other.unpaired_jitter);
        self.first_rx_ns = lesser(self.first_rx_ns, other.first_rx_ns);
        self.last_rx_ns = self.last_rx_ns.max(other.last_rx_ns);
        self.largest_gap = self.largest_gap.max(other.largest_gap);
        self.last_skipped = self.last_skipped.max(other.last_skipped);
        self.outages.merge(&other.outages);
        self.window = lesser(self.window, other.window);
        self.flows = merged_flows(&self.flows, &other.flows);
    }

    /// Sets the jitter of arrivals that do not form an IPDV pair, recorded elsewhere: see [`Measurement::jitter`].
    #[must_use]
    pub fn with_unpaired_jitter(self, unpaired_jitter: Histogram) -> Measurement {
        Measurement {
            unpaired_jitter,
            ..self
        }
    }

    /// Returns a copy that takes over the flows, so that millions of flows are not copied.
    pub fn take_flows(&mut self) -> Measurement {
        let flows = std::mem::take(&mut self.flows);
        Measurement {
            flows,
            ..self.clone()
        }
    }

    /// Reduces all latencies by `offset` ns: see [`Histogram::lowered_by`].
    pub fn lower_latencies(&mut self, offset: u64) {
        if offset > 0 {
            self.latency = self.latency.lowered_by(offset);
            for flow in &mut self.flows {
                flow.latency = flow.latency.lowered_by(offset);
            }
        }
    }

    /// Jitter according to RFC 4689, ns: difference between the delays of two successive arrivals of a flow.
    pub fn jitter(&self) -> Histogram {
        let mut jitter = self.ipdv.magnitudes();
        jitter.merge(&self.unpaired_jitter);
        jitter
    }

    /// Packet delay variation according to RFC 5481, ns: latency above the smallest latency.
    ///
    /// The error of a percentile is relative to the latency, not to its variation: at most 1/1024 of the latency at
    /// that percentile.
    pub fn pdv(&self) -> Summary {
        let latency = self.latency.summary();
        latency.lowered_by(latency.min.unwrap_or(0))
    }

    /// RFC 3550 jitter over the flows; `None` if no flow has one.
    pub fn smoothed_jitter(&self) -> Option<SmoothedJitter> {
        let jitters = || self.flows.iter().filter_map(FlowStats::smoothed_jitter_ns);
        let flows = jitters().count();
        (flows > 0).then(|| SmoothedJitter {
            mean_ns: jitters().sum::<f64>() / flows as f64,
            max_ns: jitters().fold(0.0, f64::max),
        })
    }

    /// Completes the outages at the end of a run. `sent` are the frames of a known sender. If the last numbers of a
    /// flow are missing and its silence lasted `threshold_ns` or longer, an outage is added. Outages of flows that lost
    /// nothing, or that several workers received, are removed.
    pub fn end_outages(&mut self, sent: Option<&SentFrames<'_>>, threshold_ns: u64) {
        self.outages.end(&self.flows, sent, threshold_ns);
    }

    /// Number of flows received by more than one worker.
    pub fn split_flows(&self) -> usize {
        self.flows.iter().filter(|flow| flow.workers > 1).count()
    }

    /// Time from the first frame to the last, ns.
    pub fn receive_time_ns(&self) -> Option<u64> {
        Some(self.last_rx_ns?.saturating_sub(self.first_rx_ns?))
    }

    /// Accounts of all flows, and their sum: see [`settle_flows`].
    pub fn account(&self, offered: &[(u32, u64)]) -> (Account, Vec<(u32, Account)>) {
        settle_flows(offered, &self.flows)
    }
}

fn merged_flows(ours: &[FlowStats], theirs: &[FlowStats]) -> Vec<FlowStats> {
    let mut merged = Vec::with_capacity(ours.len().max(theirs.len()));
    let (mut ours, mut theirs) = (ours.iter().peekable(), theirs.iter().peekable());
    loop {
        let order = match (ours.peek(), theirs.peek()) {
            (Some(a), Some(b)) => a.flow.cmp(&b.flow),
            (Some(_), None) => std::cmp::Ordering::Less,
            (None, Some(_)) => std::cmp::Ordering::Greater,
            (None, None) => return merged,
        };
        let mut next = if order.is_le() {
            ours.next()
        } else {
            theirs.next()
        }
        .cloned();
        if let (true, Some(flow), Some(other)) = (order.is_eq(), &mut next, theirs.peek()) {
            flow.merge(other);
            theirs.next();
        }
        merged.extend(next);
    }
}
