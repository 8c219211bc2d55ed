//! Carries out prepared loads: starts the workers, watches them, stops them in order.

use std::{
    any::Any,
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use wb_host::clock::{monotonic_ns, wall_minus_monotonic, wall_ns};
use wb_load::{
    LoadOutcome, LoadPhase, LoadSlot, LoadSnapshot, LoadSpec, LoadTotals, run_load_worker,
};
use wb_model::{
    Phase, Snapshot, Totals,
    load::{ConnectionTotals, LoadEnd, LoadLive, LoadStage},
};
use wb_port::QueuePair;

use super::{PreparedLoad, control::ControlPoint, report};
use crate::{
    End, Finished, StartError, SystemClock,
    ports::{self, AnyQueue, OpenPort},
    run::{Alarm, clock_step, settle_worker},
};

/// Time between the start order and the first connection, for all workers to be ready.
const LEAD: Duration = Duration::from_millis(30);
/// How long servers go on for frames that are on their way, as trials do by default.
const RESIDUE_NS: u64 = 200_000_000;
/// How often the controlling thread looks at signals and workers.
const LOOK: Duration = Duration::from_millis(5);

/// How a worker ended, and its queue pair: no queue of a port is closed while others are in use, because the
/// kernel would steer what it received to the wrong ones.
type Outcome = (Result<LoadOutcome, String>, Box<dyn Any + Send>);

/// A worker and where it belongs.
pub(super) struct Seat {
    pub(super) job: usize,
    pub(super) queue: u32,
    pub(super) cpu: Option<u32>,
    slot: Arc<LoadSlot>,
    thread: Option<JoinHandle<Outcome>>,
    pub(super) outcome: Option<LoadOutcome>,
}

impl Seat {
    fn is_over(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }
}

/// Everything the report is made of.
pub(super) struct Ended {
    pub(super) started_wall_ns: u64,
    pub(super) elapsed_ns: u64,
    pub(super) clock_step_ns: i64,
    pub(super) end: End,
    /// Told so over the control socket.
    pub(super) stopped: bool,
    pub(super) seats: Vec<Seat>,
    pub(super) before: Vec<BTreeMap<String, u64>>,
    pub(super) after: Vec<BTreeMap<String, u64>>,
}

/// A run at an instant.
pub struct LoadView<'a> {
    /// As all runs show it.
    pub snapshot: Snapshot,
    /// All clients or, without clients, all servers.
    pub sum: LoadSnapshot,
    /// Share of its time in which each of their workers had something to do since the view before, 0
    /// to 1.
    pub busy: Vec<f64>,
    /// What the interfaces count, port by port, with the names of the kernel.
    pub interfaces: &'a [BTreeMap<String, u64>],
}

/// Starts the worker of one queue pair, in a loop compiled for its driver.
fn start<Q: QueuePair + 'static>(
    mut pair: Q,
    spec: LoadSpec,
    cpu: Option<u32>,
    name: String,
    (control, slot): (Arc<wb_load::LoadControl>, Arc<LoadSlot>),
    faulted: &Arc<AtomicBool>,
) -> Result<JoinHandle<Outcome>, StartError> {
    let alarm = Alarm(Arc::clone(faulted));
    std::thread::Builder::new()
        .name(name)
        .spawn(move || {
            settle_worker(cpu);
            let result = run_load_worker(&mut pair, spec, &control, &slot, &SystemClock);
            if result
                .as_ref()
                .map_or(true, |outcome| outcome.fault.is_some())
            {
                alarm.0.store(true, Ordering::Release);
            }
            let pair: Box<dyn Any + Send> = Box::new(pair);
            (result.map_err(|e| e.to_string()), pair)
        })
        .map_err(|cause| StartError::System {
            operation: "start a worker",
            cause,
        })
}

