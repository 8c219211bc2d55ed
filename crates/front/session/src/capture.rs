//! Captures: frames of ports into files, with an exact account.
//!
//! [`prepare_capture`] does everything that can fail before the first frame: it compiles the filter,
//! opens the ports and the output. [`PreparedCapture::run`] then captures until it is told to stop,
//! and reads what is still on its way before it counts.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use wb_capture::{
    Account, Capture, CaptureControl, CaptureShared, CaptureSpec, InterfaceSpec, ReaderOutcome,
    ReaderSeat, Writer, WriterOutcome, run_reader, run_writer,
};
use wb_filter::{Ancillary, Program};
use wb_host::{
    clock::{monotonic_ns, wall_minus_monotonic, wall_ns},
    ethtool::{Ethtool, Offload},
    expression::{TapFilter, compile_for_tap},
    offloads::OffloadsOff,
    user::Kept,
};
use wb_model::{
    Driver, Lateness, LatenessReport, Plan, PortPlan, REPORT_SCHEMA, Report, Totals, Verdict,
    capture::{CaptureJob, CaptureOutput, DirectWrites, Direction, Stamps},
    criteria::{Limit, Metric},
    report::{CaptureReaderReport, CaptureReport, ClockReport, CriterionReport, PortReport, Rates},
};
use wb_packet::{Fanout, FilterOp, PacketOptions};

pub use wb_capture::{CaptureSnapshot, Flushed, FrameSink, ReaderSnapshot, SinkEnd, SinkFrame};

use crate::{
    End, Environment, Finished, Signals, StartError, SystemClock,
    account::{share, signal_name},
    clock::{clock_report, rfc3339},
    commands::Commands,
    ports::{
        AnyQueue, OpenPort, Tap, Use, Wire, capture_xdp_options, locate_wire, open_capture,
        open_virtual, require_link, total_memory,
    },
    run::{Alarm, clock_step, settle_worker},
};

/// How often the controlling thread looks at signals and workers.
const LOOK: Duration = Duration::from_millis(10);
/// How long readers have to hand over what they hold, before the next file begins.
const HAND_OVER_NS: u64 = 100_000_000;
/// Smallest and largest receive ring that is chosen without being asked, over all readers, bytes.
const RING: std::ops::RangeInclusive<u64> = 64 << 20..=1 << 30;
/// The ring where nothing is known of the rate, bytes. The kernel sets a larger one up for seconds when its page
/// cache is full.
const RING_UNKNOWN: u64 = 512 << 20;
/// No ring takes more than this part of the memory.
const RING_SHARE: u64 = 8;
/// A block of the ring.
const BLOCK: usize = 1 << 20;

struct Seat {
    port: usize,
    queue_number: u32,
    queue: AnyQueue,
    seat: ReaderSeat,
}

/// Ports and output, open: frames are waiting already.
pub struct PreparedCapture {
    commands: Option<Commands>,
    plan: Plan,
    ports: Vec<OpenPort>,
    seats: Vec<Seat>,
    writer: Writer,
    shared: Arc<CaptureShared>,
    ring_bytes: u64,
    offloads: Vec<OffloadsOff>,
    warnings: Vec<String>,
    signals: Signals,
}

/// What came of a capture.
pub struct CaptureFinished {
    /// The report, and how the capture ended.
    pub finished: Finished,
    /// Where every frame went.
    pub account: Account,
}

/// What is shown of a capture while it runs.
#[derive(Clone, Debug)]
pub struct CaptureView {
    /// Since the start, ns.
    pub elapsed_ns: u64,
    /// Since the view before, ns.
    pub interval_ns: u64,
    /// Counters.
    pub counters: CaptureSnapshot,
    /// Someone asked for the counts by signal.
    pub asked: bool,
    /// The last view: all is written.
    pub done: bool,
}

