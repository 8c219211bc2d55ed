//! One stream on one worker: frames, their schedule and their results.
//!
//! Knows ports only as slots to fill. Times are offsets from the start of the schedule, except timestamps in tags.

use std::collections::HashMap;
use std::sync::Arc;

use wb_measure::Histogram;
use wb_model::{
    TagKind,
    units::{Rate, WIRE_OVERHEAD},
};
use wb_port::offload::{Pace, SendCounters, StreamProgram};
use wb_port::{Slot, TxQueue};

use crate::control::StreamPace;
use crate::frames::{BuildContext, CookieMark, FlowCursor, StreamFrames, TagContents, cursor_of};
use crate::modify::WorkerShare;
use crate::pacer::{Pacer, Schedule};
use crate::ramp::{Ramp, RampUp};
use crate::{
    Clock, CompileError, RAMP_FLOW, RecordedFrame, Recording, SenderSpec, StreamOutcome, StreamSpec,
};

/// Maximum number of frames that share a wall-clock timestamp: they are written in well under a microsecond.
const STAMP_GROUP: usize = 8;

/// Histogram of the times between frames, and the last departure.
#[derive(Clone, Debug, Default)]
pub(crate) struct DepartureIntervals {
    pub(crate) histogram: Histogram,
    last_ns: Option<u64>,
}

impl DepartureIntervals {
    fn record(&mut self, time_ns: u64) {
        if let Some(last) = self.last_ns.replace(time_ns) {
            self.histogram.record(time_ns.saturating_sub(last));
        }
    }
}

/// Context for filling slots.
pub(crate) struct SlotBatch<'a, T, C> {
    pub(crate) tx: &'a mut T,
    pub(crate) clock: &'a C,
    pub(crate) filled: usize,
    pub(crate) room: usize,
    /// Last timestamp; 0 before the first.
    pub(crate) stamp_ns: u64,
    pub(crate) departures: Option<&'a mut DepartureIntervals>,
}

impl<T: TxQueue, C: Clock> SlotBatch<'_, T, C> {
    /// Fills slots while there is room and `next` permits it. Returns the octets written.
    #[inline]
    fn fill_slots(
        &mut self,
        mut next: impl FnMut() -> bool,
        mut write: impl FnMut(Slot<'_>, u64) -> u32,
    ) -> u64 {
        let (mut octets, mut group) = (0, 0);
        while self.filled < self.room && next() {
            if group == 0 {
                self.stamp_ns = self.clock.wall_ns();
                group = STAMP_GROUP;
            }
            group -= 1;
            if let Some(departures) = &mut self.departures {
                departures.record(self.stamp_ns);
                group = 0;
            }
            octets += u64::from(write(self.tx.slot(self.filled), self.stamp_ns));
            self.filled += 1;
        }
        octets
    }
}

/// Source of a stream's frames.
enum FrameSource {
    Built {
        frames: Box<StreamFrames>,
        cursor: FlowCursor,
        tag: TagKind,
        first_flow: u32,
    },
    Recorded(Replay),
}

/// Frames of a recording, unchanged.
struct Replay {
    recording: Arc<Recording>,
    mark: CookieMark,
    at: usize,
    advance: usize,
}

impl Replay {
    #[inline]
    fn write(&mut self, slot: Slot<'_>) -> u32 {
        let bytes = &self.recording.frames[self.at].bytes;
        let cookie = self.mark.numbered_cookie(self.at);
        if *slot.cookie != cookie {
            slot.bytes[..bytes.len()].copy_from_slice(bytes);
            *slot.cookie = cookie;
        }
        *slot.len = bytes.len() as u32;
        self.at += self.advance;
        if self.at >= self.recording.frames.len() {
            self.at -= self.recording.frames.len();
        }
        bytes.len() as u32 + 4
    }
}

/// Frames of the ramp. Their walk is separate, so that the counted frames are the same with and without a ramp.
struct RampFrames {
    ramp: Ramp,
    frames: Box<StreamFrames>,
    cursor: FlowCursor,
    sequence: u32,
}

/// Reason why a submitted frame was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReturnReason {
    Refused,
    Withdrawn,
}

/// Owner of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FrameOwner {
    /// A frame of the counted schedule, with its flow.
    Flow(u32),
    Ramp,
}

