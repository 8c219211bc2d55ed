//! Blocks of pcapng, and their writers: little endian, with the exact size known beforehand.

use crate::MAX_FRAME;
use crate::bytes::{ByteSink, Measure, align4};
use crate::interface::{CaptureInterface, TimeUnit};
use crate::options::{self as opt, Emit, put_padded};

/// Reads the same in both byte orders.
pub(crate) const SECTION_HEADER: u32 = 0x0a0d_0d0a;
pub(crate) const INTERFACE: u32 = 1;
pub(crate) const OLD_PACKET: u32 = 2;
pub(crate) const SIMPLE_PACKET: u32 = 3;
pub(crate) const STATISTICS: u32 = 5;
pub(crate) const ENHANCED_PACKET: u32 = 6;
pub(crate) const CUSTOM: u32 = 0x0bad;
pub(crate) const BYTE_ORDER: u32 = 0x1a2b_3c4d;
pub(crate) const VERSION: u16 = 1;
/// Type and length before the body, length again behind it.
pub(crate) const FRAMING: usize = 12;

/// A block of pcapng that can be written.
pub trait Block {
    /// Type of the block.
    const KIND: u32;

    /// Appends the body of the block. Also called with a [`ByteSink`] that only counts.
    fn put_body(&self, out: &mut impl ByteSink);

    /// Length of the whole block, in bytes.
    fn block_len(&self) -> usize {
        let mut body = Measure::default();
        self.put_body(&mut body);
        FRAMING + body.0
    }

    /// Appends the block. Returns false and writes nothing if there is no room for all of it.
    fn write(&self, out: &mut impl ByteSink) -> bool {
        let len = self.block_len();
        if !out.make_room(len) {
            return false;
        }
        let len = (len as u32).to_le_bytes();
        out.append(&Self::KIND.to_le_bytes());
        out.append(&len);
        self.put_body(out);
        out.append(&len);
        true
    }
}

/// Section header: the origin of a section.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Section<'a> {
    /// Hardware that wrote the file.
    pub hardware: Option<&'a str>,
    /// Operating system.
    pub os: Option<&'a str>,
    /// Program that wrote the file.
    pub application: Option<&'a str>,
    /// Free text.
    pub comment: Option<&'a str>,
}

impl Block for Section<'_> {
    const KIND: u32 = SECTION_HEADER;

    fn put_body(&self, out: &mut impl ByteSink) {
        out.append(&BYTE_ORDER.to_le_bytes());
        out.append(&VERSION.to_le_bytes());
        out.append(&[0; 2]);
        // The length of the section is not known while it is written.
        out.append(&(-1i64).to_le_bytes());
        Emit::new(out)
            .text(opt::COMMENT, self.comment)
            .text(opt::SHB_HARDWARE, self.hardware)
            .text(opt::SHB_OS, self.os)
            .text(opt::SHB_APPLICATION, self.application)
            .end();
    }
}

impl Block for CaptureInterface {
    const KIND: u32 = INTERFACE;

    fn put_body(&self, out: &mut impl ByteSink) {
        out.append(&self.link_type.to_le_bytes());
        out.append(&[0; 2]);
        out.append(&self.snap_len.to_le_bytes());
        let tsresol = [self.time_unit.tsresol()];
        let offset = (self.time_offset != 0).then_some(self.time_offset as u64);
        Emit::new(out)
            .text(opt::IF_NAME, self.name.as_deref())
            .text(opt::IF_DESCRIPTION, self.description.as_deref())
            .bytes(opt::IF_MAC, self.mac.as_ref().map(|mac| &mac[..]))
            .u64(opt::IF_SPEED, self.speed_bps)
            .bytes(opt::IF_TSRESOL, Some(&tsresol))
            .filter(opt::IF_FILTER, self.filter.as_deref())
            .text(opt::IF_OS, self.os.as_deref())
            .bytes(
                opt::IF_FCSLEN,
                (self.fcs_len != 0).then_some(&[self.fcs_len]),
            )
            .u64(opt::IF_TSOFFSET, offset)
            .end();
    }
}

/// Additional information about a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketOptions<'a> {
    /// epb_flags: bits 0-1 are 1 for in, 2 for out; bits 2-4 are 1 for unicast, 2 multicast, 3 broadcast,
    /// 4 promiscuous.
    pub flags: Option<u32>,
    /// Frames of this interface lost since its previous frame in the file.
    pub drop_count: Option<u64>,
    /// Number that identifies the same frame on all interfaces.
    pub packet_id: Option<u64>,
    /// Receive queue.
    pub queue: Option<u32>,
    /// Free text.
    pub comment: Option<&'a str>,
}