/// Compiles the filter, opens the ports, then the output. `sink` takes the frames where the plan has
/// no output, and beside it where it has one.
///
/// # Errors
/// With the first thing that stands in the way; nothing is left open then.
pub fn prepare_capture(
    mut plan: Plan,
    environment: &Environment,
    sink: Option<Box<dyn FrameSink>>,
    utc_offset_s: fn(i64) -> i64,
) -> Result<PreparedCapture, StartError> {
    let mut warnings = plan.validate()?;
    warnings.extend(wb_host::offloads::repair());
    let Some(job) = plan.captures.first().cloned() else {
        return Err(StartError::stream("plan", "it captures nothing"));
    };
    let filter = match job.filter.as_str() {
        "" => None,
        text => Some(
            compile_for_tap(text, job.snap_len, true)
                .map_err(|e| StartError::Filter(Box::new(e)))?,
        ),
    };
    plan.ports.retain(|p| job.ports.contains(&p.name));
    let readers: u64 = plan.ports.iter().map(|p| u64::from(p.workers)).sum();
    check_realtime(&job, readers)?;
    let mut offloads = Vec::new();
    let mut ports = Vec::new();
    for name in &job.ports {
        let Some(port) = plan.ports.iter().find(|p| p.name == *name) else {
            continue;
        };
        let open = open_port(port, &job, filter.as_ref(), readers, &mut offloads)?;
        warnings.extend(
            open.facts
                .warnings
                .iter()
                .map(|w| format!("{}: {w}", open.facts.locator)),
        );
        if let Some(filter) = &filter {
            check_place(filter, &open)?;
        }
        ports.push(open);
    }
    let kept = kept_privileges(&job, &ports);
    if let Some(user) = &job.user {
        wb_host::user::become_user(user, kept).map_err(StartError::machine)?;
    }
    let ring_bytes = ports.iter().map(|p| p.ring_bytes).sum();
    let queues = ports.iter().map(|p| p.queues.len()).sum();
    let mut spec = spec(&job, &ports, utc_offset_s);
    let program = job.output.as_ref().and_then(|o| o.command.as_deref());
    let commands = match program.map(Commands::start).transpose()? {
        Some((finished, commands)) => {
            spec.finished = Some(finished);
            Some(commands)
        }
        None => None,
    };
    let Capture {
        readers,
        writer,
        shared,
    } = Capture::open_with(&spec, sink, queues, wall_ns()).map_err(StartError::Output)?;
    if job.user.is_some() {
        let opens_anywhere = false;
        wb_host::user::keep_only(Kept {
            opens_anywhere,
            ..kept
        })
        .map_err(StartError::machine)?;
    }
    let mut given = readers.into_iter();
    let mut seats = Vec::new();
    for (number, port) in ports.iter_mut().enumerate() {
        for (queue_number, queue) in (0..).zip(std::mem::take(&mut port.queues)) {
            let Some(mut seat) = given.next() else { break };
            seat.busy = job.busy;
            if let (false, Some(filter)) = (port.filters, &filter) {
                seat.filter = Some(by_program(filter.whole.clone()));
            }
            seats.push(Seat {
                port: number,
                queue_number,
                queue,
                seat,
            });
        }
    }
    if let Some(Err(why)) = filter.as_ref().map(|f| &f.attach)
        && ports.iter().any(|p| p.facts.driver == "packet")
    {
        warnings.push(format!(
            "the filter runs in this program and not in the kernel: {why}"
        ));
    }
    Ok(PreparedCapture {
        commands,
        plan,
        ports,
        seats,
        writer,
        shared,
        ring_bytes,
        offloads,
        warnings,
        signals: environment.signals.clone(),
    })
}

/// What has to be done after the user has changed: like tcpdump, a capture into one file opens it where root
/// could; and the XDP program is told to let nothing more in.
fn kept_privileges(job: &CaptureJob, ports: &[OpenPort]) -> Kept {
    let one_file = |o: &CaptureOutput| {
        let rotates = o.rotate_bytes > 0 || o.rotate_frames > 0 || o.rotate_time.is_some();
        !rotates && !o.part && o.command.is_none()
    };
    Kept {
        opens_anywhere: job.output.as_ref().is_some_and(one_file),
        bpf: ports.iter().any(|port| port.facts.driver == "xdp"),
    }
}

/// What a filter asks the kernel for only the kernel answers.
fn check_place(filter: &TapFilter, port: &OpenPort) -> Result<(), StartError> {
    let asks = filter.whole.kernel_values().next().is_some();
    if asks && (port.facts.driver != "packet" || filter.attach.is_err()) {
        return Err(StartError::stream(
            port.facts.locator.to_string(),
            "the filter asks which way a packet goes (inbound, outbound) or the like; only a socket of the packet driver knows that",
        ));
    }
    Ok(())
}

fn by_program(program: Program) -> wb_capture::FrameFilter {
    let nothing = Ancillary::default();
    Box::new(move |frame, len| program.accepts(frame, len, &nothing) > 0)
}

