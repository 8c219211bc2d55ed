//! netperf's dialect: parses the command lines of `netperf` and `netserver` into a plan, and prints
//! results in the text format of netperf 2.7.
//!
//! Pure: resolves no name and prints nothing.

#![forbid(unsafe_code)]

mod output_options;
mod text;
mod words;

pub use output_options::{OutputForm, OutputOptions, TestKind, TypedEnd};
pub use text::{
    ConnectionEnds, FigureSelection, NeededMeasurements, ProgramExit, banner, calibration,
    failure_exit, interim, program_exit, tcp_info, uuid,
};
pub use words::{
    NetperfCommand, NetperfRefusal, NoteLine, ServerCommand, SpecialAction, cannot_start, netperf,
    netserver, start_line,
};