impl PacketOptions<'_> {
    /// No options.
    pub const NONE: Self = Self {
        flags: None,
        drop_count: None,
        packet_id: None,
        queue: None,
        comment: None,
    };

    fn write_to(&self, out: &mut impl ByteSink) {
        if *self == Self::NONE {
            return;
        }
        Emit::new(out)
            .text(opt::COMMENT, self.comment)
            .u32(opt::EPB_FLAGS, self.flags)
            .u64(opt::EPB_DROPCOUNT, self.drop_count)
            .u64(opt::EPB_PACKETID, self.packet_id)
            .u32(opt::EPB_QUEUE, self.queue)
            .end();
    }
}

/// Length of the enhanced packet block with `captured` captured bytes.
pub fn epb_len(captured: usize, options: &PacketOptions<'_>) -> usize {
    let mut tail = Measure::default();
    options.write_to(&mut tail);
    EPB_HEAD + align4(captured.min(MAX_FRAME)) + tail.0 + 4
}

/// Type, length, interface, timestamp and both lengths of a frame.
const EPB_HEAD: usize = 28;

/// A frame as a block. Bytes beyond [`MAX_FRAME`] are cut off.
#[derive(Clone, Copy, Debug)]
pub struct EnhancedPacket<'a> {
    /// Number of the interface in its section.
    pub interface: u32,
    /// Timestamp in units of the interface.
    pub ticks: u64,
    /// Original length of the frame, in bytes.
    pub original_len: u32,
    /// Captured bytes.
    pub captured: &'a [u8],
    /// Additional information.
    pub options: PacketOptions<'a>,
}

impl EnhancedPacket<'_> {
    /// Returns all fields in front of the captured bytes in one piece, to save six copies per frame.
    fn head(&self, block_len: usize) -> [u8; EPB_HEAD] {
        let mut head = [0; EPB_HEAD];
        let words = [
            ENHANCED_PACKET,
            block_len as u32,
            self.interface,
            (self.ticks >> 32) as u32,
            self.ticks as u32,
            self.captured().len() as u32,
            self.original_len,
        ];
        for (field, word) in head.chunks_exact_mut(4).zip(words) {
            field.copy_from_slice(&word.to_le_bytes());
        }
        head
    }

    fn captured(&self) -> &[u8] {
        &self.captured[..self.captured.len().min(MAX_FRAME)]
    }
}

impl Block for EnhancedPacket<'_> {
    const KIND: u32 = ENHANCED_PACKET;

    fn put_body(&self, out: &mut impl ByteSink) {
        out.append(&self.head(0)[8..]);
        put_padded(self.captured(), out);
        self.options.write_to(out);
    }

    fn block_len(&self) -> usize {
        epb_len(self.captured.len(), &self.options)
    }

    fn write(&self, out: &mut impl ByteSink) -> bool {
        let len = self.block_len();
        if !out.make_room(len) {
            return false;
        }
        out.append(&self.head(len));
        put_padded(self.captured(), out);
        self.options.write_to(out);
        out.append(&(len as u32).to_le_bytes());
        true
    }
}

/// Counters of an interface during a capture. Fields that the file does not contain are `None`, because writers differ
/// in their use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Interface: index into the reader's interfaces, or for a writer the number in its section.
    pub interface: u32,
    /// Wall-clock time of the statistics, in ns since 1970.
    pub stamp_ns: u64,
    /// isb_starttime: start of the capture, in ns since 1970.
    pub start_ns: Option<u64>,
    /// isb_endtime: end of the capture, in ns since 1970.
    pub end_ns: Option<u64>,
    /// isb_ifrecv: frames that the interface received.
    pub if_received: Option<u64>,
    /// isb_ifdrop: frames that the interface dropped. dumpcap puts the kernel's drops here.
    pub if_dropped: Option<u64>,
    /// isb_filteraccept: frames that passed the filter.
    pub filter_accepted: Option<u64>,
    /// isb_osdrop: of these, frames lost for lack of room.
    pub os_dropped: Option<u64>,
    /// isb_usrdeliv: of these, frames delivered to the capturing program.
    pub delivered: Option<u64>,
}

impl Statistics {
    /// Returns true if every accepted frame was either delivered or counted as lost; `None` if the file does not
    /// contain the three counters.
    pub fn adds_up(&self) -> Option<bool> {
        let kept = self.delivered?.checked_add(self.os_dropped?);
        Some(kept == Some(self.filter_accepted?))
    }
}

/// Format for an interface with nanosecond timestamps.
impl Block for Statistics {
    const KIND: u32 = STATISTICS;

