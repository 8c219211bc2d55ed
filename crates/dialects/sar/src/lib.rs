//! sar's dialect: its command line for the network tables `DEV`, `EDEV` and `SOFT`, and their text, column for column.
//!
//! Converts a command line into a [`TableRequest`], and counters into lines. Reads no counter and no clock, and prints
//! nothing.

#![forbid(unsafe_code)]

mod text;
mod words;

pub use text::{Banner, CpuRow, LinkRow, ReportTimes, TableFormatter};
pub use words::{SarAction, SarRefusal, SarTable, ShownCpus, TableRequest, parse};
