//! A sender with a port that makes the frames autonomously, with the schedule and the results kept here.
//!
//! The port takes turns of some milliseconds. All decisions are made between turns: old frames are given up, the end is
//! detected, the results are updated. Within a turn the port follows the table of the schedule.

use wb_model::lateness::LATE_NS;
use wb_port::offload::{Pace, SendCounters, SendOffload, SendOrder, StreamOrder, StreamProgram};
use wb_port::{PortError, TxCounters};

use super::{Sender, SenderOutcome, SenderPhase, SenderStep};
use crate::stream_sender::StreamSender;
use crate::{Clock, SenderSpec};

/// Frames per hand-over, by the rate of a worker: single frames leave exactly when they are due; batches are used if
/// single hand-overs would be too slow (`bench/live`).
const BATCHES: [(f64, u32); 3] = [(1.5e6, 1), (2.5e6, 4), (3.5e6, 16)];
const MOST_BATCH: u32 = 64;
/// Turn at full speed; a call costs about 15 us, and a page pool.
const TURN_NS: u64 = 5_000_000;
/// Turn with a schedule; the call between two turns may delay one frame in some hundred.
const PACED_TURN_NS: u64 = 20_000_000;
/// Turn of a ramp, within which its rate is constant.
const RAMP_TURN_NS: u64 = 5_000_000;
/// Time for the call of a turn: a frame that exceeds its allowance by at most this is still sent. Without it, a turn
/// that begins at the edge of the catch-up time would never send.
const CALL_NS: u64 = 100_000;
/// A sender more than this behind catches up in the largest batches. It then uses larger batches than before, limited
/// by `MOST_WAIT_NS`.
const BEHIND_NS: u64 = 1_000_000;
/// Maximum time that a frame waits for the others of its batch.
const MOST_WAIT_NS: u64 = 64_000;
/// Time for which a larger batch size is kept; doubled each time the smaller one proves too slow.
const LARGER_NS: u64 = 200_000_000;
/// Maximum of that time.
const MOST_LARGER_NS: u64 = 3_200_000_000;
/// Maximum number of frames in an overdue turn.
const MOST_OVERDUE: u64 = 8192;
/// Additional allowance of an overdue turn, enough for `MOST_OVERDUE` frames: frames that grow too old meanwhile are
/// sent, because at an unreachable rate nothing would be sent otherwise.
const OVERDUE_NS: u64 = 20_000_000;
/// If the next frame is due later than this, the worker sleeps.
const ASLEEP_NS: u64 = 300_000;
/// Time before the due time at which the worker wakes up.
const AWAKE_NS: u64 = 100_000;

/// The streams of a worker as tables, for a port that sends autonomously.
#[derive(Clone, Debug)]
pub struct OffloadTables {
    /// In the order of the spec.
    pub streams: Vec<StreamProgram>,
    /// Ramp-up of each stream; empty without a ramp.
    pub ramps: Vec<StreamProgram>,
}

/// Sends the streams of one worker through an offload of its port. Used like [`Sender`].
pub struct OffloadedSender {
    sender: Sender,
    port: Box<dyn SendOffload>,
    /// Sends the ramp.
    ramp: Option<Box<dyn SendOffload>>,
    orders: Vec<StreamOrder>,
    batches: BatchSize,
    ramp_batch: u32,
    wall_minus_mono: u64,
    /// Frames that fell due while the port was stalled and have not been sent yet.
    debt: u64,
}

/// Batch size: as large as the rate requires, and larger if the path is slow for single frames, such as a router that
/// handles batches more efficiently.
struct BatchSize {
    least: u32,
    most: u32,
    now: u32,
    /// The last turn fell behind; a single one may be a disturbance.
    behind: bool,
    /// Time of the next attempt with a smaller batch, and the time for which a larger one is kept next time.
    smaller_at_ns: u64,
    larger_ns: u64,
}

impl BatchSize {
    fn new(pps: f64) -> Self {
        let least = batch_size(pps);
        let within = pps * MOST_WAIT_NS as f64 / 1e9;
        Self {
            least,
            most: (within as u32).clamp(least, MOST_BATCH.max(least)),
            now: least,
            behind: false,
            smaller_at_ns: 0,
            larger_ns: LARGER_NS,
        }
    }

