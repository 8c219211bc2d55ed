//! Writes buffers into files, each frame into the file it belongs to.

use std::ops::Range;

use wb_model::capture::DirectWrites;

use super::{CaptureFiles, FileSlot};
use crate::open_file::{OpenFile, confirm_written};
use crate::pool::RecordBuffer;
use crate::{CaptureControl, Clock};

/// If fewer than a quarter of the buffers were empty for this time, they are no longer compressed.
const SCARCE_NS: u64 = 1_000_000_000;
/// Bytes between checks of the free space, in addition to one at the start of a file.
const ROOM_LOOK: u64 = 16 << 20;
/// Bytes between checks of the rate, and the rate in bytes per second above which writes bypass the page cache.
const RATE_LOOK: u64 = 16 << 20;
const FAST: u64 = 100_000_000;
/// Below this number of bytes there is time to write held-back data at once.
const FEW: usize = 256 << 10;

/// Records of one buffer and one file.
#[derive(Debug)]
struct BufferPiece {
    /// Position in the buffer.
    place: Range<usize>,
    records: u64,
    file: FileSlot,
}

impl CaptureFiles {
    fn open_file(&mut self, slot: FileSlot) -> Option<&mut OpenFile> {
        match slot {
            FileSlot::Current => self.current.as_mut(),
            FileSlot::Late(index) => self.late.get_mut(index),
        }
    }

    /// The open file to which a frame with this timestamp belongs, if it is not the next one.
    fn file_of(&self, stamp_ns: u64) -> FileSlot {
        let of_its_time = |file: &OpenFile| !file.fill.is_past(stamp_ns);
        let late = self.late.iter().position(of_its_time);
        late.map_or(FileSlot::Current, FileSlot::Late)
    }

    /// Writes a buffer into all files to which its frames belong.
    pub(super) fn write_buffer<C: Clock>(
        &mut self,
        buffer: &mut RecordBuffer,
        control: &CaptureControl,
        clock: &C,
    ) {
        let mut piece = BufferPiece {
            place: buffer.start..buffer.start,
            records: 0,
            file: FileSlot::Current,
        };
        if self.rotation.is_off() {
            if let Some(file) = &mut self.current {
                file.fill.bytes += buffer.len() as u64;
                file.fill.frames += buffer.records;
            }
            piece.place.end = buffer.end;
            piece.records = buffer.records;
            return self.write_piece(buffer, piece, control, clock);
        }
        while let Some(record) = self
            .encoding
            .first_record(&buffer.memory[piece.place.end..buffer.end])
        {
            let of = self.file_of(record.stamp_ns);
            let rotation = self.rotation;
            let is_full = |file: &mut OpenFile| rotation.is_due(&file.fill, record);
            let due = self.open_file(of).is_some_and(is_full);
            if due
                && of == FileSlot::Current
                && self.current.is_some()
                && self.rotation.are_all(self.outcome.files)
            {
                let behind = piece.place.end + record.len;
                let next = BufferPiece {
                    place: behind..behind,
                    records: 0,
                    file: of,
                };
                let piece = std::mem::replace(&mut piece, next);
                self.write_piece(buffer, piece, control, clock);
                self.outcome.unwanted_frames += 1;
                control.reach_limit();
                continue;
            }
            if due || of != piece.file {
                let next = BufferPiece {
                    place: piece.place.end..piece.place.end,
                    records: 0,
                    file: of,
                };
                let piece = std::mem::replace(&mut piece, next);
                self.write_piece(buffer, piece, control, clock);
            }
            if due {
                self.rotate(of, record.stamp_ns, control, clock);
            }
            let file = match of {
                FileSlot::Current => self.current.as_mut(),
                FileSlot::Late(index) => self.late.get_mut(index),
            };
            if let Some(file) = file {
                self.rotation.add_record(record, &mut file.fill);
            }
            piece.records += 1;
            piece.place.end += record.len;
        }
        self.write_piece(buffer, piece, control, clock);
    }

