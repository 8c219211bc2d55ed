//! One run of a plan: the only door to the engines.
//!
//! A session takes a plan, checks it against the machine, opens ports, finds neighbours, places
//! workers, publishes a snapshot per interval, and ends with one report, also when it is
//! interrupted or a device vanishes. It prints nothing and knows no dialect.
//!
//! [`prepare`] does everything that can fail before the first frame; [`Prepared::run`] cannot fail
//! any more, it can only end early, and says so in [`Finished::end`].

mod account;
pub mod bench;
pub mod capture;
mod clock;
mod commands;
mod device_report;
pub mod devices;
mod error;
mod guard;
mod lateness;
pub mod load;
mod machine;
mod ports;
mod prepare;
mod presence;
mod run;
mod signals;
pub mod socket;
mod verdict;

pub use clock::{SystemClock, rfc3339};
pub use error::StartError;
pub use machine::Machine;
pub use prepare::{Environment, PortHint, Prepared, prepare};
pub use run::{End, Finished};
pub use signals::Signals;
