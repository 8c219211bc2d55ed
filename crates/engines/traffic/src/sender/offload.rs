//! A sender whose port makes the frames by itself: what is due and what became of it is kept here all the same.
//!
//! The port takes turns of some milliseconds. Between two of them everything that takes thought is done: what is too old
//! is given up, the end is seen, the account kept. Within a turn the port follows the table of the schedule.

use wb_port::offload::{SendOffload, SendOrder, StreamProgram};
use wb_port::{PortError, TxCounters};

use super::{Phase, Sender, SenderOutcome, Step};
use crate::{Clock, SenderSpec};

/// Frames that share one hand-over, by the rate of a worker: single ones leave when they are due, batches sooner than
/// one can be handed over after the other (`bench/live`).
const BATCHES: [(f64, u32); 3] = [(1.5e6, 1), (2.5e6, 4), (3.5e6, 16)];
const MOST_BATCH: u32 = 64;
/// A turn at full speed; a call costs some 15 us, and a page pool.
const TURN_NS: u64 = 5_000_000;
/// A turn by a schedule: one frame in some hundred may be late for the call between two of them.
const PACED_TURN_NS: u64 = 20_000_000;
/// What the call of a turn may take: a frame that is later by no more than that is sent, though it should have been
/// given up a moment ago. Without it a turn that begins at the edge of what may be made up for would never send.
const CALL_NS: u64 = 100_000;
/// A frame that is due later than this is awaited asleep, until …
const ASLEEP_NS: u64 = 300_000;
/// … so long before.
const AWAKE_NS: u64 = 100_000;

/// Sends the stream of one worker by an offload of its port. Used as [`Sender`] is.
pub struct OffloadedSender {
    sender: Sender,
    port: Box<dyn SendOffload>,
    batch: u32,
    wall_minus_mono: u64,
    rested: bool,
    /// The port was away in the last turn.
    stalled: bool,
}

