//! Sends streams: due frames in batches, and accounts for the frames that really left.

use std::sync::atomic::{AtomicU64, Ordering};

pub(crate) mod offload;

pub use offload::{OffloadTables, OffloadedSender};

use wb_measure::Histogram;
use wb_model::lateness::{LATE_NS, Lateness, Turns, USUAL_NS};
use wb_port::{PortError, TxCounters, TxQueue};

use crate::control::StreamOrder;
use crate::frames::MOST_FRAMES;
use crate::pacer::share_out;
use crate::stream_sender::{DepartureIntervals, FrameOwner, ReturnReason, SlotBatch, StreamSender};
use crate::{Clock, CompileError, SenderSpec};

/// Minimum time for frames in flight after the last submission.
const FLIGHT_NS: u64 = 20_000_000;

/// Result of a turn of the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SenderStep {
    /// Monotonic time at its beginning.
    pub now_ns: u64,
    /// Frames handed to the port.
    pub sent: usize,
    /// Monotonic time of the next useful turn; `now_ns` or earlier means at once.
    pub next_due_ns: Option<u64>,
    /// The sender has finished: nothing more becomes due and no frame in flight can still leave.
    pub done: bool,
}

/// Results of one stream on one worker.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamOutcome {
    /// Intended frames of this worker. `None` at full speed without a count: then the offered frames were intended. A
    /// run that was cut short intended only what was due by then.
    pub intended_frames: Option<u64>,
    /// Frames accepted by the device.
    pub offered_frames: u64,
    /// Octets of these frames, with FCS.
    pub offered_octets: u64,
    /// Frames dropped by the device before the wire.
    pub refused_frames: u64,
    /// Frames taken back because the device did not accept them before the end.
    pub withdrawn_frames: u64,
    /// First flow of the stream in tags.
    pub first_flow: u32,
    /// Frames of each flow accepted by the device, from `first_flow` on; 0 for flows of other workers.
    pub flow_frames: Vec<u64>,
}

/// Final results of a sender.
#[derive(Clone, Debug)]
pub struct SenderOutcome {
    /// Streams, in the order of the spec.
    pub streams: Vec<StreamOutcome>,
    /// Frames sent during the ramp-up.
    pub ramp_frames: u64,
    /// Maximum number of frames of even schedules due at once.
    pub largest_catch_up_frames: u64,
    /// Start of the counted schedule, monotonic.
    pub start_ns: u64,
    /// Last departure, monotonic; the start if no frame left.
    pub last_departure_ns: u64,
    /// Last departure on the wall clock; 0 if no frame left.
    pub last_departure_wall_ns: u64,
    /// Times between departures, if requested.
    pub departures: Option<Histogram>,
    /// Turns taken.
    pub turns: u64,
    /// Turns in which frames were handed to the port.
    pub busy_turns: u64,
    /// Counters of the port since it was opened.
    pub tx: TxCounters,
    /// Lateness of the sender.
    pub lateness: Lateness,
}

/// Progress of a running sender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    pub(crate) offered_frames: u64,
    pub(crate) offered_octets: u64,
    pub(crate) refused_frames: u64,
    pub(crate) unsent_frames: u64,
    pub(crate) ramp_frames: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SenderPhase {
    Ramp,
    Run,
    /// Waits for frames in flight until then; no more frames are due.
    Flight {
        until_ns: u64,
    },
    Done,
}

/// Sends the streams of one worker.
///
/// Call [`start`](Sender::start) once, then [`step`](Sender::step) until it returns `done`, then
/// [`finish`](Sender::finish). [`abort`](Sender::abort) ends it early.
pub struct Sender {
    streams: Vec<StreamSender>,
    phase: SenderPhase,
    /// Start of the ramp, or of the counted schedule without one.
    begin_ns: u64,
    /// Start of the counted schedule.
    run_ns: u64,
    /// End of the duration.
    end_ns: u64,
    /// Time of the next possible event.
    wake_ns: u64,
    start_offset_ns: u64,
    ramp_ns: u64,
    duration_ns: Option<u64>,
    catch_up_ns: u64,
    /// Frames that may still be sent by streams without a schedule.
    budget: u64,
    by_count: bool,
    /// Index of the next full-speed stream.
    turn: usize,
    link_down: bool,
    departures: Option<DepartureIntervals>,
    wall_minus_mono: u64,
    last_departure_ns: Option<u64>,
    ramp_submitted: u64,
    ramp_returned: u64,
    largest_catch_up: u64,
    turns: u64,
    busy_turns: u64,
    expected: Turns,
    lateness: Lateness,
}

