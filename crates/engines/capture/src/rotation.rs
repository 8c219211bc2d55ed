//! When a file is full.

use wb_model::capture::CaptureOutput;

use crate::encode::Placed;

/// When the next file begins.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rotation {
    bytes: Option<u64>,
    frames: Option<u64>,
    time_ns: Option<u64>,
    /// The times of files follow each other without a gap from this stamp on: so it is where frames of
    /// several readers come out of order. Else the time of a file begins with its first frame, as with
    /// tcpdump.
    grid_from_ns: Option<Option<u64>>,
}

impl Rotation {
    pub(crate) fn new(output: &CaptureOutput, readers: usize) -> Self {
        let time_ns = output.rotate_time.map(|span| span.as_nanos());
        Self {
            bytes: (output.rotate_bytes > 0).then_some(output.rotate_bytes),
            frames: (output.rotate_frames > 0).then_some(output.rotate_frames),
            time_ns,
            grid_from_ns: (time_ns.is_some() && readers > 1).then_some(None),
        }
    }

    pub(crate) fn is_off(&self) -> bool {
        self.bytes.is_none() && self.frames.is_none() && self.time_ns.is_none()
    }

    /// Whether a frame may come for a file whose time is over.
    pub(crate) fn has_late_frames(&self) -> bool {
        self.grid_from_ns.is_some()
    }

    /// Puts a record into a file.
    pub(crate) fn add(&mut self, record: Placed, fill: &mut Fill) {
        fill.bytes += record.len as u64;
        fill.frames += 1;
        if fill.until_ns.is_none() {
            fill.until_ns = self.until(record.stamp_ns);
        }
    }

    /// Whether this record belongs to the next file. As with tcpdump, a file is full when it has more than
    /// its bytes, not when one record more would be too much.
    pub(crate) fn is_due(&self, fill: &Fill, record: Placed) -> bool {
        fill.frames > 0
            && (self.bytes.is_some_and(|most| fill.bytes > most)
                || self.frames.is_some_and(|most| fill.frames >= most)
                || fill.is_past(record.stamp_ns))
    }

    /// The end of the time of a file whose first frame has this stamp.
    fn until(&mut self, stamp_ns: u64) -> Option<u64> {
        let span_ns = self.time_ns?;
        let begin_ns = match &mut self.grid_from_ns {
            None => stamp_ns,
            Some(from_ns) => {
                let from_ns = *from_ns.get_or_insert(stamp_ns);
                stamp_ns - stamp_ns.saturating_sub(from_ns) % span_ns
            }
        };
        Some(begin_ns.saturating_add(span_ns))
    }
}

/// What a file holds, before compression.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Fill {
    pub(crate) bytes: u64,
    pub(crate) frames: u64,
    /// The first stamp that belongs to a later file; None without a frame or without a change by time.
    pub(crate) until_ns: Option<u64>,
}

impl Fill {
    /// Whether its time is over at this stamp.
    pub(crate) fn is_past(&self, stamp_ns: u64) -> bool {
        self.until_ns.is_some_and(|until_ns| stamp_ns >= until_ns)
    }
}