/// See the module.
pub(crate) struct StreamSender {
    source: FrameSource,
    /// `None`: full speed.
    pacer: Option<Pacer>,
    rise: Option<RampFrames>,
    /// Lateness at which this stream gives events up or postpones them.
    allowance_ns: u64,
    /// It ends with a number of frames and not at a time, so all are sent, even if later.
    patient: bool,
    bursts: bool,
    flows: u32,
    first_flow: u32,
    stopped: bool,
    /// Pause of a stream at full speed.
    held: bool,
    submitted_frames: u64,
    submitted_octets: u64,
    refused_frames: u64,
    withdrawn_frames: u64,
    returned_octets: u64,
    /// Returned frames, by flow.
    returned: HashMap<u32, u64>,
}

impl StreamSender {
    pub(crate) fn new(
        spec: &StreamSpec,
        sender: &SenderSpec,
        number: usize,
        marks: u64,
        capacity: usize,
    ) -> Result<Self, CompileError> {
        let share = WorkerShare {
            worker: sender.worker,
            workers: sender.workers,
        };
        let name = || spec.name.clone();
        let schedule = stream_schedule(spec)?;
        let bursts = matches!(schedule, Some(Schedule::Bursts { .. }));
        let burst_ns = match &schedule {
            // The frames of a burst cannot leave all at once: they have until the next burst.
            Some(Schedule::Bursts { gap_ns, .. }) => *gap_ns,
            _ => 0,
        };
        let build = BuildContext {
            mark: CookieMark::new(marks, 2 * number),
            share,
            seed: sender.seed,
            number,
            capacity,
            tag: spec.stream.tag,
        };
        let source = match &spec.replay {
            Some(recording) => FrameSource::Recorded(build_replay(spec, recording, &build)?),
            None => build_source(spec, &build)?,
        };
        let mut pacer = schedule.map(|schedule| Pacer::new(schedule, share.worker, share.workers));
        if let Some(pacer) = &mut pacer {
            match (sender.duration_ns, sender.count, &spec.replay) {
                (Some(duration), _, _) => pacer.end_at(duration),
                (None, None, Some(recording)) => {
                    pacer.limit_to(pacer.ours_of(recording.frames.len() as u64));
                }
                _ => {}
            }
            if let Some(count) = spec.stream.count {
                pacer.limit_to(pacer.ours_of(count));
            }
            pacer.start_at(spec.stream.start.as_nanos());
        }
        let rise = match sender.lead.whole_ns() {
            0 => None,
            _ => Some(build_ramp_frames(spec, sender.lead, &build)?),
        };
        if spec.flows < share.workers
            && spec.stream.tag == TagKind::Wirebench
            && spec.replay.is_none()
        {
            return Err(CompileError::Flows {
                stream: name(),
                flows: spec.flows,
                workers: share.workers,
            });
        }
        Ok(Self {
            source,
            pacer,
            rise,
            allowance_ns: sender.catch_up_ns.saturating_add(burst_ns),
            patient: sender.duration_ns.is_none(),
            bursts,
            flows: spec.flows,
            first_flow: spec.first_flow,
            stopped: false,
            held: false,
            submitted_frames: 0,
            submitted_octets: 0,
            refused_frames: 0,
            withdrawn_frames: 0,
            returned_octets: 0,
            returned: HashMap::new(),
        })
    }

    pub(crate) fn pacer_mut(&mut self) -> Option<&mut Pacer> {
        self.pacer.as_mut()
    }

