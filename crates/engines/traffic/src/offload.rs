//! The loop of a worker with a port that sends or receives autonomously.
//!
//! It starts the port's turns, publishes counters, and passes on the start of the drain and the end.

use std::sync::atomic::Ordering;

use wb_model::lateness::Lateness;
use wb_port::offload::ReceiveOffload;
use wb_port::{PortError, RxCounters, StampSource, TxCounters, worker_loop::RETRY_NS};

use crate::sender::OffloadedSender;
use crate::{
    Clock, CounterValues, ReceiverOutcome, SenderOutcome, SharedCounters, TrafficControl,
    WorkerOutcome,
};

/// Interval between checks of the engine's signals.
const LOOK_NS: u64 = 1_000_000;
/// Clock comparisons; the quickest one counts.
const LOOKS: usize = 32;

/// Halves of one worker. Either may be missing.
pub struct OffloadedWorker {
    /// Sending half.
    pub sender: Option<OffloadedSender>,
    /// Receiving half.
    pub receiver: Option<Box<dyn ReceiveOffload>>,
}

impl OffloadedWorker {
    /// Starts counting of received frames. Call it for all workers of a run before any of them may send: a thread that
    /// starts late must not miss frames that others already sent, because no socket stores them.
    pub fn start_counting<C: Clock>(&mut self, control: &TrafficControl, clock: &C) {
        let offset = wall_minus_mono(control, clock);
        if let Some(receiver) = &mut self.receiver {
            receiver.begin(offset);
        }
        if let Some(sender) = &mut self.sender {
            sender.stamp_with(offset);
        }
    }
}

/// Offset from the monotonic to the wall clock, the same for all workers of a run.
fn wall_minus_mono<C: Clock>(control: &TrafficControl, clock: &C) -> u64 {
    let look = || {
        let before = clock.monotonic_ns();
        let wall = clock.wall_ns();
        let took = clock.monotonic_ns() - before;
        (took, wall.wrapping_sub(before + took / 2))
    };
    let quickest = (0..LOOKS).map(|_| look()).min();
    let ours = quickest.map_or(0, |(_, offset)| offset);
    let shared = &control.wall_minus_mono;
    match shared.compare_exchange(0, ours, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => ours,
        Err(theirs) => theirs,
    }
}

/// Runs one worker until everything is sent and, if it receives, the engine sets `finish`. Calls
/// [`start_counting`](OffloadedWorker::start_counting) if that has not been done.
pub fn run_offloaded<C: Clock>(
    mut worker: OffloadedWorker,
    control: &TrafficControl,
    shared: &SharedCounters,
    clock: &C,
) -> WorkerOutcome {
    worker.start_counting(control, clock);
    let OffloadedWorker { sender, receiver } = worker;
    let mut run = OffloadedRun {
        running: sender.is_some(),
        sender,
        receiver,
        control,
        shared,
        clock,
        sent: None,
        started: false,
        stopped: false,
        down: None,
        link_down_ns: 0,
        link_downs: 0,
    };
    let fault = run.run_until_end().err();
    run.conclude(fault)
}

struct OffloadedRun<'a, C: Clock> {
    sender: Option<OffloadedSender>,
    receiver: Option<Box<dyn ReceiveOffload>>,
    control: &'a TrafficControl,
    shared: &'a SharedCounters,
    clock: &'a C,
    sent: Option<SenderOutcome>,
    /// The engine waits for a sender that has not ended.
    running: bool,
    started: bool,
    stopped: bool,
    /// Start of the link outage, and the frames submitted by then.
    down: Option<(u64, u64)>,
    link_down_ns: u64,
    link_downs: u64,
}

impl<C: Clock> Drop for OffloadedRun<'_, C> {
    fn drop(&mut self) {
        // Also if the worker panics.
        if self.running {
            self.control.sender_ended(0);
        }
    }
}

