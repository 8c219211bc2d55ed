//! Figures of captures.

use wb_figures::{
    Field, Merge, Plot, Section, Series, Show, Sum, Tone, Unit, counter, derived, fact, fields,
    gauge, merge_fields,
};

use crate::{
    criteria::Measured,
    figures::{FRAMES, TIMES, share, sum},
    report::{CaptureReaderReport, CaptureReport, Report},
};

const FILES: Unit = Unit::Count("files");
const BUFFERS: Unit = Unit::Count("buffers");
const PASSED: &str = "filter_accept_frames";

static CAPTURE: &[Field<CaptureReport>] = fields!(CaptureReport:
    fact!("file", "last file", |c| (&c.last_file).into()),
    counter!(filter_accept_frames, "passed the filter", FRAMES).leads(),
    counter!(captured_frames, "captured", FRAMES).leads().share_of(PASSED),
    counter!(kernel_drop_frames, "dropped by the kernel", FRAMES).share_of(PASSED).bad(),
    counter!(not_written_frames, "read but not written", FRAMES).share_of(PASSED).bad(),
    counter!(interface_drop_frames, "dropped by the interfaces", FRAMES).bad().show(Show::IfAny),
    counter!(file_octets, "written", Unit::Bytes).show(Show::IfAny),
    counter!(queue_drop_frames, "dropped: no free buffer", FRAMES).share_of(PASSED).bad().show(Show::IfAny),
    counter!(over_limit_frames, "over the limit", FRAMES).share_of(PASSED).show(Show::IfAny),
    counter!(not_read_frames, "never read", FRAMES).share_of(PASSED).bad().show(Show::IfAny),
    derived!("lost", "lost", FRAMES, |c| c.lost().into()).leads().judged(&["lost"]).bad().show(Show::Never),
    derived!("loss", "loss", Unit::Share, |c| c.loss().into()).judged(&["loss"]).bad().show(Show::Never),
    counter!(files, "files", FILES).show(Show::IfAny),
    counter!(files_removed, "files removed", FILES).show(Show::IfAny),
    fact!("filter", "filter", |c| (&c.filter).into()).show(Show::IfAny),
    derived!("snap_len", "snapshot length", Unit::Bytes, |c| (&c.snap_len).into()).show(Show::Details),
    gauge!(ring_bytes, "receive rings", Unit::Bytes),
    counter!(ring_freezes, "receive rings full", TIMES).show(Show::IfAny),
    derived!("longest_gap_ns", "longest poll gap", Unit::Nanoseconds, |c| ns(c.longest_gap_ms).into())
        .merged(|own, other| own.longest_gap_ms = own.longest_gap_ms.max(other.longest_gap_ms)),
    derived!("longest_write_ns", "longest write of a buffer", Unit::Nanoseconds, |c| ns(c.longest_write_ms).into())
        .merged(|own, other| own.longest_write_ms = own.longest_write_ms.max(other.longest_write_ms))
        .show(Show::IfAny),
    derived!("write_p50_ns", "write of a buffer, p50", Unit::Nanoseconds, |c| known(c.write_p50_ms).into()).show(Show::Details),
    derived!("write_p99_ns", "write of a buffer, p99", Unit::Nanoseconds, |c| known(c.write_p99_ms).into()).show(Show::Details),
    counter!(buffer_waits, "waits for a buffer", TIMES).show(Show::IfAny),
    gauge!(buffers, "buffers", BUFFERS).show(Show::Details),
    derived!("buffers_fewest", "fewest free buffers", BUFFERS, |c| (c.buffers > 0).then_some(c.buffers_fewest).into())
        .show(Show::Details),
);

static READER: &[Field<CaptureReaderReport>] = fields!(CaptureReaderReport:
    fact!("port", "port", |r| (&r.port).into()),
    derived!("queue", "queue", Unit::None, |r| (&r.queue).into()),
    derived!("cpu", "CPU", Unit::None, |r| (&r.cpu).into()),
    counter!(read_frames, "read", FRAMES),
    counter!(kernel_drop_frames, "dropped by the kernel", FRAMES).bad(),
    derived!("longest_gap_ns", "longest poll gap", Unit::Nanoseconds, |r| ns(r.longest_gap_ms).into()),
);

static PLOTS: [Plot; 3] = [
    Plot::new(
        "frames",
        "Captured and dropped frames",
        Series::Rates(&["read_frames", "written_frames", "kernel_drop_frames"]),
    ),
    Plot::new(
        "octets",
        "Bytes captured",
        Series::Rates(&["read_octets", "file_octets"]),
    ),
    Plot::new(
        "buffers",
        "Free buffers between readers and writer",
        Series::Levels(&["buffers_free"]),
    ),
];

const SUM: Sum = Sum::new(
    PASSED,
    &[
        "captured_frames",
        "kernel_drop_frames",
        "not_written_frames",
        "queue_drop_frames",
        "over_limit_frames",
        "not_read_frames",
    ],
);

/// Sections of all captures of a run.
pub fn sections(report: &Report) -> impl Iterator<Item = Section<'_>> {
    let only = report.capture.iter().map(|one| section("capture", one));
    let named = report.captures.iter();
    only.chain(named.map(|(name, one)| section(name, one)))
}

/// Section of one capture.
#[must_use]
pub fn section<'a>(name: &'a str, one: &'a CaptureReport) -> Section<'a> {
    let error = one.write_error.as_ref();
    Section::new("capture", "Capture", name, String::new())
        .figures(CAPTURE, one)
        .sum(SUM)
        .table("Readers", READER, &one.readers)
        .note(Tone::Bad, error.map(|why| format!("cannot write: {why}")))
        .plots(&PLOTS)
}

impl Measured for CaptureReport {
    fn section(&self) -> Section<'_> {
        section("capture", self)
    }
}

impl Merge for CaptureReport {
    fn merge(&mut self, other: &Self) {
        // A capture without a writer has no buffers.
        let buffers = [&*self, other].into_iter().filter(|c| c.buffers > 0);
        let fewest = buffers.map(|c| c.buffers_fewest).min();
        merge_fields(CAPTURE, self, other);
        self.buffers_fewest = fewest.unwrap_or(0);
        self.buffers_free = self.buffers_free.saturating_add(other.buffers_free);
        self.readers.extend(other.readers.iter().cloned());
        self.exact &= other.exact;
        if self.write_error.is_none() {
            self.write_error.clone_from(&other.write_error);
        }
        // Captures of several runs have no last file and no common percentiles.
        self.last_file = None;
        (self.write_p50_ms, self.write_p99_ms) = (0.0, 0.0);
    }
}

impl CaptureReport {
    /// Frames that are not in the output, including those dropped by the interfaces.
    pub(crate) fn lost(&self) -> u64 {
        sum([
            self.interface_drop_frames,
            self.kernel_drop_frames,
            self.not_written_frames,
            self.queue_drop_frames,
            self.not_read_frames,
        ])
    }

    fn loss(&self) -> Option<f64> {
        let all = sum([self.filter_accept_frames, self.interface_drop_frames]);
        share(self.lost(), all)
    }
}

/// Nanoseconds of a time in ms, if it is known.
fn known(ms: f64) -> Option<f64> {
    (ms > 0.0).then(|| ns(ms))
}

/// Nanoseconds of a time in ms.
const fn ns(ms: f64) -> f64 {
    ms * 1e6
}