fn open_port(
    port: &PortPlan,
    job: &CaptureJob,
    filter: Option<&TapFilter>,
    readers: u64,
    calm: &mut Vec<OffloadsOff>,
) -> Result<OpenPort, StartError> {
    if !port.locator.is_interface() {
        let used = Use {
            tx: false,
            rx: true,
            watch: true,
            ..Use::default()
        };
        return open_virtual(port, used, &mut wb_port::memory::Registry::default());
    }
    let wire = locate_wire(port)?;
    if !wire.link.up {
        require_link(port, &wire)?;
    }
    if job.offloads_off {
        let off = OffloadsOff::on(&wire.namespace, &wire.interface.name);
        calm.push(off.map_err(|cause| StartError::host(&port.locator, cause))?);
    }
    let tap = if port.locator.driver == Some(Driver::Xdp) {
        if job.stamps != Stamps::Host {
            return Err(StartError::stream(
                port.locator.to_string(),
                "by XDP frames are stamped by the host; the card's stamps are for the packet driver",
            ));
        }
        let whole = filter.map_or_else(
            || Program::accept_all(job.snap_len),
            |filter| filter.whole.clone(),
        );
        Tap::Xdp(capture_xdp_options(port, &wire, whole)?)
    } else {
        Tap::Packet(packet_options(port, job, filter, readers, &wire))
    };
    let open = open_capture(port, wire, &tap)?;
    if job.stamps != Stamps::Host && open.facts.stamp_source != wb_port::StampSource::Nic {
        return Err(StartError::stream(
            port.locator.to_string(),
            "the interface does not stamp received frames, so there are host stamps only; where -J lists adapter, switch it on with `hwstamp_ctl -r 1 -i IF`",
        ));
    }
    Ok(open)
}

fn packet_options(
    port: &PortPlan,
    job: &CaptureJob,
    filter: Option<&TapFilter>,
    readers: u64,
    wire: &Wire,
) -> PacketOptions {
    let each = if port.ring_bytes > 0 {
        port.ring_bytes
    } else {
        ring_for(job, wire) / readers.max(1)
    };
    let (block_bytes, least_blocks) = match usize::try_from(port.block_bytes) {
        Ok(bytes) if bytes > 0 => (bytes, 2),
        _ => (BLOCK, PacketOptions::default().least_blocks),
    };
    let attach = filter.and_then(|f| f.attach.as_ref().ok());
    PacketOptions {
        queues: port.workers,
        tx: false,
        rx: true,
        rx_ring_bytes: usize::try_from(each).unwrap_or(usize::MAX),
        block_bytes,
        least_blocks,
        block_timeout_ms: u32::try_from(job.block_timeout.as_nanos() / 1_000_000).unwrap_or(100),
        snap_len: if filter.is_some_and(|f| f.attach.is_err()) {
            // Our own filter has to see the whole frame.
            262_144
        } else {
            job.snap_len
        },
        fanout: if job.single_flow {
            Fanout::RoundRobin
        } else if port.workers <= wire.interface.rx_queues {
            Fanout::RxQueue
        } else {
            Fanout::Hash
        },
        hw_stamps: job.stamps != Stamps::Host,
        promiscuous: job.promiscuous,
        filter: attach.map(operations),
        ignore_outgoing: job.direction == Direction::In,
        only_outgoing: job.direction == Direction::Out,
        ..PacketOptions::default()
    }
}

/// Whether received segments are joined on an interface.
fn joins_segments(wire: &Wire) -> bool {
    let Ok(ethtool) = Ethtool::open(&wire.namespace) else {
        return false;
    };
    [Offload::Gro, Offload::Lro]
        .into_iter()
        .any(|o| matches!(ethtool.offload(&wire.interface.name, o), Ok(Some(true))))
}

/// Whether readers may run before all ordinary threads: a single CPU would do nothing else.
fn check_realtime(job: &CaptureJob, readers: u64) -> Result<(), StartError> {
    if !job.realtime {
        return Ok(());
    }
    let cpus = wb_host::cpu::allowed().map_or(1, |cpus| cpus.len() as u64);
    let most = if job.busy {
        cpus.saturating_sub(1)
    } else {
        cpus
    };
    if cpus < 2 || readers > most {
        return Err(StartError::stream(
            "capture",
            format!(
                "realtime readers would leave no CPU for the rest: {readers} of them{}, {cpus} CPUs",
                if job.busy { ", that never sleep" } else { "" }
            ),
        ));
    }
    // Tried here, where it can still be refused.
    wb_host::realtime::set_realtime(true)
        .and_then(|()| wb_host::realtime::set_realtime(false))
        .map_err(StartError::machine)
}

fn operations(program: &Program) -> Vec<FilterOp> {
    let instructions = program.instructions().iter();
    instructions.map(|i| (i.code, i.jt, i.jf, i.k)).collect()
}

/// Bytes that a frame of `len` takes in a ring of TPACKET_V3: headers of 82 bytes, rounded up to 8.
const fn slot(len: u64) -> u64 {
    (len + 82).next_multiple_of(8)
}

