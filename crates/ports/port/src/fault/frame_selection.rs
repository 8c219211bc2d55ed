//! Selects the frames that an impairment applies to: by ratio, by count, or none.

use wb_wire::SplitMix64;

/// Selection of the lost frames.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Loss {
    /// No frame is lost.
    #[default]
    None,
    /// Each frame is lost with this probability, 0 to 1.
    Ratio(f64),
    /// Exactly every `n`-th arriving frame is lost: frames n, 2n, 3n, …
    Every(u64),
}

/// Returns the random sequence with index `stream` of this seed.
pub(super) fn random_sequence(seed: u64, stream: u64) -> SplitMix64 {
    let mut start = SplitMix64(seed ^ stream.wrapping_mul(0xd605_bbb5_8c8a_bbc5));
    SplitMix64(start.next())
}

/// Selects frames.
#[derive(Clone, Debug)]
pub(super) enum Chooser {
    Never,
    Ratio { at_most: u64, random: SplitMix64 },
    Every { n: u64, left: u64 },
}

impl Chooser {
    pub(super) fn ratio(ratio: f64, random: SplitMix64) -> Self {
        if ratio <= 0.0 {
            return Self::Never;
        }
        Self::Ratio {
            at_most: (ratio * 2f64.powi(64)) as u64,
            random,
        }
    }

    pub(super) fn loss(loss: Loss, random: SplitMix64) -> Self {
        match loss {
            Loss::None => Self::Never,
            Loss::Ratio(ratio) => Self::ratio(ratio, random),
            Loss::Every(n) => Self::Every { n, left: n },
        }
    }

    #[inline]
    pub(super) fn choose(&mut self) -> bool {
        match self {
            Self::Never => false,
            Self::Ratio { at_most, random } => random.next() <= *at_most,
            Self::Every { n, left } => {
                *left -= 1;
                if *left > 0 {
                    return false;
                }
                *left = *n;
                true
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_nth_is_exact() {
        let mut chooser = Chooser::loss(Loss::Every(3), random_sequence(1, 1));
        let chosen: Vec<u32> = (1..=10).filter(|_| chooser.choose()).collect();
        assert_eq!(chosen, [3, 6, 9]);
    }

    #[test]
    fn ratios_are_met() {
        let count = |ratio| {
            let mut chooser = Chooser::ratio(ratio, random_sequence(7, 2));
            (0..100_000).filter(|_| chooser.choose()).count()
        };
        assert_eq!(count(0.0), 0);
        assert_eq!(count(1.0), 100_000);
        // Five standard deviations.
        assert!((9_526..10_474).contains(&count(0.1)), "{}", count(0.1));
    }

    #[test]
    fn numbers_stay_within_their_bound() {
        let mut random = random_sequence(1, 1);
        assert_eq!(random.below(1), 0);
        assert!((0..1000).all(|_| random.below(3) < 3));
    }
}
