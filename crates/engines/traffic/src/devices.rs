//! Runs of packet devices, and of ports that watch for their packets.
//!
//! While they run, each device can be stopped, watched and given other settings through its
//! [`DeviceHandle`].

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use crate::{
    DeviceOffload, DeviceTurn, TrafficControl, WatchOutcome, device_sender, run_devices,
    run_watcher,
};
use wb_machine::ethtool::Ethtool;
use wb_model::{
    Driver, JobKind, Phase, Plan, PortPlan, SendWay, Snapshot,
    device::{DeviceConfig, DeviceJob, Flags, Interface},
    timeline::Row,
};
use wb_pktgen_device::{Start, Walker};
use wb_port::{QueuePair, offload::Refusal};
use wb_xdp::consume::Consumer;

pub use crate::{DeviceEnd, DeviceHandle, DeviceOutcome, WatchExtras, WatchHandle, WatchSettings};

use wb_engine::{Ended, Engine, EngineState, Launch, Outcome, Part, Stop};
use wb_engine::{
    clock::SystemClock,
    clock::wall_of_start,
    describe::describe,
    guard::{Guard, Source},
    opening::{Opening, check_cpus},
};
use wb_open::{
    AnyQueue, OnQueue, OpenPort, StartError, Use, Wire, Workers, find_wire, locate_wire, open_wire,
    require_link,
};

use crate::engine::live::refuse;

mod live;
mod report;

/// A queue of a watching port.
#[derive(Clone)]
pub struct WatchQueue {
    /// The port's name.
    pub port: String,
    /// CPU from which the queue gets packets, if the driver steers by CPU. Otherwise the CPU of the worker.
    pub cpu: u32,
    /// Controls the worker and shows its counters.
    pub handle: Arc<WatchHandle>,
}

/// A device with its sending queue.
struct DeviceSlot {
    cpu: u32,
    port: usize,
    queue: AnyQueue,
    walker: Walker,
    /// Set if the kernel makes the device's packets.
    offload: Option<DeviceOffload>,
    handle: Arc<DeviceHandle>,
}

struct WatchSlot {
    port: usize,
    queue: AnyQueue,
    watch: WatchQueue,
}

/// All packet devices of a run, and all ports that watch for their packets.
pub struct Devices {
    plan: Plan,
    ports: Vec<OpenPort>,
    slots: Vec<DeviceSlot>,
    /// Handles of the devices, in the order of the plan.
    pub handles: Vec<Arc<DeviceHandle>>,
    watch_slots: Vec<WatchSlot>,
    /// Queues of the watching ports.
    pub watches: Vec<WatchQueue>,
    /// Programs that hide the counted packets from the host for as long as they live.
    consumers: Vec<Consumer>,
    /// Programs at the other end that let in the packets made by the kernel.
    _passages: Vec<wb_live::PassProgram>,
    control: Arc<TrafficControl>,
    /// One sender for each CPU that has devices, with the numbers of these devices.
    senders: Workers<Vec<DeviceOutcome>>,
    sent_by: Vec<Vec<usize>>,
    watchers: Workers<WatchOutcome>,
    start_ns: u64,
    stopping: bool,
    /// Time at which the wait for packets in flight ends.
    drain_until: Option<u64>,
    /// Outcomes in the order of the plan; `None` if the worker died.
    outcomes: Vec<Option<DeviceOutcome>>,
    watched: Vec<(WatchQueue, WatchOutcome)>,
}

/// Time between the start order and the first packet, for all workers to be ready.
const LEAD: Duration = Duration::from_millis(5);
/// Time that watching ports continue after the last device has ended.
const DRAIN: Duration = Duration::from_millis(200);

