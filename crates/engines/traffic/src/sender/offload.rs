//! A sender whose port makes the frames by itself: what is due and what became of it is kept here all the same.
//!
//! The port takes turns of some milliseconds. Between two of them everything that takes thought is done: what is too old
//! is given up, the end is seen, the account kept. Within a turn the port follows the table of the schedule.

use wb_model::lateness::LATE_NS;
use wb_port::offload::{Pace, SendCounters, SendOffload, SendOrder, StreamOrder, StreamProgram};
use wb_port::{PortError, TxCounters};

use super::{Phase, Sender, SenderOutcome, Step};
use crate::stream_sender::StreamSender;
use crate::{Clock, SenderSpec};

/// Frames that share one hand-over, by the rate of a worker: single ones leave when they are due, batches sooner than
/// one can be handed over after the other (`bench/live`).
const BATCHES: [(f64, u32); 3] = [(1.5e6, 1), (2.5e6, 4), (3.5e6, 16)];
const MOST_BATCH: u32 = 64;
/// A turn at full speed; a call costs some 15 us, and a page pool.
const TURN_NS: u64 = 5_000_000;
/// A turn by a schedule: one frame in some hundred may be late for the call between two of them.
const PACED_TURN_NS: u64 = 20_000_000;
/// A turn of a ramp, within which its rate is even.
const RAMP_TURN_NS: u64 = 5_000_000;
/// What the call of a turn may take: a frame that is later by no more than that is sent, though it should have been
/// given up a moment ago. Without it a turn that begins at the edge of what may be made up for would never send.
const CALL_NS: u64 = 100_000;
/// Who is behind by more than this makes up for it in the largest batches, and takes larger ones from then on if …
const BEHIND_NS: u64 = 1_000_000;
/// … no frame waits for the others of its batch for longer than this.
const MOST_WAIT_NS: u64 = 64_000;
/// How long a larger batch stays: doubled each time that the smaller one does not do, …
const LARGER_NS: u64 = 200_000_000;
/// … up to this.
const MOST_LARGER_NS: u64 = 3_200_000_000;
/// So many at a time, …
const MOST_OVERDUE: u64 = 8192;
/// … for which this is time enough: what grows too old meanwhile is sent, lest nothing be sent at a rate beyond what goes.
const OVERDUE_NS: u64 = 20_000_000;
/// A frame that is due later than this is awaited asleep, until …
const ASLEEP_NS: u64 = 300_000;
/// … so long before.
const AWAKE_NS: u64 = 100_000;

/// The streams of a worker as tables, for a port that sends them by itself.
#[derive(Clone, Debug)]
pub struct OffloadTables {
    /// In the order of the spec.
    pub streams: Vec<StreamProgram>,
    /// What each sends before the counted schedule begins; empty without a ramp.
    pub ramps: Vec<StreamProgram>,
}

/// Sends the streams of one worker by an offload of its port. Used as [`Sender`] is.
pub struct OffloadedSender {
    sender: Sender,
    port: Box<dyn SendOffload>,
    /// Sends the ramp.
    ramp: Option<Box<dyn SendOffload>>,
    orders: Vec<StreamOrder>,
    batches: Batches,
    ramp_batch: u32,
    wall_minus_mono: u64,
    /// Frames that fell due while the port was away and have not been made up for.
    debt: u64,
}

/// Frames that share one hand-over: as many as the rate asks for, and more where single ones take the path too long, as
/// through a router that has little to do for many at once.
struct Batches {
    least: u32,
    most: u32,
    now: u32,
    /// The last turn fell behind; one by itself may have been disturbed.
    behind: bool,
    /// When a smaller one is tried again, and for how long a larger one stays next time.
    smaller_at_ns: u64,
    larger_ns: u64,
}

impl Batches {
    fn new(pps: f64) -> Self {
        let least = batch(pps);
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

    /// For the next turn.
    fn next(&mut self, now_ns: u64) -> u32 {
        if self.now > self.least && now_ns >= self.smaller_at_ns {
            self.now = (self.now / 4).max(self.least);
            self.smaller_at_ns = now_ns.saturating_add(self.larger_ns);
        }
        self.now
    }

    /// Looks at the last turn: whether it fell behind though it never waited.
    fn judge(&mut self, behind: bool, now_ns: u64) {
        if !(std::mem::replace(&mut self.behind, behind) && behind) {
            return;
        }
        self.now = (self.now * 4).min(self.most);
        self.smaller_at_ns = now_ns.saturating_add(self.larger_ns);
        self.larger_ns = (self.larger_ns * 2).min(MOST_LARGER_NS);
    }
}

/// Frames that share one hand-over at such a rate.
pub(crate) fn batch(pps: f64) -> u32 {
    let fit = BATCHES.iter().find(|(most, _)| pps <= *most);
    fit.map_or(MOST_BATCH, |(_, batch)| *batch)
}

impl Sender {
    /// The streams as tables, for a port that sends them by itself.
    ///
    /// # Errors
    /// Why it cannot.
    pub fn offload_tables(&self, spec: &SenderSpec) -> Result<OffloadTables, &'static str> {
        if spec.departures {
            return Err("the times between departures are measured in user space");
        }
        let ramps = self.streams.iter().filter_map(StreamSender::ramp_table);
        Ok(OffloadTables {
            streams: (self.streams.iter().map(StreamSender::table)).collect::<Result<_, _>>()?,
            ramps: ramps.collect::<Result<_, _>>()?,
        })
    }

