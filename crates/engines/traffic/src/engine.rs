//! Traffic: streams from one port, analysed at another.

use std::{
    collections::BTreeSet,
    sync::{Arc, atomic::Ordering},
};

use crate::control::ShownFlows;
use crate::{
    CounterValues, FlowSpace, FollowedRun as OwnRun, OffloadedWorker, PKTGEN_FLOW, RampUp,
    Receiver, ReceiverSpec, Sender, SenderSpec, SharedCounters, StreamSpec, TrafficControl, Worker,
    WorkerOutcome, run_offloaded, run_worker,
};
use wb_engine::{Ended, Engine, EngineState, LEAD_NS, Launch, Outcome, Part, Stop};
use wb_engine::{
    clock::SystemClock, clock::wall_of_start, opening::Opening, peers::PeerLink, steering::Steering,
};
use wb_machine::clock::{monotonic_ns, wall_ns};
use wb_measure::FlowStats;
use wb_model::{
    DirectionFlows, Driver, JobKind, Phase, Plan, Snapshot,
    plan::{PortPlan, TrafficJob},
    timeline::Row,
};
use wb_open::{
    AnyQueue, LastOutlineRequest, OnQueue, OpenPort, Sharing, StartError, Use, Workers, find_wire,
    open_live, open_wire_as, packet_options,
};
use wb_packet::{PacketOptions, RxMode};
use wb_port::{QueuePair, offload::Halt};

use crate::engine::{
    checks::Recordings,
    remote::{RemoteEnd, RemoteSender},
    steer::StreamSteering,
};

mod checks;
pub(crate) mod live;
mod path;
mod remote;
mod report;
mod resolve;
mod steer;

pub use live::CHOSEN as CHOSEN_LIVE;
pub use path::{Device, Host};

/// One direction of a job: streams and the ports they go between.
struct Direction {
    /// The direction in the plan: names of job and ports, numbers of flows.
    planned: DirectionFlows,
    /// Sending port on this host.
    tx: Option<usize>,
    /// Receiving port on this host.
    rx: Option<usize>,
    streams: Vec<StreamSpec>,
    /// Number of the first flow, as in tags.
    first_flow: u32,
    /// Number of flows with a tag, from the first flow on.
    flows: u32,
    /// Run that sends the received frames, if the plan has no sender for them.
    from: Option<Arc<OwnRun>>,
    /// Other end, if it is on another host.
    remote: Option<RemoteEnd>,
}

impl Direction {
    /// The sender on another host, if there is one.
    fn remote_sender(&self) -> Option<&RemoteSender> {
        match &self.remote {
            Some(RemoteEnd::Sender(sender)) => Some(sender),
            _ => None,
        }
    }

    /// Amount in ns by which latencies are raised while they are measured.
    fn bias_ns(&self) -> u64 {
        self.remote_sender()
            .map_or(0, |sender| sender.clock.bias_ns)
    }
}

/// Flows of a run, as in tags.
#[derive(Clone, Copy, Debug, Default)]
struct RunFlows {
    /// First flow; `None` if the run only receives and the plan does not name it.
    first: Option<u32>,
    count: u32,
}

impl RunFlows {
    /// Returns the number by which a flow is reported.
    fn shown(self, flow: u32) -> u32 {
        let own = self.first.and_then(|first| flow.checked_sub(first));
        own.filter(|n| *n < self.count).unwrap_or(flow)
    }
}

/// The streams of a plan with their ports open.
pub struct Streams {
    /// Ports in the order of the plan.
    pub ports: Vec<OpenPort>,
    recordings: Recordings,
}

/// Checks the streams of a plan against the machine and opens their ports.
///
/// # Errors
/// Returns the first problem found. Nothing stays open on error.
pub fn open(plan: &Plan, opening: &mut Opening<'_>) -> Result<Streams, StartError> {
    checks::check_port_use(plan)?;
    checks::check_joined(plan)?;
    checks::check_flow_numbers(plan)?;
    checks::check_memory(plan)?;
    let recordings = checks::read_recordings(plan, opening.environment, &mut opening.warnings)?;
    let ports = open_ports(plan, &recordings, opening)?;
    Ok(Streams { ports, recordings })
}