impl PreparedLoad {
    /// Runs the loads to their end. `observe` is called once per interval with the counters so far.
    ///
    /// # Errors
    /// Only before the first connection: when a thread or the control socket cannot be made.
    pub fn run(mut self, observe: &mut dyn FnMut(&LoadView<'_>)) -> Result<Finished, StartError> {
        let mut point = self
            .control
            .as_deref()
            .map(ControlPoint::open)
            .transpose()?;
        let cpus = wb_host::cpu::online().unwrap_or_default();
        let (placement, crowded) = ports::place(&self.ports, &cpus);
        self.warnings.extend(crowded);
        let before: Vec<_> = self.ports.iter().map(OpenPort::counters).collect();
        let faulted = Arc::new(AtomicBool::new(false));
        let mut seats = self.start_workers(&placement, &faulted)?;
        let offset = wall_minus_monotonic();
        let lead = LEAD.as_nanos() as u64;
        let start_ns = monotonic_ns() + lead;
        let started_wall_ns = wall_ns() + lead;
        for job in &self.jobs {
            job.control
                .start_at_mono_ns
                .store(start_ns, Ordering::Release);
        }
        let mut live = Live::new(&self, start_ns);
        let mut end = self.watch(
            start_ns,
            &faulted,
            &seats,
            &mut live,
            point.as_mut(),
            observe,
        );
        for seat in &mut seats {
            let Some(thread) = seat.thread.take() else {
                continue;
            };
            match thread.join() {
                Ok((Ok(outcome), _)) => {
                    if let Some(fault) = &outcome.fault {
                        end = End::Fault(fault.to_string());
                    }
                    seat.outcome = Some(outcome);
                }
                Ok((Err(text), _)) => end = End::Fault(text),
                Err(_) => {
                    end = End::Fault("a worker thread panicked; its counts are missing".to_owned());
                }
            }
        }
        let after: Vec<_> = self.ports.iter().map(OpenPort::counters).collect();
        observe(&live.view(&seats, monotonic_ns(), &after));
        let ended = Ended {
            started_wall_ns,
            elapsed_ns: monotonic_ns().saturating_sub(start_ns),
            clock_step_ns: clock_step(offset, wall_minus_monotonic()),
            end: end.clone(),
            stopped: point.as_ref().is_some_and(ControlPoint::said_stop),
            seats,
            before,
            after,
        };
        let report = report::report(&self, &ended);
        Ok(Finished { report, end })
    }

    fn start_workers(
        &mut self,
        placement: &[Vec<u32>],
        faulted: &Arc<AtomicBool>,
    ) -> Result<Vec<Seat>, StartError> {
        let mut seats = Vec::new();
        for (number, job) in self.jobs.iter_mut().enumerate() {
            let port = &mut self.ports[job.port];
            let queues = std::mem::take(&mut port.queues);
            let specs = std::mem::take(&mut job.specs);
            for (queue, (mut pair, spec)) in (0..).zip(queues.into_iter().zip(specs)) {
                pair.discard_stale();
                let cpu = placement[job.port].get(queue as usize).copied();
                let name = format!("wb-load-{number}-{queue}");
                let slot = Arc::new(LoadSlot::default());
                let shared = (Arc::clone(&job.control), Arc::clone(&slot));
                let started = match pair {
                    AnyQueue::Xdp(q) => start(q, spec, cpu, name, shared, faulted),
                    AnyQueue::XdpGroup(q) => start(q, spec, cpu, name, shared, faulted),
                    AnyQueue::Packet(q) => start(q, spec, cpu, name, shared, faulted),
                    AnyQueue::Memory(q) => start(q, spec, cpu, name, shared, faulted),
                    AnyQueue::File(q) => start(q, spec, cpu, name, shared, faulted),
                };
                let thread = match started {
                    Ok(thread) => thread,
                    Err(error) => {
                        // Those that run already must not go on with nobody to end them.
                        self.jobs.iter().for_each(|job| {
                            job.control.stop.store(true, Ordering::Release);
                            job.control.hurry.store(true, Ordering::Release);
                        });
                        for thread in seats.into_iter().filter_map(|s: Seat| s.thread) {
                            let _ = thread.join();
                        }
                        return Err(error);
                    }
                };
                seats.push(Seat {
                    job: number,
                    queue,
                    cpu,
                    slot,
                    thread: Some(thread),
                    outcome: None,
                });
            }
        }
        Ok(seats)
    }

    fn end_of(&self, seat: &Seat) -> LoadEnd {
        self.plan.loads[seat.job].end
    }

    fn stop(&self, end: Option<LoadEnd>) {
        for (job, plan) in self.jobs.iter().zip(&self.plan.loads) {
            if end.is_none_or(|end| plan.end == end) {
                job.control.stop.store(true, Ordering::Release);
            }
        }
    }

    /// Waits for the end of the run and publishes what is seen meanwhile. Servers go on until the
    /// clients of the same run have ended, so that both ends count the same.
    fn watch(
        &self,
        start_ns: u64,
        faulted: &AtomicBool,
        seats: &[Seat],
        live: &mut Live,
        mut point: Option<&mut ControlPoint>,
        observe: &mut dyn FnMut(&LoadView<'_>),
    ) -> End {
        let interval = self.plan.interval.as_nanos();
        let has_clients = self.plan.loads.iter().any(|j| j.end == LoadEnd::Client);
        let mut end = End::Completed;
        let mut next_view = start_ns + interval;
        let mut clients_over = None;
        loop {
            std::thread::sleep(LOOK);
            let now = monotonic_ns();
            if end == End::Completed
                && let Some(signal) = self.signals.received()
            {
                end = End::Signal(signal);
                self.stop(has_clients.then_some(LoadEnd::Client));
            }
            if end == End::Completed && faulted.load(Ordering::Acquire) {
                // What its share of the connections would have done nobody knows; the others end in order.
                end = End::Fault(String::new());
                self.stop(has_clients.then_some(LoadEnd::Client));
            }
            if let Some(point) = &mut point
                && point.serve(self, || live.peek(seats, now))
                && end == End::Completed
            {
                self.stop(has_clients.then_some(LoadEnd::Client));
            }
            if self.signals.hurry() {
                for job in &self.jobs {
                    job.control.hurry.store(true, Ordering::Release);
                }
            }
            let over = |end: LoadEnd| {
                seats
                    .iter()
                    .filter(|s| self.end_of(s) == end)
                    .all(Seat::is_over)
            };
            if has_clients && over(LoadEnd::Client) {
                // What was sent last is still on its way.
                let since = *clients_over.get_or_insert(now);
                if now.saturating_sub(since) >= RESIDUE_NS {
                    self.stop(Some(LoadEnd::Server));
                }
            }
            if has_clients && !seats.is_empty() && over(LoadEnd::Server) && self.has_servers() {
                // They do not end by themselves: something broke.
                self.stop(None);
            }
            if now >= next_view {
                let interfaces: Vec<_> = self.ports.iter().map(OpenPort::counters).collect();
                observe(&live.view(seats, now, &interfaces));
                while next_view <= now {
                    next_view += interval;
                }
            }
            if seats.iter().all(Seat::is_over) {
                return end;
            }
        }
    }

    fn has_servers(&self) -> bool {
        self.plan.loads.iter().any(|j| j.end == LoadEnd::Server)
    }
}

/// What the views are made of.
pub(super) struct Live {
    start_ns: u64,
    whole_ns: Option<u64>,
    /// Which end is shown.
    shown: LoadEnd,
    ends: Vec<LoadEnd>,
    last: LoadSnapshot,
    last_busy: Vec<u64>,
    last_ns: u64,
}

impl Live {
    fn new(prepared: &PreparedLoad, start_ns: u64) -> Self {
        let loads = &prepared.plan.loads;
        let shown = match loads.iter().any(|j| j.end == LoadEnd::Client) {
            true => LoadEnd::Client,
            false => LoadEnd::Server,
        };
        let mut lengths = loads.iter().filter(|j| j.end == shown).map(|job| {
            let shape = &job.shape;
            let begin = shape.wait.as_nanos().max(shape.ramp.as_nanos());
            match shape.duration.as_nanos() {
                0 => None,
                duration => Some(begin + duration),
            }
        });
        Self {
            start_ns,
            whole_ns: lengths.try_fold(0, |a: u64, b| Some(a.max(b?))),
            shown,
            ends: loads.iter().map(|j| j.end).collect(),
            last: LoadSnapshot::default(),
            last_busy: Vec::new(),
            last_ns: start_ns,
        }
    }

    fn read(&self, seats: &[Seat]) -> Vec<LoadSnapshot> {
        seats
            .iter()
            .filter(|s| self.ends[s.job] == self.shown)
            .map(|s| s.slot.read())
            .collect()
    }

    /// The counters now, without a new interval.
    fn peek(&self, seats: &[Seat], now: u64) -> Snapshot {
        self.snapshot(&LoadSnapshot::sum(&self.read(seats)), now)
    }

    fn view<'a>(
        &mut self,
        seats: &[Seat],
        now: u64,
        interfaces: &'a [BTreeMap<String, u64>],
    ) -> LoadView<'a> {
        let all = self.read(seats);
        let sum = LoadSnapshot::sum(&all);
        let snapshot = self.snapshot(&sum, now);
        let interval = snapshot.interval_ns.max(1);
        self.last_busy.resize(all.len(), 0);
        let busy = all
            .iter()
            .zip(&self.last_busy)
            .map(|(s, last)| (s.busy_ns.saturating_sub(*last) as f64 / interval as f64).min(1.0))
            .collect();
        self.last_busy = all.iter().map(|s| s.busy_ns).collect();
        (self.last, self.last_ns) = (sum, now);
        LoadView {
            snapshot,
            sum,
            busy,
            interfaces,
        }
    }

