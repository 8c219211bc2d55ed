//! The device under test of the `impair` lab: a process that bridges two ports and errs by order.
//!
//! The decisions are those of [`wb_port::fault`]; here is what moves the frames in real time and
//! tells what was done.

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
