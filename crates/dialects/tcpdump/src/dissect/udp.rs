//! UDP.

use wb_wire::checksum;

use super::{DissectStep, Dissector, IpHeader, put};

/// UDP port of VXLAN: RFC 7348.
const VXLAN: u16 = 4789;

impl Dissector<'_> {
    pub(super) fn udp(&mut self, at: usize, length: usize, fragmented: bool) -> DissectStep {
        self.protocol = "udp";
        if !self.has_bytes(at, 4) {
            self.addresses(17)?;
            self.print_truncated();
            return Ok(());
        }
        let (sport, dport) = (self.u16(at)?, self.u16(at + 2)?);
        self.endpoints(sport, dport, 17)?;
        if length < 8 {
            put!(self, "truncated-udp {length}");
            return Ok(());
        }
        if !self.has_bytes(at + 4, 2) {
            self.print_truncated();
            return Ok(());
        }
        let claimed = match usize::from(self.u16(at + 4)?) {
            // A jumbogram; the length is in the IPv6 header (RFC 2675).
            0 if length > 65_535 => length,
            claimed => claimed,
        };
        if claimed < 8 {
            put!(self, "truncated-udplength {claimed}");
            return Ok(());
        }
        let claimed = claimed - 8;
        let length = claimed.min(length - 8);
        if !self.has_bytes(at, 8) {
            self.print_truncated();
            return Ok(());
        }
        let v6 = matches!(self.ip, Some(IpHeader::V6(_)));
        if !fragmented && !self.options.unverified && self.verbosity() > u8::from(!v6) {
            let found = self.u16(at + 6)?;
            if found == 0 && !v6 {
                put!(self, "[no cksum] ");
            } else if let (Some(sum), Some(pseudo)) = (
                self.sum(at, length + 8),
                self.pseudo_header_sum(17, length + 8),
            ) {
                if checksum::fold(sum + pseudo) == 0xffff && found != 0 {
                    put!(self, "[udp sum ok] ");
                } else {
                    let right = checksum::finish(sum + pseudo + u64::from(!found));
                    put!(self, "[bad udp cksum 0x{found:04x} -> 0x{right:04x}!] ");
                }
            }
        }
        if (sport == VXLAN || dport == VXLAN) && !self.options.quiet {
            return self.vxlan(at + 8, length);
        }
        // A first fragment is shorter than its datagram.
        if claimed > length && !fragmented {
            put!(self, "UDP, bad length {claimed} > {length}");
        } else {
            put!(self, "UDP, length {claimed}");
        }
        Ok(())
    }
}
