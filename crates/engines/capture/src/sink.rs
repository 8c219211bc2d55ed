//! Frames handed on one by one, to be shown: instead of files, or beside them.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use wb_model::capture::{CaptureOutput, FileFormat};
use wb_model::units::Span;

use crate::encode::Encoding;
use crate::open::standard_output;
use crate::pool::{Buffer, Delivered};
use crate::{CaptureControl, CaptureShared, Clock, OutputError, WriterOutcome};

/// The longest wait without a look at the flags.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Small buffers: what is shown should be fresh, and soon be over at the end.
const BUFFER_BYTES: u32 = 64 << 10;
/// The longest that a frame waits in a buffer, ms.
const FLUSH_MS: u64 = 100;

/// A frame on its way to a sink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SinkFrame<'a> {
    /// The number of its interface.
    pub interface: u32,
    /// When it came, ns since 1970.
    pub stamp_ns: u64,
    /// Its length before it was cut, without FCS.
    pub original_len: u32,
    /// What was kept of it, its VLAN tag in place.
    pub bytes: &'a [u8],
}

/// Takes the frames of a capture in the order in which they would stand in a file.
pub trait FrameSink: Send {
    /// Takes a frame. It need not be out before the next [`flush`](Self::flush).
    fn frame(&mut self, frame: &SinkFrame<'_>);

    /// Brings out what was taken, and waits for it until `gives_up`. After an end nothing more is
    /// brought to it.
    fn flush(&mut self, gives_up: &dyn Fn() -> bool) -> Flushed;
}

/// What came of the frames taken since the flush before.
#[derive(Debug, Default)]
pub struct Flushed {
    /// Those that are out, wholly; always the first.
    pub frames: u64,
    /// Why the others are not.
    pub end: Option<SinkEnd>,
}

/// Why a sink takes no more.
#[derive(Debug)]
pub enum SinkEnd {
    /// Whoever looked has gone: nothing is wanted any more, and nothing is lost.
    Unwanted,
    /// It cannot be brought out.
    Failed(io::Error),
    /// It was not waited for any longer.
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

/// How buffers are made where no file says it.
pub(crate) fn buffering() -> CaptureOutput {
    CaptureOutput {
        format: FileFormat::PcapNs,
        buffer_bytes: BUFFER_BYTES,
        flush: Span::from_millis(FLUSH_MS),
        ..CaptureOutput::default()
    }
}

/// What a buffer holds, frame by frame. How many there were.
pub(crate) fn show(sink: &mut dyn FrameSink, encoding: Encoding, buffer: &Buffer) -> u64 {
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

/// A sink in the place of files: what is out counts as written.
pub(crate) struct Showing {
    pub(crate) sink: Box<dyn FrameSink>,
    pub(crate) encoding: Encoding,
    pub(crate) shared: Arc<CaptureShared>,
}

impl Showing {
    pub(crate) fn run<C: Clock>(
        mut self,
        full: &Receiver<Delivered>,
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
                ended = self.take(&buffer, &mut outcome, control, clock);
            } else if outcome.error.is_some() {
                outcome.not_written_frames += buffer.records;
            } else {
                outcome.unwanted_frames += buffer.records;
            }
            if let Some(pool) = &self.shared.pool {
                pool.give(buffer.memory);
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
        outcome.buffers_fewest = pool.map_or(0, |pool| pool.fewest() as u64);
        outcome
    }

    /// Whether nothing more is taken after this buffer.
    fn take<C: Clock>(
        &mut self,
        buffer: &Buffer,
        outcome: &mut WriterOutcome,
        control: &CaptureControl,
        clock: &C,
    ) -> bool {
        let begin_ns = clock.monotonic_ns();
        let frames = show(&mut *self.sink, self.encoding, buffer);
        let flushed = self.sink.flush(&|| control.hurried());
        let took_ns = clock.monotonic_ns().saturating_sub(begin_ns);
        outcome.writes += 1;
        outcome.write_ns += took_ns;
        outcome.longest_write_ns = outcome.longest_write_ns.max(took_ns);
        let out = flushed.frames.min(frames);
        outcome.written_frames += out;
        let Some(end) = flushed.end else {
            // A sink that does not say why has to have brought out all.
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

impl std::fmt::Debug for Showing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Showing").finish_non_exhaustive()
    }
}