    /// Goes on with ports that were given the tables: of the streams, and of the ramps if there are any.
    #[must_use]
    pub fn offloaded(
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
            batches: Batches::new(pps.sum()),
            ramp_batch: batch(streams.map(StreamSender::ramp_pps).sum()),
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
    /// Stamps are the monotonic clock plus this.
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

    /// Whoever sends by itself waits by itself: nobody expects a turn before this.
    pub(crate) fn sleep_until(&mut self, mono_ns: u64) {
        self.sender.sleep_until(mono_ns);
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

    /// Takes a turn: lets the port send what falls due in some milliseconds.
    pub(crate) fn step<C: Clock>(&mut self, clock: &C) -> Result<Step, PortError> {
        let now_ns = clock.monotonic_ns();
        let sender = &mut self.sender;
        sender.turns += 1;
        let away_ns = sender.expected.begin(now_ns);
        if away_ns > LATE_NS {
            sender.was_away(now_ns, away_ns);
        } else {
            sender.lateness.away(now_ns, away_ns);
        }
        let step = |sent, next_due_ns, done| Step {
            now_ns,
            sent,
            next_due_ns,
            done,
        };
        match sender.phase {
            Phase::Done => return Ok(step(0, None, true)),
            // Nothing is in flight between two turns.
            Phase::Flight { .. } => {
                sender.phase = Phase::Done;
                return Ok(step(0, None, true));
            }
            Phase::Ramp | Phase::Run => {}
        }
        if now_ns < sender.run_ns {
            let begin_ns = sender.begin_ns;
            return match begin_ns.checked_sub(now_ns) {
                Some(wait_ns) if wait_ns > AWAKE_NS => {
                    Ok(step(0, Some(begin_ns - AWAKE_NS), false))
                }
                _ if self.ramp.is_some() => self.rise(now_ns),
                _ => Ok(step(0, Some(now_ns), false)),
            };
        }
        sender.phase = Phase::Run;
        let (skipped, elapsed_ns) = (skipped(&sender.streams), now_ns - sender.run_ns);
        for stream in &mut sender.streams {
            stream.give_up(elapsed_ns);
            if now_ns >= sender.end_ns {
                stream.end(now_ns - sender.end_ns);
            }
        }
        if self.debt > 0 {
            let missed = self::skipped(&sender.streams) - skipped;
            sender.lateness.missed_departures += missed;
            self.debt = self.debt.saturating_sub(missed);
        }
        if sender.budget == 0 {
            sender.by_count = true;
            sender.streams.iter_mut().for_each(StreamSender::cut);
        }
        if sender.streams.iter().all(StreamSender::is_done) {
            sender.phase = Phase::Done;
            return Ok(step(0, None, true));
        }
        let all_paced = sender.streams.iter().all(StreamSender::is_paced);
        let waiting = match all_paced {
            true => sender.streams.iter().map(|s| s.waiting(elapsed_ns)).sum(),
            false => 0,
        };
        let next_ns = sender.streams.iter().map(StreamSender::due).min();
        let next_ns = sender.run_ns.saturating_add(next_ns.unwrap_or(0));
        if next_ns > now_ns.saturating_add(ASLEEP_NS) {
            return Ok(step(0, Some(next_ns - AWAKE_NS), false));
        }
        let overdue = all_paced && next_ns.saturating_add(BEHIND_NS) < now_ns;
        let allowance_ns = |stream: &StreamSender, pace: Option<&Pace>| {
            // The newest frame is sent however late it is.
            let gap_ns = pace.map_or(0, |pace| pace.whole_ns);
            let own_ns = stream.allowance_ns().max(gap_ns);
            match all_paced {
                true if overdue => own_ns.saturating_add(OVERDUE_NS),
                // Who comes to be behind ends his turn.
                true => own_ns.saturating_add(CALL_NS).min(2 * BEHIND_NS),
                false => own_ns.saturating_add(CALL_NS),
            }
        };
        self.orders.clear();
        self.orders.extend(sender.streams.iter().map(|stream| {
            let pace = stream.pace(sender.run_ns);
            // What is due before the end may leave after it, unless something was given up.
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
        let order = SendOrder {
            now_ns,
            frames: match overdue {
                true => sender.budget.min(waiting).min(MOST_OVERDUE),
                false => sender.budget,
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

    /// Looks at the turn that was just taken.
    fn judge_batch(&mut self) {
        let taken = self.port.taken();
        let streams = self.sender.streams.iter();
        let next_ns = streams.map(StreamSender::due).min().unwrap_or(u64::MAX);
        let next_ns = self.sender.run_ns.saturating_add(next_ns);
        let behind = taken.idle_ns == 0 && next_ns.saturating_add(BEHIND_NS) < taken.seen_ns;
        self.batches.judge(behind, taken.seen_ns);
    }

    /// Takes a turn of the ramp, in which its rate is even.
    fn rise(&mut self, now_ns: u64) -> Result<Step, PortError> {
        let step = |sent: u64, next_ns| {
            Ok(Step {
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
        let before = totals(port.as_ref(), sender.streams.len());
        let turned = port.turn(&order, &self.orders);
        let after = totals(port.as_ref(), sender.streams.len());
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

    /// Keeps the account of the turn that was just taken.
    fn note_turn(&mut self, overdue: bool) -> u64 {
        let taken = self.port.taken();
        let sender = &mut self.sender;
        // Until then it was here; a signal ends a turn and may hold up the worker.
        sender.expected.sleep_until(taken.seen_ns);
        let (mut due_at_once, mut fell_due) = (0, 0);
        for (i, stream) in sender.streams.iter_mut().enumerate() {
            let sent = stream.note_offload(&self.port.counters(i));
            if stream.counts_as_catch_up() {
                due_at_once += stream.frames_within(self.port.most_late_ns(i)).min(sent);
            }
            // Of bursts, too: what is given up of them is missed.
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
        // What it makes up for it makes up for in this turn and in those that are overdue after it.
        if taken.stalls > 0 || overdue {
            let late = due_at_once.min(self.debt);
            lateness.made_up(late, usual);
            self.debt -= late;
        } else {
            self.debt = 0;
        }
        taken.submitted_frames
    }

    /// The final account.
    pub(crate) fn finish(mut self) -> SenderOutcome {
        let sender = &mut self.sender;
        if !matches!(sender.phase, Phase::Flight { .. } | Phase::Done) {
            sender.streams.iter_mut().for_each(StreamSender::cut);
        }
        for (i, stream) in sender.streams.iter_mut().enumerate() {
            stream.note_offload(&self.port.counters(i));
            stream.end_offload(self.port.position(i), &self.port.refused_by_flow(i));
        }
        let mut tx = TxCounters::default();
        for port in std::iter::once(&self.port).chain(&self.ramp) {
            for counters in totals(port.as_ref(), sender.streams.len()) {
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

fn totals(port: &dyn SendOffload, streams: usize) -> Vec<SendCounters> {
    (0..streams).map(|i| port.counters(i)).collect()
}

fn skipped(streams: &[StreamSender]) -> u64 {
    streams.iter().map(StreamSender::skipped_frames).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_grows_where_single_frames_fall_behind_and_smaller_ones_are_tried_ever_less_often() {
        let mut batches = Batches::new(400e3);
        batches.judge(true, 0);
        batches.judge(false, 0);
        batches.judge(true, 0);
        assert_eq!(batches.next(0), 1);
        batches.judge(true, 0);
        assert_eq!(batches.next(LARGER_NS - 1), 4);
        assert_eq!(batches.next(LARGER_NS), 1);
        batches.judge(true, LARGER_NS);
        assert_eq!(batches.next(3 * LARGER_NS - 1), 4);
        assert_eq!(batches.next(3 * LARGER_NS), 1);
        for _ in 0..20 {
            batches.judge(true, 0);
        }
        // 64 us at 400 kpps.
        assert_eq!(batches.next(MOST_LARGER_NS - 1), 25);
        assert_eq!(batches.next(MOST_LARGER_NS), 6);
    }

    #[test]
    fn frames_far_apart_never_wait_for_each_other() {
        let mut batches = Batches::new(10e3);
        batches.judge(true, 0);
        batches.judge(true, 0);
        assert_eq!(batches.next(0), 1);
        let mut full_speed = Batches::new(f64::INFINITY);
        full_speed.judge(true, 0);
        full_speed.judge(true, 0);
        assert_eq!(full_speed.next(0), MOST_BATCH);
    }
}
