//! Length and checksum fields of headers that are given as bytes, also inside tunnels.

use std::ops::Range;

use crate::checksum::{self, finish};
use crate::{Vlan, ethertype, protocol};

const VXLAN_PORT: u16 = 4789;
/// Ethernet frame in GRE.
const BRIDGED: u16 = 0x6558;
/// Maximum depth of frames within frames.
const DEEPEST: u32 = 8;

/// Checksum field, and the bytes that it covers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChecksumField {
    at: usize,
    covered: Range<usize>,
    /// Offset of the IP addresses of the pseudo header, their length, and the protocol.
    pseudo: Option<(usize, usize, u8)>,
    is_udp: bool,
    is_wrong: bool,
}

impl ChecksumField {
    /// Offset of the field from the start of the frame.
    #[must_use]
    pub const fn at(&self) -> usize {
        self.at
    }

    /// Makes the field write the complement of the checksum.
    #[must_use]
    pub fn wrong(self) -> Self {
        Self {
            is_wrong: true,
            ..self
        }
    }

    /// Computes and writes the checksum.
    pub fn write(&self, frame: &mut [u8]) {
        frame[self.at..self.at + 2].fill(0);
        let mut sum = checksum::sum(&frame[self.covered.clone()]);
        if let Some((addresses, len, protocol)) = self.pseudo {
            sum += checksum::sum(&frame[addresses..addresses + len]);
            sum += u64::from(protocol) + self.covered.len() as u64;
        }
        let mut field = finish(sum);
        if self.is_udp {
            field = checksum::udp(field);
        }
        if self.is_wrong {
            // 0 stands for no checksum.
            field = (!field).max(1);
        }
        frame[self.at..self.at + 2].copy_from_slice(&field.to_be_bytes());
    }
}

/// Fills in the length fields of IPv4, IPv6 and UDP that are 0, so that they reach to the end of the enclosing packet
/// or frame, and finds the checksum fields that are 0: of IPv4, UDP, TCP, ICMP, ICMPv6 and GRE. Headers end before
/// `headers`; later bytes are payload. Inner checksums come first, because outer ones cover them.
pub fn derive(frame: &mut [u8], headers: usize) -> Vec<ChecksumField> {
    let limit = frame.len();
    let mut walk = DerivedWalk {
        headers: headers.min(limit),
        frame,
        found: Vec::new(),
    };
    walk.ethernet(0, limit, DEEPEST);
    walk.found.reverse();
    walk.found
}

struct DerivedWalk<'a> {
    frame: &'a mut [u8],
    headers: usize,
    found: Vec<ChecksumField>,
}