impl Devices {
    /// Opens the ports of the plan's devices and watches. `walkers` holds one device state from earlier runs for each
    /// device of the plan. If empty, all devices start anew.
    ///
    /// # Errors
    /// Returns the first problem found. Nothing stays open on error.
    pub fn open(
        plan: &Plan,
        walkers: Vec<Walker>,
        opening: &mut Opening<'_>,
    ) -> Result<Self, StartError> {
        let mut plan = plan.part(JobKind::Devices);
        settle_ports(&mut plan);
        check_cpus(&plan)?;
        let plan = &plan;
        let cpus = online_cpus();
        let (mut ports, facts) = open_ports(plan, opening)?;
        let mut queues: Vec<_> = ports
            .iter_mut()
            .map(|p| std::mem::take(&mut p.queues).into_iter())
            .collect();
        let place = |name: &str| {
            let found = ports.iter().position(|p| p.plan.name == *name);
            found.ok_or_else(|| StartError::stream(name, "no such port"))
        };
        let guard = Guard::of(plan);
        let mut walkers = walkers.into_iter();
        let mut slots = Vec::new();
        for job in &plan.devices {
            let port = place(&job.port)?;
            let walker = match walkers.next() {
                // The caller that passes walkers has already reported their warnings.
                Some(walker) => walker,
                None => {
                    if job.settings.flags.has(Flags::IPSEC) {
                        opening.warnings.push(format!(
                            "{}: flag IPSEC: packets are sent unencrypted",
                            job.settings.name
                        ));
                    }
                    fresh_walker(job, &facts[port], plan.seed, slots.len())?
                }
            };
            let queue = queues[port].next().ok_or_else(|| {
                StartError::stream(job.port.clone(), "the port has fewer queues than devices")
            })?;
            let mut handle = DeviceHandle::new();
            if ports[port].wire.is_some() {
                guard.walker(&walker)?;
                let interface = facts[port].clone();
                handle = DeviceHandle::guarded(move |settings: &DeviceConfig| {
                    let source = [Source::Device(settings, &interface)];
                    guard.addresses(&source).map_err(|e| e.to_string())
                });
            }
            slots.push(DeviceSlot {
                cpu: job.cpu,
                port,
                queue,
                offload: None,
                handle: Arc::new(handle),
                walker,
            });
        }
        let mut watch_slots = Vec::new();
        let mut consumers = Vec::new();
        for job in &plan.watches {
            let port = place(&job.port)?;
            let settings = WatchSettings {
                mode: job.mode,
                rule: job.jitter,
                takes_latency: true,
                sequences: true,
                clears: 0,
            };
            for (queue, cpu) in queues[port].by_ref().zip(cpus.iter().chain([&0])) {
                watch_slots.push(WatchSlot {
                    port,
                    queue,
                    watch: WatchQueue {
                        port: job.port.clone(),
                        cpu: *cpu,
                        handle: Arc::new(WatchHandle::new(settings)),
                    },
                });
            }
            if let (true, Some(wire)) = (job.consume, &ports[port].wire) {
                consumers.extend(consume(wire, opening)?);
            }
        }
        let passages = live::offload(&mut ports, &mut slots)?;
        Ok(Self {
            _passages: passages,
            plan: plan.clone(),
            handles: slots.iter().map(|d| Arc::clone(&d.handle)).collect(),
            watches: watch_slots.iter().map(|s| s.watch.clone()).collect(),
            ports,
            slots,
            watch_slots,
            consumers,
            control: Arc::new(TrafficControl::new()),
            senders: Workers::new(&Arc::default()),
            sent_by: Vec::new(),
            watchers: Workers::new(&Arc::default()),
            start_ns: 0,
            stopping: false,
            drain_until: None,
            outcomes: Vec::new(),
            watched: Vec::new(),
        })
    }
}

/// Hides the packets that a watch counts from the host.
fn consume(wire: &Wire, opening: &mut Opening<'_>) -> Result<Option<Consumer>, StartError> {
    let interface = &wire.interface;
    let attached = wb_machine::in_namespace(&wire.namespace, || wb_xdp::consume::attach(interface))
        .map_err(StartError::machine)?;
    match attached {
        Ok(consumer) => Ok(Some(consumer)),
        Err(error) => {
            opening.warnings.push(format!(
                "{error}; the host also receives the packets and may answer them"
            ));
            Ok(None)
        }
    }
}

/// Gives each port of devices or watches the queues it needs. Workers of streams or loads at the same port keep their
/// queues, and devices and watches get separate queues.
pub fn settle_ports(plan: &mut Plan) {
    let cpus = online_cpus();
    let works = |kind| matches!(kind, JobKind::Traffic | JobKind::Load);
    let own = plan.ports.iter().map(|port| !plan.users(port).any(works));
    let own: Vec<bool> = own.collect();
    for (port, _) in plan.ports.iter_mut().zip(own).filter(|(_, own)| *own) {
        settle_port(port, &plan.devices, &plan.watches, &cpus);
    }
}

fn online_cpus() -> Vec<u32> {
    let cpus = wb_machine::cpu::online().unwrap_or_default();
    if cpus.is_empty() {
        return vec![0];
    }
    cpus.into_iter().map(|cpu| cpu.id).collect()
}