fn ring_for(job: &CaptureJob, wire: &Wire) -> u64 {
    let longest = u64::from(wire.interface.mtu + 14);
    let kept = u64::from(job.snap_len).min(longest);
    let speed = wire.interface.speed.filter(|s| !s.nominal);
    // Frames as long as those that are kept, as fast as the link carries them.
    let of_link = speed.map(|speed| speed.bits_per_second / (8 * (kept.max(60) + 24)));
    let pps = job.expect_pps.or(of_link);
    ring_bytes(pps, kept, job.stall.as_nanos(), total_memory())
}

/// Twice what the frames of the stall that is to be survived take, since blocks that are handed
/// over before they are full waste up to half of a ring.
fn ring_bytes(pps: Option<u64>, kept: u64, stall_ns: u64, memory: u64) -> u64 {
    let most = |bytes: u64| bytes.min(memory / RING_SHARE).max(*RING.start());
    let Some(pps) = pps else {
        return most(RING_UNKNOWN);
    };
    let bytes = 2 * u128::from(pps) * u128::from(slot(kept)) * u128::from(stall_ns) / 1_000_000_000;
    u64::try_from(bytes)
        .unwrap_or(u64::MAX)
        .clamp(*RING.start(), most(*RING.end()))
}

fn spec(job: &CaptureJob, ports: &[OpenPort], utc_offset_s: fn(i64) -> i64) -> CaptureSpec {
    let interfaces = ports
        .iter()
        .map(|port| {
            let name = port.wire.as_ref().map_or_else(
                || port.plan.locator.name.clone(),
                |w| w.interface.name.clone(),
            );
            InterfaceSpec {
                description: port.plan.locator.node.clone(),
                mac: port.wire.as_ref().map(|w| w.interface.mac),
                speed_bps: port
                    .facts
                    .speed
                    .filter(|s| !s.nominal)
                    .map(|s| s.bits_per_second),
                filter: Some(job.filter.clone()).filter(|f| !f.is_empty()),
                ..InterfaceSpec::new(name)
            }
        })
        .collect();
    let system = rustix::system::uname();
    CaptureSpec {
        snap_len: job.snap_len,
        os: Some(format!(
            "{} {}",
            system.sysname().to_string_lossy(),
            system.release().to_string_lossy()
        )),
        hardware: Some(system.machine().to_string_lossy().into_owned()),
        application: Some(format!("wirebench {}", env!("CARGO_PKG_VERSION"))),
        limit: job.count,
        overflow: job.overflow,
        utc_offset_s,
        ..CaptureSpec::new(interfaces, job.output.clone())
    }
}

type Readers = Vec<(usize, u32, JoinHandle<ReaderOutcome>)>;

impl PreparedCapture {
    /// What the user should know before it starts.
    #[must_use]
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// The plan as it runs.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The names of the interfaces, in order.
    #[must_use]
    pub fn interfaces(&self) -> Vec<String> {
        let name = |p: &OpenPort| p.plan.locator.place();
        self.ports.iter().map(name).collect()
    }

    /// A line for each port: locator, driver, mode, and why.
    #[must_use]
    pub fn port_lines(&self) -> Vec<String> {
        self.ports.iter().map(OpenPort::line).collect()
    }

