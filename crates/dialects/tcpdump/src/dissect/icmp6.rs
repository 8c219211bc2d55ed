//! ICMPv6: errors, echo and neighbour discovery. Other messages are only named.

use wb_wire::checksum;

use super::{DissectStep, DissectStop, Dissector, put};

/// Name of a message with this type, if it is known.
fn message_name(kind: u8) -> Option<&'static str> {
    Some(match kind {
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
        _ => return None,
    })
}

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
        let Some(name) = message_name(kind) else {
            put!(self, "ICMP6, unknown icmp6 type ({kind})");
            self.need_bytes(at, 2)?;
            put!(self, ", length {length}");
            if self.verbosity() <= 1 {
                self.print_option_bytes(at, usize::MAX, "\n\t");
            }
            return Ok(());
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
            133 if verbose => self.neighbour_options(at + 8, length.saturating_sub(8))?,
            130..=134 => {}
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
            }
            _ => put!(self, ", {} group record(s)", self.u16(at + 6)?),
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
                let name = if protocol == 6 { "tcp" } else { "udp" };
                put!(self, ", {dst} {name} port {port}");
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

    /// The TCP or UDP header of a quoted packet: protocol and offset.
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
                _ => return None,
            }
        }
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
}
