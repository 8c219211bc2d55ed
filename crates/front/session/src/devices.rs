//! Runs of packet devices, and of ports that watch for their packets.
//!
//! The same steps as for traffic: everything that can fail is done by [`prepare_devices`];
//! [`PreparedDevices::run`] then sends, and ends with a report. While it runs, each device can be
//! stopped, watched and given other settings through its [`DeviceHandle`].

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use wb_host::{
    clock::{monotonic_ns, wall_minus_monotonic, wall_ns},
    ethtool::Ethtool,
};
use wb_model::{
    Phase, Plan, PortPlan, SendWay, Snapshot, Totals,
    device::{DeviceConfig, DeviceJob, Flags, Interface},
};
use wb_port::memory::Registry;
use wb_traffic::{Control, CounterValues, WatchOutcome, device_lane, run_devices, run_watcher};
use wb_walk::{Start, Walker};
use wb_xdp::consume::Consumer;

pub use wb_traffic::{DeviceEnd, DeviceHandle, DeviceOutcome, Extra, WatchHandle, WatchSettings};

use crate::{
    End, Environment, Finished, Signals, StartError, SystemClock,
    guard::{Guard, Source},
    machine::describe,
    ports::{
        AnyQueue, OpenPort, Use, Wire, find_wire, locate_wire, open_virtual, open_wire,
        require_link,
    },
    run::{Alarm, clock_step, settle_worker},
};

/// A queue of a watching port.
#[derive(Clone)]
pub struct WatchQueue {
    /// The port's name.
    pub port: String,
    /// The CPU whose packets it gets, where the driver tells them apart; else the worker's.
    pub cpu: u32,
    /// To tell its worker, and to see what it counted.
    pub handle: Arc<WatchHandle>,
}

/// A device with the queue it sends on.
struct DeviceSeat {
    cpu: u32,
    queue: AnyQueue,
    walker: Walker,
    handle: Arc<DeviceHandle>,
}

struct WatchSeat {
    port: usize,
    queue: AnyQueue,
    watch: WatchQueue,
}

/// Devices and watching ports, open; the next step sends.
pub struct PreparedDevices {
    plan: Plan,
    ports: Vec<OpenPort>,
    devices: Vec<DeviceSeat>,
    handles: Vec<Arc<DeviceHandle>>,
    watch_seats: Vec<WatchSeat>,
    watches: Vec<WatchQueue>,
    /// They keep from the host what is counted, for as long as they live.
    consumers: Vec<Consumer>,
    warnings: Vec<String>,
    signals: Signals,
}

/// What came of a run of devices.
pub struct DevicesFinished {
    /// The report, and how the run ended.
    pub finished: Finished,
    /// The devices, in the order of the plan; none for one whose worker died.
    pub devices: Vec<Option<DeviceOutcome>>,
}

/// Time between the start order and the first packet, for all workers to be ready.
const LEAD: Duration = Duration::from_millis(5);
/// How often the controlling thread looks at signals and workers.
const LOOK: Duration = Duration::from_millis(2);
/// How long watching ports go on after the last device has ended.
const DRAIN: Duration = Duration::from_millis(200);

