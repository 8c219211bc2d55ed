//! Parser of pcapng blocks (draft-ietf-opsawg-pcapng), one at a time, each at the start of the given bytes.

use crate::blocks::{
    BYTE_ORDER, CUSTOM, Custom, ENHANCED_PACKET, FRAMING, INTERFACE, OLD_PACKET, PacketOptions,
    SECTION_HEADER, SIMPLE_PACKET, STATISTICS, Section, Statistics, VERSION,
};
use crate::bytes::{ByteOrder, align4};
use crate::details::{Detail, Details};
use crate::error::{FormatProblem, Warnings};
use crate::interface::{CaptureInterface, TimeUnit};
use crate::options::{self as opt, BlockOptions, text};
use crate::parser::{Event, FileHeader, Format, MissingBytes, Record};
use crate::{MAX_BLOCK, MAX_METADATA, max_captured};

/// State from earlier blocks that the next block depends on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockContext {
    pub(crate) order: ByteOrder,
    /// Index of the section's interface 0.
    pub(crate) section: usize,
}

/// State that outlives a block.
#[derive(Clone, Debug, Default)]
pub(crate) struct KnownInterface {
    pub(crate) interfaces: Vec<CaptureInterface>,
    /// Memory of `interfaces`, in bytes.
    pub(crate) memory: usize,
    pub(crate) warnings: Warnings,
    /// Maximum length of a frame of the interfaces, in bytes.
    max_captured: usize,
    pub(crate) details: Details,
}

impl KnownInterface {
    /// Maximum length of a block in bytes.
    fn max_block(&self) -> usize {
        // Room for the options of the longest frame.
        const REST: usize = 128 << 10;
        MAX_BLOCK.max(self.max_captured.saturating_add(REST))
    }
}

/// Type and body of a block, and the length of the whole block.
struct Frame<'a> {
    kind: u32,
    body: &'a [u8],
    len: usize,
}

