//! Outages: times in which nothing of a flow arrived although frames of the flow are missing.
//!
//! An outage begins with the last arrival before the missing sequence numbers and ends with the next arrival. Both times
//! are receive stamps. A silence shorter than the threshold is no outage. If all missing numbers arrive later, the frames
//! were reordered, and the outage is taken back. This is possible until the next outage of the flow begins.
//!
//! Only flows with an outage have a record, so flows that lose nothing cost neither memory nor time.

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
    /// Counts the last outage for good.
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

    /// Creates the outages of a flow from words recorded elsewhere by the rules of this module: outages before the last
    /// one, begin and end of the longest of them, begin and end of the last one, range of numbers that were skipped in
    /// it (first, end), and how many of these have not arrived. Returns `None` if no outage is left.
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

/// Records outages of the flows of one worker.
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
    pub(crate) fn skipped(&mut self, flow: u32, from: u64, gap: u64, silence: Outage) -> bool {
        if silence.end_ns < silence.begin_ns || silence.duration_ns() < self.threshold_ns {
            return false;
        }
        let index = match self.keys.get(flow) {
            Some(index) => index,
            None if self.records.len() < OUTAGE_FLOWS => {
                self.records.push(Record::default());
                self.keys.insert(flow)
            }
            None => {
                self.not_kept += 1;
                return true;
            }
        };
        let record = &mut self.records[index];
        record.confirm();
        record.last = [silence.begin_ns, silence.end_ns];
        record.skipped = [from, from + gap];
        record.missing = gap;
        true
    }

    /// Handles a skipped number that arrived later. Returns true if it takes an outage back.
    pub(crate) fn filled(&mut self, flow: u32, number: u64) -> bool {
        if self.records.is_empty() {
            return false;
        }
        let Some(index) = self.keys.get(flow) else {
            return false;
        };
        let record = &mut self.records[index];
        let [from, to] = record.skipped;
        let fills = record.missing > 0 && (from..to).contains(&number);
        record.missing -= u64::from(fills);
        fills && record.missing == 0
    }

    /// Converts into the results.
    pub(crate) fn finish(self) -> Outages {
        let words = |r: &Record| {
            let ([a, b], [c, d], [from, to]) = (r.longest, r.last, r.skipped);
            [r.earlier, a, b, c, d, from, to, r.missing]
        };
        let records = self.keys.flows().iter().zip(&self.records);
        let flows = records.filter_map(|(flow, r)| FlowOutages::recorded(*flow, &words(r)));
        Outages::of_flows(flows, self.not_kept)
    }
}

/// Outages of all flows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outages {
    /// Flows with outages, by ascending number.
    pub flows: Vec<FlowOutages>,
    /// Outages that belong to no flow of the list: the list was full, or several workers received the flow, and none of
    /// them can tell what is missing.
    pub not_kept: u64,
}

impl Outages {
    /// Creates a list from outages in any order; a flow may occur several times.
    #[must_use]
    pub fn of_flows(flows: impl Iterator<Item = FlowOutages>, not_kept: u64) -> Self {
        let mut all = Self::default();
        all.merge(&Self {
            flows: flows.collect(),
            not_kept,
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
        self.not_kept += other.not_kept;
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

    /// Removes flows that several workers received, and adds the outages that lasted until the end: of flows with fewer
    /// arrivals than `offered` (flow and frames sent, ascending) since their last arrival, up to the last departure.
    pub(crate) fn end(
        &mut self,
        stats: &[FlowStats],
        offered: &[(u32, u64)],
        last_departure_ns: u64,
        threshold_ns: u64,
    ) {
        let seen = |flow: u32| {
            let place = stats.binary_search_by_key(&flow, |f| f.flow);
            place.ok().map(|at| &stats[at])
        };
        let is_split = |flow: u32| seen(flow).is_some_and(|seen| seen.workers > 1);
        let not_kept = &mut self.not_kept;
        self.flows.retain(|flow| {
            let is_split = is_split(flow.flow);
            *not_kept += if is_split { flow.outages } else { 0 };
            !is_split
        });
        let mut more = Self::default();
        for &(flow, sent) in offered {
            let Some((seen, begin_ns)) = seen(flow).and_then(|s| Some((s, s.last_rx_ns?))) else {
                continue;
            };
            let ends_early = seen.highest.is_none_or(|highest| highest + 1 < sent);
            let longest = Outage {
                begin_ns,
                end_ns: last_departure_ns,
            };
            let is_long = last_departure_ns > begin_ns && longest.duration_ns() >= threshold_ns;
            if !(ends_early && is_long) {
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
