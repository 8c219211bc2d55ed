//! Receives frames, separates test frames from others, and passes them to the analysis.

use std::{
    collections::HashSet,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use wb_engine::peers::PeerClock;
use wb_measure::{
    Analyser, Counters, FlowStats, Histogram, Measurement, OUTAGE_THRESHOLD_NS, Outline,
};
use wb_port::{PortError, RxFrame, RxQueue, StampSource};
use wb_wire::{PktgenTag, PktgenTime, Tag, TagFormat, ethertype, find_tag, protocol};

use crate::{RAMP_FLOW, Recording};

/// Flow of frames with a pktgen header in a receiver that knows no plan: they have sequence numbers but no flow.
pub const PKTGEN_FLOW: u32 = RAMP_FLOW - 1;

/// Flows followed by a receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowSpace {
    /// The flows from `first` on, `count` of them. Frames of other flows are foreign.
    Planned {
        /// The first flow.
        first: u32,
        /// Number of flows.
        count: u32,
    },
    /// Flows of one run from another sender, see [`FollowedRun`]. Gaps are counted from the first sequence number seen.
    Open,
}

/// Flows of a run from another sender, shared by all receivers of a job. The run is that of the first tagged frame that
/// one of them sees. Frames of other runs are foreign.
#[derive(Debug)]
pub struct FollowedRun {
    /// Maximum number of flows of the run.
    flows: u32,
    /// One more than the flow of the first tagged frame; 0 before it.
    seen: AtomicU64,
    /// The first flow, if it is known beforehand.
    first: Option<u32>,
}

impl FollowedRun {
    /// A run of at most `flows` flows, of which `first` is the first if that is known.
    #[must_use]
    pub const fn new(first: Option<u32>, flows: u32) -> Self {
        Self {
            flows,
            seen: AtomicU64::new(0),
            first,
        }
    }

    /// Returns true if the first flow was known beforehand.
    #[must_use]
    pub const fn is_told(&self) -> bool {
        self.first.is_some()
    }

    /// Range of flows that may belong to the run, as first flow and count, after a frame of `flow`. If the first flow is
    /// unknown, these are all flows near the first tagged frame that can belong to the same run.
    fn flow_range(&self, flow: u32) -> (u32, u32) {
        if let Some(first) = self.first {
            return (first, self.flows.min(PKTGEN_FLOW.saturating_sub(first)));
        }
        let ours = u64::from(flow) + 1;
        let seen = self
            .seen
            .compare_exchange(0, ours, Ordering::AcqRel, Ordering::Acquire);
        let seen = seen.map_or_else(|theirs| theirs, |_| ours) as u32 - 1;
        range_around(seen, self.flows)
    }
}

/// Range of flows, as first flow and count, of all runs of `flows` flows that contain `seen`.
#[must_use]
pub fn range_around(seen: u32, flows: u32) -> (u32, u32) {
    let beside = flows.saturating_sub(1);
    let first = seen.saturating_sub(beside);
    let count = beside.saturating_mul(2).saturating_add(1).min(PKTGEN_FLOW);
    (first.min(PKTGEN_FLOW - count), count)
}

/// Maximum number of flows of a receiver that does not know their number.
pub const OPEN_FLOWS: u32 = 1 << 20;

/// Parameters of a receiver.
#[derive(Clone, Debug)]
pub struct ReceiverSpec {
    /// The flows to follow.
    pub flows: FlowSpace,
    /// The run of an [open](FlowSpace::Open) receiver, which all receivers of a job share.
    pub run: Arc<FollowedRun>,
    /// Streams without a tag are sent: every untagged frame counts, except control traffic of neighbours and bridges.
    pub untagged_is_ours: bool,
    /// Recordings that are sent: all their frames count as test frames.
    pub recordings: Vec<Arc<Recording>>,
    /// Flow of frames with a pktgen header, counted from the first flow. Without it they are foreign.
    pub pktgen_flow: Option<u32>,
    /// Positions of tags behind headers that are given as bytes.
    pub tag_offsets: Vec<usize>,
    /// Shortest silence that counts as an outage, in ns.
    pub outage_threshold_ns: u64,
    /// Clock of the sender, if it is on another host.
    pub clock: Option<SenderClock>,
}

/// Clock of a sender on another host.
#[derive(Clone, Debug)]
pub struct SenderClock {
    /// The clock. Its offset may change during the run.
    pub clock: Arc<PeerClock>,
    /// Amount in ns by which the measured latencies are raised, so that clock errors make none of them negative.
    pub bias_ns: u64,
    /// Offsets that the latencies of all workers contain.
    pub applied: Arc<AppliedOffsets>,
}

/// Offsets of a sender's clock that were added to its stamps.
#[derive(Debug, Default)]
pub struct AppliedOffsets(Mutex<(i128, u64)>);

impl AppliedOffsets {
    /// Adds the sum of the offsets of some latencies, in ns.
    fn add(&self, sum_ns: i128, latencies: u64) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *all = (all.0 + sum_ns, all.1 + latencies);
    }

    /// Mean offset in ns; `None` without latencies.
    #[must_use]
    pub fn mean_ns(&self) -> Option<i64> {
        let (sum_ns, latencies) = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mean = sum_ns.checked_div(latencies.into())?;
        i64::try_from(mean).ok()
    }
}

