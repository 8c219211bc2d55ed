//! Watches a port for packets of generators, as `pgrx` does, and a little closer.
//!
//! Knows what counts and how it is added up ([`wb_pktgen_device::classify_pktgen`], [`wb_pktgen_device::Row`]) and queue pairs and
//! clocks by trait. One watcher is one worker is one row.
//!
//! Arrivals have the stamps of the port, which are of the wall clock. Their CLOCK_MONOTONIC is the stamp
//! less the distance of the two clocks, read when a batch comes and kept while it stays within a
//! microsecond, so that its own error is not in the times between packets. Recorded stamps are taken as
//! they are for both.
//!
//! **Beyond the original** there are loss, duplicates, reordering and percentiles ([`Extra`]), taken of
//! all packets as one flow with the numbers 1, 2, 3, … They mean something where one device sends and no
//! packet twice. Clones and bursts repeat a number, and the next packet leaves out as many: 1 1 1 4 4 4.
//! That looks like duplicates and loss and is neither; from the first such step on,
//! [`Extra::sequence_is_plain`] is false.

mod handle;
mod sequence;
mod watcher;

pub use handle::{Extra, WatchHandle, WatchSettings};
pub use watcher::{WatchOutcome, run_watcher};
