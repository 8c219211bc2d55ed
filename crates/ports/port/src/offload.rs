//! Contract of ports that send whole streams or count the frames that arrive, without a worker per frame.
//!
//! A queue pair moves frames that the caller wrote. A port with a send offload gets a stream as tables
//! ([`StreamProgram`]), writes the frames and returns counters ([`SendOffload`]). A port with a receive offload gets
//! the expected flows ([`Awaited`]), inspects arriving frames and returns its measurements ([`ReceiveOffload`]). The
//! same plan and seed must send the same frames on every path, so values and their order are specified exactly here.

use wb_measure::{Counters, FlowStats, Histogram, Measurement};

use crate::PortError;

/// Reason why a port cannot send or count streams. A caller that may use another driver reports it as the reason for
/// that. Other callers return [`PortError::Offload`], which contains it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The build has no BPF programs.
    #[error("this build has no BPF programs (feature `bpf`), which the live driver needs")]
    NoPrograms,
    /// The kernel is too old. Contains its version, if known.
    #[error("{} cannot run programs on live frames; Linux 5.18 or later is needed", linux(*.0))]
    Kernel(Option<(u32, u32)>),
    /// The process runs in a user namespace.
    #[error("the kernel does not load such programs in a user namespace")]
    UserNamespace,
    /// A capability is missing.
    #[error("{0} is missing")]
    Lacks(String),
    /// The kernel refused to load the programs, for this reason.
    #[error("the kernel does not load the programs of the live driver ({0})")]
    Loading(String),
    /// The port has no interface.
    #[error("the port is not an interface")]
    NoInterface,
    /// The device takes no frames from programs.
    #[error("{}", no_transmit(.driver, .command.as_deref()))]
    NoTransmit {
        /// Kernel driver, if known.
        driver: String,
        /// Command that makes a veth take frames, if known.
        command: Option<String>,
    },
    /// The device takes frames only as long as another user's program stays attached.
    #[error(
        "the other end of this veth accepts frames from programs only while another user's XDP program is attached there"
    )]
    AtMercy,
    /// The device would take frames after attaching a program that would keep others from receiving.
    #[error(
        "this run has no receiver, and the XDP program that the other end would need keeps other programs from receiving there by XDP"
    )]
    Unawaited,
    /// Another XDP program is attached to the interface.
    #[error("{} is attached to the interface", program(*.id))]
    Attached {
        /// Id of the program, if known.
        id: Option<u32>,
        /// Interface.
        interface: String,
    },
    /// There are more senders than queues.
    #[error(
        "{senders} {what} share {room} queue{} and would block each other's frames",
        if *room == 1 { "" } else { "s" }
    )]
    Crowded {
        /// Number of senders.
        senders: u32,
        /// Kind of the senders.
        what: &'static str,
        /// Number of queues.
        room: u32,
    },
    /// The frames of a probe do not appear in the device's counters.
    #[error(
        "the device accepted {taken} probe frames and counted {counted} as sent (tx_packets), so it drops or does not count frames of programs"
    )]
    Uncounted {
        /// Frames that the device took.
        taken: u64,
        /// Frames that the device counted.
        counted: u64,
    },
    /// The accounts do not fit into memory.
    #[error(
        "{flows} flows on {queues} queues need {:.1} GiB of memory, but {:.1} GiB are available; use at most {fit} flows, or fewer queues (`ethtool -L`)",
        gib(*.need),
        gib(*.available)
    )]
    NoRoom {
        /// Number of expected flows.
        flows: u32,
        /// Queues of the device.
        queues: u32,
        /// Memory needed, in bytes.
        need: u64,
        /// Memory available, in bytes.
        available: u64,
        /// Number of flows that would fit.
        fit: u32,
    },
    /// The number of accounts exceeds the limit of a BPF map.
    #[error("{flows} flows on {queues} queues exceed the maximum of the live driver")]
    TooMany {
        /// Number of expected flows.
        flows: u32,
        /// Queues of the device.
        queues: u32,
    },
    /// The program failed to write a frame.
    #[error("the program of the live driver could not write a frame")]
    Broken,
    /// A requested feature is not supported.
    #[error("{0}")]
    Asked(&'static str),
    /// A requested feature is not supported; the text has figures.
    #[error("{0}")]
    Streams(String),
}

fn linux(version: Option<(u32, u32)>) -> String {
    version.map_or_else(
        || "the kernel".to_owned(),
        |(major, minor)| format!("Linux {major}.{minor}"),
    )
}

fn program(id: Option<u32>) -> String {
    id.map_or_else(
        || "another XDP program".to_owned(),
        |id| format!("XDP program {id}"),
    )
}

