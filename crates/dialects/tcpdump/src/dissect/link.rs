//! Link headers: Ethernet with its tags, cooked headers, or none.

use super::{DissectStep, DissectStop, Dissector, PacketDirection, names, put};

/// Largest value of the type field that is a length: IEEE 802.3.
const MAX_LENGTH: u16 = 1500;

fn is_tag(ethertype: u16) -> bool {
    matches!(ethertype, 0x8100 | 0x88a8 | 0x9100 | 0x9200)
}

fn tag_words(tci: u16) -> String {
    let dei = if tci & 0x1000 == 0 { "" } else { ", DEI" };
    format!("vlan {}, p {}{dei}, ", tci & 0xfff, tci >> 13)
}

/// Header of IEEE 802.2 in front of a message of the spanning tree protocol.
const STP: [u8; 3] = [0x42, 0x42, 0x03];

impl Dissector<'_> {
    /// A frame inside another packet.
    pub(super) fn ethernet(&mut self, at: usize, length: usize) -> DissectStep {
        let outer = self.link_header_len;
        let done = self.nest(|d| d.frame(at, length));
        self.link_header_len = outer;
        done
    }

    /// A frame of `length` bytes (captured or not) at `at`.
    pub(super) fn frame(&mut self, at: usize, length: usize) -> DissectStep {
        self.protocol = "ether";
        if length < 14 || !self.has_bytes(at, 14) {
            self.link_header_len += self.end - at;
            return Err(DissectStop::Truncated);
        }
        let whole = length;
        let e = self.options.link_header;
        let (src, dst) = (
            self.hardware_address(at + 6, 6)?,
            self.hardware_address(at, 6)?,
        );
        if e {
            put!(self, "{src} > {dst}, ");
        }
        let mut ethertype = self.u16(at + 12)?;
        let (mut at, mut length) = (at + 14, length - 14);
        self.link_header_len += 14;
        let mut tagged = false;
        while is_tag(ethertype) {
            self.protocol = "vlan";
            if length < 4 || !self.has_bytes(at, 4) {
                self.link_header_len += self.end - at;
                return Err(DissectStop::Truncated);
            }
            if e {
                self.ethertype_words(ethertype, (!tagged).then_some(whole));
            }
            tagged = true;
            let (tci, inner) = (self.u16(at)?, self.u16(at + 2)?);
            if e {
                put!(self, "{}", tag_words(tci));
                if inner > MAX_LENGTH && !is_tag(inner) {
                    self.ethertype_words(inner, None);
                }
            }
            (ethertype, at, length) = (inner, at + 4, length - 4);
            self.link_header_len += 4;
        }
        if ethertype <= MAX_LENGTH {
            if usize::from(ethertype) < length {
                length = usize::from(ethertype);
                self.end = self.end.min(at + length);
            }
            if !e && !self.is_stp(at) {
                put!(self, "{src} > {dst}, ");
            }
            if e || !self.is_stp(at) {
                put!(self, "802.3, length {length}: ");
            }
            self.stp_or_bytes(at, length);
            return Ok(());
        }
        if e && !tagged {
            self.ethertype_words(ethertype, Some(whole));
        }
        if !self.ethertype(ethertype, at, length)? {
            if !e {
                put!(self, "{src} > {dst}, ");
                self.ethertype_words(ethertype, Some(whole));
            }
            self.print_unknown(at, usize::MAX);
        }
        Ok(())
    }

    fn is_stp(&self, at: usize) -> bool {
        self.slice(at, STP.len()).is_ok_and(|header| header == STP)
    }

    /// Prints the content of an 802.3 frame, which has a length instead of an Ethernet type.
    fn stp_or_bytes(&mut self, at: usize, length: usize) {
        if self.is_stp(at) {
            put!(self, "STP, length {}", length.saturating_sub(STP.len()));
        } else {
            self.print_unknown(at, length);
        }
    }

    fn ethertype_words(&mut self, ethertype: u16, length: Option<usize>) {
        let name = names::ethertype_name(ethertype);
        match (self.options.quiet, name) {
            (true, None) => put!(self, "Unknown Ethertype (0x{ethertype:04x})"),
            (true, Some(name)) => put!(self, "{name}"),
            (false, name) => {
                put!(
                    self,
                    "ethertype {} (0x{ethertype:04x})",
                    name.unwrap_or("Unknown")
                );
            }
        }
        match length {
            Some(length) => put!(self, ", length {length}: "),
            None => put!(self, ", "),
        }
    }

    /// Prints the protocol of an Ethernet type; returns false if it is unknown.
    pub(super) fn ethertype(
        &mut self,
        ethertype: u16,
        at: usize,
        length: usize,
    ) -> DissectStep<bool> {
        match ethertype {
            0x0800 => self.ipv4(at, length)?,
            0x86dd => self.ipv6(at, length)?,
            0x0806 | 0x8035 => self.arp(at, length)?,
            0x8847 | 0x8848 => self.mpls(at, length)?,
            0x6558 => self.ethernet(at, length)?,
            0x88cc => {
                self.protocol = "lldp";
                put!(self, "LLDP, length {length}");
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    pub(super) fn raw_ip(&mut self, length: usize) -> DissectStep {
        self.protocol = "raw";
        if self.options.link_header {
            put!(self, "ip: ");
        }
        self.ip_of_any_version(0, length)
    }

    /// An IP packet; its first field gives the version.
    pub(super) fn ip_of_any_version(&mut self, at: usize, length: usize) -> DissectStep {
        match self.u8(at)? >> 4 {
            4 => self.ipv4(at, length),
            6 => self.ipv6(at, length),
            other => {
                put!(self, "unknown ip {other}");
                Ok(())
            }
        }
    }

    pub(super) fn sll(&mut self, length: usize) -> DissectStep {
        self.protocol = "sll";
        self.need_bytes(0, 16)?;
        self.link_header_len = 16;
        let kind = PacketDirection::from_packet_type(self.u16(0)?);
        let cooked = Cooked {
            head: format!("{:>3} ", PacketDirection::direction_word(kind)),
            address_len: self.u16(4)?,
            address_at: 6,
            protocol: self.u16(14)?,
            length,
        };
        if self.options.link_header {
            self.cooked_header(&cooked)?;
        }
        self.cooked(&cooked, 16)
    }

    pub(super) fn sll2(&mut self, length: usize, interface: Option<&str>) -> DissectStep {
        self.protocol = "sll2";
        self.need_bytes(0, 20)?;
        self.link_header_len = 20;
        let kind = PacketDirection::from_packet_type(u16::from(self.u8(10)?));
        put!(
            self,
            "{:<5} {:<3} ",
            interface.unwrap_or("?"),
            PacketDirection::direction_word(kind)
        );
        let cooked = Cooked {
            head: format!("ifindex {} ", self.u32(4)?),
            address_len: u16::from(self.u8(11)?),
            address_at: 12,
            protocol: self.u16(0)?,
            length,
        };
        if self.options.link_header {
            self.cooked_header(&cooked)?;
        }
        self.cooked(&cooked, 20)
    }

    fn cooked_header(&mut self, cooked: &Cooked) -> DissectStep {
        put!(self, "{}", cooked.head);
        if cooked.address_len == 6 {
            let address = self.hardware_address(cooked.address_at, 6)?;
            put!(self, "{address} ");
        }
        if !self.options.quiet {
            match cooked.protocol {
                1 => put!(self, "802.3"),
                4 => put!(self, "802.2"),
                other => {
                    let name = names::ethertype_name(other).unwrap_or("Unknown");
                    put!(self, "ethertype {name} (0x{other:04x})");
                }
            }
            put!(self, ", length {}: ", cooked.length);
        }
        Ok(())
    }

    fn cooked(&mut self, cooked: &Cooked, header_len: usize) -> DissectStep {
        let e = self.options.link_header;
        let mut protocol = cooked.protocol;
        let (mut at, mut length) = (header_len, cooked.length - header_len);
        loop {
            if protocol <= MAX_LENGTH {
                self.stp_or_bytes(at, length);
                return Ok(());
            }
            if protocol != 0x8100 {
                break;
            }
            self.protocol = "vlan";
            if length < 4 || !self.has_bytes(at, 4) {
                self.link_header_len += self.end - at;
                return Err(DissectStop::Truncated);
            }
            let (tci, inner) = (self.u16(at)?, self.u16(at + 2)?);
            if e {
                put!(self, "{}", tag_words(tci));
            }
            if !self.options.quiet {
                put!(
                    self,
                    "ethertype {}, ",
                    names::ethertype_name(inner).unwrap_or("Unknown")
                );
            }
            (protocol, at, length) = (inner, at + 4, length - 4);
            self.link_header_len += 4;
        }
        if !self.ethertype(protocol, at, length)? {
            if !e {
                self.cooked_header(cooked)?;
            }
            self.print_unknown(at, usize::MAX);
        }
        Ok(())
    }
}

/// Parts that both cooked headers have.
struct Cooked {
    head: String,
    address_len: u16,
    address_at: usize,
    protocol: u16,
    length: usize,
}
