//! Common code of tests: skips, conditions with a deadline, scenarios.

mod report;
pub mod scenario;
mod skip;
mod wait;

pub use report::assert_adds_up;
pub use skip::{installed, skipped};
pub use wait::{disturb, eventually, eventually_within, polled};
