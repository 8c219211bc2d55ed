//! Report and snapshots as JSON, keys as in the types. While the program is tested, each is held against its
//! schema.

use wb_model::{Report, Snapshot, schema::mismatch};

/// The report as one indented document.
///
/// # Panics
/// Never: a report has only types that JSON can hold (a figure that is no number becomes null).
#[must_use]
pub fn report(report: &Report) -> String {
    debug_assert_eq!(mismatch(report), None, "a report is what its schema says");
    let mut text =
        serde_json::to_string_pretty(report).expect("a report has only types that JSON can hold");
    text.push('\n');
    text
}

/// The report on one line, without the line feed: the last line after those of snapshots.
///
/// # Panics
/// Never, as above.
#[must_use]
pub fn report_line(report: &Report) -> String {
    debug_assert_eq!(mismatch(report), None, "a report is what its schema says");
    serde_json::to_string(report).expect("a report has only types that JSON can hold")
}

/// A snapshot on one line, without the line feed.
///
/// # Panics
/// Never: a snapshot has only types that JSON can hold.
#[must_use]
pub fn snapshot(snapshot: &Snapshot) -> String {
    debug_assert_eq!(
        mismatch(snapshot),
        None,
        "a snapshot is what its schema says"
    );
    serde_json::to_string(snapshot).expect("a snapshot has only types that JSON can hold")
}
