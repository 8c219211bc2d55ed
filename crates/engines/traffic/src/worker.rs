//! The main loop of a worker: send what is due, process received frames, publish counters, wait.
//!
//! Waiting costs either accuracy or CPU time. For the next departure the worker sleeps until shortly before, then
//! busy-waits. For arrivals it always sleeps, because they carry timestamps of the kernel or the device.

use std::sync::atomic::Ordering;
use std::time::Duration;

use wb_measure::Counters;
use wb_model::lateness::{Lateness, Turns};
use wb_port::{
    PortError, QueuePair, RxCounters, RxQueue, TxCounters, TxQueue,
    worker_loop::{LAST_FRAMES, POLL_INTERVAL_NS, RETRY_NS},
};

use crate::{
    Clock, CounterValues, Receiver, ReceiverOutcome, Sender, SenderOutcome, SharedCounters,
    TrafficControl, sender::Progress,
};

/// Maximum wake-up delay of a sleep: a worker is awake this long before a departure.
pub(crate) const AWAKE_NS: u64 = 60_000;
/// Counters are published after this number of frames, and before every wait.
const PUBLISH_FRAMES: usize = 1024;
/// Maximum interval between updates of the counters; also updated before every sleep.
pub(crate) const PUBLISH_NS: u64 = 1_000_000;
/// Frames received per turn if a departure may be due.
const RECEIVE_BETWEEN: usize = 64;
const RECEIVE_ALONE: usize = 256;

/// Halves of one worker. Either may be missing.
pub struct Worker {
    /// Sending half.
    pub sender: Option<Sender>,
    /// Receiving half.
    pub receiver: Option<Receiver>,
}

/// Results of one worker.
#[derive(Debug)]
pub struct WorkerOutcome {
    /// Results of its sender.
    pub sender: Option<SenderOutcome>,
    /// Measurements of its receiver.
    pub receiver: Option<ReceiverOutcome>,
    /// Counters of the transmit half of its queue pair.
    pub tx: TxCounters,
    /// Counters of the receive half.
    pub rx: RxCounters,
    /// Error that ended it early.
    pub fault: Option<PortError>,
    /// Link outage while sending: from the first refusal to the first frame that left again.
    pub link_down_ns: u64,
    /// Number of link outages.
    pub link_downs: u64,
    /// Lateness, in addition to that of the sender.
    pub lateness: Lateness,
}

impl WorkerOutcome {
    /// Total lateness, with the frames dropped by its rings.
    #[must_use]
    pub fn lateness(&self) -> Lateness {
        let sender = self.sender.as_ref().map(|s| s.lateness);
        Lateness {
            dropped_reads: self.rx.dropped_frames,
            ..self.lateness.plus(&sender.unwrap_or_default())
        }
    }
}

/// Runs one worker until everything is sent and, if it receives, the engine sets `finish`.
pub fn run_worker<Q: QueuePair, C: Clock>(
    pair: &mut Q,
    worker: Worker,
    control: &TrafficControl,
    shared: &SharedCounters,
    clock: &C,
) -> WorkerOutcome {
    let (tx, rx) = pair.split();
    let running = worker.sender.as_ref().map(|_| RunningSender {
        control,
        last_departure_wall_ns: 0,
    });
    let mut run = WorkerRun {
        tx,
        rx,
        sender: worker.sender,
        receiver: worker.receiver,
        running,
        control,
        shared,
        clock,
        sent: None,
        started: false,
        stopped: false,
        orders: 0,
        received_all: false,
        unpublished: 0,
        published_ns: 0,
        waited_ns: 0,
        came: false,
        down: None,
        link_down_ns: 0,
        link_downs: 0,
        expected: Turns::default(),
        lateness: Lateness::default(),
        stalled: false,
    };
    let fault = run.run_until_end().err();
    run.conclude(fault)
}

impl CounterValues {
    /// Sets the counters of a running sender.
    pub(crate) fn set_sending(&mut self, progress: &Progress) {
        self.offered_frames = progress.offered_frames;
        self.offered_octets = progress.offered_octets;
        self.refused_frames = progress.refused_frames;
        self.unsent_frames = progress.unsent_frames;
        self.ramp_frames = progress.ramp_frames;
    }

    /// Sets the counters of a sender that has ended.
    pub(crate) fn set_sent(&mut self, outcome: &SenderOutcome) {
        for stream in &outcome.streams {
            let intended = stream.intended_frames.unwrap_or(stream.offered_frames);
            self.offered_frames += stream.offered_frames;
            self.offered_octets += stream.offered_octets;
            self.refused_frames += stream.refused_frames;
            self.unsent_frames += intended.saturating_sub(stream.offered_frames);
        }
        self.ramp_frames = outcome.ramp_frames;
    }

