//! Runs loads: starts the workers, stops them in order, and reports their progress.

use std::{
    any::Any,
    collections::BTreeMap,
    os::fd::BorrowedFd,
    path::Path,
    sync::{Arc, atomic::Ordering},
};

use rustix::time::{ClockId, clock_gettime};
use wb_load::{
    LoadControl, LoadOutcome, LoadSlot, LoadSnapshot, LoadSpec, LoadTotals, run_load_worker,
};
use wb_model::{
    JobKind, Phase, Plan, Snapshot, Totals,
    load::{ConnectionTotals, LoadEnd, LoadLive, LoadStage},
    timeline::Row,
};
use wb_port::QueuePair;

use super::{
    JobSlot,
    control::ControlPoint,
    report::{self, FCS},
};
use crate::{
    StartError, Steering, SystemClock,
    engine::{DeviceCounters, Ended, Engine, EngineState, LEAD_NS, Launch, Sample, Settled, Stop},
    ports::OpenPort,
    steering::steered,
    workers::{LastOutlineRequest, OnQueue, Workers},
};

/// Time that servers continue for frames that are in flight, as trials do by default, in ns.
const RESIDUE_NS: u64 = 200_000_000;
/// Outcome of a worker, its CPU time in ns, and its queue pair. No queue of a port is closed while other queues are in
/// use, because the kernel would steer received frames to the wrong queues.
type WorkerResult = (Result<LoadOutcome, String>, u64, Box<dyn Any + Send>);

/// A worker with its job and queue.
pub(crate) struct LoadWorkerSlot {
    pub(crate) job: usize,
    pub(super) queue: u32,
    pub(super) cpu: Option<u32>,
    slot: Arc<LoadSlot>,
    pub(crate) outcome: Option<LoadOutcome>,
    /// CPU time of the worker, in ns.
    pub(crate) cpu_ns: u64,
}

/// Details of the loads of a run at an instant.
pub struct LoadDetail {
    /// Sum of all clients or, without clients, of all servers.
    pub sum: LoadSnapshot,
    /// Share of time in which each worker of these was busy since the view before, 0 to 1.
    pub busy: Vec<f64>,
    /// Growth of the interface counters of the shown end since the start of the run, port by port, with the kernel's
    /// names.
    pub interfaces: Vec<BTreeMap<String, u64>>,
}

/// All loads of a run.
pub(crate) struct Loads {
    pub(crate) plan: Plan,
    pub(super) ports: Vec<OpenPort>,
    pub(super) jobs: Vec<JobSlot>,
    pub(crate) slots: Vec<LoadWorkerSlot>,
    workers: Workers<WorkerResult>,
    live: LoadSnapshots,
    asked: LastOutlineRequest,
    point: Option<ControlPoint>,
    steering: Steering,
    /// Time when the last client ended.
    clients_over: Option<u64>,
    /// Number of answers that the clients had at the last check, and the time of the last increase, in ns after the
    /// start.
    answers: (u64, u64),
}

/// Task that runs a worker, in a loop compiled for its driver.
struct LoadTask {
    spec: LoadSpec,
    control: Arc<LoadControl>,
    slot: Arc<LoadSlot>,
}

impl OnQueue for LoadTask {
    type Output = WorkerResult;

    fn on<Q: QueuePair + 'static>(self, mut pair: Q) -> WorkerResult {
        let result = run_load_worker(
            &mut pair,
            self.spec,
            &self.control,
            &self.slot,
            &SystemClock,
        );
        let cpu = clock_gettime(ClockId::ThreadCPUTime);
        let cpu_ns = cpu.tv_sec as u64 * 1_000_000_000 + cpu.tv_nsec as u64;
        (result.map_err(|e| e.to_string()), cpu_ns, Box::new(pair))
    }
}

fn broke((result, ..): &WorkerResult) -> bool {
    result
        .as_ref()
        .map_or(true, |outcome| outcome.fault.is_some())
}

impl LoadWorkerSlot {
    /// Records the distribution of response times under this name.
    pub(crate) fn record_requests(&self, row: &mut Row<'_>, of: &str, name: &str) {
        row.times(of, name, &self.slot.request.read());
    }
}