    /// The stream as tables, for a port that sends autonomously. Returns the reason if there are none.
    pub(crate) fn program(&self) -> Result<StreamProgram, &'static str> {
        match (&self.source, &self.pacer) {
            (FrameSource::Recorded(_), _) => Err("a replay has no fields to change"),
            (FrameSource::Built { .. }, Some(pacer)) if pacer.to_pace(0).is_none() => {
                Err("the stream has no even departure schedule")
            }
            (
                FrameSource::Built {
                    frames,
                    cursor,
                    first_flow,
                    ..
                },
                pacer,
            ) => frames.program(cursor, *first_flow, pacer.is_some()),
        }
    }

    /// The frames of its ramp as tables.
    pub(crate) fn ramp_table(&self) -> Option<Result<StreamProgram, &'static str>> {
        let rise = self.rise.as_ref()?;
        let table = rise.frames.program(&rise.cursor, RAMP_FLOW, true);
        Some(table.map(|mut table| {
            table.walk.one_flow = true;
            table
        }))
    }

    /// The ramp from now on, and its number of frames due by `until_ns`, an offset as in [`Ramp::even_pace`].
    pub(crate) fn ramp_pace(
        &mut self,
        start_ns: u64,
        elapsed_ns: u64,
        until_ns: u64,
    ) -> Option<(Pace, u64)> {
        let ramp = &mut self.rise.as_mut()?.ramp;
        ramp.skip_before(elapsed_ns.saturating_sub(self.allowance_ns));
        ramp.even_pace(start_ns, until_ns)
    }

    /// Advances by ramp frames that a port sent.
    pub(crate) fn pass_ramp(&mut self, frames: u64) {
        if let Some(rise) = &mut self.rise {
            rise.ramp.advance_by(frames);
        }
    }

    /// This worker's frames per second at the end of the ramp.
    pub(crate) fn ramp_pps(&self) -> f64 {
        self.rise
            .as_ref()
            .map_or(0.0, |rise| rise.ramp.full_rate_pps())
    }

    /// Due times from now on, for a schedule that began at `start_ns`; `None` at full speed.
    pub(crate) fn due_pace(&self, start_ns: u64) -> Option<Pace> {
        self.pacer.as_ref()?.to_pace(start_ns)
    }

    /// Number of planned frames that are neither sent nor given up.
    pub(crate) fn frames_left(&self) -> u64 {
        match &self.pacer {
            _ if self.is_done() => 0,
            Some(pacer) => pacer.event_limit() - pacer.events_passed(),
            None => u64::MAX,
        }
    }

    /// Lateness allowance, ns.
    pub(crate) fn allowance_ns(&self) -> u64 {
        self.allowance_ns
    }

    /// Number of waiting frames due by then; 0 without a rate.
    pub(crate) fn waiting_frames(&self, elapsed_ns: u64) -> u64 {
        self.pacer
            .as_ref()
            .map_or(0, |p| p.events_waiting(elapsed_ns))
    }

    /// Number of this worker's frames due within this time.
    pub(crate) fn frames_within(&self, ns: u64) -> u64 {
        self.pacer.as_ref().map_or(0, |pacer| pacer.ours_before(ns))
    }

    /// Updates the results from the counters of a port that sends autonomously. Returns the frames sent since the last
    /// call.
    pub(crate) fn note_offload(&mut self, counters: &SendCounters) -> u64 {
        let sent = counters.submitted_frames - self.submitted_frames;
        self.submitted_frames = counters.submitted_frames;
        self.submitted_octets = counters.submitted_octets;
        self.refused_frames = counters.refused_frames;
        self.returned_octets = counters.refused_octets;
        if let Some(pacer) = &mut self.pacer {
            pacer.advance_by(sent);
        }
        sent
    }

    /// Final state of such a port: its position in the flows, and the refused frames of each.
    pub(crate) fn end_offload(&mut self, (flow, round): (u32, u64), refused: &[u64]) {
        let FrameSource::Built { cursor, tag, .. } = &mut self.source else {
            return;
        };
        cursor.resume_at(flow, round);
        self.returned.clear();
        for (flow, frames) in (0..).zip(refused).filter(|(_, frames)| **frames > 0) {
            // Without a tag there is only one flow.
            let flow = if *tag == TagKind::None { 0 } else { flow };
            *self.returned.entry(flow).or_default() += frames;
        }
    }

    pub(crate) fn is_paced(&self) -> bool {
        self.pacer.is_some()
    }

    /// Returns true if nothing more will become due.
    pub(crate) fn is_done(&self) -> bool {
        match &self.pacer {
            Some(pacer) => pacer.is_done(),
            None => self.stopped,
        }
    }

    /// Due time of the next frame; `u64::MAX` if there is none, 0 at full speed.
    #[inline]
    pub(crate) fn next_due(&self) -> u64 {
        match &self.pacer {
            Some(pacer) => pacer.next_due(),
            None if self.stopped || self.held => u64::MAX,
            None => 0,
        }
    }

    /// Number of waiting frames that form a backlog; the frames of a burst do not.
    pub(crate) fn backlog_frames(&self, elapsed_ns: u64) -> u64 {
        match &self.pacer {
            Some(pacer) if !self.bursts && !pacer.is_done() => pacer.events_waiting(elapsed_ns),
            _ => 0,
        }
    }

    /// Returns true if frames sent late count as catch-up.
    pub(crate) fn counts_as_catch_up(&self) -> bool {
        self.pacer.is_some() && !self.bursts
    }

    /// Handles a stall of `away_ns` that ends now. Returns the number of frames that fell due meanwhile and will leave
    /// late, and the number given up. `since_end_ns`: time since the end of the duration, if it is over.
    #[cold]
    pub(crate) fn was_away(
        &mut self,
        elapsed_ns: u64,
        away_ns: u64,
        since_end_ns: Option<u64>,
    ) -> (u64, u64) {
        let Some(pacer) = self.pacer.as_ref().filter(|pacer| !pacer.is_done()) else {
            return (0, 0);
        };
        let before = match elapsed_ns.checked_sub(away_ns) {
            Some(since_ns) => pacer.events_waiting(since_ns),
            None => 0,
        };
        let due = pacer.events_waiting(elapsed_ns) - before;
        let skipped = pacer.events_skipped();
        self.give_up(elapsed_ns);
        if let Some(since_end_ns) = since_end_ns {
            self.handle_end(since_end_ns);
        }
        if self.is_done() {
            return (0, due);
        }
        let missed = (self.skipped_frames() - skipped).min(due);
        // Postponed frames are due later.
        let waiting = self.waiting_frames(elapsed_ns);
        ((due - missed).min(waiting), missed)
    }

    /// Gives up frames older than the allowance, or postpones the rest if the stream ends by a count.
    #[inline]
    pub(crate) fn give_up(&mut self, elapsed_ns: u64) {
        let oldest = elapsed_ns.saturating_sub(self.allowance_ns);
        if let Some(pacer) = &mut self.pacer
            && pacer.next_due() < oldest
        {
            match self.patient {
                true => pacer.put_off(oldest),
                false => pacer.skip_before(oldest, elapsed_ns),
            }
        }
    }

    /// Handles the time after the duration, which ended `since_end_ns` ago: a backlog is sent for a while, unless
    /// frames were given up before.
    pub(crate) fn handle_end(&mut self, since_end_ns: u64) {
        self.stopped = true;
        if let Some(pacer) = &mut self.pacer
            && (pacer.events_skipped() > 0 || since_end_ns > self.allowance_ns || pacer.is_held())
        {
            pacer.stop();
        }
    }

    /// Changes the pace from `at_ns` on. A stream at full speed only pauses, continues and ends, at once.
    pub(crate) fn follow(&mut self, at_ns: u64, pace: StreamPace) {
        match &mut self.pacer {
            Some(pacer) => pacer.follow(at_ns, pace),
            None => {
                self.held = pace == StreamPace::Off;
                self.stopped |= pace == StreamPace::End;
            }
        }
    }

    /// Ends as if no more had been planned.
    pub(crate) fn truncate(&mut self) {
        self.stopped = true;
        if let Some(pacer) = &mut self.pacer {
            pacer.truncate();
        }
    }

    /// Fills slots with frames due by `until_ns`; at full speed, all slots.
    pub(crate) fn fill_batch<T: TxQueue, C: Clock>(
        &mut self,
        batch: &mut SlotBatch<'_, T, C>,
        until_ns: u64,
    ) {
        let before = batch.filled;
        let until_ns = until_ns.min(u64::MAX - 1);
        let pacer = &mut self.pacer;
        let next = || match pacer {
            None => true,
            Some(pacer) => {
                // If nothing is left, the due time is after all others.
                let due = pacer.next_due() <= until_ns;
                if due {
                    pacer.advance();
                }
                due
            }
        };
        let octets = match &mut self.source {
            FrameSource::Recorded(replay) => batch.fill_slots(next, |slot, _| replay.write(slot)),
            FrameSource::Built {
                frames,
                cursor,
                tag: TagKind::Pktgen,
                ..
            } => batch.fill_slots(next, |slot, time_ns| {
                // Flows do not matter here: one sequence, from 1, distributed over the workers.
                let sequence = cursor.pktgen_sequence();
                let size = frames.write(
                    slot,
                    cursor,
                    TagContents {
                        flow: 0,
                        sequence,
                        time_ns,
                    },
                );
                cursor.advance();
                size
            }),
            FrameSource::Built {
                frames,
                cursor,
                first_flow,
                ..
            } => batch.fill_slots(next, |slot, time_ns| {
                let (flow, sequence) = (*first_flow + cursor.flow(), cursor.sequence());
                let size = frames.write(
                    slot,
                    cursor,
                    TagContents {
                        flow,
                        sequence,
                        time_ns,
                    },
                );
                cursor.advance();
                size
            }),
        };
        self.submitted_frames += (batch.filled - before) as u64;
        self.submitted_octets += octets;
    }

    /// Due time of the next ramp frame, from the ramp's start.
    pub(crate) fn ramp_due(&self) -> u64 {
        self.rise
            .as_ref()
            .map_or(u64::MAX, |rise| rise.ramp.next_due())
    }

    /// Fills slots with due frames of the ramp.
    pub(crate) fn fill_ramp<T: TxQueue, C: Clock>(
        &mut self,
        batch: &mut SlotBatch<'_, T, C>,
        elapsed_ns: u64,
    ) {
        let Some(RampFrames {
            ramp,
            frames,
            cursor,
            sequence,
        }) = &mut self.rise
        else {
            return;
        };
        ramp.skip_before(elapsed_ns.saturating_sub(self.allowance_ns));
        let next = || {
            let due = ramp.next_due() <= elapsed_ns;
            if due {
                ramp.advance();
            }
            due
        };
        batch.fill_slots(next, |slot, time_ns| {
            let stamp = TagContents {
                flow: RAMP_FLOW,
                sequence: *sequence,
                time_ns,
            };
            *sequence = sequence.wrapping_add(1);
            let size = frames.write(slot, cursor, stamp);
            cursor.advance();
            size
        });
    }

    /// Claims a returned frame for this stream, if its tag shows that it belongs here.
    pub(crate) fn frame_owner(&self, frame: &[u8]) -> Option<FrameOwner> {
        if let Some(rise) = &self.rise
            && rise.frames.flow_of(frame) == Some(RAMP_FLOW)
        {
            return Some(FrameOwner::Ramp);
        }
        match &self.source {
            FrameSource::Built {
                frames,
                tag: TagKind::Wirebench,
                first_flow,
                ..
            } => {
                let flow = frames.flow_of(frame)?.checked_sub(*first_flow)?;
                (flow < self.flows).then_some(FrameOwner::Flow(flow))
            }
            FrameSource::Built {
                frames,
                tag: TagKind::Pktgen,
                ..
            } => frames.has_pktgen_tag(frame).then_some(FrameOwner::Flow(0)),
            _ => None,
        }
    }

    /// Returns true if a frame without a tag may belong to this stream.
    pub(crate) fn may_own(&self, frame: &[u8]) -> bool {
        match &self.source {
            FrameSource::Built {
                frames,
                tag: TagKind::None,
                ..
            } => frames.has_len(frame.len()),
            FrameSource::Recorded(replay) => {
                replay.recording.frames.iter().any(|f| f.bytes == frame)
            }
            FrameSource::Built { .. } => false,
        }
    }

    /// Records that a frame of this stream was not sent.
    pub(crate) fn record_returned(&mut self, flow: u32, len: usize, how: ReturnReason) {
        match how {
            ReturnReason::Refused => self.refused_frames += 1,
            ReturnReason::Withdrawn => self.withdrawn_frames += 1,
        }
        self.returned_octets += len as u64 + 4;
        *self.returned.entry(flow).or_default() += 1;
    }

    /// Frames submitted and not returned: offered, once none is in flight.
    pub(crate) fn offered_frames(&self) -> u64 {
        self.submitted_frames - self.refused_frames - self.withdrawn_frames
    }

    pub(crate) fn offered_octets(&self) -> u64 {
        self.submitted_octets - self.returned_octets
    }

    pub(crate) fn refused_frames(&self) -> u64 {
        self.refused_frames
    }

    pub(crate) fn skipped_frames(&self) -> u64 {
        self.pacer.as_ref().map_or(0, Pacer::events_skipped)
    }

    /// Final results. `by_count`: the stream ended after the planned number of frames.
    pub(crate) fn outcome(&self, by_count: bool) -> StreamOutcome {
        let intended = match &self.pacer {
            Some(pacer) if pacer.event_limit() == u64::MAX => Some(pacer.events_passed()),
            Some(pacer) => Some(pacer.event_limit()),
            None => by_count.then_some(self.submitted_frames),
        };
        let mut flow_frames = match &self.source {
            FrameSource::Built {
                cursor,
                tag: TagKind::Wirebench,
                ..
            } => cursor.frames_per_flow(),
            _ => {
                let mut flows = vec![0; self.flows as usize];
                flows
                    .iter_mut()
                    .take(1)
                    .for_each(|frames| *frames = self.submitted_frames);
                flows
            }
        };
        for (flow, frames) in &self.returned {
            if let Some(offered) = flow_frames.get_mut(*flow as usize) {
                *offered -= frames;
            }
        }
        StreamOutcome {
            intended_frames: intended,
            offered_frames: self.offered_frames(),
            offered_octets: self.offered_octets(),
            refused_frames: self.refused_frames,
            withdrawn_frames: self.withdrawn_frames,
            first_flow: self.first_flow,
            flow_frames,
        }
    }
}

