//! The original as a reference.

use std::process::{Command, Output, Stdio};

/// Runs the original; without it, reports that the test is skipped.
pub(crate) fn wrk(words: &[String]) -> Option<Output> {
    let output = Command::new("wrk")
        .args(words)
        .stdin(Stdio::null())
        .output();
    output
        .inspect_err(|error| wb_testing::skipped(format_args!("no wrk here ({error})")))
        .ok()
}

/// Output as text.
pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
