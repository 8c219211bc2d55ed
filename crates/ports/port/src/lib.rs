//! Traits that every driver implements, and the drivers that need no kernel.
//!
//! Frames enter and leave through a port. A port has queue pairs. Each queue pair and everything behind it belongs to
//! one worker, so nothing here is shared or locked. Engines are generic over these traits and compiled once per driver.
//! The driver is chosen once, at start.
//!
//! This crate does not know streams, tags or plans, and makes no direct system calls: capture files and sleeping use
//! the standard library, and the caller supplies the time ([`clock`]).
//!
//! In addition to the traits, the crate has the drivers that need no interface ([`memory`], [`mod@file`]), an impairing
//! device ([`fault`]), the transfer of frames between workers ([`mod@exchange`]), and the test suite for all drivers
//! ([`conformance`]). [`offload`] describes ports that run whole streams.
//!
//! A sender's loop calls `lend`, writes the slots, then calls `submit` and `flush`. A receiver's loop calls `receive`,
//! and `wait` if nothing arrived. A worker that answers, or measures both directions, uses both halves of a pair in one
//! loop.

pub mod clock;
pub mod conformance;
pub mod exchange;
pub mod fault;
pub mod file;
pub mod memory;
pub mod offload;
pub mod worker_loop;

mod error;
mod facts;
mod frame;
mod notify;
mod port_steering;
mod prefetch;
mod queue;
mod refused;

pub use error::PortError;
pub use facts::{Interface, PortFacts, Speed, StampSource};
pub use frame::{ChecksumState, RxFrame, Slot, StrippedVlan};
pub use notify::Notify;
pub use port_steering::PortSteering;
pub use prefetch::prefetch;
pub use queue::{QueuePair, RxCounters, RxQueue, TxCounters, TxQueue};
