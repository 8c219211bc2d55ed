//! IPv6 and its extension headers.

use super::{DissectStep, DissectStop, Dissector, IpHeader, names, put};

/// Option type of a jumbo payload.
const JUMBO: u8 = 0xc2;
const ROUTER_ALERT: u8 = 0x05;
/// Shorter packets need no jumbo payload option, RFC 2675.
const LEAST_JUMBO: u32 = 65_536;

impl Dissector<'_> {
    pub(super) fn ipv6(&mut self, at: usize, length: usize) -> DissectStep {
        self.nest(|d| d.ipv6_packet(at, length))
    }

    fn ipv6_packet(&mut self, at: usize, length: usize) -> DissectStep {
        self.protocol = "ip6";
        self.check_bytes(at, 40)?;
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
        if self.verbosity() > 0 {
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
                names::protocol_name(next)
            );
        }
        self.ip = Some(IpHeader::V6(at));
        if !matches!(next, 6 | 17 | 33 | 132) {
            self.addresses(next)?;
        }
        if payload_len == 0 && next == 0 {
            return self.ipv6_jumbogram(at, length);
        }
        self.end = self.end.min(at + total);
        self.ipv6_chain(next, at + 40, payload_len)
    }

    /// A packet with its length in a hop-by-hop option (RFC 2675).
    fn ipv6_jumbogram(&mut self, at: usize, length: usize) -> DissectStep {
        let begin = at + 40;
        let (header_len, payload_len) = match self.ipv6_hop_by_hop(begin, 0) {
            Err(DissectStop::Truncated) => {
                self.print_truncated();
                (0, None)
            }
            other => other?,
        };
        let Some(payload_len) = payload_len else {
            put!(self, "[No valid Jumbo Payload Hop-by-Hop option found]");
            return Err(DissectStop::Invalid);
        };
        let total = payload_len + 40;
        if length < total {
            put!(self, "truncated-ip6 - {} bytes missing!", total - length);
        }
        self.end = self.end.min(at + total);
        let next = self.u8(begin)?;
        self.ipv6_chain(next, begin + header_len, payload_len - header_len)
    }

    /// Prints and checks a header of hop-by-hop options. Returns its length and the jumbo payload length.
    fn ipv6_hop_by_hop(
        &mut self,
        at: usize,
        payload_len: usize,
    ) -> DissectStep<(usize, Option<usize>)> {
        self.protocol = "hbhopt";
        let len = (usize::from(self.u8(at + 1)?) + 1) * 8;
        self.check_bytes(at, len)?;
        put!(self, "HBH ");
        Ok((len, self.ipv6_options(at, len, Some(payload_len))?))
    }

    fn ipv6_chain(&mut self, mut next: u8, mut at: usize, mut length: usize) -> DissectStep {
        let mut fragmented = false;
        loop {
            let header_len = match next {
                0 => self.ipv6_hop_by_hop(at, length)?.0,
                60 => {
                    self.protocol = "dstopt";
                    let len = (usize::from(self.u8(at + 1)?) + 1) * 8;
                    self.check_bytes(at, len)?;
                    put!(self, "DSTOPT ");
                    if self.verbosity() > 0 {
                        self.ipv6_options(at, len, None)?;
                    }
                    len
                }
                43 => self.ipv6_routing(at)?,
                44 => {
                    self.protocol = "frag6";
                    let fragment = self.u16(at + 2)?;
                    let rest = length.saturating_sub(8);
                    let id = match self.verbosity() {
                        0 => String::new(),
                        _ => format!("0x{:08x}:", self.u32(at + 4)?),
                    };
                    put!(self, "frag ({id}{}|{rest})", fragment & 0xfff8);
                    if fragment & 0xfff8 != 0 {
                        return Ok(());
                    }
                    put!(self, " ");
                    if !self.has_bytes(at, 9) {
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
                return Err(DissectStop::Invalid);
            }
            (at, length) = (at + header_len, length - header_len);
        }
    }

    /// Prints options in verbose mode, and checks them. Returns the length in the first valid jumbo payload option. For
    /// hop-by-hop options, `payload_len` is the payload length of the packet.
    fn ipv6_options(
        &mut self,
        begin: usize,
        length: usize,
        payload_len: Option<usize>,
    ) -> DissectStep<Option<usize>> {
        let end = begin + length;
        let mut at = begin + 2;
        let verbose = self.verbosity() > 0;
        let mut jumbo = None;
        while at < end {
            let kind = self.u8(at)?;
            if kind == 0 {
                if verbose {
                    put!(self, "(pad1)");
                }
                at += 1;
                continue;
            }
            if at + 1 >= end {
                return Err(DissectStop::Truncated);
            }
            let len = usize::from(self.u8(at + 1)?);
            if at + 2 + len > end {
                return Err(DissectStop::Truncated);
            }
            let wrong = match kind {
                ROUTER_ALERT if len != 2 => Some("rtalert"),
                JUMBO if len != 4 => Some("jumbo"),
                _ => None,
            };
            if let Some(name) = wrong {
                put!(self, "({name}: invalid len {len})");
                return Err(DissectStop::Truncated);
            }
            let is_second = jumbo.is_some();
            if kind == JUMBO && !is_second {
                jumbo = Some(self.u32(at + 2)?);
            }
            match kind {
                _ if !verbose => {}
                1 => put!(self, "(padn)"),
                ROUTER_ALERT => put!(self, "(rtalert: 0x{:04x}) ", self.u16(at + 2)?),
                JUMBO => {
                    let claimed = self.u32(at + 2)?;
                    let why = match payload_len {
                        _ if is_second => " - already seen",
                        None => " - not a hop-by-hop option",
                        Some(1..) => " - payload len != 0",
                        Some(0) if claimed < LEAST_JUMBO => " - < 65536",
                        Some(0) => "",
                    };
                    put!(self, "(jumbo: {claimed}{why}) ");
                }
                _ => put!(self, "(opt_type 0x{kind:02x}: len={len})"),
            }
            at += 2 + len;
        }
        if verbose {
            put!(self, " ");
        }
        Ok(jumbo
            .filter(|len| *len >= LEAST_JUMBO)
            .map(|len| len as usize))
    }

    fn ipv6_routing(&mut self, at: usize) -> DissectStep<usize> {
        self.check_bytes(at, 1)?;
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
        let verbose = self.verbosity() > 0;
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
                return Err(DissectStop::Invalid);
            }
        }
        if !units.is_multiple_of(2) {
            return Err(DissectStop::Invalid);
        }
        for n in 0..units / 2 {
            let address = self.v6(at + 8 + 16 * n)?;
            put!(self, ", [{n}]{address}");
        }
        put!(self, ") ");
        Ok((units + 1) * 8)
    }

    /// Final destination for the pseudo header: with a routing header, the last hop.
    pub(super) fn ipv6_destination(&self, ip: usize) -> DissectStep<[u8; 16]> {
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
                43 => {
                    let (kind, left) = (self.u8(at + 2)?, self.u8(at + 3)?);
                    if left == 0 || units < 2 {
                        break;
                    }
                    return match kind {
                        // Segments are listed in reverse order: RFC 8754 section 2.
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
