//! When a file is full.

use wb_model::capture::CaptureOutput;

use crate::encode::Placed;

/// When the next file begins.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rotation {
    bytes: Option<u64>,
    frames: Option<u64>,
    time_ns: Option<u64>,
    /// When the first file was opened: its time begins then.
    opened_ns: u64,
    /// The times of files follow each other without a gap from this stamp on: so it is where frames of
    /// several readers come out of order. Else the time of a file begins with its first frame, as with
    /// tcpdump.
    grid_from_ns: Option<Option<u64>>,
    /// True if frames may arrive for a file after the end of its time.
    has_late_frames: bool,
    /// Files to fill; then the capture is at its end.
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

    /// Whether a frame may come for a file whose time is over.
    pub(crate) fn has_late_frames(&self) -> bool {
        self.has_late_frames
    }

    /// An empty file whose time begins with this stamp, or where that belongs.
    pub(crate) fn fill(&mut self, stamp_ns: u64) -> Fill {
        let begin_ns = self.begin_ns(stamp_ns);
        Fill {
            begin_ns,
            until_ns: self.time_ns.map(|span_ns| begin_ns.saturating_add(span_ns)),
            ..Fill::default()
        }
    }

    /// Begins an empty file after `last`, with a first frame of this stamp. If `last` was full before the end of its
    /// time, that time continues.
    pub(crate) fn fill_after(&mut self, last: &Fill, stamp_ns: u64) -> Fill {
        if last.until_ns.is_none() || last.is_past(stamp_ns) {
            return self.fill(stamp_ns);
        }
        Fill {
            bytes: 0,
            frames: 0,
            number: last.number + 1,
            ..*last
        }
    }

    /// Puts a record into a file.
    pub(crate) fn add(&mut self, record: Placed, fill: &mut Fill) {
        // Frames out of a recording are older than the file they go into.
        if let (0, 0, Some(until_ns), Some(span_ns)) =
            (fill.frames, fill.number, fill.until_ns, self.time_ns)
            && record.stamp_ns < until_ns.saturating_sub(span_ns)
        {
            self.opened_ns = self.opened_ns.min(record.stamp_ns);
            *fill = self.fill(record.stamp_ns);
        }
        fill.bytes += record.len as u64;
        fill.frames += 1;
    }

    /// Returns true if no more than `files` files are allowed.
    pub(crate) fn are_all(&self, files: u64) -> bool {
        self.files.is_some_and(|most| files >= most)
    }

    /// Whether `files` are all there may be, and a frame of this stamp is for none of them.
    pub(crate) fn is_over(&self, files: u64, fill: &Fill, stamp_ns: u64) -> bool {
        self.are_all(files) && fill.is_past(stamp_ns)
    }

    /// Whether this record belongs to the next file. As with tcpdump, a file is full when it has more than
    /// its bytes, not when one record more would be too much.
    pub(crate) fn is_due(&self, fill: &Fill, record: Placed) -> bool {
        let full = self.bytes.is_some_and(|most| fill.bytes > most)
            || self.frames.is_some_and(|most| fill.frames >= most);
        (full && fill.frames > 0) || fill.is_past(record.stamp_ns)
    }

    /// When the time of a file begins whose first frame has this stamp.
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

/// What a file holds, before compression.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Fill {
    pub(crate) bytes: u64,
    pub(crate) frames: u64,
    /// When its time begins.
    pub(crate) begin_ns: u64,
    /// Files of the same time before it.
    pub(crate) number: u64,
    /// The first stamp that belongs to a later file; None without a change by time.
    pub(crate) until_ns: Option<u64>,
}

impl Fill {
    /// Whether its time is over at this stamp.
    pub(crate) fn is_past(&self, stamp_ns: u64) -> bool {
        self.until_ns.is_some_and(|until_ns| stamp_ns >= until_ns)
    }
}
