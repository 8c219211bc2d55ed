//! The traffic engine: sends streams, receives and analyses them.
//!
//! [`engine`] and [`devices`] are the engines of a run: they open ports, start threads and fill the report. Everything
//! else knows ports by trait and clocks by trait. The crate prints nothing. A worker is one loop, [`run_worker`],
//! compiled for each kind of port:
//!
//! ```text
//!  Stream ──compile──> frames (templates, modifiers, tag) ─┐
//!                                                          ├─> Sender::step ──> TxQueue
//!  rate, duration, count ────────────────────────> pacer ──┘
//!                                   RxQueue ──> Receiver::step ──> wb_measure::Analyser
//! ```
//!
//! **Distribution over workers.** Worker `w` of `n` sends the events `w, w + n, w + 2n, …` of each stream's schedule.
//! Of its tag flows it sends those with `flow % n == w` in turn, one frame each. Modifiers and sizes are positioned
//! likewise, so all workers together send what a single one would.
//!
//! **Flows.** Flow `f` has the 5-tuple number `f`, counted as a number of mixed radix: the source
//! port runs fastest, then the destination port, the source address, the destination address.
//!
//! **Number of frames.** Event `k` of a schedule is due at `start + k / rate`, without drift, and belongs to the run if
//! that is before its end: `rate × duration` events, rounded up.
//!
//! **Late senders.** A late sender catches up at once, but for at most `catch_up_ns`: older events are given up and
//! stay unsent. After the end of the duration, due frames are still sent if none were given up before.
//!
//! ```
//! use wb_port::{QueuePair, RxQueue, TxQueue, memory};
//! use wb_traffic::{Receiver, ReceiverSpec, FlowSpace, Sender, SenderSpec, StreamSpec, VirtualClock};
//!
//! let clock = VirtualClock::ticking(50);
//! let options = memory::LinkOptions::new("x", clock.stamps());
//! let (mut a, mut b) = memory::link(&options)?;
//!
//! let stream = StreamSpec { pps: Some(wb_model::units::Rational::whole(100_000)), ..StreamSpec::default() };
//! let spec = SenderSpec { streams: vec![stream], count: Some(500), ..SenderSpec::default() };
//! let tx = a.queues[0].tx();
//! let mut sender = Sender::new(&spec, tx.frame_capacity()).unwrap();
//! let mut receiver = Receiver::new(&ReceiverSpec {
//!     flows: FlowSpace::Planned { first: 0, count: 1 },
//!     ..ReceiverSpec::default()
//! });
//! sender.start(0);
//! while !sender.step(tx, &clock)?.done {
//!     receiver.step(b.queues[0].rx(), 64, u64::MAX)?;
//! }
//! assert_eq!(sender.finish(tx).streams[0].offered_frames, 500);
//! while receiver.step(b.queues[0].rx(), 64, u64::MAX)? > 0 {}
//! assert_eq!(receiver.finish().measurement.counters.received_frames, 500);
//! # Ok::<(), wb_port::PortError>(())
//! ```

#![forbid(unsafe_code)]

mod clock;
mod control;
mod device;
pub mod devices;
pub mod engine;
mod error;
mod frames;
mod modify;
mod offload;
mod pacer;
mod ramp;
mod receiver;
mod sender;
mod spec;
mod stream_sender;
mod watch;
mod worker;

pub use clock::VirtualClock;
pub use control::{
    CounterValues, SharedCounters, StreamOrder, StreamOrders, StreamPace, TrafficControl,
};
pub use device::{
    DeviceEnd, DeviceHandle, DeviceNext, DeviceOffload, DeviceOutcome, DeviceTurn, LoadedPort,
    TableLoader, device_sender, device_table, run_devices,
};
pub use error::CompileError;
pub use offload::{OffloadedWorker, run_offloaded};
pub use ramp::RampUp;
pub use receiver::{
    FlowSpace, FollowedRun, OPEN_FLOWS, PKTGEN_FLOW, Receiver, ReceiverOutcome, ReceiverSpec,
    SenderClock, range_around,
};
pub use sender::{
    OffloadTables, OffloadedSender, Sender, SenderOutcome, SenderStep, StreamOutcome,
};
pub use spec::{RecordedFrame, Recording, SenderSpec, StreamSpec};
pub use watch::{WatchExtras, WatchHandle, WatchOutcome, WatchSettings, run_watcher};
pub use wb_port::clock::WorkerClock as Clock;
pub use worker::{Worker, WorkerOutcome, run_worker};

/// Tag flow of frames sent during the ramp-up. They are counted separately.
pub const RAMP_FLOW: u32 = u32::MAX;
