//! dperf's configuration language and the text of its statistics: parsing, checks, translation into a plan.
//!
//! Only translates: opens no file, sends nothing, and reads no clock.
//!
//! | to | see |
//! |---|---|
//! | read a file and report all problems at once | [`parse()`], [`check()`] |
//! | get the meaning of a file, with defaults and derived figures | [`Config`] |
//! | add a keyword | the table in [`keywords`] |
//! | add a rule between keywords | `rules.rs` |
//! | translate it into ports and jobs of a plan | [`plan::translate`] |
//! | write a configuration | [`Config`]'s `Display` |
//! | write the statistics of a second or of a run | [`statistics`] |
//!
//! Dialect: dperf 1.9. The keywords of older versions (`lport_range`, `packet_size`, arguments of `rss`) are read as
//! in those versions. Intentional differences: `tcp_rst` and `payload_file` can be used; requests may be any number
//! of nanoseconds apart; `tx_burst` is not cut at 8 bits; table limits are lifted (CPUs, ports, lines, length of host
//! and path); client addresses may agree in their low 16 bits; comments may hold any character; `tos` must be a number;
//! ports may be named `if:NAME`; one file may have ports of both families. A strict check reports whether
//! dperf 1.9 itself would accept a file.

#![forbid(unsafe_code)]

mod check;
pub mod config;
pub mod fuzz;
pub mod keywords;
mod number;
mod parse;
pub mod plan;
mod print;
mod problem;
mod rules;
pub mod statistics;

pub use check::check;
pub use config::Config;
pub use parse::{Parsed, is_configuration, parse};
pub use plan::{TranslateOptions, TranslatedPlan, translate};
pub use problem::{Code, Problem, Severity, accepted};