    /// Writes records that belong to one file.
    fn write_piece<C: Clock>(
        &mut self,
        buffer: &mut RecordBuffer,
        mut piece: BufferPiece,
        control: &CaptureControl,
        clock: &C,
    ) {
        if piece.records == 0 {
            return;
        }
        let begin_ns = clock.monotonic_ns();
        let stores = self.buffers_are_scarce(begin_ns);
        let file = match piece.file {
            FileSlot::Current => self.current.as_mut(),
            FileSlot::Late(index) => self.late.get_mut(index),
        };
        let Some(file) = file else {
            self.outcome.not_written_frames += piece.records;
            return;
        };
        let len_before = file.output.len();
        let near = match piece.place == (buffer.start..buffer.end) {
            true => buffer.near_its_end(),
            false => (piece.place.start, 0),
        };
        let near = (near.0 - piece.place.start, near.1);
        let mut result = self.pipe.put_records(
            &mut file.output,
            &mut buffer.memory,
            &mut piece.place,
            stores,
            || control.is_hurried(),
        );
        if result.is_ok() && piece.place.len() < FEW {
            result = self.pipe.write_held_back(&mut file.output);
        }
        let took_ns = clock.monotonic_ns().saturating_sub(begin_ns);
        self.outcome.file_octets += file.output.len() - len_before;
        let taken = file.output.len();
        // Position from which records are tracked individually; earlier ones are in the file, or are tracked as one.
        let (at, mut records) = match &result {
            Ok(()) if self.pipe.compresses || file.output.in_file() == taken => {
                (taken, piece.records)
            }
            Ok(()) => (len_before + near.0 as u64, near.1),
            Err(_) => (len_before, 0),
        };
        file.hold_records(at, buffer.interface, records);
        // A compressed block is unusable without its end.
        if at < taken && !self.pipe.compresses {
            let skipped = (at - len_before) as usize;
            let rest = &buffer.memory[piece.place.start + skipped..piece.place.end];
            records += file.hold_each(self.encoding.records(rest), at, buffer.interface);
        }
        self.outcome.not_written_frames += piece.records - records;
        confirm_written(file, &mut self.outcome);
        self.write_times.record(took_ns);
        self.outcome.writes += 1;
        self.outcome.stored_writes += u64::from(stores);
        self.outcome.write_ns += took_ns;
        self.outcome.longest_write_ns = self.outcome.longest_write_ns.max(took_ns);
        match result {
            Ok(()) => {
                if self.outcome.file_octets - self.room_looked_octets >= ROOM_LOOK {
                    self.ensure_free_space();
                }
                if self.opening.direct == DirectWrites::Auto {
                    self.check_rate(begin_ns + took_ns);
                }
            }
            Err(error) => self.fail_output(error, piece.file, control, clock),
        }
    }

    /// Returns true if there is no time to compress.
    fn buffers_are_scarce(&mut self, now_ns: u64) -> bool {
        let Some(pool) = self.shared.pool.as_ref().filter(|_| self.pipe.compresses) else {
            return false;
        };
        if pool.empty_buffers() * 4 >= pool.total() {
            self.scarce_since_ns = None;
            return false;
        }
        let since_ns = *self.scarce_since_ns.get_or_insert(now_ns);
        now_ns.saturating_sub(since_ns) >= SCARCE_NS
    }

    /// Bypasses the page cache at high rates.
    fn check_rate(&mut self, now_ns: u64) {
        let (then_ns, octets) = self.rate_looked;
        let came = self.outcome.file_octets - octets;
        if came < RATE_LOOK {
            return;
        }
        self.rate_looked = (now_ns, self.outcome.file_octets);
        let took_ns = now_ns.saturating_sub(then_ns);
        if u128::from(came) * 1_000_000_000 < u128::from(FAST) * u128::from(took_ns) {
            return;
        }
        let Some(file) = &mut self.current else {
            return;
        };
        file.output.write_directly(self.opening.expected, true);
        let went = file.output.is_direct();
        self.outcome.direct_files += u64::from(went);
        // The next files are in the same place.
        self.opening.direct = match went {
            true => DirectWrites::Always,
            false => DirectWrites::Never,
        };
    }

    /// Keeps the configured amount of space free.
    fn ensure_free_space(&mut self) {
        self.room_looked_octets = self.outcome.file_octets;
        if let Some(file) = &self.current {
            self.pipe.retention.keep_free(|| file.output.free_bytes());
        }
    }
}
