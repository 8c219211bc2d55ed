//! Readers and writers of pcap and pcapng files over byte slices.
//!
//! Pure: the input is a capture file in one slice ([`CaptureReader`]) or in pieces ([`CaptureDecoder`]); the output is
//! appended to a buffer ([`PcapWriter`], [`PcapngWriter`], and each [`Block`]). Knows no files, no clock, and nothing
//! about the contents of a frame. Timestamps are wall-clock nanoseconds since 1970.
//!
//! ```
//! use wb_pcapng::{CaptureReader, LINK_ETHERNET, PcapWriter};
//!
//! let mut file = Vec::new();
//! let mut writer = PcapWriter::new(LINK_ETHERNET, &mut file);
//! writer.record(1_700_000_000_123_456_789, 1514, &[0; 60], &mut file);
//!
//! let record = CaptureReader::new(&file)?.next().unwrap()?;
//! assert_eq!((record.stamp_ns, record.original_len), (1_700_000_000_123_456_789, 1514));
//! # Ok::<(), wb_pcapng::Error>(())
//! ```

#![forbid(unsafe_code)]

mod blocks;
mod bytes;
mod decoder;
mod details;
mod error;
pub mod fuzz;
mod interface;
mod options;
mod parser;
mod pcap;
mod pcapng;
mod reader;
mod summary;

pub use blocks::{
    Block, Custom, EnhancedPacket, PacketOptions, PcapngWriter, Section, Statistics, epb_len,
};
pub use bytes::{ByteSink, Fixed};
pub use decoder::CaptureDecoder;
pub use details::Details;
pub use error::{Error, FormatProblem, Warnings};
pub use interface::{CaptureInterface, TimeUnit};
pub use parser::{Event, FileHeader, FileItem, Format, IntactPart, Record};
pub use pcap::{PcapWriter, Precision};
pub use reader::CaptureReader;
pub use summary::{CaptureSummary, Counts, InterfaceSummary};

/// Link type of Ethernet frames: LINKTYPE_ETHERNET.
pub const LINK_ETHERNET: u16 = 1;
/// Link type of bare IP packets: LINKTYPE_RAW.
pub const LINK_RAW: u16 = 101;
/// Link type of Linux cooked capture, version 2: LINKTYPE_LINUX_SLL2.
pub const LINK_COOKED: u16 = 276;

/// Maximum length of a frame of most link types in bytes: libpcap's MAXIMUM_SNAPLEN.
pub const MAX_CAPTURED: usize = 262_144;
/// Maximum length of a frame of any link type in bytes: that of a D-Bus message.
pub const MAX_FRAME: usize = 128 << 20;
/// Maximum length of a block in bytes, unless its section describes an interface with longer frames.
pub const MAX_BLOCK: usize = 16 << 20;
/// Maximum memory of the descriptions of all interfaces of a file, in bytes: about 15,000 interfaces.
pub const MAX_METADATA: usize = 8 << 20;

/// Maximum length of a frame of this link type in bytes, as in libpcap. A longer record means that the file is damaged.
pub const fn max_captured(link_type: u16) -> usize {
    const DBUS: u16 = 231;
    const USBPCAP: u16 = 249;
    const EBHSCR: u16 = 279;
    match link_type {
        DBUS => MAX_FRAME,
        EBHSCR => 8 << 20,
        USBPCAP => 1 << 20,
        _ => MAX_CAPTURED,
    }
}
