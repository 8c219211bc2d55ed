//! Runs loads: starts the workers, stops them in order, and reports their progress.

use std::{
    any::Any,
    os::fd::BorrowedFd,
    path::Path,
    sync::{Arc, atomic::Ordering},
};

use crate::{
    LiveTimes, LoadControl, LoadOutcome, LoadSlot, LoadSnapshot, LoadSpec, LoadTotals,
    run_load_worker,
};
use rustix::time::{ClockId, clock_gettime};
use wb_model::{
    JobKind, Phase, Plan, Report, Snapshot,
    load::{ConnectionTotals, LoadEnd, LoadJob, LoadStage},
    timeline::Row,
};
use wb_port::QueuePair;

use super::{
    JobSlot,
    control::ControlPoint,
    report::{self, FCS},
};
use wb_engine::{Ended, Engine, EngineState, LEAD_NS, Launch, Outcome, Part, Stop};
use wb_engine::{clock::SystemClock, snapshot::snapshot, steering::Steering, steering::steered};
use wb_open::{LastOutlineRequest, OnQueue, OpenPort, StartError, Workers};

/// Time that servers continue for frames that are in flight, as trials do by default, in ns.
const RESIDUE_NS: u64 = 200_000_000;
/// Outcome of a worker, its CPU time in ns, and its queue pair. No queue of a port is closed while other queues are in
/// use, because the kernel would steer received frames to the wrong queues.
type WorkerResult = (Result<LoadOutcome, String>, u64, Box<dyn Any + Send>);

/// A worker with its job and queue.
pub struct LoadWorkerSlot {
    /// Number of its job.
    pub job: usize,
    pub(super) queue: u32,
    pub(super) cpu: Option<u32>,
    slot: Arc<LoadSlot>,
    /// Measurements of the worker, after its end.
    pub outcome: Option<LoadOutcome>,
    /// CPU time of the worker, in ns.
    pub cpu_ns: u64,
}

/// All loads of a run.
pub struct Loads {
    /// The loads, with resolved addresses.
    pub plan: Plan,
    pub(super) ports: Vec<OpenPort>,
    pub(super) jobs: Vec<JobSlot>,
    /// The workers.
    pub slots: Vec<LoadWorkerSlot>,
    workers: Workers<WorkerResult>,
    progress: Progress,
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
    /// State of the worker.
    pub(super) fn read(&self) -> LoadSnapshot {
        self.slot.read()
    }

    /// Records the distribution of response times under this name.
    pub fn record_requests(&self, row: &mut Row<'_>, of: &str, name: &str) {
        row.times(of, name, &self.slot.request.read());
    }
}

impl Loads {
    /// Counters so far of all clients or, without clients, of all servers.
    pub fn seen(&self) -> LoadSnapshot {
        let shown = |slot: &&LoadWorkerSlot| self.plan.loads[slot.job].end == self.progress.shown;
        let slots = self.slots.iter().filter(shown);
        let all: Vec<LoadSnapshot> = slots.map(LoadWorkerSlot::read).collect();
        LoadSnapshot::sum(&all)
    }

    /// Counters so far of a job.
    pub fn seen_of(&self, job: usize) -> LoadSnapshot {
        let slots = self.slots.iter().filter(|slot| slot.job == job);
        let all: Vec<LoadSnapshot> = slots.map(LoadWorkerSlot::read).collect();
        LoadSnapshot::sum(&all)
    }

    /// The engine's part of the report so far, alone.
    fn so_far(&self, now_ns: u64) -> Report {
        let mut report = Report {
            elapsed_ns: now_ns.saturating_sub(self.progress.start_ns),
            ..Report::default()
        };
        self.fill(&mut Part::whole(&mut report, JobKind::Load));
        report
    }

