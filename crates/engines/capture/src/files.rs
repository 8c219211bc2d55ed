//! The loop of the writer: buffers of records into files.

mod open_and_close;
mod pieces;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::Duration;

use wb_measure::Histogram;
use wb_model::capture::{CaptureOutput, Compression};

use crate::encode::Encoding;
use crate::names::FileNames;
use crate::open_file::{OpenFile, confirm_written};
use crate::output::{FileId, OutputOpening};
use crate::output_pipe::OutputPipe;
use crate::pool::{DeliveredBuffer, RecordBuffer};
use crate::retention::FileRetention;
use crate::rotation::Rotation;
use crate::sink::{FrameSink, show_frames};
use crate::{CaptureControl, CaptureShared, CaptureSpec, Clock, OutputError, WriterOutcome};

/// Longest wait between checks of the flags.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Interval between statistics blocks.
const STATISTICS_NS: u64 = 10_000_000_000;
/// Interval at which held-back data is written, unless there is time to write it at once.
const SETTLE_NS: u64 = 500_000_000;

/// Index of an open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FileSlot {
    Current,
    Late(usize),
}

struct Echo(Box<dyn FrameSink>);

impl std::fmt::Debug for Echo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Echo")
    }
}

/// The files of a capture: one is open, or several while late frames may arrive.
#[derive(Debug)]
pub(crate) struct CaptureFiles {
    shared: Arc<CaptureShared>,
    encoding: Encoding,
    header: Vec<u8>,
    rotation: Rotation,
    /// `None` for standard output, which is a single file.
    names: Option<FileNames>,
    opening: OutputOpening,
    /// `None`: the system decides when data reaches the disk.
    sync_ns: Option<u64>,
    finished: Option<Sender<PathBuf>>,
    pipe: OutputPipe,
    /// Displays the frames in addition.
    echo: Option<Echo>,
    /// `None` after an error.
    current: Option<OpenFile>,
    /// Files with an expired time span, the oldest first.
    late: VecDeque<OpenFile>,
    /// For each reader: no frame with an earlier timestamp will arrive.
    clear_ns: Vec<u64>,
    start_wall_ns: u64,
    statistics_ns: u64,
    synced_ns: u64,
    settled_ns: u64,
    scarce_since_ns: Option<u64>,
    room_looked_octets: u64,
    /// Time of the last rate check, and the bytes at that time.
    rate_looked: (u64, u64),
    rotations: u64,
    scratch: Vec<u8>,
    write_times: Histogram,
    outcome: WriterOutcome,
}

impl CaptureFiles {
    pub(crate) fn open(
        spec: &CaptureSpec,
        output: &CaptureOutput,
        encoding: Encoding,
        echo: Option<Box<dyn FrameSink>>,
        shared: &Arc<CaptureShared>,
        readers: usize,
        now_wall_ns: u64,
    ) -> Result<Self, OutputError> {
        let compresses = output.compress != Compression::None;
        let names = (output.path != "-").then(|| FileNames::new(output, spec.zone.clone()));
        let ring = names.as_ref().is_some_and(|names| !names.names_recur());
        let ring = if ring { output.files as usize } else { 0 };
        let mut files = Self {
            shared: shared.clone(),
            encoding,
            header: encoding.file_header(spec),
            rotation: Rotation::new(output, readers, now_wall_ns),
            names,
            opening: OutputOpening {
                part: output.part,
                direct: output.direct,
                // The length of compressed files is unknown in advance.
                expected: if compresses { 0 } else { output.rotate_bytes },
                compress: output.compress,
                links: spec.links.clone(),
            },
            sync_ns: output.sync.map(|span| span.as_nanos()),
            finished: spec.finished.clone(),
            pipe: OutputPipe {
                compresses,
                retention: FileRetention::new(output, ring),
            },
            echo: echo.map(Echo),
            current: None,
            late: VecDeque::new(),
            clear_ns: vec![0; readers],
            start_wall_ns: now_wall_ns,
            statistics_ns: 0,
            synced_ns: 0,
            settled_ns: 0,
            scarce_since_ns: None,
            room_looked_octets: 0,
            rate_looked: (0, 0),
            rotations: 0,
            scratch: Vec::new(),
            write_times: Histogram::new(),
            outcome: WriterOutcome {
                interface_frames: vec![0; spec.interfaces.len()],
                ..WriterOutcome::default()
            },
        };
        let fill = files.rotation.empty_fill(now_wall_ns);
        let path = files.next_path(&fill);
        let first = files.open_next(path, fill, &|| false)?;
        files.current = Some(first);
        files.publish();
        Ok(files)
    }

    /// Identity of the current file.
    pub(crate) fn id(&self) -> Option<FileId> {
        self.current.as_ref().and_then(|file| file.output.id())
    }

