//! The writer: what it is given, and what it did.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;

use crate::files::Files;
use crate::output::FileId;
use crate::pool::Delivered;
use crate::sink::Showing;
use crate::{CaptureControl, CaptureShared, Clock, OutputError};

/// What writes the files of a capture.
#[derive(Debug)]
pub struct Writer {
    shared: Arc<CaptureShared>,
    work: Work,
}

/// What becomes of the frames.
#[derive(Debug)]
enum Work {
    /// They are only counted, and never come here.
    None,
    Write(Receiver<Delivered>, Box<Files>),
    Show(Receiver<Delivered>, Showing),
}

impl Writer {
    /// Which file it has opened, to see whether another has the same.
    #[must_use]
    pub fn file(&self) -> Option<FileId> {
        match &self.work {
            Work::Write(_, files) => files.id(),
            Work::None | Work::Show(..) => None,
        }
    }

    pub(crate) fn counting(shared: Arc<CaptureShared>) -> Self {
        Self {
            shared,
            work: Work::None,
        }
    }

    pub(crate) fn writing(
        shared: Arc<CaptureShared>,
        full: Receiver<Delivered>,
        files: Files,
    ) -> Self {
        Self {
            shared,
            work: Work::Write(full, Box::new(files)),
        }
    }

    pub(crate) fn showing(
        shared: Arc<CaptureShared>,
        full: Receiver<Delivered>,
        showing: Showing,
    ) -> Self {
        Self {
            shared,
            work: Work::Show(full, showing),
        }
    }
}

/// What the writer did.
#[derive(Debug, Default)]
pub struct WriterOutcome {
    /// W: frames that are whole in the output, over all files, those written over later too; or that a sink
    /// has brought out.
    pub written_frames: u64,
    /// The same for each interface.
    pub interface_frames: Vec<u64>,
    /// E: frames that came to the writer and are not in the output.
    pub not_written_frames: u64,
    /// The part of C that came to a sink after whoever looked had gone, or after the time of the last file.
    pub unwanted_frames: u64,
    /// Bytes of all files together.
    pub file_octets: u64,
    /// Files begun.
    pub files: u64,
    /// The last of them.
    pub path: Option<PathBuf>,
    /// Buffers, or parts of them where files change, that were written.
    pub writes: u64,
    /// The longest that one took.
    pub longest_write_ns: u64,
    /// What all took together.
    pub write_ns: u64,
    /// What half of them took at most.
    pub write_p50_ns: u64,
    /// What 99 of 100 took at most.
    pub write_p99_ns: u64,
    /// Those that were not compressed, for want of time.
    pub stored_writes: u64,
    /// The fewest buffers that were empty at once.
    pub buffers_fewest: u64,
    /// Finished files that were removed for want of room.
    pub files_removed: u64,
    /// There was less room than was to be kept, and no file left to remove.
    pub room_short: bool,
    /// Files that were written past the page cache.
    pub direct_files: u64,
    /// What ended it before its time.
    pub error: Option<OutputError>,
}

/// The readers learn that nobody takes their buffers any more, also when the writer panics or never ran.
impl Drop for Writer {
    fn drop(&mut self) {
        // Release: whoever sees the end finds the last counters.
        self.shared.writer.ended.store(true, Ordering::Release);
    }
}

/// Writes what the readers hand over, until all of them have ended. After an error it takes the rest and
/// counts it as not written.
pub fn run_writer<C: Clock>(
    mut writer: Writer,
    control: &CaptureControl,
    clock: &C,
) -> WriterOutcome {
    match std::mem::replace(&mut writer.work, Work::None) {
        Work::None => WriterOutcome::default(),
        Work::Write(full, files) => files.run(&full, control, clock),
        Work::Show(full, showing) => showing.run(&full, control, clock),
    }
}
