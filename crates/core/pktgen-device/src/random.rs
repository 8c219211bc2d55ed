//! Random numbers from a seed: the same seed gives the same walk.

use wb_wire::SplitMix64;

/// Generator of numbers in ranges.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Random(pub(crate) SplitMix64);

impl Random {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(SplitMix64(seed))
    }

    pub(crate) const fn word(&mut self) -> u32 {
        (self.0.next() >> 32) as u32
    }

    /// Returns a number in `0..bound`; 0 if `bound` is 0.
    pub(crate) const fn below(&mut self, bound: u32) -> u32 {
        ((self.word() as u64 * bound as u64) >> 32) as u32
    }

    /// Returns a number in `min..=max`.
    pub(crate) const fn within(&mut self, min: u32, max: u32) -> u32 {
        min + ((self.word() as u64 * (max as u64 - min as u64 + 1)) >> 32) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stays_in_range_and_reaches_both_ends() {
        let mut random = Random::new(1);
        let mut seen = [0; 4];
        for _ in 0..1000 {
            seen[random.within(3, 6) as usize - 3] += 1;
            assert!(random.below(5) < 5);
        }
        assert!(seen.iter().all(|n| *n > 150), "{seen:?}");
        assert_eq!(random.below(0), 0);
        let _ = random.within(0, u32::MAX);
    }
}