/// Adds a queue for each device, or for each CPU of a watching port.
fn settle_port(
    port: &mut PortPlan,
    devices: &[DeviceJob],
    watches: &[wb_model::device::WatchJob],
    cpus: &[u32],
) {
    let of_devices: Vec<u32> = devices
        .iter()
        .filter(|d| d.port == port.name)
        .map(|d| d.cpu)
        .collect();
    if !of_devices.is_empty() {
        port.workers = of_devices.len() as u32;
        port.cpus = of_devices;
    } else if watches.iter().any(|w| w.port == port.name) {
        port.workers = if port.locator.is_interface() {
            cpus.len() as u32
        } else {
            1
        };
        port.cpus = Vec::new();
    }
}

/// Opens the ports that devices and watches use, with what is known of their interfaces.
fn open_ports(
    plan: &Plan,
    opening: &mut Opening<'_>,
) -> Result<(Vec<OpenPort>, Vec<Interface>), StartError> {
    let (mut ports, mut facts) = (Vec::new(), Vec::new());
    for port in &plan.ports {
        let sends = plan.devices.iter().any(|d| d.port == port.name);
        if sends || plan.watches.iter().any(|w| w.port == port.name) {
            let (open, interface) = open_port(plan, port, sends, opening)?;
            opening.note(&open);
            facts.push(interface);
            ports.push(open);
        }
    }
    Ok((ports, facts))
}

fn open_port(
    plan: &Plan,
    port: &PortPlan,
    sends: bool,
    opening: &mut Opening<'_>,
) -> Result<(OpenPort, Interface), StartError> {
    let used = Use {
        tx: sends,
        rx: !sends,
        watch: !sends,
        sharing: opening.share(port),
        ..Use::default()
    };
    if !port.locator.is_interface() {
        let open = opening.open_virtual(port, used)?;
        return Ok((open, Interface::default()));
    }
    let (own, interface) = own_interface(port)?;
    // A port that waits for packets can also wait for the cable.
    if sends || !own.link.up {
        require_link(port, &own)?;
    }
    if sends {
        // The host answers or forwards frames that go inwards.
        Guard::of(plan).outlet(port, &own)?;
    }
    let asked = port;
    let mut port = port.clone();
    if port.locator.driver == Some(Driver::Live) {
        if !sends {
            let why = "it counts frames of streams only, not frames of a watch";
            return Err(refuse(&port, Refusal::Asked(why)));
        }
        // Settings that the kernel cannot make need a queue of another driver.
        port.locator.driver = None;
    }
    let port = &port;
    let wire = if port.way == SendWay::Receive {
        find_wire(port)?
    } else {
        own
    };
    if sends {
        let jobs = plan.devices.iter().filter(|d| d.port == port.name);
        let sources: Vec<Source> = jobs
            .map(|job| Source::Device(&job.settings, &interface))
            .collect();
        Guard::of(plan).admit(port, &wire, &sources)?;
    }
    let longest = plan
        .devices
        .iter()
        .filter(|d| d.port == port.name)
        .map(|d| longest_frame(&d.settings, &interface))
        .max()
        .unwrap_or(1514);
    let mut open = open_wire(port, used, wire, longest)?;
    open.plan = asked.clone();
    Ok((open, interface))
}

/// Reason why one device cannot send while other devices can.
#[derive(Debug)]
pub struct PortFault {
    /// Description of the fault.
    pub error: StartError,
    /// True if the interface exists but is down or has no cable.
    pub without_link: bool,
}

/// Returns the fault of each device of a plan, in the plan's order, as far as faults can be found without opening a
/// port.
#[must_use]
pub fn device_faults(plan: &Plan) -> Vec<Option<PortFault>> {
    let guard = Guard::of(plan);
    let fault = |job: &DeviceJob| -> Option<PortFault> {
        let port = plan.ports.iter().find(|p| p.name == job.port)?;
        if !port.locator.is_interface() {
            return None;
        }
        let found = locate_wire(port).and_then(|wire| {
            let (own, interface) = own_interface(port)?;
            guard.outlet(port, &own)?;
            guard.admit(port, &wire, &[Source::Device(&job.settings, &interface)])?;
            Ok(wire)
        });
        let (error, without_link) = match found {
            Err(error) => (error, false),
            Ok(wire) => (require_link(port, &wire).err()?, true),
        };
        Some(PortFault {
            error,
            without_link,
        })
    };
    plan.devices.iter().map(fault).collect()
}

/// Returns the interface that configures the devices of a port. Frames that go inwards leave by another interface.
fn own_interface(port: &PortPlan) -> Result<(Wire, Interface), StartError> {
    let own = locate_wire(&PortPlan {
        way: SendWay::Direct,
        ..port.clone()
    })?;
    let ethtool = Ethtool::open(&own.namespace).ok();
    let interface = describe(&own.netlink, ethtool.as_ref(), &own.link);
    Ok((own, interface))
}

