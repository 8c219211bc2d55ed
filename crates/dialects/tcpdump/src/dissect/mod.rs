//! Dissector: converts bytes into the text of a line, header by header.
//!
//! Every read is checked against the end of the captured bytes. If bytes are missing, `?` ends the line at any depth
//! with ` [|protocol]`, as tcpdump does.

mod arp;
mod icmp;
mod icmp6;
mod igmp;
mod ipv4;
mod ipv6;
mod link;
mod names;
mod tcp;
mod tunnel;
mod udp;

use std::fmt::Write;
use std::net::{Ipv4Addr, Ipv6Addr};

use wb_wire::checksum;

use crate::dump;
use crate::print::{CapturedPacket, DumpForm, LinkType, PacketDirection, PrintOptions};

pub(crate) use tcp::TcpConnections;

/// Reason why a line ends early.
#[derive(Clone, Copy, Debug)]
pub(crate) enum DissectStop {
    /// The bytes end here: ` [|protocol]`.
    Truncated,
    /// The bytes end within a field. tcpdump then leaves all headers at once and loses the end of the link
    /// header, so that `-x` shows it too.
    CutField,
    /// Invalid field: ` (invalid)`.
    Invalid,
}

pub(crate) type DissectStep<T = ()> = Result<T, DissectStop>;

/// Appends to the line.
macro_rules! put {
    ($d:expr, $($arg:tt)*) => {{ let _ = std::fmt::Write::write_fmt($d.out, format_args!($($arg)*)); }};
}
pub(crate) use put;

/// Prints the packet without its timestamp; returns the length of the link header.
pub(crate) fn print_packet(
    out: &mut String,
    packet: &CapturedPacket<'_>,
    options: &PrintOptions,
    connections: &mut TcpConnections,
) -> usize {
    let mut dissector = Dissector {
        out,
        bytes: packet.bytes,
        end: packet.bytes.len(),
        options,
        connections,
        protocol: "",
        link_header_len: 0,
        depth: 0,
        ip: None,
    };
    let length = (packet.original_len as usize).max(packet.bytes.len());
    if let (Some(name), true) = (packet.interface, packet.link != LinkType::Sll2) {
        put!(dissector, "{name:<5} ");
        if packet.direction.is_some() {
            put!(
                dissector,
                "{:<3} ",
                PacketDirection::direction_word(packet.direction)
            );
        }
    }
    let done = match packet.link {
        LinkType::Ethernet => dissector.frame(0, length),
        LinkType::RawIp => dissector.raw_ip(length),
        LinkType::Sll => dissector.sll(length),
        LinkType::Sll2 => dissector.sll2(length, packet.interface),
    };
    match done {
        Ok(()) => {}
        Err(DissectStop::Truncated) => dissector.print_truncated(),
        Err(DissectStop::CutField) => {
            dissector.print_truncated();
            return 0;
        }
        Err(DissectStop::Invalid) => dissector.out.push_str(" (invalid)"),
    }
    dissector.link_header_len
}

/// IP header of a transport header.
#[derive(Clone, Copy, Debug)]
enum IpHeader {
    /// IPv4 header at this offset.
    V4(usize),
    /// IPv6 header at this offset.
    V6(usize),
}

/// State of dissecting one packet.
struct Dissector<'a> {
    out: &'a mut String,
    bytes: &'a [u8],
    /// End of the relevant bytes: the captured length, or less if a header says so.
    end: usize,
    options: &'a PrintOptions,
    connections: &'a mut TcpConnections,
    /// Protocol of the present header, for "[|…]".
    protocol: &'static str,
    link_header_len: usize,
    depth: u32,
    ip: Option<IpHeader>,
}

