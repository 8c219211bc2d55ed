//! Decides when a file is full.

use wb_model::capture::CaptureOutput;

use crate::encode::PlacedRecord;

/// Conditions for beginning the next file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rotation {
    bytes: Option<u64>,
    frames: Option<u64>,
    time_ns: Option<u64>,
    /// Opening time of the first file, which is the start of its time span.
    opened_ns: u64,
    /// Start of contiguous time spans, used if frames of several readers arrive out of order. Otherwise the time span
    /// of a file begins with its first frame, as in tcpdump.
    grid_from_ns: Option<Option<u64>>,
    /// True if frames may arrive for a file after the end of its time.
    has_late_frames: bool,
    /// Number of files after which the capture ends.
    files: Option<u64>,
}

impl Rotation {
    pub(crate) fn new(output: &CaptureOutput, readers: usize, opened_ns: u64) -> Self {
        let time_ns = output.rotate_time.map(|span| span.as_nanos());
        Self {
            bytes: (output.rotate_bytes > 0).then_some(output.rotate_bytes),
            frames: (output.rotate_frames > 0).then_some(output.rotate_frames),
            time_ns,
            opened_ns,
            grid_from_ns: match output.rotate_aligned {
                true => time_ns.map(|_| Some(0)),
                false => (time_ns.is_some() && readers > 1).then_some(None),
            },
            has_late_frames: time_ns.is_some() && readers > 1,
            files: (output.file_limit > 0).then_some(output.file_limit.into()),
        }
    }

    pub(crate) fn is_off(&self) -> bool {
        self.bytes.is_none() && self.frames.is_none() && self.time_ns.is_none()
    }

    /// Returns true if a frame may arrive for a file with an expired time span.
    pub(crate) fn has_late_frames(&self) -> bool {
        self.has_late_frames
    }

    /// An empty file with the time span that begins with, or contains, this timestamp.
    pub(crate) fn empty_fill(&mut self, stamp_ns: u64) -> FileFill {
        let begin_ns = self.begin_ns(stamp_ns);
        FileFill {
            begin_ns,
            until_ns: self.time_ns.map(|span_ns| begin_ns.saturating_add(span_ns)),
            ..FileFill::default()
        }
    }

    /// Begins an empty file after `last`, with a first frame of this stamp. If `last` was full before the end of its
    /// time, that time continues.
    pub(crate) fn fill_after(&mut self, last: &FileFill, stamp_ns: u64) -> FileFill {
        if last.until_ns.is_none() || last.is_past(stamp_ns) {
            return self.empty_fill(stamp_ns);
        }
        FileFill {
            bytes: 0,
            frames: 0,
            number: last.number + 1,
            ..*last
        }
    }

    /// Adds a record to a file.
    pub(crate) fn add_record(&mut self, record: PlacedRecord, fill: &mut FileFill) {
        // Frames of a recording are older than the file they go into.
        if let (0, 0, Some(until_ns), Some(span_ns)) =
            (fill.frames, fill.number, fill.until_ns, self.time_ns)
            && record.stamp_ns < until_ns.saturating_sub(span_ns)
        {
            self.opened_ns = self.opened_ns.min(record.stamp_ns);
            *fill = self.empty_fill(record.stamp_ns);
        }
        fill.bytes += record.len as u64;
        fill.frames += 1;
    }

    /// Returns true if no more than `files` files are allowed.
    pub(crate) fn are_all(&self, files: u64) -> bool {
        self.files.is_some_and(|most| files >= most)
    }

    /// Returns true if the maximum number of files is reached, and a frame with this timestamp belongs to none of them.
    pub(crate) fn is_over(&self, files: u64, fill: &FileFill, stamp_ns: u64) -> bool {
        self.are_all(files) && fill.is_past(stamp_ns)
    }

    /// Returns true if this record belongs to the next file. As in tcpdump, a file is full when it exceeds its size,
    /// not when one more record would exceed it.
    pub(crate) fn is_due(&self, fill: &FileFill, record: PlacedRecord) -> bool {
        let full = self.bytes.is_some_and(|most| fill.bytes > most)
            || self.frames.is_some_and(|most| fill.frames >= most);
        (full && fill.frames > 0) || fill.is_past(record.stamp_ns)
    }

    /// Start of the time span of a file with this first timestamp.
    fn begin_ns(&mut self, stamp_ns: u64) -> u64 {
        match (&mut self.grid_from_ns, self.time_ns) {
            (Some(from_ns), Some(span_ns)) => {
                let from_ns = *from_ns.get_or_insert(self.opened_ns.min(stamp_ns));
                stamp_ns - stamp_ns.saturating_sub(from_ns) % span_ns
            }
            _ => stamp_ns,
        }
    }
}

/// Contents of a file, before compression.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FileFill {
    pub(crate) bytes: u64,
    pub(crate) frames: u64,
    /// Start of its time span.
    pub(crate) begin_ns: u64,
    /// Number of earlier files of the same time span.
    pub(crate) number: u64,
    /// The first timestamp that belongs to a later file; `None` without a change by time.
    pub(crate) until_ns: Option<u64>,
}

impl FileFill {
    /// Returns true if its time span has ended at this timestamp.
    pub(crate) fn is_past(&self, stamp_ns: u64) -> bool {
        self.until_ns.is_some_and(|until_ns| stamp_ns >= until_ns)
    }
}
