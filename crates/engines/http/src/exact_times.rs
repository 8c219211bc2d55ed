//! Counts of times in whole microseconds, shared by all threads of a load, as in wrk.

use std::sync::{
    OnceLock,
    atomic::{AtomicU64, Ordering},
};

/// Times that share a page, and pages that share a directory, as powers of two.
const PAGE_BITS: u32 = 9;
const DIRECTORY_BITS: u32 = 13;
const ROOT_BITS: u32 = 13;
/// Longest time that is counted exactly: 2^35 µs are 9.5 hours.
const LONGEST_US: u64 = (1 << (PAGE_BITS + DIRECTORY_BITS + ROOT_BITS)) - 1;

type Page = Box<[AtomicU64]>;
type Directory = Box<[OnceLock<Page>]>;

/// Number of occurrences of each time, in µs. Memory is allocated only for times that occur, 4 KiB for each 512 µs,
/// whatever the number of threads and the longest time.
#[derive(Debug)]
pub struct ExactTimes {
    directories: Box<[OnceLock<Directory>]>,
}

impl Default for ExactTimes {
    fn default() -> Self {
        Self {
            directories: (0..1 << ROOT_BITS).map(|_| OnceLock::new()).collect(),
        }
    }
}

impl ExactTimes {
    /// Counts a time.
    #[inline]
    pub(crate) fn record(&self, us: u64) {
        let us = us.min(LONGEST_US) as usize;
        let directory = &self.directories[us >> (PAGE_BITS + DIRECTORY_BITS)];
        let directory =
            directory.get_or_init(|| (0..1 << DIRECTORY_BITS).map(|_| OnceLock::new()).collect());
        let page = &directory[(us >> PAGE_BITS) & ((1 << DIRECTORY_BITS) - 1)];
        let page = page.get_or_init(|| (0..1 << PAGE_BITS).map(|_| AtomicU64::new(0)).collect());
        page[us & ((1 << PAGE_BITS) - 1)].fetch_add(1, Ordering::Relaxed);
    }

    /// Times in ascending order, with their counts.
    #[must_use]
    pub fn sorted_counts(&self) -> Vec<(u64, u64)> {
        let mut all = Vec::new();
        for (d, directory) in self.directories.iter().enumerate() {
            for (p, page) in directory.get().into_iter().flatten().enumerate() {
                for (us, count) in page.get().into_iter().flatten().enumerate() {
                    let count = count.load(Ordering::Relaxed);
                    if count > 0 {
                        let us = ((d << DIRECTORY_BITS | p) << PAGE_BITS) | us;
                        all.push((us as u64, count));
                    }
                }
            }
        }
        all
    }

    /// Number of allocated counters.
    #[cfg(test)]
    fn allocated_counters(&self) -> usize {
        let pages = self.directories.iter().filter_map(OnceLock::get).flatten();
        pages.filter_map(OnceLock::get).map(|page| page.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_depends_on_neither_threads_nor_latency() {
        let times = ExactTimes::default();
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| times.record(9_000_000));
            }
        });
        assert_eq!(times.sorted_counts(), [(9_000_000, 8)]);
        assert_eq!(times.allocated_counters(), 512);
    }

    #[test]
    fn each_microsecond_is_counted() {
        let times = ExactTimes::default();
        let all = [0, 1, 511, 512, 4_194_303, 4_194_304, 86_400_000_000];
        for us in all {
            times.record(us);
            times.record(us);
        }
        let wanted = all.map(|us| (us.min(LONGEST_US), 2));
        assert_eq!(times.sorted_counts(), wanted);
    }
}