    fn snapshot(&self, sum: &LoadSnapshot, now: u64) -> Snapshot {
        let interval = now.saturating_sub(self.last_ns).max(1);
        let per_second = |a: u64, b: u64| a.saturating_sub(b) as f64 * 1e9 / interval as f64;
        let (c, last) = (&sum.counters, &self.last.counters);
        let octets = |octets: u64, frames: u64| octets + 4 * frames;
        let tx = |s: &LoadSnapshot| octets(s.counters.tx_octets, s.counters.tx_frames);
        let rx = |s: &LoadSnapshot| {
            let (n, of) = s.counters.rx_of_load();
            octets(of, n)
        };
        let samples = sum.request.count - self.last.request.count;
        let elapsed = now.saturating_sub(self.start_ns);
        let totals = connections(c);
        Snapshot {
            elapsed_ns: elapsed,
            interval_ns: interval,
            phase: match sum.phase {
                LoadPhase::Ready | LoadPhase::Wait => Phase::Preparing,
                LoadPhase::Ramp => Phase::Ramp,
                LoadPhase::Steady => Phase::Running,
                LoadPhase::Drain => Phase::Drain,
                LoadPhase::Done => Phase::Done,
            },
            progress: self
                .whole_ns
                .map(|w| (elapsed as f64 / w.max(1) as f64).min(1.0)),
            totals: Totals {
                offered_frames: Some(c.tx_frames),
                offered_octets: Some(tx(sum)),
                received_frames: Some(c.rx_of_load().0),
                foreign_frames: Some(c.rx_foreign),
                received_octets: Some(rx(sum)),
                connections: Some(totals),
                ..Totals::default()
            },
            offered_pps: Some(per_second(c.tx_frames, last.tx_frames)),
            received_pps: Some(per_second(c.rx_of_load().0, last.rx_of_load().0)),
            offered_l2_bps: Some(8.0 * per_second(tx(sum), tx(&self.last))),
            received_l2_bps: Some(8.0 * per_second(rx(sum), rx(&self.last))),
            missing_frames: None,
            latency_mean_ns: None,
            socket: None,
            load: Some(LoadLive {
                phase: stage(sum.phase),
                totals,
                attempted_cps: per_second(c.attempted, last.attempted),
                established_cps: per_second(c.established, last.established),
                completed_cps: per_second(c.completed, last.completed),
                failed_cps: per_second(c.failed(), last.failed()),
                rps: per_second(c.requests, last.requests),
                request_mean_ns: (samples > 0).then(|| {
                    sum.request.sum.wrapping_sub(self.last.request.sum) as f64 / samples as f64
                }),
            }),
        }
    }
}