    /// Answer to a caller of the control socket. The interval of the rates began with the last view.
    fn answer(&self, now_ns: u64) -> Snapshot {
        let mut snapshot = snapshot(&self.progress.last_view, &self.so_far(now_ns));
        self.progress.describe(&self.seen(), &mut snapshot);
        snapshot
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
            progress: Progress::new(&plan, 0),
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
    pub fn workers_of(&self, job: usize) -> u32 {
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
            self.answers = (answers, now.saturating_sub(self.progress.start_ns));
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
        self.progress = Progress::new(&self.plan, start_ns);
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
            if point.serve(self, || self.answer(now)) {
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

    fn complete(&self, plan: &mut Plan) {
        plan.loads.clone_from(&self.plan.loads);
    }

    fn fill(&self, part: &mut Part<'_>) {
        report::fill(self, part);
    }

    fn show(&mut self, snapshot: &mut Snapshot, now_ns: u64) {
        let seen = self.seen();
        self.progress.describe(&seen, snapshot);
        self.progress.requests = seen.request;
        if self.point.is_some() {
            self.progress.last_view = self.so_far(now_ns);
        }
    }

    fn record(&self, row: &mut Row<'_>) {
        let is_shown = |job: &LoadJob| job.end == self.progress.shown;
        let shown = |slot: &&LoadWorkerSlot| is_shown(&self.plan.loads[slot.job]);
        let several = self.plan.loads.iter().filter(|job| is_shown(job)).count() > 1;
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

    fn settle(&mut self, part: &mut Part<'_>, ended: &Ended) -> Outcome {
        report::settle(self, part, ended)
    }
}

/// Records the counters of a worker so far. Sums of times are modulo 2^64.
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
        ("request_sum_ns", "ns", seen.request.sum as u64),
        ("connect_samples", "connections", seen.connect.count),
        ("connect_sum_ns", "ns", seen.connect.sum as u64),
    ] {
        row.counter(of, name, unit, n);
    }
    row.level(of, "open_connections", "connections", c.open as f64);
}

/// Progress of the loads since the last view.
struct Progress {
    start_ns: u64,
    /// Planned length in ns; `None` if there is none.
    whole_ns: Option<u64>,
    /// End that views and snapshots show: clients if there are any.
    shown: LoadEnd,
    /// Times of requests at the last view.
    requests: LiveTimes,
    /// Report so far at the last view, if callers of the control socket may ask for rates.
    last_view: Report,
}

impl Progress {
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
            requests: LiveTimes::default(),
            last_view: Report::default(),
        }
    }

    /// Adds what reports do not have: the phase, the progress and the mean time of requests.
    fn describe(&self, seen: &LoadSnapshot, snapshot: &mut Snapshot) {
        snapshot.phase = match seen.phase {
            LoadStage::Ready | LoadStage::Wait => Phase::Preparing,
            LoadStage::Ramp => Phase::Ramp,
            LoadStage::Steady => Phase::Running,
            LoadStage::Drain => Phase::Drain,
            LoadStage::Done => Phase::Done,
        };
        let elapsed_ns = snapshot.elapsed_ns as f64;
        let whole = self.whole_ns.map(|ns| ns.max(1) as f64);
        snapshot.progress = whole.map(|whole_ns| (elapsed_ns / whole_ns).min(1.0));
        if let Some(load) = &mut snapshot.load {
            load.phase = seen.phase;
            load.request_mean_ns = seen.request.mean_since(&self.requests);
        }
    }
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
    use std::{
        sync::atomic::{AtomicBool, Ordering},
        time::Instant,
    };

    use wb_engine::{
        End,
        opening::{Environment, Opening},
    };
    use wb_machine::clock::monotonic_ns;
    use wb_model::{
        Lateness,
        load::{LoadRate, LoadShape},
        plan::PortPlan,
    };
    use wb_open::{Alarm, AnyQueue};
    use wb_port::{
        clock::Clock,
        memory::{LinkOptions, link},
    };
    use wb_testing::eventually;

    use super::*;
    use crate::engine::{Ends, open, resolve_jobs};

    /// Opens the loads of a plan, and starts them after a change.
    fn started(mut plan: Plan, change: impl FnOnce(&mut Loads)) -> (Loads, Arc<Alarm>) {
        plan.name_jobs();
        let environment = Environment::default();
        let mut opening = Opening::new(&plan, &environment, Vec::new());
        let ports = open(&plan, &mut opening).unwrap();
        let mut loads = resolve_jobs(&plan, ports, &Ends::of(&plan), &[], &mut opening).unwrap();
        change(&mut loads);
        let alarm = Arc::new(Alarm::default());
        let cpus = vec![Vec::new(); loads.placed().len()];
        let launch = Launch {
            cpus: &cpus,
            alarm: &alarm,
        };
        loads.spawn(&launch).unwrap();
        loads.begin(monotonic_ns() + loads.lead_ns());
        (loads, alarm)
    }

