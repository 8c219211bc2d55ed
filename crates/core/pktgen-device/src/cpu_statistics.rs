//! Receive statistics of one CPU, with the arithmetic of pgrx: integers, and divisions that truncate.

use wb_wire::{PktgenTag, PktgenTime};

use wb_model::device::{JitterRule, Mode};

use crate::DeviceTime;

/// Samples of one quantity, in ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuSample {
    sum: u128,
    squares: u128,
    /// Minimum.
    pub min: u64,
    /// Maximum.
    pub max: u64,
    /// Number of samples.
    pub samples: u64,
}

impl CpuSample {
    fn add(&mut self, value: u64) {
        self.min = if self.samples == 0 {
            value
        } else {
            self.min.min(value)
        };
        self.max = self.max.max(value);
        self.sum = self.sum.saturating_add(value.into());
        self.squares = self.squares.saturating_add(u128::from(value).pow(2));
        self.samples += 1;
    }

    /// Adds the samples of another.
    fn merge(&mut self, other: &Self) {
        if other.samples == 0 {
            return;
        }
        self.min = if self.samples == 0 {
            other.min
        } else {
            self.min.min(other.min)
        };
        self.max = self.max.max(other.max);
        self.sum = self.sum.saturating_add(other.sum);
        self.squares = self.squares.saturating_add(other.squares);
        self.samples += other.samples;
    }

    /// Mean, truncated; 0 without samples.
    pub fn average(&self) -> u128 {
        self.sum.checked_div(self.samples.into()).unwrap_or(0)
    }

    /// Mean of the squares minus the square of the truncated mean, in ns². Therefore slightly too large.
    pub fn variance(&self) -> u128 {
        let squares = self.squares.checked_div(self.samples.into()).unwrap_or(0);
        squares.saturating_sub(self.average().saturating_mul(self.average()))
    }
}

/// Counters of one CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuStatistics {
    /// Packets.
    pub packets: u64,
    /// Bytes: Ethernet header and IP packet, without FCS, tags and padding.
    pub bytes: u64,
    /// CLOCK_MONOTONIC of the first packet that was timed, in ns.
    pub first_ns: Option<u64>,
    /// CLOCK_MONOTONIC of the latest packet that was timed, in ns.
    pub last_ns: Option<u64>,
    /// Time between packets.
    pub inter_arrival: CpuSample,
    /// Change of latency, or of inter-arrival time in the older dialect.
    pub jitter: CpuSample,
    /// Time from the timestamp in the packet to its arrival.
    pub latency: CpuSample,
    previous_arrival: u64,
    previous_latency: u64,
    previous_time: [u32; 2],
}

impl CpuStatistics {
    /// Counts a packet. `tag` is `None` if latency is not measured.
    pub fn arrival(
        &mut self,
        mode: Mode,
        rule: JitterRule,
        bytes: u64,
        now: DeviceTime,
        tag: Option<PktgenTag>,
    ) {
        self.packets += 1;
        self.bytes += bytes;
        if mode == Mode::Counter {
            return;
        }
        let previous = self.last_ns.replace(now.mono_ns);
        self.first_ns.get_or_insert(now.mono_ns);
        if mode == Mode::Basic {
            return;
        }
        if let Some(previous) = previous {
            self.inter_arrival(rule, now.mono_ns.saturating_sub(previous));
        }
        if let Some(tag) = tag {
            self.latency(rule, now, &tag);
        }
    }

    fn inter_arrival(&mut self, rule: JitterRule, ns: u64) {
        self.inter_arrival.add(ns);
        // 0 means "none yet", so a real 0 loses a sample, as in pgrx.
        if rule == JitterRule::InterArrival && self.previous_arrival != 0 {
            self.jitter.add(ns.abs_diff(self.previous_arrival));
        }
        self.previous_arrival = ns;
    }

