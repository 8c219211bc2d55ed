//! One device and its queue pair: takes turns until its walk is over.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use wb_model::device::{DeviceConfig, TimeForm};
use wb_model::lateness::{Lateness, Turns};
use wb_pktgen_device::{DeviceTime, Walker};
use wb_port::{PortError, QueuePair, RxQueue, Slot, TxCounters, TxQueue, worker_loop::RETRY_NS};

use super::offload::{OffloadTurn, SOON_NS};
use super::{DeviceEnd, DeviceHandle, DeviceNext, DeviceOffload, DeviceOutcome, DeviceTurn};
use crate::{
    Clock, CounterValues, TrafficControl,
    worker::{AWAKE_NS, PUBLISH_NS},
};

/// Time for frames in flight after the end, and for late calls after the duration.
const FLIGHT_NS: u64 = 20_000_000;
/// Clock comparisons before a turn of the port; the quickest one counts.
const LOOKS: usize = 4;

/// Places a device on a queue pair, for [`run_devices`](super::run_devices). Frames that the queue cannot hold end the
/// device with a fault. With an `offload` that was loaded with the same walk, the port sends as long as it can.
pub fn device_sender<Q: QueuePair + 'static, C: Clock + Send + 'static>(
    pair: Q,
    walker: Walker,
    handle: Arc<DeviceHandle>,
    offload: Option<DeviceOffload>,
    clock: C,
) -> Box<dyn DeviceTurn + Send> {
    if let Some(offload) = &offload {
        handle.stop_by(&offload.halt);
    }
    let mut sender = DeviceSender::new(pair, walker, handle, clock);
    sender.offload = offload;
    Box::new(sender)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DevicePhase {
    /// The start is not known, or not reached.
    Before,
    Run,
    /// Waits for frames in flight until then and hands out no more.
    Flight {
        until_ns: u64,
    },
    Done,
}

/// Reason for the end of a device.
#[derive(Debug, Default)]
struct DeviceEndReason {
    fault: Option<PortError>,
    link_down: bool,
}

/// Frames handed to the port and returned by it.
#[derive(Clone, Copy, Debug, Default)]
struct FrameTally {
    handed_frames: u64,
    handed_octets: u64,
    refused_frames: u64,
    withdrawn_frames: u64,
    /// Octets of refused and withdrawn frames.
    returned_octets: u64,
}

impl FrameTally {
    const fn offered_frames(&self) -> u64 {
        self.handed_frames - self.refused_frames - self.withdrawn_frames
    }

    const fn offered_octets(&self) -> u64 {
        self.handed_octets - self.returned_octets
    }
}

/// Reports the end of the device, even if its worker panics.
struct DeviceEndGuard(Arc<DeviceHandle>);

impl Drop for DeviceEndGuard {
    fn drop(&mut self) {
        self.0.mark_ended();
    }
}

struct DeviceSender<Q, C> {
    pair: Q,
    clock: C,
    walker: Walker,
    handle: DeviceEndGuard,
    generation: u64,
    phase: DevicePhase,
    started_ns: u64,
    stopped_ns: u64,
    /// Time of the next due event.
    wake_ns: u64,
    tally: FrameTally,
    /// Frames in flight after the last turn.
    in_flight: usize,
    /// Start of the current wait.
    waiting_since: Option<u64>,
    idle_ns: u64,
    clears: u64,
    last_departure_ns: Option<u64>,
    largest_catch_up: u64,
    turns: u64,
    busy_turns: u64,
    published_ns: u64,
    /// Progress changed since it was published.
    unpublished: bool,
    end: DeviceEndReason,
    expected: Turns,
    lateness: Lateness,
    /// Set while the port sends autonomously.
    offload: Option<DeviceOffload>,
    /// Offset from the monotonic to the wall clock in its last turn.
    wall_minus_mono: u64,
    by_queue_because: Option<String>,
    /// Frames that were late when this turn began and are already reported.
    made_up: u64,
    /// True if the port stalled and has sent nothing since.
    is_behind: bool,
    /// Counters of ports that sent autonomously.
    offloaded: TxCounters,
}

/// Results of a flush.
struct FlushResult {
    /// Returned frames.
    refused: usize,
    /// Time at which the port had finished.
    at_ns: u64,
}

impl<Q: QueuePair, C: Clock> DeviceSender<Q, C> {
    fn new(pair: Q, walker: Walker, handle: Arc<DeviceHandle>, clock: C) -> Self {
        let clears = walker.config().clears;
        Self {
            pair,
            clock,
            walker,
            handle: DeviceEndGuard(handle),
            generation: 0,
            phase: DevicePhase::Before,
            started_ns: 0,
            stopped_ns: 0,
            wake_ns: u64::MAX,
            tally: FrameTally::default(),
            in_flight: 0,
            waiting_since: None,
            idle_ns: 0,
            clears,
            last_departure_ns: None,
            largest_catch_up: 0,
            turns: 0,
            busy_turns: 0,
            published_ns: 0,
            unpublished: true,
            end: DeviceEndReason::default(),
            expected: Turns::default(),
            lateness: Lateness::default(),
            offload: None,
            wall_minus_mono: 0,
            by_queue_because: None,
            made_up: 0,
            is_behind: false,
            offloaded: TxCounters::default(),
        }
    }

    #[cold]
    fn wait_for_start(&mut self, control: &TrafficControl, now_ns: u64) -> DeviceNext {
        let at_ns = control.start_at_mono_ns.load(Ordering::Acquire);
        if self.handle.0.wants_stop() || control.stop.load(Ordering::Relaxed) {
            self.begin_at(now_ns);
            return self.finish_sending(now_ns);
        }
        if at_ns == u64::MAX {
            return DeviceNext::Until(now_ns.saturating_add(RETRY_NS + AWAKE_NS));
        }
        self.begin_at(at_ns);
        let (len, limit) = (self.walker.config().largest_frame(), self.capacity());
        if len > limit {
            self.fits_not(len, now_ns);
            return self.finish_sending(now_ns.max(at_ns));
        }
        if now_ns < at_ns {
            DeviceNext::Until(at_ns)
        } else {
            DeviceNext::Turn
        }
    }

    fn begin_at(&mut self, at_ns: u64) {
        self.started_ns = at_ns;
        self.wake_ns = at_ns;
        self.walker.started(at_ns);
        self.phase = DevicePhase::Run;
    }

    fn capacity(&mut self) -> u64 {
        self.pair.tx().frame_capacity() as u64
    }

    #[cold]
    fn reconfigure(&mut self, now_ns: u64) {
        let Some(config) = self.handle.0.take_wanted() else {
            return;
        };
        let (len, limit) = (config.largest_frame(), self.capacity());
        let refusal = if len > limit {
            Some(format!("packet size {len} exceeds {limit}"))
        } else {
            let elapsed_ns = now_ns.saturating_sub(self.started_ns);
            self.take_over(&config, elapsed_ns).err()
        };
        if refusal.is_none() {
            if config.clears != self.clears {
                self.clears = config.clears;
                self.idle_ns = 0;
                self.waiting_since = self.waiting_since.map(|_| now_ns);
            }
            self.wake_ns = self.wake_ns.min(now_ns).max(self.started_ns);
            self.unpublished = true;
        }
        self.handle.0.record_refusal(refusal);
    }

    fn take_over(&mut self, config: &DeviceConfig, elapsed_ns: u64) -> Result<(), String> {
        if self.offload.as_ref().is_some_and(|o| o.is_only_way) {
            let mut walker = self.walker.clone();
            walker
                .reconfigure_at(config, elapsed_ns)
                .map_err(|e| e.to_string())?;
            if walker.in_hand() == 0 {
                walker.recipe().map_err(beyond_the_port)?;
            }
        }
        let result = self.walker.reconfigure_at(config, elapsed_ns);
        result.map_err(|e| e.to_string())
    }

    /// Lets the port send autonomously. Returns `None` if the queue pair must send.
    fn step_offload(&mut self, now_ns: u64) -> Result<Option<DeviceNext>, PortError> {
        if self.phase != DevicePhase::Run || self.in_flight > 0 {
            return Ok(None);
        }
        let Some(offload) = &mut self.offload else {
            return Ok(None);
        };
        if !offload.matches_settings(&self.walker) {
            if self.walker.in_hand() > 0 {
                // The packet was built with the previous settings and keeps their number of copies.
                return Ok(None);
            }
            return match offload.reload(&self.walker) {
                Ok(()) => {
                    self.handle.0.stop_by(&offload.halt);
                    Ok(Some(DeviceNext::Turn))
                }
                Err(why) => self.leave_to_queue(why).map(|()| None),
            };
        }
        if self.wake_ns > now_ns.saturating_add(SOON_NS) {
            return Ok(Some(self.next(now_ns, false)));
        }
        let elapsed_ns = now_ns.saturating_sub(self.started_ns);
        let config = self.walker.config();
        let (delay, end_ns) = (config.delay, duration(config.duration_ns));
        let is_free = delay.shown_ns == 0;
        let over = elapsed_ns >= end_ns;
        if over && (is_free || delay.is_never() || elapsed_ns - end_ns >= FLIGHT_NS) {
            self.wait_in_flight(now_ns);
            return Ok(Some(self.next(now_ns, false)));
        }
        if delay.is_never() {
            self.wake_ns = self.started_ns.saturating_add(end_ns);
            return Ok(Some(self.next(now_ns, false)));
        }
        let mut frames = self.walker.remaining().unwrap_or(u64::MAX);
        if !is_free && end_ns != u64::MAX {
            frames = frames.min(self.walker.backlog(end_ns - 1));
        }
        if frames == 0 {
            if over {
                self.wait_in_flight(now_ns);
            }
            self.wake_ns = self.started_ns.saturating_add(end_ns);
            return Ok(Some(self.next(now_ns, false)));
        }
        let grace_ns = if is_free { 0 } else { FLIGHT_NS };
        let until_ns = self
            .started_ns
            .saturating_add(end_ns)
            .saturating_add(grace_ns);
        self.end_of_wait(now_ns);
        let wall_minus_mono = wall_minus_mono(&self.clock, self.wall_minus_mono);
        self.wall_minus_mono = wall_minus_mono;
        let started_ns = self.started_ns;
        let Some(offload) = &mut self.offload else {
            return Ok(None);
        };
        let (taken, result) = offload.turn(
            &self.walker,
            (now_ns, started_ns),
            (frames, until_ns),
            wall_minus_mono,
        );
        self.note_offload(&taken, wall_minus_mono);
        let at_ns = self.clock.monotonic_ns();
        // While the port sends, the worker is not stalled. It may be between the end and the return of the turn.
        self.expected.sleep_until(taken.seen_ns);
        match result {
            Ok(()) => {}
            Err(error @ PortError::Unsupported { .. }) => {
                self.leave_to_queue(error.to_string())?;
                return Ok(Some(DeviceNext::Turn));
            }
            Err(error) => return Err(error),
        }
        if !is_free {
            let due_ns = self.walker.next_call().0.min(end_ns);
            self.wake_ns = self.started_ns.saturating_add(due_ns);
        }
        Ok(Some(self.next(at_ns, taken.frames > taken.refused_frames)))
    }

    /// Accounts for the frames that the port sent.
    fn note_offload(&mut self, taken: &OffloadTurn, wall_minus_mono: u64) {
        let tally = &mut self.tally;
        tally.handed_frames += taken.frames;
        tally.handed_octets += taken.octets;
        tally.refused_frames += taken.refused_frames;
        tally.returned_octets += taken.refused_octets;
        self.idle_ns += taken.idle_ns;
        let (stalls, stalled_ns, largest_gap_ns) = taken.stalls;
        self.lateness.stalls += stalls;
        self.lateness.stalled_ns += stalled_ns;
        self.lateness.largest_gap_ns = self.lateness.largest_gap_ns.max(largest_gap_ns);
        // A turn may notice a stall and end before it sends what fell due.
        self.is_behind |= stalls > 0;
        if taken.frames == 0 {
            return;
        }
        let made = DeviceTime {
            wall_ns: taken.last_departure_ns.wrapping_add(wall_minus_mono),
            mono_ns: taken.last_departure_ns,
        };
        self.walker.advance(taken.frames, made);
        self.walker.taken_back(taken.refused_frames);
        self.busy_turns += 1;
        self.unpublished = true;
        if taken.frames > taken.refused_frames {
            self.last_departure_ns = Some(taken.last_departure_ns);
        }
        let exact_ns = self.walker.config().delay.exact_ns.as_f64();
        if exact_ns > 0.0 {
            let calls = (taken.most_late_ns as f64 / exact_ns) as u64 + 1;
            let burst = self.walker.config().burst.max(1) as u64;
            self.largest_catch_up = self.largest_catch_up.max(calls * burst);
            let told = std::mem::take(&mut self.made_up);
            if std::mem::take(&mut self.is_behind) {
                let late = (calls * burst).min(taken.frames);
                self.lateness.made_up(late.saturating_sub(told), u64::MAX);
            }
        }
    }

    /// Continues through the queue pair from the current position.
    #[cold]
    fn leave_to_queue(&mut self, why: String) -> Result<(), PortError> {
        let Some(offload) = self.offload.take() else {
            return Ok(());
        };
        self.note_ports(&offload);
        if offload.is_only_way {
            return Err(PortError::Input {
                port: self.walker.config().name.clone(),
                what: beyond_the_port(&why),
            });
        }
        self.by_queue_because = Some(why);
        self.wake_ns = self.wake_ns.min(self.clock.monotonic_ns());
        Ok(())
    }

    fn note_ports(&mut self, offload: &DeviceOffload) {
        let (all, calls, full) = offload.totals();
        let sent = all.submitted_frames - all.refused_frames;
        let tx = &mut self.offloaded;
        tx.submitted_frames += all.submitted_frames;
        tx.sent_frames += sent;
        // Without the FCS.
        tx.sent_octets += all.submitted_octets - all.refused_octets - 4 * sent;
        tx.refused_frames += all.refused_frames;
        tx.kicks += calls;
        tx.full_events += full;
    }

    fn tx_counters(&self, own: TxCounters) -> TxCounters {
        let (a, b) = (own, self.offloaded);
        TxCounters {
            submitted_frames: a.submitted_frames + b.submitted_frames,
            sent_frames: a.sent_frames + b.sent_frames,
            sent_octets: a.sent_octets + b.sent_octets,
            refused_frames: a.refused_frames + b.refused_frames,
            kicks: a.kicks + b.kicks,
            full_events: a.full_events + b.full_events,
            ..a
        }
    }

    /// Sends what is due and handles returned frames.
    #[inline]
    fn step(&mut self, now_ns: u64) -> Result<DeviceNext, PortError> {
        if self.offload.is_some()
            && let Some(next) = self.step_offload(now_ns)?
        {
            return Ok(next);
        }
        let filled = match self.phase {
            DevicePhase::Run if now_ns >= self.wake_ns => self.fill(now_ns),
            _ => 0,
        };
        if filled == 0 && self.in_flight == 0 {
            return Ok(self.next(now_ns, false));
        }
        if filled > 0 {
            self.busy_turns += 1;
            self.unpublished = true;
            self.end_of_wait(now_ns);
            self.pair.tx().submit(filled);
        }
        let flushed = self.flush(now_ns, filled)?;
        let went_well = filled > flushed.refused;
        Ok(self.next(flushed.at_ns, went_well))
    }

    /// Writes due frames into slots of the port. Returns their number.
    #[inline]
    fn fill(&mut self, now_ns: u64) -> usize {
        let elapsed_ns = now_ns - self.started_ns;
        let config = self.walker.config();
        let (delay, duration_ns) = (config.delay, config.duration_ns);
        let end_ns = duration(duration_ns);
        let is_free = delay.shown_ns == 0;
        if elapsed_ns >= end_ns && (is_free || delay.is_never() || elapsed_ns - end_ns >= FLIGHT_NS)
        {
            self.wait_in_flight(now_ns);
            return 0;
        }
        if delay.is_never() {
            self.wake_ns = self.started_ns.saturating_add(end_ns);
            return 0;
        }
        let horizon_ns = elapsed_ns.min(end_ns - 1);
        let tx = self.pair.tx();
        let most = match self.offload {
            // Until its port continues.
            Some(_) => usize::try_from(self.walker.in_hand()).unwrap_or(usize::MAX),
            None => usize::MAX,
        };
        let room = tx.lend(tx.batch_hint()).min(most);
        let mut filled = 0;
        let mut octets = 0;
        let mut next_due_ns = 0;
        let mut too_long = None;
        let clock = &self.clock;
        'batch: while filled < room {
            let Some(call) = self.walker.poll_with(|form| time(clock, form)) else {
                break;
            };
            if call.due_ns > horizon_ns {
                next_due_ns = call.due_ns;
                break;
            }
            let len = call.frame.len();
            let copies = usize::try_from(call.copies).unwrap_or(usize::MAX);
            let copies = copies.min(room - filled);
            for i in filled..filled + copies {
                let Slot {
                    bytes,
                    len: size,
                    cookie,
                } = tx.slot(i);
                let Some(bytes) = bytes.get_mut(..len) else {
                    too_long = Some(len as u64);
                    break 'batch;
                };
                bytes.copy_from_slice(call.frame);
                *size = len as u32;
                // A stale mark must not claim that the slot still holds an earlier frame.
                *cookie = 0;
            }
            self.walker.sent(copies as u64);
            filled += copies;
            octets += copies as u64 * (len as u64 + 4);
        }
        self.tally.handed_frames += filled as u64;
        self.tally.handed_octets += octets;
        if let Some(len) = too_long {
            self.fits_not(len, now_ns);
        } else if next_due_ns == 0 {
            self.note_backlog(filled, horizon_ns, is_free);
        } else if next_due_ns >= end_ns && elapsed_ns >= end_ns {
            self.wait_in_flight(now_ns);
        } else {
            self.wake_ns = self.started_ns.saturating_add(next_due_ns.min(end_ns));
            self.note_caught_up(filled, is_free);
        }
        filled
    }

    #[cold]
    fn fits_not(&mut self, len: u64, now_ns: u64) {
        let limit = self.capacity();
        self.end.fault = Some(PortError::Input {
            port: self.walker.config().name.clone(),
            what: format!("packet size {len} exceeds {limit}"),
        });
        self.wait_in_flight(now_ns);
    }

    #[inline]
    fn note_caught_up(&mut self, filled: usize, is_free: bool) {
        if !is_free {
            self.largest_catch_up = self.largest_catch_up.max(filled as u64);
        }
    }

    /// The batch was full before it contained all due frames.
    #[inline]
    fn note_backlog(&mut self, filled: usize, horizon_ns: u64, is_free: bool) {
        if !is_free {
            let due = filled as u64 + self.walker.backlog(horizon_ns);
            self.largest_catch_up = self.largest_catch_up.max(due);
        }
    }

    #[inline]
    fn flush(&mut self, now_ns: u64, filled: usize) -> Result<FlushResult, PortError> {
        let result = self.pair.tx().flush();
        let refused = self.take_refused();
        // Compared with the state after the last turn: `lend` may have reclaimed frames too.
        let before = self.in_flight + filled;
        self.in_flight = self.pair.tx().in_flight();
        let ended = before.saturating_sub(self.in_flight);
        let mut at_ns = now_ns;
        if ended > 0 {
            at_ns = self.clock.monotonic_ns();
            self.unpublished = true;
        }
        if ended > refused {
            self.last_departure_ns = Some(at_ns);
        }
        result.map(|()| FlushResult { refused, at_ns })
    }

    #[inline]
    fn take_refused(&mut self) -> usize {
        let tally = &mut self.tally;
        let mut refused = 0;
        self.pair.tx().take_refused(|frame| {
            refused += 1;
            tally.returned_octets += frame.len() as u64 + 4;
        });
        tally.refused_frames += refused as u64;
        self.walker.taken_back(refused as u64);
        refused
    }

    /// Selects the next step. `went_well`: the port has just accepted frames.
    #[inline]
    fn next(&mut self, now_ns: u64, went_well: bool) -> DeviceNext {
        match self.phase {
            DevicePhase::Run if self.walker.has_reached_count() && self.in_flight == 0 => {
                return self.finish_sending(now_ns);
            }
            DevicePhase::Run if self.wake_ns <= now_ns && went_well => return DeviceNext::Turn,
            DevicePhase::Flight { until_ns } if self.in_flight == 0 || now_ns >= until_ns => {
                return self.finish_sending(now_ns);
            }
            _ => {}
        }
        self.waiting_since
            .get_or_insert(now_ns.max(self.started_ns));
        if self.in_flight > 0 || self.wake_ns <= now_ns {
            // The port is full: let other threads run before the next attempt.
            return DeviceNext::Pause;
        }
        DeviceNext::Until(self.wake_ns)
    }

    fn end_of_wait(&mut self, now_ns: u64) {
        if let Some(since_ns) = self.waiting_since.take() {
            self.idle_ns += now_ns.saturating_sub(since_ns);
        }
    }

    #[inline]
    fn expect_wake(&mut self, next: DeviceNext) {
        if let DeviceNext::Until(at_ns) = next {
            self.expected.sleep_until(at_ns);
        }
    }

    /// Handles a gap between turns: all frames that fell due meanwhile leave at once. Frames are given up only at the
    /// end of the duration.
    #[cold]
    fn was_away(&mut self, now_ns: u64, away_ns: u64) {
        if self.phase != DevicePhase::Run || now_ns < self.started_ns {
            return;
        }
        let duration_ns = self.walker.config().duration_ns;
        let last_ns = duration_ns.checked_sub(1).unwrap_or(u64::MAX);
        let elapsed_ns = (now_ns - self.started_ns).min(last_ns);
        let before = match (now_ns - self.started_ns).checked_sub(away_ns) {
            Some(since_ns) => self.walker.backlog(since_ns.min(last_ns)),
            None => 0,
        };
        let due = self.walker.backlog(elapsed_ns).saturating_sub(before);
        let due = due.min(self.walker.remaining().unwrap_or(u64::MAX));
        self.lateness.made_up(due, u64::MAX);
        self.made_up = due;
    }

    /// Stops handing out frames.
    #[cold]
    fn wait_in_flight(&mut self, now_ns: u64) {
        if self.phase == DevicePhase::Run {
            self.phase = DevicePhase::Flight {
                until_ns: now_ns.saturating_add(FLIGHT_NS),
            };
        }
    }

    #[cold]
    fn finish_sending(&mut self, now_ns: u64) -> DeviceNext {
        if self.phase != DevicePhase::Done {
            self.phase = DevicePhase::Done;
            self.end_of_wait(now_ns);
            self.stopped_ns = now_ns.max(self.started_ns);
            // The last turn of the port may have waited until a moment after `now_ns`.
            self.idle_ns = self.idle_ns.min(self.stopped_ns - self.started_ns);
            self.take_refused();
            let (walker, tally) = (&mut self.walker, &mut self.tally);
            let mut withdrawn = 0;
            self.pair.tx().withdraw(|frame| {
                withdrawn += 1;
                tally.returned_octets += frame.len() as u64 + 4;
            });
            tally.withdrawn_frames += withdrawn;
            walker.withdrawn(withdrawn);
            self.in_flight = 0;
        }
        DeviceNext::Done
    }

    #[cold]
    fn end_with_error(&mut self, error: PortError) -> DeviceNext {
        let now_ns = self.clock.monotonic_ns();
        match error {
            PortError::LinkDown { .. } => self.end.link_down = true,
            error => self.end.fault = Some(error),
        }
        self.finish_sending(now_ns)
    }

    /// Publishes the progress. `lasting`: this is the final update, so it waits for readers.
    #[cold]
    fn publish(&mut self, now_ns: u64, lasting: bool) {
        self.unpublished = false;
        self.published_ns = now_ns;
        let waited_ns = match self.waiting_since {
            Some(since_ns) if !lasting => now_ns.saturating_sub(since_ns),
            _ => 0,
        };
        self.walker.idle(self.idle_ns + waited_ns);
        self.walker
            .stopped(if lasting { self.stopped_ns } else { now_ns });
        if lasting {
            self.handle.0.publish(self.walker.progress());
        } else {
            self.handle.0.try_show(self.walker.progress());
        }
        self.handle.0.counters().publish(&CounterValues {
            offered_frames: self
                .tally
                .offered_frames()
                .saturating_sub(self.in_flight as u64),
            offered_octets: self.tally.offered_octets(),
            refused_frames: self.tally.refused_frames,
            unsent_frames: if lasting {
                self.unsent().unwrap_or(0)
            } else {
                0
            },
            ..CounterValues::default()
        });
    }

    /// Intended frames that did not leave; `None` without an intended number.
    fn unsent(&self) -> Option<u64> {
        let config = self.walker.config();
        let remaining = self.walker.remaining();
        if self.walker.has_reached_count() {
            return Some(0);
        }
        if (self.end.fault.is_some() || self.end.link_down) && remaining.is_some() {
            return remaining;
        }
        if config.delay.shown_ns == 0 {
            return None;
        }
        let mut elapsed_ns = self.stopped_ns.saturating_sub(self.started_ns);
        if config.duration_ns != 0 {
            elapsed_ns = elapsed_ns.min(config.duration_ns - 1);
        }
        let returned = self.tally.refused_frames + self.tally.withdrawn_frames;
        let unsent = self.walker.backlog(elapsed_ns) + returned;
        Some(unsent.min(remaining.unwrap_or(u64::MAX)))
    }
}