/// Returns the length of the longest frame that a device may send, as settings can change during a run.
fn longest_frame(settings: &DeviceConfig, interface: &Interface) -> usize {
    let limit = settings.frame_limit(interface.mtu).max(1514);
    usize::try_from(settings.largest_frame().max(1514).min(limit)).unwrap_or(usize::MAX)
}

fn fresh_walker(
    job: &DeviceJob,
    interface: &Interface,
    seed: u64,
    number: usize,
) -> Result<Walker, StartError> {
    let start = Start {
        interface: interface.clone(),
        cpu: job.cpu,
        // Devices of one plan must not draw the same numbers.
        seed: seed ^ (number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15),
        time_form: job.time,
        ..Start::default()
    };
    Walker::new(job.settings.clone(), &start)
        .map_err(|e| StartError::stream(job.settings.name.clone(), e.to_string()))
}

/// Task that puts a device on its queue.
struct DeviceTask {
    walker: Walker,
    handle: Arc<DeviceHandle>,
    offload: Option<DeviceOffload>,
}

impl OnQueue for DeviceTask {
    type Output = Box<dyn DeviceTurn + Send>;

    fn on<Q: QueuePair + 'static>(self, pair: Q) -> Self::Output {
        device_sender(pair, self.walker, self.handle, self.offload, SystemClock)
    }
}

/// Task that watches a queue.
struct WatchTask(Arc<WatchHandle>);

impl OnQueue for WatchTask {
    type Output = WatchOutcome;

    fn on<Q: QueuePair + 'static>(self, mut pair: Q) -> WatchOutcome {
        run_watcher(&mut pair, &self.0, &SystemClock)
    }
}

impl Devices {
    /// Starts one worker for each CPU that has devices.
    fn start_senders(&mut self) -> Result<(), StartError> {
        let mut by_cpu: BTreeMap<u32, Vec<(usize, DeviceSlot)>> = BTreeMap::new();
        self.control
            .senders_running
            .store(self.slots.len(), Ordering::Release);
        for (number, slot) in std::mem::take(&mut self.slots).into_iter().enumerate() {
            by_cpu.entry(slot.cpu).or_default().push((number, slot));
        }
        for (cpu, slots) in by_cpu {
            let (mut numbers, mut lanes) = (Vec::new(), Vec::new());
            for (number, slot) in slots {
                numbers.push(number);
                lanes.push(slot.queue.give(DeviceTask {
                    walker: slot.walker,
                    handle: slot.handle,
                    offload: slot.offload,
                }));
            }
            self.sent_by.push(numbers);
            let control = Arc::clone(&self.control);
            // A device that fails reports it in its own outcome, and the other devices continue.
            let broke = |_: &Vec<DeviceOutcome>| false;
            let name = format!("wb-pktgend-{cpu}");
            self.senders.spawn(name, Some(cpu), broke, move || {
                run_devices(lanes, &control, &SystemClock)
            })?;
        }
        Ok(())
    }

    fn start_watchers(&mut self) -> Result<(), StartError> {
        for slot in std::mem::take(&mut self.watch_slots) {
            let WatchSlot { port, queue, watch } = slot;
            let cpu = self.ports[port].wire.as_ref().map(|_| watch.cpu);
            let broke = |outcome: &WatchOutcome| outcome.fault.is_some();
            let name = format!("wb-watch-{}", watch.cpu);
            let work = move || queue.give(WatchTask(watch.handle));
            self.watchers.spawn(name, cpu, broke, work)?;
        }
        Ok(())
    }

    fn stop_watching(&self) {
        self.watches.iter().for_each(|w| w.handle.stop());
    }

    /// Time at which watching ends if no device decides the end.
    fn watch_until(&self) -> u64 {
        let durations = self.plan.watches.iter().map(|w| w.duration);
        let longest = durations
            .map(|d| d.map_or(u64::MAX, |d| d.as_nanos()))
            .max();
        self.start_ns.saturating_add(longest.unwrap_or(0))
    }

    /// Returns the time at which the wait for packets in flight ends, once known.
    fn drain_end(&self, now: u64) -> Option<u64> {
        let (sends, watches) = (!self.handles.is_empty(), !self.watches.is_empty());
        let sent_all = self.senders.all_over();
        let watched_all = self.watchers.all_over();
        let over = match (sends, watches) {
            // Devices decide when watching ends.
            (true, _) => sent_all,
            (false, true) => watched_all || now >= self.watch_until(),
            (false, false) => true,
        };
        let drain = sends && !watched_all;
        (over || (self.stopping && sent_all)).then(|| match drain {
            true => now + DRAIN.as_nanos() as u64,
            false => now,
        })
    }
}

