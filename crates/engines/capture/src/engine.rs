//! Captures: frames of ports into files, with an exact account.
//!
//! The filter is compiled and the ports and the output are opened before the first frame. A capture continues until it
//! is stopped. It then reads the frames that are still on their way before it counts.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use crate::{
    Capture, CaptureControl, CaptureShared, CaptureSpec, FileId, FrameAccount, FrameSink,
    InterfaceSpec, ReaderOutcome, ReaderSeat, Writer, WriterOutcome, run_reader, run_writer,
};
use jiff::tz::TimeZone;
use wb_filter::{Ancillary, Program};
use wb_machine::{
    clock::{monotonic_ns, wall_ns},
    ethtool::{Ethtool, Offload},
    expression::{LINK_ETHERNET, LiveFilter, compile, compile_live},
    link::XdpProgram,
    offloads::OffloadsOff,
    user::KeptPrivileges,
};
use wb_model::{
    Driver, JobKind, Phase, Plan, PortPlan, Snapshot,
    capture::{CaptureJob, CaptureOutput, Direction, Stamps},
    counted,
    timeline::Row,
};
use wb_packet::{Fanout, FilterOp, PacketOptions};
use wb_port::QueuePair;

use wb_engine::{Ended, Engine, EngineState, Launch, Outcome, Part, Request, Stop};
use wb_engine::{clock::SystemClock, opening::Opening, signals::Signals};
use wb_open::{
    AnyQueue, OnQueue, OpenPort, StartError, Tap, Use, Wire, Workers, capture_xdp_options,
    locate_wire, open_capture, require_link, total_memory,
};

use crate::commands::Commands;
use crate::spec::FileLinks;

mod report;

/// Time that readers have to hand over their buffers before the next file begins.
const HAND_OVER_NS: u64 = 100_000_000;
/// Smallest and largest receive ring that is chosen by default, over all readers, in bytes.
const RING: std::ops::RangeInclusive<u64> = 64 << 20..=1 << 30;
/// Size of the ring if the rate is unknown, in bytes. For a larger ring, the kernel needs seconds when its page cache
/// is full.
const RING_UNKNOWN: u64 = 512 << 20;
/// Inverse of the largest part of the memory that a ring may take.
const RING_SHARE: u64 = 8;
/// Size of a block of the ring, in bytes.
const BLOCK: usize = 1 << 20;
/// Size below which blocks are not made smaller, in bytes.
const SMALLEST_BLOCK: usize = 64 << 10;
/// Time for which a ring lasts at low rates while a reader is held up, in ms, if its blocks are not too small for it.
const HELD_UP_MS: u32 = 250;

struct ReaderSlot {
    port: usize,
    queue_number: u32,
    queue: AnyQueue,
    seat: ReaderSeat,
}

/// Receiver of frames in addition to files or instead of files, and the time zone of file names.
pub struct CaptureExtras {
    /// Receives the frames. If the plan has an output, the frames go to both.
    pub sink: Option<Box<dyn FrameSink>>,
    /// Time zone of file names that contain the time.
    pub zone: TimeZone,
}

impl Default for CaptureExtras {
    fn default() -> Self {
        Self {
            sink: None,
            zone: TimeZone::UTC,
        }
    }
}

/// One capture of a run. Ports and output are open, and frames already wait.
pub struct Captures {
    plan: Plan,
    job: CaptureJob,
    /// Name of the capture, if there are several.
    key: Option<String>,
    ports: Vec<OpenPort>,
    slots: Vec<ReaderSlot>,
    writer: Option<Writer>,
    shared: Arc<CaptureShared>,
    control: Arc<CaptureControl>,
    commands: Option<Commands>,
    offloads: Vec<OffloadsOff>,
    signals: Signals,
    ring_bytes: u64,
    /// Interface counters at the start.
    before: Vec<BTreeMap<String, u64>>,
    start_ns: u64,
    /// Time when the interfaces were last read, for the statistics in the files, in ns.
    recorded_ns: u64,
    /// Time when the size of the files was last compared with the limit, in ns.
    looked_ns: u64,
    next_file: u64,
    readers: Workers<ReaderOutcome>,
    writing: Workers<WriterOutcome>,
    /// Port and queue of each reader.
    seats: Vec<(usize, u32)>,
    /// Port and queue of each reader that has an outcome.
    places: Vec<(usize, u32)>,
    outcomes: Vec<ReaderOutcome>,
    written: Option<WriterOutcome>,
    account: FrameAccount,
    last_warnings: Vec<String>,
    /// XDP programs that a warning has named, with their ports.
    named_programs: BTreeSet<(usize, u32)>,
}

