//! What a capture file holds, counted while it is read.

use crate::blocks::Statistics;
use crate::error::Error;
use crate::parser::{Event, Format, Item, Record};
use crate::reader::Reader;

/// Counts of some frames of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Frames.
    pub packets: u64,
    /// Bytes that were captured of them.
    pub captured_bytes: u64,
    /// Bytes they had.
    pub original_bytes: u64,
    /// Frames of which only a part was captured.
    pub cut_packets: u64,
    /// The earliest stamp.
    pub first_ns: Option<u64>,
    /// The latest stamp.
    pub last_ns: Option<u64>,
    /// Frames whose stamp is earlier than one before them.
    pub out_of_order: u64,
    /// Losses noted with frames (epb_dropcount); none noted is none.
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

    /// From the earliest stamp to the latest.
    pub fn duration_ns(&self) -> Option<u64> {
        Some(self.last_ns? - self.first_ns?)
    }
}

/// What one interface of a file contributed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InterfaceSummary {
    /// Its frames.
    pub counts: Counts,
    /// Its last statistics block: the one that holds.
    pub statistics: Option<Statistics>,
}

/// What a capture file holds: give it every item.
///
/// Its memory grows with the interfaces only, of which a reader lets pass a bounded number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// The format, once the header was met.
    pub format: Option<Format>,
    /// Sections of which the numbers have their high byte first.
    pub big_endian_sections: u64,
    /// Sections; 1 for pcap.
    pub sections: u64,
    /// Bytes of all blocks.
    pub file_bytes: u64,
    /// All frames, in the order of the file.
    pub total: Counts,
    /// Of each interface, indexed as the reader's interfaces.
    pub interfaces: Vec<InterfaceSummary>,
    /// Statistics blocks.
    pub statistics_blocks: u64,
    /// Blocks that carry neither frames nor descriptions nor statistics.
    pub other_blocks: u64,
}

impl Summary {
    /// Counts a block.
    pub fn add(&mut self, item: &Item<'_>) {
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

    /// Of a file in memory: what it holds up to its end or the first error, and that error.
    pub fn of(file: &[u8]) -> (Self, Option<Error>) {
        let mut summary = Self::default();
        let mut reader = match Reader::new(file) {
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

    /// The sum of one number over the last statistics of all interfaces; none if no interface has it.
    pub fn sum(&self, number: impl Fn(&Statistics) -> Option<u64>) -> Option<u64> {
        let numbers = self.interfaces.iter().filter_map(|i| i.statistics.as_ref());
        let present = numbers.filter_map(number);
        present.reduce(u64::saturating_add)
    }
}
