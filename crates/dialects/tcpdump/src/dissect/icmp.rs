//! ICMP.

use std::fmt::Write;

use wb_wire::checksum;

use super::{DissectStep, Dissector, put};

/// Milliseconds since midnight.
fn time_of_day(ms: u32) -> String {
    let (s, rest) = (ms / 1000, ms % 1000);
    format!("{:02}:{:02}:{:02}.{rest:03}", s / 3600, s / 60 % 60, s % 60)
}

fn lifetime_text(seconds: u16) -> String {
    let (h, m, s) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    match seconds {
        0..60 => format!("{s}"),
        60..3600 => format!("{m:02}:{s:02}"),
        _ => format!("{h:02}:{m:02}:{s:02}"),
    }
}

impl Dissector<'_> {
    pub(super) fn icmp(&mut self, at: usize, length: usize, fragmented: bool) -> DissectStep {
        self.protocol = "icmp";
        let kind = self.u8(at)?;
        let text = self.icmp_words(kind, at)?;
        put!(self, "ICMP {text}, length {length}");
        if self.verbosity() > 0
            && !fragmented
            && let Some(sum) = self.sum(at, length)
            && checksum::fold(sum) != 0xffff
        {
            let found = self.u16(at + 2)?;
            let right = checksum::finish(sum + u64::from(!found));
            put!(self, " (wrong icmp cksum {found:x} (->{right:x})!)");
        }
        if self.verbosity() > 0 && matches!(kind, 3 | 4 | 5 | 11 | 12) {
            put!(self, "\n\t");
            let whole = usize::from(self.u16(at + 10)?);
            // tcpdump assumes the claimed length of the quoted packet, so it does not
            // complain about the part that the router cut.
            self.ipv4(at + 8, whole)?;
        }
        Ok(())
    }

    fn icmp_words(&self, kind: u8, at: usize) -> DissectStep<String> {
        let code = self.u8(at + 1)?;
        Ok(match kind {
            0 | 8 => {
                let word = if kind == 0 { "reply" } else { "request" };
                format!(
                    "echo {word}, id {}, seq {}",
                    self.u16(at + 4)?,
                    self.u16(at + 6)?
                )
            }
            3 => self.icmp_unreachable(code, at)?,
            4 => "source quench".into(),
            5 => {
                let (gateway, dst) = (self.v4(at + 4)?, self.v4(at + 24)?);
                match code {
                    0 => format!("redirect {dst} to net {gateway}"),
                    1 => format!("redirect {dst} to host {gateway}"),
                    2 => format!("redirect-tos {dst} to net {gateway}"),
                    3 => format!("redirect-tos {dst} to host {gateway}"),
                    _ => format!("redirect-#{code} {dst} to {gateway}"),
                }
            }
            9 => {
                self.check_bytes(at, 8)?;
                let mut text = format!(
                    "router advertisement lifetime {} ",
                    lifetime_text(self.u16(at + 6)?)
                );
                let (count, size) = (self.u8(at + 4)?, self.u8(at + 5)?);
                let _ = write!(text, "{count}:");
                if size != 2 {
                    let _ = write!(text, " [size {size}]");
                } else {
                    for n in 0..usize::from(count) {
                        let entry = at + 8 + 8 * n;
                        self.check_bytes(entry, 8)?;
                        let (address, preference) = (self.v4(entry)?, self.u32(entry + 4)?);
                        let _ = write!(text, " {{{address} {preference}}}");
                    }
                }
                text
            }
            10 => "router solicitation".into(),
            11 => {
                self.check_bytes(at + 8, 20)?;
                match code {
                    0 => "time exceeded in-transit".into(),
                    1 => "ip reassembly time exceeded".into(),
                    _ => format!("time exceeded-#{code}"),
                }
            }
            12 if code != 0 => format!("parameter problem - code {code}"),
            12 => format!("parameter problem - octet {}", self.u8(at + 4)?),
            13 => format!(
                "time stamp query id {} seq {}",
                self.u16(at + 4)?,
                self.u16(at + 6)?
            ),
            14 => format!(
                "time stamp reply id {} seq {}: org {}, recv {}, xmit {}",
                self.u16(at + 4)?,
                self.u16(at + 6)?,
                time_of_day(self.u32(at + 8)?),
                time_of_day(self.u32(at + 12)?),
                time_of_day(self.u32(at + 16)?),
            ),
            15 => "information request".into(),
            16 => "information reply".into(),
            17 => "address mask request".into(),
            18 => format!("address mask is 0x{:08x}", self.u32(at + 8)?),
            _ => format!("type-#{kind}"),
        })
    }

    fn icmp_unreachable(&self, code: u8, at: usize) -> DissectStep<String> {
        let quoted = at + 8;
        if code == 3 {
            self.check_bytes(quoted, 10)?;
        }
        let dst = self.v4(quoted + 16)?;
        Ok(match code {
            0 => format!("net {dst} unreachable"),
            1 => format!("host {dst} unreachable"),
            2 => format!("{dst} protocol {} unreachable", self.u8(quoted + 9)?),
            3 => {
                let header_len = usize::from(self.u8(quoted)? & 0xf) * 4;
                let port = self.u16(quoted + header_len + 2)?;
                match self.u8(quoted + 9)? {
                    6 => format!("{dst} tcp port {port} unreachable"),
                    17 => format!("{dst} udp port {port} unreachable"),
                    other => format!("{dst} protocol {other} port {port} unreachable"),
                }
            }
            4 => match self.u16(at + 6)? {
                0 => format!("{dst} unreachable - need to frag"),
                mtu => format!("{dst} unreachable - need to frag (mtu {mtu})"),
            },
            5 => format!("{dst} unreachable - source route failed"),
            6 => format!("net {dst} unreachable - unknown"),
            7 => format!("host {dst} unreachable - unknown"),
            8 => format!("{dst} unreachable - source host isolated"),
            9 => format!("net {dst} unreachable - admin prohibited"),
            10 => format!("host {dst} unreachable - admin prohibited"),
            11 => format!("net {dst} unreachable - tos prohibited"),
            12 => format!("host {dst} unreachable - tos prohibited"),
            13 => format!("host {dst} unreachable - admin prohibited filter"),
            14 => format!("host {dst} unreachable - host precedence violation"),
            15 => format!("host {dst} unreachable - precedence cutoff"),
            _ => format!("{dst} unreachable - #{code}"),
        })
    }
}