/// Checks the plan against the machine and opens its ports.
///
/// `walkers` are the devices as earlier runs left them, one for each of the plan; empty: all begin
/// anew.
///
/// # Errors
/// With the first thing that stands in the way; nothing is left open then.
pub fn prepare_devices(
    mut plan: Plan,
    walkers: Vec<Walker>,
    environment: &Environment,
) -> Result<PreparedDevices, StartError> {
    let mut warnings = plan.validate()?;
    warnings.extend(wb_host::offloads::repair());
    if !plan.traffic.is_empty() {
        return Err(StartError::stream("plan", "it has traffic, and no devices"));
    }
    let cpus = online_cpus();
    for port in &mut plan.ports {
        settle_port(port, &plan.devices, &plan.watches, &cpus);
    }
    plan.ports.retain(|p| p.workers > 0);
    let mut memory = Registry::default();
    let mut open_ports = Vec::new();
    let mut facts = Vec::new();
    for port in &plan.ports {
        let sends = plan.devices.iter().any(|d| d.port == port.name);
        let (open, interface) = open_port(&plan, port, sends, &mut memory)?;
        warnings.extend(
            open.facts
                .warnings
                .iter()
                .map(|w| format!("{}: {w}", open.facts.locator)),
        );
        facts.push(interface);
        open_ports.push(open);
    }
    memory.drop_unopened();
    let mut queues: Vec<_> = open_ports
        .iter_mut()
        .map(|p| std::mem::take(&mut p.queues).into_iter())
        .collect();
    let port_of = |name: &str| {
        let found = plan.ports.iter().position(|p| p.name == *name);
        found.ok_or_else(|| StartError::stream(name, "no such port"))
    };

    let guard = Guard::of(&plan);
    let mut walkers = walkers.into_iter();
    let mut devices = Vec::new();
    for job in &plan.devices {
        let port = port_of(&job.port)?;
        let walker = match walkers.next() {
            // Whoever brings walkers has said what is to be said of them.
            Some(walker) => walker,
            None => {
                if job.settings.flags.has(Flags::IPSEC) {
                    warnings.push(format!(
                        "{}: flag IPSEC: packets leave in clear, nothing is encrypted",
                        job.settings.name
                    ));
                }
                fresh_walker(job, &facts[port], plan.seed, devices.len())?
            }
        };
        let queue = queues[port].next().ok_or_else(|| {
            StartError::stream(
                job.port.clone(),
                "the port has too few queues for its devices",
            )
        })?;
        let mut handle = DeviceHandle::new();
        if open_ports[port].wire.is_some() {
            guard.walker(&walker)?;
            let interface = facts[port].clone();
            handle = DeviceHandle::guarded(move |settings: &DeviceConfig| {
                let source = [Source::Device(settings, &interface)];
                guard.addresses(&source).map_err(|e| e.to_string())
            });
        }
        devices.push(DeviceSeat {
            cpu: job.cpu,
            queue,
            handle: Arc::new(handle),
            walker,
        });
    }
    let mut watch_seats = Vec::new();
    let mut consumers = Vec::new();
    for job in &plan.watches {
        let port = port_of(&job.port)?;
        let settings = WatchSettings {
            mode: job.mode,
            rule: job.jitter,
            takes_latency: true,
            sequences: true,
            clears: 0,
        };
        for (queue, cpu) in queues[port].by_ref().zip(cpus.iter().chain([&0])) {
            watch_seats.push(WatchSeat {
                port,
                queue,
                watch: WatchQueue {
                    port: job.port.clone(),
                    cpu: *cpu,
                    handle: Arc::new(WatchHandle::new(settings)),
                },
            });
        }
        if let (true, Some(wire)) = (job.consume, &open_ports[port].wire) {
            let interface = &wire.interface;
            let attached =
                wb_host::in_namespace(&wire.namespace, || wb_xdp::consume::attach(interface))
                    .map_err(StartError::machine)?;
            match attached {
                Ok(consumer) => consumers.push(consumer),
                Err(error) => warnings.push(format!(
                    "{error}; the host sees the packets too, and may answer them"
                )),
            }
        }
    }
    Ok(PreparedDevices {
        handles: devices.iter().map(|d| Arc::clone(&d.handle)).collect(),
        watches: watch_seats.iter().map(|s| s.watch.clone()).collect(),
        plan,
        ports: open_ports,
        devices,
        watch_seats,
        consumers,
        warnings,
        signals: environment.signals.clone(),
    })
}

fn online_cpus() -> Vec<u32> {
    let cpus = wb_host::cpu::online().unwrap_or_default();
    if cpus.is_empty() {
        return vec![0];
    }
    cpus.into_iter().map(|cpu| cpu.id).collect()
}

/// A queue for each device, or for each CPU of a watching port.
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
    } else {
        port.workers = 0;
    }
}

fn open_port(
    plan: &Plan,
    port: &PortPlan,
    sends: bool,
    memory: &mut Registry,
) -> Result<(OpenPort, Interface), StartError> {
    let used = Use {
        tx: sends,
        rx: !sends,
        watch: !sends,
        ..Use::default()
    };
    if !port.locator.is_interface() {
        let open = open_virtual(port, used, memory)?;
        return Ok((open, Interface::default()));
    }
    let (own, interface) = own_interface(port)?;
    // Whoever waits for packets can wait for the cable too.
    if sends || !own.link.up {
        require_link(port, &own)?;
    }
    if sends {
        // Frames that go inwards are the host's to answer or to forward.
        Guard::of(plan).outlet(port, &own)?;
    }
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
    Ok((open_wire(port, used, wire, longest)?, interface))
}

