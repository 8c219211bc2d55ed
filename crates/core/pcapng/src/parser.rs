//! Common parser of both formats: a file is a header and blocks, each parsed from bytes that begin with it.

use crate::blocks::{Custom, PacketOptions, SECTION_HEADER, Section, Statistics};
use crate::bytes::ByteOrder;
use crate::details::Details;
use crate::error::{Error, FormatProblem, Warnings};
use crate::interface::CaptureInterface;
use crate::pcap::{self, FileLayout};
use crate::pcapng::{BlockContext, KnownInterface};

/// One captured frame. Its bytes are borrowed from the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Wall-clock time in ns since 1970; 0 if the file has no time. Finer timestamps are rounded down, and coarser ones
    /// have the resolution of [`CaptureInterface::time_unit`]. Times outside 1970 to 2554 are clamped.
    pub stamp_ns: u64,
    /// True if the file has a time for the frame; simple packet blocks have none.
    pub stamped: bool,
    /// Captured bytes.
    pub captured: &'a [u8],
    /// Original length in bytes. In damaged or unusual files it is less than the captured length.
    pub original_len: u32,
    /// Index into the reader's interfaces.
    pub interface: u32,
    /// Link type of the frame: 1 is Ethernet.
    pub link_type: u16,
    /// Additional information; empty in pcap.
    pub options: PacketOptions<'a>,
}

/// File formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Format of libpcap: one header, then records.
    Pcap,
    /// Format with blocks and sections.
    Pcapng,
}

/// Header of a pcap file, or of a section of pcapng.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileHeader<'a> {
    /// Format of the file.
    pub format: Format,
    /// True if the integers are big endian.
    pub big_endian: bool,
    /// Origin of the section; empty in pcap.
    pub section: Section<'a>,
}

/// Contents of a block or record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// A header. The header of pcap also describes interface 0.
    Header(FileHeader<'a>),
    /// Description of an interface, with its index.
    Interface(u32),
    /// A frame.
    Record(Record<'a>),
    /// Counters of an interface; the last block of each interface supersedes earlier ones.
    Statistics(Statistics),
    /// A private block of a vendor.
    Custom(Custom<'a>),
    /// A block without frames: name resolution, decryption secrets, or unknown.
    Other {
        /// Type of the block.
        kind: u32,
    },
}

/// One block or record, and its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileItem<'a> {
    /// Offset in bytes from the start of the file.
    pub offset: u64,
    /// Bytes of the block as in the file, for copying.
    pub bytes: &'a [u8],
    /// Contents of the block.
    pub event: Event<'a>,
    /// Interfaces described so far, of all sections in order.
    pub interfaces: &'a [CaptureInterface],
}

/// Extent of the intact part of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IntactPart {
    /// Offset of the end of the last complete block: a file cut there reads without an error.
    pub offset: u64,
    /// Number of complete blocks and records, including headers.
    pub blocks: u64,
    /// Number of complete frames.
    pub records: u64,
}

/// More bytes are needed for the next block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MissingBytes {
    pub(crate) what: &'static str,
    /// Bytes of the block before the incomplete part.
    pub(crate) before: usize,
    /// Length of the incomplete part, in bytes.
    pub(crate) needed: usize,
}

#[derive(Clone, Copy, Debug)]
enum ParserState {
    Start,
    Pcap(FileLayout),
    Pcapng(BlockContext),
}

/// State of parsing: the blocks read so far, and their effect on the next one.
#[derive(Clone, Debug)]
pub(crate) struct Parser {
    state: ParserState,
    known: KnownInterface,
    whole: IntactPart,
    /// True if the layout of pcap records may also be inferred from the bytes that follow the file header.
    any_layout: bool,
}

impl Parser {
    pub(crate) fn new() -> Self {
        Self {
            state: ParserState::Start,
            known: KnownInterface::default(),
            whole: IntactPart::default(),
            any_layout: false,
        }
    }

    pub(crate) fn with_any_layout() -> Self {
        Self {
            any_layout: true,
            ..Self::new()
        }
    }