impl Dissector<'_> {
    /// Maximum depth of nested headers; tcpdump has no limit, but the stack is finite.
    const MAX_DEPTH: u32 = 32;

    fn verbosity(&self) -> u8 {
        self.options.verbose
    }

    fn print_truncated(&mut self) {
        put!(self, " [|{}]", self.protocol);
    }

    /// Runs `inner` one level deeper.
    fn nest(&mut self, inner: impl FnOnce(&mut Self) -> DissectStep) -> DissectStep {
        if self.depth == Self::MAX_DEPTH {
            put!(self, "[nested deeper than {}]", Self::MAX_DEPTH);
            return Ok(());
        }
        self.depth += 1;
        let done = inner(self);
        self.depth -= 1;
        done
    }

    fn has_bytes(&self, at: usize, len: usize) -> bool {
        at.checked_add(len).is_some_and(|end| end <= self.end)
    }

    fn need_bytes(&self, at: usize, len: usize) -> DissectStep {
        if self.has_bytes(at, len) {
            Ok(())
        } else {
            Err(DissectStop::CutField)
        }
    }

    /// Like [`Self::need_bytes`], for checks that tcpdump makes before reading.
    fn check_bytes(&self, at: usize, len: usize) -> DissectStep {
        self.need_bytes(at, len).map_err(|_| DissectStop::Truncated)
    }

    fn slice(&self, at: usize, len: usize) -> DissectStep<&[u8]> {
        self.need_bytes(at, len)?;
        Ok(&self.bytes[at..at + len])
    }

    fn array<const N: usize>(&self, at: usize) -> DissectStep<[u8; N]> {
        let mut array = [0; N];
        array.copy_from_slice(self.slice(at, N)?);
        Ok(array)
    }

    fn u8(&self, at: usize) -> DissectStep<u8> {
        Ok(self.array::<1>(at)?[0])
    }

    fn u16(&self, at: usize) -> DissectStep<u16> {
        Ok(u16::from_be_bytes(self.array(at)?))
    }

    fn u32(&self, at: usize) -> DissectStep<u32> {
        Ok(u32::from_be_bytes(self.array(at)?))
    }

    fn v4(&self, at: usize) -> DissectStep<Ipv4Addr> {
        Ok(Ipv4Addr::from(self.array::<4>(at)?))
    }

    fn v6(&self, at: usize) -> DissectStep<V6> {
        Ok(V6(self.array(at)?))
    }

    /// A hardware address of any length.
    fn hardware_address(&self, at: usize, len: usize) -> DissectStep<String> {
        let mut text = String::new();
        for (n, byte) in self.slice(at, len)?.iter().enumerate() {
            let _ = write!(text, "{}{byte:02x}", if n == 0 { "" } else { ":" });
        }
        Ok(text)
    }

    /// Checksum sum over `len` bytes; `None` unless all are captured.
    fn sum(&self, at: usize, len: usize) -> Option<u64> {
        self.slice(at, len).ok().map(checksum::sum)
    }

    /// Sum of the pseudo header of the present transport header.
    fn pseudo_header_sum(&self, protocol: u8, len: usize) -> Option<u64> {
        match self.ip? {
            IpHeader::V4(at) => {
                let (src, dst) = (self.v4(at + 12).ok()?, self.ipv4_destination(at).ok()?);
                Some(checksum::pseudo_v4(src, dst, protocol, len as u16))
            }
            IpHeader::V6(at) => {
                let src = Ipv6Addr::from(self.array::<16>(at + 8).ok()?);
                let dst = Ipv6Addr::from(self.ipv6_destination(at).ok()?);
                Some(checksum::pseudo_v6(src, dst, protocol, len as u32))
            }
        }
    }

    /// Prints the bytes of an unsupported protocol, unless options exclude it. Returns true
    /// if they were printed.
    fn print_unknown(&mut self, at: usize, len: usize) -> bool {
        let asked_for = matches!(
            self.options.dump,
            DumpForm::Hex { .. } | DumpForm::HexAndText { .. }
        );
        if !self.options.quiet && !asked_for {
            self.figures_and_text(at, len);
            return true;
        }
        false
    }

    /// Bytes of a message in hexadecimal and as text.
    fn figures_and_text(&mut self, at: usize, len: usize) {
        let end = at.saturating_add(len).min(self.end);
        if at < end {
            dump::append_hex(self.out, &self.bytes[at..end], "\n\t", true);
        }
    }

    /// Bytes of an option in hexadecimal.
    fn print_option_bytes(&mut self, at: usize, len: usize, indent: &str) {
        let end = at.saturating_add(len).min(self.end);
        if at < end {
            dump::append_hex(self.out, &self.bytes[at..end], indent, false);
        }
    }

    /// Names of the bits set in `flags`, lowest first.
    fn flag_names(flags: u32, names: &[(u32, &str)]) -> String {
        let set: Vec<_> = names
            .iter()
            .filter(|(bit, _)| flags & bit != 0)
            .map(|(_, name)| *name)
            .collect();
        if set.is_empty() {
            "none".into()
        } else {
            set.join(", ")
        }
    }
}

/// An IPv6 address. IPv4-compatible addresses are written in dotted form, which `std` no longer supports.
#[derive(Clone, Copy, PartialEq, Eq)]
struct V6([u8; 16]);

impl std::fmt::Display for V6 {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let V6(b) = self;
        if b[..12] == [0; 12] && b[12..14] != [0; 2] {
            write!(f, "::{}.{}.{}.{}", b[12], b[13], b[14], b[15])
        } else {
            Ipv6Addr::from(*b).fmt(f)
        }
    }
}