impl SenderOutcome {
    /// Offered frames and octets of each stream.
    pub(crate) fn stream_counts(&self) -> impl Iterator<Item = (u64, u64)> {
        let streams = self.streams.iter();
        streams.map(|stream| (stream.offered_frames, stream.offered_octets))
    }
}

impl Sender {
    /// Compiles the streams for a port with frames of up to `frame_capacity` bytes, without FCS.
    ///
    /// # Errors
    /// Fails for a stream that cannot be sent.
    pub fn new(spec: &SenderSpec, frame_capacity: usize) -> Result<Self, CompileError> {
        // Slots outlive senders, so a mark must never be reused by another sender.
        static SENDERS: AtomicU64 = AtomicU64::new(0);
        if spec.worker >= spec.workers {
            return Err(CompileError::Worker {
                worker: spec.worker,
                workers: spec.workers,
            });
        }
        let most = MOST_FRAMES / 2;
        if spec.streams.len() > most {
            return Err(CompileError::Streams {
                streams: spec.streams.len(),
                most,
            });
        }
        let marks = 1 + SENDERS.fetch_add(1, Ordering::Relaxed) % ((1 << 20) - 1);
        let mut streams = Vec::with_capacity(spec.streams.len());
        for (number, stream) in spec.streams.iter().enumerate() {
            streams.push(StreamSender::new(
                stream,
                spec,
                number,
                marks,
                frame_capacity,
            )?);
        }
        let budget = share_count(&mut streams, spec);
        Ok(Self {
            streams,
            phase: SenderPhase::Ramp,
            begin_ns: u64::MAX,
            run_ns: u64::MAX,
            end_ns: u64::MAX,
            wake_ns: u64::MAX,
            start_offset_ns: spec.start_offset_ns,
            ramp_ns: spec.lead.whole_ns(),
            duration_ns: spec.duration_ns,
            catch_up_ns: spec.catch_up_ns,
            budget,
            by_count: false,
            turn: 0,
            link_down: false,
            departures: spec.departures.then(DepartureIntervals::default),
            wall_minus_mono: 0,
            last_departure_ns: None,
            ramp_submitted: 0,
            ramp_returned: 0,
            largest_catch_up: 0,
            turns: 0,
            busy_turns: 0,
            expected: Turns::default(),
            lateness: Lateness::default(),
        })
    }

    /// Sets the start: the first frame is due (or the ramp begins) at this monotonic time plus the offset of the spec.
    pub fn start(&mut self, mono_ns: u64) {
        self.begin_ns = mono_ns.saturating_add(self.start_offset_ns);
        self.run_ns = self.begin_ns.saturating_add(self.ramp_ns);
        self.end_ns = self
            .duration_ns
            .map_or(u64::MAX, |d| self.run_ns.saturating_add(d));
        self.wake_ns = self.begin_ns;
        self.expected.first_due(self.begin_ns);
    }

    /// Takes a turn: fills a batch with due frames and submits it.
    ///
    /// # Errors
    /// Returns the error of the port. After [`PortError::LinkDown`] continue to take turns; frames that fall due
    /// meanwhile are sent later, within the catch-up time.
    #[inline]
    pub fn step<T: TxQueue, C: Clock>(
        &mut self,
        tx: &mut T,
        clock: &C,
    ) -> Result<SenderStep, PortError> {
        let now_ns = clock.monotonic_ns();
        self.turns += 1;
        let away_ns = self.expected.begin(now_ns);
        if away_ns > LATE_NS {
            self.was_away(now_ns, away_ns);
        } else {
            self.lateness.away(now_ns, away_ns);
        }
        if now_ns < self.wake_ns {
            if tx.in_flight() > 0 {
                self.flush(tx, clock)?;
            }
            return Ok(self.step_result(tx, now_ns, 0));
        }
        match self.phase {
            SenderPhase::Ramp if now_ns < self.run_ns => self.send_ramp(tx, clock, now_ns),
            SenderPhase::Ramp | SenderPhase::Run => self.run(tx, clock, now_ns),
            SenderPhase::Flight { until_ns } => self.wait_in_flight(tx, clock, now_ns, until_ns),
            SenderPhase::Done => Ok(self.step_result(tx, now_ns, 0)),
        }
    }

    /// Announces a sleep of the worker: no turn is expected before this time.
    #[inline]
    pub(crate) fn sleep_until(&mut self, mono_ns: u64) {
        self.expected.sleep_until(mono_ns);
    }