impl<C: Clock> OffloadedRun<'_, C> {
    fn run_until_end(&mut self) -> Result<(), PortError> {
        while !self.control.finish.load(Ordering::Acquire) {
            let until_ns = match self.sender.is_some() {
                true => self.send()?,
                false => Some(self.clock.monotonic_ns() + LOOK_NS),
            };
            if self.sender.is_none() && self.receiver.is_none() {
                return Ok(());
            }
            self.pass_on();
            self.publish();
            if let Some(until_ns) = until_ns {
                let until_ns = until_ns.min(self.clock.monotonic_ns() + LOOK_NS);
                self.clock.sleep_until(until_ns);
            }
        }
        Ok(())
    }

    /// Passes times to the receiver: the start of the run, the start of the drain, and the end of counting.
    fn pass_on(&mut self) {
        if let Some(receiver) = &mut self.receiver {
            receiver.since(self.control.since_wall_ns.load(Ordering::Relaxed));
            receiver.drain_since(self.control.drain_since_wall_ns.load(Ordering::Relaxed));
            receiver.end_at(self.control.end_wall_ns.load(Ordering::Relaxed));
        }
    }

    /// Takes a turn. Returns the time until which to sleep, if any.
    fn send(&mut self) -> Result<Option<u64>, PortError> {
        let Some(sender) = &mut self.sender else {
            return Ok(None);
        };
        if !self.started {
            let at = self.control.start_at_mono_ns.load(Ordering::Acquire);
            if at == u64::MAX && !self.control.stop.load(Ordering::Relaxed) {
                return Ok(Some(self.clock.monotonic_ns() + LOOK_NS));
            }
            self.started = true;
            sender.start(at);
        }
        if self.control.stop.load(Ordering::Relaxed) && !self.stopped {
            self.stopped = true;
            sender.abort();
        }
        let step = match sender.step(self.clock) {
            Ok(step) => step,
            Err(error) if error.is_transient() => return Ok(Some(self.link_is_down())),
            Err(error) => return Err(error),
        };
        if step.sent > 0 {
            self.link_is_up(step.now_ns);
        }
        if step.done {
            self.end_sender();
            return Ok(None);
        }
        let due = step.next_due_ns.filter(|due| *due > step.now_ns);
        if let (Some(due), Some(sender)) = (due, &mut self.sender) {
            sender.sleep_until(due);
        }
        Ok(due)
    }

    fn link_is_down(&mut self) -> u64 {
        let now_ns = self.clock.monotonic_ns();
        let submitted = self.sender.as_ref().map_or(0, OffloadedSender::submitted);
        let since_ns = match self.down {
            Some((since_ns, _)) => since_ns,
            None => {
                self.link_downs += 1;
                now_ns
            }
        };
        self.down = Some((since_ns, submitted));
        if let Some(sender) = &mut self.sender {
            sender.sleep_until(now_ns + RETRY_NS);
        }
        now_ns + RETRY_NS
    }

    fn link_is_up(&mut self, now_ns: u64) {
        if let Some((since_ns, _)) = self.down.take() {
            self.link_down_ns += now_ns.saturating_sub(since_ns);
        }
    }

    fn end_sender(&mut self) {
        if let Some(sender) = self.sender.take() {
            let outcome = sender.finish();
            let last = match outcome.last_departure_wall_ns {
                0 => self.clock.wall_ns(),
                last => last,
            };
            self.shared.ended_sender.publish(&outcome);
            self.running = false;
            self.control.sender_ended(last);
            self.sent = Some(outcome);
        }
    }

    fn publish(&mut self) {
        let mut values = CounterValues::default();
        match (&self.sender, &self.sent) {
            (Some(sender), _) => values.set_sending(&sender.progress()),
            (None, Some(outcome)) => values.set_sent(outcome),
            (None, None) => {}
        }
        if let Some(receiver) = &self.receiver {
            values.set_received(&receiver.counters(), receiver.latency());
        }
        if self.shared.latency.is_wanted() {
            self.publish_statistics();
        }
        values.link_down = self.down.is_some().into();
        self.shared.publish(&values);
    }

    /// Publishes latencies, flows and streams. Returns false if a reader held a lock.
    fn publish_statistics(&self) -> bool {
        let streams = &self.shared.streams;
        let is_shown = match (&self.sender, &self.sent) {
            (Some(sender), _) => streams.try_publish(sender.stream_counts()),
            (None, Some(outcome)) => streams.try_publish(outcome.stream_counts()),
            (None, None) => true,
        };
        let Some(receiver) = &self.receiver else {
            return is_shown && self.shared.latency.show(|_| {});
        };
        let shown = &self.shared.flows;
        let latencies = receiver.latencies();
        is_shown
            && shown.try_publish(receiver.first_flows(shown.wanted()).into_iter())
            && (self.shared.latency).show(|outline| latencies.iter().for_each(|l| outline.add(l)))
    }

    fn conclude(mut self, fault: Option<PortError>) -> WorkerOutcome {
        self.end_sender();
        self.pass_on();
        self.publish();
        // A reader holds the lock only for the time of a copy.
        while !self.publish_statistics() {
            std::hint::spin_loop();
        }
        self.link_is_up(self.clock.monotonic_ns());
        let tx = self
            .sent
            .as_ref()
            .map_or_else(TxCounters::default, |s| s.tx);
        let rx = RxCounters {
            dropped_frames: self.receiver.as_ref().map_or(0, |r| r.dropped_frames()),
            ..RxCounters::default()
        };
        let receiver = self.receiver.take().map(|receiver| {
            let measurement = receiver.measurement();
            let frames = measurement.counters.received_frames;
            ReceiverOutcome {
                ramp_frames: receiver.ramp_frames(),
                stamp_sources: if frames > 0 {
                    vec![(StampSource::KernelXdp, frames)]
                } else {
                    Vec::new()
                },
                measurement,
                turns: 0,
                busy_turns: 0,
            }
        });
        WorkerOutcome {
            sender: self.sent.take(),
            receiver,
            tx,
            rx,
            fault,
            link_down_ns: self.link_down_ns,
            link_downs: self.link_downs,
            lateness: Lateness::default(),
        }
    }
}