impl Captures {
    /// Opens the captures of a plan. The first one gets the extras.
    ///
    /// # Errors
    /// Returns the first problem found. Nothing stays open on error.
    pub fn open_all(
        plan: &Plan,
        extras: CaptureExtras,
        opening: &mut Opening<'_>,
    ) -> Result<Vec<Self>, StartError> {
        let mut extras = Some(extras);
        let mut files = TakenFiles::default();
        let mut all = Vec::new();
        for job in &plan.captures {
            let mut part = plan.part(JobKind::Capture);
            part.captures = vec![job.clone()];
            let own = |name: &String| *name == job.name;
            part.criteria.retain(|c| c.job.as_ref().is_none_or(own));
            let key = (plan.captures.len() > 1).then(|| job.name.clone());
            let capture = Self::open(&part, key, extras.take().unwrap_or_default(), opening)?;
            files.take(&capture)?;
            all.push(capture);
        }
        Ok(all)
    }

    /// Compiles the filter, opens the ports, then the output. `key` is the name of the capture if there are several.
    ///
    /// # Errors
    /// Returns the first problem found. Nothing stays open on error.
    fn open(
        plan: &Plan,
        key: Option<String>,
        extras: CaptureExtras,
        opening: &mut Opening<'_>,
    ) -> Result<Self, StartError> {
        let job = plan.captures.first().cloned().unwrap_or_default();
        let wanted: Vec<&PortPlan> = job
            .ports
            .iter()
            .filter_map(|name| plan.ports.iter().find(|p| p.name == *name))
            .collect();
        let filter = match job.filter.as_str() {
            "" => None,
            text => Some(live_filter(text, &job, &wanted)?),
        };
        let readers: u64 = wanted.iter().map(|p| u64::from(p.workers)).sum();
        check_realtime(&job, readers)?;
        let mut offloads = Vec::new();
        let mut ports = Vec::new();
        for port in wanted {
            let mut open = open_port(port, &job, filter.as_ref(), readers, &mut offloads, opening)?;
            opening.note(&open);
            open.job = key.clone().unwrap_or_default();
            if let Some(filter) = &filter {
                check_place(filter, &open)?;
            }
            ports.push(open);
        }
        let kept = kept_privileges(&job, &ports);
        if let Some(user) = &job.user {
            wb_machine::user::become_user(user, kept).map_err(StartError::machine)?;
        }
        let queues = ports.iter().map(|p| p.queues.len()).sum();
        let mut spec = spec(&job, &ports, extras.zone);
        if opening.environment.shares_process {
            // Others may have made links in the folder since the plan was checked.
            let below = opening.environment.base.clone();
            spec.links = FileLinks::Refuse { below };
        }
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
        } = Capture::open_with(&spec, extras.sink, queues, wall_ns())
            .map_err(|e| StartError::Output(e.into()))?;
        if job.user.is_some() {
            let opens_anywhere = false;
            wb_machine::user::keep_only(KeptPrivileges {
                opens_anywhere,
                ..kept
            })
            .map_err(StartError::machine)?;
        }
        if let Some(Err(why)) = filter.as_ref().map(|f| &f.attach)
            && ports.iter().any(|p| p.facts.driver == "packet")
        {
            opening.warnings.push(format!(
                "the filter runs in user space, not in the kernel: {why}"
            ));
        }
        let slots = reader_slots(&mut ports, readers, &job, filter.as_ref())?;
        let named_programs = attached_programs(&ports);
        let named_programs = named_programs.map(|(port, p)| (port, p.id)).collect();
        Ok(Self {
            plan: plan.clone(),
            ring_bytes: ports.iter().map(|p| p.ring_bytes).sum(),
            job,
            key,
            ports,
            slots,
            writer: Some(writer),
            shared,
            control: Arc::new(CaptureControl::new()),
            commands,
            offloads,
            signals: opening.environment.signals.clone(),
            before: Vec::new(),
            start_ns: 0,
            recorded_ns: 0,
            looked_ns: 0,
            next_file: u64::MAX,
            readers: Workers::new(&Arc::default()),
            writing: Workers::new(&Arc::default()),
            seats: Vec::new(),
            places: Vec::new(),
            outcomes: Vec::new(),
            written: None,
            account: FrameAccount::default(),
            last_warnings: Vec::new(),
            named_programs,
        })
    }
}

