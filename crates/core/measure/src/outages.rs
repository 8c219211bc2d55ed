//! Outages: times in which nothing of a flow arrived although frames of the flow are missing.
//!
//! An outage begins with the last arrival before the missing sequence numbers and ends with the next arrival. Both times
//! are receive stamps. A silence shorter than the threshold is no outage. If all missing numbers arrive later, the frames
//! were reordered, and the outage is taken back. This is possible until the next outage of the flow begins.
//!
//! Every frame of the flow ends a silence, also a duplicate. Only flows with an outage have a record, and flows that lose
//! nothing cost no time.

use crate::flow::FlowStats;
use crate::keys::Keys;

/// Threshold in ns, unless another one is set.
pub const OUTAGE_THRESHOLD_NS: u64 = 10_000_000;

/// Maximum number of flows with a record. Outages of other flows are only counted.
pub const OUTAGE_FLOWS: usize = 1 << 16;

/// A time without arrivals, in ns of the receive clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outage {
    /// Last arrival before it.
    pub begin_ns: u64,
    /// First arrival after it, or the last departure.
    pub end_ns: u64,
}

impl Outage {
    /// Duration in ns.
    #[must_use]
    pub const fn duration_ns(&self) -> u64 {
        self.end_ns.saturating_sub(self.begin_ns)
    }
}

/// Outages of one flow as they are recorded: `struct outages` of account.bpf.c has the same layout.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Record {
    /// Outages before the last one.
    earlier: u64,
    longest: [u64; 2],
    last: [u64; 2],
    /// Range of sequence numbers that were skipped in the last outage.
    skipped: [u64; 2],
    /// Numbers of the range that have not arrived; 0 without a last outage.
    missing: u64,
}

const _: () = assert!(size_of::<Record>() == 64);

impl Record {
    /// Adds the last outage to the earlier ones.
    fn confirm(&mut self) {
        if self.missing == 0 {
            return;
        }
        let duration = |[begin, end]: [u64; 2]| end.saturating_sub(begin);
        self.earlier += 1;
        self.missing = 0;
        if duration(self.last) > duration(self.longest) {
            self.longest = self.last;
        }
    }
}

/// Outages of one flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowOutages {
    /// Flow number in the tag.
    pub flow: u32,
    /// Number of outages.
    pub outages: u64,
    /// Longest outage.
    pub longest: Outage,
}

impl FlowOutages {
    /// Number of words that [`FlowOutages::recorded`] takes.
    pub const WORDS: usize = 8;

    /// Creates the outages of a flow from words recorded elsewhere by the rules of this module. Returns `None` if no
    /// outage is left. The words are:
    ///
    /// - number of outages before the last one,
    /// - begin and end of the longest of these,
    /// - begin and end of the last one,
    /// - first skipped number of the last one, and the number after its last skipped number,
    /// - how many of the skipped numbers have not arrived.
    #[must_use]
    pub fn recorded(flow: u32, words: &[u64; Self::WORDS]) -> Option<Self> {
        let &[earlier, a, b, c, d, from, to, missing] = words;
        let mut record = Record {
            earlier,
            longest: [a, b],
            last: [c, d],
            skipped: [from, to],
            missing,
        };
        record.confirm();
        let [begin_ns, end_ns] = record.longest;
        (record.earlier > 0).then_some(Self {
            flow,
            outages: record.earlier,
            longest: Outage { begin_ns, end_ns },
        })
    }

    fn add(&mut self, outages: u64, longest: Outage) {
        self.outages += outages;
        let order = |outage: &Outage| (outage.duration_ns(), outage.begin_ns, outage.end_ns);
        self.longest = std::cmp::max_by_key(self.longest, longest, order);
    }
}

/// Records outages of the flows of one worker, by their index in its flow table.
#[derive(Clone, Debug)]
pub(crate) struct OutageRecorder {
    pub(crate) threshold_ns: u64,
    keys: Keys,
    records: Vec<Record>,
    not_kept: u64,
}

impl OutageRecorder {
    pub(crate) fn new() -> Self {
        Self {
            threshold_ns: OUTAGE_THRESHOLD_NS,
            keys: Keys::new(),
            records: Vec::new(),
            not_kept: 0,
        }
    }

    /// Handles `gap` sequence numbers from `from` on that were skipped between two arrivals. Returns true if this is an
    /// outage.
    pub(crate) fn skipped(&mut self, index: u32, from: u64, gap: u64, silence: Outage) -> bool {
        if silence.end_ns < silence.begin_ns || silence.duration_ns() < self.threshold_ns {
            return false;
        }
        let place = match self.keys.get(index) {
            Some(place) => place,
            None if self.records.len() < OUTAGE_FLOWS => {
                self.records.push(Record::default());
                self.keys.insert(index)
            }
            None => {
                self.not_kept += 1;
                return true;
            }
        };
        let record = &mut self.records[place];
        record.confirm();
        record.last = [silence.begin_ns, silence.end_ns];
        record.skipped = [from, from + gap];
        record.missing = gap;
        true
    }

    /// Handles a skipped number that arrived later. Returns true if it takes an outage back.
    pub(crate) fn filled(&mut self, index: u32, number: u64) -> bool {
        if self.records.is_empty() {
            return false;
        }
        let Some(place) = self.keys.get(index) else {
            return false;
        };
        let record = &mut self.records[place];
        let [from, to] = record.skipped;
        let fills = record.missing > 0 && (from..to).contains(&number);
        record.missing -= u64::from(fills);
        fills && record.missing == 0
    }

