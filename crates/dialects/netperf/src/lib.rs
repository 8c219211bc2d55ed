//! netperf's dialect: parses the command lines of `netperf` and `netserver` into a plan, and prints
//! results in the text format of netperf 2.7.
//!
//! Pure: resolves no name and prints nothing.

#![forbid(unsafe_code)]

mod show;
mod text;
mod words;

pub use show::{Form, Show, ShownEnd, TestKind};
pub use text::{
    Ending, Ends, Needs, Selection, banner, calibration, ending, failure, interim, tcp_info, uuid,
};
pub use words::{
    Command, Note, Refusal, ServerCommand, Special, cannot_start, netperf, netserver, start_line,
};
