//! What a port can be given to do by itself: to send a stream whole, and to account for what arrives.
//!
//! A queue pair moves frames that somebody else has made. A port with an offload is told what a stream consists of, as
//! tables ([`StreamProgram`]), makes its frames itself and gives counters ([`SendOffload`]); or it is told which flows are
//! awaited ([`Awaited`]), looks at what arrives and gives what it measured ([`ReceiveOffload`]). Whoever makes the tables
//! keeps the promise that the same plan and seed send the same frames on every path: what is said here of values and
//! their order is exact.

use wb_measure::{Counters, FlowStats, Histogram, Measurement};

use crate::PortError;

/// Why a port does not send or account for streams by itself. Whoever may go another way gives the text as the reason for it;
/// whoever may not gets [`PortError::Offload`], which says so too.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The build has no programs.
    #[error("this build has no BPF programs (feature `bpf`), which the live driver consists of")]
    NoPrograms,
    /// The kernel is too old; its version, where it was asked for.
    #[error("{} runs no programs on live frames, as Linux 5.18 does", linux(*.0))]
    Kernel(Option<(u32, u32)>),
    /// In a user namespace.
    #[error("in a user namespace the kernel loads no such programs")]
    UserNamespace,
    /// A capability is missing.
    #[error("{0} is missing")]
    Lacks(String),
    /// The kernel's reason for not loading the programs.
    #[error("the kernel does not load the programs of the live driver ({0})")]
    Loading(String),
    /// There is no interface.
    #[error("it is no interface")]
    NoInterface,
    /// The device takes no frames from programs.
    #[error("{}", no_transmit(.driver, .command.as_deref()))]
    NoTransmit {
        /// The driver of the kernel, if that is known.
        driver: String,
        /// What would make a veth take them, if that is known.
        command: Option<String>,
    },
    /// It does, but only as long as somebody else wants it.
    #[error(
        "the other end of this veth takes frames from programs only as long as somebody else's XDP program stays there"
    )]
    AtMercy,
    /// It would, if a program were put where others want to receive.
    #[error(
        "nobody in this run receives, and a program at the other end, which would let the frames in, keeps others from receiving there by XDP"
    )]
    Unawaited,
    /// Another XDP program is at the interface.
    #[error("{} is attached to it", program(*.id))]
    Attached {
        /// Its number, if that is known.
        id: Option<u32>,
        /// The interface.
        interface: String,
    },
    /// More send at once than it has queues.
    #[error("{senders} {what} have {room} of its queues, and would refuse each other's frames")]
    Crowded {
        /// How many send, …
        senders: u32,
        /// … what they are, …
        what: &'static str,
        /// … and into how many queues.
        room: u32,
    },
    /// What was sent as a trial does not show in the device's counters.
    #[error(
        "of {taken} frames that the device took as a trial it counted {counted} as sent (tx_packets), so it drops what programs send, or does not count it"
    )]
    Uncounted {
        /// Frames that it took.
        taken: u64,
        /// Frames that it counted.
        counted: u64,
    },
    /// The accounts do not fit.
    #[error(
        "{flows} flows, accounted for on each of {queues} queues, need {:.1} GiB of memory, and {:.1} GiB are available: at most {fit} fit, or fewer queues (`ethtool -L`)",
        gib(*.need),
        gib(*.available)
    )]
    NoRoom {
        /// How many are awaited.
        flows: u32,
        /// Queues of the device.
        queues: u32,
        /// Bytes.
        need: u64,
        /// Bytes.
        available: u64,
        /// How many would fit.
        fit: u32,
    },
    /// It follows no more accounts than that.
    #[error("{flows} flows on {queues} queues are more than the live driver can follow")]
    TooMany {
        /// How many are awaited.
        flows: u32,
        /// Queues of the device.
        queues: u32,
    },
    /// The program did not get on with a frame.
    #[error("the program of the live driver could not make a frame")]
    Broken,
    /// What is asked for is not among what it can do.
    #[error("{0}")]
    Asked(&'static str),
    /// The same, with figures.
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
            "this veth takes frames from programs only while its other end has GRO or an XDP program, and has neither (try `{command}`)"
        ),
        ("veth", None) => "this veth takes frames from programs only while its other end has GRO or an XDP program (try `ethtool -K PEER gro on` there)".to_owned(),
        ("", _) => "the device takes no frames from programs (no NDO_XMIT)".to_owned(),
        (driver, _) => format!(
            "{driver} takes no frames from programs here (no NDO_XMIT, see `bpftool net` and the driver's manual)"
        ),
    }
}

