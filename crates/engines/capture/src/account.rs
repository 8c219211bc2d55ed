//! Where every frame went.

use crate::{ReaderOutcome, WriterOutcome};

/// Where the frames went that passed the filter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// F: frames that passed the filter. Where the driver does not count them, what was read and what was
    /// dropped. If readers filter for themselves, what the kernel dropped before counts as having passed.
    pub filter_accept: u64,
    /// W: frames that are whole in the output; without an output, those that were counted.
    pub captured: u64,
    /// K: frames dropped by the kernel or the device for want of room.
    pub kernel_drop: u64,
    /// E: frames that were read and are not in the output, because it failed or was given up.
    pub not_written: u64,
    /// Q: frames dropped by readers for want of buffers.
    pub queue_drop: u64,
    /// C: frames read after the limit was reached, be it of frames or of files, or after whoever looked at
    /// them had gone.
    pub over_limit: u64,
    /// U: frames that passed the filter and were never read. 0 unless the end was hurried.
    pub not_read: u64,
}

impl Account {
    /// The account of a whole capture.
    #[must_use]
    pub fn of(readers: &[ReaderOutcome], writer: &WriterOutcome) -> Self {
        let mut account = Self {
            captured: writer.written_frames,
            not_written: writer.not_written_frames,
            over_limit: writer.unwanted_frames,
            ..Self::default()
        };
        for reader in readers {
            let shown = reader.rx.received_frames;
            let kernel_drop = reader.rx.dropped_frames;
            let passed = reader.rx.passed_frames.unwrap_or(shown + kernel_drop);
            account.filter_accept += passed.saturating_sub(reader.rejected_frames);
            account.kernel_drop += kernel_drop;
            account.not_read += passed.saturating_sub(shown + kernel_drop);
            account.captured += reader.counted_frames;
            account.not_written += reader.not_written_frames;
            account.queue_drop += reader.queue_drop_frames;
            account.over_limit += reader.over_limit_frames;
        }
        account
    }

    /// Whether it adds up: F = W + K + E + Q + C + U.
    #[must_use]
    pub fn exact(&self) -> bool {
        self.filter_accept == self.read_frames() + self.kernel_drop + self.not_read
    }

    /// R: frames that were read, wherever they went: W + E + Q + C.
    #[must_use]
    pub fn read_frames(&self) -> u64 {
        self.captured + self.not_written + self.queue_drop + self.over_limit
    }

    /// Frames that should be in the output and are not: K + E + Q + U.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.kernel_drop + self.not_written + self.queue_drop + self.not_read
    }
}