impl SenderClock {
    /// Time to add to a stamp of the sender, in ns.
    fn shift_ns(&self) -> i64 {
        self.clock.offset_ns().saturating_sub_unsigned(self.bias_ns)
    }
}

impl Default for ReceiverSpec {
    fn default() -> Self {
        Self {
            flows: FlowSpace::Open,
            run: Arc::new(FollowedRun::new(None, OPEN_FLOWS)),
            untagged_is_ours: false,
            recordings: Vec::new(),
            pktgen_flow: None,
            tag_offsets: Vec::new(),
            outage_threshold_ns: OUTAGE_THRESHOLD_NS,
            clock: None,
        }
    }
}

/// Results of a receiver.
#[derive(Clone, Debug)]
pub struct ReceiverOutcome {
    /// Measurements of test frames; flows have their tag numbers. Latencies of a sender with a [`SenderClock`] are raised
    /// by its bias.
    pub measurement: Measurement,
    /// Frames sent during the ramp-up; in no other count.
    pub ramp_frames: u64,
    /// Number of receive timestamps of test frames by source.
    pub stamp_sources: Vec<(StampSource, u64)>,
    /// Turns taken.
    pub turns: u64,
    /// Turns in which frames arrived.
    pub busy_turns: u64,
}

pub(crate) const SOURCES: [StampSource; 6] = [
    StampSource::Nic,
    StampSource::KernelTpacket,
    StampSource::KernelXdp,
    StampSource::UserSpace,
    StampSource::Recorded,
    StampSource::Virtual,
];

/// Receives for one worker. Call [`step`](Receiver::step) repeatedly, then [`finish`](Receiver::finish).
pub struct Receiver {
    /// One for each lane: frames of different lanes have no order.
    sorters: Vec<Sorter>,
    clock: Option<SenderClock>,
    /// Time that is added to the stamps of the sender, in ns.
    shift_ns: i64,
    /// Sum of these times over the first latencies, in ns, and the number of those latencies.
    shifted: (i128, u64),
    turns: u64,
    busy_turns: u64,
}

/// Processing of each frame.
struct Sorter {
    analyser: Analyser,
    /// Time to add to the stamp of the sender, in ns; 0 if both ends read the same clock.
    shift_ns: i64,
    first_flow: u32,
    /// 0 before the run is known.
    flows: u32,
    /// First published flow, without `first_flow`.
    shown: u32,
    /// The run to follow, if the receiver does not know the sender.
    run: Option<Arc<FollowedRun>>,
    /// Tags with an earlier timestamp belong to an earlier run.
    since_wall_ns: u64,
    untagged_is_ours: bool,
    /// Recorded frames that look like control traffic, without padding.
    recorded_chatter: HashSet<Box<[u8]>>,
    pktgen_flow: Option<u32>,
    tag_offsets: Box<[usize]>,
    end_wall_ns: u64,
    saw_the_end: bool,
    ramp_frames: u64,
    sources: [u64; SOURCES.len()],
}

impl Receiver {
    /// Creates a receiver for a port with one [lane](RxQueue::lanes), or for frames whose order does not matter.
    #[must_use]
    pub fn new(spec: &ReceiverSpec) -> Self {
        Self::for_lanes(spec, 1)
    }

    /// Creates a receiver for a port with this number of lanes. Each lane is measured separately, as if it had its own
    /// worker.
    #[must_use]
    pub fn for_lanes(spec: &ReceiverSpec, lanes: usize) -> Self {
        Self {
            sorters: (0..lanes.max(1)).map(|_| Sorter::new(spec)).collect(),
            clock: spec.clock.clone(),
            shift_ns: 0,
            shifted: (0, 0),
            turns: 0,
            busy_turns: 0,
        }
    }

    /// Takes a turn: processes up to `max` waiting frames of each lane. Returns their number. Originals stamped after
    /// `drain_since_wall_ns` are late.
    ///
    /// # Errors
    /// Returns the error of the port.
    #[inline]
    pub fn step<R: RxQueue>(
        &mut self,
        rx: &mut R,
        max: usize,
        drain_since_wall_ns: u64,
    ) -> Result<usize, PortError> {
        self.turns += 1;
        self.read_clock();
        let n = if let [sorter] = self.sorters.as_mut_slice() {
            sorter.analyser.drain_since(drain_since_wall_ns);
            rx.receive(max, |frame| sorter.process_frame(frame))?
        } else {
            self.step_lanes(rx, max, drain_since_wall_ns)?
        };
        self.busy_turns += u64::from(n > 0);
        Ok(n)
    }

    /// Reads the offset of the sender's clock, for the next frames.
    #[inline]
    fn read_clock(&mut self) {
        if let Some(clock) = &self.clock {
            let shift_ns = clock.shift_ns();
            if shift_ns != self.shift_ns {
                self.change_shift(shift_ns);
            }
        }
    }

    #[cold]
    fn change_shift(&mut self, shift_ns: i64) {
        self.add_shifts();
        self.shift_ns = shift_ns;
        for sorter in &mut self.sorters {
            sorter.shift_ns = shift_ns;
        }
    }