    /// Handles a gap between turns. Frames that fell due meanwhile leave at once or are given up.
    #[cold]
    fn was_away(&mut self, now_ns: u64, away_ns: u64) {
        self.lateness.away(now_ns, away_ns);
        let over = matches!(self.phase, SenderPhase::Flight { .. } | SenderPhase::Done);
        if over || now_ns < self.run_ns {
            return;
        }
        let since_end_ns = now_ns.checked_sub(self.end_ns);
        let mut burst = 0;
        for stream in &mut self.streams {
            let (late, missed) = stream.was_away(now_ns - self.run_ns, away_ns, since_end_ns);
            burst += late;
            self.lateness.missed_departures += missed;
        }
        self.lateness.made_up(burst, self.usual_burst());
    }

    /// Frames of schedules that fall due within a moment anyway.
    fn usual_burst(&self) -> u64 {
        let streams = self.streams.iter();
        streams.map(|stream| stream.frames_within(USUAL_NS)).sum()
    }

    fn step_result<T: TxQueue>(&self, tx: &T, now_ns: u64, sent: usize) -> SenderStep {
        let done = self.phase == SenderPhase::Done;
        let next = if tx.in_flight() > 0 {
            now_ns
        } else {
            self.wake_ns
        };
        SenderStep {
            now_ns,
            sent,
            next_due_ns: (!done && next != u64::MAX).then_some(next),
            done,
        }
    }

    /// Sends the ramp.
    fn send_ramp<T: TxQueue, C: Clock>(
        &mut self,
        tx: &mut T,
        clock: &C,
        now_ns: u64,
    ) -> Result<SenderStep, PortError> {
        if self.link_down {
            self.flush(tx, clock)?;
        }
        let room = tx.lend(tx.batch_hint());
        let mut batch = SlotBatch {
            tx: &mut *tx,
            clock,
            filled: 0,
            room,
            stamp_ns: 0,
            departures: None,
        };
        for stream in &mut self.streams {
            stream.fill_ramp(&mut batch, now_ns - self.begin_ns);
        }
        let (filled, stamp_ns) = (batch.filled, batch.stamp_ns);
        self.ramp_submitted += filled as u64;
        let next = self
            .streams
            .iter()
            .map(StreamSender::ramp_due)
            .min()
            .unwrap_or(u64::MAX);
        self.wake_ns = self.begin_ns.saturating_add(next).min(self.run_ns);
        self.hand_over(tx, clock, now_ns, filled, stamp_ns)
    }

    /// Sends the counted schedule.
    fn run<T: TxQueue, C: Clock>(
        &mut self,
        tx: &mut T,
        clock: &C,
        now_ns: u64,
    ) -> Result<SenderStep, PortError> {
        self.phase = SenderPhase::Run;
        if now_ns >= self.end_ns {
            // In this order: a sender that gives up frames now must not catch up after the end.
            for stream in &mut self.streams {
                stream.give_up(now_ns - self.run_ns);
                stream.handle_end(now_ns - self.end_ns);
            }
        }
        if self.streams.iter().all(StreamSender::is_done) {
            return self.wait_in_flight(tx, clock, now_ns, u64::MAX);
        }
        if self.link_down {
            self.flush(tx, clock)?;
        }
        let elapsed_ns = now_ns - self.run_ns;
        let room = tx
            .lend(tx.batch_hint())
            .min(usize::try_from(self.budget).unwrap_or(usize::MAX));
        let mut batch = SlotBatch {
            tx: &mut *tx,
            clock,
            filled: 0,
            room,
            stamp_ns: 0,
            departures: self.departures.as_mut(),
        };
        let late = fill_due(&mut self.streams, &mut batch, elapsed_ns);
        if batch.filled < room {
            self.turn = fill_free(&mut self.streams, &mut batch, self.turn);
        }
        let (filled, stamp_ns) = (batch.filled, batch.stamp_ns);
        self.note_backlog(late, filled == room, elapsed_ns);
        self.budget -= if self.budget == u64::MAX {
            0
        } else {
            filled as u64
        };
        if self.budget == 0 {
            self.by_count = true;
            self.streams.iter_mut().for_each(StreamSender::truncate);
        }
        self.wake_ns = self.next_wake(now_ns);
        self.hand_over(tx, clock, now_ns, filled, stamp_ns)
    }

    fn next_wake(&self, now_ns: u64) -> u64 {
        match self.streams.iter().map(StreamSender::next_due).min() {
            // All are done: next, wait for frames in flight.
            None | Some(u64::MAX) if self.streams.iter().all(StreamSender::is_done) => now_ns,
            None => now_ns,
            Some(due) => self.run_ns.saturating_add(due).min(self.end_ns),
        }
    }

