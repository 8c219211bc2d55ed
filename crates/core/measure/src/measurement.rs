//! What one or all receive workers measured, ready to be added up and reported.

use crate::account::{Account, settle_flows};
use crate::counters::Counters;
use crate::flow::{FlowStats, lesser};
use crate::histogram::{Histogram, SignedHistogram};
use crate::sequence::WindowSize;
use crate::summary::Summary;

/// The result of a run or an interval. Merging is exact and does not depend on the order; the
/// default is empty and changes nothing when merged.
///
/// Network cards keep a flow on one queue, so on one worker, as a rule. If one was spread over
/// several all the same, each followed only what it saw: the counts still add up, but a frame that
/// two workers saw is no duplicate to either, and reordering between them goes unseen.
/// [`Measurement::split_flows`] says of how many flows that is so.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measurement {
    /// What was counted.
    pub counters: Counters,
    /// Latency of the originals, ns.
    pub latency: Histogram,
    /// Inter-packet delay variation, ns.
    pub ipdv: SignedHistogram,
    /// Times between frames on the same worker, ns.
    pub inter_arrival: Histogram,
    /// Receive stamp of the first frame of ours.
    pub first_rx_ns: Option<u64>,
    /// Receive stamp of the last frame of ours.
    pub last_rx_ns: Option<u64>,
    /// Most sequence numbers skipped at once: the longest run of loss, if nothing was reordered.
    pub largest_gap: u64,
    /// The highest sequence number that was skipped, of any flow: with one flow in order, the last frame that was lost
    /// before others came.
    pub last_skipped: Option<u64>,
    /// The smallest window of sequence numbers that a worker had at the end.
    pub window: Option<WindowSize>,
    /// The flows by ascending number; those that were planned also if nothing came of them.
    pub flows: Vec<FlowStats>,
    pub(crate) unpaired_jitter: Histogram,
}

/// RFC 3550 jitter over all flows that have one: those with two delays or more.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SmoothedJitter {
    /// Mean over the flows, ns.
    pub mean_ns: f64,
    /// The largest of a flow, ns.
    pub max_ns: f64,
}

impl Measurement {
    /// Adds what another worker measured.
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
        self.window = lesser(self.window, other.window);
        self.flows = merged_flows(&self.flows, &other.flows);
    }

    /// With the jitter of arrivals that are no IPDV pair, where somebody else recorded it: see [`Measurement::jitter`].
    #[must_use]
    pub fn with_unpaired_jitter(self, unpaired_jitter: Histogram) -> Measurement {
        Measurement {
            unpaired_jitter,
            ..self
        }
    }

    /// The same with the flows, which stay behind here no longer: of millions there is one copy.
    pub fn take_flows(&mut self) -> Measurement {
        let flows = std::mem::take(&mut self.flows);
        Measurement {
            flows,
            ..self.clone()
        }
    }

    /// Jitter as RFC 4689 has it, ns: the amount by which the delays of two successive arrivals of
    /// a flow differ.
    pub fn jitter(&self) -> Histogram {
        let mut jitter = self.ipdv.magnitudes();
        jitter.merge(&self.unpaired_jitter);
        jitter
    }

    /// Packet delay variation as RFC 5481 has it, ns: latency above the smallest latency.
    ///
    /// The percentiles have the error of the latency's, which is relative to the latency and not
    /// to its variation: at most a 1024th of the latency at that percentile.
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

    /// How many flows more than one worker saw.
    pub fn split_flows(&self) -> usize {
        self.flows.iter().filter(|flow| flow.workers > 1).count()
    }

    /// Time from the first frame to the last, ns.
    pub fn receive_time_ns(&self) -> Option<u64> {
        Some(self.last_rx_ns?.saturating_sub(self.first_rx_ns?))
    }

    /// The account of every flow, and over all of them: see [`settle_flows`].
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