    /// Adds up the times that were added to the stamps since the last call.
    fn add_shifts(&mut self) {
        let latencies: u64 = self.latencies().map(Histogram::count).sum();
        let (sum, counted) = &mut self.shifted;
        let new = latencies.saturating_sub(*counted);
        *sum += i128::from(self.shift_ns) * i128::from(new);
        *counted = latencies;
    }

    /// A separate function, so that the work for each frame of one lane is compiled in one piece.
    #[inline(never)]
    fn step_lanes<R: RxQueue>(
        &mut self,
        rx: &mut R,
        max: usize,
        drain_since_wall_ns: u64,
    ) -> Result<usize, PortError> {
        let mut n = 0;
        for (lane, sorter) in self.sorters.iter_mut().enumerate() {
            sorter.analyser.drain_since(drain_since_wall_ns);
            n += rx.receive_from(lane, max, |frame| sorter.process_of_lane(frame))?;
        }
        Ok(n)
    }

    /// Like [`step`](Receiver::step), after the worker was stalled: records how long the oldest frame has waited, if
    /// its timestamp shows it.
    #[cold]
    pub(crate) fn step_late<R: RxQueue>(
        &mut self,
        rx: &mut R,
        max: usize,
        drain_since_wall_ns: u64,
        now_wall_ns: u64,
        oldest_ns: &mut u64,
    ) -> Result<usize, PortError> {
        self.turns += 1;
        self.read_clock();
        let mut n = 0;
        for (lane, sorter) in self.sorters.iter_mut().enumerate() {
            sorter.analyser.drain_since(drain_since_wall_ns);
            n += rx.receive_from(lane, max, |frame| {
                if tells_arrival(frame.stamp_source) {
                    *oldest_ns = (*oldest_ns).max(now_wall_ns.saturating_sub(frame.stamp_ns));
                }
                sorter.process_of_lane(frame);
            })?;
        }
        self.busy_turns += u64::from(n > 0);
        Ok(n)
    }

    /// Ignores frames that arrive later than this. Timestamps taken while reading, by a network card's own clock, or
    /// recorded in a file do not show the arrival time: such frames count.
    pub fn end_at(&mut self, wall_ns: u64) {
        for sorter in &mut self.sorters {
            sorter.end_wall_ns = wall_ns;
        }
    }

    /// Frames whose tag has an earlier timestamp of the same clock belong to an earlier run and are foreign. 0, the
    /// initial value, disables this check.
    pub fn ignore_before(&mut self, wall_ns: u64) {
        for sorter in &mut self.sorters {
            sorter.since_wall_ns = wall_ns;
        }
    }

    /// Returns true if each lane has seen a frame that arrived after the end.
    pub(crate) fn saw_the_end(&self) -> bool {
        self.sorters.iter().all(|sorter| sorter.saw_the_end)
    }

    /// The counters so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        let lanes = self.sorters.iter();
        lanes.map(|sorter| sorter.analyser.counters()).sum()
    }

    /// Number and sum of the latencies so far.
    #[must_use]
    pub fn latency_sum(&self) -> (u64, u128) {
        let (count, sum) = self.latencies().fold((0, 0), |(count, sum), latency| {
            (count + latency.count(), sum + latency.sum())
        });
        let bias = u128::from(count) * u128::from(self.bias_ns());
        (count, sum.saturating_sub(bias))
    }

    /// Amount by which the histograms of latencies are raised, in ns.
    fn bias_ns(&self) -> u64 {
        self.clock.as_ref().map_or(0, |clock| clock.bias_ns)
    }

    /// Adds the latencies so far to an outline.
    pub(crate) fn add_latencies(&self, outline: &mut Outline) {
        match self.bias_ns() {
            0 => self.latencies().for_each(|l| outline.add(l)),
            bias => self
                .latencies()
                .for_each(|l| outline.add(&l.lowered_by(bias))),
        }
    }

    /// The latencies so far, per lane, raised by the bias of the sender's clock.
    pub fn latencies(&self) -> impl Iterator<Item = &Histogram> {
        self.sorters.iter().map(|sorter| sorter.analyser.latency())
    }

    /// Receive statistics so far of the first `count` flows, per lane. All lanes and workers use the same flows, so
    /// that sums are complete. Without a plan the first flow is that of the first tagged frame.
    pub fn first_flows(&self, count: u32) -> impl Iterator<Item = FlowStats> {
        let bias = self.bias_ns();
        self.sorters.iter().flat_map(move |sorter| {
            let shown = sorter.shown..sorter.shown.saturating_add(count);
            let flows = shown.filter_map(|flow| sorter.analyser.flow(flow));
            flows.map(move |mut flow| {
                flow.flow += sorter.first_flow;
                flow.latency = flow.latency.lowered_by(bias);
                flow
            })
        })
    }

    /// All measurements.
    #[must_use]
    pub fn finish(mut self) -> ReceiverOutcome {
        self.add_shifts();
        if let Some(clock) = &self.clock {
            let (shifts, latencies) = self.shifted;
            let biases = i128::from(clock.bias_ns) * i128::from(latencies);
            clock.applied.add(shifts + biases, latencies);
        }
        let (mut ramp_frames, mut sources) = (0, [0; SOURCES.len()]);
        let mut measurement: Option<Measurement> = None;
        for sorter in self.sorters {
            ramp_frames += sorter.ramp_frames;
            for (sum, n) in sources.iter_mut().zip(sorter.sources) {
                *sum += n;
            }
            let mut lane = sorter.analyser.into_measurement();
            let flows = lane.flows.iter_mut().map(|f| &mut f.flow);
            let interrupted = lane.outages.flows.iter_mut().map(|f| &mut f.flow);
            for flow in flows.chain(interrupted).filter(|f| **f != PKTGEN_FLOW) {
                *flow += sorter.first_flow;
            }
            match &mut measurement {
                None => measurement = Some(lane),
                Some(all) => all.merge(&lane),
            }
        }
        let counted = SOURCES.into_iter().zip(sources);
        ReceiverOutcome {
            measurement: measurement.unwrap_or_default(),
            ramp_frames,
            stamp_sources: counted.filter(|(_, frames)| *frames > 0).collect(),
            turns: self.turns,
            busy_turns: self.busy_turns,
        }
    }
}

