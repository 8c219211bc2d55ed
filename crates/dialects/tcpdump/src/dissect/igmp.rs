//! IGMP: kind and group of a message.

use wb_wire::checksum;

use super::{DissectStep, Dissector, put};

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
                let version = match self.u8(at + 1) {
                    _ if length >= 12 => 3,
                    Ok(0) => 1,
                    Ok(_) => 2,
                    Err(stop) => return Err(stop),
                };
                put!(self, " v{version}");
                if self.u32(at + 4)? != 0 {
                    let group = self.v4(at + 4)?;
                    put!(self, " [gaddr {group}]");
                }
            }
            0x12 => {
                let group = self.v4(at + 4)?;
                put!(self, "igmp v1 report {group}");
            }
            0x16 => {
                let group = self.v4(at + 4)?;
                put!(self, "igmp v2 report {group}");
            }
            0x17 => {
                let group = self.v4(at + 4)?;
                put!(self, "igmp leave {group}");
            }
            0x22 => put!(
                self,
                "igmp v3 report, {} group record(s)",
                self.u16(at + 6)?
            ),
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
}
