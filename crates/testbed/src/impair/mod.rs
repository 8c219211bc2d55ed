//! Device under test of the lab `impair`: a process that bridges two ports and impairs traffic as configured.
//!
//! [`wb_port::fault`] makes the decisions. This module moves the frames in real time and
//! counts the results.

mod config;
mod counters;
mod device;
mod direction;
mod pool;
mod wake_tuning;

pub use config::{ImpairOptions, Loss};
pub use counters::{DeviceCounters, DirectionCounters};
pub use device::{DEVICE_COMMAND, device_main};

pub(crate) use counters::read as read_counters;
