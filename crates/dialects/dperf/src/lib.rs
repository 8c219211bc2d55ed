//! The language of dperf: what its configuration files say, whether they hold together, and the text
//! of its statistics.
//!
//! Only translates: opens no file, sends nothing, and reads no clock.
//!
//! | to | look at |
//! |---|---|
//! | read a file, with all its mistakes at once | [`parse()`], [`check()`] |
//! | see what a file means, defaults and derived figures included | [`Config`] |
//! | add a keyword | the table in [`keywords`] |
//! | add a rule between keywords | `rules.rs` |
//! | run it: ports and jobs of the plan | [`plan::translate`] |
//! | write a configuration | [`Config`]'s `Display` |
//! | write the statistics of a second or of a run | [`statistics`] |
//!
//! Dialect: dperf 1.9, with the words of older versions (`lport_range`, `packet_size`, arguments of
//! `rss`) read as those versions read them. Departures are few and meant: `tcp_rst` and
//! `payload_file` can be used, requests may be any number of nanoseconds apart, `tx_burst` is not cut
//! at 8 bits, limits of tables are lifted (CPUs, ports, lines, length of host and path), client
//! addresses may agree in their low 16 bits, comments may hold any character, `tos` must be a number, ports may
//! be named `if:NAME`, and one file may have ports of both families. A strict check tells
//! whether dperf 1.9 itself would take a file.

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
pub use plan::{Translate, Translated, translate};
pub use problem::{Code, Problem, Severity, accepted};