#[allow(clippy::cast_precision_loss)]
fn gib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 30)
}

impl Refusal {
    /// What to do for who may not go another way by itself.
    pub(crate) fn advice(&self) -> String {
        match self {
            Self::Attached { interface, .. } => {
                format!("end its owner or try `ip link set dev {interface} xdp off`")
            }
            Self::NoPrograms => "take packet:".to_owned(),
            _ => "take xdp: or packet:".to_owned(),
        }
    }
}

/// The frames of one stream as one worker sends them.
///
/// Frame by frame: the template of the size whose turn it is is laid down, the fields are written into it, then the tag,
/// and last the checksums, from the sums of the template and of what was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamProgram {
    /// One for each size, all with headers of the same length.
    pub templates: Vec<HeaderTemplate>,
    /// What follows the header in every frame, as long as the longest needs.
    pub payload: Vec<u8>,
    /// Which template each frame of a period has; empty where there is one.
    pub order: Vec<u16>,
    /// Where in `order` the first frame is.
    pub order_at: u32,
    /// How far the next frame is behind it, less than the period.
    pub order_advance: u32,
    /// Each frame's place in `order` is a random number instead.
    pub order_drawn: Option<Draw>,
    /// What is written into the header, in this order.
    pub fields: Vec<FieldProgram>,
    /// The flows, in turn.
    pub walk: FlowWalk,
    /// Where the test tag stands, whose magic is in the templates; `None` without one.
    pub tag_at: Option<usize>,
    /// What is written into it.
    pub tag: TagProgram,
    /// How often each frame is sent before the next one is made, at least 1.
    pub copies: u32,
    /// How many frames are due at once, at least 1.
    pub burst: u32,
    /// Where the IPv4 header checksum stands if it changes from frame to frame.
    pub ip_checksum: Option<usize>,
    /// The same of layer 4.
    pub l4_checksum: Option<usize>,
    /// Layer 4 is UDP, which has no checksum of 0.
    pub udp: bool,
    /// Frames are sent when they are due, and not as fast as the device takes them.
    pub paced: bool,
}

impl StreamProgram {
    /// Length of the headers.
    #[must_use]
    pub fn header_len(&self) -> usize {
        self.templates.first().map_or(0, |t| t.header.len())
    }

    /// The longest frame, without FCS.
    #[must_use]
    pub fn longest(&self) -> usize {
        let lens = self.templates.iter().map(|t| t.len as usize);
        lens.max().unwrap_or(0)
    }
}

/// What stands in the tags of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TagProgram {
    /// Flow, sequence of the flow, and when the frame leaves.
    Wirebench,
    /// The number of frames sent so far, and when the frame was made: as soon as the one before it had left.
    Pktgen {
        /// The number in the first one.
        first: u32,
        /// The form of the time.
        time: PktgenStamp,
    },
}

/// The forms of the time in a tag of pktgen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PktgenStamp {
    /// Zeros.
    None,
    /// Seconds and microseconds of the wall clock.
    Micros,
    /// Nanoseconds of the monotonic clock.
    Nanos,
}

/// Numbers of the generator SplitMix64 from this state on, with `stride` added to it for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Draw {
    /// The state before the first.
    pub state: u64,
    /// What is added to it for each: the generator's own constant where all of its numbers are taken.
    pub stride: u64,
}

impl Draw {
    /// All numbers from this state on.
    #[must_use]
    pub const fn all(state: u64) -> Self {
        Self {
            state,
            stride: 0x9e37_79b9_7f4a_7c15,
        }
    }
}

/// One size of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderTemplate {
    /// Length of the frame, without FCS.
    pub len: u32,
    /// Sum over the IPv4 header but for what is written.
    pub ip_sum: u32,
    /// Sum over layer 4 and its pseudo header but for what is written.
    pub l4_sum: u32,
    /// Its first bytes; bits that fields write are 0.
    pub header: Vec<u8>,
}

