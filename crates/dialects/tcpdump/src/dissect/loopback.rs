//! BSD loopback header: an address family, followed by a packet of this family.

use super::{DissectStep, DissectStop, Dissector, put};

const HEADER_LEN: usize = 4;

/// Names of address families; the number of IPv6 differs between the BSDs.
const fn name(family: u32) -> Option<&'static str> {
    match family {
        2 => Some("IPv4"),
        7 => Some("ISO"),
        16 => Some("Appletalk"),
        23 => Some("IPX"),
        24 | 28 | 30 => Some("IPv6"),
        _ => None,
    }
}

impl Dissector<'_> {
    pub(super) fn loopback(&mut self, length: usize) -> DissectStep {
        self.protocol = "null";
        if !self.has_bytes(0, HEADER_LEN) {
            return Err(DissectStop::Truncated);
        }
        self.link_header_len = HEADER_LEN;
        // The capturing host may have the other byte order; family numbers are small.
        let family = match u32::from_le_bytes(self.array(0)?) {
            swapped if swapped >> 16 != 0 => swapped.swap_bytes(),
            family => family,
        };
        if self.options.link_header {
            self.family(family, length);
        }
        match name(family) {
            Some("IPv4") => self.ipv4(HEADER_LEN, length - HEADER_LEN),
            Some("IPv6") => self.ipv6(HEADER_LEN, length - HEADER_LEN),
            _ => {
                if !self.options.link_header {
                    self.family(family, length);
                }
                self.print_unknown(HEADER_LEN, length - HEADER_LEN);
                Ok(())
            }
        }
    }

    fn family(&mut self, family: u32, length: usize) {
        match (name(family), self.options.quiet) {
            (Some(name), true) => put!(self, "{name}"),
            (None, true) => put!(self, "Unknown AF {family}"),
            (found, false) => put!(self, "AF {} ({family})", found.unwrap_or("Unknown")),
        }
        put!(self, ", length {length}: ");
    }
}
