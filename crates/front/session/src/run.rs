//! Carries out a prepared plan: starts workers, watches, stops, reads the counters.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use wb_host::clock::{ClockOffset, monotonic_ns, wall_minus_monotonic, wall_ns};
use wb_model::{Phase, Report, Snapshot, Totals};
use wb_port::QueuePair;
use wb_traffic::{
    Control, CounterValues, FlowSpace, PKTGEN_FLOW, Receiver, ReceiverSpec, Sender, SenderSpec,
    SharedCounters, Worker, WorkerOutcome, run_worker,
};

use crate::{
    StartError, SystemClock, account,
    ports::{self, AnyQueue, OpenPort},
    prepare::{Prepared, Way, is_tagged},
};

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// All that was planned was done.
    Completed,
    /// A signal asked for the end.
    Signal(i32),
    /// Something broke after the start: a device vanished, a thread died.
    Fault(String),
}

/// The final account and how it came to be final.
#[derive(Debug)]
pub struct Finished {
    /// The report.
    pub report: Report,
    /// How the run ended.
    pub end: End,
}

impl Finished {
    /// The exit code of a native command: 0 all criteria held, 1 one did not, 4 a fault,
    /// 128 + n after signal n.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match &self.end {
            End::Signal(n) => u8::try_from(128 + n).unwrap_or(130),
            End::Fault(_) => 4,
            // Without criteria nothing was to be proved: the report says what may be ours.
            End::Completed
                if self.report.criteria.is_empty()
                    && self.report.lateness.may_have_caused.is_some()
                    && self.report.totals.offered_frames != Some(0) =>
            {
                0
            }
            End::Completed => match self.report.verdict {
                wb_model::Verdict::Fail => 1,
                wb_model::Verdict::Invalid => 3,
                wb_model::Verdict::Pass | wb_model::Verdict::Incomplete => 0,
            },
        }
    }
}

/// Time between the start order and the first frame, for all workers to be ready.
const LEAD: Duration = Duration::from_millis(30);
/// Priority of workers: their rings overflow when a compiler has the CPU.
const WORKER_NICE: i32 = -15;
/// How often the controlling thread looks at signals and workers.
const LOOK: Duration = Duration::from_millis(5);

/// A worker and where it belongs.
pub(crate) struct Seat {
    pub(crate) port: usize,
    pub(crate) queue: u32,
    pub(crate) cpu: Option<u32>,
    /// The way it sends for, as an index, if it does.
    pub(crate) sends: Option<usize>,
    /// The way it receives for, as an index, if it does.
    pub(crate) receives: Option<usize>,
    shared: Arc<SharedCounters>,
    thread: Option<JoinHandle<WorkerOutcome>>,
    pub(crate) outcome: Option<WorkerOutcome>,
}

/// Everything the report is made of.
pub(crate) struct Ended {
    pub(crate) started_wall_ns: u64,
    pub(crate) elapsed_ns: u64,
    pub(crate) clock_step_ns: i64,
    /// The most by which a monotonic time and a wall time of the same moment were told apart wrongly.
    pub(crate) clock_error_ns: u64,
    pub(crate) end: End,
    pub(crate) seats: Vec<Seat>,
    pub(crate) before: Vec<BTreeMap<String, u64>>,
    pub(crate) after: Vec<BTreeMap<String, u64>>,
}

/// The longest a job may go on sending, ns; `None` without an end.
fn planned_end_ns(prepared: &Prepared) -> Option<u64> {
    let mut end = 0;
    for job in &prepared.plan.traffic {
        let length = job.duration.map(|d| d.as_nanos());
        let by_count = job.count.filter(|_| job.tx.is_some()).and_then(|count| {
            let way = prepared
                .ways
                .iter()
                .find(|w| w.streams.iter().any(|s| s.pps.is_some()))?;
            let pps: f64 = way
                .streams
                .iter()
                .filter_map(|s| s.pps)
                .map(wb_model::units::Rational::as_f64)
                .sum();
            (pps > 0.0).then(|| (count as f64 / pps * 1e9) as u64)
        });
        let length = match (length, by_count) {
            (Some(a), Some(b)) => a.min(b),
            (Some(a), None) => a,
            (None, b) => b?,
        };
        end = end.max(job.start.as_nanos() + job.ramp.as_nanos() + length);
    }
    Some(end)
}

