//! Counters of interfaces, CPUs and devices per interval, as `wirebench stat` and `wirebench sar` show them.
//!
//! Reads counters, computes intervals and totals, and returns documents and text. Prints nothing and knows no signals
//! and no terminal: a closure ends a wait.

#![forbid(unsafe_code)]

mod advice;
mod collector;
mod form;
mod interrupts;
mod options;
mod path;
mod probes;
mod sar;
mod schedule;

pub use collector::Collector;
pub use form::StatForm;
pub use options::{StatError, StatOptions};
pub use sar::SarTables;

/// Seconds between two times.
#[allow(clippy::cast_precision_loss)]
fn seconds(from_ns: u64, to_ns: u64) -> f64 {
    to_ns.saturating_sub(from_ns) as f64 / 1e9
}