    /// Batch size of the next turn.
    fn next(&mut self, now_ns: u64) -> u32 {
        if self.now > self.least && now_ns >= self.smaller_at_ns {
            self.now = (self.now / 4).max(self.least);
            self.smaller_at_ns = now_ns.saturating_add(self.larger_ns);
        }
        self.now
    }

    /// Evaluates the last turn. `behind`: it fell behind although it never waited.
    fn evaluate_turn(&mut self, behind: bool, now_ns: u64) {
        if !(std::mem::replace(&mut self.behind, behind) && behind) {
            return;
        }
        self.now = (self.now * 4).min(self.most);
        self.smaller_at_ns = now_ns.saturating_add(self.larger_ns);
        self.larger_ns = (self.larger_ns * 2).min(MOST_LARGER_NS);
    }
}

/// Frames per hand-over at this rate.
pub(crate) fn batch_size(pps: f64) -> u32 {
    let fit = BATCHES.iter().find(|(most, _)| pps <= *most);
    fit.map_or(MOST_BATCH, |(_, batch)| *batch)
}

impl Sender {
    /// The streams as tables, for a port that sends autonomously.
    ///
    /// # Errors
    /// Returns the reason if there are no tables.
    pub fn offload_tables(&self, spec: &SenderSpec) -> Result<OffloadTables, &'static str> {
        if spec.departures {
            return Err("the intervals between departures are measured in user space");
        }
        let ramps = self.streams.iter().filter_map(StreamSender::ramp_table);
        Ok(OffloadTables {
            streams: (self.streams.iter().map(StreamSender::program)).collect::<Result<_, _>>()?,
            ramps: ramps.collect::<Result<_, _>>()?,
        })
    }

    /// Continues with ports that were loaded with the tables: of the streams, and of the ramps if there are any.
    #[must_use]
    pub fn into_offloaded(
        self,
        port: Box<dyn SendOffload>,
        ramp: Option<Box<dyn SendOffload>>,
    ) -> OffloadedSender {
        let streams = self.streams.iter();
        let pps = streams.clone().map(|stream| match stream.is_paced() {
            true => stream.frames_within(1_000_000_000) as f64,
            false => f64::INFINITY,
        });
        OffloadedSender {
            batches: BatchSize::new(pps.sum()),
            ramp_batch: batch_size(streams.map(StreamSender::ramp_pps).sum()),
            orders: Vec::with_capacity(self.streams.len()),
            sender: self,
            port,
            ramp,
            wall_minus_mono: 0,
            debt: 0,
        }
    }
}

impl OffloadedSender {
    /// Sets the offset from the monotonic clock to timestamps.
    pub(crate) fn stamp_with(&mut self, wall_minus_mono: u64) {
        self.wall_minus_mono = wall_minus_mono;
        self.sender.wall_minus_mono = wall_minus_mono;
    }

    pub(crate) fn start(&mut self, mono_ns: u64) {
        self.sender.start(mono_ns);
    }

    pub(crate) fn abort(&mut self) {
        self.sender.abort();
    }

    /// Announces a wait of the port: no turn is expected before this time.
    pub(crate) fn sleep_until(&mut self, mono_ns: u64) {
        self.sender.sleep_until(mono_ns);
    }

    pub(crate) fn stream_counts(&self) -> impl Iterator<Item = (u64, u64)> {
        self.sender.stream_counts()
    }

    pub(crate) fn progress(&self) -> super::Progress {
        self.sender.progress(0)
    }

    pub(crate) fn submitted(&self) -> u64 {
        let sent = |port: &dyn SendOffload| -> u64 {
            let streams = 0..self.sender.streams.len();
            streams.map(|i| port.counters(i).submitted_frames).sum()
        };
        sent(self.port.as_ref()) + self.ramp.as_deref().map_or(0, sent)
    }