/// How long receivers go on after the last frame was sent.
fn drain_ns(prepared: &Prepared, seats: &[Seat]) -> u64 {
    if seats.iter().all(|s| s.receives.is_none()) {
        return 0;
    }
    prepared
        .plan
        .traffic
        .iter()
        .map(|j| j.drain.as_nanos())
        .max()
        .unwrap_or(0)
}

fn sender_for(
    prepared: &Prepared,
    way: &Way,
    worker: u32,
    workers: u32,
    capacity: usize,
) -> Result<Sender, StartError> {
    let job = &prepared.plan.traffic[way.job];
    let spec = SenderSpec {
        streams: way.streams.clone(),
        worker,
        workers,
        seed: prepared.plan.seed,
        start_offset_ns: job.start.as_nanos(),
        duration_ns: job.duration.map(|d| d.as_nanos()),
        count: job.count,
        ramp_ns: job.ramp.as_nanos(),
        catch_up_ns: job.catch_up.as_nanos(),
        departures: job.departures,
    };
    Sender::new(&spec, capacity).map_err(|e| StartError::stream(way.name.clone(), e.to_string()))
}

fn receiver_for(way: &Way, lanes: usize) -> Receiver {
    let flows = if way.tx.is_some() {
        FlowSpace::Planned {
            first: way.first_flow,
            count: way.flows,
        }
    } else {
        FlowSpace::Open { limit: 1 << 20 }
    };
    let pktgen = way
        .streams
        .iter()
        .find(|s| is_tagged(&s.stream) && s.stream.tag == wb_model::TagKind::Pktgen);
    let spec = ReceiverSpec {
        flows,
        untagged_is_ours: way.streams.iter().any(|s| !is_tagged(&s.stream)),
        recordings: way
            .streams
            .iter()
            .filter_map(|s| s.replay.clone())
            .collect(),
        // Who only receives takes either form of the tag.
        pktgen_flow: match way.tx {
            Some(_) => pktgen.map(|s| s.first_flow - way.first_flow),
            None => Some(PKTGEN_FLOW),
        },
    };
    Receiver::for_lanes(&spec, lanes)
}

/// Marks the run as faulted where the thread that holds it panics: the controlling thread would wait
/// for it to the end of the run.
pub(crate) struct Alarm(pub(crate) Arc<AtomicBool>);

impl Drop for Alarm {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.store(true, Ordering::Release);
        }
    }
}

/// Gives the calling thread its CPU and its rank among the others.
pub(crate) fn settle_worker(cpu: Option<u32>) {
    if let Some(cpu) = cpu {
        // A worker that cannot be pinned still works; `doctor` says why it could not.
        let _ = wb_host::cpu::pin(cpu);
    }
    // Ahead of whatever else the machine does; not permitted to everyone, and then left.
    let _ = wb_host::cpu::set_nice(WORKER_NICE);
    // Without it sleeps end up to 50 us late (prctl(2), PR_SET_TIMERSLACK).
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
}

/// Starts the worker of one queue pair, in a loop compiled for its driver.
fn start<Q: QueuePair + 'static>(
    mut pair: Q,
    worker: Worker,
    cpu: Option<u32>,
    name: String,
    control: Arc<Control>,
    shared: Arc<SharedCounters>,
    faulted: Arc<AtomicBool>,
) -> Result<JoinHandle<WorkerOutcome>, StartError> {
    std::thread::Builder::new()
        .name(name)
        .spawn(move || {
            let alarm = Alarm(faulted);
            settle_worker(cpu);
            let outcome = run_worker(&mut pair, worker, &control, &shared, &SystemClock);
            if outcome.fault.is_some() {
                alarm.0.store(true, Ordering::Release);
            }
            outcome
        })
        .map_err(|cause| StartError::System {
            operation: "start a worker",
            cause,
        })
}

/// Ends the workers that have been started, and waits for them.
fn dismiss(control: &Control, seats: &mut [Seat]) {
    control.stop.store(true, Ordering::Release);
    control.finish.store(true, Ordering::Release);
    for thread in seats.iter_mut().filter_map(|s| s.thread.take()) {
        let _ = thread.join();
    }
}