/// A field of up to 8 bytes, as one big-endian number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldProgram {
    /// Offset of its first byte.
    pub at: usize,
    /// Bytes: 1, 2, 4, 6 or 8.
    pub width: u8,
    /// Values stand so many bits higher.
    pub shift: u8,
    /// Bits that are written.
    pub mask: u64,
    /// Of these, bits in the IPv4 header.
    pub ip: u64,
    /// Of these, bits under the checksum of layer 4.
    pub l4: u64,
    /// The last byte is the upper half of a 16-bit word.
    pub odd: bool,
    /// What is written.
    pub values: FieldValues,
}

/// The values of a field, frame by frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FieldValues {
    /// `first` and a digit of the flow's 5-tuple.
    Digit {
        /// Which of the four.
        digit: u8,
        /// Its value in flow 0.
        first: u64,
    },
    /// `base`, plus or minus so many steps.
    Steps {
        /// The value at position 0.
        base: u64,
        /// Minus.
        down: bool,
        /// Where the first frame is.
        position: u64,
        /// How far the next frame is behind it, below `values`.
        advance: u64,
        /// How many positions there are.
        values: u64,
        /// From one to the next.
        step: u64,
    },
    /// `first` plus a random number of steps below `values`: the next number of the generator times `values`, divided by 2^64.
    Random {
        /// The smallest value.
        first: u64,
        /// From one to the next.
        step: u64,
        /// How many there are, from 1 to 2^32.
        values: u64,
        /// The generator's numbers.
        draw: Draw,
    },
    /// These in turn.
    List {
        /// At least one.
        values: Vec<u64>,
        /// Where the first frame is.
        at: u32,
        /// How far the next frame is behind it, below the number of values.
        advance: u32,
    },
}

/// The flows of one worker in turn, a frame each, and their 5-tuples as numbers of mixed radix.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowWalk {
    /// What is added to a flow for the tag.
    pub first_flow: u32,
    /// The worker's first flow.
    pub worker: u32,
    /// From one flow of the worker to the next.
    pub workers: u32,
    /// Flows of all workers: those below this.
    pub flows: u32,
    /// The 5-tuple of the worker's first flow.
    pub home: [u32; 4],
    /// From one flow of the worker to the next.
    pub step: [u32; 4],
    /// How many values each digit has.
    pub radix: [u32; 4],
    /// The 5-tuple changes from flow to flow.
    pub moves: bool,
    /// In tags all are `first_flow`, with one sequence from 0.
    pub one_flow: bool,
}

/// When frames are due: the next one at `due_ns`, and each after it by `whole_ns` and `part` parts of `parts` later; whole
/// parts are `carry_ns` each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// The next one, monotonic.
    pub due_ns: u64,
    /// Parts by which it is due later than that, less than `parts`.
    pub rest: u64,
    /// From one to the next, in whole nanoseconds.
    pub whole_ns: u64,
    /// And in parts, no more than `parts`.
    pub part: u64,
    /// How many parts make `carry_ns`.
    pub parts: u64,
    /// What so many parts are.
    pub carry_ns: u64,
}

/// What a port is to send of one stream in a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamOrder {
    /// When; `None` as fast as it takes them.
    pub pace: Option<Pace>,
    /// No more frames than these.
    pub frames: u64,
    /// Nothing is sent from this time on, monotonic.
    pub until_ns: u64,
    /// A frame that is later than this is not sent, and ends the turn.
    pub allowance_ns: u64,
}

/// What a port is to send in one turn, of all its streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendOrder {
    /// The time now, monotonic.
    pub now_ns: u64,
    /// No more frames than these.
    pub frames: u64,
    /// How long the turn may be, about.
    pub length_ns: u64,
    /// Frames that share one hand-over to the device: 1 where each is to leave by itself.
    pub batch: u32,
    /// What is due is sent, and what is not yet is not awaited.
    pub overdue: bool,
    /// The wall clock less the monotonic one, for stamps.
    pub wall_minus_mono: u64,
}

