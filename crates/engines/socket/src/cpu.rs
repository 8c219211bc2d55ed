//! CPU use between two readings, computed as netperf 2.7 does on Linux.

use wb_model::socket::CpuUse;

use crate::host::CpuTimes;

/// Columns of a row of [`CpuTimes`].
const USER: usize = 0;
const NICE: usize = 1;
const SYSTEM: usize = 2;
const IDLE: usize = 3;
const IOWAIT: usize = 4;
const IRQ: usize = 5;
const SOFTIRQ: usize = 6;

/// Means over the CPUs present in both readings, each computed over all ten counters. All time except idle counts as
/// busy, including I/O wait. A CPU without counter changes was idle.
pub(crate) fn cpu_use(before: &CpuTimes, after: &CpuTimes) -> CpuUse {
    let mut sum = CpuUse {
        peak_cpu: -1,
        ..CpuUse::default()
    };
    for (cpu, later) in &after.cpus {
        let Some((_, earlier)) = before.cpus.iter().find(|(other, _)| other == cpu) else {
            continue;
        };
        let spent = |column: usize| later[column].saturating_sub(earlier[column]) as f64;
        let total: f64 = (0..later.len()).map(spent).sum();
        let percent = |ticks: f64| {
            if total > 0.0 {
                100.0 * ticks / total
            } else {
                0.0
            }
        };
        let busy = percent(total - spent(IDLE));
        sum.total += busy;
        sum.user += percent(spent(USER) + spent(NICE));
        sum.system += percent(spent(SYSTEM));
        sum.iowait += percent(spent(IOWAIT));
        sum.irq += percent(spent(IRQ));
        sum.softirq += percent(spent(SOFTIRQ));
        sum.cpus += 1;
        if sum.peak_cpu < 0 || busy > sum.peak {
            sum.peak = busy;
            sum.peak_cpu = i32::try_from(*cpu).unwrap_or(i32::MAX);
        }
    }
    let cpus = f64::from(sum.cpus.max(1));
    for share in [
        &mut sum.total,
        &mut sum.user,
        &mut sum.system,
        &mut sum.iowait,
        &mut sum.irq,
        &mut sum.softirq,
    ] {
        *share /= cpus;
    }
    sum
}

/// Clamps all shares to 0 to 100 % and reports if that changed anything. A server that waited longer than the test
/// scales its figures up, so unrelated load inflates them.
pub(crate) fn clamp_shares(mut cpu: CpuUse) -> (CpuUse, bool) {
    let mut changed = false;
    for share in cpu.shares_mut() {
        // A peer may send NaN.
        let allowed = if share.is_nan() {
            0.0
        } else {
            share.clamp(0.0, 100.0)
        };
        // Single precision in the message turns 100 into slightly more or less.
        changed |= share.is_nan() || (*share - allowed).abs() > 0.01;
        *share = allowed;
    }
    (cpu, changed)
}

/// CPU time per unit of work, µs: `rate` is KiB or transactions per second. 0 if nothing was done.
pub(crate) fn service_demand(cpu: &CpuUse, rate: f64) -> f64 {
    if rate > 0.0 {
        // Percent of a second of each CPU, in µs: 1e6 / 100.
        cpu.total * 10_000.0 * f64::from(cpu.cpus) / rate
    } else {
        0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(rows: &[(u32, [u64; 10])]) -> CpuTimes {
        CpuTimes {
            cpus: rows.to_vec(),
        }
    }

    #[test]
    fn the_use_is_the_mean_of_all_cpus_and_the_peak_the_busiest() {
        let before = times(&[(0, [10; 10]), (2, [0; 10]), (7, [0; 10])]);
        let after = times(&[
            // 100 ticks: 20 user, 10 nice, 10 system, 50 idle, 5 iowait, 1 irq, 4 softirq.
            (0, [30, 20, 20, 60, 15, 11, 14, 10, 10, 10]),
            // 200 ticks, 150 of them user.
            (2, [150, 0, 0, 50, 0, 0, 0, 0, 0, 0]),
            // Came online later: nothing to compare with.
            (5, [1000; 10]),
        ]);
        let cpu = cpu_use(&before, &after);
        assert_eq!(cpu.cpus, 2);
        assert_eq!((cpu.total, cpu.user), (62.5, 52.5));
        assert_eq!(
            (cpu.system, cpu.iowait, cpu.irq, cpu.softirq),
            (5.0, 2.5, 0.5, 2.0)
        );
        assert_eq!((cpu.peak_cpu, cpu.peak), (2, 75.0));
        // 62.5 % of two CPUs is 1.25 s of CPU time a second, for 1000 units.
        assert_eq!(service_demand(&cpu, 1000.0), 1250.0);
        assert_eq!(service_demand(&cpu, 0.0), 0.0);
    }

    #[test]
    fn cpus_that_did_not_tick_were_idle() {
        let same = times(&[(0, [5; 10])]);
        let cpu = cpu_use(&same, &same);
        assert_eq!((cpu.total, cpu.cpus, cpu.peak_cpu), (0.0, 1, 0));
        let none = cpu_use(&same, &times(&[]));
        assert_eq!((none.cpus, none.peak_cpu), (0, -1));
    }

    #[test]
    fn what_is_more_than_everything_is_clamped() {
        let wild = CpuUse {
            total: 130.0,
            user: f64::NAN,
            peak: 99.0,
            ..CpuUse::default()
        };
        let (cpu, changed) = clamp_shares(wild);
        assert!(changed);
        assert_eq!((cpu.total, cpu.user, cpu.peak), (100.0, 0.0, 99.0));
        let fine = CpuUse {
            total: 100.000_01,
            ..CpuUse::default()
        };
        assert!(!clamp_shares(fine).1);
    }
}
