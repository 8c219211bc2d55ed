//! The loop of the writer: buffers of records into files.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use wb_model::capture::CaptureOutput;
use wb_pcapng::{Block, Statistics};

use crate::compress::Compressor;
use crate::encode::{Encoding, Placed};
use crate::names::Names;
use crate::output::{Output, Short};
use crate::pool::Buffer;
use crate::{CaptureControl, CaptureShared, CaptureSpec, Clock, OutputError};

/// The longest wait without a look at the flags.
const LOOK: Duration = Duration::from_millis(100);
/// Statistics are written so often.
const STATISTICS_NS: u64 = 10_000_000_000;
/// When fewer than a quarter of the buffers were empty for so long, they are no longer compressed.
const SCARCE_NS: u64 = 1_000_000_000;

/// What writes the files of a capture.
#[derive(Debug)]
pub struct Writer {
    shared: Arc<CaptureShared>,
    /// None if frames are only counted.
    work: Option<(Receiver<Buffer>, Files)>,
}

impl Writer {
    pub(crate) fn counting(shared: Arc<CaptureShared>) -> Self {
        Self { shared, work: None }
    }

    pub(crate) fn writing(
        shared: Arc<CaptureShared>,
        full: Receiver<Buffer>,
        files: Files,
    ) -> Self {
        Self {
            shared,
            work: Some((full, files)),
        }
    }
}

/// What the writer did.
#[derive(Debug, Default)]
pub struct WriterOutcome {
    /// W: frames that are whole in the output, over all files, those written over later too.
    pub written_frames: u64,
    /// The same for each interface.
    pub interface_frames: Vec<u64>,
    /// E: frames that came to the writer and are not in the output.
    pub not_written_frames: u64,
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
    /// Those that were not compressed, for want of time.
    pub stored_writes: u64,
    /// The fewest buffers that were empty at once.
    pub buffers_fewest: u64,
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
    match writer.work.take() {
        None => WriterOutcome::default(),
        Some((full, files)) => files.run(&full, control, clock),
    }
}

/// When the next file begins.
#[derive(Clone, Copy, Debug)]
struct Rotation {
    bytes: Option<u64>,
    frames: Option<u64>,
    time_ns: Option<u64>,
}

impl Rotation {
    fn new(output: &CaptureOutput) -> Self {
        Self {
            bytes: (output.rotate_bytes > 0).then_some(output.rotate_bytes),
            frames: (output.rotate_frames > 0).then_some(output.rotate_frames),
            time_ns: output.rotate_time.map(|span| span.as_nanos()),
        }
    }

    fn is_off(&self) -> bool {
        self.bytes.is_none() && self.frames.is_none() && self.time_ns.is_none()
    }

    /// Whether this record belongs to the next file. As with tcpdump, a file is full when it has more than
    /// its bytes, not when one record more would be too much.
    fn is_due(&self, fill: &Fill, record: Placed) -> bool {
        let Some(first_stamp_ns) = fill.first_stamp_ns else {
            return false;
        };
        let later_ns = record.stamp_ns.saturating_sub(first_stamp_ns);
        self.bytes.is_some_and(|most| fill.bytes > most)
            || self.frames.is_some_and(|most| fill.frames >= most)
            || self.time_ns.is_some_and(|most| later_ns >= most)
    }
}

/// What the current file holds, before compression.
#[derive(Clone, Copy, Debug, Default)]
struct Fill {
    bytes: u64,
    frames: u64,
    first_stamp_ns: Option<u64>,
}

impl Fill {
    fn add(&mut self, record: Placed) {
        self.bytes += record.len as u64;
        self.frames += 1;
        self.first_stamp_ns.get_or_insert(record.stamp_ns);
    }
}

/// The files of a capture, one of them open.
#[derive(Debug)]
pub(crate) struct Files {
    shared: Arc<CaptureShared>,
    encoding: Encoding,
    header: Vec<u8>,
    rotation: Rotation,
    /// None for standard output, of which there is one only.
    names: Option<Names>,
    /// Files that are kept, the oldest first, where a ring does not write over them by itself.
    kept: VecDeque<PathBuf>,
    keep: usize,
    sync: bool,
    compressor: Option<Compressor>,
    /// None after an error.
    output: Option<Output>,
    fill: Fill,
    start_wall_ns: u64,
    statistics_ns: u64,
    scarce_since_ns: Option<u64>,
    rotations: u64,
    scratch: Vec<u8>,
    outcome: WriterOutcome,
}

