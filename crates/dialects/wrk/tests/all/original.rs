//! The original, as an oracle.

use std::process::{Command, Output, Stdio};

/// Calls it; says that the test is skipped where there is none.
pub(crate) fn wrk(words: &[String]) -> Option<Output> {
    let output = Command::new("wrk")
        .args(words)
        .stdin(Stdio::null())
        .output();
    output
        .inspect_err(|error| wb_skip::skipped(format_args!("no wrk here ({error})")))
        .ok()
}

/// What it said on standard output, or on standard error.
pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
