//! IPv6 and its extension headers.

use super::{Dissector, Ip, Step, Stop, names, put};

/// The option of a jumbo payload.
const JUMBO: u8 = 0xc2;

impl Dissector<'_> {
    pub(super) fn ipv6(&mut self, at: usize, length: usize) -> Step {
        self.nest(|d| d.ipv6_packet(at, length))
    }

    fn ipv6_packet(&mut self, at: usize, length: usize) -> Step {
        self.protocol = "ip6";
        self.look(at, 40)?;
        if length < 40 {
            put!(self, "truncated-ip6 {length}");
            return Ok(());
        }
        if !self.options.link_header {
            put!(self, "IP6 ");
        }
        let first = self.u32(at)?;
        if first >> 28 != 6 {
            put!(self, "version error: {} != 6", first >> 28);
            return Ok(());
        }
        let payload_len = usize::from(self.u16(at + 4)?);
        let total = payload_len + 40;
        if length < total {
            put!(self, "truncated-ip6 - {} bytes missing!", total - length);
        }
        let next = self.u8(at + 6)?;
        if self.verbose() > 0 {
            let (class, label) = (first >> 20 & 0xff, first & 0xf_ffff);
            put!(self, "(");
            if class != 0 {
                put!(self, "class 0x{class:02x}, ");
            }
            if label != 0 {
                put!(self, "flowlabel 0x{label:05x}, ");
            }
            let hops = self.u8(at + 7)?;
            put!(
                self,
                "hlim {hops}, next-header {} ({next}) payload length: {payload_len}) ",
                names::protocol(next)
            );
        }
        self.ip = Some(Ip::V6(at));
        if !matches!(next, 6 | 17 | 33 | 132) {
            self.addresses(next)?;
        }
        if payload_len == 0 && next == 0 {
            return self.ipv6_jumbogram(at, length);
        }
        self.end = self.end.min(at + total);
        self.ipv6_chain(next, at + 40, payload_len)
    }

    /// A packet of which a hop-by-hop option has the length (RFC 2675).
    fn ipv6_jumbogram(&mut self, at: usize, length: usize) -> Step {
        self.protocol = "hbhopt";
        let begin = at + 40;
        let header_len = (usize::from(self.u8(begin + 1)?) + 1) * 8;
        self.look(begin, header_len)?;
        put!(self, "HBH ");
        let payload_len = self.jumbo_len(begin, header_len)?;
        if self.verbose() > 0 {
            self.ipv6_options(begin, header_len, Some(0))?;
        }
        let Some(payload_len) = payload_len else {
            put!(self, "[No valid Jumbo Payload Hop-by-Hop option found]");
            return Err(Stop::Invalid);
        };
        let total = payload_len + 40;
        if length < total {
            put!(self, "truncated-ip6 - {} bytes missing!", total - length);
        }
        self.end = self.end.min(at + total);
        let next = self.u8(begin)?;
        self.ipv6_chain(next, begin + header_len, payload_len - header_len)
    }

    /// The length in the first jumbo payload option of a header, if it is long enough to be one.
    fn jumbo_len(&self, begin: usize, header_len: usize) -> Step<Option<usize>> {
        let end = begin + header_len;
        let mut at = begin + 2;
        while at < end {
            let (kind, len) = match self.u8(at)? {
                0 => (0, 1),
                kind if at + 1 < end => (kind, usize::from(self.u8(at + 1)?) + 2),
                _ => return Err(Stop::Truncated),
            };
            if at + len > end {
                return Err(Stop::Truncated);
            }
            if kind == JUMBO && len == 6 {
                let claimed = self.u32(at + 2)?;
                return Ok((claimed >= 65_536).then_some(claimed as usize));
            }
            at += len;
        }
        Ok(None)
    }

    fn ipv6_chain(&mut self, mut next: u8, mut at: usize, mut length: usize) -> Step {
        let mut fragmented = false;
        loop {
            let header_len = match next {
                0 | 60 => {
                    let protocol = if next == 0 { "hbhopt" } else { "dstopt" };
                    let word = if next == 0 { "HBH" } else { "DSTOPT" };
                    self.protocol = protocol;
                    let len = (usize::from(self.u8(at + 1)?) + 1) * 8;
                    self.look(at, len)?;
                    put!(self, "{word} ");
                    if self.verbose() > 0 {
                        let payload_len = (next == 0).then_some(length);
                        self.ipv6_options(at, len, payload_len)?;
                    }
                    len
                }
                43 => self.ipv6_routing(at)?,
                44 => {
                    self.protocol = "frag6";
                    let fragment = self.u16(at + 2)?;
                    let rest = length.saturating_sub(8);
                    let id = match self.verbose() {
                        0 => String::new(),
                        _ => format!("0x{:08x}:", self.u32(at + 4)?),
                    };
                    put!(self, "frag ({id}{}|{rest})", fragment & 0xfff8);
                    if fragment & 0xfff8 != 0 {
                        return Ok(());
                    }
                    put!(self, " ");
                    if !self.has(at, 9) {
                        return Ok(());
                    }
                    fragmented = true;
                    8
                }
                59 => {
                    put!(self, "no next header");
                    return Ok(());
                }
                _ => return self.protocol_over_ip(next, at, length, fragmented),
            };
            next = self.u8(at)?;
            if header_len > length {
                return Err(Stop::Invalid);
            }
            (at, length) = (at + header_len, length - header_len);
        }
    }

    /// Of hop-by-hop options, `payload_len` is that of the packet.
    fn ipv6_options(&mut self, begin: usize, length: usize, payload_len: Option<usize>) -> Step {
        let end = begin + length;
        let mut at = begin + 2;
        let mut jumbo_seen = false;
        while at < end {
            let kind = self.u8(at)?;
            if kind == 0 {
                put!(self, "(pad1) ");
                at += 1;
                continue;
            }
            if at + 1 >= end {
                return Err(Stop::Truncated);
            }
            let len = usize::from(self.u8(at + 1)?);
            if at + 2 + len > end {
                return Err(Stop::Truncated);
            }
            match kind {
                1 => put!(self, "(padn) "),
                0x05 if len != 2 => put!(self, "(rtalert: invalid len {len}) "),
                0x05 => put!(self, "(rtalert: 0x{:04x}) ", self.u16(at + 2)?),
                JUMBO if len != 4 => put!(self, "(jumbo: invalid len {len}) "),
                JUMBO => {
                    let claimed = self.u32(at + 2)?;
                    let why = match payload_len {
                        _ if jumbo_seen => " - already seen",
                        None => " - not a hop-by-hop option",
                        Some(1..) => " - payload len != 0",
                        Some(0) if claimed < 65_536 => " - < 65536",
                        Some(0) => "",
                    };
                    jumbo_seen = true;
                    put!(self, "(jumbo: {claimed}{why})  ");
                }
                _ => put!(self, "(opt_type 0x{kind:02x}: len={len}) "),
            }
            at += 2 + len;
        }
        Ok(())
    }

    fn ipv6_routing(&mut self, at: usize) -> Step<usize> {
        self.look(at, 1)?;
        self.protocol = "rt6";
        put!(self, "RT6");
        let units = usize::from(self.u8(at + 1)?);
        put!(self, " (len={units}");
        let kind = self.u8(at + 2)?;
        put!(self, ", type={kind}");
        if kind == 0 {
            put!(self, " [Deprecated]");
        }
        put!(self, ", segleft={}", self.u8(at + 3)?);
        let verbose = self.verbose() > 0;
        match kind {
            0 | 2 => {
                let reserved = self.u32(at + 4)?;
                if reserved != 0 || verbose {
                    put!(self, ", rsv=0x{reserved:x}");
                }
            }
            4 => {
                let last = self.u8(at + 4)?;
                put!(self, ", last-entry={last}");
                let flags = self.u8(at + 5)?;
                if flags != 0 || verbose {
                    put!(self, ", flags=0x{flags:x}");
                }
                put!(self, ", tag={:x}", self.u16(at + 6)?);
            }
            _ => {
                put!(self, " (unknown type)");
                return Err(Stop::Invalid);
            }
        }
        if !units.is_multiple_of(2) {
            return Err(Stop::Invalid);
        }
        for n in 0..units / 2 {
            let address = self.v6(at + 8 + 16 * n)?;
            put!(self, ", [{n}]{address}");
        }
        put!(self, ") ");
        Ok((units + 1) * 8)
    }

    /// Where the packet ends up, for the pseudo header: with a routing header, its last hop.
    pub(super) fn ipv6_destination(&self, ip: usize) -> Step<[u8; 16]> {
        let (mut next, mut at) = (self.u8(ip + 6)?, ip + 40);
        loop {
            let units = usize::from(self.u8(at + 1).unwrap_or(0));
            match next {
                0 | 60 => {
                    next = self.u8(at)?;
                    at += (units + 1) * 8;
                }
                44 => {
                    next = self.u8(at)?;
                    at += 8;
                }
                51 => {
                    next = self.u8(at)?;
                    at += (units + 2) * 4;
                }
                43 => {
                    let (kind, left) = (self.u8(at + 2)?, self.u8(at + 3)?);
                    if left == 0 || units < 2 {
                        break;
                    }
                    return match kind {
                        // Segments are listed backwards: RFC 8754 section 2.
                        4 => self.array(at + 8),
                        _ => self.array(at + 8 + 16 * (units / 2 - 1)),
                    };
                }
                _ => break,
            }
        }
        self.array(ip + 24)
    }
}