impl BlockContext {
    /// Reads the block at the start of `rest`. Returns it with its length in the file.
    pub(crate) fn block<'a>(
        &mut self,
        rest: &'a [u8],
        known: &mut KnownInterface,
    ) -> Result<Result<(Event<'a>, usize), MissingBytes>, FormatProblem> {
        let Frame { kind, body, len } = match self.frame(rest, known.max_block())? {
            Ok(frame) => frame,
            Err(short) => return Ok(Err(short)),
        };
        let wrong = FormatProblem::BlockLength {
            kind,
            len: len as u32,
        };
        let event = match kind {
            SECTION_HEADER => self.section_header(body, known),
            INTERFACE => self.interface(body, known),
            ENHANCED_PACKET | OLD_PACKET => self.packet(kind, body, known).map(Event::Record),
            SIMPLE_PACKET => self.simple_packet(body, known).map(Event::Record),
            STATISTICS => self.statistics(body, known),
            CUSTOM => self.order.u32(body).map_or(Err(None), |enterprise| {
                Ok(Event::Custom(Custom {
                    enterprise,
                    content: &body[4..],
                }))
            }),
            _ => Ok(Event::Other { kind }),
        };
        let event = event.map_err(|problem| problem.unwrap_or(wrong))?;
        Ok(Ok((event, len)))
    }

    /// Reads the framing of a block. A section header also sets the byte order.
    fn frame<'a>(
        &mut self,
        rest: &'a [u8],
        most: usize,
    ) -> Result<Result<Frame<'a>, MissingBytes>, FormatProblem> {
        let short = |needed| {
            Ok(Err(MissingBytes {
                what: "block",
                before: 0,
                needed,
            }))
        };
        let Some(head) = rest.first_chunk::<FRAMING>() else {
            return short(FRAMING);
        };
        if head[..4] == SECTION_HEADER.to_le_bytes() {
            let magic = [head[8], head[9], head[10], head[11]];
            self.order = match magic {
                _ if magic == BYTE_ORDER.to_le_bytes() => ByteOrder::Little,
                _ if magic == BYTE_ORDER.to_be_bytes() => ByteOrder::Big,
                _ => return Err(FormatProblem::ByteOrder(magic)),
            };
        }
        let word = |at: usize| self.order.u32(&head[at..]).unwrap_or_default();
        let (kind, claimed) = (word(0), word(4));
        let len = claimed as usize;
        let wrong = FormatProblem::BlockLength { kind, len: claimed };
        // Some writers exclude the padding from the length; libpcap refuses these files, too.
        if len < FRAMING || !len.is_multiple_of(4) || len > most {
            return Err(wrong);
        }
        let Some(block) = rest.get(..len) else {
            return short(len);
        };
        if self.order.u32(&block[len - 4..]) != Some(claimed) {
            return Err(wrong);
        }
        let body = &block[8..len - 4];
        Ok(Ok(Frame { kind, body, len }))
    }

    fn section_header<'a>(
        &mut self,
        body: &'a [u8],
        known: &mut KnownInterface,
    ) -> Result<Event<'a>, Option<FormatProblem>> {
        let major = self.order.u16(body.get(4..).ok_or(None)?).ok_or(None)?;
        if major != VERSION {
            return Err(Some(FormatProblem::Version {
                major,
                known: VERSION,
            }));
        }
        self.section = known.interfaces.len();
        let mut section = Section::default();
        let mut odd = false;
        let mut options = BlockOptions::new(self.order, body.get(16..).unwrap_or_default());
        for (code, value) in &mut options {
            let field = match code {
                opt::COMMENT => &mut section.comment,
                opt::SHB_HARDWARE => &mut section.hardware,
                opt::SHB_OS => &mut section.os,
                opt::SHB_APPLICATION => &mut section.application,
                other => {
                    known.details.insert(of_other(other));
                    continue;
                }
            };
            let (text, whole) = text(value);
            odd |= !whole;
            field.get_or_insert(text);
        }
        known.warnings.odd_blocks += u64::from(odd || options.cut);
        Ok(Event::Header(FileHeader {
            format: Format::Pcapng,
            big_endian: self.order == ByteOrder::Big,
            section,
        }))
    }

    fn interface<'a>(
        &self,
        body: &[u8],
        known: &mut KnownInterface,
    ) -> Result<Event<'a>, Option<FormatProblem>> {
        let interface = self.description(body, &mut known.details).ok_or(None)?;
        // Unless limited, a file of nothing but descriptions would fill the memory.
        if known.memory + interface.memory() > MAX_METADATA {
            return Err(Some(FormatProblem::TooMuchMetadata(known.interfaces.len())));
        }
        known.memory += interface.memory();
        known.max_captured = known.max_captured.max(max_captured(interface.link_type));
        known.interfaces.push(interface);
        Ok(Event::Interface(known.interfaces.len() as u32 - 1))
    }

    fn description(&self, body: &[u8], details: &mut Details) -> Option<CaptureInterface> {
        let mut interface = CaptureInterface {
            snap_len: self.order.u32(body.get(4..)?)?,
            time_unit: TimeUnit::MICROSECONDS,
            ..CaptureInterface::new(self.order.u16(body)?)
        };
        let owned = |value: &[u8]| {
            let text = String::from_utf8_lossy(value);
            Some(text.trim_end_matches('\0').to_owned())
        };
        let mut options = BlockOptions::new(self.order, body.get(8..)?);
        for (code, value) in &mut options {
            match code {
                opt::COMMENT => details.insert(Detail::InterfaceComment),
                opt::IF_NAME | opt::IF_DESCRIPTION | opt::IF_OS | opt::IF_MAC | opt::IF_SPEED => {
                    details.insert(Detail::InterfaceText);
                }
                opt::IF_FILTER => details.insert(Detail::Filter),
                opt::IF_IPV4 | opt::IF_IPV6 | opt::IF_EUI => {
                    details.insert(Detail::InterfaceAddress)
                }
                opt::IF_HARDWARE => details.insert(Detail::InterfaceHardware),
                opt::IF_ZONE => details.insert(Detail::InterfaceZone),
                opt::IF_TXSPEED | opt::IF_RXSPEED => details.insert(Detail::InterfaceSpeeds),
                opt::IF_TSRESOL | opt::IF_FCSLEN | opt::IF_TSOFFSET => {}
                other => details.insert(of_other(other)),
            }
            match (code, value) {
                (opt::IF_NAME, _) => interface.name = owned(value),
                (opt::IF_DESCRIPTION, _) => interface.description = owned(value),
                (opt::IF_OS, _) => interface.os = owned(value),
                (opt::IF_FILTER, [0, text @ ..]) => interface.filter = owned(text),
                (opt::IF_MAC, _) => interface.mac = value.try_into().ok(),
                (opt::IF_SPEED, _) => interface.speed_bps = self.order.u64(value),
                (opt::IF_TSRESOL, [byte, ..]) => {
                    interface.time_unit = TimeUnit::from_tsresol(*byte)
                }
                (opt::IF_FCSLEN, [byte, ..]) => interface.fcs_len = *byte,
                (opt::IF_TSOFFSET, _) => interface.time_offset = self.order.u64(value)? as i64,
                _ => {}
            }
        }
        // A wrong unit or offset would falsify every timestamp, so damage is an error here.
        (!options.cut).then_some(interface)
    }

    fn packet<'a>(
        &self,
        kind: u32,
        body: &'a [u8],
        known: &mut KnownInterface,
    ) -> Result<Record<'a>, Option<FormatProblem>> {
        let fixed = body.first_chunk::<20>().ok_or(None)?;
        let word = |at: usize| self.order.u32(&fixed[at..]).unwrap_or_default();
        let half = |at: usize| self.order.u16(&fixed[at..]).unwrap_or_default();
        let old = kind == OLD_PACKET;
        let id = if old { half(0).into() } else { word(0) };
        let ticks = u64::from(word(4)) << 32 | u64::from(word(8));
        let mut record = self.record(id, word(12), word(16), &body[20..], known)?;
        let interface = &known.interfaces[record.interface as usize];
        record.stamp_ns = interface.stamp_ns(ticks);
        record.stamped = true;
        let options = body[20..].get(align4(record.captured.len())..);
        let (options, odd) = self.packet_options(options.unwrap_or_default(), &mut known.details);
        known.warnings.odd_blocks += u64::from(odd);
        record.options = options;
        if old {
            let drops = half(2);
            record.options.drop_count = (drops != u16::MAX).then_some(drops.into());
        }
        Ok(record)
    }

    fn packet_options<'a>(
        &self,
        rest: &'a [u8],
        details: &mut Details,
    ) -> (PacketOptions<'a>, bool) {
        let mut found = PacketOptions::NONE;
        let mut odd = false;
        let mut options = BlockOptions::new(self.order, rest);
        for (code, value) in &mut options {
            details.insert(match code {
                opt::COMMENT if found.comment.is_some() => Detail::SecondComment,
                opt::COMMENT => Detail::PacketComment,
                opt::EPB_FLAGS => Detail::PacketFlags,
                opt::EPB_DROPCOUNT => Detail::DropCount,
                opt::EPB_PACKETID => Detail::PacketNumber,
                opt::EPB_QUEUE => Detail::Queue,
                opt::EPB_HASH => Detail::Hash,
                opt::EPB_VERDICT => Detail::Verdict,
                other => of_other(other),
            });
            let sane = match (code, value.len()) {
                (opt::EPB_FLAGS, 4) => set(&mut found.flags, self.order.u32(value)),
                (opt::EPB_DROPCOUNT, 8) => set(&mut found.drop_count, self.order.u64(value)),
                (opt::EPB_PACKETID, 8) => set(&mut found.packet_id, self.order.u64(value)),
                (opt::EPB_QUEUE, 4) => set(&mut found.queue, self.order.u32(value)),
                (opt::COMMENT, _) => {
                    let (text, whole) = text(value);
                    found.comment.get_or_insert(text);
                    whole
                }
                (opt::EPB_FLAGS | opt::EPB_DROPCOUNT | opt::EPB_PACKETID | opt::EPB_QUEUE, _) => {
                    false
                }
                _ => true,
            };
            odd |= !sane;
        }
        (found, odd || options.cut)
    }

    fn simple_packet<'a>(
        &self,
        body: &'a [u8],
        known: &mut KnownInterface,
    ) -> Result<Record<'a>, Option<FormatProblem>> {
        let original = self.order.u32(body).ok_or(None)?;
        let limit = known.interfaces.get(self.section).map_or(0, |i| i.snap_len);
        let captured = if limit == 0 {
            original
        } else {
            original.min(limit)
        };
        self.record(0, captured, original, &body[4..], known)
    }

    /// Returns the packet with its bytes at the start of `rest`, without timestamp and options. The error is `None` if
    /// the bytes exceed the block.
    fn record<'a>(
        &self,
        id: u32,
        captured_len: u32,
        original_len: u32,
        rest: &'a [u8],
        known: &mut KnownInterface,
    ) -> Result<Record<'a>, Option<FormatProblem>> {
        let described = &known.interfaces[self.section..];
        let Some(interface) = described.get(id as usize) else {
            return Err(Some(FormatProblem::UnknownInterface {
                id,
                known: described.len() as u32,
            }));
        };
        let most = max_captured(interface.link_type);
        if captured_len as usize > most {
            return Err(Some(FormatProblem::TooLarge {
                len: captured_len,
                most,
            }));
        }
        let captured = rest.get(..captured_len as usize).ok_or(None)?;
        known.warnings.captured_over_original += u64::from(captured_len > original_len);
        Ok(Record {
            stamp_ns: 0,
            stamped: false,
            captured,
            original_len,
            interface: (self.section + id as usize) as u32,
            link_type: interface.link_type,
            options: PacketOptions::NONE,
        })
    }

    fn statistics<'a>(
        &self,
        body: &[u8],
        known: &mut KnownInterface,
    ) -> Result<Event<'a>, Option<FormatProblem>> {
        let fixed = body.first_chunk::<12>().ok_or(None)?;
        let id = self.order.u32(fixed).ok_or(None)?;
        let Some(interface) = known.interfaces[self.section..].get(id as usize) else {
            known.warnings.odd_blocks += 1;
            return Ok(Event::Other { kind: STATISTICS });
        };
        let time = |value: &[u8]| Some(interface.stamp_ns(self.order.time(value)?));
        let mut found = Statistics {
            interface: (self.section + id as usize) as u32,
            stamp_ns: time(&fixed[4..]).unwrap_or_default(),
            ..Statistics::default()
        };
        let mut odd = false;
        let mut options = BlockOptions::new(self.order, &body[12..]);
        for (code, value) in &mut options {
            let field = match code {
                opt::ISB_START => &mut found.start_ns,
                opt::ISB_END => &mut found.end_ns,
                opt::ISB_IFRECV => &mut found.if_received,
                opt::ISB_IFDROP => &mut found.if_dropped,
                opt::ISB_FILTERACCEPT => &mut found.filter_accepted,
                opt::ISB_OSDROP => &mut found.os_dropped,
                opt::ISB_USRDELIV => &mut found.delivered,
                _ => continue,
            };
            let number = match code {
                _ if value.len() != 8 => None,
                opt::ISB_START | opt::ISB_END => time(value),
                _ => self.order.u64(value),
            };
            odd |= !set(field, number);
        }
        known.warnings.odd_blocks += u64::from(odd || options.cut);
        known.details.insert(Detail::Statistics);
        Ok(Event::Statistics(found))
    }
}

/// Kind of an option without a field.
fn of_other(code: u16) -> Detail {
    match opt::CUSTOM.contains(&code) {
        true => Detail::Custom,
        false => Detail::Unknown,
    }
}

/// Sets a field to the value read, if any; the first value is kept. Returns false if the option was malformed.
fn set<T>(field: &mut Option<T>, read: Option<T>) -> bool {
    let sane = read.is_some();
    if field.is_none() {
        *field = read;
    }
    sane
}