    /// Returns true if the layout of pcap records was inferred from the first records, not from the magic number.
    pub(crate) fn has_other_layout(&self) -> bool {
        matches!(self.state, ParserState::Pcap(layout) if layout.is_guessed())
    }

    pub(crate) fn is_known_to_libpcap(&self) -> bool {
        match self.state {
            ParserState::Start => false,
            ParserState::Pcap(layout) => layout.is_known_to_libpcap(),
            ParserState::Pcapng(_) => true,
        }
    }

    pub(crate) fn format(&self) -> Option<Format> {
        match self.state {
            ParserState::Start => None,
            ParserState::Pcap(_) => Some(Format::Pcap),
            ParserState::Pcapng(_) => Some(Format::Pcapng),
        }
    }

    pub(crate) fn interfaces(&self) -> &[CaptureInterface] {
        &self.known.interfaces
    }

    pub(crate) fn warnings(&self) -> Warnings {
        self.known.warnings
    }

    pub(crate) fn details(&self) -> Details {
        self.known.details
    }

    pub(crate) fn whole(&self) -> IntactPart {
        self.whole
    }

    pub(crate) fn memory(&self) -> usize {
        self.known.memory
    }

    /// Reads the block at the start of `rest`, which is not empty. Must not be called after an error.
    pub(crate) fn step<'a>(
        &mut self,
        rest: &'a [u8],
    ) -> Result<Result<(Event<'a>, usize), MissingBytes>, Error> {
        let step = match &mut self.state {
            ParserState::Start => self.start(rest),
            ParserState::Pcap(layout) => {
                let known = &mut self.known;
                let record = pcap::record(layout, &known.interfaces[0], rest, &mut known.warnings);
                record.map(|read| read.map(|(record, len)| (Event::Record(record), len)))
            }
            ParserState::Pcapng(context) => context.block(rest, &mut self.known),
        };
        if let Ok(Ok((event, len))) = &step {
            self.whole.offset += *len as u64;
            self.whole.blocks += 1;
            self.whole.records += u64::from(matches!(event, Event::Record(_)));
        }
        step.map_err(|problem| self.error(problem))
    }

    fn start<'a>(
        &mut self,
        rest: &'a [u8],
    ) -> Result<Result<(Event<'a>, usize), MissingBytes>, FormatProblem> {
        let short = |needed| {
            Ok(Err(MissingBytes {
                what: "file header",
                before: 0,
                needed,
            }))
        };
        let Some(magic) = rest.first_chunk::<4>() else {
            return short(4);
        };
        if *magic == SECTION_HEADER.to_le_bytes() {
            let mut context = BlockContext {
                order: ByteOrder::Little,
                section: 0,
            };
            let block = context.block(rest, &mut self.known)?;
            if block.is_ok() {
                self.state = ParserState::Pcapng(context);
            }
            return Ok(block);
        }
        let Some(mut layout) = pcap::recognise(*magic) else {
            return Err(FormatProblem::UnknownFormat(magic.to_vec()));
        };
        let len = layout.file_header();
        let Some(header) = rest.first_chunk().filter(|_| rest.len() >= len) else {
            return short(len);
        };
        let interface = pcap::interface(&mut layout, header)?;
        if self.any_layout {
            layout = layout.settled(&interface, &rest[len..]);
        }
        self.known.interfaces.push(interface);
        self.state = ParserState::Pcap(layout);
        let header = FileHeader {
            format: Format::Pcap,
            big_endian: layout.order == ByteOrder::Big,
            section: Section::default(),
        };
        Ok(Ok((Event::Header(header), len)))
    }

    /// Error of a file that ends `present` bytes after the last complete block.
    pub(crate) fn truncated(&self, short: MissingBytes, present: usize) -> Error {
        self.error(match self.state {
            ParserState::Start => FormatProblem::TruncatedHeader,
            _ => FormatProblem::Truncated {
                what: short.what,
                needed: short.needed as u64,
                present: (present - short.before) as u64,
            },
        })
    }

    pub(crate) fn error(&self, problem: FormatProblem) -> Error {
        Error {
            offset: self.whole.offset,
            problem,
        }
    }
}