    /// Captures until a signal, the limit, the time, the end of all files, or a fault. `listening`
    /// is called when all readers run; `observe` once per interval, and at the end.
    ///
    /// # Errors
    /// Only when a thread cannot be started.
    pub fn run(
        mut self,
        listening: &mut dyn FnMut(),
        observe: &mut dyn FnMut(&CaptureView),
    ) -> Result<CaptureFinished, StartError> {
        let control = Arc::new(CaptureControl::new());
        let before: Vec<_> = self.ports.iter().map(OpenPort::counters).collect();
        let offset = wall_minus_monotonic();
        let start_ns = monotonic_ns();
        let started_wall_ns = wall_ns();
        let faulted = Arc::new(AtomicBool::new(false));
        let (writer_control, shared) = (Arc::clone(&control), Arc::clone(&self.shared));
        let writer = self.writer;
        let writer = std::thread::Builder::new()
            .name("wb-writer".to_owned())
            .spawn(move || {
                // A starved writer fills the buffers, and then the ring.
                settle_worker(None);
                run_writer(writer, &writer_control, &SystemClock)
            })
            .map_err(StartError::thread)?;
        let realtime = self.plan.captures.first().is_some_and(|job| job.realtime);
        let mut readers: Readers = Vec::new();
        let mut seats = std::mem::take(&mut self.seats).into_iter();
        while let Some(seat) = seats.next() {
            let (control_of_reader, faulted) = (Arc::clone(&control), Arc::clone(&faulted));
            let cpu = self.ports[seat.port]
                .plan
                .cpus
                .get(seat.queue_number as usize)
                .copied();
            let (port, number) = (seat.port, seat.queue_number);
            let interface = u32::try_from(port).unwrap_or(u32::MAX);
            let work = move || {
                let alarm = Alarm(faulted);
                settle_worker(cpu);
                if realtime {
                    // It was allowed a moment ago.
                    let _ = wb_host::realtime::set_realtime(true);
                }
                let (control, seat_of_reader) = (&*control_of_reader, seat.seat);
                let outcome = match seat.queue {
                    AnyQueue::Xdp(q) => read(q, seat_of_reader, interface, control),
                    AnyQueue::XdpGroup(q) => read(q, seat_of_reader, interface, control),
                    AnyQueue::Packet(q) => read(q, seat_of_reader, interface, control),
                    AnyQueue::Memory(q) => read(q, seat_of_reader, interface, control),
                    AnyQueue::File(q) => read(q, seat_of_reader, interface, control),
                };
                if outcome.fault.is_some() {
                    alarm.0.store(true, Ordering::Release);
                }
                outcome
            };
            let name = format!("wb-capture-{}-{number}", self.ports[port].plan.name);
            match std::thread::Builder::new().name(name).spawn(work) {
                Ok(thread) => readers.push((port, number, thread)),
                Err(cause) => {
                    control.hurry();
                    // The writer waits for the buffers of all who may still bring some.
                    drop(seats);
                    for (_, _, thread) in readers {
                        let _ = thread.join();
                    }
                    let _ = writer.join();
                    return Err(StartError::thread(cause));
                }
            }
        }
        listening();
        let watch = Watch {
            plan: &self.plan,
            ports: &self.ports,
            shared: &shared,
            control: &control,
            faulted: &faulted,
            signals: &self.signals,
            start_ns,
            before: &before,
        };
        let mut end = watch.until_the_end(&readers, &writer, observe);

        let mut outcomes = Vec::new();
        let mut places = Vec::new();
        for (port, queue, thread) in readers {
            match thread.join() {
                Ok(outcome) => {
                    outcomes.push(outcome);
                    places.push((port, queue));
                }
                Err(_) => end = End::Fault("a reader panicked; its counts are missing".to_owned()),
            }
        }
        let Ok(written) = writer.join() else {
            return Err(StartError::stream(
                "capture",
                "the writer panicked; the files may miss what it held",
            ));
        };
        if let Some(fault) = outcomes.iter().find_map(|o| o.fault.as_ref()) {
            end = End::Fault(fault.to_string());
        }
        if let Some(error) = &written.error {
            end = End::Fault(error.to_string());
        }
        self.warnings.extend(output_warnings(&self.plan, &written));
        if let Some(commands) = self.commands.take() {
            self.warnings.extend(commands.finish(&self.signals));
        }
        let account = Account::of(&outcomes, &written);
        self.warnings.extend(joined(&self.ports, &outcomes));
        self.offloads.clear();
        let after = self.ports.iter().map(OpenPort::counters).collect();
        let ended = Ended {
            plan: &self.plan,
            ports: &self.ports,
            ring_bytes: self.ring_bytes,
            outcomes: &outcomes,
            places: &places,
            written: &written,
            account: &account,
            buffers: shared.snapshot().buffers,
            before,
            after,
            started_wall_ns,
            elapsed_ns: monotonic_ns().saturating_sub(start_ns),
            clock_step_ns: clock_step(offset, wall_minus_monotonic()),
            warnings: std::mem::take(&mut self.warnings),
            end,
        };
        let (report, end) = report(ended);
        Ok(CaptureFinished {
            finished: Finished { report, end },
            account,
        })
    }
}

/// A warning for each port that showed joined segments, which are no frames of the wire.
fn joined(ports: &[OpenPort], outcomes: &[ReaderOutcome]) -> Vec<String> {
    let mut warnings = Vec::new();
    for (number, port) in (0..).zip(ports) {
        let Some(wire) = &port.wire else { continue };
        let of_port = outcomes.iter().filter(|o| o.interface == number);
        let longest = of_port.map(|o| o.longest_frame).max().unwrap_or(0);
        // The Ethernet header and a VLAN tag.
        if longest > wire.interface.mtu + 18 && joins_segments(wire) {
            warnings.push(format!(
                "{}: a frame of {longest} bytes was seen, longer than any on the wire: segments were joined (GRO); --offloads off shows them as they came",
                port.facts.locator
            ));
        }
    }
    warnings
}

fn read<Q: wb_port::QueuePair>(
    mut queue: Q,
    seat: ReaderSeat,
    interface: u32,
    control: &CaptureControl,
) -> ReaderOutcome {
    run_reader(queue.rx(), seat, interface, control, &SystemClock)
}

