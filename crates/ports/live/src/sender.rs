//! Sends streams inside the kernel: loads their tables, runs turns and reads the counters.

use std::mem::offset_of;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use libbpf_rs::{ErrorExt, Link, MapCore, MapFlags, Object};
use wb_port::offload::{
    FieldProgram, FieldValues, Halt, PktgenStamp, Refusal, SendCounters, SendOffload, SendOrder,
    SendTurn, StreamOrder, StreamProgram, TagProgram,
};
use wb_port::{Interface, PortError};

use crate::hook::{self, IdleAttachment};
use crate::object::{self, built};
use crate::shared_map::{SharedMap, word_of};
use crate::{MOST_FIELDS, MOST_HEADER, MOST_STREAMS, fault};

const RING: usize = 256;
/// `struct template` of send.bpf.c.
const TEMPLATE_LEN: usize = 16 + MOST_HEADER;

/// Reasons why the program cannot continue: HALT_* in send.bpf.c.
mod halt {
    pub(super) const DOWN: u64 = 2;
    pub(super) const GONE: u64 = 4;
    pub(super) const BROKEN: u64 = 8;
}

/// The layout of `struct lane` of send.bpf.c.
#[repr(C)]
struct StreamState {
    paced: u64,
    due: u64,
    rest: u64,
    whole: u64,
    part: u64,
    parts: u64,
    carry: u64,
    left: u64,
    until: u64,
    allowance: u64,
    submitted: u64,
    octets: u64,
    refused: u64,
    refused_octets: u64,
    largest_late: u64,
    round: u64,
    order_state: u64,
    made: u64,
    stamp: u64,
    sequence: u32,
    copies: u32,
    burst: u32,
    pad: u32,
    flow: u32,
    order_at: u32,
    digit: [u32; 4],
    at: [u64; MOST_FIELDS],
}

/// The layout of `struct state` of send.bpf.c.
#[repr(C)]
struct SenderState {
    stop: u64,
    spin: u64,
    left: u64,
    turn_until: u64,
    wall_offset: u64,
    halt: u64,
    full: u64,
    last_departure: u64,
    seen: u64,
    stalls: u64,
    stalled_ns: u64,
    largest_gap: u64,
    idle: u64,
    idle_since: u64,
    chosen: u64,
    now: u64,
    error: i32,
    cpu: u32,
    head: u64,
    tail: u64,
    ring: [u64; RING],
    lane: [StreamState; MOST_STREAMS],
}

macro_rules! at {
    ($field:ident) => {
        offset_of!(SenderState, $field)
    };
}

/// Offset of a field of a stream's `StreamState` in the state.
macro_rules! lane {
    ($stream:expr, $field:ident) => {
        offset_of!(SenderState, lane)
            + $stream * size_of::<StreamState>()
            + offset_of!(StreamState, $field)
    };
}

/// Estimated duration of an iteration of the program, while it sends and while it waits for a frame.
const SENDING_NS: f64 = 250.0;
const WAITING_NS: f64 = 1500.0;
/// Shortest duration assumed for an iteration that waits.
const LEAST_WAITING_NS: f64 = 500.0;
/// Limits for one call. Each call allocates a page pool, which costs time. A batch larger than the ring of a veth
/// overflows the ring.
const LEAST_ITERATIONS: u32 = 64;
const MOST_ITERATIONS: u32 = 1 << 18;

/// Sends the streams of one worker.
pub struct Sender {
    interface: Interface,
    state: Arc<SharedMap>,
    refused: SharedMap,
    /// Range of each stream's flows among all flows.
    flows: Vec<Range<usize>>,
    program: OwnedFd,
    frame: Vec<u8>,
    calls: u64,
    taken: SendTurn,
    /// Duration of an iteration in the last turn, in ns.
    iteration_ns: f64,
    _berth: IdleAttachment,
    _tracepoints: [Link; 2],
    /// Owners of the maps, one of which the programs use for tail calls.
    _objects: Vec<Object>,
}