fn open_ports(
    plan: &Plan,
    recordings: &Recordings,
    opening: &mut Opening<'_>,
) -> Result<Vec<OpenPort>, StartError> {
    let mut uses = Use::of_plan(plan);
    for (name, used) in &mut uses {
        used.shares = checks::shares_with_host(plan, name, recordings);
    }
    let mut wires = Vec::new();
    let is_here = |p: &&PortPlan| p.locator.host.is_none() && uses.contains_key(&p.name);
    let ports = plan.ports.iter().filter(is_here);
    for port in ports {
        let used = uses[&port.name];
        let wire = if port.locator.is_interface() {
            Some(find_wire(port)?)
        } else {
            None
        };
        checks::check_streams(plan, port, wire.as_ref(), recordings)?;
        if let Some(wire) = &wire {
            checks::check_leaving(plan, port, used, wire, recordings)?;
        }
        let by_load = plan.leaves_the_rest(port);
        if used.shares && port.locator.driver == Some(Driver::Xdp) && !by_load {
            return Err(StartError::stream(
                port.locator.to_string(),
                "XDP leaves ARP, ping and multicast frames to the host, so untagged frames of these kinds cannot be counted; use packet: for this port",
            ));
        }
        wires.push((port, wire));
    }
    let reasons = path::reasons(plan, &wires, &uses, recordings);
    let mut ports = Vec::new();
    for (port, wire) in wires {
        let used = Use {
            sharing: opening.share(port),
            ..uses[&port.name]
        };
        let longest = checks::longest_frame(plan, port, recordings);
        let open = match wire {
            Some(wire) if port.locator.driver == Some(Driver::Live) => {
                live::check(plan, port)?;
                open_live(port, used, wire, "requested")?
            }
            Some(wire) if path::is_open(port) && !reasons.contains_key(&port.name) => {
                open_live(port, used, wire, live::CHOSEN)?
            }
            Some(wire) => {
                let packet = match used.sharing {
                    Sharing::Alone => packet_options(port, used),
                    // Workers that share CPUs may wait for longer than a ring of blocks lasts: each block is handed
                    // over after a fixed time, however few frames it contains.
                    _ => PacketOptions {
                        filter: wb_engine::sharing::traffic_filter(plan, port)?,
                        rx_mode: RxMode::LowLatency,
                        ..packet_options(port, used)
                    },
                };
                let mut open = open_wire_as(port, used, wire, longest, &packet, None)?;
                if let Some(why) = reasons.get(&port.name) {
                    live::say_why_not(&mut open, why);
                }
                open
            }
            None => opening.open_virtual(port, used)?,
        };
        opening.note(&open);
        ports.push(open);
    }
    opening
        .warnings
        .extend(checks::short_receivers(plan, &ports, recordings));
    Ok(ports)
}

/// A worker with its port.
struct WorkerSlot {
    port: usize,
    queue: u32,
    cpu: Option<u32>,
    /// Index of the direction for which the worker sends, if any.
    sends: Option<usize>,
    /// Index of the direction for which the worker receives, if any.
    receives: Option<usize>,
    shared: Arc<SharedCounters>,
    outcome: Option<WorkerOutcome>,
}

impl WorkerSlot {
    fn new(
        port: usize,
        queue: u32,
        cpus: &[u32],
        sends: Option<usize>,
        receives: Option<usize>,
    ) -> Self {
        Self {
            port,
            queue,
            cpu: cpus.get(queue as usize).copied(),
            sends,
            receives,
            shared: Arc::new(SharedCounters::default()),
            outcome: None,
        }
    }
}