/// What keeps one device from sending, and not the others.
#[derive(Debug)]
pub struct PortFault {
    /// In words.
    pub error: StartError,
    /// The interface is there, but down or without a cable.
    pub without_link: bool,
}

/// What keeps each device of a plan from sending, in their order: what can be told without opening
/// its port.
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

/// What the devices of a port are configured by, which is not where frames leave if they go inwards.
fn own_interface(port: &PortPlan) -> Result<(Wire, Interface), StartError> {
    let own = locate_wire(&PortPlan {
        way: SendWay::Direct,
        ..port.clone()
    })?;
    let ethtool = Ethtool::open(&own.namespace).ok();
    let interface = describe(&own.netlink, ethtool.as_ref(), &own.link);
    Ok((own, interface))
}

/// The largest frame that a device will send: settings can be changed while it runs.
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
        // Devices of one plan are not to draw the same numbers.
        seed: seed ^ (number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15),
        time_form: job.time,
        ..Start::default()
    };
    Walker::new(job.settings.clone(), &start)
        .map_err(|e| StartError::stream(job.settings.name.clone(), e.to_string()))
}

impl PreparedDevices {
    /// The plan as it will run.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The devices, in the order of the plan.
    #[must_use]
    pub fn devices(&self) -> &[Arc<DeviceHandle>] {
        &self.handles
    }

    /// The queues of the watching ports.
    #[must_use]
    pub fn watches(&self) -> &[WatchQueue] {
        &self.watches
    }

    /// A line for each port: locator, driver, mode, and why.
    #[must_use]
    pub fn port_lines(&self) -> Vec<String> {
        self.ports.iter().map(OpenPort::line).collect()
    }

    /// What the user should know before it starts.
    #[must_use]
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Runs until all devices have ended, or, without devices, until all watches have. `observe` is
    /// called once per interval with the counters so far.
    ///
    /// # Errors
    /// Only before the first packet: when a thread cannot be started.
    pub fn run(
        mut self,
        observe: &mut dyn FnMut(&Snapshot),
    ) -> Result<DevicesFinished, StartError> {
        let before: Vec<_> = self.ports.iter().map(OpenPort::counters).collect();
        let control = Arc::new(Control::new());
        let offset = wall_minus_monotonic();
        let start_ns = monotonic_ns() + LEAD.as_nanos() as u64;
        let started_wall_ns = wall_ns() + LEAD.as_nanos() as u64;
        control.start_at_mono_ns.store(start_ns, Ordering::Release);
        let faulted = Arc::new(AtomicBool::new(false));
        let watchers = self.start_watchers(&faulted)?;
        let senders = match self.start_senders(&control, &faulted) {
            Ok(senders) => senders,
            Err(error) => {
                self.watches.iter().for_each(|w| w.handle.stop());
                for (_, _, thread) in watchers {
                    let _ = thread.join();
                }
                return Err(error);
            }
        };
        let end = self.watch(start_ns, &faulted, &senders, &watchers, observe);

        let mut dead = None;
        let mut outcomes: Vec<Option<DeviceOutcome>> = Vec::new();
        outcomes.resize_with(self.handles.len(), || None);
        for (numbers, thread) in senders {
            match thread.join() {
                Ok(list) => {
                    for (number, outcome) in numbers.into_iter().zip(list) {
                        outcomes[number] = Some(outcome);
                    }
                }
                Err(_) => dead = Some("a worker thread panicked; its counts are missing"),
            }
        }
        let mut watched = Vec::new();
        for (port, queue, thread) in watchers {
            match thread.join() {
                Ok(outcome) => watched.push((port, queue, outcome)),
                Err(_) => dead = Some("a watching thread panicked; its counts are missing"),
            }
        }
        let after = self.ports.iter().map(OpenPort::counters).collect();
        let fault = outcomes
            .iter()
            .flatten()
            .find_map(|o| o.fault.as_ref().map(ToString::to_string))
            .or_else(|| {
                watched
                    .iter()
                    .find_map(|(_, _, w)| w.fault.as_ref().map(ToString::to_string))
            });
        let end = match dead.map(str::to_owned).or(fault) {
            Some(text) => End::Fault(text),
            None => end,
        };
        let report = crate::device_report::report(&crate::device_report::Ended {
            plan: &self.plan,
            ports: &self.ports,
            devices: &outcomes,
            watched: &watched,
            consumers: &self.consumers,
            before,
            after,
            started_wall_ns,
            elapsed_ns: monotonic_ns().saturating_sub(start_ns),
            clock_step_ns: clock_step(offset, wall_minus_monotonic()),
            end: end.clone(),
            warnings: std::mem::take(&mut self.warnings),
        });
        Ok(DevicesFinished {
            finished: Finished { report, end },
            devices: outcomes,
        })
    }
}