fn no_transmit(driver: &str, command: Option<&str>) -> String {
    match (driver, command) {
        ("veth", Some(command)) => format!(
            "this veth accepts frames from programs only while its other end has GRO or an XDP program, and it has neither (try `{command}`)"
        ),
        ("veth", None) => "this veth accepts frames from programs only while its other end has GRO or an XDP program (try `ethtool -K PEER gro on` there)".to_owned(),
        ("", _) => "the device accepts no frames from programs (no NDO_XMIT)".to_owned(),
        (driver, _) => format!(
            "{driver} accepts no frames from programs here (no NDO_XMIT; see `bpftool net` and the driver's manual)"
        ),
    }
}

#[allow(clippy::cast_precision_loss)]
fn gib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 30)
}

impl Refusal {
    /// Advice for a user whose plan requires this driver.
    pub(crate) fn advice(&self) -> String {
        match self {
            Self::Attached { interface, .. } => {
                format!("stop its owner or try `ip link set dev {interface} xdp off`")
            }
            Self::NoPrograms => "use packet:".to_owned(),
            _ => "use xdp: or packet:".to_owned(),
        }
    }
}

/// Frames of one stream as one worker sends them.
///
/// For each frame, the sender copies the template of the frame's size, writes the fields and the tag, and sets the
/// checksums from the sums of the template and of the written values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamProgram {
    /// Templates, one for each size. All headers have the same length.
    pub templates: Vec<HeaderTemplate>,
    /// Bytes after the header, the same in every frame; long enough for the longest frame.
    pub payload: Vec<u8>,
    /// Template index of each frame of a period; empty if there is only one template.
    pub order: Vec<u16>,
    /// Position of the first frame in `order`.
    pub order_at: u32,
    /// Distance in `order` from one frame to the next, less than the period.
    pub order_advance: u32,
    /// Source of random positions in `order`, instead of `order_at` and `order_advance`.
    pub order_drawn: Option<Draw>,
    /// Fields to write into the header, in this order.
    pub fields: Vec<FieldProgram>,
    /// Order of the flows.
    pub walk: FlowWalk,
    /// Offset of the test tag, if there is one. The templates contain its magic number.
    pub tag_at: Option<usize>,
    /// Content of the tag.
    pub tag: TagProgram,
    /// Number of times that each frame is sent, at least 1.
    pub copies: u32,
    /// Number of frames that are due together, at least 1.
    pub burst: u32,
    /// Offset of the IPv4 header checksum, if it changes from frame to frame.
    pub ip_checksum: Option<usize>,
    /// Offset of the layer-4 checksum, if it changes from frame to frame.
    pub l4_checksum: Option<usize>,
    /// True if layer 4 is UDP, which does not use a checksum of 0.
    pub udp: bool,
    /// True if frames follow a schedule, false for full speed.
    pub paced: bool,
}

impl StreamProgram {
    /// Length of the headers in bytes.
    #[must_use]
    pub fn header_len(&self) -> usize {
        self.templates.first().map_or(0, |t| t.header.len())
    }

    /// Length of the longest frame in bytes, without FCS.
    #[must_use]
    pub fn longest(&self) -> usize {
        let lens = self.templates.iter().map(|t| t.len as usize);
        lens.max().unwrap_or(0)
    }
}

/// Content of the tags of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TagProgram {
    /// Flow, sequence number of the flow, and departure time.
    Wirebench,
    /// Number of frames sent so far, and time at which the frame was made: directly after the previous frame left.
    Pktgen {
        /// Number in the first frame.
        first: u32,
        /// Format of the time.
        time: PktgenStamp,
    },
}

/// Time formats of a pktgen tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PktgenStamp {
    /// Zeros.
    None,
    /// Seconds and microseconds of the wall clock.
    Micros,
    /// Nanoseconds of the monotonic clock.
    Nanos,
}

/// SplitMix64 generator with this state, which increases by `stride` for each number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Draw {
    /// State before the first number.
    pub state: u64,
    /// Increment of the state for each number: the generator's constant if one sender takes all numbers.
    pub stride: u64,
}

impl Draw {
    /// Generator that yields all numbers starting at this state.
    #[must_use]
    pub const fn all(state: u64) -> Self {
        Self {
            state,
            stride: 0x9e37_79b9_7f4a_7c15,
        }
    }
}

