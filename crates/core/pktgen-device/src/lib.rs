//! A packet device on its way: how the fields of the Linux packet generator walk from packet to
//! packet, which frames come of it, and what the receiver that belongs to it counts.
//!
//! Knows neither ports nor texts nor clocks: a worker asks for the next transmit call, says what
//! became of it, and brings the time along.
//!
//! | to | look at |
//! |---|---|
//! | make the packets of a device, one after another | [`Walker`] |
//! | have them made elsewhere, from tables | [`Recipe`] |
//! | see where a device stands | [`Progress`] |
//! | recognise packets of a generator | [`classify_pktgen`] |
//! | count and time them as `pgrx` does | [`Row`] |

#![forbid(unsafe_code)]

mod classify;
mod flows;
mod frame;
mod progress;
mod random;
mod row;
mod walker;

pub use classify::{PktgenFrame, classify_pktgen};
pub use flows::Flows;
pub use progress::Progress;
pub use row::{Row, Sample};
pub use walker::{Call, Field, Memory, Recipe, Start, Template, TooLong, Turn, Walker};
pub use wb_model::device::{JitterRule, Mode, TimeForm};

/// An instant on both clocks of the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time {
    /// CLOCK_REALTIME, ns.
    pub wall_ns: u64,
    /// CLOCK_MONOTONIC, ns.
    pub mono_ns: u64,
}