/// Worker threads of devices, with the numbers of their devices.
type Senders = Vec<(Vec<usize>, JoinHandle<Vec<DeviceOutcome>>)>;
/// Threads of watching queues, with their ports.
type Watchers = Vec<(usize, WatchQueue, JoinHandle<WatchOutcome>)>;

impl PreparedDevices {
    /// One worker for each CPU that has devices.
    fn start_senders(
        &mut self,
        control: &Arc<Control>,
        faulted: &Arc<AtomicBool>,
    ) -> Result<Senders, StartError> {
        let mut by_cpu: BTreeMap<u32, Vec<(usize, DeviceSeat)>> = BTreeMap::new();
        control
            .senders_running
            .store(self.devices.len(), Ordering::Release);
        for (number, seat) in std::mem::take(&mut self.devices).into_iter().enumerate() {
            by_cpu.entry(seat.cpu).or_default().push((number, seat));
        }
        let mut threads: Senders = Vec::new();
        for (cpu, seats) in by_cpu {
            let mut numbers = Vec::new();
            let mut lanes = Vec::new();
            for (number, seat) in seats {
                numbers.push(number);
                let DeviceSeat { walker, handle, .. } = seat;
                lanes.push(match seat.queue {
                    AnyQueue::Xdp(q) => device_lane(q, walker, handle, SystemClock),
                    AnyQueue::XdpGroup(q) => device_lane(q, walker, handle, SystemClock),
                    AnyQueue::Packet(q) => device_lane(q, walker, handle, SystemClock),
                    AnyQueue::Memory(q) => device_lane(q, walker, handle, SystemClock),
                    AnyQueue::File(q) => device_lane(q, walker, handle, SystemClock),
                });
            }
            let control_of_thread = Arc::clone(control);
            let alarm = Alarm(Arc::clone(faulted));
            let started = std::thread::Builder::new()
                .name(format!("wb-pktgend-{cpu}"))
                .spawn(move || {
                    let _alarm = alarm;
                    settle_worker(Some(cpu));
                    run_devices(lanes, &control_of_thread, &SystemClock)
                });
            match started {
                Ok(thread) => threads.push((numbers, thread)),
                Err(cause) => {
                    control.stop.store(true, Ordering::Release);
                    for (_, thread) in threads {
                        let _ = thread.join();
                    }
                    return Err(StartError::thread(cause));
                }
            }
        }
        Ok(threads)
    }

    fn start_watchers(&mut self, faulted: &Arc<AtomicBool>) -> Result<Watchers, StartError> {
        let mut threads: Watchers = Vec::new();
        for seat in std::mem::take(&mut self.watch_seats) {
            let WatchSeat { port, queue, watch } = seat;
            let (handle, faulted) = (Arc::clone(&watch.handle), Arc::clone(faulted));
            let cpu = self.ports[port].wire.as_ref().map(|_| watch.cpu);
            let work = move || {
                let alarm = Alarm(faulted);
                settle_worker(cpu);
                let outcome = match queue {
                    AnyQueue::Xdp(mut q) => run_watcher(&mut q, &handle, &SystemClock),
                    AnyQueue::XdpGroup(mut q) => run_watcher(&mut q, &handle, &SystemClock),
                    AnyQueue::Packet(mut q) => run_watcher(&mut q, &handle, &SystemClock),
                    AnyQueue::Memory(mut q) => run_watcher(&mut q, &handle, &SystemClock),
                    AnyQueue::File(mut q) => run_watcher(&mut q, &handle, &SystemClock),
                };
                if outcome.fault.is_some() {
                    alarm.0.store(true, Ordering::Release);
                }
                outcome
            };
            let name = format!("wb-watch-{}", watch.cpu);
            match std::thread::Builder::new().name(name).spawn(work) {
                Ok(thread) => threads.push((port, watch, thread)),
                Err(cause) => {
                    self.watches.iter().for_each(|w| w.handle.stop());
                    for (_, _, thread) in threads {
                        let _ = thread.join();
                    }
                    return Err(StartError::thread(cause));
                }
            }
        }
        Ok(threads)
    }

