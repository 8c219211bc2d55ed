//! What a port is: the traits every driver implements, and the drivers that need no kernel.
//!
//! A port is where frames enter and leave. It has queue pairs; one worker owns one queue pair and
//! everything behind it, so nothing here is shared or locked. Engines are generic over these
//! traits and are compiled once per driver; which driver it is, is decided once, at start.
//!
//! This crate knows nothing of streams, tags or plans, and makes no system call by itself: capture
//! files and sleeping go through the standard library, the time comes from the caller ([`clock`]).
//!
//! Beside the traits are the drivers that need no interface ([`memory`], [`mod@file`]), a device that
//! errs by order ([`fault`]), the way of frames from one
//! worker to another ([`mod@exchange`]), and the suite that every driver has to pass
//! ([`conformance`]). A port that runs streams by itself is told by [`offload`].
//!
//! The order of a sender's loop is `lend` → write the slots → `submit` → `flush`; of a receiver's,
//! `receive` (and `wait` when nothing came). Both halves of a pair are used in one loop by a
//! worker that answers or measures both ways.

pub mod clock;
pub mod conformance;
pub mod exchange;
pub mod fault;
pub mod file;
pub mod memory;
pub mod offload;

mod error;
mod facts;
mod frame;
mod notify;
mod prefetch;
mod queue;
mod refused;
mod steer;

pub use error::PortError;
pub use facts::{Interface, PortFacts, Speed, StampSource};
pub use frame::{ChecksumState, RxFrame, Slot, StrippedVlan};
pub use notify::Notify;
pub use prefetch::prefetch;
pub use queue::{QueuePair, RxCounters, RxQueue, TxCounters, TxQueue};
pub use steer::PortSteering;
