//! Runs a plan. This crate is the only entry to the engines.
//!
//! A session takes a plan, checks it against the machine, opens ports, finds neighbours, places
//! workers, publishes a snapshot per interval, and ends with one report, also when it is
//! interrupted or a device vanishes. It prints nothing and knows no dialect.
//!
//! [`prepare`] does everything that can fail before the first frame. [`Prepared::run`] cannot fail after that; it can
//! only end early, which [`Finished::end`] reports. [`run`] does both.

mod bench;
pub mod capture;
mod clock;
mod commands;
mod criteria;
pub mod devices;
mod doctor;
mod environment;
mod guard;
mod http;
pub mod input;
mod lateness;
pub mod load;
mod machine;
mod neighbour_responder;
mod neighbours;
mod prepare;
mod probes;
mod report;
mod run;
mod settle;
mod sharing;
mod signals;
mod snapshot;
pub mod socket;
mod steering;
mod traffic;
mod verdict;

pub use clock::{SystemClock, rfc3339};
pub use doctor::{InKernel, in_kernel, xdp_abilities};
pub use guard::{admit_servers, needs_no_zone};
pub use http::Scripts;
pub use machine::Machine;
pub use prepare::{Attended, Checked, Environment, Extras, Opened, PortHint, prepare};
pub use run::{Finished, Prepared, StartAt};
pub use signals::{Signals, mind_suspension, survive_file_limit};
pub use steering::{Steer, Steering};
pub use wb_engine::{End, Observer, Request, View};
pub use wb_open::StartError;
pub use wb_port::memory::Registry;

/// Prepares a plan and runs it to its end.
///
/// # Errors
/// Returns the reason why the run cannot start.
pub fn run(
    plan: wb_model::Plan,
    environment: &Environment,
    observer: &mut dyn Observer,
) -> Result<Finished, StartError> {
    prepare(plan, environment, Extras::default())?.run(observer)
}
