//! Blocks of pcapng as values, and how they are written: little endian, with exact sizes beforehand.

use crate::MAX_FRAME;
use crate::bytes::{Measure, Sink, align4};
use crate::interface::{Interface, TimeUnit};
use crate::options::{self as opt, Emit, put_padded};

/// The same in both byte orders.
pub(crate) const SECTION_HEADER: u32 = 0x0a0d_0d0a;
pub(crate) const INTERFACE: u32 = 1;
pub(crate) const OLD_PACKET: u32 = 2;
pub(crate) const SIMPLE_PACKET: u32 = 3;
pub(crate) const STATISTICS: u32 = 5;
pub(crate) const ENHANCED_PACKET: u32 = 6;
pub(crate) const CUSTOM: u32 = 0x0bad;
pub(crate) const BYTE_ORDER: u32 = 0x1a2b_3c4d;
pub(crate) const VERSION: u16 = 1;
/// Type and length in front, length again behind.
pub(crate) const FRAMING: usize = 12;

/// What can be written as a block of pcapng.
pub trait Block {
    /// The block's type.
    const KIND: u32;

    /// Appends what stands between the two lengths. To a [`Sink`] that only counts, too.
    fn put_body(&self, out: &mut impl Sink);

    /// Bytes of the whole block.
    fn block_len(&self) -> usize {
        let mut body = Measure::default();
        self.put_body(&mut body);
        FRAMING + body.0
    }

    /// Appends the block. False if there is no room for all of it; then nothing is written.
    fn write(&self, out: &mut impl Sink) -> bool {
        let len = self.block_len();
        if !out.make_room(len) {
            return false;
        }
        let len = (len as u32).to_le_bytes();
        out.put(&Self::KIND.to_le_bytes());
        out.put(&len);
        self.put_body(out);
        out.put(&len);
        true
    }
}

/// The header of a section: what wrote it, and on what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Section<'a> {
    /// The machine.
    pub hardware: Option<&'a str>,
    /// Its operating system.
    pub os: Option<&'a str>,
    /// The program.
    pub application: Option<&'a str>,
    /// Whatever a person wants to say.
    pub comment: Option<&'a str>,
}

impl Block for Section<'_> {
    const KIND: u32 = SECTION_HEADER;

    fn put_body(&self, out: &mut impl Sink) {
        out.put(&BYTE_ORDER.to_le_bytes());
        out.put(&VERSION.to_le_bytes());
        out.put(&[0; 2]);
        // The length of the section is not known while it is written.
        out.put(&(-1i64).to_le_bytes());
        Emit::new(out)
            .text(opt::COMMENT, self.comment)
            .text(opt::SHB_HARDWARE, self.hardware)
            .text(opt::SHB_OS, self.os)
            .text(opt::SHB_APPLICATION, self.application)
            .end();
    }
}

impl Block for Interface {
    const KIND: u32 = INTERFACE;

    fn put_body(&self, out: &mut impl Sink) {
        out.put(&self.link_type.to_le_bytes());
        out.put(&[0; 2]);
        out.put(&self.snap_len.to_le_bytes());
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

/// What may be said of a frame beyond its bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketOptions<'a> {
    /// epb_flags: bits 0-1 are 1 for in, 2 for out; bits 2-4 are 1 for unicast, 2 multicast, 3 broadcast,
    /// 4 promiscuous.
    pub flags: Option<u32>,
    /// Frames of this interface that were lost since its previous one in the file.
    pub drop_count: Option<u64>,
    /// A number that the same frame has wherever it is seen.
    pub packet_id: Option<u64>,
    /// The receive queue.
    pub queue: Option<u32>,
    /// Whatever a person wants to say.
    pub comment: Option<&'a str>,
}

impl PacketOptions<'_> {
    /// None is set.
    pub const NONE: Self = Self {
        flags: None,
        drop_count: None,
        packet_id: None,
        queue: None,
        comment: None,
    };

    fn put(&self, out: &mut impl Sink) {
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

/// Bytes of the enhanced packet block for so many captured bytes.
pub fn epb_len(captured: usize, options: &PacketOptions<'_>) -> usize {
    let mut tail = Measure::default();
    options.put(&mut tail);
    EPB_HEAD + align4(captured.min(MAX_FRAME)) + tail.0 + 4
}

/// Type, length, interface, stamp and both lengths of a frame.
const EPB_HEAD: usize = 28;

/// A frame as a block. Of more than [`MAX_FRAME`] bytes the rest is cut off.
#[derive(Clone, Copy, Debug)]
pub struct EnhancedPacket<'a> {
    /// The number of the interface in its section.
    pub interface: u32,
    /// The stamp in units of the interface.
    pub ticks: u64,
    /// The length the frame had.
    pub original_len: u32,
    /// What was captured of it.
    pub captured: &'a [u8],
    /// What else is known.
    pub options: PacketOptions<'a>,
}

impl EnhancedPacket<'_> {
    /// What stands in front of the captured bytes, in one piece: one copy per frame and not seven.
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

    fn put_body(&self, out: &mut impl Sink) {
        out.put(&self.head(0)[8..]);
        put_padded(self.captured(), out);
        self.options.put(out);
    }

    fn block_len(&self) -> usize {
        epb_len(self.captured.len(), &self.options)
    }

    fn write(&self, out: &mut impl Sink) -> bool {
        let len = self.block_len();
        if !out.make_room(len) {
            return false;
        }
        out.put(&self.head(len));
        put_padded(self.captured(), out);
        self.options.put(out);
        out.put(&(len as u32).to_le_bytes());
        true
    }
}

