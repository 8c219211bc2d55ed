//! Packet device of the Linux packet generator (pktgen): field values and frames of its packets, and the counters of
//! the matching receiver.
//!
//! Knows neither ports nor texts nor clocks: a worker asks for the next transmit call, reports its result, and passes
//! the time.
//!
//! | task | type |
//! |---|---|
//! | generate the packets of a device, one after another | [`Walker`] |
//! | generate them in a port, from tables | [`Recipe`] |
//! | read the state of a device | [`DeviceProgress`] |
//! | recognise packets of a generator | [`classify_pktgen`] |
//! | count and time packets as `pgrx` does | [`CpuStatistics`] |

#![forbid(unsafe_code)]

mod classify;
mod cpu_statistics;
mod flows;
mod frame;
mod progress;
mod walker;

pub use classify::{PktgenFrame, classify_pktgen};
pub use cpu_statistics::{CpuSample, CpuStatistics};
pub use flows::Flows;
pub use progress::DeviceProgress;
pub use walker::{
    DeviceCall, FieldRecipe, FrameRecipe, Memory, PlaceSelection, Recipe, Start, TooLong, Walker,
};
pub use wb_model::device::{JitterRule, Mode, TimeForm};

/// A time on both clocks of the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeviceTime {
    /// CLOCK_REALTIME, ns.
    pub wall_ns: u64,
    /// CLOCK_MONOTONIC, ns.
    pub mono_ns: u64,
}