    /// Waits for the end, whichever comes first, and publishes snapshots meanwhile.
    fn watch(
        &self,
        start_ns: u64,
        faulted: &AtomicBool,
        senders: &Senders,
        watchers: &Watchers,
        observe: &mut dyn FnMut(&Snapshot),
    ) -> End {
        let interval = self.plan.interval.as_nanos();
        let mut next_snapshot = start_ns + interval;
        let mut end = End::Completed;
        let mut drain_until: Option<u64> = None;
        let mut live = Live::new(start_ns);
        let durations = self.plan.watches.iter().map(|w| w.duration);
        let longest = durations
            .map(|d| d.map_or(u64::MAX, |d| d.as_nanos()))
            .max()
            .unwrap_or(0);
        let watch_until = start_ns.saturating_add(longest);
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
                    self.handles.iter().for_each(|h| h.stop());
                }
            }
            let sent_all = senders.iter().all(|(_, thread)| thread.is_finished());
            let watched_all = watchers.iter().all(|(_, _, thread)| thread.is_finished());
            let over = match (senders.is_empty(), watchers.is_empty()) {
                // Devices decide how long watching goes on.
                (false, _) => sent_all,
                (true, false) => watched_all || now >= watch_until,
                (true, true) => true,
            };
            if drain_until.is_none() && (over || (end != End::Completed && sent_all)) {
                let drain = !watched_all && !senders.is_empty();
                drain_until = Some(if drain {
                    now + DRAIN.as_nanos() as u64
                } else {
                    now
                });
            }
            if self.signals.hurry() {
                drain_until = Some(now);
            }
            if now >= next_snapshot {
                let phase = if drain_until.is_some() {
                    Phase::Drain
                } else {
                    Phase::Running
                };
                observe(&live.snapshot(self, now, phase));
                while next_snapshot <= now {
                    next_snapshot += interval;
                }
            }
            if drain_until.is_some_and(|t| now >= t) {
                self.watches.iter().for_each(|w| w.handle.stop());
                observe(&live.snapshot(self, now, Phase::Done));
                return end;
            }
        }
    }
}

/// What the snapshots are made of.
struct Live {
    start_ns: u64,
    last: CounterValues,
    last_watched: (u64, u64),
    last_ns: u64,
}

impl Live {
    fn new(start_ns: u64) -> Self {
        Self {
            start_ns,
            last: CounterValues::default(),
            last_watched: (0, 0),
            last_ns: start_ns,
        }
    }

    fn snapshot(&mut self, run: &PreparedDevices, now: u64, phase: Phase) -> Snapshot {
        let mut sum = CounterValues::default();
        for handle in &run.handles {
            sum += handle.counters().read();
        }
        let mut watched = (0, 0);
        for queue in &run.watches {
            let (row, _) = queue.handle.row();
            watched = (
                watched.0 + row.packets,
                watched.1 + row.bytes + 4 * row.packets,
            );
        }
        let (sends, receives) = (!run.handles.is_empty(), !run.watches.is_empty());
        let interval = now.saturating_sub(self.last_ns).max(1);
        let per_second = |a: u64, b: u64| crate::clock::rate(a.saturating_sub(b), interval);
        let (last, last_watched) = (self.last, self.last_watched);
        let snapshot = Snapshot {
            elapsed_ns: now.saturating_sub(self.start_ns),
            interval_ns: interval,
            phase,
            totals: Totals {
                offered_frames: sends.then_some(sum.offered_frames),
                offered_octets: sends.then_some(sum.offered_octets),
                refused_frames: sends.then_some(sum.refused_frames),
                received_frames: receives.then_some(watched.0),
                received_octets: receives.then_some(watched.1),
                ..Totals::default()
            },
            offered_pps: sends
                .then(|| per_second(sum.offered_frames, last.offered_frames))
                .flatten(),
            received_pps: receives
                .then(|| per_second(watched.0, last_watched.0))
                .flatten(),
            offered_l2_bps: sends
                .then(|| per_second(sum.offered_octets, last.offered_octets))
                .flatten()
                .map(|octets| 8.0 * octets),
            received_l2_bps: receives
                .then(|| per_second(watched.1, last_watched.1))
                .flatten()
                .map(|octets| 8.0 * octets),
            progress: None,
            missing_frames: None,
            load: None,
            socket: None,
            latency_mean_ns: None,
        };
        (self.last, self.last_watched, self.last_ns) = (sum, watched, now);
        snapshot
    }
}