/// What a turn did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendTurn {
    /// Frames handed to the device, those included that it refused.
    pub submitted_frames: u64,
    /// The sender was away for longer than 1 ms so many times, …
    pub stalls: u64,
    /// … for so long in all, …
    pub stalled_ns: u64,
    /// … and at most.
    pub largest_gap_ns: u64,
    /// When the last frame left, monotonic; 0 if none did.
    pub last_departure_ns: u64,
    /// For how long nothing was due.
    pub idle_ns: u64,
    /// When it last looked at the clock: who takes the next turn much later was away since then.
    pub seen_ns: u64,
}

/// Totals of a stream since it was loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendCounters {
    /// Frames handed to the device.
    pub submitted_frames: u64,
    /// Octets of these, with FCS.
    pub submitted_octets: u64,
    /// Frames that the device dropped before the wire.
    pub refused_frames: u64,
    /// Octets of these, with FCS.
    pub refused_octets: u64,
}

/// Sends streams by itself, turn by turn. One thread at a time. Streams are numbered as they were loaded.
pub trait SendOffload: Send {
    /// Sends what is due, the earliest first, and returns when the turn is over or nothing more can be done in it.
    /// Streams without a schedule have what time is left, in turn.
    ///
    /// # Errors
    /// [`PortError::LinkDown`] while the link is down, which is no end: the turn is to be taken again later. Other errors
    /// are. What was sent before is told by [`SendOffload::taken`] all the same.
    fn turn(&mut self, order: &SendOrder, streams: &[StreamOrder]) -> Result<(), PortError>;

    /// What the turn did that was taken last.
    fn taken(&self) -> SendTurn;

    /// What a frame of a stream that was due in that turn was late by, at most.
    fn most_late_ns(&self, stream: usize) -> u64;

    /// Totals so far.
    fn counters(&self, stream: usize) -> SendCounters;

    /// How often the port was told to go on, and how often the device was full.
    fn hand_overs(&self) -> (u64, u64);

    /// The flow whose turn is next, without `first_flow`, and how often all have had theirs.
    fn position(&self, stream: usize) -> (u32, u64);

    /// Frames refused of each flow.
    fn refused_by_flow(&self, stream: usize) -> Vec<u64>;
}

/// Ends a turn of a [`SendOffload`] within a millisecond, from any thread, and those that come after it.
pub trait Halt: Send + Sync {
    /// Does it.
    fn halt(&self);
}

/// What a receiver that is part of a port waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Awaited {
    /// The first flow, as in tags.
    pub first_flow: u32,
    /// How many.
    pub flows: u32,
    /// The flow in the tag of frames that are counted apart.
    pub ramp_flow: u32,
    /// The sender is not known: gaps count from the first sequence number seen.
    pub sender_unknown: bool,
    /// The first flow is not known either: the `flows` around that of the first tagged frame are awaited, and
    /// `first_flow` says nothing.
    pub around_first: bool,
}

/// Accounts for what arrives at a port, or a part of its queues, by itself.
pub trait ReceiveOffload: Send {
    /// Begins to count; what came before counts for nothing. Stamps are the monotonic clock plus this.
    fn begin(&mut self, wall_minus_mono: u64);

    /// Frames that were stamped before this time of the wall clock are of an earlier run, so they are foreign; 0: none is.
    fn since(&mut self, wall_ns: u64);

    /// Originals that arrive after this time of the wall clock are late; `u64::MAX`: none.
    fn drain_since(&mut self, wall_ns: u64);

    /// What arrives after this time of the wall clock counts for nothing; `u64::MAX`: all counts.
    fn end_at(&mut self, wall_ns: u64);

    /// The counters so far.
    fn counters(&self) -> Counters;

    /// Number and sum of the latencies so far.
    fn latency(&self) -> (u64, u128);

    /// Frames of the ramp so far.
    fn ramp_frames(&self) -> u64;

    /// Frames so far that it had no time to account for; in no other count.
    fn dropped_frames(&self) -> u64 {
        0
    }

    /// The latencies so far, queue by queue.
    fn latencies(&self) -> Vec<Histogram>;

    /// Returns statistics so far of each of the first `count` flows, queue by queue. If the sender is not known, they
    /// begin with the flow of the first tagged frame.
    fn first_flows(&self, count: u32) -> Vec<FlowStats>;

    /// Everything that was measured; flows have the numbers of their tags.
    fn measurement(&self) -> Measurement;
}