impl DerivedWalk<'_> {
    /// Returns true if `len` bytes of headers are at `at`.
    fn has(&self, at: usize, len: usize) -> bool {
        at + len <= self.headers
    }

    fn word(&self, at: usize) -> u16 {
        u16::from_be_bytes([self.frame[at], self.frame[at + 1]])
    }

    /// Returns the length in a field, which is filled in if it is 0.
    fn length(&mut self, at: usize, whole: usize) -> usize {
        if self.word(at) == 0 {
            let whole = u16::try_from(whole).unwrap_or(u16::MAX);
            self.frame[at..at + 2].copy_from_slice(&whole.to_be_bytes());
        }
        self.word(at).into()
    }

    fn checksum(&mut self, at: usize, covered: Range<usize>, pseudo: Option<(usize, usize, u8)>) {
        let fits = covered.start <= at && at + 2 <= covered.end;
        if fits && self.has(at, 2) && self.word(at) == 0 {
            self.found.push(ChecksumField {
                at,
                covered,
                pseudo,
                is_udp: pseudo.is_some_and(|(.., protocol)| protocol == protocol::UDP),
                is_wrong: false,
            });
        }
    }

    fn ethernet(&mut self, at: usize, limit: usize, deep: u32) {
        if self.has(at, 14) {
            self.payload(self.word(at + 12), at + 14, limit, deep);
        }
    }

    fn payload(&mut self, mut kind: u16, mut at: usize, limit: usize, deep: u32) {
        let Some(deep) = deep.checked_sub(1) else {
            return;
        };
        while Vlan::is_tpid(kind) && self.has(at, 4) {
            (kind, at) = (self.word(at + 2), at + 4);
        }
        if matches!(kind, ethertype::MPLS | ethertype::MPLS_MULTICAST) {
            while self.has(at, 5) {
                at += 4;
                if self.frame[at - 2] & 1 == 1 {
                    kind = match self.frame[at] >> 4 {
                        4 => ethertype::IPV4,
                        6 => ethertype::IPV6,
                        _ => return,
                    };
                    break;
                }
            }
        }
        match kind {
            ethertype::IPV4 => self.ipv4(at, limit, deep),
            ethertype::IPV6 => self.ipv6(at, limit, deep),
            BRIDGED => self.ethernet(at, limit, deep),
            _ => {}
        }
    }

    fn ipv4(&mut self, at: usize, limit: usize, deep: u32) {
        let body = at + usize::from(self.frame.get(at).copied().unwrap_or(0) & 15).max(5) * 4;
        if !self.has(at, body - at) {
            return;
        }
        let len = self.length(at + 2, limit - at);
        let end = (at + len).clamp(body, limit.max(body));
        self.checksum(at + 10, at..body, None);
        if self.word(at + 6) & 0x1fff == 0 {
            self.transport(self.frame[at + 9], body, end, (at + 12, 8), deep);
        }
    }

    fn ipv6(&mut self, at: usize, limit: usize, deep: u32) {
        if !self.has(at, 40) {
            return;
        }
        let mut body = at + 40;
        let len = self.length(at + 4, limit.saturating_sub(body));
        let end = (body + len).min(limit.max(body));
        let mut next = self.frame[at + 6];
        while matches!(next, 0 | 43 | 44 | 60) && self.has(body, 8) {
            let octets = match next {
                44 => 8,
                _ => 8 + 8 * usize::from(self.frame[body + 1]),
            };
            next = self.frame[body];
            body += octets;
        }
        if body <= end {
            self.transport(next, body, end, (at + 8, 32), deep);
        }
    }

    fn transport(
        &mut self,
        next: u8,
        at: usize,
        limit: usize,
        (addresses, len): (usize, usize),
        deep: u32,
    ) {
        let pseudo = Some((addresses, len, next));
        match next {
            protocol::UDP if self.has(at, 8) => {
                let end = (at + self.length(at + 4, limit - at)).min(limit);
                self.checksum(at + 6, at..end, pseudo);
                if self.word(at + 2) == VXLAN_PORT {
                    self.ethernet(at + 16, end, deep);
                }
            }
            protocol::TCP => self.checksum(at + 16, at..limit, pseudo),
            protocol::ICMP => self.checksum(at + 2, at..limit, None),
            protocol::ICMPV6 => self.checksum(at + 2, at..limit, pseudo),
            47 if self.has(at, 4) => {
                let flags = self.frame[at];
                if flags & 0x80 != 0 {
                    self.checksum(at + 4, at..limit, None);
                }
                let optional = (flags & 0xb0).count_ones() as usize * 4;
                self.payload(self.word(at + 2), at + 4 + optional, limit, deep);
            }
            4 => self.ipv4(at, limit, deep),
            41 => self.ipv6(at, limit, deep),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Stack;
    use proptest::prelude::*;

    /// A frame with all its lengths and checksums, and the same frame without them.
    fn both(stack: &Stack, len: usize) -> (Vec<u8>, Vec<u8>, usize) {
        let (frame, layout) = stack.build_with_layout(len);
        let mut bare = frame.clone();
        let ip = layout.ip.unwrap();
        let ipv6 = bare[ip] >> 4 == 6;
        bare[ip + if ipv6 { 4 } else { 2 }..][..2].fill(0);
        for at in [layout.ip_checksum, layout.l4_checksum]
            .into_iter()
            .flatten()
        {
            bare[at..at + 2].fill(0);
        }
        bare[layout.l4.unwrap() + 4..][..2].fill(0);
        (frame, bare, layout.payload)
    }

    #[test]
    fn plain_frames_get_the_fields_of_a_stack() {
        let v6 = std::net::Ipv6Addr::LOCALHOST;
        let mut tagged = Stack::udp4([1, 2, 3, 4], [5, 6, 7, 8], 9, 10);
        tagged.vlans = Vlan::stack(&[5, 6]);
        for stack in [
            Stack::udp4([1, 2, 3, 4], [5, 6, 7, 8], 9, 10),
            Stack::udp6(v6, v6, 9, 10),
            tagged,
        ] {
            let (whole, mut bare, headers) = both(&stack, 100);
            for field in derive(&mut bare, headers) {
                field.write(&mut bare);
            }
            assert_eq!(bare, whole);
        }
    }

    #[test]
    fn wrong_checksums_are_complements() {
        let (whole, mut bare, headers) = both(&Stack::udp4([1, 2, 3, 4], [5, 6, 7, 8], 9, 10), 100);
        for field in derive(&mut bare, headers) {
            field.wrong().write(&mut bare);
        }
        for at in 0..whole.len() {
            let is_checksum = [24, 25, 40, 41].contains(&at);
            let expected = if is_checksum { !whole[at] } else { whole[at] };
            assert_eq!(bare[at], expected, "{at}");
        }
        // A right checksum of 0xffff: its complement would stand for no checksum.
        let field = ChecksumField {
            at: 0,
            covered: 0..4,
            pseudo: None,
            is_udp: true,
            is_wrong: false,
        };
        let mut frame = [9, 9, 0, 0];
        field.write(&mut frame);
        assert_eq!(frame[..2], [0xff, 0xff]);
        field.wrong().write(&mut frame);
        assert_eq!(frame[..2], [0, 1]);
    }

    #[test]
    fn inner_checksums_come_first_and_given_fields_stay() {
        let (inner, mut bare, headers) = both(&Stack::udp4([1; 4], [2; 4], 3, 4), 60);
        let (mut outer, _) = Stack::udp4([3; 4], [4; 4], 9, VXLAN_PORT).build_with_layout(110);
        outer[40..42].fill(0);
        outer[50..].copy_from_slice(&bare);
        let fields = derive(&mut outer, 50 + headers);
        assert_eq!(
            fields.iter().map(ChecksumField::at).collect::<Vec<_>>(),
            [90, 74, 40]
        );
        fields.iter().for_each(|field| field.write(&mut outer));
        assert_eq!(outer[50..], inner);
        let pseudo = checksum::sum(&outer[26..34]) + 17 + 76;
        assert!(checksum::is_right(pseudo, &outer[34..]));
        // A length and a checksum that are given.
        bare[16..18].copy_from_slice(&46_u16.to_be_bytes());
        bare[24] = 7;
        let fields = derive(&mut bare, headers);
        assert_eq!((fields.len(), bare[24], bare[17]), (1, 7, 46));
    }

    proptest! {
        #[test]
        fn any_bytes_end(mut frame in prop::collection::vec(any::<u8>(), 0..200), kind in 0usize..5, headers in 0usize..220) {
            if frame.len() > 24 {
                let head: &[u8] = [&[8, 0, 0x45][..], &[0x86, 0xdd, 0x60], &[0x81, 0], &[0x88, 0x47], &[]][kind];
                frame[12..12 + head.len()].copy_from_slice(head);
            }
            for field in derive(&mut frame, headers) {
                field.write(&mut frame);
            }
        }
    }
}
