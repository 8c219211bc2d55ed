//! Finds all IP addresses of any frame: behind tags and labels, in tunnels, in source routes.

use std::net::IpAddr;
use std::ops::Range;

use crate::ethernet::ethertype;
use crate::ipv4::protocol;
use crate::vlan::Vlan;

/// Maximum depth of frames within frames, far above any real nesting.
const DEEPEST: u32 = 8;
/// Reverse ARP, with the same message format.
const RARP: u16 = 0x8035;
const PPPOE_SESSION: u16 = 0x8864;
/// Ethernet frame in GRE or a similar tunnel.
const BRIDGED: u16 = 0x6558;
/// First value of the type field that is not a length (IEEE Std 802.3 3.2.6).
const FIRST_TYPE: u16 = 0x0600;
const VXLAN_PORT: u16 = 4789;

/// Error: changing bytes are part of an address, or determine where addresses are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unclear;

/// Finds every IP address in a frame without FCS. The bits of `changing`, byte by byte, differ in the frames actually
/// sent; later bytes do not change.
///
/// A frame without IP has no addresses. A truncated frame has those that are present.
///
/// # Errors
/// Returns [`Unclear`] if the addresses depend on changing bytes.
pub fn addresses(frame: &[u8], changing: &[u8]) -> Result<Vec<IpAddr>, Unclear> {
    let fields = address_fields(frame, changing)?;
    let address = |field: &Range<usize>| {
        let mut bits = changing.iter().take(field.end).skip(field.start);
        match bits.any(|bits| *bits != 0) {
            true => Err(Unclear),
            false => Ok(address_in(&frame[field.clone()])),
        }
    };
    let addresses: Result<Vec<_>, _> = fields.iter().map(address).collect();
    Ok(addresses?.into_iter().flatten().collect())
}

/// Finds every field with an IP address in a frame without FCS, as ranges of 4 or 16 bytes. Changing bits may be inside
/// of these fields.
///
/// # Errors
/// Returns [`Unclear`] if changing bits determine where addresses are.
pub fn address_fields(frame: &[u8], changing: &[u8]) -> Result<Vec<Range<usize>>, Unclear> {
    let mut look = AddressWalk {
        frame,
        changing,
        found: Vec::new(),
    };
    look.ethernet(0, DEEPEST)?;
    Ok(look.found)
}

/// The address in a field.
pub fn address_in(field: &[u8]) -> Option<IpAddr> {
    let v4 = || <[u8; 4]>::try_from(field).ok().map(IpAddr::from);
    v4().or_else(|| <[u8; 16]>::try_from(field).ok().map(IpAddr::from))
}

struct AddressWalk<'a> {
    frame: &'a [u8],
    changing: &'a [u8],
    found: Vec<Range<usize>>,
}

