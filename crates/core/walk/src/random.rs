//! Random numbers by seed: the same seed walks the same way.

/// A small generator (SplitMix64); not for secrets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    pub(crate) const fn word(&mut self) -> u32 {
        (self.next() >> 32) as u32
    }

    /// A number in `0..bound`; 0 if `bound` is 0.
    pub(crate) const fn below(&mut self, bound: u32) -> u32 {
        ((self.word() as u64 * bound as u64) >> 32) as u32
    }

    /// A number in `min..=max`.
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
