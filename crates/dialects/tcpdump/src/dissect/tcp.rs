//! TCP, with sequence numbers relative to the first ones of the connection.

use std::collections::HashMap;

use wb_wire::{checksum, tcp_flags};

use super::{DissectStep, DissectStop, Dissector, IpHeader, put};

/// Addresses and ports, the end with the smaller port first.
type ConnectionKey = ([u8; 16], [u8; 16], u16, u16);

/// First sequence numbers of each known connection.
#[derive(Debug, Default)]
pub(crate) struct TcpConnections(HashMap<ConnectionKey, SequenceBase>);

/// Numbers to subtract in one direction; swapped for the other direction.
#[derive(Clone, Copy, Debug)]
struct SequenceBase {
    sequence: u32,
    acknowledgment: u32,
}

impl TcpConnections {
    pub(crate) const MAX: usize = 65_536;

    /// Subtracts the bases from `sequence` and `acknowledgment`, or records these as the bases. Returns
    /// the base for numbers in a selective acknowledgment.
    fn make_relative(
        &mut self,
        key: ConnectionKey,
        reverse: bool,
        syn: bool,
        sequence: &mut u32,
        acknowledgment: &mut u32,
    ) -> u32 {
        match self.0.get(&key) {
            Some(base) if !syn => {
                let (own, other) = if reverse {
                    (base.acknowledgment, base.sequence)
                } else {
                    (base.sequence, base.acknowledgment)
                };
                *sequence = sequence.wrapping_sub(own);
                *acknowledgment = acknowledgment.wrapping_sub(other);
                other
            }
            _ => {
                if self.0.len() >= Self::MAX && !self.0.contains_key(&key) {
                    self.0.clear();
                }
                let (own, other) = (*sequence, acknowledgment.wrapping_sub(1));
                let (sequence, acknowledgment) = if reverse { (other, own) } else { (own, other) };
                self.0.insert(
                    key,
                    SequenceBase {
                        sequence,
                        acknowledgment,
                    },
                );
                other
            }
        }
    }
}

/// Length of the values of an option of this kind in bytes, if the kind has one.
fn value_len(kind: u8) -> Option<usize> {
    Some(match kind {
        2 | 28 => 2,
        3 => 1,
        4 => 0,
        6 | 7 | 11 | 12 | 13 => 4,
        8 => 8,
        19 => 16,
        _ => return None,
    })
}

/// Name of an option of this kind, if it is known.
fn option_name(kind: u8) -> Option<&'static str> {
    Some(match kind {
        2 => "mss",
        3 => "wscale",
        4 => "sackOK",
        5 => "sack",
        6 => "echo",
        7 => "echoreply",
        8 => "TS",
        11 => "cc",
        12 => "ccnew",
        13 => "ccecho",
        19 => "md5",
        20 => "scps",
        28 => "uto",
        29 => "tcp-ao",
        30 => "mptcp",
        34 => "tfo",
        253 | 254 => "exp",
        _ => return None,
    })
}