impl Files {
    pub(crate) fn open(
        spec: &CaptureSpec,
        output: &CaptureOutput,
        encoding: Encoding,
        shared: &Arc<CaptureShared>,
        now_wall_ns: u64,
    ) -> Result<Self, OutputError> {
        let compressor = Compressor::new(output.compress)
            .map_err(|error| OutputError::Input(format!("compression: {error}")))?;
        let names = (output.path != "-").then(|| Names::new(output, spec.utc_offset_s));
        let ring = names.as_ref().is_some_and(|names| !names.recur());
        let mut files = Self {
            shared: shared.clone(),
            encoding,
            header: encoding.file_header(spec),
            rotation: Rotation::new(output),
            names,
            kept: VecDeque::new(),
            keep: if ring { output.files as usize } else { 0 },
            sync: spec.sync,
            compressor,
            output: None,
            fill: Fill::default(),
            start_wall_ns: now_wall_ns,
            statistics_ns: 0,
            scarce_since_ns: None,
            rotations: 0,
            scratch: Vec::new(),
            outcome: WriterOutcome {
                interface_frames: vec![0; spec.interfaces.len()],
                ..WriterOutcome::default()
            },
        };
        let first = files.begin(now_wall_ns, &|| false)?;
        files.output = Some(first);
        files.show();
        Ok(files)
    }

