//! Times and limits of the loops that drive queue pairs.

use std::time::Duration;

/// Longest wait between checks of the flags: 10 ms.
pub const POLL_INTERVAL: Duration = Duration::from_nanos(POLL_INTERVAL_NS);
/// Longest wait between checks of the flags, in ns.
pub const POLL_INTERVAL_NS: u64 = 10_000_000;
/// Interval between retries while the link is down or the device is full, and between checks for the start, in ns.
pub const RETRY_NS: u64 = 1_000_000;
/// Maximum number of frames read after the end if no timestamp shows which arrived before; more than any ring holds.
pub const LAST_FRAMES: usize = 1 << 25;
