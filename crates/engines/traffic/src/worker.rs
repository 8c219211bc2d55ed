//! The one loop: send what is due, look at what came, say how it goes, wait.
//!
//! Waiting costs accuracy or a processor, so it depends on what is at stake. The next departure is
//! awaited asleep until shortly before, then awake; arrivals carry stamps of the kernel or the
//! device, so for them it is asleep always.

use std::sync::atomic::Ordering;
use std::time::Duration;

use wb_measure::Counters;
use wb_model::lateness::{Lateness, Turns};
use wb_port::{PortError, QueuePair, RxCounters, RxQueue, TxCounters, TxQueue};

use crate::{
    Clock, Control, CounterValues, Receiver, ReceiverOutcome, Sender, SenderOutcome,
    SharedCounters, control::ShownFlows, sender::Progress,
};

/// What a sleep may be late by: a sender is awake this long before a departure.
const AWAKE_NS: u64 = 60_000;
/// The longest wait without a look at the flags.
const POLL_INTERVAL_NS: u64 = 10_000_000;
/// Between two tries while the link is down.
const RETRY_NS: u64 = 1_000_000;
/// Counters are published after so many frames, and before every wait.
const PUBLISH_FRAMES: usize = 1024;
/// … or so much time.
const PUBLISH_NS: u64 = 1_000_000;
/// Frames received in a turn: few where a departure may be due.
const RECEIVE_BETWEEN: usize = 64;
const RECEIVE_ALONE: usize = 256;
/// Frames taken at most after the finish, where no stamp tells which arrived before; more than any
/// ring holds.
const LAST_FRAMES: usize = 1 << 25;

/// What one worker does. Either half may be missing.
pub struct Worker {
    /// What it sends.
    pub sender: Option<Sender>,
    /// What it receives.
    pub receiver: Option<Receiver>,
}

/// What one worker did.
#[derive(Debug)]
pub struct WorkerOutcome {
    /// The account of what it sent.
    pub sender: Option<SenderOutcome>,
    /// What it measured.
    pub receiver: Option<ReceiverOutcome>,
    /// What the sending half of its queue pair counted.
    pub tx: TxCounters,
    /// What the receiving half counted.
    pub rx: RxCounters,
    /// What ended it before its time.
    pub fault: Option<PortError>,
    /// How long the link was down while it sent: from the first refusal to the first frame that left again.
    pub link_down_ns: u64,
    /// How often the link went down.
    pub link_downs: u64,
    /// How late it was, besides what the sender tells.
    pub lateness: Lateness,
}

impl WorkerOutcome {
    /// How late it was, with what its rings dropped for it.
    #[must_use]
    pub fn lateness(&self) -> Lateness {
        let sender = self.sender.as_ref().map(|s| s.lateness);
        Lateness {
            dropped_reads: self.rx.dropped_frames,
            ..self.lateness.plus(&sender.unwrap_or_default())
        }
    }
}