impl Engine for Devices {
    fn kind(&self) -> JobKind {
        JobKind::Devices
    }

    fn ports(&self) -> &[OpenPort] {
        &self.ports
    }

    fn only_listens(&self) -> bool {
        self.handles.is_empty()
    }

    fn lead_ns(&self) -> u64 {
        LEAD.as_nanos() as u64
    }

    fn spawn(&mut self, launch: &Launch<'_>) -> Result<(), StartError> {
        self.senders = Workers::new(launch.alarm);
        self.watchers = Workers::new(launch.alarm);
        let started = self.start_watchers().and_then(|()| self.start_senders());
        if started.is_err() {
            self.stop(Stop::Now);
            self.senders.join();
            self.watchers.join();
        }
        started
    }

    fn begin(&mut self, start_ns: u64) {
        self.start_ns = start_ns;
        if !self.handles.is_empty() {
            let since_ns = wall_of_start(start_ns);
            self.watches
                .iter()
                .for_each(|w| w.handle.ignore_before(since_ns));
        }
        self.control
            .start_at_mono_ns
            .store(start_ns, Ordering::Release);
    }

    fn stop(&mut self, how: Stop) {
        self.stopping = true;
        self.handles.iter().for_each(|h| h.stop());
        if how == Stop::Now {
            self.control.stop.store(true, Ordering::Release);
            self.stop_watching();
        }
    }

    fn state(&mut self, now: u64) -> EngineState {
        self.drain_until = self.drain_until.or_else(|| self.drain_end(now));
        if self.drain_until.is_some_and(|t| now >= t) {
            self.stop_watching();
        }
        match self.drain_until {
            _ if self.senders.all_over() && self.watchers.all_over() => EngineState::Over,
            Some(_) => EngineState::Draining,
            None => EngineState::Running,
        }
    }

    fn due_ns(&self) -> u64 {
        self.drain_until.unwrap_or_else(|| self.watch_until())
    }

    fn fill(&self, part: &mut Part<'_>) {
        report::fill(self, part);
    }

    fn show(&mut self, snapshot: &mut Snapshot, _now_ns: u64) {
        snapshot.phase = match self.drain_until {
            Some(_) => Phase::Drain,
            None => Phase::Running,
        };
    }

    fn record(&self, row: &mut Row<'_>) {
        for handle in &self.handles {
            let sent = handle.counters().read();
            row.counter("devices", "offered_frames", "frames", sent.offered_frames);
            row.counter("devices", "offered_octets", "octets", sent.offered_octets);
        }
        for queue in &self.watches {
            let (seen, _) = queue.handle.results();
            let octets = seen.bytes + 4 * seen.packets;
            row.counter("devices", "received_frames", "frames", seen.packets);
            row.counter("devices", "received_octets", "octets", octets);
        }
    }

    fn join(&mut self) -> Option<String> {
        let mut dead = None;
        self.outcomes.resize_with(self.handles.len(), || None);
        for (numbers, list) in self.sent_by.iter().zip(self.senders.join()) {
            match list {
                Some(list) => {
                    for (number, outcome) in numbers.iter().zip(list) {
                        self.outcomes[*number] = Some(outcome);
                    }
                }
                None => dead = Some("a worker thread panicked; its counts are missing"),
            }
        }
        for (queue, outcome) in self.watches.iter().zip(self.watchers.join()) {
            match outcome {
                Some(outcome) => self.watched.push((queue.clone(), outcome)),
                None => dead = Some("a watch thread panicked; its counts are missing"),
            }
        }
        let sent = self.outcomes.iter().flatten().map(|o| &o.fault);
        let fault = sent
            .chain(self.watched.iter().map(|(_, w)| &w.fault))
            .flatten()
            .next();
        dead.map(str::to_owned)
            .or_else(|| fault.map(ToString::to_string))
    }

    fn settle(&mut self, part: &mut Part<'_>, ended: &Ended) -> Outcome {
        let settled = report::settle(self, part, ended);
        let outcomes = std::mem::take(&mut self.outcomes);
        for (handle, outcome) in self.handles.iter().zip(outcomes) {
            outcome.into_iter().for_each(|o| handle.keep_outcome(o));
        }
        settled
    }
}