/// Template of one frame size of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderTemplate {
    /// Length of the frame in bytes, without FCS.
    pub len: u32,
    /// Checksum sum of the IPv4 header, without the fields written per frame.
    pub ip_sum: u32,
    /// Checksum sum of layer 4 and its pseudo header, without the fields written per frame.
    pub l4_sum: u32,
    /// First bytes of the frame. Bits that fields write are 0.
    pub header: Vec<u8>,
}

/// Field of up to 8 bytes, written as one big-endian number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldProgram {
    /// Offset of its first byte.
    pub at: usize,
    /// Width in bytes: 1, 2, 4, 6 or 8.
    pub width: u8,
    /// Number of bits by which values are shifted left.
    pub shift: u8,
    /// Bits that the field writes.
    pub mask: u64,
    /// Bits of `mask` that are in the IPv4 header.
    pub ip: u64,
    /// Bits of `mask` that the layer-4 checksum covers.
    pub l4: u64,
    /// True if the last byte is the upper half of a 16-bit word.
    pub odd: bool,
    /// Values of the field.
    pub values: FieldValues,
}

/// Values of a field, frame by frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FieldValues {
    /// `first` plus a digit of the flow's 5-tuple.
    Digit {
        /// Index of the digit, 0 to 3.
        digit: u8,
        /// Value in flow 0.
        first: u64,
    },
    /// `base` plus or minus `step` times the position.
    Steps {
        /// Value at position 0.
        base: u64,
        /// True to subtract.
        down: bool,
        /// Position of the first frame.
        position: u64,
        /// Distance from one frame to the next, less than `values`.
        advance: u64,
        /// Number of positions.
        values: u64,
        /// Difference between neighbouring values.
        step: u64,
    },
    /// `first` plus a random number of steps below `values`: the next number of the generator times `values`, divided
    /// by 2^64.
    Random {
        /// Smallest value.
        first: u64,
        /// Difference between neighbouring values.
        step: u64,
        /// Number of values, 1 to 2^32.
        values: u64,
        /// Random generator.
        draw: Draw,
    },
    /// Values of a list, in turn.
    List {
        /// Values, at least one.
        values: Vec<u64>,
        /// Position of the first frame.
        at: u32,
        /// Distance from one frame to the next, less than the number of values.
        advance: u32,
    },
}

/// Flows of one worker, one frame each in turn, and their 5-tuples as mixed-radix numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowWalk {
    /// Number added to a flow for the tag.
    pub first_flow: u32,
    /// First flow of the worker.
    pub worker: u32,
    /// Distance between consecutive flows of the worker.
    pub workers: u32,
    /// Number of flows of all workers.
    pub flows: u32,
    /// 5-tuple of the worker's first flow.
    pub home: [u32; 4],
    /// Difference between the 5-tuples of consecutive flows of the worker.
    pub step: [u32; 4],
    /// Number of values of each digit.
    pub radix: [u32; 4],
    /// True if the 5-tuple changes from flow to flow.
    pub moves: bool,
    /// True if all tags have flow `first_flow`, with one sequence from 0.
    pub one_flow: bool,
}

/// Schedule: the next frame is due at `due_ns`. The interval between frames is `whole_ns` plus `part` of `parts`
/// fractions. Each time the fractions reach `parts`, the due time increases by `carry_ns`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Due time of the next frame, monotonic clock.
    pub due_ns: u64,
    /// Fractions accumulated so far, less than `parts`.
    pub rest: u64,
    /// Whole nanoseconds from one frame to the next.
    pub whole_ns: u64,
    /// Fractions added per frame, at most `parts`.
    pub part: u64,
    /// Number of fractions that make up `carry_ns`.
    pub parts: u64,
    /// Nanoseconds added for each `parts` fractions.
    pub carry_ns: u64,
}

/// Frames to send of one stream in a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamOrder {
    /// Schedule; `None` for full speed.
    pub pace: Option<Pace>,
    /// Maximum number of frames.
    pub frames: u64,
    /// End of the stream, monotonic clock: no frame is sent from this time on.
    pub until_ns: u64,
    /// Maximum lateness in ns. A frame that is later is not sent, and ends the turn.
    pub allowance_ns: u64,
}

/// Frames to send of all streams in a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendOrder {
    /// Current time, monotonic clock.
    pub now_ns: u64,
    /// Maximum number of frames.
    pub frames: u64,
    /// Approximate duration of the turn in ns.
    pub length_ns: u64,
    /// Number of frames handed to the device together: 1 if each frame must leave separately.
    pub batch: u32,
    /// True to send only the frames that are due, without waiting for later ones.
    pub overdue: bool,
    /// Wall clock minus monotonic clock in ns, for timestamps.
    pub wall_minus_mono: u64,
}