impl Sorter {
    fn new(spec: &ReceiverSpec) -> Self {
        let (analyser, first_flow, flows, run) = match spec.flows {
            FlowSpace::Planned { first, count } => {
                (Analyser::planned(count as usize), first, count, None)
            }
            FlowSpace::Open => {
                // Frames with a pktgen header form an additional flow.
                let analyser = Analyser::open(spec.run.flows as usize + 1);
                let run = Some(Arc::clone(&spec.run));
                (analyser.with_unknown_sender(), 0, 0, run)
            }
        };
        Self {
            analyser: analyser.with_outage_threshold(spec.outage_threshold_ns),
            shift_ns: 0,
            first_flow,
            flows,
            shown: 0,
            run,
            since_wall_ns: 0,
            untagged_is_ours: spec.untagged_is_ours,
            recorded_chatter: spec
                .recordings
                .iter()
                .flat_map(|r| &r.frames)
                .filter(|f| is_chatter(&f.bytes))
                .map(|f| trim_padding(&f.bytes).into())
                .collect(),
            pktgen_flow: spec.pktgen_flow,
            tag_offsets: spec.tag_offsets.as_slice().into(),
            end_wall_ns: u64::MAX,
            saw_the_end: false,
            ramp_frames: 0,
            sources: [0; SOURCES.len()],
        }
    }

    #[inline(never)]
    fn process_of_lane(&mut self, frame: &RxFrame<'_>) {
        self.process_frame(frame);
    }

    /// Always inlined: with two callers it would be a separate call, 12 instructions a frame.
    #[inline(always)]
    fn process_frame(&mut self, frame: &RxFrame<'_>) {
        if frame.stamp_ns > self.end_wall_ns && tells_arrival(frame.stamp_source) {
            self.saw_the_end = true;
            return;
        }
        // Always by the headers. A test at the position of the last tag is cheaper by some 40 instructions but wrong:
        // among frames of several kinds, one checksum in 65,536 equals the magic number there.
        match find_tag(frame.bytes) {
            Some((at, TagFormat::Native)) => {
                if let Some(tag) = Tag::read(&frame.bytes[at..]) {
                    self.process_tagged(frame, tag);
                }
            }
            Some((at, TagFormat::Pktgen)) => self.process_pktgen(frame, at),
            None => self.process_without_tag(frame),
        }
    }

    /// Processes a frame without a tag behind its known headers. The tag may be behind headers that are given as bytes;
    /// a device may have added or removed up to two VLAN tags.
    #[cold]
    #[inline(never)]
    fn process_without_tag(&mut self, frame: &RxFrame<'_>) {
        let shifted = |at: &usize| [0, -4, 4, -8, 8].map(|shift| at.checked_add_signed(shift));
        let places = self.tag_offsets.iter().flat_map(shifted).flatten();
        let mut tags = places.filter_map(|at| Tag::read(frame.bytes.get(at..)?));
        match tags.find(|tag| tag.flow.wrapping_sub(self.first_flow) < self.flows) {
            Some(tag) => self.process_tagged(frame, tag),
            None => self.process_unknown(frame, Analyser::on_foreign),
        }
    }

    #[inline]
    fn process_tagged(&mut self, frame: &RxFrame<'_>, tag: Tag) {
        // A flow before the first one wraps to beyond the last.
        let flow = tag.flow.wrapping_sub(self.first_flow);
        // Two calls, because one call would make the compiler compute both conditions for every frame.
        if flow >= self.flows {
            return self.process_unknown_flow(frame);
        }
        if tag.time_ns < self.since_wall_ns {
            return self.process_unknown(frame, Analyser::on_stale);
        }
        self.sources[source_index(frame.stamp_source)] += 1;
        self.analyser.on_frame(
            flow,
            tag.sequence,
            tag.time_ns.wrapping_add_signed(self.shift_ns),
            frame.stamp_ns,
            frame.size(),
        );
    }