/// All traffic jobs of a run.
pub struct Traffic {
    plan: Plan,
    ports: Vec<OpenPort>,
    directions: Vec<Direction>,
    flows: RunFlows,
    slots: Vec<WorkerSlot>,
    control: Arc<TrafficControl>,
    workers: Workers<WorkerOutcome>,
    /// Handles that stop the sending programs of live ports.
    halts: Vec<Arc<dyn Halt>>,
    /// Workers of live ports, by port.
    offloaded: Vec<Vec<OffloadedWorker>>,
    /// Programs that let frames in at the other ends of lab links.
    passages: Vec<wb_live::PassProgram>,
    live: Progress,
    asked: LastOutlineRequest,
    steering: Steering,
    /// The streams for changes, once the workers exist.
    steered: Option<Arc<StreamSteering>>,
    stopping: bool,
    /// Time at which the wait for residual frames ends.
    drain_until: Option<u64>,
    /// Connection to the hosts of the remote ends.
    peers: PeerLink,
    /// Time of the first request to stop.
    stopped_ns: Option<u64>,
}

impl Traffic {
    /// Finds the next hops of the streams. This is the last step before the streams start.
    ///
    /// # Errors
    /// Fails if a neighbour does not answer.
    pub fn resolve(
        plan: &Plan,
        streams: Streams,
        opening: &mut Opening<'_>,
    ) -> Result<Self, StartError> {
        let mut plan = plan.part(JobKind::Traffic);
        let (directions, flows) = resolve::resolve_all(&mut plan, &streams, opening)?;
        let mut traffic = Self {
            plan,
            ports: streams.ports,
            directions,
            flows,
            slots: Vec::new(),
            control: Arc::new(TrafficControl::new()),
            workers: Workers::new(&Arc::default()),
            halts: Vec::new(),
            offloaded: Vec::new(),
            passages: Vec::new(),
            live: Progress::default(),
            asked: LastOutlineRequest::default(),
            steering: opening.environment.steering.clone(),
            steered: None,
            stopping: false,
            drain_until: None,
            peers: opening.environment.peers.clone(),
            stopped_ns: None,
        };
        traffic.open_inside(&streams.recordings, opening)?;
        Ok(traffic)
    }

    fn jobs(&self) -> &[TrafficJob] {
        &self.plan.traffic
    }

    /// Names the drivers of a direction: of the sending end and of the receiving end.
    fn path_of(&self, direction: &Direction) -> String {
        let ends = [direction.tx, direction.rx].into_iter().flatten();
        let drivers: Vec<&str> = ends.map(|port| self.ports[port].facts.driver).collect();
        drivers.join(" to ")
    }
}

/// Latest planned end of sending over all jobs, in ns; `None` if a job has no end.
fn planned_end_ns(run: &Traffic) -> Option<u64> {
    let jobs = 0..run.jobs().len();
    let mut ends = jobs.map(|number| planned_end_of_job(run, number));
    ends.try_fold(0, |latest: u64, end| Some(latest.max(end?)))
}