/// XDP programs in front of the ports that see the same frames as the host.
fn attached_programs(ports: &[OpenPort]) -> impl Iterator<Item = (usize, XdpProgram)> {
    ports.iter().enumerate().filter_map(|(number, port)| {
        let wire = port
            .wire
            .as_ref()
            .filter(|_| port.facts.driver == "packet")?;
        let link = wire.netlink.link(&wire.interface.name).ok()?;
        Some((number, link.xdp_attached?))
    })
}

/// Files that captures write to, to detect when two captures share one.
#[derive(Default)]
struct TakenFiles(Vec<(FileId, String)>);

impl TakenFiles {
    /// Registers the open file of a capture. Two names may lead to one file, by links.
    ///
    /// # Errors
    /// Fails if another capture has the file.
    fn take(&mut self, capture: &Captures) -> Result<(), StartError> {
        let Some(id) = capture.writer.as_ref().and_then(Writer::open_file_id) else {
            return Ok(());
        };
        let path = capture.job.output.as_ref().map(|output| &output.path);
        let path = path.cloned().unwrap_or_default();
        if let Some((_, other)) = self.0.iter().find(|(taken, _)| *taken == id) {
            let what = format!("two captures write to the same file: {other:?} and {path:?}");
            return Err(StartError::stream("capture", what));
        }
        self.0.push((id, path));
        Ok(())
    }
}

/// Creates a reader slot for each queue.
fn reader_slots(
    ports: &mut [OpenPort],
    readers: Vec<ReaderSeat>,
    job: &CaptureJob,
    filter: Option<&LiveFilter>,
) -> Result<Vec<ReaderSlot>, StartError> {
    let mut given = readers.into_iter();
    let mut slots = Vec::new();
    for (number, port) in ports.iter_mut().enumerate() {
        for (queue_number, queue) in (0..).zip(std::mem::take(&mut port.queues)) {
            let Some(mut seat) = given.next() else { break };
            seat.busy = job.busy;
            if let (false, Some(filter)) = (port.filters, filter) {
                seat.filter = Some(by_program(whole(filter, &port.facts.locator)?));
            }
            slots.push(ReaderSlot {
                port: number,
                queue_number,
                queue,
                seat,
            });
        }
    }
    Ok(slots)
}

/// Compiles the filter of a job. Frames of files and of memory are filtered like frames of a capture file.
fn live_filter(
    text: &str,
    job: &CaptureJob,
    ports: &[&PortPlan],
) -> Result<LiveFilter, StartError> {
    let wrong = |error| StartError::Filter(Box::new(error));
    if ports.iter().any(|port| port.locator.is_interface()) {
        return compile_live(text, job.snap_len).map_err(wrong);
    }
    let program = compile(text, LINK_ETHERNET, job.snap_len, true).map_err(wrong)?;
    Ok(LiveFilter {
        attach: program.for_tap(),
        whole: Ok(program),
    })
}

/// Compiles the program for frames with all tags in their bytes.
fn whole(filter: &LiveFilter, locator: &impl std::fmt::Display) -> Result<Program, StartError> {
    let made = filter.whole.clone();
    made.map_err(|error| StartError::stream(locator.to_string(), error.to_string()))
}

/// Returns the privileges to keep after the user has changed. Like tcpdump, a capture into one file opens the file
/// wherever root can. A capture by XDP must stop its XDP program at the end.
fn kept_privileges(job: &CaptureJob, ports: &[OpenPort]) -> KeptPrivileges {
    let one_file = |o: &CaptureOutput| {
        let rotates = o.rotate_bytes > 0 || o.rotate_frames > 0 || o.rotate_time.is_some();
        !rotates && !o.part && o.command.is_none()
    };
    KeptPrivileges {
        opens_anywhere: job.output.as_ref().is_some_and(one_file),
        bpf: ports.iter().any(|port| port.facts.driver == "xdp"),
    }
}

/// Checks that the port can answer the filter: some filters ask for facts that only the kernel knows.
fn check_place(filter: &LiveFilter, port: &OpenPort) -> Result<(), StartError> {
    let whole = filter.whole.as_ref().ok();
    let asks = whole.is_some_and(|program| program.kernel_values().next().is_some());
    if asks && (port.facts.driver != "packet" || filter.attach.is_err()) {
        return Err(StartError::stream(
            port.facts.locator.to_string(),
            "the filter tests packet metadata (such as inbound or outbound), which only packet: provides",
        ));
    }
    Ok(())
}

