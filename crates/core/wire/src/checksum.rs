//! Internet checksum, full (RFC 1071) and incremental (RFC 1624).
//!
//! A *sum* is the ones-complement sum of 16-bit words in network order, kept in a u64 so that sums
//! may be added freely. A *checksum* is the field on the wire: the complement of the folded sum.

use std::net::{Ipv4Addr, Ipv6Addr};

/// Sum of `bytes` (at most 0xffff); an odd last byte is padded with a zero.
#[inline]
pub fn sum(bytes: &[u8]) -> u64 {
    u64::from(fold(partial(bytes)))
}

/// Like [`sum`], without adding the carries back: below 2^42.
#[inline]
pub fn partial(bytes: &[u8]) -> u64 {
    // The sum may be taken in any byte order and in wider words (RFC 1071 section 2): an addition and
    // an addition of the carry for 8 bytes. Four in a row cost more where frames are short.
    let word = |bytes: &[u8; 8]| u128::from(u64::from_le_bytes(*bytes));
    let (words, rest) = bytes.as_chunks::<8>();
    let mut total: u128 = words.iter().map(word).sum();
    if !rest.is_empty() {
        total += match bytes.last_chunk::<8>() {
            Some(last) => word(last) >> (64 - 8 * rest.len()),
            None => few(rest),
        };
    }
    let (sum, carry) = (total as u64).overflowing_add((total >> 64) as u64);
    // Half-words of the other order: 2^8 times as much, modulo 2^16 - 1.
    ((sum >> 32) + (sum & 0xffff_ffff) + u64::from(carry)) << 8
}

/// Converts fewer than 8 bytes to a word.
fn few(bytes: &[u8]) -> u128 {
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(word).into()
}

/// Adds the carries back until the sum fits in 16 bits.
pub const fn fold(sum: u64) -> u16 {
    // Each half receives the sum of both halves; the upper one gets the carry of the lower.
    let sum = (sum.wrapping_add(sum.rotate_left(32)) >> 32) as u32;
    (sum.wrapping_add(sum.rotate_left(16)) >> 16) as u16
}

/// Checksum of a sum.
pub const fn finish(sum: u64) -> u16 {
    !fold(sum)
}

/// Checksum as sent by UDP: 0 means unused there, so a computed 0 is sent as 0xffff.
pub const fn udp(checksum: u16) -> u16 {
    if checksum == 0 { 0xffff } else { checksum }
}

/// Sum of the IPv4 pseudo header for `len` bytes of `protocol`.
pub fn pseudo_v4(src: Ipv4Addr, dst: Ipv4Addr, protocol: u8, len: u16) -> u64 {
    u64::from(src.to_bits()) + u64::from(dst.to_bits()) + u64::from(protocol) + u64::from(len)
}

/// Sum of the IPv6 pseudo header for `len` bytes of `next_header`.
pub fn pseudo_v6(src: Ipv6Addr, dst: Ipv6Addr, next_header: u8, len: u32) -> u64 {
    sum(&src.octets()) + sum(&dst.octets()) + u64::from(next_header) + u64::from(len)
}

/// Returns true if a segment with its checksum is intact; `pseudo` is 0 if there is no pseudo header.
#[inline]
pub fn is_right(pseudo: u64, segment: &[u8]) -> bool {
    // Multiples of 0xffff, and only these, fold to 0xffff.
    let sum = pseudo + partial(segment);
    sum != 0 && sum.is_multiple_of(0xffff)
}

/// Updates a checksum after a covered 16-bit word changed from `old` to `new`: RFC 1624 equation 3.
///
/// Equal to a full computation if any covered byte is not zero, as in every IP header or pseudo header. The caller
/// applies the UDP rule ([`udp`]).
pub const fn update16(checksum: u16, old: u16, new: u16) -> u16 {
    finish(!checksum as u64 + !old as u64 + new as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Word by word, as in RFC 1071 section 4.1.
    fn plain(bytes: &[u8]) -> u16 {
        let mut total = 0u64;
        for pair in bytes.chunks(2) {
            total += u64::from(pair[0]) << 8 | u64::from(*pair.get(1).unwrap_or(&0));
        }
        while total > 0xffff {
            total = (total >> 16) + (total & 0xffff);
        }
        total as u16
    }

    #[test]
    fn the_example_of_rfc_1071() {
        assert_eq!(
            sum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]),
            0xddf2
        );
    }

    #[test]
    fn the_example_of_rfc_1624() {
        // Section 4: the case in which equation 2 is wrong.
        assert_eq!(update16(0xdd2f, 0x5555, 0x3285), 0x0000);
    }

    #[test]
    fn fold_holds_at_the_edges() {
        assert_eq!(fold(u64::MAX), 0xffff);
        assert_eq!(fold(0), 0);
        assert_eq!(fold(0x1_0000), 1);
        assert_eq!(
            fold(0xffff_fffe_0001_ffff),
            plain(&0xffff_fffe_0001_ffff_u64.to_be_bytes())
        );
        assert_eq!(udp(0), 0xffff);
        assert_eq!(udp(0x1234), 0x1234);
    }

    proptest! {
        #[test]
        fn fast_sum_is_the_plain_sum(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert_eq!(sum(&bytes), u64::from(plain(&bytes)));
            prop_assert!(partial(&bytes) < 1 << 42);
        }

        #[test]
        fn fold_is_the_remainder(value: u64) {
            prop_assert_eq!(fold(value), plain(&value.to_be_bytes()));
        }

        /// Includes the maximum number of carries.
        #[test]
        fn intact_is_what_folds_to_ones(
            mut bytes in prop::collection::vec(prop::sample::select(vec![0u8, 1, 0x7f, 0xfe, 0xff]), 2..80),
            pseudo in 0u64..1 << 48,
            wrong: bool,
        ) {
            bytes[..2].fill(0);
            let checksum = finish(pseudo + u64::from(plain(&bytes))) ^ u16::from(wrong);
            bytes[..2].copy_from_slice(&checksum.to_be_bytes());
            let folded = fold(pseudo + u64::from(plain(&bytes)));
            prop_assert_eq!(is_right(pseudo, &bytes), folded == 0xffff);
            prop_assert_eq!(is_right(pseudo, &bytes), !wrong);
        }

        #[test]
        fn incremental_is_full(
            mut bytes in prop::collection::vec(any::<u8>(), 16..80),
            at in 0usize..6,
            new in prop::collection::vec(any::<u8>(), 4),
        ) {
            bytes[15] |= 1;
            let at = at * 2;
            let before = finish(sum(&bytes));
            let old: [u8; 4] = bytes[at..at + 4].try_into().unwrap();
            bytes[at..at + 4].copy_from_slice(&new);
            let full = finish(sum(&bytes));
            let word = |b: &[u8], i| u16::from_be_bytes([b[i], b[i + 1]]);
            let halves = update16(update16(before, word(&old, 0), word(&new, 0)), word(&old, 2), word(&new, 2));
            prop_assert_eq!(halves, full);
        }
    }
}
