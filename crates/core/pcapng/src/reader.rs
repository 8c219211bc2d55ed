//! One reader for both formats, and what it yields.

use crate::error::{Error, Problem};
use crate::pcap::PcapReader;
use crate::pcapng::{PcapngReader, SECTION_HEADER, TimeUnit};

/// One captured frame, its bytes borrowed from the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Wall clock, ns since 1970; 0 where the file has no time (simple packet blocks).
    pub stamp_ns: u64,
    /// What was captured of the frame.
    pub captured: &'a [u8],
    /// The length it had. Damaged or odd writers put less than was captured.
    pub original_len: u32,
    /// Index into [`Reader::interfaces`].
    pub interface: u32,
    /// What the bytes begin with: 1 is Ethernet.
    pub link_type: u16,
}

/// Where frames were captured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// What its frames begin with.
    pub link_type: u16,
    /// At most this much of a frame was captured; 0 is no limit.
    pub snap_len: u32,
    /// Its name, if the file has it.
    pub name: Option<String>,
    /// Bytes of FCS at the end of each frame, if the file says so; 0 otherwise.
    pub fcs_len: u8,
    /// What its stamps count.
    pub time_unit: TimeUnit,
    /// Seconds to add to its stamps.
    pub time_offset: i64,
}

/// The two formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// libpcap's: one header, then records.
    Pcap,
    /// Blocks and sections.
    Pcapng,
}

/// Reads a capture file that lies in memory, record by record.
///
/// An iterator of records; after an error, which names the first byte that could not be read, it ends.
/// All before that byte is whole. Blocks that carry no packets are skipped.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    inner: Inner<'a>,
    failed: bool,
}

#[derive(Clone, Debug)]
enum Inner<'a> {
    Pcap(PcapReader<'a>),
    Pcapng(PcapngReader<'a>),
}

impl<'a> Reader<'a> {
    /// Looks at the file's header.
    ///
    /// # Errors
    /// If the file is of neither format, or ends in its header.
    pub fn new(file: &'a [u8]) -> Result<Self, Error> {
        let at_start = |problem| Error { offset: 0, problem };
        let magic: [u8; 4] = *file
            .first_chunk()
            .ok_or(at_start(Problem::TruncatedHeader))?;
        let inner = if magic == SECTION_HEADER.to_le_bytes() {
            Inner::Pcapng(PcapngReader::new(file)?)
        } else {
            let pcap = PcapReader::new(file).map_err(at_start)?;
            Inner::Pcap(pcap.ok_or_else(|| at_start(Problem::UnknownFormat(magic.to_vec())))?)
        };
        Ok(Self {
            inner,
            failed: false,
        })
    }

    /// The format of the file.
    pub fn format(&self) -> Format {
        match self.inner {
            Inner::Pcap(_) => Format::Pcap,
            Inner::Pcapng(_) => Format::Pcapng,
        }
    }

    /// The interfaces met so far, of all sections in order; pcap has one from the start.
    pub fn interfaces(&self) -> &[Interface] {
        match &self.inner {
            Inner::Pcap(reader) => reader.interfaces(),
            Inner::Pcapng(reader) => reader.interfaces(),
        }
    }

    /// Bytes read so far: everything before is whole.
    pub fn offset(&self) -> u64 {
        let offset = match &self.inner {
            Inner::Pcap(reader) => reader.offset(),
            Inner::Pcapng(reader) => reader.offset(),
        };
        offset as u64
    }
}

impl<'a> Iterator for Reader<'a> {
    type Item = Result<Record<'a>, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let next = match &mut self.inner {
            Inner::Pcap(reader) => reader.next_record(),
            Inner::Pcapng(reader) => reader.next_record(),
        };
        self.failed = next.is_err();
        let offset = self.offset();
        next.map_err(|problem| Error { offset, problem })
            .transpose()
    }
}

impl std::iter::FusedIterator for Reader<'_> {}
