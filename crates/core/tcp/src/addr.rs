//! IPv4 and IPv6 addresses in one form, and indexed address pools.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// IPv4 or IPv6 address as 128 bits; IPv4 in its mapped form (RFC 4291 section 2.5.5.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Addr {
    high: u64,
    low: u64,
}

impl Addr {
    /// Creates an IPv4 address from its 32 bits.
    #[inline]
    pub const fn v4(bits: u32) -> Self {
        Self {
            high: 0,
            low: 0xffff_0000_0000 | bits as u64,
        }
    }

    /// Creates an IPv6 address from its bytes.
    #[inline]
    pub fn v6(bytes: &[u8; 16]) -> Self {
        Self::from_bits(u128::from_be_bytes(*bytes))
    }

    /// Returns true for an IPv4 address.
    #[inline]
    pub const fn is_v4(self) -> bool {
        self.high == 0 && self.low >> 32 == 0xffff
    }

    /// Bits of an IPv4 address; the low 32 bits of an IPv6 address.
    #[inline]
    pub const fn v4_bits(self) -> u32 {
        self.low as u32
    }

    /// All 128 bits.
    #[inline]
    pub const fn to_bits(self) -> u128 {
        (self.high as u128) << 64 | self.low as u128
    }

    /// Creates an address from its 128 bits.
    #[inline]
    pub const fn from_bits(bits: u128) -> Self {
        Self {
            high: (bits >> 64) as u64,
            low: bits as u64,
        }
    }

    /// Upper half (with the network prefix) and lower half.
    #[inline]
    pub(crate) const fn halves(self) -> (u64, u64) {
        (self.high, self.low)
    }

    /// Contribution of the address to the sum of a pseudo header.
    #[inline]
    pub(crate) const fn sum(self, v6: bool) -> u64 {
        let low = self.low & 0xffff_ffff;
        if v6 {
            (self.high >> 32) + (self.high & 0xffff_ffff) + (self.low >> 32) + low
        } else {
            low
        }
    }
}

impl From<IpAddr> for Addr {
    fn from(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(v4) => Self::v4(v4.to_bits()),
            IpAddr::V6(v6) => Self::from_bits(v6.to_bits()),
        }
    }
}

