//! Position of a field in a frame, the bits that are written, and the checksums that cover it.
//!
//! Checksums are computed from sums: a template holds the sum of everything that never changes, and each write adds its
//! part (RFC 1624 with the template as the old state). As 2^16 is 1 in ones' complement, a big-endian value of any
//! width that ends on a 16-bit boundary counts as itself. A value that ends one byte earlier counts 256 times.

use std::collections::BTreeMap;
use std::ops::Range;

use wb_model::vary::Field;
use wb_port::offload::{FieldProgram, FieldValues, HeaderTemplate};
use wb_wire::StackLayout;
use wb_wire::checksum::fold;

use crate::modify::Modifier;

/// Sums over the changing parts of a frame.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChecksumSums {
    /// Sum over the IPv4 header.
    pub(crate) ip: u64,
    /// Sum over the layer-4 segment and its pseudo header.
    pub(crate) l4: u64,
}

/// Ranges covered by the checksums of a frame, as offsets from its first byte.
#[derive(Clone, Debug, Default)]
pub(crate) struct CoveredRanges {
    ip: Option<Range<usize>>,
    ip_checksum: Option<usize>,
    l4: Option<Range<usize>>,
    l4_checksum: Option<usize>,
    pseudo: Option<Range<usize>>,
}

impl CoveredRanges {
    /// Ranges according to the layout of a frame.
    pub(crate) fn new(layout: &StackLayout, ipv6: bool, icmp: bool) -> Self {
        let l4 = layout.l4_checksum.and(layout.l4).map(|l4| l4..layout.end);
        let pseudo = match (layout.ip, ipv6) {
            (Some(ip), true) => Some(ip + 8..ip + 40),
            // RFC 792: no pseudo header.
            (Some(ip), false) if !icmp => Some(ip + 12..ip + 20),
            _ => None,
        };
        Self {
            ip: layout.ip_checksum.and(layout.ip).map(|ip| ip..ip + 20),
            ip_checksum: layout.ip_checksum,
            pseudo: l4.as_ref().and(pseudo),
            l4,
            l4_checksum: layout.l4_checksum,
        }
    }

    fn is_field(checksum: Option<usize>, at: usize) -> bool {
        checksum.is_some_and(|c| (c..c + 2).contains(&at))
    }

    fn by_ip(&self, at: usize) -> bool {
        self.ip.as_ref().is_some_and(|r| r.contains(&at)) && !Self::is_field(self.ip_checksum, at)
    }

    fn by_l4(&self, at: usize) -> bool {
        let inside = |r: &Option<Range<usize>>| r.as_ref().is_some_and(|r| r.contains(&at));
        (inside(&self.l4) && !Self::is_field(self.l4_checksum, at)) || inside(&self.pseudo)
    }
}

/// A field of the frames of one stream.
#[derive(Clone, Debug)]
pub(crate) struct FieldSlot {
    at: usize,
    shift: u32,
    bits: FieldBits,
}

#[derive(Clone, Debug)]
enum FieldBits {
    /// Up to 8 bytes.
    Narrow(NarrowField),
    /// The 16 bytes of an IPv6 address, by halves.
    Wide { high: NarrowField, low: NarrowField },
}

/// Source of the values of a field.
pub(crate) trait ValueSource {
    /// Next value, for a field of up to 64 bits.
    fn next(&mut self) -> u64;

    /// Next value, for an IPv6 address.
    fn next_wide(&mut self) -> u128;
}

impl ValueSource for Modifier {
    #[inline]
    fn next(&mut self) -> u64 {
        Self::next(self)
    }

    #[inline]
    fn next_wide(&mut self) -> u128 {
        Self::next_wide(self)
    }
}

/// Up to 8 bytes as one big-endian number.
#[derive(Clone, Debug)]
struct NarrowField {
    width: u8,
    /// Written bits.
    mask: u64,
    /// All bits are written, so no read is needed first.
    whole: bool,
    /// Written bits in the IPv4 header.
    ip: u64,
    /// Written bits under the layer-4 checksum.
    l4: u64,
    /// 8 if the last byte is the upper half of a 16-bit word.
    odd: u32,
}

const fn ones_mask(width: u8) -> u64 {
    u64::MAX >> (64 - 8 * width as u32)
}

impl NarrowField {
    fn new(width: u8, mask: u64) -> Self {
        Self {
            width,
            mask,
            whole: mask == ones_mask(width),
            ip: 0,
            l4: 0,
            odd: 0,
        }
    }