    /// Takes a turn: lets the port send the frames due within some milliseconds.
    pub(crate) fn step<C: Clock>(&mut self, clock: &C) -> Result<SenderStep, PortError> {
        let now_ns = clock.monotonic_ns();
        let sender = &mut self.sender;
        sender.turns += 1;
        let away_ns = sender.expected.begin(now_ns);
        if away_ns > LATE_NS {
            sender.was_away(now_ns, away_ns);
        } else {
            sender.lateness.away(now_ns, away_ns);
        }
        let step = |sent, next_due_ns, done| SenderStep {
            now_ns,
            sent,
            next_due_ns,
            done,
        };
        match sender.phase {
            SenderPhase::Done => return Ok(step(0, None, true)),
            // No frame is in flight between turns.
            SenderPhase::Flight { .. } => {
                sender.phase = SenderPhase::Done;
                return Ok(step(0, None, true));
            }
            SenderPhase::Ramp | SenderPhase::Run => {}
        }
        if now_ns < sender.run_ns {
            let begin_ns = sender.begin_ns;
            return match begin_ns.checked_sub(now_ns) {
                Some(wait_ns) if wait_ns > AWAKE_NS => {
                    Ok(step(0, Some(begin_ns - AWAKE_NS), false))
                }
                _ if self.ramp.is_some() => self.send_ramp(now_ns),
                _ => Ok(step(0, Some(now_ns), false)),
            };
        }
        sender.phase = SenderPhase::Run;
        let (skipped, elapsed_ns) = (skipped_frames(&sender.streams), now_ns - sender.run_ns);
        for stream in &mut sender.streams {
            stream.give_up(elapsed_ns);
            if now_ns >= sender.end_ns {
                stream.handle_end(now_ns - sender.end_ns);
            }
        }
        if self.debt > 0 {
            let missed = self::skipped_frames(&sender.streams) - skipped;
            sender.lateness.missed_departures += missed;
            self.debt = self.debt.saturating_sub(missed);
        }
        if sender.budget == 0 {
            sender.by_count = true;
            sender.streams.iter_mut().for_each(StreamSender::truncate);
        }
        if sender.streams.iter().all(StreamSender::is_done) {
            sender.phase = SenderPhase::Done;
            return Ok(step(0, None, true));
        }
        let all_paced = sender.streams.iter().all(StreamSender::is_paced);
        let waiting = match all_paced {
            true => sender
                .streams
                .iter()
                .map(|s| s.waiting_frames(elapsed_ns))
                .sum(),
            false => 0,
        };
        let next_ns = sender.streams.iter().map(StreamSender::next_due).min();
        let next_ns = sender.run_ns.saturating_add(next_ns.unwrap_or(0));
        if next_ns > now_ns.saturating_add(ASLEEP_NS) {
            return Ok(step(0, Some(next_ns - AWAKE_NS), false));
        }
        let overdue = all_paced && next_ns.saturating_add(BEHIND_NS) < now_ns;
        let budget = sender.budget;
        self.order_streams(all_paced, overdue);
        let order = SendOrder {
            now_ns,
            frames: match overdue {
                true => budget.min(waiting).min(MOST_OVERDUE),
                false => budget,
            },
            length_ns: if all_paced { PACED_TURN_NS } else { TURN_NS },
            batch: match overdue {
                true => MOST_BATCH,
                false => self.batches.next(now_ns),
            },
            overdue,
            wall_minus_mono: self.wall_minus_mono,
        };
        let turned = self.port.turn(&order, &self.orders);
        let sent = self.note_turn(overdue);
        if all_paced && !overdue && self.debt == 0 {
            self.judge_batch();
        }
        turned?;
        Ok(step(sent as usize, Some(now_ns), false))
    }

    /// Writes the orders of the next turn: what each stream may send in it, and how late.
    fn order_streams(&mut self, all_paced: bool, overdue: bool) {
        let sender = &self.sender;
        let allowance_ns = |stream: &StreamSender, pace: Option<&Pace>| {
            // The newest frame is sent however late it is.
            let gap_ns = pace.map_or(0, |pace| pace.whole_ns);
            let own_ns = stream.allowance_ns().max(gap_ns);
            match all_paced {
                true if overdue => own_ns.saturating_add(OVERDUE_NS),
                // A turn ends once it falls behind.
                true => own_ns.saturating_add(CALL_NS).min(2 * BEHIND_NS),
                false => own_ns.saturating_add(CALL_NS),
            }
        };
        self.orders.clear();
        self.orders.extend(sender.streams.iter().map(|stream| {
            let pace = stream.due_pace(sender.run_ns);
            // Frames due before the end may leave after it, unless frames were given up.
            let grace_ns = match &pace {
                Some(_) if stream.skipped_frames() == 0 => stream.allowance_ns(),
                _ => 0,
            };
            StreamOrder {
                frames: stream.frames_left(),
                until_ns: sender.end_ns.saturating_add(grace_ns),
                allowance_ns: allowance_ns(stream, pace.as_ref()),
                pace,
            }
        }));
    }