    fn put_body(&self, out: &mut impl ByteSink) {
        out.append(&self.interface.to_le_bytes());
        out.append(&self.stamp_ns.rotate_left(32).to_le_bytes());
        Emit::new(out)
            .time(opt::ISB_START, self.start_ns)
            .time(opt::ISB_END, self.end_ns)
            .u64(opt::ISB_IFRECV, self.if_received)
            .u64(opt::ISB_IFDROP, self.if_dropped)
            .u64(opt::ISB_FILTERACCEPT, self.filter_accepted)
            .u64(opt::ISB_OSDROP, self.os_dropped)
            .u64(opt::ISB_USRDELIV, self.delivered)
            .end();
    }
}

/// Private block of a vendor. Programs may copy it to derived files.
///
/// tshark lists it among the frames, without a time; the programs of libpcap skip it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Custom<'a> {
    /// Vendor: an IANA private enterprise number.
    pub enterprise: u32,
    /// Content, padded with zeros to a multiple of four. The block does not hold its true length.
    pub content: &'a [u8],
}

impl Block for Custom<'_> {
    const KIND: u32 = CUSTOM;

    fn put_body(&self, out: &mut impl ByteSink) {
        out.append(&self.enterprise.to_le_bytes());
        put_padded(self.content, out);
    }
}

/// Writer of one little-endian pcapng section with nanosecond timestamps.
///
/// Begin with [`new`](Self::new) or [`section`](Self::section), describe all interfaces with
/// [`interface`](Self::interface) or [`describe`](Self::describe), then append packets and statistics. Every call
/// appends whole blocks to its buffer.
#[derive(Clone, Debug)]
pub struct PcapngWriter {
    interfaces: u32,
}

impl PcapngWriter {
    /// Begins a section: appends its header, with the name of the writing program unless `application` is empty.
    ///
    /// # Panics
    /// A fixed buffer has no room.
    pub fn new(application: &str, out: &mut impl ByteSink) -> Self {
        let application = (!application.is_empty()).then_some(application);
        Self::section(
            &Section {
                application,
                ..Section::default()
            },
            out,
        )
    }

    /// Begins a section: appends this header.
    ///
    /// # Panics
    /// A fixed buffer has no room, that is, fewer bytes than [`Block::block_len`].
    pub fn section(header: &Section<'_>, out: &mut impl ByteSink) -> Self {
        assert!(header.write(out), "no room for the section header");
        Self { interfaces: 0 }
    }

    /// Describes the next interface. Returns its number for [`record`](Self::record).
    ///
    /// # Panics
    /// A fixed buffer has no room.
    pub fn interface(&mut self, name: &str, link_type: u16, out: &mut impl ByteSink) -> u32 {
        let name = (!name.is_empty()).then(|| name.to_owned());
        self.describe(
            &CaptureInterface {
                name,
                ..CaptureInterface::new(link_type)
            },
            out,
        )
    }

    /// Describes the next interface. Returns its number for [`record`](Self::record). Its timestamps are nanoseconds
    /// since 1970 regardless of `time_unit` and `time_offset`. With an offset of 0 the length is [`Block::block_len`].
    ///
    /// # Panics
    /// A fixed buffer has no room, that is, fewer bytes than [`Block::block_len`].
    pub fn describe(&mut self, interface: &CaptureInterface, out: &mut impl ByteSink) -> u32 {
        let interface = CaptureInterface {
            time_unit: TimeUnit::NANOSECONDS,
            time_offset: 0,
            ..interface.clone()
        };
        assert!(interface.write(out), "no room for the interface");
        self.interfaces += 1;
        self.interfaces - 1
    }

    /// Appends a frame of an interface; bytes beyond [`MAX_FRAME`] are cut off. Returns false and writes nothing if a
    /// fixed buffer has no room for all of it.
    pub fn record(
        &mut self,
        interface: u32,
        stamp_ns: u64,
        original_len: u32,
        captured: &[u8],
        out: &mut impl ByteSink,
    ) -> bool {
        self.packet(
            &EnhancedPacket {
                interface,
                ticks: stamp_ns,
                original_len,
                captured,
                options: PacketOptions::NONE,
            },
            out,
        )
    }

    /// Appends a frame with options; its ticks are nanoseconds. Otherwise like [`record`](Self::record).
    pub fn packet(&mut self, packet: &EnhancedPacket<'_>, out: &mut impl ByteSink) -> bool {
        debug_assert!(
            packet.interface < self.interfaces,
            "described before its first packet"
        );
        packet.write(out)
    }

    /// Appends the statistics of an interface. Returns false if a fixed buffer has no room.
    pub fn statistics(&mut self, statistics: &Statistics, out: &mut impl ByteSink) -> bool {
        debug_assert!(
            statistics.interface < self.interfaces,
            "described before its statistics"
        );
        statistics.write(out)
    }
}
