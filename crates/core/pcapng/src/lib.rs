//! pcap and pcapng blocks over byte slices.
//!
//! Pure: a capture file comes in as one slice and goes out as bytes appended to a buffer. Knows no
//! files, no clock, and nothing of what is in a frame. Stamps are wall-clock nanoseconds since 1970.
//!
//! ```
//! use wb_pcapng::{LINK_ETHERNET, PcapWriter, Reader};
//!
//! let mut file = Vec::new();
//! let mut writer = PcapWriter::new(LINK_ETHERNET, &mut file);
//! writer.record(1_700_000_000_123_456_789, 1514, &[0; 60], &mut file);
//!
//! let record = Reader::new(&file)?.next().unwrap()?;
//! assert_eq!((record.stamp_ns, record.original_len), (1_700_000_000_123_456_789, 1514));
//! # Ok::<(), wb_pcapng::Error>(())
//! ```

#![forbid(unsafe_code)]

mod bytes;
mod error;
mod pcap;
mod pcapng;
mod reader;

pub use error::{Error, Problem};
pub use pcap::PcapWriter;
pub use pcapng::{PcapngWriter, TimeUnit};
pub use reader::{Format, Interface, Reader, Record};

/// Link type of Ethernet frames: LINKTYPE_ETHERNET.
pub const LINK_ETHERNET: u16 = 1;
/// Link type of bare IP packets: LINKTYPE_RAW.
pub const LINK_RAW: u16 = 101;

/// The most bytes of one frame in a file: libpcap's MAXIMUM_SNAPLEN. A record that claims more is damage.
pub const MAX_CAPTURED: usize = 262_144;