impl Sender {
    /// Loads streams for `interface`, in the network namespace of the calling thread.
    ///
    /// # Errors
    /// [`PortError::Privilege`] without CAP_BPF, CAP_NET_ADMIN, CAP_PERFMON and CAP_SYS_ADMIN;
    /// [`PortError::Unsupported`] if the kernel or the device lacks support, or if the streams do not fit the program.
    pub fn load(interface: &Interface, streams: &[StreamProgram]) -> Result<Self, PortError> {
        hook::quiet();
        let frame = fit(streams).map_err(|why| fault::refused(interface, why))?;
        if hook::takes_frames(interface) == Some(false) {
            return Err(fault::no_transmit(interface));
        }
        let mut end = 0;
        let flows: Vec<_> = streams
            .iter()
            .map(|stream| {
                let begin = end;
                end += stream.walk.flows as usize;
                begin..end
            })
            .collect();
        let place = |lane| StreamPosition {
            lane,
            streams: streams.len(),
            flows_at: flows[lane].start,
            fill: streams.iter().map(StreamProgram::header_len).max(),
            frame_len: frame.len(),
        };
        let load = || {
            let mut objects: Vec<Object> = Vec::new();
            for (lane, stream) in streams.iter().enumerate() {
                objects.push(load(interface, stream, &place(lane), end, objects.first())?);
            }
            if let [first, _, ..] = objects.as_slice() {
                let makers = objects.iter().map(|object| {
                    let program = object::program(object, "wb_send")?;
                    Ok(program.as_fd().as_raw_fd().to_ne_bytes())
                });
                let makers: Vec<_> = makers.collect::<Result<_, libbpf_rs::Error>>()?;
                fill(first, "makers", makers.iter())?;
            }
            Ok(objects)
        };
        let objects =
            load().map_err(|cause: libbpf_rs::Error| fault::loading(interface, &cause))?;
        let object = &objects[0];
        let failed = |what: &'static str| {
            move |cause: libbpf_rs::Error| fault::loading(interface, &cause.context(what))
        };
        let program = |name| {
            object::program(object, name)
                .and_then(|p| Ok(p.as_fd().try_clone_to_owned()?))
                .map_err(failed("find the program"))
        };
        let map = |name, len| {
            let map = object::map(object, name).map_err(failed("find the map"))?;
            SharedMap::map(map.as_fd(), len)
                .map_err(|cause| fault::io(interface, "map counters", cause))
        };
        let state = Arc::new(map(".bss", size_of::<SenderState>())?);
        let refused = map("refused", end.max(1) * 8)?;
        let attached = |name: &str, tracepoint| {
            let program = object.progs_mut().find(|p| p.name() == name);
            program
                .ok_or_else(|| object::missing("program", name))
                .and_then(|p| p.attach_raw_tracepoint(tracepoint))
                .map_err(failed("trace refused frames"))
        };
        let tracepoints = [
            attached("wb_handed_over", "xdp_devmap_xmit")?,
            attached("wb_not_handed_over", "xdp_redirect_err")?,
        ];
        let program = program(if streams.len() > 1 {
            "wb_choose"
        } else {
            "wb_send"
        })?;
        let berth = IdleAttachment::new(program.as_fd()).map_err(|cause| match cause.kind() {
            std::io::ErrorKind::PermissionDenied => fault::privilege(
                interface,
                "sending by the live driver needs CAP_SYS_ADMIN, for a separate network namespace",
            ),
            _ => fault::io(interface, "attach the sending program", cause),
        })?;
        for (lane, stream) in streams.iter().enumerate() {
            begin(&state, lane, stream);
        }
        Ok(Self {
            interface: interface.clone(),
            state,
            refused,
            flows,
            program,
            frame,
            calls: 0,
            taken: SendTurn::default(),
            iteration_ns: 0.0,
            _berth: berth,
            _tracepoints: tracepoints,
            _objects: objects,
        })
    }

    /// Handle that ends turns from any thread.
    #[must_use]
    pub fn halt(&self) -> Arc<dyn Halt> {
        Arc::new(Stop(Arc::clone(&self.state)))
    }

    fn give(&self, order: &SendOrder, streams: &[StreamOrder]) {
        let state = &self.state;
        state.set(at!(seen), order.now_ns);
        state.set(at!(spin), u64::from(order.batch == 1));
        state.set(at!(left), order.frames);
        state.set(
            at!(turn_until),
            order.now_ns.saturating_add(order.length_ns),
        );
        state.set(at!(wall_offset), order.wall_minus_mono);
        state.set(at!(halt), 0);
        state.set(at!(stalls), 0);
        state.set(at!(stalled_ns), 0);
        state.set(at!(largest_gap), 0);
        state.set(at!(idle), 0);
        state.set(at!(idle_since), 0);
        state.set(at!(last_departure), 0);
        state.word(at!(error)).store(0, Ordering::Release);
        for (i, stream) in streams.iter().enumerate() {
            state.set(lane!(i, paced), u64::from(stream.pace.is_some()));
            if let Some(pace) = stream.pace {
                state.set(lane!(i, due), pace.due_ns);
                state.set(lane!(i, rest), pace.rest);
                state.set(lane!(i, whole), pace.whole_ns);
                state.set(lane!(i, part), pace.part);
                state.set(lane!(i, parts), pace.parts);
                state.set(lane!(i, carry), pace.carry_ns);
            }
            state.set(lane!(i, left), stream.frames);
            state.set(lane!(i, until), stream.until_ns);
            state.set(lane!(i, allowance), stream.allowance_ns);
            state.set(lane!(i, largest_late), 0);
        }
    }

    fn iterations(&self, order: &SendOrder, paced: bool) -> u32 {
        if order.overdue {
            let frames = u32::try_from(order.frames).unwrap_or(MOST_ITERATIONS);
            return frames
                .clamp(LEAST_ITERATIONS, MOST_ITERATIONS)
                .next_multiple_of(order.batch.max(1));
        }
        let guess = match (self.iteration_ns > 0.0, paced) {
            (true, _) => self.iteration_ns,
            (false, true) => WAITING_NS,
            (false, false) => SENDING_NS,
        };
        let fit = (order.length_ns as f64 / guess) as u32;
        let fit = fit.clamp(LEAST_ITERATIONS, MOST_ITERATIONS);
        match paced {
            true => fit,
            // A run with a fixed number of frames needs no more iterations than frames.
            false => u32::try_from(order.frames).map_or(fit, |n| fit.min(n)),
        }
        .next_multiple_of(order.batch.max(1))
    }

    fn submitted(&self) -> u64 {
        let lanes = 0..self.flows.len();
        lanes.map(|i| self.state.get(lane!(i, submitted))).sum()
    }

    fn why_halted(&self, halted: u64) -> Result<(), PortError> {
        let error = self.state.halves(at!(error)).0.cast_signed();
        let port = || self.interface.port.clone();
        match halted {
            _ if halted & halt::GONE != 0 => Err(PortError::Gone { port: port() }),
            _ if halted & halt::BROKEN != 0 && error == 0 => {
                Err(fault::refused(&self.interface, Refusal::Broken))
            }
            _ if halted & halt::BROKEN != 0 => Err(fault::refusal(&self.interface, -error)),
            _ if halted & halt::DOWN != 0 => Err(PortError::LinkDown { port: port() }),
            _ => Ok(()),
        }
    }
}