    fn note_backlog(&mut self, sent: u64, full: bool, elapsed_ns: u64) {
        let left = if full {
            self.streams
                .iter()
                .map(|stream| stream.backlog_frames(elapsed_ns))
                .sum()
        } else {
            0
        };
        self.largest_catch_up = self.largest_catch_up.max(sent + left);
    }

    fn hand_over<T: TxQueue, C: Clock>(
        &mut self,
        tx: &mut T,
        clock: &C,
        now_ns: u64,
        filled: usize,
        stamp_ns: u64,
    ) -> Result<SenderStep, PortError> {
        if filled > 0 {
            self.busy_turns += 1;
            self.wall_minus_mono = stamp_ns.wrapping_sub(now_ns);
        }
        tx.submit(filled);
        self.flush(tx, clock)?;
        Ok(self.step_result(tx, now_ns, filled))
    }

    /// Waits for frames in flight for a limited time.
    #[cold]
    fn wait_in_flight<T: TxQueue, C: Clock>(
        &mut self,
        tx: &mut T,
        clock: &C,
        now_ns: u64,
        until_ns: u64,
    ) -> Result<SenderStep, PortError> {
        let until_ns = match until_ns {
            u64::MAX => now_ns.saturating_add(self.catch_up_ns.max(FLIGHT_NS)),
            set => set,
        };
        self.phase = SenderPhase::Flight { until_ns };
        if tx.in_flight() > 0 && now_ns < until_ns {
            self.flush(tx, clock)?;
        }
        if tx.in_flight() == 0 || now_ns >= until_ns {
            self.phase = SenderPhase::Done;
            let mono_ns = clock.monotonic_ns();
            self.wall_minus_mono = clock.wall_ns().wrapping_sub(mono_ns);
        }
        Ok(self.step_result(tx, now_ns, 0))
    }

    #[inline]
    fn flush<T: TxQueue, C: Clock>(&mut self, tx: &mut T, clock: &C) -> Result<(), PortError> {
        let before = tx.in_flight();
        let result = tx.flush();
        if tx.in_flight() < before {
            self.last_departure_ns = Some(clock.monotonic_ns());
        }
        self.link_down = matches!(result, Err(PortError::LinkDown { .. }));
        let (streams, ramp) = (&mut self.streams, &mut self.ramp_returned);
        tx.take_refused(|frame| attribute_returned(streams, ramp, frame, ReturnReason::Refused));
        result
    }

    /// Changes the pace of streams. A change that should have begun earlier begins now.
    #[cold]
    pub(crate) fn follow(&mut self, now_ns: u64, orders: &[StreamOrder]) {
        if matches!(self.phase, SenderPhase::Flight { .. } | SenderPhase::Done) {
            return;
        }
        for order in orders {
            let at_ns = order.at_mono_ns.max(now_ns).saturating_sub(self.run_ns);
            if let Some(stream) = self.streams.get_mut(order.stream) {
                stream.follow(at_ns, order.pace);
            }
        }
        self.wake_ns = self.wake_ns.min(self.next_wake(now_ns));
    }

    /// Schedules no further frames. Frames in flight are still flushed, so continue to take turns.
    pub fn abort(&mut self) {
        self.streams.iter_mut().for_each(StreamSender::truncate);
        if !matches!(self.phase, SenderPhase::Flight { .. } | SenderPhase::Done) {
            self.phase = SenderPhase::Flight { until_ns: u64::MAX };
            self.wake_ns = 0;
        }
    }

    /// Takes back all frames in flight and returns the final results.
    pub fn finish<T: TxQueue>(mut self, tx: &mut T) -> SenderOutcome {
        if !matches!(self.phase, SenderPhase::Flight { .. } | SenderPhase::Done) {
            self.streams.iter_mut().for_each(StreamSender::truncate);
        }
        let (streams, ramp) = (&mut self.streams, &mut self.ramp_returned);
        tx.take_refused(|frame| attribute_returned(streams, ramp, frame, ReturnReason::Refused));
        tx.withdraw(|frame| attribute_returned(streams, ramp, frame, ReturnReason::Withdrawn));
        SenderOutcome {
            streams: self
                .streams
                .iter()
                .map(|stream| stream.outcome(self.by_count))
                .collect(),
            ramp_frames: self.ramp_submitted - self.ramp_returned,
            largest_catch_up_frames: self.largest_catch_up,
            start_ns: self.run_ns,
            last_departure_ns: self.last_departure_ns.unwrap_or(self.run_ns),
            last_departure_wall_ns: self.last_departure_wall_ns(),
            departures: self.departures.map(|departures| departures.histogram),
            turns: self.turns,
            busy_turns: self.busy_turns,
            lateness: self.lateness,
            tx: tx.counters(),
        }
    }