    /// Sets the counters of a receiver, with number and sum of its latencies.
    pub(crate) fn set_received(&mut self, counters: &Counters, (samples, sum): (u64, u128)) {
        self.received_frames = counters.received_frames;
        self.received_octets = counters.received_octets;
        self.duplicate_frames = counters.duplicate_frames;
        self.reordered_frames = counters.reordered_frames;
        self.outages = counters.outages;
        self.late_frames = counters.late_frames;
        self.foreign_frames = counters.foreign_frames;
        self.latency_samples = samples;
        self.latency_sum_ns = sum as u64;
    }
}

struct WorkerRun<'a, T, R, C> {
    tx: &'a mut T,
    rx: &'a mut R,
    sender: Option<Sender>,
    receiver: Option<Receiver>,
    running: Option<RunningSender<'a>>,
    control: &'a TrafficControl,
    shared: &'a SharedCounters,
    clock: &'a C,
    sent: Option<SenderOutcome>,
    started: bool,
    stopped: bool,
    /// Number of orders that the sender has followed.
    orders: usize,
    /// The port has reached the end of a capture file.
    received_all: bool,
    unpublished: usize,
    published_ns: u64,
    /// Time of the last wait.
    waited_ns: u64,
    /// Frames have arrived since.
    came: bool,
    down: Option<DownLink>,
    link_down_ns: u64,
    link_downs: u64,
    /// Expected turns without a sender.
    expected: Turns,
    lateness: Lateness,
    /// The worker was stalled and has received no frame since.
    stalled: bool,
}

/// A sender that the engine waits for. Decrements the sender count even if the worker panics.
struct RunningSender<'a> {
    control: &'a TrafficControl,
    last_departure_wall_ns: u64,
}

impl Drop for RunningSender<'_> {
    fn drop(&mut self) {
        self.control.sender_ended(self.last_departure_wall_ns);
    }
}

/// A link that accepts no frames.
#[derive(Clone, Copy)]
struct DownLink {
    since_ns: u64,
    /// Frames that had left at the last check.
    sent_frames: u64,
}

/// Next action requested by the sending half.
#[derive(Clone, Copy)]
enum NextAction {
    /// Continue at once.
    Turn,
    /// Yield and retry soon: the device is full.
    Pause,
    /// Sleep until this time.
    Until(u64),
}

