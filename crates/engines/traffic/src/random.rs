//! Pseudo-random numbers that are the same for the same seed.

/// SplitMix64: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    /// The sequence of a seed that belongs to these numbers (which stream, which use of it).
    pub(crate) fn new(seed: u64, path: &[u64]) -> Self {
        let mut state = Self(seed);
        for step in path {
            state = Self(state.next() ^ step.wrapping_mul(0xd605_bbb5_8c8a_bbc5));
        }
        Self(state.next())
    }

    #[inline]
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `count`; 0 stands for 2^64.
    #[inline]
    pub(crate) fn below(&mut self, count: u64) -> u64 {
        if count == 0 {
            return self.next();
        }
        ((u128::from(self.next()) * u128::from(count)) >> 64) as u64
    }

    /// A number below `count`; 0 stands for 2^128.
    pub(crate) fn below_wide(&mut self, count: u128) -> u128 {
        let any = (u128::from(self.next()) << 64) | u128::from(self.next());
        if count == 0 { any } else { any % count }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_seeds_differ() {
        let first = |seed, path: &[u64]| Random::new(seed, path).next();
        assert_eq!(first(1, &[2, 3]), first(1, &[2, 3]));
        assert_ne!(first(1, &[2, 3]), first(2, &[2, 3]));
        assert_ne!(first(1, &[2, 3]), first(1, &[3, 2]));
        let mut random = Random::new(1, &[]);
        assert!((0..1000).all(|_| random.below(3) < 3 && random.below_wide(7) < 7));
    }
}
