//! Frame accounting of a capture.

use crate::{ReaderOutcome, WriterOutcome};

/// Frames that passed the filter, by their fate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameAccount {
    /// F: frames that passed the filter. If the driver does not count them, the sum of read and dropped frames. If
    /// readers apply the filter, frames that the kernel dropped earlier count as passed.
    pub filter_accept: u64,
    /// W: frames completely in the output; without an output, counted frames.
    pub captured: u64,
    /// K: frames dropped by the kernel or the device for lack of space.
    pub kernel_drop: u64,
    /// E: frames that were read but are not in the output, because it failed or was given up.
    pub not_written: u64,
    /// Q: frames dropped by readers for lack of buffers.
    pub queue_drop: u64,
    /// C: frames read after the limit of frames or files was reached, or after the viewer had closed.
    pub over_limit: u64,
    /// U: frames that passed the filter and were never read. 0 unless the end was hurried.
    pub not_read: u64,
}

impl FrameAccount {
    /// Totals of a whole capture.
    #[must_use]
    pub fn of_capture(readers: &[ReaderOutcome], writer: &WriterOutcome) -> Self {
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

    /// Returns true if the account adds up: F = W + K + E + Q + C + U.
    #[must_use]
    pub fn adds_up(&self) -> bool {
        self.filter_accept == self.read_frames() + self.kernel_drop + self.not_read
    }

    /// R: frames that were read: W + E + Q + C.
    #[must_use]
    pub fn read_frames(&self) -> u64 {
        self.captured + self.not_written + self.queue_drop + self.over_limit
    }

    /// Frames missing from the output: K + E + Q + U.
    #[must_use]
    pub fn lost_frames(&self) -> u64 {
        self.kernel_drop + self.not_written + self.queue_drop + self.not_read
    }
}