impl Loads {
    /// Counters so far of all clients or, without clients, of all servers.
    pub(crate) fn seen(&self) -> LoadSnapshot {
        LoadSnapshot::sum(&self.live.read(&self.slots))
    }

    /// Counters of the interfaces of the shown end, port by port.
    fn interfaces(&self) -> Vec<DeviceCounters> {
        let shown = |port: &&OpenPort| {
            let mut jobs = self.plan.loads.iter();
            jobs.any(|job| job.end == self.live.shown && job.port == port.plan.name)
        };
        let ports = self.ports.iter().filter(shown);
        ports.map(OpenPort::counters).collect()
    }

    /// Creates the engine for a plan with open ports and known next hops. `control` is the path of the socket for rate
    /// changes; `steering` is the source of rate changes inside this process.
    pub(super) fn new(
        plan: Plan,
        ports: Vec<OpenPort>,
        jobs: Vec<JobSlot>,
        control: Option<&Path>,
        steering: Steering,
    ) -> Result<Self, StartError> {
        Ok(Self {
            live: LoadSnapshots::new(&plan, 0),
            asked: LastOutlineRequest::default(),
            plan,
            ports,
            jobs,
            slots: Vec::new(),
            workers: Workers::new(&Arc::default()),
            point: control.map(ControlPoint::open).transpose()?,
            steering,
            clients_over: None,
            answers: (0, 0),
        })
    }

    /// Number of workers of a job, known before they start.
    pub(crate) fn workers_of(&self, job: usize) -> u32 {
        u32::try_from(self.jobs[job].specs.len()).unwrap_or(u32::MAX)
    }

    fn has(&self, end: LoadEnd) -> bool {
        self.plan.loads.iter().any(|j| j.end == end)
    }

    /// Returns true if the workers of all jobs of an end have ended.
    fn is_over(&self, end: LoadEnd) -> bool {
        let slots = self.slots.iter().enumerate();
        slots
            .filter(|(_, s)| self.plan.loads[s.job].end == end)
            .all(|(number, _)| self.workers.is_over(number))
    }

    /// Stops all jobs of an end.
    fn end(&self, end: LoadEnd) {
        for (job, plan) in self.jobs.iter().zip(&self.plan.loads) {
            if plan.end == end {
                job.control.stop.store(true, Ordering::Release);
            } else if end == LoadEnd::Client {
                job.control.clients_stop.store(true, Ordering::Release);
            }
        }
    }

    /// Stops servers after the clients of the same run have ended, so that both ends count the same frames.
    fn end_in_order(&mut self, now: u64) {
        if !self.has(LoadEnd::Client) || self.slots.is_empty() {
            return;
        }
        if self.is_over(LoadEnd::Client) {
            // The last frames are still in flight.
            let since = *self.clients_over.get_or_insert(now);
            if now.saturating_sub(since) >= RESIDUE_NS {
                self.end(LoadEnd::Server);
            }
        }
        if self.has(LoadEnd::Server) && self.is_over(LoadEnd::Server) {
            // Servers do not end without a stop, so something broke.
            self.end(LoadEnd::Client);
        }
    }

    /// Time at which clients were last seen to get an answer, in ns after the start.
    pub(super) const fn last_answer_ns(&self) -> u64 {
        self.answers.1
    }

    /// Notes the time if new answers have arrived.
    fn note_answers(&mut self, now: u64) {
        let slots = self.slots.iter();
        let clients = slots.filter(|s| self.plan.loads[s.job].end == LoadEnd::Client);
        let answers = clients.map(|s| s.slot.read().counters.responses).sum();
        if answers != self.answers.0 {
            self.answers = (answers, now.saturating_sub(self.live.start_ns));
        }
    }

    /// Returns true if a caller ended the run over the control socket.
    pub(super) fn has_stop_command(&self) -> bool {
        self.point.as_ref().is_some_and(ControlPoint::said_stop)
    }
}

impl Engine for Loads {
    fn kind(&self) -> JobKind {
        JobKind::Load
    }

    fn placed(&self) -> &[OpenPort] {
        &self.ports
    }

    fn ports(&self) -> &[OpenPort] {
        &self.ports
    }

