//! Headers that encapsulate other packets: MPLS, GRE and VXLAN; and ESP, which is encrypted.

use super::{DissectStep, DissectStop, Dissector, put};

impl Dissector<'_> {
    pub(super) fn mpls(&mut self, at: usize, length: usize) -> DissectStep {
        self.nest(|d| d.mpls_stack(at, length))
    }

    fn mpls_stack(&mut self, mut at: usize, mut length: usize) -> DissectStep {
        self.protocol = "mpls";
        put!(self, "MPLS");
        let mut first = true;
        let label = loop {
            if length < 4 {
                put!(self, " (invalid)");
                return self.need_bytes(at, length);
            }
            let entry = self.u32(at)?;
            let label = entry >> 12;
            let verbose = self.verbosity() > 0;
            put!(
                self,
                "{}(label {label}",
                if verbose && !first { "\n\t" } else { " " }
            );
            first = false;
            if verbose {
                match label {
                    0 => put!(self, " (IPv4 explicit NULL)"),
                    1 => put!(self, " (router alert)"),
                    2 => put!(self, " (IPv6 explicit NULL)"),
                    3 => put!(self, " (implicit NULL)"),
                    4..16 => put!(self, " (rsvd)"),
                    _ => {}
                }
            }
            put!(self, ", tc {}", entry >> 9 & 7);
            let bottom = entry & 0x100 != 0;
            if bottom {
                put!(self, ", [S]");
            }
            put!(self, ", ttl {})", entry & 0xff);
            (at, length) = (at + 4, length - 4);
            if bottom {
                break label;
            }
        };
        if length == 0 {
            return Ok(());
        }
        let v4 = match label {
            0 => true,
            2 => false,
            _ => match self.u8(at)? {
                0x45..=0x4f => true,
                0x60..=0x6f => false,
                _ => {
                    return if self.print_unknown(at, length) {
                        self.check_bytes(at, length)
                    } else {
                        Ok(())
                    };
                }
            },
        };
        put!(self, "{}", if self.verbosity() > 0 { "\n\t" } else { " " });
        if v4 {
            self.ipv4(at, length)
        } else {
            self.ipv6(at, length)
        }
    }

    pub(super) fn vxlan(&mut self, at: usize, length: usize) -> DissectStep {
        self.protocol = "vxlan";
        put!(self, "VXLAN");
        if length < 8 {
            return Err(DissectStop::Invalid);
        }
        let flags = self.u8(at)?;
        let word = if flags & 8 == 0 { "invalid" } else { "I" };
        put!(self, ", flags [{word}] (0x{flags:02x}), ");
        let network = (u32::from(self.u16(at + 4)?) << 8) | u32::from(self.u8(at + 6)?);
        put!(self, "vni {network}\n");
        self.need_bytes(at, 8)?;
        self.ethernet(at + 8, length - 8)
    }

    pub(super) fn gre(&mut self, at: usize, length: usize) -> DissectStep {
        self.nest(|d| d.gre_header(at, length))
    }

    fn gre_header(&mut self, begin: usize, whole: usize) -> DissectStep {
        self.protocol = "gre";
        self.check_bytes(begin, 2)?;
        let flags = self.u16(begin)?;
        let version = flags & 7;
        put!(self, "GREv{version}");
        let verbose = self.verbosity() > 0;
        if version == 1 {
            put!(self, ", length {whole}");
            return Ok(());
        }
        if version > 1 {
            put!(self, ", unknown-version");
            return Err(DissectStop::Invalid);
        }
        if verbose {
            const FLAGS: [(u32, &str); 6] = [
                (0x8000, "checksum present"),
                (0x4000, "routing present"),
                (0x2000, "key present"),
                (0x1000, "sequence# present"),
                (0x0800, "source routing present"),
                (0x0080, "acknowledgment present"),
            ];
            put!(
                self,
                ", Flags [{}]",
                Self::flag_names(u32::from(flags), &FLAGS)
            );
        }
        self.check_bytes(begin + 2, 2)?;
        let protocol = self.u16(begin + 2)?;
        let mut at = begin + 4;
        if flags & 0xc000 != 0 {
            if verbose {
                put!(self, ", sum 0x{:x}", self.u16(at)?);
            }
            put!(self, ", off 0x{:x}", self.u16(at + 2)?);
            at += 4;
        }
        if flags & 0x2000 != 0 {
            put!(self, ", key=0x{:x}", self.u32(at)?);
            at += 4;
        }
        if flags & 0x1000 != 0 {
            put!(self, ", seq {}", self.u32(at)?);
            at += 4;
        }
        if self.options.link_header {
            let name = super::names::ethertype_name(protocol).unwrap_or("unknown");
            put!(self, ", proto {name} (0x{protocol:04x})");
        }
        put!(self, ", length {whole}");
        put!(self, "{}", if verbose { "\n\t" } else { ": " });
        let Some(length) = whole.checked_sub(at - begin) else {
            return Err(DissectStop::Invalid);
        };
        // Source routes (RFC 1701) are not followed to the content.
        let content = if flags & 0x4000 == 0 { protocol } else { 0 };
        match content {
            0x0800 => self.ipv4(at, length),
            0x86dd => self.ipv6(at, length),
            0x8847 | 0x8848 => self.mpls(at, length),
            0x6558 => self.ethernet(at, length),
            _ => {
                put!(self, "gre-proto-0x{protocol:x}");
                Ok(())
            }
        }
    }

    pub(super) fn esp(&mut self, at: usize, length: usize) -> DissectStep {
        self.protocol = "esp";
        // One byte more than the header, as in tcpdump.
        self.check_bytes(at, 9)?;
        if length < 9 {
            return Err(DissectStop::Truncated);
        }
        put!(
            self,
            "ESP(spi=0x{:08x},seq=0x{:x}), length {length}",
            self.u32(at)?,
            self.u32(at + 4)?
        );
        Ok(())
    }
}