impl<Q: QueuePair, C: Clock> DeviceTurn for DeviceSender<Q, C> {
    fn turn(&mut self, control: &TrafficControl) -> DeviceNext {
        let now_ns = self.clock.monotonic_ns();
        if self.turns == 0 {
            self.expected
                .first_due(control.start_at_mono_ns.load(Ordering::Acquire));
        }
        self.turns += 1;
        let away_ns = self.expected.begin(now_ns);
        let began =
            (self.phase == DevicePhase::Before).then(|| self.wait_for_start(control, now_ns));
        if self.lateness.away(now_ns, away_ns) {
            self.was_away(now_ns, away_ns);
        }
        if let Some(next) = began {
            self.expect_wake(next);
            return next;
        }
        let generation = self.handle.0.generation();
        if generation != self.generation {
            self.generation = generation;
            self.reconfigure(now_ns);
        }
        if self.handle.0.wants_stop() || control.stop.load(Ordering::Relaxed) {
            self.wait_in_flight(now_ns);
        }
        let next = match self.step(now_ns) {
            Ok(next) => next,
            Err(error) => self.end_with_error(error),
        };
        let sleeps = matches!(next, DeviceNext::Until(at_ns) if at_ns > now_ns + AWAKE_NS);
        if now_ns.saturating_sub(self.published_ns) >= PUBLISH_NS || self.unpublished && sleeps {
            self.publish(now_ns, false);
        }
        self.expect_wake(next);
        next
    }