    fn latency(&mut self, rule: JitterRule, now: DeviceTime, tag: &PktgenTag) {
        // Clones share one time, and packets without a time carry zeros.
        if tag.time == self.previous_time {
            return;
        }
        self.previous_time = tag.time;
        let ns = match tag.guess_time(now.wall_ns) {
            PktgenTime::None => return,
            PktgenTime::Wall(sent) => now.wall_ns.saturating_sub(sent),
            PktgenTime::Monotonic(sent) => {
                now.mono_ns.saturating_sub(u64::try_from(sent).unwrap_or(0))
            }
        };
        self.latency.add(ns);
        if rule == JitterRule::Latency {
            // The first latency is compared with 0.
            self.jitter.add(ns.abs_diff(self.previous_latency));
        }
        self.previous_latency = ns;
    }

    /// Adds the counters of another interface of the same CPU. Times between packets of different interfaces are not
    /// included.
    pub fn merge(&mut self, other: &Self) {
        self.packets += other.packets;
        self.bytes += other.bytes;
        self.first_ns = [self.first_ns, other.first_ns].into_iter().flatten().min();
        self.last_ns = self.last_ns.max(other.last_ns);
        self.inter_arrival.merge(&other.inter_arrival);
        self.jitter.merge(&other.jitter);
        self.latency.merge(&other.latency);
    }

    /// Time from the first to the latest packet, in µs.
    pub fn work_us(&self) -> u64 {
        match (self.first_ns, self.last_ns) {
            (Some(first), Some(last)) => last.saturating_sub(first) / 1000,
            _ => 0,
        }
    }

    /// Packets and bits per second; 0 if the time is 0.
    pub fn rates(&self) -> (u128, u128) {
        let per_second = |amount: u128| {
            (amount * 1_000_000)
                .checked_div(self.work_us().into())
                .unwrap_or(0)
        };
        (
            per_second(self.packets.into()),
            per_second(u128::from(self.bytes) * 8),
        )
    }

    /// Returns the sums of packets and bytes, the earliest first packet and the latest last packet, without time
    /// samples.
    pub fn global<'a>(rows: impl Iterator<Item = &'a Self>) -> Self {
        rows.fold(Self::default(), |all, row| Self {
            packets: all.packets.saturating_add(row.packets),
            bytes: all.bytes.saturating_add(row.bytes),
            first_ns: [all.first_ns, row.first_ns].into_iter().flatten().min(),
            last_ns: all.last_ns.max(row.last_ns),
            ..Self::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_of_a_published_experiment() {
        for (work_us, pps, bps) in [
            (7389, 1_353_363, 649_614_291),
            (7444, 1_343_363, 644_814_615),
        ] {
            let row = CpuStatistics {
                packets: 10_000,
                bytes: 600_000,
                first_ns: Some(5),
                last_ns: Some(work_us * 1000 + 5),
                ..CpuStatistics::default()
            };
            assert_eq!((row.work_us(), row.rates()), (work_us, (pps, bps)));
        }
    }

    #[test]
    fn a_gap_of_zero_costs_a_jitter_sample_in_the_old_dialect() {
        let mut row = CpuStatistics::default();
        for mono_ns in [1000, 2000, 2000, 2500, 4000] {
            let now = DeviceTime {
                wall_ns: 0,
                mono_ns,
            };
            row.arrival(Mode::Time, JitterRule::InterArrival, 60, now, None);
        }
        assert_eq!(row.inter_arrival.samples, 4);
        // The intervals are 1000, 0, 500, 1500; the differences |0 - 1000| and |1500 - 500| count.
        assert_eq!((row.jitter.samples, row.jitter.sum), (2, 2000));
    }

    #[test]
    fn kernel_times_are_taken_from_the_wall_clock() {
        let mut row = CpuStatistics::default();
        let wall_ns = 1_700_000_000_000_123_456;
        let tag = PktgenTag::at(1, wall_ns - 50_000);
        let now = DeviceTime {
            wall_ns,
            mono_ns: 1,
        };
        row.arrival(Mode::Time, JitterRule::Latency, 60, now, Some(tag));
        // The time in the packet is truncated to microseconds.
        assert_eq!((row.latency.samples, row.latency.max), (1, 50_456));
    }
}