impl<T: TxQueue, R: RxQueue, C: Clock> WorkerRun<'_, T, R, C> {
    fn run_until_end(&mut self) -> Result<(), PortError> {
        while !self.control.finish.load(Ordering::Acquire) {
            let wish = match self.sender.is_some() {
                true => self.send()?,
                false => self.idle_turn(),
            };
            if self.sender.is_none() && self.receiver.is_none() {
                return Ok(());
            }
            let most = if self.sender.is_some() {
                RECEIVE_BETWEEN
            } else {
                RECEIVE_ALONE
            };
            if self.receive(most)? > 0 {
                continue;
            }
            self.wait(wish)?;
        }
        self.receive_the_last()
    }

    /// A turn without a sender.
    #[inline]
    fn idle_turn(&mut self) -> NextAction {
        let now_ns = self.clock.monotonic_ns();
        let away_ns = self.expected.begin(now_ns);
        self.stalled |= self.lateness.away(now_ns, away_ns);
        NextAction::Until(u64::MAX)
    }

    /// Reads frames that arrived before the end and have not been delivered yet.
    #[cold]
    fn receive_the_last(&mut self) -> Result<(), PortError> {
        if self.receiver.is_none() {
            return Ok(());
        }
        // All workers end at the same time: the engine's, else that of the first worker that gets here.
        let _ = self.control.end_wall_ns.compare_exchange(
            u64::MAX,
            self.clock.wall_ns(),
            Ordering::AcqRel,
            Ordering::Acquire,
        );
        let hold_ns = u64::try_from(self.rx.longest_hold().as_nanos()).unwrap_or(0);
        let until_ns = self.clock.monotonic_ns().saturating_add(hold_ns);
        let mut left = LAST_FRAMES;
        while left > 0 {
            // Before the ring is read: frames that arrive between the two are then read in another pass.
            let held = self.clock.monotonic_ns() < until_ns;
            let n = self.receive(left.min(RECEIVE_ALONE))?;
            // Several lanes may deliver more than requested from each.
            left = left.saturating_sub(n);
            let behind = self.receiver.as_ref().is_some_and(Receiver::saw_the_end);
            if !held && (n == 0 || behind) {
                break;
            }
            if n == 0 {
                self.wait(NextAction::Until(until_ns))?;
            }
        }
        Ok(())
    }

    #[inline]
    fn send(&mut self) -> Result<NextAction, PortError> {
        let Some(sender) = &mut self.sender else {
            return Ok(NextAction::Turn);
        };
        if !self.started {
            let at = self.control.start_at_mono_ns.load(Ordering::Acquire);
            self.started = at != u64::MAX;
            sender.start(at);
        }
        if self.control.stop.load(Ordering::Relaxed) && !self.stopped {
            self.stopped = true;
            sender.abort();
        }
        if self.shared.orders.given() != self.orders && self.started {
            let orders = self.shared.orders.since(self.orders);
            let now_ns = self.clock.monotonic_ns();
            sender.follow(now_ns, &orders);
            self.orders += orders.len();
        }
        let step = match sender.step(self.tx, self.clock) {
            Ok(step) => step,
            Err(error) if error.is_transient() => return Ok(self.link_is_down()),
            Err(error) => return Err(error),
        };
        if self.down.is_some() {
            self.check_link_up(step.now_ns);
        }
        self.unpublished += step.sent;
        if step.sent > 0 && step.now_ns.saturating_sub(self.published_ns) >= PUBLISH_NS {
            self.publish();
            self.published_ns = step.now_ns;
        }
        if step.done {
            self.end_sender();
            return Ok(NextAction::Turn);
        }
        Ok(match step.next_due_ns {
            _ if step.sent > 0 => NextAction::Turn,
            Some(due) if due <= step.now_ns => NextAction::Pause,
            Some(due) if due - step.now_ns <= AWAKE_NS => NextAction::Turn,
            Some(due) => NextAction::Until((due - AWAKE_NS).min(step.now_ns + POLL_INTERVAL_NS)),
            None => NextAction::Until(step.now_ns + RETRY_NS),
        })
    }

    #[cold]
    fn link_is_down(&mut self) -> NextAction {
        let now_ns = self.clock.monotonic_ns();
        let since_ns = match self.down {
            Some(down) => down.since_ns,
            None => {
                self.link_downs += 1;
                // Makes the next wait publish it.
                self.unpublished = self.unpublished.max(1);
                now_ns
            }
        };
        self.down = Some(DownLink {
            since_ns,
            sent_frames: self.tx.counters().sent_frames,
        });
        NextAction::Until(now_ns + RETRY_NS)
    }

    /// Checks for the end of a link outage. A turn without an error does not prove it: perhaps nothing was submitted,
    /// and a device may drop a frame or two before it reports the reason. A frame that left does.
    #[cold]
    fn check_link_up(&mut self, now_ns: u64) {
        let sent_frames = self.tx.counters().sent_frames;
        if self.down.is_some_and(|down| sent_frames > down.sent_frames) {
            self.link_is_up(now_ns);
        }
    }

    #[cold]
    fn link_is_up(&mut self, now_ns: u64) {
        if let Some(down) = self.down.take() {
            self.link_down_ns += now_ns.saturating_sub(down.since_ns);
        }
    }

    #[cold]
    fn end_sender(&mut self) {
        if let Some(sender) = self.sender.take() {
            let outcome = sender.finish(self.tx);
            let last = match outcome.last_departure_wall_ns {
                0 => self.clock.wall_ns(),
                last => last,
            };
            self.shared.ended_sender.publish(&outcome);
            if let Some(mut running) = self.running.take() {
                running.last_departure_wall_ns = last;
            }
            self.sent = Some(outcome);
            self.publish();
        }
    }

    /// Records that the port is exhausted and notifies the engine.
    #[cold]
    fn mark_exhausted(&mut self) {
        if !self.received_all {
            self.received_all = true;
            self.control
                .receivers_exhausted
                .fetch_add(1, Ordering::AcqRel);
            self.control.ended.call();
        }
    }

    #[inline]
    fn receive(&mut self, most: usize) -> Result<usize, PortError> {
        let Some(receiver) = &mut self.receiver else {
            return Ok(0);
        };
        if self.received_all {
            return Ok(0);
        }
        receiver.ignore_before(self.control.since_wall_ns.load(Ordering::Relaxed));
        receiver.end_at(self.control.end_wall_ns.load(Ordering::Relaxed));
        let drain_since = self.control.drain_since_wall_ns.load(Ordering::Relaxed);
        let stepped = match std::mem::take(&mut self.stalled) {
            false => receiver.step(self.rx, most, drain_since),
            true => {
                let age_ns = &mut self.lateness.oldest_read_ns;
                receiver.step_late(self.rx, most, drain_since, self.clock.wall_ns(), age_ns)
            }
        };
        let n = match stepped {
            Ok(n) => n,
            Err(PortError::EndOfFile { .. }) => {
                self.mark_exhausted();
                0
            }
            Err(error) if error.is_transient() => 0,
            Err(error) => return Err(error),
        };
        self.came |= n > 0;
        self.unpublished += n;
        if self.unpublished >= PUBLISH_FRAMES {
            self.publish();
        }
        Ok(n)
    }

    #[inline]
    fn wait(&mut self, wish: NextAction) -> Result<(), PortError> {
        let until = match wish {
            NextAction::Turn => {
                std::hint::spin_loop();
                return Ok(());
            }
            NextAction::Pause => {
                self.clock.pause();
                return Ok(());
            }
            NextAction::Until(until) => until,
        };
        if self.unpublished > 0 || self.shared.latency.is_wanted() {
            self.publish();
        }
        let now_ns = self.clock.monotonic_ns();
        let nap_ns = self.nap_ns(now_ns);
        let until = until.min(now_ns + nap_ns.unwrap_or(POLL_INTERVAL_NS));
        match &mut self.sender {
            Some(sender) => sender.sleep_until(until),
            None => self.expected.sleep_until(until),
        }
        if nap_ns.is_some() || self.receiver.is_none() || self.received_all {
            self.clock.sleep_until(until);
        } else if until > now_ns {
            match self.rx.wait(Duration::from_nanos(until - now_ns)) {
                Err(PortError::EndOfFile { .. }) => self.mark_exhausted(),
                Err(error) if !error.is_transient() => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// Time to sleep regardless of arrivals. A wake-up for each of many frames costs more time than reading them, and
    /// also delays the sender if it runs on this machine.
    fn nap_ns(&mut self, now_ns: u64) -> Option<u64> {
        let since_ns = now_ns.saturating_sub(std::mem::replace(&mut self.waited_ns, now_ns));
        let came = std::mem::take(&mut self.came);
        let nap_ns = self.rx.longest_nap().as_nanos() as u64;
        (came && self.sender.is_none() && since_ns <= 2 * nap_ns).then_some(nap_ns)
    }

    #[cold]
    fn publish(&mut self) {
        self.unpublished = 0;
        let mut values = CounterValues::default();
        match (&self.sender, &self.sent) {
            (Some(sender), _) => values.set_sending(&sender.progress(self.tx.in_flight())),
            (None, Some(outcome)) => values.set_sent(outcome),
            (None, None) => {}
        }
        if let Some(receiver) = &self.receiver {
            values.set_received(&receiver.counters(), receiver.latency_sum());
        }
        values.link_down = self.down.is_some().into();
        self.shared.publish(&values);
        if self.shared.latency.is_wanted() {
            self.show_times_and_flows();
        }
    }

    /// Publishes latencies, flows and streams. Returns false if a reader held a lock.
    fn show_times_and_flows(&self) -> bool {
        let streams = &self.shared.streams;
        let is_shown = match (&self.sender, &self.sent) {
            (Some(sender), _) => streams.try_publish(sender.stream_counts()),
            (None, Some(outcome)) => streams.try_publish(outcome.stream_counts()),
            (None, None) => true,
        };
        let (shown, flows) = (&self.shared.latency, &self.shared.flows);
        is_shown
            && match &self.receiver {
                None => shown.show(|_| {}),
                Some(receiver) => {
                    flows.try_publish(receiver.first_flows(flows.wanted()))
                        && shown.show(|outline| receiver.add_latencies(outline))
                }
            }
    }

    fn conclude(mut self, fault: Option<PortError>) -> WorkerOutcome {
        self.end_sender();
        self.publish();
        // A reader holds the lock only for the time of a copy.
        while !self.show_times_and_flows() {
            std::hint::spin_loop();
        }
        let now_ns = self.clock.monotonic_ns();
        self.link_is_up(now_ns);
        WorkerOutcome {
            sender: self.sent,
            receiver: self.receiver.map(Receiver::finish),
            tx: self.tx.counters(),
            rx: self.rx.counters(),
            fault,
            link_down_ns: self.link_down_ns,
            link_downs: self.link_downs,
            lateness: self.lateness,
        }
    }
}
