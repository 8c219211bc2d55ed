//! The writer: its inputs and its results.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;

use crate::files::CaptureFiles;
use crate::output::FileId;
use crate::pool::DeliveredBuffer;
use crate::sink::SinkDisplay;
use crate::{CaptureControl, CaptureShared, Clock, OutputError};

/// Writes the files of a capture.
#[derive(Debug)]
pub struct Writer {
    shared: Arc<CaptureShared>,
    work: WriterWork,
}

/// Processing of the frames.
#[derive(Debug)]
enum WriterWork {
    /// Frames are only counted, and never reach the writer.
    None,
    Write(Receiver<DeliveredBuffer>, Box<CaptureFiles>),
    Show(Receiver<DeliveredBuffer>, SinkDisplay),
}

impl Writer {
    /// Identity of its open file, for detecting another use of it.
    #[must_use]
    pub fn open_file_id(&self) -> Option<FileId> {
        match &self.work {
            WriterWork::Write(_, files) => files.id(),
            WriterWork::None | WriterWork::Show(..) => None,
        }
    }

    pub(crate) fn counting(shared: Arc<CaptureShared>) -> Self {
        Self {
            shared,
            work: WriterWork::None,
        }
    }

    pub(crate) fn writing(
        shared: Arc<CaptureShared>,
        full: Receiver<DeliveredBuffer>,
        files: CaptureFiles,
    ) -> Self {
        Self {
            shared,
            work: WriterWork::Write(full, Box::new(files)),
        }
    }

    pub(crate) fn showing(
        shared: Arc<CaptureShared>,
        full: Receiver<DeliveredBuffer>,
        showing: SinkDisplay,
    ) -> Self {
        Self {
            shared,
            work: WriterWork::Show(full, showing),
        }
    }
}

/// Results of the writer.
#[derive(Debug, Default)]
pub struct WriterOutcome {
    /// W: frames completely in the output, over all files including overwritten ones; or displayed by a sink.
    pub written_frames: u64,
    /// Written frames of each interface.
    pub interface_frames: Vec<u64>,
    /// E: frames that reached the writer and are not in the output.
    pub not_written_frames: u64,
    /// The part of C that reached a sink after its viewer had closed, or after the time of the last file.
    pub unwanted_frames: u64,
    /// Bytes of all files together.
    pub file_octets: u64,
    /// Files begun.
    pub files: u64,
    /// The last file.
    pub path: Option<PathBuf>,
    /// Buffers written, or parts of them if files change.
    pub writes: u64,
    /// Longest time of a write.
    pub longest_write_ns: u64,
    /// Total time of all writes.
    pub write_ns: u64,
    /// Median time of a write.
    pub write_p50_ns: u64,
    /// 99th percentile of the time of a write.
    pub write_p99_ns: u64,
    /// Writes that were not compressed, for lack of time.
    pub stored_writes: u64,
    /// Minimum number of empty buffers.
    pub buffers_fewest: u64,
    /// Finished files that were removed for lack of space.
    pub files_removed: u64,
    /// There was less free space than configured, and no file left to remove.
    pub room_short: bool,
    /// Files written past the page cache.
    pub direct_files: u64,
    /// Error that ended it early.
    pub error: Option<OutputError>,
}

/// Signals the end to the readers, even if the writer panics or never ran.
impl Drop for Writer {
    fn drop(&mut self) {
        // Release: a thread that sees the end also sees the last counters.
        self.shared.writer.ended.store(true, Ordering::Release);
    }
}

/// Writes the buffers of the readers until all of them have ended. After an error it takes the remaining buffers and
/// counts them as not written.
pub fn run_writer<C: Clock>(
    mut writer: Writer,
    control: &CaptureControl,
    clock: &C,
) -> WriterOutcome {
    match std::mem::replace(&mut writer.work, WriterWork::None) {
        WriterWork::None => WriterOutcome::default(),
        WriterWork::Write(full, files) => files.run(&full, control, clock),
        WriterWork::Show(full, showing) => showing.run(&full, control, clock),
    }
}
