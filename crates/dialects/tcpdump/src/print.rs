//! Text of one packet: one line (or several, with `-v` and `-x`), as `tcpdump -n` prints it.
//!
//! Knows bytes, a timestamp and options, not the source of packets.

use crate::dissect::{self, TcpConnections};
use crate::dump;
use crate::stamp::Stamps;

/// Format of the timestamp.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TimeForm {
    /// `22:13:20.123456`, local time.
    #[default]
    TimeOfDay,
    /// `-t`: no timestamp.
    None,
    /// `-tt`: seconds since 1970.
    Unix,
    /// `-ttt`: time since the previous packet.
    SincePrevious,
    /// `-tttt`: date and time of day, local time.
    DateTime,
    /// `-ttttt`: time since the first packet.
    SinceFirst,
}

/// Precision of a timestamp.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Precision {
    /// Six digits.
    #[default]
    Micro,
    /// Nine digits.
    Nano,
}

impl Precision {
    pub(crate) const fn unit_ns(self) -> u64 {
        match self {
            Self::Micro => 1000,
            Self::Nano => 1,
        }
    }
}

/// Dump of the packet's bytes after the line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DumpForm {
    /// No dump.
    #[default]
    None,
    /// `-x`, with the link header `-xx`.
    Hex {
        /// Includes the link header.
        link: bool,
    },
    /// `-X`, with the link header `-XX`.
    HexAndText {
        /// Includes the link header.
        link: bool,
    },
    /// `-A`, with the link header `-AA`.
    Text {
        /// Includes the link header.
        link: bool,
    },
}

/// The options of tcpdump that change a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PrintOptions {
    /// `-t` to `-ttttt`.
    pub time: TimeForm,
    /// `--micro`, `--nano`.
    pub precision: Precision,
    /// `-e`: prints the link header.
    pub link_header: bool,
    /// `-q`: prints less of each protocol.
    pub quiet: bool,
    /// Number of `-v` options.
    pub verbose: u8,
    /// `-x`, `-X`, `-A`.
    pub dump: DumpForm,
    /// `-#`: prints the number of the packet first.
    pub number: bool,
    /// `-S`: prints TCP sequence numbers as on the wire.
    pub absolute_sequence: bool,
    /// `-K`: with `-v`, does not check the checksums of IP, TCP and UDP.
    pub unverified: bool,
}

/// Link type: the header at the beginning of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkType {
    /// `LINKTYPE_ETHERNET`, 1.
    Ethernet,
    /// `LINKTYPE_RAW`, 101, also `_IPV4` 228 and `_IPV6` 229: no link header.
    RawIp,
    /// `LINKTYPE_LINUX_SLL`, 113.
    Sll,
    /// `LINKTYPE_LINUX_SLL2`, 276.
    Sll2,
}

impl LinkType {
    /// Link type with this number in a capture file.
    pub const fn from_number(number: u16) -> Option<Self> {
        match number {
            1 => Some(Self::Ethernet),
            101 | 228 | 229 => Some(Self::RawIp),
            113 => Some(Self::Sll),
            276 => Some(Self::Sll2),
            _ => None,
        }
    }

    /// Name and description, as in `link-type EN10MB (Ethernet)`.
    pub const fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Ethernet => ("EN10MB", "Ethernet"),
            Self::RawIp => ("RAW", "Raw IP"),
            Self::Sll => ("LINUX_SLL", "Linux cooked v1"),
            Self::Sll2 => ("LINUX_SLL2", "Linux cooked v2"),
        }
    }
}

/// Direction of a packet, as reported by the kernel (`sockaddr_ll.sll_pkttype`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketDirection {
    /// To this host.
    In,
    /// Broadcast.
    Broadcast,
    /// Multicast.
    Multicast,
    /// To another host.
    Other,
    /// From this host.
    Out,
}

impl PacketDirection {
    pub(crate) const fn from_packet_type(kind: u16) -> Option<Self> {
        match kind {
            0 => Some(Self::In),
            1 => Some(Self::Broadcast),
            2 => Some(Self::Multicast),
            3 => Some(Self::Other),
            4 => Some(Self::Out),
            _ => None,
        }
    }