    fn last_departure_wall_ns(&self) -> u64 {
        self.last_departure_ns
            .map_or(0, |mono| mono.wrapping_add(self.wall_minus_mono))
    }

    /// Offered frames and octets so far of each stream, frames in flight included.
    pub(crate) fn stream_counts(&self) -> impl Iterator<Item = (u64, u64)> {
        let count = |stream: &StreamSender| (stream.offered_frames(), stream.offered_octets());
        self.streams.iter().map(count)
    }

    /// Counts so far; frames in flight do not count as offered yet.
    pub(crate) fn progress(&self, in_flight: usize) -> Progress {
        let mut progress = Progress::default();
        for stream in &self.streams {
            progress.offered_frames += stream.offered_frames();
            progress.offered_octets += stream.offered_octets();
            progress.refused_frames += stream.refused_frames();
            progress.unsent_frames += stream.skipped_frames();
        }
        progress.offered_frames = progress.offered_frames.saturating_sub(in_flight as u64);
        progress.ramp_frames = self.ramp_submitted - self.ramp_returned;
        progress
    }
}

/// Distributes the worker's part of the count over the streams with a schedule. Returns the part that is counted while
/// sending, for streams without a schedule.
fn share_count(streams: &mut [StreamSender], spec: &SenderSpec) -> u64 {
    let Some(count) = spec.count else {
        return u64::MAX;
    };
    let (worker, workers) = (u64::from(spec.worker), u64::from(spec.workers));
    let share = count / workers + u64::from(worker < count % workers);
    if !streams.iter().all(StreamSender::is_paced) {
        return share;
    }
    let mut pacers: Vec<_> = streams
        .iter_mut()
        .filter_map(StreamSender::pacer_mut)
        .collect();
    share_out(&mut pacers, share);
    u64::MAX
}

/// Fills slots with scheduled frames, the earliest first. Returns the number of frames that may be late.
#[inline]
fn fill_due<T: TxQueue, C: Clock>(
    streams: &mut [StreamSender],
    batch: &mut SlotBatch<'_, T, C>,
    elapsed_ns: u64,
) -> u64 {
    let mut late = 0;
    streams
        .iter_mut()
        .for_each(|stream| stream.give_up(elapsed_ns));
    while batch.filled < batch.room {
        let Some((stream, until_ns)) = earliest_stream(streams) else {
            break;
        };
        if stream.next_due() > elapsed_ns {
            break;
        }
        let before = batch.filled;
        stream.fill_batch(batch, until_ns.min(elapsed_ns));
        late += if stream.counts_as_catch_up() {
            (batch.filled - before) as u64
        } else {
            0
        };
    }
    late
}

/// The stream with the earliest due frame, and the time until which it stays the earliest.
#[inline]
fn earliest_stream(streams: &mut [StreamSender]) -> Option<(&mut StreamSender, u64)> {
    let (mut first, mut due, mut second) = (None, u64::MAX, u64::MAX);
    for (i, stream) in streams
        .iter()
        .enumerate()
        .filter(|(_, stream)| stream.is_paced())
    {
        if stream.next_due() < due {
            (first, second, due) = (Some(i), due, stream.next_due());
        } else {
            second = second.min(stream.next_due());
        }
    }
    first.map(|i| (&mut streams[i], second))
}

/// Fills the rest of the batch from full-speed streams in turn. Returns the next one.
#[inline]
fn fill_free<T: TxQueue, C: Clock>(
    streams: &mut [StreamSender],
    batch: &mut SlotBatch<'_, T, C>,
    turn: usize,
) -> usize {
    for i in 0..streams.len() {
        let at = (turn + i) % streams.len();
        if !streams[at].is_paced() && streams[at].next_due() == 0 {
            streams[at].fill_batch(batch, 0);
            return at + 1;
        }
    }
    turn
}

/// Attributes a returned frame to its stream. Without a tag only length or content identify it, so the sum is correct
/// but the stream may not be.
#[cold]
fn attribute_returned(
    streams: &mut [StreamSender],
    ramp_frames: &mut u64,
    frame: &[u8],
    how: ReturnReason,
) {
    let claimed = streams
        .iter_mut()
        .find_map(|stream| stream.frame_owner(frame).map(|claim| (stream, claim)));
    match claimed {
        Some((_, FrameOwner::Ramp)) => *ramp_frames += 1,
        Some((stream, FrameOwner::Flow(flow))) => stream.record_returned(flow, frame.len(), how),
        None => {
            if let Some(stream) = streams.iter_mut().find(|stream| stream.may_own(frame)) {
                stream.record_returned(0, frame.len(), how);
            }
        }
    }
}
