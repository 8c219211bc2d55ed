//! Begins and ends files, with the final blocks of each.

use std::path::PathBuf;

use wb_pcapng::{Block, Statistics};

use super::{CaptureFiles, FileSlot};
use crate::encode::Encoding;
use crate::open_file::{OpenFile, confirm_written};
use crate::output::Output;
use crate::rotation::FileFill;
use crate::{CaptureControl, Clock, OutputError};

/// Maximum number of expired files that stay open. Beyond it the oldest is closed, and late frames for it go into the
/// next one.
const MOST_LATE: usize = 8;

impl CaptureFiles {
    /// Name of the next file, if files have names.
    pub(super) fn next_path(&mut self, fill: &FileFill) -> Option<PathBuf> {
        let names = self.names.as_mut()?;
        Some(names.next(fill.begin_ns, fill.number))
    }

    /// Opens the next file and writes its header.
    pub(super) fn open_next(
        &mut self,
        path: Option<PathBuf>,
        fill: FileFill,
        gives_up: &dyn Fn() -> bool,
    ) -> Result<OpenFile, OutputError> {
        let mut output = match path {
            None => Output::open_standard_output(&self.opening)?,
            Some(path) => {
                self.pipe.retention.forget_file(&path);
                loop {
                    match Output::create(&path, &self.opening) {
                        Err(error) if error.is_full() && self.pipe.retention.make_room() => {}
                        opened => break opened?,
                    }
                }
            }
        };
        self.shared.show_path(output.path().to_owned());
        self.outcome.path = Some(output.path().to_owned());
        self.outcome.files += 1;
        self.outcome.direct_files += u64::from(output.is_direct());
        self.pipe.retention.keep_free(|| output.free_bytes());
        if let Err(error) = self
            .pipe
            .write_all(&mut output, &self.header, false, gives_up)
        {
            output.truncate(0);
            self.outcome.file_octets += output.len();
            return Err(error);
        }
        self.outcome.file_octets += output.len();
        let mut file = OpenFile::new(output);
        file.fill = FileFill {
            bytes: self.header.len() as u64,
            ..fill
        };
        file.hold_records(file.output.len(), 0, 0);
        self.pipe.write_held_back(&mut file.output)?;
        confirm_written(&mut file, &mut self.outcome);
        Ok(file)
    }

    /// Begins the next file, then closes this one, or leaves it open for late frames.
    pub(super) fn rotate<C: Clock>(
        &mut self,
        slot: FileSlot,
        stamp_ns: u64,
        control: &CaptureControl,
        clock: &C,
    ) {
        let last = match slot {
            FileSlot::Current => self.current.take(),
            FileSlot::Late(index) => self.late.remove(index),
        };
        let fill = match &last {
            Some(last) => self.rotation.fill_after(&last.fill, stamp_ns),
            None => self.rotation.empty_fill(stamp_ns),
        };
        let path = self.next_path(&fill);
        // A file that is overwritten is closed first.
        let replaces = |file: &OpenFile| path.as_deref() == Some(file.output.finished_path());
        while let Some(at) = self.late.iter().position(replaces)
            && let Some(late) = self.late.remove(at)
        {
            self.close(late, control, clock);
        }
        let mut last = last;
        if let Some(file) = last.take_if(|file| replaces(file)) {
            self.close(file, control, clock);
        }
        if self.outcome.error.is_some() {
            return;
        }
        let next = match self.open_next(path, fill, &|| control.is_hurried()) {
            Ok(next) => next,
            Err(error) => return self.give_up(error, last, control, clock),
        };
        match slot {
            FileSlot::Current => self.current = Some(next),
            FileSlot::Late(index) => self.late.insert(index.min(self.late.len()), next),
        }
        let Some(last) = last else { return };
        let keeps = self.rotation.has_late_frames() && last.fill.is_past(stamp_ns);
        if !keeps {
            return self.close(last, control, clock);
        }
        self.late.push_back(last);
        if self.late.len() > MOST_LATE
            && let Some(oldest) = self.late.pop_front()
        {
            self.close(oldest, control, clock);
        }
    }

    /// Records that a reader will deliver no older frames.
    pub(super) fn clear<C: Clock>(
        &mut self,
        reader: usize,
        clear_ns: u64,
        control: &CaptureControl,
        clock: &C,
    ) {
        if let Some(slot) = self.clear_ns.get_mut(reader) {
            *slot = clear_ns.max(*slot);
        }
        let all_ns = self.clear_ns.iter().copied().min().unwrap_or(u64::MAX);
        let is_over = |file: &OpenFile| file.fill.is_past(all_ns);
        while self.late.front().is_some_and(is_over)
            && let Some(file) = self.late.pop_front()
        {
            self.close(file, control, clock);
        }
    }