/// `None` at full speed.
fn stream_schedule(spec: &StreamSpec) -> Result<Option<Schedule>, CompileError> {
    let stream = || spec.name.clone();
    if let (Some(size), Some(gap)) = (spec.stream.burst, spec.stream.gap) {
        let gap_ns = gap.as_nanos();
        if size == 0 || gap_ns == 0 {
            return Err(CompileError::Burst { stream: stream() });
        }
        let rate = match spec.stream.rate {
            Rate::Pps(rate) => Some(rate),
            _ => None,
        };
        return Ok(Some(Schedule::Bursts {
            size: size.into(),
            gap_ns,
            rate,
        }));
    }
    if let (Some(recording), Some(speed)) = (&spec.replay, spec.stream.speed) {
        return Ok(Some(recorded_schedule(recording, speed)));
    }
    let Some(pps) = spec.pps else { return Ok(None) };
    let overhead = match spec.stream.rate {
        Rate::L1(_) | Rate::Percent(_) => Some(u64::from(WIRE_OVERHEAD)),
        Rate::L2(_) => Some(0),
        Rate::Max | Rate::Pps(_) => None,
    };
    if let (Some(recording), Some(overhead)) = (&spec.replay, overhead)
        && let Some(schedule) = by_length(recording, pps.as_f64(), overhead)
    {
        return Ok(Some(schedule));
    }
    let schedule = Schedule::even(pps);
    schedule.map(Some).ok_or_else(|| CompileError::Rate {
        stream: stream(),
        rate: pps.to_string(),
    })
}