    pub(crate) const fn direction_word(of: Option<Self>) -> &'static str {
        match of {
            Some(Self::In) => "In",
            Some(Self::Broadcast) => "B",
            Some(Self::Multicast) => "M",
            Some(Self::Other) => "P",
            Some(Self::Out) => "Out",
            None => "?",
        }
    }
}

/// One captured packet.
#[derive(Clone, Copy, Debug)]
pub struct CapturedPacket<'a> {
    /// Timestamp, ns since 1970.
    pub stamp_ns: u64,
    /// Receiving interface, if the capture has several. In a cooked capture (SLL2), the
    /// name of the interface index in its header.
    pub interface: Option<&'a str>,
    /// Direction, if known. Printed only with the interface; cooked captures take it
    /// from their own header.
    pub direction: Option<PacketDirection>,
    /// Length before the cut to the snapshot length, without FCS.
    pub original_len: u32,
    /// Captured bytes.
    pub bytes: &'a [u8],
    /// Link type.
    pub link: LinkType,
}

impl<'a> CapturedPacket<'a> {
    /// Makes a packet that is captured completely, on the only interface.
    pub const fn new(stamp_ns: u64, bytes: &'a [u8], link: LinkType) -> Self {
        Self {
            stamp_ns,
            interface: None,
            direction: None,
            original_len: bytes.len() as u32,
            bytes,
            link,
        }
    }
}

/// Offset from UTC at a timestamp, in seconds east.
type ZoneOffset = Box<dyn Fn(u64) -> i32 + Send>;

/// Prints the packets of one capture in order.
pub struct PacketPrinter {
    options: PrintOptions,
    zone: ZoneOffset,
    stamps: Stamps,
    packets: u64,
    connections: TcpConnections,
}

impl std::fmt::Debug for PacketPrinter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Printer")
            .field("options", &self.options)
            .field("packets", &self.packets)
            .finish_non_exhaustive()
    }
}

impl PacketPrinter {
    /// Maximum number of TCP connections remembered for relative sequence numbers.
    pub const CONNECTIONS: usize = TcpConnections::MAX;

    /// Makes a printer whose local time is UTC.
    pub fn new(options: PrintOptions) -> Self {
        Self {
            options,
            zone: Box::new(|_| 0),
            stamps: Stamps::default(),
            packets: 0,
            connections: TcpConnections::default(),
        }
    }

    /// Sets local time: `zone` returns the seconds east of UTC at a timestamp (ns since 1970).
    #[must_use]
    pub fn in_zone(mut self, zone: impl Fn(u64) -> i32 + Send + 'static) -> Self {
        self.zone = Box::new(zone);
        self
    }

    /// Packets printed so far.
    pub const fn packet_count(&self) -> u64 {
        self.packets
    }

    /// Appends tcpdump's text for `packet`, with the line end.
    pub fn line(&mut self, out: &mut String, packet: &CapturedPacket<'_>) {
        use std::fmt::Write;
        self.packets += 1;
        if self.options.number {
            let _ = write!(out, "{:5}  ", self.packets);
        }
        if packet.bytes.is_empty() {
            // tcpdump ignores the timestamp of such a record and prints none.
            let _ = writeln!(
                out,
                "[Invalid header: caplen==0, len=={}]",
                packet.original_len
            );
            return;
        }
        let zone = (self.zone)(packet.stamp_ns);
        let PrintOptions {
            time, precision, ..
        } = self.options;
        self.stamps
            .write(out, packet.stamp_ns, zone, time, precision);
        let header = dissect::print_packet(out, packet, &self.options, &mut self.connections);
        let from = |link: bool| {
            if link {
                0
            } else {
                header.min(packet.bytes.len())
            }
        };
        match self.options.dump {
            DumpForm::None => {}
            DumpForm::Hex { link } => {
                dump::append_hex(out, &packet.bytes[from(link)..], "\n\t", false)
            }
            DumpForm::HexAndText { link } => {
                dump::append_hex(out, &packet.bytes[from(link)..], "\n\t", true)
            }
            DumpForm::Text { link } => dump::append_ascii(out, &packet.bytes[from(link)..]),
        }
        out.push('\n');
    }
}