fn by_program(program: Program) -> crate::FrameFilter {
    let nothing = Ancillary::default();
    Box::new(move |frame, len| program.accepts(frame, len, &nothing) > 0)
}

fn open_port(
    port: &PortPlan,
    job: &CaptureJob,
    filter: Option<&LiveFilter>,
    readers: u64,
    calm: &mut Vec<OffloadsOff>,
    opening: &mut Opening<'_>,
) -> Result<OpenPort, StartError> {
    if !port.locator.is_interface() {
        let used = Use {
            tx: false,
            rx: true,
            watch: true,
            ..Use::default()
        };
        return opening.open_virtual(port, used);
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
                "xdp: has host timestamps only; use packet: for timestamps of the network card",
            ));
        }
        let program = match filter {
            None => Program::accept_all(job.snap_len),
            Some(filter) => whole(filter, &port.locator)?,
        };
        Tap::Xdp(capture_xdp_options(port, &wire, program)?)
    } else {
        if let Some(program) = &wire.link.xdp_attached {
            opening.warnings.push(format!(
                "XDP program {} is attached to {}: frames that it consumes do not reach the capture",
                program.id, port.locator
            ));
        }
        Tap::Packet(packet_options(port, job, filter, readers, &wire))
    };
    let open = open_capture(port, wire, &tap)?;
    if job.stamps != Stamps::Host && open.facts.stamp_source != wb_port::StampSource::Nic {
        return Err(StartError::stream(
            port.locator.to_string(),
            "the interface does not timestamp received frames; if -J lists adapter, enable it with `hwstamp_ctl -r 1 -i IF`",
        ));
    }
    Ok(open)
}