impl Sender {
    /// The stream as tables, for a port that sends it by itself.
    ///
    /// # Errors
    /// Why it cannot.
    pub fn offload_table(&self, spec: &SenderSpec) -> Result<StreamProgram, &'static str> {
        match self.streams.as_slice() {
            _ if spec.lead.whole_ns() > 0 => Err("a rate that rises (ramp) has no even steps"),
            _ if spec.departures => Err("the times between departures are measured in user space"),
            [stream] => stream.table(),
            _ => Err("it sends several streams"),
        }
    }

    /// Goes on with a port that was given the table.
    #[must_use]
    pub fn offloaded(self, port: Box<dyn SendOffload>) -> OffloadedSender {
        let stream = &self.streams[0];
        let batch = match stream.pace(0) {
            None => MOST_BATCH,
            Some(_) => {
                let pps = stream.frames_within(1_000_000_000) as f64;
                let fit = BATCHES.iter().find(|(most, _)| pps <= *most);
                fit.map_or(MOST_BATCH, |(_, batch)| *batch)
            }
        };
        OffloadedSender {
            sender: self,
            port,
            batch,
            wall_minus_mono: 0,
            rested: true,
            stalled: false,
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
        self.rested = true;
        self.sender.sleep_until(mono_ns);
    }

    pub(crate) fn progress(&self) -> super::Progress {
        self.sender.progress(0)
    }

    pub(crate) fn submitted(&self) -> u64 {
        self.port.counters().submitted_frames
    }

    /// Takes a turn: lets the port send what falls due in some milliseconds.
    pub(crate) fn step<C: Clock>(&mut self, clock: &C) -> Result<Step, PortError> {
        let now_ns = clock.monotonic_ns();
        let sender = &mut self.sender;
        sender.turns += 1;
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
        if now_ns.saturating_add(AWAKE_NS) < sender.run_ns {
            return Ok(step(0, Some(sender.run_ns - AWAKE_NS), false));
        }
        if now_ns < sender.run_ns {
            return Ok(step(0, Some(now_ns), false));
        }
        sender.phase = Phase::Run;
        let stream = &mut sender.streams[0];
        let skipped = stream.skipped_frames();
        stream.give_up(now_ns - sender.run_ns);
        if now_ns >= sender.end_ns {
            stream.end(now_ns - sender.end_ns);
        }
        if std::mem::take(&mut self.stalled) {
            sender.lateness.missed_departures += stream.skipped_frames() - skipped;
        }
        if stream.is_done() || sender.budget == 0 {
            sender.by_count |= sender.budget == 0;
            sender.phase = Phase::Done;
            return Ok(step(0, None, true));
        }
        let pace = stream.pace(sender.run_ns);
        if let Some(pace) = &pace
            && pace.due_ns > now_ns.saturating_add(ASLEEP_NS)
        {
            return Ok(step(0, Some(pace.due_ns - AWAKE_NS), false));
        }
        // What is due before the end may leave after it, unless something was given up.
        let grace_ns = match &pace {
            Some(_) if stream.skipped_frames() == 0 => stream.allowance_ns(),
            _ => 0,
        };
        let order = SendOrder {
            now_ns,
            rested: std::mem::take(&mut self.rested),
            pace,
            frames: stream.frames_left().min(sender.budget),
            until_ns: sender.end_ns.saturating_add(grace_ns),
            allowance_ns: stream.allowance_ns().saturating_add(CALL_NS),
            length_ns: if pace.is_some() {
                PACED_TURN_NS
            } else {
                TURN_NS
            },
            batch: self.batch,
            wall_minus_mono: self.wall_minus_mono,
        };
        let turned = self.port.turn(&order);
        let sent = self.note_turn();
        turned?;
        Ok(step(sent as usize, Some(now_ns), false))
    }

    /// Keeps the account of the turn that was just taken.
    fn note_turn(&mut self) -> u64 {
        let (taken, counters) = (self.port.taken(), self.port.counters());
        let sender = &mut self.sender;
        let stream = &mut sender.streams[0];
        stream.note_offload(taken.submitted_frames, &counters);
        if taken.submitted_frames > 0 {
            sender.busy_turns += 1;
            sender.last_departure_ns = Some(taken.last_departure_ns);
        }
        if sender.budget != u64::MAX {
            sender.budget -= taken.submitted_frames.min(sender.budget);
        }
        self.stalled = taken.stalls > 0;
        let lateness = &mut sender.lateness;
        lateness.stalls += taken.stalls;
        lateness.stalled_ns += taken.stalled_ns;
        lateness.largest_gap_ns = lateness.largest_gap_ns.max(taken.largest_gap_ns);
        if stream.counts_as_catch_up() && taken.submitted_frames > 0 {
            let due_at_once = stream.frames_within(taken.most_late_ns);
            sender.largest_catch_up = sender.largest_catch_up.max(due_at_once);
            if taken.stalls > 0 {
                lateness.made_up(due_at_once);
            }
        }
        taken.submitted_frames
    }

    /// The final account.
    pub(crate) fn finish(mut self) -> SenderOutcome {
        if !matches!(self.sender.phase, Phase::Flight { .. } | Phase::Done) {
            self.sender.streams[0].cut();
        }
        let counters = self.port.counters();
        let stream = &mut self.sender.streams[0];
        stream.note_offload(0, &counters);
        stream.end_offload(self.port.position(), &self.port.refused_by_flow());
        let tx = TxCounters {
            submitted_frames: counters.submitted_frames,
            sent_frames: counters.submitted_frames - counters.refused_frames,
            // Without the FCS.
            sent_octets: (counters.submitted_octets - counters.refused_octets)
                - 4 * (counters.submitted_frames - counters.refused_frames),
            refused_frames: counters.refused_frames,
            withdrawn_frames: 0,
            kicks: counters.calls,
            full_events: counters.full_events,
        };
        let sender = self.sender;
        SenderOutcome {
            streams: vec![sender.streams[0].outcome(sender.by_count)],
            ramp_frames: 0,
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
