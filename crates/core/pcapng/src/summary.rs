//! Counts over the contents of a capture file.

use crate::blocks::Statistics;
use crate::error::Error;
use crate::parser::{Event, FileItem, Format, Record};
use crate::reader::CaptureReader;

/// Counts of a set of frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Frames.
    pub packets: u64,
    /// Captured bytes.
    pub captured_bytes: u64,
    /// Original bytes.
    pub original_bytes: u64,
    /// Frames that were captured only in part.
    pub cut_packets: u64,
    /// Earliest timestamp, in ns.
    pub first_ns: Option<u64>,
    /// Latest timestamp, in ns.
    pub last_ns: Option<u64>,
    /// Frames with an earlier timestamp than a frame before them.
    pub out_of_order: u64,
    /// Losses recorded with frames (epb_dropcount); `None` if none are recorded.
    pub noted_drops: Option<u64>,
}

impl Counts {
    fn add(&mut self, record: &Record<'_>) {
        let captured = record.captured.len() as u64;
        self.packets += 1;
        self.captured_bytes += captured;
        self.original_bytes += u64::from(record.original_len);
        self.cut_packets += u64::from(captured < u64::from(record.original_len));
        if record.stamped {
            let stamp_ns = record.stamp_ns;
            self.out_of_order += u64::from(self.last_ns.is_some_and(|last| stamp_ns < last));
            self.first_ns = Some(self.first_ns.map_or(stamp_ns, |first| first.min(stamp_ns)));
            self.last_ns = self.last_ns.max(Some(stamp_ns));
        }
        if let Some(drops) = record.options.drop_count {
            self.noted_drops = Some(self.noted_drops.unwrap_or(0).saturating_add(drops));
        }
    }

    /// Time between the earliest and the latest timestamp.
    pub fn duration_ns(&self) -> Option<u64> {
        Some(self.last_ns? - self.first_ns?)
    }
}

/// Summary of one interface of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InterfaceSummary {
    /// Counts of its frames.
    pub counts: Counts,
    /// Last statistics block, which supersedes earlier ones.
    pub statistics: Option<Statistics>,
}

/// Summary of a capture file; call [`add`](Self::add) with every item.
///
/// Memory grows only with the interfaces, and a reader limits their number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CaptureSummary {
    /// Format; `None` before the header.
    pub format: Option<Format>,
    /// Number of big-endian sections.
    pub big_endian_sections: u64,
    /// Number of sections; 1 for pcap.
    pub sections: u64,
    /// Length of all blocks, in bytes.
    pub file_bytes: u64,
    /// Counts of all frames, in file order.
    pub total: Counts,
    /// Summary of each interface, with the reader's indices.
    pub interfaces: Vec<InterfaceSummary>,
    /// Number of statistics blocks.
    pub statistics_blocks: u64,
    /// Number of blocks with neither frames nor descriptions nor statistics.
    pub other_blocks: u64,
}

impl CaptureSummary {
    /// Adds a block.
    pub fn add(&mut self, item: &FileItem<'_>) {
        self.file_bytes += item.bytes.len() as u64;
        if self.interfaces.len() < item.interfaces.len() {
            let known = item.interfaces.len();
            self.interfaces.resize(known, InterfaceSummary::default());
        }
        match &item.event {
            Event::Header(header) => {
                self.format = Some(header.format);
                self.sections += 1;
                self.big_endian_sections += u64::from(header.big_endian);
            }
            Event::Interface(_) => {}
            Event::Record(record) => {
                self.total.add(record);
                self.interfaces[record.interface as usize]
                    .counts
                    .add(record);
            }
            Event::Statistics(statistics) => {
                self.statistics_blocks += 1;
                let interface = &mut self.interfaces[statistics.interface as usize];
                interface.statistics = Some(*statistics);
            }
            Event::Custom(_) | Event::Other { .. } => self.other_blocks += 1,
        }
    }

    /// Summarises a file in memory up to its end or the first error. Also returns the error.
    pub fn from_bytes(file: &[u8]) -> (Self, Option<Error>) {
        let mut summary = Self::default();
        let mut reader = match CaptureReader::new(file) {
            Ok(reader) => reader,
            Err(error) => return (summary, Some(error)),
        };
        loop {
            match reader.next_item() {
                Ok(Some(item)) => summary.add(&item),
                Ok(None) => return (summary, None),
                Err(error) => return (summary, Some(error)),
            }
        }
    }

    /// Returns the sum of one counter over the last statistics of all interfaces, or `None` if no interface has it.
    pub fn sum(&self, number: impl Fn(&Statistics) -> Option<u64>) -> Option<u64> {
        let numbers = self.interfaces.iter().filter_map(|i| i.statistics.as_ref());
        let present = numbers.filter_map(number);
        present.reduce(u64::saturating_add)
    }
}