    fn byte_shift(&self, i: usize) -> usize {
        8 * (usize::from(self.width) - 1 - i)
    }

    /// Excludes bits that are already taken, takes the rest, and determines the checksums that cover them.
    fn claim_bits(&mut self, at: usize, taken: &mut BTreeMap<usize, u8>, covered: &CoveredRanges) {
        for i in 0..usize::from(self.width) {
            let bits = taken.entry(at + i).or_default();
            self.mask &= !(u64::from(*bits) << self.byte_shift(i));
            *bits |= (self.mask >> self.byte_shift(i)) as u8;
        }
        self.whole = self.mask == ones_mask(self.width);
        for i in 0..usize::from(self.width) {
            let byte = self.mask & (0xff << self.byte_shift(i));
            self.ip |= if covered.by_ip(at + i) { byte } else { 0 };
            self.l4 |= if covered.by_l4(at + i) { byte } else { 0 };
        }
        self.odd = if (at + usize::from(self.width)) % 2 == 1 {
            8
        } else {
            0
        };
    }

    #[inline(always)]
    fn write(&self, frame: &mut [u8], at: usize, value: u64, sums: &mut ChecksumSums) {
        let word = value & self.mask;
        // Fields of more than 32 bits under a checksum never get here, so nothing overflows.
        sums.ip += (word & self.ip) << self.odd;
        sums.l4 += (word & self.l4) << self.odd;
        match self.width {
            1 => self.write_bits::<1>(frame, at, word),
            2 => self.write_bits::<2>(frame, at, word),
            4 => self.write_bits::<4>(frame, at, word),
            _ => self.write_bits::<6>(frame, at, word),
        }
    }

    /// Half an IPv6 address.
    #[inline]
    fn write_half(&self, frame: &mut [u8], at: usize, value: u64, sums: &mut ChecksumSums) {
        let word = value & self.mask;
        sums.l4 += (word & self.l4) >> 32;
        sums.l4 += word & self.l4 & 0xffff_ffff;
        self.write_bits::<8>(frame, at, word);
    }

    #[inline]
    fn write_bits<const N: usize>(&self, frame: &mut [u8], at: usize, mut word: u64) {
        let field: &mut [u8; N] = (&mut frame[at..at + N])
            .try_into()
            .expect("a slice of N bytes");
        if !self.whole {
            let mut old = [0; 8];
            old[8 - N..].copy_from_slice(field);
            word |= u64::from_be_bytes(old) & !self.mask;
        }
        field.copy_from_slice(&word.to_be_bytes()[8 - N..]);
    }

    fn clear(&self, frame: &mut [u8], at: usize) {
        for i in 0..usize::from(self.width) {
            frame[at + i] &= !((self.mask >> self.byte_shift(i)) as u8);
        }
    }
}

impl FieldSlot {
    fn narrow(at: usize, width: u8, shift: u32, bits: u32) -> Self {
        let mask = (u64::MAX >> (64 - bits)) << shift;
        Self {
            at,
            shift,
            bits: FieldBits::Narrow(NarrowField::new(width, mask)),
        }
    }

    fn wide(at: usize) -> Self {
        let half = NarrowField::new(8, u64::MAX);
        Self {
            at,
            shift: 0,
            bits: FieldBits::Wide {
                high: half.clone(),
                low: half,
            },
        }
    }