/// Shortest period of a schedule in whole nanoseconds, so that rounding it changes the rate by less than a millionth.
const SHORTEST_PERIOD_NS: f64 = 1e6;

/// Schedule in which each frame takes time according to its length, at `pps` frames per second on average. `overhead`:
/// octets on the wire in addition to each frame. `None` if all frames have one length.
fn by_length(recording: &Recording, pps: f64, overhead: u64) -> Option<Schedule> {
    let length = |frame: &RecordedFrame| frame.bytes.len() as u64 + 4 + overhead;
    let frames = &recording.frames;
    if frames
        .windows(2)
        .all(|two| length(&two[0]) == length(&two[1]))
    {
        return None;
    }
    let pass_ns = frames.len() as f64 * 1e9 / pps;
    let passes = (SHORTEST_PERIOD_NS / pass_ns).ceil().max(1.0);
    let per_octet_ns = pass_ns / frames.iter().map(length).sum::<u64>() as f64;
    let all = (0..passes as u64).flat_map(|_| frames);
    let offsets = all.scan(0, |before, frame| {
        let due_ns = *before as f64 * per_octet_ns;
        *before += length(frame);
        Some(due_ns as u64)
    });
    Some(Schedule::Recorded {
        offsets: offsets.collect(),
        period_ns: (pass_ns * passes).round() as u64,
    })
}

