//! IPv4, and the protocols above IPv4 and IPv6 by number.

use std::net::Ipv4Addr;

use wb_wire::checksum;

use super::{DissectStep, DissectStop, Dissector, IpHeader, names, put};

impl Dissector<'_> {
    pub(super) fn ipv4(&mut self, at: usize, length: usize) -> DissectStep {
        self.nest(|d| d.ipv4_packet(at, length))
    }

    fn ipv4_packet(&mut self, at: usize, length: usize) -> DissectStep {
        self.protocol = "ip";
        let version = self.u8(at)? >> 4;
        if version == 6 {
            put!(self, "IP6, wrong link-layer encapsulation");
            return Err(DissectStop::Invalid);
        }
        if !self.options.link_header {
            put!(self, "IP ");
        }
        self.check_bytes(at, 20)?;
        if length < 20 {
            put!(self, "truncated-ip {length}");
            return Ok(());
        }
        let header_len = usize::from(self.u8(at)? & 0xf) * 4;
        if header_len < 20 {
            put!(self, "bad-hlen {header_len}");
            return Ok(());
        }
        if !self.has_bytes(at, header_len) {
            let there = self.end - at;
            put!(
                self,
                " [remaining caplen({there}) < header length({header_len})]"
            );
            return Err(DissectStop::Truncated);
        }
        let total = usize::from(self.u16(at + 2)?);
        if length < total {
            put!(self, "truncated-ip - {} bytes missing! ", total - length);
        }
        if total < header_len {
            put!(self, "bad-len {total}");
            return Ok(());
        }
        self.end = self.end.min(at + total);
        let payload_len = total - header_len;
        let fragment = self.u16(at + 6)?;
        let protocol = self.u8(at + 9)?;
        if self.verbosity() > 0 {
            self.ipv4_header(at, header_len, fragment, protocol)?;
        }
        let (src, dst) = (self.v4(at + 12)?, self.v4(at + 16)?);
        self.ip = Some(IpHeader::V4(at));
        if fragment & 0x1fff == 0 {
            // These print the addresses themselves, with their ports.
            if !matches!(protocol, 6 | 17 | 33 | 132) {
                put!(self, "{src} > {dst}: ");
            }
            return self.protocol_over_ip(
                protocol,
                at + header_len,
                payload_len,
                fragment & 0x2000 != 0,
            );
        }
        // A later fragment has no header to print.
        put!(self, "{src} > {dst}: ip-proto-{protocol}");
        Ok(())
    }

    fn ipv4_header(
        &mut self,
        at: usize,
        header_len: usize,
        fragment: u16,
        protocol: u8,
    ) -> DissectStep {
        let tos = self.u8(at + 1)?;
        let congestion = ["", ",ECT(1)", ",ECT(0)", ",CE"][usize::from(tos & 3)];
        put!(self, "(tos 0x{tos:x}{congestion}");
        let ttl = self.u8(at + 8)?;
        if ttl >= 1 {
            put!(self, ", ttl {ttl}");
        }
        let (id, total) = (self.u16(at + 4)?, self.u16(at + 2)?);
        let offset = u32::from(fragment & 0x1fff) * 8;
        let flags = Self::flag_names(
            u32::from(fragment),
            &[(0x2000, "+"), (0x4000, "DF"), (0x8000, "rsvd")],
        );
        put!(
            self,
            ", id {id}, offset {offset}, flags [{flags}], proto {} ({protocol}), length {total}",
            names::protocol_name(protocol)
        );
        if header_len > 20 {
            put!(self, ", options (");
            self.ipv4_options(at + 20, header_len - 20)?;
            put!(self, ")");
        }
        if !self.options.unverified
            && let Some(sum) = self.sum(at, header_len)
        {
            let folded = checksum::fold(sum);
            if folded != 0xffff {
                let found = self.u16(at + 10)?;
                let right = wb_wire::checksum::finish(sum + u64::from(!found));
                put!(self, ", bad cksum {found:x} (->{right:x})!");
            }
        }
        put!(self, ")\n    ");
        Ok(())
    }

    fn ipv4_options(&mut self, mut at: usize, mut length: usize) -> DissectStep {
        let mut separator = "";
        while length > 0 {
            put!(self, "{separator}");
            separator = ",";
            let kind = self.u8(at)?;
            let name = match kind {
                0 => "EOL",
                1 => "NOP",
                7 => "RR",
                0x44 => "timestamp",
                0x52 => "traceroute",
                0x82 => "security",
                0x83 => "LSRR",
                0x89 => "SSRR",
                0x94 => "RA",
                _ => "",
            };
            if name.is_empty() {
                put!(self, "unknown {kind}");
            } else {
                put!(self, "{name}");
            }
            if kind == 0 {
                return Ok(());
            }
            if kind == 1 {
                (at, length) = (at + 1, length - 1);
                continue;
            }
            let option_len = usize::from(self.u8(at + 1)?);
            if option_len < 2 || option_len > length {
                put!(self, " [bad length {option_len}]");
                return Ok(());
            }
            self.need_bytes(at, option_len)?;
            match kind {
                7 | 0x83 | 0x89 => self.ipv4_route(at, option_len)?,
                0x44 => self.ipv4_stamps(at, option_len)?,
                0x94 if option_len < 4 => put!(self, " [bad length {option_len}]"),
                0x94 => {
                    let value = self.u16(at + 2)?;
                    if value != 0 {
                        put!(self, " value {value}");
                    }
                }
                _ => {}
            }
            (at, length) = (at + option_len, length - option_len);
        }
        Ok(())
    }

    fn ipv4_route(&mut self, at: usize, length: usize) -> DissectStep {
        if length < 3 {
            put!(self, " [bad length {length}]");
            return Ok(());
        }
        if (length + 1) & 3 != 0 {
            put!(self, " [bad length {length}]");
        }
        let pointer = usize::from(self.u8(at + 2)?).wrapping_sub(1);
        if pointer < 3 || (pointer.wrapping_add(1)) & 3 != 0 {
            put!(self, " [bad ptr {}]", self.u8(at + 2)?);
        }
        for n in (3..length).step_by(4) {
            let address = self.v4(at + n)?;
            put!(self, " {address}");
            if pointer > n {
                put!(self, ",");
            }
        }
        Ok(())
    }

    fn ipv4_stamps(&mut self, at: usize, length: usize) -> DissectStep {
        if length < 4 {
            put!(self, " [bad length {length}]");
            return Ok(());
        }
        put!(self, " TS{{");
        let flags = self.u8(at + 3)?;
        let hop_len = if flags & 0xf == 0 { 4 } else { 8 };
        if !(length - 4).is_multiple_of(hop_len) {
            put!(self, "[bad length {length}]");
        }
        let pointer = usize::from(self.u8(at + 2)?).wrapping_sub(1);
        if pointer < 4 || !pointer.wrapping_sub(4).is_multiple_of(hop_len) {
            put!(self, "[bad ptr {}]", self.u8(at + 2)?);
        }
        match flags & 0xf {
            0 => put!(self, "TSONLY"),
            1 => put!(self, "TS+ADDR"),
            3 => put!(self, "PRESPEC"),
            other => {
                put!(self, "[bad ts type {other}]}}");
                return Ok(());
            }
        }
        for n in (4..length).step_by(hop_len) {
            let mark = if pointer == n { " ^ " } else { " " };
            let stamp = self.u32(at + n + hop_len - 4)?;
            let address = if hop_len == 8 {
                self.v4(at + n)?.to_string()
            } else {
                String::new()
            };
            put!(self, "{mark}{stamp}@{address}");
        }
        if pointer == length {
            put!(self, " ^ ");
        }
        match flags >> 4 {
            0 => put!(self, "}}"),
            missed => put!(self, " [{missed} hops not recorded]}} "),
        }
        Ok(())
    }

    /// Final destination for the pseudo header: with a source route, the last hop.
    pub(super) fn ipv4_destination(&self, at: usize) -> DissectStep<Ipv4Addr> {
        let header_len = usize::from(self.u8(at)? & 0xf) * 4;
        let mut option = at + 20;
        let end = at + header_len;
        while option < end {
            let (kind, len) = match self.u8(option)? {
                0 => break,
                1 => (1, 1),
                kind => (kind, usize::from(self.u8(option + 1)?)),
            };
            if len == 0 || option + len > end {
                break;
            }
            if matches!(kind, 0x83 | 0x89) && len >= 7 {
                return self.v4(option + len - 4);
            }
            option += len;
        }
        self.v4(at + 16)
    }

    /// Prints the protocol with this number, after an IP header or an extension header.
    pub(super) fn protocol_over_ip(
        &mut self,
        protocol: u8,
        at: usize,
        length: usize,
        fragmented: bool,
    ) -> DissectStep {
        let v6 = matches!(self.ip, Some(IpHeader::V6(_)));
        match protocol {
            1 if !v6 => self.icmp(at, length, fragmented),
            2 if v6 => {
                put!(self, "[IGMP requires IPv4]");
                Err(DissectStop::Invalid)
            }
            2 => self.igmp(at, length),
            4 => self.ipv4(at, length),
            6 => self.tcp(at, length, fragmented),
            17 => self.udp(at, length, fragmented),
            33 => self.ports_then_unknown(protocol, at, length),
            41 => self.ipv6(at, length),
            47 => self.gre(at, length),
            50 => self.esp(at, length),
            58 if v6 => self.icmp6(at, length, fragmented),
            132 => self.ports_then_unknown(protocol, at, length),
            _ => {
                put!(self, " ip-proto-{protocol} {length}");
                Ok(())
            }
        }
    }

    /// SCTP and DCCP begin with ports like UDP; the rest is not dissected.
    fn ports_then_unknown(&mut self, protocol: u8, at: usize, length: usize) -> DissectStep {
        self.protocol = if protocol == 132 { "sctp" } else { "dccp" };
        self.need_bytes(at, 12)?;
        let (sport, dport) = (self.u16(at)?, self.u16(at + 2)?);
        self.endpoints(sport, dport, protocol)?;
        if protocol == 132 {
            put!(self, "sctp");
        } else {
            put!(self, "DCCP, length {length}");
        }
        Ok(())
    }

    /// `source.port > destination.port: `; only the ports after an extension header.
    pub(super) fn endpoints(&mut self, sport: u16, dport: u16, protocol: u8) -> DissectStep {
        match self.ip {
            Some(IpHeader::V4(at)) if self.u8(at + 9)? == protocol => {
                let (src, dst) = (self.v4(at + 12)?, self.v4(at + 16)?);
                put!(self, "{src}.{sport} > {dst}.{dport}: ");
            }
            Some(IpHeader::V6(at)) if self.u8(at + 6)? == protocol => {
                let (src, dst) = (self.v6(at + 8)?, self.v6(at + 24)?);
                put!(self, "{src}.{sport} > {dst}.{dport}: ");
            }
            _ => put!(self, "{sport} > {dport}: "),
        }
        Ok(())
    }

    /// `source > destination: ` if not even the ports were captured. Prints nothing after an extension header, except
    /// for
    /// TCP.
    pub(super) fn addresses(&mut self, protocol: u8) -> DissectStep {
        match self.ip {
            Some(IpHeader::V4(at)) if self.u8(at + 9)? == protocol => {
                let (src, dst) = (self.v4(at + 12)?, self.v4(at + 16)?);
                put!(self, "{src} > {dst}: ");
            }
            Some(IpHeader::V6(at)) if protocol == 6 || self.u8(at + 6)? == protocol => {
                let (src, dst) = (self.v6(at + 8)?, self.v6(at + 24)?);
                put!(self, "{src} > {dst}: ");
            }
            _ => {}
        }
        Ok(())
    }
}