/// What an interface received and dropped between two looks.
fn grown(before: &BTreeMap<String, u64>, after: &BTreeMap<String, u64>) -> (u64, u64) {
    let grew = |key: &str| {
        let of = |m: &BTreeMap<String, u64>| m.get(key).copied().unwrap_or(0);
        of(after).saturating_sub(of(before))
    };
    (
        grew("rx_packets"),
        grew("rx_missed_errors") + grew("rx_fifo_errors") + grew("rx_over_errors"),
    )
}

/// Everything that decides when a capture ends.
struct Watch<'a> {
    plan: &'a Plan,
    ports: &'a [OpenPort],
    shared: &'a CaptureShared,
    control: &'a CaptureControl,
    faulted: &'a AtomicBool,
    signals: &'a Signals,
    start_ns: u64,
    before: &'a [BTreeMap<String, u64>],
}

impl Watch<'_> {
    fn until_the_end(
        &self,
        readers: &Readers,
        writer: &JoinHandle<WriterOutcome>,
        observe: &mut dyn FnMut(&CaptureView),
    ) -> End {
        let interval = self.plan.interval.as_nanos();
        let duration = self.plan.captures.first().and_then(|c| c.duration);
        let job = self.plan.captures.first();
        let most = job.and_then(|c| c.stop_octets).unwrap_or(u64::MAX);
        let until = duration.map_or(u64::MAX, |d| self.start_ns.saturating_add(d.as_nanos()));
        let (mut last_ns, mut next) = (self.start_ns, self.start_ns + interval);
        let mut requests = self.signals.requests();
        let mut next_file = u64::MAX;
        let mut end = End::Completed;
        let mut view = |now: u64, asked: bool, done: bool| {
            let view = CaptureView {
                elapsed_ns: now.saturating_sub(self.start_ns),
                interval_ns: now.saturating_sub(last_ns).max(1),
                counters: self.shared.snapshot(),
                asked,
                done,
            };
            last_ns = now;
            observe(&view);
        };
        loop {
            std::thread::sleep(LOOK);
            let now = monotonic_ns();
            if end == End::Completed
                && let Some(signal) = self.signals.received()
            {
                end = End::Signal(signal);
                self.control.stop();
            }
            if self.faulted.load(Ordering::Acquire) || now >= until {
                self.control.stop();
            }
            if most < u64::MAX && self.shared.snapshot().file_octets >= most {
                self.control.stop();
            }
            if self.signals.hurry() {
                self.control.hurry();
            }
            if self.control.stopped() {
                // For the last statistics in the file.
                self.tell_interfaces();
            }
            let asked = self.signals.requests();
            if asked[1] != requests[1] {
                self.control.request_flush();
            }
            if asked[2] != requests[2] {
                // What was read belongs to this file.
                self.control.request_flush();
                next_file = now + HAND_OVER_NS;
            }
            if now >= next_file {
                self.control.request_rotation();
                next_file = u64::MAX;
            }
            let wants_counts = asked[0] != requests[0];
            requests = asked;
            if readers.iter().all(|(_, _, thread)| thread.is_finished()) && writer.is_finished() {
                view(now, false, true);
                return end;
            }
            if now >= next || wants_counts {
                self.tell_interfaces();
                view(now, wants_counts, false);
                while next <= now {
                    next += interval;
                }
            }
        }
    }

    /// For the statistics in the files.
    fn tell_interfaces(&self) {
        for (number, (port, before)) in (0..).zip(self.ports.iter().zip(self.before)) {
            if let Some(wire) = &port.wire {
                let (received, dropped) = grown(before, &wire.counters());
                self.shared.set_interface(number, received, dropped);
            }
        }
    }
}

/// What the user has to know of the files.
fn output_warnings(plan: &Plan, written: &WriterOutcome) -> Vec<String> {
    let mut warnings = Vec::new();
    match written.files_removed {
        0 => {}
        1 => warnings.push("1 finished file was removed to make room".to_owned()),
        n => warnings.push(format!("{n} finished files were removed to make room")),
    }
    if written.room_short {
        warnings.push(
            "there was less room than --keep-free asks for, and no finished file left to remove"
                .to_owned(),
        );
    }
    let output = plan.captures.first().and_then(|job| job.output.as_ref());
    if output.is_some_and(|output| output.direct == DirectWrites::Always)
        && written.direct_files < written.files
    {
        warnings.push(
            "the output cannot be written past the page cache; it went through it".to_owned(),
        );
    }
    warnings
}