/// Recorded times at a speed. The mean gap of the recording separates two passes; a recording without duration repeats
/// every second.
fn recorded_schedule(recording: &Recording, speed: f64) -> Schedule {
    let scaled = |ns: u64| (ns as f64 / speed) as u64;
    let mut offsets: Vec<u64> = recording
        .frames
        .iter()
        .map(|f| scaled(f.offset_ns))
        .collect();
    // Capture files are not always in order; a schedule must be.
    offsets.sort_unstable();
    let last = offsets.last().copied().unwrap_or(0);
    let gap = match offsets.len() as u64 {
        0 | 1 => scaled(1_000_000_000),
        _ if last == 0 => scaled(1_000_000_000),
        frames => last / (frames - 1),
    };
    Schedule::Recorded {
        offsets: offsets.into(),
        period_ns: last.saturating_add(gap.max(1)),
    }
}

fn build_source(spec: &StreamSpec, build: &BuildContext) -> Result<FrameSource, CompileError> {
    let cursor = cursor_of(spec, build.share);
    Ok(FrameSource::Built {
        frames: Box::new(StreamFrames::new(spec, &cursor, build)?),
        cursor,
        tag: spec.stream.tag,
        first_flow: spec.first_flow,
    })
}

fn build_replay(
    spec: &StreamSpec,
    recording: &Arc<Recording>,
    build: &BuildContext,
) -> Result<Replay, CompileError> {
    let len = recording.frames.len();
    if len == 0 {
        return Err(CompileError::EmptyRecording {
            stream: spec.name.clone(),
        });
    }
    let longest = recording
        .frames
        .iter()
        .map(|f| f.bytes.len())
        .max()
        .unwrap_or(0);
    if longest > build.capacity {
        let (size, most) = (longest + 4, build.capacity + 4);
        return Err(CompileError::TooLong {
            stream: spec.name.clone(),
            size,
            most,
        });
    }
    Ok(Replay {
        recording: Arc::clone(recording),
        mark: build.mark,
        at: build.share.worker as usize % len,
        advance: build.share.workers as usize % len,
    })
}

