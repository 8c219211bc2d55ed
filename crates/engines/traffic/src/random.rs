//! Pseudo-random numbers that repeat for the same seed.

use wb_wire::SplitMix64;

/// Numbers below a bound.
#[derive(Clone, Debug)]
pub(crate) struct Random(SplitMix64);

impl Random {
    /// The sequence of a seed for this purpose (stream, use within the stream).
    pub(crate) fn new(seed: u64, path: &[u64]) -> Self {
        let mut state = SplitMix64(seed);
        for step in path {
            state = SplitMix64(state.next() ^ step.wrapping_mul(0xd605_bbb5_8c8a_bbc5));
        }
        Self(SplitMix64(state.next()))
    }

    /// The state of the generator.
    pub(crate) fn state(&self) -> u64 {
        self.0.0
    }

    /// A number below `count`; 0 stands for 2^64.
    #[inline]
    pub(crate) fn below(&mut self, count: u64) -> u64 {
        if count == 0 {
            return self.0.next();
        }
        ((u128::from(self.0.next()) * u128::from(count)) >> 64) as u64
    }

    /// A number below `count`; 0 stands for 2^128.
    pub(crate) fn below_wide(&mut self, count: u128) -> u128 {
        let any = (u128::from(self.0.next()) << 64) | u128::from(self.0.next());
        if count == 0 { any } else { any % count }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_seeds_differ() {
        let first = |seed, path: &[u64]| Random::new(seed, path).below(0);
        assert_eq!(first(1, &[2, 3]), first(1, &[2, 3]));
        assert_ne!(first(1, &[2, 3]), first(2, &[2, 3]));
        assert_ne!(first(1, &[2, 3]), first(1, &[3, 2]));
        let mut random = Random::new(1, &[]);
        assert!((0..1000).all(|_| random.below(3) < 3 && random.below_wide(7) < 7));
    }
}