    /// The slot of `field` in frames of this layout; `None` if they have no such field. `tcp` and `icmp` select layer
    /// 4.
    pub(crate) fn for_field(
        field: Field,
        layout: &StackLayout,
        ipv6: bool,
        tcp: bool,
        icmp: bool,
    ) -> Option<Self> {
        let address = |v4: usize, v6: usize, arp: usize| match (layout.ip, layout.arp) {
            (Some(ip), _) if ipv6 => Some(Self::wide(ip + v6)),
            (Some(ip), _) => Some(Self::narrow(ip + v4, 4, 0, 32)),
            (None, Some(message)) => Some(Self::narrow(message + arp, 4, 0, 32)),
            (None, None) => None,
        };
        let tcp = tcp.then_some(layout.l4).flatten();
        let ports = layout.l4.map(|l4| if icmp { l4 + 4 } else { l4 });
        match field {
            Field::DstMac => Some(Self::narrow(0, 6, 0, 48)),
            Field::SrcMac => Some(Self::narrow(6, 6, 0, 48)),
            Field::Vlan(n) => layout
                .vlans
                .get(usize::from(n))
                .map(|at| Self::narrow(*at, 2, 0, 12)),
            Field::Mpls(n) => layout
                .mpls
                .get(usize::from(n))
                .map(|at| Self::narrow(*at, 4, 12, 20)),
            Field::Tos if ipv6 => layout.ip.map(|ip| Self::narrow(ip, 4, 20, 8)),
            Field::Tos => layout.ip.map(|ip| Self::narrow(ip + 1, 1, 0, 8)),
            Field::Ttl => layout
                .ip
                .map(|ip| Self::narrow(ip + if ipv6 { 7 } else { 8 }, 1, 0, 8)),
            Field::Id => layout
                .ip
                .filter(|_| !ipv6)
                .map(|ip| Self::narrow(ip + 4, 2, 0, 16)),
            Field::FlowLabel => layout
                .ip
                .filter(|_| ipv6)
                .map(|ip| Self::narrow(ip, 4, 0, 20)),
            Field::Src => address(12, 8, 14),
            Field::Dst => address(16, 24, 24),
            Field::Sport => ports.map(|at| Self::narrow(at, 2, 0, 16)),
            Field::Dport => ports.map(|at| Self::narrow(at + 2, 2, 0, 16)),
            Field::TcpSeq => tcp.map(|l4| Self::narrow(l4 + 4, 4, 0, 32)),
            Field::TcpAck => tcp.map(|l4| Self::narrow(l4 + 8, 4, 0, 32)),
            Field::TcpFlags => tcp.map(|l4| Self::narrow(l4 + 13, 1, 0, 8)),
            Field::At {
                offset,
                width: width @ (1 | 2 | 4),
            } => {
                let at = usize::from(offset);
                let fits = at + usize::from(width) <= layout.end;
                fits.then(|| Self::narrow(at, width, 0, 8 * u32::from(width)))
            }
            Field::At { .. } => None,
        }
    }

    /// Restricts writes to these bits of the field.
    pub(crate) fn masked(mut self, mask: u128) -> Self {
        match &mut self.bits {
            FieldBits::Narrow(bits) => bits.mask &= (mask as u64) << self.shift,
            FieldBits::Wide { high, low } => {
                high.mask &= (mask >> 64) as u64;
                low.mask &= mask as u64;
            }
        }
        self
    }

    /// Excludes bits that other slots have taken, takes the rest, and determines the checksums that cover them. Call it
    /// for the last write first, so that this write wins. Returns true if any bit is left.
    pub(crate) fn claim_bits(
        &mut self,
        taken: &mut BTreeMap<usize, u8>,
        covered: &CoveredRanges,
    ) -> bool {
        match &mut self.bits {
            FieldBits::Narrow(bits) => {
                bits.claim_bits(self.at, taken, covered);
                bits.mask != 0
            }
            FieldBits::Wide { high, low } => {
                high.claim_bits(self.at, taken, covered);
                low.claim_bits(self.at + 8, taken, covered);
                high.mask != 0 || low.mask != 0
            }
        }
    }

    /// Zeros the bits that will be written, as required for the sums of a template.
    pub(crate) fn clear(&self, frame: &mut [u8]) {
        match &self.bits {
            FieldBits::Narrow(bits) => bits.clear(frame, self.at),
            FieldBits::Wide { high, low } => {
                high.clear(frame, self.at);
                low.clear(frame, self.at + 8);
            }
        }
    }

    /// Offset of the end of the field.
    pub(crate) fn end_offset(&self) -> usize {
        self.at
            + match &self.bits {
                FieldBits::Narrow(bits) => usize::from(bits.width),
                FieldBits::Wide { .. } => 16,
            }
    }

    /// The field as a table for a port with an offload. Of an IPv6 address this is the lower half; the upper half,
    /// `above`, is the same in all frames and goes into the templates.
    pub(crate) fn program(
        &self,
        values: FieldValues,
        above: u64,
        templates: &mut [HeaderTemplate],
    ) -> FieldProgram {
        let (at, bits) = match &self.bits {
            FieldBits::Narrow(bits) => (self.at, bits),
            FieldBits::Wide { high, low } => {
                for template in templates {
                    let mut sums = ChecksumSums {
                        ip: 0,
                        l4: template.l4_sum.into(),
                    };
                    high.write_half(&mut template.header, self.at, above, &mut sums);
                    template.l4_sum = fold(sums.l4).into();
                }
                (self.at + 8, low)
            }
        };
        FieldProgram {
            at,
            width: bits.width,
            shift: self.shift as u8,
            mask: bits.mask,
            ip: bits.ip,
            l4: bits.l4,
            odd: bits.odd != 0,
            values,
        }
    }