/// Everything the report is made of.
struct Ended<'a> {
    plan: &'a Plan,
    ports: &'a [OpenPort],
    ring_bytes: u64,
    outcomes: &'a [ReaderOutcome],
    places: &'a [(usize, u32)],
    written: &'a WriterOutcome,
    account: &'a Account,
    buffers: u64,
    before: Vec<BTreeMap<String, u64>>,
    after: Vec<BTreeMap<String, u64>>,
    started_wall_ns: u64,
    elapsed_ns: u64,
    clock_step_ns: i64,
    warnings: Vec<String>,
    end: End,
}

#[allow(clippy::cast_precision_loss)]
fn ms(ns: u64) -> f64 {
    ns as f64 / 1e6
}

fn capture_report(ended: &Ended<'_>, interface_drops: u64) -> CaptureReport {
    let account = ended.account;
    let job = ended.plan.captures.first().cloned().unwrap_or_default();
    let outcomes = || ended.outcomes.iter();
    CaptureReport {
        filter_accept_frames: account.filter_accept,
        captured_frames: account.captured,
        kernel_drop_frames: account.kernel_drop,
        not_written_frames: account.not_written,
        queue_drop_frames: account.queue_drop,
        over_limit_frames: account.over_limit,
        not_read_frames: account.not_read,
        interface_drop_frames: interface_drops,
        exact: account.exact(),
        write_error: ended.written.error.as_ref().map(ToString::to_string),
        files: ended.written.files,
        last_file: ended.written.path.as_ref().map(|p| p.display().to_string()),
        file_octets: ended.written.file_octets,
        files_removed: ended.written.files_removed,
        filter: job.filter,
        snap_len: job.snap_len,
        ring_bytes: ended.ring_bytes,
        block_timeout_ms: ms(job.block_timeout.as_nanos()),
        ring_freezes: outcomes().map(|o| o.rx.freezes).sum(),
        longest_gap_ms: ms(outcomes().map(|o| o.longest_gap_ns).max().unwrap_or(0)),
        longest_write_ms: ms(ended.written.longest_write_ns),
        write_p50_ms: ms(ended.written.write_p50_ns),
        write_p99_ms: ms(ended.written.write_p99_ns),
        buffer_waits: outcomes().map(|o| o.buffer_waits).sum(),
        buffers: ended.buffers,
        buffers_fewest: ended.written.buffers_fewest,
        readers: outcomes()
            .zip(ended.places)
            .map(|(o, (port, queue))| CaptureReaderReport {
                port: ended.ports[*port].plan.name.clone(),
                queue: *queue,
                cpu: ended.ports[*port].plan.cpus.get(*queue as usize).copied(),
                read_frames: o.read_frames,
                read_octets: o.read_octets,
                kernel_drop_frames: o.rx.dropped_frames,
                kernel_counters: o.kernel.iter().map(|&(n, v)| (n.to_owned(), v)).collect(),
                longest_gap_ms: ms(o.longest_gap_ns),
            })
            .collect(),
    }
}