/// Planned end of sending of a job, in ns; `None` if the job has no end.
fn planned_end_of_job(run: &Traffic, number: usize) -> Option<u64> {
    let job = &run.jobs()[number];
    let length = job.duration.map(|d| d.as_nanos());
    let by_count = job.count.filter(|_| job.tx.is_some()).and_then(|count| {
        let mut own = run
            .directions
            .iter()
            .filter(|way| way.planned.job == number);
        let direction = own.find(|way| way.streams.iter().any(|s| s.pps.is_some()))?;
        let pps: f64 = direction
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
    Some(job.start.as_nanos() + job.lead_ns() + length)
}

/// Time that receivers continue after the last frame was sent, in ns.
fn drain_ns(run: &Traffic) -> u64 {
    let receives = run.slots.iter().any(|s| s.receives.is_some());
    let sends = run.slots.iter().any(|s| s.sends.is_some())
        || run.directions.iter().any(|d| d.remote_sender().is_some());
    if !(sends && receives) {
        return 0;
    }
    let drains = run.jobs().iter().map(|j| j.drain.as_nanos());
    drains.max().unwrap_or(0)
}

fn sender_spec(
    plan: &Plan,
    job: usize,
    streams: Vec<StreamSpec>,
    worker: u32,
    workers: u32,
) -> SenderSpec {
    let job = &plan.traffic[job];
    SenderSpec {
        streams,
        worker,
        workers,
        seed: plan.seed,
        start_offset_ns: job.start.as_nanos(),
        duration_ns: job.duration.map(|d| d.as_nanos()),
        count: job.count,
        lead: RampUp {
            rise_ns: job.ramp.as_nanos(),
            hold_ns: job.hold.as_nanos(),
            times: job.hold_load,
        },
        catch_up_ns: job.catch_up.as_nanos(),
        departures: job.departures,
    }
}

fn sender_for(
    direction: &Direction,
    spec: &SenderSpec,
    capacity: usize,
) -> Result<Sender, StartError> {
    Sender::new(spec, capacity)
        .map_err(|e| StartError::stream(direction.planned.name.clone(), e.to_string()))
}

fn receiver_for(direction: &Direction, job: &TrafficJob, lanes: usize) -> Receiver {
    let flows = match direction.from {
        None => FlowSpace::Planned {
            first: direction.first_flow,
            count: direction.flows,
        },
        Some(_) => FlowSpace::Open,
    };
    let unknown = ReceiverSpec::default();
    let pktgen = direction
        .streams
        .iter()
        .find(|s| s.stream.is_tagged() && s.stream.tag == wb_model::TagKind::Pktgen);
    let spec = ReceiverSpec {
        flows,
        run: direction.from.clone().unwrap_or(unknown.run),
        untagged_is_ours: direction.streams.iter().any(|s| !s.stream.is_tagged()),
        recordings: direction
            .streams
            .iter()
            .filter_map(|s| s.replay.clone())
            .collect(),
        // A direction that only receives accepts both forms of the tag.
        pktgen_flow: match direction.from {
            None => pktgen.map(|s| s.first_flow - direction.first_flow),
            Some(_) => Some(PKTGEN_FLOW),
        },
        tag_offsets: direction.streams.iter().filter_map(given_tag).collect(),
        outage_threshold_ns: job.outage_threshold.as_nanos(),
        clock: direction.remote_sender().map(|sender| sender.clock.clone()),
    };
    Receiver::for_lanes(&spec, lanes)
}

/// Position of the tag behind headers that are given as bytes.
fn given_tag(spec: &StreamSpec) -> Option<usize> {
    let is_given = spec.stream.is_tagged() && spec.stream.headers.is_some();
    is_given.then(|| spec.stream.header_len() as usize)
}

/// Task that runs a worker, in a loop compiled for its driver.
struct TrafficTask {
    worker: Worker,
    control: Arc<TrafficControl>,
    shared: Arc<SharedCounters>,
}

impl OnQueue for TrafficTask {
    type Output = WorkerOutcome;

    fn on<Q: QueuePair + 'static>(self, mut pair: Q) -> WorkerOutcome {
        run_worker(
            &mut pair,
            self.worker,
            &self.control,
            &self.shared,
            &SystemClock,
        )
    }
}

/// Work of a worker, with its resources.
enum Work {
    Queue(Box<(AnyQueue, Worker)>),
    /// The port itself does the work.
    Offload(Box<OffloadedWorker>),
}

impl Traffic {
    /// Assigns the work of each queue of the ports.
    fn assign(&mut self, cpus: &[Vec<u32>]) -> Result<Vec<Work>, StartError> {
        let mut work = Vec::new();
        for (port, cpus) in cpus.iter().enumerate() {
            let sends = self.directions.iter().position(|w| w.tx == Some(port));
            let receives = self.directions.iter().position(|w| w.rx == Some(port));
            if self.ports[port].is_live() {
                let workers = std::mem::take(&mut self.offloaded[port]);
                for (queue, worker) in (0..).zip(workers) {
                    work.push(Work::Offload(Box::new(worker)));
                    self.slots
                        .push(WorkerSlot::new(port, queue, cpus, sends, receives));
                }
                continue;
            }
            let queues = std::mem::take(&mut self.ports[port].queues);
            let count = u32::try_from(queues.len()).unwrap_or(u32::MAX);
            for (queue, mut pair) in (0..).zip(queues) {
                let capacity = pair.frame_capacity();
                let sender = sends
                    .map(|w| {
                        let direction = &self.directions[w];
                        let streams = direction.streams.clone();
                        let job = direction.planned.job;
                        let spec = sender_spec(&self.plan, job, streams, queue, count);
                        sender_for(direction, &spec, capacity)
                    })
                    .transpose()?;
                let lanes = pair.lanes();
                let receiver = receives.map(|w| {
                    let direction = &self.directions[w];
                    receiver_for(direction, &self.plan.traffic[direction.planned.job], lanes)
                });
                if receives.is_some_and(|w| self.directions[w].tx.is_some()) {
                    pair.discard_stale();
                }
                let worker = Worker { sender, receiver };
                work.push(Work::Queue(Box::new((pair, worker))));
                self.slots
                    .push(WorkerSlot::new(port, queue, cpus, sends, receives));
            }
        }
        Ok(work)
    }

    /// Returns the time at which the last receive-only job is over; `Some(u64::MAX)` if such a job has no end, `None`
    /// if there are no such jobs.
    fn receive_only_end(&self) -> Option<u64> {
        let receiving = self.jobs().iter().filter(|j| j.tx.is_none());
        let ends = receiving.map(|j| match j.duration {
            Some(d) => self.live.start_ns + j.start.as_nanos() + d.as_nanos(),
            None => u64::MAX,
        });
        ends.max()
    }

    /// Returns the time at which the wait for residual frames ends, once known.
    fn drain_end(&self, now: u64) -> Option<u64> {
        let sent_all = self.control.senders_running.load(Ordering::Acquire) == 0;
        let receivers = self.slots.iter().filter(|s| s.receives.is_some()).count();
        // Files have an end.
        let exhausted =
            receivers > 0 && self.control.receivers_exhausted.load(Ordering::Acquire) == receivers;
        let received_all = exhausted || self.receive_only_end().is_none_or(|t| now >= t);
        let over = sent_all && (received_all || self.stopping);
        over.then(|| now + drain_ns(self))
    }

    fn finish(&self) {
        if !self.control.finish.load(Ordering::Relaxed) {
            // A frame with a later timestamp is lost, whenever a worker reads it.
            self.control.end_wall_ns.store(wall_ns(), Ordering::Release);
            self.control.finish.store(true, Ordering::Release);
        }
    }
}

impl Engine for Traffic {
    fn kind(&self) -> JobKind {
        JobKind::Traffic
    }

    fn placed(&self) -> &[OpenPort] {
        &self.ports
    }

    fn ports(&self) -> &[OpenPort] {
        &self.ports
    }

    fn only_listens(&self) -> bool {
        self.jobs().iter().all(|job| job.tx.is_none())
    }

    fn lead_ns(&self) -> u64 {
        LEAD_NS
    }

    fn spawn(&mut self, launch: &Launch<'_>) -> Result<(), StartError> {
        self.prepare_exchange(launch.alarm);
        let mut work = self.assign(launch.cpus)?;
        for work in &mut work {
            if let Work::Offload(worker) = work {
                worker.start_counting(&self.control, &SystemClock);
            }
        }
        for slot in &self.slots {
            let received = slot.receives.map(|way| &self.directions[way]);
            // Figures of each stream need all its flows.
            let flows = received.filter(|way| way.streams.len() > 1 && way.from.is_none());
            slot.shared.flows.want(flows.map_or(0, |way| way.flows));
            let sent = slot.sends.map(|way| &self.directions[way]);
            if sent.is_some_and(|way| way.remote.is_some()) {
                slot.shared.ended_sender.want();
            }
        }
        self.workers = Workers::new(launch.alarm);
        let alarm = Arc::clone(launch.alarm);
        self.control.ended.set(move || alarm.bell.ring());
        let remote = self
            .directions
            .iter()
            .filter(|d| d.remote_sender().is_some());
        let senders = self.slots.iter().filter(|s| s.sends.is_some()).count() + remote.count();
        self.control
            .senders_running
            .store(senders, Ordering::Release);
        let steered = Arc::new(StreamSteering::new(self));
        let held = self.steering.set_streams(Arc::clone(&steered) as _);
        held.map_err(|why| StartError::stream("streams that are off", why))?;
        self.steered = Some(steered);
        for (slot, work) in self.slots.iter().zip(work) {
            let port = &self.ports[slot.port];
            let name = format!("wb-{}-{}-{}", port.role(), port.plan.name, slot.queue);
            let (control, shared) = (Arc::clone(&self.control), Arc::clone(&slot.shared));
            let broke = |outcome: &WorkerOutcome| outcome.fault.is_some();
            let work = move || match work {
                Work::Queue(queue) => {
                    let (pair, worker) = *queue;
                    pair.give(TrafficTask {
                        worker,
                        control,
                        shared,
                    })
                }
                Work::Offload(worker) => run_offloaded(*worker, &control, &shared, &SystemClock),
            };
            let spawned = self.workers.spawn(name, slot.cpu, broke, work);
            if let Err(error) = spawned {
                self.stop(Stop::Now);
                self.workers.join();
                return Err(error);
            }
        }
        Ok(())
    }

    fn begin(&mut self, start_ns: u64) {
        self.live = Progress {
            start_ns,
            whole_ns: planned_end_ns(self).map(|ns| ns + drain_ns(self)),
            ..Progress::default()
        };
        if self.directions.iter().all(|d| d.tx.is_some()) {
            self.control
                .since_wall_ns
                .store(wall_of_start(start_ns), Ordering::Release);
        }
        self.control
            .start_at_mono_ns
            .store(start_ns, Ordering::Release);
    }

    fn stop(&mut self, how: Stop) {
        self.stopping = true;
        self.stopped_ns.get_or_insert_with(monotonic_ns);
        self.control.stop.store(true, Ordering::Release);
        self.halts.iter().for_each(|halt| halt.halt());
        if how == Stop::Now {
            self.finish();
        }
    }

    fn state(&mut self, now: u64) -> EngineState {
        if self.asked.is_due(now) {
            self.slots.iter().for_each(|slot| slot.shared.latency.ask());
        }
        // Read first: the workers publish the results of their senders before they end.
        let all_over = self.workers.all_over();
        self.exchange(now);
        self.drain_until = self.drain_until.or_else(|| self.drain_end(now));
        if self.drain_until.is_some_and(|t| now >= t) {
            self.finish();
        }
        match self.drain_until {
            _ if all_over => EngineState::Over,
            Some(_) => EngineState::Draining,
            None => EngineState::Running,
        }
    }

    fn due_ns(&self) -> u64 {
        let end = self.drain_until.or_else(|| self.receive_only_end());
        end.unwrap_or(u64::MAX).min(self.next_give_up_ns())
    }

    fn complete(&self, plan: &mut Plan) {
        plan.traffic.clone_from(&self.plan.traffic);
    }

    fn fill(&self, part: &mut Part<'_>) {
        report::fill(self, part);
    }

    fn show(&mut self, snapshot: &mut Snapshot, now_ns: u64) {
        let mut sum = CounterValues::default();
        let mut links_down = BTreeSet::new();
        for slot in &self.slots {
            let seen = slot.shared.read();
            if seen.link_down > 0 {
                links_down.insert(self.ports[slot.port].plan.name.clone());
            }
            sum += seen;
        }
        let elapsed_ns = snapshot.elapsed_ns as f64;
        let whole = self.live.whole_ns.map(|ns| ns.max(1) as f64);
        snapshot.progress = whole.map(|whole_ns| (elapsed_ns / whole_ns).min(1.0));
        snapshot.phase = self.phase(now_ns);
        snapshot.links_down = links_down.into_iter().collect();
        let both_ends = |d: &Direction| d.tx.is_some() && d.rx.is_some();
        if self.directions.iter().all(both_ends) {
            // The frames of a snapshot are those of the streams.
            let t = &snapshot.totals;
            let duplicates = t.duplicate_frames.unwrap_or(0);
            let unique = t.received_frames.unwrap_or(0).saturating_sub(duplicates);
            let missing = |offered: u64| offered.saturating_sub(unique);
            snapshot.missing_frames = t.offered_frames.map(missing);
        }
        let (samples, sum_ns) = (sum.latency_samples, sum.latency_sum_ns);
        let last = std::mem::replace(&mut self.live.latency, (samples, sum_ns));
        let new = samples.saturating_sub(last.0);
        // The sums are modulo 2^64. With two clocks the latencies of an interval may be negative.
        let mean = || sum_ns.wrapping_sub(last.1) as i64 as f64 / new as f64;
        snapshot.latency_mean_ns = (new > 0).then(mean);
    }

    fn record(&self, row: &mut Row<'_>) {
        let several = self.directions.len() > 1;
        for slot in &self.slots {
            let seen = slot.shared.read();
            let of = format!("worker {} {}", self.ports[slot.port].plan.name, slot.queue);
            if slot.sends.is_some() {
                row.counter(&of, "offered_frames", "frames", seen.offered_frames);
            }
            if slot.receives.is_some() {
                row.counter(&of, "received_frames", "frames", seen.received_frames);
            }
            let of_way = |way: usize| format!("job {}", self.directions[way].planned.name);
            if let Some(way) = slot.sends {
                seen_sent(row, "traffic", &seen);
                if several {
                    seen_sent(row, &of_way(way), &seen);
                }
            }
            if let Some(way) = slot.receives {
                let latency = slot.shared.latency.read();
                seen_received(row, "traffic", &seen);
                row.times("traffic", "latency", &latency);
                if several {
                    seen_received(row, &of_way(way), &seen);
                    row.times(&of_way(way), "latency", &latency);
                }
            }
        }
        self.record_flows(row);
    }

    fn join(&mut self) -> Option<String> {
        let mut panicked = false;
        for (slot, outcome) in self.slots.iter_mut().zip(self.workers.join()) {
            panicked |= outcome.is_none();
            slot.outcome = outcome;
        }
        if panicked {
            return Some("a worker thread panicked; its counts are missing".to_owned());
        }
        let outcomes = self.slots.iter().filter_map(|s| s.outcome.as_ref());
        outcomes
            .filter_map(|o| o.fault.as_ref().map(ToString::to_string))
            .next()
    }

    fn settle(&mut self, part: &mut Part<'_>, ended: &Ended) -> Outcome {
        report::settle(self, part, ended)
    }
}

impl Traffic {
    fn phase(&self, now_ns: u64) -> Phase {
        let ramps = self.jobs().iter().map(|j| j.start.as_nanos() + j.lead_ns());
        let ramp_ns = ramps.max().unwrap_or(0);
        match self.drain_until {
            Some(_) => Phase::Drain,
            None if ramp_ns > 0 && now_ns < self.live.start_ns + ramp_ns => Phase::Ramp,
            None => Phase::Running,
        }
    }

    /// Records each flow. A single flow needs no record, because the totals already show it.
    fn record_flows(&self, row: &mut Row<'_>) {
        let receivers = self.slots.iter().filter(|s| s.receives.is_some());
        let mut flows: Vec<FlowStats> = Vec::new();
        for slot in receivers {
            let shown = slot.shared.flows.read();
            let first = shown.iter().map(|f| f.flow).min().unwrap_or(0);
            flows.extend(
                shown
                    .iter()
                    .filter(|f| f.flow - first < ShownFlows::RECORDED)
                    .cloned(),
            );
        }
        if flows.iter().all(|f| f.flow == flows[0].flow) {
            return;
        }
        for flow in flows {
            let of = format!("flow {}", self.flows.shown(flow.flow));
            row.counter(&of, "received_frames", "frames", flow.received);
            row.counter(&of, "received_octets", "octets", flow.octets);
            row.counter(&of, "latency_samples", "frames", flow.latency.samples);
            row.counter(&of, "latency_sum_ns", "ns", flow.latency.sum as u64);
        }
    }
}

/// Records the counters of a sender so far.
fn seen_sent(row: &mut Row<'_>, of: &str, seen: &CounterValues) {
    row.counter(of, "offered_frames", "frames", seen.offered_frames);
    row.counter(of, "offered_octets", "octets", seen.offered_octets);
    row.counter(of, "unsent_frames", "frames", seen.unsent_frames);
}

/// Records the counters of a receiver so far.
fn seen_received(row: &mut Row<'_>, of: &str, seen: &CounterValues) {
    row.counter(of, "received_frames", "frames", seen.received_frames);
    row.counter(of, "received_octets", "octets", seen.received_octets);
    row.counter(of, "duplicate_frames", "frames", seen.duplicate_frames);
    row.counter(of, "reordered_frames", "frames", seen.reordered_frames);
    row.level(of, "outages", "outages", seen.outages as f64);
    row.counter(of, "latency_samples", "frames", seen.latency_samples);
    row.counter(of, "latency_sum_ns", "ns", seen.latency_sum_ns);
}

/// Progress of the streams since the last view.
#[derive(Default)]
struct Progress {
    start_ns: u64,
    /// Planned length with the wait for frames in flight, in ns; `None` if there is none.
    whole_ns: Option<u64>,
    /// Number and sum of the latencies at the last view.
    latency: (u64, u64),
}

#[cfg(test)]
mod tests {
    use std::{
        sync::Mutex,
        thread::{ThreadId, current},
    };

    use wb_measure::{Counters, Histogram, Measurement};
    use wb_model::plan::PortPlan;
    use wb_port::offload::ReceiveOffload;

    use super::*;
    use wb_engine::opening::Environment;
    use wb_testing::eventually;

    /// Account that records which threads began it.
    #[derive(Clone, Default)]
    struct Account(Arc<Mutex<Vec<ThreadId>>>);

    impl ReceiveOffload for Account {
        fn begin(&mut self, _: u64) {
            self.0.lock().unwrap().push(current().id());
        }

        fn since(&mut self, _: u64) {}

        fn drain_since(&mut self, _: u64) {}

        fn end_at(&mut self, _: u64) {}

        fn counters(&self) -> Counters {
            Counters::default()
        }

        fn latency(&self) -> (u64, u128) {
            (0, 0)
        }

        fn ramp_frames(&self) -> u64 {
            0
        }

        fn latencies(&self) -> Vec<Histogram> {
            Vec::new()
        }

        fn first_flows(&self, _: u32) -> Vec<FlowStats> {
            Vec::new()
        }

        fn measurement(&self) -> Measurement {
            Measurement::default()
        }
    }

    /// No worker thread may begin an account late: another worker may already send.
    #[test]
    fn accounts_begin_before_the_threads_of_their_workers() {
        let mut plan = Plan::default();
        for name in ["a", "b"] {
            plan.ports.push(PortPlan {
                workers: 2,
                ..PortPlan::new(name, "memory:x".parse().unwrap())
            });
        }
        plan.traffic.push(TrafficJob {
            tx: Some("a".to_owned()),
            rx: Some("b".to_owned()),
            streams: vec![wb_model::Stream::default()],
            count: Some(1),
            drain: "1ms".parse().unwrap(),
            ..TrafficJob::default()
        });
        let environment = Environment::default();
        let mut opening = Opening::new(&plan, &environment, Vec::new());
        let streams = open(&plan, &mut opening).unwrap();
        let mut traffic = Traffic::resolve(&plan, streams, &mut opening).unwrap();
        // Pretends that the receiving port is live.
        traffic.ports[1].facts.driver = Driver::Live.name();
        traffic.ports[1].queues.clear();
        let accounts = [Account::default(), Account::default()];
        traffic.offloaded[1] = accounts
            .clone()
            .map(|account| OffloadedWorker {
                sender: None,
                receiver: Some(Box::new(account)),
            })
            .into();
        let alarm = Arc::default();
        let cpus = vec![Vec::new(); traffic.placed().len()];
        let launch = Launch {
            cpus: &cpus,
            alarm: &alarm,
        };
        traffic.spawn(&launch).unwrap();
        traffic.begin(wb_machine::clock::monotonic_ns() + traffic.lead_ns());
        eventually("the run ends", || {
            traffic.state(wb_machine::clock::monotonic_ns()) == EngineState::Over
        });
        assert_eq!(traffic.join(), None);
        for account in accounts {
            let begun = account.0.lock().unwrap();
            assert_eq!(begun.first(), Some(&current().id()), "{begun:?}");
        }
    }
}
