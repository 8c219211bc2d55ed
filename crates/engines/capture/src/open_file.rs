//! An open file: the records completely in it, and those held back.

use std::collections::VecDeque;

use crate::WriterOutcome;
use crate::encode::PlacedRecord;
use crate::output::Output;
use crate::rotation::FileFill;

/// An open file.
#[derive(Debug)]
pub(crate) struct OpenFile {
    pub(crate) output: Output,
    pub(crate) fill: FileFill,
    /// Accepted records that are not yet, or not completely, in the file, in order.
    pub(crate) held: VecDeque<HeldRecords>,
    /// End of the last complete record in the file.
    pub(crate) whole: u64,
}

/// Accepted records of one interface.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeldRecords {
    /// Offset of their end in the file.
    pub(crate) end: u64,
    pub(crate) interface: u32,
    pub(crate) records: u64,
}

impl OpenFile {
    pub(crate) fn new(output: Output) -> Self {
        Self {
            output,
            fill: FileFill::default(),
            held: VecDeque::new(),
            whole: 0,
        }
    }

    /// Adds records of an interface, accepted up to the offset `end`.
    pub(crate) fn hold_records(&mut self, end: u64, interface: u32, records: u64) {
        let in_file = self.output.in_file();
        match self.held.back_mut() {
            Some(last) if last.interface == interface && end <= in_file => {
                last.end = end;
                last.records += records;
            }
            _ => self.held.push_back(HeldRecords {
                end,
                interface,
                records,
            }),
        }
    }

    /// Adds those records that the output accepted, individually; the first begins at `at`. Returns their number.
    pub(crate) fn hold_each(
        &mut self,
        records: impl Iterator<Item = PlacedRecord>,
        mut at: u64,
        interface: u32,
    ) -> u64 {
        let mut taken = 0;
        for record in records {
            at += record.len as u64;
            if at > self.output.len() {
                break;
            }
            self.hold_records(at, interface, 1);
            taken += 1;
        }
        taken
    }
}

/// Counts the records that are now completely in the file.
pub(crate) fn confirm_written(file: &mut OpenFile, outcome: &mut WriterOutcome) {
    let in_file = file.output.in_file();
    while let Some(mark) = file
        .held
        .front()
        .filter(|mark| mark.end <= in_file)
        .copied()
    {
        file.held.pop_front();
        file.whole = mark.end;
        outcome.written_frames += mark.records;
        if let Some(count) = outcome.interface_frames.get_mut(mark.interface as usize) {
            *count += mark.records;
        }
    }
}