impl SendOffload for Sender {
    fn turn(&mut self, order: &SendOrder, streams: &[StreamOrder]) -> Result<(), PortError> {
        self.give(order, streams);
        let before = self.submitted();
        let iterations = self.iterations(order, streams.iter().all(|s| s.pace.is_some()));
        let began = Instant::now();
        let run = hook::run(self.program.as_fd(), &self.frame, iterations, order.batch);
        self.calls += 1;
        let state = &self.state;
        let halted = state.get(at!(halt));
        // Iterations without work take less time.
        if !order.overdue && halted == 0 {
            let took_ns = began.elapsed().as_nanos() as f64 / f64::from(iterations);
            let least_ns = if order.batch == 1 {
                LEAST_WAITING_NS
            } else {
                0.0
            };
            self.iteration_ns = took_ns.max(least_ns);
        }
        self.taken = SendTurn {
            submitted_frames: self.submitted() - before,
            stalls: state.get(at!(stalls)),
            stalled_ns: state.get(at!(stalled_ns)),
            largest_gap_ns: state.get(at!(largest_gap)),
            last_departure_ns: state.get(at!(last_departure)),
            idle_ns: match state.get(at!(idle_since)) {
                0 => state.get(at!(idle)),
                since => state.get(at!(idle)) + state.get(at!(seen)).saturating_sub(since),
            },
            seen_ns: state.get(at!(seen)),
        };
        run.map_err(|cause| match cause {
            rustix::io::Errno::INVAL | rustix::io::Errno::OPNOTSUPP => {
                fault::refused(&self.interface, Refusal::Kernel(None))
            }
            cause => fault::io(&self.interface, "run the sending program", cause),
        })?;
        self.why_halted(halted)
    }