/// Does the work of one worker until all is sent and, if it receives, the session says finish.
pub fn run_worker<Q: QueuePair, C: Clock>(
    pair: &mut Q,
    worker: Worker,
    control: &Control,
    shared: &SharedCounters,
    clock: &C,
) -> WorkerOutcome {
    let (tx, rx) = pair.split();
    let running = worker.sender.as_ref().map(|_| Running {
        control,
        last_departure_wall_ns: 0,
    });
    let mut run = Run {
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
    let fault = run.work().err();
    run.conclude(fault)
}

impl CounterValues {
    /// Those of a sender that runs.
    pub(crate) fn sending(&mut self, progress: &Progress) {
        self.offered_frames = progress.offered_frames;
        self.offered_octets = progress.offered_octets;
        self.refused_frames = progress.refused_frames;
        self.unsent_frames = progress.unsent_frames;
        self.ramp_frames = progress.ramp_frames;
    }

    /// Those of a sender that has ended.
    pub(crate) fn sent(&mut self, outcome: &SenderOutcome) {
        for stream in &outcome.streams {
            let intended = stream.intended_frames.unwrap_or(stream.offered_frames);
            self.offered_frames += stream.offered_frames;
            self.offered_octets += stream.offered_octets;
            self.refused_frames += stream.refused_frames;
            self.unsent_frames += intended.saturating_sub(stream.offered_frames);
        }
        self.ramp_frames = outcome.ramp_frames;
    }

    /// Those of a receiver, with number and sum of its latencies.
    pub(crate) fn received(&mut self, counters: &Counters, (samples, sum): (u64, u128)) {
        self.received_frames = counters.received_frames;
        self.received_octets = counters.received_octets;
        self.duplicate_frames = counters.duplicate_frames;
        self.reordered_frames = counters.reordered_frames;
        self.late_frames = counters.late_frames;
        self.foreign_frames = counters.foreign_frames;
        self.latency_samples = samples;
        self.latency_sum_ns = sum as u64;
    }
}

struct Run<'a, T, R, C> {
    tx: &'a mut T,
    rx: &'a mut R,
    sender: Option<Sender>,
    receiver: Option<Receiver>,
    running: Option<Running<'a>>,
    control: &'a Control,
    shared: &'a SharedCounters,
    clock: &'a C,
    sent: Option<SenderOutcome>,
    started: bool,
    stopped: bool,
    /// The port has nothing more to receive: the end of a file.
    received_all: bool,
    unpublished: usize,
    published_ns: u64,
    /// When it waited last.
    waited_ns: u64,
    /// Frames have come since.
    came: bool,
    down: Option<Down>,
    link_down_ns: u64,
    link_downs: u64,
    /// Of turns without a sender.
    expected: Turns,
    lateness: Lateness,
    /// Nothing was received since the worker was away.
    stalled: bool,
}

/// A sender that the session waits for. Counts itself out also when the worker panics.
struct Running<'a> {
    control: &'a Control,
    last_departure_wall_ns: u64,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.control.sender_ended(self.last_departure_wall_ns);
    }
}

/// A link that took no frames.
#[derive(Clone, Copy)]
struct Down {
    since_ns: u64,
    /// Frames that had left when it was met last.
    sent_frames: u64,
}

/// What the sending half wants next.
#[derive(Clone, Copy)]
enum Wish {
    /// Go on at once.
    Turn,
    /// Nothing can be done but look again soon: the device is full.
    Pause,
    /// Nothing to do before this time.
    Until(u64),
}