fn build_ramp_frames(
    spec: &StreamSpec,
    lead: RampUp,
    build: &BuildContext,
) -> Result<RampFrames, CompileError> {
    let error = |cause| CompileError::Ramp {
        stream: spec.name.clone(),
        cause,
    };
    if spec.replay.is_some() {
        return Err(error(
            "frames of a replay have no tag that identifies ramp-up frames",
        ));
    }
    let pps = match (spec.stream.burst, spec.stream.gap) {
        (Some(size), Some(gap)) => f64::from(size) * 1e9 / gap.as_nanos() as f64,
        _ => spec
            .pps
            .ok_or_else(|| error("it needs a rate other than max"))?
            .as_f64(),
    };
    // Identified by our tag, also in streams that have another tag or none.
    let tagged = spec.stream.tag == TagKind::Wirebench;
    let mark = if tagged {
        build.mark
    } else {
        build.mark.next()
    };
    let build = BuildContext {
        tag: TagKind::Wirebench,
        mark,
        ..*build
    };
    let cursor = cursor_of(spec, build.share);
    let frames = StreamFrames::new(spec, &cursor, &build).map_err(|e| match e {
        CompileError::TooShort { .. } => {
            error("its frames are too short for the tag that identifies ramp-up frames")
        }
        other => other,
    })?;
    Ok(RampFrames {
        ramp: Ramp::new(pps, lead, build.share.worker, build.share.workers),
        frames: Box::new(frames),
        cursor,
        sequence: 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recording(lengths: &[usize]) -> Recording {
        let frame = |len: &usize| RecordedFrame {
            offset_ns: 0,
            bytes: vec![0; *len],
        };
        Recording {
            frames: lengths.iter().map(frame).collect(),
        }
    }

    #[test]
    fn each_frame_of_a_replay_has_the_time_that_its_own_length_takes() {
        // 64, 564 and 1064 octets with FCS, plus 20 each: 80, 580 and 1080 of 1740.
        let recording = recording(&[56, 556, 1056]);
        let pps = 3.0 / 1740e-6;
        let Some(Schedule::Recorded { offsets, period_ns }) = by_length(&recording, pps, 20) else {
            panic!("its frames differ")
        };
        assert_eq!(
            (&offsets[..], period_ns),
            (&[0, 80_000, 660_000][..], 1_740_000)
        );
        // A short pass is repeated, so that a period of whole nanoseconds has the rate.
        let Some(Schedule::Recorded { offsets, period_ns }) = by_length(&recording, 7e6, 0) else {
            panic!("its frames differ")
        };
        let rate = offsets.len() as f64 * 1e9 / period_ns as f64;
        assert!((rate / 7e6 - 1.0).abs() < 1e-6, "{rate}");
        assert!(offsets.is_sorted() && offsets.len().is_multiple_of(3));
    }

    #[test]
    fn frames_of_one_length_are_sent_evenly() {
        assert!(by_length(&recording(&[60, 60, 60]), 1000.0, 20).is_none());
    }
}