    /// Converts into the results. `number_of` returns the number of the flow with an index.
    pub(crate) fn finish(self, number_of: impl Fn(usize) -> u32) -> Outages {
        let words = |r: &Record| {
            let ([a, b], [c, d], [from, to]) = (r.longest, r.last, r.skipped);
            [r.earlier, a, b, c, d, from, to, r.missing]
        };
        let records = self.keys.flows().iter().zip(&self.records);
        let flows = records
            .filter_map(|(index, r)| FlowOutages::recorded(number_of(*index as usize), &words(r)));
        Outages::of_flows(flows, self.not_kept)
    }
}

/// Outages of all flows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outages {
    /// Flows with outages, by ascending number.
    pub flows: Vec<FlowOutages>,
    /// Outages of flows for which the list had no room.
    pub not_kept: u64,
    /// Flows with unknown outages: several workers received them, and they lost frames. Known at the end of a run.
    pub unknown_flows: u64,
}

/// Frames of a known sender.
#[derive(Clone, Copy, Debug)]
pub struct SentFrames<'a> {
    /// Flows and frames sent, by ascending flow number.
    pub offered: &'a [(u32, u64)],
    /// First departure, in ns of the receive clock.
    pub first_departure_ns: u64,
    /// Last departure, in ns of the receive clock.
    pub last_departure_ns: u64,
}

impl Outages {
    /// Creates a list from outages in any order; a flow may occur several times.
    #[must_use]
    pub fn of_flows(flows: impl Iterator<Item = FlowOutages>, not_kept: u64) -> Self {
        let mut all = Self::default();
        all.merge(&Self {
            flows: flows.collect(),
            not_kept,
            unknown_flows: 0,
        });
        all
    }

    /// Number of all outages.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.not_kept + self.flows.iter().map(|flow| flow.outages).sum::<u64>()
    }

    /// Flow with the longest outage.
    #[must_use]
    pub fn longest(&self) -> Option<&FlowOutages> {
        self.flows.iter().max_by_key(|f| f.longest.duration_ns())
    }

    /// Outages of one flow.
    #[must_use]
    pub fn of(&self, flow: u32) -> Option<&FlowOutages> {
        let place = self.flows.binary_search_by_key(&flow, |f| f.flow);
        place.ok().map(|at| &self.flows[at])
    }

    /// Adds the outages of another worker or job.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.not_kept = self.not_kept.saturating_add(other.not_kept);
        self.unknown_flows = self.unknown_flows.saturating_add(other.unknown_flows);
        self.flows.extend(&other.flows);
        self.flows.sort_unstable_by_key(|flow| flow.flow);
        self.flows.dedup_by(|next, own| {
            let is_same = own.flow == next.flow;
            if is_same {
                own.add(next.outages, next.longest);
            }
            is_same
        });
    }

    /// Completes the outages of a finished run. `stats` are the flows, `sent` the flows and frames of a known sender (both
    /// by ascending number).
    ///
    /// - A flow that lost nothing has no outage: its gaps are numbers that never left the sender.
    /// - If several workers received a flow, no worker knows which frames are missing. Its outages are removed, and the
    ///   flow counts as unknown if it lost frames.
    /// - If the last numbers of a flow are missing, it has an outage from its last arrival, or from the first departure, to the
    ///   last departure.
    pub(crate) fn end(
        &mut self,
        stats: &[FlowStats],
        sent: Option<&SentFrames<'_>>,
        threshold_ns: u64,
    ) {
        let offered = sent.map(|sent| sent.offered);
        let frames_of = |flow: u32| {
            let offered = offered?;
            let place = offered.binary_search_by_key(&flow, |(own, _)| *own);
            Some(place.map_or(0, |at| offered[at].1))
        };
        let has_lost = |seen: &FlowStats| {
            let numbers = seen.highest.map_or(0, |highest| highest + 1 - seen.head);
            seen.unique() < frames_of(seen.flow).unwrap_or(numbers)
        };
        let is_split = |seen: &&FlowStats| seen.workers > 1;
        self.unknown_flows = stats
            .iter()
            .filter(is_split)
            .filter(|f| has_lost(f))
            .count() as u64;
        let seen = |flow: u32| {
            let place = stats.binary_search_by_key(&flow, |f| f.flow);
            place.ok().map(|at| &stats[at])
        };
        self.flows
            .retain(|own| seen(own.flow).is_some_and(|f| f.workers <= 1 && has_lost(f)));
        let Some(sent) = sent else { return };
        let mut more = Self::default();
        for &(flow, frames) in sent.offered {
            let seen = seen(flow).filter(|seen| seen.received > 0);
            if seen.as_ref().is_some_and(is_split) || frames == 0 {
                continue;
            }
            let next = seen
                .and_then(|seen| seen.highest)
                .map_or(0, |highest| highest + 1);
            let begin_ns = seen.and_then(|seen| seen.last_rx_ns);
            let longest = Outage {
                begin_ns: begin_ns.unwrap_or(sent.first_departure_ns),
                end_ns: sent.last_departure_ns,
            };
            let is_silent =
                longest.end_ns > longest.begin_ns && longest.duration_ns() >= threshold_ns;
            if next >= frames || !is_silent {
                continue;
            }
            if self.flows.len() + more.flows.len() < OUTAGE_FLOWS || self.of(flow).is_some() {
                more.flows.push(FlowOutages {
                    flow,
                    outages: 1,
                    longest,
                });
            } else {
                more.not_kept += 1;
            }
        }
        self.merge(&more);
    }
}