/// The report, and how the capture ended: an account that does not add up is a fault of ours.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss
)]
fn report(mut ended: Ended<'_>) -> (Report, End) {
    let account = ended.account;
    let interface_drops: u64 = ended
        .before
        .iter()
        .zip(&ended.after)
        .map(|(before, after)| grown(before, after).1)
        .sum();
    if !account.exact() && !matches!(ended.end, End::Fault(_)) {
        ended.end = End::Fault("the account does not add up".to_owned());
    }
    let lost = account.lost() + interface_drops;
    let loss = share(lost, account.filter_accept + interface_drops);
    let criteria: Vec<CriterionReport> = ended
        .plan
        .criteria
        .iter()
        .filter(|c| c.metric == Metric::Loss)
        .map(|c| CriterionReport {
            criterion: c.to_string(),
            measured: Some(loss),
            held: match c.limit {
                Limit::Share(s) => loss <= s.as_f64(),
                Limit::Time(_) => false,
            },
        })
        .collect();
    let held = if criteria.is_empty() {
        lost == 0
    } else {
        criteria.iter().all(|c| c.held)
    };
    let verdict = match &ended.end {
        End::Fault(_) => Verdict::Invalid,
        // What was lost is lost, however it ended.
        _ if !held => Verdict::Fail,
        End::Signal(_) if !ended.plan.is_endless() => Verdict::Incomplete,
        _ => Verdict::Pass,
    };
    let reason = match &ended.end {
        End::Fault(text) => format!("ended by a fault: {text}"),
        End::Signal(n) if verdict == Verdict::Incomplete => {
            format!("ended early by {}; nothing was lost", signal_name(*n))
        }
        _ if lost == 0 => "nothing was lost".to_owned(),
        _ => format!("{lost} frames were lost"),
    };
    let late = lateness_of(&ended);
    let by = match &ended.end {
        _ if lost > 0 => lost_because(account, interface_drops, &late),
        End::Signal(n) => format!("{}: it ended the capture", signal_name(*n)),
        _ => "the plan: it said when to end".to_owned(),
    };
    let read = account.read_frames();
    let octets: u64 = ended.outcomes.iter().map(|o| o.read_octets).sum();
    let seconds = ended.elapsed_ns.max(1) as f64 / 1e9;
    let report = Report {
        schema: REPORT_SCHEMA.to_owned(),
        kind: ended.plan.kind.clone(),
        verdict,
        reason,
        limited_by: by,
        started: rfc3339(ended.started_wall_ns),
        elapsed_ns: ended.elapsed_ns,
        plan: ended.plan.clone(),
        totals: Totals {
            received_frames: Some(read),
            received_octets: Some(octets),
            rx_dropped_frames: Some(account.kernel_drop),
            ..Totals::default()
        },
        rates: Rates {
            received_pps: Some(read as f64 / seconds),
            received_l2_bps: Some(octets as f64 * 8.0 / seconds),
            rx_time_ns: Some(ended.elapsed_ns),
            ..Rates::default()
        },
        latency_ns: Default::default(),
        jitter_ns: Default::default(),
        jitter_rfc3550_ns: None,
        ipdv_ns: Default::default(),
        pdv_ns: Default::default(),
        inter_arrival_ns: Default::default(),
        inter_departure_ns: None,
        percentile_error: 0.0,
        jobs: Vec::new(),
        flows: Vec::new(),
        flows_omitted: 0,
        workers: Vec::new(),
        ports: port_reports(&ended),
        criteria,
        capture: Some(capture_report(&ended, interface_drops)),
        load: None,
        socket: None,
        lateness: LatenessReport {
            all: late,
            may_have_caused: None,
        },
        clock: ClockReport {
            rx_stamp: ended
                .ports
                .iter()
                .map(|p| format!("{}: {}", p.plan.name, p.facts.stamp_source))
                .collect::<Vec<_>>()
                .join(", "),
            ..clock_report(ended.clock_step_ns)
        },
        warnings: ended.warnings,
    };
    (report, ended.end)
}

/// How late all readers were, with what their rings dropped for it.
fn lateness_of(ended: &Ended<'_>) -> Lateness {
    let outcomes = ended.outcomes.iter();
    outcomes.fold(Lateness::default(), |sum, o| {
        sum.plus(&Lateness {
            dropped_reads: o.rx.dropped_frames,
            ..o.lateness
        })
    })
}

/// Why frames are missing in a capture: always the tester, for nobody else was asked to keep them.
fn lost_because(account: &Account, interface_drops: u64, late: &Lateness) -> String {
    let written = account.not_written + account.queue_drop;
    if account.kernel_drop > 0 {
        format!("the tester: its readers were late ({})", late.account())
    } else if written > 0 {
        format!("the tester: it could not write {written} frames")
    } else if interface_drops > 0 {
        format!("the interface: it dropped {interface_drops} frames before any filter")
    } else {
        "the tester: it did not read all that came".to_owned()
    }
}

fn port_reports(ended: &Ended<'_>) -> Vec<PortReport> {
    ended
        .ports
        .iter()
        .enumerate()
        .map(|(i, port)| port.report(&ended.before[i], &ended.after[i]))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ring_is_for_the_stall_and_no_more_than_there_is() {
        const MIB: u64 = 1 << 20;
        const SECOND: u64 = 1_000_000_000;
        let ring = |pps, stall_ns, memory_mib| ring_bytes(pps, 1514, stall_ns, memory_mib * MIB);
        // Where the rate is not known.
        assert_eq!(ring(None, SECOND, 16 << 10), 512 * MIB);
        assert_eq!(ring(None, 10 * SECOND, 4 << 10), 512 * MIB);
        assert_eq!(ring(None, SECOND, 2 << 10), 256 * MIB);
        assert_eq!(ring(None, SECOND, 256), 64 * MIB);
        // Where it is: 1600 bytes for each frame of 1514, and that twice.
        assert_eq!(ring(Some(100_000), SECOND, 16 << 10), 320_000_000);
        assert_eq!(ring(Some(100_000), SECOND / 2, 16 << 10), 160_000_000);
        assert_eq!(ring(Some(1), SECOND, 16 << 10), 64 * MIB);
        assert_eq!(ring(Some(800_000), SECOND, 16 << 10), 1024 * MIB);
        assert_eq!(ring(Some(1_000_000_000), 3600 * SECOND, 2 << 10), 256 * MIB);
    }
}