/// The totals of a machine.
pub(super) fn connections(c: &wb_tcp::Counters) -> ConnectionTotals {
    ConnectionTotals {
        lost_requests: c.udp_lost,
        in_flight_requests: c.udp_in_flight,
        unawaited_requests: c.unawaited,
        late_responses: c.udp_late,
        duplicate_responses: c.udp_duplicates,
        error_responses: c.status_4xx + c.status_5xx,
        attempted_connections: c.attempted,
        established_connections: c.established,
        completed_connections: c.completed,
        failed_connections: c.failed(),
        open_connections: c.open,
        requests: c.requests,
        responses: c.responses,
    }
}

const fn stage(phase: LoadPhase) -> LoadStage {
    match phase {
        LoadPhase::Ready => LoadStage::Ready,
        LoadPhase::Wait => LoadStage::Wait,
        LoadPhase::Ramp => LoadStage::Ramp,
        LoadPhase::Steady => LoadStage::Steady,
        LoadPhase::Drain => LoadStage::Drain,
        LoadPhase::Done => LoadStage::Done,
    }
}

/// The account of one job.
pub(super) fn totals_of(seats: &[Seat], job: usize) -> LoadTotals {
    LoadTotals::of(
        seats
            .iter()
            .filter(|s| s.job == job)
            .filter_map(|s| s.outcome.as_ref()),
    )
}