    fn run<C: Clock>(
        mut self,
        full: &Receiver<Buffer>,
        control: &CaptureControl,
        clock: &C,
    ) -> WriterOutcome {
        self.statistics_ns = clock.monotonic_ns();
        self.rotations = control.rotations();
        let shared = self.shared.clone();
        loop {
            match full.recv_timeout(LOOK) {
                Ok(buffer) => {
                    self.write_buffer(&buffer, control, clock);
                    if let Some(pool) = &shared.pool {
                        pool.give(buffer.bytes);
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            self.tick(control, clock);
            self.show();
        }
        self.end(control, clock);
        self.show();
        self.outcome.buffers_fewest = shared.pool.as_ref().map_or(0, |p| p.fewest() as u64);
        self.outcome
    }

    /// Writes a buffer, over as many files as it belongs to.
    fn write_buffer<C: Clock>(&mut self, buffer: &Buffer, control: &CaptureControl, clock: &C) {
        let mut piece = Piece {
            interface: buffer.interface,
            ..Piece::default()
        };
        if self.rotation.is_off() {
            self.fill.bytes += buffer.bytes.len() as u64;
            self.fill.frames += buffer.records;
            piece.records = buffer.records;
            return self.write_piece(&buffer.bytes, piece, control, clock);
        }
        let (encoding, mut start, mut end) = (self.encoding, 0, 0);
        for record in encoding.records(&buffer.bytes) {
            if self.rotation.is_due(&self.fill, record) && self.output.is_some() {
                self.write_piece(&buffer.bytes[start..end], piece, control, clock);
                self.rotate(record.stamp_ns, control, clock);
                (start, piece.records) = (end, 0);
            }
            self.fill.add(record);
            piece.records += 1;
            end += record.len;
        }
        self.write_piece(&buffer.bytes[start..end], piece, control, clock);
    }

    /// Writes records that belong to the current file.
    fn write_piece<C: Clock>(
        &mut self,
        bytes: &[u8],
        piece: Piece,
        control: &CaptureControl,
        clock: &C,
    ) {
        if piece.records == 0 {
            return;
        }
        let begin_ns = clock.monotonic_ns();
        let stores = self.buffers_are_scarce(begin_ns);
        let Some(output) = &mut self.output else {
            self.outcome.not_written_frames += piece.records;
            return;
        };
        let len_before = output.len();
        let gives_up = || control.hurried();
        let result = match &mut self.compressor {
            None => output.put(bytes, gives_up),
            Some(compressor) if stores => {
                self.outcome.stored_writes += 1;
                output.put(compressor.stored(bytes), gives_up)
            }
            Some(compressor) => match compressor.frame(bytes) {
                Ok(frame) => output.put(frame, gives_up),
                Err(cause) => Err(Short {
                    written: 0,
                    error: OutputError::Write {
                        path: output.path().to_owned(),
                        cause,
                    },
                }),
            },
        };
        let took_ns = clock.monotonic_ns().saturating_sub(begin_ns);
        self.outcome.writes += 1;
        self.outcome.write_ns += took_ns;
        self.outcome.longest_write_ns = self.outcome.longest_write_ns.max(took_ns);
        match result {
            Ok(()) => {
                self.outcome.file_octets += output.len() - len_before;
                self.count(piece.interface, piece.records);
            }
            Err(short) => {
                // A frame of a compressor is worth nothing without its end.
                let whole = match self.compressor {
                    None => &bytes[..short.written],
                    Some(_) => &[],
                };
                let (records, len) = self
                    .encoding
                    .records(whole)
                    .fold((0, 0), |(n, len), record| (n + 1, len + record.len));
                output.cut(len_before + len as u64);
                self.outcome.file_octets += output.len() - len_before;
                self.count(piece.interface, records);
                self.outcome.not_written_frames += piece.records - records;
                self.fail(short.error, control, clock);
            }
        }
    }

    fn count(&mut self, interface: u32, records: u64) {
        self.outcome.written_frames += records;
        if let Some(count) = self.outcome.interface_frames.get_mut(interface as usize) {
            *count += records;
        }
    }

    /// Whether there is no time to compress.
    fn buffers_are_scarce(&mut self, now_ns: u64) -> bool {
        let (Some(pool), Some(_)) = (&self.shared.pool, &self.compressor) else {
            return false;
        };
        if pool.free() * 4 >= pool.total() {
            self.scarce_since_ns = None;
            return false;
        }
        let since_ns = *self.scarce_since_ns.get_or_insert(now_ns);
        now_ns.saturating_sub(since_ns) >= SCARCE_NS
    }

    /// Writes something that is no record: all of it, or nothing.
    fn put_whole(
        &mut self,
        output: &mut Output,
        bytes: &[u8],
        gives_up: &dyn Fn() -> bool,
    ) -> Result<(), OutputError> {
        let len_before = output.len();
        let result = match &mut self.compressor {
            None => output.put(bytes, gives_up),
            Some(compressor) => match compressor.frame(bytes) {
                Ok(frame) => output.put(frame, gives_up),
                Err(_) => output.put(compressor.stored(bytes), gives_up),
            },
        };
        let result = result.map_err(|short| {
            output.cut(len_before);
            short.error
        });
        self.outcome.file_octets += output.len() - len_before;
        result
    }

    /// Opens the next file and writes its header.
    fn begin(&mut self, stamp_ns: u64, gives_up: &dyn Fn() -> bool) -> Result<Output, OutputError> {
        let mut output = match &mut self.names {
            None => Output::standard()?,
            Some(names) => Output::create(&names.next(stamp_ns))?,
        };
        self.shared.show_path(output.path().to_owned());
        self.outcome.path = Some(output.path().to_owned());
        self.outcome.files += 1;
        let header = std::mem::take(&mut self.header);
        let result = self.put_whole(&mut output, &header, gives_up);
        self.fill = Fill {
            bytes: header.len() as u64,
            ..Fill::default()
        };
        self.header = header;
        result?;
        self.forget_oldest(output.path().to_owned());
        Ok(output)
    }

    /// Removes files of our own that a ring has no more room for.
    fn forget_oldest(&mut self, newest: PathBuf) {
        if self.keep == 0 {
            return;
        }
        self.kept.push_back(newest);
        while self.kept.len() > self.keep {
            if let Some(oldest) = self.kept.pop_front() {
                // Somebody may have taken it away.
                let _ = std::fs::remove_file(oldest);
            }
        }
    }

    /// Begins the next file, then closes this one. Where a ring of one file writes over itself, both are
    /// the same: so all is written before the next is opened.
    fn rotate<C: Clock>(&mut self, stamp_ns: u64, control: &CaptureControl, clock: &C) {
        self.write_statistics(control, clock);
        if self.output.is_none() {
            return;
        }
        match self.begin(stamp_ns, &|| control.hurried()) {
            Ok(next) => {
                if let Some(last) = self.output.replace(next)
                    && let Err(error) = self.close(&last)
                {
                    self.fail(error, control, clock);
                }
            }
            Err(error) => self.fail(error, control, clock),
        }
    }

    fn close(&self, output: &Output) -> Result<(), OutputError> {
        match self.sync {
            true => output.sync(),
            false => Ok(()),
        }
    }

    /// What is due whether frames come or not.
    fn tick<C: Clock>(&mut self, control: &CaptureControl, clock: &C) {
        let asked = control.rotations();
        if asked != self.rotations {
            self.rotations = asked;
            if self.names.is_some() && self.output.is_some() && self.fill.frames > 0 {
                self.rotate(clock.wall_ns(), control, clock);
            }
        }
        let now_ns = clock.monotonic_ns();
        if now_ns.saturating_sub(self.statistics_ns) >= STATISTICS_NS {
            self.statistics_ns = now_ns;
            self.write_statistics(control, clock);
        }
    }

    fn end<C: Clock>(&mut self, control: &CaptureControl, clock: &C) {
        self.write_statistics(control, clock);
        if let Some(output) = self.output.take()
            && let Err(error) = self.close(&output)
        {
            self.fail(error, control, clock);
        }
    }

    /// What the interfaces counted, for a format that can say it.
    fn write_statistics<C: Clock>(&mut self, control: &CaptureControl, clock: &C) {
        if self.encoding != Encoding::Pcapng {
            return;
        }
        let Some(mut output) = self.output.take() else {
            return;
        };
        let mut blocks = std::mem::take(&mut self.scratch);
        blocks.clear();
        self.append_statistics(clock.wall_ns(), &mut blocks);
        let result = self.put_whole(&mut output, &blocks, &|| control.hurried());
        self.fill.bytes += blocks.len() as u64;
        self.scratch = blocks;
        self.output = Some(output);
        if let Err(error) = result {
            self.fail(error, control, clock);
        }
    }

    fn append_statistics(&self, now_wall_ns: u64, out: &mut Vec<u8>) {
        for (interface, written) in (0..).zip(&self.outcome.interface_frames) {
            let (passed, dropped) = self.shared.passed_and_dropped(interface);
            let own = self.shared.interface(interface);
            Statistics {
                interface,
                stamp_ns: now_wall_ns,
                start_ns: Some(self.start_wall_ns),
                end_ns: Some(now_wall_ns),
                if_received: own.map(|(received, _)| received),
                if_dropped: own.map(|(_, dropped)| dropped),
                filter_accepted: Some(passed),
                os_dropped: Some(dropped),
                delivered: Some(*written),
            }
            .write(out);
        }
    }

    /// No more output: what comes from now on is not written, and the capture ends.
    #[cold]
    fn fail<C: Clock>(&mut self, error: OutputError, control: &CaptureControl, clock: &C) {
        // Where a last word still fits, the file says what was lost.
        if let (Some(mut output), Encoding::Pcapng) = (self.output.take(), self.encoding)
            && output.cut(output.len())
        {
            let mut blocks = Vec::new();
            self.append_statistics(clock.wall_ns(), &mut blocks);
            let _ = self.put_whole(&mut output, &blocks, &|| true);
        }
        self.outcome.error.get_or_insert(error);
        control.fail_output();
    }

    fn show(&self) {
        let (slot, outcome) = (&self.shared.writer, &self.outcome);
        for (counter, value) in [
            (&slot.written_frames, outcome.written_frames),
            (&slot.not_written_frames, outcome.not_written_frames),
            (&slot.file_octets, outcome.file_octets),
            (&slot.files, outcome.files),
            (&slot.longest_write_ns, outcome.longest_write_ns),
        ] {
            counter.store(value, Ordering::Relaxed);
        }
    }
}

/// Records of one buffer and one file.
#[derive(Clone, Copy, Debug, Default)]
struct Piece {
    interface: u32,
    records: u64,
}