    fn only_listens(&self) -> bool {
        !self.has(LoadEnd::Client)
    }

    fn lead_ns(&self) -> u64 {
        LEAD_NS
    }

    fn spawn(&mut self, launch: &Launch<'_>) -> Result<(), StartError> {
        self.workers = Workers::new(launch.alarm);
        for (number, job) in self.jobs.iter_mut().enumerate() {
            let queues = std::mem::take(&mut self.ports[job.port].queues);
            let specs = std::mem::take(&mut job.specs);
            for (queue, (mut pair, spec)) in (0..).zip(queues.into_iter().zip(specs)) {
                pair.discard_stale();
                let cpu = launch.cpus[job.port].get(queue as usize).copied();
                let slot = Arc::new(LoadSlot::default());
                let run = LoadTask {
                    spec,
                    control: Arc::clone(&job.control),
                    slot: Arc::clone(&slot),
                };
                let name = format!("wb-load-{number}-{queue}");
                self.slots.push(LoadWorkerSlot {
                    job: number,
                    queue,
                    cpu,
                    slot,
                    outcome: None,
                    cpu_ns: 0,
                });
                let spawned = self.workers.spawn(name, cpu, broke, move || pair.give(run));
                if let Err(error) = spawned {
                    self.stop(Stop::Now);
                    self.workers.join();
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    fn begin(&mut self, start_ns: u64) {
        self.live = LoadSnapshots::new(&self.plan, start_ns);
        self.live.before = self.interfaces();
        for job in &self.jobs {
            let at = &job.control.start_at_mono_ns;
            at.store(start_ns, Ordering::Release);
        }
    }

    fn stop(&mut self, how: Stop) {
        self.end(match self.has(LoadEnd::Client) {
            true => LoadEnd::Client,
            false => LoadEnd::Server,
        });
        if how == Stop::Now {
            self.end(LoadEnd::Server);
            for job in &self.jobs {
                job.control.hurry.store(true, Ordering::Release);
            }
        }
    }

    fn state(&mut self, now: u64) -> EngineState {
        if self.asked.is_due(now) {
            for slot in &self.slots {
                slot.slot.connect.ask();
                slot.slot.request.ask();
            }
            self.note_answers(now);
        }
        if let Some(mut point) = self.point.take() {
            if point.serve(self, || self.live.peek(&self.slots, now)) {
                self.stop(Stop::Drain);
            }
            self.point = Some(point);
        }
        if let Some(wish) = self.steering.take() {
            let jobs = self.jobs.iter().zip(&self.plan.loads);
            for (slot, job) in jobs.filter(|(_, job)| job.end == LoadEnd::Client) {
                slot.control.set_rate(&steered(&job.rate, wish));
            }
        }
        self.end_in_order(now);
        match self.workers.all_over() {
            true => EngineState::Over,
            false => EngineState::Running,
        }
    }

    fn due_ns(&self) -> u64 {
        self.clients_over
            .map_or(u64::MAX, |since| since + RESIDUE_NS)
    }

    fn request_fds(&self) -> Vec<BorrowedFd<'_>> {
        let point = self.point.as_ref();
        point.map_or_else(Vec::new, ControlPoint::request_fds)
    }

    fn sample(&mut self, now: u64) -> Sample {
        let interfaces = grown(&self.live.before, self.interfaces());
        self.live.sample(&self.slots, now, interfaces)
    }

    fn record(&self, row: &mut Row<'_>) {
        let shown = |slot: &&LoadWorkerSlot| self.live.ends[slot.job] == self.live.shown;
        let several = self
            .live
            .ends
            .iter()
            .filter(|e| **e == self.live.shown)
            .count()
            > 1;
        for slot in self.slots.iter().filter(shown) {
            let seen = slot.slot.read();
            let job = &self.plan.loads[slot.job];
            let own = several.then(|| format!("job {}", job.name));
            for of in ["load"].into_iter().chain(own.as_deref()) {
                record(row, of, &seen);
                row.times(of, "connect", &slot.slot.connect.read());
                slot.record_requests(row, of, "request");
            }
        }
        for slot in &self.slots {
            let job = &self.plan.loads[slot.job];
            let of = format!("worker {} {}", job.port, slot.queue);
            row.counter(&of, "busy_ns", "ns", slot.slot.read().busy_ns);
        }
    }

    fn join(&mut self) -> Option<String> {
        let mut broken = None;
        for (slot, outcome) in self.slots.iter_mut().zip(self.workers.join()) {
            match outcome {
                Some((Ok(outcome), cpu_ns, _)) => {
                    slot.cpu_ns = cpu_ns;
                    if let Some(fault) = &outcome.fault {
                        broken = Some(fault.to_string());
                    }
                    slot.outcome = Some(outcome);
                }
                Some((Err(text), ..)) => broken = Some(text),
                None => {
                    broken = Some("a worker thread panicked; its counts are missing".to_owned());
                }
            }
        }
        broken
    }

    fn settle(&mut self, ended: &Ended) -> Settled {
        report::settle(self, ended)
    }
}

/// Records the counters of a worker so far.
#[allow(clippy::cast_precision_loss)]
fn record(row: &mut Row<'_>, of: &str, seen: &LoadSnapshot) {
    let c = &seen.counters;
    let (rx_frames, rx_octets) = c.rx_of_load();
    for (name, unit, n) in [
        ("attempted_connections", "connections", c.attempted),
        ("established_connections", "connections", c.established),
        ("completed_connections", "connections", c.completed),
        ("failed_connections", "connections", c.failed()),
        ("requests", "requests", c.requests),
        ("responses", "responses", c.responses),
        ("tx_frames", "frames", c.tx_frames),
        ("rx_frames", "frames", rx_frames),
        ("tx_octets", "octets", c.tx_octets + FCS * c.tx_frames),
        ("rx_octets", "octets", rx_octets + FCS * rx_frames),
        ("request_samples", "requests", seen.request.count),
        ("request_sum_ns", "ns", seen.request.sum),
        ("connect_samples", "connections", seen.connect.count),
        ("connect_sum_ns", "ns", seen.connect.sum),
    ] {
        row.counter(of, name, unit, n);
    }
    row.level(of, "open_connections", "connections", c.open as f64);
}

/// State from which the views are made.
pub(super) struct LoadSnapshots {
    start_ns: u64,
    whole_ns: Option<u64>,
    /// End that views and snapshots show.
    shown: LoadEnd,
    ends: Vec<LoadEnd>,
    last: LoadSnapshot,
    last_busy: Vec<u64>,
    last_ns: u64,
    /// Counters of the interfaces of the shown end at the start.
    before: Vec<DeviceCounters>,
}

impl LoadSnapshots {
    fn new(plan: &Plan, start_ns: u64) -> Self {
        let loads = &plan.loads;
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
            before: Vec::new(),
        }
    }

    fn read(&self, slots: &[LoadWorkerSlot]) -> Vec<LoadSnapshot> {
        slots
            .iter()
            .filter(|s| self.ends[s.job] == self.shown)
            .map(|s| s.slot.read())
            .collect()
    }

    /// Returns the current counters without starting a new interval.
    fn peek(&self, slots: &[LoadWorkerSlot], now: u64) -> Snapshot {
        self.snapshot(&LoadSnapshot::sum(&self.read(slots)), now)
    }

    fn sample(
        &mut self,
        slots: &[LoadWorkerSlot],
        now: u64,
        interfaces: Vec<BTreeMap<String, u64>>,
    ) -> Sample {
        let all = self.read(slots);
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
        Sample {
            load: Some(LoadDetail {
                sum,
                busy,
                interfaces,
            }),
            ..snapshot.into()
        }
    }

    fn snapshot(&self, sum: &LoadSnapshot, now: u64) -> Snapshot {
        let interval = now.saturating_sub(self.last_ns).max(1);
        let per_second = |a: u64, b: u64| a.saturating_sub(b) as f64 * 1e9 / interval as f64;
        let (c, last) = (&sum.counters, &self.last.counters);
        let octets = |octets: u64, frames: u64| octets + FCS * frames;
        let tx = |s: &LoadSnapshot| octets(s.counters.tx_octets, s.counters.tx_frames);
        let rx = |s: &LoadSnapshot| {
            let (n, of) = s.counters.rx_of_load();
            octets(of, n)
        };
        let samples = sum.request.count - self.last.request.count;
        let elapsed = now.saturating_sub(self.start_ns);
        let totals = connections(c);
        let phase = match sum.phase {
            LoadStage::Ready | LoadStage::Wait => Phase::Preparing,
            LoadStage::Ramp => Phase::Ramp,
            LoadStage::Steady => Phase::Running,
            LoadStage::Drain => Phase::Drain,
            LoadStage::Done => Phase::Done,
        };
        Snapshot {
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
            load: Some(LoadLive {
                phase: sum.phase,
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
            ..Snapshot::at(elapsed, interval, phase)
        }
    }
}

/// Growth of the counters of interfaces since `before`.
fn grown(before: &[DeviceCounters], mut now: Vec<DeviceCounters>) -> Vec<DeviceCounters> {
    for (now, before) in now.iter_mut().zip(before) {
        for (name, value) in now {
            *value = value.saturating_sub(before.get(name).copied().unwrap_or(0));
        }
    }
    now
}

/// Converts the counters of a worker into connection totals.
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
        ..ConnectionTotals::default()
    }
}

/// Settles the account of one job.
pub(super) fn totals_of(slots: &[LoadWorkerSlot], job: usize) -> LoadTotals {
    LoadTotals::sum_workers(
        slots
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

    use wb_port::{
        clock::Clock,
        memory::{LinkOptions, link},
    };

    use super::*;
    use crate::{Environment, Extras, Prepared, View, ports::AnyQueue, prepare};

    fn prepared() -> Prepared {
        prepare(both_ends(), &Environment::default(), Extras::default()).unwrap()
    }

    fn loads(prepared: &mut Prepared) -> &mut Loads {
        let engine: &mut dyn Any = &mut *prepared.engines[0];
        engine.downcast_mut().unwrap()
    }

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

    /// If a worker breaks, the others must not continue.
    #[test]
    fn a_worker_that_breaks_ends_the_run() {
        for broken in 0..2 {
            let mut prepared = prepared();
            loads(&mut prepared).jobs[broken].specs[1].config.mss = 0;
            let finished = prepared.run(&mut |_: &View| ()).unwrap();
            let report = finished.report;
            assert!(report.elapsed_ns < 20_000_000_000, "{}", report.elapsed_ns);
            assert_eq!(report.verdict, Verdict::Incomplete, "{}", report.reason);
            assert!(report.reason.contains("mss"), "{}", report.reason);
        }
    }

    #[test]
    fn counters_of_interfaces_begin_with_the_run() {
        let counters = |n: u64, m: u64| {
            let pairs = [("rx_errors", n), ("rx_missed_errors", m)];
            DeviceCounters::from(pairs.map(|(name, n)| (name.to_owned(), n)))
        };
        let grown = grown(&[counters(1000, 7)], vec![counters(1003, 7)]);
        assert_eq!(grown, [counters(3, 0)]);
    }

    static BREAKS: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);

    /// Clock of a port that breaks on demand.
    fn breaking() -> u64 {
        assert!(!BREAKS.load(Ordering::Relaxed), "as it is meant to");
        wb_machine::clock::wall_ns()
    }

    #[test]
    fn a_worker_that_panics_ends_the_run_and_what_others_counted_is_kept() {
        let mut prepared = prepared();
        let options = LinkOptions {
            mtu: 9000,
            ..LinkOptions::new("breaking", Clock::Real(breaking))
        };
        let (mut near, _far) = link(&options).unwrap();
        loads(&mut prepared).ports[0].queues[1] = AnyQueue::Memory(near.queues.remove(0));
        let mut observer = |view: &View| {
            let connections = view.snapshot.totals.connections.unwrap_or_default();
            BREAKS.store(connections.completed_connections > 0, Ordering::Relaxed);
        };
        let report = prepared.run(&mut observer).unwrap().report;
        assert!(report.elapsed_ns < 20_000_000_000, "{}", report.elapsed_ns);
        assert!(report.reason.contains("panicked"), "{}", report.reason);
        let client = &report.load.unwrap().jobs[0];
        assert!(client.totals.completed_connections > 0);
    }
}