impl<T: TxQueue, R: RxQueue, C: Clock> Run<'_, T, R, C> {
    fn work(&mut self) -> Result<(), PortError> {
        while !self.control.finish.load(Ordering::Acquire) {
            let wish = match self.sender.is_some() {
                true => self.send()?,
                false => self.look(),
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
    fn look(&mut self) -> Wish {
        let now_ns = self.clock.monotonic_ns();
        let away_ns = self.expected.begin(now_ns);
        self.stalled |= self.lateness.away(now_ns, away_ns);
        Wish::Until(u64::MAX)
    }

    /// Takes what arrived before the end and has not been handed over yet.
    #[cold]
    fn receive_the_last(&mut self) -> Result<(), PortError> {
        if self.receiver.is_none() {
            return Ok(());
        }
        // All workers end at the same time: the session's, else that of the first to get here.
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
            // Before the look into the ring: what comes between the two is then looked for again.
            let held = self.clock.monotonic_ns() < until_ns;
            let n = self.receive(left.min(RECEIVE_ALONE))?;
            // Several lanes may bring more than was asked of each.
            left = left.saturating_sub(n);
            let behind = self.receiver.as_ref().is_some_and(Receiver::saw_the_end);
            if !held && (n == 0 || behind) {
                break;
            }
            if n == 0 {
                self.wait(Wish::Until(until_ns))?;
            }
        }
        Ok(())
    }

    #[inline]
    fn send(&mut self) -> Result<Wish, PortError> {
        let Some(sender) = &mut self.sender else {
            return Ok(Wish::Turn);
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
        let step = match sender.step(self.tx, self.clock) {
            Ok(step) => step,
            Err(error) if error.is_transient() => return Ok(self.link_is_down()),
            Err(error) => return Err(error),
        };
        if self.down.is_some() {
            self.look_whether_link_is_up(step.now_ns);
        }
        self.unpublished += step.sent;
        if step.sent > 0 && step.now_ns.saturating_sub(self.published_ns) >= PUBLISH_NS {
            self.publish();
            self.published_ns = step.now_ns;
        }
        if step.done {
            self.end_sender();
            return Ok(Wish::Turn);
        }
        Ok(match step.next_due_ns {
            _ if step.sent > 0 => Wish::Turn,
            Some(due) if due <= step.now_ns => Wish::Pause,
            Some(due) if due - step.now_ns <= AWAKE_NS => Wish::Turn,
            Some(due) => Wish::Until((due - AWAKE_NS).min(step.now_ns + POLL_INTERVAL_NS)),
            None => Wish::Until(step.now_ns + RETRY_NS),
        })
    }

    #[cold]
    fn link_is_down(&mut self) -> Wish {
        let now_ns = self.clock.monotonic_ns();
        let since_ns = match self.down {
            Some(down) => down.since_ns,
            None => {
                self.link_downs += 1;
                // To be seen by the next wait.
                self.unpublished = self.unpublished.max(1);
                now_ns
            }
        };
        self.down = Some(Down {
            since_ns,
            sent_frames: self.tx.counters().sent_frames,
        });
        Wish::Until(now_ns + RETRY_NS)
    }

    /// A turn without an error is no sign of a link: there may have been nothing to hand over, and a device may
    /// drop a frame or two before it says why. A frame that left is one.
    #[cold]
    fn look_whether_link_is_up(&mut self, now_ns: u64) {
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
            if let Some(mut running) = self.running.take() {
                running.last_departure_wall_ns = last;
            }
            self.sent = Some(outcome);
            self.publish();
        }
    }

    /// The port has nothing more to receive; the session may want to know.
    #[cold]
    fn exhausted(&mut self) {
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
        receiver.since(self.control.since_wall_ns.load(Ordering::Relaxed));
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
                self.exhausted();
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
    fn wait(&mut self, wish: Wish) -> Result<(), PortError> {
        let until = match wish {
            Wish::Turn => {
                std::hint::spin_loop();
                return Ok(());
            }
            Wish::Pause => {
                self.clock.pause();
                return Ok(());
            }
            Wish::Until(until) => until,
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
                Err(PortError::EndOfFile { .. }) => self.exhausted(),
                Err(error) if !error.is_transient() => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// How long to sleep whatever comes: to be woken for each of many frames costs more time than to read them, and
    /// the time of whoever brings them: of the device, where it works on this machine.
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
            (Some(sender), _) => values.sending(&sender.progress(self.tx.in_flight())),
            (None, Some(outcome)) => values.sent(outcome),
            (None, None) => {}
        }
        if let Some(receiver) = &self.receiver {
            values.received(&receiver.counters(), receiver.latency());
        }
        values.link_down = self.down.is_some().into();
        self.shared.publish(&values);
        if self.shared.latency.is_wanted() {
            self.show_times_and_flows();
        }
    }

    /// Whether nobody was just reading.
    fn show_times_and_flows(&self) -> bool {
        let Some(receiver) = &self.receiver else {
            return true;
        };
        let shown = &self.shared.latency;
        self.shared
            .flows
            .show(receiver.first_flows(ShownFlows::MOST))
            && shown.show(|outline| receiver.latencies().for_each(|l| outline.add(l)))
    }

    fn conclude(mut self, fault: Option<PortError>) -> WorkerOutcome {
        self.end_sender();
        self.publish();
        // Nobody holds it for longer than a copy takes.
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