/// How far the wall clock moved against the steady one; 0 where that is within the error of
/// reading the two.
pub(crate) fn clock_step(before: ClockOffset, after: ClockOffset) -> i64 {
    let step = after.ns - before.ns;
    if step.unsigned_abs() <= before.error_ns + after.error_ns {
        0
    } else {
        step
    }
}

impl Prepared {
    /// Runs the plan to its end. `observe` is called once per interval with the counters so far.
    ///
    /// # Errors
    /// Only before the first frame: when a stream does not fit a port's buffers or a thread cannot
    /// be started.
    pub fn run(mut self, observe: &mut dyn FnMut(&Snapshot)) -> Result<Finished, StartError> {
        let cpus = wb_host::cpu::online().unwrap_or_default();
        let (placement, crowded) = ports::place(&self.ports, &cpus);
        self.warnings.extend(crowded);

        let control = Arc::new(Control::new());
        let faulted = Arc::new(AtomicBool::new(false));
        let mut seats = Vec::new();
        let before: Vec<_> = self.ports.iter().map(OpenPort::counters).collect();
        let mut workers = Vec::new();
        for (port, cpus) in placement.iter().enumerate() {
            let queues = std::mem::take(&mut self.ports[port].queues);
            let count = u32::try_from(queues.len()).unwrap_or(u32::MAX);
            let sends = self.ways.iter().position(|w| w.tx == Some(port));
            let receives = self.ways.iter().position(|w| w.rx == Some(port));
            for (queue, mut pair) in (0..).zip(queues) {
                let capacity = pair.frame_capacity();
                let sender = sends
                    .map(|w| sender_for(&self, &self.ways[w], queue, count, capacity))
                    .transpose()?;
                let lanes = pair.lanes();
                let receiver = receives.map(|w| receiver_for(&self.ways[w], lanes));
                if receives.is_some_and(|w| self.ways[w].tx.is_some()) {
                    pair.discard_stale();
                }
                workers.push((pair, Worker { sender, receiver }));
                seats.push(Seat {
                    port,
                    queue,
                    cpu: cpus.get(queue as usize).copied(),
                    sends,
                    receives,
                    shared: Arc::new(SharedCounters::default()),
                    thread: None,
                    outcome: None,
                });
            }
        }

        let senders = seats.iter().filter(|s| s.sends.is_some()).count();
        control.senders_running.store(senders, Ordering::Release);
        let offset = wall_minus_monotonic();
        let start_ns = monotonic_ns() + u64::try_from(LEAD.as_nanos()).unwrap_or(0);
        control.start_at_mono_ns.store(start_ns, Ordering::Release);
        let mut refused = None;
        for (seat, (pair, worker)) in seats.iter_mut().zip(workers) {
            let port = &self.ports[seat.port];
            let name = format!("wb-{}-{}-{}", port.role(), port.plan.name, seat.queue);
            let (control, shared, faulted) = (
                Arc::clone(&control),
                Arc::clone(&seat.shared),
                Arc::clone(&faulted),
            );
            let cpu = seat.cpu;
            let started = match pair {
                AnyQueue::Xdp(q) => start(q, worker, cpu, name, control, shared, faulted),
                AnyQueue::XdpGroup(q) => start(q, worker, cpu, name, control, shared, faulted),
                AnyQueue::Packet(q) => start(q, worker, cpu, name, control, shared, faulted),
                AnyQueue::Memory(q) => start(q, worker, cpu, name, control, shared, faulted),
                AnyQueue::File(q) => start(q, worker, cpu, name, control, shared, faulted),
            };
            match started {
                Ok(thread) => seat.thread = Some(thread),
                Err(error) => {
                    refused = Some(error);
                    break;
                }
            }
        }
        if let Some(error) = refused {
            // Those that run already must not send on with nobody to end them.
            dismiss(&control, &mut seats);
            return Err(error);
        }

        let started_wall_ns = wall_ns() + u64::try_from(LEAD.as_nanos()).unwrap_or(0);
        let mut live = Live::new(&self, &seats, start_ns);
        let end = self.watch(start_ns, &control, &faulted, &seats, &mut live, observe);
        let mut dead = None;
        for seat in &mut seats {
            if let Some(thread) = seat.thread.take() {
                match thread.join() {
                    Ok(outcome) => seat.outcome = Some(outcome),
                    Err(_) => {
                        dead = Some("a worker thread panicked; its counts are missing".to_owned())
                    }
                }
            }
        }
        observe(&live.snapshot(&seats, monotonic_ns(), Phase::Done));
        let fault = seats.iter().find_map(|s| {
            s.outcome
                .as_ref()
                .and_then(|o| o.fault.as_ref())
                .map(ToString::to_string)
        });
        let end = match dead.or(fault) {
            Some(text) => End::Fault(text),
            None => end,
        };
        let after = self.ports.iter().map(OpenPort::counters).collect();
        let offset_after = wall_minus_monotonic();
        let mut ended = Ended {
            started_wall_ns,
            elapsed_ns: monotonic_ns().saturating_sub(start_ns),
            clock_step_ns: clock_step(offset, offset_after),
            clock_error_ns: offset.error_ns.max(offset_after.error_ns),
            end: end.clone(),
            seats,
            before,
            after,
        };
        let report = account::report(&self, &mut ended);
        Ok(Finished { report, end })
    }