    pub(crate) fn run<C: Clock>(
        mut self,
        full: &Receiver<DeliveredBuffer>,
        control: &CaptureControl,
        clock: &C,
    ) -> WriterOutcome {
        self.statistics_ns = clock.monotonic_ns();
        (self.synced_ns, self.settled_ns) = (self.statistics_ns, self.statistics_ns);
        self.rate_looked.0 = self.statistics_ns;
        self.rotations = control.rotation_count();
        let shared = self.shared.clone();
        loop {
            match full.recv_timeout(POLL_INTERVAL) {
                Ok(delivered) => {
                    if let (Some(mut buffer), Some(pool)) = (delivered.buffer, &shared.pool) {
                        // First, because records may be moved when they are written.
                        self.echo_frames(&buffer, control);
                        self.write_buffer(&mut buffer, control, clock);
                        if let Some(file) = &self.current {
                            let delivered = buffer.before + buffer.len() as u64;
                            pool.record_file_len(file.output.len(), delivered);
                        }
                        pool.return_buffer(buffer.memory);
                    }
                    self.clear(delivered.reader, delivered.clear_ns, control, clock);
                }
                Err(RecvTimeoutError::Timeout) => self.write_held_back(control, clock),
                Err(RecvTimeoutError::Disconnected) => break,
            }
            self.handle_periodic_work(control, clock);
            self.publish();
        }
        self.close_all(control, clock);
        self.publish();
        self.outcome.buffers_fewest = shared
            .pool
            .as_ref()
            .map_or(0, |p| p.fewest_empty_buffers() as u64);
        self.outcome.write_p50_ns = self.write_times.percentile(50.0).unwrap_or(0);
        self.outcome.write_p99_ns = self.write_times.percentile(99.0).unwrap_or(0);
        self.outcome.files_removed = self.pipe.retention.removed;
        self.outcome.room_short = self.pipe.retention.short;
        self.outcome
    }

    /// Displays the frames of a buffer.
    fn echo_frames(&mut self, buffer: &RecordBuffer, control: &CaptureControl) {
        let Some(Echo(sink)) = &mut self.echo else {
            return;
        };
        show_frames(&mut **sink, self.encoding, buffer);
        if sink.flush(&|| control.is_hurried()).end.is_some() {
            self.echo = None;
        }
    }

    /// Handles periodic work, with or without new frames.
    fn handle_periodic_work<C: Clock>(&mut self, control: &CaptureControl, clock: &C) {
        let asked = control.rotation_count();
        if asked != self.rotations {
            self.rotations = asked;
            let begun = self
                .current
                .as_ref()
                .is_some_and(|file| file.fill.frames > 0);
            if self.names.is_some() && begun {
                self.rotate(FileSlot::Current, clock.wall_ns(), control, clock);
            }
        }
        let now_ns = clock.monotonic_ns();
        if now_ns.saturating_sub(self.statistics_ns) >= STATISTICS_NS {
            self.statistics_ns = now_ns;
            self.write_statistics(control, clock);
        }
        if now_ns.saturating_sub(self.settled_ns) >= SETTLE_NS {
            self.settled_ns = now_ns;
            self.write_held_back(control, clock);
        }
        // The last file may expire without a frame that shows it.
        let wall_ns = clock.wall_ns();
        let is_over = |file: &OpenFile| {
            self.rotation
                .is_over(self.outcome.files, &file.fill, wall_ns)
        };
        if self.current.as_ref().is_some_and(is_over) {
            control.reach_limit();
        }
        let sync_ns = self.sync_ns.filter(|period_ns| *period_ns > 0);
        if sync_ns.is_some_and(|period_ns| now_ns.saturating_sub(self.synced_ns) >= period_ns) {
            self.synced_ns = now_ns;
            self.write_held_back(control, clock);
            let synced = self
                .current
                .as_ref()
                .map_or(Ok(()), |file| file.output.sync());
            if let Err(error) = synced {
                self.fail_output(error, FileSlot::Current, control, clock);
            }
        }
    }

    /// Writes the held-back data of all files.
    fn write_held_back<C: Clock>(&mut self, control: &CaptureControl, clock: &C) {
        if let Some(mut file) = self.current.take() {
            let settled = self.settle_file(&mut file);
            self.current = Some(file);
            if let Err(error) = settled {
                return self.fail_output(error, FileSlot::Current, control, clock);
            }
        }
        for index in 0..self.late.len() {
            let Some(file) = self.late.get_mut(index) else {
                return;
            };
            let settled = self.pipe.write_held_back(&mut file.output);
            confirm_written(file, &mut self.outcome);
            if let Err(error) = settled {
                return self.fail_output(error, FileSlot::Late(index), control, clock);
            }
        }
    }

    fn settle_file(&mut self, file: &mut OpenFile) -> Result<(), OutputError> {
        let settled = self.pipe.write_held_back(&mut file.output);
        confirm_written(file, &mut self.outcome);
        settled
    }

    fn publish(&self) {
        let (slot, outcome) = (&self.shared.writer, &self.outcome);
        for (counter, value) in [
            (&slot.written_frames, outcome.written_frames),
            (&slot.not_written_frames, outcome.not_written_frames),
            (&slot.file_octets, outcome.file_octets),
            (&slot.files, outcome.files),
            (&slot.files_removed, self.pipe.retention.removed),
            (&slot.longest_write_ns, outcome.longest_write_ns),
        ] {
            counter.store(value, Ordering::Relaxed);
        }
    }
}