    fn taken(&self) -> SendTurn {
        self.taken
    }

    fn most_late_ns(&self, stream: usize) -> u64 {
        self.state.get(lane!(stream, largest_late))
    }

    fn counters(&self, stream: usize) -> SendCounters {
        let state = &self.state;
        // Read refused before submitted frames, because they are a part of them.
        let refused_frames = state.get(lane!(stream, refused));
        let refused_octets = state.get(lane!(stream, refused_octets));
        SendCounters {
            submitted_frames: state.get(lane!(stream, submitted)),
            submitted_octets: state.get(lane!(stream, octets)),
            refused_frames,
            refused_octets,
        }
    }

    fn hand_overs(&self) -> (u64, u64) {
        (self.calls, self.state.get(at!(full)))
    }

    fn position(&self, stream: usize) -> (u32, u64) {
        let flow = self.state.halves(lane!(stream, flow)).0;
        (flow, self.state.get(lane!(stream, round)))
    }

    fn refused_by_flow(&self, stream: usize) -> Vec<u64> {
        let flows = self.flows[stream].clone();
        flows.map(|flow| self.refused.get(flow * 8)).collect()
    }
}

struct Stop(Arc<SharedMap>);

impl Halt for Stop {
    fn halt(&self) {
        self.0.set(at!(stop), 1);
    }
}

/// Checks that the program can send these streams, without loading them.
///
/// # Errors
/// The reason why the program cannot send them.
pub fn fits(streams: &[StreamProgram]) -> Result<(), Refusal> {
    fit(streams).map(|_| ())
}

/// Template of the frames that the kernel allocates: the longest frame of the streams, plus one byte. The program
/// rewrites only the headers. No frame leaves with this length, so the kernel restores each recycled frame. Returns an
/// error if the streams do not fit the program.
fn fit(streams: &[StreamProgram]) -> Result<Vec<u8>, Refusal> {
    if streams.len() > MOST_STREAMS {
        return Err(Refusal::Streams(format!(
            "{} streams at one port exceed the live driver's maximum of {MOST_STREAMS}",
            streams.len()
        )));
    }
    let mut frame = Vec::new();
    let mut headers = 0;
    for stream in streams {
        let (header, fields) = (stream.header_len(), stream.fields.len());
        if header > MOST_HEADER {
            return Err(Refusal::Streams(format!(
                "headers and changing fields need {header} bytes, the live driver's maximum is {MOST_HEADER}"
            )));
        }
        if fields > MOST_FIELDS {
            return Err(Refusal::Streams(format!(
                "{fields} changing fields exceed the live driver's maximum of {MOST_FIELDS}"
            )));
        }
        headers = headers.max(header);
        let whole = first_frame(stream);
        if whole.len() > frame.len() {
            frame = whole;
        }
    }
    for stream in streams {
        let whole = first_frame(stream);
        let from = headers.min(whole.len());
        if whole[from..] != frame[from..whole.len()] {
            return Err(Refusal::Asked(
                "the streams of a port have different payloads; the live driver supports one payload per port",
            ));
        }
    }
    frame.push(0);
    Ok(frame)
}

/// Position of a stream among the streams of its port.
struct StreamPosition {
    lane: usize,
    streams: usize,
    flows_at: usize,
    /// Length of the longest header of all streams.
    fill: Option<usize>,
    /// Length of the frames that the kernel allocates.
    frame_len: usize,
}