    /// Waits for the end of the run, whichever comes first, and publishes snapshots meanwhile.
    fn watch(
        &self,
        start_ns: u64,
        control: &Control,
        faulted: &AtomicBool,
        seats: &[Seat],
        live: &mut Live,
        observe: &mut dyn FnMut(&Snapshot),
    ) -> End {
        let interval = self.plan.interval.as_nanos();
        let drain = drain_ns(self, seats);
        let sending = seats.iter().any(|s| s.sends.is_some());
        let receivers = seats.iter().filter(|s| s.receives.is_some()).count();
        let mut end = End::Completed;
        let mut drain_until: Option<u64> = None;
        let mut next_snapshot = start_ns + interval;
        loop {
            std::thread::sleep(LOOK);
            let now = monotonic_ns();
            if end == End::Completed {
                if let Some(signal) = self.signals.received() {
                    end = End::Signal(signal);
                } else if faulted.load(Ordering::Acquire) {
                    end = End::Fault(String::new());
                }
                if end != End::Completed {
                    control.stop.store(true, Ordering::Release);
                }
            }
            let sent_all = control.senders_running.load(Ordering::Acquire) == 0;
            // Files end by themselves.
            let exhausted =
                receivers > 0 && control.receivers_exhausted.load(Ordering::Acquire) == receivers;
            let received_all =
                exhausted || self.receive_only_end(start_ns).is_none_or(|t| now >= t);
            let stopping = end != End::Completed;
            if drain_until.is_none() && sent_all && (received_all || stopping) {
                drain_until = Some(if sending { now + drain } else { now });
            }
            if self.signals.hurry() {
                drain_until = Some(now);
            }
            if now >= next_snapshot {
                let phase = live.phase(self, now, drain_until.is_some());
                observe(&live.snapshot(seats, now, phase));
                while next_snapshot <= now {
                    next_snapshot += interval;
                }
            }
            if drain_until.is_some_and(|t| now >= t) {
                // What is stamped later is lost, whenever a worker gets to look.
                control.end_wall_ns.store(wall_ns(), Ordering::Release);
                control.finish.store(true, Ordering::Release);
                return end;
            }
        }
    }

    /// When the last job that only receives is over; `Some(u64::MAX)` if one has no end, `None`
    /// without such jobs.
    fn receive_only_end(&self, start_ns: u64) -> Option<u64> {
        self.plan
            .traffic
            .iter()
            .filter(|j| j.tx.is_none())
            .map(|j| {
                j.duration
                    .map_or(u64::MAX, |d| start_ns + j.start.as_nanos() + d.as_nanos())
            })
            .max()
    }
}

/// What the snapshots are made of.
struct Live {
    start_ns: u64,
    whole_ns: Option<u64>,
    sends: bool,
    receives: bool,
    both: bool,
    last: CounterValues,
    last_ns: u64,
}

