//! Printing of packets on standard output.

use std::io::Write;

use anyhow::{Result, bail};
use jiff::tz::TimeZone;
use wb_pcapng::CaptureInterface;
use wb_tcpdump::print::{
    CapturedPacket as Line, LinkType, PacketDirection, PacketPrinter, PrintOptions,
};

use super::{input::Packet, moment::offsets, written};
use crate::Output;

/// Size of the output buffer, in bytes.
const GATHERED: usize = 64 << 10;

/// Options of printed lines.
#[derive(Clone, Debug)]
pub struct Printing {
    /// Options of the printer.
    pub options: PrintOptions,
    /// Zone of printed times.
    pub zone: TimeZone,
    /// True if each packet is written at once.
    pub line_by_line: bool,
}

/// Prints packets as tcpdump does.
pub(super) struct Show<'a> {
    output: &'a dyn Output,
    printer: PacketPrinter,
    text: String,
    /// True if each packet is written at once.
    line_by_line: bool,
}

impl<'a> Show<'a> {
    pub(super) fn new(printing: &Printing, output: &'a dyn Output) -> Self {
        let printer = PacketPrinter::new(printing.options);
        Self {
            output,
            printer: printer.in_zone(offsets(printing.zone.clone())),
            text: String::new(),
            line_by_line: printing.line_by_line,
        }
    }

    /// Prints a packet, with its interface if there are several.
    ///
    /// # Errors
    /// If its link type cannot be printed, or standard output cannot be written.
    pub(super) fn packet(
        &mut self,
        packet: &Packet,
        interfaces: &[CaptureInterface],
    ) -> Result<()> {
        let Some(link) = LinkType::from_number(packet.link_type) else {
            self.flush()?;
            bail!(
                "link type {} cannot be printed; print the packets with --as tcpdump or write them with -w",
                packet.link_type
            );
        };
        let several = interfaces.len() > 1 && link != LinkType::Sll2;
        let interface = interfaces[packet.interface].name.as_deref();
        let line = Line {
            stamp_ns: packet.stamp_ns,
            interface: interface.filter(|_| several),
            direction: packet.flags.and_then(direction),
            original_len: packet.original_len,
            bytes: &packet.bytes,
            link,
        };
        self.printer.line(&mut self.text, &line);
        if self.line_by_line || self.text.len() >= GATHERED {
            self.flush()?;
        }
        Ok(())
    }

    /// Writes the buffered text.
    ///
    /// # Errors
    /// If standard output cannot be written.
    pub(super) fn flush(&mut self) -> Result<()> {
        let bytes = self.text.as_bytes();
        let out = self.output.packets();
        let result = out.and_then(|mut out| out.write_all(bytes).and_then(|()| out.flush()));
        self.text.clear();
        written(result, "-")
    }
}

/// epb_flags: bits 0-1 give the direction, bits 2-4 the kind of address.
const fn direction(flags: u32) -> Option<PacketDirection> {
    match (flags & 3, flags >> 2 & 7) {
        (2, _) => Some(PacketDirection::Out),
        (_, 2) => Some(PacketDirection::Multicast),
        (_, 3) => Some(PacketDirection::Broadcast),
        (_, 4) => Some(PacketDirection::Other),
        (1, _) => Some(PacketDirection::In),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_of_a_packet() {
        assert_eq!(direction(0), None);
        assert_eq!(direction(1), Some(PacketDirection::In));
        assert_eq!(direction(2), Some(PacketDirection::Out));
        assert_eq!(direction(1 | 3 << 2), Some(PacketDirection::Broadcast));
        assert_eq!(direction(1 | 1 << 2), Some(PacketDirection::In));
        assert_eq!(direction(2 | 2 << 2), Some(PacketDirection::Out));
    }
}
