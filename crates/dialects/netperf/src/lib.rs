//! netperf's language: command lines of `netperf` and `netserver` become a plan, and what was
//! measured becomes the text that netperf 2.7 prints.
//!
//! Pure: it resolves no name and prints nothing.

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