impl Live {
    fn new(prepared: &Prepared, seats: &[Seat], start_ns: u64) -> Self {
        let whole_ns = planned_end_ns(prepared).map(|p| p + drain_ns(prepared, seats));
        Self {
            start_ns,
            whole_ns,
            sends: seats.iter().any(|s| s.sends.is_some()),
            receives: seats.iter().any(|s| s.receives.is_some()),
            both: prepared
                .ways
                .iter()
                .all(|w| w.tx.is_some() && w.rx.is_some()),
            last: CounterValues::default(),
            last_ns: start_ns,
        }
    }

    fn phase(&self, prepared: &Prepared, now: u64, draining: bool) -> Phase {
        let ramp = prepared
            .plan
            .traffic
            .iter()
            .map(|j| j.start.as_nanos() + j.ramp.as_nanos())
            .max()
            .unwrap_or(0);
        if draining {
            Phase::Drain
        } else if ramp > 0 && now < self.start_ns + ramp {
            Phase::Ramp
        } else {
            Phase::Running
        }
    }

    #[allow(clippy::cast_precision_loss)]
    fn snapshot(&mut self, seats: &[Seat], now: u64, phase: Phase) -> Snapshot {
        let mut sum = CounterValues::default();
        for seat in seats {
            sum += seat.shared.read();
        }
        let interval = now.saturating_sub(self.last_ns).max(1);
        let per_second = |a: u64, b: u64| crate::clock::rate(a.saturating_sub(b), interval);
        let last = self.last;
        let unique = sum.received_frames.saturating_sub(sum.duplicate_frames);
        let samples = sum.latency_samples.saturating_sub(last.latency_samples);
        let (sends, receives) = (self.sends, self.receives);
        let snapshot = Snapshot {
            elapsed_ns: now.saturating_sub(self.start_ns),
            interval_ns: interval,
            phase,
            progress: self
                .whole_ns
                .map(|w| (now.saturating_sub(self.start_ns) as f64 / w.max(1) as f64).min(1.0)),
            totals: Totals {
                offered_frames: sends.then_some(sum.offered_frames),
                offered_octets: sends.then_some(sum.offered_octets),
                unsent_frames: sends.then_some(sum.unsent_frames),
                ramp_frames: sends.then_some(sum.ramp_frames),
                refused_frames: sends.then_some(sum.refused_frames),
                received_frames: receives.then_some(sum.received_frames),
                received_octets: receives.then_some(sum.received_octets),
                duplicate_frames: receives.then_some(sum.duplicate_frames),
                reordered_frames: receives.then_some(sum.reordered_frames),
                late_frames: receives.then_some(sum.late_frames),
                foreign_frames: receives.then_some(sum.foreign_frames),
                ..Totals::default()
            },
            offered_pps: sends
                .then(|| per_second(sum.offered_frames, last.offered_frames))
                .flatten(),
            received_pps: receives
                .then(|| per_second(sum.received_frames, last.received_frames))
                .flatten(),
            offered_l2_bps: sends
                .then(|| per_second(sum.offered_octets, last.offered_octets))
                .flatten()
                .map(|octets| 8.0 * octets),
            received_l2_bps: receives
                .then(|| per_second(sum.received_octets, last.received_octets))
                .flatten()
                .map(|octets| 8.0 * octets),
            missing_frames: self.both.then(|| sum.offered_frames.saturating_sub(unique)),
            load: None,
            socket: None,
            latency_mean_ns: (samples > 0).then(|| {
                sum.latency_sum_ns.wrapping_sub(last.latency_sum_ns) as f64 / samples as f64
            }),
        };
        (self.last, self.last_ns) = (sum, now);
        snapshot
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_raises_the_alarm() {
        for panics in [false, true] {
            let faulted = Arc::new(AtomicBool::new(false));
            let alarm = Alarm(Arc::clone(&faulted));
            let thread = std::thread::spawn(move || {
                let _alarm = alarm;
                assert!(!panics, "as it is meant to");
            });
            assert_eq!(thread.join().is_err(), panics);
            assert_eq!(faulted.load(Ordering::Acquire), panics);
        }
    }
}
