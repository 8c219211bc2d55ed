//! Pseudo-random numbers: the same seed gives the same frames on every machine. Not for secrets.

/// SplitMix64 generator (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014) with this state.
#[derive(Clone, Copy, Debug)]
pub struct SplitMix64(pub u64);

impl SplitMix64 {
    /// Generator for one purpose of a seed. `path` names the purpose, such as a stream and a use within the stream.
    pub fn for_purpose(seed: u64, path: &[u64]) -> Self {
        let mut state = Self(seed);
        for step in path {
            state = Self(state.next() ^ step.wrapping_mul(0xd605_bbb5_8c8a_bbc5));
        }
        Self(state.next())
    }

    /// Returns the next number.
    #[inline]
    pub const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns the upper half of the next number.
    #[inline]
    pub const fn next_u32(&mut self) -> u32 {
        (self.next() >> 32) as u32
    }

    /// Returns a number below `count`, where 0 stands for 2^64.
    #[inline]
    pub const fn below(&mut self, count: u64) -> u64 {
        match count {
            0 => self.next(),
            _ => ((self.next() as u128 * count as u128) >> 64) as u64,
        }
    }

    /// Returns a number below `count`, where 0 stands for 2^128.
    pub const fn below_u128(&mut self, count: u128) -> u128 {
        let number = ((self.next() as u128) << 64) | self.next() as u128;
        match count {
            0 => number,
            _ => number % count,
        }
    }

    /// Returns a number below `count`, from the upper half of the next number; 0 if `count` is 0.
    #[inline]
    pub const fn below_u32(&mut self, count: u32) -> u32 {
        ((self.next_u32() as u64 * count as u64) >> 32) as u32
    }

    /// Returns a number from `min` to `max`, inclusive, from the upper half of the next number.
    #[inline]
    pub const fn in_range_u32(&mut self, min: u32, max: u32) -> u32 {
        min + ((self.next_u32() as u64 * (max as u64 - min as u64 + 1)) >> 32) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splitmix64_is_splitmix64() {
        // The first outputs for seed 1234567, as in many reference implementations.
        let mut random = SplitMix64(1_234_567);
        assert_eq!(random.next(), 6_457_827_717_110_365_317);
        assert_eq!(random.next(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn paths_and_seeds_differ() {
        let first = |seed, path: &[u64]| SplitMix64::for_purpose(seed, path).below(0);
        assert_eq!(first(1, &[2, 3]), first(1, &[2, 3]));
        assert_ne!(first(1, &[2, 3]), first(2, &[2, 3]));
        assert_ne!(first(1, &[2, 3]), first(1, &[3, 2]));
        let mut random = SplitMix64::for_purpose(1, &[]);
        assert!((0..1000).all(|_| random.below(3) < 3 && random.below_u128(7) < 7));
    }

    #[test]
    fn numbers_stay_in_range_and_reach_both_ends() {
        let mut random = SplitMix64(1);
        let mut seen = [0; 4];
        for _ in 0..1000 {
            seen[random.in_range_u32(3, 6) as usize - 3] += 1;
            assert!(random.below_u32(5) < 5);
        }
        assert!(seen.iter().all(|n| *n > 150), "{seen:?}");
        assert_eq!(random.below_u32(0), 0);
        let _ = random.in_range_u32(0, u32::MAX);
    }
}