/// Loads one stream. The streams after the first share its state and its counters of all `flows`.
fn load(
    interface: &Interface,
    stream: &StreamProgram,
    place: &StreamPosition,
    flows: usize,
    first: Option<&Object>,
) -> Result<Object, libbpf_rs::Error> {
    let mut open = object::open(built!("send"))?;
    let (settings, lists) = settings(stream, place);
    object::open_map(&mut open, ".rodata")?.set_initial_value(&settings)?;
    let entries = |n: usize| u32::try_from(n.max(1)).unwrap_or(u32::MAX);
    object::open_map(&mut open, "templates")?.set_max_entries(entries(stream.templates.len()))?;
    object::open_map(&mut open, "order")?.set_max_entries(entries(stream.order.len()))?;
    object::open_map(&mut open, "lists")?.set_max_entries(entries(lists.len()))?;
    object::open_map(&mut open, "refused")?.set_max_entries(entries(flows))?;
    if let Some(first) = first {
        for name in [".bss", "refused", "port", "makers"] {
            object::open_map(&mut open, name)?.reuse_fd(object::map(first, name)?.as_fd())?;
        }
    }
    for mut program in open.progs_mut() {
        let name = program.name();
        let wanted = match first {
            Some(_) => name == "wb_send",
            None => name != "wb_choose" || place.streams > 1,
        };
        program.set_autoload(wanted);
    }
    let loaded = open.load()?;
    fill(
        &loaded,
        "templates",
        stream.templates.iter().map(|t| template(t, stream)),
    )?;
    let order = stream.order.iter().map(|n| u32::from(*n).to_ne_bytes());
    fill(&loaded, "order", order)?;
    fill(&loaded, "lists", lists.iter().map(|n| n.to_ne_bytes()))?;
    if first.is_none() {
        fill(&loaded, "port", [interface.index.to_ne_bytes()].into_iter())?;
    }
    Ok(loaded)
}

/// Writes the values of a map, starting at key 0.
fn fill<V: AsRef<[u8]>>(
    object: &Object,
    name: &str,
    values: impl Iterator<Item = V>,
) -> Result<(), libbpf_rs::Error> {
    let map = object::map(object, name)?;
    for (key, value) in (0u32..).zip(values) {
        map.update(&key.to_ne_bytes(), value.as_ref(), MapFlags::ANY)?;
    }
    Ok(())
}

fn template(
    template: &wb_port::offload::HeaderTemplate,
    stream: &StreamProgram,
) -> [u8; TEMPLATE_LEN] {
    let mut bytes = [0; TEMPLATE_LEN];
    bytes[..4].copy_from_slice(&template.len.to_ne_bytes());
    bytes[4..8].copy_from_slice(&template.ip_sum.to_ne_bytes());
    bytes[8..12].copy_from_slice(&template.l4_sum.to_ne_bytes());
    // The bytes after the header are needed for frames in which another stream has written more bytes.
    let rest = template.header.iter().chain(&stream.payload);
    for (byte, value) in bytes[16..].iter_mut().zip(rest) {
        *byte = *value;
    }
    bytes
}

fn first_frame(stream: &StreamProgram) -> Vec<u8> {
    let longest = stream.templates.iter().max_by_key(|t| t.len);
    let mut frame = longest.map_or_else(Vec::new, |t| t.header.clone());
    let len = stream.longest();
    let payload = len.saturating_sub(frame.len()).min(stream.payload.len());
    frame.extend_from_slice(&stream.payload[..payload]);
    frame
}

/// Sets the state to the worker's first frame.
fn begin(state: &SharedMap, lane: usize, stream: &StreamProgram) {
    let walk = &stream.walk;
    state.set(lane!(lane, flow), word_of(walk.worker, stream.order_at));
    let digits = lane!(lane, digit);
    state.set(digits, word_of(walk.home[0], walk.home[1]));
    state.set(digits + 8, word_of(walk.home[2], walk.home[3]));
    state.set(
        lane!(lane, order_state),
        stream.order_drawn.map_or(0, |draw| draw.state),
    );
    for (i, field) in stream.fields.iter().enumerate() {
        let at = match &field.values {
            FieldValues::Digit { .. } => 0,
            FieldValues::Steps { position, .. } => *position,
            FieldValues::Random { draw, .. } => draw.state,
            FieldValues::List { at, .. } => u64::from(*at),
        };
        state.set(lane!(lane, at) + 8 * i, at);
    }
}