    fn finish(mut self: Box<Self>) -> DeviceOutcome {
        let now_ns = self.clock.monotonic_ns();
        self.finish_sending(now_ns);
        self.publish(self.stopped_ns, true);
        self.handle.0.show_end(DeviceEnd {
            walker: self.walker.clone(),
            stopped_ns: self.stopped_ns,
            idle_ns: self.idle_ns,
            fault: self.end.fault.as_ref().map(ToString::to_string),
        });
        let wall_minus_mono = {
            let mono_ns = self.clock.monotonic_ns();
            self.clock.wall_ns().wrapping_sub(mono_ns)
        };
        if let Some(offload) = self.offload.take() {
            self.note_ports(&offload);
        }
        let own = self.pair.tx().counters();
        let offered_frames = self.tally.offered_frames();
        DeviceOutcome {
            started_ns: self.started_ns,
            stopped_ns: self.stopped_ns,
            idle_ns: self.idle_ns,
            intended_frames: self.unsent().map(|unsent| offered_frames + unsent),
            offered_frames,
            offered_octets: self.tally.offered_octets(),
            refused_frames: self.tally.refused_frames,
            withdrawn_frames: self.tally.withdrawn_frames,
            largest_catch_up_frames: self.largest_catch_up,
            last_departure_ns: self.last_departure_ns.unwrap_or(self.started_ns),
            last_departure_wall_ns: self
                .last_departure_ns
                .map_or(0, |mono_ns| mono_ns.wrapping_add(wall_minus_mono)),
            turns: self.turns,
            busy_turns: self.busy_turns,
            tx: self.tx_counters(own),
            rx: self.pair.rx().counters(),
            fault: self.end.fault,
            link_down: self.end.link_down,
            lateness: self.lateness,
            by_queue_because: self.by_queue_because,
            walker: self.walker,
        }
    }
}

