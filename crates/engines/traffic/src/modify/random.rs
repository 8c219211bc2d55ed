//! `random`: uniformly distributed values of the range; with a step, those that `inc` would reach.

use wb_model::vary::ValueRange;
use wb_port::offload::{Draw, FieldValues};
use wb_wire::SplitMix64;

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct RandomValue {
    first: u128,
    step: u128,
    /// 0 stands for 2^128.
    values: u128,
    random: SplitMix64,
}

impl RandomValue {
    pub(super) fn new(range: ValueRange, step: u128, random: SplitMix64) -> Self {
        Self {
            first: range.first,
            step,
            values: ((range.last - range.first) / step).wrapping_add(1),
            random,
        }
    }

    pub(super) fn values_table(&self) -> Result<(FieldValues, u64), &'static str> {
        let last = self
            .first
            .wrapping_add(self.values.wrapping_sub(1).wrapping_mul(self.step));
        if !(1..=1 << 32).contains(&self.values) || last >> 64 != self.first >> 64 {
            return Err("a modifier draws from more than 2^32 values");
        }
        let values = FieldValues::Random {
            first: self.first as u64,
            step: self.step as u64,
            values: self.values as u64,
            draw: Draw::all(self.random.0),
        };
        Ok((values, (self.first >> 64) as u64))
    }

    #[inline]
    pub(super) fn next_wide(&mut self) -> u128 {
        let number = match u64::try_from(self.values) {
            Ok(values @ 1..) => u128::from(self.random.below(values)),
            _ => self.random.below_u128(self.values),
        };
        self.first.wrapping_add(number.wrapping_mul(self.step))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::values;

    #[test]
    fn stays_in_range_and_reaches_all() {
        let mut seen = values("sport=random:10-20,step=5", 1, 200);
        assert_eq!(seen, values("sport=random:10-20,step=5", 1, 200));
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen, [10, 15, 20]);
        let wide = values("src=random:2001:2::/48", 1, 100);
        assert!(wide.iter().all(|v| v >> 80 == 0x2001_0002_0000));
        assert!(wide.iter().any(|v| v & (0xffff << 64) != 0));
    }

    #[test]
    fn every_value_is_equally_likely() {
        let mut counts = [0u32; 4];
        for value in values("ttl=random:0-3", 1, 40_000) {
            counts[value as usize] += 1;
        }
        // Six standard deviations.
        assert!(
            counts.iter().all(|n| (9_480..10_520).contains(n)),
            "{counts:?}"
        );
    }
}
