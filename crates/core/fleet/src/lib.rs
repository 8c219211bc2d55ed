//! Many machines as one instrument: a controller carries out a plan over several hosts, each with an agent.
//!
//! This crate holds the rules and no I/O: messages and subjects of the broker, the state machines of an
//! [`Agent`](agent::Agent) and of the [`Controller`](controller::Controller) of one run, the choice of the
//! [`Leader`](leader::Leader), the placing of jobs on hosts ([`place`](place::place)), the arithmetic of clocks, and the
//! merging of snapshots. [`simulation`] has the engine of a simulated host. State machines take events with the time, and
//! return actions. They know no broker, no clock, no thread and no engine.

#![forbid(unsafe_code)]

pub mod agent;
mod choose;
pub mod clock;
pub mod controller;
pub mod leader;
mod lease;
pub mod merge;
pub mod message;
pub mod other_agent;
pub mod place;
mod share;
pub mod simulation;
pub mod split;
pub mod subjects;
pub mod time_service;

pub use lease::Lease;
pub use share::{Share, ShareEnd};

/// Time at which an event is handled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// Monotonic clock of the host in ns. Timeouts and leases use it.
    pub mono_ns: u64,
    /// Wall clock of the host in ns since 1970. The start of a run uses it.
    pub wall_ns: u64,
}

/// One millisecond in ns.
const MS: u64 = 1_000_000;
/// One second in ns.
const SECOND: u64 = 1_000 * MS;