    /// Processes a tagged frame that belongs to none of the known flows. Reads the tag again, because passing it would
    /// cost instructions for every frame.
    #[cold]
    #[inline(never)]
    fn process_unknown_flow(&mut self, frame: &RxFrame<'_>) {
        let found = find_tag(frame.bytes);
        let Some(tag) = found.and_then(|(at, _)| Tag::read(&frame.bytes[at..])) else {
            return;
        };
        if tag.flow == RAMP_FLOW {
            self.ramp_frames += 1;
            return;
        }
        // Flow numbers from this one on belong to no run, so a first frame with one does not identify the run.
        let is_of_a_run = tag.flow < PKTGEN_FLOW;
        if let Some(run) = self.run.as_ref().filter(|_| self.flows == 0 && is_of_a_run) {
            (self.first_flow, self.flows) = run.flow_range(tag.flow);
            if tag.flow.wrapping_sub(self.first_flow) < self.flows {
                if run.first.is_none() {
                    self.shown = tag.flow - self.first_flow;
                }
                return self.process_tagged(frame, tag);
            }
        }
        self.process_unknown(frame, Analyser::on_unplanned);
    }

    /// Processes a frame without a tag or with a tag of another run, which a replayed recording may contain.
    /// `otherwise`: how to count it if it belongs to no recording.
    #[cold]
    #[inline(never)]
    fn process_unknown(&mut self, frame: &RxFrame<'_>, otherwise: fn(&mut Analyser, u32)) {
        let ours = || {
            !is_chatter(frame.bytes) || self.recorded_chatter.contains(trim_padding(frame.bytes))
        };
        if self.untagged_is_ours && ours() {
            self.sources[source_index(frame.stamp_source)] += 1;
            self.analyser.on_untagged(frame.stamp_ns, frame.size());
        } else {
            otherwise(&mut self.analyser, frame.size());
        }
    }

    fn process_pktgen(&mut self, frame: &RxFrame<'_>, at: usize) {
        let (Some(flow), Some(tag)) = (self.pktgen_flow, PktgenTag::read(&frame.bytes[at..]))
        else {
            return self.process_unknown(frame, Analyser::on_pktgen);
        };
        let time_ns = match tag.guess_time(frame.stamp_ns) {
            PktgenTime::Wall(ns) if ns < self.since_wall_ns => {
                return self.process_unknown(frame, Analyser::on_stale);
            }
            PktgenTime::Wall(ns) => ns.saturating_add_signed(self.shift_ns),
            PktgenTime::Monotonic(_) | PktgenTime::None => 0,
        };
        self.sources[source_index(frame.stamp_source)] += 1;
        // pktgen's numbers start at 1.
        let sequence = tag.sequence.saturating_sub(1);
        self.analyser
            .on_frame(flow, sequence, time_ns, frame.stamp_ns, frame.size());
    }
}

/// Returns true if the timestamp of a frame is its arrival time on the local clock.
pub(crate) const fn tells_arrival(source: StampSource) -> bool {
    match source {
        StampSource::KernelTpacket | StampSource::KernelXdp | StampSource::Virtual => true,
        StampSource::Nic | StampSource::UserSpace | StampSource::Recorded => false,
    }
}

#[inline]
pub(crate) const fn source_index(source: StampSource) -> usize {
    match source {
        StampSource::Nic => 0,
        StampSource::KernelTpacket => 1,
        StampSource::KernelXdp => 2,
        StampSource::UserSpace => 3,
        StampSource::Recorded => 4,
        StampSource::Virtual => 5,
    }
}

/// A frame without trailing zeros, which may be padding of short frames.
fn trim_padding(frame: &[u8]) -> &[u8] {
    let end = frame.iter().rposition(|byte| *byte != 0);
    &frame[..end.map_or(0, |at| at + 1)]
}

/// Returns true for control traffic of stations and bridges: ARP, neighbour and router discovery, group membership,
/// bridge protocols.
fn is_chatter(frame: &[u8]) -> bool {
    let byte = |at: usize| frame.get(at).copied().unwrap_or(0);
    // IEEE 802.1D: these addresses are never forwarded.
    if frame.starts_with(&[0x01, 0x80, 0xc2, 0x00, 0x00]) {
        return true;
    }
    match u16::from_be_bytes([byte(12), byte(13)]) {
        ethertype::ARP => true,
        // IGMP.
        ethertype::IPV4 => byte(23) == 2,
        ethertype::IPV6 => match byte(20) {
            protocol::ICMPV6 => is_discovery(byte(54)),
            // Listener reports have a hop-by-hop header with the router alert.
            0 => byte(54) == protocol::ICMPV6 && is_discovery(byte(62)),
            _ => false,
        },
        _ => false,
    }
}