/// `struct settings` of send.bpf.c, and the concatenated values of all lists.
fn settings(stream: &StreamProgram, own: &StreamPosition) -> (Vec<u8>, Vec<u64>) {
    let mut bytes = Vec::new();
    let mut lists = Vec::new();
    let walk = &stream.walk;
    let place = |at: Option<usize>| at.map_or(0, |at| at as u32);
    let (tag, first) = match stream.tag {
        TagProgram::Wirebench => (0, 0),
        TagProgram::Pktgen { first, time } => match time {
            PktgenStamp::None => (1, first),
            PktgenStamp::Micros => (2, first),
            PktgenStamp::Nanos => (3, first),
        },
    };
    let words = [
        stream.header_len() as u32,
        stream.templates.len() as u32,
        stream.order.len() as u32,
        stream.order_advance,
        stream.fields.len() as u32,
        place(stream.tag_at),
        place(stream.ip_checksum),
        place(stream.l4_checksum),
        u32::from(stream.udp),
        u32::from(stream.paced),
        walk.first_flow,
        walk.worker,
        walk.workers,
        walk.flows,
        u32::from(walk.moves),
        u32::from(walk.one_flow),
        own.lane as u32,
        own.streams as u32,
        own.flows_at as u32,
        place(own.fill),
        own.frame_len as u32,
        tag,
        first,
        stream.copies,
        stream.burst,
        u32::from(stream.order_drawn.is_some()),
    ];
    let order_stride = stream.order_drawn.map_or(0, |draw| draw.stride);
    let arrays = [walk.home, walk.step, walk.radix];
    for word in words {
        bytes.extend_from_slice(&word.to_ne_bytes());
    }
    bytes.extend_from_slice(&order_stride.to_ne_bytes());
    for word in arrays.iter().flatten() {
        bytes.extend_from_slice(&word.to_ne_bytes());
    }
    for field in &stream.fields {
        push_field(&mut bytes, &mut lists, field);
    }
    bytes.resize(
        bytes.len() + (MOST_FIELDS - stream.fields.len()) * FIELD_LEN,
        0,
    );
    (bytes, lists)
}

/// `struct field` of send.bpf.c.
const FIELD_LEN: usize = 72;

fn push_field(bytes: &mut Vec<u8>, lists: &mut Vec<u64>, field: &FieldProgram) {
    // Kind, first, step, values, advance, digit, and start of the list.
    let (kind, [first, step, values, advance], digit, list) = match &field.values {
        FieldValues::Digit { digit, first } => (0, [*first, 0, 0, 0], u32::from(*digit), 0),
        FieldValues::Steps {
            base,
            down,
            advance,
            values,
            step,
            ..
        } => (
            if *down { 2 } else { 1 },
            [*base, *step, *values, *advance],
            0,
            0,
        ),
        FieldValues::Random {
            first,
            step,
            values,
            draw,
        } => (3, [*first, *step, *values, draw.stride], 0, 0),
        FieldValues::List {
            values, advance, ..
        } => {
            let begin = lists.len() as u32;
            lists.extend_from_slice(values);
            let numbers = [0, 0, values.len() as u64, u64::from(*advance)];
            (4, numbers, 0, begin)
        }
    };
    bytes.extend_from_slice(&(field.at as u32).to_ne_bytes());
    bytes.extend_from_slice(&[
        field.width,
        field.shift,
        if field.odd { 8 } else { 0 },
        kind,
    ]);
    for word in [field.mask, field.ip, field.l4, first, step, values, advance] {
        bytes.extend_from_slice(&word.to_ne_bytes());
    }
    bytes.extend_from_slice(&digit.to_ne_bytes());
    bytes.extend_from_slice(&list.to_ne_bytes());
}
