//! ICMPv6 with neighbour discovery and multicast listener discovery.

use wb_wire::checksum;

use super::{DissectStep, DissectStop, Dissector, put};

impl Dissector<'_> {
    pub(super) fn icmp6(&mut self, at: usize, length: usize, fragmented: bool) -> DissectStep {
        self.protocol = "icmp6";
        if length == 0 {
            put!(self, "ICMP6, length 0");
            return Err(DissectStop::Invalid);
        }
        let verbose = self.verbosity() > 0;
        if verbose
            && !fragmented
            && let (Some(sum), Some(pseudo)) =
                (self.sum(at, length), self.pseudo_header_sum(58, length))
        {
            if checksum::fold(sum + pseudo) == 0xffff {
                put!(self, "[icmp6 sum ok] ");
            } else {
                let found = self.u16(at + 2)?;
                let right = checksum::finish(sum + pseudo + u64::from(!found));
                put!(self, "[bad icmp6 cksum 0x{found:04x} -> 0x{right:04x}!] ");
            }
        }
        let kind = self.u8(at)?;
        let name = match kind {
            1 => "destination unreachable",
            2 => "packet too big",
            3 => "time exceeded in-transit",
            4 => "parameter problem",
            128 => "echo request",
            129 => "echo reply",
            130 => "multicast listener query",
            131 => "multicast listener report",
            132 => "multicast listener done",
            133 => "router solicitation",
            134 => "router advertisement",
            135 => "neighbor solicitation",
            136 => "neighbor advertisement",
            137 => "redirect",
            143 => "multicast listener report v2",
            _ => {
                put!(self, "ICMP6, unknown icmp6 type ({kind})");
                self.need_bytes(at, 2)?;
                put!(self, ", length {length}");
                if self.verbosity() <= 1 {
                    self.print_option_bytes(at, usize::MAX, "\n\t");
                }
                return Ok(());
            }
        };
        put!(self, "ICMP6, {name}");
        if verbose && (133..=137).contains(&kind) {
            put!(self, ", length {length}");
        }
        self.need_bytes(at, 2)?;
        match kind {
            1 if self.icmp6_unreachable(self.u8(at + 1)?, at)? => {}
            1 => return Ok(()),
            2 => put!(self, ", mtu {}", self.u32(at + 4)?),
            3 => match self.u8(at + 1)? {
                0 => {
                    let dst = self.v6(at + 32)?;
                    put!(self, " for {dst}");
                }
                1 => put!(self, " (reassembly)"),
                code => put!(self, ", unknown code ({code})"),
            },
            4 => {
                self.check_bytes(at + 32, 16)?;
                let octet = self.u32(at + 4)?;
                match self.u8(at + 1)? {
                    0 => put!(self, ", erroneous - octet {octet}"),
                    1 => put!(self, ", next header - octet {octet}"),
                    2 => put!(self, ", option - octet {octet}"),
                    3 => put!(self, ", incomplete header chain - octet {octet}"),
                    code => put!(self, ", code-#{code}"),
                }
            }
            128 | 129 => {
                self.need_bytes(at + 6, 2)?;
                put!(
                    self,
                    ", id {}, seq {}",
                    self.u16(at + 4)?,
                    self.u16(at + 6)?
                );
            }
            130 if length == 24 => self.listener1(at)?,
            130 if length >= 28 => self.listener_query2(at, length)?,
            130 => put!(self, " unknown-version (len {length}) "),
            131 | 132 => self.listener1(at)?,
            133 => {
                if verbose {
                    self.neighbour_options(at + 8, length.saturating_sub(8))?;
                }
            }
            134 => {
                if verbose {
                    self.router_advertisement(at, length)?;
                }
            }
            135 | 136 => {
                let target = self.v6(at + 8)?;
                let words = if kind == 135 { "who has" } else { "tgt is" };
                put!(self, ", {words} {target}");
                if verbose {
                    if kind == 136 {
                        let flags = Self::flag_names(
                            self.u32(at + 4)?,
                            &[
                                (1 << 31, "router"),
                                (1 << 30, "solicited"),
                                (1 << 29, "override"),
                            ],
                        );
                        put!(self, ", Flags [{flags}]");
                    }
                    self.neighbour_options(at + 24, length.saturating_sub(24))?;
                }
            }
            137 => {
                let dst = self.v6(at + 24)?;
                put!(self, ", {dst}");
                let target = self.v6(at + 8)?;
                put!(self, " to {target}");
                if verbose {
                    self.neighbour_options(at + 40, length.saturating_sub(40))?;
                }
            }
            _ if length < 8 => put!(self, " [invalid len {length}]"),
            _ => self.group_records(at, length, 16)?,
        }
        if !verbose {
            put!(self, ", length {length}");
        }
        Ok(())
    }

    /// Returns false if the line ends with the code.
    fn icmp6_unreachable(&mut self, code: u8, at: usize) -> DissectStep<bool> {
        let quoted = at + 8;
        match code {
            0 => {
                put!(self, ", unreachable route");
                let dst = self.v6(quoted + 24)?;
                put!(self, " {dst}");
            }
            1 => {
                // tcpdump prints two blanks.
                put!(self, ",  unreachable prohibited");
                let dst = self.v6(quoted + 24)?;
                put!(self, " {dst}");
            }
            3 => {
                put!(self, ", unreachable address");
                let dst = self.v6(quoted + 24)?;
                put!(self, " {dst}");
            }
            2 => {
                put!(self, ", beyond scope");
                let (dst, src) = (self.v6(quoted + 24)?, self.v6(quoted + 8)?);
                put!(self, " {dst}");
                put!(self, ", source address {src}");
            }
            4 => {
                put!(self, ", unreachable port");
                let Some((protocol, upper)) = self.upper_layer(quoted) else {
                    return Err(DissectStop::Truncated);
                };
                let (port, dst) = (self.u16(upper + 2)?, self.v6(quoted + 24)?);
                match protocol {
                    6 => put!(self, ", {dst} tcp port {port}"),
                    17 => put!(self, ", {dst} udp port {port}"),
                    _ => put!(self, ", {dst} protocol {protocol} port {port} unreachable"),
                }
            }
            _ => {
                put!(self, ", unknown unreach code ({code})");
                if self.verbosity() <= 1 {
                    self.print_option_bytes(at, usize::MAX, "\n\t");
                }
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The transport header of a quoted packet.
    fn upper_layer(&self, ip: usize) -> Option<(u8, usize)> {
        let (mut next, mut at) = (self.u8(ip + 6).ok()?, ip + 40);
        loop {
            match next {
                6 | 17 => return self.has_bytes(at, 4).then_some((next, at)),
                0 | 43 | 60 => {
                    next = self.u8(at).ok()?;
                    at += (usize::from(self.u8(at + 1).ok()?) + 1) * 8;
                }
                44 => {
                    if self.u16(at + 2).ok()? & 0xfff8 != 0 {
                        return None;
                    }
                    next = self.u8(at).ok()?;
                    at += 8;
                }
                51 => {
                    next = self.u8(at).ok()?;
                    at += (usize::from(self.u8(at + 1).ok()?) + 2) * 4;
                }
                _ => return None,
            }
        }
    }

    fn listener1(&mut self, at: usize) -> DissectStep {
        // A truncated message is skipped silently.
        if !self.has_bytes(at, 24) {
            return Ok(());
        }
        put!(self, "max resp delay: {} ", self.u16(at + 4)?);
        let group = self.v6(at + 8)?;
        put!(self, "addr: {group}");
        Ok(())
    }

    fn listener_query2(&mut self, at: usize, length: usize) -> DissectStep {
        put!(self, " v2");
        let code = self.u16(at + 4)?;
        // 12-bit mantissa with an implicit leading one, shifted: RFC 3810 section 5.1.3.
        let max = if code < 0x8000 {
            u32::from(code)
        } else {
            u32::from(code & 0xfff | 0x1000) << ((code >> 12 & 7) + 3)
        };
        if self.verbosity() > 0 {
            put!(self, " [max resp delay={max}]");
        }
        let group = self.v6(at + 8)?;
        put!(self, " [gaddr {group}");
        if self.verbosity() > 0 {
            let misc = self.u8(at + 24)?;
            if misc & 8 != 0 {
                put!(self, " sflag");
            }
            if misc & 7 != 0 {
                put!(self, " robustness={}", misc & 7);
            }
            let interval = self.u8(at + 25)?;
            let seconds = if interval < 128 {
                u32::from(interval)
            } else {
                u32::from(interval & 0xf | 0x10) << ((interval >> 4 & 7) + 3)
            };
            put!(self, " qqi={seconds}");
        }
        let sources = usize::from(self.u16(at + 26)?);
        if sources > 0 {
            if length < 28 + 16 * sources {
                put!(self, " [invalid number of sources {sources}]");
            } else {
                self.group_sources(at + 28, sources, 16)?;
            }
        }
        put!(self, "]");
        Ok(())
    }

    fn router_advertisement(&mut self, at: usize, length: usize) -> DissectStep {
        let flags_byte = self.u8(at + 5)?;
        let flags = Self::flag_names(
            u32::from(flags_byte),
            &[
                (0x80, "managed"),
                (0x40, "other stateful"),
                (0x20, "home agent"),
            ],
        );
        let preference = preference_name(flags_byte);
        let hops = self.u8(at + 4)?;
        let lifetime = self.u16(at + 6)?;
        let (reachable, retransmit) = (self.u32(at + 8)?, self.u32(at + 12)?);
        put!(
            self,
            "\n\thop limit {hops}, Flags [{flags}], pref {preference}, router lifetime {lifetime}s, \
             reachable time {reachable}ms, retrans timer {retransmit}ms"
        );
        self.neighbour_options(at + 16, length.saturating_sub(16))
    }

    fn neighbour_options(&mut self, mut at: usize, length: usize) -> DissectStep {
        let end = at + length;
        while at < end.min(self.end) {
            let (kind, units) = (self.u8(at)?, self.u8(at + 1)?);
            if units == 0 || at + 8 * usize::from(units) > end {
                return Err(DissectStop::Truncated);
            }
            let len = usize::from(units) * 8;
            self.need_bytes(at, len)?;
            let name = match kind {
                1 => "source link-address",
                2 => "destination link-address",
                3 => "prefix info",
                4 => "redirected header",
                5 => "mtu",
                7 => "advertisement interval",
                8 => "homeagent information",
                24 => "route info",
                25 => "rdnss",
                31 => "dnssl",
                _ => "unknown",
            };
            put!(
                self,
                "\n\t  {name} option ({kind}), length {len} ({units}): "
            );
            match kind {
                1 | 2 => {
                    let address = self.hardware_address(at + 2, len - 2)?;
                    put!(self, "{address}");
                }
                3 => {
                    let flags = Self::flag_names(
                        u32::from(self.u8(at + 3)?),
                        &[(0x80, "onlink"), (0x40, "auto"), (0x20, "router")],
                    );
                    let (prefix, bits) = (self.v6(at + 16)?, self.u8(at + 2)?);
                    let valid = seconds(self.u32(at + 4)?);
                    let preferred = seconds(self.u32(at + 8)?);
                    put!(
                        self,
                        "{prefix}/{bits}, Flags [{flags}], valid time {valid}, pref. time {preferred}"
                    );
                }
                4 => self.print_option_bytes(at, len, "\n\t    "),
                5 => put!(self, " {}", self.u32(at + 4)?),
                7 => put!(self, " {}ms", self.u32(at + 4)?),
                8 => put!(
                    self,
                    " preference {}, lifetime {}",
                    self.u16(at + 4)?,
                    self.u16(at + 6)?
                ),
                24 => {
                    let mut prefix = [0; 16];
                    let given = (len - 8).min(16);
                    prefix[..given].copy_from_slice(self.slice(at + 8, given)?);
                    let bits = self.u8(at + 2)?;
                    let preference = preference_name(self.u8(at + 3)?);
                    let lifetime = seconds(self.u32(at + 4)?);
                    put!(
                        self,
                        " {}/{bits}, pref={preference}, lifetime={lifetime}",
                        super::V6(prefix)
                    );
                }
                25 => {
                    let lifetime = seconds(self.u32(at + 4)?);
                    put!(self, " lifetime {lifetime},");
                    for n in 0..(len - 8) / 16 {
                        let server = self.v6(at + 8 + 16 * n)?;
                        put!(self, " addr: {server}");
                    }
                }
                31 => {
                    let lifetime = seconds(self.u32(at + 4)?);
                    put!(self, " lifetime {lifetime}, domain(s):");
                    self.search_list(at + 8, at + len)?;
                }
                _ if self.verbosity() <= 1 => {
                    self.print_option_bytes(at + 2, len - 2, "\n\t  ");
                    return Ok(());
                }
                _ => {}
            }
            if self.verbosity() > 1 {
                self.print_option_bytes(at + 2, len - 2, "\n\t    ");
            }
            at += len;
        }
        Ok(())
    }

    fn search_list(&mut self, mut at: usize, end: usize) -> DissectStep {
        while at < end && self.u8(at)? != 0 {
            put!(self, " ");
            while at < end {
                let len = usize::from(self.u8(at)?);
                at += 1;
                if len == 0 {
                    break;
                }
                let label: String = self
                    .slice(at, len)?
                    .iter()
                    .map(|&byte| {
                        if byte.is_ascii_graphic() {
                            char::from(byte)
                        } else {
                            '.'
                        }
                    })
                    .collect();
                put!(self, "{label}.");
                at += len;
            }
        }
        Ok(())
    }
}

fn preference_name(flags: u8) -> &'static str {
    ["medium", "high", "rsv", "low"][usize::from(flags >> 3 & 3)]
}

/// Lifetime of neighbour discovery; all ones means infinite.
fn seconds(value: u32) -> String {
    if value == u32::MAX {
        "infinity".into()
    } else {
        format!("{value}s")
    }
}
