//! sar's command line, as far as its network tables `DEV`, `EDEV` and `SOFT` go, and their text, column for column.
//!
//! A command line becomes a [`Request`]; what was counted becomes lines. This reads no counter and no clock and prints
//! nothing.

#![forbid(unsafe_code)]

mod text;
mod words;

pub use text::{Banner, CpuRow, LinkRow, Moment, Text};
pub use words::{Asked, Cpus, Refusal, Request, Table, parse};
