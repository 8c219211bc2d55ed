//! The account of a device, in its own words and in those of streams.

use wb_model::Lateness;
use wb_pktgen_device::Walker;
use wb_port::{PortError, RxCounters, TxCounters};

use crate::{SenderOutcome, StreamOutcome, WorkerOutcome};

/// What a device did.
#[derive(Debug)]
pub struct DeviceOutcome {
    /// The walk at its end: counters, current values, and what a later run goes on from.
    pub walker: Walker,
    /// CLOCK_MONOTONIC of the start.
    pub started_ns: u64,
    /// CLOCK_MONOTONIC of the end.
    pub stopped_ns: u64,
    /// Time in which nothing was due or the port was full.
    pub idle_ns: u64,
    /// What was asked; what was offered is the rest of it less what stayed unsent. `None` at full speed
    /// until an end in time. A run that was stopped asked only for what was due by then, one that
    /// ended by a fault or with the link down for all of its count.
    pub intended_frames: Option<u64>,
    /// Frames the port took.
    pub offered_frames: u64,
    /// Octets of these frames, with FCS.
    pub offered_octets: u64,
    /// Frames the port dropped before the wire.
    pub refused_frames: u64,
    /// Frames taken back because the port did not take them before the end.
    pub withdrawn_frames: u64,
    /// Most frames of the schedule that were due at once; 0 at full speed.
    pub largest_catch_up_frames: u64,
    /// When the last frame left, monotonic; the start if none did.
    pub last_departure_ns: u64,
    /// The same by the wall clock; 0 if none did.
    pub last_departure_wall_ns: u64,
    /// Turns taken.
    pub turns: u64,
    /// Turns in which frames were handed to the port.
    pub busy_turns: u64,
    /// What the sending half of the queue pair counted since the port was opened.
    pub tx: TxCounters,
    /// What the receiving half counted.
    pub rx: RxCounters,
    /// What ended it before its time.
    pub fault: Option<PortError>,
    /// The link went down, and that ended it.
    pub link_down: bool,
    /// How late it was.
    pub lateness: Lateness,
    /// Why it went on through its queue pair, if its port had sent it by itself.
    pub by_queue_because: Option<String>,
}

impl DeviceOutcome {
    /// Frames that were asked for and not offered.
    #[must_use]
    pub fn unsent_frames(&self) -> u64 {
        self.intended_frames
            .map_or(0, |intended| intended - self.offered_frames)
    }

    /// The same account as that of a worker with one stream, which has the one flow `flow`; and the
    /// walk.
    #[must_use]
    pub fn into_worker_outcome(self, flow: u32) -> (Walker, WorkerOutcome) {
        let stream = StreamOutcome {
            intended_frames: self.intended_frames,
            offered_frames: self.offered_frames,
            offered_octets: self.offered_octets,
            refused_frames: self.refused_frames,
            withdrawn_frames: self.withdrawn_frames,
            first_flow: flow,
            flow_frames: vec![self.offered_frames],
        };
        let sender = SenderOutcome {
            streams: vec![stream],
            ramp_frames: 0,
            largest_catch_up_frames: self.largest_catch_up_frames,
            start_ns: self.started_ns,
            last_departure_ns: self.last_departure_ns,
            last_departure_wall_ns: self.last_departure_wall_ns,
            departures: None,
            turns: self.turns,
            busy_turns: self.busy_turns,
            tx: self.tx,
            lateness: self.lateness,
        };
        let outcome = WorkerOutcome {
            sender: Some(sender),
            receiver: None,
            tx: self.tx,
            rx: self.rx,
            fault: self.fault,
            link_down_ns: 0,
            link_downs: self.link_down.into(),
            lateness: Lateness::default(),
        };
        (self.walker, outcome)
    }
}