impl From<Addr> for IpAddr {
    fn from(address: Addr) -> Self {
        if address.is_v4() {
            Self::V4(Ipv4Addr::from_bits(address.v4_bits()))
        } else {
            Self::V6(Ipv6Addr::from_bits(address.to_bits()))
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Range {
    first: u128,
    count: u32,
    before: u32,
}

/// Address ranges, indexed from 0 in the order given.
#[derive(Clone, Debug, Default)]
pub struct Pool {
    ranges: Vec<Range>,
    total: u32,
    /// Ranges sorted by address; empty if there are few ranges or if ranges overlap.
    sorted: Vec<Range>,
}

/// Maximum number of ranges that are searched linearly.
const FEW: usize = 8;

impl Pool {
    /// Creates a pool with one range of `count` addresses.
    pub fn range(first: IpAddr, count: u32) -> Self {
        let mut pool = Self::default();
        pool.add(first, count);
        pool
    }

    /// Adds `count` addresses starting at `first`. Addresses beyond the end of the address space or beyond 2^32 - 1 in
    /// total are omitted.
    pub fn add(&mut self, first: IpAddr, count: u32) {
        let first = Addr::from(first);
        let top = if first.is_v4() {
            Addr::v4(u32::MAX).to_bits()
        } else {
            u128::MAX
        };
        let fits = (top - first.to_bits()).saturating_add(1);
        let count = u32::try_from(fits).unwrap_or(u32::MAX).min(count);
        let count = count.min(u32::MAX - self.total);
        if count == 0 {
            return;
        }
        match self.ranges.last_mut() {
            // The range continues the previous one.
            Some(last) if last.first + u128::from(last.count) == first.to_bits() => {
                last.count += count;
            }
            _ => self.ranges.push(Range {
                first: first.to_bits(),
                count,
                before: self.total,
            }),
        }
        self.total += count;
        self.sorted.clear();
    }

    /// Speeds up [`Pool::position`] for many ranges, until another range is added.
    pub fn sort(&mut self) {
        self.sorted.clear();
        if self.ranges.len() > FEW {
            let mut sorted = self.ranges.clone();
            sorted.sort_unstable_by_key(|range| range.first);
            let is_apart =
                |pair: &[Range]| pair[1].first - pair[0].first >= u128::from(pair[0].count);
            if sorted.windows(2).all(is_apart) {
                self.sorted = sorted;
            }
        }
    }

    /// Number of addresses.
    pub fn len(&self) -> u32 {
        self.total
    }

    /// Returns true if the pool has no addresses.
    pub fn is_empty(&self) -> bool {
        self.total == 0
    }

    /// Index of an address.
    #[inline]
    pub fn position(&self, address: Addr) -> Option<u32> {
        let bits = address.to_bits();
        if !self.sorted.is_empty() {
            let after = self.sorted.partition_point(|range| range.first <= bits);
            let range = self.sorted.get(after.checked_sub(1)?)?;
            let distance = bits - range.first;
            return (distance < u128::from(range.count)).then(|| range.before + distance as u32);
        }
        self.ranges.iter().find_map(|range| {
            let distance = bits.wrapping_sub(range.first);
            (distance < u128::from(range.count)).then(|| range.before + distance as u32)
        })
    }

    /// Address at an index.
    ///
    /// # Panics
    /// Panics if the index is out of range.
    #[inline]
    pub fn at(&self, number: u32) -> Addr {
        let range = match self.ranges.as_slice() {
            [only] => only,
            all => &all[all.partition_point(|range| range.before <= number) - 1],
        };
        assert!(number < self.total, "a number of this pool");
        Addr::from_bits(range.first + u128::from(number - range.before))
    }

    /// Address family: `Some(true)` for IPv4, `Some(false)` for IPv6, None for a mixed or empty pool.
    pub fn family_is_v4(&self) -> Option<bool> {
        let is_v4 = |range: &Range| Addr::from_bits(range.first).is_v4();
        let first = is_v4(self.ranges.first()?);
        self.ranges
            .iter()
            .all(|range| is_v4(range) == first)
            .then_some(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_numbers_its_addresses() {
        let mut pool = Pool::range("198.18.0.250".parse().unwrap(), 10);
        pool.add("2001:2::ffff".parse().unwrap(), 2);
        assert_eq!(pool.len(), 12);
        for number in 0..12 {
            assert_eq!(pool.position(pool.at(number)), Some(number));
        }
        let text = |n| IpAddr::from(pool.at(n)).to_string();
        assert_eq!([text(9), text(11)], ["198.18.1.3", "2001:2::1:0"]);
        assert_eq!(pool.position(Addr::v4(0xc612_0104)), None);
        assert_eq!(pool.family_is_v4(), None);
    }

    #[test]
    fn many_ranges_are_numbered_alike() {
        let mut pool = Pool::default();
        for i in [7u32, 3, 9, 1, 5, 8, 2, 6, 4, 0] {
            pool.add(Ipv4Addr::from_bits(0x0a00_0000 + i * 1000).into(), 2 + i);
        }
        let mut sorted = pool.clone();
        sorted.sort();
        assert!(!sorted.sorted.is_empty());
        for number in 0..pool.len() {
            assert_eq!(pool.position(pool.at(number)), Some(number));
            assert_eq!(sorted.position(pool.at(number)), Some(number));
        }
        for bits in [0x0a00_0000 - 1, 0x0a00_0002, 0x0a00_0000 + 9011, u32::MAX] {
            assert_eq!(sorted.position(Addr::v4(bits)), None);
        }
        // If ranges overlap, the first one counts.
        sorted.add(Ipv4Addr::from_bits(0x0a00_0000).into(), 2000);
        sorted.sort();
        assert_eq!(
            sorted.position(Addr::v4(0x0a00_0000)),
            pool.position(Addr::v4(0x0a00_0000))
        );
    }

    #[test]
    fn neighbours_are_one_range() {
        let mut pool = Pool::range("198.18.0.1".parse().unwrap(), 3);
        pool.add("198.18.0.4".parse().unwrap(), 2);
        assert_eq!((pool.ranges.len(), pool.len()), (1, 5));
        assert_eq!(pool.position(pool.at(4)), Some(4));
    }

    #[test]
    fn a_range_ends_with_its_family() {
        assert_eq!(
            Pool::range("255.255.255.250".parse().unwrap(), 100).len(),
            6
        );
    }
}