/// Multicast listener and neighbour discovery (RFC 2710, 3810, 4861).
const fn is_discovery(kind: u8) -> bool {
    matches!(kind, 130..=137 | 143)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use wb_port::{ChecksumState, RxCounters};
    use wb_wire::{Stack, Vlan, arp_request};

    struct Frames(Vec<Vec<u8>>);

    impl RxQueue for Frames {
        fn receive<F: FnMut(&RxFrame<'_>)>(
            &mut self,
            max: usize,
            mut on_frame: F,
        ) -> Result<usize, PortError> {
            let n = max.min(self.0.len());
            for bytes in self.0.drain(..n) {
                on_frame(&RxFrame {
                    bytes: &bytes,
                    original_len: bytes.len() as u32,
                    stamp_ns: 1_700_000_000_000_001_000,
                    stamp_source: StampSource::Virtual,
                    vlan: None,
                    checksum: ChecksumState::Unknown,
                });
            }
            Ok(n)
        }

        fn wait(&mut self, _: Duration) -> Result<bool, PortError> {
            Ok(!self.0.is_empty())
        }

        fn counters(&mut self) -> RxCounters {
            RxCounters::default()
        }
    }

    const SENT: u64 = 1_700_000_000_000_000_000;

    fn tagged(vlans: &[u16], flow: u32, sequence: u32) -> Vec<u8> {
        let stack = Stack {
            vlans: Vlan::stack(vlans),
            ..Stack::udp4([1, 1, 1, 1], [2, 2, 2, 2], 3, 4)
        };
        let (mut frame, layout) = stack.build_with_layout(100);
        Tag {
            flow,
            sequence,
            time_ns: SENT,
        }
        .write(frame[layout.payload..].first_chunk_mut().unwrap());
        frame
    }

    fn pktgen(sequence: u32) -> Vec<u8> {
        let (mut frame, layout) =
            Stack::udp4([1, 1, 1, 1], [2, 2, 2, 2], 9, 9).build_with_layout(60);
        PktgenTag::at(sequence, SENT).write(frame[layout.payload..].first_chunk_mut().unwrap());
        frame
    }

    fn receive(spec: &ReceiverSpec, frames: Vec<Vec<u8>>) -> ReceiverOutcome {
        let mut receiver = Receiver::new(spec);
        let mut rx = Frames(frames);
        while receiver.step(&mut rx, 2, u64::MAX).unwrap() > 0 {}
        receiver.finish()
    }

    fn planned(first: u32, count: u32) -> ReceiverSpec {
        ReceiverSpec {
            flows: FlowSpace::Planned { first, count },
            ..ReceiverSpec::default()
        }
    }

    #[test]
    fn frames_are_sorted_by_their_tag() {
        let frames = vec![
            tagged(&[], 10, 0),
            tagged(&[5], 11, 0),
            tagged(&[], 10, 1),
            tagged(&[], 9, 0),
            tagged(&[], 12, 0),
            tagged(&[7, 8], RAMP_FLOW, 0),
            pktgen(1),
            vec![0; 60],
        ];
        let outcome = receive(&planned(10, 2), frames);
        let m = &outcome.measurement;
        assert_eq!(
            (
                m.counters.received_frames,
                m.counters.foreign_frames,
                outcome.ramp_frames
            ),
            (3, 4, 1)
        );
        assert_eq!(
            m.flows
                .iter()
                .map(|f| (f.flow, f.received))
                .collect::<Vec<_>>(),
            [(10, 2), (11, 1)]
        );
        assert_eq!(m.latency.summary().max, Some(1000));
        assert_eq!(m.counters.received_octets, 3 * 104);
        assert_eq!(outcome.stamp_sources, [(StampSource::Virtual, 3)]);
        assert_eq!((outcome.turns, outcome.busy_turns), (5, 4));
    }

    fn open(first: Option<u32>, flows: u32) -> ReceiverSpec {
        ReceiverSpec {
            run: Arc::new(FollowedRun::new(first, flows)),
            pktgen_flow: Some(PKTGEN_FLOW),
            ..ReceiverSpec::default()
        }
    }

    /// Followed flows, foreign frames of other runs, and frames of ramps.
    fn followed(spec: &ReceiverSpec, flows: &[u32]) -> (Vec<u32>, u64, u64) {
        let frames = flows.iter().map(|flow| tagged(&[], *flow, 0)).collect();
        let outcome = receive(spec, frames);
        let m = outcome.measurement;
        let strangers = m.counters.unplanned_frames;
        assert_eq!(strangers, m.counters.foreign_frames);
        let flows = m.flows.iter().map(|f| f.flow).collect();
        (flows, strangers, outcome.ramp_frames)
    }

    #[test]
    fn without_the_sender_the_run_of_the_first_tagged_frame_is_followed() {
        const FAR: u32 = 4_000_000_000;
        let all = [RAMP_FLOW, FAR, 5, FAR - 3, FAR + 3, FAR + 4, FAR - 4];
        let seen = followed(&open(None, 4), &all);
        assert_eq!(seen, (vec![FAR - 3, FAR, FAR + 3], 3, 1));
        // At either end of the number range.
        let seen = followed(&open(None, 4), &[1, 0, 6, 7, FAR]);
        assert_eq!(seen, (vec![0, 1, 6], 2, 0));
        let last = PKTGEN_FLOW - 1;
        let seen = followed(&open(None, 4), &[last, last - 6, last - 7, 1]);
        assert_eq!(seen, (vec![last - 6, last], 2, 0));
        // Numbers that no run uses do not identify the run.
        for number in [RAMP_FLOW, PKTGEN_FLOW] {
            let strays = u64::from(number == PKTGEN_FLOW);
            let ramp = u64::from(number == RAMP_FLOW);
            let seen = followed(&open(None, 4), &[number, 5, 6, number]);
            assert_eq!(seen, (vec![5, 6], 2 * strays, 2 * ramp), "{number}");
        }
        // With a given first flow.
        let seen = followed(&open(Some(10), 2), &[9, 10, 11, 12, FAR]);
        assert_eq!(seen, (vec![10, 11], 3, 0));
        let seen = followed(&open(Some(last), 1 << 20), &[last, last - 1]);
        assert_eq!(seen, (vec![last], 1, 0));
    }

    #[test]
    fn all_receivers_of_a_job_follow_one_run() {
        let spec = open(None, 2);
        let mut first = Receiver::for_lanes(&spec, 2);
        let mut rx = Two([
            Frames(vec![tagged(&[], 7, 3)]),
            Frames(vec![tagged(&[], 900, 0), tagged(&[], 8, 0), pktgen(1)]),
        ]);
        while first.step(&mut rx, 4, u64::MAX).unwrap() > 0 {}
        let shown: Vec<u32> = first.first_flows(1).map(|f| f.flow).collect();
        assert_eq!(shown, [7]);
        let m = first.finish().measurement;
        let flows: Vec<u32> = m.flows.iter().map(|f| f.flow).collect();
        assert_eq!(
            (flows, m.counters.unplanned_frames),
            (vec![7, 8, PKTGEN_FLOW], 1)
        );
        assert_eq!((m.counters.head_frames, m.counters.missing_frames), (3, 0));
        assert_eq!(followed(&spec, &[900, 6]), (vec![6], 1, 0));
    }

    #[test]
    fn stamps_of_another_clock_are_moved_to_this_one() {
        const BIAS: u64 = 10_000;
        let clock = Arc::new(PeerClock::default());
        let applied = Arc::new(AppliedOffsets::default());
        let spec = ReceiverSpec {
            clock: Some(SenderClock {
                clock: Arc::clone(&clock),
                bias_ns: BIAS,
                applied: Arc::clone(&applied),
            }),
            ..planned(0, 1)
        };
        let mut receiver = Receiver::new(&spec);
        let mut step = |offset_ns: i64, sequence: u32| {
            clock.set(wb_model::peer::PairClock {
                offset_end_ns: offset_ns,
                ..Default::default()
            });
            let mut rx = Frames(vec![tagged(&[], 0, sequence)]);
            receiver.step(&mut rx, 4, u64::MAX).unwrap();
        };
        // The frames arrive 1 us after their stamps.
        step(-500, 0);
        // The offset is read again for each batch. This frame seems to have arrived before it was sent.
        step(7_000, 1);
        let (count, sum) = receiver.latency_sum();
        // Sums of few frames are never below 0.
        assert_eq!((count, sum), (2, 0));
        let shown: Vec<FlowStats> = receiver.first_flows(1).collect();
        assert_eq!(
            (shown[0].latency.min, shown[0].latency.max),
            (Some(0), Some(1_500))
        );
        let m = receiver.finish().measurement;
        assert_eq!(m.counters.clock_error_frames, 0);
        let latency = m.latency.summary().lowered_by(BIAS as i64);
        assert_eq!((latency.min, latency.max), (Some(-6_000), Some(1_500)));
        // The variation has no bias.
        assert_eq!(m.ipdv.summary().max, Some(-7_500));
        assert_eq!(applied.mean_ns(), Some((7_000 - 500) / 2));
    }

    #[test]
    fn what_was_stamped_before_the_run_is_of_another() {
        let spec = ReceiverSpec {
            pktgen_flow: Some(1),
            ..planned(10, 2)
        };
        for (since, ours) in [(SENT, 3), (SENT + 1, 0)] {
            let mut receiver = Receiver::new(&spec);
            receiver.ignore_before(since);
            let mut rx = Frames(vec![tagged(&[], 10, 0), pktgen(1), tagged(&[], 11, 0)]);
            while receiver.step(&mut rx, 4, u64::MAX).unwrap() > 0 {}
            let c = receiver.counters();
            let stale = 3 - ours;
            assert_eq!((c.received_frames, c.stale_frames), (ours, stale));
            assert_eq!((c.foreign_frames, c.missing_frames), (stale, 0));
        }
    }

    #[test]
    fn pktgen_headers_are_a_flow_if_planned() {
        let spec = ReceiverSpec {
            pktgen_flow: Some(1),
            ..planned(20, 2)
        };
        let outcome = receive(&spec, vec![pktgen(1), pktgen(2), pktgen(2), pktgen(4)]);
        let flow = &outcome.measurement.flows[1];
        assert_eq!(
            (flow.flow, flow.received, flow.duplicates, flow.highest),
            (21, 4, 1, Some(3))
        );
        assert_eq!(outcome.measurement.counters.missing_frames, 1);
        assert_eq!(outcome.measurement.latency.summary().min, Some(1000));
    }

    #[test]
    fn untagged_frames_are_ours_if_said_so_but_chatter_is_not() {
        let mut arp = vec![0; 60];
        let len = arp_request(
            wb_wire::MacAddr([2, 0, 0, 0, 0, 1]),
            [1, 1, 1, 1].into(),
            [2, 2, 2, 2].into(),
            &[],
            &mut arp,
        );
        assert!(len.is_some());
        let mut report = Stack::udp6(
            std::net::Ipv6Addr::LOCALHOST,
            std::net::Ipv6Addr::LOCALHOST,
            0,
            0,
        )
        .build(90);
        report[20] = 0;
        report[54] = 58;
        report[62] = 143;
        let mut bpdu = vec![0; 60];
        bpdu[..5].copy_from_slice(&[1, 0x80, 0xc2, 0, 0]);
        let ours = Stack::udp4([1, 1, 1, 1], [2, 2, 2, 2], 3, 4).build(60);
        let spec = ReceiverSpec {
            untagged_is_ours: true,
            ..planned(0, 1)
        };
        let outcome = receive(&spec, vec![arp, report, bpdu, ours, tagged(&[], 0, 0)]);
        let counters = outcome.measurement.counters;
        assert_eq!(
            (
                counters.untagged_frames,
                counters.foreign_frames,
                counters.received_frames
            ),
            (1, 3, 2)
        );
    }

    #[test]
    fn tags_behind_arp_are_found() {
        let mut frame = vec![0; 60];
        let address = [1, 1, 1, 1];
        arp_request(
            wb_wire::MacAddr([2; 6]),
            address.into(),
            address.into(),
            &[],
            &mut frame,
        );
        Tag {
            flow: 0,
            sequence: 0,
            time_ns: SENT,
        }
        .write(frame[42..].first_chunk_mut().unwrap());
        let outcome = receive(&planned(0, 1), vec![frame]);
        assert_eq!(outcome.measurement.counters.received_frames, 1);
    }

    #[test]
    fn a_checksum_that_looks_like_a_tag_is_none() {
        // A TCP frame whose checksum equals the magic number, at the tag position of the previous frame: after two VLAN
        // tags and UDP.
        let mut stack = Stack::udp4([1, 1, 1, 1], [2, 2, 2, 2], 3, 4);
        let wb_wire::NetworkHeader::Ipv4(ip, _) = stack.network else {
            unreachable!("it was just made")
        };
        let tcp = wb_wire::TransportHeader::Tcp(wb_wire::Tcp::new(3, 4));
        stack.network = wb_wire::NetworkHeader::Ipv4(ip, tcp);
        let (mut frame, layout) = stack.build_with_layout(100);
        Tag {
            flow: 0,
            sequence: 1,
            time_ns: SENT,
        }
        .write(frame[layout.payload..].first_chunk_mut().unwrap());
        frame[50..52].copy_from_slice(&Tag::MAGIC.to_be_bytes());
        let outcome = receive(&planned(0, 60_000), vec![tagged(&[5, 6], 0, 0), frame]);
        let flows = outcome.measurement.flows;
        assert_eq!((flows[0].received, flows[0].reordered), (2, 0));
    }

    #[test]
    fn frames_after_the_end_count_for_nothing() {
        let mut receiver = Receiver::new(&planned(0, 1));
        let mut rx = Frames((0..3).map(|n| tagged(&[], 0, n)).collect());
        receiver.end_at(SENT + 1000);
        receiver.step(&mut rx, 1, u64::MAX).unwrap();
        assert!(!receiver.saw_the_end());
        receiver.end_at(SENT + 999);
        receiver.step(&mut rx, 1, u64::MAX).unwrap();
        assert!(receiver.saw_the_end());
        let counters = receiver.counters();
        assert_eq!((counters.received_frames, counters.foreign_frames), (1, 0));
        assert!(!tells_arrival(StampSource::UserSpace));
        assert!(tells_arrival(StampSource::KernelTpacket));
    }

    /// Two queues, read in turn by one worker.
    struct Two([Frames; 2]);

    impl RxQueue for Two {
        fn receive<F: FnMut(&RxFrame<'_>)>(
            &mut self,
            max: usize,
            mut on_frame: F,
        ) -> Result<usize, PortError> {
            Ok(self.0[0].receive(max, &mut on_frame)? + self.0[1].receive(max, on_frame)?)
        }

        fn lanes(&self) -> usize {
            2
        }

        fn receive_from<F: FnMut(&RxFrame<'_>)>(
            &mut self,
            lane: usize,
            max: usize,
            on_frame: F,
        ) -> Result<usize, PortError> {
            self.0[lane].receive(max, on_frame)
        }

        fn wait(&mut self, _: Duration) -> Result<bool, PortError> {
            Ok(true)
        }

        fn counters(&mut self) -> RxCounters {
            RxCounters::default()
        }
    }

    #[test]
    fn what_a_device_spread_over_queues_is_not_called_reordered() {
        let lane = |even: u32| {
            Frames(
                (0..20)
                    .map(|n| tagged(&[], n % 3, 2 * (n / 3) + even))
                    .collect(),
            )
        };
        let mut rx = Two([lane(1), lane(0)]);
        let mut receiver = Receiver::for_lanes(&planned(0, 3), rx.lanes());
        while receiver.step(&mut rx, 4, u64::MAX).unwrap() > 0 {}
        assert_eq!(receiver.counters().received_frames, 40);
        assert_eq!(receiver.latency_sum().0, 40);
        // Flows published during the run include both lanes.
        let first = |flow: u32| -> u64 {
            let flows = receiver.first_flows(2).filter(|f| f.flow == flow);
            flows.map(|f| f.received).sum()
        };
        assert_eq!((first(0), first(1), first(2)), (14, 14, 0));
        let outcome = receiver.finish();
        let m = &outcome.measurement;
        assert_eq!(m.counters.received_frames, 40);
        assert_eq!((m.counters.reordered_frames, m.split_flows()), (0, 3));
        assert_eq!(outcome.stamp_sources, [(StampSource::Virtual, 40)]);
    }
}
