//! Frame sizes of a stream.

use wb_model::units::{FrameSize, SizeModel};
use wb_wire::SplitMix64;

use crate::modify::WorkerShare;

/// The different sizes of a model and the order in which one worker uses them.
#[derive(Clone, Debug)]
pub(crate) struct SizeSequence {
    /// Size index of each frame in a period; empty if there is only one size.
    order: Box<[u16]>,
    at: usize,
    advance: usize,
}

impl SizeSequence {
    /// Creates the sizes and the order of their indices. The same seed gives the same order.
    pub(crate) fn new(
        model: &SizeModel,
        share: WorkerShare,
        mut random: SplitMix64,
    ) -> (Vec<FrameSize>, Self) {
        let sizes: Vec<FrameSize> = match model {
            SizeModel::Fixed(size) => vec![*size],
            SizeModel::Range(first, last) => (first.get()..=last.get())
                .filter_map(FrameSize::new)
                .collect(),
            SizeModel::Steps(list) => different(list.iter().copied()),
            SizeModel::Mix(list) => different(list.iter().map(|entry| entry.0)),
        };
        let index = |size: FrameSize| sizes.partition_point(|s| *s < size) as u16;
        let mut order: Vec<u16> = match model {
            SizeModel::Steps(list) => list.iter().map(|size| index(*size)).collect(),
            SizeModel::Mix(list) => list
                .iter()
                .flat_map(|(size, weight)| std::iter::repeat_n(index(*size), *weight as usize))
                .collect(),
            _ => from_both_ends(sizes.len() as u16),
        };
        if matches!(model, SizeModel::Mix(_)) {
            // Fisher and Yates.
            for i in (1..order.len()).rev() {
                order.swap(i, random.below(i as u64 + 1) as usize);
            }
        }
        if sizes.len() == 1 {
            order.clear();
        }
        let period = order.len().max(1);
        let sizes_of_worker = Self {
            order: order.into(),
            at: share.worker as usize % period,
            advance: share.workers as usize % period,
        };
        (sizes, sizes_of_worker)
    }

    /// Order, position of the next frame in it, and the step to the following frame.
    pub(crate) fn order_table(&self) -> (Vec<u16>, u32, u32) {
        (self.order.to_vec(), self.at as u32, self.advance as u32)
    }

    /// Index of the next frame's size.
    #[inline]
    pub(crate) fn next(&mut self) -> usize {
        let Some(index) = self.order.get(self.at) else {
            return 0;
        };
        self.at += self.advance;
        if self.at >= self.order.len() {
            self.at -= self.order.len();
        }
        usize::from(*index)
    }
}

/// Each size once, in ascending order.
fn different(sizes: impl Iterator<Item = FrameSize>) -> Vec<FrameSize> {
    let mut sizes: Vec<FrameSize> = sizes.collect();
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

/// The smallest, the largest, the second smallest, and so on. Each pair has the overall mean, so a bit rate is accurate
/// over a few frames too.
fn from_both_ends(count: u16) -> Vec<u16> {
    let nth = |n: u16| match n % 2 {
        0 => n / 2,
        _ => count - 1 - n / 2,
    };
    (0..count).map(nth).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(text: &str, worker: u32, workers: u32, seed: u64, n: usize) -> Vec<u32> {
        let share = WorkerShare { worker, workers };
        let (sizes, mut order) = SizeSequence::new(
            &text.parse().unwrap(),
            share,
            SplitMix64::for_purpose(seed, &[]),
        );
        (0..n).map(|_| sizes[order.next()].get()).collect()
    }

    #[test]
    fn a_mix_has_its_exact_shares_in_every_period() {
        let all = order("imix", 0, 1, 1, 36);
        for period in all.chunks(12) {
            let count = |size| period.iter().filter(|s| **s == size).count();
            assert_eq!((count(64), count(570), count(1518)), (7, 4, 1));
        }
        assert_eq!(all[..12], all[12..24]);
        assert_eq!(all, order("imix", 0, 1, 1, 36));
        assert_ne!(all, order("imix", 0, 1, 2, 36));
        let (even, odd) = (order("imix", 0, 2, 1, 18), order("imix", 1, 2, 1, 18));
        let merged: Vec<u32> = even.iter().zip(&odd).flat_map(|(a, b)| [*a, *b]).collect();
        assert_eq!(merged, all);
    }

    #[test]
    fn a_sequence_keeps_its_order() {
        assert_eq!(order("70,64,70,68", 0, 1, 1, 6), [70, 64, 70, 68, 70, 64]);
        assert_eq!(order("70,64,68", 1, 2, 1, 4), [64, 70, 68, 64]);
        assert_eq!(order("100,100", 0, 1, 1, 2), [100, 100]);
    }

    #[test]
    fn a_range_keeps_its_mean_over_each_two_frames() {
        assert_eq!(order("64-66", 0, 1, 1, 5), [64, 66, 65, 64, 66]);
        assert_eq!(order("64-66", 1, 2, 1, 4), [66, 64, 65, 66]);
        let all = order("64-1500", 0, 1, 1, 1437);
        assert!(all[..1436].chunks(2).all(|two| two[0] + two[1] == 1564));
        let mut sorted = all;
        sorted.sort_unstable();
        assert!(sorted.into_iter().eq(64..=1500));
        assert_eq!(order("100", 1, 2, 1, 2), [100, 100]);
        assert_eq!(order("100:3,100:1", 0, 1, 1, 2), [100, 100]);
    }
}