    /// Evaluates the batch size of the last turn.
    fn judge_batch(&mut self) {
        let taken = self.port.taken();
        let streams = self.sender.streams.iter();
        let next_ns = streams
            .map(StreamSender::next_due)
            .min()
            .unwrap_or(u64::MAX);
        let next_ns = self.sender.run_ns.saturating_add(next_ns);
        let behind = taken.idle_ns == 0 && next_ns.saturating_add(BEHIND_NS) < taken.seen_ns;
        self.batches.evaluate_turn(behind, taken.seen_ns);
    }

    /// Takes a turn of the ramp, in which its rate is constant.
    fn send_ramp(&mut self, now_ns: u64) -> Result<SenderStep, PortError> {
        let step = |sent: u64, next_ns| {
            Ok(SenderStep {
                now_ns,
                sent: sent as usize,
                next_due_ns: Some(next_ns),
                done: false,
            })
        };
        let sender = &mut self.sender;
        let Some(port) = &mut self.ramp else {
            return step(0, sender.run_ns);
        };
        let until_ns = now_ns.saturating_add(RAMP_TURN_NS).min(sender.run_ns);
        let begin_ns = sender.begin_ns;
        let elapsed_ns = now_ns.saturating_sub(begin_ns);
        let mut next_ns = sender.run_ns;
        self.orders.clear();
        for stream in &mut sender.streams {
            let pace = stream.ramp_pace(begin_ns, elapsed_ns, until_ns - begin_ns);
            next_ns = pace.map_or(next_ns, |(pace, _)| next_ns.min(pace.due_ns));
            self.orders.push(StreamOrder {
                pace: pace.map(|(pace, _)| pace),
                frames: pace.map_or(0, |(_, frames)| frames),
                until_ns: sender.run_ns,
                allowance_ns: stream.allowance_ns().saturating_add(CALL_NS),
            });
        }
        if next_ns > now_ns.saturating_add(ASLEEP_NS) {
            return step(0, next_ns - AWAKE_NS);
        }
        let order = SendOrder {
            now_ns,
            frames: u64::MAX,
            length_ns: until_ns - now_ns,
            batch: self.ramp_batch,
            overdue: false,
            wall_minus_mono: self.wall_minus_mono,
        };
        let before = port_totals(port.as_ref(), sender.streams.len());
        let turned = port.turn(&order, &self.orders);
        let after = port_totals(port.as_ref(), sender.streams.len());
        for (i, stream) in sender.streams.iter_mut().enumerate() {
            stream.pass_ramp(after[i].submitted_frames - before[i].submitted_frames);
        }
        sender.ramp_submitted = after.iter().map(|c| c.submitted_frames).sum();
        sender.ramp_returned = after.iter().map(|c| c.refused_frames).sum();
        let taken = port.taken();
        sender.expected.sleep_until(taken.seen_ns);
        if taken.submitted_frames > 0 {
            sender.busy_turns += 1;
            sender.last_departure_ns = Some(taken.last_departure_ns);
        }
        turned?;
        step(taken.submitted_frames, now_ns)
    }

    /// Updates the results after a turn.
    fn note_turn(&mut self, overdue: bool) -> u64 {
        let taken = self.port.taken();
        let sender = &mut self.sender;
        // The worker was running until then; a signal ends a turn and may delay the worker.
        sender.expected.sleep_until(taken.seen_ns);
        let (mut due_at_once, mut fell_due) = (0, 0);
        for (i, stream) in sender.streams.iter_mut().enumerate() {
            let sent = stream.note_offload(&self.port.counters(i));
            if stream.counts_as_catch_up() {
                due_at_once += stream.frames_within(self.port.most_late_ns(i)).min(sent);
            }
            // Includes bursts: those given up are missed departures.
            fell_due += stream.frames_within(taken.stalled_ns);
        }
        if taken.submitted_frames > 0 {
            sender.busy_turns += 1;
            sender.last_departure_ns = Some(taken.last_departure_ns);
        }
        if sender.budget != u64::MAX {
            sender.budget -= taken.submitted_frames.min(sender.budget);
        }
        sender.largest_catch_up = sender.largest_catch_up.max(due_at_once);
        let usual = sender.usual_burst();
        let lateness = &mut sender.lateness;
        lateness.stalls += taken.stalls;
        lateness.stalled_ns += taken.stalled_ns;
        lateness.largest_gap_ns = lateness.largest_gap_ns.max(taken.largest_gap_ns);
        self.debt += fell_due;
        // Catching up happens in this turn and in the overdue ones after it.
        if taken.stalls > 0 || overdue {
            let late = due_at_once.min(self.debt);
            lateness.made_up(late, usual);
            self.debt -= late;
        } else {
            self.debt = 0;
        }
        taken.submitted_frames
    }