    /// Writes the next value and adds it to the sums.
    // Always inlined, like the inner write: calls would take a third of the 60 instructions.
    #[inline(always)]
    pub(crate) fn write(
        &self,
        frame: &mut [u8],
        values: &mut impl ValueSource,
        sums: &mut ChecksumSums,
    ) {
        match &self.bits {
            FieldBits::Narrow(bits) => {
                bits.write(frame, self.at, values.next() << self.shift, sums)
            }
            FieldBits::Wide { high, low } => {
                let value = values.next_wide();
                high.write_half(frame, self.at, (value >> 64) as u64, sums);
                low.write_half(frame, self.at + 8, value as u64, sums);
            }
        }
    }

    /// Returns true if writes change the IPv4 header checksum.
    pub(crate) fn moves_ip(&self) -> bool {
        match &self.bits {
            FieldBits::Narrow(bits) => bits.ip != 0,
            FieldBits::Wide { high, low } => high.ip | low.ip != 0,
        }
    }

    /// Returns true if writes change the layer-4 checksum.
    pub(crate) fn moves_l4(&self) -> bool {
        match &self.bits {
            FieldBits::Narrow(bits) => bits.l4 != 0,
            FieldBits::Wide { high, low } => high.l4 | low.l4 != 0,
        }
    }

    /// Returns true if it writes into the checksum field at `at`.
    pub(crate) fn writes_at(&self, at: usize) -> bool {
        let width = match &self.bits {
            FieldBits::Narrow(bits) => usize::from(bits.width),
            FieldBits::Wide { .. } => 16,
        };
        self.at < at + 2 && at < self.at + width
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wb_wire::Stack;

    struct Always(u128);

    impl ValueSource for Always {
        fn next(&mut self) -> u64 {
            self.0 as u64
        }

        fn next_wide(&mut self) -> u128 {
            self.0
        }
    }

    fn settled(fields: &[(Field, u128)]) -> Vec<FieldSlot> {
        let layout = Stack::udp4([1, 2, 3, 4], [5, 6, 7, 8], 9, 10).layout(60);
        let covered = CoveredRanges::new(&layout, false, false);
        let mut taken = BTreeMap::new();
        let mut slots: Vec<FieldSlot> = fields
            .iter()
            .map(|(field, mask)| {
                FieldSlot::for_field(*field, &layout, false, false, false)
                    .unwrap()
                    .masked(*mask)
            })
            .collect();
        for slot in slots.iter_mut().rev() {
            slot.claim_bits(&mut taken, &covered);
        }
        slots
    }

    #[test]
    fn the_later_of_two_writes_wins_bit_by_bit() {
        let slots = settled(&[
            (Field::Sport, u128::MAX),
            (Field::Sport, 0x0ff0),
            (
                Field::At {
                    offset: 35,
                    width: 1,
                },
                0xf,
            ),
        ]);
        let mut frame = vec![0xee; 60];
        let mut sums = ChecksumSums { ip: 0, l4: 0 };
        for (slot, value) in slots.iter().zip([0x1234u128, 0xabcd, 0xff]) {
            slot.clear(&mut frame);
            slot.write(&mut frame, &mut Always(value), &mut sums);
        }
        assert_eq!(frame[34..36], [0x1b, 0xcf]);
        assert_eq!(wb_wire::checksum::fold(sums.l4), 0x1bcf);
        assert_eq!(sums.ip, 0);
    }

    #[test]
    fn odd_and_straddling_bytes_count_where_they_lie() {
        // The last byte of the destination address and the first of the source port.
        let slots = settled(&[(
            Field::At {
                offset: 33,
                width: 2,
            },
            u128::MAX,
        )]);
        let mut frame = vec![0; 60];
        let mut sums = ChecksumSums { ip: 0, l4: 0 };
        slots[0].write(&mut frame, &mut Always(0x12_34), &mut sums);
        let sum = |range: Range<usize>| wb_wire::checksum::sum(&frame[range]);
        assert_eq!(u64::from(wb_wire::checksum::fold(sums.ip)), sum(14..34));
        assert_eq!(u64::from(wb_wire::checksum::fold(sums.l4)), sum(26..60));
    }
}
