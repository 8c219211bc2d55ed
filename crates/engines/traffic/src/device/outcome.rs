//! Results of a device, in pktgen's terms and in those of streams.

use wb_model::Lateness;
use wb_pktgen_device::Walker;
use wb_port::{PortError, RxCounters, TxCounters};

use crate::{SenderOutcome, StreamOutcome, WorkerOutcome};

/// Results of a device.
#[derive(Debug)]
pub struct DeviceOutcome {
    /// Walk state at the end: counters, current values, and the starting point of a later run.
    pub walker: Walker,
    /// CLOCK_MONOTONIC of the start.
    pub started_ns: u64,
    /// CLOCK_MONOTONIC of the end.
    pub stopped_ns: u64,
    /// Time in which nothing was due or the port was full.
    pub idle_ns: u64,
    /// Intended frames: offered plus unsent. `None` at full speed without a count. A stopped run intended only what was
    /// due by then; a run ended by a fault or with the link down intended its whole count.
    pub intended_frames: Option<u64>,
    /// Frames accepted by the port.
    pub offered_frames: u64,
    /// Octets of these frames, with FCS.
    pub offered_octets: u64,
    /// Frames dropped by the port before the wire.
    pub refused_frames: u64,
    /// Frames taken back because the port did not accept them before the end.
    pub withdrawn_frames: u64,
    /// Maximum number of scheduled frames due at once; 0 at full speed.
    pub largest_catch_up_frames: u64,
    /// Last departure, monotonic; the start if no frame left.
    pub last_departure_ns: u64,
    /// Last departure on the wall clock; 0 if no frame left.
    pub last_departure_wall_ns: u64,
    /// Turns taken.
    pub turns: u64,
    /// Turns in which frames were handed to the port.
    pub busy_turns: u64,
    /// Counters of the transmit half of the queue pair since the port was opened.
    pub tx: TxCounters,
    /// Counters of the receive half.
    pub rx: RxCounters,
    /// Error that ended it early.
    pub fault: Option<PortError>,
    /// The device ended because the link went down.
    pub link_down: bool,
    /// Lateness of the sender.
    pub lateness: Lateness,
    /// Reason for the fallback to the queue pair, if the port had sent autonomously.
    pub by_queue_because: Option<String>,
}

impl DeviceOutcome {
    /// Intended frames that were not offered.
    #[must_use]
    pub fn unsent_frames(&self) -> u64 {
        self.intended_frames
            .map_or(0, |intended| intended - self.offered_frames)
    }

    /// Converts the results to those of a worker with one stream with the single flow `flow`. Also returns the walk.
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