    /// Final results.
    pub(crate) fn finish(mut self) -> SenderOutcome {
        let sender = &mut self.sender;
        if !matches!(sender.phase, SenderPhase::Flight { .. } | SenderPhase::Done) {
            sender.streams.iter_mut().for_each(StreamSender::truncate);
        }
        for (i, stream) in sender.streams.iter_mut().enumerate() {
            stream.note_offload(&self.port.counters(i));
            stream.end_offload(self.port.position(i), &self.port.refused_by_flow(i));
        }
        let mut tx = TxCounters::default();
        for port in std::iter::once(&self.port).chain(&self.ramp) {
            for counters in port_totals(port.as_ref(), sender.streams.len()) {
                let sent = counters.submitted_frames - counters.refused_frames;
                tx.submitted_frames += counters.submitted_frames;
                tx.sent_frames += sent;
                // Without the FCS.
                tx.sent_octets += counters.submitted_octets - counters.refused_octets - 4 * sent;
                tx.refused_frames += counters.refused_frames;
            }
            let (calls, full) = port.hand_overs();
            tx.kicks += calls;
            tx.full_events += full;
        }
        let sender = self.sender;
        let streams = sender.streams.iter();
        SenderOutcome {
            streams: streams.map(|s| s.outcome(sender.by_count)).collect(),
            ramp_frames: sender.ramp_submitted - sender.ramp_returned,
            largest_catch_up_frames: sender.largest_catch_up,
            start_ns: sender.run_ns,
            last_departure_ns: sender.last_departure_ns.unwrap_or(sender.run_ns),
            last_departure_wall_ns: sender.last_departure_wall_ns(),
            departures: None,
            turns: sender.turns,
            busy_turns: sender.busy_turns,
            lateness: sender.lateness,
            tx,
        }
    }
}

fn port_totals(port: &dyn SendOffload, streams: usize) -> Vec<SendCounters> {
    (0..streams).map(|i| port.counters(i)).collect()
}

fn skipped_frames(streams: &[StreamSender]) -> u64 {
    streams.iter().map(StreamSender::skipped_frames).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_grows_where_single_frames_fall_behind_and_smaller_ones_are_tried_ever_less_often() {
        let mut batches = BatchSize::new(400e3);
        batches.evaluate_turn(true, 0);
        batches.evaluate_turn(false, 0);
        batches.evaluate_turn(true, 0);
        assert_eq!(batches.next(0), 1);
        batches.evaluate_turn(true, 0);
        assert_eq!(batches.next(LARGER_NS - 1), 4);
        assert_eq!(batches.next(LARGER_NS), 1);
        batches.evaluate_turn(true, LARGER_NS);
        assert_eq!(batches.next(3 * LARGER_NS - 1), 4);
        assert_eq!(batches.next(3 * LARGER_NS), 1);
        for _ in 0..20 {
            batches.evaluate_turn(true, 0);
        }
        // 64 us at 400 kpps.
        assert_eq!(batches.next(MOST_LARGER_NS - 1), 25);
        assert_eq!(batches.next(MOST_LARGER_NS), 6);
    }

    #[test]
    fn frames_far_apart_never_wait_for_each_other() {
        let mut batches = BatchSize::new(10e3);
        batches.evaluate_turn(true, 0);
        batches.evaluate_turn(true, 0);
        assert_eq!(batches.next(0), 1);
        let mut full_speed = BatchSize::new(f64::INFINITY);
        full_speed.evaluate_turn(true, 0);
        full_speed.evaluate_turn(true, 0);
        assert_eq!(full_speed.next(0), MOST_BATCH);
    }
}
