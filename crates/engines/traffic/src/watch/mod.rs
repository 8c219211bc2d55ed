//! Watches a port for packets of generators, like `pgrx` with additional statistics.
//!
//! Knows the rules for counting ([`wb_pktgen_device::classify_pktgen`], [`wb_pktgen_device::CpuStatistics`]), and queue pairs and
//! clocks by trait. Each watcher is one worker and one row.
//!
//! Arrival timestamps come from the port and use the wall clock. Their CLOCK_MONOTONIC time is the timestamp minus the
//! offset of the two clocks. The offset is read when a batch arrives and kept while it stays within a microsecond, so
//! that its error does not affect the times between packets. Recorded timestamps are used unchanged for both.
//!
//! **Beyond the original**, [`WatchExtras`] has loss, duplicates, reordering and percentiles of all packets as one flow with
//! the numbers 1, 2, 3, … They are meaningful if a single device sends and sends no packet twice. Clones and bursts
//! repeat a number, and the next packet skips the same count: 1 1 1 4 4 4. That looks like duplicates and loss and is
//! neither; from the first such step on, [`WatchExtras::sequence_is_plain`] is false.

mod handle;
mod sequence;
mod watcher;

pub use handle::{WatchExtras, WatchHandle, WatchSettings};
pub use watcher::{WatchOutcome, run_watcher};