impl AddressWalk<'_> {
    /// Returns bytes that must not change; None beyond the end of the frame.
    fn bytes<const N: usize>(&self, at: usize) -> Result<Option<[u8; N]>, Unclear> {
        self.bits(at, [0xff; N])
    }

    /// Returns bytes of which these bits must not change.
    fn bits<const N: usize>(&self, at: usize, fixed: [u8; N]) -> Result<Option<[u8; N]>, Unclear> {
        let bytes = self.glance(at);
        let changing = self.changing.iter().skip(at).zip(fixed);
        match changing
            .map(|(bits, fixed)| bits & fixed)
            .any(|bits| bits != 0)
        {
            true if bytes.is_some() => Err(Unclear),
            _ => Ok(bytes),
        }
    }

    /// Returns bytes as they are in this frame.
    fn glance<const N: usize>(&self, at: usize) -> Option<[u8; N]> {
        self.frame.get(at..)?.first_chunk().copied()
    }

    fn changes(&self, at: usize, len: usize) -> bool {
        self.changing
            .iter()
            .skip(at)
            .take(len)
            .any(|bits| *bits != 0)
    }

    fn word(&self, at: usize) -> Result<Option<u16>, Unclear> {
        Ok(self.bytes(at)?.map(u16::from_be_bytes))
    }

    fn v4(&mut self, at: usize) -> Result<(), Unclear> {
        self.address(at..at + 4)
    }

    fn v6(&mut self, at: usize) -> Result<(), Unclear> {
        self.address(at..at + 16)
    }

    fn address(&mut self, field: Range<usize>) -> Result<(), Unclear> {
        if field.end > self.frame.len() {
            return Ok(());
        }
        self.found.push(field);
        Ok(())
    }

    fn ethernet(&mut self, at: usize, deep: u32) -> Result<(), Unclear> {
        match self.word(at + 12)? {
            Some(kind) => self.payload(kind, at + 14, deep),
            None => Ok(()),
        }
    }

    /// Parses the payload of an Ethernet type.
    fn payload(&mut self, mut kind: u16, mut at: usize, deep: u32) -> Result<(), Unclear> {
        let deep = deep.checked_sub(1).ok_or(Unclear)?;
        while Vlan::is_tpid(kind) {
            match self.word(at + 2)? {
                Some(next) => (kind, at) = (next, at + 4),
                None => return Ok(()),
            }
        }
        match kind {
            ethertype::IPV4 => self.ipv4(at, deep),
            ethertype::IPV6 => self.ipv6(at, deep),
            ethertype::ARP | RARP => {
                self.v4(at + 14)?;
                self.v4(at + 24)
            }
            ethertype::MPLS | ethertype::MPLS_MULTICAST => self.labels(at, deep),
            BRIDGED => self.ethernet(at, deep),
            PPPOE_SESSION => match self.word(at + 6)? {
                Some(0x0021) => self.ipv4(at + 8, deep),
                Some(0x0057) => self.ipv6(at + 8, deep),
                _ => Ok(()),
            },
            // LLC with SNAP (RFC 1042).
            length if length < FIRST_TYPE => match self.bytes(at)? {
                Some([0xaa, 0xaa, 3, 0, 0, 0, high, low]) => {
                    self.payload(u16::from_be_bytes([high, low]), at + 8, deep)
                }
                _ => Ok(()),
            },
            _ => Ok(()),
        }
    }

    fn labels(&mut self, mut at: usize, deep: u32) -> Result<(), Unclear> {
        // Labels may change, but not the bit that ends them.
        while let Some([.., bottom, _]) = self.bits(at, [0, 0, 1, 0])? {
            at += 4;
            if bottom & 1 == 0 {
                continue;
            }
            // Only the first bits show what follows (RFC 4928 section 3).
            return match self.bits(at, [0xf0])? {
                Some([first]) if first >> 4 == 4 => self.ipv4(at, deep),
                Some([first]) if first >> 4 == 6 => self.ipv6(at, deep),
                // Pseudowire, with or without a control word.
                Some(_) if self.changes(at, 1) => Err(Unclear),
                Some([0]) => self.ethernet(at + 4, deep),
                Some(_) => self.ethernet(at, deep),
                None => Ok(()),
            };
        }
        Ok(())
    }

    fn ipv4(&mut self, at: usize, deep: u32) -> Result<(), Unclear> {
        let Some([first]) = self.bytes(at)? else {
            return Ok(());
        };
        self.v4(at + 12)?;
        self.v4(at + 16)?;
        let body = at + usize::from(first & 0xf).max(5) * 4;
        let mut option = at + 20;
        while option < body {
            match self.bytes(option)? {
                Some([1, _]) => option += 1,
                // Source routes (RFC 791 section 3.1): three bytes, then addresses.
                Some([131 | 137, len]) => {
                    let end = option + usize::from(len);
                    for hop in (option + 3..end.min(body)).step_by(4) {
                        self.v4(hop)?;
                    }
                    option = end.max(option + 2);
                }
                Some([0, _]) | None => break,
                Some([_, len]) => option += usize::from(len).max(2),
            }
        }
        match self.glance(at + 9) {
            Some([next]) => self.inner(next, body, deep),
            None => Ok(()),
        }
    }

    fn ipv6(&mut self, at: usize, deep: u32) -> Result<(), Unclear> {
        // The traffic class shares this byte with the version.
        if self.bits(at, [0xf0])?.is_none() {
            return Ok(());
        }
        self.v6(at + 8)?;
        self.v6(at + 24)?;
        let (mut next, mut at) = (self.glance(at + 6), at + 40);
        // Extension headers: RFC 8200 section 4.
        while let Some([kind @ (0 | 43 | 44 | 60)]) = next {
            let Some([following, len, routing, left, last]) = self.bytes::<5>(at)? else {
                return Ok(());
            };
            let octets = match kind {
                44 => 8,
                _ => 8 + 8 * usize::from(len),
            };
            if kind == 43 {
                let hops = match routing {
                    // Segment routing (RFC 8754): the stated number of segments, then options.
                    4 => usize::from(last) + 1,
                    // Routers ignore it: RFC 8200 section 4.4.
                    _ if left == 0 => 0,
                    _ => octets / 16,
                };
                for hop in 0..hops.min(octets / 16) {
                    self.v6(at + 8 + 16 * hop)?;
                }
            }
            next = Some([following]);
            at += octets;
        }
        match next {
            Some([next]) => self.inner(next, at, deep),
            None => Ok(()),
        }
    }

    /// Parses tunnels. A protocol or port that changes is not treated as a tunnel.
    fn inner(&mut self, next: u8, at: usize, deep: u32) -> Result<(), Unclear> {
        match next {
            4 => self.ipv4(at, deep.checked_sub(1).ok_or(Unclear)?),
            41 => self.ipv6(at, deep.checked_sub(1).ok_or(Unclear)?),
            // RFC 2784, RFC 2890: checksum, key, sequence number.
            47 if !self.changes(at, 4) => match self.glance::<4>(at) {
                Some([flags, _, high, low]) => {
                    let optional = u32::from(flags & 0xb0).count_ones() as usize * 4;
                    self.payload(u16::from_be_bytes([high, low]), at + 4 + optional, deep)
                }
                None => Ok(()),
            },
            protocol::UDP if !self.changes(at + 2, 2) => match self.glance(at + 2) {
                Some(port) if u16::from_be_bytes(port) == VXLAN_PORT => {
                    self.payload(BRIDGED, at + 16, deep)
                }
                _ => Ok(()),
            },
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Arp, ArpOperation, MacAddr, MplsLabel, NetworkHeader, Stack};
    use proptest::prelude::*;
    use std::net::Ipv4Addr;

    const A: Ipv4Addr = Ipv4Addr::new(198, 18, 1, 2);
    const B: Ipv4Addr = Ipv4Addr::new(8, 8, 8, 8);

    fn udp() -> Stack {
        Stack::udp4(A.octets(), B.octets(), 1, 7)
    }

    fn both() -> Vec<IpAddr> {
        vec![A.into(), B.into()]
    }

    #[test]
    fn behind_tags_and_labels() {
        let mut stack = udp();
        assert_eq!(addresses(&stack.build(60), &[]), Ok(both()));
        stack.vlans = Vlan::stack(&[5, 6]);
        assert_eq!(addresses(&stack.build(80), &[]), Ok(both()));
        stack.mpls = vec![MplsLabel::new(16), MplsLabel::new(17)];
        assert_eq!(addresses(&stack.build(80), &[]), Ok(both()));
        let arp = Stack::over(NetworkHeader::Arp(Arp {
            operation: ArpOperation::Request,
            sender_mac: MacAddr::ZERO,
            sender_ip: A,
            target_mac: MacAddr::ZERO,
            target_ip: B,
        }));
        assert_eq!(addresses(&arp.build(60), &[]), Ok(both()));
        let none = Stack::over(NetworkHeader::None {
            ethertype: ethertype::EXPERIMENTAL,
        });
        assert_eq!(addresses(&none.build(60), &[]), Ok(Vec::new()));
    }

    #[test]
    fn in_tunnels_and_source_routes() {
        let inner = udp().build(60);
        // VXLAN.
        let mut outer = Stack::udp4([10, 0, 0, 1], [10, 0, 0, 2], 9, VXLAN_PORT).build(120);
        outer[50..50 + inner.len()].copy_from_slice(&inner);
        let found = addresses(&outer, &[]).unwrap();
        assert_eq!(found[2..], both());
        // IP in IP.
        let mut outer = Stack::udp4([10, 0, 0, 1], [10, 0, 0, 2], 9, 9).build(120);
        outer[23] = 4;
        outer[34..34 + inner.len() - 14].copy_from_slice(&inner[14..]);
        assert_eq!(addresses(&outer, &[]).unwrap()[2..], both());
        // Loose source route of one hop.
        let mut routed = Stack::udp4([10, 0, 0, 1], [10, 0, 0, 2], 9, 9).build(120);
        routed[14] = 0x47;
        routed[34..42].copy_from_slice(&[131, 7, 4, 8, 8, 8, 8, 0]);
        assert_eq!(addresses(&routed, &[]).unwrap()[2], IpAddr::V4(B));
        // Routing header of one hop.
        let mut routed = Stack::udp6([0; 16], [0; 16], 9, 9).build(120);
        routed[20] = 43;
        routed[54..62].copy_from_slice(&[17, 2, 0, 1, 0, 0, 0, 0]);
        routed[62..78].fill(9);
        assert_eq!(addresses(&routed, &[]).unwrap()[2], IpAddr::from([9; 16]));
        // Without segments left the hop is not used.
        routed[57] = 0;
        assert_eq!(addresses(&routed, &[]).unwrap().len(), 2);
    }

    #[test]
    fn what_changes_is_unclear_where_it_matters() {
        let frame = udp().build(60);
        for (changing, clear) in [
            (0..12, true),
            (12..14, false),
            (14..15, false),
            (23..24, true),
            (26..27, false),
            (33..34, false),
            (34..60, true),
        ] {
            let mut bits = vec![0; frame.len()];
            bits[changing.clone()].fill(0xff);
            let found = addresses(&frame, &bits);
            assert_eq!(found.is_ok(), clear, "{changing:?}");
        }
    }

    #[test]
    fn bits_beside_those_that_decide_may_change() {
        let clear = |frame: &[u8], at: usize, bits: u8| {
            let mut changing = vec![0; at];
            changing.push(bits);
            address_fields(frame, &changing).is_ok()
        };
        let mut stack = Stack::udp6([0; 16], [0; 16], 9, 9);
        let frame = stack.build(80);
        // Version and traffic class of IPv6.
        assert!(clear(&frame, 14, 0x0f) && !clear(&frame, 14, 0x10));
        stack.mpls = vec![MplsLabel::new(16), MplsLabel::new(17)];
        let frame = stack.build(100);
        for at in [14, 18] {
            // Label and traffic class, and the bottom of the stack.
            assert!(clear(&frame, at, 0xff) && clear(&frame, at + 2, 0xfe));
            assert!(!clear(&frame, at + 2, 1) && clear(&frame, at + 3, 0xff));
        }
        assert!(clear(&frame, 22, 0x0f) && !clear(&frame, 22, 0x20));
        stack.mpls = Vec::new();
        stack.vlans = Vlan::stack(&[5]);
        let frame = stack.build(100);
        assert!(clear(&frame, 14, 0xff) && clear(&frame, 15, 0xff) && !clear(&frame, 16, 1));
    }

    proptest! {
        #[test]
        fn any_bytes_end(mut frame in prop::collection::vec(any::<u8>(), 0..200), kind in 0usize..6) {
            if frame.len() > 24 {
                let head: &[u8] = [&[8, 0, 0x4f][..], &[0x86, 0xdd, 0x60], &[0x81, 0], &[0x88, 0x47], &[0, 9], &[]][kind];
                frame[12..12 + head.len()].copy_from_slice(head);
            }
            let _ = addresses(&frame, &[]);
        }
    }
}