    /// Waits for the fault, as a run does, and returns what broke.
    fn ended(loads: &mut Loads, alarm: &Alarm) -> String {
        eventually("a worker breaks", || {
            loads.state(monotonic_ns());
            alarm.has_faulted()
        });
        loads.stop(Stop::Drain);
        eventually("the other workers end", || {
            loads.state(monotonic_ns()) == EngineState::Over
        });
        loads.join().unwrap()
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
            let begun = Instant::now();
            let (mut loads, alarm) = started(both_ends(), |loads| {
                loads.jobs[broken].specs[1].config.mss = 0;
            });
            let why = ended(&mut loads, &alarm);
            assert!(why.contains("mss"), "{why}");
            assert!(begun.elapsed().as_secs() < 20);
        }
    }

    /// Prints the time of one report so far, for `bench/fill`.
    #[test]
    #[ignore = "a measurement, run by bench/fill"]
    fn time_of_a_report_so_far() {
        const PAIRS: usize = 32;
        const TIMES: u32 = 10_000;
        let (mut plan, pair) = (Plan::default(), both_ends());
        for number in 0..PAIRS {
            for (port, job) in pair.ports.iter().zip(&pair.loads) {
                let name = format!("{}{number}", port.name);
                plan.ports.push(PortPlan {
                    locator: format!("memory:m{number}").parse().unwrap(),
                    ..PortPlan::new(&name, port.locator.clone())
                });
                plan.loads.push(LoadJob {
                    port: name,
                    ..job.clone()
                });
            }
        }
        let (mut loads, _alarm) = started(plan, |_| {});
        eventually("connections complete", || {
            loads.seen().counters.completed >= 100
        });
        loads.stop(Stop::Now);
        assert_eq!(loads.join(), None);
        let mut engines: Vec<Box<dyn Engine>> = vec![Box::new(loads)];
        let begun = Instant::now();
        let mut report = Report::default();
        for _ in 0..TIMES {
            report = Report::default();
            let none = Default::default();
            wb_engine::fill_so_far(&mut engines, &mut report, &none, &none);
        }
        let each = begun.elapsed() / TIMES;
        let jobs = report.load.unwrap().jobs;
        let counters: usize = jobs.iter().map(|job| job.counters.len()).sum();
        println!(
            "one report so far with {} loads and {counters} counters: {} ns",
            jobs.len(),
            each.as_nanos()
        );
    }

    static BREAKS: AtomicBool = AtomicBool::new(false);

    /// Clock of a port that breaks on demand.
    fn breaking() -> u64 {
        assert!(!BREAKS.load(Ordering::Relaxed), "as it is meant to");
        wb_machine::clock::wall_ns()
    }

    #[test]
    fn a_worker_that_panics_ends_the_run_and_what_others_counted_is_kept() {
        let options = LinkOptions {
            mtu: 9000,
            ..LinkOptions::new("breaking", Clock::Real(breaking))
        };
        let (mut near, _far) = link(&options).unwrap();
        let (mut loads, alarm) = started(both_ends(), |loads| {
            loads.ports[0].queues[1] = AnyQueue::Memory(near.queues.remove(0));
        });
        eventually("a connection completes", || {
            loads.seen().counters.completed > 0
        });
        BREAKS.store(true, Ordering::Relaxed);
        let why = ended(&mut loads, &alarm);
        assert!(why.contains("panicked"), "{why}");
        let ended = Ended {
            end: End::Fault(why),
            started_wall_ns: 0,
            elapsed_ns: 1_000_000_000,
            lateness: Lateness::default(),
            clock_step_ns: 0,
            clock_error_ns: 0,
            before: Default::default(),
            after: Default::default(),
            downs: Default::default(),
        };
        let mut report = Report::default();
        loads.settle(&mut Part::whole(&mut report, JobKind::Load), &ended);
        let client = &report.load.unwrap().jobs[0];
        assert!(client.totals.completed_connections > 0);
    }
}