#[cfg(test)]
mod tests {
    use wb_model::{
        Plan, Verdict,
        load::{LoadJob, LoadRate, LoadShape},
        plan::PortPlan,
    };

    use std::sync::atomic::AtomicU32;
    use wb_port::{
        clock::Clock,
        memory::{LinkOptions, link},
    };

    use super::*;
    use crate::{Environment, load::prepare_load};

    /// Both ends of a link in memory, with two workers each.
    fn both_ends() -> Plan {
        let mut plan = Plan::default();
        for (name, end) in [("c", LoadEnd::Client), ("s", LoadEnd::Server)] {
            let locator = "memory:x".parse().unwrap();
            plan.ports.push(PortPlan {
                workers: 2,
                ..PortPlan::new(name, locator)
            });
            plan.loads.push(LoadJob {
                port: name.to_owned(),
                end,
                clients: vec!["198.18.1.2".parse().unwrap()],
                servers: vec!["198.19.1.2".parse().unwrap()],
                rate: LoadRate {
                    cps: Some(100),
                    ..LoadRate::default()
                },
                shape: LoadShape {
                    duration: "30s".parse().unwrap(),
                    ..LoadShape::default()
                },
                ..LoadJob::default()
            });
        }
        plan
    }

    /// Nobody goes on as if nothing had happened where a worker is no more.
    #[test]
    fn a_worker_that_breaks_ends_the_run() {
        for broken in 0..2 {
            let mut prepared = prepare_load(both_ends(), &Environment::default()).unwrap();
            prepared.jobs[broken].specs[1].config.mss = 0;
            let finished = prepared.run(&mut |_| ()).unwrap();
            let report = finished.report;
            assert!(report.elapsed_ns < 20_000_000_000, "{}", report.elapsed_ns);
            assert_eq!(report.verdict, Verdict::Invalid, "{}", report.reason);
            assert!(report.reason.contains("mss"), "{}", report.reason);
        }
    }

    /// The clock of a port, which breaks after a while.
    fn breaking() -> u64 {
        static LOOKS: AtomicU32 = AtomicU32::new(0);
        let looks = LOOKS.fetch_add(1, Ordering::Relaxed);
        assert!(looks < 20, "as it is meant to");
        wall_ns()
    }

    #[test]
    fn a_worker_that_panics_ends_the_run_and_what_others_counted_is_kept() {
        let mut prepared = prepare_load(both_ends(), &Environment::default()).unwrap();
        let options = LinkOptions {
            mtu: 9000,
            ..LinkOptions::new("breaking", Clock::Real(breaking))
        };
        let (mut near, _far) = link(&options).unwrap();
        prepared.ports[0].queues[1] = AnyQueue::Memory(near.queues.remove(0));
        let report = prepared.run(&mut |_| ()).unwrap().report;
        assert!(report.elapsed_ns < 20_000_000_000, "{}", report.elapsed_ns);
        assert!(report.reason.contains("panicked"), "{}", report.reason);
        let client = &report.load.unwrap().jobs[0];
        assert!(client.totals.completed_connections > 0);
    }
}
