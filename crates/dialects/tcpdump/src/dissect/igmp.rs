//! IGMP.

use wb_wire::checksum;

use super::{DissectStep, Dissector, put};

/// Type of a group record: RFC 3376 section 4.2.12, RFC 3810 section 5.2.12.
fn record_kind(kind: u8) -> String {
    match kind {
        1 => "is_in".into(),
        2 => "is_ex".into(),
        3 => "to_in".into(),
        4 => "to_ex".into(),
        5 => "allow".into(),
        6 => "block".into(),
        other => format!("[v3-report-#{other}]"),
    }
}

impl Dissector<'_> {
    pub(super) fn igmp(&mut self, at: usize, length: usize) -> DissectStep {
        self.protocol = "igmp";
        if self.options.quiet {
            put!(self, "igmp");
            return Ok(());
        }
        match self.u8(at)? {
            0x11 => {
                put!(self, "igmp query");
                if length >= 12 {
                    self.igmp_query3(at, length)?;
                } else {
                    let max = self.u8(at + 1)?;
                    if max == 0 {
                        put!(self, " v1");
                    } else {
                        put!(self, " v2");
                        if max != 100 {
                            put!(self, " [max resp time ");
                            if max < 10 {
                                put!(self, "0.{max}s]");
                            } else {
                                put!(self, "{}.{}s]", max / 10, max % 10);
                            }
                        }
                    }
                    if self.u32(at + 4)? != 0 {
                        let group = self.v4(at + 4)?;
                        put!(self, " [gaddr {group}]");
                    }
                    if length != 8 {
                        put!(self, " [len {length}]");
                    }
                }
            }
            kind @ (0x12 | 0x16) => {
                let group = self.v4(at + 4)?;
                let version = if kind == 0x12 { 1 } else { 2 };
                put!(self, "igmp v{version} report {group}");
                if length != 8 {
                    put!(self, " [len {length}]");
                }
            }
            0x22 => {
                put!(self, "igmp v3 report");
                if length < 16 || length & 3 != 0 {
                    put!(self, " [invalid len {length}]");
                } else {
                    self.group_records(at, length, 4)?;
                }
            }
            0x17 => {
                let group = self.v4(at + 4)?;
                put!(self, "igmp leave {group}");
                if length != 8 {
                    put!(self, " [len {length}]");
                }
            }
            kind => put!(self, "igmp-{kind}"),
        }
        if self.verbosity() > 0
            && let Some(sum) = self.sum(at, length)
            && checksum::fold(sum) != 0xffff
        {
            put!(self, " bad igmp cksum {:x}!", self.u16(at + 2)?);
        }
        Ok(())
    }

    fn igmp_query3(&mut self, at: usize, length: usize) -> DissectStep {
        put!(self, " v3");
        if length < 12 || length & 3 != 0 {
            put!(self, " [invalid len {length}]");
            return Ok(());
        }
        let code = self.u8(at + 1)?;
        let max = if code < 128 {
            u32::from(code)
        } else {
            // 4-bit mantissa with an implicit leading one, shifted: RFC 3376 section 4.1.1.
            u32::from(code & 0xf | 0x10) << ((code >> 4 & 7) + 3)
        };
        if code != 100 {
            put!(self, " [max resp time ");
            if max < 10 {
                put!(self, "0.{max}s]");
            } else if max < 600 {
                // Rounded to whole seconds from ten seconds upwards.
                put!(self, "{}.{}s]", max / 10, max % 10);
            } else {
                let seconds = max / 10;
                put!(self, "{}m{}s]", seconds / 60, seconds % 60);
            }
        }
        let group = self.u32(at + 4)?;
        if group == 0 {
            return Ok(());
        }
        let address = self.v4(at + 4)?;
        put!(self, " [gaddr {address}");
        let sources = usize::from(self.u16(at + 10)?);
        if sources > 0 {
            if 12 + 4 * sources > length {
                put!(self, " [invalid number of sources {sources}]");
            } else {
                self.group_sources(at + 12, sources, 4)?;
            }
        }
        put!(self, "]");
        Ok(())
    }

    /// Groups of a report. The `address` length in bytes is the only difference between IGMPv3 and MLDv2.
    pub(super) fn group_records(
        &mut self,
        at: usize,
        length: usize,
        address: usize,
    ) -> DissectStep {
        let records = usize::from(self.u16(at + 6)?);
        put!(self, ", {records} group record(s)");
        if self.verbosity() == 0 {
            return Ok(());
        }
        let mut record = 8;
        for _ in 0..records {
            let head = 4 + address;
            if length < record + head {
                put!(self, " [invalid number of groups]");
                return Ok(());
            }
            let group = self.group_address(at + record + 4, address)?;
            put!(self, " [gaddr {group}");
            put!(self, " {}", record_kind(self.u8(at + record)?));
            let sources = usize::from(self.u16(at + record + 2)?);
            if length < record + head + address * sources {
                put!(self, " [invalid number of sources {sources}]");
                return Ok(());
            }
            self.group_sources(at + record + head, sources, address)?;
            record += head + address * sources;
            put!(self, "]");
        }
        Ok(())
    }

    /// Sources of a group, or their number.
    pub(super) fn group_sources(&mut self, at: usize, count: usize, address: usize) -> DissectStep {
        if self.verbosity() <= 1 {
            put!(self, ", {count} source(s)");
            return Ok(());
        }
        put!(self, " {{");
        for n in 0..count {
            let source = self.group_address(at + address * n, address)?;
            put!(self, " {source}");
        }
        put!(self, " }}");
        Ok(())
    }

    fn group_address(&self, at: usize, bytes: usize) -> DissectStep<String> {
        Ok(match bytes {
            4 => self.v4(at)?.to_string(),
            _ => self.v6(at)?.to_string(),
        })
    }
}