/// Results of a turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendTurn {
    /// Frames handed to the device, including refused frames.
    pub submitted_frames: u64,
    /// Number of stalls of the sender longer than 1 ms.
    pub stalls: u64,
    /// Total duration of the stalls.
    pub stalled_ns: u64,
    /// Longest stall.
    pub largest_gap_ns: u64,
    /// Departure of the last frame, monotonic clock; 0 if none left.
    pub last_departure_ns: u64,
    /// Time for which no frame was due, in ns.
    pub idle_ns: u64,
    /// Last reading of the clock. If the next turn starts much later, the sender was stalled since this time.
    pub seen_ns: u64,
}

/// Totals of a stream since it was loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendCounters {
    /// Frames handed to the device.
    pub submitted_frames: u64,
    /// Bytes of these frames, with FCS.
    pub submitted_octets: u64,
    /// Frames that the device dropped before the wire.
    pub refused_frames: u64,
    /// Bytes of these frames, with FCS.
    pub refused_octets: u64,
}

/// Sends streams, turn by turn, from one thread at a time. Streams are numbered in the order of loading.
pub trait SendOffload: Send {
    /// Sends due frames, earliest first. Returns at the end of the turn, or earlier if nothing is left to send in it.
    /// Streams without a schedule share the remaining time in turn.
    ///
    /// # Errors
    /// [`PortError::LinkDown`] while the link is down; the caller can retry later. All other errors are final. In both
    /// cases [`SendOffload::taken`] reports the frames sent before the error.
    fn turn(&mut self, order: &SendOrder, streams: &[StreamOrder]) -> Result<(), PortError>;

    /// Results of the last turn.
    fn taken(&self) -> SendTurn;

    /// Largest lateness of a frame of the stream in the last turn, in ns.
    fn most_late_ns(&self, stream: usize) -> u64;

    /// Totals so far.
    fn counters(&self, stream: usize) -> SendCounters;

    /// Number of hand-overs to the device, and how often the device was full.
    fn hand_overs(&self) -> (u64, u64);

    /// Next flow, without `first_flow`, and the number of completed rounds over all flows.
    fn position(&self, stream: usize) -> (u32, u64);

    /// Refused frames of each flow.
    fn refused_by_flow(&self, stream: usize) -> Vec<u64>;
}

/// Ends the current turn of a [`SendOffload`] within a millisecond, from any thread, and all later turns.
pub trait Halt: Send + Sync {
    /// Ends the current and all later turns.
    fn halt(&self);
}

/// Frames that a receive offload expects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Awaited {
    /// First flow, as in tags.
    pub first_flow: u32,
    /// Number of flows.
    pub flows: u32,
    /// Flow in the tags of ramp frames, which are counted separately.
    pub ramp_flow: u32,
    /// True if the sender is unknown: gaps count from the first sequence number seen.
    pub sender_unknown: bool,
    /// True if the first flow is unknown too: the `flows` flows around the flow of the first tagged frame are expected,
    /// and `first_flow` is ignored.
    pub around_first: bool,
    /// Shortest silence that counts as an outage, in ns.
    pub outage_threshold_ns: u64,
}

/// Counts the frames that arrive at a port or at some of its queues.
pub trait ReceiveOffload: Send {
    /// Starts counting. Earlier frames are not counted. Timestamps are the monotonic clock plus `wall_minus_mono`.
    fn begin(&mut self, wall_minus_mono: u64);

    /// Counts frames stamped before this wall-clock time as foreign, because they belong to an earlier run; 0: none.
    fn since(&mut self, wall_ns: u64);

    /// Counts originals that arrive after this wall-clock time as late; `u64::MAX`: none.
    fn drain_since(&mut self, wall_ns: u64);

    /// Ignores frames that arrive after this wall-clock time; `u64::MAX`: none.
    fn end_at(&mut self, wall_ns: u64);

    /// Totals so far.
    fn counters(&self) -> Counters;

    /// Number and sum of the latencies so far.
    fn latency(&self) -> (u64, u128);

    /// Ramp frames so far.
    fn ramp_frames(&self) -> u64;

    /// Frames so far that could not be counted because of contention; not included in other counters.
    fn dropped_frames(&self) -> u64 {
        0
    }

    /// Latencies so far, one histogram per queue.
    fn latencies(&self) -> Vec<Histogram>;

    /// Statistics so far of each of the first `count` flows, queue by queue. If the sender is unknown, they start with
    /// the flow of the first tagged frame.
    fn first_flows(&self, count: u32) -> Vec<FlowStats>;

    /// All measurements. Flows have the numbers of their tags.
    fn measurement(&self) -> Measurement;
}
