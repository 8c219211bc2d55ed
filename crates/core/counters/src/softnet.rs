//! `/proc/net/softnet_stat`: each CPU's work for incoming packets. The counters cover the whole machine, so a packet
//! that crosses a veth pair counts twice.

use std::{cell::LazyCell, collections::BTreeMap};

use schemars::JsonSchema;
use serde::Serialize;

/// Counters of one CPU. The kernel's counters have 32 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Softnet {
    /// Number of the CPU.
    pub cpu: u32,
    /// Packets processed.
    pub processed: u32,
    /// Packets dropped because the backlog was full.
    pub dropped: u32,
    /// Number of times that the budget or the time ran out with work left.
    pub squeezed: u32,
    /// Interrupts from other CPUs to take packets over (RPS).
    pub received_rps: u32,
    /// Packets dropped by the flow limit.
    pub flow_limit: u32,
    /// Packets in the backlog now.
    pub backlog: u32,
}

/// Parses the lines of the file and skips malformed ones. `online` returns the numbers of the online CPUs in order. It
/// is called at most once, and only for kernels before 5.13, which do not number their lines.
#[must_use]
pub fn parse(text: &str, online: impl FnOnce() -> Vec<u32>) -> Vec<Softnet> {
    let online = LazyCell::new(online);
    let row = |(n, line): (usize, &str)| {
        let mut columns = [0_u32; 13];
        let mut count = 0;
        for (slot, word) in columns.iter_mut().zip(line.split_ascii_whitespace()) {
            *slot = u32::from_str_radix(word, 16).ok()?;
            count += 1;
        }
        let cpu = match count {
            13 => columns[12],
            9..=12 => online.get(n).copied().or_else(|| u32::try_from(n).ok())?,
            _ => return None,
        };
        Some(Softnet {
            cpu,
            processed: columns[0],
            dropped: columns[1],
            squeezed: columns[2],
            received_rps: columns[9],
            flow_limit: columns[10],
            backlog: columns[11],
        })
    };
    text.lines().enumerate().filter_map(row).collect()
}

/// Increase of the counters in an interval, of one CPU or all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct SoftnetRise {
    /// Packets processed.
    pub processed: u64,
    /// Packets dropped because the backlog was full.
    pub dropped: u64,
    /// Number of times that the budget or the time ran out with work left.
    pub squeezed: u64,
    /// Interrupts from other CPUs to take packets over (RPS).
    pub received_rps: u64,
    /// Packets dropped by the flow limit.
    pub flow_limit: u64,
    /// Packets in the backlog at the end of the interval.
    pub backlog: u64,
}

impl SoftnetRise {
    /// Returns the sum of both.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            processed: self.processed + other.processed,
            dropped: self.dropped + other.dropped,
            squeezed: self.squeezed + other.squeezed,
            received_rps: self.received_rps + other.received_rps,
            flow_limit: self.flow_limit + other.flow_limit,
            backlog: self.backlog + other.backlog,
        }
    }
}

impl Softnet {
    /// Returns the increase since `earlier`. These counters wrap and are never reset.
    #[must_use]
    pub const fn since(&self, earlier: &Self) -> SoftnetRise {
        use super::rise_of_32_bits as rise;
        SoftnetRise {
            processed: rise(earlier.processed, self.processed),
            dropped: rise(earlier.dropped, self.dropped),
            squeezed: rise(earlier.squeezed, self.squeezed),
            received_rps: rise(earlier.received_rps, self.received_rps),
            flow_limit: rise(earlier.flow_limit, self.flow_limit),
            backlog: self.backlog as u64,
        }
    }
}

/// Counters of all CPUs from reading to reading.
#[derive(Clone, Debug, Default)]
pub struct SoftnetSeries {
    last: Vec<Softnet>,
    totals: BTreeMap<u32, SoftnetRise>,
}

impl SoftnetSeries {
    /// Adds a reading and returns the increase since the last one, by CPU. A CPU missing from the last reading is left
    /// out.
    pub fn next(&mut self, now: Vec<Softnet>) -> BTreeMap<u32, SoftnetRise> {
        let rise = |row: &Softnet| {
            let old = self.last.iter().find(|old| old.cpu == row.cpu)?;
            Some((row.cpu, row.since(old)))
        };
        let rises: BTreeMap<u32, SoftnetRise> = now.iter().filter_map(rise).collect();
        for (cpu, rise) in &rises {
            let total = self.totals.entry(*cpu).or_default();
            *total = SoftnetRise {
                backlog: rise.backlog,
                ..total.plus(*rise)
            };
        }
        self.last = now;
        rises
    }

    /// Returns the increase over all readings, by CPU.
    #[must_use]
    pub const fn totals(&self) -> &BTreeMap<u32, SoftnetRise> {
        &self.totals
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lines_of_new_and_old_kernels() {
        let new = "00945fca 00000000 0000000d 0 0 0 0 0 0 00000000 00000000 00000000 00000000 00000000 00000000";
        let row = parse(new, Vec::new)[0];
        assert_eq!(
            (row.cpu, row.processed, row.dropped, row.squeezed),
            (0, 9_723_850, 0, 13)
        );
        let old = "1 2 3 0 0 0 0 0 0 5\n7 8 9 0 0 0 0 0 0 6\n";
        let rows = parse(old, || vec![0, 2]);
        assert_eq!((rows[1].cpu, rows[1].received_rps), (2, 6));
        assert_eq!(parse("x\n1 2\n", Vec::new), []);
    }

    #[test]
    fn counters_wrap() {
        let at = |processed| Softnet {
            processed,
            ..Softnet::default()
        };
        assert_eq!(at(4).since(&at(u32::MAX - 5)).processed, 10);
    }

    #[test]
    fn a_series_adds_up_except_the_backlog() {
        let at = |cpu, processed, backlog| Softnet {
            cpu,
            processed,
            backlog,
            ..Softnet::default()
        };
        let mut series = SoftnetSeries::default();
        assert!(series.next(vec![at(0, 10, 1)]).is_empty());
        // CPU 1 came online.
        let rises = series.next(vec![at(0, 17, 5), at(1, 100, 0)]);
        assert_eq!((rises.len(), rises[&0].processed), (1, 7));
        series.next(vec![at(0, 20, 3), at(1, 101, 0)]);
        let totals = series.totals();
        assert_eq!((totals[&0].processed, totals[&0].backlog), (10, 3));
        assert_eq!(totals[&1].processed, 1);
    }

    proptest! {
        #[test]
        fn no_text_breaks_it(text in "[0-9a-f \n]{0,200}|.{0,100}") {
            let _ = parse(&text, || vec![0, 1]);
        }
    }
}
