//! wrk's language: its command line becomes a load of HTTP requests, what was measured becomes the text that wrk
//! prints, and its scripts run.
//!
//! Pure: it resolves no name, opens no connection and prints nothing.

#![deny(unsafe_code)]

mod extended;
pub mod script;
mod spectrum;
mod stats;
mod text;
mod words;

pub use spectrum::{Latency, spectrum};
pub use stats::Stats;
pub use text::{Outcome, banner, results};
pub use words::{Command, Stop, Url, wrk};
