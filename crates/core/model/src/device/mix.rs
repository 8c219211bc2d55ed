//! Mix of packet sizes with weights.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Maximum number of entries of a mix.
pub const MAX_ENTRIES: usize = 20;

/// Number of bins that represent the weights.
pub const BINS: usize = 100;

/// Size of a mix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// Size in bytes without FCS.
    pub size: u64,
    /// Relative frequency.
    pub weight: u64,
}

/// Returns the entry of each bin: every entry except the last gets its share of the bins, rounded down, and the last
/// gets the rest.
pub fn bins(entries: &[Entry]) -> [u8; BINS] {
    let total: u128 = entries.iter().map(|e| u128::from(e.weight)).sum();
    let last = entries.len().saturating_sub(1);
    let mut bins = [last as u8; BINS];
    let mut filled = 0;
    for (index, entry) in entries.iter().enumerate().take(last) {
        let share = (u128::from(entry.weight) * BINS as u128 / total.max(1)) as usize;
        let end = (filled + share).min(BINS);
        bins[filled..end].fill(index as u8);
        filled = end;
    }
    bins
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(weights: &[u64]) -> Vec<usize> {
        let entries: Vec<_> = weights
            .iter()
            .map(|weight| Entry {
                size: 60,
                weight: *weight,
            })
            .collect();
        let bins = bins(&entries);
        (0..weights.len())
            .map(|i| bins.iter().filter(|b| usize::from(**b) == i).count())
            .collect()
    }

    #[test]
    fn bins_follow_the_weights() {
        assert_eq!(shares(&[1, 3, 2]), [16, 50, 34]);
        assert_eq!(shares(&[1, 1, 1]), [33, 33, 34]);
        assert_eq!(shares(&[1, 1000]), [0, 100]);
        assert_eq!(shares(&[7, 4, 1]), [58, 33, 9]);
        assert_eq!(shares(&[1, 1, 1000]), [0, 0, 100]);
        assert_eq!(shares(&[9_999_999_999; 20]).iter().sum::<usize>(), 100);
        assert_eq!(bins(&[]), [0; BINS]);
    }
}
