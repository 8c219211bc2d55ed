//! 802.2 with SNAP, and the spanning tree protocol over it.

use super::link::Addresses;
use super::{DissectStep, DissectStop, Dissector, names, put};

impl Dissector<'_> {
    pub(super) fn llc(&mut self, at: usize, length: usize, addresses: &Addresses) -> DissectStep {
        self.protocol = "llc";
        if length < 3 || !self.has_bytes(at, 3) {
            self.print_truncated();
            self.figures_and_text(at, length);
            self.link_header_len += self.end - at;
            return Ok(());
        }
        let (dsap_field, ssap_field) = (self.u8(at)?, self.u8(at + 1)?);
        let mut control = u16::from(self.u8(at + 2)?);
        let unnumbered = control & 3 == 3;
        let header_len = if unnumbered { 3 } else { 4 };
        if !unnumbered {
            if length < 4 || !self.has_bytes(at, 4) {
                self.print_truncated();
                self.figures_and_text(at, length);
                self.link_header_len += self.end - at;
                return Ok(());
            }
            control |= u16::from(self.u8(at + 3)?) << 8;
        }
        let (dsap, ssap) = (dsap_field & !1, ssap_field & !1);
        if self.options.link_header {
            let kind = |odd: u8, yes, no| if odd & 1 == 1 { yes } else { no };
            let digits = if unnumbered { 2 } else { 4 };
            put!(
                self,
                "LLC, dsap {} (0x{dsap:02x}) {}, ssap {} (0x{ssap:02x}) {}, ctrl 0x{control:0digits$x}: ",
                names::sap_name(dsap).unwrap_or("Unknown"),
                kind(dsap_field, "Group", "Individual"),
                names::sap_name(ssap).unwrap_or("Unknown"),
                kind(ssap_field, "Response", "Command"),
            );
        }
        self.link_header_len += header_len;
        let (inner, inner_len) = (at + header_len, length - header_len);
        match (dsap, ssap, control) {
            (0xaa, 0xaa, 3) => return self.snap(at, inner, inner_len, length, addresses),
            (0x42, 0x42, 3) => return self.stp(inner, inner_len),
            (0x06, 0x06, 3) => return self.ipv4(inner, inner_len),
            _ => {}
        }
        if !self.options.link_header {
            let name = |sap, side| {
                names::sap_name(sap)
                    .map_or_else(|| format!("Unknown {side} 0x{sap:02x}"), Into::into)
            };
            let dsap_name: String = name(dsap, "DSAP");
            match addresses {
                None => put!(self, "{} > {dsap_name} ", name(ssap, "SSAP")),
                Some((src, dst)) if ssap == dsap => put!(self, "{src} > {dst} {dsap_name} "),
                Some((src, dst)) => {
                    put!(self, "{src} {} > {dst} {dsap_name} ", name(ssap, "SSAP"));
                }
            }
        }
        let flags = |poll: bool| match (ssap_field & 1 == 1, poll) {
            (false, false) => "Command",
            (false, true) => "Poll",
            (true, false) => "Response",
            (true, true) => "Final",
        };
        if unnumbered {
            let (command, flags) = (control & 0xef, flags(control & 0x10 != 0));
            let name = match command {
                0x03 => "ui",
                0x0f => "dm",
                0x43 => "disc",
                0x63 => "ua",
                0x6f => "sabme",
                0x87 => "frmr",
                0xaf => "xid",
                0xe3 => "test",
                _ => "",
            };
            if name.is_empty() {
                put!(
                    self,
                    "Unnumbered, {command:02x}, Flags [{flags}], length {length}"
                );
            } else {
                put!(self, "Unnumbered, {name}, Flags [{flags}], length {length}");
            }
            // XID information field of IEEE 802.2 class: format identifier 0x81.
            if name == "xid"
                && inner_len > 0
                && self.check_bytes(inner, 1).and_then(|()| self.u8(inner))? == 0x81
            {
                let (kind, window) = (self.u8(inner + 1)?, self.u8(inner + 2)?);
                put!(self, ": {kind:02x} {window:02x}");
            }
        } else {
            let (flags, receive) = (flags(control & 0x100 != 0), control >> 9 & 0x7f);
            if control & 1 == 1 {
                let name = match control >> 2 & 3 {
                    0 => "Receiver Ready",
                    1 => "Receiver not Ready",
                    2 => "Reject",
                    _ => "?",
                };
                put!(
                    self,
                    "Supervisory, {name}, rcv seq {receive}, Flags [{flags}], length {length}"
                );
                return Ok(());
            }
            let send = control >> 1 & 0x7f;
            put!(
                self,
                "Information, send seq {send}, rcv seq {receive}, Flags [{flags}], length {length}"
            );
        }
        self.print_unknown(at, length);
        Ok(())
    }

    fn snap(
        &mut self,
        begin: usize,
        at: usize,
        length: usize,
        whole: usize,
        addresses: &Addresses,
    ) -> DissectStep {
        self.protocol = "snap";
        self.link_header_len += 5;
        self.check_bytes(at, 5)?;
        if length < 5 {
            return Err(DissectStop::Truncated);
        }
        let organization = self.u32(at)? >> 8;
        let kind = self.u16(at + 3)?;
        let words = |organization: u32| {
            let name = names::organization_name(organization);
            if organization == 0 {
                let kind_name = names::ethertype_name(kind).unwrap_or("Unknown");
                (
                    format!("oui {name} (0x{organization:06x}), "),
                    format!("ethertype {kind_name} (0x{kind:04x})"),
                )
            } else {
                (
                    format!("oui {name} (0x{organization:06x}), "),
                    format!("pid Unknown (0x{kind:04x})"),
                )
            }
        };
        let (oui, kind_words) = words(organization);
        let inner_len = length - 5;
        if self.options.link_header {
            put!(self, "{oui}{kind_words}, length {inner_len}: ");
        }
        let known = matches!(organization, 0 | 0xf8) && self.ethertype(kind, at + 5, inner_len)?;
        if !known {
            if !self.options.link_header {
                if let Some((src, dst)) = addresses {
                    put!(self, "{src} > {dst} ");
                }
                let oui = if organization == 0 {
                    String::new()
                } else {
                    oui
                };
                put!(self, "SNAP, {oui}{kind_words}, length {inner_len}: ");
            }
            self.print_unknown(begin, whole);
        }
        Ok(())
    }

    fn stp(&mut self, at: usize, length: usize) -> DissectStep {
        self.protocol = "stp";
        if length < 4 {
            return Err(DissectStop::Invalid);
        }
        if self.u16(at)? != 0 {
            put!(self, "unknown STP version, length {length}");
            return Ok(());
        }
        let version = self.u8(at + 2)?;
        let name = match version {
            0 => "802.1d",
            2 => "802.1w",
            3 => "802.1s",
            4 => "802.1aq",
            _ => {
                put!(self, "STP Unknown STP protocol (0x{version:02x})");
                return Ok(());
            }
        };
        put!(self, "STP {name}");
        let kind = self.u8(at + 3)?;
        match kind {
            0x00 => put!(self, ", Config"),
            0x02 => put!(self, ", Rapid STP"),
            0x80 => put!(self, ", Topology Change"),
            _ => put!(self, ", Unknown BPDU Type (0x{kind:02x})"),
        }
        match kind {
            0x00 if length < 35 => Err(DissectStop::Invalid),
            0x00 => self.stp_configuration(at, length, false),
            0x02 if length < 36 => Err(DissectStop::Invalid),
            0x02 if matches!(version, 3 | 4) && length >= 102 => {
                let flags = self.stp_flags(at)?;
                put!(self, ", CIST Flags [{flags}], length {length}");
                Ok(())
            }
            0x02 => self.stp_configuration(at, length, true),
            _ => Ok(()),
        }
    }

    fn stp_flags(&self, at: usize) -> DissectStep<String> {
        const FLAGS: [(u32, &str); 6] = [
            (0x01, "Topology change"),
            (0x02, "Proposal"),
            (0x10, "Learn"),
            (0x20, "Forward"),
            (0x40, "Agreement"),
            (0x80, "Topology change ACK"),
        ];
        Ok(Self::flag_names(u32::from(self.u8(at + 4)?), &FLAGS))
    }

    fn stp_bridge(&self, at: usize) -> DissectStep<String> {
        Ok(format!(
            "{:04x}.{}",
            self.u16(at)?,
            self.hardware_address(at + 2, 6)?
        ))
    }

    fn stp_configuration(&mut self, at: usize, length: usize, rapid: bool) -> DissectStep {
        let flags = self.stp_flags(at)?;
        put!(self, ", Flags [{flags}]");
        let (bridge, port) = (self.stp_bridge(at + 17)?, self.u16(at + 25)?);
        put!(self, ", bridge-id {bridge}.{port:04x}, length {length}");
        if self.verbosity() == 0 {
            return Ok(());
        }
        let seconds = |at| Ok(f64::from(self.u16(at)?) / 256.0);
        let (age, max) = (seconds(at + 27)?, seconds(at + 29)?);
        let (hello, delay) = (seconds(at + 31)?, seconds(at + 33)?);
        put!(
            self,
            "\n\tmessage-age {age:.2}s, max-age {max:.2}s, hello-time {hello:.2}s, forwarding-delay {delay:.2}s"
        );
        let (root, cost) = (self.stp_bridge(at + 5)?, self.u32(at + 13)?);
        put!(self, "\n\troot-id {root}, root-pathcost {cost}");
        if rapid {
            let role = ["Unknown", "Alternate", "Root", "Designated"];
            put!(
                self,
                ", port-role {}",
                role[usize::from(self.u8(at + 4)? >> 2 & 3)]
            );
        }
        Ok(())
    }
}