/// What an interface counted during a capture. Absent is what the file does not say: writers differ in
/// what they put where, so nothing is guessed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// The interface: index into the reader's interfaces, number in its section for a writer.
    pub interface: u32,
    /// When they were taken, wall clock, ns since 1970.
    pub stamp_ns: u64,
    /// isb_starttime: begin of the capture, ns since 1970.
    pub start_ns: Option<u64>,
    /// isb_endtime: its end.
    pub end_ns: Option<u64>,
    /// isb_ifrecv: frames that the interface received.
    pub if_received: Option<u64>,
    /// isb_ifdrop: frames that the interface dropped. dumpcap puts the kernel's drops here.
    pub if_dropped: Option<u64>,
    /// isb_filteraccept: frames that passed the filter.
    pub filter_accepted: Option<u64>,
    /// isb_osdrop: of these, lost for want of room.
    pub os_dropped: Option<u64>,
    /// isb_usrdeliv: of these, delivered to the capturing program.
    pub delivered: Option<u64>,
}

impl Statistics {
    /// Whether every accepted frame was either delivered or counted as lost; none if the file does not
    /// have the three numbers.
    pub fn adds_up(&self) -> Option<bool> {
        let kept = self.delivered?.checked_add(self.os_dropped?);
        Some(kept == Some(self.filter_accepted?))
    }
}

/// Written for an interface with nanosecond stamps.
impl Block for Statistics {
    const KIND: u32 = STATISTICS;

    fn put_body(&self, out: &mut impl Sink) {
        out.put(&self.interface.to_le_bytes());
        out.put(&self.stamp_ns.rotate_left(32).to_le_bytes());
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

/// A block of someone's own. Others may copy it to files they derive.
///
/// tshark lists it among the frames, as one without a time; libpcap's programs pass over it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Custom<'a> {
    /// Whose: an IANA private enterprise number.
    pub enterprise: u32,
    /// What it holds. Padded with zeros to a multiple of four: the block does not say its true length.
    pub content: &'a [u8],
}

impl Block for Custom<'_> {
    const KIND: u32 = CUSTOM;

    fn put_body(&self, out: &mut impl Sink) {
        out.put(&self.enterprise.to_le_bytes());
        put_padded(self.content, out);
    }
}

/// Writes one pcapng section with nanosecond stamps, little endian.
///
/// Begin with [`new`](Self::new) or [`section`](Self::section), describe all interfaces with
/// [`interface`](Self::interface) or [`describe`](Self::describe), then append packets and statistics.
/// Every call appends whole blocks to its buffer.
#[derive(Clone, Debug)]
pub struct PcapngWriter {
    interfaces: u32,
}

impl PcapngWriter {
    /// Begins a section: appends its header, which names the writing program if `application` is not empty.
    ///
    /// # Panics
    /// If a fixed buffer has no room.
    pub fn new(application: &str, out: &mut impl Sink) -> Self {
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
    /// If a fixed buffer has no room: fewer bytes than [`Block::block_len`].
    pub fn section(header: &Section<'_>, out: &mut impl Sink) -> Self {
        assert!(header.write(out), "no room for the section header");
        Self { interfaces: 0 }
    }

    /// Describes the next interface and gives its number for [`record`](Self::record).
    ///
    /// # Panics
    /// If a fixed buffer has no room.
    pub fn interface(&mut self, name: &str, link_type: u16, out: &mut impl Sink) -> u32 {
        let name = (!name.is_empty()).then(|| name.to_owned());
        self.describe(
            &Interface {
                name,
                ..Interface::new(link_type)
            },
            out,
        )
    }

    /// Describes the next interface and gives its number for [`record`](Self::record). Its stamps are
    /// nanoseconds since 1970, whatever its `time_unit` and `time_offset` say; with an offset of 0 the
    /// length is that of [`Block::block_len`].
    ///
    /// # Panics
    /// If a fixed buffer has no room: fewer bytes than [`Block::block_len`].
    pub fn describe(&mut self, interface: &Interface, out: &mut impl Sink) -> u32 {
        let interface = Interface {
            time_unit: TimeUnit::NANOSECONDS,
            time_offset: 0,
            ..interface.clone()
        };
        assert!(interface.write(out), "no room for the interface");
        self.interfaces += 1;
        self.interfaces - 1
    }

    /// Appends a frame of an interface. Of more than [`MAX_FRAME`] bytes the rest is cut off. False if
    /// a fixed buffer has no room for all of it; then nothing is written.
    pub fn record(
        &mut self,
        interface: u32,
        stamp_ns: u64,
        original_len: u32,
        captured: &[u8],
        out: &mut impl Sink,
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

    /// Appends a frame with options; its ticks are nanoseconds. As [`record`](Self::record) otherwise.
    pub fn packet(&mut self, packet: &EnhancedPacket<'_>, out: &mut impl Sink) -> bool {
        debug_assert!(
            packet.interface < self.interfaces,
            "described before its first packet"
        );
        packet.write(out)
    }

    /// Appends the statistics of an interface. False if a fixed buffer has no room.
    pub fn statistics(&mut self, statistics: &Statistics, out: &mut impl Sink) -> bool {
        debug_assert!(
            statistics.interface < self.interfaces,
            "described before its statistics"
        );
        statistics.write(out)
    }
}
