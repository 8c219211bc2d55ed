//! Report and snapshots as JSON, with the keys of the types. Debug and test builds check each document against its
//! schema.

use std::io::{Result, Write};

use serde::Serialize;
use serde_json::ser::{Formatter, PrettyFormatter, Serializer};
use wb_model::{LiveLine, Report, SNAPSHOT_SCHEMA, Snapshot, schema::mismatch};

/// The report as one indented document.
///
/// # Panics
/// Never: a report has only types that JSON can hold (a figure that is not a number becomes null).
#[must_use]
pub fn report(report: &Report) -> String {
    debug_assert_eq!(mismatch(report), None, "a report is what its schema says");
    let mut bytes = Vec::new();
    let mut serializer = Serializer::with_formatter(&mut bytes, Indented::default());
    let written = report.serialize(&mut serializer);
    written.expect("a report has only types that JSON can hold");
    let mut text = String::from_utf8(bytes).expect("JSON is written as UTF-8");
    text.push('\n');
    text
}

/// Keys of long lists of figures, each of which has one line.
const ON_ONE_LINE: [&str; 3] = ["at_ns", "values", "buckets"];

/// Indented JSON, except for lists of figures.
#[derive(Default)]
struct Indented {
    pretty: PrettyFormatter<'static>,
    key: Vec<u8>,
    in_key: bool,
    /// Number of open lists, counted from the outermost list that is written on one line.
    lists: usize,
}

impl Formatter for Indented {
    fn begin_object_key<W: ?Sized + Write>(&mut self, w: &mut W, first: bool) -> Result<()> {
        self.key.clear();
        self.in_key = true;
        self.pretty.begin_object_key(w, first)
    }

    fn end_object_key<W: ?Sized + Write>(&mut self, w: &mut W) -> Result<()> {
        self.in_key = false;
        self.pretty.end_object_key(w)
    }

    fn write_string_fragment<W: ?Sized + Write>(&mut self, w: &mut W, part: &str) -> Result<()> {
        if self.in_key {
            self.key.extend_from_slice(part.as_bytes());
        }
        self.pretty.write_string_fragment(w, part)
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, w: &mut W) -> Result<()> {
        self.pretty.begin_object_value(w)
    }

    fn end_object_value<W: ?Sized + Write>(&mut self, w: &mut W) -> Result<()> {
        self.pretty.end_object_value(w)
    }

    fn begin_object<W: ?Sized + Write>(&mut self, w: &mut W) -> Result<()> {
        self.pretty.begin_object(w)
    }

    fn end_object<W: ?Sized + Write>(&mut self, w: &mut W) -> Result<()> {
        self.pretty.end_object(w)
    }

    fn begin_array<W: ?Sized + Write>(&mut self, w: &mut W) -> Result<()> {
        if self.lists > 0 || ON_ONE_LINE.iter().any(|key| key.as_bytes() == self.key) {
            self.lists += 1;
            return w.write_all(b"[");
        }
        self.pretty.begin_array(w)
    }

    fn end_array<W: ?Sized + Write>(&mut self, w: &mut W) -> Result<()> {
        if self.lists > 0 {
            self.lists -= 1;
            self.key.clear();
            return w.write_all(b"]");
        }
        self.pretty.end_array(w)
    }

    fn begin_array_value<W: ?Sized + Write>(&mut self, w: &mut W, first: bool) -> Result<()> {
        match (self.lists > 0, first) {
            (true, true) => Ok(()),
            (true, false) => w.write_all(b","),
            (false, _) => self.pretty.begin_array_value(w, first),
        }
    }

    fn end_array_value<W: ?Sized + Write>(&mut self, w: &mut W) -> Result<()> {
        match self.lists > 0 {
            true => Ok(()),
            false => self.pretty.end_array_value(w),
        }
    }
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

/// A snapshot of a run of this kind on one line, without the line feed.
///
/// # Panics
/// Never: a snapshot has only types that JSON can hold.
#[must_use]
pub fn snapshot(kind: &str, snapshot: &Snapshot) -> String {
    debug_assert_eq!(
        mismatch(snapshot),
        None,
        "a snapshot is what its schema says"
    );
    let line = LiveLine {
        schema: SNAPSHOT_SCHEMA,
        kind,
        snapshot,
    };
    serde_json::to_string(&line).expect("a snapshot has only types that JSON can hold")
}