/// Offset from the monotonic to the wall clock. Returns `last` unless the difference exceeds the measurement error.
fn wall_minus_mono<C: Clock>(clock: &C, last: u64) -> u64 {
    let look = || {
        let before_ns = clock.monotonic_ns();
        let wall_ns = clock.wall_ns();
        let took_ns = clock.monotonic_ns() - before_ns;
        (took_ns, wall_ns.wrapping_sub(before_ns + took_ns / 2))
    };
    let quickest = (0..LOOKS).map(|_| look()).min();
    let (took_ns, offset) = quickest.unwrap_or_default();
    match offset.abs_diff(last) <= took_ns {
        true => last,
        false => offset,
    }
}

/// Duration in ns, unlimited if 0.
const fn duration(ns: u64) -> u64 {
    match ns {
        0 => u64::MAX,
        ns => ns,
    }
}

fn beyond_the_port(why: &str) -> String {
    format!("not supported by the live driver: {why}; use the xdp or packet driver")
}

/// Reads only the clock that the time format needs.
#[inline]
fn time<C: Clock>(clock: &C, form: TimeForm) -> DeviceTime {
    match form {
        TimeForm::Kernel => DeviceTime {
            wall_ns: clock.wall_ns(),
            mono_ns: 0,
        },
        TimeForm::Osta => DeviceTime {
            wall_ns: 0,
            mono_ns: clock.monotonic_ns(),
        },
    }
}
