//! Passes frames to a display, instead of files or in addition to them.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use wb_model::capture::{CaptureOutput, FileFormat};
use wb_model::units::Span;

use crate::encode::Encoding;
use crate::open::standard_output;
use crate::pool::{DeliveredBuffer, RecordBuffer};
use crate::{CaptureControl, CaptureShared, Clock, OutputError, WriterOutcome};

/// Longest wait between checks of the flags.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Small buffers, so that frames are displayed soon and the end is quick.
const BUFFER_BYTES: u32 = 64 << 10;
/// Longest time that a frame waits in a buffer, ms.
const FLUSH_MS: u64 = 100;

/// A frame for a sink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SinkFrame<'a> {
    /// The number of its interface.
    pub interface: u32,
    /// Arrival time, ns since 1970.
    pub stamp_ns: u64,
    /// Length before truncation, without FCS.
    pub original_len: u32,
    /// Captured bytes, including the VLAN tag.
    pub bytes: &'a [u8],
}

/// Takes the frames of a capture in the order of a capture file.
pub trait FrameSink: Send {
    /// Takes a frame. It need not be displayed before the next [`flush`](Self::flush).
    fn frame(&mut self, frame: &SinkFrame<'_>);

    /// Outputs all frames taken so far, and waits for completion until `gives_up`. Not called again after it has
    /// returned an end.
    fn flush(&mut self, gives_up: &dyn Fn() -> bool) -> SinkFlush;
}

/// Results for the frames taken since the previous flush.
#[derive(Debug, Default)]
pub struct SinkFlush {
    /// Number of completely displayed frames, counted from the first.
    pub frames: u64,
    /// Reason why the others were not displayed.
    pub end: Option<SinkEnd>,
}

/// Reason why a sink takes no more frames.
#[derive(Debug)]
pub enum SinkEnd {
    /// The viewer has closed: no more frames are wanted, and none are lost.
    Unwanted,
    /// The output failed.
    Failed(io::Error),
    /// The wait was given up.
    GivenUp,
}

impl SinkEnd {
    fn error(self) -> Option<OutputError> {
        let path = standard_output();
        match self {
            Self::Unwanted => None,
            Self::Failed(cause) => Some(OutputError::Write { path, cause }),
            Self::GivenUp => Some(OutputError::GivenUp { path }),
        }
    }
}

/// Buffer settings if no file specifies them.
pub(crate) fn default_buffering() -> CaptureOutput {
    CaptureOutput {
        format: FileFormat::PcapNs,
        buffer_bytes: BUFFER_BYTES,
        flush: Span::from_millis(FLUSH_MS),
        ..CaptureOutput::default()
    }
}

/// Passes all frames of a buffer to the sink. Returns their number.
pub(crate) fn show_frames(
    sink: &mut dyn FrameSink,
    encoding: Encoding,
    buffer: &RecordBuffer,
) -> u64 {
    let mut rest = &buffer.memory[buffer.start..buffer.end];
    let mut frames = 0;
    while let Some((record, original_len, captured)) = encoding.first_frame(rest) {
        sink.frame(&SinkFrame {
            interface: buffer.interface,
            stamp_ns: record.stamp_ns,
            original_len,
            bytes: captured,
        });
        rest = &rest[record.len..];
        frames += 1;
    }
    frames
}

/// A sink in place of files: displayed frames count as written.
pub(crate) struct SinkDisplay {
    pub(crate) sink: Box<dyn FrameSink>,
    pub(crate) encoding: Encoding,
    pub(crate) shared: Arc<CaptureShared>,
}

impl SinkDisplay {
    pub(crate) fn run<C: Clock>(
        mut self,
        full: &Receiver<DeliveredBuffer>,
        control: &CaptureControl,
        clock: &C,
    ) -> WriterOutcome {
        let mut outcome = WriterOutcome::default();
        let mut ended = false;
        loop {
            let buffer = match full.recv_timeout(POLL_INTERVAL) {
                Ok(delivered) => delivered.buffer,
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => break,
            };
            let Some(buffer) = buffer else { continue };
            if !ended {
                ended = self.process_buffer(&buffer, &mut outcome, control, clock);
            } else if outcome.error.is_some() {
                outcome.not_written_frames += buffer.records;
            } else {
                outcome.unwanted_frames += buffer.records;
            }
            if let Some(pool) = &self.shared.pool {
                pool.return_buffer(buffer.memory);
            }
            let slot = &self.shared.writer;
            for (counter, value) in [
                (&slot.written_frames, outcome.written_frames),
                (&slot.not_written_frames, outcome.not_written_frames),
                (&slot.longest_write_ns, outcome.longest_write_ns),
            ] {
                counter.store(value, Ordering::Relaxed);
            }
        }
        let pool = self.shared.pool.as_ref();
        outcome.buffers_fewest = pool.map_or(0, |pool| pool.fewest_empty_buffers() as u64);
        outcome
    }

    /// Processes a buffer. Returns true if no more are taken.
    fn process_buffer<C: Clock>(
        &mut self,
        buffer: &RecordBuffer,
        outcome: &mut WriterOutcome,
        control: &CaptureControl,
        clock: &C,
    ) -> bool {
        let begin_ns = clock.monotonic_ns();
        let frames = show_frames(&mut *self.sink, self.encoding, buffer);
        let flushed = self.sink.flush(&|| control.is_hurried());
        let took_ns = clock.monotonic_ns().saturating_sub(begin_ns);
        outcome.writes += 1;
        outcome.write_ns += took_ns;
        outcome.longest_write_ns = outcome.longest_write_ns.max(took_ns);
        let out = flushed.frames.min(frames);
        outcome.written_frames += out;
        let Some(end) = flushed.end else {
            // A sink that reports no reason must have displayed all frames.
            outcome.not_written_frames += frames - out;
            return false;
        };
        match end.error() {
            None => {
                outcome.unwanted_frames += frames - out;
                control.stop();
            }
            Some(error) => {
                outcome.not_written_frames += frames - out;
                outcome.error = Some(error);
                control.fail_output();
            }
        }
        true
    }
}

impl std::fmt::Debug for SinkDisplay {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Showing").finish_non_exhaustive()
    }
}
