//! What both formats have in common: a file is a header and blocks, each read from bytes that begin with it.

use crate::blocks::{Custom, PacketOptions, SECTION_HEADER, Section, Statistics};
use crate::bytes::Order;
use crate::details::Details;
use crate::error::{Error, Problem, Warnings};
use crate::interface::Interface;
use crate::pcap::{self, Layout};
use crate::pcapng::{BlockContext, Known};

/// One captured frame, its bytes borrowed from the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Wall clock, ns since 1970; 0 where the file has no time. Finer stamps are rounded down, coarser ones
    /// are as exact as [`Interface::time_unit`] says; what is outside 1970 to 2554 is the nearer end.
    pub stamp_ns: u64,
    /// Whether the file has a time for it: simple packet blocks have none.
    pub stamped: bool,
    /// What was captured of the frame.
    pub captured: &'a [u8],
    /// The length it had. Damaged or odd writers put less than was captured.
    pub original_len: u32,
    /// Index into the reader's interfaces.
    pub interface: u32,
    /// What the bytes begin with: 1 is Ethernet.
    pub link_type: u16,
    /// What else the file says of it; nothing in pcap.
    pub options: PacketOptions<'a>,
}

/// The two formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// libpcap's: one header, then records.
    Pcap,
    /// Blocks and sections.
    Pcapng,
}

/// The header of a pcap file, or of a section of pcapng.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header<'a> {
    /// The format.
    pub format: Format,
    /// Its numbers have their high byte first.
    pub big_endian: bool,
    /// What the section says of its writer; nothing in pcap.
    pub section: Section<'a>,
}

/// What a block or record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// A header. That of pcap also describes interface 0.
    Header(Header<'a>),
    /// An interface was described: its index.
    Interface(u32),
    /// A frame.
    Record(Record<'a>),
    /// What an interface counted; the last of each interface is the one that holds.
    Statistics(Statistics),
    /// Someone's own block.
    Custom(Custom<'a>),
    /// A block that carries no frames: name resolution, decryption secrets, or unknown.
    Other {
        /// Its type.
        kind: u32,
    },
}

/// One block or record, and where it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item<'a> {
    /// Bytes from the start of the file.
    pub offset: u64,
    /// The block as it is in the file, for copying.
    pub bytes: &'a [u8],
    /// What it is.
    pub event: Event<'a>,
    /// The interfaces described so far, of all sections in order.
    pub interfaces: &'a [Interface],
}

/// How much of a file is whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Whole {
    /// Bytes up to the end of the last whole block: a file that is cut there reads without an error.
    pub offset: u64,
    /// Whole blocks and records, headers included.
    pub blocks: u64,
    /// Whole frames.
    pub records: u64,
}

/// There are not enough bytes for the next block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Short {
    pub(crate) what: &'static str,
    /// Bytes of the block in front of what is short.
    pub(crate) before: usize,
    /// Bytes of what is short.
    pub(crate) needed: usize,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Start,
    Pcap(Layout),
    Pcapng(BlockContext),
}

/// The blocks met so far, and what they say about the next one.
#[derive(Clone, Debug)]
pub(crate) struct Parser {
    state: State,
    known: Known,
    whole: Whole,
    /// True if the layout of pcap records is also inferred from the bytes given with the file header.
    any_layout: bool,
}

impl Parser {
    pub(crate) fn new() -> Self {
        Self {
            state: State::Start,
            known: Known::default(),
            whole: Whole::default(),
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
        matches!(self.state, State::Pcap(layout) if layout.is_guessed())
    }

    pub(crate) fn is_known_to_libpcap(&self) -> bool {
        match self.state {
            State::Start => false,
            State::Pcap(layout) => layout.is_known_to_libpcap(),
            State::Pcapng(_) => true,
        }
    }

    pub(crate) fn format(&self) -> Option<Format> {
        match self.state {
            State::Start => None,
            State::Pcap(_) => Some(Format::Pcap),
            State::Pcapng(_) => Some(Format::Pcapng),
        }
    }

    pub(crate) fn interfaces(&self) -> &[Interface] {
        &self.known.interfaces
    }

    pub(crate) fn warnings(&self) -> Warnings {
        self.known.warnings
    }

    pub(crate) fn details(&self) -> Details {
        self.known.details
    }

    pub(crate) fn whole(&self) -> Whole {
        self.whole
    }

    pub(crate) fn memory(&self) -> usize {
        self.known.memory
    }

    /// Reads the block that `rest` begins with; `rest` is not empty. After an error there is no more.
    pub(crate) fn step<'a>(
        &mut self,
        rest: &'a [u8],
    ) -> Result<Result<(Event<'a>, usize), Short>, Error> {
        let step = match &mut self.state {
            State::Start => self.start(rest),
            State::Pcap(layout) => {
                let known = &mut self.known;
                let record = pcap::record(layout, &known.interfaces[0], rest, &mut known.warnings);
                record.map(|read| read.map(|(record, len)| (Event::Record(record), len)))
            }
            State::Pcapng(context) => context.block(rest, &mut self.known),
        };
        if let Ok(Ok((event, len))) = &step {
            self.whole.offset += *len as u64;
            self.whole.blocks += 1;
            self.whole.records += u64::from(matches!(event, Event::Record(_)));
        }
        step.map_err(|problem| self.error(problem))
    }

    fn start<'a>(&mut self, rest: &'a [u8]) -> Result<Result<(Event<'a>, usize), Short>, Problem> {
        let short = |needed| {
            Ok(Err(Short {
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
                order: Order::Little,
                section: 0,
            };
            let block = context.block(rest, &mut self.known)?;
            if block.is_ok() {
                self.state = State::Pcapng(context);
            }
            return Ok(block);
        }
        let Some(mut layout) = pcap::recognise(*magic) else {
            return Err(Problem::UnknownFormat(magic.to_vec()));
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
        self.state = State::Pcap(layout);
        let header = Header {
            format: Format::Pcap,
            big_endian: layout.order == Order::Big,
            section: Section::default(),
        };
        Ok(Ok((Event::Header(header), len)))
    }

    /// The error of a file that ends `present` bytes behind the last whole block.
    pub(crate) fn truncated(&self, short: Short, present: usize) -> Error {
        self.error(match self.state {
            State::Start => Problem::TruncatedHeader,
            _ => Problem::Truncated {
                what: short.what,
                needed: short.needed as u64,
                present: (present - short.before) as u64,
            },
        })
    }

    pub(crate) fn error(&self, problem: Problem) -> Error {
        Error {
            offset: self.whole.offset,
            problem,
        }
    }
}