impl Dissector<'_> {
    pub(super) fn tcp(&mut self, at: usize, length: usize, fragmented: bool) -> DissectStep {
        self.protocol = "tcp";
        if !self.has_bytes(at, 4) {
            self.addresses(6)?;
            put!(self, "[|tcp]");
            return Ok(());
        }
        let (sport, dport) = (self.u16(at)?, self.u16(at + 2)?);
        self.endpoints(sport, dport, 6)?;
        self.check_bytes(at, 20)?;
        let header_len = usize::from(self.u8(at + 12)? >> 4) * 4;
        // Unsigned 32-bit arithmetic as in tcpdump: a header longer than the segment gives a huge rest.
        let rest = (length as u32).wrapping_sub(header_len as u32);
        if header_len < 20 {
            put!(
                self,
                " tcp {rest} [bad hdr length {header_len} - too short, < 20]"
            );
            return Ok(());
        }
        let flags = self.u8(at + 13)?;
        let (mut sequence, mut acknowledgment) = (self.u32(at + 4)?, self.u32(at + 8)?);
        let (window, urgent) = (self.u16(at + 14)?, self.u16(at + 18)?);
        if self.options.quiet {
            put!(self, "tcp {rest}");
            if header_len > length {
                put!(
                    self,
                    " [bad hdr length {header_len} - too long, > {length}]"
                );
            }
            return Ok(());
        }
        let mut sack_base = 0;
        if !self.options.absolute_sequence && flags & tcp_flags::ACK != 0 {
            let (key, reverse) = self.tcp_key(sport, dport)?;
            let syn = flags & tcp_flags::SYN != 0;
            sack_base = self.connections.make_relative(
                key,
                reverse,
                syn,
                &mut sequence,
                &mut acknowledgment,
            );
        }
        put!(self, "Flags [{}]", flag_letters(flags));
        if header_len > length {
            put!(
                self,
                " [bad hdr length {header_len} - too long, > {length}]"
            );
            return Ok(());
        }
        if self.verbosity() > 0
            && !self.options.unverified
            && !fragmented
            && let (Some(sum), Some(pseudo)) =
                (self.sum(at, length), self.pseudo_header_sum(6, length))
        {
            let found = self.u16(at + 16)?;
            put!(self, ", cksum 0x{found:04x}");
            if checksum::fold(sum + pseudo) == 0xffff {
                put!(self, " (correct)");
            } else {
                let right = checksum::finish(sum + pseudo + u64::from(!found));
                put!(self, " (incorrect -> 0x{right:04x})");
            }
        }
        let numbered = tcp_flags::SYN | tcp_flags::FIN | tcp_flags::RST;
        if self.verbosity() > 1 || rest > 0 || flags & numbered != 0 {
            put!(self, ", seq {sequence}");
            if rest > 0 {
                put!(self, ":{}", sequence.wrapping_add(rest));
            }
        }
        if flags & tcp_flags::ACK != 0 {
            put!(self, ", ack {acknowledgment}");
        }
        put!(self, ", win {window}");
        if flags & tcp_flags::URG != 0 {
            put!(self, ", urg {urgent}");
        }
        let whole = self.has_bytes(at, length);
        if header_len > 20 && !self.tcp_options(at + 20, header_len - 20, sack_base, whole)? {
            return Ok(());
        }
        put!(self, ", length {rest}");
        if rest > 0 && flags & tcp_flags::RST != 0 && self.verbosity() > 0 {
            self.tcp_reset_text(at + header_len, rest as usize);
        }
        Ok(())
    }

    fn tcp_key(&self, sport: u16, dport: u16) -> DissectStep<(ConnectionKey, bool)> {
        let mut ends = ([0; 16], [0; 16]);
        match self.ip {
            Some(IpHeader::V4(ip)) => {
                // No IPv6 source address has this prefix, so the families stay separate.
                for (end, at) in [(&mut ends.0, ip + 12), (&mut ends.1, ip + 16)] {
                    end[0] = 0xff;
                    end[12..].copy_from_slice(self.slice(at, 4)?);
                }
            }
            Some(IpHeader::V6(ip)) => ends = (self.array(ip + 8)?, self.array(ip + 24)?),
            None => {}
        }
        let (src, dst) = ends;
        let reverse = sport > dport || (sport == dport && src > dst);
        let key = if reverse {
            (dst, src, dport, sport)
        } else {
            (src, dst, sport, dport)
        };
        Ok((key, reverse))
    }

    /// Returns false if an option is bad; tcpdump then prints nothing more of the segment.
    fn tcp_options(
        &mut self,
        at: usize,
        length: usize,
        sack_base: u32,
        whole: bool,
    ) -> DissectStep<bool> {
        put!(self, ", options [");
        let (mut at, mut left) = (at, length);
        let mut separator = "";
        while left > 0 {
            put!(self, "{separator}");
            separator = ",";
            let Some(len) = self.tcp_option(at, left, sack_base, whole)? else {
                return Ok(false);
            };
            let end = self.u8(at)? == 0;
            (at, left) = (at + len, left - len);
            if end {
                break;
            }
        }
        put!(self, "]");
        Ok(true)
    }

    /// Prints one option. Returns its length, or none if the line ends with it.
    fn tcp_option(
        &mut self,
        at: usize,
        left: usize,
        sack_base: u32,
        whole: bool,
    ) -> DissectStep<Option<usize>> {
        let kind = self.u8(at)?;
        if kind < 2 {
            put!(self, "{}", if kind == 0 { "eol" } else { "nop" });
            return Ok(Some(1));
        }
        let len = usize::from(self.u8(at + 1)?);
        if len < 2 || len > left {
            put!(self, "[bad opt]");
            return Ok(None);
        }
        let (data, data_len) = (at + 2, len - 2);
        match option_name(kind) {
            Some(name) => put!(self, "{name}"),
            None => put!(self, "unknown-{kind}"),
        }
        // The stated length is only compared with that of the kind.
        let used = value_len(kind).unwrap_or(data_len);
        if used > left - 2 {
            put!(self, "[bad opt]");
            return Ok(None);
        }
        // For these kinds a cut is printed with an additional bracket.
        if matches!(kind, 3 | 8) && !self.has_bytes(data, used) {
            put!(self, " [|tcp]>");
            return Ok(None);
        }
        match kind {
            2 => {
                self.check_bytes(data, 2)?;
                put!(self, " {}", self.u16(data)?);
            }
            3 => put!(self, " {}", self.u8(data)?),
            4 => {}
            5 if data_len == 0 || !data_len.is_multiple_of(8) => put!(self, " malformed sack "),
            5 => {
                put!(self, " {} ", data_len / 8);
                for block in (data..data + data_len).step_by(8) {
                    if !self.has_bytes(block, 8) {
                        put!(self, " [|tcp]>");
                        return Ok(None);
                    }
                    let from = self.u32(block)?.wrapping_sub(sack_base);
                    let to = self.u32(block + 4)?.wrapping_sub(sack_base);
                    put!(self, "{{{from}:{to}}}");
                }
            }
            6 | 7 | 11 | 12 | 13 => put!(self, " {}", self.u32(data)?),
            8 => {
                let (value, echo) = (self.u32(data)?, self.u32(data + 4)?);
                put!(self, " val {value} ecr {echo}");
            }
            19 => {
                self.check_bytes(data, 16)?;
                // Without the whole segment, tcpdump stops before it notices the missing secret.
                put!(
                    self,
                    " {}, can't check - ",
                    if whole {
                        "shared secret not supplied with -M"
                    } else {
                        "snaplen too short"
                    }
                );
                self.bare_figures(data, 16)?;
            }
            28 => {
                self.check_bytes(data, 2)?;
                let value = self.u16(data)?;
                let unit = if value & 1 == 1 { 60 } else { 1 };
                put!(self, " 0x{value:x} {}", u32::from(value >> 1) * unit);
            }
            34 => self.tcp_fast_open(data, data_len)?,
            253 | 254 => {
                if data_len < 2 {
                    put!(self, "[bad opt]");
                    return Ok(None);
                }
                self.check_bytes(data, 2)?;
                match self.u16(data)? {
                    0xf989 => {
                        put!(self, "-tfo");
                        self.tcp_fast_open(data + 2, data_len - 2)?;
                    }
                    magic => put!(self, "-{magic:04x}"),
                }
            }
            _ if data_len > 0 => {
                put!(self, " 0x");
                self.bare_figures(data, data_len)
                    .map_err(|_| DissectStop::Truncated)?;
            }
            _ => {}
        }
        if used != data_len {
            put!(self, "[len {len}]");
        }
        Ok(Some(used + 2))
    }

    fn tcp_fast_open(&mut self, at: usize, len: usize) -> DissectStep {
        match len {
            0 => put!(self, "  cookiereq"),
            4..=16 if len.is_multiple_of(2) => {
                self.check_bytes(at, len)?;
                put!(self, "  cookie ");
                self.bare_figures(at, len)?;
            }
            _ => put!(self, "  invalid"),
        }
        Ok(())
    }

    fn bare_figures(&mut self, at: usize, len: usize) -> DissectStep {
        for n in 0..len {
            put!(self, "{:02x}", self.u8(at + n)?);
        }
        Ok(())
    }

    /// Reason in a reset segment, sent by some stacks: RFC 1122 section 4.2.2.12.
    fn tcp_reset_text(&mut self, at: usize, len: usize) {
        const SHOWN: usize = 30;
        put!(self, " [");
        let shown = len.min(SHOWN);
        let there = shown.min(self.end.saturating_sub(at));
        if there < shown {
            put!(self, "!");
        }
        put!(self, "RST{} ", if shown < len { "+" } else { "" });
        for &byte in self.bytes.get(at..at + there).unwrap_or_default() {
            // In terminal notation: M- for the eighth bit, ^ for control characters.
            if byte & 0x80 != 0 {
                put!(self, "M-");
            }
            match byte & 0x7f {
                low @ (0..0x20 | 0x7f) => put!(self, "^{}", char::from(low ^ 0x40)),
                low => self.out.push(char::from(low)),
            }
        }
        put!(self, "]");
    }
}

fn flag_letters(flags: u8) -> String {
    const LETTERS: [(u8, char); 8] = [
        (tcp_flags::FIN, 'F'),
        (tcp_flags::SYN, 'S'),
        (tcp_flags::RST, 'R'),
        (tcp_flags::PSH, 'P'),
        (tcp_flags::ACK, '.'),
        (tcp_flags::URG, 'U'),
        (tcp_flags::ECE, 'E'),
        (tcp_flags::CWR, 'W'),
    ];
    if flags == 0 {
        return "none".into();
    }
    LETTERS
        .iter()
        .filter(|(bit, _)| flags & bit != 0)
        .map(|(_, letter)| letter)
        .collect()
}