    /// Writes the last statistics, ends the file and gives it its final name.
    fn close<C: Clock>(&mut self, mut file: OpenFile, control: &CaptureControl, clock: &C) {
        let ended = self
            .settle_file(&mut file)
            .and_then(|()| self.put_statistics(&mut file, control, clock))
            .and_then(|()| self.put_end(&mut file, control))
            .and_then(|()| self.settle_file(&mut file));
        if let Err(error) = ended {
            return self.give_up(error, Some(file), control, clock);
        }
        match file.output.finish(self.sync_ns.is_some()) {
            Ok(Some(finished)) if self.names.is_some() => {
                if self
                    .outcome
                    .path
                    .as_ref()
                    .is_some_and(|path| path != &finished.path)
                    && self.current.is_none()
                    && self.late.is_empty()
                {
                    // The very last file has another name now.
                    self.shared.show_path(finished.path.clone());
                    self.outcome.path = Some(finished.path.clone());
                }
                if let Some(listener) = &self.finished {
                    // A receiver that has gone away does not need the name.
                    let _ = listener.send(finished.path.clone());
                }
                let open = usize::from(self.current.is_some()) + self.late.len();
                self.pipe.retention.add_file(finished, open);
            }
            Ok(_) => {}
            Err(error) => self.fail_output(error, FileSlot::Current, control, clock),
        }
    }

    pub(super) fn close_all<C: Clock>(&mut self, control: &CaptureControl, clock: &C) {
        while let Some(file) = self.late.pop_front() {
            self.close(file, control, clock);
        }
        if let Some(file) = self.current.take() {
            self.close(file, control, clock);
        }
    }

    fn put_end(
        &mut self,
        file: &mut OpenFile,
        control: &CaptureControl,
    ) -> Result<(), OutputError> {
        let len_before = file.output.len();
        let put = self.pipe.put_end(&mut file.output, || control.is_hurried());
        self.outcome.file_octets += file.output.len() - len_before;
        put
    }

    /// Writes the interface counters into the current file.
    pub(super) fn write_statistics<C: Clock>(&mut self, control: &CaptureControl, clock: &C) {
        let Some(mut file) = self.current.take() else {
            return;
        };
        let result = self
            .settle_file(&mut file)
            .and_then(|()| self.put_statistics(&mut file, control, clock));
        self.current = Some(file);
        if let Err(error) = result {
            self.fail_output(error, FileSlot::Current, control, clock);
        }
    }

    /// Writes the interface counters, if the format supports them.
    fn put_statistics<C: Clock>(
        &mut self,
        file: &mut OpenFile,
        control: &CaptureControl,
        clock: &C,
    ) -> Result<(), OutputError> {
        if self.encoding != Encoding::Pcapng {
            return Ok(());
        }
        let mut blocks = std::mem::take(&mut self.scratch);
        blocks.clear();
        self.append_statistics(clock.wall_ns(), &mut blocks);
        let len_before = file.output.len();
        let gives_up = || control.is_hurried();
        let result = self
            .pipe
            .write_all(&mut file.output, &blocks, false, gives_up);
        file.fill.bytes += blocks.len() as u64;
        self.outcome.file_octets += file.output.len() - len_before;
        self.scratch = blocks;
        if result.is_ok() {
            file.hold_records(file.output.len(), 0, 0);
            confirm_written(file, &mut self.outcome);
        }
        result
    }

    fn append_statistics(&self, now_wall_ns: u64, out: &mut Vec<u8>) {
        for (interface, written) in (0..).zip(&self.outcome.interface_frames) {
            let (passed, dropped) = self.shared.passed_and_dropped(interface);
            let own = self.shared.interface_counters(interface);
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

    /// Ends the output: later frames are not written, and the capture ends.
    #[cold]
    pub(super) fn fail_output<C: Clock>(
        &mut self,
        error: OutputError,
        slot: FileSlot,
        control: &CaptureControl,
        clock: &C,
    ) {
        let failed = match slot {
            FileSlot::Current => self.current.take(),
            FileSlot::Late(index) => self.late.remove(index),
        };
        self.give_up(error, failed, control, clock);
    }

    /// Ends the output, with the file at which it failed.
    fn give_up<C: Clock>(
        &mut self,
        error: OutputError,
        failed: Option<OpenFile>,
        control: &CaptureControl,
        clock: &C,
    ) {
        if let Some(mut file) = failed {
            confirm_written(&mut file, &mut self.outcome);
            let held = file.held.drain(..).map(|mark| mark.records);
            self.outcome.not_written_frames += held.sum::<u64>();
            let octets = self.outcome.file_octets - file.output.len();
            // If final blocks still fit, the file records the losses. The compressor has seen more than remains, so
            // they are stored uncompressed.
            if file.output.truncate(file.whole) {
                let mut blocks = Vec::new();
                if self.encoding == Encoding::Pcapng {
                    self.append_statistics(clock.wall_ns(), &mut blocks);
                }
                let put = self
                    .pipe
                    .write_all(&mut file.output, &blocks, true, || true);
                let end = file.output.len();
                if put.is_err() {
                    file.output.truncate(file.whole);
                }
                let whole = if put.is_ok() { end } else { file.whole };
                if self.pipe.put_end(&mut file.output, || true).is_err() {
                    file.output.truncate(whole);
                }
            }
            self.outcome.file_octets = octets + file.output.len();
        }
        self.outcome.error.get_or_insert(error);
        control.fail_output();
        // The other files are complete.
        self.close_all(control, clock);
    }
}