fn packet_options(
    port: &PortPlan,
    job: &CaptureJob,
    filter: Option<&LiveFilter>,
    readers: u64,
    wire: &Wire,
) -> PacketOptions {
    let each = if port.ring_bytes > 0 {
        port.ring_bytes
    } else {
        ring_for(job, wire) / readers.max(1)
    };
    let ring_bytes = usize::try_from(each).unwrap_or(usize::MAX);
    let timeout_ms = u32::try_from(job.block_timeout.as_nanos() / 1_000_000).unwrap_or(100);
    let (block_bytes, least_blocks) = match usize::try_from(port.block_bytes) {
        Ok(bytes) if bytes > 0 => (bytes, 2),
        _ => (BLOCK, least_blocks(ring_bytes, timeout_ms)),
    };
    let attach = filter.and_then(|f| f.attach.as_ref().ok());
    PacketOptions {
        queues: port.workers,
        tx: false,
        rx: true,
        rx_ring_bytes: ring_bytes,
        block_bytes,
        least_blocks,
        block_timeout_ms: timeout_ms,
        snap_len: if filter.is_some_and(|f| f.attach.is_err()) {
            // The filter in user space needs the whole frame.
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

/// Minimum number of blocks: at low rates each block is handed over at its timeout, and the ring must last while a
/// reader is held up.
fn least_blocks(ring_bytes: usize, timeout_ms: u32) -> usize {
    let blocks = HELD_UP_MS / timeout_ms.max(1);
    let most = ring_bytes / SMALLEST_BLOCK;
    PacketOptions::default()
        .least_blocks
        .max(most.min(blocks as usize))
}

/// Returns true if an interface joins received segments.
fn joins_segments(wire: &Wire) -> bool {
    let Ok(ethtool) = Ethtool::open(&wire.namespace) else {
        return false;
    };
    [Offload::Gro, Offload::Lro]
        .into_iter()
        .any(|o| matches!(ethtool.offload(&wire.interface.name, o), Ok(Some(true))))
}

/// Checks that readers may run before all ordinary threads: a single CPU would do nothing else.
fn check_realtime(job: &CaptureJob, readers: u64) -> Result<(), StartError> {
    if !job.realtime {
        return Ok(());
    }
    let cpus = wb_machine::cpu::allowed().map_or(1, |cpus| cpus.len() as u64);
    let most = if job.busy {
        cpus.saturating_sub(1)
    } else {
        cpus
    };
    if cpus < 2 || readers > most {
        return Err(StartError::stream(
            "capture",
            format!(
                "too many real-time readers: {} on {}; no CPU is left for the rest",
                match job.busy {
                    true => counted(readers, "busy-polling reader", "busy-polling readers"),
                    false => readers.to_string(),
                },
                counted(cpus, "CPU", "CPUs")
            ),
        ));
    }
    // Tried here, because the run can still be refused here.
    wb_machine::realtime::set_realtime(true)
        .and_then(|()| wb_machine::realtime::set_realtime(false))
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
    // Frames with the length that is kept, at the rate of the link.
    let of_link = speed.map(|speed| speed.bits_per_second / (8 * (kept.max(60) + 24)));
    let pps = job.expect_pps.or(of_link);
    ring_bytes(pps, kept, job.stall.as_nanos(), total_memory())
}

/// Ring size in bytes: twice the frames of the longest stall that the ring must survive, because blocks that are handed
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

fn spec(job: &CaptureJob, ports: &[OpenPort], zone: TimeZone) -> CaptureSpec {
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
        zone,
        ..CaptureSpec::new(interfaces, job.output.clone())
    }
}

/// Task that reads a queue, in a loop compiled for its driver.
struct ReadTask {
    seat: ReaderSeat,
    interface: u32,
    control: Arc<CaptureControl>,
}

impl OnQueue for ReadTask {
    type Output = ReaderOutcome;

    fn on<Q: QueuePair + 'static>(self, mut pair: Q) -> ReaderOutcome {
        run_reader(
            pair.rx(),
            self.seat,
            self.interface,
            &self.control,
            &SystemClock,
        )
    }
}

/// Interval between reads of the interfaces' drop counters for the statistics in the files, in ns.
const INTERFACE_INTERVAL_NS: u64 = 1_000_000_000;
/// Interval at which the size of the files is compared with the limit, in ns.
const FILE_SIZE_INTERVAL_NS: u64 = 10_000_000;

impl Captures {
    fn spawn_reader(&mut self, slot: ReaderSlot) -> Result<(), StartError> {
        let port = &self.ports[slot.port].plan;
        let cpu = port.cpus.get(slot.queue_number as usize).copied();
        let read = ReadTask {
            seat: slot.seat,
            interface: u32::try_from(slot.port).unwrap_or(u32::MAX),
            control: Arc::clone(&self.control),
        };
        self.control.expect_readers_at(monotonic_ns());
        let name = format!("wb-capture-{}-{}", port.name, slot.queue_number);
        let (queue, realtime) = (slot.queue, self.job.realtime);
        let broke = |outcome: &ReaderOutcome| outcome.fault.is_some();
        self.readers.spawn(name, cpu, broke, move || {
            if realtime {
                // An earlier check has shown that this is permitted.
                let _ = wb_machine::realtime::set_realtime(true);
            }
            queue.give(read)
        })?;
        self.seats.push((slot.port, slot.queue_number));
        Ok(())
    }

    fn spawn_writer(&mut self) -> Result<(), StartError> {
        let Some(writer) = self.writer.take() else {
            return Ok(());
        };
        let control = Arc::clone(&self.control);
        // A write failure is in the writer's outcome. Readers continue and count.
        let broke = |_: &WriterOutcome| false;
        // A starved writer fills the buffers, and then the ring.
        let work = move || run_writer(writer, &control, &SystemClock);
        self.writing
            .spawn("wb-writer".to_owned(), None, broke, work)
    }

    /// Counters that the writer had published before it panicked. The frames it held are lost.
    fn written_before_panic(&self) -> WriterOutcome {
        let shown = self.shared.snapshot();
        WriterOutcome {
            written_frames: shown.written_frames,
            not_written_frames: shown.not_written_frames,
            file_octets: shown.file_octets,
            files: shown.files,
            files_removed: shown.files_removed,
            path: shown.path,
            ..WriterOutcome::default()
        }
    }

    /// Reads the interface counters for the statistics in the files.
    fn record_interface_counters(&mut self) {
        // A receiver may have started after the capture.
        for (number, program) in attached_programs(&self.ports) {
            if self.named_programs.insert((number, program.id)) {
                let locator = &self.ports[number].facts.locator;
                self.last_warnings
                    .push(format!("{locator}: {}", program.warning()));
            }
        }
        for (number, (port, before)) in (0..).zip(self.ports.iter().zip(&self.before)) {
            if let Some(wire) = &port.wire {
                let (received, dropped) = grown(before, &wire.counters());
                self.shared.set_interface(number, received, dropped);
            }
        }
    }

    /// Time at which the capture ends.
    fn until_ns(&self) -> u64 {
        let duration = self.job.duration;
        duration.map_or(u64::MAX, |d| self.start_ns.saturating_add(d.as_nanos()))
    }

    /// Returns true if the capture has reached a limit of the plan.
    fn is_enough(&self, now: u64) -> bool {
        let full = |most| self.shared.snapshot().file_octets >= most;
        now >= self.until_ns() || self.job.stop_octets.is_some_and(full)
    }
}

impl Engine for Captures {
    fn kind(&self) -> JobKind {
        JobKind::Capture
    }

    fn ports(&self) -> &[OpenPort] {
        &self.ports
    }

    fn only_listens(&self) -> bool {
        true
    }

    fn spawn(&mut self, launch: &Launch<'_>) -> Result<(), StartError> {
        let alarm = Arc::clone(launch.alarm);
        self.control.ended.set(move || alarm.bell.ring());
        self.readers = Workers::new(launch.alarm);
        self.writing = Workers::new(launch.alarm);
        self.spawn_writer()?;
        let mut slots = std::mem::take(&mut self.slots).into_iter();
        while let Some(slot) = slots.next() {
            if let Err(error) = self.spawn_reader(slot) {
                self.stop(Stop::Now);
                // The writer waits for all slots that may still send buffers.
                drop(slots);
                self.readers.join();
                self.writing.join();
                return Err(error);
            }
        }
        Ok(())
    }

    fn begin(&mut self, start_ns: u64) {
        self.before = self.ports.iter().map(OpenPort::counters).collect();
        (self.start_ns, self.recorded_ns) = (start_ns, start_ns);
    }

    fn stop(&mut self, how: Stop) {
        match how {
            Stop::Drain => self.control.stop(),
            Stop::Now => self.control.stop_at_once(),
        }
    }

    fn state(&mut self, now: u64) -> EngineState {
        self.looked_ns = now;
        if self.is_enough(now) {
            self.control.stop();
        }
        let stopped = self.control.is_stopped();
        // Also for the last statistics in the file.
        if stopped || now >= self.recorded_ns + INTERFACE_INTERVAL_NS {
            self.recorded_ns = now;
            self.record_interface_counters();
        }
        if now >= self.next_file {
            self.control.request_rotation();
            self.next_file = u64::MAX;
        }
        match stopped {
            _ if self.readers.all_over() && self.writing.all_over() => EngineState::Over,
            true => EngineState::Draining,
            false => EngineState::Running,
        }
    }

    fn due_ns(&self) -> u64 {
        // The files grow without an event.
        let size = match self.job.stop_octets {
            Some(_) => self.looked_ns + FILE_SIZE_INTERVAL_NS,
            None => u64::MAX,
        };
        self.until_ns()
            .min(self.recorded_ns + INTERFACE_INTERVAL_NS)
            .min(self.next_file)
            .min(size)
    }

    fn request(&mut self, request: Request, now: u64) {
        // Frames already read belong to this file.
        self.control.request_flush();
        if request == Request::NextFile {
            self.next_file = now + HAND_OVER_NS;
        }
    }

    fn fill(&self, part: &mut Part<'_>) {
        report::fill(self, part);
    }

    fn show(&mut self, snapshot: &mut Snapshot, _now_ns: u64) {
        let elapsed_ns = snapshot.elapsed_ns as f64;
        let whole = self.job.duration.map(|d| d.as_nanos().max(1) as f64);
        snapshot.progress = whole.map(|whole_ns| (elapsed_ns / whole_ns).min(1.0));
        snapshot.phase = match self.control.is_stopped() {
            true => Phase::Drain,
            false => Phase::Running,
        };
    }

    fn record(&self, row: &mut Row<'_>) {
        let counters = self.shared.snapshot();
        let total = counters.total();
        let of = match &self.key {
            Some(name) => format!("capture {name}"),
            None => "capture".to_owned(),
        };
        row.counter(&of, "read_frames", "frames", total.read_frames);
        row.counter(&of, "read_octets", "octets", total.read_octets);
        row.counter(&of, "kernel_drop_frames", "frames", total.dropped_frames);
        row.counter(&of, "written_frames", "frames", counters.written_frames);
        row.counter(&of, "file_octets", "octets", counters.file_octets);
        row.level(&of, "buffers_free", "buffers", counters.buffers_free as f64);
    }

    fn join(&mut self) -> Option<String> {
        let mut broken = None;
        for (place, outcome) in self.seats.iter().zip(self.readers.join()) {
            match outcome {
                Some(outcome) => {
                    self.outcomes.push(outcome);
                    self.places.push(*place);
                }
                None => broken = Some("a reader panicked; its counts are missing".to_owned()),
            }
        }
        if let Some(fault) = self.outcomes.iter().find_map(|o| o.fault.as_ref()) {
            broken = Some(fault.to_string());
        }
        let written = self.writing.join().pop().flatten();
        if let Some(error) = written.as_ref().and_then(|w| w.error.as_ref()) {
            broken = Some(error.to_string());
        }
        if written.is_none() {
            broken = Some(
                "the writer panicked; frames in its buffers may be missing in the files".to_owned(),
            );
        }
        let panicked = written.is_none();
        let written = written.unwrap_or_else(|| self.written_before_panic());
        self.account = FrameAccount::of_capture(&self.outcomes, &written);
        if panicked {
            let account = &mut self.account;
            let known = account.read_frames() + account.kernel_drop + account.not_read;
            account.not_written += account.filter_accept.saturating_sub(known);
        }
        self.written = Some(written);
        if let Some(commands) = self.commands.take() {
            self.last_warnings.extend(commands.finish(&self.signals));
        }
        self.last_warnings
            .extend(joined(&self.ports, &self.outcomes));
        self.offloads.clear();
        broken
    }

    fn settle(&mut self, part: &mut Part<'_>, ended: &Ended) -> Outcome {
        report::settle(self, part, ended)
    }
}

/// Returns a warning for each port with joined segments, which are not frames of the wire.
fn joined(ports: &[OpenPort], outcomes: &[ReaderOutcome]) -> Vec<String> {
    let mut warnings = Vec::new();
    for (number, port) in (0..).zip(ports) {
        let Some(wire) = &port.wire else { continue };
        let of_port = outcomes.iter().filter(|o| o.interface == number);
        let longest = of_port.map(|o| o.longest_frame).max().unwrap_or(0);
        // The Ethernet header and a VLAN tag.
        if longest > wire.interface.mtu + 18 && joins_segments(wire) {
            warnings.push(format!(
                "{}: a frame of {longest} bytes exceeds the MTU: the host merged segments (GRO); use --offloads off to capture them as they arrived",
                port.facts.locator
            ));
        }
    }
    warnings
}

/// Frames that an interface received and dropped between two reads.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_outlasts_a_reader_that_is_held_up() {
        let ring = |mib: usize, timeout_ms| least_blocks(mib << 20, timeout_ms);
        assert_eq!([ring(16, 1), ring(16, 10), ring(16, 100)], [250, 25, 8]);
        // Blocks of 64 KiB.
        assert_eq!([ring(2, 1), ring(2, 100), ring(512, 1)], [32, 8, 250]);
    }

    #[test]
    fn the_ring_is_for_the_stall_and_no_more_than_there_is() {
        const MIB: u64 = 1 << 20;
        const SECOND: u64 = 1_000_000_000;
        let ring = |pps, stall_ns, memory_mib| ring_bytes(pps, 1514, stall_ns, memory_mib * MIB);
        // The rate is unknown.
        assert_eq!(ring(None, SECOND, 16 << 10), 512 * MIB);
        assert_eq!(ring(None, 10 * SECOND, 4 << 10), 512 * MIB);
        assert_eq!(ring(None, SECOND, 2 << 10), 256 * MIB);
        assert_eq!(ring(None, SECOND, 256), 64 * MIB);
        // The rate is known: 1600 bytes for each frame of 1514, times two.
        assert_eq!(ring(Some(100_000), SECOND, 16 << 10), 320_000_000);
        assert_eq!(ring(Some(100_000), SECOND / 2, 16 << 10), 160_000_000);
        assert_eq!(ring(Some(1), SECOND, 16 << 10), 64 * MIB);
        assert_eq!(ring(Some(800_000), SECOND, 16 << 10), 1024 * MIB);
        assert_eq!(ring(Some(1_000_000_000), 3600 * SECOND, 2 << 10), 256 * MIB);
    }
}
