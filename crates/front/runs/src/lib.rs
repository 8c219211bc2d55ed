//! Runs of plans inside one process, for programs that carry out the plans of others.
//!
//! [`Runs`] starts runs or lets them wait for their ports, publishes the events of each run ([`Feed`]), stops runs, and
//! keeps their reports on disk ([`Store`]), also those of runs that a killed process left behind. A run uses plain
//! threads; nothing here needs an async runtime.

#![forbid(unsafe_code)]

mod carry_out;
mod concerns;
mod feed;
mod grants;
mod ports;
mod runs;
mod store;

pub use concerns::{Concern, concerns, in_use};
pub use feed::{Batch, Feed, NumberedEvent};
pub use grants::Grants;
pub use ports::{HeldPort, Holder, matches};
pub use runs::{JobsSoFar, Refusal, Run, RunRequest, Runs, Settings};
pub use store::{KeyFigure, RunEnd, RunMeta, RunState, Store, StoreError, Tone};
