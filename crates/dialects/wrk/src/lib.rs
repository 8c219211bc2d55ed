//! wrk's dialect: parses its command line, prints results in its text format and runs its scripts.
//!
//! Pure: resolves no name, opens no connection and prints nothing.

#![deny(unsafe_code)]

mod extended;
pub mod script;
mod spectrum;
mod stats;
mod text;
mod words;

pub use spectrum::{LatencyKind, spectrum};
pub use stats::Stats;
pub use text::{WrkResults, banner, results};
pub use words::{Url, WrkCommand, WrkExit, wrk};
